/* SPDX-License-Identifier: Apache-2.0 */
/* A worker on an S3 store whose server misbehaves: right bytes or none, every job once, no upload
 * left behind. */
#include "s3_scene.h"
#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One object of 16 KiB, and one of two parts. */
static const struct test_group small = {4, 0, 1, {4096}};
static const struct test_group large = {1, 0, 1, {8 << 20}};
/* So scattered that it goes through staging. */
static const struct test_group scattered = {2048, 0, 1, {4096}};

struct scene {
	struct s3_server *server;
	struct test_bed bed;
	struct test_transfer t;
	unsigned unknown_uploads; /* that only a sweep finds */
};

static void scene_rule(struct scene *s, const char *text)
{
	const char *wrong = s3_server_add_rule_text(s->server, text);

	if (wrong)
		fail_msg("rule '%s': %s", text, wrong);
}

static void scene_serve(struct scene *s, unsigned traits)
{
	memset(s, 0, sizeof(*s));
	s->server = s3_server_start(&(struct s3_server_options){.traits = traits,
								.access_key = S3_SCENE_ACCESS_KEY,
								.secret_key = S3_SCENE_SECRET},
				    NULL);
	assert_non_null(s->server);
}

static void scene_bed(struct scene *s, struct test_bed *bed)
{
	test_bed_init(bed);
	bed->worker_options.staging_bytes = 32 << 20;
	bed->worker_options.part_bytes = 0;
	bed->worker_options.breaker_failures = UINT32_MAX;
	test_bed_option(bed, "endpoint", s3_server_url(s->server));
	test_bed_option(bed, "access_key", S3_SCENE_ACCESS_KEY);
	test_bed_option(bed, "secret_key", S3_SCENE_SECRET);
	test_bed_option(bed, "part_bytes", "5M");
}

static void scene_open(struct scene *s, const struct test_group *group, unsigned traits)
{
	struct test_transfer first;

	scene_serve(s, traits);
	scene_bed(s, &s->bed);
	test_transfer_init(&s->t, group->blocks, group, 1, 1);
	test_bed_open(&s->bed, "s3://bucket/" S3_SCENE_PREFIX);
	test_set_geometry(&s->bed, &s->t);
	/* The first one of a namespace writes down what it is. */
	test_transfer_init(&first, small.blocks, &small, 1, 9999);
	test_store(&s->bed, &first, KVT_STATUS_STORED);
	test_transfer_fini(&first);
	s3_server_forget(s->server);
}

static void scene_close(struct scene *s)
{
	test_bed_close(&s->bed);
	test_transfer_fini(&s->t);
	assert_int_equal(s3_server_uploads(s->server), s->unknown_uploads);
	s3_server_stop(s->server);
}

static struct kvt_result *store(struct scene *s)
{
	uint64_t id = s->bed.next_id++;

	test_transfer_fill(&s->t);
	assert_ok(kvt_worker_submit_store(s->bed.worker, id, &s->t.transfer, NULL));
	return test_take(s->bed.worker, id);
}

static struct kvt_result *load(struct scene *s)
{
	uint64_t id = s->bed.next_id++;

	test_transfer_poison(&s->t);
	assert_ok(kvt_worker_submit_load(s->bed.worker, id, &s->t.transfer, NULL));
	return test_take(s->bed.worker, id);
}

/* Removes uploads that nobody will end, ten minutes later. */
static void sweep(struct scene *s)
{
	struct kvt_gc_options options = {.struct_size = sizeof(options),
					 .leftover_age_ns = UINT64_C(60000000000),
					 .leftovers_only = 1};
	struct kvt_gc_summary summary = {.struct_size = sizeof(summary)};

	s3_server_set_clock(s->server, 600);
	assert_ok(kvt_store_gc(s->bed.store, &options, &summary));
	s3_server_set_clock(s->server, 0);
	assert_int_equal(s3_server_uploads(s->server), 0);
}

/* The key of the object that was stored last. */
static void object_key(struct scene *s, char *key, size_t bytes)
{
	struct s3_server_request request;

	assert_true(s3_server_request(s->server, S3_OP_PUT | S3_OP_COMPLETE, 0, &request));
	snprintf(key, bytes, "%s", request.key);
	assert_non_null(strstr(key, ".bin"));
	s3_server_request_free(&request);
}

