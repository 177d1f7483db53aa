/* SPDX-License-Identifier: Apache-2.0 */
/* The ETag of an object in parts, as AWS, MinIO, Ceph RGW and Swift make it: the MD5 of its parts'
 * MD5s, a hyphen and how many there are. */
#include "s3.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include <openssl/evp.h>

#define S3_MD5_BYTES 16u

/* Without its quotes. */
static const char *s3_bare(const char *etag, size_t bytes, size_t *barep)
{
	if (bytes >= 2 && etag[0] == '"' && etag[bytes - 1] == '"') {
		etag++;
		bytes -= 2;
	}
	*barep = bytes;
	return etag;
}

static int s3_hex_digit(char c)
{
	static const char digits[] = "0123456789abcdef";
	const char *at = c ? strchr(digits, c | ('A' <= c && c <= 'F' ? 0x20 : 0)) : NULL;

	return at ? (int)(at - digits) : -1;
}

static bool s3_md5_of_etag(const char *etag, unsigned char md5[S3_MD5_BYTES])
{
	size_t n;

	etag = s3_bare(etag, strlen(etag), &n);
	if (n != 2 * S3_MD5_BYTES)
		return false;
	for (size_t i = 0; i < S3_MD5_BYTES; i++) {
		int high = s3_hex_digit(etag[2 * i]), low = s3_hex_digit(etag[2 * i + 1]);

		if (high < 0 || low < 0)
			return false;
		md5[i] = (unsigned char)(16 * high + low);
	}
	return true;
}

void kvt__s3_etag_begin(struct s3_etag_of_parts *e)
{
	*e = (struct s3_etag_of_parts){.md5 = EVP_MD_CTX_new()};
	e->is_known = e->md5 && EVP_DigestInit_ex(e->md5, EVP_md5(), NULL) == 1;
}

void kvt__s3_etag_add(struct s3_etag_of_parts *e, const char *etag)
{
	unsigned char md5[S3_MD5_BYTES];

	e->parts++;
	e->is_known = e->is_known && s3_md5_of_etag(etag, md5) &&
		      EVP_DigestUpdate(e->md5, md5, sizeof(md5)) == 1;
}

bool kvt__s3_etag_end(struct s3_etag_of_parts *e, const struct kvt_version *version)
{
	unsigned char md5[EVP_MAX_MD_SIZE];
	char text[2 * S3_MD5_BYTES + 16];
	unsigned bytes = 0;
	const char *etag;
	size_t n, at = 0;
	bool is_same = false;

	if (e->is_known && EVP_DigestFinal_ex(e->md5, md5, &bytes) == 1 && bytes == S3_MD5_BYTES) {
		for (size_t i = 0; i < S3_MD5_BYTES; i++)
			at += (size_t)snprintf(text + at, sizeof(text) - at, "%02x", md5[i]);
		at += (size_t)snprintf(text + at, sizeof(text) - at, "-%u", e->parts);
		etag = s3_bare((const char *)version->value, version->bytes, &n);
		is_same = n == at && strncasecmp(etag, text, n) == 0;
	}
	EVP_MD_CTX_free(e->md5);
	return is_same;
}
