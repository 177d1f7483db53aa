/* SPDX-License-Identifier: Apache-2.0 */
/* What a store keeps beside its objects (config.json, access times), and raw chunks of other
 * software. */
#include "chunk_scene.h"

#include <stdlib.h>
#include <string.h>

static const struct chunk_shape shape = {1, 1, {1000}};

#define CONFIG	  "ns/config.json"
#define MINUTE_NS (INT64_C(60) * 1000000000)

/* ---- config.json ---- */

static void the_first_store_writes_config_json_once(void **state)
{
	struct chunk_scene s;
	size_t bytes;

	(void)state;
	chunk_scene_init(&s, NULL, &shape);
	chunk_scene_open(&s);
	assert_false(fake_object_exists(s.fake, CONFIG));
	chunk_load(&s, 0, 1, 1, KVT_STATUS_MISSING, KVT_ENOENT);
	assert_false(fake_object_exists(s.fake, CONFIG));
	for (int i = 0; i < 20; i++) {
		chunk_store(&s, 0, 1, 1, KVT_STATUS_STORED);
		chunk_scene_next(&s);
	}
	char *text = (char *)fake_object_get(s.fake, CONFIG, &bytes);
	assert_non_null(text);
	text[bytes] = '\0';
	assert_non_null(strstr(text, "\"namespace\""));
	assert_non_null(strstr(text, "\"ns\""));
	assert_non_null(strstr(text, "\"kvtier\""));
	assert_non_null(strstr(text, "\"vllm\""));
	free(text);
	unsigned writes = 0;
	for (size_t i = 0; i < fake_record_count(s.fake); i++) {
		struct fake_record r = fake_record_at(s.fake, i);
		if (r.op == KVT_IO_PUT && strcmp(r.name, CONFIG) == 0) {
			writes++;
			assert_true(r.flags & KVT_IO_IF_ABSENT);
		}
	}
	assert_int_equal(writes, 1);
	/* It is compared when the store is opened again. */
	test_bed_close(&s.bed);
	test_bed_open(&s.bed, fake_store_uri(s.fake));
	chunk_scene_close(&s);
}

static void buckets_of_the_object_tier_have_none(void **state)
{
	static const struct test_group one = {1, 0, 1, {1000}};
	struct fake_store *fake = fake_store_create(NULL);
	struct kvt_fields fields = KVT_INIT(fields);
	struct test_bed bed;
	struct test_transfer t;
	char name[KVT_NAME_BYTES];

	(void)state;
	fields.model_name = "test/model";
	fields.dtype = "float16";
	fields.tokens_per_hash = 16;
	fields.blocks_per_file = 4;
	test_bed_init(&bed);
	bed.store_options.namespace_name = NULL;
	bed.store_options.fields = &fields;
	bed.store_options.mode = KVT_MODE_EXACT;
	test_bed_option(&bed, "compat_names", "vllm-obj");
	test_bed_open(&bed, fake_store_uri(fake));
	test_transfer_init(&t, 1, &one, 1, 1);
	test_store(&bed, &t, KVT_STATUS_STORED);
	test_load(&bed, &t, KVT_STATUS_LOADED);
	assert_true(kvt_store_object_name(bed.store, &t.keys[0], name, sizeof(name)) > 0);
	assert_int_equal(strncmp(name, "test_model_c32b90738e47_r0/", 27), 0);
	assert_true(fake_object_exists(fake, name));
	assert_int_equal(fake_object_count(fake), 1);
	for (size_t i = 0; i < fake_record_count(fake); i++)
		assert_string_equal(fake_record_at(fake, i).name, name);
	test_transfer_fini(&t);
	test_bed_close(&bed);
	assert_null(fake_violation(fake));
	fake_store_destroy(fake);
}

static void many_first_stores_at_once_agree_on_it(void **state)
{
	static const struct test_group many = {200, 0, 1, {1000}};
	static const struct fake_config configs[] = {
		{.capabilities = FAKE_CAPABILITIES},
		{.capabilities = 0},
	};

	(void)state;
	for (size_t c = 0; c < TEST_COUNT(configs); c++) {
		struct chunk_scene s;
		struct test_transfer t;
		chunk_scene_init(&s, &configs[c], &shape);
		s.bed.worker_options.lanes = 8;
		chunk_scene_open(&s);
		test_transfer_init(&t, 1, &many, 1, 1);
		test_store(&s.bed, &t, KVT_STATUS_STORED);
		test_load(&s.bed, &t, KVT_STATUS_LOADED);
		assert_true(fake_object_exists(s.fake, CONFIG));
		test_transfer_fini(&t);
		chunk_scene_close(&s);
	}
}

