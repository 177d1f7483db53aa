/* SPDX-License-Identifier: Apache-2.0 */
/* Reading from S3 servers that do not answer as they should: what the result is, that no byte lands
 * where it must not, and that the next request is not spoilt. */
#include "s3_scene.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NAME   "ab/cd.bin"
#define BYTES  UINT64_C(200000) /* of the object; a body of that much is read to its end */
#define WANTED UINT64_C(65536)
#define AT     INT64_C(1000)
#define SEED   77u

static void forget(struct s3_scene *scene)
{
	s3_server_clear_rules(scene->server);
	s3_server_forget(scene->server);
}

/* One faulty answer to a GET, then a good one. */
struct fault {
	const char *rule;
	int result;
	const char *detail;
	uint64_t landed;
	bool closes; /* the connection cannot be used again */
};

static void check_fault(struct s3_scene *scene, const struct fault *f)
{
	uint64_t before;

	forget(scene);
	/* A known number of connections: one, unused so far, is made by this. */
	(void)s3_server_close_idle(scene->server, false);
	assert_int_equal(s3_scene_get(scene, NAME, 16, 0, SEED, NULL), 0);
	s3_server_forget(scene->server);
	s3_scene_rule(scene, "ops=get times=1 %s", f->rule);
	s3_scene_get(scene, NAME, WANTED, AT, SEED, NULL);
	s3_scene_expect(scene, f->rule, f->result, f->detail);
	if (f->result && scene->landed != f->landed)
		fail_msg("%s: %llu bytes landed", f->rule, (unsigned long long)scene->landed);
	if (f->result && !strstr(scene->detail, "/bucket/" S3_SCENE_KEY(NAME)))
		fail_msg("%s: no name in '%s'", f->rule, scene->detail);
	if (s3_scene_seen(scene, ~0u) != 1)
		fail_msg("%s: %llu requests", f->rule,
			 (unsigned long long)s3_scene_seen(scene, ~0u));
	if (s3_server_rule_hits(scene->server) != 1)
		fail_msg("%s: the rule did not act", f->rule);
	before = s3_scene_connections(scene);
	assert_int_equal(before, 0);
	if (s3_scene_get(scene, NAME, WANTED, AT, SEED, NULL))
		fail_msg("%s: and then: %s", f->rule, scene->detail);
	if (s3_scene_connections(scene) != (f->closes ? 1 : 0))
		fail_msg("%s: %llu new connections", f->rule,
			 (unsigned long long)s3_scene_connections(scene));
}

static void check_faults(struct s3_scene *scene, const struct fault *faults, size_t count)
{
	s3_scene_start(scene, 0);
	s3_scene_plant(scene, NAME, BYTES, SEED);
	for (size_t i = 0; i < count; i++)
		check_fault(scene, &faults[i]);
}

static void bodies_that_end_early_are_errors(void **state)
{
	static const struct fault faults[] = {
		{"cut=fin cut-at=1000", KVT_EPROTO, "HTTP 206", 1000, true},
		{"cut=rst cut-at=1000", KVT_ENET, "HTTP 206", 1000, true},
		{"cut=fin cut-at=0", KVT_EPROTO, "HTTP 206", 0, true},
		{"cut=fin cut-at=65535", KVT_EPROTO, "HTTP 206", 65535, true},
		{"no-length cut=fin cut-at=1000", KVT_EPROTO, "it ended early", 1000, true},
		{"http10 no-length cut=fin cut-at=9", KVT_EPROTO, "it ended early", 9, true},
		{"chunked cut=fin cut-at=1000", KVT_EPROTO, "HTTP 206", 1000, true},
		{"chunked cut=rst cut-at=1000", KVT_ENET, "HTTP 206", 1000, true},
	};

	check_faults(*state, faults, TEST_COUNT(faults));
}

