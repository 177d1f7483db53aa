/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects in parts as multipart uploads, where libs3 has them (4.1). It takes a "200 OK" with an
 * error in its body for success: so the answer must bring an ETag, and a HEAD must show the object
 * with the mark that the upload was begun with. Aborting an upload that succeeds makes libs3 4.1
 * write "ERROR: OK" to standard error; leaving uploads behind would cost their owner money.
 */
#include "module.h"

#ifdef KVT_LIBS3_HAVE_MULTIPART

#include <limits.h>
#include <stdio.h>
#include <string.h>

#define MIN_PART_BYTES (5 * LIBS3_MIB)
#define MAX_PART_BYTES (2047 * LIBS3_MIB) /* lengths of parts are of type int */
#define MAX_PARTS      10000u
#define ABORT_LIMIT_MS 10000

typedef char etag_text[LIBS3_ETAG_BYTES];

struct upload {
	uint64_t bytes;
	char mark[LIBS3_MARK_BYTES];
	char id[1024];
	etag_text *etags; /* of the parts, "" for those that have not come */
	uint32_t etag_room, parts;
};

void kvt__libs3_parts_limits(const struct libs3_backend *backend, struct kvt_backend_limits *limits)
{
	(void)backend;
	limits->min_part_bytes = MIN_PART_BYTES;
	limits->max_part_bytes = MAX_PART_BYTES;
	limits->max_object_bytes = LIBS3_MAX_OBJECT_BYTES;
	limits->max_parts = MAX_PARTS;
}

static void upload_free(const struct kvt_host *host, struct upload *u)
{
	host->free(host, u->etags);
	host->free(host, u);
}

static S3Status abort_properties(const S3ResponseProperties *properties, void *callback_data)
{
	(void)properties;
	(void)callback_data;
	return S3StatusOK;
}

static void abort_complete(S3Status status, const S3ErrorDetails *details, void *callback_data)
{
	(void)status;
	(void)details;
	(void)callback_data;
}

/* Gives the upload up. It has neither context nor callback data, and does not say how it went: an
 * upload that stays is found by whoever looks for stale ones. */
static void upload_abort(struct libs3_session *session, struct upload *u)
{
	S3AbortMultipartUploadHandler handler = {{abort_properties, abort_complete}};
	S3BucketContext bucket = session->backend->bucket;
	struct libs3_pipe_guard guard;

	kvt__libs3_pipe_begin(&guard);
	S3_abort_multipart_upload(&bucket, session->key, u->id, ABORT_LIMIT_MS, &handler);
	kvt__libs3_pipe_end(&guard);
}

/* ---- begin ---- */

struct begin_call {
	struct libs3_call call; /* first */
	struct upload *upload;
};

static S3Status begin_id(const char *id, void *callback_data)
{
	struct begin_call *begin = callback_data;

	if (begin->call.expired)
		return S3StatusAbortedByCallback;
	/* libs3 puts it into the query as it is: nothing may be there that would need encoding. */
	if (!id || !*id || strlen(id) >= sizeof(begin->upload->id) || strpbrk(id, "&=+#%/? ")) {
		begin->call.stopped = KVT_ENOTSUP;
		begin->call.why = "the upload's id is one that libs3 cannot send";
		return S3StatusAbortedByCallback;
	}
	memcpy(begin->upload->id, id, strlen(id) + 1);
	return S3StatusOK;
}

int kvt__libs3_begin(struct libs3_session *session, struct kvt_io *io)
{
	S3MultipartInitialHandler handler = {{kvt__libs3_on_properties, kvt__libs3_on_complete},
					     begin_id};
	struct begin_call begin = {.call = kvt__libs3_call(session, io, "begin")};
	S3BucketContext bucket = session->backend->bucket;
	const struct kvt_host *host = session->host;
	S3PutProperties properties;
	S3NameValue pair;
	int error;

	io->handle = NULL;
	if (!kvt__libs3_key(session, io))
		return KVT_EINVAL;
	begin.upload = host->alloc(host, sizeof(*begin.upload), 16);
	if (!begin.upload) {
		kvt__libs3_say(session, io, "begin", "out of memory");
		return KVT_ENOMEM;
	}
	memset(begin.upload, 0, sizeof(*begin.upload));
	begin.upload->bytes = io->object_bytes;
	if (!kvt__libs3_mark_make(begin.upload->mark, io->object_bytes)) {
		kvt__libs3_say(session, io, "begin", "no random numbers are to be had");
		upload_free(host, begin.upload);
		return KVT_EINTERNAL;
	}
	properties = kvt__libs3_put_properties(begin.upload->mark, &pair);
	if (kvt__libs3_call_begin(&begin.call))
		S3_initiate_multipart(&bucket, session->key, &properties, &handler,
				      LIBS3_ON(session->context), &begin);
	error = kvt__libs3_call_run(&begin.call);
	if (!error && !begin.upload->id[0]) {
		begin.call.why = "the answer has no id";
		error = KVT_EPROTO;
	}
	if (error) {
		kvt__libs3_tell(&begin.call, io);
		upload_free(host, begin.upload);
		return error;
	}
	io->handle = begin.upload;
	return 0;
}

