/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects in parts: CreateMultipartUpload, UploadPart, CompleteMultipartUpload, and
 * AbortMultipartUpload on every way out that leaves no object. A commit is never repeated by the
 * core, since its handle has ended; what can be repeated about it is repeated here.
 */
#include "s3.h"

#include <stdio.h>
#include <string.h>

#define S3_COMMIT_TRIES 5u
#define S3_ABORT_TRIES	3u
#define S3_ID_BYTES	2048u

struct s3_part {
	uint64_t offset, bytes; /* bytes 0: not written */
	bool is_written;
	char etag[S3_ETAG_BYTES];
};

/* What begin makes. */
struct s3_upload {
	char *id;
	uint64_t object_bytes;
	struct s3_part *parts; /* by number */
	uint32_t count, room;
	bool is_unclear; /* a part failed that the server may still be writing */
};

static const struct kvt_host *s3_host_of(const struct s3_transfer *t)
{
	return t->session->host;
}

static void s3_upload_free(const struct kvt_host *host, struct s3_upload *u)
{
	if (u == NULL)
		return;
	host->free(host, u->id);
	host->free(host, u->parts);
	host->free(host, u);
}

static enum s3_progress s3_done(struct s3_transfer *t, int result)
{
	t->result = result;
	return S3_FINISHED;
}

/* Frees what begin made or handed over. */
static void s3_upload_drop(struct s3_transfer *t)
{
	s3_upload_free(s3_host_of(t), t->work);
	t->work = NULL;
}

static enum s3_progress s3_begin_step(struct s3_transfer *t, int error)
{
	struct s3_upload *u = t->work;
	const char *id;

	if (error)
		return s3_done(t, error);
	id = t->xml && kvt__s3_xml_root(t->xml) == S3_XML_INITIATE
		     ? kvt__s3_xml_text(t->xml, "UploadId")
		     : "";
	if (*id == '\0' || strlen(id) >= S3_ID_BYTES) {
		kvt__s3_tell(t, *id ? "its UploadId is over 2,047 bytes long"
				    : "the answer has no UploadId");
		return s3_done(t, KVT_EPROTO);
	}
	memcpy(u->id, id, strlen(id) + 1);
	t->work = NULL;
	t->io->handle = u;
	return s3_done(t, 0);
}

enum s3_progress kvt__s3_begin(struct s3_transfer *t)
{
	const struct kvt_host *host = s3_host_of(t);
	struct s3_upload *u = host->alloc(host, sizeof(*u), sizeof(void *));

	/* All of it now: without memory behind the answer the upload could not be named any more.
	 */
	t->work = u;
	t->drop = s3_upload_drop;
	if (u)
		*u = (struct s3_upload){.object_bytes = t->io->object_bytes,
					.id = host->alloc(host, S3_ID_BYTES, 1)};
	if (u == NULL || u->id == NULL) {
		host->detail(t->io, "begin %s: out of memory", t->io->name);
		return s3_done(t, KVT_ENOMEM);
	}
	t->x = (struct s3_exchange){.method = S3_POST,
				    .sink = S3_TO_XML,
				    .verb = "begin",
				    .name = t->io->name,
				    .query = {{"uploads", ""}},
				    .query_count = 1,
				    .creates = true,
				    .touches_data = true,
				    .step = s3_begin_step};
	return kvt__s3_exchange(t);
}

/* Room for the part's number. */
static int s3_upload_grow(const struct kvt_host *host, struct s3_upload *u, uint32_t number)
{
	uint32_t room = u->room ? u->room : 16;
	struct s3_part *parts;

	if (number < u->count)
		return 0;
	while (room <= number)
		room *= 2;
	if (room > u->room) {
		parts = host->alloc(host, room * sizeof(*parts), 16);
		if (parts == NULL)
			return KVT_ENOMEM;
		memset(parts, 0, room * sizeof(*parts));
		if (u->count)
			memcpy(parts, u->parts, u->count * sizeof(*parts));
		host->free(host, u->parts);
		u->parts = parts;
		u->room = room;
	}
	u->count = number + 1;
	return 0;
}

