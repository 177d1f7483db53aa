/* SPDX-License-Identifier: Apache-2.0 */
/* config.json: what is written, and how an existing one is compared. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "canonical.h"
#include "name.h"
#include "support.h"

static struct kvt__env env;

static int group_setup(void **state)
{
	(void)state;
	return kvt__env_init(&env, NULL);
}

static int group_teardown(void **state)
{
	(void)state;
	kvt__env_fini(&env);
	return 0;
}

static const char fields[] =
	"{\"blocks_per_file\":1,\"dcp_size\":1,\"dtype\":\"float16\",\"extra_field\":\"x\","
	"\"inference_engine\":\"vllm\",\"kv_cache_groups\":[{\"layer_names\":[\"a\",\"b\"],"
	"\"tokens_per_block\":16}],\"model_name\":\"test-model\",\"parallel_agnostic\":false,"
	"\"pcp_size\":1,\"pp_size\":1,\"tokens_per_hash\":16,\"tp_size\":1}";

static void fields_namespace(struct kvt__namespace *ns, enum kvt__fanout fanout)
{
	struct kvt_store_options options = KVT_INIT(options);

	options.fields_json = fields;
	options.mode = KVT_MODE_ROW;
	assert_ok(kvt__namespace_init(ns, &env, &options, fanout));
}

static void ready_namespace(struct kvt__namespace *ns, enum kvt__fanout fanout)
{
	struct kvt_store_options options = KVT_INIT(options);

	options.namespace_name = "ready";
	options.mode = KVT_MODE_ROW;
	assert_ok(kvt__namespace_init(ns, &env, &options, fanout));
}

static int compare(const struct kvt__namespace *ns, const char *hash_seed, const char *text)
{
	return kvt__config_compare(ns, &env, hash_seed, text, strlen(text));
}

static void the_text_is_the_fields_and_our_member(void **state)
{
	struct kvt__namespace ns;
	char *text, *expected;

	(void)state;
	fields_namespace(&ns, KVT__FANOUT_VLLM);
	assert_ok(kvt__config_text(&ns, &env, NULL, &text));
	/* Our member stands where its name belongs. */
	const char *rest = strstr(fields, "\"model_name\"");
	expected = test_format("%.*s\"kvtier\":{\"fanout\":\"vllm\",\"format\":1},%s",
			       (int)(rest - fields), fields, rest);
	assert_string_equal(text, expected);
	free(expected);
	kvt__free(&env, text);
	kvt__namespace_fini(&ns, &env);

	ready_namespace(&ns, KVT__FANOUT_FLAT);
	assert_ok(kvt__config_text(&ns, &env, "seed \"1\"", &text));
	assert_string_equal(text, "{\"kvtier\":{\"fanout\":\"flat\",\"format\":1,\"hash_seed\":"
				  "\"seed \\\"1\\\"\"},\"namespace\":\"ready\"}");
	kvt__free(&env, text);
	assert_fails(KVT_EINVAL, "hash_seed: invalid UTF-8 at byte 1",
		     kvt__config_text(&ns, &env, "a\xff", &text));
	assert_null(text);
	char *name = kvt__config_name(&ns, &env);
	assert_string_equal(name, "ready/config.json");
	kvt__free(&env, name);
	kvt__namespace_fini(&ns, &env);
}

static void what_was_written_compares_equal(void **state)
{
	static const char *const seeds[] = {NULL, "0", "caf\xc3\xa9"};

	(void)state;
	for (int fanout = 0; fanout < 2; fanout++) {
		for (int ready = 0; ready < 2; ready++) {
			struct kvt__namespace ns;
			(ready ? ready_namespace : fields_namespace)(&ns, (enum kvt__fanout)fanout);
			for (size_t i = 0; i < TEST_COUNT(seeds); i++) {
				char *text;
				assert_ok(kvt__config_text(&ns, &env, seeds[i], &text));
				assert_ok(compare(&ns, seeds[i], text));
				kvt__free(&env, text);
			}
			kvt__namespace_fini(&ns, &env);
		}
	}
}

