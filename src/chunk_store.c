/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Storing one chunk: ask what is there, write what is not, settle what else it may be (the storing
 * rules of kvtier-format(5)). A chunk of one extent is one put; a larger one is written in parts,
 * those with the trailer last.
 */
#include "lane.h"

#include <string.h>

#include "crc32c.h"

static void settle(struct kvt__op *op);
static void part_written(struct kvt__req *req);

static void record_slot(struct kvt__op *op, uint32_t slot, uint32_t crc)
{
	kvt__slot_crc_put(op->trailer, slot, crc);
}

/* Presence and absent slots' zeros; the slot table is filled as bytes pass. */
static void begin_trailer(struct kvt__op *op)
{
	const struct kvt__layout *l = &op->layout;
	if (!op->partial) {
		kvt__presence_all(op->trailer, l);
		return;
	}
	memset(op->trailer, 0, (size_t)(4 * (uint64_t)l->slot_count + l->presence_bytes));
	uint8_t *presence = op->trailer + l->presence_at;
	if (op->merge)
		memcpy(presence, op->old_presence, (size_t)l->presence_bytes);
	for (uint32_t d = 0; d < op->geometry.ref_count; d++)
		for (uint32_t b = 0; b < op->chunk.block_count; b++) {
			uint32_t slot =
				d * op->geometry.blocks_per_chunk + op->chunk.first_slot + b;
			presence[slot / 8] |= (uint8_t)(1u << (slot % 8));
		}
}

static void seal(struct kvt__op *op)
{
	kvt__trailer_seal(op->trailer, &op->layout, &op->geometry, &op->identity, op->partial);
}

static void finish_request(struct kvt__req *req)
{
	kvt__op_fail_request(req->op, req);
	kvt__op_finish(req->op, KVT_STATUS_FAILED);
}

static void no_memory(struct kvt__op *op)
{
	kvt__op_fail(op, KVT_STATUS_FAILED, KVT_ENOMEM, NULL);
}

static void stored(struct kvt__op *op)
{
	op->bytes = op->wanted_bytes;
	kvt__op_finish(op, KVT_STATUS_STORED);
}

/* Bytes are about to be read: checksum them first. With the last of them a single put's trailer is
 * made. */
static void write_progress(struct kvt_io *io, uint64_t bytes)
{
	struct kvt__req *req = io->owner;
	struct kvt__op *op = req->op;
	uint64_t to = req->range->begin + bytes;
	if (to < req->cursor.at)
		kvt__cursor_start(req);
	kvt__cursor_advance(req, to, record_slot);
	if (op->range_count == 1 && to >= op->payload_bytes)
		seal(op);
}

/* The CRC of the whole body for backends that want it beforehand. */
static uint32_t body_crc(const struct kvt__req *req)
{
	uint32_t crc = 0;
	for (uint32_t i = 0; i < req->io.iov_count; i++) {
		const struct kvt_iovec *v = &req->io.iov[i];
		crc = v->iov_base ? kvt__crc32c(crc, v->iov_base, (size_t)v->iov_len)
				  : kvt__crc32c_zeros(crc, v->iov_len);
	}
	return crc;
}

/* How a put or a commit treats what is there. */
static void set_condition(struct kvt__op *op, struct kvt__req *req)
{
	uint32_t can = op->lane->worker->store->limits.capabilities;
	if (op->merge) {
		if ((can & KVT_CAP_IF_VERSION_PUT) && op->found.version.bytes) {
			req->version = op->found.version;
			req->io.if_version = &req->version;
			req->io.flags |= KVT_IO_IF_VERSION;
		}
	} else if (!op->replace && (can & KVT_CAP_IF_ABSENT)) {
		req->io.flags |= KVT_IO_IF_ABSENT;
	}
}

/* A chunk that does not have all its slots makes a partial object. */
static bool is_partial(const struct kvt__op *op)
{
	return op->chunk.block_count != op->geometry.blocks_per_chunk && op->geometry.ref_count;
}

/* Nothing is known any more of what is there. */
void kvt__store_start_over(struct kvt__op *op)
{
	op->rounds++;
	op->merge = op->replace = op->old_changed = false;
	op->partial = is_partial(op);
	kvt__store_ask(op, false);
}

