/* SPDX-License-Identifier: Apache-2.0 */
/* Single PUTs, HEADs and removals: conditions on servers of each kind, what is asked beforehand,
 * answers that get lost, and bodies that break off. */
#include "s3_scene.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME  "ab/cd.bin"
#define BYTES UINT64_C(300000)

/* The value of a header of the last request of this kind; NULL when it was not sent. */
static const char *sent(struct s3_scene *scene, unsigned op, const char *name)
{
	static char value[512];
	struct s3_server_request request;
	const char *found;

	assert_true(s3_server_request(scene->server, op, 0, &request));
	found = s3_server_header(&request, name, value, sizeof(value));
	s3_server_request_free(&request);
	return found;
}

static void a_put_is_one_request_that_a_strict_server_takes(void **state)
{
	static const char *const names[] = {
		"a",	 "a b+c.bin", "x=1&y/(z)*~@:,'!$", "\xc3\xbc/\xe2\x82\xac",
		"a%2Fb", "..b/c..",   "a/b/c/d/e/f/g"};
	struct s3_scene *scene = *state;

	s3_scene_start(scene, 0);
	for (size_t i = 0; i < TEST_COUNT(names); i++) {
		s3_server_forget(scene->server);
		assert_int_equal(s3_scene_put(scene, names[i], 1000 + i, i, 0, NULL), 0);
		assert_int_equal(s3_scene_seen(scene, ~0u), 1);
		assert_true(s3_scene_has(scene, names[i], 1000 + i, i));
		assert_int_equal(scene->info.object_bytes, 1000 + i);
		assert_int_equal(s3_scene_get(scene, names[i], 1000 + i, 0, i, NULL), 0);
		assert_int_equal(s3_scene_remove(scene, names[i], NULL), 0);
		assert_false(s3_scene_has(scene, names[i], 1000 + i, i));
	}
	assert_int_equal(s3_scene_put(scene, NAME, BYTES, 1, 0, NULL), 0);
	assert_null(sent(scene, S3_OP_PUT, "expect"));
	assert_null(sent(scene, S3_OP_PUT, "transfer-encoding"));
	assert_null(sent(scene, S3_OP_PUT, "content-encoding"));
	assert_string_equal(sent(scene, S3_OP_PUT, "content-length"), "300000");
	assert_string_equal(sent(scene, S3_OP_PUT, "x-amz-content-sha256"), "UNSIGNED-PAYLOAD");
	assert_null(sent(scene, S3_OP_PUT, "x-amz-checksum-crc32c"));
	assert_null(sent(scene, S3_OP_PUT, "accept-encoding"));
}

static void long_keys_are_taken_up_to_the_limit(void **state)
{
	struct s3_scene *scene = *state;
	char name[1025];
	size_t most;

	s3_scene_start(scene, 0);
	most = scene->tb.limits.max_name_bytes;
	assert_int_equal(most, 1024 - strlen(S3_SCENE_KEY("")));
	memset(name, 'k', most);
	for (size_t i = 200; i < most; i += 200)
		name[i] = '/';
	name[most] = '\0';
	assert_int_equal(s3_scene_put(scene, name, 10, 1, 0, NULL), 0);
	assert_true(s3_scene_has(scene, name, 10, 1));
	name[most] = 'x';
	name[most + 1] = '\0';
	s3_server_forget(scene->server);
	s3_scene_put(scene, name, 10, 1, 0, NULL);
	s3_scene_expect(scene, "too long", KVT_EINVAL, "1,024");
	assert_int_equal(s3_scene_seen(scene, ~0u), 0);
}

/* ---- Conditions ---- */

