/* SPDX-License-Identifier: Apache-2.0 */
/* A fake store, opened, and objects planted in it behind the core's back. */
#ifndef KVT_TESTS_STORE_SCENE_H
#define KVT_TESTS_STORE_SCENE_H

#include "support.h"

#include "fake_backend.h"
#include "object_model.h"

struct store_scene {
	struct fake_store *fake;
	struct kvt_store *store;
	struct kvt_store_info info;
};

/* Namespace "ns" used as it is, rank 1. `config` may be NULL. */
void store_scene_open(struct store_scene *scene, const struct fake_config *config);
/* Also asserts that the core kept the promises of backend.h and left no session open. */
void store_scene_close(struct store_scene *scene);

/* The key number `number`, whose hash lives until the next call for the same number modulo 64. */
struct kvt_key store_scene_key(uint64_t number);
/* The name of a key, newly allocated. */
char *store_scene_name(const struct store_scene *scene, uint64_t number);
/* A model for a key of this scene, with all slots filled when `whole`, else none present. */
void store_scene_model(const struct store_scene *scene, struct model_object *model, uint64_t number,
		       uint32_t blocks_per_chunk, uint32_t refs, const uint64_t *ref_bytes,
		       bool whole);
/* Fills and marks one slot. */
void store_scene_slot(struct model_object *model, uint32_t ref, uint32_t slot);
/* Writes the model's object under the name of a key; returns its length. */
size_t store_scene_plant(struct store_scene *scene, const struct model_object *model,
			 uint64_t number);
/* A whole object of F = 1 and one ref of this size. */
size_t store_scene_plant_row(struct store_scene *scene, uint64_t number, uint64_t bytes);

#endif
