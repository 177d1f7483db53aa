/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The mem backend: objects in the memory of this process. It is the reference for what every
 * backend must do, and how the core's own cost is measured. "mem:" is private to the opened store;
 * stores that open the same "mem:name" share one content, which ends with the last of them.
 *
 * Requests are done inside submit. With async=1 they are queued and done inside poll, so that
 * callers can be tested against a backend that answers later.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "content.h"

extern const struct kvt_backend_ops kvt__mem_backend_ops;

#define MEM_MAX_PARTS	    (1u << 20)
#define MEM_MAX_NAME_BYTES  1024u
#define MEM_LIST_BATCH	    64u
#define MEM_NS_PER_S	    INT64_C(1000000000)
#define MEM_DELIVER_AT_ONCE 64u

struct mem_backend {
	const struct kvt_host *host;
	struct kvt__mem_content *content;
	int async;
	uint32_t busy_depth; /* 0: never busy */
	uint64_t reserve_bytes;
	_Atomic(struct mem_session *) sessions; /* for forked; changed under session_lock */
	pthread_mutex_t session_lock;		/* leaf */
};

/* Whether a session sleeps, and whether it was woken since it last looked. */
enum mem_wake { MEM_AWAKE = 0, MEM_WOKEN, MEM_ASLEEP };

struct mem_session {
	struct mem_backend *backend;
	struct kvt__mem_cache cache;
	struct kvt_io *first; /* queued, in order of submit */
	struct kvt_io **last_linkp;
	uint32_t queued;
	int event_fd;
	atomic_int wake;		    /* enum mem_wake */
	_Atomic(struct mem_session *) next; /* see mem_backend.sessions */
};

/* In io->private_data while it is queued. */
struct mem_private {
	struct kvt_io *next;
};

/* What begin makes: an object that nobody can find yet. */
struct mem_upload {
	struct kvt__mem_object *object;
	uint64_t covered_bytes;
	uint64_t *part_bytes; /* by part number */
	uint32_t part_space;
};

static const struct kvt_option_spec mem_options[] = {
	{"async", "0", "1: answer requests later, inside poll"},
	{"depth_busy", "0",
	 "answer busy beyond this many requests in flight; implies async; 0: never"},
	{"reserve_mib", "0",
	 "memory for objects that is made ready when the store is opened, for measurements"},
	{NULL, NULL, NULL},
};

static void mem_upload_free(struct mem_session *s, struct mem_upload *upload)
{
	kvt__mem_object_release(&s->cache, upload->object);
	kvt__mem_large_free(&s->backend->content->pool, upload->part_bytes);
	kvt__mem_large_free(&s->backend->content->pool, upload);
}

static int mem_put(struct mem_session *s, struct kvt_io *io, uint32_t name_bytes, uint64_t hash,
		   int64_t now_ns)
{
	struct kvt__mem_object *object;
	int result;

	if (io->length != io->object_bytes) {
		s->backend->host->detail(io, "put %s: %llu bytes, the object has %llu", io->name,
					 (unsigned long long)io->length,
					 (unsigned long long)io->object_bytes);
		return KVT_EINVAL;
	}
	object = kvt__mem_object_create(&s->cache, io->name, name_bytes, hash, io->length);
	if (!object)
		return KVT_ENOMEM;
	result = kvt__mem_object_write(&s->cache, object, 0, io);
	if (!result)
		result =
			kvt__mem_content_insert(s->backend->content, &s->cache, object, now_ns, io);
	if (result)
		kvt__mem_object_release(&s->cache, object);
	return result;
}

static int mem_begin(struct mem_session *s, struct kvt_io *io, uint32_t name_bytes, uint64_t hash)
{
	struct mem_upload *upload =
		kvt__mem_large_alloc(&s->backend->content->pool, sizeof(*upload), 16);

	if (!upload)
		return KVT_ENOMEM;
	*upload = (struct mem_upload){.object = kvt__mem_object_create(&s->cache, io->name,
								       name_bytes, hash,
								       io->object_bytes)};
	if (!upload->object) {
		kvt__mem_large_free(&s->backend->content->pool, upload);
		return KVT_ENOMEM;
	}
	io->handle = upload;
	return 0;
}

