/* SPDX-License-Identifier: Apache-2.0 */
/* The options of the module on libs3, what it refuses, and the module in the core's hands. */
#include "libs3_scene.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEYS                                                                                       \
	{"access_key", "key"},                                                                     \
	{                                                                                          \
		"secret_key", "hush"                                                               \
	}

/* Opens and closes. What is said on failure stays to be asked for, and holds no secret. */
static int open_with(const char *location, const struct kvt_option_value *options, size_t count,
		     struct kvt_backend_limits *limits)
{
	struct testhost th;
	struct testbackend tb;
	int error;

	testhost_init(&th);
	testhost_forget();
	error = testbackend_open(&tb, &th,
				 &(struct testbackend_options){.ops = libs3_ops,
							       .location = location,
							       .options = options,
							       .option_count = count});
	if (!error) {
		if (limits)
			*limits = tb.limits;
		assert_null(strstr(tb.limits.detail, "hush"));
		testbackend_close(&tb);
	} else {
		assert_string_not_equal(testhost_failure(), "");
		assert_null(strstr(testhost_failure(), "hush"));
		assert_null(strchr(testhost_failure(), '\n'));
	}
	assert_int_equal(atomic_load(&th.live), 0);
	return error;
}

static bool has_option(const char *name)
{
	for (const struct kvt_option_spec *o = libs3_ops->option_specs; o->name; o++)
		if (!strcmp(o->name, name))
			return true;
	return false;
}

static void locations_and_options_are_checked_one_by_one(void **state)
{
	static const struct {
		const char *location, *name, *value;
		int error;
		const char *text;
	} cases[] = {
		{"//bucket", NULL, NULL, 0, NULL},
		{"//bucket/", NULL, NULL, 0, NULL},
		{"//bucket/a/b.c/", NULL, NULL, 0, NULL},
		{"//bucket//a", NULL, NULL, 0, NULL},
		{"bucket", NULL, NULL, KVT_EINVAL, "expected s3+libs3://bucket/prefix"},
		{"//", NULL, NULL, KVT_EINVAL, "bucket \"\""},
		{"//a", NULL, NULL, KVT_EINVAL, "InvalidBucketNameTooShort"},
		{"//bucket?region=x", NULL, NULL, KVT_EINVAL, "options apart"},
		{"//key:hush@bucket", NULL, NULL, KVT_EINVAL, "expected s3+libs3://bucket/prefix"},
		{"//bucket/a//b", NULL, NULL, KVT_EINVAL, "prefix \"a//b\""},
		{"//bucket/a/../b", NULL, NULL, KVT_EINVAL, "prefix"},
		{"//bucket/./b", NULL, NULL, KVT_EINVAL, "prefix"},
		{"//bucket", "scheme", "http", 0, NULL},
		{"//bucket", "scheme", "https", KVT_EINVAL, "the scheme of the endpoint"},
		{"//bucket", "scheme", "ftp", KVT_EINVAL, "http or https"},
		{"//bucket", "addressing", "virtual", 0, NULL},
		{"//bucket", "addressing", "host", KVT_EINVAL, "path or virtual"},
		{"//bucket", "verify", "off", 0, NULL},
		{"//bucket", "verify", "maybe", KVT_EINVAL, "on or off"},
		{"//bucket", "max_object_bytes", "1MiB", 0, NULL},
		{"//bucket", "max_object_bytes", "5GiB", 0, NULL},
		{"//bucket", "max_object_bytes", "12345678", 0, NULL},
		{"//bucket", "max_object_bytes", "1", KVT_EINVAL, "1MiB to 5GiB"},
		{"//bucket", "max_object_bytes", "6GiB", KVT_EINVAL, "1MiB to 5GiB"},
		{"//bucket", "max_object_bytes", "99999999999999999999", KVT_EINVAL, "5GiB"},
		{"//bucket", "max_object_bytes", "64 MB", KVT_EINVAL, "\"64 MB\""},
		{"//bucket", "max_object_bytes", "", KVT_EINVAL, "\"\""},
	};

	(void)state;
	for (size_t i = 0; i < TEST_COUNT(cases); i++) {
		struct kvt_option_value options[] = {
			{"endpoint", "http://127.0.0.1:9"}, KEYS, {cases[i].name, cases[i].value}};
		int error = open_with(cases[i].location, options, cases[i].name ? 4 : 3, NULL);

		if (error != cases[i].error ||
		    (error && !strstr(testhost_failure(), cases[i].text)))
			fail_msg("%s %s=%s: %s: %s", cases[i].location, cases[i].name,
				 cases[i].value, testhost_code(error), testhost_failure());
	}
}

