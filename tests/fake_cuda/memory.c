/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of the fake driver. Device memory is a memory file mapped twice: without access at the
 * address that is handed out, and readable where the fake and the test see it. */
#include "internal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE ((size_t)4096)

struct fake_memory *fake__memory_find_locked(uint64_t ptr)
{
	for (struct fake_memory *m = fake.memory; m != NULL; m = m->next)
		if (ptr >= m->start && ptr - m->start < m->bytes)
			return m;
	return NULL;
}

static bool overlaps(const struct fake_memory *m, uint64_t ptr, size_t bytes)
{
	return ptr < m->start + m->bytes && m->start < ptr + bytes;
}

uint8_t *fake__resolve_locked(uint64_t ptr, size_t bytes)
{
	struct fake_memory *m = fake__memory_find_locked(ptr);

	if (m == NULL)
		return NULL;
	if (ptr - m->start + bytes > m->bytes) {
		/* Only memory that is mapped piece by piece goes on behind a piece's end. */
		struct fake_memory *next = fake__memory_find_locked(m->start + m->bytes);

		if (!m->piece || next == NULL || !next->piece)
			return NULL;
		bytes -= (size_t)(m->start + m->bytes - ptr);
		if (fake__resolve_locked(next->start, bytes) == NULL)
			return NULL;
	}
	return m->view + (ptr - m->start);
}

static struct fake_memory *add_locked(enum fake_memory_kind kind, uint64_t start, size_t bytes,
				      uint8_t *view)
{
	struct fake_memory *m = calloc(1, sizeof(*m));

	if (m == NULL)
		abort();
	m->kind = kind;
	m->context = fake__current();
	m->start = start;
	m->bytes = bytes;
	m->mapped = (bytes + PAGE - 1) / PAGE * PAGE;
	m->view = view;
	m->next = fake.memory;
	fake.memory = m;
	switch (kind) {
	case FAKE_DEVICE:
	case FAKE_MANAGED:
		fake.counts.device_allocations++;
		break;
	case FAKE_PINNED:
		fake.counts.host_allocations++;
		fake.counts.pinned_bytes += bytes;
		break;
	case FAKE_REGISTERED:
		fake.counts.registrations++;
		fake.counts.pinned_bytes += bytes;
		break;
	}
	return m;
}

/* Takes a piece out that starts at `ptr`; NULL when there is none of these kinds. */
static struct fake_memory *take_locked(uint64_t ptr, unsigned kinds)
{
	struct fake_memory **linkp = &fake.memory, *m;

	while (*linkp != NULL && ((*linkp)->start != ptr || !(kinds >> (*linkp)->kind & 1)))
		linkp = &(*linkp)->next;
	m = *linkp;
	if (m == NULL)
		return NULL;
	if (fake__touches_locked(m->start, m->bytes))
		fake__violation_locked("memory given back while a stream still has copies of it");
	*linkp = m->next;
	while (fake.running != 0)
		pthread_cond_wait(&fake.changed, &fake.lock);
	switch (m->kind) {
	case FAKE_DEVICE:
	case FAKE_MANAGED:
		fake.counts.device_allocations--;
		break;
	case FAKE_PINNED:
		fake.counts.host_allocations--;
		fake.counts.pinned_bytes -= m->bytes;
		break;
	case FAKE_REGISTERED:
		fake.counts.registrations--;
		fake.counts.pinned_bytes -= m->bytes;
		break;
	}
	return m;
}

/* ---- Device memory ---- */

static CUresult device_alloc(CUdeviceptr *ptrp, size_t bytes, size_t piece_bytes, bool joined)
{
	size_t mapped = (bytes + PAGE - 1) / PAGE * PAGE;
	int fd = bytes != 0 ? memfd_create("fake GPU memory", MFD_CLOEXEC) : -1;
	void *guard = MAP_FAILED, *view = MAP_FAILED;

	if (fd >= 0 && ftruncate(fd, (off_t)mapped) == 0) {
		guard = mmap(NULL, mapped, PROT_NONE, MAP_SHARED, fd, 0);
		view = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	}
	if (fd >= 0)
		close(fd);
	if (guard == MAP_FAILED || view == MAP_FAILED) {
		if (guard != MAP_FAILED)
			munmap(guard, mapped);
		if (view != MAP_FAILED)
			munmap(view, mapped);
		return bytes == 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_OUT_OF_MEMORY;
	}
	for (size_t at = 0; at < bytes; at += piece_bytes) {
		size_t piece = bytes - at < piece_bytes ? bytes - at : piece_bytes;
		struct fake_memory *m =
			add_locked(FAKE_DEVICE, (uintptr_t)guard + at, piece, (uint8_t *)view + at);

		m->piece = joined;
	}
	*ptrp = (uintptr_t)guard;
	return CUDA_SUCCESS;
}

