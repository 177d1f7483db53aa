/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests: the stages that an operation is made of (staging memory, device copies, storage io,
 * waiting), with retries by error class. Runs on the lane's thread; only the grant of staging
 * memory comes from another one, through the inbox.
 */
#include "lane.h"

#include <string.h>

#define COMMIT_TIMEOUTS 4 /* servers put the parts together before they answer */

static void granted(struct kvt__staging_wait *wait);
static void io_complete(struct kvt_io *io);
static void copy_complete(struct kvt_device_io *io);

static size_t align16(size_t n)
{
	return (n + 15) & ~(size_t)15;
}

static struct kvt__req *req_new(struct kvt__lane *lane)
{
	struct kvt_worker *w = lane->worker;
	size_t io_at = align16(sizeof(struct kvt__req));
	size_t copy_at = io_at + align16(w->store->ops.io_private_bytes);
	struct kvt__req *req =
		kvt__zalloc(&w->env, copy_at + align16(w->device->ops.io_private_bytes));
	if (!req)
		return NULL;
	req->lane = lane;
	req->io.private_data = (uint8_t *)req + io_at;
	req->io.owner = req;
	req->io.complete = io_complete;
	req->io.detail_buffer = req->detail;
	req->io.detail_bytes = sizeof(req->detail);
	req->copy.private_data = (uint8_t *)req + copy_at;
	req->copy.owner = req;
	req->copy.complete = copy_complete;
	req->copy.detail_buffer = req->detail;
	req->copy.detail_bytes = sizeof(req->detail);
	req->staging.granted = granted;
	return req;
}

int kvt__requests_init(struct kvt__lane *lane)
{
	for (uint32_t i = 0; i < lane->depth; i++) {
		struct kvt__req *req = req_new(lane);
		if (!req || kvt__req_reserve(req, 4, 0)) {
			kvt__free(&lane->worker->env, req);
			return KVT_ENOMEM;
		}
		req->next = lane->requests_free;
		lane->requests_free = req;
		lane->requests_free_count++;
	}
	return 0;
}

void kvt__requests_fini(struct kvt__lane *lane)
{
	const struct kvt__env *env = &lane->worker->env;
	while (lane->requests_free) {
		struct kvt__req *req = lane->requests_free;
		lane->requests_free = req->next;
		kvt__free(env, req->iov);
		kvt__free(env, req->copies);
		kvt__free(env, req);
	}
}

struct kvt__req *kvt__req_get(struct kvt__lane *lane, struct kvt__op *op)
{
	struct kvt__req *req = lane->requests_free;
	if (!req)
		return NULL;
	lane->requests_free = req->next;
	lane->requests_free_count--;
	req->next = NULL;
	req->op = op;
	req->range = NULL;
	req->must = req->direct = false;
	return req;
}

uint32_t kvt__requests_room(const struct kvt__lane *lane)
{
	uint32_t free = lane->requests_free_count;
	uint32_t kept = lane->reserved > lane->lookup_ops ? lane->reserved - lane->lookup_ops : 0;
	return free > kept ? free - kept : 0;
}

void kvt__req_put(struct kvt__req *req)
{
	struct kvt__lane *lane = req->lane;
	kvt__req_release_buffer(req);
	req->op = NULL;
	req->stage = KVT__STAGE_NONE;
	req->next = lane->requests_free;
	lane->requests_free = req;
	lane->requests_free_count++;
}

int kvt__req_reserve(struct kvt__req *req, uint32_t iov, uint32_t copies)
{
	const struct kvt__env *env = &req->lane->worker->env;
	if (iov > req->iov_room) {
		uint32_t room = iov < 8 ? 8 : iov + iov / 2;
		struct kvt_iovec *more = kvt__alloc(env, room * sizeof(*more));
		if (!more)
			return KVT_ENOMEM;
		if (req->iov_room)
			memcpy(more, req->iov, req->iov_room * sizeof(*more));
		kvt__free(env, req->iov);
		req->iov = more;
		req->iov_room = room;
	}
	if (copies > req->copies_room) {
		uint32_t room = copies < 8 ? 8 : copies + copies / 2;
		struct kvt_device_copy *more = kvt__alloc(env, room * sizeof(*more));
		if (!more)
			return KVT_ENOMEM;
		if (req->copies_room)
			memcpy(more, req->copies, req->copies_room * sizeof(*more));
		kvt__free(env, req->copies);
		req->copies = more;
		req->copies_room = room;
	}
	return 0;
}

void kvt__req_prepare(struct kvt__req *req, enum kvt_io_op what)
{
	struct kvt_io *io = &req->io;
	io->op = (uint32_t)what;
	io->flags = 0;
	io->name = req->op->name;
	io->iov = NULL;
	io->iov_count = io->part_number = 0;
	io->length = io->object_bytes = 0;
	io->offset = 0;
	io->crc32c = 0;
	io->if_version = NULL;
	io->progress = NULL;
	io->list_item = NULL;
	io->handle = req->op->handle;
	req->must = false;
}

