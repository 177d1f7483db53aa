/* SPDX-License-Identifier: Apache-2.0 */
/* The test's side of the fake driver. */
#include "internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define AWAIT_S 60

static void lock(void)
{
	pthread_mutex_lock(&fake.lock);
}

static void unlock(void)
{
	pthread_cond_broadcast(&fake.changed);
	pthread_mutex_unlock(&fake.lock);
}

static int environment_number(const char *name, int fallback)
{
	const char *text = getenv(name);

	return text != NULL && *text != '\0' ? (int)strtol(text, NULL, 10) : fallback;
}

static void set_without(const char *names)
{
	lock();
	snprintf(fake.without, sizeof(fake.without), "%s", names != NULL ? names : "");
	unlock();
}

static void reset(void)
{
	set_without(getenv("FAKE_CUDA_WITHOUT"));
	lock();
	fake.version = environment_number("FAKE_CUDA_VERSION", 13000);
	fake.devices = environment_number("FAKE_CUDA_DEVICES", 2);
	if (fake.devices > FAKE_MAX_DEVICES)
		fake.devices = FAKE_MAX_DEVICES;
	fake.pinned_limit = fake.pinned_call_limit = 0;
	fake.held = fake.steps = fake.delay_us = 0;
	fake.fault_nth = fake.fault_times = fake.fault_seen = fake.fault_done = 0;
	fake.last_fault[0] = '\0';
	fake.copy_fault_nth = 0;
	for (int i = 0; i < FAKE_MAX_DEVICES; i++)
		fake.contexts[i].sticky = CUDA_SUCCESS;
	fake.counts.calls = fake.counts.batch_calls = fake.counts.single_copy_calls = 0;
	fake.counts.fragments = 0;
	fake.counts.host_functions = fake.counts.stream_waits = fake.counts.attribute_calls = 0;
	fake.counts.faults = fake.counts.blocking_streams = 0;
	fake.violation[0] = '\0';
	unlock();
}

static void set_version(int version)
{
	lock();
	fake.version = version;
	unlock();
}

static void set_devices(int count)
{
	lock();
	fake.devices = count < FAKE_MAX_DEVICES ? count : FAKE_MAX_DEVICES;
	unlock();
}

static void limit_pinned(uint64_t total_bytes, uint64_t call_bytes)
{
	lock();
	fake.pinned_limit = total_bytes;
	fake.pinned_call_limit = call_bytes;
	unlock();
}

/* ---- Holds ---- */

static void hold(unsigned directions)
{
	lock();
	fake.held = directions;
	fake.steps = 0;
	unlock();
}

static void step(unsigned count)
{
	lock();
	fake.steps += count;
	unlock();
}

static void release(void)
{
	hold(0);
}

static struct timespec await_limit(void)
{
	struct timespec limit;

	clock_gettime(CLOCK_MONOTONIC, &limit);
	limit.tv_sec += AWAIT_S;
	return limit;
}

static bool await_held(unsigned count)
{
	struct timespec limit = await_limit();
	bool reached;

	lock();
	while (fake.waiting_held < count)
		if (pthread_cond_timedwait(&fake.changed, &fake.lock, &limit) == ETIMEDOUT)
			break;
	reached = fake.waiting_held >= count;
	unlock();
	return reached;
}

static void delay(unsigned microseconds)
{
	lock();
	fake.delay_us = microseconds;
	unlock();
}

/* ---- Failures ---- */

static void fail_call(const char *name, unsigned nth, unsigned times, CUresult result)
{
	lock();
	snprintf(fake.fault_name, sizeof(fake.fault_name), "%s", name != NULL ? name : "");
	fake.fault_nth = nth;
	fake.fault_times = times;
	fake.fault_result = result;
	fake.fault_seen = 0;
	if (nth != 0)
		fake.fault_done = 0;
	unlock();
}

static void fail_copy(unsigned nth, CUresult result)
{
	lock();
	fake.copy_fault_nth = nth;
	fake.copy_fault_result = result;
	unlock();
}

