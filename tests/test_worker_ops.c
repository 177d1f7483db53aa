/* SPDX-License-Identifier: Apache-2.0 */
/* Raw files by offset, as vLLM's worker moves them: on a directory, where the bytes are looked at,
 * and in memory. */
#include "support.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fake_backend.h"
#include "fake_device.h"

struct scene {
	char *root; /* NULL: in memory */
	struct test_bed bed;
};

static void scene_open(struct scene *s, bool on_files)
{
	memset(s, 0, sizeof(*s));
	test_bed_init(&s->bed);
	if (on_files) {
		s->root = test_temp_dir();
		char *uri = test_format("file://%s", s->root);
		test_bed_open(&s->bed, uri);
		free(uri);
	} else {
		test_bed_open(&s->bed, "mem:");
	}
}

static void scene_close(struct scene *s)
{
	test_bed_close(&s->bed);
	test_remove_tree(s->root);
}

/* The result of one finished file. */
static int finish(struct kvt_io_completion *completion)
{
	assert_ok(kvt_io_completion_wait(completion, TEST_LIMIT_MS));
	assert_int_equal(kvt_io_completion_done(completion), 1);
	int result = kvt_io_completion_result(completion, NULL);
	kvt_io_completion_release(completion);
	return result;
}

static int run(struct scene *s, const struct kvt_file_ops *files, size_t count, int is_store)
{
	struct kvt_io_completion *done[8];
	int worst = 0;

	assert_true(count <= 8);
	assert_ok(kvt_worker_submit_ops(s->bed.worker, files, count, is_store, NULL, done));
	for (size_t i = 0; i < count; i++) {
		int result = finish(done[i]);
		worst = result ? result : worst;
	}
	return worst;
}

static struct kvt_file_op op(const void *memory, uint64_t bytes, uint64_t offset)
{
	return (struct kvt_file_op){(uint64_t)(uintptr_t)memory, bytes, offset};
}

static void bytes_lie_at_their_offsets_and_gaps_are_zero(void **state)
{
	uint8_t a[100], b[5000], c[70000], back[75200];

	(void)state;
	for (int on_files = 0; on_files < 2; on_files++) {
		struct scene s;
		scene_open(&s, on_files);
		test_fill(a, sizeof(a), 1);
		test_fill(b, sizeof(b), 2);
		test_fill(c, sizeof(c), 3);
		/* Out of order, with a gap before, between and none behind. */
		struct kvt_file_op ops[] = {op(c, sizeof(c), 5200), op(a, sizeof(a), 50),
					    op(b, sizeof(b), 170)};
		struct kvt_file_ops file = {"some/deep/folder/x.raw", ops, 3};
		assert_int_equal(run(&s, &file, 1, 1), 0);
		struct kvt_file_op whole = op(back, sizeof(back), 0);
		memset(back, 0xEE, sizeof(back));
		file.ops = &whole;
		file.op_count = 1;
		assert_int_equal(run(&s, &file, 1, 0), 0);
		for (int i = 0; i < 50; i++)
			assert_int_equal(back[i], 0);
		assert_memory_equal(back + 50, a, sizeof(a));
		for (int i = 150; i < 170; i++)
			assert_int_equal(back[i], 0);
		assert_memory_equal(back + 170, b, sizeof(b));
		assert_memory_equal(back + 5200, c, sizeof(c));
		if (on_files) {
			char *path = test_format("%s/%s", s.root, file.path);
			size_t bytes;
			uint8_t *data = test_read_file(path, &bytes);
			assert_non_null(data);
			assert_int_equal(bytes, 75200);
			assert_memory_equal(data, back, bytes);
			free(data);
			free(path);
		}
		scene_close(&s);
	}
}

static void loads_scatter_ranges_that_may_overlap(void **state)
{
	uint8_t data[200000], parts[4][60000];

	(void)state;
	for (int on_files = 0; on_files < 2; on_files++) {
		struct scene s;
		scene_open(&s, on_files);
		test_fill(data, sizeof(data), 4);
		struct kvt_file_op all = op(data, sizeof(data), 0);
		struct kvt_file_ops file = {"file", &all, 1};
		assert_int_equal(run(&s, &file, 1, 1), 0);
		struct kvt_file_op ops[] = {op(parts[0], 60000, 140000), op(parts[1], 60000, 1),
					    op(parts[2], 60000, 30000), op(parts[3], 1, 199999)};
		memset(parts, 0xEE, sizeof(parts));
		file.ops = ops;
		file.op_count = 4;
		assert_int_equal(run(&s, &file, 1, 0), 0);
		assert_memory_equal(parts[0], data + 140000, 60000);
		assert_memory_equal(parts[1], data + 1, 60000);
		assert_memory_equal(parts[2], data + 30000, 60000);
		assert_int_equal(parts[3][0], data[199999]);
		assert_int_equal(parts[3][1], 0xEE);
		scene_close(&s);
	}
}

