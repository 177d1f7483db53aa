/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ring of a session: O_DIRECT data and synchronizing go through io_uring, made and used on the
 * session's thread alone. A poll request on the session's eventfd, which stays armed, lets other
 * threads end its sleep.
 */
#include "file.h"

#include <stdint.h>

#if KVT_HAVE_URING

#include <liburing.h>
#include <limits.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

struct file_ring {
	struct io_uring ring;
	struct file_session *session;
	bool oneshot;	/* the kernel has no poll that stays armed */
	bool poll_lost; /* it must be armed again */
};

static int file_ring_init(struct io_uring *ring, unsigned entries)
{
	/* The best first; kernels refuse flags that they do not know with EINVAL. */
	static const unsigned flags[] = {
		IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_TASKRUN_FLAG,
		IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG,
		0,
	};
	int result = -EINVAL;

	for (size_t i = 0; result == -EINVAL && i < sizeof(flags) / sizeof(flags[0]); i++) {
		struct io_uring_params params;

		memset(&params, 0, sizeof(params));
		params.flags = flags[i];
		result = io_uring_queue_init_params(entries, ring, &params);
		/* Waiting with a time limit is what everything stands on. */
		if (!result && !(params.features & IORING_FEAT_EXT_ARG)) {
			io_uring_queue_exit(ring);
			return -ENOSYS;
		}
	}
	return result;
}

bool kvt__file_ring_usable(void)
{
	struct io_uring ring;

	if (file_ring_init(&ring, 4))
		return false;
	io_uring_queue_exit(&ring);
	return true;
}

static bool file_ring_arm(struct file_ring *r)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&r->ring);

	r->poll_lost = !sqe;
	if (!sqe)
		return false;
	if (r->oneshot)
		io_uring_prep_poll_add(sqe, r->session->event_fd, POLLIN);
	else
		io_uring_prep_poll_multishot(sqe, r->session->event_fd, POLLIN);
	io_uring_sqe_set_data(sqe, NULL);
	return true;
}

int kvt__file_ring_open(struct file_session *session, struct file_ring **ringp)
{
	const struct kvt_host *host = session->backend->host;
	unsigned workers[2] = {session->depth, session->depth};
	struct file_ring *r = host->alloc(host, sizeof(*r), 64);
	int result;

	*ringp = NULL;
	if (!r) {
		errno = ENOMEM;
		return -1;
	}
	memset(r, 0, sizeof(*r));
	r->session = session;
	/* One entry for each request, one for the eventfd. */
	result = file_ring_init(&r->ring, session->depth + 1);
	if (result) {
		host->free(host, r);
		errno = -result;
		return -1;
	}
	/* New blocks are written by kernel threads; unless told, it takes four for each core. Old
	 * kernels do not know the call. */
	(void)io_uring_register_iowq_max_workers(&r->ring, workers);
	file_ring_arm(r);
	io_uring_submit(&r->ring);
	*ringp = r;
	return 0;
}

void kvt__file_ring_close(struct file_session *session, struct file_ring *ring)
{
	const struct kvt_host *host = session->backend->host;

	io_uring_queue_exit(&ring->ring);
	host->free(host, ring);
}

static void file_ring_prepare_data(struct io_uring_sqe *sqe, struct file_op *op)
{
	struct file_cursor *c = &op->cursor;
	const struct iovec *iov = &c->iov[c->at];
	bool write = op->io->op != KVT_IO_GET;
	int fd = kvt__file_op_fd(op);
	unsigned count = 1;
	uint64_t rest = iov->iov_len - c->skip;
	char *base = (char *)iov->iov_base + c->skip;

	/* The entries up to the next hole; one that is begun goes alone. */
	while (!c->skip && c->at + count < c->count && iov[count].iov_base && count < IOV_MAX)
		count++;
	if (rest > FILE_MAX_IO)
		rest = FILE_MAX_IO;
	if (count > 1 && write)
		io_uring_prep_writev(sqe, fd, iov, count, c->file_at);
	else if (count > 1)
		io_uring_prep_readv(sqe, fd, iov, count, c->file_at);
	else if (write)
		io_uring_prep_write(sqe, fd, base, (unsigned)rest, c->file_at);
	else
		io_uring_prep_read(sqe, fd, base, (unsigned)rest, c->file_at);
}

static bool file_ring_queue(struct file_ring *r, struct file_op *op)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&r->ring);

	if (!sqe)
		return false;
	if (op->step == FILE_STEP_DATA)
		file_ring_prepare_data(sqe, op);
	else
		io_uring_prep_fsync(sqe, kvt__file_op_fd(op),
				    op->step == FILE_STEP_SYNC ? IORING_FSYNC_DATASYNC : 0);
	io_uring_sqe_set_data(sqe, op);
	/* What the kernel does not take now goes along with the next call. */
	io_uring_submit(&r->ring);
	return true;
}

bool kvt__file_ring_start(struct file_ring *ring, struct file_op *op)
{
	if (op->step == FILE_STEP_DATA) {
		/* Nothing but holes. */
		if (!kvt__file_cursor_settle(&op->cursor))
			return false;
		/* Kernels before 6.0 take O_NONBLOCK on a file for a wish not to wait. */
		if (op->io->op == KVT_IO_GET)
			(void)fcntl(op->file.fd, F_SETFL, op->direct ? O_DIRECT : 0);
	}
	return file_ring_queue(ring, op);
}

