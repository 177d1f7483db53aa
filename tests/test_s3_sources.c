/* SPDX-License-Identifier: Apache-2.0 */
/* Where the settings of an S3 store come from besides its options: the environment, the profile,
 * the store_config of vLLM's object tier; and what goes with its requests: certificates, a proxy,
 * headers. */
#include "s3_config_scene.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* base64 of 32 bytes, and of their MD5 */
#define SSE_C_KEY   "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
#define SSE_C_MD5   "hRasmdxgYDKV3nvbahU1MA=="
#define STORE(json) "store_config=" json

/* ---- Environment and profile ---- */

static void the_nearest_source_of_a_setting_counts(void **state)
{
	struct scene *scene = *state;
	const struct s3_config *s3 = &scene->s3;

	scene_profile_file(scene, "config",
			   "[default]\nregion = r-profile\nendpoint_url = http://profile:1\n"
			   "[profile other]\nregion = r-other\n");
	assert_read(scene, "//buck");
	assert_string_equal(s3->region, "r-profile");
	assert_string_equal(s3->base_url, "http://profile:1");
	scene_environment("AWS_DEFAULT_REGION", "r-default");
	scene_environment("AWS_ENDPOINT_URL", "http://any:2");
	assert_read(scene, "//buck");
	assert_string_equal(s3->region, "r-default");
	assert_string_equal(s3->base_url, "http://any:2");
	scene_environment("AWS_REGION", "r-env");
	scene_environment("AWS_ENDPOINT_URL_S3", "http://s3:3");
	assert_read(scene, "//buck");
	assert_string_equal(s3->region, "r-env");
	assert_string_equal(s3->base_url, "http://s3:3");
	assert_read(scene, "//buck",
		    STORE("{\"region\":\"r-store\",\"endpoint_override\":\"store:4\"}"));
	assert_string_equal(s3->region, "r-store");
	assert_string_equal(s3->base_url, "http://store:4");
	assert_read(scene, "//buck",
		    STORE("{\"region\":\"r-store\",\"endpoint_override\":\"store:4\"}"),
		    "region=r-option", "endpoint=option:5");
	assert_string_equal(s3->region, "r-option");
	assert_string_equal(s3->base_url, "https://option:5");
	/* An empty variable is none. */
	scene_environment("AWS_REGION", "");
	scene_environment("AWS_DEFAULT_REGION", "");
	assert_read(scene, "//buck");
	assert_string_equal(s3->region, "r-profile");
	assert_read(scene, "//buck", "profile=other");
	assert_string_equal(s3->region, "r-other");
	assert_string_equal(s3->credentials.profile, "other");
	assert_true(s3->credentials.profile_given);
	scene_environment("AWS_PROFILE", "other");
	assert_read(scene, "//buck");
	assert_string_equal(s3->region, "r-other");
	assert_true(s3->credentials.profile_given);
	assert_read(scene, "//buck", "profile=default");
	assert_string_equal(s3->region, "r-profile");
	/* One that is not there has no settings; whether it must be there is for the keys to say.
	 */
	assert_read(scene, "//buck", "profile=absent");
	assert_string_equal(s3->region, "us-east-1");
}

