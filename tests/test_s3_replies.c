/* SPDX-License-Identifier: Apache-2.0 */
/* What answers of S3 servers come to, on the wire: result codes and the one line of detail, what is
 * put right at once (clock, region), and that no answer moves requests to another host. */
#include "s3_scene.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME  "ab/cd.bin"
#define BYTES UINT64_C(20000)
#define SEED  3u

static void answers_have_one_meaning_each(void **state)
{
	static const struct {
		const char *rule;
		int result;
		const char *detail;
	} cases[] = {
		{"status=400 code=InvalidArgument", KVT_ECONFIG, "HTTP 400 InvalidArgument"},
		{"status=400 code=RequestTimeout", KVT_ENET, "HTTP 400 RequestTimeout"},
		{"status=400 code=ExpiredToken", KVT_EAUTH, "HTTP 400 ExpiredToken"},
		{"status=401", KVT_EAUTH, "HTTP 401"},
		{"status=403 code=AccessDenied", KVT_EACCES, "HTTP 403 AccessDenied"},
		{"status=403 code=SignatureDoesNotMatch", KVT_EAUTH, "SignatureDoesNotMatch"},
		{"status=403 code=InvalidAccessKeyId", KVT_EAUTH, "InvalidAccessKeyId"},
		{"status=403", KVT_EACCES, "HTTP 403"},
		{"status=404 code=NoSuchKey", KVT_ENOENT, "HTTP 404 NoSuchKey"},
		{"status=404 code=NoSuchBucket", KVT_ECONFIG, "HTTP 404 NoSuchBucket"},
		{"status=404", KVT_ENOENT, "HTTP 404"},
		{"status=405", KVT_ENOTSUP, "HTTP 405"},
		{"status=408", KVT_ENET, "HTTP 408"},
		{"status=409 code=OperationAborted", KVT_EBUSY, "HTTP 409 OperationAborted"},
		{"status=411 code=MissingContentLength", KVT_EINTERNAL, "HTTP 411"},
		{"status=412 code=PreconditionFailed", KVT_EPRECOND, "HTTP 412"},
		{"status=429 code=TooManyRequests", KVT_ETHROTTLED, "HTTP 429 TooManyRequests"},
		{"status=429", KVT_ETHROTTLED, "HTTP 429"},
		{"status=499", KVT_ENET, "HTTP 499"},
		{"status=500 code=InternalError", KVT_ESERVER, "HTTP 500 InternalError"},
		{"status=501 code=NotImplemented", KVT_ENOTSUP, "HTTP 501 NotImplemented"},
		{"status=502 body=\"<html><b>Bad</b> Gateway\"", KVT_ESERVER, "HTTP 502"},
		{"status=503 code=SlowDown", KVT_ETHROTTLED, "HTTP 503 SlowDown"},
		{"status=503 code=SlowDownRead", KVT_ETHROTTLED, "SlowDownRead"},
		{"status=503 code=ServiceUnavailable", KVT_ESERVER, "ServiceUnavailable"},
		{"status=503 body=\"<Error><Code>SlowD\"", KVT_ESERVER, "HTTP 503"},
		{"status=504", KVT_ESERVER, "HTTP 504"},
		{"status=507", KVT_ENOSPC, "HTTP 507"},
		{"status=599", KVT_ESERVER, "HTTP 599"},
		{"status=418", KVT_ECONFIG, "HTTP 418"},
	};
	struct s3_scene *scene = *state;
	uint64_t connections;

	s3_scene_start(scene, 0);
	s3_scene_plant(scene, NAME, BYTES, SEED);
	assert_int_equal(s3_scene_get(scene, NAME, 10, 0, SEED, NULL), 0);
	connections = s3_scene_connections(scene);
	for (size_t i = 0; i < TEST_COUNT(cases); i++) {
		struct s3_server_request request;
		char *place = test_format("get %s/bucket/" S3_SCENE_KEY(NAME) ": HTTP %.3s",
					  s3_server_url(scene->server), cases[i].rule + 7);

		s3_server_clear_rules(scene->server);
		s3_scene_rule(scene, "ops=get times=1 message=\"Because of that.\" %s",
			      cases[i].rule);
		s3_scene_get(scene, NAME, 100, 0, SEED, NULL);
		s3_scene_expect(scene, cases[i].rule, cases[i].result, cases[i].detail);
		s3_scene_expect(scene, cases[i].rule, cases[i].result, place);
		assert_int_equal(scene->landed, 0);
		assert_true(s3_server_request(scene->server, S3_OP_GET, 0, &request));
		s3_scene_expect(scene, cases[i].rule, cases[i].result, request.id);
		if (strstr(cases[i].rule, "code="))
			s3_scene_expect(scene, cases[i].rule, cases[i].result, "Because");
		s3_server_request_free(&request);
		free(place);
	}
	/* Their bodies were read, so that the connection lives on. */
	assert_int_equal(s3_scene_get(scene, NAME, 10, 0, SEED, NULL), 0);
	assert_int_equal(s3_scene_connections(scene), connections);
}

