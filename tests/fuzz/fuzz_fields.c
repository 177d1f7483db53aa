/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any text as the fields of a namespace: what is accepted has a canonical form that is plain ASCII
 * and stays as it is, and names that fit. Text with "|" in it is also split into the strings of a
 * struct of fields.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "name.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect(bool holds, const char *what)
{
	if (!holds) {
		fprintf(stderr, "fields: %s: %s\n", what, kvt_error_detail());
		abort();
	}
}

static void check_canonical(const struct kvt__env *env, const char *canonical)
{
	char *again;

	for (const char *c = canonical; *c; c++)
		expect(*c >= 0x20 && *c < 0x7f, "not plain ASCII");
	expect(kvt__canonical_json(env, canonical, &again) == 0, "canonical form refused");
	expect(strcmp(again, canonical) == 0, "canonical form changed");
	kvt__free(env, again);
}

static void check_namespace(const struct kvt__env *env, const struct kvt_store_options *options)
{
	struct kvt__namespace ns;
	uint8_t hash[64] = {1, 2, 3};
	uint32_t hash_bytes, group;
	char name[KVT_NAME_BYTES], *text;
	int error = kvt__namespace_init(&ns, env, options, KVT__FANOUT_VLLM);

	expect(error == 0 || error == KVT_EINVAL, "code");
	if (error) {
		expect(kvt_error_detail()[0] != '\0', "detail");
		return;
	}
	check_canonical(env, ns.canonical);
	expect(ns.object_prefix_bytes <= 256, "length of the folder");
	for (const char *c = ns.base_name; *c; c++)
		expect((unsigned char)*c >= 0x20 && *c != 0x7f && *c != '/', "base name");
	expect(kvt__object_name_max(&ns) <= sizeof(name), "longest name");
	(void)kvt__object_name(&ns, hash, sizeof(hash), UINT32_MAX, name);
	expect(kvt__object_name_parse(&ns, name, hash, &hash_bytes, &group), "parse");
	expect(kvt__object_name_any(name), "any");
	expect(kvt__config_text(&ns, env, NULL, &text) == 0, "config text");
	expect(kvt__config_compare(&ns, env, NULL, text, strlen(text)) == 0, "config compare");
	kvt__free(env, text);
	kvt__namespace_fini(&ns, env);
}

/* Cuts `text` at each "|". */
static void fields_from(struct kvt_fields *fields, char *text)
{
	const char **members[] = {
		&fields->model_name,	  &fields->dtype, &fields->inference_engine,
		&fields->kv_cache_groups, &fields->extra, &fields->canonical_format,
		&fields->storage_format,
	};

	for (size_t i = 0; i < sizeof(members) / sizeof(members[0]) && text; i++) {
		char *end = strchr(text, '|');
		if (end)
			*end++ = '\0';
		*members[i] = text;
		text = end;
	}
	fields->tokens_per_hash = 16;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct kvt_fields fields = KVT_INIT(fields);
	char *text = malloc(size + 1), *canonical;
	struct kvt__env env;
	int error;

	if (!text || kvt__env_init(&env, NULL) != 0)
		abort();
	memcpy(text, data, size);
	text[size] = '\0';
	error = kvt__canonical_json(&env, text, &canonical);
	expect(error == 0 || error == KVT_EINVAL, "code");
	if (!error) {
		check_canonical(&env, canonical);
		kvt__free(&env, canonical);
	}
	for (uint32_t mode = 0; mode <= KVT_MODE_EXACT; mode++) {
		struct kvt_store_options options = KVT_INIT(options);
		options.mode = mode;
		options.rank = UINT32_MAX;
		options.fields_json = text;
		check_namespace(&env, &options);
	}
	if (strchr(text, '|')) {
		struct kvt_store_options options = KVT_INIT(options);
		fields_from(&fields, text);
		fields.parallel_agnostic = size % 2;
		options.fields = &fields;
		check_namespace(&env, &options);
	}
	kvt__env_fini(&env);
	free(text);
	return 0;
}
