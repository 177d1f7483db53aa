/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stores by key: which store leads a key, and who follows it. A second store of a key and every
 * load of it wait behind the leader in order of arrival; lookups of it answer "pending". All under
 * the worker's lock.
 */
#include "worker.h"

#include <string.h>

static uint64_t mix(uint64_t x)
{
	x ^= x >> 32;
	x *= UINT64_C(0xd6e8feb86659fd93);
	x ^= x >> 32;
	return x;
}

/* Keys are hashes already; short or similar ones are spread by mixing. */
static uint64_t key_hash(const struct kvt__item *item)
{
	const uint8_t *hash = item->job->hashes + item->hash_at;
	uint64_t h = item->key_group * UINT64_C(0x9e3779b97f4a7c15) + item->hash_bytes;
	uint32_t i = 0;
	for (; i + 8 <= item->hash_bytes; i += 8) {
		uint64_t word;
		memcpy(&word, hash + i, 8);
		h = mix(h ^ word);
	}
	if (i < item->hash_bytes) {
		uint64_t word = 0;
		memcpy(&word, hash + i, item->hash_bytes - i);
		h = mix(h ^ word);
	}
	return mix(h);
}

static bool same_key(const struct kvt__item *a, const struct kvt__item *b)
{
	return a->key_group == b->key_group && a->hash_bytes == b->hash_bytes &&
	       memcmp(a->job->hashes + a->hash_at, b->job->hashes + b->hash_at, a->hash_bytes) == 0;
}

int kvt__keys_init(struct kvt_worker *w)
{
	uint64_t buckets = 1024;
	while (buckets < w->config.queue_chunks && buckets < (UINT64_C(1) << 20))
		buckets *= 2;
	w->keys.buckets = kvt__zalloc(&w->env, buckets * sizeof(*w->keys.buckets));
	w->keys.mask = buckets - 1;
	return w->keys.buckets ? 0 : KVT_ENOMEM;
}

void kvt__keys_fini(struct kvt_worker *w)
{
	kvt__free(&w->env, w->keys.buckets);
	w->keys.buckets = NULL;
}

struct kvt__item *kvt__keys_find_locked(const struct kvt_worker *w, const struct kvt__item *like)
{
	struct kvt__item *item = w->keys.buckets[key_hash(like) & w->keys.mask];
	while (item && !same_key(item, like))
		item = item->hash_next;
	return item;
}

void kvt__keys_insert_locked(struct kvt_worker *w, struct kvt__item *item)
{
	struct kvt__item **bucket = &w->keys.buckets[key_hash(item) & w->keys.mask];
	item->hash_next = *bucket;
	*bucket = item;
	item->in_table = true;
}

void kvt__keys_remove_locked(struct kvt_worker *w, struct kvt__item *item)
{
	struct kvt__item **at = &w->keys.buckets[key_hash(item) & w->keys.mask];
	while (*at != item)
		at = &(*at)->hash_next;
	*at = item->hash_next;
	item->hash_next = NULL;
	item->in_table = false;
}

void kvt__keys_follow_locked(struct kvt__item *leader, struct kvt__item *item)
{
	item->state = KVT__ITEM_PARKED;
	item->leader = leader;
	item->next = NULL;
	item->prev = leader->last;
	if (leader->last)
		leader->last->next = item;
	else
		leader->first = item;
	leader->last = item;
}

void kvt__keys_unfollow_locked(struct kvt__item *item)
{
	struct kvt__item *leader = item->leader;
	if (item->prev)
		item->prev->next = item->next;
	else
		leader->first = item->next;
	if (item->next)
		item->next->prev = item->prev;
	else
		leader->last = item->prev;
	item->next = item->prev = item->leader = NULL;
}
