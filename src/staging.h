/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Staging memory: one hard budget, cut into buffers of one size; small requests share a buffer in
 * power-of-two pieces. Any thread. The lock inside is a leaf; granted callbacks run without it.
 */
#ifndef KVT_SRC_STAGING_H
#define KVT_SRC_STAGING_H

#include <stdbool.h>

#include "device.h"

struct kvt__staging;

/* One wait for memory; embedded in what waits. Zero it before its first use. */
struct kvt__staging_wait {
	/* set by the caller */
	uint64_t bytes; /* at most the buffer size */
	bool for_store; /* stores leave a quarter of the buffers alone */
	/* Called once when kvt__staging_acquire said false and no cancel said true: on the thread
	 * that releases or cancels, no lock held; must not call back in. The wait must live until
	 * it has been called. */
	void (*granted)(struct kvt__staging_wait *wait);
	/* set by staging: valid once granted; memory is aligned to 4,096 */
	void *memory;
	uint64_t memory_bytes;
	/* staging's own */
	struct kvt__staging_wait *next, **linkp;
	uint32_t buffer;
	uint8_t order;
	uint8_t state;
	uint64_t arrival;
};

/* Allocates staging_bytes from the device at once, or makes `given` (of so many bytes, lent until
 * the end) its own when that is not NULL. KVT_EINVAL when not even one buffer fits (both numbers
 * and the option are named), KVT_ENOMEM. */
int kvt__staging_create(struct kvt__env *env, struct kvt_device *device, void *given,
			uint64_t staging_bytes, uint64_t buffer_bytes, uint64_t part_bytes,
			struct kvt__staging **stagingp);
/* Nothing is held and nobody waits. NULL is accepted. */
void kvt__staging_destroy(struct kvt__staging *staging);
/* In a forked child: whatever is held, and by whom. */
void kvt__staging_forked(struct kvt__staging *staging);

uint64_t kvt__staging_buffer_bytes(const struct kvt__staging *staging);

/* True: granted at once. False: waits, and granted will be called, in order of arrival (a store
 * that the quarter rule holds back is passed by loads). */
bool kvt__staging_acquire(struct kvt__staging *staging, struct kvt__staging_wait *wait);
/* Gives up waiting. True: it will not be granted. False: the caller holds it: granted has been
 * called, or is about to be. */
bool kvt__staging_cancel(struct kvt__staging *staging, struct kvt__staging_wait *wait);
void kvt__staging_release(struct kvt__staging *staging, struct kvt__staging_wait *wait);

struct kvt__staging_usage {
	uint64_t total_bytes, used_bytes, peak_bytes, waiters;
};
void kvt__staging_usage(struct kvt__staging *staging, struct kvt__staging_usage *usage);

#endif