static enum s3_progress s3_part_step(struct s3_transfer *t, int error)
{
	struct kvt_io *io = t->io;
	struct s3_upload *u = io->handle;
	struct s3_part *part;

	if (error == 0 && t->reply.etag[0] == '\0') {
		kvt__s3_tell(t, "the answer has no ETag");
		error = KVT_EPROTO;
	}
	if (error) {
		u->is_unclear = true;
		/* The upload is gone: a new one may work. */
		return s3_done(t, error == KVT_ENOENT ? KVT_EPROTO : error);
	}
	error = s3_upload_grow(s3_host_of(t), u, io->part_number);
	if (error) {
		kvt__s3_tell(t, "out of memory");
		return s3_done(t, error);
	}
	part = &u->parts[io->part_number];
	part->offset = (uint64_t)io->offset;
	part->bytes = io->length;
	part->is_written = true;
	memcpy(part->etag, t->reply.etag, sizeof(part->etag));
	return s3_done(t, 0);
}

enum s3_progress kvt__s3_part(struct s3_transfer *t)
{
	struct s3_upload *u = t->io->handle;

	if (t->io->part_number >= S3_MAX_PARTS) {
		s3_host_of(t)->detail(t->io, "part %s: number %u, expected less than %u",
				      t->io->name, t->io->part_number, S3_MAX_PARTS);
		return s3_done(t, KVT_EINVAL);
	}
	(void)snprintf(t->number, sizeof(t->number), "%u", t->io->part_number + 1);
	t->x = (struct s3_exchange){.method = S3_PUT,
				    .source = S3_SEND_IOV,
				    .verb = "part",
				    .name = t->io->name,
				    .query = {{"partNumber", t->number}, {"uploadId", u->id}},
				    .query_count = 2,
				    .touches_data = true,
				    .step = s3_part_step};
	return kvt__s3_exchange(t);
}

/* A quiet one leaves the detail of what went wrong before. */
static enum s3_progress s3_abort_send(struct s3_transfer *t, const struct s3_upload *u, bool quiet,
				      s3_step_fn step)
{
	int64_t least_ns = s3_host_of(t)->now_ns() + S3_CLEAN_UP_NS;

	if (t->deadline_ns < least_ns)
		t->deadline_ns = least_ns;
	t->x = (struct s3_exchange){.method = S3_DELETE,
				    .verb = "abort",
				    .name = t->io->name,
				    .query = {{"uploadId", u->id}},
				    .query_count = 1,
				    .is_quiet = quiet,
				    .step = step};
	return kvt__s3_exchange(t);
}

/* 404 is the only proof that nothing of it is left: a part that was being written when its
 * connection broke may come after an abort. */
static enum s3_progress s3_abort_step(struct s3_transfer *t, int error)
{
	struct s3_upload *u = t->work;

	if (error == KVT_ENOENT)
		return s3_done(t, 0);
	if (error == 0 && u->is_unclear && t->tries++ < S3_ABORT_TRIES)
		return s3_abort_send(t, u, false, s3_abort_step);
	if (error && kvt__s3_retry(t, error, S3_ABORT_TRIES))
		return S3_GOES_ON;
	return s3_done(t, error);
}

enum s3_progress kvt__s3_abort(struct s3_transfer *t)
{
	t->work = t->io->handle;
	t->drop = s3_upload_drop;
	return s3_abort_send(t, t->work, false, s3_abort_step);
}

/* The body of CompleteMultipartUpload and the upload that it completes. */
struct s3_commit {
	struct s3_upload *upload;
	char *text;
	size_t bytes;
};

static struct s3_commit *s3_commit_of(struct s3_transfer *t)
{
	return t->work;
}

static void s3_commit_drop(struct s3_transfer *t)
{
	const struct kvt_host *host = s3_host_of(t);
	struct s3_commit *c = t->work;

	s3_upload_free(host, c->upload);
	host->free(host, c->text);
	host->free(host, c);
	t->work = NULL;
}

