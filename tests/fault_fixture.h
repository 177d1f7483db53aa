/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of the fault wrapper share: it is opened over the mem backend, which answers at
 * once, later, or has no poll of its own. */
#ifndef KVT_TESTS_FAULT_FIXTURE_H
#define KVT_TESTS_FAULT_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "testhost.h"

#define FAULT_OPTIONS	 6
#define FAULT_BODY_BYTES 70000u
#define NS_PER_MS	 INT64_C(1000000)

enum fault_inner { FAULT_AT_ONCE, FAULT_LATER, FAULT_BLOCKING };
extern enum fault_inner fault_inner; /* of the group that runs */

/* A wrapped backend with a session, and a file that a test may make and remove. */
struct fixture {
	struct testhost th;
	struct kvt_backend_ops inner;
	struct testbackend tb;
	struct testsession ts;
	struct kvt_option_value options[FAULT_OPTIONS], inner_option;
	char texts[FAULT_OPTIONS][200];
	char path[64];
	uint8_t body[FAULT_BODY_BYTES], back[FAULT_BODY_BYTES];
};

/* Opens the wrapper with options given as "name=value", ended by NULL; %s stands for the file. */
int fault_try_open(struct fixture *f, const char *const *options);
/* The same, asserted, and a session. */
#define wrap(f, ...)                                                                               \
	do {                                                                                       \
		const char *const options_[] = {__VA_ARGS__, NULL};                                \
		assert_int_equal(fault_try_open((f), options_), 0);                                \
		assert_int_equal(testsession_open(&(f)->ts, &(f)->tb, 16, 0), 0);                  \
	} while (0)

int fault_setup(void **state);
int fault_teardown(void **state);
#define FAULT_CASE(function) cmocka_unit_test_setup_teardown(function, fault_setup, fault_teardown)
/* Runs the cases over each kind of inner backend; the number of failures. */
int fault_run_cases(const struct CMUnitTest *cases, size_t count);

void make_file(struct fixture *f);
/* A put of the body, a get into back, and a head. */
int put(struct fixture *f, const char *name);
int get(struct fixture *f, const char *name);
int head(struct fixture *f, const char *name);

#endif
