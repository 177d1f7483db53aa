/* SPDX-License-Identifier: Apache-2.0 */
/* Planning: the vectors, every refusal with its precedence, and random transfers against a plain
 * recomputation. Long, and one file: one module, whose vectors and properties share their checks.
 */
#include "plan.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "env.h"
#include "support.h"

/* ---- What the callback saw ---- */

struct seen {
	struct chunk {
		uint64_t key_index, payload_bytes;
		uint32_t group, first_slot, block_count, ref_count;
		struct kvt_copy copies[64];
		uint64_t copy_count;
	} chunks[64];
	size_t count;
	size_t stop_at; /* returns 77 at this chunk, counted from 1; 0: never */
};

static int record(void *context, const struct kvt_chunk_plan *plan)
{
	struct seen *seen = context;
	struct chunk *chunk = &seen->chunks[seen->count];

	assert_true(seen->count < TEST_COUNT(seen->chunks));
	assert_true(plan->copy_count <= TEST_COUNT(chunk->copies));
	*chunk = (struct chunk){plan->key_index,  plan->payload_bytes, plan->group,
				plan->first_slot, plan->block_count,   plan->ref_count,
				{{0, 0, 0}},	  plan->copy_count};
	for (uint64_t i = 0; i < plan->copy_count; i++)
		chunk->copies[i] = plan->copies[i];
	return ++seen->count == seen->stop_at ? 77 : 0;
}

static int ignore(void *context, const struct kvt_chunk_plan *plan)
{
	(void)context;
	(void)plan;
	return 0;
}

/* ---- A transfer that tests change ---- */

#define MAX_GROUPS 8
#define MAX_COPIES 4096
#define MAX_KEYS   1024

struct input {
	struct kvt_transfer transfer;
	uint64_t blocks[MAX_GROUPS];
	uint32_t refs[MAX_GROUPS];
	int64_t indices[MAX_GROUPS];
	uint64_t ptrs[MAX_COPIES], sizes[MAX_COPIES];
	struct kvt_key keys[MAX_KEYS];
	uint32_t hashes[MAX_KEYS];
};

static void input_init(struct input *input, uint32_t blocks_per_chunk)
{
	memset(input, 0, sizeof(*input));
	input->transfer = (struct kvt_transfer){
		.struct_size = sizeof(input->transfer),
		.blocks_per_chunk = blocks_per_chunk,
		.group_block_counts = input->blocks,
		.group_data_ref_counts = input->refs,
		.block_indices = input->indices,
		.ptrs = input->ptrs,
		.sizes = input->sizes,
		.keys = input->keys,
	};
	for (uint32_t k = 0; k < MAX_KEYS; k++) {
		input->hashes[k] = k;
		input->keys[k] = (struct kvt_key){&input->hashes[k], sizeof(uint32_t), 0};
	}
}

static void input_group(struct input *input, uint64_t blocks, uint32_t refs, int64_t index)
{
	uint32_t g = input->transfer.group_count++;

	input->blocks[g] = blocks;
	input->refs[g] = refs;
	input->indices[g] = index;
}

/* F = 4; 5 blocks of 2 refs from index 6, 10 and 12 bytes: 2 chunks and 10 copies. */
static void input_example(struct input *input)
{
	input_init(input, 4);
	input_group(input, 5, 2, 6);
	input->transfer.copy_count = 10;
	input->transfer.key_count = 2;
	for (uint32_t i = 0; i < 10; i++) {
		input->ptrs[i] = 1000 + 100 * i;
		input->sizes[i] = i < 5 ? 10 : 12;
	}
}

/* ---- Vectors ---- */

/* An array of numbers into memory of the given element size. */
static uint64_t load_numbers(const json_t *array, void *numbers, size_t element, size_t room)
{
	size_t count = json_array_size(array);

	assert_true(count <= room);
	for (size_t i = 0; i < count; i++) {
		json_int_t value = json_integer_value(json_array_get(array, i));
		if (element == 4)
			((uint32_t *)numbers)[i] = (uint32_t)value;
		else
			((uint64_t *)numbers)[i] = (uint64_t)value;
	}
	return count;
}

