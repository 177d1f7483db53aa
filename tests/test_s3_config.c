/* SPDX-License-Identifier: Apache-2.0 */
/* What the URI and the options of an S3 store say becomes what requests need, and what is wrong
 * with them is said before the first request. */
#include "s3_config_scene.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AKIA "access_key=AKIAEXAMPLE", "secret_key=" SCENE_SECRET

/* ---- The URI ---- */

static void a_uri_names_a_bucket_and_a_prefix(void **state)
{
	static const struct {
		const char *location, *bucket, *prefix, *key_root;
	} rows[] = {
		{"//bucket", "bucket", "", ""},
		{"//bucket/", "bucket", "", ""},
		{"//bucket/prefix", "bucket", "prefix", "prefix/"},
		{"//bucket/prefix/", "bucket", "prefix", "prefix/"},
		{"//bucket//a///b//", "bucket", "a/b", "a/b/"},
		{"//bucket/kv/cache", "bucket", "kv/cache", "kv/cache/"},
		{"//a.b-c/x", "a.b-c", "x", "x/"},
		{"//ab/x", "ab", "x", "x/"},
		{"//Upper_Case/x", "Upper_Case", "x", "x/"},
		{"//tenant:bucket/x", "tenant:bucket", "x", "x/"},
		{"//b/a@b", "b", "a@b", "a@b/"},
		{"//b/a b+c%2F~", "b", "a b+c%2F~", "a b+c%2F~/"},
		{"//b/.hidden/...", "b", ".hidden/...", ".hidden/.../"},
		{"//b/\xc3\xbc/\xe6\x97\xa5/\xf0\x9f\x98\x80", "b",
		 "\xc3\xbc/\xe6\x97\xa5/\xf0\x9f\x98\x80",
		 "\xc3\xbc/\xe6\x97\xa5/\xf0\x9f\x98\x80/"},
	};
	struct scene *scene = *state;

	for (size_t i = 0; i < TEST_COUNT(rows); i++) {
		assert_read(scene, rows[i].location);
		assert_string_equal(scene->s3.bucket, rows[i].bucket);
		assert_string_equal(scene->s3.prefix, rows[i].prefix);
		assert_string_equal(scene->s3.key_root, rows[i].key_root);
	}
}

static void a_uri_that_is_none_is_refused_without_repeating_it(void **state)
{
	static const struct {
		const char *location, *says;
	} rows[] = {
		{"", "no // behind the scheme"},
		{"bucket", "no // behind the scheme"},
		{"/bucket/x", "no // behind the scheme"},
		{"//", "no bucket"},
		{"///prefix", "no bucket"},
		{"//minio:9000/bucket", "host and port"},
		{"//key:" SCENE_SECRET "@bucket/x", "user info"},
		{"//" SCENE_SECRET "@bucket", "user info"},
		{"//key:ab/" SCENE_SECRET "@bucket", "user info"},
		{"//bucket/x?secret_key=" SCENE_SECRET, "a query"},
		{"//bucket?secret_key=" SCENE_SECRET, "a query"},
		{"//bucket/x#" SCENE_SECRET, "a query or fragment"},
		{"//buck et/x", "other characters"},
		{"//b\xc3\xbc/x", "other characters"},
		{"//b%41/x", "other characters"},
		{"//./x", "a bucket of dots"},
		{"//../x", "a bucket of dots"},
		{"//b/a/../c", "a component . or .."},
		{"//b/..", "a component . or .."},
		{"//b/./c", "a component . or .."},
		{"//b/a\tb", "plain text"},
		{"//b/\x7f", "plain text"},
		{"//b/\xff", "plain text"},
		{"//b/\xc3", "plain text"},
		{"//b/\xc0\xaf", "plain text"},
		{"//b/\xe0\x80\xaf", "plain text"},
		{"//b/\xed\xa0\x80", "plain text"},
		{"//b/\xf4\x90\x80\x80", "plain text"},
		{"//b/\xc2\x85", "plain text"},
	};
	struct scene *scene = *state;

	for (size_t i = 0; i < TEST_COUNT(rows); i++)
		assert_refused(KVT_EINVAL, rows[i].says, scene, rows[i].location);
}

