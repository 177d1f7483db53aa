/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The URI: bucket and prefix. Both are taken as they stand, nothing in them is percent-decoded.
 * Whatever could be a secret in it is refused without being repeated.
 */
#include <string.h>

#include "config_parts.h"

#define S3_MAX_SEGMENT 255u

static int s3_bad_uri(const struct s3_sources *from, const char *what)
{
	from->host->fail(from->host, "uri: %s, expected s3://bucket/prefix", what);
	return KVT_EINVAL;
}

static int s3_check_bucket(const struct s3_sources *from, const char *bucket, size_t bytes)
{
	const char *colon = memchr(bucket, ':', bytes);

	if (bytes == 0)
		return s3_bad_uri(from, "no bucket");
	if (bytes > S3_CONFIG_MAX_BUCKET)
		return s3_bad_uri(from, "a bucket of more than 255 bytes");
	if (colon != NULL &&
	    strspn(colon + 1, "0123456789") == (size_t)(bucket + bytes - colon - 1))
		return s3_bad_uri(from, "a host and port in place of the bucket, which belong into "
					"option endpoint");
	/* A colon stands behind the tenant of a Ceph gateway. */
	for (size_t i = 0; i < bytes; i++)
		if (!s3_is_alnum(bucket[i]) && strchr(".-_:", bucket[i]) == NULL)
			return s3_bad_uri(from,
					  "a bucket with other characters than [A-Za-z0-9._:-]");
	if (strspn(bucket, ".") >= bytes)
		return s3_bad_uri(from, "a bucket of dots");
	return 0;
}

/* Whether `bytes` bytes at text are one or more UTF-8 characters, none a control character. */
static bool s3_is_text(const unsigned char *text, size_t bytes)
{
	static const uint32_t least[] = {0, 0x80, 0x800, 0x10000};

	for (size_t i = 0; i < bytes;) {
		uint32_t c = text[i];
		size_t more = c < 0x80 ? 0 : c >= 0xf0 ? 3 : c >= 0xe0 ? 2 : 1;

		if (c < 0x20 || c == 0x7f || (c >= 0x80 && c < 0xc2) || c > 0xf4 ||
		    more > bytes - i - 1)
			return false;
		c &= more > 0 ? 0x3fu >> more : 0x7fu;
		for (size_t k = 1; k <= more; k++) {
			if ((text[i + k] & 0xc0) != 0x80)
				return false;
			c = c << 6 | (text[i + k] & 0x3fu);
		}
		if (c < least[more] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000) ||
		    (c >= 0x80 && c < 0xa0))
			return false;
		i += more + 1;
	}
	return true;
}

static int s3_check_prefix(const struct s3_sources *from, const char *prefix)
{
	if (!s3_is_text((const unsigned char *)prefix, strlen(prefix)))
		return s3_bad_uri(from, "a prefix that is not plain text in UTF-8");
	for (const char *at = prefix;;) {
		size_t bytes = strcspn(at, "/");

		if ((bytes == 1 && at[0] == '.') || (bytes == 2 && at[0] == '.' && at[1] == '.'))
			return s3_bad_uri(from, "a component . or .. in the prefix");
		if (bytes > S3_MAX_SEGMENT)
			return s3_bad_uri(from, "a component of more than 255 bytes in the prefix");
		if (at[bytes] == '\0')
			break;
		at += bytes + 1;
	}
	if (strlen(prefix) + 2 >= S3_CONFIG_MAX_KEY)
		return s3_bad_uri(from, "a prefix that leaves no room in a key of 1024 bytes");
	return 0;
}

/* Takes out slashes at the ends and doubled ones, in place. */
static void s3_squeeze(char *prefix)
{
	char *to = prefix;

	for (const char *c = prefix; *c != '\0'; c++)
		if (*c != '/' || (to > prefix && to[-1] != '/'))
			*to++ = *c;
	if (to > prefix && to[-1] == '/')
		to--;
	*to = '\0';
}

static int s3_make_key_root(struct s3_config *s3, const struct s3_sources *from,
			    const char *verbatim)
{
	static const char *const words[] = {"kvtier", "vllm-obj", NULL};
	struct s3_given given;
	int which, error;

	kvt__s3_option_or_default(from, "compat_names", &given);
	error = kvt__s3_word(from, &given, words, "kvtier or vllm-obj", &which);
	if (error != 0)
		return error;
	/* vLLM joins its prefix, a slash, and names that begin with one, or those alone. */
	if (which == 1)
		s3->key_root = kvt__s3_join(from->host, verbatim, *verbatim != '\0' ? "/" : NULL,
					    "/", NULL);
	else
		s3->key_root = kvt__s3_join(from->host, s3->prefix,
					    *s3->prefix != '\0' ? "/" : NULL, NULL, NULL);
	return s3->key_root != NULL ? 0 : kvt__s3_no_memory(from);
}

/* Secrets in a URI would end up in lists of processes, logs and histories. */
static int s3_check_secrets(const struct s3_sources *from, const char *text)
{
	const char *user = strrchr(text, '@');

	if (strpbrk(text, "?#") != NULL)
		return s3_bad_uri(from, "a query or fragment (options are given beside the URI)");
	if (user != NULL && ((size_t)(user - text) < strcspn(text, "/") ||
			     memchr(text, ':', (size_t)(user - text)) != NULL))
		return s3_bad_uri(from, "user info (keys come from options, the environment or "
					"profile files)");
	return 0;
}

int kvt__s3_read_location(struct s3_config *s3, const struct s3_sources *from)
{
	const char *text = from->config->location, *prefix, *bucket;
	const char *other = from->store.values[S3_STORE_BUCKET];
	size_t bytes;
	int error;

	if (strncmp(text, "//", 2) != 0)
		return s3_bad_uri(from, "no // behind the scheme");
	text += 2;
	error = s3_check_secrets(from, text);
	if (error != 0)
		return error;
	bytes = strcspn(text, "/");
	prefix = text[bytes] == '/' ? text + bytes + 1 : "";
	bucket = bytes == 0 && other != NULL ? other : text;
	if (bucket == other)
		bytes = strlen(other);
	error = s3_check_bucket(from, bucket, bytes);
	if (error == 0)
		error = s3_check_prefix(from, prefix);
	if (error != 0)
		return error;
	s3->bucket = kvt__s3_copy(from->host, bucket, bytes);
	s3->prefix = kvt__s3_copy(from->host, prefix, strlen(prefix));
	if (s3->bucket == NULL || s3->prefix == NULL)
		return kvt__s3_no_memory(from);
	s3_squeeze(s3->prefix);
	if (other != NULL && strcmp(other, s3->bucket) != 0)
		from->host->log(from->host, KVT_HOST_INFO, "s3 bucket",
				"option store_config: bucket: the URI names another, %s, which "
				"counts",
				s3->bucket);
	return s3_make_key_root(s3, from, prefix);
}
