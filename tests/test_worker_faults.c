/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fault sweeps: one scenario of stores, merges, loads and lookups in which call 1, then 2, ... of
 * each operation fails with each class of error, and every allocation in turn, until it passes
 * clean. Whatever fails: every job completes once, what was reported as stored is there with the
 * right bytes, what was loaded is right, nothing else is visible and nothing leaks.
 */
#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct test_group small = {4, 0, 2, {100, 50}};
static const struct test_group large = {4, 0, 2, {30000, 9000}}; /* three parts */
static const struct test_group front = {2, 0, 2, {30000, 9000}};
static const struct test_group back = {3, 1, 2, {30000, 9000}};
static const struct test_group one = {1, 2, 2, {100, 50}};

enum { SMALL, LARGE, FRONT, BACK, WHOLE, ONE, TRANSFERS };

struct sweep {
	char *name; /* of the content in memory */
	char *trace;
	struct test_transfer t[TRANSFERS];
	bool stored[TRANSFERS]; /* was reported so */
	bool may_corrupt;	/* bytes are changed on the way */
	struct test_allocator allocator;
	bool with_allocator;
	struct test_bed bed;
	unsigned failures; /* jobs refused, keys not as hoped for */
};

/* The same chunks by name: SMALL and ONE, and FRONT, BACK and WHOLE. */
static void sweep_begin(struct sweep *s, unsigned number)
{
	memset(s, 0, sizeof(*s));
	s->name = test_format("sweep%u", number);
	test_transfer_init(&s->t[SMALL], 4, &small, 1, 1);
	test_transfer_init(&s->t[LARGE], 4, &large, 1, 2);
	test_transfer_init(&s->t[FRONT], 4, &front, 1, 3);
	test_transfer_init(&s->t[BACK], 4, &back, 1, 3);
	test_transfer_init(&s->t[WHOLE], 4, &large, 1, 3);
	test_transfer_init(&s->t[ONE], 4, &one, 1, 1);
	test_bed_init(&s->bed);
	s->bed.worker_options.staging_bytes = 1 << 20;
	s->bed.worker_options.depth = 4;
	s->bed.worker_options.breaker_failures = UINT32_MAX;
}

static void sweep_end(struct sweep *s)
{
	for (int i = 0; i < TRANSFERS; i++)
		test_transfer_fini(&s->t[i]);
	if (s->trace)
		unlink(s->trace);
	free(s->trace);
	free(s->name);
}

/* Exactly one completion; NULL when the job was refused for want of memory. */
static struct kvt_result *finish(struct sweep *s, int answer, uint64_t id)
{
	struct kvt_result *none;

	if (answer) {
		assert_true(s->with_allocator);
		assert_returns(KVT_ENOMEM, answer);
		s->failures++;
		return NULL;
	}
	assert_ok(kvt_worker_wait(s->bed.worker, &id, 1, TEST_LIMIT_MS, NULL));
	struct kvt_result *result = test_take_now(s->bed.worker, id);
	assert_non_null(result);
	assert_int_equal(result->job_id, id);
	assert_returns(0, kvt_worker_poll(s->bed.worker, &none, 1));
	return result;
}

static void store(struct sweep *s, int which)
{
	uint64_t id = s->bed.next_id++;
	struct test_transfer *t = &s->t[which];

	test_transfer_fill(t);
	struct kvt_result *result =
		finish(s, kvt_worker_submit_store(s->bed.worker, id, &t->transfer, NULL), id);
	if (!result)
		return;
	uint32_t status = result->key_status[0];
	assert_true(status == KVT_STATUS_STORED || status == KVT_STATUS_SKIPPED ||
		    status == KVT_STATUS_FAILED);
	if (status == KVT_STATUS_FAILED) {
		assert_true(result->error < 0);
		assert_true(result->detail[0] != '\0');
		s->failures++;
	} else {
		assert_int_equal(result->error, 0);
		s->stored[which] = true;
	}
	kvt_result_release(result);
	test_transfer_poison(t);
}

static void load(struct sweep *s, int which)
{
	uint64_t id = s->bed.next_id++;
	struct test_transfer *t = &s->t[which];

	test_transfer_poison(t);
	struct kvt_result *result =
		finish(s, kvt_worker_submit_load(s->bed.worker, id, &t->transfer, NULL), id);
	if (!result)
		return;
	switch (result->key_status[0]) {
	case KVT_STATUS_LOADED:
		test_transfer_check(t);
		break;
	case KVT_STATUS_CORRUPT:
		assert_true(s->may_corrupt);
		s->failures++;
		break;
	default:
		assert_true(result->key_status[0] == KVT_STATUS_MISSING ||
			    result->key_status[0] == KVT_STATUS_FAILED);
		s->failures++;
	}
	kvt_result_release(result);
}

