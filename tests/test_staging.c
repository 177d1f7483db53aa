/* SPDX-License-Identifier: Apache-2.0 */
/* The staging budget: pieces, order, the reserve for loads, cancellation, gauges, and many threads.
 * Long, and one file: one budget, whose cases share their model. */
#include "support.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "staging.h"

#define PAGE   4096u
#define BUFFER (64u * PAGE)

struct scene {
	struct kvt__env env;
	struct kvt_device *device;
	struct kvt__staging *staging;
	uint8_t *base; /* lowest address that was granted: of buffer 0 */
};

static void scene_open(struct scene *s, uint32_t buffers)
{
	memset(s, 0, sizeof(*s));
	assert_ok(kvt__env_init(&s->env, NULL));
	assert_ok(kvt_device_open(NULL, &s->device));
	assert_ok(kvt__staging_create(&s->env, s->device, NULL, (uint64_t)buffers * BUFFER, BUFFER,
				      BUFFER - 17 * PAGE, &s->staging));
}

static void scene_close(struct scene *s)
{
	struct kvt__staging_usage usage;

	kvt__staging_usage(s->staging, &usage);
	assert_int_equal(usage.used_bytes, 0);
	assert_int_equal(usage.waiters, 0);
	kvt__staging_destroy(s->staging);
	assert_ok(kvt_device_close(s->device));
	kvt__env_fini(&s->env);
}

/* ---- Single waits ---- */

struct wait {
	struct kvt__staging_wait wait; /* first */
	unsigned granted;	       /* calls */
	unsigned turn;		       /* when, counted over all */
};

static unsigned turns;

static void on_granted(struct kvt__staging_wait *wait)
{
	struct wait *w = (struct wait *)wait;

	w->granted++;
	w->turn = ++turns;
}

static bool acquire(struct scene *s, struct wait *w, uint64_t bytes, bool for_store)
{
	bool at_once;

	memset(w, 0, sizeof(*w));
	w->wait.bytes = bytes;
	w->wait.for_store = for_store;
	w->wait.granted = on_granted;
	at_once = kvt__staging_acquire(s->staging, &w->wait);
	if (at_once) {
		assert_non_null(w->wait.memory);
		assert_int_equal((uintptr_t)w->wait.memory % PAGE, 0);
		assert_true(w->wait.memory_bytes >= bytes);
		assert_int_equal(w->granted, 0);
	}
	return at_once;
}

static void release(struct scene *s, struct wait *w)
{
	assert_non_null(w->wait.memory);
	kvt__staging_release(s->staging, &w->wait);
}

static void a_budget_without_room_for_one_buffer_is_refused(void **state)
{
	struct scene s;
	struct kvt__staging *staging = (void *)1;

	(void)state;
	scene_open(&s, 1);
	assert_fails(
		KVT_EINVAL, "staging_bytes: 262143",
		kvt__staging_create(&s.env, s.device, NULL, BUFFER - 1, BUFFER, 1000, &staging));
	assert_null(staging);
	assert_non_null(strstr(kvt_error_detail(), "262144"));
	assert_non_null(strstr(kvt_error_detail(), "part_bytes"));
	assert_fails(KVT_EINVAL, "staging_bytes",
		     kvt__staging_create(&s.env, s.device, NULL, 0, BUFFER, 1000, &staging));
	assert_fails(KVT_EINVAL, "at most",
		     kvt__staging_create(&s.env, s.device, NULL, UINT64_MAX, PAGE, 1000, &staging));
	scene_close(&s);
}

static void the_budget_is_rounded_down_to_whole_buffers(void **state)
{
	struct scene s;
	struct kvt__staging *staging;
	struct kvt__staging_usage usage;

	(void)state;
	scene_open(&s, 1);
	assert_ok(kvt__staging_create(&s.env, s.device, NULL, 4 * BUFFER - 1, BUFFER, 1, &staging));
	kvt__staging_usage(staging, &usage);
	assert_int_equal(usage.total_bytes, 3 * BUFFER);
	assert_int_equal(kvt__staging_buffer_bytes(staging), BUFFER);
	kvt__staging_destroy(staging);
	kvt__staging_destroy(NULL);
	scene_close(&s);
}

