/* SPDX-License-Identifier: Apache-2.0 */
/* Objects in parts: begin, part, commit and abort, in any order and together. */
#include "contract.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KIB	   UINT64_C(1024)
#define PART_BYTES (512 * KIB)
#define MOST_PARTS 16u

/* An object that is being made in parts, all from one seed. */
struct upload {
	struct contract *c;
	struct testsession *ts;
	const char *name;
	uint64_t object_bytes, part_bytes, seed;
	uint32_t count;
	void *handle;
};

static uint64_t part_size(const struct contract *c)
{
	uint64_t least = c->tb.limits.min_part_bytes;

	return least > PART_BYTES ? least : PART_BYTES;
}

/* Begins an object of `count` parts, the last one shorter and of odd length. */
static struct upload begin(struct contract *c, const char *name, uint32_t count, uint64_t seed)
{
	struct upload u = {.c = c, .ts = &c->ts, .name = name, .count = count, .seed = seed};
	struct contract_io io;

	u.part_bytes = part_size(c);
	u.object_bytes = (count - 1) * u.part_bytes + 12345;
	io = (struct contract_io){
		.t.io = {.op = KVT_IO_BEGIN, .name = name, .object_bytes = u.object_bytes}};
	assert_int_equal(contract_io_run(c, u.ts, &io), 0);
	u.handle = io.t.io.handle;
	return u;
}

static uint64_t part_length(const struct upload *u, uint32_t part)
{
	return part + 1 < u->count ? u->part_bytes : u->object_bytes - part * u->part_bytes;
}

/* One part in flight. */
struct part {
	struct contract_io io;
	struct kvt_iovec iov[2];
	struct contract_buffer memory;
};

static void part_start(struct upload *u, struct part *p, uint32_t number, uint64_t tail_bytes)
{
	uint64_t bytes = part_length(u, number);

	p->memory = contract_buffer_make(bytes, 0);
	p->iov[0] = (struct kvt_iovec){p->memory.data, bytes - tail_bytes};
	p->iov[1] = (struct kvt_iovec){p->memory.data + bytes - tail_bytes, tail_bytes};
	p->io = (struct contract_io){.t.io = {.op = KVT_IO_PART,
					      .flags = tail_bytes ? KVT_IO_LATE_TAIL : 0,
					      .name = u->name,
					      .iov_count = tail_bytes ? 2 : 1,
					      .part_number = number,
					      .length = bytes,
					      .offset = (int64_t)(number * u->part_bytes),
					      .object_bytes = u->object_bytes,
					      .handle = u->handle},
				     .iov = p->iov,
				     .seed = u->seed,
				     .object_at = number * u->part_bytes};
	contract_fill(p->memory.data, bytes - tail_bytes, u->seed, p->io.object_at);
	contract_io_start(u->c, u->ts, &p->io);
}

static int part_finish(struct upload *u, struct part *p)
{
	int result = contract_io_finish(u->c, &p->io);

	contract_buffer_free(&p->memory);
	return result;
}

/* Writes the parts in the order given, `together` of them in flight at once. */
static void write_parts(struct upload *u, const uint32_t *order, uint32_t together)
{
	struct part *parts = calloc(together, sizeof(*parts));

	assert_non_null(parts);
	for (uint32_t at = 0; at < u->count; at += together) {
		uint32_t n = u->count - at < together ? u->count - at : together;

		for (uint32_t i = 0; i < n; i++)
			part_start(u, &parts[i], order ? order[at + i] : at + i, 0);
		for (uint32_t i = n; i--;)
			assert_int_equal(part_finish(u, &parts[i]), 0);
	}
	free(parts);
}

static int end(struct upload *u, uint32_t op, uint32_t flags, const struct kvt_version *if_version,
	       struct kvt_object_info *info)
{
	struct contract_io io = {
		.t.io = {.op = op,
			 .flags = flags | (if_version ? (uint32_t)KVT_IO_IF_VERSION : 0),
			 .name = u->name,
			 .object_bytes = u->object_bytes,
			 .if_version = if_version,
			 .handle = u->handle}};
	int result = contract_io_run(u->c, u->ts, &io);

	if (info)
		*info = io.t.io.info;
	return result;
}

static uint32_t depth(const struct contract *c)
{
	return c->tb.ops.poll ? 16 : 1;
}