static struct kvt_fields fields_of(const char *model)
{
	struct kvt_fields fields = KVT_INIT(fields);

	fields.model_name = model;
	fields.dtype = "bfloat16";
	fields.tokens_per_hash = 16;
	return fields;
}

static void another_namespace_under_the_same_name_is_refused_at_open(void **state)
{
	static const struct {
		const char *text, *names[3];
		int error;
	} cases[] = {
		{"{\"namespace\": \"ns\"}", {NULL, NULL, NULL}, 0},
		{"{\"namespace\": \"ns\", \"unknown\": [1, {}]}", {NULL, NULL, NULL}, 0},
		{"{\"namespace\": \"ns\", \"kvtier\": {\"format\": 1, \"fanout\": \"vllm\"}}",
		 {NULL, NULL, NULL},
		 0},
		{"{\"namespace\": \"other\"}", {"namespace", "other", "ns"}, KVT_ENAMESPACE},
		{"{\"namespace\": \"ns\", \"kvtier\": {\"fanout\": \"flat\"}}",
		 {"fanout", "flat", "vllm"},
		 KVT_ENAMESPACE},
		{"{\"namespace\": \"ns\", \"kvtier\": {\"format\": 2}}",
		 {"format", "2", "1"},
		 KVT_ENAMESPACE},
	};

	(void)state;
	for (size_t i = 0; i < TEST_COUNT(cases); i++) {
		struct fake_store *fake = fake_store_create(NULL);
		struct test_bed bed;
		print_message("  %s\n", cases[i].text);
		fake_object_put(fake, CONFIG, cases[i].text, strlen(cases[i].text));
		test_bed_init(&bed);
		bed.store_options.uri = fake_store_uri(fake);
		int got = kvt_store_open(&bed.store_options, &bed.store);
		assert_returns(cases[i].error, got);
		for (int n = 0; n < 3 && cases[i].names[n]; n++)
			assert_fails(cases[i].error, cases[i].names[n], got);
		if (got == 0)
			assert_ok(kvt_store_close(bed.store));
		else
			assert_null(bed.store);
		fake_store_destroy(fake);
	}
}

static void fields_that_differ_are_named(void **state)
{
	struct fake_store *fake = fake_store_create(NULL);
	struct kvt_fields fields = fields_of("org/model");
	struct kvt_store_info info = KVT_INIT(info);
	struct test_bed bed;
	struct test_transfer t;
	static const struct test_group one = {1, 0, 1, {100}};

	(void)state;
	test_bed_init(&bed);
	bed.store_options.namespace_name = NULL;
	bed.store_options.fields = &fields;
	test_bed_open(&bed, fake_store_uri(fake));
	test_transfer_init(&t, 1, &one, 1, 1);
	test_store(&bed, &t, KVT_STATUS_STORED);
	assert_ok(kvt_store_get_info(bed.store, &info));
	char *name = test_format("%s/config.json", info.base_name);
	size_t bytes;
	char *text = (char *)fake_object_get(fake, name, &bytes);
	assert_non_null(text);
	text[bytes] = '\0';
	char *at = strstr(text, "bfloat16");
	assert_non_null(at);
	memcpy(at, "bfloat17", 8);
	fake_object_put(fake, name, text, bytes);
	test_bed_close(&bed);
	bed.store_options.uri = fake_store_uri(fake);
	int got = kvt_store_open(&bed.store_options, &bed.store);
	assert_fails(KVT_ENAMESPACE, "dtype", got);
	assert_fails(KVT_ENAMESPACE, "bfloat16", got);
	assert_fails(KVT_ENAMESPACE, "bfloat17", got);
	free(text);
	free(name);
	test_transfer_fini(&t);
	fake_store_destroy(fake);
}

static void one_that_appears_after_open_is_compared_at_the_first_store(void **state)
{
	static const char *const texts[] = {"{\"namespace\": \"other\"}",
					    "{\"namespace\": \"ns\"}"};

	(void)state;
	for (int right = 0; right < 2; right++) {
		struct chunk_scene s;
		struct test_transfer t;
		chunk_scene_init(&s, NULL, &shape);
		chunk_scene_open(&s);
		fake_object_put(s.fake, CONFIG, texts[right], strlen(texts[right]));
		chunk_transfer(&s, &t, 0, 1, 1);
		for (uint64_t round = 0; round < 2; round++) {
			assert_ok(kvt_worker_submit_store(s.bed.worker, 1, &t.transfer, NULL));
			struct kvt_result *result = test_take(s.bed.worker, 1);
			if (!right) {
				assert_non_null(strstr(result->detail, "other"));
				assert_result_error(KVT_STATUS_FAILED, KVT_ENAMESPACE, result);
			} else {
				assert_result(round ? KVT_STATUS_SKIPPED : KVT_STATUS_STORED,
					      result);
			}
		}
		assert_int_equal(fake_object_exists(s.fake, s.name), right);
		test_transfer_fini(&t);
		chunk_scene_close(&s);
	}
}

