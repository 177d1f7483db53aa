/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A complete small backend to start your own from. It keeps objects in a linked list in memory,
 * does each request inside submit ("blocking": no poll, no wake), and is built as a module that a
 * program loads for the scheme "skeleton:". docs/adding-a-backend.md walks through it, and the
 * contract suite (tests/contract.h) runs on it.
 *
 * A backend includes <kvtier/backend.h>, <kvtier/error.h> and its own headers, nothing else of
 * kvtier: what it needs from the core comes in struct kvt_host.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvtier/backend.h>
#include <kvtier/error.h>

/* The core checksums a piece in io->progress just before we copy it, or just after: pieces of this
 * size are still in the processor's cache then. */
#define SKELETON_PIECE_BYTES (256u << 10)

/*
 * One object. While it is in the list, its body never changes: a put makes a new object and takes
 * the old one out. So a reader holds a reference and copies without the lock, and sees either the
 * old object or the new one, never a mixture.
 */
struct skeleton_object {
	struct skeleton_object *next; /* in order of names; guarded by the backend's lock */
	atomic_uint refs;
	uint64_t bytes;
	uint64_t version;
	int64_t written_ns;
	_Atomic int64_t accessed_ns;
	uint8_t *data;
	char name[];
};

/* One opened place. Sessions of several threads share it, so what changes is behind a lock. The
 * lock is a leaf: no function of the core is called under it. */
struct skeleton {
	const struct kvt_host *host; /* lives until close has returned */
	uint64_t most_objects;	     /* option max_objects; 0: no limit */
	pthread_mutex_t lock;
	struct skeleton_object *objects; /* guarded by lock, like the next two */
	uint64_t object_count;
	uint64_t last_version;
};

/* The options that a user may give with -o name=value. The core refuses all others before open is
 * called, and shows this list in its help. */
static const struct kvt_option_spec skeleton_options[] = {
	{"max_objects", "0", "refuse to keep more objects than this (KVT_ENOSPC); 0: no limit"},
	{NULL, NULL, NULL},
};

static struct skeleton_object *skeleton_object_new(struct skeleton *b, const char *name,
						   uint64_t bytes)
{
	size_t name_bytes = strlen(name) + 1;
	struct skeleton_object *object = b->host->alloc(b->host, sizeof(*object) + name_bytes, 16);

	if (!object)
		return NULL;
	*object = (struct skeleton_object){.refs = 1, .bytes = bytes};
	memcpy(object->name, name, name_bytes);
	/* An empty object is an object too: ask for one byte at least. */
	object->data = b->host->alloc(b->host, bytes ? bytes : 1, 64);
	if (!object->data) {
		b->host->free(b->host, object);
		return NULL;
	}
	return object;
}

static void skeleton_object_release(struct skeleton *b, struct skeleton_object *object)
{
	if (!object || atomic_fetch_sub(&object->refs, 1) != 1)
		return;
	b->host->free(b->host, object->data);
	b->host->free(b->host, object);
}

/* Where the object of that name is linked, or would be. */
static struct skeleton_object **skeleton_link_locked(struct skeleton *b, const char *name)
{
	struct skeleton_object **linkp = &b->objects;

	while (*linkp && strcmp((*linkp)->name, name) < 0)
		linkp = &(*linkp)->next;
	return linkp;
}

/* The object of that name as it is linked, or NULL. */
static struct skeleton_object *skeleton_object_locked(struct skeleton *b, const char *name)
{
	struct skeleton_object *object = *skeleton_link_locked(b, name);

	return object && !strcmp(object->name, name) ? object : NULL;
}

/* The object of that name with a reference of the caller's own, or NULL. */
static struct skeleton_object *skeleton_find(struct skeleton *b, const char *name)
{
	struct skeleton_object *object;

	pthread_mutex_lock(&b->lock);
	object = skeleton_object_locked(b, name);
	if (object)
		atomic_fetch_add(&object->refs, 1);
	pthread_mutex_unlock(&b->lock);
	return object;
}

/* What get, head and list say about an object. A version is a name for one content: here a number
 * that is never used twice. -1 stands for an age that is not known. */
