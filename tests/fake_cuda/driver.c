/* SPDX-License-Identifier: Apache-2.0 */
/* The fake driver itself: its entry points and how they are found, errors, devices, contexts. */
#include "internal.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct fake_driver fake = {
	.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER, .random = 1};

static pthread_key_t thread_key;
static uint64_t last_thread_number;

/* ---- The calling thread ---- */

static void thread_ended(void *state)
{
	struct fake_thread *thread = state;

	if (thread->depth != 0 && thread->pushed != 0) {
		pthread_mutex_lock(&fake.lock);
		fake__violation_locked("a thread ended with %d contexts pushed and not popped",
				       thread->pushed);
		pthread_mutex_unlock(&fake.lock);
	}
	free(thread);
}

static void before_fork(void)
{
	pthread_mutex_lock(&fake.lock);
}

static void after_fork(void)
{
	pthread_mutex_unlock(&fake.lock);
}

static void init_changed(void)
{
	pthread_condattr_t attributes;

	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&fake.changed, &attributes);
	pthread_condattr_destroy(&attributes);
}

/* The threads that wait are not in the child. */
static void after_fork_in_child(void)
{
	init_changed();
	after_fork();
}

__attribute__((constructor)) static void library_loaded(void)
{
	init_changed();
	/* A child may ask for the counts. */
	if (pthread_key_create(&thread_key, thread_ended) != 0 ||
	    pthread_atfork(before_fork, after_fork, after_fork_in_child) != 0)
		abort();
	fake_cuda_control()->reset();
}

struct fake_thread *fake__thread(void)
{
	struct fake_thread *thread = pthread_getspecific(thread_key);

	if (thread == NULL) {
		thread = calloc(1, sizeof(*thread));
		if (thread == NULL || pthread_setspecific(thread_key, thread) != 0)
			abort();
		thread->number = __atomic_add_fetch(&last_thread_number, 1, __ATOMIC_RELAXED);
	}
	return thread;
}

struct CUctx_st *fake__current(void)
{
	struct fake_thread *thread = fake__thread();

	return thread->depth != 0 ? thread->stack[thread->depth - 1] : NULL;
}

void fake__violation_locked(const char *format, ...)
{
	va_list args;

	if (fake.violation[0] != '\0')
		return;
	va_start(args, format);
	vsnprintf(fake.violation, sizeof(fake.violation), format, args);
	va_end(args);
}

/* ---- Every call ---- */

bool fake__is_sticky(CUresult result)
{
	switch (result) {
	case CUDA_ERROR_ILLEGAL_ADDRESS:
	case CUDA_ERROR_CONTEXT_IS_DESTROYED:
	case CUDA_ERROR_ECC_UNCORRECTABLE:
	case CUDA_ERROR_LAUNCH_FAILED:
	case CUDA_ERROR_HARDWARE_STACK_ERROR:
	case CUDA_ERROR_MISALIGNED_ADDRESS:
	case CUDA_ERROR_ASSERT:
	case CUDA_ERROR_UNKNOWN:
		return true;
	default:
		return false;
	}
}

static CUresult fault_locked(const char *name)
{
	unsigned times = fake.fault_times;

	if (fake.fault_nth == 0 || (fake.fault_name[0] && strcmp(fake.fault_name, name) != 0))
		return CUDA_SUCCESS;
	fake.fault_seen++;
	if (fake.fault_seen < fake.fault_nth ||
	    (times != 0 && fake.fault_seen >= fake.fault_nth + times))
		return CUDA_SUCCESS;
	fake.fault_done++;
	fake.counts.faults++;
	snprintf(fake.last_fault, sizeof(fake.last_fault), "%s", name);
	return fake.fault_result;
}

