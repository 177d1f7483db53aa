/* SPDX-License-Identifier: Apache-2.0 */
/* The S3 server that other tests stand on does what S3 does, seen by plain libcurl. */
#include "s3_server_client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Objects ---- */

static void an_object_is_stored_read_and_removed(void **state)
{
	struct s3c_call c = {.path = "/bucket/a%20b/c"};
	char etag[80];

	(void)state;
	s3c_start(&(struct s3_server_options){.traits = S3_SERVER_MD5_ETAGS});
	assert_int_equal(s3c_simple("GET", "/bucket/a%20b/c"), 404);
	assert_int_equal(s3c_put("/bucket/a%20b/c", "hello", NULL), 200);
	assert_int_equal(s3c_run(&c), 200);
	assert_string_equal(c.data.data, "hello");
	assert_says(c.head, "ETag: \"5d41402abc4b2a76b9719d911017c592\"\r\n");
	assert_says(c.head, "Content-Length: 5\r\n");
	assert_says(c.head, "Last-Modified: ");
	assert_says(c.head, "Date: ");
	assert_says(c.head, "x-amz-request-id: REQ");
	c.method = "HEAD";
	assert_int_equal(s3c_run(&c), 200);
	assert_says(c.head, "Content-Length: 5\r\n");
	assert_true(s3_server_has(s3c_server, "a b/c"));
	s3_server_etag(s3c_server, "a b/c", etag);
	assert_string_equal(etag, "\"5d41402abc4b2a76b9719d911017c592\"");
	assert_int_equal(s3c_simple("DELETE", "/bucket/a%20b/c"), 204);
	assert_int_equal(s3c_simple("DELETE", "/bucket/a%20b/c"), 204);
	assert_int_equal(s3c_simple("HEAD", "/bucket/a%20b/c"), 404);
	c.method = "GET";
	c.path = "/elsewhere/x";
	assert_int_equal(s3c_run(&c), 404);
	assert_says(c.data, "<Code>NoSuchBucket</Code>");
	s3c_forget(&c);
}

static void ranges_are_as_asked(void **state)
{
	static const struct {
		const char *range;
		long status;
		const char *body, *content_range;
	} cases[] = {
		{"Range: bytes=0-3", 206, "0123", "bytes 0-3/10"},
		{"Range: bytes=7-", 206, "789", "bytes 7-9/10"},
		{"Range: bytes=8-100", 206, "89", "bytes 8-9/10"},
		{"Range: bytes=-4", 206, "6789", "bytes 6-9/10"},
		{"Range: bytes=-40", 206, "0123456789", "bytes 0-9/10"},
		{"Range: bytes=10-", 416, NULL, "bytes */10"},
		{"Range: bytes=-0", 416, NULL, "bytes */10"},
		{"Range: bytes=5-4", 200, "0123456789", NULL},
		{"Range: lines=5-6", 200, "0123456789", NULL},
	};

	(void)state;
	s3c_start(&(struct s3_server_options){0});
	assert_int_equal(s3c_put("/bucket/k", "0123456789", NULL), 200);
	for (size_t i = 0; i < TEST_COUNT(cases); i++) {
		struct s3c_call c = {.path = "/bucket/k", .headers = {cases[i].range}};
		char *line = test_format("Content-Range: %s\r\n", cases[i].content_range);

		assert_int_equal(s3c_run(&c), cases[i].status);
		if (cases[i].body)
			assert_string_equal(c.data.data, cases[i].body);
		else
			assert_says(c.data, "<Code>InvalidRange</Code>");
		if (cases[i].content_range)
			assert_says(c.head, line);
		else
			assert_false(s3c_says(&c.head, "Content-Range"));
		free(line);
		s3c_forget(&c);
	}
	s3_server_set_traits(s3c_server, S3_SERVER_BARE_416);
	{
		struct s3c_call c = {.path = "/bucket/k", .headers = {"Range: bytes=10-"}};

		assert_int_equal(s3c_run(&c), 416);
		assert_false(s3c_says(&c.head, "Content-Range"));
		s3c_forget(&c);
	}
}