static void one_that_is_being_written_is_read_again(void **state)
{
	struct fake_store *fake = fake_store_create(NULL);
	struct fake_rule flip = {
		.ops = FAKE_OP(KVT_IO_GET), .name = "config.json", .times = 2, .action = FAKE_FLIP};
	struct test_bed bed;

	(void)state;
	fake_object_put(fake, CONFIG, "{\"namespace\": \"ns\"}", 19);
	fake_rule_add(fake, &flip);
	test_bed_init(&bed);
	test_bed_open(&bed, fake_store_uri(fake));
	assert_int_equal(fake_calls(fake, KVT_IO_GET), 3);
	test_bed_close(&bed);
	fake_rule_remove(fake, &flip);
	fake_object_put(fake, CONFIG, "{\"namespace\": ", 14);
	bed.store_options.uri = fake_store_uri(fake);
	assert_fails(KVT_ECONFIG, "config.json", kvt_store_open(&bed.store_options, &bed.store));
	fake_store_destroy(fake);
}

static atomic_uint warnings;

static void count_warnings(void *context, enum kvt_log_level level, const char *line)
{
	(void)context;
	if (level == KVT_LOG_WARNING && strstr(line, "config.json"))
		atomic_fetch_add(&warnings, 1);
}

static void a_place_where_it_cannot_be_written_is_used_with_a_warning(void **state)
{
	static const int errors[] = {KVT_EACCES, KVT_EROFS};

	(void)state;
	for (size_t i = 0; i < TEST_COUNT(errors); i++) {
		struct chunk_scene s;
		struct fake_rule fail = {.ops = FAKE_OP(KVT_IO_PUT),
					 .name = "config.json",
					 .action = FAKE_FAIL,
					 .error = errors[i]};
		atomic_store(&warnings, 0);
		chunk_scene_init(&s, NULL, &shape);
		s.bed.store_options.hooks.log = count_warnings;
		s.bed.worker_options.hooks.log = count_warnings;
		chunk_scene_open(&s);
		fake_rule_add(s.fake, &fail);
		chunk_store(&s, 0, 1, 1, KVT_STATUS_STORED);
		chunk_scene_next(&s);
		chunk_store(&s, 0, 1, 1, KVT_STATUS_STORED);
		assert_int_equal(atomic_load(&warnings), 1);
		fake_rule_remove(s.fake, &fail);
		chunk_scene_close(&s);
	}
}

static void a_store_fails_while_it_can_neither_be_written_nor_read(void **state)
{
	struct chunk_scene s;
	struct test_transfer t;
	struct fake_rule fail = {
		.ops = FAKE_ALL, .name = "config.json", .action = FAKE_FAIL, .error = KVT_ENOSPC};

	(void)state;
	chunk_scene_init(&s, NULL, &shape);
	s.bed.worker_options.breaker_failures = UINT32_MAX;
	chunk_scene_open(&s);
	fake_rule_add(s.fake, &fail);
	chunk_transfer(&s, &t, 0, 1, 1);
	fail.error = KVT_ESERVER;
	assert_ok(kvt_worker_submit_store(s.bed.worker, 1, &t.transfer, NULL));
	assert_result_error(KVT_STATUS_FAILED, KVT_ESERVER, test_take(s.bed.worker, 1));
	fake_rule_remove(s.fake, &fail);
	test_transfer_fini(&t);
	chunk_scene_close(&s);
}

/* ---- Access times ---- */

