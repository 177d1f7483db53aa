/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two processes store the same chunks below one root at the same time while a third one reads them:
 * no torn object, no wrong byte, nothing left behind. KVT_RACE_ROUNDS sets how often.
 */
#include "chunk_writer.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHUNKS	40
#define WRITERS 2

static const struct way {
	const char *name;
	bool on_disk;
	struct kvt_option options[2];
	size_t option_count;
} ways[] = {
	{"on a RAM disk", false, {{NULL, NULL}}, 0},
	{"on disk, in flat folders", true, {{"fanout", "flat"}}, 1},
	{"on disk, with threads", true, {{"engine", "threads"}}, 1},
};

static unsigned rounds(void)
{
	const char *text = getenv("KVT_RACE_ROUNDS");
	unsigned long count = text ? strtoul(text, NULL, 10) : 0;

	return count ? (unsigned)count : 12;
}

static void open_reader(struct test_bed *bed, const struct way *way, const char *uri)
{
	test_bed_init(bed);
	memcpy(bed->options, way->options, sizeof(way->options));
	bed->store_options.option_count = way->option_count;
	test_bed_open(bed, uri);
}

/* Reads along until both have ended; how many ended badly. */
static unsigned read_along(struct test_bed *bed, uint64_t sequence, const pid_t *pids)
{
	struct test_random random = {sequence};
	bool ended[WRITERS] = {false};
	unsigned left = WRITERS, bad = 0;

	while (left) {
		int status;
		if (bed)
			chunk_writer_check(bed, sequence, test_random_below(&random, CHUNKS));
		for (int i = 0; i < WRITERS; i++) {
			if (ended[i] || waitpid(pids[i], &status, bed ? WNOHANG : 0) != pids[i])
				continue;
			ended[i] = true;
			left--;
			bad += !WIFEXITED(status) || WEXITSTATUS(status) != 0;
		}
	}
	return bad;
}

static void racing_writers_tear_nothing(void **state)
{
	const struct way *way = *state;
	char *root = way->on_disk ? test_temp_dir_on_disk() : test_temp_dir();
	char *uri = test_format("file://%s", root);
	unsigned whole = 0, some = 0;

	for (unsigned round = 0; round < rounds(); round++) {
		pid_t pids[WRITERS];
		int progress[WRITERS], go[2];
		struct test_bed bed;

		assert_int_equal(pipe(go), 0);
		for (int i = 0; i < WRITERS; i++) {
			struct chunk_writer writer = {.uri = uri,
						      .options = way->options,
						      .option_count = way->option_count,
						      .sequence = round,
						      .count = CHUNKS,
						      .backwards = i == 1};
			pids[i] = chunk_writer_start(&writer, go[0], &progress[i]);
		}
		if (round) /* the first round races for config.json alone */
			open_reader(&bed, way, uri);
		assert_int_equal(write(go[1], "gg", WRITERS), WRITERS);
		close(go[0]);
		close(go[1]);
		assert_int_equal(read_along(round ? &bed : NULL, round, pids), 0);
		for (int i = 0; i < WRITERS; i++)
			close(progress[i]);
		if (!round)
			open_reader(&bed, way, uri);
		for (uint64_t n = 0; n < CHUNKS; n++) {
			enum chunk_found found = chunk_writer_check(&bed, round, n);
			assert_int_not_equal(found, CHUNK_ABSENT);
			/* Whole stores are never half there; of racing merges the last one wins. */
			if (n % 5 < 3)
				assert_int_equal(found, CHUNK_ALL);
			whole += found == CHUNK_ALL;
			some += found == CHUNK_SOME;
		}
		test_bed_close(&bed);
	}
	struct kvt_verify_summary summary = KVT_INIT(summary);
	struct test_bed bed;
	open_reader(&bed, way, uri);
	chunk_writer_check_temp(root);
	assert_ok(kvt_store_verify(bed.store, NULL, NULL, NULL, &summary));
	assert_int_equal(summary.objects, rounds() * CHUNKS);
	assert_int_equal(summary.whole + summary.partial, summary.objects);
	test_bed_close(&bed);
	print_message("  %u rounds: %u chunks whole, %u partial\n", rounds(), whole, some);
	free(uri);
	test_remove_tree(root);
}

int main(void)
{
	struct CMUnitTest tests[TEST_COUNT(ways)];

	for (size_t i = 0; i < TEST_COUNT(ways); i++) {
		char *name = test_format("racing writers tear nothing: %s", ways[i].name);
		tests[i] = (struct CMUnitTest){name, racing_writers_tear_nothing, NULL, NULL,
					       (void *)(uintptr_t)&ways[i]};
	}
	int failed = _cmocka_run_group_tests("race", tests, TEST_COUNT(ways), NULL, NULL);
	for (size_t i = 0; i < TEST_COUNT(ways); i++)
		free((char *)(uintptr_t)tests[i].name);
	return failed;
}
