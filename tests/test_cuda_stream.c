/* SPDX-License-Identifier: Apache-2.0 */
/* Completions of streams: done, waited for, chained, given up; streams that cannot be waited for.
 */
#include "cuda_scene.h"

#include <string.h>

static const struct test_group page = {1, 0, 1, {4096}};

struct waiting {
	struct kvt_stream_completion *completion;
	pthread_t thread;
	int result;
};

static void *wait_for_it(void *argument)
{
	struct waiting *w = argument;

	w->result = kvt_stream_completion_wait(w->completion, -1);
	return NULL;
}

static void a_completion_is_done_when_the_stream_is(void **state)
{
	struct cuda_scene s;
	struct test_transfer t;
	struct cuda_producer p;
	struct waiting w;

	(void)state;
	cuda_scene_init(&s, 0, 1 << 20);
	cuda_scene_open(&s, CUDA_STORE_MEM);
	cuda_scene_place(&s, &t, 1, &page, 1, 5);
	cuda_producer_start(&p, &s, &t, NULL);
	assert_ok(kvt_stream_completion_create(s.bed.device, p.stream, &w.completion));
	assert_context_kept(&s);
	assert_returns(0, kvt_stream_completion_done(w.completion));
	assert_returns(KVT_ETIMEDOUT, kvt_stream_completion_wait(w.completion, 0));
	assert_returns(KVT_ETIMEDOUT, kvt_stream_completion_wait(w.completion, 2));
	assert_int_equal(pthread_create(&w.thread, NULL, wait_for_it, &w), 0);
	cuda_producer_release(&p);
	assert_int_equal(pthread_join(w.thread, NULL), 0);
	assert_returns(0, w.result);
	assert_returns(1, kvt_stream_completion_done(w.completion));
	assert_ok(kvt_stream_completion_wait(w.completion, 0));
	assert_context_kept(&s);
	kvt_stream_completion_release(w.completion);
	cuda_producer_end(&p);
	test_transfer_fini(&t);
	cuda_scene_close(&s);
}

static void a_completion_needs_no_thread_and_no_host_function(void **state)
{
	struct cuda_scene s;
	struct kvt_stream_completion *c;

	(void)state;
	cuda_scene_init(&s, 0, 1 << 20);
	cuda_scene_open_device(&s, CUDA_STORE_MEM);
	unsigned before = cuda_fake->counts().host_functions;
	assert_ok(kvt_stream_completion_create(s.bed.device, NULL, &c));
	assert_ok(kvt_stream_completion_wait(c, TEST_LIMIT_MS));
	assert_int_equal(cuda_fake->counts().host_functions, before);
	kvt_stream_completion_release(c);
	cuda_scene_close(&s);
}

static void its_event_orders_streams_and_jobs(void **state)
{
	struct cuda_scene s;
	struct test_transfer t;
	struct cuda_producer p;
	struct kvt_stream_completion *c;
	struct kvt_submit_options options = KVT_INIT(options);
	CUstream other;

	(void)state;
	cuda_scene_init(&s, 0, 1 << 20);
	cuda_scene_open(&s, CUDA_STORE_MEM);
	cuda_scene_place(&s, &t, 1, &page, 1, 5);
	cuda_producer_start(&p, &s, &t, NULL);
	assert_ok(kvt_stream_completion_create(s.bed.device, p.stream, &c));
	CU(cuStreamCreateWithPriority(&other, CU_STREAM_NON_BLOCKING, 0));
	CU(cuStreamWaitEvent(other, kvt_stream_completion_event(c), 0));
	options.ready.kind = KVT_READY_EVENT;
	options.ready.handle = kvt_stream_completion_event(c);
	assert_ok(kvt_worker_submit_store(s.bed.worker, 1, &t.transfer, &options));
	cuda_producer_release(&p);
	CU(cuStreamSynchronize(other));
	assert_returns(1, kvt_stream_completion_done(c));
	assert_result(KVT_STATUS_STORED, test_take(s.bed.worker, 1));
	kvt_stream_completion_release(c);
	cuda_producer_end(&p);
	CU(cuStreamDestroy(other));
	s.bed.next_id = 2;
	cuda_scene_load(&s, &t, KVT_STATUS_LOADED);
	test_transfer_fini(&t);
	cuda_scene_close(&s);
}

