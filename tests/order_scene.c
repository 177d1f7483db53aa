/* SPDX-License-Identifier: Apache-2.0 */
/* See order_scene.h. */
#include "order_scene.h"

#include <string.h>

const struct test_group order_page = {1, 0, 1, {4096}};

void order_scene_init(struct order_scene *s, const struct fake_config *config)
{
	memset(s, 0, sizeof(*s));
	s->fake = fake_store_create(config);
	test_bed_init(&s->bed);
	s->bed.worker_options.lanes = 1;
	s->bed.worker_options.depth = 1;
}

static void name_of(const struct order_scene *s, const struct test_transfer *t, char *name)
{
	assert_true(kvt_store_object_name(s->bed.store, &t->keys[0], name, KVT_NAME_BYTES) > 0);
}

void order_scene_open(struct order_scene *s)
{
	struct test_transfer first;

	test_bed_open(&s->bed, fake_store_uri(s->fake));
	/* config.json is out of the way. */
	test_transfer_init(&first, 1, &order_page, 1, 999);
	test_store(&s->bed, &first, KVT_STATUS_STORED);
	test_transfer_fini(&first);
	test_transfer_init(&s->blocker, 1, &order_page, 1, 1000);
	name_of(s, &s->blocker, s->gate_name);
	for (uint32_t i = 0; i < TEST_COUNT(s->t); i++) {
		test_transfer_init(&s->t[i], 1, &order_page, 1, 2000 + i);
		test_transfer_fill(&s->t[i]);
		test_set_geometry(&s->bed, &s->t[i]);
		name_of(s, &s->t[i], s->names[i]);
	}
	s->bed.next_id = 5000;
}

void order_close_gate(struct order_scene *s)
{
	s->gate = (struct fake_rule){.ops = FAKE_ALL, .name = s->gate_name, .action = FAKE_HOLD};
	fake_rule_add(s->fake, &s->gate);
	assert_ok(kvt_worker_submit_load(s->bed.worker, 1000, &s->blocker.transfer, NULL));
	assert_true(fake_await_held(s->fake, &s->gate, 1));
	fake_records_clear(s->fake);
}

void order_open_gate(struct order_scene *s)
{
	fake_rule_remove(s->fake, &s->gate);
	assert_ok(kvt_worker_drain(s->bed.worker, TEST_LIMIT_MS));
	assert_result(KVT_STATUS_MISSING, test_take(s->bed.worker, 1000));
}

void order_scene_close(struct order_scene *s)
{
	test_bed_close(&s->bed);
	test_transfer_fini(&s->blocker);
	for (size_t i = 0; i < TEST_COUNT(s->t); i++)
		test_transfer_fini(&s->t[i]);
	if (fake_violation(s->fake))
		fail_msg("%s", fake_violation(s->fake));
	fake_store_destroy(s->fake);
}

size_t order_first_request(struct order_scene *s, const char *name)
{
	size_t count = fake_record_count(s->fake);

	for (size_t i = 0; i < count; i++)
		if (strcmp(fake_record_at(s->fake, i).name, name) == 0)
			return i;
	fail_msg("no request for %s", name);
	return 0;
}

void order_store(struct order_scene *s, uint64_t id, uint32_t i)
{
	assert_ok(kvt_worker_submit_store(s->bed.worker, id, &s->t[i].transfer, NULL));
}

void order_load(struct order_scene *s, uint64_t id, uint32_t i, bool expedited)
{
	struct kvt_submit_options options = KVT_INIT(options);

	options.expedited = expedited;
	assert_ok(kvt_worker_submit_load(s->bed.worker, id, &s->t[i].transfer, &options));
}

void order_take(struct order_scene *s, uint64_t id, uint32_t status)
{
	assert_result(status, test_take(s->bed.worker, id));
}
