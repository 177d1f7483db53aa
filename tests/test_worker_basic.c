/* SPDX-License-Identifier: Apache-2.0 */
/* A worker moves chunks of every shape out and back, on real backends and on every shape of backend
 * that the fake one can take. */
#include "support.h"

#include <stdlib.h>
#include <string.h>

#include "fake_backend.h"

#define PART 65536

static const struct shape {
	const char *name;
	uint32_t blocks_per_chunk, group_count;
	struct test_group groups[TEST_MAX_GROUPS];
} shapes[] = {
	{"one page", 1, 1, {{1, 0, 1, {4096}}}},
	{"one byte", 1, 1, {{1, 0, 1, {1}}}},
	{"three single bytes in a chunk", 3, 1, {{3, 0, 1, {1}}}},
	{"whole chunks of odd blocks", 4, 1, {{8, 0, 6, {1000, 1000, 1000, 1000, 1000, 1000}}}},
	{"first and last chunk partial", 4, 1, {{6, 3, 2, {512, 512}}}},
	{"one chunk partial on both sides", 8, 1, {{3, 2, 2, {777, 777}}}},
	{"negative block index", 4, 1, {{5, -3, 1, {4096}}}},
	{"refs of different sizes", 4, 1, {{8, 4, 3, {100, 3000, 17}}}},
	{"several groups, one empty, one without refs",
	 4,
	 4,
	 {{5, 1, 2, {300, 200}}, {0, 77, 3, {1, 2, 3}}, {9, 2, 0, {0}}, {4, 0, 1, {4096}}}},
	{"exactly one part", 1, 1, {{2, 0, 1, {PART}}}},
	{"exactly one part of many slots", 16, 1, {{16, 0, 1, {PART / 16}}}},
	{"one byte more than a part", 1, 1, {{2, 0, 1, {PART + 1}}}},
	{"one byte less than a part", 1, 1, {{2, 0, 1, {PART - 1}}}},
	{"half a part and less", 1, 2, {{3, 0, 1, {PART / 2}}, {5, 0, 1, {PART / 2 - 1}}}},
	{"several parts, slots across their borders", 2, 1, {{4, 0, 3, {50000, 50000, 50000}}}},
	{"one block of many parts", 1, 1, {{1, 0, 1, {(1 << 20) + 1}}}},
	{"many parts, partial", 8, 1, {{13, 5, 2, {30000, 10001}}}},
	{"many small slots", 64, 1, {{128, 0, 6, {64, 64, 64, 64, 64, 64}}}},
	{"trailer that is larger than the payload", 128, 1, {{128, 0, 1, {1}}}},
	{"trailer of about a part", 5000, 1, {{5000, 0, 3, {8, 8, 8}}}},
	{"trailer of several parts", 4096, 1, {{4096, 0, 6, {16, 3, 1, 1, 1, 5}}}},
	{"trailer alone in most requests", 8192, 1, {{8192, 0, 6, {1, 1, 1, 1, 1, 1}}}},
	{"trailer of several parts, partial", 4096, 1, {{3000, 700, 6, {16, 3, 1, 1, 1, 5}}}},
};

