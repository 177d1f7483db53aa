/* SPDX-License-Identifier: Apache-2.0 */
/* What the core tells a backend that it need not know, and what it takes from one that says more
 * than it must: flags of heads, part sizes, gaps that are cheaper read than left out. */
#include "chunk_scene.h"

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

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_head_before_a_store_says_what_would_be_stored),
		cmocka_unit_test(only_lookups_are_content_with_an_older_answer),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
