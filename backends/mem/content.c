/* SPDX-License-Identifier: Apache-2.0 */
/* The sharded table of objects, and the process's list of shared contents. */
#include "content.h"

#include <string.h>

/*
 * Shared contents of this process. A forked child must neither find those of its parent, whose
 * locks may be held for ever there, nor this lock held: the handlers of pthread_atfork see to both.
 */
static pthread_mutex_t shared_lock = PTHREAD_MUTEX_INITIALIZER; /* leaf */
static struct kvt__mem_content *shared_contents;		/* guarded by shared_lock */
static uint32_t shared_generation;				/* guarded by shared_lock */
static pthread_once_t shared_once = PTHREAD_ONCE_INIT;

/* Versions are unique in the process, so that a version of an earlier content of the same name
 * never matches. */
static atomic_ullong last_version;

static void mem_before_fork(void)
{
	pthread_mutex_lock(&shared_lock);
}

static void mem_after_fork(void)
{
	pthread_mutex_unlock(&shared_lock);
}

static void mem_after_fork_child(void)
{
	shared_generation++;
	pthread_mutex_unlock(&shared_lock);
}

static void mem_watch_forks(void)
{
	(void)pthread_atfork(mem_before_fork, mem_after_fork, mem_after_fork_child);
}

static uint64_t mem_mix(uint64_t h)
{
	h ^= h >> 32;
	h *= UINT64_C(0xd6e8feb86659fd93);
	h ^= h >> 29;
	h *= UINT64_C(0xd6e8feb86659fd93);
	return h ^ h >> 32;
}

uint64_t kvt__mem_hash(const char *name, size_t bytes)
{
	uint64_t h = bytes * UINT64_C(0x9e3779b97f4a7c15), word;

	for (; bytes >= 8; bytes -= 8, name += 8) {
		memcpy(&word, name, 8);
		h = ((h << 23 | h >> 41) ^ word) * UINT64_C(0x9fb21c651e98df25);
		h ^= h >> 31;
	}
	word = 0;
	memcpy(&word, name, bytes);
	return mem_mix(h ^ word * UINT64_C(0x9e3779b97f4a7c15));
}

/* The shard is the hash's top bits and the bucket those below, so that shards, buckets and chains
 * are one order, which growing does not change. */
static struct kvt__mem_shard *mem_shard(struct kvt__mem_content *content, uint64_t hash)
{
	return &content->shards[hash >> 57];
}

static struct kvt__mem_object **mem_bucket(const struct kvt__mem_shard *shard, uint64_t hash)
{
	return &shard->buckets[hash << 7 >> (64 - shard->bits)];
}

static int mem_order(const struct kvt__mem_object *object, uint64_t hash, const char *name)
{
	if (object->hash != hash)
		return object->hash < hash ? -1 : 1;
	return strcmp(object->name, name);
}

/* The link that points to the object of that name, or to where it belongs. */
static struct kvt__mem_object **mem_link_locked(const struct kvt__mem_shard *shard, uint64_t hash,
						const char *name, int *foundp)
{
	struct kvt__mem_object **linkp = mem_bucket(shard, hash);

	*foundp = 0;
	for (; *linkp; linkp = &(*linkp)->next) {
		int order;

		if ((*linkp)->hash < hash)
			continue;
		order = mem_order(*linkp, hash, name);
		if (order >= 0) {
			*foundp = !order;
			break;
		}
	}
	return linkp;
}

/* Doubles a shard's buckets. Without memory chains just grow longer. */
static void mem_grow(struct kvt__mem_content *content, struct kvt__mem_shard *shard, uint32_t bits)
{
	size_t bytes = sizeof(struct kvt__mem_object *) << bits;
	struct kvt__mem_object **fresh = kvt__mem_large_alloc(&content->pool, bytes, 16);
	struct kvt__mem_object **old = fresh;

	if (!fresh)
		return;
	memset(fresh, 0, bytes);
	pthread_mutex_lock(&shard->lock);
	if (shard->bits + 1 == bits) {
		old = shard->buckets;
		/* From the last bucket to the first, so that fresh chains are made from their ends.
		 */
		for (size_t b = (size_t)1 << shard->bits; b--;) {
			struct kvt__mem_object **ends[2] = {&fresh[2 * b], &fresh[2 * b + 1]};

			for (struct kvt__mem_object *o = old[b], *next; o; o = next) {
				unsigned half = o->hash << 7 >> (64 - bits) & 1;

				next = o->next;
				o->next = NULL;
				*ends[half] = o;
				ends[half] = &o->next;
			}
		}
		shard->buckets = fresh;
		shard->bits = bits;
	}
	pthread_mutex_unlock(&shard->lock);
	if (old != shard->few)
		kvt__mem_large_free(&content->pool, old);
}