static void a_piece_is_the_smallest_share_that_holds_the_request(void **state)
{
	static const struct {
		uint64_t bytes, expected;
	} cases[] = {
		{1, PAGE},
		{PAGE, PAGE},
		{PAGE + 1, 2 * PAGE},
		{16 * PAGE - 5, 16 * PAGE},
		{16 * PAGE + 1, 32 * PAGE},
		{32 * PAGE, 32 * PAGE},
		{32 * PAGE + 1, 64 * PAGE},
		{BUFFER, BUFFER},
		{0, PAGE},
	};
	struct scene s;
	struct wait w;

	(void)state;
	scene_open(&s, 1);
	for (size_t i = 0; i < TEST_COUNT(cases); i++) {
		struct kvt__staging_usage usage;

		assert_true(acquire(&s, &w, cases[i].bytes, i % 2));
		assert_int_equal(w.wait.memory_bytes, cases[i].expected);
		kvt__staging_usage(s.staging, &usage);
		assert_int_equal(usage.used_bytes, cases[i].expected);
		release(&s, &w);
		assert_null(w.wait.memory);
	}
	scene_close(&s);
}

/* A buffer of 8 MiB and 68 KiB has room for four chunks of 2 MiB with their trailers, and for one
 * of exactly a part. */
static void shares_keep_room_for_trailers(void **state)
{
	const uint64_t part = 8 << 20, buffer = part + (68 << 10);
	struct scene s;
	struct kvt__staging *own, *before;
	struct wait four[4];

	(void)state;
	scene_open(&s, 1);
	assert_ok(kvt__staging_create(&s.env, s.device, NULL, buffer, buffer, part, &own));
	before = s.staging;
	s.staging = own;
	for (int i = 0; i < 4; i++) {
		assert_true(acquire(&s, &four[i], (2 << 20) + 16384, false));
		memset(four[i].wait.memory, i, four[i].wait.memory_bytes);
	}
	for (int i = 0; i < 4; i++) {
		assert_int_equal(*(uint8_t *)four[i].wait.memory, i);
		release(&s, &four[i]);
	}
	assert_true(acquire(&s, &four[0], buffer, false));
	release(&s, &four[0]);
	s.staging = before;
	kvt__staging_destroy(own);
	scene_close(&s);
}

static void buffers_that_are_no_power_of_two_split_without_overlap(void **state)
{
	struct scene s;
	struct kvt__staging *before;
	struct wait w[512];

	(void)state;
	scene_open(&s, 1);
	before = s.staging;
	for (uint32_t pages = 1; pages < 80; pages++) {
		uint64_t bytes = (uint64_t)pages * PAGE;
		size_t n = 0;

		assert_ok(kvt__staging_create(&s.env, s.device, NULL, 2 * bytes, bytes, 1,
					      &s.staging));
		while (n < TEST_COUNT(w) && acquire(&s, &w[n], 1 + n % 3 * (bytes / 4), false)) {
			memset(w[n].wait.memory, (int)n, w[n].wait.memory_bytes);
			n++;
		}
		assert_true(n < TEST_COUNT(w));
		assert_true(kvt__staging_cancel(s.staging, &w[n].wait));
		for (size_t i = 0; i < n; i++) {
			uint8_t *memory = w[i].wait.memory;

			for (uint64_t b = 0; b < w[i].wait.memory_bytes; b++)
				if (memory[b] != (uint8_t)i)
					fail_msg("pages %u: piece %zu was overwritten", pages, i);
		}
		for (size_t i = 0; i < n; i++)
			release(&s, &w[i]);
		/* Everything is whole again. */
		assert_true(acquire(&s, &w[0], bytes, false));
		assert_true(acquire(&s, &w[1], bytes, false));
		release(&s, &w[0]);
		release(&s, &w[1]);
		kvt__staging_destroy(s.staging);
	}
	s.staging = before;
	scene_close(&s);
}

