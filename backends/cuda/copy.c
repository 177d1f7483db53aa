/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gather and scatter: all copies of an io in one call where the driver has batches, else in a loop.
 * Copies that are neighbours on both sides become one, within an allocation, since the driver
 * refuses a copy that reaches beyond one. On the lane's thread.
 */
#include "cuda_device.h"

#include <stdio.h>
#include <string.h>

static int cuda_say(const struct kvt_device_io *io, int error, const char *text)
{
	if (io->detail_buffer != NULL)
		(void)snprintf(io->detail_buffer, io->detail_bytes, "%s", text);
	return error;
}

static int cuda_room(struct kvt__cuda_lane *lane, size_t count)
{
	const struct kvt_host *host = lane->device->host;
	CUdeviceptr *targets, *sources;
	size_t *sizes, room = lane->room > 0 ? lane->room : 256;

	if (count <= lane->room)
		return 0;
	while (room < count)
		room *= 2;
	targets = host->alloc(host, room * sizeof(*targets), _Alignof(max_align_t));
	sources = host->alloc(host, room * sizeof(*sources), _Alignof(max_align_t));
	sizes = host->alloc(host, room * sizeof(*sizes), _Alignof(max_align_t));
	if (targets == NULL || sources == NULL || sizes == NULL) {
		host->free(host, targets);
		host->free(host, sources);
		host->free(host, sizes);
		return KVT_ENOMEM;
	}
	if (lane->room > 0) {
		memcpy(targets, lane->targets, lane->room * sizeof(*targets));
		memcpy(sources, lane->sources, lane->room * sizeof(*sources));
		memcpy(sizes, lane->sizes, lane->room * sizeof(*sizes));
	}
	host->free(host, lane->targets);
	host->free(host, lane->sources);
	host->free(host, lane->sizes);
	lane->targets = targets;
	lane->sources = sources;
	lane->sizes = sizes;
	lane->room = room;
	return 0;
}

static int cuda_add(struct kvt__cuda_lane *lane, const struct kvt_device_io *io, size_t *countp,
		    uint64_t device_ptr, uint8_t *staging, uint64_t bytes)
{
	size_t i = *countp;
	int error = cuda_room(lane, i + 1);

	if (error != 0)
		return error;
	lane->targets[i] = io->direction == KVT_GATHER ? (uintptr_t)staging : device_ptr;
	lane->sources[i] = io->direction == KVT_GATHER ? device_ptr : (uintptr_t)staging;
	lane->sizes[i] = bytes;
	*countp = i + 1;
	return 0;
}

/* The run of neighbours that begins at copies[first]: how many, and of how many bytes together. */
static uint32_t cuda_run(struct kvt__cuda_lane *lane, const struct kvt_device_io *io,
			 uint32_t first, uint64_t *bytesp)
{
	const struct kvt_device_copy *c = &io->copies[first];
	uint64_t bytes = c->bytes, end = 0;
	uint32_t i = first + 1;

	for (; i < io->copy_count; i++) {
		const struct kvt_device_copy *n = &io->copies[i];

		if (n->device_ptr != c->device_ptr + bytes ||
		    (uint8_t *)n->staging != (uint8_t *)c->staging + bytes)
			break;
		if (end == 0)
			end = kvt__cuda_allocation_end(lane, c->device_ptr);
		if (c->device_ptr + bytes + n->bytes > end)
			break;
		bytes += n->bytes;
	}
	*bytesp = bytes;
	return i - first;
}

/* Fills the lane's arrays: *countp copies. KVT_ENOMEM. */
static int cuda_merge(struct kvt__cuda_lane *lane, const struct kvt_device_io *io, size_t *countp)
{
	uint64_t bytes;

	*countp = 0;
	for (uint32_t i = 0; i < io->copy_count;) {
		uint64_t ptr = io->copies[i].device_ptr;
		uint8_t *staging = io->copies[i].staging;

		i += cuda_run(lane, io, i, &bytes);
		while (bytes > 0) {
			uint64_t piece = kvt__cuda_piece_rest(lane->device, staging, bytes);
			int error = cuda_add(lane, io, countp, ptr, staging, piece);

			if (error != 0)
				return error;
			ptr += piece;
			staging += piece;
			bytes -= piece;
		}
	}
	return 0;
}

static CUresult cuda_batch(struct kvt__cuda_lane *lane, uint32_t direction, size_t count,
			   size_t *failp)
{
	const struct kvt__cuda_driver *d = lane->device->driver;
	CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = lane->device->handle};
	CUmemLocation host = {.type = CU_MEM_LOCATION_TYPE_HOST, .id = 0};
	CUmemcpyAttributes attributes = {
		.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM,
		.srcLocHint = direction == KVT_GATHER ? here : host,
		.dstLocHint = direction == KVT_GATHER ? host : here,
		/* Copy engines rather than the cores that the caller computes on. */
		.flags = CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE,
	};
	size_t from = 0;

	*failp = SIZE_MAX;
	if (d->batch_13000 != NULL)
		return d->batch_13000(lane->targets, lane->sources, lane->sizes, count, &attributes,
				      &from, 1, lane->copies[direction]);
	return d->batch_12080(lane->targets, lane->sources, lane->sizes, count, &attributes, &from,
			      1, failp, lane->copies[direction]);
}