/* ---- part ---- */

struct part_call {
	struct libs3_call call; /* first */
	struct libs3_source source;
	etag_text etag;
};

static S3Status part_properties(const S3ResponseProperties *properties, void *callback_data)
{
	struct part_call *part = callback_data;
	size_t n = properties->eTag ? strlen(properties->eTag) : 0;

	if (part->call.expired)
		return S3StatusAbortedByCallback;
	if (n > 0 && n < sizeof(part->etag))
		memcpy(part->etag, properties->eTag, n + 1);
	return S3StatusOK;
}

static int part_data(int room, char *buffer, void *callback_data)
{
	struct part_call *part = callback_data;

	if (part->call.expired || room < 0)
		return -1;
	return (int)kvt__libs3_source_read(&part->source, (uint8_t *)buffer, (uint64_t)room);
}

static int reserve_etags(struct libs3_session *session, struct upload *u, uint32_t count)
{
	const struct kvt_host *host = session->host;
	uint32_t room = u->etag_room ? u->etag_room : 16;
	etag_text *etags;

	if (count <= u->etag_room)
		return 0;
	while (room < count)
		room *= 2;
	etags = host->alloc(host, room * sizeof(*etags), 16);
	if (!etags)
		return KVT_ENOMEM;
	memset(etags, 0, room * sizeof(*etags));
	if (u->etag_room)
		memcpy(etags, u->etags, u->etag_room * sizeof(*etags));
	host->free(host, u->etags);
	u->etags = etags;
	u->etag_room = room;
	return 0;
}

int kvt__libs3_part(struct libs3_session *session, struct kvt_io *io)
{
	S3PutObjectHandler handler = {{part_properties, kvt__libs3_on_complete}, part_data};
	struct part_call part = {.call = kvt__libs3_call(session, io, "part")};
	S3BucketContext bucket = session->backend->bucket;
	struct upload *u = io->handle;
	S3PutProperties properties;
	int error;

	if (!kvt__libs3_key(session, io))
		return KVT_EINVAL;
	if (io->part_number >= MAX_PARTS || io->length > INT_MAX) {
		kvt__libs3_say(session, io, "part", "too many parts or bytes");
		return KVT_EINVAL;
	}
	if (reserve_etags(session, u, io->part_number + 1)) {
		kvt__libs3_say(session, io, "part", "out of memory");
		return KVT_ENOMEM;
	}
	memset(&properties, 0, sizeof(properties));
	properties.expires = -1;
	kvt__libs3_source_init(&part.source, io, io->iov, io->iov_count, io->length);
	if (kvt__libs3_call_begin(&part.call))
		S3_upload_part(&bucket, session->key, &properties, &handler,
			       (int)io->part_number + 1, u->id, (int)io->length,
			       LIBS3_ON(session->context), &part);
	error = kvt__libs3_call_run(&part.call);
	if (!error && (!part.etag[0] || part.source.done != io->length)) {
		part.call.why = "the answer has no ETag, or came before all bytes were sent";
		error = KVT_EPROTO;
	}
	if (error) {
		kvt__libs3_tell(&part.call, io);
		return error;
	}
	memcpy(u->etags[io->part_number], part.etag, sizeof(part.etag));
	if (u->parts <= io->part_number)
		u->parts = io->part_number + 1;
	return 0;
}

/* ---- commit and abort ---- */

struct commit_call {
	struct libs3_call call; /* first */
	const char *text;
	size_t bytes, sent;
	bool has_etag;
};

