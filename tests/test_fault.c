/* SPDX-License-Identifier: Apache-2.0 */
/* The fault wrapper does to calls what its options say, and no more. */
#include "fault_fixture.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- Which calls ---- */

static void the_nth_call_fails_and_no_other(void **state)
{
	struct fixture *f = *state;

	wrap(f, "fail=get:2:ENET,put:3");
	assert_int_equal(put(f, "a"), 0);
	assert_int_equal(get(f, "a"), 0);
	assert_int_equal(get(f, "a"), KVT_ENET);
	assert_int_equal(get(f, "a"), 0);
	assert_int_equal(put(f, "b"), 0);
	assert_int_equal(put(f, "c"), KVT_EIO);
	assert_int_equal(head(f, "c"), KVT_ENOENT);
	assert_int_equal(put(f, "c"), 0);
	assert_int_equal(get(f, "c"), 0);
	assert_memory_equal(f->body, f->back, FAULT_BODY_BYTES);
}

static void from_the_nth_on_and_every_nth_call_fail(void **state)
{
	struct fixture *f = *state;

	wrap(f, "fail=head:4+:ESERVER,get:/2", "every=remove:3:EACCES", "error=ENOSPC");
	assert_int_equal(put(f, "a"), 0);
	for (int i = 1; i <= 9; i++) {
		assert_int_equal(head(f, "a"), i >= 4 ? KVT_ESERVER : 0);
		assert_int_equal(get(f, "a"), i % 2 ? 0 : KVT_ENOSPC);
		assert_int_equal(testsession_remove(&f->ts, "none", NULL),
				 i % 3 ? KVT_ENOENT : KVT_EACCES);
	}
}

static void any_counts_calls_of_every_kind(void **state)
{
	struct fixture *f = *state;

	wrap(f, "fail=any:3");
	assert_int_equal(put(f, "a"), 0);
	assert_int_equal(head(f, "a"), 0);
	assert_int_equal(get(f, "a"), KVT_EIO);
	assert_int_equal(get(f, "a"), 0);
}

static uint64_t draw(struct fixture *f, const char *seed, const char *rate)
{
	uint64_t failed = 0;

	wrap(f, seed, rate);
	for (int i = 0; i < 64; i++)
		if (head(f, "x") == KVT_EIO)
			failed |= UINT64_C(1) << i;
	testsession_close(&f->ts);
	testbackend_close(&f->tb);
	return failed;
}

static void a_rate_follows_from_its_seed(void **state)
{
	struct fixture *f = *state;
	uint64_t first = draw(f, "seed=7", "rate=head:0.5");
	int count = __builtin_popcountll(first);

	assert_true(count > 12 && count < 52);
	assert_true(draw(f, "seed=7", "rate=head:0.5") == first);
	assert_true(draw(f, "seed=8", "rate=head:0.5") != first);
	assert_true(draw(f, "seed=7", "rate=head:0") == 0);
	assert_true(draw(f, "seed=7", "rate=head:1") == UINT64_MAX);
	/* What fails at a rate fails at a higher one too. */
	assert_true((draw(f, "seed=7", "rate=head:0.7") & first) == first);
}

static void calls_fail_while_a_file_is_there(void **state)
{
	struct fixture *f = *state;

	wrap(f, "while=put:%s:ENOSPC");
	assert_int_equal(put(f, "a"), 0);
	make_file(f);
	assert_int_equal(put(f, "a"), KVT_ENOSPC);
	assert_int_equal(get(f, "a"), 0);
	assert_int_equal(put(f, "a"), KVT_ENOSPC);
	unlink(f->path);
	assert_int_equal(put(f, "a"), 0);
}

static void a_failure_is_explained_and_the_trace_tells_of_it(void **state)
{
	struct fixture *f = *state;
	struct testio t = {.io = {.op = KVT_IO_HEAD, .name = "some/name"}};
	char text[100] = "";
	int fd;

	wrap(f, "fail=head:2:ETHROTTLED", "trace=%s");
	assert_int_equal(head(f, "x"), KVT_ENOENT);
	assert_int_equal(testsession_run(&f->ts, &t), KVT_ETHROTTLED);
	assert_string_equal(t.detail, "head some/name: ETHROTTLED made by the fault wrapper");
	fd = open(f->path, O_RDONLY);
	assert_true(read(fd, text, sizeof(text) - 1) > 0);
	close(fd);
	assert_string_equal(text, "fail head 2 some/name\n");
}