static void long_buckets_and_prefixes_are_refused(void **state)
{
	struct scene *scene = *state;
	char text[1400] = "//b/";
	size_t used = 4;

	memset(text + 2, 'b', 255);
	text[257] = '\0';
	assert_read(scene, text);
	memcpy(text + 257, "b", 2);
	assert_refused(KVT_EINVAL, "more than 255 bytes", scene, text);

	memcpy(text, "//b/", 4);
	memset(text + 4, 'a', 255);
	text[259] = '\0';
	assert_read(scene, text);
	memcpy(text + 259, "a", 2);
	assert_refused(KVT_EINVAL, "a component of more than 255 bytes", scene, text);

	for (; used + 8 < 1020; used += 8)
		memcpy(text + used, "aaaaaaa/", 8);
	text[used] = '\0';
	assert_read(scene, text);
	memcpy(text + used, "aaaaaaa/aaaaaaa/", 17);
	assert_refused(KVT_EINVAL, "leaves no room", scene, text);
}

static void names_are_compatible_with_the_object_tier_of_vllm(void **state)
{
	struct scene *scene = *state;
	json_t *vectors = json_load_file(KVT_TEST_DATA_DIR "/name_vectors.json", 0, NULL), *vector;
	size_t i, seen = 0;

	assert_non_null(vectors);
	json_array_foreach(vectors, i, vector)
	{
		const char *name = json_string_value(json_object_get(vector, "name"));
		const char *file = json_string_value(json_object_get(vector, "file"));
		bool no_prefix = strcmp(name, "i_obj_noprefix") == 0;
		const char *base = strstr(file, "test_model_");
		char key[1024];

		if (!no_prefix && strcmp(name, "j_obj_prefix") != 0)
			continue;
		assert_read(scene, no_prefix ? "//b" : "//b/kv", "compat_names=vllm-obj");
		(void)snprintf(key, sizeof(key), "%s%s", scene->s3.key_root, base);
		assert_string_equal(key, file);
		seen++;
	}
	json_decref(vectors);
	assert_int_equal(seen, 2);
	/* Its prefix is taken as it stands. */
	assert_read(scene, "//b/kv//x/", "compat_names=vllm-obj");
	assert_string_equal(scene->s3.key_root, "kv//x///");
	assert_string_equal(scene->s3.prefix, "kv/x");
	assert_read(scene, "//b/kv//x/", "compat_names=kvtier");
	assert_string_equal(scene->s3.key_root, "kv/x/");
	assert_refused(KVT_EINVAL, "option compat_names: \"vllm\", expected kvtier or vllm-obj",
		       scene, "//b", "compat_names=vllm");
}

/* ---- The server ---- */

