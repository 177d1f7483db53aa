/* SPDX-License-Identifier: Apache-2.0 */
/* Bad rows, submit options, lookups, geometries, raw files and all the other calls: refused, with
 * the argument, its value and what was expected named, and nothing left behind. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "args_scene.h"

/* ---- Rows ---- */

static void bad_rows_are_refused(void **state)
{
	struct args_scene *s = *state;
	static uint8_t memory[64];
	int64_t numbers[] = {0, 1, 3};

	for (int i = 0; i < 12; i++) {
		struct kvt_rows rows = KVT_INIT(rows);
		struct kvt_key keys[3] = {s->t.keys[0], s->t.keys[1], s->t.keys[2]};
		const char *texts[3] = {NULL, NULL, NULL};
		rows.base = memory;
		rows.stride_bytes = 16;
		rows.row_count = 4;
		rows.row_indices = numbers;
		rows.keys = keys;
		rows.key_count = 3;
		numbers[2] = 3;
		switch (i) {
		case 0:
			numbers[2] = 4;
			texts[0] = "row_indices[2]", texts[1] = "4", texts[2] = "3";
			break;
		case 1:
			numbers[2] = -1;
			texts[0] = "row_indices[2]", texts[1] = "-1", texts[2] = "0";
			break;
		case 2:
			rows.base = NULL;
			texts[0] = "base", texts[1] = "NULL";
			break;
		case 3:
			rows.stride_bytes = 0;
			texts[0] = "stride_bytes", texts[1] = "0", texts[2] = "1";
			break;
		case 4:
			rows.stride_bytes = UINT64_MAX;
			texts[0] = "stride_bytes", texts[1] = "18446744073709551615";
			break;
		case 5:
			rows.row_count = UINT64_MAX;
			texts[0] = "row_count", texts[1] = "18446744073709551615";
			break;
		case 6:
			rows.row_indices = NULL;
			texts[0] = "row_indices", texts[1] = "NULL", texts[2] = "3";
			break;
		case 7:
			rows.keys = NULL;
			texts[0] = "keys", texts[1] = "NULL", texts[2] = "3";
			break;
		case 8:
			keys[1].hash_bytes = 65;
			texts[0] = "keys[1]", texts[1] = "65", texts[2] = "1 to 64";
			break;
		case 9:
			rows.struct_size = 0;
			texts[0] = "rows", texts[1] = "struct_size", texts[2] = "0";
			break;
		case 10:
			rows.row_count = 0;
			texts[0] = "row_indices[0]", texts[1] = "0";
			break;
		default:
			keys[2].hash = NULL;
			texts[0] = "keys[2]", texts[1] = "NULL";
			break;
		}
		print_message("  %s\n", texts[0]);
		assert_refused(KVT_EINVAL, texts[0], texts[1], texts[2],
			       kvt_worker_submit_store_rows(s->bed.worker, 1, &rows, NULL));
		assert_refused(KVT_EINVAL, texts[0], texts[1], texts[2],
			       kvt_worker_submit_load_rows(s->bed.worker, 1, &rows, NULL));
	}
}

/* ---- Submit options, lookups, geometries ---- */

static void bad_submit_options_are_refused(void **state)
{
	struct args_scene *s = *state;
	struct kvt_submit_options o = KVT_INIT(o);
	struct kvt_worker *w = s->bed.worker;
	const struct kvt_transfer *t = &s->t.transfer;

	o.struct_size = 3;
	assert_refused(KVT_EINVAL, "options", "struct_size", "3",
		       kvt_worker_submit_store(w, 1, t, &o));
	o = (struct kvt_submit_options)KVT_INIT(o);
	o.timeout_ms = UINT64_MAX;
	assert_refused(KVT_EINVAL, "timeout_ms", "18446744073709551615", NULL,
		       kvt_worker_submit_store(w, 1, t, &o));
	o = (struct kvt_submit_options)KVT_INIT(o);
	o.expedited = 1;
	assert_refused(KVT_EINVAL, "expedited", "1", NULL, kvt_worker_submit_store(w, 1, t, &o));
	o = (struct kvt_submit_options)KVT_INIT(o);
	o.lookup_flags = KVT_LOOKUP_PREFIX;
	assert_refused(KVT_EINVAL, "lookup_flags", "1", NULL, kvt_worker_submit_load(w, 1, t, &o));
	o = (struct kvt_submit_options)KVT_INIT(o);
	o.ready.kind = 17;
	assert_refused(KVT_EINVAL, "ready.kind", "17", NULL, kvt_worker_submit_load(w, 1, t, &o));
	o.ready.kind = KVT_READY_FD;
	o.ready.fd = -1;
	assert_refused(KVT_EINVAL, "ready.fd", "-1", NULL, kvt_worker_submit_load(w, 1, t, &o));
	o.ready.kind = KVT_READY_EVENT;
	assert_refused(KVT_EINVAL, "ready.handle", "NULL", NULL,
		       kvt_worker_submit_store(w, 1, t, &o));
	/* Plain memory has no streams. */
	o.ready.kind = KVT_READY_STREAM;
	o.ready.handle = &o;
	assert_refused(KVT_EINVAL, "ready.kind", NULL, NULL, kvt_worker_submit_store(w, 1, t, &o));
}

