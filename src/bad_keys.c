/* SPDX-License-Identifier: Apache-2.0 */
/* The bounded set of keys whose load was proven corrupt or mismatching. Any thread. */
#include <string.h>

#include "store.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static bool is_key(const struct kvt__bad_key *key, const void *hash, uint32_t hash_bytes,
		   uint32_t group)
{
	return key->hash_bytes == hash_bytes && key->group == group &&
	       memcmp(key->hash, hash, hash_bytes) == 0;
}

void kvt__bad_keys_add(struct kvt__bad_keys *bad, const void *hash, uint32_t hash_bytes,
		       uint32_t group)
{
	struct kvt__bad_key *key = NULL;

	pthread_mutex_lock(&bad->lock);
	for (size_t i = 0; i < COUNT(bad->keys) && key == NULL; i++)
		if (is_key(&bad->keys[i], hash, hash_bytes, group))
			key = &bad->keys[i];
	if (key == NULL) {
		key = &bad->keys[bad->next];
		bad->next = (bad->next + 1) % COUNT(bad->keys);
		if (key->hash_bytes == 0)
			atomic_fetch_add(&bad->count, 1);
		memcpy(key->hash, hash, hash_bytes);
		key->hash_bytes = hash_bytes;
		key->group = group;
	}
	pthread_mutex_unlock(&bad->lock);
}

bool kvt__bad_keys_take(struct kvt__bad_keys *bad, const void *hash, uint32_t hash_bytes,
			uint32_t group)
{
	bool found = false;

	if (atomic_load(&bad->count) == 0)
		return false;
	pthread_mutex_lock(&bad->lock);
	for (size_t i = 0; i < COUNT(bad->keys) && !found; i++) {
		found = is_key(&bad->keys[i], hash, hash_bytes, group);
		if (found) {
			bad->keys[i].hash_bytes = 0;
			atomic_fetch_sub(&bad->count, 1);
		}
	}
	pthread_mutex_unlock(&bad->lock);
	return found;
}
