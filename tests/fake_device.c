/* SPDX-License-Identifier: Apache-2.0 */
/* The fake device as the core sees it, and the thread that plays the hardware. */
#include "fake_device_internal.h"

#include <kvtier/backend.h>

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void broke_locked(struct fake_gpu *gpu, const char *format, ...)
{
	va_list args;

	if (gpu->violation[0])
		return;
	va_start(args, format);
	vsnprintf(gpu->violation, sizeof(gpu->violation), format, args);
	va_end(args);
}

/* The code of a fault that is due, else 0. */
static int fault_locked(struct fake_gpu *gpu, enum fake_gpu_fault kind)
{
	struct fault *fault = &gpu->faults[kind];

	if (!fault->nth || ++fault->seen < fault->nth ||
	    (fault->times && fault->seen >= fault->nth + fault->times))
		return 0;
	gpu->faults_done++;
	return fault->error;
}

static bool inside(const struct range *ranges, size_t count, const void *at, uint64_t bytes)
{
	for (size_t i = 0; i < count; i++) {
		uintptr_t from = (uintptr_t)ranges[i].at, p = (uintptr_t)at;
		if (ranges[i].at && p >= from && p - from <= ranges[i].bytes &&
		    bytes <= ranges[i].bytes - (p - from))
			return true;
	}
	return false;
}

static bool device_range(const struct fake_gpu *gpu, uint64_t ptr, uint64_t bytes)
{
	return ptr >= DEVICE_BASE && ptr - DEVICE_BASE <= gpu->memory_bytes &&
	       bytes <= gpu->memory_bytes - (ptr - DEVICE_BASE);
}

/* ---- The hardware ---- */

static void append(struct fake_op **list, struct fake_op *op)
{
	while (*list)
		list = &(*list)->next;
	op->next = NULL;
	*list = op;
}

/* Moves the bytes of `count` copies; the ranges were checked when the batch was queued. */
static void move(struct fake_gpu *gpu, const struct kvt_device_io *io, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		const struct kvt_device_copy *copy = &io->copies[i];
		uint8_t *at = copy->device_ptr >= DEVICE_BASE
				      ? gpu->memory + (copy->device_ptr - DEVICE_BASE)
				      : (uint8_t *)(uintptr_t)copy->device_ptr;
		if (io->direction == KVT_GATHER)
			memcpy(copy->staging, at, copy->bytes);
		else
			memcpy(at, copy->staging, copy->bytes);
	}
}

/* Finishes one operation of a lane if one can; notice is given without the lock. */
static bool advance_locked(struct fake_gpu *gpu, struct fake_lane *lane)
{
	struct fake_op **linkp = &lane->orders;

	while (*linkp && !(*linkp)->event->signalled)
		linkp = &(*linkp)->next;
	struct fake_op *op = *linkp;
	if (op) {
		*linkp = op->next;
	} else if (lane->stream && !lane->stream->io) {
		op = lane->stream;
		if (!op->event->signalled)
			return false;
		lane->stream = op->next;
		free(op);
		return true;
	} else if (lane->stream && (!gpu->held || gpu->steps)) {
		op = lane->stream;
		if (gpu->held)
			gpu->steps--;
		op->result = fault_locked(gpu, FAKE_GPU_COPY);
		op->running = true;
		uint32_t count = op->result ? op->io->copy_count / 2 : op->io->copy_count;
		pthread_mutex_unlock(&gpu->lock);
		move(gpu, op->io, count);
		pthread_mutex_lock(&gpu->lock);
		lane->stream = op->next;
	} else {
		return false;
	}
	append(&lane->done, op);
	lane->notifying = true;
	pthread_mutex_unlock(&gpu->lock);
	lane->notify(lane->notify_arg);
	pthread_mutex_lock(&gpu->lock);
	lane->notifying = false;
	pthread_cond_broadcast(&gpu->changed);
	return true;
}

void *fake__gpu_hardware(void *arg)
{
	struct fake_gpu *gpu = arg;

	pthread_mutex_lock(&gpu->lock);
	while (!gpu->stopping) {
		bool moved = false;
		for (struct fake_lane *lane = gpu->lanes; lane && !moved; lane = lane->next)
			moved = advance_locked(gpu, lane);
		if (!moved)
			pthread_cond_wait(&gpu->changed, &gpu->lock);
	}
	pthread_mutex_unlock(&gpu->lock);
	return NULL;
}

/* ---- The table ---- */

static int gpu_open(const struct kvt_host *host, uint32_t ordinal, void **devicep)
{
	struct fake_gpu *gpu = fake__gpu_find(ordinal);

	if (!gpu) {
		host->fail(host, "fake device %u: no such device", ordinal);
		return KVT_EDEVICE;
	}
	pthread_mutex_lock(&gpu->lock);
	gpu->openings++;
	pthread_mutex_unlock(&gpu->lock);
	*devicep = gpu;
	return 0;
}