static void answers_for_another_range_touch_nothing(void **state)
{
	static const struct fault faults[] = {
		{"whole", KVT_EPROTO, "the server ignored the range", 0, false},
		{"range=\"bytes 1000-2000/200000\"", KVT_EPROTO, "Content-Range is not what", 0,
		 false},
		{"range=\"bytes 0-65535/200000\"", KVT_EPROTO, "Content-Range is not what", 0,
		 false},
		{"range=\"bytes 1000-66536/200000\"", KVT_EPROTO, "Content-Range is not what", 0,
		 false},
		{"range=\"bytes 1000-66535/*\"", KVT_EPROTO, "no Content-Range with", 0, false},
		{"range=\"\"", KVT_EPROTO, "no Content-Range", 0, false},
		{"range=\"lines 1-2/3\"", KVT_EPROTO, "Content-Range makes no sense", 0, false},
		{"range=\"bytes 9-5/100\"", KVT_EPROTO, "Content-Range makes no sense", 0, false},
		{"range=\"bytes 1000-66535/66000\"", KVT_EPROTO, "Content-Range makes no sense", 0,
		 false},
		{"range=\"bytes 1000-66535/99999999999999999999\"", KVT_EPROTO,
		 "Content-Range makes no sense", 0, false},
		{"wrong-length said-length=100 close-silently", KVT_EPROTO,
		 "Content-Length contradicts", 0, true},
		{"wrong-length said-length=65537", KVT_EPROTO, "Content-Length contradicts", 0,
		 true},
	};

	check_faults(*state, faults, TEST_COUNT(faults));
}

static void more_bytes_than_were_asked_for_never_land(void **state)
{
	static const struct fault faults[] = {
		{"extra-bytes=9", 0, NULL, 0, true},
		{"extra-bytes=9 close-silently", 0, NULL, 0, true},
		{"extra-bytes=5000000", 0, NULL, 0, true},
		{"extra-bytes=9 no-length", KVT_EPROTO, "more bytes than", WANTED, true},
		{"extra-bytes=5000000 no-length", KVT_EPROTO, "more bytes than", WANTED, true},
		{"endless", 0, NULL, 0, true},
		{"endless no-length", KVT_EPROTO, "more bytes than", WANTED, true},
	};
	struct s3_scene *scene = *state;

	s3_scene_start(scene, 0);
	s3_scene_plant(scene, NAME, BYTES, SEED);
	for (size_t i = 0; i < TEST_COUNT(faults); i++) {
		const struct fault *f = &faults[i];

		forget(scene);
		s3_scene_rule(scene, "ops=get times=1 %s", f->rule);
		s3_scene_get(scene, NAME, WANTED, AT, SEED, NULL);
		s3_scene_expect(scene, f->rule, f->result, f->detail);
		/* How much of a body that is refused has landed depends on its pieces. */
		assert_true(scene->landed <= WANTED);
		assert_int_equal(s3_scene_seen(scene, ~0u), 1);
		if (s3_scene_get(scene, NAME, WANTED, AT, SEED, NULL))
			fail_msg("%s: and then: %s", f->rule, scene->detail);
	}
}

static void odd_but_right_answers_are_taken(void **state)
{
	static const struct fault faults[] = {
		{"no-length", 0, NULL, 0, true},
		{"chunked", 0, NULL, 0, true},
		{"lower-case", 0, NULL, 0, true},
		{"http10", 0, NULL, 0, true},
		{"http10 no-length", 0, NULL, 0, true},
		{"close", 0, NULL, 0, true},
		{"without=Last-Modified", 0, NULL, 0, false},
		{"etag=\"\"", 0, NULL, 0, false},
		{"headers=\"Content-Encoding: identity\\r\\n\"", 0, NULL, 0, false},
		{"headers=\"X-Long: 0123456789\\r\\nx-amz-version-id: null\\r\\n\"", 0, NULL, 0,
		 false},
		{"range=\"BYTES=1000-66535/200000\"", 0, NULL, 0, false},
		{"rate=2000000", 0, NULL, 0, false},
		{"delay-ms=1", 0, NULL, 0, false},
	};

	check_faults(*state, faults, TEST_COUNT(faults));
}

