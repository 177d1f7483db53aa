/* SPDX-License-Identifier: Apache-2.0 */
/* Stat, list, remove and probe. Long, and one file: the blocking calls, whose cases share their
 * objects. */
#include "store_scene.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store.h"

static const uint64_t refs[3] = {100, 4096, 777};

static struct kvt_object_stat stat_of(struct store_scene *s, uint64_t number)
{
	struct kvt_object_stat stat = KVT_INIT(stat);
	struct kvt_key key = store_scene_key(number);

	assert_ok(kvt_store_stat(s->store, &key, &stat));
	return stat;
}

static void expect_state(struct store_scene *s, uint64_t number, uint32_t state)
{
	struct kvt_object_stat stat = stat_of(s, number);

	assert_int_equal(stat.state, state);
	kvt_object_stat_clear(&stat);
}

/* ---- Stat ---- */

static void a_whole_object_tells_everything_about_itself(void **state)
{
	struct store_scene s;
	struct model_object model;
	struct kvt_object_stat stat;
	size_t bytes;
	char *name;

	(void)state;
	store_scene_open(&s, NULL);
	store_scene_model(&s, &model, 1, 5, 3, refs, true);
	bytes = store_scene_plant(&s, &model, 1);
	name = store_scene_name(&s, 1);
	fake_object_set_age(s.fake, name, 5000, 3000);
	stat = stat_of(&s, 1);
	assert_int_equal(stat.state, KVT_OBJECT_WHOLE);
	assert_int_equal(stat.format_version, 1);
	assert_int_equal(stat.object_bytes, bytes);
	assert_int_equal(stat.payload_bytes, model_payload_bytes(&model));
	assert_int_equal(stat.trailer_bytes, bytes - model_payload_bytes(&model));
	assert_int_equal(stat.blocks_per_chunk, 5);
	assert_int_equal(stat.ref_count, 3);
	assert_int_equal(stat.slot_count, 15);
	assert_int_equal(stat.present_slots, 15);
	assert_int_equal(stat.rank, 1);
	assert_int_equal(stat.group, 3);
	assert_int_equal(stat.hash_bytes, 32);
	assert_memory_equal(stat.hash, model.hash, 32);
	assert_memory_equal(stat.namespace_digest, model.digest, 8);
	assert_int_equal(stat.age_ns, 5000);
	assert_int_equal(stat.access_age_ns, 3000);
	assert_memory_equal(stat.ref_bytes, refs, sizeof(refs));
	assert_memory_equal(stat.presence, "\xff\x7f", 2);
	kvt_object_stat_clear(&stat);
	assert_int_equal(stat.struct_size, sizeof(stat));
	assert_null(stat.ref_bytes);
	assert_null(stat.presence);
	assert_int_equal(stat.object_bytes, 0);
	kvt_object_stat_clear(&stat);
	kvt_object_stat_clear(NULL);
	free(name);
	model_fini(&model);
	store_scene_close(&s);
}

static void a_partial_object_tells_which_slots_it_has(void **state)
{
	struct store_scene s;
	struct model_object model;
	struct kvt_object_stat stat;

	(void)state;
	store_scene_open(&s, NULL);
	store_scene_model(&s, &model, 1, 5, 3, refs, false);
	store_scene_slot(&model, 0, 0);
	store_scene_slot(&model, 1, 4);
	store_scene_slot(&model, 2, 4);
	store_scene_plant(&s, &model, 1);
	stat = stat_of(&s, 1);
	assert_int_equal(stat.state, KVT_OBJECT_PARTIAL);
	assert_int_equal(stat.present_slots, 3);
	assert_memory_equal(stat.presence, "\x01\x42", 2);
	kvt_object_stat_clear(&stat);
	model_fini(&model);
	store_scene_close(&s);
}

static void long_trailers_are_read_whole(void **state)
{
	static const uint64_t small[8] = {1, 2, 3, 4, 5, 6, 7, 8};
	struct store_scene s;
	struct model_object model;
	struct kvt_object_stat stat;

	(void)state;
	store_scene_open(&s, NULL);
	store_scene_model(&s, &model, 1, 64, 8, small, true); /* 512 slots: 2 KiB of checksums */
	store_scene_plant(&s, &model, 1);
	stat = stat_of(&s, 1);
	assert_int_equal(stat.state, KVT_OBJECT_WHOLE);
	assert_int_equal(stat.present_slots, 512);
	kvt_object_stat_clear(&stat);
	model_fini(&model);
	store_scene_close(&s);
}