static void load_vector(const json_t *vector, struct input *input)
{
	input_init(input,
		   (uint32_t)json_integer_value(json_object_get(vector, "blocks_per_chunk")));
	input->transfer.group_count = (uint32_t)load_numbers(
		json_object_get(vector, "group_block_counts"), input->blocks, 8, MAX_GROUPS);
	assert_int_equal(load_numbers(json_object_get(vector, "group_data_ref_counts"), input->refs,
				      4, MAX_GROUPS),
			 input->transfer.group_count);
	assert_int_equal(load_numbers(json_object_get(vector, "block_indices"), input->indices, 8,
				      MAX_GROUPS),
			 input->transfer.group_count);
	input->transfer.copy_count =
		load_numbers(json_object_get(vector, "ptrs"), input->ptrs, 8, MAX_COPIES);
	assert_int_equal(
		load_numbers(json_object_get(vector, "sizes"), input->sizes, 8, MAX_COPIES),
		input->transfer.copy_count);
	input->transfer.key_count = (uint64_t)json_integer_value(json_object_get(vector, "n_keys"));
}

/* Where kvtier's offsets are others than vLLM's, on purpose: key 0, copy by copy. */
static const struct {
	const char *name;
	uint64_t offsets[4];
} own_offsets[] = {
	{"09_refs_small_then_big", {0, 50, 100, 200}},
	{"10_refs_big_then_small_OVERLAP", {0, 100, 200, 250}},
};

static const struct {
	const char *name, *detail;
} refusals[] = {
	{"18_per_block_sizes_differ_in_ref",
	 "sizes[1] is 20, expected 10 as in sizes[0] of the same ref (group 0, ref 0)"},
	{"19_too_few_keys", "keys has 2 entries (key_count), expected 3"},
	{"20_too_many_keys", "keys has 3 entries (key_count), expected 2"},
	{"21_short_ptr_array", "ptrs and sizes have 2 entries (copy_count), expected 3"},
};

static void compare_vector(const char *name, const json_t *vector, const struct seen *seen)
{
	const json_t *expected = json_object_get(vector, "expect");

	assert_int_equal(seen->count, json_array_size(expected));
	for (size_t c = 0; c < seen->count; c++) {
		const json_t *chunk = json_array_get(expected, c);
		const json_t *ops = json_object_get(chunk, "ops");

		assert_int_equal(seen->chunks[c].key_index,
				 json_integer_value(json_object_get(chunk, "key_index")));
		assert_int_equal(seen->chunks[c].copy_count, json_array_size(ops));
		for (size_t i = 0; i < json_array_size(ops); i++) {
			const json_t *op = json_array_get(ops, i);
			const struct kvt_copy *copy = &seen->chunks[c].copies[i];
			uint64_t offset = (uint64_t)json_integer_value(json_array_get(op, 2));

			for (size_t k = 0; k < TEST_COUNT(own_offsets); k++) {
				if (strcmp(own_offsets[k].name, name) == 0)
					offset = own_offsets[k].offsets[i];
			}
			assert_int_equal(copy->ptr, json_integer_value(json_array_get(op, 0)));
			assert_int_equal(copy->size, json_integer_value(json_array_get(op, 1)));
			assert_int_equal(copy->offset, offset);
		}
	}
}

static void every_vector_becomes_the_expected_copies(void **state)
{
	json_error_t json_error;
	json_t *file = json_load_file(KVT_TEST_DATA_DIR "/plan_vectors.json", 0, &json_error);
	const json_t *vectors = json_object_get(file, "vectors");
	struct input *input = malloc(sizeof(*input));
	struct seen *seen = malloc(sizeof(*seen));
	size_t refused = 0;

	(void)state;
	assert_non_null(input);
	assert_non_null(seen);
	assert_int_equal(json_array_size(vectors), 23);
	for (size_t v = 0; v < json_array_size(vectors); v++) {
		const json_t *vector = json_array_get(vectors, v);
		const char *name = json_string_value(json_object_get(vector, "name"));
		const char *detail = NULL;

		load_vector(vector, input);
		for (size_t i = 0; i < TEST_COUNT(refusals); i++) {
			if (strcmp(refusals[i].name, name) == 0)
				detail = refusals[i].detail;
		}
		for (int is_store = 0; is_store < 2; is_store++) {
			memset(seen, 0, sizeof(*seen));
			if (detail) {
				assert_fails(KVT_EINVAL, detail,
					     kvt_plan_transfer(&input->transfer, is_store, record,
							       seen));
				assert_int_equal(seen->count, 0);
				refused++;
			} else {
				struct kvt__plan_group groups[MAX_GROUPS];
				uint64_t chunks, bytes;

				assert_ok(kvt_plan_transfer(&input->transfer, is_store, record,
							    seen));
				compare_vector(name, vector, seen);
				assert_ok(kvt__plan_check(&input->transfer, groups, MAX_GROUPS,
							  &chunks, &bytes));
				assert_int_equal(chunks, seen->count);
				assert_int_equal(bytes, json_integer_value(json_object_get(
								vector, "expect_total_bytes")));
			}
		}
	}
	assert_int_equal(refused, 2 * TEST_COUNT(refusals));
	json_decref(file);
	free(input);
	free(seen);
}

