/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finish notices. A host function runs on a thread of the driver's, may call nothing of the
 * driver's, and does not run at all once the context is broken. So it does one thing: it puts its
 * notice on the list of the lane's port and notifies the lane. A port outlives its lane while host
 * functions are still to come (an ordering that was given up waits for an event that may never
 * happen); such ports are kept among the strays and freed by a later close. That is also why ports
 * come from malloc: the caller's hooks and the device may be gone by then.
 */
#include "cuda_device.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#define SLAB_NOTICES 64

struct kvt__cuda_slab {
	struct kvt__cuda_slab *next;
	struct kvt__cuda_notice notices[SLAB_NOTICES];
};

static pthread_mutex_t strays_lock = PTHREAD_MUTEX_INITIALIZER; /* leaf; guards the list */
static struct kvt__cuda_port *strays;

static void cuda_port_free(struct kvt__cuda_port *port)
{
	while (port->slabs != NULL) {
		struct kvt__cuda_slab *slab = port->slabs;

		port->slabs = slab->next;
		free(slab);
	}
	free(port);
}

static void cuda_port_notify(struct kvt__cuda_port *port)
{
	/* Counted before the look at `closed`: who closes waits for the count afterwards. */
	atomic_fetch_add(&port->notifying, 1);
	if (!atomic_load(&port->closed))
		port->notify(port->notify_arg);
	atomic_fetch_sub(&port->notifying, 1);
}

static void CUDA_CB cuda_notice_run(void *arg)
{
	struct kvt__cuda_notice *notice = arg;
	struct kvt__cuda_port *port = notice->port;
	struct kvt__cuda_notice *head = atomic_load_explicit(&port->finished, memory_order_relaxed);

	atomic_store(&notice->finished, true);
	do {
		notice->finished_next = head;
	} while (!atomic_compare_exchange_weak(&port->finished, &head, notice));
	cuda_port_notify(port);
	atomic_fetch_sub(&port->pending, 1); /* the last that is done with the port */
}

static void cuda_strays_sweep_locked(void)
{
	struct kvt__cuda_port **at = &strays;

	while (*at != NULL) {
		struct kvt__cuda_port *port = *at;

		if (atomic_load(&port->pending) != 0) {
			at = &port->next;
			continue;
		}
		*at = port->next;
		cuda_port_free(port);
	}
}

int kvt__cuda_port_create(struct kvt__cuda_lane *lane, void (*notify)(void *arg), void *notify_arg)
{
	struct kvt__cuda_device *device = lane->device;
	struct kvt__cuda_port *port = calloc(1, sizeof(*port));

	if (port == NULL) {
		device->host->fail(device->host, "cuda:%u: out of memory for a lane",
				   device->ordinal);
		return KVT_ENOMEM;
	}
	port->notify = notify;
	port->notify_arg = notify_arg;
	lane->port = port;
	pthread_mutex_lock(&device->lock);
	port->next = device->ports;
	port->linkp = &device->ports;
	if (port->next != NULL)
		port->next->linkp = &port->next;
	device->ports = port;
	pthread_mutex_unlock(&device->lock);
	return 0;
}

void kvt__cuda_port_close(struct kvt__cuda_lane *lane)
{
	struct kvt__cuda_device *device = lane->device;
	struct kvt__cuda_port *port = lane->port;

	if (port == NULL)
		return;
	lane->port = NULL;
	pthread_mutex_lock(&device->lock);
	*port->linkp = port->next;
	if (port->next != NULL)
		port->next->linkp = port->linkp;
	pthread_mutex_unlock(&device->lock);
	atomic_store(&port->closed, true);
	while (atomic_load(&port->notifying) != 0) /* notify never blocks */
		(void)sched_yield();
	pthread_mutex_lock(&strays_lock);
	port->next = strays;
	strays = port;
	cuda_strays_sweep_locked();
	pthread_mutex_unlock(&strays_lock);
}

