/* SPDX-License-Identifier: Apache-2.0 */
/* Canceling and expiring at each stage of a job: it completes exactly once, and only when nothing
 * touches its memory any more. */
#include "support.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "fake_backend.h"

static const struct test_group page = {1, 0, 1, {4096}};
static const struct test_group parts = {1, 0, 1, {400000}}; /* seven parts */

struct scene {
	struct fake_store *fake;
	struct test_bed bed;
	struct test_transfer t, twin, large;
	struct fake_rule hold;
};

static void scene_init(struct scene *s, const struct fake_config *config)
{
	memset(s, 0, sizeof(*s));
	s->fake = fake_store_create(config);
	test_bed_init(&s->bed);
	s->bed.worker_options.lanes = 1;
	s->bed.worker_options.depth = 8;
	test_transfer_init(&s->t, 1, &page, 1, 1);
	test_transfer_init(&s->twin, 1, &page, 1, 1);
	test_transfer_init(&s->large, 1, &parts, 1, 2);
	test_transfer_fill(&s->t);
	test_transfer_fill(&s->twin);
	test_transfer_fill(&s->large);
}

static void scene_open(struct scene *s)
{
	struct test_transfer first;

	test_bed_open(&s->bed, fake_store_uri(s->fake));
	test_transfer_init(&first, 1, &page, 1, 999);
	test_store(&s->bed, &first, KVT_STATUS_STORED);
	test_transfer_fini(&first);
	test_set_geometry(&s->bed, &s->t);
	fake_records_clear(s->fake);
}

static void scene_close(struct scene *s)
{
	test_bed_close(&s->bed);
	test_transfer_fini(&s->t);
	test_transfer_fini(&s->twin);
	test_transfer_fini(&s->large);
	if (fake_violation(s->fake))
		fail_msg("%s", fake_violation(s->fake));
	assert_int_equal(fake_open_handles(s->fake), 0);
	fake_store_destroy(s->fake);
}

static void hold(struct scene *s, uint32_t ops, enum fake_action action)
{
	s->hold = (struct fake_rule){.ops = ops, .name = ".bin", .action = action};
	fake_rule_add(s->fake, &s->hold);
}

static void unhold(struct scene *s)
{
	fake_rule_remove(s->fake, &s->hold);
}

/* One key, canceled, no request in flight that has its memory. */
static void assert_canceled(struct scene *s, uint64_t id, const struct test_transfer *t)
{
	struct kvt_result *result = test_take(s->bed.worker, id);

	assert_false(fake_touches(s->fake, t->memory, t->memory_bytes));
	assert_result_error(KVT_STATUS_CANCELED, KVT_ECANCELED, result);
}

/* ---- Canceling ---- */

static void what_waits_in_the_queue_is_canceled_at_once(void **state)
{
	struct scene s;

	(void)state;
	scene_init(&s, NULL);
	s.bed.worker_options.depth = 1;
	scene_open(&s);
	hold(&s, FAKE_ALL, FAKE_STICK);
	assert_ok(kvt_worker_submit_load(s.bed.worker, 1, &s.large.transfer, NULL));
	assert_true(fake_await_held(s.fake, &s.hold, 1));
	assert_ok(kvt_worker_submit_store(s.bed.worker, 2, &s.t.transfer, NULL));
	assert_ok(kvt_worker_submit_load(s.bed.worker, 3, &s.twin.transfer, NULL));
	assert_ok(kvt_worker_submit_lookup(s.bed.worker, 4, s.t.keys, 1, NULL));
	for (uint64_t id = 2; id <= 4; id++) {
		assert_ok(kvt_worker_cancel(s.bed.worker, id));
		/* Completed already, with the lane stuck. */
		assert_ok(kvt_worker_wait(s.bed.worker, &id, 1, 0, NULL));
		assert_result_error(id == 4 ? KVT_STATUS_UNKNOWN : KVT_STATUS_CANCELED,
				    KVT_ECANCELED, test_take_now(s.bed.worker, id));
		assert_returns(KVT_ENOENT, kvt_worker_cancel(s.bed.worker, id));
	}
	assert_int_equal(fake_record_count(s.fake), 1);
	unhold(&s);
	assert_result(KVT_STATUS_MISSING, test_take(s.bed.worker, 1));
	scene_close(&s);
}