static void parts_in_order_make_an_object_when_they_are_committed(void **state)
{
	struct contract *c = *state;
	struct kvt_object_info info, head;
	struct upload u = begin(c, "parts/ordered", 9, 1);

	write_parts(&u, NULL, 1);
	contract_expect_none(c, "parts/ordered");
	assert_int_equal(end(&u, KVT_IO_COMMIT, 0, NULL, &info), 0);
	contract_expect(c, "parts/ordered", u.object_bytes, 1);
	assert_int_equal(contract_simple(c, KVT_IO_HEAD, "parts/ordered", NULL, &head), 0);
	if (info.object_bytes != KVT_BYTES_UNKNOWN) {
		assert_int_equal(info.object_bytes, u.object_bytes);
		if (info.version.bytes) {
			assert_int_equal(info.version.bytes, head.version.bytes);
			assert_memory_equal(info.version.value, head.version.value,
					    head.version.bytes);
		}
	}
}

static void parts_may_come_in_any_order_and_together(void **state)
{
	static const uint32_t orders[][9] = {{8, 7, 6, 5, 4, 3, 2, 1, 0},
					     {4, 8, 0, 6, 2, 7, 1, 5, 3}};
	struct contract *c = *state;

	for (size_t i = 0; i < 2; i++) {
		struct upload u = begin(c, "parts/any", 9, i + 1);

		write_parts(&u, orders[i], depth(c));
		assert_int_equal(end(&u, KVT_IO_COMMIT, 0, NULL, NULL), 0);
		contract_expect(c, "parts/any", u.object_bytes, i + 1);
	}
}

static void one_part_is_enough(void **state)
{
	struct contract *c = *state;
	struct upload u = begin(c, "parts/one", 1, 1);

	write_parts(&u, NULL, 1);
	assert_int_equal(end(&u, KVT_IO_COMMIT, 0, NULL, NULL), 0);
	contract_expect(c, "parts/one", u.object_bytes, 1);
}

static void a_part_that_is_written_again_counts_once(void **state)
{
	struct contract *c = *state;
	struct upload u = begin(c, "parts/again", 3, 1);
	static const uint32_t order[] = {1};
	struct part p;

	part_start(&u, &p, 1, 0);
	assert_int_equal(part_finish(&u, &p), 0);
	part_start(&u, &p, order[0], 0);
	assert_int_equal(part_finish(&u, &p), 0);
	write_parts(&u, NULL, depth(c));
	assert_int_equal(end(&u, KVT_IO_COMMIT, 0, NULL, NULL), 0);
	contract_expect(c, "parts/again", u.object_bytes, 1);
}

static void a_part_may_have_a_late_tail(void **state)
{
	struct contract *c = *state;
	struct upload u;
	struct part p;

	if (contract_can(c, KVT_CAP_FULL_BODY))
		contract_skip("needs the full body beforehand");
	u = begin(c, "parts/tail", 2, 1);
	part_start(&u, &p, 0, 0);
	assert_int_equal(part_finish(&u, &p), 0);
	part_start(&u, &p, 1, 4096);
	assert_int_equal(part_finish(&u, &p), 0);
	assert_int_equal(end(&u, KVT_IO_COMMIT, 0, NULL, NULL), 0);
	contract_expect(c, "parts/tail", u.object_bytes, 1);
}

static void a_part_without_memory_stores_zeros(void **state)
{
	struct contract *c = *state;
	struct upload u = begin(c, "parts/zeros", 3, 1);
	struct kvt_iovec iov = {NULL, u.part_bytes};
	struct contract_io io = {.t.io = {.op = KVT_IO_PART,
					  .name = u.name,
					  .iov_count = 1,
					  .part_number = 1,
					  .length = u.part_bytes,
					  .offset = (int64_t)u.part_bytes,
					  .object_bytes = u.object_bytes,
					  .handle = u.handle},
				 .iov = &iov};
	struct contract_buffer memory;
	struct part p[2];

	part_start(&u, &p[0], 2, 0);
	assert_int_equal(part_finish(&u, &p[0]), 0);
	assert_int_equal(contract_io_run(c, &c->ts, &io), 0);
	part_start(&u, &p[1], 0, 0);
	assert_int_equal(part_finish(&u, &p[1]), 0);
	assert_int_equal(end(&u, KVT_IO_COMMIT, 0, NULL, NULL), 0);
	memory = contract_buffer_make(u.object_bytes, 0);
	assert_int_equal(testsession_get(&c->ts, u.name, memory.data, u.object_bytes, 0, NULL), 0);
	assert_true(contract_match(memory.data, u.part_bytes, 1, 0));
	for (uint64_t i = u.part_bytes; i < 2 * u.part_bytes; i++)
		assert_int_equal(memory.data[i], 0);
	assert_true(contract_match(memory.data + 2 * u.part_bytes, 12345, 1, 2 * u.part_bytes));
	contract_buffer_free(&memory);
}

