/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server that the environment names, for live tests in C; tests/servers/rgw says what the
 * variables are. All functions run on the test's own thread.
 */
#ifndef KVT_TESTS_LIVE_SERVER_H
#define KVT_TESTS_LIVE_SERVER_H

#include <stdbool.h>
#include <stddef.h>

/* The variable's value, NULL when it is unset or empty. */
const char *live_server(const char *variable);
/* For main: returns when all the variables (ended by NULL) are there and the usual ones are too,
 * else ends the program as skipped, saying which is missing. Hides the user's own AWS files. */
void live_server_need(const char *const *variables);
/* Writes "bucket/prefix" with a prefix that nobody else has. 0, or -1 when it does not fit. */
int live_server_place(char *place, size_t bytes);
/* Runs "$KVT_S3_CONTROL action name" and waits for it: whether it succeeded. When `answer` is not
 * NULL it gets the first line of what was printed. */
bool live_server_control(const char *action, const char *name, char *answer, size_t bytes);

#endif
