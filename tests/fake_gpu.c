/* SPDX-License-Identifier: Apache-2.0 */
/* The test's side of the fake device: memory, holds, faults, events. */
#include "fake_device_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static pthread_mutex_t gpus_lock = PTHREAD_MUTEX_INITIALIZER;
static struct fake_gpu *gpus[MAX_GPUS];

struct fake_gpu *fake__gpu_find(uint32_t ordinal)
{
	pthread_mutex_lock(&gpus_lock);
	struct fake_gpu *gpu = ordinal < MAX_GPUS ? gpus[ordinal] : NULL;
	pthread_mutex_unlock(&gpus_lock);
	return gpu;
}

struct fake_gpu *fake_gpu_create(size_t memory_bytes, bool stream_order)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct fake_gpu *gpu = calloc(1, sizeof(*gpu));
	pthread_condattr_t attributes;

	pthread_once(&once, fake__gpu_register);
	if (!gpu || !(gpu->memory = malloc(memory_bytes)))
		abort();
	gpu->memory_bytes = memory_bytes;
	gpu->stream_order = stream_order;
	pthread_mutex_init(&gpu->lock, NULL);
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&gpu->changed, &attributes);
	pthread_condattr_destroy(&attributes);
	pthread_mutex_lock(&gpus_lock);
	while (gpu->ordinal < MAX_GPUS && gpus[gpu->ordinal])
		gpu->ordinal++;
	if (gpu->ordinal == MAX_GPUS)
		abort();
	gpus[gpu->ordinal] = gpu;
	pthread_mutex_unlock(&gpus_lock);
	if (pthread_create(&gpu->thread, NULL, fake__gpu_hardware, gpu) != 0)
		abort();
	return gpu;
}

void fake_gpu_destroy(struct fake_gpu *gpu)
{
	pthread_mutex_lock(&gpu->lock);
	gpu->stopping = true;
	pthread_cond_broadcast(&gpu->changed);
	pthread_mutex_unlock(&gpu->lock);
	pthread_join(gpu->thread, NULL);
	if (gpu->openings || gpu->lanes || gpu->outstanding) {
		fprintf(stderr, "fake device: destroyed while in use\n");
		abort();
	}
	pthread_mutex_lock(&gpus_lock);
	gpus[gpu->ordinal] = NULL;
	pthread_mutex_unlock(&gpus_lock);
	pthread_cond_destroy(&gpu->changed);
	pthread_mutex_destroy(&gpu->lock);
	free(gpu->memory);
	free(gpu);
}

int fake_gpu_open(struct fake_gpu *gpu, const struct kvt_hooks *hooks, struct kvt_device **devicep)
{
	struct kvt_device_options options = KVT_INIT(options);

	options.name = gpu->stream_order ? "fake" : "fakeorder";
	options.ordinal = gpu->ordinal;
	if (hooks)
		options.hooks = *hooks;
	return kvt_device_open(&options, devicep);
}

uint8_t *fake_gpu_memory(struct fake_gpu *gpu)
{
	return gpu->memory;
}

uint64_t fake_gpu_ptr(struct fake_gpu *gpu, size_t offset)
{
	(void)gpu;
	return DEVICE_BASE + offset;
}

void fake_gpu_add_host_memory(struct fake_gpu *gpu, void *memory, size_t bytes)
{
	pthread_mutex_lock(&gpu->lock);
	for (int i = 0; i < HOST_RANGES; i++)
		if (!gpu->host_ranges[i].at) {
			gpu->host_ranges[i] = (struct range){memory, bytes};
			break;
		}
	pthread_mutex_unlock(&gpu->lock);
}

static void set_held(struct fake_gpu *gpu, bool held, unsigned steps)
{
	pthread_mutex_lock(&gpu->lock);
	gpu->held = held;
	gpu->steps = held ? gpu->steps + steps : 0;
	pthread_cond_broadcast(&gpu->changed);
	pthread_mutex_unlock(&gpu->lock);
}

void fake_gpu_hold(struct fake_gpu *gpu)
{
	set_held(gpu, true, 0);
}

void fake_gpu_step(struct fake_gpu *gpu, unsigned count)
{
	set_held(gpu, true, count);
}

void fake_gpu_release(struct fake_gpu *gpu)
{
	set_held(gpu, false, 0);
}

static unsigned queued_locked(const struct fake_gpu *gpu)
{
	unsigned count = 0;

	for (const struct fake_lane *lane = gpu->lanes; lane; lane = lane->next)
		for (const struct fake_op *op = lane->stream; op; op = op->next)
			count += op->io != NULL;
	return count;
}

