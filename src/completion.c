/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one path by which items and jobs end, whichever thread finds out: lanes after storage and
 * copies, poll and wait for what has expired, cancel and destroy. An item is finished once; with
 * its last item its job becomes a completion.
 */
#include "worker.h"

#include <string.h>
#include <unistd.h>

/* How bad a status is: failed, corrupt, mismatch, foreign, missing, canceled, then success
 * (specification). */
uint32_t kvt__status_rank(enum kvt_status status)
{
	switch (status) {
	case KVT_STATUS_FAILED:
		return 9;
	case KVT_STATUS_CORRUPT:
		return 8;
	case KVT_STATUS_MISMATCH:
		return 7;
	case KVT_STATUS_FOREIGN:
		return 6;
	case KVT_STATUS_MISSING:
		return 5;
	case KVT_STATUS_CANCELED:
		return 4;
	case KVT_STATUS_UNKNOWN:
		return 3;
	case KVT_STATUS_MISS:
		return 2;
	case KVT_STATUS_PARTIAL:
	case KVT_STATUS_PENDING:
	case KVT_STATUS_LOADED_UNVERIFIED:
		return 1;
	default:
		return 0;
	}
}

void kvt__item_quiet_locked(struct kvt_worker *w, struct kvt__item *item)
{
	if (item->memory_quiet)
		return;
	item->memory_quiet = true;
	if (--item->job->memory_pending == 0 && w->waiting)
		pthread_cond_broadcast(&w->changed);
}

static void live_unlink(struct kvt_worker *w, struct kvt__job *job)
{
	if (job->prev)
		job->prev->next = job->next;
	else
		w->live_first = job->next;
	if (job->next)
		job->next->prev = job->prev;
	job->next = job->prev = NULL;
	if (--w->live_count == 0)
		atomic_store_explicit(&w->next_expiry_ns, INT64_MAX, memory_order_relaxed);
}

/* Keys behind the first miss are unknown, whatever was found out about them, and say nothing about
 * the job. */
static void cut_prefix(struct kvt__job *job)
{
	struct kvt_result *r = &job->result;
	uint32_t worst = 0;
	r->status = KVT_STATUS_HIT;
	r->error = 0;
	for (uint64_t k = 0; k < r->key_count; k++) {
		uint32_t rank = kvt__status_rank(job->key_status[k]);
		if (k > job->prefix_end) {
			job->key_status[k] = KVT_STATUS_UNKNOWN;
			job->key_error[k] = 0;
			if (job->key_blocks)
				job->key_blocks[2 * k] = job->key_blocks[2 * k + 1] = 0;
		} else if (k == 0 || rank > worst) {
			worst = rank;
			r->status = job->key_status[k];
			r->error = job->key_error[k];
		}
	}
	if (!r->error)
		r->detail = "";
}

static void job_complete_locked(struct kvt_worker *w, struct kvt__job *job,
				struct kvt__after *after)
{
	int64_t now = kvt__now_ns();
	int64_t started = job->started_ns ? job->started_ns : now;
	struct kvt_result *r = &job->result;
	r->queued_ns = (uint64_t)(started > job->submitted_ns ? started - job->submitted_ns : 0);
	r->active_ns = (uint64_t)(now > started ? now - started : 0);
	r->detail = job->detail ? job->detail->text : job->detail_fixed ? job->detail_fixed : "";
	if (r->key_count == 0)
		r->status = r->kind == KVT_JOB_STORE  ? KVT_STATUS_STORED
			    : r->kind == KVT_JOB_LOAD ? KVT_STATUS_LOADED
						      : KVT_STATUS_HIT;
	if (job->lookup_flags & KVT_LOOKUP_PREFIX)
		cut_prefix(job);
	job->complete = true;
	if (job->mark) {
		job->mark->next = after->marks;
		after->marks = job->mark;
		job->mark = NULL;
	}
	live_unlink(w, job);
	w->jobs_completed++;
	if (r->kind == KVT_JOB_OPS) {
		w->raw_live--;
		job->next = after->freed;
		after->freed = job;
	} else {
		if (w->done_last)
			w->done_last->next = job;
		else
			w->done_first = job;
		w->done_last = job;
		if (atomic_fetch_add(&w->done_count, 1) == 0 && w->event_fd >= 0) {
			uint64_t one = 1;
			/* Never blocks: the counter is far from its end. A system call on a private
			 * descriptor is not a call out. */
			ssize_t n = write(w->event_fd, &one, sizeof(one));
			(void)n;
		}
	}
	if (w->waiting)
		pthread_cond_broadcast(&w->changed);
}

