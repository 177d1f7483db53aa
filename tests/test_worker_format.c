/* SPDX-License-Identifier: Apache-2.0 */
/* What stores write, when they skip, merge and replace: compared byte for byte with a second writer
 * of the format. */
#include "chunk_scene.h"

#include <stdlib.h>
#include <string.h>

static const struct chunk_shape small = {4, 2, {100, 300}};
static const struct chunk_shape large = {4, 2, {30000, 50001}}; /* five parts of 64 KiB */

/* First 8 bytes of SHA-256 of "ns". */
static const uint8_t ns_digest[8] = {0x7b, 0xfb, 0xa6, 0xe0, 0x02, 0x1f, 0x1f, 0xd1};

static void objects_are_what_the_format_says(void **state)
{
	static const struct {
		struct chunk_shape shape;
		uint32_t first, count, rank;
	} cases[] = {
		{{1, 1, {1}}, 0, 1, 0},
		{{1, 1, {256}}, 0, 1, 3},
		{{4, 2, {10, 6}}, 0, 4, 7},
		{{4, 2, {10, 6}}, 1, 2, 7},
		{{9, 3, {100, 1, 7}}, 8, 1, INT32_MAX},
		{{1, 0, {0}}, 0, 1, 0},
		{{6, 0, {0}}, 2, 3, 0},
		{{64, 6, {64, 64, 64, 64, 64, 64}}, 0, 64, 1},
		{{16, 1, {4096}}, 0, 16, 0}, /* exactly one part */
		{{16, 1, {4096}}, 3, 9, 0},
		{{1, 1, {65537}}, 0, 1, 0},
		{{4, 2, {30000, 50001}}, 0, 4, 0},
		{{4, 2, {30000, 50001}}, 2, 1, 0},
		{{4, 2, {30000, 50001}}, 0, 3, 0},
		/* The trailer fills its last page to the byte, and by one byte too many. */
		{{1, 1, {3971}}, 0, 1, 0},
		{{1, 1, {3972}}, 0, 1, 0},
		{{1, 1, {3983}}, 0, 1, 0},
		{{1, 1, {3984}}, 0, 1, 0},
	};

	(void)state;
	for (size_t i = 0; i < TEST_COUNT(cases); i++) {
		struct chunk_scene s;
		struct test_transfer t;
		chunk_scene_init(&s, NULL, &cases[i].shape);
		s.bed.store_options.rank = cases[i].rank;
		chunk_scene_open(&s);
		assert_memory_equal(s.model.digest, ns_digest, 8);
		assert_int_equal(s.model.rank, cases[i].rank);
		chunk_store(&s, cases[i].first, cases[i].count, 5, KVT_STATUS_STORED);
		if (cases[i].shape.refs)
			chunk_model_set(&s, cases[i].first, cases[i].count, 5);
		chunk_compare(&s);
		chunk_transfer(&s, &t, cases[i].first, cases[i].count, 5);
		test_load(&s.bed, &t, KVT_STATUS_LOADED);
		test_transfer_fini(&t);
		chunk_scene_close(&s);
	}
}

