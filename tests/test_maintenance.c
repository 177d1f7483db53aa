/* SPDX-License-Identifier: Apache-2.0 */
/* Option max_bytes: the thread that keeps a namespace below its limit. */
#include "store_scene.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "maintenance.h"

#define HOUR   INT64_C(3600000000000)
#define OBJECT 4096

/* The log is how the test learns what the thread did. */
struct log {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	unsigned infos, warnings;
	char line[400];
};

static void keep_log(void *context, enum kvt_log_level level, const char *line)
{
	struct log *log = context;

	pthread_mutex_lock(&log->lock);
	log->infos += level == KVT_LOG_INFO;
	log->warnings += level == KVT_LOG_WARNING;
	(void)snprintf(log->line, sizeof(log->line), "%s", line);
	pthread_cond_signal(&log->changed);
	pthread_mutex_unlock(&log->lock);
}

static void await_log(struct log *log, const unsigned *counter, unsigned count)
{
	pthread_mutex_lock(&log->lock);
	while (*counter < count)
		pthread_cond_wait(&log->changed, &log->lock);
	pthread_mutex_unlock(&log->lock);
}

struct scene {
	struct store_scene scene; /* a store without the option */
	struct kvt_store *store;  /* and one with it */
	struct log log;
};

static void scene_begin(struct scene *s)
{
	memset(s, 0, sizeof(*s));
	store_scene_open(&s->scene, NULL);
	pthread_mutex_init(&s->log.lock, NULL);
	pthread_cond_init(&s->log.changed, NULL);
}

static void scene_open(struct scene *s, const char *max_bytes, const char *high, const char *low)
{
	struct kvt_option options[] = {
		{"max_bytes", max_bytes}, {"high_watermark", high}, {"low_watermark", low}};
	struct kvt_store_options o = KVT_INIT(o);

	o.uri = fake_store_uri(s->scene.fake);
	o.namespace_name = "ns";
	o.mode = KVT_MODE_EXACT;
	o.rank = 1;
	o.options = options;
	o.option_count = 3;
	o.hooks.log = keep_log;
	o.hooks.log_context = &s->log;
	o.hooks.log_level = KVT_LOG_INFO;
	assert_ok(kvt_store_open(&o, &s->store));
}

static void scene_close(struct scene *s)
{
	assert_ok(kvt_store_close(s->store));
	store_scene_close(&s->scene);
	pthread_cond_destroy(&s->log.changed);
	pthread_mutex_destroy(&s->log.lock);
}

/* Objects first to first + count - 1; number i not used for i + 1 hours. */
static void plant(struct scene *s, uint64_t first, uint64_t count)
{
	for (uint64_t i = first; i < first + count; i++) {
		char *name = store_scene_name(&s->scene, i);

		assert_int_equal(store_scene_plant_row(&s->scene, i, 100), OBJECT);
		fake_object_set_age(s->scene.fake, name, (int64_t)(i + 1) * HOUR,
				    (int64_t)(i + 1) * HOUR);
		free(name);
	}
}

static bool is_there(struct scene *s, uint64_t number)
{
	char *name = store_scene_name(&s->scene, number);
	bool there = fake_object_exists(s->scene.fake, name);

	free(name);
	return there;
}

static void what_is_too_much_when_a_store_opens_is_removed_down_to_the_low_watermark(void **state)
{
	struct scene s;

	(void)state;
	scene_begin(&s);
	plant(&s, 0, 40);
	scene_open(&s, "131072", "75%", "50%"); /* 32 objects: from above 24 down to 16 */
	await_log(&s.log, &s.log.infos, 1);
	assert_non_null(strstr(s.log.line, "removed 24 objects of 98304 bytes, 65536 bytes"));
	assert_int_equal(fake_object_count(s.scene.fake), 16);
	for (uint64_t i = 0; i < 40; i++)
		assert_int_equal(is_there(&s, i), i < 16);
	scene_close(&s);
}

static void capacity_is_kept_where_leftovers_cannot_be_looked_for(void **state)
{
	static const int errors[] = {KVT_EACCES, KVT_EIO};

	(void)state;
	for (size_t e = 0; e < TEST_COUNT(errors); e++) {
		struct fake_rule rule = {
			.ops = FAKE_OP(KVT_IO_SWEEP), .action = FAKE_FAIL, .error = errors[e]};
		struct scene s;

		scene_begin(&s);
		plant(&s, 0, 40);
		fake_rule_add(s.scene.fake, &rule);
		scene_open(&s, "131072", "75%", "50%");
		await_log(&s.log, &s.log.infos, 1);
		assert_non_null(strstr(s.log.line, "removed 24 objects"));
		assert_int_equal(fake_object_count(s.scene.fake), 16);
		assert_int_equal(s.log.warnings, 1);
		fake_rule_remove(s.scene.fake, &rule);
		scene_close(&s);
	}
}