/* Makes room to remember the length of part `number`. */
static int mem_upload_grow(struct mem_session *s, struct mem_upload *upload, uint32_t number)
{
	struct kvt__mem_pool *pool = &s->backend->content->pool;
	uint32_t space = upload->part_space ? upload->part_space : 16;
	uint64_t *fresh;

	if (number < upload->part_space)
		return 0;
	while (space <= number)
		space *= 2;
	fresh = kvt__mem_large_alloc(pool, space * sizeof(*fresh), 16);
	if (!fresh)
		return KVT_ENOMEM;
	memset(fresh, 0, space * sizeof(*fresh));
	if (upload->part_space)
		memcpy(fresh, upload->part_bytes, upload->part_space * sizeof(*fresh));
	kvt__mem_large_free(pool, upload->part_bytes);
	upload->part_bytes = fresh;
	upload->part_space = space;
	return 0;
}

static int mem_part(struct mem_session *s, struct kvt_io *io)
{
	struct mem_upload *upload = io->handle;
	uint64_t whole = upload->object->object_bytes;
	int result;

	if (io->part_number >= MEM_MAX_PARTS || io->offset < 0 || (uint64_t)io->offset > whole ||
	    io->length > whole - (uint64_t)io->offset) {
		s->backend->host->detail(io,
					 "part %u of %s: %llu bytes at %lld, the object has %llu",
					 io->part_number, io->name, (unsigned long long)io->length,
					 (long long)io->offset, (unsigned long long)whole);
		return KVT_EINVAL;
	}
	result = mem_upload_grow(s, upload, io->part_number);
	if (result)
		return result;
	upload->covered_bytes -= upload->part_bytes[io->part_number];
	upload->part_bytes[io->part_number] = 0;
	result = kvt__mem_object_write(&s->cache, upload->object, (uint64_t)io->offset, io);
	if (result)
		return result;
	upload->covered_bytes += io->length;
	upload->part_bytes[io->part_number] = io->length;
	return 0;
}

static int mem_commit(struct mem_session *s, struct kvt_io *io, int64_t now_ns)
{
	struct mem_upload *upload = io->handle;
	struct kvt__mem_object *object = upload->object;
	int result;

	if (io->deadline_ns <= now_ns) {
		result = KVT_ETIMEDOUT;
	} else if (upload->covered_bytes != object->object_bytes) {
		s->backend->host->detail(io, "commit %s: the parts have %llu bytes, expected %llu",
					 io->name, (unsigned long long)upload->covered_bytes,
					 (unsigned long long)object->object_bytes);
		result = KVT_EINVAL;
	} else {
		result =
			kvt__mem_content_insert(s->backend->content, &s->cache, object, now_ns, io);
	}
	if (!result)
		upload->object = NULL;
	mem_upload_free(s, upload);
	return result;
}

static int mem_get(struct mem_session *s, struct kvt_io *io, uint32_t name_bytes, uint64_t hash,
		   int64_t now_ns)
{
	struct kvt__mem_object *object =
		kvt__mem_content_find(s->backend->content, io->name, name_bytes, hash);
	uint64_t whole, at, there;
	int result = 0;

	if (!object)
		return KVT_ENOENT;
	kvt__mem_object_info(object, now_ns, &io->info);
	whole = object->object_bytes;
	if (io->flags & KVT_IO_IF_VERSION && !kvt__mem_object_is(object, io->if_version)) {
		result = KVT_EPRECOND;
	} else {
		/* Before the start and behind the end there is nothing to land. */
		at = (uint64_t)io->offset + (io->offset < 0 ? whole : 0);
		there = at <= whole ? whole - at : 0;
		if (there < io->length) {
			s->backend->host->detail(io,
						 "get %s: %llu bytes at %lld, the object has %llu",
						 io->name, (unsigned long long)io->length,
						 (long long)io->offset, (unsigned long long)whole);
			result = KVT_ERANGE;
		}
		kvt__mem_object_read(object, at, there < io->length ? there : io->length, io);
	}
	kvt__mem_object_release(&s->cache, object);
	return result;
}