static void files_hold_the_same_bytes(void **state)
{
	static const struct chunk_shape *const shapes[] = {&small, &large};
	char *root = test_temp_dir();
	char *uri = test_format("file://%s", root);

	(void)state;
	for (size_t i = 0; i < TEST_COUNT(shapes); i++)
		for (uint32_t count = 2; count <= 4; count += 2) {
			struct chunk_scene s;
			struct test_bed bed;
			struct test_transfer t;
			char name[KVT_NAME_BYTES];
			size_t bytes, want_bytes;
			/* The scene's own store only makes the model. */
			chunk_scene_init(&s, NULL, shapes[i]);
			chunk_scene_open(&s);
			s.key_seed = 10 * i + count;
			chunk_scene_next(&s);
			test_bed_init(&bed);
			test_bed_open(&bed, uri);
			chunk_transfer(&s, &t, 0, count, 6);
			test_store(&bed, &t, KVT_STATUS_STORED);
			chunk_model_set(&s, 0, count, 6);
			assert_true(kvt_store_object_name(bed.store, t.keys, name, sizeof(name)) >
				    0);
			char *path = test_format("%s/%s", root, name);
			uint8_t *object = test_read_file(path, &bytes);
			uint8_t *want = model_write(&s.model, &want_bytes);
			assert_non_null(object);
			assert_int_equal(bytes, want_bytes);
			assert_memory_equal(object, want, bytes);
			/* And a file that somebody else wrote is read. */
			chunk_model_set(&s, 0, 4, 7);
			free(want);
			want = model_write(&s.model, &want_bytes);
			test_write_file(path, want, want_bytes);
			t.salt = 7;
			test_load(&bed, &t, KVT_STATUS_LOADED);
			free(path);
			free(object);
			free(want);
			test_transfer_fini(&t);
			test_bed_close(&bed);
			chunk_scene_close(&s);
		}
	free(uri);
	test_remove_tree(root);
}

static void a_whole_object_is_skipped_without_reading_it(void **state)
{
	struct chunk_scene s;

	(void)state;
	chunk_scene_init(&s, NULL, &small);
	chunk_scene_open(&s);
	/* Of the right length, and otherwise anything: the next load finds out. */
	size_t bytes = model_whole_bytes(&s.model), got;
	uint8_t *junk = malloc(bytes);
	assert_non_null(junk);
	test_fill(junk, bytes, 1);
	fake_object_put(s.fake, s.name, junk, bytes);
	unsigned gets = fake_calls(s.fake, KVT_IO_GET);
	chunk_store(&s, 0, 4, 1, KVT_STATUS_SKIPPED);
	chunk_store(&s, 1, 2, 1, KVT_STATUS_SKIPPED);
	assert_int_equal(fake_calls(s.fake, KVT_IO_GET), gets);
	uint8_t *after = fake_object_get(s.fake, s.name, &got);
	assert_int_equal(got, bytes);
	assert_memory_equal(after, junk, bytes);
	free(after);
	free(junk);
	chunk_scene_close(&s);
}

/* ---- Merging ---- */

static const struct fake_config merge_configs[] = {
	{.capabilities = FAKE_CAPABILITIES},
	{.capabilities = FAKE_CAPABILITIES | KVT_CAP_FULL_BODY},
	{.capabilities = FAKE_CAPABILITIES, .blocking = true},
	{.capabilities = KVT_CAP_IF_ABSENT},
	{.capabilities = FAKE_CAPABILITIES | KVT_CAP_GET_DISCARD, .max_iov = 2, .rewind = true},
	{.capabilities = FAKE_CAPABILITIES, .memory_alignment = 4096, .youngest_first = true},
	{.capabilities = 0, .keeps_info_quiet = true},
	{.capabilities = FAKE_CAPABILITIES, .head_is_dear = true, .keeps_info_quiet = true},
};

static void random_partial_stores_add_up(struct chunk_scene *s, struct test_random *random)
{
	for (uint32_t step = 0; step < 5; step++) {
		uint32_t first = (uint32_t)test_random_below(random, 4);
		uint32_t count = 1 + (uint32_t)test_random_below(random, 4 - first);
		uint64_t salt = 100 + step;
		bool covered = chunk_model_has(s, first, count);
		chunk_store(s, first, count, salt,
			    covered ? KVT_STATUS_SKIPPED : KVT_STATUS_STORED);
		if (!covered)
			chunk_model_set(s, first, count, salt);
		chunk_compare(s);
	}
}

