/* SPDX-License-Identifier: Apache-2.0 */
/* Reads traces line by line; every value is checked before it is used. */
#include "trace.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <kvtier/error.h>

/* Tokens of a prompt: more than any model takes. */
#define LENGTH_MAX INT64_C(1000000000)

int trace_open(struct trace *trace, const char *path, char *reason, size_t reason_bytes)
{
	memset(trace, 0, sizeof(*trace));
	trace->line = malloc(TRACE_LINE_BYTES + 1);
	if (trace->line == NULL) {
		snprintf(reason, reason_bytes, "%s", kvt_error_text(KVT_ENOMEM));
		return KVT_ENOMEM;
	}
	trace->file = strcmp(path, "-") == 0 ? stdin : fopen(path, "re");
	if (trace->file == NULL) {
		snprintf(reason, reason_bytes, "%s, expected a readable file", strerror(errno));
		trace_fini(trace);
		return KVT_EINVAL;
	}
	return 0;
}

void trace_fini(struct trace *trace)
{
	if (trace->file != NULL && trace->file != stdin)
		fclose(trace->file);
	free(trace->line);
	memset(trace, 0, sizeof(*trace));
}

void trace_request_fini(struct trace_request *request)
{
	free(request->hash_ids);
	memset(request, 0, sizeof(*request));
}

/* A member that is an integer from 0 to max. */
static int integer_read(const json_t *root, const char *name, int64_t max, uint64_t *valuep,
			char *reason, size_t reason_bytes)
{
	const json_t *value = json_object_get(root, name);
	json_int_t number = json_integer_value(value);

	if (!json_is_integer(value)) {
		snprintf(reason, reason_bytes, "%s: %s, expected an integer from 0 to %lld", name,
			 value == NULL ? "absent" : "not an integer", (long long)max);
		return KVT_EINVAL;
	}
	if (number < 0 || number > max) {
		snprintf(reason, reason_bytes, "%s: %lld, expected an integer from 0 to %lld", name,
			 (long long)number, (long long)max);
		return KVT_EINVAL;
	}
	*valuep = (uint64_t)number;
	return 0;
}

static int ids_read(const json_t *root, struct trace_request *request, char *reason,
		    size_t reason_bytes)
{
	const json_t *list = json_object_get(root, "hash_ids"), *item;
	size_t i;

	if (!json_is_array(list) || json_array_size(list) > TRACE_BLOCKS) {
		if (json_is_array(list))
			snprintf(reason, reason_bytes, "hash_ids: %zu, expected at most %d",
				 json_array_size(list), TRACE_BLOCKS);
		else
			snprintf(reason, reason_bytes, "hash_ids: %s, expected a list of integers",
				 list == NULL ? "absent" : "not a list");
		return KVT_EINVAL;
	}
	request->hash_ids = calloc(json_array_size(list) + 1, sizeof(*request->hash_ids));
	if (request->hash_ids == NULL) {
		snprintf(reason, reason_bytes, "%s", kvt_error_text(KVT_ENOMEM));
		return KVT_ENOMEM;
	}
	json_array_foreach(list, i, item)
	{
		if (!json_is_integer(item) || json_integer_value(item) < 0) {
			snprintf(reason, reason_bytes,
				 "hash_ids[%zu]: expected an integer of at least 0", i);
			return KVT_EINVAL;
		}
		request->hash_ids[i] = (uint64_t)json_integer_value(item);
	}
	request->hash_count = i;
	return 0;
}

int trace_line_parse(const char *line, size_t bytes, struct trace_request *request, char *reason,
		     size_t reason_bytes)
{
	const json_t *timestamp;
	json_error_t error;
	json_t *root;
	int status;

	memset(request, 0, sizeof(*request));
	root = json_loadb(line, bytes, JSON_REJECT_DUPLICATES, &error);
	if (!json_is_object(root)) {
		if (root == NULL)
			snprintf(reason, reason_bytes, "column %d: %s", error.column, error.text);
		else
			snprintf(reason, reason_bytes, "not an object, expected a request");
		json_decref(root);
		return KVT_EINVAL;
	}
	timestamp = json_object_get(root, "timestamp");
	request->timestamp_ms = json_number_value(timestamp);
	if (!json_is_number(timestamp) || !isfinite(request->timestamp_ms) ||
	    request->timestamp_ms < 0 || request->timestamp_ms > 1e15) {
		snprintf(reason, reason_bytes,
			 "timestamp: %s, expected milliseconds from 0 to 1e15",
			 timestamp == NULL ? "absent" : "not such a number");
		status = KVT_EINVAL;
	} else {
		status = integer_read(root, "input_length", LENGTH_MAX, &request->input_length,
				      reason, reason_bytes);
	}
	if (status == 0)
		status = integer_read(root, "output_length", LENGTH_MAX, &request->output_length,
				      reason, reason_bytes);
	if (status == 0)
		status = ids_read(root, request, reason, reason_bytes);
	json_decref(root);
	if (status < 0)
		trace_request_fini(request);
	return status;
}

/* Reads one line without its newline; its length, LONG_MIN at the end of the file, or a code. */
static long line_read(struct trace *trace, char *reason, size_t reason_bytes)
{
	size_t used = 0;
	int byte;

	while ((byte = getc_unlocked(trace->file)) != EOF && byte != '\n') {
		if (used == TRACE_LINE_BYTES) {
			snprintf(reason, reason_bytes,
				 "line %llu: longer than %d bytes, expected a shorter one",
				 (unsigned long long)trace->line_number + 1, TRACE_LINE_BYTES);
			return KVT_EINVAL;
		}
		trace->line[used++] = (char)byte;
	}
	if (ferror(trace->file)) {
		snprintf(reason, reason_bytes, "line %llu: %s",
			 (unsigned long long)trace->line_number + 1, strerror(errno));
		return KVT_EIO;
	}
	trace->line[used] = '\0';
	if (byte == EOF && used == 0)
		return LONG_MIN;
	trace->line_number++;
	return (long)used;
}

int trace_next(struct trace *trace, struct trace_request *request, char *reason,
	       size_t reason_bytes)
{
	char inner[256];
	long bytes;
	int status;

	memset(request, 0, sizeof(*request));
	do {
		bytes = line_read(trace, reason, reason_bytes);
		if (bytes == LONG_MIN)
			return 0;
		if (bytes < 0)
			return (int)bytes;
	} while (strspn(trace->line, " \t\r") == (size_t)bytes);
	status = trace_line_parse(trace->line, (size_t)bytes, request, inner, sizeof(inner));
	if (status < 0) {
		snprintf(reason, reason_bytes, "line %llu: %s",
			 (unsigned long long)trace->line_number, inner);
		return status;
	}
	return 1;
}
