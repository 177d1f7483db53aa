/* SPDX-License-Identifier: Apache-2.0 */
/* Blocking calls of a store: each has a session of its own on the calling thread and one request in
 * flight on it. */
#include <stdio.h>
#include <string.h>

#include "store.h"

static const char *const op_names[] = {
	[KVT_IO_PUT] = "put",	    [KVT_IO_BEGIN] = "begin",	[KVT_IO_PART] = "part",
	[KVT_IO_COMMIT] = "commit", [KVT_IO_ABORT] = "abort",	[KVT_IO_GET] = "get",
	[KVT_IO_HEAD] = "head",	    [KVT_IO_REMOVE] = "remove", [KVT_IO_LIST] = "list",
	[KVT_IO_TOUCH] = "touch",   [KVT_IO_SWEEP] = "sweep",
};

static void finished(struct kvt_io *io)
{
	*(bool *)io->owner = true;
}

int kvt__sync_open(struct kvt__sync *sync, struct kvt_store *store, bool listing)
{
	int error;

	memset(sync, 0, sizeof(*sync));
	sync->store = store;
	if (store->ops.io_private_bytes > 0) {
		sync->private_data = kvt__alloc(&store->env, store->ops.io_private_bytes);
		if (sync->private_data == NULL)
			return kvt__fail(KVT_ENOMEM, "session: out of memory");
	}
	error = store->ops.session_open(store->backend, 1, listing, &sync->session);
	if (error != 0) {
		kvt__free(&store->env, sync->private_data);
		sync->private_data = NULL;
		sync->store = NULL;
	}
	return error;
}

void kvt__sync_close(struct kvt__sync *sync)
{
	if (sync->store == NULL)
		return;
	sync->store->ops.session_close(sync->session);
	kvt__free(&sync->store->env, sync->private_data);
	memset(sync, 0, sizeof(*sync));
}

static int run(struct kvt__sync *sync, struct kvt_io *io)
{
	const struct kvt_backend_ops *ops = &sync->store->ops;
	bool done = false;
	int answer;

	io->complete = finished;
	io->owner = &done;
	answer = ops->submit(sync->session, io);
	if (answer < 0)
		return answer;
	if (answer == KVT_DONE)
		return io->result;
	if (answer != KVT_QUEUED || ops->poll == NULL) {
		(void)snprintf(sync->detail, sizeof(sync->detail),
			       "%s: backend %s answered %d with nothing in flight",
			       op_names[io->op], ops->name, answer);
		return KVT_EINTERNAL;
	}
	while (!done) {
		if (ops->poll(sync->session, INT64_MAX) < 0) {
			(void)snprintf(sync->detail, sizeof(sync->detail),
				       "%s: the session is broken", op_names[io->op]);
			return KVT_EINTERNAL;
		}
	}
	return io->result;
}

int kvt__sync_io(struct kvt__sync *sync, struct kvt_io *io, int64_t timeout_ns)
{
	int result;

	sync->detail[0] = '\0';
	io->deadline_ns = kvt__now_ns() + timeout_ns;
	io->private_data = sync->private_data;
	io->detail_buffer = sync->detail;
	io->detail_bytes = sizeof(sync->detail);
	io->result = 0;
	io->info.object_bytes = KVT_BYTES_UNKNOWN;
	io->info.version.bytes = 0;
	io->info.age_ns = -1;
	io->info.access_age_ns = -1;
	result = run(sync, io);
	if (result > 0)
		result = KVT_EINTERNAL;
	io->result = result;
	if (result == 0)
		return 0;
	if (sync->detail[0] != '\0')
		return kvt__fail(result, "%s", sync->detail);
	return kvt__fail(result, "%s %s: %s", op_names[io->op], io->name != NULL ? io->name : "",
			 kvt_error_text(result));
}