void kvt__job_unpin_locked(struct kvt_worker *w, struct kvt__job *job, struct kvt__after *after)
{
	if (--job->pending == 0)
		job_complete_locked(w, job, after);
}

void kvt__arm_end_locked(struct kvt_worker *w, struct kvt__job *job, struct kvt__after *after)
{
	job->arm = NULL;
	job->memory_pending--;
	if (job->memory_pending == 0 && w->waiting)
		pthread_cond_broadcast(&w->changed);
	kvt__job_unpin_locked(w, job, after);
}

struct kvt__detail *kvt__detail_new(const struct kvt_worker *w, const char *text)
{
	size_t bytes = strlen(text) + 1;
	struct kvt__detail *d = kvt__alloc(&w->env, sizeof(*d) + bytes);
	if (d) {
		d->next = NULL;
		memcpy(d->text, text, bytes);
	}
	return d;
}

/* Notes one key's status in its job; the line of the worst key stays. */
static void note_status(struct kvt_worker *w, struct kvt__item *item, enum kvt_status status,
			int error, struct kvt__detail *detail, const char *fixed,
			struct kvt__after *after)
{
	struct kvt__job *job = item->job;
	uint32_t rank = kvt__status_rank(status);
	job->key_status[item->index] = (uint8_t)status;
	job->key_error[item->index] = (int16_t)error;
	if (error && !fixed)
		fixed = kvt_error_text(error);
	if (!kvt_status_is_success(status) && error) {
		const char *text = detail ? detail->text : fixed;
		size_t n = strnlen(text, sizeof(w->last_error_detail) - 1);
		w->last_error = error;
		memcpy(w->last_error_detail, text, n);
		w->last_error_detail[n] = '\0';
	}
	bool beyond_prefix = item->index > job->prefix_end;
	bool worse = rank > job->worst || (rank == job->worst && error && !job->result.error &&
					   !kvt_status_is_success(status));
	if (!beyond_prefix && worse) {
		job->worst = (uint8_t)rank;
		job->result.status = status;
		job->result.error = error;
		struct kvt__detail *old = job->detail;
		job->detail = detail;
		job->detail_fixed = fixed;
		detail = old;
	} else if (rank == 0 && job->worst == 0 && job->result.status == KVT_STATUS_PENDING) {
		job->result.status = status;
	}
	if (detail) {
		detail->next = after->details;
		after->details = detail;
	}
}

/* A store covers another of its key when it has the same slots or more. */
static bool covers(const struct kvt__item *a, const struct kvt__item *b)
{
	const struct kvt__shape *sa = &a->job->shapes[a->shape], *sb = &b->job->shapes[b->shape];
	uint32_t f = sa->geometry.blocks_per_chunk;
	if (f != sb->geometry.blocks_per_chunk ||
	    sa->geometry.ref_count != sb->geometry.ref_count ||
	    memcmp(sa->geometry.ref_bytes, sb->geometry.ref_bytes,
		   sa->geometry.ref_count * sizeof(uint64_t)) != 0)
		return false;
	struct kvt__plan_chunk ca, cb;
	kvt__plan_chunk(&sa->plan, f, a->index - sa->plan.first_key, &ca);
	kvt__plan_chunk(&sb->plan, f, b->index - sb->plan.first_key, &cb);
	return ca.first_slot <= cb.first_slot &&
	       ca.first_slot + ca.block_count >= cb.first_slot + cb.block_count;
}