/* Takes the result of an operation's request; true when its step is over, false when it needs the
 * ring again. A failure is set in op. */
static bool file_ring_result(struct file_op *op, int result)
{
	struct file_backend *b = op->session->backend;
	struct file_cursor *c = &op->cursor;
	bool write = op->io->op != KVT_IO_GET;

	if (result == -EINTR || result == -EAGAIN)
		return false;
	if (op->step != FILE_STEP_DATA) {
		if (result < 0)
			kvt__file_op_fail(op, "fdatasync", -result);
		return true;
	}
	if (result > 0) {
		kvt__file_cursor_advance(c, (uint64_t)result);
		if (!kvt__file_cursor_settle(c))
			return true;
		/* A short count that leaves a crooked rest. */
		if (op->direct && !kvt__file_cursor_fits(c, b))
			kvt__file_op_demote(op);
		return false;
	}
	if (result == -EINVAL && op->direct) {
		kvt__file_op_demote(op);
		return false;
	}
	if (!result && !write) {
		kvt__file_op_short(op);
		return true;
	}
	op->call_bytes = c->total - c->done;
	op->call_at = c->file_at;
	kvt__file_op_fail(op, write ? "pwrite" : "pread", result ? -result : EIO);
	return true;
}

/* Carries an operation on; true when it is DONE. */
static bool file_ring_continue(struct file_ring *r, struct file_op *op, int result)
{
	bool over = file_ring_result(op, result);

	if (op->error) {
		kvt__file_op_end(op);
		return true;
	}
	if (!over) {
		if (result != -EAGAIN && file_ring_queue(r, op))
			return false;
		kvt__file_op_run(op, false);
		return true;
	}
	switch (op->step) {
	case FILE_STEP_DATA:
		op->step = op->io->op == KVT_IO_PUT ? FILE_STEP_SYNC : FILE_STEP_DONE;
		break;
	case FILE_STEP_SYNC:
		op->step = FILE_STEP_PUBLISH;
		break;
	default:
		op->step = FILE_STEP_DONE;
		break;
	}
	/* The steps in between are plain calls. */
	kvt__file_op_run(op, true);
	if (op->step == FILE_STEP_DONE)
		return true;
	if (file_ring_queue(r, op))
		return false;
	kvt__file_op_run(op, false);
	return true;
}

bool kvt__file_ring_reap(struct file_ring *r, struct file_op **opp)
{
	struct io_uring_cqe *cqe;
	struct file_op *op;
	uint64_t count;
	int result;
	bool more;

	*opp = NULL;
	if (io_uring_peek_cqe(&r->ring, &cqe))
		return false;
	op = io_uring_cqe_get_data(cqe);
	result = cqe->res;
	more = cqe->flags & IORING_CQE_F_MORE;
	/* Seen first: what follows may queue again. */
	io_uring_cqe_seen(&r->ring, cqe);
	if (op) {
		op->may_report = true;
		if (file_ring_continue(r, op, result))
			*opp = op;
		else
			op->may_report = false;
		return true;
	}
	(void)!read(r->session->event_fd, &count, sizeof(count));
	if (result == -EINVAL)
		r->oneshot = true;
	if (!more && file_ring_arm(r))
		io_uring_submit(&r->ring);
	return true;
}

int kvt__file_ring_sleep(struct file_ring *r, int64_t until_ns)
{
	const struct kvt_host *host = r->session->backend->host;
	struct __kernel_timespec wait, *limit = NULL;
	struct io_uring_cqe *cqe;
	int result;

	if (r->poll_lost)
		file_ring_arm(r);
	if (until_ns != INT64_MAX) {
		int64_t left = until_ns - host->now_ns();

		left = left > 0 ? left : 0;
		wait.tv_sec = left / 1000000000;
		wait.tv_nsec = left % 1000000000;
		limit = &wait;
	}
	result = io_uring_submit_and_wait_timeout(&r->ring, &cqe, 1, limit, NULL);
	if (result >= 0 || result == -ETIME || result == -EINTR || result == -EAGAIN ||
	    result == -EBUSY || result == -ENOMEM)
		return 0;
	return KVT_EINTERNAL;
}

#else

bool kvt__file_ring_usable(void)
{
	return false;
}

int kvt__file_ring_open(struct file_session *session, struct file_ring **ringp)
{
	(void)session;
	*ringp = NULL;
	errno = ENOSYS;
	return -1;
}

void kvt__file_ring_close(struct file_session *session, struct file_ring *ring)
{
	(void)session;
	(void)ring;
}

bool kvt__file_ring_start(struct file_ring *ring, struct file_op *op)
{
	(void)ring;
	(void)op;
	return false;
}

bool kvt__file_ring_reap(struct file_ring *ring, struct file_op **opp)
{
	(void)ring;
	*opp = NULL;
	return false;
}

int kvt__file_ring_sleep(struct file_ring *ring, int64_t until_ns)
{
	(void)ring;
	(void)until_ns;
	return KVT_EINTERNAL;
}

#endif