/* What a put or commit answered, for the whole object. */
static void written(struct kvt__op *op, struct kvt__req *req)
{
	op->handle = NULL;
	if (req->result == 0) {
		if (op->merge)
			kvt__count(&op->lane->stats.merges, 1);
		stored(op);
	} else if (req->result == KVT_EEXIST && op->rounds < KVT__ROUNDS_MAX) {
		op->rounds++;
		op->found = req->io.info;
		if (op->found.object_bytes == KVT_BYTES_UNKNOWN)
			kvt__store_ask(op, false);
		else
			settle(op);
	} else if (req->result == KVT_EPRECOND && op->rounds < KVT__ROUNDS_MAX) {
		kvt__store_start_over(op);
	} else {
		finish_request(req);
	}
}

static void put_done(struct kvt__req *req)
{
	struct kvt__op *op = req->op;
	kvt__op_give_request(op, req);
	req->range = NULL;
	written(op, req);
}

/* Joined slots of a merge that are kept from the old object must come out as its table says. */
static void record_joined(struct kvt__op *op, uint32_t slot, uint32_t crc)
{
	record_slot(op, slot, crc);
	if (op->merge)
		kvt__merge_check_slot(op, slot, crc);
}

/* With the first extent that holds trailer bytes the checksums are complete: all other payload has
 * passed. */
static bool make_trailer(struct kvt__req *req)
{
	struct kvt__op *op = req->op;
	kvt__cursor_advance(req, op->payload_bytes, record_slot);
	kvt__ranges_join(op, record_joined);
	if (op->lost_more)
		return false;
	seal(op);
	op->sealed = true;
	return true;
}

static void write_single(struct kvt__req *req)
{
	struct kvt__op *op = req->op;
	bool full_body = op->lane->worker->store->limits.capabilities & KVT_CAP_FULL_BODY;
	if (op->payload_bytes == 0 || full_body || op->merge) {
		kvt__cursor_advance(req, op->payload_bytes, record_slot);
		seal(op);
	} else {
		req->io.progress = write_progress;
		req->io.flags |= KVT_IO_LATE_TAIL;
	}
	if (full_body)
		req->io.crc32c = body_crc(req);
	set_condition(op, req);
	kvt__req_io(req, put_done);
}

/* The range's bytes are where the request reads them from: write. */
static void write_range(struct kvt__req *req)
{
	struct kvt__op *op = req->op;
	bool single = op->range_count == 1, with_trailer = kvt__range_has_trailer(op, req->range);
	uint32_t index = (uint32_t)(req->range - op->ranges);
	kvt__req_prepare(req, single ? KVT_IO_PUT : KVT_IO_PART);
	kvt__cursor_start(req);
	if (!single && with_trailer && !op->sealed && !make_trailer(req)) {
		kvt__store_range_ended(req);
		return;
	}
	if (kvt__range_iov(req, true) < 0) {
		no_memory(op);
		kvt__store_range_ended(req);
		return;
	}
	req->io.offset = (int64_t)req->range->begin;
	req->io.part_number = index;
	req->io.object_bytes = op->object_bytes;
	if (single) {
		write_single(req);
		return;
	}
	if (!with_trailer)
		req->io.progress = write_progress;
	kvt__req_io(req, part_written);
}

void kvt__store_range_checked(struct kvt__req *req)
{
	write_range(req);
}

static void range_failed(struct kvt__req *req)
{
	struct kvt__op *op = req->op;
	kvt__op_fail_request(op, req);
	kvt__store_range_ended(req);
}

static uint32_t ranges_with_payload(const struct kvt__op *op)
{
	uint32_t count = op->range_count;
	while (count && op->ranges[count - 1].begin >= op->payload_bytes)
		count--;
	return count;
}

static void gathered(struct kvt__req *req)
{
	struct kvt__op *op = req->op;
	if (req->result) {
		range_failed(req);
		return;
	}
	/* A partial store may have to merge with what is there, and gather once more. */
	uint32_t payload_ranges = op->range_count > 1 ? ranges_with_payload(op) : 1;
	if (++op->ranges_gathered == payload_ranges && !op->partial)
		kvt__op_quiet(op);
	write_range(req);
}

static void got_buffer(struct kvt__req *req)
{
	struct kvt__op *op = req->op;
	if (req->result) {
		range_failed(req);
		return;
	}
	if (op->partial && !op->merge)
		memset(req->staging.memory, 0, (size_t)(req->range->end - req->range->begin));
	if (op->range_count == 1) { /* the trailer lies behind the payload, in staging */
		op->trailer = (uint8_t *)req->staging.memory + op->payload_bytes;
		begin_trailer(op);
	}
	if (op->merge) {
		kvt__merge_range(req);
		return;
	}
	int copies = kvt__range_copies(req);
	if (copies < 0) {
		req->result = KVT_ENOMEM;
		range_failed(req);
	} else {
		kvt__req_copy(req, KVT_GATHER, (uint32_t)copies, gathered);
	}
}

