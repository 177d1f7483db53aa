/* SPDX-License-Identifier: Apache-2.0 */
/* The stand-alone calls over raw files: kvt_probe_o_direct, kvt_batch_store_block and _load_block.
 */
#include "support.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BLOCKS 5

/* A batch of blocks under one folder, in one buffer. */
struct batch {
	char *folder;
	char *paths[BLOCKS];
	uint64_t offsets[BLOCKS];
	uint8_t *buffer;
	size_t buffer_bytes, block_bytes;
};

static void batch_init(struct batch *b, char *folder, size_t block_bytes, size_t misalign)
{
	void *memory;

	b->folder = folder;
	b->block_bytes = block_bytes;
	b->buffer_bytes = misalign + block_bytes * BLOCKS;
	assert_int_equal(posix_memalign(&memory, 4096, b->buffer_bytes), 0);
	b->buffer = memory;
	test_fill(b->buffer, b->buffer_bytes, block_bytes);
	for (size_t i = 0; i < BLOCKS; i++) {
		b->paths[i] = test_format("%s/a%zu/b/%zu.bin", folder, i % 2, i);
		/* Not in order: block i lies where i + 2 would. */
		b->offsets[i] = misalign + (i + 2) % BLOCKS * block_bytes;
	}
}

static void batch_fini(struct batch *b)
{
	for (size_t i = 0; i < BLOCKS; i++)
		free(b->paths[i]);
	free(b->buffer);
	test_remove_tree(b->folder);
}

static int batch_store(struct batch *b, int direct, struct kvt_batch_result *result)
{
	return kvt_batch_store_block((const char *const *)b->paths, b->buffer, b->buffer_bytes,
				     b->offsets, BLOCKS, b->block_bytes, direct, result);
}

static int batch_load(struct batch *b, int direct, struct kvt_batch_result *result)
{
	return kvt_batch_load_block((const char *const *)b->paths, b->buffer, b->buffer_bytes,
				    b->offsets, BLOCKS, b->block_bytes, direct, result);
}

static bool is_there(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0;
}

static void round_trip(char *folder, size_t block_bytes, size_t misalign, int direct)
{
	struct batch b;
	struct stat st;

	batch_init(&b, folder, block_bytes, misalign);
	assert_ok(batch_store(&b, direct, NULL));
	for (size_t i = 0; i < BLOCKS; i++) {
		size_t bytes;
		uint8_t *data = test_read_file(b.paths[i], &bytes);

		assert_int_equal(bytes, block_bytes);
		assert_memory_equal(data, b.buffer + b.offsets[i], bytes);
		free(data);
		assert_int_equal(stat(b.paths[i], &st), 0);
		assert_int_equal(st.st_mode & 07777, 0600);
	}
	memset(b.buffer, 0xee, b.buffer_bytes);
	test_fill(b.buffer, misalign, block_bytes);
	assert_ok(batch_load(&b, direct, NULL));
	assert_true(test_is_filled(b.buffer, b.buffer_bytes, block_bytes));
	/* Nothing but the blocks is left. */
	assert_int_equal(test_count_files(folder, NULL), BLOCKS);
	batch_fini(&b);
}

static void blocks_of_every_size_and_place_load_back(void **state)
{
	static const struct {
		size_t block_bytes, misalign;
	} cases[] = {{1, 0}, {4096, 0}, {65536, 0}, {65536, 512}, {65536, 7}, {100001, 0}};

	(void)state;
	for (size_t i = 0; i < TEST_COUNT(cases); i++)
		for (int direct = 0; direct < 2; direct++) {
			round_trip(test_temp_dir(), cases[i].block_bytes, cases[i].misalign,
				   direct);
			round_trip(test_temp_dir_on_disk(), cases[i].block_bytes, cases[i].misalign,
				   direct);
		}
}

static void a_path_that_is_there_is_left_alone(void **state)
{
	struct kvt_batch_result result = KVT_INIT(result);
	size_t bytes;
	struct batch b;
	uint8_t *data;

	(void)state;
	batch_init(&b, test_temp_dir(), 4096, 0);
	test_write_file(b.paths[1], "mine", 4);
	assert_ok(batch_store(&b, 0, &result));
	assert_int_equal(result.succeeded, BLOCKS);
	data = test_read_file(b.paths[1], &bytes);
	assert_int_equal(bytes, 4);
	free(data);
	batch_fini(&b);
}

