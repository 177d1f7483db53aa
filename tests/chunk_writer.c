/* SPDX-License-Identifier: Apache-2.0 */
/* See chunk_writer.h. */
#include "chunk_writer.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BLOCKS	4
#define RUNNING 6

static const struct test_group shapes[] = {
	{BLOCKS, 0, 2, {1000, 300}}, {BLOCKS, 0, 2, {50000, 30000}}, {BLOCKS, 0, 1, {16384}}};

/* Blocks first to first + count - 1 of a chunk. */
static void make_part(struct test_transfer *t, uint64_t sequence, uint64_t number, uint32_t first,
		      uint32_t count)
{
	struct test_group group = shapes[number % TEST_COUNT(shapes)];

	group.index = first;
	group.blocks = count;
	test_transfer_init(t, BLOCKS, &group, 1, sequence * 1000000 + number);
}

/* ---- The child: no assertion, an exit status. */

static int child_fail(const char *what)
{
	fprintf(stderr, "writer: %s: %s\n", what, kvt_error_detail());
	return 1;
}

/* Job number j stores all or a half of a chunk. */
static void make_job(struct test_transfer *t, const struct chunk_writer *writer, uint64_t job)
{
	uint64_t number = writer->first + job / 2;
	bool second = (job % 2) ^ writer->backwards;

	if (number % 5 < 3)
		make_part(t, writer->sequence, number, 0, BLOCKS);
	else if (second)
		make_part(t, writer->sequence, number, 1, BLOCKS - 1);
	else
		make_part(t, writer->sequence, number, 0, 2);
	test_transfer_fill(t);
}

static int child_run(const struct chunk_writer *writer, struct kvt_worker *worker, int progress)
{
	struct test_transfer t[RUNNING];
	bool running[RUNNING] = {false};
	struct kvt_result *result;
	uint64_t next = 0, jobs = writer->count ? 2 * writer->count : UINT64_MAX, finished = 0;
	int bad = 0;

	while (finished < jobs) {
		uint64_t oldest = UINT64_MAX;
		for (uint32_t i = 0; i < RUNNING && next < jobs; i++) {
			/* Job j uses slot j % RUNNING. */
			uint64_t slot = next % RUNNING;
			if (running[slot])
				break;
			make_job(&t[slot], writer, next);
			if (kvt_worker_submit_store(worker, next, &t[slot].transfer, NULL))
				return child_fail("submit");
			running[slot] = true;
			next++;
		}
		for (uint64_t j = next > RUNNING ? next - RUNNING : 0; j < next; j++)
			if (running[j % RUNNING]) {
				oldest = j;
				break;
			}
		if (kvt_worker_wait(worker, &oldest, 1, -1, NULL))
			return child_fail("wait");
		while (kvt_worker_poll(worker, &result, 1) == 1) {
			if (result->error) {
				fprintf(stderr, "writer: %s\n", result->detail);
				bad = 1;
			}
			test_transfer_fini(&t[result->job_id % RUNNING]);
			running[result->job_id % RUNNING] = false;
			kvt_result_release(result);
			finished++;
			if (write(progress, ".", 1) != 1)
				return child_fail("progress");
		}
	}
	return bad;
}

static int child_main(const struct chunk_writer *writer, int go, int progress)
{
	struct test_bed bed;
	char byte;

	test_bed_init(&bed);
	bed.store_options.uri = writer->uri;
	bed.store_options.options = writer->options;
	bed.store_options.option_count = writer->option_count;
	if (go >= 0 && read(go, &byte, 1) != 1)
		return child_fail("go");
	if (kvt_store_open(&bed.store_options, &bed.store))
		return child_fail("open");
	if (kvt_worker_create(bed.store, NULL, &bed.worker_options, &bed.worker))
		return child_fail("create");
	int bad = child_run(writer, bed.worker, progress);
	if (kvt_worker_destroy(bed.worker, -1) || kvt_store_close(bed.store))
		return child_fail("end");
	return bad;
}

pid_t chunk_writer_start(const struct chunk_writer *writer, int go, int *progressp)
{
	int ends[2];

	if (pipe(ends) != 0)
		fail_msg("pipe: %s", strerror(errno));
	fflush(NULL);
	pid_t pid = fork();
	if (pid < 0)
		fail_msg("fork: %s", strerror(errno));
	if (pid == 0) {
		close(ends[0]);
		_exit(child_main(writer, go, ends[1]));
	}
	close(ends[1]);
	*progressp = ends[0];
	return pid;
}

/* ---- Checks ---- */

static bool load_part(struct test_bed *bed, uint64_t sequence, uint64_t number, uint32_t first,
		      uint32_t count)
{
	struct test_transfer t;
	uint64_t id = bed->next_id++;

	make_part(&t, sequence, number, first, count);
	assert_ok(kvt_worker_submit_load(bed->worker, id, &t.transfer, NULL));
	struct kvt_result *result = test_take(bed->worker, id);
	uint32_t status = result->key_status[0];
	if (status == KVT_STATUS_LOADED)
		test_transfer_check(&t);
	else if (status != KVT_STATUS_MISSING)
		fail_msg("chunk %llu of sequence %llu: %s: %s", (unsigned long long)number,
			 (unsigned long long)sequence, kvt_status_name(status), result->detail);
	kvt_result_release(result);
	test_transfer_fini(&t);
	return status == KVT_STATUS_LOADED;
}

enum chunk_found chunk_writer_check(struct test_bed *bed, uint64_t sequence, uint64_t number)
{
	if (load_part(bed, sequence, number, 0, BLOCKS))
		return CHUNK_ALL;
	uint32_t found = 0;
	for (uint32_t block = 0; block < BLOCKS; block++)
		found += load_part(bed, sequence, number, block, 1);
	/* Between the two loads a merge may have completed it. */
	return found ? CHUNK_SOME : CHUNK_ABSENT;
}

void chunk_writer_check_temp(const char *root)
{
	char *folder = test_format("%s/.kvtier/tmp", root);
	DIR *dir = opendir(folder);
	unsigned owners = 0;
	struct dirent *entry;

	while (dir && (entry = readdir(dir)))
		owners += entry->d_name[0] != '.';
	if (dir)
		closedir(dir);
	size_t files = test_count_files(folder, NULL);
	free(folder);
	assert_in_range(owners, 0, 1);
	assert_in_range(files, 0, owners);
}
