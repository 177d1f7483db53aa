/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs on memory that the CPU cannot touch, whose copies happen later on a thread of the device's
 * own. */
#include <sched.h>
#include <string.h>

#include "gpu_scene.h"

static const struct test_group page = {1, 0, 1, {4096}};

/* ---- Moving bytes ---- */

static void every_shape_comes_back(void **state)
{
	static const struct {
		uint32_t blocks_per_chunk, group_count;
		struct test_group groups[2];
	} shapes[] = {
		{1, 1, {{1, 0, 1, {4096}}}},
		{4, 1, {{8, 0, 6, {1000, 1000, 1000, 1000, 1000, 1000}}}},
		{4, 1, {{6, 3, 2, {512, 512}}}},
		{4, 1, {{8, 4, 3, {100, 3000, 17}}}},
		{4, 2, {{5, 1, 2, {300, 200}}, {9, 2, 0, {0}}}},
		{2, 1, {{4, 0, 3, {50000, 50000, 50000}}}},
		{8, 1, {{13, 5, 2, {30000, 10001}}}},
		{1, 1, {{3, 0, 1, {(1 << 20) + 1}}}},
		{64, 1, {{128, 0, 6, {64, 64, 64, 64, 64, 64}}}},
	};
	static const struct fake_config configs[] = {
		{.capabilities = FAKE_CAPABILITIES},
		{.capabilities = FAKE_CAPABILITIES | KVT_CAP_FULL_BODY, .memory_alignment = 4096},
		{.capabilities = FAKE_CAPABILITIES, .blocking = true},
		{.capabilities = FAKE_CAPABILITIES, .rewind = true, .youngest_first = true},
		{.capabilities = 0, .min_part_bytes = 100000, .max_iov = 2},
	};

	(void)state;
	for (size_t c = 0; c < TEST_COUNT(configs); c++)
		for (int stream_order = 0; stream_order < 2; stream_order++) {
			struct gpu_scene s;
			gpu_scene_init(&s, stream_order, &configs[c]);
			gpu_scene_open(&s);
			for (size_t i = 0; i < TEST_COUNT(shapes); i++) {
				struct test_transfer t;
				s.used = 0;
				gpu_scene_place(&s, &t, shapes[i].blocks_per_chunk,
						shapes[i].groups, shapes[i].group_count, 100 + i);
				test_store(&s.bed, &t, KVT_STATUS_STORED);
				test_transfer_check(&t);
				test_store(&s.bed, &t, KVT_STATUS_SKIPPED);
				test_load(&s.bed, &t, KVT_STATUS_LOADED);
				test_transfer_fini(&t);
			}
			assert_true(fake_gpu_copies(s.gpu) > 0);
			gpu_scene_close(&s);
		}
}

static void a_merge_on_the_device_keeps_both_halves(void **state)
{
	static const struct test_group halves[] = {
		{2, 0, 2, {30000, 20001}}, {2, 2, 2, {30000, 20001}}, {4, 0, 2, {30000, 20001}}};
	struct gpu_scene s;
	struct test_transfer t[3];

	(void)state;
	gpu_scene_init(&s, true, NULL);
	gpu_scene_open(&s);
	for (int i = 0; i < 3; i++)
		gpu_scene_place(&s, &t[i], 4, &halves[i], 1, 7);
	test_store(&s.bed, &t[0], KVT_STATUS_STORED);
	test_store(&s.bed, &t[1], KVT_STATUS_STORED);
	test_load(&s.bed, &t[2], KVT_STATUS_LOADED);
	for (int i = 0; i < 3; i++)
		test_transfer_fini(&t[i]);
	gpu_scene_close(&s);
}

static void memory_that_the_cpu_reaches_is_used_where_it_lies(void **state)
{
	struct gpu_scene s;
	struct test_transfer t;

	(void)state;
	gpu_scene_init(&s, true, NULL);
	gpu_scene_open(&s);
	test_transfer_init(&t, 1, &page, 1, 5);
	fake_gpu_add_host_memory(s.gpu, t.memory, t.memory_bytes);
	unsigned copies = fake_gpu_copies(s.gpu);
	test_store(&s.bed, &t, KVT_STATUS_STORED);
	test_load(&s.bed, &t, KVT_STATUS_LOADED);
	assert_int_equal(fake_gpu_copies(s.gpu), copies);
	test_transfer_fini(&t);
	gpu_scene_close(&s);
}