static void the_file_of_vllm_compares_equal(void **state)
{
	struct kvt__namespace ns;
	json_t *object = json_loads(fields, 0, NULL);
	const size_t flags[] = {JSON_INDENT(2), JSON_COMPACT, JSON_INDENT(4) | JSON_SORT_KEYS};

	(void)state;
	fields_namespace(&ns, KVT__FANOUT_VLLM);
	for (size_t i = 0; i < TEST_COUNT(flags); i++) {
		char *text = json_dumps(object, flags[i]);
		assert_ok(compare(&ns, NULL, text));
		assert_ok(compare(&ns, "any seed", text));
		free(text);
	}
	json_decref(object);
	kvt__namespace_fini(&ns, &env);
}

/* The fields with one member replaced, added (absent before) or removed (value NULL). */
static char *with_member(const char *name, const char *value)
{
	json_t *object = json_loads(fields, 0, NULL);
	char *text;

	if (value)
		json_object_set_new(object, name, json_loads(value, JSON_DECODE_ANY, NULL));
	else
		json_object_del(object, name);
	text = json_dumps(object, 0);
	json_decref(object);
	return text;
}

static void a_difference_names_the_field_and_both_values(void **state)
{
	static const struct {
		const char *name, *value, *detail;
	} cases[] = {
		{"tp_size", "2", "config.json: tp_size is 2, expected 1"},
		{"tp_size", "1.0", "config.json: tp_size is a real number, expected 1"},
		{"tp_size", "\"1\"", "config.json: tp_size is \"1\", expected 1"},
		{"tp_size", "-9223372036854775808",
		 "config.json: tp_size is an integer out of range, expected 1"},
		{"tp_size", "null", "config.json: tp_size is null, expected 1"},
		{"tp_size", NULL, "config.json: tp_size is absent, expected 1"},
		{"dtype", "\"bf\\n\"", "config.json: dtype is \"bf\\n\", expected \"float16\""},
		{"parallel_agnostic", "true",
		 "config.json: parallel_agnostic is true, expected false"},
		{"parallel_agnostic", NULL,
		 "config.json: parallel_agnostic is absent, expected false"},
		/* A field of a caller's own is compared when it is ours. */
		{"extra_field", "\"y\"", "config.json: extra_field is \"y\", expected \"x\""},
		{"extra_field", NULL, "config.json: extra_field is absent, expected \"x\""},
		/* Fields that names are derived from are, whoever has them. */
		{"storage_format", "\"kvtier1\"",
		 "config.json: storage_format is \"kvtier1\", expected absent"},
		{"replicated_layout", "true",
		 "config.json: replicated_layout is true, expected absent"},
		{"canonical_format", "null",
		 "config.json: canonical_format is null, expected absent"},
		/* Inside. */
		{"kv_cache_groups", "[]", "config.json: kv_cache_groups has 0 entries, expected 1"},
		{"kv_cache_groups", "{}",
		 "config.json: kv_cache_groups is {}, expected [{\"layer_names\":[\"a\",\"b\"],\""},
		{"kv_cache_groups", "[{\"layer_names\":[\"a\",\"b\"],\"tokens_per_block\":32}]",
		 "config.json: kv_cache_groups[0].tokens_per_block is 32, expected 16"},
		{"kv_cache_groups", "[{\"layer_names\":[\"a\",\"c\"],\"tokens_per_block\":16}]",
		 "config.json: kv_cache_groups[0].layer_names[1] is \"c\", expected \"b\""},
		{"kv_cache_groups", "[{\"layer_names\":[\"a\"],\"tokens_per_block\":32}]",
		 "config.json: kv_cache_groups[0].layer_names has 1 entries, expected 2"},
		{"kv_cache_groups", "[{\"layer_names\":[\"a\",\"b\"]}]",
		 "config.json: kv_cache_groups[0].tokens_per_block is absent, expected 16"},
		{"kv_cache_groups",
		 "[{\"layer_names\":[\"a\",\"b\"],\"tokens_per_block\":16,\"kind\":\"full\"}]",
		 "config.json: kv_cache_groups[0].kind is \"full\", expected absent"},
	};
	struct kvt__namespace ns;

	(void)state;
	fields_namespace(&ns, KVT__FANOUT_VLLM);
	for (size_t i = 0; i < TEST_COUNT(cases); i++) {
		char *text = with_member(cases[i].name, cases[i].value);
		assert_fails(KVT_ENAMESPACE, cases[i].detail, compare(&ns, NULL, text));
		free(text);
	}
	kvt__namespace_fini(&ns, &env);
}