static void an_endpoint_becomes_the_address(void **state)
{
	static const struct {
		const char *location, *options[4], *base_url, *path;
		bool is_virtual, is_loopback, is_aws;
	} rows[] = {
		/* AWS, from the region */
		{"//buck", {NULL}, "https://buck.s3.us-east-1.amazonaws.com", "", 1, 0, 1},
		{"//buck",
		 {"region=eu-west-1"},
		 "https://buck.s3.eu-west-1.amazonaws.com",
		 "",
		 1,
		 0,
		 1},
		{"//buck",
		 {"region=cn-north-1"},
		 "https://buck.s3.cn-north-1.amazonaws.com.cn",
		 "",
		 1,
		 0,
		 1},
		{"//buck", {"scheme=http"}, "http://buck.s3.us-east-1.amazonaws.com", "", 1, 0, 1},
		{"//my.buck", {NULL}, "https://s3.us-east-1.amazonaws.com", "/my.buck", 0, 0, 1},
		{"//Buck", {NULL}, "https://s3.us-east-1.amazonaws.com", "/Buck", 0, 0, 1},
		{"//my_buck", {NULL}, "https://s3.us-east-1.amazonaws.com", "/my_buck", 0, 0, 1},
		{"//ab", {NULL}, "https://ab.s3.us-east-1.amazonaws.com", "", 1, 0, 1},
		{"//-buck", {NULL}, "https://s3.us-east-1.amazonaws.com", "/-buck", 0, 0, 1},
		{"//buck",
		 {"addressing=path"},
		 "https://s3.us-east-1.amazonaws.com",
		 "/buck",
		 0,
		 0,
		 1},
		/* given */
		{"//buck",
		 {"endpoint=https://s3.eu-west-1.amazonaws.com"},
		 "https://s3.eu-west-1.amazonaws.com",
		 "/buck",
		 0,
		 0,
		 1},
		{"//buck", {"endpoint=minio.lan"}, "https://minio.lan", "/buck", 0, 0, 0},
		{"//buck", {"endpoint=minio.lan:9000"}, "https://minio.lan:9000", "/buck", 0, 0, 0},
		{"//buck", {"endpoint=http://minio:9000"}, "http://minio:9000", "/buck", 0, 0, 0},
		{"//buck", {"endpoint_override=http://minio"}, "http://minio", "/buck", 0, 0, 0},
		{"//buck", {"endpoint=HTTP://MinIO:80/"}, "http://minio", "/buck", 0, 0, 0},
		{"//buck", {"endpoint=https://m:443"}, "https://m", "/buck", 0, 0, 0},
		{"//buck", {"endpoint=https://m:80"}, "https://m:80", "/buck", 0, 0, 0},
		{"//buck", {"endpoint=http://m:443"}, "http://m:443", "/buck", 0, 0, 0},
		{"//buck", {"endpoint=http://m:09000"}, "http://m:9000", "/buck", 0, 0, 0},
		{"//buck",
		 {"endpoint=http://my_minio:9000"},
		 "http://my_minio:9000",
		 "/buck",
		 0,
		 0,
		 0},
		{"//t:buck", {"endpoint=http://m"}, "http://m", "/t%3Abuck", 0, 0, 0},
		{"//buck", {"endpoint=m:1", "scheme=http"}, "http://m:1", "/buck", 0, 0, 0},
		{"//buck", {"endpoint=http://m:1", "scheme=http"}, "http://m:1", "/buck", 0, 0, 0},
		{"//buck", {"endpoint=m", "endpoint_override=m"}, "https://m", "/buck", 0, 0, 0},
		{"//buck",
		 {"endpoint=http://m:7480", "addressing=virtual"},
		 "http://buck.m:7480",
		 "",
		 1,
		 0,
		 0},
		{"//my.buck",
		 {"endpoint=http://m:7480", "addressing=virtual"},
		 "http://my.buck.m:7480",
		 "",
		 1,
		 0,
		 0},
		{"//my.buck",
		 {"endpoint=https://m", "addressing=virtual", "verify=off"},
		 "https://my.buck.m",
		 "",
		 1,
		 0,
		 0},
		/* addresses, and what is this machine */
		{"//buck",
		 {"endpoint=http://127.0.0.1:9000"},
		 "http://127.0.0.1:9000",
		 "/buck",
		 0,
		 1,
		 0},
		{"//buck", {"endpoint=http://127.9.9.9"}, "http://127.9.9.9", "/buck", 0, 1, 0},
		{"//buck", {"endpoint=http://10.0.0.1"}, "http://10.0.0.1", "/buck", 0, 0, 0},
		{"//buck", {"endpoint=http://localhost:1"}, "http://localhost:1", "/buck", 0, 1, 0},
		{"//buck",
		 {"endpoint=http://s3.localhost"},
		 "http://s3.localhost",
		 "/buck",
		 0,
		 1,
		 0},
		{"//buck",
		 {"endpoint=http://notlocalhost"},
		 "http://notlocalhost",
		 "/buck",
		 0,
		 0,
		 0},
		{"//buck",
		 {"endpoint=http://127.example.com"},
		 "http://127.example.com",
		 "/buck",
		 0,
		 0,
		 0},
		{"//buck", {"endpoint=http://[::1]:9000"}, "http://[::1]:9000", "/buck", 0, 1, 0},
		{"//buck", {"endpoint=[::1]"}, "https://[::1]", "/buck", 0, 1, 0},
		{"//buck",
		 {"endpoint=http://[2001:DB8:0:0::1]:80"},
		 "http://[2001:db8::1]",
		 "/buck",
		 0,
		 0,
		 0},
	};
	struct scene *scene = *state;

	for (size_t i = 0; i < TEST_COUNT(rows); i++) {
		int error = scene_read_list(scene, rows[i].location, rows[i].options);

		scene_refused(0, "", error, rows[i].base_url, __LINE__);
		assert_string_equal(scene->s3.base_url, rows[i].base_url);
		assert_string_equal(scene->s3.authority, strstr(rows[i].base_url, "://") + 3);
		assert_string_equal(scene->s3.bucket_path, rows[i].path);
		assert_int_equal(scene->s3.https, rows[i].base_url[4] == 's');
		assert_int_equal(scene->s3.is_virtual, rows[i].is_virtual);
		assert_int_equal(scene->s3.is_loopback, rows[i].is_loopback);
		assert_int_equal(scene->s3.is_aws, rows[i].is_aws);
	}
}