static void partial_stores_merge_in_every_order(void **state)
{
	struct test_random random = {test_seed(11)};

	(void)state;
	for (size_t c = 0; c < TEST_COUNT(merge_configs); c++)
		for (int size = 0; size < 2; size++) {
			struct chunk_scene s;
			chunk_scene_init(&s, &merge_configs[c], size ? &large : &small);
			chunk_scene_open(&s);
			for (int round = 0; round < 15; round++) {
				random_partial_stores_add_up(&s, &random);
				chunk_scene_next(&s);
			}
			assert_true(test_stats(s.bed.worker).merges > 0);
			chunk_scene_close(&s);
		}
}

static void every_pair_of_runs_merges(void **state)
{
	struct chunk_scene s;

	(void)state;
	chunk_scene_init(&s, NULL, &small);
	chunk_scene_open(&s);
	for (uint32_t a = 0; a < 4; a++)
		for (uint32_t m = 1; a + m <= 4; m++)
			for (uint32_t b = 0; b < 4; b++)
				for (uint32_t n = 1; b + n <= 4; n++) {
					chunk_store(&s, a, m, 1, KVT_STATUS_STORED);
					chunk_model_set(&s, a, m, 1);
					chunk_compare(&s);
					bool covered = chunk_model_has(&s, b, n);
					chunk_store(&s, b, n, 2,
						    covered ? KVT_STATUS_SKIPPED
							    : KVT_STATUS_STORED);
					if (!covered)
						chunk_model_set(&s, b, n, 2);
					chunk_compare(&s);
					chunk_scene_next(&s);
				}
	chunk_scene_close(&s);
}

static void a_merge_leaves_damaged_old_slots_out(void **state)
{
	static const struct chunk_shape *const shapes[] = {&small, &large};

	(void)state;
	for (size_t i = 0; i < TEST_COUNT(shapes); i++) {
		struct chunk_scene s;
		chunk_scene_init(&s, NULL, shapes[i]);
		chunk_scene_open(&s);
		chunk_model_set(&s, 0, 2, 1);
		chunk_plant(&s);
		fake_object_flip(s.fake, s.name, model_slot_offset(&s.model, 1, 0) + 50);
		chunk_store(&s, 2, 1, 2, KVT_STATUS_STORED);
		/* Slot 0 of ref 1 is gone, slot 0 of ref 0 stayed. */
		chunk_model_set(&s, 2, 1, 2);
		s.model.present[4] = false;
		memset(s.model.payload + model_slot_offset(&s.model, 1, 0), 0,
		       s.model.ref_bytes[1]);
		chunk_compare(&s);
		chunk_load(&s, 0, 1, 1, KVT_STATUS_MISSING, KVT_ENOENT);
		chunk_load(&s, 1, 1, 1, KVT_STATUS_LOADED, 0);
		chunk_load(&s, 2, 1, 2, KVT_STATUS_LOADED, 0);
		/* The next store of it brings it back. */
		chunk_store(&s, 0, 1, 3, KVT_STATUS_STORED);
		chunk_load(&s, 0, 1, 3, KVT_STATUS_LOADED, 0);
		chunk_scene_close(&s);
	}
}

static void a_merge_that_lost_a_race_starts_again(void **state)
{
	struct chunk_scene s;
	struct fake_rule hold = {.ops = FAKE_OP(KVT_IO_PUT), .name = ".bin", .action = FAKE_HOLD};
	struct test_transfer t;

	(void)state;
	chunk_scene_init(&s, NULL, &small);
	chunk_scene_open(&s);
	chunk_model_set(&s, 0, 1, 1);
	chunk_plant(&s);
	fake_rule_add(s.fake, &hold);
	chunk_transfer(&s, &t, 1, 1, 2);
	assert_ok(kvt_worker_submit_store(s.bed.worker, 1, &t.transfer, NULL));
	assert_true(fake_await_held(s.fake, &hold, 1));
	/* Somebody else adds slot 2. */
	chunk_model_set(&s, 2, 1, 3);
	chunk_plant(&s);
	fake_rule_remove(s.fake, &hold);
	assert_result(KVT_STATUS_STORED, test_take(s.bed.worker, 1));
	chunk_model_set(&s, 1, 1, 2);
	chunk_compare(&s);
	test_transfer_fini(&t);
	chunk_scene_close(&s);
}

