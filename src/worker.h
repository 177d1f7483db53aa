/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The worker's own data: jobs, the items (one chunk of a job each) that wait in its queues, and the
 * lanes that run them.
 *
 * One lock, worker->lock, guards the queues, the job and key tables, the completions and every
 * member marked [lock]. It is held across no call out: no vtable call, no log call, no allocation
 * hook. What an active item does belongs to its lane alone and needs no lock.
 */
#ifndef KVT_SRC_WORKER_H
#define KVT_SRC_WORKER_H

#include <pthread.h>
#include <stdatomic.h>

#include "device.h"
#include "stream.h"
#include "env.h"
#include "format.h"
#include "plan.h"
#include "retry.h"
#include "staging.h"
#include "store.h"

struct kvt__lane;

#define KVT__MAX_LANES	   64
#define KVT__POP_MAX	   16
#define KVT__PREFIX_WINDOW 32 /* keys of one prefix lookup under way at once */

/* Queue classes in order of service; stores age so that they cannot starve. */
enum kvt__class {
	KVT__CLASS_LOOKUP = 0,
	KVT__CLASS_EXPEDITED,
	KVT__CLASS_LIFTED, /* stores that somebody waits for */
	KVT__CLASS_LOAD,
	KVT__CLASS_STORE,
	KVT__CLASS_COUNT,
};

enum kvt__item_state {
	KVT__ITEM_HELD = 0, /* its job waits for its ready event, or its turn in a prefix lookup */
	KVT__ITEM_QUEUED,
	KVT__ITEM_PARKED, /* waits for another store of its key */
	KVT__ITEM_ACTIVE, /* on a lane */
	KVT__ITEM_DONE,
};

/* One line about a failure: made by a lane, given to the job. */
struct kvt__detail {
	struct kvt__detail *next;
	char text[];
};

/* One chunk (or raw file) of a job. [lock] but for what its lane does while it is active. */
struct kvt__item {
	struct kvt__item *next, *prev; /* in a class queue, or among the followers of a store */
	struct kvt__job *job;
	struct kvt__item *hash_next;	/* stores: in the key table */
	struct kvt__item *first, *last; /* stores: followers, in order of arrival */
	struct kvt__item *leader;	/* parked: whose followers it is among */
	uint32_t index;			/* of its key */
	uint32_t hash_at;		/* in job->hashes */
	uint32_t key_group;
	uint32_t shape; /* index in job->shapes; lookups: in worker->geometries */
	uint8_t hash_bytes;
	uint8_t state;	    /* enum kvt__item_state */
	uint8_t item_class; /* enum kvt__class */
	bool in_table;	    /* stores: leads its key in the key table */
	bool memory_quiet;  /* counted in job->memory_pending no more */
};

/* The shape of the chunks of one group of a job; lives in the job. */
struct kvt__shape {
	struct kvt__plan_group plan;
	struct kvt__geometry geometry;
	const uint64_t *ref_at; /* payload offset of each ref */
	const uint64_t *ptrs;	/* of the whole job */
};

/* A job's wait for its ready event on a device that cannot order by stream; one storage for all of
 * it. */
struct kvt__arm {
	struct kvt_device_io io;
	struct kvt__job *job;
	struct kvt__arm *next;	/* [lock] in worker->arms, then private to the lane that armed it */
	struct kvt__lane *lane; /* which that is */
	char detail[128];
};

/* One file of a raw job. Two owners: the caller and the job. */
struct kvt_io_completion {
	struct kvt_allocator allocator;
	uint32_t fork_generation;
	atomic_int done; /* set once, under the lock, with everything else written before */
	struct kvt_io_completion *next; /* in kvt__after */
	int result;
	atomic_int owners;
	pthread_mutex_t lock; /* leaf: guards the wait only */
	pthread_cond_t cond;
	char detail[256];
};

struct kvt__raw {
	const char *path;
	const struct kvt_file_op *ops; /* sorted by offset */
	size_t op_count;
	uint64_t end; /* of the furthest op */
	struct kvt_io_completion *completion;
};

/* A job and everything it copied, in one allocation. result comes first: it is what callers get and
 * release. */