static void an_object_without_refs_is_whole(void **state)
{
	struct store_scene s;
	struct model_object model;
	struct kvt_object_stat stat;

	(void)state;
	store_scene_open(&s, NULL);
	store_scene_model(&s, &model, 1, 4, 0, refs, true);
	assert_int_equal(store_scene_plant(&s, &model, 1), 4096);
	stat = stat_of(&s, 1);
	assert_int_equal(stat.state, KVT_OBJECT_WHOLE);
	assert_int_equal(stat.slot_count, 0);
	assert_non_null(stat.ref_bytes);
	kvt_object_stat_clear(&stat);
	model_fini(&model);
	store_scene_close(&s);
}

static void what_belongs_to_somebody_else_is_a_mismatch(void **state)
{
	struct store_scene s;

	(void)state;
	store_scene_open(&s, NULL);
	for (int what = 0; what < 5; what++) {
		struct model_object model;
		struct kvt_object_stat stat;

		store_scene_model(&s, &model, 1, 2, 1, refs, true);
		switch (what) {
		case 0:
			model.rank = 2;
			break;
		case 1:
			model.group = 4;
			break;
		case 2:
			model.digest[7] ^= 1;
			break;
		case 3:
			model.hash[0] ^= 1;
			break;
		default:
			model.hash_bytes = 31;
		}
		store_scene_plant(&s, &model, 1);
		stat = stat_of(&s, 1);
		assert_int_equal(stat.state, KVT_OBJECT_MISMATCH);
		/* What it says about itself is told. */
		assert_int_equal(stat.rank, model.rank);
		assert_int_equal(stat.group, model.group);
		assert_int_equal(stat.hash_bytes, model.hash_bytes);
		assert_memory_equal(stat.hash, model.hash, model.hash_bytes);
		kvt_object_stat_clear(&stat);
		model_fini(&model);
	}
	store_scene_close(&s);
}

static void what_has_no_trailer_of_ours_is_foreign(void **state)
{
	static const size_t lengths[] = {0, 1, 63, 64, 4095, 4096, 4097, 100000};
	struct store_scene s;
	uint8_t *data = calloc(1, 100000);

	(void)state;
	store_scene_open(&s, NULL);
	test_fill(data, 100000, 1);
	for (size_t i = 0; i < TEST_COUNT(lengths); i++) {
		char *name = store_scene_name(&s, i);
		struct kvt_object_stat stat;

		fake_object_put(s.fake, name, data, lengths[i]);
		stat = stat_of(&s, i);
		assert_int_equal(stat.state, KVT_OBJECT_FOREIGN);
		assert_int_equal(stat.object_bytes, lengths[i]);
		assert_int_equal(stat.hash_bytes, 32);
		assert_null(stat.ref_bytes);
		kvt_object_stat_clear(&stat);
		free(name);
	}
	free(data);
	store_scene_close(&s);
}

static void a_broken_trailer_is_corrupt_after_a_second_reading(void **state)
{
	struct store_scene s;
	char *name;
	size_t bytes;
	unsigned gets;

	(void)state;
	store_scene_open(&s, NULL);
	bytes = store_scene_plant_row(&s, 1, 5000);
	name = store_scene_name(&s, 1);
	fake_object_flip(s.fake, name, bytes - 64 + 20); /* nrefs in the tail */
	gets = fake_calls(s.fake, KVT_IO_GET);
	expect_state(&s, 1, KVT_OBJECT_CORRUPT);
	assert_int_equal(fake_calls(s.fake, KVT_IO_GET) - gets, 2);
	/* A payload is not looked at. */
	store_scene_plant_row(&s, 1, 5000);
	fake_object_flip(s.fake, name, 17);
	expect_state(&s, 1, KVT_OBJECT_WHOLE);
	/* A transfer that goes wrong once is no corruption. */
	struct fake_rule rule = {.ops = FAKE_OP(KVT_IO_GET),
				 .times = 1,
				 .action = FAKE_FLIP,
				 .after_bytes = 4096 - 64 + 20};

	fake_rule_add(s.fake, &rule);
	expect_state(&s, 1, KVT_OBJECT_WHOLE);
	assert_int_equal(fake_rule_hits(s.fake, &rule), 1);
	fake_rule_remove(s.fake, &rule);
	free(name);
	store_scene_close(&s);
}

