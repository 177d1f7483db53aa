/* SPDX-License-Identifier: Apache-2.0 */
/* Latency histograms: four buckets for each power of two, so that a value is known to a quarter. */
#ifndef KVT_SRC_HISTOGRAM_H
#define KVT_SRC_HISTOGRAM_H

#include <stdint.h>

#include <kvtier/kvtier.h>

/* The bucket of a value: 0 to 3 have one each; the last one also takes all that is larger (from
 * about 32 minutes on). */
static inline uint32_t kvt__histogram_bucket(uint64_t ns)
{
	if (ns < 4)
		return (uint32_t)ns;
	uint32_t exponent = 63u - (uint32_t)__builtin_clzll(ns);
	uint32_t bucket = 4 * (exponent - 1) + ((uint32_t)(ns >> (exponent - 2)) & 3);
	return bucket < KVT_HISTOGRAM_BUCKETS ? bucket : KVT_HISTOGRAM_BUCKETS - 1;
}

/* The largest value of a bucket. */
static inline uint64_t kvt__histogram_upper(uint32_t bucket)
{
	if (bucket < 4)
		return bucket;
	return ((UINT64_C(5) + bucket % 4) << (bucket / 4 - 1)) - 1;
}

/* Not atomic: for histograms of one thread, or guarded by their owner. */
static inline void kvt__histogram_add(struct kvt_histogram *histogram, uint64_t ns)
{
	histogram->count++;
	histogram->sum_ns += ns;
	histogram->buckets[kvt__histogram_bucket(ns)]++;
}

#endif
