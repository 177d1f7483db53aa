/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of the fake driver: batches with either signature, single ones, blocking ones, and how
 * entry points are found by name and version. */
#include "internal.h"

#include <stdlib.h>
#include <string.h>

/* Whether a copy can be taken in, and which way it goes; one side is the host's. */
static CUresult check_locked(const struct fake_copy *copy, unsigned *directionp)
{
	struct fake_memory *to = fake__memory_find_locked(copy->to);
	struct fake_memory *from = fake__memory_find_locked(copy->from);
	bool to_device = to != NULL && (to->kind == FAKE_DEVICE || to->kind == FAKE_MANAGED);
	bool from_device =
		from != NULL && (from->kind == FAKE_DEVICE || from->kind == FAKE_MANAGED);

	if (copy->bytes == 0 || to_device == from_device)
		return CUDA_ERROR_INVALID_VALUE;
	if ((to_device ? from : to) == NULL)
		fake__violation_locked("an asynchronous copy of host memory that is not pinned");
	if (fake__resolve_locked(copy->to, copy->bytes) == NULL ||
	    fake__resolve_locked(copy->from, copy->bytes) == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	if ((to_device ? to : from)->context != fake__current())
		return CUDA_ERROR_INVALID_VALUE;
	*directionp = to_device ? FAKE_CUDA_TO_DEVICE : FAKE_CUDA_TO_HOST;
	return CUDA_SUCCESS;
}

static CUresult single(const char *name, uint64_t to, uint64_t from, size_t bytes, CUstream handle)
{
	CUresult result = fake__enter(name, FAKE_CONTEXT);
	struct CUstream_st *stream = NULL;
	struct fake_op *op = NULL;

	if (result == CUDA_SUCCESS) {
		fake.counts.single_copy_calls++;
		stream = fake__stream_locked(handle);
		if (stream == NULL)
			result = CUDA_ERROR_INVALID_HANDLE;
	}
	if (result == CUDA_SUCCESS) {
		op = fake__op_create(FAKE_OP_COPY, 1);
		op->copies[0] = (struct fake_copy){.to = to, .from = from, .bytes = bytes};
		result = check_locked(&op->copies[0], &op->direction);
		if (result == CUDA_SUCCESS) {
			fake__enqueue_locked(stream, op);
		} else {
			fake__mark_release(op->mark);
			free(op);
		}
	}
	return fake__leave(result);
}

FAKE_EXPORT CUresult CUDAAPI cuMemcpyHtoDAsync(CUdeviceptr to, const void *from, size_t bytes,
					       CUstream stream)
{
	return single("cuMemcpyHtoDAsync", to, (uintptr_t)from, bytes, stream);
}

FAKE_EXPORT CUresult CUDAAPI cuMemcpyDtoHAsync(void *to, CUdeviceptr from, size_t bytes,
					       CUstream stream)
{
	return single("cuMemcpyDtoHAsync", (uintptr_t)to, from, bytes, stream);
}

static CUresult batch_locked(CUdeviceptr *targets, CUdeviceptr *sources, size_t *sizes,
			     size_t count, CUmemcpyAttributes *attributes,
			     size_t *attribute_indices, size_t attribute_count, size_t *fail_index,
			     CUstream handle)
{
	struct CUstream_st *stream;
	CUresult result = CUDA_SUCCESS;
	struct fake_op *op;

	if (count == 0 || attribute_count == 0 || attribute_count > count || attributes == NULL ||
	    attribute_indices == NULL || attribute_indices[0] != 0)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < attribute_count; i++)
		if (attributes[i].srcAccessOrder < CU_MEMCPY_SRC_ACCESS_ORDER_STREAM ||
		    attributes[i].srcAccessOrder > CU_MEMCPY_SRC_ACCESS_ORDER_ANY ||
		    (i != 0 && attribute_indices[i] <= attribute_indices[i - 1]) ||
		    attribute_indices[i] >= count)
			return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < attribute_count; i++)
		if (attributes[i].srcAccessOrder != CU_MEMCPY_SRC_ACCESS_ORDER_STREAM)
			fake__violation_locked("a batch of copies out of the stream's order");
	if (handle == NULL || handle == CU_STREAM_LEGACY)
		return CUDA_ERROR_INVALID_VALUE;
	stream = fake__stream_locked(handle);
	if (stream == NULL)
		return CUDA_ERROR_INVALID_HANDLE;
	op = fake__op_create(FAKE_OP_COPY, count);
	for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
		op->copies[i] =
			(struct fake_copy){.to = targets[i], .from = sources[i], .bytes = sizes[i]};
		result = check_locked(&op->copies[i], &op->direction);
		if (result != CUDA_SUCCESS && fail_index != NULL)
			*fail_index = i;
	}
	if (result == CUDA_SUCCESS) {
		fake__enqueue_locked(stream, op);
	} else {
		fake__mark_release(op->mark);
		free(op);
	}
	return result;
}