static void a_newer_format_is_told_as_such(void **state)
{
	struct store_scene s;
	struct kvt_object_stat stat;
	struct model_object model;
	uint64_t row = 5000;
	size_t bytes;
	uint8_t *object;
	char *name;

	(void)state;
	store_scene_open(&s, NULL);
	store_scene_model(&s, &model, 1, 1, 1, &row, true);
	object = model_write(&model, &bytes);
	model_put_u16(object + bytes - 64 + 8, 7);
	model_reseal(object, bytes);
	name = store_scene_name(&s, 1);
	fake_object_put(s.fake, name, object, bytes);
	stat = stat_of(&s, 1);
	assert_int_equal(stat.state, KVT_OBJECT_UNKNOWN_FORMAT);
	assert_int_equal(stat.format_version, 7);
	assert_int_equal(stat.payload_bytes, 5000);
	kvt_object_stat_clear(&stat);
	/* With a wrong checksum it is corrupt, whatever its version. */
	fake_object_flip(s.fake, name, bytes - 5);
	expect_state(&s, 1, KVT_OBJECT_CORRUPT);
	free(object);
	free(name);
	model_fini(&model);
	store_scene_close(&s);
}

static void stat_refuses_bad_arguments_and_tells_what_is_missing(void **state)
{
	struct store_scene s;
	struct kvt_object_stat stat = KVT_INIT(stat);
	struct kvt_key key = store_scene_key(1), bad = key;

	(void)state;
	store_scene_open(&s, NULL);
	assert_fails(KVT_ENOENT, ".bin", kvt_store_stat(s.store, &key, &stat));
	assert_null(stat.ref_bytes);
	assert_int_equal(stat.age_ns, -1);
	assert_fails(KVT_EINVAL, "store: NULL", kvt_store_stat(NULL, &key, &stat));
	assert_fails(KVT_EINVAL, "key: NULL", kvt_store_stat(s.store, NULL, &stat));
	assert_fails(KVT_EINVAL, "stat: NULL", kvt_store_stat(s.store, &key, NULL));
	bad.hash_bytes = 65;
	assert_fails(KVT_EINVAL, "hash_bytes: 65", kvt_store_stat(s.store, &bad, &stat));
	stat.struct_size = 16;
	assert_fails(KVT_EINVAL, "struct_size: 16", kvt_store_stat(s.store, &key, &stat));
	store_scene_close(&s);
}

static void passing_failures_are_tried_again_and_lasting_ones_told(void **state)
{
	static const struct {
		int error;
		unsigned times;
		int result;
	} cases[] = {
		{KVT_ENET, 3, 0},
		{KVT_ESERVER, 0, KVT_ESERVER},
		{KVT_EACCES, 1, KVT_EACCES},
		{KVT_ETIMEDOUT, 1, KVT_ETIMEDOUT},
		{KVT_ETHROTTLED, 1, 0},
	};
	struct store_scene s;

	(void)state;
	store_scene_open(&s, NULL);
	store_scene_plant_row(&s, 1, 100);
	for (size_t c = 0; c < TEST_COUNT(cases); c++) {
		struct fake_rule rule = {.ops = FAKE_OP(KVT_IO_GET),
					 .times = cases[c].times,
					 .action = FAKE_FAIL,
					 .error = cases[c].error};
		struct kvt_object_stat stat = KVT_INIT(stat);
		struct kvt_key key = store_scene_key(1);

		fake_rule_add(s.fake, &rule);
		assert_returns(cases[c].result, kvt_store_stat(s.store, &key, &stat));
		fake_rule_remove(s.fake, &rule);
		kvt_object_stat_clear(&stat);
	}
	store_scene_close(&s);
}

struct replacer {
	struct store_scene *scene;
	struct fake_rule *rule;
	const struct model_object *model;
	const char *name;
	bool held;
};

/* Puts another version in place while a request is held. */
static void *replace_main(void *arg)
{
	struct replacer *r = arg;
	size_t bytes;
	uint8_t *object = model_write(r->model, &bytes);

	r->held = fake_await_held(r->scene->fake, r->rule, 1);
	fake_object_put(r->scene->fake, r->name, object, bytes);
	fake_release(r->scene->fake, r->rule, 1);
	free(object);
	return NULL;
}

