/* SPDX-License-Identifier: Apache-2.0 */
/* Objects in parts: what is sent, conditions of the commit on servers of each kind, answers of
 * CompleteMultipartUpload that are no success or get lost, and that uploads end with an abort
 * whenever they do not become an object. */
#include "s3_scene.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME   "ab/cd.bin"
#define PART   (5 * S3_SCENE_MIB)
#define LAST   UINT64_C(1234)
#define OBJECT (2 * PART + LAST)
#define SEED   5u

/* Begins, and writes all parts; the handle, NULL when one of them failed. */
static void *try_upload_as(struct s3_scene *scene, uint64_t seed)
{
	void *handle;

	if (s3_scene_begin(scene, NAME, OBJECT, &handle))
		return NULL;
	for (uint32_t i = 3; i-- > 0;)
		if (s3_scene_part(scene, NAME, handle, i, i * PART, i == 2 ? LAST : PART, OBJECT,
				  seed)) {
			int result = scene->result;

			(void)s3_scene_abort(scene, NAME, handle);
			scene->result = result;
			return NULL;
		}
	return handle;
}

static void *upload_as(struct s3_scene *scene, uint64_t seed)
{
	void *handle = try_upload_as(scene, seed);

	s3_scene_expect(scene, "upload", 0, NULL);
	return handle;
}

static void *upload(struct s3_scene *scene)
{
	return upload_as(scene, SEED);
}

static int commit(struct s3_scene *scene, void *handle, uint32_t flags)
{
	return s3_scene_commit(scene, NAME, handle, OBJECT, flags, NULL);
}

static void parts_become_an_object_in_three_kinds_of_requests(void **state)
{
	struct s3_scene *scene = *state;
	struct s3_server_request request;
	void *handle;

	s3_scene_start(scene, S3_SERVER_EQUAL_PARTS);
	handle = upload(scene);
	assert_int_equal(s3_server_uploads(scene->server), 1);
	assert_false(s3_server_has(scene->server, S3_SCENE_KEY(NAME)));
	assert_int_equal(commit(scene, handle, 0), 0);
	assert_int_equal(scene->info.object_bytes, OBJECT);
	assert_true(scene->info.version.bytes > 2);
	assert_int_equal(s3_server_uploads(scene->server), 0);
	assert_true(s3_scene_has(scene, NAME, OBJECT, SEED));
	assert_int_equal(s3_scene_seen(scene, ~0u), 5);
	/* ETags as they came, quotes and all, in ascending order. */
	assert_true(s3_server_request(scene->server, S3_OP_COMPLETE, 0, &request));
	assert_non_null(strstr(request.body, "<PartNumber>1</PartNumber><ETag>&quot;"));
	assert_non_null(strstr(request.body, "<PartNumber>3</PartNumber>"));
	s3_server_request_free(&request);
	/* The version is the one that reads show. */
	{
		struct kvt_version version = scene->info.version;

		assert_int_equal(s3_scene_get(scene, NAME, 100, (int64_t)PART - 50, SEED, &version),
				 0);
	}
}

static void white_space_before_the_result_is_waited_through(void **state)
{
	struct s3_scene *scene = *state;
	void *handle = NULL;

	s3_scene_start(scene, S3_SERVER_PATIENT_COMPLETE);
	assert_int_equal(commit(scene, upload(scene), 0), 0);
	s3_scene_rule(scene, "ops=complete times=1 blanks=5000");
	assert_int_equal(commit(scene, upload(scene), 0), 0);
	/* A server that thinks for longer than any other answer may take. How long that is, the
	 * machine decides. */
	for (unsigned ms = 300; !handle; ms *= 2) {
		char *limit = test_format("%u", ms);

		s3_server_clear_rules(scene->server);
		s3_scene_rule(scene, "ops=complete times=1 delay-ms=%u", 3 * ms);
		s3_scene_close(scene);
		s3_scene_option(scene, "first_byte_timeout_ms", limit);
		s3_scene_open(scene);
		handle = try_upload_as(scene, SEED);
		s3_scene_expect(scene, limit, handle ? 0 : KVT_ETIMEDOUT, NULL);
		free(limit);
	}
	assert_int_equal(commit(scene, handle, 0), 0);
	assert_int_equal(s3_server_rule_hits(scene->server), 1);
	assert_true(s3_scene_has(scene, NAME, OBJECT, SEED));
}