static void a_store_replaces_the_file_in_one_step(void **state)
{
	uint8_t old_bytes[9000], new_bytes[300], back[300];

	(void)state;
	for (int on_files = 0; on_files < 2; on_files++) {
		struct scene s;
		scene_open(&s, on_files);
		test_fill(old_bytes, sizeof(old_bytes), 5);
		test_fill(new_bytes, sizeof(new_bytes), 6);
		struct kvt_file_op ops = op(old_bytes, sizeof(old_bytes), 0);
		struct kvt_file_ops file = {"file", &ops, 1};
		assert_int_equal(run(&s, &file, 1, 1), 0);
		int before = -1;
		if (on_files) {
			char *path = test_format("%s/file", s.root);
			before = open(path, O_RDONLY);
			assert_true(before >= 0);
			free(path);
		}
		/* Nothing is skipped. */
		ops = op(new_bytes, sizeof(new_bytes), 0);
		assert_int_equal(run(&s, &file, 1, 1), 0);
		ops = op(back, sizeof(back), 0);
		assert_int_equal(run(&s, &file, 1, 0), 0);
		assert_memory_equal(back, new_bytes, sizeof(back));
		/* The shorter file is not the longer one overwritten. */
		ops = op(back, sizeof(back), 1);
		assert_int_equal(run(&s, &file, 1, 0), KVT_ERANGE);
		if (on_files) {
			uint8_t kept[9000];
			assert_int_equal(read(before, kept, sizeof(kept)), sizeof(kept));
			assert_memory_equal(kept, old_bytes, sizeof(kept));
			close(before);
			char *config = test_format("%s/ns/config.json", s.root);
			assert_int_equal(test_count_files(s.root, ".kvtier"),
					 1 + (access(config, F_OK) == 0));
			free(config);
		}
		scene_close(&s);
	}
}

/* Two ranges of one load, and another file put in its place between them: never half and half. */
static void a_load_reads_one_file_or_none(void **state)
{
	enum { HALF = 4096 };
	static uint8_t old_bytes[2 * HALF], new_bytes[2 * HALF], back[2 * HALF];
	struct fake_config config = {.capabilities = FAKE_CAPABILITIES | KVT_CAP_RAW_FILES};
	struct test_bed bed;

	(void)state;
	memset(old_bytes, 'A', sizeof(old_bytes));
	memset(new_bytes, 'B', sizeof(new_bytes));
	for (unsigned replacements = 1; replacements < 8; replacements++) {
		struct fake_store *fake = fake_store_create(&config);
		struct fake_rule second = {
			.ops = FAKE_OP(KVT_IO_GET), .name = "file", .skip = 1, .action = FAKE_HOLD};
		struct kvt_file_op ops[] = {op(back, HALF, 0), op(back + HALF, HALF, HALF)};
		struct kvt_file_ops file = {"file", ops, 2};
		struct kvt_io_completion *done;

		test_bed_init(&bed);
		bed.worker_options.lanes = 1;
		bed.worker_options.depth = 1; /* one range after the other */
		test_bed_open(&bed, fake_store_uri(fake));
		fake_object_put(fake, "file", old_bytes, sizeof(old_bytes));
		fake_rule_add(fake, &second);
		assert_ok(kvt_worker_submit_ops(bed.worker, &file, 1, 0, NULL, &done));
		assert_true(fake_await_held(fake, &second, 1));
		for (unsigned i = 0; i < replacements; i++)
			fake_object_put(fake, "file", i % 2 ? old_bytes : new_bytes,
					sizeof(new_bytes));
		fake_rule_remove(fake, &second);
		assert_int_equal(finish(done), 0);
		assert_memory_equal(back, replacements % 2 ? new_bytes : old_bytes, sizeof(back));
		test_bed_close(&bed);
		fake_store_destroy(fake);
	}
}