static void small_requests_share_a_buffer_before_they_open_another(void **state)
{
	struct scene s;
	struct wait small[8], whole[3];

	(void)state;
	scene_open(&s, 4);
	for (int i = 0; i < 8; i++)
		assert_true(acquire(&s, &small[i], 8 * PAGE, false));
	for (int i = 0; i < 3; i++)
		assert_true(acquire(&s, &whole[i], BUFFER, false));
	for (int i = 0; i < 8; i++)
		release(&s, &small[i]);
	for (int i = 0; i < 3; i++)
		release(&s, &whole[i]);
	scene_close(&s);
}

/* ---- Order ---- */

static void waits_are_served_in_order_of_arrival(void **state)
{
	struct scene s;
	struct wait held[2], big, small[3];

	(void)state;
	scene_open(&s, 2);
	assert_true(acquire(&s, &held[0], BUFFER, false));
	assert_true(acquire(&s, &held[1], BUFFER / 2, false));
	turns = 0;
	assert_false(acquire(&s, &big, BUFFER, false));
	/* These would fit into the half that is free, but the big one came first. */
	for (int i = 0; i < 3; i++)
		assert_false(acquire(&s, &small[i], BUFFER / 4, false));
	release(&s, &held[1]); /* a whole buffer is free: the big one gets it */
	assert_int_equal(big.granted, 1);
	assert_int_equal(big.turn, 1);
	assert_int_equal(small[0].granted, 0);
	release(&s, &held[0]);
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(small[i].granted, 1);
		assert_int_equal(small[i].turn, i + 2);
		release(&s, &small[i]);
	}
	release(&s, &big);
	scene_close(&s);
}

static void a_wait_is_not_served_before_an_older_one_of_another_kind(void **state)
{
	struct scene s;
	struct wait held[4], store, load;

	(void)state;
	scene_open(&s, 4);
	for (int i = 0; i < 4; i++)
		assert_true(acquire(&s, &held[i], BUFFER, false));
	turns = 0;
	assert_false(acquire(&s, &store, BUFFER, true)); /* no store holds anything: its turn */
	assert_false(acquire(&s, &load, PAGE, false));
	release(&s, &held[0]);
	assert_int_equal(store.granted, 1);
	assert_int_equal(load.granted, 0);
	release(&s, &held[1]);
	assert_int_equal(load.granted, 1);
	release(&s, &held[2]);
	release(&s, &held[3]);
	release(&s, &store);
	release(&s, &load);
	scene_close(&s);
}

/* ---- The reserve ---- */

static void a_quarter_of_the_buffers_is_kept_from_stores(void **state)
{
	static const struct {
		uint32_t buffers, for_stores;
	} cases[] = {{1, 1}, {2, 1}, {3, 2}, {4, 3}, {5, 4}, {7, 6}, {8, 6}, {16, 12}, {31, 24}};

	(void)state;
	for (size_t c = 0; c < TEST_COUNT(cases); c++) {
		struct scene s;
		struct wait stores[32], loads[32];
		uint32_t stored = 0, loaded = 0;

		scene_open(&s, cases[c].buffers);
		while (acquire(&s, &stores[stored], BUFFER, true))
			stored++;
		assert_int_equal(stored, cases[c].for_stores);
		while (acquire(&s, &loads[loaded], BUFFER, false))
			loaded++;
		assert_int_equal(loaded, cases[c].buffers - cases[c].for_stores);
		assert_true(kvt__staging_cancel(s.staging, &stores[stored].wait));
		assert_true(kvt__staging_cancel(s.staging, &loads[loaded].wait));
		while (stored > 0)
			release(&s, &stores[--stored]);
		while (loaded > 0)
			release(&s, &loads[--loaded]);
		scene_close(&s);
	}
}

