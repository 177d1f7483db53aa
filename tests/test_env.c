/* SPDX-License-Identifier: Apache-2.0 */
/* Hooks: allocation, log lines and their limit, option structs, the services that backends get,
 * and noticing a fork. */
#include "env.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "crc32c.h"
#include "support.h"

/* ---- A log that remembers ---- */

struct lines {
	size_t count;
	enum kvt_log_level level;
	char last[2048];
};

static void remember(void *context, enum kvt_log_level level, const char *line)
{
	struct lines *lines = context;

	lines->count++;
	lines->level = level;
	(void)snprintf(lines->last, sizeof(lines->last), "%s", line);
}

static void env_with_log(struct kvt__env *env, struct lines *lines, enum kvt_log_level level)
{
	const struct kvt_hooks hooks = {.log = remember, .log_context = lines, .log_level = level};

	memset(lines, 0, sizeof(*lines));
	assert_ok(kvt__env_init(env, &hooks));
}

/* As if a second had passed. */
static void let_time_pass(struct kvt__env *env)
{
	for (size_t i = 0; i < TEST_COUNT(env->topics); i++)
		env->topics[i].next_ns = 0;
}

static void lines_reach_the_hook_with_their_level(void **state)
{
	struct kvt__env env;
	struct lines lines;

	(void)state;
	env_with_log(&env, &lines, KVT_LOG_DEBUG);
	kvt__log(&env, KVT_LOG_ERROR, "a", "disk %d: %s", 7, "gone");
	assert_int_equal(lines.count, 1);
	assert_int_equal(lines.level, KVT_LOG_ERROR);
	assert_string_equal(lines.last, "disk 7: gone");
	kvt__log(&env, KVT_LOG_DEBUG, "b", "first\nsecond");
	assert_int_equal(lines.level, KVT_LOG_DEBUG);
	assert_string_equal(lines.last, "first second");
	kvt__env_fini(&env);
}

static void lines_beyond_the_wanted_level_are_dropped(void **state)
{
	struct kvt__env env;
	struct lines lines;

	(void)state;
	env_with_log(&env, &lines, KVT_LOG_OFF);
	kvt__log(&env, KVT_LOG_INFO, "a", "info");
	assert_int_equal(lines.count, 0);
	/* A log function without a level means warnings. */
	kvt__log(&env, KVT_LOG_WARNING, "a", "warning");
	assert_int_equal(lines.count, 1);
	kvt__log(&env, KVT_LOG_OFF, "b", "never");
	assert_int_equal(lines.count, 1);
	kvt__env_fini(&env);
	/* Without a function nothing happens. */
	assert_ok(kvt__env_init(&env, NULL));
	kvt__log(&env, KVT_LOG_ERROR, "a", "error");
	kvt__env_fini(&env);
}

static void a_topic_speaks_once_a_second_and_counts_what_was_left_out(void **state)
{
	static const char topic[] = "t", other[] = "t";
	struct kvt__env env;
	struct lines lines;

	(void)state;
	env_with_log(&env, &lines, KVT_LOG_WARNING);
	for (int i = 0; i < 5; i++)
		kvt__log(&env, KVT_LOG_WARNING, topic, "line %d", i);
	assert_int_equal(lines.count, 1);
	assert_string_equal(lines.last, "line 0");
	/* Topics are told apart by address. */
	kvt__log(&env, KVT_LOG_WARNING, other, "other");
	assert_int_equal(lines.count, 2);
	let_time_pass(&env);
	kvt__log(&env, KVT_LOG_WARNING, topic, "line 5");
	assert_string_equal(lines.last, "line 5 (4 more left out)");
	let_time_pass(&env);
	kvt__log(&env, KVT_LOG_WARNING, topic, "line 6");
	assert_string_equal(lines.last, "line 6");
	/* What the level drops is not counted. */
	kvt__log(&env, KVT_LOG_INFO, topic, "info");
	let_time_pass(&env);
	kvt__log(&env, KVT_LOG_WARNING, topic, "line 7");
	assert_string_equal(lines.last, "line 7");
	kvt__env_fini(&env);
}

static void more_topics_than_slots_keep_the_limit_and_lose_no_count(void **state)
{
	static const char topics[100];
	struct kvt__env env;
	struct lines lines;

	(void)state;
	env_with_log(&env, &lines, KVT_LOG_WARNING);
	for (size_t i = 0; i < sizeof(topics); i++)
		kvt__log(&env, KVT_LOG_WARNING, &topics[i], "topic %zu", i);
	assert_int_equal(lines.count, TEST_COUNT(env.topics));
	/* The topic that speaks next says what the others could not. */
	env.topics[0].next_ns = 0;
	kvt__log(&env, KVT_LOG_WARNING, &topics[0], "again");
	assert_string_equal(lines.last, "again (68 more left out)");
	/* Once slots are free, new topics take them. */
	let_time_pass(&env);
	lines.count = 0;
	for (size_t i = 60; i < 80; i++)
		kvt__log(&env, KVT_LOG_WARNING, &topics[i], "topic %zu", i);
	assert_int_equal(lines.count, 20);
	assert_string_equal(lines.last, "topic 79");
	kvt__env_fini(&env);
}

