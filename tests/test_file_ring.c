/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ring meets a file system that takes less than it says: this program's statx claims that
 * O_DIRECT takes every alignment, and its pwrite and pread let the probe believe it, so that the
 * kernel refuses what is put into the ring.
 */
#include "file_scene.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static bool lying;
static char probed;

/* Calls of the probe that no disk would take. */
static bool is_too_small(int fd, size_t bytes)
{
	return lying && bytes < 512 && (fcntl(fd, F_GETFL) & O_DIRECT);
}

ssize_t pwrite(int fd, const void *data, size_t bytes, off_t at)
{
	if (!is_too_small(fd, bytes))
		return syscall(SYS_pwrite64, fd, data, bytes, at);
	probed = *(const char *)data;
	return (ssize_t)bytes;
}

ssize_t pread(int fd, void *data, size_t bytes, off_t at)
{
	if (!is_too_small(fd, bytes))
		return syscall(SYS_pread64, fd, data, bytes, at);
	memset(data, probed, bytes);
	return (ssize_t)bytes;
}

#ifdef STATX_DIOALIGN
int statx(int fd, const char *restrict path, int flags, unsigned mask, struct statx *restrict sx)
{
	long result = syscall(SYS_statx, fd, path, flags, mask, sx);

	if (!result && lying && (mask & STATX_DIOALIGN)) {
		sx->stx_mask |= STATX_DIOALIGN;
		sx->stx_dio_mem_align = sx->stx_dio_offset_align = 1;
	}
	return (int)result;
}
#endif

static void open_on_disk(struct file_scene *fs)
{
	file_scene_init(fs, test_temp_dir_on_disk());
	file_scene_open(fs);
	if (file_scene_says(fs, "engine=uring"))
		return;
	print_message("  skipped: no O_DIRECT with io_uring here (%s)\n", fs->tb.limits.detail);
	file_scene_fini(fs);
	lying = false;
	skip();
}

static void what_the_ring_refuses_goes_through_the_page_cache(void **state)
{
	static const size_t sizes[] = {65536, 1 << 20, 5000, 1};
	struct file_scene fs;

	(void)state;
	lying = true;
	open_on_disk(&fs);
	if (fs.tb.limits.memory_alignment != 1) {
		print_message("  skipped: statx does not know O_DIRECT's alignment here\n");
		file_scene_fini(&fs);
		lying = false;
		skip();
	}
	for (size_t i = 0; i < TEST_COUNT(sizes); i++)
		for (int crooked = 1; crooked >= 0; crooked--) {
			assert_int_equal(file_scene_put(&fs, "x", sizes[i], i, 0, crooked), 0);
			assert_int_equal(file_scene_get(&fs, "x", sizes[i], i, crooked), 0);
			/* The same again, now that it has been learnt. */
			assert_int_equal(file_scene_put(&fs, "y", sizes[i], i, 0, crooked), 0);
			assert_int_equal(file_scene_get(&fs, "y", sizes[i], i, crooked), 0);
		}
	/* Wider alignment was the answer: O_DIRECT was not given up, so nothing was said. */
	assert_int_equal(atomic_load(&fs.th.log_lines), 0);
	file_scene_fini(&fs);
	lying = false;
}

static void reads_alone_find_it_out_too(void **state)
{
	struct file_scene fs;

	(void)state;
	open_on_disk(&fs);
	assert_int_equal(file_scene_put(&fs, "x", 70000, 1, 0, true), 0);
	file_scene_close(&fs);
	lying = true;
	file_scene_open(&fs);
	assert_int_equal(file_scene_get(&fs, "x", 70000, 1, true), 0);
	assert_int_equal(file_scene_get(&fs, "x", 70000, 1, false), 0);
	file_scene_fini(&fs);
	lying = false;
}

#define COUNT	   64
#define MOST_BYTES 65536

/* Submits one request for each slot of the memory, waits for all. */
static void run_all(struct file_scene *fs, uint32_t op, uint8_t *memory)
{
	static struct testio ios[COUNT];
	static struct kvt_iovec iovs[COUNT][2];
	static char names[COUNT][16];

	for (size_t i = 0; i < COUNT; i++) {
		/* Every third does not suit O_DIRECT. */
		uint64_t bytes = i % 3 ? MOST_BYTES : MOST_BYTES - i - 1;
		uint8_t *slot = memory + i * MOST_BYTES;

		snprintf(names[i], sizeof(names[i]), "a%zu/%zu", i % 5, i);
		iovs[i][0] = (struct kvt_iovec){slot, 4096};
		iovs[i][1] = (struct kvt_iovec){slot + 4096, bytes - 4096};
		ios[i] = (struct testio){.io = {.op = op,
						.name = names[i],
						.iov = iovs[i],
						.iov_count = 2,
						.length = bytes,
						.object_bytes = bytes}};
		assert_int_equal(testio_prepare(&ios[i], &fs->ts), 0);
		assert_true(testio_submit(&ios[i]) >= 0);
	}
	for (size_t i = 0; i < COUNT; i++) {
		assert_int_equal(testio_wait(&ios[i]), 0);
		assert_true(ios[i].completions <= 1);
		assert_false(ios[i].late);
		testio_release(&ios[i]);
	}
}

static void many_requests_share_the_ring(void **state)
{
	struct file_scene fs;
	void *aligned;
	uint8_t *memory;

	(void)state;
	open_on_disk(&fs);
	assert_int_equal(posix_memalign(&aligned, 4096, COUNT * MOST_BYTES), 0);
	memory = aligned;
	for (uint64_t round = 0; round < 3; round++) {
		for (size_t i = 0; i < COUNT; i++)
			test_fill(memory + i * MOST_BYTES, MOST_BYTES, round * COUNT + i);
		run_all(&fs, KVT_IO_PUT, memory);
		memset(memory, 0xee, COUNT * MOST_BYTES);
		run_all(&fs, KVT_IO_GET, memory);
		for (size_t i = 0; i < COUNT; i++) {
			uint8_t *slot = memory + i * MOST_BYTES;
			size_t bytes = i % 3 ? MOST_BYTES : MOST_BYTES - i - 1;

			assert_true(test_is_filled(slot, bytes, round * COUNT + i));
			for (size_t b = bytes; b < MOST_BYTES; b++)
				assert_int_equal(slot[b], 0xee);
		}
	}
	free(aligned);
	file_scene_fini(&fs);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_the_ring_refuses_goes_through_the_page_cache),
		cmocka_unit_test(reads_alone_find_it_out_too),
		cmocka_unit_test(many_requests_share_the_ring),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
