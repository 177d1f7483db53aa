/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An S3 backend with one session, opened on a server of the tests' own that verifies signatures:
 * for the tests of what it does about each answer and fault. All functions run on the test's own
 * thread; on failure they fail the running test.
 */
#ifndef KVT_TESTS_S3_SCENE_H
#define KVT_TESTS_S3_SCENE_H

#include "contract.h"
#include "s3_server.h"
#include "support.h"
#include "testhost.h"

#define S3_SCENE_ACCESS_KEY "AKIDEXAMPLE"
#define S3_SCENE_SECRET	    "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
#define S3_SCENE_PREFIX	    "some/prefix"
/* The key of a name, as a literal. */
#define S3_SCENE_KEY(name) S3_SCENE_PREFIX "/" name
#define S3_SCENE_MIB	   (UINT64_C(1) << 20)

struct s3_scene {
	struct testhost th;
	struct testbackend tb;
	struct testsession ts;
	struct s3_server *server;
	struct kvt_option_value options[16];
	size_t option_count;
	char *texts[16]; /* of options, owned */
	bool is_open;
	unsigned time_ms; /* of the next ios' deadlines; 0: 60 s */
	/* of the last io */
	int result;
	char detail[256];
	struct kvt_object_info info;
	uint64_t landed;
	int64_t retry_after_ns;
	uint32_t swept;
	bool was_answered_at_once; /* by submit */
};

/* setup and teardown of a test: the environment is emptied of what S3 clients look at, and put back
 * never: programs of these tests want none of it. */
int s3_scene_setup(void **state);
int s3_scene_teardown(void **state);
#define S3_SCENE_CASE(name) cmocka_unit_test_setup_teardown(name, s3_scene_setup, s3_scene_teardown)

/* Starts the server; with secrets unless it was given others. NULL: plain. */
void s3_scene_serve(struct s3_scene *scene, const struct s3_server_options *options);
/* An option besides endpoint and keys. */
void s3_scene_option(struct s3_scene *scene, const char *name, const char *value);
/* Opens on s3://bucket/some/prefix, and a session of this depth. */
void s3_scene_open(struct s3_scene *scene);
/* 0 or the backend's error. */
int s3_scene_try_open(struct s3_scene *scene);
void s3_scene_close(struct s3_scene *scene);
/* All of it, with a server of this kind. */
void s3_scene_start(struct s3_scene *scene, unsigned traits);
void s3_scene_rule(struct s3_scene *scene, const char *format, ...) KVT_PRINTF(2, 3);

/* Requests; results and the rest are in the scene. Bytes follow from the seed and their place in
 * the object; memory has canaries around it, which are checked, and so are the bytes of a get that
 * worked. */
int s3_scene_put(struct s3_scene *scene, const char *name, uint64_t bytes, uint64_t seed,
		 uint32_t flags, const struct kvt_version *if_version);
int s3_scene_get(struct s3_scene *scene, const char *name, uint64_t bytes, int64_t offset,
		 uint64_t seed, const struct kvt_version *if_version);
int s3_scene_head(struct s3_scene *scene, const char *name, uint32_t flags);
int s3_scene_remove(struct s3_scene *scene, const char *name, const struct kvt_version *if_version);
int s3_scene_sweep(struct s3_scene *scene, uint32_t age_s);
int s3_scene_begin(struct s3_scene *scene, const char *name, uint64_t object_bytes, void **handlep);
int s3_scene_part(struct s3_scene *scene, const char *name, void *handle, uint32_t number,
		  uint64_t offset, uint64_t bytes, uint64_t object_bytes, uint64_t seed);
int s3_scene_commit(struct s3_scene *scene, const char *name, void *handle, uint64_t object_bytes,
		    uint32_t flags, const struct kvt_version *if_version);
int s3_scene_abort(struct s3_scene *scene, const char *name, void *handle);

/* Deadlines for requests that never end, from 250 ms on, twice as long each time, so that one
 * reaches the server in time whatever the machine is doing: true when the next ios have one; false,
 * with the deadline and all rules gone, once it was `reached`. */
bool s3_scene_give_longer(struct s3_scene *scene, bool reached);

/* An object that the server has, put there behind the backend's back. */
void s3_scene_plant(struct s3_scene *scene, const char *name, uint64_t bytes, uint64_t seed);
/* Whether the server has it with these bytes. */
bool s3_scene_has(struct s3_scene *scene, const char *name, uint64_t bytes, uint64_t seed);

/* Fails the test, telling `what`, unless the last result was `expected` and its detail has `text`.
 */
void s3_scene_expect(struct s3_scene *scene, const char *what, int expected, const char *text);
/* Requests of these kinds and connections since the last call of s3_server_forget. */
uint64_t s3_scene_seen(struct s3_scene *scene, unsigned ops);
uint64_t s3_scene_connections(struct s3_scene *scene);

#endif