static void endpoints_are_checked(void **state)
{
	static const struct {
		const char *endpoint;
		const char *detail; /* NULL: refused */
	} cases[] = {
		{"http://127.0.0.1", "endpoint=http://127.0.0.1 "},
		{"http://host-1.example:8480", "endpoint=http://host-1.example:8480 "},
		{"http://host/", "endpoint=http://host "},
		{"http://[::1]:8480", "endpoint=http://[::1]:8480 "},
		{"http://[::1]", "endpoint=http://[::1] "},
		{"", NULL},
		{"http://", NULL},
		{"ftp://host", NULL},
		{"http://host/path", NULL},
		{"http://host:0", NULL},
		{"http://host:65536", NULL},
		{"http://host:", NULL},
		{"http://host:80x", NULL},
		{"http://ho st", NULL},
		{"http://host?x", NULL},
		{"http://host#x", NULL},
		{"http://me:hush@host", NULL},
		{"http://[::1", NULL},
		{"http://host\r\nX: y", NULL},
	};
	char longest[300] = "http://";

	(void)state;
	for (size_t i = 0; i < TEST_COUNT(cases); i++) {
		struct kvt_option_value options[] = {{"endpoint", cases[i].endpoint}, KEYS};
		struct kvt_backend_limits limits = {0};
		int error = open_with("//bucket", options, 3, &limits);

		if (error != (cases[i].detail ? 0 : KVT_EINVAL))
			fail_msg("%s: %s: %s", cases[i].endpoint, testhost_code(error),
				 testhost_failure());
		if (cases[i].detail && !strstr(limits.detail, cases[i].detail))
			fail_msg("%s: %s", cases[i].endpoint, limits.detail);
	}
	memset(longest + 7, 'h', 200);
	struct kvt_option_value options[] = {{"endpoint", longest}, KEYS};

	assert_int_equal(open_with("//bucket", options, 3, NULL), KVT_EINVAL);
}

static void names_have_the_room_that_the_prefix_leaves(void **state)
{
	struct kvt_option_value options[] = {{"endpoint", "http://127.0.0.1:9"}, KEYS};
	struct kvt_backend_limits limits;
	char location[1100] = "//bucket/";

	(void)state;
	assert_int_equal(open_with("//bucket", options, 3, &limits), 0);
	assert_int_equal(limits.max_name_bytes, 1023);
	assert_int_equal(open_with("//bucket/abc", options, 3, &limits), 0);
	assert_int_equal(limits.max_name_bytes, 1019);
	memset(location + strlen(location), 'p', 700);
	assert_int_equal(open_with(location, options, 3, &limits), 0);
	assert_int_equal(limits.max_name_bytes, 322);
	memset(location + strlen(location), 'p', 1);
	assert_int_equal(open_with(location, options, 3, &limits), KVT_EINVAL);
}

static void keys_come_from_options_or_the_environment(void **state)
{
	struct kvt_option_value options[] = {{"endpoint", "http://127.0.0.1:9"}, KEYS};
	struct kvt_option_value odd[] = {{"endpoint", "http://127.0.0.1:9"},
					 {"access_key", "key"},
					 {"secret_key", "hush hush"}};

	(void)state;
	assert_int_equal(open_with("//bucket", options, 1, NULL), KVT_ECONFIG);
	assert_non_null(strstr(testhost_failure(), "AWS_SECRET_ACCESS_KEY"));
	assert_int_equal(open_with("//bucket", options, 2, NULL), KVT_EINVAL);
	assert_int_equal(open_with("//bucket", odd, 3, NULL), KVT_EINVAL);
	setenv("AWS_ACCESS_KEY_ID", "key", 1);
	assert_int_equal(open_with("//bucket", options, 1, NULL), KVT_ECONFIG);
	setenv("AWS_SECRET_ACCESS_KEY", "hush", 1);
	assert_int_equal(open_with("//bucket", options, 1, NULL), 0);
	/* Half of them from here and half from there is a mistake. */
	assert_int_equal(open_with("//bucket", options, 2, NULL), KVT_EINVAL);
	if (!has_option("session_token")) {
		setenv("AWS_SESSION_TOKEN", "hush", 1);
		assert_int_equal(open_with("//bucket", options, 1, NULL), KVT_ECONFIG);
		assert_non_null(strstr(testhost_failure(), "cannot send a session token"));
		/* It belongs to the keys of the environment. */
		assert_int_equal(open_with("//bucket", options, 3, NULL), 0);
	}
	libs3_clear_environment();
}

static void the_endpoint_may_come_from_the_environment(void **state)
{
	struct kvt_option_value options[] = {KEYS, {"endpoint", "http://option"}};
	struct kvt_backend_limits limits;

	(void)state;
	assert_int_equal(open_with("//bucket", options, 2, NULL), KVT_ECONFIG);
	assert_non_null(strstr(testhost_failure(), "no endpoint"));
	setenv("AWS_ENDPOINT_URL", "http://general", 1);
	assert_int_equal(open_with("//bucket", options, 2, &limits), 0);
	assert_non_null(strstr(limits.detail, "http://general "));
	setenv("AWS_ENDPOINT_URL_S3", "http://special", 1);
	assert_int_equal(open_with("//bucket", options, 2, &limits), 0);
	assert_non_null(strstr(limits.detail, "http://special "));
	assert_int_equal(open_with("//bucket", options, 3, &limits), 0);
	assert_non_null(strstr(limits.detail, "http://option "));
	setenv("AWS_ENDPOINT_URL_S3", "nonsense://", 1);
	assert_int_equal(open_with("//bucket", options, 2, NULL), KVT_ECONFIG);
	libs3_clear_environment();
}