static void a_part_is_repeated_alone(void **state)
{
	static const struct {
		const char *rule;
		int result;
	} cases[] = {
		{"status=503 code=SlowDown", KVT_ETHROTTLED},
		{"status=500 code=InternalError", KVT_ESERVER},
		{"status=400 code=RequestTimeout", KVT_ENET},
		{"status=403 body=\"\"", KVT_EACCES},
		{"etag=\"\"", KVT_EPROTO},
		{"done-first status=500 code=InternalError", KVT_ESERVER},
	};
	struct s3_scene *scene = *state;

	s3_scene_start(scene, 0);
	for (size_t i = 0; i < TEST_COUNT(cases); i++) {
		void *handle;

		s3_server_clear_rules(scene->server);
		assert_int_equal(s3_scene_begin(scene, NAME, OBJECT, &handle), 0);
		assert_int_equal(s3_scene_part(scene, NAME, handle, 0, 0, PART, OBJECT, i), 0);
		s3_server_forget(scene->server);
		s3_scene_rule(scene, "ops=part times=1 %s", cases[i].rule);
		s3_scene_part(scene, NAME, handle, 1, PART, PART, OBJECT, i);
		s3_scene_expect(scene, cases[i].rule, cases[i].result, "part ");
		assert_int_equal(s3_scene_seen(scene, ~0u), 1);
		assert_int_equal(s3_scene_part(scene, NAME, handle, 1, PART, PART, OBJECT, i), 0);
		assert_int_equal(s3_scene_part(scene, NAME, handle, 2, 2 * PART, LAST, OBJECT, i),
				 0);
		assert_int_equal(commit(scene, handle, 0), 0);
		assert_true(s3_scene_has(scene, NAME, OBJECT, i));
		assert_int_equal(s3_server_uploads(scene->server), 0);
	}
}

static void an_upload_that_is_gone_can_be_begun_again(void **state)
{
	struct s3_scene *scene = *state;
	void *handle;

	s3_scene_start(scene, 0);
	assert_int_equal(s3_scene_begin(scene, NAME, OBJECT, &handle), 0);
	s3_scene_rule(scene, "ops=part times=1 status=404 code=NoSuchUpload");
	s3_scene_part(scene, NAME, handle, 0, 0, PART, OBJECT, SEED);
	/* No miss: it is not the object that is absent. */
	s3_scene_expect(scene, "NoSuchUpload", KVT_EPROTO, "NoSuchUpload");
	assert_int_equal(s3_scene_abort(scene, NAME, handle), 0);
	assert_int_equal(s3_server_uploads(scene->server), 0);
}

static void servers_without_multipart_say_so(void **state)
{
	struct s3_scene *scene = *state;
	void *handle;

	s3_scene_start(scene, S3_SERVER_NO_MULTIPART);
	s3_scene_begin(scene, NAME, OBJECT, &handle);
	s3_scene_expect(scene, "501", KVT_ENOTSUP, "HTTP 501 NotImplemented");
	s3_server_set_traits(scene->server, 0);
	s3_scene_rule(scene, "ops=create times=1 body=\"<html>ok</html>\" status=200");
	s3_scene_begin(scene, NAME, OBJECT, &handle);
	s3_scene_expect(scene, "no UploadId", KVT_EPROTO, NULL);
	s3_scene_rule(scene, "ops=create times=1 body=\"\" status=200");
	s3_scene_begin(scene, NAME, OBJECT, &handle);
	s3_scene_expect(scene, "no body", KVT_EPROTO, "UploadId");
	s3_server_clear_rules(scene->server);
	s3_scene_rule(scene, "ops=create hang");
	while (s3_scene_give_longer(scene, s3_server_rule_hits(scene->server) > 0)) {
		s3_scene_begin(scene, NAME, OBJECT, &handle);
		s3_scene_expect(scene, "hang", KVT_ETIMEDOUT, NULL);
	}
}

