/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Planning: from a transfer to the copies of each chunk.
 *
 * Slot s of ref d lies at F * (size_0 + ... + size_{d-1}) + s * size_d of its chunk. With refs of
 * one size this is vLLM's (d * F + s) * size; with unequal sizes vLLM's formula leaves holes or
 * lets refs overlap, the sum never does.
 */
#include "plan.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "env.h"
#include "format.h"

#define MAX_HASH_BYTES 64u
#define STACK_GROUPS   16u
#define STACK_REFS     64u
#define STACK_KEYS     64u

typedef unsigned long long ull;

/* The slot of a group's first block, 0 to blocks_per_chunk - 1, for negative indices too. */
static uint32_t first_slot(int64_t block_index, uint32_t blocks_per_chunk)
{
	int64_t rest = block_index % (int64_t)blocks_per_chunk;

	return (uint32_t)(rest < 0 ? rest + (int64_t)blocks_per_chunk : rest);
}

/* Adds to a sum that stays at its largest value once it has overflowed, and says so. */
static void add(uint64_t *sum, uint64_t value, bool *overflowp)
{
	if (__builtin_add_overflow(*sum, value, sum)) {
		*sum = UINT64_MAX;
		*overflowp = true;
	}
}

int kvt__key_check(const struct kvt_key *key, uint64_t index)
{
	if (key->hash_bytes < 1 || key->hash_bytes > MAX_HASH_BYTES)
		return kvt__fail(KVT_EINVAL, "keys[%llu]: %u hash bytes, expected 1 to %u",
				 (ull)index, key->hash_bytes, MAX_HASH_BYTES);
	if (!key->hash)
		return kvt__fail(KVT_EINVAL, "keys[%llu]: hash is NULL, expected %u bytes",
				 (ull)index, key->hash_bytes);
	return 0;
}

static int check_arrays(const struct kvt_transfer *transfer, uint32_t groups_max)
{
	const struct {
		const char *name;
		const void *array;
		uint64_t count;
	} arrays[] = {
		{"group_block_counts", transfer->group_block_counts, transfer->group_count},
		{"group_data_ref_counts", transfer->group_data_ref_counts, transfer->group_count},
		{"block_indices", transfer->block_indices, transfer->group_count},
		{"ptrs", transfer->ptrs, transfer->copy_count},
		{"sizes", transfer->sizes, transfer->copy_count},
		{"keys", transfer->keys, transfer->key_count},
	};

	if (transfer->group_count > groups_max)
		return kvt__fail(KVT_EINVAL, "group_count is %u, expected at most %u",
				 transfer->group_count, groups_max);
	if (transfer->blocks_per_chunk == 0)
		return kvt__fail(KVT_EINVAL, "blocks_per_chunk is 0, expected at least 1");
	for (size_t i = 0; i < sizeof(arrays) / sizeof(arrays[0]); i++) {
		if (!arrays[i].array && arrays[i].count > 0)
			return kvt__fail(KVT_EINVAL, "%s is NULL, expected %llu entries",
					 arrays[i].name, (ull)arrays[i].count);
	}
	return 0;
}

/* Distributes keys and copies over the groups and compares their numbers with those given. A needed
 * number that passes 64 bits is more than anybody can have given. */
static int check_counts(const struct kvt_transfer *transfer, struct kvt__plan_group *groups,
			uint64_t *chunk_countp)
{
	uint64_t keys = 0, copies = 0;
	bool too_many_keys = false, too_many_copies = false;

	for (uint32_t g = 0; g < transfer->group_count; g++) {
		struct kvt__plan_group *group = &groups[g];
		uint64_t needed;

		memset(group, 0, sizeof(*group));
		group->first_key = keys;
		group->first_copy = copies;
		group->blocks = transfer->group_block_counts[g];
		if (group->blocks == 0)
			continue;
		group->refs = transfer->group_data_ref_counts[g];
		group->skip = first_slot(transfer->block_indices[g], transfer->blocks_per_chunk);
		/* ceil((blocks + skip) / F), where the sum may not fit. */
		uint32_t head = transfer->blocks_per_chunk - group->skip;
		group->chunks = 1;
		if (group->blocks > head)
			group->chunks +=
				(group->blocks - head - 1) / transfer->blocks_per_chunk + 1;
		add(&keys, group->chunks, &too_many_keys);
		if (__builtin_mul_overflow(group->blocks, (uint64_t)group->refs, &needed)) {
			needed = UINT64_MAX;
			too_many_copies = true;
		}
		add(&copies, needed, &too_many_copies);
	}
	if (too_many_copies || transfer->copy_count != copies)
		return kvt__fail(KVT_EINVAL,
				 "ptrs and sizes have %llu entries (copy_count), expected %llu for "
				 "the counts of blocks and refs",
				 (ull)transfer->copy_count, (ull)copies);
	if (too_many_keys || transfer->key_count != keys)
		return kvt__fail(KVT_EINVAL,
				 "keys has %llu entries (key_count), expected %llu, one for each "
				 "chunk",
				 (ull)transfer->key_count, (ull)keys);
	*chunk_countp = keys;
	return 0;
}

