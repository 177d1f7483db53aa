/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One page of a listing (version 1, with a marker). libs3 takes an answer that was cut off for a
 * whole one and does not say which it was, so a page that has names is never the last: the listing
 * has ended when nothing comes behind the last name.
 */
#include "module.h"

#include <stdio.h>
#include <string.h>

#define MOST_NAMES 1000u

struct list_call {
	struct libs3_call call; /* first */
	struct kvt_io *io;
	const char *root; /* what keys begin with and names do not */
	int stopped;	  /* by io->list_item */
	char last[S3_MAX_KEY_SIZE + 1];
};

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
	struct libs3_object object = {.bytes = content->size, .modified_s = content->lastModified};
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
		(void)snprintf(list->last, sizeof(list->last), "%s", contents[i].key);
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

int kvt__libs3_list(struct libs3_session *session, struct kvt_io *io)
{
	static const S3ListBucketHandler handler = {
		{kvt__libs3_on_properties, kvt__libs3_on_complete}, list_page};
	struct list_call list = {.call = kvt__libs3_call(session, io, "list"), .io = io};
	uint32_t most = io->list_max && io->list_max < MOST_NAMES ? io->list_max : MOST_NAMES;
	const char *marker = io->list_token[0] ? io->list_token : NULL;
	int error;

	list.root = session->backend->config.key_root;
	if (!kvt__libs3_key(session, io))
		return KVT_EINVAL;
	if (kvt__libs3_call_begin(&list.call))
		S3_list_bucket(&session->backend->bucket, session->key[0] ? session->key : NULL,
			       marker, NULL, (int)most, LIBS3_ON(session->context), &handler,
			       &list);
	error = kvt__libs3_call_run(&list.call);
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
