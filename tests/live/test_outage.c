/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A gateway of the test's own is killed, stopped and brought back while jobs run: every job
 * completes once, every object is whole or absent, what was reported as stored is there, and later
 * loads verify. The store behind the gateway lives on.
 */
#include "../support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "live_server.h"

#define GATEWAY	 "outage"
#define JOBS	 8
#define CHUNKS	 64
#define RECOVERY 60000 /* ms: nobody waits longer for a gateway that is back */

static char endpoint[256];

struct scene {
	struct test_bed bed;
	char *uri;
	bool is_paused;
	struct test_transfer jobs[JOBS];
	unsigned job_count;
	uint64_t ids[JOBS];
	struct kvt_result *results[JOBS];
};

static int64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void control(const char *action)
{
	if (!live_server_control(action, GATEWAY, NULL, 0))
		fail_msg("the gateway could not be told: %s", action);
}

static int group_setup(void **state)
{
	(void)state;
	return live_server_control("add", GATEWAY, endpoint, sizeof(endpoint)) ? 0 : -1;
}

static int group_teardown(void **state)
{
	(void)state;
	(void)live_server_control("remove", GATEWAY, NULL, 0);
	return 0;
}

static int setup(void **state)
{
	struct scene *s = calloc(1, sizeof(*s));
	char place[128];

	assert_non_null(s);
	*state = s;
	assert_int_equal(live_server_place(place, sizeof(place)), 0);
	s->uri = test_format("s3://%s", place);
	test_bed_init(&s->bed);
	test_bed_option(&s->bed, "endpoint", endpoint);
	s->bed.worker_options.depth = 4;
	s->bed.worker_options.staging_bytes = 64 << 20;
	s->bed.worker_options.part_bytes = 8 << 20;
	s->bed.worker_options.breaker_failures = UINT32_MAX;
	return 0;
}

static void open_scene(struct scene *s)
{
	test_bed_open(&s->bed, s->uri);
}

/* Jobs of `chunks` chunks of `bytes` bytes, their memory filled. */
static void make_jobs(struct scene *s, unsigned count, uint64_t chunks, uint64_t bytes)
{
	struct test_group group = {.blocks = chunks, .refs = 1, .ref_bytes = {bytes}};

	s->job_count = count;
	for (unsigned j = 0; j < count; j++) {
		test_transfer_init(&s->jobs[j], 1, &group, 1, 100 + j);
		test_transfer_fill(&s->jobs[j]);
	}
}

static void submit(struct scene *s, bool store, const struct kvt_submit_options *options)
{
	struct kvt_worker *w = s->bed.worker;

	for (unsigned j = 0; j < s->job_count; j++) {
		s->ids[j] = s->bed.next_id++;
		if (!store)
			test_transfer_poison(&s->jobs[j]);
		assert_ok(
			store ? kvt_worker_submit_store(w, s->ids[j], &s->jobs[j].transfer, options)
			      : kvt_worker_submit_load(w, s->ids[j], &s->jobs[j].transfer,
						       options));
	}
}

/* Takes the completion of every job; there must not be another one. */
static void take_all(struct scene *s)
{
	struct kvt_result *more;

	for (unsigned j = 0; j < s->job_count; j++)
		s->results[j] = test_take(s->bed.worker, s->ids[j]);
	assert_int_equal(kvt_worker_poll(s->bed.worker, &more, 1), 0);
	assert_int_equal(test_drop_untaken(), 0);
}

static void release_all(struct scene *s)
{
	for (unsigned j = 0; j < s->job_count; j++) {
		kvt_result_release(s->results[j]);
		s->results[j] = NULL;
	}
}

static void run_all(struct scene *s, bool store, uint32_t status)
{
	submit(s, store, NULL);
	take_all(s);
	for (unsigned j = 0; j < s->job_count; j++) {
		assert_result(status, s->results[j]);
		s->results[j] = NULL;
		if (status == KVT_STATUS_LOADED)
			test_transfer_check(&s->jobs[j]);
	}
}

/* How many keys have ended in this way so far. */
static uint64_t finished(struct scene *s, uint32_t kind, uint32_t status)
{
	return test_stats(s->bed.worker).keys[kind][status];
}

