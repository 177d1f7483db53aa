/* SPDX-License-Identifier: Apache-2.0 */
/* kvt_store_verify: what it finds, what it reads again, and what it removes. */
#include "store_scene.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Four blocks of each: 14,000 bytes of payload. */
static const uint64_t refs[2] = {3000, 500};
#define WHOLE_BYTES 16384

struct seen {
	unsigned calls;
	uint32_t states[8];
	int errors;
	int last_error;
	char detail[300];
	char name[KVT_NAME_BYTES];
	uint64_t object_bytes;
	int stop_with;
};

static int see(void *context, const struct kvt_verify_entry *entry)
{
	struct seen *seen = context;

	seen->calls++;
	if (entry->error == 0)
		seen->states[entry->state]++;
	seen->errors += entry->error != 0;
	seen->last_error = entry->error;
	seen->object_bytes = entry->object_bytes;
	(void)snprintf(seen->detail, sizeof(seen->detail), "%s", entry->detail);
	(void)snprintf(seen->name, sizeof(seen->name), "%s", entry->name);
	return seen->stop_with;
}

static struct kvt_verify_summary verify(struct store_scene *s, bool remove, struct seen *seen)
{
	struct kvt_verify_options options = KVT_INIT(options);
	struct kvt_verify_summary summary = KVT_INIT(summary);

	memset(seen, 0, sizeof(*seen));
	options.remove_corrupt = remove;
	assert_ok(kvt_store_verify(s->store, &options, see, seen, &summary));
	assert_int_equal(summary.objects, seen->calls);
	assert_int_equal(summary.objects, summary.whole + summary.partial + summary.mismatch +
						  summary.foreign + summary.corrupt +
						  summary.unknown_format + summary.unreadable +
						  summary.vanished);
	return summary;
}

/* Verifies a store of one object and asserts its state. */
static void expect(struct store_scene *s, uint32_t state, const char *detail)
{
	struct seen seen;

	(void)verify(s, false, &seen);
	assert_int_equal(seen.calls, 1);
	if (seen.errors != 0 || seen.states[state] != 1 || strstr(seen.detail, detail) == NULL)
		fail_msg("expected state %u and \"%s\": error %d, detail \"%s\"", state, detail,
			 seen.last_error, seen.detail);
}

static void plant_whole(struct store_scene *s, uint64_t number)
{
	struct model_object model;

	store_scene_model(s, &model, number, 4, 2, refs, true);
	store_scene_plant(s, &model, number);
	model_fini(&model);
}

/* Slots 1 of ref 0 and 3 of ref 1 of 4. */
static void plant_partial(struct store_scene *s, uint64_t number)
{
	struct model_object model;

	store_scene_model(s, &model, number, 4, 2, refs, false);
	store_scene_slot(&model, 0, 1);
	store_scene_slot(&model, 1, 3);
	store_scene_plant(s, &model, number);
	model_fini(&model);
}

static void an_empty_store_has_nothing_to_say(void **state)
{
	struct store_scene s;
	struct seen seen;
	struct kvt_verify_summary summary;

	(void)state;
	store_scene_open(&s, NULL);
	summary = verify(&s, true, &seen);
	assert_int_equal(summary.objects, 0);
	assert_int_equal(summary.bytes, 0);
	store_scene_close(&s);
}

static void every_kind_of_object_is_counted(void **state)
{
	struct store_scene s;
	struct seen seen;
	struct model_object model;
	struct kvt_verify_summary summary;
	char *name;

	(void)state;
	store_scene_open(&s, NULL);
	for (uint64_t i = 0; i < 5; i++)
		plant_whole(&s, i);
	for (uint64_t i = 10; i < 13; i++)
		plant_partial(&s, i);
	store_scene_model(&s, &model, 20, 4, 2, refs, true);
	model.rank = 9;
	store_scene_plant(&s, &model, 20);
	model_fini(&model);
	name = store_scene_name(&s, 30);
	fake_object_put(s.fake, name, "raw bytes", 9);
	free(name);
	fake_object_put(s.fake, "ns_r1/README", "hello", 5);
	plant_whole(&s, 40);
	name = store_scene_name(&s, 40);
	fake_object_flip(s.fake, name, 5000);
	free(name);
	/* Not of this rank: not looked at. */
	fake_object_put(s.fake, "ns_r2/123/45_g0/12345678.bin", "x", 1);
	summary = verify(&s, false, &seen);
	assert_int_equal(summary.whole, 5);
	assert_int_equal(summary.partial, 3);
	assert_int_equal(summary.mismatch, 1);
	assert_int_equal(summary.foreign, 2);
	assert_int_equal(summary.corrupt, 1);
	assert_int_equal(summary.unreadable + summary.vanished + summary.removed, 0);
	assert_int_equal(summary.bytes, 7 * WHOLE_BYTES + 3 * (WHOLE_BYTES + 4096) + 14);
	store_scene_close(&s);
}

