/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sessions: one thread each, with a ring, a pool or neither. Small and cached transfers run inside
 * submit; the others are handed over and come back in poll.
 */
#include "file.h"

#include <poll.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

void kvt__file_kick(struct file_session *session)
{
	const uint64_t one = 1;

	/* Full or interrupted: then it is readable already, or will be tried by the next. */
	if (atomic_exchange(&session->sleeping, false))
		while (write(session->event_fd, &one, sizeof(one)) < 0 && errno == EINTR)
			;
}

void kvt__file_wake(void *opaque)
{
	struct file_session *session = opaque;

	atomic_store(&session->woken, true);
	kvt__file_kick(session);
}

/* Gives the operation to the ring or the pool. */
static bool file_hand_over(struct file_session *s, struct file_op *op)
{
	uint32_t kind = op->io->op;
	bool write = kind == KVT_IO_PUT || kind == KVT_IO_PART;
	bool taken;

	/* From here on the bytes are read by others. */
	if (write && op->step <= FILE_STEP_DATA)
		kvt__file_report_all(op);
	op->may_report = false;
	taken = s->ring ? kvt__file_ring_start(s->ring, op) : kvt__file_pool_start(s->pool, op);
	if (!taken)
		op->may_report = true;
	return taken;
}

int kvt__file_submit(void *opaque, struct kvt_io *io)
{
	struct file_session *s = opaque;
	struct file_op *op = io->private_data;

	if (io->op < KVT_IO_PUT || io->op > KVT_IO_SWEEP)
		return KVT_ENOTSUP;
	if ((io->flags & KVT_IO_IF_VERSION) && io->op != KVT_IO_GET && io->op != KVT_IO_COMMIT)
		return KVT_ENOTSUP;
	if (s->in_flight >= s->depth)
		return KVT_BUSY;
	kvt__file_op_init(op, s, io);
	/* A commit ends its handle also when it is refused. */
	if ((io->flags & KVT_IO_IF_VERSION) && io->op == KVT_IO_COMMIT) {
		kvt__file_op_refuse(op, KVT_ENOTSUP, "versions cannot be compared here");
		kvt__file_op_end(op);
	}
	kvt__file_op_run(op, true);
	if (op->step != FILE_STEP_DONE) {
		if (file_hand_over(s, op)) {
			s->in_flight++;
			return KVT_QUEUED;
		}
		kvt__file_op_run(op, false);
	}
	kvt__file_op_finish(op);
	return KVT_DONE;
}

static void file_deliver(struct file_session *s, struct file_op *op)
{
	struct kvt_io *io = op->io;

	s->in_flight--;
	kvt__file_op_finish(op);
	io->complete(io);
}

/* Delivers what has finished; returns how many. */
static int file_reap(struct file_session *s, int64_t now_ns)
{
	struct file_op *op;
	int delivered = 0;

	/* A completion may submit what finishes at once again: take no more than were there. */
	for (uint32_t left = s->in_flight + 1; left; left--) {
		if (s->ring) {
			do
				if (!kvt__file_ring_reap(s->ring, &op))
					return delivered;
			while (!op);
		} else if (!s->pool) {
			return delivered;
		} else {
			op = kvt__file_pool_reap(s->pool, now_ns);
			if (!op)
				return delivered;
		}
		file_deliver(s, op);
		delivered++;
	}
	return delivered;
}

/* Sleeps on the eventfd alone. */
static void file_sleep(struct file_session *s, int64_t now_ns, int64_t until_ns)
{
	struct pollfd pfd = {.fd = s->event_fd, .events = POLLIN};
	struct timespec wait = {0}, *limit = NULL;
	uint64_t count;

	if (until_ns != INT64_MAX) {
		int64_t left = until_ns > now_ns ? until_ns - now_ns : 0;

		wait.tv_sec = left / 1000000000;
		wait.tv_nsec = left % 1000000000;
		limit = &wait;
	}
	if (ppoll(&pfd, 1, limit, NULL) == 1)
		(void)!read(s->event_fd, &count, sizeof(count));
}

