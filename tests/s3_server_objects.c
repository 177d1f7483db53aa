/* SPDX-License-Identifier: Apache-2.0 */
/* PUT, GET, HEAD and DELETE of objects, and what clients ask of buckets. */
#include "s3_server_internal.h"

#include <isa-l/crc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define SSE "x-amz-server-side-encryption-customer-"

/* ---- PUT ---- */

static uint32_t crc32c(const uint8_t *data, uint64_t bytes)
{
	uint32_t crc = UINT32_C(0xffffffff);

	while (bytes) {
		int piece = bytes > 1 << 30 ? 1 << 30 : (int)bytes;

		crc = crc32_iscsi((unsigned char *)(uintptr_t)data, piece, crc);
		data += piece;
		bytes -= (uint64_t)piece;
	}
	return ~crc;
}

/* Content-MD5 and x-amz-checksum-crc32c, when they are there. */
static bool checksums_fit(struct s3s_request *r, char crc[12])
{
	const char *sent_crc = s3s_field(r, "x-amz-checksum-crc32c");
	const char *sent_md5 = s3s_field(r, "Content-MD5");
	uint8_t md5[16];
	char text[32];

	crc[0] = 0;
	if (sent_crc && !(atomic_load(&r->server->traits) & S3_SERVER_NO_CHECKSUMS)) {
		uint32_t value = crc32c(r->buffer->data, r->buffer->bytes);
		uint8_t bytes[4] = {(uint8_t)(value >> 24), (uint8_t)(value >> 16),
				    (uint8_t)(value >> 8), (uint8_t)value};

		s3s_base64(bytes, sizeof(bytes), crc);
		if (strcmp(crc, sent_crc) != 0) {
			s3s_error(
				r, 400, "BadDigest",
				"The CRC32C you specified did not match the calculated checksum.");
			return false;
		}
	}
	if (sent_md5) {
		EVP_Digest(r->buffer->data, (size_t)r->buffer->bytes, md5, NULL, EVP_md5(), NULL);
		s3s_base64(md5, sizeof(md5), text);
		if (strcmp(text, sent_md5) != 0) {
			s3s_error(r, 400, "BadDigest",
				  "The Content-MD5 you specified did not match what we received.");
			return false;
		}
	}
	return true;
}

/* "a", a, *: whether an If-Match fits this ETag. */
static bool match(const char *wanted, const char *etag, bool bare_only)
{
	size_t bytes = strlen(etag);

	if (strcmp(wanted, "*") == 0)
		return true;
	if (!bare_only)
		return strcmp(wanted, etag) == 0;
	return bytes >= 2 && strlen(wanted) == bytes - 2 &&
	       strncmp(wanted, etag + 1, bytes - 2) == 0;
}

bool s3s_conditions_locked(struct s3s_request *r, const char *name, bool of_complete)
{
	unsigned traits = atomic_load(&r->server->traits);
	const char *none = s3s_field(r, "If-None-Match"), *some = s3s_field(r, "If-Match");
	struct s3s_entry *entry = s3s_entry_locked(r->server, name);

	if (!none && !some)
		return true;
	if (traits &
	    (of_complete ? S3_SERVER_NO_COMPLETE_CONDITIONS : S3_SERVER_NO_PUT_CONDITIONS)) {
		s3s_error(r, 501, "NotImplemented",
			  "A header you provided implies functionality that is not implemented.");
		return false;
	}
	if (traits &
	    (of_complete ? S3_SERVER_BLIND_COMPLETE_CONDITIONS : S3_SERVER_BLIND_PUT_CONDITIONS))
		return true;
	if (none && strcmp(none, "*") != 0) {
		s3s_error(r, 501, "NotImplemented", "If-None-Match takes * only");
		return false;
	}
	if (some && !entry) {
		s3s_error(r, 404, "NoSuchKey", "The specified key does not exist.");
		return false;
	}
	if ((none && entry) ||
	    (some && !match(some, entry->object->etag, traits & S3_SERVER_BARE_IF_MATCH))) {
		s3s_error(r, 412, "PreconditionFailed",
			  "At least one of the pre-conditions you specified did not hold");
		return false;
	}
	return true;
}

/* What does not fit is left out. */
static void keep_metadata(const struct s3s_request *r, struct s3s_object *object)
{
	size_t used = 0, bytes;

	for (const char *line = r->headers; *line; line += bytes) {
		bytes = strcspn(line, "\n");
		bytes += line[bytes] == '\n';
		if (strncmp(line, "x-amz-meta-", strlen("x-amz-meta-")) == 0 &&
		    used + bytes < sizeof(object->metadata)) {
			memcpy(object->metadata + used, line, bytes);
			used += bytes;
		}
	}
}

