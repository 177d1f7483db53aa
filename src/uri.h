/* SPDX-License-Identifier: Apache-2.0 */
/* From a URI and a list of options to the backends that they name and what each of them gets. */
#ifndef KVT_SRC_URI_H
#define KVT_SRC_URI_H

#include "settings.h"

#define KVT__MAX_WRAPPED 4 /* backends in one URI, the innermost included */
#define KVT__MAX_URI	 4096

struct kvt__place {
	struct kvt__settings settings;
	uint32_t count;
	/* Outermost first; tables live as long as the process. */
	const struct kvt_backend_ops *ops[KVT__MAX_WRAPPED];
	struct kvt_backend_config configs[KVT__MAX_WRAPPED]; /* linked: each has its inner one */
	struct kvt_option_value *values;		     /* of all of them, owned */
};

/*
 * Parses `uri`, finds or loads its backends and hands out the options: each backend gets the ones
 * it knows, the store its own (compat_names goes to both); one that nobody knows, or that is given
 * twice, is refused, naming the nearest known one. Strings stay borrowed. KVT_EINVAL, KVT_EMODULE,
 * KVT_ENOMEM; then nothing is left to clean up.
 */
int kvt__place_init(struct kvt__place *place, struct kvt__env *env, const char *uri,
		    const struct kvt_option *options, size_t option_count);
void kvt__place_fini(struct kvt__place *place, struct kvt__env *env);

#endif
