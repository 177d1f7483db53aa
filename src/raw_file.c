/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Raw files: whole files without a trailer, as vLLM's filesystem worker writes and reads them. A
 * store makes a new file of the ops' bytes and puts it in place of what was there; a load reads
 * each op's range. On the lane's thread.
 */
#include "lane.h"

#include <string.h>

static void feed_writes(struct kvt__op *op);
static void feed_reads(struct kvt__op *op);

static void no_memory(struct kvt__op *op)
{
	kvt__op_fail(op, KVT_STATUS_FAILED, KVT_ENOMEM, NULL);
}

static void finish(struct kvt__op *op)
{
	for (size_t i = 0; i < op->raw->op_count; i++)
		op->bytes += op->raw->ops[i].size_bytes;
	kvt__op_finish(op, op->is_store ? KVT_STATUS_STORED : KVT_STATUS_LOADED);
}

static void end_parts(struct kvt__op *op);

static void ended(struct kvt__req *req)
{
	if (req->result && req->tries == 0 && req->io.op == KVT_IO_COMMIT) {
		/* Canceled or late before it was asked for: the handle is open. */
		kvt__op_fail_request(req->op, req);
		end_parts(req->op);
		return;
	}
	req->op->handle = NULL;
	if (req->result)
		kvt__op_fail_request(req->op, req);
	finish(req->op);
}

static void end_parts(struct kvt__op *op)
{
	struct kvt__req *req = op->control;
	kvt__req_prepare(req, op->decided ? KVT_IO_ABORT : KVT_IO_COMMIT);
	req->io.object_bytes = op->object_bytes;
	req->must = op->decided;
	kvt__req_io(req, ended);
}

static void written(struct kvt__req *req)
{
	struct kvt__op *op = req->op;
	if (req->result)
		kvt__op_fail_request(op, req);
	kvt__op_give_request(op, req);
	op->ranges_done++;
	if (op->range_count == 1)
		finish(op);
	else if ((op->decided && op->outstanding == 0) || op->ranges_done == op->range_count)
		end_parts(op);
	else if (!op->decided)
		feed_writes(op);
}

static void write_range(struct kvt__req *req)
{
	struct kvt__op *op = req->op;
	if (!req->result)
		kvt__req_prepare(req, op->range_count == 1 ? KVT_IO_PUT : KVT_IO_PART);
	if (!req->result && kvt__range_iov(req, true) < 0) {
		no_memory(op);
		req->result = KVT_ENOMEM;
	}
	if (req->result) {
		written(req);
		return;
	}
	req->io.offset = (int64_t)req->range->begin;
	req->io.part_number = (uint32_t)(req->range - op->ranges);
	req->io.object_bytes = op->object_bytes;
	kvt__req_io(req, written);
}

static void gather(struct kvt__req *req)
{
	if (req->result) {
		written(req);
		return;
	}
	memset(req->staging.memory, 0, (size_t)(req->range->end - req->range->begin));
	int copies = kvt__range_copies(req);
	if (copies < 0) {
		no_memory(req->op);
		kvt__req_ready(req, KVT_ENOMEM, written);
	} else {
		kvt__req_copy(req, KVT_GATHER, (uint32_t)copies, write_range);
	}
}

static void feed_writes(struct kvt__op *op)
{
	while (op->range_next < op->range_count && !op->decided) {
		struct kvt__req *req = kvt__op_take_request(op);
		if (!req)
			return;
		req->range = &op->ranges[op->range_next++];
		req->direct = kvt__range_is_direct(op, req->range, true);
		if (req->direct)
			kvt__req_ready(req, 0, write_range);
		else
			kvt__req_buffer(req, req->range->end - req->range->begin, true, gather);
	}
}

static void begun(struct kvt__req *req)
{
	struct kvt__op *op = req->op;
	if (req->result) {
		kvt__op_fail_request(op, req);
		finish(op);
		return;
	}
	op->handle = req->io.handle;
	op->control_free = true;
	feed_writes(op);
}

static void start_store(struct kvt__op *op)
{
	op->object_bytes = op->payload_bytes = op->raw->end;
	op->feed = feed_writes;
	if (kvt__op_is_paused(op)) {
		finish(op);
	} else if (kvt__ranges_whole(op)) {
		no_memory(op);
		finish(op);
	} else if (op->range_count == 1) {
		op->control_free = true;
		feed_writes(op);
	} else {
		kvt__req_prepare(op->control, KVT_IO_BEGIN);
		op->control->io.object_bytes = op->object_bytes;
		kvt__req_io(op->control, begun);
	}
}

