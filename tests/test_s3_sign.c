/* SPDX-License-Identifier: Apache-2.0 */
/* Signature version 4: the examples that AWS publishes for S3, requests signed by botocore, and
 * what is refused. */
#include "../backends/s3/sign.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "../backends/s3/config.h"
#include "support.h"

#define EXAMPLE_HOST "examplebucket.s3.amazonaws.com"
#define EXAMPLE_TIME 1369353600 /* 2013-05-24 00:00:00 UTC */
#define MAX_PAIRS    16

static const struct s3_credentials example_keys = {
	.access_key = "AKIAIOSFODNN7EXAMPLE",
	.secret_key = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
};

static struct s3_signer *signer;

static int set_up(void **state)
{
	(void)state;
	signer = kvt__s3_signer_create();
	return signer == NULL ? -1 : 0;
}

static int tear_down(void **state)
{
	(void)state;
	kvt__s3_signer_destroy(signer);
	signer = NULL;
	return 0;
}

static struct s3_sign_request example_request(void)
{
	return (struct s3_sign_request){
		.method = "GET",
		.path = "/test.txt",
		.query = "",
		.host = EXAMPLE_HOST,
		.payload_sha256 = S3_EMPTY_SHA256,
		.region = "us-east-1",
		.now = EXAMPLE_TIME,
	};
}

/* The hex digits at the end. */
static const char *signature_of(const struct s3_signature *signature)
{
	const char *at = strstr(signature->authorization, ", Signature=");

	assert_non_null(at);
	assert_int_equal(strlen(at), 12 + 64);
	return at + 12;
}

/* ---- Published examples ---- */

static const struct s3_pair get_headers[] = {{"range", "bytes=0-9"}};
static const struct s3_pair put_headers[] = {
	{"date", "Fri, 24 May 2013 00:00:00 GMT"},
	{"x-amz-storage-class", "REDUCED_REDUNDANCY"},
};
static const struct s3_pair chunked_headers[] = {
	{"content-encoding", "aws-chunked"},
	{"content-length", "66824"},
	{"x-amz-decoded-content-length", "66560"},
	{"x-amz-storage-class", "REDUCED_REDUNDANCY"},
};
static const struct s3_pair trailer_headers[] = {
	{"content-encoding", "aws-chunked"},
	{"x-amz-decoded-content-length", "66560"},
	{"x-amz-storage-class", "REDUCED_REDUNDANCY"},
	{"x-amz-trailer", "x-amz-checksum-crc32c"},
};

static const struct {
	const char *method, *host, *path, *query, *payload;
	const struct s3_pair *headers;
	size_t header_count;
	const char *signed_headers, *signature;
} published[] = {
	{"GET", EXAMPLE_HOST, "/test.txt", "", S3_EMPTY_SHA256, get_headers, 1,
	 "host;range;x-amz-content-sha256;x-amz-date",
	 "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"},
	{"PUT", EXAMPLE_HOST, "/test%24file.text", "",
	 "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072", put_headers, 2,
	 "date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class",
	 "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"},
	{"GET", EXAMPLE_HOST, "/", "lifecycle=", S3_EMPTY_SHA256, NULL, 0,
	 "host;x-amz-content-sha256;x-amz-date",
	 "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"},
	{"GET", EXAMPLE_HOST, "/", "max-keys=2&prefix=J", S3_EMPTY_SHA256, NULL, 0,
	 "host;x-amz-content-sha256;x-amz-date",
	 "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"},
	{"PUT", "s3.amazonaws.com", "/examplebucket/chunkObject.txt", "",
	 "STREAMING-AWS4-HMAC-SHA256-PAYLOAD", chunked_headers, 4,
	 "content-encoding;content-length;host;x-amz-content-sha256;x-amz-date;"
	 "x-amz-decoded-content-length;x-amz-storage-class",
	 "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9"},
	{"PUT", "s3.amazonaws.com", "/examplebucket/chunkObject.txt", "",
	 "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER", trailer_headers, 4,
	 "content-encoding;host;x-amz-content-sha256;x-amz-date;x-amz-decoded-content-length;"
	 "x-amz-storage-class;x-amz-trailer",
	 "106e2a8a18243abcf37539882f36619c00e2dfc72633413f02d3b74544bfeb8e"},
};

