/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is known of names, for a short time: lengths and versions of objects that were seen, and
 * that others were not there. Bounded; shared by all sessions of a store behind a leaf lock of its
 * own. It only saves repeats: whoever needs the truth asks the server.
 */
#ifndef KVT_S3_CACHE_H
#define KVT_S3_CACHE_H

#include <stdbool.h>
#include <stdint.h>

#include <kvtier/backend.h>

struct s3_cache;

enum s3_cache_answer { S3_CACHE_UNKNOWN = 0, S3_CACHE_HIT, S3_CACHE_MISS };

/* NULL when out of memory. entries 0: remembers nothing. Names are kept as 128-bit hashes keyed at
 * random, so memory is bounded too. */
struct s3_cache *kvt__s3_cache_create(const struct kvt_host *host, uint32_t entries,
				      uint32_t hit_ms, uint32_t miss_ms);
/* Accepts NULL. */
void kvt__s3_cache_destroy(struct s3_cache *cache);

/* *infop is filled for a hit: length and version; ages are -1. */
enum s3_cache_answer kvt__s3_cache_look(struct s3_cache *cache, const char *name,
					struct kvt_object_info *infop);
/*
 * A request that asks or changes the server takes a ticket before it is sent, and hands it in with
 * what it learnt. An answer is not kept when anything was forgotten, stored or learnt by a later
 * ticket since its ticket was taken: it may tell of the time before. Nor is one kept whose version
 * is over S3_CACHE_VERSION_BYTES long, or whose length is not known.
 */
#define S3_CACHE_VERSION_BYTES 48u
uint64_t kvt__s3_cache_ticket(struct s3_cache *cache);
void kvt__s3_cache_hit(struct s3_cache *cache, const char *name, uint64_t ticket,
		       const struct kvt_object_info *info);
void kvt__s3_cache_miss(struct s3_cache *cache, const char *name, uint64_t ticket);
/* Our own store was acknowledged: as a hit, and what others learnt meanwhile is older, whatever
 * their tickets. */
void kvt__s3_cache_stored(struct s3_cache *cache, const char *name, uint64_t ticket,
			  const struct kvt_object_info *info);
/* Nothing is known of it any more. */
void kvt__s3_cache_forget(struct s3_cache *cache, const char *name);

/* How many of the last 256 stores found their object there already (0 to 256, scaled to 256 when
 * fewer were seen; 0 before the first 16). */
void kvt__s3_cache_count_store(struct s3_cache *cache, bool duplicate);
uint32_t kvt__s3_cache_duplicates(struct s3_cache *cache);

#endif
