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

static void without_lookups_loads_have_every_request(void **state)
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
	fake_rule_add(s.fake, &slow);
	assert_ok(kvt_worker_submit_load(s.bed.worker, 1, &t.transfer, NULL));
	assert_true(fake_await_held(s.fake, &slow, DEPTH));
	fake_rule_remove(s.fake, &slow);
	assert_result(KVT_STATUS_MISSING, test_take(s.bed.worker, 1));
	test_transfer_fini(&t);
	order_scene_close(&s);
}

/* With the smallest depth that has room for all three: one of each. */
static void stores_leave_room_for_loads_and_lookups(void **state)
{
	static const struct test_group many = {64, 0, 1, {4096}};
	static const struct {
		uint32_t depth, stores;
	} cases[] = {{3, 1}, {4, 2}, {8, 6}, {16, 12}};

	(void)state;
	for (size_t c = 0; c < TEST_COUNT(cases); c++) {
		struct fake_rule slow = {.ops = FAKE_OP(KVT_IO_PUT), .action = FAKE_HOLD};
		struct order_scene s;
		struct test_transfer t;
		order_scene_init(&s, NULL);
		s.bed.worker_options.depth = cases[c].depth;
		order_scene_open(&s);
		test_transfer_init(&t, 1, &many, 1, 77);
		test_transfer_fill(&t);
		test_lookup(&s.bed, s.t[0].keys, 1, KVT_STATUS_MISS);
		fake_rule_add(s.fake, &slow);
		assert_ok(kvt_worker_submit_store(s.bed.worker, 1, &t.transfer, NULL));
		assert_true(fake_await_held(s.fake, &slow, cases[c].stores));
		for (uint32_t i = 0; i < ORDER_CHUNKS; i++) {
			test_lookup(&s.bed, s.t[i].keys, 1, KVT_STATUS_MISS);
			test_load(&s.bed, &s.t[i], KVT_STATUS_MISSING);
		}
		assert_int_equal(fake_held(s.fake, &slow), cases[c].stores);
		fake_rule_remove(s.fake, &slow);
		assert_result(KVT_STATUS_STORED, test_take(s.bed.worker, 1));
		test_transfer_fini(&t);
		order_scene_close(&s);
	}
}

/* One chunk of more parts than the lane has requests. */
static void parts_of_a_large_chunk_leave_room_for_lookups(void **state)
{
	static const struct test_group large = {1, 0, 1, {30 * 65536}};
	struct order_scene s;
	struct test_transfer t;

	(void)state;
	order_scene_init(&s, NULL);
	s.bed.worker_options.depth = DEPTH;
	order_scene_open(&s);
	test_transfer_init(&t, 1, &large, 1, 77);
	test_transfer_fill(&t);
	for (int is_load = 0; is_load < 2; is_load++) {
		/* The extent with the trailer comes first and is alone. */
		struct fake_rule slow = {.ops = FAKE_OP(KVT_IO_GET) | FAKE_OP(KVT_IO_PART),
					 .skip = (unsigned)is_load,
					 .action = FAKE_HOLD};
		test_lookup(&s.bed, s.t[0].keys, 1, KVT_STATUS_MISS);
		fake_rule_add(s.fake, &slow);
		assert_ok(is_load ? kvt_worker_submit_load(s.bed.worker, 1, &t.transfer, NULL)
				  : kvt_worker_submit_store(s.bed.worker, 1, &t.transfer, NULL));
		assert_true(fake_await_held(s.fake, &slow, DEPTH - 1));
		for (uint32_t i = 0; i < ORDER_CHUNKS; i++)
			test_lookup(&s.bed, s.t[i].keys, 1, KVT_STATUS_MISS);
		assert_int_equal(fake_held(s.fake, &slow), DEPTH - 1);
		fake_rule_remove(s.fake, &slow);
		assert_result(is_load ? KVT_STATUS_LOADED : KVT_STATUS_STORED,
			      test_take(s.bed.worker, 1));
	}
	test_transfer_fini(&t);
	order_scene_close(&s);
}

/* A job that looks up `count` keys which are not there, its HEADs held by `slow`. */
static void begin_burst(struct order_scene *s, struct test_transfer *burst, uint64_t count,
			struct fake_rule *slow)
{
	const struct test_group group = {count, 0, 1, {4096}};

