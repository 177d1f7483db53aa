/* SPDX-License-Identifier: Apache-2.0 */
/* Freeing capacity by least recent use; shared by kvt_store_gc and the maintenance thread. */
#ifndef KVT_SRC_GC_H
#define KVT_SRC_GC_H

#include <stdatomic.h>

#include "store.h"

struct kvt__gc_order {
	uint64_t begin_above;	/* remove for capacity only when more than this is there */
	uint64_t keep_bytes;	/* then until this much is left; UINT64_MAX: no limit */
	uint64_t older_than_ns; /* remove what was not used for longer, whatever its size; 0: none
				 */
	uint32_t leftover_age_s; /* 0: a day */
	bool leftovers_only;
	bool leftovers_may_stay; /* failing to remove them is logged and no failure */
	bool whole_root;
	bool dry_run;
	const atomic_bool *stop; /* KVT_ECANCELED once it is true; may be NULL */
};

/*
 * Lists once to see what is there, and once more to remove when that is needed. Memory does not
 * grow with the number of objects. Objects that are replaced meanwhile stay. The summary counts
 * what was found and removed, also when the call fails.
 */
int kvt__gc_run(struct kvt_store *store, const struct kvt__gc_order *order,
		struct kvt_gc_summary *summary);

#endif
