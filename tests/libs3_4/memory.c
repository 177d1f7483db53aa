/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libs3 in memory, with the interface of 4.1: objects and multipart uploads behind one lock.
 * Requests are done when their context is run, and where 4.1 is odd this is as odd: an abort has no
 * callback when it works, and a commit that failed may look as if it had not.
 */
#include "request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MIN_PART_BYTES (5u << 20)
#define PIECE_BYTES    16384
#define MOST_PARTS     64

struct libs3_4_control libs3_4_control;

struct body {
	uint64_t bytes;
	char *data;
};

struct object {
	struct object *next; /* sorted by key */
	struct body body;
	int64_t modified_s;
	char etag[40], mark_name[40], mark[64], key[S3_MAX_KEY_SIZE + 1];
};

struct upload {
	struct upload *next;
	struct object object; /* that it will be */
	char id[32];
	struct body parts[MOST_PARTS];
	char etags[MOST_PARTS][40];
};

pthread_mutex_t libs3_4_lock = PTHREAD_MUTEX_INITIALIZER;
static struct object *objects;
static struct upload *uploads;
static unsigned numbers;

/* ---- what is stored; all under the lock ---- */

static struct object **find(const char *key)
{
	struct object **linkp = &objects;

	while (*linkp && strcmp((*linkp)->key, key) < 0)
		linkp = &(*linkp)->next;
	return linkp;
}

static struct object *get(const char *key)
{
	struct object *object = *find(key);

	return object && !strcmp(object->key, key) ? object : NULL;
}

static void drop(const char *key)
{
	struct object **linkp = find(key), *object = get(key);

	if (!object)
		return;
	*linkp = object->next;
	free(object->body.data);
	free(object);
}

static bool store(const struct object *from, struct body body)
{
	struct object *object = malloc(sizeof(*object)), **linkp;

	if (!object)
		return false;
	*object = *from;
	object->body = body;
	object->modified_s = (int64_t)time(NULL);
	snprintf(object->etag, sizeof(object->etag), "\"%08x\"", ++numbers);
	drop(object->key);
	linkp = find(object->key);
	object->next = *linkp;
	*linkp = object;
	return true;
}

static struct upload **find_upload(const char *id)
{
	struct upload **linkp = &uploads;

	while (*linkp && strcmp((*linkp)->id, id) != 0)
		linkp = &(*linkp)->next;
	return linkp;
}

static void end_upload(const char *id)
{
	struct upload **linkp = find_upload(id), *u = *linkp;

	if (!u)
		return;
	*linkp = u->next;
	for (int i = 0; i < MOST_PARTS; i++)
		free(u->parts[i].data);
	free(u);
	libs3_4_control.uploads_open--;
}

bool libs3_4_fault(enum libs3_4_fault which)
{
	if (libs3_4_control.fault != which)
		return false;
	if (!libs3_4_control.more)
		libs3_4_control.fault = LIBS3_4_NONE;
	else
		libs3_4_control.more--;
	libs3_4_control.faults++;
	return true;
}

/* ---- requests ---- */

/* All that the callback has; false when it gave up. */
static bool receive_body(const struct request *r, struct body *body)
{
	body->bytes = 0;
	body->data = malloc(r->bytes ? (size_t)r->bytes : 1);
	while (body->data && body->bytes < r->bytes) {
		uint64_t left = r->bytes - body->bytes;
		int n = r->send(left < PIECE_BYTES ? (int)left : PIECE_BYTES,
				body->data + body->bytes, r->data);

		if (n <= 0)
			break;
		body->bytes += (uint64_t)n;
	}
	if (body->data && body->bytes == r->bytes)
		return true;
	free(body->data);
	return false;
}

static S3Status tell(const struct request *r, const struct object *object, uint64_t bytes)
{
	S3NameValue pair = {object->mark_name, object->mark};
	S3ResponseProperties properties;

	memset(&properties, 0, sizeof(properties));
	properties.contentLength = bytes;
	properties.eTag = object->etag[0] ? object->etag : NULL;
	properties.lastModified = object->modified_s;
	properties.metaDataCount = object->mark[0] != 0;
	properties.metaData = &pair;
	return r->response.propertiesCallback(&properties, r->data);
}

