/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading a range. libs3 does not show Content-Range: it tells neither which range came nor how
 * long the object is. The number of bytes is counted here, and never more are taken than there is
 * room for; the object's length stands in the mark that our PUTs leave in its metadata (put.c), or
 * is asked for by a HEAD that must show the same ETag.
 */
#include "module.h"

#include <stdio.h>
#include <string.h>

#define GET_TRIES	 8u
#define MOST_UNEXPLAINED 2u

struct get_call {
	struct libs3_call call; /* first */
	struct libs3_sink sink;
	const char *etag;	    /* that it must be, NULL: any */
	struct libs3_object object; /* that answered */
	bool is_short;		    /* the object does not have all of the range */
};

static S3Status get_stop(struct get_call *get, int error, const char *why)
{
	get->call.stopped = error;
	get->call.why = why;
	return S3StatusAbortedByCallback;
}

static S3Status get_properties(const S3ResponseProperties *properties, void *callback_data)
{
	struct get_call *get = callback_data;
	uint64_t expected = get->sink.io->length;

	/* Ended from outside: nothing may be said or done any more. */
	if (get->call.expired)
		return S3StatusAbortedByCallback;
	if (!kvt__libs3_object_read(&get->object, properties))
		return get_stop(get, KVT_EPROTO, "the answer has no ETag that libs3 can see");
	if (get->etag && strcmp(get->etag, get->object.etag) != 0)
		return get_stop(get, KVT_EPRECOND, "another ETag than If-Match asked for came");
	/* 0 stands for "not said" too. */
	if (properties->contentLength > expected)
		return get_stop(get, KVT_EPROTO, "more came than the range has: Range was ignored");
	if (properties->contentLength && properties->contentLength < expected) {
		get->is_short = true;
		return get_stop(get, KVT_EPROTO, "less is coming than the range has");
	}
	return S3StatusOK;
}

static S3Status get_data(int bytes, const char *data, void *callback_data)
{
	struct get_call *get = callback_data;

	if (get->call.expired || bytes < 0)
		return S3StatusAbortedByCallback;
	if (!kvt__libs3_sink_write(&get->sink, (const uint8_t *)data, (uint64_t)bytes))
		return get_stop(get, KVT_EPROTO, "more came than the range has: Range was ignored");
	return S3StatusOK;
}

/* One GET of `io->length` bytes at `at`. KVT_ERANGE when the object seems not to have them. */
static int get_send(struct libs3_session *session, struct kvt_io *io, uint64_t at,
		    struct get_call *get)
{
	static const S3GetObjectHandler handler = {{get_properties, kvt__libs3_on_complete},
						   get_data};
	const S3GetConditions conditions = {-1, -1, get->etag, NULL};
	int error;

	if (kvt__libs3_call_begin(&get->call))
		S3_get_object(&session->backend->bucket, session->key, &conditions, at, io->length,
			      LIBS3_ON(session->context), &handler, get);
	error = kvt__libs3_call_run(&get->call);
	if (get->is_short)
		error = KVT_ERANGE;
	if (!error && io->bytes_landed != io->length) {
		get->call.why = "the body ended too early";
		error = KVT_EPROTO;
	}
	if (error)
		kvt__libs3_tell(&get->call, io);
	return error;
}

static bool is_version(const struct libs3_object *object, const struct kvt_version *version)
{
	size_t n = strlen(object->etag);

	return version->bytes == n && !memcmp(version->value, object->etag, n);
}

/* Asks by a HEAD whether the object has what the request wants: 0, KVT_EPRECOND, KVT_ERANGE, or why
 * it cannot be told. */
static int get_look(struct libs3_session *session, struct kvt_io *io)
{
	struct libs3_object object;
	uint64_t at;
	int error = kvt__libs3_ask(session, io, "get", &object);

	kvt__libs3_forget(session);
	if (error)
		return error;
	kvt__libs3_remember(session, &object);
	kvt__libs3_fill_info(&object, &io->info);
	at = (uint64_t)io->offset + (io->offset < 0 ? object.bytes : 0);
	if ((io->flags & KVT_IO_IF_VERSION) && !is_version(&object, io->if_version)) {
		kvt__libs3_say(session, io, "get", "the object is another version");
		return KVT_EPRECOND;
	}
	if (at > object.bytes || io->length > object.bytes - at) {
		kvt__libs3_say(session, io, "get", "the object does not have this range");
		return KVT_ERANGE;
	}
	return 0;
}

