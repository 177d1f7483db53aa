/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory of names. A table of sets of eight places: a name's hash says which set it may be in,
 * and the oldest of a full set makes room. What decides about age is a counter, the ticket, never
 * the clock; the clock only ends the time for which something is believed.
 *
 * A place that is given up leaves the height of its ticket behind in its set, so that an answer
 * from before is refused although there is nothing left to compare it with. That may refuse an
 * answer about another name of the set, which costs a request later on.
 */
#include "cache.h"

#include <pthread.h>
#include <string.h>
#include <sys/random.h>

#include "siphash.h"

#define S3_CACHE_WAYS	      8u
#define S3_CACHE_STORES	      256u
#define S3_CACHE_LEAST_STORES 16u

struct s3_cache_entry {
	struct s3_hash hash;
	uint64_t ticket; /* of the answer that it holds */
	int64_t until_ns;
	uint64_t object_bytes;
	uint8_t answer; /* enum s3_cache_answer; S3_CACHE_UNKNOWN: free */
	uint8_t version_bytes;
	uint8_t version[S3_CACHE_VERSION_BYTES];
};

struct s3_cache {
	const struct kvt_host *host;
	uint64_t key[2];
	int64_t hit_ns, miss_ns;
	uint32_t set_count, ways;
	pthread_mutex_t lock; /* leaf; guards all that follows */
	uint64_t last_ticket;
	struct s3_cache_entry *entries; /* ways of each set; NULL: none */
	uint64_t *floors;		/* of each set: answers up to this ticket come too late */
	uint64_t stores[S3_CACHE_STORES / 64]; /* a bit for each that was a duplicate */
	uint32_t next_store, store_count, duplicates;
};

static uint32_t s3_cache_set_of(const struct s3_cache *cache, struct s3_hash hash)
{
	return (uint32_t)(((hash.low >> 32) * cache->set_count) >> 32);
}

static struct s3_cache_entry *s3_cache_find_locked(struct s3_cache *cache, struct s3_hash hash)
{
	struct s3_cache_entry *entry =
		&cache->entries[(size_t)s3_cache_set_of(cache, hash) * cache->ways];

	for (uint32_t i = 0; i < cache->ways; i++, entry++)
		if (entry->answer != S3_CACHE_UNKNOWN && entry->hash.low == hash.low &&
		    entry->hash.high == hash.high)
			return entry;
	return NULL;
}

static void s3_cache_drop_locked(struct s3_cache *cache, struct s3_cache_entry *entry)
{
	uint64_t *floor = &cache->floors[s3_cache_set_of(cache, entry->hash)];

	if (entry->ticket > *floor)
		*floor = entry->ticket;
	entry->answer = S3_CACHE_UNKNOWN;
}

/* A place for `hash`: a free one, one whose time is over, the oldest. */
static struct s3_cache_entry *s3_cache_place_locked(struct s3_cache *cache, struct s3_hash hash,
						    int64_t now_ns)
{
	struct s3_cache_entry *first =
		&cache->entries[(size_t)s3_cache_set_of(cache, hash) * cache->ways];
	struct s3_cache_entry *oldest = first;

	for (struct s3_cache_entry *entry = first; entry < first + cache->ways; entry++) {
		if (entry->answer == S3_CACHE_UNKNOWN)
			return entry;
		if (oldest->until_ns > now_ns &&
		    (entry->until_ns <= now_ns || entry->ticket < oldest->ticket))
			oldest = entry;
	}
	s3_cache_drop_locked(cache, oldest);
	return oldest;
}

/* Keeps an answer, or leaves everything as it is when something newer is known. */
static void s3_cache_keep(struct s3_cache *cache, const char *name, uint64_t ticket,
			  enum s3_cache_answer answer, const struct kvt_object_info *info,
			  bool is_stored)
{
	int64_t life_ns = answer == S3_CACHE_HIT ? cache->hit_ns : cache->miss_ns;
	int64_t now_ns = cache->host->now_ns();
	struct s3_cache_entry *entry;
	struct s3_hash hash;

	if (cache->entries == NULL)
		return;
	hash = kvt__s3_siphash(cache->key, name, strlen(name));
	pthread_mutex_lock(&cache->lock);
	if (ticket <= cache->floors[s3_cache_set_of(cache, hash)])
		goto out;
	entry = s3_cache_find_locked(cache, hash);
	if (entry && !is_stored && ticket < entry->ticket)
		goto out;
	if (is_stored)
		ticket = ++cache->last_ticket;
	/* An answer that is not to be believed for any time still ends what was believed. */
	if (life_ns == 0 || (info && (info->version.bytes > S3_CACHE_VERSION_BYTES ||
				      info->object_bytes == KVT_BYTES_UNKNOWN))) {
		uint64_t *floor = &cache->floors[s3_cache_set_of(cache, hash)];

		if (entry)
			entry->answer = S3_CACHE_UNKNOWN;
		*floor = ticket;
		goto out;
	}
	if (entry == NULL)
		entry = s3_cache_place_locked(cache, hash, now_ns);
	entry->hash = hash;
	entry->ticket = ticket;
	entry->until_ns = now_ns + life_ns;
	entry->answer = (uint8_t)answer;
	entry->object_bytes = info ? info->object_bytes : 0;
	entry->version_bytes = info ? (uint8_t)info->version.bytes : 0;
	if (info)
		memcpy(entry->version, info->version.value, info->version.bytes);
out:
	pthread_mutex_unlock(&cache->lock);
}

