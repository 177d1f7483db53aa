/* SPDX-License-Identifier: Apache-2.0 */
/* What the core tells a backend that it need not know, and what it takes from one that says more
 * than it must: flags of heads, part sizes, gaps that are cheaper read than left out. */
#include "chunk_scene.h"

#include <stdlib.h>
#include <string.h>

#include "retry.h"

static const struct chunk_shape small = {4, 2, {100, 300}};

/* The record of the next request of a kind, from *indexp on, which moves behind it. */
static struct fake_record next_record(const struct chunk_scene *s, size_t *indexp, uint32_t op)
{
	while (*indexp < fake_record_count(s->fake)) {
		struct fake_record record = fake_record_at(s->fake, (*indexp)++);
		if (record.op == op)
			return record;
	}
	fail_msg("no request of op %u", op);
	return (struct fake_record){0};
}

static size_t count_records(const struct chunk_scene *s, uint32_t op, uint32_t flag)
{
	size_t count = 0;

	for (size_t i = 0; i < fake_record_count(s->fake); i++) {
		struct fake_record record = fake_record_at(s->fake, i);
		count += record.op == op && (record.flags & flag);
	}
	return count;
}

static void a_head_before_a_store_says_what_would_be_stored(void **state)
{
	struct chunk_scene s;
	size_t at = 0;

	(void)state;
	chunk_scene_init(&s, NULL, &small);
	chunk_scene_open(&s);
	chunk_store(&s, 0, 4, 1, KVT_STATUS_STORED); /* config.json too */
	chunk_scene_next(&s);
	fake_records_clear(s.fake);
	chunk_store(&s, 0, 4, 1, KVT_STATUS_STORED);
	struct fake_record head = next_record(&s, &at, KVT_IO_HEAD);
	assert_int_equal(head.flags, KVT_IO_IF_CHEAP);
	assert_int_equal(head.object_bytes, model_whole_bytes(&s.model));
	assert_int_equal(next_record(&s, &at, KVT_IO_PUT).object_bytes, head.object_bytes);
	/* A store that may have to merge needs the answer. */
	chunk_scene_next(&s);
	fake_records_clear(s.fake);
	at = 0;
	chunk_store(&s, 1, 2, 1, KVT_STATUS_STORED);
	assert_int_equal(next_record(&s, &at, KVT_IO_HEAD).flags, 0);
	chunk_scene_close(&s);
}

static void only_lookups_are_content_with_an_older_answer(void **state)
{
	struct chunk_scene s;
	struct test_transfer t;
	size_t at = 0;

	(void)state;
	chunk_scene_init(&s, NULL, &small);
	chunk_scene_open(&s);
	chunk_transfer(&s, &t, 0, 4, 1);
	test_set_geometry(&s.bed, &t);
	fake_records_clear(s.fake);
	test_lookup(&s.bed, t.keys, 1, KVT_STATUS_MISS);
	assert_int_equal(next_record(&s, &at, KVT_IO_HEAD).flags, KVT_IO_CACHED_OK);
	fake_records_clear(s.fake);
	/* Stores, partial and whole, loads that find something else, and what they inspect. */
	chunk_store(&s, 0, 2, 1, KVT_STATUS_STORED);
	chunk_store(&s, 2, 1, 1, KVT_STATUS_STORED);
	chunk_store(&s, 0, 4, 1, KVT_STATUS_STORED);
	chunk_load(&s, 0, 4, 1, KVT_STATUS_LOADED, 0);
	fake_object_put(s.fake, s.name, "short", 5);
	chunk_load(&s, 0, 4, 1, KVT_STATUS_FOREIGN, KVT_EFOREIGN);
	assert_true(count_records(&s, KVT_IO_HEAD, UINT32_MAX) > 0);
	for (uint32_t op = KVT_IO_PUT; op <= KVT_IO_SWEEP; op++)
		assert_int_equal(count_records(&s, op, KVT_IO_CACHED_OK), 0);
	test_transfer_fini(&t);
	chunk_scene_close(&s);
}

