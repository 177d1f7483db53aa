/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an address is: memory of this device, host memory that the driver knows, managed memory, or
 * nothing that may be touched. The driver is asked once for each allocation; after that addresses
 * are compared. What was learned is forgotten with the next job: memory is lent for a job, and may
 * be freed and be something else after it.
 */
#include "cuda_device.h"

#include <stdio.h>
#include <string.h>

/* What the driver says about one address. */
struct cuda_facts {
	unsigned int type; /* CUmemorytype, 0: unknown */
	int ordinal;
	unsigned int managed, ipc_capable;
	CUmemoryPool pool;
	void *host_pointer;
	CUdeviceptr range_begin;
	size_t range_bytes;
};

static CUresult cuda_ask(struct kvt__cuda_device *device, CUdeviceptr ptr, struct cuda_facts *f)
{
	CUpointer_attribute names[] = {
		CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
		CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
		CU_POINTER_ATTRIBUTE_IS_MANAGED,
		CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
		CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE,
		CU_POINTER_ATTRIBUTE_HOST_POINTER,
		CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
		CU_POINTER_ATTRIBUTE_RANGE_SIZE,
	};
	void *values[] = {&f->type, &f->ordinal,      &f->managed,     &f->ipc_capable,
			  &f->pool, &f->host_pointer, &f->range_begin, &f->range_bytes};
	CUdeviceptr base = 0;
	size_t bytes = 0;
	CUresult result;

	memset(f, 0, sizeof(*f));
	f->ordinal = -1;
	result = device->driver->cuPointerGetAttributes(sizeof(names) / sizeof(names[0]), names,
							values, ptr);
	if (result != CUDA_SUCCESS || f->type == 0)
		return result;
	/* Of memory that is mapped piece by piece this is the piece, not the reserved range. */
	if (device->driver->cuMemGetAddressRange(&base, &bytes, ptr) == CUDA_SUCCESS) {
		f->range_begin = base;
		f->range_bytes = bytes;
	}
	return CUDA_SUCCESS;
}

/* The allocation at `ptr`; end 0 when there is none. 0 or a code. The context is current. */
static int cuda_range_find(struct kvt__cuda_device *device, uint64_t ptr,
			   struct kvt__cuda_range *range, char *detail, size_t detail_bytes)
{
	struct cuda_facts f;
	CUresult result = cuda_ask(device, ptr, &f);

	memset(range, 0, sizeof(*range));
	/* An address that the driver does not know is no failure of the device. */
	if (result != CUDA_SUCCESS && result != CUDA_ERROR_INVALID_VALUE &&
	    result != CUDA_ERROR_NOT_FOUND)
		return kvt__cuda_failed(device, result, "cuPointerGetAttributes", detail,
					detail_bytes);
	if (result != CUDA_SUCCESS || f.type == 0 || f.range_begin > ptr ||
	    ptr - f.range_begin >= f.range_bytes)
		return 0;
	range->begin = f.range_begin;
	range->end = f.range_begin + f.range_bytes;
	range->owner = f.ordinal;
	if (f.managed) {
		/* It stays where it is: copies do not make its pages move. */
		range->owner = (int)device->ordinal;
	} else if (f.type == CU_MEMORYTYPE_HOST) {
		range->owner = -1;
		range->answer = (uintptr_t)f.host_pointer == ptr;
	} else if (f.ordinal != (int)device->ordinal) {
		range->answer = KVT_EFAULT;
	} else {
		range->joinable = !f.ipc_capable && f.pool == NULL;
	}
	return 0;
}

static const struct kvt__cuda_range *cuda_cached(struct kvt__cuda_lane *lane, uint64_t ptr)
{
	/* Fragments come one behind the other: most often it is the one of last time. */
	for (uint32_t i = 0; i < lane->cache_count; i++) {
		uint32_t at = (lane->cache_last + i) % lane->cache_count;

		if (ptr >= lane->cache[at].begin && ptr < lane->cache[at].end) {
			lane->cache_last = at;
			return &lane->cache[at];
		}
	}
	return NULL;
}