/* As CUDA 13 has it; sets no index of the failure. */
FAKE_EXPORT CUresult CUDAAPI cuMemcpyBatchAsync(CUdeviceptr *targets, CUdeviceptr *sources,
						size_t *sizes, size_t count,
						CUmemcpyAttributes *attributes,
						size_t *attribute_indices, size_t attribute_count,
						CUstream stream)
{
	CUresult result = fake__enter("cuMemcpyBatchAsync", FAKE_CONTEXT);

	if (result == CUDA_SUCCESS) {
		fake.counts.batch_calls++;
		result = batch_locked(targets, sources, sizes, count, attributes, attribute_indices,
				      attribute_count, NULL, stream);
	}
	return fake__leave(result);
}

/* As CUDA 12.8 has it. */
static CUresult CUDAAPI batch_12080(CUdeviceptr *targets, CUdeviceptr *sources, size_t *sizes,
				    size_t count, CUmemcpyAttributes *attributes,
				    size_t *attribute_indices, size_t attribute_count,
				    size_t *fail_index, CUstream stream)
{
	CUresult result = fake__enter("cuMemcpyBatchAsync", FAKE_CONTEXT);

	if (fail_index == NULL) {
		fake__violation_locked("a batch of copies without a place for fail_index");
		return fake__leave(CUDA_ERROR_INVALID_VALUE);
	}
	*fail_index = SIZE_MAX;
	if (result == CUDA_SUCCESS) {
		fake.counts.batch_calls++;
		result = batch_locked(targets, sources, sizes, count, attributes, attribute_indices,
				      attribute_count, fail_index, stream);
	}
	return fake__leave(result);
}

/* Done when it returns; the test has the device to itself then. */
static CUresult blocking(const char *name, uint64_t to, uint64_t from, size_t bytes)
{
	CUresult result = fake__enter(name, FAKE_CONTEXT);
	struct fake_memory *to_memory = fake__memory_find_locked(to);
	struct fake_memory *from_memory = fake__memory_find_locked(from);

	if (result == CUDA_SUCCESS && bytes != 0) {
		/* Pageable memory stands for itself. */
		uint8_t *to_at = to_memory != NULL ? fake__resolve_locked(to, bytes)
						   : (uint8_t *)(uintptr_t)to;
		uint8_t *from_at = from_memory != NULL ? fake__resolve_locked(from, bytes)
						       : (uint8_t *)(uintptr_t)from;

		if (to_at == NULL || from_at == NULL)
			result = CUDA_ERROR_INVALID_VALUE;
		else
			memcpy(to_at, from_at, bytes);
	}
	return fake__leave(result);
}

FAKE_EXPORT CUresult CUDAAPI cuMemcpyHtoD(CUdeviceptr to, const void *from, size_t bytes)
{
	return blocking("cuMemcpyHtoD", to, (uintptr_t)from, bytes);
}

FAKE_EXPORT CUresult CUDAAPI cuMemcpyDtoH(void *to, CUdeviceptr from, size_t bytes)
{
	return blocking("cuMemcpyDtoH", (uintptr_t)to, from, bytes);
}

/* ---- Entry points by name ---- */

#define ENTRY(name, since)                                                                         \
	{                                                                                          \
#name, since, (void *)name                                                         \
	}
