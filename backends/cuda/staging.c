/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pinned memory that the GPU copies from and to at full speed. The core wants one range: it comes
 * from one cuMemHostAlloc. Where the driver refuses that much at once, it is a mapping of our own
 * that is registered in pieces, and so is memory of the caller's; a copy must not cross from one
 * piece into the next then. On the thread that opens or closes a worker.
 */
#include "cuda_device.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#define SMALLEST_PIECE (UINT64_C(16) << 20)
#define LARGEST_PIECE  (UINT64_C(1) << 30)

/* "; the limit of locked memory is 8388608 bytes", or nothing where there is none. */
static const char *cuda_limit_text(char *text, size_t bytes)
{
	struct rlimit limit;

	text[0] = '\0';
	if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
		(void)snprintf(text, bytes,
			       "; the limit of locked memory (ulimit -l) is %llu bytes",
			       (unsigned long long)limit.rlim_cur);
	return text;
}

static int cuda_staging_failed(struct kvt__cuda_device *device, uint64_t bytes, const char *reason,
			       int code)
{
	char limit[96];

	device->host->fail(device->host,
			   "staging_bytes: %llu bytes of pinned memory: %s%s; expected less, or a "
			   "machine that may pin as much",
			   (unsigned long long)bytes, reason,
			   cuda_limit_text(limit, sizeof(limit)));
	return code == KVT_EDEVICE && atomic_load(&device->broken) ? code : KVT_ENOMEM;
}

static void cuda_unregister(struct kvt__cuda_device *device, uint8_t *memory, uint64_t bytes,
			    uint64_t piece_bytes)
{
	for (uint64_t at = 0; at < bytes; at += piece_bytes)
		(void)device->driver->cuMemHostUnregister(memory + at);
}

/* Registers in pieces of one size; undoes what it did when one is refused. */
static CUresult cuda_register_pieces(struct kvt__cuda_device *device, uint8_t *memory,
				     uint64_t bytes, uint64_t piece_bytes)
{
	for (uint64_t at = 0; at < bytes; at += piece_bytes) {
		uint64_t piece = bytes - at < piece_bytes ? bytes - at : piece_bytes;
		CUresult result = device->driver->cuMemHostRegister(memory + at, (size_t)piece,
								    CU_MEMHOSTREGISTER_PORTABLE);

		if (result != CUDA_SUCCESS) {
			cuda_unregister(device, memory, at, piece_bytes);
			return result;
		}
	}
	return CUDA_SUCCESS;
}

/* In one piece, then in smaller and smaller ones. 0 for *piece_bytesp and a failure when even the
 * smallest are refused. */
static CUresult cuda_register(struct kvt__cuda_device *device, uint8_t *memory, uint64_t bytes,
			      uint64_t *piece_bytesp)
{
	uint64_t piece = bytes;
	CUresult result;

	for (;;) {
		*piece_bytesp = piece;
		result = cuda_register_pieces(device, memory, bytes, piece);
		if (result != CUDA_ERROR_OUT_OF_MEMORY && result != CUDA_ERROR_INVALID_VALUE &&
		    result != CUDA_ERROR_NOT_SUPPORTED && result != CUDA_ERROR_OPERATING_SYSTEM)
			break;
		if (piece <= SMALLEST_PIECE)
			break;
		piece = piece > LARGEST_PIECE ? LARGEST_PIECE : piece / 2;
		piece = piece < SMALLEST_PIECE ? SMALLEST_PIECE : piece & ~UINT64_C(4095);
	}
	if (result != CUDA_SUCCESS)
		*piece_bytesp = 0;
	return result;
}

static struct kvt__cuda_region *cuda_region_new(struct kvt__cuda_device *device, uint64_t bytes)
{
	struct kvt__cuda_region *region =
		device->host->alloc(device->host, sizeof(*region), _Alignof(max_align_t));

	if (region == NULL)
		device->host->fail(device->host, "cuda:%u: staging: out of memory",
				   device->ordinal);
	else
		*region = (struct kvt__cuda_region){.bytes = bytes};
	return region;
}

static void cuda_region_add(struct kvt__cuda_device *device, struct kvt__cuda_region *region)
{
	pthread_mutex_lock(&device->lock);
	region->next = device->regions;
	device->regions = region;
	if (region->piece_bytes != 0 && region->piece_bytes < region->bytes)
		atomic_store(&device->pieces, true);
	pthread_mutex_unlock(&device->lock);
}

