/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the CUDA device moves bytes: batches, what is merged without them, streams that nobody else's
 * streams hold up, notices without a CUDA call, and copies that go on while storage is busy.
 */
#include "cuda_scene.h"
#include "fake_backend.h"

#include <stdlib.h>
#include <string.h>

static const struct test_group page = {1, 0, 1, {4096}};

/* Blocks that lie beside each other in the memory and in the object. */
static void place_in_a_row(struct cuda_scene *s, struct test_transfer *t,
			   const struct test_group *group, uint32_t blocks_per_chunk, uint64_t seed)
{
	size_t at = 0;

	cuda_scene_place(s, t, blocks_per_chunk, group, 1, seed);
	for (uint64_t i = 0; i < t->transfer.copy_count; i++) {
		t->copies[i].at = t->memory + at;
		t->ptrs[i] = cuda_scene_ptr(s, t) + at;
		at += t->sizes[i];
	}
}

static void a_chunk_is_one_batch(void **state)
{
	static const struct test_group many = {256, 0, 1, {100}};
	struct cuda_scene s;
	struct test_transfer t;

	(void)state;
	cuda_scene_init(&s, 0, 1 << 20);
	cuda_scene_open(&s, CUDA_STORE_MEM);
	cuda_scene_place(&s, &t, 256, &many, 1, 3);
	struct fake_cuda_counts before = cuda_fake->counts();
	cuda_scene_store(&s, &t, KVT_STATUS_STORED);
	struct fake_cuda_counts stored = cuda_fake->counts();
	assert_int_equal(stored.batch_calls - before.batch_calls, 1);
	assert_int_equal(stored.single_copy_calls, before.single_copy_calls);
	assert_true(stored.fragments - before.fragments > 1);
	cuda_scene_load(&s, &t, KVT_STATUS_LOADED);
	assert_int_equal(cuda_fake->counts().batch_calls - stored.batch_calls, 1);
	assert_int_equal(cuda_fake->counts().single_copy_calls, before.single_copy_calls);
	test_transfer_fini(&t);
	cuda_scene_close(&s);
}

static void neighbours_are_copied_as_one(void **state)
{
	static const struct test_group row = {64, 0, 1, {512}};
	struct cuda_scene s;
	struct test_transfer t;

	(void)state;
	cuda_scene_init(&s, 0, 1 << 20);
	cuda_scene_open(&s, CUDA_STORE_MEM);
	place_in_a_row(&s, &t, &row, 64, 3);
	uint64_t before = cuda_fake->counts().fragments;
	cuda_scene_store(&s, &t, KVT_STATUS_STORED);
	assert_int_equal(cuda_fake->counts().fragments - before, 1);
	cuda_scene_load(&s, &t, KVT_STATUS_LOADED);
	assert_int_equal(cuda_fake->counts().fragments - before, 2);
	test_transfer_fini(&t);
	cuda_scene_close(&s);
}

static void batches_that_the_driver_does_not_take_become_single_copies(void **state)
{
	static const struct test_group some = {12, 0, 2, {3000, 50}};
	struct cuda_scene s;
	struct test_transfer t;

	(void)state;
	cuda_scene_init(&s, 0, 1 << 20);
	cuda_scene_open(&s, CUDA_STORE_MEM);
	cuda_scene_place(&s, &t, 4, &some, 1, 3);
	cuda_fake->fail_call("cuMemcpyBatchAsync", 1, 0, CUDA_ERROR_NOT_SUPPORTED);
	cuda_scene_store(&s, &t, KVT_STATUS_STORED);
	cuda_scene_load(&s, &t, KVT_STATUS_LOADED);
	assert_true(cuda_fake->faults() > 0);
	assert_true(cuda_fake->counts().single_copy_calls > 0);
	for (int i = 0; i < 4; i++)
		cuda_scene_load(&s, &t, KVT_STATUS_LOADED);
	/* Each lane that has been told so once does not ask again. */
	assert_true(cuda_fake->faults() <= s.bed.worker_options.lanes);
	cuda_fake->reset();
	test_transfer_fini(&t);
	cuda_scene_close(&s);
}

