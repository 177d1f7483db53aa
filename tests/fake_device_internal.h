/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the two halves of the fake device. */
#ifndef KVT_TESTS_FAKE_DEVICE_INTERNAL_H
#define KVT_TESTS_FAKE_DEVICE_INTERNAL_H

#include <pthread.h>

#include "fake_device.h"

/* No address that a program can have on a machine with 48 or 57 bits of them. */
#define DEVICE_BASE   UINT64_C(0x5a5a000000000000)
#define EVENT_MAGIC   UINT64_C(0xfa4ee7e27)
#define MAX_GPUS      256
#define STAGING_SLOTS 8
#define HOST_RANGES   8

struct fake_op {
	struct fake_op *next;
	struct kvt_device_io *io; /* NULL: a wait inside a stream, on the heap */
	struct fake_event *event; /* NULL: a copy */
	int result;
	bool running;
};

struct fake_lane {
	struct fake_lane *next;
	struct fake_gpu *gpu;
	pthread_t thread;
	void (*notify)(void *arg);
	void *notify_arg;
	struct fake_op *stream; /* copies and waits, in order */
	struct fake_op *orders; /* that the CPU waits for */
	struct fake_op *done;
	bool notifying;
};

struct fake_event {
	uint64_t magic;
	struct fake_gpu *gpu;
	bool signalled;
};

struct fault {
	unsigned nth, times, seen;
	int error;
};

struct fake_gpu {
	pthread_mutex_t lock; /* guards everything, held across no call out */
	pthread_cond_t changed;
	pthread_t thread;
	unsigned ordinal, openings, lane_count;
	bool stream_order, stopping, held;
	unsigned steps;
	uint8_t *memory;
	size_t memory_bytes;
	struct fake_lane *lanes;
	struct fault faults[FAKE_GPU_STAGING + 1];
	unsigned faults_done, copies, orders, cancels, outstanding;
	struct range {
		uint8_t *at;
		size_t bytes;
	} staging[STAGING_SLOTS], host_ranges[HOST_RANGES];
	char violation[256];
};

/* NULL when there is none. */
struct fake_gpu *fake__gpu_find(uint32_t ordinal);
/* Its thread, until it is stopping. */
void *fake__gpu_hardware(void *gpu);
void fake__gpu_register(void);

#endif
