/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of backends and devices by name: those built in, those that the calling program
 * registers, and those that modules bring. */
#include "registry.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What is built in; a build with further parts defines these lists itself. */
#ifndef KVT_BUILTIN_BACKENDS
#define KVT_BUILTIN_BACKENDS X(file) X(mem) X(fault)
#endif
#ifndef KVT_BUILTIN_DEVICES
#define KVT_BUILTIN_DEVICES X(host)
#endif

#define MAX_IO_PRIVATE_BYTES (1u << 20)
#define COUNT(array)	     (sizeof(array) / sizeof((array)[0]))

#define X(name) extern const struct kvt_backend_ops kvt__##name##_backend_ops;
KVT_BUILTIN_BACKENDS
#undef X
#define X(name) extern const struct kvt_device_ops kvt__##name##_device_ops;
KVT_BUILTIN_DEVICES
#undef X

struct backend_entry {
	struct backend_entry *next;
	struct kvt_backend_ops ops; /* name points to the one below */
	char name[KVT__SCHEME_BYTES];
	char *path; /* of its module, or NULL */
};

struct device_entry {
	struct device_entry *next;
	struct kvt_device_ops ops;
	char name[KVT__SCHEME_BYTES];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* leaf; guards both lists */
static struct backend_entry *backends;
static struct device_entry *devices;

/* A member that must not be NULL. */
struct member {
	const char *name;
	size_t offset;
};

#define MEMBER(type, name)                                                                         \
	{                                                                                          \
#name, offsetof(struct type, name)                                                 \
	}

static const struct member backend_members[] = {
	MEMBER(kvt_backend_ops, open),	       MEMBER(kvt_backend_ops, close),
	MEMBER(kvt_backend_ops, session_open), MEMBER(kvt_backend_ops, session_close),
	MEMBER(kvt_backend_ops, submit),
};

static const struct member device_members[] = {
	MEMBER(kvt_device_ops, open),	       MEMBER(kvt_device_ops, close),
	MEMBER(kvt_device_ops, staging_alloc), MEMBER(kvt_device_ops, staging_free),
	MEMBER(kvt_device_ops, lane_open),     MEMBER(kvt_device_ops, lane_close),
	MEMBER(kvt_device_ops, order),	       MEMBER(kvt_device_ops, order_cancel),
	MEMBER(kvt_device_ops, copy),	       MEMBER(kvt_device_ops, poll),
};

bool kvt__scheme_ok(const char *scheme)
{
	size_t bytes = strlen(scheme);

	if (bytes == 0 || bytes >= KVT__SCHEME_BYTES || scheme[0] == '+' ||
	    scheme[bytes - 1] == '+' || strstr(scheme, "++") != NULL)
		return false;
	return strspn(scheme, "abcdefghijklmnopqrstuvwxyz0123456789+") == bytes;
}

static int check_head(const void *table, uint32_t abi, size_t least, const char *what,
		      uint32_t abi_wanted)
{
	size_t bytes;

	memcpy(&bytes, table, sizeof(bytes));
	if (bytes < sizeof(size_t) + sizeof(uint32_t))
		return kvt__fail(KVT_EINVAL, "%s: struct_size: %zu, expected at least %zu", what,
				 bytes, least);
	if (abi != abi_wanted)
		return kvt__fail(KVT_EINVAL, "%s: abi: %u, expected %u", what, abi, abi_wanted);
	if (bytes < least)
		return kvt__fail(KVT_EINVAL, "%s: struct_size: %zu, expected at least %zu", what,
				 bytes, least);
	return 0;
}

static int check_name(const char *name, const char *what)
{
	if (name == NULL)
		return kvt__fail(KVT_EINVAL, "%s: name: NULL, expected a scheme", what);
	if (!kvt__scheme_ok(name))
		return kvt__fail(KVT_EINVAL,
				 "%s: name: \"%.80s\", expected at most %d of [a-z0-9], parts "
				 "joined by +",
				 what, name, KVT__SCHEME_BYTES - 1);
	return 0;
}

static int check_members(const void *table, const struct member *members, size_t count,
			 const char *what)
{
	for (size_t i = 0; i < count; i++) {
		void (*function)(void);

		memcpy(&function, (const char *)table + members[i].offset, sizeof(function));
		if (function == NULL)
			return kvt__fail(KVT_EINVAL, "%s: %s: NULL, expected a function", what,
					 members[i].name);
	}
	return 0;
}

static int check_private_bytes(size_t bytes, const char *what)
{
	if (bytes > MAX_IO_PRIVATE_BYTES)
		return kvt__fail(KVT_EINVAL, "%s: io_private_bytes: %zu, expected at most %u", what,
				 bytes, MAX_IO_PRIVATE_BYTES);
	return 0;
}

static int check_specs(const struct kvt_option_spec *specs, const char *what)
{
	if (specs == NULL)
		return 0;
	for (const struct kvt_option_spec *s = specs; s->name != NULL; s++) {
		if (s->name[0] == '\0' || s->help == NULL)
			return kvt__fail(KVT_EINVAL, "%s: option_specs[%td]: \"%s\" without a %s",
					 what, s - specs, s->name,
					 s->name[0] == '\0' ? "name" : "help");
		for (const struct kvt_option_spec *t = specs; t < s; t++)
			if (strcmp(t->name, s->name) == 0)
				return kvt__fail(KVT_EINVAL,
						 "%s: option_specs[%td]: \"%s\" is there twice",
						 what, s - specs, s->name);
	}
	return 0;
}

int kvt__backend_check(const struct kvt_backend_ops *ops, const char *what,
		       struct kvt_backend_ops *padded)
{
	int error;

