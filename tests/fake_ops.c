/* SPDX-License-Identifier: Apache-2.0 */
/* The core's side of the fake backend: what each request does. */
#include "fake_backend_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Moving bytes ---- */

static void copy_iov(const struct kvt_io *io, uint64_t at, uint64_t bytes, uint8_t *buffer,
		     bool out)
{
	for (uint32_t i = 0; i < io->iov_count && bytes; i++) {
		const struct kvt_iovec *v = &io->iov[i];
		if (at >= v->iov_len) {
			at -= v->iov_len;
			continue;
		}
		uint64_t n = v->iov_len - at < bytes ? v->iov_len - at : bytes;
		if (v->iov_base && out)
			memcpy((uint8_t *)v->iov_base + at, buffer, n);
		else if (v->iov_base)
			memcpy(buffer, (uint8_t *)v->iov_base + at, n);
		else if (!out)
			memset(buffer, 0, n);
		buffer += n;
		bytes -= n;
		at = 0;
	}
}

/* Reads a put's or part's bytes; false when it failed after p->after_bytes of them. */
static bool read_body(struct fake_store *store, struct fake_pending *p, uint8_t *to)
{
	struct kvt_io *io = p->io;
	bool late = io->flags & KVT_IO_LATE_TAIL;
	uint64_t last = io->iov_count ? io->iov[io->iov_count - 1].iov_len : 0;
	uint64_t before_tail = late ? io->length - last : io->length;
	uint64_t at = 0;

	do {
		uint64_t n = before_tail - at < store->config.piece_bytes
				     ? before_tail - at
				     : store->config.piece_bytes;
		if (p->action == FAKE_FAIL && at >= p->after_bytes)
			return false;
		if (io->progress)
			io->progress(io, at + n);
		copy_iov(io, at, n, to + at, false);
		at += n;
	} while (at < before_tail);
	if (late)
		copy_iov(io, before_tail, last, to + before_tail, false);
	return p->action != FAKE_FAIL;
}

static bool read_body_maybe_twice(struct fake_store *store, struct fake_pending *p, uint8_t *to)
{
	struct kvt_io *io = p->io;

	if (!read_body(store, p, to))
		return false;
	if (!store->config.rewind || !io->progress)
		return true;
	uint8_t *first = malloc(io->length + 1);
	if (!first)
		return true;
	memcpy(first, to, io->length);
	io->progress(io, 0);
	bool done = read_body(store, p, to);
	if (done && memcmp(first, to, io->length) != 0)
		fake__broke(store, "%s: other bytes after a rewind", io->name);
	free(first);
	return done;
}

static void fill_info(struct kvt_object_info *info, const struct fake_object *object)
{
	info->object_bytes = object->bytes;
	info->version.bytes = 8;
	memcpy(info->version.value, &object->version, 8);
	info->age_ns = object->age_ns;
	info->access_age_ns = object->access_age_ns;
}

static void unknown_info(struct kvt_object_info *info)
{
	memset(info, 0, sizeof(*info));
	info->object_bytes = KVT_BYTES_UNKNOWN;
	info->age_ns = info->access_age_ns = -1;
}

static bool version_is(const struct kvt_io *io, const struct fake_object *object)
{
	return object && io->if_version && io->if_version->bytes == 8 &&
	       memcmp(io->if_version->value, &object->version, 8) == 0;
}

/* Puts finished data in place; takes it. */
static int appear(struct fake_store *store, struct kvt_io *io, uint8_t *data, uint64_t bytes)
{
	int result = 0;

	pthread_mutex_lock(&store->lock);
	struct fake_object *object = fake__object_locked(store, io->name);
	if ((io->flags & KVT_IO_IF_ABSENT) && object)
		result = KVT_EEXIST;
	else if ((io->flags & KVT_IO_IF_VERSION) && !version_is(io, object))
		result = KVT_EPRECOND;
	else
		object = fake__insert_locked(store, io->name, data, bytes);
	if (object && !store->config.keeps_info_quiet)
		fill_info(&io->info, object);
	pthread_mutex_unlock(&store->lock);
	if (result)
		free(data);
	return result;
}

static int do_put(struct fake_store *store, struct fake_pending *p)
{
	struct kvt_io *io = p->io;
	uint8_t *data = malloc(io->length + 1);

	if (!data)
		return KVT_ENOMEM;
	if (!read_body_maybe_twice(store, p, data)) {
		free(data);
		return p->error;
	}
	if ((store->config.capabilities & KVT_CAP_FULL_BODY) &&
	    store->host->crc32c(0, data, io->length) != io->crc32c)
		fake__broke(store, "put %s: crc32c is not that of the body", io->name);
	return appear(store, io, data, io->length);
}