static void an_endpoint_that_is_none_is_refused(void **state)
{
	static const struct {
		const char *options[4], *says;
	} rows[] = {
		{{"endpoint="}, "option endpoint: \"\", expected a host name"},
		{{"endpoint=ftp://m"}, "expected http://host[:port] or https://host[:port]"},
		{{"endpoint=httpss://m"}, "expected http://host[:port]"},
		{{"endpoint=://m"}, "expected http://host[:port]"},
		{{"endpoint=http://"}, "expected a host name"},
		{{"endpoint=http:///b"}, "no path"},
		{{"endpoint=http://m/bucket"}, "no path, no query"},
		{{"endpoint=http://m//"}, "no path"},
		{{"endpoint=http://m?x=y"}, "no path, no query"},
		{{"endpoint=http://m/#x"}, "no path"},
		{{"endpoint=http://user:" SCENE_SECRET "@m"}, "without user info"},
		{{"endpoint=" SCENE_SECRET "@m:1"}, "without user info"},
		{{"endpoint_override=http://a:" SCENE_SECRET "@m"}, "option endpoint_override: ex"},
		{{"endpoint=m:"}, "a port from 1 to 65535"},
		{{"endpoint=m:0"}, "a port from 1 to 65535"},
		{{"endpoint=m:65536"}, "a port from 1 to 65535"},
		{{"endpoint=m:99999999999999"}, "a port from 1 to 65535"},
		{{"endpoint=m:80x"}, "a port from 1 to 65535"},
		{{"endpoint=m:-1"}, "a port from 1 to 65535"},
		{{"endpoint=[::1]x"}, "a port from 1 to 65535"},
		{{"endpoint=::1"}, "brackets around an IPv6 address"},
		{{"endpoint=http://2001:db8::1"}, "brackets around an IPv6 address"},
		{{"endpoint=[::1"}, "brackets around"},
		{{"endpoint=[::g]"}, "a host name, an IPv4 address or an IPv6 address"},
		{{"endpoint=[fe80::1%25eth0]"}, "an IPv6 address in brackets"},
		{{"endpoint=[127.0.0.1]"}, "an IPv6 address in brackets"},
		{{"endpoint=[]"}, "an IPv6 address in brackets"},
		{{"endpoint=a b"}, "a host name"},
		{{"endpoint= m"}, "a host name"},
		{{"endpoint=m\\n"}, "a host name"},
		{{"endpoint=m%2e"}, "a host name"},
		{{"endpoint=m\xc3\xbc"}, "a host name"},
		{{"endpoint=a..b"}, "a host name"},
		{{"endpoint=m."}, "a host name"},
		{{"endpoint=-m"}, "a host name"},
		{{"endpoint=127.1"}, "an IPv4 address"},
		{{"endpoint=2130706433"}, "an IPv4 address"},
		{{"endpoint=0x7f000001"}, "an IPv4 address"},
		{{"endpoint=1.2.3.256"}, "an IPv4 address"},
		{{"endpoint=m", "endpoint_override=n"},
		 "option endpoint: \"m\", expected the same as option endpoint_override"},
		{{"endpoint=http://m", "scheme=https"},
		 "option scheme: \"https\", but option endpoint says http, expected the same"},
		{{"endpoint=https://m", "scheme=http"}, "says https"},
		{{"endpoint=m", "scheme=HTTP"}, "expected http or https"},
		{{"endpoint=m", "scheme="}, "expected http or https"},
		{{"region="}, "option region: \"\", expected a region"},
		{{"region=eu west"}, "option region: \"eu west\", expected a region"},
		{{"region=a/b"}, "expected a region"},
		{{"region=RegionOne"}, "expected a region of AWS"},
		{{"region=evil.example"}, "expected a region of AWS"},
	};
	struct scene *scene = *state;
	char label[80] = "endpoint=";

	for (size_t i = 0; i < TEST_COUNT(rows); i++)
		scene_refused(KVT_EINVAL, rows[i].says,
			      scene_read_list(scene, "//buck", rows[i].options), rows[i].options[0],
			      __LINE__);
	memset(label + 9, 'a', 63);
	assert_read(scene, "//buck", label);
	label[72] = 'a';
	assert_refused(KVT_EINVAL, "a host name", scene, "//buck", label);
}

static void addressing_that_cannot_be_is_refused(void **state)
{
	static const struct {
		const char *location, *options[4], *says;
	} rows[] = {
		{"//buck", {"addressing=host"}, "expected auto, path or virtual"},
		{"//buck", {"addressing=virtual", "endpoint=http://10.1.1.1"}, "is an address"},
		{"//buck", {"addressing=virtual", "endpoint=http://[::1]"}, "is an address"},
		{"//Buck", {"addressing=virtual"}, "cannot stand in a host name"},
		{"//my_buck", {"addressing=virtual"}, "cannot stand in a host name"},
		{"//t:b", {"addressing=virtual"}, "cannot stand in a host name"},
		{"//a.b.c", {"addressing=virtual"}, "no certificate covers a bucket with a dot"},
	};
	struct scene *scene = *state;
	char host[300] = "endpoint=";

	for (size_t i = 0; i < TEST_COUNT(rows); i++)
		scene_refused(KVT_EINVAL, rows[i].says,
			      scene_read_list(scene, rows[i].location, rows[i].options),
			      rows[i].options[0], __LINE__);
	for (size_t i = 0; i < 252; i += 2)
		memcpy(host + 9 + i, "a.", 2);
	memcpy(host + 9 + 252, "a", 2);
	assert_read(scene, "//buck", host);
	assert_refused(KVT_EINVAL, "are 258 bytes, expected at most 253", scene, "//buck", host,
		       "addressing=virtual");
}