static void the_examples_that_aws_publishes_are_signed_as_there(void **state)
{
	(void)state;
	for (size_t i = 0; i < TEST_COUNT(published); i++) {
		const struct s3_sign_request request = {
			.method = published[i].method,
			.path = published[i].path,
			.query = published[i].query,
			.headers = published[i].headers,
			.header_count = published[i].header_count,
			.host = published[i].host,
			.payload_sha256 = published[i].payload,
			.region = "us-east-1",
			.now = EXAMPLE_TIME,
		};
		struct s3_signature signature;
		char *expected = test_format("AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/"
					     "20130524/us-east-1/s3/aws4_request, "
					     "SignedHeaders=%s, Signature=%s",
					     published[i].signed_headers, published[i].signature);

		assert_ok(kvt__s3_sign(signer, &example_keys, &request, &signature));
		assert_string_equal("20130524T000000Z", signature.date);
		assert_string_equal(expected, signature.authorization);
		free(expected);
	}
}

/* ---- Requests that botocore signed ---- */

static const char *text_of(const json_t *object, const char *name)
{
	const json_t *value = json_object_get(object, name);

	return json_is_null(value) ? NULL : json_string_value(value);
}

static size_t pairs_of(const json_t *object, const char *name, struct s3_pair *pairs)
{
	const json_t *list = json_object_get(object, name);
	const size_t count = json_array_size(list);

	assert_true(count <= MAX_PAIRS);
	for (size_t i = 0; i < count; i++) {
		const json_t *pair = json_array_get(list, i);

		pairs[i].name = json_string_value(json_array_get(pair, 0));
		pairs[i].value = json_string_value(json_array_get(pair, 1));
	}
	return count;
}

static void check_vector(struct s3_signer *with, const json_t *vector)
{
	struct s3_pair parameters[MAX_PAIRS], headers[MAX_PAIRS];
	const size_t parameter_count = pairs_of(vector, "parameters", parameters);
	const size_t header_count = pairs_of(vector, "headers", headers);
	const struct s3_credentials credentials = {
		.access_key = text_of(vector, "access_key"),
		.secret_key = text_of(vector, "secret_key"),
		.session_token = text_of(vector, "token"),
	};
	const char *key = text_of(vector, "key");
	char path[1024], query[1024];
	struct s3_signature signature;
	struct s3_sign_request request = {
		.method = text_of(vector, "method"),
		.path = path,
		.query = query,
		.headers = headers,
		.header_count = header_count,
		.host = text_of(vector, "host"),
		.payload_sha256 = text_of(vector, "payload"),
		.region = text_of(vector, "region"),
		.now = (time_t)json_integer_value(json_object_get(vector, "now")),
	};
	char *end;

	assert_int_equal(strlen(text_of(vector, "path")),
			 kvt__s3_encode(key, strlen(key), true, path, sizeof(path)));
	assert_string_equal(text_of(vector, "path"), path);
	assert_int_equal(strlen(text_of(vector, "query")),
			 kvt__s3_query(parameters, parameter_count, query, sizeof(query)));
	assert_string_equal(text_of(vector, "query"), query);

	assert_ok(kvt__s3_sign(with, &credentials, &request, &signature));
	assert_string_equal(text_of(vector, "date"), signature.date);
	end = test_format("/s3/aws4_request, SignedHeaders=%s, Signature=%s",
			  text_of(vector, "signed_headers"), text_of(vector, "signature"));
	assert_string_equal(end, strstr(signature.authorization, "/s3/aws4_request"));
	free(end);
	end = test_format("AWS4-HMAC-SHA256 Credential=%s/%.8s/%s/s3/", credentials.access_key,
			  signature.date, request.region);
	assert_memory_equal(end, signature.authorization, strlen(end));
	free(end);
}

