/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the CUDA device promises on any driver: bytes come back from memory and from files, whatever
 * their shape, after the caller's events, from device, managed and registered memory. Runs on a GPU
 * and on the tests' own driver.
 */
#include "cuda_scene.h"

#include <stdlib.h>
#include <string.h>

static const struct test_group page = {1, 0, 1, {4096}};

static const struct shape {
	uint32_t blocks_per_chunk, group_count;
	struct test_group groups[2];
} shapes[] = {
	{1, 1, {{1, 0, 1, {1}}}},
	{1, 1, {{5, 0, 1, {4096}}}},
	{4, 1, {{16, 0, 2, {4096, 512}}}},
	{4, 1, {{7, 3, 3, {1000, 3, 70001}}}},
	{2, 2, {{6, 0, 2, {30000, 20001}}, {4, 1, 1, {65536}}}},
	{1, 1, {{2, 0, 1, {600000}}}},
};

static void every_shape_comes_back_from_every_store(void **state)
{
	(void)state;
	for (int store = 0; store < CUDA_STORE_COUNT; store++)
		for (size_t i = 0; i < TEST_COUNT(shapes); i++) {
			const struct shape *shape = &shapes[i];
			struct cuda_scene s;
			struct test_transfer t;

			cuda_scene_init(&s, 0, 4 << 20);
			cuda_scene_open(&s, (enum cuda_store)store);
			cuda_scene_place(&s, &t, shape->blocks_per_chunk, shape->groups,
					 shape->group_count, 7 + i);
			cuda_scene_store(&s, &t, KVT_STATUS_STORED);
			cuda_scene_load(&s, &t, KVT_STATUS_LOADED);
			cuda_scene_store(&s, &t, KVT_STATUS_SKIPPED);
			assert_context_kept(&s);
			test_transfer_fini(&t);
			cuda_scene_close(&s);
		}
}

static void thousands_of_fragments_are_gathered_and_scattered(void **state)
{
	/* 64 blocks of 6 refs in a chunk, of odd sizes: 384 copies each, 4,608 in all. */
	static const struct test_group many = {768, 0, 6, {1024, 333, 2048, 64, 700, 4096}};

	(void)state;
	for (int store = 0; store < CUDA_STORE_COUNT; store++) {
		struct cuda_scene s;
		struct test_transfer t;

		cuda_scene_init(&s, 0, 8 << 20);
		cuda_scene_open(&s, (enum cuda_store)store);
		cuda_scene_place(&s, &t, 64, &many, 1, 11);
		assert_int_equal(t.transfer.copy_count, 4608);
		cuda_scene_store(&s, &t, KVT_STATUS_STORED);
		cuda_scene_load(&s, &t, KVT_STATUS_LOADED);
		test_transfer_fini(&t);
		cuda_scene_close(&s);
	}
}

static void loads_fill_other_memory_than_what_was_stored(void **state)
{
	static const struct test_group some = {12, 0, 2, {9000, 555}};
	struct cuda_scene s;
	struct test_transfer from, to;

	(void)state;
	cuda_scene_init(&s, 0, 1 << 20);
	cuda_scene_open(&s, CUDA_STORE_MEM);
	cuda_scene_place(&s, &from, 4, &some, 1, 3);
	cuda_scene_place(&s, &to, 4, &some, 1, 3);
	cuda_scene_store(&s, &from, KVT_STATUS_STORED);
	cuda_scene_load(&s, &to, KVT_STATUS_LOADED);
	test_transfer_fini(&from);
	test_transfer_fini(&to);
	cuda_scene_close(&s);
}

/* ---- Memory of other kinds ---- */

