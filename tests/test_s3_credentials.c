/* SPDX-License-Identifier: Apache-2.0 */
/* Credentials of an S3 store: each source against an endpoint that answers as the real one does,
 * their order, how they are renewed, and what happens to those that do not work. */
#include "s3_credentials_scene.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TOKEN_PATH "/latest/api/token"
#define ROLES_PATH "/latest/meta-data/iam/security-credentials/"

static void the_environment_comes_before_profiles(void **state)
{
	struct keys_scene o;

	keys_start(&o, state);
	scene_profile_file(o.scene, "credentials",
			   "[default]\naws_access_key_id=FILE\naws_secret_access_key=" SCENE_SECRET
			   "\n");
	scene_environment("AWS_ACCESS_KEY_ID", "ENV");
	keys_expect_refused(&o, KVT_ECONFIG,
			    "AWS_ACCESS_KEY_ID is set and AWS_SECRET_ACCESS_KEY is not");
	scene_environment("AWS_SECRET_ACCESS_KEY", SCENE_SECRET);
	keys_expect(&o, "ENV", NULL, "environment");
	scene_environment("AWS_SESSION_TOKEN", "token");
	keys_expect(&o, "ENV", "token", "environment");
	scene_environment("AWS_ACCESS_KEY_ID", "TWO\nLINES");
	keys_expect_refused(&o, KVT_ECONFIG, "cannot be sent");
	keys_end(&o);
}

static void options_come_before_the_environment(void **state)
{
	static const char endpoint[] = "endpoint=http://127.0.0.1:9";
	const struct s3_credentials *c;
	struct keys_scene o;

	keys_start(&o, state);
	scene_environment("AWS_ACCESS_KEY_ID", "ENV");
	scene_environment("AWS_SECRET_ACCESS_KEY", SCENE_SECRET);
	assert_int_equal(scene_read(o.scene, "//bucket/p", endpoint, "access_key=OPTION",
				    "secret_key=" SCENE_SECRET, "session_token=token", NULL),
			 0);
	assert_int_equal(
		kvt__s3_provider_open(&o.scene->th.host, &o.scene->s3.credentials, &o.provider), 0);
	assert_string_equal(kvt__s3_provider_source(o.provider), "options");
	c = kvt__s3_credentials_acquire(o.provider);
	assert_non_null(c);
	assert_string_equal(c->access_key, "OPTION");
	assert_string_equal(c->session_token, "token");
	assert_false(c->anonymous);
	kvt__s3_credentials_release(o.provider, c);
	assert_false(kvt__s3_credentials_refuse(o.provider, 1));
	kvt__s3_provider_close(o.provider);

	assert_int_equal(scene_read(o.scene, "//bucket/p", endpoint, "access_key=anonymous", NULL),
			 0);
	assert_int_equal(
		kvt__s3_provider_open(&o.scene->th.host, &o.scene->s3.credentials, &o.provider), 0);
	assert_string_equal(kvt__s3_provider_source(o.provider), "anonymous");
	c = kvt__s3_credentials_acquire(o.provider);
	assert_non_null(c);
	assert_true(c->anonymous);
	assert_null(c->access_key);
	kvt__s3_credentials_release(o.provider, c);
	assert_false(kvt__s3_credentials_refuse(o.provider, 1));
	keys_end(&o);
}

static void profiles_have_keys_or_a_clear_refusal(void **state)
{
	static const char *const others[] = {"credential_process=/bin/true",
					     "role_arn=r\nsource_profile=x", "sso_session=x"};
	struct keys_scene o;
	char *source;

	keys_start(&o, state);
	keys_expect_refused(&o, KVT_EAUTH, "no keys in profile default");
	scene_profile_file(o.scene, "credentials",
			   "[default]\naws_access_key_id=FILE\naws_secret_access_key=" SCENE_SECRET
			   "\n[other]\naws_access_key_id=OTHER\naws_secret_access_key=" SCENE_SECRET
			   "\naws_session_token=t\n[half]\naws_access_key_id=HALF\n");
	source = test_format("profile default of %s/.aws/credentials", o.scene->home);
	keys_expect(&o, "FILE", NULL, source);
	free(source);
	scene_environment("AWS_PROFILE", "other");
	source = test_format("profile other of %s/.aws/credentials", o.scene->home);
	keys_expect(&o, "OTHER", "t", source);
	free(source);
	scene_environment("AWS_PROFILE", "half");
	keys_expect_refused(&o, KVT_ECONFIG, "aws_secret_access_key is missing");
	scene_environment("AWS_PROFILE", "nobody");
	keys_expect_refused(&o, KVT_ECONFIG, "profile nobody");
	scene_environment("AWS_PROFILE", NULL);
	scene_profile_file(o.scene, "credentials", "");
	for (size_t i = 0; i < TEST_COUNT(others); i++) {
		char *text = test_format("[default]\n%s\n", others[i]);

		scene_profile_file(o.scene, "config", text);
		keys_expect_refused(&o, KVT_ECONFIG, "is not supported: put keys into");
		free(text);
	}
	keys_end(&o);
}

