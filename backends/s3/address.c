/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the endpoint, the region and the bucket to what requests are sent to. The Host header, the
 * URL and the signature all use the one authority that is made here.
 */
#include <stdio.h>
#include <string.h>

#include "config_parts.h"

enum s3_addressing { S3_ADDRESS_AUTO = 0, S3_ADDRESS_PATH, S3_ADDRESS_VIRTUAL };

static int s3_find_endpoint(const struct s3_sources *from, struct s3_given *given,
			    struct s3_url *url)
{
	static const struct s3_setting setting = {
		"endpoint",
		S3_STORE_ENDPOINT,
		{"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"},
		"endpoint_url",
	};
	static const struct s3_setting alias = {"endpoint_override", S3_STORE_KEYS, {NULL}, NULL};
	const char *one = kvt__s3_option(from, "endpoint"),
		   *other = kvt__s3_option(from, "endpoint_override"), *expected;

	kvt__s3_find(from, one == NULL && other != NULL ? &alias : &setting, given);
	if (one != NULL && other != NULL && strcmp(one, other) != 0)
		return kvt__s3_refuse(from, given, "the same as option endpoint_override");
	if (given->value == NULL || kvt__s3_url_parse(given->value, url, &expected))
		return 0;
	/* A password may stand in it. */
	return strchr(given->value, '@') != NULL ? kvt__s3_refuse_secret(from, given, expected)
						 : kvt__s3_refuse(from, given, expected);
}

static int s3_choose_scheme(struct s3_config *s3, const struct s3_sources *from,
			    const struct s3_given *endpoint, const struct s3_url *url)
{
	static const char *const words[] = {"http", "https", NULL};
	static const struct s3_setting setting = {"scheme", S3_STORE_SCHEME, {NULL}, NULL};
	struct s3_given given;
	int which = 1, error;

	kvt__s3_find(from, &setting, &given);
	if (given.value == NULL) {
		/* vLLM's own default, which its configuration relies on. */
		s3->https = url->has_scheme ? url->https : endpoint->place != S3_FROM_STORE;
		return 0;
	}
	error = kvt__s3_word(from, &given, words, "http or https", &which);
	if (error != 0)
		return error;
	s3->https = which == 1;
	if (!url->has_scheme || url->https == s3->https)
		return 0;
	if (given.place == S3_FROM_STORE && endpoint->place == S3_FROM_OPTION) {
		s3->https = url->https;
		return 0;
	}
	from->host->fail(from->host, "%s: \"%s\", but %s says %s, expected the same", given.where,
			 given.value, endpoint->where, url->https ? "https" : "http");
	return KVT_EINVAL;
}

/* The region in "s3.eu-west-1.amazonaws.com"; false when there is none. */
static bool s3_region_of_host(const char *host, char *region, size_t room)
{
	static const char domain[] = ".amazonaws.com";
	const char *end = strstr(host, domain);
	size_t bytes;

	if (strncmp(host, "s3.", 3) != 0 || end == NULL || end < host + 3)
		return false;
	bytes = (size_t)(end - host - 3);
	if (bytes == 0 || bytes >= room)
		return false;
	memcpy(region, host + 3, bytes);
	region[bytes] = '\0';
	return kvt__s3_region_is_plausible(region);
}

static int s3_choose_region(struct s3_config *s3, const struct s3_sources *from,
			    const struct s3_url *url)
{
	static const struct s3_setting setting = {
		"region", S3_STORE_REGION, {"AWS_REGION", "AWS_DEFAULT_REGION"}, "region"};
	const struct kvt_host *host = from->host;
	struct s3_given given;
	char derived[65];
	const char *region;

	kvt__s3_find(from, &setting, &given);
	region = given.value;
	if (region == NULL && s3_region_of_host(url->host, derived, sizeof(derived)))
		region = derived;
	s3->region_given = region != NULL;
	if (region == NULL)
		region = "us-east-1";
	/* Other servers have regions of their own, such as RegionOne. */
	for (size_t i = 0; i == 0 || region[i] != '\0'; i++)
		if (i == 64 || (!s3_is_alnum(region[i]) &&
				(region[i] == '\0' || strchr("-_.", region[i]) == NULL)))
			return kvt__s3_refuse(from, &given,
					      "a region such as us-east-1, at most 64 of "
					      "[A-Za-z0-9._-]");
	if (url->host[0] == '\0' && !kvt__s3_region_is_plausible(region))
		return kvt__s3_refuse(
			from, &given,
			"a region of AWS such as us-east-1 where there is no endpoint");
	s3->region = kvt__s3_copy(host, region, strlen(region));
	s3->credentials.region = kvt__s3_copy(host, region, strlen(region));
	return s3->region != NULL && s3->credentials.region != NULL ? 0 : kvt__s3_no_memory(from);
}

static const char *s3_domain_of(const char *region)
{
	return strncmp(region, "cn-", 3) == 0 ? ".amazonaws.com.cn" : ".amazonaws.com";
}

