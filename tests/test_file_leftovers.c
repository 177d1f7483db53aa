/* SPDX-License-Identifier: Apache-2.0 */
/* What processes that die leave behind: nothing that can be seen, and nothing for long. */
#include "file_scene.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static uint32_t sweep(struct file_scene *fs, uint32_t age_s)
{
	struct testio t = {.io = {.op = KVT_IO_SWEEP, .name = "", .sweep_age_s = age_s}};

	assert_int_equal(testsession_run(&fs->ts, &t), 0);
	return t.io.swept;
}

static void an_open_backend_has_one_folder_and_a_closed_one_none(void **state)
{
	size_t folders, files;
	struct file_scene fs;

	(void)state;
	file_scene_init(&fs, test_temp_dir());
	file_scene_open(&fs);
	assert_int_equal(file_scene_put(&fs, "x", 100, 1, 0, false), 0);
	assert_int_equal(file_scene_put(&fs, "x", 100, 2, 0, false), 0);
	file_scene_leftovers(&fs, &folders, &files);
	assert_int_equal(folders, 1);
	assert_int_equal(files, 0);
	file_scene_close(&fs);
	file_scene_leftovers(&fs, &folders, &files);
	assert_int_equal(folders, 0);
	file_scene_fini(&fs);
}

static void leftovers_of_the_dead_go_at_open_and_by_a_sweep(void **state)
{
	static const char *const dead[] = {".kvtier/tmp/dead/1", ".kvtier/tmp/dead/2",
					   ".kvtier/tmp/dead/lock", ".kvtier/tmp/bare/3"};
	size_t folders, files;
	struct file_scene fs;

	(void)state;
	file_scene_init(&fs, test_temp_dir());
	for (int round = 0; round < 2; round++) {
		for (size_t i = 0; i < TEST_COUNT(dead); i++) {
			char *path = file_scene_path(&fs, dead[i]);

			test_write_file(path, "x", 1);
			free(path);
		}
		if (round == 0)
			file_scene_open(&fs);
		else
			assert_int_equal(sweep(&fs, 3600), 3);
		file_scene_leftovers(&fs, &folders, &files);
		assert_int_equal(folders, 1);
		assert_int_equal(files, 0);
	}
	file_scene_fini(&fs);
}

static void folders_of_the_living_stay(void **state)
{
	size_t folders, files;
	struct file_scene one, two;

	(void)state;
	file_scene_init(&one, test_temp_dir());
	file_scene_open(&one);
	file_scene_init(&two, strdup(one.root));
	file_scene_open(&two);
	assert_int_equal(sweep(&one, 0), 0);
	assert_int_equal(sweep(&two, 0), 0);
	file_scene_leftovers(&one, &folders, &files);
	assert_int_equal(folders, 2);
	file_scene_close(&one);
	file_scene_leftovers(&two, &folders, &files);
	assert_int_equal(folders, 1);
	assert_int_equal(file_scene_put(&two, "x", 100, 1, 0, false), 0);
	assert_int_equal(file_scene_put(&two, "x", 100, 2, 0, false), 0);
	assert_int_equal(file_scene_get(&two, "x", 100, 2, false), 0);
	file_scene_close(&two);
	free(two.root);
	file_scene_fini(&one);
}

static void strangers_in_the_folder_go_by_their_age(void **state)
{
	struct timespec old[2];
	struct file_scene fs;
	char *path;

	(void)state;
	file_scene_init(&fs, test_temp_dir());
	file_scene_open(&fs);
	path = file_scene_path(&fs, ".kvtier/tmp/stranger");
	test_write_file(path, "x", 1);
	assert_int_equal(sweep(&fs, 60), 0);
	clock_gettime(CLOCK_REALTIME, &old[0]);
	old[0].tv_sec -= 120;
	old[1] = old[0];
	assert_int_equal(utimensat(AT_FDCWD, path, old, 0), 0);
	assert_int_equal(sweep(&fs, 600), 0);
	assert_int_equal(sweep(&fs, 60), 1);
	assert_int_equal(access(path, F_OK), -1);
	free(path);
	file_scene_fini(&fs);
}

static void the_folder_is_made_again_when_somebody_removes_it(void **state)
{
	struct file_scene fs;
	size_t folders, files;
	char *path;

	(void)state;
	file_scene_init(&fs, test_temp_dir());
	file_scene_open(&fs);
	assert_int_equal(file_scene_put(&fs, "x", 100, 1, 0, false), 0);
	path = file_scene_path(&fs, ".kvtier");
	test_remove_tree(path);
	/* Replacing is what needs it. */
	assert_int_equal(file_scene_put(&fs, "x", 100, 2, 0, false), 0);
	assert_int_equal(file_scene_get(&fs, "x", 100, 2, false), 0);
	assert_int_equal(sweep(&fs, 0), 0);
	file_scene_close(&fs);
	file_scene_leftovers(&fs, &folders, &files);
	assert_int_equal(folders, 0);
	file_scene_fini(&fs);
}

