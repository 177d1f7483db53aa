/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranges: how an object is cut into requests, what of the caller's memory each of them moves, and
 * the checksumming of slots while their bytes pass. Pure arithmetic over an operation; on the
 * lane's thread.
 */
#include "lane.h"

#include <string.h>

#include "crc32c.h"

#define ALONE_MAX 256 /* extents; each leaves less than a page to the last one */

/* The ref that holds payload offset `at`: the last one that begins at or before it. Refs have at
 * least one byte. */
static uint32_t ref_of(const struct kvt__op *op, uint64_t at)
{
	const uint64_t *ref_at = op->shape->ref_at;
	uint32_t low = 0, high = op->geometry.ref_count;
	while (high - low > 1) {
		uint32_t middle = low + (high - low) / 2;
		if (ref_at[middle] <= at)
			low = middle;
		else
			high = middle;
	}
	return low;
}

bool kvt__op_wants(const struct kvt__op *op, uint32_t slot)
{
	uint32_t block = slot % op->geometry.blocks_per_chunk;
	return block - op->chunk.first_slot < op->chunk.block_count;
}

static uint64_t slot_ptr(const struct kvt__op *op, uint32_t ref, uint32_t block)
{
	return op->shape->ptrs[kvt__plan_copy_index(&op->shape->plan, &op->chunk, ref,
						    block - op->chunk.first_slot)];
}

static bool chunk_piece(const struct kvt__op *op, uint64_t *at, uint64_t end,
			struct kvt__piece *piece)
{
	const uint32_t f = op->geometry.blocks_per_chunk;
	uint32_t ref = ref_of(op, *at);
	uint64_t size = op->geometry.ref_bytes[ref], ref_at = op->shape->ref_at[ref];
	uint32_t block = (uint32_t)((*at - ref_at) / size);
	uint64_t slot_at = ref_at + block * size, stop;
	piece->at = *at;
	piece->present = block - op->chunk.first_slot < op->chunk.block_count;
	piece->ptr = 0;
	if (piece->present) {
		piece->ptr = slot_ptr(op, ref, block) + (*at - slot_at);
		stop = slot_at + size;
		uint32_t last = op->chunk.first_slot + op->chunk.block_count;
		/* Neighbours in a device's memory may be of two allocations, which only the device
		 * knows. */
		while (op->addressable && stop < end && ++block < last &&
		       slot_ptr(op, ref, block) == piece->ptr + (stop - *at))
			stop += size;
	} else {
		uint32_t next = block < op->chunk.first_slot ? op->chunk.first_slot : f;
		stop = ref_at + next * size;
	}
	if (stop > end)
		stop = end;
	piece->bytes = stop - *at;
	*at = stop;
	return true;
}

/* Raw files to be stored: sorted ops that do not overlap. Loads have a range for each op. */
static bool raw_piece(const struct kvt__op *op, uint64_t *at, uint64_t end,
		      struct kvt__piece *piece)
{
	const struct kvt__raw *raw = op->raw;
	size_t low = 0, high = raw->op_count;
	while (low < high) { /* the first op that ends behind *at */
		size_t middle = low + (high - low) / 2;
		if (raw->ops[middle].file_offset + raw->ops[middle].size_bytes > *at)
			high = middle;
		else
			low = middle + 1;
	}
	const struct kvt_file_op *o = &raw->ops[low];
	uint64_t stop;
	piece->at = *at;
	piece->present = low < raw->op_count && o->file_offset <= *at;
	if (piece->present) {
		piece->ptr = o->device_ptr + (*at - o->file_offset);
		stop = o->file_offset + o->size_bytes;
	} else {
		piece->ptr = 0;
		stop = low < raw->op_count ? o->file_offset : end;
	}
	if (stop > end)
		stop = end;
	piece->bytes = stop - *at;
	*at = stop;
	return true;
}

bool kvt__op_piece(const struct kvt__op *op, uint64_t *at, uint64_t end, struct kvt__piece *piece)
{
	if (*at >= end)
		return false;
	return op->raw ? raw_piece(op, at, end, piece) : chunk_piece(op, at, end, piece);
}