static void chunks_are_stored_once_and_loaded(void **state)
{
	static const struct test_group *const groups[] = {&small, &large};
	struct scene s;

	(void)state;
	for (size_t i = 0; i < TEST_COUNT(groups); i++) {
		scene_open(&s, groups[i], 0);
		test_store(&s.bed, &s.t, KVT_STATUS_STORED);
		if (i == 0)
			assert_int_equal(s3_server_seen(s.server, ~0u), 1);
		s3_server_forget(s.server);
		test_load(&s.bed, &s.t, KVT_STATUS_LOADED);
		assert_int_equal(s3_server_seen(s.server, S3_OP_GET), i == 0 ? 1 : 2);
		test_store(&s.bed, &s.t, KVT_STATUS_SKIPPED);
		test_lookup(&s.bed, s.t.keys, 1, KVT_STATUS_HIT);
		scene_close(&s);
	}
}

static void faults_that_pass_are_lived_through(void **state)
{
	static const struct {
		const char *store, *load; /* rules */
	} cases[] = {
		{"ops=put,part,complete,create times=3 status=503 code=SlowDown",
		 "ops=get times=3 status=503 code=SlowDown"},
		{"ops=put,part,create times=2 status=500 code=InternalError",
		 "ops=get times=2 status=500"},
		{"ops=put,part times=2 upload-cut=rst upload-at=5000", "ops=get times=2 lost=rst"},
		{"ops=put,part,complete times=1 lost=fin", "ops=get times=2 cut=fin cut-at=100"},
		{"ops=put,part,complete times=1 lost=rst", "ops=get times=2 cut=rst cut-at=4000"},
		{"ops=complete times=1 status=200 code=InternalError",
		 "ops=get times=2 range=\"bytes 0-10/16384\""},
		{"ops=put,part times=1 done-first status=500", "ops=get times=1 whole"},
		{"ops=create times=2 lost=rst", "ops=get times=2 status=429 retry-after-s=0"},
		{"ops=put,part times=1 status=400 code=RequestTimeout",
		 "ops=get times=1 header-bytes=300000"},
		{"ops=put,part times=1 etag=\"\"", "ops=get times=1 flip flip-at=1000"},
	};
	static const struct test_group *const groups[] = {&small, &large};
	struct scene s;

	(void)state;
	for (size_t i = 0; i < TEST_COUNT(cases) * TEST_COUNT(groups); i++) {
		const char *rules[] = {cases[i / 2].store, cases[i / 2].load};
		struct kvt_result *result;

		scene_open(&s, groups[i % 2], 0);
		scene_rule(&s, rules[0]);
		result = store(&s);
		/* An answer that was lost leaves the object there for the next try to find. */
		if (result->status != KVT_STATUS_STORED && result->status != KVT_STATUS_SKIPPED)
			fail_msg("%s: %s", rules[0], result->detail);
		kvt_result_release(result);
		s3_server_clear_rules(s.server);
		/* An upload whose id was lost is left to the sweep. */
		if (strstr(rules[0], "ops=create"))
			sweep(&s);
		assert_int_equal(s3_server_uploads(s.server), 0);
		scene_rule(&s, rules[1]);
		result = load(&s);
		if (result->status != KVT_STATUS_LOADED)
			fail_msg("%s: %s", rules[1], result->detail);
		kvt_result_release(result);
		test_transfer_check(&s.t);
		assert_true(s3_server_rule_hits(s.server) >= 1);
		s3_server_clear_rules(s.server);
		scene_close(&s);
	}
}