static void a_bad_pointer_fails_its_key_alone(void **state)
{
	static const struct test_group three = {3, 0, 1, {4096}};
	struct gpu_scene s;
	struct test_transfer t;

	(void)state;
	gpu_scene_init(&s, true, NULL);
	gpu_scene_open(&s);
	gpu_scene_place(&s, &t, 1, &three, 1, 5);
	test_transfer_fill(&t);
	t.ptrs[1] = fake_gpu_ptr(s.gpu, GPU_MEMORY - 10);
	assert_ok(kvt_worker_submit_store(s.bed.worker, 1, &t.transfer, NULL));
	struct kvt_result *result = test_take(s.bed.worker, 1);
	assert_int_equal(result->key_status[0], KVT_STATUS_STORED);
	assert_int_equal(result->key_status[1], KVT_STATUS_FAILED);
	assert_int_equal(result->key_error[1], KVT_EFAULT);
	assert_int_equal(result->key_status[2], KVT_STATUS_STORED);
	assert_non_null(strstr(result->detail, "0x"));
	kvt_result_release(result);
	test_transfer_fini(&t);
	gpu_scene_close(&s);
}

/* ---- No thread waits for the device ---- */

static void lanes_go_on_while_copies_wait(void **state)
{
	struct gpu_scene s;
	struct test_transfer out, in;
	struct kvt_submit_options options = KVT_INIT(options);

	(void)state;
	gpu_scene_init(&s, true, NULL);
	s.bed.worker_options.lanes = 1;
	gpu_scene_open(&s);
	gpu_scene_place(&s, &out, 1, &page, 1, 5);
	gpu_scene_place(&s, &in, 1, &page, 1, 999);
	test_set_geometry(&s.bed, &out);
	test_transfer_fill(&out);
	test_transfer_poison(&in);
	fake_gpu_hold(s.gpu);
	assert_ok(kvt_worker_submit_store(s.bed.worker, 1, &out.transfer, NULL));
	assert_ok(kvt_worker_submit_load(s.bed.worker, 2, &in.transfer, NULL));
	assert_true(fake_gpu_await_queued(s.gpu, 2));
	/* The only lane answers while both copies are stuck. */
	test_lookup(&s.bed, in.keys, 1, KVT_STATUS_HIT);
	test_lookup(&s.bed, out.keys, 1, KVT_STATUS_PENDING);
	assert_null(test_take_now(s.bed.worker, 1));
	assert_null(test_take_now(s.bed.worker, 2));
	assert_int_equal(in.copies[0].at[0], 0xEE);
	fake_gpu_release(s.gpu);
	assert_result(KVT_STATUS_STORED, test_take(s.bed.worker, 1));
	assert_result(KVT_STATUS_LOADED, test_take(s.bed.worker, 2));
	test_transfer_check(&in);
	test_transfer_fini(&out);
	test_transfer_fini(&in);
	gpu_scene_close(&s);
}

static void completions_come_only_when_the_memory_is_quiet(void **state)
{
	static const struct test_group many = {12, 0, 2, {20000, 30000}};
	struct gpu_scene s;
	struct test_transfer t;

	(void)state;
	gpu_scene_init(&s, true, NULL);
	gpu_scene_open(&s);
	gpu_scene_place(&s, &t, 2, &many, 1, 5);
	for (int load = 0; load < 2; load++) {
		if (load)
			test_transfer_poison(&t);
		else
			test_transfer_fill(&t);
		fake_gpu_hold(s.gpu);
		if (load)
			assert_ok(kvt_worker_submit_load(s.bed.worker, 1, &t.transfer, NULL));
		else
			assert_ok(kvt_worker_submit_store(s.bed.worker, 1, &t.transfer, NULL));
		/* One copy after the other. */
		struct kvt_result *result;
		while (!(result = test_take_now(s.bed.worker, 1)))
			fake_gpu_step(s.gpu, 1);
		assert_false(gpu_scene_touches(&s, &t));
		assert_result(load ? KVT_STATUS_LOADED : KVT_STATUS_STORED, result);
		test_transfer_check(&t);
		fake_gpu_release(s.gpu);
	}
	test_transfer_fini(&t);
	gpu_scene_close(&s);
}

static void staging_is_never_exceeded(void **state)
{
	static const struct test_group many = {60, 0, 1, {60000}};
	struct gpu_scene s;
	struct test_transfer t;

	(void)state;
	/* One buffer is enough to make progress; two and more keep one for loads. */
	for (uint64_t buffers = 1; buffers <= 4; buffers++) {
		gpu_scene_init(&s, true, NULL);
		s.bed.worker_options.staging_bytes = buffers * (64 + 68) * 1024;
		gpu_scene_open(&s);
		gpu_scene_place(&s, &t, 1, &many, 1, 5);
		test_store(&s.bed, &t, KVT_STATUS_STORED);
		test_load(&s.bed, &t, KVT_STATUS_LOADED);
		struct kvt_stats stats = test_stats(s.bed.worker);
		assert_true(stats.staging_bytes <= s.bed.worker_options.staging_bytes);
		assert_true(stats.staging_peak_bytes <= stats.staging_bytes);
		assert_true(stats.staging_peak_bytes > 0);
		test_transfer_fini(&t);
		gpu_scene_close(&s);
	}
}

