/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of names: what is remembered and for how long, what makes room, which answers come too
 * late, and that threads may share it. */
#include "../backends/s3/cache.h"

#include <stdio.h>
#include <string.h>

#include "../backends/s3/siphash.h"
#include "support.h"
#include "testhost.h"

#define ENTRIES 1024u
#define HIT_MS	30000u
#define MISS_MS 1000u
#define NS_A_MS INT64_C(1000000)

static struct testhost host;
static struct s3_cache *cache;
static atomic_llong clock_ns;

static int64_t fake_now_ns(void)
{
	return atomic_load(&clock_ns);
}

static void pass_ms(int64_t ms)
{
	atomic_fetch_add(&clock_ns, ms * NS_A_MS);
}

static int set_up(void **state)
{
	(void)state;
	testhost_init(&host);
	host.host.now_ns = fake_now_ns;
	atomic_store(&clock_ns, 1000);
	cache = kvt__s3_cache_create(&host.host, ENTRIES, HIT_MS, MISS_MS);
	return cache == NULL ? -1 : 0;
}

static int tear_down(void **state)
{
	(void)state;
	kvt__s3_cache_destroy(cache);
	cache = NULL;
	return atomic_load(&host.live) == 0 ? 0 : -1;
}

/* An object of `bytes` bytes; its version follows from them. */
static struct kvt_object_info info_of(uint64_t bytes)
{
	struct kvt_object_info info = {.object_bytes = bytes, .age_ns = 5, .access_age_ns = 6};

	info.version.bytes =
		(uint32_t)snprintf((char *)info.version.value, sizeof(info.version.value),
				   "\"etag-%llu\"", (unsigned long long)bytes);
	return info;
}

static void learn_hit(const char *name, uint64_t ticket, uint64_t bytes)
{
	struct kvt_object_info info = info_of(bytes);

	kvt__s3_cache_hit(cache, name, ticket, &info);
}

static void learn_stored(const char *name, uint64_t ticket, uint64_t bytes)
{
	struct kvt_object_info info = info_of(bytes);

	kvt__s3_cache_stored(cache, name, ticket, &info);
}

static bool is_info_of(const struct kvt_object_info *info, uint64_t bytes)
{
	struct kvt_object_info expected = info_of(bytes);

	return info->object_bytes == bytes && info->age_ns == -1 && info->access_age_ns == -1 &&
	       info->version.bytes == expected.version.bytes &&
	       memcmp(info->version.value, expected.version.value, expected.version.bytes) == 0;
}

static enum s3_cache_answer look(const char *name)
{
	struct kvt_object_info info;

	return kvt__s3_cache_look(cache, name, &info);
}

static void assert_hit(const char *name, uint64_t bytes)
{
	struct kvt_object_info info;

	memset(&info, 0x5a, sizeof(info));
	assert_int_equal(kvt__s3_cache_look(cache, name, &info), S3_CACHE_HIT);
	assert_true(is_info_of(&info, bytes));
}

static void the_hash_is_siphash(void **state)
{
	static const struct {
		size_t bytes;
		uint64_t low, high;
	} cases[] = {
		{0, UINT64_C(0xe6a825ba047f81a3), UINT64_C(0x930255c71472f66d)},
		{1, UINT64_C(0x44af996bd8c187da), UINT64_C(0x45fc229b11597634)},
		{7, UINT64_C(0x53c1dbd8beebf1a1), UINT64_C(0x3982f01fa64ab8c0)},
		{8, UINT64_C(0x61f55862baa9623b), UINT64_C(0xb49714f364e2830f)},
		{15, UINT64_C(0x11a8b03399e99354), UINT64_C(0xd9c3cf970fec087e)},
		{16, UINT64_C(0xbb54b067caa4e26e), UINT64_C(0x77052385bf1533fd)},
		{63, UINT64_C(0x4a83502f77d15051), UINT64_C(0x7cbd3f979a063e50)},
		{255, UINT64_C(0x8e5f162875b69b1c), UINT64_C(0xab0e9b79e3488246)},
	};
	/* bytes 0, 1, 2, ... 15 */
	static const uint64_t key[2] = {UINT64_C(0x0706050403020100), UINT64_C(0x0f0e0d0c0b0a0908)};
	uint8_t text[255];

	(void)state;
	for (size_t i = 0; i < sizeof(text); i++)
		text[i] = (uint8_t)i;
	for (size_t i = 0; i < TEST_COUNT(cases); i++) {
		struct s3_hash hash = kvt__s3_siphash(key, text, cases[i].bytes);

		assert_int_equal(hash.low, cases[i].low);
		assert_int_equal(hash.high, cases[i].high);
	}
}

