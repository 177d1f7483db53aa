/* SPDX-License-Identifier: Apache-2.0 */
/* Marks: what a device's stream had been given when a job was submitted. */
#ifndef KVT_SRC_STREAM_H
#define KVT_SRC_STREAM_H

#include "device.h"

struct kvt__mark {
	struct kvt__mark *next; /* for whoever holds it */
	void *event;
};

/* On a device that can mark. KVT_ENOMEM, KVT_EINVAL, KVT_EDEVICE; never waits. Any thread. */
int kvt__mark_create(const struct kvt__env *env, struct kvt_device *device, void *stream,
		     struct kvt__mark **markp);
/* No lock is held. NULL is accepted. */
void kvt__mark_destroy(const struct kvt__env *env, struct kvt_device *device,
		       struct kvt__mark *mark);

#endif
