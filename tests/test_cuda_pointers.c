/* SPDX-License-Identifier: Apache-2.0 */
/* Whose memory an address is, and whose context is current: two devices, memory mapped in pieces,
 * allocations side by side, contexts of the calling threads. */
#include "cuda_scene.h"

#include <stdlib.h>
#include <string.h>

static const struct test_group page = {1, 0, 1, {4096}};

static void store_fails(struct cuda_scene *s, struct test_transfer *t, uint64_t id,
			const char *text)
{
	uint64_t before = cuda_fake->counts().fragments;

	assert_ok(kvt_worker_submit_store(s->bed.worker, id, &t->transfer, NULL));
	struct kvt_result *result = test_take(s->bed.worker, id);
	assert_int_equal(result->key_status[0], KVT_STATUS_FAILED);
	assert_int_equal(result->key_error[0], KVT_EFAULT);
	if (!strstr(result->detail, text))
		fail_msg("\"%s\" is not in \"%s\"", text, result->detail);
	kvt_result_release(result);
	if (t->transfer.key_count == 1)
		assert_int_equal(cuda_fake->counts().fragments, before);
}

static void memory_of_the_other_device_is_refused(void **state)
{
	struct cuda_scene s;
	struct test_transfer t;
	CUcontext other;
	CUdeviceptr there;

	(void)state;
	cuda_scene_init(&s, 0, 1 << 20);
	CU(cuDevicePrimaryCtxRetain(&other, 1));
	CU(cuCtxSetCurrent(other));
	CU(cuMemAlloc(&there, 4096));
	CU(cuCtxSetCurrent(s.context));
	cuda_scene_open(&s, CUDA_STORE_MEM);
	cuda_scene_place(&s, &t, 1, &page, 1, 5);
	uint64_t right = t.ptrs[0];
	t.ptrs[0] = there;
	store_fails(&s, &t, 1, "device 1");
	t.ptrs[0] = right;
	cuda_scene_store(&s, &t, KVT_STATUS_STORED);
	test_bed_close(&s.bed);
	CU(cuCtxSetCurrent(other));
	CU(cuMemFree(there));
	CU(cuCtxSetCurrent(s.context));
	CU(cuDevicePrimaryCtxRelease(1));
	test_transfer_fini(&t);
	cuda_scene_close(&s);
}

static void two_devices_work_side_by_side(void **state)
{
	static const struct test_group some = {20, 0, 2, {5000, 444}};
	struct cuda_scene s[2];
	struct test_transfer t[2];

	(void)state;
	/* The thread's own context is that of the second all the while. */
	for (int i = 0; i < 2; i++) {
		cuda_scene_init(&s[i], i, 1 << 20);
		cuda_scene_open(&s[i], CUDA_STORE_MEM);
		cuda_scene_place(&s[i], &t[i], 4, &some, 1, 5);
		test_transfer_fill(&t[i]);
		cuda_scene_push(&s[i], &t[i]);
	}
	for (int i = 0; i < 2; i++)
		assert_ok(kvt_worker_submit_store(s[i].bed.worker, 1, &t[i].transfer, NULL));
	for (int i = 0; i < 2; i++)
		assert_result(KVT_STATUS_STORED, test_take(s[i].bed.worker, 1));
	assert_context_kept(&s[1]);
	for (int i = 0; i < 2; i++) {
		CU(cuCtxSetCurrent(s[i].context));
		s[i].bed.next_id = 2;
		cuda_scene_load(&s[i], &t[i], KVT_STATUS_LOADED);
		test_transfer_fini(&t[i]);
	}
	/* Both were there before the second scene began. */
	CU(cuCtxSetCurrent(s[1].context));
	cuda_scene_close(&s[1]);
	CU(cuCtxSetCurrent(s[0].context));
	cuda_scene_close(&s[0]);
}

