/* SPDX-License-Identifier: Apache-2.0 */
/* Ending a worker with work at each stage, and what a forked child may still call. */
#include "support.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fake_backend.h"
#include "fake_device.h"

static const struct test_group page = {1, 0, 1, {4096}};
static const struct test_group many = {40, 0, 1, {4096}};
static const struct test_group parts = {1, 0, 1, {400000}};

struct scene {
	struct fake_store *fake;
	struct test_bed bed;
	struct test_transfer t, many, large;
	struct test_allocator allocator;
	struct fake_rule hold;
};

static void scene_init(struct scene *s)
{
	memset(s, 0, sizeof(*s));
	s->fake = fake_store_create(NULL);
	test_bed_init(&s->bed);
	test_allocator_init(&s->allocator);
	test_allocator_hooks(&s->allocator, &s->bed.worker_options.hooks.allocator);
	test_transfer_init(&s->t, 1, &page, 1, 1);
	test_transfer_init(&s->many, 1, &many, 1, 2);
	test_transfer_init(&s->large, 1, &parts, 1, 3);
	test_transfer_fill(&s->t);
	test_transfer_fill(&s->many);
	test_transfer_fill(&s->large);
}

static void scene_open(struct scene *s)
{
	struct test_transfer first;

	test_bed_open(&s->bed, fake_store_uri(s->fake));
	test_transfer_init(&first, 1, &page, 1, 999);
	test_store(&s->bed, &first, KVT_STATUS_STORED);
	test_transfer_fini(&first);
}

/* The worker is gone already. */
static void scene_close(struct scene *s)
{
	s->bed.worker = NULL;
	assert_int_equal(atomic_load(&s->allocator.live_blocks), 0);
	assert_int_equal(fake_sessions(s->fake), 0);
	assert_int_equal(fake_in_flight(s->fake), 0);
	assert_int_equal(fake_open_handles(s->fake), 0);
	test_bed_close(&s->bed);
	if (fake_violation(s->fake))
		fail_msg("%s", fake_violation(s->fake));
	fake_store_destroy(s->fake);
	test_transfer_fini(&s->t);
	test_transfer_fini(&s->many);
	test_transfer_fini(&s->large);
}

static void hold(struct scene *s, uint32_t ops)
{
	s->hold = (struct fake_rule){.ops = ops, .name = ".bin", .action = FAKE_STICK};
	fake_rule_add(s->fake, &s->hold);
}

static void an_idle_worker_ends_at_once(void **state)
{
	struct scene s;

	(void)state;
	for (int i = 0; i < 50; i++) {
		scene_init(&s);
		test_bed_open(&s.bed, fake_store_uri(s.fake));
		assert_ok(kvt_worker_destroy(s.bed.worker, -1));
		scene_close(&s);
	}
}

static void every_stage_of_a_request_can_be_waited_for(void **state)
{
	static const uint32_t ops[] = {KVT_IO_HEAD, KVT_IO_PUT,	   KVT_IO_BEGIN,
				       KVT_IO_PART, KVT_IO_COMMIT, KVT_IO_GET};

	(void)state;
	for (size_t i = 0; i < TEST_COUNT(ops); i++) {
		struct scene s;
		struct test_transfer *t;
		bool large = ops[i] >= KVT_IO_BEGIN && ops[i] <= KVT_IO_COMMIT;
		scene_init(&s);
		s.bed.worker_options.lanes = 1;
		scene_open(&s);
		t = large ? &s.large : &s.t;
		hold(&s, FAKE_OP(ops[i]));
		if (ops[i] == KVT_IO_GET)
			assert_ok(kvt_worker_submit_load(s.bed.worker, 5000, &t->transfer, NULL));
		else
			assert_ok(kvt_worker_submit_store(s.bed.worker, 5000, &t->transfer, NULL));
		assert_true(fake_await_held(s.fake, &s.hold, 1));
		/* The memory is still lent: nothing may be freed. */
		assert_fails(KVT_EBUSY, "1", kvt_worker_destroy(s.bed.worker, 0));
		assert_fails(KVT_EBUSY, "1", kvt_worker_destroy(s.bed.worker, 1));
		assert_true(atomic_load(&s.allocator.live_blocks) > 0);
		fake_rule_remove(s.fake, &s.hold);
		assert_ok(kvt_worker_destroy(s.bed.worker, TEST_LIMIT_MS));
		assert_false(fake_touches(s.fake, t->memory, t->memory_bytes));
		scene_close(&s);
	}
}

