/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A store, a worker and a CUDA device, for tests that run on a GPU as well as on the fake driver.
 * The test sees device memory through a copy of its own in plain memory.
 */
#ifndef KVT_TESTS_CUDA_SCENE_H
#define KVT_TESTS_CUDA_SCENE_H

#include "support.h"

#include "fake_cuda/fake_cuda.h"

#define CUDA_SCENE_API(X)                                                                          \
	X(cuInit)                                                                                  \
	X(cuGetErrorName)                                                                          \
	X(cuDeviceGetCount)                                                                        \
	X(cuDevicePrimaryCtxRetain)                                                                \
	X(cuDevicePrimaryCtxRelease)                                                               \
	X(cuCtxGetCurrent)                                                                         \
	X(cuCtxSetCurrent)                                                                         \
	X(cuMemAlloc)                                                                              \
	X(cuMemAllocManaged)                                                                       \
	X(cuMemFree)                                                                               \
	X(cuMemHostAlloc)                                                                          \
	X(cuMemFreeHost)                                                                           \
	X(cuMemHostRegister)                                                                       \
	X(cuMemHostUnregister)                                                                     \
	X(cuMemcpyHtoD)                                                                            \
	X(cuMemcpyDtoH)                                                                            \
	X(cuMemcpyHtoDAsync)                                                                       \
	X(cuMemcpyDtoHAsync)                                                                       \
	X(cuStreamCreateWithPriority)                                                              \
	X(cuStreamDestroy)                                                                         \
	X(cuStreamSynchronize)                                                                     \
	X(cuStreamWaitEvent)                                                                       \
	X(cuLaunchHostFunc)                                                                        \
	X(cuEventCreate)                                                                           \
	X(cuEventDestroy)                                                                          \
	X(cuEventRecord)                                                                           \
	X(cuEventQuery)                                                                            \
	X(cuEventSynchronize)

#define CUDA_SCENE_MEMBER(name) __typeof__(name) *name;
struct cuda_api {
	CUDA_SCENE_API(CUDA_SCENE_MEMBER)
	__typeof__(cuStreamWaitValue32) *cuStreamWaitValue32; /* NULL on the tests' own driver */
};
#undef CUDA_SCENE_MEMBER

/* Set by cuda_scene_start. */
extern const struct cuda_api *cuda;
/* NULL on a real driver. */
extern const struct fake_cuda *cuda_fake;

#define CU(call) cuda_check((cuda->call), #call, __FILE__, __LINE__)
void cuda_check(CUresult result, const char *call, const char *file, int line);

/* For main: 0, or 77 with the reason printed where there is no driver, or, with `fake_only`, no
 * fake one. Initialises the driver. */
int cuda_scene_start(bool fake_only);

struct cuda_scene {
	CUdevice ordinal;
	CUcontext context; /* current on the test's thread, as the caller's own would be */
	struct test_bed bed;
	char *directory; /* of a file store, removed at the end */
	CUdeviceptr memory;
	uint8_t *shadow;
	size_t memory_bytes, used;
	struct fake_cuda_counts untouched, before; /* the scene, the library */
};

enum cuda_store { CUDA_STORE_MEM, CUDA_STORE_FILE, CUDA_STORE_COUNT };

/* What differs from the defaults of test_bed_init is set between init and open. */
void cuda_scene_init(struct cuda_scene *s, CUdevice ordinal, size_t memory_bytes);
void cuda_scene_open(struct cuda_scene *s, enum cuda_store store);
/* Only up to the store and the device. */
void cuda_scene_open_device(struct cuda_scene *s, enum cuda_store store);
/* Asserts that all that the library took from the driver was given back, that it kept the driver's
 * rules, and that the caller's context is current as before. What belonged to a context that was
 * lost may have been left to it. */
void cuda_scene_close(struct cuda_scene *s);
/* The result of kvt_device_open("cuda", ordinal). */
int cuda_device_open(uint32_t ordinal, struct kvt_device **devicep);

/* A transfer in the device's memory, behind those made before. */
void cuda_scene_place(struct cuda_scene *s, struct test_transfer *t, uint32_t blocks_per_chunk,
		      const struct test_group *groups, uint32_t group_count, uint64_t key_seed);
/* From what the test sees to the device, and back. */
void cuda_scene_push(struct cuda_scene *s, const struct test_transfer *t);
void cuda_scene_pull(struct cuda_scene *s, const struct test_transfer *t);
CUdeviceptr cuda_scene_ptr(const struct cuda_scene *s, const struct test_transfer *t);
/* As test_store and test_load. */
void cuda_scene_store(struct cuda_scene *s, struct test_transfer *t, uint32_t status);
void cuda_scene_load(struct cuda_scene *s, struct test_transfer *t, uint32_t status);
/* Asserts that the context of the scene is the calling thread's. */
#define assert_context_kept(s) cuda_scene_context_kept((s), __FILE__, __LINE__)
void cuda_scene_context_kept(const struct cuda_scene *s, const char *file, int line);

/*
 * A stream of the caller's that fills the memory of a transfer once it may, and the event behind
 * it. Before that the memory is poisoned.
 */
struct cuda_producer {
	CUstream stream;
	bool stream_made;
	CUevent event;
	/* A GPU waits for a word of memory: drivers may run host functions one after the other. */
	struct test_gate gate;
	cuuint32_t *word;
	void *pinned;
};
/* `stream` NULL: one of its own, else the legacy or the per-thread default stream. */
void cuda_producer_start(struct cuda_producer *p, struct cuda_scene *s, struct test_transfer *t,
			 CUstream stream);
/* Now it may. */
void cuda_producer_release(struct cuda_producer *p);
/* After the release; waits for the stream. */
void cuda_producer_end(struct cuda_producer *p);

#endif