static enum s3_progress s3_cleaned_up(struct s3_transfer *t, int error)
{
	struct s3_backend *b = t->session->backend;

	if (error && error != KVT_ENOENT) {
		if (kvt__s3_retry(t, error, S3_ABORT_TRIES))
			return S3_GOES_ON;
		b->host->log(b->host, KVT_HOST_WARNING, "s3 abort",
			     "%s: an upload could not be aborted and takes space until "
			     "`kvtier gc --uploads` or a lifecycle rule removes it",
			     t->io->name);
	}
	return s3_done(t, t->pending);
}

/* Nothing was made: gives the upload up, then completes with `error`, whose detail stands. */
static enum s3_progress s3_give_up(struct s3_transfer *t, int error)
{
	t->pending = error;
	t->tries = 0;
	t->deadline_ns = 0;
	return s3_abort_send(t, s3_commit_of(t)->upload, true, s3_cleaned_up);
}

static size_t s3_append(char *to, const char *text)
{
	size_t n = strlen(text);

	memcpy(to, text, n);
	return n;
}

/* An ETag in XML. */
static size_t s3_append_escaped(char *to, const char *text)
{
	size_t at = 0;

	for (; *text; text++) {
		if (*text == '"')
			at += s3_append(to + at, "&quot;");
		else if (*text == '&')
			at += s3_append(to + at, "&amp;");
		else if (*text == '<')
			at += s3_append(to + at, "&lt;");
		else if (*text == '>')
			at += s3_append(to + at, "&gt;");
		else
			to[at++] = *text;
	}
	return at;
}

/* Writes the list of parts; KVT_EINVAL when they are not the whole object, each once. */
static int s3_commit_text(struct s3_transfer *t, struct s3_commit *c)
{
	const struct kvt_host *host = s3_host_of(t);
	const struct s3_upload *u = c->upload;
	uint64_t at = 0;
	size_t room = 128, bytes;

	for (uint32_t i = 0; i < u->count; i++) {
		if (!u->parts[i].is_written || u->parts[i].offset != at)
			break;
		at += u->parts[i].bytes;
		room += 80 + 6 * strlen(u->parts[i].etag);
		if (i + 1 == u->count && at == u->object_bytes)
			at = UINT64_MAX;
	}
	if (at != UINT64_MAX) {
		host->detail(t->io, "commit %s: its parts are not its %llu bytes", t->io->name,
			     (unsigned long long)u->object_bytes);
		return KVT_EINVAL;
	}
	c->text = host->alloc(host, room, 1);
	if (c->text == NULL) {
		host->detail(t->io, "commit %s: out of memory", t->io->name);
		return KVT_ENOMEM;
	}
	bytes = s3_append(c->text, "<CompleteMultipartUpload>");
	for (uint32_t i = 0; i < u->count; i++) {
		char number[64];

		(void)snprintf(number, sizeof(number), "<Part><PartNumber>%u</PartNumber><ETag>",
			       i + 1);
		bytes += s3_append(c->text + bytes, number);
		bytes += s3_append_escaped(c->text + bytes, u->parts[i].etag);
		bytes += s3_append(c->text + bytes, "</ETag></Part>");
	}
	bytes += s3_append(c->text + bytes, "</CompleteMultipartUpload>");
	c->bytes = bytes;
	return 0;
}

static enum s3_progress s3_commit_send(struct s3_transfer *t, bool conditional);

static enum s3_progress s3_committed(struct s3_transfer *t)
{
	struct s3_backend *b = t->session->backend;

	kvt__s3_cache_stored(b->cache, t->io->name, t->ticket, &t->io->info);
	if (t->io->flags & KVT_IO_IF_ABSENT)
		kvt__s3_cache_count_store(b->cache, false);
	return s3_done(t, 0);
}