static void skeleton_info(const struct skeleton_object *object, int64_t now_ns,
			  struct kvt_object_info *info)
{
	int64_t accessed_ns = atomic_load(&object->accessed_ns);

	info->object_bytes = object->bytes;
	info->version.bytes = sizeof(object->version);
	memcpy(info->version.value, &object->version, sizeof(object->version));
	info->age_ns = now_ns > object->written_ns ? now_ns - object->written_ns : 0;
	info->access_age_ns = now_ns > accessed_ns ? now_ns - accessed_ns : 0;
}

static int skeleton_is_version(const struct skeleton_object *object,
			       const struct kvt_version *version)
{
	return version->bytes == sizeof(object->version) &&
	       !memcmp(version->value, &object->version, sizeof(object->version));
}

/*
 * Copies the body of a put or a part. io->progress is told before a piece is read, so that the core
 * can checksum it. With KVT_IO_LATE_TAIL the last entry of the iovec does not hold its bytes yet:
 * the core fills it (with the trailer, which has the checksums) inside the call that covers all
 * bytes before it. An entry without memory stands for zeros.
 */
static void skeleton_read_body(struct kvt_io *io, uint8_t *to)
{
	int late = (io->flags & KVT_IO_LATE_TAIL) != 0;
	uint64_t early_bytes = io->length - (late ? io->iov[io->iov_count - 1].iov_len : 0);
	uint64_t done = 0, told = 0;

	if (late && !early_bytes && io->progress)
		io->progress(io, 0);
	for (uint32_t i = 0; i < io->iov_count; i++) {
		const uint8_t *from = io->iov[i].iov_base;
		uint64_t left = io->iov[i].iov_len, n;

		for (; left; left -= n) {
			if (done == told && told < early_bytes) {
				n = early_bytes - told;
				told += n < SKELETON_PIECE_BYTES ? n : SKELETON_PIECE_BYTES;
				if (io->progress)
					io->progress(io, told);
			}
			n = done < told && left > told - done ? told - done : left;
			if (from)
				memcpy(to + done, from, n);
			else
				memset(to + done, 0, n);
			from = from ? from + n : NULL;
			done += n;
		}
	}
}

/*
 * Copies `bytes` bytes into the iovec of a get. io->progress is told after a piece has landed. An
 * entry without memory drops its bytes (KVT_CAP_GET_DISCARD). io->bytes_landed says how much has
 * arrived, also when the request fails.
 */
static void skeleton_write_body(struct kvt_io *io, const uint8_t *from, uint64_t bytes)
{
	uint64_t told = 0;

	for (uint32_t i = 0; i < io->iov_count && io->bytes_landed < bytes; i++) {
		uint8_t *to = io->iov[i].iov_base;
		uint64_t left = io->iov[i].iov_len, n;

		if (left > bytes - io->bytes_landed)
			left = bytes - io->bytes_landed;
		for (; left; left -= n) {
			n = told + SKELETON_PIECE_BYTES - io->bytes_landed;
			n = left < n ? left : n;
			if (to) {
				memcpy(to, from + io->bytes_landed, n);
				to += n;
			}
			io->bytes_landed += n;
			if (io->bytes_landed == told + SKELETON_PIECE_BYTES ||
			    io->bytes_landed == bytes) {
				told = io->bytes_landed;
				if (io->progress)
					io->progress(io, told);
			}
		}
	}
}

/*
 * Makes an object visible in one step, under the condition of the request. A server or a file
 * system does this part with a conditional PUT, a link or a rename. Takes over the caller's
 * reference when it succeeds.
 */
