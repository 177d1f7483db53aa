/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Heads, gets and removals. libs3 tells neither the length of the object that a range is of nor
 * which range came, so a get first knows the object by a HEAD and then asks for that version of it
 * alone (If-Match): what comes is compared with what that version must bring.
 */
#include "module.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define GET_TRIES 4u

static const char nonce_name[] = "kvtier-put";

bool kvt__libs3_key(struct libs3_session *session, struct kvt_io *io)
{
	const char *root = session->backend->config.key_root;
	int n = snprintf(session->key, sizeof(session->key), "%s%s", root, io->name);

	if (n >= 0 && (size_t)n < sizeof(session->key))
		return true;
	session->key[0] = '\0';
	session->host->detail(io, "%.64s...: key of %d bytes, expected at most %u", io->name, n,
			      LIBS3_MAX_KEY_BYTES);
	return false;
}

void kvt__libs3_forget(struct libs3_session *session)
{
	session->known_key[0] = '\0';
}

void kvt__libs3_fill_info(const struct libs3_object *object, struct kvt_object_info *info)
{
	size_t n = strlen(object->etag);
	struct timespec now;

	info->object_bytes = object->bytes;
	info->version.bytes = (uint32_t)n;
	memcpy(info->version.value, object->etag, n);
	info->age_ns = info->access_age_ns = -1;
	if (object->modified_s >= 0 && clock_gettime(CLOCK_REALTIME, &now) == 0) {
		int64_t age_s = (int64_t)now.tv_sec - object->modified_s;

		if (age_s > INT64_C(4000000000))
			age_s = INT64_C(4000000000);
		info->age_ns = age_s > 0 ? age_s * INT64_C(1000000000) : 0;
	}
}

/* ---- HEAD ---- */

struct head_call {
	struct libs3_call call; /* first */
	struct libs3_object *object;
	bool has_etag, told;
};

static bool copy_etag(char etag[LIBS3_ETAG_BYTES], const char *from)
{
	size_t n = from ? strlen(from) : 0;

	etag[0] = '\0';
	if (!n || n >= LIBS3_ETAG_BYTES)
		return false;
	memcpy(etag, from, n + 1);
	return true;
}

static S3Status head_properties(const S3ResponseProperties *properties, void *callback_data)
{
	struct head_call *head = callback_data;
	struct libs3_object *object = head->object;

	head->told = true;
	object->bytes = properties->contentLength;
	object->modified_s = properties->lastModified;
	head->has_etag = copy_etag(object->etag, properties->eTag);
	for (int i = 0; i < properties->metaDataCount; i++)
		if (!strcmp(properties->metaData[i].name, nonce_name))
			(void)snprintf(object->nonce, sizeof(object->nonce), "%s",
				       properties->metaData[i].value);
	return S3StatusOK;
}

int kvt__libs3_ask(struct libs3_session *session, struct kvt_io *io, const char *verb,
		   struct libs3_object *object)
{
	static const S3ResponseHandler handler = {head_properties, kvt__libs3_on_complete};
	struct head_call head = {.call = kvt__libs3_call(session, io, verb), .object = object};
	int error;

	*object = (struct libs3_object){.modified_s = -1};
	if (kvt__libs3_call_begin(&head.call))
		S3_head_object(&session->backend->bucket, session->key, LIBS3_ON(session->context),
			       &handler, &head);
	error = kvt__libs3_call_run(&head.call);
	if (!error && !head.told) {
		head.call.why = "the answer to HEAD has no headers";
		error = KVT_EPROTO;
	} else if (!error && !head.has_etag) {
		/* Then its length is not to be trusted either: libs3 2.0 overlooks headers that are
		 * not written as S3 writes them, and an absent length is 0 to it. */
		head.call.why = "the answer to HEAD has no ETag that libs3 can see";
		error = KVT_EPROTO;
	}
	if (error)
		kvt__libs3_tell(&head.call, io, error);
	return error;
}

int kvt__libs3_head(struct libs3_session *session, struct kvt_io *io)
{
	struct libs3_object object;
	int error;

	if (!kvt__libs3_key(session, io))
		return KVT_EINVAL;
	kvt__libs3_forget(session);
	error = kvt__libs3_ask(session, io, "head", &object);
	if (error)
		return error;
	kvt__libs3_fill_info(&object, &io->info);
	session->known = object;
	memcpy(session->known_key, session->key, sizeof(session->key));
	return 0;
}

/* ---- GET ---- */

