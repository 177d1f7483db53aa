/* SPDX-License-Identifier: Apache-2.0 */
/* Removing an object: S3 does not say whether there was one, nor do all servers compare its
 * version, so a HEAD comes first. Losing the race behind it costs a miss. */
#include "s3.h"

#include <string.h>

static enum s3_progress s3_remove_step(struct s3_transfer *t, int error)
{
	kvt__s3_cache_forget(t->session->backend->cache, t->io->name);
	t->result = error;
	return S3_FINISHED;
}

static enum s3_progress s3_remove_asked(struct s3_transfer *t, int error)
{
	struct kvt_io *io = t->io;

	t->result = error;
	if (error)
		return S3_FINISHED;
	if ((io->flags & KVT_IO_IF_VERSION) && !kvt__s3_is_wanted_version(io)) {
		kvt__s3_tell(t, "the object is another version");
		t->result = KVT_EPRECOND;
		return S3_FINISHED;
	}
	t->x = (struct s3_exchange){
		.method = S3_DELETE, .verb = "remove", .name = io->name, .step = s3_remove_step};
	kvt__s3_cache_forget(t->session->backend->cache, io->name);
	return kvt__s3_exchange(t);
}

enum s3_progress kvt__s3_remove(struct s3_transfer *t)
{
	return kvt__s3_ask(t, s3_remove_asked);
}
