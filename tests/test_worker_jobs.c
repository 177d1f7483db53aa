/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs and their completions: poll, wait, drain, the event descriptor, ids, lookups, statistics. */
#include "support.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "fake_backend.h"

static const struct test_group page = {1, 0, 1, {4096}};

struct scene {
	struct fake_store *fake;
	struct test_bed bed;
	struct test_transfer t; /* one whole chunk of one page */
};

static void scene_open(struct scene *s)
{
	memset(s, 0, sizeof(*s));
	s->fake = fake_store_create(NULL);
	test_bed_init(&s->bed);
	test_bed_open(&s->bed, fake_store_uri(s->fake));
	test_transfer_init(&s->t, 1, &page, 1, 1);
	test_transfer_fill(&s->t);
}

static void scene_close(struct scene *s)
{
	test_bed_close(&s->bed);
	test_transfer_fini(&s->t);
	if (fake_violation(s->fake))
		fail_msg("%s", fake_violation(s->fake));
	fake_store_destroy(s->fake);
}

static bool readable(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	return poll(&p, 1, 0) == 1;
}

static bool becomes_readable(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	return poll(&p, 1, TEST_LIMIT_MS) == 1;
}

static void polling_an_idle_worker_gives_nothing(void **state)
{
	struct scene s;
	struct kvt_result *results[4];

	(void)state;
	scene_open(&s);
	assert_returns(0, kvt_worker_poll(s.bed.worker, results, 4));
	assert_ok(kvt_worker_drain(s.bed.worker, 0));
	assert_ok(kvt_worker_wait(s.bed.worker, NULL, 0, 0, NULL));
	scene_close(&s);
}

static void the_descriptor_is_readable_while_completions_wait(void **state)
{
	struct scene s;
	struct kvt_result *result;

	(void)state;
	scene_open(&s);
	int fd = kvt_worker_event_fd(s.bed.worker);
	assert_true(fd >= 0);
	assert_returns(fd, kvt_worker_event_fd(s.bed.worker));
	assert_false(readable(fd));
	for (uint64_t round = 0; round < 3; round++) {
		assert_ok(kvt_worker_submit_load(s.bed.worker, 1, &s.t.transfer, NULL));
		assert_ok(kvt_worker_submit_load(s.bed.worker, 2, &s.t.transfer, NULL));
		assert_true(becomes_readable(fd));
		assert_ok(kvt_worker_drain(s.bed.worker, TEST_LIMIT_MS));
		assert_true(readable(fd));
		assert_returns(1, kvt_worker_poll(s.bed.worker, &result, 1));
		kvt_result_release(result);
		assert_true(readable(fd));
		assert_returns(1, kvt_worker_poll(s.bed.worker, &result, 1));
		kvt_result_release(result);
		assert_false(readable(fd));
	}
	scene_close(&s);
}

static void a_descriptor_asked_for_late_tells_of_earlier_completions(void **state)
{
	struct scene s;

	(void)state;
	scene_open(&s);
	assert_ok(kvt_worker_submit_load(s.bed.worker, 1, &s.t.transfer, NULL));
	assert_ok(kvt_worker_drain(s.bed.worker, TEST_LIMIT_MS));
	int fd = kvt_worker_event_fd(s.bed.worker);
	assert_true(fd >= 0);
	assert_true(readable(fd));
	assert_result(KVT_STATUS_MISSING, test_take(s.bed.worker, 1));
	assert_false(readable(fd));
	scene_close(&s);
}

static void poll_gives_at_most_what_was_asked_for(void **state)
{
	struct scene s;
	struct kvt_result *results[8];
	bool seen[6] = {false};

	(void)state;
	scene_open(&s);
	for (uint64_t id = 1; id <= 5; id++)
		assert_ok(kvt_worker_submit_load(s.bed.worker, id, &s.t.transfer, NULL));
	assert_ok(kvt_worker_drain(s.bed.worker, TEST_LIMIT_MS));
	assert_returns(2, kvt_worker_poll(s.bed.worker, results, 2));
	assert_returns(3, kvt_worker_poll(s.bed.worker, results + 2, 6));
	assert_returns(0, kvt_worker_poll(s.bed.worker, results + 5, 1));
	for (int i = 0; i < 5; i++) {
		assert_in_range(results[i]->job_id, 1, 5);
		assert_false(seen[results[i]->job_id]);
		seen[results[i]->job_id] = true;
		kvt_result_release(results[i]);
	}
	scene_close(&s);
}

