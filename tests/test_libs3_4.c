/* SPDX-License-Identifier: Apache-2.0 */
/* What the module does with libs3 4.1 and not with 2.0: multipart uploads, tokens, regions and
 * verification; on a libs3 that keeps all in memory. */
#include "libs3_4/control.h"
#include "libs3_scene.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MIB (UINT64_C(1) << 20)
#define KEYS                                                                                       \
	{"access_key", "key"},                                                                     \
	{                                                                                          \
		"secret_key", "hush"                                                               \
	}

static struct libs3_4_control *control;

static const struct kvt_option_value all_options[] = {
	{"endpoint", "http://127.0.0.1:9"}, KEYS, {"session_token", "token"}, {"region", "mars-1"}};

static int set_up(void **state)
{
	struct libs3_scene *s = calloc(1, sizeof(*s));

	*state = s;
	if (!s)
		return -1;
	testhost_init(&s->th);
	if (testbackend_open(
		    &s->tb, &s->th,
		    &(struct testbackend_options){.ops = libs3_ops,
						  .location = "//bucket/p",
						  .options = all_options,
						  .option_count = TEST_COUNT(all_options)}))
		return -1;
	return testsession_open(&s->ts, &s->tb, 1, 0);
}

static int tear_down(void **state)
{
	struct libs3_scene *s = *state;
	long live;

	testsession_close(&s->ts);
	testbackend_close(&s->tb);
	live = atomic_load(&s->th.live);
	free(s);
	control->fault = LIBS3_4_NONE;
	control->more = 0;
	return live ? -1 : 0;
}

/* An object of two parts, the second one shorter; its handle in *handlep. */
#define TWO_PARTS (6 * MIB)

static int begin(struct libs3_scene *s, const char *name, void **handlep)
{
	struct testio t = {.io = {.op = KVT_IO_BEGIN, .name = name, .object_bytes = TWO_PARTS}};
	int error = testsession_run(&s->ts, &t);

	*handlep = t.io.handle;
	return error;
}

static int part(struct libs3_scene *s, const char *name, void *handle, uint32_t number,
		const uint8_t *data)
{
	uint64_t at = number * 5 * MIB;
	struct libs3_request r = {.memory = (uint8_t *)(uintptr_t)data + at};

	r.t.io.part_number = number;
	r.t.io.handle = handle;
	return libs3_run(s, &r, KVT_IO_PART, name, number ? TWO_PARTS - at : 5 * MIB, (int64_t)at);
}

static int end(struct libs3_scene *s, uint32_t op, const char *name, void *handle, char detail[256])
{
	struct testio t = {
		.io = {.op = op, .name = name, .object_bytes = TWO_PARTS, .handle = handle}};
	int error = testsession_run(&s->ts, &t);

	if (detail)
		memcpy(detail, t.detail, 256);
	return error;
}

static uint8_t *body(uint64_t seed)
{
	uint8_t *data = malloc(TWO_PARTS);

	assert_non_null(data);
	test_fill(data, TWO_PARTS, seed);
	return data;
}

static void an_upload_is_made_of_parts_and_needs_no_memory_of_its_size(void **state)
{
	struct libs3_scene *s = *state;
	uint8_t *data = body(1);
	void *handle;

	assert_int_equal(s->tb.limits.min_part_bytes, 5 * MIB);
	assert_int_equal(s->tb.limits.max_parts, 10000);
	assert_true(s->tb.limits.max_part_bytes <= INT32_MAX);
	assert_int_equal(s->tb.limits.max_object_bytes, UINT64_C(5) << 40);
	assert_non_null(strstr(s->tb.limits.detail, "signature=4 multipart=yes"));
	assert_int_equal(begin(s, "k", &handle), 0);
	assert_int_equal(control->uploads_open, 1);
	assert_int_equal(part(s, "k", handle, 1, data), 0);
	assert_int_equal(part(s, "k", handle, 0, data), 0);
	assert_int_equal(end(s, KVT_IO_COMMIT, "k", handle, NULL), 0);
	assert_int_equal(libs3_get(s, "k", TWO_PARTS, 1, 5 * MIB - 100, 200, NULL), 0);
	assert_int_equal(control->uploads_open, 0);
	free(data);
}