/* A transfer at `view`, which CUDA and the CPU know by one address. */
static void store_and_load_at(struct cuda_scene *s, void *view, size_t bytes, uint64_t seed)
{
	static const struct test_group some = {8, 0, 2, {3000, 4097}};
	struct test_transfer t;

	assert_true(test_transfer_memory(4, &some, 1) <= bytes);
	test_transfer_init_at(&t, 4, &some, 1, seed, view, bytes, (uint64_t)(uintptr_t)view);
	test_transfer_poison(&t);
	test_store(&s->bed, &t, KVT_STATUS_STORED);
	test_load(&s->bed, &t, KVT_STATUS_LOADED);
	test_transfer_fini(&t);
}

static void host_memory_that_cuda_knows_needs_no_copies(void **state)
{
	const size_t bytes = 256 << 10;
	struct cuda_scene s;
	void *pinned, *registered = aligned_alloc(4096, bytes);

	(void)state;
	assert_non_null(registered);
	cuda_scene_init(&s, 0, 1 << 20);
	CU(cuMemHostAlloc(&pinned, bytes, CU_MEMHOSTALLOC_PORTABLE));
	CU(cuMemHostRegister(registered, bytes, CU_MEMHOSTREGISTER_PORTABLE));
	cuda_scene_open(&s, CUDA_STORE_FILE);
	uint64_t before = cuda_fake ? cuda_fake->counts().fragments : 0;
	store_and_load_at(&s, pinned, bytes, 5);
	store_and_load_at(&s, registered, bytes, 6);
	if (cuda_fake)
		assert_int_equal(cuda_fake->counts().fragments, before);
	test_bed_close(&s.bed);
	CU(cuMemFreeHost(pinned));
	CU(cuMemHostUnregister(registered));
	free(registered);
	cuda_scene_close(&s);
}

static void managed_memory_is_used(void **state)
{
	const size_t bytes = 256 << 10;
	struct cuda_scene s;
	CUdeviceptr managed;

	(void)state;
	cuda_scene_init(&s, 0, 1 << 20);
	CUresult result = cuda->cuMemAllocManaged(&managed, bytes, CU_MEM_ATTACH_GLOBAL);
	if (result == CUDA_ERROR_NOT_SUPPORTED) {
		print_message("skipped: no managed memory on this machine\n");
		cuda_scene_close(&s);
		skip();
	}
	assert_int_equal(result, CUDA_SUCCESS);
	cuda_scene_open(&s, CUDA_STORE_MEM);
	store_and_load_at(&s, (void *)(uintptr_t)managed, bytes, 5);
	test_bed_close(&s.bed);
	CU(cuMemFree(managed));
	cuda_scene_close(&s);
}

static void staging_memory_of_the_callers_is_pinned_and_given_back(void **state)
{
	static const struct test_group some = {40, 0, 2, {9000, 5555}};
	const size_t bytes = 4 << 20;
	void *memory = aligned_alloc(4096, bytes);
	struct cuda_scene s;
	struct test_transfer t;

	(void)state;
	assert_non_null(memory);
	cuda_scene_init(&s, 0, 2 << 20);
	s.bed.worker_options.staging_memory = memory;
	s.bed.worker_options.staging_bytes = bytes;
	cuda_scene_open(&s, CUDA_STORE_FILE);
	if (cuda_fake)
		assert_true(cuda_fake->counts().registrations > s.before.registrations);
	cuda_scene_place(&s, &t, 4, &some, 1, 3);
	cuda_scene_store(&s, &t, KVT_STATUS_STORED);
	cuda_scene_load(&s, &t, KVT_STATUS_LOADED);
	test_transfer_fini(&t);
	cuda_scene_close(&s);
	memset(memory, 0, bytes);
	free(memory);
}