static void start_range(struct kvt__req *req, uint32_t index)
{
	struct kvt__op *op = req->op;
	req->range = &op->ranges[index];
	req->direct = kvt__range_is_direct(op, req->range, true);
	if (!req->direct) {
		kvt__req_buffer(req, req->range->end - req->range->begin, true, got_buffer);
		return;
	}
	if (op->range_count == 1) {
		op->trailer = op->trailer_memory;
		begin_trailer(op);
	}
	write_range(req);
}

static void aborted(struct kvt__req *req)
{
	req->op->handle = NULL;
	if (req->op->decided || !kvt__merge_retry(req->op))
		kvt__op_finish(req->op, KVT_STATUS_FAILED);
}

static void abort_parts(struct kvt__op *op)
{
	struct kvt__req *req = op->control;
	op->control_free = false;
	kvt__req_prepare(req, KVT_IO_ABORT);
	req->must = true;
	kvt__req_io(req, aborted);
}

static void committed(struct kvt__req *req)
{
	if (req->result &&
	    req->tries == 0) { /* canceled or late before it was asked for: the handle is open */
		kvt__op_fail_request(req->op, req);
		abort_parts(req->op);
	} else {
		written(req->op, req);
	}
}

static void commit_parts(struct kvt__op *op)
{
	struct kvt__req *req = op->control;
	op->control_free = false;
	kvt__req_prepare(req, KVT_IO_COMMIT);
	req->io.object_bytes = op->object_bytes;
	set_condition(op, req);
	kvt__req_io(req, committed);
}

static void feed_parts(struct kvt__op *op)
{
	uint32_t plain = op->range_count - op->trailer_ranges;
	while (op->range_next < op->range_count && !op->decided && !op->lost_more) {
		/* Extents with trailer bytes wait for all others, and for the one that completes
		 * the checksums. */
		if ((op->range_next >= plain && op->ranges_done < plain) ||
		    (op->range_next > plain && !op->sealed))
			return;
		struct kvt__req *req = kvt__op_take_request(op);
		if (!req)
			return;
		start_range(req, op->range_next++);
	}
}

static void part_ended(struct kvt__req *req)
{
	struct kvt__op *op = req->op;
	kvt__op_give_request(op, req);
	op->ranges_done++;
	bool failed = op->decided || op->lost_more;
	if (failed && op->outstanding == 0)
		abort_parts(op);
	else if (!failed && op->ranges_done == op->range_count)
		commit_parts(op);
	else if (!failed)
		feed_parts(op);
}

static void part_written(struct kvt__req *req)
{
	if (req->result)
		kvt__op_fail_request(req->op, req);
	part_ended(req);
}

/* A range that comes to nothing: the operation failed, or a merge starts over. */
void kvt__store_range_ended(struct kvt__req *req)
{
	struct kvt__op *op = req->op;
	if (op->range_count > 1) {
		part_ended(req);
		return;
	}
	kvt__op_give_request(op, req);
	if (op->decided || !kvt__merge_retry(op))
		kvt__op_finish(op, KVT_STATUS_FAILED);
}

static void begun(struct kvt__req *req)
{
	struct kvt__op *op = req->op;
	if (req->result) {
		finish_request(req);
		return;
	}
	op->handle = req->io.handle;
	op->control_free = true;
	feed_parts(op);
}

/* Writes the object as planned in op->partial, op->merge and op->replace. */
void kvt__store_write(struct kvt__op *op)
{
	if (op->quiet) { /* its memory is the caller's again: what was gathered is gone */
		kvt__op_fail(op, KVT_STATUS_FAILED, KVT_EPRECOND,
			     "somebody else stored another object of this key meanwhile");
		kvt__op_finish(op, KVT_STATUS_FAILED);
		return;
	}
	op->payload_bytes = op->layout.payload_bytes;
	op->trailer_bytes = op->layout.trailer_bytes + (op->partial ? KVT__PAGE_BYTES : 0);
	op->object_bytes = op->payload_bytes + op->trailer_bytes;
	op->handle = NULL;
	op->lost_more = op->sealed = false;
	if (kvt__ranges_whole(op) || kvt__op_trailer_room(op, op->trailer_bytes)) {
		no_memory(op);
		kvt__op_finish(op, KVT_STATUS_FAILED);
		return;
	}
	begin_trailer(op);
	op->feed = feed_parts;
	if (op->range_count == 1) {
		op->control_free = true;
		start_range(kvt__op_take_request(op), 0);
		return;
	}
	struct kvt__req *req = op->control;
	kvt__req_prepare(req, KVT_IO_BEGIN);
	req->io.object_bytes = op->object_bytes;
	kvt__req_io(req, begun);
}

