/* SPDX-License-Identifier: Apache-2.0 */
/* One chunk in a fake store, next to a model of what the object has to be. */
#ifndef KVT_TESTS_CHUNK_SCENE_H
#define KVT_TESTS_CHUNK_SCENE_H

#include "support.h"

#include "fake_backend.h"
#include "object_model.h"

struct chunk_shape {
	uint32_t blocks_per_chunk, refs;
	uint64_t ref_bytes[TEST_MAX_REFS];
};

struct chunk_scene {
	struct fake_store *fake;
	struct test_bed bed;
	struct chunk_shape shape;
	uint64_t key_seed;
	char name[KVT_NAME_BYTES];
	struct model_object model;
};

/* Prepares; what differs from the defaults is set between init and open. */
void chunk_scene_init(struct chunk_scene *scene, const struct fake_config *config,
		      const struct chunk_shape *shape);
void chunk_scene_open(struct chunk_scene *scene);
/* Also asserts that the core kept the promises of backend.h and left no object in parts behind. */
void chunk_scene_close(struct chunk_scene *scene);
/* Goes on with another chunk, whose model is empty. */
void chunk_scene_next(struct chunk_scene *scene);

/* Blocks first to first + count - 1 of the chunk, with bytes made from `salt`. */
void chunk_transfer(const struct chunk_scene *scene, struct test_transfer *t, uint32_t first,
		    uint32_t count, uint64_t salt);
/* The same in the model: ours wins. */
void chunk_model_set(struct chunk_scene *scene, uint32_t first, uint32_t count, uint64_t salt);
/* Whether the model has every slot of these blocks. */
bool chunk_model_has(const struct chunk_scene *scene, uint32_t first, uint32_t count);
/* Stores such blocks and asserts the status; the model is left alone. */
void chunk_store(struct chunk_scene *scene, uint32_t first, uint32_t count, uint64_t salt,
		 uint32_t status);
/* Loads such blocks; status LOADED: asserts that they are those of `salt`. */
void chunk_load(struct chunk_scene *scene, uint32_t first, uint32_t count, uint64_t salt,
		uint32_t status, int error);
/* Writes the model's object behind the core's back. */
void chunk_plant(struct chunk_scene *scene);
/* Asserts that the object is the model's, byte for byte. */
void chunk_compare(struct chunk_scene *scene);

#endif