/* Whatever byte of whatever object changes, it is noticed. */
static void every_single_byte_is_checked(void **state)
{
	struct store_scene s;
	struct seen seen;
	char *name;
	size_t bytes;

	(void)state;
	store_scene_open(&s, NULL);
	name = store_scene_name(&s, 1);
	for (int partial = 0; partial < 2; partial++) {
		if (partial)
			plant_partial(&s, 1);
		else
			plant_whole(&s, 1);
		free(fake_object_get(s.fake, name, &bytes));
		for (size_t at = 0; at < bytes; at += at < 14000 ? 101 : 1) {
			if (at >= 14100 && at + 200 < bytes)
				at += 37; /* padding */
			fake_object_flip(s.fake, name, at);
			(void)verify(&s, false, &seen);
			if (seen.states[KVT_OBJECT_WHOLE] + seen.states[KVT_OBJECT_PARTIAL] != 0)
				fail_msg("byte %zu of %zu was not noticed", at, bytes);
			/* Flipping again mends it. */
			fake_object_flip(s.fake, name, at);
		}
		(void)verify(&s, false, &seen);
		assert_int_equal(seen.states[partial ? KVT_OBJECT_PARTIAL : KVT_OBJECT_WHOLE], 1);
	}
	free(name);
	store_scene_close(&s);
}

static void a_bad_slot_is_named_and_read_twice(void **state)
{
	struct store_scene s;
	unsigned gets;
	char *name;

	(void)state;
	store_scene_open(&s, NULL);
	plant_whole(&s, 1);
	name = store_scene_name(&s, 1);
	fake_object_flip(s.fake, name, 12000 + 500 + 3); /* ref 1, block 1 */
	gets = fake_calls(s.fake, KVT_IO_GET);
	expect(&s, KVT_OBJECT_CORRUPT, "slot 5: checksum 0x");
	/* Last page, payload, slot again. */
	assert_int_equal(fake_calls(s.fake, KVT_IO_GET) - gets, 3);
	free(name);
	store_scene_close(&s);
}

static void a_transfer_that_goes_wrong_once_is_no_corruption(void **state)
{
	static const struct {
		unsigned skip; /* 0: the last page; 1: the payload */
		uint64_t byte;
	} cases[] = {{0, 4096 - 64 + 50}, {1, 0}, {1, 2999}, {1, 3000}, {1, 7777}, {1, 13999}};

	(void)state;
	for (size_t c = 0; c < TEST_COUNT(cases); c++) {
		struct fake_rule rule = {.ops = FAKE_OP(KVT_IO_GET),
					 .skip = cases[c].skip,
					 .times = 1,
					 .action = FAKE_FLIP,
					 .after_bytes = cases[c].byte};
		struct store_scene s;

		store_scene_open(&s, NULL);
		plant_whole(&s, 1);
		fake_rule_add(s.fake, &rule);
		expect(&s, KVT_OBJECT_WHOLE, "");
		assert_int_equal(fake_rule_hits(s.fake, &rule), 1);
		fake_rule_remove(s.fake, &rule);
		store_scene_close(&s);
	}
}

static void an_absent_slot_that_is_not_zero_is_told_and_never_removed(void **state)
{
	struct store_scene s;
	struct seen seen;
	char *name;

	(void)state;
	store_scene_open(&s, NULL);
	plant_partial(&s, 1);
	name = store_scene_name(&s, 1);
	fake_object_flip(s.fake, name, 10);
	expect(&s, KVT_OBJECT_CORRUPT, "slot 0: absent and not zero");
	assert_int_equal(verify(&s, true, &seen).removed, 0);
	assert_true(fake_object_exists(s.fake, name));
	free(name);
	store_scene_close(&s);
}