static void an_aborted_object_was_never_there(void **state)
{
	struct contract *c = *state;
	struct contract_names names = {0};
	struct testsession list;
	struct upload u;

	for (uint32_t written = 0; written <= 3; written++) {
		u = begin(c, "parts/aborted", 3, 1);
		for (uint32_t i = 0; i < written; i++) {
			struct part p;

			part_start(&u, &p, i, 0);
			assert_int_equal(part_finish(&u, &p), 0);
		}
		assert_int_equal(end(&u, KVT_IO_ABORT, 0, NULL, NULL), 0);
		contract_expect_none(c, "parts/aborted");
	}
	/* Nor does it disturb one that was there. */
	assert_int_equal(contract_put(c, "parts/aborted", 777, 5, 0, NULL, NULL), 0);
	u = begin(c, "parts/aborted", 2, 6);
	write_parts(&u, NULL, 1);
	contract_expect(c, "parts/aborted", 777, 5);
	assert_int_equal(end(&u, KVT_IO_ABORT, 0, NULL, NULL), 0);
	contract_expect(c, "parts/aborted", 777, 5);
	assert_int_equal(testsession_open(&list, &c->tb, 1, 1), 0);
	assert_int_equal(contract_list(c, &list, "", 100, &names), 0);
	assert_int_equal(names.count, 1);
	testsession_close(&list);
	contract_names_free(&names);
}

static void a_commit_that_fails_changes_nothing_and_ends_the_handle(void **state)
{
	struct contract *c = *state;
	struct kvt_object_info old, info;
	struct upload u;

	assert_int_equal(contract_put(c, "parts/taken", 3000, 5, 0, NULL, NULL), 0);
	assert_int_equal(contract_simple(c, KVT_IO_HEAD, "parts/taken", NULL, &old), 0);
	if (contract_can(c, KVT_CAP_IF_ABSENT)) {
		u = begin(c, "parts/taken", 2, 6);
		write_parts(&u, NULL, 1);
		assert_int_equal(end(&u, KVT_IO_COMMIT, KVT_IO_IF_ABSENT, NULL, &info), KVT_EEXIST);
		if (info.object_bytes != KVT_BYTES_UNKNOWN)
			assert_int_equal(info.object_bytes, 3000);
		contract_expect(c, "parts/taken", 3000, 5);
		u = begin(c, "parts/free", 2, 6);
		write_parts(&u, NULL, 1);
		assert_int_equal(end(&u, KVT_IO_COMMIT, KVT_IO_IF_ABSENT, NULL, NULL), 0);
		contract_expect(c, "parts/free", u.object_bytes, 6);
	}
	if (contract_can(c, KVT_CAP_IF_VERSION_PUT)) {
		assert_int_equal(contract_put(c, "parts/taken", 3001, 7, 0, NULL, NULL), 0);
		u = begin(c, "parts/taken", 2, 8);
		write_parts(&u, NULL, 1);
		assert_int_equal(end(&u, KVT_IO_COMMIT, 0, &old.version, NULL), KVT_EPRECOND);
		contract_expect(c, "parts/taken", 3001, 7);
		assert_int_equal(contract_simple(c, KVT_IO_HEAD, "parts/taken", NULL, &old), 0);
		u = begin(c, "parts/taken", 2, 9);
		write_parts(&u, NULL, 1);
		assert_int_equal(end(&u, KVT_IO_COMMIT, 0, &old.version, NULL), 0);
		contract_expect(c, "parts/taken", u.object_bytes, 9);
	}
}