/* ---- Refusals ---- */

static void refused(struct input *input, const char *detail)
{
	struct kvt__plan_group groups[MAX_GROUPS];
	uint64_t chunks = 1, bytes = 1;

	assert_fails(KVT_EINVAL, detail,
		     kvt__plan_check(&input->transfer, groups, MAX_GROUPS, &chunks, &bytes));
	assert_int_equal(chunks, 0);
	assert_int_equal(bytes, 0);
	assert_fails(KVT_EINVAL, detail, kvt_plan_transfer(&input->transfer, 0, ignore, NULL));
}

static void refusals_come_in_the_order_of_precedence(void **state)
{
	struct input *input = malloc(sizeof(*input));

	(void)state;
	assert_non_null(input);
	input_example(input);
	assert_ok(kvt_plan_transfer(&input->transfer, 1, ignore, NULL));
	/* All that can be wrong at once; each repair uncovers the next. */
	input->hashes[1] = input->hashes[0];
	input->ptrs[3] = UINT64_MAX - 5;
	input->keys[1].hash_bytes = 65;
	input->sizes[2] = 11;
	input->sizes[7] = 0;
	input->transfer.key_count = 3;
	input->transfer.copy_count = 9;
	input->transfer.blocks_per_chunk = 0;
	refused(input, "blocks_per_chunk is 0, expected at least 1");
	input->transfer.blocks_per_chunk = 4;
	refused(input, "ptrs and sizes have 9 entries (copy_count), expected 10");
	input->transfer.copy_count = 11;
	refused(input, "ptrs and sizes have 11 entries (copy_count), expected 10");
	input->transfer.copy_count = 10;
	refused(input, "keys has 3 entries (key_count), expected 2");
	input->transfer.key_count = 1;
	refused(input, "keys has 1 entries (key_count), expected 2");
	input->transfer.key_count = 2;
	refused(input, "sizes[7] is 0, expected at least 1");
	input->sizes[7] = 12;
	refused(input, "sizes[2] is 11, expected 10 as in sizes[0] of the same ref");
	input->sizes[2] = 10;
	refused(input, "keys[1]: 65 hash bytes, expected 1 to 64");
	input->keys[1].hash_bytes = 0;
	refused(input, "keys[1]: 0 hash bytes, expected 1 to 64");
	input->keys[1].hash_bytes = 4;
	refused(input,
		"ptrs[3] is 0xfffffffffffffffa: 10 bytes (sizes[3]) from there pass 64 bits");
	input->ptrs[3] = UINT64_MAX - 9;
	assert_fails(KVT_EINVAL,
		     "keys[1] equals keys[0] (hash and group 0), expected distinct keys",
		     kvt_plan_transfer(&input->transfer, 1, ignore, NULL));
	/* A load may repeat a key, and other groups make other keys. */
	assert_ok(kvt_plan_transfer(&input->transfer, 0, ignore, NULL));
	input->keys[1].group = 1;
	assert_ok(kvt_plan_transfer(&input->transfer, 1, ignore, NULL));
	free(input);
}