static void conditions_are_kept_in_each_kind_of_server(void **state)
{
	char etag[80], *quoted, *bare;

	(void)state;
	s3c_start(&(struct s3_server_options){0});
	assert_int_equal(s3c_put("/bucket/k", "1", "If-None-Match: *"), 200);
	assert_int_equal(s3c_put("/bucket/k", "2", "If-None-Match: *"), 412);
	s3_server_etag(s3c_server, "k", etag);
	quoted = test_format("If-Match: %s", etag);
	bare = test_format("If-Match: %.*s", (int)strlen(etag) - 2, etag + 1);
	{
		struct s3c_call c = {.path = "/bucket/k", .headers = {quoted}};

		assert_int_equal(s3c_run(&c), 200);
		c.headers[0] = "If-Match: \"no\"";
		assert_int_equal(s3c_run(&c), 412);
		s3c_forget(&c);
	}
	assert_int_equal(s3c_put("/bucket/k", "3", bare), 412);
	assert_int_equal(s3c_put("/bucket/none", "3", quoted), 404);
	s3_server_set_traits(s3c_server, S3_SERVER_NO_PUT_CONDITIONS);
	assert_int_equal(s3c_put("/bucket/k", "3", quoted), 501);
	assert_int_equal(s3c_put("/bucket/k", "3", "If-None-Match: *"), 501);
	s3_server_set_traits(s3c_server, S3_SERVER_BARE_IF_MATCH);
	assert_int_equal(s3c_put("/bucket/k", "3", quoted), 412);
	assert_int_equal(s3c_put("/bucket/k", "3", bare), 200);
	assert_int_equal(s3c_put("/bucket/k", "3", bare), 412);
	s3_server_set_traits(s3c_server, S3_SERVER_BLIND_PUT_CONDITIONS);
	assert_int_equal(s3c_put("/bucket/k", "4", "If-None-Match: *"), 200);
	{
		struct s3c_call c = {
			.method = "DELETE", .path = "/bucket/k", .headers = {"If-Match: \"no\""}};

		s3_server_set_traits(s3c_server, S3_SERVER_DELETE_IF_MATCH);
		assert_int_equal(s3c_run(&c), 412);
		s3_server_set_traits(s3c_server, 0);
		assert_int_equal(s3c_run(&c), 204);
		s3c_forget(&c);
	}
	free(quoted);
	free(bare);
}

static void checksums_are_verified(void **state)
{
	(void)state;
	s3c_start(&(struct s3_server_options){0});
	/* CRC-32C of "123456789" is e3069283. */
	assert_int_equal(s3c_put("/bucket/k", "123456789", "x-amz-checksum-crc32c: 4waSgw=="), 200);
	assert_int_equal(s3c_put("/bucket/l", "123456780", "x-amz-checksum-crc32c: 4waSgw=="), 400);
	assert_false(s3_server_has(s3c_server, "l"));
	assert_int_equal(s3c_put("/bucket/l", "hello", "Content-MD5: XUFAKrxLKna5cZ2REBfFkg=="),
			 200);
	assert_int_equal(s3c_put("/bucket/l", "hullo", "Content-MD5: XUFAKrxLKna5cZ2REBfFkg=="),
			 400);
	s3_server_set_traits(s3c_server, S3_SERVER_NO_CHECKSUMS);
	assert_int_equal(s3c_put("/bucket/l", "123456780", "x-amz-checksum-crc32c: 4waSgw=="), 200);
}

static void no_list_right_makes_absent_objects_forbidden(void **state)
{
	(void)state;
	s3c_start(&(struct s3_server_options){.traits = S3_SERVER_NO_LIST_RIGHT});
	assert_int_equal(s3c_simple("HEAD", "/bucket/k"), 403);
	assert_int_equal(s3c_simple("GET", "/bucket/k"), 403);
	assert_int_equal(s3c_simple("GET", "/bucket/?list-type=2"), 403);
	assert_int_equal(s3c_put("/bucket/k", "1", NULL), 200);
	assert_int_equal(s3c_simple("HEAD", "/bucket/k"), 200);
}

static void buckets_are_found_in_path_or_host(void **state)
{
	struct s3c_call c = {.path = "/k", .headers = {"Host: bucket.s3.test:80"}};

	(void)state;
	s3c_start(&(struct s3_server_options){.domain = "s3.test"});
	assert_int_equal(s3c_put("/bucket/k", "there", NULL), 200);
	assert_int_equal(s3c_run(&c), 200);
	assert_string_equal(c.data.data, "there");
	c.headers[0] = "Host: unknown.example";
	assert_int_equal(s3c_run(&c), 404);
	assert_says(c.data, "NoSuchBucket");
	c.headers[0] = "Host: s3.test";
	c.path = "/bucket/k";
	assert_int_equal(s3c_run(&c), 200);
	s3_server_set_traits(s3c_server, S3_SERVER_VIRTUAL_ONLY);
	assert_int_equal(s3c_run(&c), 400);
	c.headers[0] = "Host: bucket.s3.test";
	c.path = "/k";
	assert_int_equal(s3c_run(&c), 200);
	s3_server_set_traits(s3c_server, S3_SERVER_PATH_ONLY);
	assert_int_equal(s3c_run(&c), 400);
	s3c_forget(&c);
}