static void a_long_line_is_cut_and_still_counts(void **state)
{
	static const char topic[] = "long";
	char text[3000];
	struct kvt__env env;
	struct lines lines;

	(void)state;
	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	env_with_log(&env, &lines, KVT_LOG_WARNING);
	kvt__log(&env, KVT_LOG_WARNING, topic, "%s", text);
	kvt__log(&env, KVT_LOG_WARNING, topic, "%s", text);
	env.topics[0].suppressed = UINT64_MAX;
	let_time_pass(&env);
	kvt__log(&env, KVT_LOG_WARNING, topic, "%s", text);
	assert_true(strlen(lines.last) < 1024);
	assert_non_null(strstr(lines.last, "x (18446744073709551615 more left out)"));
	kvt__env_fini(&env);
}

static void half_a_pair_of_allocation_hooks_is_refused(void **state)
{
	struct test_allocator allocator;
	struct kvt_hooks hooks = {0};
	struct kvt__env env;

	(void)state;
	test_allocator_init(&allocator);
	test_allocator_hooks(&allocator, &hooks.allocator);
	hooks.allocator.free = NULL;
	assert_fails(KVT_EINVAL, "hooks.allocator.free is NULL", kvt__env_init(&env, &hooks));
	test_allocator_hooks(&allocator, &hooks.allocator);
	hooks.allocator.alloc = NULL;
	assert_fails(KVT_EINVAL, "hooks.allocator.alloc is NULL", kvt__env_init(&env, &hooks));
	test_allocator_hooks(&allocator, &hooks.allocator);
	hooks.log_level = (enum kvt_log_level)5;
	assert_fails(KVT_EINVAL, "hooks.log_level is 5, expected 0 to 4",
		     kvt__env_init(&env, &hooks));
}

static void all_memory_comes_from_the_hooks(void **state)
{
	struct test_allocator allocator;
	struct kvt_hooks hooks = {0};
	struct kvt__env env;
	char *text, *zeroed;
	void *aligned, *empty;

	(void)state;
	test_allocator_init(&allocator);
	test_allocator_hooks(&allocator, &hooks.allocator);
	assert_ok(kvt__env_init(&env, &hooks));
	text = kvt__strdup(&env, "text");
	zeroed = kvt__zalloc(&env, 1000);
	aligned = kvt__alloc_aligned(&env, 100, 4096);
	empty = kvt__alloc(&env, 0);
	assert_string_equal(text, "text");
	for (int i = 0; i < 1000; i++)
		assert_int_equal(zeroed[i], 0);
	assert_int_equal((uintptr_t)aligned % 4096, 0);
	assert_non_null(empty);
	assert_int_equal(atomic_load(&allocator.live_blocks), 4);
	assert_int_equal(atomic_load(&allocator.misaligned), 0);
	kvt__free(&env, text);
	kvt__free(&env, zeroed);
	kvt__free(&env, aligned);
	kvt__free(&env, empty);
	kvt__free(&env, NULL);
	assert_int_equal(atomic_load(&allocator.live_blocks), 0);
	/* No memory is NULL from each of them. */
	atomic_store(&allocator.fail_at, atomic_load(&allocator.calls) + 1);
	atomic_store(&allocator.fail_on, true);
	assert_null(kvt__strdup(&env, "text"));
	assert_null(kvt__zalloc(&env, 8));
	assert_null(kvt__alloc_aligned(&env, 8, 64));
	assert_null(kvt__alloc(&env, 8));
	kvt__env_fini(&env);
}

static void without_hooks_memory_is_aligned_as_asked(void **state)
{
	struct kvt__env env;

	(void)state;
	assert_ok(kvt__env_init(&env, NULL));
	for (size_t alignment = 1; alignment <= 1 << 16; alignment *= 2) {
		char *memory = kvt__alloc_aligned(&env, 100, alignment);
		assert_non_null(memory);
		assert_int_equal((uintptr_t)memory % alignment, 0);
		memset(memory, 1, 100);
		kvt__free(&env, memory);
	}
	char *zeroed = kvt__zalloc(&env, 0);
	assert_non_null(zeroed);
	kvt__free(&env, zeroed);
	kvt__env_fini(&env);
}

