/* SPDX-License-Identifier: Apache-2.0 */
/* Whether and when a failed request is tried again: by error class, deadline, a retry budget and a
 * circuit breaker. */
#ifndef KVT_SRC_RETRY_H
#define KVT_SRC_RETRY_H

#include <stdatomic.h>
#include <stdbool.h>

#include <kvtier/kvtier.h>

#define KVT__RETRY_AFTER_MAX_NS INT64_C(30000000000)

/* Shared by the lanes of a worker; no lock. */
struct kvt__retry {
	/* fixed */
	uint32_t attempts;
	int64_t base_ns, max_ns;
	uint32_t breaker_failures;
	int64_t breaker_open_ns;
	/* Budget in tenths of a retry: each request adds one tenth, each retry takes ten, so a
	 * store that fails everything is asked at most a tenth more often than one that works.
	 * Requests that were asked to slow down take nothing: their backoff is the remedy. */
	atomic_int budget;
	/* Breaker: transient failures in a row (not those that were asked to slow down); while open_until_ns is not 0 it is open until then,
	 * afterwards half open, and one request at a time probes. */
	atomic_uint failures;
	atomic_llong open_until_ns;
	atomic_bool probing;
	atomic_int last_failure; /* what the last transient failure was */
	atomic_uint seed;
};

void kvt__retry_init(struct kvt__retry *retry, const struct kvt_worker_options *options);

/* Asks before each request. 0: go on; *probep says whether this is the probe of a half-open
 * breaker. KVT_EUNAVAIL: open. */
int kvt__retry_admit(struct kvt__retry *retry, int64_t now_ns, bool *probep);
/* Tells what became of an admitted request. Returns true when this result opened the breaker. */
bool kvt__retry_report(struct kvt__retry *retry, int result, bool probe, int64_t now_ns);
/* An admitted request was given up before it was made. */
void kvt__retry_abandon(struct kvt__retry *retry, bool probe);
/*
 * The absolute time of the next try of a request that failed for the `tries`th time (1: the first),
 * or 0: give up. Looks at the class, the number of tries, the deadline and the budget, which it
 * charges. Not before after_ns have passed, of which KVT__RETRY_AFTER_MAX_NS count.
 */
int64_t kvt__retry_at(struct kvt__retry *retry, int result, uint32_t tries, int64_t now_ns,
		      int64_t after_ns, int64_t deadline_ns);

enum kvt_breaker_state kvt__retry_state(const struct kvt__retry *retry, int64_t now_ns);

#endif