static void what_is_given_up_is_aborted(void **state)
{
	struct libs3_scene *s = *state;
	unsigned before = control->aborts;
	uint8_t *data = body(1);
	void *handle;

	assert_int_equal(begin(s, "gone", &handle), 0);
	assert_int_equal(part(s, "gone", handle, 0, data), 0);
	assert_int_equal(end(s, KVT_IO_ABORT, "gone", handle, NULL), 0);
	assert_int_equal(control->aborts, before + 1);
	assert_int_equal(control->uploads_open, 0);
	assert_int_equal(testsession_head(&s->ts, "gone", NULL), KVT_ENOENT);
	free(data);
}

static void an_error_in_a_commit_s_200_is_no_success(void **state)
{
	struct libs3_scene *s = *state;
	unsigned before = control->aborts;
	uint8_t *data = body(1);
	char detail[256];
	void *handle;

	assert_int_equal(begin(s, "bad", &handle), 0);
	assert_int_equal(part(s, "bad", handle, 0, data), 0);
	assert_int_equal(part(s, "bad", handle, 1, data), 0);
	control->fault = LIBS3_4_COMMIT_ERROR_IN_200;
	control->more = 100;
	assert_int_equal(end(s, KVT_IO_COMMIT, "bad", handle, detail), KVT_ESERVER);
	assert_non_null(strstr(detail, "commit p/bad of bucket at 127.0.0.1:9: the answer is an"));
	assert_int_equal(testsession_head(&s->ts, "bad", NULL), KVT_ENOENT);
	assert_int_equal(control->aborts, before + 1);
	assert_int_equal(control->uploads_open, 0);
	free(data);
}

static void a_commit_that_failed_once_is_done_again(void **state)
{
	struct libs3_scene *s = *state;
	uint8_t *data = body(4);
	void *handle;

	assert_int_equal(begin(s, "again", &handle), 0);
	assert_int_equal(part(s, "again", handle, 0, data), 0);
	assert_int_equal(part(s, "again", handle, 1, data), 0);
	control->fault = LIBS3_4_COMMIT_ERROR_IN_200;
	assert_int_equal(end(s, KVT_IO_COMMIT, "again", handle, NULL), 0);
	assert_int_equal(libs3_get(s, "again", TWO_PARTS, 4, 0, TWO_PARTS, NULL), 0);
	free(data);
}

static void a_commit_whose_answer_is_lost_has_happened(void **state)
{
	struct libs3_scene *s = *state;
	uint8_t *data = body(3);
	void *handle;

	assert_int_equal(begin(s, "lost", &handle), 0);
	assert_int_equal(part(s, "lost", handle, 0, data), 0);
	assert_int_equal(part(s, "lost", handle, 1, data), 0);
	control->fault = LIBS3_4_COMMIT_ANSWER_LOST;
	assert_int_equal(end(s, KVT_IO_COMMIT, "lost", handle, NULL), 0);
	assert_int_equal(libs3_get(s, "lost", TWO_PARTS, 3, 0, TWO_PARTS, NULL), 0);
	free(data);
}

static void a_commit_with_a_part_missing_fails(void **state)
{
	struct libs3_scene *s = *state;
	uint8_t *data = body(1);
	void *handle;

	assert_int_equal(begin(s, "half", &handle), 0);
	assert_int_equal(part(s, "half", handle, 1, data), 0);
	assert_true(end(s, KVT_IO_COMMIT, "half", handle, NULL) < 0);
	assert_int_equal(testsession_head(&s->ts, "half", NULL), KVT_ENOENT);
	assert_int_equal(control->uploads_open, 0);
	free(data);
}

static void a_part_without_an_etag_is_sent_again_by_whoever_sent_it(void **state)
{
	struct libs3_scene *s = *state;
	uint8_t *data = body(1);
	void *handle;

	assert_int_equal(begin(s, "etag", &handle), 0);
	control->fault = LIBS3_4_PART_WITHOUT_ETAG;
	assert_int_equal(part(s, "etag", handle, 0, data), KVT_EPROTO);
	assert_int_equal(part(s, "etag", handle, 0, data), 0);
	assert_int_equal(part(s, "etag", handle, 1, data), 0);
	assert_int_equal(end(s, KVT_IO_COMMIT, "etag", handle, NULL), 0);
	free(data);
}