/* ---- Complete ---- */

static void an_error_inside_a_200_is_an_error(void **state)
{
	static const struct {
		const char *rule;
		int result;
		const char *detail;
	} cases[] = {
		{"status=200 code=AccessDenied message=no", KVT_EACCES, "HTTP 200 AccessDenied"},
		{"status=200 code=InvalidPart blanks=3000", KVT_EPROTO, "InvalidPart"},
		{"status=200 body=\"<OtherResult/>\"", KVT_EPROTO,
		 "no CompleteMultipartUploadResult"},
		{"status=200 body=\"\"", KVT_EPROTO, "no CompleteMultipartUploadResult"},
		{"status=200 body=\"<Complete\"", KVT_EPROTO, NULL},
		{"status=200 body=\"<html>&nbsp;</html>\"", KVT_EPROTO, NULL},
		{"status=400 code=EntityTooSmall", KVT_ECONFIG, "EntityTooSmall"},
		{"status=400 code=InvalidPartOrder", KVT_EINTERNAL, NULL},
		{"status=403 code=AccessDenied", KVT_EACCES, "HTTP 403 AccessDenied"},
	};
	struct s3_scene *scene = *state;

	s3_scene_start(scene, 0);
	for (size_t i = 0; i < TEST_COUNT(cases); i++) {
		void *handle = upload(scene);

		s3_server_clear_rules(scene->server);
		s3_server_forget(scene->server);
		s3_scene_rule(scene, "ops=complete %s", cases[i].rule);
		commit(scene, handle, 0);
		if (scene->result == 0)
			fail_msg("%s: taken for a success", cases[i].rule);
		if (cases[i].result != KVT_EINTERNAL)
			s3_scene_expect(scene, cases[i].rule, cases[i].result, cases[i].detail);
		/* Given up: nothing is left that takes space. */
		assert_true(s3_scene_seen(scene, S3_OP_ABORT) >= 1);
		assert_int_equal(s3_server_uploads(scene->server), 0);
		assert_false(s3_server_has(scene->server, S3_SCENE_KEY(NAME)));
	}
}

static void a_commit_that_may_work_again_is_tried_again(void **state)
{
	static const char *const rules[] = {"status=503 code=SlowDown",
					    "status=500 code=InternalError",
					    "status=200 code=InternalError",
					    "status=200 code=SlowDown blanks=100",
					    "lost=rst",
					    "lost=fin"};
	struct s3_scene *scene = *state;

	s3_scene_start(scene, S3_SERVER_MD5_ETAGS);
	for (size_t i = 0; i < TEST_COUNT(rules); i++) {
		void *handle;

		assert_int_equal(s3_scene_begin(scene, NAME, LAST, &handle), 0);
		assert_int_equal(s3_scene_part(scene, NAME, handle, 0, 0, LAST, LAST, i), 0);
		s3_server_clear_rules(scene->server);
		s3_scene_rule(scene, "ops=complete times=1 %s", rules[i]);
		s3_server_forget(scene->server);
		s3_scene_commit(scene, NAME, handle, LAST, 0, NULL);
		s3_scene_expect(scene, rules[i], 0, NULL);
		assert_true(s3_scene_seen(scene, S3_OP_COMPLETE) >= 2);
		assert_int_equal(s3_scene_seen(scene, S3_OP_ABORT), 0);
		assert_true(s3_scene_has(scene, NAME, LAST, i));
		assert_int_equal(s3_server_uploads(scene->server), 0);
	}
}

