/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions: submit, poll and wake, several threads at once, forks, and memory that runs out.
 * It is one file because the suite has one for each subject. */
#include "contract.h"

#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define NS_PER_MS    INT64_C(1000000)
#define LONG_NS	     INT64_C(60000000000)
#define THREADS	     4
#define ROUNDS	     60
#define OBJECT_BYTES 70000u

/* ---- poll and wake ---- */

static void a_poll_without_time_returns_at_once(void **state)
{
	struct contract *c = *state;
	int64_t start_ns;

	if (!c->tb.ops.poll)
		contract_skip("a blocking backend has no poll");
	start_ns = c->th.host.now_ns();
	for (int i = 0; i < 1000; i++)
		assert_int_equal(c->tb.ops.poll(c->ts.session, 0), 0);
	/* A time in the past is no reason to sleep either. */
	for (int i = 0; i < 100; i++)
		assert_int_equal(c->tb.ops.poll(c->ts.session, start_ns), 0);
	assert_true(c->th.host.now_ns() - start_ns < LONG_NS);
}

static void a_poll_sleeps_until_its_time(void **state)
{
	struct contract *c = *state;

	if (!c->tb.ops.poll)
		contract_skip("a blocking backend has no poll");
	for (int i = 0; i < 5; i++) {
		int64_t until_ns = c->th.host.now_ns() + 5 * NS_PER_MS;

		assert_int_equal(c->tb.ops.poll(c->ts.session, until_ns), 0);
		assert_true(c->th.host.now_ns() >= until_ns);
	}
}

static void a_wake_before_poll_is_remembered_and_many_count_as_one(void **state)
{
	struct contract *c = *state;
	int64_t until_ns;

	if (!c->tb.ops.poll)
		contract_skip("a blocking backend has no poll");
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < 100; i++)
			c->tb.ops.wake(c->ts.session);
		until_ns = c->th.host.now_ns() + LONG_NS;
		assert_int_equal(c->tb.ops.poll(c->ts.session, until_ns), 0);
		assert_true(c->th.host.now_ns() < until_ns);
		until_ns = c->th.host.now_ns() + 5 * NS_PER_MS;
		assert_int_equal(c->tb.ops.poll(c->ts.session, until_ns), 0);
		assert_true(c->th.host.now_ns() >= until_ns);
	}
}

struct waker {
	struct contract *c;
	atomic_int go, woken;
	int rounds;
};

/* Wakes the session once for each round that the sleeper says it is about to begin. */
static void *wake_again_and_again(void *context)
{
	struct waker *w = context;

	for (int i = 1; i <= w->rounds; i++) {
		while (atomic_load(&w->go) < i)
			sched_yield();
		w->c->tb.ops.wake(w->c->ts.session);
		atomic_store(&w->woken, i);
	}
	return NULL;
}

static void a_wake_from_another_thread_ends_the_sleep(void **state)
{
	struct contract *c = *state;
	struct waker w = {.c = c, .rounds = 300};
	pthread_t thread;

	if (!c->tb.ops.poll)
		contract_skip("a blocking backend has no poll");
	assert_int_equal(pthread_create(&thread, NULL, wake_again_and_again, &w), 0);
	for (int i = 1; i <= w.rounds; i++) {
		atomic_store(&w.go, i);
		/* No time limit: a wake that is lost hangs here. */
		assert_int_equal(c->tb.ops.poll(c->ts.session, INT64_MAX), 0);
		/* Not woken without a reason, and never twice for one wake. */
		while (atomic_load(&w.woken) < i)
			sched_yield();
	}
	pthread_join(thread, NULL);
}

static void wakes_do_not_lose_completions(void **state)
{
	struct contract *c = *state;
	struct waker w = {.c = c, .rounds = 200};
	pthread_t thread;

	if (!c->tb.ops.poll)
		contract_skip("a blocking backend has no poll");
	assert_int_equal(pthread_create(&thread, NULL, wake_again_and_again, &w), 0);
	for (int i = 1; i <= w.rounds; i++) {
		atomic_store(&w.go, i);
		assert_int_equal(contract_put(c, "woken", 5000, (uint64_t)i, 0, NULL, NULL), 0);
		if (i % 20 == 0)
			contract_expect(c, "woken", 5000, (uint64_t)i);
	}
	pthread_join(thread, NULL);
}

