/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The steps of an operation and its end. Steps run on whichever thread has the operation; only
 * io->progress and the result's detail are bound to the session's thread.
 */
#include "file.h"

#include <string.h>
#include <unistd.h>

int kvt__file_op_fail(struct file_op *op, const char *call, int err)
{
	op->error = kvt__file_error(err);
	op->err = err;
	op->call = call;
	return -1;
}

int kvt__file_op_refuse(struct file_op *op, int error, const char *why)
{
	op->error = error;
	op->err = 0;
	op->call = why;
	return -1;
}

void kvt__file_op_init(struct file_op *op, struct file_session *session, struct kvt_io *io)
{
	struct file_backend *b = session->backend;

	memset(op, 0, sizeof(*op));
	op->session = session;
	op->io = io;
	op->file.fd = op->file.parent = -1;
	op->may_report = true;
	io->result = 0;
	io->bytes_landed = 0;
	io->info.object_bytes = KVT_BYTES_UNKNOWN;
	io->info.version.bytes = 0;
	io->info.age_ns = io->info.access_age_ns = -1;
	switch (io->op) {
	case KVT_IO_PUT:
		kvt__file_cursor_init(&op->cursor, io, 0);
		op->direct = atomic_load_explicit(&b->direct_write, memory_order_relaxed) &&
			     kvt__file_cursor_fits(&op->cursor, b);
		break;
	case KVT_IO_BEGIN:
		op->direct = atomic_load_explicit(&b->direct_write, memory_order_relaxed);
		break;
	case KVT_IO_PART:
		op->handle = io->handle;
		kvt__file_cursor_init(&op->cursor, io, (uint64_t)io->offset);
		op->direct = atomic_load_explicit(&op->handle->direct, memory_order_relaxed);
		/* A part that does not suit makes the whole object buffered. */
		if (op->direct && !kvt__file_cursor_fits(&op->cursor, b))
			kvt__file_op_demote(op);
		op->step = FILE_STEP_DATA;
		break;
	case KVT_IO_GET:
		/* An offset from the end is checked once the end is known. */
		kvt__file_cursor_init(&op->cursor, io, io->offset < 0 ? 0 : (uint64_t)io->offset);
		op->direct = atomic_load_explicit(&b->direct_read, memory_order_relaxed) &&
			     kvt__file_cursor_fits(&op->cursor, b);
		break;
	case KVT_IO_COMMIT:
		op->handle = io->handle;
		op->step = FILE_STEP_SYNC;
		break;
	case KVT_IO_ABORT:
		op->handle = io->handle;
		break;
	default:
		break;
	}
	if (io->op != KVT_IO_ABORT && b->host->now_ns() >= io->deadline_ns)
		kvt__file_op_expire(op);
}

void kvt__file_op_expire(struct file_op *op)
{
	kvt__file_op_refuse(op, KVT_ETIMEDOUT, "the deadline has passed");
	kvt__file_op_end(op);
}

int kvt__file_op_fd(const struct file_op *op)
{
	const struct file_new *f = op->handle ? &op->handle->file : &op->file;

	return op->step == FILE_STEP_SYNC_FOLDER ? f->parent : f->fd;
}

void kvt__file_op_demote(struct file_op *op)
{
	struct file_backend *b = op->session->backend;
	int fd = kvt__file_op_fd(op), flags = fcntl(fd, F_GETFL);

	/* Operations that share the descriptor go on either way: what is aligned suits both. */
	if (flags >= 0)
		(void)fcntl(fd, F_SETFL, flags & ~O_DIRECT);
	if (op->handle)
		atomic_store_explicit(&op->handle->direct, false, memory_order_relaxed);
	/* It should have been taken: so the file system wants something else. */
	if (kvt__file_cursor_fits(&op->cursor, b))
		kvt__file_direct_failed(
			b, op->io->op != KVT_IO_GET,
			kvt__file_cursor_aligned(&op->cursor, FILE_PAGE, FILE_PAGE));
	op->direct = false;
}

