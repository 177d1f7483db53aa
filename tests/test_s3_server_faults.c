/* SPDX-License-Identifier: Apache-2.0 */
/* What rules do to requests and connections of the S3 server, what it remembers, and TLS. */
#include "s3_server_client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- Faults ---- */

static void rules_answer_in_place_of_the_server(void **state)
{
	struct s3c_call c = {.path = "/bucket/k"};

	(void)state;
	s3c_start(&(struct s3_server_options){0});
	assert_true(s3_server_put(s3c_server, "k", "0123456789", 10));
	s3c_rule("ops=get key=k skip=1 times=2 status=503 code=SlowDown message=\"less, please\" "
		 "retry-after-s=7");
	assert_int_equal(s3c_run(&c), 200);
	assert_int_equal(s3c_run(&c), 503);
	assert_says(c.data, "<Code>SlowDown</Code><Message>less, please</Message>");
	assert_says(c.head, "Retry-After: 7\r\n");
	assert_int_equal(s3c_run(&c), 503);
	assert_int_equal(s3c_run(&c), 200);
	assert_int_equal(s3_server_rule_hits(s3c_server), 2);
	s3_server_clear_rules(s3c_server);
	s3c_rule("ops=get times=1 flip flip-at=3");
	s3c_rule("ops=get times=1 etag=? range=\"bytes 0-1/10\" without=Last-Modified");
	s3c_rule("ops=get times=1 status=307 headers=\"Location: http://127.0.0.1:1/\\r\\n\" "
		 "body=\"\"");
	s3c_rule("ops=get times=1 whole");
	c.headers[0] = "Range: bytes=2-5";
	assert_int_equal(s3c_run(&c), 206);
	assert_string_equal(c.data.data, "234%");
	assert_int_equal(s3c_run(&c), 206);
	assert_says(c.head, "ETag: \"another-");
	assert_says(c.head, "Content-Range: bytes 0-1/10\r\n");
	assert_false(s3c_says(&c.head, "Last-Modified"));
	assert_int_equal(s3c_run(&c), 307);
	assert_int_equal(c.data.bytes, 0);
	assert_int_equal(s3c_run(&c), 200);
	assert_string_equal(c.data.data, "0123456789");
	assert_non_null(s3_server_add_rule_text(s3c_server, "ops=fetch"));
	assert_non_null(s3_server_add_rule_text(s3c_server, "status=many"));
	assert_non_null(s3_server_add_rule_text(s3c_server, "unheard-of"));
	assert_non_null(s3_server_add_rule_text(s3c_server, "cut=off"));
	s3c_forget(&c);
}

static void answers_are_broken_byte_by_byte(void **state)
{
	static const struct {
		const char *rule;
		CURLcode code;
		size_t bytes; /* that arrive */
		const char *head;
	} cases[] = {
		{"cut=fin cut-at=4", CURLE_PARTIAL_FILE, 4, "Content-Length: 10"},
		{"cut=rst cut-at=4", CURLE_RECV_ERROR, 4, "Content-Length: 10"},
		{"cut=fin cut-at=0", CURLE_PARTIAL_FILE, 0, "Content-Length: 10"},
		{"lost=fin", CURLE_GOT_NOTHING, 0, NULL},
		{"lost=rst", CURLE_RECV_ERROR, 0, NULL},
		{"wrong-length said-length=7", CURLE_OK, 7, "Content-Length: 7"},
		{"wrong-length said-length=17", CURLE_PARTIAL_FILE, 10, "Content-Length: 17"},
		{"extra-bytes=9", CURLE_OK, 10, "Content-Length: 10"},
		{"extra-bytes=9 no-length", CURLE_OK, 19, NULL},
		{"chunked", CURLE_OK, 10, "Transfer-Encoding: chunked"},
		{"chunked cut=fin cut-at=3", CURLE_PARTIAL_FILE, 3, "Transfer-Encoding: chunked"},
		{"no-length", CURLE_OK, 10, NULL},
		{"lower-case", CURLE_OK, 10, "content-length: 10\r\n"},
		{"http10", CURLE_OK, 10, "HTTP/1.0 200 OK"},
		{"close-silently", CURLE_OK, 10, "HTTP/1.1 200 OK"},
		{"close", CURLE_OK, 10, "Connection: close"},
		{"rate=200", CURLE_OK, 10, "HTTP/1.1 200 OK"},
		{"header-bytes=400000", CURLE_OUT_OF_MEMORY, 0, NULL},
		{"raw=\"220 ready\\r\\n\"", CURLE_WEIRD_SERVER_REPLY, 0, NULL},
	};

	(void)state;
	s3c_start(&(struct s3_server_options){0});
	assert_true(s3_server_put(s3c_server, "k", "0123456789", 10));
	for (size_t i = 0; i < TEST_COUNT(cases); i++) {
		struct s3c_call c = {.path = "/bucket/k"};
		char *text = test_format("ops=get times=1 %s", cases[i].rule);

		s3c_rule(text);
		/* On a new connection, or libcurl would try again by itself. */
		s3c_renew();
		s3c_run(&c);
		/* The code for a header bomb depends on the version; that it is refused does not.
		 */
		if (c.code != cases[i].code && cases[i].code != CURLE_OUT_OF_MEMORY &&
		    cases[i].code != CURLE_WEIRD_SERVER_REPLY)
			fail_msg("%s: curl says %d", cases[i].rule, (int)c.code);
		if (cases[i].code)
			assert_int_not_equal(c.code, CURLE_OK);
		if (c.data.bytes != cases[i].bytes)
			fail_msg("%s: %zu bytes", cases[i].rule, c.data.bytes);
		if (cases[i].head)
			assert_says(c.head, cases[i].head);
		free(text);
		s3c_forget(&c);
		s3c_renew();
		assert_int_equal(s3c_simple("GET", "/bucket/k"), 200);
	}
	assert_int_equal(s3_server_rule_hits(s3c_server), TEST_COUNT(cases));
}