/* Says what is wrong with the sizes once it is known that something is: a zero, wherever it is,
 * before a size that differs. */
static int report_sizes(const struct kvt_transfer *transfer, const struct kvt__plan_group *groups)
{
	for (uint64_t i = 0; i < transfer->copy_count; i++) {
		if (transfer->sizes[i] == 0)
			return kvt__fail(KVT_EINVAL, "sizes[%llu] is 0, expected at least 1",
					 (ull)i);
	}
	for (uint32_t g = 0; g < transfer->group_count; g++) {
		const struct kvt__plan_group *group = &groups[g];
		for (uint64_t i = 0; i < group->blocks * group->refs; i++) {
			uint64_t at = group->first_copy + i;
			uint64_t first = group->first_copy + i / group->blocks * group->blocks;
			if (transfer->sizes[at] != transfer->sizes[first])
				return kvt__fail(KVT_EINVAL,
						 "sizes[%llu] is %llu, expected %llu as in "
						 "sizes[%llu] of the same ref (group %u, ref %llu)",
						 (ull)at, (ull)transfer->sizes[at],
						 (ull)transfer->sizes[first], (ull)first, g,
						 (ull)(i / group->blocks));
		}
	}
	return kvt__fail(KVT_EINTERNAL, "sizes changed during the call");
}

static int check_sizes(const struct kvt_transfer *transfer, const struct kvt__plan_group *groups)
{
	const uint64_t *sizes = transfer->sizes;

	for (uint32_t g = 0; g < transfer->group_count; g++) {
		uint64_t at = groups[g].first_copy;
		for (uint32_t d = 0; d < groups[g].refs; d++) {
			uint64_t first = sizes[at], differs = first == 0;
			for (uint64_t b = 1; b < groups[g].blocks; b++)
				differs |= sizes[at + b] ^ first;
			if (differs)
				return report_sizes(transfer, groups);
			at += groups[g].blocks;
		}
	}
	return 0;
}

/* Fills payload lengths; refuses sums and addresses that pass 64 bits. */
static int check_sums(const struct kvt_transfer *transfer, struct kvt__plan_group *groups,
		      uint64_t *bytesp)
{
	uint64_t total = 0, high = 0;

	for (uint32_t g = 0; g < transfer->group_count; g++) {
		struct kvt__plan_group *group = &groups[g];
		uint64_t sum = 0;

		for (uint32_t d = 0; d < group->refs; d++) {
			uint64_t at = group->first_copy + d * group->blocks;
			uint64_t size = transfer->sizes[at], bytes;

			if (__builtin_add_overflow(sum, size, &sum) ||
			    __builtin_mul_overflow(sum, (uint64_t)transfer->blocks_per_chunk,
						   &group->payload_bytes))
				return kvt__fail(KVT_EINVAL,
						 "sizes[%llu] is %llu: the payload of a chunk of "
						 "%u blocks passes 64 bits",
						 (ull)at, (ull)size, transfer->blocks_per_chunk);
			if (__builtin_mul_overflow(size, group->blocks, &bytes) ||
			    __builtin_add_overflow(total, bytes, &total))
				return kvt__fail(KVT_EINVAL,
						 "sizes[%llu] is %llu: the sum of all sizes passes "
						 "64 bits",
						 (ull)at, (ull)size);
			high |= size;
			for (uint64_t b = 0; b < group->blocks; b++)
				high |= transfer->ptrs[at + b];
		}
	}
	/* Below 2^63 both, an address plus a size cannot wrap: the rule. */
	for (uint64_t i = 0; high >> 63 && i < transfer->copy_count; i++) {
		if (transfer->ptrs[i] + (transfer->sizes[i] - 1) < transfer->ptrs[i])
			return kvt__fail(KVT_EINVAL,
					 "ptrs[%llu] is 0x%llx: %llu bytes (sizes[%llu]) from "
					 "there pass 64 bits",
					 (ull)i, (ull)transfer->ptrs[i], (ull)transfer->sizes[i],
					 (ull)i);
	}
	*bytesp = total;
	return 0;
}

