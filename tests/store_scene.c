/* SPDX-License-Identifier: Apache-2.0 */
/* See store_scene.h. */
#include "store_scene.h"

#include <stdlib.h>
#include <string.h>

void store_scene_open(struct store_scene *scene, const struct fake_config *config)
{
	struct kvt_store_options options = KVT_INIT(options);

	memset(scene, 0, sizeof(*scene));
	scene->fake = fake_store_create(config);
	options.uri = fake_store_uri(scene->fake);
	options.namespace_name = "ns";
	options.mode = KVT_MODE_EXACT;
	options.rank = 1;
	assert_ok(kvt_store_open(&options, &scene->store));
	scene->info.struct_size = sizeof(scene->info);
	assert_ok(kvt_store_get_info(scene->store, &scene->info));
}

void store_scene_close(struct store_scene *scene)
{
	assert_ok(kvt_store_close(scene->store));
	if (fake_violation(scene->fake))
		fail_msg("%s", fake_violation(scene->fake));
	assert_int_equal(fake_sessions(scene->fake), 0);
	assert_int_equal(fake_open_handles(scene->fake), 0);
	fake_store_destroy(scene->fake);
}

struct kvt_key store_scene_key(uint64_t number)
{
	static uint8_t hashes[64][32];
	uint8_t *hash = hashes[number % 64];

	test_hash(hash, 32, 5, 3, number);
	return (struct kvt_key){hash, 32, 3};
}

char *store_scene_name(const struct store_scene *scene, uint64_t number)
{
	struct kvt_key key = store_scene_key(number);
	char *name = malloc(KVT_NAME_BYTES);

	assert_non_null(name);
	assert_true(kvt_store_object_name(scene->store, &key, name, KVT_NAME_BYTES) > 0);
	return name;
}

void store_scene_slot(struct model_object *model, uint32_t ref, uint32_t slot)
{
	test_fill(model->payload + model_slot_offset(model, ref, slot), model->ref_bytes[ref],
		  ref * 1000 + slot + model->hash[0]);
	model->present[ref * model->blocks_per_chunk + slot] = true;
}

void store_scene_model(const struct store_scene *scene, struct model_object *model, uint64_t number,
		       uint32_t blocks_per_chunk, uint32_t refs, const uint64_t *ref_bytes,
		       bool whole)
{
	struct kvt_key key = store_scene_key(number);

	model_init(model, blocks_per_chunk, refs, ref_bytes);
	memcpy(model->hash, key.hash, key.hash_bytes);
	model->hash_bytes = key.hash_bytes;
	model->group = key.group;
	model->rank = scene->info.rank;
	memcpy(model->digest, scene->info.namespace_digest, sizeof(model->digest));
	for (uint32_t r = 0; whole && r < refs; r++)
		for (uint32_t s = 0; s < blocks_per_chunk; s++)
			store_scene_slot(model, r, s);
}

size_t store_scene_plant(struct store_scene *scene, const struct model_object *model,
			 uint64_t number)
{
	char *name = store_scene_name(scene, number);
	size_t bytes;
	uint8_t *object = model_write(model, &bytes);

	fake_object_put(scene->fake, name, object, bytes);
	free(object);
	free(name);
	return bytes;
}

size_t store_scene_plant_row(struct store_scene *scene, uint64_t number, uint64_t row_bytes)
{
	struct model_object model;
	size_t bytes;

	store_scene_model(scene, &model, number, 1, 1, &row_bytes, true);
	bytes = store_scene_plant(scene, &model, number);
	model_fini(&model);
	return bytes;
}