static const struct kvt__cuda_range *cuda_remember(struct kvt__cuda_lane *lane,
						   const struct kvt__cuda_range *range)
{
	uint32_t at = lane->cache_next;

	lane->cache_next = (at + 1) % KVT__CUDA_CACHE_RANGES;
	if (lane->cache_count < KVT__CUDA_CACHE_RANGES)
		lane->cache_count++;
	lane->cache[at] = *range;
	lane->cache_last = at;
	return &lane->cache[at];
}

/* Copied, since what is remembered may be replaced by the next. */
static int cuda_range_at(struct kvt__cuda_lane *lane, uint64_t ptr, struct kvt__cuda_range *range,
			 char *detail, size_t detail_bytes)
{
	const struct kvt__cuda_range *known = cuda_cached(lane, ptr);
	int error;

	if (known != NULL) {
		*range = *known;
		return 0;
	}
	error = kvt__cuda_enter_or_say(lane->device, detail, detail_bytes);
	if (error != 0)
		return error;
	error = cuda_range_find(lane->device, ptr, range, detail, detail_bytes);
	kvt__cuda_leave(lane->device);
	if (error == 0 && range->end != 0)
		(void)cuda_remember(lane, range);
	return error;
}

static int cuda_refuse(const struct kvt__cuda_lane *lane, uint64_t ptr, uint64_t bytes,
		       uint64_t wrong, const struct kvt__cuda_range *range, char *detail,
		       size_t detail_bytes)
{
	unsigned ordinal = lane->device->ordinal;

	if (range->end != 0)
		(void)snprintf(detail, detail_bytes,
			       "memory 0x%llx of %llu bytes: belongs to CUDA device %d, expected "
			       "memory of device %u",
			       (unsigned long long)ptr, (unsigned long long)bytes, range->owner,
			       ordinal);
	else if (wrong == ptr)
		(void)snprintf(detail, detail_bytes,
			       "memory 0x%llx of %llu bytes: unknown to CUDA, expected memory of "
			       "device %u or registered host memory",
			       (unsigned long long)ptr, (unsigned long long)bytes, ordinal);
	else
		(void)snprintf(detail, detail_bytes,
			       "memory 0x%llx of %llu bytes: its allocation ends after %llu bytes",
			       (unsigned long long)ptr, (unsigned long long)bytes,
			       (unsigned long long)(wrong - ptr));
	return KVT_EFAULT;
}

void kvt__cuda_check_begin(void *arg, uint64_t job)
{
	struct kvt__cuda_lane *lane = arg;

	if (lane->cache_job == job)
		return;
	lane->cache_job = job;
	lane->cache_count = lane->cache_next = lane->cache_last = 0;
}

int kvt__cuda_check(void *arg, uint64_t ptr, uint64_t bytes, char *detail, size_t detail_bytes)
{
	struct kvt__cuda_lane *lane = arg;
	struct kvt__cuda_range range, next;
	uint64_t end = ptr + bytes;
	int error = kvt__cuda_check_broken(lane->device, detail, detail_bytes);

	if (error == 0)
		error = cuda_range_at(lane, ptr, &range, detail, detail_bytes);
	if (error != 0)
		return error;
	if (range.end == 0 || range.answer < 0 || end < ptr)
		return cuda_refuse(lane, ptr, bytes, ptr, &range, detail, detail_bytes);
	/* Memory that grows is mapped in pieces, each an allocation to the driver. */
	while (end > range.end) {
		uint64_t at = range.end;

		memset(&next, 0, sizeof(next));
		if (range.joinable)
			error = cuda_range_at(lane, at, &next, detail, detail_bytes);
		if (error != 0)
			return error;
		if (!next.joinable || next.begin != at) {
			memset(&next, 0, sizeof(next));
			return cuda_refuse(lane, ptr, bytes, at, &next, detail, detail_bytes);
		}
		range = next;
	}
	return range.answer;
}

uint64_t kvt__cuda_allocation_end(struct kvt__cuda_lane *lane, uint64_t ptr)
{
	/*
	 * May be one that an older job asked for: then that job's memory was lent when this entry
	 * was made, and has been ever since, for it is still in work.
	 */
	const struct kvt__cuda_range *known = cuda_cached(lane, ptr);
	struct kvt__cuda_range range;

	if (known != NULL)
		return known->end;
	if (cuda_range_find(lane->device, ptr, &range, NULL, 0) != 0 || range.end == 0)
		return 0;
	return cuda_remember(lane, &range)->end;
}