static void look_up(struct sweep *s)
{
	uint64_t id = s->bed.next_id++;
	struct kvt_submit_options options = KVT_INIT(options);
	struct kvt_key keys[2] = {s->t[LARGE].keys[0], s->t[WHOLE].keys[0]};
	struct kvt_geometry geometry = KVT_INIT(geometry);

	geometry.blocks_per_chunk = 4;
	geometry.ref_count = 2;
	geometry.ref_bytes = large.ref_bytes;
	int answer = kvt_worker_set_geometry(s->bed.worker, 0, &geometry);
	if (answer) {
		finish(s, answer, id);
		return;
	}
	options.lookup_flags = KVT_LOOKUP_PRESENCE;
	struct kvt_result *result =
		finish(s, kvt_worker_submit_lookup(s->bed.worker, id, keys, 2, &options), id);
	for (int k = 0; result && k < 2; k++) {
		uint32_t status = result->key_status[k];
		assert_true(status == KVT_STATUS_HIT || status == KVT_STATUS_PARTIAL ||
			    status == KVT_STATUS_MISS || status == KVT_STATUS_UNKNOWN);
		s->failures += status == KVT_STATUS_UNKNOWN;
	}
	kvt_result_release(result);
}

static void scenario(struct sweep *s)
{
	store(s, SMALL);
	store(s, LARGE);
	store(s, FRONT);
	store(s, BACK);
	look_up(s);
	load(s, SMALL);
	load(s, LARGE);
	load(s, WHOLE);
	load(s, ONE);
	store(s, SMALL);
}

/* What a clean store of the same content finds. */
static void check_content(struct sweep *s, const char *uri)
{
	static const int loads[] = {SMALL, LARGE, FRONT, BACK};
	struct kvt_verify_summary summary = KVT_INIT(summary);
	struct test_bed clean;

	test_bed_init(&clean);
	test_bed_open(&clean, uri);
	for (size_t i = 0; i < TEST_COUNT(loads); i++) {
		struct test_transfer *t = &s->t[loads[i]];
		uint64_t id = clean.next_id++;
		test_transfer_poison(t);
		assert_ok(kvt_worker_submit_load(clean.worker, id, &t->transfer, NULL));
		struct kvt_result *result = test_take(clean.worker, id);
		uint32_t status = result->key_status[0];
		if (status == KVT_STATUS_LOADED)
			test_transfer_check(t);
		else if (!s->may_corrupt && (s->stored[loads[i]] || status != KVT_STATUS_MISSING))
			fail_msg("transfer %d is %s: %s", loads[i], kvt_status_name(status),
				 result->detail);
		kvt_result_release(result);
	}
	assert_ok(kvt_store_verify(clean.store, NULL, NULL, NULL, &summary));
	assert_int_equal(summary.mismatch + summary.foreign + summary.unknown_format, 0);
	if (!s->may_corrupt)
		assert_int_equal(summary.corrupt, 0);
	assert_true(summary.objects <= 3);
	test_bed_close(&clean);
}

static bool exists(const char *path)
{
	return access(path, F_OK) == 0;
}

static int open_all(struct sweep *s, const char *uri)
{
	s->bed.store_options.uri = uri;
	int error = kvt_store_open(&s->bed.store_options, &s->bed.store);
	if (error) {
		assert_null(s->bed.store);
		return error;
	}
	error = kvt_worker_create(s->bed.store, NULL, &s->bed.worker_options, &s->bed.worker);
	if (error) {
		assert_null(s->bed.worker);
		assert_ok(kvt_store_close(s->bed.store));
	}
	return error;
}

/* One run with one fault; true when the fault happened. */
static bool run_with_fault(unsigned number, const char *option, const char *value,
			   uint32_t attempts, bool error_after, bool may_corrupt)
{
	struct sweep s;
	struct test_bed keeper;

	sweep_begin(&s, number);
	s.may_corrupt = may_corrupt;
	s.bed.worker_options.attempts = attempts;
	char *dir = test_temp_dir(), *plain = test_format("mem:%s", s.name),
	     *faulty = test_format("fault+mem:%s", s.name);
	s.trace = test_format("%s/trace", dir);
	/* Keeps the content alive between the runs. */
	test_bed_init(&keeper);
	test_bed_open_store(&keeper, plain);
	test_bed_option(&s.bed, option, value);
	test_bed_option(&s.bed, "trace", s.trace);
	test_bed_option(&s.bed, "error_after", error_after ? "1" : "0");
	s.bed.store_options.options = s.bed.options;
	if (open_all(&s, faulty) == 0) {
		scenario(&s);
		test_bed_close(&s.bed);
	} else {
		s.failures++;
	}
	bool happened = exists(s.trace);
	struct stat st;
	happened = happened && stat(s.trace, &st) == 0 && st.st_size > 0;
	if (!happened)
		assert_int_equal(s.failures, 0);
	check_content(&s, plain);
	assert_ok(kvt_store_close(keeper.store));
	sweep_end(&s);
	test_remove_tree(dir);
	free(plain);
	free(faulty);
	return happened;
}

static void sweep_operation(const char *option, const char *op, const char *error,
			    uint32_t attempts, bool error_after, bool may_corrupt)
{
	static unsigned number;
	unsigned nth = 1;

	for (bool happened = true; happened; nth++) {
		char *value = error ? test_format("%s:%u:%s", op, nth, error)
				    : test_format("%s:%u", op, nth);
		happened =
			run_with_fault(number++, option, value, attempts, error_after, may_corrupt);
		free(value);
		assert_true(nth < 200);
	}
	print_message("  %s=%s %s, %u attempts: %u calls\n", option, op, error ? error : "",
		      attempts, nth - 2);
}