/* A raw file's own completion: told to its owner once the lock is released. */
static void finish_file(struct kvt_io_completion *c, int error, const char *text,
			struct kvt__after *after)
{
	c->result = error;
	if (error) {
		text = text ? text : kvt_error_text(error);
		size_t n = strnlen(text, sizeof(c->detail) - 1);
		memcpy(c->detail, text, n);
		c->detail[n] = '\0';
	}
	c->next = after->files;
	after->files = c;
}

/* Ends one item without looking at who follows it. */
static void finish_one(struct kvt_worker *w, struct kvt__item *item, enum kvt_status status,
		       int error, uint64_t bytes, struct kvt__detail *detail, const char *fixed,
		       struct kvt__after *after)
{
	struct kvt__job *job = item->job;
	item->state = KVT__ITEM_DONE;
	if (job->raws)
		finish_file(job->raws[item->index].completion, error, detail ? detail->text : fixed,
			    after);
	note_status(w, item, status, error, detail, fixed, after);
	w->keys_done[job->result.kind][status]++;
	if (kvt_status_is_success(status)) {
		job->result.bytes += bytes;
		if (status != KVT_STATUS_SKIPPED)
			w->bytes_done[job->result.kind] += bytes;
	}
	if (status == KVT_STATUS_STORED)
		after->stored_bytes += bytes;
	if (status == KVT_STATUS_HIT && !w->fruitless_warned &&
	    w->keys_done[KVT_JOB_LOOKUP][KVT_STATUS_HIT] >= 1000 &&
	    w->keys_done[KVT_JOB_LOAD][KVT_STATUS_LOADED] +
			    w->keys_done[KVT_JOB_LOAD][KVT_STATUS_LOADED_UNVERIFIED] ==
		    0)
		w->fruitless_warned = after->fruitless = true;
	kvt__item_quiet_locked(w, item);
	if (--job->pending == 0)
		job_complete_locked(w, job, after);
}

/* Into its queue, unless its job still waits for its ready event. */
static void enqueue(struct kvt_worker *w, struct kvt__item *item)
{
	if (item->job->arm)
		item->state = KVT__ITEM_HELD;
	else
		kvt__queue_push_locked(w, item, (enum kvt__class)item->item_class);
}

/*
 * Hands a finished store's followers on: loads go to their queue; the next store is skipped when
 * the leader stored what it has, else it leads the rest.
 */
static void release_followers(struct kvt_worker *w, struct kvt__item *leader, bool stored,
			      struct kvt__after *after)
{
	kvt__keys_remove_locked(w, leader);
	while (leader->first) {
		struct kvt__item *item = leader->first;
		kvt__keys_unfollow_locked(item);
		if (item->job->result.kind == KVT_JOB_LOAD) {
			enqueue(w, item);
			continue;
		}
		if (stored && covers(leader, item)) {
			const struct kvt__shape *s = &item->job->shapes[item->shape];
			struct kvt__plan_chunk c;
			uint64_t bytes = 0;
			kvt__plan_chunk(&s->plan, s->geometry.blocks_per_chunk,
					item->index - s->plan.first_key, &c);
			for (uint32_t d = 0; d < s->geometry.ref_count; d++)
				bytes += s->geometry.ref_bytes[d] * c.block_count;
			w->queued--;
			finish_one(w, item, KVT_STATUS_SKIPPED, 0, bytes, NULL, NULL, after);
			continue;
		}
		kvt__keys_insert_locked(w, item);
		item->first = leader->first;
		item->last = leader->last;
		leader->first = leader->last = NULL;
		for (struct kvt__item *f = item->first; f; f = f->next) {
			f->leader = item;
			if (f->job->result.kind == KVT_JOB_LOAD)
				kvt__queue_lift_locked(w, item);
		}
		enqueue(w, item);
		break;
	}
	kvt__wake_one_locked(w, after);
}

