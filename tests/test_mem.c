/* SPDX-License-Identifier: Apache-2.0 */
/* What the mem backend promises beyond the contract: contents shared by name, memory that is used
 * again, zeros that cost nothing, and refusing what makes no sense. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "testhost.h"

extern const struct kvt_backend_ops kvt__mem_backend_ops;

struct place {
	struct testhost th;
	struct testbackend tb;
	struct testsession ts;
};

static int open_place(struct place *p, const char *location, const struct kvt_option_value *option)
{
	int result;

	testhost_init(&p->th);
	p->ts.session = NULL;
	result = testbackend_open(&p->tb, &p->th,
				  &(struct testbackend_options){.ops = &kvt__mem_backend_ops,
								.location = location,
								.options = option,
								.option_count = option != NULL});
	return result ? result : testsession_open(&p->ts, &p->tb, 4, 0);
}

static void close_place(struct place *p)
{
	testsession_close(&p->ts);
	testbackend_close(&p->tb);
	assert_int_equal(atomic_load(&p->th.live), 0);
}

static void stores_of_one_name_share_their_objects(void **state)
{
	struct place a, b, other, private_place;
	char text[4];

	(void)state;
	assert_int_equal(open_place(&a, "shared", NULL), 0);
	assert_int_equal(open_place(&b, "shared", NULL), 0);
	assert_int_equal(open_place(&other, "shared2", NULL), 0);
	assert_int_equal(open_place(&private_place, "", NULL), 0);
	assert_int_equal(testsession_put(&a.ts, "x", "abc", 4, 0, NULL, NULL), 0);
	assert_int_equal(testsession_get(&b.ts, "x", text, 4, 0, NULL), 0);
	assert_string_equal(text, "abc");
	assert_int_equal(testsession_head(&other.ts, "x", NULL), KVT_ENOENT);
	assert_int_equal(testsession_head(&private_place.ts, "x", NULL), KVT_ENOENT);
	/* The one that made it goes first. */
	close_place(&a);
	assert_int_equal(testsession_get(&b.ts, "x", text, 4, 0, NULL), 0);
	assert_int_equal(testsession_put(&b.ts, "x", "def", 4, 0, NULL, NULL), 0);
	assert_int_equal(open_place(&a, "shared", NULL), 0);
	assert_int_equal(testsession_get(&a.ts, "x", text, 4, 0, NULL), 0);
	assert_string_equal(text, "def");
	close_place(&b);
	close_place(&a);
	/* The last one takes the objects along. */
	assert_int_equal(open_place(&a, "shared", NULL), 0);
	assert_int_equal(testsession_head(&a.ts, "x", NULL), KVT_ENOENT);
	close_place(&a);
	close_place(&other);
	close_place(&private_place);
}

static void private_stores_share_nothing(void **state)
{
	struct place a, b;

	(void)state;
	assert_int_equal(open_place(&a, "", NULL), 0);
	assert_int_equal(open_place(&b, "", NULL), 0);
	assert_int_equal(testsession_put(&a.ts, "x", "abc", 4, 0, NULL, NULL), 0);
	assert_int_equal(testsession_head(&b.ts, "x", NULL), KVT_ENOENT);
	close_place(&a);
	close_place(&b);
}

static void a_version_of_an_earlier_content_never_matches(void **state)
{
	struct kvt_object_info info;
	struct place a;

	(void)state;
	assert_int_equal(open_place(&a, "again", NULL), 0);
	assert_int_equal(testsession_put(&a.ts, "x", "abc", 4, 0, NULL, &info), 0);
	close_place(&a);
	assert_int_equal(open_place(&a, "again", NULL), 0);
	assert_int_equal(testsession_put(&a.ts, "x", "abc", 4, 0, NULL, NULL), 0);
	assert_int_equal(testsession_remove(&a.ts, "x", &info.version), KVT_EPRECOND);
	close_place(&a);
}

static void many_objects_are_found_and_removed(void **state)
{
	enum { COUNT = 50000 };
	struct place p;
	char name[32];

	(void)state;
	assert_int_equal(open_place(&p, "", NULL), 0);
	for (int i = 0; i < COUNT; i++) {
		snprintf(name, sizeof(name), "n/%x/%d", i & 15, i);
		assert_int_equal(
			testsession_put(&p.ts, name, &i, sizeof(i), KVT_IO_IF_ABSENT, NULL, NULL),
			0);
	}
	for (int i = 0; i < COUNT; i++) {
		int got = -1;

		snprintf(name, sizeof(name), "n/%x/%d", i & 15, i);
		assert_int_equal(testsession_get(&p.ts, name, &got, sizeof(got), 0, NULL), 0);
		assert_int_equal(got, i);
		if (i % 2)
			assert_int_equal(testsession_remove(&p.ts, name, NULL), 0);
	}
	for (int i = 0; i < COUNT; i++) {
		snprintf(name, sizeof(name), "n/%x/%d", i & 15, i);
		assert_int_equal(testsession_head(&p.ts, name, NULL), i % 2 ? KVT_ENOENT : 0);
	}
	close_place(&p);
}