static const char *const ops[] = {"put", "begin", "part",   "commit", "abort",
				  "get", "head",  "remove", "touch"};

static void every_call_fails_once_with_every_class_of_error(void **state)
{
	static const char *const errors[] = {"EIO",    "ETHROTTLED", "EACCES",	 "ENOSPC",
					     "EINVAL", "EPRECOND",   "EINTERNAL"};

	(void)state;
	for (size_t o = 0; o < TEST_COUNT(ops); o++)
		for (size_t e = 0; e < TEST_COUNT(errors); e++)
			sweep_operation("fail", ops[o], errors[e], 1, false, false);
}

static void every_call_fails_once_and_is_tried_again(void **state)
{
	(void)state;
	for (size_t o = 0; o < TEST_COUNT(ops); o++)
		sweep_operation("fail", ops[o], "EIO", 3, false, false);
}

static void every_call_is_done_and_reported_as_failed(void **state)
{
	(void)state;
	for (size_t o = 0; o < TEST_COUNT(ops); o++)
		for (uint32_t attempts = 1; attempts <= 3; attempts += 2)
			sweep_operation("fail", ops[o], "ESERVER", attempts, true, false);
}

static void every_call_and_all_later_ones_fail(void **state)
{
	(void)state;
	for (size_t o = 0; o < TEST_COUNT(ops); o++) {
		static unsigned number = 100000;
		bool happened = true;
		for (unsigned nth = 1; happened; nth++) {
			char *value = test_format("%s:%u+:EIO", ops[o], nth);
			happened = run_with_fault(number++, "fail", value, 2, false, false);
			free(value);
			assert_true(nth < 200);
		}
	}
}

static void reads_and_writes_that_stop_halfway_are_failures(void **state)
{
	(void)state;
	sweep_operation("short_read", "get", NULL, 1, false, false);
	sweep_operation("short_read", "get", NULL, 3, false, false);
	sweep_operation("short_write", "put", NULL, 1, false, false);
	sweep_operation("short_write", "part", NULL, 1, false, false);
	sweep_operation("short_write", "part", NULL, 3, false, false);
}

static void flipped_bytes_are_never_delivered(void **state)
{
	(void)state;
	sweep_operation("flip", "get", NULL, 1, false, true);
	sweep_operation("flip", "put", NULL, 1, false, true);
	sweep_operation("flip", "part", NULL, 1, false, true);
}

/* ---- Allocations ---- */

/* One run in which allocation `nth` fails (and all later ones); false when none did. */
static bool run_without_memory(unsigned number, uint64_t nth, bool for_good)
{
	struct sweep s;
	struct test_bed keeper;

	sweep_begin(&s, number);
	char *uri = test_format("mem:%s", s.name);
	test_bed_init(&keeper);
	test_bed_open_store(&keeper, uri);
	s.with_allocator = true;
	test_allocator_init(&s.allocator);
	test_allocator_hooks(&s.allocator, &s.bed.store_options.hooks.allocator);
	test_allocator_hooks(&s.allocator, &s.bed.worker_options.hooks.allocator);
	atomic_store(&s.allocator.fail_on, for_good);
	atomic_store(&s.allocator.fail_at, nth);
	int error = open_all(&s, uri);
	if (error) {
		assert_returns(KVT_ENOMEM, error);
	} else {
		scenario(&s);
		test_bed_close(&s.bed);
	}
	assert_int_equal(atomic_load(&s.allocator.live_blocks), 0);
	assert_int_equal(atomic_load(&s.allocator.live_bytes), 0);
	assert_int_equal(atomic_load(&s.allocator.misaligned), 0);
	unsigned failed = atomic_load(&s.allocator.failed);
	if (!failed) {
		assert_int_equal(error, 0);
		assert_int_equal(s.failures, 0);
	}
	check_content(&s, uri);
	assert_ok(kvt_store_close(keeper.store));
	sweep_end(&s);
	free(uri);
	return failed != 0;
}

static void every_allocation_fails_in_turn(void **state)
{
	(void)state;
	for (int for_good = 0; for_good < 2; for_good++) {
		uint64_t nth = 1;
		while (run_without_memory(200000 + (unsigned)nth, nth, for_good)) {
			nth++;
			assert_true(nth < 5000);
		}
		print_message("  %llu allocations\n", (unsigned long long)nth - 1);
		assert_true(nth > 20);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_call_fails_once_with_every_class_of_error),
		cmocka_unit_test(every_call_fails_once_and_is_tried_again),
		cmocka_unit_test(every_call_is_done_and_reported_as_failed),
		cmocka_unit_test(every_call_and_all_later_ones_fail),
		cmocka_unit_test(reads_and_writes_that_stop_halfway_are_failures),
		cmocka_unit_test(flipped_bytes_are_never_delivered),
		cmocka_unit_test(every_allocation_fails_in_turn),
	};
	return cmocka_run_group_tests_name("worker_faults", tests, NULL, NULL);
}