struct get_call {
	struct libs3_call call; /* first */
	struct libs3_sink sink;
	const struct libs3_object *object;
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
	if (properties->eTag && strcmp(properties->eTag, get->object->etag) != 0)
		return get_stop(get, KVT_EPRECOND, "another ETag than If-Match asked for came");
	/* 0 stands for "not said" too. */
	if (properties->contentLength > expected)
		return get_stop(get, KVT_EPROTO, "more came than the range has: Range was ignored");
	if (properties->contentLength && properties->contentLength < expected)
		return get_stop(get, KVT_EPROTO, "less is coming than the range has");
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

/* One ranged GET of exactly the version in `object`. KVT_EPRECOND or KVT_ERANGE when the object is
 * another one by now. */
static int get_range(struct libs3_session *session, struct kvt_io *io, uint64_t at,
		     const struct libs3_object *object)
{
	static const S3GetObjectHandler handler = {{get_properties, kvt__libs3_on_complete},
						   get_data};
	struct get_call get = {.call = kvt__libs3_call(session, io, "get"), .object = object};
	const S3GetConditions conditions = {-1, -1, object->etag, NULL};
	int error;

	kvt__libs3_sink_init(&get.sink, io);
	if (kvt__libs3_call_begin(&get.call))
		S3_get_object(&session->backend->bucket, session->key, &conditions, at, io->length,
			      LIBS3_ON(session->context), &handler, &get);
	error = kvt__libs3_call_run(&get.call);
	if (!error && io->bytes_landed != io->length) {
		get.call.why = "the body ended too early";
		error = KVT_EPROTO;
	}
	if (error) {
		kvt__libs3_tell(&get.call, io, error);
		if (error == KVT_EPRECOND || error == KVT_ERANGE)
			kvt__libs3_sink_rewind(&get.sink);
	}
	return error;
}

static bool is_version(const struct libs3_object *object, const struct kvt_version *version)
{
	size_t n = strlen(object->etag);

	return version->bytes == n && !memcmp(version->value, object->etag, n);
}

/* What the request asks of this object: 0, KVT_EPRECOND or KVT_ERANGE. */
static int check_range(const struct kvt_io *io, const struct libs3_object *object, uint64_t *atp)
{
	*atp = (uint64_t)io->offset + (io->offset < 0 ? object->bytes : 0);
	if ((io->flags & KVT_IO_IF_VERSION) && !is_version(object, io->if_version))
		return KVT_EPRECOND;
	if (*atp > object->bytes || io->length > object->bytes - *atp)
		return KVT_ERANGE;
	return 0;
}

static int get_try(struct libs3_session *session, struct kvt_io *io, bool *is_freshp)
{
	struct libs3_object *known = &session->known;
	uint64_t at;
	int error;

	if (strcmp(session->known_key, session->key) != 0) {
		*is_freshp = true;
		kvt__libs3_forget(session);
		error = kvt__libs3_ask(session, io, "get", known);
		if (error)
			return error;
		memcpy(session->known_key, session->key, sizeof(session->key));
	}
	kvt__libs3_fill_info(known, &io->info);
	error = check_range(io, known, &at);
	if (error == KVT_EPRECOND)
		kvt__libs3_say(session, io, "get", "the object is another version");
	else if (error == KVT_ERANGE)
		kvt__libs3_say(session, io, "get", "the object does not have this range");
	if (!error && io->length > 0) {
		error = get_range(session, io, at, known);
		/* It was that version a moment ago. */
		if (error == KVT_EPRECOND || error == KVT_ERANGE)
			*is_freshp = false;
	}
	return error;
}

int kvt__libs3_get(struct libs3_session *session, struct kvt_io *io)
{
	int error = KVT_EBUSY;

	if (!kvt__libs3_key(session, io))
		return KVT_EINVAL;
	for (unsigned try = 0; try < GET_TRIES; try++) {
		bool is_fresh = false;

		error = get_try(session, io, &is_fresh);
		if (error)
			kvt__libs3_forget(session);
		/* What was known may be out of date: ask again. */
		if ((error != KVT_EPRECOND && error != KVT_ERANGE) || is_fresh)
			break;
		error = KVT_EBUSY;
	}
	if (error == KVT_ENOENT) {
		io->info.object_bytes = KVT_BYTES_UNKNOWN;
		io->info.version.bytes = 0;
	}
	return error;
}

/* ---- DELETE ---- */

int kvt__libs3_remove(struct libs3_session *session, struct kvt_io *io)
{
	static const S3ResponseHandler handler = {kvt__libs3_on_properties, kvt__libs3_on_complete};
	struct libs3_call call = kvt__libs3_call(session, io, "remove");
	struct libs3_object object;
	int error;

	if (!kvt__libs3_key(session, io))
		return KVT_EINVAL;
	kvt__libs3_forget(session);
	/* S3 does not say whether there was anything to delete. */
	error = kvt__libs3_ask(session, io, "remove", &object);
	if (error)
		return error;
	if (kvt__libs3_call_begin(&call))
		S3_delete_object(&session->backend->bucket, session->key,
				 LIBS3_ON(session->context), &handler, &call);
	error = kvt__libs3_call_run(&call);
	if (error)
		kvt__libs3_tell(&call, io, error);
	return error;
}