static int commit_data(int room, char *buffer, void *callback_data)
{
	struct commit_call *commit = callback_data;
	size_t n = commit->bytes - commit->sent;

	if (commit->call.expired || room < 0)
		return -1;
	if (n > (size_t)room)
		n = (size_t)room;
	memcpy(buffer, commit->text + commit->sent, n);
	commit->sent += n;
	return (int)n;
}

static S3Status commit_result(const char *location, const char *etag, void *callback_data)
{
	struct commit_call *commit = callback_data;

	(void)location;
	commit->has_etag = etag && *etag;
	return S3StatusOK;
}

/* Appends what fits; the length that it would have had. */
static size_t append(char *text, size_t room, size_t at, const char *more)
{
	size_t n = strlen(more);

	if (at + n < room)
		memcpy(text + at, more, n + 1);
	return at + n;
}

/* An ETag's characters in XML. */
static size_t append_etag(char *text, size_t room, size_t at, const char *etag)
{
	for (; *etag; etag++) {
		char one[2] = {*etag, '\0'};

		at = append(text, room, at,
			    *etag == '"'   ? "&quot;"
			    : *etag == '&' ? "&amp;"
			    : *etag == '<' ? "&lt;"
			    : *etag == '>' ? "&gt;"
					   : one);
	}
	return at;
}

/* The list of parts; its length, whether it fits or not. */
static size_t write_list(const struct upload *u, char *text, size_t room)
{
	size_t at = append(text, room, 0, "<CompleteMultipartUpload>");

	for (uint32_t i = 0; i < u->parts; i++) {
		char number[64];

		(void)snprintf(number, sizeof(number), "<Part><PartNumber>%u</PartNumber><ETag>",
			       i + 1);
		at = append(text, room, at, number);
		at = append_etag(text, room, at, u->etags[i]);
		at = append(text, room, at, "</ETag></Part>");
	}
	return append(text, room, at, "</CompleteMultipartUpload>");
}

static int commit_send(struct libs3_session *session, struct kvt_io *io, struct upload *u,
		       const char *text, size_t bytes)
{
	S3MultipartCommitHandler handler = {
		{kvt__libs3_on_properties, kvt__libs3_on_complete}, commit_data, commit_result};
	struct commit_call commit = {
		.call = kvt__libs3_call(session, io, "commit"), .text = text, .bytes = bytes};
	S3BucketContext bucket = session->backend->bucket;
	struct libs3_witness witness = {0};
	int sent, error;

	kvt__libs3_forget(session);
	if (kvt__libs3_call_begin(&commit.call))
		S3_complete_multipart_upload(&bucket, session->key, &handler, u->id, (int)bytes,
					     LIBS3_ON(session->context), &commit);
	sent = kvt__libs3_call_run(&commit.call);
	if (!sent && !commit.has_etag) {
		commit.call.why = "the answer is an error, though its status is none";
		sent = KVT_ESERVER;
	}
	/* An answer that got lost, and a second try of what had worked, leave the object there. */
	error = kvt__libs3_confirm(session, io, u->mark, &witness);
	if (sent && error) {
		kvt__libs3_tell(&commit.call, io);
		return sent;
	}
	/* It was made, and others have replaced or removed it since. */
	return error == KVT_EAGAIN ? 0 : error;
}

int kvt__libs3_commit(struct libs3_session *session, struct kvt_io *io)
{
	const struct kvt_host *host = session->host;
	struct upload *u = io->handle;
	int error = KVT_EINVAL;
	char *text;
	size_t bytes;

	if (!kvt__libs3_key(session, io))
		goto out;
	bytes = write_list(u, NULL, 0);
	text = host->alloc(host, bytes + 1, 16);
	if (!text) {
		kvt__libs3_say(session, io, "commit", "out of memory");
		error = KVT_ENOMEM;
	} else if (kvt__libs3_is_late(session, io, "commit")) {
		error = KVT_ETIMEDOUT;
	} else {
		unsigned tried = 0;

		(void)write_list(u, text, bytes + 1);
		do
			error = commit_send(session, io, u, text, bytes);
		while (error && kvt__libs3_again(session, io, error, tried++));
	}
	host->free(host, text);
	if (error)
		upload_abort(session, u);
out:
	upload_free(host, u);
	return error;
}

int kvt__libs3_abort(struct libs3_session *session, struct kvt_io *io)
{
	struct upload *u = io->handle;

	if (kvt__libs3_key(session, io))
		upload_abort(session, u);
	upload_free(session->host, u);
	return 0;
}

#endif