/* The first try was done, its answer lost; the second finds the upload gone. */
static void a_commit_whose_answer_was_lost_is_recognised(void **state)
{
	static const char *const rules[] = {"lost=rst", "lost=fin",
					    "done-first status=500 code=InternalError"};
	static const unsigned traits[] = {S3_SERVER_MD5_ETAGS, S3_SERVER_COMPLETE_TWICE};
	struct s3_scene *scene = *state;

	s3_scene_serve(scene, NULL);
	for (size_t i = 0; i < TEST_COUNT(rules) * TEST_COUNT(traits); i++) {
		void *handle;

		s3_server_set_traits(scene->server, traits[i / TEST_COUNT(rules)]);
		s3_server_clear_rules(scene->server);
		s3_scene_open(scene);
		assert_int_equal(s3_scene_begin(scene, NAME, LAST, &handle), 0);
		assert_int_equal(s3_scene_part(scene, NAME, handle, 0, 0, LAST, LAST, i), 0);
		s3_scene_rule(scene, "ops=complete times=1 %s", rules[i % TEST_COUNT(rules)]);
		s3_scene_commit(scene, NAME, handle, LAST, i & 1 ? KVT_IO_IF_ABSENT : 0, NULL);
		s3_scene_expect(scene, rules[i % TEST_COUNT(rules)], 0, NULL);
		assert_int_equal(scene->info.object_bytes, LAST);
		assert_true(s3_scene_has(scene, NAME, LAST, i));
		assert_int_equal(s3_scene_remove(scene, NAME, NULL), 0);
		s3_scene_close(scene);
	}
}

/* The first try was not done, its answer an error; then somebody aborts the upload. An object that
 * was there before, of the same length, is no proof of anything. */
static void an_upload_that_is_gone_is_taken_for_done_only_by_its_own_bytes(void **state)
{
	enum { ABSENT, OLD, NEWER };
	static const struct {
		const char *what;
		unsigned traits;
		int found;
		uint32_t flags;
		int result;
	} cases[] = {
		{"none is there", S3_SERVER_MD5_ETAGS, ABSENT, 0, KVT_EPROTO},
		{"none is there, if absent", S3_SERVER_MD5_ETAGS, ABSENT, KVT_IO_IF_ABSENT,
		 KVT_EPROTO},
		{"an old one", S3_SERVER_MD5_ETAGS, OLD, 0, KVT_EPROTO},
		{"an old one, opaque", 0, OLD, 0, KVT_EPROTO},
		{"the same version", S3_SERVER_MD5_ETAGS, OLD, KVT_IO_IF_VERSION, KVT_EPROTO},
		{"the same version, opaque", 0, OLD, KVT_IO_IF_VERSION, KVT_EPROTO},
		{"another version", S3_SERVER_MD5_ETAGS, NEWER, KVT_IO_IF_VERSION, KVT_EPRECOND},
		{"another version, opaque", 0, NEWER, KVT_IO_IF_VERSION, KVT_EPRECOND},
		{"somebody else's, if absent", S3_SERVER_MD5_ETAGS, NEWER, KVT_IO_IF_ABSENT,
		 KVT_EEXIST},
		{"somebody else's, if absent, opaque", 0, NEWER, KVT_IO_IF_ABSENT, KVT_EEXIST},
	};
	struct s3_scene *scene = *state;

	s3_scene_serve(scene, NULL);
	for (size_t i = 0; i < TEST_COUNT(cases); i++) {
		struct kvt_version version = {0};
		char *name = test_format("found/%zu.bin", i);
		void *handle;

		s3_server_set_traits(scene->server, cases[i].traits);
		s3_server_clear_rules(scene->server);
		s3_scene_open(scene);
		if (cases[i].flags != KVT_IO_IF_ABSENT && cases[i].found != ABSENT) {
			s3_scene_plant(scene, name, LAST, 1);
			assert_int_equal(s3_scene_head(scene, name, 0), 0);
			version = scene->info.version;
		}
		assert_int_equal(s3_scene_begin(scene, name, LAST, &handle), 0);
		assert_int_equal(s3_scene_part(scene, name, handle, 0, 0, LAST, LAST, 2), 0);
		s3_scene_rule(scene, "ops=complete times=1 status=500 code=InternalError");
		s3_scene_rule(scene, "ops=complete status=404 code=NoSuchUpload");
		/* The question before the commit hears what was there before. */
		if (cases[i].found == NEWER && cases[i].flags == KVT_IO_IF_ABSENT)
			s3_scene_rule(scene, "ops=head times=1 status=404");
		if (cases[i].found == NEWER && cases[i].flags == KVT_IO_IF_VERSION)
			s3_scene_rule(scene, "ops=head times=1 etag=\"%.*s\"",
				      (int)version.bytes - 2, (char *)version.value + 1);
		if (cases[i].found == NEWER)
			s3_scene_plant(scene, name, LAST, 3);
		s3_scene_commit(scene, name, handle, LAST, cases[i].flags,
				cases[i].flags & KVT_IO_IF_VERSION ? &version : NULL);
		s3_scene_expect(scene, cases[i].what, cases[i].result, NULL);
		assert_false(s3_scene_has(scene, name, LAST, 2));
		s3_scene_close(scene);
		free(name);
	}
}

