/* SPDX-License-Identifier: Apache-2.0 */
/* System calls that fail, are interrupted or come short below the file backend. */
#include "file_scene.h"
#include "spoilt_calls.h"

#include <sched.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <time.h>

struct errno_case {
	enum call call;
	int error, code;
	const char *detail;
};

static void check_absent_and_clean(struct file_scene *fs, const char *name)
{
	size_t folders, files;

	assert_int_equal(testsession_head(&fs->ts, name, NULL), KVT_ENOENT);
	file_scene_leftovers(fs, &folders, &files);
	assert_int_equal(files, 0);
}

static void every_failure_of_a_put_has_its_code_and_detail(void **state)
{
	static const struct errno_case cases[] = {
		{PWRITE, ENOSPC, KVT_ENOSPC,
		 "put a/x: pwrite 5000 bytes at 0: No space left on device"},
		{PWRITE, EDQUOT, KVT_ENOSPC,
		 "put a/x: pwrite 5000 bytes at 0: Disk quota exceeded"},
		{PWRITE, EIO, KVT_EIO, "put a/x: pwrite 5000 bytes at 0: Input/output error"},
		{PWRITE, EFBIG, KVT_EINVAL, "put a/x: pwrite 5000 bytes at 0: File too large"},
		{TMPFILE, EMFILE, KVT_EMFILE,
		 "put a/x: open of an unnamed file: Too many open files"},
		{TMPFILE, ENFILE, KVT_EMFILE, NULL},
		{TMPFILE, EACCES, KVT_EACCES,
		 "put a/x: open of an unnamed file: Permission denied"},
		{TMPFILE, EROFS, KVT_EROFS, NULL},
		{TMPFILE, ENOMEM, KVT_ENOMEM, NULL},
		{LINKAT, EIO, KVT_EIO, "put a/x: linkat: Input/output error"},
		{LINKAT, ENOSPC, KVT_ENOSPC, "put a/x: linkat: No space left on device"},
		{LINKAT, EMLINK, KVT_EIO, NULL},
		{MKDIRAT, ENOSPC, KVT_ENOSPC,
		 "put a/x: open of the folder: No space left on device"},
		{MKDIRAT, EPERM, KVT_EACCES, NULL},
	};
	static const char *const engines[] = {"auto", "threads"};

	(void)state;
	for (size_t e = 0; e < TEST_COUNT(engines); e++)
		for (size_t i = 0; i < TEST_COUNT(cases); i++) {
			struct file_scene fs;

			plan_nothing();
			file_scene_init(&fs, test_temp_dir());
			file_scene_option(&fs, "engine", engines[e]);
			file_scene_open(&fs);
			faults[cases[i].call].error = cases[i].error;
			atomic_store(&faults[cases[i].call].times, 1);
			assert_int_equal(file_scene_put(&fs, "a/x", 5000, 1, 0, false),
					 cases[i].code);
			assert_int_equal(atomic_load(&faults[cases[i].call].times), 0);
			if (cases[i].detail)
				assert_string_equal(file_scene_detail(&fs), cases[i].detail);
			check_absent_and_clean(&fs, "a/x");
			assert_int_equal(file_scene_put(&fs, "a/x", 5000, 1, 0, false), 0);
			assert_int_equal(file_scene_get(&fs, "a/x", 5000, 1, false), 0);
			file_scene_fini(&fs);
		}
	plan_nothing();
}

