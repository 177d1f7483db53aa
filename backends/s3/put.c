/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing an object by one PUT, under the conditions that the server can keep: If-None-Match and
 * If-Match where it knows them, else a HEAD before. What a server can do is learnt from its answers
 * and remembered for the store.
 */
#include "s3.h"

#include <string.h>

enum s3_put_state {
	S3_PUT_ASKED = 0, /* unconditional: nothing is asked, or all has been asked */
	S3_PUT_CONDITIONAL,
	S3_PUT_UNQUOTED,
};

static enum s3_progress s3_put_send(struct s3_transfer *t, enum s3_put_state state);

static bool s3_is_object(const char *name)
{
	size_t n = strlen(name);

	return n > 4 && strcmp(name + n - 4, ".bin") == 0;
}

static struct s3_backend *s3_backend_of(struct s3_transfer *t)
{
	return t->session->backend;
}

/* The HEAD that stands for a condition has been answered. */
static enum s3_progress s3_put_asked(struct s3_transfer *t, int error)
{
	struct kvt_io *io = t->io;

	if (error && error != KVT_ENOENT) {
		t->result = error;
		return S3_FINISHED;
	}
	if (io->flags & KVT_IO_IF_ABSENT) {
		kvt__s3_cache_count_store(s3_backend_of(t)->cache, error == 0);
		if (error)
			return s3_put_send(t, S3_PUT_ASKED);
		kvt__s3_tell(t, "the object is there already");
		t->result = KVT_EEXIST;
		return S3_FINISHED;
	}
	if (error || !kvt__s3_is_wanted_version(io)) {
		kvt__s3_tell(t, "the object is another version");
		t->result = KVT_EPRECOND;
		return S3_FINISHED;
	}
	/* The version is right, and yet the server had refused its quoted ETag: some compare it
	 * without the quotes. */
	if (t->state == S3_PUT_CONDITIONAL)
		return s3_put_send(t, S3_PUT_UNQUOTED);
	return s3_put_send(t, S3_PUT_ASKED);
}

static enum s3_progress s3_put_refused(struct s3_transfer *t, int error)
{
	struct s3_backend *b = s3_backend_of(t);
	struct kvt_io *io = t->io;

	if (error == KVT_ENOTSUP && t->state != S3_PUT_ASKED) {
		atomic_store(&b->conditional_put, S3_CANNOT);
		b->host->log(b->host, KVT_HOST_INFO, "s3 conditional",
			     "%s: does not know conditional PUTs: asking by HEAD before each",
			     b->config.authority);
		t->state = S3_PUT_ASKED;
		return kvt__s3_ask(t, s3_put_asked);
	}
	t->result = error;
	if (error != KVT_EPRECOND)
		return S3_FINISHED;
	if (io->flags & KVT_IO_IF_ABSENT) {
		t->result = KVT_EEXIST;
		atomic_store(&b->conditional_put, S3_CAN);
		kvt__s3_cache_count_store(b->cache, true);
	} else if (t->state == S3_PUT_CONDITIONAL && (io->flags & KVT_IO_IF_VERSION)) {
		return kvt__s3_ask(t, s3_put_asked);
	}
	return S3_FINISHED;
}

static enum s3_progress s3_put_step(struct s3_transfer *t, int error)
{
	struct s3_backend *b = s3_backend_of(t);
	struct kvt_io *io = t->io;

	if (error == 0 && t->reply.etag[0] == '\0') {
		kvt__s3_tell(t, "the answer has no ETag");
		error = KVT_EPROTO;
	}
	if (error) {
		kvt__s3_cache_forget(b->cache, io->name);
		return s3_put_refused(t, error);
	}
	if (t->state == S3_PUT_UNQUOTED)
		atomic_store(&b->unquoted_if_match, S3_CAN);
	if (t->x.if_none_match) {
		atomic_store(&b->conditional_put, S3_CAN);
		kvt__s3_cache_count_store(b->cache, false);
	}
	kvt__s3_reply_info(t, io->object_bytes);
	io->info.age_ns = 0;
	kvt__s3_cache_stored(b->cache, io->name, t->ticket, &io->info);
	t->result = 0;
	return S3_FINISHED;
}

/* If-Match as the server wants it. */
static void s3_put_etag(struct s3_transfer *t, bool unquoted)
{
	const struct kvt_version *v = t->io->if_version;
	const char *text = (const char *)v->value;
	uint32_t n = v->bytes < sizeof(t->etag) ? v->bytes : 0;

	if (unquoted && n > 2 && text[0] == '"' && text[n - 1] == '"') {
		text++;
		n -= 2;
	}
	memcpy(t->etag, text, n);
	t->etag[n] = '\0';
}

static enum s3_progress s3_put_send(struct s3_transfer *t, enum s3_put_state state)
{
	struct s3_backend *b = s3_backend_of(t);
	struct kvt_io *io = t->io;
	bool conditional = state != S3_PUT_ASKED;

	t->state = state;
	t->ticket = kvt__s3_cache_ticket(b->cache);
	t->x = (struct s3_exchange){.method = S3_PUT,
				    .source = S3_SEND_IOV,
				    .verb = "put",
				    .name = io->name,
				    .creates = true,
				    .touches_data = true,
				    .checksum = b->config.checksum,
				    .step = s3_put_step};
	if (conditional && (io->flags & KVT_IO_IF_ABSENT))
		t->x.if_none_match = true;
	if (conditional && (io->flags & KVT_IO_IF_VERSION)) {
		s3_put_etag(t, state == S3_PUT_UNQUOTED ||
				       atomic_load(&b->unquoted_if_match) == S3_CAN);
		t->x.if_match = t->etag;
	}
	return kvt__s3_exchange(t);
}

enum s3_progress kvt__s3_put(struct s3_transfer *t)
{
	struct s3_backend *b = s3_backend_of(t);
	struct kvt_io *io = t->io;
	bool conditional = (io->flags & (KVT_IO_IF_ABSENT | KVT_IO_IF_VERSION)) != 0;

	if (io->length != io->object_bytes) {
		b->host->detail(io, "put %s: %llu bytes, the object has %llu", io->name,
				(unsigned long long)io->length,
				(unsigned long long)io->object_bytes);
		t->result = KVT_EINVAL;
		return S3_FINISHED;
	}
	if ((io->flags & KVT_IO_IF_ABSENT) && b->config.exists_check == S3_EXISTS_NONE &&
	    s3_is_object(io->name))
		conditional = false;
	if (!conditional)
		return s3_put_send(t, S3_PUT_ASKED);
	if (atomic_load(&b->conditional_put) != S3_CANNOT)
		return s3_put_send(t, S3_PUT_CONDITIONAL);
	/* The core has just asked. */
	if ((io->flags & KVT_IO_IF_ABSENT) &&
	    kvt__s3_cache_look(b->cache, io->name, &io->info) == S3_CACHE_MISS)
		return s3_put_send(t, S3_PUT_ASKED);
	return kvt__s3_ask(t, s3_put_asked);
}