static void a_merge_whose_old_object_changes_while_it_is_read_starts_again(void **state)
{
	static const struct chunk_shape *const shapes[] = {&small, &large};

	(void)state;
	for (size_t i = 0; i < TEST_COUNT(shapes); i++) {
		struct chunk_scene s;
		/* The trailer has been read, the slots have not. */
		struct fake_rule hold = {.ops = FAKE_OP(KVT_IO_GET),
					 .name = ".bin",
					 .skip = 1,
					 .times = 1,
					 .action = FAKE_HOLD};
		struct test_transfer t;
		chunk_scene_init(&s, NULL, shapes[i]);
		chunk_scene_open(&s);
		chunk_model_set(&s, 0, 1, 1);
		chunk_plant(&s);
		fake_rule_add(s.fake, &hold);
		chunk_transfer(&s, &t, 1, 1, 2);
		assert_ok(kvt_worker_submit_store(s.bed.worker, 1, &t.transfer, NULL));
		assert_true(fake_await_held(s.fake, &hold, 1));
		chunk_model_set(&s, 2, 1, 3);
		chunk_plant(&s);
		fake_rule_remove(s.fake, &hold);
		assert_result(KVT_STATUS_STORED, test_take(s.bed.worker, 1));
		chunk_model_set(&s, 1, 1, 2);
		chunk_compare(&s);
		test_transfer_fini(&t);
		chunk_scene_close(&s);
	}
}

static void a_merge_that_always_loses_gives_up_after_three_repeats(void **state)
{
	struct chunk_scene s;
	struct fake_rule fail = {.ops = FAKE_OP(KVT_IO_PUT),
				 .name = ".bin",
				 .action = FAKE_FAIL,
				 .error = KVT_EPRECOND};
	struct test_transfer t;

	(void)state;
	chunk_scene_init(&s, NULL, &small);
	chunk_scene_open(&s);
	chunk_model_set(&s, 0, 1, 1);
	chunk_plant(&s);
	fake_rule_add(s.fake, &fail);
	chunk_transfer(&s, &t, 1, 1, 2);
	assert_ok(kvt_worker_submit_store(s.bed.worker, 1, &t.transfer, NULL));
	assert_result_error(KVT_STATUS_FAILED, KVT_EPRECOND, test_take(s.bed.worker, 1));
	assert_int_equal(fake_rule_hits(s.fake, &fail), 4);
	fake_rule_remove(s.fake, &fail);
	chunk_compare(&s);
	test_transfer_fini(&t);
	chunk_scene_close(&s);
}

static void an_object_that_appears_first_is_skipped_or_merged(void **state)
{
	struct chunk_scene s;
	struct fake_rule hold = {.ops = FAKE_OP(KVT_IO_PUT), .name = ".bin", .action = FAKE_HOLD};

	(void)state;
	for (int c = 0; c < 2; c++) {
		struct fake_config config = merge_configs[c ? 7 : 0];
		chunk_scene_init(&s, &config, &small);
		chunk_scene_open(&s);
		for (uint32_t theirs = 2; theirs <= 4; theirs += 2) {
			struct test_transfer t;
			fake_rule_add(s.fake, &hold);
			chunk_transfer(&s, &t, 2, 2, 2);
			assert_ok(kvt_worker_submit_store(s.bed.worker, 1, &t.transfer, NULL));
			assert_true(fake_await_held(s.fake, &hold, 1));
			chunk_model_set(&s, 0, theirs, 1);
			chunk_plant(&s);
			fake_rule_remove(s.fake, &hold);
			assert_result(theirs == 4 ? KVT_STATUS_SKIPPED : KVT_STATUS_STORED,
				      test_take(s.bed.worker, 1));
			if (theirs == 2)
				chunk_model_set(&s, 2, 2, 2);
			chunk_compare(&s);
			test_transfer_fini(&t);
			chunk_scene_next(&s);
		}
		chunk_scene_close(&s);
	}
}

