/* SPDX-License-Identifier: Apache-2.0 */
/* How credentials are fetched: from where and from where not, what a failure says and what it keeps
 * to itself, and what is read anew each time. */
#include "s3_credentials_scene.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#define TOKEN_PATH "/latest/api/token"
#define ROLES_PATH "/latest/meta-data/iam/security-credentials/"
#define STS_ANSWER(access_key)                                                                     \
	"<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials>"        \
	"<AccessKeyId>" access_key "</AccessKeyId><SecretAccessKey>" SCENE_SECRET                  \
	"</SecretAccessKey><SessionToken>session</SessionToken><Expiration>" FAR                   \
	"</Expiration></Credentials></AssumeRoleWithWebIdentityResult>"                            \
	"</AssumeRoleWithWebIdentityResponse>"

static void refuse_newest(struct keys_scene *o)
{
	const struct s3_credentials *c = kvt__s3_credentials_acquire(o->provider);

	assert_non_null(c);
	assert_true(kvt__s3_credentials_refuse(o->provider, c->generation));
	kvt__s3_credentials_release(o->provider, c);
}

static void answer(struct keys_scene *o, const char *method, const char *path, unsigned status,
		   const char *body)
{
	http_fixture_answer(
		o->http, &(struct http_answer){
				 .method = method, .path = path, .status = status, .body = body});
}

/* ---- Where ---- */

static void a_proxy_is_never_asked(void **state)
{
	static const char *const names[] = {"http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy",
					    "ALL_PROXY"};
	struct keys_scene o;

	keys_start(&o, state);
	keys_use_container(&o, "/creds", KEYS("TASK", FAR));
	/* Nothing listens on the discard port: whoever asks there gets nothing. */
	for (size_t i = 0; i < TEST_COUNT(names); i++)
		scene_environment(names[i], "http://127.0.0.1:9");
	keys_expect(&o, "TASK", "session", "container");
	assert_int_equal(http_fixture_count(o.http, "/creds"), 1);
	keys_end(&o);
}

