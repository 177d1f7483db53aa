/* SPDX-License-Identifier: Apache-2.0 */
/* What runs before what: queue classes, and stores and loads of one key. */
#include <stdlib.h>
#include <string.h>

#include "order_scene.h"

/* ---- Classes ---- */

static void lookups_go_before_expedited_loads_before_loads_before_stores(void **state)
{
	struct order_scene s;

	(void)state;
	order_scene_init(&s, NULL);
	order_scene_open(&s);
	order_close_gate(&s);
	order_store(&s, 1, 0);
	order_load(&s, 2, 1, false);
	order_load(&s, 3, 2, true);
	assert_ok(kvt_worker_submit_lookup(s.bed.worker, 4, s.t[3].keys, 1, NULL));
	order_open_gate(&s);
	assert_before(&s, 3, 2);
	assert_before(&s, 2, 1);
	assert_before(&s, 1, 0);
	order_take(&s, 1, KVT_STATUS_STORED);
	order_take(&s, 2, KVT_STATUS_MISSING);
	order_take(&s, 3, KVT_STATUS_MISSING);
	order_take(&s, 4, KVT_STATUS_MISS);
	order_scene_close(&s);
}

static void one_class_runs_in_order_of_submission(void **state)
{
	struct order_scene s;

	(void)state;
	for (int stores = 0; stores < 2; stores++) {
		order_scene_init(&s, NULL);
		order_scene_open(&s);
		order_close_gate(&s);
		for (uint32_t i = 0; i < 8; i++)
			stores ? order_store(&s, i, i) : order_load(&s, i, i, false);
		order_open_gate(&s);
		for (uint32_t i = 0; i + 1 < 8; i++)
			assert_before(&s, i, i + 1);
		order_scene_close(&s);
	}
}

static void stores_do_not_starve(void **state)
{
	enum { AHEAD = 200 };
	struct order_scene s;
	struct test_transfer load;
	struct kvt_result *result;
	uint64_t next = 2, taken = 0;
	bool stored = false;

	(void)state;
	order_scene_init(&s, NULL);
	order_scene_open(&s);
	test_transfer_init(&load, 1, &order_page, 1, 77);
	order_close_gate(&s);
	for (; next < AHEAD; next++)
		assert_ok(kvt_worker_submit_load(s.bed.worker, next, &load.transfer, NULL));
	order_store(&s, 1, 0);
	fake_rule_remove(s.fake, &s.gate);
	/* Loads never run out; the store has to come all the same. */
	while (!stored) {
		if (kvt_worker_poll(s.bed.worker, &result, 1) == 0)
			continue;
		stored = result->job_id == 1;
		kvt_result_release(result);
		taken++;
		if (next == 1000)
			next = 2000; /* the blocker's id */
		assert_ok(kvt_worker_submit_load(s.bed.worker, next++, &load.transfer, NULL));
	}
	assert_true(taken < next);
	test_transfer_fini(&load);
	order_scene_close(&s);
}

/* ---- One key ---- */

static void lookups_of_a_key_that_is_being_stored_are_pending(void **state)
{
	struct order_scene s;
	struct fake_rule hold = {.ops = FAKE_OP(KVT_IO_PUT), .action = FAKE_HOLD};

	(void)state;
	order_scene_init(&s, NULL);
	s.bed.worker_options.depth = 4;
	order_scene_open(&s);
	fake_rule_add(s.fake, &hold);
	order_store(&s, 1, 0);
	assert_true(fake_await_held(s.fake, &hold, 1));
	hold.name = s.names[0];
	test_lookup(&s.bed, s.t[0].keys, 1, KVT_STATUS_PENDING);
	fake_rule_remove(s.fake, &hold);
	order_take(&s, 1, KVT_STATUS_STORED);
	test_lookup(&s.bed, s.t[0].keys, 1, KVT_STATUS_HIT);

	order_scene_close(&s);

	/* Queued ones too: the only lane gets to the lookup before it gets to the store. */
	order_scene_init(&s, NULL);
	order_scene_open(&s);
	order_close_gate(&s);
	order_store(&s, 2, 1);
	assert_ok(kvt_worker_submit_lookup(s.bed.worker, 3, s.t[1].keys, 1, NULL));
	order_open_gate(&s);
	order_take(&s, 3, KVT_STATUS_PENDING);
	order_take(&s, 2, KVT_STATUS_STORED);
	order_scene_close(&s);
}

static void a_load_waits_for_the_store_of_its_key(void **state)
{
	struct order_scene s;
	struct fake_rule hold = {.ops = FAKE_OP(KVT_IO_PUT), .action = FAKE_HOLD};

	(void)state;
	order_scene_init(&s, NULL);
	s.bed.worker_options.depth = 4;
	order_scene_open(&s);
	struct test_transfer target;
	test_transfer_init(&target, 1, &order_page, 1, 2000);
	fake_rule_add(s.fake, &hold);
	order_store(&s, 1, 0);
	assert_true(fake_await_held(s.fake, &hold, 1));
	assert_ok(kvt_worker_submit_load(s.bed.worker, 2, &target.transfer, NULL));
	/* Another key's load passes it: the lane is not the reason for waiting. */
	order_load(&s, 3, 1, false);
	order_take(&s, 3, KVT_STATUS_MISSING);
	assert_int_equal(fake_calls(s.fake, KVT_IO_GET), 1);
	assert_null(test_take_now(s.bed.worker, 2));
	fake_rule_remove(s.fake, &hold);
	order_take(&s, 1, KVT_STATUS_STORED);
	order_take(&s, 2, KVT_STATUS_LOADED);
	test_transfer_check(&target);
	test_transfer_fini(&target);
	order_scene_close(&s);
}

