/* SPDX-License-Identifier: Apache-2.0 */
/* Names: the vectors made by vLLM's FileMapper, canonical JSON and its corners, namespaces, and
 * object names there and back. Long, and one file: the tables of one module, which share their
 * checks. */
#include "name.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "canonical.h"
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

/* ---- Namespaces that tests make ---- */

static struct kvt_fields fields_example(void)
{
	struct kvt_fields fields = KVT_INIT(fields);

	fields.model_name = "test-model";
	fields.dtype = "float16";
	fields.tokens_per_hash = 16;
	return fields;
}

static int init(struct kvt__namespace *ns, const char *ready_made, const char *json,
		const struct kvt_fields *fields, uint32_t mode, uint32_t rank)
{
	struct kvt_store_options options = KVT_INIT(options);

	options.namespace_name = ready_made;
	options.fields_json = json;
	options.fields = fields;
	options.mode = mode;
	options.rank = rank;
	return kvt__namespace_init(ns, &env, &options, KVT__FANOUT_VLLM);
}

static void canonical_is(const char *expected, const struct kvt_fields *fields)
{
	char *canonical;

	assert_ok(kvt__canonical_fields(&env, fields, &canonical));
	assert_string_equal(canonical, expected);
	kvt__free(&env, canonical);
}

static void fields_refused(const char *detail, const struct kvt_fields *fields)
{
	struct kvt__namespace ns;
	char *canonical = (char *)1;

	assert_fails(KVT_EINVAL, detail, kvt__canonical_fields(&env, fields, &canonical));
	assert_null(canonical);
	assert_fails(KVT_EINVAL, detail, init(&ns, NULL, NULL, fields, KVT_MODE_ROW, 0));
	assert_null(ns.canonical);
	assert_null(ns.object_prefix);
}

/* ---- Vectors ---- */

static const char *text_of(const json_t *object, const char *name)
{
	return json_string_value(json_object_get(object, name));
}

static int64_t number_of(const json_t *object, const char *name)
{
	return json_integer_value(json_object_get(object, name));
}

static uint32_t unhex(const char *text, uint8_t *bytes)
{
	uint32_t count = (uint32_t)strlen(text) / 2;

	for (uint32_t i = 0; i < count; i++) {
		unsigned value;
		assert_int_equal(sscanf(text + 2 * i, "%2x", &value), 1);
		bytes[i] = (uint8_t)value;
	}
	return count;
}

/* What names one vector's namespace and key must give. */
static void check_vector(const json_t *vector, const struct kvt__namespace *ns)
{
	const json_t *args = json_object_get(vector, "args");
	uint8_t key[68], hash[64];
	uint32_t bytes = unhex(text_of(vector, "key_hex"), key) - 4, hash_bytes, back;
	uint32_t group = (uint32_t)key[bytes] << 24 | (uint32_t)key[bytes + 1] << 16 |
			 (uint32_t)key[bytes + 2] << 8 | key[bytes + 3];
	char *name = malloc(kvt__object_name_max(ns)), *config, *path;

	assert_string_equal(ns->canonical, text_of(vector, "canonical_json"));
	size_t name_bytes = kvt__object_name(ns, key, bytes, group, name);
	assert_int_equal(name_bytes, strlen(name));
	assert_true(strlen(name) < kvt__object_name_max(ns));
	path = test_format("%s/%s", text_of(args, "root_dir"), name);
	assert_string_equal(path, text_of(vector, "file"));
	free(path);
	path = test_format("%s/%s", text_of(vector, "s3_prefix"), name);
	assert_string_equal(path, text_of(vector, "s3_key"));
	free(path);
	path = test_format("%s/%s", text_of(args, "root_dir"), ns->base_name);
	assert_string_equal(path, text_of(vector, "base_path"));
	free(path);
	config = kvt__config_name(ns, &env);
	path = test_format("%s/%s", text_of(args, "root_dir"), config);
	assert_string_equal(path, text_of(vector, "config_path"));
	free(path);
	kvt__free(&env, config);
	assert_true(kvt__object_name_parse(ns, name, hash, &hash_bytes, &back));
	assert_int_equal(hash_bytes, bytes);
	assert_memory_equal(hash, key, bytes);
	assert_int_equal(back, group);
	assert_true(kvt__object_name_any(name));
	free(name);
}

static json_t *vectors_load(void)
{
	json_error_t error;
	json_t *vectors = json_load_file(KVT_TEST_DATA_DIR "/name_vectors.json", 0, &error);

	if (!vectors)
		fail_msg("name_vectors.json: %s", error.text);
	assert_int_equal(json_array_size(vectors), 13);
	return vectors;
}

static void every_vector_is_named_as_vllm_names_it(void **state)
{
	json_t *vectors = vectors_load(), *vector;
	size_t index;

	(void)state;
	json_array_foreach(vectors, index, vector)
	{
		const json_t *args = json_object_get(vector, "args");
		char *groups = json_dumps(json_object_get(args, "kv_cache_groups"), 0);
		struct kvt_fields fields = KVT_INIT(fields);
		struct kvt__namespace ns;

		fields.model_name = text_of(args, "model_name");
		fields.dtype = text_of(args, "dtype");
		fields.kv_cache_groups = groups;
		fields.canonical_format = text_of(args, "canonical_format");
		fields.tokens_per_hash = number_of(args, "tokens_per_hash");
		fields.blocks_per_file = number_of(args, "blocks_per_file");
		fields.tp_size = number_of(args, "tp_size");
		fields.pp_size = number_of(args, "pp_size");
		fields.pcp_size = number_of(args, "pcp_size");
		fields.dcp_size = number_of(args, "dcp_size");
		fields.parallel_agnostic = json_is_true(json_object_get(args, "parallel_agnostic"));
		fields.replicated_layout = json_is_true(json_object_get(args, "replicated_layout"));
		assert_ok(init(&ns, NULL, NULL, &fields, KVT_MODE_ROW,
			       (uint32_t)number_of(args, "rank")));
		check_vector(vector, &ns);
		kvt__namespace_fini(&ns, &env);
		free(groups);
	}
	json_decref(vectors);
}

static void fields_as_text_in_any_order_give_the_same_names(void **state)
{
	json_t *vectors = vectors_load(), *vector;
	size_t index;

	(void)state;
	json_array_foreach(vectors, index, vector)
	{
		json_t *object = json_loads(text_of(vector, "canonical_json"), 0, NULL);
		uint32_t rank = (uint32_t)number_of(json_object_get(vector, "args"), "rank");
		const size_t flags[] = {JSON_COMPACT, JSON_INDENT(4), JSON_ENSURE_ASCII};

		for (size_t i = 0; i < TEST_COUNT(flags); i++) {
			char *text = json_dumps(object, flags[i]);
			struct kvt__namespace ns;
			assert_ok(init(&ns, NULL, text, NULL, KVT_MODE_ROW, rank));
			check_vector(vector, &ns);
			kvt__namespace_fini(&ns, &env);
			free(text);
		}
		json_decref(object);
	}
	json_decref(vectors);
}

