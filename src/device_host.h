/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the host device: an ordering that waits, and the two things it can wait for. Each lane has
 * a list of orderings that are finished and wait for its poll. Locks: a lane's, an event's and the
 * watch's are leaves; none is held across a call out nor together with another of them.
 */
#ifndef KVT_SRC_DEVICE_HOST_H
#define KVT_SRC_DEVICE_HOST_H

#include <pthread.h>
#include <stdbool.h>

#include "device.h"

struct host_lane;

/* One ordering that was queued; lives in the io's private data. */
struct kvt__host_order {
	struct kvt_device_io *io;
	struct host_lane *lane;
	struct kvt__host_order *next, **linkp; /* in an event, in a bucket of the watch, or among a
						* lane's finished ones; guarded by whose list it is
						*/
	struct kvt_event *event;	       /* NULL: waits for fd */
	int fd;
	bool armed; /* guarded by the lock of the event or the watch */
};

/* Hands an ordering, which is on no list any more, to its lane with the given result and notifies
 * it. Any thread, no lock held. The ordering belongs to the lane from then on. */
void kvt__host_order_finish(struct kvt__host_order *order, int result);

/* Events */

/* True: the event has happened already. False: the order is armed and will be finished. */
bool kvt__event_arm(struct kvt_event *event, struct kvt__host_order *order);
/* True: given up, it will not be finished. False: it has been, or is about to be. */
bool kvt__event_disarm(struct kvt_event *event, struct kvt__host_order *order);

/* Descriptors: one thread for all that are waited for */

#define KVT__WATCH_BUCKETS 64

struct kvt__watch {
	pthread_mutex_t lock; /* leaf; guards all below */
	bool started;
	bool stopping;
	int epoll_fd, stop_fd; /* -1 until started */
	pthread_t thread;
	struct kvt__host_order *buckets[KVT__WATCH_BUCKETS]; /* by descriptor */
};

void kvt__watch_init(struct kvt__watch *watch);
/* Nothing is armed. Ends the thread. */
void kvt__watch_fini(struct kvt__watch *watch);
/* In a forked child: closes descriptors only. */
void kvt__watch_forked(struct kvt__watch *watch);
/* Arms the order for its fd, which was not readable a moment ago. The first call starts the thread.
 * KVT_EMFILE, KVT_ENOMEM, KVT_EINVAL with a line in `detail`. */
int kvt__watch_arm(struct kvt__watch *watch, struct kvt__host_order *order, char *detail,
		   size_t detail_bytes);
bool kvt__watch_disarm(struct kvt__watch *watch, struct kvt__host_order *order);
/* 1 when the descriptor has become readable (or its other end is closed), 0 when not, KVT_EINVAL
 * when it is no open descriptor. Never blocks. */
int kvt__fd_ready(int fd);

#endif
