/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a device implements: staging memory, ordering after the caller's event, and batches of
 * copies between device memory and staging that finish without a host thread. A device includes
 * this header and its own only.
 *
 * Threads. open, close, staging_alloc and staging_free run on the thread that opens or closes, with
 * no lane alive but for staging_free, which runs after the last lane was closed. Each lane belongs
 * to the thread that opened it: lane_open, check, order, copy, poll and lane_close run there. The
 * notify function that a lane was opened with may be called from any thread, also from a driver's
 * callback; it never blocks and takes no lock. mark, mark_query and mark_release run on any thread,
 * several at once.
 */
#ifndef KVTIER_DEVICE_H
#define KVTIER_DEVICE_H

#include <stddef.h>
#include <stdint.h>

#include <kvtier/error.h>
#include <kvtier/export.h>
#include <kvtier/ready.h>

KVT_BEGIN_DECLS

#define KVT_DEVICE_ABI 1

struct kvt_host; /* backend.h */

enum kvt_device_capability {
	/* order() makes later copies of this lane wait on the device: it costs nothing and answers
	 * KVT_DEVICE_DONE. Without it, the core orders a whole job once, on one lane, before it
	 * starts any chunk of it. */
	KVT_DEVICE_STREAM_ORDER = 1 << 0,
	/* All memory that this device is given can be read and written by the CPU: check() is not
	   called. */
	KVT_DEVICE_HOST_MEMORY = 1 << 1,
};

enum kvt_copy_direction {
	KVT_GATHER = 0 /* device to staging */,
	KVT_SCATTER = 1 /* staging to device */
};

struct kvt_device_copy {
	uint64_t device_ptr;
	void *staging;
	uint64_t bytes;
};

/* A batch of copies, or one ordering. Lent from copy() or order() until its completion. */
struct kvt_device_io {
	uint32_t direction; /* enum kvt_copy_direction; of an ordering: of the copies that follow */
	uint32_t copy_count;
	const struct kvt_device_copy *copies; /* lent too */
	/* Called exactly once, inside poll, for what was answered with KVT_DEVICE_QUEUED. The
	 * memory is quiet then. */
	void (*complete)(struct kvt_device_io *io);
	void *owner;
	int result;	     /* set by the device: 0 or a negative code (KVT_EDEVICE, KVT_EFAULT) */
	char *detail_buffer; /* one line about a failure goes here */
	uint32_t detail_bytes;
	uint32_t reserved;
	void *private_data; /* io_private_bytes of the device's own, aligned to 16, undefined at the
			       call */
};

enum kvt_device_answer { KVT_DEVICE_DONE = 0, KVT_DEVICE_QUEUED = 1 };

typedef void (*kvt_device_say_fn)(void *context, const char *name, const char *value, int error);

/* Copied min-wise into a zeroed table when registered; every member is required unless it says
 * otherwise. */
struct kvt_device_ops {
	size_t struct_size;
	uint32_t abi; /* KVT_DEVICE_ABI */
	uint32_t capabilities;
	const char *name; /* [a-z0-9]+ */
	size_t io_private_bytes;
	/* May block. On failure nothing is left and host->fail has said why. */
	int (*open)(const struct kvt_host *host, uint32_t ordinal, void **devicep);
	void (*close)(void *device);
	/* Staging memory that the device copies from and to at full speed, aligned to 4,096.
	 * KVT_ENOMEM with the limit named when there is not that much. */
	int (*staging_alloc)(void *device, uint64_t bytes, void **memoryp);
	void (*staging_free)(void *device, void *memory, uint64_t bytes);
	/* notify(notify_arg) must make the lane call poll soon: called when a queued io is
	 * finished. */
	int (*lane_open)(void *device, void (*notify)(void *arg), void *notify_arg, void **lanep);
	/* No io is in flight. */
	void (*lane_close)(void *lane);
	/*
	 * Whether [ptr, ptr + bytes) may be used: 0 when it must be copied, 1 when the CPU can
	 * address it as it is (then no staging is used), KVT_EFAULT when it is not memory of this
	 * device or ends before that. May be NULL with KVT_DEVICE_HOST_MEMORY.
	 */
	int (*check)(void *lane, uint64_t ptr, uint64_t bytes, char *detail, size_t detail_bytes);
	/*
	 * Orders what follows on this lane in io->direction after `ready`, whose kind is never
	 * KVT_READY_NOW.
	 * for_cpu is nonzero when the CPU or a storage request will touch the memory: then the
	 * completion means that the event has happened. Returns KVT_DEVICE_DONE, KVT_DEVICE_QUEUED,
	 * or a negative code: KVT_EINVAL for a kind or handle that it cannot take.
	 */
	int (*order)(void *lane, const struct kvt_ready *ready, int for_cpu,
		     struct kvt_device_io *io);
	/* Gives a queued order() up: it will not complete any more; 0. KVT_EBUSY when its
	 * completion is already due: it then comes in poll as usual. */
	int (*order_cancel)(void *lane, struct kvt_device_io *io);
	/* Starts the copies of an io, after everything ordered before. Returns KVT_DEVICE_DONE
	 * (finished, io->result set), KVT_DEVICE_QUEUED, or a negative code when nothing was
	 * started. */
	int (*copy)(void *lane, struct kvt_device_io *io);
	/* Delivers what is finished; never sleeps. Returns how many were delivered. */
	int (*poll)(void *lane);
	/* May be NULL: as in struct kvt_backend_ops. */
	void (*forked)(void *device);

	/* All that follow may be NULL. */

	/* Before the first check() for each chunk, on the lane: what check() remembers must not
	 * outlive the job, whose number this is; numbers are not used again. */
	void (*check_begin)(void *lane, uint64_t job);
	/* Makes memory of the caller's what staging_alloc gives; undone by staging_unregister,
	 * which leaves it to the caller. NULL: any memory will do as it is. Called as staging_alloc
	 * and staging_free are. */
	int (*staging_register)(void *device, void *memory, uint64_t bytes);
	void (*staging_unregister)(void *device, void *memory, uint64_t bytes);
	/*
	 * An event of the device's own that happens once all that `stream` was given before is
	 * done; it is a handle of KVT_READY_EVENT. Never waits. KVT_EINVAL for a stream that is
	 * none of this device, KVT_ENOMEM, KVT_EDEVICE; host->fail has said why. With it the core
	 * calls order() with events only: it marks a job's stream on the submitting thread, before
	 * it takes the job in.
	 */
	int (*mark)(void *device, void *stream, void **eventp);
	/* 1: has happened, 0: not yet, or KVT_EDEVICE, and host->fail has said why. Required with
	 * mark. */
	int (*mark_query)(void *device, void *event);
	/* Whether it has happened or not. Required with mark. */
	void (*mark_release)(void *device, void *event);
	/* Tells what there is of the driver and the devices, one call of `say` for each thing, with
	 * error 0 or what is wrong with it; opens nothing. 0 when open would succeed, else its
	 * failure, and host->fail has said why. May block. */
	int (*probe)(const struct kvt_host *host, uint32_t ordinal, kvt_device_say_fn say,
		     void *context);
};

/* Registers a device of the calling program under its name. As kvt_backend_register. */
KVT_API KVT_MUST_CHECK int kvt_device_register(const struct kvt_device_ops *ops);

KVT_END_DECLS

#endif
