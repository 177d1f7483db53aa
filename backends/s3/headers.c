/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Headers that are added to requests: those that ask for encryption, and those of option headers.
 * What requests have anyway, what would change their meaning and what cannot be sent as it is is
 * refused. Values may be secrets and are in no message.
 */
#include <stdio.h>
#include <string.h>

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include "config_parts.h"

#define S3_MAX_HEADERS	    32u
#define S3_MAX_HEADER_NAME  128u
#define S3_MAX_HEADER_VALUE 8192u
#define S3_SSE		    "x-amz-server-side-encryption"
#define S3_SSE_C	    S3_SSE "-customer-"
#define S3_SSE_C_BYTES	    32
#define S3_SSE_C_TEXT	    44 /* of its base64 */

/* What requests have anyway, or what would make others of them. A * stands for any ending. */
static const char *const s3_reserved_headers[] = {
	"accept-encoding",
	"authorization",
	"connection",
	"content-encoding",
	"content-length",
	"content-md5",
	"date",
	"expect",
	"host",
	"http2-settings",
	"if-*",
	"keep-alive",
	"proxy-*",
	"range",
	"te",
	"trailer",
	"transfer-encoding",
	"upgrade",
	"x-amz-checksum-*",
	"x-amz-content-sha256",
	"x-amz-copy-source*",
	"x-amz-date",
	"x-amz-decoded-content-length",
	"x-amz-sdk-checksum-algorithm",
	"x-amz-security-token",
	"x-amz-server-side-encryption-customer-*",
	"x-amz-trailer",
	"x-amz-write-offset-bytes",
};

/* What describes an object, and so goes only where one is made. */
static const char *const s3_creating_headers[] = {
	"cache-control",
	"content-disposition",
	"content-language",
	"content-type",
	"expires",
	"x-amz-acl",
	"x-amz-grant-*",
	"x-amz-meta-*",
	"x-amz-object-lock-*",
	"x-amz-storage-class",
	"x-amz-tagging",
	"x-amz-website-redirect-location",
	"x-amz-server-side-encryption*",
};

#define S3_COUNT(array) (sizeof(array) / sizeof((array)[0]))

static bool s3_is_one_of(const char *name, const char *const *patterns, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		size_t bytes = strlen(patterns[i]);

		if (patterns[i][bytes - 1] == '*' ? strncmp(name, patterns[i], bytes - 1) == 0
						  : strcmp(name, patterns[i]) == 0)
			return true;
	}
	return false;
}

/* Adds one; the value is copied. */
static int s3_add(struct s3_config *s3, const struct s3_sources *from, const char *name,
		  size_t name_bytes, const char *value, size_t value_bytes, bool on_data)
{
	struct s3_header *header = &s3->headers[s3->header_count];

	*header = (struct s3_header){
		.name = kvt__s3_copy(from->host, name, name_bytes),
		.value = kvt__s3_copy(from->host, value, value_bytes),
		.on_create = true,
		.on_data = on_data,
	};
	s3->header_count++;
	return header->name != NULL && header->value != NULL ? 0 : kvt__s3_no_memory(from);
}

static int s3_bad_header(const struct s3_sources *from, size_t line, const char *what)
{
	from->host->fail(from->host, "option headers: line %zu, expected %s", line, what);
	return KVT_EINVAL;
}

/* What a header's name consists of. */
static bool s3_is_token(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
	       (c != '\0' && strchr("!#$%&'*+-.^_`|~", c) != NULL);
}

/* Reads "Name: value" of `bytes` bytes. */
static int s3_take_line(struct s3_config *s3, const struct s3_sources *from, const char *line,
			size_t bytes, size_t number)
{
	const char *colon = memchr(line, ':', bytes), *value, *end = line + bytes;
	char name[S3_MAX_HEADER_NAME + 1];
	size_t name_bytes = colon != NULL ? (size_t)(colon - line) : 0;

	if (name_bytes == 0 || name_bytes > S3_MAX_HEADER_NAME)
		return s3_bad_header(from, number, "Name: value");
	for (size_t i = 0; i < name_bytes; i++) {
		if (!s3_is_token(line[i]))
			return s3_bad_header(from, number,
					     "a name of letters, digits and !#$%&'*+-.^_`|~");
		name[i] = (char)(line[i] >= 'A' && line[i] <= 'Z' ? line[i] + 32 : line[i]);
	}
	name[name_bytes] = '\0';
	for (value = colon + 1; value < end && *value == ' '; value++)
		;
	while (end > value && end[-1] == ' ')
		end--;
	if (value == end)
		return s3_bad_header(from, number, "a value behind the colon");
	if (end - value > S3_MAX_HEADER_VALUE)
		return s3_bad_header(from, number, "a value of at most 8192 bytes");
	for (const char *c = value; c < end; c++)
		if ((unsigned char)*c < 0x20 || *c == 0x7f)
			return s3_bad_header(from, number, "a value without control characters");
	if (s3_is_one_of(name, s3_reserved_headers, S3_COUNT(s3_reserved_headers))) {
		from->host->fail(from->host,
				 "option headers: %s: requests have it themselves or would change "
				 "their meaning, expected another header",
				 name);
		return KVT_EINVAL;
	}
	for (size_t i = 0; i < s3->header_count; i++)
		if (strcmp(s3->headers[i].name, name) == 0) {
			from->host->fail(from->host, "option headers: %s: expected it once", name);
			return KVT_EINVAL;
		}
	if (s3->header_count == S3_MAX_HEADERS)
		return s3_bad_header(from, number, "at most 32 headers");
	return s3_add(s3, from, name, name_bytes, value, (size_t)(end - value),
		      !s3_is_one_of(name, s3_creating_headers, S3_COUNT(s3_creating_headers)));
}