static void the_first_difference_is_the_first_by_name(void **state)
{
	struct kvt__namespace ns;

	(void)state;
	fields_namespace(&ns, KVT__FANOUT_VLLM);
	assert_fails(KVT_ENAMESPACE, "blocks_per_file is absent, expected 1",
		     compare(&ns, NULL, "{}"));
	assert_fails(KVT_ENAMESPACE, "canonical_format is 1, expected absent",
		     compare(&ns, NULL,
			     "{\"tp_size\":3,\"canonical_format\":1,\"blocks_per_file\":1,"
			     "\"kvtier\":{\"format\":2}}"));
	kvt__namespace_fini(&ns, &env);
}

static void members_that_nobody_knows_are_ignored(void **state)
{
	static const char *const values[] = {"1", "null", "1.5", "{\"a\":[1.5,{}]}", "\"\\u00e9\""};
	struct kvt__namespace ns;

	(void)state;
	fields_namespace(&ns, KVT__FANOUT_VLLM);
	for (size_t i = 0; i < TEST_COUNT(values); i++) {
		char *text = with_member("unknown_member", values[i]);
		assert_ok(compare(&ns, NULL, text));
		free(text);
	}
	kvt__namespace_fini(&ns, &env);
}

static void long_values_are_shown_where_they_differ(void **state)
{
	char model[128], other[128];
	struct kvt_store_options options = KVT_INIT(options);
	struct kvt__namespace ns;
	char *json, *text;

	(void)state;
	memset(model, 'm', sizeof(model) - 1);
	model[sizeof(model) - 1] = '\0';
	memcpy(other, model, sizeof(other));
	memcpy(model + 100, "ours", 4);
	memcpy(other + 100, "theirs", 6);
	json = test_format("{\"model_name\":\"%s\"}", model);
	text = test_format("{\"model_name\":\"%s\"}", other);
	options.fields_json = json;
	options.mode = KVT_MODE_ROW;
	assert_ok(kvt__namespace_init(&ns, &env, &options, KVT__FANOUT_VLLM));
	assert_fails(KVT_ENAMESPACE, "mmtheirsmm", compare(&ns, NULL, text));
	assert_fails(KVT_ENAMESPACE, "mmoursmm", compare(&ns, NULL, text));
	assert_true(strlen(kvt_error_detail()) < 256);
	kvt__namespace_fini(&ns, &env);
	free(json);
	free(text);
}

static void long_paths_are_cut(void **state)
{
	struct kvt_store_options options = KVT_INIT(options);

	(void)state;
	/* Each length around that of the room for a path. */
	for (int length = 60; length < 130; length++) {
		struct kvt__namespace ns;
		char *json =
			test_format("{\"model_name\":\"m\",\"%0*d\":[{\"x\":[[1]]}]}", length, 7);
		char *text =
			test_format("{\"model_name\":\"m\",\"%0*d\":[{\"x\":[[2]]}]}", length, 7);

		options.fields_json = json;
		options.mode = KVT_MODE_ROW;
		assert_ok(kvt__namespace_init(&ns, &env, &options, KVT__FANOUT_VLLM));
		assert_fails(KVT_ENAMESPACE,
			     length < 84 ? "7[0].x[0][0] is 2, expected 1" : " is 2, expected 1",
			     compare(&ns, NULL, text));
		assert_true(strlen(kvt_error_detail()) < 256);
		kvt__namespace_fini(&ns, &env);
		free(json);
		free(text);
	}
}

static void a_seed_that_is_no_text_is_refused(void **state)
{
	struct kvt__namespace ns;

	(void)state;
	ready_namespace(&ns, KVT__FANOUT_VLLM);
	assert_fails(KVT_EINVAL, "hash_seed: invalid UTF-8 at byte 0",
		     compare(&ns, "\xff", "{\"namespace\":\"ready\"}"));
	kvt__namespace_fini(&ns, &env);
}