static const struct variant {
	const char *name;
	const char *uri; /* NULL: fake; "file": a temporary directory */
	struct fake_config config;
} variants[] = {
	{"mem", "mem:", {0}},
	{"file", "file", {0}},
	{"fake", NULL, {.capabilities = FAKE_CAPABILITIES}},
	{"fake, blocking", NULL, {.capabilities = FAKE_CAPABILITIES, .blocking = true}},
	{"fake, everything at once",
	 NULL,
	 {.capabilities = FAKE_CAPABILITIES, .done_at_once = true}},
	{"fake, whole bodies only", NULL, {.capabilities = FAKE_CAPABILITIES | KVT_CAP_FULL_BODY}},
	{"fake, short iovec and aligned memory",
	 NULL,
	 {.capabilities = FAKE_CAPABILITIES, .max_iov = 2, .memory_alignment = 4096}},
	{"fake, iovec of three",
	 NULL,
	 {.capabilities = FAKE_CAPABILITIES, .max_iov = 3, .piece_bytes = 333}},
	{"fake, aligned memory, whole bodies only",
	 NULL,
	 {.capabilities = FAKE_CAPABILITIES | KVT_CAP_FULL_BODY, .memory_alignment = 512}},
	{"fake, rewinding, youngest first",
	 NULL,
	 {.capabilities = FAKE_CAPABILITIES, .rewind = true, .youngest_first = true}},
	{"fake, large parts, no holes",
	 NULL,
	 {.capabilities = KVT_CAP_IF_ABSENT, .min_part_bytes = 100000, .max_parts = 1000}},
	{"fake, no conditions", NULL, {.capabilities = KVT_CAP_HOLES}},
	{"fake, nothing at all, quiet about objects", NULL, {.keeps_info_quiet = true}},
	{"fake, drops what is not wanted",
	 NULL,
	 {.capabilities = FAKE_CAPABILITIES | KVT_CAP_GET_DISCARD}},
	{"fake, often busy",
	 NULL,
	 {.capabilities = FAKE_CAPABILITIES, .busy_above = 1, .depth = 8}},
	{"fake, one request at a time", NULL, {.capabilities = FAKE_CAPABILITIES, .depth = 1}},
	{"fake, asking is dear",
	 NULL,
	 {.capabilities = FAKE_CAPABILITIES, .head_is_dear = true, .keeps_info_quiet = true}},
};

/* Whether the chunk of a key is whole, by the copies that it has. */
static bool key_is_whole(const struct test_transfer *t, uint64_t key)
{
	uint32_t group = t->keys[key].group, slots = 0;

	for (uint64_t i = 0; i < t->transfer.copy_count; i++)
		slots += t->copies[i].key == key;
	return slots == t->transfer.blocks_per_chunk * t->groups[group].refs;
}

static void check_lookup(struct test_bed *bed, const struct test_transfer *t)
{
	uint64_t id = bed->next_id++;

	test_set_geometry(bed, t);
	assert_ok(kvt_worker_submit_lookup(bed->worker, id, t->keys, t->transfer.key_count, NULL));
	struct kvt_result *result = test_take(bed->worker, id);
	for (uint64_t k = 0; k < result->key_count; k++)
		assert_int_equal(result->key_status[k],
				 key_is_whole(t, k) ? KVT_STATUS_HIT : KVT_STATUS_PARTIAL);
	kvt_result_release(result);
}

static void store_and_load(struct test_bed *bed, const struct shape *shape, uint64_t seed)
{
	struct test_transfer t;

	test_transfer_init(&t, shape->blocks_per_chunk, shape->groups, shape->group_count, seed);
	test_load(bed, &t, KVT_STATUS_MISSING);
	test_store(bed, &t, KVT_STATUS_STORED);
	test_transfer_check(&t);
	test_store(bed, &t, KVT_STATUS_SKIPPED);
	test_load(bed, &t, KVT_STATUS_LOADED);
	check_lookup(bed, &t);

	struct kvt_result *result;
	uint64_t id = bed->next_id++;
	test_transfer_poison(&t);
	assert_ok(kvt_worker_submit_load(bed->worker, id, &t.transfer, NULL));
	result = test_take(bed->worker, id);
	assert_int_equal(result->job_id, id);
	assert_int_equal(result->kind, KVT_JOB_LOAD);
	assert_int_equal(result->status, KVT_STATUS_LOADED);
	assert_int_equal(result->error, 0);
	assert_int_equal(result->key_count, t.transfer.key_count);
	assert_int_equal(result->bytes, t.payload_bytes);
	assert_string_equal(result->detail, "");
	assert_null(result->key_blocks);
	assert_true(result->attempts >= 1);
	for (uint64_t k = 0; k < result->key_count; k++)
		assert_int_equal(result->key_error[k], 0);
	kvt_result_release(result);
	test_transfer_fini(&t);
}