static void a_pointer_that_is_none_fails_its_key_alone(void **state)
{
	static const struct test_group four = {4, 0, 1, {4096}};
	struct cuda_scene s;
	struct test_transfer t;
	static uint8_t plain[4096];

	(void)state;
	cuda_scene_init(&s, 0, 1 << 20);
	cuda_scene_open(&s, CUDA_STORE_MEM);
	cuda_scene_place(&s, &t, 1, &four, 1, 5);
	test_transfer_fill(&t);
	cuda_scene_push(&s, &t);
	t.ptrs[1] = s.memory + s.memory_bytes - 10; /* ends beyond its allocation */
	t.ptrs[2] = (uint64_t)(uintptr_t)plain;	    /* CUDA does not know it */
	assert_ok(kvt_worker_submit_store(s.bed.worker, 1, &t.transfer, NULL));
	struct kvt_result *result = test_take(s.bed.worker, 1);
	assert_int_equal(result->key_status[0], KVT_STATUS_STORED);
	assert_int_equal(result->key_status[1], KVT_STATUS_FAILED);
	assert_int_equal(result->key_error[1], KVT_EFAULT);
	assert_int_equal(result->key_status[2], KVT_STATUS_FAILED);
	assert_int_equal(result->key_error[2], KVT_EFAULT);
	assert_int_equal(result->key_status[3], KVT_STATUS_STORED);
	assert_non_null(strstr(result->detail, "0x"));
	kvt_result_release(result);
	/* The device is as good as before. */
	t.ptrs[1] = cuda_scene_ptr(&s, &t) + (CUdeviceptr)(t.copies[1].at - t.memory);
	t.ptrs[2] = cuda_scene_ptr(&s, &t) + (CUdeviceptr)(t.copies[2].at - t.memory);
	assert_ok(kvt_worker_submit_store(s.bed.worker, 2, &t.transfer, NULL));
	result = test_take(s.bed.worker, 2);
	assert_int_equal(result->key_status[1], KVT_STATUS_STORED);
	assert_int_equal(result->key_status[2], KVT_STATUS_STORED);
	kvt_result_release(result);
	cuda_scene_load(&s, &t, KVT_STATUS_LOADED);
	test_transfer_fini(&t);
	cuda_scene_close(&s);
}

/* ---- Order ---- */

enum ready { READY_EVENT, READY_STREAM, READY_LEGACY, READY_NULL, READY_PER_THREAD, READY_COUNT };

static void start(struct cuda_producer *p, struct cuda_scene *s, struct test_transfer *t,
		  enum ready kind, struct kvt_ready *ready)
{
	CUstream stream = NULL;

	if (kind == READY_LEGACY || kind == READY_NULL)
		stream = CU_STREAM_LEGACY;
	if (kind == READY_PER_THREAD)
		stream = CU_STREAM_PER_THREAD;
	cuda_producer_start(p, s, t, stream);
	ready->kind = kind == READY_EVENT ? KVT_READY_EVENT : KVT_READY_STREAM;
	ready->handle = kind == READY_EVENT  ? (void *)p->event
			: kind == READY_NULL ? NULL
					     : (void *)p->stream;
}

static void a_store_takes_the_bytes_that_the_event_stands_for(void **state)
{
	static const struct test_group some = {6, 0, 2, {9000, 555}};

	(void)state;
	for (int kind = 0; kind < READY_COUNT; kind++) {
		struct cuda_scene s;
		struct test_transfer t, other;
		struct cuda_producer p;
		struct kvt_submit_options options = KVT_INIT(options);

		cuda_scene_init(&s, 0, 1 << 20);
		cuda_scene_open(&s, CUDA_STORE_MEM);
		cuda_scene_place(&s, &t, 2, &some, 1, 20);
		cuda_scene_place(&s, &other, 1, &page, 1, 21);
		/* While the legacy stream is held up nothing can be copied by blocking calls. */
		test_transfer_fill(&other);
		cuda_scene_push(&s, &other);
		start(&p, &s, &t, (enum ready)kind, &options.ready);
		test_set_geometry(&s.bed, &t);
		assert_ok(kvt_worker_submit_store(s.bed.worker, 1, &t.transfer, &options));
		assert_context_kept(&s);
		/* What waits for nothing is not held up. */
		assert_ok(kvt_worker_submit_lookup(s.bed.worker, 2, t.keys, 1, NULL));
		assert_result(KVT_STATUS_PENDING, test_take(s.bed.worker, 2));
		assert_null(test_take_now(s.bed.worker, 1));
		cuda_producer_release(&p);
		assert_result(KVT_STATUS_STORED, test_take(s.bed.worker, 1));
		cuda_producer_end(&p);
		cuda_scene_load(&s, &t, KVT_STATUS_LOADED);
		test_transfer_fini(&t);
		test_transfer_fini(&other);
		cuda_scene_close(&s);
	}
}

