/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations: what runs one item on its lane, from taking it to handing its outcome over. What each
 * kind does in between is in chunk_store.c, chunk_load.c, chunk_lookup.c and raw_file.c. All on the
 * lane's thread.
 */
#include "lane.h"

#include <string.h>

int kvt__op_stopped(const struct kvt__op *op)
{
	if (op->job && atomic_load_explicit(&op->job->canceled, memory_order_relaxed))
		return KVT_ECANCELED;
	if (!op->job && atomic_load_explicit(&op->lane->worker->stopping, memory_order_relaxed))
		return KVT_ECANCELED;
	if (op->lane->now_ns >= op->deadline_ns)
		return KVT_ETIMEDOUT;
	return 0;
}

void kvt__op_fail(struct kvt__op *op, enum kvt_status status, int error, const char *detail)
{
	if (op->decided)
		return;
	op->decided = true;
	op->status = status;
	op->error = error;
	if (!detail || !detail[0])
		detail = kvt_error_text(error);
	if (strncmp(detail, op->name, strlen(op->name)) == 0 || strstr(detail, op->name))
		snprintf(op->detail, sizeof(op->detail), "%s", detail);
	else
		snprintf(op->detail, sizeof(op->detail), "%s: %s", op->name, detail);
}

void kvt__op_fail_request(struct kvt__op *op, struct kvt__req *req)
{
	int error = req->result;
	bool lookup = op->job && op->job->result.kind == KVT_JOB_LOOKUP;
	enum kvt_status status = lookup			  ? KVT_STATUS_UNKNOWN
				 : error == KVT_ECANCELED ? KVT_STATUS_CANCELED
							  : KVT_STATUS_FAILED;
	char line[KVT__DETAIL_BYTES + 64];
	if (error == KVT_ETIMEDOUT && !req->detail[0])
		snprintf(line, sizeof(line), "%s: the deadline passed after %u requests", op->name,
			 op->attempts);
	else if (req->tries > 1 && req->detail[0])
		snprintf(line, sizeof(line), "%s (try %u of %u)", req->detail, req->tries,
			 op->lane->worker->retry.attempts);
	else
		snprintf(line, sizeof(line), "%s", req->detail);
	kvt__op_fail(op, status, error, line);
}

bool kvt__op_is_paused(struct kvt__op *op)
{
	if (op->lane->now_ns >= atomic_load(&op->lane->worker->stores_paused_until_ns))
		return false;
	kvt__op_fail(op, KVT_STATUS_FAILED, KVT_ENOSPC,
		     "the store is full: stores are paused for 10 s after it said so");
	return true;
}

void kvt__ops_flush_finished(struct kvt__lane *lane)
{
	struct kvt_worker *w = lane->worker;
	if (!lane->finished_count)
		return;
	struct kvt__after after = {0};
	pthread_mutex_lock(&w->lock);
	for (uint32_t i = 0; i < lane->finished_count; i++) {
		struct kvt__finished *f = &lane->finished[i];
		if (f->quiet_only) {
			kvt__item_quiet_locked(w, f->item);
			continue;
		}
		f->item->job->result.attempts += f->attempts;
		kvt__item_finish_locked(w, f->item, f->status, f->error, f->bytes, f->detail, NULL,
					&after);
	}
	pthread_mutex_unlock(&w->lock);
	lane->finished_count = 0;
	kvt__after_run(w, &after);
}

static void hand_over(struct kvt__op *op, bool quiet_only)
{
	struct kvt__lane *lane = op->lane;
	if (lane->finished_count == KVT__FINISHED_MAX)
		kvt__ops_flush_finished(lane);
	struct kvt__finished *f = &lane->finished[lane->finished_count++];
	*f = (struct kvt__finished){.item = op->item, .quiet_only = quiet_only};
	if (quiet_only)
		return;
	f->status = op->status;
	f->error = op->error;
	f->bytes = op->bytes;
	f->attempts = op->attempts;
	if (op->error && op->detail[0])
		f->detail = kvt__detail_new(lane->worker, op->detail);
}