static void the_environment_is_checked_too(void **state)
{
	static const struct {
		const char *name, *value, *says;
	} rows[] = {
		{"AWS_REGION", "a/b", "AWS_REGION: \"a/b\", expected a region"},
		{"AWS_DEFAULT_REGION", "A B", "AWS_DEFAULT_REGION: \"A B\", expected a region"},
		{"AWS_ENDPOINT_URL", "http://m/x", "AWS_ENDPOINT_URL: \"http://m/x\", expected"},
		{"AWS_ENDPOINT_URL_S3", "ftp://m", "AWS_ENDPOINT_URL_S3: \"ftp://m\", expected"},
		{"AWS_ENDPOINT_URL_S3", "http://k:" SCENE_SECRET "@m",
		 "AWS_ENDPOINT_URL_S3: expected a URL without user info"},
		{"AWS_ENDPOINT_URL_STS", "http://", "AWS_ENDPOINT_URL_STS: \"http://\", expected"},
		{"AWS_ENDPOINT_URL_STS", SCENE_SECRET "@m", "AWS_ENDPOINT_URL_STS: expected"},
		{"AWS_CA_BUNDLE", "/nowhere/ca.pem",
		 "AWS_CA_BUNDLE: \"/nowhere/ca.pem\": No such file or directory, expected"},
		{"AWS_PROFILE", "a]b", "AWS_PROFILE: \"a]b\", expected the name of a profile"},
	};
	struct scene *scene = *state;

	for (size_t i = 0; i < TEST_COUNT(rows); i++) {
		scene_environment(rows[i].name, rows[i].value);
		assert_refused(KVT_ECONFIG, rows[i].says, scene, "//buck");
		scene_environment(rows[i].name, NULL);
	}
	assert_read(scene, "//buck");
	assert_refused(KVT_EINVAL, "option profile: \"\", expected", scene, "//buck", "profile=");
}

static void profile_files_are_where_the_environment_says(void **state)
{
	struct scene *scene = *state;
	const struct s3_credentials_config *keys = &scene->s3.credentials;
	char *path = test_format("%s/elsewhere", scene->home);
	char *usual = test_format("%s/.aws/config", scene->home);

	assert_read(scene, "//buck");
	assert_string_equal(keys->config_file, usual);
	assert_string_equal(strrchr(keys->credentials_file, '/'), "/credentials");
	test_write_file(path, "[default]\nregion = far\n", 23);
	scene_environment("AWS_CONFIG_FILE", path);
	scene_environment("AWS_SHARED_CREDENTIALS_FILE", "/some/keys");
	assert_read(scene, "//buck");
	assert_string_equal(keys->config_file, path);
	assert_string_equal(keys->credentials_file, "/some/keys");
	assert_string_equal(scene->s3.region, "far");
	scene_environment("AWS_CONFIG_FILE", "~/elsewhere");
	assert_read(scene, "//buck");
	assert_string_equal(keys->config_file, path);
	/* No home, no files. */
	scene_environment("AWS_CONFIG_FILE", NULL);
	scene_environment("AWS_SHARED_CREDENTIALS_FILE", NULL);
	scene_environment("HOME", NULL);
	assert_read(scene, "//buck");
	assert_null(keys->config_file);
	assert_null(keys->credentials_file);
	free(path);
	free(usual);
}

static void a_bad_config_file_is_said(void **state)
{
	struct scene *scene = *state;

	scene_profile_file(scene, "config", "[default]\n" SCENE_SECRET "\n");
	assert_refused(KVT_ECONFIG, "/.aws/config: line 2, expected [section]", scene, "//buck");
	scene_profile_file(scene, "config", "[default]\nregion = a/b\n");
	assert_refused(KVT_ECONFIG, "region of profile default: \"a/b\", expected a region", scene,
		       "//buck");
	scene_profile_file(scene, "config", "[default]\nendpoint_url = http://m/path\n");
	assert_refused(KVT_ECONFIG, "endpoint_url of profile default: \"http://m/path\", expected",
		       scene, "//buck");
	assert_read(scene, "//buck", "endpoint=m");
	scene_environment("AWS_CONFIG_FILE", scene->home);
	assert_refused(KVT_ECONFIG, "Is a directory", scene, "//buck");
}

static void switches_and_services_come_from_the_environment(void **state)
{
	struct scene *scene = *state;
	const struct s3_credentials_config *keys = &scene->s3.credentials;

	assert_read(scene, "//buck", "region=eu-west-1");
	assert_false(keys->no_instance_metadata);
	assert_string_equal(keys->sts_endpoint, "https://sts.eu-west-1.amazonaws.com");
	assert_string_equal(keys->region, "eu-west-1");
	scene_environment("AWS_EC2_METADATA_DISABLED", "True");
	scene_environment("AWS_ENDPOINT_URL_STS", "http://127.0.0.1:8080/");
	assert_read(scene, "//buck");
	assert_true(keys->no_instance_metadata);
	assert_string_equal(keys->sts_endpoint, "http://127.0.0.1:8080");
	scene_environment("AWS_EC2_METADATA_DISABLED", "false");
	scene_environment("AWS_ENDPOINT_URL_STS", "STS.lan:443");
	assert_read(scene, "//buck");
	assert_false(keys->no_instance_metadata);
	assert_string_equal(keys->sts_endpoint, "https://sts.lan");
}