int kvt__ranges_reserve(struct kvt__op *op, uint64_t count)
{
	kvt__ranges_free(op);
	if (count <= KVT__RANGES_INLINE) {
		op->ranges = op->ranges_inline;
		memset(op->ranges_inline, 0, sizeof(op->ranges_inline));
	} else {
		if (count > UINT32_MAX)
			return KVT_ENOMEM;
		op->ranges =
			kvt__zalloc(&op->lane->worker->env, (size_t)count * sizeof(*op->ranges));
		if (!op->ranges)
			return KVT_ENOMEM;
	}
	op->range_count = (uint32_t)count;
	op->range_next = op->ranges_done = op->ranges_gathered = 0;
	op->trailer_ranges = 0;
	return 0;
}

void kvt__ranges_free(struct kvt__op *op)
{
	if (op->ranges != op->ranges_inline)
		kvt__free(&op->lane->worker->env, op->ranges);
	op->ranges = NULL;
	op->range_count = 0;
}

/*
 * Extents of one size, the last one shorter. A trailer that is small gets the last one nearly to
 * itself: the checksums of all others must be known before it is written, and all others wait for
 * it when they are read, so what is in it is moved alone.
 */
int kvt__ranges_whole(struct kvt__op *op)
{
	const struct kvt_worker *w = op->lane->worker;
	uint64_t trailer = op->object_bytes - op->payload_bytes;
	uint64_t riding = trailer < KVT__RIDING_BYTES ? trailer : KVT__RIDING_BYTES;
	uint64_t part = w->config.part_bytes, least = w->store->limits.min_part_bytes;
	uint64_t count = (op->object_bytes - riding + part - 1) / part;
	uint64_t extent = op->object_bytes;
	if (count > 1) {
		bool alone = trailer && trailer <= KVT__RIDING_BYTES && count <= ALONE_MAX &&
			     count < w->store->limits.max_parts &&
			     op->payload_bytes / count >= KVT__PAGE_BYTES;
		extent = alone ? op->payload_bytes / count : (extent + count - 1) / count;
		if (!alone)
			extent += KVT__PAGE_BYTES - 1;
		extent &= ~(uint64_t)(KVT__PAGE_BYTES - 1);
		if (extent < least)
			extent = least;
		count = (op->object_bytes + extent - 1) / extent;
	} else {
		count = 1;
	}
	if (kvt__ranges_reserve(op, count))
		return KVT_ENOMEM;
	for (uint64_t i = 0; i < count; i++) {
		struct kvt__range *r = &op->ranges[i];
		r->begin = i * extent;
		r->end =
			r->begin + extent < op->object_bytes ? r->begin + extent : op->object_bytes;
		op->trailer_ranges += kvt__range_has_trailer(op, r);
	}
	return 0;
}

bool kvt__range_has_trailer(const struct kvt__op *op, const struct kvt__range *range)
{
	return range->end > op->payload_bytes;
}

static uint64_t payload_end(const struct kvt__op *op, const struct kvt__range *range)
{
	return range->end < op->payload_bytes ? range->end : op->payload_bytes;
}

bool kvt__range_is_direct(const struct kvt__op *op, const struct kvt__range *range, bool is_store)
{
	const struct kvt_backend_limits *l = &op->lane->worker->store->limits;
	const uint64_t mask = (uint64_t)l->memory_alignment - 1;
	uint64_t at = range->begin, end = payload_end(op, range);
	uint32_t count = 1; /* the trailer's */
	struct kvt__piece piece;
	if (at >= end) /* nothing but trailer, which needs no staging */
		return true;
	if (!op->addressable || op->merge)
		return false;
	while (kvt__op_piece(op, &at, end, &piece)) {
		if (++count > l->max_iov || ((piece.ptr | piece.bytes) & mask))
			return false;
		if (!piece.present && !is_store && !(l->capabilities & KVT_CAP_GET_DISCARD))
			return false;
	}
	return true;
}

/* Appends one entry; grows the room. */
static int add_iov(struct kvt__req *req, uint32_t *count, void *base, uint64_t bytes)
{
	if (*count == req->iov_room && kvt__req_reserve(req, *count + 1, 0))
		return KVT_ENOMEM;
	req->iov[*count] = (struct kvt_iovec){base, bytes};
	++*count;
	return 0;
}

/* What lies between the wanted pieces of a range that is read. */
static uint64_t dropped_bytes(const struct kvt__op *op, const struct kvt__range *range)
{
	uint64_t at = range->begin, end = payload_end(op, range), bytes = 0;
	struct kvt__piece piece;
	while (kvt__op_piece(op, &at, end, &piece))
		if (!piece.present)
			bytes += piece.bytes;
	return bytes;
}