static void an_unknown_upload_at_the_first_try_is_no_success(void **state)
{
	struct s3_scene *scene = *state;
	void *handle;

	s3_scene_start(scene, 0);
	handle = upload(scene);
	/* An object of the same length, of somebody else's. */
	s3_scene_plant(scene, NAME, OBJECT, SEED + 1);
	s3_scene_rule(scene, "ops=complete status=404 code=NoSuchUpload");
	commit(scene, handle, 0);
	s3_scene_expect(scene, "unknown", KVT_EPROTO, "NoSuchUpload");
	assert_int_equal(s3_server_uploads(scene->server), 0);
}

static void a_commit_ends_in_its_time(void **state)
{
	struct s3_scene *scene = *state;
	void *handle;

	s3_scene_start(scene, 0);
	s3_scene_rule(scene, "ops=complete hang");
	handle = upload(scene);
	while (s3_scene_give_longer(scene, s3_server_rule_hits(scene->server) > 0)) {
		unsigned ms = scene->time_ms;

		if (!handle) {
			scene->time_ms = 0;
			handle = upload(scene);
			scene->time_ms = ms;
		}
		commit(scene, handle, 0);
		s3_scene_expect(scene, "hang", KVT_ETIMEDOUT, NULL);
		handle = NULL;
		/* The abort has time of its own. */
		assert_int_equal(s3_server_uploads(scene->server), 0);
	}
	handle = upload(scene);
	s3_scene_rule(scene, "ops=complete status=503 code=SlowDown");
	scene->time_ms = 400;
	commit(scene, handle, 0);
	assert_true(scene->result == KVT_ETHROTTLED || scene->result == KVT_ETIMEDOUT);
	assert_int_equal(s3_server_uploads(scene->server), 0);
}

/* ---- Conditions ---- */

static void conditions_of_a_commit_are_kept_on_servers_of_each_kind(void **state)
{
	static const struct {
		const char *what;
		unsigned traits;
	} kinds[] = {
		{"all conditions", 0},
		{"no conditions", S3_SERVER_NO_PUT_CONDITIONS | S3_SERVER_NO_COMPLETE_CONDITIONS},
		{"none on Complete", S3_SERVER_NO_COMPLETE_CONDITIONS},
		{"ignored on Complete", S3_SERVER_BLIND_COMPLETE_CONDITIONS},
		{"bare ETags", S3_SERVER_BARE_IF_MATCH | S3_SERVER_BLIND_COMPLETE_CONDITIONS},
		{"bare ETags on Complete too", S3_SERVER_BARE_IF_MATCH},
	};
	struct s3_scene *scene = *state;

	s3_scene_serve(scene, NULL);
	for (size_t i = 0; i < TEST_COUNT(kinds); i++) {
		struct kvt_version version;

		s3_server_set_traits(scene->server, kinds[i].traits);
		s3_scene_open(scene);
		commit(scene, upload_as(scene, 1), KVT_IO_IF_ABSENT);
		s3_scene_expect(scene, kinds[i].what, 0, NULL);
		version = scene->info.version;
		commit(scene, upload_as(scene, 2), KVT_IO_IF_ABSENT);
		s3_scene_expect(scene, kinds[i].what, KVT_EEXIST, NULL);
		assert_true(s3_scene_has(scene, NAME, OBJECT, 1));
		assert_int_equal(s3_server_uploads(scene->server), 0);
		s3_scene_commit(scene, NAME, upload_as(scene, 3), OBJECT, 0, &version);
		s3_scene_expect(scene, kinds[i].what, 0, NULL);
		assert_true(s3_scene_has(scene, NAME, OBJECT, 3));
		s3_scene_commit(scene, NAME, upload_as(scene, 4), OBJECT, 0, &version);
		s3_scene_expect(scene, kinds[i].what, KVT_EPRECOND, NULL);
		assert_true(s3_scene_has(scene, NAME, OBJECT, 3));
		assert_int_equal(s3_server_uploads(scene->server), 0);
		assert_int_equal(s3_scene_remove(scene, NAME, NULL), 0);
		s3_scene_close(scene);
	}
}

