/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects in parts where libs3 has no multipart uploads (2.0): the parts are gathered in memory and
 * sent by one PUT when they are committed. So an object takes as much memory as it has bytes from
 * its beginning to its end, which max_object_bytes bounds.
 */
#include "module.h"

#ifndef KVT_LIBS3_HAVE_MULTIPART

struct gathered {
	uint64_t bytes;
	uint8_t data[];
};

void kvt__libs3_parts_limits(const struct libs3_backend *backend, struct kvt_backend_limits *limits)
{
	limits->max_part_bytes = limits->max_object_bytes = backend->config.max_object_bytes;
}

int kvt__libs3_begin(struct libs3_session *session, struct kvt_io *io)
{
	const struct kvt_host *host = session->host;
	struct gathered *g;

	io->handle = NULL;
	if (!kvt__libs3_key(session, io))
		return KVT_EINVAL;
	if (io->object_bytes > session->backend->config.max_object_bytes) {
		kvt__libs3_say(session, io, "begin", "the object is larger than max_object_bytes");
		return KVT_EINVAL;
	}
	g = host->alloc(host, sizeof(*g) + (size_t)io->object_bytes, 64);
	if (!g) {
		kvt__libs3_say(session, io, "begin", "no memory to gather the object in");
		return KVT_ENOMEM;
	}
	g->bytes = io->object_bytes;
	io->handle = g;
	return 0;
}

int kvt__libs3_part(struct libs3_session *session, struct kvt_io *io)
{
	struct gathered *g = io->handle;
	uint64_t at = (uint64_t)io->offset;
	struct libs3_source source;

	if (!kvt__libs3_key(session, io))
		return KVT_EINVAL;
	if (at > g->bytes || io->length > g->bytes - at) {
		kvt__libs3_say(session, io, "part", "it reaches beyond the object");
		return KVT_EINVAL;
	}
	kvt__libs3_source_init(&source, io, io->iov, io->iov_count, io->length);
	(void)kvt__libs3_source_read(&source, g->data + at, io->length);
	return 0;
}

int kvt__libs3_commit(struct libs3_session *session, struct kvt_io *io)
{
	struct gathered *g = io->handle;
	struct libs3_source source;
	int error = KVT_EINVAL;

	if (kvt__libs3_is_late(session, io, "commit")) {
		error = KVT_ETIMEDOUT;
	} else if (kvt__libs3_key(session, io)) {
		const struct kvt_iovec iov = {g->data, g->bytes};
		unsigned tried = 0;

		do {
			kvt__libs3_source_init(&source, NULL, &iov, 1, g->bytes);
			error = kvt__libs3_store(session, io, &source);
		} while (error && kvt__libs3_again(session, io, error, tried++));
	}
	session->host->free(session->host, g);
	return error;
}

int kvt__libs3_abort(struct libs3_session *session, struct kvt_io *io)
{
	session->host->free(session->host, io->handle);
	return 0;
}

#endif