static void a_region_comes_from_the_host_of_aws_too(void **state)
{
	struct scene *scene = *state;

	assert_read(scene, "//buck");
	assert_string_equal(scene->s3.region, "us-east-1");
	assert_false(scene->s3.region_given);
	assert_read(scene, "//buck", "endpoint=s3.eu-west-3.amazonaws.com");
	assert_string_equal(scene->s3.region, "eu-west-3");
	assert_true(scene->s3.region_given);
	assert_read(scene, "//buck", "endpoint=s3.eu-west-3.amazonaws.com", "region=us-west-2");
	assert_string_equal(scene->s3.region, "us-west-2");
	assert_read(scene, "//buck", "endpoint=s3.amazonaws.com");
	assert_string_equal(scene->s3.region, "us-east-1");
	assert_read(scene, "//buck", "endpoint=swift.lan", "region=RegionOne");
	assert_string_equal(scene->s3.region, "RegionOne");
	assert_string_equal(scene->s3.credentials.region, "RegionOne");
	assert_string_equal(scene->s3.credentials.sts_endpoint, "https://sts.amazonaws.com");
	assert_read(scene, "//buck", "region=cn-north-1");
	assert_string_equal(scene->s3.credentials.sts_endpoint,
			    "https://sts.cn-north-1.amazonaws.com.cn");
}

static void a_region_that_a_reply_names_must_be_plausible(void **state)
{
	char name[66];

	(void)state;
	memset(name, 'a', 65);
	name[65] = '\0';
	assert_true(kvt__s3_region_is_plausible("eu-west-1"));
	assert_true(kvt__s3_region_is_plausible("default"));
	assert_true(kvt__s3_region_is_plausible(name + 1));
	assert_false(kvt__s3_region_is_plausible(name));
	assert_false(kvt__s3_region_is_plausible(""));
	assert_false(kvt__s3_region_is_plausible("EU"));
	assert_false(kvt__s3_region_is_plausible("a.b"));
	assert_false(kvt__s3_region_is_plausible("a/b"));
	assert_false(kvt__s3_region_is_plausible("a\r\nb"));
}

static void keys_are_encoded_as_s3_signs_them(void **state)
{
	static const struct {
		const char *text, *whole, *path;
	} rows[] = {
		{"AZaz09-._~", "AZaz09-._~", "AZaz09-._~"},
		{"a/b", "a%2Fb", "a/b"},
		{"a b+c=(d)*:@,'", "a%20b%2Bc%3D%28d%29%2A%3A%40%2C%27",
		 "a%20b%2Bc%3D%28d%29%2A%3A%40%2C%27"},
		{"%2F", "%252F", "%252F"},
		{"\xc3\xbc\x7f\x01", "%C3%BC%7F%01", "%C3%BC%7F%01"},
	};
	char out[64];

	(void)state;
	for (size_t i = 0; i < TEST_COUNT(rows); i++) {
		size_t bytes = strlen(rows[i].text), whole = strlen(rows[i].whole);

		assert_int_equal(kvt__s3_encode(rows[i].text, bytes, false, out, sizeof(out)),
				 whole);
		assert_string_equal(out, rows[i].whole);
		assert_int_equal(kvt__s3_encode(rows[i].text, bytes, true, out, sizeof(out)),
				 strlen(rows[i].path));
		assert_string_equal(out, rows[i].path);
		/* Exactly enough room, and one byte less. */
		assert_int_equal(kvt__s3_encode(rows[i].text, bytes, false, out, whole + 1), whole);
		for (size_t room = 0; room <= whole; room++) {
			memset(out, '#', sizeof(out));
			assert_int_equal(kvt__s3_encode(rows[i].text, bytes, false, out, room), 0);
			assert_int_equal(out[room], '#');
		}
	}
	assert_int_equal(kvt__s3_encode("a\0b", 3, true, out, sizeof(out)), 5);
	assert_string_equal(out, "a%00b");
}

/* ---- Numbers and words ---- */