/* ---- What is done all the same ---- */

/* An object in two parts; the results of the four steps. */
static void in_parts(struct fixture *f, const char *name, uint32_t end, int results[4])
{
	struct testio t = {
		.io = {.op = KVT_IO_BEGIN, .name = name, .object_bytes = FAULT_BODY_BYTES}};
	void *handle;

	results[1] = results[2] = results[3] = 1;
	results[0] = testsession_run(&f->ts, &t);
	if (results[0]) {
		assert_null(t.io.handle);
		return;
	}
	handle = t.io.handle;
	for (uint32_t i = 0; i < 2; i++) {
		uint64_t at = i * 30000, bytes = i ? FAULT_BODY_BYTES - 30000 : 30000;
		struct kvt_iovec iov = {f->body + at, bytes};

		t = (struct testio){.io = {.op = KVT_IO_PART,
					   .name = name,
					   .iov = &iov,
					   .iov_count = 1,
					   .part_number = i,
					   .length = bytes,
					   .offset = (int64_t)at,
					   .handle = handle}};
		results[1 + i] = testsession_run(&f->ts, &t);
	}
	t = (struct testio){.io = {.op = end, .name = name, .handle = handle}};
	results[3] = testsession_run(&f->ts, &t);
}

static void a_failing_step_of_parts_leaves_nothing_behind(void **state)
{
	struct fixture *f = *state;
	int r[4];

	wrap(f, "fail=begin:1,part:2,commit:1,abort:1");
	in_parts(f, "a", KVT_IO_COMMIT, r);
	assert_int_equal(r[0], KVT_EIO);
	in_parts(f, "a", KVT_IO_ABORT, r);
	assert_int_equal(r[0], 0);
	assert_int_equal(r[1], 0);
	assert_int_equal(r[2], KVT_EIO);
	assert_int_equal(r[3], KVT_EIO);
	in_parts(f, "a", KVT_IO_COMMIT, r);
	assert_int_equal(r[3], KVT_EIO);
	assert_int_equal(head(f, "a"), KVT_ENOENT);
	in_parts(f, "a", KVT_IO_COMMIT, r);
	assert_int_equal(r[3], 0);
	assert_int_equal(get(f, "a"), 0);
	assert_memory_equal(f->body, f->back, FAULT_BODY_BYTES);
}

static void with_error_after_the_answer_alone_is_lost(void **state)
{
	struct fixture *f = *state;
	int r[4];

	wrap(f, "fail=put:1,begin:1,commit:1,remove:1,get:1", "error_after=1");
	assert_int_equal(put(f, "a"), KVT_EIO);
	assert_int_equal(head(f, "a"), 0);
	assert_int_equal(get(f, "a"), KVT_EIO);
	assert_memory_equal(f->body, f->back, FAULT_BODY_BYTES);
	in_parts(f, "b", KVT_IO_COMMIT, r);
	assert_int_equal(r[0], KVT_EIO);
	in_parts(f, "b", KVT_IO_COMMIT, r);
	assert_int_equal(r[3], KVT_EIO);
	assert_int_equal(get(f, "b"), 0);
	assert_memory_equal(f->body, f->back, FAULT_BODY_BYTES);
	assert_int_equal(testsession_remove(&f->ts, "a", NULL), KVT_EIO);
	assert_int_equal(head(f, "a"), KVT_ENOENT);
	/* A failure of the backend's own is not covered up. */
	assert_int_equal(testsession_remove(&f->ts, "a", NULL), KVT_ENOENT);
}

/* ---- Bodies ---- */

static void a_short_read_brings_half_and_fails(void **state)
{
	struct fixture *f = *state;
	struct kvt_iovec iov[3] = {{f->back, 100}, {f->back + 100, 60000}, {f->back + 60100, 9900}};
	struct testio t = {.io = {.op = KVT_IO_GET,
				  .name = "a",
				  .iov = iov,
				  .iov_count = 3,
				  .length = FAULT_BODY_BYTES}};

	wrap(f, "short_read=get:2:EPROTO");
	assert_int_equal(put(f, "a"), 0);
	assert_int_equal(get(f, "a"), 0);
	memset(f->back, 0, FAULT_BODY_BYTES);
	assert_int_equal(testsession_run(&f->ts, &t), KVT_EPROTO);
	assert_int_equal(t.io.bytes_landed, FAULT_BODY_BYTES / 2);
	assert_memory_equal(f->body, f->back, FAULT_BODY_BYTES / 2);
	assert_int_equal(f->back[FAULT_BODY_BYTES / 2], 0);
	assert_int_equal(iov[1].iov_len, 60000);
	assert_int_equal(get(f, "a"), 0);
}

