/* SPDX-License-Identifier: Apache-2.0 */
/* Blocking calls of a store: each has a session of its own on the calling thread and one request in
 * flight on it. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "retry.h"
#include "store.h"

static const char *const op_names[] = {
	[KVT_IO_PUT] = "put",	    [KVT_IO_BEGIN] = "begin",	[KVT_IO_PART] = "part",
	[KVT_IO_COMMIT] = "commit", [KVT_IO_ABORT] = "abort",	[KVT_IO_GET] = "get",
	[KVT_IO_HEAD] = "head",	    [KVT_IO_REMOVE] = "remove", [KVT_IO_LIST] = "list",
	[KVT_IO_TOUCH] = "touch",   [KVT_IO_SWEEP] = "sweep",
};

#define TRIES	       4
#define FIRST_PAUSE_MS 50

static void finished(struct kvt_io *io)
{
	*(bool *)io->owner = true;
}

int kvt__sync_open(struct kvt__sync *sync, struct kvt_store *store, bool listing)
{
	int error;

	memset(sync, 0, sizeof(*sync)); /* without a store there is nothing to close */
	if (store->ops.io_private_bytes > 0) {
		sync->private_data = kvt__alloc(&store->env, store->ops.io_private_bytes);
		if (sync->private_data == NULL)
			return kvt__fail(KVT_ENOMEM, "session: out of memory");
	}
	error = store->ops.session_open(store->backend, 1, listing, &sync->session);
	if (error == 0) {
		sync->store = store;
	} else {
		kvt__free(&store->env, sync->private_data);
		sync->private_data = NULL;
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
	io->retry_after_ns = 0;
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

/* A request that has had its time is not given it again. */
bool kvt__sync_is_worth_another(int result)
{
	enum kvt_error_class c = kvt_error_class(result);

	return (c == KVT_CLASS_TRANSIENT || c == KVT_CLASS_THROTTLED) && result != KVT_ETIMEDOUT;
}

void kvt__sync_pause(const struct kvt_io *io, unsigned tries)
{
	int64_t ns = INT64_C(1000000) * (FIRST_PAUSE_MS << tries), after_ns = io->retry_after_ns;

	if (after_ns > KVT__RETRY_AFTER_MAX_NS)
		after_ns = KVT__RETRY_AFTER_MAX_NS;
	if (ns < after_ns)
		ns = after_ns;
	struct timespec left = {(time_t)(ns / 1000000000), (long)(ns % 1000000000)};

	while (nanosleep(&left, &left) != 0 && errno == EINTR)
		;
}

int kvt__sync_retry(struct kvt__sync *sync, struct kvt_io *io, int64_t timeout_ns)
{
	int result = kvt__sync_io(sync, io, timeout_ns);

	for (unsigned i = 1; i < TRIES && kvt__sync_is_worth_another(result); i++) {
		kvt__sync_pause(io, i);
		result = kvt__sync_io(sync, io, timeout_ns);
		if (io->op == KVT_IO_REMOVE && result == KVT_ENOENT)
			result = 0; /* the failed try had done it */
	}
	return result;
}

int kvt__sync_remove(struct kvt__sync *sync, const char *name, const struct kvt_version *version)
{
	struct kvt_io io = {.op = KVT_IO_REMOVE, .name = name};
	bool known = version != NULL && version->bytes > 0;

	if (known && (sync->store->limits.capabilities & KVT_CAP_IF_VERSION_REMOVE)) {
		io.flags = KVT_IO_IF_VERSION;
		io.if_version = version;
	} else if (known) {
		struct kvt_io head = {.op = KVT_IO_HEAD, .name = name};
		int error = kvt__sync_retry(sync, &head, kvt__sync_timeout_ns(0));

		if (error != 0)
			return error;
		if (!kvt__version_equal(&head.info.version, version))
			return kvt__fail(KVT_EPRECOND, "remove %s: it is another version by now",
					 name);
	}
	return kvt__sync_retry(sync, &io, kvt__sync_timeout_ns(0));
}

bool kvt__version_equal(const struct kvt_version *a, const struct kvt_version *b)
{
	return a->bytes == b->bytes && a->bytes <= sizeof(a->value) &&
	       memcmp(a->value, b->value, a->bytes) == 0;
}
