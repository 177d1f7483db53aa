/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The device that needs no opening: plain memory. The CPU and storage requests use it as it is, so
 * copies are memcpy and done at once; what may take time is the caller's ready event.
 */
#include "device_host.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

struct host_device {
	const struct kvt_host *host;
	struct kvt__watch watch;
};

struct host_lane {
	struct host_device *device;
	void (*notify)(void *arg);
	void *notify_arg;
	pthread_mutex_t lock; /* leaf; guards all below but for reads of `pending` */
	pthread_cond_t quiet; /* notifying became 0 */
	uint32_t notifying;   /* threads between handing an order over and the end of notify */
	struct kvt__host_order *finished, **finished_tailp;
	atomic_uint pending; /* length of finished */
};

void kvt__host_order_finish(struct kvt__host_order *order, int result)
{
	struct host_lane *lane = order->lane;

	order->next = NULL;
	order->io->result = result;
	if (result != 0 && order->io->detail_buffer != NULL)
		(void)snprintf(order->io->detail_buffer, order->io->detail_bytes,
			       "ready descriptor %d: not an open descriptor that can be waited for",
			       order->fd);
	pthread_mutex_lock(&lane->lock);
	lane->notifying++; /* keeps the lane alive: its thread may finish and close it from here */
	*lane->finished_tailp = order;
	lane->finished_tailp = &order->next;
	atomic_fetch_add(&lane->pending, 1);
	pthread_mutex_unlock(&lane->lock);
	lane->notify(lane->notify_arg);
	pthread_mutex_lock(&lane->lock);
	if (--lane->notifying == 0)
		pthread_cond_signal(&lane->quiet);
	pthread_mutex_unlock(&lane->lock);
}

static int host_open(const struct kvt_host *host, uint32_t ordinal, void **devicep)
{
	struct host_device *device;

	if (ordinal != 0) {
		host->fail(host, "host: ordinal: %u, expected 0", ordinal);
		return KVT_EINVAL;
	}
	device = host->alloc(host, sizeof(*device), 16);
	if (device == NULL) {
		host->fail(host, "host: out of memory");
		return KVT_ENOMEM;
	}
	memset(device, 0, sizeof(*device));
	device->host = host;
	kvt__watch_init(&device->watch);
	*devicep = device;
	return 0;
}

static void host_close(void *arg)
{
	struct host_device *device = arg;

	kvt__watch_fini(&device->watch);
	device->host->free(device->host, device);
}

static void host_forked(void *arg)
{
	struct host_device *device = arg;

	kvt__watch_forked(&device->watch);
	device->host->free(device->host, device);
}

static int host_staging_alloc(void *arg, uint64_t bytes, void **memoryp)
{
	struct host_device *device = arg;
	void *memory;

	*memoryp = NULL;
	if (bytes == 0 || bytes > SIZE_MAX / 2) {
		device->host->fail(device->host, "host: staging of %llu bytes, expected 1 to %zu",
				   (unsigned long long)bytes, SIZE_MAX / 2);
		return KVT_EINVAL;
	}
	memory = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		      0);
	if (memory == MAP_FAILED) {
		device->host->fail(device->host, "host: staging of %llu bytes: %s",
				   (unsigned long long)bytes, strerror(errno));
		return KVT_ENOMEM;
	}
	/* Huge pages make direct I/O and copies cheaper; without them it works as well. */
	(void)madvise(memory, (size_t)bytes, MADV_HUGEPAGE);
	*memoryp = memory;
	return 0;
}

static void host_staging_free(void *arg, void *memory, uint64_t bytes)
{
	(void)arg;
	(void)munmap(memory, (size_t)bytes);
}

static int host_lane_open(void *arg, void (*notify)(void *arg), void *notify_arg, void **lanep)
{
	struct host_device *device = arg;
	struct host_lane *lane = device->host->alloc(device->host, sizeof(*lane), 16);

	*lanep = NULL;
	if (lane == NULL) {
		device->host->fail(device->host, "host: out of memory");
		return KVT_ENOMEM;
	}
	memset(lane, 0, sizeof(*lane));
	lane->device = device;
	lane->notify = notify;
	lane->notify_arg = notify_arg;
	lane->finished_tailp = &lane->finished;
	pthread_mutex_init(&lane->lock, NULL);
	pthread_cond_init(&lane->quiet, NULL);
	*lanep = lane;
	return 0;
}

