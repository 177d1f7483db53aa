/* SPDX-License-Identifier: Apache-2.0 */
/* The fault wrapper delays, hangs and lets go when it should, and keeps nobody else waiting. */
#include "fault_fixture.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void delays_run_side_by_side(void **state)
{
	struct fixture *f = *state;
	struct kvt_iovec iov = {f->body, FAULT_BODY_BYTES};
	char names[8][16];
	struct testio ios[8];
	int64_t start_ns;

	wrap(f, "delay=put:200,get:1-2");
	start_ns = f->th.host.now_ns();
	for (int i = 0; i < 8; i++) {
		snprintf(names[i], sizeof(names[i]), "d%d", i);
		ios[i] = (struct testio){.io = {.op = KVT_IO_PUT,
						.name = names[i],
						.iov = &iov,
						.iov_count = 1,
						.length = FAULT_BODY_BYTES,
						.object_bytes = FAULT_BODY_BYTES}};
		assert_int_equal(testio_prepare(&ios[i], &f->ts), 0);
		assert_int_equal(testio_submit(&ios[i]), KVT_QUEUED);
	}
	assert_int_equal(f->ts.in_flight, 8);
	/* A request without a delay overtakes them. */
	assert_int_equal(head(f, "d0"), KVT_ENOENT);
	for (int i = 0; i < 8; i++) {
		assert_int_equal(testio_wait(&ios[i]), 0);
		assert_int_equal(ios[i].completions, 1);
		testio_release(&ios[i]);
	}
	/* Not before their time. */
	assert_true(f->th.host.now_ns() - start_ns >= 200 * NS_PER_MS);
	assert_int_equal(get(f, "d7"), 0);
	assert_memory_equal(f->body, f->back, FAULT_BODY_BYTES);
}

static void a_deadline_ends_a_delay_and_nothing_is_done(void **state)
{
	struct fixture *f = *state;
	struct kvt_iovec iov = {f->body, FAULT_BODY_BYTES};
	struct testio t = {.io = {.op = KVT_IO_PUT,
				  .name = "a",
				  .iov = &iov,
				  .iov_count = 1,
				  .length = FAULT_BODY_BYTES,
				  .object_bytes = FAULT_BODY_BYTES}};

	wrap(f, "delay=put:100000");
	t.io.deadline_ns = f->th.host.now_ns() + 5 * NS_PER_MS;
	assert_int_equal(testsession_run(&f->ts, &t), KVT_ETIMEDOUT);
	assert_true(f->th.host.now_ns() >= t.io.deadline_ns);
	assert_int_equal(head(f, "a"), KVT_ENOENT);
}

/* Submits a put that is held. */
static void submit_held(struct fixture *f, struct testio *t, struct kvt_iovec *iov,
			int64_t deadline_ns)
{
	*iov = (struct kvt_iovec){f->body, FAULT_BODY_BYTES};
	*t = (struct testio){.io = {.op = KVT_IO_PUT,
				    .name = "held",
				    .iov = iov,
				    .iov_count = 1,
				    .length = FAULT_BODY_BYTES,
				    .object_bytes = FAULT_BODY_BYTES,
				    .deadline_ns = deadline_ns}};
	make_file(f);
	assert_int_equal(testio_prepare(t, &f->ts), 0);
	assert_int_equal(testio_submit(t), KVT_QUEUED);
}

/* And makes sure that it is, whose deadline is far away or keeps nobody. */
static void start_held(struct fixture *f, struct testio *t, struct kvt_iovec *iov,
		       int64_t deadline_ns)
{
	submit_held(f, t, iov, deadline_ns);
	for (int i = 0; i < 100; i++)
		assert_int_equal(f->tb.ops.poll(f->ts.session, 0), 0);
	assert_false(t->done);
	assert_int_equal(head(f, "held"), KVT_ENOENT);
}

static void a_hang_ends_when_its_file_goes(void **state)
{
	struct fixture *f = *state;
	struct kvt_iovec iov;
	struct testio t;

	wrap(f, "hang=put:%s");
	assert_int_equal(put(f, "free"), 0);
	start_held(f, &t, &iov, 0);
	assert_int_equal(get(f, "free"), 0);
	assert_false(t.done);
	unlink(f->path);
	assert_int_equal(testio_wait(&t), 0);
	testio_release(&t);
	assert_int_equal(get(f, "held"), 0);
	assert_memory_equal(f->body, f->back, FAULT_BODY_BYTES);
}

static void a_hang_ends_at_the_deadline_with_nothing_done(void **state)
{
	struct fixture *f = *state;
	struct kvt_iovec iov;
	struct testio t;

	wrap(f, "hang=put:%s");
	submit_held(f, &t, &iov, f->th.host.now_ns() + 50 * NS_PER_MS);
	assert_int_equal(testio_wait(&t), KVT_ETIMEDOUT);
	assert_true(f->th.host.now_ns() >= t.io.deadline_ns);
	testio_release(&t);
	assert_int_equal(head(f, "held"), KVT_ENOENT);
}

static void a_stuck_call_outlives_its_deadline(void **state)
{
	struct fixture *f = *state;
	struct kvt_iovec iov;
	struct testio t;

	wrap(f, "stuck=put:%s");
	start_held(f, &t, &iov, f->th.host.now_ns() + 2 * NS_PER_MS);
	while (f->th.host.now_ns() < t.io.deadline_ns)
		assert_int_equal(f->tb.ops.poll(f->ts.session, t.io.deadline_ns), 0);
	for (int i = 0; i < 20; i++)
		assert_int_equal(f->tb.ops.poll(f->ts.session, f->th.host.now_ns() + NS_PER_MS / 2),
				 0);
	assert_false(t.done);
	unlink(f->path);
	assert_int_equal(testio_wait(&t), KVT_ETIMEDOUT);
	testio_release(&t);
	assert_int_equal(head(f, "held"), KVT_ENOENT);
}

static void a_held_commit_that_times_out_ends_its_handle(void **state)
{
	struct fixture *f = *state;
	struct testio t = {.io = {.op = KVT_IO_BEGIN, .name = "a", .object_bytes = 10}};
	void *handle;

	wrap(f, "hang=commit:%s");
	make_file(f);
	assert_int_equal(testsession_run(&f->ts, &t), 0);
	handle = t.io.handle;
	t = (struct testio){.io = {.op = KVT_IO_COMMIT,
				   .name = "a",
				   .object_bytes = 10,
				   .deadline_ns = f->th.host.now_ns() + 5 * NS_PER_MS,
				   .handle = handle}};
	assert_int_equal(testsession_run(&f->ts, &t), KVT_ETIMEDOUT);
	assert_int_equal(head(f, "a"), KVT_ENOENT);
}

int main(void)
{
	static const struct CMUnitTest cases[] = {
		FAULT_CASE(delays_run_side_by_side),
		FAULT_CASE(a_deadline_ends_a_delay_and_nothing_is_done),
		FAULT_CASE(a_hang_ends_when_its_file_goes),
		FAULT_CASE(a_hang_ends_at_the_deadline_with_nothing_done),
		FAULT_CASE(a_stuck_call_outlives_its_deadline),
		FAULT_CASE(a_held_commit_that_times_out_ends_its_handle),
	};

	return fault_run_cases(cases, sizeof(cases) / sizeof(cases[0]));
}