static void loads_set_the_access_time_at_most_once_an_hour(void **state)
{
	struct chunk_scene s;

	(void)state;
	chunk_scene_init(&s, NULL, &shape);
	chunk_scene_open(&s);
	chunk_model_set(&s, 0, 1, 1);
	chunk_plant(&s);
	fake_object_set_age(s.fake, s.name, 500 * MINUTE_NS, 50 * MINUTE_NS);
	for (int i = 0; i < 3; i++)
		chunk_load(&s, 0, 1, 1, KVT_STATUS_LOADED, 0);
	assert_int_equal(fake_object_touches(s.fake, s.name), 0);
	fake_object_set_age(s.fake, s.name, 500 * MINUTE_NS, 70 * MINUTE_NS);
	for (int i = 0; i < 3; i++)
		chunk_load(&s, 0, 1, 1, KVT_STATUS_LOADED, 0);
	assert_ok(kvt_worker_drain(s.bed.worker, TEST_LIMIT_MS));
	assert_int_equal(fake_object_touches(s.fake, s.name), 1);
	chunk_scene_close(&s);
}

static void a_failing_touch_does_not_fail_the_load(void **state)
{
	struct chunk_scene s;
	struct fake_rule fail = {
		.ops = FAKE_OP(KVT_IO_TOUCH), .action = FAKE_FAIL, .error = KVT_EROFS};

	(void)state;
	chunk_scene_init(&s, NULL, &shape);
	chunk_scene_open(&s);
	chunk_model_set(&s, 0, 1, 1);
	chunk_plant(&s);
	fake_object_set_age(s.fake, s.name, 500 * MINUTE_NS, 500 * MINUTE_NS);
	fake_rule_add(s.fake, &fail);
	chunk_load(&s, 0, 1, 1, KVT_STATUS_LOADED, 0);
	assert_int_equal(fake_rule_hits(s.fake, &fail), 1);
	fake_rule_remove(s.fake, &fail);
	chunk_scene_close(&s);
}

/* ---- Raw chunks ---- */

struct raw_scene {
	struct fake_store *fake;
	struct test_bed bed;
	uint8_t row[5000];
	uint8_t hash[32];
	struct kvt_key key;
	int64_t number;
	struct kvt_rows rows;
	char name[KVT_NAME_BYTES];
};

static void raw_open(struct raw_scene *s, bool accept_raw)
{
	memset(s, 0, sizeof(*s));
	s->fake = fake_store_create(NULL);
	test_bed_init(&s->bed);
	s->bed.store_options.mode = KVT_MODE_ROW;
	if (accept_raw)
		test_bed_option(&s->bed, "accept_raw", "true");
	test_bed_open(&s->bed, fake_store_uri(s->fake));
	test_hash(s->hash, 32, 1, 0, 0);
	s->key = (struct kvt_key){s->hash, 32, 0};
	s->rows.struct_size = sizeof(s->rows);
	s->rows.base = s->row;
	s->rows.stride_bytes = sizeof(s->row);
	s->rows.row_count = 1;
	s->rows.row_indices = &s->number;
	s->rows.keys = &s->key;
	s->rows.key_count = 1;
	assert_true(kvt_store_object_name(s->bed.store, &s->key, s->name, sizeof(s->name)) > 0);
	struct kvt_geometry g = KVT_INIT(g);
	uint64_t size = sizeof(s->row);
	g.blocks_per_chunk = 1;
	g.ref_count = 1;
	g.ref_bytes = &size;
	assert_ok(kvt_worker_set_geometry(s->bed.worker, 0, &g));
	uint8_t raw[sizeof(s->row)];
	test_fill(raw, sizeof(raw), 42);
	fake_object_put(s->fake, s->name, raw, sizeof(raw));
}

static void raw_close(struct raw_scene *s)
{
	test_bed_close(&s->bed);
	assert_null(fake_violation(s->fake));
	fake_store_destroy(s->fake);
}

static void raw_chunks_are_taken_unverified_when_asked_for(void **state)
{
	struct raw_scene s;

	(void)state;
	raw_open(&s, true);
	test_lookup(&s.bed, &s.key, 1, KVT_STATUS_HIT);
	assert_ok(kvt_worker_submit_store_rows(s.bed.worker, 100, &s.rows, NULL));
	assert_result(KVT_STATUS_SKIPPED, test_take(s.bed.worker, 100));
	assert_ok(kvt_worker_submit_load_rows(s.bed.worker, 100, &s.rows, NULL));
	assert_result(KVT_STATUS_LOADED_UNVERIFIED, test_take(s.bed.worker, 100));
	assert_true(test_is_filled(s.row, sizeof(s.row), 42));
	struct kvt_stats stats = test_stats(s.bed.worker);
	assert_int_equal(stats.keys[KVT_JOB_LOAD][KVT_STATUS_LOADED_UNVERIFIED], 1);
	assert_int_equal(stats.keys[KVT_JOB_LOAD][KVT_STATUS_LOADED], 0);
	assert_int_equal(stats.bytes[KVT_JOB_LOAD], sizeof(s.row));
	/* One byte less is foreign, and no hit. */
	uint8_t raw[sizeof(s.row)] = {0};
	fake_object_put(s.fake, s.name, raw, sizeof(raw) - 1);
	test_lookup(&s.bed, &s.key, 1, KVT_STATUS_MISS);
	assert_ok(kvt_worker_submit_load_rows(s.bed.worker, 100, &s.rows, NULL));
	assert_result_error(KVT_STATUS_FOREIGN, KVT_EFOREIGN, test_take(s.bed.worker, 100));
	raw_close(&s);
}

