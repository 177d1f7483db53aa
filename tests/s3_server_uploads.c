/* SPDX-License-Identifier: Apache-2.0 */
/* Multipart uploads: create, part, complete, abort. */
#include "s3_server_internal.h"

#include <expat.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_PARTS 10000u

static const char no_such_upload[] = "The specified upload does not exist. The upload ID may be "
				     "invalid, or the upload may have been aborted or completed.";

void s3s_create(struct s3s_request *r)
{
	struct s3_server *server = r->server;
	const char *sse = s3s_field(r, "x-amz-server-side-encryption-customer-key-MD5");
	char *name = s3s_name(r->bucket, r->key), id[48] = "";
	struct s3s_upload *upload;
	int64_t now = s3s_now(server);

	if (atomic_load(&server->traits) & S3_SERVER_NO_MULTIPART) {
		s3s_error(r, 501, "NotImplemented", "multipart uploads are not implemented");
		free(name);
		return;
	}
	pthread_mutex_lock(&server->lock);
	upload = name ? s3s_upload_begin_locked(server, name, now) : NULL;
	if (upload) {
		snprintf(upload->sse_key, sizeof(upload->sse_key), "%s", sse ? sse : "");
		memcpy(id, upload->id, sizeof(id));
	}
	pthread_mutex_unlock(&server->lock);
	free(name);
	if (!id[0])
		return;
	r->reply.status = 200;
	s3s_text(&r->reply, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
			    "<InitiateMultipartUploadResult "
			    "xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Bucket>");
	s3s_text_escaped(&r->reply, r->bucket);
	s3s_text(&r->reply, "</Bucket><Key>");
	s3s_text_escaped(&r->reply, r->key);
	s3s_text(&r->reply, "</Key><UploadId>");
	s3s_text_escaped(&r->reply, id);
	s3s_text(&r->reply, "</UploadId></InitiateMultipartUploadResult>");
}

/* Takes the part's buffer. False when memory is short. */
static bool set_part_locked(struct s3s_upload *upload, unsigned number, struct s3s_buffer *buffer,
			    const char *etag)
{
	unsigned at = 0;
	struct s3s_part *grown;

	while (at < upload->count && upload->parts[at].number < number)
		at++;
	if (at < upload->count && upload->parts[at].number == number) {
		s3s_buffer_release(upload->parts[at].buffer);
	} else {
		grown = realloc(upload->parts, (upload->count + 1) * sizeof(*grown));
		if (!grown)
			return false;
		upload->parts = grown;
		memmove(&grown[at + 1], &grown[at], (upload->count - at) * sizeof(*grown));
		upload->count++;
	}
	upload->parts[at].number = number;
	upload->parts[at].buffer = buffer;
	snprintf(upload->parts[at].etag, S3S_ETAG_BYTES, "%s", etag);
	return true;
}

void s3s_part(struct s3s_request *r)
{
	struct s3_server *server = r->server;
	const char *id = s3s_query(r, "uploadId"), *number = s3s_query(r, "partNumber");
	const char *sse = s3s_field(r, "x-amz-server-side-encryption-customer-key-MD5");
	char *name = s3s_name(r->bucket, r->key), etag[S3S_ETAG_BYTES], *end = NULL;
	unsigned long n = strtoul(number, &end, 10);
	struct s3s_upload *upload;

	if (n < 1 || n > MOST_PARTS || *end) {
		s3s_error(r, 400, "InvalidArgument",
			  "Part number must be an integer between 1 and 10000, inclusive");
		free(name);
		return;
	}
	s3s_etag_make(server, r->buffer->data, r->length, etag);
	pthread_mutex_lock(&server->lock);
	upload = name ? s3s_upload_locked(server, name, id) : NULL;
	if (!upload) {
		s3s_error(r, 404, "NoSuchUpload", no_such_upload);
	} else if (strcmp(upload->sse_key, sse ? sse : "") != 0) {
		s3s_error(r, 400, "InvalidRequest",
			  "The multipart upload initiate requested encryption. Subsequent part "
			  "requests must include the appropriate encryption parameters.");
	} else if (set_part_locked(upload, (unsigned)n, r->buffer, etag)) {
		r->buffer = NULL;
		r->reply.status = 200;
		s3s_header(&r->reply, "ETag: %s", etag);
	}
	pthread_mutex_unlock(&server->lock);
	free(name);
}

/* ---- Complete ---- */

struct wish {
	unsigned number;
	char etag[S3S_ETAG_BYTES];
};

struct wishes {
	struct wish *list;
	unsigned count;
	unsigned depth;
	bool has_part, wrong;
	char text[256];
	size_t text_bytes;
};

