/* SPDX-License-Identifier: Apache-2.0 */
/* Retry decisions, from the error class alone: backoff with full jitter, budget, circuit breaker.
 * Any thread, no lock. */
#include "retry.h"

#include <string.h>

#define BUDGET_MAX 1000 /* a hundred retries can be saved up */

void kvt__retry_init(struct kvt__retry *retry, const struct kvt_worker_options *options)
{
	memset(retry, 0, sizeof(*retry));
	retry->attempts = options->attempts ? options->attempts : 5;
	retry->base_ns = (options->retry_base_ms ? options->retry_base_ms : 50) * INT64_C(1000000);
	retry->max_ns = (options->retry_max_ms ? options->retry_max_ms : 5000) * INT64_C(1000000);
	retry->breaker_failures = options->breaker_failures ? options->breaker_failures : 10;
	retry->breaker_open_ns =
		(options->breaker_open_ms ? options->breaker_open_ms : 5000) * INT64_C(1000000);
	atomic_init(&retry->budget, BUDGET_MAX);
	atomic_init(&retry->seed, 0x9e3779b9u);
}

static bool is_retryable(int result)
{
	enum kvt_error_class c = kvt_error_class(result);
	return (c == KVT_CLASS_TRANSIENT || c == KVT_CLASS_THROTTLED) && result != KVT_EUNAVAIL;
}

static bool is_throttled(int result)
{
	return kvt_error_class(result) == KVT_CLASS_THROTTLED;
}

int kvt__retry_admit(struct kvt__retry *retry, int64_t now_ns, bool *probep)
{
	*probep = false;
	int64_t open_until = atomic_load_explicit(&retry->open_until_ns, memory_order_acquire);
	if (open_until == 0)
		return 0;
	if (now_ns < open_until)
		return KVT_EUNAVAIL;
	if (atomic_exchange(&retry->probing, true))
		return KVT_EUNAVAIL;
	*probep = true;
	return 0;
}

bool kvt__retry_report(struct kvt__retry *retry, int result, bool probe, int64_t now_ns)
{
	bool opened = false;
	int budget = atomic_load_explicit(&retry->budget, memory_order_relaxed);
	if (budget < BUDGET_MAX)
		atomic_fetch_add_explicit(&retry->budget, 1, memory_order_relaxed);
	/* A store that asks to slow down is there. */
	if (!is_retryable(result) || is_throttled(result)) {
		if (atomic_load_explicit(&retry->failures, memory_order_relaxed))
			atomic_store(&retry->failures, 0);
		if (probe)
			atomic_store(&retry->open_until_ns, 0);
	} else {
		atomic_store_explicit(&retry->last_failure, result, memory_order_relaxed);
		uint32_t failures = atomic_fetch_add(&retry->failures, 1) + 1;
		if (probe || (failures >= retry->breaker_failures &&
			      retry->breaker_failures != UINT32_MAX)) {
			opened = atomic_exchange(&retry->open_until_ns,
						 now_ns + retry->breaker_open_ns) == 0;
		}
	}
	if (probe)
		atomic_store(&retry->probing, false);
	return opened;
}

void kvt__retry_abandon(struct kvt__retry *retry, bool probe)
{
	if (probe)
		atomic_store(&retry->probing, false);
}

/* A number in [0, 1): a hash of a counter is random enough to spread retries. */
static double jitter(struct kvt__retry *retry)
{
	uint32_t x = atomic_fetch_add_explicit(&retry->seed, 0x9e3779b9u, memory_order_relaxed);
	x ^= x >> 16;
	x *= 0x7feb352du;
	x ^= x >> 15;
	x *= 0x846ca68bu;
	x ^= x >> 16;
	return x / 4294967296.0;
}

int64_t kvt__retry_at(struct kvt__retry *retry, int result, uint32_t tries, int64_t now_ns,
		      int64_t after_ns, int64_t deadline_ns)
{
	if (!is_retryable(result) || tries >= retry->attempts || now_ns >= deadline_ns)
		return 0;
	int64_t backoff = retry->max_ns;
	if (tries < 32 && retry->base_ns < (retry->max_ns >> (tries - 1)))
		backoff = retry->base_ns << (tries - 1);
	if (after_ns < 0)
		after_ns = 0;
	else if (after_ns > KVT__RETRY_AFTER_MAX_NS)
		after_ns = KVT__RETRY_AFTER_MAX_NS;
	int64_t at = now_ns + 1 + after_ns + (int64_t)((double)backoff * jitter(retry));
	if (at >= deadline_ns)
		return 0;
	/* Who does as a busy store asks, and comes back later, is no burden to it. */
	if (!is_throttled(result) &&
	    atomic_fetch_sub_explicit(&retry->budget, 10, memory_order_relaxed) < 10) {
		atomic_fetch_add_explicit(&retry->budget, 10, memory_order_relaxed);
		return 0;
	}
	return at;
}

enum kvt_breaker_state kvt__retry_state(const struct kvt__retry *retry, int64_t now_ns)
{
	int64_t open_until = atomic_load_explicit(&retry->open_until_ns, memory_order_acquire);
	if (open_until == 0)
		return KVT_BREAKER_CLOSED;
	return now_ns < open_until ? KVT_BREAKER_OPEN : KVT_BREAKER_HALF_OPEN;
}
