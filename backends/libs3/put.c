/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing an object. libs3 2.0 reports success for a PUT that the server refused with an empty
 * body, and failure for one that was stored without a "100 Continue" before; no version tells
 * whether all bytes arrived. So each PUT carries a random number in its metadata, and counts when a
 * HEAD shows an object of the right length with that number. If it shows something else, the PUT
 * was refused, or others wrote or removed the object in between: doing it again tells.
 */
#include "module.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

#define PUT_TRIES 6u

bool kvt__libs3_nonce(char nonce[LIBS3_NONCE_BYTES])
{
	static const char digits[] = "0123456789abcdef";
	uint8_t random[(LIBS3_NONCE_BYTES - 1) / 2];
	ssize_t n;

	do
		n = getrandom(random, sizeof(random), 0);
	while (n < 0 && errno == EINTR);
	if (n != (ssize_t)sizeof(random))
		return false;
	for (size_t i = 0; i < sizeof(random); i++) {
		nonce[2 * i] = digits[random[i] >> 4];
		nonce[2 * i + 1] = digits[random[i] & 15];
	}
	nonce[LIBS3_NONCE_BYTES - 1] = '\0';
	return true;
}

S3PutProperties kvt__libs3_put_properties(const char *nonce, S3NameValue *pair)
{
	S3PutProperties properties;

	memset(&properties, 0, sizeof(properties));
	pair->name = "kvtier-put";
	pair->value = nonce;
	properties.contentType = "application/octet-stream";
	properties.expires = -1;
	properties.cannedAcl = S3CannedAclPrivate;
	properties.metaDataCount = 1;
	properties.metaData = pair;
	return properties;
}

struct put_call {
	struct libs3_call call; /* first */
	struct libs3_source *source;
};

static int put_data(int room, char *buffer, void *callback_data)
{
	struct put_call *put = callback_data;

	if (put->call.expired || room < 0)
		return -1;
	return (int)kvt__libs3_source_read(put->source, (uint8_t *)buffer, (uint64_t)room);
}

/* One PUT. 0 when the server may have taken it. */
static int put_send(struct libs3_session *session, struct kvt_io *io, struct libs3_source *source,
		    const char *nonce)
{
	static const S3PutObjectHandler handler = {
		{kvt__libs3_on_properties, kvt__libs3_on_complete}, put_data};
	struct put_call put = {.call = kvt__libs3_call(session, io, "put"), .source = source};
	S3NameValue pair;
	const S3PutProperties properties = kvt__libs3_put_properties(nonce, &pair);
	int error;

	if (kvt__libs3_call_begin(&put.call))
		S3_put_object(&session->backend->bucket, session->key, source->length, &properties,
			      LIBS3_ON(session->context), &handler, &put);
	error = kvt__libs3_call_run(&put.call);
	/* Without a "100 Continue" libs3 2.0 says so whatever the answer was. */
	if (error && put.call.status == S3StatusConnectionFailed && !put.call.expired &&
	    source->done == source->length)
		error = 0;
	if (error)
		kvt__libs3_tell(&put.call, io, error);
	return error;
}

static bool is_same(const struct libs3_object *a, const struct libs3_object *b)
{
	return a->bytes == b->bytes && a->modified_s == b->modified_s &&
	       !strcmp(a->etag, b->etag) && !strcmp(a->nonce, b->nonce);
}

int kvt__libs3_store(struct libs3_session *session, struct kvt_io *io, struct libs3_source *source)
{
	struct libs3_object seen = {0}, object;
	char nonce[LIBS3_NONCE_BYTES];
	int error, answer, last = 0;

	kvt__libs3_forget(session);
	if (!kvt__libs3_nonce(nonce)) {
		kvt__libs3_say(session, io, "put", "no random numbers are to be had");
		return KVT_EINTERNAL;
	}
	for (unsigned try = 0; try < PUT_TRIES; try++) {
		if (try > 0)
			kvt__libs3_source_rewind(source);
		error = put_send(session, io, source, nonce);
		if (error)
			return error;
		answer = kvt__libs3_ask(session, io, "put, confirmed by head,", &object);
		if (answer && answer != KVT_ENOENT)
			return answer;
		if (!answer && !strcmp(object.nonce, nonce)) {
			if (object.bytes != source->length || source->done != source->length) {
				kvt__libs3_say(session, io, "put",
					       "the server has kept another number of bytes");
				return KVT_EPROTO;
			}
			kvt__libs3_fill_info(&object, &io->info);
			return 0;
		}
		/* What was there before this PUT is still there, and nothing else. */
		if (try > 0 && answer == last && (answer || is_same(&object, &seen))) {
			kvt__libs3_say(session, io, "put",
				       answer ? "refused without a reason, nothing is there"
					      : "refused without a reason, or the server does not "
						"keep x-amz-meta-kvtier-put");
			return KVT_ESERVER;
		}
		last = answer;
		seen = object;
	}
	kvt__libs3_say(session, io, "put", "others write or remove the object all the time");
	return KVT_EBUSY;
}

int kvt__libs3_put(struct libs3_session *session, struct kvt_io *io)
{
	struct libs3_source source;

	if (!kvt__libs3_key(session, io))
		return KVT_EINVAL;
	kvt__libs3_source_init(&source, io, io->iov, io->iov_count, io->length);
	return kvt__libs3_store(session, io, &source);
}
