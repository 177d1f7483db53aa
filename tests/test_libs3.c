/* SPDX-License-Identifier: Apache-2.0 */
/* The module on libs3 and servers that lie, fail and hang. libs3 takes much of that for success. */
#include "libs3_scene.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define MIB	     (UINT64_C(1) << 20)
#define OBJECT_BYTES UINT64_C(300000)

/* ---- GET ---- */

static void a_body_that_is_cut_off_is_no_success(void **state)
{
	static const struct {
		const char *rule;
		int error;
	} cases[] = {
		{"ops=get times=1 cut=fin cut-at=1000", KVT_EPROTO},
		{"ops=get times=1 cut=fin cut-at=0", KVT_EPROTO},
		{"ops=get times=1 cut=fin cut-at=99999", KVT_EPROTO},
		{"ops=get times=1 cut=fin cut-at=50000 no-length", KVT_EPROTO},
		{"ops=get times=1 cut=fin cut-at=50000 chunked", KVT_EPROTO},
		{"ops=get times=1 cut=rst cut-at=50000", KVT_ENET},
		/* libcurl asks again by itself on a connection that had been used before. */
		{"ops=get times=1 lost=fin", 0},
		{"ops=get times=1 lost=rst", 0},
	};
	struct libs3_scene *s = *state;
	char detail[256];

	assert_int_equal(libs3_put(s, "k", OBJECT_BYTES, 1, NULL), 0);
	for (size_t i = 0; i < TEST_COUNT(cases); i++) {
		int error;

		libs3_rule(s, cases[i].rule);
		error = libs3_get(s, "k", OBJECT_BYTES, 1, 5000, 100000, detail);
		if (error != cases[i].error)
			fail_msg("%s: %s: %s", cases[i].rule, testhost_code(error), detail);
		if (error)
			assert_non_null(strstr(detail, "p/k of bucket at 127.0.0.1:"));
		assert_int_equal(libs3_get(s, "k", OBJECT_BYTES, 1, 5000, 100000, NULL), 0);
	}
	assert_int_equal(s3_server_rule_hits(s->server), TEST_COUNT(cases));
}

static void a_range_that_is_ignored_brings_no_byte_too_many(void **state)
{
	struct libs3_scene *s = *state;
	char detail[256];

	assert_int_equal(libs3_put(s, "k", OBJECT_BYTES, 1, NULL), 0);
	libs3_rule(s, "ops=get times=3 whole");
	for (int i = 0; i < 2; i++) {
		assert_int_equal(libs3_get(s, "k", OBJECT_BYTES, 1, 5000, 50, detail), KVT_EPROTO);
		assert_non_null(strstr(detail, "Range was ignored"));
	}
	/* The whole object is what was asked for. */
	assert_int_equal(libs3_get(s, "k", OBJECT_BYTES, 1, 0, OBJECT_BYTES, NULL), 0);
	assert_int_equal(s3_server_rule_hits(s->server), 3);
	/* Without a length to go by, the bytes themselves tell. */
	libs3_rule(s, "ops=get times=1 whole no-length");
	assert_int_equal(libs3_get(s, "k", OBJECT_BYTES, 1, 5000, 50, detail), KVT_EPROTO);
	libs3_rule(s, "ops=get times=1 no-length extra-bytes=9");
	assert_int_equal(libs3_get(s, "k", OBJECT_BYTES, 1, 5000, 50, detail), KVT_EPROTO);
}

static void a_range_of_our_objects_costs_one_request(void **state)
{
	struct libs3_scene *s = *state;

	assert_int_equal(libs3_put(s, "k", OBJECT_BYTES, 1, NULL), 0);
	s3_server_forget(s->server);
	for (int i = 0; i < 5; i++)
		assert_int_equal(libs3_get(s, "k", OBJECT_BYTES, 1, i * 1000, 100, NULL), 0);
	assert_int_equal(s3_server_seen(s->server, S3_OP_GET), 5);
	assert_int_equal(s3_server_seen(s->server, S3_OP_HEAD), 0);
}

