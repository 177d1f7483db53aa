/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stores chunks in one job, for tests that let several processes store the same ones at once:
 *
 *     live_store_keys URI [NAME=VALUE]... -- COUNT BYTES
 *
 * Prints "ready" once it could begin, begins when a line comes on standard input, then prints the
 * status of each chunk on a line of its own. Exit status 1 when one of them failed.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvtier/kvtier.h>

#define MAX_OPTIONS 8
#define MAX_COUNT   100000
#define MAX_BYTES   (64l << 20)

static int complain(const char *what)
{
	fprintf(stderr, "store_keys: %s: %s\n", what, kvt_error_detail());
	return 1;
}

/* The same bytes in every process. */
static void fill(uint8_t *rows, uint64_t count, uint64_t bytes)
{
	uint64_t state = 1;

	for (uint64_t i = 0; i < count * bytes; i++) {
		state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
		rows[i] = (uint8_t)(state >> 56);
	}
}

static int report(struct kvt_worker *worker)
{
	struct kvt_result *result;
	const uint64_t id = 1;
	int failed = 0;

	if (kvt_worker_wait(worker, &id, 1, -1, NULL) < 0 ||
	    kvt_worker_poll(worker, &result, 1) != 1)
		return complain("wait");
	for (uint64_t k = 0; k < result->key_count; k++) {
		puts(kvt_status_name(result->key_status[k]));
		failed |= !kvt_status_is_success(result->key_status[k]);
	}
	if (failed)
		fprintf(stderr, "store_keys: %s\n", result->detail);
	kvt_result_release(result);
	return failed;
}

static int run(struct kvt_worker *worker, uint64_t count, uint64_t bytes)
{
	struct kvt_rows rows = KVT_INIT(rows);
	struct kvt_key *keys = calloc(count, sizeof(*keys));
	int64_t *indices = calloc(count, sizeof(*indices));
	uint8_t(*hashes)[8] = calloc(count, sizeof(*hashes)), *memory = calloc(count, bytes);
	char line[16];
	int failed = 1;

	if (!keys || !indices || !hashes || !memory) {
		fprintf(stderr, "store_keys: no memory\n");
		goto out;
	}
	fill(memory, count, bytes);
	for (uint64_t k = 0; k < count; k++) {
		for (int i = 0; i < 8; i++)
			hashes[k][i] = (uint8_t)(k >> 8 * (7 - i));
		keys[k] = (struct kvt_key){hashes[k], 8, 0};
		indices[k] = (int64_t)k;
	}
	rows.base = memory;
	rows.stride_bytes = bytes;
	rows.row_count = count;
	rows.row_indices = indices;
	rows.keys = keys;
	rows.key_count = count;
	puts("ready");
	fflush(stdout);
	if (!fgets(line, sizeof(line), stdin))
		fprintf(stderr, "store_keys: nobody said when to begin\n");
	else if (kvt_worker_submit_store_rows(worker, 1, &rows, NULL) < 0)
		complain("submit");
	else
		failed = report(worker);
out:
	free(memory);
	free(hashes);
	free(indices);
	free(keys);
	return failed;
}

int main(int argc, char **argv)
{
	struct kvt_store_options options = KVT_INIT(options);
	struct kvt_option option_list[MAX_OPTIONS];
	struct kvt_store *store = NULL;
	struct kvt_worker *worker = NULL;
	long count, bytes;
	int at = 2, failed = 1;

	while (at < argc && options.option_count < MAX_OPTIONS && strcmp(argv[at], "--") != 0) {
		char *value = strchr(argv[at], '=');

		if (!value)
			break;
		*value = '\0';
		option_list[options.option_count++] = (struct kvt_option){argv[at++], value + 1};
	}
	if (at + 3 != argc || strcmp(argv[at], "--") != 0) {
		fprintf(stderr, "usage: store_keys URI [NAME=VALUE]... -- COUNT BYTES\n");
		return 2;
	}
	count = strtol(argv[at + 1], NULL, 10);
	bytes = strtol(argv[at + 2], NULL, 10);
	if (count < 1 || count > MAX_COUNT || bytes < 1 || bytes > MAX_BYTES) {
		fprintf(stderr,
			"store_keys: %ld chunks of %ld bytes, expected 1 to %d of 1 to %ld\n",
			count, bytes, MAX_COUNT, MAX_BYTES);
		return 2;
	}
	options.uri = argv[1];
	options.options = option_list;
	options.namespace_name = "ns";
	options.mode = KVT_MODE_EXACT;
	if (kvt_store_open(&options, &store) < 0)
		complain("open");
	else if (kvt_worker_create(store, NULL, NULL, &worker) < 0)
		complain("worker");
	else
		failed = run(worker, (uint64_t)count, (uint64_t)bytes);
	kvt_worker_destroy(worker, -1);
	kvt_store_close(store);
	return failed;
}