static void a_replacement_that_fails_leaves_the_old_object(void **state)
{
	static const struct errno_case cases[] = {
		{PWRITE, ENOSPC, KVT_ENOSPC, NULL},
		{RENAMEAT, EIO, KVT_EIO, "put x: rename: Input/output error"},
		{RENAMEAT, EISDIR, KVT_EACCES, NULL},
	};
	struct file_scene fs;

	(void)state;
	plan_nothing();
	file_scene_init(&fs, test_temp_dir());
	file_scene_open(&fs);
	assert_int_equal(file_scene_put(&fs, "x", 5000, 1, 0, false), 0);
	for (size_t i = 0; i < TEST_COUNT(cases); i++) {
		size_t folders, files;

		faults[cases[i].call].error = cases[i].error;
		atomic_store(&faults[cases[i].call].times, 1);
		assert_int_equal(file_scene_put(&fs, "x", 5000, 2, 0, false), cases[i].code);
		if (cases[i].detail)
			assert_string_equal(file_scene_detail(&fs), cases[i].detail);
		assert_int_equal(file_scene_get(&fs, "x", 5000, 1, false), 0);
		file_scene_leftovers(&fs, &folders, &files);
		assert_int_equal(files, 0);
	}
	file_scene_fini(&fs);
	plan_nothing();
}

static void a_read_that_fails_is_told_and_removes_nothing(void **state)
{
	struct file_scene fs;

	(void)state;
	plan_nothing();
	file_scene_init(&fs, test_temp_dir());
	file_scene_open(&fs);
	assert_int_equal(file_scene_put(&fs, "x", 5000, 1, 0, false), 0);
	faults[PREAD].error = EIO;
	atomic_store(&faults[PREAD].times, 1);
	assert_int_equal(file_scene_get(&fs, "x", 5000, 1, false), KVT_EIO);
	assert_string_equal(file_scene_detail(&fs),
			    "get x: pread 5000 bytes at 0: Input/output error");
	assert_int_equal(file_scene_get(&fs, "x", 5000, 1, false), 0);
	file_scene_fini(&fs);
	plan_nothing();
}

/* Every call is interrupted and cut short in turn. */
static void trip_with_short_calls(const char *engine, const char *direct, char *root,
				  size_t at_most, bool crooked)
{
	const size_t bytes = 1 << 20;
	struct file_scene fs;

	plan_nothing();
	file_scene_init(&fs, root);
	file_scene_option(&fs, "engine", engine);
	file_scene_option(&fs, "direct", direct);
	file_scene_open(&fs);
	faults[PWRITE].at_most = faults[PREAD].at_most = at_most;
	atomic_store(&faults[PWRITE].times, 200);
	atomic_store(&faults[PREAD].times, 200);
	assert_int_equal(file_scene_put(&fs, "x", bytes, 1, 0, crooked), 0);
	assert_int_equal(file_scene_get(&fs, "x", bytes, 1, crooked), 0);
	faults[PWRITE].at_most = faults[PREAD].at_most = 0;
	faults[PWRITE].error = faults[PREAD].error = EINTR;
	atomic_store(&faults[PWRITE].times, 20);
	atomic_store(&faults[PREAD].times, 20);
	assert_int_equal(file_scene_put(&fs, "y", bytes, 1, 0, crooked), 0);
	assert_int_equal(file_scene_get(&fs, "y", bytes, 1, crooked), 0);
	file_scene_fini(&fs);
	plan_nothing();
}

static void short_and_interrupted_calls_go_on_where_they_stopped(void **state)
{
	static const size_t cuts[] = {1, 4096, 4097};

	(void)state;
	for (size_t i = 0; i < TEST_COUNT(cuts); i++)
		for (int crooked = 0; crooked < 2; crooked++) {
			trip_with_short_calls("auto", "off", test_temp_dir(), cuts[i], crooked);
			trip_with_short_calls("threads", "off", test_temp_dir(), cuts[i], crooked);
			trip_with_short_calls("threads", "auto", test_temp_dir_on_disk(), cuts[i],
					      crooked);
		}
}

