/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Moving bytes between an iovec and a file: the cursor, and the plain calls. What io->progress
 * checksums is moved right after (put) or before (get), in pieces that stay in the cache.
 */
#include "file.h"

#include <unistd.h>

#define PIECE_ENTRIES 256

/* An io's entries are handed to the kernel as they are. */
_Static_assert(sizeof(struct kvt_iovec) == sizeof(struct iovec), "kvt_iovec is an iovec");
_Static_assert(offsetof(struct kvt_iovec, iov_len) == offsetof(struct iovec, iov_len),
	       "kvt_iovec is an iovec");
_Static_assert(sizeof(size_t) == sizeof(uint64_t), "lengths fit a size_t");

void kvt__file_cursor_init(struct file_cursor *c, const struct kvt_io *io, uint64_t file_at)
{
	*c = (struct file_cursor){
		.iov = (const struct iovec *)io->iov,
		.count = io->iov_count,
		.file_at = file_at,
		.total = io->length,
	};
}

bool kvt__file_cursor_settle(struct file_cursor *c)
{
	while (c->done < c->total && c->at < c->count) {
		const struct iovec *entry = &c->iov[c->at];
		uint64_t rest = entry->iov_len - c->skip;

		if (entry->iov_base && rest)
			return true;
		c->done += rest;
		c->file_at += rest;
		c->skip = 0;
		c->at++;
	}
	return false;
}

void kvt__file_cursor_advance(struct file_cursor *c, uint64_t bytes)
{
	c->done += bytes;
	c->file_at += bytes;
	while (bytes) {
		uint64_t rest = c->iov[c->at].iov_len - c->skip;

		if (bytes < rest) {
			c->skip += bytes;
			return;
		}
		bytes -= rest;
		c->skip = 0;
		c->at++;
	}
}

/* The entries of the next piece of at most `limit` bytes, up to a hole; returns their bytes. */
static uint64_t file_cursor_fill(const struct file_cursor *c, uint64_t limit, struct iovec *out,
				 unsigned max, unsigned *countp)
{
	uint64_t bytes = 0, skip = c->skip;
	unsigned count = 0;

	for (uint32_t i = c->at; i < c->count && count < max && bytes < limit; i++) {
		const struct iovec *entry = &c->iov[i];
		uint64_t take = entry->iov_len - skip;

		if (!take)
			continue;
		if (!entry->iov_base)
			break;
		if (take > limit - bytes)
			take = limit - bytes;
		out[count].iov_base = (char *)entry->iov_base + skip;
		out[count++].iov_len = take;
		bytes += take;
		skip = 0;
	}
	*countp = count;
	return bytes;
}

bool kvt__file_cursor_aligned(const struct file_cursor *c, uint32_t memory_align,
			      uint32_t offset_align)
{
	uint64_t lengths = c->file_at, skip = c->skip;
	uintptr_t bases = 0;

	for (uint32_t i = c->at; i < c->count; i++) {
		bases |= (uintptr_t)c->iov[i].iov_base + skip;
		lengths |= c->iov[i].iov_len - skip;
		skip = 0;
	}
	return !(bases & (memory_align - 1)) && !(lengths & (offset_align - 1));
}

bool kvt__file_cursor_fits(const struct file_cursor *c, const struct file_backend *b)
{
	return kvt__file_cursor_aligned(
		c, atomic_load_explicit(&b->memory_align, memory_order_relaxed),
		atomic_load_explicit(&b->offset_align, memory_order_relaxed));
}

/* How many bytes are reported through io->progress in the end. */
static uint64_t file_report_end(const struct kvt_io *io)
{
	return io->flags & KVT_IO_LATE_TAIL ? io->length - io->iov[io->iov_count - 1].iov_len
					    : io->length;
}

static void file_report(struct file_op *op, uint64_t bytes)
{
	struct kvt_io *io = op->io;
	uint64_t end = file_report_end(io);

	if (op->report_done || !io->progress)
		return;
	if (bytes > end)
		bytes = end;
	do {
		uint64_t left = bytes - op->reported;

		op->reported += left < FILE_PIECE + FILE_PIECE_SLACK ? left : FILE_PIECE;
		io->progress(io, op->reported);
	} while (op->reported < bytes);
	op->report_done = bytes == end;
}

void kvt__file_report_all(struct file_op *op)
{
	file_report(op, op->io->length);
}

static ssize_t file_move(int fd, bool write, const struct iovec *iov, unsigned count, uint64_t at,
			 bool nowait)
{
	if (write)
		return count == 1 ? pwrite(fd, iov->iov_base, iov->iov_len, (off_t)at)
				  : pwritev(fd, iov, (int)count, (off_t)at);
	if (nowait)
		return preadv2(fd, iov, (int)count, (off_t)at, RWF_NOWAIT);
	return count == 1 ? pread(fd, iov->iov_base, iov->iov_len, (off_t)at)
			  : preadv(fd, iov, (int)count, (off_t)at);
}

int kvt__file_data(struct file_op *op, bool report, bool nowait)
{
	bool write = op->io->op != KVT_IO_GET;
	struct file_cursor *c = &op->cursor;
	int fd = kvt__file_op_fd(op);
	struct iovec iov[PIECE_ENTRIES];
	const char *call = write ? "pwrite" : "pread";
	uint64_t limit, bytes;
	unsigned count;
	ssize_t moved;

	while (kvt__file_cursor_settle(c)) {
		limit = op->direct || !report ? FILE_MAX_IO : FILE_PIECE;
		if (c->total - c->done < FILE_PIECE + FILE_PIECE_SLACK)
			limit = FILE_PIECE + FILE_PIECE_SLACK;
		bytes = file_cursor_fill(c, limit, iov, PIECE_ENTRIES, &count);
		if (write && report)
			file_report(op, c->done + bytes);
		moved = file_move(fd, write, iov, count, c->file_at, nowait);
		if (moved > 0) {
			kvt__file_cursor_advance(c, (uint64_t)moved);
			if (!write && report)
				file_report(op, c->done);
			continue;
		}
		if (moved < 0 && errno == EINTR)
			continue;
		if (moved < 0 && nowait && (errno == EAGAIN || errno == EOPNOTSUPP)) {
			errno = EAGAIN;
			return -1;
		}
		if (moved < 0 && errno == EINVAL && op->direct) {
			kvt__file_op_demote(op);
			continue;
		}
		op->call_bytes = bytes;
		op->call_at = c->file_at;
		/* Nothing read: the file has become shorter. Nothing written: no reason given. */
		if (!moved && !write)
			return kvt__file_op_short(op);
		return kvt__file_op_fail(op, call, moved ? errno : EIO);
	}
	if (report)
		kvt__file_report_all(op);
	return 0;
}