void kvt__cuda_notify_all(struct kvt__cuda_device *device)
{
	struct kvt__cuda_port *ports[16];
	size_t skip = 0, count;

	/* Each is kept from being closed by the count, so that no lock is held across notify. Ports
	 * that are opened or closed meanwhile may be missed or told twice: a new lane looks for
	 * itself. */
	do {
		size_t at = 0;

		count = 0;
		pthread_mutex_lock(&device->lock);
		for (struct kvt__cuda_port *p = device->ports;
		     p != NULL && count < sizeof(ports) / sizeof(ports[0]); p = p->next)
			if (at++ >= skip) {
				atomic_fetch_add(&p->notifying, 1);
				ports[count++] = p;
			}
		pthread_mutex_unlock(&device->lock);
		for (size_t i = 0; i < count; i++) {
			if (!atomic_load(&ports[i]->closed))
				ports[i]->notify(ports[i]->notify_arg);
			atomic_fetch_sub(&ports[i]->notifying, 1);
		}
		skip += count;
	} while (count == sizeof(ports) / sizeof(ports[0]));
}

static struct kvt__cuda_notice *cuda_notice_get(struct kvt__cuda_lane *lane)
{
	struct kvt__cuda_notice *notice = lane->free_notices;
	struct kvt__cuda_slab *slab;

	if (notice == NULL) {
		slab = calloc(1, sizeof(*slab));
		if (slab == NULL)
			return NULL;
		slab->next = lane->port->slabs;
		lane->port->slabs = slab;
		for (size_t i = 0; i < SLAB_NOTICES; i++) {
			slab->notices[i].port = lane->port;
			slab->notices[i].next = lane->free_notices;
			lane->free_notices = &slab->notices[i];
		}
		notice = lane->free_notices;
	}
	lane->free_notices = notice->next;
	notice->next = NULL;
	return notice;
}

static void cuda_notice_put(struct kvt__cuda_lane *lane, struct kvt__cuda_notice *notice)
{
	notice->io = NULL;
	notice->wait = NULL;
	notice->next = lane->free_notices;
	lane->free_notices = notice;
}

struct kvt__cuda_notice *kvt__cuda_notice_launch(struct kvt__cuda_lane *lane, CUstream stream,
						 struct kvt_device_io *io, int *errorp)
{
	struct kvt__cuda_device *device = lane->device;
	struct kvt__cuda_notice *notice = cuda_notice_get(lane);
	CUresult result;

	if (notice == NULL) {
		if (io->detail_buffer != NULL)
			(void)snprintf(io->detail_buffer, io->detail_bytes,
				       "cuda:%u: out of memory for a notice", device->ordinal);
		*errorp = KVT_ENOMEM;
		return NULL;
	}
	atomic_store(&notice->finished, false);
	notice->io = io;
	notice->wait = NULL;
	notice->next = lane->in_flight;
	notice->linkp = &lane->in_flight;
	if (notice->next != NULL)
		notice->next->linkp = &notice->next;
	lane->in_flight = notice;
	atomic_fetch_add(&lane->port->pending, 1);
	kvt__cuda_watch_begin(device);
	result = device->driver->cuLaunchHostFunc(stream, cuda_notice_run, notice);
	if (result == CUDA_SUCCESS)
		return notice;
	*errorp = kvt__cuda_failed(device, result, "cuLaunchHostFunc", io->detail_buffer,
				   io->detail_bytes);
	atomic_fetch_sub(&lane->port->pending, 1);
	kvt__cuda_notice_settle(lane, notice);
	cuda_notice_put(lane, notice);
	return NULL;
}

struct kvt__cuda_notice *kvt__cuda_notices_take(struct kvt__cuda_lane *lane)
{
	struct kvt__cuda_notice *notice, *next, *oldest = NULL;

	if (atomic_load_explicit(&lane->port->finished, memory_order_relaxed) == NULL)
		return NULL;
	notice = atomic_exchange(&lane->port->finished, NULL);
	for (; notice != NULL; notice = next) {
		next = notice->finished_next;
		notice->finished_next = oldest;
		oldest = notice;
	}
	return oldest;
}

void kvt__cuda_notice_settle(struct kvt__cuda_lane *lane, struct kvt__cuda_notice *notice)
{
	if (notice->linkp == NULL)
		return;
	*notice->linkp = notice->next;
	if (notice->next != NULL)
		notice->next->linkp = notice->linkp;
	notice->next = NULL;
	notice->linkp = NULL;
	notice->io = NULL;
	kvt__cuda_watch_end(lane->device);
}

void kvt__cuda_notice_recycle(struct kvt__cuda_lane *lane, struct kvt__cuda_notice *notice)
{
	if (notice->wait != NULL)
		notice->wait->pending--;
	kvt__cuda_notice_settle(lane, notice);
	cuda_notice_put(lane, notice);
}