static void an_id_that_libs3_would_send_wrongly_is_refused(void **state)
{
	struct libs3_scene *s = *state;
	void *handle;

	control->fault = LIBS3_4_ODD_UPLOAD_ID;
	assert_int_equal(begin(s, "odd", &handle), KVT_ENOTSUP);
	assert_null(handle);
	assert_int_equal(begin(s, "odd", &handle), 0);
	assert_int_equal(end(s, KVT_IO_ABORT, "odd", handle, NULL), 0);
}

static void a_deadline_ends_a_part_that_hangs(void **state)
{
	struct libs3_scene *s = *state;
	uint8_t *data = body(1);
	void *handle;

	assert_int_equal(begin(s, "hang", &handle), 0);
	control->fault = LIBS3_4_HANG;
	/* Longer each time, until the part has begun before its deadline. */
	for (int64_t ms = 50; control->fault == LIBS3_4_HANG; ms *= 2) {
		struct libs3_request r = {.memory = data};

		r.t.io.handle = handle;
		r.t.io.deadline_ns = s->th.host.now_ns() + ms * 1000000;
		assert_int_equal(libs3_run(s, &r, KVT_IO_PART, "hang", 5 * MIB, 0), KVT_ETIMEDOUT);
		assert_non_null(strstr(r.t.detail, "the deadline has passed"));
	}
	assert_int_equal(part(s, "hang", handle, 0, data), 0);
	assert_int_equal(part(s, "hang", handle, 1, data), 0);
	assert_int_equal(end(s, KVT_IO_COMMIT, "hang", handle, NULL), 0);
	free(data);
}

/* How an end of an upload fails, told in one line. */
static void expect_end(struct libs3_scene *s, struct testio *t, int error, const char *text)
{
	assert_int_equal(testsession_run(&s->ts, t), error);
	if (!strstr(t->detail, text) || strchr(t->detail, '\n'))
		fail_msg("'%s' is not in '%s'", text, t->detail);
}

static void what_is_late_at_once_says_so(void **state)
{
	static const struct {
		uint32_t op;
		const char *verb;
	} cases[] = {{KVT_IO_PUT, "put"},   {KVT_IO_BEGIN, "begin"}, {KVT_IO_PART, "part"},
		     {KVT_IO_GET, "get"},   {KVT_IO_HEAD, "head"},   {KVT_IO_REMOVE, "remove"},
		     {KVT_IO_LIST, "list"}, {KVT_IO_SWEEP, "sweep"}, {KVT_IO_COMMIT, "commit"}};
	struct libs3_scene *s = *state;
	unsigned before = control->uploads_open;
	void *handle;

	assert_int_equal(begin(s, "late", &handle), 0);
	for (size_t i = 0; i < TEST_COUNT(cases); i++) {
		char *line = test_format("%s late: the deadline has passed", cases[i].verb);
		struct testio t = {.io = {.op = cases[i].op, .name = "late", .handle = handle}};

		t.io.deadline_ns = s->th.host.now_ns();
		expect_end(s, &t, KVT_ETIMEDOUT, line);
		free(line);
	}
	/* The commit has ended it. */
	assert_int_equal(control->uploads_open, before);
}