static void a_server_with_conditions_is_asked_by_the_put_itself(void **state)
{
	struct s3_scene *scene = *state;
	struct kvt_version version;

	s3_scene_start(scene, 0);
	assert_int_equal(s3_scene_put(scene, NAME, BYTES, 1, KVT_IO_IF_ABSENT, NULL), 0);
	assert_int_equal(s3_scene_seen(scene, ~0u), 1);
	assert_string_equal(sent(scene, S3_OP_PUT, "if-none-match"), "*");
	version = scene->info.version;
	s3_scene_put(scene, NAME, BYTES, 2, KVT_IO_IF_ABSENT, NULL);
	s3_scene_expect(scene, "there", KVT_EEXIST, "HTTP 412 PreconditionFailed");
	assert_int_equal(s3_scene_seen(scene, ~0u), 2);
	assert_true(s3_scene_has(scene, NAME, BYTES, 1));
	assert_int_equal(s3_scene_put(scene, NAME, BYTES, 3, 0, &version), 0);
	assert_true(s3_scene_has(scene, NAME, BYTES, 3));
	s3_scene_put(scene, NAME, BYTES, 4, 0, &version);
	s3_scene_expect(scene, "another version", KVT_EPRECOND, NULL);
	assert_true(s3_scene_has(scene, NAME, BYTES, 3));
	assert_true(s3_server_remove(scene->server, S3_SCENE_KEY(NAME)));
	s3_scene_put(scene, NAME, BYTES, 4, 0, &version);
	assert_true(scene->result == KVT_EPRECOND || scene->result == KVT_ENOENT);
	assert_false(s3_scene_has(scene, NAME, BYTES, 4));
}

static void a_server_without_conditions_is_asked_by_head(void **state)
{
	struct s3_scene *scene = *state;
	struct kvt_version version;

	s3_scene_start(scene, S3_SERVER_NO_PUT_CONDITIONS);
	/* The first tells, with its whole body; from then on a HEAD goes before. */
	assert_int_equal(s3_scene_put(scene, NAME, BYTES, 1, KVT_IO_IF_ABSENT, NULL), 0);
	assert_int_equal(s3_scene_seen(scene, S3_OP_PUT), 2);
	assert_int_equal(s3_scene_seen(scene, S3_OP_HEAD), 1);
	version = scene->info.version;
	s3_server_forget(scene->server);
	s3_scene_put(scene, NAME, BYTES, 2, KVT_IO_IF_ABSENT, NULL);
	s3_scene_expect(scene, "there", KVT_EEXIST, NULL);
	assert_int_equal(s3_scene_seen(scene, S3_OP_PUT), 0);
	assert_int_equal(s3_scene_seen(scene, S3_OP_HEAD), 1);
	assert_true(s3_scene_has(scene, NAME, BYTES, 1));
	assert_int_equal(s3_scene_put(scene, NAME, BYTES, 3, 0, &version), 0);
	assert_null(sent(scene, S3_OP_PUT, "if-match"));
	s3_server_forget(scene->server);
	s3_scene_put(scene, NAME, BYTES, 4, 0, &version);
	s3_scene_expect(scene, "another version", KVT_EPRECOND, NULL);
	assert_int_equal(s3_scene_seen(scene, S3_OP_PUT), 0);
	assert_true(s3_scene_has(scene, NAME, BYTES, 3));
	/* For others too. */
	s3_server_forget(scene->server);
	assert_int_equal(s3_scene_put(scene, "other.bin", 10, 1, KVT_IO_IF_ABSENT, NULL), 0);
	assert_int_equal(s3_scene_seen(scene, S3_OP_PUT), 1);
}

static void a_server_that_wants_bare_etags_gets_them(void **state)
{
	struct s3_scene *scene = *state;
	struct kvt_version version;
	const char *etag;

	s3_scene_start(scene, S3_SERVER_BARE_IF_MATCH);
	assert_int_equal(s3_scene_put(scene, NAME, BYTES, 1, 0, NULL), 0);
	version = scene->info.version;
	s3_server_forget(scene->server);
	assert_int_equal(s3_scene_put(scene, NAME, BYTES, 2, 0, &version), 0);
	assert_int_equal(s3_scene_seen(scene, S3_OP_PUT), 2);
	assert_true(s3_scene_has(scene, NAME, BYTES, 2));
	version = scene->info.version;
	s3_server_forget(scene->server);
	assert_int_equal(s3_scene_put(scene, NAME, BYTES, 3, 0, &version), 0);
	/* Learnt. */
	assert_int_equal(s3_scene_seen(scene, ~0u), 1);
	etag = sent(scene, S3_OP_PUT, "if-match");
	assert_non_null(etag);
	assert_int_equal(strlen(etag), version.bytes - 2);
	assert_memory_equal(etag, version.value + 1, version.bytes - 2);
	s3_scene_put(scene, NAME, BYTES, 4, 0, &version);
	s3_scene_expect(scene, "another version", KVT_EPRECOND, NULL);
	assert_true(s3_scene_has(scene, NAME, BYTES, 3));
	/* A GET's condition keeps its quotes. */
	assert_int_equal(s3_scene_head(scene, NAME, 0), 0);
	version = scene->info.version;
	assert_int_equal(s3_scene_get(scene, NAME, 100, 0, 3, &version), 0);
	assert_int_equal(sent(scene, S3_OP_GET, "if-match")[0], '"');
}