static void lose_context(int ordinal, CUresult result)
{
	lock();
	fake__lose_locked(&fake.contexts[ordinal], result);
	unlock();
}

static unsigned faults(void)
{
	lock();
	unsigned done = fake.fault_done;
	unlock();
	return done;
}

static const char *last_fault(void)
{
	return fake.last_fault;
}

/* ---- What is seen ---- */

static void *view(CUdeviceptr ptr)
{
	lock();
	uint8_t *at = fake__resolve_locked(ptr, 1);
	unlock();
	return at;
}

static void set_capturing(CUstream stream, bool capturing)
{
	lock();
	stream->capturing = capturing;
	unlock();
}

static CUdeviceptr map_pieces(size_t piece_bytes, unsigned count, bool joined)
{
	lock();
	CUdeviceptr ptr = fake__map_pieces_locked(piece_bytes, count, joined);
	unlock();
	return ptr;
}

static bool op_touches(const struct fake_op *op, uint64_t ptr, size_t bytes)
{
	for (size_t i = 0; i < op->count; i++) {
		const struct fake_copy *c = &op->copies[i];

		if ((c->to < ptr + bytes && ptr < c->to + c->bytes) ||
		    (c->from < ptr + bytes && ptr < c->from + c->bytes))
			return true;
	}
	return false;
}

bool fake__touches_locked(uint64_t ptr, size_t bytes)
{
	for (struct CUstream_st *s = fake.streams; s != NULL; s = s->next)
		for (struct fake_op *op = s->head; op != NULL; op = op->next)
			if (s->context->sticky == CUDA_SUCCESS && op_touches(op, ptr, bytes))
				return true;
	return false;
}

static bool touches(CUdeviceptr ptr, size_t bytes)
{
	lock();
	bool found = fake__touches_locked(ptr, bytes);
	unlock();
	return found;
}

unsigned fake__pending_locked(void)
{
	unsigned count = 0;

	for (struct CUstream_st *s = fake.streams; s != NULL; s = s->next)
		for (struct fake_op *op = s->head; op != NULL; op = op->next)
			count++;
	return count;
}

static unsigned stack_depth(void)
{
	return fake__thread()->depth;
}

static bool is_lost(int ordinal)
{
	lock();
	bool lost = fake.contexts[ordinal].sticky != CUDA_SUCCESS;
	unlock();
	return lost;
}

static const char *violation(void)
{
	lock();
	const char *text = fake.violation[0] != '\0' ? fake.violation : NULL;
	unlock();
	return text;
}

static struct fake_cuda_counts counts(void)
{
	lock();
	struct fake_cuda_counts c = fake.counts;
	c.retained = 0;
	for (int i = 0; i < FAKE_MAX_DEVICES; i++)
		c.retained += fake.contexts[i].refs;
	c.pending = fake__pending_locked();
	unlock();
	return c;
}

static bool idle(void)
{
	struct timespec limit = await_limit();
	bool reached;

	lock();
	while (fake__pending_locked() != 0)
		if (pthread_cond_timedwait(&fake.changed, &fake.lock, &limit) == ETIMEDOUT)
			break;
	reached = fake__pending_locked() == 0;
	unlock();
	return reached;
}

static const struct fake_cuda control = {
	.reset = reset,
	.set_version = set_version,
	.set_devices = set_devices,
	.set_without = set_without,
	.limit_pinned = limit_pinned,
	.hold = hold,
	.step = step,
	.release = release,
	.await_held = await_held,
	.delay = delay,
	.fail_call = fail_call,
	.fail_copy = fail_copy,
	.lose_context = lose_context,
	.faults = faults,
	.last_fault = last_fault,
	.set_capturing = set_capturing,
	.map_pieces = map_pieces,
	.view = view,
	.touches = touches,
	.stack_depth = stack_depth,
	.is_lost = is_lost,
	.violation = violation,
	.counts = counts,
	.idle = idle,
};

FAKE_EXPORT const struct fake_cuda *fake_cuda_control(void)
{
	return &control;
}