/* vLLM's object tier names an object as if each held one block, whatever it holds. Its roots, ""
 * and "kv/", are the backend's affair. */
static void the_object_tier_always_says_one_block_per_file(void **state)
{
	json_t *vectors = vectors_load(), *vector;
	size_t index, seen = 0;

	(void)state;
	json_array_foreach(vectors, index, vector)
	{
		const json_t *args = json_object_get(vector, "args");
		const char *root = text_of(args, "root_dir");
		if (*root != '\0' && strcmp(root, "kv/") != 0)
			continue;
		seen++;
		for (int as_text = 0; as_text < 2; as_text++) {
			json_t *object = json_loads(text_of(vector, "canonical_json"), 0, NULL);
			struct kvt_store_options options = KVT_INIT(options);
			struct kvt_fields fields = KVT_INIT(fields);
			struct kvt__namespace ns;
			fields.model_name = text_of(args, "model_name");
			fields.dtype = text_of(args, "dtype");
			fields.tokens_per_hash = number_of(args, "tokens_per_hash");
			fields.blocks_per_file = 4;
			json_object_set_new(object, "blocks_per_file", json_integer(8));
			char *text = json_dumps(object, 0);
			options.mode = KVT_MODE_ROW;
			if (as_text)
				options.fields_json = text;
			else
				options.fields = &fields;
			assert_ok(
				kvt__namespace_init(&ns, &env, &options, KVT__FANOUT_VLLM_OBJECTS));
			check_vector(vector, &ns);
			kvt__namespace_fini(&ns, &env);
			assert_ok(kvt__namespace_init(&ns, &env, &options, KVT__FANOUT_VLLM));
			assert_string_not_equal(ns.canonical, text_of(vector, "canonical_json"));
			kvt__namespace_fini(&ns, &env);
			free(text);
			json_decref(object);
		}
	}
	assert_int_equal(seen, 2);
	json_decref(vectors);
}

/* ---- Canonical JSON ---- */

static void canonical_json_has_one_form(void **state)
{
	static const struct {
		const char *json, *canonical;
	} cases[] = {
		{"{}", "{}"},
		{" {\r\n\t} ", "{}"},
		{"{\"b\": 1, \"a\": 2}", "{\"a\":2,\"b\":1}"},
		{"{\"a\": {\"z\": [1, 2, {\"y\": null, \"x\": true}], \"b\": false}}",
		 "{\"a\":{\"b\":false,\"z\":[1,2,{\"x\":true,\"y\":null}]}}"},
		/* Lists keep their order; empty ones. */
		{"{\"a\": [3, 1, 2], \"b\": [], \"c\": {}}", "{\"a\":[3,1,2],\"b\":[],\"c\":{}}"},
		/* Keys by code point: upper case first, an empty one before all, BMP before what is
		 * beyond it (by UTF-16 units it would come after). */
		{"{\"b\":1,\"B\":2,\"\":3,\"_\":4,\"aa\":5,\"a\":6}",
		 "{\"\":3,\"B\":2,\"_\":4,\"a\":6,\"aa\":5,\"b\":1}"},
		{"{\"\xf0\x9f\x98\x80\":1,\"\xef\xbf\xbd\":2,\"\xc3\xa9\":3,\"z\":4}",
		 "{\"z\":4,\"\\u00e9\":3,\"\\ufffd\":2,\"\\ud83d\\ude00\":1}"},
		/* Escapes: quote and backslash, not the slash. */
		{"{\"a\":\"\\\"\\\\\\/\"}", "{\"a\":\"\\\"\\\\/\"}"},
		/* The slash itself and as an escape are one character. */
		{"{\"a\":\"/\\u002f\"}", "{\"a\":\"//\"}"},
		{"{\"a\":\"\\b\\f\\n\\r\\t\"}", "{\"a\":\"\\b\\f\\n\\r\\t\"}"},
		{"{\"a\":\"\\u0008\\u000C\\u000a\\u000d\\u0009\"}", "{\"a\":\"\\b\\f\\n\\r\\t\"}"},
		{"{\"a\":\"\\u0001\\u000b\\u001F\"}", "{\"a\":\"\\u0001\\u000b\\u001f\"}"},
		{"{\"a\":\"\x7f\"}", "{\"a\":\"\\u007f\"}"},
		{"{\"a\":\"\\u007F~ \"}", "{\"a\":\"\\u007f~ \"}"},
		/* Not ASCII: lower case, two, three and four bytes, their first and last. */
		{"{\"a\":\"\xc2\x80\xdf\xbf\"}", "{\"a\":\"\\u0080\\u07ff\"}"},
		{"{\"a\":\"\xe0\xa0\x80\xef\xbf\xbf\"}", "{\"a\":\"\\u0800\\uffff\"}"},
		{"{\"a\":\"\xed\x9f\xbf\xee\x80\x80\"}", "{\"a\":\"\\ud7ff\\ue000\"}"},
		{"{\"a\":\"\xf0\x90\x80\x80\xf4\x8f\xbf\xbf\"}",
		 "{\"a\":\"\\ud800\\udc00\\udbff\\udfff\"}"},
		{"{\"a\":\"\\uD83D\\uDE00\\u00C9\"}", "{\"a\":\"\\ud83d\\ude00\\u00c9\"}"},
		/* Keys are escaped likewise. */
		{"{\"\\u007f\\n\":1}", "{\"\\u007f\\n\":1}"},
		/* Integers up to the limits. */
		{"{\"a\":0,\"b\":-0,\"c\":-1,\"d\":10}", "{\"a\":0,\"b\":0,\"c\":-1,\"d\":10}"},
		{"{\"a\":9223372036854775807}", "{\"a\":9223372036854775807}"},
		{"{\"a\":-9223372036854775807}", "{\"a\":-9223372036854775807}"},
	};

	(void)state;
	for (size_t i = 0; i < TEST_COUNT(cases); i++) {
		char *canonical, *again;

		assert_ok(kvt__canonical_json(&env, cases[i].json, &canonical));
		assert_string_equal(canonical, cases[i].canonical);
		/* What is canonical stays. */
		assert_ok(kvt__canonical_json(&env, canonical, &again));
		assert_string_equal(again, canonical);
		kvt__free(&env, canonical);
		kvt__free(&env, again);
	}
}

