/* SPDX-License-Identifier: Apache-2.0 */
/* Opening and closing a store: a place, a namespace in it and the limits of its backend. */
#include "store.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "maintenance.h"
#include "uri.h"

#define DEFAULT_MAX_PART_BYTES	 (UINT64_C(1) << 46)
#define DEFAULT_MAX_OBJECT_BYTES ((UINT64_C(1) << 46) + (UINT64_C(1) << 32))
#define MAX_ALIGNMENT		 4096 /* of staging memory */

int kvt__store_check(const struct kvt_store *store, const char *call)
{
	if (store == NULL)
		return kvt__fail(KVT_EINVAL, "%s: store: NULL", call);
	if (store->fork_generation != kvt__fork_generation)
		return kvt__fail(KVT_EFORK, "%s: store: opened before a fork", call);
	return 0;
}

int kvt__store_key_check(const struct kvt_key *key, const char *call)
{
	if (key == NULL || key->hash == NULL)
		return kvt__fail(KVT_EINVAL, "%s: %s: NULL", call,
				 key == NULL ? "key" : "key->hash");
	if (key->hash_bytes < 1 || key->hash_bytes > 64)
		return kvt__fail(KVT_EINVAL, "%s: key->hash_bytes: %u, expected 1 to 64", call,
				 key->hash_bytes);
	return 0;
}

int kvt__copy_out(void *to, const void *from, size_t bytes, size_t least, const char *what)
{
	size_t room;

	memcpy(&room, to, sizeof(room));
	if (room < least)
		return kvt__fail(KVT_EINVAL, "%s: struct_size: %zu, expected at least %zu", what,
				 room, least);
	if (room > bytes)
		room = bytes;
	memcpy((char *)to + sizeof(room), (const char *)from + sizeof(room), room - sizeof(room));
	return 0;
}

static void limits_init(struct kvt_backend_limits *limits, const struct kvt_backend_ops *ops)
{
	memset(limits, 0, sizeof(*limits));
	limits->struct_size = sizeof(*limits);
	limits->min_part_bytes = 1;
	limits->max_part_bytes = DEFAULT_MAX_PART_BYTES;
	limits->max_object_bytes = DEFAULT_MAX_OBJECT_BYTES;
	limits->max_parts = 1u << 20;
	limits->max_iov = 1024;
	limits->memory_alignment = 1;
	limits->max_name_bytes = KVT_NAME_BYTES - 1;
	limits->default_depth = ops->poll != NULL ? 16 : 1;
}

/* What the core would stumble over later is the backend's fault. */
static int limits_check(const struct kvt_backend_limits *limits, const char *backend)
{
	const char *what = NULL;
	uint64_t value = 0;

	if (limits->min_part_bytes == 0 || limits->min_part_bytes > limits->max_part_bytes)
		what = "min_part_bytes", value = limits->min_part_bytes;
	else if (limits->max_object_bytes == 0)
		what = "max_object_bytes";
	else if (limits->max_parts == 0)
		what = "max_parts";
	else if (limits->max_iov < 2)
		what = "max_iov", value = limits->max_iov;
	else if (limits->memory_alignment == 0 || limits->memory_alignment > MAX_ALIGNMENT ||
		 (limits->memory_alignment & (limits->memory_alignment - 1)) != 0)
		what = "memory_alignment", value = limits->memory_alignment;
	else if (limits->default_depth == 0)
		what = "default_depth";
	else if (memchr(limits->detail, '\0', sizeof(limits->detail)) == NULL)
		what = "detail";
	if (what != NULL)
		return kvt__fail(KVT_EINTERNAL, "backend %s: limit %s: %llu is not possible",
				 backend, what, (unsigned long long)value);
	return 0;
}

static int no_memory(void)
{
	return kvt__fail(KVT_ENOMEM, "kvt_store_open: out of memory");
}

static int take_settings(struct kvt_store *store, const struct kvt__settings *settings)
{
	store->accept_raw = settings->accept_raw;
	store->min_coverage = settings->min_coverage;
	store->max_bytes = settings->max_bytes;
	store->high_watermark = settings->high_watermark;
	store->low_watermark = settings->low_watermark;
	if (settings->hash_seed == NULL)
		return 0;
	store->hash_seed = kvt__strdup(&store->env, settings->hash_seed);
	return store->hash_seed != NULL ? 0 : no_memory();
}

