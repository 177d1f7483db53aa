/* SPDX-License-Identifier: Apache-2.0 */
/* Profile files are read as the AWS tools write them, and what cannot be read is said by its line,
 * never by its text. */
#include "s3_config_scene.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../backends/s3/profile.h"

static struct s3_profile_file *parse(struct scene *scene, enum s3_profile_kind kind,
				     const char *text)
{
	struct s3_profile_file *file;

	scene_refused(
		0, "",
		kvt__s3_profile_parse(&scene->th.host, "file", text, strlen(text), kind, &file),
		text, __LINE__);
	assert_non_null(file);
	return file;
}

/* One value of one text; NULL: expected not to be there. */
static void check(struct scene *scene, enum s3_profile_kind kind, const char *text,
		  const char *profile, const char *name, const char *expected)
{
	struct s3_profile_file *file = parse(scene, kind, text);
	const char *value = kvt__s3_profile_get(file, profile, name);

	if ((value == NULL) != (expected == NULL) ||
	    (value != NULL && strcmp(value, expected) != 0)) {
		print_error("%s: %s of %s is \"%s\", expected \"%s\"\n", text, name, profile,
			    value != NULL ? value : "(none)",
			    expected != NULL ? expected : "(none)");
		fail();
	}
	kvt__s3_profile_close(file);
}

static void names_and_values_are_read(void **state)
{
	static const struct {
		const char *text, *profile, *name, *value;
	} rows[] = {
		{"[a]\nregion = eu\n", "a", "region", "eu"},
		{"[a]\nregion=eu", "a", "region", "eu"},
		{"[a]\nregion\t=\t eu \t\n", "a", "region", "eu"},
		{"[a]\r\nregion = eu\r\noutput = json\r\n", "a", "region", "eu"},
		{"[a]\rregion = eu\routput = json\r", "a", "output", "json"},
		{"\xef\xbb\xbf[a]\nregion = eu\n", "a", "region", "eu"},
		{"[a]\nRegion = EU\n", "a", "region", "EU"},
		{"[a]\nregion: eu\n", "a", "region", "eu"},
		{"[a]\nendpoint_url = http://m:9000\n", "a", "endpoint_url", "http://m:9000"},
		{"[a]\nsecret = ab/cd+ef==\n", "a", "secret", "ab/cd+ef=="},
		{"[a]\nsecret = ab#c;d\n", "a", "secret", "ab#c;d"},
		{"[a]\nregion = eu # here\n", "a", "region", "eu"},
		{"[a]\nregion = eu ; here\n", "a", "region", "eu"},
		{"[a]\nregion = # nothing\n", "a", "region", NULL},
		{"[a]\nregion =\n", "a", "region", NULL},
		{"[a]\n# region = x\n; region = y\n\n", "a", "region", NULL},
		{"[a] # here\nregion = eu\n", "a", "region", "eu"},
		{"[a]; here\nregion = eu\n", "a", "region", "eu"},
		{"[ a ]\nregion = eu\n", "a", "region", "eu"},
		{"[\"a b\"]\nregion = eu\n", "a b", "region", "eu"},
		{"[a b]\nregion = eu\n", "a b", "region", "eu"},
		/* of several, the last one counts */
		{"[a]\nregion = x\nregion = eu\n", "a", "region", "eu"},
		{"[a]\nregion = x\n[b]\nregion = y\n[a]\nregion = eu\n", "a", "region", "eu"},
		{"[a]\nregion = x\n[b]\nregion = y\n[a]\nregion = eu\n", "b", "region", "y"},
		{"[a]\nregion = x\nregion =\n", "a", "region", NULL},
		/* nested blocks and values of several lines */
		{"[a]\ns3 =\n  region = x\n\tmax = 3\nregion = eu\n", "a", "region", "eu"},
		{"[a]\ns3 =\n  region = x\n", "a", "region", NULL},
		{"[a]\ns3 =\n  no such line\n  [b]\nregion = eu\n", "a", "region", "eu"},
		/* elsewhere */
		{"region = eu\n[a]\n", "a", "region", NULL},
		{"[a]\nregion = eu\n", "A", "region", NULL},
		{"[a]\nregion = eu\n", "b", "region", NULL},
		{"[a]\nregion = eu\n", "a", "regio", NULL},
		{"[profile a]\nregion = eu\n", "a", "region", NULL},
		{"", "a", "region", NULL},
		{"\n\n", "a", "region", NULL},
	};
	struct scene *scene = *state;

	for (size_t i = 0; i < TEST_COUNT(rows); i++)
		check(scene, S3_PROFILE_CREDENTIALS, rows[i].text, rows[i].profile, rows[i].name,
		      rows[i].value);
}