CUresult fake__enter(const char *name, enum fake_need need)
{
	struct fake_thread *thread = fake__thread();
	struct CUctx_st *context = fake__current();
	CUresult result;

	pthread_mutex_lock(&fake.lock);
	if (thread->in_host_function) {
		fake__violation_locked("%s called inside a host function", name);
		return CUDA_ERROR_NOT_PERMITTED;
	}
	fake.counts.calls++;
	result = fault_locked(name);
	if (result != CUDA_SUCCESS && context != NULL && fake__is_sticky(result))
		fake__lose_locked(context, result);
	if (result == CUDA_SUCCESS && need != FAKE_NOTHING && !fake.initialised)
		result = CUDA_ERROR_NOT_INITIALIZED;
	if (result != CUDA_SUCCESS || need != FAKE_CONTEXT)
		return result;
	if (context == NULL) {
		fake__violation_locked("%s called without a context", name);
		return CUDA_ERROR_INVALID_CONTEXT;
	}
	if (context->refs == 0)
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	/* A context that is lost says so once nothing moves any more. */
	while (context->sticky != CUDA_SUCCESS && fake.running != 0)
		pthread_cond_wait(&fake.changed, &fake.lock);
	return context->sticky;
}

CUresult fake__leave(CUresult result)
{
	pthread_mutex_unlock(&fake.lock);
	return result;
}

void fake__lose_locked(struct CUctx_st *context, CUresult result)
{
	if (context->sticky == CUDA_SUCCESS)
		context->sticky = result;
	pthread_cond_broadcast(&fake.changed);
}

/* ---- Errors ---- */