static void a_finished_job_is_not_changed_by_cancel(void **state)
{
	struct scene s;

	(void)state;
	scene_init(&s, NULL);
	scene_open(&s);
	assert_ok(kvt_worker_submit_store(s.bed.worker, 1, &s.t.transfer, NULL));
	assert_ok(kvt_worker_drain(s.bed.worker, TEST_LIMIT_MS));
	int answer = kvt_worker_cancel(s.bed.worker, 1);
	assert_true(answer == 0 || answer == KVT_ENOENT);
	assert_result(KVT_STATUS_STORED, test_take(s.bed.worker, 1));
	scene_close(&s);
}

static void a_request_in_flight_is_waited_for(void **state)
{
	static const uint32_t ops[] = {KVT_IO_PUT, KVT_IO_HEAD, KVT_IO_GET};

	(void)state;
	for (size_t i = 0; i < TEST_COUNT(ops); i++) {
		struct scene s;
		bool load = ops[i] == KVT_IO_GET;
		scene_init(&s, NULL);
		scene_open(&s);
		if (load)
			test_store(&s.bed, &s.t, KVT_STATUS_STORED);
		hold(&s, FAKE_OP(ops[i]), FAKE_STICK);
		if (load)
			assert_ok(kvt_worker_submit_load(s.bed.worker, 1, &s.twin.transfer, NULL));
		else
			assert_ok(kvt_worker_submit_store(s.bed.worker, 1, &s.t.transfer, NULL));
		assert_true(fake_await_held(s.fake, &s.hold, 1));
		assert_ok(kvt_worker_cancel(s.bed.worker, 1));
		/* The lane has seen the cancel once it has done something later. */
		assert_ok(kvt_worker_submit_lookup(s.bed.worker, 2, NULL, 0, NULL));
		assert_null(test_take_now(s.bed.worker, 1));
		uint64_t id = 1;
		assert_returns(KVT_ETIMEDOUT, kvt_worker_wait(s.bed.worker, &id, 1, 1, NULL));
		unhold(&s);
		struct kvt_result *result = test_take(s.bed.worker, 1);
		assert_false(fake_touches(s.fake, s.t.memory, s.t.memory_bytes));
		assert_false(fake_touches(s.fake, s.twin.memory, s.twin.memory_bytes));
		/* It may have been finished, or canceled; what it says is true. */
		bool exists = fake_object_count(s.fake) > (load ? 3u : 2u);
		if (ops[i] == KVT_IO_HEAD) {
			assert_int_equal(result->status, KVT_STATUS_CANCELED);
			assert_false(exists);
		} else if (result->status != KVT_STATUS_CANCELED) {
			assert_int_equal(result->status,
					 load ? KVT_STATUS_LOADED : KVT_STATUS_STORED);
		}
		if (result->status == KVT_STATUS_LOADED)
			test_transfer_check(&s.twin);
		kvt_result_release(result);
		scene_close(&s);
	}
}

static void an_object_in_parts_is_aborted(void **state)
{
	(void)state;
	for (unsigned part = 0; part < 7; part++) {
		struct scene s;
		scene_init(&s, NULL);
		s.bed.worker_options.depth = 2;
		scene_open(&s);
		hold(&s, FAKE_OP(KVT_IO_PART), FAKE_STICK);
		s.hold.skip = part;
		s.hold.times = 1;
		assert_ok(kvt_worker_submit_store(s.bed.worker, 1, &s.large.transfer, NULL));
		assert_true(fake_await_held(s.fake, &s.hold, 1));
		assert_ok(kvt_worker_cancel(s.bed.worker, 1));
		unhold(&s);
		print_message("  part %u\n", part);
		assert_canceled(&s, 1, &s.large);
		assert_ok(kvt_worker_drain(s.bed.worker, TEST_LIMIT_MS));
		assert_int_equal(fake_open_handles(s.fake), 0);
		assert_int_equal(fake_calls(s.fake, KVT_IO_COMMIT), 0);
		assert_int_equal(fake_calls(s.fake, KVT_IO_ABORT), 1);
		assert_int_equal(fake_object_count(s.fake), 2);
		/* The key is free for another try. */
		test_store(&s.bed, &s.large, KVT_STATUS_STORED);
		test_load(&s.bed, &s.large, KVT_STATUS_LOADED);
		scene_close(&s);
	}
}

