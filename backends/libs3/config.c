/* SPDX-License-Identifier: Apache-2.0 */
/* The options of the module, with the few variables of the environment that stand behind them. */
#include "module.h"

#include <stdlib.h>
#include <string.h>

#define DEFAULT_MAX_OBJECT_BYTES (256 * LIBS3_MIB)
#define CLEAN_BYTES		 200u
#define MAX_PREFIX_BYTES	 700u

const struct kvt_option_spec kvt__libs3_option_specs[] = {
	{"endpoint", NULL,
	 "where the server is: http://host[:port]; default AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL"},
	{"scheme", NULL, "http or https, for an endpoint without one; default https"},
	{"verify", "on", "off: certificates are not verified; libs3 2.0 cannot verify"},
	{"addressing", "path", "path (host/bucket) or virtual (bucket.host)"},
	{"access_key", NULL, "access key id; default AWS_ACCESS_KEY_ID"},
	{"secret_key", NULL, "secret of the access key; default AWS_SECRET_ACCESS_KEY"},
#ifdef KVT_LIBS3_HAVE_TOKEN
	{"session_token", NULL, "token of temporary keys; default AWS_SESSION_TOKEN"},
#endif
#ifdef KVT_LIBS3_HAVE_REGION
	{"region", NULL, "what signatures name; default AWS_REGION, us-east-1"},
#endif
#ifndef KVT_LIBS3_HAVE_MULTIPART
	{"max_object_bytes", "256MiB",
	 "largest object: one that comes in parts takes as much memory until it is complete"},
#endif
	{NULL, NULL, NULL},
};

/* What is read from, and where the strings of the result go. */
struct reader {
	const struct kvt_host *host;
	const struct kvt_backend_config *from;
	struct libs3_config *config;
	size_t used;
};

static const char *option(const struct reader *r, const char *name)
{
	for (size_t i = 0; i < r->from->option_count; i++)
		if (!strcmp(r->from->options[i].name, name))
			return r->from->options[i].value;
	return NULL;
}

static const char *environment(const char *name)
{
	const char *value = getenv(name);

	return value && *value ? value : NULL;
}

/* A copy in the memory of the configuration, which has room for all that is read. */
static char *keep(struct reader *r, const char *text, size_t bytes)
{
	char *copy = r->config->memory + r->used;

	memcpy(copy, text, bytes);
	copy[bytes] = '\0';
	r->used += bytes + 1;
	return copy;
}

/* Fit for one line, and short. */
static const char *clean(const char *text, char to[CLEAN_BYTES])
{
	size_t n = 0;

	for (; text[n] && n + 1 < CLEAN_BYTES; n++)
		to[n] = (unsigned char)text[n] < 0x20 || text[n] == 0x7f ? '?' : text[n];
	to[n] = '\0';
	return to;
}

static int refuse(const struct reader *r, const char *name, const char *value, const char *expected)
{
	char text[CLEAN_BYTES];

	r->host->fail(r->host, "s3+libs3: option %s: \"%s\", expected %s", name, clean(value, text),
		      expected);
	return KVT_EINVAL;
}

/* ---- the place ---- */

/* "//bucket" or "//bucket/prefix". */
static int read_location(struct reader *r)
{
	const char *at = r->from->location, *end, *slash;
	char text[CLEAN_BYTES];
	S3Status status;
	size_t n;

	if (strncmp(at, "//", 2) != 0 || strpbrk(at, "?#@")) {
		r->host->fail(r->host,
			      "s3+libs3:%s: expected s3+libs3://bucket/prefix, and options apart "
			      "from it",
			      strchr(at, '@') ? "//..." : clean(at, text));
		return KVT_EINVAL;
	}
	at += 2;
	n = strcspn(at, "/");
	r->config->bucket = keep(r, at, n);
	status = S3_validate_bucket_name(
		r->config->bucket, r->config->is_virtual ? S3UriStyleVirtualHost : S3UriStylePath);
	if (status != S3StatusOK) {
		r->host->fail(r->host, "s3+libs3: bucket \"%s\": %s",
			      clean(r->config->bucket, text), S3_get_status_name(status));
		return KVT_EINVAL;
	}
	for (at += n; *at == '/'; at++)
		;
	for (end = at + strlen(at); end > at && end[-1] == '/'; end--)
		;
	for (const char *c = at; c < end; c = slash + 1) {
		slash = memchr(c, '/', (size_t)(end - c));
		slash = slash ? slash : end;
		if (slash == c || (slash - c == 1 && *c == '.') ||
		    (slash - c == 2 && c[0] == '.' && c[1] == '.')) {
			r->host->fail(r->host,
				      "s3+libs3: prefix \"%s\": expected components other than "
				      "\".\", \"..\" and \"\"",
				      clean(at, text));
			return KVT_EINVAL;
		}
	}
	if ((size_t)(end - at) > MAX_PREFIX_BYTES) {
		r->host->fail(r->host, "s3+libs3: prefix of %zu bytes, expected at most %u",
			      (size_t)(end - at), MAX_PREFIX_BYTES);
		return KVT_EINVAL;
	}
	n = (size_t)(end - at);
	r->config->key_root = keep(r, at, n);
	if (n > 0) {
		/* Written over the copy's end: the slash and its NUL have room of their own. */
		char *root = r->config->memory + r->used - 1;

		root[0] = '/';
		root[1] = '\0';
		r->used++;
	}
	return 0;
}