static void small_stores_do_not_creep_into_the_reserve(void **state)
{
	struct scene s;
	struct wait stores[4 * 64 + 1], loads[4];
	size_t stored = 0;

	(void)state;
	scene_open(&s, 4);
	/* A load's piece in each buffer: stores may share them, but only in three. */
	for (int i = 0; i < 4; i++)
		assert_true(acquire(&s, &loads[i], BUFFER, false));
	for (int i = 0; i < 4; i++)
		release(&s, &loads[i]);
	while (acquire(&s, &stores[stored], PAGE, true))
		stored++;
	assert_int_equal(stored, 3 * 64);
	assert_true(acquire(&s, &loads[0], BUFFER, false));
	/* With one page back the store goes on in the same buffers. */
	release(&s, &stores[0]);
	assert_int_equal(stores[stored].granted, 1);
	stored++;
	for (size_t i = 1; i < stored; i++)
		release(&s, &stores[i]);
	release(&s, &loads[0]);
	scene_close(&s);
}

static void loads_pass_a_store_that_the_reserve_holds_back(void **state)
{
	struct scene s;
	struct wait held[3], store, load[2];

	(void)state;
	scene_open(&s, 4);
	for (int i = 0; i < 3; i++)
		assert_true(acquire(&s, &held[i], BUFFER, true));
	assert_false(acquire(&s, &store, BUFFER, true));
	assert_true(acquire(&s, &load[0], BUFFER, false)); /* passes it */
	assert_false(acquire(&s, &load[1], BUFFER, false));
	release(&s, &load[0]);
	assert_int_equal(load[1].granted, 1);
	assert_int_equal(store.granted, 0);
	release(&s, &held[0]);
	assert_int_equal(store.granted, 1);
	release(&s, &held[1]);
	release(&s, &held[2]);
	release(&s, &load[1]);
	release(&s, &store);
	scene_close(&s);
}

static void with_one_buffer_loads_go_first_and_stores_still_progress(void **state)
{
	struct scene s;
	struct wait held, stores[2], loads[2];

	(void)state;
	scene_open(&s, 1);
	assert_true(acquire(&s, &held, BUFFER, true));
	turns = 0;
	assert_false(acquire(&s, &stores[0], BUFFER, true));
	assert_false(acquire(&s, &loads[0], BUFFER, false));
	assert_false(acquire(&s, &stores[1], BUFFER, true));
	assert_false(acquire(&s, &loads[1], BUFFER, false));
	release(&s, &held);
	assert_int_equal(loads[0].turn, 1);
	release(&s, &loads[0]);
	assert_int_equal(loads[1].turn, 2);
	release(&s, &loads[1]);
	assert_int_equal(stores[0].turn, 3);
	release(&s, &stores[0]);
	assert_int_equal(stores[1].turn, 4);
	release(&s, &stores[1]);
	scene_close(&s);
}

/* ---- Cancellation, gauges, memory ---- */

static void a_canceled_wait_is_never_granted_and_unblocks_those_behind_it(void **state)
{
	struct scene s;
	struct wait held, big, small[2];

	(void)state;
	scene_open(&s, 1);
	assert_true(acquire(&s, &held, BUFFER / 2, false));
	assert_false(acquire(&s, &big, BUFFER, false));
	assert_false(acquire(&s, &small[0], BUFFER / 4, false));
	assert_false(acquire(&s, &small[1], BUFFER / 2, false));
	assert_true(kvt__staging_cancel(s.staging, &big.wait));
	assert_int_equal(big.granted, 0);
	assert_int_equal(small[0].granted, 1);
	assert_int_equal(small[1].granted, 0);
	assert_true(kvt__staging_cancel(s.staging, &small[1].wait));
	assert_false(kvt__staging_cancel(s.staging, &small[0].wait)); /* held */
	assert_false(kvt__staging_cancel(s.staging, &held.wait));
	release(&s, &small[0]);
	release(&s, &held);
	assert_int_equal(small[1].granted, 0);
	assert_int_equal(big.granted, 0);
	assert_false(kvt__staging_cancel(s.staging, &held.wait)); /* neither waits nor holds */
	scene_close(&s);
}

