/* SPDX-License-Identifier: Apache-2.0 */
/* The module on libs3 against the S3 server in memory: what its tests share. */
#ifndef KVT_TESTS_LIBS3_SCENE_H
#define KVT_TESTS_LIBS3_SCENE_H

#include "support.h"

#include "s3_server.h"
#include "testhost.h"

/* The module on libs3 as it is installed here, and on one of version 4.1 in memory. */
#define LIBS3_PACKAGED	KVT_TEST_MODULE_DIR "/kvtier-backend-s3+libs3.so"
#define LIBS3_IN_MEMORY KVT_TEST_BIN_DIR "/libs3_4/kvtier-backend-s3+libs3.so"

/* The table of a module; NULL, with the reason printed, when it is not built. */
const struct kvt_backend_ops *libs3_load(const char *path);
/* A symbol of it. */
void *libs3_symbol(const char *path, const char *name);
/* The environment says nothing about S3 from now on. */
void libs3_clear_environment(void);

/* An opened module, with a session of its own. */
struct libs3_scene {
	struct s3_server *server;
	struct testhost th;
	struct testbackend tb;
	struct testsession ts;
	struct kvt_option_value options[8];
	size_t option_count;
	char url[96];
	bool opened;
};
extern const struct kvt_backend_ops *libs3_ops;

/* Setup and teardown of a cmocka case whose state is a struct libs3_scene. */
int libs3_set_up(void **state);
int libs3_tear_down(void **state);
/* Adds a rule; asserted. */
void libs3_rule(struct libs3_scene *scene, const char *text);

/* A request on memory with canaries around it; `io` may be half filled. What it left is asserted:
 * nothing beyond the memory, completed, one line of detail. Returns the result. */
struct libs3_request {
	struct testio t;
	struct kvt_iovec iov;
	uint8_t *memory;
	uint64_t bytes;
};
int libs3_run(struct libs3_scene *scene, struct libs3_request *request, uint32_t op,
	      const char *name, uint64_t bytes, int64_t offset);
/* Puts bytes made from the seed. */
int libs3_put(struct libs3_scene *scene, const char *name, uint64_t bytes, uint64_t seed,
	      char detail[256]);
/* Gets a range of an object made from a seed, and asserts it when that worked. */
int libs3_get(struct libs3_scene *scene, const char *name, uint64_t object_bytes, uint64_t seed,
	      int64_t offset, uint64_t bytes, char detail[256]);
/* Asserts what the server holds. */
void libs3_expect(struct libs3_scene *scene, const char *name, uint64_t bytes, uint64_t seed);
/* A case of both versions of libs3. */
void libs3_ages_in_listings_do_not_depend_on_the_time_zone(void **state);

#endif
