/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What each request does to files: making, publishing, opening and looking at them. Runs on
 * whichever thread has the operation.
 */
#include "file.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

static int64_t file_ns(const struct timespec *ts)
{
	return (int64_t)ts->tv_sec * 1000000000 + ts->tv_nsec;
}

static int64_t file_age(const struct timespec *then, const struct timespec *now)
{
	int64_t age = file_ns(now) - file_ns(then);

	return age < 0 ? 0 : age;
}

void kvt__file_fill_info(struct kvt_object_info *info, const struct stat *st)
{
	const uint64_t parts[3] = {st->st_ino, (uint64_t)file_ns(&st->st_mtim),
				   (uint64_t)st->st_size};
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	info->object_bytes = (uint64_t)st->st_size;
	info->version.bytes = sizeof(parts);
	memcpy(info->version.value, parts, sizeof(parts));
	info->age_ns = file_age(&st->st_mtim, &now);
	info->access_age_ns = file_age(&st->st_atim, &now);
}

static bool file_same_version(const struct kvt_version *a, const struct kvt_version *b)
{
	return a->bytes == b->bytes && !memcmp(a->value, b->value, a->bytes);
}

/* An opened file must be a regular one; fills the io's info. */
static int file_op_check(struct file_op *op, int fd)
{
	struct stat st;

	if (fstat(fd, &st))
		return kvt__file_op_fail(op, "fstat", errno);
	/* A folder is part of the way to other names. */
	if (S_ISDIR(st.st_mode))
		return kvt__file_op_refuse(op, KVT_ENOENT, "a folder");
	if (!S_ISREG(st.st_mode))
		return kvt__file_op_refuse(op, KVT_EACCES, "not a regular file");
	kvt__file_fill_info(&op->io->info, &st);
	return 0;
}

/* A failed open of what should be read. */
static int file_op_open_failed(struct file_op *op, int err)
{
	/* A file lies where the name has a folder: so there is no such object. */
	return kvt__file_op_fail(op, "open", err == ENOTDIR ? ENOENT : err);
}

int kvt__file_open_new(struct file_op *op)
{
	struct file_backend *b = op->session->backend;
	const struct kvt_io *io = op->io;
	const struct kvt_iovec *last = io->iov_count ? &io->iov[io->iov_count - 1] : NULL;
	bool parts = io->op == KVT_IO_BEGIN;

	op->file.direct = op->direct;
	if (kvt__file_new_open(b, &op->file, op->handle ? op->handle->name : io->name))
		return kvt__file_op_fail(op, op->file.call, errno);
	op->direct = op->file.direct;
	/* Holes come by themselves, but for one at the end. */
	if ((parts || (last && !last->iov_base)) && io->object_bytes &&
	    ftruncate(op->file.fd, (off_t)io->object_bytes)) {
		op->call_bytes = io->object_bytes;
		return kvt__file_op_fail(op, "ftruncate", errno);
	}
	return 0;
}

int kvt__file_make_visible(struct file_op *op)
{
	struct file_backend *b = op->session->backend;
	struct file_new *f = op->handle ? &op->handle->file : &op->file;
	const char *name = op->handle ? op->handle->name : op->io->name;
	struct stat st;

	if (!kvt__file_publish(b, f, name, op->io->flags & KVT_IO_IF_ABSENT))
		return 0;
	kvt__file_op_fail(op, f->call, errno);
	if (op->error == KVT_EEXIST && f->parent >= 0 &&
	    !fstatat(f->parent, kvt__file_leaf(name), &st, AT_SYMLINK_NOFOLLOW) &&
	    S_ISREG(st.st_mode))
		kvt__file_fill_info(&op->io->info, &st);
	return -1;
}