static void exists_check_chooses_how_a_store_asks(void **state)
{
	static const struct {
		const char *value;
		int cheap; /* result of the HEAD before a store */
	} cases[] = {{"auto", KVT_EAGAIN},
		     {"conditional", KVT_EAGAIN},
		     {"head", KVT_ENOENT},
		     {"none", KVT_EAGAIN}};
	struct s3_scene *scene = *state;

	s3_scene_serve(scene, NULL);
	for (size_t i = 0; i < TEST_COUNT(cases); i++) {
		s3_scene_option(scene, "exists_check", cases[i].value);
		s3_scene_open(scene);
		s3_server_forget(scene->server);
		s3_scene_head(scene, NAME, KVT_IO_IF_CHEAP);
		s3_scene_expect(scene, cases[i].value, cases[i].cheap, NULL);
		assert_int_equal(s3_scene_seen(scene, S3_OP_HEAD),
				 cases[i].cheap == KVT_EAGAIN ? 0 : 1);
		assert_int_equal(s3_scene_put(scene, NAME, BYTES, i, KVT_IO_IF_ABSENT, NULL), 0);
		assert_int_equal(s3_scene_seen(scene, S3_OP_PUT), 1);
		s3_scene_put(scene, NAME, BYTES, 100 + i, KVT_IO_IF_ABSENT, NULL);
		if (strcmp(cases[i].value, "none") == 0)
			s3_scene_expect(scene, "overwritten", 0, NULL);
		else
			s3_scene_expect(scene, cases[i].value, KVT_EEXIST, NULL);
		assert_int_equal(s3_scene_remove(scene, NAME, NULL), 0);
		s3_scene_close(scene);
	}
}

static void a_conflict_of_two_conditional_puts_may_be_repeated(void **state)
{
	struct s3_scene *scene = *state;

	s3_scene_start(scene, 0);
	s3_scene_rule(scene, "ops=put times=1 status=409 code=ConditionalRequestConflict");
	s3_scene_put(scene, NAME, BYTES, 1, KVT_IO_IF_ABSENT, NULL);
	s3_scene_expect(scene, "conflict", KVT_EBUSY, "HTTP 409 ConditionalRequestConflict");
	assert_int_equal(s3_scene_put(scene, NAME, BYTES, 1, KVT_IO_IF_ABSENT, NULL), 0);
}

/* ---- Answers that are none, or get lost ---- */

static void only_a_2xx_with_an_etag_is_a_success(void **state)
{
	static const struct {
		const char *rule;
		int result;
		const char *detail;
	} cases[] = {
		{"status=403 body=\"\"", KVT_EACCES, "HTTP 403"},
		{"status=500 body=\"\"", KVT_ESERVER, "HTTP 500"},
		{"status=502 body=\"<html><body>Bad gateway</body></html>\"", KVT_ESERVER,
		 "HTTP 502"},
		{"status=503 body=\"\"", KVT_ESERVER, "HTTP 503"},
		{"status=503 code=SlowDown message=\"Please reduce your request rate.\"",
		 KVT_ETHROTTLED, "HTTP 503 SlowDown, request id REQ"},
		{"status=204 etag=\"\"", KVT_EPROTO, "no ETag"},
		{"etag=\"\"", KVT_EPROTO, "no ETag"},
		{"status=204 etag=?", 0, NULL},
		{"status=201 etag=?", 0, NULL},
		{"status=307 headers=\"Location: http://127.0.0.1:1/\\r\\n\" body=\"\"",
		 KVT_ECONFIG, "HTTP 307"},
		{"status=400 code=RequestTimeout", KVT_ENET, "HTTP 400 RequestTimeout"},
		{"status=400 code=BadDigest", KVT_EPROTO, "BadDigest"},
		{"status=507 code=XMinioStorageFull", KVT_ENOSPC, "XMinioStorageFull"},
		{"status=404 code=NoSuchBucket", KVT_ECONFIG, "NoSuchBucket"},
		{"lower-case", 0, NULL},
	};
	struct s3_scene *scene = *state;

	s3_scene_start(scene, 0);
	for (size_t i = 0; i < TEST_COUNT(cases); i++) {
		s3_server_clear_rules(scene->server);
		s3_scene_rule(scene, "ops=put times=1 %s", cases[i].rule);
		s3_server_forget(scene->server);
		s3_scene_put(scene, NAME, BYTES, i, 0, NULL);
		s3_scene_expect(scene, cases[i].rule, cases[i].result, cases[i].detail);
		assert_int_equal(s3_scene_seen(scene, ~0u), 1);
		if (s3_scene_put(scene, NAME, BYTES, i, 0, NULL))
			fail_msg("%s: and then: %s", cases[i].rule, scene->detail);
		assert_true(s3_scene_has(scene, NAME, BYTES, i));
	}
}

