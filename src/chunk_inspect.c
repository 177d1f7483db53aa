/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inspecting: reads the trailer of whatever is at a key's name, wherever the object ends, and says
 * what it is. Used by stores that find something of another length, and by loads that do not find
 * what they expect. On the lane's thread.
 */
#include "lane.h"

#include <string.h>

/* What is read at first: room for the trailer that this key would have, in either form. */
static uint64_t first_peek(const struct kvt__op *op)
{
	uint64_t bytes = op->layout.trailer_bytes + KVT__PAGE_BYTES;
	return bytes < 2 * KVT__PAGE_BYTES ? 2 * KVT__PAGE_BYTES : bytes;
}

static void peek(struct kvt__op *op, uint64_t bytes);

static void tell(struct kvt__op *op, int verdict)
{
	op->inspected(op, verdict);
}

static void peeked(struct kvt__req *req)
{
	struct kvt__op *op = req->op;
	if (req->result == KVT_ERANGE && req->io.info.object_bytes != KVT_BYTES_UNKNOWN &&
	    op->rounds < 3) { /* shorter than we were told */
		op->rounds++;
		op->found = req->io.info;
		peek(op, op->peek_bytes);
		return;
	}
	if (req->result) {
		tell(op, req->result);
		return;
	}
	op->found = req->io.info;
	uint64_t object = op->found.object_bytes, trailer_bytes;
	if (object < KVT__TAIL_BYTES || op->peek_bytes < KVT__TAIL_BYTES) {
		tell(op, KVT_EFOREIGN);
		return;
	}
	int verdict = kvt__tail_peek(op->peeked + op->peek_bytes - KVT__TAIL_BYTES, object,
				     &trailer_bytes);
	if (verdict == 0 && trailer_bytes > op->peek_bytes) {
		peek(op, trailer_bytes);
		return;
	}
	op->checksum_fails =
		verdict == 0 && kvt__trailer_checksum_fails(
					op->peeked + op->peek_bytes - trailer_bytes, trailer_bytes);
	if (verdict == 0)
		verdict = kvt__trailer_parse(op->peeked + op->peek_bytes - trailer_bytes,
					     trailer_bytes, object, &op->parsed);
	tell(op, verdict);
}

static void peek(struct kvt__op *op, uint64_t bytes)
{
	struct kvt__req *req = op->control;
	if (bytes > op->found.object_bytes)
		bytes = op->found.object_bytes;
	kvt__free(&op->lane->worker->env, op->peeked);
	op->peeked =
		bytes <= KVT__MAX_TRAILER_BYTES && bytes
			? kvt__alloc_aligned(&op->lane->worker->env, (size_t)bytes, KVT__PAGE_BYTES)
			: NULL;
	op->peek_bytes = bytes;
	if (bytes == 0 || bytes > KVT__MAX_TRAILER_BYTES) {
		tell(op, bytes ? KVT_ECORRUPT : KVT_EFOREIGN);
		return;
	}
	if (!op->peeked) {
		req->detail[0] = '\0';
		req->result = KVT_ENOMEM;
		tell(op, KVT_ENOMEM);
		return;
	}
	kvt__req_prepare(req, KVT_IO_GET);
	req->iov[0] = (struct kvt_iovec){op->peeked, bytes};
	req->io.iov = req->iov;
	req->io.iov_count = 1;
	req->io.length = bytes;
	req->io.offset = -(int64_t)bytes;
	kvt__req_io(req, peeked);
}

static void measured(struct kvt__req *req)
{
	struct kvt__op *op = req->op;
	if (req->result) {
		tell(op, req->result);
		return;
	}
	op->found = req->io.info;
	peek(op, first_peek(op));
}

void kvt__chunk_inspect(struct kvt__op *op, void (*then)(struct kvt__op *op, int verdict))
{
	struct kvt__req *req = op->control;
	op->inspected = then;
	op->control_free = false;
	if (op->found.object_bytes != KVT_BYTES_UNKNOWN) {
		peek(op, first_peek(op));
		return;
	}
	kvt__req_prepare(req, KVT_IO_HEAD);
	kvt__req_io(req, measured);
}