static void what_waits_is_dropped_and_new_jobs_are_refused(void **state)
{
	struct scene s;
	struct kvt_result *result;
	uint64_t id;

	(void)state;
	scene_init(&s);
	s.bed.worker_options.lanes = 1;
	s.bed.worker_options.depth = 1;
	scene_open(&s);
	hold(&s, FAKE_ALL);
	assert_ok(kvt_worker_submit_store(s.bed.worker, 5000, &s.t.transfer, NULL));
	assert_true(fake_await_held(s.fake, &s.hold, 1));
	assert_ok(kvt_worker_submit_store(s.bed.worker, 5001, &s.many.transfer, NULL));
	assert_ok(kvt_worker_submit_load(s.bed.worker, 5002, &s.large.transfer, NULL));
	size_t requests = fake_record_count(s.fake);
	assert_returns(KVT_EBUSY, kvt_worker_destroy(s.bed.worker, 0));
	assert_fails(KVT_ESHUTDOWN, "destroyed",
		     kvt_worker_submit_load(s.bed.worker, 5003, &s.t.transfer, NULL));
	/* The dropped jobs completed; they may be polled as long as the worker is there. */
	for (id = 5001; id <= 5002; id++) {
		assert_ok(kvt_worker_wait(s.bed.worker, &id, 1, 0, NULL));
		result = test_take_now(s.bed.worker, id);
		assert_non_null(result);
		for (uint64_t k = 0; k < result->key_count; k++) {
			assert_int_equal(result->key_status[k], KVT_STATUS_CANCELED);
			assert_int_equal(result->key_error[k], KVT_ESHUTDOWN);
		}
		kvt_result_release(result);
	}
	fake_rule_remove(s.fake, &s.hold);
	assert_ok(kvt_worker_destroy(s.bed.worker, TEST_LIMIT_MS));
	/* The store that was asked for what is there does not go on to write. */
	assert_int_equal(fake_record_count(s.fake), requests);
	scene_close(&s);
}

static void completions_that_nobody_polled_are_freed(void **state)
{
	struct scene s;

	(void)state;
	scene_init(&s);
	scene_open(&s);
	for (uint64_t id = 5000; id < 5020; id++)
		assert_ok(kvt_worker_submit_load(s.bed.worker, id, &s.many.transfer, NULL));
	struct kvt_result *kept = test_take(s.bed.worker, 5003);
	assert_ok(kvt_worker_drain(s.bed.worker, TEST_LIMIT_MS));
	assert_ok(kvt_worker_destroy(s.bed.worker, TEST_LIMIT_MS));
	assert_int_equal(kept->key_count, 40);
	assert_int_equal(kept->key_status[39], KVT_STATUS_MISSING);
	kvt_result_release(kept);
	test_drop_untaken();
	scene_close(&s);
}

static void a_worker_full_of_work_ends(void **state)
{
	(void)state;
	for (int round = 0; round < 20; round++) {
		struct scene s;
		scene_init(&s);
		s.bed.worker_options.lanes = 3;
		s.bed.worker_options.depth = 2;
		scene_open(&s);
		for (uint64_t id = 5000; id < 5010; id++) {
			assert_ok(kvt_worker_submit_store(
				s.bed.worker, id, id % 3 ? &s.many.transfer : &s.large.transfer,
				NULL));
			assert_ok(kvt_worker_submit_load(s.bed.worker, id + 100, &s.t.transfer,
							 NULL));
		}
		assert_ok(kvt_worker_destroy(s.bed.worker, TEST_LIMIT_MS));
		assert_false(fake_touches(s.fake, s.many.memory, s.many.memory_bytes));
		scene_close(&s);
	}
}