static void arithmetic_that_passes_64_bits_is_refused(void **state)
{
	struct input *input = malloc(sizeof(*input));

	(void)state;
	assert_non_null(input);
	/* More copies than can be counted are more than were given, whatever was given. */
	input_init(input, 1);
	input_group(input, UINT64_C(1) << 62, 8, 0);
	input->transfer.copy_count = UINT64_MAX;
	refused(input, "copy_count), expected 18446744073709551615");
	input_init(input, 1);
	input_group(input, UINT64_MAX, 1, 0);
	input_group(input, 1, 1, 0);
	refused(input, "ptrs and sizes have 0 entries (copy_count), expected 18446744073709551615");
	/* So are keys; the count of chunks does not wrap, with the largest skip either. */
	input_init(input, 1);
	input_group(input, UINT64_MAX, 0, 0);
	refused(input, "keys has 0 entries (key_count), expected 18446744073709551615");
	input_group(input, 1, 0, 0);
	input->transfer.key_count = UINT64_MAX;
	refused(input, "keys has 18446744073709551615 entries (key_count), expected 1844674407");
	input_init(input, UINT32_MAX);
	input_group(input, UINT64_MAX, 0, -1);
	refused(input, "keys has 0 entries (key_count), expected 4294967298");
	/* Payload: the product, and the sum. */
	input_init(input, 4);
	input_group(input, 1, 1, 0);
	input->transfer.copy_count = input->transfer.key_count = 1;
	input->sizes[0] = UINT64_C(1) << 62;
	refused(input,
		"sizes[0] is 4611686018427387904: the payload of a chunk of 4 blocks passes");
	input_init(input, 1);
	input_group(input, 1, 2, 0);
	input->transfer.copy_count = 2;
	input->transfer.key_count = 1;
	input->sizes[0] = UINT64_MAX;
	input->sizes[1] = 1;
	refused(input, "sizes[1] is 1: the payload of a chunk of 1 blocks passes 64 bits");
	/* The sum of all sizes, while each chunk is fine. */
	input_init(input, 1);
	input_group(input, 2, 1, 0);
	input->transfer.copy_count = input->transfer.key_count = 2;
	input->sizes[0] = input->sizes[1] = UINT64_C(1) << 63;
	refused(input, "sizes[0] is 9223372036854775808: the sum of all sizes passes 64 bits");
	free(input);
}

static void null_arrays_and_too_many_groups_are_refused(void **state)
{
	struct input *input = malloc(sizeof(*input));
	struct kvt__plan_group groups[1];
	uint64_t chunks, bytes;

	(void)state;
	assert_non_null(input);
#define WITHOUT(member, text)                                                                      \
	do {                                                                                       \
		input_example(input);                                                              \
		input->transfer.member = NULL;                                                     \
		refused(input, text);                                                              \
	} while (0)
	WITHOUT(group_block_counts, "group_block_counts is NULL, expected 1 entries");
	WITHOUT(group_data_ref_counts, "group_data_ref_counts is NULL, expected 1 entries");
	WITHOUT(block_indices, "block_indices is NULL, expected 1 entries");
	WITHOUT(ptrs, "ptrs is NULL, expected 10 entries");
	WITHOUT(sizes, "sizes is NULL, expected 10 entries");
	WITHOUT(keys, "keys is NULL, expected 2 entries");
#undef WITHOUT
	input_example(input);
	input->keys[1].hash = NULL;
	refused(input, "keys[1]: hash is NULL, expected 4 bytes");
	input_example(input);
	input_group(input, 0, 0, 0);
	assert_fails(KVT_EINVAL, "group_count is 2, expected at most 1",
		     kvt__plan_check(&input->transfer, groups, 1, &chunks, &bytes));
	/* Nothing at all needs no arrays. */
	memset(&input->transfer, 0, sizeof(input->transfer));
	input->transfer.struct_size = sizeof(input->transfer);
	input->transfer.blocks_per_chunk = 1;
	assert_ok(kvt_plan_transfer(&input->transfer, 1, ignore, NULL));
	/* An absurd count without arrays is told before any memory is asked for. */
	input->transfer.group_count = UINT32_MAX;
	assert_fails(KVT_EINVAL, "group_block_counts is NULL, expected 4294967295 entries",
		     kvt_plan_transfer(&input->transfer, 1, ignore, NULL));
	free(input);
}

static void what_the_format_cannot_hold_is_refused_with_its_group(void **state)
{
	struct input *input = malloc(sizeof(*input));

	(void)state;
	assert_non_null(input);
	input_init(input, 1u << 20);
	input_group(input, 0, 9, 0);
	input_group(input, 1, 2, 0);
	input->transfer.copy_count = 2;
	input->transfer.key_count = 1;
	input->sizes[0] = input->sizes[1] = 1;
	assert_fails(KVT_EINVAL, "group 1: 2097152 slots (1048576 blocks_per_chunk of 2 refs)",
		     kvt_plan_transfer(&input->transfer, 0, ignore, NULL));
	input_init(input, 1);
	input_group(input, 1, 1, 0);
	input->transfer.copy_count = input->transfer.key_count = 1;
	input->sizes[0] = (UINT64_C(1) << 46) + 1;
	assert_fails(KVT_EINVAL, "group 0: ref_bytes[0] is 70368744177665: the payload",
		     kvt_plan_transfer(&input->transfer, 0, ignore, NULL));
	input->sizes[0]--;
	assert_ok(kvt_plan_transfer(&input->transfer, 0, ignore, NULL));
	free(input);
}