static void a_lost_answer_to_a_conditional_put_finds_its_own_object(void **state)
{
	struct s3_scene *scene = *state;

	s3_scene_start(scene, 0);
	assert_int_equal(s3_scene_head(scene, "x", 0), KVT_ENOENT);
	for (unsigned reset = 0; reset < 2; reset++) {
		/* Stored, answer lost, on a connection that had been used: sent again at once, and
		 * refused for what the first one stored. */
		s3_scene_rule(scene, "ops=put times=1 lost=%s", reset ? "rst" : "fin");
		s3_scene_put(scene, reset ? "r.bin" : "f.bin", BYTES, 1, KVT_IO_IF_ABSENT, NULL);
		assert_true(scene->result == KVT_EEXIST || scene->result == KVT_ENET ||
			    scene->result == KVT_EPROTO);
		assert_true(s3_scene_has(scene, reset ? "r.bin" : "f.bin", BYTES, 1));
		/* The core tries again. */
		s3_scene_put(scene, reset ? "r.bin" : "f.bin", BYTES, 1, KVT_IO_IF_ABSENT, NULL);
		s3_scene_expect(scene, "again", KVT_EEXIST, NULL);
	}
}

static void a_connection_closed_while_idle_costs_a_put_nothing(void **state)
{
	struct s3_scene *scene = *state;

	s3_scene_start(scene, 0);
	for (unsigned i = 0; i < 4; i++) {
		assert_int_equal(s3_scene_put(scene, NAME, 4 * S3_SCENE_MIB, i, 0, NULL), 0);
		assert_true(s3_server_close_idle(scene->server, i & 1) >= 1);
	}
	/* Broken when the body is on its way. */
	for (unsigned i = 0; i < 4; i++) {
		s3_server_clear_rules(scene->server);
		assert_int_equal(s3_scene_put(scene, NAME, 1000, 9, 0, NULL), 0);
		s3_scene_rule(scene, "ops=put times=1 upload-cut=%s upload-at=%u",
			      i & 1 ? "rst" : "fin", i & 2 ? 100000 : 0);
		s3_scene_put(scene, NAME, 4 * S3_SCENE_MIB, 10 + i, 0, NULL);
		s3_scene_expect(scene, "broken upload", 0, NULL);
		assert_int_equal(s3_server_rule_hits(scene->server), 1);
		assert_true(s3_scene_has(scene, NAME, 4 * S3_SCENE_MIB, 10 + i));
	}
}

static void a_new_connection_that_breaks_in_a_body_stores_nothing(void **state)
{
	static const char *const rules[] = {"upload-cut=rst upload-at=0",
					    "upload-cut=rst upload-at=1000000",
					    "upload-cut=fin upload-at=1000000"};
	struct s3_scene *scene = *state;

	s3_scene_serve(scene, NULL);
	for (size_t i = 0; i < TEST_COUNT(rules); i++) {
		s3_server_clear_rules(scene->server);
		s3_scene_open(scene);
		s3_scene_rule(scene, "ops=put times=1 %s", rules[i]);
		s3_server_forget(scene->server);
		s3_scene_put(scene, NAME, 8 * S3_SCENE_MIB, 1, 0, NULL);
		if (scene->result != KVT_ENET && scene->result != KVT_EPROTO)
			s3_scene_expect(scene, rules[i], KVT_ENET, NULL);
		assert_int_equal(s3_scene_seen(scene, ~0u), 1);
		assert_int_equal(s3_server_objects(scene->server), 0);
		assert_int_equal(s3_scene_put(scene, "other", 100, 1, 0, NULL), 0);
		assert_int_equal(s3_scene_remove(scene, "other", NULL), 0);
		s3_scene_close(scene);
	}
}