struct kvt__mem_object *kvt__mem_content_find(struct kvt__mem_content *content, const char *name,
					      uint32_t name_bytes, uint64_t hash)
{
	struct kvt__mem_shard *shard = mem_shard(content, hash);
	struct kvt__mem_object *object;

	pthread_mutex_lock(&shard->lock);
	for (object = *mem_bucket(shard, hash); object; object = object->next)
		if (object->hash == hash && object->name_bytes == name_bytes &&
		    !memcmp(object->name, name, name_bytes)) {
			atomic_fetch_add_explicit(&object->refs, 1, memory_order_relaxed);
			break;
		}
	pthread_mutex_unlock(&shard->lock);
	return object;
}

int kvt__mem_content_insert(struct kvt__mem_content *content, struct kvt__mem_cache *cache,
			    struct kvt__mem_object *object, int64_t now_ns, struct kvt_io *io)
{
	struct kvt__mem_shard *shard = mem_shard(content, object->hash);
	struct kvt__mem_object **linkp, *old = NULL;
	uint32_t grow_bits = 0;
	int found, result = 0;

	object->version = atomic_fetch_add_explicit(&last_version, 1, memory_order_relaxed) + 1;
	object->written_ns = now_ns;
	atomic_store_explicit(&object->accessed_ns, now_ns, memory_order_relaxed);
	pthread_mutex_lock(&shard->lock);
	linkp = mem_link_locked(shard, object->hash, object->name, &found);
	if (found)
		old = *linkp;
	if (old && io->flags & KVT_IO_IF_ABSENT)
		result = KVT_EEXIST;
	else if (io->flags & KVT_IO_IF_VERSION &&
		 (!old || !kvt__mem_object_is(old, io->if_version)))
		result = KVT_EPRECOND;
	if (!result) {
		object->next = old ? old->next : *linkp;
		*linkp = object;
		shard->count += !old;
		if (shard->count > (uint64_t)2 << shard->bits && shard->bits < 40)
			grow_bits = shard->bits + 1;
		kvt__mem_object_info(object, now_ns, &io->info);
	} else if (old) {
		kvt__mem_object_info(old, now_ns, &io->info);
	}
	pthread_mutex_unlock(&shard->lock);
	if (!result)
		kvt__mem_object_release(cache, old);
	if (grow_bits)
		mem_grow(content, shard, grow_bits);
	return result;
}

int kvt__mem_content_remove(struct kvt__mem_content *content, struct kvt__mem_cache *cache,
			    uint64_t hash, struct kvt_io *io)
{
	struct kvt__mem_shard *shard = mem_shard(content, hash);
	struct kvt__mem_object **linkp, *old = NULL;
	int found, result = 0;

	pthread_mutex_lock(&shard->lock);
	linkp = mem_link_locked(shard, hash, io->name, &found);
	if (!found) {
		result = KVT_ENOENT;
	} else if (io->flags & KVT_IO_IF_VERSION && !kvt__mem_object_is(*linkp, io->if_version)) {
		result = KVT_EPRECOND;
	} else {
		old = *linkp;
		*linkp = old->next;
		shard->count--;
	}
	pthread_mutex_unlock(&shard->lock);
	kvt__mem_object_release(cache, old);
	return result;
}

uint32_t kvt__mem_content_list(struct kvt__mem_content *content, const char *after,
			       struct kvt__mem_object **objects, uint32_t max)
{
	uint64_t hash = after && *after ? kvt__mem_hash(after, strlen(after)) : 0;
	uint32_t count = 0;

	for (uint64_t s = hash >> 57; s < KVT__MEM_SHARDS && count < max; s++) {
		struct kvt__mem_shard *shard = &content->shards[s];
		size_t b = 0, end;

		pthread_mutex_lock(&shard->lock);
		end = (size_t)1 << shard->bits;
		if (s == hash >> 57)
			b = (size_t)(mem_bucket(shard, hash) - shard->buckets);
		for (; b < end && count < max; b++) {
			struct kvt__mem_object *object = shard->buckets[b];

			for (; object && count < max; object = object->next) {
				if (after && *after && mem_order(object, hash, after) <= 0)
					continue;
				atomic_fetch_add_explicit(&object->refs, 1, memory_order_relaxed);
				objects[count++] = object;
			}
		}
		pthread_mutex_unlock(&shard->lock);
	}
	return count;
}