/* ---- Certificates and proxies ---- */

static void certificates_must_be_readable(void **state)
{
	struct scene *scene = *state;
	char *path = test_format("%s/ca.pem", scene->home);
	char *option = test_format("ca_bundle=%s", path);
	char *folder = test_format("ca_bundle=%s", scene->home);
	char *profile = test_format("[default]\nca_bundle = %s\n", path);

	assert_refused(KVT_EINVAL, "ca.pem\": No such file or directory, expected a readable file",
		       scene, "//buck", option);
	test_write_file(path, "x", 1);
	assert_read(scene, "//buck", option);
	assert_string_equal(scene->s3.ca_bundle, path);
	assert_string_equal(scene->s3.credentials.ca_bundle, path);
	assert_refused(KVT_EINVAL, "expected a file of certificates", scene, "//buck", folder);
	assert_refused(KVT_EINVAL, "option ca_bundle: \"\"", scene, "//buck", "ca_bundle=");
	scene_environment("AWS_CA_BUNDLE", path);
	assert_read(scene, "//buck");
	assert_string_equal(scene->s3.ca_bundle, path);
	scene_environment("AWS_CA_BUNDLE", NULL);
	scene_profile_file(scene, "config", profile);
	assert_read(scene, "//buck");
	assert_string_equal(scene->s3.ca_bundle, path);
	/* Where it is not needed, only an option must be right. */
	scene_environment("AWS_CA_BUNDLE", "/nowhere");
	assert_read(scene, "//buck", "endpoint=http://m");
	assert_read(scene, "//buck", "verify=off");
	assert_refused(KVT_EINVAL, "option ca_bundle", scene, "//buck", "endpoint=http://m",
		       "ca_bundle=/nowhere");
	free(path);
	free(option);
	free(folder);
	free(profile);
}

static void proxies_have_no_password_in_an_option(void **state)
{
	static const struct {
		const char *option, *proxy;
	} good[] = {
		{"proxy=none", ""},
		{"proxy=", ""},
		{"proxy=p:3128", "http://p:3128"},
		{"proxy=http://P:80", "http://p:80"},
		{"proxy=https://p:443", "https://p:443"},
		{"proxy=http://[::1]:3128/", "http://[::1]:3128"},
		{"proxy=socks5://p:1080", "socks5://p:1080"},
		{"proxy=socks5h://10.0.0.1:1080", "socks5h://10.0.0.1:1080"},
		{"proxy=socks4a://p:1080", "socks4a://p:1080"},
	};
	static const char *const bad[] = {
		"proxy=p",
		"proxy=http://p",
		"proxy=ftp://p:1",
		"proxy=socks5://http://p:1",
		"proxy=p:0",
		"proxy=http://p:1/x",
		("proxy=http://user:" SCENE_SECRET "@p:1"),
		("proxy=" SCENE_SECRET "@p:1"),
		("proxy=socks5://u:" SCENE_SECRET "@p:1"),
	};
	struct scene *scene = *state;

	for (size_t i = 0; i < TEST_COUNT(good); i++) {
		assert_read(scene, "//buck", good[i].option);
		assert_string_equal(scene->s3.proxy, good[i].proxy);
	}
	for (size_t i = 0; i < TEST_COUNT(bad); i++)
		assert_refused(KVT_EINVAL, "with a password only from the environment", scene,
			       "//buck", bad[i]);
}

/* ---- Headers ---- */