/* Created by another between the question and the commit. */
static void a_server_with_conditions_decides_a_race(void **state)
{
	struct s3_scene *scene = *state;
	struct testio t = {.io = {.op = KVT_IO_COMMIT,
				  .name = NAME,
				  .object_bytes = OBJECT,
				  .flags = KVT_IO_IF_ABSENT}};

	s3_scene_start(scene, 0);
	t.io.handle = upload(scene);
	s3_scene_rule(scene, "ops=complete times=1 hold");
	assert_int_equal(testio_prepare(&t, &scene->ts), 0);
	assert_int_equal(testio_submit(&t), KVT_QUEUED);
	while (s3_scene_seen(scene, S3_OP_COMPLETE) == 0)
		(void)scene->tb.ops.poll(scene->ts.session, scene->th.host.now_ns() + 1000000);
	assert_true(s3_server_await_held(scene->server, 1));
	s3_scene_plant(scene, NAME, 10, 9);
	s3_server_release(scene->server);
	assert_int_equal(testio_wait(&t), KVT_EEXIST);
	testio_release(&t);
	assert_true(s3_scene_has(scene, NAME, 10, 9));
	assert_int_equal(s3_server_uploads(scene->server), 0);
}

/* ---- Abort ---- */

static void an_abort_is_repeated_until_nothing_is_left(void **state)
{
	static const struct {
		const char *rule;
		int result;
		unsigned left;
	} cases[] = {
		{"times=1 status=503 code=SlowDown", 0, 0},
		{"times=1 status=500 code=InternalError", 0, 0},
		{"times=1 status=404 code=NoSuchUpload", 0, 1},
		{"status=403 code=AccessDenied", KVT_EACCES, 2},
	};
	struct s3_scene *scene = *state;

	s3_scene_start(scene, 0);
	for (size_t i = 0; i < TEST_COUNT(cases); i++) {
		void *handle = upload(scene);

		s3_server_clear_rules(scene->server);
		s3_scene_rule(scene, "ops=abort %s", cases[i].rule);
		s3_scene_abort(scene, NAME, handle);
		s3_scene_expect(scene, cases[i].rule, cases[i].result, NULL);
		assert_int_equal(s3_server_uploads(scene->server), cases[i].left);
	}
}

/* A part whose connection broke may still be written when the abort comes. */
static void an_abort_after_a_part_that_broke_waits_for_404(void **state)
{
	struct s3_scene *scene = *state;
	void *handle;

	s3_scene_start(scene, 0);
	assert_int_equal(s3_scene_begin(scene, NAME, OBJECT, &handle), 0);
	s3_scene_rule(scene, "ops=part upload-cut=rst upload-at=100000");
	s3_scene_part(scene, NAME, handle, 0, 0, PART, OBJECT, SEED);
	assert_int_not_equal(scene->result, 0);
	s3_server_forget(scene->server);
	assert_int_equal(s3_scene_abort(scene, NAME, handle), 0);
	assert_int_equal(s3_scene_seen(scene, S3_OP_ABORT), 2);
	assert_int_equal(s3_server_uploads(scene->server), 0);
}

