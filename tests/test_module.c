/* SPDX-License-Identifier: Apache-2.0 */
/* Loading backends from shared objects: where they are looked for, and each reason to refuse one.
 */
#include "support.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define KVT_TEST_SANITIZER
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define KVT_TEST_SANITIZER
#endif
#endif

#define SOMEBODY_ELSE 54321

static struct kvt_option no_options[1];

static int open_with(const char *uri, const struct kvt_option *options, size_t count,
		     struct kvt_store **storep)
{
	struct kvt_store_options o = KVT_INIT(o);

	o.uri = uri;
	o.options = options;
	o.option_count = count;
	o.namespace_name = "ns";
	return kvt_store_open(&o, storep);
}

static int open_module(const char *uri, const char *option, const char *value)
{
	struct kvt_option options[] = {{option, value}};
	struct kvt_store *store;
	int error = open_with(uri, options, 1, &store);

	if (error == 0)
		assert_ok(kvt_store_close(store));
	else
		assert_null(store);
	return error;
}

/* A copy of a built module in a folder. */
static char *copy_module(const char *folder, const char *name, const char *as)
{
	char *from = test_format("%s/kvtier-backend-%s.so", KVT_TEST_FAKE_MODULE_DIR, name);
	char *to = test_format("%s/kvtier-backend-%s.so", folder, as);
	size_t bytes;
	uint8_t *data = test_read_file(from, &bytes);

	if (data == NULL)
		fail_msg("%s: is not built", from);
	test_write_file(to, data, bytes);
	assert_int_equal(chmod(to, 0644), 0);
	free(data);
	free(from);
	return to;
}

/* The folders where builds put things may be writable by a group: a copy is used that is not. */
static char *module_dir;

static int make_module_dir(void **state)
{
	static const char *const names[] = {"tiny",	  "s3+tiny",   "shell",	     "oldabi",
					    "refuses",	  "othername", "incomplete", "nosymbol",
					    "unresolved", "apart"};

	(void)state;
	module_dir = test_temp_dir_on_disk();
	for (size_t i = 0; i < TEST_COUNT(names); i++)
		free(copy_module(module_dir, names[i], names[i]));
	return 0;
}

static int remove_module_dir(void **state)
{
	(void)state;
	test_remove_tree(module_dir);
	return 0;
}

/* ---- Modules that load ---- */

static void a_scheme_loads_its_module_from_the_folder_of_the_option(void **state)
{
	struct kvt_option options[] = {{"module_dir", module_dir}, {"color", "blue"}};
	struct kvt_store_info info = KVT_INIT(info);
	struct kvt_store *store;

	(void)state;
	assert_ok(open_with("tiny://somewhere", options, 2, &store));
	assert_ok(kvt_store_get_info(store, &info));
	assert_string_equal(info.backend, "tiny");
	assert_string_equal(info.backend_detail, "color=blue");
	assert_ok(kvt_store_close(store));
	/* It stays loaded. */
	assert_ok(open_with("tiny:", no_options, 0, &store));
	assert_ok(kvt_store_close(store));
}

static void options_of_a_module_are_known_once_it_is_loaded(void **state)
{
	struct kvt_option options[] = {{"module_dir", module_dir}, {"colour", "blue"}};
	struct kvt_store *store;

	(void)state;
	assert_fails(KVT_EINVAL, "option colour", open_with("tiny:", options, 2, &store));
	assert_non_null(strstr(kvt_error_detail(), "nearest known is color"));
}

static void a_module_is_loaded_by_absolute_path_and_only_from_there(void **state)
{
	char *folder = test_temp_dir_on_disk();
	char *other = copy_module(folder, "tiny", "tiny");
	char *path = test_format("%s/kvtier-backend-tiny.so", module_dir);

	(void)state;
	assert_ok(open_module("tiny:", "module", path));
	assert_ok(open_module("tiny:", "module", path));
	assert_fails(KVT_EMODULE, "registered already from", open_module("tiny:", "module", other));
	free(path);
	free(other);
	test_remove_tree(folder);
}

static void a_built_in_scheme_is_not_replaced_by_a_module(void **state)
{
	char *path = test_format("%s/kvtier-backend-tiny.so", module_dir);

	(void)state;
	assert_fails(KVT_EMODULE, "brings the backend \"tiny\"",
		     open_module("mem:", "module", path));
	free(path);
}

static void a_scheme_with_a_plus_is_a_module_of_its_own(void **state)
{
	(void)state;
	assert_ok(open_module("s3+tiny://bucket", "module_dir", module_dir));
}

