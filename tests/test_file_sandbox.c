/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels, containers and file systems that lack a call: a seccomp filter in a forked child makes
 * calls fail as they do there, and the backend goes another way.
 */
#include "file_scene.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ALWAYS	    -1
#define CANNOT_DENY 77

/* A call that fails: always, or when all bits of `mask` are set in an argument. */
struct denial {
	long call;
	int argument;
	uint32_t mask;
	int error;
};

/* What a child is asked to do, and under which denials. */
struct sandbox {
	const struct denial *denials;
	size_t count;
	const char *engine; /* NULL: auto */
	const char *says;   /* what the backend's detail must have, or NULL */
	uint32_t lacks;	    /* a capability that it must not have */
};
static const struct sandbox *current;

static bool deny(const struct denial *denials, size_t count)
{
	struct sock_filter code[128];
	struct sock_fprog program = {.filter = code};
	unsigned short n = 0;

	for (size_t i = 0; i < count; i++) {
		const struct denial *d = &denials[i];
		bool always = d->argument == ALWAYS;
		uint32_t at = (uint32_t)(offsetof(struct seccomp_data, args) +
					 8 * (size_t)(always ? 0 : d->argument));

		code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
							 offsetof(struct seccomp_data, nr));
		code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K,
							 (uint32_t)d->call, 0, always ? 1 : 4);
		if (!always) {
			code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, at);
			code[n++] =
				(struct sock_filter)BPF_STMT(BPF_ALU | BPF_AND | BPF_K, d->mask);
			code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, d->mask,
								 0, 1);
		}
		code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K,
							 SECCOMP_RET_ERRNO | (uint32_t)d->error);
	}
	code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	program.len = n;
	return !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) &&
	       !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

/* Objects of several kinds come and go; the number of the step that failed. */
static int exercise(struct file_scene *fs)
{
	static const size_t sizes[] = {1, 4096, 70000, 3 << 20};
	bool exclusive = fs->tb.limits.capabilities & KVT_CAP_IF_ABSENT;
	char name[32];

	for (unsigned i = 0; i < TEST_COUNT(sizes); i++) {
		for (int crooked = 0; crooked < 2; crooked++) {
			snprintf(name, sizeof(name), "base/%u/%d/x", i, crooked);
			if (file_scene_get(fs, name, sizes[i], 1, crooked) != KVT_ENOENT)
				return 10;
			if (file_scene_put(fs, name, sizes[i], 1, exclusive ? KVT_IO_IF_ABSENT : 0,
					   crooked))
				return 11;
			if (exclusive && file_scene_put(fs, name, sizes[i], 2, KVT_IO_IF_ABSENT,
							crooked) != KVT_EEXIST)
				return 12;
			if (file_scene_get(fs, name, sizes[i], 1, crooked))
				return 13;
			if (file_scene_put(fs, name, sizes[i], 3, 0, crooked))
				return 14;
			if (file_scene_get(fs, name, sizes[i], 3, !crooked))
				return 15;
		}
	}
	if (testsession_head(&fs->ts, "base/0/0/x", NULL))
		return 16;
	if (testsession_remove(&fs->ts, "base/0/0/x", NULL))
		return 17;
	if (file_scene_get(fs, "base/0/0/x", 1, 1, false) != KVT_ENOENT)
		return 18;
	/* A link that leads out and one that stays in. */
	if (file_scene_get(fs, "out/x", 1, 1, false) >= 0 ||
	    file_scene_put(fs, "out/new", 1, 1, 0, false) >= 0 ||
	    file_scene_get(fs, "../x", 1, 1, false) >= 0)
		return 19;
	return 0;
}

static int child_main(struct file_scene *fs)
{
	int step;

	if (!deny(current->denials, current->count))
		return CANNOT_DENY;
	if (current->engine)
		file_scene_option(fs, "engine", current->engine);
	if (file_scene_try(fs) || file_scene_session(fs, 4, 0))
		return 1;
	if (current->says && !file_scene_says(fs, current->says))
		return 2;
	if (fs->tb.limits.capabilities & current->lacks)
		return 3;
	step = exercise(fs);
	if (step)
		return step;
	file_scene_close(fs);
	return 0;
}

static void run(const struct sandbox *sandbox, char *root)
{
	char *out = test_temp_dir(), *link;
	size_t folders, files;
	struct file_scene fs;
	int result;

	file_scene_init(&fs, root);
	link = file_scene_path(&fs, "out");
	assert_int_equal(symlink(out, link), 0);
	current = sandbox;
	result = file_scene_fork(child_main, &fs);
	if (result == CANNOT_DENY)
		print_message("  skipped: seccomp is not to be had here\n");
	else if (result)
		fail_msg("step %d failed", result);
	file_scene_leftovers(&fs, &folders, &files);
	assert_int_equal(files, 0);
	assert_int_equal(test_count_files(out, NULL), 0);
	free(link);
	file_scene_fini(&fs);
	test_remove_tree(out);
	if (result == CANNOT_DENY)
		skip();
}

static void run_everywhere(const struct sandbox *sandbox)
{
	run(sandbox, test_temp_dir());
	run(sandbox, test_temp_dir_on_disk());
}

#define SANDBOX(...)                                                                               \
	(&(struct sandbox){.denials = denials, .count = TEST_COUNT(denials), __VA_ARGS__})