static void a_load_in_parts_asks_for_no_more(void **state)
{
	struct scene s;

	(void)state;
	scene_init(&s, NULL);
	s.bed.worker_options.depth = 2;
	scene_open(&s);
	test_store(&s.bed, &s.large, KVT_STATUS_STORED);
	unsigned before = fake_calls(s.fake, KVT_IO_GET);
	hold(&s, FAKE_OP(KVT_IO_GET), FAKE_STICK);
	assert_ok(kvt_worker_submit_load(s.bed.worker, 1, &s.large.transfer, NULL));
	assert_true(fake_await_held(s.fake, &s.hold, 1));
	assert_ok(kvt_worker_cancel(s.bed.worker, 1));
	unhold(&s);
	assert_canceled(&s, 1, &s.large);
	assert_in_range(fake_calls(s.fake, KVT_IO_GET) - before, 1, 3);
	scene_close(&s);
}

static void waiting_for_a_retry_ends_at_once(void **state)
{
	struct scene s;
	struct fake_rule fail = {.ops = FAKE_OP(KVT_IO_PUT),
				 .name = ".bin",
				 .action = FAKE_FAIL,
				 .error = KVT_ESERVER};

	(void)state;
	scene_init(&s, NULL);
	/* Longer than a test may take. */
	s.bed.worker_options.retry_base_ms = s.bed.worker_options.retry_max_ms = 10 * TEST_LIMIT_MS;
	s.bed.worker_options.breaker_failures = UINT32_MAX;
	scene_open(&s);
	fake_rule_add(s.fake, &fail);
	hold(&s, FAKE_OP(KVT_IO_HEAD), FAKE_HOLD);
	assert_ok(kvt_worker_submit_store(s.bed.worker, 1, &s.t.transfer, NULL));
	assert_true(fake_await_held(s.fake, &s.hold, 1));
	unhold(&s);
	/* A load on the same lane, behind the failing put. */
	while (fake_rule_hits(s.fake, &fail) == 0 || fake_in_flight(s.fake) != 0)
		assert_returns(0, kvt_worker_poll(s.bed.worker, NULL, 0));
	assert_ok(kvt_worker_submit_load(s.bed.worker, 2, &s.large.transfer, NULL));
	assert_result(KVT_STATUS_MISSING, test_take(s.bed.worker, 2));
	assert_ok(kvt_worker_cancel(s.bed.worker, 1));
	assert_canceled(&s, 1, &s.t);
	assert_int_equal(fake_rule_hits(s.fake, &fail), 1);
	fake_rule_remove(s.fake, &fail);
	scene_close(&s);
}

static void a_job_that_waits_for_its_event_is_canceled(void **state)
{
	struct scene s;
	struct kvt_event *event;
	int fd = eventfd(0, EFD_CLOEXEC);

	(void)state;
	assert_true(fd >= 0);
	assert_ok(kvt_event_create(&event));
	scene_init(&s, NULL);
	scene_open(&s);
	for (int kind = 0; kind < 2; kind++)
		for (int load = 0; load < 2; load++) {
			struct kvt_submit_options options = KVT_INIT(options);
			options.ready.kind = kind ? KVT_READY_FD : KVT_READY_EVENT;
			options.ready.handle = event;
			options.ready.fd = fd;
			size_t before = fake_record_count(s.fake);
			if (load)
				assert_ok(kvt_worker_submit_load(s.bed.worker, 1, &s.t.transfer,
								 &options));
			else
				assert_ok(kvt_worker_submit_store(s.bed.worker, 1, &s.t.transfer,
								  &options));
			/* Others are not held up. */
			assert_ok(kvt_worker_submit_load(s.bed.worker, 2, &s.large.transfer, NULL));
			assert_result(KVT_STATUS_MISSING, test_take(s.bed.worker, 2));
			assert_null(test_take_now(s.bed.worker, 1));
			assert_ok(kvt_worker_cancel(s.bed.worker, 1));
			assert_canceled(&s, 1, &s.t);
			assert_int_equal(fake_record_count(s.fake), before + 1);
		}
	kvt_event_destroy(event);
	close(fd);
	scene_close(&s);
}