static void memory_of_replaced_objects_is_used_again(void **state)
{
	static const size_t sizes[] = {1, 300, 8192, 65536, 70000, 300000, 1 << 20};
	uint8_t *body = calloc(1, 1 << 20);
	struct place p;
	long before;

	(void)state;
	assert_non_null(body);
	assert_int_equal(open_place(&p, "", NULL), 0);
	for (int round = 0; round < 2; round++) {
		before = atomic_load(&p.th.allocations);
		for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++)
			for (int i = 0; i < 100; i++)
				assert_int_equal(testsession_put(&p.ts, "same", body, sizes[s], 0,
								 NULL, NULL),
						 0);
	}
	assert_int_equal(atomic_load(&p.th.allocations), before);
	close_place(&p);
	free(body);
}

static void reserved_memory_is_there_before_it_is_needed(void **state)
{
	const struct kvt_option_value option = {"reserve_mib", "16"};
	static uint8_t body[1 << 20];
	struct place p;
	char name[16];
	long before;

	(void)state;
	assert_int_equal(open_place(&p, "", &option), 0);
	before = atomic_load(&p.th.allocations);
	for (int i = 0; i < 14; i++) {
		snprintf(name, sizeof(name), "%d", i);
		assert_int_equal(testsession_put(&p.ts, name, body, sizeof(body), 0, NULL, NULL),
				 0);
	}
	assert_int_equal(atomic_load(&p.th.allocations), before);
	close_place(&p);
}

static void zeros_take_no_memory(void **state)
{
	/* So large that its table of segments has memory of its own. */
	const uint64_t bytes = UINT64_C(1) << 31;
	struct kvt_iovec iov = {NULL, bytes - 100};
	struct testio t = {.io = {.op = KVT_IO_BEGIN, .name = "zeros", .object_bytes = bytes}};
	uint8_t tail[100];
	struct place p;
	void *handle;

	(void)state;
	assert_int_equal(open_place(&p, "", NULL), 0);
	assert_int_equal(testsession_run(&p.ts, &t), 0);
	handle = t.io.handle;
	t = (struct testio){.io = {.op = KVT_IO_PART,
				   .name = "zeros",
				   .iov = &iov,
				   .iov_count = 1,
				   .length = iov.iov_len,
				   .handle = handle}};
	assert_int_equal(testsession_run(&p.ts, &t), 0);
	memset(tail, 9, sizeof(tail));
	t.io.iov = &(struct kvt_iovec){tail, 100};
	t.io.offset = (int64_t)t.io.length;
	t.io.length = 100;
	t.io.part_number = 1;
	assert_int_equal(testsession_run(&p.ts, &t), 0);
	t = (struct testio){.io = {.op = KVT_IO_COMMIT, .name = "zeros", .handle = handle}};
	assert_int_equal(testsession_run(&p.ts, &t), 0);
	assert_int_equal(testsession_get(&p.ts, "zeros", tail, 100, -150, NULL), 0);
	for (int i = 0; i < 100; i++)
		assert_int_equal(tail[i], i < 50 ? 0 : 9);
	/* Two slabs at most, the table, the object and a few more. */
	assert_true(atomic_load(&p.th.live) < 20);
	close_place(&p);
}

static void a_commit_with_bytes_missing_is_refused(void **state)
{
	struct kvt_iovec iov = {"abc", 4};
	struct testio t = {.io = {.op = KVT_IO_BEGIN, .name = "x", .object_bytes = 5}};
	struct place p;
	void *handle;

	(void)state;
	assert_int_equal(open_place(&p, "", NULL), 0);
	assert_int_equal(testsession_run(&p.ts, &t), 0);
	handle = t.io.handle;
	t = (struct testio){.io = {.op = KVT_IO_PART,
				   .name = "x",
				   .iov = &iov,
				   .iov_count = 1,
				   .length = 4,
				   .offset = 2,
				   .handle = handle}};
	assert_int_equal(testsession_run(&p.ts, &t), KVT_EINVAL);
	assert_string_equal(t.detail, "part 0 of x: 4 bytes at 2, the object has 5");
	t.io.offset = 1;
	assert_int_equal(testsession_run(&p.ts, &t), 0);
	t = (struct testio){.io = {.op = KVT_IO_COMMIT, .name = "x", .handle = handle}};
	assert_int_equal(testsession_run(&p.ts, &t), KVT_EINVAL);
	assert_string_equal(t.detail, "commit x: the parts have 4 bytes, expected 5");
	assert_int_equal(testsession_head(&p.ts, "x", NULL), KVT_ENOENT);
	close_place(&p);
}

static void options_that_make_no_sense_are_refused(void **state)
{
	static const struct {
		struct kvt_option_value option;
		const char *message;
	} cases[] = {
		{{"async", "2"}, "mem: option async: '2', expected 0 or 1"},
		{{"async", ""}, "mem: option async: '', expected 0 or 1"},
		{{"depth_busy", "-1"}, "mem: option depth_busy: '-1', expected 0 to 1048576"},
		{{"reserve_mib", "1G"}, "mem: option reserve_mib: '1G', expected 0 to 1048576"},
		{{"depth_busy", "1x"}, "mem: option depth_busy: '1x', expected 0 to 1048576"},
		{{"depth_busy", "99999999999999999999"},
		 "mem: option depth_busy: '99999999999999999999', expected 0 to 1048576"},
	};
	struct place p;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(open_place(&p, "", &cases[i].option), KVT_EINVAL);
		assert_string_equal(testhost_failure(), cases[i].message);
		close_place(&p);
	}
}

