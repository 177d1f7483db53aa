/* SPDX-License-Identifier: Apache-2.0 */
/* The thread of option max_bytes: keeps a namespace below its limit in the background. */
#ifndef KVT_SRC_MAINTENANCE_H
#define KVT_SRC_MAINTENANCE_H

#include "store.h"

/* Starts the thread of a store that is open but for it; sets store->maintenance. KVT_ENOMEM,
 * KVT_EMFILE. */
int kvt__maintenance_start(struct kvt_store *store);
/* Ends it: waits for the request that it has in flight. Nothing to do when it never started. */
void kvt__maintenance_stop(struct kvt_store *store);
/* Makes it end after the request that it has in flight, without waiting for that. */
void kvt__maintenance_ask_to_stop(struct kvt_store *store);
/* In a forked child: closes descriptors and frees memory only. */
void kvt__maintenance_forked(struct kvt_store *store);

#endif