static void headers_go_along(void **state)
{
	static const struct {
		const char *name, *value;
		bool on_data;
	} rows[] = {
		{"x-amz-request-payer", "requester", true},
		{"x-amz-meta-owner", "Team: A", false},
		{"x-amz-storage-class", "STANDARD_IA", false},
		{"x-amz-server-side-encryption-context", "e30=", false},
		{"cookie", "a=b; c=d", true},
		{"x-token", SCENE_SECRET, true},
		{"user-agent", "\xc3\xbc", true},
	};
	struct scene *scene = *state;

	assert_read(scene, "//buck",
		    "headers=X-Amz-Request-Payer: requester\n"
		    "x-amz-meta-owner:   Team: A  \n"
		    "\n"
		    "x-amz-storage-class:STANDARD_IA\n"
		    "X-Amz-Server-Side-Encryption-Context: e30=\n"
		    "Cookie: a=b; c=d\n"
		    "X-Token: " SCENE_SECRET "\n"
		    "User-Agent: \xc3\xbc\n");
	assert_int_equal(scene->s3.header_count, TEST_COUNT(rows));
	for (size_t i = 0; i < TEST_COUNT(rows); i++) {
		assert_string_equal(scene->s3.headers[i].name, rows[i].name);
		assert_string_equal(scene->s3.headers[i].value, rows[i].value);
		assert_true(scene->s3.headers[i].on_create);
		assert_int_equal(scene->s3.headers[i].on_data, rows[i].on_data);
	}
	assert_read(scene, "//buck", "headers=");
	assert_int_equal(scene->s3.header_count, 0);
}

static void headers_that_are_ours_are_refused(void **state)
{
	static const char *const names[] = {
		"Host",
		"Authorization",
		"X-Amz-Date",
		"Date",
		"x-amz-content-sha256",
		"x-amz-security-token",
		"Content-Length",
		"Content-Encoding",
		"Transfer-Encoding",
		"Expect",
		"Range",
		"If-Match",
		"If-None-Match",
		"If-Modified-Since",
		"Connection",
		"Content-MD5",
		"x-amz-checksum-crc32c",
		"x-amz-checksum-algorithm",
		"x-amz-sdk-checksum-algorithm",
		"x-amz-trailer",
		"x-amz-copy-source",
		"x-amz-copy-source-range",
		"x-amz-decoded-content-length",
		"x-amz-server-side-encryption-customer-key",
		"x-amz-server-side-encryption-customer-algorithm",
		"Proxy-Authorization",
		"TE",
		"Trailer",
		"Upgrade",
		"Keep-Alive",
		"Accept-Encoding",
		"x-amz-write-offset-bytes",
	};
	struct scene *scene = *state;
	char option[160];

	for (size_t i = 0; i < TEST_COUNT(names); i++) {
		(void)snprintf(option, sizeof(option), "headers=%s: " SCENE_SECRET, names[i]);
		assert_refused(KVT_EINVAL, "requests have it themselves", scene, "//buck", option);
	}
}

