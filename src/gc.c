/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Freeing capacity. A first listing adds up the bytes by how long they have not been used, in
 * buckets of a thousandth of that time; a second one removes what is in older buckets than the one
 * where the limit lies, and of that bucket the oldest. Some younger ones are kept in mind too: an
 * object's age is known only as exactly as the time that a listing takes, so it may have moved to a
 * younger bucket, and it goes last when the limit is not met without it. When so much was replaced
 * or stored meanwhile that the limit is not met, it begins again.
 */
#include "gc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "list.h"

#define MANTISSA_BITS	 10
#define BUCKETS		 ((65u - MANTISSA_BITS) << MANTISSA_BITS)
#define CANDIDATES	 8192u
#define RESERVE		 (CANDIDATES / 2)
#define MAX_ROUNDS	 3
#define SWEEP_AGE_S	 86400u
#define SWEEP_TIMEOUT_NS INT64_C(600000000000)

/* An object of the bucket where the limit lies, or of a younger one. */
struct candidate {
	int64_t used_ns; /* when it was used last */
	uint64_t bytes;
	struct kvt_version version;
	char name[KVT_NAME_BYTES];
};

struct gc {
	struct kvt_store *store;
	const struct kvt__gc_order *order;
	struct kvt_gc_summary *summary;
	struct kvt__sync sync;
	int64_t begun_ns;
	uint64_t left_bytes; /* what is there, after what was removed */
	uint64_t changes;    /* objects removed, also by others, or replaced */
	bool again;	     /* what is found has been counted by an earlier round */
	uint64_t *buckets;   /* bytes by age */
	uint32_t limit;	     /* second listing: older buckets go */
	struct candidate *candidates;
	size_t candidate_count;
};

/* The bucket of an age: exact below 2^MANTISSA_BITS, then that many for each power of two. */
static uint32_t bucket_of(uint64_t age_ns)
{
	unsigned exponent;

	if (age_ns < 1u << MANTISSA_BITS)
		return (uint32_t)age_ns;
	exponent = 63u - (unsigned)__builtin_clzll(age_ns) - MANTISSA_BITS;
	return ((exponent + 1) << MANTISSA_BITS) +
	       (uint32_t)((age_ns >> exponent) & ((1u << MANTISSA_BITS) - 1));
}

/* How long ago it was used: by access time where that is kept, else since it was written. What
 * cannot be told counts as just used. */
static int64_t unused_ns(const struct kvt_object_info *info)
{
	if (info->access_age_ns < 0)
		return info->age_ns < 0 ? 0 : info->age_ns;
	if (info->age_ns >= 0 && info->age_ns < info->access_age_ns)
		return info->age_ns;
	return info->access_age_ns;
}

static bool is_in_scope(const struct gc *gc, const char *name)
{
	const char *base = gc->store->ns.base_name;
	size_t base_bytes = strlen(base);

	if (!kvt__object_name_any(name))
		return false;
	if (gc->order->whole_root)
		return true;
	if (strncmp(name, base, base_bytes) != 0 || strncmp(name + base_bytes, "_r", 2) != 0)
		return false;
	name += base_bytes + 2;
	name += strspn(name, "0123456789");
	return *name == '/';
}

static bool is_stopped(const struct gc *gc)
{
	return gc->order->stop != NULL && atomic_load(gc->order->stop);
}

/* Removes one object or counts as if: failures to remove one are told and do not stop the rest. */
static int remove_one(struct gc *gc, const char *name, uint64_t bytes,
		      const struct kvt_version *version)
{
	int error = 0;

	if (is_stopped(gc))
		return kvt__fail(KVT_ECANCELED, "gc: stopped");
	if (!gc->order->dry_run)
		error = kvt__sync_remove(&gc->sync, name, version);
	if (error == 0 || error == KVT_EPRECOND || error == KVT_ENOENT)
		gc->changes++;
	if (error == KVT_EPRECOND)
		return 0; /* replaced: used just now */
	if (error == KVT_ENOENT) {
		gc->left_bytes -= bytes; /* somebody else removed it */
		return 0;
	}
	if (error != 0) {
		kvt__log(&gc->store->env, KVT_LOG_WARNING, "gc", "%s: is not removed: %s", name,
			 kvt_error_detail());
		/* Where nothing may be removed there is no point in going on. */
		return kvt_error_class(error) == KVT_CLASS_CONFIGURATION ? error : 0;
	}
	gc->left_bytes -= bytes;
	gc->summary->removed_objects++;
	gc->summary->removed_bytes += bytes;
	return 0;
}

static uint64_t bytes_of(const struct kvt_list_item *item)
{
	return item->info.object_bytes != KVT_BYTES_UNKNOWN ? item->info.object_bytes : 0;
}