static void faults_that_stay_fail_the_job_and_say_why(void **state)
{
	static const struct {
		const char *rule;
		int error;
		const char *detail;
	} cases[] = {
		{"status=503 code=SlowDown", KVT_ETHROTTLED, "HTTP 503 SlowDown"},
		{"status=500 code=InternalError", KVT_ESERVER, "HTTP 500 InternalError"},
		{"status=403 code=AccessDenied", KVT_EACCES, "HTTP 403 AccessDenied"},
		{"status=403 code=SignatureDoesNotMatch", KVT_EAUTH, "SignatureDoesNotMatch"},
		{"status=404 code=NoSuchBucket", KVT_ECONFIG, "NoSuchBucket"},
		{"lost=rst", KVT_ENET, NULL},
	};
	struct scene s;

	(void)state;
	for (size_t i = 0; i < TEST_COUNT(cases); i++) {
		char *rule = test_format("ops=put,get key=.bin %s", cases[i].rule);
		struct kvt_result *result;

		scene_open(&s, &small, 0);
		scene_rule(&s, rule);
		result = store(&s);
		if (result->status != KVT_STATUS_FAILED || result->error != cases[i].error ||
		    (cases[i].detail && !strstr(result->detail, cases[i].detail)))
			fail_msg("store, %s: %d: %s", rule, result->error, result->detail);
		kvt_result_release(result);
		s3_server_clear_rules(s.server);
		result = store(&s);
		assert_int_equal(result->error, 0);
		kvt_result_release(result);
		scene_rule(&s, rule);
		result = load(&s);
		if (result->status != KVT_STATUS_FAILED || result->error != cases[i].error ||
		    (cases[i].detail && !strstr(result->detail, cases[i].detail)))
			fail_msg("load, %s: %d: %s", rule, result->error, result->detail);
		kvt_result_release(result);
		/* It was no proof of anything: the object stays. */
		s3_server_clear_rules(s.server);
		test_load(&s.bed, &s.t, KVT_STATUS_LOADED);
		scene_close(&s);
		free(rule);
	}
}

static void an_object_that_is_damaged_for_good_goes(void **state)
{
	char key[1100];
	uint8_t *data;
	uint64_t bytes;
	struct scene s;

	(void)state;
	scene_open(&s, &small, 0);
	test_store(&s.bed, &s.t, KVT_STATUS_STORED);
	object_key(&s, key, sizeof(key));
	data = s3_server_get(s.server, key, &bytes);
	assert_non_null(data);
	data[5000] ^= 1;
	assert_true(s3_server_put(s.server, key, data, bytes));
	test_load(&s.bed, &s.t, KVT_STATUS_CORRUPT);
	assert_false(s3_server_has(s.server, key));
	test_load(&s.bed, &s.t, KVT_STATUS_MISSING);
	test_store(&s.bed, &s.t, KVT_STATUS_STORED);
	test_load(&s.bed, &s.t, KVT_STATUS_LOADED);
	free(data);
	scene_close(&s);
}

/* Bytes that are wrong on the way only, each time: no proof against the object. */
static void objects_of_another_length_are_no_hits(void **state)
{
	char key[1100];
	uint8_t data[40000] = {0};
	struct scene s;

	(void)state;
	scene_open(&s, &small, 0);
	test_store(&s.bed, &s.t, KVT_STATUS_STORED);
	object_key(&s, key, sizeof(key));
	/* Twice as long as what is asked for, and of somebody else. */
	assert_true(s3_server_put(s.server, key, data, sizeof(data)));
	{
		struct kvt_result *result = load(&s);

		assert_true(result->status != KVT_STATUS_LOADED);
		assert_true(result->status != KVT_STATUS_LOADED_UNVERIFIED);
		kvt_result_release(result);
	}
	assert_true(s3_server_put(s.server, key, data, 10));
	{
		struct kvt_result *result = load(&s);

		assert_true(result->status != KVT_STATUS_LOADED);
		kvt_result_release(result);
	}
	/* Young ones are left alone. */
	assert_true(s3_server_has(s.server, key));
	scene_close(&s);
}

static void an_object_replaced_while_it_is_read_is_read_again(void **state)
{
	struct scene s;

	(void)state;
	scene_open(&s, &large, 0);
	test_store(&s.bed, &s.t, KVT_STATUS_STORED);
	scene_rule(&s, "ops=get skip=1 times=1 status=412 code=PreconditionFailed");
	test_load(&s.bed, &s.t, KVT_STATUS_LOADED);
	assert_int_equal(s3_server_rule_hits(s.server), 1);
	s3_server_clear_rules(s.server);
	scene_rule(&s, "ops=get skip=1 times=1 etag=?");
	test_load(&s.bed, &s.t, KVT_STATUS_LOADED);
	assert_int_equal(s3_server_rule_hits(s.server), 1);
	scene_close(&s);
}

