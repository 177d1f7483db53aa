/* SPDX-License-Identifier: Apache-2.0 */
/* The share that lookups have of a lane's requests: neither do they wait behind slow loads and
 * stores, nor do many of them make a load wait. */
#include "order_scene.h"

#define DEPTH 8u

static void lookups_are_answered_while_loads_take_all_other_requests(void **state)
{
	static const struct test_group many = {64, 0, 1, {4096}};
	struct fake_rule slow = {.ops = FAKE_OP(KVT_IO_GET), .action = FAKE_HOLD};
	struct order_scene s;
	struct test_transfer t;

	(void)state;
	order_scene_init(&s, NULL);
	s.bed.worker_options.depth = DEPTH;
	order_scene_open(&s);
	test_transfer_init(&t, 1, &many, 1, 77);
	test_transfer_fill(&t);
	/* It shows that there are lookups, for which room is kept from then on. */
	test_lookup(&s.bed, s.t[0].keys, 1, KVT_STATUS_MISS);
	fake_rule_add(s.fake, &slow);
	assert_ok(kvt_worker_submit_load(s.bed.worker, 1, &t.transfer, NULL));
	assert_true(fake_await_held(s.fake, &slow, DEPTH - 1));
	for (uint32_t i = 0; i < ORDER_CHUNKS; i++)
		test_lookup(&s.bed, s.t[i].keys, 1, KVT_STATUS_MISS);
	assert_int_equal(fake_held(s.fake, &slow), DEPTH - 1);
	fake_rule_remove(s.fake, &slow);
	assert_ok(kvt_worker_drain(s.bed.worker, TEST_LIMIT_MS));
	assert_result(KVT_STATUS_MISSING, test_take(s.bed.worker, 1));
	test_transfer_fini(&t);
	order_scene_close(&s);
}

int main(void)
{
	const struct CMUnitTest cases[] = {
		cmocka_unit_test(lookups_are_answered_while_loads_take_all_other_requests),
	};

	return cmocka_run_group_tests_name("worker_lookups", cases, NULL, NULL);
}