void s3s_put(struct s3s_request *r)
{
	struct s3_server *server = r->server;
	const char *sse = s3s_field(r, SSE "key-MD5");
	struct s3s_object *object;
	char crc[12], *name;
	bool stored = false;

	if (strlen(r->key) > 1024) {
		s3s_error(r, 400, "KeyTooLongError", "Your key is too long");
		return;
	}
	if (s3s_field(r, "x-amz-copy-source") || s3s_field(r, "x-amz-trailer")) {
		s3s_error(r, 501, "NotImplemented",
			  "A header you provided implies functionality that is not implemented.");
		return;
	}
	if (!checksums_fit(r, crc))
		return;
	object = s3s_object_create(1);
	name = s3s_name(r->bucket, r->key);
	if (object && name) {
		object->buffers[0] = r->buffer;
		r->buffer = NULL;
		object->bytes = r->length;
		object->modified_s = s3s_now(server);
		snprintf(object->crc32c, sizeof(object->crc32c), "%s", crc);
		snprintf(object->sse_key, sizeof(object->sse_key), "%s", sse ? sse : "");
		keep_metadata(r, object);
		s3s_etag_make(server, object->buffers[0]->data, r->length, object->etag);
		pthread_mutex_lock(&server->lock);
		if (s3s_conditions_locked(r, name, false)) {
			r->reply.status = 200;
			s3s_header(&r->reply, "ETag: %s", object->etag);
			if (crc[0])
				s3s_header(&r->reply, "x-amz-checksum-crc32c: %s", crc);
			stored = s3s_entry_set_locked(server, name, object);
		}
		pthread_mutex_unlock(&server->lock);
	}
	if (!stored) {
		s3s_object_release(object);
		if (!r->failed)
			s3s_error(r, 500, "InternalError", "out of memory");
	}
	free(name);
}

/* ---- GET and HEAD ---- */

enum range { WHOLE, PART, NOWHERE };

/* "bytes=a-b", "bytes=a-", "bytes=-n"; anything else is ignored, as HTTP wants it. */
static enum range parse_range(const char *text, uint64_t total, uint64_t *first, uint64_t *last)
{
	unsigned long long from = 0, to = 0;
	char *end;

	if (!text || strncmp(text, "bytes=", 6) != 0 || strchr(text, ','))
		return WHOLE;
	text += 6;
	if (*text == '-') {
		to = strtoull(text + 1, &end, 10);
		if (*end || end == text + 1)
			return WHOLE;
		if (to == 0 || total == 0)
			return NOWHERE;
		*first = to < total ? total - to : 0;
		*last = total - 1;
		return PART;
	}
	from = strtoull(text, &end, 10);
	if (end == text || *end != '-')
		return WHOLE;
	text = end + 1;
	to = *text ? strtoull(text, &end, 10) : UINT64_MAX;
	if ((*text && *end) || to < from)
		return WHOLE;
	if (from >= total)
		return NOWHERE;
	*first = from;
	*last = to < total ? to : total - 1;
	return PART;
}

static void absent(struct s3s_request *r)
{
	if (atomic_load(&r->server->traits) & S3_SERVER_NO_LIST_RIGHT)
		s3s_error(r, 403, "AccessDenied", "Access Denied");
	else
		s3s_error(r, 404, "NoSuchKey", "The specified key does not exist.");
}

static void describe(struct s3s_request *r, const struct s3s_object *object)
{
	char date[32];

	s3s_http_date(object->modified_s, date);
	s3s_header(&r->reply, "Last-Modified: %s", date);
	s3s_header(&r->reply, "ETag: %s", object->etag);
	s3s_header(&r->reply, "Accept-Ranges: bytes");
	s3s_header(&r->reply, "Content-Type: binary/octet-stream");
	for (size_t at = 0, bytes; object->metadata[at]; at += bytes + 1) {
		bytes = strcspn(object->metadata + at, "\n");
		s3s_header(&r->reply, "%.*s", (int)bytes, object->metadata + at);
	}
}

static bool conditions_of_get(struct s3s_request *r, const struct s3s_object *object)
{
	const char *some = s3s_field(r, "If-Match"), *none = s3s_field(r, "If-None-Match");
	const char *sse = s3s_field(r, SSE "key-MD5");

	if (some && !match(some, object->etag, false)) {
		s3s_error(r, 412, "PreconditionFailed",
			  "At least one of the pre-conditions you specified did not hold");
		return false;
	}
	if (none && match(none, object->etag, false)) {
		r->reply.status = 304;
		s3s_header(&r->reply, "ETag: %s", object->etag);
		return false;
	}
	if (strcmp(object->sse_key, sse ? sse : "") != 0) {
		s3s_error(r, sse && object->sse_key[0] ? 403 : 400,
			  sse && object->sse_key[0] ? "AccessDenied" : "InvalidRequest",
			  "The object was stored using a form of Server Side Encryption. The "
			  "correct parameters must be provided to retrieve the object.");
		return false;
	}
	return true;
}