static void what_was_learnt_is_remembered_for_its_time(void **state)
{
	(void)state;
	assert_int_equal(look("a"), S3_CACHE_UNKNOWN);
	learn_hit("a", kvt__s3_cache_ticket(cache), 100);
	kvt__s3_cache_miss(cache, "b", kvt__s3_cache_ticket(cache));
	assert_hit("a", 100);
	assert_int_equal(look("b"), S3_CACHE_MISS);
	assert_int_equal(look("c"), S3_CACHE_UNKNOWN);
	assert_int_equal(look("aa"), S3_CACHE_UNKNOWN);
	assert_int_equal(look(""), S3_CACHE_UNKNOWN);

	pass_ms(MISS_MS - 1);
	assert_int_equal(look("b"), S3_CACHE_MISS);
	pass_ms(1);
	assert_int_equal(look("b"), S3_CACHE_UNKNOWN);
	assert_hit("a", 100);
	pass_ms(HIT_MS - MISS_MS - 1);
	assert_hit("a", 100);
	pass_ms(1);
	assert_int_equal(look("a"), S3_CACHE_UNKNOWN);
}

static void a_newer_answer_replaces_an_older_one(void **state)
{
	uint64_t first = kvt__s3_cache_ticket(cache), second = kvt__s3_cache_ticket(cache);

	(void)state;
	assert_true(second > first);
	kvt__s3_cache_miss(cache, "a", first);
	learn_hit("a", second, 7);
	assert_hit("a", 7);
	learn_hit("a", kvt__s3_cache_ticket(cache), 8);
	assert_hit("a", 8);
	kvt__s3_cache_miss(cache, "a", kvt__s3_cache_ticket(cache));
	assert_int_equal(look("a"), S3_CACHE_MISS);
	/* The time of the last one counts. */
	pass_ms(MISS_MS / 2);
	kvt__s3_cache_miss(cache, "a", kvt__s3_cache_ticket(cache));
	pass_ms(MISS_MS / 2);
	assert_int_equal(look("a"), S3_CACHE_MISS);
}

static void an_answer_to_an_earlier_ticket_comes_too_late(void **state)
{
	uint64_t first = kvt__s3_cache_ticket(cache), second = kvt__s3_cache_ticket(cache);

	(void)state;
	learn_hit("a", second, 7);
	kvt__s3_cache_miss(cache, "a", first);
	assert_hit("a", 7);
	learn_hit("a", first, 6);
	assert_hit("a", 7);
	/* Also when the later one is believed no more. */
	pass_ms(HIT_MS);
	kvt__s3_cache_miss(cache, "a", first);
	assert_int_equal(look("a"), S3_CACHE_UNKNOWN);
}

static void a_miss_that_was_asked_before_a_store_ended_does_not_count(void **state)
{
	uint64_t before = kvt__s3_cache_ticket(cache), put = kvt__s3_cache_ticket(cache);
	uint64_t during = kvt__s3_cache_ticket(cache);

	(void)state;
	learn_stored("a", put, 9);
	kvt__s3_cache_miss(cache, "a", before);
	assert_hit("a", 9);
	kvt__s3_cache_miss(cache, "a", during);
	assert_hit("a", 9);
	kvt__s3_cache_miss(cache, "a", kvt__s3_cache_ticket(cache));
	assert_int_equal(look("a"), S3_CACHE_MISS);
}

static void a_store_outdoes_a_miss_that_was_asked_while_it_ran(void **state)
{
	uint64_t put = kvt__s3_cache_ticket(cache);

	(void)state;
	kvt__s3_cache_miss(cache, "a", kvt__s3_cache_ticket(cache));
	learn_stored("a", put, 9);
	assert_hit("a", 9);
}