static void wait_tells_running_from_finished_and_unknown(void **state)
{
	struct scene s;
	struct fake_rule hold = {.ops = FAKE_ALL, .name = ".bin", .action = FAKE_HOLD};
	uint64_t ids[] = {1, 99, 2, 98};
	size_t known = 77;

	(void)state;
	scene_open(&s);
	assert_ok(kvt_worker_wait(s.bed.worker, ids, 4, 0, &known));
	assert_int_equal(known, 0);
	assert_ok(kvt_worker_submit_load(s.bed.worker, 1, &s.t.transfer, NULL));
	assert_ok(kvt_worker_wait(s.bed.worker, ids, 4, TEST_LIMIT_MS, &known));
	assert_int_equal(known, 1);

	fake_rule_add(s.fake, &hold);
	assert_ok(kvt_worker_submit_load(s.bed.worker, 2, &s.t.transfer, NULL));
	assert_true(fake_await_held(s.fake, &hold, 1));
	assert_returns(KVT_ETIMEDOUT, kvt_worker_wait(s.bed.worker, ids, 4, 0, &known));
	assert_int_equal(known, 2);
	assert_returns(KVT_ETIMEDOUT, kvt_worker_wait(s.bed.worker, ids, 4, 1, NULL));
	assert_ok(kvt_worker_wait(s.bed.worker, ids, 1, 0, NULL));
	assert_returns(KVT_ETIMEDOUT, kvt_worker_drain(s.bed.worker, 0));
	assert_null(test_take_now(s.bed.worker, 2));
	fake_rule_remove(s.fake, &hold);
	assert_ok(kvt_worker_wait(s.bed.worker, ids, 4, -1, &known));
	assert_result(KVT_STATUS_MISSING, test_take_now(s.bed.worker, 2));
	assert_result(KVT_STATUS_MISSING, test_take_now(s.bed.worker, 1));
	assert_ok(kvt_worker_wait(s.bed.worker, ids, 4, 0, &known));
	assert_int_equal(known, 0);
	scene_close(&s);
}

static void an_id_is_taken_until_its_completion_was_polled(void **state)
{
	struct scene s;
	struct fake_rule hold = {.ops = FAKE_ALL, .name = ".bin", .action = FAKE_HOLD};

	(void)state;
	scene_open(&s);
	fake_rule_add(s.fake, &hold);
	assert_ok(kvt_worker_submit_load(s.bed.worker, 7, &s.t.transfer, NULL));
	assert_fails(KVT_EEXIST, "7", kvt_worker_submit_load(s.bed.worker, 7, &s.t.transfer, NULL));
	assert_fails(KVT_EEXIST, "7",
		     kvt_worker_submit_store(s.bed.worker, 7, &s.t.transfer, NULL));
	fake_rule_remove(s.fake, &hold);
	assert_ok(kvt_worker_drain(s.bed.worker, TEST_LIMIT_MS));
	assert_fails(KVT_EEXIST, "7", kvt_worker_submit_load(s.bed.worker, 7, &s.t.transfer, NULL));
	assert_result(KVT_STATUS_MISSING, test_take(s.bed.worker, 7));
	assert_ok(kvt_worker_submit_load(s.bed.worker, 7, &s.t.transfer, NULL));
	assert_result(KVT_STATUS_MISSING, test_take(s.bed.worker, 7));
	assert_ok(kvt_worker_submit_load(s.bed.worker, 0, &s.t.transfer, NULL));
	assert_ok(kvt_worker_submit_load(s.bed.worker, UINT64_MAX, &s.t.transfer, NULL));
	assert_result(KVT_STATUS_MISSING, test_take(s.bed.worker, 0));
	assert_result(KVT_STATUS_MISSING, test_take(s.bed.worker, UINT64_MAX));
	scene_close(&s);
}