static void headers_without_an_etag_leave_the_version_unknown(void **state)
{
	struct s3_scene *scene = *state;

	s3_scene_start(scene, 0);
	s3_scene_plant(scene, NAME, BYTES, SEED);
	s3_scene_rule(scene, "ops=get times=1 etag=\"\" without=Last-Modified");
	assert_int_equal(s3_scene_get(scene, NAME, WANTED, AT, SEED, NULL), 0);
	assert_int_equal(scene->info.version.bytes, 0);
	assert_int_equal(scene->info.age_ns, -1);
	assert_int_equal(scene->info.object_bytes, BYTES);
	s3_scene_rule(scene, "ops=get times=1 lower-case");
	assert_int_equal(s3_scene_get(scene, NAME, WANTED, AT, SEED, NULL), 0);
	assert_int_equal(scene->info.version.bytes, 34);
	assert_true(scene->info.age_ns >= 0);
}

static void encoded_and_senseless_answers_are_refused(void **state)
{
	static const struct fault faults[] = {
		{"headers=\"Content-Encoding: gzip\\r\\n\"", KVT_EPROTO, "its bytes are encoded", 0,
		 false},
		{"header-bytes=400000", KVT_EPROTO, "100 KiB", 0, true},
		{"raw=\"220 ready\\r\\n\"", KVT_EPROTO, NULL, 0, true},
		{"raw=\"\"", KVT_EPROTO, NULL, 0, true},
		{"raw=\"HTTP/1.1 206 Partial Content\\r\\nContent-Len\"", KVT_EPROTO, NULL, 0,
		 true},
		{"status=204", KVT_EPROTO, "no answer to a read", 0, false},
		{"status=304", KVT_EPROTO, "HTTP 304", 0, false},
	};
	struct s3_scene *scene = *state;

	s3_scene_start(scene, 0);
	s3_scene_plant(scene, NAME, BYTES, SEED);
	for (size_t i = 0; i < TEST_COUNT(faults); i++) {
		const struct fault *f = &faults[i];

		forget(scene);
		/* A connection that breaks before an answer is no idle one here. */
		s3_scene_close(scene);
		s3_scene_open(scene);
		s3_scene_rule(scene, "ops=get times=1 %s", f->rule);
		s3_scene_get(scene, NAME, WANTED, AT, SEED, NULL);
		s3_scene_expect(scene, f->rule, f->result, f->detail);
		assert_int_equal(scene->landed, 0);
		assert_int_equal(s3_scene_seen(scene, ~0u), 1);
		if (s3_scene_get(scene, NAME, WANTED, AT, SEED, NULL))
			fail_msg("%s: and then: %s", f->rule, scene->detail);
	}
}

static void the_whole_of_a_large_object_is_not_read_for_a_range(void **state)
{
	struct s3_scene *scene = *state;
	struct s3_server_counts counts;

	s3_scene_start(scene, 0);
	s3_scene_plant(scene, NAME, 64 * S3_SCENE_MIB, SEED);
	s3_scene_rule(scene, "ops=get times=1 whole");
	s3_scene_get(scene, NAME, WANTED, AT, SEED, NULL);
	s3_scene_expect(scene, "whole", KVT_EPROTO, "the server ignored the range");
	assert_int_equal(scene->landed, 0);
	assert_int_equal(s3_scene_get(scene, NAME, WANTED, AT, SEED, NULL), 0);
	s3_server_count(scene->server, &counts);
	assert_int_equal(counts.connections, 2);
	/* All of the object in a 200 is as good as a 206. */
	s3_scene_plant(scene, "small.bin", WANTED, SEED);
	s3_scene_rule(scene, "ops=get times=1 whole");
	assert_int_equal(s3_scene_get(scene, "small.bin", WANTED, 0, SEED, NULL), 0);
	assert_int_equal(scene->info.object_bytes, WANTED);
	s3_scene_rule(scene, "ops=get times=1 whole");
	assert_int_equal(s3_scene_get(scene, "small.bin", WANTED, -(int64_t)WANTED, SEED, NULL), 0);
}