static void gauges_follow_what_is_held_and_who_waits(void **state)
{
	struct scene s;
	struct wait a, b, c;
	struct kvt__staging_usage usage;

	(void)state;
	scene_open(&s, 2);
	assert_true(acquire(&s, &a, BUFFER, false));
	assert_true(acquire(&s, &b, BUFFER / 2, false));
	assert_false(acquire(&s, &c, BUFFER, false));
	kvt__staging_usage(s.staging, &usage);
	assert_int_equal(usage.total_bytes, 2 * BUFFER);
	assert_int_equal(usage.used_bytes, BUFFER + BUFFER / 2);
	assert_int_equal(usage.peak_bytes, BUFFER + BUFFER / 2);
	assert_int_equal(usage.waiters, 1);
	release(&s, &b);
	kvt__staging_usage(s.staging, &usage);
	assert_int_equal(usage.used_bytes, 2 * BUFFER);
	assert_int_equal(usage.waiters, 0);
	release(&s, &a);
	release(&s, &c);
	kvt__staging_usage(s.staging, &usage);
	assert_int_equal(usage.used_bytes, 0);
	assert_int_equal(usage.peak_bytes, 2 * BUFFER);
	scene_close(&s);
}

static void every_allocation_that_fails_leaves_nothing_behind(void **state)
{
	struct kvt_hooks hooks = {0};
	struct test_allocator allocator;
	struct kvt_device *device;
	int error = KVT_ENOMEM;
	unsigned tries = 0;

	(void)state;
	test_allocator_init(&allocator);
	test_allocator_hooks(&allocator, &hooks.allocator);
	assert_ok(kvt_device_open(NULL, &device));
	for (uint64_t fail_at = 1; error != 0; fail_at++, tries++) {
		struct kvt__env env;
		struct kvt__staging *staging;

		assert_ok(kvt__env_init(&env, &hooks));
		atomic_store(&allocator.calls, 0);
		atomic_store(&allocator.fail_at, fail_at);
		error = kvt__staging_create(&env, device, NULL, 4 * BUFFER, BUFFER, 1, &staging);
		if (error != 0) {
			assert_int_equal(error, KVT_ENOMEM);
			assert_null(staging);
		}
		atomic_store(&allocator.fail_at, 0);
		kvt__staging_destroy(staging);
		assert_int_equal(atomic_load(&allocator.live_blocks), 0);
		kvt__env_fini(&env);
	}
	assert_true(tries >= 3);
	assert_int_equal(atomic_load(&allocator.misaligned), 0);
	assert_ok(kvt_device_close(device));
}

/* ---- Random walks ---- */

#define WALK_WAITS 24

struct walk {
	struct wait waits[WALK_WAITS];
	enum { IDLE, WAITING, HOLDING } states[WALK_WAITS];
	uint64_t arrivals[WALK_WAITS], arrival;
};

/* Which waits have been granted since: in order of arrival within their kind. */
static void walk_notice(struct walk *walk)
{
	for (;;) {
		int next = -1;

		for (int i = 0; i < WALK_WAITS; i++)
			if (walk->states[i] == WAITING && walk->waits[i].granted == 1 &&
			    (next < 0 || walk->waits[i].turn < walk->waits[next].turn))
				next = i;
		if (next < 0)
			return;
		for (int i = 0; i < WALK_WAITS; i++)
			if (walk->states[i] == WAITING && i != next &&
			    walk->waits[i].wait.for_store == walk->waits[next].wait.for_store)
				assert_true(walk->arrivals[i] > walk->arrivals[next]);
		walk->states[next] = HOLDING;
	}
}

