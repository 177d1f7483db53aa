/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What becomes of a load: what the trailer says, what is wrong with an object and whether that is
 * proven, removing what is, and noting the use of what was loaded. On the lane's thread.
 */
#include "lane.h"

#define TOUCH_AGE_NS   (INT64_C(3600) * 1000000000)
#define FOREIGN_AGE_NS (INT64_C(600) * 1000000000)

#define REREADS_MAX 3
/* Beside slots, which are fewer: what a read found wrong. */
#define SUSPECT_TRAILER	  (UINT32_MAX - 2)
#define SUSPECT_STRUCTURE (UINT32_MAX - 1)
#define SUSPECT_NOTHING	  UINT32_MAX

static void loaded(struct kvt__op *op)
{
	op->bytes = op->wanted_bytes;
	kvt__op_finish(op, op->raw_load ? KVT_STATUS_LOADED_UNVERIFIED : KVT_STATUS_LOADED);
}

static void touched(struct kvt__req *req)
{
	loaded(req->op); /* whether or not it could be touched */
}

/* Its use is noted at most once an hour. */
static void finish_loaded(struct kvt__op *op)
{
	if (!(op->lane->worker->store->limits.capabilities & KVT_CAP_TOUCH) ||
	    op->found.access_age_ns < TOUCH_AGE_NS) {
		loaded(op);
		return;
	}
	kvt__req_prepare(op->control, KVT_IO_TOUCH);
	kvt__req_io(op->control, touched);
}

static void removed(struct kvt__req *req)
{
	if (req->result == 0)
		kvt__count(&req->lane->stats.removed_corrupt, 1);
	kvt__op_finish(req->op, KVT_STATUS_FAILED);
}

static void remove_now(struct kvt__op *op)
{
	struct kvt__req *req = op->control;
	kvt__req_prepare(req, KVT_IO_REMOVE);
	if (op->lane->worker->store->limits.capabilities & KVT_CAP_IF_VERSION_REMOVE) {
		req->version = op->found.version;
		req->io.if_version = &req->version;
		req->io.flags |= KVT_IO_IF_VERSION;
	}
	kvt__req_io(req, removed);
}

/* Where the backend cannot remove by version: compare first. Losing that race costs a miss. */
static void compared(struct kvt__req *req)
{
	struct kvt__op *op = req->op;
	if (req->result == 0 && kvt__version_equal(&req->io.info.version, &op->found.version))
		remove_now(op);
	else
		kvt__op_finish(op, KVT_STATUS_FAILED);
}

/* Removes what was proven bad, then ends as decided. */
static void finish_bad(struct kvt__op *op, bool proven)
{
	struct kvt_worker *w = op->lane->worker;
	kvt__bad_keys_add(&w->store->bad, op->identity.hash, op->identity.hash_bytes,
			  op->identity.group);
	if (!proven || w->config.keep_corrupt || !op->found.version.bytes) {
		kvt__op_finish(op, KVT_STATUS_FAILED);
	} else if (w->store->limits.capabilities & KVT_CAP_IF_VERSION_REMOVE) {
		remove_now(op);
	} else {
		kvt__req_prepare(op->control, KVT_IO_HEAD);
		kvt__req_io(op->control, compared);
	}
}

static void finish_missing(struct kvt__op *op, const char *detail)
{
	kvt__op_fail(op, KVT_STATUS_MISSING, KVT_ENOENT, detail);
	kvt__op_finish(op, KVT_STATUS_MISSING);
}

/*
 * Whether the same thing (a slot, or one of SUSPECT_*) was found wrong the last time too: only then
 * it is proven. What is wrong in another way each time is corrupt without proof after a few reads.
 */
static bool suspected_before(struct kvt__op *op, uint32_t what)
{
	bool again = op->rereads && op->suspect == what;
	op->suspect = again || op->rereads < REREADS_MAX ? what : SUSPECT_NOTHING;
	return again || op->rereads++ >= REREADS_MAX;
}

/* A verdict of the format on what is there. Returns false when the operation is to start over. */
static bool judge(struct kvt__op *op, int verdict, bool *provenp)
{
	uint64_t length = op->found.object_bytes;
	bool our_length = length == op->layout.object_bytes ||
			  length == op->layout.object_bytes + KVT__PAGE_BYTES;
	*provenp = false;
	switch (verdict) {
	case KVT_EMISMATCH:
		kvt__op_fail(op, KVT_STATUS_MISMATCH, KVT_EMISMATCH, kvt_error_detail());
		break;
	case KVT_EFORMAT:
		kvt__op_fail(op, KVT_STATUS_FAILED, KVT_EFORMAT, kvt_error_detail());
		break;
	case KVT_EFOREIGN:
		if (our_length) {
			kvt__op_fail(op, KVT_STATUS_CORRUPT, KVT_ECORRUPT,
				     "the object has the expected length and no trailer");
			break;
		}
		*provenp = length != op->layout.payload_bytes && op->found.age_ns > FOREIGN_AGE_NS;
		kvt__op_fail(op, KVT_STATUS_FOREIGN, KVT_EFOREIGN,
			     "the object has no trailer and another length");
		break;
	default: /* KVT_ECORRUPT: proven when its own checksum failed twice in a row */
		if (!suspected_before(op, op->checksum_fails ? SUSPECT_TRAILER : SUSPECT_STRUCTURE))
			return false;
		*provenp = op->suspect == SUSPECT_TRAILER;
		kvt__op_fail(op, KVT_STATUS_CORRUPT, KVT_ECORRUPT, kvt_error_detail());
	}
	return true;
}