/* Head and touch. */
static int mem_look(struct mem_session *s, struct kvt_io *io, uint32_t name_bytes, uint64_t hash,
		    int64_t now_ns)
{
	struct kvt__mem_object *object =
		kvt__mem_content_find(s->backend->content, io->name, name_bytes, hash);

	if (!object)
		return KVT_ENOENT;
	if (io->op == KVT_IO_TOUCH)
		atomic_store_explicit(&object->accessed_ns, now_ns, memory_order_relaxed);
	else
		kvt__mem_object_info(object, now_ns, &io->info);
	kvt__mem_object_release(&s->cache, object);
	return 0;
}

/* One page. Its token is the last name that was looked at. */
static int mem_list(struct mem_session *s, struct kvt_io *io, int64_t now_ns)
{
	struct kvt__mem_object *batch[MEM_LIST_BATCH];
	size_t prefix_bytes = strlen(io->name);
	uint32_t listed = 0, max = io->list_max ? io->list_max : 1, count;
	int result = 0;

	do {
		uint32_t i;

		count = kvt__mem_content_list(s->backend->content, io->list_token, batch,
					      MEM_LIST_BATCH);
		for (i = 0; i < count && !result && listed < max; i++) {
			struct kvt_list_item item = {.name = batch[i]->name};

			memcpy(io->list_token, batch[i]->name, (size_t)batch[i]->name_bytes + 1);
			if (strncmp(batch[i]->name, io->name, prefix_bytes))
				continue;
			kvt__mem_object_info(batch[i], now_ns, &item.info);
			listed++;
			result = io->list_item(io, &item);
		}
		if (!result && count < MEM_LIST_BATCH && i == count)
			io->list_token[0] = 0;
		while (count)
			kvt__mem_object_release(&s->cache, batch[--count]);
	} while (!result && listed < max && io->list_token[0]);
	return result;
}

static int mem_perform(struct mem_session *s, struct kvt_io *io)
{
	int64_t now_ns = s->backend->host->now_ns();
	uint32_t name_bytes = (uint32_t)strnlen(io->name, MEM_MAX_NAME_BYTES + 1);
	uint64_t hash = kvt__mem_hash(io->name, name_bytes);

	/* Commit and abort end their handle whatever the time is. */
	if (io->deadline_ns <= now_ns && io->op != KVT_IO_COMMIT && io->op != KVT_IO_ABORT)
		return KVT_ETIMEDOUT;
	switch (io->op) {
	case KVT_IO_PUT:
		return mem_put(s, io, name_bytes, hash, now_ns);
	case KVT_IO_BEGIN:
		return mem_begin(s, io, name_bytes, hash);
	case KVT_IO_PART:
		return mem_part(s, io);
	case KVT_IO_COMMIT:
		return mem_commit(s, io, now_ns);
	case KVT_IO_ABORT:
		mem_upload_free(s, io->handle);
		return 0;
	case KVT_IO_GET:
		return mem_get(s, io, name_bytes, hash, now_ns);
	case KVT_IO_HEAD:
	case KVT_IO_TOUCH:
		return mem_look(s, io, name_bytes, hash, now_ns);
	case KVT_IO_REMOVE:
		return kvt__mem_content_remove(s->backend->content, &s->cache, hash, io);
	case KVT_IO_LIST:
		return mem_list(s, io, now_ns);
	default: /* KVT_IO_SWEEP: nothing outlives a process */
		return 0;
	}
}

static int mem_check(const struct kvt_io *io)
{
	if (io->op < KVT_IO_PUT || io->op > KVT_IO_SWEEP)
		return KVT_ENOTSUP;
	if (!io->name || strnlen(io->name, MEM_MAX_NAME_BYTES + 1) > MEM_MAX_NAME_BYTES)
		return io->op == KVT_IO_SWEEP ? 0 : KVT_EINVAL;
	return 0;
}

static int mem_submit(void *session, struct kvt_io *io)
{
	struct mem_session *s = session;
	int result = mem_check(io);

	if (result)
		return result;
	if (s->backend->busy_depth && s->queued >= s->backend->busy_depth)
		return KVT_BUSY;
	io->result = 0;
	io->swept = 0;
	io->bytes_landed = 0;
	io->info.object_bytes = KVT_BYTES_UNKNOWN;
	io->info.version.bytes = 0;
	io->info.age_ns = io->info.access_age_ns = -1;
	if (!s->backend->async) {
		io->result = mem_perform(s, io);
		return KVT_DONE;
	}
	((struct mem_private *)io->private_data)->next = NULL;
	*s->last_linkp = io;
	s->last_linkp = &((struct mem_private *)io->private_data)->next;
	s->queued++;
	return KVT_QUEUED;
}