static void memory_is_looked_up_once_for_each_allocation(void **state)
{
	static const struct test_group many = {512, 0, 1, {100}};
	struct cuda_scene s;
	struct test_transfer t;

	(void)state;
	cuda_scene_init(&s, 0, 1 << 20);
	s.bed.worker_options.lanes = 1;
	cuda_scene_open(&s, CUDA_STORE_MEM);
	cuda_scene_place(&s, &t, 8, &many, 1, 3); /* 64 chunks of one job */
	unsigned before = cuda_fake->counts().attribute_calls;
	cuda_scene_store(&s, &t, KVT_STATUS_STORED);
	assert_int_equal(cuda_fake->counts().attribute_calls - before, 1);
	/* Nothing is remembered beyond the job: memory may have become something else. */
	cuda_scene_load(&s, &t, KVT_STATUS_LOADED);
	assert_int_equal(cuda_fake->counts().attribute_calls - before, 2);
	test_transfer_fini(&t);
	cuda_scene_close(&s);
}

/* ---- Streams ---- */

static void CUDA_CB pass_gate(void *gate)
{
	test_gate_pass(gate);
}

static void a_stream_that_is_held_up_holds_up_no_lane(void **state)
{
	struct cuda_scene s;
	struct test_transfer t;
	struct test_gate gate;

	(void)state;
	/* The legacy default stream waits for all streams that did not ask to be left alone, and
	 * they for it. */
	for (int legacy = 0; legacy < 2; legacy++) {
		CUstream stream = CU_STREAM_LEGACY;
		test_gate_init(&gate, false);
		cuda_scene_init(&s, 0, 1 << 20);
		if (!legacy)
			CU(cuStreamCreateWithPriority(&stream, 0, 0));
		unsigned blocking = cuda_fake->counts().blocking_streams;
		CU(cuLaunchHostFunc(stream, pass_gate, &gate));
		assert_true(test_gate_await(&gate, 1));
		cuda_scene_open(&s, CUDA_STORE_MEM);
		cuda_scene_place(&s, &t, 1, &page, 1, 3);
		cuda_scene_store(&s, &t, KVT_STATUS_STORED);
		cuda_scene_load(&s, &t, KVT_STATUS_LOADED);
		assert_int_equal(cuda_fake->counts().blocking_streams, blocking);
		test_transfer_fini(&t);
		test_gate_open(&gate);
		CU(cuStreamSynchronize(stream));
		test_bed_close(&s.bed);
		if (!legacy)
			CU(cuStreamDestroy(stream));
		cuda_scene_close(&s);
		test_gate_fini(&gate);
	}
}

static void stores_that_wait_do_not_hold_up_loads(void **state)
{
	struct cuda_scene s;
	struct test_transfer out, in;

	(void)state;
	cuda_scene_init(&s, 0, 1 << 20);
	s.bed.worker_options.lanes = 1;
	cuda_scene_open(&s, CUDA_STORE_MEM);
	cuda_scene_place(&s, &out, 1, &page, 1, 3);
	cuda_scene_place(&s, &in, 1, &page, 1, 4);
	cuda_scene_store(&s, &in, KVT_STATUS_STORED);
	test_transfer_fill(&out);
	cuda_scene_push(&s, &out);
	cuda_fake->hold(FAKE_CUDA_TO_HOST);
	assert_ok(kvt_worker_submit_store(s.bed.worker, 1, &out.transfer, NULL));
	assert_true(cuda_fake->await_held(1));
	s.bed.next_id = 2;
	cuda_scene_load(&s, &in, KVT_STATUS_LOADED);
	assert_null(test_take_now(s.bed.worker, 1));
	cuda_fake->release();
	assert_result(KVT_STATUS_STORED, test_take(s.bed.worker, 1));
	cuda_scene_load(&s, &out, KVT_STATUS_LOADED);
	test_transfer_fini(&out);
	test_transfer_fini(&in);
	cuda_scene_close(&s);
}

