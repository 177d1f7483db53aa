/* SPDX-License-Identifier: Apache-2.0 */
/* URIs, options and what each backend gets of them. */
#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "registry.h"
#include "uri.h"

/* ---- Backends that only serve to be named ---- */

static int any_open(const struct kvt_host *host, const struct kvt_backend_config *config,
		    void **backendp, struct kvt_backend_limits *limits)
{
	(void)host;
	(void)config;
	*backendp = limits;
	return 0;
}

static void any_close(void *backend)
{
	(void)backend;
}

static int any_session_open(void *backend, uint32_t depth, int listing, void **sessionp)
{
	(void)depth;
	(void)listing;
	*sessionp = backend;
	return 0;
}

static int any_submit(void *session, struct kvt_io *io)
{
	(void)session;
	io->result = KVT_ENOENT;
	return KVT_DONE;
}

static void register_backend(const char *name, uint32_t wraps, const struct kvt_option_spec *specs)
{
	struct kvt_backend_ops ops = {
		.struct_size = sizeof(ops),
		.abi = KVT_BACKEND_ABI,
		.wraps = wraps,
		.name = name,
		.option_specs = specs,
		.open = any_open,
		.close = any_close,
		.session_open = any_session_open,
		.session_close = any_close,
		.submit = any_submit,
	};

	assert_ok(kvt_backend_register(&ops));
}

static struct kvt__env env;

static int set_up(void **state)
{
	static const struct kvt_option_spec disk[] = {
		{"sync", "none", "when to sync"},
		{"mode", "0600", "of files"},
		{"delay_ms", "0", "seek time"},
		{NULL, NULL, NULL},
	};
	static const struct kvt_option_spec slow[] = {
		{"delay_ms", "10", "before each request"},
		{NULL, NULL, NULL},
	};

	static const struct kvt_option_spec bucket[] = {
		{"compat_names", "kvtier", "whose names"},
		{NULL, NULL, NULL},
	};

	(void)state;
	assert_ok(kvt__env_init(&env, NULL));
	register_backend("disk", 0, disk);
	register_backend("bare", 0, NULL);
	register_backend("bucket", 0, bucket);
	register_backend("slow", 1, slow);
	register_backend("log", 1, NULL);
	register_backend("cloud+disk", 0, disk);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	kvt__env_fini(&env);
	return 0;
}

/* ---- URIs ---- */

static void a_uri_names_its_backends_from_the_outside_in(void **state)
{
	static const struct {
		const char *uri, *location;
		uint32_t count;
		const char *names[KVT__MAX_WRAPPED];
	} cases[] = {
		{"disk:///srv/kv", "///srv/kv", 1, {"disk"}},
		{"bare:", "", 1, {"bare"}},
		{"disk:a:b:c", "a:b:c", 1, {"disk"}},
		{"slow+disk:///srv", "///srv", 2, {"slow", "disk"}},
		{"log+slow+disk:x", "x", 3, {"log", "slow", "disk"}},
		{"slow+log+slow+bare:x", "x", 4, {"slow", "log", "slow", "bare"}},
		{"cloud+disk://bucket", "//bucket", 1, {"cloud+disk"}},
		{"slow+cloud+disk://bucket", "//bucket", 2, {"slow", "cloud+disk"}},
	};

	(void)state;
	for (size_t c = 0; c < TEST_COUNT(cases); c++) {
		struct kvt__place place;

		assert_ok(kvt__place_init(&place, &env, cases[c].uri, NULL, 0));
		assert_int_equal(place.count, cases[c].count);
		for (uint32_t i = 0; i < place.count; i++) {
			assert_string_equal(place.ops[i]->name, cases[c].names[i]);
			assert_string_equal(place.configs[i].location, cases[c].location);
			assert_int_equal(place.configs[i].option_count, 0);
			if (i + 1 < place.count) {
				assert_ptr_equal(place.configs[i].inner, place.ops[i + 1]);
				assert_ptr_equal(place.configs[i].inner_config,
						 &place.configs[i + 1]);
			} else {
				assert_null(place.configs[i].inner);
				assert_null(place.configs[i].inner_config);
			}
		}
		kvt__place_fini(&place, &env);
	}
}

