/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many jobs at once on device memory, to memory and to files: stores, loads and lookups of several
 * threads, cancelled and with deadlines, after events of their own streams. Every job completes
 * once, and what is said to be loaded has the right bytes. KVT_TEST_LONG makes it ten times as
 * long. Runs on a GPU and on the tests' own driver.
 */
#include "cuda_scene.h"

#include <stdlib.h>
#include <string.h>

#define THREADS	  3
#define SLOTS	  4
#define KEY_SEEDS 12

static const struct test_group group = {12, 0, 3, {9000, 4096, 777}};

/* A thread's transfers, each with a copy of its bytes in pinned memory, and a stream. */
struct actor {
	struct cuda_scene *scene;
	uint64_t seed;
	pthread_t thread;
	CUstream stream;
	uint64_t next_id;
	unsigned rounds;
	unsigned loaded, stored, other, wrong, errors, lost;
	struct slot {
		struct test_transfer t;
		uint8_t *pinned;
		CUevent event;
		uint64_t id;
		bool load, busy;
	} slots[SLOTS];
};

static void submit(struct actor *a, struct slot *slot, struct test_random *random)
{
	struct kvt_submit_options options = KVT_INIT(options);
	CUdeviceptr to = cuda_scene_ptr(a->scene, &slot->t);
	int error;

	slot->load = test_random_below(random, 2);
	slot->id = a->next_id++;
	if (slot->load)
		test_transfer_poison(&slot->t);
	else
		test_transfer_fill(&slot->t);
	memcpy(slot->pinned, slot->t.memory, slot->t.memory_bytes);
	/* The memory gets its bytes on the thread's stream; the job comes after that. */
	a->errors += cuda->cuMemcpyHtoDAsync(to, slot->pinned, slot->t.memory_bytes, a->stream) !=
		     CUDA_SUCCESS;
	if (test_random_below(random, 2)) {
		options.ready.kind = KVT_READY_STREAM;
		options.ready.handle = a->stream;
	} else {
		a->errors += cuda->cuEventRecord(slot->event, a->stream) != CUDA_SUCCESS;
		options.ready.kind = KVT_READY_EVENT;
		options.ready.handle = slot->event;
	}
	if (test_random_below(random, 8) == 0)
		options.timeout_ms = 1 + test_random_below(random, 20);
	error = slot->load ? kvt_worker_submit_load(a->scene->bed.worker, slot->id,
						    &slot->t.transfer, &options)
			   : kvt_worker_submit_store(a->scene->bed.worker, slot->id,
						     &slot->t.transfer, &options);
	a->errors += error != 0;
	slot->busy = error == 0;
	if (test_random_below(random, 10) == 0)
		(void)kvt_worker_cancel(a->scene->bed.worker, slot->id);
}

static void finish(struct actor *a, struct slot *slot)
{
	size_t known = 0;

	if (!slot->busy)
		return;
	/* The completion stays for the thread that polls. */
	if (kvt_worker_wait(a->scene->bed.worker, &slot->id, 1, 120000, &known) != 0 || known > 1)
		a->lost++;
	slot->busy = false;
	a->errors += cuda->cuStreamSynchronize(a->stream) != CUDA_SUCCESS;
	if (slot->load) {
		CUdeviceptr from = cuda_scene_ptr(a->scene, &slot->t);
		a->errors += cuda->cuMemcpyDtoH(slot->t.memory, from, slot->t.memory_bytes) !=
			     CUDA_SUCCESS;
	}
}

/* Completions that threads have polled for each other. */
static pthread_mutex_t taken_lock = PTHREAD_MUTEX_INITIALIZER;
static struct kvt_result *taken[THREADS * SLOTS];

/* NULL when there is no completion of this job, or two. */
static struct kvt_result *take(struct kvt_worker *worker, uint64_t id)
{
	struct kvt_result *found = NULL, *result;
	unsigned free_at = 0, matches = 0;

	pthread_mutex_lock(&taken_lock);
	while (kvt_worker_poll(worker, &result, 1) == 1) {
		while (taken[free_at])
			free_at++;
		taken[free_at] = result;
	}
	for (size_t i = 0; i < TEST_COUNT(taken); i++)
		if (taken[i] && taken[i]->job_id == id) {
			matches++;
			found = taken[i];
			taken[i] = NULL;
		}
	pthread_mutex_unlock(&taken_lock);
	return matches == 1 ? found : NULL;
}