static void walk_check(struct scene *s, struct walk *walk, uint32_t buffers)
{
	struct kvt__staging_usage usage;
	uint64_t used = 0, waiters = 0;
	uint8_t by_buffer[32] = {0};
	uint32_t with_stores = 0;

	for (int i = 0; i < WALK_WAITS; i++) {
		struct kvt__staging_wait *a = &walk->waits[i].wait;

		waiters += walk->states[i] == WAITING;
		if (walk->states[i] != HOLDING)
			continue;
		used += a->memory_bytes;
		assert_true(a->memory_bytes >= a->bytes);
		if (a->for_store)
			by_buffer[a->buffer] = 1;
		for (int j = 0; j < i; j++) {
			struct kvt__staging_wait *b = &walk->waits[j].wait;

			if (walk->states[j] == HOLDING)
				assert_true((uint8_t *)a->memory + a->memory_bytes <=
						    (uint8_t *)b->memory ||
					    (uint8_t *)b->memory + b->memory_bytes <=
						    (uint8_t *)a->memory);
		}
	}
	for (uint32_t b = 0; b < buffers; b++)
		with_stores += by_buffer[b];
	if (buffers > 1)
		assert_true(with_stores <= buffers - (buffers / 4 > 0 ? buffers / 4 : 1));
	kvt__staging_usage(s->staging, &usage);
	assert_int_equal(usage.used_bytes, used);
	assert_int_equal(usage.waiters, waiters);
	assert_true(usage.used_bytes <= usage.total_bytes);
	/* Whatever the history, an empty budget serves somebody. */
	if (used == 0)
		assert_int_equal(waiters, 0);
}

static void any_sequence_keeps_the_rules(void **state)
{
	static const uint32_t sizes[] = {1, 2, 3, 5, 8};
	struct test_random random = {test_seed(20240601)};

	(void)state;
	for (size_t c = 0; c < TEST_COUNT(sizes); c++) {
		struct scene s;
		struct walk walk;

		memset(&walk, 0, sizeof(walk));
		scene_open(&s, sizes[c]);
		turns = 0;
		for (int step = 0; step < 6000; step++) {
			int i = (int)test_random_below(&random, WALK_WAITS);
			struct wait *w = &walk.waits[i];

			if (walk.states[i] == IDLE) {
				uint64_t bytes = test_random_below(&random, BUFFER) + 1;

				if (test_random_below(&random, 3))
					bytes = test_random_below(&random, BUFFER / 8) + 1;
				walk.arrivals[i] = ++walk.arrival;
				walk.states[i] =
					acquire(&s, w, bytes, test_random_below(&random, 2) == 0)
						? HOLDING
						: WAITING;
			} else if (walk.states[i] == HOLDING) {
				release(&s, w);
				walk.states[i] = IDLE;
			} else if (test_random_below(&random, 4) == 0) {
				assert_true(kvt__staging_cancel(s.staging, &w->wait));
				walk.states[i] = IDLE;
			}
			walk_notice(&walk);
			walk_check(&s, &walk, sizes[c]);
		}
		for (int i = 0; i < WALK_WAITS; i++)
			if (walk.states[i] == WAITING &&
			    kvt__staging_cancel(s.staging, &walk.waits[i].wait))
				walk.states[i] = IDLE;
		walk_notice(&walk);
		for (int i = 0; i < WALK_WAITS; i++)
			if (walk.states[i] == HOLDING)
				release(&s, &walk.waits[i]);
		scene_close(&s);
	}
}

/* ---- Many threads ---- */

#define THREADS 8
#define ROUNDS	3000

struct worker {
	struct kvt__staging_wait wait; /* first */
	struct scene *scene;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t told;
	bool granted;
	uint32_t number;
	unsigned overwritten, canceled, waited, extra_grants;
};

static void tell_worker(struct kvt__staging_wait *wait)
{
	struct worker *w = (struct worker *)wait;

	pthread_mutex_lock(&w->lock);
	if (w->granted)
		w->extra_grants++;
	w->granted = true;
	pthread_cond_signal(&w->told);
	pthread_mutex_unlock(&w->lock);
}