static void several_handles_of_one_name_stay_apart(void **state)
{
	struct contract *c = *state;
	struct upload u[3];
	struct part parts[6];
	uint32_t n = 0;

	for (uint32_t i = 0; i < 3; i++)
		u[i] = begin(c, "parts/same", 2, i + 1);
	if (c->tb.ops.poll) {
		for (uint32_t p = 0; p < 2; p++)
			for (uint32_t i = 0; i < 3; i++)
				part_start(&u[i], &parts[n++], p, 0);
		while (n--)
			assert_int_equal(part_finish(&u[n % 3], &parts[n]), 0);
	} else {
		for (uint32_t i = 0; i < 3; i++)
			write_parts(&u[i], NULL, 1);
	}
	assert_int_equal(end(&u[1], KVT_IO_COMMIT, 0, NULL, NULL), 0);
	contract_expect(c, "parts/same", u[1].object_bytes, 2);
	assert_int_equal(end(&u[0], KVT_IO_ABORT, 0, NULL, NULL), 0);
	contract_expect(c, "parts/same", u[1].object_bytes, 2);
	assert_int_equal(end(&u[2], KVT_IO_COMMIT, 0, NULL, NULL), 0);
	contract_expect(c, "parts/same", u[2].object_bytes, 3);
}

static void commit_and_abort_end_their_handle_after_the_deadline_too(void **state)
{
	struct contract *c = *state;
	static const uint32_t ops[] = {KVT_IO_COMMIT, KVT_IO_ABORT};

	for (size_t i = 0; i < 2; i++) {
		struct upload u = begin(c, "parts/late", 1, 1);
		struct contract_io io = {.t.io = {.op = ops[i],
						  .name = u.name,
						  .object_bytes = u.object_bytes,
						  .deadline_ns = c->th.host.now_ns() - 1,
						  .handle = u.handle}};
		int result;

		write_parts(&u, NULL, 1);
		result = contract_io_run(c, &c->ts, &io);
		if (ops[i] == KVT_IO_COMMIT)
			assert_int_equal(result, KVT_ETIMEDOUT);
		else
			assert_true(result == 0 || result == KVT_ETIMEDOUT);
	}
	/* That nothing is left of them is seen when the session closes and memory is counted. */
	assert_int_equal(contract_put(c, "parts/late", 100, 1, 0, NULL, NULL), 0);
	contract_expect(c, "parts/late", 100, 1);
}

static void a_sweep_leaves_objects_and_live_handles_alone(void **state)
{
	struct contract *c = *state;
	struct contract_io io = {.t.io = {.op = KVT_IO_SWEEP, .name = "", .sweep_age_s = 86400}};
	struct testsession list;
	struct upload u;

	assert_int_equal(contract_put(c, "swept/not", 100, 1, 0, NULL, NULL), 0);
	u = begin(c, "swept/parts", 2, 2);
	write_parts(&u, NULL, 1);
	assert_int_equal(testsession_open(&list, &c->tb, 1, 1), 0);
	assert_int_equal(contract_io_run(c, &list, &io), 0);
	assert_int_equal(io.t.io.swept, 0);
	testsession_close(&list);
	assert_int_equal(end(&u, KVT_IO_COMMIT, 0, NULL, NULL), 0);
	contract_expect(c, "swept/parts", u.object_bytes, 2);
	contract_expect(c, "swept/not", 100, 1);
}

const struct CMUnitTest contract_part_cases[] = {
	cmocka_unit_test(parts_in_order_make_an_object_when_they_are_committed),
	cmocka_unit_test(parts_may_come_in_any_order_and_together),
	cmocka_unit_test(one_part_is_enough),
	cmocka_unit_test(a_part_that_is_written_again_counts_once),
	cmocka_unit_test(a_part_may_have_a_late_tail),
	cmocka_unit_test(a_part_without_memory_stores_zeros),
	cmocka_unit_test(an_aborted_object_was_never_there),
	cmocka_unit_test(a_commit_that_fails_changes_nothing_and_ends_the_handle),
	cmocka_unit_test(several_handles_of_one_name_stay_apart),
	cmocka_unit_test(commit_and_abort_end_their_handle_after_the_deadline_too),
	cmocka_unit_test(a_sweep_leaves_objects_and_live_handles_alone),
	{NULL, NULL, NULL, NULL, NULL},
};