/* ---- many in flight ---- */

static void many_in_flight_complete_once_each(void **state)
{
	struct contract *c = *state;
	uint32_t depth = c->tb.ops.poll ? 16 : 1;
	struct contract_io *ios = calloc(depth, sizeof(*ios));
	struct kvt_iovec *iov = calloc(depth, sizeof(*iov));
	struct contract_buffer *buffers = calloc(depth, sizeof(*buffers));
	char(*names)[32] = calloc(depth, sizeof(*names));

	assert_true(ios && iov && buffers && names);
	for (int round = 0; round < 20; round++) {
		bool is_get = round % 2;

		for (uint32_t i = 0; i < depth; i++) {
			uint64_t bytes = 4096 * (i + 1) + i, seed = (uint64_t)(round / 2) * 100 + i;

			snprintf(names[i], sizeof(names[i]), "m/%u", i);
			buffers[i] = contract_buffer_make(bytes, 0);
			iov[i] = (struct kvt_iovec){buffers[i].data, bytes};
			if (!is_get)
				contract_fill(buffers[i].data, bytes, seed + 1, 0);
			ios[i] = (struct contract_io){
				.t.io = {.op = is_get ? KVT_IO_GET : KVT_IO_PUT,
					 .name = names[i],
					 .iov_count = 1,
					 .length = bytes,
					 .object_bytes = bytes,
					 .crc32c = c->th.host.crc32c(0, buffers[i].data, bytes)},
				.iov = &iov[i],
				.seed = seed + 1};
			contract_io_start(c, &c->ts, &ios[i]);
		}
		for (uint32_t i = 0; i < depth; i++) {
			assert_int_equal(contract_io_finish(c, &ios[i]), 0);
			contract_buffer_free(&buffers[i]);
		}
		assert_int_equal(c->ts.in_flight, 0);
	}
	free(ios);
	free(iov);
	free(buffers);
	free(names);
}

/* Submits itself again from inside its completion, until it has done so often enough. */
struct chain {
	struct testio t;
	int left, failed, completions;
};

static void chain_complete(struct kvt_io *io)
{
	struct chain *chain = io->owner;

	chain->completions++;
	while (chain->left > 0) {
		int answer;

		chain->left--;
		chain->failed |= io->result != 0;
		answer = chain->t.ts->tb->ops.submit(chain->t.ts->session, io);
		if (answer == KVT_QUEUED)
			return;
		/* Busy is no answer here: nothing else need be in flight, and the core would wait
		 * for a completion. */
		if (answer != KVT_DONE) {
			chain->failed = 1;
			break;
		}
	}
	chain->t.done = 1;
}

static void a_completion_may_submit_again(void **state)
{
	struct contract *c = *state;
	uint8_t memory[2][5000];
	struct kvt_iovec iov[2] = {{memory[0], 5000}, {memory[1], 5000}};
	struct chain chains[2];
	const struct kvt_backend_ops *ops = &c->tb.ops;

	if (!ops->poll)
		return;
	assert_int_equal(contract_put(c, "chain", 5000, 3, 0, NULL, NULL), 0);
	for (int i = 0; i < 2; i++) {
		chains[i] = (struct chain){.t.io = {.op = KVT_IO_GET,
						    .name = "chain",
						    .iov = &iov[i],
						    .iov_count = 1,
						    .length = 5000},
					   .left = 200};
		assert_int_equal(testio_prepare(&chains[i].t, &c->ts), 0);
		chains[i].t.io.complete = chain_complete;
		chains[i].t.io.owner = &chains[i];
		switch (ops->submit(c->ts.session, &chains[i].t.io)) {
		case KVT_DONE:
			chain_complete(&chains[i].t.io);
			break;
		case KVT_QUEUED:
			break;
		default:
			fail();
		}
	}
	while (!chains[0].t.done || !chains[1].t.done)
		assert_true(ops->poll(c->ts.session, INT64_MAX) >= 0);
	for (int i = 0; i < 2; i++) {
		assert_false(chains[i].failed);
		assert_int_equal(chains[i].left, 0);
		assert_int_equal(chains[i].t.io.result, 0);
		assert_true(contract_match(memory[i], 5000, 3, 0));
		assert_true(testio_private_intact(&chains[i].t));
		testio_release(&chains[i].t);
	}
}

/* ---- several threads ---- */