void kvt__op_quiet(struct kvt__op *op)
{
	if (op->item && !op->quiet)
		hand_over(op, true);
	op->quiet = true;
}

struct kvt__op *kvt__op_new(struct kvt__lane *lane)
{
	struct kvt__op *op = lane->ops_free;
	char *name;
	if (op) {
		lane->ops_free = op->next;
		name = op->name_room;
	} else {
		op = kvt__alloc(&lane->worker->env, sizeof(*op) + lane->name_room);
		if (!op)
			return NULL;
		name = (char *)(op + 1);
	}
	/* The inline arrays and the lines of detail need no clearing. */
	memset(op, 0, offsetof(struct kvt__op, ranges_inline));
	memset((uint8_t *)op + offsetof(struct kvt__op, range_count), 0,
	       offsetof(struct kvt__op, crcs_inline) - offsetof(struct kvt__op, range_count));
	memset((uint8_t *)op + offsetof(struct kvt__op, old_presence), 0,
	       offsetof(struct kvt__op, detail) - offsetof(struct kvt__op, old_presence));
	op->detail[0] = '\0';
	op->lane = lane;
	op->name = op->name_room = name;
	op->found.object_bytes = KVT_BYTES_UNKNOWN;
	return op;
}

static void op_free(struct kvt__op *op)
{
	struct kvt__lane *lane = op->lane;
	const struct kvt__env *env = &lane->worker->env;
	kvt__ranges_free(op);
	if (op->trailer_memory && op->trailer_room <= KVT__SMALL_TRAILER_BYTES) {
		memcpy(op->trailer_memory, &lane->small_trailers, sizeof(lane->small_trailers));
		lane->small_trailers = op->trailer_memory;
	} else {
		kvt__free(env, op->trailer_memory);
	}
	if (op->crcs != op->crcs_inline)
		kvt__free(env, op->crcs);
	kvt__free(env, op->old_presence);
	kvt__free(env, op->lost);
	kvt__free(env, op->peeked);
	op->next = lane->ops_free;
	lane->ops_free = op;
}

int kvt__op_trailer_room(struct kvt__op *op, uint64_t bytes)
{
	struct kvt__lane *lane = op->lane;
	if (op->trailer_room >= bytes) {
		op->trailer = op->trailer_memory;
		return 0;
	}
	if (op->trailer_memory) {
		kvt__free(&lane->worker->env, op->trailer_memory);
		op->trailer_memory = NULL;
		op->trailer_room = 0;
	}
	if (bytes <= KVT__SMALL_TRAILER_BYTES && lane->small_trailers) {
		op->trailer_memory = lane->small_trailers;
		memcpy(&lane->small_trailers, op->trailer_memory, sizeof(lane->small_trailers));
		op->trailer_room = KVT__SMALL_TRAILER_BYTES;
	} else {
		uint64_t room = bytes < KVT__SMALL_TRAILER_BYTES ? KVT__SMALL_TRAILER_BYTES : bytes;
		op->trailer_memory =
			kvt__alloc_aligned(&lane->worker->env, (size_t)room, KVT__PAGE_BYTES);
		if (!op->trailer_memory)
			return KVT_ENOMEM;
		op->trailer_room = room;
	}
	op->trailer = op->trailer_memory;
	return 0;
}

struct kvt__req *kvt__op_take_request(struct kvt__op *op)
{
	struct kvt__lane *lane = op->lane;
	struct kvt__req *req = NULL;
	if (op->control_free) {
		op->control_free = false;
		req = op->control;
	} else if (kvt__requests_room(lane)) {
		req = kvt__req_get(lane, op);
	}
	if (req) {
		op->outstanding++;
	} else if (!op->hungry) {
		op->hungry = true;
		op->hungry_next = NULL;
		if (lane->hungry_last)
			lane->hungry_last->hungry_next = op;
		else
			lane->hungry_first = op;
		lane->hungry_last = op;
	}
	return req;
}

