/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many threads submit random jobs, cancel some of them, wait for and poll others, on every backend
 * and with faults. Keys are content addresses: the bytes of a slot follow from its key alone, so
 * every byte that is loaded can be checked whoever stored it. Threads only record; the test thread
 * asserts. KVT_STRESS_MS sets how long each case runs.
 *
 *     test_worker_stress [URI [NAME=VALUE]...]     on this store alone, which it empties afterwards
 */
#include "support.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fake_backend.h"
#include "fake_device.h"

#define THREADS 4
#define KEYS	120 /* few, so that threads meet */
#define SLOTS	8   /* jobs that one thread has under way */

/* Chunks of three sizes by key: small, about a part, several parts. */
static const struct test_group shapes[] = {
	{4, 0, 2, {700, 1300}}, {4, 0, 1, {16384}}, {4, 0, 2, {20000, 31000}}};
#define BLOCKS 4

struct stress {
	struct test_bed bed;
	struct fake_gpu *gpu;
	atomic_bool stop;
	bool faulty; /* failures are expected */
	/* What threads record. */
	atomic_ullong jobs, completions, loaded, stored, failed, canceled, refused;
	atomic_uint problems;
	char problem[256]; /* the first one */
	pthread_mutex_t problem_lock;
};

struct job {
	uint64_t id; /* 0: free */
	uint32_t kind;
	struct test_transfer t[1]; /* while it is not free */
};

struct thread {
	pthread_t thread;
	struct stress *s;
	uint64_t seed;
	struct job jobs[SLOTS];
	uint8_t *arena; /* memory for all its jobs, in the device when there is one */
	uint64_t arena_ptr;
	size_t slot_bytes;
	uint64_t next_id; /* its number modulo THREADS, so that completions find home */
};

static void problem(struct stress *s, const char *format, ...) KVT_PRINTF(2, 3);
static void problem(struct stress *s, const char *format, ...)
{
	va_list args;

	if (atomic_fetch_add(&s->problems, 1) == 0) {
		pthread_mutex_lock(&s->problem_lock);
		va_start(args, format);
		vsnprintf(s->problem, sizeof(s->problem), format, args);
		va_end(args);
		pthread_mutex_unlock(&s->problem_lock);
	}
	atomic_store(&s->stop, true);
}

/* One to four chunks of one shape; whole, or a part of one. */
static void make_transfer(struct thread *thread, struct job *job, struct test_random *random)
{
	uint32_t shape = (uint32_t)test_random_below(random, TEST_COUNT(shapes));
	struct test_group group = shapes[shape];
	uint64_t seed = shape * 1000 + test_random_below(random, KEYS);
	size_t at = (size_t)(job - thread->jobs) * thread->slot_bytes;

	if (test_random_below(random, 3) == 0) {
		group.index = (int64_t)test_random_below(random, BLOCKS);
		group.blocks = 1 + test_random_below(random, (uint64_t)(BLOCKS - group.index));
	}
	test_transfer_init_at(job->t, BLOCKS, &group, 1, seed, thread->arena + at,
			      thread->slot_bytes, thread->arena_ptr + at);
}

static void submit(struct thread *thread, struct job *job, struct test_random *random)
{
	struct stress *s = thread->s;
	struct kvt_worker *w = s->bed.worker;
	struct kvt_submit_options options = KVT_INIT(options);
	uint64_t dice = test_random_below(random, 100);
	int answer;

	make_transfer(thread, job, random);
	job->id = thread->next_id;
	thread->next_id += THREADS;
	if (test_random_below(random, 20) == 0)
		options.timeout_ms = 1 + test_random_below(random, 3);
	if (dice < 45) {
		job->kind = KVT_JOB_STORE;
		test_transfer_fill(job->t);
		answer = kvt_worker_submit_store(w, job->id, &job->t->transfer, &options);
	} else if (dice < 85) {
		job->kind = KVT_JOB_LOAD;
		options.expedited = dice & 1;
		answer = kvt_worker_submit_load(w, job->id, &job->t->transfer, &options);
	} else {
		job->kind = KVT_JOB_LOOKUP;
		options.lookup_flags = (uint32_t)test_random_below(random, 4);
		answer = kvt_worker_submit_lookup(w, job->id, job->t->keys,
						  job->t->transfer.key_count, &options);
	}
	if (answer == 0) {
		atomic_fetch_add(&s->jobs, 1);
		return;
	}
	if (answer != KVT_EAGAIN)
		problem(s, "submit: %s", kvt_error_detail());
	atomic_fetch_add(&s->refused, 1);
	test_transfer_fini(job->t);
	job->id = 0;
}

