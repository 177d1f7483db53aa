/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A storing process is killed at random moments, again and again. Afterwards every object is whole
 * and right or absent, and the next opening removes what was left behind. KVT_CRASH_KILLS sets how
 * often in all; 200 at least.
 */
#include "chunk_writer.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct way {
	const char *name;
	bool on_disk;
	struct kvt_option options[2];
	size_t option_count;
} ways[] = {
	{"on a RAM disk", false, {{NULL, NULL}}, 0},
	{"in flat folders", false, {{"fanout", "flat"}}, 1},
	{"on disk", true, {{NULL, NULL}}, 0},
	{"on disk, with threads", true, {{"engine", "threads"}, {"fsync", "data"}}, 2},
};

static unsigned kills_of_each(void)
{
	const char *text = getenv("KVT_CRASH_KILLS");
	unsigned long kills = text ? strtoul(text, NULL, 10) : 0;

	if (kills < 200)
		kills = 208;
	return (unsigned)(kills / TEST_COUNT(ways));
}

/* Lets it live for some jobs and a little longer; returns how many jobs it had finished. */
static unsigned kill_somewhere(pid_t pid, int progress, struct test_random *random)
{
	uint64_t jobs = test_random_below(random, 25), turns = test_random_below(random, 20000);
	unsigned finished = 0;
	int status;
	char bytes[64];

	while (finished < jobs) {
		ssize_t got = read(progress, bytes, jobs - finished < 64 ? jobs - finished : 64);
		if (got <= 0)
			fail_msg("the writer ended by itself");
		finished += (unsigned)got;
	}
	for (volatile uint64_t turn = 0; turn < turns; turn++)
		;
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	for (ssize_t got; (got = read(progress, bytes, sizeof(bytes))) > 0;)
		finished += (unsigned)got;
	close(progress);
	return finished;
}

static void killed_writers_leave_whole_objects_or_none(void **state)
{
	const struct way *way = *state;
	char *root = way->on_disk ? test_temp_dir_on_disk() : test_temp_dir();
	char *uri = test_format("file://%s", root);
	struct test_random random = {test_seed(3)};
	unsigned kills = kills_of_each(), stored = 0, absent = 0;

	for (unsigned round = 0; round < kills; round++) {
		struct chunk_writer writer = {.uri = uri,
					      .options = way->options,
					      .option_count = way->option_count,
					      .sequence = round};
		struct test_bed bed;
		int progress;
		pid_t pid = chunk_writer_start(&writer, -1, &progress);
		unsigned finished = kill_somewhere(pid, progress, &random);

		test_bed_init(&bed);
		memcpy(bed.options, way->options, sizeof(way->options));
		bed.store_options.option_count = way->option_count;
		test_bed_open(&bed, uri);
		chunk_writer_check_temp(root);
		/* Two jobs for each chunk, in order but for a few that were under way. */
		for (uint64_t n = 0; n < finished / 2 + 12; n++) {
			bool there = chunk_writer_check(&bed, round, n) != CHUNK_ABSENT;
			stored += there;
			absent += !there;
			/* What was reported as stored has survived. */
			if (finished >= 6 && n < (finished - 6) / 2)
				assert_true(there);
		}
		test_bed_close(&bed);
	}
	struct kvt_verify_summary summary = KVT_INIT(summary);
	struct test_bed bed;
	test_bed_init(&bed);
	memcpy(bed.options, way->options, sizeof(way->options));
	bed.store_options.option_count = way->option_count;
	test_bed_open_store(&bed, uri);
	assert_ok(kvt_store_verify(bed.store, NULL, NULL, NULL, &summary));
	assert_int_equal(summary.whole + summary.partial, summary.objects);
	assert_int_equal(summary.objects, stored);
	assert_ok(kvt_store_close(bed.store));
	print_message("  %u kills: %u objects whole, %u absent\n", kills, stored, absent);
	assert_true(stored > 0 && absent > 0);
	free(uri);
	test_remove_tree(root);
}

int main(void)
{
	struct CMUnitTest tests[TEST_COUNT(ways)];

	for (size_t i = 0; i < TEST_COUNT(ways); i++) {
		char *name =
			test_format("killed writers leave whole objects or none: %s", ways[i].name);
		tests[i] = (struct CMUnitTest){name, killed_writers_leave_whole_objects_or_none,
					       NULL, NULL, (void *)(uintptr_t)&ways[i]};
	}
	int failed = _cmocka_run_group_tests("crash", tests, TEST_COUNT(ways), NULL, NULL);
	for (size_t i = 0; i < TEST_COUNT(ways); i++)
		free((char *)(uintptr_t)tests[i].name);
	return failed;
}