bool fake_gpu_await_queued(struct fake_gpu *gpu, unsigned count)
{
	struct timespec limit;

	clock_gettime(CLOCK_MONOTONIC, &limit);
	limit.tv_sec += 90;
	pthread_mutex_lock(&gpu->lock);
	while (queued_locked(gpu) < count)
		if (pthread_cond_timedwait(&gpu->changed, &gpu->lock, &limit) == ETIMEDOUT)
			break;
	bool reached = queued_locked(gpu) >= count;
	pthread_mutex_unlock(&gpu->lock);
	return reached;
}

void fake_gpu_fail(struct fake_gpu *gpu, enum fake_gpu_fault fault, unsigned nth, unsigned times,
		   int error)
{
	pthread_mutex_lock(&gpu->lock);
	gpu->faults[fault] = (struct fault){nth, times, 0, error};
	gpu->faults_done = 0;
	pthread_mutex_unlock(&gpu->lock);
}

static unsigned read_counter(struct fake_gpu *gpu, const unsigned *counter)
{
	pthread_mutex_lock(&gpu->lock);
	unsigned value = *counter;
	pthread_mutex_unlock(&gpu->lock);
	return value;
}

unsigned fake_gpu_faults(struct fake_gpu *gpu)
{
	return read_counter(gpu, &gpu->faults_done);
}

unsigned fake_gpu_copies(struct fake_gpu *gpu)
{
	return read_counter(gpu, &gpu->copies);
}

unsigned fake_gpu_orders(struct fake_gpu *gpu)
{
	return read_counter(gpu, &gpu->orders);
}

unsigned fake_gpu_cancels(struct fake_gpu *gpu)
{
	return read_counter(gpu, &gpu->cancels);
}

unsigned fake_gpu_outstanding(struct fake_gpu *gpu)
{
	return read_counter(gpu, &gpu->outstanding);
}

unsigned fake_gpu_lanes(struct fake_gpu *gpu)
{
	return read_counter(gpu, &gpu->lane_count);
}

static bool op_touches(const struct fake_op *op, uint64_t from, uint64_t to)
{
	for (; op; op = op->next)
		for (uint32_t i = 0; op->io && !op->event && i < op->io->copy_count; i++) {
			const struct kvt_device_copy *copy = &op->io->copies[i];
			if (copy->device_ptr < to && copy->device_ptr + copy->bytes > from)
				return true;
		}
	return false;
}

bool fake_gpu_touches(struct fake_gpu *gpu, size_t offset, size_t bytes)
{
	uint64_t from = DEVICE_BASE + offset, to = from + bytes;
	bool touches = false;

	pthread_mutex_lock(&gpu->lock);
	for (struct fake_lane *lane = gpu->lanes; lane; lane = lane->next)
		touches = touches || op_touches(lane->stream, from, to);
	pthread_mutex_unlock(&gpu->lock);
	return touches;
}

const char *fake_gpu_violation(struct fake_gpu *gpu)
{
	pthread_mutex_lock(&gpu->lock);
	const char *violation = gpu->violation[0] ? gpu->violation : NULL;
	pthread_mutex_unlock(&gpu->lock);
	return violation;
}

struct fake_event *fake_event_create(struct fake_gpu *gpu)
{
	struct fake_event *event = calloc(1, sizeof(*event));

	if (!event)
		abort();
	event->magic = EVENT_MAGIC;
	event->gpu = gpu;
	return event;
}

void fake_event_signal(struct fake_event *event)
{
	pthread_mutex_lock(&event->gpu->lock);
	event->signalled = true;
	pthread_cond_broadcast(&event->gpu->changed);
	pthread_mutex_unlock(&event->gpu->lock);
}

/* A wait inside a stream may still refer to it when its job was given up: it counts as signalled.
 */
void fake_event_destroy(struct fake_event *event)
{
	struct fake_gpu *gpu = event->gpu;

	pthread_mutex_lock(&gpu->lock);
	for (struct fake_lane *lane = gpu->lanes; lane; lane = lane->next)
		for (struct fake_op **linkp = &lane->stream; *linkp;) {
			struct fake_op *op = *linkp;
			if (op->event == event && !op->io) {
				*linkp = op->next;
				free(op);
			} else {
				linkp = &op->next;
			}
		}
	event->magic = 0;
	pthread_cond_broadcast(&gpu->changed);
	pthread_mutex_unlock(&gpu->lock);
	free(event);
}