static void jobs_that_wait_for_events_and_retries_are_dropped(void **state)
{
	struct scene s;
	struct kvt_event *event;
	struct kvt_submit_options options = KVT_INIT(options);
	struct fake_rule fail = {
		.ops = FAKE_OP(KVT_IO_PUT), .name = ".bin", .action = FAKE_FAIL, .error = KVT_ENET};

	(void)state;
	assert_ok(kvt_event_create(&event));
	scene_init(&s);
	s.bed.worker_options.retry_base_ms = s.bed.worker_options.retry_max_ms = 10 * TEST_LIMIT_MS;
	s.bed.worker_options.breaker_failures = UINT32_MAX;
	scene_open(&s);
	options.ready.kind = KVT_READY_EVENT;
	options.ready.handle = event;
	assert_ok(kvt_worker_submit_load(s.bed.worker, 5000, &s.large.transfer, &options));
	fake_rule_add(s.fake, &fail);
	assert_ok(kvt_worker_submit_store(s.bed.worker, 5001, &s.t.transfer, NULL));
	while (fake_rule_hits(s.fake, &fail) == 0)
		(void)sched_yield();
	assert_ok(kvt_worker_destroy(s.bed.worker, TEST_LIMIT_MS));
	fake_rule_remove(s.fake, &fail);
	kvt_event_destroy(event);
	scene_close(&s);
}

static void copies_in_flight_are_waited_for(void **state)
{
	struct scene s;
	struct fake_gpu *gpu = fake_gpu_create(1 << 20, true);
	struct test_transfer t, behind;

	(void)state;
	scene_init(&s);
	s.bed.worker_options.staging_bytes = (64 + 68) * 1024;
	assert_ok(fake_gpu_open(gpu, NULL, &s.bed.device));
	test_bed_open(&s.bed, fake_store_uri(s.fake));
	struct test_group part = {1, 0, 1, {64 << 10}};
	test_transfer_init_at(&t, 1, &part, 1, 5, fake_gpu_memory(gpu), 1 << 18,
			      fake_gpu_ptr(gpu, 0));
	test_transfer_init_at(&behind, 1, &part, 1, 6, fake_gpu_memory(gpu) + (1 << 18), 1 << 18,
			      fake_gpu_ptr(gpu, 1 << 18));
	fake_gpu_hold(gpu);
	assert_ok(kvt_worker_submit_store(s.bed.worker, 1, &t.transfer, NULL));
	assert_true(fake_gpu_await_queued(gpu, 1));
	/* Waits for staging memory. */
	assert_ok(kvt_worker_submit_store(s.bed.worker, 2, &behind.transfer, NULL));
	while (test_stats(s.bed.worker).staging_waiters == 0)
		(void)sched_yield();
	assert_returns(KVT_EBUSY, kvt_worker_destroy(s.bed.worker, 0));
	assert_true(fake_gpu_touches(gpu, 0, 1 << 18));
	fake_gpu_release(gpu);
	assert_ok(kvt_worker_destroy(s.bed.worker, TEST_LIMIT_MS));
	assert_int_equal(fake_gpu_outstanding(gpu), 0);
	assert_int_equal(fake_gpu_lanes(gpu), 0);
	assert_ok(kvt_device_close(s.bed.device));
	assert_null(fake_gpu_violation(gpu));
	fake_gpu_destroy(gpu);
	test_transfer_fini(&t);
	test_transfer_fini(&behind);
	scene_close(&s);
}

/* ---- Fork ---- */

/* Runs in the child: no assertion of cmocka, only an exit status. 0: all well, else the line. */
#define CHILD_CHECK(condition)                                                                     \
	do {                                                                                       \
		if (!(condition))                                                                  \
			return __LINE__ & 0xFF ? __LINE__ & 0xFF : 1;                              \
	} while (0)

