/* SPDX-License-Identifier: Apache-2.0 */
/* A context that is lost, and pinned memory that is not to be had: jobs end with one clear message,
 * new ones are refused with it, nothing hangs, and other devices go on. */
#include "cuda_scene.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct test_group page = {1, 0, 1, {4096}};

static void fails_with(struct kvt_result *result, const char *text)
{
	for (uint64_t k = 0; k < result->key_count; k++) {
		assert_int_equal(result->key_status[k], KVT_STATUS_FAILED);
		assert_int_equal(result->key_error[k], KVT_EDEVICE);
	}
	if (!strstr(result->detail, text))
		fail_msg("\"%s\" is not in \"%s\"", text, result->detail);
	assert_null(strchr(result->detail, '\n'));
	kvt_result_release(result);
}

static void jobs_end_when_the_context_is_lost_under_their_copies(void **state)
{
	static const struct test_group many = {16, 0, 1, {5000}};

	(void)state;
	for (int load = 0; load < 2; load++) {
		struct cuda_scene s;
		struct test_transfer t, later;
		cuda_scene_init(&s, 0, 1 << 20);
		cuda_scene_open(&s, CUDA_STORE_MEM);
		cuda_scene_place(&s, &t, 2, &many, 1, 5);
		cuda_scene_place(&s, &later, 1, &page, 1, 6);
		if (load)
			cuda_scene_store(&s, &t, KVT_STATUS_STORED);
		test_transfer_fill(&t);
		cuda_scene_push(&s, &t);
		cuda_fake->hold(FAKE_CUDA_TO_HOST | FAKE_CUDA_TO_DEVICE);
		if (load)
			assert_ok(kvt_worker_submit_load(s.bed.worker, 100, &t.transfer, NULL));
		else
			assert_ok(kvt_worker_submit_store(s.bed.worker, 100, &t.transfer, NULL));
		assert_true(cuda_fake->await_held(1));
		cuda_fake->lose_context(0, CUDA_ERROR_ILLEGAL_ADDRESS);
		fails_with(test_take(s.bed.worker, 100), "CUDA_ERROR_ILLEGAL_ADDRESS");
		assert_true(cuda_fake->idle());
		/* New ones hear the same. */
		assert_ok(kvt_worker_submit_store(s.bed.worker, 101, &later.transfer, NULL));
		fails_with(test_take(s.bed.worker, 101), "CUDA_ERROR_ILLEGAL_ADDRESS");
		assert_ok(kvt_worker_submit_store(s.bed.worker, 102, &later.transfer, NULL));
		fails_with(test_take(s.bed.worker, 102), "no job is taken");
		/* Lookups need no device. */
		test_set_geometry(&s.bed, &later);
		test_lookup(&s.bed, later.keys, 1, KVT_STATUS_MISS);
		test_transfer_fini(&t);
		test_transfer_fini(&later);
		cuda_scene_close(&s);
		cuda_fake->reset();
	}
}

static void the_loss_is_noticed_by_the_next_job(void **state)
{
	static const CUresult codes[] = {CUDA_ERROR_ECC_UNCORRECTABLE, CUDA_ERROR_LAUNCH_FAILED,
					 CUDA_ERROR_CONTEXT_IS_DESTROYED};

	(void)state;
	for (size_t i = 0; i < TEST_COUNT(codes); i++) {
		struct cuda_scene s;
		struct test_transfer t;
		const char *name;
		cuda_scene_init(&s, 0, 1 << 20);
		cuda_scene_open(&s, CUDA_STORE_MEM);
		cuda_scene_place(&s, &t, 1, &page, 1, 5);
		CU(cuGetErrorName(codes[i], &name));
		cuda_fake->lose_context(0, codes[i]);
		assert_ok(kvt_worker_submit_store(s.bed.worker, 1, &t.transfer, NULL));
		fails_with(test_take(s.bed.worker, 1), name);
		test_transfer_fini(&t);
		cuda_scene_close(&s);
		cuda_fake->reset();
	}
}