static void a_store_behind_another_of_its_key_is_canceled_at_once(void **state)
{
	struct scene s;
	uint64_t id = 2;

	(void)state;
	scene_init(&s, NULL);
	scene_open(&s);
	hold(&s, FAKE_OP(KVT_IO_PUT), FAKE_STICK);
	assert_ok(kvt_worker_submit_store(s.bed.worker, 1, &s.t.transfer, NULL));
	assert_true(fake_await_held(s.fake, &s.hold, 1));
	assert_ok(kvt_worker_submit_store(s.bed.worker, 2, &s.twin.transfer, NULL));
	assert_ok(kvt_worker_submit_load(s.bed.worker, 3, &s.twin.transfer, NULL));
	for (id = 2; id <= 3; id++) {
		assert_ok(kvt_worker_cancel(s.bed.worker, id));
		assert_ok(kvt_worker_wait(s.bed.worker, &id, 1, 0, NULL));
		assert_result_error(KVT_STATUS_CANCELED, KVT_ECANCELED,
				    test_take_now(s.bed.worker, id));
	}
	unhold(&s);
	assert_result(KVT_STATUS_STORED, test_take(s.bed.worker, 1));
	scene_close(&s);
}

static void keys_that_were_finished_stay_so(void **state)
{
	static const struct test_group three = {3, 0, 1, {4096}};
	struct scene s;
	struct test_transfer t;
	char last[KVT_NAME_BYTES];

	(void)state;
	scene_init(&s, NULL);
	s.bed.worker_options.depth = 4;
	scene_open(&s);
	test_transfer_init(&t, 1, &three, 1, 60);
	test_transfer_fill(&t);
	assert_true(kvt_store_object_name(s.bed.store, &t.keys[2], last, sizeof(last)) > 0);
	hold(&s, FAKE_OP(KVT_IO_HEAD), FAKE_STICK);
	s.hold.name = last;
	size_t objects = fake_object_count(s.fake);
	assert_ok(kvt_worker_submit_store(s.bed.worker, 1, &t.transfer, NULL));
	assert_true(fake_await_held(s.fake, &s.hold, 1));
	while (fake_object_count(s.fake) < objects + 2 || fake_in_flight(s.fake) > 1)
		assert_returns(0, kvt_worker_poll(s.bed.worker, NULL, 0));
	/* The two others are done as soon as their lane has said so. */
	while (test_stats(s.bed.worker).keys[KVT_JOB_STORE][KVT_STATUS_STORED] < 3)
		(void)sched_yield();
	assert_ok(kvt_worker_cancel(s.bed.worker, 1));
	unhold(&s);
	struct kvt_result *result = test_take(s.bed.worker, 1);
	assert_int_equal(result->key_status[0], KVT_STATUS_STORED);
	assert_int_equal(result->key_status[1], KVT_STATUS_STORED);
	assert_int_equal(result->key_status[2], KVT_STATUS_CANCELED);
	assert_int_equal(result->status, KVT_STATUS_CANCELED);
	assert_int_equal(result->error, KVT_ECANCELED);
	assert_int_equal(result->bytes, 2 * 4096);
	kvt_result_release(result);
	test_transfer_fini(&t);
	scene_close(&s);
}

/* ---- Deadlines ---- */

static void with_timeout(struct kvt_submit_options *options, uint64_t timeout_ms)
{
	*options = (struct kvt_submit_options)KVT_INIT(*options);
	options->timeout_ms = timeout_ms;
}

