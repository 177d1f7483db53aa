/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replays a trace: for each request a look-up of its prefix, loads of what is there, stores of the
 * rest, with bytes that follow from the hash ids and are compared after each load. replay.c drives,
 * replay_report.c draws, cmd_replay.c has the options. One thread.
 */
#ifndef KVT_TOOLS_REPLAY_H
#define KVT_TOOLS_REPLAY_H

#include "cli.h"
#include "trace.h"

struct replay_options {
	const char *trace_path;
	const char *report_path; /* NULL: none */
	uint64_t block_bytes, block_tokens;
	uint64_t requests; /* 0: all */
	double speed;	   /* of the trace's clock; 0: as fast as possible */
	uint64_t concurrency;
	uint64_t job_blocks; /* at most, of one load or store */
	uint64_t memory_bytes;
	uint64_t lanes, depth; /* 0: the default */
	uint64_t seed;
	double prefill_tokens_per_s;
	bool verify;
};

/* One finished request. */
struct replay_sample {
	double trace_s;	 /* its time in the trace, from the first request's */
	double done_s;	 /* since the replay began */
	int64_t load_ns; /* from asking for its blocks until the last was there; 0 without hits */
	uint32_t blocks, hits, stored;
};

struct replay_figures {
	uint64_t requests, blocks;
	uint64_t hits;	   /* blocks loaded: the run from a request's first block on */
	uint64_t stored;   /* blocks */
	uint64_t skipped;  /* blocks that were to be stored and were there */
	uint64_t vanished; /* blocks that the look-up saw and the load did not */
	uint64_t corrupt;  /* blocks whose bytes were wrong */
	uint64_t errors;   /* other failures */
	int first_error;
	char detail[256];
	uint64_t hit_tokens, input_tokens;
	double prefill_saved_s; /* what a prefill of the hit tokens would have taken */
	double load_s;		/* what loading them took, request by request */
	double seconds, cpu_seconds;
	double lag_s; /* the most that a request began behind its time */
	struct replay_sample *samples;
	size_t sample_count, sample_room;
	int64_t *loads_ns; /* of requests with hits, sorted; owned */
	size_t load_count;
	char backend[256]; /* what it has learnt: kvt_stats */
};

/* Replays into *figures, which is filled as far as it got also on failure: KVT_EINVAL for the
 * trace, KVT_ECANCELED after an interrupt. The store is borrowed. */
int replay_run(const struct replay_options *options, const struct cli_common *common,
	       struct kvt_store *store, struct replay_figures *figures);
void replay_figures_fini(struct replay_figures *figures);
/* The value below which the given share of the requests' loads lies, in microseconds. */
double replay_load_us(const struct replay_figures *figures, double fraction);
double replay_seconds_saved(const struct replay_figures *figures);

/* Whether a report can be written to `path`; told before the work is done. 0 or KVT_EINVAL, which
 * it has told. */
int replay_report_check(const char *path);

/* Writes the report as one HTML file, whole or not at all. */
int replay_report_write(const struct replay_options *options, const struct replay_figures *figures,
			const char *store_uri);

#endif
