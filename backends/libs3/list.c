/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One page of a listing (version 1, with a marker). libs3 takes an answer that was cut off for a
 * whole one and does not say which it was, so a page that has names is never the last: the listing
 * has ended when nothing comes behind the last name.
 */
#include "module.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define MOST_NAMES 1000u

/*
 * Times in listings. libs3 2.0 takes them for local time; whether a libs3 does is found out once
 * for the process, where it matters, by comparing with what a HEAD says.
 */
enum list_times { LIST_TIMES_UNKNOWN = 0, LIST_TIMES_RIGHT, LIST_TIMES_LOCAL };
static atomic_int list_times;

struct list_call {
	struct libs3_call call; /* first */
	struct kvt_io *io;	/* NULL: nobody wants to know, but for `first` */
	const char *root;	/* what keys begin with and names do not */
	int stopped;		/* by io->list_item */
	int64_t first_s;	/* of the first key, as libs3 sees it */
	char first[S3_MAX_KEY_SIZE + 1], last[S3_MAX_KEY_SIZE + 1];
};

/* What was meant by a time that libs3 took for local time. */
static int64_t from_local(int64_t seconds)
{
	time_t t = (time_t)seconds;
	struct tm tm;

	return localtime_r(&t, &tm) ? (int64_t)timegm(&tm) : -1;
}

static int64_t right_time(int64_t seconds)
{
	if (seconds < 0 || from_local(seconds) == seconds)
		return seconds;
	switch (atomic_load(&list_times)) {
	case LIST_TIMES_RIGHT:
		return seconds;
	case LIST_TIMES_LOCAL:
		return from_local(seconds);
	default:
		return -1;
	}
}

/* Whether a key can be an object of ours: components without "." and "..", single slashes. */
static bool is_name(const char *name)
{
	if (!*name || !strncmp(name, ".kvtier/", 8))
		return false;
	for (const char *c = name;;) {
		size_t n = strcspn(c, "/");

		if (!n || (n == 1 && c[0] == '.') || (n == 2 && c[0] == '.' && c[1] == '.'))
			return false;
		c += n;
		if (!*c)
			return true;
		c++;
	}
}

static void tell_item(struct list_call *list, const S3ListBucketContent *content)
{
	size_t n = strlen(list->root);
	struct libs3_object object = {.bytes = content->size,
				      .modified_s = right_time(content->lastModified)};
	struct kvt_list_item item;

	if (strncmp(content->key, list->root, n) != 0 || !is_name(content->key + n))
		return;
	item.name = content->key + n;
	/* Some servers leave the quotes out here. */
	if (content->eTag && content->eTag[0])
		(void)snprintf(object.etag, sizeof(object.etag),
			       content->eTag[0] == '"' ? "%s" : "\"%s\"", content->eTag);
	kvt__libs3_fill_info(&object, &item.info);
	list->stopped = list->io->list_item(list->io, &item);
}

static S3Status list_page(int is_truncated, const char *next_marker, int count,
			  const S3ListBucketContent *contents, int prefix_count,
			  const char **prefixes, void *callback_data)
{
	struct list_call *list = callback_data;

	(void)is_truncated;
	(void)next_marker;
	(void)prefix_count;
	(void)prefixes;
	/* libs3 hands over the same names again after it was told to stop. */
	for (int i = 0; i < count && !list->stopped && !list->call.expired; i++) {
		if (!list->first[0]) {
			(void)snprintf(list->first, sizeof(list->first), "%s", contents[i].key);
			list->first_s = contents[i].lastModified;
		}
		(void)snprintf(list->last, sizeof(list->last), "%s", contents[i].key);
		if (list->io)
			tell_item(list, &contents[i]);
	}
	return list->stopped || list->call.expired ? S3StatusAbortedByCallback : S3StatusOK;
}

/* Whether a marker fits into the buffer of libs3 2.0 that it is encoded into: 3,072 bytes, and one
 * byte too few for 1,024 bytes that all need escaping. */
static bool is_marker(const char *key)
{
	if (strlen(key) <= LIBS3_MAX_KEY_BYTES)
		return true;
	for (const char *c = key; *c; c++)
		if ((*c >= '0' && *c <= '9') || (*c >= 'A' && *c <= 'Z') ||
		    (*c >= 'a' && *c <= 'z'))
			return true;
	return false;
}

static int list_send(struct libs3_session *session, const char *marker, uint32_t most,
		     struct list_call *list)
{
	static const S3ListBucketHandler handler = {
		{kvt__libs3_on_properties, kvt__libs3_on_complete}, list_page};

	list->root = session->backend->config.key_root;
	if (kvt__libs3_call_begin(&list->call))
		S3_list_bucket(&session->backend->bucket, session->key[0] ? session->key : NULL,
			       marker, NULL, (int)most, LIBS3_ON(session->context), &handler, list);
	return kvt__libs3_call_run(&list->call);
}

/* Compares the time of one object in a listing with that of a HEAD. Until that has worked, the ages
 * of listed objects are not known. */
static void find_times(struct libs3_session *session, struct kvt_io *io)
{
	struct list_call list = {.call = kvt__libs3_call(session, io, "list")};
	const char *marker = io->list_token[0] ? io->list_token : NULL;
	struct libs3_object object;
	char prefix[sizeof(session->key)];

	if (list_send(session, marker, 1, &list) || !list.first[0] || list.first_s < 0 ||
	    from_local(list.first_s) == list.first_s || strlen(list.first) >= sizeof(session->key))
		return;
	memcpy(prefix, session->key, sizeof(prefix));
	memcpy(session->key, list.first, strlen(list.first) + 1);
	if (!kvt__libs3_ask(session, io, "list", &object)) {
		if (object.modified_s == list.first_s)
			atomic_store(&list_times, LIST_TIMES_RIGHT);
		else if (object.modified_s == from_local(list.first_s))
			atomic_store(&list_times, LIST_TIMES_LOCAL);
	}
	memcpy(session->key, prefix, sizeof(prefix));
}

static bool is_utc(void)
{
	time_t now = time(NULL);

	return from_local((int64_t)now) == (int64_t)now;
}

int kvt__libs3_list(struct libs3_session *session, struct kvt_io *io)
{
	struct list_call list = {.call = kvt__libs3_call(session, io, "list"), .io = io};
	uint32_t most = io->list_max && io->list_max < MOST_NAMES ? io->list_max : MOST_NAMES;
	const char *marker = io->list_token[0] ? io->list_token : NULL;
	int error;

	if (!kvt__libs3_key(session, io))
		return KVT_EINVAL;
	if (!is_utc() && atomic_load(&list_times) == LIST_TIMES_UNKNOWN)
		find_times(session, io);
	error = list_send(session, marker, most, &list);
	if (list.stopped)
		return list.stopped;
	/* A prefix that no key has yet, of a bucket that is there, is an empty page and no error.
	 */
	if (error == KVT_ENOENT)
		error = KVT_ECONFIG;
	if (!error && list.last[0] && marker && strcmp(list.last, marker) == 0) {
		list.call.why = "the page does not go on behind its marker";
		error = KVT_EPROTO;
	}
	if (!error && (!is_marker(list.last) || strlen(list.last) >= io->list_token_bytes)) {
		list.call.why = "the last key is too long to go on behind";
		error = KVT_EPROTO;
	}
	if (error) {
		kvt__libs3_tell(&list.call, io);
		return error;
	}
	memcpy(io->list_token, list.last, strlen(list.last) + 1);
	return 0;
}
