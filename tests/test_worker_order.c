/* SPDX-License-Identifier: Apache-2.0 */
/* What runs before what: queue classes, stores and loads of one key, back-pressure, and waiting for
 * memory. One lane with one request in flight, stopped at a gate, makes the order visible. */
#include "support.h"

#include <stdlib.h>
#include <string.h>

#include "fake_backend.h"

static const struct test_group page = {1, 0, 1, {4096}};

struct scene {
	struct fake_store *fake;
	struct test_bed bed;
	struct test_transfer blocker; /* its load is held */
	struct fake_rule gate;
	char gate_name[KVT_NAME_BYTES];
	struct test_transfer t[8]; /* one chunk each */
	char names[8][KVT_NAME_BYTES];
};

static void scene_init(struct scene *s, const struct fake_config *config)
{
	memset(s, 0, sizeof(*s));
	s->fake = fake_store_create(config);
	test_bed_init(&s->bed);
	s->bed.worker_options.lanes = 1;
	s->bed.worker_options.depth = 1;
}

static void name_of(const struct scene *s, const struct test_transfer *t, char *name)
{
	assert_true(kvt_store_object_name(s->bed.store, &t->keys[0], name, KVT_NAME_BYTES) > 0);
}

static void scene_open(struct scene *s)
{
	struct test_transfer first;

	test_bed_open(&s->bed, fake_store_uri(s->fake));
	/* config.json is out of the way. */
	test_transfer_init(&first, 1, &page, 1, 999);
	test_store(&s->bed, &first, KVT_STATUS_STORED);
	test_transfer_fini(&first);
	test_transfer_init(&s->blocker, 1, &page, 1, 1000);
	name_of(s, &s->blocker, s->gate_name);
	for (uint32_t i = 0; i < TEST_COUNT(s->t); i++) {
		test_transfer_init(&s->t[i], 1, &page, 1, 2000 + i);
		test_transfer_fill(&s->t[i]);
		test_set_geometry(&s->bed, &s->t[i]);
		name_of(s, &s->t[i], s->names[i]);
	}
	s->bed.next_id = 5000;
}

/* The only lane is busy until the gate opens. */
static void close_gate(struct scene *s)
{
	s->gate = (struct fake_rule){.ops = FAKE_ALL, .name = s->gate_name, .action = FAKE_HOLD};
	fake_rule_add(s->fake, &s->gate);
	assert_ok(kvt_worker_submit_load(s->bed.worker, 1000, &s->blocker.transfer, NULL));
	assert_true(fake_await_held(s->fake, &s->gate, 1));
	fake_records_clear(s->fake);
}

static void open_gate(struct scene *s)
{
	fake_rule_remove(s->fake, &s->gate);
	assert_ok(kvt_worker_drain(s->bed.worker, TEST_LIMIT_MS));
	assert_result(KVT_STATUS_MISSING, test_take(s->bed.worker, 1000));
}

static void scene_close(struct scene *s)
{
	test_bed_close(&s->bed);
	test_transfer_fini(&s->blocker);
	for (size_t i = 0; i < TEST_COUNT(s->t); i++)
		test_transfer_fini(&s->t[i]);
	if (fake_violation(s->fake))
		fail_msg("%s", fake_violation(s->fake));
	fake_store_destroy(s->fake);
}

/* When the first request for an object was made. */
static size_t first_request(struct scene *s, const char *name)
{
	size_t count = fake_record_count(s->fake);

	for (size_t i = 0; i < count; i++)
		if (strcmp(fake_record_at(s->fake, i).name, name) == 0)
			return i;
	fail_msg("no request for %s", name);
	return 0;
}

#define assert_before(s, a, b)                                                                     \
	assert_true(first_request(s, (s)->names[a]) < first_request(s, (s)->names[b]))

static void submit_store(struct scene *s, uint64_t id, uint32_t i)
{
	assert_ok(kvt_worker_submit_store(s->bed.worker, id, &s->t[i].transfer, NULL));
}

static void submit_load(struct scene *s, uint64_t id, uint32_t i, bool expedited)
{
	struct kvt_submit_options options = KVT_INIT(options);

	options.expedited = expedited;
	assert_ok(kvt_worker_submit_load(s->bed.worker, id, &s->t[i].transfer, &options));
}