/* Of the request `back` before the last GET: where its range begins, and its If-Match. */
static uint64_t range_begin(struct scene *s, unsigned back, char if_match[80])
{
	struct s3_server_request request;
	char range[80];
	uint64_t begin;

	assert_true(s3_server_request(s->server, S3_OP_GET, back, &request));
	assert_non_null(s3_server_header(&request, "range", range, sizeof(range)));
	assert_int_equal(strncmp(range, "bytes=", 6), 0);
	begin = strtoull(range + 6, NULL, 10);
	if (!s3_server_header(&request, "if-match", if_match, 80))
		if_match[0] = '\0';
	s3_server_request_free(&request);
	return begin;
}

static void reads_that_break_go_on_where_they_broke(void **state)
{
	static const struct test_group *const groups[] = {&small, &large, &scattered};
	static const char *const rules[] = {"ops=get times=2 cut=fin cut-at=9000",
					    "ops=get times=2 cut=rst cut-at=9000 chunked"};
	char key[1100], etag[80], if_match[80];
	struct scene s;

	(void)state;
	for (size_t i = 0; i < TEST_COUNT(groups) * TEST_COUNT(rules); i++) {
		scene_open(&s, groups[i / 2], 0);
		test_store(&s.bed, &s.t, KVT_STATUS_STORED);
		object_key(&s, key, sizeof(key));
		s3_server_etag(s.server, key, etag);
		s3_server_forget(s.server);
		scene_rule(&s, rules[i % 2]);
		test_load(&s.bed, &s.t, KVT_STATUS_LOADED);
		assert_int_equal(s3_server_rule_hits(s.server), 2);
		unsigned last = (unsigned)s3_server_seen(s.server, S3_OP_GET) - 1;
		/* Whole pages of what came are kept. */
		uint64_t begin = range_begin(&s, last, if_match);
		assert_string_equal(if_match, "");
		for (unsigned n = 1; n <= 2; n++) {
			assert_int_equal(range_begin(&s, last - n, if_match), begin + n * 8192);
			assert_string_equal(if_match, etag);
		}
		s3_server_clear_rules(s.server);
		scene_rule(&s, "ops=get cut=fin cut-at=100");
		assert_result_error(KVT_STATUS_FAILED, KVT_EPROTO, load(&s));
		scene_close(&s);
	}
}

static void the_rest_of_a_replaced_object_is_not_taken(void **state)
{
	struct kvt_result *result;
	uint64_t salt, bytes;
	uint8_t *before;
	char key[1100], if_match[80];
	struct scene s;

	(void)state;
	scene_open(&s, &large, 0);
	salt = s.t.salt;
	s.t.salt = 77;
	test_store(&s.bed, &s.t, KVT_STATUS_STORED);
	object_key(&s, key, sizeof(key));
	before = s3_server_get(s.server, key, &bytes);
	assert_true(s3_server_remove(s.server, key));
	s.t.salt = salt;
	test_load(&s.bed, &s.t, KVT_STATUS_MISSING);
	test_store(&s.bed, &s.t, KVT_STATUS_STORED);
	uint8_t *after = s3_server_get(s.server, key, &bytes);
	assert_true(s3_server_put(s.server, key, before, bytes));
	s3_server_forget(s.server);
	scene_rule(&s, "ops=get times=1 cut=fin cut-at=2000000");
	scene_rule(&s, "ops=get times=1 hold");
	test_transfer_poison(&s.t);
	assert_ok(kvt_worker_submit_load(s.bed.worker, 4711, &s.t.transfer, NULL));
	assert_true(s3_server_await_held(s.server, 1));
	assert_true(s3_server_put(s.server, key, after, bytes));
	s3_server_release(s.server);
	result = test_take(s.bed.worker, 4711);
	if (result->status != KVT_STATUS_LOADED)
		fail_msg("%s", result->detail);
	kvt_result_release(result);
	test_transfer_check(&s.t);
	/* The other part, this part from its beginning, and before that the rest that was refused.
	 */
	uint64_t begin = range_begin(&s, 1, if_match);
	assert_string_equal(if_match, "");
	assert_true(range_begin(&s, 2, if_match) > begin);
	assert_string_not_equal(if_match, "");
	free(before);
	free(after);
	scene_close(&s);
}