static void all_of_127_is_this_machine_and_lookalikes_are_not(void **state)
{
	static const char *const foreign[] = {
		"http://127.0.0.1.nip.io/", "http://128.0.0.1/",	  "http://localhost.evil/",
		"http://[fd00:ec2::24]/",   "http://169.254.170.20/",	  "http://169.254.169.254/",
		"http://127.0.0.1@evil/",   "file://localhost/etc/passwd"};
	struct keys_scene o;
	const char *port;
	char *url;

	keys_start(&o, state);
	keys_use_container(&o, "/creds", KEYS("TASK", FAR));
	port = strrchr(http_fixture_url(o.http), ':');
	url = test_format("http://127.8.9.10%s/creds", port);
	scene_environment("AWS_CONTAINER_CREDENTIALS_FULL_URI", url);
	keys_expect(&o, "TASK", "session", "container");
	free(url);
	for (size_t i = 0; i < TEST_COUNT(foreign); i++) {
		scene_environment("AWS_CONTAINER_CREDENTIALS_FULL_URI", foreign[i]);
		keys_expect_refused(&o, KVT_ECONFIG, "expected https, or http to this machine");
	}
	scene_environment("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "@127.0.0.1/creds");
	keys_expect_refused(&o, KVT_ECONFIG, "RELATIVE_URI: expected a path");
	keys_end(&o);
}

static void the_environment_is_read_at_open_only(void **state)
{
	struct keys_scene o;

	keys_start(&o, state);
	keys_use_container(&o, "/creds", KEYS("OLD", FAR));
	assert_ok(keys_try_open(&o));
	keys_use_container(&o, "/elsewhere", KEYS("ELSE", FAR));
	answer(&o, "GET", "/creds", 200, KEYS("NEW", FAR));
	scene_environment("AWS_CONTAINER_CREDENTIALS_FULL_URI", NULL);
	refuse_newest(&o);
	assert_int_equal(keys_await_key(&o, "NEW"), 2);
	assert_int_equal(http_fixture_count(o.http, "/elsewhere"), 0);
	keys_end(&o);
}

/* ---- What a failure says ---- */

static void a_container_s_refusal_is_told_without_its_path(void **state)
{
	static const char path[] = "/v2/credentials/0123-4567";
	struct keys_scene o;
	char *text;

	keys_start(&o, state);
	keys_use_container(&o, path, "");
	answer(&o, "GET", path, 403,
	       "{\"code\": \"AccessDeniedException\", \"message\": \"two\\nlines\"}");
	text = test_format("%s: HTTP 403 AccessDeniedException: two lines",
			   http_fixture_url(o.http));
	keys_expect_refused(&o, KVT_EAUTH, text);
	assert_null(strstr(testhost_failure(), "0123"));
	answer(&o, "GET", path, 200, "{}");
	keys_expect_refused(&o, KVT_EAUTH, "expected JSON");
	assert_null(strstr(testhost_failure(), "0123"));
	free(text);
	keys_end(&o);
}

static void the_token_service_s_refusal_is_told(void **state)
{
	struct keys_scene o;
	char *path, *bodies[3];

	keys_start(&o, state);
	scene_profile_file(o.scene, "token", "eyJ-" SCENE_SECRET "\n");
	path = test_format("%s/.aws/token", o.scene->home);
	scene_environment("AWS_WEB_IDENTITY_TOKEN_FILE", path);
	scene_environment("AWS_ROLE_ARN", "arn:aws:iam::1:role/r");
	scene_environment("AWS_ENDPOINT_URL_STS", http_fixture_url(o.http));
	answer(&o, "POST", "/", 400,
	       "<ErrorResponse><Error><Type>Sender</Type><Code>InvalidIdentityToken</Code>"
	       "<Message>No OpenIDConnect\nprovider found</Message></Error></ErrorResponse>");
	keys_expect_refused(&o, KVT_EAUTH,
			    "HTTP 400 InvalidIdentityToken: No OpenIDConnect provider found");
	/* One that is no such document says nothing. */
	bodies[0] = strdup("<!DOCTYPE x [<!ENTITY a \"b\">]><e><Code>&a;</Code></e>");
	bodies[1] = strdup("<html><Code>");
	bodies[2] = calloc(1, 60001);
	assert_non_null(bodies[2]);
	(void)memset(bodies[2], 'x', 60000);
	(void)memcpy(bodies[2], "<Code>", 6);
	for (size_t i = 0; i < TEST_COUNT(bodies); i++) {
		size_t bytes;

		answer(&o, "POST", "/", 403, bodies[i]);
		keys_expect_refused(&o, KVT_EAUTH, "HTTP 403");
		bytes = strlen(testhost_failure());
		assert_string_equal(testhost_failure() + bytes - 8, "HTTP 403");
		free(bodies[i]);
	}
	free(path);
	keys_end(&o);
}

static void an_instance_without_a_role_leaves_the_list_of_what_was_looked_at(void **state)
{
	struct keys_scene o;
	char *url;

	keys_start(&o, state);
	url = test_format("%s//", http_fixture_url(o.http));
	scene_environment("AWS_EC2_METADATA_DISABLED", NULL);
	scene_environment("AWS_EC2_METADATA_SERVICE_ENDPOINT", url);
	answer(&o, "PUT", TOKEN_PATH, 200, "imds-token");
	keys_expect_refused(&o, KVT_EAUTH, "the instance has no role");
	assert_non_null(strstr(testhost_failure(), "no AWS_ACCESS_KEY_ID"));
	assert_non_null(strstr(testhost_failure(), "no keys in profile default"));
	answer(&o, "GET", ROLES_PATH, 200, "role");
	answer(&o, "GET", ROLES_PATH "role", 200, "{\"Code\": \"AssumeRoleUnauthorizedAccess\"}");
	keys_expect_refused(&o, KVT_EAUTH, "answers AssumeRoleUnauthorizedAccess");
	answer(&o, "GET", ROLES_PATH "role", 200,
	       "{\"Code\": \"Success\", \"AccessKeyId\": \"EC2\", \"SecretAccessKey\": "
	       "\"" SCENE_SECRET "\", \"Token\": \"session\", \"Expiration\": \"" FAR "\"}");
	keys_expect(&o, "EC2", "session", "instance metadata");
	/* Tokens that would end the header line, and none. */
	answer(&o, "PUT", TOKEN_PATH, 200, "a\r\nX-Other: b");
	keys_expect_refused(&o, KVT_EAUTH, "characters that cannot be sent");
	answer(&o, "PUT", TOKEN_PATH, 200, "");
	keys_expect_refused(&o, KVT_EAUTH, "characters that cannot be sent");
	free(url);
	keys_end(&o);
}

static void keys_that_cannot_be_signed_with_are_refused(void **state)
{
	struct keys_scene o;
	char *key = calloc(1, 1026), *body;

	keys_start(&o, state);
	assert_non_null(key);
	for (int bytes = 1024; bytes <= 1025; bytes++) {
		memset(key, 'A', (size_t)bytes);
		body = test_format("{\"AccessKeyId\": \"%s\", \"SecretAccessKey\": \"%s\"}", key,
				   SCENE_SECRET);
		keys_use_container(&o, "/creds", body);
		free(body);
		if (bytes == 1024)
			keys_expect(&o, key, NULL, "container");
		else
			keys_expect_refused(&o, KVT_ECONFIG, "expected 1 to 1024 bytes each");
	}
	keys_use_container(&o, "/creds", "{\"AccessKeyId\": \"\", \"SecretAccessKey\": \"\"}");
	keys_expect_refused(&o, KVT_ECONFIG, "expected 1 to 1024 bytes each");
	free(key);
	keys_end(&o);
}

static void a_profile_that_assumes_a_role_is_refused_even_with_keys(void **state)
{
	struct keys_scene o;

	keys_start(&o, state);
	scene_profile_file(o.scene, "credentials",
			   "[default]\naws_access_key_id=FILE\naws_secret_access_key=" SCENE_SECRET
			   "\n");
	scene_profile_file(o.scene, "config",
			   "[default]\nrole_arn=arn:aws:iam::1:role/r\nsource_profile=default\n");
	keys_expect_refused(&o, KVT_ECONFIG, "role_arn with a source is not supported");
	scene_profile_file(o.scene, "config",
			   "[default]\nrole_arn=arn:aws:iam::1:role/r\ncredential_source="
			   "Environment\n");
	keys_expect_refused(&o, KVT_ECONFIG, "role_arn with a source is not supported");
	keys_end(&o);
}

/* ---- Patience ---- */

static void only_what_may_get_better_is_tried_twice(void **state)
{
	static const struct {
		unsigned status, tries;
	} cases[] = {{500, 2}, {503, 2}, {429, 2}, {408, 2}, {403, 1}, {404, 1}, {302, 1}};
	struct keys_scene o;
	unsigned before = 0, after;

	keys_start(&o, state);
	keys_use_container(&o, "/creds", "");
	for (size_t i = 0; i < TEST_COUNT(cases); i++) {
		answer(&o, "GET", "/creds", cases[i].status, "");
		keys_expect_refused(&o, KVT_EAUTH, "HTTP ");
		after = http_fixture_count(o.http, "/creds");
		assert_int_equal(after - before, cases[i].tries);
		before = after;
	}
	keys_end(&o);
}

static void an_endpoint_that_never_answers_is_given_up(void **state)
{
	struct http_answer silent = {"GET", "/creds", .status = 200, .holds = true};
	struct keys_scene o;

	keys_start(&o, state);
	keys_use_container(&o, "/creds", "");
	http_fixture_answer(o.http, &silent);
	keys_expect_refused(&o, KVT_EAUTH, "imeout was reached");
	assert_int_equal(http_fixture_count(o.http, "/creds"), 2);
	keys_end(&o);
}

/* ---- What is read anew ---- */

static void keys_that_came_expired_are_tried_all_the_same(void **state)
{
	struct keys_scene o;

	keys_start(&o, state);
	keys_use_container(&o, "/creds", KEYS("LATE", "2001-01-01T00:00:00Z"));
	keys_expect(&o, "LATE", "session", "container");
	assert_non_null(strstr(o.scene->log, "is the clock right?"));
	keys_end(&o);
}

static void a_container_s_token_file_is_read_each_time(void **state)
{
	struct http_answer guarded = {"GET", "/creds", .needs = "Authorization: first",
				      .status = 200, .body = KEYS("OLD", FAR)};
	struct keys_scene o;
	char *path;

	keys_start(&o, state);
	keys_use_container(&o, "/creds", "");
	scene_profile_file(o.scene, "pod", "first\n");
	path = test_format("%s/.aws/pod", o.scene->home);
	scene_environment("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", path);
	scene_environment("AWS_CONTAINER_AUTHORIZATION_TOKEN", "not-this-one");
	http_fixture_answer(o.http, &guarded);
	assert_ok(keys_try_open(&o));
	scene_profile_file(o.scene, "pod", "second");
	guarded.needs = "Authorization: second";
	guarded.body = KEYS("NEW", FAR);
	http_fixture_answer(o.http, &guarded);
	refuse_newest(&o);
	assert_int_equal(keys_await_key(&o, "NEW"), 2);
	free(path);
	keys_end(&o);
}

static void a_web_identity_s_token_file_is_read_each_time(void **state)
{
	struct keys_scene o;
	char posted[1024], *path, *config;

	/* Set up by a profile this time. */
	keys_start(&o, state);
	scene_profile_file(o.scene, "token", "first\n");
	path = test_format("%s/.aws/token", o.scene->home);
	config = test_format("[default]\nrole_arn=arn:aws:iam::1:role/r\n"
			     "web_identity_token_file=%s\nrole_session_name=me\n",
			     path);
	scene_profile_file(o.scene, "config", config);
	scene_environment("AWS_ENDPOINT_URL_STS", http_fixture_url(o.http));
	answer(&o, "POST", "/", 200, STS_ANSWER("OLD"));
	assert_ok(keys_try_open(&o));
	http_fixture_posted(o.http, posted, sizeof(posted));
	assert_non_null(strstr(posted, "&RoleSessionName=me&WebIdentityToken=first"));
	scene_profile_file(o.scene, "token", "second\n");
	answer(&o, "POST", "/", 200, STS_ANSWER("NEW"));
	refuse_newest(&o);
	assert_int_equal(keys_await_key(&o, "NEW"), 2);
	http_fixture_posted(o.http, posted, sizeof(posted));
	assert_non_null(strstr(posted, "&RoleSessionName=me&WebIdentityToken=second"));
	free(path);
	free(config);
	keys_end(&o);
}

static void a_profile_is_read_anew_when_its_keys_are_refused(void **state)
{
	struct keys_scene o;

	keys_start(&o, state);
	scene_profile_file(o.scene, "credentials",
			   "[default]\naws_access_key_id=OLD\naws_secret_access_key=" SCENE_SECRET
			   "\n");
	assert_ok(keys_try_open(&o));
	scene_profile_file(o.scene, "credentials",
			   "[default]\naws_access_key_id=NEW\naws_secret_access_key=" SCENE_SECRET
			   "\n");
	refuse_newest(&o);
	assert_int_equal(keys_await_key(&o, "NEW"), 2);
	keys_end(&o);
}

/* ---- Many threads ---- */

struct user {
	struct keys_scene *o;
	bool is_torn, saw_new;
};

static void *use_keys(void *context)
{
	struct user *user = context;
	const int64_t end_ns = user->o->scene->th.host.now_ns() + INT64_C(100000000000);

	while (!user->saw_new && user->o->scene->th.host.now_ns() < end_ns) {
		const struct s3_credentials *c = kvt__s3_credentials_acquire(user->o->provider);

		if (c) {
			const bool is_new = strcmp(c->access_key, "NEW") == 0;

			if (is_new != (c->generation == 2) || strcmp(c->secret_key, SCENE_SECRET))
				user->is_torn = true;
			user->saw_new = is_new;
			if (!is_new && !kvt__s3_credentials_refuse(user->o->provider, 1))
				user->is_torn = true;
		}
		kvt__s3_credentials_release(user->o->provider, c);
		(void)sched_yield();
	}
	return NULL;
}

static void threads_see_whole_keys_while_they_are_replaced(void **state)
{
	struct user users[8];
	pthread_t threads[8];
	struct keys_scene o;

	keys_start(&o, state);
	keys_use_container(&o, "/creds", KEYS("OLD", FAR));
	assert_ok(keys_try_open(&o));
	answer(&o, "GET", "/creds", 200, KEYS("NEW", FAR));
	for (size_t i = 0; i < TEST_COUNT(threads); i++) {
		users[i] = (struct user){.o = &o};
		assert_int_equal(pthread_create(&threads[i], NULL, use_keys, &users[i]), 0);
	}
	for (size_t i = 0; i < TEST_COUNT(threads); i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
	for (size_t i = 0; i < TEST_COUNT(threads); i++) {
		assert_false(users[i].is_torn);
		assert_true(users[i].saw_new);
	}
	assert_int_equal(http_fixture_count(o.http, "/creds"), 2);
	keys_end(&o);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, scene_setup, scene_teardown)

int main(void)
{
	const struct CMUnitTest cases[] = {
		CASE(a_proxy_is_never_asked),
		CASE(all_of_127_is_this_machine_and_lookalikes_are_not),
		CASE(the_environment_is_read_at_open_only),
		CASE(a_container_s_refusal_is_told_without_its_path),
		CASE(the_token_service_s_refusal_is_told),
		CASE(an_instance_without_a_role_leaves_the_list_of_what_was_looked_at),
		CASE(keys_that_cannot_be_signed_with_are_refused),
		CASE(a_profile_that_assumes_a_role_is_refused_even_with_keys),
		CASE(only_what_may_get_better_is_tried_twice),
		CASE(an_endpoint_that_never_answers_is_given_up),
		CASE(keys_that_came_expired_are_tried_all_the_same),
		CASE(a_container_s_token_file_is_read_each_time),
		CASE(a_web_identity_s_token_file_is_read_each_time),
		CASE(a_profile_is_read_anew_when_its_keys_are_refused),
		CASE(threads_see_whole_keys_while_they_are_replaced),
	};

	return cmocka_run_group_tests_name("s3_credentials_fetch", cases, NULL, NULL);
}