static void our_member_is_compared_with_its_defaults(void **state)
{
	static const struct {
		const char *member;
		enum kvt__fanout fanout;
		const char *seed, *detail; /* NULL: equal */
	} cases[] = {
		{"{}", KVT__FANOUT_VLLM, NULL, NULL},
		{"{\"format\":1}", KVT__FANOUT_VLLM, "s", NULL},
		{"{\"format\":2}", KVT__FANOUT_VLLM, NULL, "kvtier.format is 2, expected 1"},
		{"{\"format\":\"1\"}", KVT__FANOUT_VLLM, NULL,
		 "kvtier.format is \"1\", expected 1"},
		{"{\"fanout\":\"vllm\"}", KVT__FANOUT_VLLM, NULL, NULL},
		{"{\"fanout\":\"flat\"}", KVT__FANOUT_FLAT, NULL, NULL},
		{"{\"fanout\":\"flat\"}", KVT__FANOUT_VLLM, NULL,
		 "kvtier.fanout is \"flat\", expected \"vllm\""},
		{"{}", KVT__FANOUT_FLAT, NULL, "kvtier.fanout is \"vllm\", expected \"flat\""},
		{"{\"fanout\":\"tree\"}", KVT__FANOUT_VLLM, NULL,
		 "kvtier.fanout is \"tree\", expected \"vllm\""},
		/* Seeds only when both sides have one. */
		{"{\"hash_seed\":\"a\"}", KVT__FANOUT_VLLM, NULL, NULL},
		{"{}", KVT__FANOUT_VLLM, "a", NULL},
		{"{\"hash_seed\":\"a\"}", KVT__FANOUT_VLLM, "a", NULL},
		{"{\"hash_seed\":\"a\"}", KVT__FANOUT_VLLM, "b",
		 "kvtier.hash_seed is \"a\", expected \"b\""},
		{"{\"hash_seed\":5}", KVT__FANOUT_VLLM, "5",
		 "kvtier.hash_seed is 5, expected \"5\""},
		{"{\"later\":[1.5]}", KVT__FANOUT_VLLM, NULL, NULL},
		{"5", KVT__FANOUT_VLLM, NULL, "kvtier is no object, expected one"},
		{"null", KVT__FANOUT_VLLM, NULL, "kvtier is no object, expected one"},
	};

	(void)state;
	for (size_t i = 0; i < TEST_COUNT(cases); i++) {
		struct kvt__namespace ns;
		char *text = with_member("kvtier", cases[i].member);

		fields_namespace(&ns, cases[i].fanout);
		if (cases[i].detail)
			assert_fails(KVT_ENAMESPACE, cases[i].detail,
				     compare(&ns, cases[i].seed, text));
		else
			assert_ok(compare(&ns, cases[i].seed, text));
		kvt__namespace_fini(&ns, &env);
		free(text);
	}
}

static void a_file_of_flat_objects_without_our_member_is_one_of_vllms(void **state)
{
	struct kvt__namespace ns;

	(void)state;
	fields_namespace(&ns, KVT__FANOUT_FLAT);
	assert_fails(KVT_ENAMESPACE, "kvtier.fanout is \"vllm\", expected \"flat\"",
		     compare(&ns, NULL, fields));
	kvt__namespace_fini(&ns, &env);
}

static void ready_made_names_are_compared(void **state)
{
	struct kvt__namespace ns;

	(void)state;
	ready_namespace(&ns, KVT__FANOUT_VLLM);
	assert_ok(compare(&ns, NULL, "{\"namespace\":\"ready\"}"));
	assert_fails(KVT_ENAMESPACE, "config.json: namespace is \"other\", expected \"ready\"",
		     compare(&ns, NULL, "{\"namespace\":\"other\"}"));
	assert_fails(KVT_ENAMESPACE, "config.json: namespace is absent, expected \"ready\"",
		     compare(&ns, NULL, "{}"));
	/* The file of a namespace that was derived from fields. */
	assert_fails(KVT_ENAMESPACE, "config.json: blocks_per_file is 1, expected absent",
		     compare(&ns, NULL, fields));
	kvt__namespace_fini(&ns, &env);
}