static struct kvt__cuda_region *cuda_region_take(struct kvt__cuda_device *device,
						 const void *memory)
{
	struct kvt__cuda_region **at = &device->regions, *region;

	pthread_mutex_lock(&device->lock);
	while (*at != NULL && (*at)->memory != memory)
		at = &(*at)->next;
	region = *at;
	if (region != NULL)
		*at = region->next;
	pthread_mutex_unlock(&device->lock);
	return region;
}

/* A mapping near the GPU, registered in pieces. `refused` says why one allocation was not to be
 * had. */
static int cuda_map(struct kvt__cuda_device *device, struct kvt__cuda_region *region,
		    const char *refused)
{
	char reason[2 * KVT__CUDA_TEXT_BYTES], text[160];
	CUresult result;
	void *memory = mmap(NULL, (size_t)region->bytes, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED) {
		(void)snprintf(reason, sizeof(reason), "%s; mmap: %s", refused, strerror(errno));
		return cuda_staging_failed(device, region->bytes, reason, KVT_ENOMEM);
	}
	kvt__cuda_bind(memory, region->bytes, device->node);
	(void)madvise(memory, (size_t)region->bytes, MADV_HUGEPAGE);
	result = cuda_register(device, memory, region->bytes, &region->piece_bytes);
	if (result != CUDA_SUCCESS) {
		int code = kvt__cuda_failed(device, result, "cuMemHostRegister", NULL, 0);

		(void)munmap(memory, (size_t)region->bytes);
		(void)snprintf(reason, sizeof(reason), "%s; cuMemHostRegister in pieces: %s",
			       refused,
			       kvt__cuda_result_text(device->driver, result, text, sizeof(text)));
		return cuda_staging_failed(device, region->bytes, reason, code);
	}
	region->memory = memory;
	region->mapped = true;
	return 0;
}

static int cuda_pin(struct kvt__cuda_device *device, struct kvt__cuda_region *region)
{
	char refused[KVT__CUDA_TEXT_BYTES], text[160];
	struct kvt__cuda_policy policy;
	void *memory = NULL;
	CUresult result;

	kvt__cuda_prefer_node(device->node, &policy);
	result = device->driver->cuMemHostAlloc(&memory, (size_t)region->bytes,
						CU_MEMHOSTALLOC_PORTABLE);
	kvt__cuda_restore_policy(&policy);
	if (result == CUDA_SUCCESS) {
		region->memory = memory;
		return 0;
	}
	(void)kvt__cuda_failed(device, result, "cuMemHostAlloc", NULL, 0);
	(void)snprintf(refused, sizeof(refused), "cuMemHostAlloc: %s",
		       kvt__cuda_result_text(device->driver, result, text, sizeof(text)));
	if (atomic_load(&device->broken))
		return cuda_staging_failed(device, region->bytes, refused, KVT_EDEVICE);
	return cuda_map(device, region, refused);
}

/* The caller's own registration will do when it covers all of the memory. */
static bool cuda_is_registered(struct kvt__cuda_device *device, const uint8_t *memory,
			       uint64_t bytes)
{
	CUdeviceptr base = 0;
	size_t size = 0;
	CUresult result =
		device->driver->cuMemGetAddressRange(&base, &size, (CUdeviceptr)(uintptr_t)memory);

	return result == CUDA_SUCCESS && base <= (uintptr_t)memory &&
	       size >= bytes + ((uintptr_t)memory - base);
}

static int cuda_enter(struct kvt__cuda_device *device)
{
	char text[KVT__CUDA_TEXT_BYTES];
	int error = kvt__cuda_enter_or_say(device, text, sizeof(text));

	if (error != 0)
		device->host->fail(device->host, "%s", text);
	return error;
}

