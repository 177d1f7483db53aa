/* SPDX-License-Identifier: Apache-2.0 */
/* Where the S3 backend goes: addresses, buckets in path or host, TLS with certificates of each
 * kind; and listings, page by page. */
#include "s3_scene.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NAME  "ab/cd.bin"
#define BYTES UINT64_C(20000)
#define SEED  3u

static void buckets_stand_in_the_host_when_they_are_to(void **state)
{
	struct s3_scene *scene = *state;
	struct s3_server_request request;
	char *endpoint, *host, value[200];

	s3_scene_serve(scene, &(struct s3_server_options){.domain = "s3.localhost",
							  .traits = S3_SERVER_VIRTUAL_ONLY});
	endpoint = test_format("http://s3.localhost:%u", s3_server_port(scene->server));
	host = test_format("bucket.s3.localhost:%u", s3_server_port(scene->server));
	s3_scene_option(scene, "endpoint", endpoint);
	s3_scene_open(scene);
	s3_scene_put(scene, NAME, BYTES, SEED, 0, NULL);
	s3_scene_expect(scene, "path style", KVT_ECONFIG, "HTTP 400");
	s3_scene_close(scene);
	s3_scene_option(scene, "addressing", "virtual");
	s3_scene_open(scene);
	s3_scene_put(scene, NAME, BYTES, SEED, 0, NULL);
	s3_scene_expect(scene, "virtual", 0, NULL);
	assert_int_equal(s3_scene_get(scene, NAME, BYTES, 0, SEED, NULL), 0);
	assert_true(s3_server_request(scene->server, S3_OP_GET, 0, &request));
	assert_string_equal(s3_server_header(&request, "host", value, sizeof(value)), host);
	assert_string_equal(request.uri, "/" S3_SCENE_KEY(NAME));
	s3_server_request_free(&request);
	s3_server_set_traits(scene->server, S3_SERVER_PATH_ONLY);
	s3_scene_get(scene, NAME, BYTES, 0, SEED, NULL);
	s3_scene_expect(scene, "a server of paths", KVT_ECONFIG, "HTTP 400");
	free(endpoint);
	free(host);
}

static void addresses_of_version_6_work(void **state)
{
	struct s3_scene *scene = *state;
	struct s3_server_request request;
	char value[200];

	/* Some machines have none. */
	scene->server =
		s3_server_start(&(struct s3_server_options){.address = "::1",
							    .access_key = S3_SCENE_ACCESS_KEY,
							    .secret_key = S3_SCENE_SECRET},
				NULL);
	if (!scene->server)
		contract_skip("no address ::1 here");
	s3_scene_open(scene);
	assert_int_equal(s3_scene_put(scene, NAME, BYTES, SEED, 0, NULL), 0);
	assert_int_equal(s3_scene_get(scene, NAME, BYTES, 0, SEED, NULL), 0);
	assert_true(s3_server_request(scene->server, S3_OP_GET, 0, &request));
	assert_memory_equal(s3_server_header(&request, "host", value, sizeof(value)), "[::1]:", 6);
	s3_server_request_free(&request);
	s3_server_down(scene->server);
	s3_scene_get(scene, NAME, BYTES, 0, SEED, NULL);
	s3_scene_expect(scene, "down", KVT_ENET, "[::1]");
}

static void names_that_do_not_resolve_may_come_back(void **state)
{
	struct s3_scene *scene = *state;

	s3_scene_serve(scene, NULL);
	s3_scene_option(scene, "endpoint", "http://no-such-host.invalid:9000");
	s3_scene_open(scene);
	s3_scene_get(scene, NAME, 10, 0, SEED, NULL);
	s3_scene_expect(scene, "no host", KVT_ENET, "no-such-host.invalid");
}

/* ---- TLS ---- */

static char *write_ca(const char *text)
{
	char *path = strdup("/tmp/kvtier-ca-XXXXXX");
	int fd = mkstemp(path);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
	return path;
}