static void what_is_forgotten_is_unknown_and_older_answers_stay_out(void **state)
{
	uint64_t head = kvt__s3_cache_ticket(cache), put = kvt__s3_cache_ticket(cache);

	(void)state;
	learn_hit("a", kvt__s3_cache_ticket(cache), 7);
	kvt__s3_cache_forget(cache, "a");
	assert_int_equal(look("a"), S3_CACHE_UNKNOWN);
	learn_hit("a", head, 7);
	assert_int_equal(look("a"), S3_CACHE_UNKNOWN);
	kvt__s3_cache_miss(cache, "a", head);
	assert_int_equal(look("a"), S3_CACHE_UNKNOWN);
	learn_stored("a", put, 7);
	assert_int_equal(look("a"), S3_CACHE_UNKNOWN);
	learn_hit("a", kvt__s3_cache_ticket(cache), 8);
	assert_hit("a", 8);

	/* A name of which nothing is known can be forgotten all the same. */
	head = kvt__s3_cache_ticket(cache);
	kvt__s3_cache_forget(cache, "b");
	learn_hit("b", head, 7);
	assert_int_equal(look("b"), S3_CACHE_UNKNOWN);
}

static void the_oldest_makes_room(void **state)
{
	static const char *const names[] = {"a", "b", "c", "d", "e", "f", "g", "h"};
	uint64_t early = kvt__s3_cache_ticket(cache);

	(void)state;
	kvt__s3_cache_destroy(cache);
	cache = kvt__s3_cache_create(&host.host, TEST_COUNT(names), HIT_MS, MISS_MS);
	assert_non_null(cache);
	for (size_t i = 0; i < TEST_COUNT(names); i++)
		learn_hit(names[i], kvt__s3_cache_ticket(cache), i);
	for (size_t i = 0; i < TEST_COUNT(names); i++)
		assert_hit(names[i], i);
	learn_hit("a", kvt__s3_cache_ticket(cache), 0);
	learn_hit("new", kvt__s3_cache_ticket(cache), 100);
	assert_hit("new", 100);
	assert_hit("a", 0);
	assert_int_equal(look("b"), S3_CACHE_UNKNOWN);
	/* What was known of it is newer than this. */
	kvt__s3_cache_miss(cache, "b", early);
	assert_int_equal(look("b"), S3_CACHE_UNKNOWN);

	/* One whose time is over goes before older ones. */
	kvt__s3_cache_miss(cache, "short", kvt__s3_cache_ticket(cache));
	assert_int_equal(look("c"), S3_CACHE_UNKNOWN);
	pass_ms(MISS_MS);
	learn_hit("last", kvt__s3_cache_ticket(cache), 101);
	assert_hit("last", 101);
	assert_hit("d", 3);
	assert_int_equal(look("short"), S3_CACHE_UNKNOWN);
}

static void many_names_need_no_more_memory(void **state)
{
	long allocations = atomic_load(&host.allocations);
	uint32_t known = 0;
	char name[32];

	(void)state;
	for (uint32_t i = 0; i < 20 * ENTRIES; i++) {
		(void)snprintf(name, sizeof(name), "name-%u", i);
		learn_hit(name, kvt__s3_cache_ticket(cache), i);
		assert_hit(name, i);
	}
	for (uint32_t i = 0; i < 20 * ENTRIES; i++) {
		struct kvt_object_info info;

		(void)snprintf(name, sizeof(name), "name-%u", i);
		if (kvt__s3_cache_look(cache, name, &info) == S3_CACHE_HIT) {
			assert_true(is_info_of(&info, i));
			known++;
		}
	}
	assert_int_equal(atomic_load(&host.allocations), allocations);
	assert_true(known <= ENTRIES && known > ENTRIES * 9 / 10);
}

static void half_full_it_forgets_next_to_nothing(void **state)
{
	uint32_t known = 0;
	char name[32];

	(void)state;
	for (uint32_t i = 0; i < ENTRIES / 2; i++) {
		(void)snprintf(name, sizeof(name), "name-%u", i);
		learn_hit(name, kvt__s3_cache_ticket(cache), i);
	}
	for (uint32_t i = 0; i < ENTRIES / 2; i++) {
		(void)snprintf(name, sizeof(name), "name-%u", i);
		known += look(name) == S3_CACHE_HIT;
	}
	assert_true(known > ENTRIES / 2 * 9 / 10);
}