static void waiting_for_staging_ends_with_cancel_and_deadline(void **state)
{
	/* One part: more than half of the only buffer. */
	static const struct test_group large = {1, 0, 1, {64 << 10}};
	struct gpu_scene s;
	struct test_transfer first, second, third;
	struct kvt_submit_options soon = KVT_INIT(soon);

	(void)state;
	gpu_scene_init(&s, true, NULL);
	s.bed.worker_options.staging_bytes = (64 + 68) * 1024;
	gpu_scene_open(&s);
	gpu_scene_place(&s, &first, 1, &large, 1, 5);
	gpu_scene_place(&s, &second, 1, &large, 1, 6);
	gpu_scene_place(&s, &third, 1, &large, 1, 7);
	test_transfer_fill(&first);
	test_transfer_fill(&second);
	test_transfer_fill(&third);
	fake_gpu_hold(s.gpu);
	assert_ok(kvt_worker_submit_store(s.bed.worker, 1, &first.transfer, NULL));
	assert_true(fake_gpu_await_queued(s.gpu, 1));
	soon.timeout_ms = 10;
	assert_ok(kvt_worker_submit_store(s.bed.worker, 2, &second.transfer, NULL));
	assert_ok(kvt_worker_submit_store(s.bed.worker, 3, &third.transfer, &soon));
	while (test_stats(s.bed.worker).staging_waiters == 0)
		(void)sched_yield();
	assert_result_error(KVT_STATUS_FAILED, KVT_ETIMEDOUT, test_take(s.bed.worker, 3));
	assert_ok(kvt_worker_cancel(s.bed.worker, 2));
	assert_result_error(KVT_STATUS_CANCELED, KVT_ECANCELED, test_take(s.bed.worker, 2));
	assert_false(gpu_scene_touches(&s, &second));
	fake_gpu_release(s.gpu);
	assert_result(KVT_STATUS_STORED, test_take(s.bed.worker, 1));
	test_transfer_fini(&first);
	test_transfer_fini(&second);
	test_transfer_fini(&third);
	gpu_scene_close(&s);
}

static void a_copy_in_flight_is_waited_for_after_cancel(void **state)
{
	struct gpu_scene s;
	struct test_transfer t;

	(void)state;
	for (int load = 0; load < 2; load++) {
		gpu_scene_init(&s, true, NULL);
		gpu_scene_open(&s);
		gpu_scene_place(&s, &t, 1, &page, 1, load ? 999 : 5);
		fake_gpu_hold(s.gpu);
		if (load)
			assert_ok(kvt_worker_submit_load(s.bed.worker, 1, &t.transfer, NULL));
		else
			assert_ok(kvt_worker_submit_store(s.bed.worker, 1, &t.transfer, NULL));
		assert_true(fake_gpu_await_queued(s.gpu, 1));
		assert_ok(kvt_worker_cancel(s.bed.worker, 1));
		uint64_t id = 1;
		assert_returns(KVT_ETIMEDOUT, kvt_worker_wait(s.bed.worker, &id, 1, 1, NULL));
		assert_true(gpu_scene_touches(&s, &t));
		fake_gpu_release(s.gpu);
		struct kvt_result *result = test_take(s.bed.worker, 1);
		assert_false(gpu_scene_touches(&s, &t));
		assert_true(result->status == KVT_STATUS_CANCELED ||
			    (load && result->status == KVT_STATUS_LOADED));
		kvt_result_release(result);
		test_transfer_fini(&t);
		gpu_scene_close(&s);
	}
}

/* ---- Failures ---- */