static void bad_arguments_are_named(void **state)
{
	struct kvt_transfer transfer = KVT_INIT(transfer);

	(void)state;
	transfer.blocks_per_chunk = 1;
	assert_fails(KVT_EINVAL, "transfer is NULL", kvt_plan_transfer(NULL, 0, ignore, NULL));
	assert_fails(KVT_EINVAL, "callback is NULL", kvt_plan_transfer(&transfer, 0, NULL, NULL));
	transfer.struct_size = 0;
	assert_fails(KVT_EINVAL, "transfer: struct_size is 0, expected",
		     kvt_plan_transfer(&transfer, 0, ignore, NULL));
}

static void a_callback_that_stops_is_the_result(void **state)
{
	struct input *input = malloc(sizeof(*input));
	struct seen *seen = calloc(1, sizeof(*seen));

	(void)state;
	assert_non_null(input);
	assert_non_null(seen);
	input_example(input);
	seen->stop_at = 1;
	assert_returns(77, kvt_plan_transfer(&input->transfer, 0, record, seen));
	assert_int_equal(seen->count, 1);
	free(input);
	free(seen);
}

static void negative_block_indices_count_back_from_the_chunk_before(void **state)
{
	static const struct {
		int64_t index;
		uint32_t blocks_per_chunk, first_slot;
	} cases[] = {
		{-1, 4, 3},
		{-4, 4, 0},
		{-5, 4, 3},
		{INT64_MIN, 4, 0},
		{INT64_MIN, 3, 1},
		{INT64_MAX, 4, 3},
		{INT64_MIN, 1, 0},
		{-1, UINT32_MAX, UINT32_MAX - 1},
		{INT64_MIN, 1u << 20, 0},
	};
	struct input *input = malloc(sizeof(*input));
	struct seen *seen = malloc(sizeof(*seen));

	(void)state;
	assert_non_null(input);
	assert_non_null(seen);
	for (size_t i = 0; i < TEST_COUNT(cases); i++) {
		input_init(input, cases[i].blocks_per_chunk);
		input_group(input, 1, 0, cases[i].index);
		input->transfer.key_count = 1;
		memset(seen, 0, sizeof(*seen));
		assert_ok(kvt_plan_transfer(&input->transfer, 1, record, seen));
		assert_int_equal(seen->count, 1);
		assert_int_equal(seen->chunks[0].first_slot, cases[i].first_slot);
	}
	free(input);
	free(seen);
}

/* ---- Random transfers against a plain recomputation ---- */

struct brute {
	const struct input *input;
	uint64_t next_key;
	bool *used;	   /* per copy: planned exactly once */
	uint64_t *key_of;  /* per copy: which key it belongs to */
	uint64_t *offsets; /* per copy */
};

/* Walks blocks one at a time, as a reader of the description would. */
static void brute_force(struct brute *brute, const struct input *input)
{
	const struct kvt_transfer *t = &input->transfer;
	uint64_t copy = 0, key = 0;

	for (uint32_t g = 0; g < t->group_count; g++) {
		uint64_t base = copy;
		int64_t f = t->blocks_per_chunk;

		if (input->blocks[g] == 0)
			continue;
		int64_t skip = ((input->indices[g] % f) + f) % f;
		for (uint64_t b = 0; b < input->blocks[g]; b++) {
			uint64_t place = (uint64_t)skip + b, start = 0;
			for (uint32_t d = 0; d < input->refs[g]; d++) {
				uint64_t at = base + d * input->blocks[g] + b;
				brute->key_of[at] = key + place / (uint64_t)f;
				brute->offsets[at] = start + place % (uint64_t)f * input->sizes[at];
				start += (uint64_t)f * input->sizes[at];
			}
		}
		copy += input->blocks[g] * input->refs[g];
		key += ((uint64_t)skip + input->blocks[g] + (uint64_t)f - 1) / (uint64_t)f;
	}
}

