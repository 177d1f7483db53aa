/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA device: opened on the primary context of one ordinal, the context that the CUDA runtime
 * and what stands on it use too. */
#include "cuda_device.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void cuda_sync_init(struct kvt__cuda_device *device)
{
	pthread_condattr_t attributes;

	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&device->watch_changed, &attributes);
	pthread_condattr_destroy(&attributes);
	pthread_mutex_init(&device->lock, NULL);
}

static int cuda_fail(struct kvt__cuda_device *device, CUresult result, const char *what)
{
	char text[KVT__CUDA_TEXT_BYTES];
	int error = kvt__cuda_failed(device, result, what, text, sizeof(text));

	device->host->fail(device->host, "%s", text);
	return error;
}

static int cuda_find(struct kvt__cuda_device *device)
{
	const struct kvt__cuda_driver *d = device->driver;
	int count = 0;
	CUresult result = d->cuDeviceGetCount(&count);

	if (result != CUDA_SUCCESS)
		return cuda_fail(device, result, "cuDeviceGetCount");
	if (count == 0) {
		device->host->fail(device->host, "cuda: no device is visible to this process");
		return KVT_EDEVICE;
	}
	if (device->ordinal >= (unsigned)count) {
		device->host->fail(device->host, "cuda: ordinal: %u, expected 0 to %d",
				   device->ordinal, count - 1);
		return KVT_EINVAL;
	}
	result = d->cuDeviceGet(&device->handle, (int)device->ordinal);
	return result == CUDA_SUCCESS ? 0 : cuda_fail(device, result, "cuDeviceGet");
}

/* What is not needed, but makes it faster or kinder to others. */
static void cuda_look_around(struct kvt__cuda_device *device)
{
	char pci_id[32] = "";
	int greatest;

	device->node = -1;
	if (device->driver->cuDeviceGetPCIBusId(pci_id, sizeof(pci_id), device->handle) ==
	    CUDA_SUCCESS)
		device->node = kvt__cuda_node_of(pci_id);
	if (device->driver->cuCtxGetStreamPriorityRange(&device->least_priority, &greatest) !=
	    CUDA_SUCCESS)
		device->least_priority = 0;
}

static int cuda_begin(struct kvt__cuda_device *device)
{
	const struct kvt__cuda_driver *d = device->driver;
	const char *what = "cuDevicePrimaryCtxRetain";
	CUresult result = d->cuDevicePrimaryCtxRetain(&device->context, device->handle);
	int error;

	if (result != CUDA_SUCCESS)
		return cuda_fail(device, result, what);
	what = "cuCtxPushCurrent";
	result = kvt__cuda_enter(device);
	if (result == CUDA_SUCCESS) {
		what = "cuEventCreate";
		result = d->cuEventCreate(&device->health, CU_EVENT_DISABLE_TIMING);
		if (result == CUDA_SUCCESS) {
			/* A context that others have broken says so now. */
			what = "cuEventQuery";
			result = d->cuEventQuery(device->health);
		}
		if (result == CUDA_SUCCESS)
			cuda_look_around(device);
		else if (device->health != NULL)
			(void)d->cuEventDestroy(device->health);
		kvt__cuda_leave(device);
	}
	if (result == CUDA_SUCCESS)
		return 0;
	error = cuda_fail(device, result, what);
	(void)d->cuDevicePrimaryCtxRelease(device->handle);
	return error;
}

static void cuda_free(struct kvt__cuda_device *device)
{
	const struct kvt_host *host = device->host;

	pthread_cond_destroy(&device->watch_changed);
	pthread_mutex_destroy(&device->lock);
	host->free(host, device);
}

static int cuda_open(const struct kvt_host *host, uint32_t ordinal, void **devicep)
{
	char detail[KVT__CUDA_TEXT_BYTES] = "";
	const struct kvt__cuda_driver *driver = kvt__cuda_driver_load(detail, sizeof(detail), NULL);
	struct kvt__cuda_device *device;
	int error;

	*devicep = NULL;
	if (driver == NULL) {
		host->fail(host, "cuda: %s", detail);
		return KVT_EDEVICE;
	}
	device = host->alloc(host, sizeof(*device), _Alignof(max_align_t));
	if (device == NULL) {
		host->fail(host, "cuda: out of memory");
		return KVT_ENOMEM;
	}
	memset(device, 0, sizeof(*device));
	device->host = host;
	device->driver = driver;
	device->ordinal = ordinal;
	device->pid = getpid();
	cuda_sync_init(device);
	error = cuda_find(device);
	if (error == 0)
		error = cuda_begin(device);
	if (error != 0) {
		cuda_free(device);
		return error;
	}
	*devicep = device;
	return 0;
}

static void cuda_close(void *arg)
{
	struct kvt__cuda_device *device = arg;

	kvt__cuda_watch_stop(device);
	if (kvt__cuda_enter_to_release(device)) {
		kvt__cuda_marks_fini(device);
		(void)device->driver->cuEventDestroy(device->health);
		kvt__cuda_leave(device);
	}
	(void)device->driver->cuDevicePrimaryCtxRelease(device->handle);
	cuda_free(device);
}

/* CUDA is of no use in the child of a fork: only memory is given back. The mutex may be held by a
 * thread that the child does not have. */
static void cuda_forked(void *arg)
{
	struct kvt__cuda_device *device = arg;
	const struct kvt_host *host = device->host;

	for (struct kvt__cuda_region *r = device->regions, *next; r != NULL; r = next) {
		next = r->next;
		host->free(host, r);
	}
	host->free(host, device);
}

const struct kvt_device_ops kvt__cuda_device_ops = {
	.struct_size = sizeof(struct kvt_device_ops),
	.abi = KVT_DEVICE_ABI,
	.capabilities = KVT_DEVICE_STREAM_ORDER,
	.name = "cuda",
	.open = cuda_open,
	.close = cuda_close,
	.staging_alloc = kvt__cuda_staging_alloc,
	.staging_free = kvt__cuda_staging_free,
	.lane_open = kvt__cuda_lane_open,
	.lane_close = kvt__cuda_lane_close,
	.check = kvt__cuda_check,
	.order = kvt__cuda_order,
	.order_cancel = kvt__cuda_order_cancel,
	.copy = kvt__cuda_copy,
	.poll = kvt__cuda_poll,
	.forked = cuda_forked,
	.check_begin = kvt__cuda_check_begin,
	.staging_register = kvt__cuda_staging_register,
	.staging_unregister = kvt__cuda_staging_unregister,
	.mark = kvt__cuda_mark,
	.mark_query = kvt__cuda_mark_query,
	.mark_release = kvt__cuda_mark_release,
	.probe = kvt__cuda_probe,
};