static void check_empty(struct kvt_result *result, uint32_t kind, uint32_t status)
{
	assert_int_equal(result->kind, kind);
	assert_int_equal(result->status, status);
	assert_int_equal(result->key_count, 0);
	assert_int_equal(result->error, 0);
	assert_int_equal(result->bytes, 0);
	kvt_result_release(result);
}

static void a_job_without_keys_completes_at_once(void **state)
{
	struct scene s;
	struct test_transfer none;
	static const struct test_group empty = {0, 5, 3, {1, 2, 3}};
	struct kvt_rows rows = KVT_INIT(rows);
	char row[16];

	(void)state;
	scene_open(&s);
	int fd = kvt_worker_event_fd(s.bed.worker);
	test_transfer_init(&none, 4, &empty, 1, 1);
	assert_ok(kvt_worker_submit_store(s.bed.worker, 1, &none.transfer, NULL));
	assert_true(readable(fd));
	check_empty(test_take_now(s.bed.worker, 1), KVT_JOB_STORE, KVT_STATUS_STORED);
	assert_ok(kvt_worker_submit_load(s.bed.worker, 1, &none.transfer, NULL));
	check_empty(test_take_now(s.bed.worker, 1), KVT_JOB_LOAD, KVT_STATUS_LOADED);
	assert_ok(kvt_worker_submit_lookup(s.bed.worker, 1, NULL, 0, NULL));
	check_empty(test_take_now(s.bed.worker, 1), KVT_JOB_LOOKUP, KVT_STATUS_HIT);
	rows.base = row;
	rows.stride_bytes = sizeof(row);
	rows.row_count = 1;
	assert_ok(kvt_worker_submit_store_rows(s.bed.worker, 1, &rows, NULL));
	check_empty(test_take_now(s.bed.worker, 1), KVT_JOB_STORE, KVT_STATUS_STORED);
	none.transfer.group_count = 0;
	assert_ok(kvt_worker_submit_load(s.bed.worker, 1, &none.transfer, NULL));
	check_empty(test_take_now(s.bed.worker, 1), KVT_JOB_LOAD, KVT_STATUS_LOADED);
	assert_false(readable(fd));
	assert_int_equal(fake_calls(s.fake, KVT_IO_PUT), 0);
	test_transfer_fini(&none);
	scene_close(&s);
}

static void completions_outlive_the_worker(void **state)
{
	struct scene s;

	(void)state;
	scene_open(&s);
	assert_ok(kvt_worker_submit_store(s.bed.worker, 1, &s.t.transfer, NULL));
	struct kvt_result *kept = test_take(s.bed.worker, 1);
	/* These are never polled: destroy frees them. */
	assert_ok(kvt_worker_submit_load(s.bed.worker, 2, &s.t.transfer, NULL));
	assert_ok(kvt_worker_submit_load(s.bed.worker, 3, &s.t.transfer, NULL));
	test_bed_close_worker(&s.bed);
	assert_int_equal(kept->job_id, 1);
	assert_int_equal(kept->key_status[0], KVT_STATUS_STORED);
	assert_string_equal(kept->detail, "");
	kvt_result_release(kept);
	kvt_result_release(NULL);
	scene_close(&s);
}

