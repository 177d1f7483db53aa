/* SPDX-License-Identifier: Apache-2.0 */
/* When the memory of a job becomes valid (stores) or free to be overwritten (loads): what callers
 * hand in with a job, and devices order their copies after. */
#ifndef KVTIER_READY_H
#define KVTIER_READY_H

#include <stdint.h>

#include <kvtier/export.h>

KVT_BEGIN_DECLS

enum kvt_ready_kind {
	KVT_READY_NOW = 0,
	KVT_READY_FD, /* fd is readable from then on (an eventfd, a pipe's end); never read by the
			 library. Not with "cuda" */
	KVT_READY_EVENT,  /* handle is an event of the device: struct kvt_event for "host", CUevent
			     for "cuda", which must have been recorded before the job is submitted */
	KVT_READY_STREAM, /* handle is a stream of the device (CUstream): everything that it was
			     given before the job is submitted. NULL and CU_STREAM_LEGACY are the
			     legacy default stream, CU_STREAM_PER_THREAD is the submitting
			     thread's. "cuda" only */
};

/* An event is lent until the job's completion, a stream for the submitting call. */
struct kvt_ready {
	uint32_t kind;
	int fd;
	void *handle;
};

KVT_END_DECLS

#endif
