/* SPDX-License-Identifier: Apache-2.0 */
/* See object_model.h. Plain and slow on purpose. */
#include "object_model.h"

#include <stdlib.h>
#include <string.h>

uint32_t model_crc32c(const void *data, size_t bytes)
{
	const uint8_t *p = data;
	uint32_t crc = 0xFFFFFFFF;
	static uint32_t table[256];

	if (!table[1])
		for (uint32_t i = 0; i < 256; i++) {
			uint32_t v = i;
			for (int bit = 0; bit < 8; bit++)
				v = v & 1 ? v >> 1 ^ 0x82F63B78 : v >> 1;
			table[i] = v;
		}
	while (bytes--)
		crc = crc >> 8 ^ table[(crc ^ *p++) & 0xFF];
	return crc ^ 0xFFFFFFFF;
}

static void put(uint8_t *at, uint64_t value, int bytes)
{
	for (int i = 0; i < bytes; i++)
		at[i] = (uint8_t)(value >> 8 * i);
}

void model_put_u16(uint8_t *at, uint16_t value)
{
	put(at, value, 2);
}

void model_put_u32(uint8_t *at, uint32_t value)
{
	put(at, value, 4);
}

void model_put_u64(uint8_t *at, uint64_t value)
{
	put(at, value, 8);
}

void model_init(struct model_object *model, uint32_t blocks_per_chunk, uint32_t refs,
		const uint64_t *ref_bytes)
{
	memset(model, 0, sizeof(*model));
	model->blocks_per_chunk = blocks_per_chunk;
	model->refs = refs;
	for (uint32_t r = 0; r < refs; r++)
		model->ref_bytes[r] = ref_bytes[r];
	model->payload = calloc(1, model_payload_bytes(model) + 1);
	if (!model->payload)
		abort();
}

void model_fini(struct model_object *model)
{
	free(model->payload);
	model->payload = NULL;
}

uint64_t model_payload_bytes(const struct model_object *model)
{
	return model_slot_offset(model, model->refs, 0);
}

uint64_t model_slot_offset(const struct model_object *model, uint32_t ref, uint32_t slot)
{
	uint64_t offset = 0;

	for (uint32_t r = 0; r < ref; r++)
		offset += model->blocks_per_chunk * model->ref_bytes[r];
	return ref < model->refs ? offset + slot * model->ref_bytes[ref] : offset;
}

bool model_is_partial(const struct model_object *model)
{
	for (uint32_t s = 0; s < model->blocks_per_chunk * model->refs; s++)
		if (!model->present[s])
			return true;
	return false;
}

uint64_t model_whole_bytes(const struct model_object *model)
{
	uint64_t slots = (uint64_t)model->blocks_per_chunk * model->refs;
	uint64_t bytes = model_payload_bytes(model) + 4 * slots + (slots + 7) / 8 +
			 8 * (uint64_t)model->refs + model->hash_bytes + 4 + 64;

	return (bytes + 4095) / 4096 * 4096;
}

uint8_t *model_write(const struct model_object *model, size_t *bytesp)
{
	bool partial = model_is_partial(model);
	uint64_t payload = model_payload_bytes(model);
	uint64_t bytes = model_whole_bytes(model) + (partial ? 4096 : 0);
	uint32_t slots = model->blocks_per_chunk * model->refs;
	uint8_t *object = calloc(1, bytes);

	if (!object)
		abort();
	memcpy(object, model->payload, payload);
	uint8_t *table = object + payload, *presence = table + 4 * (size_t)slots;
	for (uint32_t r = 0; r < model->refs; r++)
		for (uint32_t s = 0; s < model->blocks_per_chunk; s++) {
			uint32_t slot = r * model->blocks_per_chunk + s;
			if (!model->present[slot])
				continue;
			put(table + 4 * (size_t)slot,
			    model_crc32c(object + model_slot_offset(model, r, s),
					 model->ref_bytes[r]),
			    4);
			presence[slot / 8] |= (uint8_t)(1 << slot % 8);
		}
	uint8_t *refs = presence + (slots + 7) / 8;
	for (uint32_t r = 0; r < model->refs; r++)
		put(refs + 8 * (size_t)r, model->ref_bytes[r], 8);
	uint8_t *key = refs + 8 * (size_t)model->refs;
	memcpy(key, model->hash, model->hash_bytes);
	for (int i = 0; i < 4; i++)
		key[model->hash_bytes + i] = (uint8_t)(model->group >> (24 - 8 * i));
	uint8_t *tail = object + bytes - 64;
	memcpy(tail, "KVTIER1\n", 8);
	put(tail + 8, 1, 2);
	put(tail + 10, partial, 2);
	put(tail + 12, model->hash_bytes + 4, 4);
	put(tail + 16, model->blocks_per_chunk, 4);
	put(tail + 20, model->refs, 4);
	put(tail + 24, slots, 4);
	put(tail + 28, model->rank, 4);
	put(tail + 32, payload, 8);
	put(tail + 40, bytes - payload, 8);
	memcpy(tail + 48, model->digest, 8);
	model_reseal(object, bytes);
	*bytesp = bytes;
	return object;
}

void model_reseal(uint8_t *object, size_t bytes)
{
	uint8_t *tail = object + bytes - 64;
	uint64_t trailer = 0;

	for (int i = 7; i >= 0; i--)
		trailer = trailer << 8 | tail[40 + i];
	memset(tail + 56, 0, 4);
	put(tail + 56, model_crc32c(object + bytes - trailer, trailer), 4);
}