static void queued_jobs_expire_by_poll_and_by_wait_while_lanes_are_stuck(void **state)
{
	struct scene s;
	struct kvt_submit_options soon;
	struct kvt_result *result;
	uint64_t id = 3;

	(void)state;
	scene_init(&s, NULL);
	s.bed.worker_options.depth = 1;
	scene_open(&s);
	hold(&s, FAKE_ALL, FAKE_STICK);
	assert_ok(kvt_worker_submit_load(s.bed.worker, 1, &s.large.transfer, NULL));
	assert_true(fake_await_held(s.fake, &s.hold, 1));
	with_timeout(&soon, 5);
	assert_ok(kvt_worker_submit_store(s.bed.worker, 2, &s.t.transfer, &soon));
	int got;
	while ((got = kvt_worker_poll(s.bed.worker, &result, 1)) == 0)
		(void)sched_yield();
	assert_int_equal(got, 1);
	assert_int_equal(result->job_id, 2);
	assert_result_error(KVT_STATUS_FAILED, KVT_ETIMEDOUT, result);

	assert_ok(kvt_worker_submit_load(s.bed.worker, 3, &s.twin.transfer, &soon));
	assert_ok(kvt_worker_wait(s.bed.worker, &id, 1, -1, NULL));
	assert_result_error(KVT_STATUS_FAILED, KVT_ETIMEDOUT, test_take_now(s.bed.worker, 3));

	assert_ok(kvt_worker_submit_lookup(s.bed.worker, 4, s.t.keys, 1, &soon));
	id = 4;
	assert_ok(kvt_worker_wait(s.bed.worker, &id, 1, TEST_LIMIT_MS, NULL));
	assert_result_error(KVT_STATUS_UNKNOWN, KVT_ETIMEDOUT, test_take_now(s.bed.worker, 4));
	unhold(&s);
	assert_result(KVT_STATUS_MISSING, test_take(s.bed.worker, 1));
	scene_close(&s);
}

static void requests_end_with_the_deadline_of_their_job(void **state)
{
	static const uint32_t ops[] = {KVT_IO_HEAD, KVT_IO_PUT, KVT_IO_BEGIN, KVT_IO_PART,
				       KVT_IO_COMMIT};

	(void)state;
	for (size_t i = 0; i < TEST_COUNT(ops); i++) {
		struct scene s;
		struct kvt_submit_options soon;
		bool large = ops[i] >= KVT_IO_BEGIN && ops[i] <= KVT_IO_COMMIT;
		struct test_transfer *t;
		scene_init(&s, NULL);
		scene_open(&s);
		t = large ? &s.large : &s.t;
		hold(&s, FAKE_OP(ops[i]), FAKE_HOLD);
		with_timeout(&soon, 20);
		assert_ok(kvt_worker_submit_store(s.bed.worker, 1, &t->transfer, &soon));
		struct kvt_result *result = test_take(s.bed.worker, 1);
		assert_false(fake_touches(s.fake, t->memory, t->memory_bytes));
		assert_result_error(KVT_STATUS_FAILED, KVT_ETIMEDOUT, result);
		unhold(&s);
		assert_ok(kvt_worker_drain(s.bed.worker, TEST_LIMIT_MS));
		assert_int_equal(fake_open_handles(s.fake), 0);
		test_store(&s.bed, t, KVT_STATUS_STORED);
		test_load(&s.bed, t, KVT_STATUS_LOADED);
		scene_close(&s);
	}
}

static void a_load_ends_with_its_deadline(void **state)
{
	struct scene s;
	struct kvt_submit_options soon;

	(void)state;
	scene_init(&s, NULL);
	scene_open(&s);
	test_store(&s.bed, &s.large, KVT_STATUS_STORED);
	hold(&s, FAKE_OP(KVT_IO_GET), FAKE_HOLD);
	with_timeout(&soon, 20);
	assert_ok(kvt_worker_submit_load(s.bed.worker, 1, &s.large.transfer, &soon));
	struct kvt_result *result = test_take(s.bed.worker, 1);
	assert_false(fake_touches(s.fake, s.large.memory, s.large.memory_bytes));
	assert_result_error(KVT_STATUS_FAILED, KVT_ETIMEDOUT, result);
	unhold(&s);
	scene_close(&s);
}