static void a_wrapper_may_be_a_module(void **state)
{
	struct kvt_option options[] = {{"module_dir", module_dir}};
	struct kvt_store_info info = KVT_INIT(info);
	struct kvt_store *store;

	(void)state;
	assert_ok(open_with("shell+mem:", options, 1, &store));
	assert_ok(kvt_store_get_info(store, &info));
	assert_string_equal(info.backend, "shell");
	assert_ok(kvt_store_probe(store, NULL, NULL));
	assert_ok(kvt_store_close(store));
	assert_fails(KVT_EINVAL, "wraps another backend", open_with("shell:", options, 1, &store));
}

static void a_module_finds_its_own_names_first(void **state)
{
	struct kvt_option options[] = {{"module_dir", module_dir}};
	struct kvt_store_info info = KVT_INIT(info);
	struct kvt_store *store;
	void *library = dlopen(KVT_TEST_FAKE_MODULE_DIR "/global.so", RTLD_NOW | RTLD_GLOBAL);

	(void)state;
	if (library == NULL)
		fail_msg("%s", dlerror());
	assert_ok(open_with("apart:", options, 1, &store));
	assert_ok(kvt_store_get_info(store, &info));
#ifdef KVT_TEST_SANITIZER
	/* Sanitizers refuse RTLD_DEEPBIND: the module is loaded all the same. */
	assert_string_equal(info.backend_detail, "of the program");
#else
	assert_string_equal(info.backend_detail, "of the module");
#endif
	assert_ok(kvt_store_close(store));
	/* And nobody else finds them. */
	assert_null(dlsym(RTLD_DEFAULT, "kvt_backend_entry"));
	assert_int_equal(dlclose(library), 0);
}

/* ---- Modules that do not ---- */

static void what_is_wrong_inside_a_module_is_said(void **state)
{
	static const struct {
		const char *scheme, *text;
	} cases[] = {
		{"oldabi", "abi: 99, expected 1"},
		{"refuses", "cannot work with backend ABI 1"},
		{"othername", "brings the backend \"another\""},
		{"incomplete", "submit: NULL"},
		{"nosymbol", "has no symbol kvt_backend_entry"},
		{"unresolved", "kvt_test_symbol_that_nobody_has"},
	};

	(void)state;
	for (size_t i = 0; i < TEST_COUNT(cases); i++) {
		char *uri = test_format("%s:", cases[i].scheme);
		char *path = test_format("%s/kvtier-backend-%s.so", module_dir, cases[i].scheme);

		/* Again and again, and by either way. */
		for (int again = 0; again < 2; again++) {
			assert_fails(KVT_EMODULE, cases[i].text,
				     open_module(uri, "module_dir", module_dir));
			assert_non_null(strstr(kvt_error_detail(), cases[i].scheme));
			assert_null(strchr(kvt_error_detail(), '\n'));
			assert_fails(KVT_EMODULE, cases[i].text, open_module(uri, "module", path));
		}
		free(path);
		free(uri);
	}
}

static void relative_paths_are_refused(void **state)
{
	(void)state;
	assert_fails(KVT_EINVAL, "option module: \"kvtier-backend-tiny.so\"",
		     open_module("tiny:", "module", "kvtier-backend-tiny.so"));
	assert_fails(KVT_EINVAL, "absolute", open_module("tiny:", "module", "./x.so"));
	assert_fails(KVT_EINVAL, "absolute", open_module("tiny:", "module", ""));
	assert_fails(KVT_EINVAL, "option module_dir: \"modules\"",
		     open_module("tiny:", "module_dir", "modules"));
}

static void what_is_no_shared_object_is_refused(void **state)
{
	char *folder = test_temp_dir_on_disk();
	char *text = test_format("%s/kvtier-backend-text.so", folder);
	char *sub = test_format("%s/kvtier-backend-sub.so", folder);
	char *missing = test_format("%s/kvtier-backend-missing.so", folder);

	(void)state;
	test_write_file(text, "not a module", 12);
	assert_int_equal(chmod(text, 0644), 0);
	assert_int_equal(mkdir(sub, 0755), 0);
	assert_fails(KVT_EMODULE, "kvtier-backend-text.so",
		     open_module("text:", "module_dir", folder));
	assert_fails(KVT_EMODULE, "not a regular file", open_module("sub:", "module_dir", folder));
	assert_fails(KVT_EMODULE, "No such file", open_module("missing:", "module", missing));
	assert_fails(KVT_EINVAL, "scheme \"missing\": unknown",
		     open_module("missing:", "module_dir", folder));
	assert_non_null(strstr(kvt_error_detail(), missing));
	free(text);
	free(sub);
	free(missing);
	test_remove_tree(folder);
}

