/* SPDX-License-Identifier: Apache-2.0 */
/* See gpu_scene.h. */
#include "gpu_scene.h"

#include <string.h>

void gpu_scene_init(struct gpu_scene *s, bool stream_order, const struct fake_config *config)
{
	memset(s, 0, sizeof(*s));
	s->fake = fake_store_create(config);
	s->gpu = fake_gpu_create(GPU_MEMORY, stream_order);
	test_bed_init(&s->bed);
}

void gpu_scene_open(struct gpu_scene *s)
{
	static const struct test_group page = {1, 0, 1, {4096}};
	struct test_transfer first;

	assert_ok(fake_gpu_open(s->gpu, NULL, &s->bed.device));
	test_bed_open(&s->bed, fake_store_uri(s->fake));
	/* config.json is out of the way. */
	test_transfer_init_at(&first, 1, &page, 1, 999, fake_gpu_memory(s->gpu), GPU_MEMORY,
			      fake_gpu_ptr(s->gpu, 0));
	test_store(&s->bed, &first, KVT_STATUS_STORED);
	test_transfer_fini(&first);
	s->bed.next_id = 1000;
}

void gpu_scene_close(struct gpu_scene *s)
{
	assert_ok(kvt_worker_drain(s->bed.worker, TEST_LIMIT_MS));
	assert_int_equal(fake_gpu_outstanding(s->gpu), 0);
	test_bed_close(&s->bed);
	assert_int_equal(fake_gpu_lanes(s->gpu), 0);
	assert_ok(kvt_device_close(s->bed.device));
	if (fake_violation(s->fake))
		fail_msg("%s", fake_violation(s->fake));
	if (fake_gpu_violation(s->gpu))
		fail_msg("%s", fake_gpu_violation(s->gpu));
	assert_int_equal(fake_open_handles(s->fake), 0);
	fake_store_destroy(s->fake);
	fake_gpu_destroy(s->gpu);
}

void gpu_scene_place(struct gpu_scene *s, struct test_transfer *t, uint32_t blocks_per_chunk,
		     const struct test_group *groups, uint32_t group_count, uint64_t key_seed)
{
	size_t bytes = test_transfer_memory(blocks_per_chunk, groups, group_count);

	assert_true(s->used + bytes <= GPU_MEMORY);
	test_transfer_init_at(t, blocks_per_chunk, groups, group_count, key_seed,
			      fake_gpu_memory(s->gpu) + s->used, bytes,
			      fake_gpu_ptr(s->gpu, s->used));
	s->used += bytes;
}

bool gpu_scene_touches(struct gpu_scene *s, const struct test_transfer *t)
{
	return fake_gpu_touches(s->gpu, (size_t)(t->memory - fake_gpu_memory(s->gpu)),
				t->memory_bytes);
}