static int skeleton_publish(struct skeleton *b, struct skeleton_object *object, struct kvt_io *io)
{
	int64_t now_ns = b->host->now_ns();
	struct skeleton_object *old, **linkp;
	int result = 0;

	pthread_mutex_lock(&b->lock);
	linkp = skeleton_link_locked(b, object->name);
	old = skeleton_object_locked(b, object->name);
	if (io->flags & KVT_IO_IF_ABSENT && old)
		result = KVT_EEXIST;
	else if (io->flags & KVT_IO_IF_VERSION &&
		 !(old && skeleton_is_version(old, io->if_version)))
		result = KVT_EPRECOND;
	else if (!old && b->most_objects && b->object_count == b->most_objects)
		result = KVT_ENOSPC;
	if (!result) {
		object->version = ++b->last_version;
		object->written_ns = now_ns;
		atomic_store(&object->accessed_ns, now_ns);
		object->next = old ? old->next : *linkp;
		*linkp = object;
		b->object_count += !old;
	}
	if (!result || old)
		skeleton_info(result ? old : object, now_ns, &io->info);
	pthread_mutex_unlock(&b->lock);
	/* One line with the object first and the cause last; it reaches the caller's completion. */
	if (result == KVT_ENOSPC)
		b->host->detail(io, "put %s: %llu objects are there, max_objects allows no more",
				io->name, (unsigned long long)b->most_objects);
	if (!result)
		skeleton_object_release(b, old);
	return result;
}

/* KVT_IO_PUT: a whole object, all or nothing. Nothing is visible before publish. */
static int skeleton_put(struct skeleton *b, struct kvt_io *io)
{
	struct skeleton_object *object = skeleton_object_new(b, io->name, io->length);
	int result;

	if (!object)
		return KVT_ENOMEM;
	skeleton_read_body(io, object->data);
	result = skeleton_publish(b, object, io);
	if (result)
		skeleton_object_release(b, object);
	return result;
}

/* KVT_IO_BEGIN: an object in parts. io->handle is ours to choose; the core hands it back with each
 * part and ends it with exactly one commit or abort, on this session. */
static int skeleton_begin(struct skeleton *b, struct kvt_io *io)
{
	io->handle = skeleton_object_new(b, io->name, io->object_bytes);
	return io->handle ? 0 : KVT_ENOMEM;
}

/* KVT_IO_PART: parts come in any order, and a part that failed may come again. */
static int skeleton_part(struct skeleton *b, struct kvt_io *io)
{
	struct skeleton_object *object = io->handle;
	uint64_t at = (uint64_t)io->offset;

	if (at > object->bytes || io->length > object->bytes - at) {
		b->host->detail(io, "part %u of %s: %llu bytes at %llu, the object has %llu",
				io->part_number, io->name, (unsigned long long)io->length,
				(unsigned long long)at, (unsigned long long)object->bytes);
		return KVT_EINVAL;
	}
	skeleton_read_body(io, object->data + at);
	return 0;
}

/* KVT_IO_COMMIT: the object appears. The handle ends, also when this fails: even after the deadline
 * a commit comes here. */
static int skeleton_commit(struct skeleton *b, struct kvt_io *io)
{
	struct skeleton_object *object = io->handle;
	int result = KVT_ETIMEDOUT;

	if (io->deadline_ns > b->host->now_ns())
		result = skeleton_publish(b, object, io);
	if (result)
		skeleton_object_release(b, object);
	return result;
}

/*
 * KVT_IO_GET: exactly this range. A negative offset counts from the end. A range that the object
 * does not have is KVT_ERANGE with io->info filled, so that the core knows the real length.
 */
static int skeleton_get(struct skeleton *b, struct kvt_io *io)
{
	struct skeleton_object *object = skeleton_find(b, io->name);
	uint64_t at;
	int result = 0;

	if (!object)
		return KVT_ENOENT;
	skeleton_info(object, b->host->now_ns(), &io->info);
	at = (uint64_t)io->offset + (io->offset < 0 ? object->bytes : 0);
	if (io->flags & KVT_IO_IF_VERSION && !skeleton_is_version(object, io->if_version))
		result = KVT_EPRECOND;
	else if (at > object->bytes || io->length > object->bytes - at)
		result = KVT_ERANGE;
	else
		skeleton_write_body(io, object->data + at, io->length);
	skeleton_object_release(b, object);
	return result;
}

/* KVT_IO_HEAD and KVT_IO_TOUCH: what is there, and that it was used just now. */
static int skeleton_look(struct skeleton *b, struct kvt_io *io)
{
	struct skeleton_object *object = skeleton_find(b, io->name);
	int64_t now_ns = b->host->now_ns();

	if (!object)
		return KVT_ENOENT;
	if (io->op == KVT_IO_TOUCH)
		atomic_store(&object->accessed_ns, now_ns);
	else
		skeleton_info(object, now_ns, &io->info);
	skeleton_object_release(b, object);
	return 0;
}

