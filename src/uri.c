/* SPDX-License-Identifier: Apache-2.0 */
/*
 * URIs are <scheme>:<location>. A scheme names a backend, or a wrapper and what it wraps:
 * "fault+file:///srv/kv" is "fault" around "file:///srv/kv". A backend's own name may have a plus
 * in it; the longest name that is known wins.
 */
#include "uri.h"

#include <stdio.h>
#include <string.h>

#include "registry.h"

#define MAX_OPTION_NAME 64

static int push(struct kvt__place *place, const char *scheme)
{
	const struct kvt_backend_ops *ops = kvt__backend_get(scheme);

	if (place->count == KVT__MAX_WRAPPED)
		return kvt__fail(KVT_EINVAL, "uri: more than %d schemes joined by +",
				 KVT__MAX_WRAPPED);
	place->ops[place->count++] = ops;
	return 0;
}

/* The wrapper that a scheme begins with: 1 with *restp behind its plus, 0 when it does not begin
 * with one. */
static int wrapper_of(struct kvt__place *place, struct kvt__env *env, const char *scheme,
		      char *head, const char **restp)
{
	const char *plus = strchr(scheme, '+');
	const struct kvt_backend_ops *ops;
	struct kvt_backend_ops loaded;

	if (plus == NULL)
		return 0;
	memcpy(head, scheme, (size_t)(plus - scheme));
	head[plus - scheme] = '\0';
	ops = kvt__backend_get(head);
	if (ops == NULL) {
		int error = kvt__backend_find(env, head, place->settings.module_dir, NULL, &loaded);

		if (error == KVT_EMODULE)
			return error;
		ops = kvt__backend_get(head);
	}
	if (ops == NULL || !ops->wraps)
		return 0;
	*restp = plus + 1;
	return 1;
}

static int resolve(struct kvt__place *place, struct kvt__env *env, const char *scheme)
{
	char head[KVT__SCHEME_BYTES];
	const char *rest = scheme;
	struct kvt_backend_ops found;
	int error = 0;

	while (kvt__backend_get(rest) == NULL) {
		int is_wrapper = wrapper_of(place, env, rest, head, &rest);

		if (is_wrapper < 0)
			return is_wrapper;
		if (is_wrapper == 0)
			break;
		error = push(place, head);
		if (error != 0)
			return error;
	}
	/* The file that an option names is the innermost backend's. */
	error = kvt__backend_find(env, rest, place->settings.module_dir, place->settings.module,
				  &found);
	if (error == 0)
		error = push(place, rest);
	if (error == 0 && found.wraps)
		error = kvt__fail(
			KVT_EINVAL,
			"scheme \"%s\": wraps another backend, expected %s+<scheme>:", rest, rest);
	return error;
}

static int parse(struct kvt__place *place, struct kvt__env *env, const char *uri)
{
	char scheme[KVT__SCHEME_BYTES];
	const char *colon = strchr(uri, ':');
	size_t bytes = colon != NULL ? (size_t)(colon - uri) : 0;
	int error;

	for (const char *c = uri; *c != '\0'; c++)
		if ((unsigned char)*c < 0x20 || *c == 0x7f)
			return kvt__fail(KVT_EINVAL, "uri: byte %td is a control character",
					 c - uri);
	if (strnlen(uri, KVT__MAX_URI + 1) > KVT__MAX_URI)
		return kvt__fail(KVT_EINVAL, "uri: longer than %d bytes", KVT__MAX_URI);
	if (colon == NULL)
		return kvt__fail(KVT_EINVAL,
				 "uri: \"%.40s\", expected <scheme>:<location> such as "
				 "file:///srv/kv",
				 uri);
	if (bytes < sizeof(scheme)) {
		memcpy(scheme, uri, bytes);
		scheme[bytes] = '\0';
	}
	if (bytes >= sizeof(scheme) || !kvt__scheme_ok(scheme))
		return kvt__fail(KVT_EINVAL,
				 "uri: scheme \"%.*s\", expected at most %d of [a-z0-9], parts "
				 "joined by +",
				 (int)(bytes < 80 ? bytes : 80), uri, KVT__SCHEME_BYTES - 1);
	error = resolve(place, env, scheme);
	for (uint32_t i = 0; error == 0 && i < place->count; i++) {
		place->configs[i].struct_size = sizeof(place->configs[i]);
		place->configs[i].location = colon + 1;
		if (i > 0) {
			place->configs[i - 1].inner = place->ops[i];
			place->configs[i - 1].inner_config = &place->configs[i];
		}
	}
	return error;
}

static unsigned least(unsigned a, unsigned b, unsigned c)
{
	unsigned ab = a < b ? a : b;

	return ab < c ? ab : c;
}