static void a_completion_lends_the_device_until_its_release(void **state)
{
	struct cuda_scene s;
	struct test_transfer t;
	struct cuda_producer p;
	struct kvt_stream_completion *c;

	(void)state;
	cuda_scene_init(&s, 0, 1 << 20);
	cuda_scene_place(&s, &t, 1, &page, 1, 5);
	cuda_producer_start(&p, &s, &t, NULL);
	assert_ok(cuda_device_open(0, &s.bed.device));
	assert_ok(kvt_stream_completion_create(s.bed.device, p.stream, &c));
	assert_returns(KVT_EBUSY, kvt_device_close(s.bed.device));
	/* Given up before it is done. */
	kvt_stream_completion_release(c);
	kvt_stream_completion_release(NULL);
	assert_ok(kvt_device_close(s.bed.device));
	s.bed.device = NULL;
	cuda_producer_release(&p);
	cuda_producer_end(&p);
	test_transfer_fini(&t);
	cuda_scene_close(&s);
}

static void many_completions_make_few_events(void **state)
{
	struct cuda_scene s;
	struct kvt_stream_completion *c;

	(void)state;
	cuda_scene_init(&s, 0, 1 << 20);
	cuda_scene_open_device(&s, CUDA_STORE_MEM);
	unsigned before = cuda_fake->counts().events;
	for (int i = 0; i < 500; i++) {
		assert_ok(kvt_stream_completion_create(s.bed.device, CU_STREAM_PER_THREAD, &c));
		assert_ok(kvt_stream_completion_wait(c, TEST_LIMIT_MS));
		kvt_stream_completion_release(c);
	}
	assert_true(cuda_fake->counts().events <= before + 2);
	cuda_scene_close(&s);
}

static void a_context_that_is_lost_ends_the_wait(void **state)
{
	struct cuda_scene s;
	struct test_transfer t;
	struct cuda_producer p;
	struct waiting w;

	(void)state;
	cuda_scene_init(&s, 0, 1 << 20);
	cuda_scene_place(&s, &t, 1, &page, 1, 5);
	assert_ok(cuda_device_open(0, &s.bed.device));
	cuda_producer_start(&p, &s, &t, NULL);
	assert_ok(kvt_stream_completion_create(s.bed.device, p.stream, &w.completion));
	assert_int_equal(pthread_create(&w.thread, NULL, wait_for_it, &w), 0);
	cuda_fake->lose_context(0, CUDA_ERROR_ILLEGAL_ADDRESS);
	assert_int_equal(pthread_join(w.thread, NULL), 0);
	assert_returns(KVT_EDEVICE, w.result);
	assert_returns(KVT_EDEVICE, kvt_stream_completion_done(w.completion));
	kvt_stream_completion_release(w.completion);
	cuda_producer_release(&p);
	assert_true(cuda_fake->idle());
	(void)cuda->cuMemFreeHost(p.pinned);
	test_gate_fini(&p.gate);
	test_transfer_fini(&t);
	cuda_scene_close(&s);
	cuda_fake->reset();
}

static void what_is_no_stream_of_the_device_is_refused(void **state)
{
	struct cuda_scene s;
	struct test_transfer t;
	struct kvt_stream_completion *c = (void *)1;
	struct kvt_submit_options options = KVT_INIT(options);
	struct kvt_device_options plain = KVT_INIT(plain);
	struct kvt_device *host;
	CUcontext other;
	CUstream there, here;

	(void)state;
	cuda_scene_init(&s, 0, 1 << 20);
	CU(cuStreamCreateWithPriority(&here, CU_STREAM_NON_BLOCKING, 0));
	CU(cuDevicePrimaryCtxRetain(&other, 1));
	CU(cuCtxSetCurrent(other));
	CU(cuStreamCreateWithPriority(&there, CU_STREAM_NON_BLOCKING, 0));
	CU(cuCtxSetCurrent(s.context));
	cuda_scene_open(&s, CUDA_STORE_MEM);
	cuda_scene_place(&s, &t, 1, &page, 1, 5);
	assert_fails(KVT_EINVAL, "stream", kvt_stream_completion_create(s.bed.device, there, &c));
	assert_null(c);
	options.ready.kind = KVT_READY_STREAM;
	options.ready.handle = there;
	assert_fails(KVT_EINVAL, "stream",
		     kvt_worker_submit_store(s.bed.worker, 1, &t.transfer, &options));
	cuda_fake->set_capturing(here, true);
	assert_fails(KVT_EINVAL, "captured", kvt_stream_completion_create(s.bed.device, here, &c));
	options.ready.handle = here;
	assert_fails(KVT_EINVAL, "captured",
		     kvt_worker_submit_store(s.bed.worker, 1, &t.transfer, &options));
	cuda_fake->set_capturing(here, false);
	assert_ok(kvt_device_open(&plain, &host));
	assert_fails(KVT_EINVAL, "no streams", kvt_stream_completion_create(host, NULL, &c));
	assert_ok(kvt_device_close(host));
	/* The device is as good as before. */
	cuda_scene_store(&s, &t, KVT_STATUS_STORED);
	test_bed_close(&s.bed);
	CU(cuStreamDestroy(here));
	CU(cuCtxSetCurrent(other));
	CU(cuStreamDestroy(there));
	CU(cuCtxSetCurrent(s.context));
	CU(cuDevicePrimaryCtxRelease(1));
	test_transfer_fini(&t);
	cuda_scene_close(&s);
}