struct thread {
	struct contract *c;
	pthread_barrier_t *barrier;
	pthread_t id;
	unsigned number, rounds;
	bool parts;
	/* recorded */
	uint64_t won;
	unsigned failures;
	const char *what;
};

static void record(struct thread *t, const char *what)
{
	t->failures++;
	t->what = what;
}

static void run_threads(struct contract *c, void *(*function)(void *), struct thread *threads)
{
	pthread_barrier_t barrier;

	assert_int_equal(pthread_barrier_init(&barrier, NULL, THREADS), 0);
	for (unsigned i = 0; i < THREADS; i++) {
		threads[i].c = c;
		threads[i].number = i;
		threads[i].barrier = &barrier;
		assert_int_equal(pthread_create(&threads[i].id, NULL, function, &threads[i]), 0);
	}
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(threads[i].id, NULL);
	pthread_barrier_destroy(&barrier);
	for (unsigned i = 0; i < THREADS; i++)
		if (threads[i].failures)
			fail_msg("thread %u: %s (%u failures)", i, threads[i].what,
				 threads[i].failures);
}

/* Makes the object in two parts and commits it if absent. */
static int put_in_parts(struct thread *t, struct testsession *ts, const char *name,
			const uint8_t *data, uint64_t bytes)
{
	struct testio io = {.io = {.op = KVT_IO_BEGIN, .name = name, .object_bytes = bytes}};
	void *handle;
	int result = testsession_run(ts, &io);

	if (result)
		return result;
	handle = io.io.handle;
	for (uint32_t i = 0; i < 2 && !result; i++) {
		uint64_t at = i * (bytes / 2), length = i ? bytes - at : bytes / 2;
		struct kvt_iovec iov = {(void *)(uintptr_t)(data + at), length};

		io = (struct testio){.io = {.op = KVT_IO_PART,
					    .name = name,
					    .iov = &iov,
					    .iov_count = 1,
					    .part_number = i,
					    .length = length,
					    .offset = (int64_t)at,
					    .object_bytes = bytes,
					    .handle = handle}};
		result = testsession_run(ts, &io);
	}
	if (result)
		record(t, "a part failed");
	io = (struct testio){.io = {.op = result ? KVT_IO_ABORT : KVT_IO_COMMIT,
				    .flags = result ? 0 : KVT_IO_IF_ABSENT,
				    .name = name,
				    .object_bytes = bytes,
				    .handle = handle}};
	return testsession_run(ts, &io);
}

static void *race_for_names(void *context)
{
	struct thread *t = context;
	struct testsession ts;
	uint8_t *data = malloc(OBJECT_BYTES);
	bool opened = testsession_open(&ts, &t->c->tb, 4, 0) == 0;
	char name[32];

	if (data)
		contract_fill(data, OBJECT_BYTES, t->number + 1, 0);
	if (!data || !opened)
		record(t, "no session");
	for (unsigned i = 0; i < t->rounds; i++) {
		int result = 0;

		snprintf(name, sizeof(name), "race/%u/x", i);
		pthread_barrier_wait(t->barrier);
		if (t->failures)
			continue;
		if (t->parts && t->number % 2)
			result = put_in_parts(t, &ts, name, data, OBJECT_BYTES);
		else
			result = testsession_put(&ts, name, data, OBJECT_BYTES, KVT_IO_IF_ABSENT,
						 NULL, NULL);
		if (result == 0)
			t->won |= UINT64_C(1) << i;
		else if (result != KVT_EEXIST)
			record(t, testhost_code(result));
	}
	if (opened)
		testsession_close(&ts);
	free(data);
	return NULL;
}

static void race(struct contract *c, bool parts)
{
	struct thread threads[THREADS] = {0};
	unsigned rounds = 30;
	char name[32];

	if (!contract_can(c, KVT_CAP_IF_ABSENT))
		contract_skip("without IF_ABSENT");
	if (contract_current->asks_first)
		contract_skip("conditions are kept by asking first");
	for (unsigned i = 0; i < THREADS; i++) {
		threads[i].rounds = rounds;
		threads[i].parts = parts && c->tb.limits.min_part_bytes <= OBJECT_BYTES / 2;
	}
	run_threads(c, race_for_names, threads);
	for (unsigned i = 0; i < rounds; i++) {
		unsigned winners = 0, winner = 0;

		for (unsigned t = 0; t < THREADS; t++)
			if (threads[t].won >> i & 1) {
				winners++;
				winner = t;
			}
		assert_int_equal(winners, 1);
		snprintf(name, sizeof(name), "race/%u/x", i);
		contract_expect(c, name, OBJECT_BYTES, winner + 1);
	}
}