void s3s_get(struct s3s_request *r)
{
	char *name = s3s_name(r->bucket, r->key);
	struct s3s_object *object = name ? s3s_object_find(r->server, name) : NULL;
	bool whole = r->has_rule && r->rule.whole;
	uint64_t first = 0, last = 0;
	enum range range;

	free(name);
	if (!object) {
		absent(r);
		return;
	}
	if (!conditions_of_get(r, object)) {
		s3s_object_release(object);
		return;
	}
	range = parse_range(whole ? NULL : s3s_field(r, "Range"), object->bytes, &first, &last);
	if (range == NOWHERE) {
		s3s_error(r, 416, "InvalidRange", "The requested range is not satisfiable");
		if (!(atomic_load(&r->server->traits) & S3_SERVER_BARE_416))
			s3s_header(&r->reply, "Content-Range: bytes */%llu",
				   (unsigned long long)object->bytes);
		s3s_object_release(object);
		return;
	}
	describe(r, object);
	r->reply.status = range == PART ? 206 : 200;
	if (range == PART)
		s3s_header(&r->reply, "Content-Range: bytes %llu-%llu/%llu",
			   (unsigned long long)first, (unsigned long long)last,
			   (unsigned long long)object->bytes);
	else if (object->crc32c[0] && s3s_field(r, "x-amz-checksum-mode"))
		s3s_header(&r->reply, "x-amz-checksum-crc32c: %s", object->crc32c);
	r->reply.object = object;
	r->reply.first = first;
	r->reply.bytes = range == PART ? last - first + 1 : object->bytes;
}

/* ---- DELETE ---- */

void s3s_delete(struct s3s_request *r)
{
	struct s3_server *server = r->server;
	const char *some = s3s_field(r, "If-Match");
	char *name = s3s_name(r->bucket, r->key);
	struct s3s_entry *entry;

	if (!name)
		return;
	pthread_mutex_lock(&server->lock);
	entry = s3s_entry_locked(server, name);
	if (some && atomic_load(&server->traits) & S3_SERVER_DELETE_IF_MATCH &&
	    (!entry || !match(some, entry->object->etag, false))) {
		s3s_error(r, entry ? 412 : 404, entry ? "PreconditionFailed" : "NoSuchKey",
			  "At least one of the pre-conditions you specified did not hold");
	} else {
		(void)s3s_entry_remove_locked(server, name);
		r->reply.status = 204;
	}
	pthread_mutex_unlock(&server->lock);
	free(name);
}

/* ---- Buckets ---- */

void s3s_other(struct s3s_request *r)
{
	struct s3_server *server = r->server;

	if (!r->bucket[0]) {
		r->reply.status = 200;
		s3s_text(&r->reply, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
				    "<ListAllMyBucketsResult><Owner><ID>o</ID></Owner><Buckets>");
		pthread_mutex_lock(&server->lock);
		for (unsigned i = 0; i < server->bucket_count; i++)
			s3s_text(&r->reply,
				 "<Bucket><Name>%s</Name><CreationDate>2024-01-01T00:00:00.000Z"
				 "</CreationDate></Bucket>",
				 server->buckets[i]);
		pthread_mutex_unlock(&server->lock);
		s3s_text(&r->reply, "</Buckets></ListAllMyBucketsResult>");
	} else if (r->key[0]) {
		s3s_error(r, 501, "NotImplemented", "this is not implemented");
	} else if (strcmp(r->method, "PUT") == 0) {
		r->reply.status = s3_server_add_bucket(server, r->bucket) ? 200 : 500;
	} else if (!s3s_bucket_is(server, r->bucket)) {
		s3s_error(r, 404, "NoSuchBucket", "The specified bucket does not exist");
	} else if (r->is_head) {
		r->reply.status = 200;
		if (server->options.region)
			s3s_header(&r->reply, "x-amz-bucket-region: %s", server->options.region);
	} else if (s3s_query(r, "location")) {
		r->reply.status = 200;
		s3s_text(&r->reply,
			 "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<LocationConstraint xmlns="
			 "\"http://s3.amazonaws.com/doc/2006-03-01/\"></LocationConstraint>");
	} else {
		s3s_error(r, 501, "NotImplemented", "this is not implemented");
	}
}
