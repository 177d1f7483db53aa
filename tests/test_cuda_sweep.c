/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every call of the driver fails once: the first, then the second, ... until a run passes without
 * one. After each: every job has completed once, with an error or the right bytes, nothing hangs
 * and nothing is left.
 */
#include "cuda_scene.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

static const struct test_group some = {4, 0, 2, {3000, 70000}};

struct run {
	struct cuda_scene s;
	struct test_transfer out, in, host;
	struct cuda_producer producer;
	void *pinned;
	enum cuda_store store;
};

/* What the device holds, even when its context is lost. */
static void look(struct run *r, struct test_transfer *t)
{
	memcpy(t->memory, cuda_fake->view(cuda_scene_ptr(&r->s, t)), t->memory_bytes);
}

/* A job that was taken in completes, whatever happened. */
static void take(struct run *r, uint64_t id, struct test_transfer *t)
{
	struct kvt_result *result = test_take(r->s.bed.worker, id);

	for (uint64_t k = 0; k < result->key_count; k++)
		switch (result->key_status[k]) {
		case KVT_STATUS_LOADED:
			assert_non_null(t);
			assert_true(test_transfer_key_ok(t, k));
			break;
		case KVT_STATUS_STORED:
		case KVT_STATUS_SKIPPED:
		case KVT_STATUS_MISSING:
			break;
		default:
			assert_int_equal(result->key_status[k], KVT_STATUS_FAILED);
			assert_true(result->key_error[k] < 0);
			assert_true(result->detail[0] != '\0');
			assert_null(strchr(result->detail, '\n'));
			break;
		}
	kvt_result_release(result);
}

static bool accepted(int error)
{
	assert_true(error == 0 || error == KVT_EDEVICE || error == KVT_EINVAL ||
		    error == KVT_ENOMEM);
	return error == 0;
}

static void jobs(struct run *r)
{
	struct kvt_worker *worker = r->s.bed.worker;
	struct kvt_submit_options after_event = KVT_INIT(after_event);
	struct kvt_submit_options after_stream = KVT_INIT(after_stream);
	struct kvt_stream_completion *completion;

	after_event.ready.kind = KVT_READY_EVENT;
	after_event.ready.handle = r->producer.event;
	after_stream.ready.kind = KVT_READY_STREAM;
	after_stream.ready.handle = r->producer.stream;
	bool taken_in[] = {
		accepted(kvt_worker_submit_store(worker, 1, &r->out.transfer, &after_event)),
		accepted(kvt_worker_submit_load(worker, 2, &r->in.transfer, &after_stream)),
		/* Host memory, which the lane itself waits with. */
		accepted(kvt_worker_submit_store(worker, 3, &r->host.transfer, &after_event)),
	};
	/* Mostly the lane has met the event by then. */
	for (int i = 0; i < 300; i++)
		sched_yield();
	cuda_producer_release(&r->producer);
	for (uint64_t id = 1; id <= 3; id++) {
		if (!taken_in[id - 1])
			continue;
		assert_ok(kvt_worker_wait(worker, &id, 1, TEST_LIMIT_MS, NULL));
		if (id == 2)
			look(r, &r->in);
		take(r, id, id == 2 ? &r->in : NULL);
	}
	if (accepted(kvt_stream_completion_create(r->s.bed.device, r->producer.stream,
						  &completion))) {
		int done = kvt_stream_completion_wait(completion, TEST_LIMIT_MS);
		assert_true(done == 0 || done == KVT_EDEVICE);
		kvt_stream_completion_release(completion);
	}
}

static void run_init(struct run *r, enum cuda_store store)
{
	cuda_scene_init(&r->s, 0, 2 << 20);
	r->store = store;
	r->s.bed.worker_options.lanes = 1;
	if (store == CUDA_STORE_FILE)
		r->s.directory = test_temp_dir();
	cuda_scene_place(&r->s, &r->out, 2, &some, 1, 5);
	cuda_scene_place(&r->s, &r->in, 2, &some, 1, 5);
	r->in.salt = 1;
	test_transfer_poison(&r->in);
	cuda_scene_push(&r->s, &r->in);
	cuda_producer_start(&r->producer, &r->s, &r->out, NULL);
	size_t bytes = test_transfer_memory(2, &some, 1);
	CU(cuMemHostAlloc(&r->pinned, bytes, CU_MEMHOSTALLOC_PORTABLE));
	test_transfer_init_at(&r->host, 2, &some, 1, 9, r->pinned, bytes,
			      (uint64_t)(uintptr_t)r->pinned);
	test_transfer_fill(&r->host);
	r->s.before = cuda_fake->counts();
}

