/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the CUDA device: what its files share.
 *
 *     driver.c    the driver's entry points         device.c    open, close, the table
 *     errors.c    results, and what breaks a device probe.c     what there is, for people
 *     context.c   the primary context, around calls staging.c   pinned memory
 *     numa.c      memory near the GPU               pointers.c  what an address is
 *     lane.c      streams, poll                     copy.c      gather and scatter
 *     notice.c    the driver's finish notices       order.c     after the caller's event
 *     watch.c     finds a broken context            mark.c      events on the caller's streams
 *
 * The primary context is current only inside calls: each pushes it and pops it again, so that the
 * caller's current context never changes. Host functions (notice.c) call nothing of the driver's.
 */
#ifndef KVT_CUDA_DEVICE_H
#define KVT_CUDA_DEVICE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <kvtier/backend.h>
#include <kvtier/device.h>

#include "driver.h"

#define KVT__CUDA_TEXT_BYTES   320
#define KVT__CUDA_CACHE_RANGES 64
#define KVT__CUDA_WAIT_STREAMS 8
#define KVT__CUDA_FREE_MARKS   64

struct kvt__cuda_port;
struct kvt__cuda_lane;

/* Pinned memory; guarded by the device's lock. */
struct kvt__cuda_region {
	struct kvt__cuda_region *next;
	uint8_t *memory;
	uint64_t bytes;
	uint64_t
		piece_bytes; /* registered in pieces of so many bytes; 0: the driver's own memory */
	bool mapped;	     /* our mapping, else the caller's (or the driver's) */
	bool borrowed;	     /* the caller has registered it: nothing is to be undone */
};

struct kvt__cuda_device {
	const struct kvt_host *host;
	const struct kvt__cuda_driver *driver;
	pid_t pid; /* of the process that opened it */
	uint32_t ordinal;
	CUdevice handle;
	CUcontext context; /* primary, retained */
	CUevent health;	   /* never recorded: asking for it tells whether the context still works */
	int least_priority;
	int node;	      /* NUMA node of the GPU, -1 when unknown */
	atomic_bool pieces;   /* some region has more than one piece */
	atomic_bool broken;   /* set once, after broken_text was written */
	pthread_mutex_t lock; /* leaf; guards all below and the writing of broken_text */
	char broken_text[KVT__CUDA_TEXT_BYTES];
	struct kvt__cuda_region *regions;
	struct kvt__cuda_port *ports;	      /* of open lanes */
	CUevent events[KVT__CUDA_FREE_MARKS]; /* of marks that were released */
	uint32_t event_count;
	/* watch.c */
	atomic_uint in_flight; /* notices that are waited for, on all lanes */
	pthread_cond_t watch_changed;
	pthread_t watch_thread;
	bool watch_started, watch_stopping;
};

/* An allocation that holds what was asked for; pointers.c. */
struct kvt__cuda_range {
	uint64_t begin, end;
	int answer;    /* of check(): 0 or 1, or KVT_EFAULT */
	int owner;     /* ordinal; -1: host memory */
	bool joinable; /* mapped piecewise: may go on in another allocation behind it */
};

/*
 * One finish notice: a host function that the driver calls once a stream has come so far. Belongs
 * to the lane; the host function only puts it on the port's list.
 */
struct kvt__cuda_notice {
	struct kvt__cuda_port *port;
	struct kvt__cuda_notice *finished_next; /* on the port's list */
	struct kvt__cuda_notice *next, **linkp; /* in lane->in_flight; next alone: free */
	struct kvt_device_io *io;		/* NULL: given up */
	struct kvt__cuda_wait_stream *wait;	/* of an ordering */
	atomic_bool finished;
};

/* What host functions know of a lane; outlives it when one is still to come. */
struct kvt__cuda_port {
	struct kvt__cuda_port *next, **linkp; /* in device->ports, then among the strays */
	struct kvt__cuda_lane *lane;
	void (*notify)(void *arg);
	void *notify_arg;
	_Atomic(struct kvt__cuda_notice *) finished;
	atomic_uint pending;   /* host functions that are still to come or to return */
	atomic_uint notifying; /* threads that may be inside notify */
	atomic_bool closed;    /* notify must not be called any more */
	struct kvt__cuda_slab *slabs;
};

