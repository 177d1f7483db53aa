/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The object format, kvtier-format(5): limits and offsets from a geometry, writing a trailer,
 * checking one that was read. Everything is little-endian and read bytewise but for the key's
 * group, which is big-endian as in vLLM's keys. Pure: any thread.
 *
 * Nothing that comes from an object is trusted: every length is checked against the buffer and the
 * object before it is used, in 64 bits and without overflow.
 */
#include "format.h"

#include <string.h>

#include <kvtier/error.h>

#include "crc32c.h"
#include "env.h"

/* Fields of the tail. Magic, version, payload bytes, trailer bytes and checksum keep their places
 * in every version. */
enum {
	TAIL_MAGIC = 0,
	TAIL_VERSION = 8,
	TAIL_FLAGS = 10,
	TAIL_KEY_BYTES = 12,
	TAIL_BLOCKS_PER_CHUNK = 16,
	TAIL_REFS = 20,
	TAIL_SLOTS = 24,
	TAIL_RANK = 28,
	TAIL_PAYLOAD_BYTES = 32,
	TAIL_TRAILER_BYTES = 40,
	TAIL_DIGEST = 48,
	TAIL_CRC = 56,
	TAIL_RESERVED = 60,
};

#define MAGIC	     "KVTIER1\n"
#define MAGIC_BYTES  8u
#define FLAG_PARTIAL 1u
#define GROUP_BYTES  4u
#define MIN_HASH     1u
#define MAX_HASH     64u

static void put_u16(uint8_t *at, uint16_t v)
{
	at[0] = (uint8_t)v;
	at[1] = (uint8_t)(v >> 8);
}

static uint16_t get_u16(const uint8_t *at)
{
	return (uint16_t)(at[0] | at[1] << 8);
}

static void put_u64(uint8_t *at, uint64_t v)
{
	kvt__put_u32(at, (uint32_t)v);
	kvt__put_u32(at + 4, (uint32_t)(v >> 32));
}

static uint64_t get_u64(const uint8_t *at)
{
	return kvt__get_u32(at) | (uint64_t)kvt__get_u32(at + 4) << 32;
}

static void put_group(uint8_t *at, uint32_t group)
{
	at[0] = (uint8_t)(group >> 24);
	at[1] = (uint8_t)(group >> 16);
	at[2] = (uint8_t)(group >> 8);
	at[3] = (uint8_t)group;
}