/* Does what was queued when it was called, a bounded number; what complete submits waits. */
static int mem_deliver(struct mem_session *s)
{
	int count = 0,
	    most = (int)(s->queued < MEM_DELIVER_AT_ONCE ? s->queued : MEM_DELIVER_AT_ONCE);

	while (count < most) {
		struct kvt_io *io = s->first;

		s->first = ((struct mem_private *)io->private_data)->next;
		if (!s->first)
			s->last_linkp = &s->first;
		io->result = mem_perform(s, io);
		s->queued--;
		count++;
		io->complete(io);
	}
	return count;
}

/* Sleeps on the event descriptor; returns when it may be time to look again. */
static void mem_sleep(struct mem_session *s, int64_t until_ns)
{
	struct pollfd pollfd = {.fd = s->event_fd, .events = POLLIN};
	struct timespec ts, *timeout = NULL;
	uint64_t events;

	if (until_ns != INT64_MAX) {
		int64_t left_ns = until_ns - s->backend->host->now_ns();

		if (left_ns <= 0)
			return;
		ts = (struct timespec){left_ns / MEM_NS_PER_S, left_ns % MEM_NS_PER_S};
		timeout = &ts;
	}
	if (ppoll(&pollfd, 1, timeout, NULL) > 0)
		(void)!read(s->event_fd, &events, sizeof(events));
}

static int mem_poll(void *session, int64_t until_ns)
{
	struct mem_session *s = session;
	int delivered = mem_deliver(s), state;

	if (delivered) {
		/* What was asked by a wake so far is answered by this return. */
		(void)atomic_exchange(&s->wake, MEM_AWAKE);
		return delivered;
	}
	for (;;) {
		state = MEM_AWAKE;
		if (until_ns == 0 || !atomic_compare_exchange_strong(&s->wake, &state, MEM_ASLEEP))
			break;
		mem_sleep(s, until_ns);
		if (atomic_exchange(&s->wake, MEM_AWAKE) == MEM_WOKEN)
			return 0;
		if (until_ns != INT64_MAX && s->backend->host->now_ns() >= until_ns)
			return 0;
	}
	(void)atomic_exchange(&s->wake, MEM_AWAKE);
	return 0;
}

static void mem_wake(void *session)
{
	struct mem_session *s = session;
	uint64_t one = 1;

	if (atomic_exchange(&s->wake, MEM_WOKEN) == MEM_ASLEEP)
		(void)!write(s->event_fd, &one, sizeof(one));
}

static int mem_session_open(void *backend, uint32_t depth, int listing, void **sessionp)
{
	struct mem_backend *b = backend;
	struct mem_session *s = b->host->alloc(b->host, sizeof(*s), 64);

	(void)depth;
	(void)listing;
	*sessionp = NULL;
	if (!s) {
		b->host->fail(b->host, "mem: session: out of memory");
		return KVT_ENOMEM;
	}
	memset(s, 0, sizeof(*s));
	s->backend = b;
	s->last_linkp = &s->first;
	kvt__mem_cache_init(&s->cache, &b->content->pool);
	s->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (s->event_fd < 0) {
		int error = errno;

		b->host->fail(b->host, "mem: eventfd: %s", strerror(error));
		b->host->free(b->host, s);
		return error == ENOMEM ? KVT_ENOMEM : KVT_EMFILE;
	}
	pthread_mutex_lock(&b->session_lock);
	atomic_store(&s->next, atomic_load(&b->sessions));
	atomic_store(&b->sessions, s);
	pthread_mutex_unlock(&b->session_lock);
	*sessionp = s;
	return 0;
}

static void mem_session_close(void *session)
{
	struct mem_session *s = session;
	struct mem_backend *b = s->backend;
	_Atomic(struct mem_session *) *linkp = &b->sessions;

	pthread_mutex_lock(&b->session_lock);
	while (atomic_load(linkp) != s)
		linkp = &atomic_load(linkp)->next;
	atomic_store(linkp, atomic_load(&s->next));
	pthread_mutex_unlock(&b->session_lock);
	kvt__mem_cache_flush(&s->cache);
	close(s->event_fd);
	b->host->free(b->host, s);
}

