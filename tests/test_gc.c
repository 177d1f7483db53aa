/* SPDX-License-Identifier: Apache-2.0 */
/* kvt_store_gc: by size, by age, what is in its scope, what it leaves alone. */
#include "store_scene.h"

#include <stdlib.h>
#include <string.h>

#define SECOND INT64_C(1000000000)
#define HOUR   (3600 * SECOND)
#define OBJECT 4096 /* bytes of each planted object */

/* Objects 0 to count - 1, number i not used for i + 1 hours. */
static void plant_aged(struct store_scene *s, uint64_t count)
{
	for (uint64_t i = 0; i < count; i++) {
		char *name = store_scene_name(s, i);

		assert_int_equal(store_scene_plant_row(s, i, 100), OBJECT);
		fake_object_set_age(s->fake, name, 1000 * HOUR, (int64_t)(i + 1) * HOUR);
		free(name);
	}
}

static bool is_there(struct store_scene *s, uint64_t number)
{
	char *name = store_scene_name(s, number);
	bool there = fake_object_exists(s->fake, name);

	free(name);
	return there;
}

/* Asserts that of `count` objects exactly the first `kept` are there. */
static void expect_kept(struct store_scene *s, uint64_t count, uint64_t kept)
{
	for (uint64_t i = 0; i < count; i++)
		if (is_there(s, i) != (i < kept))
			fail_msg("object %u is %s", (unsigned)i, i < kept ? "gone" : "there");
}

static struct kvt_gc_summary collect(struct store_scene *s, const struct kvt_gc_options *options)
{
	struct kvt_gc_summary summary = KVT_INIT(summary);

	assert_ok(kvt_store_gc(s->store, options, &summary));
	return summary;
}

static void the_least_recently_used_go_until_the_limit_is_met(void **state)
{
	static const struct {
		uint64_t max_bytes, kept;
	} cases[] = {
		{50 * OBJECT, 40},     {40 * OBJECT, 40}, {40 * OBJECT - 1, 39}, {39 * OBJECT, 39},
		{12 * OBJECT + 1, 12}, {OBJECT, 1},	  {OBJECT - 1, 0},	 {1, 0},
	};

	(void)state;
	for (size_t c = 0; c < TEST_COUNT(cases); c++) {
		struct kvt_gc_options options = KVT_INIT(options);
		struct kvt_gc_summary summary;
		struct store_scene s;

		store_scene_open(&s, NULL);
		plant_aged(&s, 40);
		options.max_bytes = cases[c].max_bytes;
		options.dry_run = 1;
		summary = collect(&s, &options);
		assert_int_equal(summary.removed_objects, 40 - cases[c].kept);
		assert_int_equal(fake_object_count(s.fake), 40);
		assert_int_equal(fake_calls(s.fake, KVT_IO_SWEEP), 0);
		options.dry_run = 0;
		summary = collect(&s, &options);
		assert_int_equal(summary.objects, 40);
		assert_int_equal(summary.bytes, 40 * OBJECT);
		assert_int_equal(summary.removed_objects, 40 - cases[c].kept);
		assert_int_equal(summary.removed_bytes, (40 - cases[c].kept) * OBJECT);
		expect_kept(&s, 40, cases[c].kept);
		assert_int_equal(fake_calls(s.fake, KVT_IO_SWEEP), 1);
		store_scene_close(&s);
	}
}

static void what_was_not_used_for_longer_goes_whatever_its_size(void **state)
{
	struct kvt_gc_options options = KVT_INIT(options);
	struct kvt_gc_summary summary;
	struct store_scene s;

	(void)state;
	store_scene_open(&s, NULL);
	plant_aged(&s, 20);
	options.older_than_ns = 12 * HOUR + HOUR / 2;
	options.dry_run = 1;
	summary = collect(&s, &options);
	assert_int_equal(summary.removed_objects, 8);
	assert_int_equal(fake_object_count(s.fake), 20);
	options.dry_run = 0;
	summary = collect(&s, &options);
	assert_int_equal(summary.removed_objects, 8);
	expect_kept(&s, 20, 12);
	store_scene_close(&s);
}