/* A stream for orderings that the CPU waits for, so that they do not hold up any copies. */
struct kvt__cuda_wait_stream {
	CUstream stream;
	uint32_t pending;
};

/* Belongs to its thread but for the port. Arrays of two are by enum kvt_copy_direction. */
struct kvt__cuda_lane {
	struct kvt__cuda_device *device;
	struct kvt__cuda_port *port;
	CUstream copies[2];
	CUstream notices[2]; /* run the host functions, so that copies do not wait for those */
	CUevent copied[2];   /* joins the two, recorded anew for each io */
	struct kvt__cuda_wait_stream waits[KVT__CUDA_WAIT_STREAMS];
	CUstreamCaptureMode capture_mode; /* what the thread had before */
	bool capture_mode_set;
	bool batch_refused; /* the driver has batches but does not take ours */
	struct kvt__cuda_notice *in_flight, *free_notices;
	/* what is known of addresses, for the job of this number */
	uint64_t cache_job;
	uint32_t cache_count, cache_next, cache_last;
	struct kvt__cuda_range cache[KVT__CUDA_CACHE_RANGES];
	/* one io's copies after merging */
	CUdeviceptr *targets, *sources;
	size_t *sizes;
	size_t room;
};

/* ---- device.c ---- */

extern const struct kvt_device_ops kvt__cuda_device_ops;

/* ---- errors.c ---- */

/* "CUDA_ERROR_INVALID_VALUE (invalid argument)"; any driver, also NULL. */
const char *kvt__cuda_result_text(const struct kvt__cuda_driver *driver, CUresult result,
				  char *text, size_t bytes);
/* Writes "cuda:ORDINAL: WHAT: RESULT" and returns the code for the result: KVT_ENOMEM or
 * KVT_EDEVICE. A result that no later call recovers from breaks the device. `text` may be NULL. */
int kvt__cuda_failed(struct kvt__cuda_device *device, CUresult result, const char *what, char *text,
		     size_t bytes);
/* The same for a call about a handle of the caller's, whose failure may be the handle's alone:
 * KVT_EINVAL then. The context is current. */
int kvt__cuda_handle_failed(struct kvt__cuda_device *device, CUresult result, const char *what,
			    char *text, size_t bytes);
/* KVT_EDEVICE with the one message about a broken device, else 0. `text` may be NULL. */
int kvt__cuda_check_broken(const struct kvt__cuda_device *device, char *text, size_t bytes);
/* Whether the context still works; breaks the device when not. The context is current. */
bool kvt__cuda_is_healthy(struct kvt__cuda_device *device);

/* ---- context.c ---- */

/* Makes the primary context current on this thread; kvt__cuda_leave after each success. */
CUresult kvt__cuda_enter(struct kvt__cuda_device *device);
void kvt__cuda_leave(struct kvt__cuda_device *device);
/* The same in order to give things back, which would be lost otherwise: tries twice. False: the
 * context is gone, and what it held with it. */
bool kvt__cuda_enter_to_release(struct kvt__cuda_device *device);
/* The same with a failure told: 0 or a code. A broken device is not entered. */
int kvt__cuda_enter_or_say(struct kvt__cuda_device *device, char *text, size_t bytes);
/* Calls that could spoil a graph capture going on elsewhere do no harm on this thread afterwards.
 * True when *oldp has to be given back by kvt__cuda_capture_mode_restore. */
bool kvt__cuda_capture_mode_relax(const struct kvt__cuda_driver *driver, CUstreamCaptureMode *oldp);
void kvt__cuda_capture_mode_restore(const struct kvt__cuda_driver *driver, CUstreamCaptureMode old);

/* ---- numa.c ---- */

/* The node of a PCI device ("0000:3b:00.0"), or -1. */
int kvt__cuda_node_of(const char *pci_id);
/* How a thread's memory policy was before. */
struct kvt__cuda_policy {
	int mode;
	unsigned long nodes[16];
	bool changed;
};
/* What this thread allocates from now on comes from `node` if there is room; -1 changes nothing. */
void kvt__cuda_prefer_node(int node, struct kvt__cuda_policy *old);
void kvt__cuda_restore_policy(const struct kvt__cuda_policy *old);
/* The same for a mapping that has not been touched. */
void kvt__cuda_bind(void *memory, uint64_t bytes, int node);

