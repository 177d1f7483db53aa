/* SPDX-License-Identifier: Apache-2.0 */
/* Percentiles of latency histograms. Pure. */
#include "histogram.h"

uint64_t kvt_histogram_percentile(const struct kvt_histogram *histogram, double fraction)
{
	uint64_t total = 0, below = 0, wanted;

	if (!histogram)
		return 0;
	/* From the buckets, not from count: in a copy taken while values were added the two may
	 * differ. */
	for (uint32_t b = 0; b < KVT_HISTOGRAM_BUCKETS; b++)
		total += histogram->buckets[b];
	if (total == 0)
		return 0;
	if (!(fraction > 0))
		wanted = 1;
	else if (fraction >= 1)
		wanted = total;
	else
		wanted = (uint64_t)(fraction * (double)total);
	/* The smallest rank that is at least the fraction; the product above was rounded down. */
	if (wanted < total && (double)wanted < fraction * (double)total)
		wanted++;
	if (wanted < 1)
		wanted = 1;
	for (uint32_t b = 0; b < KVT_HISTOGRAM_BUCKETS; b++) {
		below += histogram->buckets[b];
		if (below >= wanted)
			return kvt__histogram_upper(b);
	}
	return kvt__histogram_upper(KVT_HISTOGRAM_BUCKETS - 1);
}