/* Waits until some keys of the jobs under way are finished, and many are not. */
static void await_the_middle(struct scene *s, uint32_t kind, uint32_t status, uint64_t count)
{
	uint64_t before = finished(s, kind, status);
	int64_t end = now_ms() + TEST_LIMIT_MS;

	while (finished(s, kind, status) < before + count) {
		assert_true(now_ms() < end);
		(void)!kvt_worker_wait(s->bed.worker, s->ids, 1, 1, NULL);
	}
}

static uint64_t count_keys(const struct scene *s, uint32_t status)
{
	uint64_t count = 0;

	for (unsigned j = 0; j < s->job_count; j++)
		for (uint64_t k = 0; k < s->results[j]->key_count; k++)
			count += s->results[j]->key_status[k] == status;
	return count;
}

static void verify_all_whole(struct scene *s)
{
	struct kvt_verify_summary summary = KVT_INIT(summary);

	assert_ok(kvt_store_verify(s->bed.store, NULL, NULL, NULL, &summary));
	assert_int_equal(summary.whole, summary.objects);
	assert_int_equal(summary.unreadable, 0);
}

/* Loads what the results are about: what was stored is there, all else is there or not. */
static void check_promises(struct scene *s)
{
	for (unsigned j = 0; j < s->job_count; j++) {
		struct kvt_result *stored = s->results[j], *loaded;
		uint64_t id = s->bed.next_id++;

		test_transfer_poison(&s->jobs[j]);
		assert_ok(kvt_worker_submit_load(s->bed.worker, id, &s->jobs[j].transfer, NULL));
		loaded = test_take(s->bed.worker, id);
		for (uint64_t k = 0; k < loaded->key_count; k++) {
			if (kvt_status_is_success(stored->key_status[k]))
				assert_int_equal(loaded->key_status[k], KVT_STATUS_LOADED);
			else if (loaded->key_status[k] != KVT_STATUS_LOADED)
				assert_int_equal(loaded->key_status[k], KVT_STATUS_MISSING);
			if (loaded->key_status[k] == KVT_STATUS_LOADED)
				assert_true(test_transfer_key_ok(&s->jobs[j], k));
		}
		kvt_result_release(loaded);
		test_transfer_fill(&s->jobs[j]);
	}
}

/* Stores what is missing, and all of it loads. */
static void complete_and_check(struct scene *s)
{
	submit(s, true, NULL);
	take_all(s);
	assert_int_equal(count_keys(s, KVT_STATUS_STORED) + count_keys(s, KVT_STATUS_SKIPPED),
			 s->job_count * s->jobs[0].transfer.key_count);
	release_all(s);
	run_all(s, false, KVT_STATUS_LOADED);
	verify_all_whole(s);
}

static int remove_entry(void *context, const struct kvt_list_entry *entry)
{
	if (entry->key.hash)
		(void)!kvt_store_remove(context, &entry->key);
	return 0;
}

static int teardown(void **state)
{
	struct scene *s = *state;

	if (s->is_paused)
		(void)live_server_control("resume", GATEWAY, NULL, 0);
	release_all(s);
	if (s->bed.worker) {
		test_bed_close_worker(&s->bed);
		(void)!kvt_store_list(s->bed.store, remove_entry, s->bed.store);
		assert_ok(kvt_store_close(s->bed.store));
	}
	for (unsigned j = 0; j < s->job_count; j++)
		test_transfer_fini(&s->jobs[j]);
	free(s->uri);
	free(s);
	return 0;
}

static void pause_gateway(struct scene *s)
{
	control("pause");
	s->is_paused = true;
}

static void resume_gateway(struct scene *s)
{
	control("resume");
	s->is_paused = false;
}

/* ---- Killed ---- */

static void a_gateway_killed_in_the_middle_of_stores(void **state)
{
	struct scene *s = *state;

	open_scene(s);
	make_jobs(s, JOBS, CHUNKS, 256 << 10);
	submit(s, true, NULL);
	await_the_middle(s, KVT_JOB_STORE, KVT_STATUS_STORED, 8);
	control("kill");
	take_all(s);
	print_message("  %llu stored, %llu failed\n",
		      (unsigned long long)count_keys(s, KVT_STATUS_STORED),
		      (unsigned long long)count_keys(s, KVT_STATUS_FAILED));
	assert_true(count_keys(s, KVT_STATUS_FAILED) > 0);
	control("revive");
	check_promises(s);
	release_all(s);
	verify_all_whole(s);
	complete_and_check(s);
}

