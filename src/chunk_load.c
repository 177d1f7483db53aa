/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loading one chunk: reads the wanted ranges and the trailer, checks identity, presence and each
 * wanted slot's checksum, and only then copies to device memory (or leaves the bytes where they
 * landed). What is wrong is named, and removed when it is proven bad (kvtier-format(5)).
 */
#include "lane.h"

#include <string.h>

#define DENSE_BYTES   (256 * 1024) /* below this, reading all costs less than asking for parts */
#define SPARSE_RANGES 64

static void feed_ranges(struct kvt__op *op);
static void settle_landed(struct kvt__req *req);

static void record_crc(struct kvt__op *op, uint32_t slot, uint32_t crc)
{
	op->crcs[slot] = crc;
}

static void check_slot(struct kvt__op *op, uint32_t slot, uint32_t crc)
{
	if (crc != kvt__slot_crc_get(op->parsed.table, slot) && !op->bad_slot) {
		op->bad_slot = true;
		op->bad_slot_index = slot;
	}
}

/* Checks the wanted slots that lie wholly in a range. */
static void check_range(struct kvt__op *op, const struct kvt__range *r)
{
	for (uint32_t d = 0; d < op->geometry.ref_count; d++) {
		uint64_t size = op->geometry.ref_bytes[d], ref_at = op->shape->ref_at[d];
		if (ref_at >= r->end || ref_at + size * op->geometry.blocks_per_chunk <= r->begin)
			continue;
		for (uint32_t b = 0; b < op->chunk.block_count; b++) {
			uint32_t block = op->chunk.first_slot + b;
			uint64_t at = ref_at + block * size;
			uint32_t slot = d * op->geometry.blocks_per_chunk + block;
			if (at >= r->begin && at + size <= r->end)
				check_slot(op, slot, op->crcs[slot]);
		}
	}
}

static void read_progress(struct kvt_io *io, uint64_t bytes)
{
	struct kvt__req *req = io->owner;
	uint64_t to = (uint64_t)io->offset + bytes; /* what an earlier try brought lies before */
	if (to < req->cursor.at)
		kvt__cursor_start(req);
	kvt__cursor_advance(req, to, record_crc);
}

/* The trailer is known, or nothing will come of it: whoever waited for it goes on. */
static void release_landed(struct kvt__op *op)
{
	while (op->landed) {
		struct kvt__req *req = op->landed;
		op->landed = req->next;
		req->next = NULL;
		kvt__req_ready(req, 0, settle_landed);
	}
}

static void range_done(struct kvt__req *req)
{
	struct kvt__op *op = req->op;
	kvt__op_give_request(op, req);
	op->ranges_done++;
	if (kvt__load_must_conclude(op)) {
		release_landed(op);
		if (op->outstanding == 0)
			kvt__load_conclude(op);
	} else if (op->ranges_done == op->range_count) {
		if (!op->raw_load)
			kvt__ranges_join(op, check_slot);
		kvt__load_conclude(op);
	} else {
		feed_ranges(op);
	}
}

static void scattered(struct kvt__req *req)
{
	if (req->result)
		kvt__op_fail_request(req->op, req);
	range_done(req);
}

/* The range has landed and the trailer is known: check and copy home. */
static void settle_landed(struct kvt__req *req)
{
	struct kvt__op *op = req->op;
	if (!kvt__load_must_conclude(op) && !op->raw_load)
		check_range(op, req->range);
	if (kvt__load_must_conclude(op) || req->direct) {
		range_done(req);
		return;
	}
	int copies = kvt__range_copies(req);
	if (copies < 0) {
		kvt__op_fail(op, KVT_STATUS_FAILED, KVT_ENOMEM, NULL);
		range_done(req);
		return;
	}
	kvt__req_copy(req, KVT_SCATTER, (uint32_t)copies, scattered);
}

static void wait_for_trailer(struct kvt__req *req)
{
	struct kvt__op *op = req->op;
	req->next = op->landed;
	op->landed = req;
	if (op->trailer_parsed || kvt__load_must_conclude(op))
		release_landed(op);
}

static void partial_trailer(struct kvt__req *req)
{
	struct kvt__op *op = req->op;
	req->range = op->partial_range;
	if (req->result == KVT_ERANGE || req->result == KVT_ENOENT || req->result == KVT_EPRECOND)
		op->changed = true;
	else if (req->result)
		kvt__op_fail_request(op, req);
	else
		kvt__load_read_trailer(op);
	wait_for_trailer(req);
}

/*
 * A partial object has one more page, whose end is the tail: its trailer is read again, whole, with
 * the request that brought the first part, which keeps its buffer and its checksums meanwhile.
 */
static void read_partial_trailer(struct kvt__req *req)
{
	struct kvt__op *op = req->op;
	op->partial_range = req->range;
	kvt__req_prepare(req, KVT_IO_GET);
	req->range = NULL;
	req->iov[0] = (struct kvt_iovec){op->trailer, op->trailer_bytes + KVT__PAGE_BYTES};
	req->io.iov = req->iov;
	req->io.iov_count = 1;
	req->io.length = op->trailer_bytes + KVT__PAGE_BYTES;
	req->io.offset = (int64_t)op->payload_bytes;
	kvt__req_io(req, partial_trailer);
}