static void tls_trusts_what_it_is_told_to(void **state)
{
	static const struct {
		enum s3_server_certificate kind;
		bool is_known; /* its CA */
		const char *verify;
		int result;
		const char *detail;
	} cases[] = {
		{S3_CERT_GOOD, true, "on", 0, NULL},
		{S3_CERT_GOOD, false, "on", KVT_ECONFIG, "certificate"},
		{S3_CERT_OTHER_NAME, true, "on", KVT_ECONFIG, "127.0.0.1"},
		{S3_CERT_EXPIRED, true, "on", KVT_ECONFIG, "expired"},
		{S3_CERT_EXPIRED, true, "off", 0, NULL},
		{S3_CERT_OTHER_NAME, false, "off", 0, NULL},
	};
	struct s3_scene *scene = *state;

	for (size_t i = 0; i < TEST_COUNT(cases); i++) {
		char *ca, *certificate, *key, *other[3] = {NULL, NULL, NULL}, *path;
		struct s3_server_counts counts;

		assert_true(s3_server_certify("127.0.0.1", cases[i].kind, &ca, &certificate, &key));
		if (!cases[i].is_known)
			assert_true(s3_server_certify("127.0.0.1", S3_CERT_GOOD, &other[0],
						      &other[1], &other[2]));
		path = write_ca(cases[i].is_known ? ca : other[0]);
		s3_scene_serve(scene, &(struct s3_server_options){.certificate = certificate,
								  .certificate_key = key});
		s3_scene_option(scene, "endpoint", s3_server_url(scene->server));
		s3_scene_option(scene, "ca_bundle", path);
		s3_scene_option(scene, "verify", cases[i].verify);
		s3_scene_open(scene);
		s3_scene_put(scene, NAME, BYTES, SEED, 0, NULL);
		s3_scene_expect(scene, cases[i].verify, cases[i].result, cases[i].detail);
		if (cases[i].result == 0) {
			assert_int_equal(s3_scene_get(scene, NAME, BYTES, 0, SEED, NULL), 0);
			assert_int_equal(s3_scene_put(scene, NAME, 8 * S3_SCENE_MIB, 2, 0, NULL),
					 0);
			assert_int_equal(s3_scene_get(scene, NAME, 8 * S3_SCENE_MIB, 0, 2, NULL),
					 0);
			s3_server_count(scene->server, &counts);
			assert_int_equal(counts.connections, 1);
			/* Idle connections end like those without TLS. */
			assert_true(s3_server_close_idle(scene->server, i & 1) >= 1);
			assert_int_equal(s3_scene_get(scene, NAME, 100, 0, 2, NULL), 0);
		} else {
			assert_int_equal(s3_scene_seen(scene, ~0u), 0);
		}
		s3_scene_close(scene);
		s3_server_stop(scene->server);
		scene->server = NULL;
		unlink(path);
		free(path);
		free(ca);
		free(certificate);
		free(key);
		for (size_t j = 0; j < 3; j++)
			free(other[j]);
	}
}

static void http_to_a_port_of_https_and_the_other_way_round_are_told(void **state)
{
	struct s3_scene *scene = *state;
	char *ca, *certificate, *key, *url;

	s3_scene_serve(scene, NULL);
	url = test_format("https://127.0.0.1:%u", s3_server_port(scene->server));
	s3_scene_option(scene, "endpoint", url);
	free(url);
	scene->time_ms = 5000;
	s3_scene_open(scene);
	s3_scene_get(scene, NAME, 10, 0, SEED, NULL);
	assert_int_not_equal(scene->result, 0);
	assert_int_not_equal(scene->result, KVT_ENOENT);
	s3_scene_close(scene);
	s3_server_stop(scene->server);
	assert_true(s3_server_certify("127.0.0.1", S3_CERT_GOOD, &ca, &certificate, &key));
	s3_scene_serve(scene, &(struct s3_server_options){.certificate = certificate,
							  .certificate_key = key});
	url = test_format("http://127.0.0.1:%u", s3_server_port(scene->server));
	s3_scene_option(scene, "endpoint", url);
	free(url);
	s3_scene_open(scene);
	s3_scene_get(scene, NAME, 10, 0, SEED, NULL);
	assert_int_not_equal(scene->result, 0);
	assert_int_not_equal(scene->result, KVT_ENOENT);
	free(ca);
	free(certificate);
	free(key);
}

/* ---- Listings ---- */

struct names {
	unsigned count;
	bool is_odd; /* a name that should not be there, or one out of its numbers */
	uint64_t bytes;
	uint32_t version_bytes;
	int stop_at;
};

static int take_name(struct kvt_io *io, const struct kvt_list_item *item)
{
	struct testio *t = (struct testio *)(void *)io;
	struct names *names = t->user;
	char expected[64];

	snprintf(expected, sizeof(expected), "l/%03u a+b%%41&<>\"'=.bin", names->count);
	names->is_odd |= strcmp(item->name, expected) != 0;
	names->bytes += item->info.object_bytes;
	names->version_bytes = item->info.version.bytes;
	names->is_odd |= item->info.age_ns < 0 || item->info.age_ns > INT64_C(60000000000);
	names->count++;
	return names->stop_at && (int)names->count == names->stop_at ? 77 : 0;
}