static void a_bad_uri_is_refused(void **state)
{
	static const struct {
		const char *uri, *text;
	} cases[] = {
		{"", "expected <scheme>:<location>"},
		{"/srv/kv", "\"/srv/kv\", expected <scheme>:<location>"},
		{"disk", "expected <scheme>:<location>"},
		{":", "scheme \"\""},
		{"Disk:x", "scheme \"Disk\""},
		{"di sk:x", "scheme \"di sk\""},
		{"disk+:x", "scheme \"disk+\""},
		{"+disk:x", "scheme \"+disk\""},
		{"slow++disk:x", "scheme \"slow++disk\""},
		{"tape:x", "scheme \"tape\": unknown"},
		{"slow+tape:x", "scheme \"tape\": unknown"},
		{"slow:x", "scheme \"slow\": wraps another backend"},
		{"log+slow:x", "scheme \"slow\": wraps another backend"},
		{"disk+bare:x", "scheme \"disk+bare\": unknown"},
		{"slow+slow+slow+slow+disk:x", "more than 4 schemes"},
		{"disk:a\nb", "byte 6 is a control character"},
		{"disk:\x7f", "control character"},
	};
	char *longer = malloc(KVT__MAX_URI + 2);
	struct kvt__place place;

	(void)state;
	for (size_t c = 0; c < TEST_COUNT(cases); c++)
		assert_fails(KVT_EINVAL, cases[c].text,
			     kvt__place_init(&place, &env, cases[c].uri, NULL, 0));
	assert_fails(KVT_EINVAL, "uri: NULL", kvt__place_init(&place, &env, NULL, NULL, 0));
	memset(longer, 'a', KVT__MAX_URI + 1);
	memcpy(longer, "disk:", 5);
	longer[KVT__MAX_URI + 1] = '\0';
	assert_fails(KVT_EINVAL, "longer than", kvt__place_init(&place, &env, longer, NULL, 0));
	longer[KVT__MAX_URI] = '\0';
	assert_ok(kvt__place_init(&place, &env, longer, NULL, 0));
	kvt__place_fini(&place, &env);
	free(longer);
}

static void the_location_of_a_bad_uri_is_not_repeated(void **state)
{
	struct kvt__place place;

	(void)state;
	assert_fails(KVT_EINVAL, "scheme",
		     kvt__place_init(&place, &env, "Tape://me:secret@host/x", NULL, 0));
	assert_null(strstr(kvt_error_detail(), "secret"));
	assert_fails(KVT_EINVAL, "scheme",
		     kvt__place_init(&place, &env, "tape://me:secret@host/x", NULL, 0));
	assert_null(strstr(kvt_error_detail(), "secret"));
}

/* ---- Options ---- */

static void each_backend_gets_the_options_that_it_knows(void **state)
{
	const struct kvt_option options[] = {
		{"mode", "0640"}, {"fanout", "flat"}, {"delay_ms", "5"}, {"sync", "full"}};
	struct kvt__place place;

	(void)state;
	assert_ok(kvt__place_init(&place, &env, "slow+log+disk:x", options, 4));
	assert_int_equal(place.configs[0].option_count, 1);
	assert_string_equal(place.configs[0].options[0].name, "delay_ms");
	assert_string_equal(place.configs[0].options[0].value, "5");
	assert_int_equal(place.configs[1].option_count, 0);
	assert_int_equal(place.configs[2].option_count, 3);
	assert_string_equal(place.configs[2].options[0].name, "mode");
	assert_string_equal(place.configs[2].options[1].name, "delay_ms");
	assert_string_equal(place.configs[2].options[2].name, "sync");
	assert_int_equal(place.settings.fanout, KVT__FANOUT_FLAT);
	kvt__place_fini(&place, &env);
}

static void the_store_and_its_backend_both_see_whose_names_are_used(void **state)
{
	struct kvt_option option = {"compat_names", "vllm-obj"};
	struct kvt__place place;

	(void)state;
	for (int wrapped = 0; wrapped < 2; wrapped++) {
		assert_ok(kvt__place_init(&place, &env, wrapped ? "slow+bucket:x" : "bucket:x",
					  &option, 1));
		assert_int_equal(place.configs[wrapped].option_count, 1);
		assert_string_equal(place.configs[wrapped].options[0].name, "compat_names");
		assert_string_equal(place.configs[wrapped].options[0].value, "vllm-obj");
		assert_true(place.settings.vllm_objects);
		kvt__place_fini(&place, &env);
	}
	/* Elsewhere it is no option. */
	assert_fails(KVT_EINVAL, "option compat_names: unknown to disk",
		     kvt__place_init(&place, &env, "disk:x", &option, 1));
	option.value = "kvtier";
	assert_ok(kvt__place_init(&place, &env, "bucket:x", &option, 1));
	assert_false(place.settings.vllm_objects);
	kvt__place_fini(&place, &env);
	option.value = "vllm";
	assert_fails(KVT_EINVAL, "option compat_names: \"vllm\", expected kvtier or vllm-obj",
		     kvt__place_init(&place, &env, "bucket:x", &option, 1));
}

