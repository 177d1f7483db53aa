/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one place of the mem backend holds: objects by name, in a hash table cut into shards with a
 * lock each. The locks are leaves and are held across no call out and no allocation. Places with a
 * name are shared by every store of the process that opens the same one.
 */
#ifndef KVT_BACKENDS_MEM_CONTENT_H
#define KVT_BACKENDS_MEM_CONTENT_H

#include "object.h"

#define KVT__MEM_SHARDS 128u

struct kvt__mem_shard {
	_Alignas(64) pthread_mutex_t lock; /* leaf; guards everything below and the chains */
	struct kvt__mem_object **buckets;  /* 1 << bits of them, in order of hash; each chain is in
					      order of hash, then name */
	struct kvt__mem_object *few[4];	   /* the first buckets */
	uint32_t bits;
	uint64_t count;
};

struct kvt__mem_content {
	struct kvt__mem_pool pool;
	struct kvt__mem_content *next; /* among the shared ones; guarded by their lock */
	char *location;		       /* NULL: private */
	uint32_t users;		       /* guarded by that lock too */
	uint32_t generation;	       /* of the process that made it */
	struct kvt__mem_shard shards[KVT__MEM_SHARDS];
};

/* A new private content for "", else the shared one of that location. KVT_ENOMEM. */
int kvt__mem_content_acquire(const struct kvt_host *host, const char *location,
			     struct kvt__mem_content **contentp);
/* The last user's release frees it. With `forked` no lock is taken: only for a child that has one
 * thread. */
void kvt__mem_content_release(struct kvt__mem_content *content, int forked);

uint64_t kvt__mem_hash(const char *name, size_t bytes);

/* The object of that name with a reference of the caller's, or NULL. */
struct kvt__mem_object *kvt__mem_content_find(struct kvt__mem_content *content, const char *name,
					      uint32_t name_bytes, uint64_t hash);
/*
 * Makes an object visible under io->flags and io->if_version, in place of what was there; takes the
 * caller's reference over when it succeeds. Fills io->info. 0, KVT_EEXIST, KVT_EPRECOND.
 */
int kvt__mem_content_insert(struct kvt__mem_content *content, struct kvt__mem_cache *cache,
			    struct kvt__mem_object *object, int64_t now_ns, struct kvt_io *io);
/* Removes under io->flags and io->if_version. 0, KVT_ENOENT, KVT_EPRECOND. */
int kvt__mem_content_remove(struct kvt__mem_content *content, struct kvt__mem_cache *cache,
			    uint64_t hash, struct kvt_io *io);
/*
 * The next objects in the order of (hash, name) behind `after` (NULL or "": from the start), at
 * most `max`, with a reference each. Returns how many; fewer than `max` only at the end. An object
 * that is there all the time is seen exactly once, whatever changes around it.
 */
uint32_t kvt__mem_content_list(struct kvt__mem_content *content, const char *after,
			       struct kvt__mem_object **objects, uint32_t max);

#endif