static void every_failing_copy_fails_its_key_and_leaves_the_rest(void **state)
{
	static const enum fake_gpu_fault faults[] = {FAKE_GPU_COPY_CALL, FAKE_GPU_COPY,
						     FAKE_GPU_CHECK, FAKE_GPU_ORDER};
	static const struct test_group many = {4, 0, 2, {40000, 50000}};

	(void)state;
	for (size_t f = 0; f < TEST_COUNT(faults); f++)
		for (unsigned nth = 1;; nth++) {
			struct gpu_scene s;
			struct test_transfer t;
			struct kvt_submit_options options = KVT_INIT(options);
			gpu_scene_init(&s, true, NULL);
			gpu_scene_open(&s);
			struct fake_event *event = fake_event_create(s.gpu);
			fake_event_signal(event);
			options.ready.kind = KVT_READY_EVENT;
			options.ready.handle = event;
			gpu_scene_place(&s, &t, 2, &many, 1, 5);
			test_transfer_fill(&t);
			fake_gpu_fail(s.gpu, faults[f], nth, 1, KVT_EDEVICE);
			assert_ok(kvt_worker_submit_store(s.bed.worker, 1, &t.transfer, &options));
			struct kvt_result *result = test_take(s.bed.worker, 1);
			assert_false(gpu_scene_touches(&s, &t));
			unsigned bad = 0;
			for (uint64_t k = 0; k < result->key_count; k++) {
				if (result->key_status[k] == KVT_STATUS_STORED)
					continue;
				assert_int_equal(result->key_status[k], KVT_STATUS_FAILED);
				assert_int_equal(result->key_error[k], KVT_EDEVICE);
				bad++;
			}
			unsigned failed = fake_gpu_faults(s.gpu);
			assert_int_equal(bad, failed);
			kvt_result_release(result);
			fake_gpu_fail(s.gpu, faults[f], 0, 0, 0);
			/* Nothing half written is there: what failed is stored now. */
			assert_ok(kvt_worker_submit_store(s.bed.worker, 2, &t.transfer, NULL));
			kvt_result_release(test_take(s.bed.worker, 2));

			test_transfer_poison(&t);
			fake_gpu_fail(s.gpu, faults[f], nth, 1, KVT_EDEVICE);
			assert_ok(kvt_worker_submit_load(s.bed.worker, 3, &t.transfer, &options));
			result = test_take(s.bed.worker, 3);
			assert_false(gpu_scene_touches(&s, &t));
			bad = 0;
			for (uint64_t k = 0; k < result->key_count; k++) {
				if (result->key_status[k] == KVT_STATUS_LOADED) {
					assert_true(test_transfer_key_ok(&t, k));
					continue;
				}
				assert_int_equal(result->key_status[k], KVT_STATUS_FAILED);
				assert_int_equal(result->key_error[k], KVT_EDEVICE);
				bad++;
			}
			failed += fake_gpu_faults(s.gpu);
			assert_int_equal(bad, fake_gpu_faults(s.gpu));
			kvt_result_release(result);
			fake_gpu_fail(s.gpu, faults[f], 0, 0, 0);
			/* A device that failed is no reason to doubt the object. */
			test_load(&s.bed, &t, KVT_STATUS_LOADED);
			fake_event_destroy(event);
			test_transfer_fini(&t);
			gpu_scene_close(&s);
			if (!failed)
				break;
			assert_true(nth < 200);
		}
}

static void a_device_that_cannot_start_fails_create(void **state)
{
	static const enum fake_gpu_fault faults[] = {FAKE_GPU_LANE_OPEN, FAKE_GPU_STAGING};
	struct gpu_scene s;

	(void)state;
	gpu_scene_init(&s, true, NULL);
	assert_ok(fake_gpu_open(s.gpu, NULL, &s.bed.device));
	test_bed_open_store(&s.bed, fake_store_uri(s.fake));
	for (size_t f = 0; f < TEST_COUNT(faults); f++)
		for (unsigned nth = 1; nth <= 2; nth++) {
			struct kvt_worker *worker = (void *)1;
			if (faults[f] == FAKE_GPU_STAGING && nth > 1)
				continue;
			fake_gpu_fail(s.gpu, faults[f], nth, 1, KVT_EDEVICE);
			assert_returns(KVT_EDEVICE,
				       kvt_worker_create(s.bed.store, s.bed.device,
							 &s.bed.worker_options, &worker));
			assert_null(worker);
			assert_int_equal(fake_gpu_lanes(s.gpu), 0);
			assert_int_equal(fake_sessions(s.fake), 0);
			fake_gpu_fail(s.gpu, faults[f], 0, 0, 0);
		}
	test_bed_open_worker(&s.bed);
	assert_fails(KVT_EBUSY, "", kvt_device_close(s.bed.device));
	gpu_scene_close(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_shape_comes_back),
		cmocka_unit_test(a_merge_on_the_device_keeps_both_halves),
		cmocka_unit_test(memory_that_the_cpu_reaches_is_used_where_it_lies),
		cmocka_unit_test(a_bad_pointer_fails_its_key_alone),
		cmocka_unit_test(lanes_go_on_while_copies_wait),
		cmocka_unit_test(completions_come_only_when_the_memory_is_quiet),
		cmocka_unit_test(staging_is_never_exceeded),
		cmocka_unit_test(waiting_for_staging_ends_with_cancel_and_deadline),
		cmocka_unit_test(a_copy_in_flight_is_waited_for_after_cancel),
		cmocka_unit_test(every_failing_copy_fails_its_key_and_leaves_the_rest),
		cmocka_unit_test(a_device_that_cannot_start_fails_create),
	};
	return cmocka_run_group_tests_name("worker_device", tests, NULL, NULL);
}