static void age_and_size_add_up(void **state)
{
	struct kvt_gc_options options = KVT_INIT(options);
	struct store_scene s;

	(void)state;
	for (uint32_t dry_run = 2; dry_run-- > 0;) {
		struct kvt_gc_summary summary;

		if (dry_run) {
			store_scene_open(&s, NULL);
			plant_aged(&s, 20);
		}
		options.older_than_ns = 15 * HOUR + 1;
		options.max_bytes = 9 * OBJECT;
		options.dry_run = dry_run;
		summary = collect(&s, &options);
		assert_int_equal(summary.objects, 20);
		assert_int_equal(summary.removed_objects, 11);
		assert_int_equal(summary.removed_bytes, 11 * OBJECT);
	}
	expect_kept(&s, 20, 9);
	store_scene_close(&s);
}

static void without_options_nothing_but_leftovers_is_removed(void **state)
{
	struct kvt_gc_summary summary = KVT_INIT(summary);
	struct store_scene s;

	(void)state;
	store_scene_open(&s, NULL);
	plant_aged(&s, 10);
	assert_ok(kvt_store_gc(s.store, NULL, &summary));
	assert_int_equal(summary.objects, 10);
	assert_int_equal(summary.removed_objects, 0);
	assert_int_equal(fake_object_count(s.fake), 10);
	assert_int_equal(fake_calls(s.fake, KVT_IO_SWEEP), 1);
	store_scene_close(&s);
}

/* Where the access time is not kept, or older than the object, the object's age counts; where
 * nothing is known it counts as just used. */
static void use_is_told_by_access_time_else_by_age(void **state)
{
	static const struct {
		int64_t age, access_age;
		bool goes;
	} cases[] = {
		{9 * HOUR, 9 * HOUR, true},  {9 * HOUR, -1, true},
		{-1, 9 * HOUR, true},	     {9 * HOUR, 1 * HOUR, false},
		{1 * HOUR, 9 * HOUR, false}, {1 * HOUR, -1, false},
		{-1, 1 * HOUR, false},	     {-1, -1, false},
	};
	struct kvt_gc_options options = KVT_INIT(options);
	struct store_scene s;

	(void)state;
	store_scene_open(&s, NULL);
	for (size_t c = 0; c < TEST_COUNT(cases); c++) {
		char *name = store_scene_name(&s, c);

		store_scene_plant_row(&s, c, 100);
		fake_object_set_age(s.fake, name, cases[c].age, cases[c].access_age);
		free(name);
	}
	options.older_than_ns = 5 * HOUR;
	assert_int_equal(collect(&s, &options).removed_objects, 3);
	for (size_t c = 0; c < TEST_COUNT(cases); c++)
		assert_int_equal(is_there(&s, c), !cases[c].goes);
	store_scene_close(&s);
}

/* ---- Scope ---- */

static const char *const own_names[] = {
	"ns_r1/abc/de_g0/abcdef.bin",
	"ns_r0/abc/de_g7/abcdef00.bin",
	"ns_r12/abc/abcdef_g0.bin",
};
static const char *const other_names[] = {
	"ns_rx_r0/abc/de_g0/abcdef.bin",
	"ns2_r1/abc/de_g0/abcdef.bin",
	"org_model_0123456789ab_r3/abc/de_g0/abcdef.bin",
};
static const char *const never_names[] = {
	"ns/config.json",
	"ns_r1/abc/de_g0/abcdef.txt",
	"ns_r1/abc/de_g0/xyz.bin",
	"ns_r1/abd/de_g0/abcdef.bin",
	"ns_r1/README",
	"photos/holiday.bin",
	"ns_r1/abc/de_g0/abcdef.bin.part",
	"kvtier-probe-1-2",
};

