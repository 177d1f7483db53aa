/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Traces of LLM services in the Mooncake form: one JSON object a line with timestamp (ms),
 * input_length and output_length (tokens) and hash_ids (one integer for each block of the prompt;
 * the same id means the same prefix). Read line by line, so a trace may be longer than memory.
 */
#ifndef KVT_TOOLS_TRACE_H
#define KVT_TOOLS_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* The longest line, and the most blocks of one request. */
#define TRACE_LINE_BYTES (4 << 20)
#define TRACE_BLOCKS	 65536

struct trace_request {
	double timestamp_ms;
	uint64_t input_length;
	uint64_t output_length;
	uint64_t *hash_ids; /* owned; release with trace_request_fini */
	size_t hash_count;
};

struct trace {
	FILE *file;
	char *line; /* TRACE_LINE_BYTES + 1 */
	uint64_t line_number;
};

/* "-" is standard input. 0, KVT_EINVAL or KVT_ENOMEM with one line in `reason`. fini accepts a
 * zeroed struct. */
int trace_open(struct trace *trace, const char *path, char *reason, size_t reason_bytes);
void trace_fini(struct trace *trace);
/* The next request: 1; 0 at the end; KVT_EINVAL (the reason begins with "line N: "), KVT_EIO or
 * KVT_ENOMEM. Empty lines are skipped. */
int trace_next(struct trace *trace, struct trace_request *request, char *reason,
	       size_t reason_bytes);
/* Parses one line without its newline: 0, KVT_EINVAL or KVT_ENOMEM with a reason. */
int trace_line_parse(const char *line, size_t bytes, struct trace_request *request, char *reason,
		     size_t reason_bytes);
/* Frees the ids and zeroes the struct. */
void trace_request_fini(struct trace_request *request);

#endif