static void backends_get_the_same_services(void **state)
{
	struct kvt__env env;
	struct lines lines;
	char detail[24];
	struct kvt_io io = {.detail_buffer = detail, .detail_bytes = sizeof(detail)};
	void *memory;

	(void)state;
	env_with_log(&env, &lines, KVT_LOG_INFO);
	const struct kvt_host *host = &env.host;
	assert_int_equal(host->struct_size, sizeof(*host));
	assert_int_equal(host->abi, KVT_BACKEND_ABI);
	host->log(host, KVT_HOST_INFO, "a", "opened %s", "it");
	assert_int_equal(lines.level, KVT_LOG_INFO);
	assert_string_equal(lines.last, "opened it");
	host->log(host, KVT_HOST_DEBUG, "b", "detail");
	assert_int_equal(lines.count, 1);
	host->detail(&io, "put %s: %s", "a/b", "a\ncause that is too long");
	assert_string_equal(detail, "put a/b: a cause that i");
	io.detail_buffer = NULL;
	host->detail(&io, "nowhere");
	(host->fail)(host, "open %s: %d", "x", 5);
	assert_string_equal(kvt_error_detail(), "open x: 5");
	assert_int_equal(host->crc32c(0, "123456789", 9), 0xE3069283);
	assert_true(host->now_ns() > 0);
	memory = host->alloc(host, 10, 512);
	assert_int_equal((uintptr_t)memory % 512, 0);
	host->free(host, memory);
	host->free(host, NULL);
	kvt__env_fini(&env);
}

static void the_clock_never_goes_back(void **state)
{
	int64_t before = kvt__now_ns();

	(void)state;
	for (int i = 0; i < 1000; i++) {
		int64_t now = kvt__now_ns();
		assert_true(now >= before);
		before = now;
	}
}

struct options_v1 {
	size_t struct_size;
	int first, second;
};

struct options_v2 {
	size_t struct_size;
	int first, second;
	int third, fourth;
};

static void option_structs_of_other_versions_are_copied(void **state)
{
	struct options_v1 old = {sizeof(old), 1, 2}, to_old;
	struct options_v2 new = {sizeof(new), 1, 2, 3, 4}, to_new;

	(void)state;
	/* An older caller: what it does not know is zero. */
	memset(&to_new, 0xff, sizeof(to_new));
	assert_ok(kvt__copy_options(&to_new, sizeof(to_new), &old, sizeof(old), "options"));
	assert_int_equal(to_new.second, 2);
	assert_int_equal(to_new.third, 0);
	assert_int_equal(to_new.fourth, 0);
	/* A newer caller that sets nothing new. */
	new.third = new.fourth = 0;
	assert_ok(kvt__copy_options(&to_old, sizeof(to_old), &new, sizeof(old), "options"));
	assert_int_equal(to_old.first, 1);
	assert_int_equal(to_old.second, 2);
	/* And one that does. */
	new.fourth = 4;
	assert_fails(KVT_EINVAL, "options: byte 20 of 24 is not zero, expected zeros beyond the 16",
		     kvt__copy_options(&to_old, sizeof(to_old), &new, sizeof(old), "options"));
	/* No struct at all: all defaults. */
	memset(&to_old, 0xff, sizeof(to_old));
	assert_ok(kvt__copy_options(&to_old, sizeof(to_old), NULL, sizeof(old), "options"));
	assert_int_equal(to_old.first, 0);
	assert_int_equal(to_old.second, 0);
}

static void absurd_struct_sizes_are_refused(void **state)
{
	static const size_t sizes[] = {0, 1, sizeof(struct options_v1) - 1, 65537, SIZE_MAX};
	struct options_v1 options = {0}, to;

	(void)state;
	for (size_t i = 0; i < TEST_COUNT(sizes); i++) {
		options.struct_size = sizes[i];
		char *detail =
			test_format("options: struct_size is %zu, expected 16 to 65536", sizes[i]);
		assert_fails(
			KVT_EINVAL, detail,
			kvt__copy_options(&to, sizeof(to), &options, sizeof(options), "options"));
		free(detail);
	}
}

static void a_forked_child_counts_up_and_the_parent_does_not(void **state)
{
	int status = 0;
	uint32_t before;

	(void)state;
	kvt__fork_watch();
	kvt__fork_watch();
	before = kvt__fork_generation;
	pid_t child = fork();
	if (child == 0)
		_exit(kvt__fork_generation == before + 1 ? 0 : 1);
	assert_true(child > 0);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	assert_int_equal(kvt__fork_generation, before);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lines_reach_the_hook_with_their_level),
		cmocka_unit_test(lines_beyond_the_wanted_level_are_dropped),
		cmocka_unit_test(a_topic_speaks_once_a_second_and_counts_what_was_left_out),
		cmocka_unit_test(more_topics_than_slots_keep_the_limit_and_lose_no_count),
		cmocka_unit_test(a_long_line_is_cut_and_still_counts),
		cmocka_unit_test(half_a_pair_of_allocation_hooks_is_refused),
		cmocka_unit_test(all_memory_comes_from_the_hooks),
		cmocka_unit_test(without_hooks_memory_is_aligned_as_asked),
		cmocka_unit_test(backends_get_the_same_services),
		cmocka_unit_test(the_clock_never_goes_back),
		cmocka_unit_test(option_structs_of_other_versions_are_copied),
		cmocka_unit_test(absurd_struct_sizes_are_refused),
		cmocka_unit_test(a_forked_child_counts_up_and_the_parent_does_not),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
