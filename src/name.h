/* SPDX-License-Identifier: Apache-2.0 */
/* Names: from a namespace's fields to its canonical form and digest, and from a key to its object
 * name. */
#ifndef KVT_SRC_NAME_H
#define KVT_SRC_NAME_H

#include <stdbool.h>
#include <kvtier/kvtier.h>

#include "env.h"

enum kvt__fanout {
	KVT__FANOUT_VLLM = 0,
	KVT__FANOUT_FLAT,
	KVT__FANOUT_VLLM_OBJECTS, /* as vLLM's object tier: VLLM, blocks_per_file is always 1 */
};

struct kvt__namespace {
	char *canonical; /* canonical JSON, or the ready-made string */
	bool ready_made;
	char *base_name; /* <model with _ for />_<12 hex>, or the ready-made string */
	uint8_t digest[8];
	uint32_t rank; /* 0 when parallel agnostic */
	enum kvt__fanout fanout;
	char *object_prefix; /* "<base_name>_r<rank>/" */
	size_t object_prefix_bytes;
};

/*
 * Makes a namespace from the options (exactly one source; the mode decides whether kvtier1 is
 * added). Fails with KVT_EINVAL (detail says what), KVT_ENOMEM. fini accepts a zeroed struct.
 */
int kvt__namespace_init(struct kvt__namespace *ns, const struct kvt__env *env,
			const struct kvt_store_options *options, enum kvt__fanout fanout);
void kvt__namespace_fini(struct kvt__namespace *ns, const struct kvt__env *env);

/* The canonical form of a JSON object given as text, newly allocated. KVT_EINVAL, KVT_ENOMEM. */
int kvt__canonical_json(const struct kvt__env *env, const char *json, char **canonicalp);
/* The canonical form of fields given as a struct. */
int kvt__canonical_fields(const struct kvt__env *env, const struct kvt_fields *fields,
			  char **canonicalp);

/* Bytes of the longest object name of this namespace, NUL included: prefix + what a 64-byte hash
 * needs. */
size_t kvt__object_name_max(const struct kvt__namespace *ns);
/* Writes the object name of a checked key, NUL-terminated, into a buffer of kvt__object_name_max
 * bytes; returns its length. Fast: no formatted output. */
size_t kvt__object_name(const struct kvt__namespace *ns, const void *hash, uint32_t hash_bytes,
			uint32_t group, char *buffer);
/* The key that an object name of this namespace stands for; false when it is not one of ours. hash:
 * 64 bytes. */
bool kvt__object_name_parse(const struct kvt__namespace *ns, const char *name, uint8_t *hash,
			    uint32_t *hash_bytes, uint32_t *group);
/* Whether a name below the root looks like an object of any namespace (of either fan-out): what gc
 * may remove. */
bool kvt__object_name_any(const char *name);

/* config.json */

/* "<base_name>/config.json", newly allocated. */
char *kvt__config_name(const struct kvt__namespace *ns, const struct kvt__env *env);
/* The text to write: the canonical fields plus our "kvtier" member; hash_seed may be NULL. Newly
 * allocated. */
int kvt__config_text(const struct kvt__namespace *ns, const struct kvt__env *env,
		     const char *hash_seed, char **textp);
/*
 * Compares the text of an existing config.json: 0; KVT_ENAMESPACE, the detail naming the first
 * field that differs and both values; KVT_EPROTO when it cannot be parsed (the caller reads again).
 */
int kvt__config_compare(const struct kvt__namespace *ns, const struct kvt__env *env,
			const char *hash_seed, const char *text, size_t bytes);

#endif