static void objects_of_other_clients_cost_one_head_more(void **state)
{
	struct libs3_scene *s = *state;
	uint8_t *data = malloc(OBJECT_BYTES);

	assert_non_null(data);
	for (unsigned seed = 1; seed < 3; seed++) {
		test_fill(data, OBJECT_BYTES, seed);
		assert_true(s3_server_put(s->server, "p/k", data, OBJECT_BYTES));
		s3_server_forget(s->server);
		for (int i = 0; i < 5; i++)
			assert_int_equal(libs3_get(s, "k", OBJECT_BYTES, seed, i * 1000, 100, NULL),
					 0);
		assert_int_equal(s3_server_seen(s->server, S3_OP_GET), 5);
		assert_int_equal(s3_server_seen(s->server, S3_OP_HEAD), 1);
	}
	free(data);
}

static void a_condition_on_the_version_is_kept_even_if_the_server_ignores_it(void **state)
{
	struct libs3_scene *s = *state;
	struct kvt_object_info info;
	struct libs3_request r = {0};

	assert_int_equal(libs3_put(s, "k", 1000, 1, NULL), 0);
	assert_int_equal(testsession_head(&s->ts, "k", &info), 0);
	r.t.io.flags = KVT_IO_IF_VERSION;
	r.t.io.if_version = &info.version;
	assert_int_equal(libs3_run(s, &r, KVT_IO_GET, "k", 100, 0), 0);
	/* The answer shows another ETag than the one that If-Match asked for, and HEAD the old one:
	 * there is no telling which is right. */
	libs3_rule(s, "ops=get etag=\"\\\"other\\\"\"");
	r = (struct libs3_request){0};
	r.t.io.flags = KVT_IO_IF_VERSION;
	r.t.io.if_version = &info.version;
	assert_int_equal(libs3_run(s, &r, KVT_IO_GET, "k", 100, 0), KVT_EBUSY);
	s3_server_clear_rules(s->server);
	assert_int_equal(libs3_put(s, "k", 1000, 2, NULL), 0);
	r = (struct libs3_request){0};
	r.t.io.flags = KVT_IO_IF_VERSION;
	r.t.io.if_version = &info.version;
	assert_int_equal(libs3_run(s, &r, KVT_IO_GET, "k", 100, 0), KVT_EPRECOND);
	assert_int_equal(r.t.io.info.object_bytes, 1000);
}

static void an_answer_without_an_etag_is_refused(void **state)
{
	static const char *const rules[] = {"ops=get times=1 without=ETag",
					    "ops=get times=1 lower-case"};
	struct libs3_scene *s = *state;
	char detail[256];

	assert_int_equal(libs3_put(s, "k", 1000, 1, NULL), 0);
	for (size_t i = 0; i < TEST_COUNT(rules); i++) {
		libs3_rule(s, rules[i]);
		assert_int_equal(libs3_get(s, "k", 1000, 1, 0, 1000, detail), KVT_EPROTO);
		assert_non_null(strstr(detail, "no ETag"));
	}
	libs3_rule(s, "ops=head times=1 without=ETag");
	assert_int_equal(testsession_head(&s->ts, "k", NULL), KVT_EPROTO);
	assert_int_equal(libs3_get(s, "k", 1000, 1, 0, 1000, NULL), 0);
}

/* ---- PUT ---- */

static void a_put_that_is_refused_without_a_word_is_no_success(void **state)
{
	static const char *const rules[] = {
		"ops=put status=403 body=\"\"", "ops=put status=500 body=\"\"",
		"ops=put status=503 body=\"\"", "ops=put status=502 body=\"\""};
	struct libs3_scene *s = *state;
	char detail[256];

	for (size_t i = 0; i < TEST_COUNT(rules); i++) {
		/* Nothing is there, nor anything afterwards. */
		libs3_rule(s, rules[i]);
		assert_true(libs3_put(s, "none", 1000, 1, detail) < 0);
		assert_non_null(strstr(detail, "p/none of bucket at "));
		assert_false(s3_server_has(s->server, "p/none"));
		/* An object of the same length is there, and stays. */
		s3_server_clear_rules(s->server);
		assert_int_equal(libs3_put(s, "old", 1000, 7, NULL), 0);
		libs3_rule(s, rules[i]);
		assert_true(libs3_put(s, "old", 1000, 8, detail) < 0);
		libs3_expect(s, "old", 1000, 7);
		s3_server_clear_rules(s->server);
		assert_int_equal(libs3_put(s, "old", 1000, 8, NULL), 0);
		libs3_expect(s, "old", 1000, 8);
	}
}

