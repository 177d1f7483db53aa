/* SPDX-License-Identifier: Apache-2.0 */
/* What there is of CUDA on this machine, for people: the driver, every device that the process may
 * see, and whether the one that was asked for can be used. On the asking thread. */
#include "cuda_device.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define PROBED_STAGING_BYTES (UINT64_C(1) << 20)

struct cuda_prober {
	const struct kvt_host *host;
	const struct kvt__cuda_driver *driver;
	kvt_device_say_fn say;
	void *context;
	uint32_t ordinal;
};

static void cuda_tell(const struct cuda_prober *p, const char *name, int error, const char *format,
		      ...) KVT_PRINTF(4, 5);

static void cuda_tell(const struct cuda_prober *p, const char *name, int error, const char *format,
		      ...)
{
	char value[KVT__CUDA_TEXT_BYTES];
	va_list arguments;

	va_start(arguments, format);
	(void)vsnprintf(value, sizeof(value), format, arguments);
	va_end(arguments);
	p->say(p->context, name, value, error);
}

static void cuda_tell_driver(const struct cuda_prober *p)
{
	const struct kvt__cuda_driver *d = p->driver;

	cuda_tell(p, "driver", 0, "libcuda.so.1 for CUDA %d.%d", d->version / 1000,
		  d->version % 1000 / 10);
	if (d->batch_13000 != NULL || d->batch_12080 != NULL)
		cuda_tell(p, "batch_copies", 0, "cuMemcpyBatchAsync as of CUDA %s",
			  d->batch_13000 != NULL ? "13.0" : "12.8");
	else
		cuda_tell(p, "batch_copies", 0,
			  "missing, comes with CUDA 12.8: copies are started one by one");
	cuda_tell(p, "graph_captures", 0, "%s",
		  d->cuThreadExchangeStreamCaptureMode != NULL && d->cuStreamIsCapturing != NULL
			  ? "left alone"
			  : "missing in the driver: a capture elsewhere in the process may be "
			    "spoiled");
}

static int cuda_attribute(const struct cuda_prober *p, CUdevice device, CUdevice_attribute what)
{
	int value = 0;

	return p->driver->cuDeviceGetAttribute(&value, what, device) == CUDA_SUCCESS ? value : 0;
}

static void cuda_tell_device(const struct cuda_prober *p, int ordinal)
{
	const struct kvt__cuda_driver *d = p->driver;
	char name[128] = "", pci_id[32] = "", label[32], text[160];
	CUdevice device = 0;
	size_t bytes = 0;
	CUresult result = d->cuDeviceGet(&device, ordinal);
	int engines, node;

	(void)snprintf(label, sizeof(label), "device_%d", ordinal);
	if (result == CUDA_SUCCESS)
		result = d->cuDeviceGetName(name, sizeof(name), device);
	if (result == CUDA_SUCCESS)
		result = d->cuDeviceTotalMem(&bytes, device);
	if (result == CUDA_SUCCESS)
		result = d->cuDeviceGetPCIBusId(pci_id, sizeof(pci_id), device);
	if (result != CUDA_SUCCESS) {
		cuda_tell(p, label, KVT_EDEVICE, "%s",
			  kvt__cuda_result_text(d, result, text, sizeof(text)));
		return;
	}
	engines = cuda_attribute(p, device, CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT);
	node = kvt__cuda_node_of(pci_id);
	(void)snprintf(text, sizeof(text), node >= 0 ? "NUMA node %d" : "NUMA node unknown", node);
	cuda_tell(p, label, 0, "%s, compute %d.%d, %llu MiB, %d copy engine%s, PCI %s, %s", name,
		  cuda_attribute(p, device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
		  cuda_attribute(p, device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
		  (unsigned long long)bytes >> 20, engines, engines == 1 ? "" : "s", pci_id, text);
}

static int cuda_tell_devices(const struct cuda_prober *p)
{
	char text[160];
	int count = 0;
	CUresult result = p->driver->cuDeviceGetCount(&count);

	if (result != CUDA_SUCCESS) {
		kvt__cuda_result_text(p->driver, result, text, sizeof(text));
		cuda_tell(p, "devices", KVT_EDEVICE, "cuDeviceGetCount: %s", text);
		p->host->fail(p->host, "cuda: cuDeviceGetCount: %s", text);
		return KVT_EDEVICE;
	}
	cuda_tell(p, "devices", count == 0 ? KVT_EDEVICE : 0, "%d", count);
	for (int i = 0; i < count; i++)
		cuda_tell_device(p, i);
	return 0;
}

static void cuda_nobody(void *arg)
{
	(void)arg;
}

/* What a worker needs, on the open device. */
static int cuda_try(const struct cuda_prober *p, struct kvt__cuda_device *device)
{
	size_t free_bytes = 0, total_bytes = 0;
	void *memory, *lane;
	int error;

	if (kvt__cuda_enter(device) == CUDA_SUCCESS) {
		if (device->driver->cuMemGetInfo(&free_bytes, &total_bytes) == CUDA_SUCCESS)
			cuda_tell(p, "memory", 0, "%zu of %zu MiB free", free_bytes >> 20,
				  total_bytes >> 20);
		kvt__cuda_leave(device);
	}
	error = kvt__cuda_staging_alloc(device, PROBED_STAGING_BYTES, &memory);
	cuda_tell(p, "pinned_memory", error, error == 0 ? "works" : "refused");
	if (error != 0)
		return error;
	error = kvt__cuda_lane_open(device, cuda_nobody, NULL, &lane);
	cuda_tell(p, "streams", error, error == 0 ? "work, lowest priority %d" : "refused",
		  device->least_priority);
	if (error == 0)
		kvt__cuda_lane_close(lane);
	kvt__cuda_staging_free(device, memory, PROBED_STAGING_BYTES);
	return error;
}

int kvt__cuda_probe(const struct kvt_host *host, uint32_t ordinal, kvt_device_say_fn say,
		    void *context)
{
	struct cuda_prober p = {.host = host, .say = say, .context = context, .ordinal = ordinal};
	char detail[KVT__CUDA_TEXT_BYTES] = "";
	void *device = NULL;
	int error;

	cuda_tell(&p, "headers", 0, "CUDA %d.%d", CUDA_VERSION / 1000, CUDA_VERSION % 1000 / 10);
	p.driver = kvt__cuda_driver_load(detail, sizeof(detail), NULL);
	if (p.driver == NULL) {
		cuda_tell(&p, "driver", KVT_EDEVICE, "%s", detail);
		host->fail(host, "cuda: %s", detail);
		return KVT_EDEVICE;
	}
	cuda_tell_driver(&p);
	error = cuda_tell_devices(&p);
	if (error != 0)
		return error;
	error = kvt__cuda_device_ops.open(host, ordinal, &device);
	cuda_tell(&p, "ordinal", error, "%u", ordinal);
	if (error != 0)
		return error;
	error = cuda_try(&p, device);
	kvt__cuda_device_ops.close(device);
	return error;
}