static void a_web_identity_is_exchanged_for_keys(void **state)
{
	static const char good[] =
		"<?xml version=\"1.0\"?><AssumeRoleWithWebIdentityResponse "
		"xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\">"
		"<AssumeRoleWithWebIdentityResult><Credentials><SessionToken>session</SessionToken>"
		"<SecretAccessKey>" SCENE_SECRET "</SecretAccessKey><Expiration>" FAR
		"</Expiration><AccessKeyId>STS</AccessKeyId></Credentials>"
		"</AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>";
	static const char *const bad[] = {"", "<a>", "<!DOCTYPE a><a/>", "{}",
					  "<a><AccessKeyId>x</AccessKeyId></a>"};
	char posted[4096], *path;
	struct keys_scene o;

	keys_start(&o, state);
	scene_profile_file(o.scene, "token", "to ken+\n");
	path = test_format("%s/.aws/token", o.scene->home);
	scene_environment("AWS_WEB_IDENTITY_TOKEN_FILE", path);
	scene_environment("AWS_ENDPOINT_URL_STS", http_fixture_url(o.http));
	keys_expect_refused(&o, KVT_ECONFIG, "AWS_ROLE_ARN");
	scene_environment("AWS_ROLE_ARN", "arn:aws:iam::1:role/r");
	keys_expect_refused(&o, KVT_EAUTH, "HTTP 404");
	http_fixture_answer(o.http,
			    &(struct http_answer){"POST", "/", .status = 200, .body = good});
	keys_expect(&o, "STS", "session", "web identity");
	http_fixture_posted(o.http, posted, sizeof(posted));
	assert_string_equal(posted,
			    "Action=AssumeRoleWithWebIdentity&Version=2011-06-15"
			    "&RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fr&RoleSessionName=kvtier"
			    "&WebIdentityToken=to%20ken%2B");
	for (size_t i = 0; i < TEST_COUNT(bad); i++) {
		http_fixture_answer(
			o.http, &(struct http_answer){"POST", "/", .status = 200, .body = bad[i]});
		keys_expect_refused(&o, KVT_EAUTH, "expected XML");
	}
	scene_environment("AWS_WEB_IDENTITY_TOKEN_FILE", "/nowhere/token");
	keys_expect_refused(&o, KVT_ECONFIG, "/nowhere/token: No such file");
	free(path);
	keys_end(&o);
}

static void a_container_asks_its_endpoint(void **state)
{
	static const char *const foreign[] = {"http://10.0.0.1/creds",	"http://169.254.1.1/",
					      "ftp://127.0.0.1/",	"http://127.0.0.1.evil/",
					      "http://user@127.0.0.1/", "nonsense"};
	static const char *const bad[] = {"", "[]", "{", "{\"AccessKeyId\": \"x\"}",
					  ("{\"AccessKeyId\": \"x\", \"SecretAccessKey\": \"y\", "
					   "\"Expiration\": \"soon\"}")};
	struct http_answer answer = {"GET", "/creds", .needs = "Authorization: pass", .status = 200,
				     .body = KEYS("TASK", FAR)};
	char *path, *large;
	struct keys_scene o;

	keys_start(&o, state);
	keys_use_container(&o, "/creds", KEYS("TASK", FAR));
	keys_expect(&o, "TASK", "session", "container");
	http_fixture_answer(o.http, &answer);
	keys_expect_refused(&o, KVT_EAUTH, "HTTP 401");
	scene_environment("AWS_CONTAINER_AUTHORIZATION_TOKEN", "pass\r\nX-Other: 1");
	keys_expect_refused(&o, KVT_ECONFIG, "control characters");
	scene_environment("AWS_CONTAINER_AUTHORIZATION_TOKEN", "pass");
	keys_expect(&o, "TASK", "session", "container");
	scene_environment("AWS_CONTAINER_AUTHORIZATION_TOKEN", NULL);
	scene_profile_file(o.scene, "pod", "pass\n");
	path = test_format("%s/.aws/pod", o.scene->home);
	scene_environment("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", path);
	keys_expect(&o, "TASK", "session", "container");
	for (size_t i = 0; i < TEST_COUNT(bad); i++) {
		keys_use_container(&o, "/creds", bad[i]);
		keys_expect_refused(&o, KVT_EAUTH, "expected JSON");
	}
	answer = (struct http_answer){"GET", "/creds", .status = 302, .location = "/other"};
	http_fixture_answer(o.http, &answer);
	keys_use_container(&o, "/other", KEYS("ELSE", FAR));
	keys_use_container(&o, "/creds", "");
	http_fixture_answer(o.http, &answer);
	keys_expect_refused(&o, KVT_EAUTH, "HTTP 302");
	assert_int_equal(http_fixture_count(o.http, "/other"), 0);
	large = calloc(1, 70001);
	assert_non_null(large);
	memset(large, ' ', 70000);
	keys_use_container(&o, "/creds", large);
	keys_expect_refused(&o, KVT_EAUTH, "over 64 KiB");
	free(large);
	for (size_t i = 0; i < TEST_COUNT(foreign); i++) {
		scene_environment("AWS_CONTAINER_CREDENTIALS_FULL_URI", foreign[i]);
		keys_expect_refused(&o, KVT_ECONFIG, "expected https, or http to this machine");
	}
	free(path);
	keys_end(&o);
}