static void plant_names(struct store_scene *s, const char *const *names, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		fake_object_put(s->fake, names[i], "0123456789", 10);
		fake_object_set_age(s->fake, names[i], 100 * HOUR, 100 * HOUR);
	}
}

static bool all_there(struct store_scene *s, const char *const *names, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (!fake_object_exists(s->fake, names[i]))
			return false;
	return true;
}

static void only_objects_of_the_namespace_are_in_scope_or_of_the_whole_root(void **state)
{
	struct kvt_gc_options options = KVT_INIT(options);
	struct kvt_gc_summary summary;
	struct store_scene s;

	(void)state;
	store_scene_open(&s, NULL);
	plant_names(&s, own_names, TEST_COUNT(own_names));
	plant_names(&s, other_names, TEST_COUNT(other_names));
	plant_names(&s, never_names, TEST_COUNT(never_names));
	options.older_than_ns = HOUR;
	options.max_bytes = 1;
	summary = collect(&s, &options);
	assert_int_equal(summary.objects, TEST_COUNT(own_names));
	assert_int_equal(summary.bytes, 10 * TEST_COUNT(own_names));
	assert_int_equal(summary.removed_objects, TEST_COUNT(own_names));
	assert_true(all_there(&s, other_names, TEST_COUNT(other_names)));
	assert_true(all_there(&s, never_names, TEST_COUNT(never_names)));
	options.whole_root = 1;
	summary = collect(&s, &options);
	assert_int_equal(summary.objects, TEST_COUNT(other_names));
	assert_int_equal(summary.removed_objects, TEST_COUNT(other_names));
	assert_true(all_there(&s, never_names, TEST_COUNT(never_names)));
	assert_int_equal(fake_object_count(s.fake), TEST_COUNT(never_names));
	store_scene_close(&s);
}

/* ---- Order ---- */