/* A prefix lookup goes on with its next key, or ends what lies beyond its first miss. */
static void prefix_advance(struct kvt_worker *w, struct kvt__job *job, uint32_t index,
			   enum kvt_status status, struct kvt__after *after)
{
	if ((status == KVT_STATUS_MISS || status == KVT_STATUS_UNKNOWN ||
	     status == KVT_STATUS_CANCELED) &&
	    index < job->prefix_end)
		job->prefix_end = index;
	if (job->prefix_next >= job->result.key_count)
		return;
	if (job->prefix_next <= job->prefix_end) {
		struct kvt__item *item = &job->items[job->prefix_next++];
		kvt__queue_push_locked(w, item, KVT__CLASS_LOOKUP);
		kvt__wake_one_locked(w, after);
		return;
	}
	while (job->prefix_next < job->result.key_count) {
		struct kvt__item *item = &job->items[job->prefix_next++];
		w->queued--;
		finish_one(w, item, KVT_STATUS_UNKNOWN, 0, 0, NULL, NULL, after);
	}
}

void kvt__item_finish_locked(struct kvt_worker *w, struct kvt__item *item, enum kvt_status status,
			     int error, uint64_t bytes, struct kvt__detail *detail,
			     const char *fixed, struct kvt__after *after)
{
	struct kvt__job *job = item->job;
	bool prefix = (job->lookup_flags & KVT_LOOKUP_PREFIX) && job->result.kind == KVT_JOB_LOOKUP;
	uint32_t index = item->index;
	bool in_table = item->in_table;
	/* Whoever leads next must be known before the job may go: its last item may free it. */
	if (in_table)
		release_followers(w, item,
				  status == KVT_STATUS_STORED || status == KVT_STATUS_SKIPPED,
				  after);
	job->pending++; /* keeps the job until the prefix has moved on */
	finish_one(w, item, status, error, bytes, detail, fixed, after);
	if (prefix)
		prefix_advance(w, job, index, status, after);
	kvt__job_unpin_locked(w, job, after);
}

void kvt__job_drop_locked(struct kvt_worker *w, struct kvt__job *job, enum kvt_status status,
			  int error, const char *fixed, struct kvt__after *after)
{
	job->pending++;
	job->prefix_end = UINT64_MAX;
	job->prefix_next = job->result.key_count;
	for (uint64_t k = 0; k < job->result.key_count; k++) {
		struct kvt__item *item = &job->items[k];
		if (item->state == KVT__ITEM_ACTIVE || item->state == KVT__ITEM_DONE)
			continue;
		if (item->state == KVT__ITEM_QUEUED)
			kvt__queue_unlink_locked(w, item);
		else if (item->state == KVT__ITEM_PARKED)
			kvt__keys_unfollow_locked(item);
		w->queued--;
		kvt__item_finish_locked(
			w, item, job->result.kind == KVT_JOB_LOOKUP ? KVT_STATUS_UNKNOWN : status,
			error, 0, NULL, fixed, after);
	}
	if (job->arm) /* its lane has to take it back */
		after->wake |=
			w->config.lanes == 64 ? UINT64_MAX : (UINT64_C(1) << w->config.lanes) - 1;
	kvt__job_unpin_locked(w, job, after);
}