static void of_racing_puts_if_absent_exactly_one_wins(void **state)
{
	race(*state, false);
}

static void of_racing_puts_and_commits_if_absent_exactly_one_wins(void **state)
{
	race(*state, true);
}

/* Ceph's gateway answers 500 now and then to the reader of an object that is being replaced, Swift
 * does not say what became of one of two PUTs: whoever asked asks again. */
static bool failed_for_a_moment(int result)
{
	return contract_current->server_may_fail && kvt_error_class(result) == KVT_CLASS_TRANSIENT;
}

/* Half of the threads replace and remove one object, the others read it: whole, of one writer. */
static void *replace_or_read(void *context)
{
	struct thread *t = context;
	struct testsession ts;
	uint8_t *data = malloc(OBJECT_BYTES);
	bool opened = testsession_open(&ts, &t->c->tb, 4, 0) == 0;

	if (!data || !opened)
		record(t, "no session");
	pthread_barrier_wait(t->barrier);
	for (unsigned i = 0; i < ROUNDS && !t->failures; i++) {
		int result;

		if (t->number % 2) {
			/* Its length tells which writer made it. */
			uint64_t bytes = OBJECT_BYTES - t->number * 100 - i % 2;

			contract_fill(data, bytes, bytes, 0);
			result = i % 10 == 9
					 ? testsession_remove(&ts, "hot", NULL)
					 : testsession_put(&ts, "hot", data, bytes, 0, NULL, NULL);
			if (result && result != KVT_ENOENT && !failed_for_a_moment(result))
				record(t, testhost_code(result));
		} else {
			struct kvt_object_info info;
			/* Whatever is there, all writers' objects have this many bytes. */
			uint64_t bytes = OBJECT_BYTES - THREADS * 100;

			result = testsession_get(&ts, "hot", data, bytes, 0, &info);
			if (result == KVT_ENOENT || failed_for_a_moment(result))
				continue;
			if (result)
				record(t, testhost_code(result));
			else if (!contract_match(data, bytes, info.object_bytes, 0))
				record(t, "an object of two writers was read");
		}
	}
	if (opened)
		testsession_close(&ts);
	free(data);
	return NULL;
}

static void readers_see_whole_objects_while_writers_replace_them(void **state)
{
	struct thread threads[THREADS] = {0};

	run_threads(*state, replace_or_read, threads);
}

/* ---- forks ---- */

static int open_descriptors(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int count = 0;

	while (dir && readdir(dir))
		count++;
	if (dir)
		closedir(dir);
	return count;
}

static void a_forked_child_can_let_go_and_the_parent_goes_on(void **state)
{
	struct contract *c = *state;
	struct testsession more, other[2];
	struct testbackend fresh;
	int before, ours, left, status = 0;
	pid_t child;

	assert_int_equal(contract_put(c, "fork", 50000, 1, 0, NULL, NULL), 0);
	if (!c->tb.ops.forked)
		contract_skip("nothing to let go of in a forked child");
	assert_int_equal(testsession_open(&more, &c->tb, 4, 0), 0);
	/* How many descriptors a backend with two sessions has. */
	before = open_descriptors();
	assert_int_equal(contract_open(&fresh, &c->th, c->location), 0);
	for (int i = 0; i < 2; i++)
		assert_int_equal(testsession_open(&other[i], &fresh, 4, 0), 0);
	ours = open_descriptors() - before;
	for (int i = 0; i < 2; i++)
		testsession_close(&other[i]);
	testbackend_close(&fresh);
	assert_int_equal(open_descriptors(), before);
	child = fork();
	if (child == 0) {
		c->tb.ops.forked(c->tb.backend);
		/* The session that was used may have had a connection too. */
		left = open_descriptors();
		_exit(left == before - ours || left == before - ours - 1 ? 42 : 43);
	}
	assert_true(child > 0);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 42);
	contract_expect(c, "fork", 50000, 1);
	assert_int_equal(testsession_put(&more, "fork", "x", 1, 0, NULL, NULL), 0);
	testsession_close(&more);
}