static void an_unknown_option_names_the_nearest_known_one(void **state)
{
	static const struct {
		const char *uri, *name, *nearest;
	} cases[] = {
		{"disk:", "snyc", "sync"},	     {"disk:", "syn", "sync"},
		{"disk:", "modes", "mode"},	     {"disk:", "delayms", "delay_ms"},
		{"bare:", "fan_out", "fanout"},	     {"bare:", "acceptraw", "accept_raw"},
		{"bare:", "max-bytes", "max_bytes"}, {"bare:", "hihg_watermark", "high_watermark"},
		{"slow+bare:", "delay", "delay_ms"}, {"bare:", "hash-seed", "hash_seed"},
		{"bare:", "modul", "module"},
	};

	(void)state;
	for (size_t c = 0; c < TEST_COUNT(cases); c++) {
		struct kvt_option option = {cases[c].name, "secret"};
		char *nearest = test_format("nearest known is %s", cases[c].nearest);
		char *name = test_format("option %s: unknown", cases[c].name);
		struct kvt__place place;

		assert_fails(KVT_EINVAL, nearest,
			     kvt__place_init(&place, &env, cases[c].uri, &option, 1));
		assert_fails(KVT_EINVAL, name,
			     kvt__place_init(&place, &env, cases[c].uri, &option, 1));
		assert_null(strstr(kvt_error_detail(), "secret"));
		free(nearest);
		free(name);
	}
}

static void an_option_of_another_backend_is_unknown(void **state)
{
	const struct kvt_option option = {"sync", "full"};
	struct kvt__place place;

	(void)state;
	assert_fails(KVT_EINVAL, "option sync: unknown to bare",
		     kvt__place_init(&place, &env, "bare:", &option, 1));
}

static void incomplete_and_repeated_options_are_refused(void **state)
{
	const struct kvt_option nameless[] = {{"sync", "full"}, {NULL, "x"}};
	const struct kvt_option valueless[] = {{"sync", NULL}};
	const struct kvt_option twice[] = {{"sync", "full"}, {"mode", "1"}, {"sync", "none"}};
	struct kvt__place place;

	(void)state;
	assert_fails(KVT_EINVAL, "options[1].name: NULL",
		     kvt__place_init(&place, &env, "disk:", nameless, 2));
	assert_fails(KVT_EINVAL, "options[0].value: NULL",
		     kvt__place_init(&place, &env, "disk:", valueless, 1));
	assert_fails(KVT_EINVAL, "option sync: given twice",
		     kvt__place_init(&place, &env, "disk:", twice, 3));
	assert_fails(KVT_EINVAL, "option_count of 3",
		     kvt__place_init(&place, &env, "disk:", NULL, 3));
}

/* A very long name must neither overflow anything nor be repeated at length. */
static void a_very_long_option_name_is_refused(void **state)
{
	char *name = malloc(100001);
	struct kvt_option option = {name, "x"};
	struct kvt__place place;

	(void)state;
	memset(name, 'a', 100000);
	name[100000] = '\0';
	assert_fails(KVT_EINVAL, "unknown", kvt__place_init(&place, &env, "disk:", &option, 1));
	free(name);
}

static void store_options_are_read(void **state)
{
	const struct kvt_option options[] = {
		{"fanout", "vllm"},	   {"accept_raw", "Yes"},    {"max_bytes", "2G"},
		{"high_watermark", "0.9"}, {"low_watermark", "50%"}, {"min_coverage", "25%"},
		{"hash_seed", "0"},	   {"module_dir", "/x"},
	};
	struct kvt__place place;
	struct kvt__settings *s = &place.settings;

	(void)state;
	assert_ok(kvt__place_init(&place, &env, "bare:", NULL, 0));
	assert_int_equal(s->fanout, KVT__FANOUT_VLLM);
	assert_false(s->accept_raw);
	assert_int_equal(s->max_bytes, 0);
	assert_true(s->low_watermark > 0 && s->low_watermark <= s->high_watermark);
	assert_true(s->high_watermark <= 1);
	assert_true(s->min_coverage == 0);
	assert_null(s->hash_seed);
	assert_null(s->module_dir);
	kvt__place_fini(&place, &env);
	assert_ok(kvt__place_init(&place, &env, "bare:", options, TEST_COUNT(options)));
	assert_true(s->accept_raw);
	assert_int_equal(s->max_bytes, UINT64_C(2) << 30);
	assert_true(s->high_watermark > 0.8999 && s->high_watermark < 0.9001);
	assert_true(s->low_watermark == 0.5);
	assert_true(s->min_coverage == 0.25);
	assert_string_equal(s->hash_seed, "0");
	assert_string_equal(s->module_dir, "/x");
	kvt__place_fini(&place, &env);
}