/* How many characters must be changed, added, dropped or swapped with their neighbour. */
static unsigned distance(const char *a, const char *b)
{
	unsigned rows[3][MAX_OPTION_NAME + 1];
	size_t a_bytes = strnlen(a, MAX_OPTION_NAME), b_bytes = strnlen(b, MAX_OPTION_NAME);
	unsigned *before = rows[0], *last = rows[1], *row = rows[2];

	for (size_t j = 0; j <= b_bytes; j++)
		last[j] = (unsigned)j;
	for (size_t i = 1; i <= a_bytes; i++) {
		unsigned *spare = before;

		row[0] = (unsigned)i;
		for (size_t j = 1; j <= b_bytes; j++) {
			row[j] = least(last[j] + 1, row[j - 1] + 1,
				       last[j - 1] + (a[i - 1] != b[j - 1]));
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
			    before[j - 2] + 1 < row[j])
				row[j] = before[j - 2] + 1;
		}
		before = last;
		last = row;
		row = spare;
	}
	return last[b_bytes];
}

static void nearest_of(const struct kvt_option_spec *specs, const char *name, const char **nearestp,
		       unsigned *leastp)
{
	for (; specs != NULL && specs->name != NULL; specs++) {
		unsigned d = distance(name, specs->name);

		if (*nearestp == NULL || d < *leastp) {
			*nearestp = specs->name;
			*leastp = d;
		}
	}
}

static int unknown_option(const struct kvt__place *place, const char *name)
{
	const char *nearest = NULL;
	unsigned nearest_distance = 0;

	for (uint32_t i = 0; i < place->count; i++)
		nearest_of(place->ops[i]->option_specs, name, &nearest, &nearest_distance);
	nearest_of(kvt__setting_specs, name, &nearest, &nearest_distance);
	return kvt__fail(KVT_EINVAL, "option %.64s: unknown to %s, the nearest known is %s", name,
			 place->ops[place->count - 1]->name, nearest);
}

static bool knows(const struct kvt_option_spec *specs, const char *name)
{
	for (; specs != NULL && specs->name != NULL; specs++)
		if (strcmp(specs->name, name) == 0)
			return true;
	return false;
}

static int check_options(const struct kvt_option *options, size_t option_count)
{
	if (options == NULL && option_count > 0)
		return kvt__fail(KVT_EINVAL, "options: NULL with an option_count of %zu",
				 option_count);
	for (size_t i = 0; i < option_count; i++) {
		if (options[i].name == NULL || options[i].value == NULL)
			return kvt__fail(KVT_EINVAL, "options[%zu].%s: NULL", i,
					 options[i].name == NULL ? "name" : "value");
		for (size_t j = 0; j < i; j++)
			if (strcmp(options[i].name, options[j].name) == 0)
				return kvt__fail(KVT_EINVAL,
						 "option %.64s: given twice, at %zu and %zu",
						 options[i].name, j, i);
	}
	return 0;
}

/* Gives each backend the options that it knows. */
static int hand_out(struct kvt__place *place, struct kvt__env *env,
		    const struct kvt_option *options, size_t option_count)
{
	struct kvt_option_value *value;

	if (option_count > SIZE_MAX / sizeof(*value) / KVT__MAX_WRAPPED)
		return kvt__fail(KVT_EINVAL, "option_count: %zu", option_count);
	place->values = kvt__alloc(env, place->count * option_count * sizeof(*value));
	if (place->values == NULL)
		return kvt__fail(KVT_ENOMEM, "options: out of memory");
	value = place->values;
	for (uint32_t i = 0; i < place->count; i++) {
		place->configs[i].options = value;
		for (size_t o = 0; o < option_count; o++) {
			if (knows(kvt__setting_specs, options[o].name) ||
			    !knows(place->ops[i]->option_specs, options[o].name))
				continue;
			value->name = options[o].name;
			value->value = options[o].value;
			value++;
			place->configs[i].option_count++;
		}
	}
	for (size_t o = 0; o < option_count; o++) {
		bool known = knows(kvt__setting_specs, options[o].name);

		for (uint32_t i = 0; i < place->count && !known; i++)
			known = knows(place->ops[i]->option_specs, options[o].name);
		if (!known)
			return unknown_option(place, options[o].name);
	}
	return 0;
}

int kvt__place_init(struct kvt__place *place, struct kvt__env *env, const char *uri,
		    const struct kvt_option *options, size_t option_count)
{
	int error;

	memset(place, 0, sizeof(*place));
	kvt__settings_init(&place->settings);
	if (uri == NULL)
		return kvt__fail(KVT_EINVAL, "uri: NULL, expected <scheme>:<location>");
	error = check_options(options, option_count);
	for (size_t i = 0; error == 0 && i < option_count; i++) {
		error = kvt__settings_take(&place->settings, options[i].name, options[i].value);
		error = error < 0 ? error : 0;
	}
	if (error == 0)
		error = parse(place, env, uri);
	if (error == 0)
		error = hand_out(place, env, options, option_count);
	if (error != 0)
		kvt__place_fini(place, env);
	return error;
}

void kvt__place_fini(struct kvt__place *place, struct kvt__env *env)
{
	kvt__free(env, place->values);
	place->values = NULL;
}