int kvt__file_open_old(struct file_op *op)
{
	struct file_backend *b = op->session->backend;
	struct kvt_io *io = op->io;
	/* O_NONBLOCK: a pipe must not hang us before it is refused. */
	int flags = O_RDONLY | O_NONBLOCK | O_NOCTTY;
	bool refused = false;
	uint64_t bytes, at;

	op->file.fd = kvt__file_open_beneath(b, io->name, flags | (op->direct ? O_DIRECT : 0));
	if (op->file.fd < 0 && errno == EINVAL && op->direct) {
		op->direct = false;
		refused = true;
		op->file.fd = kvt__file_open_beneath(b, io->name, flags);
	}
	if (op->file.fd < 0)
		return file_op_open_failed(op, errno);
	if (file_op_check(op, op->file.fd))
		return -1;
	/* Only what a regular file says counts for all. */
	if (refused)
		kvt__file_direct_failed(b, false, true);
	if ((io->flags & KVT_IO_IF_VERSION) &&
	    !file_same_version(&io->info.version, io->if_version))
		return kvt__file_op_refuse(op, KVT_EPRECOND,
					   "the object is not the expected version");
	/* From the end: a difference that goes below zero is beyond any object. */
	bytes = io->info.object_bytes;
	at = io->offset < 0 ? bytes + (uint64_t)io->offset : (uint64_t)io->offset;
	if (at > bytes || io->length > bytes - at)
		return kvt__file_op_refuse(op, KVT_ERANGE, "the object does not have these bytes");
	op->cursor.file_at = at;
	if (op->direct && !kvt__file_cursor_fits(&op->cursor, b))
		kvt__file_op_demote(op);
	return 0;
}

int kvt__file_op_short(struct file_op *op)
{
	struct stat st;

	if (!fstat(kvt__file_op_fd(op), &st))
		kvt__file_fill_info(&op->io->info, &st);
	op->call_bytes = 0;
	return kvt__file_op_refuse(op, KVT_ERANGE, "the object has become shorter");
}

int kvt__file_head(struct file_op *op)
{
	struct file_backend *b = op->session->backend;
	int fd, result;

	/* Most answers are no, and this is the cheapest way to it. */
	if (faccessat(b->root_fd, op->io->name, F_OK, 0))
		return file_op_open_failed(op, errno);
	fd = kvt__file_open_beneath(b, op->io->name, O_PATH);
	if (fd < 0)
		return file_op_open_failed(op, errno);
	result = file_op_check(op, fd);
	close(fd);
	return result;
}

int kvt__file_remove(struct file_op *op)
{
	struct file_backend *b = op->session->backend;
	int parent = kvt__file_open_parent(b, op->io->name, false), err;

	if (parent < 0)
		return file_op_open_failed(op, errno);
	err = unlinkat(parent, kvt__file_leaf(op->io->name), 0) ? errno : 0;
	close(parent);
	if (err)
		return kvt__file_op_fail(op, "unlink", err);
	kvt__file_prune(b, op->io->name);
	return 0;
}

int kvt__file_touch(struct file_op *op)
{
	const struct timespec times[2] = {{.tv_nsec = UTIME_NOW}, {.tv_nsec = UTIME_OMIT}};
	int parent = kvt__file_open_parent(op->session->backend, op->io->name, false), err;

	if (parent < 0)
		return file_op_open_failed(op, errno);
	err = utimensat(parent, kvt__file_leaf(op->io->name), times, AT_SYMLINK_NOFOLLOW) ? errno
											  : 0;
	close(parent);
	return err ? kvt__file_op_fail(op, "utimensat", err) : 0;
}

int kvt__file_sweep(struct file_op *op)
{
	struct kvt_io *io = op->io;

	if (kvt__file_temp_sweep(op->session->backend, io->sweep_age_s, &io->swept))
		return kvt__file_op_fail(op, "open of the temporary folder", errno);
	return 0;
}

int kvt__file_begin(struct file_op *op)
{
	const struct kvt_host *host = op->session->backend->host;
	size_t bytes = strlen(op->io->name);
	struct file_object *handle;

	if (bytes > FILE_MAX_NAME)
		return kvt__file_op_fail(op, "open", ENAMETOOLONG);
	handle = host->alloc(host, sizeof(*handle), 16);
	if (!handle)
		return kvt__file_op_refuse(op, KVT_ENOMEM, "out of memory");
	memcpy(handle->name, op->io->name, bytes + 1);
	if (kvt__file_open_new(op)) {
		host->free(host, handle);
		return -1;
	}
	/* Parts come one by one: the folder is opened again to publish. */
	if (op->file.parent >= 0)
		close(op->file.parent);
	op->file.parent = -1;
	handle->file = op->file;
	handle->object_bytes = op->io->object_bytes;
	atomic_init(&handle->direct, op->direct);
	op->file.fd = -1;
	op->file.named = false;
	op->io->handle = handle;
	return 0;
}
