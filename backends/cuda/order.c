/* SPDX-License-Identifier: Apache-2.0 */
/*
 * After the caller's event. Copies wait on the lane's stream of their direction, which costs the
 * CPU nothing. Where the CPU or storage touches the memory itself, a host function behind the event
 * tells the lane; it has a stream apart from the copies', which it must not hold up. On the lane's
 * thread.
 */
#include "cuda_device.h"

#include <stdio.h>

static int cuda_refuse(struct kvt_device_io *io, const char *text)
{
	if (io->detail_buffer != NULL)
		(void)snprintf(io->detail_buffer, io->detail_bytes, "%s", text);
	return KVT_EINVAL;
}

/* The least busy one; a new one while all are busy and there is room. */
static struct kvt__cuda_wait_stream *cuda_wait_stream(struct kvt__cuda_lane *lane,
						      struct kvt_device_io *io, int *errorp)
{
	struct kvt__cuda_device *device = lane->device;
	struct kvt__cuda_wait_stream *best = NULL;
	CUresult result;

	for (int i = 0; i < KVT__CUDA_WAIT_STREAMS; i++) {
		struct kvt__cuda_wait_stream *w = &lane->waits[i];

		if (w->stream == NULL) {
			if (best != NULL && best->pending == 0)
				break;
			result = device->driver->cuStreamCreateWithPriority(
				&w->stream, CU_STREAM_NON_BLOCKING, device->least_priority);
			if (result == CUDA_SUCCESS)
				return w;
			w->stream = NULL;
			if (best != NULL)
				break;
			*errorp = kvt__cuda_failed(device, result, "cuStreamCreateWithPriority",
						   io->detail_buffer, io->detail_bytes);
			return NULL;
		}
		if (best == NULL || w->pending < best->pending)
			best = w;
	}
	return best;
}

static int cuda_order_cpu(struct kvt__cuda_lane *lane, CUevent event, struct kvt_device_io *io)
{
	struct kvt__cuda_device *device = lane->device;
	struct kvt__cuda_notice *notice;
	int error = 0;
	struct kvt__cuda_wait_stream *wait = cuda_wait_stream(lane, io, &error);
	CUresult result;

	if (wait == NULL)
		return error;
	result = device->driver->cuStreamWaitEvent(wait->stream, event, 0);
	if (result != CUDA_SUCCESS)
		return kvt__cuda_handle_failed(device, result, "ready event: cuStreamWaitEvent",
					       io->detail_buffer, io->detail_bytes);
	notice = kvt__cuda_notice_launch(lane, wait->stream, io, &error);
	if (notice == NULL)
		return error;
	notice->wait = wait;
	wait->pending++;
	return KVT_DEVICE_QUEUED;
}

static int cuda_order_event(struct kvt__cuda_lane *lane, CUevent event, int for_cpu,
			    struct kvt_device_io *io)
{
	struct kvt__cuda_device *device = lane->device;
	CUresult result = device->driver->cuEventQuery(event);

	if (result == CUDA_SUCCESS) /* what lies behind it need not wait for anything */
		return KVT_DEVICE_DONE;
	if (result != CUDA_ERROR_NOT_READY)
		return kvt__cuda_handle_failed(device, result, "ready event: cuEventQuery",
					       io->detail_buffer, io->detail_bytes);
	if (for_cpu)
		return cuda_order_cpu(lane, event, io);
	result = device->driver->cuStreamWaitEvent(lane->copies[io->direction], event, 0);
	if (result != CUDA_SUCCESS)
		return kvt__cuda_handle_failed(device, result, "ready event: cuStreamWaitEvent",
					       io->detail_buffer, io->detail_bytes);
	return KVT_DEVICE_DONE;
}

int kvt__cuda_order(void *arg, const struct kvt_ready *ready, int for_cpu, struct kvt_device_io *io)
{
	struct kvt__cuda_lane *lane = arg;
	int answer;

	if (ready->kind != KVT_READY_EVENT)
		return cuda_refuse(io,
				   ready->kind == KVT_READY_FD
					   ? "ready kind: a descriptor, expected an event or a "
					     "stream with CUDA memory"
					   : "ready kind: expected an event, as mark() makes of "
					     "a stream");
	if (ready->handle == NULL)
		return cuda_refuse(io, "ready handle: NULL, expected a CUevent");
	io->result = 0;
	answer = kvt__cuda_enter_or_say(lane->device, io->detail_buffer, io->detail_bytes);
	if (answer != 0)
		return answer;
	answer = cuda_order_event(lane, ready->handle, for_cpu, io);
	kvt__cuda_leave(lane->device);
	return answer;
}

int kvt__cuda_order_cancel(void *arg, struct kvt_device_io *io)
{
	struct kvt__cuda_lane *lane = arg;

	for (struct kvt__cuda_notice *n = lane->in_flight; n != NULL; n = n->next) {
		if (n->io != io)
			continue;
		if (n->wait == NULL || atomic_load(&n->finished))
			return KVT_EBUSY;
		/* Its host function finds nobody who wants to know. */
		kvt__cuda_notice_settle(lane, n);
		return 0;
	}
	return KVT_EBUSY;
}