/* Without the event the bytes are wrong: the tests of order can fail. */
static void a_store_without_the_event_takes_wrong_bytes(void **state)
{
	struct cuda_scene s;
	struct test_transfer t;
	struct cuda_producer p;
	struct kvt_ready ready;

	(void)state;
	cuda_scene_init(&s, 0, 1 << 20);
	/* Few streams, so that a GPU gives each a queue of its own. */
	s.bed.worker_options.lanes = 1;
	cuda_scene_open(&s, CUDA_STORE_MEM);
	cuda_scene_place(&s, &t, 1, &page, 1, 20);
	start(&p, &s, &t, READY_EVENT, &ready);
	assert_ok(kvt_worker_submit_store(s.bed.worker, 1, &t.transfer, NULL));
	assert_result(KVT_STATUS_STORED, test_take(s.bed.worker, 1));
	cuda_producer_release(&p);
	cuda_producer_end(&p);
	assert_ok(kvt_worker_submit_load(s.bed.worker, 2, &t.transfer, NULL));
	assert_result(KVT_STATUS_LOADED, test_take(s.bed.worker, 2));
	cuda_scene_pull(&s, &t);
	assert_false(test_transfer_key_ok(&t, 0));
	test_transfer_fini(&t);
	cuda_scene_close(&s);
}

static void a_load_leaves_memory_alone_until_the_event(void **state)
{
	static const struct test_group some = {6, 0, 2, {9000, 555}};

	(void)state;
	for (int kind = 0; kind < READY_COUNT; kind++) {
		struct cuda_scene s;
		struct test_transfer from, to;
		struct cuda_producer p;
		struct kvt_submit_options options = KVT_INIT(options);

		cuda_scene_init(&s, 0, 1 << 20);
		cuda_scene_open(&s, CUDA_STORE_MEM);
		cuda_scene_place(&s, &from, 2, &some, 1, 20);
		cuda_scene_place(&s, &to, 2, &some, 1, 20);
		cuda_scene_store(&s, &from, KVT_STATUS_STORED);
		/* The stream still writes other bytes to the memory: what is loaded comes last. */
		to.salt = 2;
		start(&p, &s, &to, (enum ready)kind, &options.ready);
		to.salt = 1;
		assert_ok(kvt_worker_submit_load(s.bed.worker, 1, &to.transfer, &options));
		cuda_producer_release(&p);
		assert_result(KVT_STATUS_LOADED, test_take(s.bed.worker, 1));
		cuda_producer_end(&p);
		cuda_scene_pull(&s, &to);
		test_transfer_check(&to);
		test_transfer_fini(&from);
		test_transfer_fini(&to);
		cuda_scene_close(&s);
	}
}