static void raw_chunks_are_foreign_without_the_option(void **state)
{
	struct raw_scene s;

	(void)state;
	raw_open(&s, false);
	test_lookup(&s.bed, &s.key, 1, KVT_STATUS_MISS);
	assert_ok(kvt_worker_submit_load_rows(s.bed.worker, 100, &s.rows, NULL));
	assert_result_error(KVT_STATUS_FOREIGN, KVT_EFOREIGN, test_take(s.bed.worker, 100));
	assert_true(fake_object_exists(s.fake, s.name));
	test_fill(s.row, sizeof(s.row), 43);
	assert_ok(kvt_worker_submit_store_rows(s.bed.worker, 100, &s.rows, NULL));
	assert_result(KVT_STATUS_STORED, test_take(s.bed.worker, 100));
	test_lookup(&s.bed, &s.key, 1, KVT_STATUS_HIT);
	memset(s.row, 0, sizeof(s.row));
	assert_ok(kvt_worker_submit_load_rows(s.bed.worker, 100, &s.rows, NULL));
	assert_result(KVT_STATUS_LOADED, test_take(s.bed.worker, 100));
	assert_true(test_is_filled(s.row, sizeof(s.row), 43));
	raw_close(&s);
}

static void pointer_mode_refuses_accept_raw(void **state)
{
	struct fake_store *fake = fake_store_create(NULL);
	struct test_bed bed;

	(void)state;
	test_bed_init(&bed);
	bed.store_options.mode = KVT_MODE_POINTER;
	test_bed_option(&bed, "accept_raw", "true");
	bed.store_options.uri = fake_store_uri(fake);
	bed.store_options.options = bed.options;
	assert_fails(KVT_EINVAL, "accept_raw", kvt_store_open(&bed.store_options, &bed.store));
	fake_store_destroy(fake);
}

static void row_mode_says_one_block_whatever_the_fields_say(void **state)
{
	struct raw_scene s;
	size_t bytes;

	(void)state;
	raw_open(&s, false);
	fake_object_remove(s.fake, s.name);
	assert_ok(kvt_worker_submit_store_rows(s.bed.worker, 100, &s.rows, NULL));
	assert_result(KVT_STATUS_STORED, test_take(s.bed.worker, 100));
	uint8_t *object = fake_object_get(s.fake, s.name, &bytes);
	assert_non_null(object);
	assert_int_equal(object[bytes - 64 + 16], 1);
	assert_int_equal(object[bytes - 64 + 20], 1);
	assert_int_equal(object[bytes - 64 + 24], 1);
	free(object);
	raw_close(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_first_store_writes_config_json_once),
		cmocka_unit_test(buckets_of_the_object_tier_have_none),
		cmocka_unit_test(many_first_stores_at_once_agree_on_it),
		cmocka_unit_test(another_namespace_under_the_same_name_is_refused_at_open),
		cmocka_unit_test(fields_that_differ_are_named),
		cmocka_unit_test(one_that_appears_after_open_is_compared_at_the_first_store),
		cmocka_unit_test(one_that_is_being_written_is_read_again),
		cmocka_unit_test(a_place_where_it_cannot_be_written_is_used_with_a_warning),
		cmocka_unit_test(a_store_fails_while_it_can_neither_be_written_nor_read),
		cmocka_unit_test(loads_set_the_access_time_at_most_once_an_hour),
		cmocka_unit_test(a_failing_touch_does_not_fail_the_load),
		cmocka_unit_test(raw_chunks_are_taken_unverified_when_asked_for),
		cmocka_unit_test(raw_chunks_are_foreign_without_the_option),
		cmocka_unit_test(pointer_mode_refuses_accept_raw),
		cmocka_unit_test(row_mode_says_one_block_whatever_the_fields_say),
	};
	return cmocka_run_group_tests_name("worker_config", tests, NULL, NULL);
}