static void take(struct scene *s, uint64_t id, uint32_t status)
{
	assert_result(status, test_take(s->bed.worker, id));
}

/* ---- Classes ---- */

static void lookups_go_before_expedited_loads_before_loads_before_stores(void **state)
{
	struct scene s;

	(void)state;
	scene_init(&s, NULL);
	scene_open(&s);
	close_gate(&s);
	submit_store(&s, 1, 0);
	submit_load(&s, 2, 1, false);
	submit_load(&s, 3, 2, true);
	assert_ok(kvt_worker_submit_lookup(s.bed.worker, 4, s.t[3].keys, 1, NULL));
	open_gate(&s);
	assert_before(&s, 3, 2);
	assert_before(&s, 2, 1);
	assert_before(&s, 1, 0);
	take(&s, 1, KVT_STATUS_STORED);
	take(&s, 2, KVT_STATUS_MISSING);
	take(&s, 3, KVT_STATUS_MISSING);
	take(&s, 4, KVT_STATUS_MISS);
	scene_close(&s);
}

static void one_class_runs_in_order_of_submission(void **state)
{
	struct scene s;

	(void)state;
	for (int stores = 0; stores < 2; stores++) {
		scene_init(&s, NULL);
		scene_open(&s);
		close_gate(&s);
		for (uint32_t i = 0; i < 8; i++)
			stores ? submit_store(&s, i, i) : submit_load(&s, i, i, false);
		open_gate(&s);
		for (uint32_t i = 0; i + 1 < 8; i++)
			assert_before(&s, i, i + 1);
		scene_close(&s);
	}
}

static void stores_do_not_starve(void **state)
{
	enum { AHEAD = 200 };
	struct scene s;
	struct test_transfer load;
	struct kvt_result *result;
	uint64_t next = 2, taken = 0;
	bool stored = false;

	(void)state;
	scene_init(&s, NULL);
	scene_open(&s);
	test_transfer_init(&load, 1, &page, 1, 77);
	close_gate(&s);
	for (; next < AHEAD; next++)
		assert_ok(kvt_worker_submit_load(s.bed.worker, next, &load.transfer, NULL));
	submit_store(&s, 1, 0);
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
	scene_close(&s);
}

/* ---- One key ---- */

static void lookups_of_a_key_that_is_being_stored_are_pending(void **state)
{
	struct scene s;
	struct fake_rule hold = {.ops = FAKE_OP(KVT_IO_PUT), .action = FAKE_HOLD};

	(void)state;
	scene_init(&s, NULL);
	s.bed.worker_options.depth = 4;
	scene_open(&s);
	fake_rule_add(s.fake, &hold);
	submit_store(&s, 1, 0);
	assert_true(fake_await_held(s.fake, &hold, 1));
	hold.name = s.names[0];
	test_lookup(&s.bed, s.t[0].keys, 1, KVT_STATUS_PENDING);
	fake_rule_remove(s.fake, &hold);
	take(&s, 1, KVT_STATUS_STORED);
	test_lookup(&s.bed, s.t[0].keys, 1, KVT_STATUS_HIT);

	/* Queued ones too: the lane gets to the lookup before it gets to the store. */
	close_gate(&s);
	submit_store(&s, 2, 1);
	assert_ok(kvt_worker_submit_lookup(s.bed.worker, 3, s.t[1].keys, 1, NULL));
	open_gate(&s);
	take(&s, 3, KVT_STATUS_PENDING);
	take(&s, 2, KVT_STATUS_STORED);
	scene_close(&s);
}

