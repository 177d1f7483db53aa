/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The S3 backend: objects in a bucket of AWS, MinIO, Ceph RGW, Swift and their like, by libcurl's
 * multi interface and signatures of our own. Opening needs the configuration and credentials, and
 * no request: whether the bucket can be used shows at the first one (`kvtier probe` makes it).
 */
#include "s3.h"

#include <stdio.h>
#include <string.h>

#include "curl_init.h"

extern const struct kvt_backend_ops kvt__s3_backend_ops;

#define S3_DEFAULT_DEPTH   16u
#define S3_MERGE_GAP_BYTES (UINT64_C(128) << 10) /* a request costs as much CPU as these bytes */

static void s3_free(struct s3_backend *b)
{
	const struct kvt_host *host = b->host;

	kvt__s3_provider_close(b->provider);
	kvt__s3_cache_destroy(b->cache);
	kvt__s3_config_fini(&b->config);
	(void)pthread_mutex_destroy(&b->lock);
	host->free(host, b);
}

static void s3_warn(const struct s3_backend *b)
{
	const struct s3_config *config = &b->config;

	if (!config->https && !config->is_loopback)
		b->host->log(b->host, KVT_HOST_WARNING, "s3 http",
			     "%s: plain http: what is stored goes over the network in the clear%s",
			     config->authority,
			     config->signed_payload ? "" : " and its payload is not signed");
	if (config->https && !config->verify)
		b->host->log(
			b->host, KVT_HOST_WARNING, "s3 verify",
			"%s: verify=off: anybody on the way can read and change what is stored",
			config->authority);
}

static void s3_set_limits(const struct s3_backend *b, struct kvt_backend_limits *limits)
{
	const struct s3_config *config = &b->config;

	limits->min_part_bytes = S3_MIN_PART_BYTES;
	limits->max_part_bytes = S3_MAX_PART_BYTES;
	limits->max_object_bytes = S3_MAX_OBJECT_BYTES;
	limits->max_parts = S3_MAX_PARTS;
	limits->max_name_bytes = S3_MAX_KEY_BYTES - (uint32_t)strlen(config->key_root);
	limits->default_depth = S3_DEFAULT_DEPTH;
	limits->default_part_bytes = config->part_bytes;
	limits->merge_gap_bytes = S3_MERGE_GAP_BYTES;
	limits->capabilities = KVT_CAP_IF_ABSENT | KVT_CAP_IF_VERSION_PUT | KVT_CAP_IF_VERSION_GET |
			       KVT_CAP_IF_VERSION_REMOVE | KVT_CAP_GET_DISCARD;
	if (config->checksum || config->signed_payload)
		limits->capabilities |= KVT_CAP_FULL_BODY;
	(void)snprintf(limits->detail, sizeof(limits->detail),
		       "endpoint=%s bucket=%s addressing=%s region=%s credentials=%s",
		       config->base_url, config->bucket, config->is_virtual ? "virtual" : "path",
		       config->region, kvt__s3_provider_source(b->provider));
}

static int s3_open(const struct kvt_host *host, const struct kvt_backend_config *config,
		   void **backendp, struct kvt_backend_limits *limits)
{
	struct s3_backend *b = host->alloc(host, sizeof(*b), 64);
	int error = kvt__s3_curl_init();

	*backendp = NULL;
	if (b == NULL || error) {
		host->free(host, b);
		if (error == KVT_EMODULE)
			host->fail(host, "s3:%s: libcurl %s, expected %s or later",
				   config->location, curl_version_info(CURLVERSION_NOW)->version,
				   S3_LEAST_LIBCURL_TEXT);
		else
			host->fail(host, "s3:%s: %s", config->location,
				   b ? "libcurl cannot be used" : "out of memory");
		return b ? error : KVT_ENOMEM;
	}
	memset(b, 0, sizeof(*b));
	b->host = host;
	(void)pthread_mutex_init(&b->lock, NULL);
	error = kvt__s3_config_init(&b->config, host, config);
	if (error == 0)
		error = kvt__s3_provider_open(host, &b->config.credentials, &b->provider);
	if (error == 0) {
		b->cache = kvt__s3_cache_create(host, b->config.lookup_cache_entries,
						b->config.lookup_cache_hit_ms,
						b->config.lookup_cache_miss_ms);
		if (b->cache == NULL) {
			host->fail(host, "s3:%s: out of memory", config->location);
			error = KVT_ENOMEM;
		}
	}
	if (error) {
		s3_free(b);
		return error;
	}
	(void)snprintf(b->region, sizeof(b->region), "%s", b->config.region);
	s3_warn(b);
	s3_set_limits(b, limits);
	*backendp = b;
	return 0;
}

static void s3_close(void *backend)
{
	s3_free(backend);
}

static void s3_forked(void *backend)
{
	struct s3_backend *b = backend;
	const struct kvt_host *host = b->host;
	struct s3_session *next;

	for (struct s3_session *s = b->sessions; s; s = next) {
		next = s->next;
		kvt__s3_session_forked(s);
	}
	kvt__s3_provider_forked(b->provider);
	kvt__s3_cache_destroy(b->cache);
	kvt__s3_config_fini(&b->config);
	host->free(host, b);
}

static const char *s3_ability_name(int ability)
{
	return ability == S3_CAN ? "yes" : ability == S3_CANNOT ? "no" : "unknown";
}

static void s3_describe(void *backend, char *text, size_t bytes)
{
	static const char *const checks[] = {"auto", "conditional", "head", "none"};
	struct s3_backend *b = backend;
	char region[sizeof(b->region)];

	pthread_mutex_lock(&b->lock);
	memcpy(region, b->region, sizeof(region));
	pthread_mutex_unlock(&b->lock);
	(void)snprintf(text, bytes,
		       "exists_check=%s conditional_put=%s conditional_commit=%s if_match=%s "
		       "duplicates=%u/256 region=%s clock_offset_s=%lld",
		       checks[b->config.exists_check],
		       s3_ability_name(atomic_load(&b->conditional_put)),
		       s3_ability_name(atomic_load(&b->conditional_commit)),
		       atomic_load(&b->unquoted_if_match) == S3_CAN ? "unquoted" : "quoted",
		       kvt__s3_cache_duplicates(b->cache), region,
		       (long long)atomic_load(&b->clock_offset_s));
}

const struct kvt_backend_ops kvt__s3_backend_ops = {
	.struct_size = sizeof(struct kvt_backend_ops),
	.abi = KVT_BACKEND_ABI,
	.name = "s3",
	.option_specs = kvt__s3_option_specs,
	.open = s3_open,
	.close = s3_close,
	.session_open = kvt__s3_session_open,
	.session_close = kvt__s3_session_close,
	.submit = kvt__s3_submit,
	.poll = kvt__s3_poll,
	.wake = kvt__s3_wake,
	.forked = s3_forked,
	.describe = s3_describe,
};