static void jobs_that_wait_for_an_event_end_with_the_context(void **state)
{
	(void)state;
	for (int host_memory = 0; host_memory < 2; host_memory++) {
		struct cuda_scene s;
		struct test_transfer t, host;
		struct cuda_producer p;
		struct kvt_submit_options options = KVT_INIT(options);
		void *pinned;

		cuda_scene_init(&s, 0, 1 << 20);
		CU(cuMemHostAlloc(&pinned, 8192, CU_MEMHOSTALLOC_PORTABLE));
		cuda_scene_open(&s, CUDA_STORE_MEM);
		cuda_scene_place(&s, &t, 1, &page, 1, 5);
		test_transfer_init_at(&host, 1, &page, 1, 6, pinned, 8192,
				      (uint64_t)(uintptr_t)pinned);
		cuda_producer_start(&p, &s, &t, NULL);
		options.ready.kind = KVT_READY_EVENT;
		options.ready.handle = p.event;
		assert_ok(kvt_worker_submit_store(
			s.bed.worker, 1, host_memory ? &host.transfer : &t.transfer, &options));
		cuda_fake->lose_context(0, CUDA_ERROR_ECC_UNCORRECTABLE);
		fails_with(test_take(s.bed.worker, 1), "CUDA_ERROR_ECC_UNCORRECTABLE");
		cuda_producer_release(&p);
		assert_true(cuda_fake->idle());
		(void)cuda->cuMemFreeHost(pinned);
		(void)cuda->cuMemFreeHost(p.pinned);
		test_gate_fini(&p.gate);
		test_transfer_fini(&t);
		test_transfer_fini(&host);
		cuda_scene_close(&s);
		cuda_fake->reset();
	}
}

static void the_other_device_goes_on(void **state)
{
	struct cuda_scene s[2];
	struct test_transfer t[2];

	(void)state;
	for (int i = 0; i < 2; i++) {
		cuda_scene_init(&s[i], i, 1 << 20);
		cuda_scene_open(&s[i], CUDA_STORE_MEM);
		cuda_scene_place(&s[i], &t[i], 1, &page, 1, 5);
	}
	cuda_fake->lose_context(0, CUDA_ERROR_ILLEGAL_ADDRESS);
	assert_ok(kvt_worker_submit_store(s[0].bed.worker, 1, &t[0].transfer, NULL));
	fails_with(test_take(s[0].bed.worker, 1), "cuda:0");
	cuda_scene_store(&s[1], &t[1], KVT_STATUS_STORED);
	cuda_scene_load(&s[1], &t[1], KVT_STATUS_LOADED);
	for (int i = 1; i >= 0; i--) {
		CU(cuCtxSetCurrent(s[i].context));
		test_transfer_fini(&t[i]);
		cuda_scene_close(&s[i]);
	}
	cuda_fake->reset();
}

static void a_worker_is_destroyed_whose_context_was_lost_with_work_in_flight(void **state)
{
	static const struct test_group many = {16, 0, 1, {5000}};
	struct cuda_scene s;
	struct test_transfer t;
	uint64_t id = 1;

	(void)state;
	cuda_scene_init(&s, 0, 1 << 20);
	cuda_scene_open(&s, CUDA_STORE_FILE);
	cuda_scene_place(&s, &t, 2, &many, 1, 5);
	cuda_fake->hold(FAKE_CUDA_TO_HOST);
	assert_ok(kvt_worker_submit_store(s.bed.worker, id, &t.transfer, NULL));
	assert_true(cuda_fake->await_held(1));
	assert_returns(KVT_EBUSY, kvt_worker_destroy(s.bed.worker, 1));
	cuda_fake->lose_context(0, CUDA_ERROR_CONTEXT_IS_DESTROYED);
	assert_ok(kvt_worker_destroy(s.bed.worker, TEST_LIMIT_MS));
	s.bed.worker = NULL;
	test_transfer_fini(&t);
	cuda_scene_close(&s);
	cuda_fake->reset();
}