static void host_memory_waits_for_the_event_as_well(void **state)
{
	struct cuda_scene s;
	struct test_transfer t;
	struct cuda_producer p;
	struct kvt_submit_options options = KVT_INIT(options);
	struct test_transfer device;
	void *pinned;

	(void)state;
	cuda_scene_init(&s, 0, 1 << 20);
	CU(cuMemHostAlloc(&pinned, 8192, CU_MEMHOSTALLOC_PORTABLE));
	s.bed.worker_options.lanes = 1;
	cuda_scene_open(&s, CUDA_STORE_MEM);
	cuda_scene_place(&s, &device, 1, &page, 1, 20);
	test_transfer_init_at(&t, 1, &page, 1, 20, pinned, 8192, (uint64_t)(uintptr_t)pinned);
	/* The stream brings the bytes from the device to the host memory. */
	start(&p, &s, &device, READY_EVENT, &options.ready);
	CU(cuMemcpyDtoHAsync(t.copies[0].at, device.ptrs[0], t.sizes[0], p.stream));
	CU(cuEventRecord(p.event, p.stream));
	test_transfer_poison(&t);
	test_set_geometry(&s.bed, &t);
	assert_ok(kvt_worker_submit_store(s.bed.worker, 1, &t.transfer, &options));
	/* The one lane goes on meanwhile. */
	s.bed.next_id = 10;
	for (int i = 0; i < 20; i++)
		test_lookup(&s.bed, t.keys, 1, KVT_STATUS_PENDING);
	assert_null(test_take_now(s.bed.worker, 1));
	cuda_producer_release(&p);
	assert_result(KVT_STATUS_STORED, test_take(s.bed.worker, 1));
	cuda_producer_end(&p);
	test_load(&s.bed, &t, KVT_STATUS_LOADED);
	test_bed_close(&s.bed);
	CU(cuMemFreeHost(pinned));
	test_transfer_fini(&t);
	test_transfer_fini(&device);
	cuda_scene_close(&s);
}

static void jobs_that_wait_for_an_event_end_with_cancel_and_deadline(void **state)
{
	struct cuda_scene s;
	struct test_transfer t[2];
	struct cuda_producer p;
	struct kvt_submit_options options = KVT_INIT(options);

	(void)state;
	cuda_scene_init(&s, 0, 1 << 20);
	cuda_scene_open(&s, CUDA_STORE_MEM);
	cuda_scene_place(&s, &t[0], 1, &page, 1, 20);
	cuda_scene_place(&s, &t[1], 1, &page, 1, 21);
	start(&p, &s, &t[0], READY_STREAM, &options.ready);
	assert_ok(kvt_worker_submit_store(s.bed.worker, 1, &t[0].transfer, &options));
	options.timeout_ms = 1;
	assert_ok(kvt_worker_submit_store(s.bed.worker, 2, &t[1].transfer, &options));
	assert_ok(kvt_worker_cancel(s.bed.worker, 1));
	/* Whatever had begun ends first. */
	cuda_producer_release(&p);
	struct kvt_result *result = test_take(s.bed.worker, 1);
	assert_true(result->status == KVT_STATUS_CANCELED || result->status == KVT_STATUS_STORED);
	kvt_result_release(result);
	result = test_take(s.bed.worker, 2);
	assert_true(result->status == KVT_STATUS_FAILED || result->status == KVT_STATUS_STORED);
	kvt_result_release(result);
	cuda_producer_end(&p);
	test_transfer_fini(&t[0]);
	test_transfer_fini(&t[1]);
	cuda_scene_close(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_shape_comes_back_from_every_store),
		cmocka_unit_test(thousands_of_fragments_are_gathered_and_scattered),
		cmocka_unit_test(loads_fill_other_memory_than_what_was_stored),
		cmocka_unit_test(host_memory_that_cuda_knows_needs_no_copies),
		cmocka_unit_test(managed_memory_is_used),
		cmocka_unit_test(staging_memory_of_the_callers_is_pinned_and_given_back),
		cmocka_unit_test(a_pointer_that_is_none_fails_its_key_alone),
		cmocka_unit_test(a_store_takes_the_bytes_that_the_event_stands_for),
		cmocka_unit_test(a_store_without_the_event_takes_wrong_bytes),
		cmocka_unit_test(a_load_leaves_memory_alone_until_the_event),
		cmocka_unit_test(host_memory_waits_for_the_event_as_well),
		cmocka_unit_test(jobs_that_wait_for_an_event_end_with_cancel_and_deadline),
	};
	int skipped = cuda_scene_start(false);

	return skipped ? skipped : cmocka_run_group_tests_name("cuda_contract", tests, NULL, NULL);
}