static void without_entries_or_time_nothing_is_kept(void **state)
{
	static const struct {
		uint32_t entries, hit_ms, miss_ms;
		enum s3_cache_answer hit, miss;
	} cases[] = {
		{0, 1000, 1000, S3_CACHE_UNKNOWN, S3_CACHE_UNKNOWN},
		{64, 0, 1000, S3_CACHE_UNKNOWN, S3_CACHE_MISS},
		{64, 1000, 0, S3_CACHE_HIT, S3_CACHE_UNKNOWN},
		{1, 1000, 1000, S3_CACHE_HIT, S3_CACHE_UNKNOWN},
	};

	(void)state;
	for (size_t i = 0; i < TEST_COUNT(cases); i++) {
		kvt__s3_cache_destroy(cache);
		cache = kvt__s3_cache_create(&host.host, cases[i].entries, cases[i].hit_ms,
					     cases[i].miss_ms);
		assert_non_null(cache);
		kvt__s3_cache_miss(cache, "miss", kvt__s3_cache_ticket(cache));
		learn_hit("hit", kvt__s3_cache_ticket(cache), 5);
		assert_int_equal(look("hit"), cases[i].hit);
		assert_int_equal(look("miss"), cases[i].miss);
		kvt__s3_cache_forget(cache, "hit");
		assert_int_equal(look("hit"), S3_CACHE_UNKNOWN);
	}
}

static void an_answer_that_is_not_kept_ends_what_was_believed(void **state)
{
	struct kvt_object_info info = info_of(5);

	(void)state;
	learn_hit("a", kvt__s3_cache_ticket(cache), 4);
	info.object_bytes = KVT_BYTES_UNKNOWN;
	kvt__s3_cache_hit(cache, "a", kvt__s3_cache_ticket(cache), &info);
	assert_int_equal(look("a"), S3_CACHE_UNKNOWN);

	kvt__s3_cache_miss(cache, "a", kvt__s3_cache_ticket(cache));
	info = info_of(5);
	memset(info.version.value, 'x', sizeof(info.version.value));
	info.version.bytes = S3_CACHE_VERSION_BYTES;
	kvt__s3_cache_stored(cache, "a", kvt__s3_cache_ticket(cache), &info);
	assert_int_equal(look("a"), S3_CACHE_HIT);
	info.version.bytes++;
	kvt__s3_cache_stored(cache, "a", kvt__s3_cache_ticket(cache), &info);
	assert_int_equal(look("a"), S3_CACHE_UNKNOWN);

	/* Without a version it is a hit none the less. */
	info.version.bytes = 0;
	kvt__s3_cache_hit(cache, "a", kvt__s3_cache_ticket(cache), &info);
	assert_int_equal(look("a"), S3_CACHE_HIT);
}

static void the_share_of_duplicates_is_that_of_the_last_stores(void **state)
{
	(void)state;
	for (int i = 0; i < 15; i++)
		kvt__s3_cache_count_store(cache, true);
	assert_int_equal(kvt__s3_cache_duplicates(cache), 0);
	kvt__s3_cache_count_store(cache, true);
	assert_int_equal(kvt__s3_cache_duplicates(cache), 256);
	for (int i = 0; i < 16; i++)
		kvt__s3_cache_count_store(cache, false);
	assert_int_equal(kvt__s3_cache_duplicates(cache), 128);
	for (int i = 0; i < 256 - 32; i++)
		kvt__s3_cache_count_store(cache, false);
	assert_int_equal(kvt__s3_cache_duplicates(cache), 16);
	for (int i = 0; i < 10; i++)
		kvt__s3_cache_count_store(cache, false);
	assert_int_equal(kvt__s3_cache_duplicates(cache), 6);
	for (int i = 0; i < 3000; i++)
		kvt__s3_cache_count_store(cache, i % 4 == 0);
	assert_int_equal(kvt__s3_cache_duplicates(cache), 64);
	for (int i = 0; i < 256; i++)
		kvt__s3_cache_count_store(cache, true);
	assert_int_equal(kvt__s3_cache_duplicates(cache), 256);
}

static void too_little_memory_leaves_nothing_behind(void **state)
{
	long needed, live = atomic_load(&host.live);
	struct s3_cache *other;

	(void)state;
	needed = -atomic_load(&host.allocations);
	other = kvt__s3_cache_create(&host.host, ENTRIES, HIT_MS, MISS_MS);
	needed += atomic_load(&host.allocations);
	assert_non_null(other);
	kvt__s3_cache_destroy(other);
	assert_true(needed > 0);
	for (long i = 1; i <= needed; i++) {
		atomic_store(&host.fail_at, atomic_load(&host.allocations) + i);
		assert_null(kvt__s3_cache_create(&host.host, ENTRIES, HIT_MS, MISS_MS));
		assert_int_equal(atomic_load(&host.live), live);
	}
	atomic_store(&host.fail_at, 0);
	kvt__s3_cache_destroy(NULL);
}