static void errors_to_head_are_told_by_status_alone(void **state)
{
	static const struct {
		const char *rule;
		int result;
	} cases[] = {
		{"status=404", KVT_ENOENT},	{"status=403", KVT_EACCES},
		{"status=500", KVT_ESERVER},	{"status=503", KVT_ETHROTTLED},
		{"status=429", KVT_ETHROTTLED}, {"status=501", KVT_ENOTSUP},
		{"status=400", KVT_ECONFIG},
	};
	struct s3_scene *scene = *state;

	s3_scene_start(scene, 0);
	for (size_t i = 0; i < TEST_COUNT(cases); i++) {
		s3_scene_rule(scene, "ops=head times=1 %s", cases[i].rule);
		s3_scene_head(scene, NAME, 0);
		s3_scene_expect(scene, cases[i].rule, cases[i].result, "HTTP ");
	}
}

static void numbers_of_servers_do_not_overflow(void **state)
{
	struct s3_scene *scene = *state;

	s3_scene_start(scene, 0);
	s3_scene_plant(scene, NAME, BYTES, SEED);
	s3_scene_rule(scene, "ops=get times=1 status=503 code=SlowDown "
			     "headers=\"Retry-After: 99999999999999\\r\\n\"");
	s3_scene_get(scene, NAME, 100, 0, SEED, NULL);
	s3_scene_expect(scene, "slow down for ever", KVT_ETHROTTLED, "SlowDown");
	assert_int_equal(scene->retry_after_ns, INT64_C(86400) * 1000000000);
}

static void long_and_endless_errors_are_bounded(void **state)
{
	static const char *const rules[] = {
		"status=503 code=SlowDown endless",
		"status=503 code=SlowDown endless no-length",
		"status=503 code=SlowDown extra-bytes=3000000 no-length",
		"status=503 code=SlowDown wrong-length said-length=9000000000000 cut=fin cut-at=50",
		"status=503 code=SlowDown wrong-length said-length=100000 extra-bytes=3000000",
	};
	struct s3_scene *scene = *state;
	char *message = malloc(900);

	assert_non_null(message);
	s3_scene_start(scene, 0);
	s3_scene_plant(scene, NAME, BYTES, SEED);
	for (size_t i = 0; i < TEST_COUNT(rules); i++) {
		s3_server_clear_rules(scene->server);
		s3_scene_rule(scene, "ops=get times=1 %s", rules[i]);
		s3_scene_get(scene, NAME, 100, 0, SEED, NULL);
		if (scene->result != KVT_ESERVER && scene->result != KVT_ETHROTTLED)
			s3_scene_expect(scene, rules[i], KVT_ESERVER, NULL);
		s3_scene_expect(scene, rules[i], scene->result, "HTTP 503");
		assert_int_equal(scene->landed, 0);
		assert_int_equal(s3_scene_get(scene, NAME, 100, 0, SEED, NULL), 0);
	}
	memset(message, 'm', 899);
	message[899] = '\0';
	s3_scene_rule(scene, "ops=get times=1 status=403 code=AccessDenied message=%s", message);
	s3_scene_get(scene, NAME, 100, 0, SEED, NULL);
	s3_scene_expect(scene, "long message", KVT_EACCES, "AccessDenied");
	free(message);
}

static void retry_after_reaches_the_core(void **state)
{
	static const struct {
		const char *header;
		int64_t s;
	} cases[] = {{"retry-after-s=7", 7},
		     {"headers=\"Retry-After: 0\\r\\n\"", 0},
		     {"headers=\"Retry-After: soon\\r\\n\"", 0},
		     {"headers=\"Retry-After: -5\\r\\n\"", 0},
		     {"", 0}};
	struct s3_scene *scene = *state;

	s3_scene_start(scene, 0);
	for (size_t i = 0; i < TEST_COUNT(cases); i++) {
		s3_scene_rule(scene, "times=1 status=503 code=SlowDown %s", cases[i].header);
		assert_int_equal(s3_scene_put(scene, NAME, BYTES, SEED, 0, NULL), KVT_ETHROTTLED);
		assert_int_equal(scene->retry_after_ns, cases[i].s * INT64_C(1000000000));
	}
}

/* ---- The clock ---- */