static void an_answer_before_the_body_has_gone_ends_it(void **state)
{
	struct s3_scene *scene = *state;

	s3_scene_start(scene, 0);
	s3_scene_rule(scene, "ops=put times=1 early status=403 code=AccessDenied");
	s3_scene_put(scene, NAME, 64 * S3_SCENE_MIB, 1, 0, NULL);
	s3_scene_expect(scene, "early 403", KVT_EACCES, "HTTP 403 AccessDenied");
	/* 200 before all has been read is no success. */
	s3_scene_rule(scene, "ops=put times=1 early status=200 etag=?");
	s3_scene_put(scene, NAME, 64 * S3_SCENE_MIB, 1, 0, NULL);
	s3_scene_expect(scene, "early 200", KVT_EPROTO, NULL);
	assert_int_equal(s3_scene_put(scene, NAME, BYTES, 1, 0, NULL), 0);
}

static void servers_that_stop_reading_are_given_up_in_time(void **state)
{
	static const char *const rules[] = {"upload-cut=stall upload-at=100000", "hang",
					    "lost=stall"};
	struct s3_scene *scene = *state;

	s3_scene_start(scene, 0);
	for (size_t i = 0; i < TEST_COUNT(rules); i++) {
		unsigned tries = 0;

		s3_scene_rule(scene, "ops=put %s", rules[i]);
		s3_server_forget(scene->server);
		while (s3_scene_give_longer(scene, s3_server_rule_hits(scene->server) > 0)) {
			s3_scene_put(scene, NAME, 16 * S3_SCENE_MIB, 1, 0, NULL);
			s3_scene_expect(scene, rules[i], KVT_ETIMEDOUT, NULL);
			assert_true(s3_scene_seen(scene, ~0u) <= ++tries);
		}
		assert_int_equal(s3_scene_put(scene, NAME, 1000, 2, 0, NULL), 0);
	}
}

/* ---- Checksums, signed payloads, encryption ---- */

static void a_checksum_goes_along_when_it_is_wanted(void **state)
{
	struct s3_scene *scene = *state;
	const char *value;

	s3_scene_option(scene, "checksum", "s3");
	s3_scene_start(scene, 0);
	assert_true(scene->tb.limits.capabilities & KVT_CAP_FULL_BODY);
	assert_int_equal(s3_scene_put(scene, NAME, BYTES, 1, 0, NULL), 0);
	value = sent(scene, S3_OP_PUT, "x-amz-checksum-crc32c");
	assert_non_null(value);
	assert_int_equal(strlen(value), 8);
	assert_true(s3_scene_has(scene, NAME, BYTES, 1));
}

static void a_signed_payload_is_verified_by_the_server(void **state)
{
	struct s3_scene *scene = *state;

	s3_scene_option(scene, "payload_signing", "signed");
	s3_scene_start(scene, 0);
	assert_int_equal(s3_scene_put(scene, NAME, BYTES, 1, 0, NULL), 0);
	assert_int_equal(strlen(sent(scene, S3_OP_PUT, "x-amz-content-sha256")), 64);
	assert_true(s3_scene_has(scene, NAME, BYTES, 1));
	assert_int_equal(s3_scene_put(scene, NAME, 0, 1, 0, NULL), 0);
}

