/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a trace: requests keep what the parser promises, every failure has a reason, and the
 * stream reads the same requests as the lines alone. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <kvtier/error.h>

#include "trace.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect(int holds, const char *what)
{
	if (!holds) {
		fprintf(stderr, "trace: %s\n", what);
		abort();
	}
}

static void request_check(const struct trace_request *request)
{
	expect(request->timestamp_ms >= 0 && request->timestamp_ms <= 1e15, "timestamp");
	expect(request->input_length <= 1000000000, "input_length");
	expect(request->output_length <= 1000000000, "output_length");
	expect(request->hash_count <= TRACE_BLOCKS && request->hash_ids != NULL, "hash_ids");
	for (size_t i = 0; i < request->hash_count; i++)
		expect(request->hash_ids[i] <= INT64_MAX, "a hash id");
}

/* The first line alone; how many bytes it took. */
static int line_check(const uint8_t *data, size_t size)
{
	const uint8_t *end = size != 0 ? memchr(data, '\n', size) : NULL;
	size_t bytes = end != NULL ? (size_t)(end - data) : size;
	struct trace_request request;
	char reason[256] = "";
	int status;

	/* Copied, so that a byte read too many is found. */
	char *line = malloc(bytes + 1);

	if (line == NULL)
		return KVT_ENOMEM;
	memcpy(line, data, bytes);
	line[bytes] = '\0';
	status = trace_line_parse(line, bytes, &request, reason, sizeof(reason));
	if (status == 0)
		request_check(&request);
	else
		expect(reason[0] != '\0' && request.hash_ids == NULL, "a refusal without reason");
	trace_request_fini(&request);
	free(line);
	return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct trace trace = {0};
	struct trace_request request;
	char reason[320] = "";
	int status, line_status;

	line_status = size != 0 && data[0] != '\n' ? line_check(data, size) : 0;
	trace.line = malloc(TRACE_LINE_BYTES + 1);
	trace.file = size != 0 ? fmemopen((void *)(uintptr_t)data, size, "r") : NULL;
	if (trace.line == NULL || trace.file == NULL) {
		trace_fini(&trace);
		return 0;
	}
	for (int first = 1; (status = trace_next(&trace, &request, reason, sizeof(reason))) > 0;
	     first = 0) {
		if (first && trace.line_number == 1)
			expect(line_status == 0, "the stream accepts what the line does not");
		request_check(&request);
		trace_request_fini(&request);
	}
	expect(status == 0 || strncmp(reason, "line ", 5) == 0, "a refusal without its line");
	trace_fini(&trace);
	return 0;
}