static void a_load_lifts_the_store_that_it_waits_for(void **state)
{
	struct order_scene s;
	struct test_transfer target;

	(void)state;
	order_scene_init(&s, NULL);
	order_scene_open(&s);
	test_transfer_init(&target, 1, &order_page, 1, 2001);
	order_close_gate(&s);
	order_store(&s, 1, 0);
	order_store(&s, 2, 1);
	assert_ok(kvt_worker_submit_load(s.bed.worker, 3, &target.transfer, NULL));
	order_open_gate(&s);
	assert_before(&s, 1, 0);
	order_take(&s, 1, KVT_STATUS_STORED);
	order_take(&s, 2, KVT_STATUS_STORED);
	order_take(&s, 3, KVT_STATUS_LOADED);
	test_transfer_check(&target);
	test_transfer_fini(&target);
	order_scene_close(&s);
}

static void a_load_gives_up_waiting_at_its_own_deadline(void **state)
{
	struct order_scene s;
	struct fake_rule hold = {.ops = FAKE_OP(KVT_IO_PUT), .action = FAKE_HOLD};
	struct kvt_submit_options options = KVT_INIT(options);
	struct test_transfer target;

	(void)state;
	order_scene_init(&s, NULL);
	s.bed.worker_options.depth = 4;
	order_scene_open(&s);
	test_transfer_init(&target, 1, &order_page, 1, 2000);
	fake_rule_add(s.fake, &hold);
	order_store(&s, 1, 0);
	assert_true(fake_await_held(s.fake, &hold, 1));
	options.timeout_ms = 10;
	assert_ok(kvt_worker_submit_load(s.bed.worker, 2, &target.transfer, &options));
	assert_result_error(KVT_STATUS_FAILED, KVT_ETIMEDOUT, test_take(s.bed.worker, 2));
	assert_int_equal(fake_held(s.fake, &hold), 1);
	fake_rule_remove(s.fake, &hold);
	order_take(&s, 1, KVT_STATUS_STORED);
	test_transfer_fini(&target);
	order_scene_close(&s);
}

static void loads_are_not_merged(void **state)
{
	struct order_scene s;
	struct test_transfer twin;

	(void)state;
	order_scene_init(&s, NULL);
	order_scene_open(&s);
	test_store(&s.bed, &s.t[0], KVT_STATUS_STORED);
	test_transfer_init(&twin, 1, &order_page, 1, 2000);
	order_close_gate(&s);
	unsigned gets = fake_calls(s.fake, KVT_IO_GET);
	order_load(&s, 1, 0, false);
	assert_ok(kvt_worker_submit_load(s.bed.worker, 2, &twin.transfer, NULL));
	order_open_gate(&s);
	assert_int_equal(fake_calls(s.fake, KVT_IO_GET) - gets, 2);
	order_take(&s, 1, KVT_STATUS_LOADED);
	order_take(&s, 2, KVT_STATUS_LOADED);
	test_transfer_check(&twin);
	test_transfer_fini(&twin);
	order_scene_close(&s);
}

/* Blocks of the chunk that `seed` names, F = 4. */
static void part_of_chunk(struct test_transfer *t, uint32_t first, uint32_t count, uint64_t salt)
{
	struct test_group group = {count, first, 1, {1000}};

	test_transfer_init(t, 4, &group, 1, 3000);
	t->salt = salt;
	test_transfer_fill(t);
}