static void an_object_that_is_shorter_is_a_range_error_with_its_length(void **state)
{
	static const struct {
		uint64_t bytes, length;
		int64_t offset;
	} cases[] = {{100, 50, 100}, {100, 50, 80}, {100, 200, -200}, {100, 1, 4096}, {1, 2, 0}};
	struct s3_scene *scene = *state;

	s3_scene_start(scene, 0);
	for (unsigned bare = 0; bare < 2; bare++) {
		s3_server_set_traits(scene->server, bare ? S3_SERVER_BARE_416 : 0);
		for (size_t i = 0; i < TEST_COUNT(cases); i++) {
			char etag[80];

			s3_scene_plant(scene, NAME, cases[i].bytes, SEED);
			s3_scene_get(scene, NAME, cases[i].length, cases[i].offset, SEED, NULL);
			s3_scene_expect(scene, "short object", KVT_ERANGE, NULL);
			assert_int_equal(scene->info.object_bytes, cases[i].bytes);
			s3_server_etag(scene->server, S3_SCENE_KEY(NAME), etag);
			assert_int_equal(scene->info.version.bytes, strlen(etag));
			assert_memory_equal(scene->info.version.value, etag, strlen(etag));
		}
	}
	/* It grew between the answer and the question for its length. */
	s3_scene_plant(scene, NAME, 100, SEED);
	s3_server_forget(scene->server);
	s3_scene_rule(scene, "ops=head times=1 hold");
	{
		struct testio t = {.io = {.op = KVT_IO_GET, .name = NAME, .length = 8}};
		uint8_t data[8];
		struct kvt_iovec iov = {data, sizeof(data)};

		t.io.iov = &iov;
		t.io.iov_count = 1;
		t.io.offset = 100;
		assert_int_equal(testio_prepare(&t, &scene->ts), 0);
		assert_int_equal(testio_submit(&t), KVT_QUEUED);
		/* Until the HEAD is held nobody but this thread drives the session. */
		while (s3_scene_seen(scene, S3_OP_HEAD) == 0)
			(void)scene->tb.ops.poll(scene->ts.session,
						 scene->th.host.now_ns() + 1000000);
		assert_true(s3_server_await_held(scene->server, 1));
		s3_scene_plant(scene, NAME, 1000, SEED);
		s3_server_release(scene->server);
		assert_int_equal(testio_wait(&t), KVT_EPRECOND);
		testio_release(&t);
	}
}

static void a_version_is_pinned_and_a_replaced_object_is_told(void **state)
{
	struct s3_scene *scene = *state;
	struct s3_server_request request;
	struct kvt_version version;
	char value[100];

	s3_scene_start(scene, 0);
	s3_scene_plant(scene, NAME, BYTES, SEED);
	assert_int_equal(s3_scene_get(scene, NAME, WANTED, AT, SEED, NULL), 0);
	version = scene->info.version;
	assert_int_equal(s3_scene_get(scene, NAME, WANTED, 2 * AT, SEED, &version), 0);
	assert_true(s3_server_request(scene->server, S3_OP_GET, 0, &request));
	assert_non_null(s3_server_header(&request, "if-match", value, sizeof(value)));
	assert_int_equal(strlen(value), version.bytes);
	assert_memory_equal(value, version.value, version.bytes);
	s3_server_request_free(&request);
	/* A server that ignores the condition, or a cache before it. */
	s3_scene_rule(scene, "ops=get times=1 etag=?");
	s3_scene_get(scene, NAME, WANTED, AT, SEED, &version);
	s3_scene_expect(scene, "another ETag", KVT_EPRECOND, "its ETag is another one");
	assert_int_equal(scene->landed, 0);
	s3_scene_plant(scene, NAME, BYTES, SEED + 1);
	s3_scene_get(scene, NAME, WANTED, AT, SEED, &version);
	s3_scene_expect(scene, "replaced", KVT_EPRECOND, "HTTP 412 PreconditionFailed");
	assert_int_equal(scene->landed, 0);
	assert_true(s3_server_remove(scene->server, S3_SCENE_KEY(NAME)));
	s3_scene_get(scene, NAME, WANTED, AT, SEED, &version);
	s3_scene_expect(scene, "removed", KVT_ENOENT, "HTTP 404 NoSuchKey");
}