static void missing_files_and_ranges_are_failures(void **state)
{
	uint8_t data[1000], back[2000];

	(void)state;
	for (int on_files = 0; on_files < 2; on_files++) {
		struct scene s;
		scene_open(&s, on_files);
		test_fill(data, sizeof(data), 7);
		struct kvt_file_op ops[2] = {op(back, 1000, 0), op(back + 1000, 1000, 500)};
		struct kvt_file_ops files[2] = {{"there", ops, 1}, {"absent", ops, 1}};
		struct kvt_file_op out = op(data, sizeof(data), 0);
		struct kvt_file_ops store = {"there", &out, 1};
		struct kvt_io_completion *done[2];
		const char *detail = NULL;
		assert_int_equal(run(&s, &store, 1, 1), 0);
		/* One bad file does not spoil the other. */
		assert_ok(kvt_worker_submit_ops(s.bed.worker, files, 2, 0, NULL, done));
		assert_int_equal(finish(done[0]), 0);
		assert_ok(kvt_io_completion_wait(done[1], TEST_LIMIT_MS));
		assert_int_equal(kvt_io_completion_result(done[1], &detail), KVT_ENOENT);
		assert_non_null(detail);
		assert_non_null(strstr(detail, "absent"));
		kvt_io_completion_release(done[1]);
		/* A file that is too short stays as it is. */
		files[0].op_count = 2;
		assert_int_equal(run(&s, files, 1, 0), KVT_ERANGE);
		files[0].op_count = 1;
		assert_int_equal(run(&s, files, 1, 0), 0);
		assert_memory_equal(back, data, sizeof(data));
		scene_close(&s);
	}
}

static void many_files_in_one_call_finish_one_by_one(void **state)
{
	enum { FILES = 64, BYTES = 3000 };
	uint8_t *memory = malloc(FILES * BYTES);
	struct kvt_file_op ops[FILES];
	struct kvt_file_ops files[FILES];
	struct kvt_io_completion *done[FILES];
	char paths[FILES][32];

	(void)state;
	assert_non_null(memory);
	for (int on_files = 0; on_files < 2; on_files++) {
		struct scene s;
		scene_open(&s, on_files);
		for (int is_store = 1; is_store >= 0; is_store--) {
			for (int i = 0; i < FILES; i++) {
				snprintf(paths[i], sizeof(paths[i]), "d%d/f%d", i % 5, i);
				ops[i] = op(memory + i * BYTES, BYTES, 0);
				files[i] = (struct kvt_file_ops){paths[i], &ops[i], 1};
				if (is_store)
					test_fill(memory + i * BYTES, BYTES, (uint64_t)i);
			}
			if (!is_store)
				memset(memory, 0, FILES * BYTES);
			assert_ok(kvt_worker_submit_ops(s.bed.worker, files, FILES, is_store, NULL,
							done));
			/* The arrays were copied. */
			memset(ops, 0xFF, sizeof(ops));
			memset(paths, 0, sizeof(paths));
			for (int i = FILES; i-- > 0;)
				assert_int_equal(finish(done[i]), 0);
		}
		for (int i = 0; i < FILES; i++)
			assert_true(test_is_filled(memory + i * BYTES, BYTES, (uint64_t)i));
		struct kvt_stats stats = test_stats(s.bed.worker);
		uint64_t counted = 0;
		for (int status = 0; status < KVT_STATUS_COUNT; status++)
			counted += stats.keys[KVT_JOB_OPS][status];
		assert_int_equal(counted, 2 * FILES);
		/* Not seen by poll. */
		struct kvt_result *result;
		assert_returns(0, kvt_worker_poll(s.bed.worker, &result, 1));
		scene_close(&s);
	}
	free(memory);
}

static void interest_can_be_given_up_before_the_end(void **state)
{
	uint8_t data[5000];

	(void)state;
	for (int on_files = 0; on_files < 2; on_files++) {
		struct scene s;
		struct kvt_io_completion *done;
		scene_open(&s, on_files);
		test_fill(data, sizeof(data), 8);
		struct kvt_file_op ops = op(data, sizeof(data), 0);
		struct kvt_file_ops file = {"file", &ops, 1};
		assert_ok(kvt_worker_submit_ops(s.bed.worker, &file, 1, 1, NULL, &done));
		kvt_io_completion_release(done);
		assert_ok(kvt_worker_drain(s.bed.worker, TEST_LIMIT_MS));
		uint8_t back[5000];
		ops = op(back, sizeof(back), 0);
		assert_int_equal(run(&s, &file, 1, 0), 0);
		assert_memory_equal(back, data, sizeof(back));
		scene_close(&s);
	}
}

