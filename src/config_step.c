/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.json at a store's first store: created exclusively, or compared with what is there. Stores
 * wait for it; one lane of one worker runs it. On the lane's thread.
 */
#include "lane.h"

#include <string.h>

#define CONFIG_BYTES_MAX   (UINT64_C(1) << 20)
#define UNPARSABLE_TRIES   5
#define UNPARSABLE_WAIT_NS INT64_C(100000000)
#define RETRY_NS	   INT64_C(1000000000)

static void measure(struct kvt__op *op);

static void finish(struct kvt__op *op, enum kvt__config_state state)
{
	struct kvt__lane *lane = op->lane;
	struct kvt_worker *w = lane->worker;
	lane->config = NULL;
	kvt__op_finish(op, KVT_STATUS_STORED);
	atomic_store(&w->store->config_state, (int)state);
	kvt__lanes_wake_all(w);
}

/* A difference stays; anything else is tried again after a while, and fails the stores until then.
 */
static void fail(struct kvt__op *op, int error, const char *detail)
{
	struct kvt_worker *w = op->lane->worker;
	struct kvt_store *store = w->store;
	if (error == KVT_EACCES || error == KVT_EROFS || error == KVT_EAUTH) {
		kvt__log(&w->env, KVT_LOG_WARNING, "config.json",
			 "%s cannot be written or read (%s): going on without", store->config_name,
			 detail);
		finish(op, KVT__CONFIG_OK);
		return;
	}
	if (error == KVT_ECANCELED) { /* this worker ends: another one may try */
		finish(op, KVT__CONFIG_UNKNOWN);
		return;
	}
	pthread_mutex_lock(&store->config_lock);
	store->config_error = error;
	snprintf(store->config_detail, sizeof(store->config_detail), "%s: %s", store->config_name,
		 detail[0] ? detail : kvt_error_text(error));
	pthread_mutex_unlock(&store->config_lock);
	kvt__log(&w->env, KVT_LOG_ERROR, "config.json", "%s", store->config_detail);
	atomic_store(&w->config_retry_ns, op->lane->now_ns + RETRY_NS);
	finish(op, error == KVT_ENAMESPACE ? KVT__CONFIG_BAD : KVT__CONFIG_UNKNOWN);
}

static void fail_request(struct kvt__req *req)
{
	fail(req->op, req->result, req->detail);
}

static void waited(struct kvt__req *req)
{
	if (req->result)
		fail_request(req);
	else
		measure(req->op);
}

static void read_it(struct kvt__req *req)
{
	struct kvt__op *op = req->op;
	struct kvt_store *store = op->lane->worker->store;
	if (req->result == KVT_ERANGE || req->result == KVT_ENOENT) { /* being replaced */
		req->result = KVT_EPROTO;
	} else if (req->result) {
		fail_request(req);
		return;
	} else {
		req->result = kvt__config_compare(&store->ns, &store->env, store->hash_seed,
						  (const char *)op->peeked, (size_t)op->peek_bytes);
		snprintf(req->detail, sizeof(req->detail), "%s",
			 req->result ? kvt_error_detail() : "");
	}
	if (req->result == KVT_EPROTO && op->rounds++ < UNPARSABLE_TRIES)
		kvt__req_delay(req, op->lane->now_ns + UNPARSABLE_WAIT_NS, waited);
	else if (req->result)
		fail(op, req->result == KVT_EPROTO ? KVT_ECONFIG : req->result, req->detail);
	else
		finish(op, KVT__CONFIG_OK);
}

static void create(struct kvt__op *op);

static void measured(struct kvt__req *req)
{
	struct kvt__op *op = req->op;
	uint64_t bytes = req->io.info.object_bytes;
	if (req->result == KVT_ENOENT && op->rounds++ < UNPARSABLE_TRIES) {
		create(op);
		return;
	}
	if (req->result) {
		fail_request(req);
		return;
	}
	if (bytes > CONFIG_BYTES_MAX) {
		fail(op, KVT_ECONFIG, "larger than 1 MiB");
		return;
	}
	kvt__free(&op->lane->worker->env, op->peeked);
	op->peeked = kvt__alloc(&op->lane->worker->env, bytes ? (size_t)bytes : 1);
	op->peek_bytes = bytes;
	if (!op->peeked) {
		fail(op, KVT_ENOMEM, "");
		return;
	}
	kvt__req_prepare(req, KVT_IO_GET);
	req->iov[0] = (struct kvt_iovec){op->peeked, bytes};
	req->io.iov = req->iov;
	req->io.iov_count = bytes ? 1 : 0;
	req->io.length = bytes;
	if (bytes == 0) /* being written by somebody who does not do it in one step */
		kvt__req_ready(req, 0, read_it);
	else
		kvt__req_io(req, read_it);
}

static void measure(struct kvt__op *op)
{
	kvt__req_prepare(op->control, KVT_IO_HEAD);
	kvt__req_io(op->control, measured);
}

static void created(struct kvt__req *req)
{
	struct kvt__op *op = req->op;
	if (req->result == 0 && (req->io.flags & KVT_IO_IF_ABSENT))
		finish(op, KVT__CONFIG_OK);
	else if (req->result == 0 || req->result == KVT_EEXIST)
		measure(op); /* compare with what is there, be it ours or another's */
	else
		fail_request(req);
}

static void create(struct kvt__op *op)
{
	struct kvt_store *store = op->lane->worker->store;
	struct kvt__req *req = op->control;
	kvt__req_prepare(req, KVT_IO_PUT);
	req->iov[0] = (struct kvt_iovec){store->config_text, strlen(store->config_text)};
	req->io.iov = req->iov;
	req->io.iov_count = 1;
	req->io.length = req->io.object_bytes = req->iov[0].iov_len;
	req->io.crc32c = store->env.host.crc32c(0, store->config_text, (size_t)req->io.length);
	if (store->limits.capabilities & KVT_CAP_IF_ABSENT)
		req->io.flags |= KVT_IO_IF_ABSENT;
	kvt__req_io(req, created);
}

/* Without exclusive creation: look first. */
static void looked(struct kvt__req *req)
{
	if (req->result == KVT_ENOENT)
		create(req->op);
	else
		measured(req);
}

void kvt__config_start(struct kvt__lane *lane)
{
	struct kvt_worker *w = lane->worker;
	struct kvt__op *op = kvt__op_new(lane);
	if (!op) {
		atomic_store(&w->config_retry_ns, lane->now_ns + RETRY_NS);
		atomic_store(&w->store->config_state, KVT__CONFIG_UNKNOWN);
		return;
	}
	op->name = w->store->config_name;
	op->deadline_ns = lane->now_ns + w->config.operation_timeout_ns;
	op->control = kvt__req_get(lane, op);
	lane->config = op;
	kvt__req_prepare(op->control, KVT_IO_HEAD);
	kvt__req_io(op->control, looked);
}
