/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of one content of the mem backend: pieces of a few sizes, carved from large slabs and kept
 * on free lists until the content ends. A session takes pieces from a cache of its own; the lock
 * inside is a leaf and is taken once for a batch of pieces.
 */
#ifndef KVT_BACKENDS_MEM_POOL_H
#define KVT_BACKENDS_MEM_POOL_H

#include <pthread.h>

#include <kvtier/backend.h>

#define KVT__MEM_LEAST_SHIFT 8u /* 256 bytes */
#define KVT__MEM_MOST_SHIFT  16u
#define KVT__MEM_MOST_BYTES  (1u << KVT__MEM_MOST_SHIFT)
#define KVT__MEM_SIZES	     (KVT__MEM_MOST_SHIFT - KVT__MEM_LEAST_SHIFT + 1)
#define KVT__MEM_BATCH	     16u

struct kvt__mem_slab;

struct kvt__mem_pool {
	const struct kvt_host *host; /* NULL: malloc, for contents that outlive the first store */
	pthread_mutex_t lock;	     /* leaf; guards everything below */
	void *free_lists[KVT__MEM_SIZES]; /* linked through their first bytes */
	struct kvt__mem_slab *slabs;	  /* all of them, oldest first */
	struct kvt__mem_slab **last_linkp;
	struct kvt__mem_slab *current; /* where pieces are carved from; slabs behind it are new */
};

/* Of one session, used on its thread only. */
struct kvt__mem_cache {
	struct kvt__mem_pool *pool;
	uint32_t counts[KVT__MEM_SIZES];
	void *pieces[KVT__MEM_SIZES][2 * KVT__MEM_BATCH];
};

/* KVT_ENOMEM when there is no lock to be had. */
int kvt__mem_pool_init(struct kvt__mem_pool *pool, const struct kvt_host *host);
/* Frees every piece at once, whoever holds it. With `forked` the lock is left alone. */
void kvt__mem_pool_fini(struct kvt__mem_pool *pool, int forked);

/* Memory of any size outside the slabs. */
void *kvt__mem_large_alloc(const struct kvt__mem_pool *pool, size_t bytes, size_t alignment);
void kvt__mem_large_free(const struct kvt__mem_pool *pool, void *memory);

/* Makes memory for `bytes` bytes of objects ready, so that no page of it has to be made later.
 * KVT_ENOMEM: what was made so far stays. */
int kvt__mem_pool_reserve(struct kvt__mem_pool *pool, uint64_t bytes);

void kvt__mem_cache_init(struct kvt__mem_cache *cache, struct kvt__mem_pool *pool);
/* Gives the cached pieces back to the pool. */
void kvt__mem_cache_flush(struct kvt__mem_cache *cache);

/* A piece of at least `bytes` bytes, at most KVT__MEM_MOST_BYTES, its content undefined; aligned to
 * 256 or, from 4,096 bytes on, to 4,096. NULL when there is no memory. */
void *kvt__mem_piece_alloc(struct kvt__mem_cache *cache, size_t bytes);
/* `bytes` as it was allocated; NULL is accepted. */
void kvt__mem_piece_free(struct kvt__mem_cache *cache, void *piece, size_t bytes);

#endif
