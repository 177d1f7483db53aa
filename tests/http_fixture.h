/* SPDX-License-Identifier: Apache-2.0 */
/* A small HTTP server on the loopback interface that answers by a table, for tests of what asks
 * such endpoints. Functions may be called from any thread; its own threads never assert. */
#ifndef KVT_TESTS_HTTP_FIXTURE_H
#define KVT_TESTS_HTTP_FIXTURE_H

#include <stdbool.h>

#define HTTP_FIXTURE_ANSWERS 8

struct http_answer {
	const char *method, *path;
	const char *needs; /* a header line "name: value" without which the answer is 401 */
	unsigned status;
	const char *body;
	const char *location; /* of a redirect */
	bool holds;	      /* answers only when released */
};

struct http_fixture;

/* NULL when it cannot be started. */
struct http_fixture *http_fixture_start(void);
/* Accepts NULL. */
void http_fixture_stop(struct http_fixture *fixture);
/* "http://127.0.0.1:PORT"; lives as long as the fixture. */
const char *http_fixture_url(const struct http_fixture *fixture);
/* Replaces what is answered to this method and path; strings are copied. */
void http_fixture_answer(struct http_fixture *fixture, const struct http_answer *answer);
/* Requests to this path so far. */
unsigned http_fixture_count(struct http_fixture *fixture, const char *path);
/* The body of the last POST into `text`. */
void http_fixture_posted(struct http_fixture *fixture, char *text, unsigned bytes);
/* Waits until a request is held, ten seconds at most. */
bool http_fixture_await_held(struct http_fixture *fixture);
/* All that are held, now and later. */
void http_fixture_release(struct http_fixture *fixture);

#endif