static void numbers_have_limits(void **state)
{
	static const struct {
		const char *name, *least, *most, *below, *above;
	} rows[] = {
		{"max_connections", "1", "65536", "0", "65537"},
		{"connect_timeout_ms", "1", "86400000", "0", "86400001"},
		{"first_byte_timeout_ms", "1", "86400000", "0", "86400001"},
		{"low_speed_bytes", "1", "1073741824", "0", "1073741825"},
		{"low_speed_seconds", "0", "3600", "-1", "3601"},
		{"lookup_cache_entries", "0", "16777216", "-1", "16777217"},
		{"lookup_cache_hit_ms", "0", "86400000", "-1", "86400001"},
		{"lookup_cache_miss_ms", "0", "86400000", "-1", "86400001"},
		{"part_bytes", "5242880", "5368709120", "5242879", "5368709121"},
	};
	static const char *const garbage[] = {"",
					      "x",
					      "1x",
					      " 1",
					      "1 ",
					      "+1",
					      "0x10",
					      "1.5",
					      "18446744073709551617",
					      "99999999999999999999999999"};
	struct scene *scene = *state;
	char option[80];

	for (size_t i = 0; i < TEST_COUNT(rows); i++) {
		const char *good[] = {rows[i].least, rows[i].most};
		const char *bad[] = {rows[i].below, rows[i].above};
		char says[120];

		(void)snprintf(says, sizeof(says), "option %s: \"", rows[i].name);
		for (size_t k = 0; k < 2; k++) {
			(void)snprintf(option, sizeof(option), "%s=%s", rows[i].name, good[k]);
			assert_read(scene, "//b", option);
			(void)snprintf(option, sizeof(option), "%s=%s", rows[i].name, bad[k]);
			assert_refused(KVT_EINVAL, says, scene, "//b", option);
			assert_non_null(strstr(scene_failure(), "expected a number"));
		}
		for (size_t k = 0; k < TEST_COUNT(garbage); k++) {
			(void)snprintf(option, sizeof(option), "%s=%s", rows[i].name, garbage[k]);
			assert_refused(KVT_EINVAL, says, scene, "//b", option);
		}
	}
	assert_read(scene, "//b", "max_connections=7", "connect_timeout_ms=8",
		    "first_byte_timeout_ms=9", "low_speed_bytes=10", "low_speed_seconds=11",
		    "lookup_cache_entries=12", "lookup_cache_hit_ms=13", "lookup_cache_miss_ms=14");
	assert_int_equal(scene->s3.max_connections, 7);
	assert_int_equal(scene->s3.connect_timeout_ms, 8);
	assert_int_equal(scene->s3.first_byte_timeout_ms, 9);
	assert_int_equal(scene->s3.low_speed_bytes, 10);
	assert_int_equal(scene->s3.low_speed_seconds, 11);
	assert_int_equal(scene->s3.lookup_cache_entries, 12);
	assert_int_equal(scene->s3.lookup_cache_hit_ms, 13);
	assert_int_equal(scene->s3.lookup_cache_miss_ms, 14);
}

static void parts_have_units(void **state)
{
	static const struct {
		const char *option;
		uint64_t bytes;
	} rows[] = {
		{"part_bytes=0", 0},
		{"part_bytes=8M", UINT64_C(8) << 20},
		{"part_bytes=8m", UINT64_C(8) << 20},
		{"part_bytes=16MiB", UINT64_C(16) << 20},
		{"part_bytes=8192K", UINT64_C(8) << 20},
		{"part_bytes=5G", UINT64_C(5) << 30},
		{"part_bytes=5GB", UINT64_C(5) << 30},
	};
	static const char *const bad[] = {"part_bytes=4M",  "part_bytes=6G", "part_bytes=8Mx",
					  "part_bytes=8 M", "part_bytes=1T", "part_bytes=8MiBx",
					  "part_bytes=M"};
	struct scene *scene = *state;

	for (size_t i = 0; i < TEST_COUNT(rows); i++) {
		assert_read(scene, "//b", rows[i].option);
		assert_true(scene->s3.part_bytes == rows[i].bytes);
	}
	for (size_t i = 0; i < TEST_COUNT(bad); i++)
		assert_refused(KVT_EINVAL, "from 5M (the least that S3 takes) to 5G", scene, "//b",
			       bad[i]);
}