static void json_without_a_canonical_form_is_refused(void **state)
{
	static const struct {
		const char *json, *detail;
	} cases[] = {
		{"", "fields: line 1, column 0: "},
		{" ", "fields: line 1, column"},
		{"{", "fields: line 1, column"},
		{"{\"a\":1", "fields: line 1, column"},
		{"{\"a\":1,}", "fields: line 1, column"},
		{"{'a':1}", "fields: line 1, column"},
		{"{\"a\":1} x", "fields: line 1, column"},
		{"{\"a\":1}{}", "fields: line 1, column"},
		{"[]", "fields: expected a JSON object"},
		{"\"a\"", "fields: "},
		{"1", "fields: "},
		{"null", "fields: "},
		/* Numbers. */
		{"{\"a\":1.0}", "number 1, expected an integer"},
		{"{\"a\":[{\"b\":0.5}]}", "number 0.5, expected an integer"},
		{"{\"a\":1e3}", "number 1000, expected an integer"},
		{"{\"a\":1E400}", "real number overflow"},
		{"{\"a\":9223372036854775808}", "too big integer"},
		{"{\"a\":-9223372036854775809}", "too big negative integer"},
		{"{\"a\":-9223372036854775808}",
		 "integer -9223372036854775808, expected at least -9223372036854775807"},
		{"{\"a\":01}", "fields: line 1"},
		{"{\"a\":NaN}", "invalid token"},
		{"{\"a\":Infinity}", "invalid token"},
		/* Strings. */
		{"{\"a\":\"\\u0000\"}", "\\u0000 is not allowed"},
		{"{\"\\u0000\":1}", "NUL byte in object key"},
		{"{\"a\":\"\\ud800\"}", "invalid Unicode"},
		{"{\"a\":\"\\udc00\"}", "invalid Unicode"},
		{"{\"a\":\"\\ud800x\"}", "invalid Unicode"},
		{"{\"a\":\"\\ud800\\u0041\"}", "invalid Unicode"},
		{"{\"\\udc00\":1}", "invalid Unicode"},
		{"{\"a\":\"\x01\"}", "control character"},
		{"{\"a\":\"\n\"}", "fields: line 1"},
		{"{\"a\":\"\x80\"}", "fields: "},
		{"{\"a\":\"\xc0\x80\"}", "fields: "},	  /* overlong */
		{"{\"a\":\"\xed\xa0\x80\"}", "fields: "}, /* a surrogate */
		{"{\"a\":\"\xf4\x90\x80\x80\"}", "fields: "},
		{"{\"a\":\"\xe6\x97\"}", "fields: "},
		/* Duplicate keys, at any depth, however they are written. */
		{"{\"a\":1,\"a\":1}", "duplicate object key"},
		{"{\"a\":1,\"\\u0061\":2}", "duplicate object key"},
		{"{\"a\":[{\"b\":1,\"c\":2,\"b\":3}]}", "duplicate object key"},
	};

	(void)state;
	for (size_t i = 0; i < TEST_COUNT(cases); i++) {
		char *canonical = (char *)1;
		assert_fails(KVT_EINVAL, cases[i].detail,
			     kvt__canonical_json(&env, cases[i].json, &canonical));
		assert_null(canonical);
	}
}

static void deep_nesting_is_canonical_or_refused_but_never_fatal(void **state)
{
	static const size_t depths[] = {10, 1000, 100000, 1000000};

	(void)state;
	for (size_t i = 0; i < TEST_COUNT(depths); i++) {
		size_t depth = depths[i], at = strlen("{\"a\":");
		char *json = malloc(2 * depth + 32), *canonical;

		memcpy(json, "{\"a\":", at);
		memset(json + at, '[', depth);
		memset(json + at + depth, ']', depth);
		memcpy(json + at + 2 * depth, "}", 2);
		if (depth <= 1000) {
			assert_ok(kvt__canonical_json(&env, json, &canonical));
			assert_string_equal(canonical, json);
			kvt__free(&env, canonical);
		} else {
			assert_fails(KVT_EINVAL, "maximum parsing depth reached",
				     kvt__canonical_json(&env, json, &canonical));
		}
		free(json);
	}
}

/* How many strings of `bytes` bytes that begin with `text` are valid, its last `free_bytes` bytes
 * taking each value of `values`. */
static uint64_t count_valid(char *text, size_t bytes, size_t free_bytes, const uint8_t *values,
			    size_t value_count)
{
	uint64_t count = 0;
	size_t bad;

	if (free_bytes == 0)
		return kvt__utf8_valid(text, bytes, &bad);
	for (size_t i = 0; i < value_count; i++) {
		text[bytes - free_bytes] = (char)values[i];
		count += count_valid(text, bytes, free_bytes - 1, values, value_count);
	}
	return count;
}

static void utf_8_is_told_from_all_other_bytes(void **state)
{
	static const uint8_t edges[] = {0x00, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0, 0xff};
	uint8_t all[256];
	uint64_t four = 0;
	char text[4];
	size_t bad = 9;

	(void)state;
	for (unsigned i = 0; i < 256; i++)
		all[i] = (uint8_t)i;
	assert_true(kvt__utf8_valid("", 0, &bad));
	assert_int_equal(bad, 0);
	/* 128 characters of one byte, 1,920 of two, 61,440 of three (the surrogates left out). */
	assert_int_equal(count_valid(text, 1, 1, all, 256), 128);
	assert_int_equal(count_valid(text, 2, 2, all, 256), 128 * 128 + 1920);
	assert_int_equal(count_valid(text, 3, 3, all, 256),
			 128 * 128 * 128 + 2 * 128 * 1920 + 61440);
	/* Of four: every lead and second byte, the others at their edges. */
	for (unsigned lead = 0xf0; lead <= 0xff; lead++) {
		text[0] = (char)lead;
		for (unsigned second = 0; second < 256; second++) {
			text[1] = (char)second;
			four += count_valid(text, 4, 2, edges, TEST_COUNT(edges));
		}
	}
	/* 48 for f0, 64 for f1 to f3 each, 16 for f4; six of the edges go on. */
	assert_int_equal(four, (48 + 3 * 64 + 16) * 6 * 6);
	assert_false(kvt__utf8_valid("ab\xc3\xa9\xe6\x97", 6, &bad));
	assert_int_equal(bad, 4);
}

/* ---- Fields ---- */

