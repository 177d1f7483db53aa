/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A lane: one thread with one storage session and one device lane. It runs operations (one for each
 * active item), which make requests: a request is one storage io with the staging buffer and the
 * device copies that belong to it. Everything here belongs to the lane's thread but for the inbox.
 *
 * An operation is a chain of stages. Each stage is started by kvt__req_buffer, kvt__req_copy,
 * kvt__req_order or kvt__req_io with the function to go on with; the lane calls that function once
 * the stage is finished, never from inside the call that started it, so stages neither recurse nor
 * overtake each other.
 */
#ifndef KVT_SRC_LANE_H
#define KVT_SRC_LANE_H

#include <stdio.h>

#include "worker.h"

#define KVT__DETAIL_BYTES	 256
#define KVT__ROUNDS_MAX		 3 /* of starting over because somebody else changed the object */
#define KVT__FINISHED_MAX	 64
#define KVT__SMALL_TRAILER_BYTES (2 * KVT__PAGE_BYTES)
#define KVT__RIDING_BYTES	 (64 * 1024) /* of a trailer that are part of another request */
#define KVT__RANGES_INLINE	 4
#define KVT__SLOTS_INLINE	 64

struct kvt__op;
struct kvt__req;
typedef void (*kvt__then_fn)(struct kvt__req *req);

enum kvt__stage {
	KVT__STAGE_NONE = 0,
	KVT__STAGE_BUFFER, /* waits for staging memory */
	KVT__STAGE_COPY,   /* the device copies */
	KVT__STAGE_ORDER,  /* the device orders: given up when canceled or late */
	KVT__STAGE_IO,	   /* the backend has it */
	KVT__STAGE_BUSY,   /* to be submitted after the next completion */
	KVT__STAGE_DELAY,  /* to be submitted again at retry_at_ns */
	KVT__STAGE_PAUSE,  /* goes on at retry_at_ns */
	KVT__STAGE_READY,  /* finished: `then` is due */
};

/* A byte range of an object, moved by one request; the checksums of slots that begin before or end
 * behind it. */
struct kvt__range {
	uint64_t begin, end;
	uint64_t head_bytes, tail_bytes;
	uint32_t head_crc, tail_crc;
};

/* Where a request's checksumming is. */
struct kvt__cursor {
	uint64_t at; /* payload offset */
	uint64_t slot_at, slot_end;
	uint32_t slot;
	uint32_t ref;
	uint32_t crc;
	bool wanted;
};

struct kvt__req {
	struct kvt_io io;
	struct kvt__lane *lane;
	struct kvt__op *op;
	struct kvt__req *next;	     /* in one of the lane's lists */
	struct kvt__req *inbox_next; /* in the inbox, beside waiting */
	kvt__then_fn then;
	int result;
	uint8_t stage; /* enum kvt__stage */
	bool probe;    /* of a half-open breaker */
	bool buffered; /* holds staging memory */
	bool must;     /* goes on when canceled or expired: abort */
	bool direct;   /* this range moves without staging */
	uint32_t tries;
	int64_t started_ns, retry_at_ns, buffer_until_ns;
	struct kvt__range *range;
	struct kvt__cursor cursor;
	struct kvt__staging_wait staging;
	struct kvt_device_io copy;
	struct kvt_device_copy *copies;
	struct kvt_iovec *iov;
	uint32_t copies_room, iov_room;
	struct kvt_version version; /* what io.if_version points to */
	char detail[KVT__DETAIL_BYTES];
};

/* One active item, or config.json (item NULL). */
struct kvt__op {
	struct kvt__lane *lane;
	struct kvt__item *item;
	struct kvt__job *job;
	struct kvt__op *next; /* free ones */
	struct kvt__op *hungry_next;
	bool hungry;
	bool is_store;		  /* takes one of the lane's places for stores */
	struct kvt__req *control; /* its own request, from start to end; ranges use it too while it
				     is free */
	bool control_free;
	uint32_t outstanding; /* requests that move ranges, the control among them */
	int64_t deadline_ns;
	char *name; /* object name: in the op's allocation, or a raw file's path */
	char *name_room;
	void (*feed)(struct kvt__op *op); /* moves the next ranges, as far as requests are free */