static int file_op_open(struct file_op *op)
{
	enum file_step next = FILE_STEP_DONE;
	int result;

	switch (op->io->op) {
	case KVT_IO_PUT:
		result = kvt__file_open_new(op);
		next = FILE_STEP_DATA;
		break;
	case KVT_IO_GET:
		result = kvt__file_open_old(op);
		next = FILE_STEP_DATA;
		break;
	case KVT_IO_BEGIN:
		result = kvt__file_begin(op);
		break;
	case KVT_IO_HEAD:
		result = kvt__file_head(op);
		break;
	case KVT_IO_REMOVE:
		result = kvt__file_remove(op);
		break;
	case KVT_IO_TOUCH:
		result = kvt__file_touch(op);
		break;
	case KVT_IO_LIST:
		result = kvt__file_list(op);
		break;
	case KVT_IO_SWEEP:
		result = kvt__file_sweep(op);
		break;
	default: /* abort: the end does it */
		result = 0;
		break;
	}
	op->step = next;
	return result;
}

bool kvt__file_op_wants_sync(const struct file_op *op)
{
	const struct file_backend *b = op->session->backend;

	/* Over a network a failed write may be told as late as here. */
	return !b->memory && (b->fsync != FILE_FSYNC_NONE || b->remote);
}

static int file_op_step(struct file_op *op, bool nowait)
{
	struct file_backend *b = op->session->backend;

	switch (op->step) {
	case FILE_STEP_OPEN:
		return file_op_open(op);
	case FILE_STEP_DATA:
		/* Past the page cache nothing is hot: in front of a write, behind a read. */
		if (op->direct && op->may_report && op->io->op != KVT_IO_GET)
			kvt__file_report_all(op);
		if (kvt__file_data(op, op->may_report, nowait)) {
			if (!nowait || errno != EAGAIN || op->error)
				return -1;
			op->cold = true;
			return 0;
		}
		op->step = op->io->op == KVT_IO_PUT ? FILE_STEP_SYNC : FILE_STEP_DONE;
		return 0;
	case FILE_STEP_SYNC:
		if (kvt__file_op_wants_sync(op) && fdatasync(kvt__file_op_fd(op)))
			return kvt__file_op_fail(op, "fdatasync", errno);
		op->step = FILE_STEP_PUBLISH;
		return 0;
	case FILE_STEP_PUBLISH:
		/* Late: rather not there than reported as failed and there. */
		if (b->host->now_ns() >= op->io->deadline_ns)
			return kvt__file_op_refuse(op, KVT_ETIMEDOUT, "the deadline has passed");
		if (kvt__file_make_visible(op))
			return -1;
		op->step = b->fsync == FILE_FSYNC_FULL && !b->memory ? FILE_STEP_SYNC_FOLDER
								     : FILE_STEP_DONE;
		return 0;
	case FILE_STEP_SYNC_FOLDER:
		if (fsync(kvt__file_op_fd(op)))
			return kvt__file_op_fail(op, "fsync of the folder", errno);
		op->step = FILE_STEP_DONE;
		return 0;
	default:
		return 0;
	}
}

/* Whether the session's ring or pool takes the step that comes next. */
static bool file_op_hands_over(const struct file_op *op)
{
	const struct file_session *s = op->session;
	uint32_t kind = op->io->op;
	bool write = kind == KVT_IO_PUT || kind == KVT_IO_PART;
	bool data = op->step == FILE_STEP_DATA;

	if (s->engine == FILE_ENGINE_INLINE)
		return false;
	if (op->step == FILE_STEP_SYNC)
		return kvt__file_op_wants_sync(op);
	if (op->step == FILE_STEP_SYNC_FOLDER)
		return true;
	if (s->engine == FILE_ENGINE_URING)
		return data && (op->direct || op->cold);
	if (s->backend->remote)
		return kind != KVT_IO_LIST && kind != KVT_IO_SWEEP;
	if (op->step == FILE_STEP_OPEN && kind != KVT_IO_PUT && kind != KVT_IO_GET)
		return false;
	if (op->step == FILE_STEP_PUBLISH)
		return false;
	if (op->direct || op->cold)
		return true;
	return (write || s->backend->memory) && op->io->length >= FILE_POOL_BYTES;
}