static void what_cannot_be_taken_back_is_waited_for(void **state)
{
	struct scene s;
	struct kvt_submit_options soon;
	uint64_t ids[] = {1, 2};
	struct kvt_result *result;

	(void)state;
	scene_init(&s, NULL);
	scene_open(&s);
	hold(&s, FAKE_OP(KVT_IO_PUT), FAKE_STICK);
	with_timeout(&soon, 5);
	assert_ok(kvt_worker_submit_store(s.bed.worker, ids[0], &s.t.transfer, &soon));
	/* Longer each time, until the put has begun before the deadline. */
	while (fake_held(s.fake, &s.hold) == 0) {
		result = test_take_now(s.bed.worker, ids[0]);
		if (!result)
			continue;
		assert_result_error(KVT_STATUS_FAILED, KVT_ETIMEDOUT, result);
		ids[0] += 2;
		with_timeout(&soon, 2 * soon.timeout_ms);
		assert_ok(kvt_worker_submit_store(s.bed.worker, ids[0], &s.t.transfer, &soon));
	}
	/* The job behind it is past its deadline before it is: time has passed. */
	assert_ok(kvt_worker_submit_store(s.bed.worker, 2, &s.twin.transfer, &soon));
	assert_ok(kvt_worker_wait(s.bed.worker, ids + 1, 1, TEST_LIMIT_MS, NULL));
	assert_result_error(KVT_STATUS_FAILED, KVT_ETIMEDOUT, test_take_now(s.bed.worker, 2));
	assert_returns(KVT_ETIMEDOUT, kvt_worker_wait(s.bed.worker, ids, 1, 0, NULL));
	assert_true(fake_touches(s.fake, s.t.memory, s.t.memory_bytes));
	unhold(&s);
	assert_result_error(KVT_STATUS_FAILED, KVT_ETIMEDOUT, test_take(s.bed.worker, ids[0]));
	scene_close(&s);
}

static void operations_have_a_deadline_of_their_own_and_are_tried_again(void **state)
{
	struct scene s;

	(void)state;
	scene_init(&s, NULL);
	s.bed.worker_options.operation_timeout_ms = 10;
	scene_open(&s);
	test_store(&s.bed, &s.t, KVT_STATUS_STORED);
	hold(&s, FAKE_OP(KVT_IO_GET), FAKE_HOLD);
	s.hold.times = 1;
	test_load(&s.bed, &s.t, KVT_STATUS_LOADED);
	assert_int_equal(fake_rule_hits(s.fake, &s.hold), 1);
	unhold(&s);
	scene_close(&s);
}

static void a_job_whose_event_never_comes_expires(void **state)
{
	struct scene s;
	struct kvt_submit_options soon;
	struct kvt_event *event;

	(void)state;
	assert_ok(kvt_event_create(&event));
	scene_init(&s, NULL);
	scene_open(&s);
	with_timeout(&soon, 10);
	soon.ready.kind = KVT_READY_EVENT;
	soon.ready.handle = event;
	assert_ok(kvt_worker_submit_store(s.bed.worker, 1, &s.t.transfer, &soon));
	assert_result_error(KVT_STATUS_FAILED, KVT_ETIMEDOUT, test_take(s.bed.worker, 1));
	kvt_event_destroy(event);
	assert_int_equal(fake_record_count(s.fake), 0);
	scene_close(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_waits_in_the_queue_is_canceled_at_once),
		cmocka_unit_test(a_finished_job_is_not_changed_by_cancel),
		cmocka_unit_test(a_request_in_flight_is_waited_for),
		cmocka_unit_test(an_object_in_parts_is_aborted),
		cmocka_unit_test(a_load_in_parts_asks_for_no_more),
		cmocka_unit_test(waiting_for_a_retry_ends_at_once),
		cmocka_unit_test(a_job_that_waits_for_its_event_is_canceled),
		cmocka_unit_test(a_store_behind_another_of_its_key_is_canceled_at_once),
		cmocka_unit_test(keys_that_were_finished_stay_so),
		cmocka_unit_test(queued_jobs_expire_by_poll_and_by_wait_while_lanes_are_stuck),
		cmocka_unit_test(requests_end_with_the_deadline_of_their_job),
		cmocka_unit_test(a_load_ends_with_its_deadline),
		cmocka_unit_test(what_cannot_be_taken_back_is_waited_for),
		cmocka_unit_test(operations_have_a_deadline_of_their_own_and_are_tried_again),
		cmocka_unit_test(a_job_whose_event_never_comes_expires),
	};
	return cmocka_run_group_tests_name("worker_cancel", tests, NULL, NULL);
}