static void keys_for_encryption_go_with_all_that_touches_data(void **state)
{
	static const char md5[] = "x-amz-server-side-encryption-customer-key-md5";
	struct s3_scene *scene = *state;
	void *handle;

	s3_scene_option(scene, "sse_c_key", "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=");
	s3_scene_start(scene, 0);
	assert_int_equal(s3_scene_put(scene, NAME, BYTES, 1, 0, NULL), 0);
	assert_non_null(sent(scene, S3_OP_PUT, md5));
	assert_int_equal(s3_scene_get(scene, NAME, BYTES, 0, 1, NULL), 0);
	assert_int_equal(s3_scene_head(scene, NAME, 0), 0);
	assert_int_equal(s3_scene_begin(scene, "m.bin", 100, &handle), 0);
	assert_int_equal(s3_scene_part(scene, "m.bin", handle, 0, 0, 100, 100, 3), 0);
	assert_int_equal(s3_scene_commit(scene, "m.bin", handle, 100, 0, NULL), 0);
	assert_int_equal(s3_scene_get(scene, "m.bin", 100, 0, 3, NULL), 0);
	s3_scene_close(scene);
	s3_scene_option(scene, "sse_c_key", "MTEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=");
	s3_scene_open(scene);
	s3_scene_get(scene, NAME, BYTES, 0, 1, NULL);
	s3_scene_expect(scene, "another key", KVT_EACCES, "HTTP 403");
}

static void headers_that_are_configured_go_along(void **state)
{
	struct s3_scene *scene = *state;

	s3_scene_option(scene, "sse", "AES256");
	s3_scene_option(scene, "headers", "x-amz-storage-class: STANDARD_IA\nX-Tenant:  blue ");
	s3_scene_start(scene, 0);
	assert_int_equal(s3_scene_put(scene, NAME, BYTES, 1, 0, NULL), 0);
	assert_string_equal(sent(scene, S3_OP_PUT, "x-amz-server-side-encryption"), "AES256");
	assert_string_equal(sent(scene, S3_OP_PUT, "x-amz-storage-class"), "STANDARD_IA");
	assert_string_equal(sent(scene, S3_OP_PUT, "x-tenant"), "blue");
	assert_int_equal(s3_scene_get(scene, NAME, 10, 0, 1, NULL), 0);
	assert_null(sent(scene, S3_OP_GET, "x-amz-server-side-encryption"));
}

/* ---- HEAD and removal ---- */

static void absent_objects_are_forbidden_without_the_right_to_list(void **state)
{
	struct s3_scene *scene = *state;

	s3_scene_start(scene, S3_SERVER_NO_LIST_RIGHT);
	/* Nothing has worked yet: it may be the keys. */
	s3_scene_head(scene, NAME, 0);
	s3_scene_expect(scene, "no proof", KVT_EACCES, "HTTP 403");
	assert_int_equal(s3_scene_put(scene, "probe", 10, 1, 0, NULL), 0);
	s3_scene_head(scene, NAME, 0);
	s3_scene_expect(scene, "a miss", KVT_ENOENT, NULL);
	assert_int_equal(s3_scene_head(scene, "probe", 0), 0);
}

/* Only a lookup may take a forbidden name for a miss: what may not be read may be there. */
static void a_forbidden_name_is_not_overwritten_nor_removed(void **state)
{
	struct kvt_version version;
	struct s3_scene *scene = *state;

	s3_scene_option(scene, "lookup_cache_miss_ms", "3600000");
	s3_scene_start(scene, S3_SERVER_NO_PUT_CONDITIONS);
	assert_int_equal(s3_scene_put(scene, NAME, BYTES, 1, KVT_IO_IF_ABSENT, NULL), 0);
	version = scene->info.version;
	s3_scene_rule(scene, "ops=head status=403");
	s3_scene_put(scene, NAME, BYTES, 2, KVT_IO_IF_ABSENT, NULL);
	s3_scene_expect(scene, "put if absent", KVT_EACCES, "HTTP 403");
	s3_scene_put(scene, NAME, BYTES, 2, KVT_IO_IF_VERSION, &version);
	s3_scene_expect(scene, "put if version", KVT_EACCES, "HTTP 403");
	s3_scene_remove(scene, NAME, NULL);
	s3_scene_expect(scene, "remove", KVT_EACCES, "HTTP 403");
	s3_scene_plant(scene, "ab/ce.bin", BYTES, 1);
	s3_scene_head(scene, "ab/ce.bin", KVT_IO_CACHED_OK);
	s3_scene_expect(scene, "a lookup", KVT_ENOENT, NULL);
	/* It is not remembered as one. */
	s3_server_clear_rules(scene->server);
	assert_int_equal(s3_scene_head(scene, "ab/ce.bin", KVT_IO_CACHED_OK), 0);
	assert_true(s3_scene_has(scene, NAME, BYTES, 1));
}