/* The op that a range belongs to: ranges are made op by op. */
static const struct kvt_file_op *op_of(const struct kvt__op *op, const struct kvt__range *range)
{
	return &op->raw->ops[range->head_bytes];
}

/* Every range has to come from one file: a store may have put another one in its place meanwhile.
 */
static void note_version(struct kvt__op *op, const struct kvt_object_info *info)
{
	if (!op->pinned) {
		op->found = *info;
		op->pinned = true;
	} else if (!kvt__version_equal(&info->version, &op->found.version)) {
		op->changed = true;
	}
}

static void start_load(struct kvt__op *op);

static void reads_ended(struct kvt__op *op)
{
	if (op->decided || !op->changed) {
		finish(op);
	} else if (op->rounds++ < KVT__ROUNDS_MAX) {
		op->changed = op->pinned = false;
		start_load(op);
	} else {
		kvt__op_fail(op, KVT_STATUS_FAILED, KVT_EPRECOND,
			     "the file kept being replaced while it was read");
		finish(op);
	}
}

static void read_done(struct kvt__req *req)
{
	struct kvt__op *op = req->op;
	if (req->result)
		kvt__op_fail_request(op, req);
	kvt__op_give_request(op, req);
	op->ranges_done++;
	bool over = op->decided || op->changed;
	if ((over && op->outstanding == 0) || op->ranges_done == op->range_count)
		reads_ended(op);
	else if (!over)
		feed_reads(op);
}

static void landed(struct kvt__req *req)
{
	const struct kvt__range *r = req->range;
	const struct kvt_file_op *o = op_of(req->op, r);
	if (!req->result)
		note_version(req->op, &req->io.info);
	if (req->result || req->direct || req->op->changed) {
		read_done(req);
		return;
	}
	req->copies[0] = (struct kvt_device_copy){o->device_ptr + (r->begin - o->file_offset),
						  req->staging.memory, r->end - r->begin};
	kvt__req_copy(req, KVT_SCATTER, 1, read_done);
}

static void get_range(struct kvt__req *req)
{
	const struct kvt__range *r = req->range;
	const struct kvt_file_op *o = op_of(req->op, r);
	if (req->result) {
		read_done(req);
		return;
	}
	void *home = (void *)(uintptr_t)(o->device_ptr + (r->begin - o->file_offset));
	kvt__req_prepare(req, KVT_IO_GET);
	req->iov[0] =
		(struct kvt_iovec){req->direct ? home : req->staging.memory, r->end - r->begin};
	req->io.iov = req->iov;
	req->io.iov_count = 1;
	req->io.length = r->end - r->begin;
	req->io.offset = (int64_t)r->begin;
	kvt__req_io(req, landed);
}

static void feed_reads(struct kvt__op *op)
{
	const uint64_t mask = (uint64_t)op->lane->worker->store->limits.memory_alignment - 1;
	while (op->range_next < op->range_count && !op->decided && !op->changed) {
		struct kvt__req *req = kvt__op_take_request(op);
		if (!req)
			return;
		struct kvt__range *r = &op->ranges[op->range_next++];
		const struct kvt_file_op *o = op_of(op, r);
		req->range = r;
		req->direct = op->addressable &&
			      !((o->device_ptr + (r->begin - o->file_offset)) & mask) &&
			      !((r->end - r->begin) & mask);
		if (!req->direct && kvt__req_reserve(req, 0, 1)) {
			no_memory(op);
			kvt__req_ready(req, KVT_ENOMEM, read_done);
		} else if (req->direct) {
			kvt__req_ready(req, 0, get_range);
		} else {
			kvt__req_buffer(req, r->end - r->begin, false, get_range);
		}
	}
}

static void start_load(struct kvt__op *op)
{
	const uint64_t part = op->lane->worker->config.part_bytes;
	uint64_t count = 0;
	for (size_t i = 0; i < op->raw->op_count; i++)
		count += (op->raw->ops[i].size_bytes + part - 1) / part;
	op->feed = feed_reads;
	op->control_free = true;
	if (kvt__ranges_reserve(op, count)) {
		no_memory(op);
		finish(op);
		return;
	}
	struct kvt__range *r = op->ranges;
	for (size_t i = 0; i < op->raw->op_count; i++) {
		uint64_t at = op->raw->ops[i].file_offset, end = at + op->raw->ops[i].size_bytes;
		for (; at < end; at += part, r++)
			*r = (struct kvt__range){.begin = at,
						 .end = at + part < end ? at + part : end,
						 .head_bytes = i};
	}
	if (count == 0)
		finish(op);
	else
		feed_reads(op);
}

void kvt__raw_start(struct kvt__op *op)
{
	if (op->is_store)
		start_store(op);
	else
		start_load(op);
}