static void fields_have_their_defaults(void **state)
{
	struct kvt_fields fields = fields_example();

	(void)state;
	canonical_is("{\"blocks_per_file\":1,\"dcp_size\":1,\"dtype\":\"float16\","
		     "\"inference_engine\":\"vllm\",\"kv_cache_groups\":[],\"model_name\":\"test-"
		     "model\",\"parallel_agnostic\":false,\"pcp_size\":1,\"pp_size\":1,"
		     "\"tokens_per_hash\":16,\"tp_size\":1}",
		     &fields);
	fields.inference_engine = "other";
	fields.kv_cache_groups = "[{\"tokens_per_block\":4,\"layer_names\":[\"b\",\"a\"],\"x\":1}]";
	fields.canonical_format = "v1-nhd";
	fields.storage_format = "mine";
	fields.extra = "{\"revision\":\"abc\",\"Layout\":{\"z\":1,\"y\":null}}";
	fields.blocks_per_file = 2;
	fields.tp_size = 3;
	fields.pp_size = 4;
	fields.pcp_size = 5;
	fields.dcp_size = 6;
	fields.replicated_layout = 9;
	canonical_is("{\"Layout\":{\"y\":null,\"z\":1},\"blocks_per_file\":2,\"canonical_format\":"
		     "\"v1-nhd\",\"dcp_size\":6,\"dtype\":\"float16\",\"inference_engine\":"
		     "\"other\",\"kv_cache_groups\":[{\"layer_names\":[\"b\",\"a\"],"
		     "\"tokens_per_block\":4,\"x\":1}],\"model_name\":\"test-model\","
		     "\"parallel_agnostic\":false,\"pcp_size\":5,\"pp_size\":4,"
		     "\"replicated_layout\":true,\"revision\":\"abc\",\"storage_format\":\"mine\","
		     "\"tokens_per_hash\":16,\"tp_size\":3}",
		     &fields);
	/* Agnostic: all sizes are 1 and the field is absent. */
	fields.parallel_agnostic = 1;
	fields.replicated_layout = 0;
	fields.extra = fields.kv_cache_groups = NULL;
	fields.canonical_format = fields.storage_format = fields.inference_engine = NULL;
	canonical_is("{\"blocks_per_file\":2,\"dcp_size\":1,\"dtype\":\"float16\","
		     "\"inference_engine\":\"vllm\",\"kv_cache_groups\":[],\"model_name\":\"test-"
		     "model\",\"pcp_size\":1,\"pp_size\":1,\"tokens_per_hash\":16,\"tp_size\":1}",
		     &fields);
}

static void bad_fields_are_named_with_their_value(void **state)
{
	struct kvt_fields fields;

	(void)state;
#define REFUSED(member, value, detail)                                                             \
	do {                                                                                       \
		fields = fields_example();                                                         \
		fields.member = (value);                                                           \
		fields_refused(detail, &fields);                                                   \
	} while (0)
	REFUSED(struct_size, 8, "fields: struct_size is 8, expected");
	REFUSED(model_name, NULL, "fields.model_name is NULL, expected text");
	REFUSED(model_name, "", "fields.model_name is empty, expected text");
	REFUSED(dtype, NULL, "fields.dtype is NULL, expected text");
	REFUSED(dtype, "", "fields.dtype is empty, expected text");
	REFUSED(inference_engine, "", "fields.inference_engine is empty, expected text");
	REFUSED(tokens_per_hash, 0, "fields.tokens_per_hash is 0, expected at least 1");
	REFUSED(tokens_per_hash, -5, "fields.tokens_per_hash is -5, expected at least 1");
	REFUSED(blocks_per_file, -1, "fields.blocks_per_file is -1, expected at least 1, or 0");
	REFUSED(tp_size, -1, "fields.tp_size is -1, expected at least 1, or 0");
	REFUSED(pp_size, INT64_MIN, "fields.pp_size is -9223372036854775808, expected");
	REFUSED(pcp_size, -1, "fields.pcp_size is -1, expected");
	REFUSED(dcp_size, -1, "fields.dcp_size is -1, expected");
	REFUSED(model_name, "a\xff", "fields.model_name: invalid UTF-8 at byte 1 of 2");
	REFUSED(dtype, "\xed\xa0\x80", "fields.dtype: invalid UTF-8 at byte 0 of 3");
	REFUSED(canonical_format, "ab\xc3", "fields.canonical_format: invalid UTF-8 at byte 2");
	REFUSED(storage_format, "\xf4\x90\x80\x80", "fields.storage_format: invalid UTF-8 at");
	REFUSED(kv_cache_groups, "", "fields.kv_cache_groups: line 1");
	REFUSED(kv_cache_groups, "{}", "fields.kv_cache_groups: expected a JSON list");
	REFUSED(kv_cache_groups, "[1]", "fields.kv_cache_groups[0] is no object");
	REFUSED(kv_cache_groups, "[{\"tokens_per_block\":1}]",
		"fields.kv_cache_groups[0]: layer_names is no list of strings");
	REFUSED(kv_cache_groups,
		"[{\"layer_names\":[],\"tokens_per_block\":1},{\"layer_names\":[\"a\",1]}]",
		"fields.kv_cache_groups[1]: layer_names[1] is no string");
	REFUSED(kv_cache_groups, "[{\"layer_names\":[],\"tokens_per_block\":\"1\"}]",
		"fields.kv_cache_groups[0]: tokens_per_block is no integer");
	REFUSED(kv_cache_groups, "[{\"layer_names\":[],\"tokens_per_block\":1,\"x\":1.5}]",
		"number 1.5, expected an integer");
	REFUSED(extra, "", "fields.extra: line 1");
	REFUSED(extra, "[]", "fields.extra: expected a JSON object");
	REFUSED(extra, "{\"a\":1,\"a\":2}", "fields.extra: line 1, column");
	REFUSED(extra, "{\"a\":1.5}", "number 1.5, expected an integer");
	REFUSED(extra, "{\"kvtier\":{}}", "fields: the name \"kvtier\" is reserved");
#undef REFUSED
	/* Sizes that will not be used are checked all the same. */
	fields = fields_example();
	fields.tokens_per_hash = 1;
	char *canonical;
	assert_ok(kvt__canonical_fields(&env, &fields, &canonical));
	kvt__free(&env, canonical);
	fields.parallel_agnostic = 1;
	fields.tp_size = -2;
	fields_refused("fields.tp_size is -2, expected", &fields);
}