static void an_upload_that_lacks_memory_says_so(void **state)
{
	struct libs3_scene *s = *state;
	unsigned aborts = control->aborts, open = control->uploads_open;
	uint8_t *data = body(1);
	void *handle;

	struct testio t = {.io = {.op = KVT_IO_BEGIN, .name = "poor", .object_bytes = TWO_PARTS}};
	atomic_store(&s->th.fail_at, atomic_load(&s->th.allocations) + 1);
	expect_end(s, &t, KVT_ENOMEM, "begin p/poor of bucket at 127.0.0.1:9: out of memory");
	assert_null(t.io.handle);

	assert_int_equal(begin(s, "poor", &handle), 0);
	t = (struct testio){.io = {.op = KVT_IO_PART, .name = "poor", .handle = handle}};
	atomic_store(&s->th.fail_at, atomic_load(&s->th.allocations) + 1);
	expect_end(s, &t, KVT_ENOMEM, "part p/poor of bucket at 127.0.0.1:9: out of memory");

	assert_int_equal(part(s, "poor", handle, 0, data), 0);
	assert_int_equal(part(s, "poor", handle, 1, data), 0);
	t = (struct testio){.io = {.op = KVT_IO_COMMIT,
				   .name = "poor",
				   .object_bytes = TWO_PARTS,
				   .handle = handle}};
	atomic_store(&s->th.fail_at, atomic_load(&s->th.allocations) + 1);
	expect_end(s, &t, KVT_ENOMEM, "commit p/poor of bucket at 127.0.0.1:9: out of memory");
	assert_int_equal(control->aborts, aborts + 1);
	assert_int_equal(control->uploads_open, open);
	free(data);
}

static void tokens_and_regions_reach_libs3(void **state)
{
	struct libs3_scene *s = *state;

	assert_int_equal(libs3_put(s, "k", 10, 1, NULL), 0);
	assert_string_equal(control->region, "mars-1");
	assert_string_equal(control->token, "token");
}

static int open_verify(const char *endpoint, const char *verify, struct testbackend *tb,
		       struct testhost *th)
{
	const struct kvt_option_value options[] = {
		{"endpoint", endpoint}, KEYS, {"verify", verify}};

	testhost_init(th);
	return testbackend_open(tb, th,
				&(struct testbackend_options){.ops = libs3_ops,
							      .location = "//bucket/p",
							      .options = options,
							      .option_count = TEST_COUNT(options)});
}

static void https_is_verified(void **state)
{
	unsigned unverified = control->unverified;
	struct testbackend tb;
	struct testsession ts;
	struct testhost th;

	(void)state;
	assert_int_equal(open_verify("https://127.0.0.1:9", "on", &tb, &th), 0);
	assert_int_equal(testsession_open(&ts, &tb, 1, 0), 0);
	assert_int_equal(testsession_put(&ts, "v", "x", 1, 0, NULL, NULL), 0);
	assert_int_equal(control->unverified, unverified);
	testsession_close(&ts);
	testbackend_close(&tb);
	/* Once for the process, and for all of it: the first store was a verifying one. */
	assert_int_equal(control->initializations, 1);
	assert_true(control->flags & 2);
	assert_int_equal(open_verify("https://127.0.0.1:9", "off", &tb, &th), KVT_ECONFIG);
	assert_non_null(strstr(testhost_failure(), "verifies for all or for none"));
	/* Which matters to https alone. */
	assert_int_equal(open_verify("http://127.0.0.1:9", "off", &tb, &th), 0);
	testbackend_close(&tb);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(an_upload_is_made_of_parts_and_needs_no_memory_of_its_size),
		CASE(what_is_given_up_is_aborted),
		CASE(an_error_in_a_commit_s_200_is_no_success),
		CASE(a_commit_that_failed_once_is_done_again),
		CASE(a_commit_whose_answer_is_lost_has_happened),
		CASE(a_commit_with_a_part_missing_fails),
		CASE(a_part_without_an_etag_is_sent_again_by_whoever_sent_it),
		CASE(an_id_that_libs3_would_send_wrongly_is_refused),
		CASE(a_deadline_ends_a_part_that_hangs),
		CASE(what_is_late_at_once_says_so),
		CASE(an_upload_that_lacks_memory_says_so),
		CASE(libs3_ages_in_listings_do_not_depend_on_the_time_zone),
		CASE(tokens_and_regions_reach_libs3),
		cmocka_unit_test(https_is_verified),
	};

	libs3_clear_environment();
	libs3_ops = libs3_load(LIBS3_IN_MEMORY);
	control = libs3_symbol(LIBS3_IN_MEMORY, "libs3_4_control");
	if (!libs3_ops || !control)
		return 1;
	return cmocka_run_group_tests_name("libs3 4.1", tests, NULL, NULL);
}