static void lanes_do_not_ask_whether_copies_are_done(void **state)
{
	enum { LOOKUPS = 500 };
	struct cuda_scene s;
	struct test_transfer t, absent;

	(void)state;
	cuda_scene_init(&s, 0, 1 << 20);
	s.bed.worker_options.lanes = 1;
	cuda_scene_open(&s, CUDA_STORE_MEM);
	cuda_scene_place(&s, &t, 1, &page, 1, 3);
	cuda_scene_place(&s, &absent, 1, &page, 1, 4);
	test_set_geometry(&s.bed, &t);
	cuda_fake->hold(FAKE_CUDA_TO_HOST);
	assert_ok(kvt_worker_submit_store(s.bed.worker, 1, &t.transfer, NULL));
	assert_true(cuda_fake->await_held(1));
	/* The lane wakes for each of them. */
	s.bed.next_id = 2;
	unsigned before = cuda_fake->counts().calls;
	for (int i = 0; i < LOOKUPS; i++)
		test_lookup(&s.bed, absent.keys, 1, KVT_STATUS_MISS);
	assert_true(cuda_fake->counts().calls - before < LOOKUPS);
	cuda_fake->release();
	assert_result(KVT_STATUS_STORED, test_take(s.bed.worker, 1));
	test_transfer_fini(&t);
	test_transfer_fini(&absent);
	cuda_scene_close(&s);
}

static void completions_come_only_when_the_memory_is_quiet(void **state)
{
	static const struct test_group many = {12, 0, 2, {20000, 30000}};
	struct cuda_scene s;
	struct test_transfer t;

	(void)state;
	cuda_scene_init(&s, 0, 2 << 20);
	cuda_scene_open(&s, CUDA_STORE_MEM);
	cuda_scene_place(&s, &t, 2, &many, 1, 5);
	for (int load = 0; load < 2; load++) {
		struct kvt_result *result;
		uint64_t id = 1 + (uint64_t)load;
		if (load)
			test_transfer_poison(&t);
		else
			test_transfer_fill(&t);
		cuda_scene_push(&s, &t);
		cuda_fake->hold(FAKE_CUDA_TO_HOST | FAKE_CUDA_TO_DEVICE);
		if (load)
			assert_ok(kvt_worker_submit_load(s.bed.worker, id, &t.transfer, NULL));
		else
			assert_ok(kvt_worker_submit_store(s.bed.worker, id, &t.transfer, NULL));
		while (!(result = test_take_now(s.bed.worker, id)))
			cuda_fake->step(1);
		assert_false(cuda_fake->touches(cuda_scene_ptr(&s, &t), t.memory_bytes));
		assert_result(load ? KVT_STATUS_LOADED : KVT_STATUS_STORED, result);
		cuda_fake->release();
	}
	cuda_scene_pull(&s, &t);
	for (uint64_t k = 0; k < t.transfer.key_count; k++)
		assert_true(test_transfer_key_ok(&t, k));
	test_transfer_fini(&t);
	cuda_scene_close(&s);
}

static void copies_that_nobody_will_tell_of_are_waited_for(void **state)
{
	static const char *const calls[] = {"cuEventRecord", "cuStreamWaitEvent",
					    "cuLaunchHostFunc"};
	struct cuda_scene s;
	struct test_transfer t;

	(void)state;
	cuda_scene_init(&s, 0, 1 << 20);
	cuda_scene_open(&s, CUDA_STORE_MEM);
	cuda_scene_place(&s, &t, 1, &page, 1, 5);
	test_transfer_fill(&t);
	cuda_scene_push(&s, &t);
	for (size_t i = 0; i < TEST_COUNT(calls); i++) {
		struct kvt_result *result;

		cuda_fake->hold(FAKE_CUDA_TO_HOST);
		cuda_fake->fail_call(calls[i], 1, 1, CUDA_ERROR_OUT_OF_MEMORY);
		assert_ok(kvt_worker_submit_store(s.bed.worker, i, &t.transfer, NULL));
		uint64_t id = i;
		assert_true(cuda_fake->await_held(1));
		assert_returns(KVT_ETIMEDOUT, kvt_worker_wait(s.bed.worker, &id, 1, 20, NULL));
		cuda_fake->release();
		result = test_take(s.bed.worker, i);
		assert_int_equal(cuda_fake->faults(), 1);
		assert_false(cuda_fake->touches(cuda_scene_ptr(&s, &t), t.memory_bytes));
		assert_non_null(strstr(result->detail, calls[i]));
		assert_result(KVT_STATUS_FAILED, result);
		cuda_fake->fail_call(NULL, 0, 0, CUDA_SUCCESS);
	}
	s.bed.next_id = TEST_COUNT(calls);
	cuda_scene_store(&s, &t, KVT_STATUS_STORED);
	cuda_scene_load(&s, &t, KVT_STATUS_LOADED);
	test_transfer_fini(&t);
	cuda_scene_close(&s);
}

