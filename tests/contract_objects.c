/* SPDX-License-Identifier: Apache-2.0 */
/* Whole objects: put, get, head, remove, touch, their conditions and names. */
#include "contract.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KIB UINT64_C(1024)

static const uint64_t sizes[] = {
	1,     511,    4095,	  4096,		  4097,	      64 * KIB,
	65537, 300000, 512 * KIB, 1024 * KIB + 1, 3072 * KIB, 4096 * KIB + 123};

static void an_object_reads_back_byte_for_byte(void **state)
{
	struct contract *c = *state;
	char name[64];

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		snprintf(name, sizeof(name), "sizes/%zu.bin", i);
		assert_int_equal(contract_put(c, name, sizes[i], i + 1, 0, NULL, NULL), 0);
		contract_expect(c, name, sizes[i], i + 1);
	}
	/* None of them disturbed another. */
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		snprintf(name, sizeof(name), "sizes/%zu.bin", i);
		contract_expect(c, name, sizes[i], i + 1);
	}
}

static void an_empty_object_is_an_object(void **state)
{
	struct contract *c = *state;

	assert_int_equal(contract_put(c, "empty", 0, 1, 0, NULL, NULL), 0);
	contract_expect(c, "empty", 0, 1);
	assert_int_equal(contract_simple(c, KVT_IO_REMOVE, "empty", NULL, NULL), 0);
	contract_expect_none(c, "empty");
}

static void what_is_not_there_is_a_miss_for_every_request(void **state)
{
	struct contract *c = *state;

	assert_int_equal(contract_simple(c, KVT_IO_HEAD, "no/such", NULL, NULL), KVT_ENOENT);
	assert_int_equal(contract_simple(c, KVT_IO_REMOVE, "no/such", NULL, NULL), KVT_ENOENT);
	assert_int_equal(contract_get(c, "no/such", 10, 0, 1, 10, NULL, NULL), KVT_ENOENT);
	assert_int_equal(contract_get(c, "no/such", 10, -10, 1, 10, NULL, NULL), KVT_ENOENT);
	if (contract_can(c, KVT_CAP_TOUCH))
		assert_int_equal(contract_simple(c, KVT_IO_TOUCH, "no/such", NULL, NULL),
				 KVT_ENOENT);
	/* What lies on the way to an object is none. */
	assert_int_equal(contract_put(c, "dir/sub/object", 5000, 1, 0, NULL, NULL), 0);
	assert_int_equal(contract_simple(c, KVT_IO_HEAD, "dir/sub", NULL, NULL), KVT_ENOENT);
	assert_true(contract_get(c, "dir", 1, 0, 1, 1, NULL, NULL) < 0);
	assert_true(contract_simple(c, KVT_IO_REMOVE, "dir/sub", NULL, NULL) < 0);
	contract_expect(c, "dir/sub/object", 5000, 1);
}

static void a_put_replaces_shorter_and_longer_objects(void **state)
{
	struct contract *c = *state;
	struct kvt_object_info first, second;

	assert_int_equal(contract_put(c, "a/b", 70000, 1, 0, NULL, NULL), 0);
	assert_int_equal(contract_simple(c, KVT_IO_HEAD, "a/b", NULL, &first), 0);
	assert_int_equal(contract_put(c, "a/b", 100, 2, 0, NULL, NULL), 0);
	contract_expect(c, "a/b", 100, 2);
	assert_int_equal(contract_put(c, "a/b", 200000, 3, 0, NULL, NULL), 0);
	contract_expect(c, "a/b", 200000, 3);
	/* The same length: the version tells them apart. */
	assert_int_equal(contract_put(c, "a/b", 70000, 4, 0, NULL, NULL), 0);
	contract_expect(c, "a/b", 70000, 4);
	assert_int_equal(contract_simple(c, KVT_IO_HEAD, "a/b", NULL, &second), 0);
	if (first.version.bytes && second.version.bytes)
		assert_false(
			first.version.bytes == second.version.bytes &&
			!memcmp(first.version.value, second.version.value, first.version.bytes));
}