static void an_object_that_is_replaced_meanwhile_is_looked_at_again(void **state)
{
	static const uint64_t small[8] = {1, 2, 3, 4, 5, 6, 7, 8};
	static const uint32_t capabilities[] = {FAKE_CAPABILITIES,
						FAKE_CAPABILITIES & ~KVT_CAP_IF_VERSION_GET};

	(void)state;
	for (size_t c = 0; c < TEST_COUNT(capabilities); c++) {
		/* The second read, of the rest of a trailer longer than a page. */
		struct fake_rule rule = {
			.ops = FAKE_OP(KVT_IO_GET), .skip = 1, .times = 1, .action = FAKE_HOLD};
		struct fake_config config = {.capabilities = capabilities[c]};
		struct store_scene s;
		struct model_object before, after;
		struct kvt_object_stat stat;
		pthread_t thread;
		struct replacer replacer = {.scene = &s, .rule = &rule, .model = &after};

		store_scene_open(&s, &config);
		store_scene_model(&s, &before, 1, 64, 8, small, false);
		store_scene_slot(&before, 0, 0); /* partial: its trailer has a page more */
		store_scene_model(&s, &after, 1, 32, 2, small, true);
		store_scene_plant(&s, &before, 1);
		replacer.name = store_scene_name(&s, 1);
		fake_rule_add(s.fake, &rule);
		assert_int_equal(pthread_create(&thread, NULL, replace_main, &replacer), 0);
		stat = stat_of(&s, 1);
		assert_int_equal(pthread_join(thread, NULL), 0);
		assert_true(replacer.held);
		assert_int_equal(stat.state, KVT_OBJECT_WHOLE);
		assert_int_equal(stat.slot_count, 64);
		kvt_object_stat_clear(&stat);
		fake_rule_remove(s.fake, &rule);
		free((char *)(uintptr_t)replacer.name);
		model_fini(&before);
		model_fini(&after);
		store_scene_close(&s);
	}
}

static void every_allocation_of_a_stat_may_fail(void **state)
{
	struct kvt_store_options options = KVT_INIT(options);
	struct test_allocator allocator;
	struct store_scene s;
	struct kvt_key key = store_scene_key(1);
	struct kvt_store *store;
	int error = KVT_ENOMEM;
	unsigned failures = 0;

	(void)state;
	store_scene_open(&s, NULL);
	store_scene_plant_row(&s, 1, 100);
	test_allocator_init(&allocator);
	test_allocator_hooks(&allocator, &options.hooks.allocator);
	options.uri = fake_store_uri(s.fake);
	options.namespace_name = "ns";
	options.mode = KVT_MODE_EXACT;
	options.rank = 1;
	assert_ok(kvt_store_open(&options, &store));
	for (uint64_t fail_at = 1; error != 0; fail_at++) {
		struct kvt_object_stat stat = KVT_INIT(stat);
		long long before = atomic_load(&allocator.live_blocks);

		atomic_store(&allocator.calls, 0);
		atomic_store(&allocator.fail_at, fail_at);
		error = kvt_store_stat(store, &key, &stat);
		assert_true(error == 0 || error == KVT_ENOMEM);
		failures += error != 0;
		atomic_store(&allocator.fail_at, 0);
		assert_int_equal(stat.ref_bytes == NULL, error != 0);
		kvt_object_stat_clear(&stat);
		assert_int_equal(atomic_load(&allocator.live_blocks), before);
	}
	assert_true(failures >= 4);
	assert_ok(kvt_store_close(store));
	assert_int_equal(atomic_load(&allocator.live_blocks), 0);
	store_scene_close(&s);
}

/* ---- List, remove ---- */

struct seen {
	struct store_scene *scene;
	unsigned ours, strange, calls;
	uint64_t bytes;
	int stop_with;
	bool remove;
};

static int see(void *context, const struct kvt_list_entry *entry)
{
	struct seen *seen = context;

	seen->calls++;
	seen->bytes += entry->object_bytes;
	if (entry->key.hash == NULL)
		seen->strange++;
	else
		seen->ours += entry->key.group == 3 && entry->key.hash_bytes == 32;
	if (seen->remove && entry->key.hash != NULL)
		assert_ok(kvt_store_remove(seen->scene->store, &entry->key));
	return seen->stop_with;
}