static void a_load_waits_for_the_store_of_its_key(void **state)
{
	struct scene s;
	struct fake_rule hold = {.ops = FAKE_OP(KVT_IO_PUT), .action = FAKE_HOLD};

	(void)state;
	scene_init(&s, NULL);
	s.bed.worker_options.depth = 4;
	scene_open(&s);
	struct test_transfer target;
	test_transfer_init(&target, 1, &page, 1, 2000);
	fake_rule_add(s.fake, &hold);
	submit_store(&s, 1, 0);
	assert_true(fake_await_held(s.fake, &hold, 1));
	assert_ok(kvt_worker_submit_load(s.bed.worker, 2, &target.transfer, NULL));
	/* Another key's load passes it: the lane is not the reason for waiting. */
	submit_load(&s, 3, 1, false);
	take(&s, 3, KVT_STATUS_MISSING);
	assert_int_equal(fake_calls(s.fake, KVT_IO_GET), 1);
	assert_null(test_take_now(s.bed.worker, 2));
	fake_rule_remove(s.fake, &hold);
	take(&s, 1, KVT_STATUS_STORED);
	take(&s, 2, KVT_STATUS_LOADED);
	test_transfer_check(&target);
	test_transfer_fini(&target);
	scene_close(&s);
}

static void a_load_lifts_the_store_that_it_waits_for(void **state)
{
	struct scene s;
	struct test_transfer target;

	(void)state;
	scene_init(&s, NULL);
	scene_open(&s);
	test_transfer_init(&target, 1, &page, 1, 2001);
	close_gate(&s);
	submit_store(&s, 1, 0);
	submit_store(&s, 2, 1);
	assert_ok(kvt_worker_submit_load(s.bed.worker, 3, &target.transfer, NULL));
	open_gate(&s);
	assert_before(&s, 1, 0);
	take(&s, 1, KVT_STATUS_STORED);
	take(&s, 2, KVT_STATUS_STORED);
	take(&s, 3, KVT_STATUS_LOADED);
	test_transfer_check(&target);
	test_transfer_fini(&target);
	scene_close(&s);
}

static void a_load_gives_up_waiting_at_its_own_deadline(void **state)
{
	struct scene s;
	struct fake_rule hold = {.ops = FAKE_OP(KVT_IO_PUT), .action = FAKE_HOLD};
	struct kvt_submit_options options = KVT_INIT(options);
	struct test_transfer target;

	(void)state;
	scene_init(&s, NULL);
	s.bed.worker_options.depth = 4;
	scene_open(&s);
	test_transfer_init(&target, 1, &page, 1, 2000);
	fake_rule_add(s.fake, &hold);
	submit_store(&s, 1, 0);
	assert_true(fake_await_held(s.fake, &hold, 1));
	options.timeout_ms = 10;
	assert_ok(kvt_worker_submit_load(s.bed.worker, 2, &target.transfer, &options));
	assert_result_error(KVT_STATUS_FAILED, KVT_ETIMEDOUT, test_take(s.bed.worker, 2));
	assert_int_equal(fake_held(s.fake, &hold), 1);
	fake_rule_remove(s.fake, &hold);
	take(&s, 1, KVT_STATUS_STORED);
	test_transfer_fini(&target);
	scene_close(&s);
}

static void loads_are_not_merged(void **state)
{
	struct scene s;
	struct test_transfer twin;

	(void)state;
	scene_init(&s, NULL);
	scene_open(&s);
	test_store(&s.bed, &s.t[0], KVT_STATUS_STORED);
	test_transfer_init(&twin, 1, &page, 1, 2000);
	close_gate(&s);
	unsigned gets = fake_calls(s.fake, KVT_IO_GET);
	submit_load(&s, 1, 0, false);
	assert_ok(kvt_worker_submit_load(s.bed.worker, 2, &twin.transfer, NULL));
	open_gate(&s);
	assert_int_equal(fake_calls(s.fake, KVT_IO_GET) - gets, 2);
	take(&s, 1, KVT_STATUS_LOADED);
	take(&s, 2, KVT_STATUS_LOADED);
	test_transfer_check(&twin);
	test_transfer_fini(&twin);
	scene_close(&s);
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
		struct scene s;
		struct test_transfer one, two, part;
		struct fake_rule hold = {.ops = FAKE_OP(KVT_IO_PUT), .action = FAKE_HOLD};
		scene_init(&s, NULL);
		s.bed.worker_options.depth = 4;
		scene_open(&s);
		part_of_chunk(&one, cases[i].a, cases[i].m, 1);
		part_of_chunk(&two, cases[i].b, cases[i].n, 2);
		fake_rule_add(s.fake, &hold);
		assert_ok(kvt_worker_submit_store(s.bed.worker, 1, &one.transfer, NULL));
		assert_true(fake_await_held(s.fake, &hold, 1));
		fake_records_clear(s.fake);
		assert_ok(kvt_worker_submit_store(s.bed.worker, 2, &two.transfer, NULL));
		submit_load(&s, 3, 0, false);
		take(&s, 3, KVT_STATUS_MISSING);
		assert_int_equal(fake_held(s.fake, &hold), 1);
		unsigned puts = fake_calls(s.fake, KVT_IO_PUT);
		fake_rule_remove(s.fake, &hold);
		take(&s, 1, KVT_STATUS_STORED);
		take(&s, 2, cases[i].skipped ? KVT_STATUS_SKIPPED : KVT_STATUS_STORED);
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
		scene_close(&s);
	}
}

