/* SPDX-License-Identifier: Apache-2.0 */
/* Free lists over slabs. Slabs are two mebibytes so that one huge page backs each of them: a page
 * fault for every 4 KiB would cost more than copying into it. */
#include "pool.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define MEM_SLAB_BYTES (2u << 20)

struct kvt__mem_slab {
	struct kvt__mem_slab *next;
	char *memory;
	size_t used;
};

static unsigned mem_size_index(size_t bytes)
{
	unsigned index = 0;

	while (bytes > (size_t)1 << (KVT__MEM_LEAST_SHIFT + index))
		index++;
	return index;
}

static size_t mem_size_of(unsigned index)
{
	return (size_t)1 << (KVT__MEM_LEAST_SHIFT + index);
}

void *kvt__mem_large_alloc(const struct kvt__mem_pool *pool, size_t bytes, size_t alignment)
{
	void *memory;

	if (alignment < sizeof(void *))
		alignment = sizeof(void *);
	if (pool->host)
		return pool->host->alloc(pool->host, bytes, alignment);
	return posix_memalign(&memory, alignment, bytes) ? NULL : memory;
}

void kvt__mem_large_free(const struct kvt__mem_pool *pool, void *memory)
{
	if (pool->host)
		pool->host->free(pool->host, memory);
	else
		free(memory);
}

int kvt__mem_pool_init(struct kvt__mem_pool *pool, const struct kvt_host *host)
{
	memset(pool, 0, sizeof(*pool));
	pool->host = host;
	pool->last_linkp = &pool->slabs;
	return pthread_mutex_init(&pool->lock, NULL) ? KVT_ENOMEM : 0;
}

void kvt__mem_pool_fini(struct kvt__mem_pool *pool, int forked)
{
	struct kvt__mem_slab *slab, *next;

	for (slab = pool->slabs; slab; slab = next) {
		next = slab->next;
		kvt__mem_large_free(pool, slab->memory);
		kvt__mem_large_free(pool, slab);
	}
	if (!forked)
		pthread_mutex_destroy(&pool->lock);
}

void kvt__mem_cache_init(struct kvt__mem_cache *cache, struct kvt__mem_pool *pool)
{
	cache->pool = pool;
	memset(cache->counts, 0, sizeof(cache->counts));
}

/* Moves the `count` pieces that were cached last to the pool's free list. */
static void mem_cache_spill(struct kvt__mem_cache *cache, unsigned index, uint32_t count)
{
	struct kvt__mem_pool *pool = cache->pool;

	pthread_mutex_lock(&pool->lock);
	while (count--) {
		void *piece = cache->pieces[index][--cache->counts[index]];

		*(void **)piece = pool->free_lists[index];
		pool->free_lists[index] = piece;
	}
	pthread_mutex_unlock(&pool->lock);
}

void kvt__mem_cache_flush(struct kvt__mem_cache *cache)
{
	for (unsigned index = 0; index < KVT__MEM_SIZES; index++)
		if (cache->counts[index])
			mem_cache_spill(cache, index, cache->counts[index]);
}

/* Takes up to a batch from the free list, else from the slabs that are there. */
static uint32_t mem_refill_locked(struct kvt__mem_pool *pool, unsigned index, void **pieces)
{
	size_t bytes = mem_size_of(index);
	struct kvt__mem_slab *slab;
	uint32_t count = 0;

	while (count < KVT__MEM_BATCH && pool->free_lists[index]) {
		pieces[count] = pool->free_lists[index];
		pool->free_lists[index] = *(void **)pieces[count++];
	}
	if (count)
		return count;
	while ((slab = pool->current) && MEM_SLAB_BYTES - slab->used < bytes && slab->next)
		pool->current = slab->next;
	/* A batch of the smallest size fills a page, so all starts stay aligned. */
	while (slab && count < KVT__MEM_BATCH && MEM_SLAB_BYTES - slab->used >= bytes) {
		pieces[count++] = slab->memory + slab->used;
		slab->used += bytes;
	}
	return count;
}

/* Adds a slab; with `touch` its pages are made now. */
static int mem_slab_add(struct kvt__mem_pool *pool, int touch)
{
	struct kvt__mem_slab *slab = kvt__mem_large_alloc(pool, sizeof(*slab), 16);

	if (!slab)
		return KVT_ENOMEM;
	*slab = (struct kvt__mem_slab){
		.memory = kvt__mem_large_alloc(pool, MEM_SLAB_BYTES, MEM_SLAB_BYTES)};
	if (!slab->memory) {
		kvt__mem_large_free(pool, slab);
		return KVT_ENOMEM;
	}
	/* A wish: without huge pages everything works, more slowly. */
	(void)madvise(slab->memory, MEM_SLAB_BYTES, MADV_HUGEPAGE);
	if (touch)
		memset(slab->memory, 0, MEM_SLAB_BYTES);
	pthread_mutex_lock(&pool->lock);
	*pool->last_linkp = slab;
	pool->last_linkp = &slab->next;
	if (!pool->current)
		pool->current = slab;
	pthread_mutex_unlock(&pool->lock);
	return 0;
}

int kvt__mem_pool_reserve(struct kvt__mem_pool *pool, uint64_t bytes)
{
	for (uint64_t ready = 0; ready < bytes; ready += MEM_SLAB_BYTES)
		if (mem_slab_add(pool, 1))
			return KVT_ENOMEM;
	return 0;
}

void *kvt__mem_piece_alloc(struct kvt__mem_cache *cache, size_t bytes)
{
	unsigned index = mem_size_index(bytes);
	struct kvt__mem_pool *pool = cache->pool;

	while (!cache->counts[index]) {
		pthread_mutex_lock(&pool->lock);
		cache->counts[index] = mem_refill_locked(pool, index, cache->pieces[index]);
		pthread_mutex_unlock(&pool->lock);
		if (!cache->counts[index] && mem_slab_add(pool, 0))
			return NULL;
	}
	return cache->pieces[index][--cache->counts[index]];
}

void kvt__mem_piece_free(struct kvt__mem_cache *cache, void *piece, size_t bytes)
{
	unsigned index = mem_size_index(bytes);

	if (!piece)
		return;
	if (cache->counts[index] == 2 * KVT__MEM_BATCH)
		mem_cache_spill(cache, index, KVT__MEM_BATCH);
	cache->pieces[index][cache->counts[index]++] = piece;
}