static void below_the_high_watermark_nothing_is_removed(void **state)
{
	struct fake_rule rule = {.ops = FAKE_OP(KVT_IO_LIST), .skip = 1, .action = FAKE_HOLD};
	struct scene s;

	(void)state;
	scene_begin(&s);
	plant(&s, 0, 24);
	fake_rule_add(s.scene.fake, &rule);
	scene_open(&s, "131072", "75%", "50%");
	/* Its first count is over once what this process stores makes it count again. */
	while (fake_calls(s.scene.fake, KVT_IO_LIST) < 2) {
		kvt__store_wrote(s.store, 131072);
		sched_yield();
	}
	assert_true(fake_await_held(s.scene.fake, &rule, 1));
	assert_int_equal(fake_object_count(s.scene.fake), 24);
	assert_int_equal(fake_calls(s.scene.fake, KVT_IO_REMOVE), 0);
	fake_rule_remove(s.scene.fake, &rule);
	scene_close(&s);
}

static void what_is_stored_makes_the_thread_count_again(void **state)
{
	struct scene s;

	(void)state;
	scene_begin(&s);
	plant(&s, 30, 30);
	scene_open(&s, "131072", "75%", "50%");
	await_log(&s.log, &s.log.infos, 1);
	assert_int_equal(fake_object_count(s.scene.fake), 16); /* 30 to 45 */
	plant(&s, 0, 9);				       /* 25: above 24 */
	kvt__store_wrote(s.store, 9 * OBJECT);
	/* Its log line may be held back, as the last one is less than a second old. */
	while (fake_object_count(s.scene.fake) > 16) {
		kvt__store_wrote(s.store, 9 * OBJECT);
		sched_yield();
	}
	for (uint64_t i = 0; i < 60; i++)
		assert_int_equal(is_there(&s, i), i < 9 || (i >= 30 && i < 37));
	scene_close(&s);
}

static void a_little_stored_does_not_make_it_count(void **state)
{
	struct fake_rule rule = {
		.ops = FAKE_OP(KVT_IO_LIST), .skip = 1, .times = 1, .action = FAKE_HOLD};
	struct scene s;

	(void)state;
	scene_begin(&s);
	fake_rule_add(s.scene.fake, &rule);
	scene_open(&s, "1048576", "100%", "50%");
	while (fake_calls(s.scene.fake, KVT_IO_LIST) < 1)
		sched_yield();
	/* An eighth of what is left is 131,072 bytes. */
	for (int i = 0; i < 1310; i++) {
		kvt__store_wrote(s.store, 100);
		sched_yield();
	}
	assert_int_equal(atomic_load(&s.store->stored_bytes), 131000);
	assert_int_equal(fake_held(s.scene.fake, &rule), 0);
	kvt__store_wrote(s.store, 100);
	assert_true(fake_await_held(s.scene.fake, &rule, 1));
	fake_rule_remove(s.scene.fake, &rule);
	scene_close(&s);
}

static void closing_does_not_wait_for_a_long_collection(void **state)
{
	struct fake_rule rule = {
		.ops = FAKE_OP(KVT_IO_REMOVE), .skip = 3, .times = 1, .action = FAKE_HOLD};
	struct scene s;

	(void)state;
	scene_begin(&s);
	plant(&s, 0, 40);
	fake_rule_add(s.scene.fake, &rule);
	scene_open(&s, "4096", "75%", "50%"); /* all of them */
	assert_true(fake_await_held(s.scene.fake, &rule, 1));
	kvt__maintenance_ask_to_stop(s.store);
	fake_rule_remove(s.scene.fake, &rule);
	assert_ok(kvt_store_close(s.store));
	assert_int_equal(fake_object_count(s.scene.fake), 36);
	s.store = NULL;
	scene_close(&s);
}

static void a_store_that_cannot_be_collected_is_told_about(void **state)
{
	struct fake_rule rule = {
		.ops = FAKE_OP(KVT_IO_REMOVE), .action = FAKE_FAIL, .error = KVT_EROFS};
	struct scene s;

	(void)state;
	scene_begin(&s);
	plant(&s, 0, 4);
	fake_rule_add(s.scene.fake, &rule);
	scene_open(&s, "4096", "75%", "50%");
	await_log(&s.log, &s.log.warnings, 2); /* the object, and the whole */
	assert_int_equal(fake_object_count(s.scene.fake), 4);
	fake_rule_remove(s.scene.fake, &rule);
	scene_close(&s);
}

static void stores_without_the_option_have_no_thread(void **state)
{
	struct store_scene s;

	(void)state;
	store_scene_open(&s, NULL);
	assert_null(s.store->maintenance);
	kvt__store_wrote(s.store, 1 << 30);
	assert_int_equal(atomic_load(&s.store->stored_bytes), 1 << 30);
	assert_int_equal(fake_calls(s.fake, KVT_IO_LIST), 0);
	store_scene_close(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			what_is_too_much_when_a_store_opens_is_removed_down_to_the_low_watermark),
		cmocka_unit_test(capacity_is_kept_where_leftovers_cannot_be_looked_for),
		cmocka_unit_test(below_the_high_watermark_nothing_is_removed),
		cmocka_unit_test(what_is_stored_makes_the_thread_count_again),
		cmocka_unit_test(a_little_stored_does_not_make_it_count),
		cmocka_unit_test(closing_does_not_wait_for_a_long_collection),
		cmocka_unit_test(a_store_that_cannot_be_collected_is_told_about),
		cmocka_unit_test(stores_without_the_option_have_no_thread),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