static void one_bad_key_does_not_spoil_the_others(void **state)
{
	static const struct test_group four = {4, 0, 1, {5000}};
	struct scene s;
	struct test_transfer t;
	char name[KVT_NAME_BYTES];

	(void)state;
	scene_open(&s);
	test_transfer_init(&t, 1, &four, 1, 33);
	test_store(&s.bed, &t, KVT_STATUS_STORED);
	assert_true(kvt_store_object_name(s.bed.store, &t.keys[1], name, sizeof(name)) > 0);
	fake_object_flip(s.fake, name, 4999);
	assert_true(kvt_store_object_name(s.bed.store, &t.keys[2], name, sizeof(name)) > 0);
	assert_true(fake_object_remove(s.fake, name));
	test_transfer_poison(&t);
	assert_ok(kvt_worker_submit_load(s.bed.worker, 5, &t.transfer, NULL));
	struct kvt_result *result = test_take(s.bed.worker, 5);
	assert_int_equal(result->key_status[0], KVT_STATUS_LOADED);
	assert_int_equal(result->key_status[1], KVT_STATUS_CORRUPT);
	assert_int_equal(result->key_error[1], KVT_ECORRUPT);
	assert_int_equal(result->key_status[2], KVT_STATUS_MISSING);
	assert_int_equal(result->key_error[2], KVT_ENOENT);
	assert_int_equal(result->key_status[3], KVT_STATUS_LOADED);
	assert_int_equal(result->status, KVT_STATUS_CORRUPT);
	assert_int_equal(result->error, KVT_ECORRUPT);
	assert_true(result->detail[0] != '\0');
	assert_null(strchr(result->detail, '\n'));
	assert_int_equal(result->bytes, 2 * 5000);
	assert_true(test_transfer_key_ok(&t, 0));
	assert_true(test_transfer_key_ok(&t, 3));
	kvt_result_release(result);
	test_transfer_fini(&t);
	scene_close(&s);
}

/* ---- Lookups ---- */

static void lookups_tell_hits_from_misses(void **state)
{
	static const struct test_group two = {2, 0, 1, {4096}};
	struct scene s;
	struct test_transfer t;
	struct kvt_result *result;

	(void)state;
	scene_open(&s);
	test_transfer_init(&t, 1, &two, 1, 1);
	test_set_geometry(&s.bed, &t);
	test_lookup(&s.bed, t.keys, 2, KVT_STATUS_MISS);
	/* The same seed: the first of the two keys. */
	test_store(&s.bed, &s.t, KVT_STATUS_STORED);
	assert_ok(kvt_worker_submit_lookup(s.bed.worker, 80, t.keys, 2, NULL));
	result = test_take(s.bed.worker, 80);
	assert_int_equal(result->kind, KVT_JOB_LOOKUP);
	assert_int_equal(result->key_status[0], KVT_STATUS_HIT);
	assert_int_equal(result->key_status[1], KVT_STATUS_MISS);
	assert_int_equal(result->status, KVT_STATUS_MISS);
	assert_int_equal(result->error, 0);
	assert_null(result->key_blocks);
	kvt_result_release(result);
	test_transfer_fini(&t);
	scene_close(&s);
}

static void a_prefix_lookup_stops_at_the_first_miss(void **state)
{
	enum { KEYS = 1000, FIRST_MISS = 300 };
	static const struct test_group hits = {FIRST_MISS, 0, 1, {64}}, all = {KEYS, 0, 1, {64}};
	struct scene s;
	struct test_transfer stored, asked;
	struct kvt_submit_options options = KVT_INIT(options);

	(void)state;
	scene_open(&s);
	test_transfer_init(&stored, 1, &hits, 1, 4);
	test_transfer_init(&asked, 1, &all, 1, 4);
	test_set_geometry(&s.bed, &asked);
	test_store(&s.bed, &stored, KVT_STATUS_STORED);
	options.lookup_flags = KVT_LOOKUP_PREFIX;
	unsigned before = fake_calls(s.fake, KVT_IO_HEAD);
	assert_ok(kvt_worker_submit_lookup(s.bed.worker, 90, asked.keys, KEYS, &options));
	struct kvt_result *result = test_take(s.bed.worker, 90);
	unsigned heads = fake_calls(s.fake, KVT_IO_HEAD) - before;
	for (uint64_t k = 0; k < KEYS; k++) {
		assert_int_equal(result->key_status[k], k < FIRST_MISS	  ? KVT_STATUS_HIT
							: k == FIRST_MISS ? KVT_STATUS_MISS
									  : KVT_STATUS_UNKNOWN);
		assert_int_equal(result->key_error[k], 0);
	}
	assert_int_equal(result->error, 0);
	assert_in_range(heads, FIRST_MISS + 1, FIRST_MISS + 1 + 64);
	kvt_result_release(result);

	/* Without the flag every key is asked for. */
	assert_ok(kvt_worker_submit_lookup(s.bed.worker, 91, asked.keys, KEYS, NULL));
	result = test_take(s.bed.worker, 91);
	for (uint64_t k = 0; k < KEYS; k++)
		assert_int_equal(result->key_status[k],
				 k < FIRST_MISS ? KVT_STATUS_HIT : KVT_STATUS_MISS);
	kvt_result_release(result);
	test_transfer_fini(&stored);
	test_transfer_fini(&asked);
	scene_close(&s);
}