static void requests_are_signed_as_botocore_signs_them(void **state)
{
	json_error_t error;
	json_t *root = json_load_file(KVT_TEST_DATA_DIR "/s3_sign_vectors.json", 0, &error);
	const json_t *vectors = json_object_get(root, "vectors");

	(void)state;
	assert_non_null(root);
	assert_true(json_array_size(vectors) >= 100);
	/* In order, and with a signer that has seen nothing: what is kept never shows. */
	for (size_t i = 0; i < json_array_size(vectors); i++) {
		struct s3_signer *fresh = kvt__s3_signer_create();

		assert_non_null(fresh);
		check_vector(signer, json_array_get(vectors, i));
		check_vector(fresh, json_array_get(vectors, i));
		kvt__s3_signer_destroy(fresh);
	}
	/* And so that day, secret and region change with nearly every request. */
	for (size_t i = 0; i < json_array_size(vectors); i++)
		check_vector(signer, json_array_get(vectors, i * 37 % json_array_size(vectors)));
	json_decref(root);
}

/* ---- What the derived key is kept for ---- */

static void sign_example(const struct s3_credentials *credentials, const char *region, time_t now,
			 char signature[65])
{
	struct s3_sign_request request = example_request();
	struct s3_signature result;

	request.region = region;
	request.now = now;
	assert_ok(kvt__s3_sign(signer, credentials, &request, &result));
	memcpy(signature, signature_of(&result), 65);
}

static void day_region_and_secret_make_another_key_and_coming_back_the_same(void **state)
{
	const struct s3_credentials other = {
		.access_key = example_keys.access_key,
		/* As long as the other and different at its end. */
		.secret_key = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEZ",
	};
	const struct {
		const struct s3_credentials *credentials;
		const char *region;
		time_t now;
	} cases[] = {
		{&example_keys, "us-east-1", EXAMPLE_TIME},
		{&example_keys, "us-east-2", EXAMPLE_TIME},
		{&example_keys, "us-east-1", EXAMPLE_TIME + 86399},
		{&example_keys, "us-east-1", EXAMPLE_TIME + 86400},
		{&example_keys, "us-east-1", EXAMPLE_TIME - 1},
		{&other, "us-east-1", EXAMPLE_TIME},
	};
	char first[TEST_COUNT(cases)][65];

	(void)state;
	for (size_t i = 0; i < TEST_COUNT(cases); i++) {
		sign_example(cases[i].credentials, cases[i].region, cases[i].now, first[i]);
		for (size_t j = 0; j < i; j++)
			assert_string_not_equal(first[j], first[i]);
	}
	for (size_t i = 0; i < TEST_COUNT(cases); i++) {
		for (size_t j = 0; j < TEST_COUNT(cases); j++) {
			char again[65];

			sign_example(cases[i].credentials, cases[i].region, cases[i].now, again);
			assert_string_equal(first[i], again);
			sign_example(cases[j].credentials, cases[j].region, cases[j].now, again);
			assert_string_equal(first[j], again);
		}
	}
}

static void the_date_changes_at_midnight(void **state)
{
	const struct {
		time_t now;
		const char *date;
	} cases[] = {
		{0, "19700101T000000Z"},	  {86399, "19700101T235959Z"},
		{86400, "19700102T000000Z"},	  {951782399, "20000228T235959Z"},
		{951782400, "20000229T000000Z"},  {951868800, "20000301T000000Z"},
		{1735689599, "20241231T235959Z"}, {1735689600, "20250101T000000Z"},
		{4107542400, "21000301T000000Z"}, {253402300799, "99991231T235959Z"},
	};
	struct s3_sign_request request = example_request();
	struct s3_signature signature;

	(void)state;
	for (size_t i = 0; i < TEST_COUNT(cases); i++) {
		request.now = cases[i].now;
		assert_ok(kvt__s3_sign(signer, &example_keys, &request, &signature));
		assert_string_equal(cases[i].date, signature.date);
	}
	/* Every day of 130 years, against the C library. */
	for (time_t now = 43200; now < (time_t)130 * 366 * 86400; now += 86400) {
		struct tm tm;
		char text[17];

		request.now = now;
		assert_ok(kvt__s3_sign(signer, &example_keys, &request, &signature));
		assert_non_null(gmtime_r(&now, &tm));
		assert_int_equal(16, strftime(text, sizeof(text), "%Y%m%dT%H%M%SZ", &tm));
		assert_string_equal(text, signature.date);
	}
}

