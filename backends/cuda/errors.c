/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Results of the driver, in words and as codes, and what breaks a device. Some failures stay: the
 * context is gone or corrupt, all later calls fail as well, and what the GPU was doing was torn
 * down. The first of them is kept and told to everybody from then on. Any thread.
 */
#include "cuda_device.h"

#include <stdio.h>
#include <string.h>

static bool cuda_is_sticky(CUresult result)
{
	switch ((int)result) {
	case CUDA_ERROR_DEINITIALIZED:
	case CUDA_ERROR_DEVICE_UNAVAILABLE:
	case CUDA_ERROR_INVALID_CONTEXT:
	case CUDA_ERROR_ECC_UNCORRECTABLE:
	case CUDA_ERROR_NVLINK_UNCORRECTABLE:
	case CUDA_ERROR_CONTAINED:
	case CUDA_ERROR_ILLEGAL_ADDRESS:
	case CUDA_ERROR_LAUNCH_TIMEOUT:
	case CUDA_ERROR_CONTEXT_IS_DESTROYED:
	case CUDA_ERROR_ASSERT:
	case CUDA_ERROR_HARDWARE_STACK_ERROR:
	case CUDA_ERROR_ILLEGAL_INSTRUCTION:
	case CUDA_ERROR_MISALIGNED_ADDRESS:
	case CUDA_ERROR_INVALID_ADDRESS_SPACE:
	case CUDA_ERROR_INVALID_PC:
	case CUDA_ERROR_LAUNCH_FAILED:
	case CUDA_ERROR_TENSOR_MEMORY_LEAK:
	case CUDA_ERROR_MPS_RPC_FAILURE:
	case CUDA_ERROR_MPS_CLIENT_TERMINATED:
	case CUDA_ERROR_EXTERNAL_DEVICE:
	case CUDA_ERROR_UNKNOWN:
		return true;
	default:
		return false;
	}
}

const char *kvt__cuda_result_text(const struct kvt__cuda_driver *driver, CUresult result,
				  char *text, size_t bytes)
{
	const char *name = NULL, *words = NULL;

	if (driver != NULL) {
		(void)driver->cuGetErrorName(result, &name);
		(void)driver->cuGetErrorString(result, &words);
	}
	if (name == NULL)
		(void)snprintf(text, bytes, "CUDA error %d", (int)result);
	else
		(void)snprintf(text, bytes, "%s (%s)", name, words != NULL ? words : "no text");
	return text;
}

static void cuda_break(struct kvt__cuda_device *device, const char *why)
{
	bool first;

	pthread_mutex_lock(&device->lock);
	first = !atomic_load(&device->broken);
	if (first) {
		(void)snprintf(device->broken_text, sizeof(device->broken_text),
			       "cuda:%u: broken, no job is taken until the process is started "
			       "anew: %.220s",
			       device->ordinal, why);
		atomic_store(&device->broken, true);
	}
	pthread_mutex_unlock(&device->lock);
	if (!first)
		return;
	device->host->log(device->host, KVT_HOST_ERROR, "cuda", "%s", device->broken_text);
	kvt__cuda_notify_all(device);
}

/* "WHAT: RESULT"; returns the code. */
static int cuda_say(struct kvt__cuda_device *device, CUresult result, const char *what, char *text,
		    size_t bytes)
{
	char name[160];

	(void)snprintf(text, bytes, "%s: %s", what,
		       kvt__cuda_result_text(device->driver, result, name, sizeof(name)));
	return result == CUDA_ERROR_OUT_OF_MEMORY ? KVT_ENOMEM : KVT_EDEVICE;
}

int kvt__cuda_failed(struct kvt__cuda_device *device, CUresult result, const char *what, char *text,
		     size_t bytes)
{
	char line[KVT__CUDA_TEXT_BYTES];
	int code = cuda_say(device, result, what, line, sizeof(line));

	if (cuda_is_sticky(result))
		cuda_break(device, line);
	if (text != NULL)
		(void)snprintf(text, bytes, "cuda:%u: %s", device->ordinal, line);
	return code;
}

int kvt__cuda_handle_failed(struct kvt__cuda_device *device, CUresult result, const char *what,
			    char *text, size_t bytes)
{
	char line[KVT__CUDA_TEXT_BYTES];
	int code = cuda_say(device, result, what, line, sizeof(line));

	if (text != NULL)
		(void)snprintf(text, bytes, "cuda:%u: %s", device->ordinal, line);
	if (cuda_is_sticky(result)) {
		/* It may be the context of the handle, on another device, that is gone. */
		(void)kvt__cuda_is_healthy(device);
		return KVT_EDEVICE;
	}
	return code == KVT_ENOMEM ? code : KVT_EINVAL;
}

int kvt__cuda_check_broken(const struct kvt__cuda_device *device, char *text, size_t bytes)
{
	if (!atomic_load(&device->broken))
		return 0;
	if (text != NULL)
		(void)snprintf(text, bytes, "%s", device->broken_text);
	return KVT_EDEVICE;
}

bool kvt__cuda_is_healthy(struct kvt__cuda_device *device)
{
	CUresult result;

	if (atomic_load(&device->broken))
		return false;
	result = device->driver->cuEventQuery(device->health);
	if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY)
		(void)kvt__cuda_failed(device, result, "cuEventQuery", NULL, 0);
	return !atomic_load(&device->broken);
}