static void parts_that_are_not_the_object_are_never_committed(void **state)
{
	struct s3_scene *scene = *state;
	void *handle;

	s3_scene_start(scene, 0);
	assert_int_equal(s3_scene_begin(scene, NAME, OBJECT, &handle), 0);
	assert_int_equal(s3_scene_part(scene, NAME, handle, 0, 0, PART, OBJECT, SEED), 0);
	assert_int_equal(s3_scene_part(scene, NAME, handle, 2, 2 * PART, LAST, OBJECT, SEED), 0);
	commit(scene, handle, 0);
	s3_scene_expect(scene, "a hole", KVT_EINVAL, NULL);
	assert_int_equal(s3_scene_seen(scene, S3_OP_COMPLETE), 0);
	assert_int_equal(s3_server_uploads(scene->server), 0);
}

/* ---- Sweep ---- */

static void stale_uploads_are_swept_and_no_others(void **state)
{
	struct s3_scene *scene = *state;
	char key[100];

	s3_scene_start(scene, 0);
	for (unsigned i = 0; i < 1003; i++) {
		snprintf(key, sizeof(key), S3_SCENE_KEY("old/%04u + %%.bin"), i);
		assert_true(s3_server_begin_upload(scene->server, key, 7200));
	}
	assert_true(s3_server_begin_upload(scene->server, S3_SCENE_KEY("same.bin"), 7200));
	assert_true(s3_server_begin_upload(scene->server, S3_SCENE_KEY("same.bin"), 7201));
	assert_true(s3_server_begin_upload(scene->server, S3_SCENE_KEY("young.bin"), 60));
	assert_true(s3_server_begin_upload(scene->server, "some/prefix2/other.bin", 7200));
	assert_true(s3_server_begin_upload(scene->server, "elsewhere.bin", 7200));
	assert_int_equal(s3_scene_sweep(scene, 3600), 0);
	assert_int_equal(scene->swept, 1005);
	assert_int_equal(s3_server_uploads(scene->server), 3);
	s3_server_set_traits(scene->server, S3_SERVER_NO_MULTIPART);
	assert_int_equal(s3_scene_sweep(scene, 3600), 0);
	s3_server_set_traits(scene->server, 0);
	s3_scene_rule(scene, "ops=uploads times=1 status=503 code=SlowDown");
	s3_scene_sweep(scene, 3600);
	s3_scene_expect(scene, "slow", KVT_ETHROTTLED, "SlowDown");
	s3_scene_rule(scene, "ops=abort times=1 status=403 code=AccessDenied");
	s3_scene_sweep(scene, 0);
	s3_scene_expect(scene, "forbidden", KVT_EACCES, "AccessDenied");
}

int main(void)
{
	const struct CMUnitTest cases[] = {
		S3_SCENE_CASE(parts_become_an_object_in_three_kinds_of_requests),
		S3_SCENE_CASE(white_space_before_the_result_is_waited_through),
		S3_SCENE_CASE(a_part_is_repeated_alone),
		S3_SCENE_CASE(an_upload_that_is_gone_can_be_begun_again),
		S3_SCENE_CASE(servers_without_multipart_say_so),
		S3_SCENE_CASE(an_error_inside_a_200_is_an_error),
		S3_SCENE_CASE(a_commit_that_may_work_again_is_tried_again),
		S3_SCENE_CASE(a_commit_whose_answer_was_lost_is_recognised),
		S3_SCENE_CASE(an_upload_that_is_gone_is_taken_for_done_only_by_its_own_bytes),
		S3_SCENE_CASE(an_unknown_upload_at_the_first_try_is_no_success),
		S3_SCENE_CASE(a_commit_ends_in_its_time),
		S3_SCENE_CASE(conditions_of_a_commit_are_kept_on_servers_of_each_kind),
		S3_SCENE_CASE(a_server_with_conditions_decides_a_race),
		S3_SCENE_CASE(an_abort_is_repeated_until_nothing_is_left),
		S3_SCENE_CASE(an_abort_after_a_part_that_broke_waits_for_404),
		S3_SCENE_CASE(parts_that_are_not_the_object_are_never_committed),
		S3_SCENE_CASE(stale_uploads_are_swept_and_no_others),
	};

	return cmocka_run_group_tests_name("s3_multipart", cases, NULL, NULL);
}
