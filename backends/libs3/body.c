/* SPDX-License-Identifier: Apache-2.0 */
/* Iovecs read and filled piece by piece, in the order in which libs3 asks for bytes and brings
 * them. */
#include "module.h"

#include <string.h>

/* The core checksums a piece just before or after it is copied: so it is still in the cache. */
#define PIECE_BYTES (UINT64_C(256) << 10)

void kvt__libs3_source_init(struct libs3_source *source, struct kvt_io *io,
			    const struct kvt_iovec *iov, uint32_t count, uint64_t length)
{
	*source = (struct libs3_source){.io = io, .iov = iov, .count = count, .length = length};
	source->is_late = io && (io->flags & KVT_IO_LATE_TAIL) && count > 0;
	source->early = length - (source->is_late ? iov[count - 1].iov_len : 0);
}

static void source_tell(struct libs3_source *source, uint64_t bytes)
{
	source->told = bytes;
	if (source->io && source->io->progress)
		source->io->progress(source->io, bytes);
}

void kvt__libs3_source_rewind(struct libs3_source *source)
{
	source->at = 0;
	source->offset = source->done = 0;
	source_tell(source, 0);
}

uint64_t kvt__libs3_source_read(struct libs3_source *source, uint8_t *to, uint64_t bytes)
{
	uint64_t copied = 0;

	/* A tail with nothing before it still waits to be filled. */
	if (source->is_late && !source->early && !source->done)
		source_tell(source, 0);
	while (copied < bytes && source->at < source->count) {
		const struct kvt_iovec *entry = &source->iov[source->at];
		uint64_t n = entry->iov_len - source->offset;

		if (!n) {
			source->at++;
			source->offset = 0;
			continue;
		}
		if (source->done == source->told && source->told < source->early) {
			uint64_t more = source->early - source->told;

			source_tell(source,
				    source->told + (more < PIECE_BYTES ? more : PIECE_BYTES));
		}
		if (source->done < source->told && n > source->told - source->done)
			n = source->told - source->done;
		if (n > bytes - copied)
			n = bytes - copied;
		if (entry->iov_base)
			memcpy(to + copied, (const uint8_t *)entry->iov_base + source->offset, n);
		else
			memset(to + copied, 0, n);
		copied += n;
		source->done += n;
		source->offset += n;
	}
	return copied;
}

void kvt__libs3_sink_init(struct libs3_sink *sink, struct kvt_io *io)
{
	*sink = (struct libs3_sink){.io = io};
	io->bytes_landed = 0;
}

void kvt__libs3_sink_rewind(struct libs3_sink *sink)
{
	bool told = sink->told > 0;

	kvt__libs3_sink_init(sink, sink->io);
	if (told && sink->io->progress)
		sink->io->progress(sink->io, 0);
}

bool kvt__libs3_sink_write(struct libs3_sink *sink, const uint8_t *from, uint64_t bytes)
{
	struct kvt_io *io = sink->io;

	if (bytes > io->length - io->bytes_landed)
		return false;
	while (bytes > 0) {
		const struct kvt_iovec *entry = &io->iov[sink->at];
		uint64_t n = entry->iov_len - sink->offset;

		if (!n) {
			sink->at++;
			sink->offset = 0;
			continue;
		}
		if (n > bytes)
			n = bytes;
		if (n > sink->told + PIECE_BYTES - io->bytes_landed)
			n = sink->told + PIECE_BYTES - io->bytes_landed;
		if (entry->iov_base)
			memcpy((uint8_t *)entry->iov_base + sink->offset, from, n);
		from += n;
		bytes -= n;
		sink->offset += n;
		io->bytes_landed += n;
		if (io->bytes_landed == sink->told + PIECE_BYTES ||
		    io->bytes_landed == io->length) {
			sink->told = io->bytes_landed;
			if (io->progress)
				io->progress(io, sink->told);
		}
	}
	return true;
}
