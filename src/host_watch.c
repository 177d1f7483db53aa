/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waits for descriptors to become readable, on one thread per host device that is started when the
 * first of them has to be waited for. A descriptor is registered once, disabled after each report
 * and looked at again under the lock, so that a report about a descriptor that has meanwhile been
 * closed and its number reused finishes nothing.
 */
#include "device_host.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define STOP_TAG UINT64_MAX

int kvt__fd_ready(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	if (fd < 0)
		return KVT_EINVAL;
	while (poll(&p, 1, 0) < 0)
		if (errno != EINTR)
			return 0; /* no memory in the kernel: asked again by the thread */
	if (p.revents & POLLNVAL)
		return KVT_EINVAL;
	return p.revents != 0;
}

static struct kvt__host_order **bucket_of(struct kvt__watch *watch, int fd)
{
	return &watch->buckets[(unsigned)fd % KVT__WATCH_BUCKETS];
}

static bool is_watched_locked(struct kvt__watch *watch, int fd)
{
	for (struct kvt__host_order *o = *bucket_of(watch, fd); o != NULL; o = o->next)
		if (o->fd == fd)
			return true;
	return false;
}

/* Takes all orders of a descriptor off the watch, as a list. */
static struct kvt__host_order *take_all_locked(struct kvt__watch *watch, int fd)
{
	struct kvt__host_order **bucket = bucket_of(watch, fd), *kept = NULL, *taken = NULL, *next;

	for (struct kvt__host_order *o = *bucket; o != NULL; o = next) {
		struct kvt__host_order **list = o->fd == fd ? &taken : &kept;

		next = o->next;
		o->armed = o->fd != fd;
		o->next = *list;
		o->linkp = list;
		if (*list != NULL)
			(*list)->linkp = &o->next;
		*list = o;
	}
	*bucket = kept;
	if (kept != NULL)
		kept->linkp = bucket;
	return taken;
}

static int epoll_set(struct kvt__watch *watch, int op, int fd)
{
	struct epoll_event event = {
		.events = EPOLLIN | EPOLLONESHOT,
		.data.u64 = (uint64_t)(unsigned)fd,
	};

	return epoll_ctl(watch->epoll_fd, op, fd, &event);
}

/* Registers a descriptor, also when an earlier registration of the same number is still there. */
static int epoll_add(struct kvt__watch *watch, int fd)
{
	if (epoll_set(watch, EPOLL_CTL_ADD, fd) == 0)
		return 0;
	if (errno == EEXIST)
		return epoll_set(watch, EPOLL_CTL_MOD, fd);
	return -1;
}

static void report(struct kvt__watch *watch, int fd)
{
	struct kvt__host_order *order = NULL, *next;
	int ready;

	pthread_mutex_lock(&watch->lock);
	ready = kvt__fd_ready(fd);
	if (is_watched_locked(watch, fd)) {
		/* One that cannot be registered again would be forgotten: that is a failure too. */
		if (ready == 0 && epoll_add(watch, fd) != 0)
			ready = KVT_EINVAL;
		if (ready != 0) {
			order = take_all_locked(watch, fd);
			(void)epoll_set(watch, EPOLL_CTL_DEL, fd);
		}
	}
	pthread_mutex_unlock(&watch->lock);
	for (; order != NULL; order = next) {
		next = order->next;
		kvt__host_order_finish(order, ready < 0 ? ready : 0);
	}
}

static void *watch_main(void *arg)
{
	struct kvt__watch *watch = arg;
	struct epoll_event events[64];

	(void)pthread_setname_np(pthread_self(), "kvt-ready");
	for (;;) {
		int count = epoll_wait(watch->epoll_fd, events, 64, -1);

		for (int i = 0; i < count; i++) {
			if (events[i].data.u64 == STOP_TAG)
				return NULL;
			report(watch, (int)events[i].data.u64);
		}
	}
}

/* Starts the thread with all signals blocked. */
static int thread_start(struct kvt__watch *watch)
{
	sigset_t all, before;
	int error;

	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &before);
	error = pthread_create(&watch->thread, NULL, watch_main, watch);
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	return error;
}

static void close_all(struct kvt__watch *watch)
{
	if (watch->epoll_fd >= 0)
		(void)close(watch->epoll_fd);
	if (watch->stop_fd >= 0)
		(void)close(watch->stop_fd);
	watch->epoll_fd = -1;
	watch->stop_fd = -1;
}

static int start_locked(struct kvt__watch *watch, char *detail, size_t detail_bytes)
{
	struct epoll_event event = {.events = EPOLLIN, .data.u64 = STOP_TAG};
	int error;

	if (watch->started)
		return 0;
	watch->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	watch->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (watch->epoll_fd < 0 || watch->stop_fd < 0 ||
	    epoll_ctl(watch->epoll_fd, EPOLL_CTL_ADD, watch->stop_fd, &event) != 0) {
		(void)snprintf(detail, detail_bytes, "ready descriptors: %s", strerror(errno));
		close_all(watch);
		return KVT_EMFILE;
	}
	error = thread_start(watch);
	if (error != 0) {
		(void)snprintf(detail, detail_bytes, "ready descriptors: thread: %s",
			       strerror(error));
		close_all(watch);
		return KVT_ENOMEM;
	}
	watch->started = true;
	return 0;
}

void kvt__watch_init(struct kvt__watch *watch)
{
	pthread_mutex_init(&watch->lock, NULL);
	watch->epoll_fd = -1;
	watch->stop_fd = -1;
}

void kvt__watch_fini(struct kvt__watch *watch)
{
	if (watch->started) {
		uint64_t one = 1;

		while (write(watch->stop_fd, &one, sizeof(one)) < 0 && errno == EINTR)
			;
		(void)pthread_join(watch->thread, NULL);
	}
	close_all(watch);
	pthread_mutex_destroy(&watch->lock);
}

void kvt__watch_forked(struct kvt__watch *watch)
{
	close_all(watch);
}

int kvt__watch_arm(struct kvt__watch *watch, struct kvt__host_order *order, char *detail,
		   size_t detail_bytes)
{
	struct kvt__host_order **bucket = bucket_of(watch, order->fd);
	int error;

	pthread_mutex_lock(&watch->lock);
	error = start_locked(watch, detail, detail_bytes);
	/* Registered anew for each order: the number may have come to mean another file. */
	if (error == 0 && epoll_add(watch, order->fd) != 0) {
		(void)snprintf(detail, detail_bytes, "ready descriptor %d: %s", order->fd,
			       strerror(errno));
		error = errno == ENOMEM || errno == ENOSPC ? KVT_ENOMEM : KVT_EINVAL;
	}
	if (error == 0) {
		order->armed = true;
		order->next = *bucket;
		order->linkp = bucket;
		if (*bucket != NULL)
			(*bucket)->linkp = &order->next;
		*bucket = order;
	}
	pthread_mutex_unlock(&watch->lock);
	return error;
}

bool kvt__watch_disarm(struct kvt__watch *watch, struct kvt__host_order *order)
{
	bool armed;

	pthread_mutex_lock(&watch->lock);
	armed = order->armed;
	if (armed) {
		order->armed = false;
		*order->linkp = order->next;
		if (order->next != NULL)
			order->next->linkp = order->linkp;
		if (!is_watched_locked(watch, order->fd))
			(void)epoll_set(watch, EPOLL_CTL_DEL, order->fd);
	}
	pthread_mutex_unlock(&watch->lock);
	return armed;
}