static void an_object_that_vanishes_meanwhile_is_stored_afresh(void **state)
{
	struct chunk_scene s;
	struct fake_rule hold = {
		.ops = FAKE_OP(KVT_IO_GET), .name = ".bin", .action = FAKE_HOLD, .times = 1};
	struct test_transfer t;

	(void)state;
	chunk_scene_init(&s, NULL, &small);
	chunk_scene_open(&s);
	chunk_model_set(&s, 0, 1, 1);
	chunk_plant(&s);
	fake_rule_add(s.fake, &hold);
	chunk_transfer(&s, &t, 1, 2, 2);
	assert_ok(kvt_worker_submit_store(s.bed.worker, 1, &t.transfer, NULL));
	assert_true(fake_await_held(s.fake, &hold, 1));
	fake_object_remove(s.fake, s.name);
	fake_rule_remove(s.fake, &hold);
	assert_result(KVT_STATUS_STORED, test_take(s.bed.worker, 1));
	memset(s.model.present, 0, sizeof(s.model.present));
	memset(s.model.payload, 0, model_payload_bytes(&s.model));
	chunk_model_set(&s, 1, 2, 2);
	chunk_compare(&s);
	test_transfer_fini(&t);
	chunk_scene_close(&s);
}

/* ---- Replacing ---- */

/* What lies there, of a length other than L, so that a store looks at it. */
static void plant_other(struct chunk_scene *s, int what)
{
	size_t bytes;
	uint8_t *object;

	chunk_model_set(s, 0, 2, 9);
	object = model_write(&s->model, &bytes);
	uint8_t *tail = object + bytes - 64;
	switch (what) {
	case 0: /* foreign, short */
		bytes = 777;
		break;
	case 1: /* foreign, as long as the payload */
		bytes = model_payload_bytes(&s->model);
		break;
	case 2: /* empty */
		bytes = 0;
		break;
	case 3: /* no magic */
		tail[0] = 'X';
		break;
	case 4: /* a trailer that fails its checksum */
		tail[-65] ^= 1;
		break;
	case 5: /* another namespace */
		tail[48] ^= 1;
		model_reseal(object, bytes);
		break;
	case 6: /* another rank */
		tail[28] ^= 1;
		model_reseal(object, bytes);
		break;
	default: /* another shape, valid in itself */
		free(object);
		struct model_object other;
		uint64_t sizes[2] = {100, 301};
		model_init(&other, 4, 2, sizes);
		memcpy(other.hash, s->model.hash, 64);
		other.hash_bytes = s->model.hash_bytes;
		memcpy(other.digest, s->model.digest, 8);
		other.present[0] = true;
		object = model_write(&other, &bytes);
		model_fini(&other);
		break;
	}
	fake_object_put(s->fake, s->name, object, bytes);
	free(object);
	memset(s->model.present, 0, sizeof(s->model.present));
	memset(s->model.payload, 0, model_payload_bytes(&s->model));
}

static void stores_replace_what_is_not_ours(void **state)
{
	struct chunk_scene s;

	(void)state;
	chunk_scene_init(&s, NULL, &small);
	chunk_scene_open(&s);
	for (int what = 0; what <= 7; what++)
		for (uint32_t count = 2; count <= 4; count += 2) {
			plant_other(&s, what);
			chunk_store(&s, 0, count, 3, KVT_STATUS_STORED);
			chunk_model_set(&s, 0, count, 3);
			chunk_compare(&s);
			chunk_scene_next(&s);
		}
	assert_int_equal(test_stats(s.bed.worker).merges, 0);
	chunk_scene_close(&s);
}