static const struct entry {
	const char *name;
	int since; /* the version that this function came with */
	void *function;
} entries[] = {
	ENTRY(cuInit, 2000),
	ENTRY(cuDriverGetVersion, 2020),
	ENTRY(cuGetErrorName, 6000),
	ENTRY(cuGetErrorString, 6000),
	ENTRY(cuDeviceGetCount, 2000),
	ENTRY(cuDeviceGet, 2000),
	ENTRY(cuDeviceGetName, 2000),
	ENTRY(cuDeviceGetAttribute, 2000),
	ENTRY(cuDeviceTotalMem, 3020),
	ENTRY(cuDeviceGetPCIBusId, 4010),
	ENTRY(cuDevicePrimaryCtxRetain, 7000),
	ENTRY(cuDevicePrimaryCtxRelease, 11000),
	ENTRY(cuCtxPushCurrent, 4000),
	ENTRY(cuCtxPopCurrent, 4000),
	ENTRY(cuCtxGetCurrent, 4000),
	ENTRY(cuCtxSetCurrent, 4000),
	ENTRY(cuCtxGetDevice, 2000),
	ENTRY(cuCtxGetStreamPriorityRange, 5050),
	ENTRY(cuThreadExchangeStreamCaptureMode, 10010),
	ENTRY(cuMemAlloc, 3020),
	ENTRY(cuMemAllocManaged, 6000),
	ENTRY(cuMemFree, 3020),
	ENTRY(cuMemGetInfo, 3020),
	ENTRY(cuMemHostAlloc, 2020),
	ENTRY(cuMemFreeHost, 2000),
	ENTRY(cuMemHostRegister, 6050),
	ENTRY(cuMemHostUnregister, 4000),
	ENTRY(cuMemGetAddressRange, 3020),
	ENTRY(cuPointerGetAttribute, 4000),
	ENTRY(cuPointerGetAttributes, 7000),
	ENTRY(cuStreamCreate, 2000),
	ENTRY(cuStreamCreateWithPriority, 5050),
	ENTRY(cuStreamDestroy, 4000),
	ENTRY(cuStreamSynchronize, 2000),
	ENTRY(cuStreamQuery, 2000),
	ENTRY(cuStreamWaitEvent, 3020),
	ENTRY(cuStreamIsCapturing, 10000),
	ENTRY(cuLaunchHostFunc, 10000),
	ENTRY(cuEventCreate, 2000),
	ENTRY(cuEventDestroy, 4000),
	ENTRY(cuEventRecord, 2000),
	ENTRY(cuEventQuery, 2000),
	ENTRY(cuEventSynchronize, 2000),
	ENTRY(cuEventElapsedTime, 12080),
	ENTRY(cuMemcpyHtoD, 3020),
	ENTRY(cuMemcpyDtoH, 3020),
	ENTRY(cuMemcpyHtoDAsync, 3020),
	ENTRY(cuMemcpyDtoHAsync, 3020),
	ENTRY(cuMemcpyBatchAsync, 13000),
	{"cuMemcpyBatchAsync", 12080, (void *)batch_12080},
};

static bool missing_locked(const char *name)
{
	size_t length = strlen(name);

	for (const char *at = strstr(fake.without, name); at != NULL; at = strstr(at + 1, name))
		if ((at == fake.without || at[-1] == ',') &&
		    (at[length] == ',' || at[length] == '\0'))
			return true;
	return false;
}

FAKE_EXPORT CUresult CUDAAPI cuGetProcAddress(const char *name, void **functionp, int version,
					      cuuint64_t flags,
					      CUdriverProcAddressQueryResult *foundp)
{
	CUresult result = fake__enter("cuGetProcAddress", FAKE_NOTHING);
	CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;

	if (result == CUDA_SUCCESS && (version > fake.version || flags > 2))
		result = CUDA_ERROR_INVALID_VALUE;
	if (result != CUDA_SUCCESS)
		return fake__leave(result);
	*functionp = NULL;
	for (size_t i = 0; i < sizeof(entries) / sizeof(entries[0]) && *functionp == NULL; i++) {
		if (strcmp(entries[i].name, name) != 0 || entries[i].since > fake.version ||
		    missing_locked(name))
			continue;
		if (entries[i].since <= version) {
			*functionp = entries[i].function;
			found = CU_GET_PROC_ADDRESS_SUCCESS;
		} else {
			found = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
		}
	}
	if (foundp != NULL)
		*foundp = found;
	/* Drivers say it either way. */
	if (*functionp == NULL && found == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND)
		result = CUDA_ERROR_NOT_FOUND;
	return fake__leave(result);
}
