/* SPDX-License-Identifier: Apache-2.0 */
/* Lanes that cannot go on sleep: whatever they wait for, they hardly ever poll meanwhile. */
#include <sched.h>
#include <string.h>
#include <time.h>

#include "gpu_scene.h"

static const struct test_group page = {1, 0, 1, {4096}};
static const struct test_group part = {1, 0, 1, {64 << 10}};
static const struct test_group many = {100, 0, 1, {4096}};

static int64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Lets time pass with an unfinished job; lanes may look at what they wait for now and then, but not
 * all the time: a lane that spins polls some thousand times in a millisecond. */
static void assert_asleep(struct gpu_scene *s, uint64_t id)
{
	unsigned before = fake_polls(s->fake);
	int64_t began_ms = now_ms();

	assert_returns(KVT_ETIMEDOUT, kvt_worker_wait(s->bed.worker, &id, 1, 50, NULL));
	unsigned polls = fake_polls(s->fake) - before;
	int64_t ms = now_ms() - began_ms;
	/* A wait of 50 ms takes as long as it takes. */
	if (polls > 50 + ms)
		fail_msg("lanes polled %u times in %lld ms", polls, (long long)ms);
}

static void while_the_backend_works(void **state)
{
	struct gpu_scene s;
	struct test_transfer t, more;
	struct fake_rule hold = {.ops = FAKE_OP(KVT_IO_GET), .action = FAKE_HOLD};

	(void)state;
	gpu_scene_init(&s, true, NULL);
	s.bed.worker_options.depth = 2;
	gpu_scene_open(&s);
	gpu_scene_place(&s, &t, 1, &page, 1, 999);
	gpu_scene_place(&s, &more, 1, &many, 1, 5);
	fake_rule_add(s.fake, &hold);
	assert_ok(kvt_worker_submit_load(s.bed.worker, 1, &t.transfer, NULL));
	assert_true(fake_await_held(s.fake, &hold, 1));
	assert_asleep(&s, 1);
	/* With more work queued than both lanes can take. */
	assert_ok(kvt_worker_submit_load(s.bed.worker, 2, &more.transfer, NULL));
	assert_ok(kvt_worker_submit_store(s.bed.worker, 3, &more.transfer, NULL));
	assert_true(fake_await_held(s.fake, &hold, 4));
	assert_asleep(&s, 2);
	fake_rule_remove(s.fake, &hold);
	test_transfer_fini(&t);
	assert_ok(kvt_worker_drain(s.bed.worker, TEST_LIMIT_MS));
	test_transfer_fini(&more);
	gpu_scene_close(&s);
}

static void while_the_device_copies_and_staging_is_short(void **state)
{
	struct gpu_scene s;
	struct test_transfer t[3];

	(void)state;
	gpu_scene_init(&s, true, NULL);
	s.bed.worker_options.staging_bytes = (64 + 68) * 1024;
	gpu_scene_open(&s);
	fake_gpu_hold(s.gpu);
	for (uint64_t i = 0; i < 3; i++) {
		gpu_scene_place(&s, &t[i], 1, &part, 1, 10 + i);
		test_transfer_fill(&t[i]);
		assert_ok(kvt_worker_submit_store(s.bed.worker, 1 + i, &t[i].transfer, NULL));
	}
	assert_true(fake_gpu_await_queued(s.gpu, 1));
	while (test_stats(s.bed.worker).staging_waiters < 2)
		(void)sched_yield();
	assert_asleep(&s, 2);
	fake_gpu_release(s.gpu);
	assert_ok(kvt_worker_drain(s.bed.worker, TEST_LIMIT_MS));
	for (int i = 0; i < 3; i++)
		test_transfer_fini(&t[i]);
	gpu_scene_close(&s);
}

static void while_an_event_has_not_happened(void **state)
{
	(void)state;
	for (int stream_order = 0; stream_order < 2; stream_order++) {
		struct gpu_scene s;
		struct test_transfer t;
		struct kvt_submit_options options = KVT_INIT(options);
		gpu_scene_init(&s, stream_order, NULL);
		gpu_scene_open(&s);
		gpu_scene_place(&s, &t, 1, &page, 1, 10);
		struct fake_event *event = fake_event_create(s.gpu);
		options.ready.kind = KVT_READY_EVENT;
		options.ready.handle = event;
		test_transfer_fill(&t);
		assert_ok(kvt_worker_submit_store(s.bed.worker, 1, &t.transfer, &options));
		while (fake_gpu_orders(s.gpu) == 0)
			(void)sched_yield();
		assert_asleep(&s, 1);
		fake_event_signal(event);
		assert_result(KVT_STATUS_STORED, test_take(s.bed.worker, 1));
		fake_event_destroy(event);
		test_transfer_fini(&t);
		gpu_scene_close(&s);
	}
}