static void extra_fields_may_not_replace_the_known_ones(void **state)
{
	static const char *const names[] = {
		"blocks_per_file",  "canonical_format", "dcp_size",	     "dtype",
		"inference_engine", "kv_cache_groups",	"model_name",	     "parallel_agnostic",
		"pcp_size",	    "pp_size",		"replicated_layout", "storage_format",
		"tokens_per_hash",  "tp_size",
	};

	(void)state;
	for (size_t i = 0; i < TEST_COUNT(names); i++) {
		struct kvt_fields fields = fields_example();
		char *extra = test_format("{\"%s\":1}", names[i]);
		char *detail = test_format("fields.extra: \"%s\" is a field of its own", names[i]);
		fields.extra = extra;
		fields_refused(detail, &fields);
		free(extra);
		free(detail);
	}
}

static void fields_as_text_are_checked_and_nothing_is_defaulted(void **state)
{
	static const struct {
		const char *json, *detail;
	} refusals[] = {
		{"{}", "fields: model_name is absent, expected text"},
		{"{\"model_name\":1}", "fields: model_name is no string, expected text"},
		{"{\"model_name\":\"\"}", "fields: model_name is empty, expected text"},
		{"{\"model_name\":\"m\",\"parallel_agnostic\":1}",
		 "fields: parallel_agnostic is no boolean"},
		{"{\"model_name\":\"m\",\"kvtier\":{}}", "fields: the name \"kvtier\" is"},
		{"[\"model_name\"]", "fields: expected a JSON object"},
		{"{\"model_name\":\"m\"", "fields: line 1"},
		{"{\"model_name\":\"m\",\"x\":0.5}", "number 0.5, expected an integer"},
	};
	struct kvt__namespace ns;

	(void)state;
	for (size_t i = 0; i < TEST_COUNT(refusals); i++)
		assert_fails(KVT_EINVAL, refusals[i].detail,
			     init(&ns, NULL, refusals[i].json, NULL, KVT_MODE_ROW, 0));
	assert_ok(init(&ns, NULL, " {\"x\":[ ],\"model_name\":\"m\"} ", NULL, KVT_MODE_ROW, 5));
	assert_string_equal(ns.canonical, "{\"model_name\":\"m\",\"x\":[]}");
	kvt__namespace_fini(&ns, &env);
}

/* ---- Namespaces ---- */

static void the_rank_counts_only_when_it_says_not_agnostic(void **state)
{
	static const struct {
		const char *json;
		uint32_t rank;
	} cases[] = {
		{"{\"model_name\":\"m\"}", 0},
		{"{\"model_name\":\"m\",\"parallel_agnostic\":true}", 0},
		{"{\"model_name\":\"m\",\"parallel_agnostic\":false}", 7},
	};
	struct kvt_fields fields = fields_example();
	struct kvt__namespace ns;

	(void)state;
	for (size_t i = 0; i < TEST_COUNT(cases); i++) {
		char *end = test_format("_r%u/", cases[i].rank);
		assert_ok(init(&ns, NULL, cases[i].json, NULL, KVT_MODE_EXACT, 7));
		assert_int_equal(ns.rank, cases[i].rank);
		assert_non_null(strstr(ns.object_prefix, end));
		assert_int_equal(ns.object_prefix_bytes, strlen(ns.object_prefix));
		kvt__namespace_fini(&ns, &env);
		free(end);
	}
	assert_ok(init(&ns, NULL, NULL, &fields, KVT_MODE_ROW, UINT32_MAX));
	assert_string_equal(ns.object_prefix, "test-model_de3bba26cf36_r4294967295/");
	kvt__namespace_fini(&ns, &env);
	fields.parallel_agnostic = 1;
	assert_ok(init(&ns, NULL, NULL, &fields, KVT_MODE_ROW, UINT32_MAX));
	assert_int_equal(ns.rank, 0);
	kvt__namespace_fini(&ns, &env);
	/* A ready-made name says nothing: the rank is as given. */
	assert_ok(init(&ns, "ready", NULL, NULL, KVT_MODE_ROW, 3));
	assert_string_equal(ns.object_prefix, "ready_r3/");
	kvt__namespace_fini(&ns, &env);
}

static void pointer_mode_keeps_out_of_the_names_of_others(void **state)
{
	static const struct {
		const char *json;
		const char *canonical[3]; /* pointer, row, exact */
	} cases[] = {
		{"{\"model_name\":\"m\"}",
		 {"{\"model_name\":\"m\",\"storage_format\":\"kvtier1\"}", "{\"model_name\":\"m\"}",
		  "{\"model_name\":\"m\"}"}},
		{"{\"model_name\":\"m\",\"storage_format\":\"x\"}",
		 {"{\"model_name\":\"m\",\"storage_format\":\"x\"}",
		  "{\"model_name\":\"m\",\"storage_format\":\"x\"}",
		  "{\"model_name\":\"m\",\"storage_format\":\"x\"}"}},
	};
	struct kvt_fields fields = fields_example();
	struct kvt__namespace ns;

	(void)state;
	for (uint32_t mode = 0; mode < 3; mode++) {
		for (size_t i = 0; i < TEST_COUNT(cases); i++) {
			assert_ok(init(&ns, NULL, cases[i].json, NULL, mode, 0));
			assert_string_equal(ns.canonical, cases[i].canonical[mode]);
			kvt__namespace_fini(&ns, &env);
		}
		assert_ok(init(&ns, NULL, NULL, &fields, mode, 0));
		assert_int_equal(!!strstr(ns.canonical, "\"storage_format\":\"kvtier1\""),
				 mode == KVT_MODE_POINTER);
		kvt__namespace_fini(&ns, &env);
		assert_ok(init(&ns, "ready", NULL, NULL, mode, 0));
		assert_true(ns.ready_made);
		assert_string_equal(ns.base_name,
				    mode == KVT_MODE_POINTER ? "ready.kvtier1" : "ready");
		assert_string_equal(ns.canonical, ns.base_name);
		kvt__namespace_fini(&ns, &env);
	}
	fields.storage_format = "own";
	assert_ok(init(&ns, NULL, NULL, &fields, KVT_MODE_POINTER, 0));
	assert_non_null(strstr(ns.canonical, "\"storage_format\":\"own\""));
	kvt__namespace_fini(&ns, &env);
}

static void the_digest_is_of_the_canonical_form_or_the_string(void **state)
{
	const char *const sources[] = {"{\"model_name\":\"m\"}", "ready"};

	(void)state;
	for (size_t i = 0; i < TEST_COUNT(sources); i++) {
		struct kvt__namespace ns;
		uint8_t sha[EVP_MAX_MD_SIZE];
		char hex[20];

		assert_ok(init(&ns, i ? sources[i] : NULL, i ? NULL : sources[i], NULL,
			       KVT_MODE_EXACT, 0));
		assert_int_equal(
			EVP_Digest(sources[i], strlen(sources[i]), sha, NULL, EVP_sha256(), NULL),
			1);
		assert_memory_equal(ns.digest, sha, 8);
		(void)snprintf(hex, sizeof(hex), "m_%02x%02x%02x%02x%02x%02x", sha[0], sha[1],
			       sha[2], sha[3], sha[4], sha[5]);
		assert_string_equal(ns.base_name, i ? "ready" : hex);
		kvt__namespace_fini(&ns, &env);
	}
}