static void push_ready(struct kvt__req *req)
{
	struct kvt__lane *lane = req->lane;
	req->stage = KVT__STAGE_READY;
	req->next = NULL;
	if (lane->ready_last)
		lane->ready_last->next = req;
	else
		lane->ready_first = req;
	lane->ready_last = req;
}

static void push_waiting(struct kvt__req *req, enum kvt__stage stage)
{
	req->stage = (uint8_t)stage;
	req->next = req->lane->waiting;
	req->lane->waiting = req;
}

static void unlink_waiting(struct kvt__req *req)
{
	struct kvt__req **at = &req->lane->waiting;
	while (*at != req)
		at = &(*at)->next;
	*at = req->next;
	req->next = NULL;
}

void kvt__req_ready(struct kvt__req *req, int result, kvt__then_fn then)
{
	req->then = then;
	req->result = result;
	push_ready(req);
}

void kvt__requests_run_ready(struct kvt__lane *lane)
{
	while (lane->ready_first) {
		struct kvt__req *req = lane->ready_first;
		lane->ready_first = req->next;
		if (!lane->ready_first)
			lane->ready_last = NULL;
		req->next = NULL;
		req->stage = KVT__STAGE_NONE;
		req->then(req);
	}
}

/* On the thread that released memory: hand the request over to its lane. */
static void granted(struct kvt__staging_wait *wait)
{
	struct kvt__req *req =
		(struct kvt__req *)((uint8_t *)wait - offsetof(struct kvt__req, staging));
	struct kvt__lane *lane = req->lane;
	struct kvt_worker *w = lane->worker;
	uint32_t index = lane->index;
	struct kvt__req *head = atomic_load_explicit(&lane->inbox, memory_order_relaxed);
	do {
		req->inbox_next = head;
	} while (!atomic_compare_exchange_weak_explicit(
		&lane->inbox, &head, req, memory_order_release, memory_order_relaxed));
	kvt__lane_wake(w, index);
}

void kvt__requests_take_inbox(struct kvt__lane *lane)
{
	if (!atomic_load_explicit(&lane->inbox, memory_order_relaxed))
		return;
	struct kvt__req *req = atomic_exchange_explicit(&lane->inbox, NULL, memory_order_acquire);
	while (req) {
		struct kvt__req *next = req->inbox_next;
		unlink_waiting(req);
		req->buffered = true;
		req->result = 0;
		push_ready(req);
		req = next;
	}
}

void kvt__req_buffer(struct kvt__req *req, uint64_t bytes, bool for_store, kvt__then_fn then)
{
	struct kvt__lane *lane = req->lane;
	req->then = then;
	req->result = 0;
	req->staging.bytes = bytes;
	req->staging.for_store = for_store;
	req->buffer_until_ns = lane->now_ns + lane->worker->config.buffer_timeout_ns;
	/* Listed before: the grant may come at once from another thread. */
	push_waiting(req, KVT__STAGE_BUFFER);
	if (kvt__staging_acquire(lane->worker->staging, &req->staging)) {
		unlink_waiting(req);
		req->buffered = true;
		push_ready(req);
	}
}

void kvt__req_release_buffer(struct kvt__req *req)
{
	if (req->buffered)
		kvt__staging_release(req->lane->worker->staging, &req->staging);
	req->buffered = false;
}

static void copy_landed(struct kvt__req *req)
{
	kvt__latency_add(&req->lane->stats.device_ns, kvt__now_ns() - req->started_ns);
	req->result = req->copy.result;
	push_ready(req);
}

static void copy_complete(struct kvt_device_io *io)
{
	struct kvt__req *req = io->owner;
	if (req->stage == KVT__STAGE_ORDER)
		unlink_waiting(req);
	req->lane->copies_in_flight--;
	copy_landed(req);
}

static void device_answer(struct kvt__req *req, enum kvt__stage stage, int answer)
{
	if (answer == KVT_DEVICE_QUEUED) {
		if (stage == KVT__STAGE_ORDER)
			push_waiting(req, stage);
		else
			req->stage = (uint8_t)stage;
		req->lane->copies_in_flight++;
		return;
	}
	if (answer < 0)
		req->copy.result = answer;
	copy_landed(req);
}