/* ---- Listings ---- */

static void listings_come_in_pages(void **state)
{
	char *token = NULL, path[400];
	unsigned seen = 0, pages = 0;

	(void)state;
	s3c_start(&(struct s3_server_options){.traits = S3_SERVER_EMPTY_PAGES});
	for (unsigned i = 0; i < 7; i++) {
		char *key = test_format("p/%u + &<", i);

		assert_true(s3_server_put(s3c_server, key, "x", 1));
		free(key);
	}
	assert_true(s3_server_put(s3c_server, "q", "x", 1));
	do {
		struct s3c_call c = {.path = path};
		char *more;

		snprintf(path, sizeof(path),
			 "/bucket/?list-type=2&prefix=p%%2F&max-keys=2&encoding-type=url%s%s",
			 token ? "&continuation-token=" : "", token ? token : "");
		curl_free(token);
		token = NULL;
		assert_int_equal(s3c_run(&c), 200);
		for (const char *at = c.data.data; (at = strstr(at, "<Key>")) != NULL;
		     at++, seen++) {
			char *key = test_format("<Key>p/%u+%%2B+%%26%%3C</Key>", seen);

			assert_memory_equal(at, key, strlen(key));
			free(key);
		}
		more = strstr(c.data.data, "<NextContinuationToken>");
		assert_int_equal(more != NULL, s3c_says(&c.data, "<IsTruncated>true"));
		if (more) {
			/* Its "&" is written as an entity. */
			char *raw = strdup(more + strlen("<NextContinuationToken>")), *amp;

			raw[strcspn(raw, "<")] = 0;
			amp = strstr(raw, "&amp;");
			assert_non_null(amp);
			memmove(amp + 1, amp + 5, strlen(amp + 5) + 1);
			token = curl_easy_escape(s3c_easy, raw, 0);
			free(raw);
		}
		s3c_forget(&c);
		assert_true(++pages < 20);
	} while (token);
	assert_int_equal(seen, 7);
	assert_int_equal(pages, 8);
}

static void listings_of_version_1_have_markers(void **state)
{
	struct s3c_call c = {.path = "/bucket/?max-keys=1&delimiter=/"};

	(void)state;
	s3c_start(&(struct s3_server_options){0});
	assert_true(s3_server_put(s3c_server, "a/1", "x", 1));
	assert_true(s3_server_put(s3c_server, "a/2", "x", 1));
	assert_true(s3_server_put(s3c_server, "b", "x", 1));
	assert_int_equal(s3c_run(&c), 200);
	assert_says(c.data, "<CommonPrefixes><Prefix>a/</Prefix></CommonPrefixes>");
	assert_says(c.data, "<NextMarker>a/</NextMarker>");
	c.path = "/bucket/?max-keys=1&delimiter=/&marker=a/";
	assert_int_equal(s3c_run(&c), 200);
	assert_says(c.data, "<Key>b</Key>");
	assert_says(c.data, "<IsTruncated>false");
	s3c_forget(&c);
}

/* ---- Multipart ---- */

/* The id of a new upload, encoded for a query. */
static char *create(const char *path)
{
	struct s3c_call c = {.method = "POST", .path = path};
	char *at, *raw, *id;

	assert_int_equal(s3c_run(&c), 200);
	at = strstr(c.data.data, "<UploadId>");
	assert_non_null(at);
	raw = strdup(at + strlen("<UploadId>"));
	raw[strcspn(raw, "<")] = 0;
	at = strstr(raw, "&amp;");
	assert_non_null(at);
	memmove(at + 1, at + 5, strlen(at + 5) + 1);
	id = curl_easy_escape(s3c_easy, raw, 0);
	free(raw);
	s3c_forget(&c);
	return id;
}

/* The ETag of a part, with entities for its quotes. */
static char *part(const char *id, unsigned number, const char *body)
{
	char *path = test_format("/bucket/m?partNumber=%u&uploadId=%s", number, id), *at, *etag;
	struct s3c_call c = {.method = "PUT", .path = path, .body = body};

	assert_int_equal(s3c_run(&c), 200);
	at = strstr(c.head.data, "ETag: \"");
	assert_non_null(at);
	etag = test_format("&quot;%.*s&#34;", (int)strcspn(at + 7, "\""), at + 7);
	s3c_forget(&c);
	free(path);
	return etag;
}