static void a_short_write_stores_nothing(void **state)
{
	struct fixture *f = *state;
	int r[4];

	wrap(f, "short_write=put:2,part:2:ENOSPC");
	assert_int_equal(put(f, "a"), 0);
	assert_int_equal(put(f, "b"), KVT_EIO);
	assert_int_equal(head(f, "b"), KVT_ENOENT);
	in_parts(f, "b", KVT_IO_ABORT, r);
	assert_int_equal(r[2], KVT_ENOSPC);
	assert_int_equal(r[3], 0);
	assert_int_equal(head(f, "b"), KVT_ENOENT);
	assert_int_equal(put(f, "b"), 0);
}

static size_t differences(const uint8_t *a, const uint8_t *b)
{
	size_t count = 0;

	for (size_t i = 0; i < FAULT_BODY_BYTES; i++)
		count += a[i] != b[i];
	return count;
}

struct watched {
	struct testio t; /* first: found through the owner */
	const uint8_t *body, *back;
	int wrong; /* the changed byte was seen by a progress call that covered it */
};

static void watch(struct kvt_io *io, uint64_t bytes)
{
	struct watched *w = (struct watched *)io->owner;

	w->wrong |= memcmp(w->body, w->back, bytes) != 0;
}

static void a_flipped_get_has_one_wrong_byte_when_progress_is_told(void **state)
{
	struct fixture *f = *state;
	struct kvt_iovec iov = {f->back, FAULT_BODY_BYTES};
	struct watched w = {.t.io = {.op = KVT_IO_GET,
				     .name = "a",
				     .iov = &iov,
				     .iov_count = 1,
				     .length = FAULT_BODY_BYTES,
				     .progress = watch},
			    .body = f->body,
			    .back = f->back};

	wrap(f, "flip=get:1,get:3");
	assert_int_equal(put(f, "a"), 0);
	assert_int_equal(testsession_run(&f->ts, &w.t), 0);
	assert_true(w.wrong);
	assert_int_equal(differences(f->body, f->back), 1);
	assert_int_equal(get(f, "a"), 0);
	assert_int_equal(differences(f->body, f->back), 0);
	assert_int_equal(get(f, "a"), 0);
	assert_int_equal(differences(f->body, f->back), 1);
}

static void a_flipped_put_or_part_stores_one_wrong_byte(void **state)
{
	struct fixture *f = *state;
	uint8_t *before = malloc(FAULT_BODY_BYTES);
	int r[4];

	assert_non_null(before);
	memcpy(before, f->body, FAULT_BODY_BYTES);
	wrap(f, "flip=put:1,part:2");
	assert_int_equal(put(f, "a"), 0);
	in_parts(f, "b", KVT_IO_COMMIT, r);
	assert_int_equal(r[3], 0);
	assert_memory_equal(before, f->body, FAULT_BODY_BYTES);
	assert_int_equal(get(f, "a"), 0);
	assert_int_equal(differences(f->body, f->back), 1);
	assert_int_equal(get(f, "b"), 0);
	assert_int_equal(differences(f->body, f->back), 1);
	assert_int_equal(put(f, "a"), 0);
	assert_int_equal(get(f, "a"), 0);
	assert_int_equal(differences(f->body, f->back), 0);
	free(before);
}

/* ---- Opening ---- */

static void the_inner_limits_are_passed_on(void **state)
{
	struct fixture *f = *state;
	struct kvt_backend_limits plain;
	struct testbackend tb;

	wrap(f, "seed=1");
	assert_int_equal(testbackend_open(&tb, &f->th,
					  &(struct testbackend_options){
						  .ops = &f->inner,
						  .location = "",
						  .options = &f->inner_option,
						  .option_count = fault_inner == FAULT_LATER}),
			 0);
	plain = tb.limits;
	plain.default_depth = f->tb.limits.default_depth;
	testbackend_close(&tb);
	assert_memory_equal(&plain, &f->tb.limits, sizeof(plain));
}