/* Payloads of more than one piece, slots across pieces and pieces of many slots. */
static void large_payloads_are_checked_to_their_last_byte(void **state)
{
	static const struct {
		uint32_t blocks, refs;
		uint64_t ref_bytes;
	} shapes[] = {{1, 1, (9 << 20) + 5}, {3, 1, 3 << 20}, {64, 2, 50000}};

	(void)state;
	for (size_t c = 0; c < TEST_COUNT(shapes); c++) {
		uint64_t sizes[2] = {shapes[c].ref_bytes, shapes[c].ref_bytes};
		struct store_scene s;
		struct model_object model;
		char *name, *slot;
		uint64_t payload;

		store_scene_open(&s, NULL);
		store_scene_model(&s, &model, 1, shapes[c].blocks, shapes[c].refs, sizes, true);
		payload = model_payload_bytes(&model);
		store_scene_plant(&s, &model, 1);
		expect(&s, KVT_OBJECT_WHOLE, "");
		name = store_scene_name(&s, 1);
		slot = test_format("slot %u:", shapes[c].blocks * shapes[c].refs - 1);
		fake_object_flip(s.fake, name, payload - 1);
		expect(&s, KVT_OBJECT_CORRUPT, slot);
		fake_object_flip(s.fake, name, payload - 1);
		fake_object_flip(s.fake, name, 0);
		expect(&s, KVT_OBJECT_CORRUPT, "slot 0:");
		free(slot);
		free(name);
		model_fini(&model);
		store_scene_close(&s);
	}
}

static void only_what_checksums_prove_corrupt_is_removed(void **state)
{
	static const uint32_t capabilities[] = {FAKE_CAPABILITIES,
						FAKE_CAPABILITIES & ~KVT_CAP_IF_VERSION_REMOVE};

	(void)state;
	for (size_t c = 0; c < TEST_COUNT(capabilities); c++) {
		struct fake_config config = {.capabilities = capabilities[c]};
		struct store_scene s;
		struct seen seen;
		struct model_object model;
		struct kvt_verify_summary summary;
		char *slot, *trailer, *foreign;

		store_scene_open(&s, &config);
		plant_whole(&s, 1);
		plant_partial(&s, 2);
		store_scene_model(&s, &model, 3, 4, 2, refs, true);
		model.group = 8;
		memset(model.payload, 1, 10); /* its checksums are another matter */
		store_scene_plant(&s, &model, 3);
		model_fini(&model);
		foreign = store_scene_name(&s, 4);
		fake_object_put(s.fake, foreign, "raw", 3);
		plant_whole(&s, 5);
		slot = store_scene_name(&s, 5);
		fake_object_flip(s.fake, slot, 100);
		plant_whole(&s, 6);
		trailer = store_scene_name(&s, 6);
		fake_object_flip(s.fake, trailer, 14005);
		summary = verify(&s, true, &seen);
		assert_int_equal(summary.corrupt, 2);
		assert_int_equal(summary.removed, 2);
		assert_int_equal(summary.mismatch, 1);
		assert_int_equal(summary.foreign, 1);
		assert_false(fake_object_exists(s.fake, slot));
		assert_false(fake_object_exists(s.fake, trailer));
		assert_int_equal(fake_object_count(s.fake), 4);
		summary = verify(&s, true, &seen);
		assert_int_equal(summary.corrupt + summary.removed, 0);
		free(slot);
		free(trailer);
		free(foreign);
		store_scene_close(&s);
	}
}

struct changer {
	struct store_scene *scene;
	struct fake_rule *rule;
	char *name;
	uint8_t *object; /* NULL: remove it */
	size_t bytes;
	bool held;
};

static void *change_main(void *arg)
{
	struct changer *c = arg;

	c->held = fake_await_held(c->scene->fake, c->rule, 1);
	if (c->object != NULL)
		fake_object_put(c->scene->fake, c->name, c->object, c->bytes);
	else
		(void)fake_object_remove(c->scene->fake, c->name);
	fake_release(c->scene->fake, c->rule, 1);
	return NULL;
}

/* Runs a verify during which the object changes before request number `request`. */
static struct kvt_verify_summary verify_changing(struct store_scene *s, enum kvt_io_op op,
						 unsigned request, struct changer *changer,
						 bool remove)
{
	struct fake_rule rule = {
		.ops = FAKE_OP(op), .skip = request, .times = 1, .action = FAKE_HOLD};
	struct kvt_verify_summary summary;
	struct seen seen;
	pthread_t thread;

	changer->scene = s;
	changer->rule = &rule;
	changer->name = store_scene_name(s, 1);
	fake_rule_add(s->fake, &rule);
	assert_int_equal(pthread_create(&thread, NULL, change_main, changer), 0);
	summary = verify(s, remove, &seen);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_true(changer->held);
	fake_rule_remove(s->fake, &rule);
	free(changer->name);
	return summary;
}

