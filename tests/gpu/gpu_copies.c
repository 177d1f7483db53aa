/* SPDX-License-Identifier: Apache-2.0 */
/* Gather and scatter of a chunk's fragments by the device itself, on one lane, against one
 * contiguous pinned copy of the same size. */
#include "gpu_bench.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "device.h"

#define DEPTH 4 /* chunks in flight */

struct flight {
	struct kvt_device_io io;
	struct kvt_device_copy copies[CHUNK_FRAGMENTS];
	char detail[256];
	bool done;
};

struct copier {
	struct bench *bench;
	const struct kvt_device_ops *ops;
	void *lane;
	int wake;
	uint8_t *staging;
	struct flight *flights;
};

static void notify(void *argument)
{
	const uint64_t one = 1;
	int fd = *(int *)argument;

	while (write(fd, &one, sizeof(one)) < 0 && errno == EINTR)
		;
}

static void complete(struct kvt_device_io *io)
{
	struct flight *flight = io->owner;

	flight->done = true;
}

/* Starts one chunk's copies; its fragments lie apart from each other in the device's memory. */
static void start(struct copier *c, struct flight *f, unsigned at, uint32_t direction)
{
	uint64_t slots = c->bench->chunks * CHUNK_FRAGMENTS;
	int answer;

	for (uint64_t i = 0; i < CHUNK_FRAGMENTS; i++) {
		uint64_t slot = (i * c->bench->chunks * 7 + at * 3) % slots;

		f->copies[i] = (struct kvt_device_copy){
			.device_ptr = c->bench->memory + slot * FRAGMENT_BYTES,
			.staging = c->staging + at * CHUNK_BYTES + i * FRAGMENT_BYTES,
			.bytes = FRAGMENT_BYTES,
		};
	}
	f->io.direction = direction;
	f->io.copy_count = CHUNK_FRAGMENTS;
	f->io.copies = f->copies;
	f->io.complete = complete;
	f->io.owner = f;
	f->io.result = 0;
	f->io.detail_buffer = f->detail;
	f->io.detail_bytes = sizeof(f->detail);
	f->done = false;
	answer = c->ops->copy(c->lane, &f->io);
	if (answer < 0 || (answer == KVT_DEVICE_DONE && f->io.result != 0)) {
		fprintf(stderr, "gpu_bench: copy: %s\n", f->detail);
		exit(1);
	}
	f->done = answer == KVT_DEVICE_DONE;
}

static void await(struct copier *c, struct flight *f)
{
	while (!f->done) {
		struct pollfd p = {.fd = c->wake, .events = POLLIN};
		uint64_t count;

		(void)poll(&p, 1, -1);
		if (read(c->wake, &count, sizeof(count)) < 0 && errno != EAGAIN)
			exit(1);
		(void)c->ops->poll(c->lane);
	}
	if (f->io.result != 0) {
		fprintf(stderr, "gpu_bench: copy: %s\n", f->detail);
		exit(1);
	}
}

/* GB/s of `count` chunks, `depth` of them in flight. */
static double fragments_gbs(struct copier *c, uint32_t direction, unsigned count, unsigned depth)
{
	int64_t from = now_ns();

	for (unsigned i = 0; i < count + depth; i++) {
		struct flight *f = &c->flights[i % depth];

		if (i >= depth)
			await(c, f);
		if (i < count)
			start(c, f, i % depth, direction);
	}
	return (double)(count * CHUNK_BYTES) / (double)(now_ns() - from);
}

static double contiguous_gbs(struct copier *c, CUstream stream, uint32_t direction, unsigned count,
			     unsigned depth)
{
	int64_t from = now_ns();

	for (unsigned i = 0; i < count; i++) {
		uint8_t *host = c->staging + i % depth * CHUNK_BYTES;
		CUdeviceptr there = c->bench->memory + i % c->bench->chunks * CHUNK_BYTES;

		if (direction == KVT_GATHER)
			GPU(cuMemcpyDtoHAsync(host, there, CHUNK_BYTES, stream));
		else
			GPU(cuMemcpyHtoDAsync(there, host, CHUNK_BYTES, stream));
		if (depth == 1 || i == count - 1)
			GPU(cuStreamSynchronize(stream));
	}
	return (double)(count * CHUNK_BYTES) / (double)(now_ns() - from);
}

static unsigned compare(struct copier *c, CUstream stream, uint32_t direction, unsigned depth)
{
	const char *way = direction == KVT_GATHER ? "gather" : "scatter";
	double ours[MAX_REPEATS], plain[MAX_REPEATS];
	struct bench *b = c->bench;
	unsigned count = b->quick ? 8 : 64;
	char measure[128];

	(void)contiguous_gbs(c, stream, direction, DEPTH, depth);
	(void)fragments_gbs(c, direction, DEPTH, depth);
	for (unsigned i = 0; i < b->repeats; i++) {
		plain[i] = contiguous_gbs(c, stream, direction, count, depth);
		ours[i] = fragments_gbs(c, direction, count, depth);
		if (depth == 1)
			continue;
		if (direction == KVT_GATHER)
			b->gather_gbs[i] = plain[i];
		else
			b->scatter_gbs[i] = plain[i];
	}
	snprintf(measure, sizeof(measure),
		 "%s of 16 MiB in 64 KiB fragments, %s, GB/s against a pinned copy", way,
		 depth == 1 ? "one at a time" : "four in flight");
	return !row_ratio(measure, "GB/s", ours, plain, b->repeats, false, depth == 1 ? 0 : 0.90);
}

unsigned bench_copies(struct bench *b)
{
	struct copier c = {.bench = b, .ops = &b->device->ops};
	uint64_t bytes = DEPTH * CHUNK_BYTES;
	uint8_t *private_data;
	void *staging;
	CUstream stream;
	unsigned missed = 0;

	c.wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	c.flights = calloc(DEPTH, sizeof(*c.flights));
	private_data = aligned_alloc(16, (c.ops->io_private_bytes + 16) / 16 * 16 * DEPTH);
	if (c.wake < 0 || c.flights == NULL || private_data == NULL)
		exit(1);
	for (unsigned i = 0; i < DEPTH; i++)
		c.flights[i].io.private_data =
			private_data + (c.ops->io_private_bytes + 16) / 16 * 16 * i;
	KVT(c.ops->staging_alloc(b->device->device, bytes, &staging));
	c.staging = staging;
	KVT(c.ops->lane_open(b->device->device, notify, &c.wake, &c.lane));
	if (c.ops->check_begin != NULL)
		c.ops->check_begin(c.lane, 1);
	GPU(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0));
	for (uint32_t way = KVT_GATHER; way <= KVT_SCATTER; way++) {
		missed += compare(&c, stream, way, DEPTH);
		missed += compare(&c, stream, way, 1);
	}
	GPU(cuStreamDestroy(stream));
	c.ops->lane_close(c.lane);
	c.ops->staging_free(b->device->device, staging, bytes);
	close(c.wake);
	free(c.flights);
	free(private_data);
	return missed;
}
