/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Taking jobs in: checks counts, sizes and keys, copies the arrays into one allocation and queues
 * the items. Runs on the caller's thread and never waits; the memory that pointers name is not
 * touched here.
 */
#include "worker.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

static void plain_free(void *context, void *memory)
{
	(void)context;
	free(memory);
}

static struct kvt_allocator job_allocator(const struct kvt_worker *w)
{
	struct kvt_allocator a = w->env.hooks.allocator;
	if (!a.free)
		a.free = plain_free;
	return a;
}

int kvt__worker_check(const struct kvt_worker *w, const char *call)
{
	if (!w)
		return kvt__fail(KVT_EINVAL, "%s: worker is NULL", call);
	if (w->fork_generation != kvt__fork_generation)
		return kvt__fail(KVT_EFORK,
				 "%s: the worker was created before fork(), in the parent", call);
	return 0;
}

void *kvt__carve(struct kvt__carver *c, uint64_t count, size_t size)
{
	size_t at = (c->at + 15) & ~(size_t)15;
	c->at = at + (size_t)count * size;
	return c->base ? c->base + at : NULL;
}

int kvt__request_options(struct kvt_worker *w, struct kvt__request *r,
			 const struct kvt_submit_options *options)
{
	int error = kvt__copy_options(&r->options, sizeof(r->options), options, sizeof(size_t),
				      "submit options");
	if (error)
		return error;
	const struct kvt_submit_options *o = &r->options;
	if (o->timeout_ms > INT64_MAX / 2000000)
		return kvt__fail(KVT_EINVAL, "%s: timeout_ms is %llu, expected at most %lld",
				 r->call, (unsigned long long)o->timeout_ms,
				 (long long)(INT64_MAX / 2000000));
	if (o->expedited && r->kind != KVT_JOB_LOAD)
		return kvt__fail(KVT_EINVAL,
				 "%s: expedited is %u, expected 0: only loads can be expedited",
				 r->call, o->expedited);
	if (o->lookup_flags & ~(uint32_t)(KVT_LOOKUP_PREFIX | KVT_LOOKUP_PRESENCE))
		return kvt__fail(KVT_EINVAL, "%s: lookup_flags is 0x%x, expected bits of 0x3",
				 r->call, o->lookup_flags);
	if (o->lookup_flags && r->kind != KVT_JOB_LOOKUP)
		return kvt__fail(KVT_EINVAL,
				 "%s: lookup_flags is 0x%x, expected 0: this is no lookup", r->call,
				 o->lookup_flags);
	switch (o->ready.kind) {
	case KVT_READY_NOW:
		break;
	case KVT_READY_FD:
		if (o->ready.fd < 0)
			return kvt__fail(KVT_EINVAL, "%s: ready.fd is %d, expected a descriptor",
					 r->call, o->ready.fd);
		break;
	case KVT_READY_EVENT:
		if (!o->ready.handle)
			return kvt__fail(KVT_EINVAL, "%s: ready.handle is NULL, expected an event",
					 r->call);
		break;
	case KVT_READY_STREAM: /* NULL is a device's default stream */
		if (w->device->ops.capabilities & KVT_DEVICE_STREAM_ORDER)
			break;
		return kvt__fail(KVT_EINVAL,
				 "%s: ready.kind is a stream, and device \"%s\" has none", r->call,
				 w->device->ops.name);
	default:
		return kvt__fail(KVT_EINVAL, "%s: ready.kind is %u, expected 0 to %d", r->call,
				 o->ready.kind, KVT_READY_STREAM);
	}
	if (r->kind == KVT_JOB_LOOKUP && o->ready.kind != KVT_READY_NOW)
		return kvt__fail(KVT_EINVAL,
				 "%s: ready.kind is %u, expected 0: a lookup touches no memory",
				 r->call, o->ready.kind);
	return 0;
}

/* Whether an object of this layout can be stored at all; checked for each key length of each group.
 */
