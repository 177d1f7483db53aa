/* SPDX-License-Identifier: Apache-2.0 */
/* A fake store and a fake device under one worker. */
#ifndef KVT_TESTS_GPU_SCENE_H
#define KVT_TESTS_GPU_SCENE_H

#include "support.h"

#include "fake_backend.h"
#include "fake_device.h"

#define GPU_MEMORY (16 << 20)

struct gpu_scene {
	struct fake_store *fake;
	struct fake_gpu *gpu;
	struct test_bed bed;
	size_t used; /* of the device's memory */
};

/* What differs from the defaults is set between init and open. One chunk of one page, of key seed
 * 999, is stored by open. */
void gpu_scene_init(struct gpu_scene *s, bool stream_order, const struct fake_config *config);
void gpu_scene_open(struct gpu_scene *s);
/* Also asserts that the core kept the promises of both tables and that nothing is left. */
void gpu_scene_close(struct gpu_scene *s);
/* A transfer in the device's memory, behind those made before. */
void gpu_scene_place(struct gpu_scene *s, struct test_transfer *t, uint32_t blocks_per_chunk,
		     const struct test_group *groups, uint32_t group_count, uint64_t key_seed);
/* Whether a copy that is under way uses its memory. */
bool gpu_scene_touches(struct gpu_scene *s, const struct test_transfer *t);

#endif
