/* SPDX-License-Identifier: Apache-2.0 */
/* Events on the caller's streams, taken from a pool. Any thread, several at once. */
#include "cuda_device.h"

#include <stdio.h>

static int cuda_fail(struct kvt__cuda_device *device, int error, const char *text)
{
	device->host->fail(device->host, "%s", text);
	return error;
}

/* NULL when the pool is empty. */
static CUevent cuda_event_take(struct kvt__cuda_device *device)
{
	CUevent event = NULL;

	pthread_mutex_lock(&device->lock);
	if (device->event_count > 0)
		event = device->events[--device->event_count];
	pthread_mutex_unlock(&device->lock);
	return event;
}

/* False when the pool is full. */
static bool cuda_event_keep(struct kvt__cuda_device *device, CUevent event)
{
	bool kept;

	pthread_mutex_lock(&device->lock);
	kept = device->event_count < KVT__CUDA_FREE_MARKS;
	if (kept)
		device->events[device->event_count++] = event;
	pthread_mutex_unlock(&device->lock);
	return kept;
}

static void cuda_event_give(struct kvt__cuda_device *device, CUevent event)
{
	if (!cuda_event_keep(device, event))
		(void)device->driver->cuEventDestroy(event);
}

/* A stream that is being captured is no stream to wait for: what it is given does not run. */
static int cuda_check_stream(struct kvt__cuda_device *device, CUstream stream, char *text,
			     size_t bytes)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	CUresult result;

	if (device->driver->cuStreamIsCapturing == NULL)
		return 0;
	result = device->driver->cuStreamIsCapturing(stream, &status);
	if (result != CUDA_SUCCESS)
		return kvt__cuda_handle_failed(device, result, "stream: cuStreamIsCapturing", text,
					       bytes);
	if (status == CU_STREAM_CAPTURE_STATUS_NONE)
		return 0;
	(void)snprintf(text, bytes,
		       "cuda:%u: stream: is being captured into a graph, expected one that runs",
		       device->ordinal);
	return KVT_EINVAL;
}

static int cuda_mark(struct kvt__cuda_device *device, CUstream stream, CUevent *eventp, char *text,
		     size_t bytes)
{
	CUevent event;
	CUresult result;
	int error = cuda_check_stream(device, stream, text, bytes);

	if (error != 0)
		return error;
	event = cuda_event_take(device);
	if (event == NULL) {
		result = device->driver->cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
		if (result != CUDA_SUCCESS)
			return kvt__cuda_failed(device, result, "cuEventCreate", text, bytes);
	}
	result = device->driver->cuEventRecord(event, stream);
	if (result != CUDA_SUCCESS) {
		error = kvt__cuda_handle_failed(device, result, "stream: cuEventRecord", text,
						bytes);
		cuda_event_give(device, event);
		return error;
	}
	*eventp = event;
	return 0;
}

int kvt__cuda_mark(void *arg, void *stream, void **eventp)
{
	struct kvt__cuda_device *device = arg;
	char text[KVT__CUDA_TEXT_BYTES] = "";
	CUstreamCaptureMode mode;
	CUevent event = NULL;
	bool relaxed;
	int error;

	*eventp = NULL;
	/* The context decides whose legacy default stream is meant: pushed even when the caller has
	 * one. */
	error = kvt__cuda_enter_or_say(device, text, sizeof(text));
	if (error != 0)
		return cuda_fail(device, error, text);
	relaxed = kvt__cuda_capture_mode_relax(device->driver, &mode);
	error = cuda_mark(device, stream, &event, text, sizeof(text));
	if (relaxed)
		kvt__cuda_capture_mode_restore(device->driver, mode);
	kvt__cuda_leave(device);
	if (error != 0)
		return cuda_fail(device, error, text);
	*eventp = event;
	return 0;
}

int kvt__cuda_mark_query(void *arg, void *event)
{
	struct kvt__cuda_device *device = arg;
	char text[KVT__CUDA_TEXT_BYTES];
	CUstreamCaptureMode mode;
	CUresult result;
	bool relaxed;
	int error = kvt__cuda_enter_or_say(device, text, sizeof(text));

	if (error != 0)
		return cuda_fail(device, error, text);
	relaxed = kvt__cuda_capture_mode_relax(device->driver, &mode);
	result = device->driver->cuEventQuery(event);
	if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY)
		error = kvt__cuda_failed(device, result, "cuEventQuery", text, sizeof(text));
	if (relaxed)
		kvt__cuda_capture_mode_restore(device->driver, mode);
	kvt__cuda_leave(device);
	if (error != 0)
		return cuda_fail(device, KVT_EDEVICE, text);
	return result == CUDA_SUCCESS;
}

void kvt__cuda_mark_release(void *arg, void *event)
{
	struct kvt__cuda_device *device = arg;

	/* What waits for it has taken note of the recording, so it may be recorded anew. */
	if (cuda_event_keep(device, event) || !kvt__cuda_enter_to_release(device))
		return;
	(void)device->driver->cuEventDestroy(event);
	kvt__cuda_leave(device);
}

void kvt__cuda_marks_fini(struct kvt__cuda_device *device)
{
	while (device->event_count > 0)
		(void)device->driver->cuEventDestroy(device->events[--device->event_count]);
}