static void o_direct_that_is_refused_late_is_given_up_without_a_failure(void **state)
{
	struct file_scene fs;

	(void)state;
	plan_nothing();
	file_scene_init(&fs, test_temp_dir_on_disk());
	file_scene_option(&fs, "engine", "threads");
	file_scene_open(&fs);
	if (!file_scene_says(&fs, "direct=on")) {
		file_scene_fini(&fs);
		print_message("  skipped: no O_DIRECT on this disk\n");
		skip();
	}
	for (int c = PWRITE; c <= PREAD; c++) {
		faults[c].error = EINVAL;
		faults[c].direct_only = true;
		atomic_store(&faults[c].times, 1000);
	}
	for (int i = 0; i < 4; i++) {
		assert_int_equal(file_scene_put(&fs, "x", 65536, 1, 0, false), 0);
		assert_int_equal(file_scene_get(&fs, "x", 65536, 1, false), 0);
	}
	/* It was remembered: one try each. Both were told. */
	assert_int_equal(atomic_load(&faults[PWRITE].times), 999);
	assert_int_equal(atomic_load(&faults[PREAD].times), 999);
	assert_int_equal(atomic_load(&fs.th.log_lines), 2);
	file_scene_fini(&fs);
	plan_nothing();
}

static char removed_folder[4096];

static void remove_folder(void)
{
	rmdir(removed_folder);
}

static void folders_removed_under_a_put_are_made_again(void **state)
{
	static const enum call moments[] = {TMPFILE, LINKAT, PWRITE};

	(void)state;
	for (size_t i = 0; i < TEST_COUNT(moments); i++) {
		struct file_scene fs;

		plan_nothing();
		file_scene_init(&fs, test_temp_dir());
		file_scene_open(&fs);
		snprintf(removed_folder, sizeof(removed_folder), "%s/a/b", fs.root);
		faults[moments[i]].before = remove_folder;
		atomic_store(&faults[moments[i]].times, moments[i] == PWRITE ? 1 : 5);
		assert_int_equal(file_scene_put(&fs, "a/b/x", 5000, 1, KVT_IO_IF_ABSENT, false), 0);
		assert_int_equal(file_scene_get(&fs, "a/b/x", 5000, 1, false), 0);
		file_scene_fini(&fs);
	}
	plan_nothing();
}

static char shrinking_file[4096];

static void shrink_file(void)
{
	if (truncate(shrinking_file, 300000))
		abort();
}

static void a_file_that_shrinks_under_a_get_is_a_short_object(void **state)
{
	static uint8_t memory[600000];
	struct kvt_iovec iov = {memory, sizeof(memory)};
	struct testio t = {.io = {.op = KVT_IO_GET,
				  .name = "x",
				  .iov = &iov,
				  .iov_count = 1,
				  .length = sizeof(memory)}};
	struct file_scene fs;

	(void)state;
	plan_nothing();
	file_scene_init(&fs, test_temp_dir());
	file_scene_open(&fs);
	assert_int_equal(file_scene_put(&fs, "x", sizeof(memory), 1, 0, false), 0);
	snprintf(shrinking_file, sizeof(shrinking_file), "%s/x", fs.root);
	faults[PREAD].before = shrink_file;
	atomic_store(&faults[PREAD].times, 1);
	assert_int_equal(testsession_run(&fs.ts, &t), KVT_ERANGE);
	assert_int_equal(t.io.info.object_bytes, 300000);
	assert_int_equal(t.io.bytes_landed, 300000);
	assert_true(test_is_filled(memory, 300000, 1));
	assert_string_equal(t.detail, "get x: the object has become shorter");
	file_scene_fini(&fs);
	plan_nothing();
}

static int64_t late_ns;

static void be_late(void)
{
	struct timespec until = {late_ns / 1000000000, late_ns % 1000000000 + 1000000};

	if (until.tv_nsec >= 1000000000)
		until.tv_sec++, until.tv_nsec -= 1000000000;
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
		;
}

