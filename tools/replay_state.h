/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the two halves of the replay's driver share: replay.c has the loop and the memory,
 * replay_request.c takes one request through look-up, load and store. One thread, no locks.
 */
#ifndef KVT_TOOLS_REPLAY_STATE_H
#define KVT_TOOLS_REPLAY_STATE_H

#include "replay.h"

enum stage { STAGE_FREE = 0, STAGE_LOOKUP, STAGE_LOAD, STAGE_STORE };

/* An active request. */
struct slot {
	enum stage stage;
	struct trace_request request;
	double trace_s;
	struct kvt_key *keys; /* room for `room` */
	uint8_t *hashes;
	bool *loaded; /* per block: its bytes are there and right */
	size_t room;
	size_t next, end;     /* blocks of this stage that no job has yet */
	uint64_t outstanding; /* jobs */
	size_t hits, stored;
	int64_t load_start_ns, load_end_ns;
};

/* A job in flight; its number is the job's id. */
struct job {
	struct slot *slot;
	size_t first; /* block of the request */
	size_t count;
	int64_t submitted_ns;
	uint64_t *ptrs; /* job_blocks of each */
	uint32_t *buffers;
};

struct replay {
	const struct replay_options *options;
	struct replay_figures *figures;
	struct kvt_worker *worker;
	int event_fd;
	int64_t start_ns;
	struct trace trace;
	struct trace_request pending; /* read ahead */
	bool has_pending, trace_ended;
	double first_ms;
	uint64_t started; /* requests taken from the trace */
	struct slot *slots;
	uint64_t active;
	struct job *jobs;
	uint32_t job_count;
	uint32_t *free_jobs, free_job_count;
	unsigned char *memory;
	uint64_t buffer_stride;
	uint32_t buffer_count;
	uint32_t *free_buffers, free_buffer_count;
	uint64_t *sizes; /* job_blocks times block_bytes */
	uint64_t in_flight;
	struct cli_progress progress;
};

/* Begins the request that was read ahead in a free slot. */
int replay_slot_start(struct replay *replay, struct slot *slot);
/* Gives the next blocks of the slot's stage to a job; a buffer and a job must be free. KVT_EAGAIN,
 * with nothing changed, when the queue is full. Prints nothing. */
int replay_blocks_submit(struct replay *replay, struct slot *slot);
/* Accounts for a completion and moves its request on. */
int replay_completion_handle(struct replay *replay, const struct kvt_result *result);

#endif