	test_transfer_init(burst, 1, &group, 1, 88);
	fake_rule_add(s->fake, slow);
	assert_ok(kvt_worker_submit_lookup(s->bed.worker, 1, burst->keys, count, NULL));
}

static void many_lookups_make_no_load_wait(void **state)
{
	enum { BURST = 20000 };
	static const struct test_group many = {64, 0, 1, {4096}};
	struct fake_rule asking = {.ops = FAKE_OP(KVT_IO_HEAD), .action = FAKE_HOLD};
	struct fake_rule reading = {.ops = FAKE_OP(KVT_IO_GET), .action = FAKE_HOLD};
	struct order_scene s;
	struct test_transfer burst, t;

	(void)state;
	order_scene_init(&s, NULL);
	s.bed.worker_options.depth = DEPTH;
	order_scene_open(&s);
	begin_burst(&s, &burst, BURST, &asking);
	/* Alone they have all of it. */
	assert_true(fake_await_held(s.fake, &asking, DEPTH));
	/* The first request that comes free is the load's. */
	for (uint32_t i = 0; i < ORDER_CHUNKS; i++) {
		order_load(&s, 10 + i, i, false);
		fake_release(s.fake, &asking, 1);
		order_take(&s, 10 + i, KVT_STATUS_MISSING);
	}
	/* While loads wait, lookups have half. */
	test_transfer_init(&t, 1, &many, 1, 77);
	fake_rule_add(s.fake, &reading);
	assert_ok(kvt_worker_submit_load(s.bed.worker, 2, &t.transfer, NULL));
	fake_release(s.fake, &asking, DEPTH);
	assert_true(fake_await_held(s.fake, &reading, DEPTH / 2));
	assert_true(fake_await_held(s.fake, &asking, DEPTH / 2));
	fake_release(s.fake, &asking, DEPTH / 2);
	assert_true(fake_await_held(s.fake, &asking, DEPTH / 2));
	assert_int_equal(fake_held(s.fake, &reading), DEPTH / 2);
	fake_rule_remove(s.fake, &reading);
	fake_rule_remove(s.fake, &asking);
	order_take(&s, 2, KVT_STATUS_MISSING);
	order_take(&s, 1, KVT_STATUS_MISS);
	test_transfer_fini(&burst);
	test_transfer_fini(&t);
	order_scene_close(&s);
}

static void one_request_at_a_time_takes_turns(void **state)
{
	enum { BURST = 1000 };
	struct fake_rule asking = {.ops = FAKE_OP(KVT_IO_HEAD), .action = FAKE_HOLD};
	struct order_scene s;
	struct test_transfer burst;

	(void)state;
	order_scene_init(&s, NULL);
	order_scene_open(&s);
	begin_burst(&s, &burst, BURST, &asking);
	assert_true(fake_await_held(s.fake, &asking, 1));
	fake_records_clear(s.fake);
	size_t before = fake_record_count(s.fake);
	for (uint32_t i = 0; i < ORDER_CHUNKS; i++)
		order_load(&s, 10 + i, i, false);
	fake_rule_remove(s.fake, &asking);
	for (uint32_t i = 0; i < ORDER_CHUNKS; i++)
		order_take(&s, 10 + i, KVT_STATUS_MISSING);
	order_take(&s, 1, KVT_STATUS_MISS);
	/* Load, lookup, load, lookup ... */
	for (size_t i = 0; i < 2 * ORDER_CHUNKS; i++)
		assert_int_equal(fake_record_at(s.fake, before + i).op,
				 i % 2 ? KVT_IO_HEAD : KVT_IO_GET);
	test_transfer_fini(&burst);
	order_scene_close(&s);
}

int main(void)
{
	const struct CMUnitTest cases[] = {
		cmocka_unit_test(lookups_are_answered_while_loads_take_all_other_requests),
		cmocka_unit_test(without_lookups_loads_have_every_request),
		cmocka_unit_test(stores_leave_room_for_loads_and_lookups),
		cmocka_unit_test(parts_of_a_large_chunk_leave_room_for_lookups),
		cmocka_unit_test(many_lookups_make_no_load_wait),
		cmocka_unit_test(one_request_at_a_time_takes_turns),
	};

	return cmocka_run_group_tests_name("worker_lookups", cases, NULL, NULL);
}
