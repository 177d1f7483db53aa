/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as the end of an object. What is accepted is exactly what sealing the same geometry,
 * key and presence writes.
 *
 * The first byte says what is put right beforehand, so that damage is found behind the checksum
 * too: bit 0 the object's length, bit 1 the checksum, bit 2 the padding (the input has none; it is
 * inserted as the tail's trailer_bytes says).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvtier/error.h>

#include "crc32c.h"
#include "format.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MAX_PADDED_BYTES 65536u

static void expect(bool holds, const char *what)
{
	if (!holds) {
		fprintf(stderr, "trailer: %s: %s\n", what, kvt_error_detail());
		abort();
	}
}

static uint64_t get_u64(const uint8_t *at)
{
	return kvt__get_u32(at) | (uint64_t)kvt__get_u32(at + 4) << 32;
}

static void check_accepted(const uint8_t *bytes, size_t size, uint64_t object_bytes,
			   const struct kvt__trailer *trailer)
{
	uint64_t *ref_bytes = calloc(trailer->ref_count + 1, sizeof(*ref_bytes));
	uint32_t hash_bytes = trailer->key_bytes - 4;
	const uint8_t *group = trailer->key + hash_bytes;
	struct kvt__geometry geometry = {trailer->blocks_per_chunk, trailer->ref_count, ref_bytes};
	const struct kvt__identity identity = {
		.hash = trailer->key,
		.hash_bytes = hash_bytes,
		.group = (uint32_t)group[0] << 24 | (uint32_t)group[1] << 16 |
			 (uint32_t)group[2] << 8 | group[3],
		.rank = trailer->rank,
		.digest = trailer->digest,
	};
	struct kvt__layout layout;
	uint8_t *again;

	if (!ref_bytes)
		return;
	for (uint32_t d = 0; d < trailer->ref_count; d++)
		ref_bytes[d] = kvt__trailer_ref_bytes(trailer, d);
	expect(kvt__layout_init(&layout, &geometry, hash_bytes) == 0, "a limit");
	expect(layout.payload_bytes == trailer->payload_bytes, "payload_bytes");
	expect(layout.trailer_bytes + (trailer->partial ? KVT__PAGE_BYTES : 0) == size, "length");
	expect(layout.payload_bytes + size == object_bytes, "length of the object");
	expect(kvt__trailer_compare(trailer, &geometry, &identity) == 0, "compare");
	again = malloc(size);
	if (again) {
		memset(again, 0x5a, size);
		memcpy(again, bytes, layout.refs_at);
		kvt__trailer_seal(again, &layout, &geometry, &identity, trailer->partial);
		expect(memcmp(again, bytes, size) == 0, "sealed again, other bytes");
	}
	free(again);
	free(ref_bytes);
}

/* The input with padding before its tail; exactly as long as it is. */
static uint8_t *pad(const uint8_t *data, size_t size, size_t *paddedp)
{
	uint64_t wanted = size;
	size_t head;
	uint8_t *padded;

	if (size >= KVT__TAIL_BYTES)
		wanted = get_u64(data + size - KVT__TAIL_BYTES + 40);
	if (wanted < size || wanted > MAX_PADDED_BYTES)
		wanted = size;
	padded = calloc(1, wanted ? wanted : 1);
	if (!padded)
		abort();
	head = size < KVT__TAIL_BYTES ? size : size - KVT__TAIL_BYTES;
	memcpy(padded, data, head);
	memcpy(padded + wanted - (size - head), data + head, size - head);
	*paddedp = wanted;
	return padded;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct kvt__trailer trailer;
	uint64_t object_bytes, peeked;
	uint8_t *bytes;
	int error;

	if (size < 1)
		return 0;
	if (data[0] & 4) {
		bytes = pad(data + 1, size - 1, &size);
	} else {
		bytes = malloc(size);
		if (!bytes)
			abort();
		memcpy(bytes, data + 1, --size);
	}
	object_bytes = size;
	if (size >= KVT__TAIL_BYTES) {
		uint8_t *tail = bytes + size - KVT__TAIL_BYTES;
		if (data[0] & 1)
			object_bytes += get_u64(tail + 32);
		if (data[0] & 2) {
			kvt__put_u32(tail + 56, 0);
			kvt__put_u32(tail + 56, kvt__crc32c(0, bytes, size));
		}
		error = kvt__tail_peek(tail, object_bytes, &peeked);
		expect(error == 0 || peeked == 0, "peeked");
		expect(error || (peeked >= KVT__TAIL_BYTES && peeked <= object_bytes), "peeked");
	}
	error = kvt__trailer_parse(bytes, size, object_bytes, &trailer);
	if (!error)
		check_accepted(bytes, size, object_bytes, &trailer);
	expect(error == 0 || error == KVT_EFOREIGN || error == KVT_ECORRUPT || error == KVT_EFORMAT,
	       "code");
	expect(error == 0 || kvt_error_detail()[0], "detail");
	free(bytes);
	return 0;
}