static int by_age(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

/* Ages that differ by less than any bucket is wide, and sizes of all kinds. */
static void the_order_is_exact(void **state)
{
	enum { COUNT = 60 };
	struct test_random random = {test_seed(7)};

	(void)state;
	for (int round = 0; round < 20; round++) {
		struct kvt_gc_options options = KVT_INIT(options);
		struct kvt_gc_summary summary;
		struct store_scene s;
		int64_t ages[COUNT], sorted[COUNT];
		uint64_t total = 0, left, bytes[COUNT];
		int64_t base = round % 2 ? 50 * HOUR : 3 * SECOND;

		store_scene_open(&s, NULL);
		for (uint64_t i = 0; i < COUNT; i++) {
			char *name = store_scene_name(&s, i);

			/* Apart by more than the two listings can be. */
			ages[i] = base + (int64_t)i * 20 * SECOND;
			bytes[i] =
				store_scene_plant_row(&s, i, 1 + test_random_below(&random, 40000));
			total += bytes[i];
			free(name);
		}
		for (uint64_t i = COUNT; i-- > 1;) { /* in any order of names */
			uint64_t j = test_random_below(&random, i + 1);
			int64_t age = ages[i];

			ages[i] = ages[j];
			ages[j] = age;
		}
		for (uint64_t i = 0; i < COUNT; i++) {
			char *name = store_scene_name(&s, i);

			fake_object_set_age(s.fake, name, ages[i], ages[i]);
			free(name);
		}
		options.max_bytes = 1 + test_random_below(&random, total);
		summary = collect(&s, &options);
		memcpy(sorted, ages, sizeof(sorted));
		qsort(sorted, COUNT, sizeof(sorted[0]), by_age);
		left = total;
		for (int k = COUNT - 1; k >= 0; k--) {
			uint64_t i = 0;

			while (ages[i] != sorted[k])
				i++;
			assert_int_equal(is_there(&s, i), left <= options.max_bytes);
			if (left > options.max_bytes)
				left -= bytes[i];
		}
		assert_int_equal(summary.removed_bytes, total - left);
		store_scene_close(&s);
	}
}

/* Far more objects of one age than are kept in mind at once. */
static void any_number_of_objects_of_one_age_is_handled(void **state)
{
	enum { COUNT = 12000 };
	struct kvt_gc_options options = KVT_INIT(options);
	struct kvt_gc_summary summary;
	struct store_scene s;

	(void)state;
	store_scene_open(&s, NULL);
	for (unsigned i = 0; i < COUNT; i++) {
		char *name =
			test_format("ns_r1/%03x/%02x_g0/%08x.bin", i >> 4, (i & 15) << 4, i << 16);

		fake_object_put(s.fake, name, "0123456789", 10);
		fake_object_set_age(s.fake, name, 1000 * HOUR, 1000 * HOUR);
		free(name);
	}
	options.max_bytes = 1000;
	summary = collect(&s, &options);
	assert_int_equal(summary.objects, COUNT);
	assert_int_equal(summary.removed_objects, COUNT - 100);
	assert_int_equal(fake_object_count(s.fake), 100);
	store_scene_close(&s);
}

/* ---- Races and failures ---- */

struct changer {
	struct store_scene *scene;
	struct fake_rule *rule;
	char *name;
	bool replace;
	bool held;
};

static void *change_main(void *arg)
{
	struct changer *c = arg;

	c->held = fake_await_held(c->scene->fake, c->rule, 1);
	if (c->replace)
		fake_object_put(c->scene->fake, c->name, "0123456789", 10);
	else
		(void)fake_object_remove(c->scene->fake, c->name);
	fake_release(c->scene->fake, c->rule, 1);
	return NULL;
}

static void what_is_replaced_or_gone_meanwhile_is_not_counted_as_removed(void **state)
{
	static const struct {
		bool replace;
		uint32_t capabilities;
		enum kvt_io_op op;
	} cases[] = {
		{true, FAKE_CAPABILITIES, KVT_IO_REMOVE},
		{false, FAKE_CAPABILITIES, KVT_IO_REMOVE},
		{true, FAKE_CAPABILITIES & ~KVT_CAP_IF_VERSION_REMOVE, KVT_IO_HEAD},
		{false, FAKE_CAPABILITIES & ~KVT_CAP_IF_VERSION_REMOVE, KVT_IO_HEAD},
	};

	(void)state;
	for (size_t c = 0; c < TEST_COUNT(cases); c++) {
		struct fake_rule rule = {
			.ops = FAKE_OP(cases[c].op), .times = 1, .action = FAKE_HOLD};
		struct fake_config config = {.capabilities = cases[c].capabilities};
		struct kvt_gc_options options = KVT_INIT(options);
		struct kvt_gc_summary summary;
		struct store_scene s;
		struct changer changer = {.scene = &s, .rule = &rule, .replace = cases[c].replace};
		pthread_t thread;

		store_scene_open(&s, &config);
		plant_aged(&s, 3);
		changer.name = store_scene_name(&s, 2); /* the oldest */
		fake_rule_add(s.fake, &rule);
		assert_int_equal(pthread_create(&thread, NULL, change_main, &changer), 0);
		options.max_bytes = 2 * OBJECT;
		summary = collect(&s, &options);
		assert_int_equal(pthread_join(thread, NULL), 0);
		assert_true(changer.held);
		fake_rule_remove(s.fake, &rule);
		assert_int_equal(summary.removed_objects, cases[c].replace ? 1 : 0);
		assert_int_equal(is_there(&s, 2), cases[c].replace);
		/* In its place the next one went; with it gone nothing else had to. */
		assert_int_equal(is_there(&s, 1), !cases[c].replace);
		assert_true(is_there(&s, 0));
		free(changer.name);
		store_scene_close(&s);
	}
}

/* An age is known as exactly as a listing is fast: in the second one all look younger. */
struct shifter {
	struct store_scene *scene;
	struct fake_rule *rule;
	uint64_t count;
	bool held;
};

static void *shift_main(void *arg)
{
	struct shifter *shifter = arg;

	shifter->held = fake_await_held(shifter->scene->fake, shifter->rule, 1);
	for (uint64_t i = 0; i < shifter->count; i++) {
		char *name = store_scene_name(shifter->scene, i);
		int64_t age = (int64_t)(i + 1) * HOUR - 60 * SECOND;

		fake_object_set_age(shifter->scene->fake, name, 1000 * HOUR, age);
		free(name);
	}
	fake_release(shifter->scene->fake, shifter->rule, 1);
	return NULL;
}

static void ages_that_differ_between_the_listings_miss_nothing(void **state)
{
	(void)state;
	for (uint64_t kept = 0; kept < 8; kept++) {
		struct fake_rule rule = {
			.ops = FAKE_OP(KVT_IO_LIST), .skip = 1, .times = 1, .action = FAKE_HOLD};
		struct kvt_gc_options options = KVT_INIT(options);
		struct store_scene s;
		struct shifter shifter = {.scene = &s, .rule = &rule, .count = 8};
		pthread_t thread;

		store_scene_open(&s, NULL);
		plant_aged(&s, 8);
		fake_rule_add(s.fake, &rule);
		assert_int_equal(pthread_create(&thread, NULL, shift_main, &shifter), 0);
		options.max_bytes = kept * OBJECT + 1;
		options.dry_run = 1;
		assert_int_equal(collect(&s, &options).removed_objects, 8 - kept);
		assert_int_equal(pthread_join(thread, NULL), 0);
		assert_true(shifter.held);
		fake_rule_remove(s.fake, &rule);
		options.dry_run = 0;
		assert_int_equal(collect(&s, &options).removed_objects, 8 - kept);
		expect_kept(&s, 8, kept);
		store_scene_close(&s);
	}
}

static void one_object_that_cannot_be_removed_does_not_stop_the_rest(void **state)
{
	struct fake_rule rule = {
		.ops = FAKE_OP(KVT_IO_REMOVE), .action = FAKE_FAIL, .error = KVT_EIO};
	struct kvt_gc_options options = KVT_INIT(options);
	struct store_scene s;
	char *name;

	(void)state;
	store_scene_open(&s, NULL);
	plant_aged(&s, 10);
	name = store_scene_name(&s, 8);
	rule.name = name;
	fake_rule_add(s.fake, &rule);
	options.older_than_ns = 5 * HOUR + 1;
	assert_int_equal(collect(&s, &options).removed_objects, 4);
	fake_rule_remove(s.fake, &rule);
	assert_true(is_there(&s, 8));
	assert_false(is_there(&s, 9));
	free(name);
	store_scene_close(&s);
}

static void failures_of_the_store_are_failures_of_the_call(void **state)
{
	static const struct {
		enum kvt_io_op op;
		int error;
	} cases[] = {{KVT_IO_LIST, KVT_EACCES}, {KVT_IO_REMOVE, KVT_EROFS}};

	(void)state;
	for (size_t c = 0; c < TEST_COUNT(cases); c++) {
		struct fake_rule rule = {
			.ops = FAKE_OP(cases[c].op), .action = FAKE_FAIL, .error = cases[c].error};
		struct kvt_gc_options options = KVT_INIT(options);
		struct kvt_gc_summary summary = KVT_INIT(summary);
		struct store_scene s;

		store_scene_open(&s, NULL);
		plant_aged(&s, 5);
		options.max_bytes = 1;
		fake_rule_add(s.fake, &rule);
		assert_returns(cases[c].error, kvt_store_gc(s.store, &options, &summary));
		assert_int_equal(summary.removed_objects, 0);
		assert_int_equal(fake_object_count(s.fake), 5);
		fake_rule_remove(s.fake, &rule);
		store_scene_close(&s);
	}
}

static void leftovers_that_cannot_be_looked_for_keep_no_object(void **state)
{
	static const struct {
		int error, returned;
	} cases[] = {{KVT_EACCES, 0}, {KVT_EIO, KVT_EIO}, {KVT_ETIMEDOUT, KVT_ETIMEDOUT}};

	(void)state;
	for (size_t c = 0; c < TEST_COUNT(cases); c++) {
		struct fake_rule rule = {
			.ops = FAKE_OP(KVT_IO_SWEEP), .action = FAKE_FAIL, .error = cases[c].error};
		struct kvt_gc_options options = KVT_INIT(options);
		struct kvt_gc_summary summary = KVT_INIT(summary);
		struct store_scene s;

		store_scene_open(&s, NULL);
		plant_aged(&s, 5);
		options.max_bytes = 2 * OBJECT;
		fake_rule_add(s.fake, &rule);
		int got = kvt_store_gc(s.store, &options, &summary);
		assert_int_equal(got, cases[c].returned);
		if (got != 0) /* the sweep's own words, after all the rest */
			assert_non_null(strstr(kvt_error_detail(), kvt_error_name(got)));
		assert_int_equal(summary.removed_objects, 3);
		assert_int_equal(fake_object_count(s.fake), 2);
		fake_rule_remove(s.fake, &rule);
		store_scene_close(&s);
	}
}

static void leftovers_alone_are_removed_without_a_listing(void **state)
{
	static const struct {
		uint64_t age_ns;
		uint32_t age_s;
	} cases[] = {{0, 86400},      {1, 1},		{SECOND, 1},
		     {SECOND + 1, 2}, {2 * HOUR, 7200}, {UINT64_MAX, UINT32_MAX}};
	struct fake_config config = {.capabilities = FAKE_CAPABILITIES, .leftovers = 7};
	struct store_scene s;

	(void)state;
	store_scene_open(&s, &config);
	plant_aged(&s, 5);
	for (size_t c = 0; c < TEST_COUNT(cases); c++) {
		struct kvt_gc_options options = KVT_INIT(options);
		fake_records_clear(s.fake);
		options.leftovers_only = 1;
		options.leftover_age_ns = cases[c].age_ns;
		struct kvt_gc_summary summary = collect(&s, &options);
		assert_int_equal(summary.removed_leftovers, 7);
		assert_int_equal(summary.objects, 0);
		assert_int_equal(fake_record_count(s.fake), 1);
		struct fake_record record = fake_record_at(s.fake, 0);
		assert_int_equal(record.op, KVT_IO_SWEEP);
		assert_int_equal(record.sweep_age_s, cases[c].age_s);
	}
	assert_int_equal(fake_object_count(s.fake), 5);
	/* The age holds for leftovers of a whole collection too. */
	struct kvt_gc_options options = KVT_INIT(options);
	options.leftover_age_ns = HOUR;
	fake_records_clear(s.fake);
	assert_int_equal(collect(&s, &options).objects, 5);
	assert_int_equal(fake_record_at(s.fake, 0).sweep_age_s, 3600);
	store_scene_close(&s);
}

static void leftovers_alone_that_cannot_be_removed_are_a_failure(void **state)
{
	struct fake_rule rule = {
		.ops = FAKE_OP(KVT_IO_SWEEP), .action = FAKE_FAIL, .error = KVT_EACCES};
	struct kvt_gc_options options = KVT_INIT(options);
	struct kvt_gc_summary summary = KVT_INIT(summary);
	struct store_scene s;

	(void)state;
	store_scene_open(&s, NULL);
	options.leftovers_only = 1;
	fake_rule_add(s.fake, &rule);
	assert_returns(KVT_EACCES, kvt_store_gc(s.store, &options, &summary));
	fake_rule_remove(s.fake, &rule);
	store_scene_close(&s);
}

static void a_caller_of_the_first_version_is_understood(void **state)
{
	struct kvt_gc_options options = KVT_INIT(options);
	struct kvt_gc_summary summary = KVT_INIT(summary);
	struct store_scene s;

	(void)state;
	store_scene_open(&s, NULL);
	plant_aged(&s, 5);
	options.struct_size = offsetof(struct kvt_gc_options, leftover_age_ns);
	options.max_bytes = 2 * OBJECT;
	memset((char *)&options + options.struct_size, 0xEE,
	       sizeof(options) - options.struct_size); /* not ours to look at */
	assert_ok(kvt_store_gc(s.store, &options, &summary));
	assert_int_equal(summary.removed_objects, 3);
	store_scene_close(&s);
}

static void pages_without_names_do_not_end_a_listing(void **state)
{
	struct fake_config config = {.capabilities = FAKE_CAPABILITIES, .list_buckets = 16};
	struct kvt_gc_options options = KVT_INIT(options);
	struct store_scene s;

	(void)state;
	store_scene_open(&s, &config);
	plant_aged(&s, 20);
	options.max_bytes = 12 * OBJECT;
	struct kvt_gc_summary summary = collect(&s, &options);
	assert_int_equal(summary.objects, 20);
	assert_int_equal(summary.removed_objects, 8);
	expect_kept(&s, 20, 12);
	assert_int_equal(fake_calls(s.fake, KVT_IO_LIST), 2 * FAKE_BUCKETS / 16);
	store_scene_close(&s);
}

/* A page that failed is asked for again, not at once, and nothing of it counts twice. */
static void a_throttled_page_is_asked_for_again_after_a_pause(void **state)
{
	struct fake_config config = {.capabilities = FAKE_CAPABILITIES, .list_buckets = 256};
	struct fake_rule rule = {.ops = FAKE_OP(KVT_IO_LIST),
				 .skip = 1,
				 .times = 2,
				 .action = FAKE_FAIL_AFTER,
				 .error = KVT_ETHROTTLED,
				 .retry_after_ns = 300 * (SECOND / 1000)};
	struct kvt_gc_options options = KVT_INIT(options);
	struct store_scene s;
	int64_t last = 0;

	(void)state;
	store_scene_open(&s, &config);
	plant_aged(&s, 20);
	fake_rule_add(s.fake, &rule);
	fake_records_clear(s.fake);
	assert_int_equal(collect(&s, &options).objects, 20);
	assert_int_equal(fake_rule_hits(s.fake, &rule), 2);
	for (size_t i = 0; i < fake_record_count(s.fake); i++) {
		struct fake_record record = fake_record_at(s.fake, i);
		if (last)
			assert_true(record.at_ns - last >= rule.retry_after_ns);
		last = record.result == KVT_ETHROTTLED ? record.at_ns : 0;
	}
	fake_rule_remove(s.fake, &rule);
	store_scene_close(&s);
}

static void a_store_that_has_no_leftovers_need_not_sweep(void **state)
{
	struct fake_rule rule = {
		.ops = FAKE_OP(KVT_IO_SWEEP), .action = FAKE_FAIL, .error = KVT_ENOTSUP};
	struct kvt_gc_options options = KVT_INIT(options);
	struct store_scene s;

	(void)state;
	store_scene_open(&s, NULL);
	plant_aged(&s, 5);
	options.max_bytes = 2 * OBJECT;
	fake_rule_add(s.fake, &rule);
	assert_int_equal(collect(&s, &options).removed_objects, 3);
	fake_rule_remove(s.fake, &rule);
	store_scene_close(&s);
}

static void bad_arguments_are_refused_by_name(void **state)
{
	struct kvt_gc_summary summary = KVT_INIT(summary);
	struct kvt_gc_options options = KVT_INIT(options);
	struct store_scene s;

	(void)state;
	store_scene_open(&s, NULL);
	assert_fails(KVT_EINVAL, "store: NULL", kvt_store_gc(NULL, NULL, &summary));
	assert_fails(KVT_EINVAL, "summary: NULL", kvt_store_gc(s.store, NULL, NULL));
	options.struct_size = 8;
	assert_fails(KVT_EINVAL, "kvt_gc_options", kvt_store_gc(s.store, &options, &summary));
	summary.struct_size = 8;
	assert_fails(KVT_EINVAL, "summary: struct_size: 8", kvt_store_gc(s.store, NULL, &summary));
	store_scene_close(&s);
}

static void every_allocation_may_fail(void **state)
{
	struct kvt_store_options store_options = KVT_INIT(store_options);
	struct kvt_gc_options options = KVT_INIT(options);
	struct test_allocator allocator;
	struct kvt_store *store;
	struct store_scene s;
	int error = KVT_ENOMEM;
	unsigned failures = 0;

	(void)state;
	store_scene_open(&s, NULL);
	plant_aged(&s, 5);
	test_allocator_init(&allocator);
	test_allocator_hooks(&allocator, &store_options.hooks.allocator);
	store_options.uri = fake_store_uri(s.fake);
	store_options.namespace_name = "ns";
	store_options.mode = KVT_MODE_EXACT;
	assert_ok(kvt_store_open(&store_options, &store));
	options.max_bytes = 2 * OBJECT;
	for (uint64_t fail_at = 1; error != 0; fail_at++) {
		struct kvt_gc_summary summary = KVT_INIT(summary);
		long long before = atomic_load(&allocator.live_blocks);

		atomic_store(&allocator.calls, 0);
		atomic_store(&allocator.fail_at, fail_at);
		error = kvt_store_gc(store, &options, &summary);
		assert_true(error == 0 || error == KVT_ENOMEM);
		failures += error != 0;
		atomic_store(&allocator.fail_at, 0);
		assert_int_equal(atomic_load(&allocator.live_blocks), before);
	}
	assert_true(failures >= 5);
	assert_int_equal(fake_object_count(s.fake), 2);
	assert_ok(kvt_store_close(store));
	store_scene_close(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_least_recently_used_go_until_the_limit_is_met),
		cmocka_unit_test(what_was_not_used_for_longer_goes_whatever_its_size),
		cmocka_unit_test(age_and_size_add_up),
		cmocka_unit_test(without_options_nothing_but_leftovers_is_removed),
		cmocka_unit_test(use_is_told_by_access_time_else_by_age),
		cmocka_unit_test(only_objects_of_the_namespace_are_in_scope_or_of_the_whole_root),
		cmocka_unit_test(the_order_is_exact),
		cmocka_unit_test(any_number_of_objects_of_one_age_is_handled),
		cmocka_unit_test(what_is_replaced_or_gone_meanwhile_is_not_counted_as_removed),
		cmocka_unit_test(ages_that_differ_between_the_listings_miss_nothing),
		cmocka_unit_test(one_object_that_cannot_be_removed_does_not_stop_the_rest),
		cmocka_unit_test(failures_of_the_store_are_failures_of_the_call),
		cmocka_unit_test(leftovers_that_cannot_be_looked_for_keep_no_object),
		cmocka_unit_test(leftovers_alone_are_removed_without_a_listing),
		cmocka_unit_test(leftovers_alone_that_cannot_be_removed_are_a_failure),
		cmocka_unit_test(a_caller_of_the_first_version_is_understood),
		cmocka_unit_test(pages_without_names_do_not_end_a_listing),
		cmocka_unit_test(a_throttled_page_is_asked_for_again_after_a_pause),
		cmocka_unit_test(a_store_that_has_no_leftovers_need_not_sweep),
		cmocka_unit_test(bad_arguments_are_refused_by_name),
		cmocka_unit_test(every_allocation_may_fail),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