static void check_key(struct stress *s, struct job *job, uint64_t key, uint32_t status, int error,
		      const char *detail)
{
	switch (status) {
	case KVT_STATUS_LOADED:
		atomic_fetch_add(&s->loaded, 1);
		if (!test_transfer_key_ok(job->t, key))
			problem(s, "job %llu loaded wrong bytes", (unsigned long long)job->id);
		break;
	case KVT_STATUS_STORED:
		atomic_fetch_add(&s->stored, 1);
		break;
	case KVT_STATUS_CANCELED:
		atomic_fetch_add(&s->canceled, 1);
		break;
	case KVT_STATUS_FAILED:
		atomic_fetch_add(&s->failed, 1);
		if (!s->faulty && error != KVT_ETIMEDOUT)
			problem(s, "job %llu failed: %s", (unsigned long long)job->id, detail);
		break;
	case KVT_STATUS_CORRUPT:
	case KVT_STATUS_MISMATCH:
	case KVT_STATUS_FOREIGN:
		problem(s, "job %llu: %s: %s", (unsigned long long)job->id, kvt_status_name(status),
			detail);
		break;
	default:
		break;
	}
}

static void complete(struct thread *thread, struct kvt_result *result)
{
	struct stress *s = thread->s;
	struct job *job = NULL;

	for (int i = 0; i < SLOTS; i++)
		if (thread->jobs[i].id == result->job_id)
			job = &thread->jobs[i];
	atomic_fetch_add(&s->completions, 1);
	if (!job || job->kind != result->kind || result->key_count != job->t->transfer.key_count) {
		problem(s, "completion of job %llu, which is not mine",
			(unsigned long long)result->job_id);
		return;
	}
	for (uint64_t k = 0; k < result->key_count; k++)
		check_key(s, job, k, result->key_status[k], result->key_error[k], result->detail);
	/* The memory is ours again: whatever still wrote to it would be seen. */
	if (!s->gpu)
		test_transfer_poison(job->t);
	test_transfer_fini(job->t);
	job->id = 0;
	kvt_result_release(result);
}

/*
 * Completions of all threads come out of one poll. Each thread hands those of others over through
 * a box of theirs, by id modulo threads.
 */
static struct box {
	pthread_mutex_t lock;
	struct kvt_result *results[THREADS * SLOTS];
	unsigned count;
} boxes[THREADS];

static void poll_some(struct thread *thread, struct thread *threads)
{
	struct kvt_result *results[4], *mine[THREADS * SLOTS];
	struct stress *s = thread->s;
	unsigned count;
	int got = kvt_worker_poll(s->bed.worker, results, 4);

	if (got < 0)
		problem(s, "poll: %s", kvt_error_detail());
	for (int i = 0; i < got; i++) {
		struct box *box = &boxes[results[i]->job_id % THREADS];
		pthread_mutex_lock(&box->lock);
		box->results[box->count++] = results[i];
		pthread_mutex_unlock(&box->lock);
	}
	struct box *box = &boxes[thread - threads];
	pthread_mutex_lock(&box->lock);
	count = box->count;
	memcpy(mine, box->results, count * sizeof(mine[0]));
	box->count = 0;
	pthread_mutex_unlock(&box->lock);
	for (unsigned i = 0; i < count; i++)
		complete(thread, mine[i]);
}

static struct thread *all_threads;

static bool busy(const struct thread *thread)
{
	for (int i = 0; i < SLOTS; i++)
		if (thread->jobs[i].id)
			return true;
	return false;
}

static void disturb(struct thread *thread, struct job *job, struct test_random *random)
{
	struct kvt_worker *w = thread->s->bed.worker;
	struct kvt_stats stats = KVT_INIT(stats);
	int answer = 0;

	switch (test_random_below(random, 12)) {
	case 0:
		answer = kvt_worker_cancel(w, job->id);
		break;
	case 1:
		answer = kvt_worker_wait(w, &job->id, 1, 1, NULL);
		break;
	case 2:
		answer = kvt_worker_wait_memory(w, &job->id, 1, 1, NULL);
		break;
	case 3:
		answer = kvt_worker_stats(w, &stats);
		break;
	default:
		break;
	}
	/* The completion may be in somebody's hands already. */
	if (answer && answer != KVT_ETIMEDOUT && answer != KVT_ENOENT)
		problem(thread->s, "%s", kvt_error_detail());
}

static void *work(void *arg)
{
	struct thread *thread = arg;
	struct stress *s = thread->s;
	struct test_random random = {thread->seed};

	while (!atomic_load(&s->stop) || busy(thread)) {
		struct job *job = &thread->jobs[test_random_below(&random, SLOTS)];
		if (job->id)
			disturb(thread, job, &random);
		else if (!atomic_load(&s->stop))
			submit(thread, job, &random);
		poll_some(thread, all_threads);
		if (atomic_load(&s->problems))
			break;
	}
	return NULL;
}