/* The value of a known option as a number from 0 to `most`; -1 when it is something else. */
static long mem_number(const char *text, long most)
{
	char *end;
	long value;

	errno = 0;
	value = strtol(text, &end, 10);
	return errno || end == text || *end || value < 0 || value > most ? -1 : value;
}

static int mem_set_option(struct mem_backend *b, const struct kvt_option_value *option)
{
	int async = !strcmp(option->name, "async");
	long value = mem_number(option->value, async ? 1 : 1 << 20);

	if (value < 0) {
		b->host->fail(b->host, "mem: option %s: '%s', expected %s", option->name,
			      option->value, async ? "0 or 1" : "0 to 1048576");
		return KVT_EINVAL;
	}
	if (async)
		b->async = (int)value;
	else if (!strcmp(option->name, "reserve_mib"))
		b->reserve_bytes = (uint64_t)value << 20;
	else
		b->busy_depth = (uint32_t)value;
	return 0;
}

static int mem_open(const struct kvt_host *host, const struct kvt_backend_config *config,
		    void **backendp, struct kvt_backend_limits *limits)
{
	struct mem_backend *b = host->alloc(host, sizeof(*b), 16);
	int result = KVT_ENOMEM;

	*backendp = NULL;
	if (!b) {
		host->fail(host, "mem: out of memory");
		return KVT_ENOMEM;
	}
	memset(b, 0, sizeof(*b));
	b->host = host;
	for (size_t i = 0; i < config->option_count; i++) {
		result = mem_set_option(b, &config->options[i]);
		if (result)
			goto fail;
	}
	b->async |= b->busy_depth > 0;
	result = kvt__mem_content_acquire(host, config->location, &b->content);
	if (!result && (kvt__mem_pool_reserve(&b->content->pool, b->reserve_bytes) ||
			pthread_mutex_init(&b->session_lock, NULL))) {
		kvt__mem_content_release(b->content, 0);
		result = KVT_ENOMEM;
	}
	if (result) {
		host->fail(host, "mem: out of memory");
		goto fail;
	}
	limits->max_name_bytes = MEM_MAX_NAME_BYTES;
	limits->max_parts = MEM_MAX_PARTS;
	limits->capabilities = KVT_CAP_IF_ABSENT | KVT_CAP_IF_VERSION_PUT | KVT_CAP_IF_VERSION_GET |
			       KVT_CAP_IF_VERSION_REMOVE | KVT_CAP_HOLES | KVT_CAP_RAW_FILES |
			       KVT_CAP_TOUCH | KVT_CAP_GET_DISCARD;
	(void)snprintf(limits->detail, sizeof(limits->detail), "content=%s answers=%s",
		       *config->location ? "shared" : "private", b->async ? "later" : "at-once");
	*backendp = b;
	return 0;
fail:
	host->free(host, b);
	return result;
}

static void mem_close(void *backend)
{
	struct mem_backend *b = backend;

	kvt__mem_content_release(b->content, 0);
	pthread_mutex_destroy(&b->session_lock);
	b->host->free(b->host, b);
}

static void mem_forked(void *backend)
{
	struct mem_backend *b = backend;
	struct mem_session *s, *next;

	for (s = atomic_load(&b->sessions); s; s = next) {
		next = atomic_load(&s->next);
		close(s->event_fd);
		b->host->free(b->host, s);
	}
	kvt__mem_content_release(b->content, 1);
	b->host->free(b->host, b);
}

const struct kvt_backend_ops kvt__mem_backend_ops = {
	.struct_size = sizeof(struct kvt_backend_ops),
	.abi = KVT_BACKEND_ABI,
	.name = "mem",
	.option_specs = mem_options,
	.io_private_bytes = sizeof(struct mem_private),
	.open = mem_open,
	.close = mem_close,
	.session_open = mem_session_open,
	.session_close = mem_session_close,
	.submit = mem_submit,
	.poll = mem_poll,
	.wake = mem_wake,
	.forked = mem_forked,
};
