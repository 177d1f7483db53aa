/* SPDX-License-Identifier: Apache-2.0 */
/* Events for plain memory: signalled once, from any thread, and waited for by orderings of the host
 * device. */
#include "device_host.h"

#include <stdlib.h>

struct kvt_event {
	pthread_mutex_t lock; /* leaf; guards all below and the orders on the list */
	bool signalled;
	struct kvt__host_order *orders;
};

bool kvt__event_arm(struct kvt_event *event, struct kvt__host_order *order)
{
	bool signalled;

	/* Never without the lock: who sees the signal may destroy the event, and the signaller must
	 * have left the lock by then. */
	pthread_mutex_lock(&event->lock);
	signalled = event->signalled;
	if (!signalled) {
		order->armed = true;
		order->next = event->orders;
		order->linkp = &event->orders;
		if (event->orders != NULL)
			event->orders->linkp = &order->next;
		event->orders = order;
	}
	pthread_mutex_unlock(&event->lock);
	return signalled;
}

bool kvt__event_disarm(struct kvt_event *event, struct kvt__host_order *order)
{
	bool armed;

	pthread_mutex_lock(&event->lock);
	armed = order->armed;
	if (armed) {
		order->armed = false;
		*order->linkp = order->next;
		if (order->next != NULL)
			order->next->linkp = order->linkp;
	}
	pthread_mutex_unlock(&event->lock);
	return armed;
}

int kvt_event_create(struct kvt_event **eventp)
{
	struct kvt_event *event;

	if (eventp == NULL)
		return kvt__fail(KVT_EINVAL, "kvt_event_create: eventp: NULL");
	*eventp = NULL;
	event = calloc(1, sizeof(*event));
	if (event == NULL)
		return kvt__fail(KVT_ENOMEM, "kvt_event_create: out of memory");
	pthread_mutex_init(&event->lock, NULL);
	*eventp = event;
	return 0;
}

void kvt_event_signal(struct kvt_event *event)
{
	struct kvt__host_order *order, *next;

	if (event == NULL)
		return;
	pthread_mutex_lock(&event->lock);
	event->signalled = true;
	order = event->orders;
	event->orders = NULL;
	for (struct kvt__host_order *o = order; o != NULL; o = o->next)
		o->armed = false;
	pthread_mutex_unlock(&event->lock);
	/* From the last finish on the event may be gone: it is not touched again. */
	for (; order != NULL; order = next) {
		next = order->next;
		kvt__host_order_finish(order, 0);
	}
}

void kvt_event_destroy(struct kvt_event *event)
{
	if (event == NULL)
		return;
	pthread_mutex_destroy(&event->lock);
	free(event);
}