static void what_vanishes_meanwhile_is_counted_as_vanished(void **state)
{
	(void)state;
	for (unsigned request = 0; request < 2; request++) {
		struct store_scene s;
		struct changer changer = {0};

		store_scene_open(&s, NULL);
		plant_whole(&s, 1);
		assert_int_equal(verify_changing(&s, KVT_IO_GET, request, &changer, false).vanished,
				 1);
		store_scene_close(&s);
	}
}

static void what_is_replaced_meanwhile_is_checked_anew(void **state)
{
	static const uint32_t capabilities[] = {FAKE_CAPABILITIES,
						FAKE_CAPABILITIES & ~KVT_CAP_IF_VERSION_GET};

	(void)state;
	for (size_t c = 0; c < TEST_COUNT(capabilities); c++) {
		struct fake_config config = {.capabilities = capabilities[c]};
		struct store_scene s;
		struct changer changer = {0};
		struct model_object model;
		uint64_t row = 100;

		store_scene_open(&s, &config);
		plant_whole(&s, 1);
		/* Shorter than the range that is being read. */
		store_scene_model(&s, &model, 1, 1, 1, &row, true);
		changer.object = model_write(&model, &changer.bytes);
		assert_int_equal(verify_changing(&s, KVT_IO_GET, 1, &changer, true).whole, 1);
		free(changer.object);
		model_fini(&model);
		store_scene_close(&s);
	}
}

/* Between the verdict and the removal somebody puts a good one in place. */
static void what_is_mended_meanwhile_is_not_removed(void **state)
{
	static const struct {
		uint32_t capabilities;
		enum kvt_io_op op;
	} cases[] = {{FAKE_CAPABILITIES, KVT_IO_REMOVE},
		     {FAKE_CAPABILITIES & ~KVT_CAP_IF_VERSION_REMOVE, KVT_IO_HEAD}};

	(void)state;
	for (size_t c = 0; c < TEST_COUNT(cases); c++) {
		struct fake_config config = {.capabilities = cases[c].capabilities};
		struct store_scene s;
		struct changer changer = {0};
		struct kvt_verify_summary summary;
		struct model_object model;
		char *name;

		store_scene_open(&s, &config);
		store_scene_model(&s, &model, 1, 4, 2, refs, true);
		changer.object = model_write(&model, &changer.bytes);
		plant_whole(&s, 1);
		name = store_scene_name(&s, 1);
		fake_object_flip(s.fake, name, 1);
		summary = verify_changing(&s, cases[c].op, 0, &changer, true);
		assert_int_equal(summary.corrupt, 1);
		assert_int_equal(summary.removed, 0);
		assert_true(fake_object_exists(s.fake, name));
		expect(&s, KVT_OBJECT_WHOLE, "");
		free(changer.object);
		free(name);
		model_fini(&model);
		store_scene_close(&s);
	}
}

static void what_cannot_be_read_is_told_and_the_rest_goes_on(void **state)
{
	struct fake_rule rule = {
		.ops = FAKE_OP(KVT_IO_GET), .action = FAKE_FAIL, .error = KVT_EACCES};
	struct store_scene s;
	struct seen seen;
	struct kvt_verify_summary summary;
	char *name;

	(void)state;
	store_scene_open(&s, NULL);
	for (uint64_t i = 0; i < 4; i++)
		plant_whole(&s, i);
	name = store_scene_name(&s, 2);
	rule.name = name;
	fake_rule_add(s.fake, &rule);
	summary = verify(&s, true, &seen);
	assert_int_equal(summary.unreadable, 1);
	assert_int_equal(summary.whole, 3);
	assert_int_equal(summary.removed, 0);
	assert_int_equal(seen.errors, 1);
	fake_rule_remove(s.fake, &rule);
	/* A listing that fails is the call's failure. */
	struct kvt_verify_summary failed = KVT_INIT(failed);

	rule = (struct fake_rule){
		.ops = FAKE_OP(KVT_IO_LIST), .action = FAKE_FAIL, .error = KVT_EACCES};
	fake_rule_add(s.fake, &rule);
	assert_returns(KVT_EACCES, kvt_store_verify(s.store, NULL, NULL, NULL, &failed));
	assert_int_equal(failed.objects, 0);
	fake_rule_remove(s.fake, &rule);
	free(name);
	store_scene_close(&s);
}