static void https_needs_a_libs3_that_verifies_or_verify_off(void **state)
{
	struct kvt_option_value options[] = {
		{"endpoint", "https://127.0.0.1:9"}, KEYS, {"verify", "off"}};
	char *ca, *certificate, *key;
	struct libs3_scene s = {0};
	const char *why;

	(void)state;
	if (has_option("region")) {
		print_message("  skipped: this libs3 verifies\n");
		skip();
	}
	assert_int_equal(open_with("//bucket", options, 3, NULL), KVT_ECONFIG);
	assert_non_null(strstr(testhost_failure(), "verify=off"));
	options[0].value = "https://[::1]:9";
	assert_int_equal(open_with("//bucket", options, 3, NULL), KVT_ECONFIG);
	/* And with it, TLS works. */
	assert_true(s3_server_certify("127.0.0.1", S3_CERT_GOOD, &ca, &certificate, &key));
	s.server = s3_server_start(
		&(struct s3_server_options){.certificate = certificate, .certificate_key = key},
		&why);
	assert_non_null(s.server);
	options[0].value = s3_server_url(s.server);
	testhost_init(&s.th);
	assert_int_equal(testbackend_open(&s.tb, &s.th,
					  &(struct testbackend_options){.ops = libs3_ops,
									.location = "//bucket/p",
									.options = options,
									.option_count = 4}),
			 0);
	/* Not without a warning. */
	assert_int_equal(atomic_load(&s.th.log_lines), 1);
	assert_int_equal(testsession_open(&s.ts, &s.tb, 1, 0), 0);
	assert_int_equal(libs3_put(&s, "k", 70000, 1, NULL), 0);
	libs3_expect(&s, "k", 70000, 1);
	assert_int_equal(libs3_get(&s, "k", 70000, 1, 100, 60000, NULL), 0);
	testsession_close(&s.ts);
	testbackend_close(&s.tb);
	s3_server_stop(s.server);
	free(ca);
	free(certificate);
	free(key);
}

/* ---- In the core's hands ---- */

static void open_bed(struct test_bed *bed, struct s3_server *server)
{
	static char *module_dir;

	/* The folder of the build may be one that others can write to. */
	if (!module_dir) {
		size_t bytes;
		uint8_t *data =
			test_read_file(KVT_TEST_MODULE_DIR "/kvtier-backend-s3+libs3.so", &bytes);
		char *path;

		assert_non_null(data);
		module_dir = test_temp_dir_on_disk();
		path = test_format("%s/kvtier-backend-s3+libs3.so", module_dir);
		test_write_file(path, data, bytes);
		free(path);
		free(data);
	}
	test_bed_init(bed);
	test_bed_option(bed, "module_dir", module_dir);
	test_bed_option(bed, "endpoint", s3_server_url(server));
	test_bed_option(bed, "access_key", "key");
	test_bed_option(bed, "secret_key", "hush");
	test_bed_open(bed, "s3+libs3://bucket/cache");
}

static void chunks_go_there_and_back_in_one_part_and_in_many(void **state)
{
	/* Parts are of 64 KiB in this bed. */
	static const struct test_group groups[] = {{4, 0, 2, {4096, 8192}}, {8, 0, 1, {100000}}};
	const char *why;
	struct s3_server *server = s3_server_start(&(struct s3_server_options){0}, &why);
	struct test_transfer t;
	struct test_bed bed;

	(void)state;
	assert_non_null(server);
	open_bed(&bed, server);
	assert_ok(kvt_store_probe(bed.store, NULL, NULL));
	test_transfer_init(&t, 4, groups, TEST_COUNT(groups), 1);
	test_transfer_fill(&t);
	assert_ok(kvt_worker_submit_store(bed.worker, ++bed.next_id, &t.transfer, NULL));
	assert_result(KVT_STATUS_STORED, test_take(bed.worker, bed.next_id));
	test_transfer_poison(&t);
	assert_ok(kvt_worker_submit_load(bed.worker, ++bed.next_id, &t.transfer, NULL));
	assert_result(KVT_STATUS_LOADED, test_take(bed.worker, bed.next_id));
	test_transfer_check(&t);
	test_transfer_fini(&t);
	test_bed_close(&bed);
	s3_server_stop(server);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(locations_and_options_are_checked_one_by_one),
		cmocka_unit_test(endpoints_are_checked),
		cmocka_unit_test(names_have_the_room_that_the_prefix_leaves),
		cmocka_unit_test(keys_come_from_options_or_the_environment),
		cmocka_unit_test(the_endpoint_may_come_from_the_environment),
		cmocka_unit_test(https_needs_a_libs3_that_verifies_or_verify_off),
		cmocka_unit_test(chunks_go_there_and_back_in_one_part_and_in_many),
	};

	libs3_clear_environment();
	libs3_ops = libs3_load(LIBS3_PACKAGED);
	if (!libs3_ops)
		return 77;
	return cmocka_run_group_tests_name("libs3 options", tests, NULL, NULL);
}