static int child(struct scene *s)
{
	struct kvt_worker *w = s->bed.worker, *another = NULL;
	struct kvt_result *result;
	struct kvt_stats stats = KVT_INIT(stats);
	struct kvt_geometry geometry = KVT_INIT(geometry);
	struct kvt_object_stat stat = KVT_INIT(stat);
	uint64_t id = 5000, size = 1;
	int64_t row = 0;
	struct kvt_rows rows = KVT_INIT(rows);
	char name[KVT_NAME_BYTES], byte;

	geometry.blocks_per_chunk = geometry.ref_count = 1;
	geometry.ref_bytes = &size;
	rows.base = &byte;
	rows.stride_bytes = rows.row_count = rows.key_count = 1;
	rows.row_indices = &row;
	rows.keys = s->t.keys;
	CHILD_CHECK(kvt_worker_submit_store(w, 1, &s->t.transfer, NULL) == KVT_EFORK);
	CHILD_CHECK(kvt_worker_submit_load(w, 1, &s->t.transfer, NULL) == KVT_EFORK);
	CHILD_CHECK(kvt_worker_submit_store_rows(w, 1, &rows, NULL) == KVT_EFORK);
	CHILD_CHECK(kvt_worker_submit_load_rows(w, 1, &rows, NULL) == KVT_EFORK);
	CHILD_CHECK(kvt_worker_submit_lookup(w, 1, s->t.keys, 1, NULL) == KVT_EFORK);
	CHILD_CHECK(kvt_worker_set_geometry(w, 0, &geometry) == KVT_EFORK);
	CHILD_CHECK(kvt_worker_poll(w, &result, 1) == KVT_EFORK);
	CHILD_CHECK(kvt_worker_wait(w, &id, 1, -1, NULL) == KVT_EFORK);
	CHILD_CHECK(kvt_worker_wait_memory(w, &id, 1, -1, NULL) == KVT_EFORK);
	CHILD_CHECK(kvt_worker_drain(w, -1) == KVT_EFORK);
	CHILD_CHECK(kvt_worker_cancel(w, 5000) == KVT_EFORK);
	CHILD_CHECK(kvt_worker_event_fd(w) == KVT_EFORK);
	CHILD_CHECK(kvt_worker_stats(w, &stats) == KVT_EFORK);
	CHILD_CHECK(strstr(kvt_error_detail(), "fork") != NULL);
	CHILD_CHECK(kvt_worker_create(s->bed.store, NULL, NULL, &another) == KVT_EFORK);
	CHILD_CHECK(another == NULL);
	CHILD_CHECK(kvt_store_stat(s->bed.store, s->t.keys, &stat) == KVT_EFORK);
	CHILD_CHECK(kvt_store_remove(s->bed.store, s->t.keys) == KVT_EFORK);
	(void)name;
	CHILD_CHECK(kvt_worker_destroy(w, -1) == 0);
	CHILD_CHECK(kvt_store_close(s->bed.store) == 0);
	return 0;
}

static void run_child(struct scene *s)
{
	int status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		alarm(TEST_LIMIT_MS / 1000);
		_exit(child(s));
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		fail_msg("the child ended with %s %d", WIFEXITED(status) ? "line" : "signal",
			 WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
}

static void a_forked_child_is_refused_and_can_let_go(void **state)
{
	static const char *const uris[] = {"mem:", "file", "fake"};

	(void)state;
	for (size_t i = 0; i < TEST_COUNT(uris); i++) {
		struct scene s;
		char *root = NULL, *uri = NULL;
		scene_init(&s);
		if (strcmp(uris[i], "file") == 0)
			uri = test_format("file://%s", root = test_temp_dir());
		test_bed_open(&s.bed, uri			     ? uri
				      : strcmp(uris[i], "fake") == 0 ? fake_store_uri(s.fake)
								     : uris[i]);
		/* Idle, with work under way, and with a completion that waits. */
		run_child(&s);
		assert_ok(kvt_worker_submit_store(s.bed.worker, 5000, &s.many.transfer, NULL));
		run_child(&s);
		assert_ok(kvt_worker_drain(s.bed.worker, TEST_LIMIT_MS));
		run_child(&s);
		assert_result(KVT_STATUS_STORED, test_take(s.bed.worker, 5000));
		s.bed.next_id = 6000;
		test_load(&s.bed, &s.many, KVT_STATUS_LOADED);
		assert_ok(kvt_worker_destroy(s.bed.worker, TEST_LIMIT_MS));
		scene_close(&s);
		free(uri);
		test_remove_tree(root);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_idle_worker_ends_at_once),
		cmocka_unit_test(every_stage_of_a_request_can_be_waited_for),
		cmocka_unit_test(what_waits_is_dropped_and_new_jobs_are_refused),
		cmocka_unit_test(completions_that_nobody_polled_are_freed),
		cmocka_unit_test(a_worker_full_of_work_ends),
		cmocka_unit_test(jobs_that_wait_for_events_and_retries_are_dropped),
		cmocka_unit_test(copies_in_flight_are_waited_for),
		cmocka_unit_test(a_forked_child_is_refused_and_can_let_go),
	};
	return cmocka_run_group_tests_name("worker_destroy", tests, NULL, NULL);
}