/* Everything that can be refused before the place is touched. */
static int prepare(struct kvt_store *store, const struct kvt_store_options *options,
		   const struct kvt__place *place)
{
	int error = kvt__settings_check(&place->settings, options->mode);

	store->ops = *place->ops[0];
	store->mode = options->mode;
	if (error == 0)
		error = take_settings(store, &place->settings);
	if (error == 0)
		error = kvt__namespace_init(&store->ns, &store->env, options,
					    place->settings.vllm_objects ? KVT__FANOUT_VLLM_OBJECTS
									 : place->settings.fanout);
	if (error == 0 && kvt__object_name_max(&store->ns) > KVT_NAME_BYTES)
		error = kvt__fail(KVT_EINVAL,
				  "namespace: \"%.100s\" makes names of %zu bytes, "
				  "expected at most %d",
				  store->ns.base_name, kvt__object_name_max(&store->ns) - 1,
				  KVT_NAME_BYTES - 1);
	if (error == 0)
		error = kvt__config_text(&store->ns, &store->env, store->hash_seed,
					 &store->config_text);
	if (error != 0)
		return error;
	store->uri = kvt__strdup(&store->env, options->uri);
	store->config_name = kvt__config_name(&store->ns, &store->env);
	return store->uri != NULL && store->config_name != NULL ? 0 : no_memory();
}

static int open_backend(struct kvt_store *store, const struct kvt__place *place)
{
	int error;

	limits_init(&store->limits, &store->ops);
	error = store->ops.open(&store->env.host, &place->configs[0], &store->backend,
				&store->limits);
	if (error > 0) /* a backend that lost its way */
		error = kvt__fail(KVT_EINTERNAL, "backend %s: open answered %d", store->ops.name,
				  error);
	if (error != 0)
		return error;
	error = limits_check(&store->limits, store->ops.name);
	if (error == 0 && kvt__object_name_max(&store->ns) - 1 > store->limits.max_name_bytes)
		error = kvt__fail(KVT_EINVAL,
				  "namespace: \"%.100s\" makes names of %zu bytes, "
				  "expected at most %u in this place",
				  store->ns.base_name, kvt__object_name_max(&store->ns) - 1,
				  store->limits.max_name_bytes);
	if (error == 0 && store->ns.fanout == KVT__FANOUT_VLLM_OBJECTS)
		atomic_store(&store->config_state, KVT__CONFIG_OK); /* there is none */
	else if (error == 0)
		error = kvt__store_compare_config(store);
	if (error == 0 && store->max_bytes > 0)
		error = kvt__maintenance_start(store);
	if (error != 0)
		store->ops.close(store->backend);
	return error;
}

static void free_members(struct kvt_store *store)
{
	kvt__namespace_fini(&store->ns, &store->env);
	kvt__free(&store->env, store->config_name);
	kvt__free(&store->env, store->config_text);
	kvt__free(&store->env, store->hash_seed);
	kvt__free(&store->env, store->uri);
	pthread_mutex_destroy(&store->bad.lock);
	pthread_mutex_destroy(&store->config_lock);
}

/* Frees the struct itself, with the hooks that it holds. */
static void free_store(struct kvt_store *store)
{
	struct kvt__env outer = {.hooks = store->env.hooks};

	free_members(store);
	kvt__env_fini(&store->env);
	kvt__free(&outer, store);
}

static int check_open_options(const struct kvt_store_options *options, struct kvt_store_options *o)
{
	int error;

	if (options == NULL)
		return kvt__fail(KVT_EINVAL, "kvt_store_open: options: NULL");
	error = kvt__copy_options(o, sizeof(*o), options,
				  offsetof(struct kvt_store_options, options), "kvt_store_options");
	if (error == 0 && o->uri == NULL)
		error = kvt__fail(KVT_EINVAL, "kvt_store_open: uri: NULL, expected a URI such as "
					      "file:///srv/kv");
	if (error == 0 && o->mode > KVT_MODE_EXACT)
		error = kvt__fail(KVT_EINVAL, "kvt_store_open: mode: %u, expected 0 to %u", o->mode,
				  (unsigned)KVT_MODE_EXACT);
	if (error == 0 && o->rank > INT32_MAX)
		error = kvt__fail(KVT_EINVAL, "kvt_store_open: rank: %u, expected at most %d",
				  o->rank, INT32_MAX);
	return error;
}

