/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file system that fills up: a small tmpfs in a mount namespace of this process's own. Stores
 * fail clearly and are paused, loads go on, nothing half written is visible or left behind, and all
 * is well once there is room again. Skipped where this process may not mount.
 */
#include "support.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/statvfs.h>
#include <unistd.h>

static char *mount_point;

static void fresh_mount(const char *options)
{
	umount2(mount_point, MNT_DETACH);
	if (mount("tmpfs", mount_point, "tmpfs", 0, options) != 0)
		fail_msg("mount: %s", strerror(errno));
}

static uint64_t used_bytes(void)
{
	struct statvfs st;

	assert_int_equal(statvfs(mount_point, &st), 0);
	return (st.f_blocks - st.f_bfree) * st.f_frsize;
}

static uint64_t object_bytes(struct test_bed *bed, uint64_t *objectsp)
{
	struct kvt_verify_summary summary = KVT_INIT(summary);

	assert_ok(kvt_store_verify(bed->store, NULL, NULL, NULL, &summary));
	assert_int_equal(summary.whole, summary.objects);
	*objectsp = summary.objects;
	return summary.bytes;
}

static void open_bed(struct test_bed *bed, const char *engine)
{
	char *uri = test_format("file://%s", mount_point);

	test_bed_init(bed);
	test_bed_option(bed, "engine", engine);
	test_bed_open(bed, uri);
	free(uri);
}

/* Stores one chunk after the other, keys made from first on, until one fails; returns how many
 * were stored. */
static uint64_t fill(struct test_bed *bed, uint64_t first, uint64_t block_bytes, int *errorp)
{
	struct test_group group = {1, 0, 1, {block_bytes}};

	for (uint64_t n = 0;; n++) {
		struct test_transfer t;
		test_transfer_init(&t, 1, &group, 1, first + n);
		test_transfer_fill(&t);
		uint64_t id = bed->next_id++;
		assert_ok(kvt_worker_submit_store(bed->worker, id, &t.transfer, NULL));
		struct kvt_result *result = test_take(bed->worker, id);
		uint32_t status = result->key_status[0];
		*errorp = result->error;
		if (result->error)
			assert_true(result->detail[0] != '\0');
		kvt_result_release(result);
		test_transfer_fini(&t);
		if (status != KVT_STATUS_STORED)
			return n;
		assert_true(n < 100000);
	}
}

static void load_all(struct test_bed *bed, uint64_t block_bytes, uint64_t from, uint64_t to,
		     uint32_t status)
{
	struct test_group group = {1, 0, 1, {block_bytes}};

	for (uint64_t n = from; n < to; n++) {
		struct test_transfer t;
		test_transfer_init(&t, 1, &group, 1, 7000 + n);
		test_load(bed, &t, status);
		test_transfer_fini(&t);
	}
}

static void a_full_file_system_fails_stores_only(void **state)
{
	static const uint64_t sizes[] = {5000, 300000}; /* one put; parts */
	static const char *const engines[] = {"auto", "threads"};

	(void)state;
	for (size_t e = 0; e < TEST_COUNT(engines); e++)
		for (size_t i = 0; i < TEST_COUNT(sizes); i++) {
			struct test_bed bed;
			uint64_t objects;
			int error;
			fresh_mount("size=4m");
			open_bed(&bed, engines[e]);
			uint64_t stored = fill(&bed, 7000, sizes[i], &error);
			assert_int_equal(error, KVT_ENOSPC);
			assert_true(stored > 5);
			assert_int_equal(test_stats(bed.worker).stores_paused, 1);
			/* What was stored is there, what failed is not. */
			load_all(&bed, sizes[i], 0, stored, KVT_STATUS_LOADED);
			load_all(&bed, sizes[i], stored, stored + 1, KVT_STATUS_MISSING);
			/* Nothing else takes room: folders, config.json and a page here and
			 * there. */
			uint64_t bytes = object_bytes(&bed, &objects);
			assert_int_equal(objects, stored);
			assert_in_range(used_bytes(), bytes, bytes + 64 * 1024);
			/* Stores are refused without trying. */
			assert_int_equal(fill(&bed, 90000, 4097, &error), 0);
			assert_int_equal(error, KVT_ENOSPC);

			/* Room again, and a worker that has not heard of it. */
			for (uint64_t n = 0; n < stored / 2; n++) {
				uint8_t hash[32];
				struct kvt_key key = {hash, 32, 0};
				test_hash(hash, 32, 7000 + n, 0, 0);
				assert_ok(kvt_store_remove(bed.store, &key));
			}
			test_bed_close_worker(&bed);
			test_bed_open_worker(&bed);
			assert_true(fill(&bed, 50000, sizes[i], &error) >= stored / 2);
			assert_int_equal(error, KVT_ENOSPC);
			test_bed_close(&bed);
		}
}