static void words_choose(void **state)
{
	static const struct {
		const char *option;
		enum s3_exists_check check;
	} checks[] = {{"exists_check=auto", S3_EXISTS_AUTO},
		      {"exists_check=conditional", S3_EXISTS_CONDITIONAL},
		      {"exists_check=head", S3_EXISTS_HEAD},
		      {"exists_check=none", S3_EXISTS_NONE}};
	static const char *const on[] = {"on", "true", "YES", "1"};
	static const char *const off[] = {"off", "False", "no", "0"};
	struct scene *scene = *state;
	char option[40];

	for (size_t i = 0; i < TEST_COUNT(checks); i++) {
		assert_read(scene, "//b", checks[i].option);
		assert_int_equal(scene->s3.exists_check, checks[i].check);
	}
	assert_read(scene, "//b", "payload_signing=signed", "checksum=s3");
	assert_true(scene->s3.signed_payload && scene->s3.checksum);
	assert_read(scene, "//b", "payload_signing=unsigned", "checksum=none");
	assert_false(scene->s3.signed_payload || scene->s3.checksum);
	for (size_t i = 0; i < TEST_COUNT(on); i++) {
		(void)snprintf(option, sizeof(option), "verify=%s", on[i]);
		assert_read(scene, "//b", option);
		assert_true(scene->s3.verify);
		(void)snprintf(option, sizeof(option), "verify=%s", off[i]);
		assert_read(scene, "//b", option);
		assert_false(scene->s3.verify);
	}
	assert_refused(KVT_EINVAL, "option verify: \"maybe\", expected on or off", scene, "//b",
		       "verify=maybe");
	assert_refused(KVT_EINVAL, "expected unsigned or signed", scene, "//b",
		       "payload_signing=yes");
	assert_refused(KVT_EINVAL, "expected none or s3", scene, "//b", "checksum=crc32c");
	assert_refused(KVT_EINVAL, "expected auto, conditional, head or none", scene, "//b",
		       "exists_check=always");
}

static void every_default_is_what_the_list_says(void **state)
{
	struct scene *scene = *state;
	size_t count = 0;

	assert_read(scene, "//b", "endpoint=m");
	assert_int_equal(scene->s3.max_connections, 256);
	assert_int_equal(scene->s3.connect_timeout_ms, 3000);
	assert_int_equal(scene->s3.first_byte_timeout_ms, 10000);
	assert_int_equal(scene->s3.low_speed_bytes, 1024);
	assert_int_equal(scene->s3.low_speed_seconds, 30);
	assert_int_equal(scene->s3.lookup_cache_entries, 65536);
	assert_int_equal(scene->s3.lookup_cache_hit_ms, 30000);
	assert_int_equal(scene->s3.lookup_cache_miss_ms, 1000);
	assert_true(scene->s3.part_bytes == 0);
	assert_true(scene->s3.verify);
	assert_false(scene->s3.signed_payload || scene->s3.checksum);
	assert_int_equal(scene->s3.exists_check, S3_EXISTS_AUTO);
	assert_null(scene->s3.proxy);
	assert_null(scene->s3.ca_bundle);
	assert_int_equal(scene->s3.header_count, 0);
	assert_null(scene->s3.credentials.access_key);
	assert_false(scene->s3.credentials.anonymous || scene->s3.credentials.profile_given);
	assert_string_equal(scene->s3.credentials.profile, "default");
	for (const struct kvt_option_spec *spec = kvt__s3_option_specs; spec->name != NULL;
	     spec++) {
		char option[80];

		assert_true(strlen(spec->help) > 10);
		assert_null(strchr(spec->help, '\n'));
		count++;
		if (spec->default_value == NULL)
			continue;
		(void)snprintf(option, sizeof(option), "%s=%s", spec->name, spec->default_value);
		assert_read(scene, "//b", "endpoint=m", option);
	}
	assert_true(count >= 30);
}

/* ---- Keys ---- */

static void keys_are_given_together_or_not_at_all(void **state)
{
	struct scene *scene = *state;
	const struct s3_credentials_config *keys = &scene->s3.credentials;

	assert_read(scene, "//b", AKIA);
	assert_string_equal(keys->access_key, "AKIAEXAMPLE");
	assert_string_equal(keys->secret_key, SCENE_SECRET);
	assert_null(keys->session_token);
	assert_read(scene, "//b", AKIA, "session_token=" SCENE_SECRET);
	assert_string_equal(keys->session_token, SCENE_SECRET);
	assert_read(scene, "//b", "access_key=anonymous");
	assert_true(keys->anonymous);
	assert_null(keys->access_key);

	assert_refused(KVT_EINVAL, "option access_key: given without secret_key", scene, "//b",
		       "access_key=" SCENE_SECRET);
	assert_refused(KVT_EINVAL, "option secret_key: given without access_key", scene, "//b",
		       "secret_key=" SCENE_SECRET);
	assert_refused(KVT_EINVAL, "option session_token: given without access_key", scene, "//b",
		       "session_token=" SCENE_SECRET);
	assert_refused(KVT_EINVAL, "anonymous, expected no secret_key", scene, "//b",
		       "access_key=anonymous", "secret_key=" SCENE_SECRET);
	assert_refused(KVT_EINVAL, "option access_key: expected a key without blanks", scene, "//b",
		       "access_key=", "secret_key=" SCENE_SECRET);
	assert_refused(KVT_EINVAL, "option access_key: expected a key without commas", scene, "//b",
		       "access_key=a," SCENE_SECRET, "secret_key=x");
	assert_refused(KVT_EINVAL, "option secret_key: expected a key without blanks", scene, "//b",
		       "access_key=a", "secret_key=" SCENE_SECRET " ");
	assert_refused(KVT_EINVAL, "option secret_key: expected a key without blanks", scene, "//b",
		       "access_key=a", "secret_key=" SCENE_SECRET "\n");
	assert_refused(KVT_EINVAL, "option session_token: expected a token without blanks", scene,
		       "//b", "access_key=a", "secret_key=b", "session_token=\t" SCENE_SECRET);
}

