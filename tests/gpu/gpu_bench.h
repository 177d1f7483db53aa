/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the parts of the GPU bench program. */
#ifndef KVT_TESTS_GPU_BENCH_H
#define KVT_TESTS_GPU_BENCH_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kvtier/kvtier.h>

#define MIB		(UINT64_C(1) << 20)
#define CHUNK_BYTES	(16 * MIB)
#define FRAGMENT_BYTES	(64 * UINT64_C(1024))
#define CHUNK_FRAGMENTS (CHUNK_BYTES / FRAGMENT_BYTES)
#define MAX_REPEATS	64

#define GPU_BENCH_API(X)                                                                           \
	X(cuInit)                                                                                  \
	X(cuDriverGetVersion)                                                                      \
	X(cuGetErrorName)                                                                          \
	X(cuDeviceGetName)                                                                         \
	X(cuDeviceGetAttribute)                                                                    \
	X(cuDevicePrimaryCtxRetain)                                                                \
	X(cuDevicePrimaryCtxRelease)                                                               \
	X(cuCtxSetCurrent)                                                                         \
	X(cuMemAlloc)                                                                              \
	X(cuMemFree)                                                                               \
	X(cuMemHostAlloc)                                                                          \
	X(cuMemFreeHost)                                                                           \
	X(cuMemcpyHtoDAsync)                                                                       \
	X(cuMemcpyDtoHAsync)                                                                       \
	X(cuStreamCreateWithPriority)                                                              \
	X(cuStreamDestroy)                                                                         \
	X(cuStreamSynchronize)                                                                     \
	X(cuEventCreate)                                                                           \
	X(cuEventDestroy)                                                                          \
	X(cuEventRecord)                                                                           \
	X(cuEventSynchronize)                                                                      \
	X(cuEventElapsedTime)

#define GPU_BENCH_KERNEL_API(X)                                                                    \
	X(cuModuleLoadData)                                                                        \
	X(cuModuleUnload)                                                                          \
	X(cuModuleGetFunction)                                                                     \
	X(cuLaunchKernel)

#define GPU_BENCH_MEMBER(name) __typeof__(name) *name;
struct gpu_api {
	GPU_BENCH_API(GPU_BENCH_MEMBER)
	GPU_BENCH_KERNEL_API(GPU_BENCH_MEMBER) /* all NULL where there are no kernels */
};
#undef GPU_BENCH_MEMBER
extern struct gpu_api gpu;

/* Ends the program with a message when the call fails. */
#define GPU(call) gpu_check((gpu.call), #call)
void gpu_check(CUresult result, const char *call);
#define KVT(call) kvt_check((call), #call)
void kvt_check(int result, const char *call);

int64_t now_ns(void);
double median_of(const double *values, size_t count);
/* One row of a table: a ratio of `value` to `base` for each repeat, against the target; larger is
 * better, or smaller is with `at_most`. Returns whether it was met. */
bool row_ratio(const char *measure, const char *unit, const double *value, const double *base,
	       size_t count, bool at_most, double target);
/* A row of figures without a base; target 0: for information. */
bool row_value(const char *measure, const char *unit, const double *value, size_t count,
	       double target);

struct bench {
	unsigned repeats;
	bool quick; /* little memory, few rounds: to try the program itself */
	CUcontext context;
	struct kvt_device *device;
	CUdeviceptr memory;
	uint64_t chunks;					  /* of memory */
	double gather_gbs[MAX_REPEATS], scatter_gbs[MAX_REPEATS]; /* of contiguous pinned copies */
};

/* Each prints its rows and returns how many targets were missed. */
unsigned bench_copies(struct bench *b);
unsigned bench_throughput(struct bench *b);
unsigned bench_submit(struct bench *b);
unsigned bench_interference(struct bench *b);

/* A store in memory with a worker of four lanes on the device, and transfers of 16 MiB chunks. */
struct bench_scene {
	struct kvt_store *store;
	struct kvt_worker *worker;
	struct kvt_transfer transfer;
	uint64_t chunks;
	uint64_t block_count;
	uint32_t ref_count;
	int64_t index;
	uint64_t *ptrs, *sizes;
	struct kvt_key *keys;
	uint8_t (*hashes)[32];
	uint64_t generation;
};
/* Every chunk is `fragments` fragments of fragment_bytes each, scattered over the memory. */
void bench_scene_open(struct bench *b, struct bench_scene *s, uint64_t chunks, uint64_t fragments,
		      uint64_t fragment_bytes);
void bench_scene_close(struct bench_scene *s);
/* New keys for all chunks. */
void bench_scene_renew(struct bench_scene *s);
/* Waits for a job and releases its completion; ends the program when it is not `status`. */
void bench_scene_take(struct bench_scene *s, uint64_t id, uint32_t status);

#endif