static void gpu_close(void *device)
{
	struct fake_gpu *gpu = device;

	pthread_mutex_lock(&gpu->lock);
	gpu->openings--;
	if (gpu->lanes)
		broke_locked(gpu, "closed with lanes open");
	for (int i = 0; i < STAGING_SLOTS; i++)
		if (gpu->staging[i].at)
			broke_locked(gpu, "closed with staging allocated");
	pthread_mutex_unlock(&gpu->lock);
}

static int gpu_staging_alloc(void *device, uint64_t bytes, void **memoryp)
{
	struct fake_gpu *gpu = device;
	void *memory = NULL;

	pthread_mutex_lock(&gpu->lock);
	int result = fault_locked(gpu, FAKE_GPU_STAGING);
	for (int i = 0; !result && i < STAGING_SLOTS; i++)
		if (!gpu->staging[i].at) {
			if (posix_memalign(&memory, 4096, bytes) != 0)
				break;
			gpu->staging[i] = (struct range){memory, bytes};
			memset(memory, 0xC3, bytes);
			break;
		}
	pthread_mutex_unlock(&gpu->lock);
	*memoryp = memory;
	return memory ? 0 : result ? result : KVT_ENOMEM;
}

static void gpu_staging_free(void *device, void *memory, uint64_t bytes)
{
	struct fake_gpu *gpu = device;
	bool known = false;

	pthread_mutex_lock(&gpu->lock);
	if (gpu->lanes)
		broke_locked(gpu, "staging freed with lanes open");
	for (int i = 0; i < STAGING_SLOTS && !known; i++)
		if (gpu->staging[i].at == memory && memory) {
			known = gpu->staging[i].bytes == bytes;
			gpu->staging[i].at = NULL;
		}
	if (!known)
		broke_locked(gpu, "staging_free of what was not allocated so");
	pthread_mutex_unlock(&gpu->lock);
	free(memory);
}

static int gpu_lane_open(void *device, void (*notify)(void *arg), void *notify_arg, void **lanep)
{
	struct fake_gpu *gpu = device;
	struct fake_lane *lane = calloc(1, sizeof(*lane));

	if (!lane)
		return KVT_ENOMEM;
	pthread_mutex_lock(&gpu->lock);
	int result = fault_locked(gpu, FAKE_GPU_LANE_OPEN);
	if (!result) {
		lane->gpu = gpu;
		lane->thread = pthread_self();
		lane->notify = notify;
		lane->notify_arg = notify_arg;
		lane->next = gpu->lanes;
		gpu->lanes = lane;
		gpu->lane_count++;
		*lanep = lane;
	}
	pthread_mutex_unlock(&gpu->lock);
	if (result)
		free(lane);
	return result;
}

static void check_thread_locked(struct fake_lane *lane, const char *call)
{
	if (!pthread_equal(lane->thread, pthread_self()))
		broke_locked(lane->gpu, "%s on a thread that did not open the lane", call);
}

static void gpu_lane_close(void *opaque)
{
	struct fake_lane *lane = opaque;
	struct fake_gpu *gpu = lane->gpu;

	pthread_mutex_lock(&gpu->lock);
	check_thread_locked(lane, "lane_close");
	while (lane->notifying)
		pthread_cond_wait(&gpu->changed, &gpu->lock);
	while (lane->stream && !lane->stream->io) {
		struct fake_op *wait = lane->stream;
		lane->stream = wait->next;
		free(wait);
	}
	if (lane->stream || lane->orders || lane->done)
		broke_locked(gpu, "lane closed with operations in flight");
	struct fake_lane **linkp = &gpu->lanes;
	while (*linkp != lane)
		linkp = &(*linkp)->next;
	*linkp = lane->next;
	gpu->lane_count--;
	pthread_mutex_unlock(&gpu->lock);
	free(lane);
}

static int gpu_check(void *opaque, uint64_t ptr, uint64_t bytes, char *detail, size_t detail_bytes)
{
	struct fake_lane *lane = opaque;
	struct fake_gpu *gpu = lane->gpu;

	pthread_mutex_lock(&gpu->lock);
	check_thread_locked(lane, "check");
	int result = fault_locked(gpu, FAKE_GPU_CHECK);
	if (!result && inside(gpu->host_ranges, HOST_RANGES, (void *)(uintptr_t)ptr, bytes))
		result = 1;
	else if (!result && !device_range(gpu, ptr, bytes))
		result = KVT_EFAULT;
	pthread_mutex_unlock(&gpu->lock);
	if (result < 0)
		snprintf(detail, detail_bytes, "pointer 0x%llx: not memory of the fake device",
			 (unsigned long long)ptr);
	return result;
}

static int gpu_order(void *opaque, const struct kvt_ready *ready, int for_cpu,
		     struct kvt_device_io *io)
{
	struct fake_lane *lane = opaque;
	struct fake_gpu *gpu = lane->gpu;
	struct fake_event *event = ready->handle;