static void a_second_store_of_a_key_waits_for_the_first(void **state)
{
	/* first, count of the first store and of the second; whether the second is skipped */
	static const struct {
		uint32_t a, m, b, n;
		bool skipped;
	} cases[] = {{0, 4, 0, 4, true},  {0, 4, 1, 2, true},  {1, 2, 1, 2, true},
		     {0, 2, 0, 4, false}, {0, 2, 2, 2, false}, {0, 2, 1, 2, false}};

	(void)state;
	for (size_t i = 0; i < TEST_COUNT(cases); i++) {
		struct order_scene s;
		struct test_transfer one, two, part;
		struct fake_rule hold = {.ops = FAKE_OP(KVT_IO_PUT), .action = FAKE_HOLD};
		order_scene_init(&s, NULL);
		s.bed.worker_options.depth = 4;
		order_scene_open(&s);
		part_of_chunk(&one, cases[i].a, cases[i].m, 1);
		part_of_chunk(&two, cases[i].b, cases[i].n, 2);
		fake_rule_add(s.fake, &hold);
		assert_ok(kvt_worker_submit_store(s.bed.worker, 1, &one.transfer, NULL));
		assert_true(fake_await_held(s.fake, &hold, 1));
		fake_records_clear(s.fake);
		assert_ok(kvt_worker_submit_store(s.bed.worker, 2, &two.transfer, NULL));
		order_load(&s, 3, 0, false);
		order_take(&s, 3, KVT_STATUS_MISSING);
		assert_int_equal(fake_held(s.fake, &hold), 1);
		unsigned puts = fake_calls(s.fake, KVT_IO_PUT);
		fake_rule_remove(s.fake, &hold);
		order_take(&s, 1, KVT_STATUS_STORED);
		order_take(&s, 2, cases[i].skipped ? KVT_STATUS_SKIPPED : KVT_STATUS_STORED);
		assert_int_equal(fake_calls(s.fake, KVT_IO_PUT) - puts, !cases[i].skipped);
		for (uint32_t block = 0; block < 4; block++) {
			bool in_one = block >= cases[i].a && block < cases[i].a + cases[i].m;
			bool in_two = block >= cases[i].b && block < cases[i].b + cases[i].n;
			bool second = in_two && !cases[i].skipped;
			part_of_chunk(&part, block, 1, second ? 2 : 1);
			test_load(&s.bed, &part,
				  in_one || second ? KVT_STATUS_LOADED : KVT_STATUS_MISSING);
			test_transfer_fini(&part);
		}
		test_transfer_fini(&one);
		test_transfer_fini(&two);
		order_scene_close(&s);
	}
}

static void followers_go_on_when_the_first_store_fails(void **state)
{
	struct order_scene s;
	struct test_transfer twin, target;
	struct fake_rule hold = {
		.ops = FAKE_OP(KVT_IO_PUT), .times = 1, .action = FAKE_HOLD, .error = KVT_EACCES};

	(void)state;
	for (int with_store = 0; with_store < 2; with_store++) {
		order_scene_init(&s, NULL);
		s.bed.worker_options.depth = 4;
		order_scene_open(&s);
		test_transfer_init(&twin, 1, &order_page, 1, 2000);
		test_transfer_fill(&twin);
		test_transfer_init(&target, 1, &order_page, 1, 2000);
		fake_rule_add(s.fake, &hold);
		order_store(&s, 1, 0);
		assert_true(fake_await_held(s.fake, &hold, 1));
		if (with_store)
			assert_ok(kvt_worker_submit_store(s.bed.worker, 2, &twin.transfer, NULL));
		assert_ok(kvt_worker_submit_load(s.bed.worker, 3, &target.transfer, NULL));
		fake_rule_remove(s.fake, &hold);
		assert_result_error(KVT_STATUS_FAILED, KVT_EACCES, test_take(s.bed.worker, 1));
		if (with_store)
			order_take(&s, 2, KVT_STATUS_STORED);
		/* Alone, the load looks for itself; behind the second store it may or may not wait
		 * for that one. */
		struct kvt_result *result = test_take(s.bed.worker, 3);
		if (!with_store || result->status != KVT_STATUS_LOADED)
			assert_result(KVT_STATUS_MISSING, result);
		else
			kvt_result_release(result);
		test_transfer_fini(&twin);
		test_transfer_fini(&target);
		order_scene_close(&s);
	}
}

static void followers_go_on_when_the_first_store_is_canceled(void **state)
{
	struct order_scene s;
	struct test_transfer twin;

	(void)state;
	order_scene_init(&s, NULL);
	order_scene_open(&s);
	test_transfer_init(&twin, 1, &order_page, 1, 2000);
	test_transfer_fill(&twin);
	order_close_gate(&s);
	order_store(&s, 1, 0);
	assert_ok(kvt_worker_submit_store(s.bed.worker, 2, &twin.transfer, NULL));
	assert_ok(kvt_worker_cancel(s.bed.worker, 1));
	assert_result_error(KVT_STATUS_CANCELED, KVT_ECANCELED, test_take(s.bed.worker, 1));
	order_open_gate(&s);
	order_take(&s, 2, KVT_STATUS_STORED);
	test_transfer_fini(&twin);
	order_scene_close(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lookups_go_before_expedited_loads_before_loads_before_stores),
		cmocka_unit_test(one_class_runs_in_order_of_submission),
		cmocka_unit_test(stores_do_not_starve),
		cmocka_unit_test(lookups_of_a_key_that_is_being_stored_are_pending),
		cmocka_unit_test(a_load_waits_for_the_store_of_its_key),
		cmocka_unit_test(a_load_lifts_the_store_that_it_waits_for),
		cmocka_unit_test(a_load_gives_up_waiting_at_its_own_deadline),
		cmocka_unit_test(loads_are_not_merged),
		cmocka_unit_test(a_second_store_of_a_key_waits_for_the_first),
		cmocka_unit_test(followers_go_on_when_the_first_store_fails),
		cmocka_unit_test(followers_go_on_when_the_first_store_is_canceled),
	};
	return cmocka_run_group_tests_name("worker_order", tests, NULL, NULL);
}
