/* SPDX-License-Identifier: Apache-2.0 */
/* Drives a worker from an event loop: nothing waits in the library, completions make a descriptor
 * readable. Each row of a buffer is stored, and loaded back as soon as its store has completed.
 * Usage: event_loop [STORE_URI] */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <kvtier/kvtier.h>

enum { ROWS = 64, ROW_BYTES = 65536, LOAD_JOB = 1000 };

static void check(int result, const char *what)
{
	if (result < 0) {
		fprintf(stderr, "%s: %s: %s\n", what, kvt_error_name(result), kvt_error_detail());
		exit(1);
	}
}

/* Job i stores row i of `base`, job LOAD_JOB + i loads it. */
static void submit(struct kvt_worker *worker, int is_store, char *base, int64_t row)
{
	struct kvt_key key = {.hash = &row, .hash_bytes = sizeof(row)};
	struct kvt_rows rows = KVT_INIT(rows);

	rows.base = base;
	rows.stride_bytes = ROW_BYTES;
	rows.row_count = ROWS;
	rows.row_indices = &row;
	rows.keys = &key;
	rows.key_count = 1;
	if (is_store)
		check(kvt_worker_submit_store_rows(worker, (uint64_t)row, &rows, NULL), "store");
	else
		check(kvt_worker_submit_load_rows(worker, LOAD_JOB + (uint64_t)row, &rows, NULL),
		      "load");
}

int main(int argc, char **argv)
{
	struct kvt_store_options store_options = KVT_INIT(store_options);
	struct kvt_store *store = NULL;
	struct kvt_worker *worker = NULL;
	int loaded_rows = 0, failures = 0;

	store_options.uri = argc > 1 ? argv[1] : "mem:";
	store_options.namespace_name = "example-rows";
	store_options.mode = KVT_MODE_ROW;
	check(kvt_store_open(&store_options, &store), "open");
	check(kvt_worker_create(store, NULL, NULL, &worker), "worker");

	char *rows = malloc(ROWS * ROW_BYTES), *copy = calloc(ROWS, ROW_BYTES);
	if (!rows || !copy)
		return 1;
	for (int i = 0; i < ROWS; i++)
		memset(rows + i * ROW_BYTES, i, ROW_BYTES);

	int loop = epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event event = {.events = EPOLLIN};
	if (loop < 0 || epoll_ctl(loop, EPOLL_CTL_ADD, kvt_worker_event_fd(worker), &event) < 0)
		return 1;
	for (int i = 0; i < ROWS; i++)
		submit(worker, 1, rows, i);

	while (loaded_rows + failures < ROWS) {
		struct kvt_result *results[16];

		/* A real loop has more descriptors here. */
		int ready = epoll_wait(loop, &event, 1, 10000);
		if (ready < 0 && errno == EINTR)
			continue;
		if (ready <= 0)
			return 1;
		int count = kvt_worker_poll(worker, results, 16);
		for (int i = 0; i < count; i++) {
			if (results[i]->error != 0) {
				fprintf(stderr, "%s\n", results[i]->detail);
				failures++;
			} else if (results[i]->kind == KVT_JOB_STORE) {
				submit(worker, 0, copy, (int64_t)results[i]->job_id);
			} else {
				loaded_rows++;
			}
			kvt_result_release(results[i]);
		}
	}

	int differs = failures > 0 || memcmp(rows, copy, ROWS * ROW_BYTES) != 0;
	close(loop);
	check(kvt_worker_destroy(worker, 10000), "destroy");
	check(kvt_store_close(store), "close");
	free(rows);
	free(copy);
	printf("%d rows stored and loaded, %s\n", loaded_rows, differs ? "wrong" : "all the same");
	return differs;
}