static void mem_content_destroy(struct kvt__mem_content *content, const struct kvt_host *host,
				int forked)
{
	struct kvt__mem_pool *pool = &content->pool, gone;

	for (uint32_t s = 0; s < KVT__MEM_SHARDS; s++) {
		struct kvt__mem_shard *shard = &content->shards[s];

		/* In a forked child the chains may be in the middle of a change: the few objects
		 * with memory outside the slabs are left to the end of the process. */
		for (size_t b = 0; !forked && b < (size_t)1 << shard->bits; b++)
			for (struct kvt__mem_object *o = shard->buckets[b]; o; o = o->next)
				kvt__mem_object_drop(pool, o);
		if (shard->buckets != shard->few)
			kvt__mem_large_free(pool, shard->buckets);
		if (!forked)
			pthread_mutex_destroy(&shard->lock);
	}
	kvt__mem_large_free(pool, content->location);
	kvt__mem_pool_fini(pool, forked);
	gone = (struct kvt__mem_pool){.host = host};
	kvt__mem_large_free(&gone, content);
}

static int mem_content_create(const struct kvt_host *host, const char *location,
			      struct kvt__mem_content **contentp)
{
	struct kvt__mem_pool outside = {.host = host};
	struct kvt__mem_content *content =
		kvt__mem_large_alloc(&outside, sizeof(*content), _Alignof(struct kvt__mem_content));
	uint32_t shards = 0;

	if (!content)
		return KVT_ENOMEM;
	memset(content, 0, sizeof(*content));
	content->users = 1;
	if (kvt__mem_pool_init(&content->pool, host)) {
		kvt__mem_large_free(&outside, content);
		return KVT_ENOMEM;
	}
	for (; shards < KVT__MEM_SHARDS; shards++) {
		struct kvt__mem_shard *shard = &content->shards[shards];

		if (pthread_mutex_init(&shard->lock, NULL))
			goto fail;
		shard->buckets = shard->few;
		shard->bits = 2;
	}
	if (*location) {
		size_t bytes = strlen(location) + 1;

		content->location = kvt__mem_large_alloc(&outside, bytes, 16);
		if (!content->location)
			goto fail;
		memcpy(content->location, location, bytes);
	}
	*contentp = content;
	return 0;
fail:
	while (shards--)
		pthread_mutex_destroy(&content->shards[shards].lock);
	kvt__mem_pool_fini(&content->pool, 0);
	kvt__mem_large_free(&outside, content);
	return KVT_ENOMEM;
}

int kvt__mem_content_acquire(const struct kvt_host *host, const char *location,
			     struct kvt__mem_content **contentp)
{
	struct kvt__mem_content *content, *fresh;
	int result;

	if (!*location)
		return mem_content_create(host, location, contentp);
	pthread_once(&shared_once, mem_watch_forks);
	/* A shared content may outlive the store, and so the host, that made it. */
	result = mem_content_create(NULL, location, &fresh);
	if (result)
		return result;
	pthread_mutex_lock(&shared_lock);
	for (content = shared_contents; content; content = content->next)
		if (content->generation == shared_generation &&
		    !strcmp(content->location, location))
			break;
	if (content) {
		content->users++;
	} else {
		content = fresh;
		fresh = NULL;
		content->generation = shared_generation;
		content->next = shared_contents;
		shared_contents = content;
	}
	pthread_mutex_unlock(&shared_lock);
	if (fresh)
		mem_content_destroy(fresh, NULL, 0);
	*contentp = content;
	return 0;
}

void kvt__mem_content_release(struct kvt__mem_content *content, int forked)
{
	int last = 1;

	if (content->location) {
		struct kvt__mem_content **linkp = &shared_contents;

		if (!forked)
			pthread_mutex_lock(&shared_lock);
		last = !--content->users;
		if (last) {
			while (*linkp != content)
				linkp = &(*linkp)->next;
			*linkp = content->next;
		}
		if (!forked)
			pthread_mutex_unlock(&shared_lock);
	}
	if (last)
		mem_content_destroy(content, content->pool.host, forked);
}
