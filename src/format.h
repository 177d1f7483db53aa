/* SPDX-License-Identifier: Apache-2.0 */
/* The object format: payload, then a trailer that identifies and checksums it (kvtier-format(5)).
 * Pure: no I/O. */
#ifndef KVT_SRC_FORMAT_H
#define KVT_SRC_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KVT__TAIL_BYTES	       64u
#define KVT__PAGE_BYTES	       4096u
#define KVT__FORMAT_VERSION    1u
#define KVT__MAX_SLOTS	       (1u << 20)
#define KVT__MAX_PAYLOAD_BYTES (UINT64_C(1) << 46)
#define KVT__MAX_TRAILER_BYTES ((uint64_t)KVT__MAX_SLOTS * 13 + 68 + 64 + 3 * 4096)

/* The shape of a chunk. ref_bytes is borrowed. */
struct kvt__geometry {
	uint32_t blocks_per_chunk;
	uint32_t ref_count;
	const uint64_t *ref_bytes;
};

/* Where everything is. */
struct kvt__layout {
	uint32_t slot_count;
	uint32_t key_bytes; /* hash + 4 */
	uint64_t payload_bytes;
	uint64_t table_at; /* offsets within the trailer */
	uint64_t presence_at, refs_at, key_at;
	uint64_t presence_bytes;
	uint64_t trailer_bytes; /* of a whole object */
	uint64_t object_bytes;	/* L: of a whole object; a partial one has KVT__PAGE_BYTES more */
};
/* KVT_EINVAL with detail when a limit is exceeded (the one that is, its value and the bound).
 * hash_bytes: 1 to 64. */
int kvt__layout_init(struct kvt__layout *layout, const struct kvt__geometry *geometry,
		     uint32_t hash_bytes);

struct kvt__identity {
	const void *hash;
	uint32_t hash_bytes;
	uint32_t group;
	uint32_t rank;
	const uint8_t *digest; /* 8 bytes */
};

static inline void kvt__put_u32(void *at, uint32_t v)
{
	uint8_t *p = at;
	p[0] = (uint8_t)v, p[1] = (uint8_t)(v >> 8), p[2] = (uint8_t)(v >> 16),
	p[3] = (uint8_t)(v >> 24);
}
static inline uint32_t kvt__get_u32(const void *at)
{
	const uint8_t *p = at;
	return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}
static inline void kvt__slot_crc_put(uint8_t *trailer, uint32_t slot, uint32_t crc)
{
	kvt__put_u32(trailer + 4 * (size_t)slot, crc);
}
static inline uint32_t kvt__slot_crc_get(const uint8_t *trailer, uint32_t slot)
{
	return kvt__get_u32(trailer + 4 * (size_t)slot);
}

/*
 * Finishes a trailer whose slot table (kvt__slot_crc_put) and presence bits are in place: writes
 * ref sizes, key, padding and tail with its checksum. `trailer` has layout->trailer_bytes (+
 * KVT__PAGE_BYTES when partial) bytes, which may hold anything elsewhere. High presence bits must
 * be zero; `partial` must agree with the presence.
 */
void kvt__trailer_seal(uint8_t *trailer, const struct kvt__layout *layout,
		       const struct kvt__geometry *geometry, const struct kvt__identity *identity,
		       bool partial);
/* Sets all presence bits of a whole object, high bits zero. */
void kvt__presence_all(uint8_t *trailer, const struct kvt__layout *layout);

/* A parsed trailer; pointers go into the caller's buffer. */
struct kvt__trailer {
	uint32_t version;
	bool partial;
	uint32_t key_bytes, blocks_per_chunk, ref_count, slot_count, rank;
	uint64_t payload_bytes, trailer_bytes;
	uint8_t digest[8];
	const uint8_t *table, *presence, *refs, *key;
};

/*
 * Looks at the last 64 bytes of an object of object_bytes: 0 with *trailer_bytesp set when the
 * whole trailer should be read (it has our magic and a possible length); KVT_EFOREIGN without our
 * magic; KVT_ECORRUPT when the lengths are impossible; KVT_EFORMAT when another version's trailer
 * is longer than KVT__MAX_TRAILER_BYTES, so that it cannot be checked here. Works for every format
 * version.
 */
int kvt__tail_peek(const uint8_t *tail, uint64_t object_bytes, uint64_t *trailer_bytesp);
/*
 * Checks and parses a whole trailer of `bytes` bytes, the end of an object of object_bytes: 0,
 * KVT_EFOREIGN (no magic), KVT_ECORRUPT (checksum or structure), KVT_EFORMAT (unknown version,
 * checksum right). Sets the detail on failure.
 */
int kvt__trailer_parse(const uint8_t *trailer, uint64_t bytes, uint64_t object_bytes,
		       struct kvt__trailer *out);
/* Whether a whole trailer of at least 64 bytes fails its own checksum: what proves it corrupt, as
 * impossible contents under a right checksum do not. */
bool kvt__trailer_checksum_fails(const uint8_t *trailer, uint64_t bytes);
static inline bool kvt__trailer_has(const struct kvt__trailer *t, uint32_t slot)
{
	return t->presence[slot / 8] >> (slot % 8) & 1;
}
static inline uint64_t kvt__trailer_ref_bytes(const struct kvt__trailer *t, uint32_t ref)
{
	return kvt__get_u32(t->refs + 8 * (size_t)ref) |
	       (uint64_t)kvt__get_u32(t->refs + 8 * (size_t)ref + 4) << 32;
}
/* Compares namespace digest, rank, key and geometry: 0, or KVT_EMISMATCH with the first difference
 * in the detail. */
int kvt__trailer_compare(const struct kvt__trailer *t, const struct kvt__geometry *geometry,
			 const struct kvt__identity *identity);

#endif
