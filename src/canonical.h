/* SPDX-License-Identifier: Apache-2.0 */
/* JSON as names and config.json need it: strict reading, and one canonical way of writing. */
#ifndef KVT_SRC_CANONICAL_H
#define KVT_SRC_CANONICAL_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "env.h"

/*
 * Reads JSON text, refusing duplicate keys, \u0000, lone surrogates and bytes behind the value.
 * KVT_EINVAL with `what` and the cause in the detail, or KVT_ENOMEM; *valuep is NULL then.
 */
int kvt__json_read(const char *what, const char *text, size_t bytes, json_t **valuep);

/*
 * The canonical form, newly allocated: keys in the order of their UTF-8 bytes, no spaces, ASCII
 * only. KVT_EINVAL for what has none (a real, an integer outside -(2^63-1) to 2^63-1), naming where
 * it is; KVT_ENOMEM.
 */
int kvt__json_canonical(const struct kvt__env *env, const json_t *value, char **textp);

/* Whether the bytes are valid UTF-8; else *badp is where the first bad sequence starts. */
bool kvt__utf8_valid(const char *text, size_t bytes, size_t *badp);

/* The fields of a struct as a JSON object, checked, storage_format added when `pointer_mode` is set
 * and the caller sets none. KVT_EINVAL, KVT_ENOMEM. */
int kvt__fields_to_json(const struct kvt_fields *fields, bool pointer_mode, json_t **objectp);
/* The same for fields given as text: nothing is defaulted. */
int kvt__fields_from_text(const char *text, bool pointer_mode, json_t **objectp);

/* The fields that names are derived from, in order; ended by NULL. */
extern const char *const kvt__field_names[];

/* Our own member of config.json; no field may have this name. */
#define KVT__CONFIG_MEMBER "kvtier"

#endif
