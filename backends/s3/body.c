/* SPDX-License-Identifier: Apache-2.0 */
/* Bodies: iovecs that are read and filled piece by piece, with the core's progress function told
 * before a piece is read, so that it is checksummed just before libcurl copies it. */
#include "s3.h"

#include <string.h>

void kvt__s3_cursor_begin(struct s3_cursor *cursor, const struct kvt_iovec *iov, uint32_t count)
{
	*cursor = (struct s3_cursor){.iov = iov, .count = count};
}

/* The next piece of at most `bytes` bytes; *memoryp is NULL for one without memory. */
static size_t s3_cursor_piece(struct s3_cursor *cursor, size_t bytes, char **memoryp)
{
	const struct kvt_iovec *v;
	uint64_t left;

	while (cursor->offset == cursor->iov[cursor->at].iov_len) {
		cursor->at++;
		cursor->offset = 0;
	}
	v = &cursor->iov[cursor->at];
	left = v->iov_len - cursor->offset;
	*memoryp = v->iov_base ? (char *)v->iov_base + cursor->offset : NULL;
	if (left < bytes)
		bytes = (size_t)left;
	cursor->offset += bytes;
	return bytes;
}

void kvt__s3_cursor_read(struct s3_cursor *cursor, void *to, size_t bytes)
{
	while (bytes) {
		char *from;
		size_t n = s3_cursor_piece(cursor, bytes, &from);

		if (from)
			memcpy(to, from, n);
		else
			memset(to, 0, n);
		to = (char *)to + n;
		bytes -= n;
	}
}

void kvt__s3_cursor_write(struct s3_cursor *cursor, const void *from, size_t bytes)
{
	while (bytes) {
		char *to;
		size_t n = s3_cursor_piece(cursor, bytes, &to);

		if (to)
			memcpy(to, from, n);
		from = (const char *)from + n;
		bytes -= n;
	}
}

void kvt__s3_body_rewind(struct s3_transfer *t)
{
	struct kvt_io *io = t->io;

	t->sent = 0;
	t->received = 0;
	if (t->x.source == S3_SEND_IOV || t->x.sink == S3_TO_IOV) {
		kvt__s3_cursor_begin(&t->cursor, io->iov, io->iov_count);
		if (t->has_told && io->progress)
			io->progress(io, 0);
		t->told = 0;
		t->has_told = false;
	}
}

/* Bytes before the late tail. */
static uint64_t s3_early_bytes(const struct kvt_io *io)
{
	if (io->flags & KVT_IO_LATE_TAIL)
		return io->length - io->iov[io->iov_count - 1].iov_len;
	return io->length;
}

size_t kvt__s3_body_read(char *to, size_t size, size_t count, void *transfer)
{
	struct s3_transfer *t = transfer;
	struct kvt_io *io = t->io;
	size_t room = size * count;
	uint64_t left, tell, early;

	t->moved_ns = t->session->host->now_ns();
	if (t->x.source == S3_SEND_TEXT) {
		left = t->x.text_bytes - t->sent;
		if (room > left)
			room = (size_t)left;
		memcpy(to, t->x.text + t->sent, room);
		t->sent += room;
		return room;
	}
	left = io->length - t->sent;
	if (room > left)
		room = (size_t)left;
	early = s3_early_bytes(io);
	tell = t->sent + room < early ? t->sent + room : early;
	/* Once at least, for a tail with nothing before it. */
	if (io->progress && (tell > t->told || !t->has_told)) {
		io->progress(io, tell);
		t->told = tell;
		t->has_told = true;
	}
	kvt__s3_cursor_read(&t->cursor, to, room);
	t->sent += room;
	return room;
}

int kvt__s3_body_seek(void *transfer, curl_off_t offset, int origin)
{
	if (offset != 0 || origin != SEEK_SET)
		return CURL_SEEKFUNC_CANTSEEK;
	/* libcurl sends it again by itself when an idle connection breaks: the server may have done
	 * the first one. */
	((struct s3_transfer *)transfer)->is_resent = true;
	kvt__s3_body_rewind(transfer);
	return CURL_SEEKFUNC_OK;
}

int kvt__s3_body_sha256(struct s3_transfer *t)
{
	static const char zeros[4096];
	struct s3_signer *signer = t->session->signer;
	const struct kvt_host *host = t->session->host;
	uint64_t left = t->io->length, hashed = 0;
	struct s3_cursor cursor;
	int error;

	if (t->is_hashed)
		return 0;
	error = kvt__s3_sha256_begin(signer);
	kvt__s3_cursor_begin(&cursor, t->io->iov, t->io->iov_count);
	while (left && error == 0) {
		size_t most = left < S3_MIB ? (size_t)left : (size_t)S3_MIB, n;
		char *memory;

		n = s3_cursor_piece(&cursor, most, &memory);
		for (size_t at = 0, z; at < n && !memory && error == 0; at += z) {
			z = n - at < sizeof(zeros) ? n - at : sizeof(zeros);
			error = kvt__s3_sha256_add(signer, zeros, z);
		}
		if (memory)
			error = kvt__s3_sha256_add(signer, memory, n);
		left -= n;
		hashed += n;
		if (error == 0 && hashed >= S3_MIB && host->now_ns() >= t->deadline_ns)
			error = KVT_ETIMEDOUT;
	}
	if (error == 0)
		error = kvt__s3_sha256_end(signer, t->sha256);
	t->is_hashed = error == 0;
	return error;
}