static int64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void set_geometries(struct stress *s)
{
	struct kvt_geometry geometry = KVT_INIT(geometry);

	/* One shape only: for the others' keys lookups say miss, which is fine. */
	geometry.blocks_per_chunk = BLOCKS;
	geometry.ref_count = shapes[0].refs;
	geometry.ref_bytes = shapes[0].ref_bytes;
	assert_ok(kvt_worker_set_geometry(s->bed.worker, 0, &geometry));
}

static void stress(struct stress *s, const char *uri)
{
	struct thread threads[THREADS];
	uint64_t seed = test_seed(1);
	const char *text = getenv("KVT_STRESS_MS");
	int64_t length_ms = text ? strtoll(text, NULL, 10) : 700;

	memset(threads, 0, sizeof(threads));
	pthread_mutex_init(&s->problem_lock, NULL);
	test_bed_open(&s->bed, uri);
	set_geometries(s);
	all_threads = threads;
	size_t slot_bytes = 1 << 18;
	for (int i = 0; i < THREADS; i++) {
		threads[i].s = s;
		threads[i].seed = seed * 100 + (uint64_t)i;
		threads[i].slot_bytes = slot_bytes;
		if (s->gpu) {
			size_t at = (size_t)i * SLOTS * slot_bytes;
			threads[i].arena = fake_gpu_memory(s->gpu) + at;
			threads[i].arena_ptr = fake_gpu_ptr(s->gpu, at);
		} else {
			threads[i].arena = malloc(SLOTS * slot_bytes);
			assert_non_null(threads[i].arena);
			threads[i].arena_ptr = (uint64_t)(uintptr_t)threads[i].arena;
		}
		pthread_mutex_init(&boxes[i].lock, NULL);
		boxes[i].count = 0;
		threads[i].next_id = THREADS + (uint64_t)i;
	}
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i].thread, NULL, work, &threads[i]), 0);
	int64_t end = now_ms() + length_ms;
	/* And until something of each kind has happened. */
	while ((now_ms() < end || !atomic_load(&s->loaded) || !atomic_load(&s->stored)) &&
	       !atomic_load(&s->stop) && !atomic_load(&s->problems))
		sched_yield();
	atomic_store(&s->stop, true);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i].thread, NULL);
	print_message("  %llu jobs: %llu stored, %llu loaded, %llu failed, %llu canceled, "
		      "%llu refused\n",
		      (unsigned long long)atomic_load(&s->jobs),
		      (unsigned long long)atomic_load(&s->stored),
		      (unsigned long long)atomic_load(&s->loaded),
		      (unsigned long long)atomic_load(&s->failed),
		      (unsigned long long)atomic_load(&s->canceled),
		      (unsigned long long)atomic_load(&s->refused));
	if (atomic_load(&s->problems))
		fail_msg("%u problems, the first: %s", atomic_load(&s->problems), s->problem);
	assert_int_equal(atomic_load(&s->jobs), atomic_load(&s->completions));
	assert_true(atomic_load(&s->loaded) > 0);
	assert_true(atomic_load(&s->stored) > 0);
	test_bed_close(&s->bed);
	for (int i = 0; i < THREADS; i++) {
		if (!s->gpu)
			free(threads[i].arena);
		pthread_mutex_destroy(&boxes[i].lock);
	}
	pthread_mutex_destroy(&s->problem_lock);
}

static void init(struct stress *s)
{
	memset(s, 0, sizeof(*s));
	test_bed_init(&s->bed);
	s->bed.worker_options.lanes = 3;
	s->bed.worker_options.depth = 6;
	s->bed.worker_options.queue_chunks = 16;
	s->bed.worker_options.staging_bytes = 1 << 20;
	s->bed.worker_options.breaker_failures = UINT32_MAX;
}

static void in_memory(void **state)
{
	struct stress s;

	(void)state;
	init(&s);
	stress(&s, "mem:");
}

static void in_memory_answered_later(void **state)
{
	struct stress s;

	(void)state;
	init(&s);
	test_bed_option(&s.bed, "async", "1");
	test_bed_option(&s.bed, "depth_busy", "3");
	stress(&s, "mem:");
}

static void verify_opened(struct test_bed *bed)
{
	struct kvt_verify_summary summary = KVT_INIT(summary);

	assert_ok(kvt_store_verify(bed->store, NULL, NULL, NULL, &summary));
	assert_true(summary.objects > 0);
	assert_int_equal(summary.whole + summary.partial, summary.objects);
}