static void every_shape_comes_back(void **state)
{
	const struct variant *variant = *state;
	struct fake_store *fake = NULL;
	char *root = NULL, *uri = NULL;
	struct test_bed bed;

	test_bed_init(&bed);
	if (!variant->uri)
		fake = fake_store_create(&variant->config);
	else if (strcmp(variant->uri, "file") == 0)
		uri = test_format("file://%s", root = test_temp_dir());
	test_bed_open(&bed, fake ? fake_store_uri(fake) : uri ? uri : variant->uri);
	for (size_t s = 0; s < TEST_COUNT(shapes); s++) {
		print_message("  %s\n", shapes[s].name);
		store_and_load(&bed, &shapes[s], 1000 + s);
	}
	test_bed_close(&bed);
	if (fake) {
		if (fake_violation(fake))
			fail_msg("%s", fake_violation(fake));
		fake_store_destroy(fake);
	}
	free(uri);
	test_remove_tree(root);
}

static void a_part_of_a_chunk_is_loaded_alone(void **state)
{
	static const struct test_group whole = {16, 0, 3, {5000, 12000, 800}};
	struct test_bed bed;
	struct fake_store *fake = fake_store_create(NULL);
	struct test_transfer t;

	(void)state;
	test_bed_init(&bed);
	test_bed_open(&bed, fake_store_uri(fake));
	test_transfer_init(&t, 16, &whole, 1, 5);
	test_store(&bed, &t, KVT_STATUS_STORED);
	test_transfer_fini(&t);
	for (int64_t first = 0; first < 16; first++)
		for (uint64_t count = 1; first + (int64_t)count <= 16; count += first % 3 + 1) {
			struct test_group part = whole;
			part.index = first;
			part.blocks = count;
			test_transfer_init(&t, 16, &part, 1, 5);
			test_load(&bed, &t, KVT_STATUS_LOADED);
			test_transfer_fini(&t);
		}
	assert_null(fake_violation(fake));
	test_bed_close(&bed);
	fake_store_destroy(fake);
}

static void absent_slots_are_missing_and_present_ones_load(void **state)
{
	static const struct test_group stored = {3, 2, 2, {4000, 9000}};
	struct test_bed bed;
	struct test_transfer t;

	(void)state;
	test_bed_init(&bed);
	test_bed_open(&bed, "mem:");
	test_transfer_init(&t, 8, &stored, 1, 6);
	test_store(&bed, &t, KVT_STATUS_STORED);
	test_transfer_fini(&t);
	for (int64_t first = 0; first < 8; first++)
		for (uint64_t count = 1; first + (int64_t)count <= 8; count++) {
			struct test_group part = stored;
			part.index = first;
			part.blocks = count;
			test_transfer_init(&t, 8, &part, 1, 6);
			bool covered = first >= 2 && first + (int64_t)count <= 5;
			test_load(&bed, &t, covered ? KVT_STATUS_LOADED : KVT_STATUS_MISSING);
			test_transfer_fini(&t);
		}
	test_bed_close(&bed);
}