/* KVT_IO_REMOVE. */
static int skeleton_remove(struct skeleton *b, struct kvt_io *io)
{
	struct skeleton_object *object;
	int result = 0;

	pthread_mutex_lock(&b->lock);
	object = skeleton_object_locked(b, io->name);
	if (!object)
		result = KVT_ENOENT;
	else if (io->flags & KVT_IO_IF_VERSION && !skeleton_is_version(object, io->if_version))
		result = KVT_EPRECOND;
	if (!result) {
		*skeleton_link_locked(b, io->name) = object->next;
		b->object_count--;
	}
	pthread_mutex_unlock(&b->lock);
	if (!result)
		skeleton_object_release(b, object);
	return result;
}

/* The first object behind `name` in order, with a reference of the caller's own, or NULL. */
static struct skeleton_object *skeleton_behind(struct skeleton *b, const char *name)
{
	struct skeleton_object *object;

	pthread_mutex_lock(&b->lock);
	object = *skeleton_link_locked(b, name);
	if (object && !strcmp(object->name, name))
		object = object->next;
	if (object)
		atomic_fetch_add(&object->refs, 1);
	pthread_mutex_unlock(&b->lock);
	return object;
}

/*
 * KVT_IO_LIST: one page of names. The token is the name that the page ended with, so the next page
 * goes on behind it whatever was written or removed meanwhile.
 */
static int skeleton_list(struct skeleton *b, struct kvt_io *io)
{
	struct skeleton_object *object;
	uint32_t listed = 0;
	int result = 0;

	while ((object = skeleton_behind(b, io->list_token))) {
		struct kvt_list_item item = {.name = object->name};

		memcpy(io->list_token, object->name, strlen(object->name) + 1);
		if (!strncmp(object->name, io->name, strlen(io->name))) {
			skeleton_info(object, b->host->now_ns(), &item.info);
			result = io->list_item(io, &item);
			listed++;
		}
		skeleton_object_release(b, object);
		if (result || listed >= io->list_max)
			return result;
	}
	io->list_token[0] = 0;
	return 0;
}

/*
 * Takes one request. This backend does it at once and answers KVT_DONE, with the result in
 * io->result. A backend that waits for something answers KVT_QUEUED instead and calls io->complete
 * later, inside poll. A return value below zero is for requests that make no sense.
 */
static int skeleton_submit(void *session, struct kvt_io *io)
{
	struct skeleton *b = session;

	/* Results start from nothing: the io may have been used before. */
	io->bytes_landed = 0;
	io->swept = 0;
	io->info.object_bytes = KVT_BYTES_UNKNOWN;
	io->info.version.bytes = 0;
	io->info.age_ns = io->info.access_age_ns = -1;
	if (io->op != KVT_IO_COMMIT && io->op != KVT_IO_ABORT &&
	    io->deadline_ns <= b->host->now_ns()) {
		io->result = KVT_ETIMEDOUT;
		return KVT_DONE;
	}
	switch (io->op) {
	case KVT_IO_PUT:
		io->result = skeleton_put(b, io);
		return KVT_DONE;
	case KVT_IO_BEGIN:
		io->result = skeleton_begin(b, io);
		return KVT_DONE;
	case KVT_IO_PART:
		io->result = skeleton_part(b, io);
		return KVT_DONE;
	case KVT_IO_COMMIT:
		io->result = skeleton_commit(b, io);
		return KVT_DONE;
	case KVT_IO_ABORT:
		skeleton_object_release(b, io->handle);
		io->result = 0;
		return KVT_DONE;
	case KVT_IO_GET:
		io->result = skeleton_get(b, io);
		return KVT_DONE;
	case KVT_IO_HEAD:
	case KVT_IO_TOUCH:
		io->result = skeleton_look(b, io);
		return KVT_DONE;
	case KVT_IO_REMOVE:
		io->result = skeleton_remove(b, io);
		return KVT_DONE;
	case KVT_IO_LIST:
		io->result = skeleton_list(b, io);
		return KVT_DONE;
	case KVT_IO_SWEEP:
		/* Nothing that a dead process left behind can be here. */
		io->result = 0;
		return KVT_DONE;
	default:
		return KVT_ENOTSUP;
	}
}