static int check_object(const struct kvt_worker *w, const char *call,
			const struct kvt__layout *layout, uint64_t key_index)
{
	const struct kvt_backend_limits *l = &w->store->limits;
	uint64_t bytes = layout->object_bytes + KVT__PAGE_BYTES;
	if (bytes > l->max_object_bytes)
		return kvt__fail(
			KVT_EINVAL,
			"%s: key %llu: the object would have %llu bytes, expected at most %llu",
			call, (unsigned long long)key_index, (unsigned long long)bytes,
			(unsigned long long)l->max_object_bytes);
	uint64_t part =
		w->config.part_bytes > l->min_part_bytes ? w->config.part_bytes : l->min_part_bytes;
	uint64_t parts = (bytes + part - 1) / part;
	if (parts > l->max_parts)
		return kvt__fail(KVT_EINVAL,
				 "%s: key %llu: the object would need %llu parts of part_bytes "
				 "%llu, expected at most %u",
				 call, (unsigned long long)key_index, (unsigned long long)parts,
				 (unsigned long long)part, l->max_parts);
	return 0;
}

void kvt__job_header(struct kvt_worker *w, struct kvt__job *job, const struct kvt__request *r)
{
	memset(job, 0, sizeof(*job));
	job->result.job_id = r->job_id;
	job->result.kind = r->kind;
	job->result.key_count = r->key_count;
	job->result.detail = "";
	job->allocator = job_allocator(w);
	job->ready = r->options.ready;
	job->lookup_flags = r->options.lookup_flags;
	job->prefix_end = UINT64_MAX;
	job->submitted_ns = kvt__now_ns();
	job->deadline_ns = job->submitted_ns + (r->options.timeout_ms
							? (int64_t)r->options.timeout_ms * 1000000
							: w->config.timeout_ns[r->kind]);
	job->pending = job->memory_pending = r->key_count;
}

void kvt__job_arrays(struct kvt__job *job, struct kvt__carver *c, const struct kvt__request *r,
		     uint64_t hash_total)
{
	struct kvt__item *items = kvt__carve(c, r->key_count, sizeof(*items));
	int16_t *key_error = kvt__carve(c, r->key_count, sizeof(*key_error));
	uint32_t *blocks = r->options.lookup_flags & KVT_LOOKUP_PRESENCE
				   ? kvt__carve(c, r->key_count * 2, sizeof(*blocks))
				   : NULL;
	uint8_t *status = kvt__carve(c, r->key_count, 1);
	uint8_t *hashes = kvt__carve(c, hash_total, 1);
	if (!c->base)
		return;
	memset(items, 0, (size_t)r->key_count * sizeof(*items));
	memset(key_error, 0, (size_t)r->key_count * sizeof(*key_error));
	memset(status, 0, (size_t)r->key_count);
	if (blocks)
		memset(blocks, 0, (size_t)r->key_count * 2 * sizeof(*blocks));
	job->items = items;
	job->key_error = key_error;
	job->key_status = status;
	job->key_blocks = blocks;
	job->hashes = hashes;
	job->result.key_status = status;
	job->result.key_error = key_error;
	job->result.key_blocks = blocks;
	uint32_t at = 0;
	for (uint64_t k = 0; k < r->key_count; k++) {
		struct kvt__item *item = &items[k];
		item->job = job;
		item->index = (uint32_t)k;
		item->item_class =
			(uint8_t)(r->kind == KVT_JOB_LOOKUP		     ? KVT__CLASS_LOOKUP
				  : r->kind == KVT_JOB_STORE || r->raw_store ? KVT__CLASS_STORE
				  : r->options.expedited		     ? KVT__CLASS_EXPEDITED
									     : KVT__CLASS_LOAD);
		if (!r->keys)
			continue;
		item->key_group = r->keys[k].group;
		item->hash_bytes = (uint8_t)r->keys[k].hash_bytes;
		item->hash_at = at;
		memcpy(hashes + at, r->keys[k].hash, r->keys[k].hash_bytes);
		at += r->keys[k].hash_bytes;
	}
}

/* The next store or load of a key waits for the store that leads it. */
static int enter_keys_locked(struct kvt_worker *w, struct kvt__job *job, const char *call)
{
	uint64_t k;
	int error = 0;
	for (k = 0; k < job->result.key_count; k++) {
		struct kvt__item *item = &job->items[k];
		struct kvt__item *leader = kvt__keys_find_locked(w, item);
		if (job->result.kind == KVT_JOB_LOAD) {
			if (leader) {
				kvt__queue_lift_locked(w, leader);
				kvt__keys_follow_locked(leader, item);
			}
			continue;
		}
		if (!leader) {
			kvt__keys_insert_locked(w, item);
			continue;
		}
		struct kvt__item *twin = leader->job == job			    ? leader
					 : leader->last && leader->last->job == job ? leader->last
										    : NULL;
		if (twin) {
			error = kvt__fail(
				KVT_EINVAL,
				"%s: keys %u and %llu are equal, expected distinct keys in a store",
				call, twin->index, (unsigned long long)k);
			break;
		}
		kvt__keys_follow_locked(leader, item);
	}
	if (!error)
		return 0;
	while (k-- > 0) {
		struct kvt__item *item = &job->items[k];
		if (item->in_table)
			kvt__keys_remove_locked(w, item);
		else if (item->state == KVT__ITEM_PARKED)
			kvt__keys_unfollow_locked(item);
	}
	return error;
}