static long complete(const char *id, const char *parts, const char *header, const char *expected)
{
	char *path = test_format("/bucket/m?uploadId=%s", id);
	char *body = test_format("<CompleteMultipartUpload>%s</CompleteMultipartUpload>", parts);
	struct s3c_call c = {.method = "POST", .path = path, .body = body, .headers = {header}};
	long status = s3c_run(&c);

	if (expected)
		assert_says(c.data, expected);
	s3c_forget(&c);
	free(path);
	free(body);
	return status;
}

static void an_upload_in_parts_is_checked_when_it_is_completed(void **state)
{
	char *id, *one, *two, *good, *swapped, *wrong, *path;
	uint64_t bytes;
	uint8_t *data;

	(void)state;
	s3c_start(&(struct s3_server_options){.min_part_bytes = 4});
	id = create("/bucket/m?uploads");
	assert_int_equal(s3_server_uploads(s3c_server), 1);
	one = part(id, 1, "abc");
	two = part(id, 2, "def");
	good = test_format("<Part><PartNumber>1</PartNumber><ETag>%s</ETag></Part>"
			   "<Part><ETag>%s</ETag><PartNumber>2</PartNumber></Part>",
			   one, two);
	swapped = test_format("<Part><PartNumber>2</PartNumber><ETag>%s</ETag></Part>"
			      "<Part><PartNumber>1</PartNumber><ETag>%s</ETag></Part>",
			      two, one);
	wrong = test_format("<Part><PartNumber>1</PartNumber><ETag>%s</ETag></Part>", two);
	assert_int_equal(complete(id, good, NULL, "<Code>EntityTooSmall</Code>"), 400);
	assert_int_equal(complete(id, swapped, NULL, "<Code>InvalidPartOrder</Code>"), 400);
	assert_int_equal(complete(id, wrong, NULL, "<Code>InvalidPart</Code>"), 400);
	assert_int_equal(complete(id, "<Part>", NULL, "<Code>MalformedXML</Code>"), 400);
	assert_int_equal(complete(id, "", NULL, "<Code>MalformedXML</Code>"), 400);
	assert_int_equal(complete("no", good, NULL, "<Code>NoSuchUpload</Code>"), 404);
	free(one);
	free(good);
	one = part(id, 1, "ABCD");
	good = test_format("<Part><PartNumber>1</PartNumber><ETag>%s</ETag></Part>"
			   "<Part><ETag>%s</ETag><PartNumber>2</PartNumber></Part>",
			   one, two);
	assert_true(s3_server_put(s3c_server, "m", "other", 5));
	assert_int_equal(complete(id, good, "If-None-Match: *", "PreconditionFailed"), 412);
	s3_server_set_traits(s3c_server, S3_SERVER_NO_COMPLETE_CONDITIONS);
	assert_int_equal(complete(id, good, "If-None-Match: *", "NotImplemented"), 501);
	s3_server_set_traits(s3c_server,
			     S3_SERVER_BLIND_COMPLETE_CONDITIONS | S3_SERVER_PATIENT_COMPLETE);
	assert_int_equal(complete(id, good, "If-None-Match: *", "CompleteMultipartUploadResult"),
			 200);
	data = s3_server_get(s3c_server, "m", &bytes);
	assert_int_equal(bytes, 7);
	assert_memory_equal(data, "ABCDdef", 7);
	free(data);
	{
		struct s3c_call c = {.path = "/bucket/m", .headers = {"Range: bytes=2-5"}};

		assert_int_equal(s3c_run(&c), 206);
		assert_string_equal(c.data.data, "CDde");
		s3c_forget(&c);
	}
	assert_int_equal(complete(id, good, NULL, "NoSuchUpload"), 404);
	s3_server_set_traits(s3c_server, S3_SERVER_COMPLETE_TWICE);
	assert_int_equal(complete(id, good, NULL, "CompleteMultipartUploadResult"), 200);
	path = test_format("/bucket/m?uploadId=%s", id);
	assert_int_equal(s3c_simple("DELETE", path), 404);
	free(path);
	curl_free(id);
	free(one);
	free(two);
	free(good);
	free(swapped);
	free(wrong);
}

