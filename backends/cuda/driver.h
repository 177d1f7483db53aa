/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The entry points of the CUDA driver that this device uses. The library is found at run time
 * (dlopen of libcuda.so.1), each entry point by name and version (cuGetProcAddress, with legacy
 * default streams): one build serves machines with and without a GPU, and drivers for CUDA 12 and
 * 13. The toolkit's headers give the types; cuMemcpyBatchAsync, whose arguments changed, is
 * declared here in both forms.
 */
#ifndef KVT_CUDA_DRIVER_H
#define KVT_CUDA_DRIVER_H

#include <cuda.h>

#include <stddef.h>

/* The oldest driver that is used: cuGetProcAddress_v2 came with it. */
#define KVT__CUDA_OLDEST_DRIVER 12000

/* X(name, version that is asked for): the device cannot be used without one of these. Three more
 * are looked up by dlsym, since all others are found through them: cuDriverGetVersion,
 * cuGetProcAddress_v2 and cuInit. */
#define KVT__CUDA_REQUIRED(X)                                                                      \
	X(cuGetErrorName, 6000)                                                                    \
	X(cuGetErrorString, 6000)                                                                  \
	X(cuDeviceGetCount, 2000)                                                                  \
	X(cuDeviceGet, 2000)                                                                       \
	X(cuDeviceGetName, 2000)                                                                   \
	X(cuDeviceGetAttribute, 2000)                                                              \
	X(cuDeviceTotalMem, 3020)                                                                  \
	X(cuDeviceGetPCIBusId, 4010)                                                               \
	X(cuDevicePrimaryCtxRetain, 7000)                                                          \
	X(cuDevicePrimaryCtxRelease, 11000)                                                        \
	X(cuCtxPushCurrent, 4000)                                                                  \
	X(cuCtxPopCurrent, 4000)                                                                   \
	X(cuCtxGetStreamPriorityRange, 5050)                                                       \
	X(cuMemGetInfo, 3020)                                                                      \
	X(cuMemHostAlloc, 2020)                                                                    \
	X(cuMemFreeHost, 2000)                                                                     \
	X(cuMemHostRegister, 6050)                                                                 \
	X(cuMemHostUnregister, 4000)                                                               \
	X(cuPointerGetAttributes, 7000)                                                            \
	X(cuMemGetAddressRange, 3020)                                                              \
	X(cuStreamCreateWithPriority, 5050)                                                        \
	X(cuStreamDestroy, 4000)                                                                   \
	X(cuStreamSynchronize, 2000)                                                               \
	X(cuStreamWaitEvent, 3020)                                                                 \
	X(cuEventCreate, 2000)                                                                     \
	X(cuEventDestroy, 4000)                                                                    \
	X(cuEventRecord, 2000)                                                                     \
	X(cuEventQuery, 2000)                                                                      \
	X(cuLaunchHostFunc, 10000)                                                                 \
	X(cuMemcpyHtoDAsync, 3020)                                                                 \
	X(cuMemcpyDtoHAsync, 3020)

/* X(name, version): NULL when the driver has it not. cuMemcpyBatchAsync is one of these too: it is
 * asked for as of 13000, and where the driver is older than that as of 12080. */
#define KVT__CUDA_OPTIONAL(X)                                                                      \
	X(cuThreadExchangeStreamCaptureMode, 10010)                                                \
	X(cuStreamIsCapturing, 10000)

/* cuMemcpyBatchAsync of drivers for CUDA 12.8 and 12.9: *fail_index is the copy that was refused,
 * or SIZE_MAX when the failure is none of a single copy's. */
typedef CUresult(CUDAAPI *kvt__cuda_batch_12080_fn)(CUdeviceptr *targets, CUdeviceptr *sources,
						    size_t *sizes, size_t count,
						    CUmemcpyAttributes *attributes,
						    size_t *attribute_indices,
						    size_t attribute_count, size_t *fail_index,
						    CUstream stream);
/* The same of drivers for CUDA 13. */
typedef CUresult(CUDAAPI *kvt__cuda_batch_13000_fn)(CUdeviceptr *targets, CUdeviceptr *sources,
						    size_t *sizes, size_t count,
						    CUmemcpyAttributes *attributes,
						    size_t *attribute_indices,
						    size_t attribute_count, CUstream stream);

/* Some names are macros for a versioned symbol; the members are called by the plain names all the
 * same, since the macro then stands on both sides. */
#define KVT__CUDA_MEMBER(name, version) __typeof__(name) *name;
struct kvt__cuda_driver {
	int version; /* 12080 is CUDA 12.8; 0 when not even that could be found out */
	__typeof__(cuInit) *cuInit;
	KVT__CUDA_REQUIRED(KVT__CUDA_MEMBER)
	KVT__CUDA_OPTIONAL(KVT__CUDA_MEMBER)
	kvt__cuda_batch_12080_fn batch_12080; /* at most one of the two */
	kvt__cuda_batch_13000_fn batch_13000;
};
#undef KVT__CUDA_MEMBER

/*
 * The driver, loaded and initialised by the first call that succeeds and kept until the process
 * ends. NULL with the reason in `detail`, one line, when it is not there, too old or fails;
 * *versionp, which may be NULL, is filled as far as known, else 0. Any thread.
 */
const struct kvt__cuda_driver *kvt__cuda_driver_load(char *detail, size_t detail_bytes,
						     int *versionp);

#endif
