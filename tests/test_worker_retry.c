/* SPDX-License-Identifier: Apache-2.0 */
/* Retries by class, the circuit breaker, and a store that is full. */
#include "support.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "fake_backend.h"

static const struct test_group page = {1, 0, 1, {4096}};
static const struct test_group parts = {1, 0, 1, {200000}};

struct scene {
	struct fake_store *fake;
	struct test_bed bed;
	struct test_transfer t, stored, large;
	struct fake_rule rule;
};

static void scene_init(struct scene *s)
{
	memset(s, 0, sizeof(*s));
	s->fake = fake_store_create(NULL);
	test_bed_init(&s->bed);
	s->bed.worker_options.lanes = 1;
	s->bed.worker_options.breaker_failures = UINT32_MAX;
	test_transfer_init(&s->t, 1, &page, 1, 1);
	test_transfer_init(&s->stored, 1, &page, 1, 2);
	test_transfer_init(&s->large, 1, &parts, 1, 3);
}

static void scene_open(struct scene *s)
{
	test_bed_open(&s->bed, fake_store_uri(s->fake));
	test_set_geometry(&s->bed, &s->t);
	test_store(&s->bed, &s->stored, KVT_STATUS_STORED);
}

static void scene_close(struct scene *s)
{
	test_bed_close(&s->bed);
	test_transfer_fini(&s->t);
	test_transfer_fini(&s->stored);
	test_transfer_fini(&s->large);
	if (fake_violation(s->fake))
		fail_msg("%s", fake_violation(s->fake));
	assert_int_equal(fake_open_handles(s->fake), 0);
	fake_store_destroy(s->fake);
}

static void fail_ops(struct scene *s, uint32_t ops, int error, unsigned times)
{
	s->rule = (struct fake_rule){.ops = ops,
				     .name = ".bin",
				     .times = times,
				     .action = FAKE_FAIL,
				     .error = error,
				     .after_bytes = 1000};
	fake_rule_add(s->fake, &s->rule);
}

static void heal(struct scene *s)
{
	fake_rule_remove(s->fake, &s->rule);
}

static struct kvt_result *load(struct scene *s)
{
	uint64_t id = s->bed.next_id++;

	test_transfer_poison(&s->stored);
	assert_ok(kvt_worker_submit_load(s->bed.worker, id, &s->stored.transfer, NULL));
	return test_take(s->bed.worker, id);
}

static struct kvt_result *look_up(struct scene *s)
{
	uint64_t id = s->bed.next_id++;

	assert_ok(kvt_worker_submit_lookup(s->bed.worker, id, s->stored.keys, 1, NULL));
	return test_take(s->bed.worker, id);
}

/* ---- Retries ---- */

static void the_class_alone_decides_whether_to_try_again(void **state)
{
#define KVT_X(name, value, class_name, text) value,
	static const int codes[] = {KVT_ERROR_TABLE(KVT_X)};
#undef KVT_X

	(void)state;
	for (size_t i = 0; i < TEST_COUNT(codes); i++) {
		struct scene s;
		enum kvt_error_class class_of = kvt_error_class(codes[i]);
		bool again = class_of == KVT_CLASS_TRANSIENT || class_of == KVT_CLASS_THROTTLED;
		/* These say something about the object, or nothing that a backend says. */
		if (codes[i] == KVT_ENOENT || codes[i] == KVT_ERANGE || codes[i] == KVT_EPRECOND ||
		    codes[i] == KVT_EUNAVAIL)
			continue;
		scene_init(&s);
		s.bed.worker_options.attempts = 3;
		scene_open(&s);
		uint64_t before = test_stats(s.bed.worker).retries[class_of];
		fail_ops(&s, FAKE_OP(KVT_IO_GET), codes[i], 2);
		struct kvt_result *result = load(&s);
		if (again) {
			assert_result(KVT_STATUS_LOADED, result);
			test_transfer_check(&s.stored);
			assert_int_equal(fake_rule_hits(s.fake, &s.rule), 2);
			assert_int_equal(test_stats(s.bed.worker).retries[class_of] - before, 2);
		} else {
			assert_true(result->key_status[0] == KVT_STATUS_FAILED ||
				    class_of == KVT_CLASS_INTEGRITY ||
				    class_of == KVT_CLASS_CANCELED);
			assert_int_equal(fake_rule_hits(s.fake, &s.rule), 1);
			kvt_result_release(result);
		}
		heal(&s);
		scene_close(&s);
	}
}