static CUresult cuda_loop(struct kvt__cuda_lane *lane, uint32_t direction, size_t count,
			  size_t *failp)
{
	const struct kvt__cuda_driver *d = lane->device->driver;
	CUstream stream = lane->copies[direction];
	CUresult result = CUDA_SUCCESS;

	for (size_t i = 0; i < count; i++) {
		if (direction == KVT_GATHER)
			result = d->cuMemcpyDtoHAsync((void *)(uintptr_t)lane->targets[i],
						      lane->sources[i], lane->sizes[i], stream);
		else
			result = d->cuMemcpyHtoDAsync(lane->targets[i],
						      (const void *)(uintptr_t)lane->sources[i],
						      lane->sizes[i], stream);
		if (result != CUDA_SUCCESS) {
			*failp = i;
			return result;
		}
	}
	return CUDA_SUCCESS;
}

/* Starts `count` copies. 0, or what went wrong; some may have been started then. */
static int cuda_start(struct kvt__cuda_lane *lane, struct kvt_device_io *io, size_t count)
{
	const struct kvt__cuda_driver *d = lane->device->driver;
	const char *call = "cuMemcpyBatchAsync";
	CUresult result = CUDA_ERROR_NOT_SUPPORTED;
	size_t fail = SIZE_MAX;
	char what[128];

	if (!lane->batch_refused && (d->batch_12080 != NULL || d->batch_13000 != NULL)) {
		result = cuda_batch(lane, io->direction, count, &fail);
		/* It has taken none of them then, and will not the next time. */
		lane->batch_refused = result == CUDA_ERROR_NOT_SUPPORTED;
	}
	if (result == CUDA_ERROR_NOT_SUPPORTED) {
		call = io->direction == KVT_GATHER ? "cuMemcpyDtoHAsync" : "cuMemcpyHtoDAsync";
		result = cuda_loop(lane, io->direction, count, &fail);
	}
	if (result == CUDA_SUCCESS)
		return 0;
	if (fail < count)
		(void)snprintf(what, sizeof(what), "%s: copy %zu of %zu, %zu bytes at 0x%llx", call,
			       fail, count, lane->sizes[fail],
			       (unsigned long long)(io->direction == KVT_GATHER
							    ? lane->sources[fail]
							    : lane->targets[fail]));
	else
		(void)snprintf(what, sizeof(what), "%s of %zu copies", call, count);
	return kvt__cuda_failed(lane->device, result, what, io->detail_buffer, io->detail_bytes);
}

/* A notice after all that the direction's stream was given; whether there is one. */
static bool cuda_follow(struct kvt__cuda_lane *lane, struct kvt_device_io *io, int *errorp)
{
	struct kvt__cuda_device *device = lane->device;
	const struct kvt__cuda_driver *d = device->driver;
	uint32_t way = io->direction;
	const char *what = "cuEventRecord";
	CUresult result = d->cuEventRecord(lane->copied[way], lane->copies[way]);

	if (result == CUDA_SUCCESS) {
		what = "cuStreamWaitEvent";
		result = d->cuStreamWaitEvent(lane->notices[way], lane->copied[way], 0);
	}
	if (result != CUDA_SUCCESS) {
		*errorp =
			kvt__cuda_failed(device, result, what, io->detail_buffer, io->detail_bytes);
		return false;
	}
	return kvt__cuda_notice_launch(lane, lane->notices[way], io, errorp) != NULL;
}

int kvt__cuda_copy(void *arg, struct kvt_device_io *io)
{
	struct kvt__cuda_lane *lane = arg;
	struct kvt__cuda_device *device = lane->device;
	int error, notice_error = 0;
	size_t count;

	error = kvt__cuda_enter_or_say(device, io->detail_buffer, io->detail_bytes);
	if (error != 0)
		return error;
	if (cuda_merge(lane, io, &count) != 0) {
		error = cuda_say(io, KVT_ENOMEM, "cuda: out of memory for a list of copies");
		goto out;
	}
	error = count > 0 ? cuda_start(lane, io, count) : 0;
	io->result = error; /* what was started has to end before it is told */
	if (!atomic_load(&device->broken) && cuda_follow(lane, io, &notice_error)) {
		kvt__cuda_leave(device);
		return KVT_DEVICE_QUEUED;
	}
	/* Nobody will tell when the copies end: the lane waits for them. On a broken device they
	 * have ended. */
	(void)device->driver->cuStreamSynchronize(lane->copies[io->direction]);
	if (error == 0)
		error = notice_error;
	if (error == 0) /* broken by a call elsewhere: the copies may have been dropped */
		error = kvt__cuda_check_broken(device, io->detail_buffer, io->detail_bytes);
out:
	kvt__cuda_leave(device);
	return error;
}
