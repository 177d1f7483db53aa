/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pool of threads: what waits for a thread expires, and without threads the session's own does
 * the work. This program's pthread_create fails when it is told to, and its pwrite can be held.
 */
#include "file_scene.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define BYTES (2u << 20) /* enough for the pool */

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#endif

#ifdef SANITIZED

int main(void)
{
	puts("skipped: a sanitizer needs pthread_create for itself");
	return 77;
}

#else

static struct test_gate gate;
static atomic_bool hold_writes;
static atomic_int threads_left; /* so many may still be made */

ssize_t pwrite(int fd, const void *data, size_t bytes, off_t at)
{
	if (atomic_load(&hold_writes))
		test_gate_pass(&gate);
	return syscall(SYS_pwrite64, fd, data, bytes, at);
}

typedef int (*create_fn)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

int pthread_create(pthread_t *restrict thread, const pthread_attr_t *restrict attributes,
		   void *(*start)(void *), void *restrict argument)
{
	create_fn real;
	void *symbol = dlsym(RTLD_NEXT, "pthread_create");

	if (atomic_fetch_sub(&threads_left, 1) <= 0)
		return EAGAIN;
	memcpy(&real, &symbol, sizeof(real));
	return real(thread, attributes, start, argument);
}

static void open_with_threads(struct file_scene *fs, int threads)
{
	atomic_store(&threads_left, threads);
	file_scene_init(fs, test_temp_dir());
	file_scene_option(fs, "engine", "threads");
	file_scene_open(fs);
}

static void what_waits_for_a_thread_expires(void **state)
{
	uint8_t *memory = malloc(BYTES);
	struct kvt_iovec iov = {memory, BYTES};
	struct testio held = {.io = {.op = KVT_IO_PUT,
				     .name = "held",
				     .iov = &iov,
				     .iov_count = 1,
				     .length = BYTES,
				     .object_bytes = BYTES}};
	struct testio waiting = held;
	struct file_scene fs;

	(void)state;
	assert_non_null(memory);
	test_fill(memory, BYTES, 1);
	open_with_threads(&fs, 1);
	test_gate_init(&gate, false);
	atomic_store(&hold_writes, true);
	waiting.io.name = "waiting";
	assert_int_equal(testio_prepare(&held, &fs.ts), 0);
	assert_int_equal(testio_submit(&held), KVT_QUEUED);
	assert_true(test_gate_await(&gate, 1));
	/* The only thread is held: poll ends the wait of the second when its time has come. */
	for (int64_t ms = 20; waiting.answer != KVT_QUEUED; ms *= 2) {
		waiting.io.deadline_ns = fs.th.host.now_ns() + ms * 1000000;
		assert_int_equal(testio_prepare(&waiting, &fs.ts), 0);
		(void)testio_submit(&waiting);
		assert_int_equal(testio_wait(&waiting), KVT_ETIMEDOUT);
		assert_string_equal(waiting.detail, "put waiting: the deadline has passed");
		testio_release(&waiting);
	}
	assert_false(held.done);
	atomic_store(&hold_writes, false);
	test_gate_open(&gate);
	assert_int_equal(testio_wait(&held), 0);
	testio_release(&held);
	assert_int_equal(testsession_head(&fs.ts, "waiting", NULL), KVT_ENOENT);
	assert_int_equal(file_scene_get(&fs, "held", BYTES, 1, false), 0);
	file_scene_fini(&fs);
	test_gate_fini(&gate);
	free(memory);
}

static void without_any_thread_the_session_does_the_work(void **state)
{
	struct file_scene fs;

	(void)state;
	open_with_threads(&fs, 0);
	assert_int_equal(file_scene_put(&fs, "x", BYTES, 1, 0, false), 0);
	assert_int_equal(file_scene_get(&fs, "x", BYTES, 1, true), 0);
	file_scene_fini(&fs);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_waits_for_a_thread_expires),
		cmocka_unit_test(without_any_thread_the_session_does_the_work),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

#endif
