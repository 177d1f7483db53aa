/* SPDX-License-Identifier: Apache-2.0 */
/* A provider of credentials over an environment of its own and one HTTP endpoint. Nobody is asked
 * on the network. */
#ifndef KVT_TESTS_S3_CREDENTIALS_SCENE_H
#define KVT_TESTS_S3_CREDENTIALS_SCENE_H

#include "s3_config_scene.h"

#include "../backends/s3/credentials.h"
#include "http_fixture.h"

#define KEYS(access_key, expiration)                                                               \
	"{\"AccessKeyId\": \"" access_key "\", \"SecretAccessKey\": \"" SCENE_SECRET               \
	"\", \"Token\": \"session\", \"Expiration\": \"" expiration "\"}"
#define FAR "2099-01-01T00:00:00Z"

struct keys_scene {
	struct scene *scene;
	struct http_fixture *http;
	struct s3_provider *provider; /* NULL: not open */
};

void keys_start(struct keys_scene *o, void **state);
/* Closes the provider; asserts that no secret was logged or left in freed memory. */
void keys_end(struct keys_scene *o);
/* Opens a provider as the environment and the profile files say. */
int keys_try_open(struct keys_scene *o);
/* Asserts that it gives these keys, and closes it. */
void keys_expect(struct keys_scene *o, const char *access_key, const char *token,
		 const char *source);
/* Asserts that it fails with the code and says `text`, and no secret. */
void keys_expect_refused(struct keys_scene *o, int error, const char *text);
/* The container's endpoint, at this path, answers with `body`. */
void keys_use_container(struct keys_scene *o, const char *path, const char *body);
/* Waits, ten seconds at most, for credentials of this access key; their generation, 0: none came.
 */
uint64_t keys_await_key(struct keys_scene *o, const char *access_key);

#endif