static void a_wrong_clock_is_learnt_once(void **state)
{
	static const int64_t offsets[] = {3600, -3600, 86400 * 30, -86400 * 30};
	struct s3_scene *scene = *state;

	s3_scene_serve(scene, NULL);
	for (size_t i = 0; i < TEST_COUNT(offsets); i++) {
		s3_server_set_clock(scene->server, offsets[i]);
		s3_scene_open(scene);
		s3_server_forget(scene->server);
		s3_scene_put(scene, NAME, BYTES, SEED, 0, NULL);
		s3_scene_expect(scene, "skewed", 0, NULL);
		assert_int_equal(s3_scene_seen(scene, S3_OP_PUT), 2);
		assert_true(s3_scene_has(scene, NAME, BYTES, SEED));
		/* From then on all is signed with the server's time, and ages are by it. */
		assert_int_equal(s3_scene_get(scene, NAME, BYTES, 0, SEED, NULL), 0);
		assert_int_equal(s3_scene_seen(scene, ~0u), 3);
		assert_true(scene->info.age_ns >= 0);
		assert_true(scene->info.age_ns < INT64_C(60000000000));
		s3_scene_close(scene);
		/* An answer to HEAD has no words. */
		s3_scene_open(scene);
		s3_server_forget(scene->server);
		assert_int_equal(s3_scene_head(scene, NAME, 0), 0);
		assert_int_equal(s3_scene_seen(scene, S3_OP_HEAD), 2);
		s3_scene_close(scene);
	}
	/* A server that insists. */
	s3_server_set_clock(scene->server, 0);
	s3_scene_open(scene);
	s3_scene_rule(scene, "ops=get status=403 code=RequestTimeTooSkewed");
	s3_server_forget(scene->server);
	s3_scene_get(scene, NAME, BYTES, 0, SEED, NULL);
	s3_scene_expect(scene, "insists", KVT_ECONFIG, "RequestTimeTooSkewed");
	assert_int_equal(s3_scene_seen(scene, ~0u), 2);
}

/* ---- The region ---- */

static void a_region_is_taken_from_the_answer_once(void **state)
{
	struct s3_scene *scene = *state;

	s3_scene_serve(scene, &(struct s3_server_options){.region = "eu-test-7"});
	s3_scene_open(scene);
	s3_scene_put(scene, NAME, BYTES, SEED, 0, NULL);
	s3_scene_expect(scene, "another region", 0, NULL);
	assert_int_equal(s3_scene_seen(scene, ~0u), 2);
	assert_int_equal(s3_scene_get(scene, NAME, BYTES, 0, SEED, NULL), 0);
	assert_int_equal(s3_scene_seen(scene, ~0u), 3);
	s3_scene_close(scene);
	/* By the header alone. */
	s3_scene_open(scene);
	s3_server_forget(scene->server);
	assert_int_equal(s3_scene_head(scene, NAME, 0), 0);
	assert_int_equal(s3_scene_seen(scene, ~0u), 2);
	s3_scene_close(scene);
	s3_scene_option(scene, "region", "eu-test-7");
	s3_scene_open(scene);
	s3_server_forget(scene->server);
	assert_int_equal(s3_scene_head(scene, NAME, 0), 0);
	assert_int_equal(s3_scene_seen(scene, ~0u), 1);
}

static void redirects_tell_the_region_and_nothing_else(void **state)
{
	static const struct {
		const char *rule;
		bool is_repeated;
	} cases[] = {
		{"status=301 code=PermanentRedirect region=eu-test-7", true},
		{"status=307 code=TemporaryRedirect region=eu-test-7", true},
		{"status=301 body=\"\" region=eu-test-7", true},
		{"status=400 code=AuthorizationHeaderMalformed region=eu-test-7", true},
		{"status=301 code=PermanentRedirect", false},
		{"status=301 code=PermanentRedirect region=evil.example/x", false},
		{"status=301 code=PermanentRedirect region=EU-WEST", false},
		{"status=307 body=\"\"", false},
		{"status=302 body=\"\"", false},
		{"status=308 body=\"\"", false},
	};
	struct s3_scene *scene = *state;
	struct s3_server *other = s3_server_start(&(struct s3_server_options){0}, NULL);
	char *location;

	assert_non_null(other);
	location = test_format("headers=\"Location: %s/bucket/%s\\r\\n\"", s3_server_url(other),
			       S3_SCENE_KEY(NAME));
	assert_true(s3_server_put(other, S3_SCENE_KEY(NAME), "wrong", 5));
	s3_scene_serve(scene, NULL);
	for (size_t i = 0; i < TEST_COUNT(cases); i++) {
		s3_scene_open(scene);
		s3_scene_plant(scene, NAME, BYTES, SEED);
		s3_server_clear_rules(scene->server);
		s3_scene_rule(scene, "ops=get times=1 %s %s", cases[i].rule, location);
		s3_server_forget(scene->server);
		s3_scene_get(scene, NAME, 5, 0, SEED, NULL);
		s3_scene_expect(scene, cases[i].rule, cases[i].is_repeated ? 0 : KVT_ECONFIG, NULL);
		assert_int_equal(s3_scene_seen(scene, ~0u), cases[i].is_repeated ? 2 : 1);
		/* Again and again: the second one is the answer. */
		s3_server_clear_rules(scene->server);
		s3_scene_rule(scene, "ops=put %s %s", cases[i].rule, location);
		s3_server_forget(scene->server);
		s3_scene_put(scene, NAME, 5, SEED, 0, NULL);
		s3_scene_expect(scene, cases[i].rule, KVT_ECONFIG, "HTTP ");
		assert_true(s3_scene_seen(scene, ~0u) <= 2);
		s3_scene_close(scene);
	}
	assert_int_equal(s3_server_seen(other, ~0u), 0);
	s3_server_stop(other);
	free(location);
}