static void headers_that_cannot_be_sent_are_refused(void **state)
{
	static const struct {
		const char *option, *says;
	} rows[] = {
		{"headers=" SCENE_SECRET, "line 1, expected Name: value"},
		{"headers=: " SCENE_SECRET, "line 1, expected Name: value"},
		{"headers=a: b\nX " SCENE_SECRET ": c", "line 2, expected a name of letters"},
		{"headers= X: " SCENE_SECRET, "line 1, expected a name of letters"},
		{"headers=X : " SCENE_SECRET, "line 1, expected a name of letters"},
		{"headers=X\xc3\xbc: " SCENE_SECRET, "expected a name of letters"},
		{"headers=X;: " SCENE_SECRET, "expected a name of letters"},
		{"headers=X:", "line 1, expected a value"},
		{"headers=X:   \nY: " SCENE_SECRET, "line 1, expected a value"},
		{"headers=X: " SCENE_SECRET "\r", "without control characters"},
		{"headers=X: a\r\nY: " SCENE_SECRET, "line 1, expected a value without control"},
		{"headers=X: a\rHost: " SCENE_SECRET, "without control characters"},
		{"headers=X: a\t" SCENE_SECRET, "without control characters"},
		{"headers=X: \x7f" SCENE_SECRET, "without control characters"},
		{"headers=X: \x01" SCENE_SECRET, "without control characters"},
		{"headers=X: a\nx: " SCENE_SECRET, "option headers: x: expected it once"},
	};
	struct scene *scene = *state;
	char many[33 * 20 + 20] = "headers=", *long_one = malloc(9000);

	for (size_t i = 0; i < TEST_COUNT(rows); i++)
		assert_refused(KVT_EINVAL, rows[i].says, scene, "//buck", rows[i].option);
	for (int i = 0; i < 32; i++)
		(void)snprintf(many + strlen(many), 20, "x-%d: y\n", i);
	assert_read(scene, "//buck", many);
	assert_int_equal(scene->s3.header_count, 32);
	(void)snprintf(many + strlen(many), 20, "x-32: y\n");
	assert_refused(KVT_EINVAL, "at most 32 headers", scene, "//buck", many);

	assert_non_null(long_one);
	memcpy(long_one, "headers=x: ", 11);
	memset(long_one + 11, 'v', 8192);
	long_one[11 + 8192] = '\0';
	assert_read(scene, "//buck", long_one);
	memcpy(long_one + 11 + 8192, "v", 2);
	assert_refused(KVT_EINVAL, "at most 8192 bytes", scene, "//buck", long_one);
	memcpy(long_one, "headers=", 8);
	memset(long_one + 8, 'n', 129);
	memcpy(long_one + 8 + 129, ": v", 4);
	assert_refused(KVT_EINVAL, "expected Name: value", scene, "//buck", long_one);
	free(long_one);
}

static void the_server_is_asked_to_encrypt(void **state)
{
	struct scene *scene = *state;
	const struct s3_header *header;

	assert_read(scene, "//buck", "sse=AES256");
	header = scene_header(scene, "x-amz-server-side-encryption");
	assert_string_equal(header->value, "AES256");
	assert_true(header->on_create && !header->on_data);
	assert_int_equal(scene->s3.header_count, 1);

	assert_read(scene, "//buck", "sse=aws:kms", "sse_kms_key_id=arn:aws:kms:eu:1:key/2");
	assert_string_equal(scene_header(scene, "x-amz-server-side-encryption")->value, "aws:kms");
	header = scene_header(scene, "x-amz-server-side-encryption-aws-kms-key-id");
	assert_string_equal(header->value, "arn:aws:kms:eu:1:key/2");
	assert_true(header->on_create && !header->on_data);

	assert_refused(KVT_EINVAL, "option sse: \"aes256\", expected AES256 or aws:kms", scene,
		       "//buck", "sse=aes256");
	assert_refused(KVT_EINVAL, "option sse_kms_key_id: \"k\", expected it only beside", scene,
		       "//buck", "sse_kms_key_id=k");
	assert_refused(KVT_EINVAL, "expected it only beside sse=aws:kms", scene, "//buck",
		       "sse=AES256", "sse_kms_key_id=k");
	assert_refused(KVT_EINVAL, "the name of a key", scene, "//buck", "sse=aws:kms",
		       "sse_kms_key_id=");
	assert_refused(KVT_EINVAL, "the name of a key", scene, "//buck", "sse=aws:kms",
		       "sse_kms_key_id=a\r\nb");
	assert_refused(KVT_EINVAL, "x-amz-server-side-encryption: expected it once", scene,
		       "//buck", "sse=AES256", "headers=x-amz-server-side-encryption: aws:kms");
}