static void lost_answers_have_been_acted_upon(void **state)
{
	struct s3c_call c = {.method = "PUT", .path = "/bucket/k", .body = "stored"};

	(void)state;
	s3c_start(&(struct s3_server_options){0});
	s3c_rule("ops=put times=1 lost=fin");
	s3c_rule("ops=put times=1 done-first status=500 code=InternalError");
	s3c_rule("ops=put times=1 upload-cut=rst upload-at=3");
	s3c_rule("ops=put times=1 early status=403 code=AccessDenied");
	s3c_run(&c);
	assert_int_not_equal(c.code, CURLE_OK);
	assert_true(s3_server_has(s3c_server, "k"));
	c.path = "/bucket/l";
	assert_int_equal(s3c_run(&c), 500);
	assert_true(s3_server_has(s3c_server, "l"));
	c.path = "/bucket/m";
	s3c_run(&c);
	assert_int_not_equal(c.code, CURLE_OK);
	assert_false(s3_server_has(s3c_server, "m"));
	assert_int_equal(s3c_run(&c), 403);
	assert_says(c.data, "AccessDenied");
	assert_false(s3_server_has(s3c_server, "m"));
	assert_int_equal(s3c_run(&c), 200);
	s3c_forget(&c);
}

struct in_background {
	CURL *easy;
	pthread_t thread;
	CURLcode code;
};

static void *get_in_background(void *context)
{
	struct in_background *b = context;

	b->code = curl_easy_perform(b->easy);
	return NULL;
}