/* The first listing. */
static int count_one(void *context, const struct kvt_list_item *item)
{
	struct gc *gc = context;
	int64_t unused = unused_ns(&item->info), used;
	uint64_t bytes = bytes_of(item);

	if (is_stopped(gc))
		return kvt__fail(KVT_ECANCELED, "gc: stopped");
	if (!is_in_scope(gc, item->name))
		return 0;
	if (!gc->again) {
		gc->summary->objects++;
		gc->summary->bytes += bytes;
	}
	gc->left_bytes += bytes;
	if (gc->order->older_than_ns > 0 && (uint64_t)unused > gc->order->older_than_ns)
		return remove_one(gc, item->name, bytes, &item->info.version);
	used = gc->sync.listed_ns - unused;
	gc->buckets[used < gc->begun_ns ? bucket_of((uint64_t)(gc->begun_ns - used)) : 0] += bytes;
	return 0;
}

static int by_use(const void *a, const void *b)
{
	const struct candidate *x = a, *y = b;

	return (x->used_ns > y->used_ns) - (x->used_ns < y->used_ns);
}

/* The second listing. */
static int free_one(void *context, const struct kvt_list_item *item)
{
	struct gc *gc = context;
	int64_t used = gc->sync.listed_ns - unused_ns(&item->info);
	uint32_t bucket = used < gc->begun_ns ? bucket_of((uint64_t)(gc->begun_ns - used)) : 0;
	struct candidate *candidate;

	if (gc->left_bytes <= gc->order->keep_bytes || !is_in_scope(gc, item->name) ||
	    (bucket < gc->limit && gc->candidate_count >= RESERVE))
		return is_stopped(gc) ? kvt__fail(KVT_ECANCELED, "gc: stopped") : 0;
	/* A dry run sees again what it has counted as removed for its age. */
	if (gc->order->dry_run && gc->order->older_than_ns > 0 &&
	    (uint64_t)unused_ns(&item->info) > gc->order->older_than_ns)
		return 0;
	if (bucket > gc->limit || gc->candidate_count == CANDIDATES ||
	    strlen(item->name) >= sizeof(candidate->name))
		return remove_one(gc, item->name, bytes_of(item), &item->info.version);
	candidate = &gc->candidates[gc->candidate_count++];
	candidate->used_ns = used;
	candidate->bytes = bytes_of(item);
	candidate->version = item->info.version;
	memcpy(candidate->name, item->name, strlen(item->name) + 1);
	return 0;
}

/* The bucket where the limit lies: with all older ones gone and all of it there, too much is left.
 */
static uint32_t find_limit(const struct gc *gc)
{
	uint64_t excess = gc->left_bytes - gc->order->keep_bytes;
	uint32_t bucket = BUCKETS - 1;

	for (; bucket > 0 && gc->buckets[bucket] < excess; bucket--)
		excess -= gc->buckets[bucket];
	return bucket;
}

/* Removes the least recently used of what the first listing has counted. */
static int free_bytes(struct gc *gc, const char *prefix)
{
	int error;

	gc->limit = find_limit(gc);
	gc->candidate_count = 0;
	error = kvt__list_each(&gc->sync, prefix, free_one, gc);
	if (error == 0)
		qsort(gc->candidates, gc->candidate_count, sizeof(*gc->candidates), by_use);
	for (size_t i = 0;
	     error == 0 && i < gc->candidate_count && gc->left_bytes > gc->order->keep_bytes; i++)
		error = remove_one(gc, gc->candidates[i].name, gc->candidates[i].bytes,
				   &gc->candidates[i].version);
	return error;
}

/* Counts and frees: 1 when others have changed so much meanwhile that it is worth another round. */
static int run_round(struct gc *gc)
{
	const char *prefix = gc->order->whole_root ? "" : gc->store->ns.base_name;
	int error;

	memset(gc->buckets, 0, BUCKETS * sizeof(*gc->buckets));
	gc->begun_ns = kvt__now_ns();
	gc->left_bytes = 0;
	gc->changes = 0;
	error = kvt__list_each(&gc->sync, prefix, count_one, gc);
	if (error != 0 || gc->left_bytes <= gc->order->keep_bytes ||
	    (!gc->again && gc->left_bytes <= gc->order->begin_above))
		return error;
	error = free_bytes(gc, prefix);
	if (error != 0 || gc->order->dry_run)
		return error;
	gc->again = true;
	return gc->left_bytes > gc->order->keep_bytes && gc->changes > 0;
}