/* ---- Headers ---- */

static int sign_with(const struct s3_pair *headers, size_t count, struct s3_signature *signature)
{
	struct s3_sign_request request = example_request();

	request.headers = headers;
	request.header_count = count;
	return kvt__s3_sign(signer, &example_keys, &request, signature);
}

static void runs_of_blanks_in_headers_count_as_one(void **state)
{
	static const char *const same[] = {"a b c", " a b c", "a b c ", "a  b\tc",
					   "\ta \t b   c\t "};
	struct s3_signature first, other;

	(void)state;
	for (size_t i = 0; i < TEST_COUNT(same); i++) {
		const struct s3_pair header = {"x-amz-meta-a", same[i]};

		assert_ok(sign_with(&header, 1, i == 0 ? &first : &other));
		if (i > 0)
			assert_string_equal(signature_of(&first), signature_of(&other));
	}
	assert_ok(sign_with(&(struct s3_pair){"x-amz-meta-a", "a bc"}, 1, &other));
	assert_string_not_equal(signature_of(&first), signature_of(&other));
}

static void headers_out_of_order_or_twice_or_with_line_ends_are_refused(void **state)
{
	static const struct s3_pair cases[][2] = {
		{{"range", "bytes=0-1"}, {"content-type", "a"}},
		{{"range", "bytes=0-1"}, {"range", "bytes=0-1"}},
		{{"host", EXAMPLE_HOST}, {"range", "bytes=0-1"}},
		{{"range", "bytes=0-1"}, {"x-amz-date", "20130524T000000Z"}},
		{{"range", "bytes=0-1"}, {"x-amz-content-sha256", S3_EMPTY_SHA256}},
		{{"range", "bytes=0-1"}, {"x-amz-meta-a", "a\nx-amz-meta-b:b"}},
		{{"range", "bytes=0-1\r"}, {"x-amz-meta-a", "a"}},
	};
	struct s3_signature signature;

	(void)state;
	for (size_t i = 0; i < TEST_COUNT(cases); i++) {
		assert_int_equal(KVT_EINVAL, sign_with(cases[i], 2, &signature));
		assert_string_equal("", signature.authorization);
		assert_string_equal("", signature.date);
	}
	/* What failed leaves nothing behind. */
	assert_ok(sign_with(get_headers, 1, &signature));
	assert_string_equal(published[0].signature, signature_of(&signature));
}

static void a_session_token_of_many_kibibytes_is_signed_whole(void **state)
{
	const size_t bytes = 20000;
	struct s3_credentials keys = example_keys;
	struct s3_sign_request request = example_request();
	struct s3_signature first, other;
	char *token = malloc(bytes + 1);

	(void)state;
	assert_non_null(token);
	memset(token, 't', bytes);
	token[bytes] = '\0';
	keys.session_token = token;
	assert_ok(kvt__s3_sign(signer, &keys, &request, &first));
	assert_non_null(strstr(first.authorization,
			       "SignedHeaders=host;x-amz-content-sha256;x-amz-date;"
			       "x-amz-security-token, "));
	for (size_t at = 0; at < bytes; at += 1999) {
		token[at] = 'u';
		assert_ok(kvt__s3_sign(signer, &keys, &request, &other));
		assert_string_not_equal(signature_of(&first), signature_of(&other));
		token[at] = 't';
	}
	token[bytes - 1] = 'u';
	assert_ok(kvt__s3_sign(signer, &keys, &request, &other));
	assert_string_not_equal(signature_of(&first), signature_of(&other));
	free(token);
}