static int s3_choose_addressing(struct s3_config *s3, const struct s3_sources *from,
				const struct s3_url *url, bool has_endpoint)
{
	static const char *const words[] = {"auto", "path", "virtual", NULL};
	static const struct s3_setting setting = {"addressing", S3_STORE_ADDRESSING, {NULL}, NULL};
	bool is_dotted = strchr(s3->bucket, '.') != NULL;
	bool is_name = kvt__s3_is_host_name(s3->bucket, true);
	struct s3_given given;
	int which, error;

	kvt__s3_find(from, &setting, &given);
	if (given.value == NULL)
		kvt__s3_option_or_default(from, "addressing", &given);
	error = kvt__s3_word(from, &given, words, "auto, path or virtual", &which);
	if (error != 0)
		return error;
	s3->is_virtual = which == S3_ADDRESS_VIRTUAL ||
			 (which == S3_ADDRESS_AUTO && !has_endpoint && is_name && !is_dotted);
	if (which != S3_ADDRESS_VIRTUAL)
		return 0;
	if (url->is_address)
		return kvt__s3_refuse(from, &given, "path, for the endpoint is an address");
	if (!is_name)
		return kvt__s3_refuse(from, &given,
				      "path, for the bucket cannot stand in a host name");
	/* A certificate for *.host covers one label. */
	if (is_dotted && s3->https && s3->verify)
		return kvt__s3_refuse(from, &given,
				      "path, for no certificate covers a bucket with a dot");
	return 0;
}

static int s3_make_address(struct s3_config *s3, const struct s3_sources *from,
			   const struct s3_url *url)
{
	const struct kvt_host *host = from->host;
	char port[12] = "", encoded[1 + 3 * S3_CONFIG_MAX_BUCKET + 1] = "/";

	if (url->port != 0 && url->port != (s3->https ? 443 : 80))
		(void)snprintf(port, sizeof(port), ":%u", url->port);
	if (s3->is_virtual && strlen(s3->bucket) + 1 + strlen(url->host) > S3_CONFIG_MAX_HOST) {
		host->fail(host,
			   "option addressing: the bucket and the host are %zu bytes, "
			   "expected at most %u",
			   strlen(s3->bucket) + 1 + strlen(url->host), S3_CONFIG_MAX_HOST);
		return KVT_EINVAL;
	}
	if (s3->is_virtual) {
		s3->authority = kvt__s3_join(host, s3->bucket, ".", url->host, port);
		encoded[0] = '\0';
	} else {
		s3->authority = kvt__s3_join(host, url->host, port, NULL, NULL);
		(void)kvt__s3_encode(s3->bucket, strlen(s3->bucket), false, encoded + 1,
				     sizeof(encoded) - 1);
	}
	s3->bucket_path = kvt__s3_join(host, encoded, NULL, NULL, NULL);
	if (s3->authority == NULL || s3->bucket_path == NULL)
		return kvt__s3_no_memory(from);
	s3->base_url =
		kvt__s3_join(host, s3->https ? "https://" : "http://", s3->authority, NULL, NULL);
	return s3->base_url != NULL ? 0 : kvt__s3_no_memory(from);
}

int kvt__s3_read_address(struct s3_config *s3, const struct s3_sources *from)
{
	struct s3_url url = {0};
	struct s3_given endpoint;
	bool has_endpoint;
	int error = s3_find_endpoint(from, &endpoint, &url);

	if (error == 0)
		error = s3_choose_scheme(s3, from, &endpoint, &url);
	if (error == 0)
		error = s3_choose_region(s3, from, &url);
	if (error != 0)
		return error;
	has_endpoint = endpoint.value != NULL;
	if (!has_endpoint)
		(void)snprintf(url.host, sizeof(url.host), "s3.%s%s", s3->region,
			       s3_domain_of(s3->region));
	s3->is_aws = s3_has_suffix(url.host, ".amazonaws.com") ||
		     s3_has_suffix(url.host, ".amazonaws.com.cn");
	s3->is_loopback = url.is_loopback;
	error = s3_choose_addressing(s3, from, &url, has_endpoint);
	return error == 0 ? s3_make_address(s3, from, &url) : error;
}

int kvt__s3_read_sts(struct s3_config *s3, const struct s3_sources *from)
{
	static const char name[] = "AWS_ENDPOINT_URL_STS";
	const struct kvt_host *host = from->host;
	struct s3_given given = {.value = kvt__s3_environment(name), .place = S3_FROM_ENV};
	const char *expected;
	struct s3_url url;
	char port[12] = "";

	memcpy(given.where, name, sizeof(name));
	if (given.value == NULL) {
		/* A region of another kind of server has no service of its own. */
		bool is_aws = kvt__s3_region_is_plausible(s3->region);

		s3->credentials.sts_endpoint =
			kvt__s3_join(host, "https://sts", is_aws ? "." : NULL,
				     is_aws ? s3->region : NULL, s3_domain_of(s3->region));
		return s3->credentials.sts_endpoint != NULL ? 0 : kvt__s3_no_memory(from);
	}
	if (!kvt__s3_url_parse(given.value, &url, &expected))
		return strchr(given.value, '@') != NULL
			       ? kvt__s3_refuse_secret(from, &given, expected)
			       : kvt__s3_refuse(from, &given, expected);
	if (!url.has_scheme)
		url.https = true;
	if (url.port != 0 && url.port != (url.https ? 443 : 80))
		(void)snprintf(port, sizeof(port), ":%u", url.port);
	s3->credentials.sts_endpoint =
		kvt__s3_join(host, url.https ? "https://" : "http://", url.host, port, NULL);
	return s3->credentials.sts_endpoint != NULL ? 0 : kvt__s3_no_memory(from);
}