static void await_grant(struct worker *w)
{
	pthread_mutex_lock(&w->lock);
	while (!w->granted)
		pthread_cond_wait(&w->told, &w->lock);
	pthread_mutex_unlock(&w->lock);
}

static void use_memory(struct worker *w)
{
	uint64_t *words = w->wait.memory;
	size_t count = w->wait.memory_bytes / sizeof(*words);

	for (size_t i = 0; i < count; i += 64)
		words[i] = w->number;
	sched_yield();
	for (size_t i = 0; i < count; i += 64)
		w->overwritten += words[i] != w->number;
}

static void *worker_main(void *arg)
{
	struct worker *w = arg;
	struct test_random random = {w->number + 1};

	for (int round = 0; round < ROUNDS; round++) {
		memset(&w->wait, 0, sizeof(w->wait));
		w->wait.bytes = test_random_below(&random, 2) ? BUFFER : PAGE * 3;
		w->wait.for_store = test_random_below(&random, 2);
		w->wait.granted = tell_worker;
		w->granted = false;
		if (!kvt__staging_acquire(w->scene->staging, &w->wait)) {
			w->waited++;
			if (test_random_below(&random, 2) &&
			    kvt__staging_cancel(w->scene->staging, &w->wait)) {
				w->canceled++;
				continue;
			}
			await_grant(w);
		}
		use_memory(w);
		kvt__staging_release(w->scene->staging, &w->wait);
	}
	return NULL;
}

static void threads_never_share_memory_and_all_come_to_an_end(void **state)
{
	static const uint32_t sizes[] = {1, 3};

	(void)state;
	for (size_t c = 0; c < TEST_COUNT(sizes); c++) {
		struct worker *workers = calloc(THREADS, sizeof(*workers));
		unsigned waited = 0;
		struct scene s;

		scene_open(&s, sizes[c]);
		for (uint32_t i = 0; i < THREADS; i++) {
			workers[i].scene = &s;
			workers[i].number = i;
			pthread_mutex_init(&workers[i].lock, NULL);
			pthread_cond_init(&workers[i].told, NULL);
			assert_int_equal(
				pthread_create(&workers[i].thread, NULL, worker_main, &workers[i]),
				0);
		}
		for (uint32_t i = 0; i < THREADS; i++) {
			assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
			assert_int_equal(workers[i].overwritten, 0);
			assert_int_equal(workers[i].extra_grants, 0);
			waited += workers[i].waited;
			pthread_cond_destroy(&workers[i].told);
			pthread_mutex_destroy(&workers[i].lock);
		}
		assert_true(waited > 0);
		free(workers);
		scene_close(&s);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_budget_without_room_for_one_buffer_is_refused),
		cmocka_unit_test(the_budget_is_rounded_down_to_whole_buffers),
		cmocka_unit_test(a_piece_is_the_smallest_share_that_holds_the_request),
		cmocka_unit_test(shares_keep_room_for_trailers),
		cmocka_unit_test(buffers_that_are_no_power_of_two_split_without_overlap),
		cmocka_unit_test(small_requests_share_a_buffer_before_they_open_another),
		cmocka_unit_test(waits_are_served_in_order_of_arrival),
		cmocka_unit_test(a_wait_is_not_served_before_an_older_one_of_another_kind),
		cmocka_unit_test(a_quarter_of_the_buffers_is_kept_from_stores),
		cmocka_unit_test(small_stores_do_not_creep_into_the_reserve),
		cmocka_unit_test(loads_pass_a_store_that_the_reserve_holds_back),
		cmocka_unit_test(with_one_buffer_loads_go_first_and_stores_still_progress),
		cmocka_unit_test(a_canceled_wait_is_never_granted_and_unblocks_those_behind_it),
		cmocka_unit_test(gauges_follow_what_is_held_and_who_waits),
		cmocka_unit_test(every_allocation_that_fails_leaves_nothing_behind),
		cmocka_unit_test(any_sequence_keeps_the_rules),
		cmocka_unit_test(threads_never_share_memory_and_all_come_to_an_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