static void verify_all(const char *uri)
{
	struct test_bed bed;

	test_bed_init(&bed);
	test_bed_open_store(&bed, uri);
	verify_opened(&bed);
	assert_ok(kvt_store_close(bed.store));
}

static void on_files(void **state)
{
	struct stress s;
	char *root = test_temp_dir(), *uri = test_format("file://%s", root);

	(void)state;
	init(&s);
	stress(&s, uri);
	verify_all(uri);
	free(uri);
	test_remove_tree(root);
}

static void on_files_on_disk(void **state)
{
	struct stress s;
	char *root = test_temp_dir_on_disk(), *uri = test_format("file://%s", root);

	(void)state;
	init(&s);
	stress(&s, uri);
	verify_all(uri);
	free(uri);
	test_remove_tree(root);
}

static void with_faults(void **state)
{
	struct stress s;
	struct test_bed keeper;

	(void)state;
	test_bed_init(&keeper);
	test_bed_open_store(&keeper, "mem:stress");
	init(&s);
	s.faulty = true;
	test_bed_option(&s.bed, "async", "1");
	test_bed_option(&s.bed, "rate",
			"put:0.05,get:0.05,head:0.05,part:0.05,commit:0.05,begin:0.05");
	test_bed_option(&s.bed, "delay", "any:0-2");
	stress(&s, "fault+mem:stress");
	verify_all("mem:stress");
	assert_ok(kvt_store_close(keeper.store));
}

static void on_a_fake_store_and_device(void **state)
{
	static const struct fake_config configs[] = {
		{.capabilities = FAKE_CAPABILITIES, .youngest_first = true, .busy_above = 4},
		{.capabilities = 0, .keeps_info_quiet = true, .min_part_bytes = 100000},
		{.capabilities = FAKE_CAPABILITIES | KVT_CAP_FULL_BODY, .blocking = true},
	};

	(void)state;
	for (size_t c = 0; c < TEST_COUNT(configs); c++) {
		struct stress s;
		struct fake_store *fake = fake_store_create(&configs[c]);
		init(&s);
		s.gpu = fake_gpu_create((size_t)THREADS * SLOTS << 18, c != 1);
		assert_ok(fake_gpu_open(s.gpu, NULL, &s.bed.device));
		stress(&s, fake_store_uri(fake));
		assert_ok(kvt_device_close(s.bed.device));
		if (fake_violation(fake))
			fail_msg("%s", fake_violation(fake));
		if (fake_gpu_violation(s.gpu))
			fail_msg("%s", fake_gpu_violation(s.gpu));
		verify_all(fake_store_uri(fake));
		fake_gpu_destroy(s.gpu);
		fake_store_destroy(fake);
	}
}

static char **given; /* the program's arguments */

static int remove_entry(void *context, const struct kvt_list_entry *entry)
{
	return entry->key.hash ? kvt_store_remove(context, &entry->key) : 0;
}

static void add_given_options(struct test_bed *bed)
{
	static char text[8][512];

	for (int i = 0; given[1 + i]; i++) {
		char *value;

		assert_true((size_t)i < TEST_COUNT(text));
		snprintf(text[i], sizeof(text[i]), "%s", given[1 + i]);
		value = strchr(text[i], '=');
		assert_non_null(value);
		*value = '\0';
		test_bed_option(bed, text[i], value + 1);
	}
}

static void on_a_given_store(void **state)
{
	struct stress s;
	struct test_bed bed;

	(void)state;
	init(&s);
	/* Some stores have parts of 5 MiB at least. */
	s.bed.worker_options.staging_bytes = 32 << 20;
	add_given_options(&s.bed);
	stress(&s, given[0]);
	test_bed_init(&bed);
	add_given_options(&bed);
	test_bed_open_store(&bed, given[0]);
	verify_opened(&bed);
	assert_ok(kvt_store_list(bed.store, remove_entry, bed.store));
	assert_ok(kvt_store_close(bed.store));
}

int main(int argc, char **argv)
{
	const struct CMUnitTest on_given[] = {cmocka_unit_test(on_a_given_store)};
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(in_memory),   cmocka_unit_test(in_memory_answered_later),
		cmocka_unit_test(on_files),    cmocka_unit_test(on_files_on_disk),
		cmocka_unit_test(with_faults), cmocka_unit_test(on_a_fake_store_and_device),
	};

	given = argv + 1;
	if (argc > 1)
		return cmocka_run_group_tests_name("stress", on_given, NULL, NULL);
	return cmocka_run_group_tests_name("worker_stress", tests, NULL, NULL);
}