static void followers_go_on_when_the_first_store_fails(void **state)
{
	struct scene s;
	struct test_transfer twin, target;
	struct fake_rule hold = {
		.ops = FAKE_OP(KVT_IO_PUT), .times = 1, .action = FAKE_HOLD, .error = KVT_EACCES};

	(void)state;
	for (int with_store = 0; with_store < 2; with_store++) {
		scene_init(&s, NULL);
		s.bed.worker_options.depth = 4;
		scene_open(&s);
		test_transfer_init(&twin, 1, &page, 1, 2000);
		test_transfer_fill(&twin);
		test_transfer_init(&target, 1, &page, 1, 2000);
		fake_rule_add(s.fake, &hold);
		submit_store(&s, 1, 0);
		assert_true(fake_await_held(s.fake, &hold, 1));
		if (with_store)
			assert_ok(kvt_worker_submit_store(s.bed.worker, 2, &twin.transfer, NULL));
		assert_ok(kvt_worker_submit_load(s.bed.worker, 3, &target.transfer, NULL));
		fake_rule_remove(s.fake, &hold);
		assert_result_error(KVT_STATUS_FAILED, KVT_EACCES, test_take(s.bed.worker, 1));
		if (with_store)
			take(&s, 2, KVT_STATUS_STORED);
		/* Alone, the load looks for itself; behind the second store it may or may not wait
		 * for that one. */
		struct kvt_result *result = test_take(s.bed.worker, 3);
		if (!with_store || result->status != KVT_STATUS_LOADED)
			assert_result(KVT_STATUS_MISSING, result);
		else
			kvt_result_release(result);
		test_transfer_fini(&twin);
		test_transfer_fini(&target);
		scene_close(&s);
	}
}

static void followers_go_on_when_the_first_store_is_canceled(void **state)
{
	struct scene s;
	struct test_transfer twin;

	(void)state;
	scene_init(&s, NULL);
	scene_open(&s);
	test_transfer_init(&twin, 1, &page, 1, 2000);
	test_transfer_fill(&twin);
	close_gate(&s);
	submit_store(&s, 1, 0);
	assert_ok(kvt_worker_submit_store(s.bed.worker, 2, &twin.transfer, NULL));
	assert_ok(kvt_worker_cancel(s.bed.worker, 1));
	assert_result_error(KVT_STATUS_CANCELED, KVT_ECANCELED, test_take(s.bed.worker, 1));
	open_gate(&s);
	take(&s, 2, KVT_STATUS_STORED);
	test_transfer_fini(&twin);
	scene_close(&s);
}

/* ---- Back-pressure ---- */

static uint64_t waiting_chunks(struct scene *s)
{
	struct kvt_stats stats = test_stats(s->bed.worker);

	return stats.queued_chunks[0] + stats.queued_chunks[1] + stats.queued_chunks[2] +
	       stats.queued_chunks[3];
}

