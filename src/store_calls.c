/* SPDX-License-Identifier: Apache-2.0 */
/* Blocking calls on single objects and names of a store. Each opens a session of its own, so any
 * thread may call them at any time. */
#include <string.h>

#include "inspect.h"
#include "list.h"
#include "uri.h"

/* In front of the arrays of a stat, which are one allocation that remembers how to free itself. */
struct arrays {
	struct kvt__env env; /* only its hooks are used */
	uint64_t ref_bytes[];
};

static int arrays_create(struct kvt_store *store, const struct kvt__inspection *found,
			 struct kvt_object_stat *stat)
{
	const struct kvt__trailer *t = &found->parsed;
	size_t refs_bytes = t->ref_count * sizeof(uint64_t);
	size_t presence_bytes = ((size_t)t->slot_count + 7) / 8;
	struct arrays *arrays =
		kvt__zalloc(&store->env, sizeof(*arrays) + refs_bytes + presence_bytes + 1);

	if (arrays == NULL)
		return kvt__fail(KVT_ENOMEM, "kvt_store_stat: out of memory");
	arrays->env.hooks = store->env.hooks;
	stat->ref_bytes = arrays->ref_bytes;
	stat->presence = (uint8_t *)arrays->ref_bytes + refs_bytes;
	memcpy(stat->ref_bytes, found->ref_bytes, refs_bytes);
	memcpy(stat->presence, t->presence, presence_bytes);
	return 0;
}

static void arrays_destroy(uint64_t *ref_bytes)
{
	struct arrays *arrays;
	struct kvt__env env;

	if (ref_bytes == NULL)
		return;
	arrays = (struct arrays *)((char *)ref_bytes - offsetof(struct arrays, ref_bytes));
	env.hooks = arrays->env.hooks;
	kvt__free(&env, arrays);
}

static void take_key(struct kvt_object_stat *stat, const void *hash, uint32_t hash_bytes,
		     uint32_t group)
{
	memset(stat->hash, 0, sizeof(stat->hash));
	memcpy(stat->hash, hash, hash_bytes);
	stat->hash_bytes = hash_bytes;
	stat->group = group;
}

/* What only a trailer that is fine in itself tells. */
static int take_trailer(struct kvt_store *store, const struct kvt__inspection *found,
			struct kvt_object_stat *stat)
{
	const struct kvt__trailer *t = &found->parsed;
	uint32_t hash_bytes = t->key_bytes - 4;
	const uint8_t *group = t->key + hash_bytes;

	take_key(stat, t->key, hash_bytes,
		 (uint32_t)group[0] << 24 | (uint32_t)group[1] << 16 | (uint32_t)group[2] << 8 |
			 group[3]);
	stat->blocks_per_chunk = t->blocks_per_chunk;
	stat->ref_count = t->ref_count;
	stat->slot_count = t->slot_count;
	stat->rank = t->rank;
	memcpy(stat->namespace_digest, t->digest, sizeof(stat->namespace_digest));
	for (uint32_t s = 0; s < t->slot_count; s++)
		stat->present_slots += kvt__trailer_has(t, s);
	return arrays_create(store, found, stat);
}

static int take_found(struct kvt_store *store, const struct kvt__inspection *found,
		      const struct kvt_key *key, struct kvt_object_stat *stat)
{
	stat->state = found->state;
	stat->format_version = found->version;
	stat->object_bytes = found->info.object_bytes;
	stat->payload_bytes = found->payload_bytes;
	stat->trailer_bytes = found->trailer_bytes;
	stat->age_ns = found->info.age_ns;
	stat->access_age_ns = found->info.access_age_ns;
	if (found->ref_bytes != NULL)
		return take_trailer(store, found, stat);
	take_key(stat, key->hash, key->hash_bytes, key->group);
	return 0;
}