static int do_get(struct fake_store *store, struct fake_pending *p)
{
	struct kvt_io *io = p->io;
	uint8_t *copy = NULL;
	uint64_t from = 0, landed = 0;
	int result = KVT_ENOENT;

	pthread_mutex_lock(&store->lock);
	struct fake_object *object = fake__object_locked(store, io->name);
	if (object) {
		uint64_t total = object->bytes;
		fill_info(&io->info, object);
		result = 0;
		if ((io->flags & KVT_IO_IF_VERSION) && !version_is(io, object)) {
			result = KVT_EPRECOND;
		} else if (io->offset < 0 && (uint64_t)-io->offset > total) {
			result = KVT_ERANGE;
		} else {
			from = io->offset < 0 ? total - (uint64_t)-io->offset
					      : (uint64_t)io->offset;
			landed = from >= total ? 0 : total - from;
			if (landed >= io->length)
				landed = io->length;
			else
				result = KVT_ERANGE;
			copy = malloc(landed + 1);
			if (copy && landed)
				memcpy(copy, object->data + from, landed);
		}
	}
	pthread_mutex_unlock(&store->lock);
	if (p->action == FAKE_FAIL) {
		result = p->error;
		if (landed > p->after_bytes)
			landed = p->after_bytes;
	}
	if (p->action == FAKE_FLIP && copy && p->after_bytes < landed)
		copy[p->after_bytes] ^= 0x04;
	for (int round = store->config.rewind && io->progress ? 0 : 1; round < 2; round++) {
		for (uint64_t at = 0; at < landed;) {
			uint64_t n = landed - at < store->config.piece_bytes
					     ? landed - at
					     : store->config.piece_bytes;
			copy_iov(io, at, n, copy + at, true);
			at += n;
			if (io->progress)
				io->progress(io, at);
		}
		if (round == 0)
			io->progress(io, 0);
	}
	io->bytes_landed = landed;
	free(copy);
	return result;
}

static int do_begin(struct fake_session *session, struct kvt_io *io)
{
	struct fake_handle *handle = calloc(1, sizeof(*handle));

	if (handle)
		handle->data = calloc(1, io->object_bytes + 1);
	if (!handle || !handle->data) {
		free(handle);
		return KVT_ENOMEM;
	}
	handle->session = session;
	handle->bytes = io->object_bytes;
	io->handle = handle;
	pthread_mutex_lock(&session->store->lock);
	session->store->handles++;
	pthread_mutex_unlock(&session->store->lock);
	return 0;
}

static int do_part(struct fake_store *store, struct fake_pending *p)
{
	struct kvt_io *io = p->io;
	struct fake_handle *handle = io->handle;
	uint64_t offset = (uint64_t)io->offset;

	handle->parts_in_flight--;
	if (offset + io->length > handle->bytes) {
		fake__broke(store, "part %s: ends at %llu of %llu", io->name,
			    (unsigned long long)(offset + io->length),
			    (unsigned long long)handle->bytes);
		return KVT_EINVAL;
	}
	if (!read_body_maybe_twice(store, p, handle->data + offset))
		return p->error;
	if (io->part_number >= sizeof(handle->numbers) * 8)
		fake__broke(store, "part %s: number %u", io->name, io->part_number);
	else if (handle->numbers[io->part_number / 8] >> io->part_number % 8 & 1)
		return 0; /* A retry of a part whose success was not heard of. */
	else
		handle->numbers[io->part_number / 8] |= (uint8_t)(1 << io->part_number % 8);
	if (io->length < store->config.min_part_bytes && offset + io->length != handle->bytes)
		fake__broke(store, "part %s at %llu: only %llu bytes", io->name,
			    (unsigned long long)offset, (unsigned long long)io->length);
	handle->covered += io->length;
	handle->parts++;
	return 0;
}

static void end_handle(struct fake_store *store, struct fake_handle *handle, const char *name)
{
	if (handle->parts_in_flight)
		fake__broke(store, "%s: ended with %u parts in flight", name,
			    handle->parts_in_flight);
	free(handle->data);
	handle->data = NULL;
	handle->session = NULL;
	free(handle);
	pthread_mutex_lock(&store->lock);
	store->handles--;
	pthread_mutex_unlock(&store->lock);
}