static void a_copy_in_flight_is_waited_for_after_cancel(void **state)
{
	struct cuda_scene s;
	struct test_transfer t;
	uint64_t id = 1;

	(void)state;
	cuda_scene_init(&s, 0, 1 << 20);
	cuda_scene_open(&s, CUDA_STORE_MEM);
	cuda_scene_place(&s, &t, 1, &page, 1, 5);
	test_transfer_fill(&t);
	cuda_scene_push(&s, &t);
	cuda_fake->hold(FAKE_CUDA_TO_HOST);
	assert_ok(kvt_worker_submit_store(s.bed.worker, 1, &t.transfer, NULL));
	assert_true(cuda_fake->await_held(1));
	assert_ok(kvt_worker_cancel(s.bed.worker, 1));
	assert_returns(KVT_ETIMEDOUT, kvt_worker_wait(s.bed.worker, &id, 1, 1, NULL));
	assert_true(cuda_fake->touches(cuda_scene_ptr(&s, &t), t.memory_bytes));
	cuda_fake->release();
	struct kvt_result *result = test_take(s.bed.worker, 1);
	assert_false(cuda_fake->touches(cuda_scene_ptr(&s, &t), t.memory_bytes));
	kvt_result_release(result);
	test_transfer_fini(&t);
	cuda_scene_close(&s);
}

static void destroy_waits_for_work_in_flight(void **state)
{
	struct cuda_scene s;
	struct test_transfer t;

	(void)state;
	cuda_scene_init(&s, 0, 1 << 20);
	cuda_scene_open(&s, CUDA_STORE_FILE);
	cuda_scene_place(&s, &t, 1, &page, 1, 5);
	test_transfer_fill(&t);
	cuda_scene_push(&s, &t);
	cuda_fake->hold(FAKE_CUDA_TO_HOST);
	assert_ok(kvt_worker_submit_store(s.bed.worker, 1, &t.transfer, NULL));
	assert_true(cuda_fake->await_held(1));
	assert_returns(KVT_EBUSY, kvt_worker_destroy(s.bed.worker, 1));
	assert_true(cuda_fake->touches(cuda_scene_ptr(&s, &t), t.memory_bytes));
	assert_returns(KVT_EBUSY, kvt_device_close(s.bed.device));
	cuda_fake->release();
	assert_ok(kvt_worker_destroy(s.bed.worker, TEST_LIMIT_MS));
	s.bed.worker = NULL;
	assert_false(cuda_fake->touches(cuda_scene_ptr(&s, &t), t.memory_bytes));
	test_transfer_fini(&t);
	cuda_scene_close(&s);
}

/* ---- Overlap ---- */

static void the_next_part_is_copied_while_storage_has_the_one_before(void **state)
{
	/* Eight chunks of a part each, then one chunk of eight parts. */
	static const struct test_group large = {8, 0, 1, {64 << 10}};
	static const struct fake_config config = {.capabilities = FAKE_CAPABILITIES};
	struct fake_store *fake = fake_store_create(&config);
	struct cuda_scene s;
	struct test_transfer first, t;

	(void)state;
	cuda_scene_init(&s, 0, 2 << 20);
	s.bed.worker_options.lanes = 1;
	assert_ok(cuda_device_open(0, &s.bed.device));
	test_bed_open(&s.bed, fake_store_uri(fake));
	cuda_scene_place(&s, &first, 1, &page, 1, 1);
	cuda_scene_store(&s, &first, KVT_STATUS_STORED); /* config.json is out of the way */
	for (uint32_t blocks = 1; blocks <= 8; blocks += 7) {
		struct fake_rule hold = {.ops = FAKE_OP(KVT_IO_PUT) | FAKE_OP(KVT_IO_PART),
					 .action = FAKE_HOLD};
		cuda_scene_place(&s, &t, blocks, &large, 1, 5 + blocks);
		test_transfer_poison(&t);
		test_transfer_fill(&t);
		cuda_scene_push(&s, &t);
		uint64_t before = cuda_fake->counts().fragments;
		fake_rule_add(fake, &hold);
		assert_ok(kvt_worker_submit_store(s.bed.worker, 100 + blocks, &t.transfer, NULL));
		/* Storage has finished none of them, and more than one part is copied. */
		assert_true(fake_await_held(fake, &hold, 3));
		assert_true(cuda_fake->counts().fragments - before >= 3);
		assert_null(test_take_now(s.bed.worker, 100 + blocks));
		fake_rule_remove(fake, &hold);
		assert_result(KVT_STATUS_STORED, test_take(s.bed.worker, 100 + blocks));
		s.bed.next_id = 200 + blocks;
		cuda_scene_load(&s, &t, KVT_STATUS_LOADED);
		test_transfer_fini(&t);
	}
	test_transfer_fini(&first);
	cuda_scene_close(&s);
	assert_null(fake_violation(fake));
	fake_store_destroy(fake);
}