static void profiles_of_the_config_file_have_the_word_before_them(void **state)
{
	static const struct {
		const char *text, *profile, *value;
	} rows[] = {
		{"[profile a]\nregion = eu\n", "a", "eu"},
		{"[profile\ta]\nregion = eu\n", "a", "eu"},
		{"[ profile  a ]\nregion = eu\n", "a", "eu"},
		{"[profile \"a b\"]\nregion = eu\n", "a b", "eu"},
		{"[profile 'a b']\nregion = eu\n", "a b", "eu"},
		{"[default]\nregion = eu\n", "default", "eu"},
		{"[profile default]\nregion = eu\n", "default", "eu"},
		{"[a]\nregion = eu\n", "a", NULL},
		{"[profilea]\nregion = eu\n", "a", NULL},
		{"[sso-session a]\nregion = eu\n", "a", NULL},
		{"[services a]\nregion = eu\n[profile a]\n", "a", NULL},
		{"[profile]\nregion = eu\n", "profile", NULL},
	};
	struct scene *scene = *state;

	for (size_t i = 0; i < TEST_COUNT(rows); i++)
		check(scene, S3_PROFILE_CONFIG, rows[i].text, rows[i].profile, "region",
		      rows[i].value);
}

static void an_empty_section_is_there(void **state)
{
	struct scene *scene = *state;
	struct s3_profile_file *file =
		parse(scene, S3_PROFILE_CONFIG, "[default]\n[profile a]\n[services s]\nx = y\n");

	assert_true(kvt__s3_profile_has(file, "default"));
	assert_true(kvt__s3_profile_has(file, "a"));
	assert_false(kvt__s3_profile_has(file, "s"));
	assert_false(kvt__s3_profile_has(file, "profile a"));
	assert_false(kvt__s3_profile_has(NULL, "a"));
	assert_null(kvt__s3_profile_get(NULL, "a", "region"));
	kvt__s3_profile_close(file);
	kvt__s3_profile_close(NULL);
}

static void what_is_no_line_is_named_by_its_number(void **state)
{
	static const struct {
		const char *text, *says;
	} rows[] = {
		{"[a]\n" SCENE_SECRET "\n", "file: line 2, expected [section]"},
		{"[a]\r\n\r\n" SCENE_SECRET, "file: line 3, expected"},
		{"[a\nregion = " SCENE_SECRET "\n", "file: line 1, expected"},
		{"[a] " SCENE_SECRET "\n", "file: line 1, expected"},
		{"[a]\n= " SCENE_SECRET "\n", "file: line 2, expected"},
		{"\n\n[a]\nkey " SCENE_SECRET "\n", "file: line 4, expected"},
	};
	struct scene *scene = *state;
	struct s3_profile_file *file;

	for (size_t i = 0; i < TEST_COUNT(rows); i++) {
		int error =
			kvt__s3_profile_parse(&scene->th.host, "file", rows[i].text,
					      strlen(rows[i].text), S3_PROFILE_CREDENTIALS, &file);

		scene_refused(KVT_ECONFIG, rows[i].says, error, rows[i].text, __LINE__);
		assert_null(file);
		assert_null(strstr(scene_failure(), SCENE_SECRET));
	}
	scene_refused(KVT_ECONFIG, "file: a NUL, expected text",
		      kvt__s3_profile_parse(&scene->th.host, "file", "[a]\na = b\0c\n", 12,
					    S3_PROFILE_CREDENTIALS, &file),
		      __FILE__, __LINE__);
}

static void a_file_is_read_whole(void **state)
{
	struct scene *scene = *state;
	char *path = test_format("%s/file", scene->home);
	char *text = malloc(S3_PROFILE_MAX_BYTES + 1);
	struct s3_profile_file *file;

	assert_non_null(text);
	memset(text, '\n', S3_PROFILE_MAX_BYTES + 1);
	memcpy(text, "[a]", 3);
	memcpy(text + S3_PROFILE_MAX_BYTES - 11, "region = eu", 11);
	test_write_file(path, text, S3_PROFILE_MAX_BYTES);
	assert_int_equal(kvt__s3_profile_open(&scene->th.host, path, S3_PROFILE_CREDENTIALS, &file),
			 0);
	assert_string_equal(kvt__s3_profile_get(file, "a", "region"), "eu");
	kvt__s3_profile_close(file);

	test_write_file(path, text, S3_PROFILE_MAX_BYTES + 1);
	scene_refused(KVT_ECONFIG, "longer than 1048576 bytes",
		      kvt__s3_profile_open(&scene->th.host, path, S3_PROFILE_CREDENTIALS, &file),
		      __FILE__, __LINE__);
	assert_null(file);
	scene_refused(KVT_ECONFIG, "longer than 1048576 bytes",
		      kvt__s3_profile_parse(&scene->th.host, path, text, S3_PROFILE_MAX_BYTES + 1,
					    S3_PROFILE_CREDENTIALS, &file),
		      __FILE__, __LINE__);
	free(text);
	free(path);
}