/* Gets of a partial load: where they begin and end, END being the object's end. */
#define END	 UINT64_MAX
#define MAX_GETS 6
struct plan {
	const char *name;
	struct chunk_shape shape;
	uint32_t first, count;
	uint64_t gap;
	uint64_t gets[MAX_GETS][2];
};

/* The bed's parts are of 65,536 bytes. Refs of 16,000 bytes: what is wanted of them is 14,000 bytes
 * apart, and 10,000 from the trailer. */
#define THREE_REFS {16, 3, {1000, 1000, 1000}}, 4, 2
static const struct plan plans[] = {
	{"everything by one", THREE_REFS, 14001, {{4000, END}}},
	{"the trailer with the last",
	 THREE_REFS,
	 14000,
	 {{4000, 6000}, {20000, 22000}, {36000, END}}},
	{"no gap that is closed",
	 THREE_REFS,
	 10000,
	 {{4000, 6000}, {20000, 22000}, {36000, 38000}, {48000, END}}},
	{"a small gap counts as none",
	 THREE_REFS,
	 1,
	 {{4000, 6000}, {20000, 22000}, {36000, 38000}, {48000, END}}},
	{"half of it, cheap requests",
	 {16, 3, {1000, 1000, 1000}},
	 0,
	 8,
	 4000,
	 {{0, 8000}, {16000, 24000}, {32000, 40000}, {48000, END}}},
	{"half of it, dear requests: all", {16, 3, {1000, 1000, 1000}}, 0, 8, 8000, {{0, END}}},
	{"the end of each, as far as a part goes",
	 {16, 3, {3000, 3000, 3000}},
	 15,
	 1,
	 46000,
	 {{45000, 96000}, {141000, END}}},
	{"a slot of two parts, far from the trailer",
	 {4, 1, {100000}},
	 2,
	 1,
	 100001,
	 {{200000, 265536}, {265536, 300000}, {400000, END}}},
	{"a slot of two parts, beside the trailer",
	 {4, 1, {100000}},
	 3,
	 1,
	 1,
	 {{300000, 365536}, {365536, END}}},
	{"all but the first, dear requests", {16, 2, {1000, 1000}}, 1, 15, 1 << 20, {{1000, END}}},
	{"a backend that says nothing: little is read whole", THREE_REFS, 0, {{0, END}}},
	{"a backend that says nothing: one for each",
	 {16, 3, {8000, 8000, 8000}},
	 4,
	 2,
	 0,
	 {{32000, 48000}, {160000, 176000}, {288000, 304000}, {384000, END}}},
};

/* Every expected get was made, in any order, and no other. */
static void check_gets(const struct chunk_scene *s, const struct plan *plan, uint64_t object_bytes)
{
	unsigned made = 0, expected = 0;

	for (size_t i = 0; i < fake_record_count(s->fake); i++)
		made += fake_record_at(s->fake, i).op == KVT_IO_GET;
	for (int g = 0; g < MAX_GETS && plan->gets[g][1]; g++, expected++) {
		uint64_t begin = plan->gets[g][0];
		uint64_t end = plan->gets[g][1] == END ? object_bytes : plan->gets[g][1];
		bool found = false;
		for (size_t i = 0; i < fake_record_count(s->fake); i++) {
			struct fake_record r = fake_record_at(s->fake, i);
			found |= r.op == KVT_IO_GET && r.offset == (int64_t)begin &&
				 r.length == end - begin;
		}
		if (!found)
			fail_msg("no get of %llu to %llu", (unsigned long long)begin,
				 (unsigned long long)end);
	}
	assert_int_equal(made, expected);
}

static uint64_t planned_bytes(const struct plan *plan, uint64_t object_bytes)
{
	uint64_t bytes = 0;

	for (int g = 0; g < MAX_GETS && plan->gets[g][1]; g++)
		bytes += (plan->gets[g][1] == END ? object_bytes : plan->gets[g][1]) -
			 plan->gets[g][0];
	return bytes;
}