static void a_put_if_absent_leaves_what_is_there_alone(void **state)
{
	struct contract *c = *state;
	struct kvt_object_info info;

	if (!contract_can(c, KVT_CAP_IF_ABSENT))
		contract_skip("without IF_ABSENT");
	assert_int_equal(contract_put(c, "once", 9000, 1, KVT_IO_IF_ABSENT, NULL, NULL), 0);
	contract_expect(c, "once", 9000, 1);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(contract_put(c, "once", 4000, 2, KVT_IO_IF_ABSENT, NULL, &info),
				 KVT_EEXIST);
		if (info.object_bytes != KVT_BYTES_UNKNOWN)
			assert_int_equal(info.object_bytes, 9000);
		contract_expect(c, "once", 9000, 1);
	}
	assert_int_equal(contract_simple(c, KVT_IO_REMOVE, "once", NULL, NULL), 0);
	assert_int_equal(contract_put(c, "once", 4000, 2, KVT_IO_IF_ABSENT, NULL, NULL), 0);
	contract_expect(c, "once", 4000, 2);
}

static void versions_agree_between_head_get_and_put(void **state)
{
	struct contract *c = *state;
	struct kvt_object_info put, head, get;

	assert_int_equal(contract_put(c, "v/1", 5000, 1, 0, NULL, &put), 0);
	assert_int_equal(contract_simple(c, KVT_IO_HEAD, "v/1", NULL, &head), 0);
	assert_int_equal(contract_get(c, "v/1", 100, 50, 1, 5000, NULL, &get), 0);
	assert_int_equal(head.version.bytes, get.version.bytes);
	assert_memory_equal(head.version.value, get.version.value, head.version.bytes);
	if (put.object_bytes != KVT_BYTES_UNKNOWN && put.version.bytes) {
		assert_int_equal(put.version.bytes, head.version.bytes);
		assert_memory_equal(put.version.value, head.version.value, head.version.bytes);
	}
	if (contract_can(c, KVT_CAP_IF_VERSION_GET) || contract_can(c, KVT_CAP_IF_VERSION_PUT) ||
	    contract_can(c, KVT_CAP_IF_VERSION_REMOVE))
		assert_true(head.version.bytes > 0);
}

static void conditions_on_a_version_are_kept(void **state)
{
	struct contract *c = *state;
	struct kvt_object_info old, new, none;

	assert_int_equal(contract_put(c, "v/2", 5000, 1, 0, NULL, NULL), 0);
	assert_int_equal(contract_simple(c, KVT_IO_HEAD, "v/2", NULL, &old), 0);
	if (contract_can(c, KVT_CAP_IF_VERSION_PUT)) {
		assert_int_equal(contract_put(c, "v/2", 5001, 2, 0, &old.version, NULL), 0);
		contract_expect(c, "v/2", 5001, 2);
		assert_int_equal(contract_put(c, "v/2", 5002, 3, 0, &old.version, NULL),
				 KVT_EPRECOND);
		contract_expect(c, "v/2", 5001, 2);
		assert_true(contract_put(c, "v/none", 5, 3, 0, &old.version, &none) < 0);
		contract_expect_none(c, "v/none");
	} else {
		assert_int_equal(contract_put(c, "v/2", 5001, 2, 0, NULL, NULL), 0);
	}
	assert_int_equal(contract_simple(c, KVT_IO_HEAD, "v/2", NULL, &new), 0);
	if (contract_can(c, KVT_CAP_IF_VERSION_GET)) {
		assert_int_equal(contract_get(c, "v/2", 9, 0, 2, 5001, &old.version, NULL),
				 KVT_EPRECOND);
		assert_int_equal(contract_get(c, "v/2", 9, 0, 2, 5001, &new.version, NULL), 0);
	}
	if (contract_can(c, KVT_CAP_IF_VERSION_REMOVE)) {
		assert_int_equal(contract_simple(c, KVT_IO_REMOVE, "v/2", &old.version, NULL),
				 KVT_EPRECOND);
		contract_expect(c, "v/2", 5001, 2);
		assert_int_equal(contract_simple(c, KVT_IO_REMOVE, "v/2", &new.version, NULL), 0);
		contract_expect_none(c, "v/2");
		assert_true(contract_simple(c, KVT_IO_REMOVE, "v/2", &new.version, NULL) < 0);
	}
}