static void one_refusal_without_a_word_does_not_fail_a_put(void **state)
{
	struct libs3_scene *s = *state;

	libs3_rule(s, "ops=put times=1 status=500 body=\"\"");
	assert_int_equal(libs3_put(s, "k", 2 * MIB, 1, NULL), 0);
	assert_int_equal(s3_server_rule_hits(s->server), 1);
	libs3_expect(s, "k", 2 * MIB, 1);
}

static void a_put_whose_answer_is_lost_has_happened(void **state)
{
	static const char *const rules[] = {"ops=put times=1 lost=fin", "ops=put times=1 lost=rst"};
	struct libs3_scene *s = *state;

	for (size_t i = 0; i < TEST_COUNT(rules); i++) {
		char name[16];

		snprintf(name, sizeof(name), "k%zu", i);
		libs3_rule(s, rules[i]);
		assert_int_equal(libs3_put(s, name, OBJECT_BYTES, i + 1, NULL), 0);
		libs3_expect(s, name, OBJECT_BYTES, i + 1);
		/* That it was stored once is what HEAD found out. */
		assert_int_equal(s3_server_seen(s->server, S3_OP_PUT), i + 1);
	}
}

/* A body whose last 4 KiB exist once all before them have been read. */
struct tail {
	uint64_t told;
	unsigned rewinds, fills;
	bool broken;
};

static void on_progress(struct kvt_io *io, uint64_t bytes)
{
	struct tail *tail = io->owner;
	const struct kvt_iovec *last = &io->iov[io->iov_count - 1];

	tail->rewinds += bytes == 0;
	tail->broken |= bytes != 0 && bytes < tail->told;
	tail->told = bytes;
	if (bytes == io->length - last->iov_len) {
		memset(last->iov_base, 'z', (size_t)last->iov_len);
		tail->fills++;
	}
}

static void a_put_that_is_done_again_rewinds_and_has_the_same_tail(void **state)
{
	static uint8_t memory[600000 + 4096];
	struct libs3_scene *s = *state;
	struct kvt_iovec iov[2] = {{memory, 600000}, {memory + 600000, 4096}};
	struct tail tail = {0};
	struct testio t = {.io = {.op = KVT_IO_PUT,
				  .flags = KVT_IO_LATE_TAIL,
				  .name = "k",
				  .iov = iov,
				  .iov_count = 2,
				  .length = sizeof(memory),
				  .object_bytes = sizeof(memory),
				  .progress = on_progress}};
	uint8_t *data;
	uint64_t bytes;

	test_fill(memory, 600000, 5);
	libs3_rule(s, "ops=put times=2 status=503 body=\"\"");
	assert_int_equal(testio_prepare(&t, &s->ts), 0);
	t.io.owner = &tail;
	testio_submit(&t);
	assert_int_equal(t.io.result, 0);
	testio_release(&t);
	assert_int_equal(tail.rewinds, 2);
	assert_int_equal(tail.fills, 3);
	assert_int_equal(tail.told, 600000);
	assert_false(tail.broken);
	data = s3_server_get(s->server, "p/k", &bytes);
	assert_non_null(data);
	assert_int_equal(bytes, sizeof(memory));
	assert_memory_equal(data, memory, sizeof(memory));
	free(data);
}

static void an_upload_that_is_cut_off_leaves_nothing(void **state)
{
	static const char *const rules[] = {"ops=put times=1 upload-cut=fin upload-at=100000",
					    "ops=put times=1 upload-cut=rst upload-at=100000"};
	struct libs3_scene *s = *state;
	struct sigaction old, kills = {.sa_handler = SIG_DFL};

	/* A connection that has gone kills nobody. */
	assert_int_equal(sigaction(SIGPIPE, &kills, &old), 0);
	for (size_t i = 0; i < TEST_COUNT(rules); i++) {
		libs3_rule(s, rules[i]);
		assert_int_equal(libs3_put(s, "k", 4 * MIB, 1, NULL), KVT_ENET);
		assert_false(s3_server_has(s->server, "p/k"));
	}
	assert_int_equal(sigaction(SIGPIPE, &old, NULL), 0);
	assert_int_equal(libs3_put(s, "k", 4 * MIB, 1, NULL), 0);
}