static void partial_loads_ask_for_exactly_these_ranges(void **state)
{
	(void)state;
	for (size_t p = 0; p < TEST_COUNT(plans); p++)
		for (int staged = 0; staged < 2; staged++) {
			const struct plan *plan = &plans[p];
			struct fake_config config = {.capabilities = FAKE_CAPABILITIES |
								     KVT_CAP_GET_DISCARD,
						     .merge_gap_bytes = plan->gap,
						     .max_iov = staged ? 2 : 0,
						     .rewind = staged};
			struct chunk_scene s;
			uint64_t wanted = 0, nowhere = 0;
			print_message("  %s%s\n", plan->name, staged ? ", staged" : "");
			chunk_scene_init(&s, &config, &plan->shape);
			chunk_scene_open(&s);
			chunk_model_set(&s, 0, plan->shape.blocks_per_chunk, 1);
			chunk_plant(&s);
			fake_records_clear(s.fake);
			chunk_load(&s, plan->first, plan->count, 1, KVT_STATUS_LOADED, 0);
			uint64_t object_bytes = model_whole_bytes(&s.model);
			check_gets(&s, plan, object_bytes);
			for (uint32_t r = 0; r < plan->shape.refs; r++)
				wanted += plan->count * plan->shape.ref_bytes[r];
			uint64_t dropped = planned_bytes(plan, object_bytes) - wanted -
					   (object_bytes - model_payload_bytes(&s.model));
			assert_int_equal(test_stats(s.bed.worker).dropped_bytes, dropped);
			for (size_t i = 0; i < fake_record_count(s.fake); i++)
				nowhere += fake_record_at(s.fake, i).nowhere;
			if (!staged)
				assert_int_equal(nowhere, dropped);
			chunk_scene_close(&s);
		}
}

static void without_discard_no_gap_is_read(void **state)
{
	static const struct plan plan = {
		"", {16, 3, {8000, 8000, 8000}},
		4,  2,
		0,  {{32000, 48000}, {160000, 176000}, {288000, 304000}, {384000, END}}};
	struct fake_config config = {.capabilities = FAKE_CAPABILITIES, .merge_gap_bytes = 1 << 20};
	struct chunk_scene s;

	(void)state;
	chunk_scene_init(&s, &config, &plan.shape);
	chunk_scene_open(&s);
	chunk_model_set(&s, 0, 16, 1);
	chunk_plant(&s);
	fake_records_clear(s.fake);
	chunk_load(&s, plan.first, plan.count, 1, KVT_STATUS_LOADED, 0);
	check_gets(&s, &plan, model_whole_bytes(&s.model));
	assert_int_equal(test_stats(s.bed.worker).dropped_bytes, 0);
	chunk_scene_close(&s);
}

static void damage_counts_where_it_is_wanted_and_not_in_a_gap(void **state)
{
	static const struct chunk_shape shape = {16, 3, {1000, 1000, 1000}};
	/* Payload offsets of what blocks 4 and 5 are read with. */
	static const struct {
		uint64_t byte;
		bool wanted;
	} flips[] = {{4000, true},   {5999, true},   {6000, false},  {19999, false},
		     {20000, true},  {21999, true},  {22000, false}, {37999, true},
		     {38000, false}, {47999, false}, {3999, false}};
	struct fake_config config = {.capabilities = FAKE_CAPABILITIES | KVT_CAP_GET_DISCARD,
				     .merge_gap_bytes = 20000};

	(void)state;
	for (size_t f = 0; f < TEST_COUNT(flips); f++)
		for (int staged = 0; staged < 2; staged++) {
			struct chunk_scene s;
			config.memory_alignment = staged ? 4096 : 0;
			chunk_scene_init(&s, &config, &shape);
			chunk_scene_open(&s);
			chunk_model_set(&s, 0, 16, 1);
			chunk_plant(&s);
			fake_object_flip(s.fake, s.name, flips[f].byte);
			chunk_load(&s, 4, 2, 1,
				   flips[f].wanted ? KVT_STATUS_CORRUPT : KVT_STATUS_LOADED,
				   flips[f].wanted ? KVT_ECORRUPT : 0);
			chunk_scene_close(&s);
		}
}