static bool is_loopback(const char *host)
{
	size_t n = strcspn(host, ":");

	if (host[0] == '[')
		return !strncmp(host, "[::1]", 5);
	return !strncmp(host, "127.", 4) || (n == 9 && !strncmp(host, "localhost", 9)) ||
	       (n > 10 && !strncmp(host + n - 10, ".localhost", 10));
}

/* host, host:port, [address]:port; nothing that would end the host in a URL. */
static bool is_authority(const char *text)
{
	size_t n = strlen(text), host;
	unsigned long port;
	char *end;

	if (n == 0 || n >= LIBS3_HOST_BYTES)
		return false;
	if (text[0] == '[') {
		host = 1 + strspn(text + 1, "0123456789abcdefABCDEF:.");
		if (host < 3 || text[host++] != ']')
			return false;
	} else {
		host = strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				    "0123456789-._");
		if (!host)
			return false;
	}
	if (!text[host])
		return true;
	port = strtoul(text + host + 1, &end, 10);
	return text[host] == ':' && text[host + 1] >= '0' && text[host + 1] <= '9' && !*end &&
	       port >= 1 && port <= 65535;
}

static int read_endpoint(struct reader *r)
{
	static const char expected[] = "http://host[:port] or https://host[:port]";
	const char *name = "endpoint", *text = option(r, name), *rest, *scheme;
	struct libs3_config *config = r->config;
	char cleaned[CLEAN_BYTES];
	size_t n;

	if (!text && (text = environment("AWS_ENDPOINT_URL_S3")))
		name = "AWS_ENDPOINT_URL_S3";
	if (!text && (text = environment("AWS_ENDPOINT_URL")))
		name = "AWS_ENDPOINT_URL";
	if (!text) {
		r->host->fail(r->host,
			      "s3+libs3: no endpoint, expected option endpoint or AWS_ENDPOINT_URL "
			      "with %s",
			      expected);
		return KVT_ECONFIG;
	}
	scheme = option(r, "scheme");
	if (scheme && strcmp(scheme, "http") != 0 && strcmp(scheme, "https") != 0)
		return refuse(r, "scheme", scheme, "http or https");
	config->https = !scheme || !strcmp(scheme, "https");
	rest = strstr(text, "://");
	if (rest) {
		bool https = rest - text == 5 && !strncmp(text, "https", 5);

		if (!https && !(rest - text == 4 && !strncmp(text, "http", 4)))
			rest = "";
		else if (scheme && https != config->https)
			return refuse(r, "scheme", scheme, "the scheme of the endpoint");
		else
			rest += 3;
		config->https = https;
	} else {
		rest = text;
	}
	n = strcspn(rest, "/");
	config->host = keep(r, rest, n);
	if (!is_authority(config->host) || rest[n + strspn(rest + n, "/")]) {
		/* It may hold a password. */
		r->host->fail(r->host, "s3+libs3: %s: \"%s\", expected %s without more", name,
			      strchr(text, '@') ? "..." : clean(text, cleaned), expected);
		return strcmp(name, "endpoint") ? KVT_ECONFIG : KVT_EINVAL;
	}
	config->is_loopback = is_loopback(config->host);
	return 0;
}

/* ---- keys ---- */

/* No word of a secret is said. */
static bool is_plain(const char *text)
{
	for (; *text; text++)
		if ((unsigned char)*text <= 0x20 || (unsigned char)*text >= 0x7f)
			return false;
	return true;
}

static int read_keys(struct reader *r)
{
	const char *access = option(r, "access_key"), *secret = option(r, "secret_key");
	const char *token = option(r, "session_token");
	struct libs3_config *config = r->config;
	bool is_given = access || secret || token;

	if (!is_given) {
		access = environment("AWS_ACCESS_KEY_ID");
		secret = environment("AWS_SECRET_ACCESS_KEY");
		token = environment("AWS_SESSION_TOKEN");
		if (!access && !secret)
			token = NULL;
	}
	/* libs3 signs everything: it cannot do without. */
	if (!access || !*access || !secret || !*secret) {
		r->host->fail(r->host, is_given ? "s3+libs3: options access_key and secret_key: "
						  "expected both"
						: "s3+libs3: no keys, expected options access_key "
						  "and secret_key, or AWS_ACCESS_KEY_ID and "
						  "AWS_SECRET_ACCESS_KEY");
		return is_given ? KVT_EINVAL : KVT_ECONFIG;
	}
	if (token && !LIBS3_HAS_TOKEN) {
		r->host->fail(r->host,
			      "s3+libs3: AWS_SESSION_TOKEN: this libs3 cannot send a session "
			      "token, expected keys that need none");
		return KVT_ECONFIG;
	}
	if (!is_plain(access) || !is_plain(secret) || (token && !is_plain(token))) {
		r->host->fail(r->host, "s3+libs3: keys: expected visible ASCII characters");
		return is_given ? KVT_EINVAL : KVT_ECONFIG;
	}
	config->access_key = keep(r, access, strlen(access));
	config->secret_key = keep(r, secret, strlen(secret));
	config->session_token = token ? keep(r, token, strlen(token)) : NULL;
	return 0;
}