static void while_config_json_is_made(void **state)
{
	struct gpu_scene s;
	struct test_transfer t, other;
	struct fake_rule hold = {.ops = FAKE_ALL, .name = "config.json", .action = FAKE_HOLD};

	(void)state;
	gpu_scene_init(&s, true, NULL);
	assert_ok(fake_gpu_open(s.gpu, NULL, &s.bed.device));
	test_bed_open(&s.bed, fake_store_uri(s.fake));
	gpu_scene_place(&s, &t, 1, &many, 1, 10);
	gpu_scene_place(&s, &other, 1, &many, 1, 11);
	test_transfer_fill(&t);
	fake_rule_add(s.fake, &hold);
	assert_ok(kvt_worker_submit_store(s.bed.worker, 1, &t.transfer, NULL));
	assert_true(fake_await_held(s.fake, &hold, 1));
	assert_asleep(&s, 1);
	/* Loads and lookups do not wait for it. */
	s.bed.next_id = 10;
	test_load(&s.bed, &other, KVT_STATUS_MISSING);
	fake_rule_remove(s.fake, &hold);
	assert_result(KVT_STATUS_STORED, test_take(s.bed.worker, 1));
	test_transfer_fini(&t);
	test_transfer_fini(&other);
	gpu_scene_close(&s);
}

static void while_a_retry_waits(void **state)
{
	struct gpu_scene s;
	struct test_transfer t;
	struct fake_rule fail = {
		.ops = FAKE_OP(KVT_IO_GET), .times = 1, .action = FAKE_FAIL, .error = KVT_ENET};

	(void)state;
	gpu_scene_init(&s, true, NULL);
	s.bed.worker_options.retry_base_ms = s.bed.worker_options.retry_max_ms = 10 * TEST_LIMIT_MS;
	gpu_scene_open(&s);
	gpu_scene_place(&s, &t, 1, &page, 1, 999);
	fake_rule_add(s.fake, &fail);
	assert_ok(kvt_worker_submit_load(s.bed.worker, 1, &t.transfer, NULL));
	while (fake_rule_hits(s.fake, &fail) == 0)
		(void)sched_yield();
	assert_asleep(&s, 1);
	assert_ok(kvt_worker_cancel(s.bed.worker, 1));
	kvt_result_release(test_take(s.bed.worker, 1));
	fake_rule_remove(s.fake, &fail);
	test_transfer_fini(&t);
	gpu_scene_close(&s);
}

static void while_a_store_waits_for_another_of_its_key(void **state)
{
	struct gpu_scene s;
	struct test_transfer t, twin;
	struct fake_rule hold = {.ops = FAKE_OP(KVT_IO_PUT), .action = FAKE_HOLD};

	(void)state;
	gpu_scene_init(&s, true, NULL);
	gpu_scene_open(&s);
	gpu_scene_place(&s, &t, 1, &page, 1, 10);
	gpu_scene_place(&s, &twin, 1, &page, 1, 10);
	test_transfer_fill(&t);
	test_transfer_fill(&twin);
	fake_rule_add(s.fake, &hold);
	assert_ok(kvt_worker_submit_store(s.bed.worker, 1, &t.transfer, NULL));
	assert_true(fake_await_held(s.fake, &hold, 1));
	unsigned copies = fake_gpu_copies(s.gpu);
	assert_ok(kvt_worker_submit_store(s.bed.worker, 2, &twin.transfer, NULL));
	assert_asleep(&s, 2);
	/* It is not gathered early. */
	assert_int_equal(fake_gpu_copies(s.gpu), copies);
	fake_rule_remove(s.fake, &hold);
	assert_result(KVT_STATUS_STORED, test_take(s.bed.worker, 1));
	assert_result(KVT_STATUS_SKIPPED, test_take(s.bed.worker, 2));
	assert_int_equal(fake_gpu_copies(s.gpu), copies);
	test_transfer_fini(&t);
	test_transfer_fini(&twin);
	gpu_scene_close(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(while_the_backend_works),
		cmocka_unit_test(while_the_device_copies_and_staging_is_short),
		cmocka_unit_test(while_an_event_has_not_happened),
		cmocka_unit_test(while_config_json_is_made),
		cmocka_unit_test(while_a_retry_waits),
		cmocka_unit_test(while_a_store_waits_for_another_of_its_key),
	};
	return cmocka_run_group_tests_name("worker_idle: lanes sleep", tests, NULL, NULL);
}
