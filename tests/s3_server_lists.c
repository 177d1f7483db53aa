/* SPDX-License-Identifier: Apache-2.0 */
/* Listings: of objects in both versions, and of uploads. Tokens are opaque and full of characters
 * that have to be encoded. */
#include "s3_server_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOKEN_MARK "a/b+c=d&"

struct listing {
	struct s3s_request *r;
	const char *prefix, *delimiter;
	char *after; /* names up to this one are past; owned */
	char *start; /* "bucket/prefix"; owned */
	unsigned most, count;
	bool encoded, truncated, version_2;
	char *last; /* key, or common prefix, that was told last; owned */
};

static void tell(struct listing *l, const char *element, const char *key)
{
	char *text = l->encoded ? s3s_encode(key, true, true) : s3s_copy(key);

	s3s_text(&l->r->reply, "<%s>", element);
	if (text)
		s3s_text_escaped(&l->r->reply, text);
	s3s_text(&l->r->reply, "</%s>", element);
	free(text);
}

static unsigned number_of(struct s3s_request *r, const char *name, unsigned most)
{
	const char *text = s3s_query(r, name);
	unsigned long n = text ? strtoul(text, NULL, 10) : most;

	return n < most ? (unsigned)n : most;
}

static char *token_make(const char *key)
{
	size_t bytes = strlen(key);
	char *token = malloc(strlen(TOKEN_MARK) + 2 * bytes + 1);

	if (!token)
		return NULL;
	memcpy(token, TOKEN_MARK, strlen(TOKEN_MARK));
	s3s_hex((const uint8_t *)key, bytes, token + strlen(TOKEN_MARK));
	return token;
}

static char *token_read(const char *token)
{
	size_t bytes = strlen(token);
	char *escaped, *key = NULL;

	if (strncmp(token, TOKEN_MARK, strlen(TOKEN_MARK)) != 0)
		return NULL;
	token += strlen(TOKEN_MARK);
	bytes = strlen(token) / 2;
	escaped = malloc(3 * bytes + 1);
	if (!escaped)
		return NULL;
	for (size_t i = 0; i < bytes; i++) {
		escaped[3 * i] = '%';
		memcpy(escaped + 3 * i + 1, token + 2 * i, 2);
	}
	key = s3s_decode(escaped, 3 * bytes, false);
	free(escaped);
	return key;
}

static void tell_object(struct listing *l, const char *key, const struct s3s_object *object)
{
	struct s3s_reply *reply = &l->r->reply;
	bool bare = atomic_load(&l->r->server->traits) & S3_SERVER_LIST_BARE_ETAGS;
	char date[32], etag[S3S_ETAG_BYTES];

	snprintf(etag, sizeof(etag), "%s", object->etag + bare);
	if (bare && etag[0])
		etag[strlen(etag) - 1] = 0;
	s3s_iso_date(object->modified_s, date);
	s3s_text(reply, "<Contents>");
	tell(l, "Key", key);
	s3s_text(reply, "<LastModified>%s</LastModified><ETag>", date);
	s3s_text_escaped(reply, etag);
	s3s_text(reply, "</ETag><Size>%llu</Size><StorageClass>STANDARD</StorageClass></Contents>",
		 (unsigned long long)object->bytes);
}

static void remember(struct listing *l, const char *key, size_t bytes)
{
	free(l->last);
	l->last = strndup(key, bytes);
	l->count++;
}

/* The contents and common prefixes of one page. */
static void tell_page_locked(struct listing *l)
{
	struct s3_server *server = l->r->server;
	size_t bucket_bytes = strlen(l->r->bucket) + 1, start_bytes = strlen(l->start);

	for (size_t i = s3s_entry_at_locked(server, l->start); i < server->entry_count; i++) {
		const struct s3s_entry *entry = &server->entries[i];
		const char *key = entry->name + bucket_bytes, *end = NULL;
		size_t bytes = strlen(key);

		if (strncmp(entry->name, l->start, start_bytes) != 0)
			break;
		if (l->delimiter && *l->delimiter)
			end = strstr(key + strlen(l->prefix), l->delimiter);
		if (end)
			bytes = (size_t)(end - key) + strlen(l->delimiter);
		if (end ? strncmp(key, l->after, bytes) <= 0 : strcmp(key, l->after) <= 0)
			continue;
		if (end && l->last && strlen(l->last) == bytes && !strncmp(l->last, key, bytes))
			continue;
		if (l->count == l->most) {
			l->truncated = l->most > 0;
			break;
		}
		remember(l, key, bytes);
		if (end) {
			s3s_text(&l->r->reply, "<CommonPrefixes>");
			tell(l, "Prefix", l->last ? l->last : "");
			s3s_text(&l->r->reply, "</CommonPrefixes>");
		} else {
			tell_object(l, key, entry->object);
		}
	}
}

static void tell_end(struct listing *l)
{
	struct s3s_reply *reply = &l->r->reply;
	const char *last = l->last ? l->last : l->after;
	char *token;

	s3s_text(reply, "<IsTruncated>%s</IsTruncated>", l->truncated ? "true" : "false");
	if (l->version_2)
		s3s_text(reply, "<KeyCount>%u</KeyCount>", l->count);
	if (!l->truncated)
		return;
	if (!l->version_2) {
		tell(l, "NextMarker", last);
		return;
	}
	token = token_make(last);
	s3s_text(reply, "<NextContinuationToken>");
	if (token)
		s3s_text_escaped(reply, token);
	s3s_text(reply, "</NextContinuationToken>");
	free(token);
}

