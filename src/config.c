/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.json: what a namespace was made from, beside its objects. The fields at the top level as
 * vLLM writes them, so that either side reads the other's file, and one member of our own. Any
 * thread.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "canonical.h"
#include "name.h"

#define FORMAT_VERSION 1
#define READY_MADE     "namespace"
#define VALUE_BYTES    48 /* of one value in a message */
#define PATH_BYTES     96

static const char *fanout_name(enum kvt__fanout fanout)
{
	return fanout == KVT__FANOUT_FLAT ? "flat" : "vllm";
}

static int no_memory(void)
{
	return kvt__fail(KVT_ENOMEM, "config.json: out of memory");
}

/* What a store of this namespace writes, without the member of our own. */
static int own_object(const struct kvt__namespace *ns, json_t **objectp)
{
	if (!ns->ready_made)
		return kvt__json_read("fields", ns->canonical, strlen(ns->canonical), objectp);
	*objectp = json_pack("{s:s}", READY_MADE, ns->canonical);
	return *objectp ? 0 : no_memory();
}

static int check_seed(const char *hash_seed)
{
	size_t bad;

	if (hash_seed && !kvt__utf8_valid(hash_seed, strlen(hash_seed), &bad))
		return kvt__fail(KVT_EINVAL, "hash_seed: invalid UTF-8 at byte %zu", bad);
	return 0;
}

char *kvt__config_name(const struct kvt__namespace *ns, const struct kvt__env *env)
{
	static const char rest[] = "/config.json";
	size_t bytes = strlen(ns->base_name);
	char *name = kvt__alloc(env, bytes + sizeof(rest));

	if (name) {
		memcpy(name, ns->base_name, bytes);
		memcpy(name + bytes, rest, sizeof(rest));
	}
	return name;
}

int kvt__config_text(const struct kvt__namespace *ns, const struct kvt__env *env,
		     const char *hash_seed, char **textp)
{
	json_t *object, *member;
	int error;

	*textp = NULL;
	error = check_seed(hash_seed);
	if (!error)
		error = own_object(ns, &object);
	if (error)
		return error;
	member = json_pack("{s:i, s:s, s:s*}", "format", FORMAT_VERSION, "fanout",
			   fanout_name(ns->fanout), "hash_seed", hash_seed);
	if (json_object_set_new(object, KVT__CONFIG_MEMBER, member) != 0)
		error = no_memory();
	else
		error = kvt__json_canonical(env, object, textp);
	json_decref(object);
	return error;
}

/* Where in the file a difference is: "kv_cache_groups[0].tokens_per_block". What does not fit is
 * left out. */
struct path {
	char text[PATH_BYTES];
	size_t bytes;
};

static void KVT_PRINTF(2, 3) path_add(struct path *path, const char *format, ...)
{
	size_t room = sizeof(path->text) - path->bytes;
	va_list args;
	int bytes;

	va_start(args, format);
	bytes = vsnprintf(path->text + path->bytes, room, format, args);
	va_end(args);
	if (bytes > 0)
		path->bytes += (size_t)bytes < room ? (size_t)bytes : room - 1;
}

/* The text of a value; newly allocated when *allocatedp is set. */
static const char *value_text(const struct kvt__env *env, const json_t *value, char **allocatedp)
{
	*allocatedp = NULL;
	if (!value)
		return "absent";
	if (kvt__json_canonical(env, value, allocatedp) == 0)
		return *allocatedp;
	if (json_is_number(value))
		return json_is_real(value) ? "a real number" : "an integer out of range";
	if (json_is_string(value))
		return "a string";
	return json_is_array(value) ? "a list" : "an object";
}

/* Writes a value so that what differs from byte `from` on is seen. */
static const char *shorten(char out[VALUE_BYTES], const char *text, size_t from)
{
	size_t bytes = strlen(text), start = from > VALUE_BYTES / 2 ? from - VALUE_BYTES / 4 : 0;

	if (bytes < VALUE_BYTES)
		start = 0;
	(void)snprintf(out, VALUE_BYTES, "%s%.*s%s", start ? "..." : "", VALUE_BYTES - 7,
		       text + start, bytes - start > VALUE_BYTES - 7 ? "..." : "");
	return out;
}

static int differs(const struct kvt__env *env, const struct path *path, const json_t *theirs,
		   const json_t *ours)
{
	char found[VALUE_BYTES], wanted[VALUE_BYTES], *theirs_memory, *ours_memory;
	const char *theirs_text = value_text(env, theirs, &theirs_memory);
	const char *ours_text = value_text(env, ours, &ours_memory);
	size_t same = 0;
	int error;

	while (theirs_text[same] && theirs_text[same] == ours_text[same])
		same++;
	error = kvt__fail(KVT_ENAMESPACE, "config.json: %s is %s, expected %s", path->text,
			  shorten(found, theirs_text, same), shorten(wanted, ours_text, same));
	kvt__free(env, theirs_memory);
	kvt__free(env, ours_memory);
	return error;
}

static int compare_value(const struct kvt__env *env, const struct path *path, const json_t *theirs,
			 const json_t *ours);

