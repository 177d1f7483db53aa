/* SPDX-License-Identifier: Apache-2.0 */
/* Bad input: every call of a worker refuses it, leaves nothing behind, and says which argument had
 * which value and what was expected. */
#include "support.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "fake_backend.h"

/* One line that has all three texts in it (NULL: fewer). */
#define assert_refused(code, a, b, c, call)                                                        \
	refused((code), (a), (b), (c), (call), #call, __FILE__, __LINE__)

static void refused(int code, const char *a, const char *b, const char *c, int got,
		    const char *call, const char *file, int line)
{
	test_fails(code, a, got, call, file, line);
	if (b)
		test_fails(code, b, got, call, file, line);
	if (c)
		test_fails(code, c, got, call, file, line);
	if (strchr(kvt_error_detail(), '\n')) {
		print_error("more than one line: %s\n", kvt_error_detail());
		_fail(file, line);
	}
}

struct scene {
	struct fake_store *fake;
	struct test_bed bed;
	struct test_transfer t; /* 2 groups: 6 blocks x 2 refs, 2 blocks x 1 ref; F = 4; 3 keys */
};

static const struct test_group groups[] = {{6, 0, 2, {100, 200}}, {2, 1, 1, {300}}};

static int open_scene(void **state)
{
	struct scene *s = calloc(1, sizeof(*s));

	assert_non_null(s);
	s->fake = fake_store_create(NULL);
	test_bed_init(&s->bed);
	test_bed_open(&s->bed, fake_store_uri(s->fake));
	test_transfer_init(&s->t, 4, groups, 2, 1);
	test_transfer_fill(&s->t);
	*state = s;
	return 0;
}

/* Whatever was refused must not have left a job or a request behind. */
static int close_scene(void **state)
{
	struct scene *s = *state;
	struct kvt_stats stats = test_stats(s->bed.worker);

	assert_int_equal(stats.jobs_live, 0);
	assert_int_equal(stats.jobs_submitted, 0);
	assert_int_equal(fake_calls(s->fake, KVT_IO_PUT), 0);
	test_store(&s->bed, &s->t, KVT_STATUS_STORED);
	test_bed_close(&s->bed);
	test_transfer_fini(&s->t);
	if (fake_violation(s->fake))
		fail_msg("%s", fake_violation(s->fake));
	fake_store_destroy(s->fake);
	free(s);
	return 0;
}

/* ---- Creating ---- */

static void worker_options_out_of_range_are_refused(void **state)
{
	struct scene *s = *state;
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
	struct scene *s = *state;
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
	struct scene *s = *state;
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
	struct scene *s = *state;

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
	struct scene *s = *state;

	for (size_t i = 0; i < TEST_COUNT(spoiled); i++) {
		struct test_transfer t;
		const char *const *texts = spoiled[i].texts;
		print_message("  %s\n", spoiled[i].name);
		test_transfer_init(&t, 4, groups, 2, 1);
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
	struct scene *s = *state;
	struct test_transfer t;

	test_transfer_init(&t, 4, groups, 2, 1);
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
	struct scene *s = *state;
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

/* ---- Rows ---- */

static void bad_rows_are_refused(void **state)
{
	struct scene *s = *state;
	static uint8_t memory[64];
	int64_t numbers[] = {0, 1, 3};

	for (int i = 0; i < 12; i++) {
		struct kvt_rows rows = KVT_INIT(rows);
		struct kvt_key keys[3] = {s->t.keys[0], s->t.keys[1], s->t.keys[2]};
		const char *texts[3] = {NULL, NULL, NULL};
		rows.base = memory;
		rows.stride_bytes = 16;
		rows.row_count = 4;
		rows.row_indices = numbers;
		rows.keys = keys;
		rows.key_count = 3;
		numbers[2] = 3;
		switch (i) {
		case 0:
			numbers[2] = 4;
			texts[0] = "row_indices[2]", texts[1] = "4", texts[2] = "3";
			break;
		case 1:
			numbers[2] = -1;
			texts[0] = "row_indices[2]", texts[1] = "-1", texts[2] = "0";
			break;
		case 2:
			rows.base = NULL;
			texts[0] = "base", texts[1] = "NULL";
			break;
		case 3:
			rows.stride_bytes = 0;
			texts[0] = "stride_bytes", texts[1] = "0", texts[2] = "1";
			break;
		case 4:
			rows.stride_bytes = UINT64_MAX;
			texts[0] = "stride_bytes", texts[1] = "18446744073709551615";
			break;
		case 5:
			rows.row_count = UINT64_MAX;
			texts[0] = "row_count", texts[1] = "18446744073709551615";
			break;
		case 6:
			rows.row_indices = NULL;
			texts[0] = "row_indices", texts[1] = "NULL", texts[2] = "3";
			break;
		case 7:
			rows.keys = NULL;
			texts[0] = "keys", texts[1] = "NULL", texts[2] = "3";
			break;
		case 8:
			keys[1].hash_bytes = 65;
			texts[0] = "keys[1]", texts[1] = "65", texts[2] = "1 to 64";
			break;
		case 9:
			rows.struct_size = 0;
			texts[0] = "rows", texts[1] = "struct_size", texts[2] = "0";
			break;
		case 10:
			rows.row_count = 0;
			texts[0] = "row_indices[0]", texts[1] = "0";
			break;
		default:
			keys[2].hash = NULL;
			texts[0] = "keys[2]", texts[1] = "NULL";
			break;
		}
		print_message("  %s\n", texts[0]);
		assert_refused(KVT_EINVAL, texts[0], texts[1], texts[2],
			       kvt_worker_submit_store_rows(s->bed.worker, 1, &rows, NULL));
		assert_refused(KVT_EINVAL, texts[0], texts[1], texts[2],
			       kvt_worker_submit_load_rows(s->bed.worker, 1, &rows, NULL));
	}
}

/* ---- Submit options, lookups, geometries ---- */

static void bad_submit_options_are_refused(void **state)
{
	struct scene *s = *state;
	struct kvt_submit_options o = KVT_INIT(o);
	struct kvt_worker *w = s->bed.worker;
	const struct kvt_transfer *t = &s->t.transfer;

	o.struct_size = 3;
	assert_refused(KVT_EINVAL, "options", "struct_size", "3",
		       kvt_worker_submit_store(w, 1, t, &o));
	o = (struct kvt_submit_options)KVT_INIT(o);
	o.timeout_ms = UINT64_MAX;
	assert_refused(KVT_EINVAL, "timeout_ms", "18446744073709551615", NULL,
		       kvt_worker_submit_store(w, 1, t, &o));
	o = (struct kvt_submit_options)KVT_INIT(o);
	o.expedited = 1;
	assert_refused(KVT_EINVAL, "expedited", "1", NULL, kvt_worker_submit_store(w, 1, t, &o));
	o = (struct kvt_submit_options)KVT_INIT(o);
	o.lookup_flags = KVT_LOOKUP_PREFIX;
	assert_refused(KVT_EINVAL, "lookup_flags", "1", NULL, kvt_worker_submit_load(w, 1, t, &o));
	o = (struct kvt_submit_options)KVT_INIT(o);
	o.ready.kind = 17;
	assert_refused(KVT_EINVAL, "ready.kind", "17", NULL, kvt_worker_submit_load(w, 1, t, &o));
	o.ready.kind = KVT_READY_FD;
	o.ready.fd = -1;
	assert_refused(KVT_EINVAL, "ready.fd", "-1", NULL, kvt_worker_submit_load(w, 1, t, &o));
	o.ready.kind = KVT_READY_EVENT;
	assert_refused(KVT_EINVAL, "ready.handle", "NULL", NULL,
		       kvt_worker_submit_store(w, 1, t, &o));
	/* Plain memory has no streams. */
	o.ready.kind = KVT_READY_STREAM;
	o.ready.handle = &o;
	assert_refused(KVT_EINVAL, "ready.kind", NULL, NULL, kvt_worker_submit_store(w, 1, t, &o));
}

static void bad_lookups_are_refused(void **state)
{
	struct scene *s = *state;
	struct kvt_worker *w = s->bed.worker;
	struct kvt_submit_options o = KVT_INIT(o);
	struct kvt_key keys[3] = {s->t.keys[0], s->t.keys[1], s->t.keys[2]};

	keys[0].group = 5;
	assert_refused(KVT_EINVAL, "geometry", "5", NULL,
		       kvt_worker_submit_lookup(w, 1, keys, 3, NULL));
	test_set_geometry(&s->bed, &s->t);
	assert_refused(KVT_EINVAL, "geometry", "5", NULL,
		       kvt_worker_submit_lookup(w, 1, keys, 3, NULL));
	keys[0].group = 0;
	assert_refused(KVT_EINVAL, "keys", "NULL", "3",
		       kvt_worker_submit_lookup(w, 1, NULL, 3, NULL));
	keys[2].hash_bytes = 0;
	assert_refused(KVT_EINVAL, "keys[2]", "0", "1 to 64",
		       kvt_worker_submit_lookup(w, 1, keys, 3, NULL));
	keys[2].hash_bytes = 32;
	o.lookup_flags = 8;
	assert_refused(KVT_EINVAL, "lookup_flags", "8", NULL,
		       kvt_worker_submit_lookup(w, 1, keys, 3, &o));
	o.lookup_flags = 0;
	o.expedited = 1;
	assert_refused(KVT_EINVAL, "expedited", "1", NULL,
		       kvt_worker_submit_lookup(w, 1, keys, 3, &o));
}

static void bad_geometries_are_refused(void **state)
{
	struct scene *s = *state;
	struct kvt_worker *w = s->bed.worker;
	uint64_t sizes[3] = {1, 2, 3};
	struct kvt_geometry g = KVT_INIT(g);

	assert_refused(KVT_EINVAL, "geometry", "NULL", NULL, kvt_worker_set_geometry(w, 0, NULL));
	g.ref_count = 3;
	g.ref_bytes = sizes;
	assert_refused(KVT_EINVAL, "blocks_per_chunk", "0", "1", kvt_worker_set_geometry(w, 0, &g));
	g.blocks_per_chunk = 4;
	g.ref_bytes = NULL;
	assert_refused(KVT_EINVAL, "ref_bytes", "NULL", "3", kvt_worker_set_geometry(w, 0, &g));
	g.ref_bytes = sizes;
	sizes[1] = 0;
	assert_refused(KVT_EINVAL, "1", "0", NULL, kvt_worker_set_geometry(w, 0, &g));
	sizes[1] = UINT64_MAX;
	assert_refused(KVT_EINVAL, "ref_bytes[1]", "18446744073709551615", NULL,
		       kvt_worker_set_geometry(w, 0, &g));
	sizes[1] = 2;
	g.blocks_per_chunk = 1 << 20;
	assert_refused(KVT_EINVAL, "1048576", NULL, NULL, kvt_worker_set_geometry(w, 0, &g));
	g.ref_count = UINT32_MAX;
	assert_refused(KVT_EINVAL, "ref_count", "4294967295", NULL,
		       kvt_worker_set_geometry(w, 0, &g));
	g.struct_size = 1;
	assert_refused(KVT_EINVAL, "geometry", "struct_size", "1",
		       kvt_worker_set_geometry(w, 0, &g));
}

/* ---- Everything else ---- */

static void every_call_refuses_a_null_worker(void **state)
{
	struct scene *s = *state;
	struct kvt_result *result;
	struct kvt_stats stats = KVT_INIT(stats);
	struct kvt_geometry g = KVT_INIT(g);
	struct kvt_rows rows = KVT_INIT(rows);
	struct kvt_file_ops files = {"a", NULL, 0};
	struct kvt_io_completion *completion;
	size_t known = 5;
	uint64_t id = 1;
	const struct kvt_transfer *t = &s->t.transfer;

	assert_refused(KVT_EINVAL, "worker", "NULL", NULL,
		       kvt_worker_submit_store(NULL, 1, t, NULL));
	assert_refused(KVT_EINVAL, "worker", "NULL", NULL,
		       kvt_worker_submit_load(NULL, 1, t, NULL));
	assert_refused(KVT_EINVAL, "worker", "NULL", NULL,
		       kvt_worker_submit_store_rows(NULL, 1, &rows, NULL));
	assert_refused(KVT_EINVAL, "worker", "NULL", NULL,
		       kvt_worker_submit_load_rows(NULL, 1, &rows, NULL));
	assert_refused(KVT_EINVAL, "worker", "NULL", NULL,
		       kvt_worker_submit_lookup(NULL, 1, s->t.keys, 1, NULL));
	assert_refused(KVT_EINVAL, "worker", "NULL", NULL,
		       kvt_worker_submit_ops(NULL, &files, 1, 1, NULL, &completion));
	assert_refused(KVT_EINVAL, "worker", "NULL", NULL, kvt_worker_set_geometry(NULL, 0, &g));
	assert_refused(KVT_EINVAL, "worker", "NULL", NULL, kvt_worker_poll(NULL, &result, 1));
	assert_refused(KVT_EINVAL, "worker", "NULL", NULL,
		       kvt_worker_wait(NULL, &id, 1, 0, &known));
	assert_int_equal(known, 0);
	assert_refused(KVT_EINVAL, "worker", "NULL", NULL,
		       kvt_worker_wait_memory(NULL, &id, 1, 0, NULL));
	assert_refused(KVT_EINVAL, "worker", "NULL", NULL, kvt_worker_drain(NULL, 0));
	assert_refused(KVT_EINVAL, "worker", "NULL", NULL, kvt_worker_cancel(NULL, 1));
	assert_refused(KVT_EINVAL, "worker", "NULL", NULL, kvt_worker_event_fd(NULL));
	assert_refused(KVT_EINVAL, "worker", "NULL", NULL, kvt_worker_stats(NULL, &stats));
}

static void the_other_calls_check_their_arguments(void **state)
{
	struct scene *s = *state;
	struct kvt_worker *w = s->bed.worker;
	struct kvt_stats stats = KVT_INIT(stats);
	struct kvt_result *result;

	assert_refused(KVT_EINVAL, "transfer", "NULL", NULL,
		       kvt_worker_submit_store(w, 1, NULL, NULL));
	assert_refused(KVT_EINVAL, "transfer", "NULL", NULL,
		       kvt_worker_submit_load(w, 1, NULL, NULL));
	assert_refused(KVT_EINVAL, "rows", "NULL", NULL,
		       kvt_worker_submit_store_rows(w, 1, NULL, NULL));
	assert_refused(KVT_EINVAL, "rows", "NULL", NULL,
		       kvt_worker_submit_load_rows(w, 1, NULL, NULL));
	assert_refused(KVT_EINVAL, "results", "NULL", NULL, kvt_worker_poll(w, NULL, 1));
	assert_refused(KVT_EINVAL, "max_results", "-1", NULL, kvt_worker_poll(w, &result, -1));
	assert_returns(0, kvt_worker_poll(w, &result, 0));
	assert_refused(KVT_EINVAL, "job_ids", "NULL", "2", kvt_worker_wait(w, NULL, 2, 0, NULL));
	assert_refused(KVT_EINVAL, "job_ids", "NULL", "2",
		       kvt_worker_wait_memory(w, NULL, 2, 0, NULL));
	assert_refused(KVT_ENOENT, "job_id", "44", NULL, kvt_worker_cancel(w, 44));
	assert_refused(KVT_EINVAL, "stats", "NULL", NULL, kvt_worker_stats(w, NULL));
	stats.struct_size = 0;
	assert_refused(KVT_EINVAL, "struct_size", "0", NULL, kvt_worker_stats(w, &stats));
	/* A shorter struct of an older caller is filled as far as it goes. */
	memset(&stats, 0xEE, sizeof(stats));
	stats.struct_size = offsetof(struct kvt_stats, breaker);
	assert_ok(kvt_worker_stats(w, &stats));
	assert_int_equal(stats.struct_size, offsetof(struct kvt_stats, breaker));
	assert_int_equal(stats.jobs_live, 0);
	assert_int_equal(stats.breaker, 0xEEEEEEEE);
	assert_string_equal(kvt_status_name(99), "?");
	assert_int_equal(kvt_status_is_success(99), 0);
	assert_string_equal(kvt_status_name(KVT_STATUS_LOADED_UNVERIFIED), "loaded_unverified");
	for (uint32_t status = 0; status < KVT_STATUS_COUNT; status++) {
		bool success = status <= KVT_STATUS_MISS && status != KVT_STATUS_PENDING;
		if (status != KVT_STATUS_PENDING)
			assert_int_equal(kvt_status_is_success(status), success);
	}
}

static void bad_raw_files_are_refused(void **state)
{
	struct scene *s = *state;
	struct test_bed bed;
	static const char *const paths[] = {"",	      "/a",  "a/",  "a//b",	 ".",	 "..",
					    "a/../b", "./a", "a/.", ".kvtier/x", "a\nb", NULL};
	char memory[64];
	struct kvt_file_op ops[2] = {{(uint64_t)(uintptr_t)memory, 16, 0},
				     {(uint64_t)(uintptr_t)memory + 16, 16, 16}};
	struct kvt_file_ops files[2] = {{"one", ops, 2}, {"two", ops, 1}};
	struct kvt_io_completion *done[2] = {(void *)1, (void *)1};

	/* No raw files here. */
	assert_refused(KVT_ENOTSUP, "raw files", NULL, NULL,
		       kvt_worker_submit_ops(s->bed.worker, files, 1, 1, NULL, done));
	test_bed_init(&bed);
	test_bed_open(&bed, "mem:");
	for (size_t i = 0; i < TEST_COUNT(paths); i++) {
		files[1].path = paths[i];
		done[0] = done[1] = (void *)1;
		assert_refused(KVT_EINVAL, "files[1].path", NULL, NULL,
			       kvt_worker_submit_ops(bed.worker, files, 2, 0, NULL, done));
		assert_null(done[0]);
		assert_null(done[1]);
	}
	files[1].path = "one";
	assert_refused(KVT_EINVAL, "one", NULL, NULL,
		       kvt_worker_submit_ops(bed.worker, files, 2, 1, NULL, done));
	files[1].path = "two";
	ops[1].file_offset = 15;
	assert_refused(KVT_EINVAL, "files[0]", "overlap", "15",
		       kvt_worker_submit_ops(bed.worker, files, 2, 1, NULL, done));
	ops[1].file_offset = UINT64_MAX;
	assert_refused(KVT_EINVAL, "files[0].ops[1]", "18446744073709551615", NULL,
		       kvt_worker_submit_ops(bed.worker, files, 2, 1, NULL, done));
	ops[1].file_offset = 16;
	ops[1].size_bytes = 0;
	assert_refused(KVT_EINVAL, "files[0].ops[1].size_bytes", "0", "1",
		       kvt_worker_submit_ops(bed.worker, files, 2, 1, NULL, done));
	ops[1].size_bytes = 16;
	files[0].ops = NULL;
	assert_refused(KVT_EINVAL, "files[0].ops", "NULL", "2",
		       kvt_worker_submit_ops(bed.worker, files, 2, 1, NULL, done));
	files[0].ops = ops;
	assert_refused(KVT_EINVAL, "completions", "NULL", NULL,
		       kvt_worker_submit_ops(bed.worker, files, 2, 1, NULL, NULL));
	assert_refused(KVT_EINVAL, "files", "NULL", NULL,
		       kvt_worker_submit_ops(bed.worker, NULL, 2, 1, NULL, done));
	assert_returns(KVT_EINVAL, kvt_io_completion_wait(NULL, 0));
	assert_returns(KVT_EINVAL, kvt_io_completion_result(NULL, NULL));
	kvt_io_completion_release(NULL);
	test_bed_close(&bed);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, open_scene, close_scene)
	const struct CMUnitTest tests[] = {
		CASE(worker_options_out_of_range_are_refused),
		CASE(create_checks_its_pointers_and_struct_sizes),
		CASE(a_thread_init_hook_that_fails_fails_create),
		CASE(a_store_in_use_is_not_closed),
		CASE(bad_transfers_are_refused),
		CASE(equal_keys_are_refused_in_one_store_only),
		CASE(an_object_beyond_what_the_store_takes_is_refused),
		CASE(row_mode_takes_rows_only),
		CASE(bad_rows_are_refused),
		CASE(bad_submit_options_are_refused),
		CASE(bad_lookups_are_refused),
		CASE(bad_geometries_are_refused),
		CASE(every_call_refuses_a_null_worker),
		CASE(the_other_calls_check_their_arguments),
		CASE(bad_raw_files_are_refused),
	};
	return cmocka_run_group_tests_name("worker_args", tests, NULL, NULL);
}
