/* SPDX-License-Identifier: Apache-2.0 */
/* A plain client on libcurl for tests of the S3 server itself: it has no opinions of its own. All
 * functions run on the test's thread; on failure they fail the running test. */
#ifndef KVT_TESTS_S3_SERVER_CLIENT_H
#define KVT_TESTS_S3_SERVER_CLIENT_H

#include <curl/curl.h>

#include "s3_server.h"
#include "support.h"

struct s3c_text {
	char *data;
	size_t bytes;
};

/* One request; zero what is not used. */
struct s3c_call {
	const char *method; /* "GET" */
	const char *path;   /* with the query */
	const char *headers[6];
	const char *body;
	const char *sign; /* the region to sign for */
	/* result */
	CURLcode code;
	long status;
	struct s3c_text head, data;
};

/* Of the running test: started by s3c_start, stopped by s3c_tear_down. */
extern struct s3_server *s3c_server;
extern CURL *s3c_easy;

int s3c_set_up(void **state);
int s3c_tear_down(void **state);
void s3c_start(const struct s3_server_options *options);
/* The next request takes a new connection. */
void s3c_renew(void);
/* The status, 0 when there is none. */
long s3c_run(struct s3c_call *call);
void s3c_forget(struct s3c_call *call);
bool s3c_says(const struct s3c_text *text, const char *what);
/* Requests of which only the status matters. */
long s3c_simple(const char *method, const char *path);
long s3c_put(const char *path, const char *body, const char *header);
void s3c_rule(const char *text);
/* A libcurl callback: appends to a struct s3c_text. */
size_t s3c_gather(char *data, size_t size, size_t count, void *text);

#define assert_says(text, what)                                                                    \
	do {                                                                                       \
		if (!s3c_says(&(text), what))                                                      \
			fail_msg("'%s' is not in '%s'", what, (text).data ? (text).data : "");     \
	} while (0)

#define S3C_CASE(name) cmocka_unit_test_setup_teardown(name, s3c_set_up, s3c_tear_down)

#endif