static void bad_values_of_store_options_are_refused_with_name_value_and_expectation(void **state)
{
	static const struct {
		const char *name, *value, *expected;
	} cases[] = {
		{"fanout", "deep", "vllm or flat"},	  {"fanout", "", "vllm or flat"},
		{"accept_raw", "maybe", "true or false"}, {"accept_raw", "", "true or false"},
		{"max_bytes", "-1", "number of bytes"},	  {"max_bytes", "1.5G", "number of bytes"},
		{"max_bytes", "lots", "number of bytes"}, {"high_watermark", "101%", "share"},
		{"high_watermark", "1.1", "share"},	  {"low_watermark", "-0.1", "share"},
		{"min_coverage", "half", "share"},	  {"module_dir", "here", "absolute"},
		{"module", "x.so", "absolute"},
	};

	(void)state;
	for (size_t c = 0; c < TEST_COUNT(cases); c++) {
		struct kvt_option option = {cases[c].name, cases[c].value};
		char *text = test_format("option %s: \"%s\"", cases[c].name, cases[c].value);
		struct kvt__place place;

		assert_fails(KVT_EINVAL, text, kvt__place_init(&place, &env, "bare:", &option, 1));
		assert_non_null(strstr(kvt_error_detail(), cases[c].expected));
		free(text);
	}
}

static void options_that_contradict_each_other_are_refused(void **state)
{
	struct kvt__settings settings;

	(void)state;
	kvt__settings_init(&settings);
	assert_ok(kvt__settings_check(&settings, KVT_MODE_POINTER));
	settings.accept_raw = true;
	assert_ok(kvt__settings_check(&settings, KVT_MODE_ROW));
	assert_fails(KVT_EINVAL, "accept_raw", kvt__settings_check(&settings, KVT_MODE_POINTER));
	assert_fails(KVT_EINVAL, "accept_raw", kvt__settings_check(&settings, KVT_MODE_EXACT));
	settings.accept_raw = false;
	settings.low_watermark = 0.9;
	settings.high_watermark = 0.8;
	assert_fails(KVT_EINVAL, "low_watermark: 90%", kvt__settings_check(&settings, 0));
	settings.low_watermark = 0;
	settings.high_watermark = 0;
	assert_fails(KVT_EINVAL, "high_watermark: 0", kvt__settings_check(&settings, 0));
	kvt__settings_init(&settings);
	settings.vllm_objects = true;
	assert_ok(kvt__settings_check(&settings, KVT_MODE_ROW));
	assert_ok(kvt__settings_check(&settings, KVT_MODE_EXACT));
	assert_fails(KVT_EINVAL, "compat_names", kvt__settings_check(&settings, KVT_MODE_POINTER));
	settings.fanout = KVT__FANOUT_FLAT;
	assert_fails(KVT_EINVAL, "fanout: flat", kvt__settings_check(&settings, KVT_MODE_ROW));
	settings.fanout = KVT__FANOUT_VLLM;
	settings.hash_seed = "7";
	assert_fails(KVT_EINVAL, "hash_seed: \"7\"", kvt__settings_check(&settings, KVT_MODE_ROW));
}

/* ---- Numbers ---- */

static void byte_counts_have_units(void **state)
{
	static const struct {
		const char *text;
		bool ok;
		uint64_t bytes;
	} cases[] = {
		{"0", true, 0},
		{"1", true, 1},
		{"1048576", true, 1048576},
		{"64K", true, 65536},
		{"64k", true, 65536},
		{"64KiB", true, 65536},
		{"64KB", true, 65536},
		{"3M", true, 3 << 20},
		{"2G", true, UINT64_C(2) << 30},
		{"2T", true, UINT64_C(2) << 40},
		{"8388608T", true, UINT64_C(1) << 63},
		{"9223372036854775808", true, UINT64_C(1) << 63},
		{"8388609T", false, 0},
		{"9223372036854775809", false, 0},
		{"99999999999999999999999999", false, 0},
		{"", false, 0},
		{"K", false, 0},
		{" 1", false, 0},
		{"1 ", false, 0},
		{"+1", false, 0},
		{"-1", false, 0},
		{"1P", false, 0},
		{"1B", false, 0},
		{"1KiBs", false, 0},
		{"1Ki", false, 0},
		{"0x10", false, 0},
		{"1.0", false, 0},
	};

	(void)state;
	for (size_t c = 0; c < TEST_COUNT(cases); c++) {
		uint64_t bytes = 77;

		if (kvt__parse_bytes(cases[c].text, &bytes) != cases[c].ok)
			fail_msg("\"%s\"", cases[c].text);
		assert_int_equal(bytes, cases[c].ok ? cases[c].bytes : 77);
	}
}

