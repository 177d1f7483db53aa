/* SPDX-License-Identifier: Apache-2.0 */
/* Listing: one page of ListObjectsV2 for each request, its items handed over as they are read. */
#include "s3.h"

#include <stdio.h>
#include <string.h>

#define S3_MOST_NAMES 1000u

/* The name of a key below our root that the core could have made, else NULL: others may keep what
 * they like in the bucket. */
static const char *s3_name_of_key(const struct s3_config *config, const char *key)
{
	size_t root = strlen(config->key_root);
	const char *name, *at;

	if (strncmp(key, config->key_root, root) != 0)
		return NULL;
	name = key + root;
	for (at = name;;) {
		size_t n = strcspn(at, "/");

		if (n == 0 || (n == 1 && at[0] == '.') || (n == 2 && at[0] == '.' && at[1] == '.'))
			return NULL;
		for (size_t i = 0; i < n; i++)
			if ((unsigned char)at[i] < 0x20 || at[i] == 0x7f)
				return NULL;
		if (at[n] == '\0')
			return name;
		at += n + 1;
	}
}

static int s3_list_item(void *context, const struct s3_xml_item *item)
{
	struct s3_transfer *t = context;
	struct s3_backend *b = t->session->backend;
	struct kvt_list_item found = {.name = s3_name_of_key(&b->config, item->key)};
	size_t n = strlen(item->etag);
	int64_t now_s = t->reply.date_s >= 0 ? t->reply.date_s : kvt__s3_server_time(b);

	if (found.name == NULL || strncmp(found.name, t->io->name, strlen(t->io->name)) != 0)
		return 0;
	found.info.object_bytes = item->bytes;
	found.info.age_ns = kvt__s3_age_ns(now_s, kvt__s3_time(item->time));
	found.info.access_age_ns = -1;
	if (n <= sizeof(found.info.version.value)) {
		found.info.version.bytes = (uint32_t)n;
		memcpy(found.info.version.value, item->etag, n);
	}
	t->pending = t->io->list_item(t->io, &found);
	return t->pending;
}

static enum s3_progress s3_list_step(struct s3_transfer *t, int error)
{
	struct kvt_io *io = t->io;
	const char *token;

	t->result = t->pending ? t->pending : error;
	if (t->result)
		return S3_FINISHED;
	if (t->xml == NULL || kvt__s3_xml_root(t->xml) != S3_XML_LIST) {
		kvt__s3_tell(t, "the answer is no ListBucketResult");
		t->result = KVT_EPROTO;
		return S3_FINISHED;
	}
	token = kvt__s3_xml_text(t->xml, "NextContinuationToken");
	if (strcmp(kvt__s3_xml_text(t->xml, "IsTruncated"), "true") != 0)
		token = "";
	else if (*token == '\0' || strlen(token) >= io->list_token_bytes) {
		kvt__s3_tell(t, *token ? "its continuation token is too long"
				       : "it has no continuation token");
		t->result = KVT_EPROTO;
		return S3_FINISHED;
	}
	memcpy(io->list_token, token, strlen(token) + 1);
	return S3_FINISHED;
}

static void s3_list_drop(struct s3_transfer *t)
{
	t->session->host->free(t->session->host, t->work);
	t->work = NULL;
}

enum s3_progress kvt__s3_list(struct s3_transfer *t)
{
	const struct kvt_host *host = t->session->host;
	const char *root = t->session->backend->config.key_root;
	struct kvt_io *io = t->io;
	size_t bytes = strlen(root) + strlen(io->name) + 1;
	uint32_t most = io->list_max && io->list_max < S3_MOST_NAMES ? io->list_max : S3_MOST_NAMES;
	char *prefix = host->alloc(host, bytes, 1);

	if (prefix == NULL) {
		host->detail(io, "list %s: out of memory", io->name);
		t->result = KVT_ENOMEM;
		return S3_FINISHED;
	}
	memcpy(prefix, root, strlen(root));
	memcpy(prefix + strlen(root), io->name, strlen(io->name) + 1);
	t->work = prefix;
	t->drop = s3_list_drop;
	(void)snprintf(t->number, sizeof(t->number), "%u", most);
	t->x = (struct s3_exchange){
		.method = S3_GET,
		.sink = S3_TO_XML,
		.verb = "list",
		.query = {{"list-type", "2"},
			  {"encoding-type", "url"},
			  {"max-keys", t->number},
			  {"prefix", prefix}},
		.query_count = 4,
		.item = s3_list_item,
		.step = s3_list_step,
	};
	if (io->list_token[0])
		t->x.query[t->x.query_count++] =
			(struct s3_pair){"continuation-token", io->list_token};
	return kvt__s3_exchange(t);
}
