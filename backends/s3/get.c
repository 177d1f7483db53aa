/* SPDX-License-Identifier: Apache-2.0 */
/* Reading: a byte range into the iovec, and an object's length and version. */
#include "s3.h"

#include <string.h>

enum s3_get_state { S3_GET_RANGE = 0, S3_GET_LENGTH };

static struct s3_cache *s3_cache_of(struct s3_transfer *t)
{
	return t->session->backend->cache;
}

bool kvt__s3_is_wanted_version(const struct kvt_io *io)
{
	return io->info.version.bytes == io->if_version->bytes &&
	       memcmp(io->info.version.value, io->if_version->value, io->if_version->bytes) == 0;
}

/* The ETag of a version as a string, for If-Match. */
static void s3_etag_of(struct s3_transfer *t, const struct kvt_version *version)
{
	uint32_t n = version->bytes < sizeof(t->etag) ? version->bytes : 0;

	memcpy(t->etag, version->value, n);
	t->etag[n] = '\0';
}

/* After the exchange of kvt__s3_ask: what it found is in io->info. */
static int s3_asked(struct s3_transfer *t, int error)
{
	struct s3_backend *b = t->session->backend;
	const struct s3_reply *r = &t->reply;

	/* Without the right to list, a name that is not there is answered with 403. Good enough for
	 * a lookup; whoever overwrites or removes on the strength of it must know. */
	if (error == KVT_EACCES && r->status == 403 && t->io->op == KVT_IO_HEAD &&
	    atomic_load_explicit(&b->allowed, memory_order_relaxed)) {
		b->host->log(b->host, KVT_HOST_WARNING, "s3 head",
			     "%s: HEAD of a name that is not there is forbidden (403): taken for a "
			     "miss; give s3:ListBucket on %s",
			     b->config.authority, b->config.bucket);
		return KVT_ENOENT;
	}
	if (error == 0 && r->length == KVT_BYTES_UNKNOWN) {
		kvt__s3_tell(t, "the answer has no Content-Length");
		error = KVT_EPROTO;
	}
	if (error == 0)
		kvt__s3_reply_info(t, r->length);
	if (error == 0)
		kvt__s3_cache_hit(b->cache, t->io->name, t->ticket, &t->io->info);
	else if (error == KVT_ENOENT)
		kvt__s3_cache_miss(b->cache, t->io->name, t->ticket);
	return error;
}

/* The step behind an ask is wrapped: it gets what s3_asked says. */
static enum s3_progress s3_ask_ended(struct s3_transfer *t, int error)
{
	return t->after_ask(t, s3_asked(t, error));
}

enum s3_progress kvt__s3_ask(struct s3_transfer *t, s3_step_fn step)
{
	t->after_ask = step;
	t->ticket = kvt__s3_cache_ticket(s3_cache_of(t));
	t->x = (struct s3_exchange){.method = S3_HEAD,
				    .verb = "head",
				    .name = t->io->name,
				    .touches_data = true,
				    .step = s3_ask_ended};
	return kvt__s3_exchange(t);
}

static enum s3_progress s3_head_step(struct s3_transfer *t, int error)
{
	t->result = error;
	/* One that is not there is counted when it has been put. */
	if (error == 0 && (t->io->flags & KVT_IO_IF_CHEAP))
		kvt__s3_cache_count_store(s3_cache_of(t), true);
	return S3_FINISHED;
}

enum s3_progress kvt__s3_head(struct s3_transfer *t)
{
	return kvt__s3_ask(t, s3_head_step);
}

/* Whether a HEAD before a store pays: a conditional PUT sends its body before it is refused. */
static bool s3_head_pays(const struct s3_backend *b, const struct kvt_io *io)
{
	switch (b->config.exists_check) {
	case S3_EXISTS_HEAD:
		return true;
	case S3_EXISTS_CONDITIONAL:
	case S3_EXISTS_NONE:
		return false;
	case S3_EXISTS_AUTO:
	default:
		return io->object_bytes > S3_MIB && kvt__s3_cache_duplicates(b->cache) > 32;
	}
}