static void attempts_are_bounded_and_counted(void **state)
{
	(void)state;
	for (uint32_t attempts = 1; attempts <= 4; attempts++) {
		struct scene s;
		scene_init(&s);
		s.bed.worker_options.attempts = attempts;
		scene_open(&s);
		fail_ops(&s, FAKE_OP(KVT_IO_GET), KVT_ENET, 0);
		struct kvt_result *result = load(&s);
		assert_int_equal(result->attempts, attempts);
		assert_result_error(KVT_STATUS_FAILED, KVT_ENET, result);
		assert_int_equal(fake_rule_hits(s.fake, &s.rule), attempts);
		struct kvt_stats stats = test_stats(s.bed.worker);
		assert_int_equal(stats.retries[KVT_CLASS_TRANSIENT], attempts - 1);
		assert_int_equal(stats.last_error, KVT_ENET);
		assert_true(stats.last_error_detail[0] != '\0');
		heal(&s);
		scene_close(&s);
	}
}

static void parts_are_tried_again_one_by_one(void **state)
{
	static const uint32_t ops[] = {KVT_IO_BEGIN, KVT_IO_PART};

	(void)state;
	for (size_t i = 0; i < TEST_COUNT(ops); i++) {
		struct scene s;
		scene_init(&s);
		scene_open(&s);
		fail_ops(&s, FAKE_OP(ops[i]), KVT_ESERVER, 3);
		unsigned parts_before = fake_calls(s.fake, KVT_IO_PART);
		test_store(&s.bed, &s.large, KVT_STATUS_STORED);
		if (ops[i] == KVT_IO_PART)
			assert_int_equal(fake_calls(s.fake, KVT_IO_PART) - parts_before,
					 4 + 1 + 3); /* payload, trailer, tries */
		assert_int_equal(fake_calls(s.fake, KVT_IO_COMMIT), 1);
		assert_int_equal(fake_calls(s.fake, KVT_IO_ABORT), 0);
		heal(&s);
		test_load(&s.bed, &s.large, KVT_STATUS_LOADED);
		scene_close(&s);
	}
}

static void a_lost_answer_is_not_a_failure(void **state)
{
	static const uint32_t ops[] = {KVT_IO_PUT, KVT_IO_COMMIT};

	(void)state;
	for (size_t i = 0; i < TEST_COUNT(ops); i++) {
		struct scene s;
		scene_init(&s);
		scene_open(&s);
		fail_ops(&s, FAKE_OP(ops[i]), KVT_ENET, 1);
		s.rule.action = FAKE_FAIL_AFTER;
		struct test_transfer *t = i ? &s.large : &s.t;
		test_transfer_fill(t);
		assert_ok(kvt_worker_submit_store(s.bed.worker, 500, &t->transfer, NULL));
		struct kvt_result *result = test_take(s.bed.worker, 500);
		/* The object is there; a handle, though, cannot be committed twice. */
		if (ops[i] == KVT_IO_PUT)
			assert_true(kvt_status_is_success(result->key_status[0]));
		kvt_result_release(result);
		heal(&s);
		test_load(&s.bed, t, KVT_STATUS_LOADED);
		scene_close(&s);
	}
}

static void a_dead_store_is_not_hammered(void **state)
{
	enum { JOBS = 300 };
	struct scene s;

	(void)state;
	scene_init(&s);
	s.bed.worker_options.attempts = 5;
	scene_open(&s);
	fail_ops(&s, FAKE_OP(KVT_IO_GET), KVT_ENET, 0);
	for (int i = 0; i < JOBS; i++)
		kvt_result_release(load(&s));
	/* The retry budget is spent long before every job had its five attempts. */
	assert_in_range(fake_rule_hits(s.fake, &s.rule), JOBS, JOBS * 2);
	heal(&s);
	assert_result(KVT_STATUS_LOADED, load(&s));
	scene_close(&s);
}

static void a_store_that_asks_to_slow_down_is_asked_again_and_is_not_dead(void **state)
{
	enum { JOBS = 60, TRIES = 4 };
	struct scene s;

	(void)state;
	scene_init(&s);
	s.bed.worker_options.attempts = TRIES + 1;
	s.bed.worker_options.breaker_failures = 2;
	scene_open(&s);
	/* More retries than the budget has. */
	for (int i = 0; i < JOBS; i++) {
		fail_ops(&s, FAKE_OP(KVT_IO_GET), KVT_ETHROTTLED, TRIES);
		assert_result(KVT_STATUS_LOADED, load(&s));
		assert_int_equal(fake_rule_hits(s.fake, &s.rule), TRIES);
		heal(&s);
	}
	assert_int_equal(test_stats(s.bed.worker).breaker, KVT_BREAKER_CLOSED);
	/* Nor does it take from the budget what others need. */
	fail_ops(&s, FAKE_OP(KVT_IO_GET), KVT_ESERVER, 1);
	assert_result(KVT_STATUS_LOADED, load(&s));
	heal(&s);
	scene_close(&s);
}

