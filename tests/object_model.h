/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The object format written down a second time, from its description alone: what the core writes
 * is compared with it, and what the core has to refuse is made with it. Shares no code with the
 * library.
 */
#ifndef KVT_TESTS_OBJECT_MODEL_H
#define KVT_TESTS_OBJECT_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MODEL_MAX_REFS	8
#define MODEL_MAX_SLOTS 512

struct model_object {
	uint32_t blocks_per_chunk, refs;
	uint64_t ref_bytes[MODEL_MAX_REFS];
	uint8_t hash[64];
	uint32_t hash_bytes, group, rank;
	uint8_t digest[8];
	bool present[MODEL_MAX_SLOTS]; /* ref-major */
	uint8_t *payload;	       /* owned; zero where nothing is present */
};

/* Sets the shape; no slot is present. Free the payload with model_fini. */
void model_init(struct model_object *model, uint32_t blocks_per_chunk, uint32_t refs,
		const uint64_t *ref_bytes);
void model_fini(struct model_object *model);

uint64_t model_payload_bytes(const struct model_object *model);
uint64_t model_slot_offset(const struct model_object *model, uint32_t ref, uint32_t slot);
/* Length of a whole object of this shape. */
uint64_t model_whole_bytes(const struct model_object *model);
bool model_is_partial(const struct model_object *model);
/* The object as bytes, newly allocated. */
uint8_t *model_write(const struct model_object *model, size_t *bytesp);

uint32_t model_crc32c(const void *data, size_t bytes);
/* Sets the tail's checksum after somebody changed an object's trailer. */
void model_reseal(uint8_t *object, size_t bytes);
void model_put_u16(uint8_t *at, uint16_t value);
void model_put_u32(uint8_t *at, uint32_t value);
void model_put_u64(uint8_t *at, uint64_t value);

#endif