/* ---- Keys ---- */

static void keys_that_are_wrong_are_told_apart(void **state)
{
	struct s3_scene *scene = *state;

	s3_scene_start(scene, 0);
	s3_server_set_secret(scene->server, S3_SCENE_ACCESS_KEY, "another", NULL);
	s3_scene_put(scene, NAME, BYTES, SEED, 0, NULL);
	s3_scene_expect(scene, "secret", KVT_EAUTH, "HTTP 403 SignatureDoesNotMatch");
	s3_server_set_secret(scene->server, "AKIDOTHER", "another", NULL);
	s3_server_forget(scene->server);
	s3_scene_put(scene, NAME, BYTES, SEED, 0, NULL);
	s3_scene_expect(scene, "id", KVT_EAUTH, "HTTP 403 InvalidAccessKeyId");
	/* Keys given by hand cannot be fetched again. */
	assert_int_equal(s3_scene_seen(scene, ~0u), 1);
	s3_scene_close(scene);
	s3_scene_option(scene, "access_key", "anonymous");
	scene->option_count--;
	assert_string_equal(scene->options[scene->option_count].name, "secret_key");
	free(scene->texts[scene->option_count]);
	scene->texts[scene->option_count] = NULL;
	s3_scene_open(scene);
	s3_scene_put(scene, NAME, BYTES, SEED, 0, NULL);
	s3_scene_expect(scene, "anonymous", KVT_EACCES, "HTTP 403 AccessDenied");
	s3_server_set_secret(scene->server, NULL, NULL, NULL);
	assert_int_equal(s3_scene_put(scene, NAME, BYTES, SEED, 0, NULL), 0);
}

static void a_session_token_is_sent_and_signed(void **state)
{
	static const size_t sizes[] = {20, 2500, 6000};
	struct s3_scene *scene = *state;

	s3_scene_serve(scene, NULL);
	for (size_t i = 0; i < TEST_COUNT(sizes); i++) {
		char *token = malloc(sizes[i] + 1);

		assert_non_null(token);
		memset(token, 'T', sizes[i]);
		memcpy(token, "a/b+c==", 7);
		token[sizes[i]] = '\0';
		s3_server_set_secret(scene->server, S3_SCENE_ACCESS_KEY, S3_SCENE_SECRET, token);
		s3_scene_option(scene, "session_token", token);
		s3_scene_open(scene);
		s3_scene_put(scene, NAME, BYTES, SEED, 0, NULL);
		s3_scene_expect(scene, "token", 0, NULL);
		token[10] = '-';
		s3_server_set_secret(scene->server, S3_SCENE_ACCESS_KEY, S3_SCENE_SECRET, token);
		s3_scene_put(scene, NAME, BYTES, SEED, 0, NULL);
		s3_scene_expect(scene, "another token", KVT_EAUTH, "InvalidToken");
		assert_null(strstr(scene->detail, "TTTTTTTT"));
		s3_scene_close(scene);
		free(token);
	}
}

int main(void)
{
	const struct CMUnitTest cases[] = {
		S3_SCENE_CASE(answers_have_one_meaning_each),
		S3_SCENE_CASE(errors_to_head_are_told_by_status_alone),
		S3_SCENE_CASE(numbers_of_servers_do_not_overflow),
		S3_SCENE_CASE(long_and_endless_errors_are_bounded),
		S3_SCENE_CASE(retry_after_reaches_the_core),
		S3_SCENE_CASE(a_wrong_clock_is_learnt_once),
		S3_SCENE_CASE(a_region_is_taken_from_the_answer_once),
		S3_SCENE_CASE(redirects_tell_the_region_and_nothing_else),
		S3_SCENE_CASE(keys_that_are_wrong_are_told_apart),
		S3_SCENE_CASE(a_session_token_is_sent_and_signed),
	};

	return cmocka_run_group_tests_name("s3_replies", cases, NULL, NULL);
}