static void what_is_no_event_fails_its_job_alone(void **state)
{
	struct cuda_scene s;
	struct test_transfer t;
	struct kvt_submit_options options = KVT_INIT(options);
	CUevent gone;

	(void)state;
	cuda_scene_init(&s, 0, 1 << 20);
	cuda_scene_open(&s, CUDA_STORE_MEM);
	cuda_scene_place(&s, &t, 1, &page, 1, 5);
	CU(cuEventCreate(&gone, CU_EVENT_DISABLE_TIMING));
	CU(cuEventDestroy(gone));
	options.ready.kind = KVT_READY_EVENT;
	options.ready.handle = gone;
	assert_ok(kvt_worker_submit_store(s.bed.worker, 1, &t.transfer, &options));
	struct kvt_result *result = test_take(s.bed.worker, 1);
	assert_non_null(strstr(result->detail, "CUDA_ERROR_INVALID_HANDLE"));
	assert_result_error(KVT_STATUS_FAILED, KVT_EINVAL, result);
	options.ready.kind = KVT_READY_FD;
	options.ready.fd = 0;
	if (kvt_worker_submit_store(s.bed.worker, 2, &t.transfer, &options) == 0)
		assert_result_error(KVT_STATUS_FAILED, KVT_EINVAL, test_take(s.bed.worker, 2));
	s.bed.next_id = 3;
	cuda_scene_store(&s, &t, KVT_STATUS_STORED);
	test_transfer_fini(&t);
	cuda_scene_close(&s);
}

static void events_of_the_other_device_are_waited_for(void **state)
{
	struct cuda_scene s[2];
	struct test_transfer t[2];
	struct cuda_producer p;
	struct kvt_submit_options options = KVT_INIT(options);

	(void)state;
	for (int i = 0; i < 2; i++) {
		cuda_scene_init(&s[i], i, 1 << 20);
		cuda_scene_place(&s[i], &t[i], 1, &page, 1, 5);
		if (i == 0)
			cuda_scene_open(&s[i], CUDA_STORE_MEM);
		test_transfer_fill(&t[i]);
		cuda_scene_push(&s[i], &t[i]);
	}
	cuda_producer_start(&p, &s[1], &t[1], NULL);
	options.ready.kind = KVT_READY_EVENT;
	options.ready.handle = p.event;
	assert_ok(kvt_worker_submit_store(s[0].bed.worker, 1, &t[0].transfer, &options));
	assert_null(test_take_now(s[0].bed.worker, 1));
	cuda_producer_release(&p);
	assert_result(KVT_STATUS_STORED, test_take(s[0].bed.worker, 1));
	cuda_producer_end(&p);
	for (int i = 1; i >= 0; i--) {
		test_transfer_fini(&t[i]);
		CU(cuCtxSetCurrent(s[i].context));
		cuda_scene_close(&s[i]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_completion_is_done_when_the_stream_is),
		cmocka_unit_test(a_completion_needs_no_thread_and_no_host_function),
		cmocka_unit_test(its_event_orders_streams_and_jobs),
		cmocka_unit_test(a_completion_lends_the_device_until_its_release),
		cmocka_unit_test(many_completions_make_few_events),
		cmocka_unit_test(a_context_that_is_lost_ends_the_wait),
		cmocka_unit_test(what_is_no_stream_of_the_device_is_refused),
		cmocka_unit_test(what_is_no_event_fails_its_job_alone),
		cmocka_unit_test(events_of_the_other_device_are_waited_for),
	};
	int skipped = cuda_scene_start(true);

	return skipped ? skipped : cmocka_run_group_tests_name("cuda_stream", tests, NULL, NULL);
}