void kvt__file_op_run(struct file_op *op, bool stop)
{
	bool nowait = stop && op->session->engine != FILE_ENGINE_INLINE &&
		      op->io->op == KVT_IO_GET && !op->session->backend->memory;

	while (op->step != FILE_STEP_DONE) {
		if (stop && file_op_hands_over(op))
			return;
		if (file_op_step(op, nowait && !op->direct && !op->cold))
			break;
	}
	kvt__file_op_end(op);
}

void kvt__file_op_end(struct file_op *op)
{
	struct file_backend *b = op->session->backend;
	uint32_t kind = op->io->op;

	op->step = FILE_STEP_DONE;
	kvt__file_new_discard(b, &op->file);
	if (kind == KVT_IO_COMMIT || kind == KVT_IO_ABORT)
		kvt__file_new_discard(b, &op->handle->file);
}

static void file_op_detail(const struct file_op *op)
{
	static const char *const verbs[] = {
		[KVT_IO_PUT] = "put",	    [KVT_IO_BEGIN] = "begin",	[KVT_IO_PART] = "part",
		[KVT_IO_COMMIT] = "commit", [KVT_IO_ABORT] = "abort",	[KVT_IO_GET] = "get",
		[KVT_IO_HEAD] = "head",	    [KVT_IO_REMOVE] = "remove", [KVT_IO_LIST] = "list",
		[KVT_IO_TOUCH] = "touch",   [KVT_IO_SWEEP] = "sweep",
	};
	const struct kvt_host *host = op->session->backend->host;
	const char *name = op->handle ? op->handle->name : op->io->name;
	const char *verb = verbs[op->io->op];

	if (!name)
		name = "";
	if (op->call_bytes)
		host->detail(op->io, "%s %s: %s %llu bytes at %llu: %s", verb, name, op->call,
			     (unsigned long long)op->call_bytes, (unsigned long long)op->call_at,
			     kvt__file_error_text(op->err));
	else if (op->err)
		host->detail(op->io, "%s %s: %s: %s", verb, name, op->call,
			     kvt__file_error_text(op->err));
	else
		host->detail(op->io, "%s %s: %s", verb, name, op->call);
}

void kvt__file_op_finish(struct file_op *op)
{
	struct file_backend *b = op->session->backend;
	struct kvt_io *io = op->io;

	/* Those that leave nothing behind which would belie it. */
	if (!op->error &&
	    (io->op == KVT_IO_GET || io->op == KVT_IO_PART || io->op == KVT_IO_HEAD) &&
	    b->host->now_ns() >= io->deadline_ns)
		kvt__file_op_refuse(op, KVT_ETIMEDOUT, "the deadline has passed");
	if (io->op == KVT_IO_GET) {
		io->bytes_landed = op->cursor.done;
		if (!op->error)
			kvt__file_report_all(op);
	}
	if (!op->error && io->op == KVT_IO_PUT)
		io->info.object_bytes = io->object_bytes;
	if (!op->error && io->op == KVT_IO_COMMIT)
		io->info.object_bytes = op->handle->object_bytes;
	io->result = op->error;
	/* That something is not there is what head is asked for. */
	if (op->error && op->call && !(io->op == KVT_IO_HEAD && op->error == KVT_ENOENT))
		file_op_detail(op);
	if (io->op == KVT_IO_COMMIT || io->op == KVT_IO_ABORT) {
		b->host->free(b->host, op->handle);
		io->handle = NULL;
	}
}