static void busy_is_answered_beyond_the_depth_only(void **state)
{
	const struct kvt_option_value option = {"depth_busy", "2"};
	struct testio t[3];
	struct place p;

	(void)state;
	assert_int_equal(open_place(&p, "", &option), 0);
	for (int i = 0; i < 3; i++) {
		t[i] = (struct testio){.io = {.op = KVT_IO_HEAD, .name = "x"}};
		assert_int_equal(testio_prepare(&t[i], &p.ts), 0);
		assert_int_equal(p.tb.ops.submit(p.ts.session, &t[i].io),
				 i < 2 ? KVT_QUEUED : KVT_BUSY);
		p.ts.in_flight++;
	}
	assert_int_equal(p.tb.ops.poll(p.ts.session, INT64_MAX), 2);
	assert_int_equal(p.tb.ops.submit(p.ts.session, &t[2].io), KVT_QUEUED);
	assert_int_equal(p.tb.ops.poll(p.ts.session, 0), 1);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(t[i].completions, 1);
		assert_int_equal(t[i].io.result, KVT_ENOENT);
		testio_release(&t[i]);
	}
	close_place(&p);
}

/* ---- Listing while the table grows ---- */

struct lister {
	struct place *p;
	unsigned stays; /* objects that are there all the time */
	unsigned *seen; /* how often each was listed */
	unsigned bad;
};

static int on_item(struct kvt_io *io, const struct kvt_list_item *item)
{
	struct lister *l = (struct lister *)((struct testio *)io->owner)->user;
	unsigned number;

	if (sscanf(item->name, "stays/%u", &number) == 1 && number < l->stays)
		l->seen[number]++;
	return 0;
}

static void *list_all(void *context)
{
	struct lister *l = context;
	struct testsession ts;
	char token[2048] = "";

	if (testsession_open(&ts, &l->p->tb, 1, 1)) {
		l->bad++;
		return NULL;
	}
	do {
		struct testio t = {.io = {.op = KVT_IO_LIST,
					  .name = "",
					  .list_item = on_item,
					  .list_token = token,
					  .list_token_bytes = sizeof(token),
					  .list_max = 100},
				   .user = l};

		l->bad += testsession_run(&ts, &t) != 0;
	} while (*token && !l->bad);
	testsession_close(&ts);
	return NULL;
}

static void a_listing_is_exact_while_the_table_grows(void **state)
{
	enum { STAYS = 2000, ROUNDS = 5, MORE = 4000 };
	unsigned *seen = calloc(STAYS, sizeof(*seen));
	struct place p;
	struct lister l = {.p = &p, .stays = STAYS, .seen = seen};
	char name[32];

	(void)state;
	assert_non_null(seen);
	assert_int_equal(open_place(&p, "", NULL), 0);
	for (unsigned i = 0; i < STAYS; i++) {
		snprintf(name, sizeof(name), "stays/%u", i);
		assert_int_equal(testsession_put(&p.ts, name, "x", 1, 0, NULL, NULL), 0);
	}
	for (unsigned round = 0; round < ROUNDS; round++) {
		pthread_t thread;

		memset(seen, 0, STAYS * sizeof(*seen));
		assert_int_equal(pthread_create(&thread, NULL, list_all, &l), 0);
		for (unsigned i = 0; i < MORE; i++) {
			snprintf(name, sizeof(name), "goes/%u/%u", round, i);
			(void)testsession_put(&p.ts, name, "x", 1, 0, NULL, NULL);
			if (i % 3 == 0)
				(void)testsession_remove(&p.ts, name, NULL);
		}
		pthread_join(thread, NULL);
		assert_int_equal(l.bad, 0);
		for (unsigned i = 0; i < STAYS; i++)
			assert_int_equal(seen[i], 1);
	}
	close_place(&p);
	free(seen);
}

int main(void)
{
	static const struct CMUnitTest cases[] = {
		cmocka_unit_test(stores_of_one_name_share_their_objects),
		cmocka_unit_test(private_stores_share_nothing),
		cmocka_unit_test(a_version_of_an_earlier_content_never_matches),
		cmocka_unit_test(many_objects_are_found_and_removed),
		cmocka_unit_test(memory_of_replaced_objects_is_used_again),
		cmocka_unit_test(reserved_memory_is_there_before_it_is_needed),
		cmocka_unit_test(zeros_take_no_memory),
		cmocka_unit_test(a_commit_with_bytes_missing_is_refused),
		cmocka_unit_test(options_that_make_no_sense_are_refused),
		cmocka_unit_test(busy_is_answered_beyond_the_depth_only),
		cmocka_unit_test(a_listing_is_exact_while_the_table_grows),
	};

	return cmocka_run_group_tests_name("mem", cases, NULL, NULL);
}
