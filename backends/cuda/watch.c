/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds out that a context has broken while its lanes sleep: host functions do not run any more
 * then, so nobody would wake them. One thread for each device, which sleeps without end while
 * nothing is in flight, and asks a few times a second while something is. Finish notices do not
 * come from here.
 */
#include "cuda_device.h"

#include <signal.h>
#include <string.h>
#include <time.h>

#define TICK_NS 250000000L

static void *cuda_watch_run(void *arg)
{
	struct kvt__cuda_device *device = arg;
	CUstreamCaptureMode mode; /* the thread's own: never given back */

	(void)kvt__cuda_capture_mode_relax(device->driver, &mode);
	pthread_mutex_lock(&device->lock);
	while (!device->watch_stopping) {
		struct timespec until;

		if (atomic_load(&device->in_flight) == 0 || atomic_load(&device->broken)) {
			(void)pthread_cond_wait(&device->watch_changed, &device->lock);
			continue;
		}
		(void)clock_gettime(CLOCK_MONOTONIC, &until);
		until.tv_nsec += TICK_NS;
		until.tv_sec += until.tv_nsec / 1000000000L;
		until.tv_nsec %= 1000000000L;
		(void)pthread_cond_timedwait(&device->watch_changed, &device->lock, &until);
		if (device->watch_stopping || atomic_load(&device->in_flight) == 0)
			continue;
		pthread_mutex_unlock(&device->lock);
		if (kvt__cuda_enter_or_say(device, NULL, 0) == 0) {
			(void)kvt__cuda_is_healthy(device);
			kvt__cuda_leave(device);
		}
		pthread_mutex_lock(&device->lock);
	}
	pthread_mutex_unlock(&device->lock);
	return NULL;
}

int kvt__cuda_watch_start(struct kvt__cuda_device *device)
{
	sigset_t all, old;
	int error = 0;

	pthread_mutex_lock(&device->lock);
	if (!device->watch_started) {
		(void)sigfillset(&all);
		(void)pthread_sigmask(SIG_SETMASK, &all, &old);
		error = pthread_create(&device->watch_thread, NULL, cuda_watch_run, device);
		(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
		device->watch_started = error == 0;
		if (error == 0)
			(void)pthread_setname_np(device->watch_thread, "kvt-cuda");
	}
	pthread_mutex_unlock(&device->lock);
	if (error == 0)
		return 0;
	device->host->fail(device->host, "cuda:%u: pthread_create: %s", device->ordinal,
			   strerror(error));
	return KVT_ENOMEM;
}

void kvt__cuda_watch_stop(struct kvt__cuda_device *device)
{
	bool started;

	pthread_mutex_lock(&device->lock);
	started = device->watch_started;
	device->watch_stopping = true;
	pthread_cond_signal(&device->watch_changed);
	pthread_mutex_unlock(&device->lock);
	if (started)
		(void)pthread_join(device->watch_thread, NULL);
}

void kvt__cuda_watch_begin(struct kvt__cuda_device *device)
{
	if (atomic_fetch_add(&device->in_flight, 1) != 0)
		return;
	pthread_mutex_lock(&device->lock);
	pthread_cond_signal(&device->watch_changed);
	pthread_mutex_unlock(&device->lock);
}

void kvt__cuda_watch_end(struct kvt__cuda_device *device)
{
	atomic_fetch_sub(&device->in_flight, 1);
}