static void a_listing_shows_the_namespace_and_rank_alone(void **state)
{
	static const char *const others[] = {"ns_r2/123/45_g3/12345678.bin",
					     "ns_r11/123/45_g3/12345678.bin",
					     "other_r1/123/45_g3/12345678.bin", "ns/config.json"};
	struct store_scene s;
	struct seen seen = {.scene = &s};

	(void)state;
	store_scene_open(&s, NULL);
	assert_ok(kvt_store_list(s.store, see, &seen));
	assert_int_equal(seen.calls, 0);
	for (uint64_t i = 0; i < 40; i++)
		store_scene_plant_row(&s, i, 100);
	for (size_t i = 0; i < TEST_COUNT(others); i++)
		fake_object_put(s.fake, others[i], "x", 1);
	fake_object_put(s.fake, "ns_r1/readme", "xyz", 3);
	fake_object_put(s.fake, "ns_r1/123/45_g3/99999999.bin", "x", 1); /* not where it belongs */
	assert_ok(kvt_store_list(s.store, see, &seen));
	assert_int_equal(seen.ours, 40);
	assert_int_equal(seen.strange, 2);
	assert_int_equal(seen.bytes, 40 * 4096 + 4);
	/* The callback stops it with its own value, whatever its sign. */
	seen = (struct seen){.stop_with = 17};
	assert_returns(17, kvt_store_list(s.store, see, &seen));
	assert_int_equal(seen.calls, 1);
	seen = (struct seen){.stop_with = -1000};
	assert_returns(-1000, kvt_store_list(s.store, see, &seen));
	assert_int_equal(seen.calls, 1);
	/* It may use the store. */
	seen = (struct seen){.scene = &s, .remove = true};
	assert_ok(kvt_store_list(s.store, see, &seen));
	assert_int_equal(fake_object_count(s.fake), TEST_COUNT(others) + 2);
	assert_fails(KVT_EINVAL, "callback: NULL", kvt_store_list(s.store, NULL, NULL));
	assert_fails(KVT_EINVAL, "store: NULL", kvt_store_list(NULL, see, &seen));
	store_scene_close(&s);
}

static void a_page_that_fails_is_asked_for_again_and_seen_once(void **state)
{
	struct fake_rule rule = {.ops = FAKE_OP(KVT_IO_LIST),
				 .times = 2,
				 .action = FAKE_FAIL_AFTER,
				 .error = KVT_ENET};
	struct store_scene s;
	struct seen seen = {0};

	(void)state;
	store_scene_open(&s, NULL);
	for (uint64_t i = 0; i < 10; i++)
		store_scene_plant_row(&s, i, 100);
	fake_rule_add(s.fake, &rule);
	assert_ok(kvt_store_list(s.store, see, &seen));
	assert_int_equal(seen.calls, 10);
	fake_rule_remove(s.fake, &rule);
	rule = (struct fake_rule){
		.ops = FAKE_OP(KVT_IO_LIST), .action = FAKE_FAIL_AFTER, .error = KVT_ENET};
	seen = (struct seen){0};
	fake_rule_add(s.fake, &rule);
	assert_returns(KVT_ENET, kvt_store_list(s.store, see, &seen));
	assert_int_equal(seen.calls, 0);
	fake_rule_remove(s.fake, &rule);
	store_scene_close(&s);
}

static int count_entry(void *context, const struct kvt_list_entry *entry)
{
	unsigned *counts = context;

	assert_non_null(entry->key.hash);
	counts[*(const uint16_t *)entry->key.hash]++;
	return 0;
}

