/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the parts of the fake driver. One lock guards everything; it is never held while bytes
 * are copied or a host function runs. */
#ifndef KVT_TESTS_FAKE_CUDA_INTERNAL_H
#define KVT_TESTS_FAKE_CUDA_INTERNAL_H

#include <pthread.h>

#include "fake_cuda.h"

#define FAKE_EXPORT	 __attribute__((visibility("default")))
#define FAKE_MAX_DEVICES 4
#define FAKE_STACK	 16

/* Done once the operation that it belongs to is finished. */
struct fake_mark {
	unsigned refs;
	bool done;
	int64_t done_ns;
};

struct fake_copy {
	uint64_t to, from;
	size_t bytes;
	uint8_t *to_at, *from_at; /* known once it runs */
};

enum fake_op_kind { FAKE_OP_COPY, FAKE_OP_HOST, FAKE_OP_MARK, FAKE_OP_WAIT };
struct fake_op {
	struct fake_op *next;
	enum fake_op_kind kind;
	unsigned direction;
	struct fake_mark *mark;	   /* of this operation */
	struct fake_mark *awaited; /* FAKE_OP_WAIT */
	CUhostFn function;
	void *argument;
	size_t count;
	struct fake_copy copies[];
};

/* A primary context. */
struct CUctx_st {
	int ordinal;
	unsigned refs;
	CUresult sticky;
	struct CUstream_st *legacy; /* made when first used */
};

struct CUstream_st {
	struct CUstream_st *next;
	struct CUctx_st *context;
	unsigned flags;
	bool is_default, destroyed, ended, capturing;
	uint64_t thread_number; /* of a per-thread default stream */
	pthread_t thread;
	struct fake_op *head, **tail;
	struct fake_mark *last;
};

struct CUevent_st {
	struct CUevent_st *next;
	struct CUctx_st *context;
	unsigned flags;
	struct fake_mark *mark; /* NULL: never recorded */
};

enum fake_memory_kind { FAKE_DEVICE, FAKE_MANAGED, FAKE_PINNED, FAKE_REGISTERED };
struct fake_memory {
	struct fake_memory *next;
	enum fake_memory_kind kind;
	struct CUctx_st *context;
	uint64_t start;
	size_t bytes, mapped;
	uint8_t *view;
	bool piece; /* of memory that is mapped piece by piece */
};

struct fake_thread {
	struct CUctx_st *stack[FAKE_STACK];
	unsigned depth;
	int pushed; /* cuCtxSetCurrent does not count */
	uint64_t number;
	bool in_host_function;
	CUstreamCaptureMode capture_mode;
};

struct fake_driver {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool initialised;
	int version, devices;
	char without[512];
	uint64_t pinned_limit, pinned_call_limit;
	unsigned held, steps, waiting_held, delay_us;
	uint64_t random;
	char fault_name[64];
	unsigned fault_nth, fault_times, fault_seen, fault_done;
	CUresult fault_result;
	char last_fault[64];
	unsigned copy_fault_nth;
	CUresult copy_fault_result;
	struct CUctx_st contexts[FAKE_MAX_DEVICES];
	struct CUstream_st *streams; /* default ones too */
	struct CUevent_st *events;
	struct fake_memory *memory;
	unsigned running;
	struct fake_cuda_counts counts;
	char violation[256];
};

extern struct fake_driver fake;

/* The state of the calling thread. */
struct fake_thread *fake__thread(void);
void fake__violation_locked(const char *format, ...) __attribute__((format(printf, 1, 2)));
bool fake__is_sticky(CUresult result);

enum fake_need { FAKE_NOTHING, FAKE_INIT, FAKE_CONTEXT };
/* Every entry point begins with it, and ends with fake__leave when it returned 0. Takes the lock
 * in any case. Releasing entry points go on when it fails, and return what it returned. */
CUresult fake__enter(const char *name, enum fake_need need);
CUresult fake__leave(CUresult result);
struct CUctx_st *fake__current(void);
/* The context is lost: what its streams were given is dropped. */
void fake__lose_locked(struct CUctx_st *context, CUresult result);

/* Memory */
struct fake_memory *fake__memory_find_locked(uint64_t ptr);
/* Where the bytes are that an address stands for; NULL when [ptr, ptr + bytes) is not inside one
 * allocation. Other host memory stands for itself. */
uint8_t *fake__resolve_locked(uint64_t ptr, size_t bytes);
/* Pieces beside each other, each to be freed by cuMemFree; 0 when there is no memory. */
CUdeviceptr fake__map_pieces_locked(size_t piece_bytes, unsigned count, bool joined);
bool fake__touches_locked(uint64_t ptr, size_t bytes);

/* Drops what belongs to a context; whether there was any. */
bool fake__memory_drop_locked(struct CUctx_st *context);
bool fake__events_drop_locked(struct CUctx_st *context);

/* Streams */
/* The stream that a handle means here, NULL when it is none of the current context. */
struct CUstream_st *fake__stream_locked(CUstream handle);
struct fake_op *fake__op_create(enum fake_op_kind kind, size_t copies);
void fake__enqueue_locked(struct CUstream_st *stream, struct fake_op *op);
void fake__mark_release(struct fake_mark *mark);
/* Ends the default streams of a context, and all streams that were destroyed. */
void fake__streams_reap_locked(struct CUctx_st *context);
unsigned fake__pending_locked(void);

#endif