static void completions_outlive_the_worker(void **state)
{
	uint8_t data[100];
	struct scene s;
	struct kvt_io_completion *done[2];
	struct fake_gpu *gpu = fake_gpu_create(1 << 16, true);
	struct kvt_file_op ops = {fake_gpu_ptr(gpu, 0), 100, 0};
	struct kvt_file_ops files[2] = {{"a", &ops, 1}, {"b", &ops, 1}};

	(void)state;
	memset(data, 1, sizeof(data));
	memset(&s, 0, sizeof(s));
	test_bed_init(&s.bed);
	assert_ok(fake_gpu_open(gpu, NULL, &s.bed.device));
	test_bed_open(&s.bed, "mem:");
	fake_gpu_hold(gpu);
	assert_ok(kvt_worker_submit_ops(s.bed.worker, files, 2, 1, NULL, done));
	assert_true(fake_gpu_await_queued(gpu, 2));
	assert_int_equal(kvt_io_completion_done(done[0]), 0);
	assert_int_equal(kvt_io_completion_result(done[0], NULL), KVT_EBUSY);
	assert_returns(KVT_ETIMEDOUT, kvt_io_completion_wait(done[0], 0));
	assert_returns(KVT_EBUSY, kvt_worker_destroy(s.bed.worker, 0));
	fake_gpu_release(gpu);
	assert_ok(kvt_worker_destroy(s.bed.worker, TEST_LIMIT_MS));
	s.bed.worker = NULL;
	for (int i = 0; i < 2; i++) {
		assert_int_equal(kvt_io_completion_done(done[i]), 1);
		int result = finish(done[i]);
		assert_true(result == 0 || result == KVT_ECANCELED || result == KVT_ESHUTDOWN);
	}
	assert_ok(kvt_device_close(s.bed.device));
	assert_null(fake_gpu_violation(gpu));
	fake_gpu_destroy(gpu);
	scene_close(&s);
}

static void device_memory_events_and_large_files_work(void **state)
{
	enum { BYTES = 700001 };
	static const size_t at[] = {0, 1 << 20};
	struct fake_gpu *gpu = fake_gpu_create(2 << 20, true);
	struct fake_event *event = fake_event_create(gpu);
	struct kvt_submit_options options = KVT_INIT(options);
	struct scene s;
	struct kvt_io_completion *done;

	(void)state;
	memset(&s, 0, sizeof(s));
	test_bed_init(&s.bed);
	assert_ok(fake_gpu_open(gpu, NULL, &s.bed.device));
	s.root = test_temp_dir();
	char *uri = test_format("file://%s", s.root);
	test_bed_open(&s.bed, uri);
	options.ready.kind = KVT_READY_EVENT;
	options.ready.handle = event;
	struct kvt_file_op ops[2] = {{fake_gpu_ptr(gpu, at[0]), 100000, 4096},
				     {fake_gpu_ptr(gpu, at[0] + 100000), BYTES - 100000, 200000}};
	struct kvt_file_ops file = {"large", ops, 2};
	assert_ok(kvt_worker_submit_ops(s.bed.worker, &file, 1, 1, &options, &done));
	assert_int_equal(kvt_io_completion_done(done), 0);
	test_fill(fake_gpu_memory(gpu) + at[0], BYTES, 9);
	fake_event_signal(event);
	assert_int_equal(finish(done), 0);
	ops[0].device_ptr = fake_gpu_ptr(gpu, at[1]);
	ops[1].device_ptr = fake_gpu_ptr(gpu, at[1] + 100000);
	assert_int_equal(run(&s, &file, 1, 0), 0);
	assert_true(test_is_filled(fake_gpu_memory(gpu) + at[1], BYTES, 9));
	test_bed_close_worker(&s.bed);
	assert_ok(kvt_device_close(s.bed.device));
	fake_event_destroy(event);
	assert_null(fake_gpu_violation(gpu));
	fake_gpu_destroy(gpu);
	free(uri);
	scene_close(&s);
}

static void raw_files_and_objects_live_side_by_side(void **state)
{
	static const struct test_group one = {1, 0, 1, {5000}};
	struct scene s;
	struct test_transfer t;
	uint8_t back[9000];
	char name[KVT_NAME_BYTES];

	(void)state;
	scene_open(&s, true);
	test_transfer_init(&t, 1, &one, 1, 1);
	test_store(&s.bed, &t, KVT_STATUS_STORED);
	/* An object is a file whose payload comes first. */
	assert_true(kvt_store_object_name(s.bed.store, t.keys, name, sizeof(name)) > 0);
	struct kvt_file_op ops = op(back, 5000, 0);
	struct kvt_file_ops file = {name, &ops, 1};
	assert_int_equal(run(&s, &file, 1, 0), 0);
	assert_memory_equal(back, t.copies[0].at, 5000);
	test_transfer_fini(&t);
	scene_close(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bytes_lie_at_their_offsets_and_gaps_are_zero),
		cmocka_unit_test(loads_scatter_ranges_that_may_overlap),
		cmocka_unit_test(a_store_replaces_the_file_in_one_step),
		cmocka_unit_test(a_load_reads_one_file_or_none),
		cmocka_unit_test(missing_files_and_ranges_are_failures),
		cmocka_unit_test(many_files_in_one_call_finish_one_by_one),
		cmocka_unit_test(interest_can_be_given_up_before_the_end),
		cmocka_unit_test(completions_outlive_the_worker),
		cmocka_unit_test(device_memory_events_and_large_files_work),
		cmocka_unit_test(raw_files_and_objects_live_side_by_side),
	};
	return cmocka_run_group_tests_name("worker_ops", tests, NULL, NULL);
}
