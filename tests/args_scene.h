/* SPDX-License-Identifier: Apache-2.0 */
/* A worker that is given bad arguments, and the check of what is said about them. */
#ifndef KVT_TESTS_ARGS_SCENE_H
#define KVT_TESTS_ARGS_SCENE_H

#include "support.h"

#include "fake_backend.h"

/* Asserts that a call fails with a code and one line that has all three texts in it (NULL: fewer).
 */
#define assert_refused(code, a, b, c, call)                                                        \
	args_refused((code), (a), (b), (c), (call), #call, __FILE__, __LINE__)
void args_refused(int code, const char *a, const char *b, const char *c, int got, const char *call,
		  const char *file, int line);

struct args_scene {
	struct fake_store *fake;
	struct test_bed bed;
	struct test_transfer t; /* of args_groups, F = 4: 3 keys, 14 copies */
};

/* 6 blocks of 2 refs, and 2 blocks of 1 ref. */
extern const struct test_group args_groups[2];

/* Setup and teardown of a test. The teardown asserts that nothing that was refused has left a job
 * or a request behind. */
int args_scene_open(void **state);
int args_scene_close(void **state);

#endif
