/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing an object. libs3 2.0 reports success for a PUT that the server refused with an empty
 * body, and failure for one that was stored without a "100 Continue" before; no version tells
 * whether all bytes arrived. So each PUT leaves a random number and the length in the object's
 * metadata, and counts when a HEAD shows an object of that number and length. If it shows another
 * one, the PUT is done again: when the object has changed since, somebody wrote or removed it after
 * our PUT had begun, which nobody can tell from a PUT of ours that came before theirs.
 */
#include "module.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#define PUT_TRIES   4u
#define MARK_DIGITS 32u /* hexadecimal ones at its start */

bool kvt__libs3_mark_make(char mark[LIBS3_MARK_BYTES], uint64_t bytes)
{
	uint64_t random[2];
	ssize_t n;

	do
		n = getrandom(random, sizeof(random), 0);
	while (n < 0 && errno == EINTR);
	if (n != (ssize_t)sizeof(random))
		return false;
	(void)snprintf(mark, LIBS3_MARK_BYTES, "%016llx%016llx-%llu", (unsigned long long)random[0],
		       (unsigned long long)random[1], (unsigned long long)bytes);
	return true;
}

uint64_t kvt__libs3_mark_length(const char *mark)
{
	uint64_t bytes = 0;
	const char *c = mark + 33;

	if (strspn(mark, "0123456789abcdef") != 32 || mark[32] != '-' || !*c)
		return KVT_BYTES_UNKNOWN;
	for (; *c >= '0' && *c <= '9'; c++) {
		if (bytes > LIBS3_MAX_OBJECT_BYTES)
			return KVT_BYTES_UNKNOWN;
		bytes = 10 * bytes + (uint64_t)(*c - '0');
	}
	return *c ? KVT_BYTES_UNKNOWN : bytes;
}

S3PutProperties kvt__libs3_put_properties(const char *mark, S3NameValue *pair)
{
	S3PutProperties properties;

	memset(&properties, 0, sizeof(properties));
	pair->name = LIBS3_MARK_NAME;
	pair->value = mark;
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
static int put_send(struct libs3_session *session, struct put_call *put, const char *mark)
{
	static const S3PutObjectHandler handler = {
		{kvt__libs3_on_properties, kvt__libs3_on_complete}, put_data};
	S3NameValue pair;
	const S3PutProperties properties = kvt__libs3_put_properties(mark, &pair);

	if (kvt__libs3_call_begin(&put->call))
		S3_put_object(&session->backend->bucket, session->key, put->source->length,
			      &properties, LIBS3_ON(session->context), &handler, put);
	return kvt__libs3_call_run(&put->call);
}

static bool is_same(const struct libs3_object *a, const struct libs3_object *b)
{
	return a->bytes == b->bytes && a->modified_s == b->modified_s &&
	       !strcmp(a->etag, b->etag) && !strcmp(a->mark, b->mark);
}

int kvt__libs3_confirm(struct libs3_session *session, struct kvt_io *io, const char *mark,
		       struct libs3_witness *witness)
{
	struct libs3_object object;
	bool is_there, was_asked = witness->was_asked, was_there = witness->is_there;
	int error = kvt__libs3_ask(session, io, "put, confirmed by head,", &object);

	if (error && error != KVT_ENOENT)
		return error;
	is_there = !error;
	/* All but the last digit of the number, which tells the tries apart. */
	if (is_there && !strncmp(object.mark, mark, MARK_DIGITS - 1)) {
		if (object.bytes != kvt__libs3_mark_length(mark)) {
			kvt__libs3_say(session, io, "put",
				       "the server has kept another number of bytes");
			return KVT_EPROTO;
		}
		kvt__libs3_fill_info(&object, &io->info);
		return 0;
	}
	witness->was_asked = true;
	witness->is_there = is_there;
	if (was_asked && (is_there != was_there || (is_there && !is_same(&object, &witness->seen))))
		return 0;
	witness->seen = object;
	if (was_asked)
		kvt__libs3_say(session, io, "put",
			       is_there ? "refused without a reason (or the server drops metadata)"
					: "refused without a reason: nothing is there");
	return was_asked && is_there ? KVT_ESERVER : KVT_EAGAIN;
}

int kvt__libs3_store(struct libs3_session *session, struct kvt_io *io, struct libs3_source *source)
{
	struct libs3_witness witness = {0};
	char mark[LIBS3_MARK_BYTES];

	kvt__libs3_forget(session);
	if (!kvt__libs3_mark_make(mark, source->length)) {
		kvt__libs3_say(session, io, "put", "no random numbers are to be had");
		return KVT_EINTERNAL;
	}
	for (unsigned try = 0; try < PUT_TRIES; try++) {
		struct put_call put = {.call = kvt__libs3_call(session, io, "put"),
				       .source = source};
		int sent, error;

		if (try > 0)
			kvt__libs3_source_rewind(source);
		/* So that others, who do the same, see that somebody has written again. */
		mark[MARK_DIGITS - 1] = (char)('0' + try);
		sent = put_send(session, &put, mark);
		/* When the answer got lost, or was none for want of a "100 Continue" (2.0), the
		 * object may be there all the same. */
		error = sent;
		if (!sent || (sent == KVT_ENET && source->done == source->length))
			error = kvt__libs3_confirm(session, io, mark, &witness);
		if (sent && error) {
			kvt__libs3_tell(&put.call, io);
			return sent;
		}
		if (error != KVT_EAGAIN)
			return error;
	}
	return KVT_ESERVER;
}

int kvt__libs3_put(struct libs3_session *session, struct kvt_io *io)
{
	struct libs3_source source;

	if (!kvt__libs3_key(session, io))
		return KVT_EINVAL;
	kvt__libs3_source_init(&source, io, io->iov, io->iov_count, io->length);
	return kvt__libs3_store(session, io, &source);
}