static void keys_that_cannot_be_asked_for_are_unknown(void **state)
{
	static const struct test_group ten = {10, 0, 1, {64}};
	struct scene s;
	struct test_transfer t;
	char name[KVT_NAME_BYTES];

	(void)state;
	scene_open(&s);
	test_transfer_init(&t, 1, &ten, 1, 4);
	test_set_geometry(&s.bed, &t);
	test_store(&s.bed, &t, KVT_STATUS_STORED);
	assert_true(kvt_store_object_name(s.bed.store, &t.keys[5], name, sizeof(name)) > 0);
	struct fake_rule fail = {
		.ops = FAKE_ALL, .name = name, .action = FAKE_FAIL, .error = KVT_EACCES};
	fake_rule_add(s.fake, &fail);
	for (uint32_t flags = 0; flags <= KVT_LOOKUP_PREFIX; flags += KVT_LOOKUP_PREFIX) {
		struct kvt_submit_options options = KVT_INIT(options);
		options.lookup_flags = flags;
		assert_ok(kvt_worker_submit_lookup(s.bed.worker, 90, t.keys, 10, &options));
		struct kvt_result *result = test_take(s.bed.worker, 90);
		for (uint64_t k = 0; k < 5; k++)
			assert_int_equal(result->key_status[k], KVT_STATUS_HIT);
		assert_int_equal(result->key_status[5], KVT_STATUS_UNKNOWN);
		assert_int_equal(result->key_error[5], KVT_EACCES);
		assert_int_equal(result->status, KVT_STATUS_UNKNOWN);
		assert_int_equal(result->error, KVT_EACCES);
		assert_true(result->detail[0] != '\0');
		kvt_result_release(result);
	}
	fake_rule_remove(s.fake, &fail);
	test_transfer_fini(&t);
	scene_close(&s);
}

static void presence_lookups_name_the_first_run_of_blocks(void **state)
{
	static const struct {
		int64_t first;
		uint64_t count;
	} runs[] = {{0, 3}, {2, 1}, {5, 3}, {0, 8}};
	struct scene s;
	struct kvt_submit_options options = KVT_INIT(options);

	(void)state;
	scene_open(&s);
	options.lookup_flags = KVT_LOOKUP_PRESENCE;
	for (size_t i = 0; i < TEST_COUNT(runs); i++) {
		struct test_group group = {runs[i].count, runs[i].first, 2, {100, 333}};
		struct test_transfer t;
		test_transfer_init(&t, 8, &group, 1, 500 + i);
		test_set_geometry(&s.bed, &t);
		test_store(&s.bed, &t, KVT_STATUS_STORED);
		assert_ok(kvt_worker_submit_lookup(s.bed.worker, 1, t.keys, 1, &options));
		struct kvt_result *result = test_take(s.bed.worker, 1);
		assert_int_equal(result->key_status[0],
				 runs[i].count == 8 ? KVT_STATUS_HIT : KVT_STATUS_PARTIAL);
		assert_non_null(result->key_blocks);
		assert_int_equal(result->key_blocks[0], runs[i].first);
		assert_int_equal(result->key_blocks[1], runs[i].first + (int64_t)runs[i].count);
		kvt_result_release(result);
		test_transfer_fini(&t);
	}
	scene_close(&s);
}