/* Loads with plain memory what a store on the device said to have stored. */
static void check_stored(struct cuda_scene *s, const struct kvt_result *result,
			 const struct test_group *group, uint64_t seed)
{
	struct test_bed bed;
	struct test_transfer t;
	char *uri = test_format("file:%s/kv", s->directory);

	test_bed_init(&bed);
	test_bed_open(&bed, uri);
	test_transfer_init(&t, 1, group, 1, seed);
	assert_ok(kvt_worker_submit_load(bed.worker, 1, &t.transfer, NULL));
	struct kvt_result *loaded = test_take(bed.worker, 1);
	for (uint64_t k = 0; k < result->key_count; k++) {
		if (result->key_status[k] != KVT_STATUS_STORED) {
			assert_int_equal(result->key_status[k], KVT_STATUS_FAILED);
			assert_int_equal(result->key_error[k], KVT_EDEVICE);
			continue;
		}
		assert_int_equal(loaded->key_status[k], KVT_STATUS_LOADED);
		assert_true(test_transfer_key_ok(&t, k));
	}
	kvt_result_release(loaded);
	test_transfer_fini(&t);
	test_bed_close(&bed);
	free(uri);
}

static void what_was_stored_or_loaded_before_the_loss_is_right(void **state)
{
	static const struct test_group many = {24, 0, 1, {3000}};
	struct test_random random = {test_seed(1)};

	(void)state;
	for (int round = 0; round < 60; round++) {
		struct cuda_scene s;
		struct test_transfer out, in;
		struct kvt_result *result;
		cuda_scene_init(&s, 0, 1 << 20);
		s.bed.worker_options.lanes = 4;
		cuda_scene_open(&s, CUDA_STORE_FILE);
		cuda_scene_place(&s, &out, 1, &many, 1, 5);
		cuda_scene_place(&s, &in, 1, &many, 1, 6);
		cuda_scene_store(&s, &in, KVT_STATUS_STORED);
		test_transfer_poison(&in);
		cuda_scene_push(&s, &in);
		test_transfer_fill(&out);
		cuda_scene_push(&s, &out);
		cuda_fake->fail_call(NULL, 1 + (unsigned)test_random_below(&random, 400), 1,
				     CUDA_ERROR_ILLEGAL_ADDRESS);
		assert_ok(kvt_worker_submit_store(s.bed.worker, 100, &out.transfer, NULL));
		assert_ok(kvt_worker_submit_load(s.bed.worker, 101, &in.transfer, NULL));
		result = test_take(s.bed.worker, 101);
		memcpy(in.memory, cuda_fake->view(cuda_scene_ptr(&s, &in)), in.memory_bytes);
		for (uint64_t k = 0; k < result->key_count; k++)
			if (result->key_status[k] == KVT_STATUS_LOADED)
				assert_true(test_transfer_key_ok(&in, k));
			else
				assert_int_equal(result->key_error[k], KVT_EDEVICE);
		kvt_result_release(result);
		result = test_take(s.bed.worker, 100);
		cuda_fake->fail_call(NULL, 0, 0, CUDA_SUCCESS);
		check_stored(&s, result, &many, 5);
		kvt_result_release(result);
		test_transfer_fini(&out);
		test_transfer_fini(&in);
		cuda_scene_close(&s);
		cuda_fake->reset();
	}
}

static int child(struct cuda_scene *s, struct kvt_stream_completion *completion)
{
	unsigned calls = cuda_fake->counts().calls;

	if (kvt_worker_submit_lookup(s->bed.worker, 1, NULL, 0, NULL) != KVT_EFORK)
		return 1;
	if (kvt_stream_completion_done(completion) != KVT_EFORK)
		return 2;
	kvt_stream_completion_release(completion);
	if (kvt_worker_destroy(s->bed.worker, -1) != 0)
		return 3;
	if (kvt_store_close(s->bed.store) != 0)
		return 4;
	if (kvt_device_close(s->bed.device) != 0)
		return 5;
	return cuda_fake->counts().calls != calls ? 6 : 0;
}

static void a_forked_child_lets_go_without_a_call_of_the_driver(void **state)
{
	struct cuda_scene s;
	struct test_transfer t;
	struct kvt_stream_completion *completion;
	int status = 0;

	(void)state;
	cuda_scene_init(&s, 0, 1 << 20);
	cuda_scene_open(&s, CUDA_STORE_FILE);
	cuda_scene_place(&s, &t, 1, &page, 1, 5);
	cuda_scene_store(&s, &t, KVT_STATUS_STORED);
	assert_ok(kvt_stream_completion_create(s.bed.device, NULL, &completion));
	assert_true(cuda_fake->idle());
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		alarm(TEST_LIMIT_MS / 1000);
		_exit(child(&s, completion));
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	/* The parent goes on. */
	assert_ok(kvt_stream_completion_wait(completion, TEST_LIMIT_MS));
	kvt_stream_completion_release(completion);
	cuda_scene_load(&s, &t, KVT_STATUS_LOADED);
	test_transfer_fini(&t);
	cuda_scene_close(&s);
}