static void a_removed_object_is_gone_and_can_come_back(void **state)
{
	struct contract *c = *state;

	for (uint64_t i = 1; i < 4; i++) {
		assert_int_equal(contract_put(c, "r/x/y", 4096 * i, i, 0, NULL, NULL), 0);
		assert_int_equal(contract_put(c, "r/x/z", 10, 9, 0, NULL, NULL), 0);
		contract_expect(c, "r/x/y", 4096 * i, i);
		assert_int_equal(contract_simple(c, KVT_IO_REMOVE, "r/x/y", NULL, NULL), 0);
		contract_expect_none(c, "r/x/y");
		contract_expect(c, "r/x/z", 10, 9);
		assert_int_equal(contract_simple(c, KVT_IO_REMOVE, "r/x/y", NULL, NULL),
				 KVT_ENOENT);
	}
}

static void names_of_every_kind_are_kept_apart(void **state)
{
	static const char *const names[] = {
		"a",
		"A",
		"a.bin",
		"a..b",
		"..a",
		"...",
		".hidden/.file",
		"-",
		"--help",
		"_",
		"with space/and  two",
		"per%20cent/%2f/%00",
		"plus+equals=amp&question?hash#",
		"quotes'\"`$(id)",
		"back\\slash",
		"star*[a-z]{x}~",
		"semi;colon:comma,at@bar|<>^!",
		"\xc3\xa4\xc3\xb6\xc3\xbc/\xe6\x97\xa5\xe6\x9c\xac/\xf0\x9f\x98\x80.bin",
		"a\xcc\x8a", /* decomposed */
		"\xc3\xa5",  /* composed: another name */
		"deep/e/r/a/n/d/d/e/e/p/e/r/a/n/d/d/e/e/p/e/r/x",
	};
	struct contract *c = *state;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		assert_int_equal(
			contract_put(c, names[i], 100 + i, i + 1,
				     contract_can(c, KVT_CAP_IF_ABSENT) ? KVT_IO_IF_ABSENT : 0,
				     NULL, NULL),
			0);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		contract_expect(c, names[i], 100 + i, i + 1);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i += 2)
		assert_int_equal(contract_simple(c, KVT_IO_REMOVE, names[i], NULL, NULL), 0);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (i % 2)
			contract_expect(c, names[i], 100 + i, i + 1);
		else
			contract_expect_none(c, names[i]);
}

static void names_of_the_greatest_length_work(void **state)
{
	struct contract *c = *state;
	uint32_t most = c->tb.limits.max_name_bytes;
	char *name = malloc((size_t)most + 2);

	assert_non_null(name);
	/* Components of 200 bytes at most, the last one never empty. */
	for (uint32_t i = 0; i < most; i++)
		name[i] = i % 201 == 200 && i + 1 < most ? '/' : (char)('a' + i % 26);
	name[most] = 0;
	assert_int_equal(contract_put(c, name, 5000, 1, 0, NULL, NULL), 0);
	contract_expect(c, name, 5000, 1);
	name[most - 1]++;
	contract_expect_none(c, name);
	assert_int_equal(contract_put(c, name, 5001, 2, 0, NULL, NULL), 0);
	contract_expect(c, name, 5001, 2);
	name[most - 1]--;
	contract_expect(c, name, 5000, 1);
	assert_int_equal(contract_simple(c, KVT_IO_REMOVE, name, NULL, NULL), 0);
	contract_expect_none(c, name);
	free(name);
}

static void a_touch_makes_the_access_time_now(void **state)
{
	const int64_t minute_ns = INT64_C(60000000000), coarse_ns = 25000000;
	struct contract *c = *state;
	struct kvt_object_info info;
	int64_t touched_ns;

	assert_int_equal(contract_put(c, "t", 5000, 1, 0, NULL, NULL), 0);
	assert_int_equal(contract_simple(c, KVT_IO_HEAD, "t", NULL, &info), 0);
	assert_true(info.age_ns >= -1 && info.age_ns < minute_ns);
	if (!contract_can(c, KVT_CAP_TOUCH))
		contract_skip("without TOUCH");
	/* Longer than the clocks of file systems are coarse. */
	touched_ns = c->th.host.now_ns() + 3 * coarse_ns;
	while (c->th.host.now_ns() < touched_ns)
		sched_yield();
	assert_int_equal(contract_simple(c, KVT_IO_TOUCH, "t", NULL, NULL), 0);
	assert_int_equal(contract_simple(c, KVT_IO_HEAD, "t", NULL, &info), 0);
	assert_true(info.access_age_ns >= 0);
	assert_true(info.access_age_ns <= c->th.host.now_ns() - touched_ns + coarse_ns);
	/* Touching is no writing. */
	assert_true(info.age_ns == -1 || info.age_ns >= 3 * coarse_ns - coarse_ns);
	contract_expect(c, "t", 5000, 1);
}