int kvt__plan_check(const struct kvt_transfer *transfer, struct kvt__plan_group *groups,
		    uint32_t groups_max, uint64_t *chunk_countp, uint64_t *bytesp)
{
	int error;

	*chunk_countp = 0;
	*bytesp = 0;
	error = check_arrays(transfer, groups_max);
	if (!error)
		error = check_counts(transfer, groups, chunk_countp);
	if (!error)
		error = check_sizes(transfer, groups);
	for (uint64_t k = 0; !error && k < transfer->key_count; k++)
		error = kvt__key_check(&transfer->keys[k], k);
	if (!error)
		error = check_sums(transfer, groups, bytesp);
	if (error)
		*chunk_countp = 0;
	return error;
}

void kvt__plan_chunk(const struct kvt__plan_group *group, uint32_t blocks_per_chunk, uint64_t index,
		     struct kvt__plan_chunk *chunk)
{
	uint64_t left, room;

	chunk->first_slot = index == 0 ? group->skip : 0;
	chunk->first_block = index == 0 ? 0 : index * blocks_per_chunk - group->skip;
	left = group->blocks - chunk->first_block;
	room = blocks_per_chunk - chunk->first_slot;
	chunk->block_count = (uint32_t)(left < room ? left : room);
}

static bool keys_equal(const struct kvt_key *a, const struct kvt_key *b)
{
	return a->group == b->group && a->hash_bytes == b->hash_bytes &&
	       memcmp(a->hash, b->hash, a->hash_bytes) == 0;
}

