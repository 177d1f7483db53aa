/* SPDX-License-Identifier: Apache-2.0 */
#include "s3_credentials_scene.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

void keys_start(struct keys_scene *o, void **state)
{
	*o = (struct keys_scene){.scene = *state, .http = http_fixture_start()};
	assert_non_null(o->http);
	/* Nobody is to be asked on the network. */
	scene_environment("AWS_EC2_METADATA_DISABLED", "true");
}

int keys_try_open(struct keys_scene *o)
{
	testhost_forget();
	assert_int_equal(scene_read(o->scene, "//bucket/p", "endpoint=http://127.0.0.1:9", NULL),
			 0);
	return kvt__s3_provider_open(&o->scene->th.host, &o->scene->s3.credentials, &o->provider);
}

void keys_end(struct keys_scene *o)
{
	kvt__s3_provider_close(o->provider);
	http_fixture_stop(o->http);
	assert_false(o->scene->secret_in_log);
	assert_false(o->scene->secret_is_free);
}

void keys_expect(struct keys_scene *o, const char *access_key, const char *token,
		 const char *source)
{
	const struct s3_credentials *c;

	if (keys_try_open(o) != 0)
		fail_msg("%s: %s", source, testhost_failure());
	assert_string_equal(kvt__s3_provider_source(o->provider), source);
	c = kvt__s3_credentials_acquire(o->provider);
	assert_non_null(c);
	assert_string_equal(c->access_key, access_key);
	assert_string_equal(c->secret_key, SCENE_SECRET);
	if (token)
		assert_string_equal(c->session_token, token);
	else
		assert_null(c->session_token);
	kvt__s3_credentials_release(o->provider, c);
	kvt__s3_provider_close(o->provider);
	o->provider = NULL;
}

void keys_expect_refused(struct keys_scene *o, int error, const char *text)
{
	int got = keys_try_open(o);

	if (got != error || !strstr(testhost_failure(), text))
		fail_msg("%s: %s, expected %s and \"%s\"", testhost_code(got), testhost_failure(),
			 testhost_code(error), text);
	assert_null(strstr(testhost_failure(), SCENE_SECRET));
	assert_null(o->provider);
}

void keys_use_container(struct keys_scene *o, const char *path, const char *body)
{
	char *url = test_format("%s%s", http_fixture_url(o->http), path);

	http_fixture_answer(o->http,
			    &(struct http_answer){"GET", path, .status = 200, .body = body});
	scene_environment("AWS_CONTAINER_CREDENTIALS_FULL_URI", url);
	free(url);
}

uint64_t keys_await_key(struct keys_scene *o, const char *access_key)
{
	const int64_t end_ns = o->scene->th.host.now_ns() + INT64_C(100000000000);

	while (o->scene->th.host.now_ns() < end_ns) {
		const struct s3_credentials *c = kvt__s3_credentials_acquire(o->provider);
		uint64_t generation = c ? c->generation : 0;
		bool is_it = c && strcmp(c->access_key, access_key) == 0;

		kvt__s3_credentials_release(o->provider, c);
		if (is_it)
			return generation;
		(void)sched_yield();
	}
	return 0;
}