	/* What it is. */
	struct kvt__geometry geometry;
	const struct kvt__shape *shape; /* NULL: lookups */
	const struct kvt__raw *raw;
	struct kvt__layout layout;
	struct kvt__identity identity;
	struct kvt__plan_chunk chunk;
	uint64_t wanted_bytes;
	uint64_t payload_bytes; /* bytes before the trailer; raw: the file's length */
	uint64_t object_bytes;	/* to be written */
	bool partial;		/* what is written has absent slots */
	bool replace;		/* whatever is there */
	bool merge;
	bool sealed;	  /* in parts: the trailer is made */
	bool was_bad;	  /* taken from the store's bad keys */
	bool addressable; /* the CPU reaches all of its memory */
	bool quiet;	  /* its memory's quiet has been told */

	/* Its ranges. */
	struct kvt__range *ranges;
	struct kvt__range ranges_inline[KVT__RANGES_INLINE];
	uint32_t range_count, range_next, ranges_done, ranges_gathered;
	uint32_t trailer_ranges;  /* how many at the end hold bytes of the trailer */
	uint32_t trailer_pending; /* loads: of them, how many have not landed */
	void *handle;		  /* of begin */

	/* Trailer: written, or read. */
	uint8_t *trailer;
	uint64_t trailer_bytes;
	uint8_t *trailer_memory; /* what has to be freed: small from the lane's cache, or large */
	uint64_t trailer_room;
	struct kvt__trailer parsed;
	bool trailer_parsed;
	struct kvt_object_info found; /* what is there, as far as known */
	bool pinned;		      /* found.version is the one that is read */
	uint32_t *crcs;		      /* loads: of each slot that has landed */
	uint32_t crcs_inline[KVT__SLOTS_INLINE];
	uint8_t *old_presence;	 /* merges: which slots the old object has */
	uint8_t *lost;		 /* merges: old slots whose checksum failed */
	bool lost_more;		 /* one was found in this pass */
	bool old_changed;	 /* merges: the old object is not the one that was looked at */
	bool sparse;		 /* loads: the wanted ranges only */
	bool raw_load;		 /* loads: a raw chunk without a trailer */
	bool odd;		 /* loads: of another length than ours */
	bool again;		 /* loads: to be read once more before it is called corrupt */
	bool changed;		 /* loads: replaced while it was read */
	bool conclude;		 /* loads: nothing more is to be read */
	bool proven;		 /* loads: proven bad, so it may be removed */
	struct kvt__req *landed; /* loads: ranges that wait for the trailer */
	struct kvt__range *partial_range;
	bool checksum_fails; /* the trailer's own */
	bool bad_slot;
	uint32_t bad_slot_index;
	uint32_t rounds;     /* of merging, or of starting over */
	uint32_t suspect;    /* loads: what the last read found wrong */
	uint32_t rereads;    /* loads: after a checksum failed */
	uint64_t peek_bytes; /* inspecting: how much of the end was asked for */
	uint8_t *peeked;
	void (*inspected)(struct kvt__op *op, int verdict);

	/* What became of it. */
	enum kvt_status status;
	int error;
	bool decided;
	uint64_t bytes;
	uint32_t attempts;
	char detail[KVT__DETAIL_BYTES];
};

struct kvt__finished {
	struct kvt__item *item;
	struct kvt__detail *detail;
	uint64_t bytes;
	enum kvt_status status;
	int error;
	uint32_t attempts;
	bool quiet_only; /* only the item's memory is quiet */
};

struct kvt__lane {
	struct kvt_worker *worker;
	uint32_t index;
	uint32_t depth, store_places;
	uint32_t lookup_room; /* requests that only lookups may use, while there are lookups */
	uint32_t reserved;    /* of them, in this round: 0 when none was asked for long enough */
	bool was_lookup;      /* depth 1: what ran last, so that others have every second turn */
	pthread_t thread;
	bool started;
	int start_error;
	char start_detail[KVT__DETAIL_BYTES];
	void *session;
	void *device_lane;
	int wake_fd; /* blocking backends: what the lane sleeps on, else -1 */
	size_t name_room;

	_Atomic(struct kvt__req *) inbox; /* requests that were granted memory by other threads */

