/* SPDX-License-Identifier: Apache-2.0 */
/* Marks of a device's streams, and the public completion that is made of one. Any thread. */
#include "stream.h"

#include <stdlib.h>
#include <time.h>

struct kvt_stream_completion {
	struct kvt_device *device;
	void *event;
	struct kvt_allocator allocator; /* in a forked child the device may be gone */
	uint32_t fork_generation;
};

#define FIRST_PAUSE_NS	 INT64_C(20000)
#define LONGEST_PAUSE_NS INT64_C(1000000)

int kvt__mark_create(const struct kvt__env *env, struct kvt_device *device, void *stream,
		     struct kvt__mark **markp)
{
	struct kvt__mark *mark = kvt__zalloc(env, sizeof(*mark));
	int error;

	*markp = NULL;
	if (mark == NULL)
		return kvt__fail(KVT_ENOMEM, "ready.handle: out of memory for a mark of a stream");
	error = device->ops.mark(device->device, stream, &mark->event);
	if (error != 0) {
		kvt__free(env, mark);
		return error;
	}
	*markp = mark;
	return 0;
}

void kvt__mark_destroy(const struct kvt__env *env, struct kvt_device *device,
		       struct kvt__mark *mark)
{
	if (mark == NULL)
		return;
	device->ops.mark_release(device->device, mark->event);
	kvt__free(env, mark);
}

int kvt_stream_completion_create(struct kvt_device *device, void *stream,
				 struct kvt_stream_completion **completionp)
{
	static const char call[] = "kvt_stream_completion_create";
	struct kvt_stream_completion *c;
	int error;

	if (completionp == NULL)
		return kvt__fail(KVT_EINVAL, "%s: completionp: NULL", call);
	*completionp = NULL;
	if (device == NULL)
		return kvt__fail(KVT_EINVAL, "%s: device: NULL, expected one with streams", call);
	if (device->fork_generation != kvt__fork_generation)
		return kvt__fail(KVT_EFORK,
				 "%s: the device was opened before fork(), in the parent", call);
	if (device->ops.mark == NULL)
		return kvt__fail(KVT_EINVAL, "%s: device \"%s\" has no streams", call,
				 device->ops.name);
	c = kvt__zalloc(&device->env, sizeof(*c));
	if (c == NULL)
		return kvt__fail(KVT_ENOMEM, "%s: out of memory", call);
	c->allocator = device->env.hooks.allocator;
	c->device = device;
	c->fork_generation = kvt__fork_generation;
	error = device->ops.mark(device->device, stream, &c->event);
	if (error != 0) {
		kvt__free(&device->env, c);
		return error;
	}
	atomic_fetch_add(&device->users, 1);
	*completionp = c;
	return 0;
}

/* As kvt_stream_completion_done; `call` is named in the message. */
static int query(const struct kvt_stream_completion *c, const char *call)
{
	if (c == NULL)
		return kvt__fail(KVT_EINVAL, "%s: completion: NULL", call);
	if (c->fork_generation != kvt__fork_generation)
		return kvt__fail(KVT_EFORK, "%s: the completion is the parent's", call);
	return c->device->ops.mark_query(c->device->device, c->event);
}

int kvt_stream_completion_done(const struct kvt_stream_completion *c)
{
	return query(c, "kvt_stream_completion_done");
}

int kvt_stream_completion_wait(const struct kvt_stream_completion *c, int64_t timeout_ms)
{
	static const char call[] = "kvt_stream_completion_wait";
	int64_t now = kvt__now_ns(), until = INT64_MAX, pause = FIRST_PAUSE_NS;
	int done;

	if (timeout_ms >= 0 && timeout_ms < (INT64_MAX - now) / 1000000)
		until = now + timeout_ms * 1000000;
	/* Devices tell that an event has happened only when asked: seldom enough to cost nothing,
	 * often enough not to be late by more than a small part of what was waited for. */
	while ((done = query(c, call)) == 0 && (now = kvt__now_ns()) < until) {
		int64_t left = pause < until - now ? pause : until - now;
		struct timespec t = {.tv_sec = 0, .tv_nsec = (long)left};

		(void)clock_nanosleep(CLOCK_MONOTONIC, 0, &t, NULL);
		pause = pause * 2 < LONGEST_PAUSE_NS ? pause * 2 : LONGEST_PAUSE_NS;
	}
	if (done == 0)
		return kvt__fail(KVT_ETIMEDOUT, "%s: not done within %lld ms", call,
				 (long long)timeout_ms);
	return done < 0 ? done : 0;
}

void *kvt_stream_completion_event(const struct kvt_stream_completion *c)
{
	return c != NULL ? c->event : NULL;
}

void kvt_stream_completion_release(struct kvt_stream_completion *c)
{
	struct kvt_device *device;
	struct kvt_allocator allocator;

	if (c == NULL)
		return;
	device = c->device;
	allocator = c->allocator;
	if (c->fork_generation == kvt__fork_generation) {
		device->ops.mark_release(device->device, c->event);
		atomic_fetch_sub(&device->users, 1);
	}
	if (allocator.free != NULL)
		allocator.free(allocator.context, c);
	else
		free(c);
}
