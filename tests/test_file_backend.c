/* SPDX-License-Identifier: Apache-2.0 */
/* The file backend's place: its root, its options, what lies below it, its temporary folder. */
#include "file_scene.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- The root ---- */

static int open_location(const char *location)
{
	struct testbackend tb;
	struct testhost th;
	int result;

	testhost_init(&th);
	result = testbackend_open(
		&tb, &th,
		&(struct testbackend_options){.ops = &kvt__file_backend_ops, .location = location});
	if (!result)
		testbackend_close(&tb);
	assert_int_equal(atomic_load(&th.live), 0);
	return result;
}

static void a_root_is_made_with_its_parents_for_its_owner_alone(void **state)
{
	char *folder = test_temp_dir();
	struct file_scene fs;
	struct stat st;

	(void)state;
	file_scene_init(&fs, test_format("%s/a/b//c/", folder));
	file_scene_open(&fs);
	assert_int_equal(file_scene_put(&fs, "x/y", 100, 1, 0, false), 0);
	assert_int_equal(stat(fs.root, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0700);
	file_scene_close(&fs);
	free(fs.root);
	fs.root = folder;
	assert_true(file_scene_has(&fs, "a/b/c/x/y"));
	file_scene_fini(&fs);
}

static void locations_are_absolute_relative_or_refused(void **state)
{
	char *folder = test_temp_dir(), *location, *nested, old[4096];

	(void)state;
	location = test_format("//localhost%s/one", folder);
	assert_int_equal(open_location(location), 0);
	free(location);
	location = test_format("%s/two", folder);
	assert_int_equal(open_location(location), 0);
	free(location);
	assert_non_null(getcwd(old, sizeof(old)));
	assert_int_equal(chdir(folder), 0);
	assert_int_equal(open_location("three/./deep"), 0);
	assert_int_equal(chdir(old), 0);
	nested = test_format("%s/three/deep", folder);
	assert_int_equal(access(nested, F_OK), 0);
	free(nested);
	assert_int_equal(open_location("//server/share"), KVT_EINVAL);
	assert_non_null(strstr(testhost_failure(), "a host is named"));
	assert_int_equal(open_location(""), KVT_EINVAL);
	assert_non_null(strstr(testhost_failure(), "no path"));
	location = test_format("//%s/file", folder);
	test_write_file(location + 2, "x", 1);
	assert_int_equal(open_location(location), KVT_ECONFIG);
	assert_non_null(strstr(testhost_failure(), "file"));
	free(location);
	test_remove_tree(folder);
}

static void a_root_that_all_may_write_to_is_refused_unless_it_is_ours(void **state)
{
	struct file_scene fs;

	(void)state;
	file_scene_init(&fs, test_temp_dir());
	assert_int_equal(chmod(fs.root, 01777), 0);
	assert_int_equal(file_scene_try(&fs), 0);
	file_scene_close(&fs);
	if (geteuid() != 0) {
		print_message("  skipped: only root can give a folder away\n");
		file_scene_fini(&fs);
		skip();
	}
	assert_int_equal(chown(fs.root, 65534, 65534), 0);
	assert_int_equal(file_scene_try(&fs), KVT_EACCES);
	assert_non_null(strstr(testhost_failure(), "insecure_root=1"));
	file_scene_option(&fs, "insecure_root", "1");
	assert_int_equal(file_scene_try(&fs), 0);
	file_scene_close(&fs);
	fs.option_count = 0;
	assert_int_equal(chmod(fs.root, 0755), 0);
	assert_int_equal(file_scene_try(&fs), 0);
	file_scene_fini(&fs);
}

/* ---- Options ---- */

static void bad_option_values_are_named(void **state)
{
	static const struct {
		const char *name, *value, *said;
	} cases[] = {
		{"mode", "", "option mode: ''"},
		{"mode", "0800", "option mode: '0800'"},
		{"mode", "0755", "option mode: '0755'"},
		{"mode", "0060", "option mode: '0060'"},
		{"mode", "04600", "option mode: '04600'"},
		{"mode", "77777777777777777777", "option mode"},
		{"direct", "yes", "option direct: 'yes', expected auto, on or off"},
		{"engine", "aio", "option engine: 'aio', expected auto, uring or threads"},
		{"fsync", "1", "option fsync: '1', expected none, data or full"},
		{"insecure_root", "yes", "option insecure_root: 'yes', expected 0 or 1"},
	};
	struct file_scene fs;

	(void)state;
	file_scene_init(&fs, test_temp_dir());
	for (size_t i = 0; i < TEST_COUNT(cases); i++) {
		fs.option_count = 0;
		file_scene_option(&fs, cases[i].name, cases[i].value);
		assert_int_equal(file_scene_try(&fs), KVT_EINVAL);
		if (!strstr(testhost_failure(), cases[i].said))
			fail_msg("%s=%s says \"%s\"", cases[i].name, cases[i].value,
				 testhost_failure());
	}
	file_scene_fini(&fs);
}

static void modes_hold_whatever_the_umask(void **state)
{
	static const struct {
		const char *mode;
		unsigned file, folder;
	} cases[] = {
		{"0600", 0600, 0700},
		{"0640", 0640, 0750},
		{"660", 0660, 0770},
		{"0644", 0644, 0755},
	};
	struct stat st;

	(void)state;
	for (size_t i = 0; i < TEST_COUNT(cases); i++)
		for (int parts = 0; parts < 2; parts++) {
			mode_t old = umask(parts ? 0 : 077);
			struct file_scene fs;
			char *path;

			file_scene_init(&fs, test_temp_dir());
			file_scene_option(&fs, "mode", cases[i].mode);
			file_scene_open(&fs);
			assert_int_equal(file_scene_put(&fs, "a/b/c", 10, 1, 0, false), 0);
			umask(old);
			path = file_scene_path(&fs, "a/b/c");
			assert_int_equal(stat(path, &st), 0);
			assert_int_equal(st.st_mode & 07777, cases[i].file);
			path[strlen(path) - 2] = 0;
			assert_int_equal(stat(path, &st), 0);
			assert_int_equal(st.st_mode & 0777, cases[i].folder);
			free(path);
			file_scene_fini(&fs);
		}
}

static void what_was_chosen_is_told(void **state)
{
	struct file_scene fs;

	(void)state;
	file_scene_init(&fs, test_temp_dir_on_disk());
	file_scene_option(&fs, "direct", "off");
	file_scene_option(&fs, "engine", "threads");
	assert_int_equal(file_scene_try(&fs), 0);
	assert_true(file_scene_says(&fs, "engine=threads direct=off filesystem="));
	assert_int_equal(fs.tb.limits.memory_alignment, 1);
	assert_int_equal(fs.tb.limits.default_depth, 32);
	file_scene_close(&fs);
	/* Where O_DIRECT works it is used, and wanted alignment is told. */
	if (kvt_probe_o_direct(fs.root) == 1) {
		fs.option_count = 0;
		file_scene_option(&fs, "direct", "on");
		assert_int_equal(file_scene_try(&fs), 0);
		assert_true(file_scene_says(&fs, "direct=on"));
		assert_in_range(fs.tb.limits.memory_alignment, 2, 4096);
	}
	file_scene_fini(&fs);
}

/* ---- Links and other things that are no objects ---- */

static void no_link_is_followed(void **state)
{
	char *outside = test_temp_dir(), *secret = test_format("%s/secret", outside), *path;
	struct file_scene fs;

	(void)state;
	test_write_file(secret, "secret", 6);
	file_scene_init(&fs, test_temp_dir());
	file_scene_open(&fs);
	path = file_scene_path(&fs, "folder");
	assert_int_equal(symlink(outside, path), 0);
	free(path);
	path = file_scene_path(&fs, "file");
	assert_int_equal(symlink(secret, path), 0);
	free(path);
	assert_true(file_scene_get(&fs, "folder/secret", 6, 1, false) < 0);
	assert_int_equal(file_scene_get(&fs, "file", 6, 1, false), KVT_EACCES);
	assert_int_equal(testsession_head(&fs.ts, "folder/secret", NULL), KVT_EACCES);
	assert_int_equal(testsession_head(&fs.ts, "file", NULL), KVT_EACCES);
	assert_int_equal(file_scene_put(&fs, "folder/new", 10, 1, 0, false), KVT_EACCES);
	assert_int_equal(file_scene_put(&fs, "folder/sub/new", 10, 1, 0, false), KVT_EACCES);
	assert_int_equal(testsession_remove(&fs.ts, "folder/secret", NULL), KVT_EACCES);
	assert_int_equal(file_scene_put(&fs, "file", 10, 1, KVT_IO_IF_ABSENT, false), KVT_EEXIST);
	/* Replacing a link replaces the link. */
	assert_int_equal(file_scene_put(&fs, "file", 10, 1, 0, false), 0);
	assert_int_equal(file_scene_get(&fs, "file", 10, 1, false), 0);
	assert_int_equal(test_count_files(outside, NULL), 1);
	file_scene_fini(&fs);
	free(secret);
	test_remove_tree(outside);
}

static void names_do_not_climb_out(void **state)
{
	struct file_scene fs;

	(void)state;
	file_scene_init(&fs, test_temp_dir());
	file_scene_open(&fs);
	assert_int_equal(file_scene_put(&fs, "a/b", 10, 1, 0, false), 0);
	assert_true(file_scene_put(&fs, "../escaped/b", 10, 1, 0, false) < 0);
	assert_true(file_scene_get(&fs, "a/../../a/b", 10, 1, false) < 0);
	assert_false(file_scene_has(&fs, "../escaped"));
	file_scene_fini(&fs);
}

static void pipes_are_refused_without_waiting(void **state)
{
	struct file_scene fs;
	char *path;

	(void)state;
	for (int disk = 0; disk < 2; disk++) {
		file_scene_init(&fs, disk ? test_temp_dir_on_disk() : test_temp_dir());
		file_scene_open(&fs);
		path = file_scene_path(&fs, "pipe");
		assert_int_equal(mkfifo(path, 0600), 0);
		free(path);
		assert_int_equal(file_scene_get(&fs, "pipe", 4096, 1, false), KVT_EACCES);
		assert_string_equal(file_scene_detail(&fs), "get pipe: not a regular file");
		assert_int_equal(testsession_head(&fs.ts, "pipe", NULL), KVT_EACCES);
		file_scene_fini(&fs);
	}
}

/* ---- Objects ---- */

static void removed_objects_leave_no_empty_folders(void **state)
{
	struct file_scene fs;

	(void)state;
	file_scene_init(&fs, test_temp_dir());
	file_scene_open(&fs);
	assert_int_equal(file_scene_put(&fs, "base/abc/de_g0/1.bin", 10, 1, 0, false), 0);
	assert_int_equal(file_scene_put(&fs, "base/abc/df_g0/2.bin", 10, 1, 0, false), 0);
	assert_int_equal(testsession_remove(&fs.ts, "base/abc/de_g0/1.bin", NULL), 0);
	assert_false(file_scene_has(&fs, "base/abc/de_g0"));
	assert_true(file_scene_has(&fs, "base/abc/df_g0/2.bin"));
	assert_int_equal(testsession_remove(&fs.ts, "base/abc/df_g0/2.bin", NULL), 0);
	assert_false(file_scene_has(&fs, "base/abc"));
	assert_true(file_scene_has(&fs, "base"));
	assert_int_equal(file_scene_put(&fs, "base/abc/de_g0/1.bin", 10, 1, 0, false), 0);
	file_scene_fini(&fs);
}

static void a_touch_leaves_the_modification_time_alone(void **state)
{
	const struct timespec old[2] = {{.tv_sec = 1000}, {.tv_sec = 2000, .tv_nsec = 5}};
	struct kvt_object_info info;
	struct file_scene fs;
	struct stat st;
	char *path;

	(void)state;
	file_scene_init(&fs, test_temp_dir());
	file_scene_open(&fs);
	assert_int_equal(file_scene_put(&fs, "x", 10, 1, 0, false), 0);
	path = file_scene_path(&fs, "x");
	assert_int_equal(utimensat(AT_FDCWD, path, old, 0), 0);
	assert_int_equal(testsession_head(&fs.ts, "x", &info), 0);
	assert_true(info.access_age_ns > info.age_ns);
	assert_int_equal(
		testsession_run(&fs.ts, &(struct testio){.io = {.op = KVT_IO_TOUCH, .name = "x"}}),
		0);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mtim.tv_sec, 2000);
	assert_int_equal(st.st_mtim.tv_nsec, 5);
	assert_true(st.st_atim.tv_sec > 2000);
	assert_int_equal(testsession_head(&fs.ts, "x", &info), 0);
	assert_true(info.access_age_ns < info.age_ns);
	free(path);
	file_scene_fini(&fs);
}