/* ---- Killed processes ---- */

static int ready_pipe[2];

/* Has an object half written, and then hangs. */
static int hang_half_way(struct file_scene *fs)
{
	struct kvt_iovec iov = {(void *)(uintptr_t) "half", 4};
	struct testio begin = {.io = {.op = KVT_IO_BEGIN, .name = "a/half", .object_bytes = 8}};
	struct testio part = {.io = {.op = KVT_IO_PART,
				     .name = "a/half",
				     .iov = &iov,
				     .iov_count = 1,
				     .length = 4,
				     .object_bytes = 8}};

	if (file_scene_try(fs) || file_scene_session(fs, 4, 0) || testsession_run(&fs->ts, &begin))
		return 1;
	part.io.handle = begin.io.handle;
	if (testsession_run(&fs->ts, &part) || write(ready_pipe[1], "r", 1) != 1)
		return 2;
	for (;;)
		pause();
}

static void a_process_killed_half_way_leaves_no_object(void **state)
{
	size_t folders, files;
	struct file_scene fs;
	char byte;
	pid_t pid;

	(void)state;
	file_scene_init(&fs, test_temp_dir());
	assert_int_equal(pipe(ready_pipe), 0);
	fflush(NULL);
	pid = fork();
	if (pid == 0)
		_exit(hang_half_way(&fs));
	assert_int_equal(read(ready_pipe[0], &byte, 1), 1);
	close(ready_pipe[0]);
	close(ready_pipe[1]);
	assert_false(file_scene_has(&fs, "a/half"));
	/* It lives: its folder stays. */
	file_scene_open(&fs);
	file_scene_leftovers(&fs, &folders, &files);
	assert_int_equal(folders, 2);
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	(void)sweep(&fs, 3600);
	file_scene_leftovers(&fs, &folders, &files);
	assert_int_equal(folders, 1);
	assert_int_equal(files, 0);
	assert_false(file_scene_has(&fs, "a/half"));
	file_scene_fini(&fs);
}

#define KILLED_NAMES 6
#define KILLED_BYTES 200000
#define KILLS	     40

/* Stores and replaces objects until it is killed; the bytes of each follow from its length. */
static int store_for_ever(struct file_scene *fs)
{
	char name[16];

	if (file_scene_try(fs) || file_scene_session(fs, 4, 0))
		return 1;
	for (uint64_t i = 0;; i++) {
		size_t bytes = KILLED_BYTES + i % 7 * 4096;

		snprintf(name, sizeof(name), "d%llu/x", (unsigned long long)i % KILLED_NAMES);
		if (file_scene_put(fs, name, bytes, bytes, 0, i % 2))
			return 2;
	}
}

static void objects_of_killed_processes_are_whole_or_absent(void **state)
{
	struct test_random random = {test_seed(20)};
	size_t folders, files, seen = 0;
	uint64_t most_ns = 8000000;
	struct file_scene fs;

	(void)state;
	file_scene_init(&fs, test_temp_dir());
	for (int i = 0; i < KILLS; i++) {
		struct timespec nap = {0, (long)test_random_below(&random, most_ns)};
		pid_t pid;

		fflush(NULL);
		pid = fork();
		if (pid == 0)
			_exit(store_for_ever(&fs));
		/* The moment is the point; any will do. */
		nanosleep(&nap, NULL);
		assert_int_equal(kill(pid, SIGKILL), 0);
		assert_int_equal(waitpid(pid, NULL, 0), pid);
		file_scene_open(&fs);
		for (int n = 0; n < KILLED_NAMES; n++) {
			char *name = test_format("d%d/x", n);
			struct kvt_object_info info;
			int result = testsession_head(&fs.ts, name, &info);

			if (result != KVT_ENOENT) {
				assert_int_equal(result, 0);
				assert_int_equal(file_scene_get(&fs, name, info.object_bytes,
								info.object_bytes, false),
						 0);
				seen++;
			}
			free(name);
		}
		file_scene_leftovers(&fs, &folders, &files);
		assert_int_equal(folders, 1);
		assert_int_equal(files, 0);
		file_scene_close(&fs);
		/* Machines differ in when there is something to see. */
		if (!seen && most_ns < 500000000)
			most_ns *= 2;
	}
	assert_true(seen > 0);
	file_scene_fini(&fs);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_open_backend_has_one_folder_and_a_closed_one_none),
		cmocka_unit_test(leftovers_of_the_dead_go_at_open_and_by_a_sweep),
		cmocka_unit_test(folders_of_the_living_stay),
		cmocka_unit_test(strangers_in_the_folder_go_by_their_age),
		cmocka_unit_test(the_folder_is_made_again_when_somebody_removes_it),
		cmocka_unit_test(a_process_killed_half_way_leaves_no_object),
		cmocka_unit_test(objects_of_killed_processes_are_whole_or_absent),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