/* Someone else made the object first. */
static enum s3_progress s3_commit_lost(struct s3_transfer *t)
{
	kvt__s3_cache_count_store(t->session->backend->cache, true);
	kvt__s3_tell(t, t->io->flags & KVT_IO_IF_ABSENT ? "the object is there already"
							: "the object is another version");
	return s3_give_up(t, t->io->flags & KVT_IO_IF_ABSENT ? KVT_EEXIST : KVT_EPRECOND);
}

/* A question about the object: a commit is not repeated by the core, so this is. */
static enum s3_progress s3_ask_failed(struct s3_transfer *t, int error)
{
	return kvt__s3_retry(t, error, S3_COMMIT_TRIES) ? S3_GOES_ON : s3_give_up(t, error);
}

/* Asked beforehand, because some servers ignore the condition of a commit. */
static enum s3_progress s3_commit_asked(struct s3_transfer *t, int error)
{
	struct kvt_io *io = t->io;

	/* Without the right to list this is how a name that is not there is answered: the condition
	 * decides, and where the server ignores it, the object is content-addressed. */
	if (error == KVT_EACCES && (io->flags & KVT_IO_IF_ABSENT))
		return s3_commit_send(t, true);
	if (error && error != KVT_ENOENT)
		return s3_ask_failed(t, error);
	if (io->flags & KVT_IO_IF_ABSENT ? error == 0 : error || !kvt__s3_is_wanted_version(io))
		return s3_commit_lost(t);
	return s3_commit_send(t, true);
}

/* The condition was refused: either it does not hold, or the server cannot tell. */
static enum s3_progress s3_commit_checked(struct s3_transfer *t, int error)
{
	struct s3_backend *b = t->session->backend;
	struct kvt_io *io = t->io;

	if (error == KVT_EACCES && (io->flags & KVT_IO_IF_ABSENT))
		return s3_commit_lost(t);
	if (error && error != KVT_ENOENT)
		return s3_ask_failed(t, error);
	if (io->flags & KVT_IO_IF_ABSENT ? error == 0 : error || !kvt__s3_is_wanted_version(io)) {
		atomic_store(&b->conditional_commit, S3_CAN);
		return s3_commit_lost(t);
	}
	atomic_store(&b->conditional_commit, S3_CANNOT);
	return s3_commit_send(t, false);
}

/* Whether the object that was found is made of our parts. */
static bool s3_is_ours(struct s3_transfer *t)
{
	const struct s3_upload *u = s3_commit_of(t)->upload;
	struct s3_etag_of_parts e;

	kvt__s3_etag_begin(&e);
	for (uint32_t i = 0; i < u->count; i++)
		kvt__s3_etag_add(&e, u->parts[i].etag);
	return kvt__s3_etag_end(&e, &t->io->info.version) &&
	       t->io->info.object_bytes == t->io->object_bytes;
}

/*
 * The upload is gone after a try without an answer: that try has completed it, or somebody has
 * aborted it. An object of these parts proves the first. Any other one is somebody else's, or comes
 * from a server whose ETags tell nothing: it answers the condition, and where there is none,
 * nothing is claimed.
 */
static enum s3_progress s3_commit_found(struct s3_transfer *t, int error)
{
	struct kvt_io *io = t->io;

	if (error && error != KVT_ENOENT)
		return s3_ask_failed(t, error);
	if (error == 0 && s3_is_ours(t))
		return s3_committed(t);
	if (error == 0 && ((io->flags & KVT_IO_IF_ABSENT) ||
			   ((io->flags & KVT_IO_IF_VERSION) && !kvt__s3_is_wanted_version(io))))
		return s3_commit_lost(t);
	kvt__s3_tell(t, error ? "the upload is gone and the object is not there"
			      : "the upload is gone and the object is not known to be its");
	return s3_give_up(t, KVT_EPROTO);
}

static enum s3_progress s3_commit_step(struct s3_transfer *t, int error)
{
	struct s3_backend *b = t->session->backend;
	bool conditional = t->x.if_none_match || t->x.if_match;
	bool was_resent = t->is_resent;

