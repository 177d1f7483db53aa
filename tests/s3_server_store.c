/* SPDX-License-Identifier: Apache-2.0 */
/* What the S3 server stores: contents that are counted and never copied, in a sorted array. */
#include "s3_server_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

int64_t s3s_now(struct s3_server *server)
{
	int64_t offset;

	pthread_mutex_lock(&server->lock);
	offset = server->options.clock_offset_s;
	pthread_mutex_unlock(&server->lock);
	return (int64_t)time(NULL) + offset;
}

struct s3s_buffer *s3s_buffer_create(uint64_t bytes)
{
	struct s3s_buffer *buffer;

	if (bytes > SIZE_MAX / 2)
		return NULL;
	buffer = malloc(sizeof(*buffer) + (size_t)bytes);
	if (!buffer)
		return NULL;
	atomic_init(&buffer->refs, 1);
	buffer->bytes = bytes;
	return buffer;
}

void s3s_buffer_release(struct s3s_buffer *buffer)
{
	if (buffer && atomic_fetch_sub(&buffer->refs, 1) == 1)
		free(buffer);
}

struct s3s_object *s3s_object_create(unsigned buffers)
{
	struct s3s_object *object = calloc(1, sizeof(*object) + buffers * sizeof(void *));

	if (!object)
		return NULL;
	atomic_init(&object->refs, 1);
	object->count = buffers;
	return object;
}

void s3s_object_release(struct s3s_object *object)
{
	if (!object || atomic_fetch_sub(&object->refs, 1) != 1)
		return;
	for (unsigned i = 0; i < object->count; i++)
		s3s_buffer_release(object->buffers[i]);
	free(object);
}

void s3s_etag_make(struct s3_server *server, const void *data, uint64_t bytes,
		   char etag[S3S_ETAG_BYTES])
{
	uint8_t md5[16];
	char hex[33];
	uint64_t number;

	pthread_mutex_lock(&server->lock);
	number = ++server->etags;
	pthread_mutex_unlock(&server->lock);
	if (atomic_load(&server->traits) & S3_SERVER_MD5_ETAGS &&
	    EVP_Digest(data, (size_t)bytes, md5, NULL, EVP_md5(), NULL)) {
		s3s_hex(md5, sizeof(md5), hex);
		snprintf(etag, S3S_ETAG_BYTES, "\"%s\"", hex);
		return;
	}
	/* The same bytes written again are another version, as with KMS. */
	snprintf(etag, S3S_ETAG_BYTES, "\"%016llx%016llx\"",
		 (unsigned long long)(number * UINT64_C(0x9e3779b97f4a7c15)),
		 (unsigned long long)number);
}

bool s3s_bucket_is(struct s3_server *server, const char *bucket)
{
	bool is = false;

	pthread_mutex_lock(&server->lock);
	for (unsigned i = 0; i < server->bucket_count && !is; i++)
		is = strcmp(server->buckets[i], bucket) == 0;
	pthread_mutex_unlock(&server->lock);
	return is;
}

bool s3_server_add_bucket(struct s3_server *server, const char *bucket)
{
	char *name = s3s_copy(bucket), **grown;

	if (!name)
		return false;
	if (s3s_bucket_is(server, bucket)) {
		free(name);
		return true;
	}
	pthread_mutex_lock(&server->lock);
	grown = realloc(server->buckets, (server->bucket_count + 1) * sizeof(*grown));
	if (grown) {
		server->buckets = grown;
		grown[server->bucket_count++] = name;
	} else {
		free(name);
	}
	pthread_mutex_unlock(&server->lock);
	return grown != NULL;
}

char *s3s_name(const char *bucket, const char *key)
{
	size_t bytes = strlen(bucket) + strlen(key) + 2;
	char *name = malloc(bytes);

	if (name)
		snprintf(name, bytes, "%s/%s", bucket, key);
	return name;
}

/* ---- Objects ---- */