void kvt__req_copy(struct kvt__req *req, enum kvt_copy_direction direction, uint32_t count,
		   kvt__then_fn then)
{
	struct kvt__lane *lane = req->lane;
	req->then = then;
	if (count == 0) {
		kvt__req_ready(req, 0, then);
		return;
	}
	req->copy.direction = (uint32_t)direction;
	req->copy.copies = req->copies;
	req->copy.copy_count = count;
	req->copy.result = 0;
	req->detail[0] = '\0';
	req->started_ns = kvt__now_ns();
	device_answer(req, KVT__STAGE_COPY,
		      lane->worker->device->ops.copy(lane->device_lane, &req->copy));
}

void kvt__req_order(struct kvt__req *req, bool for_cpu, kvt__then_fn then)
{
	struct kvt__lane *lane = req->lane;
	req->then = then;
	req->copy.direction = req->op->is_store ? KVT_GATHER : KVT_SCATTER;
	req->copy.copies = NULL;
	req->copy.copy_count = 0;
	req->copy.result = 0;
	req->detail[0] = '\0';
	req->started_ns = kvt__now_ns();
	device_answer(req, KVT__STAGE_ORDER,
		      lane->worker->device->ops.order(lane->device_lane, &req->op->job->ready,
						      for_cpu, &req->copy));
}

static void submit(struct kvt__req *req);

static void io_landed(struct kvt__req *req)
{
	struct kvt__lane *lane = req->lane;
	struct kvt_worker *w = lane->worker;
	int64_t now = kvt__now_ns();
	int result = req->io.result;
	kvt__latency_add(&lane->stats.storage_ns, now - req->started_ns);
	/* An answer that asking is dear is no failure, and a job's own deadline says nothing about
	 * the store. */
	bool dear = result == KVT_EAGAIN && (req->io.flags & KVT_IO_IF_CHEAP);
	bool own_deadline = result == KVT_ETIMEDOUT && req->io.deadline_ns == req->op->deadline_ns;
	if (own_deadline)
		kvt__retry_abandon(&w->retry, req->probe);
	else if (!req->must && kvt__retry_report(&w->retry, dear ? 0 : result, req->probe, now))
		kvt__log(&w->env, KVT_LOG_WARNING, "breaker",
			 "store %s keeps failing (%s): left alone for a while", w->store->uri,
			 req->detail[0] ? req->detail : kvt_error_text(result));
	req->probe = false;
	/* Commit and abort end their handle, whatever they answer. */
	bool once = dear || req->io.op == KVT_IO_COMMIT || req->io.op == KVT_IO_ABORT ||
		    req->io.op == KVT_IO_TOUCH;
	if (result < 0) {
		int64_t at = once || kvt__op_stopped(req->op)
				     ? 0
				     : kvt__retry_at(&w->retry, result, req->tries, now,
						     req->io.retry_after_ns, req->op->deadline_ns);
		if (at) {
			kvt__count(&lane->stats.retries[kvt_error_class(result)], 1);
			req->retry_at_ns = at;
			kvt__range_resume(req);
			push_waiting(req, KVT__STAGE_DELAY);
			return;
		}
		if (result == KVT_ENOSPC)
			atomic_store(&w->stores_paused_until_ns, now + INT64_C(10000000000));
	}
	req->result = result;
	push_ready(req);
}

static void io_complete(struct kvt_io *io)
{
	struct kvt__req *req = io->owner;
	req->lane->in_flight--;
	kvt__count(&req->lane->stats.in_flight, UINT64_MAX);
	io_landed(req);
}

static void push_busy(struct kvt__req *req)
{
	struct kvt__lane *lane = req->lane;
	req->stage = KVT__STAGE_BUSY;
	req->next = NULL;
	if (lane->busy_last)
		lane->busy_last->next = req;
	else
		lane->busy_first = req;
	lane->busy_last = req;
}