int kvt__file_poll(void *opaque, int64_t until_ns)
{
	struct file_session *s = opaque;
	const struct kvt_host *host = s->backend->host;
	int delivered, error;
	int64_t now_ns, deadline_ns;

	for (;;) {
		now_ns = until_ns == 0 && !s->pool ? 0 : host->now_ns();
		delivered = file_reap(s, now_ns);
		if (atomic_exchange_explicit(&s->woken, false, memory_order_acquire) || delivered)
			return delivered;
		if (now_ns >= until_ns)
			return 0;
		/* From here on a kick writes to the eventfd; what came before is seen below. */
		atomic_store(&s->sleeping, true);
		error = 0;
		if (atomic_load(&s->woken) || (s->pool && kvt__file_pool_ready(s->pool))) {
			/* no sleep */
		} else if (s->ring) {
			error = kvt__file_ring_sleep(s->ring, until_ns);
		} else {
			deadline_ns = s->pool ? kvt__file_pool_deadline(s->pool) : INT64_MAX;
			file_sleep(s, now_ns, deadline_ns < until_ns ? deadline_ns : until_ns);
		}
		atomic_store(&s->sleeping, false);
		if (error)
			return error;
	}
}

static int file_session_engine(struct file_session *s)
{
	struct file_backend *b = s->backend;

	if (s->engine == FILE_ENGINE_URING) {
		if (!kvt__file_ring_open(s, &s->ring))
			return 0;
		/* A limit of this process or machine, say on locked memory: the pool does it too.
		 */
		b->host->log(b->host, KVT_HOST_WARNING, "file: ring",
			     "%s: io_uring for a session: %s; using threads", b->root_path,
			     kvt__file_error_text(errno));
		s->engine = FILE_ENGINE_THREADS;
	}
	if (s->engine == FILE_ENGINE_THREADS && kvt__file_pool_open(s, &s->pool))
		return -1;
	return 0;
}

int kvt__file_session_open(void *opaque, uint32_t depth, int listing, void **sessionp)
{
	struct file_backend *b = opaque;
	const struct kvt_host *host = b->host;
	struct file_session *s = host->alloc(host, sizeof(*s), 16);

	*sessionp = NULL;
	if (!s) {
		host->fail(host, "%s: session: out of memory", b->root_path);
		return KVT_ENOMEM;
	}
	*s = (struct file_session){.backend = b, .event_fd = -1};
	s->depth = depth < 1 ? 1 : depth < FILE_MAX_DEPTH ? depth : FILE_MAX_DEPTH;
	/* Blocking calls have one request in flight and nothing else to do. */
	s->engine = listing ? FILE_ENGINE_INLINE : b->engine;
	s->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (s->event_fd < 0 || file_session_engine(s)) {
		int err = errno;

		host->fail(host, "%s: session: %s", b->root_path, kvt__file_error_text(err));
		if (s->event_fd >= 0)
			close(s->event_fd);
		host->free(host, s);
		return kvt__file_error(err);
	}
	pthread_mutex_lock(&b->sessions_lock);
	s->next = b->sessions;
	s->linkp = &b->sessions;
	if (s->next)
		s->next->linkp = &s->next;
	b->sessions = s;
	pthread_mutex_unlock(&b->sessions_lock);
	*sessionp = s;
	return 0;
}

void kvt__file_session_close(void *opaque)
{
	struct file_session *s = opaque;
	struct file_backend *b = s->backend;

	pthread_mutex_lock(&b->sessions_lock);
	*s->linkp = s->next;
	if (s->next)
		s->next->linkp = s->linkp;
	pthread_mutex_unlock(&b->sessions_lock);
	if (s->ring)
		kvt__file_ring_close(s, s->ring);
	if (s->pool)
		kvt__file_pool_close(s, s->pool);
	close(s->event_fd);
	b->host->free(b->host, s);
}

void kvt__file_session_forked(struct file_session *s)
{
	const struct kvt_host *host = s->backend->host;

	if (s->ring)
		kvt__file_ring_close(s, s->ring);
	if (s->pool)
		kvt__file_pool_forked(s, s->pool);
	close(s->event_fd);
	host->free(host, s);
}