/* ---- What does not fit ---- */

static char *repeated(char c, size_t bytes)
{
	char *text = malloc(bytes + 1);

	assert_non_null(text);
	memset(text, c, bytes);
	text[bytes] = '\0';
	return text;
}

static void what_does_not_fit_is_refused_and_never_cut(void **state)
{
	static const char rest[] =
		"AWS4-HMAC-SHA256 Credential=/20130524/us-east-1/s3/aws4_request, "
		"SignedHeaders=host;x-amz-content-sha256;x-amz-date, Signature=";
	struct s3_sign_request request = example_request();
	struct s3_signature signature;

	(void)state;
	for (size_t bytes = 1020; bytes < 2200; bytes++) {
		char *access_key = repeated('A', bytes);
		const struct s3_credentials keys = {.access_key = access_key, .secret_key = "s"};
		const int result = kvt__s3_sign(signer, &keys, &request, &signature);

		assert_int_equal(bytes <= 1024 ? 0 : KVT_EINVAL, result);
		assert_int_equal(bytes <= 1024 ? bytes + strlen(rest) + 64 : 0,
				 strlen(signature.authorization));
		free(access_key);
	}
	for (size_t bytes = 1; bytes < 2000; bytes++) {
		char *name = repeated('n', bytes);
		const struct s3_pair header = {name, "v"};
		const int result = sign_with(&header, 1, &signature);

		assert_true(result == 0 || result == KVT_EINVAL);
		assert_true(result == 0 || bytes > 1500);
		if (result == 0)
			assert_int_equal(64, strlen(signature_of(&signature)));
		else
			assert_string_equal("", signature.authorization);
		free(name);
	}
	for (size_t bytes = 1000; bytes < 1100; bytes++) {
		char *secret = repeated('s', bytes);
		const struct s3_credentials keys = {.access_key = "A", .secret_key = secret};

		assert_int_equal(bytes <= 1024 ? 0 : KVT_EINVAL,
				 kvt__s3_sign(signer, &keys, &request, &signature));
		free(secret);
	}
	for (size_t bytes = 100; bytes < 300; bytes++) {
		char *region = repeated('r', bytes);

		request.region = region;
		assert_int_equal(bytes <= 128 ? 0 : KVT_EINVAL,
				 kvt__s3_sign(signer, &example_keys, &request, &signature));
		free(region);
	}
	request = example_request();
	request.now = -1;
	assert_int_equal(KVT_EINVAL, kvt__s3_sign(signer, &example_keys, &request, &signature));
	request.now = 253402300800;
	assert_int_equal(KVT_EINVAL, kvt__s3_sign(signer, &example_keys, &request, &signature));
}

/* ---- Payloads ---- */

static void payloads_are_hashed_in_pieces_also_while_requests_are_signed(void **state)
{
	static const char text[] = "Welcome to Amazon S3.";
	struct s3_signature signature;
	char hex[65];

	(void)state;
	assert_ok(kvt__s3_sha256_begin(signer));
	assert_ok(kvt__s3_sha256_end(signer, hex));
	assert_string_equal(S3_EMPTY_SHA256, hex);

	assert_ok(kvt__s3_sha256_begin(signer));
	for (size_t i = 0; i < sizeof(text) - 1; i++) {
		assert_ok(kvt__s3_sha256_add(signer, text + i, 1));
		assert_ok(sign_with(get_headers, 1, &signature));
		assert_string_equal(published[0].signature, signature_of(&signature));
	}
	assert_ok(kvt__s3_sha256_end(signer, hex));
	assert_string_equal(published[1].payload, hex);

	/* Begun again before its end: what came before does not count. */
	assert_ok(kvt__s3_sha256_begin(signer));
	assert_ok(kvt__s3_sha256_add(signer, "x", 1));
	assert_ok(kvt__s3_sha256_begin(signer));
	assert_ok(kvt__s3_sha256_add(signer, text, sizeof(text) - 1));
	assert_ok(kvt__s3_sha256_end(signer, hex));
	assert_string_equal(published[1].payload, hex);
}