	struct kvt__req *requests_free;
	uint32_t requests_free_count;
	struct kvt__req *ready_first, *ready_last;
	struct kvt__req *busy_first, *busy_last;
	struct kvt__req *waiting; /* BUFFER, ORDER, DELAY, PAUSE: looked at for time and cancel */
	struct kvt__op *ops_free;
	struct kvt__op *hungry_first, *hungry_last;
	struct kvt__op *config; /* makes or compares config.json */
	uint32_t ops, store_ops, lookup_ops;
	uint32_t in_flight, copies_in_flight;
	struct kvt__arm *arms;
	struct kvt__arm *armed;	 /* ordered: to be queued */
	uint8_t *small_trailers; /* free ones, linked through their first bytes */
	struct kvt__finished finished[KVT__FINISHED_MAX];
	uint32_t finished_count;
	int64_t now_ns;
	struct kvt__lane_stats stats;
};

/* request.c */
int kvt__requests_init(struct kvt__lane *lane);
void kvt__requests_fini(struct kvt__lane *lane);
struct kvt__req *kvt__req_get(struct kvt__lane *lane,
			      struct kvt__op *op); /* NULL when all are taken */
void kvt__req_put(struct kvt__req *req);	   /* gives its staging memory back too */
/* Makes room; KVT_ENOMEM. */
int kvt__req_reserve(struct kvt__req *req, uint32_t iov, uint32_t copies);
/* Prepares the io for an operation on op->name: everything else zero. */
void kvt__req_prepare(struct kvt__req *req, enum kvt_io_op what);
/* How many more requests all but lookups may have now. */
uint32_t kvt__requests_room(const struct kvt__lane *lane);
/* The stages. The result is in req->result when `then` is called. */
void kvt__req_buffer(struct kvt__req *req, uint64_t bytes, bool for_store, kvt__then_fn then);
void kvt__req_release_buffer(struct kvt__req *req);
void kvt__req_copy(struct kvt__req *req, enum kvt_copy_direction direction, uint32_t count,
		   kvt__then_fn then);
void kvt__req_order(struct kvt__req *req, bool for_cpu, kvt__then_fn then);
void kvt__req_io(struct kvt__req *req, kvt__then_fn then);
/* `then` at `at_ns`, unless canceled or expired before. */
void kvt__req_delay(struct kvt__req *req, int64_t at_ns, kvt__then_fn then);
/* `then` is called in the lane's next round with this result. */
void kvt__req_ready(struct kvt__req *req, int result, kvt__then_fn then);
/* Lane loop's parts. */
void kvt__requests_run_ready(struct kvt__lane *lane);
void kvt__requests_take_inbox(struct kvt__lane *lane);
void kvt__requests_resubmit_busy(struct kvt__lane *lane);
/* Ends waits that are due, canceled or late; returns when to look again. */
int64_t kvt__requests_check_waiting(struct kvt__lane *lane);

/* op.c */
void kvt__op_start(struct kvt__lane *lane, struct kvt__item *item);
struct kvt__op *kvt__op_new(struct kvt__lane *lane);
/* Why an operation must stop now: KVT_ECANCELED, KVT_ETIMEDOUT or 0. */
int kvt__op_stopped(const struct kvt__op *op);
/* Notes a failure; the first one counts. `detail` may be NULL: the request's, or the code's text.
 */
void kvt__op_fail(struct kvt__op *op, enum kvt_status status, int error, const char *detail);
/* The status that a failed request gives its key. */
void kvt__op_fail_request(struct kvt__op *op, struct kvt__req *req);
/* Ends the operation with what was noted, or with `status` when nothing was. Every request but the
 * control is put. */
void kvt__op_finish(struct kvt__op *op, enum kvt_status status);
/* Stores are refused for a while after the store was full; notes the failure. */
bool kvt__op_is_paused(struct kvt__op *op);
/* Tells that its memory is quiet before it is finished. */
void kvt__op_quiet(struct kvt__op *op);
void kvt__ops_flush_finished(struct kvt__lane *lane);
/* A request for the next range: the control when it is free, else one from the lane, where lookups
 * keep their room; NULL: wait (the op is hungry then). */
struct kvt__req *kvt__op_take_request(struct kvt__op *op);
void kvt__op_give_request(struct kvt__op *op, struct kvt__req *req);
void kvt__ops_feed_hungry(struct kvt__lane *lane);