static void a_key_of_ours_goes_with_each_request(void **state)
{
	static const char *const bad[] = {
		"sse_c_key=",
		("sse_c_key=" SCENE_SECRET),
		/* 31 and 33 bytes, no base64, and bits behind the end */
		"sse_c_key=MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZQ==",
		"sse_c_key=MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWYw",
		"sse_c_key=MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY!",
		"sse_c_key=MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWZ=",
		"sse_c_key=MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=\n",
	};
	struct scene *scene = *state;
	const struct s3_header *header;

	assert_read(scene, "//buck", "sse_c_key=" SSE_C_KEY);
	assert_int_equal(scene->s3.header_count, 3);
	header = scene_header(scene, "x-amz-server-side-encryption-customer-algorithm");
	assert_string_equal(header->value, "AES256");
	assert_true(header->on_create && header->on_data);
	header = scene_header(scene, "x-amz-server-side-encryption-customer-key");
	assert_string_equal(header->value, SSE_C_KEY);
	assert_true(header->on_create && header->on_data);
	header = scene_header(scene, "x-amz-server-side-encryption-customer-key-md5");
	assert_string_equal(header->value, SSE_C_MD5);
	assert_true(header->on_create && header->on_data);

	for (size_t i = 0; i < TEST_COUNT(bad); i++)
		assert_refused(KVT_EINVAL, "option sse_c_key: expected base64 of 32 bytes", scene,
			       "//buck", bad[i]);
	assert_refused(KVT_EINVAL, "option sse: \"AES256\", expected none beside", scene, "//buck",
		       "sse_c_key=" SSE_C_KEY, "sse=AES256");
	/* Never in the clear. */
	assert_refused(KVT_EINVAL, "option sse_c_key: expected https", scene, "//buck",
		       "sse_c_key=" SSE_C_KEY, "endpoint=http://m");
	assert_read(scene, "//buck", "sse_c_key=" SSE_C_KEY, "endpoint=http://127.0.0.1:1");
}

/* ---- store_config ---- */

static void the_configuration_of_vllm_is_taken_as_it_is(void **state)
{
	struct scene *scene = *state;
	const struct s3_config *s3 = &scene->s3;
	char *bundle = test_format("%s/ca.pem", scene->home);
	char *option = test_format(STORE("{\"bucket\":\"kv\",\"endpoint_override\":\"m:9000\","
					 "\"scheme\":\"https\",\"access_key\":\"AK\","
					 "\"secret_key\":\"" SCENE_SECRET "\","
					 "\"session_token\":\"tok\",\"region\":\"eu\","
					 "\"ca_bundle\":\"%s\"}"),
				   bundle);

	test_write_file(bundle, "x", 1);
	assert_read(scene, "//", option);
	assert_string_equal(s3->bucket, "kv");
	assert_string_equal(s3->prefix, "");
	assert_string_equal(s3->base_url, "https://m:9000");
	assert_string_equal(s3->region, "eu");
	assert_string_equal(s3->ca_bundle, bundle);
	assert_string_equal(s3->credentials.access_key, "AK");
	assert_string_equal(s3->credentials.secret_key, SCENE_SECRET);
	assert_string_equal(s3->credentials.session_token, "tok");
	assert_string_equal(scene->log, "");
	assert_read(scene, "///some/prefix", option);
	assert_string_equal(s3->bucket, "kv");
	assert_string_equal(s3->key_root, "some/prefix/");
	/* Empty members are left out, and there is vLLM's own default of http. */
	assert_read(scene, "//kv",
		    STORE("{\"bucket\":\"kv\",\"endpoint_override\":\"http://m:9000\","
			  "\"access_key\":\"\",\"secret_key\":\"\",\"session_token\":\"\","
			  "\"region\":\"\",\"ca_bundle\":null}"));
	assert_string_equal(s3->base_url, "http://m:9000");
	assert_null(s3->credentials.access_key);
	assert_null(s3->ca_bundle);
	assert_read(scene, "//kv", STORE("{\"endpoint_override\":\"m:9000\"}"));
	assert_string_equal(s3->base_url, "http://m:9000");
	assert_read(scene, "//kv", STORE("{\"endpoint_override\":\"https://m:9000\"}"));
	assert_string_equal(s3->base_url, "https://m:9000");
	assert_read(scene, "//kv", STORE("{}"));
	assert_string_equal(s3->base_url, "https://kv.s3.us-east-1.amazonaws.com");
	/* The URI's bucket counts, and is said to. */
	assert_read(scene, "//mine", STORE("{\"bucket\":\"kv\"}"));
	assert_string_equal(s3->bucket, "mine");
	assert_non_null(strstr(scene->log, "the URI names another, mine"));
	free(bundle);
	free(option);
}