static void unhungry(struct kvt__op *op)
{
	struct kvt__lane *lane = op->lane;
	struct kvt__op **at = &lane->hungry_first, *last = NULL;
	while (*at != op) {
		last = *at;
		at = &(*at)->hungry_next;
	}
	*at = op->hungry_next;
	if (lane->hungry_last == op)
		lane->hungry_last = last;
	op->hungry = false;
}

void kvt__op_give_request(struct kvt__op *op, struct kvt__req *req)
{
	/* An operation that moves no range any more is not to be fed from outside. */
	if (--op->outstanding == 0 && op->hungry)
		unhungry(op);
	kvt__req_release_buffer(req);
	req->range = NULL;
	if (req == op->control)
		op->control_free = true;
	else
		kvt__req_put(req);
}

void kvt__ops_feed_hungry(struct kvt__lane *lane)
{
	while (lane->hungry_first && kvt__requests_room(lane)) {
		struct kvt__op *op = lane->hungry_first;
		unhungry(op);
		op->feed(op);
	}
}

void kvt__op_finish(struct kvt__op *op, enum kvt_status status)
{
	struct kvt__lane *lane = op->lane;
	if (!op->decided)
		op->status = status;
	if (op->hungry)
		unhungry(op);
	if (op->was_bad && op->status != KVT_STATUS_STORED)
		kvt__bad_keys_add(&lane->worker->store->bad, op->identity.hash,
				  op->identity.hash_bytes, op->identity.group);
	kvt__req_put(op->control);
	if (op->item) {
		lane->ops--;
		lane->store_ops -= op->is_store;
		lane->lookup_ops -= op->job->result.kind == KVT_JOB_LOOKUP;
		kvt__count(&lane->stats.active, UINT64_MAX);
		hand_over(op, false);
	}
	op_free(op);
}

/* Without memory for the operation itself, the item fails here. */
static void fail_item(struct kvt__lane *lane, struct kvt__item *item)
{
	struct kvt__after after = {0};
	pthread_mutex_lock(&lane->worker->lock);
	kvt__item_finish_locked(lane->worker, item,
				item->job->result.kind == KVT_JOB_LOOKUP ? KVT_STATUS_UNKNOWN
									 : KVT_STATUS_FAILED,
				KVT_ENOMEM, 0, NULL, "out of memory on the lane", &after);
	pthread_mutex_unlock(&lane->worker->lock);
	kvt__after_run(lane->worker, &after);
}

static void go(struct kvt__req *req);

static int check_piece(struct kvt__op *op, uint64_t ptr, uint64_t bytes, bool *addressablep)
{
	char detail[KVT__DETAIL_BYTES] = "";
	int answer = op->lane->worker->device->ops.check(op->lane->device_lane, ptr, bytes, detail,
							 sizeof(detail));
	if (answer < 0)
		kvt__op_fail(op, KVT_STATUS_FAILED, answer, detail);
	*addressablep &= answer == 1;
	return answer < 0 ? answer : 0;
}

/* The CPU reaches all of its memory, or all goes through staging; KVT_EFAULT with detail for memory
 * that is neither. */
static int check_memory(struct kvt__op *op)
{
	const struct kvt_device_ops *ops = &op->lane->worker->device->ops;
	bool addressable = true;
	op->addressable = (ops->capabilities & KVT_DEVICE_HOST_MEMORY) || !ops->check;
	if (op->addressable)
		return 0;
	if (ops->check_begin)
		ops->check_begin(op->lane->device_lane, op->job->number);
	/* Ops of a raw load may overlap in the file: each is looked at by itself. */
	for (size_t i = 0; op->raw && i < op->raw->op_count; i++) {
		int error = check_piece(op, op->raw->ops[i].device_ptr, op->raw->ops[i].size_bytes,
					&addressable);
		if (error)
			return error;
	}
	uint64_t at = 0, end = op->raw ? 0 : op->layout.payload_bytes;
	struct kvt__piece piece;
	while (kvt__op_piece(op, &at, end, &piece)) {
		int error =
			piece.present ? check_piece(op, piece.ptr, piece.bytes, &addressable) : 0;
		if (error)
			return error;
	}
	op->addressable = addressable;
	return 0;
}

