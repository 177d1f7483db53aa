/* SPDX-License-Identifier: Apache-2.0 */
/* Statistics: what lanes count for themselves and what the lock guards, put together on request.
 * Any thread. */
#include "lane.h"

#include <string.h>

#include "histogram.h"

void kvt__latency_add(struct kvt__latency *histogram, int64_t ns)
{
	uint64_t value = ns > 0 ? (uint64_t)ns : 0;
	kvt__count(&histogram->count, 1);
	kvt__count(&histogram->sum_ns, value);
	kvt__count(&histogram->buckets[kvt__histogram_bucket(value)], 1);
}

static uint64_t read_counter(const _Atomic uint64_t *counter)
{
	return atomic_load_explicit(counter, memory_order_relaxed);
}

static void add_histogram(struct kvt_histogram *to, const struct kvt__latency *from)
{
	to->count += read_counter(&from->count);
	to->sum_ns += read_counter(&from->sum_ns);
	for (int b = 0; b < KVT_HISTOGRAM_BUCKETS; b++)
		to->buckets[b] += read_counter(&from->buckets[b]);
}

static void add_lane(struct kvt_stats *s, const struct kvt__lane_stats *lane)
{
	s->requests += read_counter(&lane->requests);
	s->requests_in_flight += read_counter(&lane->in_flight);
	s->active_chunks += read_counter(&lane->active);
	s->crc_bytes += read_counter(&lane->crc_bytes);
	s->merges += read_counter(&lane->merges);
	s->removed_corrupt += read_counter(&lane->removed_corrupt);
	s->odd_length_misses += read_counter(&lane->odd_length_misses);
	s->zero_bytes_sent += read_counter(&lane->zero_bytes);
	s->dropped_bytes += read_counter(&lane->dropped_bytes);
	for (int c = 0; c < KVT_CLASS_COUNT; c++)
		s->retries[c] += read_counter(&lane->retries[c]);
	add_histogram(&s->queue_ns, &lane->queue_ns);
	add_histogram(&s->device_ns, &lane->device_ns);
	add_histogram(&s->storage_ns, &lane->storage_ns);
}

static void fill(struct kvt_worker *w, struct kvt_stats *s)
{
	for (uint32_t i = 0; i < w->lanes_started; i++)
		add_lane(s, &w->lanes[i].stats);
	struct kvt__staging_usage usage;
	kvt__staging_usage(w->staging, &usage);
	s->staging_bytes = usage.total_bytes;
	s->staging_used_bytes = usage.used_bytes;
	s->staging_peak_bytes = usage.peak_bytes;
	s->staging_waiters = usage.waiters;
	int64_t now = kvt__now_ns();
	s->breaker = (uint32_t)kvt__retry_state(&w->retry, now);
	s->stores_paused = now < atomic_load(&w->stores_paused_until_ns);
	pthread_mutex_lock(&w->lock);
	memcpy(s->keys, w->keys_done, sizeof(s->keys));
	memcpy(s->bytes, w->bytes_done, sizeof(s->bytes));
	s->jobs_submitted = w->jobs_submitted;
	s->jobs_completed = w->jobs_completed;
	s->jobs_refused = w->jobs_refused;
	s->queued_chunks[0] = w->queues[KVT__CLASS_LOOKUP].count;
	s->queued_chunks[1] = w->queues[KVT__CLASS_EXPEDITED].count;
	s->queued_chunks[2] = w->queues[KVT__CLASS_LOAD].count;
	s->queued_chunks[3] =
		w->queues[KVT__CLASS_LIFTED].count + w->queues[KVT__CLASS_STORE].count;
	s->jobs_live = w->jobs.count + w->raw_live;
	s->last_error = w->last_error;
	memcpy(s->last_error_detail, w->last_error_detail, sizeof(s->last_error_detail));
	pthread_mutex_unlock(&w->lock);
}

int kvt_worker_stats(struct kvt_worker *w, struct kvt_stats *stats)
{
	int error = kvt__worker_check(w, "kvt_worker_stats");
	if (!error && !stats)
		error = kvt__fail(KVT_EINVAL, "kvt_worker_stats: stats is NULL");
	if (!error && stats->struct_size < sizeof(size_t))
		error = kvt__fail(KVT_EINVAL,
				  "kvt_worker_stats: stats.struct_size is %zu, expected %zu",
				  stats->struct_size, sizeof(*stats));
	if (error)
		return error;
	struct kvt_stats ours = {0};
	size_t bytes = stats->struct_size < sizeof(ours) ? stats->struct_size : sizeof(ours);
	ours.struct_size = stats->struct_size;
	fill(w, &ours);
	kvt__store_describe(w->store, ours.backend, sizeof(ours.backend));
	memcpy(stats, &ours, bytes);
	return 0;
}
