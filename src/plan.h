/* SPDX-License-Identifier: Apache-2.0 */
/* Planning: from a transfer to the copies of each chunk. Pure: no I/O, no allocation, no device
 * memory touched. */
#ifndef KVT_SRC_PLAN_H
#define KVT_SRC_PLAN_H

#include <kvtier/kvtier.h>

/* What one group of a checked transfer becomes. */
struct kvt__plan_group {
	uint64_t first_key;	/* index of its first key */
	uint64_t first_copy;	/* index of its first pointer */
	uint64_t blocks;	/* of the transfer; 0: the group takes no part */
	uint64_t chunks;	/* keys it consumes */
	uint64_t payload_bytes; /* of each of its chunks */
	uint32_t refs;
	uint32_t skip; /* slot of its first block */
};

/* Whether a key has 1 to 64 hash bytes; KVT_EINVAL with detail naming `index`. */
int kvt__key_check(const struct kvt_key *key, uint64_t index);

/*
 * Checks a transfer in the order of precedence of the specification, all but equal keys, and fills
 * groups[group_count] (group_count is checked to be at most groups_max beforehand: KVT_EINVAL).
 * *chunk_countp: the keys it consumes. *bytesp: the sum of all sizes.
 */
int kvt__plan_check(const struct kvt_transfer *transfer, struct kvt__plan_group *groups,
		    uint32_t groups_max, uint64_t *chunk_countp, uint64_t *bytesp);

/* One chunk of a group: which slots, and where its copies are in ptrs/sizes. */
struct kvt__plan_chunk {
	uint32_t first_slot;  /* of each ref */
	uint32_t block_count; /* consecutive slots */
	uint64_t first_block; /* of the group's blocks */
};
/* Chunk number `index` (0-based) of a group. */
void kvt__plan_chunk(const struct kvt__plan_group *group, uint32_t blocks_per_chunk, uint64_t index,
		     struct kvt__plan_chunk *chunk);
/* The index in ptrs and sizes of block `block` (0-based in the chunk) of ref `ref`. */
static inline uint64_t kvt__plan_copy_index(const struct kvt__plan_group *group,
					    const struct kvt__plan_chunk *chunk, uint32_t ref,
					    uint32_t block)
{
	return group->first_copy + (uint64_t)ref * group->blocks + chunk->first_block + block;
}

/* Refuses two equal keys (hash and group) among `count`: KVT_EINVAL naming both indices. Needs no
 * memory for up to 64 keys, else allocates through malloc (KVT_ENOMEM). */
int kvt__keys_distinct(const struct kvt_key *keys, uint64_t count);

#endif