/* The product of two words folded into one: every bit of both reaches every bit of the result. */
static uint64_t fold(uint64_t a, uint64_t b)
{
	__extension__ unsigned __int128 product = (unsigned __int128)a * b;
	return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* Seeded, so that nobody can choose keys that meet in the table. */
static uint64_t key_mix(const struct kvt_key *key, uint64_t seed)
{
	const uint8_t *at = key->hash;
	uint32_t left = key->hash_bytes;
	uint64_t mix = seed ^ ((uint64_t)key->group << 32 | left), word;

	for (; left > 8; left -= 8, at += 8) {
		memcpy(&word, at, 8);
		mix = fold(mix ^ word, UINT64_C(0x9e3779b97f4a7c15) ^ seed);
	}
	word = 0;
	memcpy(&word, at, left);
	mix = fold(mix ^ word, UINT64_C(0xd6e8feb86659fd93) ^ seed);
	return mix;
}

/* Finds two equal keys by an open table of `size` places (a power of two, more than the keys); a
 * place holds an index plus one. */
static int find_equal(const struct kvt_key *keys, uint64_t count, uint64_t *places, uint64_t size)
{
	uint64_t seed = fold((uint64_t)kvt__now_ns() ^ (uint64_t)(uintptr_t)places,
			     UINT64_C(0xa0761d6478bd642f));

	memset(places, 0, size * sizeof(*places));
	for (uint64_t k = 0; k < count; k++) {
		uint64_t at = key_mix(&keys[k], seed) & (size - 1);
		for (; places[at]; at = (at + 1) & (size - 1)) {
			uint64_t other = places[at] - 1;
			if (keys_equal(&keys[other], &keys[k]))
				return kvt__fail(KVT_EINVAL,
						 "keys[%llu] equals keys[%llu] (hash and group "
						 "%u), expected distinct keys in one store",
						 (ull)k, (ull)other, keys[k].group);
		}
		places[at] = k + 1;
	}
	return 0;
}

int kvt__keys_distinct(const struct kvt_key *keys, uint64_t count)
{
	uint64_t on_stack[2 * STACK_KEYS], *places, size = 2 * STACK_KEYS;
	int error;

	if (count < 2)
		return 0;
	if (count <= STACK_KEYS)
		return find_equal(keys, count, on_stack, size);
	while (size / 2 < count && size < UINT64_MAX / 32)
		size *= 2;
	places = malloc(size * sizeof(*places));
	if (!places)
		return kvt__fail(KVT_ENOMEM, "%llu keys: out of memory", (ull)count);
	error = find_equal(keys, count, places, size);
	free(places);
	return error;
}

/* Whether the format can hold the chunks of one group. */
static int check_format(const struct kvt_transfer *transfer, const struct kvt__plan_group *group,
			uint32_t index)
{
	uint64_t on_stack[STACK_REFS], *ref_bytes = on_stack;
	struct kvt__geometry geometry = {.blocks_per_chunk = transfer->blocks_per_chunk,
					 .ref_count = group->refs};
	struct kvt__layout layout;
	int error;

	/* A number of refs that is refused anyway takes no memory. */
	if (group->refs > STACK_REFS && group->refs <= KVT__MAX_SLOTS) {
		ref_bytes = malloc(group->refs * sizeof(*ref_bytes));
		if (!ref_bytes)
			return kvt__fail(KVT_ENOMEM, "%u refs: out of memory", group->refs);
	}
	for (uint32_t d = 0; d < group->refs && group->refs <= KVT__MAX_SLOTS; d++)
		ref_bytes[d] = transfer->sizes[group->first_copy + d * group->blocks];
	geometry.ref_bytes = ref_bytes;
	error = kvt__layout_init(&layout, &geometry, transfer->keys[group->first_key].hash_bytes);
	if (error)
		error = kvt__fail(error, "group %u: %s", index, kvt_error_detail());
	if (ref_bytes != on_stack)
		free(ref_bytes);
	return error;
}

/* Calls back for each chunk of one group; `copies` has room for the largest. */
static int call_group(const struct kvt_transfer *transfer, const struct kvt__plan_group *group,
		      uint32_t index, struct kvt_copy *copies, kvt_plan_fn callback, void *context)
{
	for (uint64_t c = 0; c < group->chunks; c++) {
		struct kvt__plan_chunk chunk;
		uint64_t count = 0, ref_at = 0;

		kvt__plan_chunk(group, transfer->blocks_per_chunk, c, &chunk);
		for (uint32_t d = 0; d < group->refs; d++) {
			uint64_t size = 0;
			for (uint32_t b = 0; b < chunk.block_count; b++) {
				uint64_t at = kvt__plan_copy_index(group, &chunk, d, b);
				size = transfer->sizes[at];
				copies[count++] = (struct kvt_copy){
					.ptr = transfer->ptrs[at],
					.size = size,
					.offset = ref_at + (chunk.first_slot + b) * size,
				};
			}
			ref_at += transfer->blocks_per_chunk * size;
		}
		const struct kvt_chunk_plan plan = {
			.key_index = group->first_key + c,
			.group = index,
			.first_slot = chunk.first_slot,
			.block_count = chunk.block_count,
			.ref_count = group->refs,
			.payload_bytes = group->payload_bytes,
			.copies = copies,
			.copy_count = count,
		};
		int stop = callback(context, &plan);
		if (stop)
			return stop;
	}
	return 0;
}

/* All checks, then the callbacks; groups has room for every group. */
static int plan_groups(const struct kvt_transfer *transfer, struct kvt__plan_group *groups,
		       int is_store, kvt_plan_fn callback, void *context)
{
	struct kvt_copy *copies = NULL;
	uint64_t chunk_count, bytes, most = 0;
	int result;

	result = kvt__plan_check(transfer, groups, UINT32_MAX, &chunk_count, &bytes);
	if (!result && is_store)
		result = kvt__keys_distinct(transfer->keys, transfer->key_count);
	for (uint32_t g = 0; !result && g < transfer->group_count; g++) {
		uint64_t blocks = groups[g].blocks;
		if (blocks == 0)
			continue;
		if (blocks > transfer->blocks_per_chunk)
			blocks = transfer->blocks_per_chunk;
		if (blocks * groups[g].refs > most)
			most = blocks * groups[g].refs;
		result = check_format(transfer, &groups[g], g);
	}
	if (result)
		return result;
	if (most > 0) {
		copies = most > SIZE_MAX / sizeof(*copies) ? NULL : malloc(most * sizeof(*copies));
		if (!copies)
			return kvt__fail(KVT_ENOMEM, "%llu copies: out of memory", (ull)most);
	}
	for (uint32_t g = 0; !result && g < transfer->group_count; g++)
		result = call_group(transfer, &groups[g], g, copies, callback, context);
	free(copies);
	return result;
}

int kvt_plan_transfer(const struct kvt_transfer *transfer, int is_store, kvt_plan_fn callback,
		      void *context)
{
	struct kvt__plan_group on_stack[STACK_GROUPS], *groups = on_stack;
	struct kvt_transfer copy;
	int result;

	if (!transfer)
		return kvt__fail(KVT_EINVAL, "kvt_plan_transfer: transfer is NULL");
	if (!callback)
		return kvt__fail(KVT_EINVAL, "kvt_plan_transfer: callback is NULL");
	result = kvt__copy_options(&copy, sizeof(copy), transfer, sizeof(copy), "transfer");
	if (result)
		return result;
	result = check_arrays(&copy, UINT32_MAX);
	if (result)
		return result;
	if (copy.group_count > STACK_GROUPS) {
		groups = calloc(copy.group_count, sizeof(*groups));
		if (!groups)
			return kvt__fail(KVT_ENOMEM, "%u groups: out of memory", copy.group_count);
	}
	result = plan_groups(&copy, groups, is_store, callback, context);
	if (groups != on_stack)
		free(groups);
	return result;
}