static uint32_t get_group(const uint8_t *at)
{
	return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static bool all_zero(const uint8_t *at, uint64_t bytes)
{
	return bytes == 0 || (at[0] == 0 && memcmp(at, at + 1, bytes - 1) == 0);
}

/* The bits of the last presence byte that stand for slots; all of them when it is full. */
static uint8_t last_presence_mask(uint32_t slot_count)
{
	return slot_count % 8 ? (uint8_t)((1u << slot_count % 8) - 1) : 0xff;
}

/* Lays out a chunk whose limits have been checked. */
static void place(struct kvt__layout *layout, uint32_t slot_count, uint32_t ref_count,
		  uint32_t key_bytes, uint64_t payload_bytes)
{
	uint64_t end;

	layout->slot_count = slot_count;
	layout->key_bytes = key_bytes;
	layout->payload_bytes = payload_bytes;
	layout->table_at = 0;
	layout->presence_at = 4 * (uint64_t)slot_count;
	layout->presence_bytes = ((uint64_t)slot_count + 7) / 8;
	layout->refs_at = layout->presence_at + layout->presence_bytes;
	layout->key_at = layout->refs_at + 8 * (uint64_t)ref_count;
	end = payload_bytes + layout->key_at + key_bytes + KVT__TAIL_BYTES;
	layout->object_bytes = (end + KVT__PAGE_BYTES - 1) / KVT__PAGE_BYTES * KVT__PAGE_BYTES;
	layout->trailer_bytes = layout->object_bytes - payload_bytes;
}

int kvt__layout_init(struct kvt__layout *layout, const struct kvt__geometry *geometry,
		     uint32_t hash_bytes)
{
	uint64_t blocks = geometry->blocks_per_chunk, slots, sum = 0;

	memset(layout, 0, sizeof(*layout));
	if (hash_bytes < MIN_HASH || hash_bytes > MAX_HASH)
		return kvt__fail(KVT_EINVAL, "key: %u hash bytes, expected %u to %u", hash_bytes,
				 MIN_HASH, MAX_HASH);
	if (blocks == 0)
		return kvt__fail(KVT_EINVAL, "blocks_per_chunk is 0, expected at least 1");
	if (geometry->ref_count > KVT__MAX_SLOTS)
		return kvt__fail(KVT_EINVAL, "ref_count is %u, expected at most %u",
				 geometry->ref_count, KVT__MAX_SLOTS);
	slots = blocks * geometry->ref_count;
	if (slots > KVT__MAX_SLOTS)
		return kvt__fail(KVT_EINVAL,
				 "%llu slots (%llu blocks_per_chunk of %u refs), expected at most "
				 "%u",
				 (unsigned long long)slots, (unsigned long long)blocks,
				 geometry->ref_count, KVT__MAX_SLOTS);
	for (uint32_t d = 0; d < geometry->ref_count; d++) {
		uint64_t bytes = geometry->ref_bytes[d];
		if (bytes == 0)
			return kvt__fail(KVT_EINVAL, "ref_bytes[%u] is 0, expected at least 1", d);
		/* Both are at most 2^46 here, so the sum cannot overflow. */
		if (bytes > KVT__MAX_PAYLOAD_BYTES ||
		    (sum += bytes) > KVT__MAX_PAYLOAD_BYTES / blocks)
			return kvt__fail(KVT_EINVAL,
					 "ref_bytes[%u] is %llu: the payload of %llu blocks would "
					 "pass %llu bytes",
					 d, (unsigned long long)bytes, (unsigned long long)blocks,
					 (unsigned long long)KVT__MAX_PAYLOAD_BYTES);
	}
	place(layout, (uint32_t)slots, geometry->ref_count, hash_bytes + GROUP_BYTES, blocks * sum);
	return 0;
}

/* The checksum of a trailer with its own field as zero. The `zero_bytes` bytes before its tail are
 * known to be zero, and are not read. */
static uint32_t trailer_crc(const uint8_t *trailer, uint64_t bytes, uint64_t zero_bytes)
{
	const uint8_t *tail = trailer + bytes - KVT__TAIL_BYTES;
	uint32_t crc = kvt__crc32c(0, trailer, bytes - KVT__TAIL_BYTES - zero_bytes);

	crc = kvt__crc32c_zeros(crc, zero_bytes);
	crc = kvt__crc32c(crc, tail, TAIL_CRC);
	crc = kvt__crc32c(crc, "\0\0\0", 4);
	return kvt__crc32c(crc, tail + TAIL_RESERVED, KVT__TAIL_BYTES - TAIL_RESERVED);
}

void kvt__trailer_seal(uint8_t *trailer, const struct kvt__layout *layout,
		       const struct kvt__geometry *geometry, const struct kvt__identity *identity,
		       bool partial)
{
	uint64_t bytes = layout->trailer_bytes + (partial ? KVT__PAGE_BYTES : 0);
	uint8_t *tail = trailer + bytes - KVT__TAIL_BYTES;
	uint8_t *key = trailer + layout->key_at, *padding = key + layout->key_bytes;

	for (uint32_t d = 0; d < geometry->ref_count; d++)
		put_u64(trailer + layout->refs_at + 8 * (uint64_t)d, geometry->ref_bytes[d]);
	memcpy(key, identity->hash, identity->hash_bytes);
	put_group(key + identity->hash_bytes, identity->group);
	memset(padding, 0, (size_t)(tail - padding));

	memcpy(tail + TAIL_MAGIC, MAGIC, MAGIC_BYTES);
	put_u16(tail + TAIL_VERSION, KVT__FORMAT_VERSION);
	put_u16(tail + TAIL_FLAGS, partial ? FLAG_PARTIAL : 0);
	kvt__put_u32(tail + TAIL_KEY_BYTES, layout->key_bytes);
	kvt__put_u32(tail + TAIL_BLOCKS_PER_CHUNK, geometry->blocks_per_chunk);
	kvt__put_u32(tail + TAIL_REFS, geometry->ref_count);
	kvt__put_u32(tail + TAIL_SLOTS, layout->slot_count);
	kvt__put_u32(tail + TAIL_RANK, identity->rank);
	put_u64(tail + TAIL_PAYLOAD_BYTES, layout->payload_bytes);
	put_u64(tail + TAIL_TRAILER_BYTES, bytes);
	memcpy(tail + TAIL_DIGEST, identity->digest, 8);
	kvt__put_u32(tail + TAIL_RESERVED, 0);
	kvt__put_u32(tail + TAIL_CRC, trailer_crc(trailer, bytes, (uint64_t)(tail - padding)));
}

void kvt__presence_all(uint8_t *trailer, const struct kvt__layout *layout)
{
	uint8_t *presence = trailer + layout->presence_at;

	if (layout->slot_count == 0)
		return;
	memset(presence, 0xff, layout->presence_bytes);
	presence[layout->presence_bytes - 1] = last_presence_mask(layout->slot_count);
}

static int corrupt(const char *what, uint64_t found, uint64_t expected)
{
	return kvt__fail(KVT_ECORRUPT, "trailer: %s is %llu, expected %llu", what,
			 (unsigned long long)found, (unsigned long long)expected);
}

int kvt__tail_peek(const uint8_t *tail, uint64_t object_bytes, uint64_t *trailer_bytesp)
{
	uint64_t payload_bytes, trailer_bytes;
	uint16_t version;

	*trailer_bytesp = 0;
	if (object_bytes < KVT__TAIL_BYTES)
		return kvt__fail(KVT_EFOREIGN,
				 "object of %llu bytes: no trailer, which has at least %u",
				 (unsigned long long)object_bytes, KVT__TAIL_BYTES);
	if (memcmp(tail + TAIL_MAGIC, MAGIC, MAGIC_BYTES) != 0)
		return kvt__fail(KVT_EFOREIGN, "object of %llu bytes: no trailer of ours",
				 (unsigned long long)object_bytes);
	version = get_u16(tail + TAIL_VERSION);
	payload_bytes = get_u64(tail + TAIL_PAYLOAD_BYTES);
	trailer_bytes = get_u64(tail + TAIL_TRAILER_BYTES);
	if (trailer_bytes < KVT__TAIL_BYTES || trailer_bytes > object_bytes)
		return kvt__fail(KVT_ECORRUPT,
				 "trailer: trailer_bytes is %llu, expected %u to %llu",
				 (unsigned long long)trailer_bytes, KVT__TAIL_BYTES,
				 (unsigned long long)object_bytes);
	if (payload_bytes != object_bytes - trailer_bytes)
		return corrupt("payload_bytes", payload_bytes, object_bytes - trailer_bytes);
	if (trailer_bytes > KVT__MAX_TRAILER_BYTES) {
		/* Too long to be read and checked. Another version may allow it. */
		if (version != KVT__FORMAT_VERSION)
			return kvt__fail(KVT_EFORMAT, "trailer: format version %u, expected %u",
					 version, KVT__FORMAT_VERSION);
		return kvt__fail(KVT_ECORRUPT,
				 "trailer: trailer_bytes is %llu, expected at most %llu",
				 (unsigned long long)trailer_bytes,
				 (unsigned long long)KVT__MAX_TRAILER_BYTES);
	}
	*trailer_bytesp = trailer_bytes;
	return 0;
}

/* Counts of the tail against the limits and each other. What they say is not used before. */
static int check_counts(const uint8_t *tail, struct kvt__trailer *out)
{
	uint16_t flags = get_u16(tail + TAIL_FLAGS);
	uint64_t slots;

	if (flags & ~FLAG_PARTIAL)
		return kvt__fail(KVT_ECORRUPT, "trailer: flags are 0x%04x, expected 0 or 1", flags);
	if (kvt__get_u32(tail + TAIL_RESERVED) != 0)
		return corrupt("reserved", kvt__get_u32(tail + TAIL_RESERVED), 0);
	out->partial = flags & FLAG_PARTIAL;
	out->key_bytes = kvt__get_u32(tail + TAIL_KEY_BYTES);
	out->blocks_per_chunk = kvt__get_u32(tail + TAIL_BLOCKS_PER_CHUNK);
	out->ref_count = kvt__get_u32(tail + TAIL_REFS);
	out->slot_count = kvt__get_u32(tail + TAIL_SLOTS);
	out->rank = kvt__get_u32(tail + TAIL_RANK);
	out->payload_bytes = get_u64(tail + TAIL_PAYLOAD_BYTES);
	out->trailer_bytes = get_u64(tail + TAIL_TRAILER_BYTES);
	memcpy(out->digest, tail + TAIL_DIGEST, sizeof(out->digest));
	if (out->key_bytes < MIN_HASH + GROUP_BYTES || out->key_bytes > MAX_HASH + GROUP_BYTES)
		return kvt__fail(KVT_ECORRUPT, "trailer: key_bytes is %u, expected %u to %u",
				 out->key_bytes, MIN_HASH + GROUP_BYTES, MAX_HASH + GROUP_BYTES);
	if (out->blocks_per_chunk == 0)
		return kvt__fail(KVT_ECORRUPT,
				 "trailer: blocks_per_chunk is 0, expected at least 1");
	if (out->ref_count > KVT__MAX_SLOTS)
		return kvt__fail(KVT_ECORRUPT, "trailer: nrefs is %u, expected at most %u",
				 out->ref_count, KVT__MAX_SLOTS);
	slots = (uint64_t)out->blocks_per_chunk * out->ref_count;
	if (slots > KVT__MAX_SLOTS)
		return kvt__fail(KVT_ECORRUPT,
				 "trailer: blocks_per_chunk times nrefs is %llu, expected at most "
				 "%u",
				 (unsigned long long)slots, KVT__MAX_SLOTS);
	if (out->slot_count != slots)
		return corrupt("nslots", out->slot_count, slots);
	if (out->payload_bytes > KVT__MAX_PAYLOAD_BYTES)
		return kvt__fail(KVT_ECORRUPT,
				 "trailer: payload_bytes is %llu, expected at most %llu",
				 (unsigned long long)out->payload_bytes,
				 (unsigned long long)KVT__MAX_PAYLOAD_BYTES);
	return 0;
}

/* Whether the ref sizes give the payload's length. */
static int check_refs(const struct kvt__trailer *t)
{
	uint64_t sum = 0, limit = KVT__MAX_PAYLOAD_BYTES / t->blocks_per_chunk;

	for (uint32_t d = 0; d < t->ref_count; d++) {
		uint64_t bytes = kvt__trailer_ref_bytes(t, d);
		if (bytes == 0 || bytes > KVT__MAX_PAYLOAD_BYTES || (sum += bytes) > limit)
			return kvt__fail(KVT_ECORRUPT,
					 "trailer: size of ref %u is %llu, expected at least 1 and "
					 "a payload of at most %llu",
					 d, (unsigned long long)bytes,
					 (unsigned long long)KVT__MAX_PAYLOAD_BYTES);
	}
	if (sum * t->blocks_per_chunk != t->payload_bytes)
		return corrupt("payload_bytes", t->payload_bytes, sum * t->blocks_per_chunk);
	return 0;
}

/* High bits, the flag, and that absent slots have no checksum. */
static int check_presence(const struct kvt__trailer *t)
{
	uint64_t bytes = ((uint64_t)t->slot_count + 7) / 8, present = 0;

	if (bytes > 0 && t->presence[bytes - 1] & ~last_presence_mask(t->slot_count))
		return kvt__fail(KVT_ECORRUPT,
				 "trailer: last presence byte is 0x%02x, expected no bit beyond "
				 "slot %u",
				 t->presence[bytes - 1], t->slot_count - 1);
	for (uint64_t i = 0; i < bytes; i++)
		present += (uint64_t)__builtin_popcount(t->presence[i]);
	if (t->partial != (present < t->slot_count))
		return kvt__fail(KVT_ECORRUPT,
				 "trailer: partial flag is %d, with %llu of %u slots present",
				 t->partial, (unsigned long long)present, t->slot_count);
	for (uint32_t s = 0; t->partial && s < t->slot_count; s++) {
		uint32_t crc = kvt__get_u32(t->table + 4 * (size_t)s);
		if (!kvt__trailer_has(t, s) && crc != 0)
			return kvt__fail(KVT_ECORRUPT,
					 "trailer: absent slot %u has checksum 0x%08x, expected 0",
					 s, crc);
	}
	return 0;
}

int kvt__trailer_parse(const uint8_t *trailer, uint64_t bytes, uint64_t object_bytes,
		       struct kvt__trailer *out)
{
	const uint8_t *tail;
	struct kvt__layout layout;
	uint64_t trailer_bytes, padding_at;
	uint32_t crc, computed;
	int error;

	memset(out, 0, sizeof(*out));
	if (bytes < KVT__TAIL_BYTES)
		return kvt__fail(KVT_EFOREIGN, "trailer of %llu bytes: expected at least %u",
				 (unsigned long long)bytes, KVT__TAIL_BYTES);
	tail = trailer + bytes - KVT__TAIL_BYTES;
	error = kvt__tail_peek(tail, object_bytes, &trailer_bytes);
	if (error)
		return error;
	if (trailer_bytes != bytes)
		return corrupt("trailer_bytes", trailer_bytes, bytes);
	crc = kvt__get_u32(tail + TAIL_CRC);
	computed = trailer_crc(trailer, bytes, 0);
	if (crc != computed)
		return kvt__fail(KVT_ECORRUPT, "trailer: checksum is 0x%08x, computed 0x%08x", crc,
				 computed);
	out->version = get_u16(tail + TAIL_VERSION);
	if (out->version != KVT__FORMAT_VERSION)
		return kvt__fail(KVT_EFORMAT, "trailer: format version %u, expected %u",
				 out->version, KVT__FORMAT_VERSION);
	error = check_counts(tail, out);
	if (error)
		return error;
	place(&layout, out->slot_count, out->ref_count, out->key_bytes, out->payload_bytes);
	if (out->partial)
		layout.trailer_bytes += KVT__PAGE_BYTES;
	if (layout.trailer_bytes != bytes)
		return corrupt("trailer_bytes", bytes, layout.trailer_bytes);
	out->table = trailer;
	out->presence = trailer + layout.presence_at;
	out->refs = trailer + layout.refs_at;
	out->key = trailer + layout.key_at;
	error = check_refs(out);
	if (error)
		return error;
	padding_at = layout.key_at + layout.key_bytes;
	if (!all_zero(trailer + padding_at, bytes - KVT__TAIL_BYTES - padding_at))
		return kvt__fail(KVT_ECORRUPT,
				 "trailer: padding is not zero, expected zeros from "
				 "its byte %llu on",
				 (unsigned long long)padding_at);
	return check_presence(out);
}

/* Digest and key, both short, as hex for a message. */
static const char *hex(char *text, const uint8_t *bytes, uint32_t count)
{
	static const char digits[] = "0123456789abcdef";

	for (uint32_t i = 0; i < count; i++) {
		text[2 * i] = digits[bytes[i] >> 4];
		text[2 * i + 1] = digits[bytes[i] & 15];
	}
	text[2 * count] = '\0';
	return text;
}

int kvt__trailer_compare(const struct kvt__trailer *t, const struct kvt__geometry *geometry,
			 const struct kvt__identity *identity)
{
	uint32_t hash_bytes = t->key_bytes - GROUP_BYTES;
	char found[2 * MAX_HASH + 1], wanted[2 * MAX_HASH + 1];

	if (memcmp(t->digest, identity->digest, sizeof(t->digest)) != 0)
		return kvt__fail(KVT_EMISMATCH, "object of namespace digest %s, expected %s",
				 hex(found, t->digest, 8), hex(wanted, identity->digest, 8));
	if (t->rank != identity->rank)
		return kvt__fail(KVT_EMISMATCH, "object of rank %u, expected %u", t->rank,
				 identity->rank);
	if (hash_bytes != identity->hash_bytes || memcmp(t->key, identity->hash, hash_bytes) != 0)
		return kvt__fail(KVT_EMISMATCH, "object of hash %s, expected %s",
				 hex(found, t->key, hash_bytes),
				 hex(wanted, identity->hash, identity->hash_bytes));
	if (get_group(t->key + hash_bytes) != identity->group)
		return kvt__fail(KVT_EMISMATCH, "object of group %u, expected %u",
				 get_group(t->key + hash_bytes), identity->group);
	if (t->blocks_per_chunk != geometry->blocks_per_chunk)
		return kvt__fail(KVT_EMISMATCH, "object of %u blocks per chunk, expected %u",
				 t->blocks_per_chunk, geometry->blocks_per_chunk);
	if (t->ref_count != geometry->ref_count)
		return kvt__fail(KVT_EMISMATCH, "object of %u refs, expected %u", t->ref_count,
				 geometry->ref_count);
	for (uint32_t d = 0; d < t->ref_count; d++) {
		if (kvt__trailer_ref_bytes(t, d) != geometry->ref_bytes[d])
			return kvt__fail(KVT_EMISMATCH,
					 "object with %llu bytes for a block of ref %u, expected "
					 "%llu",
					 (unsigned long long)kvt__trailer_ref_bytes(t, d), d,
					 (unsigned long long)geometry->ref_bytes[d]);
	}
	return 0;
}

bool kvt__trailer_checksum_fails(const uint8_t *trailer, uint64_t bytes)
{
	return kvt__get_u32(trailer + bytes - KVT__TAIL_BYTES + TAIL_CRC) !=
	       trailer_crc(trailer, bytes, 0);
}