/* ---- Circuit breaker ---- */

static void open_breaker(struct scene *s, uint32_t open_ms)
{
	scene_init(s);
	s->bed.worker_options.attempts = 1;
	s->bed.worker_options.breaker_failures = 4;
	s->bed.worker_options.breaker_open_ms = open_ms;
	scene_open(s);
	fail_ops(s, FAKE_OP(KVT_IO_GET) | FAKE_OP(KVT_IO_HEAD) | FAKE_OP(KVT_IO_PUT), KVT_ENET, 0);
	for (int i = 0; i < 4; i++)
		assert_result_error(KVT_STATUS_FAILED, KVT_ENET, load(s));
}

static void an_open_breaker_answers_without_asking(void **state)
{
	struct scene s;

	(void)state;
	open_breaker(&s, 10 * TEST_LIMIT_MS);
	assert_int_equal(test_stats(s.bed.worker).breaker, KVT_BREAKER_OPEN);
	unsigned hits = fake_rule_hits(s.fake, &s.rule);
	assert_result_error(KVT_STATUS_FAILED, KVT_EUNAVAIL, load(&s));
	/* Unknown, never a miss. */
	assert_result_error(KVT_STATUS_UNKNOWN, KVT_EUNAVAIL, look_up(&s));
	test_transfer_fill(&s.t);
	assert_ok(kvt_worker_submit_store(s.bed.worker, 600, &s.t.transfer, NULL));
	assert_result_error(KVT_STATUS_FAILED, KVT_EUNAVAIL, test_take(s.bed.worker, 600));
	assert_int_equal(fake_rule_hits(s.fake, &s.rule), hits);
	heal(&s);
	assert_result_error(KVT_STATUS_FAILED, KVT_EUNAVAIL, load(&s));
	scene_close(&s);
}

static void one_success_in_between_keeps_it_closed(void **state)
{
	struct scene s;

	(void)state;
	scene_init(&s);
	s.bed.worker_options.attempts = 1;
	s.bed.worker_options.breaker_failures = 4;
	scene_open(&s);
	for (int round = 0; round < 3; round++) {
		fail_ops(&s, FAKE_OP(KVT_IO_GET), KVT_ENET, 3);
		for (int i = 0; i < 3; i++)
			assert_result_error(KVT_STATUS_FAILED, KVT_ENET, load(&s));
		assert_result(KVT_STATUS_LOADED, load(&s));
		heal(&s);
	}
	/* Failures that say nothing about the store do not count. */
	fail_ops(&s, FAKE_OP(KVT_IO_GET), KVT_EACCES, 20);
	for (int i = 0; i < 20; i++)
		assert_result_error(KVT_STATUS_FAILED, KVT_EACCES, load(&s));
	heal(&s);
	for (int i = 0; i < 20; i++)
		test_load(&s.bed, &s.t, KVT_STATUS_MISSING);
	assert_int_equal(test_stats(s.bed.worker).breaker, KVT_BREAKER_CLOSED);
	scene_close(&s);
}

static void a_probe_closes_it_when_the_store_is_well_again(void **state)
{
	struct scene s;

	(void)state;
	open_breaker(&s, 1);
	/* Probes fail, and it stays open for another while. */
	for (int i = 0; i < 3; i++) {
		while (test_stats(s.bed.worker).breaker != KVT_BREAKER_HALF_OPEN)
			(void)sched_yield();
		kvt_result_release(load(&s));
	}
	heal(&s);
	for (;;) {
		struct kvt_result *result = load(&s);
		uint32_t status = result->status;
		assert_true(status == KVT_STATUS_LOADED || result->error == KVT_EUNAVAIL);
		kvt_result_release(result);
		if (status == KVT_STATUS_LOADED)
			break;
	}
	assert_int_equal(test_stats(s.bed.worker).breaker, KVT_BREAKER_CLOSED);
	assert_result(KVT_STATUS_HIT, look_up(&s));
	scene_close(&s);
}