static void parts_of_partial_objects_load_across_gaps(void **state)
{
	struct test_random random = {test_seed(7)};

	(void)state;
	for (int round = 0; round < 40; round++) {
		struct chunk_shape shape = {8, 1 + round % 4, {0}};
		for (uint32_t r = 0; r < shape.refs; r++)
			shape.ref_bytes[r] = 1 + test_random_below(&random, 20000);
		struct fake_config config = {
			.capabilities = FAKE_CAPABILITIES | KVT_CAP_GET_DISCARD,
			.merge_gap_bytes = UINT64_C(1) << test_random_below(&random, 20),
			.memory_alignment = round % 3 ? 1 : 512,
			.piece_bytes = 777};
		struct chunk_scene s;
		chunk_scene_init(&s, &config, &shape);
		chunk_scene_open(&s);
		chunk_model_set(&s, 2, 5, 1);
		chunk_plant(&s);
		for (uint32_t first = 0; first < 8; first++)
			for (uint32_t count = 1; first + count <= 8; count++) {
				bool there = first >= 2 && first + count <= 7;
				chunk_load(&s, first, count, 1,
					   there ? KVT_STATUS_LOADED : KVT_STATUS_MISSING,
					   there ? 0 : KVT_ENOENT);
			}
		chunk_scene_close(&s);
	}
}

static void parts_are_as_large_as_the_backend_likes(void **state)
{
	static const struct chunk_shape shape = {1, 1, {100000}};
	static const struct {
		uint64_t backend, caller, most; /* bytes */
	} cases[] = {{0, 0, 104096},
		     {65536, 0, 65536},
		     {65536, 32768, 32768},
		     {32768 + 4095, 0, 32768},
		     {1, 0, 4096}};

	(void)state;
	for (size_t i = 0; i < TEST_COUNT(cases); i++) {
		struct fake_config config = {.capabilities = FAKE_CAPABILITIES,
					     .default_part_bytes = cases[i].backend};
		struct chunk_scene s;
		uint64_t longest = 0;
		chunk_scene_init(&s, &config, &shape);
		s.bed.worker_options.part_bytes = cases[i].caller;
		s.bed.worker_options.staging_bytes = UINT64_C(32) << 20;
		chunk_scene_open(&s);
		chunk_store(&s, 0, 1, 1, KVT_STATUS_STORED);
		for (size_t r = 0; r < fake_record_count(s.fake); r++) {
			struct fake_record record = fake_record_at(s.fake, r);
			if ((record.op == KVT_IO_PUT || record.op == KVT_IO_PART) &&
			    record.length > longest)
				longest = record.length;
		}
		/* The trailer rides along, and extents are about equal. */
		assert_in_range(longest, cases[i].most / 2, cases[i].most);
		chunk_scene_close(&s);
	}
}

/* So that it is not waited for as long as a part: it comes after the others when it is written, and
 * before them when it is read. */