static void exactly_one_source_and_a_known_mode_are_wanted(void **state)
{
	struct kvt_fields fields = fields_example();
	struct kvt__namespace ns;

	(void)state;
	assert_fails(KVT_EINVAL, "0 of namespace_name, fields_json and fields are set",
		     init(&ns, NULL, NULL, NULL, 0, 0));
	assert_fails(KVT_EINVAL, "2 of namespace_name, fields_json and fields are set",
		     init(&ns, "a", "{}", NULL, 0, 0));
	assert_fails(KVT_EINVAL, "2 of namespace_name, fields_json and fields are set",
		     init(&ns, NULL, "{}", &fields, 0, 0));
	assert_fails(KVT_EINVAL, "3 of namespace_name, fields_json and fields are set",
		     init(&ns, "a", "{}", &fields, 0, 0));
	assert_fails(KVT_EINVAL, "mode is 3, expected 0 to 2", init(&ns, "a", NULL, NULL, 3, 0));
	kvt__namespace_fini(&ns, &env);
}

static void a_ready_made_name_is_one_plain_component(void **state)
{
	static const struct {
		const char *name, *detail;
	} refusals[] = {
		{"", "namespace is empty"},
		{".", "namespace \".\" starts with a dot"},
		{"..", "namespace \"..\" starts with a dot"},
		{".hidden", "namespace \".hidden\" starts with a dot"},
		{"a/b", "namespace \"a/b\": character 0x2f at byte 1"},
		{"a b", "character 0x20 at byte 1"},
		{"a\n", "character 0x0a at byte 1"},
		{"a\x7f", "character 0x7f at byte 1"},
		{"a\xc3\xa9", "character 0xc3 at byte 1"},
		{"a:b", "character 0x3a at byte 1"},
		{"a\\b", "character 0x5c at byte 1"},
		{"a~", "character 0x7e at byte 1"},
	};
	struct kvt__namespace ns;

	(void)state;
	for (size_t i = 0; i < TEST_COUNT(refusals); i++)
		assert_fails(KVT_EINVAL, refusals[i].detail,
			     init(&ns, refusals[i].name, NULL, NULL, KVT_MODE_ROW, 0));
	assert_ok(init(&ns, "-A..Z_a-z.09", NULL, NULL, KVT_MODE_ROW, 0));
	assert_string_equal(ns.base_name, "-A..Z_a-z.09");
	kvt__namespace_fini(&ns, &env);
}

static void model_names_that_do_not_belong_in_a_path_are_refused(void **state)
{
	static const struct {
		const char *json, *detail;
	} refusals[] = {
		{"{\"model_name\":\"..\"}", "component \"..\" at byte 0"},
		{"{\"model_name\":\"../m\"}", "component \"..\" at byte 0"},
		{"{\"model_name\":\"a/../m\"}", "component \"..\" at byte 2"},
		{"{\"model_name\":\"a/..\"}", "component \"..\" at byte 2"},
		{"{\"model_name\":\"a\\nb\"}", "model_name: control character 0x0a at byte 1"},
		{"{\"model_name\":\"\\u0001\"}", "model_name: control character 0x01 at byte 0"},
		{"{\"model_name\":\"ab\\u007f\"}", "model_name: control character 0x7f at byte 2"},
		{"{\"model_name\":\"a\\u0000\"}", "\\u0000 is not allowed"},
	};
	static const struct {
		const char *json, *base;
	} accepted[] = {
		{"{\"model_name\":\"...\"}", "..._"},
		{"{\"model_name\":\"a..b/..c/d..\"}", "a..b_..c_d.._"},
		{"{\"model_name\":\"/\"}", "__"},
		{"{\"model_name\":\"a//b\"}", "a__b_"},
		{"{\"model_name\":\"a b\\\\\\\"\"}", "a b\\\"_"},
		{"{\"model_name\":\"\\u00e9\"}", "\xc3\xa9_"},
	};
	struct kvt__namespace ns;

	(void)state;
	for (size_t i = 0; i < TEST_COUNT(refusals); i++)
		assert_fails(KVT_EINVAL, refusals[i].detail,
			     init(&ns, NULL, refusals[i].json, NULL, KVT_MODE_ROW, 0));
	for (size_t i = 0; i < TEST_COUNT(accepted); i++) {
		assert_ok(init(&ns, NULL, accepted[i].json, NULL, KVT_MODE_ROW, 0));
		assert_int_equal(strlen(ns.base_name), strlen(accepted[i].base) + 12);
		assert_memory_equal(ns.base_name, accepted[i].base, strlen(accepted[i].base));
		kvt__namespace_fini(&ns, &env);
	}
}

static void folder_names_have_at_most_255_bytes(void **state)
{
	char name[400], detail[64];
	struct kvt_fields fields = fields_example();
	struct kvt__namespace ns;

	(void)state;
	/* "_r0" and "_r4294967295" are part of it. */
	memset(name, 'n', sizeof(name));
	name[252] = '\0';
	assert_ok(init(&ns, name, NULL, NULL, KVT_MODE_ROW, 0));
	assert_int_equal(ns.object_prefix_bytes, 256);
	kvt__namespace_fini(&ns, &env);
	assert_fails(KVT_EINVAL, "has 256 bytes, expected at most 255",
		     init(&ns, name, NULL, NULL, KVT_MODE_ROW, 10));
	assert_fails(KVT_EINVAL, "has 263 bytes, expected at most 255",
		     init(&ns, name, NULL, NULL, KVT_MODE_POINTER, 0));
	name[252] = 'n';
	for (size_t bytes = 238; bytes < sizeof(name); bytes += 23) {
		name[bytes] = '\0';
		fields.model_name = name;
		(void)snprintf(detail, sizeof(detail), "has %zu bytes, expected at most 255",
			       bytes + 16);
		if (bytes + 16 <= 255) {
			assert_ok(init(&ns, NULL, NULL, &fields, KVT_MODE_ROW, 0));
			kvt__namespace_fini(&ns, &env);
		} else {
			assert_fails(KVT_EINVAL, detail,
				     init(&ns, NULL, NULL, &fields, KVT_MODE_ROW, 0));
		}
		name[bytes] = 'n';
	}
}