/*
 * Called on each thread that will submit. A backend with connections or rings makes one here. This
 * one needs nothing of its own, so the backend itself serves as the session.
 */
static int skeleton_session_open(void *backend, uint32_t depth, int listing, void **sessionp)
{
	(void)depth;
	(void)listing;
	*sessionp = backend;
	return 0;
}

/* No request is in flight and every handle has ended. */
static void skeleton_session_close(void *session)
{
	(void)session;
}

/*
 * Opens the place. The core has checked that all options are known and comes with default limits;
 * we state where ours differ. On failure nothing may be left behind, and host->fail says why.
 */
static int skeleton_open(const struct kvt_host *host, const struct kvt_backend_config *config,
			 void **backendp, struct kvt_backend_limits *limits)
{
	struct skeleton *b;
	char *end = NULL;

	*backendp = NULL;
	if (*config->location) {
		host->fail(host, "skeleton:%s: expected nothing behind the colon",
			   config->location);
		return KVT_EINVAL;
	}
	b = host->alloc(host, sizeof(*b), 16);
	if (!b || pthread_mutex_init(&b->lock, NULL)) {
		host->fail(host, "skeleton: out of memory");
		host->free(host, b);
		return KVT_ENOMEM;
	}
	b->host = host;
	b->most_objects = b->object_count = b->last_version = 0;
	b->objects = NULL;
	for (size_t i = 0; i < config->option_count; i++) {
		const char *value = config->options[i].value;

		/* There is only one option, so its name need not be looked at. */
		b->most_objects = strtoull(value, &end, 10);
		if (*value < '0' || *value > '9' || *end) {
			host->fail(host, "skeleton: option max_objects: '%s', expected a number",
				   value);
			pthread_mutex_destroy(&b->lock);
			host->free(host, b);
			return KVT_EINVAL;
		}
	}
	limits->default_depth = 1;
	limits->capabilities = KVT_CAP_IF_ABSENT | KVT_CAP_IF_VERSION_PUT | KVT_CAP_IF_VERSION_GET |
			       KVT_CAP_IF_VERSION_REMOVE | KVT_CAP_TOUCH | KVT_CAP_GET_DISCARD;
	(void)snprintf(limits->detail, sizeof(limits->detail), "kept=memory max_objects=%llu",
		       (unsigned long long)b->most_objects);
	*backendp = b;
	return 0;
}

/* Every session is closed. Never fails. */
static void skeleton_close(void *backend)
{
	struct skeleton *b = backend;

	for (struct skeleton_object *object = b->objects, *next; object; object = next) {
		next = object->next;
		skeleton_object_release(b, object);
	}
	pthread_mutex_destroy(&b->lock);
	b->host->free(b->host, b);
}

/* What an operator may want to know of an open place. On any thread, so under the lock. */
static void skeleton_describe(void *backend, char *text, size_t bytes)
{
	struct skeleton *b = backend;

	pthread_mutex_lock(&b->lock);
	(void)snprintf(text, bytes, "objects=%llu", (unsigned long long)b->object_count);
	pthread_mutex_unlock(&b->lock);
}

/*
 * The table. struct_size and abi tell the core which header this was built against. poll and wake
 * stay NULL: a blocking backend. forked stays NULL too: it would close descriptors in a forked
 * child, and this backend has none.
 */
static const struct kvt_backend_ops skeleton_ops = {
	.struct_size = sizeof(struct kvt_backend_ops),
	.abi = KVT_BACKEND_ABI,
	.name = "skeleton",
	.option_specs = skeleton_options,
	.open = skeleton_open,
	.close = skeleton_close,
	.session_open = skeleton_session_open,
	.session_close = skeleton_session_close,
	.submit = skeleton_submit,
	.describe = skeleton_describe,
};

KVT_API const struct kvt_backend_ops *kvt_backend_entry(const struct kvt_host *host);

/* The one symbol of a module. NULL says that this core is not one to work with. */
const struct kvt_backend_ops *kvt_backend_entry(const struct kvt_host *host)
{
	return host->abi == KVT_BACKEND_ABI ? &skeleton_ops : NULL;
}