	if (ready->kind != KVT_READY_EVENT || !event || event->magic != EVENT_MAGIC)
		return KVT_EINVAL;
	pthread_mutex_lock(&gpu->lock);
	check_thread_locked(lane, "order");
	gpu->orders++;
	int result = fault_locked(gpu, FAKE_GPU_ORDER);
	if (result) {
		pthread_mutex_unlock(&gpu->lock);
		return result;
	}
	if (gpu->stream_order && !for_cpu) {
		struct fake_op *wait = calloc(1, sizeof(*wait));
		if (wait) {
			wait->event = event;
			append(&lane->stream, wait);
		}
		pthread_cond_broadcast(&gpu->changed);
		pthread_mutex_unlock(&gpu->lock);
		io->result = 0;
		return wait ? KVT_DEVICE_DONE : KVT_ENOMEM;
	}
	struct fake_op *op = io->private_data;
	*op = (struct fake_op){.io = io, .event = event};
	append(&lane->orders, op);
	gpu->outstanding++;
	pthread_cond_broadcast(&gpu->changed);
	pthread_mutex_unlock(&gpu->lock);
	return KVT_DEVICE_QUEUED;
}

static int gpu_order_cancel(void *opaque, struct kvt_device_io *io)
{
	struct fake_lane *lane = opaque;
	struct fake_gpu *gpu = lane->gpu;
	int result = KVT_EBUSY;

	pthread_mutex_lock(&gpu->lock);
	check_thread_locked(lane, "order_cancel");
	for (struct fake_op **linkp = &lane->orders; *linkp; linkp = &(*linkp)->next)
		if ((*linkp)->io == io) {
			*linkp = (*linkp)->next;
			gpu->outstanding--;
			gpu->cancels++;
			result = 0;
			break;
		}
	pthread_mutex_unlock(&gpu->lock);
	return result;
}

static int gpu_copy(void *opaque, struct kvt_device_io *io)
{
	struct fake_lane *lane = opaque;
	struct fake_gpu *gpu = lane->gpu;
	struct fake_op *op = io->private_data;

	pthread_mutex_lock(&gpu->lock);
	check_thread_locked(lane, "copy");
	gpu->copies++;
	int result = fault_locked(gpu, FAKE_GPU_COPY_CALL);
	if (!io->private_data || (uintptr_t)io->private_data % 16 || !io->copy_count)
		broke_locked(gpu, "copy of %u copies, private memory %p", io->copy_count,
			     io->private_data);
	for (uint32_t i = 0; i < io->copy_count && !result; i++) {
		const struct kvt_device_copy *copy = &io->copies[i];
		if (!device_range(gpu, copy->device_ptr, copy->bytes) &&
		    !inside(gpu->host_ranges, HOST_RANGES, (void *)(uintptr_t)copy->device_ptr,
			    copy->bytes)) {
			broke_locked(gpu, "copy of 0x%llx, which check() refuses",
				     (unsigned long long)copy->device_ptr);
			result = KVT_EFAULT;
		}
		if (!inside(gpu->staging, STAGING_SLOTS, copy->staging, copy->bytes)) {
			broke_locked(gpu, "copy with memory that is not staging");
			result = KVT_EFAULT;
		}
	}
	if (!result) {
		*op = (struct fake_op){.io = io};
		append(&lane->stream, op);
		gpu->outstanding++;
		pthread_cond_broadcast(&gpu->changed);
		result = KVT_DEVICE_QUEUED;
	}
	pthread_mutex_unlock(&gpu->lock);
	return result;
}

static int gpu_poll(void *opaque)
{
	struct fake_lane *lane = opaque;
	struct fake_gpu *gpu = lane->gpu;
	int delivered = 0;

	pthread_mutex_lock(&gpu->lock);
	check_thread_locked(lane, "poll");
	while (lane->done) {
		struct fake_op *op = lane->done;
		struct kvt_device_io *io = op->io;
		lane->done = op->next;
		gpu->outstanding--;
		io->result = op->result;
		pthread_mutex_unlock(&gpu->lock);
		if (io->result && io->detail_buffer)
			snprintf(io->detail_buffer, io->detail_bytes, "fake device: copy failed");
		io->complete(io);
		delivered++;
		pthread_mutex_lock(&gpu->lock);
	}
	pthread_mutex_unlock(&gpu->lock);
	return delivered;
}

static const struct kvt_device_ops fake_gpu_ops = {
	.struct_size = sizeof(fake_gpu_ops),
	.abi = KVT_DEVICE_ABI,
	.name = "fakeorder",
	.io_private_bytes = sizeof(struct fake_op),
	.open = gpu_open,
	.close = gpu_close,
	.staging_alloc = gpu_staging_alloc,
	.staging_free = gpu_staging_free,
	.lane_open = gpu_lane_open,
	.lane_close = gpu_lane_close,
	.check = gpu_check,
	.order = gpu_order,
	.order_cancel = gpu_order_cancel,
	.copy = gpu_copy,
	.poll = gpu_poll,
};

void fake__gpu_register(void)
{
	struct kvt_device_ops streams = fake_gpu_ops;

	streams.name = "fake";
	streams.capabilities = KVT_DEVICE_STREAM_ORDER;
	if (kvt_device_register(&fake_gpu_ops) != 0 || kvt_device_register(&streams) != 0) {
		fprintf(stderr, "fake device: %s\n", kvt_error_detail());
		abort();
	}
}