static void uploads_are_listed_and_aborted(void **state)
{
	struct s3c_call c = {.path = "/bucket/?uploads&max-uploads=1&prefix=m"};
	char *id, *path;

	(void)state;
	s3c_start(&(struct s3_server_options){0});
	id = create("/bucket/m?uploads");
	assert_true(s3_server_begin_upload(s3c_server, "m2", 86400));
	assert_true(s3_server_begin_upload(s3c_server, "other", 86400));
	assert_int_equal(s3c_run(&c), 200);
	assert_says(c.data, "<Key>m</Key><UploadId>");
	assert_says(c.data, "<NextKeyMarker>m</NextKeyMarker>");
	assert_says(c.data, "<IsTruncated>true");
	c.path = "/bucket/?uploads&max-uploads=1&prefix=m&key-marker=m";
	assert_int_equal(s3c_run(&c), 200);
	assert_says(c.data, "<Key>m2</Key><UploadId>");
	assert_says(c.data, "<IsTruncated>false");
	s3c_forget(&c);
	path = test_format("/bucket/m?uploadId=%s", id);
	assert_int_equal(s3c_simple("DELETE", path), 204);
	assert_int_equal(s3c_simple("DELETE", path), 404);
	assert_int_equal(s3_server_uploads(s3c_server), 2);
	s3_server_set_traits(s3c_server, S3_SERVER_NO_MULTIPART);
	assert_int_equal(s3c_simple("POST", "/bucket/m?uploads"), 501);
	free(path);
	curl_free(id);
}

/* ---- Signatures ---- */

static void signatures_are_verified(void **state)
{
	static const char date[] = "x-amz-date: 20130524T000000Z";
	struct s3c_call c = {.path = "/bucket/k", .sign = "eu-test-1"};

	(void)state;
	s3c_start(&(struct s3_server_options){
		.access_key = "AKIDTEST", .secret_key = "a secret", .region = "eu-test-1"});
	assert_true(s3_server_put(s3c_server, "k", "signed", 6));
	assert_int_equal(s3c_simple("GET", "/bucket/k"), 403);
	assert_int_equal(s3c_run(&c), 200);
	assert_string_equal(c.data.data, "signed");
	c.sign = "us-east-1";
	assert_int_equal(s3c_run(&c), 400);
	assert_says(c.data, "<Code>AuthorizationHeaderMalformed</Code>");
	assert_says(c.data, "<Region>eu-test-1</Region>");
	assert_says(c.head, "x-amz-bucket-region: eu-test-1");
	s3_server_set_region(s3c_server, NULL);
	assert_int_equal(s3c_run(&c), 200);
	s3_server_set_secret(s3c_server, "AKIDTEST", "another", NULL);
	assert_int_equal(s3c_run(&c), 403);
	assert_says(c.data, "<Code>SignatureDoesNotMatch</Code>");
	s3_server_set_secret(s3c_server, "AKIDOTHER", "a secret", NULL);
	assert_int_equal(s3c_run(&c), 403);
	assert_says(c.data, "<Code>InvalidAccessKeyId</Code>");
	s3_server_set_secret(s3c_server, "AKIDTEST", "a secret", NULL);
	s3_server_set_clock(s3c_server, 1000);
	assert_int_equal(s3c_run(&c), 403);
	assert_says(c.data, "<Code>RequestTimeTooSkewed</Code>");
	s3_server_set_clock(s3c_server, 0);
	s3_server_set_secret(s3c_server, "AKIDTEST", "a secret", "a token");
	assert_int_equal(s3c_run(&c), 403);
	c.sign = NULL;
	c.headers[0] = date;
	c.headers[1] = "Authorization: AWS AKIDTEST:signature of version 2";
	assert_int_equal(s3c_run(&c), 400);
	c.headers[1] = "Authorization: AWS4-HMAC-SHA256 Credential=AKIDTEST/x, SignedHeaders=host, "
		       "Signature=0";
	assert_int_equal(s3c_run(&c), 400);
	s3c_forget(&c);
}

int main(void)
{
	const struct CMUnitTest cases[] = {
		S3C_CASE(an_object_is_stored_read_and_removed),
		S3C_CASE(ranges_are_as_asked),
		S3C_CASE(conditions_are_kept_in_each_kind_of_server),
		S3C_CASE(checksums_are_verified),
		S3C_CASE(no_list_right_makes_absent_objects_forbidden),
		S3C_CASE(buckets_are_found_in_path_or_host),
		S3C_CASE(listings_come_in_pages),
		S3C_CASE(listings_of_version_1_have_markers),
		S3C_CASE(an_upload_in_parts_is_checked_when_it_is_completed),
		S3C_CASE(uploads_are_listed_and_aborted),
		S3C_CASE(signatures_are_verified),
	};

	curl_global_init(CURL_GLOBAL_DEFAULT);
	return cmocka_run_group_tests_name("s3_server", cases, NULL, NULL);
}