static void an_instance_asks_its_metadata_with_a_token(void **state)
{
	struct keys_scene o;

	keys_start(&o, state);
	scene_environment("AWS_EC2_METADATA_DISABLED", NULL);
	scene_environment("AWS_EC2_METADATA_SERVICE_ENDPOINT", http_fixture_url(o.http));
	keys_expect_refused(&o, KVT_EAUTH, "HTTP 404");
	http_fixture_answer(o.http,
			    &(struct http_answer){"PUT", TOKEN_PATH,
						  "X-aws-ec2-metadata-token-ttl-seconds: 21600",
						  200, "imds-token"});
	http_fixture_answer(o.http, &(struct http_answer){"GET", ROLES_PATH,
							  "X-aws-ec2-metadata-token: imds-token",
							  200, "the-role\n"});
	keys_expect_refused(&o, KVT_EAUTH, "HTTP 404");
	http_fixture_answer(o.http, &(struct http_answer){"GET", ROLES_PATH "the-role",
							  "X-aws-ec2-metadata-token: imds-token",
							  200, KEYS("EC2", FAR)});
	keys_expect(&o, "EC2", "session", "instance metadata");
	http_fixture_answer(o.http, &(struct http_answer){"GET", ROLES_PATH, NULL, 200, "../x"});
	keys_expect_refused(&o, KVT_EAUTH, "expected the name of a role");
	scene_environment("AWS_EC2_METADATA_DISABLED", "true");
	keys_expect_refused(&o, KVT_EAUTH, "AWS_EC2_METADATA_DISABLED");
	keys_end(&o);
}

static void keys_are_renewed_before_they_expire(void **state)
{
	struct keys_scene o;
	char text[64], *body;
	time_t soon = time(NULL) + 3;
	struct tm tm;
	const struct s3_credentials *old;

	keys_start(&o, state);
	assert_non_null(gmtime_r(&soon, &tm));
	assert_true(strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &tm) > 0);
	body = test_format("{\"AccessKeyId\": \"OLD\", \"SecretAccessKey\": \"%s\", "
			   "\"Expiration\": \"%s\"}",
			   SCENE_SECRET, text);
	keys_use_container(&o, "/creds", body);
	free(body);
	assert_int_equal(keys_try_open(&o), 0);
	old = kvt__s3_credentials_acquire(o.provider);
	assert_non_null(old);
	assert_int_equal(old->expires_s, soon);
	keys_use_container(&o, "/creds", KEYS("NEW", FAR));
	assert_int_equal(keys_await_key(&o, "NEW"), 2);
	/* What is held stays as it is. */
	assert_string_equal(old->access_key, "OLD");
	kvt__s3_credentials_release(o.provider, old);
	keys_end(&o);
}

static void *refuse(void *provider)
{
	for (int i = 0; i < 100; i++)
		if (!kvt__s3_credentials_refuse(provider, 1))
			return provider;
	return NULL;
}

static void refused_keys_are_fetched_once_for_all(void **state)
{
	pthread_t threads[8];
	struct keys_scene o;
	void *failed;

	keys_start(&o, state);
	keys_use_container(&o, "/creds", KEYS("OLD", FAR));
	assert_int_equal(keys_try_open(&o), 0);
	keys_use_container(&o, "/creds", KEYS("NEW", FAR));
	for (int i = 0; i < 8; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, refuse, o.provider), 0);
	for (int i = 0; i < 8; i++) {
		assert_int_equal(pthread_join(threads[i], &failed), 0);
		assert_null(failed);
	}
	assert_int_equal(keys_await_key(&o, "NEW"), 2);
	assert_int_equal(http_fixture_count(o.http, "/creds"), 2);
	keys_end(&o);
}