static void offsets_beyond_two_gib_work_and_holes_cost_nothing(void **state)
{
	const uint64_t hole = UINT64_C(3) << 30;
	uint8_t head[4096], tail[4096], got[4096];
	struct kvt_iovec iov[3] = {{head, 4096}, {NULL, hole}, {tail, 4096}};
	struct file_scene fs;
	struct stat st;
	char *path;

	(void)state;
	test_fill(head, sizeof(head), 1);
	test_fill(tail, sizeof(tail), 2);
	file_scene_init(&fs, test_temp_dir());
	file_scene_open(&fs);
	assert_int_equal(
		testsession_run(&fs.ts, &(struct testio){.io = {.op = KVT_IO_PUT,
								.name = "big",
								.iov = iov,
								.iov_count = 3,
								.length = hole + 8192,
								.object_bytes = hole + 8192}}),
		0);
	path = file_scene_path(&fs, "big");
	assert_int_equal(stat(path, &st), 0);
	free(path);
	assert_int_equal(st.st_size, hole + 8192);
	assert_true(st.st_blocks < 1000);
	assert_int_equal(testsession_get(&fs.ts, "big", got, 4096, (int64_t)hole + 4096, NULL), 0);
	assert_memory_equal(got, tail, 4096);
	assert_int_equal(testsession_get(&fs.ts, "big", got, 4096, -4096, NULL), 0);
	assert_memory_equal(got, tail, 4096);
	assert_int_equal(testsession_get(&fs.ts, "big", got, 4096, 0, NULL), 0);
	assert_memory_equal(got, head, 4096);
	file_scene_fini(&fs);
}