static int check_chunk(void *context, const struct kvt_chunk_plan *plan)
{
	struct brute *brute = context;
	const struct input *input = brute->input;

	assert_int_equal(plan->key_index, brute->next_key++);
	assert_int_equal(plan->copy_count, (uint64_t)plan->block_count * plan->ref_count);
	assert_true(plan->block_count >= 1);
	assert_true(plan->first_slot + plan->block_count <= input->transfer.blocks_per_chunk);
	for (uint64_t i = 0; i < plan->copy_count; i++) {
		const struct kvt_copy *copy = &plan->copies[i];
		/* Pointers are distinct: ptrs[i] is 1000000 * i. */
		uint64_t at = copy->ptr / 1000000;

		assert_int_equal(copy->ptr % 1000000, 0);
		assert_false(brute->used[at]);
		brute->used[at] = true;
		assert_int_equal(copy->size, input->sizes[at]);
		assert_int_equal(brute->key_of[at], plan->key_index);
		assert_int_equal(brute->offsets[at], copy->offset);
		assert_true(copy->offset + copy->size <= plan->payload_bytes);
	}
	return 0;
}

static void random_input(struct input *input, struct test_random *random)
{
	uint64_t copies = 0, keys = 0;

	input_init(input, 1 + (uint32_t)test_random_below(random, 9));
	for (uint64_t g = test_random_below(random, MAX_GROUPS + 1); g > 0; g--) {
		uint64_t blocks = test_random_below(random, 4) ? test_random_below(random, 40) : 0;
		uint32_t refs = (uint32_t)test_random_below(random, 5);
		int64_t index = (int64_t)test_random_next(random);

		if (test_random_below(random, 2))
			index = (int64_t)test_random_below(random, 100) - 50;
		input_group(input, blocks, refs, index);
		if (blocks == 0)
			continue;
		for (uint32_t d = 0; d < refs; d++) {
			uint64_t size = 1 + test_random_below(random, 1000);
			for (uint64_t b = 0; b < blocks; b++) {
				input->ptrs[copies] = 1000000 * copies;
				input->sizes[copies++] = size;
			}
		}
		int64_t f = input->transfer.blocks_per_chunk;
		keys += ((uint64_t)(((index % f) + f) % f) + blocks + (uint64_t)f - 1) /
			(uint64_t)f;
	}
	input->transfer.copy_count = copies;
	input->transfer.key_count = keys;
}

static void random_transfers_agree_with_a_plain_recomputation(void **state)
{
	struct test_random random = {test_seed(3)};
	struct input *input = malloc(sizeof(*input));
	struct brute brute = {.input = input,
			      .used = malloc(MAX_COPIES * sizeof(bool)),
			      .key_of = malloc(MAX_COPIES * sizeof(uint64_t)),
			      .offsets = malloc(MAX_COPIES * sizeof(uint64_t))};

	(void)state;
	assert_non_null(input);
	for (int round = 0; round < 5000; round++) {
		random_input(input, &random);
		memset(brute.used, 0, MAX_COPIES * sizeof(bool));
		brute.next_key = 0;
		brute_force(&brute, input);
		assert_ok(kvt_plan_transfer(&input->transfer, 1, check_chunk, &brute));
		assert_int_equal(brute.next_key, input->transfer.key_count);
		for (uint64_t i = 0; i < input->transfer.copy_count; i++)
			assert_true(brute.used[i]);
	}
	free(input);
	free(brute.used);
	free(brute.key_of);
	free(brute.offsets);
}

/* The first copy whose size is another than that of its ref's first block, and that block's; false
 * when there is none. */
static bool first_odd_size(const struct input *input, uint64_t *oddp, uint64_t *firstp)
{
	uint64_t at = 0;

	for (uint32_t g = 0; g < input->transfer.group_count; g++) {
		for (uint32_t d = 0; d < input->refs[g] && input->blocks[g] > 0; d++) {
			for (uint64_t b = 0; b < input->blocks[g]; b++) {
				*oddp = at + b;
				*firstp = at;
				if (input->sizes[at + b] != input->sizes[at])
					return true;
			}
			at += input->blocks[g];
		}
	}
	return false;
}

static void sizes_that_differ_are_found_where_they_are(void **state)
{
	struct test_random random = {test_seed(6)};
	struct input *input = malloc(sizeof(*input));

	(void)state;
	assert_non_null(input);
	for (int round = 0; round < 5000; round++) {
		uint64_t odd, first;
		char detail[96];

		random_input(input, &random);
		for (uint64_t n = 1 + test_random_below(&random, 3); n > 0; n--) {
			if (input->transfer.copy_count > 0)
				input->sizes[test_random_below(&random,
							       input->transfer.copy_count)]++;
		}
		if (!first_odd_size(input, &odd, &first)) {
			assert_ok(kvt_plan_transfer(&input->transfer, 1, ignore, NULL));
			continue;
		}
		(void)snprintf(detail, sizeof(detail),
			       "sizes[%" PRIu64 "] is %" PRIu64 ", expected %" PRIu64
			       " as in sizes[%" PRIu64 "] of",
			       odd, input->sizes[odd], input->sizes[first], first);
		refused(input, detail);
	}
	free(input);
}