static void a_small_trailer_of_a_large_object_is_moved_alone(void **state)
{
	static const struct chunk_shape shape = {1, 1, {262144 + 5000}};
	struct fake_config config = {.capabilities = FAKE_CAPABILITIES,
				     .default_part_bytes = 65536};
	struct chunk_scene s;
	struct fake_record first = {0}, last = {0};
	unsigned parts = 0;

	(void)state;
	chunk_scene_init(&s, &config, &shape);
	chunk_scene_open(&s);
	chunk_store(&s, 0, 1, 1, KVT_STATUS_STORED);
	for (size_t r = 0; r < fake_record_count(s.fake); r++) {
		struct fake_record record = fake_record_at(s.fake, r);
		if (record.op != KVT_IO_PART)
			continue;
		parts++;
		if ((uint64_t)record.offset + record.length < record.object_bytes)
			assert_int_equal(record.length, 53248); /* a fifth, in pages */
		else
			last = record;
	}
	assert_int_equal(parts, 6);
	assert_in_range(last.length, 1, 5 * 4096);
	fake_records_clear(s.fake);
	chunk_load(&s, 0, 1, 1, KVT_STATUS_LOADED, 0);
	for (size_t r = 0; r < fake_record_count(s.fake) && !first.op; r++)
		if (fake_record_at(s.fake, r).op == KVT_IO_GET)
			first = fake_record_at(s.fake, r);
	assert_int_equal(first.offset, last.offset);
	assert_int_equal(first.length, last.length);
	chunk_scene_close(&s);
}

static void a_retry_waits_as_long_as_the_server_asks(void **state)
{
	struct fake_rule rule = {.ops = FAKE_OP(KVT_IO_PUT),
				 .name = ".bin",
				 .times = 1,
				 .action = FAKE_FAIL,
				 .error = KVT_ETHROTTLED,
				 .retry_after_ns = 150000000};
	struct chunk_scene s;
	size_t at = 0;

	(void)state;
	chunk_scene_init(&s, NULL, &small);
	chunk_scene_open(&s);
	fake_rule_add(s.fake, &rule);
	chunk_store(&s, 0, 4, 1, KVT_STATUS_STORED);
	struct fake_record first = next_record(&s, &at, KVT_IO_PUT);
	while (first.result != KVT_ETHROTTLED)
		first = next_record(&s, &at, KVT_IO_PUT);
	struct fake_record second = next_record(&s, &at, KVT_IO_PUT);
	assert_string_equal(second.name, first.name);
	assert_true(second.at_ns - first.at_ns >= 150000000);
	fake_rule_remove(s.fake, &rule);
	chunk_scene_close(&s);
}

static void a_server_that_asks_for_more_time_than_there_is_fails_at_once(void **state)
{
	struct fake_rule rule = {.ops = FAKE_OP(KVT_IO_PUT),
				 .name = ".bin",
				 .action = FAKE_FAIL,
				 .error = KVT_ETHROTTLED,
				 .retry_after_ns = INT64_C(3600000000000)};
	struct chunk_scene s;

	(void)state;
	chunk_scene_init(&s, NULL, &small);
	s.bed.worker_options.store_timeout_ms = 25000;
	chunk_scene_open(&s);
	fake_rule_add(s.fake, &rule);
	chunk_store(&s, 0, 4, 1, KVT_STATUS_FAILED);
	assert_int_equal(fake_rule_hits(s.fake, &rule), 1);
	fake_rule_remove(s.fake, &rule);
	chunk_scene_close(&s);
}

static void half_a_minute_is_the_longest_that_a_server_may_ask_for(void **state)
{
	const struct kvt_worker_options options = {.retry_base_ms = 1000, .retry_max_ms = 1000};
	const int64_t second = 1000000000, now = 5 * second;
	struct kvt__retry retry;

	(void)state;
	kvt__retry_init(&retry, &options);
	for (int i = 0; i < 20; i++) {
		int64_t at = kvt__retry_at(&retry, KVT_ESERVER, 1, now, 3600 * second, INT64_MAX);
		assert_in_range(at, now + 30 * second, now + 31 * second + 1);
		at = kvt__retry_at(&retry, KVT_ESERVER, 1, now, -7, INT64_MAX);
		assert_in_range(at, now, now + second + 1);
	}
	assert_int_equal(kvt__retry_at(&retry, KVT_ESERVER, 1, now, 2 * second, now + second), 0);
	/* Only what is worth another try has one. */
	assert_int_equal(kvt__retry_at(&retry, KVT_EACCES, 1, now, second, INT64_MAX), 0);
}

