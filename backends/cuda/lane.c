/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A lane's streams, and the delivery of what is finished. Copies run on two streams of low
 * priority, one each way, so that a store's copies do not wait for a load's. Notices run on two
 * more, joined by an event: a host function holds its stream up, and the next copies must not wait
 * for it.
 */
#include "cuda_device.h"

#include <stdio.h>
#include <string.h>

static int cuda_fail(struct kvt__cuda_device *device, CUresult result, const char *what)
{
	char text[KVT__CUDA_TEXT_BYTES];
	int error = kvt__cuda_failed(device, result, what, text, sizeof(text));

	device->host->fail(device->host, "%s", text);
	return error;
}

static int cuda_streams_create(struct kvt__cuda_lane *lane)
{
	const struct kvt__cuda_driver *d = lane->device->driver;

	for (int way = KVT_GATHER; way <= KVT_SCATTER; way++) {
		CUresult result = d->cuStreamCreateWithPriority(
			&lane->copies[way], CU_STREAM_NON_BLOCKING, lane->device->least_priority);

		if (result == CUDA_SUCCESS)
			result = d->cuStreamCreateWithPriority(&lane->notices[way],
							       CU_STREAM_NON_BLOCKING,
							       lane->device->least_priority);
		if (result != CUDA_SUCCESS)
			return cuda_fail(lane->device, result, "cuStreamCreateWithPriority");
		result = d->cuEventCreate(&lane->copied[way], CU_EVENT_DISABLE_TIMING);
		if (result != CUDA_SUCCESS)
			return cuda_fail(lane->device, result, "cuEventCreate");
	}
	return 0;
}

/* The context is current. */
static void cuda_streams_destroy(struct kvt__cuda_lane *lane)
{
	const struct kvt__cuda_driver *d = lane->device->driver;

	for (int way = KVT_GATHER; way <= KVT_SCATTER; way++) {
		if (lane->copied[way] != NULL)
			(void)d->cuEventDestroy(lane->copied[way]);
		if (lane->notices[way] != NULL)
			(void)d->cuStreamDestroy(lane->notices[way]);
		if (lane->copies[way] != NULL)
			(void)d->cuStreamDestroy(lane->copies[way]);
	}
	for (int i = 0; i < KVT__CUDA_WAIT_STREAMS; i++)
		if (lane->waits[i].stream != NULL)
			(void)d->cuStreamDestroy(lane->waits[i].stream);
}

void kvt__cuda_lane_close(void *arg)
{
	struct kvt__cuda_lane *lane = arg;
	struct kvt__cuda_device *device = lane->device;
	const struct kvt_host *host = device->host;

	if (kvt__cuda_enter_to_release(device)) {
		cuda_streams_destroy(lane);
		kvt__cuda_leave(device);
	}
	if (lane->capture_mode_set)
		kvt__cuda_capture_mode_restore(device->driver, lane->capture_mode);
	kvt__cuda_port_close(lane);
	host->free(host, lane->targets);
	host->free(host, lane->sources);
	host->free(host, lane->sizes);
	host->free(host, lane);
}

int kvt__cuda_lane_open(void *arg, void (*notify)(void *arg), void *notify_arg, void **lanep)
{
	struct kvt__cuda_device *device = arg;
	struct kvt__cuda_lane *lane;
	char text[KVT__CUDA_TEXT_BYTES];
	int error;

	*lanep = NULL;
	lane = device->host->alloc(device->host, sizeof(*lane), _Alignof(max_align_t));
	if (lane == NULL) {
		device->host->fail(device->host, "cuda:%u: out of memory for a lane",
				   device->ordinal);
		return KVT_ENOMEM;
	}
	memset(lane, 0, sizeof(*lane));
	lane->device = device;
	error = kvt__cuda_watch_start(device);
	if (error == 0)
		error = kvt__cuda_port_create(lane, notify, notify_arg);
	if (error != 0) {
		device->host->free(device->host, lane);
		return error;
	}
	error = kvt__cuda_enter_or_say(device, text, sizeof(text));
	if (error != 0) {
		device->host->fail(device->host, "%s", text);
	} else {
		lane->capture_mode_set =
			kvt__cuda_capture_mode_relax(device->driver, &lane->capture_mode);
		error = cuda_streams_create(lane);
		kvt__cuda_leave(device);
	}
	if (error != 0) {
		kvt__cuda_lane_close(lane);
		return error;
	}
	*lanep = lane;
	return 0;
}

static void cuda_deliver(struct kvt__cuda_lane *lane, struct kvt_device_io *io)
{
	int broken = kvt__cuda_check_broken(lane->device, io->detail_buffer, io->detail_bytes);

	if (broken != 0)
		io->result = broken;
	io->complete(io);
}

/*
 * Fails everything that is in flight on a broken device. The driver has torn its work down when it
 * says that the context is broken; waiting for the streams returns at once then, and is done to be
 * sure that nothing touches the memory any more.
 */
static int cuda_quiesce(struct kvt__cuda_lane *lane)
{
	const struct kvt__cuda_driver *d = lane->device->driver;
	int delivered = 0;

	if (lane->in_flight == NULL)
		return 0;
	if (kvt__cuda_enter_to_release(lane->device)) {
		for (int way = KVT_GATHER; way <= KVT_SCATTER; way++)
			(void)d->cuStreamSynchronize(lane->copies[way]);
		kvt__cuda_leave(lane->device);
	}
	while (lane->in_flight != NULL) {
		struct kvt__cuda_notice *notice = lane->in_flight;
		struct kvt_device_io *io = notice->io;

		kvt__cuda_notice_settle(lane, notice); /* its host function may never run */
		if (io == NULL)
			continue;
		cuda_deliver(lane, io);
		delivered++;
	}
	return delivered;
}

int kvt__cuda_poll(void *arg)
{
	struct kvt__cuda_lane *lane = arg;
	struct kvt__cuda_notice *notice = kvt__cuda_notices_take(lane), *next;
	int delivered = 0;

	/* A notice says that the stream has come so far; whether all went well on the way is told
	 * by the context. */
	if (notice != NULL && kvt__cuda_enter_or_say(lane->device, NULL, 0) == 0) {
		(void)kvt__cuda_is_healthy(lane->device);
		kvt__cuda_leave(lane->device);
	}
	for (; notice != NULL; notice = next) {
		struct kvt_device_io *io = notice->io;

		next = notice->finished_next;
		kvt__cuda_notice_recycle(lane, notice);
		if (io == NULL)
			continue;
		cuda_deliver(lane, io);
		delivered++;
	}
	if (kvt__cuda_check_broken(lane->device, NULL, 0) != 0)
		delivered += cuda_quiesce(lane);
	return delivered;
}
