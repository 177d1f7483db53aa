/* SPDX-License-Identifier: Apache-2.0 */
/*
 * AWS signature version 4 in the Authorization header. One signer belongs to one session and its
 * thread; it keeps OpenSSL contexts and the key derived for the day.
 */
#ifndef KVT_S3_SIGN_H
#define KVT_S3_SIGN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "credentials.h"

#define S3_UNSIGNED_PAYLOAD "UNSIGNED-PAYLOAD"
#define S3_EMPTY_SHA256	    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

/* A name and a value: a query parameter as it is before encoding (value "" for "?uploads"), or a
 * header in lower case with a trimmed value. */
struct s3_pair {
	const char *name, *value;
};

struct s3_sign_request {
	const char *method;
	const char *path; /* percent-encoded, exactly as on the wire, begins with "/" */
	/* As sent: percent-encoded "name=value" joined by "&", sorted by encoded name, then value;
	 * "" for none. kvt__s3_query makes it. */
	const char *query;
	/* Headers to sign besides host, x-amz-date, x-amz-content-sha256 and x-amz-security-token:
	 * lower-case names, sorted, no duplicates. */
	const struct s3_pair *headers;
	size_t header_count;
	const char *host;	    /* as the Host header says */
	const char *payload_sha256; /* lower-case hex, or S3_UNSIGNED_PAYLOAD */
	const char *region;
	time_t now; /* real time by the server's clock */
};

struct s3_signature {
	char date[17]; /* "20130524T000000Z": the x-amz-date header */
	char authorization[2048];
};

struct s3_signer;

/* NULL when out of memory. */
struct s3_signer *kvt__s3_signer_create(void);
/* Cleanses its keys. Accepts NULL. */
void kvt__s3_signer_destroy(struct s3_signer *signer);
/* 0; KVT_EINVAL when something does not fit (an access key of over 1,024 bytes, say); KVT_ENOMEM.
 * Never blocks. The derived key is kept for (secret, day, region). */
int kvt__s3_sign(struct s3_signer *signer, const struct s3_credentials *credentials,
		 const struct s3_sign_request *request, struct s3_signature *signature);

/* Lower-case hex SHA-256 of memory that comes in pieces. */
int kvt__s3_sha256_begin(struct s3_signer *signer);
int kvt__s3_sha256_add(struct s3_signer *signer, const void *data, size_t bytes);
int kvt__s3_sha256_end(struct s3_signer *signer, char hex[65]);

/* Makes a query from parameters in any order (at most 16): each name and value percent-encoded,
 * sorted, joined. Returns its length, or 0 when it does not fit in `room` (an empty list is "" and
 * 0 too, and then fits). */
size_t kvt__s3_query(const struct s3_pair *parameters, size_t count, char *out, size_t room);

#endif