static void skipped(struct kvt__op *op, int note)
{
	op->bytes = op->wanted_bytes;
	op->error = note;
	kvt__op_finish(op, KVT_STATUS_SKIPPED);
}

static bool covers_ours(const struct kvt__op *op)
{
	for (uint32_t d = 0; d < op->geometry.ref_count; d++)
		for (uint32_t b = 0; b < op->chunk.block_count; b++)
			if (!kvt__trailer_has(&op->parsed, d * op->geometry.blocks_per_chunk +
								   op->chunk.first_slot + b))
				return false;
	return true;
}

static void settled(struct kvt__op *op, int verdict)
{
	switch (verdict) {
	case 0:
		if (kvt__trailer_compare(&op->parsed, &op->geometry, &op->identity)) {
			op->replace = true;
			kvt__store_write(op);
		} else if (covers_ours(op)) {
			skipped(op, 0);
		} else {
			kvt__merge_begin(op);
		}
		break;
	case KVT_EFORMAT:
		skipped(op, KVT_EFORMAT);
		break;
	case KVT_ENOENT:
		kvt__store_write(op);
		break;
	case KVT_EFOREIGN:
	case KVT_ECORRUPT:
		op->replace = true;
		kvt__store_write(op);
		break;
	default:
		finish_request(op->control);
	}
}

/* Something of a known length is there. */
static void settle(struct kvt__op *op)
{
	const struct kvt_store *store = op->lane->worker->store;
	bool raw_hit = store->accept_raw && op->found.object_bytes == op->layout.payload_bytes;
	if (op->found.object_bytes == op->layout.object_bytes || raw_hit)
		skipped(op, 0);
	else
		kvt__chunk_inspect(op, settled);
}

static void asked(struct kvt__req *req)
{
	struct kvt__op *op = req->op;
	if (req->result == 0 && req->io.info.object_bytes != KVT_BYTES_UNKNOWN) {
		op->found = req->io.info;
		settle(op);
	} else if (req->result == KVT_ENOENT || req->result == KVT_EAGAIN || req->result == 0) {
		kvt__store_write(op);
	} else {
		finish_request(req);
	}
}

void kvt__store_ask(struct kvt__op *op, bool if_cheap)
{
	struct kvt__req *req = op->control;
	op->control_free = false;
	kvt__req_prepare(req, KVT_IO_HEAD);
	/* Partial objects are worth asking for: where one is there, merging begins with it. */
	if (if_cheap && !op->partial &&
	    (op->lane->worker->store->limits.capabilities & KVT_CAP_IF_ABSENT)) {
		req->io.flags |= KVT_IO_IF_CHEAP;
		req->io.object_bytes = op->layout.object_bytes;
	}
	kvt__req_io(req, asked);
}

/* Stores are refused for a while after the store was full, and altogether when config.json is
 * another namespace's. */
static bool refused(struct kvt__op *op)
{
	struct kvt_store *store = op->lane->worker->store;
	if (kvt__op_is_paused(op))
		return true;
	if (atomic_load(&store->config_state) != KVT__CONFIG_OK) {
		char detail[sizeof(store->config_detail)];
		pthread_mutex_lock(&store->config_lock);
		int error = store->config_error;
		memcpy(detail, store->config_detail, sizeof(detail));
		pthread_mutex_unlock(&store->config_lock);
		kvt__op_fail(op, KVT_STATUS_FAILED, error ? error : KVT_EUNAVAIL, detail);
		return true;
	}
	return false;
}

void kvt__store_start(struct kvt__op *op)
{
	struct kvt_store *store = op->lane->worker->store;
	op->partial = is_partial(op);
	if (refused(op)) {
		kvt__op_finish(op, KVT_STATUS_FAILED);
		return;
	}
	if (op->partial &&
	    op->chunk.block_count < store->min_coverage * op->geometry.blocks_per_chunk) {
		skipped(op, 0);
		return;
	}
	if (atomic_load_explicit(&store->bad.count, memory_order_relaxed) &&
	    kvt__bad_keys_take(&store->bad, op->identity.hash, op->identity.hash_bytes,
			       op->identity.group)) {
		op->replace = op->was_bad = true;
		kvt__store_write(op);
		return;
	}
	kvt__store_ask(op, true);
}