struct kvt__job {
	struct kvt_result result;
	struct kvt_allocator allocator; /* outlives the worker */
	struct kvt__job *id_next;	/* [lock] in the id table, until polled */
	struct kvt__job *next, *prev;	/* [lock] live jobs, then (next only) completions */
	struct kvt__item *items;
	struct kvt__shape *shapes;
	uint8_t *hashes;
	uint8_t *key_status;
	int16_t *key_error;
	uint32_t *key_blocks;
	struct kvt__raw *raws;
	struct kvt_ready ready;
	struct kvt__mark *mark;	    /* whose event ready is, until the job is complete */
	uint64_t number;	    /* of all jobs of the worker, never used again */
	struct kvt__arm *arm;	    /* [lock] NULL when not armed or no longer */
	struct kvt__detail *detail; /* [lock] of the worst key so far, or */
	const char *detail_fixed;   /* [lock] static text */
	int64_t submitted_ns, deadline_ns;
	int64_t started_ns;	 /* [lock] 0 until its first item is active */
	uint64_t pending;	 /* [lock] items not done, plus one for an arm */
	uint64_t memory_pending; /* [lock] items whose memory is not quiet, plus one for an arm */
	uint64_t prefix_next,
		prefix_end; /* [lock] prefix lookups: next item to queue; first miss */
	uint32_t lookup_flags;
	bool raw_store;	      /* of a raw job */
	uint8_t worst;	      /* [lock] rank of its worst status */
	bool complete;	      /* [lock] */
	bool expired;	      /* [lock] */
	atomic_bool canceled; /* set under the lock, read by lanes */
};

struct kvt__queue {
	struct kvt__item *first, *last;
	uint64_t count;
};

/* Chained hash table of the stores that lead their keys. */
struct kvt__key_table {
	struct kvt__item **buckets;
	uint64_t mask;
};

struct kvt__job_table {
	struct kvt__job **buckets;
	uint64_t mask, count;
};

/* A group's geometry for lookups. Never freed before the worker: items refer to it by index. */
struct kvt__lookup_geometry {
	uint32_t group;
	bool current; /* [lock] the one in force; older ones stay for their items, and for being set
			 again */
	struct kvt__geometry geometry;
	struct kvt__layout layouts[65]; /* by hash length; 0 is not used */
};

/* What a lane counts: written by the lane only, read by anyone. */
struct kvt__latency {
	_Atomic uint64_t count, sum_ns, buckets[KVT_HISTOGRAM_BUCKETS];
};
struct kvt__lane_stats {
	_Atomic uint64_t requests, in_flight, active, crc_bytes, merges, removed_corrupt,
		odd_length_misses, zero_bytes, dropped_bytes;
	_Atomic uint64_t retries[KVT_CLASS_COUNT];
	struct kvt__latency queue_ns, device_ns, storage_ns;
};
static inline void kvt__count(_Atomic uint64_t *counter, uint64_t add)
{
	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + add,
			      memory_order_relaxed);
}
void kvt__latency_add(struct kvt__latency *histogram, int64_t ns);

struct kvt__worker_config {
	uint32_t lanes, depth;
	uint64_t staging_bytes, part_bytes, queue_chunks;
	int64_t timeout_ns[4]; /* by enum kvt_job_kind */
	int64_t operation_timeout_ns, buffer_timeout_ns;
	bool keep_corrupt;
	int (*thread_init)(void *context, uint32_t lane);
	void *thread_init_context;
};

struct kvt_worker {
	struct kvt__env env;
	uint32_t fork_generation;
	struct kvt_store *store;
	struct kvt_device *device; /* the caller's, or own_device */
	struct kvt_device *own_device;
	struct kvt__worker_config config;
	struct kvt__staging *staging;
	struct kvt__retry retry;
	struct kvt__lane *lanes;
	uint32_t lanes_started; /* threads */

	/* Lanes that sleep, or are about to, and would take more work. A pusher that clears a bit
	 * wakes that lane. */
	atomic_ullong idle_lanes;
	atomic_ullong idle_for_loads;  /* those of them that have room for more than lookups */
	atomic_ullong idle_for_stores; /* those of these that have a place for a store */
	/* The earliest deadline of a job that is not complete, or a little before; INT64_MAX when
	 * there is none. */
	atomic_llong next_expiry_ns;
	atomic_ullong done_count; /* completions that wait */
	atomic_llong stores_paused_until_ns;
	atomic_llong config_retry_ns;  /* when config.json may be tried again */
	atomic_llong lookups_until_ns; /* until then lanes keep room for lookups */
	atomic_bool stopping;