static int by_name(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* One member that at least one side has. */
static int compare_member(const struct kvt__env *env, const struct path *path, const char *name,
			  const json_t *theirs, const json_t *ours)
{
	struct path inner = *path;

	path_add(&inner, path->bytes ? ".%s" : "%s", name);
	return compare_value(env, &inner, json_object_get(theirs, name),
			     json_object_get(ours, name));
}

/*
 * Members in the order of their names. At the top of the file only those of ours and the fields
 * that names are derived from take part: what else others keep there is theirs.
 */
static int compare_objects(const struct kvt__env *env, const struct path *path,
			   const json_t *theirs, const json_t *ours, bool top)
{
	size_t fields = 0, count = 0;
	const char **names, *name;
	json_t *value;
	int error = 0;

	while (kvt__field_names[fields])
		fields++;
	names = kvt__alloc(env, (json_object_size(ours) + json_object_size(theirs) + fields) *
					sizeof(*names));
	if (!names)
		return no_memory();
	json_object_foreach((json_t *)(uintptr_t)ours, name, value) names[count++] = name;
	if (top) {
		for (size_t i = 0; i < fields; i++) {
			if (!json_object_get(ours, kvt__field_names[i]) &&
			    json_object_get(theirs, kvt__field_names[i]))
				names[count++] = kvt__field_names[i];
		}
	} else {
		json_object_foreach((json_t *)(uintptr_t)theirs, name, value)
		{
			if (!json_object_get(ours, name))
				names[count++] = name;
		}
	}
	qsort(names, count, sizeof(*names), by_name);
	for (size_t i = 0; i < count && !error; i++)
		error = compare_member(env, path, names[i], theirs, ours);
	kvt__free(env, names);
	return error;
}

static int compare_arrays(const struct kvt__env *env, const struct path *path, const json_t *theirs,
			  const json_t *ours)
{
	size_t theirs_count = json_array_size(theirs), ours_count = json_array_size(ours);
	int error = 0;

	for (size_t i = 0; i < theirs_count && i < ours_count && !error; i++) {
		struct path inner = *path;
		path_add(&inner, "[%zu]", i);
		error = compare_value(env, &inner, json_array_get(theirs, i),
				      json_array_get(ours, i));
	}
	if (!error && theirs_count != ours_count)
		error = kvt__fail(KVT_ENAMESPACE, "config.json: %s has %zu entries, expected %zu",
				  path->text, theirs_count, ours_count);
	return error;
}

static int compare_value(const struct kvt__env *env, const struct path *path, const json_t *theirs,
			 const json_t *ours)
{
	if (json_is_object(theirs) && json_is_object(ours))
		return compare_objects(env, path, theirs, ours, false);
	if (json_is_array(theirs) && json_is_array(ours))
		return compare_arrays(env, path, theirs, ours);
	if (theirs && ours && json_equal(theirs, ours))
		return 0;
	return differs(env, path, theirs, ours);
}

/* Our own member: an absent format means 1, an absent fan-out vllm; seeds are compared when both
 * sides have one. */
static int compare_own(const struct kvt__namespace *ns, const struct kvt__env *env,
		       const char *hash_seed, const json_t *member)
{
	const struct path path = {.text = KVT__CONFIG_MEMBER,
				  .bytes = sizeof(KVT__CONFIG_MEMBER) - 1};
	json_t *theirs, *ours;
	int error;

	if (member && !json_is_object(member))
		return kvt__fail(KVT_ENAMESPACE, "config.json: %s is no object, expected one",
				 path.text);
	error = check_seed(hash_seed);
	if (error)
		return error;
	theirs = json_pack("{s:i, s:s}", "format", 1, "fanout", "vllm");
	ours = json_pack("{s:i, s:s, s:s*}", "format", FORMAT_VERSION, "fanout",
			 fanout_name(ns->fanout), "hash_seed", hash_seed);
	if (!theirs || !ours ||
	    (member && json_object_update(theirs, (json_t *)(uintptr_t)member) != 0)) {
		json_decref(theirs);
		json_decref(ours);
		return no_memory();
	}
	error = compare_member(env, &path, "format", theirs, ours);
	if (!error)
		error = compare_member(env, &path, "fanout", theirs, ours);
	if (!error && hash_seed && json_object_get(theirs, "hash_seed"))
		error = compare_member(env, &path, "hash_seed", theirs, ours);
	json_decref(theirs);
	json_decref(ours);
	return error;
}

int kvt__config_compare(const struct kvt__namespace *ns, const struct kvt__env *env,
			const char *hash_seed, const char *text, size_t bytes)
{
	const struct path top = {.bytes = 0};
	json_t *theirs, *ours;
	int error;

	error = kvt__json_read("config.json", text, bytes, &theirs);
	if (error == KVT_EINVAL)
		return kvt__fail(KVT_EPROTO, "%s", kvt_error_detail());
	if (error)
		return error;
	if (!json_is_object(theirs)) {
		json_decref(theirs);
		return kvt__fail(KVT_EPROTO, "config.json: expected a JSON object");
	}
	error = own_object(ns, &ours);
	if (error) {
		json_decref(theirs);
		return error;
	}
	error = compare_objects(env, &top, theirs, ours, true);
	if (!error)
		error = compare_own(ns, env, hash_seed,
				    json_object_get(theirs, KVT__CONFIG_MEMBER));
	json_decref(theirs);
	json_decref(ours);
	return error;
}
