/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Looking one key up: its object's length tells whole from partial; a partial one's trailer is read
 * only when its presence was asked for. What could not be asked is "unknown", never "miss". On the
 * lane's thread.
 */
#include "lane.h"

static void unknown(struct kvt__op *op, struct kvt__req *req)
{
	kvt__op_fail_request(op, req);
	kvt__op_finish(op, KVT_STATUS_UNKNOWN);
}

static void tell_blocks(struct kvt__op *op, uint32_t first, uint32_t end)
{
	uint32_t *blocks = op->job->key_blocks;
	if (blocks) {
		blocks[2 * (size_t)op->item->index] = first;
		blocks[2 * (size_t)op->item->index + 1] = end;
	}
}

/* Whether every ref has the block. */
static bool has_block(const struct kvt__op *op, uint32_t block)
{
	for (uint32_t d = 0; d < op->geometry.ref_count; d++)
		if (!kvt__trailer_has(&op->parsed, d * op->geometry.blocks_per_chunk + block))
			return false;
	return true;
}

static void odd_length(struct kvt__op *op)
{
	kvt__count(&op->lane->stats.odd_length_misses, 1);
	kvt__op_finish(op, KVT_STATUS_MISS);
}

static void inspected(struct kvt__op *op, int verdict)
{
	const uint32_t f = op->geometry.blocks_per_chunk;
	switch (verdict) {
	case 0:
		break;
	case KVT_ENOENT:
		kvt__op_finish(op, KVT_STATUS_MISS);
		return;
	case KVT_EFOREIGN:
	case KVT_ECORRUPT:
	case KVT_EFORMAT:
		odd_length(op);
		return;
	default:
		op->control->result = verdict;
		unknown(op, op->control);
		return;
	}
	if (kvt__trailer_compare(&op->parsed, &op->geometry, &op->identity)) {
		odd_length(op);
		return;
	}
	uint32_t first = 0;
	while (first < f && !has_block(op, first))
		first++;
	uint32_t end = first;
	while (end < f && has_block(op, end))
		end++;
	tell_blocks(op, first, end);
	kvt__op_finish(op, end - first == f ? KVT_STATUS_HIT : KVT_STATUS_PARTIAL);
}

static void answered(struct kvt__req *req)
{
	struct kvt__op *op = req->op;
	const struct kvt_store *store = op->lane->worker->store;
	uint64_t length = req->io.info.object_bytes;
	if (req->result == KVT_ENOENT) {
		kvt__op_finish(op, KVT_STATUS_MISS);
	} else if (req->result || length == KVT_BYTES_UNKNOWN) {
		if (!req->result)
			req->result = KVT_EPROTO;
		unknown(op, req);
	} else if (length == op->layout.object_bytes ||
		   (store->accept_raw && length == op->layout.payload_bytes)) {
		tell_blocks(op, 0, op->geometry.blocks_per_chunk);
		kvt__op_finish(op, KVT_STATUS_HIT);
	} else if (length != op->layout.object_bytes + KVT__PAGE_BYTES) {
		odd_length(op);
	} else if (op->job->lookup_flags & KVT_LOOKUP_PRESENCE) {
		op->found = req->io.info;
		kvt__chunk_inspect(op, inspected);
	} else {
		kvt__op_finish(op, KVT_STATUS_PARTIAL);
	}
}

void kvt__lookup_start(struct kvt__op *op)
{
	struct kvt_worker *w = op->lane->worker;
	struct kvt__req *req = op->control;
	pthread_mutex_lock(&w->lock);
	const struct kvt__lookup_geometry *g = w->geometries[op->item->shape];
	pthread_mutex_unlock(&w->lock);
	op->geometry = g->geometry;
	op->layout = g->layouts[op->item->hash_bytes];
	kvt__req_prepare(req, KVT_IO_HEAD);
	req->io.flags |= KVT_IO_CACHED_OK;
	kvt__req_io(req, answered);
}