/* A server that knows no conditions is told none a second time. */
static void a_server_without_conditions_hears_of_them_once(void **state)
{
	struct kvt_version version;
	struct s3_scene *scene = *state;

	s3_scene_start(scene, S3_SERVER_NO_PUT_CONDITIONS);
	assert_int_equal(s3_scene_put(scene, NAME, BYTES, 1, 0, NULL), 0);
	version = scene->info.version;
	s3_server_forget(scene->server);
	assert_int_equal(s3_scene_put(scene, NAME, BYTES, 2, KVT_IO_IF_VERSION, &version), 0);
	assert_int_equal(s3_scene_seen(scene, S3_OP_PUT), 2);
	assert_int_equal(s3_scene_seen(scene, S3_OP_HEAD), 1);
	assert_true(s3_scene_has(scene, NAME, BYTES, 2));
}

/* Signing a body takes time of the request's: what is over by then is not sent without a limit. */
static void a_deadline_that_passes_while_a_body_is_signed_holds(void **state)
{
	struct s3_scene *scene = *state;

	s3_scene_option(scene, "payload_signing", "signed");
	s3_scene_start(scene, 0);
	s3_scene_rule(scene, "ops=put hang");
	/* No machine hashes so much in so little time. */
	for (scene->time_ms = 1; scene->time_ms <= 8; scene->time_ms *= 2) {
		s3_scene_put(scene, NAME, UINT64_C(64) << 20, 1, 0, NULL);
		s3_scene_expect(scene, "signed", KVT_ETIMEDOUT, "the deadline has passed");
	}
	assert_int_equal(s3_scene_seen(scene, S3_OP_PUT), 0);
}

static void a_removal_looks_before_and_compares(void **state)
{
	struct s3_scene *scene = *state;
	struct kvt_version version;

	s3_scene_start(scene, 0);
	s3_scene_remove(scene, NAME, NULL);
	s3_scene_expect(scene, "none", KVT_ENOENT, "HTTP 404");
	assert_int_equal(s3_scene_seen(scene, S3_OP_DELETE), 0);
	assert_int_equal(s3_scene_put(scene, NAME, BYTES, 1, 0, NULL), 0);
	version = scene->info.version;
	assert_int_equal(s3_scene_put(scene, NAME, BYTES, 2, 0, NULL), 0);
	s3_scene_remove(scene, NAME, &version);
	s3_scene_expect(scene, "another version", KVT_EPRECOND, NULL);
	assert_true(s3_scene_has(scene, NAME, BYTES, 2));
	s3_scene_rule(scene, "ops=delete times=1 status=503 code=SlowDown");
	s3_scene_remove(scene, NAME, NULL);
	s3_scene_expect(scene, "slow", KVT_ETHROTTLED, "SlowDown");
	assert_int_equal(s3_scene_remove(scene, NAME, NULL), 0);
	assert_false(s3_server_has(scene->server, S3_SCENE_KEY(NAME)));
}

static void lookups_are_remembered_until_something_changes(void **state)
{
	struct s3_scene *scene = *state;

	s3_scene_option(scene, "lookup_cache_hit_ms", "3600000");
	s3_scene_option(scene, "lookup_cache_miss_ms", "3600000");
	s3_scene_start(scene, 0);
	assert_int_equal(s3_scene_head(scene, NAME, KVT_IO_CACHED_OK), KVT_ENOENT);
	assert_int_equal(s3_scene_head(scene, NAME, KVT_IO_CACHED_OK), KVT_ENOENT);
	assert_true(scene->was_answered_at_once);
	assert_int_equal(s3_scene_seen(scene, ~0u), 1);
	/* Whoever does not take what is remembered asks. */
	assert_int_equal(s3_scene_head(scene, NAME, 0), KVT_ENOENT);
	assert_int_equal(s3_scene_seen(scene, ~0u), 2);
	assert_int_equal(s3_scene_put(scene, NAME, BYTES, 1, 0, NULL), 0);
	s3_server_forget(scene->server);
	assert_int_equal(s3_scene_head(scene, NAME, KVT_IO_CACHED_OK), 0);
	assert_int_equal(scene->info.object_bytes, BYTES);
	assert_int_equal(s3_scene_seen(scene, ~0u), 0);
	/* Removed behind our back: a load that fails tells. */
	assert_true(s3_server_remove(scene->server, S3_SCENE_KEY(NAME)));
	assert_int_equal(s3_scene_get(scene, NAME, 10, 0, 1, NULL), KVT_ENOENT);
	assert_int_equal(s3_scene_head(scene, NAME, KVT_IO_CACHED_OK), KVT_ENOENT);
	assert_int_equal(s3_scene_put(scene, NAME, BYTES, 1, 0, NULL), 0);
	assert_int_equal(s3_scene_remove(scene, NAME, NULL), 0);
	assert_int_equal(s3_scene_head(scene, NAME, KVT_IO_CACHED_OK), KVT_ENOENT);
	/* A load that finds another length. */
	assert_int_equal(s3_scene_put(scene, NAME, BYTES, 1, 0, NULL), 0);
	s3_scene_plant(scene, NAME, 100, 1);
	assert_int_equal(s3_scene_get(scene, NAME, 1000, 0, 1, NULL), KVT_ERANGE);
	assert_int_equal(s3_scene_head(scene, NAME, KVT_IO_CACHED_OK), 0);
	assert_int_equal(scene->info.object_bytes, 100);
}