struct s3_cache *kvt__s3_cache_create(const struct kvt_host *host, uint32_t entries,
				      uint32_t hit_ms, uint32_t miss_ms)
{
	uint32_t ways = entries < S3_CACHE_WAYS ? entries : S3_CACHE_WAYS;
	uint32_t sets = ways ? entries / ways : 0;
	struct s3_cache *cache = host->alloc(host, sizeof(*cache), 64);

	if (cache == NULL)
		return NULL;
	*cache = (struct s3_cache){
		.host = host,
		.hit_ns = (int64_t)hit_ms * 1000000,
		.miss_ns = (int64_t)miss_ms * 1000000,
		.set_count = sets,
		.ways = ways,
	};
	if (pthread_mutex_init(&cache->lock, NULL) != 0) {
		host->free(host, cache);
		return NULL;
	}
	/* Without entropy it is the address that is hard to guess. */
	cache->key[0] = (uint64_t)(uintptr_t)cache;
	cache->key[1] = (uint64_t)host->now_ns();
	(void)getrandom(cache->key, sizeof(cache->key), GRND_NONBLOCK);
	if (sets == 0)
		return cache;
	cache->entries = host->alloc(host, (size_t)sets * ways * sizeof(*cache->entries), 64);
	cache->floors = host->alloc(host, sets * sizeof(*cache->floors), 64);
	if (cache->entries == NULL || cache->floors == NULL) {
		kvt__s3_cache_destroy(cache);
		return NULL;
	}
	memset(cache->entries, 0, (size_t)sets * ways * sizeof(*cache->entries));
	memset(cache->floors, 0, sets * sizeof(*cache->floors));
	return cache;
}

void kvt__s3_cache_destroy(struct s3_cache *cache)
{
	if (cache == NULL)
		return;
	(void)pthread_mutex_destroy(&cache->lock);
	cache->host->free(cache->host, cache->floors);
	cache->host->free(cache->host, cache->entries);
	cache->host->free(cache->host, cache);
}

enum s3_cache_answer kvt__s3_cache_look(struct s3_cache *cache, const char *name,
					struct kvt_object_info *infop)
{
	enum s3_cache_answer answer = S3_CACHE_UNKNOWN;
	struct s3_cache_entry *entry;
	struct s3_hash hash;
	int64_t now_ns;

	if (cache->entries == NULL)
		return S3_CACHE_UNKNOWN;
	hash = kvt__s3_siphash(cache->key, name, strlen(name));
	now_ns = cache->host->now_ns();
	pthread_mutex_lock(&cache->lock);
	entry = s3_cache_find_locked(cache, hash);
	if (entry && entry->until_ns > now_ns)
		answer = (enum s3_cache_answer)entry->answer;
	if (answer == S3_CACHE_HIT) {
		*infop = (struct kvt_object_info){
			.object_bytes = entry->object_bytes, .age_ns = -1, .access_age_ns = -1};
		infop->version.bytes = entry->version_bytes;
		memcpy(infop->version.value, entry->version, entry->version_bytes);
	}
	pthread_mutex_unlock(&cache->lock);
	return answer;
}

uint64_t kvt__s3_cache_ticket(struct s3_cache *cache)
{
	uint64_t ticket;

	pthread_mutex_lock(&cache->lock);
	ticket = ++cache->last_ticket;
	pthread_mutex_unlock(&cache->lock);
	return ticket;
}

void kvt__s3_cache_hit(struct s3_cache *cache, const char *name, uint64_t ticket,
		       const struct kvt_object_info *info)
{
	s3_cache_keep(cache, name, ticket, S3_CACHE_HIT, info, false);
}

void kvt__s3_cache_miss(struct s3_cache *cache, const char *name, uint64_t ticket)
{
	s3_cache_keep(cache, name, ticket, S3_CACHE_MISS, NULL, false);
}

void kvt__s3_cache_stored(struct s3_cache *cache, const char *name, uint64_t ticket,
			  const struct kvt_object_info *info)
{
	s3_cache_keep(cache, name, ticket, S3_CACHE_HIT, info, true);
}

void kvt__s3_cache_forget(struct s3_cache *cache, const char *name)
{
	struct s3_cache_entry *entry;
	struct s3_hash hash;

	if (cache->entries == NULL)
		return;
	hash = kvt__s3_siphash(cache->key, name, strlen(name));
	pthread_mutex_lock(&cache->lock);
	entry = s3_cache_find_locked(cache, hash);
	if (entry)
		entry->answer = S3_CACHE_UNKNOWN;
	/* Every ticket so far is older than this. */
	cache->floors[s3_cache_set_of(cache, hash)] = cache->last_ticket;
	pthread_mutex_unlock(&cache->lock);
}

void kvt__s3_cache_count_store(struct s3_cache *cache, bool duplicate)
{
	uint64_t *word, bit;

	pthread_mutex_lock(&cache->lock);
	word = &cache->stores[cache->next_store / 64];
	bit = UINT64_C(1) << cache->next_store % 64;
	if (*word & bit)
		cache->duplicates--;
	*word &= ~bit;
	if (duplicate) {
		*word |= bit;
		cache->duplicates++;
	}
	cache->next_store = (cache->next_store + 1) % S3_CACHE_STORES;
	if (cache->store_count < S3_CACHE_STORES)
		cache->store_count++;
	pthread_mutex_unlock(&cache->lock);
}

uint32_t kvt__s3_cache_duplicates(struct s3_cache *cache)
{
	uint32_t share = 0;

	pthread_mutex_lock(&cache->lock);
	if (cache->store_count >= S3_CACHE_LEAST_STORES)
		share = cache->duplicates * S3_CACHE_STORES / cache->store_count;
	pthread_mutex_unlock(&cache->lock);
	return share;
}