static void a_file_that_others_may_write_is_refused(void **state)
{
	static const mode_t modes[] = {0666, 0646, 0664, 0620};
	char *folder = test_temp_dir_on_disk();
	char *path = copy_module(folder, "tiny", "loose");

	(void)state;
	for (size_t i = 0; i < TEST_COUNT(modes); i++) {
		char *mode = test_format("mode %04o", (unsigned)modes[i]);

		assert_int_equal(chmod(path, modes[i]), 0);
		assert_fails(KVT_EMODULE, "lets others write",
			     open_module("loose:", "module_dir", folder));
		assert_non_null(strstr(kvt_error_detail(), mode));
		assert_non_null(strstr(kvt_error_detail(), path));
		assert_fails(KVT_EMODULE, "lets others write",
			     open_module("loose:", "module", path));
		free(mode);
	}
	/* That was the only thing wrong with it. */
	assert_int_equal(chmod(path, 0644), 0);
	assert_fails(KVT_EMODULE, "brings the backend \"tiny\"",
		     open_module("loose:", "module_dir", folder));
	free(path);
	test_remove_tree(folder);
}

static void a_folder_that_others_may_write_is_refused(void **state)
{
	static const mode_t modes[] = {0777, 01777, 0757, 0775};
	char *folder = test_temp_dir_on_disk();
	char *path = copy_module(folder, "tiny", "loose");

	(void)state;
	for (size_t i = 0; i < TEST_COUNT(modes); i++) {
		assert_int_equal(chmod(folder, modes[i]), 0);
		assert_fails(KVT_EMODULE, "lets others write",
			     open_module("loose:", "module_dir", folder));
		assert_non_null(strstr(kvt_error_detail(), "folder"));
		assert_fails(KVT_EMODULE, "folder", open_module("loose:", "module", path));
	}
	assert_int_equal(chmod(folder, 0755), 0);
	free(path);
	test_remove_tree(folder);
}

static void a_link_in_a_loose_folder_to_a_fine_module_is_refused(void **state)
{
	char *folder = test_temp_dir_on_disk();
	char *target = test_format("%s/kvtier-backend-tiny.so", module_dir);
	char *link_path = test_format("%s/kvtier-backend-linked.so", folder);

	(void)state;
	assert_int_equal(symlink(target, link_path), 0);
	assert_int_equal(chmod(folder, 0777), 0);
	assert_fails(KVT_EMODULE, folder, open_module("linked:", "module_dir", folder));
	/* And the other way round: a link in a fine folder to a loose one. */
	free(target);
	target = copy_module(folder, "tiny", "elsewhere");
	char *fine = test_temp_dir_on_disk();
	char *fine_link = test_format("%s/kvtier-backend-linked.so", fine);

	assert_int_equal(symlink(target, fine_link), 0);
	assert_fails(KVT_EMODULE, folder, open_module("linked:", "module_dir", fine));
	free(target);
	free(link_path);
	free(fine_link);
	test_remove_tree(folder);
	test_remove_tree(fine);
}

static void what_belongs_to_somebody_else_is_refused(void **state)
{
	char *folder = test_temp_dir_on_disk();
	char *path = copy_module(folder, "tiny", "theirs");

	(void)state;
	if (chown(path, SOMEBODY_ELSE, (gid_t)-1) != 0) {
		print_message("only root can give files away: skipped\n");
		free(path);
		test_remove_tree(folder);
		skip();
	}
	assert_fails(KVT_EMODULE, "belongs to user 54321",
		     open_module("theirs:", "module_dir", folder));
	assert_int_equal(chown(path, geteuid(), (gid_t)-1), 0);
	assert_int_equal(chown(folder, SOMEBODY_ELSE, (gid_t)-1), 0);
	assert_fails(KVT_EMODULE, "belongs to user 54321", open_module("theirs:", "module", path));
	assert_non_null(strstr(kvt_error_detail(), "folder"));
	assert_int_equal(chown(folder, geteuid(), (gid_t)-1), 0);
	free(path);
	test_remove_tree(folder);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_scheme_loads_its_module_from_the_folder_of_the_option),
		cmocka_unit_test(options_of_a_module_are_known_once_it_is_loaded),
		cmocka_unit_test(a_module_is_loaded_by_absolute_path_and_only_from_there),
		cmocka_unit_test(a_built_in_scheme_is_not_replaced_by_a_module),
		cmocka_unit_test(a_scheme_with_a_plus_is_a_module_of_its_own),
		cmocka_unit_test(a_wrapper_may_be_a_module),
		cmocka_unit_test(a_module_finds_its_own_names_first),
		cmocka_unit_test(what_is_wrong_inside_a_module_is_said),
		cmocka_unit_test(relative_paths_are_refused),
		cmocka_unit_test(what_is_no_shared_object_is_refused),
		cmocka_unit_test(a_file_that_others_may_write_is_refused),
		cmocka_unit_test(a_folder_that_others_may_write_is_refused),
		cmocka_unit_test(a_link_in_a_loose_folder_to_a_fine_module_is_refused),
		cmocka_unit_test(what_belongs_to_somebody_else_is_refused),
	};

	return cmocka_run_group_tests(tests, make_module_dir, remove_module_dir);
}