/* ---- Queries ---- */

static void queries_are_sorted_as_encoded_by_name_then_by_value(void **state)
{
	static const struct {
		struct s3_pair parameters[4];
		size_t count;
		const char *query;
	} cases[] = {
		{{{NULL, NULL}}, 0, ""},
		{{{"uploads", ""}}, 1, "uploads="},
		{{{"uploadId", "2~a/+="}, {"partNumber", "7"}},
		 2,
		 "partNumber=7&uploadId=2~a%2F%2B%3D"},
		{{{"a-", "1"}, {"a", "2"}}, 2, "a=2&a-=1"}, /* "=" is no part of the name */
		{{{"a", "b"}, {"a", "B"}, {"a", ""}, {"a", "%"}}, 4, "a=&a=%25&a=B&a=b"},
		{{{"b", "1"}, {"\xc3\xbc", "2"}, {"A", "3"}, {"~", "4"}},
		 4,
		 "%C3%BC=2&A=3&b=1&~=4"},
		{{{"a b", "c d"}, {"a+b", "c+d"}}, 2, "a%20b=c%20d&a%2Bb=c%2Bd"},
		/* No UTF-8: bytes are bytes. */
		{{{"\xff", "1"}, {"\x80", "2"}, {"\x01", "3"}, {"0", "4"}},
		 4,
		 "%01=3&%80=2&%FF=1&0=4"},
	};

	(void)state;
	for (size_t i = 0; i < TEST_COUNT(cases); i++) {
		const size_t bytes = strlen(cases[i].query);
		char out[64];

		assert_int_equal(bytes, kvt__s3_query(cases[i].parameters, cases[i].count, out,
						      sizeof(out)));
		assert_string_equal(cases[i].query, out);
		/* Every room that is too small, and the one that is just enough. */
		for (size_t room = 0; room <= bytes; room++) {
			memset(out, 'x', sizeof(out));
			assert_int_equal(
				0, kvt__s3_query(cases[i].parameters, cases[i].count, out, room));
			assert_int_equal('x', out[room]);
			assert_true(room == 0 || out[0] == '\0');
		}
		assert_int_equal(
			bytes, kvt__s3_query(cases[i].parameters, cases[i].count, out, bytes + 1));
	}
}

static void a_query_of_more_than_sixteen_parameters_is_refused(void **state)
{
	struct s3_pair parameters[17];
	char out[256];

	(void)state;
	for (size_t i = 0; i < TEST_COUNT(parameters); i++)
		parameters[i] = (struct s3_pair){"a", "1"};
	assert_int_equal(16 * 4 - 1, kvt__s3_query(parameters, 16, out, sizeof(out)));
	assert_int_equal(0, kvt__s3_query(parameters, 17, out, sizeof(out)));
	assert_string_equal("", out);
}

static void destroying_nothing_is_fine(void **state)
{
	(void)state;
	kvt__s3_signer_destroy(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_examples_that_aws_publishes_are_signed_as_there),
		cmocka_unit_test(requests_are_signed_as_botocore_signs_them),
		cmocka_unit_test(day_region_and_secret_make_another_key_and_coming_back_the_same),
		cmocka_unit_test(the_date_changes_at_midnight),
		cmocka_unit_test(runs_of_blanks_in_headers_count_as_one),
		cmocka_unit_test(headers_out_of_order_or_twice_or_with_line_ends_are_refused),
		cmocka_unit_test(a_session_token_of_many_kibibytes_is_signed_whole),
		cmocka_unit_test(what_does_not_fit_is_refused_and_never_cut),
		cmocka_unit_test(payloads_are_hashed_in_pieces_also_while_requests_are_signed),
		cmocka_unit_test(queries_are_sorted_as_encoded_by_name_then_by_value),
		cmocka_unit_test(a_query_of_more_than_sixteen_parameters_is_refused),
		cmocka_unit_test(destroying_nothing_is_fine),
	};

	return cmocka_run_group_tests_name("s3_sign", tests, set_up, tear_down);
}
