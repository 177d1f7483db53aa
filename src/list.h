/* SPDX-License-Identifier: Apache-2.0 */
/* Walking through the names of a store, page by page. */
#ifndef KVT_SRC_LIST_H
#define KVT_SRC_LIST_H

#include "store.h"

/* The item is borrowed for the call. Nonzero stops. */
typedef int (*kvt__list_fn)(void *context, const struct kvt_list_item *item);

/*
 * Calls `callback` for each object whose name begins with `prefix`, in no promised order. It is
 * called between requests, so that it may use the same session. Returns what the callback returned
 * when that was not 0, a failure of the listing, or 0. The session was opened for listing.
 */
int kvt__list_each(struct kvt__sync *sync, const char *prefix, kvt__list_fn callback,
		   void *context);

#endif