static void requests_are_signed_anew_each_time(void **state)
{
	struct s3_scene *scene = *state;
	struct s3_server_request request;
	static const char *const once[] = {"authorization", "x-amz-date", "x-amz-content-sha256",
					   "host", "content-length"};

	s3_scene_start(scene, 0);
	assert_int_equal(s3_scene_put(scene, NAME, 1000, 1, 0, NULL), 0);
	for (unsigned i = 0; i < 3; i++) {
		assert_true(s3_server_close_idle(scene->server, true) >= 1);
		assert_int_equal(s3_scene_put(scene, NAME, 1000, 1, 0, NULL), 0);
		assert_true(s3_server_request(scene->server, S3_OP_PUT, 0, &request));
		for (size_t h = 0; h < TEST_COUNT(once); h++)
			assert_int_equal(s3_server_header_count(&request, once[h]), 1);
		s3_server_request_free(&request);
	}
}

int main(void)
{
	const struct CMUnitTest cases[] = {
		S3_SCENE_CASE(a_put_is_one_request_that_a_strict_server_takes),
		S3_SCENE_CASE(long_keys_are_taken_up_to_the_limit),
		S3_SCENE_CASE(a_server_with_conditions_is_asked_by_the_put_itself),
		S3_SCENE_CASE(a_server_without_conditions_is_asked_by_head),
		S3_SCENE_CASE(a_server_that_wants_bare_etags_gets_them),
		S3_SCENE_CASE(exists_check_chooses_how_a_store_asks),
		S3_SCENE_CASE(a_conflict_of_two_conditional_puts_may_be_repeated),
		S3_SCENE_CASE(only_a_2xx_with_an_etag_is_a_success),
		S3_SCENE_CASE(a_lost_answer_to_a_conditional_put_finds_its_own_object),
		S3_SCENE_CASE(a_connection_closed_while_idle_costs_a_put_nothing),
		S3_SCENE_CASE(a_new_connection_that_breaks_in_a_body_stores_nothing),
		S3_SCENE_CASE(an_answer_before_the_body_has_gone_ends_it),
		S3_SCENE_CASE(servers_that_stop_reading_are_given_up_in_time),
		S3_SCENE_CASE(a_checksum_goes_along_when_it_is_wanted),
		S3_SCENE_CASE(a_signed_payload_is_verified_by_the_server),
		S3_SCENE_CASE(keys_for_encryption_go_with_all_that_touches_data),
		S3_SCENE_CASE(headers_that_are_configured_go_along),
		S3_SCENE_CASE(absent_objects_are_forbidden_without_the_right_to_list),
		S3_SCENE_CASE(a_forbidden_name_is_not_overwritten_nor_removed),
		S3_SCENE_CASE(a_server_without_conditions_hears_of_them_once),
		S3_SCENE_CASE(a_deadline_that_passes_while_a_body_is_signed_holds),
		S3_SCENE_CASE(a_removal_looks_before_and_compares),
		S3_SCENE_CASE(lookups_are_remembered_until_something_changes),
		S3_SCENE_CASE(requests_are_signed_anew_each_time),
	};

	return cmocka_run_group_tests_name("s3_put", cases, NULL, NULL);
}
