/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Merging: a store whose object is there with fewer slots. Each extent of the new object is the old
 * one's bytes, checked slot by slot, with ours laid over them. An old slot whose checksum fails
 * counts as absent: the merge starts over without it. The new object replaces the old one, by
 * version where the backend can compare versions.
 */
#include "lane.h"

#include <string.h>

#include "crc32c.h"

static bool old_has(const struct kvt__op *op, uint32_t slot)
{
	return op->old_presence[slot / 8] >> (slot % 8) & 1;
}

/* Plans the union of old and ours and writes it. */
static void write_union(struct kvt__op *op)
{
	uint64_t ours = (uint64_t)op->chunk.block_count * op->geometry.ref_count, kept = 0;
	for (uint32_t slot = 0; slot < op->layout.slot_count; slot++) {
		if (op->lost[slot / 8] >> (slot % 8) & 1)
			op->old_presence[slot / 8] &= (uint8_t) ~(1u << (slot % 8));
		kept += old_has(op, slot) && !kvt__op_wants(op, slot);
	}
	op->merge = kept != 0;
	op->replace = true;
	op->partial = kept + ours < op->layout.slot_count;
	kvt__store_write(op);
}

void kvt__merge_begin(struct kvt__op *op)
{
	const struct kvt__env *env = &op->lane->worker->env;
	size_t bytes = (size_t)op->layout.presence_bytes, table = 4 * (size_t)op->layout.slot_count;
	if (!op->old_presence)
		op->old_presence = kvt__alloc(env, bytes + table);
	if (!op->lost)
		op->lost = kvt__alloc(env, bytes);
	if (!op->old_presence || !op->lost) {
		kvt__op_fail(op, KVT_STATUS_FAILED, KVT_ENOMEM, NULL);
		kvt__op_finish(op, KVT_STATUS_FAILED);
		return;
	}
	memcpy(op->old_presence, op->parsed.presence, bytes);
	memcpy(op->old_presence + bytes, op->parsed.table, table);
	memset(op->lost, 0, bytes);
	write_union(op);
}

bool kvt__merge_retry(struct kvt__op *op)
{
	if (op->old_changed && op->rounds < KVT__ROUNDS_MAX) { /* look again */
		kvt__store_start_over(op);
		return true;
	}
	if (op->old_changed) {
		kvt__op_fail(op, KVT_STATUS_FAILED, KVT_EPRECOND,
			     "the object kept changing while it was merged");
		return false;
	}
	if (!op->lost_more)
		return false;
	write_union(op);
	return true;
}

static void lose(struct kvt__op *op, uint32_t slot)
{
	op->lost[slot / 8] |= (uint8_t)(1u << (slot % 8));
	op->lost_more = true;
}

void kvt__merge_check_slot(struct kvt__op *op, uint32_t slot, uint32_t crc)
{
	const uint8_t *table = op->old_presence + op->layout.presence_bytes;
	if (old_has(op, slot) && !kvt__op_wants(op, slot) && crc != kvt__slot_crc_get(table, slot))
		lose(op, slot);
}

static void failed(struct kvt__req *req)
{
	kvt__op_fail_request(req->op, req);
	kvt__store_range_ended(req);
}

static void overlaid(struct kvt__req *req)
{
	if (req->result) {
		failed(req);
		return;
	}
	kvt__store_range_checked(req);
}

/*
 * Checks the old slots that lie wholly in the range and clears what is absent. Slots that the range
 * cuts are checked by the new object's own checksum, which must come out as the old table says
 * (kvt__merge_check_slot).
 */
static void check_old(struct kvt__req *req)
{
	struct kvt__op *op = req->op;
	const struct kvt__range *r = req->range;
	const uint8_t *table = op->old_presence + op->layout.presence_bytes;
	uint8_t *memory = req->staging.memory;
	for (uint32_t d = 0; d < op->geometry.ref_count; d++) {
		uint64_t size = op->geometry.ref_bytes[d];
		for (uint32_t b = 0; b < op->geometry.blocks_per_chunk; b++) {
			uint32_t slot = d * op->geometry.blocks_per_chunk + b;
			uint64_t begin = op->shape->ref_at[d] + b * size, end = begin + size;
			if (end <= r->begin || begin >= r->end || kvt__op_wants(op, slot))
				continue;
			uint64_t from = begin > r->begin ? begin : r->begin;
			uint64_t to = end < r->end ? end : r->end;
			if (!old_has(op, slot))
				memset(memory + (from - r->begin), 0, (size_t)(to - from));
			else if (from == begin && to == end &&
				 kvt__crc32c(0, memory + (from - r->begin), (size_t)size) !=
					 kvt__slot_crc_get(table, slot))
				lose(op, slot);
		}
	}
}

static void overlay(struct kvt__req *req)
{
	int copies = kvt__range_copies(req);
	if (copies < 0) {
		req->result = KVT_ENOMEM;
		failed(req);
	} else {
		kvt__req_copy(req, KVT_GATHER, (uint32_t)copies, overlaid);
	}
}

static void read_old(struct kvt__req *req)
{
	struct kvt__op *op = req->op;
	if (req->result == KVT_ENOENT || req->result == KVT_EPRECOND || req->result == KVT_ERANGE) {
		op->old_changed = op->lost_more = true;
	} else if (req->result) {
		failed(req);
		return;
	} else {
		check_old(req);
	}
	if (op->lost_more)
		kvt__store_range_ended(req);
	else
		overlay(req);
}

void kvt__merge_range(struct kvt__req *req)
{
	struct kvt__op *op = req->op;
	const struct kvt__range *r = req->range;
	uint64_t end = r->end < op->payload_bytes ? r->end : op->payload_bytes;
	if (r->begin >= end) {
		overlay(req);
		return;
	}
	kvt__req_prepare(req, KVT_IO_GET);
	req->iov[0] = (struct kvt_iovec){req->staging.memory, end - r->begin};
	req->io.iov = req->iov;
	req->io.iov_count = 1;
	req->io.length = end - r->begin;
	req->io.offset = (int64_t)r->begin;
	if ((op->lane->worker->store->limits.capabilities & KVT_CAP_IF_VERSION_GET) &&
	    op->found.version.bytes) {
		req->version = op->found.version;
		req->io.if_version = &req->version;
		req->io.flags |= KVT_IO_IF_VERSION;
	}
	kvt__req_io(req, read_old);
}