static void rows_come_back_by_their_numbers(void **state)
{
	enum { ROWS = 9, STRIDE = 3000 };
	static const int64_t out[] = {8, 0, 3}, in[] = {1, 2, 7};
	uint8_t(*buffer)[STRIDE] = malloc(ROWS * STRIDE), hashes[3][20];
	struct kvt_key keys[3];
	struct test_bed bed;
	struct kvt_rows rows = KVT_INIT(rows);

	(void)state;
	assert_non_null(buffer);
	test_bed_init(&bed);
	bed.store_options.mode = KVT_MODE_ROW;
	test_bed_open(&bed, "mem:");
	memset(buffer, 0xEE, ROWS * STRIDE);
	for (uint32_t k = 0; k < 3; k++) {
		test_hash(hashes[k], 20, 7, 0, k);
		keys[k] = (struct kvt_key){hashes[k], 20, 0};
		test_fill(buffer[out[k]], STRIDE, k);
	}
	rows.base = buffer;
	rows.stride_bytes = STRIDE;
	rows.row_count = ROWS;
	rows.row_indices = out;
	rows.keys = keys;
	rows.key_count = 3;
	assert_ok(kvt_worker_submit_store_rows(bed.worker, 1, &rows, NULL));
	assert_result(KVT_STATUS_STORED, test_take(bed.worker, 1));
	memset(buffer, 0xEE, ROWS * STRIDE);
	rows.row_indices = in;
	assert_ok(kvt_worker_submit_load_rows(bed.worker, 2, &rows, NULL));
	struct kvt_result *result = test_take(bed.worker, 2);
	assert_int_equal(result->bytes, 3 * STRIDE);
	assert_result(KVT_STATUS_LOADED, result);
	for (uint32_t row = 0; row < ROWS; row++) {
		bool target = false;
		for (uint32_t k = 0; k < 3; k++)
			if (in[k] == row) {
				target = true;
				assert_true(test_is_filled(buffer[row], STRIDE, k));
			}
		for (size_t i = 0; !target && i < STRIDE; i++)
			assert_int_equal(buffer[row][i], 0xEE);
	}
	test_bed_close(&bed);
	free(buffer);
}

static void rows_and_pointers_make_the_same_object(void **state)
{
	static const struct test_group one = {1, 0, 1, {5000}};
	struct fake_store *fakes[2];
	uint8_t *objects[2];
	size_t bytes[2];
	struct test_transfer t;

	(void)state;
	test_transfer_init(&t, 1, &one, 1, 8);
	test_transfer_fill(&t);
	for (int way = 0; way < 2; way++) {
		struct test_bed bed;
		char name[KVT_NAME_BYTES];
		fakes[way] = fake_store_create(NULL);
		test_bed_init(&bed);
		test_bed_open(&bed, fake_store_uri(fakes[way]));
		if (way == 0) {
			assert_ok(kvt_worker_submit_store(bed.worker, 1, &t.transfer, NULL));
		} else {
			int64_t row = 0;
			struct kvt_rows rows = KVT_INIT(rows);
			rows.base = t.copies[0].at;
			rows.stride_bytes = 5000;
			rows.row_count = 1;
			rows.row_indices = &row;
			rows.keys = t.keys;
			rows.key_count = 1;
			assert_ok(kvt_worker_submit_store_rows(bed.worker, 1, &rows, NULL));
		}
		assert_result(KVT_STATUS_STORED, test_take(bed.worker, 1));
		assert_true(kvt_store_object_name(bed.store, &t.keys[0], name, sizeof(name)) > 0);
		objects[way] = fake_object_get(fakes[way], name, &bytes[way]);
		assert_non_null(objects[way]);
		test_bed_close(&bed);
	}
	assert_int_equal(bytes[0], bytes[1]);
	assert_memory_equal(objects[0], objects[1], bytes[0]);
	for (int way = 0; way < 2; way++) {
		free(objects[way]);
		fake_store_destroy(fakes[way]);
	}
	test_transfer_fini(&t);
}

static void one_load_job_may_repeat_a_key(void **state)
{
	static const struct test_group one = {1, 0, 1, {6000}};
	uint8_t *buffer = malloc(3 * 6000);
	static const int64_t numbers[] = {0, 1, 2};
	struct test_bed bed;
	struct test_transfer t;
	struct kvt_rows rows = KVT_INIT(rows);

	(void)state;
	assert_non_null(buffer);
	test_bed_init(&bed);
	test_bed_open(&bed, "mem:");
	test_transfer_init(&t, 1, &one, 1, 9);
	test_store(&bed, &t, KVT_STATUS_STORED);
	struct kvt_key keys[3] = {t.keys[0], t.keys[0], t.keys[0]};
	rows.base = buffer;
	rows.stride_bytes = 6000;
	rows.row_count = 3;
	rows.row_indices = numbers;
	rows.keys = keys;
	rows.key_count = 3;
	assert_ok(kvt_worker_submit_load_rows(bed.worker, 50, &rows, NULL));
	assert_result(KVT_STATUS_LOADED, test_take(bed.worker, 50));
	for (int i = 0; i < 3; i++)
		assert_memory_equal(buffer + i * 6000, t.copies[0].at, 6000);
	test_bed_close(&bed);
	test_transfer_fini(&t);
	free(buffer);
}

