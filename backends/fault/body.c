/* SPDX-License-Identifier: Apache-2.0 */
/* Bodies that are cut short, or have one byte changed. The caller's memory is never written but by
 * a get. */
#include "body.h"

#include <string.h>

#define FAULT_FLIPPED 0x40

int kvt__fault_body_cut(struct kvt__fault_io *f, const struct kvt_host *host)
{
	const struct kvt_io *outer = f->outer;
	uint64_t keep = outer->length / 2;
	uint32_t count = 0;

	f->inner.length = keep;
	f->inner.iov_count = 0;
	f->inner.flags &= ~(uint32_t)KVT_IO_LATE_TAIL;
	if (!keep)
		return 0;
	f->iov = host->alloc(host, outer->iov_count * sizeof(*f->iov), 16);
	if (!f->iov)
		return KVT_ENOMEM;
	while (keep) {
		f->iov[count] = outer->iov[count];
		if (f->iov[count].iov_len > keep)
			f->iov[count].iov_len = keep;
		keep -= f->iov[count++].iov_len;
	}
	f->inner.iov = f->iov;
	f->inner.iov_count = count;
	return 0;
}

/* The entry in the middle, or the next one that can be changed: not the late tail, and not, for a
 * get, memory that is not there. -1: none. */
static int64_t fault_choose(const struct kvt_io *io)
{
	uint32_t count = io->iov_count - (io->iov_count && io->flags & KVT_IO_LATE_TAIL);

	for (uint32_t i = 0; i < count; i++) {
		uint32_t entry = (count / 2 + i) % count;

		if (io->iov[entry].iov_len && (io->op != KVT_IO_GET || io->iov[entry].iov_base))
			return entry;
	}
	return -1;
}

int kvt__fault_body_flip(struct kvt__fault_io *f, const struct kvt_host *host)
{
	const struct kvt_io *outer = f->outer;
	int64_t chosen = fault_choose(outer);
	const struct kvt_iovec *entry;

	if (chosen < 0)
		return 0;
	entry = &outer->iov[chosen];
	if (outer->op == KVT_IO_GET) {
		f->flip_at = (uint8_t *)entry->iov_base + entry->iov_len / 2;
		f->flip_offset = entry->iov_len / 2;
		for (int64_t i = 0; i < chosen; i++)
			f->flip_offset += outer->iov[i].iov_len;
		f->flipped = 0;
		return 0;
	}
	f->iov = host->alloc(host, outer->iov_count * sizeof(*f->iov), 16);
	f->bytes = host->alloc(host, entry->iov_len, 4096);
	if (!f->iov || !f->bytes)
		return KVT_ENOMEM;
	memcpy(f->iov, outer->iov, outer->iov_count * sizeof(*f->iov));
	if (entry->iov_base)
		memcpy(f->bytes, entry->iov_base, entry->iov_len);
	else
		memset(f->bytes, 0, entry->iov_len);
	f->bytes[entry->iov_len / 2] ^= FAULT_FLIPPED;
	f->iov[chosen].iov_base = f->bytes;
	f->inner.iov = f->iov;
	return 0;
}

void kvt__fault_body_landed(struct kvt__fault_io *f, uint64_t bytes)
{
	if (!f->flip_at)
		return;
	if (!bytes)
		f->flipped = 0;
	if (f->flipped || bytes <= f->flip_offset)
		return;
	*f->flip_at ^= FAULT_FLIPPED;
	f->flipped = 1;
}

void kvt__fault_body_free(struct kvt__fault_io *f, const struct kvt_host *host)
{
	host->free(host, f->iov);
	host->free(host, f->bytes);
	f->iov = NULL;
	f->bytes = NULL;
	f->flip_at = NULL;
}