static const struct error_text {
	CUresult result;
	const char *name, *text;
} error_texts[] = {
	{CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
	{CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
	{CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
	{CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
	{CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
	{CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
	{CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
	{CUDA_ERROR_ECC_UNCORRECTABLE, "CUDA_ERROR_ECC_UNCORRECTABLE",
	 "uncorrectable ECC error encountered"},
	{CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
	{CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
	{CUDA_ERROR_NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
	{CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS",
	 "an illegal memory access was encountered"},
	{CUDA_ERROR_CONTEXT_IS_DESTROYED, "CUDA_ERROR_CONTEXT_IS_DESTROYED",
	 "context is destroyed"},
	{CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED",
	 "part or all of the requested memory range is already mapped"},
	{CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED",
	 "pointer does not correspond to a registered memory region"},
	{CUDA_ERROR_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
	{CUDA_ERROR_NOT_PERMITTED, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted"},
	{CUDA_ERROR_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
	{CUDA_ERROR_UNKNOWN, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

static CUresult error_text(CUresult error, const char **name, const char **text)
{
	for (size_t i = 0; i < sizeof(error_texts) / sizeof(error_texts[0]); i++)
		if (error_texts[i].result == error) {
			*name = error_texts[i].name;
			*text = error_texts[i].text;
			return CUDA_SUCCESS;
		}
	*name = NULL;
	*text = NULL;
	return CUDA_ERROR_INVALID_VALUE;
}

FAKE_EXPORT CUresult CUDAAPI cuGetErrorName(CUresult error, const char **name)
{
	CUresult result = fake__enter("cuGetErrorName", FAKE_NOTHING);
	const char *text;

	if (result == CUDA_SUCCESS)
		result = error_text(error, name, &text);
	return fake__leave(result);
}

FAKE_EXPORT CUresult CUDAAPI cuGetErrorString(CUresult error, const char **text)
{
	CUresult result = fake__enter("cuGetErrorString", FAKE_NOTHING);
	const char *name;

	if (result == CUDA_SUCCESS)
		result = error_text(error, &name, text);
	return fake__leave(result);
}

/* ---- The driver ---- */

FAKE_EXPORT CUresult CUDAAPI cuInit(unsigned int flags)
{
	CUresult result = fake__enter("cuInit", FAKE_NOTHING);

	if (result == CUDA_SUCCESS && flags != 0)
		result = CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS && fake.devices == 0)
		result = CUDA_ERROR_NO_DEVICE;
	if (result == CUDA_SUCCESS)
		fake.initialised = true;
	return fake__leave(result);
}

FAKE_EXPORT CUresult CUDAAPI cuDriverGetVersion(int *version)
{
	CUresult result = fake__enter("cuDriverGetVersion", FAKE_NOTHING);

	if (result == CUDA_SUCCESS)
		*version = fake.version;
	return fake__leave(result);
}

/* ---- Devices ---- */

FAKE_EXPORT CUresult CUDAAPI cuDeviceGetCount(int *count)
{
	CUresult result = fake__enter("cuDeviceGetCount", FAKE_INIT);

	if (result == CUDA_SUCCESS)
		*count = fake.devices;
	return fake__leave(result);
}

FAKE_EXPORT CUresult CUDAAPI cuDeviceGet(CUdevice *device, int ordinal)
{
	CUresult result = fake__enter("cuDeviceGet", FAKE_INIT);

	if (result == CUDA_SUCCESS && (ordinal < 0 || ordinal >= fake.devices))
		result = CUDA_ERROR_INVALID_DEVICE;
	if (result == CUDA_SUCCESS)
		*device = ordinal;
	return fake__leave(result);
}

/* Enters a call about a device. */
static CUresult enter_device(const char *name, CUdevice device)
{
	CUresult result = fake__enter(name, FAKE_INIT);

	if (result == CUDA_SUCCESS && (device < 0 || device >= fake.devices))
		result = CUDA_ERROR_INVALID_DEVICE;
	return result;
}

FAKE_EXPORT CUresult CUDAAPI cuDeviceGetName(char *name, int bytes, CUdevice device)
{
	CUresult result = enter_device("cuDeviceGetName", device);

	if (result == CUDA_SUCCESS)
		snprintf(name, (size_t)bytes, "fake GPU %d", device);
	return fake__leave(result);
}

FAKE_EXPORT CUresult CUDAAPI cuDeviceGetPCIBusId(char *name, int bytes, CUdevice device)
{
	CUresult result = enter_device("cuDeviceGetPCIBusId", device);

	if (result == CUDA_SUCCESS)
		snprintf(name, (size_t)bytes, "0000:%02X:00.0", 0xF0 + device);
	return fake__leave(result);
}

FAKE_EXPORT CUresult CUDAAPI cuDeviceTotalMem(size_t *bytes, CUdevice device)
{
	CUresult result = enter_device("cuDeviceTotalMem", device);

	if (result == CUDA_SUCCESS)
		*bytes = (size_t)8 << 30;
	return fake__leave(result);
}

FAKE_EXPORT CUresult CUDAAPI cuDeviceGetAttribute(int *value, CUdevice_attribute attribute,
						  CUdevice device)
{
	CUresult result = enter_device("cuDeviceGetAttribute", device);

	if (result != CUDA_SUCCESS)
		return fake__leave(result);
	switch (attribute) {
	case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT:
		*value = 2;
		break;
	case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
	case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
	case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
	case CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS:
	case CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED:
		*value = 1;
		break;
	case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
		*value = 9;
		break;
	case CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID:
		*value = -1;
		break;
	default:
		*value = 0;
		break;
	}
	return fake__leave(CUDA_SUCCESS);
}

/* ---- Contexts ---- */

FAKE_EXPORT CUresult CUDAAPI cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
	CUresult result = enter_device("cuDevicePrimaryCtxRetain", device);

	if (result == CUDA_SUCCESS) {
		*context = &fake.contexts[device];
		fake.contexts[device].ordinal = device;
		fake.contexts[device].refs++;
	}
	return fake__leave(result);
}

/* Whatever is left goes with the context; it is no fault where that was lost. */
static void context_end_locked(struct CUctx_st *context)
{
	const char *left = NULL;

	for (struct CUstream_st *s = fake.streams; s != NULL; s = s->next)
		if (s->context == context && !s->is_default && !s->destroyed) {
			left = "a stream";
			s->destroyed = true;
			fake.counts.streams--;
		}
	fake__streams_reap_locked(context);
	if (fake__events_drop_locked(context))
		left = "an event";
	if (fake__memory_drop_locked(context))
		left = "memory";
	if (left != NULL && context->sticky == CUDA_SUCCESS)
		fake__violation_locked("context %d ended with %s left", context->ordinal, left);
	context->sticky = CUDA_SUCCESS;
}

FAKE_EXPORT CUresult CUDAAPI cuDevicePrimaryCtxRelease(CUdevice device)
{
	CUresult result = enter_device("cuDevicePrimaryCtxRelease", device);
	struct CUctx_st *context = &fake.contexts[device];

	if (result == CUDA_SUCCESS && context->refs == 0)
		result = CUDA_ERROR_INVALID_CONTEXT;
	if (result != CUDA_ERROR_INVALID_CONTEXT && --context->refs == 0)
		context_end_locked(context);
	return fake__leave(result);
}

FAKE_EXPORT CUresult CUDAAPI cuCtxPushCurrent(CUcontext context)
{
	CUresult result = fake__enter("cuCtxPushCurrent", FAKE_INIT);
	struct fake_thread *thread = fake__thread();

	/* The one reason why this call would fail for a context that it knows. */
	if (result != CUDA_SUCCESS && context != NULL && fake.initialised) {
		result = CUDA_ERROR_CONTEXT_IS_DESTROYED;
		fake__lose_locked(context, result);
	}
	if (result == CUDA_SUCCESS && (context == NULL || context->refs == 0))
		result = CUDA_ERROR_INVALID_CONTEXT;
	if (result == CUDA_SUCCESS && thread->depth == FAKE_STACK)
		result = CUDA_ERROR_OUT_OF_MEMORY;
	if (result == CUDA_SUCCESS) {
		thread->stack[thread->depth++] = context;
		thread->pushed++;
	}
	return fake__leave(result);
}

FAKE_EXPORT CUresult CUDAAPI cuCtxPopCurrent(CUcontext *context)
{
	CUresult result = fake__enter("cuCtxPopCurrent", FAKE_INIT);
	struct fake_thread *thread = fake__thread();

	if (thread->depth == 0)
		return fake__leave(CUDA_ERROR_INVALID_CONTEXT);
	thread->depth--;
	thread->pushed--;
	if (context != NULL)
		*context = thread->stack[thread->depth];
	return fake__leave(result);
}

FAKE_EXPORT CUresult CUDAAPI cuCtxGetCurrent(CUcontext *context)
{
	CUresult result = fake__enter("cuCtxGetCurrent", FAKE_INIT);

	if (result == CUDA_SUCCESS)
		*context = fake__current();
	return fake__leave(result);
}

FAKE_EXPORT CUresult CUDAAPI cuCtxSetCurrent(CUcontext context)
{
	CUresult result = fake__enter("cuCtxSetCurrent", FAKE_INIT);
	struct fake_thread *thread = fake__thread();

	if (result != CUDA_SUCCESS)
		return fake__leave(result);
	if (thread->depth != 0)
		thread->depth--;
	if (context != NULL)
		thread->stack[thread->depth++] = context;
	return fake__leave(CUDA_SUCCESS);
}

FAKE_EXPORT CUresult CUDAAPI cuCtxGetDevice(CUdevice *device)
{
	CUresult result = fake__enter("cuCtxGetDevice", FAKE_CONTEXT);

	if (result == CUDA_SUCCESS)
		*device = fake__current()->ordinal;
	return fake__leave(result);
}

FAKE_EXPORT CUresult CUDAAPI cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
	CUresult result = fake__enter("cuCtxGetStreamPriorityRange", FAKE_CONTEXT);

	if (result == CUDA_SUCCESS) {
		*least = 0;
		*greatest = -5;
	}
	return fake__leave(result);
}

FAKE_EXPORT CUresult CUDAAPI cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
	CUresult result = fake__enter("cuThreadExchangeStreamCaptureMode", FAKE_INIT);
	struct fake_thread *thread = fake__thread();
	CUstreamCaptureMode old = thread->capture_mode;

	if (result == CUDA_SUCCESS) {
		thread->capture_mode = *mode;
		*mode = old;
	}
	return fake__leave(result);
}