/* A server as old ones are: no "100 Continue", and one connection for each answer. It takes one PUT
 * and shows it to HEAD. */
struct old_server {
	pthread_t thread;
	int listener;
	char mark[128]; /* header line */
	uint64_t received;
	unsigned puts, heads;
};

static void old_answer(struct old_server *server, int fd)
{
	char head[8192], answer[512], *body = NULL, *mark;
	size_t used = 0;
	ssize_t n = 1;
	uint64_t length, got;

	while (!body && used + 1 < sizeof(head) &&
	       (n = recv(fd, head + used, sizeof(head) - 1 - used, 0)) > 0) {
		used += (size_t)n;
		head[used] = 0;
		body = strstr(head, "\r\n\r\n");
	}
	if (!body)
		return;
	body += 4;
	if (!strncmp(head, "PUT ", 4)) {
		char *field = strstr(head, "Content-Length: ");

		length = field ? strtoull(field + 16, NULL, 10) : 0;
		mark = strstr(head, "x-amz-meta-kvtier-put:");
		if (mark)
			snprintf(server->mark, sizeof(server->mark), "%.*s",
				 (int)strcspn(mark, "\r"), mark);
		for (got = used - (size_t)(body - head); got < length; got += (uint64_t)n) {
			n = recv(fd, head, sizeof(head), 0);
			if (n <= 0)
				return;
		}
		server->received = got;
		server->puts++;
		snprintf(answer, sizeof(answer),
			 "HTTP/1.1 200 OK\r\nETag: \"e\"\r\nContent-Length: 0\r\nConnection: "
			 "close\r\n\r\n");
	} else {
		server->heads++;
		snprintf(answer, sizeof(answer),
			 "HTTP/1.1 200 OK\r\nETag: \"e\"\r\nContent-Length: %llu\r\n%s\r\n"
			 "Connection: close\r\n\r\n",
			 (unsigned long long)server->received, server->mark);
	}
	(void)send(fd, answer, strlen(answer), MSG_NOSIGNAL);
}

static void *old_serve(void *context)
{
	struct old_server *server = context;
	int fd;

	/* Until the listener is shut down. */
	while ((fd = accept(server->listener, NULL, NULL)) >= 0) {
		old_answer(server, fd);
		shutdown(fd, SHUT_WR);
		close(fd);
	}
	return NULL;
}