static void a_full_queue_refuses_stores_first_and_loads_at_four_times_that(void **state)
{
	enum { BOUND = 8 };
	static const struct test_group hundred = {100, 0, 1, {64}};
	struct scene s;
	struct test_transfer big, one;
	struct kvt_transfer single;
	uint64_t id = 1;
	int answer;

	(void)state;
	scene_init(&s, NULL);
	s.bed.worker_options.queue_chunks = BOUND;
	scene_open(&s);
	test_transfer_init(&big, 1, &hundred, 1, 88);
	test_transfer_fill(&big);
	test_transfer_init(&one, 1, &page, 1, 89);
	test_set_geometry(&s.bed, &one);
	close_gate(&s);
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
	open_gate(&s);

	/* A job of any size is taken whole while there is room for one chunk. */
	close_gate(&s);
	assert_ok(kvt_worker_submit_store(s.bed.worker, 2000, &big.transfer, NULL));
	assert_returns(KVT_EAGAIN,
		       kvt_worker_submit_store(s.bed.worker, 2001, &one.transfer, NULL));
	open_gate(&s);
	assert_ok(kvt_worker_submit_store(s.bed.worker, 2001, &one.transfer, NULL));
	take(&s, 2001, KVT_STATUS_STORED);
	test_transfer_fini(&big);
	test_transfer_fini(&one);
	scene_close(&s);
}

/* ---- Waiting for memory ---- */

static void a_store_whose_memory_is_waited_for_jumps_the_queue(void **state)
{
	struct scene s;
	uint64_t id = 3;

	(void)state;
	scene_init(&s, NULL);
	scene_open(&s);
	close_gate(&s);
	submit_load(&s, 1, 1, false);
	submit_store(&s, 2, 2);
	submit_store(&s, 3, 3);
	assert_returns(KVT_ETIMEDOUT, kvt_worker_wait_memory(s.bed.worker, &id, 1, 0, NULL));
	open_gate(&s);
	assert_before(&s, 3, 2);
	assert_before(&s, 3, 1);
	scene_close(&s);
}

static void waiting_for_memory_lifts_the_store_in_front_too(void **state)
{
	struct scene s;
	struct test_transfer twin;
	uint64_t id = 3;

	(void)state;
	scene_init(&s, NULL);
	scene_open(&s);
	test_transfer_init(&twin, 1, &page, 1, 2002);
	test_transfer_fill(&twin);
	close_gate(&s);
	submit_store(&s, 1, 1);
	submit_store(&s, 2, 2);
	assert_ok(kvt_worker_submit_store(s.bed.worker, 3, &twin.transfer, NULL));
	assert_returns(KVT_ETIMEDOUT, kvt_worker_wait_memory(s.bed.worker, &id, 1, 0, NULL));
	open_gate(&s);
	assert_before(&s, 2, 1);
	take(&s, 2, KVT_STATUS_STORED);
	take(&s, 3, KVT_STATUS_SKIPPED);
	test_transfer_fini(&twin);
	scene_close(&s);
}

static void memory_is_quiet_once_it_was_gathered(void **state)
{
	/* Memory that does not fit the backend goes through staging. */
	static const struct fake_config config = {.capabilities = FAKE_CAPABILITIES,
						  .memory_alignment = 4096};
	static const struct test_group odd = {4, 0, 1, {1000}};
	struct scene s;
	struct test_transfer t;
	struct fake_rule hold = {.ops = FAKE_OP(KVT_IO_PUT), .action = FAKE_HOLD};
	uint64_t id = 1;
	size_t known;

	(void)state;
	scene_init(&s, &config);
	s.bed.worker_options.depth = 4;
	scene_open(&s);
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
	take(&s, 1, KVT_STATUS_STORED);
	test_load(&s.bed, &t, KVT_STATUS_LOADED);
	/* Loads are quiet when they are done; unknown ids are ignored. */
	submit_load(&s, 2, 0, false);
	uint64_t ids[] = {2, 77};
	assert_ok(kvt_worker_wait_memory(s.bed.worker, ids, 2, TEST_LIMIT_MS, &known));
	assert_int_equal(known, 1);
	take(&s, 2, KVT_STATUS_MISSING);
	test_transfer_fini(&t);
	scene_close(&s);
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
		cmocka_unit_test(a_full_queue_refuses_stores_first_and_loads_at_four_times_that),
		cmocka_unit_test(a_store_whose_memory_is_waited_for_jumps_the_queue),
		cmocka_unit_test(waiting_for_memory_lifts_the_store_in_front_too),
		cmocka_unit_test(memory_is_quiet_once_it_was_gathered),
	};
	return cmocka_run_group_tests_name("worker_order", tests, NULL, NULL);
}