static void keys_that_never_change_are_not_fetched_again(void **state)
{
	struct keys_scene o;

	keys_start(&o, state);
	scene_environment("AWS_ACCESS_KEY_ID", "ENV");
	scene_environment("AWS_SECRET_ACCESS_KEY", SCENE_SECRET);
	assert_int_equal(keys_try_open(&o), 0);
	assert_false(kvt__s3_credentials_refuse(o.provider, 1));
	keys_end(&o);
}

static void old_keys_stay_when_newer_ones_cannot_be_had(void **state)
{
	struct keys_scene o;

	keys_start(&o, state);
	keys_use_container(&o, "/creds", KEYS("OLD", FAR));
	assert_int_equal(keys_try_open(&o), 0);
	keys_use_container(&o, "/creds", "nonsense");
	assert_true(kvt__s3_credentials_refuse(o.provider, 1));
	while (http_fixture_count(o.http, "/creds") < 2)
		(void)sched_yield();
	assert_int_equal(keys_await_key(&o, "OLD"), 1);
	keys_use_container(&o, "/creds", KEYS("NEW", FAR));
	assert_int_equal(keys_await_key(&o, "NEW"), 2);
	keys_end(&o);
}

static void closing_ends_a_fetch_in_flight(void **state)
{
	static const char good[] = "<R><AccessKeyId>OLD</AccessKeyId><SecretAccessKey>" SCENE_SECRET
				   "</SecretAccessKey><Expiration>" FAR "</Expiration></R>";
	struct http_answer answer = {"POST", "/", .status = 200, .body = good};
	struct keys_scene o;
	char *path;

	/* The token service is waited for longest. */
	keys_start(&o, state);
	scene_profile_file(o.scene, "token", "token\n");
	path = test_format("%s/.aws/token", o.scene->home);
	scene_environment("AWS_WEB_IDENTITY_TOKEN_FILE", path);
	scene_environment("AWS_ROLE_ARN", "arn:aws:iam::1:role/r");
	scene_environment("AWS_ENDPOINT_URL_STS", http_fixture_url(o.http));
	free(path);
	http_fixture_answer(o.http, &answer);
	assert_int_equal(keys_try_open(&o), 0);
	answer.holds = true;
	http_fixture_answer(o.http, &answer);
	assert_true(kvt__s3_credentials_refuse(o.provider, 1));
	assert_true(http_fixture_await_held(o.http));
	kvt__s3_provider_close(o.provider);
	o.provider = NULL;
	keys_end(&o);
}

static void a_forked_child_lets_go(void **state)
{
	struct keys_scene o;
	int status = 0;
	pid_t child;

	keys_start(&o, state);
	keys_use_container(&o, "/creds", KEYS("OLD", FAR));
	assert_int_equal(keys_try_open(&o), 0);
	child = fork();
	if (child == 0) {
		kvt__s3_provider_forked(o.provider);
		_exit(42);
	}
	assert_true(child > 0);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 42);
	keys_end(&o);
}

static void whatever_allocation_fails_nothing_is_left(void **state)
{
	struct keys_scene o;
	int error = KVT_ENOMEM;

	keys_start(&o, state);
	keys_use_container(&o, "/creds", KEYS("KEY", FAR));
	assert_int_equal(scene_read(o.scene, "//bucket/p", "endpoint=http://127.0.0.1:9", NULL), 0);
	for (long n = 1; error; n++) {
		struct testhost *th = &o.scene->th;
		long live = atomic_load(&th->live);

		atomic_store(&th->fail_at, atomic_load(&th->allocations) + n);
		error = kvt__s3_provider_open(&th->host, &o.scene->s3.credentials, &o.provider);
		atomic_store(&th->fail_at, 0);
		if (error) {
			assert_int_equal(error, KVT_ENOMEM);
			assert_null(o.provider);
			assert_int_equal(atomic_load(&th->live), live);
		}
		assert_true(n < 100);
	}
	keys_end(&o);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, scene_setup, scene_teardown)

int main(void)
{
	const struct CMUnitTest cases[] = {
		CASE(the_environment_comes_before_profiles),
		CASE(options_come_before_the_environment),
		CASE(profiles_have_keys_or_a_clear_refusal),
		CASE(a_web_identity_is_exchanged_for_keys),
		CASE(a_container_asks_its_endpoint),
		CASE(an_instance_asks_its_metadata_with_a_token),
		CASE(keys_are_renewed_before_they_expire),
		CASE(refused_keys_are_fetched_once_for_all),
		CASE(keys_that_never_change_are_not_fetched_again),
		CASE(old_keys_stay_when_newer_ones_cannot_be_had),
		CASE(closing_ends_a_fetch_in_flight),
		CASE(a_forked_child_lets_go),
		CASE(whatever_allocation_fails_nothing_is_left),
	};

	return cmocka_run_group_tests_name("s3_credentials", cases, NULL, NULL);
}
