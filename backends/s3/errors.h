/* SPDX-License-Identifier: Apache-2.0 */
/* What servers and libcurl answer, mapped once to result codes. */
#ifndef KVT_S3_ERRORS_H
#define KVT_S3_ERRORS_H

#include <stdbool.h>

#include <curl/curl.h>

/* What may be done about an answer before it is an error of the request; each once. */
enum s3_remedy {
	S3_REMEDY_NONE = 0,
	S3_REMEDY_CLOCK,       /* RequestTimeTooSkewed: learn the server's time, sign again */
	S3_REMEDY_REGION,      /* sign for the region that the reply names */
	S3_REMEDY_CREDENTIALS, /* ExpiredToken and its like: fetch newer ones, sign again */
};

/* What an answer of 300 or more (or <Error> in a 200) means, from its status and S3 code ("" when
 * there was no body: HEAD). NoSuchKey KVT_ENOENT; NoSuchBucket KVT_ECONFIG; AccessDenied
 * KVT_EACCES; SignatureDoesNotMatch and InvalidAccessKeyId KVT_EAUTH; SlowDown and 429
 * KVT_ETHROTTLED; 5xx KVT_ESERVER; 412 KVT_EPRECOND; 416 KVT_ERANGE; 501 KVT_ENOTSUP ... */
int kvt__s3_error_of_reply(long status, const char *code, enum s3_remedy *remedyp);

/* What a failed transfer means: KVT_ENET, KVT_ETIMEDOUT, KVT_EPROTO (18, 52), KVT_ECONFIG (TLS
 * verification, unreadable CA file), KVT_ENOMEM, KVT_EINTERNAL ... */
int kvt__s3_error_of_curl(CURLcode code);
/* Whether the request may be repeated at once when it went out on a reused connection and no byte
 * of an answer came: the server had closed it. */
bool kvt__s3_is_stale_connection(CURLcode code);

#endif