static int admit_locked(struct kvt_worker *w, struct kvt__job *job, const struct kvt__request *r)
{
	const char *call = r->call;
	if (atomic_load(&w->stopping))
		return kvt__fail(KVT_ESHUTDOWN, "%s: the worker is being destroyed", call);
	if (job->result.kind != KVT_JOB_OPS && kvt__job_find_locked(w, job->result.job_id))
		return kvt__fail(KVT_EEXIST,
				 "%s: job_id %llu is live, expected one that has been polled", call,
				 (unsigned long long)job->result.job_id);
	uint64_t bound =
		w->config.queue_chunks * (r->kind == KVT_JOB_STORE || r->raw_store ? 1 : 4);
	if (job->result.key_count && w->queued >= bound)
		return kvt__fail(KVT_EAGAIN, "%s: %llu chunks wait, expected fewer than %llu", call,
				 (unsigned long long)w->queued, (unsigned long long)bound);
	return 0;
}

static void enter_live_locked(struct kvt_worker *w, struct kvt__job *job)
{
	if (job->result.kind != KVT_JOB_OPS) {
		struct kvt__job **bucket =
			&w->jobs.buckets[job->result.job_id * UINT64_C(0x9e3779b97f4a7c15) >> 32 &
					 w->jobs.mask];
		job->id_next = *bucket;
		*bucket = job;
		w->jobs.count++;
	} else {
		w->raw_live++;
	}
	job->prev = NULL;
	job->next = w->live_first;
	if (w->live_first)
		w->live_first->prev = job;
	w->live_first = job;
	w->live_count++;
	job->number = ++w->jobs_submitted;
	if (job->deadline_ns < atomic_load_explicit(&w->next_expiry_ns, memory_order_relaxed))
		atomic_store_explicit(&w->next_expiry_ns, job->deadline_ns, memory_order_relaxed);
}

/* A device that cannot order by stream gets one ordering for the whole job, made before the job may
 * enter. */
static int make_arm(struct kvt_worker *w, struct kvt__job *job)
{
	const struct kvt_device_ops *ops = &w->device->ops;
	if (job->ready.kind == KVT_READY_NOW || (ops->capabilities & KVT_DEVICE_STREAM_ORDER) ||
	    job->result.key_count == 0)
		return 0;
	size_t private_at = (sizeof(struct kvt__arm) + 15) & ~(size_t)15;
	struct kvt__arm *arm = kvt__zalloc(&w->env, private_at + ops->io_private_bytes);
	if (!arm)
		return KVT_ENOMEM;
	arm->io.private_data = (uint8_t *)arm + private_at;
	arm->io.detail_buffer = arm->detail;
	arm->io.detail_bytes = sizeof(arm->detail);
	arm->io.owner = arm;
	arm->job = job;
	job->arm = arm;
	return 0;
}

int kvt__job_out_of_memory(const struct kvt__request *r)
{
	return kvt__fail(KVT_ENOMEM, "%s: out of memory for a job of %llu keys", r->call,
			 (unsigned long long)r->key_count);
}

/* A job that was not taken in. */
static void discard(struct kvt_worker *w, struct kvt__job *job)
{
	struct kvt_allocator a = job->allocator;
	for (uint64_t f = 0; job->raws && f < job->result.key_count; f++) {
		struct kvt_io_completion *c = job->raws[f].completion;
		kvt_io_completion_release(c); /* the job's share */
		kvt_io_completion_release(c); /* the caller's */
	}
	kvt__mark_destroy(&w->env, w->device, job->mark);
	a.free(a.context, job->arm);
	a.free(a.context, job);
}

/* A stream is marked here and now, on the submitting thread: what the caller gives it later does
 * not belong to the job, and a thread's default stream is known to that thread alone. */