/* The library's part: nothing of the test's own calls the driver in between. */
static void run_library(struct run *r)
{
	struct test_bed *bed = &r->s.bed;
	char *uri = r->store == CUDA_STORE_FILE ? test_format("file:%s/kv", r->s.directory)
						: test_format("mem:");

	if (accepted(cuda_device_open(0, &bed->device))) {
		test_bed_open_store(bed, uri);
		if (accepted(kvt_worker_create(bed->store, bed->device, &bed->worker_options,
					       &bed->worker)))
			jobs(r);
		test_bed_close(bed);
		assert_ok(kvt_device_close(bed->device));
	}
	bed->store = NULL;
	bed->device = NULL;
	free(uri);
}

static void run_fini(struct run *r)
{
	bool lost = cuda_fake->is_lost(0);

	cuda_producer_release(&r->producer);
	assert_true(cuda_fake->idle());
	/* Of a lost context every call says so. */
	CUresult results[] = {
		cuda->cuEventDestroy(r->producer.event),
		cuda->cuStreamDestroy(r->producer.stream),
		cuda->cuMemFreeHost(r->producer.pinned),
		cuda->cuMemFreeHost(r->pinned),
	};
	for (size_t i = 0; i < TEST_COUNT(results); i++)
		assert_true(lost || results[i] == CUDA_SUCCESS);
	r->s.before.events--;
	r->s.before.streams--;
	r->s.before.host_allocations -= 2;
	test_gate_fini(&r->producer.gate);
	test_transfer_fini(&r->out);
	test_transfer_fini(&r->in);
	test_transfer_fini(&r->host);
	cuda_scene_close(&r->s);
}

static void sweep(enum cuda_store store, CUresult code)
{
	for (unsigned nth = 1;; nth++) {
		struct run r = {0};

		run_init(&r, store);
		cuda_fake->fail_call(NULL, nth, 1, code);
		run_library(&r);
		unsigned failed = cuda_fake->faults();
		cuda_fake->fail_call(NULL, 0, 0, CUDA_SUCCESS);
		if (failed > 1)
			fail_msg("%u failures for one", failed);
		run_fini(&r);
		cuda_fake->reset();
		if (!failed)
			break;
		assert_true(nth < 2000);
	}
}

static void every_call_that_is_refused_leaves_all_in_order(void **state)
{
	(void)state;
	sweep(CUDA_STORE_MEM, CUDA_ERROR_INVALID_VALUE);
	sweep(CUDA_STORE_FILE, CUDA_ERROR_INVALID_VALUE);
}

static void every_call_without_memory_leaves_all_in_order(void **state)
{
	(void)state;
	sweep(CUDA_STORE_MEM, CUDA_ERROR_OUT_OF_MEMORY);
}

static void every_call_that_loses_the_context_leaves_all_in_order(void **state)
{
	(void)state;
	sweep(CUDA_STORE_MEM, CUDA_ERROR_ILLEGAL_ADDRESS);
}

static void every_copy_that_loses_the_context_leaves_all_in_order(void **state)
{
	(void)state;
	for (unsigned nth = 1;; nth++) {
		struct run r = {0};

		run_init(&r, CUDA_STORE_FILE);
		cuda_fake->fail_copy(nth, CUDA_ERROR_ECC_UNCORRECTABLE);
		run_library(&r);
		bool lost = cuda_fake->is_lost(0);
		cuda_fake->fail_copy(0, CUDA_SUCCESS);
		run_fini(&r);
		cuda_fake->reset();
		if (!lost)
			break;
		assert_true(nth < 200);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_call_that_is_refused_leaves_all_in_order),
		cmocka_unit_test(every_call_without_memory_leaves_all_in_order),
		cmocka_unit_test(every_call_that_loses_the_context_leaves_all_in_order),
		cmocka_unit_test(every_copy_that_loses_the_context_leaves_all_in_order),
	};
	int skipped = cuda_scene_start(true);

	return skipped ? skipped : cmocka_run_group_tests_name("cuda_sweep", tests, NULL, NULL);
}