/* ---- staging.c ---- */

int kvt__cuda_staging_alloc(void *device, uint64_t bytes, void **memoryp);
void kvt__cuda_staging_free(void *device, void *memory, uint64_t bytes);
int kvt__cuda_staging_register(void *device, void *memory, uint64_t bytes);
void kvt__cuda_staging_unregister(void *device, void *memory, uint64_t bytes);
/* How many bytes from `memory` on lie in one piece of pinned memory; at most `bytes`. */
uint64_t kvt__cuda_piece_rest(struct kvt__cuda_device *device, const void *memory, uint64_t bytes);

/* ---- pointers.c ---- */

void kvt__cuda_check_begin(void *lane, uint64_t job);
int kvt__cuda_check(void *lane, uint64_t ptr, uint64_t bytes, char *detail, size_t detail_bytes);
/* The end of the allocation that holds an address of a job in work; the context is current. 0 when
 * that cannot be told. */
uint64_t kvt__cuda_allocation_end(struct kvt__cuda_lane *lane, uint64_t ptr);

/* ---- notice.c ---- */

/* KVT_ENOMEM. The port is on the device's list. */
int kvt__cuda_port_create(struct kvt__cuda_lane *lane, void (*notify)(void *arg), void *notify_arg);
/* notify is not called any more. Frees the port, now or once its last host function has returned.
 */
void kvt__cuda_port_close(struct kvt__cuda_lane *lane);
/* A notice for `io` on a stream, now in flight; the context is current. NULL with the failure in
 * *errorp and io->detail_buffer when the driver or memory refuses it. */
struct kvt__cuda_notice *kvt__cuda_notice_launch(struct kvt__cuda_lane *lane, CUstream stream,
						 struct kvt_device_io *io, int *errorp);
/* Takes all that are finished off the port, oldest first. */
struct kvt__cuda_notice *kvt__cuda_notices_take(struct kvt__cuda_lane *lane);
/* No longer waited for: out of lane->in_flight. Its host function may still be to come. */
void kvt__cuda_notice_settle(struct kvt__cuda_lane *lane, struct kvt__cuda_notice *notice);
/* Its host function has put it on the list, and it has been taken off. */
void kvt__cuda_notice_recycle(struct kvt__cuda_lane *lane, struct kvt__cuda_notice *notice);
/* Notifies all lanes: they look at the device. Any thread. */
void kvt__cuda_notify_all(struct kvt__cuda_device *device);

/* ---- watch.c ---- */

/* Idempotent; KVT_ENOMEM with host->fail told. */
int kvt__cuda_watch_start(struct kvt__cuda_device *device);
void kvt__cuda_watch_stop(struct kvt__cuda_device *device);
void kvt__cuda_watch_begin(struct kvt__cuda_device *device); /* one more notice is waited for */
void kvt__cuda_watch_end(struct kvt__cuda_device *device);

/* ---- lane.c, copy.c, order.c ---- */

int kvt__cuda_lane_open(void *device, void (*notify)(void *arg), void *notify_arg, void **lanep);
void kvt__cuda_lane_close(void *lane);
int kvt__cuda_poll(void *lane);
int kvt__cuda_copy(void *lane, struct kvt_device_io *io);
int kvt__cuda_order(void *lane, const struct kvt_ready *ready, int for_cpu,
		    struct kvt_device_io *io);
int kvt__cuda_order_cancel(void *lane, struct kvt_device_io *io);

/* ---- mark.c ---- */

int kvt__cuda_mark(void *device, void *stream, void **eventp);
int kvt__cuda_mark_query(void *device, void *event);
void kvt__cuda_mark_release(void *device, void *event);
/* The context is current, no mark is in use. */
void kvt__cuda_marks_fini(struct kvt__cuda_device *device);

/* ---- probe.c ---- */

int kvt__cuda_probe(const struct kvt_host *host, uint32_t ordinal, kvt_device_say_fn say,
		    void *context);

#endif