/* Waits for notifies that are on their way; those never block. */
static void host_lane_close(void *arg)
{
	struct host_lane *lane = arg;
	const struct kvt_host *host = lane->device->host;

	pthread_mutex_lock(&lane->lock);
	while (lane->notifying > 0)
		pthread_cond_wait(&lane->quiet, &lane->lock);
	pthread_mutex_unlock(&lane->lock);
	pthread_cond_destroy(&lane->quiet);
	pthread_mutex_destroy(&lane->lock);
	host->free(host, lane);
}

static void say(struct kvt_device_io *io, const char *what, long long value)
{
	if (io->detail_buffer != NULL)
		(void)snprintf(io->detail_buffer, io->detail_bytes, what, value);
}

static int order_fd(struct host_lane *lane, struct kvt__host_order *order)
{
	int ready = kvt__fd_ready(order->fd);
	char none[1];
	int error;

	if (ready > 0)
		return KVT_DEVICE_DONE;
	if (ready < 0) {
		say(order->io, "ready descriptor %lld: not an open descriptor", order->fd);
		return ready;
	}
	error = kvt__watch_arm(&lane->device->watch, order,
			       order->io->detail_buffer != NULL ? order->io->detail_buffer : none,
			       order->io->detail_buffer != NULL ? order->io->detail_bytes : 0);
	return error != 0 ? error : KVT_DEVICE_QUEUED;
}

static int host_order(void *arg, const struct kvt_ready *ready, int for_cpu,
		      struct kvt_device_io *io)
{
	struct host_lane *lane = arg;
	struct kvt__host_order *order = io->private_data;

	(void)for_cpu; /* everything here is for the CPU */
	memset(order, 0, sizeof(*order));
	order->io = io;
	order->lane = lane;
	order->fd = -1;
	io->result = 0;
	switch (ready->kind) {
	case KVT_READY_FD:
		order->fd = ready->fd;
		return order_fd(lane, order);
	case KVT_READY_EVENT:
		if (ready->handle == NULL) {
			say(io, "ready handle: NULL, expected a kvt_event (kind %lld)",
			    ready->kind);
			return KVT_EINVAL;
		}
		order->event = ready->handle;
		return kvt__event_arm(order->event, order) ? KVT_DEVICE_DONE : KVT_DEVICE_QUEUED;
	default:
		say(io, "ready kind: %lld, expected a descriptor or an event with plain memory",
		    ready->kind);
		return KVT_EINVAL;
	}
}

static int host_order_cancel(void *arg, struct kvt_device_io *io)
{
	struct host_lane *lane = arg;
	struct kvt__host_order *order = io->private_data;
	bool canceled;

	if (order->event != NULL)
		canceled = kvt__event_disarm(order->event, order);
	else
		canceled = kvt__watch_disarm(&lane->device->watch, order);
	return canceled ? 0 : KVT_EBUSY;
}

static int host_copy(void *arg, struct kvt_device_io *io)
{
	(void)arg;
	for (uint32_t i = 0; i < io->copy_count; i++) {
		const struct kvt_device_copy *copy = &io->copies[i];
		void *memory = (void *)(uintptr_t)copy->device_ptr;

		if (io->direction == KVT_GATHER)
			memcpy(copy->staging, memory, copy->bytes);
		else
			memcpy(memory, copy->staging, copy->bytes);
	}
	io->result = 0;
	return KVT_DEVICE_DONE;
}

static int host_poll(void *arg)
{
	struct host_lane *lane = arg;
	struct kvt__host_order *order, *next;
	int delivered = 0;

	if (atomic_load(&lane->pending) == 0)
		return 0;
	pthread_mutex_lock(&lane->lock);
	order = lane->finished;
	lane->finished = NULL;
	lane->finished_tailp = &lane->finished;
	atomic_store(&lane->pending, 0);
	pthread_mutex_unlock(&lane->lock);
	for (; order != NULL; order = next, delivered++) {
		next = order->next;
		order->io->complete(order->io);
	}
	return delivered;
}

const struct kvt_device_ops kvt__host_device_ops = {
	.struct_size = sizeof(struct kvt_device_ops),
	.abi = KVT_DEVICE_ABI,
	.capabilities = KVT_DEVICE_HOST_MEMORY,
	.name = "host",
	.io_private_bytes = sizeof(struct kvt__host_order),
	.open = host_open,
	.close = host_close,
	.staging_alloc = host_staging_alloc,
	.staging_free = host_staging_free,
	.lane_open = host_lane_open,
	.lane_close = host_lane_close,
	.order = host_order,
	.order_cancel = host_order_cancel,
	.copy = host_copy,
	.poll = host_poll,
	.forked = host_forked,
};