static void a_long_token_is_kept_whole(void **state)
{
	struct scene *scene = *state;
	char *token = malloc(65536 + 32);

	assert_non_null(token);
	(void)snprintf(token, 32, "session_token=");
	memset(token + 14, 'T', 65536);
	token[14 + 65536] = '\0';
	assert_read(scene, "//b", AKIA, token);
	assert_string_equal(scene->s3.credentials.session_token, token + 14);
	memcpy(token + 14 + 65536, "T", 2);
	assert_refused(KVT_EINVAL, "option session_token", scene, "//b", AKIA, token);
	free(token);
}

/* ---- Memory ---- */

static void running_out_of_memory_anywhere_leaves_nothing(void **state)
{
	static const char *const options[] = {
		"endpoint=https://s3.lan:9000",
		"region=eu-west-1",
		AKIA,
		"session_token=" SCENE_SECRET,
		"proxy=socks5h://p:1080",
		"headers=X-One: " SCENE_SECRET "\nx-amz-meta-two: 2",
		"sse_c_key=MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=",
		"store_config={\"bucket\":\"c\",\"scheme\":\"https\",\"num_threads\":4}",
		NULL,
	};
	struct scene *scene = *state;
	char *bundle = test_format("%s/ca.pem", scene->home);
	char *text = test_format("[default]\nca_bundle = %s\n# " SCENE_SECRET "\n", bundle);
	long failed = 0;
	int error;

	test_write_file(bundle, "ca", 2);
	scene_profile_file(scene, "config", text);
	for (;;) {
		atomic_store(&scene->th.allocations, 0);
		atomic_store(&scene->th.fail_at, failed + 1);
		error = scene_read_list(scene, "//b/x", options);
		if (atomic_load(&scene->th.allocations) <= failed)
			break;
		scene_refused(KVT_ENOMEM, "out of memory", error, __FILE__, __LINE__);
		failed++;
	}
	atomic_store(&scene->th.fail_at, 0);
	assert_int_equal(error, 0);
	assert_string_equal(scene->s3.ca_bundle, bundle);
	free(bundle);
	free(text);
	assert_true(failed > 30);
}

int main(void)
{
#define SCENE_TEST(name) cmocka_unit_test_setup_teardown(name, scene_setup, scene_teardown)
	const struct CMUnitTest tests[] = {
		SCENE_TEST(a_uri_names_a_bucket_and_a_prefix),
		SCENE_TEST(a_uri_that_is_none_is_refused_without_repeating_it),
		SCENE_TEST(long_buckets_and_prefixes_are_refused),
		SCENE_TEST(names_are_compatible_with_the_object_tier_of_vllm),
		SCENE_TEST(an_endpoint_becomes_the_address),
		SCENE_TEST(an_endpoint_that_is_none_is_refused),
		SCENE_TEST(addressing_that_cannot_be_is_refused),
		SCENE_TEST(a_region_comes_from_the_host_of_aws_too),
		SCENE_TEST(a_region_that_a_reply_names_must_be_plausible),
		SCENE_TEST(keys_are_encoded_as_s3_signs_them),
		SCENE_TEST(numbers_have_limits),
		SCENE_TEST(parts_have_units),
		SCENE_TEST(words_choose),
		SCENE_TEST(every_default_is_what_the_list_says),
		SCENE_TEST(keys_are_given_together_or_not_at_all),
		SCENE_TEST(a_long_token_is_kept_whole),
		SCENE_TEST(running_out_of_memory_anywhere_leaves_nothing),
	};
	return cmocka_run_group_tests_name("s3_config", tests, NULL, NULL);
}