static void every_failed_allocation_is_out_of_memory(void **state)
{
	struct test_allocator allocator;
	struct kvt_hooks hooks = {0};
	struct kvt__env hooked;
	struct kvt_fields fields = fields_example();

	(void)state;
	test_allocator_init(&allocator);
	test_allocator_hooks(&allocator, &hooks.allocator);
	assert_ok(kvt__env_init(&hooked, &hooks));
	for (int source = 0; source < 3; source++) {
		bool failed = true;
		for (uint64_t nth = 1; failed; nth++) {
			struct kvt_store_options options = KVT_INIT(options);
			struct kvt__namespace ns;
			int error;

			options.namespace_name = source == 0 ? "ready" : NULL;
			options.fields_json = source == 1 ? "{\"model_name\":\"m\"}" : NULL;
			options.fields = source == 2 ? &fields : NULL;
			atomic_store(&allocator.fail_at, atomic_load(&allocator.calls) + nth);
			atomic_store(&allocator.failed, 0);
			error = kvt__namespace_init(&ns, &hooked, &options, KVT__FANOUT_VLLM);
			failed = atomic_load(&allocator.failed) > 0;
			assert_returns(failed ? KVT_ENOMEM : 0, error);
			kvt__namespace_fini(&ns, &hooked);
			assert_int_equal(atomic_load(&allocator.live_blocks), 0);
		}
	}
	kvt__env_fini(&hooked);
}

/* ---- Object names ---- */

/* What a reader of the description would print. */
static char *plain_name(const struct kvt__namespace *ns, const uint8_t *hash, uint32_t bytes,
			uint32_t group)
{
	char hex[129] = "", *name;

	for (uint32_t i = 0; i < bytes; i++)
		(void)snprintf(hex + 2 * i, 3, "%02x", hash[i]);
	if (ns->fanout == KVT__FANOUT_FLAT)
		name = test_format("%s_r%u/%.3s/%s_g%u.bin", ns->base_name, ns->rank, hex, hex,
				   group);
	else
		name = test_format("%s_r%u/%.3s/%.2s_g%u/%s.bin", ns->base_name, ns->rank, hex,
				   bytes > 1 ? hex + 3 : "", group, hex);
	return name;
}

static void object_names_are_as_described_and_come_back(void **state)
{
	struct test_random random = {test_seed(21)};
	static const uint32_t groups[] = {0, 1, 9, 10, 4294967295u};

	(void)state;
	for (int fanout = 0; fanout < 2; fanout++) {
		struct kvt__namespace ns;
		assert_ok(init(&ns, "ready", NULL, NULL, KVT_MODE_ROW, 12));
		ns.fanout = (enum kvt__fanout)fanout;
		char *name = malloc(kvt__object_name_max(&ns));
		for (uint32_t bytes = 1; bytes <= 64; bytes++) {
			for (int round = 0; round < 50; round++) {
				uint8_t hash[64], back[64];
				uint32_t back_bytes = 0, back_group = 0;
				uint32_t group = round < 5 ? groups[round]
							   : (uint32_t)test_random_next(&random);
				char *plain;

				test_fill(hash, bytes, test_random_next(&random));
				plain = plain_name(&ns, hash, bytes, group);
				assert_int_equal(kvt__object_name(&ns, hash, bytes, group, name),
						 strlen(plain));
				assert_string_equal(name, plain);
				assert_true(strlen(name) + 1 <= kvt__object_name_max(&ns));
				assert_true(strlen(name) + 1 <= KVT_NAME_BYTES);
				assert_true(kvt__object_name_parse(&ns, name, back, &back_bytes,
								   &back_group));
				assert_int_equal(back_bytes, bytes);
				assert_memory_equal(back, hash, bytes);
				assert_int_equal(back_group, group);
				assert_true(kvt__object_name_any(name));
				free(plain);
			}
		}
		free(name);
		kvt__namespace_fini(&ns, &env);
	}
}

static void names_that_are_not_ours_are_told(void **state)
{
	static const char *const vllm[] = {
		"",
		"ready_r0",
		"ready_r0/",
		"ready_r1/000/10_g0/0001020304.bin", /* another rank */
		"ready_r00/000/10_g0/0001020304.bin",
		"readz_r0/000/10_g0/0001020304.bin", /* another namespace */
		"/ready_r0/000/10_g0/0001020304.bin",
		"ready_r0/000/10_g0/0001020304.bin/",
		"ready_r0//000/10_g0/0001020304.bin",
		"ready_r0/001/10_g0/0001020304.bin", /* folders of another hash */
		"ready_r0/000/11_g0/0001020304.bin",
		"ready_r0/00/010_g0/0001020304.bin",
		"ready_r0/0001/0_g0/0001020304.bin",
		"ready_r0/000/10_g/0001020304.bin",
		"ready_r0/000/10_g00/0001020304.bin", /* other spellings of a group */
		"ready_r0/000/10_g01/0001020304.bin",
		"ready_r0/000/10_g+1/0001020304.bin",
		"ready_r0/000/10_g-1/0001020304.bin",
		"ready_r0/000/10_g 1/0001020304.bin",
		"ready_r0/000/10_g4294967296/0001020304.bin",
		"ready_r0/000/10_g99999999999999999999999/0001020304.bin",
		"ready_r0/000/10_h0/0001020304.bin",
		"ready_r0/000/10g0/0001020304.bin",
		"ready_r0/000/10_g0/000102030A.bin", /* upper case */
		"ready_r0/000/10_g0/000102030.bin",  /* half a byte */
		"ready_r0/000/10_g0/.bin",
		"ready_r0//_g0/.bin",
		"ready_r0/000/10_g0/0001020304",
		"ready_r0/000/10_g0/0001020304.bin2",
		"ready_r0/000/10_g0/0001020304.bin.tmp",
		"ready_r0/000/10_g0/0001020304.BIN",
		"ready_r0/000/10_g0/g001020304.bin",
		"ready_r0/000/0001020304_g0.bin", /* the other fan-out */
		"ready/config.json",
		"ready_r0/000/10_g0/" /* 65 bytes */
		"000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
		"000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f00.bin",
	};
	static const char *const flat[] = {
		"ready_r0/000/10_g0/0001020304.bin", /* the other fan-out */
		"ready_r0/000/0001020304.bin",
		"ready_r0/001/0001020304_g0.bin",
		"ready_r0/00/0001020304_g0.bin",
		"ready_r0/0001020304_g0.bin",
		"ready_r0/000/0001020304_g.bin",
		"ready_r0/000/0001020304_g00.bin",
		"ready_r0/000/0001020304_g4294967296.bin",
		"ready_r0/000/0001020304_G0.bin",
		"ready_r0/000/000102030_g0.bin",
		"ready_r0/000/_g0.bin",
		"ready_r0//_g0.bin",
		"ready_r0/000/0001020304_g0.bin2",
		"ready_r0/000/0001020304_g0",
	};
	struct kvt__namespace ns;
	uint8_t hash[64];
	uint32_t bytes, group;

	(void)state;
	assert_ok(init(&ns, "ready", NULL, NULL, KVT_MODE_ROW, 0));
	assert_true(kvt__object_name_parse(&ns, "ready_r0/000/10_g0/0001020304.bin", hash, &bytes,
					   &group));
	for (size_t i = 0; i < TEST_COUNT(vllm); i++) {
		if (kvt__object_name_parse(&ns, vllm[i], hash, &bytes, &group))
			fail_msg("\"%s\" is not ours", vllm[i]);
	}
	ns.fanout = KVT__FANOUT_FLAT;
	assert_true(kvt__object_name_parse(&ns, "ready_r0/000/0001020304_g0.bin", hash, &bytes,
					   &group));
	for (size_t i = 0; i < TEST_COUNT(flat); i++) {
		if (kvt__object_name_parse(&ns, flat[i], hash, &bytes, &group))
			fail_msg("\"%s\" is not ours", flat[i]);
	}
	kvt__namespace_fini(&ns, &env);
}