static void ranges_that_http_cannot_say_are_read_in_two_steps(void **state)
{
	struct s3_scene *scene = *state;

	s3_scene_start(scene, 0);
	s3_scene_plant(scene, NAME, BYTES, SEED);
	s3_server_forget(scene->server);
	assert_int_equal(s3_scene_get(scene, NAME, 100, -500, SEED, NULL), 0);
	assert_int_equal(s3_scene_seen(scene, S3_OP_HEAD), 1);
	assert_int_equal(s3_scene_seen(scene, S3_OP_GET), 1);
	/* The object is another one by the time of the second. */
	s3_scene_rule(scene, "ops=get times=1 status=412 code=PreconditionFailed");
	s3_scene_get(scene, NAME, 100, -500, SEED, NULL);
	s3_scene_expect(scene, "replaced between", KVT_EPRECOND, "412");
	s3_server_forget(scene->server);
	assert_int_equal(s3_scene_get(scene, NAME, 100, -100, SEED, NULL), 0);
	assert_int_equal(s3_scene_seen(scene, ~0u), 1);
}

static void a_connection_closed_while_idle_costs_nothing(void **state)
{
	struct s3_scene *scene = *state;

	s3_scene_start(scene, 0);
	s3_scene_plant(scene, NAME, BYTES, SEED);
	for (unsigned reset = 0; reset < 2; reset++) {
		assert_int_equal(s3_scene_get(scene, NAME, WANTED, AT, SEED, NULL), 0);
		/* One that it has closed before may still be going away. */
		assert_true(s3_server_close_idle(scene->server, reset) >= 1);
		assert_int_equal(s3_scene_get(scene, NAME, WANTED, AT, SEED, NULL), 0);
	}
	/* Closed when the next request is already on its way. */
	for (unsigned reset = 0; reset < 2; reset++) {
		forget(scene);
		assert_int_equal(s3_scene_get(scene, NAME, WANTED, AT, SEED, NULL), 0);
		s3_scene_rule(scene, "ops=get times=1 lost=%s", reset ? "rst" : "fin");
		assert_int_equal(s3_scene_get(scene, NAME, WANTED, AT, SEED, NULL), 0);
		assert_int_equal(s3_server_rule_hits(scene->server), 1);
		assert_int_equal(s3_scene_seen(scene, S3_OP_GET), 3);
	}
}

static void a_new_connection_that_breaks_is_the_cores_to_repeat(void **state)
{
	static const struct {
		const char *rule;
		int result;
	} cases[] = {{"lost=fin", KVT_EPROTO}, {"lost=rst", KVT_ENET}};
	struct s3_scene *scene = *state;

	s3_scene_start(scene, 0);
	s3_scene_plant(scene, NAME, BYTES, SEED);
	for (size_t i = 0; i < TEST_COUNT(cases); i++) {
		s3_scene_close(scene);
		s3_scene_open(scene);
		forget(scene);
		s3_scene_rule(scene, "ops=get times=1 %s", cases[i].rule);
		s3_scene_get(scene, NAME, WANTED, AT, SEED, NULL);
		s3_scene_expect(scene, cases[i].rule, cases[i].result, NULL);
		assert_int_equal(s3_scene_seen(scene, ~0u), 1);
		assert_int_equal(scene->landed, 0);
	}
}

static void servers_that_stop_answering_are_given_up_in_time(void **state)
{
	static const struct {
		const char *rule;
		uint64_t landed;
	} cases[] = {{"hang", 0},
		     {"lost=stall", 0},
		     {"cut=stall cut-at=1000", 1000},
		     {"cut=hold cut-at=2000", 2000},
		     {"cut=stall cut-at=0", 0}};
	struct s3_scene *scene = *state;

	s3_scene_start(scene, 0);
	s3_scene_plant(scene, NAME, BYTES, SEED);
	for (size_t i = 0; i < TEST_COUNT(cases); i++) {
		bool reached = false;
		unsigned tries = 0;

		forget(scene);
		s3_scene_rule(scene, "ops=get %s", cases[i].rule);
		while (s3_scene_give_longer(scene, reached)) {
			s3_scene_get(scene, NAME, WANTED, AT, SEED, NULL);
			s3_scene_expect(scene, cases[i].rule, KVT_ETIMEDOUT, NULL);
			assert_true(scene->landed <= cases[i].landed);
			assert_true(s3_scene_seen(scene, ~0u) <= ++tries);
			reached = s3_server_rule_hits(scene->server) > 0 &&
				  scene->landed == cases[i].landed;
		}
		assert_int_equal(s3_scene_get(scene, NAME, WANTED, AT, SEED, NULL), 0);
	}
}