static void hashes_of_every_length_and_large_groups_work(void **state)
{
	uint8_t row[100], back[100], hash[64];
	int64_t number = 0;
	struct test_bed bed;

	(void)state;
	test_bed_init(&bed);
	test_bed_open(&bed, "mem:");
	memset(hash, 0xAB, sizeof(hash));
	for (uint32_t length = 1; length <= 64; length++) {
		struct kvt_key key = {hash, length, length % 5 ? length : UINT32_MAX - length};
		struct kvt_rows rows = KVT_INIT(rows);
		test_fill(row, sizeof(row), length);
		rows.base = row;
		rows.stride_bytes = sizeof(row);
		rows.row_count = 1;
		rows.row_indices = &number;
		rows.keys = &key;
		rows.key_count = 1;
		assert_ok(kvt_worker_submit_store_rows(bed.worker, 1, &rows, NULL));
		assert_result(KVT_STATUS_STORED, test_take(bed.worker, 1));
		rows.base = back;
		assert_ok(kvt_worker_submit_load_rows(bed.worker, 1, &rows, NULL));
		assert_result(KVT_STATUS_LOADED, test_take(bed.worker, 1));
		assert_memory_equal(row, back, sizeof(row));
	}
	test_bed_close(&bed);
}

static void whole_chunks_are_read_in_one_request(void **state)
{
	static const struct test_group one = {4, 0, 3, {4096, 4096, 4096}};
	struct fake_store *fake = fake_store_create(NULL);
	struct test_bed bed;
	struct test_transfer t;

	(void)state;
	test_bed_init(&bed);
	test_bed_open(&bed, fake_store_uri(fake));
	test_transfer_init(&t, 4, &one, 1, 10);
	test_store(&bed, &t, KVT_STATUS_STORED);
	unsigned gets = fake_calls(fake, KVT_IO_GET), heads = fake_calls(fake, KVT_IO_HEAD);
	test_load(&bed, &t, KVT_STATUS_LOADED);
	assert_int_equal(fake_calls(fake, KVT_IO_GET) - gets, 1);
	assert_int_equal(fake_calls(fake, KVT_IO_HEAD) - heads, 0);
	test_bed_close(&bed);
	test_transfer_fini(&t);
	fake_store_destroy(fake);
}

static void large_chunks_and_default_options_work(void **state)
{
	static const struct test_group chunks = {10, 3, 3, {2 << 20, 1 << 20, 999999}};
	char *root = test_temp_dir_on_disk(), *uri = test_format("file://%s", root);
	const char *const uris[] = {"mem:", uri};

	(void)state;
	for (size_t i = 0; i < TEST_COUNT(uris); i++) {
		struct test_bed bed;
		struct test_transfer t;
		test_bed_init(&bed);
		memset(&bed.worker_options, 0, sizeof(bed.worker_options));
		bed.worker_options.struct_size = sizeof(bed.worker_options);
		test_bed_open(&bed, uris[i]);
		test_transfer_init(&t, 8, &chunks, 1, 1);
		test_store(&bed, &t, KVT_STATUS_STORED);
		test_load(&bed, &t, KVT_STATUS_LOADED);
		test_transfer_fini(&t);
		test_bed_close(&bed);
	}
	free(uri);
	test_remove_tree(root);
}