static S3Status do_put(const struct request *r)
{
	struct object object = {0};
	struct body body;
	bool stored;

	if (!receive_body(r, &body))
		return S3StatusAbortedByCallback;
	memcpy(object.key, r->key, sizeof(object.key));
	memcpy(object.mark_name, r->mark_name, sizeof(object.mark_name));
	memcpy(object.mark, r->mark, sizeof(object.mark));
	pthread_mutex_lock(&libs3_4_lock);
	stored = store(&object, body);
	pthread_mutex_unlock(&libs3_4_lock);
	return stored ? S3StatusOK : S3StatusOutOfMemory;
}

/* A copy of what is there, so that no callback is made under the lock. */
static S3Status copy(const struct request *r, struct object *to)
{
	struct object *object;
	S3Status status = S3StatusOK;

	pthread_mutex_lock(&libs3_4_lock);
	object = get(r->key);
	if (!object) {
		status = r->kind == HEAD ? S3StatusHttpErrorNotFound : S3StatusErrorNoSuchKey;
	} else if (r->etag[0] && strcmp(r->etag, object->etag) != 0) {
		status = S3StatusErrorPreconditionFailed;
	} else if (r->bytes && r->start >= object->body.bytes) {
		status = S3StatusErrorInvalidRange;
	} else {
		*to = *object;
		to->body.data = malloc(object->body.bytes ? (size_t)object->body.bytes : 1);
		if (to->body.data)
			memcpy(to->body.data, object->body.data, (size_t)object->body.bytes);
		else
			status = S3StatusOutOfMemory;
	}
	pthread_mutex_unlock(&libs3_4_lock);
	return status;
}

static S3Status do_get(const struct request *r)
{
	struct object object;
	S3Status status = copy(r, &object);
	uint64_t at, end;

	if (status != S3StatusOK)
		return status;
	end = object.body.bytes;
	if (r->kind == GET && r->bytes && r->bytes < end - r->start)
		end = r->start + r->bytes;
	status = tell(r, &object, end - r->start);
	for (at = r->start; r->kind == GET && status == S3StatusOK && at < end;) {
		uint64_t n = end - at < PIECE_BYTES ? end - at : PIECE_BYTES;

		status = r->receive((int)n, object.body.data + at, r->data);
		at += n;
	}
	free(object.body.data);
	return status;
}

static S3Status do_list(const struct request *r)
{
	char(*keys)[S3_MAX_KEY_SIZE + 1] = calloc((size_t)r->bytes, sizeof(*keys));
	S3ListBucketContent *contents = calloc((size_t)r->bytes, sizeof(*contents));
	S3Status status = keys && contents ? S3StatusOK : S3StatusOutOfMemory;
	int count = 0;

	pthread_mutex_lock(&libs3_4_lock);
	for (struct object *o = objects; o && status == S3StatusOK && count < (int)r->bytes;
	     o = o->next) {
		if (strncmp(o->key, r->key, strlen(r->key)) != 0 || strcmp(o->key, r->marker) <= 0)
			continue;
		memcpy(keys[count], o->key, sizeof(keys[count]));
		contents[count] = (S3ListBucketContent){.key = keys[count],
							.lastModified = o->modified_s,
							.eTag = "etag",
							.size = o->body.bytes};
		count++;
	}
	pthread_mutex_unlock(&libs3_4_lock);
	if (status == S3StatusOK && count)
		status = r->list(0, NULL, count, contents, 0, NULL, r->data);
	free(keys);
	free(contents);
	return status;
}

static S3Status do_begin(const struct request *r)
{
	struct upload *u = calloc(1, sizeof(*u));
	char id[32];

	if (!u)
		return S3StatusOutOfMemory;
	memcpy(u->object.key, r->key, sizeof(u->object.key));
	memcpy(u->object.mark_name, r->mark_name, sizeof(u->object.mark_name));
	memcpy(u->object.mark, r->mark, sizeof(u->object.mark));
	pthread_mutex_lock(&libs3_4_lock);
	snprintf(id, sizeof(id), "2~upload%u%s", ++numbers,
		 libs3_4_fault(LIBS3_4_ODD_UPLOAD_ID) ? "/+=" : "");
	memcpy(u->id, id, sizeof(id));
	u->next = uploads;
	uploads = u;
	libs3_4_control.uploads_open++;
	pthread_mutex_unlock(&libs3_4_lock);
	return r->begun(id, r->data);
}