static void a_gateway_killed_in_the_middle_of_stores_of_many_parts(void **state)
{
	struct scene *s = *state;

	s->bed.worker_options.part_bytes = 5 << 20;
	open_scene(s);
	make_jobs(s, 2, 6, 24 << 20);
	submit(s, true, NULL);
	await_the_middle(s, KVT_JOB_STORE, KVT_STATUS_STORED, 1);
	control("kill");
	take_all(s);
	assert_true(count_keys(s, KVT_STATUS_FAILED) > 0);
	control("revive");
	check_promises(s);
	release_all(s);
	verify_all_whole(s);
	complete_and_check(s);
}

static void a_gateway_killed_in_the_middle_of_loads(void **state)
{
	struct scene *s = *state;

	open_scene(s);
	make_jobs(s, JOBS, CHUNKS, 256 << 10);
	run_all(s, true, KVT_STATUS_STORED);
	submit(s, false, NULL);
	await_the_middle(s, KVT_JOB_LOAD, KVT_STATUS_LOADED, 8);
	control("kill");
	take_all(s);
	assert_true(count_keys(s, KVT_STATUS_FAILED) > 0);
	assert_int_equal(count_keys(s, KVT_STATUS_FAILED) + count_keys(s, KVT_STATUS_LOADED),
			 JOBS * CHUNKS);
	for (unsigned j = 0; j < JOBS; j++)
		for (uint64_t k = 0; k < CHUNKS; k++)
			if (s->results[j]->key_status[k] == KVT_STATUS_LOADED)
				assert_true(test_transfer_key_ok(&s->jobs[j], k));
	release_all(s);
	control("revive");
	run_all(s, false, KVT_STATUS_LOADED);
	verify_all_whole(s);
}

/* The connections of before are dead, which only the next request notices. */
static void a_gateway_restarted_between_requests_is_not_noticed(void **state)
{
	struct scene *s = *state;

	s->bed.worker_options.attempts = 1;
	open_scene(s);
	make_jobs(s, 1, 16, 100000);
	run_all(s, true, KVT_STATUS_STORED);
	control("kill");
	control("revive");
	run_all(s, false, KVT_STATUS_LOADED);
	control("kill");
	control("revive");
	test_transfer_fini(&s->jobs[0]);
	make_jobs(s, 2, 16, 100000);
	submit(s, true, NULL);
	take_all(s);
	assert_int_equal(count_keys(s, KVT_STATUS_SKIPPED), 16);
	assert_int_equal(count_keys(s, KVT_STATUS_STORED), 16);
	release_all(s);
}

/* ---- Stopped ---- */

static void a_gateway_that_pauses_delays_stores_and_loads(void **state)
{
	struct scene *s = *state;

	open_scene(s);
	make_jobs(s, 4, CHUNKS, 256 << 10);
	for (int round = 0; round < 2; round++) {
		submit(s, round == 0, NULL);
		await_the_middle(s, round == 0 ? KVT_JOB_STORE : KVT_JOB_LOAD,
				 round == 0 ? KVT_STATUS_STORED : KVT_STATUS_LOADED, 8);
		pause_gateway(s);
		assert_int_equal(kvt_worker_drain(s->bed.worker, 1500), KVT_ETIMEDOUT);
		resume_gateway(s);
		take_all(s);
		for (unsigned j = 0; j < s->job_count; j++) {
			assert_result(round == 0 ? KVT_STATUS_STORED : KVT_STATUS_LOADED,
				      s->results[j]);
			s->results[j] = NULL;
			if (round == 1)
				test_transfer_check(&s->jobs[j]);
		}
	}
	verify_all_whole(s);
}