static void objects_that_come_and_go_behind_our_back_are_noticed(void **state)
{
	char key[1100];
	uint64_t bytes;
	uint8_t *data;
	struct scene s;

	(void)state;
	scene_open(&s, &small, 0);
	test_store(&s.bed, &s.t, KVT_STATUS_STORED);
	object_key(&s, key, sizeof(key));
	data = s3_server_get(s.server, key, &bytes);
	assert_true(s3_server_remove(s.server, key));
	test_load(&s.bed, &s.t, KVT_STATUS_MISSING);
	assert_true(s3_server_put(s.server, key, data, bytes));
	test_load(&s.bed, &s.t, KVT_STATUS_LOADED);
	assert_true(s3_server_remove(s.server, key));
	free(data);
	scene_close(&s);
}

static void absent_chunks_are_misses_without_the_right_to_list(void **state)
{
	struct test_transfer other;
	struct scene s;

	(void)state;
	scene_open(&s, &small, S3_SERVER_NO_LIST_RIGHT);
	test_store(&s.bed, &s.t, KVT_STATUS_STORED);
	test_lookup(&s.bed, s.t.keys, 1, KVT_STATUS_HIT);
	test_transfer_init(&other, small.blocks, &small, 1, 77);
	test_lookup(&s.bed, other.keys, 1, KVT_STATUS_MISS);
	test_transfer_fini(&other);
	scene_close(&s);
}

static void servers_of_each_kind_take_what_is_stored(void **state)
{
	static const unsigned kinds[] = {
		S3_SERVER_NO_PUT_CONDITIONS | S3_SERVER_NO_COMPLETE_CONDITIONS,
		S3_SERVER_BLIND_COMPLETE_CONDITIONS | S3_SERVER_BARE_IF_MATCH | S3_SERVER_BARE_416 |
			S3_SERVER_COMPLETE_TWICE,
		S3_SERVER_PATIENT_COMPLETE | S3_SERVER_EQUAL_PARTS,
		S3_SERVER_MD5_ETAGS,
	};
	static const struct test_group *const groups[] = {&small, &large};
	struct scene s;

	(void)state;
	for (size_t i = 0; i < TEST_COUNT(kinds) * 2; i++) {
		scene_open(&s, groups[i % 2], kinds[i / 2]);
		test_store(&s.bed, &s.t, KVT_STATUS_STORED);
		test_store(&s.bed, &s.t, KVT_STATUS_SKIPPED);
		test_load(&s.bed, &s.t, KVT_STATUS_LOADED);
		scene_close(&s);
	}
}

static void of_two_workers_with_the_same_keys_one_creates(void **state)
{
	struct test_transfer other;
	struct kvt_result *mine, *theirs;
	struct test_bed bed;
	struct scene s;
	uint64_t id;

	(void)state;
	scene_open(&s, &small, 0);
	scene_bed(&s, &bed);
	test_transfer_init(&other, small.blocks, &small, 1, 1);
	test_bed_open(&bed, "s3://bucket/" S3_SCENE_PREFIX);
	test_set_geometry(&bed, &other);
	/* Both are on their way before either is done. */
	scene_rule(&s, "ops=put key=.bin times=2 hold");
	test_transfer_fill(&other);
	id = bed.next_id++;
	assert_ok(kvt_worker_submit_store(bed.worker, id, &other.transfer, NULL));
	assert_true(s3_server_await_held(s.server, 1));
	test_transfer_fill(&s.t);
	s.bed.next_id++;
	assert_ok(kvt_worker_submit_store(s.bed.worker, s.bed.next_id, &s.t.transfer, NULL));
	assert_true(s3_server_await_held(s.server, 2));
	s3_server_release(s.server);
	theirs = test_take(bed.worker, id);
	mine = test_take(s.bed.worker, s.bed.next_id++);
	assert_int_equal(
		(mine->status == KVT_STATUS_STORED) + (theirs->status == KVT_STATUS_STORED), 1);
	assert_int_equal(
		(mine->status == KVT_STATUS_SKIPPED) + (theirs->status == KVT_STATUS_SKIPPED), 1);
	kvt_result_release(mine);
	kvt_result_release(theirs);
	test_load(&bed, &other, KVT_STATUS_LOADED);
	test_load(&s.bed, &s.t, KVT_STATUS_LOADED);
	test_bed_close(&bed);
	test_transfer_fini(&other);
	scene_close(&s);
}