static S3Status do_part(const struct request *r)
{
	struct object answer = {0};
	struct upload *u;
	struct body body;

	if (!receive_body(r, &body))
		return S3StatusAbortedByCallback;
	pthread_mutex_lock(&libs3_4_lock);
	u = *find_upload(r->id);
	if (u && r->number <= MOST_PARTS) {
		free(u->parts[r->number - 1].data);
		u->parts[r->number - 1] = body;
		snprintf(answer.etag, sizeof(answer.etag), "\"p%u\"", ++numbers);
		memcpy(u->etags[r->number - 1], answer.etag, sizeof(answer.etag));
		if (libs3_4_fault(LIBS3_4_PART_WITHOUT_ETAG))
			answer.etag[0] = 0;
	}
	pthread_mutex_unlock(&libs3_4_lock);
	if (!u) {
		free(body.data);
		return S3StatusErrorNoSuchUpload;
	}
	return tell(r, &answer, 0);
}

/* The parts of the list, which must be those that came, in one piece. */
static S3Status join(struct upload *u, const char *list, struct body *whole)
{
	int last = 0;
	char part[160];

	for (int i = 0; i < MOST_PARTS; i++)
		last = u->parts[i].data ? i : last;
	whole->bytes = 0;
	for (int i = 0; i <= last; i++) {
		/* Its quotes are the first and the last character. */
		snprintf(part, sizeof(part),
			 "<Part><PartNumber>%d</PartNumber><ETag>&quot;%.*s&quot;</ETag></Part>",
			 i + 1, (int)strlen(u->etags[i]) - 2, u->etags[i] + 1);
		if (!u->parts[i].data || !strstr(list, part))
			return S3StatusErrorInvalidPart;
		if (i < last && u->parts[i].bytes < MIN_PART_BYTES)
			return S3StatusErrorEntityTooSmall;
		whole->bytes += u->parts[i].bytes;
	}
	whole->data = malloc((size_t)whole->bytes + 1);
	if (!whole->data)
		return S3StatusOutOfMemory;
	whole->bytes = 0;
	for (int i = 0; i <= last; i++) {
		memcpy(whole->data + whole->bytes, u->parts[i].data, (size_t)u->parts[i].bytes);
		whole->bytes += u->parts[i].bytes;
	}
	return S3StatusOK;
}

static S3Status do_commit(const struct request *r)
{
	S3Status status = S3StatusErrorNoSuchUpload;
	bool looks_well = false, is_lost = false;
	struct body list, whole;
	struct upload *u;

	if (!receive_body(r, &list))
		return S3StatusAbortedByCallback;
	/* Its NUL takes the place of the last character: ">" of the closing tag. */
	if (list.bytes)
		list.data[list.bytes - 1] = 0;
	pthread_mutex_lock(&libs3_4_lock);
	u = *find_upload(r->id);
	looks_well = u && libs3_4_fault(LIBS3_4_COMMIT_ERROR_IN_200);
	if (u && !looks_well)
		status = join(u, list.data, &whole);
	if (u && !looks_well && status == S3StatusOK) {
		status = store(&u->object, whole) ? S3StatusOK : S3StatusOutOfMemory;
		end_upload(r->id);
		is_lost = libs3_4_fault(LIBS3_4_COMMIT_ANSWER_LOST);
	}
	pthread_mutex_unlock(&libs3_4_lock);
	free(list.data);
	if (looks_well)
		return r->committed("", "", r->data);
	if (status == S3StatusOK && is_lost)
		return S3StatusConnectionFailed;
	return status == S3StatusOK ? r->committed("there", "\"etag\"", r->data) : status;
}

S3Status libs3_4_perform(const struct request *r)
{
	switch (r->kind) {
	case PUT:
		return do_put(r);
	case GET:
	case HEAD:
		return do_get(r);
	case DELETE:
		pthread_mutex_lock(&libs3_4_lock);
		drop(r->key);
		pthread_mutex_unlock(&libs3_4_lock);
		return S3StatusOK;
	case LIST:
		return do_list(r);
	case BEGIN:
		return do_begin(r);
	case PART:
		return do_part(r);
	case COMMIT:
		return do_commit(r);
	}
	return S3StatusInternalError;
}

void libs3_4_end_upload(const char *id)
{
	pthread_mutex_lock(&libs3_4_lock);
	end_upload(id);
	pthread_mutex_unlock(&libs3_4_lock);
}