/* The length of the object that answered; KVT_EAGAIN when it is another one by now. */
static int get_length(struct libs3_session *session, struct kvt_io *io, struct libs3_object *object)
{
	struct libs3_object now;
	int error;

	object->bytes = kvt__libs3_mark_length(object->mark);
	if (object->bytes != KVT_BYTES_UNKNOWN)
		return 0;
	if (!strcmp(session->known_key, session->key) &&
	    !strcmp(session->known.etag, object->etag)) {
		object->bytes = session->known.bytes;
		return 0;
	}
	error = kvt__libs3_ask(session, io, "get", &now);
	if (error)
		return error == KVT_ENOENT ? KVT_EAGAIN : error;
	object->bytes = now.bytes;
	return strcmp(now.etag, object->etag) ? KVT_EAGAIN : 0;
}

/* Whether a failure comes from the object's being replaced: KVT_EAGAIN. RGW answers 500 to a read
 * of an object that is replaced meanwhile, so a server that fails while the object changes is asked
 * again, and twice to see that. */
static int get_failed(struct libs3_session *session, struct kvt_io *io, int error,
		      unsigned *unexplainedp)
{
	bool was_known = !strcmp(session->known_key, session->key);
	char before[LIBS3_ETAG_BYTES];
	int now;

	memcpy(before, session->known.etag, sizeof(before));
	now = get_look(session, io);
	if (now)
		return now;
	if (error == KVT_ESERVER && !(was_known && strcmp(before, session->known.etag)) &&
	    ++*unexplainedp > MOST_UNEXPLAINED)
		return KVT_ESERVER;
	return KVT_EAGAIN;
}

/* KVT_EAGAIN: the object was replaced meanwhile. */
static int get_try(struct libs3_session *session, struct kvt_io *io, const char *if_match,
		   unsigned *unexplainedp)
{
	struct get_call get = {.call = kvt__libs3_call(session, io, "get"), .etag = if_match};
	uint64_t at = (uint64_t)io->offset;
	int error;

	if (io->offset < 0 || !io->length) {
		error = get_look(session, io);
		if (error || !io->length)
			return error;
		at += session->known.bytes;
		get.etag = session->known.etag;
	}
	kvt__libs3_sink_init(&get.sink, io);
	error = get_send(session, io, at, &get);
	if (!error)
		error = get_length(session, io, &get.object);
	if (!error) {
		if (at + io->length > get.object.bytes) {
			kvt__libs3_say(session, io, "get", "the object's length is not as marked");
			return KVT_EPROTO;
		}
		kvt__libs3_remember(session, &get.object);
		kvt__libs3_fill_info(&get.object, &io->info);
		return 0;
	}
	if (error == KVT_EPRECOND || error == KVT_ERANGE || error == KVT_ESERVER)
		error = get_failed(session, io, error, unexplainedp);
	if (error == KVT_EAGAIN)
		kvt__libs3_sink_rewind(&get.sink);
	return error;
}

int kvt__libs3_get(struct libs3_session *session, struct kvt_io *io)
{
	char if_match[sizeof(io->if_version->value) + 1];
	unsigned unexplained = 0;
	int error = KVT_EAGAIN;

	if (!kvt__libs3_key(session, io))
		return KVT_EINVAL;
	if (io->flags & KVT_IO_IF_VERSION) {
		uint32_t n = io->if_version->bytes;

		if (!n || n > sizeof(io->if_version->value)) {
			kvt__libs3_say(session, io, "get",
				       "the version asked for is no ETag of this backend");
			return KVT_EPRECOND;
		}
		memcpy(if_match, io->if_version->value, n);
		if_match[n] = '\0';
	}
	for (unsigned try = 0; error == KVT_EAGAIN && try < GET_TRIES; try++)
		error = get_try(session, io, io->flags & KVT_IO_IF_VERSION ? if_match : NULL,
				&unexplained);
	if (error)
		kvt__libs3_forget(session);
	if (error == KVT_EAGAIN) {
		kvt__libs3_say(session, io, "get", "others write or remove it all the time");
		error = KVT_EBUSY;
	}
	if (error == KVT_ENOENT) {
		io->info.object_bytes = KVT_BYTES_UNKNOWN;
		io->info.version.bytes = 0;
	}
	return error;
}