static void nothing_is_written_after_a_deadline(void **state)
{
	struct s3_scene *scene = *state;
	static uint8_t data[WANTED];
	struct kvt_iovec iov = {data, sizeof(data)};
	bool reached = false;

	s3_scene_start(scene, 0);
	s3_scene_plant(scene, NAME, BYTES, SEED);
	s3_scene_rule(scene, "ops=get cut=hold cut-at=2000");
	while (s3_scene_give_longer(scene, reached)) {
		struct testio t = {.io = {.op = KVT_IO_GET,
					  .name = NAME,
					  .iov = &iov,
					  .iov_count = 1,
					  .length = sizeof(data)}};

		t.io.deadline_ns = scene->th.host.now_ns() + scene->time_ms * INT64_C(1000000);
		assert_int_equal(testio_prepare(&t, &scene->ts), 0);
		(void)testio_submit(&t);
		assert_int_equal(testio_wait(&t), KVT_ETIMEDOUT);
		testio_release(&t);
		reached = t.io.bytes_landed == 2000;
	}
	/* The memory is the caller's again, whatever the server sends now. */
	memset(data, 0xee, sizeof(data));
	s3_server_release(scene->server);
	assert_int_equal(s3_scene_get(scene, NAME, 64, 0, SEED, NULL), 0);
	for (size_t i = 0; i < sizeof(data); i++)
		if (data[i] != 0xee)
			fail_msg("byte %zu was written after the completion", i);
}

static void slow_first_bytes_and_slow_transfers_have_limits_of_their_own(void **state)
{
	struct s3_scene *scene = *state;

	s3_scene_option(scene, "first_byte_timeout_ms", "200");
	s3_scene_start(scene, 0);
	s3_scene_plant(scene, NAME, BYTES, SEED);
	s3_scene_rule(scene, "ops=get hang");
	s3_scene_get(scene, NAME, WANTED, AT, SEED, NULL);
	s3_scene_expect(scene, "first byte", KVT_ETIMEDOUT, "first_byte_timeout_ms");
	s3_server_clear_rules(scene->server);
	/* Nor is a hint an answer. */
	s3_scene_rule(scene, "ops=get raw=\"HTTP/1.1 103 Early Hints\\r\\n\\r\\n\" cut=stall");
	s3_scene_get(scene, NAME, WANTED, AT, SEED, NULL);
	s3_scene_expect(scene, "a hint", KVT_ETIMEDOUT, "first_byte_timeout_ms");
	s3_server_clear_rules(scene->server);
	s3_scene_close(scene);
	s3_scene_option(scene, "first_byte_timeout_ms", "60000");
	s3_scene_option(scene, "low_speed_bytes", "1000");
	s3_scene_option(scene, "low_speed_seconds", "1");
	s3_scene_open(scene);
	s3_scene_rule(scene, "ops=get rate=1");
	s3_scene_get(scene, NAME, WANTED, AT, SEED, NULL);
	s3_scene_expect(scene, "1 byte a second", KVT_ETIMEDOUT, NULL);
	assert_int_equal(s3_server_rule_hits(scene->server), 1);
	s3_server_clear_rules(scene->server);
	s3_scene_close(scene);
	s3_scene_option(scene, "low_speed_seconds", "60");
	s3_scene_open(scene);
	assert_int_equal(s3_scene_get(scene, NAME, WANTED, AT, SEED, NULL), 0);
}

