/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The measuring half of bench: jobs of chunks in flight, their times, and the comparison of every
 * loaded byte. cmd_bench.c has the options and what is printed. One thread.
 */
#ifndef KVT_TOOLS_BENCH_H
#define KVT_TOOLS_BENCH_H

#include "cli.h"

enum bench_op { BENCH_STORE = 1, BENCH_LOAD = 2, BENCH_BOTH = 3 };

struct bench_options {
	unsigned op; /* enum bench_op */
	uint64_t chunk_bytes, chunks;
	uint64_t blocks, refs; /* of a chunk */
	double partial;	       /* share of chunks that hold the first half of their blocks only */
	uint64_t lanes, depth; /* 0: the default */
	uint64_t job_chunks;
	uint64_t jobs_in_flight; /* 0: chosen */
	uint64_t memory_bytes;	 /* for chunks; 0: a quarter of the machine's */
	uint64_t staging_bytes, part_bytes;
	uint64_t seed;
	bool verify, keep;
};

/* What one phase came to. */
struct bench_figures {
	enum bench_op op;
	uint64_t chunks;	     /* that succeeded and were moved */
	uint64_t bytes;		     /* their payload */
	uint64_t skipped;	     /* stores of chunks that were there already */
	uint64_t errors;	     /* chunks that failed, the corrupt included */
	uint64_t corrupt;	     /* loaded as good, and differ from what was stored */
	int first_error;	     /* 0 or a code */
	char detail[256];	     /* of the first failure */
	double seconds, cpu_seconds; /* of the timed parts */
	int64_t *latencies_ns;	     /* of jobs, sorted; owned */
	uint64_t latency_count;
	uint64_t staging_samples, staging_waits; /* moments looked at; with a chunk waiting */
	struct kvt_stats before, after;
};

struct bench_job;

struct bench {
	struct bench_options options;
	struct kvt_store *store;
	struct kvt_worker *worker;
	int event_fd;
	uint64_t block_bytes;  /* of each ref */
	uint64_t round_chunks; /* that fit in memory at once */
	uint64_t ref_stride;   /* bytes from one ref's memory to the next's */
	unsigned char *memory;
	uint64_t memory_bytes;
	struct bench_job *jobs; /* options.jobs_in_flight of them */
	struct kvt_result **results;
	uint8_t *loaded; /* of the round's chunks: whether the bytes must be right */
	uint8_t *stored; /* bit of each chunk that this run stored */
	struct cli_progress progress;
};

/* Chooses what was left open and allocates everything that the timed loops need. The store is
 * borrowed. fini accepts a zeroed struct. */
int bench_init(struct bench *bench, const struct bench_options *options,
	       const struct cli_common *common, struct kvt_store *store);
void bench_fini(struct bench *bench);
/* Stores or loads all chunks. Failures of chunks are figures, not failures of the call;
 * KVT_ECANCELED after an interrupt. Release with bench_figures_fini. */
int bench_run(struct bench *bench, enum bench_op op, struct bench_figures *figures);
void bench_figures_fini(struct bench_figures *figures);
/* Removes the chunks that this run stored. */
int bench_remove(struct bench *bench);

#endif