	if (ops == NULL)
		return kvt__fail(KVT_EINVAL, "%s: ops: NULL, expected a table", what);
	error = check_head(ops, ops->abi, offsetof(struct kvt_backend_ops, forked), what,
			   KVT_BACKEND_ABI);
	if (error != 0)
		return error;
	memset(padded, 0, sizeof(*padded));
	memcpy(padded, ops,
	       ops->struct_size < sizeof(*padded) ? ops->struct_size : sizeof(*padded));
	padded->struct_size = sizeof(*padded);
	if ((error = check_name(padded->name, what)) != 0 ||
	    (error = check_members(padded, backend_members, COUNT(backend_members), what)) != 0 ||
	    (error = check_private_bytes(padded->io_private_bytes, what)) != 0 ||
	    (error = check_specs(padded->option_specs, what)) != 0)
		return error;
	if ((padded->poll == NULL) != (padded->wake == NULL))
		return kvt__fail(KVT_EINVAL, "%s: %s: NULL, expected poll and wake or neither",
				 what, padded->poll == NULL ? "poll" : "wake");
	return 0;
}

static int device_check(const struct kvt_device_ops *ops, const char *what,
			struct kvt_device_ops *padded)
{
	int error;

	if (ops == NULL)
		return kvt__fail(KVT_EINVAL, "%s: ops: NULL, expected a table", what);
	error = check_head(ops, ops->abi, offsetof(struct kvt_device_ops, forked), what,
			   KVT_DEVICE_ABI);
	if (error != 0)
		return error;
	memset(padded, 0, sizeof(*padded));
	memcpy(padded, ops,
	       ops->struct_size < sizeof(*padded) ? ops->struct_size : sizeof(*padded));
	padded->struct_size = sizeof(*padded);
	if ((error = check_name(padded->name, what)) != 0 ||
	    (error = check_members(padded, device_members, COUNT(device_members), what)) != 0 ||
	    (error = check_private_bytes(padded->io_private_bytes, what)) != 0)
		return error;
	if (padded->check == NULL && !(padded->capabilities & KVT_DEVICE_HOST_MEMORY))
		return kvt__fail(KVT_EINVAL,
				 "%s: check: NULL, expected a function without the capability "
				 "KVT_DEVICE_HOST_MEMORY",
				 what);
	if (padded->mark != NULL && (padded->mark_query == NULL || padded->mark_release == NULL))
		return kvt__fail(KVT_EINVAL,
				 "%s: %s: NULL, expected a function beside one for mark", what,
				 padded->mark_query == NULL ? "mark_query" : "mark_release");
	if (padded->staging_register != NULL && padded->staging_unregister == NULL)
		return kvt__fail(KVT_EINVAL,
				 "%s: staging_unregister: NULL, expected a function beside one for "
				 "staging_register",
				 what);
	return 0;
}

static struct backend_entry *backend_find_locked(const char *name)
{
	for (struct backend_entry *e = backends; e != NULL; e = e->next)
		if (strcmp(e->name, name) == 0)
			return e;
	return NULL;
}

static struct device_entry *device_find_locked(const char *name)
{
	for (struct device_entry *e = devices; e != NULL; e = e->next)
		if (strcmp(e->name, name) == 0)
			return e;
	return NULL;
}

static void backend_entry_fill(struct backend_entry *entry, const struct kvt_backend_ops *padded)
{
	entry->ops = *padded;
	(void)snprintf(entry->name, sizeof(entry->name), "%s", padded->name);
	entry->ops.name = entry->name;
}

static void device_entry_fill(struct device_entry *entry, const struct kvt_device_ops *padded)
{
	entry->ops = *padded;
	(void)snprintf(entry->name, sizeof(entry->name), "%s", padded->name);
	entry->ops.name = entry->name;
}

static void register_builtin(void)
{
#define X(name) &kvt__##name##_backend_ops,
	static const struct kvt_backend_ops *const builtin_backends[] = {KVT_BUILTIN_BACKENDS};
#undef X
#define X(name) &kvt__##name##_device_ops,
	static const struct kvt_device_ops *const builtin_devices[] = {KVT_BUILTIN_DEVICES};
#undef X
	static struct backend_entry backend_entries[COUNT(builtin_backends)];
	static struct device_entry device_entries[COUNT(builtin_devices)];

	/* A table that the check refuses is left out, so that opening it says that it is unknown.
	 */
	for (size_t i = 0; i < COUNT(builtin_backends); i++) {
		struct kvt_backend_ops padded;
		int error = kvt__backend_check(builtin_backends[i], "built in", &padded);

		assert(error == 0);
		if (error != 0)
			continue;
		backend_entry_fill(&backend_entries[i], &padded);
		backend_entries[i].next = backends;
		backends = &backend_entries[i];
	}
	for (size_t i = 0; i < COUNT(builtin_devices); i++) {
		struct kvt_device_ops padded;
		int error = device_check(builtin_devices[i], "built in", &padded);

		assert(error == 0);
		if (error != 0)
			continue;
		device_entry_fill(&device_entries[i], &padded);
		device_entries[i].next = devices;
		devices = &device_entries[i];
	}
}

void kvt__register_builtin(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	(void)pthread_once(&once, register_builtin);
}

int kvt__backend_add(const struct kvt_backend_ops *padded, const char *path)
{
	struct backend_entry *entry = calloc(1, sizeof(*entry)), *old;
	char *path_copy = path != NULL ? strdup(path) : NULL;
	char old_path[256] = "";
	bool same = false;

	kvt__register_builtin();
	if (entry == NULL || (path != NULL && path_copy == NULL)) {
		free(entry);
		free(path_copy);
		return kvt__fail(KVT_ENOMEM, "backend \"%s\": out of memory", padded->name);
	}
	backend_entry_fill(entry, padded);
	entry->path = path_copy;
	pthread_mutex_lock(&lock);
	old = backend_find_locked(entry->name);
	if (old == NULL) {
		entry->next = backends;
		backends = entry;
	} else if (old->path != NULL) {
		same = path != NULL && strcmp(old->path, path) == 0;
		(void)snprintf(old_path, sizeof(old_path), " from %s", old->path);
	}
	pthread_mutex_unlock(&lock);
	if (old == NULL)
		return 0;
	free(path_copy);
	free(entry);
	if (same)
		return 0;
	return kvt__fail(KVT_EEXIST, "backend \"%s\": is registered already%s", padded->name,
			 old_path);
}

const struct kvt_backend_ops *kvt__backend_get(const char *scheme)
{
	struct backend_entry *entry;

	kvt__register_builtin();
	pthread_mutex_lock(&lock);
	entry = backend_find_locked(scheme);
	pthread_mutex_unlock(&lock);
	return entry != NULL ? &entry->ops : NULL; /* entries are never changed */
}

void kvt__backend_names(char *buffer, size_t buffer_bytes)
{
	size_t used = 0;

	kvt__register_builtin();
	buffer[0] = '\0';
	pthread_mutex_lock(&lock);
	for (struct backend_entry *e = backends; e != NULL && used < buffer_bytes; e = e->next)
		used += (size_t)snprintf(buffer + used, buffer_bytes - used, "%s%s",
					 used > 0 ? ", " : "", e->name);
	pthread_mutex_unlock(&lock);
}

static int unknown_scheme(const char *scheme, const char *path)
{
	char names[256];

	kvt__backend_names(names, sizeof(names));
	return kvt__fail(KVT_EINVAL, "scheme \"%s\": unknown, expected one of %s, or a module %s",
			 scheme, names, path);
}

int kvt__backend_find(struct kvt__env *env, const char *scheme, const char *module_dir,
		      const char *module_path, struct kvt_backend_ops *ops)
{
	const struct kvt_backend_ops *table = module_path == NULL ? kvt__backend_get(scheme) : NULL;
	char *path = NULL;
	int error = 0;

	if (table == NULL && module_path == NULL) {
		path = kvt__module_path(env, scheme, module_dir);
		if (path == NULL)
			return kvt__fail(KVT_ENOMEM, "scheme \"%s\": out of memory", scheme);
		module_path = path;
		if (path[0] == '/' && access(path, F_OK) != 0)
			error = unknown_scheme(scheme, path);
	}
	if (table == NULL && error == 0) {
		error = kvt__module_load(scheme, module_path);
		table = kvt__backend_get(scheme);
	}
	if (error == 0)
		*ops = *table;
	kvt__free(env, path);
	return error;
}

int kvt__device_find(const char *name, struct kvt_device_ops *ops)
{
	struct device_entry *entry;
	char names[256] = "";
	size_t used = 0;

	kvt__register_builtin();
	pthread_mutex_lock(&lock);
	entry = device_find_locked(name);
	if (entry != NULL)
		*ops = entry->ops;
	for (struct device_entry *e = devices; e != NULL && used < sizeof(names); e = e->next)
		used += (size_t)snprintf(names + used, sizeof(names) - used, "%s%s",
					 used > 0 ? ", " : "", e->name);
	pthread_mutex_unlock(&lock);
	if (entry == NULL)
		return kvt__fail(KVT_EINVAL, "device \"%.64s\": unknown, expected one of %s", name,
				 names);
	return 0;
}

int kvt_backend_register(const struct kvt_backend_ops *ops)
{
	struct kvt_backend_ops padded;
	int error = kvt__backend_check(ops, "kvt_backend_register", &padded);

	return error != 0 ? error : kvt__backend_add(&padded, NULL);
}

int kvt_device_register(const struct kvt_device_ops *ops)
{
	struct kvt_device_ops padded;
	struct device_entry *entry;
	bool taken;
	int error = device_check(ops, "kvt_device_register", &padded);

	if (error != 0)
		return error;
	kvt__register_builtin();
	entry = calloc(1, sizeof(*entry));
	if (entry == NULL)
		return kvt__fail(KVT_ENOMEM, "kvt_device_register: out of memory");
	device_entry_fill(entry, &padded);
	pthread_mutex_lock(&lock);
	taken = device_find_locked(entry->name) != NULL;
	if (!taken) {
		entry->next = devices;
		devices = entry;
	}
	pthread_mutex_unlock(&lock);
	if (!taken)
		return 0;
	free(entry);
	return kvt__fail(KVT_EEXIST, "device \"%s\": is registered already", padded.name);
}