static void keys_have_1_to_64_hash_bytes(void **state)
{
	uint8_t hash[64] = {0};

	(void)state;
	for (uint32_t bytes = 0; bytes <= 70; bytes++) {
		const struct kvt_key key = {hash, bytes, 0};
		if (bytes >= 1 && bytes <= 64)
			assert_ok(kvt__key_check(&key, 7));
		else
			assert_fails(KVT_EINVAL, "keys[7]: ", kvt__key_check(&key, 7));
	}
	assert_returns(KVT_EINVAL, kvt__key_check(&(struct kvt_key){hash, UINT32_MAX, 0}, 0));
}

static void copies_may_end_where_the_address_space_ends(void **state)
{
	static const uint64_t sizes[] = {1, 2, 4096, UINT64_C(1) << 40};
	struct input *input = malloc(sizeof(*input));

	(void)state;
	assert_non_null(input);
	for (size_t i = 0; i < TEST_COUNT(sizes); i++) {
		input_init(input, 1);
		input_group(input, 1, 1, 0);
		input->transfer.copy_count = input->transfer.key_count = 1;
		input->sizes[0] = sizes[i];
		input->ptrs[0] = UINT64_MAX - (sizes[i] - 1);
		assert_ok(kvt_plan_transfer(&input->transfer, 1, ignore, NULL));
		if (input->ptrs[0] == UINT64_MAX)
			continue;
		input->ptrs[0]++;
		refused(input, "ptrs[0] is 0x");
	}
	free(input);
}

static int count_copies(void *context, const struct kvt_chunk_plan *plan)
{
	*(uint64_t *)context += plan->copy_count;
	return 0;
}

static void any_number_of_refs_and_groups_is_planned(void **state)
{
	static const uint32_t counts[] = {1, 63, 64, 65, 1000, 1u << 20, (1u << 20) + 1};
	const uint32_t most = (1u << 20) + 1;
	uint64_t *numbers = malloc(most * sizeof(*numbers)), blocks = 1, copies;
	int64_t index = 0;
	const struct kvt_key key = {"k", 1, 0};

	(void)state;
	assert_non_null(numbers);
	for (uint32_t i = 0; i < most; i++)
		numbers[i] = 1;
	for (size_t i = 0; i < TEST_COUNT(counts); i++) {
		const struct kvt_transfer transfer = {
			sizeof(transfer), 1,	   1,	      &blocks, &counts[i], &index,
			numbers,	  numbers, counts[i], &key,    1,
		};
		copies = 0;
		if (counts[i] == most) {
			assert_fails(KVT_EINVAL, "group 0: ref_count is 1048577, expected at most",
				     kvt_plan_transfer(&transfer, 1, count_copies, &copies));
			continue;
		}
		assert_ok(kvt_plan_transfer(&transfer, 1, count_copies, &copies));
		assert_int_equal(copies, counts[i]);
	}
	/* Groups: one block each, without refs, so that only keys are needed. */
	static const uint32_t groups[] = {15, 16, 17, 500};
	static const uint32_t no_refs[500];
	static const int64_t indices[500];
	for (size_t i = 0; i < TEST_COUNT(groups); i++) {
		struct kvt_key keys[500];
		const struct kvt_transfer transfer = {
			.struct_size = sizeof(transfer),
			.blocks_per_chunk = 1,
			.group_count = groups[i],
			.group_block_counts = numbers,
			.group_data_ref_counts = no_refs,
			.block_indices = indices,
			.keys = keys,
			.key_count = groups[i],
		};
		for (uint32_t k = 0; k < groups[i]; k++)
			keys[k] = (struct kvt_key){"k", 1, k};
		assert_ok(kvt_plan_transfer(&transfer, 1, ignore, NULL));
	}
	free(numbers);
}