static int do_commit(struct fake_store *store, struct fake_pending *p)
{
	struct kvt_io *io = p->io;
	struct fake_handle *handle = io->handle;
	uint8_t *data = handle->data;
	int result = p->action == FAKE_FAIL ? p->error : 0;

	if (!result && handle->covered != handle->bytes)
		fake__broke(store, "commit %s: parts cover %llu of %llu bytes", io->name,
			    (unsigned long long)handle->covered, (unsigned long long)handle->bytes);
	if (store->config.max_parts && handle->parts > store->config.max_parts)
		fake__broke(store, "commit %s: %u parts", io->name, handle->parts);
	if (!result) {
		uint64_t bytes = handle->bytes;
		handle->data = NULL;
		result = appear(store, io, data, bytes);
	}
	end_handle(store, handle, io->name);
	return result;
}

static int do_simple(struct fake_store *store, struct kvt_io *io)
{
	int result = KVT_ENOENT;

	pthread_mutex_lock(&store->lock);
	struct fake_object *object = fake__object_locked(store, io->name);
	if (object) {
		result = 0;
		if (io->op == KVT_IO_HEAD)
			fill_info(&io->info, object);
		else if (io->op == KVT_IO_TOUCH)
			object->touches++, object->access_age_ns = 0;
		else if ((io->flags & KVT_IO_IF_VERSION) && !version_is(io, object))
			result = KVT_EPRECOND;
		else
			fake__remove_locked(store, io->name);
	}
	pthread_mutex_unlock(&store->lock);
	return result;
}

static int do_list(struct fake_store *store, struct kvt_io *io)
{
	struct kvt_list_item *items;
	size_t count = 0, from = strtoul(io->list_token, NULL, 10), to = FAKE_BUCKETS;
	int result = 0;

	if (store->config.list_buckets && from + store->config.list_buckets < FAKE_BUCKETS)
		to = from + store->config.list_buckets;
	pthread_mutex_lock(&store->lock);
	items = calloc(store->object_count + 1, sizeof(*items));
	for (size_t b = from; items && b < to; b++)
		for (struct fake_object *o = store->buckets[b]; o; o = o->next)
			if (strncmp(o->name, io->name, strlen(io->name)) == 0) {
				items[count].name = strdup(o->name);
				fill_info(&items[count++].info, o);
			}
	pthread_mutex_unlock(&store->lock);
	for (size_t i = 0; i < count; i++) {
		if (result == 0)
			result = io->list_item(io, &items[i]);
		free((char *)(uintptr_t)items[i].name);
	}
	free(items);
	if (to < FAKE_BUCKETS)
		snprintf(io->list_token, io->list_token_bytes, "%zu", to);
	else
		io->list_token[0] = '\0';
	return result;
}

static int perform(struct fake_session *session, struct fake_pending *p)
{
	struct fake_store *store = session->store;
	struct kvt_io *io = p->io;

	unknown_info(&io->info);
	io->bytes_landed = 0;
	if (p->timed_out) {
		if (io->op == KVT_IO_PART)
			((struct fake_handle *)io->handle)->parts_in_flight--;
		if (io->op == KVT_IO_COMMIT || io->op == KVT_IO_ABORT)
			end_handle(store, io->handle, io->name);
		return KVT_ETIMEDOUT;
	}
	switch (io->op) {
	case KVT_IO_PUT:
		return do_put(store, p);
	case KVT_IO_GET:
		return do_get(store, p);
	case KVT_IO_PART:
		return do_part(store, p);
	case KVT_IO_COMMIT:
		return do_commit(store, p);
	case KVT_IO_ABORT:
		end_handle(store, io->handle, io->name);
		return p->action == FAKE_FAIL ? p->error : 0;
	default:
		break;
	}
	if (p->action == FAKE_FAIL)
		return p->error;
	switch (io->op) {
	case KVT_IO_BEGIN:
		return do_begin(session, io);
	case KVT_IO_LIST:
		return do_list(store, io);
	case KVT_IO_SWEEP:
		io->swept = store->config.leftovers;
		return 0;
	default:
		return do_simple(store, io);
	}
}

void fake__execute(struct fake_session *session, struct fake_pending *p)
{
	struct fake_store *store = session->store;
	struct kvt_io *io = p->io;

	io->result = perform(session, p);
	if (p->action == FAKE_FAIL_AFTER && io->result == 0)
		io->result = p->error;
	if (io->result < 0)
		io->retry_after_ns = p->retry_after_ns;
	if (io->result < 0 && io->result != KVT_ENOENT)
		store->host->detail(io, "%s %s: fake %s", io->op == KVT_IO_GET ? "get" : "request",
				    io->name, kvt_error_name(io->result));
	pthread_mutex_lock(&store->lock);
	if (p->record < store->record_count)
		store->records[p->record].result = io->result;
	pthread_mutex_unlock(&store->lock);
}