static void shares_are_fractions_or_percentages(void **state)
{
	static const struct {
		const char *text;
		bool ok;
		double share;
	} cases[] = {
		{"0", true, 0},
		{"1", true, 1},
		{"0.5", true, 0.5},
		{"50%", true, 0.5},
		{"12.5%", true, 0.125},
		{"100%", true, 1},
		{"0%", true, 0},
		{"000.25", true, 0.25},
		{"1.000000001", false, 0},
		{"100.1%", false, 0},
		{"2", false, 0},
		{"", false, 0},
		{"%", false, 0},
		{".5", false, 0},
		{"5.", false, 0},
		{"0,5", false, 0},
		{"-0", false, 0},
		{"1e-1", false, 0},
		{"nan", false, 0},
		{"0.5%%", false, 0},
		{"0.00000000000000000000001", false, 0},
	};

	(void)state;
	for (size_t c = 0; c < TEST_COUNT(cases); c++) {
		double share = 7;

		if (kvt__parse_fraction(cases[c].text, &share) != cases[c].ok)
			fail_msg("\"%s\"", cases[c].text);
		if (cases[c].ok)
			assert_true(share == cases[c].share);
		else
			assert_true(share == 7);
	}
}

/* ---- Help ---- */

struct help {
	char names[2000];
	unsigned count;
	bool complete;
};

static void see_option(void *context, const char *name, const char *default_value, const char *help)
{
	struct help *h = context;
	size_t used = strlen(h->names);

	(void)snprintf(h->names + used, sizeof(h->names) - used, "%s=%s ", name,
		       default_value != NULL ? default_value : "");
	h->count++;
	h->complete = h->complete && help != NULL && help[0] != '\0';
}

static void option_help_tells_all_options_of_a_uri(void **state)
{
	struct help h = {.complete = true};
	unsigned of_stores;

	(void)state;
	assert_ok(kvt_store_option_help("bare:", see_option, &h));
	of_stores = h.count;
	assert_non_null(strstr(h.names, "fanout=vllm "));
	assert_non_null(strstr(h.names, "max_bytes= "));
	assert_ok(kvt_store_option_help("disk:", see_option, &h));
	assert_int_equal(h.count, 2 * of_stores + 3);
	assert_non_null(strstr(h.names, "mode=0600 "));
	assert_ok(kvt_store_option_help("slow+bare:", see_option, &h));
	assert_int_equal(h.count, 3 * of_stores + 4);
	assert_non_null(strstr(h.names, "delay_ms=10 "));
	assert_true(h.complete);
	assert_fails(KVT_EINVAL, "tape", kvt_store_option_help("tape:", see_option, &h));
	assert_fails(KVT_EINVAL, "uri: NULL", kvt_store_option_help(NULL, see_option, &h));
	assert_fails(KVT_EINVAL, "callback: NULL", kvt_store_option_help("bare:", NULL, &h));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_uri_names_its_backends_from_the_outside_in),
		cmocka_unit_test(a_bad_uri_is_refused),
		cmocka_unit_test(the_location_of_a_bad_uri_is_not_repeated),
		cmocka_unit_test(each_backend_gets_the_options_that_it_knows),
		cmocka_unit_test(the_store_and_its_backend_both_see_whose_names_are_used),
		cmocka_unit_test(an_unknown_option_names_the_nearest_known_one),
		cmocka_unit_test(an_option_of_another_backend_is_unknown),
		cmocka_unit_test(incomplete_and_repeated_options_are_refused),
		cmocka_unit_test(a_very_long_option_name_is_refused),
		cmocka_unit_test(store_options_are_read),
		cmocka_unit_test(
			bad_values_of_store_options_are_refused_with_name_value_and_expectation),
		cmocka_unit_test(options_that_contradict_each_other_are_refused),
		cmocka_unit_test(byte_counts_have_units),
		cmocka_unit_test(shares_are_fractions_or_percentages),
		cmocka_unit_test(option_help_tells_all_options_of_a_uri),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