int kvt__range_iov(struct kvt__req *req, bool is_store)
{
	struct kvt__op *op = req->op;
	const struct kvt__range *range = req->range;
	uint64_t at = range->begin, end = payload_end(op, range);
	uint32_t count = 0;
	struct kvt__piece piece;
	bool holes = op->lane->worker->store->limits.capabilities & KVT_CAP_HOLES;
	if (!is_store && !op->raw && op->chunk.block_count != op->geometry.blocks_per_chunk)
		kvt__count(&op->lane->stats.dropped_bytes, dropped_bytes(op, range));
	if (!req->direct && at < end) {
		if (add_iov(req, &count, req->staging.memory, end - at))
			return KVT_ENOMEM;
	}
	while (req->direct && kvt__op_piece(op, &at, end, &piece)) {
		void *base = piece.present ? (void *)(uintptr_t)piece.ptr : NULL;
		if (add_iov(req, &count, base, piece.bytes))
			return KVT_ENOMEM;
		if (!piece.present && is_store && !holes)
			kvt__count(&op->lane->stats.zero_bytes, piece.bytes);
	}
	if (kvt__range_has_trailer(op, range)) {
		uint64_t from = range->begin > op->payload_bytes ? range->begin : op->payload_bytes;
		uint64_t bytes = range->end - from;
		uint8_t *base = op->trailer + (from - op->payload_bytes);
		if (!req->direct &&
		    base != (uint8_t *)req->staging.memory + (from - range->begin)) {
			/* In staging the trailer lies behind the payload: one aligned piece of
			 * memory. */
			base = (uint8_t *)req->staging.memory + (from - range->begin);
			if (is_store)
				memcpy(base, op->trailer + (from - op->payload_bytes),
				       (size_t)bytes);
		}
		if (add_iov(req, &count, base, bytes))
			return KVT_ENOMEM;
	}
	req->io.iov = req->iov;
	req->io.iov_count = count;
	req->io.length = range->end - range->begin;
	return (int)count;
}

void kvt__range_resume(struct kvt__req *req)
{
	struct kvt_io *io = &req->io;
	uint64_t landed = io->bytes_landed & ~(uint64_t)(KVT__PAGE_BYTES - 1);
	const struct kvt_version *version = &io->info.version;
	if (io->op != KVT_IO_GET || !io->progress || !landed || io->bytes_landed >= io->length ||
	    !version->bytes || (io->if_version && !kvt__version_equal(version, io->if_version)) ||
	    !(req->lane->worker->store->limits.capabilities & KVT_CAP_IF_VERSION_GET))
		return;
	req->version = *version;
	io->if_version = &req->version;
	io->flags |= KVT_IO_IF_VERSION;
	io->offset += (int64_t)landed;
	io->length -= landed;
	struct kvt_iovec *v = req->iov + (io->iov - req->iov);
	while (landed >= v->iov_len) {
		landed -= v->iov_len;
		v++;
		io->iov_count--;
	}
	if (v->iov_base)
		v->iov_base = (uint8_t *)v->iov_base + landed;
	v->iov_len -= landed;
	io->iov = v;
}

int kvt__range_copies(struct kvt__req *req)
{
	struct kvt__op *op = req->op;
	const struct kvt__range *range = req->range;
	uint64_t at = range->begin, end = payload_end(op, range);
	uint32_t count = 0;
	struct kvt__piece piece;
	while (kvt__op_piece(op, &at, end, &piece)) {
		if (!piece.present)
			continue;
		if (count == req->copies_room && kvt__req_reserve(req, 0, count + 1))
			return KVT_ENOMEM;
		req->copies[count++] = (struct kvt_device_copy){
			piece.ptr, (uint8_t *)req->staging.memory + (piece.at - range->begin),
			piece.bytes};
	}
	return (int)count;
}

/* Whether a slot's bytes are to be checksummed: written ones by the presence in the new trailer,
 * read ones when wanted. */
static bool counts(const struct kvt__op *op, uint32_t slot)
{
	if (op->job->result.kind != KVT_JOB_STORE || !op->partial)
		return op->job->result.kind == KVT_JOB_STORE || kvt__op_wants(op, slot);
	return op->trailer[op->layout.presence_at + slot / 8] >> (slot % 8) & 1;
}