/* ---- the rest ---- */

static bool parse_bytes(const char *text, uint64_t *valuep)
{
	static const struct {
		const char *unit;
		unsigned shift;
	} units[] = {{"", 0}, {"KiB", 10}, {"MiB", 20}, {"GiB", 30}, {"TiB", 40}};
	uint64_t value = 0;
	const char *c = text;

	for (; *c >= '0' && *c <= '9'; c++)
		if (__builtin_mul_overflow(value, (uint64_t)10, &value) ||
		    __builtin_add_overflow(value, (uint64_t)(*c - '0'), &value))
			return false;
	for (size_t i = 0; c > text && i < sizeof(units) / sizeof(units[0]); i++)
		if (!strcmp(c, units[i].unit) && value <= UINT64_MAX >> units[i].shift) {
			*valuep = value << units[i].shift;
			return true;
		}
	return false;
}

static int read_switches(struct reader *r)
{
	struct libs3_config *config = r->config;
	const char *verify = option(r, "verify"), *addressing = option(r, "addressing");
	const char *most = option(r, "max_object_bytes"), *region = option(r, "region");

	config->verify = !verify || !strcmp(verify, "on") || !strcmp(verify, "true");
	if (!config->verify && strcmp(verify, "off") != 0 && strcmp(verify, "false") != 0)
		return refuse(r, "verify", verify, "on or off");
	config->is_virtual = addressing && !strcmp(addressing, "virtual");
	if (addressing && !config->is_virtual && strcmp(addressing, "path") != 0)
		return refuse(r, "addressing", addressing, "path or virtual");
	config->max_object_bytes = DEFAULT_MAX_OBJECT_BYTES;
	if (most && (!parse_bytes(most, &config->max_object_bytes) ||
		     config->max_object_bytes < LIBS3_MIB ||
		     config->max_object_bytes > LIBS3_MAX_PUT_BYTES))
		return refuse(r, "max_object_bytes", most,
			      "bytes from 1MiB to 5GiB, such as 256MiB");
	if (LIBS3_HAS_REGION) {
		if (!region)
			region = environment("AWS_REGION");
		if (!region)
			region = environment("AWS_DEFAULT_REGION");
		if (region && (strlen(region) > 32 || !*region ||
			       region[strspn(region, "abcdefghijklmnopqrstuvwxyz0123456789-")]))
			return refuse(r, "region", region, "at most 32 of [a-z0-9-]");
		config->region = region ? keep(r, region, strlen(region)) : NULL;
	}
	return 0;
}

static int check_tls(const struct reader *r)
{
	if (!r->config->https || !r->config->verify || LIBS3_HAS_VERIFY)
		return 0;
	r->host->fail(r->host,
		      "s3+libs3: https://%s: this libs3 cannot verify certificates, expected http, "
		      "verify=off, or the backend s3",
		      r->config->host);
	return KVT_ECONFIG;
}

/* An upper bound of what all copies need. */
static size_t memory_bytes(const struct reader *r)
{
	static const char *const variables[] = {"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL",
						"AWS_ACCESS_KEY_ID",   "AWS_SECRET_ACCESS_KEY",
						"AWS_SESSION_TOKEN",   "AWS_REGION",
						"AWS_DEFAULT_REGION"};
	size_t bytes = 2 * strlen(r->from->location) + 64;

	for (size_t i = 0; i < r->from->option_count; i++)
		bytes += strlen(r->from->options[i].value) + 1;
	for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++) {
		const char *value = environment(variables[i]);

		bytes += value ? strlen(value) + 1 : 0;
	}
	return bytes;
}

int kvt__libs3_config_init(struct libs3_config *config, const struct kvt_host *host,
			   const struct kvt_backend_config *from)
{
	struct reader r = {.host = host, .from = from, .config = config};
	int error;

	memset(config, 0, sizeof(*config));
	config->memory_bytes = memory_bytes(&r);
	config->memory = host->alloc(host, config->memory_bytes, 16);
	if (!config->memory) {
		host->fail(host, "s3+libs3: out of memory");
		return KVT_ENOMEM;
	}
	error = read_switches(&r);
	if (!error)
		error = read_location(&r);
	if (!error)
		error = read_endpoint(&r);
	if (!error)
		error = read_keys(&r);
	if (!error)
		error = check_tls(&r);
	if (error)
		kvt__libs3_config_fini(config, host);
	return error;
}

void kvt__libs3_config_fini(struct libs3_config *config, const struct kvt_host *host)
{
	if (config->memory)
		explicit_bzero(config->memory, config->memory_bytes);
	host->free(host, config->memory);
	memset(config, 0, sizeof(*config));
}