static void options_that_make_no_sense_are_refused(void **state)
{
	static const struct {
		const char *option, *message;
	} cases[] = {
		{"fail=get", "fault: option fail: 'get', expected <op>:<n>[:<error>]"},
		{"fail=get:0", "fault: option fail: 'get:0', expected <op>:<n>[:<error>]"},
		{"fail=get:1,put:x", "fault: option fail: 'put:x', expected <op>:<n>[:<error>]"},
		{"fail=get:1,", "fault: option fail: '', expected <op>:<n>[:<error>]"},
		{"fail=got:1", "fault: option fail: 'got:1', expected <op>:<n>[:<error>]"},
		{"fail=get:-1", "fault: option fail: 'get:-1', expected <op>:<n>[:<error>]"},
		{"fail=get:99999999999999999999",
		 "fault: option fail: 'get:99999999999999999999', expected <op>:<n>[:<error>]"},
		{"fail=get:1:EWHAT", "fault: option fail: 'get:1:EWHAT', expected "
				     "<op>:<n>[:<error>]"},
		{"every=get:1+", "fault: option every: 'get:1+', expected <op>:<n>[:<error>]"},
		{"rate=get:1.5", "fault: option rate: 'get:1.5', expected <op>:<0 to "
				 "1>[:<error>]"},
		{"rate=get:nan", "fault: option rate: 'get:nan', expected <op>:<0 to "
				 "1>[:<error>]"},
		{"while=get:x", "fault: option while: 'get:x', expected <op>:<absolute "
				"path>[:<error>]"},
		{"hang=get:", "fault: option hang: 'get:', expected <op>:<absolute path>"},
		{"delay=get:5-1", "fault: option delay: 'get:5-1', expected <op>:<ms>[-<ms>]"},
		{"delay=get:99999999999",
		 "fault: option delay: 'get:99999999999', expected <op>:<ms>[-<ms>]"},
		{"short_read=put:1", "fault: option short_read: 'put:1', expected "
				     "get:<n>[:<error>]"},
		{"short_write=get:1", "fault: option short_write: 'get:1', expected <put or "
				      "part>:<n>[:<error>]"},
		{"flip=head:1", "fault: option flip: 'head:1', expected <get, put or part>:<n>"},
		{"error=EWHAT", "fault: option error: 'EWHAT', expected a code like EIO"},
		{"error_after=2", "fault: option error_after: '2', expected 0 or 1"},
		{"seed=x", "fault: option seed: 'x', expected a number"},
		{"trace=/nowhere/at/all",
		 "fault: option trace: /nowhere/at/all: No such file or directory"},
	};
	struct fixture *f = *state;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const char *const options[] = {cases[i].option, NULL};

		testhost_forget();
		assert_int_equal(fault_try_open(f, options),
				 strncmp(cases[i].option, "trace", 5) ? KVT_EINVAL : KVT_ECONFIG);
		assert_string_equal(testhost_failure(), cases[i].message);
		assert_null(f->tb.backend);
		assert_int_equal(atomic_load(&f->th.live), 0);
	}
}

int main(void)
{
	static const struct CMUnitTest cases[] = {
		FAULT_CASE(the_nth_call_fails_and_no_other),
		FAULT_CASE(from_the_nth_on_and_every_nth_call_fail),
		FAULT_CASE(any_counts_calls_of_every_kind),
		FAULT_CASE(a_rate_follows_from_its_seed),
		FAULT_CASE(calls_fail_while_a_file_is_there),
		FAULT_CASE(a_failure_is_explained_and_the_trace_tells_of_it),
		FAULT_CASE(a_failing_step_of_parts_leaves_nothing_behind),
		FAULT_CASE(with_error_after_the_answer_alone_is_lost),
		FAULT_CASE(a_short_read_brings_half_and_fails),
		FAULT_CASE(a_short_write_stores_nothing),
		FAULT_CASE(a_flipped_get_has_one_wrong_byte_when_progress_is_told),
		FAULT_CASE(a_flipped_put_or_part_stores_one_wrong_byte),
		FAULT_CASE(the_inner_limits_are_passed_on),
		FAULT_CASE(options_that_make_no_sense_are_refused),
	};

	return fault_run_cases(cases, sizeof(cases) / sizeof(cases[0]));
}