static void cursor_slot(const struct kvt__op *op, struct kvt__cursor *c, uint32_t ref,
			uint32_t block)
{
	uint64_t size = op->geometry.ref_bytes[ref];
	c->ref = ref;
	c->slot = ref * op->geometry.blocks_per_chunk + block;
	c->slot_at = op->shape->ref_at[ref] + block * size;
	c->slot_end = c->slot_at + size;
	c->wanted = counts(op, c->slot);
	c->crc = 0;
}

void kvt__cursor_start(struct kvt__req *req)
{
	struct kvt__op *op = req->op;
	struct kvt__cursor *c = &req->cursor;
	struct kvt__range *r = req->range;
	c->at = r->begin;
	if (op->raw)
		return;
	r->head_bytes = r->tail_bytes = 0;
	if (r->begin >= op->payload_bytes)
		return;
	uint32_t ref = ref_of(op, r->begin);
	cursor_slot(op, c, ref,
		    (uint32_t)((r->begin - op->shape->ref_at[ref]) / op->geometry.ref_bytes[ref]));
}

/* Where the bytes at the cursor are: in the buffer, or still (or already) at home. */
static const uint8_t *cursor_bytes(const struct kvt__req *req)
{
	const struct kvt__op *op = req->op;
	const struct kvt__cursor *c = &req->cursor;
	if (!req->direct)
		return (const uint8_t *)req->staging.memory + (c->at - req->range->begin);
	uint32_t block = c->slot - c->ref * op->geometry.blocks_per_chunk;
	return (const uint8_t *)(uintptr_t)slot_ptr(op, c->ref, block) + (c->at - c->slot_at);
}

void kvt__cursor_advance(struct kvt__req *req, uint64_t to,
			 void (*record)(struct kvt__op *op, uint32_t slot, uint32_t crc))
{
	struct kvt__op *op = req->op;
	struct kvt__cursor *c = &req->cursor;
	struct kvt__range *r = req->range;
	uint64_t end = payload_end(op, r), summed = 0;
	if (to > end)
		to = end;
	while (c->at < to) {
		uint64_t stop = c->slot_end < to ? c->slot_end : to;
		if (c->wanted) {
			c->crc = kvt__crc32c(c->crc, cursor_bytes(req), (size_t)(stop - c->at));
			summed += stop - c->at;
		}
		c->at = stop;
		if (c->at == c->slot_end) {
			if (c->slot_at < r->begin) {
				r->head_crc = c->crc;
				r->head_bytes = c->at - r->begin;
			} else if (c->wanted) {
				record(op, c->slot, c->crc);
			}
			if (c->at < op->payload_bytes) {
				uint32_t block = c->slot % op->geometry.blocks_per_chunk + 1;
				bool next_ref = block == op->geometry.blocks_per_chunk;
				cursor_slot(op, c, c->ref + next_ref, next_ref ? 0 : block);
			}
		} else if (c->at == end) { /* the slot goes on in another range */
			if (c->slot_at < r->begin) {
				r->head_crc = c->crc;
				r->head_bytes = c->at - r->begin;
			} else {
				r->tail_crc = c->crc;
				r->tail_bytes = c->at - c->slot_at;
			}
		}
	}
	kvt__count(&op->lane->stats.crc_bytes, summed);
}

void kvt__ranges_join(struct kvt__op *op,
		      void (*record)(struct kvt__op *op, uint32_t slot, uint32_t crc))
{
	uint32_t crc = 0;
	for (uint32_t i = 0; i < op->range_count; i++) {
		const struct kvt__range *r = &op->ranges[i];
		if (r->head_bytes) {
			crc = kvt__crc32c_combine(crc, r->head_crc, r->head_bytes);
			uint32_t ref = ref_of(op, r->begin);
			uint64_t size = op->geometry.ref_bytes[ref];
			uint32_t block = (uint32_t)((r->begin - op->shape->ref_at[ref]) / size);
			uint32_t slot = ref * op->geometry.blocks_per_chunk + block;
			bool ends = op->shape->ref_at[ref] + (block + 1) * size <= r->end;
			if (ends && counts(op, slot))
				record(op, slot, crc);
		}
		if (r->tail_bytes)
			crc = r->tail_crc;
	}
}