int kvt_store_stat(struct kvt_store *store, const struct kvt_key *key, struct kvt_object_stat *stat)
{
	const size_t least = offsetof(struct kvt_object_stat, presence) + sizeof(stat->presence);
	struct kvt_object_stat ours = {.age_ns = -1, .access_age_ns = -1};
	struct kvt__inspection found = {0};
	struct kvt__sync sync;
	char name[KVT_NAME_BYTES];
	int error = kvt__store_check(store, "kvt_store_stat");

	if (error == 0 && stat == NULL)
		error = kvt__fail(KVT_EINVAL, "kvt_store_stat: stat: NULL");
	if (error != 0)
		return error;
	error = kvt__copy_out(stat, &ours, sizeof(ours), least, "kvt_store_stat: stat");
	if (error == 0)
		error = kvt__store_key_check(key, "kvt_store_stat");
	if (error == 0)
		error = kvt__sync_open(&sync, store, true);
	if (error != 0)
		return error;
	(void)kvt__object_name(&store->ns, key->hash, key->hash_bytes, key->group, name);
	error = kvt__inspect(&sync, name, key, &found);
	if (error == 0)
		error = take_found(store, &found, key, &ours);
	kvt__inspection_fini(&found, &store->env);
	kvt__sync_close(&sync);
	if (error == 0)
		error = kvt__copy_out(stat, &ours, sizeof(ours), least, "kvt_store_stat: stat");
	return error;
}

void kvt_object_stat_clear(struct kvt_object_stat *stat)
{
	size_t bytes;

	if (stat == NULL)
		return;
	arrays_destroy(stat->ref_bytes);
	bytes = stat->struct_size < sizeof(*stat) ? stat->struct_size : sizeof(*stat);
	if (bytes > sizeof(bytes))
		memset((char *)stat + sizeof(bytes), 0, bytes - sizeof(bytes));
}

struct listing {
	struct kvt_store *store;
	kvt_list_fn callback;
	void *context;
};

static int list_one(void *context, const struct kvt_list_item *item)
{
	struct listing *listing = context;
	struct kvt_list_entry entry = {
		.name = item->name,
		.object_bytes = item->info.object_bytes,
		.age_ns = item->info.age_ns,
		.access_age_ns = item->info.access_age_ns,
	};
	uint8_t hash[64];

	if (kvt__object_name_parse(&listing->store->ns, item->name, hash, &entry.key.hash_bytes,
				   &entry.key.group))
		entry.key.hash = hash;
	else
		memset(&entry.key, 0, sizeof(entry.key));
	return listing->callback(listing->context, &entry);
}

int kvt_store_list(struct kvt_store *store, kvt_list_fn callback, void *context)
{
	struct listing listing = {store, callback, context};
	struct kvt__sync sync;
	int result = kvt__store_check(store, "kvt_store_list");

	if (result == 0 && callback == NULL)
		result = kvt__fail(KVT_EINVAL, "kvt_store_list: callback: NULL");
	if (result == 0)
		result = kvt__sync_open(&sync, store, true);
	if (result != 0)
		return result;
	result = kvt__list_each(&sync, store->ns.object_prefix, list_one, &listing);
	kvt__sync_close(&sync);
	return result;
}

int kvt_store_remove(struct kvt_store *store, const struct kvt_key *key)
{
	struct kvt__sync sync;
	char name[KVT_NAME_BYTES];
	int error = kvt__store_check(store, "kvt_store_remove");

	if (error == 0)
		error = kvt__store_key_check(key, "kvt_store_remove");
	if (error == 0)
		error = kvt__sync_open(&sync, store, true);
	if (error != 0)
		return error;
	(void)kvt__object_name(&store->ns, key->hash, key->hash_bytes, key->group, name);
	error = kvt__sync_remove(&sync, name, NULL);
	kvt__sync_close(&sync);
	return error;
}

static void tell_options(const struct kvt_option_spec *specs, kvt_option_help_fn callback,
			 void *context)
{
	for (; specs != NULL && specs->name != NULL; specs++)
		callback(context, specs->name, specs->default_value, specs->help);
}

int kvt_store_option_help(const char *uri, kvt_option_help_fn callback, void *context)
{
	struct kvt__place place;
	struct kvt__env env;
	int error;

	if (uri == NULL || callback == NULL)
		return kvt__fail(KVT_EINVAL, "kvt_store_option_help: %s: NULL",
				 uri == NULL ? "uri" : "callback");
	error = kvt__env_init(&env, NULL);
	if (error != 0)
		return error;
	error = kvt__place_init(&place, &env, uri, NULL, 0);
	if (error == 0) {
		for (uint32_t i = 0; i < place.count; i++)
			tell_options(place.ops[i]->option_specs, callback, context);
		tell_options(kvt__setting_specs, callback, context);
		kvt__place_fini(&place, &env);
	}
	kvt__env_fini(&env);
	return error;
}