static void what_the_kernel_finishes_late_times_out_and_does_not_appear(void **state)
{
	static const char *const engines[] = {"auto", "threads"};
	static uint8_t memory[2 << 20];
	struct kvt_iovec iov = {memory, sizeof(memory)};

	(void)state;
	for (size_t e = 0; e < TEST_COUNT(engines); e++) {
		struct file_scene fs;

		plan_nothing();
		file_scene_init(&fs, test_temp_dir());
		file_scene_option(&fs, "engine", engines[e]);
		file_scene_open(&fs);
		assert_int_equal(file_scene_put(&fs, "old", sizeof(memory), 1, 0, false), 0);
		for (int c = PWRITE; c <= PREAD; c++) {
			faults[c].before = be_late;
			atomic_store(&faults[c].times, 1);
			/* Longer each time, until the call is reached before its deadline. */
			for (int64_t ms = 20; atomic_load(&faults[c].times); ms *= 2) {
				struct testio t = {
					.io = {.op = c == PWRITE ? KVT_IO_PUT : KVT_IO_GET,
					       .name = c == PWRITE ? "new" : "old",
					       .iov = &iov,
					       .iov_count = 1,
					       .length = sizeof(memory),
					       .object_bytes = sizeof(memory)}};

				late_ns = fs.th.host.now_ns() + ms * 1000000;
				t.io.deadline_ns = late_ns;
				assert_int_equal(testsession_run(&fs.ts, &t), KVT_ETIMEDOUT);
			}
		}
		check_absent_and_clean(&fs, "new");
		file_scene_fini(&fs);
	}
	plan_nothing();
}

static void the_fsync_policy_is_kept(void **state)
{
	static const struct {
		const char *policy, *expected;
	} cases[] = {
		{"none", "link "},
		{"data", "data link "},
		/* Two new folders: the ones that they are in are synchronized too. */
		{"full", "folder folder data link folder "},
	};

	(void)state;
	for (size_t i = 0; i < TEST_COUNT(cases); i++) {
		struct file_scene fs;

		plan_nothing();
		file_scene_init(&fs, test_temp_dir_on_disk());
		file_scene_option(&fs, "fsync", cases[i].policy);
		assert_int_equal(file_scene_try(&fs), 0);
		/* A session of blocking calls does it all on this thread. */
		assert_int_equal(file_scene_session(&fs, 1, 1), 0);
		if (file_scene_says(&fs, "filesystem=tmpfs")) {
			file_scene_fini(&fs);
			print_message("  skipped: no disk below TMPDIR\n");
			skip();
		}
		trace[0] = 0;
		tracing = true;
		assert_int_equal(file_scene_put(&fs, "a/b/x", 5000, 1, 0, false), 0);
		tracing = false;
		assert_string_equal(trace, cases[i].expected);
		file_scene_close(&fs);
		/* And with the engine's own way of doing it. */
		file_scene_open(&fs);
		for (int crooked = 0; crooked < 2; crooked++) {
			assert_int_equal(file_scene_put(&fs, "a/c/x", 8192, 1, 0, crooked), 0);
			assert_int_equal(file_scene_get(&fs, "a/c/x", 8192, 1, crooked), 0);
		}
		if (i > 0) {
			faults[FDATASYNC].error = EIO;
			atomic_store(&faults[FDATASYNC].times, 1);
			file_scene_close(&fs);
			assert_int_equal(file_scene_try(&fs), 0);
			assert_int_equal(file_scene_session(&fs, 1, 1), 0);
			assert_int_equal(file_scene_put(&fs, "a/d/x", 8192, 1, 0, true), KVT_EIO);
			assert_string_equal(file_scene_detail(&fs),
					    "put a/d/x: fdatasync: Input/output error");
			check_absent_and_clean(&fs, "a/d/x");
		}
		file_scene_fini(&fs);
	}
	plan_nothing();
}