/* More names than one page has, in a backend that pages. */
static void long_listings_show_every_name_once(void **state)
{
	const unsigned count = 3500;
	struct kvt_store_options options = KVT_INIT(options);
	unsigned *counts = calloc(UINT16_MAX + 1, sizeof(*counts));
	struct kvt_store *store;
	struct kvt__sync sync;

	(void)state;
	options.uri = "mem:";
	options.namespace_name = "ns";
	assert_ok(kvt_store_open(&options, &store));
	assert_ok(kvt__sync_open(&sync, store, true));
	for (unsigned i = 0; i < count; i++) {
		uint16_t hash = (uint16_t)(i * 17);
		struct kvt_key key = {&hash, 2, 0};
		char name[KVT_NAME_BYTES];
		struct kvt_iovec iov = {(void *)(uintptr_t) "x", 1};
		struct kvt_io io = {.op = KVT_IO_PUT,
				    .name = name,
				    .iov = &iov,
				    .iov_count = 1,
				    .length = 1,
				    .object_bytes = 1};

		assert_true(kvt_store_object_name(store, &key, name, sizeof(name)) > 0);
		assert_ok(kvt__sync_io(&sync, &io, kvt__sync_timeout_ns(0)));
	}
	kvt__sync_close(&sync);
	assert_ok(kvt_store_list(store, count_entry, counts));
	for (unsigned i = 0; i < count; i++)
		assert_int_equal(counts[(uint16_t)(i * 17)], 1);
	assert_ok(kvt_store_close(store));
	free(counts);
}

static void removing_removes_one_object(void **state)
{
	struct store_scene s;
	struct kvt_key key = store_scene_key(1), bad = {"a", 0, 0};

	(void)state;
	store_scene_open(&s, NULL);
	store_scene_plant_row(&s, 1, 100);
	store_scene_plant_row(&s, 2, 100);
	assert_ok(kvt_store_remove(s.store, &key));
	assert_int_equal(fake_object_count(s.fake), 1);
	assert_fails(KVT_ENOENT, ".bin", kvt_store_remove(s.store, &key));
	assert_fails(KVT_EINVAL, "hash_bytes: 0", kvt_store_remove(s.store, &bad));
	assert_fails(KVT_EINVAL, "key: NULL", kvt_store_remove(s.store, NULL));
	assert_fails(KVT_EINVAL, "store: NULL", kvt_store_remove(NULL, &key));
	/* A try that failed after its work was done has removed it. */
	struct fake_rule rule = {.ops = FAKE_OP(KVT_IO_REMOVE),
				 .times = 1,
				 .action = FAKE_FAIL_AFTER,
				 .error = KVT_ENET};

	fake_rule_add(s.fake, &rule);
	key = store_scene_key(2);
	assert_ok(kvt_store_remove(s.store, &key));
	assert_int_equal(fake_object_count(s.fake), 0);
	fake_rule_remove(s.fake, &rule);
	store_scene_close(&s);
}

/* ---- Probe ---- */

struct found {
	unsigned lines, failures;
	char names[1000];
	char first_failure[64];
};

static void find(void *context, const char *name, const char *value, int error)
{
	struct found *found = context;

	assert_non_null(value);
	found->lines++;
	(void)strncat(found->names, name, sizeof(found->names) - strlen(found->names) - 1);
	(void)strncat(found->names, " ", sizeof(found->names) - strlen(found->names) - 1);
	if (error != 0 && found->failures++ == 0)
		(void)snprintf(found->first_failure, sizeof(found->first_failure), "%s", name);
}

static void a_probe_tries_what_the_store_claims_and_leaves_nothing(void **state)
{
	static const struct fake_config configs[] = {
		{.capabilities = FAKE_CAPABILITIES},
		{.capabilities = 0},
		{.capabilities = FAKE_CAPABILITIES | KVT_CAP_FULL_BODY, .youngest_first = true},
		{.capabilities = FAKE_CAPABILITIES, .min_part_bytes = 1 << 20},
		{.capabilities = FAKE_CAPABILITIES, .blocking = true},
		{.capabilities = KVT_CAP_IF_ABSENT, .max_parts = 1},
		{.capabilities = FAKE_CAPABILITIES, .rewind = true, .done_at_once = true},
	};

	(void)state;
	for (size_t c = 0; c < TEST_COUNT(configs); c++) {
		struct store_scene s;
		struct found found = {0};

		store_scene_open(&s, &configs[c]);
		fake_object_put(s.fake, "ns_r1/other", "x", 1);
		assert_ok(kvt_store_probe(s.store, find, &found));
		assert_ok(kvt_store_probe(s.store, NULL, NULL));
		assert_int_equal(found.failures, 0);
		assert_int_equal(fake_object_count(s.fake), 1);
		assert_non_null(strstr(found.names, "min_part_bytes "));
		assert_non_null(strstr(found.names, "put "));
		assert_non_null(strstr(found.names, "get_tail "));
		assert_int_equal(strstr(found.names, "put_if_absent ") != NULL,
				 (configs[c].capabilities & KVT_CAP_IF_ABSENT) != 0);
		assert_int_equal(strstr(found.names, "put_if_version ") != NULL,
				 (configs[c].capabilities & KVT_CAP_IF_VERSION_PUT) != 0);
		assert_int_equal(strstr(found.names, "touch ") != NULL,
				 (configs[c].capabilities & KVT_CAP_TOUCH) != 0);
		assert_int_equal(strstr(found.names, " parts ") != NULL, configs[c].max_parts != 1);
		store_scene_close(&s);
	}
}

