/* SPDX-License-Identifier: Apache-2.0 */
/* Any text as an object's name: what is taken for a key of ours is exactly the name of that key.
 * Any bytes as a key: its name gives it back. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "name.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect(bool holds, const char *what)
{
	if (!holds) {
		fprintf(stderr, "key: %s: %s\n", what, kvt_error_detail());
		abort();
	}
}

static void check_name(const struct kvt__namespace *ns, const char *text)
{
	uint8_t hash[64];
	uint32_t hash_bytes = 0, group = 0;
	char *again;

	if (!kvt__object_name_parse(ns, text, hash, &hash_bytes, &group))
		return;
	expect(hash_bytes >= 1 && hash_bytes <= 64, "length of the hash");
	again = malloc(kvt__object_name_max(ns));
	if (again) {
		(void)kvt__object_name(ns, hash, hash_bytes, group, again);
		expect(strcmp(again, text) == 0, "another name");
	}
	free(again);
	expect(kvt__object_name_any(text), "an object of this namespace, but of none");
}

static void check_key(const struct kvt__namespace *ns, const uint8_t *data, size_t size)
{
	uint8_t hash[64];
	uint32_t hash_bytes, group, back;
	char *name;

	if (size < 5)
		return;
	memcpy(&group, data, 4);
	hash_bytes = size - 4 < 64 ? (uint32_t)(size - 4) : 64;
	name = malloc(kvt__object_name_max(ns));
	if (!name)
		return;
	expect(kvt__object_name(ns, data + 4, hash_bytes, group, name) < kvt__object_name_max(ns),
	       "longer than the longest name");
	expect(kvt__object_name_parse(ns, name, hash, &hash_bytes, &back), "its own name");
	expect(back == group && memcmp(hash, data + 4, hash_bytes) == 0, "another key");
	free(name);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct kvt_store_options options = KVT_INIT(options);
	char *text = malloc(size + 1);
	struct kvt__env env;

	if (!text || kvt__env_init(&env, NULL) != 0)
		abort();
	memcpy(text, data, size);
	text[size] = '\0';
	options.namespace_name = "ready";
	options.mode = KVT_MODE_EXACT;
	for (int fanout = 0; fanout < 2; fanout++) {
		struct kvt__namespace ns;
		expect(kvt__namespace_init(&ns, &env, &options, (enum kvt__fanout)fanout) == 0,
		       "namespace");
		check_name(&ns, text);
		check_key(&ns, data, size);
		kvt__namespace_fini(&ns, &env);
	}
	(void)kvt__object_name_any(text);
	kvt__env_fini(&env);
	free(text);
	return 0;
}