static void odd_lengths_are_misses_with_a_counter_of_their_own(void **state)
{
	struct scene s;
	char name[KVT_NAME_BYTES];
	uint8_t junk[5000] = {1};

	(void)state;
	scene_open(&s);
	test_set_geometry(&s.bed, &s.t);
	assert_true(kvt_store_object_name(s.bed.store, s.t.keys, name, sizeof(name)) > 0);
	fake_object_put(s.fake, name, junk, sizeof(junk));
	test_lookup(&s.bed, s.t.keys, 1, KVT_STATUS_MISS);
	/* The row's own length: foreign, and not asked for. */
	fake_object_put(s.fake, name, junk, 4096);
	test_lookup(&s.bed, s.t.keys, 1, KVT_STATUS_MISS);
	struct kvt_stats stats = test_stats(s.bed.worker);
	assert_int_equal(stats.odd_length_misses, 2);
	assert_int_equal(stats.keys[KVT_JOB_LOOKUP][KVT_STATUS_MISS], 2);
	scene_close(&s);
}

static void a_new_geometry_replaces_the_old_one(void **state)
{
	static const struct test_group other = {1, 0, 1, {50000}};
	struct scene s;
	struct test_transfer wrong;

	(void)state;
	scene_open(&s);
	test_store(&s.bed, &s.t, KVT_STATUS_STORED);
	test_transfer_init(&wrong, 1, &other, 1, 1);
	test_set_geometry(&s.bed, &wrong);
	test_lookup(&s.bed, s.t.keys, 1, KVT_STATUS_MISS);
	test_set_geometry(&s.bed, &s.t);
	test_lookup(&s.bed, s.t.keys, 1, KVT_STATUS_HIT);
	test_transfer_fini(&wrong);
	scene_close(&s);
}

/* ---- Statistics ---- */

static void statistics_count_what_happened(void **state)
{
	static const struct test_group five = {5, 0, 1, {4096}};
	struct scene s;
	struct test_transfer t;

	(void)state;
	scene_open(&s);
	test_transfer_init(&t, 1, &five, 1, 60);
	test_set_geometry(&s.bed, &t);
	test_store(&s.bed, &t, KVT_STATUS_STORED);
	test_store(&s.bed, &t, KVT_STATUS_SKIPPED);
	test_load(&s.bed, &t, KVT_STATUS_LOADED);
	test_lookup(&s.bed, t.keys, 5, KVT_STATUS_HIT);
	struct kvt_stats stats = test_stats(s.bed.worker);
	assert_int_equal(stats.keys[KVT_JOB_STORE][KVT_STATUS_STORED], 5);
	assert_int_equal(stats.keys[KVT_JOB_STORE][KVT_STATUS_SKIPPED], 5);
	assert_int_equal(stats.keys[KVT_JOB_LOAD][KVT_STATUS_LOADED], 5);
	assert_int_equal(stats.keys[KVT_JOB_LOOKUP][KVT_STATUS_HIT], 5);
	assert_int_equal(stats.bytes[KVT_JOB_STORE], 5 * 4096);
	assert_int_equal(stats.bytes[KVT_JOB_LOAD], 5 * 4096);
	assert_int_equal(stats.jobs_submitted, 4);
	assert_int_equal(stats.jobs_completed, 4);
	assert_int_equal(stats.jobs_refused, 0);
	assert_int_equal(stats.jobs_live, 0);
	assert_true(stats.requests >= 15);
	assert_true(stats.crc_bytes >= 2 * 5 * 4096);
	assert_int_equal(stats.queue_ns.count, 20);
	assert_true(stats.storage_ns.count >= 15);
	assert_int_equal(stats.breaker, KVT_BREAKER_CLOSED);
	assert_int_equal(stats.stores_paused, 0);
	assert_int_equal(stats.last_error, 0);
	assert_string_equal(stats.last_error_detail, "");
	assert_in_range(stats.staging_bytes, 1, s.bed.worker_options.staging_bytes);
	test_transfer_fini(&t);
	scene_close(&s);
}