void kvt__expire(struct kvt_worker *w, int64_t now_ns)
{
	if (now_ns < atomic_load_explicit(&w->next_expiry_ns, memory_order_relaxed))
		return;
	struct kvt__after after = {0};
	pthread_mutex_lock(&w->lock);
	int64_t next = INT64_MAX;
	struct kvt__job *job = w->live_first;
	while (job) {
		struct kvt__job *following = job->next;
		if (!job->expired && job->deadline_ns <= now_ns) {
			job->expired = true;
			kvt__job_drop_locked(
				w, job, KVT_STATUS_FAILED, KVT_ETIMEDOUT,
				job->arm
					? "the job's deadline passed before its ready event"
					: "the job's deadline passed before this chunk was started",
				&after);
		} else if (!job->expired && job->deadline_ns < next) {
			next = job->deadline_ns;
		}
		job = following;
	}
	atomic_store_explicit(&w->next_expiry_ns, next, memory_order_relaxed);
	pthread_mutex_unlock(&w->lock);
	kvt__after_run(w, &after);
}

void kvt__job_queue_locked(struct kvt_worker *w, struct kvt__job *job, struct kvt__after *after)
{
	uint64_t window = job->result.key_count;
	if (job->result.kind == KVT_JOB_LOOKUP && (job->lookup_flags & KVT_LOOKUP_PREFIX) &&
	    window > KVT__PREFIX_WINDOW)
		window = KVT__PREFIX_WINDOW;
	job->prefix_next = window;
	for (uint64_t k = 0; k < window; k++) {
		struct kvt__item *item = &job->items[k];
		if (item->state == KVT__ITEM_HELD)
			kvt__queue_push_locked(w, item, (enum kvt__class)item->item_class);
	}
	kvt__wake_one_locked(w, after);
}

struct kvt__job *kvt__job_find_locked(const struct kvt_worker *w, uint64_t job_id)
{
	struct kvt__job *job =
		w->jobs.buckets[job_id * UINT64_C(0x9e3779b97f4a7c15) >> 32 & w->jobs.mask];
	while (job && job->result.job_id != job_id)
		job = job->id_next;
	return job;
}

/* The caller's share and the job's share of a raw file's completion end in any order. */
void kvt_io_completion_release(struct kvt_io_completion *c)
{
	if (!c || atomic_fetch_sub(&c->owners, 1) != 1)
		return;
	pthread_mutex_destroy(&c->lock);
	pthread_cond_destroy(&c->cond);
	struct kvt_allocator a = c->allocator;
	a.free(a.context, c);
}

void kvt__after_run(struct kvt_worker *w, struct kvt__after *after)
{
	while (after->wake) {
		int lane = __builtin_ctzll(after->wake);
		after->wake &= after->wake - 1;
		kvt__lane_wake(w, (uint32_t)lane);
	}
	while (after->details) {
		struct kvt__detail *d = after->details;
		after->details = d->next;
		kvt__free(&w->env, d);
	}
	while (after->marks) {
		struct kvt__mark *mark = after->marks;
		after->marks = mark->next;
		kvt__mark_destroy(&w->env, w->device, mark);
	}
	while (after->files) {
		struct kvt_io_completion *c = after->files;
		after->files = c->next;
		pthread_mutex_lock(&c->lock);
		atomic_store_explicit(&c->done, 1, memory_order_release);
		pthread_cond_broadcast(&c->cond);
		pthread_mutex_unlock(&c->lock);
		kvt_io_completion_release(c);
	}
	while (after->freed) {
		struct kvt__job *job = after->freed;
		after->freed = job->next;
		kvt__job_free(job);
	}
	if (after->fruitless)
		kvt__log(&w->env, KVT_LOG_WARNING, "fruitless",
			 "1,000 lookups hit and nothing has been loaded: is what is found ever "
			 "asked for?");
	if (after->stored_bytes)
		kvt__store_wrote(w->store, after->stored_bytes);
}

void kvt__job_free(struct kvt__job *job)
{
	struct kvt_allocator a = job->allocator;
	a.free(a.context, job->detail);
	a.free(a.context, job);
}

void kvt_result_release(struct kvt_result *result)
{
	if (result)
		kvt__job_free((struct kvt__job *)result);
}