/* ---- memory ---- */

/* A life of a backend in which allocation number `fail_at` fails. Returns the first error. */
static int short_life(struct contract *c, long fail_at, bool *reachedp)
{
	struct testbackend tb;
	struct testsession ts = {0};
	uint8_t data[10000], back[10000];
	int result, step;
	long base;

	contract_fill(data, sizeof(data), 1, 0);
	base = atomic_load(&c->th.allocations);
	atomic_store(&c->th.fail_at, base + fail_at);
	testhost_forget();
	result = contract_open(&tb, &c->th, c->location);
	if (result) {
		assert_string_not_equal(testhost_failure(), "");
		assert_null(tb.backend);
		goto out;
	}
	result = testsession_open(&ts, &tb, 2, 0);
	if (result) {
		assert_string_not_equal(testhost_failure(), "");
		ts.session = NULL;
		goto close;
	}
	result = testsession_put(&ts, "short", data, sizeof(data), 0, NULL, NULL);
	step = testsession_get(&ts, "short", back, sizeof(back), 0, NULL);
	if (!step)
		assert_memory_equal(data, back, sizeof(back));
	else if (!result)
		result = step;
	step = testsession_remove(&ts, "short", NULL);
	if (step && !result)
		result = step;
	testsession_close(&ts);
close:
	testbackend_close(&tb);
out:
	*reachedp = atomic_load(&c->th.allocations) >= base + fail_at;
	atomic_store(&c->th.fail_at, 0);
	return result;
}

static void whatever_allocation_fails_nothing_is_left_and_nothing_breaks(void **state)
{
	struct contract *c = *state;
	long live = atomic_load(&c->th.live);
	int descriptors = open_descriptors();
	bool reached = true;

	for (long n = 1; reached; n++) {
		int result = short_life(c, n, &reached);

		assert_true(result == 0 || (reached && result == KVT_ENOMEM));
		assert_int_equal(atomic_load(&c->th.live), live);
		assert_int_equal(open_descriptors(), descriptors);
		assert_true(n < 10000);
	}
	/* The backend that was open all the time has not noticed. */
	assert_int_equal(contract_put(c, "unhurt", 5000, 1, 0, NULL, NULL), 0);
	contract_expect(c, "unhurt", 5000, 1);
}

static void sessions_open_and_close_at_any_time(void **state)
{
	struct contract *c = *state;
	struct testsession sessions[6];
	int descriptors = open_descriptors();

	for (int i = 0; i < 6; i++) {
		assert_int_equal(testsession_open(&sessions[i], &c->tb, (uint32_t)(1 << i), i == 5),
				 0);
		assert_int_equal(testsession_put(&sessions[i], "s", "abc", 3, 0, NULL, NULL), 0);
	}
	for (int i = 0; i < 6; i += 2)
		testsession_close(&sessions[i]);
	for (int i = 1; i < 6; i += 2) {
		assert_int_equal(testsession_put(&sessions[i], "s", "abc", 3, 0, NULL, NULL), 0);
		testsession_close(&sessions[i]);
	}
	assert_int_equal(open_descriptors(), descriptors);
}

const struct CMUnitTest contract_session_cases[] = {
	cmocka_unit_test(a_poll_without_time_returns_at_once),
	cmocka_unit_test(a_poll_sleeps_until_its_time),
	cmocka_unit_test(a_wake_before_poll_is_remembered_and_many_count_as_one),
	cmocka_unit_test(a_wake_from_another_thread_ends_the_sleep),
	cmocka_unit_test(wakes_do_not_lose_completions),
	cmocka_unit_test(many_in_flight_complete_once_each),
	cmocka_unit_test(a_completion_may_submit_again),
	cmocka_unit_test(of_racing_puts_if_absent_exactly_one_wins),
	cmocka_unit_test(of_racing_puts_and_commits_if_absent_exactly_one_wins),
	cmocka_unit_test(readers_see_whole_objects_while_writers_replace_them),
	cmocka_unit_test(sessions_open_and_close_at_any_time),
	cmocka_unit_test(a_forked_child_can_let_go_and_the_parent_goes_on),
	cmocka_unit_test(whatever_allocation_fails_nothing_is_left_and_nothing_breaks),
	{NULL, NULL, NULL, NULL, NULL},
};