	pthread_mutex_t lock;
	pthread_cond_t changed; /* broadcast when a job completes or its memory goes quiet, while
				   somebody waits */
	/* all [lock] */
	uint32_t waiting; /* threads in wait, drain or destroy */
	struct kvt__queue queues[KVT__CLASS_COUNT];
	uint64_t queued;		   /* items held, queued or parked */
	uint32_t since_store;		   /* pops of other classes since the last store */
	struct kvt__arm *arms, *arms_last; /* to be armed by the next lane */
	struct kvt__key_table keys;
	struct kvt__job_table jobs;
	struct kvt__job *live_first; /* not complete */
	uint64_t live_count;
	struct kvt__job *done_first, *done_last;
	int event_fd; /* -1 until asked for */
	struct kvt__lookup_geometry **geometries;
	uint32_t geometry_count, geometry_room;
	uint32_t lanes_ready; /* at the start: lanes that have started or failed to */
	uint32_t lanes_quiet,
		lanes_running; /* at the end: lanes with nothing left; lanes not yet ended */
	bool lanes_released; /* nobody will wake a lane any more: once all are quiet they may end */
	uint64_t raw_live;   /* raw jobs not complete */
	bool fruitless_warned; /* hits without a single load were warned about */
	/* counters, [lock] */
	uint64_t keys_done[4][KVT_STATUS_COUNT];
	uint64_t bytes_done[4];
	uint64_t jobs_submitted, jobs_completed, jobs_refused;
	int last_error;
	char last_error_detail[256];
};

/* What has to be done after the lock is released. */
struct kvt__after {
	uint64_t wake;			 /* lanes to wake */
	struct kvt__job *freed;		 /* raw jobs that nobody will poll, linked by next */
	struct kvt__detail *details;	 /* superseded */
	struct kvt_io_completion *files; /* finished raw files */
	struct kvt__mark *marks;	 /* of completed jobs */
	bool fruitless;
	uint64_t stored_bytes;
};

/* Lanes keep room for lookups so long after one was submitted. */
#define KVT__LOOKUPS_NS INT64_C(10000000000)

/* queue.c */
void kvt__queue_push_locked(struct kvt_worker *w, struct kvt__item *item, enum kvt__class c);
void kvt__queue_unlink_locked(struct kvt_worker *w, struct kvt__item *item);
/* Moves a store in front of the loads: at once when it is queued, else when it will be. */
void kvt__queue_lift_locked(struct kvt_worker *w, struct kvt__item *item);
/* What a lane may take. */
struct kvt__allowance {
	uint32_t all;
	uint32_t others;  /* of them, all but lookups */
	uint32_t stores;  /* of these */
	uint32_t lookups; /* while there are others that may be taken, else as many as there are */
	bool hold_stores; /* stores of chunks wait for config.json; raw files have none */
	bool held;	  /* result: one was held back */
};
/* Takes up to a->all items, which are ACTIVE then. */
uint32_t kvt__queue_pop_locked(struct kvt_worker *w, struct kvt__item **items,
			       struct kvt__allowance *a, int64_t now_ns);
/* How many items wait in the queues; *storesp: how many of them are stores. */
uint64_t kvt__queue_waiting_locked(const struct kvt_worker *w, uint64_t *storesp);
/* Picks one idle lane to wake if work waits that it would take. */
void kvt__wake_one_locked(struct kvt_worker *w, struct kvt__after *after);

/* keys.c: stores by key */
int kvt__keys_init(struct kvt_worker *w);
void kvt__keys_fini(struct kvt_worker *w);
struct kvt__item *kvt__keys_find_locked(const struct kvt_worker *w, const struct kvt__item *like);
void kvt__keys_insert_locked(struct kvt_worker *w, struct kvt__item *item);
void kvt__keys_remove_locked(struct kvt_worker *w, struct kvt__item *item);
/* Puts a load or store among the followers of a store of its key. */
void kvt__keys_follow_locked(struct kvt__item *leader, struct kvt__item *item);
void kvt__keys_unfollow_locked(struct kvt__item *item);

