/* SPDX-License-Identifier: Apache-2.0 */
/* Bad options and bad transfers: refused, with the argument, its value and what was expected named,
 * and nothing left behind. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "args_scene.h"

/* ---- Creating ---- */

static void worker_options_out_of_range_are_refused(void **state)
{
	struct args_scene *s = *state;
	static const struct {
		size_t offset;
		bool wide;
		uint64_t value;
		const char *name, *text;
	} cases[] = {
#define CASE32(member, value, text)                                                                \
	{offsetof(struct kvt_worker_options, member), false, value, #member, text}
#define CASE64(member, value, text)                                                                \
	{                                                                                          \
		offsetof(struct kvt_worker_options, member), true, value, #member, text            \
	}
		CASE32(lanes, 65, "65"),
		CASE32(lanes, UINT32_MAX, "4294967295"),
		CASE32(depth, UINT32_MAX, "4294967295"),
		CASE64(part_bytes, 4095, "4095"),
		CASE64(part_bytes, 65537, "65537"),
		CASE64(part_bytes, UINT64_MAX, "18446744073709551615"),
		CASE64(part_bytes, UINT64_MAX - 4095, "18446744073709547520"),
		CASE64(staging_bytes, 1, "1"),
		CASE64(staging_bytes, 65536, "65536"),
		CASE64(staging_bytes, UINT64_MAX, "18446744073709551615"),
		CASE64(queue_chunks, UINT64_MAX, "18446744073709551615"),
		CASE64(store_timeout_ms, UINT64_MAX, "18446744073709551615"),
		CASE64(load_timeout_ms, UINT64_MAX, "18446744073709551615"),
		CASE64(lookup_timeout_ms, UINT64_MAX, "18446744073709551615"),
		CASE64(operation_timeout_ms, UINT64_MAX, "18446744073709551615"),
		CASE64(buffer_timeout_ms, UINT64_MAX, "18446744073709551615"),
	};

	for (size_t i = 0; i < TEST_COUNT(cases); i++) {
		struct kvt_worker_options options = s->bed.worker_options;
		struct kvt_worker *worker = (void *)1;
		print_message("  %s = %s\n", cases[i].name, cases[i].text);
		if (cases[i].wide) {
			memcpy((char *)&options + cases[i].offset, &cases[i].value, 8);
		} else {
			uint32_t value = (uint32_t)cases[i].value;
			memcpy((char *)&options + cases[i].offset, &value, 4);
		}
		assert_refused(KVT_EINVAL, cases[i].name, cases[i].text, NULL,
			       kvt_worker_create(s->bed.store, NULL, &options, &worker));
		assert_null(worker);
	}
	assert_int_equal(fake_sessions(s->fake), s->bed.worker_options.lanes);
}

static void create_checks_its_pointers_and_struct_sizes(void **state)
{
	struct args_scene *s = *state;
	struct kvt_worker *worker = (void *)1;
	struct {
		struct kvt_worker_options options;
		char more[24];
	} larger = {{0}, {0}};

	assert_refused(KVT_EINVAL, "workerp", "NULL", NULL,
		       kvt_worker_create(s->bed.store, NULL, NULL, NULL));
	assert_refused(KVT_EINVAL, "store", "NULL", NULL,
		       kvt_worker_create(NULL, NULL, NULL, &worker));
	assert_null(worker);
	struct kvt_worker_options options = s->bed.worker_options;
	options.struct_size = 0;
	assert_refused(KVT_EINVAL, "options", "struct_size", "0",
		       kvt_worker_create(s->bed.store, NULL, &options, &worker));
	larger.options = s->bed.worker_options;
	larger.options.struct_size = sizeof(larger);
	larger.more[23] = 1;
	assert_refused(KVT_EINVAL, "options", NULL, NULL,
		       kvt_worker_create(s->bed.store, NULL, &larger.options, &worker));
	larger.more[23] = 0;
	assert_ok(kvt_worker_create(s->bed.store, NULL, &larger.options, &worker));
	assert_ok(kvt_worker_destroy(worker, TEST_LIMIT_MS));
	/* A caller built against an older header has a shorter struct. */
	options = s->bed.worker_options;
	options.struct_size = offsetof(struct kvt_worker_options, hooks);
	memset((char *)&options + options.struct_size, 0xFF, sizeof(options) - options.struct_size);
	assert_ok(kvt_worker_create(s->bed.store, NULL, &options, &worker));
	assert_ok(kvt_worker_destroy(worker, TEST_LIMIT_MS));
	assert_ok(kvt_worker_destroy(NULL, 0));

	struct kvt_allocator half = {0};
	struct test_allocator allocator;
	test_allocator_init(&allocator);
	test_allocator_hooks(&allocator, &half);
	options = s->bed.worker_options;
	options.hooks.allocator.alloc = half.alloc;
	assert_refused(KVT_EINVAL, "alloc", NULL, NULL,
		       kvt_worker_create(s->bed.store, NULL, &options, &worker));
}

static int refuse_lane_1(void *context, uint32_t lane)
{
	atomic_fetch_add((atomic_uint *)context, 1);
	return lane == 1;
}

static int accept_lane(void *context, uint32_t lane)
{
	atomic_fetch_add((atomic_uint *)context, 1u << 8 * lane);
	return 0;
}

static void a_thread_init_hook_that_fails_fails_create(void **state)
{
	struct args_scene *s = *state;
	struct kvt_worker_options options = s->bed.worker_options;
	struct kvt_worker *worker;
	atomic_uint calls = 0;

	options.lanes = 3;
	options.thread_init = refuse_lane_1;
	options.thread_init_context = &calls;
	assert_refused(KVT_ECONFIG, "thread_init", "1", NULL,
		       kvt_worker_create(s->bed.store, NULL, &options, &worker));
	assert_null(worker);
	assert_true(atomic_load(&calls) >= 1);
	assert_int_equal(fake_sessions(s->fake), s->bed.worker_options.lanes);
	atomic_store(&calls, 0);
	options.thread_init = accept_lane;
	assert_ok(kvt_worker_create(s->bed.store, NULL, &options, &worker));
	assert_int_equal(atomic_load(&calls), 0x010101);
	assert_ok(kvt_worker_destroy(worker, TEST_LIMIT_MS));
}

static void a_store_in_use_is_not_closed(void **state)
{
	struct args_scene *s = *state;

	assert_refused(KVT_EBUSY, "worker", NULL, NULL, kvt_store_close(s->bed.store));
}

/* ---- Transfers ---- */

typedef void (*spoil_fn)(struct test_transfer *t);

static void no_blocks_per_chunk(struct test_transfer *t)
{
	t->transfer.blocks_per_chunk = 0;
}
static void copy_too_few(struct test_transfer *t)
{
	t->transfer.copy_count--;
}
static void copy_too_many(struct test_transfer *t)
{
	t->transfer.copy_count++;
}
static void key_too_few(struct test_transfer *t)
{
	t->transfer.key_count--;
}
static void key_too_many(struct test_transfer *t)
{
	t->transfer.key_count++;
}
static void key_none(struct test_transfer *t)
{
	t->transfer.key_count = 0;
}
static void zero_size(struct test_transfer *t)
{
	t->sizes[3] = 0;
}
static void other_size(struct test_transfer *t)
{
	t->sizes[8] = 201;
}
static void huge_size(struct test_transfer *t)
{
	for (int i = 0; i < 6; i++)
		t->sizes[i] = UINT64_MAX / 2;
}
static void too_large_size(struct test_transfer *t)
{
	for (int i = 0; i < 6; i++)
		t->sizes[i] = (UINT64_C(1) << 44) + 1;
}
static void wrapping_pointer(struct test_transfer *t)
{
	t->ptrs[2] = UINT64_MAX - 10;
}
static void empty_hash(struct test_transfer *t)
{
	t->keys[1].hash_bytes = 0;
}
static void long_hash(struct test_transfer *t)
{
	t->keys[2].hash_bytes = 65;
}
static void null_hash(struct test_transfer *t)
{
	t->keys[1].hash = NULL;
}
static void null_counts(struct test_transfer *t)
{
	t->transfer.group_block_counts = NULL;
}
static void null_refs(struct test_transfer *t)
{
	t->transfer.group_data_ref_counts = NULL;
}
static void null_indices(struct test_transfer *t)
{
	t->transfer.block_indices = NULL;
}
static void null_ptrs(struct test_transfer *t)
{
	t->transfer.ptrs = NULL;
}
static void null_sizes(struct test_transfer *t)
{
	t->transfer.sizes = NULL;
}
static void null_keys(struct test_transfer *t)
{
	t->transfer.keys = NULL;
}
static void many_blocks(struct test_transfer *t)
{
	t->block_counts[0] = UINT64_MAX;
}
static void many_refs(struct test_transfer *t)
{
	t->block_counts[0] = UINT64_MAX / 2;
	t->ref_counts[0] = UINT32_MAX;
}
static void many_slots(struct test_transfer *t)
{
	t->transfer.blocks_per_chunk = UINT32_MAX;
	t->transfer.key_count = 2;
	t->keys[1] = t->keys[2];
}
static void wrong_struct_size(struct test_transfer *t)
{
	t->transfer.struct_size = 0;
}

static const struct spoiled {
	const char *name;
	spoil_fn spoil;
	const char *texts[3];
} spoiled[] = {
	{"blocks_per_chunk 0", no_blocks_per_chunk, {"blocks_per_chunk", "0", "1"}},
	{"a pointer too few", copy_too_few, {"copy_count", "13", "14"}},
	{"a pointer too many", copy_too_many, {"copy_count", "15", "14"}},
	{"a key too few", key_too_few, {"key_count", "2", "3"}},
	{"a key too many", key_too_many, {"key_count", "4", "3"}},
	{"no key", key_none, {"key_count", "0", "3"}},
	{"a size of 0", zero_size, {"sizes[3]", "0", "1"}},
	{"a size that differs within its ref", other_size, {"sizes[8]", "201", "200"}},
	{"sizes whose sum overflows", huge_size, {"sizes[", "9223372036854775807", NULL}},
	{"a payload beyond the limit", too_large_size, {"payload", "70368744177664", NULL}},
	{"a pointer that wraps", wrapping_pointer, {"ptrs[2]", "0xfffffffffffffff5", NULL}},
	{"an empty hash", empty_hash, {"keys[1]", "0 hash bytes", "1 to 64"}},
	{"a long hash", long_hash, {"keys[2]", "65 hash bytes", "1 to 64"}},
	{"a NULL hash", null_hash, {"keys[1]", "NULL", "32"}},
	{"NULL block counts", null_counts, {"group_block_counts", "NULL", "2"}},
	{"NULL ref counts", null_refs, {"group_data_ref_counts", "NULL", "2"}},
	{"NULL indices", null_indices, {"block_indices", "NULL", "2"}},
	{"NULL ptrs", null_ptrs, {"ptrs", "NULL", "14"}},
	{"NULL sizes", null_sizes, {"sizes", "NULL", "14"}},
	{"NULL keys", null_keys, {"keys", "NULL", "3"}},
	{"too many blocks", many_blocks, {"copy_count", "14", NULL}},
	{"products that overflow", many_refs, {"copy_count", "14", NULL}},
	{"too many slots", many_slots, {"slots", "1048576", NULL}},
	{"struct_size 0", wrong_struct_size, {"struct_size", "0", NULL}},
};

static void bad_transfers_are_refused(void **state)
{
	struct args_scene *s = *state;

	for (size_t i = 0; i < TEST_COUNT(spoiled); i++) {
		struct test_transfer t;
		const char *const *texts = spoiled[i].texts;
		print_message("  %s\n", spoiled[i].name);
		test_transfer_init(&t, 4, args_groups, 2, 1);
		spoiled[i].spoil(&t);
		assert_refused(KVT_EINVAL, texts[0], texts[1], texts[2],
			       kvt_worker_submit_store(s->bed.worker, 1, &t.transfer, NULL));
		assert_refused(KVT_EINVAL, texts[0], texts[1], texts[2],
			       kvt_worker_submit_load(s->bed.worker, 1, &t.transfer, NULL));
		test_transfer_fini(&t);
	}
}

static void equal_keys_are_refused_in_one_store_only(void **state)
{
	struct args_scene *s = *state;
	struct test_transfer t;

	test_transfer_init(&t, 4, args_groups, 2, 1);
	t.keys[1] = t.keys[0];
	assert_refused(KVT_EINVAL, "equal", "0", "1",
		       kvt_worker_submit_store(s->bed.worker, 1, &t.transfer, NULL));
	/* The first of several: the ones before it must not stay behind as stores in progress. */
	t.keys[1] = s->t.keys[1];
	t.keys[2] = s->t.keys[1];
	assert_refused(KVT_EINVAL, "equal", "1", "2",
		       kvt_worker_submit_store(s->bed.worker, 1, &t.transfer, NULL));
	test_transfer_fini(&t);
}

static void an_object_beyond_what_the_store_takes_is_refused(void **state)
{
	static const struct test_group large = {1, 0, 1, {1 << 20}};
	struct fake_config configs[] = {
		{.capabilities = FAKE_CAPABILITIES, .max_parts = 10},
		{.capabilities = FAKE_CAPABILITIES, .max_object_bytes = 100000},
	};
	const char *texts[][2] = {{"part", "10"}, {"object", "100000"}};
	struct test_transfer t;

	(void)state;
	test_transfer_init(&t, 1, &large, 1, 1);
	for (size_t i = 0; i < TEST_COUNT(configs); i++) {
		struct fake_store *fake = fake_store_create(&configs[i]);
		struct test_bed bed;
		test_bed_init(&bed);
		test_bed_open(&bed, fake_store_uri(fake));
		assert_refused(KVT_EINVAL, texts[i][0], texts[i][1], NULL,
			       kvt_worker_submit_store(bed.worker, 1, &t.transfer, NULL));
		test_bed_close(&bed);
		fake_store_destroy(fake);
	}
	test_transfer_fini(&t);
}

static void row_mode_takes_rows_only(void **state)
{
	struct args_scene *s = *state;
	struct test_bed bed;

	test_bed_init(&bed);
	bed.store_options.mode = KVT_MODE_ROW;
	test_bed_open(&bed, fake_store_uri(s->fake));
	assert_refused(KVT_EINVAL, "row", NULL, NULL,
		       kvt_worker_submit_store(bed.worker, 1, &s->t.transfer, NULL));
	assert_refused(KVT_EINVAL, "row", NULL, NULL,
		       kvt_worker_submit_load(bed.worker, 1, &s->t.transfer, NULL));
	test_bed_close(&bed);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, args_scene_open, args_scene_close)
	const struct CMUnitTest tests[] = {
		CASE(worker_options_out_of_range_are_refused),
		CASE(create_checks_its_pointers_and_struct_sizes),
		CASE(a_thread_init_hook_that_fails_fails_create),
		CASE(a_store_in_use_is_not_closed),
		CASE(bad_transfers_are_refused),
		CASE(equal_keys_are_refused_in_one_store_only),
		CASE(an_object_beyond_what_the_store_takes_is_refused),
		CASE(row_mode_takes_rows_only),
	};
	return cmocka_run_group_tests_name("worker_args", tests, NULL, NULL);
}