static void memory_that_is_mapped_piece_by_piece_is_one(void **state)
{
	static const struct test_group large = {3, 0, 1, {20000}};
	struct cuda_scene s;
	struct test_transfer t;

	(void)state;
	cuda_scene_init(&s, 0, 1 << 20);
	CUdeviceptr pieces = cuda_fake->map_pieces(8192, 10, true);
	assert_true(pieces != 0);
	cuda_scene_open(&s, CUDA_STORE_MEM);
	/* The test sees them through a copy of its own. */
	cuda_scene_place(&s, &t, 1, &large, 1, 5);
	test_transfer_fill(&t);
	for (uint64_t i = 0; i < t.transfer.copy_count; i++) {
		t.ptrs[i] = pieces + 20000 * i;
		CU(cuMemcpyHtoD(t.ptrs[i], t.copies[i].at, t.sizes[i]));
	}
	assert_ok(kvt_worker_submit_store(s.bed.worker, 1, &t.transfer, NULL));
	assert_result(KVT_STATUS_STORED, test_take(s.bed.worker, 1));
	for (uint64_t i = 0; i < t.transfer.copy_count; i++)
		CU(cuMemcpyHtoD(t.ptrs[i], s.shadow + s.used, t.sizes[i]));
	assert_ok(kvt_worker_submit_load(s.bed.worker, 2, &t.transfer, NULL));
	assert_result(KVT_STATUS_LOADED, test_take(s.bed.worker, 2));
	test_transfer_poison(&t);
	for (uint64_t i = 0; i < t.transfer.copy_count; i++)
		CU(cuMemcpyDtoH(t.copies[i].at, t.ptrs[i], t.sizes[i]));
	test_transfer_check(&t);
	/* It ends where the last piece ends. */
	t.ptrs[0] = pieces + 10 * 8192 - 19999;
	t.transfer.keys = t.keys;
	store_fails(&s, &t, 3, "0x");
	test_bed_close(&s.bed);
	for (unsigned i = 0; i < 10; i++)
		CU(cuMemFree(pieces + 8192 * i));
	test_transfer_fini(&t);
	cuda_scene_close(&s);
}

/* Blocks in a row in memory and in the object, of which no copy may reach into two allocations. */
static void allocations_beside_each_other_are_copied_apart(void **state)
{
	static const struct test_group row = {8, 0, 1, {4096}};
	struct cuda_scene s;
	struct test_transfer t;

	(void)state;
	cuda_scene_init(&s, 0, 1 << 20);
	CUdeviceptr pieces = cuda_fake->map_pieces(8192, 4, false);
	assert_true(pieces != 0);
	cuda_scene_open(&s, CUDA_STORE_MEM);
	cuda_scene_place(&s, &t, 8, &row, 1, 5);
	test_transfer_fill(&t);
	for (uint64_t i = 0; i < t.transfer.copy_count; i++) {
		t.ptrs[i] = pieces + 4096 * i;
		CU(cuMemcpyHtoD(t.ptrs[i], t.copies[i].at, t.sizes[i]));
	}
	uint64_t before = cuda_fake->counts().fragments;
	assert_ok(kvt_worker_submit_store(s.bed.worker, 1, &t.transfer, NULL));
	assert_result(KVT_STATUS_STORED, test_take(s.bed.worker, 1));
	assert_int_equal(cuda_fake->counts().fragments - before, 4);
	assert_ok(kvt_worker_submit_load(s.bed.worker, 2, &t.transfer, NULL));
	assert_result(KVT_STATUS_LOADED, test_take(s.bed.worker, 2));
	test_transfer_poison(&t);
	for (uint64_t i = 0; i < t.transfer.copy_count; i++)
		CU(cuMemcpyDtoH(t.copies[i].at, t.ptrs[i], t.sizes[i]));
	test_transfer_check(&t);
	/* One block may not reach into two either. */
	t.ptrs[0] = pieces + 8192 - 100;
	store_fails(&s, &t, 3, "ends");
	test_bed_close(&s.bed);
	for (unsigned i = 0; i < 4; i++)
		CU(cuMemFree(pieces + 8192 * i));
	test_transfer_fini(&t);
	cuda_scene_close(&s);
}

static void memory_that_was_freed_is_refused(void **state)
{
	struct cuda_scene s;
	struct test_transfer t;
	CUdeviceptr gone;

	(void)state;
	cuda_scene_init(&s, 0, 1 << 20);
	cuda_scene_open(&s, CUDA_STORE_MEM);
	CU(cuMemAlloc(&gone, 4096));
	cuda_scene_place(&s, &t, 1, &page, 1, 5);
	uint64_t right = t.ptrs[0];
	t.ptrs[0] = gone;
	assert_ok(kvt_worker_submit_store(s.bed.worker, 1, &t.transfer, NULL));
	assert_result(KVT_STATUS_STORED, test_take(s.bed.worker, 1));
	CU(cuMemFree(gone));
	t.key_seed = 6;
	t.hashes[0][0] ^= 1; /* another key */
	store_fails(&s, &t, 2, "0x");
	t.ptrs[0] = right;
	s.bed.next_id = 3;
	cuda_scene_store(&s, &t, KVT_STATUS_STORED);
	test_transfer_fini(&t);
	cuda_scene_close(&s);
}