/* ---- Pinned memory ---- */

static void create_fails_without_pinned_memory_and_names_the_option(void **state)
{
	struct cuda_scene s;
	struct kvt_worker *worker = (void *)1;

	(void)state;
	cuda_scene_init(&s, 0, 1 << 20);
	cuda_scene_open_device(&s, CUDA_STORE_MEM);
	s.bed.worker_options.staging_bytes = 64 << 20;
	cuda_fake->limit_pinned(48 << 20, 0);
	assert_fails(KVT_ENOMEM, "staging_bytes: 67",
		     kvt_worker_create(s.bed.store, s.bed.device, &s.bed.worker_options, &worker));
	assert_null(worker);
	assert_fails(KVT_ENOMEM, "CUDA_ERROR_OUT_OF_MEMORY",
		     kvt_worker_create(s.bed.store, s.bed.device, &s.bed.worker_options, &worker));
	assert_int_equal(cuda_fake->counts().pinned_bytes, s.before.pinned_bytes);
	/* Less of it works. */
	s.bed.worker_options.staging_bytes = 4 << 20;
	test_bed_open_worker(&s.bed);
	cuda_scene_close(&s);
	cuda_fake->reset();
}

static void memory_of_the_callers_that_cannot_be_pinned_is_left_alone(void **state)
{
	const size_t bytes = 64 << 20;
	void *memory = aligned_alloc(4096, bytes);
	struct cuda_scene s;
	struct kvt_worker *worker = (void *)1;

	(void)state;
	assert_non_null(memory);
	cuda_scene_init(&s, 0, 1 << 20);
	cuda_scene_open_device(&s, CUDA_STORE_MEM);
	s.bed.worker_options.staging_bytes = bytes;
	s.bed.worker_options.staging_memory = memory;
	cuda_fake->limit_pinned(48 << 20, 0);
	assert_fails(KVT_ENOMEM, "staging_memory",
		     kvt_worker_create(s.bed.store, s.bed.device, &s.bed.worker_options, &worker));
	assert_null(worker);
	assert_int_equal(cuda_fake->counts().registrations, s.before.registrations);
	/* In pieces it works. */
	cuda_fake->limit_pinned(0, 16 << 20);
	test_bed_open_worker(&s.bed);
	assert_true(cuda_fake->counts().registrations >= s.before.registrations + 4);
	test_bed_close(&s.bed);
	assert_int_equal(cuda_fake->counts().registrations, s.before.registrations);
	/* What the caller has pinned already is taken as it is, and stays pinned. */
	cuda_fake->limit_pinned(0, 0);
	CU(cuMemHostRegister(memory, bytes, CU_MEMHOSTREGISTER_PORTABLE));
	test_bed_open_store(&s.bed, "mem:");
	test_bed_open_worker(&s.bed);
	test_bed_close(&s.bed);
	assert_int_equal(cuda_fake->counts().registrations, s.before.registrations + 1);
	CU(cuMemHostUnregister(memory));
	free(memory);
	cuda_scene_close(&s);
	cuda_fake->reset();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(jobs_end_when_the_context_is_lost_under_their_copies),
		cmocka_unit_test(the_loss_is_noticed_by_the_next_job),
		cmocka_unit_test(jobs_that_wait_for_an_event_end_with_the_context),
		cmocka_unit_test(the_other_device_goes_on),
		cmocka_unit_test(a_worker_is_destroyed_whose_context_was_lost_with_work_in_flight),
		cmocka_unit_test(what_was_stored_or_loaded_before_the_loss_is_right),
		cmocka_unit_test(a_forked_child_lets_go_without_a_call_of_the_driver),
		cmocka_unit_test(create_fails_without_pinned_memory_and_names_the_option),
		cmocka_unit_test(memory_of_the_callers_that_cannot_be_pinned_is_left_alone),
	};
	int skipped = cuda_scene_start(true);

	return skipped ? skipped : cmocka_run_group_tests_name("cuda_lost", tests, NULL, NULL);
}