static void every_offset_is_checked_before_anything_is_moved(void **state)
{
	struct kvt_batch_result result = KVT_INIT(result);
	struct batch b;

	(void)state;
	batch_init(&b, test_temp_dir(), 4096, 0);
	b.offsets[4] = b.buffer_bytes - 4095;
	assert_fails(KVT_EINVAL, "offsets[4]", batch_store(&b, 0, &result));
	b.offsets[4] = UINT64_MAX;
	assert_fails(KVT_EINVAL, "offsets[4]", batch_store(&b, 0, &result));
	assert_fails(KVT_EINVAL, "offsets[4]", batch_load(&b, 0, &result));
	assert_int_equal(result.succeeded, 0);
	assert_int_equal(test_count_files(b.folder, NULL), 0);
	batch_fini(&b);
}

static void bad_arguments_are_named(void **state)
{
	struct kvt_batch_result result = {0};
	const char *paths[] = {"/nowhere/x", NULL, "/nowhere/"};
	const uint64_t offsets[] = {0, 0, 0};
	char buffer[16] = {0};

	(void)state;
	assert_fails(KVT_EINVAL,
		     "paths:", kvt_batch_store_block(NULL, buffer, 16, offsets, 1, 16, 0, NULL));
	assert_fails(KVT_EINVAL,
		     "buffer:", kvt_batch_store_block(paths, NULL, 16, offsets, 1, 16, 0, NULL));
	assert_fails(KVT_EINVAL,
		     "offsets:", kvt_batch_load_block(paths, buffer, 16, NULL, 1, 16, 0, NULL));
	assert_fails(KVT_EINVAL, "block_bytes: 0",
		     kvt_batch_load_block(paths, buffer, 16, offsets, 1, 0, 0, NULL));
	assert_fails(KVT_EINVAL, "paths[1]: NULL",
		     kvt_batch_load_block(paths, buffer, 16, offsets, 2, 16, 0, NULL));
	assert_fails(KVT_EINVAL, "paths[0]: /nowhere/",
		     kvt_batch_load_block(paths + 2, buffer, 16, offsets, 1, 16, 0, NULL));
	assert_fails(KVT_EINVAL, "result.struct_size: 0",
		     kvt_batch_load_block(paths, buffer, 16, offsets, 1, 16, 0, &result));
	assert_ok(kvt_batch_store_block(NULL, NULL, 0, NULL, 0, 16, 0, NULL));
}

static void the_first_error_ends_a_batch_and_is_told(void **state)
{
	struct kvt_batch_result result = KVT_INIT(result);
	struct batch b;
	char *in_the_way;

	(void)state;
	batch_init(&b, test_temp_dir(), 4096, 0);
	in_the_way = test_format("%s/file", b.folder);
	test_write_file(in_the_way, "x", 1);
	free(b.paths[2]);
	b.paths[2] = test_format("%s/below/2.bin", in_the_way);
	assert_fails(KVT_EACCES, "paths[2]", batch_store(&b, 0, &result));
	assert_int_equal(result.succeeded, 2);
	assert_int_equal(result.error_index, 2);
	assert_true(is_there(b.paths[1]));
	assert_false(is_there(b.paths[3]));
	/* A load stops at what is missing. */
	free(b.paths[2]);
	b.paths[2] = test_format("%s/missing", b.folder);
	assert_fails(KVT_ENOENT, "missing", batch_load(&b, 0, &result));
	assert_int_equal(result.succeeded, 2);
	assert_int_equal(result.error_index, 2);
	free(in_the_way);
	batch_fini(&b);
}

static void a_short_file_is_told_and_removed_a_longer_one_accepted(void **state)
{
	struct kvt_batch_result result = KVT_INIT(result);
	uint8_t longer[9000];
	struct batch b;

	(void)state;
	for (int direct = 0; direct < 2; direct++) {
		batch_init(&b, test_temp_dir_on_disk(), 8192, 0);
		test_fill(longer, sizeof(longer), 5);
		test_write_file(b.paths[0], longer, sizeof(longer));
		test_write_file(b.paths[1], longer, 8191);
		assert_fails(KVT_ERANGE, "8191 bytes, expected at least 8192, removed",
			     batch_load(&b, direct, &result));
		assert_int_equal(result.succeeded, 1);
		assert_int_equal(result.error_index, 1);
		assert_memory_equal(b.buffer + b.offsets[0], longer, 8192);
		assert_true(is_there(b.paths[0]));
		assert_false(is_there(b.paths[1]));
		batch_fini(&b);
	}
}