static int sweep(struct gc *gc)
{
	uint32_t age_s = gc->order->leftover_age_s;
	struct kvt_io io = {
		.op = KVT_IO_SWEEP, .name = "", .sweep_age_s = age_s > 0 ? age_s : SWEEP_AGE_S};
	int error;

	if (gc->order->dry_run)
		return 0;
	error = kvt__sync_io(&gc->sync, &io, SWEEP_TIMEOUT_NS);
	if (error == KVT_ENOTSUP) /* nothing is ever left over there */
		return 0;
	gc->summary->removed_leftovers += io.swept;
	if (error == 0 || gc->order->leftovers_only)
		return error;
	kvt__log(&gc->store->env, KVT_LOG_WARNING, "sweep", "leftovers are not removed: %s",
		 kvt_error_detail());
	if (gc->order->leftovers_may_stay || kvt_error_class(error) == KVT_CLASS_CONFIGURATION)
		return 0;
	return error;
}

/* Rounds of freeing capacity. */
static int free_capacity(struct gc *gc)
{
	int more = 1;

	for (int round = 0; more > 0 && round < MAX_ROUNDS; round++)
		more = run_round(gc);
	return more < 0 ? more : 0;
}

int kvt__gc_run(struct kvt_store *store, const struct kvt__gc_order *order,
		struct kvt_gc_summary *summary)
{
	struct gc gc = {.store = store, .order = order, .summary = summary};
	char swept_detail[256] = "";
	int error = 0, swept = 0;

	gc.buckets = kvt__alloc(&store->env, BUCKETS * sizeof(*gc.buckets));
	gc.candidates = kvt__alloc(&store->env, CANDIDATES * sizeof(*gc.candidates));
	if (gc.buckets == NULL || gc.candidates == NULL)
		error = kvt__fail(KVT_ENOMEM, "gc: out of memory");
	if (error == 0)
		error = kvt__sync_open(&gc.sync, store, true);
	if (error == 0) {
		swept = sweep(&gc);
		if (swept != 0)
			(void)snprintf(swept_detail, sizeof(swept_detail), "%s",
				       kvt_error_detail());
		if (!order->leftovers_only)
			error = free_capacity(&gc);
	}
	if (error == 0 && swept != 0)
		error = kvt__fail(swept, "%s", swept_detail);
	kvt__sync_close(&gc.sync);
	kvt__free(&store->env, gc.candidates);
	kvt__free(&store->env, gc.buckets);
	return error;
}

static int check_gc_options(const struct kvt_gc_options *o)
{
	const char *odd = o->max_bytes > 0	 ? "max_bytes"
			  : o->older_than_ns > 0 ? "older_than_ns"
			  : o->whole_root != 0	 ? "whole_root"
			  : o->dry_run != 0	 ? "dry_run"
						 : NULL;

	if (o->leftovers_only != 0 && odd != NULL)
		return kvt__fail(KVT_EINVAL,
				 "kvt_gc_options: %s is set, expected 0 with leftovers_only", odd);
	if (o->reserved != 0)
		return kvt__fail(KVT_EINVAL, "kvt_gc_options: reserved: %u, expected 0",
				 o->reserved);
	return 0;
}

/* In whole seconds, at least one: 0 is the default. */
static uint32_t leftover_age_s(uint64_t age_ns)
{
	uint64_t seconds = age_ns / 1000000000 + (age_ns % 1000000000 != 0);

	return seconds < UINT32_MAX ? (uint32_t)seconds : UINT32_MAX;
}

int kvt_store_gc(struct kvt_store *store, const struct kvt_gc_options *options,
		 struct kvt_gc_summary *summary)
{
	const size_t least = offsetof(struct kvt_gc_summary, removed_leftovers) + sizeof(uint64_t);
	struct kvt_gc_summary ours = {0};
	struct kvt__gc_order order = {0};
	struct kvt_gc_options o;
	int error = kvt__store_check(store, "kvt_store_gc");

	if (error == 0 && summary == NULL)
		error = kvt__fail(KVT_EINVAL, "kvt_store_gc: summary: NULL");
	if (error != 0)
		return error;
	error = kvt__copy_out(summary, &ours, sizeof(ours), least, "kvt_store_gc: summary");
	if (error == 0)
		error = kvt__copy_options(&o, sizeof(o), options,
					  offsetof(struct kvt_gc_options, leftover_age_ns),
					  "kvt_gc_options");
	if (error == 0)
		error = check_gc_options(&o);
	if (error != 0)
		return error;
	order.keep_bytes = o.max_bytes > 0 ? o.max_bytes : UINT64_MAX;
	order.older_than_ns = o.older_than_ns;
	order.whole_root = o.whole_root != 0;
	order.dry_run = o.dry_run != 0;
	order.leftovers_only = o.leftovers_only != 0;
	order.leftover_age_s = leftover_age_s(o.leftover_age_ns);
	error = kvt__gc_run(store, &order, &ours);
	(void)kvt__copy_out(summary, &ours, sizeof(ours), least, "kvt_store_gc: summary");
	return error;
}