int kvt_store_open(const struct kvt_store_options *options, struct kvt_store **storep)
{
	struct kvt_store_options o;
	struct kvt__place place;
	struct kvt_store *store;
	struct kvt__env outer;
	int error;

	if (storep == NULL)
		return kvt__fail(KVT_EINVAL, "kvt_store_open: storep: NULL");
	*storep = NULL;
	kvt__fork_watch();
	error = check_open_options(options, &o);
	if (error == 0)
		error = kvt__env_init(&outer, &o.hooks);
	if (error != 0)
		return error;
	store = kvt__zalloc(&outer, sizeof(*store));
	if (store != NULL && kvt__env_init(&store->env, &o.hooks) != 0) {
		kvt__free(&outer, store);
		store = NULL;
	}
	kvt__env_fini(&outer);
	if (store == NULL)
		return no_memory();
	pthread_mutex_init(&store->bad.lock, NULL);
	pthread_mutex_init(&store->config_lock, NULL);
	store->fork_generation = kvt__fork_generation;

	error = kvt__place_init(&place, &store->env, o.uri, o.options, o.option_count);
	if (error == 0) {
		error = prepare(store, &o, &place);
		if (error == 0)
			error = open_backend(store, &place);
		kvt__place_fini(&place, &store->env);
	}
	if (error != 0) {
		free_store(store);
		return error;
	}
	*storep = store;
	return 0;
}

int kvt_store_close(struct kvt_store *store)
{
	if (store == NULL)
		return 0;
	uint32_t users = atomic_load(&store->users);

	if (users != 0)
		return kvt__fail(KVT_EBUSY, "kvt_store_close: %u workers use the store", users);
	if (store->fork_generation != kvt__fork_generation) {
		kvt__maintenance_forked(store);
		if (store->ops.forked != NULL)
			store->ops.forked(store->backend);
	} else {
		kvt__maintenance_stop(store);
		store->ops.close(store->backend);
	}
	free_store(store);
	return 0;
}

void kvt__store_describe(const struct kvt_store *store, char *text, size_t bytes)
{
	text[0] = '\0';
	if (store->ops.describe)
		store->ops.describe(store->backend, text, bytes);
	text[bytes - 1] = '\0';
	for (char *c = text; *c != '\0'; c++)
		if ((unsigned char)*c < 0x20 || *c == 0x7f)
			*c = ' ';
}

int kvt_store_object_name(const struct kvt_store *store, const struct kvt_key *key, char *buffer,
			  size_t buffer_bytes)
{
	char name[KVT_NAME_BYTES];
	size_t bytes;
	int error = kvt__store_check(store, "kvt_store_object_name");

	if (error == 0)
		error = kvt__store_key_check(key, "kvt_store_object_name");
	if (error != 0)
		return error;
	if (buffer == NULL)
		return kvt__fail(KVT_EINVAL, "kvt_store_object_name: buffer: NULL");
	bytes = kvt__object_name(&store->ns, key->hash, key->hash_bytes, key->group, name);
	if (bytes >= buffer_bytes)
		return kvt__fail(KVT_EINVAL,
				 "kvt_store_object_name: buffer_bytes: %zu, expected at least %zu",
				 buffer_bytes, bytes + 1);
	memcpy(buffer, name, bytes + 1);
	return (int)bytes;
}

int kvt_store_get_info(const struct kvt_store *store, struct kvt_store_info *info)
{
	struct kvt_store_info ours = {0};
	int error = kvt__store_check(store, "kvt_store_get_info");

	if (error != 0)
		return error;
	if (info == NULL)
		return kvt__fail(KVT_EINVAL, "kvt_store_get_info: info: NULL");
	ours.uri = store->uri;
	ours.backend = store->ops.name;
	ours.canonical = store->ns.canonical;
	ours.base_name = store->ns.base_name;
	memcpy(ours.namespace_digest, store->ns.digest, sizeof(ours.namespace_digest));
	ours.rank = store->ns.rank;
	ours.mode = store->mode;
	ours.min_part_bytes = store->limits.min_part_bytes;
	ours.max_part_bytes = store->limits.max_part_bytes;
	ours.max_object_bytes = store->limits.max_object_bytes;
	ours.max_parts = store->limits.max_parts;
	ours.max_iov = store->limits.max_iov;
	ours.memory_alignment = store->limits.memory_alignment;
	ours.capabilities = store->limits.capabilities;
	ours.backend_detail = store->limits.detail;
	return kvt__copy_out(info, &ours, sizeof(ours),
			     offsetof(struct kvt_store_info, backend) + sizeof(ours.backend),
			     "kvt_store_get_info: info");
}
