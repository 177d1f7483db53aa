/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An asynchronous device for tests of the core: its pointers are no addresses, so that a direct
 * access crashes; copies happen later, in order of each lane, on its own thread, which also gives
 * notice; the test holds them and makes them fail. Registered as "fake" (orders streams) and
 * "fakeorder" (does not).
 */
#ifndef KVT_TESTS_FAKE_DEVICE_H
#define KVT_TESTS_FAKE_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kvtier/device.h>
#include <kvtier/kvtier.h>

struct fake_gpu;
struct fake_event;

struct fake_gpu *fake_gpu_create(size_t memory_bytes, bool stream_order);
/* Closed before. */
void fake_gpu_destroy(struct fake_gpu *gpu);
/* The result of kvt_device_open. */
int fake_gpu_open(struct fake_gpu *gpu, const struct kvt_hooks *hooks, struct kvt_device **devicep);

/* The memory as the test sees it, and what the worker is told. */
uint8_t *fake_gpu_memory(struct fake_gpu *gpu);
uint64_t fake_gpu_ptr(struct fake_gpu *gpu, size_t offset);
/* Plain memory that the device accepts too and that the CPU can address (check answers 1). */
void fake_gpu_add_host_memory(struct fake_gpu *gpu, void *memory, size_t bytes);

/* Copies stop before they begin, until released. */
void fake_gpu_hold(struct fake_gpu *gpu);
/* Lets `count` copies happen while the others stay held. */
void fake_gpu_step(struct fake_gpu *gpu, unsigned count);
void fake_gpu_release(struct fake_gpu *gpu);
/* Waits until `count` batches wait, held or not; false after a minute. */
bool fake_gpu_await_queued(struct fake_gpu *gpu, unsigned count);

enum fake_gpu_fault {
	FAKE_GPU_COPY_CALL = 1, /* copy() itself returns the code */
	FAKE_GPU_COPY,		/* the batch does its first half, then fails */
	FAKE_GPU_ORDER,		/* order() returns the code */
	FAKE_GPU_CHECK,		/* check() returns the code */
	FAKE_GPU_LANE_OPEN,
	FAKE_GPU_STAGING,
};
/* The nth (from 1) event of this kind from now on fails; times 0: all from there. nth 0: none. */
void fake_gpu_fail(struct fake_gpu *gpu, enum fake_gpu_fault fault, unsigned nth, unsigned times,
		   int error);
unsigned fake_gpu_faults(struct fake_gpu *gpu);

unsigned fake_gpu_copies(struct fake_gpu *gpu); /* batches begun */
unsigned fake_gpu_orders(struct fake_gpu *gpu);
unsigned fake_gpu_cancels(struct fake_gpu *gpu);
/* Copies and orderings that are not delivered yet. */
unsigned fake_gpu_outstanding(struct fake_gpu *gpu);
/* Whether a copy that is not delivered yet uses this memory (offsets). */
bool fake_gpu_touches(struct fake_gpu *gpu, size_t offset, size_t bytes);
unsigned fake_gpu_lanes(struct fake_gpu *gpu);
/* The first promise of device.h that the core broke, NULL when it kept them all. */
const char *fake_gpu_violation(struct fake_gpu *gpu);

struct fake_event *fake_event_create(struct fake_gpu *gpu);
void fake_event_signal(struct fake_event *event);
void fake_event_destroy(struct fake_event *event);

#endif