static void a_cheap_head_answers_or_says_that_it_is_dear(void **state)
{
	struct contract *c = *state;
	struct contract_io io = {.t.io = {.op = KVT_IO_HEAD,
					  .name = "cheap",
					  .flags = KVT_IO_IF_CHEAP,
					  .object_bytes = 5000}};
	int result;

	result = contract_io_run(c, &c->ts, &io);
	assert_true(result == KVT_ENOENT || result == KVT_EAGAIN);
	assert_int_equal(contract_put(c, "cheap", 5000, 1, 0, NULL, NULL), 0);
	io = (struct contract_io){.t.io = {.op = KVT_IO_HEAD,
					   .name = "cheap",
					   .flags = KVT_IO_IF_CHEAP,
					   .object_bytes = 5000}};
	result = contract_io_run(c, &c->ts, &io);
	if (result == KVT_EAGAIN)
		assert_int_equal(io.t.answer, KVT_DONE);
	else
		assert_int_equal(result, 0);
}

static int cached_head(struct contract *c, struct testsession *ts, uint64_t *bytesp)
{
	struct contract_io io = {
		.t.io = {.op = KVT_IO_HEAD, .name = "remembered", .flags = KVT_IO_CACHED_OK}};
	int result = contract_io_run(c, ts, &io);

	*bytesp = io.t.io.info.object_bytes;
	return result;
}

/* Twice each time: once asked, and once perhaps remembered. */
static void an_older_answer_tells_of_what_was_done_here_since(void **state)
{
	struct contract *c = *state;
	struct testsession other;
	uint64_t bytes;

	assert_int_equal(testsession_open(&other, &c->tb, 2, 0), 0);
	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < 2; i++)
			assert_int_equal(cached_head(c, &other, &bytes), KVT_ENOENT);
		for (uint64_t length = 5000; length > 0; length -= 2500) {
			assert_int_equal(
				contract_put(c, "remembered", length, length, 0, NULL, NULL), 0);
			for (int i = 0; i < 2; i++) {
				assert_int_equal(cached_head(c, &other, &bytes), 0);
				assert_int_equal(bytes, length);
			}
		}
		assert_int_equal(contract_simple(c, KVT_IO_REMOVE, "remembered", NULL, NULL), 0);
	}
	assert_int_equal(cached_head(c, &c->ts, &bytes), KVT_ENOENT);
	testsession_close(&other);
}

static void what_it_has_learnt_is_one_line(void **state)
{
	static const size_t rooms[] = {1, 2, 17, 256};
	struct contract *c = *state;

	if (!c->tb.ops.describe)
		contract_skip("it does not describe what it learns");
	assert_int_equal(contract_put(c, "learnt", 5000, 1, 0, NULL, NULL), 0);
	for (size_t r = 0; r < sizeof(rooms) / sizeof(rooms[0]); r++) {
		struct contract_buffer text = contract_buffer_make(rooms[r], 0);

		memset(text.data, 0xEE, rooms[r]);
		c->tb.ops.describe(c->tb.backend, (char *)text.data, rooms[r]);
		const uint8_t *end = memchr(text.data, 0, rooms[r]);
		assert_non_null(end);
		for (const uint8_t *at = text.data; at < end; at++)
			assert_true(*at >= 0x20 && *at != 0x7f);
		contract_buffer_free(&text);
	}
}