int kvt__cuda_staging_alloc(void *arg, uint64_t bytes, void **memoryp)
{
	struct kvt__cuda_device *device = arg;
	struct kvt__cuda_region *region;
	CUstreamCaptureMode mode;
	bool relaxed;
	int error;

	*memoryp = NULL;
	if (bytes == 0 || bytes > SIZE_MAX / 2) {
		device->host->fail(device->host,
				   "cuda:%u: staging of %llu bytes, expected 1 to %zu",
				   device->ordinal, (unsigned long long)bytes, SIZE_MAX / 2);
		return KVT_EINVAL;
	}
	region = cuda_region_new(device, bytes);
	if (region == NULL)
		return KVT_ENOMEM;
	error = cuda_enter(device);
	if (error == 0) {
		relaxed = kvt__cuda_capture_mode_relax(device->driver, &mode);
		error = cuda_pin(device, region);
		if (relaxed)
			kvt__cuda_capture_mode_restore(device->driver, mode);
		kvt__cuda_leave(device);
	}
	if (error != 0) {
		device->host->free(device->host, region);
		return error;
	}
	cuda_region_add(device, region);
	*memoryp = region->memory;
	return 0;
}

int kvt__cuda_staging_register(void *arg, void *memory, uint64_t bytes)
{
	struct kvt__cuda_device *device = arg;
	struct kvt__cuda_region *region = cuda_region_new(device, bytes);
	CUstreamCaptureMode mode;
	CUresult result;
	bool relaxed;
	int error;

	if (region == NULL)
		return KVT_ENOMEM;
	region->memory = memory;
	error = cuda_enter(device);
	if (error != 0)
		goto out;
	relaxed = kvt__cuda_capture_mode_relax(device->driver, &mode);
	result = cuda_register(device, memory, bytes, &region->piece_bytes);
	if (result == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED &&
	    cuda_is_registered(device, memory, bytes)) {
		region->borrowed = true;
		result = CUDA_SUCCESS;
	}
	if (result != CUDA_SUCCESS) {
		char reason[KVT__CUDA_TEXT_BYTES], text[160];

		(void)kvt__cuda_failed(device, result, "cuMemHostRegister", NULL, 0);
		(void)snprintf(reason, sizeof(reason), "staging_memory %p: cuMemHostRegister: %s",
			       memory,
			       kvt__cuda_result_text(device->driver, result, text, sizeof(text)));
		error = cuda_staging_failed(device, bytes, reason,
					    atomic_load(&device->broken) ? KVT_EDEVICE
									 : KVT_ENOMEM);
	}
	if (relaxed)
		kvt__cuda_capture_mode_restore(device->driver, mode);
	kvt__cuda_leave(device);
out:
	if (error != 0)
		device->host->free(device->host, region);
	else
		cuda_region_add(device, region);
	return error;
}

static void cuda_region_release(struct kvt__cuda_device *device, const void *memory)
{
	struct kvt__cuda_region *region = cuda_region_take(device, memory);

	if (region == NULL)
		return;
	/* A context that is gone has taken its registrations with it, and so has a fork's child. */
	if (device->pid == getpid() && !region->borrowed && kvt__cuda_enter_to_release(device)) {
		if (region->piece_bytes == 0)
			(void)device->driver->cuMemFreeHost(region->memory);
		else
			cuda_unregister(device, region->memory, region->bytes, region->piece_bytes);
		kvt__cuda_leave(device);
	}
	if (region->mapped)
		(void)munmap(region->memory, (size_t)region->bytes);
	device->host->free(device->host, region);
}

void kvt__cuda_staging_free(void *device, void *memory, uint64_t bytes)
{
	(void)bytes;
	cuda_region_release(device, memory);
}

void kvt__cuda_staging_unregister(void *device, void *memory, uint64_t bytes)
{
	(void)bytes;
	cuda_region_release(device, memory);
}

uint64_t kvt__cuda_piece_rest(struct kvt__cuda_device *device, const void *memory, uint64_t bytes)
{
	const uint8_t *at = memory;

	if (!atomic_load(&device->pieces))
		return bytes;
	pthread_mutex_lock(&device->lock);
	for (const struct kvt__cuda_region *r = device->regions; r != NULL; r = r->next) {
		uint64_t offset, rest;

		if (r->piece_bytes == 0 || at < r->memory || at >= r->memory + r->bytes)
			continue;
		offset = (uint64_t)(at - r->memory);
		rest = r->piece_bytes - offset % r->piece_bytes;
		if (rest < bytes)
			bytes = rest;
		break;
	}
	pthread_mutex_unlock(&device->lock);
	return bytes;
}