static void XMLCALL on_start(void *context, const char *name, const char **attributes)
{
	struct wishes *w = context;

	(void)attributes;
	w->text_bytes = 0;
	w->text[0] = 0;
	if (w->depth == 0 && strcmp(name, "CompleteMultipartUpload") != 0)
		w->wrong = true;
	if (w->depth == 1) {
		struct wish *grown;

		if (strcmp(name, "Part") != 0 || w->count == MOST_PARTS) {
			w->wrong = true;
			return;
		}
		grown = realloc(w->list, (w->count + 1) * sizeof(*grown));
		if (!grown) {
			w->wrong = true;
			return;
		}
		w->list = grown;
		memset(&grown[w->count++], 0, sizeof(*grown));
	}
	w->depth++;
}

static void XMLCALL on_end(void *context, const char *name)
{
	struct wishes *w = context;
	struct wish *last = w->count ? &w->list[w->count - 1] : NULL;

	w->depth--;
	if (w->depth != 2 || !last)
		return;
	if (strcmp(name, "PartNumber") == 0)
		last->number = (unsigned)strtoul(w->text, NULL, 10);
	else if (strcmp(name, "ETag") == 0)
		snprintf(last->etag, sizeof(last->etag), "%.*s", (int)sizeof(last->etag) - 1,
			 w->text);
}

static void XMLCALL on_text(void *context, const char *text, int bytes)
{
	struct wishes *w = context;

	if (w->text_bytes + (size_t)bytes < sizeof(w->text)) {
		memcpy(w->text + w->text_bytes, text, (size_t)bytes);
		w->text_bytes += (size_t)bytes;
		w->text[w->text_bytes] = 0;
	}
}

static bool read_wishes(struct s3s_request *r, struct wishes *w)
{
	XML_Parser parser = XML_ParserCreate(NULL);
	bool good = parser != NULL;

	if (good) {
		XML_SetUserData(parser, w);
		XML_SetElementHandler(parser, on_start, on_end);
		XML_SetCharacterDataHandler(parser, on_text);
		good = XML_Parse(parser, r->text ? r->text : "", (int)r->text_bytes, 1) ==
			       XML_STATUS_OK &&
		       !w->wrong && w->count > 0;
		XML_ParserFree(parser);
	}
	if (!good)
		s3s_error(r, 400, "MalformedXML",
			  "The XML you provided was not well-formed or did not validate against "
			  "our published schema");
	return good;
}

static struct s3s_part *find_part(struct s3s_upload *upload, unsigned number)
{
	for (unsigned i = 0; i < upload->count; i++)
		if (upload->parts[i].number == number)
			return &upload->parts[i];
	return NULL;
}

static bool parts_fit_locked(struct s3s_request *r, struct s3s_upload *upload,
			     const struct wishes *w)
{
	bool equal = atomic_load(&r->server->traits) & S3_SERVER_EQUAL_PARTS;
	uint64_t size = 0;

	for (unsigned i = 1; i < w->count; i++)
		if (w->list[i].number <= w->list[i - 1].number) {
			s3s_error(r, 400, "InvalidPartOrder",
				  "The list of parts was not in ascending order.");
			return false;
		}
	for (unsigned i = 0; i < w->count; i++) {
		const struct s3s_part *part = find_part(upload, w->list[i].number);

		if (!part || strcmp(part->etag, w->list[i].etag) != 0) {
			s3s_error(r, 400, "InvalidPart",
				  "One or more of the specified parts could not be found.");
			return false;
		}
		if (i + 1 == w->count)
			break;
		if (part->buffer->bytes < r->server->options.min_part_bytes) {
			s3s_error(r, 400, "EntityTooSmall",
				  "Your proposed upload is smaller than the minimum allowed size");
			return false;
		}
		if (equal && i && part->buffer->bytes != size) {
			s3s_error(r, 400, "InvalidPart",
				  "All non-trailing parts must have the same length.");
			return false;
		}
		size = part->buffer->bytes;
	}
	return true;
}

/* number 0: an ETag of the usual kind, the MD5 of the parts' MD5s. */
static struct s3s_object *join_locked(struct s3s_upload *upload, const struct wishes *w,
				      uint64_t number)
{
	struct s3s_object *object = s3s_object_create(w->count);
	EVP_MD_CTX *md5 = EVP_MD_CTX_new();
	uint8_t hash[16];
	char hex[33];

	if (!object || !md5) {
		s3s_object_release(object);
		EVP_MD_CTX_free(md5);
		return NULL;
	}
	EVP_DigestInit_ex(md5, EVP_md5(), NULL);
	for (unsigned i = 0; i < w->count; i++) {
		struct s3s_part *part = find_part(upload, w->list[i].number);

		object->buffers[i] = part->buffer;
		object->bytes += part->buffer->bytes;
		atomic_fetch_add(&part->buffer->refs, 1);
		for (unsigned d = 0; d < sizeof(hash); d++) {
			unsigned digits = 0;

			sscanf(part->etag + 1 + 2 * d, "%2x", &digits);
			hash[d] = (uint8_t)digits;
		}
		EVP_DigestUpdate(md5, hash, sizeof(hash));
	}
	if (number)
		EVP_DigestUpdate(md5, &number, sizeof(number));
	EVP_DigestFinal_ex(md5, hash, NULL);
	EVP_MD_CTX_free(md5);
	s3s_hex(hash, sizeof(hash), hex);
	snprintf(object->etag, sizeof(object->etag), "\"%s-%u\"", hex, w->count);
	memcpy(object->sse_key, upload->sse_key, sizeof(object->sse_key));
	return object;
}