/* The object is not what was expected; its end has been looked at. */
static void inspected(struct kvt__op *op, int verdict)
{
	bool proven;
	if (verdict == 0) {
		if (kvt__trailer_compare(&op->parsed, &op->geometry, &op->identity) == 0) {
			/* Replaced by the right one since. */
			if (op->rounds++ < KVT__ROUNDS_MAX) {
				kvt__load_begin(op);
				return;
			}
			kvt__op_fail(op, KVT_STATUS_FAILED, KVT_EPRECOND,
				     "the object kept changing while it was read");
			kvt__op_finish(op, KVT_STATUS_FAILED);
			return;
		}
		verdict = KVT_EMISMATCH;
	}
	if (verdict == KVT_ENOENT) {
		finish_missing(op, NULL);
	} else if (verdict == KVT_EFOREIGN && op->lane->worker->store->accept_raw &&
		   op->found.object_bytes == op->layout.payload_bytes) {
		op->raw_load =
			true; /* exactly the row's length, which the store was told to accept */
		kvt__load_begin(op);
	} else if (verdict != KVT_EMISMATCH && verdict != KVT_EFORMAT && verdict != KVT_EFOREIGN &&
		   verdict != KVT_ECORRUPT) {
		op->control->result = verdict;
		kvt__op_fail_request(op, op->control);
		kvt__op_finish(op, KVT_STATUS_FAILED);
	} else if (!judge(op, verdict, &proven)) {
		kvt__load_begin(op);
	} else if (op->status == KVT_STATUS_FAILED) {
		kvt__op_finish(op, KVT_STATUS_FAILED);
	} else {
		finish_bad(op, proven);
	}
}

/* The first wanted slot that the object does not have, or slot_count. */
static uint32_t absent_slot(const struct kvt__op *op)
{
	for (uint32_t d = 0; d < op->geometry.ref_count; d++)
		for (uint32_t b = 0; b < op->chunk.block_count; b++) {
			uint32_t slot =
				d * op->geometry.blocks_per_chunk + op->chunk.first_slot + b;
			if (!kvt__trailer_has(&op->parsed, slot))
				return slot;
		}
	return op->layout.slot_count;
}

/* The trailer is there: is this the object, and does it hold what is wanted? */
void kvt__load_read_trailer(struct kvt__op *op)
{
	uint64_t bytes = op->trailer_bytes;
	if (op->found.object_bytes > op->layout.object_bytes)
		bytes += KVT__PAGE_BYTES;
	uint64_t tail_says = 0;
	int verdict = kvt__tail_peek(op->trailer + bytes - KVT__TAIL_BYTES, op->found.object_bytes,
				     &tail_says);
	if (!verdict && tail_says != bytes) { /* our length by chance: another geometry */
		op->odd = true;
		return;
	}
	op->checksum_fails = !verdict && kvt__trailer_checksum_fails(op->trailer, bytes);
	if (!verdict)
		verdict =
			kvt__trailer_parse(op->trailer, bytes, op->found.object_bytes, &op->parsed);
	if (!verdict)
		verdict = kvt__trailer_compare(&op->parsed, &op->geometry, &op->identity);
	if (verdict) {
		op->conclude = true;
		if (!judge(op, verdict, &op->proven))
			op->again = true;
		return;
	}
	uint32_t absent = absent_slot(op);
	if (absent != op->layout.slot_count) {
		char line[96];
		snprintf(line, sizeof(line), "the object is partial: slot %u is absent", absent);
		kvt__op_fail(op, KVT_STATUS_MISSING, KVT_ENOENT, line);
		op->conclude = true;
		return;
	}
	op->trailer_parsed = true;
}

/* All requests are back. */
void kvt__load_conclude(struct kvt__op *op)
{
	if (op->odd) {
		op->odd = false;
		kvt__chunk_inspect(op, inspected);
	} else if (op->again) {
		kvt__load_begin(op);
	} else if (op->changed) {
		if (op->rounds++ < KVT__ROUNDS_MAX) {
			kvt__load_begin(op);
		} else {
			kvt__op_fail(op, KVT_STATUS_FAILED, KVT_EPRECOND,
				     "the object kept changing while it was read");
			kvt__op_finish(op, KVT_STATUS_FAILED);
		}
	} else if (op->decided) {
		if (op->status == KVT_STATUS_CORRUPT || op->status == KVT_STATUS_MISMATCH)
			finish_bad(op, op->proven);
		else
			kvt__op_finish(op, KVT_STATUS_FAILED);
	} else if (op->bad_slot) {
		char line[96];
		if (!suspected_before(op, op->bad_slot_index)) {
			kvt__load_begin(op);
			return;
		}
		snprintf(line, sizeof(line), "slot %u fails its checksum", op->bad_slot_index);
		kvt__op_fail(op, KVT_STATUS_CORRUPT, KVT_ECORRUPT, line);
		finish_bad(op, op->suspect == op->bad_slot_index);
	} else {
		finish_loaded(op);
	}
}

bool kvt__load_must_conclude(const struct kvt__op *op)
{
	return op->conclude || op->odd || op->again || op->changed || op->decided || op->bad_slot;
}
