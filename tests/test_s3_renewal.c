/* SPDX-License-Identifier: Apache-2.0 */
/* A server that calls the keys expired: the request that hears it waits for newer ones and is sent
 * again, once. */
#include "http_fixture.h"
#include "s3_scene.h"

#include <stdlib.h>
#include <string.h>

#define PATH "/creds"
#define KEYS(access_key)                                                                           \
	"{\"AccessKeyId\": \"" access_key "\", \"SecretAccessKey\": \"" S3_SCENE_SECRET            \
	"\", \"Token\": \"session\", \"Expiration\": \"2099-01-01T00:00:00Z\"}"

static void hand_out(struct http_fixture *http, const char *body)
{
	http_fixture_answer(http, &(struct http_answer){"GET", PATH, .status = 200, .body = body});
}

static void expired_keys_are_renewed_and_the_request_repeated(void **state)
{
	struct http_fixture *http = http_fixture_start();
	struct s3_scene *scene = *state;
	struct kvt_option_value endpoint = {"endpoint", NULL};
	struct testbackend_options options = {.ops = NULL};
	char *url;
	extern const struct kvt_backend_ops kvt__s3_backend_ops;

	assert_non_null(http);
	s3_scene_serve(scene, &(struct s3_server_options){.access_key = "FIRST",
							  .secret_key = S3_SCENE_SECRET,
							  .session_token = "session"});
	endpoint.value = s3_server_url(scene->server);
	url = test_format("%s%s", http_fixture_url(http), PATH);
	assert_int_equal(setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", url, 1), 0);
	hand_out(http, KEYS("FIRST"));
	options.ops = &kvt__s3_backend_ops;
	options.location = "//bucket/" S3_SCENE_PREFIX;
	options.options = &endpoint;
	options.option_count = 1;
	testhost_init(&scene->th);
	assert_int_equal(testbackend_open(&scene->tb, &scene->th, &options), 0);
	assert_int_equal(testsession_open(&scene->ts, &scene->tb, 4, 0), 0);
	assert_int_equal(s3_scene_put(scene, "ab/cd.bin", 100000, 1, 0, NULL), 0);
	assert_int_equal(http_fixture_count(http, PATH), 1);

	/* Newer keys are to be had. */
	s3_server_set_secret(scene->server, "SECOND", S3_SCENE_SECRET, "session");
	hand_out(http, KEYS("SECOND"));
	s3_server_forget(scene->server);
	assert_int_equal(s3_scene_put(scene, "ab/cd.bin", 200000, 2, 0, NULL), 0);
	assert_int_equal(s3_scene_seen(scene, S3_OP_PUT), 2);
	assert_int_equal(http_fixture_count(http, PATH), 2);
	assert_int_equal(s3_scene_get(scene, "ab/cd.bin", 200000, 0, 2, NULL), 0);

	/* None are: the request fails by the server's own words. */
	s3_server_set_secret(scene->server, "THIRD", S3_SCENE_SECRET, "session");
	assert_int_equal(s3_scene_get(scene, "ab/cd.bin", 200000, 0, 2, NULL), KVT_EAUTH);
	assert_non_null(strstr(scene->detail, "InvalidAccessKeyId"));

	/* Refused, and the endpoint gives none any more: that is what is told, not that it took too
	 * long. */
	http_fixture_answer(http, &(struct http_answer){"GET", PATH, .status = 500, .body = ""});
	scene->time_ms = 4000;
	while (s3_scene_get(scene, "ab/cd.bin", 200000, 0, 2, NULL) == KVT_ETIMEDOUT &&
	       scene->time_ms < 60000)
		scene->time_ms *= 2; /* until there is time for an answer */
	s3_scene_expect(scene, "no newer keys", KVT_EAUTH, "could not be fetched in time");

	testsession_close(&scene->ts);
	testbackend_close(&scene->tb);
	assert_int_equal(unsetenv("AWS_CONTAINER_CREDENTIALS_FULL_URI"), 0);
	http_fixture_stop(http);
	free(url);
}

int main(void)
{
	const struct CMUnitTest cases[] = {
		S3_SCENE_CASE(expired_keys_are_renewed_and_the_request_repeated),
	};

	return cmocka_run_group_tests_name("s3_renewal", cases, NULL, NULL);
}