static void a_deadline_in_the_past_is_a_timeout_and_no_more(void **state)
{
	static const uint32_t ops[] = {KVT_IO_PUT, KVT_IO_GET, KVT_IO_HEAD, KVT_IO_REMOVE};
	struct contract *c = *state;
	struct contract_buffer buffer = contract_buffer_make(8192, 0);
	struct kvt_iovec iov = {buffer.data, 8192};

	assert_int_equal(contract_put(c, "late", 8192, 1, 0, NULL, NULL), 0);
	for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
		bool moves = ops[i] == KVT_IO_PUT || ops[i] == KVT_IO_GET;
		struct contract_io io = {.t.io = {.op = ops[i],
						  .name = "late",
						  .iov_count = moves,
						  .length = moves ? 8192 : 0,
						  .object_bytes = moves ? 8192 : 0,
						  .deadline_ns = c->th.host.now_ns() - 1},
					 .iov = &iov,
					 .seed = 1};

		contract_fill(buffer.data, 8192, 1, 0);
		io.t.io.crc32c = c->th.host.crc32c(0, buffer.data, 8192);
		assert_int_equal(contract_io_run(c, &c->ts, &io), KVT_ETIMEDOUT);
	}
	/* An operation that could not be taken back may have happened; the session works on. */
	assert_int_equal(contract_put(c, "late", 5000, 2, 0, NULL, NULL), 0);
	contract_expect(c, "late", 5000, 2);
	contract_buffer_free(&buffer);
}

static void an_unknown_request_is_a_usage_error(void **state)
{
	struct contract *c = *state;
	struct contract_io io = {.t.io = {.op = 99, .name = "x"}};
	int result = contract_io_run(c, &c->ts, &io);

	assert_true(result == KVT_ENOTSUP || result == KVT_EINVAL);
}

static void limits_and_capabilities_make_sense(void **state)
{
	struct contract *c = *state;
	const struct kvt_backend_limits *l = &c->tb.limits;

	assert_int_equal(l->struct_size, sizeof(*l));
	assert_true(l->min_part_bytes >= 1 && l->min_part_bytes <= l->max_part_bytes);
	assert_true(l->max_part_bytes <= l->max_object_bytes);
	assert_true(l->max_parts >= 1 && l->max_iov >= 2 && l->default_depth >= 1);
	assert_true(l->memory_alignment && !(l->memory_alignment & (l->memory_alignment - 1)));
	assert_true(l->max_name_bytes >= 256);
	assert_non_null(memchr(l->detail, 0, sizeof(l->detail)));
	assert_true(l->default_part_bytes <= l->max_part_bytes);
	if (l->merge_gap_bytes)
		assert_true(l->capabilities & KVT_CAP_GET_DISCARD);
	assert_int_equal(l->capabilities & contract_current->capabilities,
			 contract_current->capabilities);
	/* The table itself. */
	assert_int_equal(c->tb.ops.abi, KVT_BACKEND_ABI);
	assert_true(!c->tb.ops.poll == !c->tb.ops.wake);
	assert_true(!c->tb.ops.wraps == !contract_current->inner);
	for (const struct kvt_option_spec *o = c->tb.ops.option_specs; o && o->name; o++) {
		assert_non_null(o->help);
		assert_null(strchr(o->help, '\n'));
	}
}

const struct CMUnitTest contract_object_cases[] = {
	cmocka_unit_test(limits_and_capabilities_make_sense),
	cmocka_unit_test(an_object_reads_back_byte_for_byte),
	cmocka_unit_test(an_empty_object_is_an_object),
	cmocka_unit_test(what_is_not_there_is_a_miss_for_every_request),
	cmocka_unit_test(a_put_replaces_shorter_and_longer_objects),
	cmocka_unit_test(a_put_if_absent_leaves_what_is_there_alone),
	cmocka_unit_test(versions_agree_between_head_get_and_put),
	cmocka_unit_test(conditions_on_a_version_are_kept),
	cmocka_unit_test(a_removed_object_is_gone_and_can_come_back),
	cmocka_unit_test(names_of_every_kind_are_kept_apart),
	cmocka_unit_test(names_of_the_greatest_length_work),
	cmocka_unit_test(a_touch_makes_the_access_time_now),
	cmocka_unit_test(a_cheap_head_answers_or_says_that_it_is_dear),
	cmocka_unit_test(an_older_answer_tells_of_what_was_done_here_since),
	cmocka_unit_test(what_it_has_learnt_is_one_line),
	cmocka_unit_test(a_deadline_in_the_past_is_a_timeout_and_no_more),
	cmocka_unit_test(an_unknown_request_is_a_usage_error),
	{NULL, NULL, NULL, NULL, NULL},
};