static void a_probe_names_the_first_thing_that_does_not_work(void **state)
{
	static const struct {
		enum kvt_io_op op;
		int error;
		const char *name;
	} cases[] = {
		{KVT_IO_PUT, KVT_ENOSPC, "put"},    {KVT_IO_HEAD, KVT_EACCES, "head"},
		{KVT_IO_GET, KVT_EIO, "get"},	    {KVT_IO_LIST, KVT_EACCES, "list"},
		{KVT_IO_TOUCH, KVT_EROFS, "touch"}, {KVT_IO_BEGIN, KVT_ENOSPC, "parts"},
		{KVT_IO_PART, KVT_ENOSPC, "parts"}, {KVT_IO_COMMIT, KVT_EACCES, "parts"},
	};

	(void)state;
	for (size_t c = 0; c < TEST_COUNT(cases); c++) {
		struct fake_rule rule = {
			.ops = FAKE_OP(cases[c].op), .action = FAKE_FAIL, .error = cases[c].error};
		char *text = test_format("probe: %s: ", cases[c].name);
		struct store_scene s;
		struct found found = {0};

		store_scene_open(&s, NULL);
		fake_rule_add(s.fake, &rule);
		assert_fails(cases[c].error, text, kvt_store_probe(s.store, find, &found));
		assert_string_equal(found.first_failure, cases[c].name);
		fake_rule_remove(s.fake, &rule);
		assert_int_equal(fake_object_count(s.fake), 0);
		free(text);
		store_scene_close(&s);
	}
	assert_fails(KVT_EINVAL, "store: NULL", kvt_store_probe(NULL, find, NULL));
}

static void a_probe_notices_wrong_bytes(void **state)
{
	struct fake_rule rule = {
		.ops = FAKE_OP(KVT_IO_GET), .times = 1, .action = FAKE_FLIP, .after_bytes = 100};
	struct store_scene s;
	struct found found = {0};

	(void)state;
	store_scene_open(&s, NULL);
	fake_rule_add(s.fake, &rule);
	assert_fails(KVT_ECORRUPT, "probe: get: ", kvt_store_probe(s.store, find, &found));
	assert_int_equal(found.failures, 1);
	fake_rule_remove(s.fake, &rule);
	assert_int_equal(fake_object_count(s.fake), 0);
	store_scene_close(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_whole_object_tells_everything_about_itself),
		cmocka_unit_test(a_partial_object_tells_which_slots_it_has),
		cmocka_unit_test(long_trailers_are_read_whole),
		cmocka_unit_test(an_object_without_refs_is_whole),
		cmocka_unit_test(what_belongs_to_somebody_else_is_a_mismatch),
		cmocka_unit_test(what_has_no_trailer_of_ours_is_foreign),
		cmocka_unit_test(a_broken_trailer_is_corrupt_after_a_second_reading),
		cmocka_unit_test(a_newer_format_is_told_as_such),
		cmocka_unit_test(stat_refuses_bad_arguments_and_tells_what_is_missing),
		cmocka_unit_test(passing_failures_are_tried_again_and_lasting_ones_told),
		cmocka_unit_test(an_object_that_is_replaced_meanwhile_is_looked_at_again),
		cmocka_unit_test(every_allocation_of_a_stat_may_fail),
		cmocka_unit_test(a_listing_shows_the_namespace_and_rank_alone),
		cmocka_unit_test(a_page_that_fails_is_asked_for_again_and_seen_once),
		cmocka_unit_test(long_listings_show_every_name_once),
		cmocka_unit_test(removing_removes_one_object),
		cmocka_unit_test(a_probe_tries_what_the_store_claims_and_leaves_nothing),
		cmocka_unit_test(a_probe_names_the_first_thing_that_does_not_work),
		cmocka_unit_test(a_probe_notices_wrong_bytes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