static void bad_lookups_are_refused(void **state)
{
	struct args_scene *s = *state;
	struct kvt_worker *w = s->bed.worker;
	struct kvt_submit_options o = KVT_INIT(o);
	struct kvt_key keys[3] = {s->t.keys[0], s->t.keys[1], s->t.keys[2]};

	keys[0].group = 5;
	assert_refused(KVT_EINVAL, "geometry", "5", NULL,
		       kvt_worker_submit_lookup(w, 1, keys, 3, NULL));
	test_set_geometry(&s->bed, &s->t);
	assert_refused(KVT_EINVAL, "geometry", "5", NULL,
		       kvt_worker_submit_lookup(w, 1, keys, 3, NULL));
	keys[0].group = 0;
	assert_refused(KVT_EINVAL, "keys", "NULL", "3",
		       kvt_worker_submit_lookup(w, 1, NULL, 3, NULL));
	keys[2].hash_bytes = 0;
	assert_refused(KVT_EINVAL, "keys[2]", "0", "1 to 64",
		       kvt_worker_submit_lookup(w, 1, keys, 3, NULL));
	keys[2].hash_bytes = 32;
	o.lookup_flags = 8;
	assert_refused(KVT_EINVAL, "lookup_flags", "8", NULL,
		       kvt_worker_submit_lookup(w, 1, keys, 3, &o));
	o.lookup_flags = 0;
	o.expedited = 1;
	assert_refused(KVT_EINVAL, "expedited", "1", NULL,
		       kvt_worker_submit_lookup(w, 1, keys, 3, &o));
}

static void bad_geometries_are_refused(void **state)
{
	struct args_scene *s = *state;
	struct kvt_worker *w = s->bed.worker;
	uint64_t sizes[3] = {1, 2, 3};
	struct kvt_geometry g = KVT_INIT(g);

	assert_refused(KVT_EINVAL, "geometry", "NULL", NULL, kvt_worker_set_geometry(w, 0, NULL));
	g.ref_count = 3;
	g.ref_bytes = sizes;
	assert_refused(KVT_EINVAL, "blocks_per_chunk", "0", "1", kvt_worker_set_geometry(w, 0, &g));
	g.blocks_per_chunk = 4;
	g.ref_bytes = NULL;
	assert_refused(KVT_EINVAL, "ref_bytes", "NULL", "3", kvt_worker_set_geometry(w, 0, &g));
	g.ref_bytes = sizes;
	sizes[1] = 0;
	assert_refused(KVT_EINVAL, "1", "0", NULL, kvt_worker_set_geometry(w, 0, &g));
	sizes[1] = UINT64_MAX;
	assert_refused(KVT_EINVAL, "ref_bytes[1]", "18446744073709551615", NULL,
		       kvt_worker_set_geometry(w, 0, &g));
	sizes[1] = 2;
	g.blocks_per_chunk = 1 << 20;
	assert_refused(KVT_EINVAL, "1048576", NULL, NULL, kvt_worker_set_geometry(w, 0, &g));
	g.ref_count = UINT32_MAX;
	assert_refused(KVT_EINVAL, "ref_count", "4294967295", NULL,
		       kvt_worker_set_geometry(w, 0, &g));
	g.struct_size = 1;
	assert_refused(KVT_EINVAL, "geometry", "struct_size", "1",
		       kvt_worker_set_geometry(w, 0, &g));
}

/* ---- Everything else ---- */