/* One try. Whatever ends it before the backend has it is the request's result. */
static void submit(struct kvt__req *req)
{
	struct kvt__lane *lane = req->lane;
	struct kvt_worker *w = lane->worker;
	struct kvt_io *io = &req->io;
	int64_t now = kvt__now_ns();
	int stopped = req->must ? 0 : kvt__op_stopped(req->op);
	req->detail[0] = '\0';
	if (!stopped && !req->must && !req->probe)
		stopped = kvt__retry_admit(&w->retry, now, &req->probe);
	if (stopped) {
		kvt__retry_abandon(&w->retry, req->probe);
		req->probe = false;
		req->result = stopped;
		if (stopped == KVT_EUNAVAIL)
			snprintf(req->detail, sizeof(req->detail), "%s: %s, after: %s",
				 req->op->name, kvt_error_text(stopped),
				 kvt_error_text(atomic_load_explicit(&w->retry.last_failure,
								     memory_order_relaxed)));
		push_ready(req);
		return;
	}
	int64_t limit =
		now +
		(io->op == KVT_IO_COMMIT ? COMMIT_TIMEOUTS : 1) * w->config.operation_timeout_ns +
		(int64_t)(io->length >> 20) * INT64_C(1000000000);
	io->deadline_ns = req->must || req->op->deadline_ns > limit ? limit : req->op->deadline_ns;
	io->result = 0;
	io->bytes_landed = 0;
	io->swept = 0;
	io->retry_after_ns = 0;
	io->info.object_bytes = KVT_BYTES_UNKNOWN;
	io->info.version.bytes = 0;
	io->info.age_ns = io->info.access_age_ns = -1;
	if (req->range)
		kvt__cursor_start(req);
	req->started_ns = now;
	io->attempt = req->tries + 1;
	int answer = w->store->ops.submit(lane->session, io);
	if (answer == KVT_BUSY && lane->in_flight) {
		push_busy(req);
		return;
	}
	req->tries++;
	req->op->attempts++;
	kvt__count(&lane->stats.requests, 1);
	if (answer == KVT_QUEUED) {
		req->stage = KVT__STAGE_IO;
		lane->in_flight++;
		kvt__count(&lane->stats.in_flight, 1);
		return;
	}
	if (answer == KVT_BUSY) {
		io->result = KVT_EINTERNAL;
		kvt__log(&w->env, KVT_LOG_ERROR, "busy",
			 "backend %s answers busy with nothing in flight", w->store->ops.name);
	} else if (answer < 0) {
		io->result = answer;
	}
	io_landed(req);
}

void kvt__req_io(struct kvt__req *req, kvt__then_fn then)
{
	req->then = then;
	req->tries = 0;
	req->probe = false;
	submit(req);
}

void kvt__req_delay(struct kvt__req *req, int64_t at_ns, kvt__then_fn then)
{
	req->then = then;
	req->result = 0;
	req->retry_at_ns = at_ns;
	push_waiting(req, KVT__STAGE_PAUSE);
}

void kvt__requests_resubmit_busy(struct kvt__lane *lane)
{
	struct kvt__req *req = lane->busy_first;
	lane->busy_first = lane->busy_last = NULL;
	while (req) {
		struct kvt__req *next = req->next;
		req->next = NULL;
		submit(req);
		req = next;
	}
}

/* What ends a wait at `now`: a code, 1 when its time has come, 0 when it goes on; *nextp: when to
 * look again. */
static int wait_over(struct kvt__req *req, int64_t now, int64_t *nextp)
{
	int stopped = req->must ? 0 : kvt__op_stopped(req->op);
	int64_t until = req->stage == KVT__STAGE_BUFFER	 ? req->buffer_until_ns
			: req->stage == KVT__STAGE_ORDER ? INT64_MAX
							 : req->retry_at_ns;
	if (stopped)
		return stopped;
	if (now >= until)
		return req->stage == KVT__STAGE_BUFFER ? KVT_ETIMEDOUT : 1;
	if (!req->must && req->op->deadline_ns < until)
		until = req->op->deadline_ns;
	if (until < *nextp)
		*nextp = until;
	return 0;
}

/* When the ordering's completion is already due, it comes as usual. */
static void order_over(struct kvt__req *req, int over)
{
	struct kvt__lane *lane = req->lane;
	if (lane->worker->device->ops.order_cancel(lane->device_lane, &req->copy) != 0)
		return;
	unlink_waiting(req);
	lane->copies_in_flight--;
	req->result = over;
	push_ready(req);
}

int64_t kvt__requests_check_waiting(struct kvt__lane *lane)
{
	int64_t next = INT64_MAX, now = lane->now_ns;
	struct kvt__req *req = lane->waiting;
	while (req) {
		struct kvt__req *following = req->next;
		int over = wait_over(req, now, &next);
		if (over && req->stage == KVT__STAGE_BUFFER) {
			/* When it has been granted meanwhile, the inbox has it or will have it. */
			if (kvt__staging_cancel(lane->worker->staging, &req->staging)) {
				unlink_waiting(req);
				req->result = over;
				snprintf(req->detail, sizeof(req->detail),
					 "%s: waited for staging memory of %llu bytes",
					 req->op->name, (unsigned long long)req->staging.bytes);
				push_ready(req);
			}
		} else if (over && req->stage == KVT__STAGE_ORDER) {
			order_over(req, over);
		} else if (over && req->stage == KVT__STAGE_DELAY && over == 1) {
			unlink_waiting(req);
			submit(req);
		} else if (over) {
			bool paused = req->stage == KVT__STAGE_PAUSE;
			unlink_waiting(req);
			/* A failed request that may not be tried again keeps its own failure, but
			 * for a cancel. */
			req->result = paused		      ? (over == 1 ? 0 : over)
				      : over == KVT_ECANCELED ? over
							      : req->io.result;
			push_ready(req);
		}
		req = following;
	}
	return next;
}