static void what_only_tunes_the_plugin_has_no_effect_and_is_said_to(void **state)
{
	struct scene *scene = *state;

	assert_read(scene, "//kv",
		    STORE("{\"num_threads\":\"4\",\"crtMinLimit\":5242880,\"resp_checksum\":"
			  "\"required\",\"accelerated\":false,\"type\":\"\"}"));
	assert_string_equal(scene->log, "option store_config: num_threads, crtMinLimit, "
					"resp_checksum: no effect here");
	assert_read(scene, "//kv", STORE("{\"use_virtual_addressing\":true}"), "endpoint=m");
	assert_true(scene->s3.is_virtual);
	assert_read(scene, "//kv",
		    STORE("{\"backend_params\":{\"use_virtual_addressing\":\"true\","
			  "\"req_checksum\":\"supported\"},\"extra_params\":{}}"),
		    "endpoint=m");
	assert_true(scene->s3.is_virtual && scene->s3.checksum);
	assert_read(scene, "//kv",
		    STORE("{\"use_virtual_addressing\":\"false\",\"req_checksum\":\"required\"}"));
	assert_false(scene->s3.is_virtual || scene->s3.checksum);
}

static void an_option_beside_it_wins(void **state)
{
	struct scene *scene = *state;
	const struct s3_credentials_config *keys = &scene->s3.credentials;
	static const char store[] =
		STORE("{\"endpoint_override\":\"m:9000\",\"scheme\":\"http\",\"access_key\":\"AK\","
		      "\"secret_key\":\"" SCENE_SECRET "\",\"session_token\":\"tok\","
		      "\"req_checksum\":\"supported\",\"use_virtual_addressing\":true}");

	assert_read(scene, "//kv", store, "endpoint=https://n", "checksum=none", "addressing=path");
	assert_string_equal(scene->s3.base_url, "https://n");
	assert_false(scene->s3.checksum || scene->s3.is_virtual);
	assert_string_equal(keys->access_key, "AK");
	assert_read(scene, "//kv", store, "scheme=https");
	assert_string_equal(scene->s3.base_url, "https://kv.m:9000");
	assert_read(scene, "//kv", store, "secret_key=other");
	assert_string_equal(keys->access_key, "AK");
	assert_string_equal(keys->secret_key, "other");
	assert_string_equal(keys->session_token, "tok");
	/* Another key's secret and token are not this one's. */
	assert_read(scene, "//kv", store, "access_key=BK", "secret_key=other");
	assert_string_equal(keys->access_key, "BK");
	assert_null(keys->session_token);
	assert_refused(KVT_EINVAL, "option access_key: given without secret_key", scene, "//kv",
		       store, "access_key=BK");
	assert_read(scene, "//kv", store, "access_key=anonymous");
	assert_true(keys->anonymous);
	assert_null(keys->secret_key);
}

