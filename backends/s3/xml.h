/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The XML that S3 answers with, read by expat as it comes in pieces of any size: bounded in depth,
 * in text and in length, without DTD and without external entities.
 */
#ifndef KVT_S3_XML_H
#define KVT_S3_XML_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum s3_xml_root {
	S3_XML_NONE = 0, /* nothing, or nothing but blanks, so far */
	S3_XML_ERROR,	 /* <Error> */
	S3_XML_INITIATE, /* <InitiateMultipartUploadResult> */
	S3_XML_COMPLETE, /* <CompleteMultipartUploadResult> */
	S3_XML_LIST,	 /* <ListBucketResult> */
	S3_XML_UPLOADS,	 /* <ListMultipartUploadsResult> */
	S3_XML_OTHER,
};

#define S3_XML_MAX_BYTES (16u << 20) /* of a document */
#define S3_XML_MAX_DEPTH 16u
#define S3_XML_MAX_TEXT	 16384u /* of one element */

/* One <Contents> or <Upload>, borrowed for the call. Absent elements are "". */
struct s3_xml_item {
	const char *key;       /* decoded when the page says EncodingType url ("+" is a blank) */
	const char *etag;      /* with its quotes, as in the header; added when they are missing */
	const char *upload_id; /* <Upload> */
	const char *time;      /* LastModified or Initiated, ISO 8601 */
	uint64_t bytes;	       /* Size; UINT64_MAX when absent or no number */
};

struct s3_xml;
/* Nonzero stops: feeding fails with that value from then on. */
typedef int (*s3_xml_item_fn)(void *context, const struct s3_xml_item *item);

/* `item` may be NULL. NULL when out of memory. */
struct s3_xml *kvt__s3_xml_create(s3_xml_item_fn item, void *context);
/* Accepts NULL. */
void kvt__s3_xml_destroy(struct s3_xml *xml);
/* 0; KVT_EPROTO when it is no well-formed XML within the bounds; KVT_ENOMEM; what `item` answered.
 */
int kvt__s3_xml_feed(struct s3_xml *xml, const void *data, size_t bytes);
/* The document is at its end: as feed. S3_XML_NONE as root is no failure. */
int kvt__s3_xml_end(struct s3_xml *xml);

enum s3_xml_root kvt__s3_xml_root(const struct s3_xml *xml);
/* Text of an element right below the root ("Code", "Message", "Region", "RequestId", "UploadId",
 * "ETag", "IsTruncated", "NextContinuationToken", "NextKeyMarker", "NextUploadIdMarker",
 * "EncodingType" ...), "" when it is absent. Key markers are decoded as keys are. Valid until
 * destroyed. */
const char *kvt__s3_xml_text(const struct s3_xml *xml, const char *element);

/* "2024-01-31T12:34:56.000Z" or the date of an HTTP header ("Wed, 31 Jan 2024 12:34:56 GMT") in
 * seconds since 1970, or -1. Without the locale. */
int64_t kvt__s3_time(const char *text);
/* How old what was changed then is now, as kvt_object_info tells it: 0 for what comes from the
 * future, -1 when modified_s is. */
int64_t kvt__s3_age_ns(int64_t now_s, int64_t modified_s);

#endif
