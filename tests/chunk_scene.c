/* SPDX-License-Identifier: Apache-2.0 */
/* See chunk_scene.h. */
#include "chunk_scene.h"

#include <stdlib.h>
#include <string.h>

void chunk_scene_init(struct chunk_scene *scene, const struct fake_config *config,
		      const struct chunk_shape *shape)
{
	memset(scene, 0, sizeof(*scene));
	scene->fake = fake_store_create(config);
	scene->shape = *shape;
	test_bed_init(&scene->bed);
}

static void set_key(struct chunk_scene *scene)
{
	struct test_transfer t;
	struct kvt_store_info info = KVT_INIT(info);

	model_fini(&scene->model);
	model_init(&scene->model, scene->shape.blocks_per_chunk, scene->shape.refs,
		   scene->shape.ref_bytes);
	chunk_transfer(scene, &t, 0, 1, 0);
	assert_true(kvt_store_object_name(scene->bed.store, &t.keys[0], scene->name,
					  sizeof(scene->name)) > 0);
	memcpy(scene->model.hash, t.keys[0].hash, t.keys[0].hash_bytes);
	scene->model.hash_bytes = t.keys[0].hash_bytes;
	scene->model.group = t.keys[0].group;
	test_transfer_fini(&t);
	assert_ok(kvt_store_get_info(scene->bed.store, &info));
	scene->model.rank = info.rank;
	memcpy(scene->model.digest, info.namespace_digest, 8);
}

void chunk_scene_open(struct chunk_scene *scene)
{
	test_bed_open(&scene->bed, fake_store_uri(scene->fake));
	scene->key_seed = 1;
	set_key(scene);
}

void chunk_scene_close(struct chunk_scene *scene)
{
	test_bed_close(&scene->bed);
	if (fake_violation(scene->fake))
		fail_msg("%s", fake_violation(scene->fake));
	assert_int_equal(fake_open_handles(scene->fake), 0);
	fake_store_destroy(scene->fake);
	model_fini(&scene->model);
}

void chunk_scene_next(struct chunk_scene *scene)
{
	scene->key_seed++;
	set_key(scene);
}

void chunk_transfer(const struct chunk_scene *scene, struct test_transfer *t, uint32_t first,
		    uint32_t count, uint64_t salt)
{
	struct test_group group = {count, first, scene->shape.refs, {0}};

	memcpy(group.ref_bytes, scene->shape.ref_bytes, sizeof(group.ref_bytes));
	test_transfer_init(t, scene->shape.blocks_per_chunk, &group, 1, scene->key_seed);
	t->salt = salt;
	test_transfer_fill(t);
}

void chunk_model_set(struct chunk_scene *scene, uint32_t first, uint32_t count, uint64_t salt)
{
	struct model_object *model = &scene->model;
	struct kvt_key key = {model->hash, model->hash_bytes, model->group};

	for (uint32_t r = 0; r < model->refs; r++)
		for (uint32_t s = first; s < first + count; s++) {
			model->present[r * model->blocks_per_chunk + s] = true;
			test_fill(model->payload + model_slot_offset(model, r, s),
				  model->ref_bytes[r], test_slot_seed(salt, &key, r, s));
		}
}

bool chunk_model_has(const struct chunk_scene *scene, uint32_t first, uint32_t count)
{
	const struct model_object *model = &scene->model;

	for (uint32_t r = 0; r < model->refs; r++)
		for (uint32_t s = first; s < first + count; s++)
			if (!model->present[r * model->blocks_per_chunk + s])
				return false;
	return true;
}

void chunk_store(struct chunk_scene *scene, uint32_t first, uint32_t count, uint64_t salt,
		 uint32_t status)
{
	struct test_transfer t;

	chunk_transfer(scene, &t, first, count, salt);
	test_store(&scene->bed, &t, status);
	test_transfer_fini(&t);
}

void chunk_load(struct chunk_scene *scene, uint32_t first, uint32_t count, uint64_t salt,
		uint32_t status, int error)
{
	struct test_transfer t;
	uint64_t id = scene->bed.next_id++;

	chunk_transfer(scene, &t, first, count, salt);
	test_transfer_poison(&t);
	assert_ok(kvt_worker_submit_load(scene->bed.worker, id, &t.transfer, NULL));
	assert_result_error(status, error, test_take(scene->bed.worker, id));
	if (status == KVT_STATUS_LOADED)
		test_transfer_check(&t);
	test_transfer_fini(&t);
}

void chunk_plant(struct chunk_scene *scene)
{
	size_t bytes;
	uint8_t *object = model_write(&scene->model, &bytes);

	fake_object_put(scene->fake, scene->name, object, bytes);
	free(object);
}

void chunk_compare(struct chunk_scene *scene)
{
	size_t bytes, want_bytes;
	uint8_t *object = fake_object_get(scene->fake, scene->name, &bytes);
	uint8_t *want = model_write(&scene->model, &want_bytes);
	size_t at = 0;

	if (!object) {
		free(want);
		fail_msg("%s is not there", scene->name);
	}
	while (at < bytes && at < want_bytes && object[at] == want[at])
		at++;
	bool same = bytes == want_bytes && at == bytes;
	if (!same)
		print_error("%s has %zu bytes, expected %zu; differs at %zu (payload %llu)\n",
			    scene->name, bytes, want_bytes, at,
			    (unsigned long long)model_payload_bytes(&scene->model));
	free(object);
	free(want);
	assert_true(same);
}