static void what_cannot_be_parsed_is_to_be_read_again(void **state)
{
	static const char *const texts[] = {
		"",
		" ",
		"{",
		"[]",
		"1",
		"null",
		"\"\"",
		"{\"a\":1}}",
		"{\"a\":1,\"a\":2}",
		"{\"a\":\"\xff\"}",
		"{\"a\":\"\\u0000\"}",
		"not json",
	};
	struct kvt__namespace ns;
	size_t bytes = strlen(fields);

	(void)state;
	fields_namespace(&ns, KVT__FANOUT_VLLM);
	for (size_t i = 0; i < TEST_COUNT(texts); i++)
		assert_fails(KVT_EPROTO, "config.json: ", compare(&ns, NULL, texts[i]));
	/* Each shorter piece of a file that is being written; exact buffers for a sanitizer. */
	for (size_t cut = 0; cut < bytes; cut++) {
		char *piece = malloc(cut + 1);
		memcpy(piece, fields, cut);
		assert_returns(KVT_EPROTO, kvt__config_compare(&ns, &env, NULL, piece, cut));
		free(piece);
	}
	/* A NUL where the file had not been written yet. */
	char *zeros = calloc(1, bytes);
	assert_returns(KVT_EPROTO, kvt__config_compare(&ns, &env, NULL, zeros, bytes));
	memcpy(zeros, fields, bytes - 1);
	assert_returns(KVT_EPROTO, kvt__config_compare(&ns, &env, NULL, zeros, bytes));
	free(zeros);
	kvt__namespace_fini(&ns, &env);
}

static void failed_allocations_are_out_of_memory_or_a_shorter_message(void **state)
{
	struct test_allocator allocator;
	struct kvt_hooks hooks = {0};
	struct kvt__env hooked;
	struct kvt__namespace ns;
	char *text, *other = with_member("dtype", "\"bfloat16\"");

	(void)state;
	test_allocator_init(&allocator);
	test_allocator_hooks(&allocator, &hooks.allocator);
	assert_ok(kvt__env_init(&hooked, &hooks));
	fields_namespace(&ns, KVT__FANOUT_VLLM);
	for (int what = 0; what < 3; what++) {
		bool failed = true;
		for (uint64_t nth = 1; failed; nth++) {
			int error, expected = 0;

			text = NULL;
			atomic_store(&allocator.fail_at, atomic_load(&allocator.calls) + nth);
			atomic_store(&allocator.failed, 0);
			if (what == 0)
				error = kvt__config_text(&ns, &hooked, NULL, &text);
			else
				error = kvt__config_compare(&ns, &hooked, NULL,
							    what == 1 ? fields : other,
							    strlen(what == 1 ? fields : other));
			failed = atomic_load(&allocator.failed) > 0;
			if (what == 2)
				expected = KVT_ENAMESPACE;
			if (failed && error != expected)
				assert_returns(KVT_ENOMEM, error);
			else
				assert_returns(expected, error);
			kvt__free(&hooked, text);
			assert_int_equal(atomic_load(&allocator.live_blocks), 0);
		}
	}
	kvt__namespace_fini(&ns, &env);
	kvt__env_fini(&hooked);
	free(other);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_text_is_the_fields_and_our_member),
		cmocka_unit_test(what_was_written_compares_equal),
		cmocka_unit_test(the_file_of_vllm_compares_equal),
		cmocka_unit_test(a_difference_names_the_field_and_both_values),
		cmocka_unit_test(the_first_difference_is_the_first_by_name),
		cmocka_unit_test(members_that_nobody_knows_are_ignored),
		cmocka_unit_test(long_values_are_shown_where_they_differ),
		cmocka_unit_test(long_paths_are_cut),
		cmocka_unit_test(a_seed_that_is_no_text_is_refused),
		cmocka_unit_test(our_member_is_compared_with_its_defaults),
		cmocka_unit_test(a_file_of_flat_objects_without_our_member_is_one_of_vllms),
		cmocka_unit_test(ready_made_names_are_compared),
		cmocka_unit_test(what_cannot_be_parsed_is_to_be_read_again),
		cmocka_unit_test(failed_allocations_are_out_of_memory_or_a_shorter_message),
	};

	return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
