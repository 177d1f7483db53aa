/* SPDX-License-Identifier: Apache-2.0 */
/* A worker whose only lane, with one request at a time, stops at a gate: what was submitted
 * meanwhile runs in an order that can be looked at. */
#ifndef KVT_TESTS_ORDER_SCENE_H
#define KVT_TESTS_ORDER_SCENE_H

#include "support.h"

#include "fake_backend.h"

#define ORDER_CHUNKS 8

struct order_scene {
	struct fake_store *fake;
	struct test_bed bed;
	struct test_transfer blocker; /* its load is held */
	struct fake_rule gate;
	char gate_name[KVT_NAME_BYTES];
	struct test_transfer t[ORDER_CHUNKS]; /* one chunk each, key seeds from 2000 on */
	char names[ORDER_CHUNKS][KVT_NAME_BYTES];
};

extern const struct test_group order_page; /* one block of one page */

/* What differs from the defaults is set between init and open. */
void order_scene_init(struct order_scene *s, const struct fake_config *config);
void order_scene_open(struct order_scene *s);
void order_scene_close(struct order_scene *s);
/* The only lane is busy until the gate opens; records begin. */
void order_close_gate(struct order_scene *s);
/* Opens it and waits until all jobs are done. */
void order_open_gate(struct order_scene *s);
/* When the first request for an object was made. */
size_t order_first_request(struct order_scene *s, const char *name);
#define assert_before(s, a, b)                                                                     \
	assert_true(order_first_request(s, (s)->names[a]) < order_first_request(s, (s)->names[b]))
/* Jobs of chunk i. */
void order_store(struct order_scene *s, uint64_t id, uint32_t i);
void order_load(struct order_scene *s, uint64_t id, uint32_t i, bool expedited);
/* Takes a job's completion and asserts the status of its keys. */
void order_take(struct order_scene *s, uint64_t id, uint32_t status);

#endif