static void a_callback_stops_with_its_own_value(void **state)
{
	struct kvt_verify_summary summary = KVT_INIT(summary);
	struct seen seen = {.stop_with = 42};
	struct store_scene s;

	(void)state;
	store_scene_open(&s, NULL);
	for (uint64_t i = 0; i < 4; i++)
		plant_whole(&s, i);
	assert_returns(42, kvt_store_verify(s.store, NULL, see, &seen, &summary));
	assert_int_equal(summary.objects, 1);
	assert_int_equal(seen.object_bytes, WHOLE_BYTES);
	store_scene_close(&s);
}

static void bad_arguments_are_refused_by_name(void **state)
{
	struct kvt_verify_summary summary = KVT_INIT(summary);
	struct kvt_verify_options options = KVT_INIT(options);
	struct store_scene s;

	(void)state;
	store_scene_open(&s, NULL);
	assert_fails(KVT_EINVAL, "store: NULL", kvt_store_verify(NULL, NULL, NULL, NULL, &summary));
	assert_fails(KVT_EINVAL, "summary: NULL",
		     kvt_store_verify(s.store, NULL, NULL, NULL, NULL));
	options.struct_size = 1;
	assert_fails(KVT_EINVAL, "kvt_verify_options",
		     kvt_store_verify(s.store, &options, NULL, NULL, &summary));
	summary.struct_size = 8;
	assert_fails(KVT_EINVAL, "summary: struct_size: 8",
		     kvt_store_verify(s.store, NULL, NULL, NULL, &summary));
	store_scene_close(&s);
}

static void every_allocation_may_fail(void **state)
{
	struct kvt_store_options options = KVT_INIT(options);
	struct test_allocator allocator;
	struct store_scene s;
	struct kvt_store *store;
	int error = KVT_ENOMEM;
	unsigned failures = 0;

	(void)state;
	store_scene_open(&s, NULL);
	plant_whole(&s, 1);
	plant_partial(&s, 2);
	test_allocator_init(&allocator);
	test_allocator_hooks(&allocator, &options.hooks.allocator);
	options.uri = fake_store_uri(s.fake);
	options.namespace_name = "ns";
	options.mode = KVT_MODE_EXACT;
	options.rank = 1;
	assert_ok(kvt_store_open(&options, &store));
	for (uint64_t fail_at = 1; error != 0; fail_at++) {
		struct kvt_verify_summary summary = KVT_INIT(summary);
		long long before = atomic_load(&allocator.live_blocks);

		atomic_store(&allocator.calls, 0);
		atomic_store(&allocator.fail_at, fail_at);
		error = kvt_store_verify(store, NULL, NULL, NULL, &summary);
		assert_true(error == 0 || error == KVT_ENOMEM);
		failures += error != 0;
		atomic_store(&allocator.fail_at, 0);
		assert_int_equal(atomic_load(&allocator.live_blocks), before);
	}
	assert_true(failures >= 8);
	assert_ok(kvt_store_close(store));
	assert_int_equal(atomic_load(&allocator.live_blocks), 0);
	store_scene_close(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_empty_store_has_nothing_to_say),
		cmocka_unit_test(every_kind_of_object_is_counted),
		cmocka_unit_test(every_single_byte_is_checked),
		cmocka_unit_test(a_bad_slot_is_named_and_read_twice),
		cmocka_unit_test(a_transfer_that_goes_wrong_once_is_no_corruption),
		cmocka_unit_test(an_absent_slot_that_is_not_zero_is_told_and_never_removed),
		cmocka_unit_test(large_payloads_are_checked_to_their_last_byte),
		cmocka_unit_test(only_what_checksums_prove_corrupt_is_removed),
		cmocka_unit_test(what_vanishes_meanwhile_is_counted_as_vanished),
		cmocka_unit_test(what_is_replaced_meanwhile_is_checked_anew),
		cmocka_unit_test(what_is_mended_meanwhile_is_not_removed),
		cmocka_unit_test(what_cannot_be_read_is_told_and_the_rest_goes_on),
		cmocka_unit_test(a_callback_stops_with_its_own_value),
		cmocka_unit_test(bad_arguments_are_refused_by_name),
		cmocka_unit_test(every_allocation_may_fail),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