static void no_more_inodes_is_the_same(void **state)
{
	struct test_bed bed;
	uint64_t objects;
	int error;

	(void)state;
	fresh_mount("size=16m,nr_inodes=60");
	open_bed(&bed, "auto");
	uint64_t stored = fill(&bed, 7000, 1000, &error);
	assert_int_equal(error, KVT_ENOSPC);
	assert_true(stored > 5);
	load_all(&bed, 1000, 0, stored, KVT_STATUS_LOADED);
	object_bytes(&bed, &objects);
	assert_int_equal(objects, stored);
	test_bed_close(&bed);
}

static void many_stores_at_once_meet_the_end_together(void **state)
{
	static const struct test_group many = {100, 0, 1, {100000}};
	struct test_bed bed;
	struct test_transfer t;
	uint64_t objects, stored = 0;

	(void)state;
	fresh_mount("size=4m");
	open_bed(&bed, "auto");
	test_transfer_init(&t, 1, &many, 1, 1);
	test_transfer_fill(&t);
	assert_ok(kvt_worker_submit_store(bed.worker, 1, &t.transfer, NULL));
	struct kvt_result *result = test_take(bed.worker, 1);
	assert_int_equal(result->status, KVT_STATUS_FAILED);
	assert_int_equal(result->error, KVT_ENOSPC);
	for (uint64_t k = 0; k < result->key_count; k++) {
		if (result->key_status[k] == KVT_STATUS_STORED)
			stored++;
		else
			assert_int_equal(result->key_error[k], KVT_ENOSPC);
	}
	assert_true(stored > 5);
	test_transfer_poison(&t);
	assert_ok(kvt_worker_submit_load(bed.worker, 2, &t.transfer, NULL));
	struct kvt_result *loads = test_take(bed.worker, 2);
	for (uint64_t k = 0; k < loads->key_count; k++) {
		bool was_stored = result->key_status[k] == KVT_STATUS_STORED;
		assert_int_equal(loads->key_status[k],
				 was_stored ? KVT_STATUS_LOADED : KVT_STATUS_MISSING);
		if (was_stored)
			assert_true(test_transfer_key_ok(&t, k));
	}
	uint64_t bytes = object_bytes(&bed, &objects);
	assert_int_equal(objects, stored);
	assert_in_range(used_bytes(), bytes, bytes + 128 * 1024);
	kvt_result_release(result);
	kvt_result_release(loads);
	test_transfer_fini(&t);
	test_bed_close(&bed);
}

/* A mount of our own; why not, when there can be none. */
static const char *prepare(void)
{
	if (unshare(CLONE_NEWNS) != 0)
		return "a mount namespace";
	if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0)
		return "a private mount namespace";
	mount_point = test_temp_dir_on_disk();
	if (mount("tmpfs", mount_point, "tmpfs", 0, "size=1m") != 0)
		return "a tmpfs";
	return NULL;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_full_file_system_fails_stores_only),
		cmocka_unit_test(no_more_inodes_is_the_same),
		cmocka_unit_test(many_stores_at_once_meet_the_end_together),
	};
	const char *missing = prepare();

	if (missing) {
		printf("skipped: this process cannot have %s: %s\n", missing, strerror(errno));
		test_remove_tree(mount_point);
		return 77;
	}
	int failed = cmocka_run_group_tests_name("enospc", tests, NULL, NULL);
	umount2(mount_point, MNT_DETACH);
	test_remove_tree(mount_point);
	return failed;
}
