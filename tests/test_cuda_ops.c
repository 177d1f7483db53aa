/* SPDX-License-Identifier: Apache-2.0 */
/* Raw files from and to device memory, as vLLM's file workers move them. */
#include "cuda_scene.h"

#include <stdio.h>
#include <string.h>

static const struct test_group pages = {12, 0, 2, {4096, 300}};

#define MAX_OPS 24

/* Each copy of the transfer behind the one before, with a gap between. */
static struct kvt_file_ops file_of(const struct test_transfer *t, struct kvt_file_op ops[MAX_OPS])
{
	uint64_t at = 0;

	assert_true(t->transfer.copy_count <= MAX_OPS);
	for (uint64_t i = 0; i < t->transfer.copy_count; i++) {
		ops[i] = (struct kvt_file_op){t->ptrs[i], t->sizes[i], at};
		at += t->sizes[i] + 100;
	}
	return (struct kvt_file_ops){"some/folder/file.bin", ops, t->transfer.copy_count};
}

/* The result of one finished file, and what it says. */
static int finish(struct kvt_io_completion *completion, char *said, size_t bytes)
{
	const char *detail = NULL;

	assert_ok(kvt_io_completion_wait(completion, TEST_LIMIT_MS));
	int result = kvt_io_completion_result(completion, &detail);
	if (said)
		snprintf(said, bytes, "%s", detail ? detail : "");
	kvt_io_completion_release(completion);
	return result;
}

static void files_are_made_of_device_memory_once_it_is_ready(void **state)
{
	for (int store = 0; store < CUDA_STORE_COUNT; store++) {
		struct kvt_submit_options options = KVT_INIT(options);
		struct kvt_file_op ops[MAX_OPS];
		struct kvt_io_completion *c;
		struct kvt_file_ops file;
		struct test_transfer t;
		struct cuda_producer p;
		struct cuda_scene s;

		(void)state;
		cuda_scene_init(&s, 0, 1 << 20);
		cuda_scene_open(&s, (enum cuda_store)store);
		cuda_scene_place(&s, &t, 12, &pages, 1, 3);
		cuda_producer_start(&p, &s, &t, NULL);
		file = file_of(&t, ops);
		options.ready.kind = KVT_READY_EVENT;
		options.ready.handle = p.event;
		assert_ok(kvt_worker_submit_ops(s.bed.worker, &file, 1, 1, &options, &c));
		assert_returns(KVT_ETIMEDOUT, kvt_io_completion_wait(c, 20));
		cuda_producer_release(&p);
		assert_int_equal(finish(c, NULL, 0), 0);
		cuda_producer_end(&p);

		test_transfer_poison(&t);
		cuda_scene_push(&s, &t);
		assert_ok(kvt_worker_submit_ops(s.bed.worker, &file, 1, 0, NULL, &c));
		assert_int_equal(finish(c, NULL, 0), 0);
		cuda_scene_pull(&s, &t);
		test_transfer_check(&t);
		assert_context_kept(&s);
		test_transfer_fini(&t);
		cuda_scene_close(&s);
	}
}

static void memory_that_is_none_fails_its_file_alone(void **state)
{
	struct kvt_file_op good[MAX_OPS], bad[MAX_OPS];
	struct kvt_io_completion *c[2];
	struct kvt_file_ops files[2];
	struct test_transfer t;
	struct cuda_scene s;
	char said[KVT_NAME_BYTES], expected[64];

	(void)state;
	cuda_scene_init(&s, 0, 1 << 20);
	cuda_scene_open(&s, CUDA_STORE_FILE);
	cuda_scene_place(&s, &t, 12, &pages, 1, 3);
	test_transfer_fill(&t);
	cuda_scene_push(&s, &t);
	files[0] = file_of(&t, good);
	files[1] = file_of(&t, bad);
	files[1].path = "some/folder/other.bin";
	bad[7].device_ptr = s.memory + (1 << 20) - 8; /* its end lies behind the allocation's */
	snprintf(expected, sizeof(expected), "0x%llx", (unsigned long long)bad[7].device_ptr);
	for (int is_store = 1; is_store >= 0; is_store--) {
		if (!is_store)
			files[1].path = files[0].path;
		assert_ok(kvt_worker_submit_ops(s.bed.worker, files, 2, is_store, NULL, c));
		assert_int_equal(finish(c[0], NULL, 0), 0);
		assert_int_equal(finish(c[1], said, sizeof(said)), KVT_EFAULT);
		if (!strstr(said, expected))
			fail_msg("%s", said);
	}
	test_transfer_fini(&t);
	cuda_scene_close(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(files_are_made_of_device_memory_once_it_is_ready),
		cmocka_unit_test(memory_that_is_none_fails_its_file_alone),
	};
	int skipped = cuda_scene_start(true);

	return skipped ? skipped : cmocka_run_group_tests_name("cuda_ops", tests, NULL, NULL);
}