static void large_trailers_do_not_lock_each_other_out(void **state)
{
	/* Six chunks whose trailers alone take two requests, in lanes that have one to four. */
	static const struct test_group chunks = {6 * 4096, 0, 6, {16, 3, 1, 1, 1, 5}};

	(void)state;
	for (uint32_t depth = 1; depth <= 4; depth++) {
		struct fake_store *fake = fake_store_create(NULL);
		struct test_bed bed;
		struct test_transfer t;
		test_bed_init(&bed);
		bed.worker_options.lanes = 1;
		bed.worker_options.depth = depth;
		test_bed_open(&bed, fake_store_uri(fake));
		test_transfer_init(&t, 4096, &chunks, 1, 1);
		test_store(&bed, &t, KVT_STATUS_STORED);
		test_load(&bed, &t, KVT_STATUS_LOADED);
		test_transfer_fini(&t);
		test_bed_close(&bed);
		assert_null(fake_violation(fake));
		fake_store_destroy(fake);
	}
}

static void two_workers_share_a_store(void **state)
{
	static const struct test_group many = {50, 0, 1, {3000}};
	struct fake_store *fake = fake_store_create(NULL);
	struct test_bed one, two;
	struct test_transfer a, b;

	(void)state;
	test_bed_init(&one);
	test_bed_open(&one, fake_store_uri(fake));
	two = one;
	two.worker = NULL;
	test_bed_open_worker(&two);
	test_transfer_init(&a, 1, &many, 1, 1);
	test_transfer_init(&b, 1, &many, 1, 1);
	test_transfer_fill(&a);
	test_transfer_fill(&b);
	assert_ok(kvt_worker_submit_store(one.worker, 1, &a.transfer, NULL));
	assert_ok(kvt_worker_submit_store(two.worker, 1, &b.transfer, NULL));
	struct kvt_result *results[2] = {test_take(one.worker, 1), test_take(two.worker, 1)};
	for (uint64_t k = 0; k < 50; k++) {
		assert_true(kvt_status_is_success(results[0]->key_status[k]));
		assert_true(kvt_status_is_success(results[1]->key_status[k]));
		assert_true(results[0]->key_status[k] == KVT_STATUS_STORED ||
			    results[1]->key_status[k] == KVT_STATUS_STORED);
	}
	kvt_result_release(results[0]);
	kvt_result_release(results[1]);
	one.next_id = two.next_id = 10;
	test_load(&one, &b, KVT_STATUS_LOADED);
	test_load(&two, &a, KVT_STATUS_LOADED);
	test_bed_close_worker(&two);
	test_bed_close(&one);
	assert_null(fake_violation(fake));
	fake_store_destroy(fake);
	test_transfer_fini(&a);
	test_transfer_fini(&b);
}

int main(void)
{
	static const struct CMUnitTest others[] = {
		cmocka_unit_test(a_part_of_a_chunk_is_loaded_alone),
		cmocka_unit_test(absent_slots_are_missing_and_present_ones_load),
		cmocka_unit_test(rows_come_back_by_their_numbers),
		cmocka_unit_test(rows_and_pointers_make_the_same_object),
		cmocka_unit_test(one_load_job_may_repeat_a_key),
		cmocka_unit_test(hashes_of_every_length_and_large_groups_work),
		cmocka_unit_test(whole_chunks_are_read_in_one_request),
		cmocka_unit_test(large_chunks_and_default_options_work),
		cmocka_unit_test(large_trailers_do_not_lock_each_other_out),
		cmocka_unit_test(two_workers_share_a_store),
	};
	struct CMUnitTest tests[TEST_COUNT(variants) + TEST_COUNT(others)];
	size_t count = 0;

	for (size_t v = 0; v < TEST_COUNT(variants); v++) {
		char *name = test_format("every shape comes back: %s", variants[v].name);
		tests[count++] = (struct CMUnitTest){name, every_shape_comes_back, NULL, NULL,
						     (void *)(uintptr_t)&variants[v]};
	}
	memcpy(&tests[count], others, sizeof(others));
	count += TEST_COUNT(others);
	int failed = _cmocka_run_group_tests("worker_basic", tests, count, NULL, NULL);
	for (size_t v = 0; v < TEST_COUNT(variants); v++)
		free((char *)(uintptr_t)tests[v].name);
	return failed;
}