static void what_is_no_file_is_neither_read_nor_removed(void **state)
{
	struct batch b;

	(void)state;
	batch_init(&b, test_temp_dir(), 4096, 0);
	free(b.paths[0]);
	b.paths[0] = test_format("%s/pipe", b.folder);
	assert_int_equal(mkfifo(b.paths[0], 0600), 0);
	for (int direct = 0; direct < 2; direct++) {
		assert_fails(KVT_EACCES, "not a regular file", batch_load(&b, direct, NULL));
		assert_true(is_there(b.paths[0]));
	}
	free(b.paths[0]);
	b.paths[0] = test_format("%s/folder", b.folder);
	assert_int_equal(mkdir(b.paths[0], 0700), 0);
	assert_int_equal(batch_load(&b, 0, NULL), KVT_EACCES);
	assert_true(is_there(b.paths[0]));
	batch_fini(&b);
}

struct storer {
	struct batch *batch;
	int result;
};

static void *store_main(void *opaque)
{
	struct storer *storer = opaque;

	storer->result = batch_store(storer->batch, 1, NULL);
	return NULL;
}

static void threads_may_store_the_same_blocks(void **state)
{
	struct storer storers[4];
	pthread_t threads[4];
	struct batch b;

	(void)state;
	batch_init(&b, test_temp_dir_on_disk(), 65536, 0);
	for (size_t i = 0; i < 4; i++) {
		storers[i] = (struct storer){.batch = &b};
		assert_int_equal(pthread_create(&threads[i], NULL, store_main, &storers[i]), 0);
	}
	for (size_t i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	for (size_t i = 0; i < 4; i++)
		assert_int_equal(storers[i].result, 0);
	memset(b.buffer, 0, b.buffer_bytes);
	assert_ok(batch_load(&b, 1, NULL));
	assert_true(test_is_filled(b.buffer, b.buffer_bytes, 65536));
	assert_int_equal(test_count_files(b.folder, NULL), BLOCKS);
	batch_fini(&b);
}

static void a_relative_path_is_below_the_current_folder(void **state)
{
	char *folder = test_temp_dir(), *path = test_format("%s/sub/x.bin", folder), old[4096];
	const char *relative = "sub/x.bin";
	const uint64_t offset = 0;
	char byte = 'y';

	(void)state;
	assert_non_null(getcwd(old, sizeof(old)));
	assert_int_equal(chdir(folder), 0);
	assert_ok(kvt_batch_store_block(&relative, &byte, 1, &offset, 1, 1, 0, NULL));
	relative = "x.bin";
	assert_ok(kvt_batch_store_block(&relative, &byte, 1, &offset, 1, 1, 0, NULL));
	assert_int_equal(chdir(old), 0);
	assert_true(is_there(path));
	free(path);
	test_remove_tree(folder);
}

static void a_probe_answers_and_leaves_nothing_behind(void **state)
{
	char *folder = test_temp_dir_on_disk(), *missing = test_format("%s/none", folder);
	int works = kvt_probe_o_direct(folder);

	(void)state;
	assert_in_range(works, 0, 1);
	assert_int_equal(test_count_files(folder, NULL), 0);
	assert_fails(KVT_ENOENT, "none", kvt_probe_o_direct(missing));
	assert_fails(KVT_EINVAL, "NULL", kvt_probe_o_direct(NULL));
	assert_fails(KVT_EINVAL, "empty", kvt_probe_o_direct(""));
	test_write_file(missing, "x", 1);
	assert_int_equal(kvt_probe_o_direct(missing), KVT_EACCES);
	/* Not on every file system, but there it says no. */
	assert_true(kvt_probe_o_direct("/proc") <= 0);
	free(missing);
	test_remove_tree(folder);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(blocks_of_every_size_and_place_load_back),
		cmocka_unit_test(a_path_that_is_there_is_left_alone),
		cmocka_unit_test(every_offset_is_checked_before_anything_is_moved),
		cmocka_unit_test(bad_arguments_are_named),
		cmocka_unit_test(the_first_error_ends_a_batch_and_is_told),
		cmocka_unit_test(a_short_file_is_told_and_removed_a_longer_one_accepted),
		cmocka_unit_test(what_is_no_file_is_neither_read_nor_removed),
		cmocka_unit_test(threads_may_store_the_same_blocks),
		cmocka_unit_test(a_relative_path_is_below_the_current_folder),
		cmocka_unit_test(a_probe_answers_and_leaves_nothing_behind),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