static void without_io_uring_a_pool_takes_over(void **state)
{
	static const int errors[] = {EPERM, ENOSYS};

	(void)state;
	for (size_t i = 0; i < TEST_COUNT(errors); i++) {
		const struct denial denials[] = {{SYS_io_uring_setup, ALWAYS, 0, errors[i]}};
		char *root = test_temp_dir_on_disk();
		bool direct = kvt_probe_o_direct(root) == 1;

		run(SANDBOX(.says = direct ? "engine=threads" : NULL), root);
		run_everywhere(SANDBOX(.engine = "threads", .says = "engine=threads"));
	}
}

static int want_uring(struct file_scene *fs)
{
	const struct denial denials[] = {{SYS_io_uring_setup, ALWAYS, 0, EPERM}};

	if (!deny(denials, 1))
		return CANNOT_DENY;
	file_scene_option(fs, "engine", "uring");
	if (file_scene_try(fs) != KVT_ECONFIG)
		return 1;
	return strstr(testhost_failure(), "option engine: uring") ? 0 : 2;
}

static void asking_for_io_uring_without_it_is_told(void **state)
{
	struct file_scene fs;

	(void)state;
	file_scene_init(&fs, test_temp_dir());
	assert_int_equal(file_scene_fork(want_uring, &fs), 0);
	file_scene_fini(&fs);
}

static void without_openat2_paths_are_walked(void **state)
{
	static const int errors[] = {ENOSYS, EPERM};

	(void)state;
	for (size_t i = 0; i < TEST_COUNT(errors); i++) {
		const struct denial denials[] = {{SYS_openat2, ALWAYS, 0, errors[i]}};

		run_everywhere(SANDBOX(.engine = NULL));
	}
}

static void without_unnamed_files_temporary_ones_do(void **state)
{
	static const int errors[] = {EOPNOTSUPP, EISDIR, EINVAL};

	(void)state;
	for (size_t i = 0; i < TEST_COUNT(errors); i++) {
		const struct denial denials[] = {{SYS_openat, 2, O_TMPFILE, errors[i]}};

		run_everywhere(SANDBOX(.engine = NULL));
	}
}

static void without_an_exclusive_rename_links_do(void **state)
{
	const struct denial denials[] = {{SYS_openat, 2, O_TMPFILE, EOPNOTSUPP},
					 {SYS_renameat2, 4, RENAME_NOREPLACE, EINVAL}};

	(void)state;
	run_everywhere(SANDBOX(.engine = NULL));
}

static void unnamed_files_are_linked_by_way_of_proc(void **state)
{
	const struct denial denials[] = {{SYS_linkat, 4, AT_EMPTY_PATH, ENOENT}};

	(void)state;
	run_everywhere(SANDBOX(.engine = NULL));
}

static void unnamed_files_that_cannot_be_linked_are_not_used(void **state)
{
	const struct denial denials[] = {{SYS_linkat, ALWAYS, 0, EPERM}};

	(void)state;
	run_everywhere(SANDBOX(.engine = NULL));
}

static void without_any_exclusive_way_the_capability_is_missing(void **state)
{
	const struct denial denials[] = {{SYS_linkat, ALWAYS, 0, EPERM},
					 {SYS_renameat2, 4, RENAME_NOREPLACE, EINVAL}};

	(void)state;
	run_everywhere(SANDBOX(.lacks = KVT_CAP_IF_ABSENT));
}

static void without_o_direct_the_page_cache_does(void **state)
{
	/* openat2 hides its flags from the filter. */
	const struct denial denials[] = {{SYS_openat2, ALWAYS, 0, ENOSYS},
					 {SYS_openat, 2, O_DIRECT, EINVAL}};

	(void)state;
	run_everywhere(SANDBOX(.says = "direct=off"));
	run_everywhere(SANDBOX(.engine = "threads", .says = "direct=off"));
}

static void reads_that_cannot_be_asked_not_to_wait_wait(void **state)
{
	const struct denial denials[] = {{SYS_openat2, ALWAYS, 0, ENOSYS},
					 {SYS_openat, 2, O_DIRECT, EINVAL},
					 {SYS_preadv2, ALWAYS, 0, EOPNOTSUPP}};

	(void)state;
	run_everywhere(SANDBOX(.engine = "threads"));
}

static void file_systems_without_locks_work(void **state)
{
	const struct denial denials[] = {{SYS_flock, ALWAYS, 0, ENOLCK}};

	(void)state;
	run_everywhere(SANDBOX(.engine = NULL));
}

static void without_statx_alignment_is_found_by_trying(void **state)
{
	const struct denial denials[] = {{SYS_statx, ALWAYS, 0, ENOSYS}};

	(void)state;
	run_everywhere(SANDBOX(.engine = NULL));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(without_io_uring_a_pool_takes_over),
		cmocka_unit_test(asking_for_io_uring_without_it_is_told),
		cmocka_unit_test(without_openat2_paths_are_walked),
		cmocka_unit_test(without_unnamed_files_temporary_ones_do),
		cmocka_unit_test(without_an_exclusive_rename_links_do),
		cmocka_unit_test(unnamed_files_are_linked_by_way_of_proc),
		cmocka_unit_test(unnamed_files_that_cannot_be_linked_are_not_used),
		cmocka_unit_test(without_any_exclusive_way_the_capability_is_missing),
		cmocka_unit_test(without_o_direct_the_page_cache_does),
		cmocka_unit_test(reads_that_cannot_be_asked_not_to_wait_wait),
		cmocka_unit_test(file_systems_without_locks_work),
		cmocka_unit_test(without_statx_alignment_is_found_by_trying),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