struct names {
	char text[256];
};

static int gather(struct kvt_io *io, const struct kvt_list_item *item)
{
	struct testio *t = io->owner;
	struct names *names = (struct names *)(void *)t->detail;

	snprintf(names->text + strlen(names->text), sizeof(names->text) - strlen(names->text),
		 "%s ", item->name);
	return 0;
}

static void listings_are_sorted_and_show_files_alone(void **state)
{
	static const char *const files[] = {"b.c", "b/y", "b/x", "a", "b-c", "config.json"};
	char token[2048] = "", *path;
	struct testio t = {.io = {.op = KVT_IO_LIST,
				  .name = "",
				  .list_item = gather,
				  .list_token = token,
				  .list_token_bytes = sizeof(token),
				  .list_max = 100}};
	struct file_scene fs;

	(void)state;
	file_scene_init(&fs, test_temp_dir());
	file_scene_open(&fs);
	for (size_t i = 0; i < TEST_COUNT(files); i++)
		assert_int_equal(file_scene_put(&fs, files[i], 10, i, 0, false), 0);
	path = file_scene_path(&fs, "link");
	assert_int_equal(symlink("b", path), 0);
	free(path);
	path = file_scene_path(&fs, "b/link");
	assert_int_equal(symlink("x", path), 0);
	free(path);
	assert_int_equal(testsession_run(&fs.ts, &t), 0);
	assert_string_equal(t.detail, "a b-c b.c b/x b/y config.json ");
	assert_string_equal(token, "");
	file_scene_fini(&fs);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_root_is_made_with_its_parents_for_its_owner_alone),
		cmocka_unit_test(locations_are_absolute_relative_or_refused),
		cmocka_unit_test(a_root_that_all_may_write_to_is_refused_unless_it_is_ours),
		cmocka_unit_test(bad_option_values_are_named),
		cmocka_unit_test(modes_hold_whatever_the_umask),
		cmocka_unit_test(what_was_chosen_is_told),
		cmocka_unit_test(no_link_is_followed),
		cmocka_unit_test(names_do_not_climb_out),
		cmocka_unit_test(pipes_are_refused_without_waiting),
		cmocka_unit_test(removed_objects_leave_no_empty_folders),
		cmocka_unit_test(a_touch_leaves_the_modification_time_alone),
		cmocka_unit_test(offsets_beyond_two_gib_work_and_holes_cost_nothing),
		cmocka_unit_test(listings_are_sorted_and_show_files_alone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