static int s3_take_headers(struct s3_config *s3, const struct s3_sources *from)
{
	const char *text = kvt__s3_option(from, "headers");
	int error = 0;

	for (size_t number = 1; error == 0 && text != NULL; number++) {
		size_t bytes = strcspn(text, "\n");
		bool is_last = text[bytes] == '\0';

		if (bytes > 0)
			error = s3_take_line(s3, from, text, bytes, number);
		text = is_last ? NULL : text + bytes + 1;
	}
	return error;
}

/* Three headers with every request for data. */
static int s3_take_customer_key(struct s3_config *s3, const struct s3_sources *from,
				const char *text)
{
	static const struct s3_given given = {.place = S3_FROM_OPTION, .where = "option sse_c_key"};
	unsigned char key[S3_SSE_C_TEXT], md5[EVP_MAX_MD_SIZE];
	char again[S3_SSE_C_TEXT + 1], sum[32];
	unsigned md5_bytes = 0;
	int error;

	/* Made again from what was read, so that one key has one text. */
	if (strlen(text) != S3_SSE_C_TEXT ||
	    EVP_DecodeBlock(key, (const unsigned char *)text, S3_SSE_C_TEXT) !=
		    S3_SSE_C_BYTES + 1 ||
	    EVP_EncodeBlock((unsigned char *)again, key, S3_SSE_C_BYTES) != S3_SSE_C_TEXT ||
	    strcmp(again, text) != 0) {
		error = kvt__s3_refuse_secret(from, &given, "base64 of 32 bytes, 44 characters");
		goto out;
	}
	if (!s3->https && !s3->is_loopback) {
		error = kvt__s3_refuse_secret(from, &given,
					      "https, for the key goes with each request");
		goto out;
	}
	if (EVP_Digest(key, S3_SSE_C_BYTES, md5, &md5_bytes, EVP_md5(), NULL) != 1) {
		from->host->fail(from->host, "option sse_c_key: MD5 is not to be had, which "
					     "servers ask for with a key");
		error = KVT_ENOTSUP;
		goto out;
	}
	(void)EVP_EncodeBlock((unsigned char *)sum, md5, (int)md5_bytes);
	error = s3_add(s3, from, S3_SSE_C "algorithm", strlen(S3_SSE_C "algorithm"), "AES256", 6,
		       true);
	if (error == 0)
		error = s3_add(s3, from, S3_SSE_C "key", strlen(S3_SSE_C "key"), text,
			       S3_SSE_C_TEXT, true);
	if (error == 0)
		error = s3_add(s3, from, S3_SSE_C "key-md5", strlen(S3_SSE_C "key-md5"), sum,
			       strlen(sum), true);
out:
	OPENSSL_cleanse(key, sizeof(key));
	OPENSSL_cleanse(again, sizeof(again));
	return error;
}

static int s3_take_encryption(struct s3_config *s3, const struct s3_sources *from)
{
	static const char *const words[] = {"AES256", "aws:kms", NULL};
	const char *customer = kvt__s3_option(from, "sse_c_key"),
		   *key_id = kvt__s3_option(from, "sse_kms_key_id");
	struct s3_given given, key = {.place = S3_FROM_OPTION, .where = "option sse_kms_key_id"};
	int which = 0, error = 0;

	kvt__s3_option_or_default(from, "sse", &given);
	key.value = key_id;
	if (given.value != NULL)
		error = kvt__s3_word(from, &given, words, "AES256 or aws:kms", &which);
	if (error != 0)
		return error;
	if (customer != NULL && given.value != NULL)
		return kvt__s3_refuse(from, &given, "none beside option sse_c_key");
	if (key_id != NULL && which != 1)
		return kvt__s3_refuse(from, &key, "it only beside sse=aws:kms");
	for (const char *c = key_id; c != NULL && (c == key_id || *c != '\0'); c++)
		if (*c <= 0x20 || *c == 0x7f || c - key_id > 2048)
			return kvt__s3_refuse(from, &key, "the name of a key, without blanks");
	if (given.value != NULL)
		error = s3_add(s3, from, S3_SSE, strlen(S3_SSE), given.value, strlen(given.value),
			       false);
	if (error == 0 && key_id != NULL)
		error = s3_add(s3, from, S3_SSE "-aws-kms-key-id", strlen(S3_SSE "-aws-kms-key-id"),
			       key_id, strlen(key_id), false);
	if (error == 0 && customer != NULL)
		error = s3_take_customer_key(s3, from, customer);
	return error;
}

int kvt__s3_read_headers(struct s3_config *s3, const struct s3_sources *from)
{
	int error;

	if (kvt__s3_option(from, "headers") == NULL && kvt__s3_option(from, "sse") == NULL &&
	    kvt__s3_option(from, "sse_c_key") == NULL &&
	    kvt__s3_option(from, "sse_kms_key_id") == NULL)
		return 0;
	s3->headers = from->host->alloc(from->host, S3_MAX_HEADERS * sizeof(*s3->headers),
					_Alignof(struct s3_header));
	if (s3->headers == NULL)
		return kvt__s3_no_memory(from);
	error = s3_take_encryption(s3, from);
	return error == 0 ? s3_take_headers(s3, from) : error;
}

void kvt__s3_headers_fini(struct s3_config *s3, const struct kvt_host *host)
{
	for (size_t i = 0; i < s3->header_count; i++) {
		kvt__s3_wipe(host, s3->headers[i].name);
		kvt__s3_wipe(host, s3->headers[i].value);
	}
	host->free(host, s3->headers);
	s3->headers = NULL;
	s3->header_count = 0;
}