static void objects_of_any_namespace_are_told_from_other_files(void **state)
{
	static const char *const yes[] = {
		"a_r0/000/10_g0/0001020304.bin",
		"a_r4294967295/000/10_g4294967295/0001020304.bin",
		"a_r0/000/0001020304_g0.bin",
		"a_r0/ab/_g0/ab.bin",
		"a_r0/ab/ab_g7.bin",
		"my.name-2_r3/000/10_g0/0001020304.bin",
		"meta-llama_Llama-3.1-8B_4a66a7fc538a_r0/000/10_g0/0001020304.bin",
		"org_mod\xc3\xa8le_9dbe62bc5d00_r0/000/10_g0/0001020304.bin",
		"model with spaces_9dbe62bc5d00_r0/000/10_g0/0001020304.bin",
		".hidden_9dbe62bc5d00_r0/000/10_g0/0001020304.bin",
		"a_r1_r2/000/10_g0/0001020304.bin",
		" _9dbe62bc5d00_r0/000/10_g0/0001020304.bin",
	};
	static const char *const no[] = {
		"",
		"/",
		"a_r0",
		"_r0/000/10_g0/0001020304.bin",
		"r0/000/10_g0/0001020304.bin",
		"a/000/10_g0/0001020304.bin",
		"a_r/000/10_g0/0001020304.bin",
		"a_r00/000/10_g0/0001020304.bin",
		"a_r4294967296/000/10_g0/0001020304.bin",
		"a_rx/000/10_g0/0001020304.bin",
		"a-r0/000/10_g0/0001020304.bin",
		".kvtier/tmp/000/10_g0/0001020304.bin",
		".hidden_r0/000/10_g0/0001020304.bin",
		"a b_r0/000/10_g0/0001020304.bin",
		" _r0/000/10_g0/0001020304.bin",
		"\xc3\xa9_r0/000/10_g0/0001020304.bin",
		" 9dbe62bc5d00_r0/000/10_g0/0001020304.bin",
		"org_mod\xc3\xa8le_r0/000/10_g0/0001020304.bin",
		"_9dbe62bc5d00/000/10_g0/0001020304.bin",
		"a b_9dbe62bc5d0_r0/000/10_g0/0001020304.bin",
		"a b_9dbe62bc5d0g_r0/000/10_g0/0001020304.bin",
		"a b-9dbe62bc5d00_r0/000/10_g0/0001020304.bin",
		"a\n_9dbe62bc5d00_r0/000/10_g0/0001020304.bin",
		"a_r0/000/11_g0/0001020304.bin",
		"a_r0/000/10_g0/0001020304.bin.tmp",
		"a_r0/000/10_g0/x/0001020304.bin",
		"x/a_r0/000/10_g0/0001020304.bin",
		"a/config.json",
		"a_r0/config.json",
	};
	char longest[400];

	(void)state;
	for (size_t i = 0; i < TEST_COUNT(yes); i++) {
		if (!kvt__object_name_any(yes[i]))
			fail_msg("\"%s\" is one", yes[i]);
	}
	for (size_t i = 0; i < TEST_COUNT(no); i++) {
		if (kvt__object_name_any(no[i]))
			fail_msg("\"%s\" is none", no[i]);
	}
	for (size_t bytes = 252; bytes <= 253; bytes++) {
		memset(longest, 'n', bytes);
		(void)snprintf(longest + bytes, sizeof(longest) - bytes,
			       "_r0/000/10_g0/0001020304.bin");
		assert_int_equal(kvt__object_name_any(longest), bytes == 252);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_vector_is_named_as_vllm_names_it),
		cmocka_unit_test(fields_as_text_in_any_order_give_the_same_names),
		cmocka_unit_test(the_object_tier_always_says_one_block_per_file),
		cmocka_unit_test(canonical_json_has_one_form),
		cmocka_unit_test(json_without_a_canonical_form_is_refused),
		cmocka_unit_test(deep_nesting_is_canonical_or_refused_but_never_fatal),
		cmocka_unit_test(utf_8_is_told_from_all_other_bytes),
		cmocka_unit_test(fields_have_their_defaults),
		cmocka_unit_test(bad_fields_are_named_with_their_value),
		cmocka_unit_test(extra_fields_may_not_replace_the_known_ones),
		cmocka_unit_test(fields_as_text_are_checked_and_nothing_is_defaulted),
		cmocka_unit_test(the_rank_counts_only_when_it_says_not_agnostic),
		cmocka_unit_test(pointer_mode_keeps_out_of_the_names_of_others),
		cmocka_unit_test(the_digest_is_of_the_canonical_form_or_the_string),
		cmocka_unit_test(exactly_one_source_and_a_known_mode_are_wanted),
		cmocka_unit_test(a_ready_made_name_is_one_plain_component),
		cmocka_unit_test(model_names_that_do_not_belong_in_a_path_are_refused),
		cmocka_unit_test(folder_names_have_at_most_255_bytes),
		cmocka_unit_test(every_failed_allocation_is_out_of_memory),
		cmocka_unit_test(object_names_are_as_described_and_come_back),
		cmocka_unit_test(names_that_are_not_ours_are_told),
		cmocka_unit_test(objects_of_any_namespace_are_told_from_other_files),
	};

	return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
