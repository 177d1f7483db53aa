/* SPDX-License-Identifier: Apache-2.0 */
/* One request on its way through the fault wrapper, and what can be done to its body. */
#ifndef KVT_BACKENDS_FAULT_BODY_H
#define KVT_BACKENDS_FAULT_BODY_H

#include "rules.h"

struct kvt__fault_session;

/* The inner backend gets a copy of the caller's io, for the caller's must not be changed. */
struct kvt__fault_io {
	struct kvt_io inner;
	struct kvt_io *outer;
	struct kvt__fault_session *session;
	struct kvt__fault_io *next; /* free, waiting or refused */
	struct kvt__fault_plan plan;
	int64_t due_ns;
	int final;	    /* not 0: what is reported although the inner backend says success */
	void *private_data; /* for the inner backend */
	/* a changed body, or NULL */
	struct kvt_iovec *iov;
	uint8_t *bytes;
	/* the byte of a get that is to be changed */
	uint8_t *flip_at;
	uint64_t flip_offset;
	int flipped;
};

/* Cuts the inner io's body to half its length. 0 or KVT_ENOMEM. */
int kvt__fault_body_cut(struct kvt__fault_io *f, const struct kvt_host *host);
/* Prepares to change one byte of what is stored, or of what arrives. 0 or KVT_ENOMEM. */
int kvt__fault_body_flip(struct kvt__fault_io *f, const struct kvt_host *host);
/* The byte has arrived when `bytes` bytes have; 0 means that they come again. */
void kvt__fault_body_landed(struct kvt__fault_io *f, uint64_t bytes);
void kvt__fault_body_free(struct kvt__fault_io *f, const struct kvt_host *host);

#endif