static void a_put_without_100_continue_is_found_to_be_there(void **state)
{
	struct sockaddr_in address = {.sin_family = AF_INET,
				      .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t size = sizeof(address);
	struct libs3_scene *s = *state, old = {0};
	struct old_server server = {.listener = socket(AF_INET, SOCK_STREAM, 0)};
	struct kvt_option_value options[3];

	assert_true(server.listener >= 0);
	assert_int_equal(bind(server.listener, (struct sockaddr *)&address, size), 0);
	assert_int_equal(listen(server.listener, 8), 0);
	assert_int_equal(getsockname(server.listener, (struct sockaddr *)&address, &size), 0);
	assert_int_equal(pthread_create(&server.thread, NULL, old_serve, &server), 0);
	snprintf(old.url, sizeof(old.url), "http://127.0.0.1:%u", ntohs(address.sin_port));
	memcpy(options, s->options, sizeof(options));
	options[0].value = old.url;
	testhost_init(&old.th);
	assert_int_equal(testbackend_open(&old.tb, &old.th,
					  &(struct testbackend_options){.ops = libs3_ops,
									.location = "//bucket/p",
									.options = options,
									.option_count = 3}),
			 0);
	assert_int_equal(testsession_open(&old.ts, &old.tb, 1, 0), 0);
	assert_int_equal(libs3_put(&old, "k", 70000, 1, NULL), 0);
	testsession_close(&old.ts);
	testbackend_close(&old.tb);
	shutdown(server.listener, SHUT_RDWR);
	assert_int_equal(pthread_join(server.thread, NULL), 0);
	close(server.listener);
	assert_int_equal(server.received, 70000);
	assert_int_equal(server.puts, 1);
	assert_int_equal(server.heads, 1);
}

static void a_put_that_the_server_shortens_is_no_success(void **state)
{
	struct libs3_scene *s = *state;
	char detail[256];

	/* HEAD shows another length than was sent. */
	libs3_rule(s, "ops=head times=1 wrong-length said-length=999");
	assert_int_equal(libs3_put(s, "k", 1000, 1, detail), KVT_EPROTO);
	assert_non_null(strstr(detail, "another number of bytes"));
}

/* ---- Errors by name ---- */

static void errors_of_the_server_are_told_apart(void **state)
{
	static const struct {
		unsigned status;
		const char *code;
		int error;
	} cases[] = {
		{503, "SlowDown", KVT_ETHROTTLED},
		{503, "ServiceUnavailable", KVT_ESERVER}, /* which libs3 does not know */
		{500, "InternalError", KVT_ESERVER},
		{429, "TooManyRequests", KVT_ESERVER},
		{403, "AccessDenied", KVT_EACCES},
		{403, "SignatureDoesNotMatch", KVT_EAUTH},
		{403, "InvalidAccessKeyId", KVT_EAUTH},
		{403, "RequestTimeTooSkewed", KVT_ECONFIG},
		{400, "ExpiredToken", KVT_EAUTH},
		{404, "NoSuchBucket", KVT_ECONFIG},
		{400, "RequestTimeout", KVT_ENET},
		{409, "OperationAborted", KVT_EBUSY},
		{501, "NotImplemented", KVT_ENOTSUP},
	};
	struct libs3_scene *s = *state;
	char rule[160], detail[256];

	for (size_t i = 0; i < TEST_COUNT(cases); i++) {
		int error;

		snprintf(rule, sizeof(rule),
			 "ops=put times=1 status=%u code=%s message=\"in so many words\"",
			 cases[i].status, cases[i].code);
		libs3_rule(s, rule);
		error = libs3_put(s, "k", 1000, 1, detail);
		if (error != cases[i].error)
			fail_msg("%s: %s: %s", cases[i].code, testhost_code(error), detail);
		assert_non_null(strstr(detail, "put p/k of bucket at 127.0.0.1:"));
		assert_non_null(strstr(detail, "in so many words"));
		assert_null(strstr(detail, "secret"));
		assert_false(s3_server_has(s->server, "p/k"));
	}
	libs3_rule(s, "ops=get times=1 status=503 code=SlowDown");
	assert_int_equal(libs3_put(s, "k", 1000, 1, NULL), 0);
	assert_int_equal(libs3_get(s, "k", 1000, 1, 0, 1000, detail), KVT_ETHROTTLED);
	assert_non_null(strstr(detail, "ErrorSlowDown"));
	libs3_rule(s, "ops=head times=1 status=403");
	assert_int_equal(testsession_head(&s->ts, "k", NULL), KVT_EACCES);
	libs3_rule(s, "ops=delete times=1 status=403 code=AccessDenied");
	assert_int_equal(testsession_remove(&s->ts, "k", NULL), KVT_EACCES);
	assert_true(s3_server_has(s->server, "p/k"));
}

static void a_server_that_is_not_there_is_a_network_failure(void **state)
{
	struct libs3_scene *s = *state;

	s3_server_down(s->server);
	assert_int_equal(libs3_put(s, "k", 1000, 1, NULL), KVT_ENET);
	assert_int_equal(libs3_get(s, "k", 1000, 1, 0, 10, NULL), KVT_ENET);
	assert_int_equal(testsession_head(&s->ts, "k", NULL), KVT_ENET);
	assert_true(s3_server_up(s->server));
	assert_int_equal(libs3_put(s, "k", 1000, 1, NULL), 0);
	assert_int_equal(libs3_get(s, "k", 1000, 1, 0, 10, NULL), 0);
}

static void a_connection_that_the_server_closed_meanwhile_is_replaced(void **state)
{
	struct libs3_scene *s = *state;

	for (int i = 0; i < 6; i++) {
		assert_int_equal(libs3_put(s, "k", 70000, 1, NULL), 0);
		(void)s3_server_close_idle(s->server, i % 2);
		assert_int_equal(libs3_get(s, "k", 70000, 1, 100, 1000, NULL), 0);
		(void)s3_server_close_idle(s->server, i % 2);
	}
}

/* ---- Deadlines ---- */

static int run_until(struct libs3_scene *s, uint32_t op, int64_t ms)
{
	struct libs3_request r = {.memory = malloc(100000)};
	int result;

	assert_non_null(r.memory);
	test_fill(r.memory, 100000, 1);
	r.t.io.deadline_ns = s->th.host.now_ns() + ms * 1000000;
	result = libs3_run(s, &r, op, "k", 100000, 0);
	free(r.memory);
	return result;
}

static void a_deadline_ends_what_hangs_and_the_session_works_on(void **state)
{
	static const struct {
		const char *rule;
		uint32_t op;
	} cases[] = {
		{"ops=get hang", KVT_IO_GET},
		{"ops=get cut=stall cut-at=40000", KVT_IO_GET},
		{"ops=get rate=1000", KVT_IO_GET},
		{"ops=put hang", KVT_IO_PUT},
		{"ops=put upload-cut=stall upload-at=0", KVT_IO_PUT},
		{"ops=head hang", KVT_IO_PUT},
	};
	struct libs3_scene *s = *state;

	assert_int_equal(libs3_put(s, "k", 100000, 1, NULL), 0);
	for (size_t i = 0; i < TEST_COUNT(cases); i++) {
		libs3_rule(s, cases[i].rule);
		/* Longer each time, until the server has had the request before its deadline. */
		for (int64_t ms = 200; !s3_server_rule_hits(s->server); ms *= 2) {
			int64_t began_ns = s->th.host.now_ns();

			assert_int_equal(run_until(s, cases[i].op, ms), KVT_ETIMEDOUT);
			assert_true(s->th.host.now_ns() - began_ns >= ms * 1000000);
		}
		s3_server_clear_rules(s->server);
		assert_int_equal(libs3_put(s, "k", 100000, 1, NULL), 0);
		assert_int_equal(libs3_get(s, "k", 100000, 1, 10, 1000, NULL), 0);
	}
}

/* ---- Objects in parts ---- */

static void an_object_larger_than_the_limit_is_refused_at_its_beginning(void **state)
{
	struct libs3_scene *s = *state;
	struct testio t = {.io = {.op = KVT_IO_BEGIN,
				  .name = "k",
				  .object_bytes = s->tb.limits.max_object_bytes + 1}};

	assert_int_equal(testsession_run(&s->ts, &t), KVT_EINVAL);
	assert_non_null(strstr(t.detail, "max_object_bytes"));
	assert_null(t.io.handle);
}

static void a_commit_outlives_a_server_that_is_too_busy(void **state)
{
	struct libs3_scene *s = *state;
	struct testio t = {.io = {.op = KVT_IO_BEGIN, .name = "k", .object_bytes = 70000}};
	struct libs3_request r = {.memory = malloc(70000)};

	assert_non_null(r.memory);
	test_fill(r.memory, 70000, 3);
	assert_int_equal(testsession_run(&s->ts, &t), 0);
	r.t.io.handle = t.io.handle;
	assert_int_equal(libs3_run(s, &r, KVT_IO_PART, "k", 70000, 0), 0);
	assert_int_equal(s3_server_seen(s->server, S3_OP_PUT), 0);
	libs3_rule(s, "ops=put times=2 status=503 code=SlowDown");
	t = (struct testio){.io = {.op = KVT_IO_COMMIT,
				   .name = "k",
				   .object_bytes = 70000,
				   .handle = t.io.handle}};
	assert_int_equal(testsession_run(&s->ts, &t), 0);
	libs3_expect(s, "k", 70000, 3);
	free(r.memory);
}

/* ---- Listings ---- */

static int count_name(struct kvt_io *io, const struct kvt_list_item *item)
{
	unsigned *seen = io->owner;
	unsigned long number;
	char *end;

	if (strncmp(item->name, "n/", 2) != 0)
		return 77;
	number = strtoul(item->name + 2, &end, 10);
	if (number >= 100 || *end || item->info.object_bytes != 10 || !item->info.version.bytes)
		return 77;
	seen[number]++;
	return 0;
}

static void a_listing_that_is_cut_off_goes_on(void **state)
{
	struct libs3_scene *s = *state;
	unsigned seen[100] = {0};
	char token[2048] = "";
	struct testio t;
	unsigned pages = 0;

	for (unsigned i = 0; i < 100; i++) {
		char name[16];

		snprintf(name, sizeof(name), "n/%03u", i);
		assert_int_equal(libs3_put(s, name, 10, i + 1, NULL), 0);
	}
	/* What other software leaves in the bucket is none of ours. */
	assert_true(s3_server_put(s->server, "p/n/", "", 0));
	assert_true(s3_server_put(s->server, "p/n//x", "0123456789", 10));
	assert_true(s3_server_put(s->server, "p/n/../x", "0123456789", 10));
	assert_true(s3_server_put(s->server, "p/.kvtier/x", "0123456789", 10));
	libs3_rule(s, "ops=list times=3 cut=fin cut-at=6000");
	do {
		t = (struct testio){.io = {.op = KVT_IO_LIST,
					   .name = "",
					   .list_item = count_name,
					   .list_token = token,
					   .list_token_bytes = sizeof(token),
					   .list_max = 1000,
					   .owner = seen}};
		/* The completion is not called by a blocking backend: the owner is ours. */
		assert_int_equal(testio_prepare(&t, &s->ts), 0);
		t.io.owner = seen;
		testio_submit(&t);
		assert_int_equal(t.io.result, 0);
		testio_release(&t);
		assert_true(++pages < 20);
	} while (*token);
	for (unsigned i = 0; i < 100; i++)
		assert_int_equal(seen[i], 1);
	assert_int_equal(s3_server_rule_hits(s->server), 3);
}

/* ---- The process ---- */

static void descriptors_beyond_what_select_knows_work(void **state)
{
	struct libs3_scene *s = *state;
	struct rlimit limit, more;
	struct testsession ts;
	int fds[1100], count = 0, last = 0;
	uint8_t back[1000];

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	more = limit;
	more.rlim_cur = more.rlim_max < 4096 ? more.rlim_max : 4096;
	if (more.rlim_cur < 1400 || setrlimit(RLIMIT_NOFILE, &more) != 0) {
		print_message("  skipped: no more than %lu descriptors\n",
			      (unsigned long)limit.rlim_max);
		skip();
	}
	for (; count < 1100; count++) {
		last = open("/dev/null", O_RDONLY);
		assert_true(last >= 0);
		fds[count] = last;
	}
	assert_true(last >= FD_SETSIZE);
	assert_int_equal(testsession_open(&ts, &s->tb, 1, 0), 0);
	assert_int_equal(testsession_put(&ts, "k", "0123456789", 10, 0, NULL, NULL), 0);
	assert_int_equal(testsession_get(&ts, "k", back, 10, 0, NULL), 0);
	assert_memory_equal(back, "0123456789", 10);
	testsession_close(&ts);
	while (count > 0)
		close(fds[--count]);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, libs3_set_up, libs3_tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(a_body_that_is_cut_off_is_no_success),
		CASE(a_range_that_is_ignored_brings_no_byte_too_many),
		CASE(a_range_of_our_objects_costs_one_request),
		CASE(objects_of_other_clients_cost_one_head_more),
		CASE(a_condition_on_the_version_is_kept_even_if_the_server_ignores_it),
		CASE(an_answer_without_an_etag_is_refused),
		CASE(a_put_that_is_refused_without_a_word_is_no_success),
		CASE(one_refusal_without_a_word_does_not_fail_a_put),
		CASE(a_put_whose_answer_is_lost_has_happened),
		CASE(a_put_that_is_done_again_rewinds_and_has_the_same_tail),
		CASE(a_put_without_100_continue_is_found_to_be_there),
		CASE(an_upload_that_is_cut_off_leaves_nothing),
		CASE(a_put_that_the_server_shortens_is_no_success),
		CASE(errors_of_the_server_are_told_apart),
		CASE(a_server_that_is_not_there_is_a_network_failure),
		CASE(a_connection_that_the_server_closed_meanwhile_is_replaced),
		CASE(a_deadline_ends_what_hangs_and_the_session_works_on),
		CASE(an_object_larger_than_the_limit_is_refused_at_its_beginning),
		CASE(a_commit_outlives_a_server_that_is_too_busy),
		CASE(a_listing_that_is_cut_off_goes_on),
		CASE(libs3_ages_in_listings_do_not_depend_on_the_time_zone),
		CASE(descriptors_beyond_what_select_knows_work),
	};

	libs3_clear_environment();
	libs3_ops = libs3_load(LIBS3_PACKAGED);
	if (!libs3_ops)
		return 77;
	return cmocka_run_group_tests_name("libs3", tests, NULL, NULL);
}