	if (error == 0 && (!t->xml || kvt__s3_xml_root(t->xml) != S3_XML_COMPLETE)) {
		kvt__s3_tell(t, "the answer is no CompleteMultipartUploadResult");
		error = KVT_EPROTO;
	}
	if (error == 0) {
		const char *etag = kvt__s3_xml_text(t->xml, "ETag");

		if (strlen(etag) < sizeof(t->reply.etag))
			memcpy(t->reply.etag, etag, strlen(etag) + 1);
		kvt__s3_reply_info(t, t->io->object_bytes);
		t->io->info.age_ns = 0;
		return s3_committed(t);
	}
	kvt__s3_cache_forget(b->cache, t->io->name);
	if (conditional && error == KVT_EPRECOND)
		return kvt__s3_ask(t, s3_commit_checked);
	if (conditional && error == KVT_ENOTSUP) {
		atomic_store(&b->conditional_commit, S3_CANNOT);
		return s3_commit_send(t, false);
	}
	if (error == KVT_ENOENT && was_resent)
		return kvt__s3_ask(t, s3_commit_found);
	if (kvt__s3_retry(t, error, S3_COMMIT_TRIES))
		return S3_GOES_ON;
	return s3_give_up(t, error == KVT_ENOENT ? KVT_EPROTO : error);
}

static enum s3_progress s3_commit_send(struct s3_transfer *t, bool conditional)
{
	struct s3_backend *b = t->session->backend;
	const struct s3_commit *c = s3_commit_of(t);
	struct kvt_io *io = t->io;

	t->ticket = kvt__s3_cache_ticket(b->cache);
	t->x = (struct s3_exchange){.method = S3_POST,
				    .source = S3_SEND_TEXT,
				    .sink = S3_TO_XML,
				    .verb = "commit",
				    .name = io->name,
				    .query = {{"uploadId", c->upload->id}},
				    .query_count = 1,
				    .text = c->text,
				    .text_bytes = c->bytes,
				    .patient = true,
				    .step = s3_commit_step};
	if (conditional && atomic_load(&b->conditional_commit) != S3_CANNOT &&
	    atomic_load(&b->conditional_put) != S3_CANNOT) {
		t->x.if_none_match = (io->flags & KVT_IO_IF_ABSENT) != 0;
		if (io->flags & KVT_IO_IF_VERSION) {
			memcpy(t->etag, io->if_version->value, io->if_version->bytes);
			t->etag[io->if_version->bytes] = '\0';
			t->x.if_match = t->etag;
		}
	}
	return kvt__s3_exchange(t);
}

enum s3_progress kvt__s3_commit(struct s3_transfer *t)
{
	struct s3_backend *b = t->session->backend;
	const struct kvt_host *host = s3_host_of(t);
	struct kvt_io *io = t->io;
	struct s3_commit *c = host->alloc(host, sizeof(*c), sizeof(void *));
	bool conditional = (io->flags & (KVT_IO_IF_ABSENT | KVT_IO_IF_VERSION)) != 0;
	int error;

	if (c == NULL) {
		/* The upload itself must still end. */
		host->detail(io, "commit %s: out of memory", io->name);
		t->pending = KVT_ENOMEM;
		t->work = io->handle;
		t->drop = s3_upload_drop;
		return s3_abort_send(t, t->work, true, s3_cleaned_up);
	}
	*c = (struct s3_commit){.upload = io->handle};
	t->work = c;
	t->drop = s3_commit_drop;
	error = s3_commit_text(t, c);
	if (error == 0 && host->now_ns() >= io->deadline_ns) {
		host->detail(io, "commit %s: the deadline has passed", io->name);
		error = KVT_ETIMEDOUT;
	}
	if (error)
		return s3_give_up(t, error);
	if (b->config.exists_check == S3_EXISTS_NONE && (io->flags & KVT_IO_IF_ABSENT))
		conditional = false;
	if (conditional && atomic_load(&b->conditional_commit) != S3_CAN)
		return kvt__s3_ask(t, s3_commit_asked);
	return s3_commit_send(t, conditional);
}