/* completion.c */
/* Ends an item that is not active, or whose lane is done with it; releases what follows it,
 * completes its job with its last item. `detail` is given and may be NULL; `fixed` is static text
 * for when it is. */
void kvt__item_finish_locked(struct kvt_worker *w, struct kvt__item *item, enum kvt_status status,
			     int error, uint64_t bytes, struct kvt__detail *detail,
			     const char *fixed, struct kvt__after *after);
/* Notes that an item's memory is quiet before the item itself is done. */
void kvt__item_quiet_locked(struct kvt_worker *w, struct kvt__item *item);
/* Takes back one share of job->pending; with the last one the job completes. */
void kvt__job_unpin_locked(struct kvt_worker *w, struct kvt__job *job, struct kvt__after *after);
/* Drops the arm's share of a job. */
void kvt__arm_end_locked(struct kvt_worker *w, struct kvt__job *job, struct kvt__after *after);
/* Ends everything of a job that is not active: cancel and expiry. */
void kvt__job_drop_locked(struct kvt_worker *w, struct kvt__job *job, enum kvt_status status,
			  int error, const char *fixed, struct kvt__after *after);
/* Ends what waits beyond its deadline; called by lanes, poll and wait. */
void kvt__expire(struct kvt_worker *w, int64_t now_ns);
/* Queues a job's items, or as many as a prefix lookup may have under way. */
void kvt__job_queue_locked(struct kvt_worker *w, struct kvt__job *job, struct kvt__after *after);
/* Wakes and frees what `after` collected; without the lock. */
void kvt__after_run(struct kvt_worker *w, struct kvt__after *after);
struct kvt__job *kvt__job_find_locked(const struct kvt_worker *w, uint64_t job_id);
void kvt__job_free(struct kvt__job *job);
struct kvt__detail *kvt__detail_new(const struct kvt_worker *w, const char *text);
uint32_t kvt__status_rank(enum kvt_status status);

/* worker.c */
/* The CLOCK_MONOTONIC time in timeout_ms from now; far away for a negative one. */
void kvt__deadline(int64_t timeout_ms, struct timespec *until);

/* submit.c */
/* KVT_EFORK in a forked child, KVT_EINVAL for NULL; `call` is the public function's name. */
int kvt__worker_check(const struct kvt_worker *w, const char *call);

/* What all submit calls share. */
struct kvt__request {
	const char *call;
	uint32_t kind; /* enum kvt_job_kind */
	uint64_t job_id;
	const struct kvt_key *keys; /* NULL: a raw job */
	uint64_t key_count;
	bool raw_store;
	struct kvt_submit_options options;
};
int kvt__request_options(struct kvt_worker *w, struct kvt__request *r,
			 const struct kvt_submit_options *options);
/* Room in a job's allocation: counted with base NULL, carved by the same calls afterwards. */
struct kvt__carver {
	uint8_t *base;
	size_t at;
};
void *kvt__carve(struct kvt__carver *c, uint64_t count, size_t size);
void kvt__job_header(struct kvt_worker *w, struct kvt__job *job, const struct kvt__request *r);
void kvt__job_arrays(struct kvt__job *job, struct kvt__carver *c, const struct kvt__request *r,
		     uint64_t hash_total);
int kvt__job_out_of_memory(const struct kvt__request *r);
/* Arms the job where its device needs that, then takes it in, or frees it with whatever it holds.
 */
int kvt__job_enter(struct kvt_worker *w, struct kvt__job *job, const struct kvt__request *r);

/* A transfer as given by the caller; `row`: made by a call for rows. */
int kvt__submit_transfer(struct kvt_worker *w, uint64_t job_id, const struct kvt_transfer *transfer,
			 const struct kvt_submit_options *options, uint32_t kind, const char *call,
			 bool row);

/* lane.c */
void kvt__lane_wake(struct kvt_worker *w, uint32_t lane);
void kvt__lanes_wake_all(struct kvt_worker *w);
int kvt__lanes_start(struct kvt_worker *w);
/* Lanes end once they are quiet and worker->stopping is set. Joins and frees those that have
 * started. */
void kvt__lanes_join(struct kvt_worker *w);
/* In a forked child: closes the lanes' descriptors; their threads and sessions are the parent's. */
void kvt__lanes_forked(struct kvt_worker *w);

#endif