static void deadlines_are_kept_while_a_gateway_hangs(void **state)
{
	struct scene *s = *state;
	struct kvt_submit_options options = KVT_INIT(options);
	int64_t began;

	/* No deadline but the jobs' own ends them while this waits for them. */
	s->bed.worker_options.operation_timeout_ms = 10 * TEST_LIMIT_MS;
	open_scene(s);
	make_jobs(s, 2, 16, 256 << 10);
	pause_gateway(s);
	options.timeout_ms = 1000;
	for (int round = 0; round < 2; round++) {
		began = now_ms();
		submit(s, round == 0, &options);
		take_all(s);
		assert_true(now_ms() - began >= 900);
		assert_int_equal(count_keys(s, KVT_STATUS_FAILED), 32);
		for (unsigned j = 0; j < s->job_count; j++)
			assert_int_equal(s->results[j]->error, KVT_ETIMEDOUT);
		release_all(s);
	}
	/* The memory is ours again, and nothing writes into it any more. */
	for (unsigned j = 0; j < s->job_count; j++)
		test_transfer_fill(&s->jobs[j]);
	resume_gateway(s);
	complete_and_check(s);
}

static void a_store_is_canceled_while_a_gateway_hangs(void **state)
{
	struct scene *s = *state;

	/* Nothing but the cancel ends them while this waits for them. */
	s->bed.worker_options.operation_timeout_ms = 10 * TEST_LIMIT_MS;
	open_scene(s);
	make_jobs(s, 2, 16, 256 << 10);
	pause_gateway(s);
	submit(s, true, NULL);
	assert_int_equal(kvt_worker_drain(s->bed.worker, 200), KVT_ETIMEDOUT);
	for (unsigned j = 0; j < s->job_count; j++)
		assert_ok(kvt_worker_cancel(s->bed.worker, s->ids[j]));
	take_all(s);
	assert_int_equal(count_keys(s, KVT_STATUS_CANCELED), 32);
	release_all(s);
	resume_gateway(s);
	complete_and_check(s);
}

/* ---- The breaker ---- */

/* One load of all keys of the first job: whether it succeeded. */
static bool try_load(struct scene *s, int *errorp)
{
	struct kvt_result *result;
	uint64_t id = s->bed.next_id++;
	bool loaded;

	test_transfer_poison(&s->jobs[0]);
	assert_ok(kvt_worker_submit_load(s->bed.worker, id, &s->jobs[0].transfer, NULL));
	result = test_take(s->bed.worker, id);
	loaded = result->status == KVT_STATUS_LOADED;
	*errorp = result->error;
	kvt_result_release(result);
	return loaded;
}

static void the_breaker_opens_and_lets_a_gateway_recover(void **state)
{
	struct scene *s = *state;
	int64_t began;
	int error;

	s->bed.worker_options.breaker_failures = 3;
	s->bed.worker_options.breaker_open_ms = 600;
	open_scene(s);
	make_jobs(s, 1, 1, 100000);
	run_all(s, true, KVT_STATUS_STORED);
	assert_true(try_load(s, &error));
	control("kill");
	/* Until one is turned away, without anybody having been asked. */
	error = 0;
	for (int i = 0; error != KVT_EUNAVAIL; i++) {
		assert_true(i < 100);
		assert_false(try_load(s, &error));
	}
	assert_int_not_equal(test_stats(s->bed.worker).breaker, KVT_BREAKER_CLOSED);
	control("revive");
	began = now_ms();
	while (!try_load(s, &error))
		assert_true(now_ms() - began < RECOVERY);
	test_transfer_check(&s->jobs[0]);
	assert_int_equal(test_stats(s->bed.worker).breaker, KVT_BREAKER_CLOSED);
	run_all(s, false, KVT_STATUS_LOADED);
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
	static const char *const needs[] = {"KVT_S3_CONTROL", NULL};
	const struct CMUnitTest tests[] = {
		CASE(a_gateway_killed_in_the_middle_of_stores),
		CASE(a_gateway_killed_in_the_middle_of_stores_of_many_parts),
		CASE(a_gateway_killed_in_the_middle_of_loads),
		CASE(a_gateway_restarted_between_requests_is_not_noticed),
		CASE(a_gateway_that_pauses_delays_stores_and_loads),
		CASE(deadlines_are_kept_while_a_gateway_hangs),
		CASE(a_store_is_canceled_while_a_gateway_hangs),
		CASE(the_breaker_opens_and_lets_a_gateway_recover),
	};

	live_server_need(needs);
	return cmocka_run_group_tests_name("outage", tests, group_setup, group_teardown);
}
