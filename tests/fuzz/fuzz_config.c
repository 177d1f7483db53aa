/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a config.json that is found: it is equal, different or unreadable, and a difference
 * has one line that names it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "name.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect(bool holds, const char *what)
{
	if (!holds) {
		fprintf(stderr, "config: %s: %s\n", what, kvt_error_detail());
		abort();
	}
}

static void check(const struct kvt__env *env, const struct kvt_store_options *options,
		  enum kvt__fanout fanout, const char *seed, const uint8_t *data, size_t size)
{
	struct kvt__namespace ns;
	const char *text = (const char *)data;
	char *own;
	int error;

	expect(kvt__namespace_init(&ns, env, options, fanout) == 0, "namespace");
	error = kvt__config_compare(&ns, env, seed, text, size);
	expect(error == 0 || error == KVT_ENAMESPACE || error == KVT_EPROTO, "code");
	if (error == KVT_ENAMESPACE)
		expect(strncmp(kvt_error_detail(), "config.json: ", 13) == 0 &&
			       strstr(kvt_error_detail(), "expected") != NULL &&
			       !strchr(kvt_error_detail(), '\n'),
		       "detail");
	/* Its own text is always equal. */
	expect(kvt__config_text(&ns, env, seed, &own) == 0, "text");
	expect(kvt__config_compare(&ns, env, seed, own, strlen(own)) == 0, "own text");
	kvt__free(env, own);
	kvt__namespace_fini(&ns, env);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct kvt_store_options fields = KVT_INIT(fields), ready = KVT_INIT(ready);
	struct kvt__env env;

	if (kvt__env_init(&env, NULL) != 0)
		abort();
	fields.mode = ready.mode = KVT_MODE_EXACT;
	fields.fields_json =
		"{\"model_name\":\"m\",\"tp_size\":1,\"parallel_agnostic\":false,"
		"\"kv_cache_groups\":[{\"layer_names\":[\"a\"],\"tokens_per_block\":16}]}";
	ready.namespace_name = "ready";
	check(&env, &fields, KVT__FANOUT_VLLM, NULL, data, size);
	check(&env, &fields, KVT__FANOUT_FLAT, "seed", data, size);
	check(&env, &ready, KVT__FANOUT_VLLM, "seed", data, size);
	kvt__env_fini(&env);
	return 0;
}