/* Notes which object the bytes are of; false when it is not the one that the others are of, or not
 * of our length. */
static bool same_object(struct kvt__op *op, const struct kvt_object_info *info)
{
	if (!op->pinned) {
		op->found = *info;
		op->pinned = true;
	} else if (!kvt__version_equal(&info->version, &op->found.version)) {
		op->changed = true;
		return false;
	}
	uint64_t length = info->object_bytes, whole = op->layout.object_bytes;
	if (op->raw_load ? length != op->payload_bytes
			 : length != whole && length != whole + KVT__PAGE_BYTES) {
		op->odd = true;
		return false;
	}
	return true;
}

static bool landed_well(struct kvt__req *req)
{
	struct kvt__op *op = req->op;
	switch (req->result) {
	case 0:
		if (req->io.bytes_landed != req->io.length) {
			kvt__op_fail(op, KVT_STATUS_FAILED, KVT_EINTERNAL,
				     "the backend reports success and fewer bytes than asked for");
			return false;
		}
		return same_object(op, &req->io.info);
	case KVT_ERANGE:
		op->found = req->io.info;
		op->odd = true;
		return false;
	case KVT_EPRECOND:
		op->changed = true;
		return false;
	case KVT_ENOENT:
		kvt__op_fail(op, KVT_STATUS_MISSING, KVT_ENOENT, NULL);
		return false;
	default:
		kvt__op_fail_request(op, req);
		return false;
	}
}

static void landed(struct kvt__req *req)
{
	struct kvt__op *op = req->op;
	bool with_trailer = !op->raw_load && kvt__range_has_trailer(op, req->range);
	if (with_trailer)
		op->trailer_pending--;
	if (!landed_well(req)) {
		range_done(req);
		return;
	}
	kvt__cursor_advance(req, req->range->end, record_crc);
	if (op->raw_load) {
		settle_landed(req);
		return;
	}
	if (with_trailer && !req->direct) {
		uint64_t from = req->range->begin > op->payload_bytes ? req->range->begin
								      : op->payload_bytes;
		memcpy(op->trailer + (from - op->payload_bytes),
		       (uint8_t *)req->staging.memory + (from - req->range->begin),
		       (size_t)(req->range->end - from));
	}
	if (with_trailer && op->trailer_pending == 0 && !kvt__load_must_conclude(op)) {
		if (op->found.object_bytes > op->layout.object_bytes) {
			read_partial_trailer(req);
			return;
		}
		kvt__load_read_trailer(op);
	}
	/* One that brought nothing but trailer has nothing to wait for, and others may need the
	 * request. */
	if (req->range->begin < op->payload_bytes) {
		wait_for_trailer(req);
		return;
	}
	if (op->trailer_parsed)
		release_landed(op);
	range_done(req);
}

static void get_range(struct kvt__req *req)
{
	struct kvt__op *op = req->op;
	if (req->result) { /* no staging memory */
		kvt__op_fail_request(op, req);
		range_done(req);
		return;
	}
	kvt__req_prepare(req, KVT_IO_GET);
	if (kvt__range_iov(req, false) < 0) {
		kvt__op_fail(op, KVT_STATUS_FAILED, KVT_ENOMEM, NULL);
		range_done(req);
		return;
	}
	req->io.offset = (int64_t)req->range->begin;
	if (!op->raw_load && req->range->begin < op->payload_bytes)
		req->io.progress = read_progress;
	if (op->pinned && op->found.version.bytes &&
	    (op->lane->worker->store->limits.capabilities & KVT_CAP_IF_VERSION_GET)) {
		req->version = op->found.version;
		req->io.if_version = &req->version;
		req->io.flags |= KVT_IO_IF_VERSION;
	}
	kvt__req_io(req, landed);
}

static bool range_is_wanted(const struct kvt__op *op, const struct kvt__range *r)
{
	struct kvt__piece piece;
	uint64_t at = r->begin, end = r->end < op->payload_bytes ? r->end : op->payload_bytes;
	if (kvt__range_has_trailer(op, r))
		return true;
	while (kvt__op_piece(op, &at, end, &piece))
		if (piece.present)
			return true;
	return false;
}

/* From the last range, which holds the trailer, to the first. Extents of a large chunk wait for the
 * trailer, which pins the version; the ranges of a sparse load do not. */
static void feed_ranges(struct kvt__op *op)
{
	while (op->range_next < op->range_count && !kvt__load_must_conclude(op)) {
		struct kvt__range *r = &op->ranges[op->range_count - 1 - op->range_next];
		if (!op->sparse && !op->raw_load && !op->trailer_parsed &&
		    op->range_next >= op->trailer_ranges)
			return;
		if (!range_is_wanted(op, r)) {
			op->range_next++;
			if (++op->ranges_done == op->range_count && op->outstanding == 0) {
				kvt__ranges_join(op, check_slot);
				kvt__load_conclude(op);
				return;
			}
			continue;
		}
		struct kvt__req *req = kvt__op_take_request(op);
		if (!req)
			return;
		op->range_next++;
		req->range = r;
		req->direct = kvt__range_is_direct(op, r, false);
		if (req->direct)
			kvt__req_ready(req, 0, get_range);
		else
			kvt__req_buffer(req, r->end - r->begin, false, get_range);
	}
}