static void a_server_that_comes_back_is_used_again(void **state)
{
	struct kvt_result *result;
	struct scene s;

	(void)state;
	scene_open(&s, &small, 0);
	test_store(&s.bed, &s.t, KVT_STATUS_STORED);
	s3_server_down(s.server);
	result = load(&s);
	assert_int_equal(result->status, KVT_STATUS_FAILED);
	assert_int_equal(result->error, KVT_ENET);
	kvt_result_release(result);
	assert_true(s3_server_up(s.server));
	test_load(&s.bed, &s.t, KVT_STATUS_LOADED);
	scene_close(&s);
}

static void deadlines_and_cancels_leave_no_upload(void **state)
{
	struct kvt_result *result;
	struct scene s;
	uint64_t id;

	(void)state;
	scene_open(&s, &large, 0);
	scene_rule(&s, "ops=part skip=1 times=1 hold");
	id = s.bed.next_id++;
	test_transfer_fill(&s.t);
	assert_ok(kvt_worker_submit_store(s.bed.worker, id, &s.t.transfer, NULL));
	assert_true(s3_server_await_held(s.server, 1));
	(void)kvt_worker_cancel(s.bed.worker, id);
	s3_server_release(s.server);
	result = test_take(s.bed.worker, id);
	assert_true(result->status == KVT_STATUS_CANCELED || result->status == KVT_STATUS_STORED);
	kvt_result_release(result);
	assert_int_equal(s3_server_uploads(s.server), 0);
	/* A part that is never answered, under a deadline. */
	s3_server_clear_rules(s.server);
	test_bed_close_worker(&s.bed);
	test_bed_open_worker(&s.bed);
	s.t.salt++;
	s.t.key_seed++;
	scene_rule(&s, "ops=part hang");
	/* Longer each time, until a part has reached the server before it. */
	for (uint64_t ms = 500;; ms *= 2) {
		struct kvt_submit_options options = KVT_INIT(options);
		struct test_transfer t;

		options.timeout_ms = ms;
		test_transfer_init(&t, large.blocks, &large, 1, 55);
		test_transfer_fill(&t);
		id = s.bed.next_id++;
		assert_ok(kvt_worker_submit_store(s.bed.worker, id, &t.transfer, &options));
		result = test_take(s.bed.worker, id);
		assert_int_equal(result->status, KVT_STATUS_FAILED);
		assert_int_equal(result->error, KVT_ETIMEDOUT);
		kvt_result_release(result);
		test_transfer_fini(&t);
		if (s3_server_rule_hits(s.server) > 0)
			break;
		/* Whose beginning was answered too late stays, when the server has done with it. */
		s3_server_down(s.server);
		s.unknown_uploads = s3_server_uploads(s.server);
		assert_true(s3_server_up(s.server));
	}
	assert_int_equal(s3_server_uploads(s.server), s.unknown_uploads);
	s3_server_clear_rules(s.server);
	scene_close(&s);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, s3_scene_setup, s3_scene_teardown)
	const struct CMUnitTest cases[] = {
		CASE(chunks_are_stored_once_and_loaded),
		CASE(faults_that_pass_are_lived_through),
		CASE(faults_that_stay_fail_the_job_and_say_why),
		CASE(an_object_that_is_damaged_for_good_goes),
		CASE(objects_of_another_length_are_no_hits),
		CASE(an_object_replaced_while_it_is_read_is_read_again),
		CASE(reads_that_break_go_on_where_they_broke),
		CASE(the_rest_of_a_replaced_object_is_not_taken),
		CASE(objects_that_come_and_go_behind_our_back_are_noticed),
		CASE(absent_chunks_are_misses_without_the_right_to_list),
		CASE(servers_of_each_kind_take_what_is_stored),
		CASE(of_two_workers_with_the_same_keys_one_creates),
		CASE(a_server_that_comes_back_is_used_again),
		CASE(deadlines_and_cancels_leave_no_upload),
	};

	return cmocka_run_group_tests_name("s3_worker", cases, NULL, NULL);
}