static void count(struct actor *a, struct slot *slot)
{
	struct kvt_result *result = take(a->scene->bed.worker, slot->id);

	if (!result) {
		a->lost++;
		return;
	}
	for (uint64_t k = 0; k < result->key_count; k++)
		switch (result->key_status[k]) {
		case KVT_STATUS_LOADED:
			a->loaded++;
			a->wrong += !test_transfer_key_ok(&slot->t, k);
			break;
		case KVT_STATUS_STORED:
		case KVT_STATUS_SKIPPED:
			a->stored++;
			break;
		default:
			a->other++;
			break;
		}
	kvt_result_release(result);
}

static void *act(void *argument)
{
	struct actor *a = argument;
	struct test_random random = {a->seed};

	a->errors += cuda->cuCtxSetCurrent(a->scene->context) != CUDA_SUCCESS;
	for (unsigned round = 0; round < a->rounds; round++) {
		for (int i = 0; i < SLOTS; i++)
			submit(a, &a->slots[i], &random);
		if (test_random_below(&random, 4) == 0) {
			struct kvt_stats stats = KVT_INIT(stats);
			a->errors += kvt_worker_stats(a->scene->bed.worker, &stats) != 0;
		}
		for (int i = 0; i < SLOTS; i++)
			finish(a, &a->slots[i]);
		for (int i = 0; i < SLOTS; i++)
			count(a, &a->slots[i]);
	}
	a->errors += cuda->cuStreamSynchronize(a->stream) != CUDA_SUCCESS;
	a->errors += cuda->cuCtxSetCurrent(NULL) != CUDA_SUCCESS;
	return NULL;
}

static void stress(enum cuda_store store)
{
	static struct actor actors[THREADS];
	struct cuda_scene s;
	uint64_t seed = test_seed(1);

	memset(actors, 0, sizeof(actors));
	cuda_scene_init(&s, 0, 16 << 20);
	s.bed.worker_options.staging_bytes = 8 * (64 + 68) * 1024;
	if (cuda_fake)
		cuda_fake->delay(200);
	cuda_scene_open(&s, store);
	for (int i = 0; i < THREADS; i++) {
		struct actor *a = &actors[i];
		a->scene = &s;
		a->seed = seed * 1000 + (uint64_t)i;
		a->next_id = UINT64_C(1000000) * (uint64_t)(i + 1);
		a->rounds = getenv("KVT_TEST_LONG") ? 300 : 30;
		CU(cuStreamCreateWithPriority(&a->stream, CU_STREAM_NON_BLOCKING, 0));
		for (int j = 0; j < SLOTS; j++) {
			struct slot *slot = &a->slots[j];
			cuda_scene_place(&s, &slot->t, 4, &group, 1,
					 (uint64_t)(i * SLOTS + j) % KEY_SEEDS / 2);
			CU(cuMemHostAlloc((void **)&slot->pinned, slot->t.memory_bytes,
					  CU_MEMHOSTALLOC_PORTABLE));
			CU(cuEventCreate(&slot->event, CU_EVENT_DISABLE_TIMING));
		}
	}
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&actors[i].thread, NULL, act, &actors[i]), 0);
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_join(actors[i].thread, NULL), 0);
	unsigned loaded = 0, stored = 0;
	for (int i = 0; i < THREADS; i++) {
		struct actor *a = &actors[i];
		assert_int_equal(a->errors, 0);
		assert_int_equal(a->lost, 0);
		assert_int_equal(a->wrong, 0);
		loaded += a->loaded;
		stored += a->stored;
	}
	/* Most jobs have neither a cancel nor a deadline. */
	assert_true(loaded > 0);
	assert_true(stored > 0);
	test_bed_close(&s.bed);
	for (int i = 0; i < THREADS; i++) {
		struct actor *a = &actors[i];
		for (int j = 0; j < SLOTS; j++) {
			CU(cuEventDestroy(a->slots[j].event));
			CU(cuMemFreeHost(a->slots[j].pinned));
			test_transfer_fini(&a->slots[j].t);
		}
		CU(cuStreamDestroy(a->stream));
	}
	if (cuda_fake)
		cuda_fake->delay(0);
	cuda_scene_close(&s);
}

static void many_jobs_at_once_in_memory(void **state)
{
	(void)state;
	stress(CUDA_STORE_MEM);
}

static void many_jobs_at_once_on_files(void **state)
{
	(void)state;
	stress(CUDA_STORE_FILE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(many_jobs_at_once_in_memory),
		cmocka_unit_test(many_jobs_at_once_on_files),
	};
	int skipped = cuda_scene_start(false);

	return skipped ? skipped : cmocka_run_group_tests_name("cuda_stress", tests, NULL, NULL);
}