FAKE_EXPORT CUresult CUDAAPI cuMemAlloc(CUdeviceptr *ptrp, size_t bytes)
{
	CUresult result = fake__enter("cuMemAlloc", FAKE_CONTEXT);

	if (result == CUDA_SUCCESS)
		result = device_alloc(ptrp, bytes, bytes, false);
	return fake__leave(result);
}

FAKE_EXPORT CUresult CUDAAPI cuMemAllocManaged(CUdeviceptr *ptrp, size_t bytes, unsigned int flags)
{
	CUresult result = fake__enter("cuMemAllocManaged", FAKE_CONTEXT);
	void *memory = NULL;

	if (result == CUDA_SUCCESS && (bytes == 0 || flags == 0))
		result = CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS && posix_memalign(&memory, PAGE, bytes) != 0)
		result = CUDA_ERROR_OUT_OF_MEMORY;
	if (result == CUDA_SUCCESS) {
		add_locked(FAKE_MANAGED, (uintptr_t)memory, bytes, memory);
		*ptrp = (uintptr_t)memory;
	}
	return fake__leave(result);
}

/* Taken out before. */
static void memory_free(struct fake_memory *m)
{
	if (m->kind == FAKE_DEVICE) {
		munmap((void *)(uintptr_t)m->start, m->mapped);
		munmap(m->view, m->mapped);
	} else if (m->kind != FAKE_REGISTERED) {
		free(m->view);
	}
	free(m);
}

bool fake__memory_drop_locked(struct CUctx_st *context)
{
	bool any = false;

	for (struct fake_memory *m = fake.memory; m != NULL;) {
		if (m->context != context) {
			m = m->next;
			continue;
		}
		any = true;
		memory_free(take_locked(m->start, 1u << m->kind));
		m = fake.memory;
	}
	return any;
}

FAKE_EXPORT CUresult CUDAAPI cuMemFree(CUdeviceptr ptr)
{
	CUresult result = fake__enter("cuMemFree", FAKE_CONTEXT);
	struct fake_memory *m = take_locked(ptr, 1u << FAKE_DEVICE | 1u << FAKE_MANAGED);

	if (m == NULL)
		return fake__leave(CUDA_ERROR_INVALID_VALUE);
	memory_free(m);
	return fake__leave(result);
}

CUdeviceptr fake__map_pieces_locked(size_t piece_bytes, unsigned count, bool joined)
{
	CUdeviceptr ptr = 0;

	if (fake__current() == NULL ||
	    device_alloc(&ptr, piece_bytes * count, piece_bytes, joined) != CUDA_SUCCESS)
		return 0;
	return ptr;
}

FAKE_EXPORT CUresult CUDAAPI cuMemGetInfo(size_t *freep, size_t *totalp)
{
	CUresult result = fake__enter("cuMemGetInfo", FAKE_CONTEXT);

	if (result == CUDA_SUCCESS) {
		*freep = (size_t)6 << 30;
		*totalp = (size_t)8 << 30;
	}
	return fake__leave(result);
}

/* ---- Pinned memory ---- */

static bool pinning_refused_locked(size_t bytes)
{
	return (fake.pinned_call_limit != 0 && bytes > fake.pinned_call_limit) ||
	       (fake.pinned_limit != 0 && fake.counts.pinned_bytes + bytes > fake.pinned_limit);
}

FAKE_EXPORT CUresult CUDAAPI cuMemHostAlloc(void **memoryp, size_t bytes, unsigned int flags)
{
	CUresult result = fake__enter("cuMemHostAlloc", FAKE_CONTEXT);
	void *memory = NULL;

	if (result == CUDA_SUCCESS && (bytes == 0 || flags > 7))
		result = CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS &&
	    (pinning_refused_locked(bytes) || posix_memalign(&memory, PAGE, bytes) != 0))
		result = CUDA_ERROR_OUT_OF_MEMORY;
	if (result == CUDA_SUCCESS) {
		add_locked(FAKE_PINNED, (uintptr_t)memory, bytes, memory);
		*memoryp = memory;
	}
	return fake__leave(result);
}

FAKE_EXPORT CUresult CUDAAPI cuMemFreeHost(void *memory)
{
	CUresult result = fake__enter("cuMemFreeHost", FAKE_CONTEXT);
	struct fake_memory *m = take_locked((uintptr_t)memory, 1u << FAKE_PINNED);

	if (m == NULL)
		return fake__leave(CUDA_ERROR_INVALID_VALUE);
	memory_free(m);
	return fake__leave(result);
}