static void begin_get(struct in_background *b, struct s3c_text *into)
{
	char *url = test_format("%s/bucket/k", s3_server_url(s3c_server));

	b->easy = curl_easy_init();
	curl_easy_setopt(b->easy, CURLOPT_URL, url);
	curl_easy_setopt(b->easy, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(b->easy, CURLOPT_WRITEFUNCTION, s3c_gather);
	curl_easy_setopt(b->easy, CURLOPT_WRITEDATA, into);
	free(url);
	assert_int_equal(pthread_create(&b->thread, NULL, get_in_background, b), 0);
}

static void end_get(struct in_background *b)
{
	pthread_join(b->thread, NULL);
	curl_easy_cleanup(b->easy);
}

static void requests_are_held_until_they_are_released(void **state)
{
	struct s3_server_counts counts;
	struct in_background b[2];
	struct s3c_text text[2] = {{0}};

	(void)state;
	s3c_start(&(struct s3_server_options){0});
	assert_true(s3_server_put(s3c_server, "k", "0123456789", 10));
	s3c_rule("ops=get times=1 hold");
	s3c_rule("ops=get times=1 cut=hold cut-at=5");
	for (unsigned i = 0; i < 2; i++)
		begin_get(&b[i], &text[i]);
	assert_true(s3_server_await_held(s3c_server, 2));
	s3_server_release(s3c_server);
	for (unsigned i = 0; i < 2; i++) {
		end_get(&b[i]);
		assert_int_equal(b[i].code, CURLE_OK);
		assert_string_equal(text[i].data, "0123456789");
		free(text[i].data);
	}
	s3_server_count(s3c_server, &counts);
	assert_int_equal(counts.most_at_once, 2);
	assert_int_equal(counts.connections, 2);
}

static void what_is_held_ends_with_the_server(void **state)
{
	static const char *const rules[] = {
		"hold",	   "hang",	"cut=stall cut-at=2", "rate=1", "delay-ms=3600000",
		"endless", "lost=stall"};
	struct in_background b[TEST_COUNT(rules)];
	struct s3c_text text[TEST_COUNT(rules)] = {{0}};

	(void)state;
	s3c_start(&(struct s3_server_options){0});
	assert_true(s3_server_put(s3c_server, "k", "0123456789", 10));
	for (unsigned i = 0; i < TEST_COUNT(rules); i++) {
		char *line = test_format("times=1 %s", rules[i]);

		s3c_rule(line);
		free(line);
		begin_get(&b[i], &text[i]);
	}
	assert_true(s3_server_await_held(s3c_server, 1));
	s3_server_down(s3c_server);
	for (unsigned i = 0; i < TEST_COUNT(rules); i++) {
		end_get(&b[i]);
		free(text[i].data);
	}
	assert_int_equal(s3c_simple("GET", "/bucket/k"), 0);
	assert_true(s3_server_up(s3c_server));
	s3_server_clear_rules(s3c_server);
	assert_int_equal(s3c_simple("GET", "/bucket/k"), 200);
}

/* ---- Connections and records ---- */

static void connections_are_counted_and_closed(void **state)
{
	struct s3_server_request request;
	struct s3_server_counts counts;
	uint64_t before;

	(void)state;
	s3c_start(&(struct s3_server_options){.requests_per_connection = 3});
	assert_true(s3_server_put(s3c_server, "k", "0123456789", 10));
	for (unsigned i = 0; i < 7; i++)
		assert_int_equal(s3c_simple("GET", "/bucket/k"), 200);
	s3_server_count(s3c_server, &counts);
	assert_int_equal(counts.connections, 3);
	assert_int_equal(counts.requests, 7);
	assert_int_equal(s3_server_seen(s3c_server, S3_OP_GET), 7);
	assert_int_equal(counts.bytes_out, 70);
	assert_true(s3_server_request(s3c_server, S3_OP_GET, 0, &request));
	before = request.connection;
	s3_server_request_free(&request);
	assert_true(s3_server_close_idle(s3c_server, false) >= 1);
	assert_int_equal(s3c_simple("GET", "/bucket/k"), 200);
	assert_true(s3_server_request(s3c_server, S3_OP_GET, 0, &request));
	assert_int_not_equal(request.connection, before);
	s3_server_request_free(&request);
	/* One that it has closed before may still be going away. */
	assert_true(s3_server_close_idle(s3c_server, true) >= 1);
	assert_int_equal(s3c_simple("GET", "/bucket/k"), 200);
	s3_server_forget(s3c_server);
	assert_int_equal(s3_server_seen(s3c_server, S3_OP_GET), 0);
	assert_false(s3_server_request(s3c_server, 0, 0, &request));
}

static void requests_are_remembered_as_they_came(void **state)
{
	struct s3_server_request request;
	char value[64];

	(void)state;
	s3c_start(&(struct s3_server_options){.keep_requests = 2});
	assert_int_equal(s3c_put("/bucket/a%2Bb?x=1", "12345", "X-Amz-Meta-Thing:  a  b "), 200);
	assert_int_equal(s3c_simple("GET", "/bucket/nothing"), 404);
	assert_true(s3_server_request(s3c_server, 0, 1, &request));
	assert_int_equal(request.op, S3_OP_PUT);
	assert_string_equal(request.method, "PUT");
	assert_string_equal(request.uri, "/bucket/a%2Bb?x=1");
	assert_string_equal(request.key, "a+b");
	assert_int_equal(request.body_bytes, 5);
	assert_int_equal(request.status, 200);
	assert_string_equal(s3_server_header(&request, "x-amz-meta-thing", value, sizeof(value)),
			    "a  b");
	assert_int_equal(s3_server_header_count(&request, "host"), 1);
	assert_null(s3_server_header(&request, "x-amz-meta-other", value, sizeof(value)));
	s3_server_request_free(&request);
	assert_int_equal(s3c_simple("HEAD", "/bucket/nothing"), 404);
	assert_false(s3_server_request(s3c_server, S3_OP_PUT, 0, &request));
	assert_true(s3_server_request(s3c_server, S3_OP_HEAD, 0, &request));
	assert_int_equal(request.status, 404);
	s3_server_request_free(&request);
}

static void scripts_set_rules_and_read_counts(void **state)
{
	struct s3c_call c = {.method = "PUT",
			     .path = "/.server/rules",
			     .body = "ops=get status=500 code=Oops\n\nops=head status=501\n"};

	(void)state;
	s3c_start(&(struct s3_server_options){.access_key = "k", .secret_key = "s"});
	assert_int_equal(s3c_run(&c), 200);
	assert_int_equal(s3c_simple("GET", "/bucket/k"), 500);
	assert_int_equal(s3c_simple("HEAD", "/bucket/k"), 501);
	c.body = "ops=frobnicate\n";
	assert_int_equal(s3c_run(&c), 400);
	assert_says(c.data, "unknown operation");
	s3c_forget(&c);
	c = (struct s3c_call){.method = "GET", .path = "/.server/counts"};
	assert_int_equal(s3c_run(&c), 200);
	assert_says(c.data, "\nget 1\nhead 1\n");
	assert_int_equal(s3c_simple("DELETE", "/.server/rules"), 200);
	assert_int_equal(s3c_simple("GET", "/bucket/k"), 403);
	assert_int_equal(s3c_simple("DELETE", "/.server/counts"), 200);
	assert_int_equal(s3_server_seen(s3c_server, S3_OP_GET), 0);
	s3c_forget(&c);
}

/* ---- TLS and addresses ---- */

static void tls_is_spoken_with_certificates_of_each_kind(void **state)
{
	static const struct {
		enum s3_server_certificate kind;
		CURLcode code;
	} cases[] = {{S3_CERT_GOOD, CURLE_OK},
		     {S3_CERT_OTHER_NAME, CURLE_PEER_FAILED_VERIFICATION},
		     {S3_CERT_EXPIRED, CURLE_PEER_FAILED_VERIFICATION}};

	(void)state;
	for (size_t i = 0; i < TEST_COUNT(cases); i++) {
		char *ca, *certificate, *key;
		struct curl_blob blob = {.flags = CURL_BLOB_COPY};
		struct s3c_text into = {0};

		assert_true(s3_server_certify("127.0.0.1", cases[i].kind, &ca, &certificate, &key));
		s3c_start(&(struct s3_server_options){.certificate = certificate,
						      .certificate_key = key});
		assert_true(s3_server_put(s3c_server, "k", "over TLS", 8));
		assert_false(
			s3_server_add_rule(s3c_server, &(struct s3_server_rule){.http10 = true}));
		blob.data = ca;
		blob.len = strlen(ca);
		curl_easy_reset(s3c_easy);
		{
			char *url = test_format("%s/bucket/k", s3_server_url(s3c_server));

			curl_easy_setopt(s3c_easy, CURLOPT_URL, url);
			free(url);
		}
		curl_easy_setopt(s3c_easy, CURLOPT_CAINFO_BLOB, &blob);
		curl_easy_setopt(s3c_easy, CURLOPT_WRITEFUNCTION, s3c_gather);
		curl_easy_setopt(s3c_easy, CURLOPT_WRITEDATA, &into);
		assert_int_equal(curl_easy_perform(s3c_easy), cases[i].code);
		if (!cases[i].code)
			assert_string_equal(into.data, "over TLS");
		free(into.data);
		free(ca);
		free(certificate);
		free(key);
		s3_server_stop(s3c_server);
		s3c_server = NULL;
	}
}

static void a_deaf_port_never_answers(void **state)
{
	int fd, fill;
	unsigned port = s3_server_deaf_port(&fd, &fill);
	char *url;

	(void)state;
	assert_int_not_equal(port, 0);
	url = test_format("http://127.0.0.1:%u/", port);
	curl_easy_reset(s3c_easy);
	curl_easy_setopt(s3c_easy, CURLOPT_URL, url);
	curl_easy_setopt(s3c_easy, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(s3c_easy, CURLOPT_CONNECTTIMEOUT_MS, 100L);
	assert_int_equal(curl_easy_perform(s3c_easy), CURLE_OPERATION_TIMEDOUT);
	close(fd);
	close(fill);
	free(url);
}

int main(void)
{
	const struct CMUnitTest cases[] = {
		S3C_CASE(rules_answer_in_place_of_the_server),
		S3C_CASE(answers_are_broken_byte_by_byte),
		S3C_CASE(lost_answers_have_been_acted_upon),
		S3C_CASE(requests_are_held_until_they_are_released),
		S3C_CASE(what_is_held_ends_with_the_server),
		S3C_CASE(connections_are_counted_and_closed),
		S3C_CASE(requests_are_remembered_as_they_came),
		S3C_CASE(scripts_set_rules_and_read_counts),
		S3C_CASE(tls_is_spoken_with_certificates_of_each_kind),
		S3C_CASE(a_deaf_port_never_answers),
	};

	curl_global_init(CURL_GLOBAL_DEFAULT);
	return cmocka_run_group_tests_name("s3_server_faults", cases, NULL, NULL);
}