/* range.c */
/* A contiguous run of payload bytes that lie together in the caller's memory (of one slot, unless
 * op->addressable), or that are absent. */
struct kvt__piece {
	uint64_t at, bytes;
	uint64_t ptr;
	bool present;
};
/* The piece at payload offset *at, up to `end`; moves *at behind it. False at the end. */
bool kvt__op_piece(const struct kvt__op *op, uint64_t *at, uint64_t end, struct kvt__piece *piece);
/* The extents of an object of op->object_bytes with a trailer from op->payload_bytes on.
 * KVT_ENOMEM. */
int kvt__ranges_whole(struct kvt__op *op);
int kvt__ranges_reserve(struct kvt__op *op, uint64_t count);
void kvt__ranges_free(struct kvt__op *op);
bool kvt__range_has_trailer(const struct kvt__op *op, const struct kvt__range *range);
/* Whether the range can move straight from or to the caller's memory. */
bool kvt__range_is_direct(const struct kvt__op *op, const struct kvt__range *range, bool is_store);
/* Fills req->iov for the range; returns the number of entries or KVT_ENOMEM. A direct range uses
 * the caller's memory, a staged one its buffer. Trailer bytes are the last entry when there are
 * any. */
int kvt__range_iov(struct kvt__req *req, bool is_store);
/*
 * After a read of chunk data that failed: the next try asks only for what has not landed, and only
 * of the version whose bytes have; another one is KVT_EPRECOND then. Where the version is not known
 * it asks for all again.
 */
void kvt__range_resume(struct kvt__req *req);
/* Fills req->copies between the range's buffer and device memory; returns the number or KVT_ENOMEM.
 */
int kvt__range_copies(struct kvt__req *req);
/* Starts checksumming at the range's beginning. */
void kvt__cursor_start(struct kvt__req *req);
/* Checksums up to payload offset `to`; slots that end are handed to `record`. */
void kvt__cursor_advance(struct kvt__req *req, uint64_t to,
			 void (*record)(struct kvt__op *op, uint32_t slot, uint32_t crc));
/* Joins the checksums of slots that lie in several ranges. */
void kvt__ranges_join(struct kvt__op *op,
		      void (*record)(struct kvt__op *op, uint32_t slot, uint32_t crc));
bool kvt__op_wants(const struct kvt__op *op, uint32_t slot);
/* Room for a trailer outside of staging. KVT_ENOMEM. */
int kvt__op_trailer_room(struct kvt__op *op, uint64_t bytes);

/* the kinds of operations */
void kvt__store_start(struct kvt__op *op); /* chunk_store.c */
void kvt__merge_begin(struct kvt__op *op); /* chunk_merge.c: op->parsed is the old trailer */
void kvt__merge_range(struct kvt__req *req);
bool kvt__merge_retry(struct kvt__op *op);
void kvt__store_ask(struct kvt__op *op, bool if_cheap);
void kvt__store_start_over(struct kvt__op *op);
void kvt__store_write(struct kvt__op *op);
void kvt__merge_check_slot(struct kvt__op *op, uint32_t slot, uint32_t crc);
void kvt__store_range_checked(struct kvt__req *req);
void kvt__store_range_ended(struct kvt__req *req);
void kvt__load_start(struct kvt__op *op); /* chunk_load.c */
void kvt__load_begin(struct kvt__op *op); /* from the start, again */
/* chunk_verdict.c: the trailer has landed in op->trailer; whether nothing more is to be read; all
 * requests are back. */
void kvt__load_read_trailer(struct kvt__op *op);
bool kvt__load_must_conclude(const struct kvt__op *op);
void kvt__load_conclude(struct kvt__op *op);
void kvt__lookup_start(struct kvt__op *op);	/* chunk_lookup.c */
void kvt__raw_start(struct kvt__op *op);	/* raw_file.c */
void kvt__config_start(struct kvt__lane *lane); /* config_step.c */
/*
 * Reads the end of the object that is there (its length in op->found, or unknown) and says what it
 * is: 0 with op->parsed filled (a valid trailer of any key), or KVT_ENOENT, KVT_EFOREIGN,
 * KVT_ECORRUPT, KVT_EFORMAT, or the failure of the request. chunk_inspect.c
 */
void kvt__chunk_inspect(struct kvt__op *op, void (*then)(struct kvt__op *op, int verdict));

#endif