struct spans {
	struct {
		uint64_t begin, end;
	} at[SPARSE_RANGES];
	uint32_t count;
	uint64_t bytes;
	uint64_t gap; /* what lies closer to the one before is read with it */
};

/* False when there are too many. */
static bool append_span(struct spans *s, uint64_t begin, uint64_t end, uint64_t most)
{
	uint64_t last_end = s->count ? s->at[s->count - 1].end : 0;
	if (s->count && begin - last_end < s->gap && end - s->at[s->count - 1].begin <= most) {
		s->at[s->count - 1].end = end;
		s->bytes += end - last_end;
		return true;
	}
	if (s->count == SPARSE_RANGES)
		return false;
	s->at[s->count].begin = begin;
	s->at[s->count++].end = end;
	s->bytes += end - begin;
	return true;
}

/* The wanted part of each ref, in requests of at most part_bytes, then the trailer, which rides
 * along as it does with whole objects. */
static bool find_spans(const struct kvt__op *op, uint64_t part, struct spans *s)
{
	const struct kvt__geometry *g = &op->geometry;
	for (uint32_t d = 0; d < g->ref_count; d++) {
		uint64_t at = op->shape->ref_at[d] + op->chunk.first_slot * g->ref_bytes[d];
		uint64_t end = at + op->chunk.block_count * g->ref_bytes[d];
		for (; at < end; at += part)
			if (!append_span(s, at, at + part < end ? at + part : end, part))
				return false;
	}
	uint64_t riding = op->trailer_bytes <= KVT__RIDING_BYTES ? op->trailer_bytes : 0;
	return append_span(s, op->payload_bytes, op->object_bytes, part + riding);
}

/* Whether the spans cost less than all of the object, a request being worth `gap` bytes where that
 * is known. */
static bool is_worth_it(const struct kvt__op *op, uint64_t part, const struct spans *s)
{
	if (!s->gap)
		return op->payload_bytes > DENSE_BYTES && op->wanted_bytes * 2 < op->payload_bytes;
	uint64_t whole = (op->object_bytes + part - 1) / part;
	return s->bytes + s->count * s->gap < op->object_bytes + whole * s->gap;
}

/* False when reading all, or what kvt__ranges_whole makes of it, costs less. */
static bool plan_sparse(struct kvt__op *op)
{
	const struct kvt_backend_limits *l = &op->lane->worker->store->limits;
	const uint64_t part = op->lane->worker->config.part_bytes;
	struct spans s;
	s.count = 0;
	s.bytes = 0;
	s.gap = l->capabilities & KVT_CAP_GET_DISCARD ? l->merge_gap_bytes : 0;
	if (op->wanted_bytes == op->payload_bytes || !find_spans(op, part, &s) ||
	    !is_worth_it(op, part, &s) || kvt__ranges_reserve(op, s.count))
		return false;
	for (uint32_t i = 0; i < s.count; i++) {
		op->ranges[i].begin = s.at[i].begin;
		op->ranges[i].end = s.at[i].end;
	}
	op->trailer_ranges = 1;
	return true;
}

void kvt__load_begin(struct kvt__op *op)
{
	op->payload_bytes = op->layout.payload_bytes;
	op->trailer_bytes = op->raw_load ? 0 : op->layout.trailer_bytes;
	op->object_bytes = op->payload_bytes + op->trailer_bytes;
	op->trailer_parsed = op->pinned = op->bad_slot = op->again = op->changed = op->odd = false;
	op->conclude = false;
	op->landed = NULL;
	op->sparse = !op->raw_load && plan_sparse(op);
	if ((!op->sparse && kvt__ranges_whole(op)) ||
	    (!op->raw_load && kvt__op_trailer_room(op, op->trailer_bytes + KVT__PAGE_BYTES))) {
		kvt__op_fail(op, KVT_STATUS_FAILED, KVT_ENOMEM, NULL);
		kvt__op_finish(op, KVT_STATUS_FAILED);
		return;
	}
	op->trailer_pending = op->trailer_ranges;
	op->feed = feed_ranges;
	op->control_free = true;
	feed_ranges(op);
}

void kvt__load_start(struct kvt__op *op)
{
	op->crcs = op->crcs_inline;
	if (op->layout.slot_count > KVT__SLOTS_INLINE)
		op->crcs = kvt__alloc(&op->lane->worker->env,
				      op->layout.slot_count * sizeof(*op->crcs));
	if (!op->crcs) {
		kvt__op_fail(op, KVT_STATUS_FAILED, KVT_ENOMEM, NULL);
		kvt__op_finish(op, KVT_STATUS_FAILED);
		return;
	}
	kvt__load_begin(op);
}
