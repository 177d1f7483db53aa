/* SPDX-License-Identifier: Apache-2.0 */
/* Full queues, and waiting for memory. */
#include <stdlib.h>
#include <string.h>

#include "order_scene.h"

/* ---- Back-pressure ---- */

static uint64_t waiting_chunks(struct order_scene *s)
{
	struct kvt_stats stats = test_stats(s->bed.worker);

	return stats.queued_chunks[0] + stats.queued_chunks[1] + stats.queued_chunks[2] +
	       stats.queued_chunks[3];
}

static void a_full_queue_refuses_stores_first_and_loads_at_four_times_that(void **state)
{
	enum { BOUND = 8 };
	static const struct test_group hundred = {100, 0, 1, {64}};
	struct order_scene s;
	struct test_transfer big, one;
	struct kvt_transfer single;
	uint64_t id = 1;
	int answer;

	(void)state;
	order_scene_init(&s, NULL);
	s.bed.worker_options.queue_chunks = BOUND;
	order_scene_open(&s);
	test_transfer_init(&big, 1, &hundred, 1, 88);
	test_transfer_fill(&big);
	test_transfer_init(&one, 1, &order_page, 1, 89);
	test_set_geometry(&s.bed, &one);
	order_close_gate(&s);
	/* Keys of `big`, one by one. */
	single = big.transfer;
	uint64_t blocks = 1;
	single.group_block_counts = &blocks;
	single.copy_count = single.key_count = 1;
	while ((answer = kvt_worker_submit_store(s.bed.worker, id, &single, NULL)) == 0) {
		assert_true(id <= 3 * BOUND);
		single.keys++;
		single.ptrs++;
		single.sizes++;
		id++;
	}
	assert_fails(KVT_EAGAIN, "8", answer);
	assert_int_equal(waiting_chunks(&s), BOUND);
	/* The id of a refused job is free. */
	assert_returns(KVT_ENOENT, kvt_worker_cancel(s.bed.worker, id));
	while ((answer = kvt_worker_submit_load(s.bed.worker, id, &one.transfer, NULL)) == 0) {
		assert_true(id <= 8 * BOUND);
		id++;
	}
	assert_fails(KVT_EAGAIN, "32", answer);
	assert_int_equal(waiting_chunks(&s), 4 * BOUND);
	assert_returns(KVT_EAGAIN, kvt_worker_submit_lookup(s.bed.worker, id, one.keys, 1, NULL));
	assert_int_equal(test_stats(s.bed.worker).jobs_refused, 3);
	/* A job without keys needs no room. */
	assert_ok(kvt_worker_submit_lookup(s.bed.worker, id, NULL, 0, NULL));
	order_open_gate(&s);

	/* A job of any size is taken whole while there is room for one chunk. */
	order_close_gate(&s);
	assert_ok(kvt_worker_submit_store(s.bed.worker, 2000, &big.transfer, NULL));
	assert_returns(KVT_EAGAIN,
		       kvt_worker_submit_store(s.bed.worker, 2001, &one.transfer, NULL));
	order_open_gate(&s);
	assert_ok(kvt_worker_submit_store(s.bed.worker, 2001, &one.transfer, NULL));
	order_take(&s, 2001, KVT_STATUS_STORED);
	test_transfer_fini(&big);
	test_transfer_fini(&one);
	order_scene_close(&s);
}

/* ---- Waiting for memory ---- */

static void a_store_whose_memory_is_waited_for_jumps_the_queue(void **state)
{
	struct order_scene s;
	uint64_t id = 3;

	(void)state;
	order_scene_init(&s, NULL);
	order_scene_open(&s);
	order_close_gate(&s);
	order_load(&s, 1, 1, false);
	order_store(&s, 2, 2);
	order_store(&s, 3, 3);
	assert_returns(KVT_ETIMEDOUT, kvt_worker_wait_memory(s.bed.worker, &id, 1, 0, NULL));
	order_open_gate(&s);
	assert_before(&s, 3, 2);
	assert_before(&s, 3, 1);
	order_scene_close(&s);
}

static void waiting_for_memory_lifts_the_store_in_front_too(void **state)
{
	struct order_scene s;
	struct test_transfer twin;
	uint64_t id = 3;

	(void)state;
	order_scene_init(&s, NULL);
	order_scene_open(&s);
	test_transfer_init(&twin, 1, &order_page, 1, 2002);
	test_transfer_fill(&twin);
	order_close_gate(&s);
	order_store(&s, 1, 1);
	order_store(&s, 2, 2);
	assert_ok(kvt_worker_submit_store(s.bed.worker, 3, &twin.transfer, NULL));
	assert_returns(KVT_ETIMEDOUT, kvt_worker_wait_memory(s.bed.worker, &id, 1, 0, NULL));
	order_open_gate(&s);
	assert_before(&s, 2, 1);
	order_take(&s, 2, KVT_STATUS_STORED);
	order_take(&s, 3, KVT_STATUS_SKIPPED);
	test_transfer_fini(&twin);
	order_scene_close(&s);
}

static void memory_is_quiet_once_it_was_gathered(void **state)
{
	/* Memory that does not fit the backend goes through staging. */
	static const struct fake_config config = {.capabilities = FAKE_CAPABILITIES,
						  .memory_alignment = 4096};
	static const struct test_group odd = {4, 0, 1, {1000}};
	struct order_scene s;
	struct test_transfer t;
	struct fake_rule hold = {.ops = FAKE_OP(KVT_IO_PUT), .action = FAKE_HOLD};
	uint64_t id = 1;
	size_t known;

	(void)state;
	order_scene_init(&s, &config);
	s.bed.worker_options.depth = 4;
	order_scene_open(&s);
	test_transfer_init(&t, 4, &odd, 1, 4);
	test_transfer_fill(&t);
	fake_rule_add(s.fake, &hold);
	assert_ok(kvt_worker_submit_store(s.bed.worker, 1, &t.transfer, NULL));
	assert_ok(kvt_worker_wait_memory(s.bed.worker, &id, 1, TEST_LIMIT_MS, &known));
	assert_int_equal(known, 1);
	assert_false(fake_touches(s.fake, t.memory, t.memory_bytes));
	test_transfer_poison(&t);
	assert_true(fake_await_held(s.fake, &hold, 1));
	assert_returns(KVT_ETIMEDOUT, kvt_worker_wait(s.bed.worker, &id, 1, 0, NULL));
	fake_rule_remove(s.fake, &hold);
	order_take(&s, 1, KVT_STATUS_STORED);
	test_load(&s.bed, &t, KVT_STATUS_LOADED);
	/* Loads are quiet when they are done; unknown ids are ignored. */
	order_load(&s, 2, 0, false);
	uint64_t ids[] = {2, 77};
	assert_ok(kvt_worker_wait_memory(s.bed.worker, ids, 2, TEST_LIMIT_MS, &known));
	assert_int_equal(known, 1);
	order_take(&s, 2, KVT_STATUS_MISSING);
	test_transfer_fini(&t);
	order_scene_close(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_full_queue_refuses_stores_first_and_loads_at_four_times_that),
		cmocka_unit_test(a_store_whose_memory_is_waited_for_jumps_the_queue),
		cmocka_unit_test(waiting_for_memory_lifts_the_store_in_front_too),
		cmocka_unit_test(memory_is_quiet_once_it_was_gathered),
	};
	return cmocka_run_group_tests_name("worker_pressure", tests, NULL, NULL);
}