static void ports_without_a_server_are_network_errors(void **state)
{
	struct s3_scene *scene = *state;
	int fd, fill;
	unsigned port;
	char *url;

	s3_scene_start(scene, 0);
	s3_scene_plant(scene, NAME, BYTES, SEED);
	assert_int_equal(s3_scene_get(scene, NAME, WANTED, AT, SEED, NULL), 0);
	s3_server_down(scene->server);
	s3_scene_get(scene, NAME, WANTED, AT, SEED, NULL);
	s3_scene_expect(scene, "refused", KVT_ENET, "127.0.0.1");
	assert_true(s3_server_up(scene->server));
	assert_int_equal(s3_scene_get(scene, NAME, WANTED, AT, SEED, NULL), 0);
	s3_scene_close(scene);
	port = s3_server_deaf_port(&fd, &fill);
	assert_int_not_equal(port, 0);
	url = test_format("http://127.0.0.1:%u", port);
	s3_scene_option(scene, "endpoint", url);
	s3_scene_option(scene, "connect_timeout_ms", "200");
	s3_scene_open(scene);
	s3_scene_get(scene, NAME, WANTED, AT, SEED, NULL);
	s3_scene_expect(scene, "deaf", KVT_ETIMEDOUT, "127.0.0.1");
	close(fd);
	close(fill);
	free(url);
}

static void many_requests_on_one_session_share_few_connections(void **state)
{
	struct s3_scene *scene = *state;
	struct testio t[4];
	static uint8_t data[4][4096];
	struct kvt_iovec iov[4];
	struct s3_server_counts counts;

	s3_scene_start(scene, 0);
	s3_scene_plant(scene, NAME, BYTES, SEED);
	for (unsigned round = 0; round < 20; round++) {
		if (round == 0)
			s3_scene_rule(scene, "ops=get times=4 hold");
		for (unsigned i = 0; i < 4; i++) {
			iov[i] = (struct kvt_iovec){data[i], sizeof(data[i])};
			t[i] = (struct testio){.io = {.op = KVT_IO_GET,
						      .name = NAME,
						      .iov = &iov[i],
						      .iov_count = 1,
						      .length = sizeof(data[i]),
						      .offset = 4096 * i}};
			assert_int_equal(testio_prepare(&t[i], &scene->ts), 0);
			assert_int_equal(testio_submit(&t[i]), KVT_QUEUED);
		}
		if (round == 0) {
			while (s3_scene_seen(scene, S3_OP_GET) < 4)
				(void)scene->tb.ops.poll(scene->ts.session,
							 scene->th.host.now_ns() + 1000000);
			assert_true(s3_server_await_held(scene->server, 4));
			s3_server_release(scene->server);
		}
		for (unsigned i = 0; i < 4; i++) {
			assert_int_equal(testio_wait(&t[i]), 0);
			assert_true(contract_match(data[i], sizeof(data[i]), SEED, 4096u * i));
			testio_release(&t[i]);
		}
	}
	s3_server_count(scene->server, &counts);
	assert_int_equal(counts.connections, 4);
	assert_int_equal(counts.most_at_once, 4);
	assert_int_equal(counts.by_op[1], 80);
}

int main(void)
{
	const struct CMUnitTest cases[] = {
		S3_SCENE_CASE(bodies_that_end_early_are_errors),
		S3_SCENE_CASE(answers_for_another_range_touch_nothing),
		S3_SCENE_CASE(more_bytes_than_were_asked_for_never_land),
		S3_SCENE_CASE(odd_but_right_answers_are_taken),
		S3_SCENE_CASE(headers_without_an_etag_leave_the_version_unknown),
		S3_SCENE_CASE(encoded_and_senseless_answers_are_refused),
		S3_SCENE_CASE(the_whole_of_a_large_object_is_not_read_for_a_range),
		S3_SCENE_CASE(an_object_that_is_shorter_is_a_range_error_with_its_length),
		S3_SCENE_CASE(a_version_is_pinned_and_a_replaced_object_is_told),
		S3_SCENE_CASE(ranges_that_http_cannot_say_are_read_in_two_steps),
		S3_SCENE_CASE(a_connection_closed_while_idle_costs_nothing),
		S3_SCENE_CASE(a_new_connection_that_breaks_is_the_cores_to_repeat),
		S3_SCENE_CASE(servers_that_stop_answering_are_given_up_in_time),
		S3_SCENE_CASE(nothing_is_written_after_a_deadline),
		S3_SCENE_CASE(slow_first_bytes_and_slow_transfers_have_limits_of_their_own),
		S3_SCENE_CASE(ports_without_a_server_are_network_errors),
		S3_SCENE_CASE(many_requests_on_one_session_share_few_connections),
	};

	return cmocka_run_group_tests_name("s3_get", cases, NULL, NULL);
}
