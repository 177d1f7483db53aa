/* SPDX-License-Identifier: Apache-2.0 */
/* The primary context, current for the time of one call. Any thread. */
#include "cuda_device.h"

CUresult kvt__cuda_enter(struct kvt__cuda_device *device)
{
	return device->driver->cuCtxPushCurrent(device->context);
}

void kvt__cuda_leave(struct kvt__cuda_device *device)
{
	CUcontext popped;

	(void)device->driver->cuCtxPopCurrent(&popped); /* what enter pushed */
}

bool kvt__cuda_enter_to_release(struct kvt__cuda_device *device)
{
	return kvt__cuda_enter(device) == CUDA_SUCCESS || kvt__cuda_enter(device) == CUDA_SUCCESS;
}

int kvt__cuda_enter_or_say(struct kvt__cuda_device *device, char *text, size_t bytes)
{
	int error = kvt__cuda_check_broken(device, text, bytes);
	CUresult result;

	if (error != 0)
		return error;
	result = kvt__cuda_enter(device);
	if (result == CUDA_SUCCESS)
		return 0;
	return kvt__cuda_failed(device, result, "cuCtxPushCurrent", text, bytes);
}

bool kvt__cuda_capture_mode_relax(const struct kvt__cuda_driver *driver, CUstreamCaptureMode *oldp)
{
	*oldp = CU_STREAM_CAPTURE_MODE_RELAXED;
	return driver->cuThreadExchangeStreamCaptureMode != NULL &&
	       driver->cuThreadExchangeStreamCaptureMode(oldp) == CUDA_SUCCESS;
}

void kvt__cuda_capture_mode_restore(const struct kvt__cuda_driver *driver, CUstreamCaptureMode old)
{
	(void)driver->cuThreadExchangeStreamCaptureMode(&old);
}