bool kvt__s3_head_cached(struct s3_session *session, struct kvt_io *io)
{
	struct s3_backend *b = session->backend;
	enum s3_cache_answer answer;

	if ((io->flags & (KVT_IO_CACHED_OK | KVT_IO_IF_CHEAP)) == 0)
		return false;
	if ((io->flags & KVT_IO_IF_CHEAP) && b->config.exists_check == S3_EXISTS_NONE) {
		io->result = KVT_EAGAIN;
		return true;
	}
	answer = kvt__s3_cache_look(b->cache, io->name, &io->info);
	if (io->flags & KVT_IO_CACHED_OK) {
		if (answer == S3_CACHE_UNKNOWN)
			return false;
		io->result = answer == S3_CACHE_HIT ? 0 : KVT_ENOENT;
		return true;
	}
	if (answer == S3_CACHE_HIT) {
		kvt__s3_cache_count_store(b->cache, true);
		io->result = 0;
		return true;
	}
	if (s3_head_pays(b, io))
		return false;
	if (atomic_load(&b->conditional_put) == S3_CANNOT)
		return false;
	io->result = KVT_EAGAIN;
	return true;
}

/* ERANGE without the object's length: it is asked for. */
static enum s3_progress s3_length_step(struct s3_transfer *t, int error)
{
	struct kvt_io *io = t->io;
	uint64_t first = (uint64_t)io->offset, need;

	t->result = error ? error : KVT_ERANGE;
	if (error)
		return S3_FINISHED;
	need = io->offset < 0 ? (uint64_t)-io->offset : first + io->length;
	if (io->info.object_bytes >= need) {
		/* It has changed since. */
		kvt__s3_tell(t, "the object was replaced while it was being read");
		t->result = KVT_EPRECOND;
	}
	return S3_FINISHED;
}

static enum s3_progress s3_get_step(struct s3_transfer *t, int error)
{
	struct kvt_io *io = t->io;
	const struct s3_reply *r = &t->reply;

	t->result = error;
	if (error == 0 || (error == KVT_ERANGE && r->total != KVT_BYTES_UNKNOWN && r->etag[0])) {
		kvt__s3_reply_info(t, r->total);
		if (error)
			kvt__s3_cache_forget(s3_cache_of(t), io->name);
	} else if (error == KVT_ERANGE) {
		uint64_t landed = t->received;
		enum s3_progress progress = kvt__s3_ask(t, s3_length_step);

		t->received = landed;
		return progress;
	} else if (error == KVT_ENOENT) {
		kvt__s3_cache_miss(s3_cache_of(t), io->name, t->ticket);
	} else {
		kvt__s3_cache_forget(s3_cache_of(t), io->name);
		if (t->received) /* of which object the rest is wanted */
			kvt__s3_reply_info(t, r->total);
	}
	return S3_FINISHED;
}

static enum s3_progress s3_get_range(struct s3_transfer *t)
{
	t->x = (struct s3_exchange){.method = S3_GET,
				    .sink = S3_TO_IOV,
				    .verb = "get",
				    .name = t->io->name,
				    .is_ranged = true,
				    .touches_data = true,
				    .if_match = t->etag[0] ? t->etag : NULL,
				    .step = s3_get_step};
	return kvt__s3_exchange(t);
}

/* The length is known: a range from the end becomes one from the start. */
static enum s3_progress s3_placed_step(struct s3_transfer *t, int error)
{
	struct kvt_io *io = t->io;

	t->result = error;
	if (error)
		return S3_FINISHED;
	if ((io->flags & KVT_IO_IF_VERSION) && !kvt__s3_is_wanted_version(io)) {
		kvt__s3_tell(t, "the object is another version");
		t->result = KVT_EPRECOND;
	} else if (io->offset < 0 && (uint64_t)-io->offset > io->info.object_bytes) {
		kvt__s3_tell(t, "the object is shorter");
		t->result = KVT_ERANGE;
	} else if (io->offset >= 0 && (uint64_t)io->offset > io->info.object_bytes) {
		kvt__s3_tell(t, "the object is shorter");
		t->result = KVT_ERANGE;
	}
	if (t->result || io->length == 0)
		return S3_FINISHED;
	t->from = (int64_t)(io->info.object_bytes - (uint64_t)-io->offset);
	s3_etag_of(t, &io->info.version);
	return s3_get_range(t);
}

enum s3_progress kvt__s3_get(struct s3_transfer *t)
{
	const struct kvt_io *io = t->io;

	t->etag[0] = '\0';
	/* HTTP has neither empty ranges nor ranges that begin and end before the end. */
	if (io->length == 0 || (io->offset < 0 && (uint64_t)-io->offset != io->length))
		return kvt__s3_ask(t, s3_placed_step);
	if (io->flags & KVT_IO_IF_VERSION)
		s3_etag_of(t, io->if_version);
	return s3_get_range(t);
}