static void tell_completed(struct s3s_request *r, const char *etag)
{
	const char *host = s3s_field(r, "Host");

	s3s_reply_fini(&r->reply);
	r->reply.status = 200;
	s3s_text(&r->reply, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
	if (atomic_load(&r->server->traits) & S3_SERVER_PATIENT_COMPLETE)
		for (unsigned i = 0; i < 20; i++)
			s3s_text(&r->reply, " \n");
	s3s_text(&r->reply,
		 "<CompleteMultipartUploadResult "
		 "xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Location>http://%s/",
		 host ? host : "");
	s3s_text_escaped(&r->reply, r->bucket);
	s3s_text(&r->reply, "/");
	s3s_text_escaped(&r->reply, r->key);
	s3s_text(&r->reply, "</Location><Bucket>");
	s3s_text_escaped(&r->reply, r->bucket);
	s3s_text(&r->reply, "</Bucket><Key>");
	s3s_text_escaped(&r->reply, r->key);
	s3s_text(&r->reply, "</Key><ETag>");
	s3s_text_escaped(&r->reply, etag);
	s3s_text(&r->reply, "</ETag></CompleteMultipartUploadResult>");
}

static void remember_completed_locked(struct s3_server *server, const char *id)
{
	char **grown = realloc(server->completed, (server->completed_count + 1) * sizeof(*grown));

	if (!grown)
		return;
	server->completed = grown;
	grown[server->completed_count] = s3s_copy(id);
	server->completed_count += grown[server->completed_count] != NULL;
}

static bool was_completed_locked(struct s3_server *server, const char *id)
{
	for (size_t i = 0; i < server->completed_count; i++)
		if (strcmp(server->completed[i], id) == 0)
			return true;
	return false;
}

void s3s_complete(struct s3s_request *r)
{
	struct s3_server *server = r->server;
	const char *id = s3s_query(r, "uploadId");
	char *name = s3s_name(r->bucket, r->key), etag[S3S_ETAG_BYTES] = "";
	int64_t now = s3s_now(server);
	struct s3s_object *object;
	struct s3s_upload *upload;
	struct s3s_entry *entry;
	struct wishes w = {0};

	if (!name || !read_wishes(r, &w))
		goto out;
	pthread_mutex_lock(&server->lock);
	upload = s3s_upload_locked(server, name, id);
	entry = s3s_entry_locked(server, name);
	if (!upload && entry && atomic_load(&server->traits) & S3_SERVER_COMPLETE_TWICE &&
	    was_completed_locked(server, id)) {
		snprintf(etag, sizeof(etag), "%s", entry->object->etag);
	} else if (!upload) {
		s3s_error(r, 404, "NoSuchUpload", no_such_upload);
	} else if (s3s_conditions_locked(r, name, true) && parts_fit_locked(r, upload, &w)) {
		bool is_usual = atomic_load(&server->traits) & S3_SERVER_MD5_ETAGS;

		object = join_locked(upload, &w, is_usual ? 0 : ++server->etags);
		if (object) {
			object->modified_s = now;
			snprintf(etag, sizeof(etag), "%s", object->etag);
			if (s3s_entry_set_locked(server, name, object)) {
				remember_completed_locked(server, upload->id);
				s3s_upload_end_locked(server, upload);
			} else {
				s3s_object_release(object);
				etag[0] = 0;
			}
		}
	}
	pthread_mutex_unlock(&server->lock);
	if (etag[0])
		tell_completed(r, etag);
out:
	free(w.list);
	free(name);
}

void s3s_abort(struct s3s_request *r)
{
	struct s3_server *server = r->server;
	char *name = s3s_name(r->bucket, r->key);
	struct s3s_upload *upload;

	pthread_mutex_lock(&server->lock);
	upload = name ? s3s_upload_locked(server, name, s3s_query(r, "uploadId")) : NULL;
	if (upload) {
		s3s_upload_end_locked(server, upload);
		r->reply.status = 204;
	} else {
		s3s_error(r, 404, "NoSuchUpload", no_such_upload);
	}
	pthread_mutex_unlock(&server->lock);
	free(name);
}