static void every_call_refuses_a_null_worker(void **state)
{
	struct args_scene *s = *state;
	struct kvt_result *result;
	struct kvt_stats stats = KVT_INIT(stats);
	struct kvt_geometry g = KVT_INIT(g);
	struct kvt_rows rows = KVT_INIT(rows);
	struct kvt_file_ops files = {"a", NULL, 0};
	struct kvt_io_completion *completion;
	size_t known = 5;
	uint64_t id = 1;
	const struct kvt_transfer *t = &s->t.transfer;

	assert_refused(KVT_EINVAL, "worker", "NULL", NULL,
		       kvt_worker_submit_store(NULL, 1, t, NULL));
	assert_refused(KVT_EINVAL, "worker", "NULL", NULL,
		       kvt_worker_submit_load(NULL, 1, t, NULL));
	assert_refused(KVT_EINVAL, "worker", "NULL", NULL,
		       kvt_worker_submit_store_rows(NULL, 1, &rows, NULL));
	assert_refused(KVT_EINVAL, "worker", "NULL", NULL,
		       kvt_worker_submit_load_rows(NULL, 1, &rows, NULL));
	assert_refused(KVT_EINVAL, "worker", "NULL", NULL,
		       kvt_worker_submit_lookup(NULL, 1, s->t.keys, 1, NULL));
	assert_refused(KVT_EINVAL, "worker", "NULL", NULL,
		       kvt_worker_submit_ops(NULL, &files, 1, 1, NULL, &completion));
	assert_refused(KVT_EINVAL, "worker", "NULL", NULL, kvt_worker_set_geometry(NULL, 0, &g));
	assert_refused(KVT_EINVAL, "worker", "NULL", NULL, kvt_worker_poll(NULL, &result, 1));
	assert_refused(KVT_EINVAL, "worker", "NULL", NULL,
		       kvt_worker_wait(NULL, &id, 1, 0, &known));
	assert_int_equal(known, 0);
	assert_refused(KVT_EINVAL, "worker", "NULL", NULL,
		       kvt_worker_wait_memory(NULL, &id, 1, 0, NULL));
	assert_refused(KVT_EINVAL, "worker", "NULL", NULL, kvt_worker_drain(NULL, 0));
	assert_refused(KVT_EINVAL, "worker", "NULL", NULL, kvt_worker_cancel(NULL, 1));
	assert_refused(KVT_EINVAL, "worker", "NULL", NULL, kvt_worker_event_fd(NULL));
	assert_refused(KVT_EINVAL, "worker", "NULL", NULL, kvt_worker_stats(NULL, &stats));
}

static void the_other_calls_check_their_arguments(void **state)
{
	struct args_scene *s = *state;
	struct kvt_worker *w = s->bed.worker;
	struct kvt_stats stats = KVT_INIT(stats);
	struct kvt_result *result;

	assert_refused(KVT_EINVAL, "transfer", "NULL", NULL,
		       kvt_worker_submit_store(w, 1, NULL, NULL));
	assert_refused(KVT_EINVAL, "transfer", "NULL", NULL,
		       kvt_worker_submit_load(w, 1, NULL, NULL));
	assert_refused(KVT_EINVAL, "rows", "NULL", NULL,
		       kvt_worker_submit_store_rows(w, 1, NULL, NULL));
	assert_refused(KVT_EINVAL, "rows", "NULL", NULL,
		       kvt_worker_submit_load_rows(w, 1, NULL, NULL));
	assert_refused(KVT_EINVAL, "results", "NULL", NULL, kvt_worker_poll(w, NULL, 1));
	assert_refused(KVT_EINVAL, "max_results", "-1", NULL, kvt_worker_poll(w, &result, -1));
	assert_returns(0, kvt_worker_poll(w, &result, 0));
	assert_refused(KVT_EINVAL, "job_ids", "NULL", "2", kvt_worker_wait(w, NULL, 2, 0, NULL));
	assert_refused(KVT_EINVAL, "job_ids", "NULL", "2",
		       kvt_worker_wait_memory(w, NULL, 2, 0, NULL));
	assert_refused(KVT_ENOENT, "job_id", "44", NULL, kvt_worker_cancel(w, 44));
	assert_refused(KVT_EINVAL, "stats", "NULL", NULL, kvt_worker_stats(w, NULL));
	stats.struct_size = 0;
	assert_refused(KVT_EINVAL, "struct_size", "0", NULL, kvt_worker_stats(w, &stats));
	/* A shorter struct of an older caller is filled as far as it goes. */
	memset(&stats, 0xEE, sizeof(stats));
	stats.struct_size = offsetof(struct kvt_stats, breaker);
	assert_ok(kvt_worker_stats(w, &stats));
	assert_int_equal(stats.struct_size, offsetof(struct kvt_stats, breaker));
	assert_int_equal(stats.jobs_live, 0);
	assert_int_equal(stats.breaker, 0xEEEEEEEE);
	assert_string_equal(kvt_status_name(99), "?");
	assert_int_equal(kvt_status_is_success(99), 0);
	assert_string_equal(kvt_status_name(KVT_STATUS_LOADED_UNVERIFIED), "loaded_unverified");
	for (uint32_t status = 0; status < KVT_STATUS_COUNT; status++) {
		bool success = status <= KVT_STATUS_MISS && status != KVT_STATUS_PENDING;
		if (status != KVT_STATUS_PENDING)
			assert_int_equal(kvt_status_is_success(status), success);
	}
}

