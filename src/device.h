/* SPDX-License-Identifier: Apache-2.0 */
/* An open device, and the one that needs no opening: plain memory. */
#ifndef KVT_SRC_DEVICE_H
#define KVT_SRC_DEVICE_H

#include <stdatomic.h>

#include <kvtier/device.h>

#include "env.h"

struct kvt_device {
	struct kvt__env env;
	uint32_t fork_generation;
	struct kvt_device_ops ops; /* padded copy */
	void *device;
	atomic_uint users; /* workers */
};

/* The padded table of a registered device: 0 or KVT_EINVAL. */
int kvt__device_find(const char *name, struct kvt_device_ops *ops);

extern const struct kvt_device_ops kvt__host_device_ops; /* device_host.c */

#endif