static void what_is_no_file_is_said(void **state)
{
	struct scene *scene = *state;
	const struct kvt_host *host = &scene->th.host;
	char *path = test_format("%s/none", scene->home);
	char *pipe = test_format("%s/pipe", scene->home);
	struct s3_profile_file *file;

	scene_refused(KVT_ENOENT, "No such file",
		      kvt__s3_profile_open(host, path, S3_PROFILE_CONFIG, &file), __FILE__,
		      __LINE__);
	assert_null(file);
	scene_refused(KVT_ENOENT, "Not a directory",
		      kvt__s3_profile_open(host, "/dev/null/x", S3_PROFILE_CONFIG, &file), __FILE__,
		      __LINE__);
	scene_refused(KVT_ECONFIG, "Is a directory, expected a readable file",
		      kvt__s3_profile_open(host, scene->home, S3_PROFILE_CONFIG, &file), __FILE__,
		      __LINE__);
	scene_refused(KVT_ECONFIG, "longer than",
		      kvt__s3_profile_open(host, "/dev/zero", S3_PROFILE_CONFIG, &file), __FILE__,
		      __LINE__);
	/* Nobody writes to it; it is not waited for. */
	assert_int_equal(mkfifo(pipe, 0600), 0);
	scene_refused(KVT_ECONFIG, "not a regular file",
		      kvt__s3_profile_open(host, pipe, S3_PROFILE_CONFIG, &file), __FILE__,
		      __LINE__);
	/* The usual way to say that there is none. */
	assert_int_equal(kvt__s3_profile_open(host, "/dev/null", S3_PROFILE_CONFIG, &file), 0);
	kvt__s3_profile_close(file);
	free(path);
	free(pipe);
}

/* Opens it as somebody who is not root; root may read everything. */
static int open_as_nobody(struct scene *scene, const char *path, bool *reachedp)
{
	struct s3_profile_file *file;
	struct stat info;
	int error, root = geteuid() == 0;

	if (root)
		assert_int_equal(seteuid(65534), 0);
	*reachedp = stat(path, &info) == 0;
	error = kvt__s3_profile_open(&scene->th.host, path, S3_PROFILE_CONFIG, &file);
	if (root)
		assert_int_equal(seteuid(0), 0);
	return error;
}

static void a_file_that_may_not_be_read_is_another_matter_than_a_folder(void **state)
{
	struct scene *scene = *state;
	char *folder = test_format("%s/closed", scene->home);
	char *path = test_format("%s/closed/config", scene->home);
	bool reached;
	int error;

	test_write_file(path, "[default]\n", 10);
	assert_int_equal(chmod(scene->home, 0755), 0);
	assert_int_equal(chmod(folder, 0755), 0);
	assert_int_equal(chmod(path, 0), 0);
	error = open_as_nobody(scene, path, &reached);
	if (!reached) {
		print_message("the temporary folder is closed to others\n");
		skip();
	}
	scene_refused(KVT_ECONFIG, "Permission denied, expected a readable file", error, __FILE__,
		      __LINE__);
	assert_int_equal(chmod(folder, 0), 0);
	error = open_as_nobody(scene, path, &reached);
	assert_int_equal(chmod(folder, 0755), 0);
	assert_int_equal(error, KVT_ENOENT);
	free(folder);
	free(path);
}

static void running_out_of_memory_leaves_nothing(void **state)
{
	struct scene *scene = *state;
	struct s3_profile_file *file;
	char *path = test_format("%s/file", scene->home);
	int error;

	test_write_file(path, "[a]\nsecret = " SCENE_SECRET "\n", 4 + 9 + 14 + 1);
	for (long n = 1;; n++) {
		atomic_store(&scene->th.allocations, 0);
		atomic_store(&scene->th.fail_at, n);
		error = kvt__s3_profile_open(&scene->th.host, path, S3_PROFILE_CREDENTIALS, &file);
		if (error == 0) {
			assert_true(n > 3);
			break;
		}
		scene_refused(KVT_ENOMEM, "out of memory", error, __FILE__, __LINE__);
		assert_null(file);
		assert_int_equal(atomic_load(&scene->th.live), 0);
	}
	atomic_store(&scene->th.fail_at, 0);
	assert_string_equal(kvt__s3_profile_get(file, "a", "secret"), SCENE_SECRET);
	kvt__s3_profile_close(file);
	free(path);
}

int main(void)
{
#define SCENE_TEST(name) cmocka_unit_test_setup_teardown(name, scene_setup, scene_teardown)
	const struct CMUnitTest tests[] = {
		SCENE_TEST(names_and_values_are_read),
		SCENE_TEST(profiles_of_the_config_file_have_the_word_before_them),
		SCENE_TEST(an_empty_section_is_there),
		SCENE_TEST(what_is_no_line_is_named_by_its_number),
		SCENE_TEST(a_file_is_read_whole),
		SCENE_TEST(what_is_no_file_is_said),
		SCENE_TEST(a_file_that_may_not_be_read_is_another_matter_than_a_folder),
		SCENE_TEST(running_out_of_memory_leaves_nothing),
	};
	return cmocka_run_group_tests_name("s3_profile", tests, NULL, NULL);
}