static void one_wrong_thing_in_a_random_transfer_is_found_where_it_is(void **state)
{
	struct test_random random = {test_seed(5)};
	struct input *input = malloc(sizeof(*input));

	(void)state;
	assert_non_null(input);
	for (int round = 0; round < 5000; round++) {
		const struct kvt_transfer *t = &input->transfer;
		char detail[64];

		random_input(input, &random);
		if (t->copy_count == 0 || t->key_count < 2)
			continue;
		uint64_t copy = test_random_below(&random, t->copy_count);
		uint64_t key = test_random_below(&random, t->key_count);
		switch (round % 4) {
		case 0:
			input->sizes[copy] = 0;
			(void)snprintf(detail, sizeof(detail), "sizes[%" PRIu64 "] is 0", copy);
			break;
		case 1:
			input->keys[key].hash_bytes = 65;
			(void)snprintf(detail, sizeof(detail), "keys[%" PRIu64 "]: 65 hash", key);
			break;
		case 2:
			input->transfer.key_count += round % 8 < 4 ? 1 : (uint64_t)-1;
			(void)snprintf(detail, sizeof(detail), "keys has %" PRIu64 " entries",
				       t->key_count);
			break;
		default:
			input->transfer.copy_count += round % 8 < 4 ? 1 : (uint64_t)-1;
			(void)snprintf(detail, sizeof(detail), "sizes have %" PRIu64 " entries",
				       t->copy_count);
			break;
		}
		refused(input, detail);
	}
	free(input);
}

/* ---- Distinct keys ---- */

static void equal_keys_are_found_in_any_number_of_keys(void **state)
{
	struct test_random random = {test_seed(9)};
	static const uint64_t counts[] = {2, 3, 63, 64, 65, 66, 1000, 20000};
	struct kvt_key *keys = malloc(20000 * sizeof(*keys));
	uint8_t(*hashes)[64] = malloc(20000 * 64);

	(void)state;
	assert_non_null(keys);
	assert_non_null(hashes);
	assert_ok(kvt__keys_distinct(keys, 0));
	for (size_t c = 0; c < TEST_COUNT(counts); c++) {
		for (int round = 0; round < 60; round++) {
			uint64_t n = counts[c], a = test_random_below(&random, n), b = a;
			uint32_t hash_bytes = 4 + (uint32_t)test_random_below(&random, 61);
			char detail[96];

			while (b == a)
				b = test_random_below(&random, n);
			/* They differ in one place only, which is anywhere in the hash. */
			uint32_t place = (uint32_t)test_random_below(&random, hash_bytes - 3);
			for (uint64_t k = 0; k < n; k++) {
				memset(hashes[k], 0x55, 64);
				memcpy(hashes[k] + place, &(uint32_t){(uint32_t)k}, 4);
				keys[k] = (struct kvt_key){hashes[k], hash_bytes, 3};
			}
			assert_ok(kvt__keys_distinct(keys, n));
			/* Another length or group is another key. */
			memcpy(hashes[a], hashes[b], 64);
			keys[a].group = 4;
			assert_ok(kvt__keys_distinct(keys, n));
			keys[a].group = 3;
			keys[a].hash_bytes = hash_bytes == 64 ? 63 : hash_bytes + 1;
			assert_ok(kvt__keys_distinct(keys, n));
			keys[a].hash_bytes = hash_bytes;
			(void)snprintf(detail, sizeof(detail),
				       "keys[%" PRIu64 "] equals keys[%" PRIu64
				       "] (hash and group 3)",
				       a > b ? a : b, a > b ? b : a);
			assert_fails(KVT_EINVAL, detail, kvt__keys_distinct(keys, n));
		}
	}
	free(keys);
	free(hashes);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_vector_becomes_the_expected_copies),
		cmocka_unit_test(refusals_come_in_the_order_of_precedence),
		cmocka_unit_test(arithmetic_that_passes_64_bits_is_refused),
		cmocka_unit_test(null_arrays_and_too_many_groups_are_refused),
		cmocka_unit_test(what_the_format_cannot_hold_is_refused_with_its_group),
		cmocka_unit_test(bad_arguments_are_named),
		cmocka_unit_test(a_callback_that_stops_is_the_result),
		cmocka_unit_test(negative_block_indices_count_back_from_the_chunk_before),
		cmocka_unit_test(random_transfers_agree_with_a_plain_recomputation),
		cmocka_unit_test(sizes_that_differ_are_found_where_they_are),
		cmocka_unit_test(keys_have_1_to_64_hash_bytes),
		cmocka_unit_test(copies_may_end_where_the_address_space_ends),
		cmocka_unit_test(any_number_of_refs_and_groups_is_planned),
		cmocka_unit_test(one_wrong_thing_in_a_random_transfer_is_found_where_it_is),
		cmocka_unit_test(equal_keys_are_found_in_any_number_of_keys),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
