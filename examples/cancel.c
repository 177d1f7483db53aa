/* SPDX-License-Identifier: Apache-2.0 */
/* Takes a job back. The job waits for an event that says that its memory is valid, as a store waits
 * for the kernel that computes it, and is canceled before that.
 * Usage: cancel [STORE_URI] */
#include <stdio.h>
#include <stdlib.h>

#include <kvtier/kvtier.h>

static void check(int result, const char *what)
{
	if (result < 0) {
		fprintf(stderr, "%s: %s: %s\n", what, kvt_error_name(result), kvt_error_detail());
		exit(1);
	}
}

int main(int argc, char **argv)
{
	struct kvt_store_options store_options = KVT_INIT(store_options);
	struct kvt_store *store = NULL;
	struct kvt_worker *worker = NULL;
	struct kvt_event *computed = NULL;
	struct kvt_result *result = NULL;
	static char row[65536];
	const uint64_t job_id = 7;

	store_options.uri = argc > 1 ? argv[1] : "mem:";
	store_options.namespace_name = "example-cancel";
	check(kvt_store_open(&store_options, &store), "open");
	check(kvt_worker_create(store, NULL, NULL, &worker), "worker");
	check(kvt_event_create(&computed), "event");

	struct kvt_key key = {.hash = "cancel", .hash_bytes = 6};
	int64_t row_index = 0;
	struct kvt_rows rows = KVT_INIT(rows);
	rows.base = row;
	rows.stride_bytes = sizeof(row);
	rows.row_count = 1;
	rows.row_indices = &row_index;
	rows.keys = &key;
	rows.key_count = 1;
	struct kvt_submit_options options = KVT_INIT(options);
	options.ready.kind = KVT_READY_EVENT;
	options.ready.handle = computed;
	check(kvt_worker_submit_store_rows(worker, job_id, &rows, &options), "store");

	/* Asking does not wait. The job completes all the same, once nothing touches its memory. */
	check(kvt_worker_cancel(worker, job_id), "cancel");
	check(kvt_worker_wait(worker, &job_id, 1, 10000, NULL), "wait");
	if (kvt_worker_poll(worker, &result, 1) != 1)
		return 1;
	int canceled = result->status == KVT_STATUS_CANCELED;
	printf("job %llu: %s (%s)\n", (unsigned long long)result->job_id,
	       kvt_status_name(result->status), kvt_error_name(result->error));
	kvt_result_release(result);

	/* Only now: a job that was given the event must have completed before it goes. */
	kvt_event_destroy(computed);
	check(kvt_worker_destroy(worker, 10000), "destroy");
	check(kvt_store_close(store), "close");
	return canceled ? 0 : 1;
}