static void putting_parts_together_may_take_longer_than_other_requests(void **state)
{
	static const struct chunk_shape large = {4, 1, {50000}};
	const int64_t ms = 1000000;
	struct chunk_scene s;
	size_t at = 0;

	(void)state;
	chunk_scene_init(&s, NULL, &large);
	s.bed.worker_options.operation_timeout_ms = 60000;
	chunk_scene_open(&s);
	chunk_store(&s, 0, 4, 1, KVT_STATUS_STORED);
	struct fake_record part = next_record(&s, &at, KVT_IO_PART);
	assert_in_range(part.deadline_ns - part.at_ns, 0, 60000 * ms);
	struct fake_record commit = next_record(&s, &at, KVT_IO_COMMIT);
	assert_in_range(commit.deadline_ns - commit.at_ns, 180000 * ms, 240000 * ms);
	chunk_scene_close(&s);
}

static void what_a_backend_has_learnt_is_shown(void **state)
{
	struct chunk_scene s;

	(void)state;
	chunk_scene_init(&s, NULL, &small);
	chunk_scene_open(&s);
	assert_string_equal(test_stats(s.bed.worker).backend, "");
	fake_describe_as(s.fake, "exists_check=head\nclock_offset_s=-3");
	assert_string_equal(test_stats(s.bed.worker).backend,
			    "exists_check=head clock_offset_s=-3");
	/* As much of it as there is room for, and always an end. */
	char *longer = test_format("%0400d", 7);
	fake_describe_as(s.fake, longer);
	struct kvt_stats stats = test_stats(s.bed.worker);
	assert_int_equal(strlen(stats.backend), sizeof(stats.backend) - 1);
	free(longer);
	chunk_scene_close(&s);
}

static void note_learnt(void *context, const char *name, const char *value, int error)
{
	(void)error;
	if (strcmp(name, "learnt") == 0)
		*(char **)context = test_format("%s", value);
}

static void a_probe_ends_with_what_the_backend_has_learnt(void **state)
{
	struct test_bed bed;
	struct fake_store *fake = fake_store_create(NULL);
	char *learnt = NULL, *uri = test_format("fault+%s", fake_store_uri(fake));

	(void)state;
	fake_describe_as(fake, "region=eu-1");
	test_bed_init(&bed);
	test_bed_open_store(&bed, uri); /* wrappers hand it through */
	assert_ok(kvt_store_probe(bed.store, note_learnt, &learnt));
	assert_non_null(learnt);
	assert_string_equal(learnt, "region=eu-1");
	assert_ok(kvt_store_close(bed.store));
	bed.store = NULL;
	assert_null(fake_violation(fake));
	fake_store_destroy(fake);
	free(learnt);
	free(uri);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_head_before_a_store_says_what_would_be_stored),
		cmocka_unit_test(only_lookups_are_content_with_an_older_answer),
		cmocka_unit_test(partial_loads_ask_for_exactly_these_ranges),
		cmocka_unit_test(without_discard_no_gap_is_read),
		cmocka_unit_test(damage_counts_where_it_is_wanted_and_not_in_a_gap),
		cmocka_unit_test(parts_of_partial_objects_load_across_gaps),
		cmocka_unit_test(parts_are_as_large_as_the_backend_likes),
		cmocka_unit_test(a_small_trailer_of_a_large_object_is_moved_alone),
		cmocka_unit_test(a_retry_waits_as_long_as_the_server_asks),
		cmocka_unit_test(a_server_that_asks_for_more_time_than_there_is_fails_at_once),
		cmocka_unit_test(half_a_minute_is_the_longest_that_a_server_may_ask_for),
		cmocka_unit_test(putting_parts_together_may_take_longer_than_other_requests),
		cmocka_unit_test(what_a_backend_has_learnt_is_shown),
		cmocka_unit_test(a_probe_ends_with_what_the_backend_has_learnt),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