FAKE_EXPORT CUresult CUDAAPI cuMemHostRegister(void *memory, size_t bytes, unsigned int flags)
{
	CUresult result = fake__enter("cuMemHostRegister", FAKE_CONTEXT);

	if (result == CUDA_SUCCESS && (bytes == 0 || flags > 15))
		result = CUDA_ERROR_INVALID_VALUE;
	for (struct fake_memory *m = fake.memory; m != NULL && result == CUDA_SUCCESS; m = m->next)
		if (overlaps(m, (uintptr_t)memory, bytes))
			result = CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
	if (result == CUDA_SUCCESS && pinning_refused_locked(bytes))
		result = CUDA_ERROR_OUT_OF_MEMORY;
	if (result == CUDA_SUCCESS)
		add_locked(FAKE_REGISTERED, (uintptr_t)memory, bytes, memory);
	return fake__leave(result);
}

FAKE_EXPORT CUresult CUDAAPI cuMemHostUnregister(void *memory)
{
	CUresult result = fake__enter("cuMemHostUnregister", FAKE_CONTEXT);
	struct fake_memory *m = take_locked((uintptr_t)memory, 1u << FAKE_REGISTERED);

	if (m == NULL)
		return fake__leave(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
	memory_free(m);
	return fake__leave(result);
}

/* ---- Pointers ---- */

FAKE_EXPORT CUresult CUDAAPI cuMemGetAddressRange(CUdeviceptr *startp, size_t *bytesp,
						  CUdeviceptr ptr)
{
	CUresult result = fake__enter("cuMemGetAddressRange", FAKE_CONTEXT);
	struct fake_memory *m = fake__memory_find_locked(ptr);

	if (result == CUDA_SUCCESS && m == NULL)
		result = CUDA_ERROR_NOT_FOUND;
	if (result == CUDA_SUCCESS) {
		if (startp != NULL)
			*startp = m->start;
		if (bytesp != NULL)
			*bytesp = m->bytes;
	}
	return fake__leave(result);
}

/* What is not of the driver has default values. */
static CUresult attribute(const struct fake_memory *m, CUpointer_attribute which, CUdeviceptr ptr,
			  void *data)
{
	bool host = m != NULL && (m->kind == FAKE_PINNED || m->kind == FAKE_REGISTERED);

	switch (which) {
	case CU_POINTER_ATTRIBUTE_CONTEXT:
		*(CUcontext *)data = m != NULL ? m->context : NULL;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		*(unsigned *)data = m == NULL ? 0
				    : host    ? CU_MEMORYTYPE_HOST
					      : CU_MEMORYTYPE_DEVICE;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
		*(CUdeviceptr *)data = m != NULL ? ptr : 0;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_HOST_POINTER:
		*(void **)data =
			m != NULL && m->kind != FAKE_DEVICE ? (void *)(uintptr_t)ptr : NULL;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
		*(unsigned *)data = m != NULL && m->kind == FAKE_MANAGED;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		*(int *)data = m != NULL ? m->context->ordinal : -2;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
		*(CUdeviceptr *)data = m != NULL ? m->start : 0;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
		*(size_t *)data = m != NULL ? m->bytes : 0;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
		*(unsigned *)data = m != NULL && m->kind == FAKE_DEVICE && !m->piece;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
		*(CUmemoryPool *)data = NULL;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MAPPED:
		*(unsigned *)data = m != NULL;
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

FAKE_EXPORT CUresult CUDAAPI cuPointerGetAttributes(unsigned int count,
						    CUpointer_attribute *attributes, void **data,
						    CUdeviceptr ptr)
{
	CUresult result = fake__enter("cuPointerGetAttributes", FAKE_CONTEXT);
	struct fake_memory *m = fake__memory_find_locked(ptr);

	fake.counts.attribute_calls++;
	for (unsigned i = 0; i < count && result == CUDA_SUCCESS; i++)
		result = attribute(m, attributes[i], ptr, data[i]);
	return fake__leave(result);
}

FAKE_EXPORT CUresult CUDAAPI cuPointerGetAttribute(void *data, CUpointer_attribute which,
						   CUdeviceptr ptr)
{
	CUresult result = fake__enter("cuPointerGetAttribute", FAKE_CONTEXT);
	struct fake_memory *m = fake__memory_find_locked(ptr);

	fake.counts.attribute_calls++;
	if (result == CUDA_SUCCESS && m == NULL)
		result = CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS)
		result = attribute(m, which, ptr, data);
	return fake__leave(result);
}