static void storage_works_while_the_next_part_is_copied(void **state)
{
	static const struct test_group large = {2, 0, 1, {64 << 10}};
	struct cuda_scene s;
	struct test_transfer t;
	struct kvt_result *result;

	(void)state;
	cuda_scene_init(&s, 0, 2 << 20);
	s.bed.worker_options.lanes = 1;
	cuda_scene_open(&s, CUDA_STORE_FILE);
	cuda_scene_place(&s, &t, 1, &large, 1, 5);
	test_transfer_fill(&t);
	cuda_scene_push(&s, &t);
	cuda_fake->hold(FAKE_CUDA_TO_HOST);
	assert_ok(kvt_worker_submit_store(s.bed.worker, 10, &t.transfer, NULL));
	assert_true(cuda_fake->await_held(1));
	/* One copy happens, the other stays held: one of the two files is written. */
	cuda_fake->step(1);
	while (test_stats(s.bed.worker).keys[KVT_JOB_STORE][KVT_STATUS_STORED] == 0)
		;
	assert_null(test_take_now(s.bed.worker, 10));
	assert_true(cuda_fake->touches(cuda_scene_ptr(&s, &t), t.memory_bytes));
	cuda_fake->release();
	result = test_take(s.bed.worker, 10);
	assert_result(KVT_STATUS_STORED, result);
	cuda_scene_load(&s, &t, KVT_STATUS_LOADED);
	test_transfer_fini(&t);
	cuda_scene_close(&s);
}

static void staging_is_never_exceeded(void **state)
{
	static const struct test_group many = {30, 0, 1, {60000}};
	struct cuda_scene s;
	struct test_transfer t;

	(void)state;
	for (uint64_t buffers = 1; buffers <= 3; buffers++) {
		cuda_scene_init(&s, 0, 4 << 20);
		s.bed.worker_options.staging_bytes = buffers * (64 + 68) * 1024;
		cuda_scene_open(&s, CUDA_STORE_MEM);
		struct fake_cuda_counts open = cuda_fake->counts();
		assert_int_equal(open.host_allocations, s.before.host_allocations + 1);
		assert_true(open.pinned_bytes - s.before.pinned_bytes <=
			    s.bed.worker_options.staging_bytes + 4096);
		cuda_scene_place(&s, &t, 1, &many, 1, 5);
		cuda_scene_store(&s, &t, KVT_STATUS_STORED);
		cuda_scene_load(&s, &t, KVT_STATUS_LOADED);
		assert_int_equal(cuda_fake->counts().pinned_bytes, open.pinned_bytes);
		test_transfer_fini(&t);
		cuda_scene_close(&s);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_chunk_is_one_batch),
		cmocka_unit_test(neighbours_are_copied_as_one),
		cmocka_unit_test(batches_that_the_driver_does_not_take_become_single_copies),
		cmocka_unit_test(memory_is_looked_up_once_for_each_allocation),
		cmocka_unit_test(a_stream_that_is_held_up_holds_up_no_lane),
		cmocka_unit_test(stores_that_wait_do_not_hold_up_loads),
		cmocka_unit_test(lanes_do_not_ask_whether_copies_are_done),
		cmocka_unit_test(completions_come_only_when_the_memory_is_quiet),
		cmocka_unit_test(copies_that_nobody_will_tell_of_are_waited_for),
		cmocka_unit_test(a_copy_in_flight_is_waited_for_after_cancel),
		cmocka_unit_test(destroy_waits_for_work_in_flight),
		cmocka_unit_test(the_next_part_is_copied_while_storage_has_the_one_before),
		cmocka_unit_test(storage_works_while_the_next_part_is_copied),
		cmocka_unit_test(staging_is_never_exceeded),
	};
	int skipped = cuda_scene_start(true);

	return skipped ? skipped : cmocka_run_group_tests_name("cuda_copies", tests, NULL, NULL);
}