/* Where the page begins; false when the token is none of ours. */
static bool find_start(struct listing *l)
{
	const char *token = s3s_query(l->r, "continuation-token");
	const char *after = s3s_query(l->r, l->version_2 ? "start-after" : "marker");

	l->after = token && l->version_2 ? token_read(token) : s3s_copy(after ? after : "");
	l->start = s3s_name(l->r->bucket, l->prefix);
	return l->after && l->start;
}

void s3s_list(struct s3s_request *r)
{
	struct s3_server *server = r->server;
	unsigned traits = atomic_load(&server->traits);
	const char *type = s3s_query(r, "list-type"), *encoding = s3s_query(r, "encoding-type");
	struct listing l = {.r = r,
			    .prefix = s3s_query(r, "prefix"),
			    .delimiter = s3s_query(r, "delimiter"),
			    .most = number_of(r, "max-keys", 1000),
			    .version_2 = type && strcmp(type, "2") == 0,
			    .encoded = encoding && strcmp(encoding, "url") == 0 &&
				       !(traits & S3_SERVER_PLAIN_LISTS)};

	if (traits & S3_SERVER_NO_LIST_RIGHT) {
		s3s_error(r, 403, "AccessDenied", "Access Denied");
		return;
	}
	l.prefix = l.prefix ? l.prefix : "";
	if (!find_start(&l)) {
		s3s_error(r, 400, "InvalidArgument", "The continuation token is not valid");
		goto out;
	}
	r->reply.status = 200;
	s3s_text(&r->reply, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
			    "<ListBucketResult "
			    "xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>");
	s3s_text_escaped(&r->reply, r->bucket);
	s3s_text(&r->reply, "</Name>");
	tell(&l, "Prefix", l.prefix);
	s3s_text(&r->reply, "<MaxKeys>%u</MaxKeys>", l.most);
	if (l.encoded)
		s3s_text(&r->reply, "<EncodingType>url</EncodingType>");
	pthread_mutex_lock(&server->lock);
	/* A page of nothing that says there is more, as servers send when they gave up looking. */
	if (traits & S3_SERVER_EMPTY_PAGES && l.version_2 && ++server->pages % 2)
		l.truncated = true;
	else
		tell_page_locked(&l);
	pthread_mutex_unlock(&server->lock);
	tell_end(&l);
	s3s_text(&r->reply, "</ListBucketResult>");
out:
	free(l.after);
	free(l.start);
	free(l.last);
}

/* ---- Uploads ---- */

static int order(const struct s3s_upload *u, const char *name, const char *id)
{
	int by_name = strcmp(u->name, name);

	return by_name ? by_name : strcmp(u->id, id);
}

/* The first upload behind this name and id. */
static struct s3s_upload *next_locked(struct s3_server *server, const char *name, const char *id)
{
	struct s3s_upload *best = NULL;

	for (struct s3s_upload *u = server->uploads; u; u = u->next)
		if (order(u, name, id) > 0 && (!best || order(u, best->name, best->id) < 0))
			best = u;
	return best;
}

void s3s_uploads(struct s3s_request *r)
{
	struct s3_server *server = r->server;
	const char *key_marker = s3s_query(r, "key-marker"),
		   *encoding = s3s_query(r, "encoding-type");
	const char *id_marker = s3s_query(r, "upload-id-marker");
	struct listing l = {.r = r,
			    .prefix = s3s_query(r, "prefix"),
			    .most = number_of(r, "max-uploads", 1000),
			    .encoded = encoding && strcmp(encoding, "url") == 0};
	char *start, *after;
	const struct s3s_upload *u = NULL, *last = NULL;

	if (atomic_load(&server->traits) & S3_SERVER_NO_MULTIPART) {
		s3s_error(r, 501, "NotImplemented", "multipart uploads are not implemented");
		return;
	}
	start = s3s_name(r->bucket, l.prefix ? l.prefix : "");
	after = s3s_name(r->bucket, key_marker ? key_marker : "");
	if (!start || !after)
		goto out;
	/* Without an id all uploads of the marker's key are past. */
	if (key_marker && *key_marker && !(id_marker && *id_marker))
		id_marker = "\x7f";
	r->reply.status = 200;
	s3s_text(&r->reply, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
			    "<ListMultipartUploadsResult "
			    "xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Bucket>");
	s3s_text_escaped(&r->reply, r->bucket);
	s3s_text(&r->reply, "</Bucket><MaxUploads>%u</MaxUploads>", l.most);
	if (l.encoded)
		s3s_text(&r->reply, "<EncodingType>url</EncodingType>");
	pthread_mutex_lock(&server->lock);
	for (u = next_locked(server, after, id_marker ? id_marker : ""); u;
	     u = next_locked(server, u->name, u->id)) {
		char date[32];

		if (strncmp(u->name, start, strlen(start)) != 0)
			continue;
		if (l.count == l.most) {
			l.truncated = l.most > 0;
			break;
		}
		l.count++;
		last = u;
		s3s_iso_date(u->began_s, date);
		s3s_text(&r->reply, "<Upload>");
		tell(&l, "Key", u->name + strlen(r->bucket) + 1);
		s3s_text(&r->reply, "<UploadId>");
		s3s_text_escaped(&r->reply, u->id);
		s3s_text(&r->reply, "</UploadId><Initiated>%s</Initiated></Upload>", date);
	}
	s3s_text(&r->reply, "<IsTruncated>%s</IsTruncated>", l.truncated ? "true" : "false");
	if (l.truncated && last) {
		tell(&l, "NextKeyMarker", last->name + strlen(r->bucket) + 1);
		s3s_text(&r->reply, "<NextUploadIdMarker>");
		s3s_text_escaped(&r->reply, last->id);
		s3s_text(&r->reply, "</NextUploadIdMarker>");
	}
	pthread_mutex_unlock(&server->lock);
	s3s_text(&r->reply, "</ListMultipartUploadsResult>");
out:
	free(start);
	free(after);
}