static void a_store_config_that_is_none_is_refused_without_repeating_it(void **state)
{
	static const struct {
		const char *option, *says;
	} rows[] = {
		{STORE(""), "line 1, column"},
		{STORE("{"), "expected a JSON object"},
		{STORE("[]"), "line 1, column 1: expected a JSON object"},
		{STORE("\"" SCENE_SECRET "\""), "expected a JSON object"},
		{STORE("{\"secret_key\":" SCENE_SECRET "}"), "expected a JSON object"},
		{STORE("{\"secret_key\":\"a\",\"secret_key\":\"" SCENE_SECRET "\"}"),
		 "members are there once"},
		{STORE("{\"secret_key\":\"" SCENE_SECRET "\",\"endpoint_overide\":\"m\"}"),
		 "endpoint_overide: unknown member, the nearest known is endpoint_override"},
		{STORE("{\"secretkey\":\"" SCENE_SECRET "\"}"),
		 "secretkey: unknown member, the nearest known is secret_key"},
		{STORE("{\"prefix\":\"x\"}"), "prefix: unknown member"},
		{STORE("{\"extra_params\":{\"numthreads\":1}}"), "the nearest known is num_thread"},
		{STORE("{\"extra_params\":{\"extra_params\":{}}}"), "expected an object, not with"},
		{STORE("{\"extra_params\":\"" SCENE_SECRET "\"}"), "expected an object"},
		{STORE("{\"region\":5}"), "option store_config: region: expected a string"},
		{STORE("{\"secret_key\":[\"" SCENE_SECRET "\"]}"), "secret_key: expected a string"},
		{STORE("{\"region\":\"a\\u0000b\"}"), "expected a JSON object"},
		{STORE("{\"use_virtual_addressing\":2}"), "expected true or false"},
		{STORE("{\"use_virtual_addressing\":\"x\"}"), "expected true or false"},
		{STORE("{\"req_checksum\":\"x\"}"), "expected required or supported"},
		{STORE("{\"accelerated\":true,\"type\":\"dell\"}"), "accelerated: expected false"},
		{STORE("{\"accelerated\":\"true\"}"), "accelerated: expected false"},
		{STORE("{\"region\":\"a\",\"extra_params\":{\"region\":\"b\"}}"),
		 "region: expected it once"},
		{STORE("{\"region\":\"a b\"}"), "option store_config: region: \"a b\", expected"},
		{STORE("{\"scheme\":\"ftp\"}"), "option store_config: scheme: \"ftp\", expected"},
		{STORE("{\"endpoint_override\":\"m/x\"}"), "option store_config: endpoint"},
		{STORE("{\"endpoint_override\":\"k:" SCENE_SECRET "@m\"}"), "without user info"},
		{STORE("{\"scheme\":\"http\",\"endpoint_override\":\"https://m\"}"), "says https"},
		{STORE("{\"access_key\":\"" SCENE_SECRET "\"}"), "given without secret_key"},
		{STORE("{\"access_key\":\"a\",\"secret_key\":\"" SCENE_SECRET "\\n\"}"),
		 "option store_config: secret_key: expected a key without blanks"},
		{STORE("{\"ca_bundle\":\"/nowhere\"}"), "option store_config: ca_bundle"},
	};
	struct scene *scene = *state;
	char *huge = malloc(65536 + 64);

	for (size_t i = 0; i < TEST_COUNT(rows); i++)
		assert_refused(KVT_EINVAL, rows[i].says, scene, "//buck", rows[i].option);
	assert_refused(KVT_EINVAL, "a bucket with other characters", scene, "//",
		       STORE("{\"bucket\":\"a b\"}"));
	assert_non_null(huge);
	memset(huge, ' ', 65536 + 64);
	memcpy(huge, STORE("{}"), 15);
	huge[13 + 65536] = '\0';
	assert_read(scene, "//buck", huge);
	memcpy(huge + 13 + 65536, " ", 2);
	assert_refused(KVT_EINVAL, "longer than 65536 bytes", scene, "//buck", huge);
	free(huge);
}

int main(void)
{
#define SCENE_TEST(name) cmocka_unit_test_setup_teardown(name, scene_setup, scene_teardown)
	const struct CMUnitTest tests[] = {
		SCENE_TEST(the_nearest_source_of_a_setting_counts),
		SCENE_TEST(the_environment_is_checked_too),
		SCENE_TEST(profile_files_are_where_the_environment_says),
		SCENE_TEST(a_bad_config_file_is_said),
		SCENE_TEST(switches_and_services_come_from_the_environment),
		SCENE_TEST(certificates_must_be_readable),
		SCENE_TEST(proxies_have_no_password_in_an_option),
		SCENE_TEST(headers_go_along),
		SCENE_TEST(headers_that_are_ours_are_refused),
		SCENE_TEST(headers_that_cannot_be_sent_are_refused),
		SCENE_TEST(the_server_is_asked_to_encrypt),
		SCENE_TEST(a_key_of_ours_goes_with_each_request),
		SCENE_TEST(the_configuration_of_vllm_is_taken_as_it_is),
		SCENE_TEST(what_only_tunes_the_plugin_has_no_effect_and_is_said_to),
		SCENE_TEST(an_option_beside_it_wins),
		SCENE_TEST(a_store_config_that_is_none_is_refused_without_repeating_it),
	};
	return cmocka_run_group_tests_name("s3_sources", tests, NULL, NULL);
}