static void unknown_versions_are_left_alone(void **state)
{
	struct chunk_scene s;
	size_t bytes, after_bytes;

	(void)state;
	chunk_scene_init(&s, NULL, &small);
	chunk_scene_open(&s);
	chunk_model_set(&s, 0, 2, 1);
	uint8_t *object = model_write(&s.model, &bytes);
	object[bytes - 64 + 8] = 2;
	model_reseal(object, bytes);
	fake_object_put(s.fake, s.name, object, bytes);
	for (int round = 0; round < 2; round++) {
		struct test_transfer t;
		chunk_transfer(&s, &t, 0, 4, 1);
		assert_ok(kvt_worker_submit_store(s.bed.worker, 1, &t.transfer, NULL));
		struct kvt_result *result = test_take(s.bed.worker, 1);
		/* No failure, but the key's code says why. */
		assert_int_equal(result->key_error[0], KVT_EFORMAT);
		assert_int_equal(result->error, 0);
		assert_result(KVT_STATUS_SKIPPED, result);
		test_transfer_fini(&t);
		uint8_t *after = fake_object_get(s.fake, s.name, &after_bytes);
		assert_int_equal(after_bytes, bytes);
		assert_memory_equal(after, object, bytes);
		free(after);
		/* Having seen it in a load does not change that. */
		chunk_load(&s, 0, 1, 1, KVT_STATUS_FAILED, KVT_EFORMAT);
	}
	free(object);
	chunk_scene_close(&s);
}

/* ---- Options ---- */

static void partial_stores_below_min_coverage_are_skipped(void **state)
{
	struct chunk_scene s;

	(void)state;
	chunk_scene_init(&s, NULL, &small);
	test_bed_option(&s.bed, "min_coverage", "0.5");
	chunk_scene_open(&s);
	chunk_store(&s, 0, 1, 1, KVT_STATUS_SKIPPED);
	assert_false(fake_object_exists(s.fake, s.name));
	chunk_store(&s, 1, 2, 1, KVT_STATUS_STORED);
	chunk_model_set(&s, 1, 2, 1);
	chunk_compare(&s);
	chunk_scene_next(&s);
	chunk_store(&s, 0, 4, 1, KVT_STATUS_STORED);
	chunk_scene_close(&s);
}

static void zeros_that_are_sent_are_counted(void **state)
{
	static const struct fake_config configs[] = {{.capabilities = FAKE_CAPABILITIES},
						     {.capabilities = KVT_CAP_IF_ABSENT}};

	(void)state;
	for (int c = 0; c < 2; c++) {
		struct chunk_scene s;
		chunk_scene_init(&s, &configs[c], &large);
		chunk_scene_open(&s);
		chunk_store(&s, 0, 3, 1, KVT_STATUS_STORED);
		/* One absent slot of each ref. */
		assert_int_equal(test_stats(s.bed.worker).zero_bytes_sent, c ? 80001 : 0);
		chunk_scene_close(&s);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(objects_are_what_the_format_says),
		cmocka_unit_test(files_hold_the_same_bytes),
		cmocka_unit_test(a_whole_object_is_skipped_without_reading_it),
		cmocka_unit_test(partial_stores_merge_in_every_order),
		cmocka_unit_test(every_pair_of_runs_merges),
		cmocka_unit_test(a_merge_leaves_damaged_old_slots_out),
		cmocka_unit_test(a_merge_that_lost_a_race_starts_again),
		cmocka_unit_test(a_merge_whose_old_object_changes_while_it_is_read_starts_again),
		cmocka_unit_test(a_merge_that_always_loses_gives_up_after_three_repeats),
		cmocka_unit_test(an_object_that_appears_first_is_skipped_or_merged),
		cmocka_unit_test(an_object_that_vanishes_meanwhile_is_stored_afresh),
		cmocka_unit_test(stores_replace_what_is_not_ours),
		cmocka_unit_test(unknown_versions_are_left_alone),
		cmocka_unit_test(partial_stores_below_min_coverage_are_skipped),
		cmocka_unit_test(zeros_that_are_sent_are_counted),
	};
	return cmocka_run_group_tests_name("worker_format", tests, NULL, NULL);
}