static int make_mark(struct kvt_worker *w, struct kvt__job *job)
{
	if (job->ready.kind != KVT_READY_STREAM || !w->device->ops.mark ||
	    job->result.key_count == 0)
		return 0;
	int error = kvt__mark_create(&w->env, w->device, job->ready.handle, &job->mark);
	if (error)
		return error;
	job->ready = (struct kvt_ready){KVT_READY_EVENT, -1, job->mark->event};
	return 0;
}

int kvt__job_enter(struct kvt_worker *w, struct kvt__job *job, const struct kvt__request *r)
{
	int failed = make_mark(w, job);
	if (failed) {
		discard(w, job);
		return failed;
	}
	if (make_arm(w, job)) {
		discard(w, job);
		return kvt__job_out_of_memory(r);
	}
	struct kvt__after after = {0};
	pthread_mutex_lock(&w->lock);
	int error = admit_locked(w, job, r);
	if (!error && (r->kind == KVT_JOB_STORE || r->kind == KVT_JOB_LOAD))
		error = enter_keys_locked(w, job, r->call);
	if (error) {
		w->jobs_refused++;
		pthread_mutex_unlock(&w->lock);
		discard(w, job);
		return error;
	}
	enter_live_locked(w, job);
	w->queued += job->result.key_count;
	job->pending++;
	if (job->arm) {
		job->pending++;
		job->memory_pending++;
		if (w->arms_last)
			w->arms_last->next = job->arm;
		else
			w->arms = job->arm;
		w->arms_last = job->arm;
		kvt__wake_one_locked(w, &after);
	} else {
		kvt__job_queue_locked(w, job, &after);
	}
	kvt__job_unpin_locked(w, job, &after);
	pthread_mutex_unlock(&w->lock);
	kvt__after_run(w, &after);
	return 0;
}

#define GROUPS_ON_STACK 16

/* The shapes of a job: where each group's chunks are, with sizes and offsets of their refs. */
static void fill_shapes(struct kvt__job *job, const struct kvt_transfer *t,
			const struct kvt__plan_group *groups, struct kvt__shape *shapes,
			uint64_t *ref_words, uint64_t *ptrs)
{
	memcpy(ptrs, t->ptrs, (size_t)t->copy_count * sizeof(*ptrs));
	for (uint32_t g = 0; g < t->group_count; g++) {
		struct kvt__shape *s = &shapes[g];
		s->plan = groups[g];
		s->ptrs = ptrs;
		uint64_t *bytes = ref_words, *at = ref_words + groups[g].refs;
		ref_words += 2 * (size_t)groups[g].refs;
		uint64_t offset = 0;
		for (uint32_t d = 0; d < groups[g].refs; d++) {
			bytes[d] = t->sizes[groups[g].first_copy + (uint64_t)d * groups[g].blocks];
			at[d] = offset;
			offset += bytes[d] * t->blocks_per_chunk;
		}
		s->geometry = (struct kvt__geometry){t->blocks_per_chunk, groups[g].refs, bytes};
		s->ref_at = at;
		for (uint64_t k = 0; k < groups[g].chunks; k++)
			job->items[groups[g].first_key + k].shape = g;
	}
}

static int check_layouts(const struct kvt_worker *w, const struct kvt__request *r,
			 const struct kvt__job *job, uint32_t group_count)
{
	for (uint32_t g = 0; g < group_count; g++) {
		const struct kvt__shape *s = &job->shapes[g];
		uint32_t checked = 0;
		for (uint64_t k = s->plan.first_key; k < s->plan.first_key + s->plan.chunks; k++) {
			if (r->keys[k].hash_bytes == checked)
				continue;
			checked = r->keys[k].hash_bytes;
			struct kvt__layout layout;
			int error = kvt__layout_init(&layout, &s->geometry, checked);
			if (!error)
				error = check_object(w, r->call, &layout, k);
			if (error)
				return error;
		}
	}
	return 0;
}