size_t s3s_entry_at_locked(struct s3_server *server, const char *name)
{
	size_t low = 0, high = server->entry_count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (strcmp(server->entries[middle].name, name) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

struct s3s_entry *s3s_entry_locked(struct s3_server *server, const char *name)
{
	size_t at = s3s_entry_at_locked(server, name);

	return at < server->entry_count && strcmp(server->entries[at].name, name) == 0
		       ? &server->entries[at]
		       : NULL;
}

struct s3s_object *s3s_object_find(struct s3_server *server, const char *name)
{
	struct s3s_object *object = NULL;
	struct s3s_entry *entry;

	pthread_mutex_lock(&server->lock);
	entry = s3s_entry_locked(server, name);
	if (entry) {
		object = entry->object;
		atomic_fetch_add(&object->refs, 1);
	}
	pthread_mutex_unlock(&server->lock);
	return object;
}

bool s3s_entry_set_locked(struct s3_server *server, const char *name, struct s3s_object *object)
{
	size_t at = s3s_entry_at_locked(server, name);
	char *copy;

	if (at < server->entry_count && strcmp(server->entries[at].name, name) == 0) {
		s3s_object_release(server->entries[at].object);
		server->entries[at].object = object;
		return true;
	}
	if (server->entry_count == server->entry_room) {
		size_t room = server->entry_room ? 2 * server->entry_room : 64;
		struct s3s_entry *grown = realloc(server->entries, room * sizeof(*grown));

		if (!grown)
			return false;
		server->entries = grown;
		server->entry_room = room;
	}
	copy = s3s_copy(name);
	if (!copy)
		return false;
	memmove(&server->entries[at + 1], &server->entries[at],
		(server->entry_count - at) * sizeof(server->entries[0]));
	server->entries[at] = (struct s3s_entry){copy, object};
	server->entry_count++;
	return true;
}

bool s3s_entry_remove_locked(struct s3_server *server, const char *name)
{
	struct s3s_entry *entry = s3s_entry_locked(server, name);

	if (!entry)
		return false;
	s3s_object_release(entry->object);
	free(entry->name);
	server->entry_count--;
	memmove(entry, entry + 1,
		(server->entry_count - (size_t)(entry - server->entries)) * sizeof(*entry));
	return true;
}

/* ---- Uploads ---- */

struct s3s_upload *s3s_upload_locked(struct s3_server *server, const char *name, const char *id)
{
	struct s3s_upload *upload = server->uploads;

	while (upload && (strcmp(upload->id, id) != 0 || strcmp(upload->name, name) != 0))
		upload = upload->next;
	return upload;
}

struct s3s_upload *s3s_upload_begin_locked(struct s3_server *server, const char *name,
					   int64_t began_s)
{
	struct s3s_upload *upload = calloc(1, sizeof(*upload)), **end = &server->uploads;

	if (!upload)
		return NULL;
	upload->name = s3s_copy(name);
	if (!upload->name) {
		free(upload);
		return NULL;
	}
	/* With all the characters that ids of the real ones have. */
	snprintf(upload->id, sizeof(upload->id), "2~a/b+c=d._-e&%016llx",
		 (unsigned long long)++server->ids);
	upload->began_s = began_s;
	while (*end)
		end = &(*end)->next;
	*end = upload;
	return upload;
}

void s3s_upload_end_locked(struct s3_server *server, struct s3s_upload *upload)
{
	struct s3s_upload **link = &server->uploads;

	while (*link && *link != upload)
		link = &(*link)->next;
	if (*link)
		*link = upload->next;
	for (unsigned i = 0; i < upload->count; i++)
		s3s_buffer_release(upload->parts[i].buffer);
	free(upload->parts);
	free(upload->name);
	free(upload);
}

void s3s_store_fini(struct s3_server *server)
{
	while (server->uploads)
		s3s_upload_end_locked(server, server->uploads);
	for (size_t i = 0; i < server->entry_count; i++) {
		free(server->entries[i].name);
		s3s_object_release(server->entries[i].object);
	}
	free(server->entries);
	for (unsigned i = 0; i < server->bucket_count; i++)
		free(server->buckets[i]);
	free(server->buckets);
	for (size_t i = 0; i < server->completed_count; i++)
		free(server->completed[i]);
	free(server->completed);
}

/* ---- For tests ---- */

/* In the first bucket. */
static char *own_name(struct s3_server *server, const char *key)
{
	return s3s_name(server->options.bucket, key);
}

bool s3_server_put(struct s3_server *server, const char *key, const void *data, uint64_t bytes)
{
	struct s3s_object *object = s3s_object_create(1);
	char *name = own_name(server, key);
	bool done = false;

	if (object && name)
		object->buffers[0] = s3s_buffer_create(bytes);
	if (object && name && object->buffers[0]) {
		if (bytes)
			memcpy(object->buffers[0]->data, data, (size_t)bytes);
		object->bytes = bytes;
		object->modified_s = s3s_now(server);
		s3s_etag_make(server, object->buffers[0]->data, bytes, object->etag);
		pthread_mutex_lock(&server->lock);
		done = s3s_entry_set_locked(server, name, object);
		pthread_mutex_unlock(&server->lock);
	}
	if (!done)
		s3s_object_release(object);
	free(name);
	return done;
}

bool s3_server_set_age(struct s3_server *server, const char *key, int64_t age_s)
{
	char *name = own_name(server, key);
	struct s3s_object *object = name ? s3s_object_find(server, name) : NULL;
	int64_t now = s3s_now(server);

	if (object)
		atomic_store(&object->modified_s, now - age_s);
	s3s_object_release(object);
	free(name);
	return object != NULL;
}

uint8_t *s3_server_get(struct s3_server *server, const char *key, uint64_t *bytesp)
{
	char *name = own_name(server, key);
	struct s3s_object *object = name ? s3s_object_find(server, name) : NULL;
	uint8_t *data = object ? malloc((size_t)object->bytes + 1) : NULL;
	uint64_t at = 0;

	*bytesp = 0;
	for (unsigned i = 0; data && i < object->count; i++) {
		memcpy(data + at, object->buffers[i]->data, (size_t)object->buffers[i]->bytes);
		at += object->buffers[i]->bytes;
	}
	*bytesp = at;
	s3s_object_release(object);
	free(name);
	return data;
}

bool s3_server_has(struct s3_server *server, const char *key)
{
	char etag[S3S_ETAG_BYTES];

	s3_server_etag(server, key, etag);
	return etag[0] != 0;
}

void s3_server_etag(struct s3_server *server, const char *key, char etag[80])
{
	char *name = own_name(server, key);
	struct s3s_object *object = name ? s3s_object_find(server, name) : NULL;

	snprintf(etag, S3S_ETAG_BYTES, "%s", object ? object->etag : "");
	s3s_object_release(object);
	free(name);
}

bool s3_server_remove(struct s3_server *server, const char *key)
{
	char *name = own_name(server, key);
	bool was = false;

	if (name) {
		pthread_mutex_lock(&server->lock);
		was = s3s_entry_remove_locked(server, name);
		pthread_mutex_unlock(&server->lock);
	}
	free(name);
	return was;
}

bool s3_server_begin_upload(struct s3_server *server, const char *key, int64_t age_s)
{
	char *name = own_name(server, key);
	int64_t now = s3s_now(server);
	bool done = false;

	if (name) {
		pthread_mutex_lock(&server->lock);
		done = s3s_upload_begin_locked(server, name, now - age_s) != NULL;
		pthread_mutex_unlock(&server->lock);
	}
	free(name);
	return done;
}

unsigned s3_server_objects(struct s3_server *server)
{
	unsigned count;

	pthread_mutex_lock(&server->lock);
	count = (unsigned)server->entry_count;
	pthread_mutex_unlock(&server->lock);
	return count;
}

unsigned s3_server_uploads(struct s3_server *server)
{
	unsigned count = 0;

	pthread_mutex_lock(&server->lock);
	for (struct s3s_upload *u = server->uploads; u; u = u->next)
		count++;
	pthread_mutex_unlock(&server->lock);
	return count;
}