/* ---- Threads ---- */

#define THREADS 4u
#define ROUNDS	20000u
#define NAMES	96u

struct worker {
	pthread_t thread;
	uint64_t seed;
	uint64_t wrong, hits, misses;
};

/* A name's length is always the same, so that a hit can be checked. Each thread has a name of its
 * own too, which only it changes. */
static void *work(void *argument)
{
	struct worker *worker = argument;
	struct test_random random = {worker->seed};
	char name[32], own[32];

	(void)snprintf(own, sizeof(own), "own-%llu", (unsigned long long)worker->seed);
	for (uint32_t i = 0; i < ROUNDS; i++) {
		uint64_t n = test_random_below(&random, NAMES);
		uint64_t ticket = kvt__s3_cache_ticket(cache);
		struct kvt_object_info info;

		(void)snprintf(name, sizeof(name), "name-%llu", (unsigned long long)n);
		switch (test_random_below(&random, 8)) {
		case 0:
			learn_hit(name, ticket, n);
			break;
		case 1:
			kvt__s3_cache_miss(cache, name, ticket);
			break;
		case 2:
			learn_stored(name, ticket, n);
			break;
		case 3:
			kvt__s3_cache_forget(cache, name);
			break;
		case 4:
			kvt__s3_cache_count_store(cache, n % 2 == 0);
			if (kvt__s3_cache_duplicates(cache) > 256)
				worker->wrong++;
			break;
		case 5:
			learn_stored(own, ticket, n);
			kvt__s3_cache_miss(cache, own, ticket);
			if (kvt__s3_cache_look(cache, own, &info) == S3_CACHE_MISS)
				worker->wrong++;
			kvt__s3_cache_forget(cache, own);
			learn_hit(own, ticket, n);
			if (kvt__s3_cache_look(cache, own, &info) != S3_CACHE_UNKNOWN)
				worker->wrong++;
			pass_ms(1);
			break;
		default:
			switch (kvt__s3_cache_look(cache, name, &info)) {
			case S3_CACHE_HIT:
				worker->hits++;
				if (!is_info_of(&info, n))
					worker->wrong++;
				break;
			case S3_CACHE_MISS:
				worker->misses++;
				break;
			case S3_CACHE_UNKNOWN:
			default:
				break;
			}
		}
	}
	return NULL;
}

static void threads_share_it(void **state)
{
	struct worker workers[THREADS];
	uint64_t seed = test_seed(20), hits = 0, misses = 0;

	(void)state;
	kvt__s3_cache_destroy(cache);
	/* Too small for all names. */
	cache = kvt__s3_cache_create(&host.host, NAMES / 2, HIT_MS, MISS_MS);
	assert_non_null(cache);
	for (uint32_t i = 0; i < THREADS; i++) {
		workers[i] = (struct worker){.seed = seed + i};
		assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
	}
	for (uint32_t i = 0; i < THREADS; i++)
		assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
	for (uint32_t i = 0; i < THREADS; i++) {
		assert_int_equal(workers[i].wrong, 0);
		hits += workers[i].hits;
		misses += workers[i].misses;
	}
	assert_true(hits > 0 && misses > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_hash_is_siphash),
		cmocka_unit_test_setup_teardown(what_was_learnt_is_remembered_for_its_time, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(a_newer_answer_replaces_an_older_one, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(an_answer_to_an_earlier_ticket_comes_too_late,
						set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			a_miss_that_was_asked_before_a_store_ended_does_not_count, set_up,
			tear_down),
		cmocka_unit_test_setup_teardown(a_store_outdoes_a_miss_that_was_asked_while_it_ran,
						set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			what_is_forgotten_is_unknown_and_older_answers_stay_out, set_up, tear_down),
		cmocka_unit_test_setup_teardown(the_oldest_makes_room, set_up, tear_down),
		cmocka_unit_test_setup_teardown(many_names_need_no_more_memory, set_up, tear_down),
		cmocka_unit_test_setup_teardown(half_full_it_forgets_next_to_nothing, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(without_entries_or_time_nothing_is_kept, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(an_answer_that_is_not_kept_ends_what_was_believed,
						set_up, tear_down),
		cmocka_unit_test_setup_teardown(the_share_of_duplicates_is_that_of_the_last_stores,
						set_up, tear_down),
		cmocka_unit_test_setup_teardown(too_little_memory_leaves_nothing_behind, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(threads_share_it, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