static int list(struct s3_scene *scene, const char *prefix, uint32_t most, struct names *names)
{
	char token[2048] = "";
	int result;

	do {
		struct testio t = {.io = {.op = KVT_IO_LIST,
					  .name = prefix,
					  .list_item = take_name,
					  .list_token = token,
					  .list_token_bytes = sizeof(token),
					  .list_max = most},
				   .user = names};

		result = testsession_run(&scene->ts, &t);
		scene->result = result;
		memcpy(scene->detail, t.detail, sizeof(scene->detail));
	} while (result == 0 && token[0]);
	return result;
}

static void plant_names(struct s3_scene *scene, unsigned count)
{
	char name[64];

	for (unsigned i = 0; i < count; i++) {
		snprintf(name, sizeof(name), "l/%03u a+b%%41&<>\"'=.bin", i);
		s3_scene_plant(scene, name, i, SEED);
	}
	/* What is not ours. */
	assert_true(s3_server_put(scene->server, "some/prefix2/l/000 x", "x", 1));
	assert_true(s3_server_put(scene->server, "some/l/000", "x", 1));
	assert_true(s3_server_put(scene->server, S3_SCENE_KEY("l//double"), "x", 1));
	assert_true(s3_server_put(scene->server, S3_SCENE_KEY("l/folder/"), "", 0));
}

static void listings_are_whole_on_servers_of_each_kind(void **state)
{
	static const unsigned kinds[] = {0, S3_SERVER_EMPTY_PAGES, S3_SERVER_LIST_BARE_ETAGS,
					 S3_SERVER_PLAIN_LISTS,
					 S3_SERVER_MD5_ETAGS | S3_SERVER_EMPTY_PAGES};
	struct s3_scene *scene = *state;

	s3_scene_start(scene, 0);
	plant_names(scene, 25);
	for (size_t i = 0; i < TEST_COUNT(kinds); i++) {
		struct names names = {0};

		s3_server_set_traits(scene->server, kinds[i]);
		list(scene, "l/", 4, &names);
		s3_scene_expect(scene, "list", 0, NULL);
		assert_int_equal(names.count, 25);
		assert_false(names.is_odd);
		assert_int_equal(names.bytes, 300);
		assert_int_equal(names.version_bytes, 34);
	}
	{
		struct names names = {.stop_at = 3};

		s3_server_set_traits(scene->server, 0);
		assert_int_equal(list(scene, "l/", 1000, &names), 77);
		assert_int_equal(names.count, 3);
		assert_int_equal(list(scene, "no such", 1000, &names), 0);
		assert_int_equal(names.count, 3);
	}
}

static void listings_that_make_no_sense_are_refused(void **state)
{
	static const struct {
		const char *rule;
		int result;
	} cases[] = {
		{"status=200 body=\"<ListBucketResult><Contents><Key>a\"", KVT_EPROTO},
		{"status=200 body=\"<html><body>welcome</body></html>\"", KVT_EPROTO},
		{"status=200 body=\"\"", KVT_EPROTO},
		{"status=200 "
		 "body=\"<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>\"",
		 KVT_EPROTO},
		{"status=200 body=\"<!DOCTYPE x [<!ENTITY a 'aaaa'>]><ListBucketResult/>\"",
		 KVT_EPROTO},
		{"status=200 code=SlowDown", KVT_ETHROTTLED},
		{"status=403 code=AccessDenied", KVT_EACCES},
		{"cut=fin cut-at=300", KVT_EPROTO},
		{"status=404 code=NoSuchBucket", KVT_ECONFIG},
		{"endless no-length", KVT_EPROTO},
	};
	struct s3_scene *scene = *state;

	s3_scene_start(scene, 0);
	plant_names(scene, 5);
	for (size_t i = 0; i < TEST_COUNT(cases); i++) {
		struct names names = {0};

		s3_server_clear_rules(scene->server);
		s3_scene_rule(scene, "ops=list times=1 %s", cases[i].rule);
		list(scene, "l/", 1000, &names);
		s3_scene_expect(scene, cases[i].rule, cases[i].result, "list ");
		names = (struct names){0};
		assert_int_equal(list(scene, "l/", 1000, &names), 0);
		assert_int_equal(names.count, 5);
	}
}

int main(void)
{
	const struct CMUnitTest cases[] = {
		S3_SCENE_CASE(buckets_stand_in_the_host_when_they_are_to),
		S3_SCENE_CASE(addresses_of_version_6_work),
		S3_SCENE_CASE(names_that_do_not_resolve_may_come_back),
		S3_SCENE_CASE(tls_trusts_what_it_is_told_to),
		S3_SCENE_CASE(http_to_a_port_of_https_and_the_other_way_round_are_told),
		S3_SCENE_CASE(listings_are_whole_on_servers_of_each_kind),
		S3_SCENE_CASE(listings_that_make_no_sense_are_refused),
	};

	return cmocka_run_group_tests_name("s3_endpoints", cases, NULL, NULL);
}