static int submit_planned(struct kvt_worker *w, struct kvt__request *r,
			  const struct kvt_transfer *t, const struct kvt__plan_group *groups)
{
	uint64_t hash_total = 0, ref_total = 0;
	for (uint64_t k = 0; k < r->key_count; k++)
		hash_total += r->keys[k].hash_bytes;
	for (uint32_t g = 0; g < t->group_count; g++)
		ref_total += groups[g].blocks ? groups[g].refs : 0;
	if (r->key_count > UINT32_MAX || hash_total > UINT32_MAX)
		return kvt__fail(KVT_EINVAL, "%s: key_count is %llu, expected at most %u", r->call,
				 (unsigned long long)r->key_count, UINT32_MAX);
	struct kvt__carver c = {0};
	struct kvt__job *job = NULL;
	for (int pass = 0; pass < 2; pass++) {
		kvt__carve(&c, 1, sizeof(*job));
		struct kvt__shape *shapes = kvt__carve(&c, t->group_count, sizeof(*shapes));
		uint64_t *ref_words = kvt__carve(&c, 2 * ref_total, sizeof(*ref_words));
		uint64_t *ptrs = kvt__carve(&c, t->copy_count, sizeof(*ptrs));
		if (pass == 1) {
			kvt__job_header(w, job, r);
			job->shapes = shapes;
		}
		kvt__job_arrays(job, &c, r, hash_total);
		if (pass == 1) {
			fill_shapes(job, t, groups, shapes, ref_words, ptrs);
			break;
		}
		c.base = kvt__alloc(&w->env, c.at);
		if (!c.base)
			return kvt__job_out_of_memory(r);
		c.at = 0;
		job = (struct kvt__job *)c.base;
	}
	int error = check_layouts(w, r, job, t->group_count);
	if (error) {
		kvt__free(&w->env, job);
		return error;
	}
	return kvt__job_enter(w, job, r);
}

int kvt__submit_transfer(struct kvt_worker *w, uint64_t job_id, const struct kvt_transfer *transfer,
			 const struct kvt_submit_options *options, uint32_t kind, const char *call,
			 bool row)
{
	struct kvt_transfer t = {0};
	struct kvt__request r = {.call = call, .kind = kind, .job_id = job_id};
	int error = kvt__worker_check(w, call);
	if (!error && !transfer)
		error = kvt__fail(KVT_EINVAL, "%s: transfer is NULL", call);
	if (!error)
		error = kvt__copy_options(&t, sizeof(t), transfer, sizeof(size_t), "transfer");
	if (!error)
		error = kvt__request_options(w, &r, options);
	if (!error && !row && w->store->mode == KVT_MODE_ROW)
		error = kvt__fail(
			KVT_EINVAL,
			"%s: the store is opened in row mode, expected a submit call for rows",
			call);
	if (error)
		return error;
	struct kvt__plan_group small[GROUPS_ON_STACK], *groups = small;
	if (t.group_count > GROUPS_ON_STACK) {
		if (t.group_count > UINT32_MAX / 2)
			return kvt__fail(KVT_EINVAL, "%s: group_count is %u, expected at most %u",
					 call, t.group_count, UINT32_MAX / 2);
		groups = kvt__alloc(&w->env, t.group_count * sizeof(*groups));
		if (!groups)
			return kvt__job_out_of_memory(&r);
	}
	uint64_t chunks = 0, bytes = 0;
	error = kvt__plan_check(&t, groups, t.group_count, &chunks, &bytes);
	for (uint64_t i = 0; !error && i < t.copy_count; i++)
		if (t.ptrs[i] == 0)
			error = kvt__fail(KVT_EINVAL,
					  "%s: ptrs[%llu] is 0, expected a device address", call,
					  (unsigned long long)i);
	if (!error) {
		r.keys = t.keys;
		r.key_count = chunks;
		/* A group without blocks takes no part; its refs are not to be read. */
		for (uint32_t g = 0; g < t.group_count; g++)
			if (groups[g].blocks == 0)
				groups[g].refs = 0;
		error = submit_planned(w, &r, &t, groups);
	}
	if (groups != small)
		kvt__free(&w->env, groups);
	return error;
}

int kvt_worker_submit_store(struct kvt_worker *worker, uint64_t job_id,
			    const struct kvt_transfer *transfer,
			    const struct kvt_submit_options *options)
{
	return kvt__submit_transfer(worker, job_id, transfer, options, KVT_JOB_STORE,
				    "kvt_worker_submit_store", false);
}

int kvt_worker_submit_load(struct kvt_worker *worker, uint64_t job_id,
			   const struct kvt_transfer *transfer,
			   const struct kvt_submit_options *options)
{
	return kvt__submit_transfer(worker, job_id, transfer, options, KVT_JOB_LOAD,
				    "kvt_worker_submit_load", false);
}
