/* SPDX-License-Identifier: Apache-2.0 */
/* What is known of objects: heads and removals. */
#include "module.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

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

void kvt__libs3_remember(struct libs3_session *session, const struct libs3_object *object)
{
	session->known = *object;
	memcpy(session->known_key, session->key, sizeof(session->key));
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

bool kvt__libs3_object_read(struct libs3_object *object, const S3ResponseProperties *properties)
{
	size_t n = properties->eTag ? strlen(properties->eTag) : 0;

	object->modified_s = properties->lastModified;
	object->etag[0] = object->mark[0] = '\0';
	if (n > 0 && n < sizeof(object->etag))
		memcpy(object->etag, properties->eTag, n + 1);
	for (int i = 0; i < properties->metaDataCount; i++)
		if (!strcmp(properties->metaData[i].name, LIBS3_MARK_NAME))
			(void)snprintf(object->mark, sizeof(object->mark), "%s",
				       properties->metaData[i].value);
	return object->etag[0] != '\0';
}

static S3Status head_properties(const S3ResponseProperties *properties, void *callback_data)
{
	struct head_call *head = callback_data;

	head->told = true;
	head->has_etag = kvt__libs3_object_read(head->object, properties);
	head->object->bytes = properties->contentLength;
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
		kvt__libs3_tell(&head.call, io);
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
	kvt__libs3_remember(session, &object);
	return 0;
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
		kvt__libs3_tell(&call, io);
	return error;
}
