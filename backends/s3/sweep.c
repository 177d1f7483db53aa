/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sweeping: multipart uploads that nobody has completed or aborted take space for ever. Whose they
 * are cannot be told, so those of objects below our root that are older than the sweep's age go. A
 * page of ListMultipartUploads is read, its stale uploads are aborted one after the other, then
 * comes the next page.
 */
#include "s3.h"

#include <stdio.h>
#include <string.h>

struct s3_stale {
	struct s3_stale *next;
	char *upload_id;
	char key[]; /* and the upload id behind it */
};

struct s3_sweep {
	struct s3_stale *stale;
	char *key_marker, *upload_marker;
	int failed; /* the first upload that could not be aborted: its error */
};

static enum s3_progress s3_sweep_page(struct s3_transfer *t);

static struct s3_sweep *s3_sweep_of(struct s3_transfer *t)
{
	return t->work;
}

static void s3_sweep_pop(struct s3_transfer *t)
{
	struct s3_sweep *sweep = s3_sweep_of(t);
	struct s3_stale *stale = sweep->stale;

	sweep->stale = stale->next;
	t->session->host->free(t->session->host, stale);
}

static void s3_sweep_drop(struct s3_transfer *t)
{
	const struct kvt_host *host = t->session->host;
	struct s3_sweep *sweep = s3_sweep_of(t);

	while (sweep->stale)
		s3_sweep_pop(t);
	host->free(host, sweep->key_marker);
	host->free(host, sweep->upload_marker);
	host->free(host, sweep);
	t->work = NULL;
}

static bool s3_ends_with(const char *text, const char *end)
{
	size_t n = strlen(text), e = strlen(end);

	return n >= e && strcmp(text + n - e, end) == 0;
}

static int s3_sweep_item(void *context, const struct s3_xml_item *item)
{
	struct s3_transfer *t = context;
	struct s3_backend *b = t->session->backend;
	const struct kvt_host *host = t->session->host;
	struct s3_sweep *sweep = s3_sweep_of(t);
	int64_t now_s = t->reply.date_s >= 0 ? t->reply.date_s : kvt__s3_server_time(b);
	int64_t begun_s = kvt__s3_time(item->time);
	size_t key = strlen(item->key) + 1, id = strlen(item->upload_id) + 1;
	struct s3_stale *stale;

	if (strncmp(item->key, b->config.key_root, strlen(b->config.key_root)) != 0 ||
	    !s3_ends_with(item->key, ".bin") || begun_s < 0 ||
	    now_s - begun_s <= (int64_t)t->io->sweep_age_s)
		return 0;
	stale = host->alloc(host, sizeof(*stale) + key + id, sizeof(void *));
	if (stale == NULL)
		return KVT_ENOMEM;
	memcpy(stale->key, item->key, key);
	stale->upload_id = stale->key + key;
	memcpy(stale->upload_id, item->upload_id, id);
	stale->next = sweep->stale;
	sweep->stale = stale;
	return 0;
}

static bool s3_sweep_mark(struct s3_transfer *t, char **markerp, const char *text)
{
	const struct kvt_host *host = t->session->host;
	char *copy = host->alloc(host, strlen(text) + 1, 1);

	if (copy == NULL)
		return false;
	memcpy(copy, text, strlen(text) + 1);
	host->free(host, *markerp);
	*markerp = copy;
	return true;
}

static enum s3_progress s3_sweep_aborted(struct s3_transfer *t, int error);

/* Aborts the next stale upload; after the last one comes the next page. */
static enum s3_progress s3_sweep_next(struct s3_transfer *t)
{
	struct s3_sweep *sweep = s3_sweep_of(t);

	if (sweep->stale == NULL) {
		if (sweep->key_marker)
			return s3_sweep_page(t);
		t->result = sweep->failed;
		return S3_FINISHED;
	}
	t->x = (struct s3_exchange){.method = S3_DELETE,
				    .verb = "abort",
				    .key = sweep->stale->key,
				    .query = {{"uploadId", sweep->stale->upload_id}},
				    .query_count = 1,
				    .is_quiet = sweep->failed != 0,
				    .step = s3_sweep_aborted};
	return kvt__s3_exchange(t);
}

static enum s3_progress s3_sweep_aborted(struct s3_transfer *t, int error)
{
	struct s3_sweep *sweep = s3_sweep_of(t);

	if (error == 0)
		t->io->swept++;
	else if (error != KVT_ENOENT && sweep->failed == 0)
		sweep->failed = error;
	if (error == KVT_ETIMEDOUT) {
		t->result = error;
		return S3_FINISHED;
	}
	s3_sweep_pop(t);
	return s3_sweep_next(t);
}

static enum s3_progress s3_sweep_listed(struct s3_transfer *t, int error)
{
	const struct kvt_host *host = t->session->host;
	struct s3_sweep *sweep = s3_sweep_of(t);
	bool more;

	/* A server that knows no such listing has nothing to sweep that we could find. */
	if (error == KVT_ENOTSUP) {
		t->result = 0;
		return S3_FINISHED;
	}
	t->result = error;
	if (error == 0 && (t->xml == NULL || kvt__s3_xml_root(t->xml) != S3_XML_UPLOADS)) {
		kvt__s3_tell(t, "the answer is no ListMultipartUploadsResult");
		t->result = KVT_EPROTO;
	}
	if (t->result)
		return S3_FINISHED;
	more = strcmp(kvt__s3_xml_text(t->xml, "IsTruncated"), "true") == 0 &&
	       *kvt__s3_xml_text(t->xml, "NextKeyMarker");
	if (more) {
		const char *key = kvt__s3_xml_text(t->xml, "NextKeyMarker");
		const char *id = kvt__s3_xml_text(t->xml, "NextUploadIdMarker");

		if (!s3_sweep_mark(t, &sweep->key_marker, key) ||
		    !s3_sweep_mark(t, &sweep->upload_marker, id)) {
			kvt__s3_tell(t, "out of memory");
			t->result = KVT_ENOMEM;
			return S3_FINISHED;
		}
	} else {
		host->free(host, sweep->key_marker);
		sweep->key_marker = NULL;
	}
	return s3_sweep_next(t);
}

static enum s3_progress s3_sweep_page(struct s3_transfer *t)
{
	struct s3_sweep *sweep = s3_sweep_of(t);

	/* Without encoding-type: Ceph encodes the keys then, and does not say so. */
	t->x = (struct s3_exchange){
		.method = S3_GET,
		.sink = S3_TO_XML,
		.verb = "list uploads",
		.query = {{"uploads", ""},
			  {"max-uploads", "1000"},
			  {"prefix", t->session->backend->config.key_root}},
		.query_count = 3,
		.item = s3_sweep_item,
		.step = s3_sweep_listed,
	};
	if (sweep->key_marker) {
		t->x.query[t->x.query_count++] = (struct s3_pair){"key-marker", sweep->key_marker};
		if (*sweep->upload_marker)
			t->x.query[t->x.query_count++] =
				(struct s3_pair){"upload-id-marker", sweep->upload_marker};
	}
	return kvt__s3_exchange(t);
}

enum s3_progress kvt__s3_sweep(struct s3_transfer *t)
{
	const struct kvt_host *host = t->session->host;
	struct s3_sweep *sweep = host->alloc(host, sizeof(*sweep), sizeof(void *));

	if (sweep == NULL) {
		host->detail(t->io, "sweep: out of memory");
		t->result = KVT_ENOMEM;
		return S3_FINISHED;
	}
	*sweep = (struct s3_sweep){0};
	t->work = sweep;
	t->drop = s3_sweep_drop;
	return s3_sweep_page(t);
}