static void half_open_lets_one_probe_through(void **state)
{
	struct scene s;

	(void)state;
	open_breaker(&s, 1);
	heal(&s);
	while (test_stats(s.bed.worker).breaker != KVT_BREAKER_HALF_OPEN)
		(void)sched_yield();
	s.rule =
		(struct fake_rule){.ops = FAKE_OP(KVT_IO_GET), .name = ".bin", .action = FAKE_HOLD};
	fake_rule_add(s.fake, &s.rule);
	test_transfer_poison(&s.stored);
	assert_ok(kvt_worker_submit_load(s.bed.worker, 700, &s.stored.transfer, NULL));
	assert_true(fake_await_held(s.fake, &s.rule, 1));
	/* While it is on its way everybody else is turned away. */
	for (int i = 0; i < 3; i++)
		assert_result_error(KVT_STATUS_UNKNOWN, KVT_EUNAVAIL, look_up(&s));
	heal(&s);
	assert_result(KVT_STATUS_LOADED, test_take(s.bed.worker, 700));
	assert_result(KVT_STATUS_HIT, look_up(&s));
	scene_close(&s);
}

static void a_probe_that_is_canceled_lets_another_one_through(void **state)
{
	struct scene s;

	(void)state;
	open_breaker(&s, 1);
	heal(&s);
	while (test_stats(s.bed.worker).breaker != KVT_BREAKER_HALF_OPEN)
		(void)sched_yield();
	s.rule =
		(struct fake_rule){.ops = FAKE_OP(KVT_IO_GET), .name = ".bin", .action = FAKE_HOLD};
	fake_rule_add(s.fake, &s.rule);
	assert_ok(kvt_worker_submit_load(s.bed.worker, 700, &s.stored.transfer, NULL));
	assert_true(fake_await_held(s.fake, &s.rule, 1));
	assert_ok(kvt_worker_cancel(s.bed.worker, 700));
	heal(&s);
	kvt_result_release(test_take(s.bed.worker, 700));
	for (;;) {
		struct kvt_result *result = look_up(&s);
		uint32_t status = result->status;
		kvt_result_release(result);
		if (status == KVT_STATUS_HIT)
			break;
		assert_int_equal(status, KVT_STATUS_UNKNOWN);
	}
	scene_close(&s);
}

/* ---- A full store ---- */

static void a_full_store_pauses_stores_and_not_loads(void **state)
{
	struct scene s;

	(void)state;
	scene_init(&s);
	scene_open(&s);
	fail_ops(&s, FAKE_OP(KVT_IO_PUT), KVT_ENOSPC, 1);
	test_transfer_fill(&s.t);
	assert_ok(kvt_worker_submit_store(s.bed.worker, 800, &s.t.transfer, NULL));
	assert_result_error(KVT_STATUS_FAILED, KVT_ENOSPC, test_take(s.bed.worker, 800));
	assert_int_equal(fake_rule_hits(s.fake, &s.rule), 1);
	heal(&s);
	assert_int_equal(test_stats(s.bed.worker).stores_paused, 1);
	size_t before = fake_record_count(s.fake);
	assert_ok(kvt_worker_submit_store(s.bed.worker, 801, &s.t.transfer, NULL));
	struct kvt_result *result = test_take(s.bed.worker, 801);
	assert_true(result->detail[0] != '\0');
	assert_result_error(KVT_STATUS_FAILED, KVT_ENOSPC, result);
	assert_int_equal(fake_record_count(s.fake), before);
	assert_result(KVT_STATUS_LOADED, load(&s));
	assert_result(KVT_STATUS_HIT, look_up(&s));
	/* Another worker has not heard of it. */
	test_bed_close_worker(&s.bed);
	test_bed_open_worker(&s.bed);
	test_store(&s.bed, &s.t, KVT_STATUS_STORED);
	scene_close(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_class_alone_decides_whether_to_try_again),
		cmocka_unit_test(attempts_are_bounded_and_counted),
		cmocka_unit_test(parts_are_tried_again_one_by_one),
		cmocka_unit_test(a_lost_answer_is_not_a_failure),
		cmocka_unit_test(a_dead_store_is_not_hammered),
		cmocka_unit_test(a_store_that_asks_to_slow_down_is_asked_again_and_is_not_dead),
		cmocka_unit_test(an_open_breaker_answers_without_asking),
		cmocka_unit_test(one_success_in_between_keeps_it_closed),
		cmocka_unit_test(a_probe_closes_it_when_the_store_is_well_again),
		cmocka_unit_test(half_open_lets_one_probe_through),
		cmocka_unit_test(a_probe_that_is_canceled_lets_another_one_through),
		cmocka_unit_test(a_full_store_pauses_stores_and_not_loads),
	};
	return cmocka_run_group_tests_name("worker_retry", tests, NULL, NULL);
}