static void a_place_that_cannot_be_written_to_still_reads(void **state)
{
	static const struct {
		int error, code;
	} cases[] = {{EROFS, KVT_EROFS}, {EACCES, KVT_EACCES}, {ENOSPC, KVT_ENOSPC}};

	(void)state;
	for (size_t i = 0; i < TEST_COUNT(cases); i++) {
		struct file_scene fs;
		char *path;

		plan_nothing();
		file_scene_init(&fs, test_temp_dir());
		path = file_scene_path(&fs, "x");
		test_write_file(path, "0123456789", 10);
		free(path);
		for (int c = MKDIRAT; c <= TMPFILE; c++) {
			faults[c].error = cases[i].error;
			atomic_store(&faults[c].times, 1000);
		}
		file_scene_open(&fs);
		assert_true(file_scene_says(&fs, "writable=no"));
		assert_int_equal(testsession_get(&fs.ts, "x", (char[10]){0}, 10, 0, NULL), 0);
		assert_int_equal(file_scene_put(&fs, "y", 100, 1, 0, false), cases[i].code);
		assert_int_equal(file_scene_put(&fs, "a/y", 100, 1, 0, false), cases[i].code);
		/* It can be written to again. */
		plan_nothing();
		assert_int_equal(file_scene_put(&fs, "x", 100, 1, 0, false), 0);
		assert_int_equal(file_scene_get(&fs, "x", 100, 1, false), 0);
		file_scene_fini(&fs);
	}
	plan_nothing();
}

/* ---- A disk that is really full ---- */

#define CANNOT_MOUNT 77

static int fill_disk(struct file_scene *fs)
{
	int count = 0, result;
	char name[32];

	if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("kvtier", fs->root, "tmpfs", 0, "size=2m"))
		return CANNOT_MOUNT;
	if (file_scene_try(fs) || file_scene_session(fs, 4, 0))
		return 1;
	do {
		snprintf(name, sizeof(name), "a%d/x", count);
		result = file_scene_put(fs, name, 300000, (uint64_t)count, 0, false);
	} while (!result && ++count < 100);
	if (result != KVT_ENOSPC || count < 3)
		return 2;
	if (!strstr(file_scene_detail(fs), "No space left on device"))
		return 3;
	if (testsession_head(&fs->ts, name, NULL) != KVT_ENOENT)
		return 4;
	/* Opening and reading go on. */
	file_scene_close(fs);
	if (file_scene_try(fs) || file_scene_session(fs, 4, 0))
		return 5;
	for (int i = 0; i < count; i++) {
		snprintf(name, sizeof(name), "a%d/x", i);
		if (file_scene_get(fs, name, 300000, (uint64_t)i, false))
			return 6;
	}
	if (testsession_remove(&fs->ts, "a0/x", NULL))
		return 7;
	return file_scene_put(fs, "b/x", 200000, 9, 0, false) ? 8 : 0;
}

static void a_full_disk_fails_stores_alone(void **state)
{
	struct file_scene fs;
	int result;

	(void)state;
	plan_nothing();
	file_scene_init(&fs, test_temp_dir());
	result = file_scene_fork(fill_disk, &fs);
	file_scene_fini(&fs);
	if (result == CANNOT_MOUNT) {
		print_message("  skipped: only root can mount a small disk\n");
		skip();
	}
	assert_int_equal(result, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_failure_of_a_put_has_its_code_and_detail),
		cmocka_unit_test(a_replacement_that_fails_leaves_the_old_object),
		cmocka_unit_test(a_read_that_fails_is_told_and_removes_nothing),
		cmocka_unit_test(short_and_interrupted_calls_go_on_where_they_stopped),
		cmocka_unit_test(o_direct_that_is_refused_late_is_given_up_without_a_failure),
		cmocka_unit_test(folders_removed_under_a_put_are_made_again),
		cmocka_unit_test(a_file_that_shrinks_under_a_get_is_a_short_object),
		cmocka_unit_test(what_the_kernel_finishes_late_times_out_and_does_not_appear),
		cmocka_unit_test(the_fsync_policy_is_kept),
		cmocka_unit_test(a_place_that_cannot_be_written_to_still_reads),
		cmocka_unit_test(a_full_disk_fails_stores_alone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