static void bad_raw_files_are_refused(void **state)
{
	struct args_scene *s = *state;
	struct test_bed bed;
	static const char *const paths[] = {"",	      "/a",  "a/",  "a//b",	 ".",	 "..",
					    "a/../b", "./a", "a/.", ".kvtier/x", "a\nb", NULL};
	char memory[64];
	struct kvt_file_op ops[2] = {{(uint64_t)(uintptr_t)memory, 16, 0},
				     {(uint64_t)(uintptr_t)memory + 16, 16, 16}};
	struct kvt_file_ops files[2] = {{"one", ops, 2}, {"two", ops, 1}};
	struct kvt_io_completion *done[2] = {(void *)1, (void *)1};

	/* No raw files here. */
	assert_refused(KVT_ENOTSUP, "raw files", NULL, NULL,
		       kvt_worker_submit_ops(s->bed.worker, files, 1, 1, NULL, done));
	test_bed_init(&bed);
	test_bed_open(&bed, "mem:");
	for (size_t i = 0; i < TEST_COUNT(paths); i++) {
		files[1].path = paths[i];
		done[0] = done[1] = (void *)1;
		assert_refused(KVT_EINVAL, "files[1].path", NULL, NULL,
			       kvt_worker_submit_ops(bed.worker, files, 2, 0, NULL, done));
		assert_null(done[0]);
		assert_null(done[1]);
	}
	files[1].path = "one";
	assert_refused(KVT_EINVAL, "one", NULL, NULL,
		       kvt_worker_submit_ops(bed.worker, files, 2, 1, NULL, done));
	files[1].path = "two";
	ops[1].file_offset = 15;
	assert_refused(KVT_EINVAL, "files[0]", "overlap", "15",
		       kvt_worker_submit_ops(bed.worker, files, 2, 1, NULL, done));
	ops[1].file_offset = UINT64_MAX;
	assert_refused(KVT_EINVAL, "files[0].ops[1]", "18446744073709551615", NULL,
		       kvt_worker_submit_ops(bed.worker, files, 2, 1, NULL, done));
	ops[1].file_offset = 16;
	ops[1].size_bytes = 0;
	assert_refused(KVT_EINVAL, "files[0].ops[1].size_bytes", "0", "1",
		       kvt_worker_submit_ops(bed.worker, files, 2, 1, NULL, done));
	ops[1].size_bytes = 16;
	files[0].ops = NULL;
	assert_refused(KVT_EINVAL, "files[0].ops", "NULL", "2",
		       kvt_worker_submit_ops(bed.worker, files, 2, 1, NULL, done));
	files[0].ops = ops;
	assert_refused(KVT_EINVAL, "completions", "NULL", NULL,
		       kvt_worker_submit_ops(bed.worker, files, 2, 1, NULL, NULL));
	assert_refused(KVT_EINVAL, "files", "NULL", NULL,
		       kvt_worker_submit_ops(bed.worker, NULL, 2, 1, NULL, done));
	assert_returns(KVT_EINVAL, kvt_io_completion_wait(NULL, 0));
	assert_returns(KVT_EINVAL, kvt_io_completion_result(NULL, NULL));
	kvt_io_completion_release(NULL);
	test_bed_close(&bed);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, args_scene_open, args_scene_close)
	const struct CMUnitTest tests[] = {
		CASE(bad_rows_are_refused),
		CASE(bad_submit_options_are_refused),
		CASE(bad_lookups_are_refused),
		CASE(bad_geometries_are_refused),
		CASE(every_call_refuses_a_null_worker),
		CASE(the_other_calls_check_their_arguments),
		CASE(bad_raw_files_are_refused),
	};
	return cmocka_run_group_tests_name("worker_args_calls", tests, NULL, NULL);
}