static void statistics_show_what_runs_and_what_waits(void **state)
{
	static const struct test_group ten = {10, 0, 1, {4096}};
	struct scene s;
	struct test_transfer t;
	struct fake_rule hold = {.ops = FAKE_ALL, .name = ".bin", .action = FAKE_HOLD};

	(void)state;
	memset(&s, 0, sizeof(s));
	s.fake = fake_store_create(NULL);
	test_bed_init(&s.bed);
	s.bed.worker_options.lanes = 1;
	s.bed.worker_options.depth = 2;
	test_bed_open(&s.bed, fake_store_uri(s.fake));
	test_transfer_init(&s.t, 1, &page, 1, 1);
	test_transfer_init(&t, 1, &ten, 1, 61);
	fake_rule_add(s.fake, &hold);
	assert_ok(kvt_worker_submit_load(s.bed.worker, 1, &t.transfer, NULL));
	assert_true(fake_await_held(s.fake, &hold, 2));
	/* The lane counts what it has handed over a moment later. */
	struct kvt_stats stats;
	do
		stats = test_stats(s.bed.worker);
	while (stats.requests_in_flight < 2);
	assert_int_equal(stats.requests_in_flight, 2);
	assert_int_equal(stats.jobs_live, 1);
	assert_true(stats.active_chunks >= 2);
	assert_int_equal(stats.active_chunks + stats.queued_chunks[0] + stats.queued_chunks[1] +
				 stats.queued_chunks[2] + stats.queued_chunks[3],
			 10);
	fake_rule_remove(s.fake, &hold);
	assert_result(KVT_STATUS_MISSING, test_take(s.bed.worker, 1));
	test_transfer_fini(&t);
	scene_close(&s);
}

static atomic_uint warnings;

static void count_warning(void *context, enum kvt_log_level level, const char *line)
{
	(void)context;
	if (level <= KVT_LOG_WARNING && strstr(line, "1000"))
		atomic_fetch_add(&warnings, 1);
	else if (level <= KVT_LOG_WARNING && strstr(line, "1,000"))
		atomic_fetch_add(&warnings, 1);
}

static void a_thousand_hits_without_a_load_are_warned_about_once(void **state)
{
	struct scene s;

	(void)state;
	memset(&s, 0, sizeof(s));
	atomic_store(&warnings, 0);
	s.fake = fake_store_create(NULL);
	test_bed_init(&s.bed);
	s.bed.worker_options.hooks.log = count_warning;
	test_bed_open(&s.bed, fake_store_uri(s.fake));
	test_transfer_init(&s.t, 1, &page, 1, 1);
	test_set_geometry(&s.bed, &s.t);
	test_store(&s.bed, &s.t, KVT_STATUS_STORED);
	for (int i = 0; i < 999; i++)
		test_lookup(&s.bed, s.t.keys, 1, KVT_STATUS_HIT);
	assert_int_equal(atomic_load(&warnings), 0);
	for (int i = 0; i < 500; i++)
		test_lookup(&s.bed, s.t.keys, 1, KVT_STATUS_HIT);
	assert_int_equal(atomic_load(&warnings), 1);
	scene_close(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(polling_an_idle_worker_gives_nothing),
		cmocka_unit_test(the_descriptor_is_readable_while_completions_wait),
		cmocka_unit_test(a_descriptor_asked_for_late_tells_of_earlier_completions),
		cmocka_unit_test(poll_gives_at_most_what_was_asked_for),
		cmocka_unit_test(wait_tells_running_from_finished_and_unknown),
		cmocka_unit_test(an_id_is_taken_until_its_completion_was_polled),
		cmocka_unit_test(a_job_without_keys_completes_at_once),
		cmocka_unit_test(completions_outlive_the_worker),
		cmocka_unit_test(one_bad_key_does_not_spoil_the_others),
		cmocka_unit_test(lookups_tell_hits_from_misses),
		cmocka_unit_test(a_prefix_lookup_stops_at_the_first_miss),
		cmocka_unit_test(keys_that_cannot_be_asked_for_are_unknown),
		cmocka_unit_test(presence_lookups_name_the_first_run_of_blocks),
		cmocka_unit_test(odd_lengths_are_misses_with_a_counter_of_their_own),
		cmocka_unit_test(a_new_geometry_replaces_the_old_one),
		cmocka_unit_test(statistics_count_what_happened),
		cmocka_unit_test(statistics_show_what_runs_and_what_waits),
		cmocka_unit_test(a_thousand_hits_without_a_load_are_warned_about_once),
	};
	return cmocka_run_group_tests_name("worker_jobs", tests, NULL, NULL);
}