static void staging_in_pieces_is_never_crossed_by_a_copy(void **state)
{
	static const struct test_group large = {3, 0, 1, {8 << 20}};
	struct cuda_scene s;
	struct test_transfer t;

	(void)state;
	cuda_scene_init(&s, 0, 25 << 20);
	/* One call gets at most 16 MiB, and the second buffer of 8 MiB and a trailer lies across
	 * the end of the first piece. */
	cuda_fake->limit_pinned(0, 16 << 20);
	s.bed.worker_options.staging_bytes = 40 << 20;
	s.bed.worker_options.part_bytes = 8 << 20;
	cuda_scene_open(&s, CUDA_STORE_MEM);
	assert_true(cuda_fake->counts().registrations >= s.before.registrations + 3);
	cuda_scene_place(&s, &t, 1, &large, 1, 5);
	test_transfer_poison(&t);
	test_transfer_fill(&t);
	cuda_scene_push(&s, &t);
	cuda_fake->hold(FAKE_CUDA_TO_HOST);
	assert_ok(kvt_worker_submit_store(s.bed.worker, 1, &t.transfer, NULL));
	while (test_stats(s.bed.worker).staging_used_bytes < 3 * (8 << 20))
		;
	cuda_fake->release();
	assert_result(KVT_STATUS_STORED, test_take(s.bed.worker, 1));
	s.bed.next_id = 2;
	cuda_scene_load(&s, &t, KVT_STATUS_LOADED);
	test_transfer_fini(&t);
	cuda_scene_close(&s);
	cuda_fake->reset();
}

/* ---- Contexts ---- */

static void callers_without_a_context_still_have_none(void **state)
{
	struct cuda_scene s;
	struct test_transfer t;
	CUcontext context;

	(void)state;
	cuda_scene_init(&s, 0, 1 << 20);
	cuda_scene_place(&s, &t, 1, &page, 1, 5);
	test_transfer_fill(&t);
	cuda_scene_push(&s, &t);
	CU(cuCtxSetCurrent(NULL));
	assert_ok(cuda_device_open(0, &s.bed.device));
	test_bed_open_store(&s.bed, "mem:");
	test_bed_open_worker(&s.bed);
	assert_ok(kvt_worker_submit_store(s.bed.worker, 1, &t.transfer, NULL));
	assert_result(KVT_STATUS_STORED, test_take(s.bed.worker, 1));
	struct kvt_submit_options options = KVT_INIT(options);
	options.ready.kind = KVT_READY_STREAM;
	options.ready.handle = NULL;
	assert_ok(kvt_worker_submit_load(s.bed.worker, 2, &t.transfer, &options));
	assert_result(KVT_STATUS_LOADED, test_take(s.bed.worker, 2));
	test_bed_close(&s.bed);
	assert_ok(kvt_device_close(s.bed.device));
	s.bed.device = NULL;
	CU(cuCtxGetCurrent(&context));
	assert_null(context);
	assert_int_equal(cuda_fake->stack_depth(), 0);
	CU(cuCtxSetCurrent(s.context));
	test_transfer_fini(&t);
	cuda_scene_close(&s);
}

static int make_current(void *context, uint32_t lane)
{
	(void)lane;
	return cuda->cuCtxSetCurrent(context) == CUDA_SUCCESS ? 0 : -1;
}

static void a_context_that_a_lane_was_given_does_not_matter(void **state)
{
	struct cuda_scene s;
	struct test_transfer t;
	CUcontext other;

	(void)state;
	cuda_scene_init(&s, 0, 1 << 20);
	CU(cuDevicePrimaryCtxRetain(&other, 1));
	s.bed.worker_options.thread_init = make_current;
	s.bed.worker_options.thread_init_context = other;
	cuda_scene_open(&s, CUDA_STORE_MEM);
	cuda_scene_place(&s, &t, 1, &page, 1, 5);
	cuda_scene_store(&s, &t, KVT_STATUS_STORED);
	cuda_scene_load(&s, &t, KVT_STATUS_LOADED);
	test_transfer_fini(&t);
	test_bed_close(&s.bed);
	CU(cuDevicePrimaryCtxRelease(1));
	cuda_scene_close(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(memory_of_the_other_device_is_refused),
		cmocka_unit_test(two_devices_work_side_by_side),
		cmocka_unit_test(memory_that_is_mapped_piece_by_piece_is_one),
		cmocka_unit_test(allocations_beside_each_other_are_copied_apart),
		cmocka_unit_test(memory_that_was_freed_is_refused),
		cmocka_unit_test(staging_in_pieces_is_never_crossed_by_a_copy),
		cmocka_unit_test(callers_without_a_context_still_have_none),
		cmocka_unit_test(a_context_that_a_lane_was_given_does_not_matter),
	};
	int skipped = cuda_scene_start(true);

	return skipped ? skipped : cmocka_run_group_tests_name("cuda_pointers", tests, NULL, NULL);
}