static void dispatch(struct kvt__op *op)
{
	switch (op->job->result.kind) {
	case KVT_JOB_STORE:
		kvt__store_start(op);
		break;
	case KVT_JOB_LOAD:
		kvt__load_start(op);
		break;
	case KVT_JOB_LOOKUP:
		kvt__lookup_start(op);
		break;
	default:
		kvt__raw_start(op);
	}
}

static void ordered(struct kvt__req *req)
{
	if (req->result) {
		kvt__op_fail_request(req->op, req);
		kvt__op_finish(req->op, KVT_STATUS_FAILED);
	} else {
		dispatch(req->op);
	}
}

/* First stage of every item: memory checked, then ordered where the device orders by stream. */
static void go(struct kvt__req *req)
{
	struct kvt__op *op = req->op;
	int stopped = kvt__op_stopped(op);
	if (stopped) {
		req->result = stopped;
		kvt__op_fail_request(op, req);
		kvt__op_finish(op, KVT_STATUS_FAILED);
		return;
	}
	if (op->job->result.kind == KVT_JOB_LOOKUP) {
		dispatch(op);
	} else if (check_memory(op)) {
		kvt__op_finish(op, KVT_STATUS_FAILED);
	} else if (op->job->ready.kind != KVT_READY_NOW &&
		   (op->lane->worker->device->ops.capabilities & KVT_DEVICE_STREAM_ORDER)) {
		kvt__req_order(req, op->addressable, ordered);
	} else {
		dispatch(op);
	}
}

static void describe(struct kvt__op *op)
{
	struct kvt__item *item = op->item;
	struct kvt__job *job = op->job;
	struct kvt_store *store = op->lane->worker->store;
	if (job->raws) {
		op->raw = &job->raws[item->index];
		op->name = (char *)op->raw->path;
		return;
	}
	const uint8_t *hash = job->hashes + item->hash_at;
	kvt__object_name(&store->ns, hash, item->hash_bytes, item->key_group, op->name);
	op->identity = (struct kvt__identity){hash, item->hash_bytes, item->key_group,
					      store->ns.rank, store->ns.digest};
	if (job->result.kind == KVT_JOB_LOOKUP)
		return;
	op->shape = &job->shapes[item->shape];
	op->geometry = op->shape->geometry;
	/* Checked at submit: cannot fail. */
	if (kvt__layout_init(&op->layout, &op->geometry, item->hash_bytes))
		op->layout.object_bytes = 0;
	kvt__plan_chunk(&op->shape->plan, op->geometry.blocks_per_chunk,
			item->index - op->shape->plan.first_key, &op->chunk);
	uint64_t block_bytes = 0;
	for (uint32_t d = 0; d < op->geometry.ref_count; d++)
		block_bytes += op->geometry.ref_bytes[d];
	op->wanted_bytes = block_bytes * op->chunk.block_count;
}

void kvt__op_start(struct kvt__lane *lane, struct kvt__item *item)
{
	struct kvt__op *op = kvt__op_new(lane);
	if (!op) {
		fail_item(lane, item);
		return;
	}
	op->item = item;
	op->job = item->job;
	op->deadline_ns = op->job->deadline_ns;
	op->is_store = op->job->result.kind == KVT_JOB_STORE || op->job->raw_store;
	op->control = kvt__req_get(lane, op); /* the lane counts: one is there */
	lane->ops++;
	lane->store_ops += op->is_store;
	lane->lookup_ops += op->job->result.kind == KVT_JOB_LOOKUP;
	kvt__count(&lane->stats.active, 1);
	kvt__latency_add(&lane->stats.queue_ns, lane->now_ns - op->job->submitted_ns);
	describe(op);
	kvt__req_ready(op->control, 0, go);
}
