/* SPDX-License-Identifier: Apache-2.0 */
/* Loads of objects that are damaged, foreign or somebody else's: the status of each kind, what is
 * removed and what never is, and that the next store repairs it. */
#include "chunk_scene.h"

#include <stdlib.h>
#include <string.h>

static const struct chunk_shape shape = {4, 2, {100, 300}};
static const struct chunk_shape large = {4, 2, {30000, 50001}};

#define MINUTE_NS (INT64_C(60) * 1000000000)

/* An object that can be changed and planted. */
struct object {
	uint8_t *bytes;
	size_t count;
};

static uint8_t *tail_of(struct object *o)
{
	return o->bytes + o->count - 64;
}

static void resize(struct object *o, size_t count)
{
	uint8_t *bytes = calloc(1, count + 1);

	if (!bytes)
		abort();
	memcpy(bytes, o->bytes, count < o->count ? count : o->count);
	free(o->bytes);
	o->bytes = bytes;
	o->count = count;
}

typedef void (*damage_fn)(struct object *o, const struct model_object *model);

static void nothing(struct object *o, const struct model_object *m)
{
	(void)o, (void)m;
}
static void flip_wanted(struct object *o, const struct model_object *m)
{
	o->bytes[model_slot_offset(m, 1, 2) + 7] ^= 1;
}
static void flip_table(struct object *o, const struct model_object *m)
{
	o->bytes[model_payload_bytes(m) + 1] ^= 1;
}
static void wrong_slot_crc(struct object *o, const struct model_object *m)
{
	/* Slot 2 of ref 0, under a right checksum of the trailer. */
	o->bytes[model_payload_bytes(m) + 8] ^= 1;
	model_reseal(o->bytes, o->count);
}
static void flip_tail_crc(struct object *o, const struct model_object *m)
{
	(void)m;
	tail_of(o)[56] ^= 1;
}
static void no_magic(struct object *o, const struct model_object *m)
{
	(void)m;
	tail_of(o)[3] ^= 1;
}
static void junk(struct object *o, const struct model_object *m)
{
	(void)m;
	test_fill(o->bytes, o->count, 3);
}
static void short_by_one(struct object *o, const struct model_object *m)
{
	(void)m;
	resize(o, o->count - 1);
}
static void empty(struct object *o, const struct model_object *m)
{
	(void)m;
	resize(o, 0);
}
static void tiny(struct object *o, const struct model_object *m)
{
	(void)m;
	resize(o, 63);
}
static void payload_only(struct object *o, const struct model_object *m)
{
	resize(o, model_payload_bytes(m));
}
static void longer(struct object *o, const struct model_object *m)
{
	(void)m;
	resize(o, o->count + 100);
}
static void longer_by_a_page(struct object *o, const struct model_object *m)
{
	(void)m;
	resize(o, o->count + 4096);
}
static void other_digest(struct object *o, const struct model_object *m)
{
	(void)m;
	tail_of(o)[50] ^= 1;
	model_reseal(o->bytes, o->count);
}
static void other_rank(struct object *o, const struct model_object *m)
{
	(void)m;
	model_put_u32(tail_of(o) + 28, 9);
	model_reseal(o->bytes, o->count);
}

/* A valid object of something else. */
static void rewrite(struct object *o, const struct model_object *m, uint32_t blocks, uint32_t refs,
		    uint64_t ref_0, uint64_t ref_1, uint32_t group, uint32_t hash_bytes,
		    uint8_t hash_0)
{
	struct model_object other;
	const uint64_t sizes[3] = {ref_0, ref_1, 1};

	model_init(&other, blocks, refs, sizes);
	memcpy(other.hash, m->hash, 64);
	other.hash[0] ^= hash_0;
	other.hash_bytes = hash_bytes;
	other.group = group;
	other.rank = m->rank;
	memcpy(other.digest, m->digest, 8);
	memset(other.present, 1, sizeof(other.present));
	free(o->bytes);
	o->bytes = model_write(&other, &o->count);
	model_fini(&other);
}
static void other_key(struct object *o, const struct model_object *m)
{
	rewrite(o, m, 4, 2, 100, 300, 0, m->hash_bytes, 1);
}
static void other_group(struct object *o, const struct model_object *m)
{
	rewrite(o, m, 4, 2, 100, 300, 1, m->hash_bytes, 0);
}
static void shorter_key(struct object *o, const struct model_object *m)
{
	rewrite(o, m, 4, 2, 100, 300, 0, m->hash_bytes - 1, 0);
}
static void other_blocks(struct object *o, const struct model_object *m)
{
	rewrite(o, m, 2, 2, 200, 600, 0, m->hash_bytes, 0);
}
static void other_refs(struct object *o, const struct model_object *m)
{
	rewrite(o, m, 4, 1, 400, 0, 0, m->hash_bytes, 0);
}
static void more_refs(struct object *o, const struct model_object *m)
{
	rewrite(o, m, 4, 3, 100, 300, 0, m->hash_bytes, 0);
}
static void other_ref_sizes(struct object *o, const struct model_object *m)
{
	rewrite(o, m, 4, 2, 300, 100, 0, m->hash_bytes, 0);
}
static void much_larger(struct object *o, const struct model_object *m)
{
	rewrite(o, m, 4, 2, 30000, 70000, 0, m->hash_bytes, 0);
}
static void next_version(struct object *o, const struct model_object *m)
{
	(void)m;
	model_put_u16(tail_of(o) + 8, 2);
	model_reseal(o->bytes, o->count);
}
static void next_version_damaged(struct object *o, const struct model_object *m)
{
	(void)m;
	model_put_u16(tail_of(o) + 8, 2);
}
static void unknown_flag(struct object *o, const struct model_object *m)
{
	(void)m;
	tail_of(o)[10] |= 2;
	model_reseal(o->bytes, o->count);
}
static void reserved(struct object *o, const struct model_object *m)
{
	(void)m;
	tail_of(o)[61] = 1;
	model_reseal(o->bytes, o->count);
}
static void padding(struct object *o, const struct model_object *m)
{
	(void)m;
	tail_of(o)[-1] = 1;
	model_reseal(o->bytes, o->count);
}
static void flagged_partial(struct object *o, const struct model_object *m)
{
	(void)m;
	tail_of(o)[10] |= 1;
	model_reseal(o->bytes, o->count);
}
static void absent_slot_unflagged(struct object *o, const struct model_object *m)
{
	/* The presence byte follows the eight checksums. */
	o->bytes[model_payload_bytes(m) + 32] = 0xFE;
	memset(o->bytes + model_payload_bytes(m), 0, 4);
	model_reseal(o->bytes, o->count);
}
static void impossible_payload(struct object *o, const struct model_object *m)
{
	model_put_u64(tail_of(o) + 32, model_payload_bytes(m) + 1);
	model_reseal(o->bytes, o->count);
}
static void impossible_slots(struct object *o, const struct model_object *m)
{
	(void)m;
	model_put_u32(tail_of(o) + 24, 9);
	model_reseal(o->bytes, o->count);
}
static void impossible_trailer(struct object *o, const struct model_object *m)
{
	(void)m;
	model_put_u64(tail_of(o) + 40, UINT64_MAX - 10);
}
static void huge_refs(struct object *o, const struct model_object *m)
{
	(void)m;
	model_put_u32(tail_of(o) + 20, UINT32_MAX);
	model_reseal(o->bytes, o->count);
}

enum fate { STAYS, GOES, GOES_WHEN_OLD };

static const struct {
	const char *name;
	damage_fn damage;
	uint32_t status;
	int error;
	enum fate fate;
} damages[] = {
	{"nothing", nothing, KVT_STATUS_LOADED, 0, STAYS},
	{"a payload bit", flip_wanted, KVT_STATUS_CORRUPT, KVT_ECORRUPT, GOES},
	{"a trailer bit", flip_table, KVT_STATUS_CORRUPT, KVT_ECORRUPT, GOES},
	{"a slot's checksum", wrong_slot_crc, KVT_STATUS_CORRUPT, KVT_ECORRUPT, GOES},
	{"the trailer's checksum", flip_tail_crc, KVT_STATUS_CORRUPT, KVT_ECORRUPT, GOES},
	{"the magic", no_magic, KVT_STATUS_CORRUPT, KVT_ECORRUPT, STAYS},
	{"everything", junk, KVT_STATUS_CORRUPT, KVT_ECORRUPT, STAYS},
	{"short by one byte", short_by_one, KVT_STATUS_FOREIGN, KVT_EFOREIGN, GOES_WHEN_OLD},
	{"empty", empty, KVT_STATUS_FOREIGN, KVT_EFOREIGN, GOES_WHEN_OLD},
	{"63 bytes", tiny, KVT_STATUS_FOREIGN, KVT_EFOREIGN, GOES_WHEN_OLD},
	{"the payload alone", payload_only, KVT_STATUS_FOREIGN, KVT_EFOREIGN, STAYS},
	{"100 bytes longer", longer, KVT_STATUS_FOREIGN, KVT_EFOREIGN, GOES_WHEN_OLD},
	{"a page longer", longer_by_a_page, KVT_STATUS_CORRUPT, KVT_ECORRUPT, STAYS},
	{"another namespace", other_digest, KVT_STATUS_MISMATCH, KVT_EMISMATCH, STAYS},
	{"another rank", other_rank, KVT_STATUS_MISMATCH, KVT_EMISMATCH, STAYS},
	{"another key", other_key, KVT_STATUS_MISMATCH, KVT_EMISMATCH, STAYS},
	{"another group", other_group, KVT_STATUS_MISMATCH, KVT_EMISMATCH, STAYS},
	{"a shorter key", shorter_key, KVT_STATUS_MISMATCH, KVT_EMISMATCH, STAYS},
	{"another count of blocks", other_blocks, KVT_STATUS_MISMATCH, KVT_EMISMATCH, STAYS},
	{"fewer refs", other_refs, KVT_STATUS_MISMATCH, KVT_EMISMATCH, STAYS},
	{"more refs", more_refs, KVT_STATUS_MISMATCH, KVT_EMISMATCH, STAYS},
	{"refs of other sizes", other_ref_sizes, KVT_STATUS_MISMATCH, KVT_EMISMATCH, STAYS},
	{"a much larger chunk", much_larger, KVT_STATUS_MISMATCH, KVT_EMISMATCH, STAYS},
	{"the next version", next_version, KVT_STATUS_FAILED, KVT_EFORMAT, STAYS},
	{"the next version, damaged", next_version_damaged, KVT_STATUS_CORRUPT, KVT_ECORRUPT, GOES},
	{"an unknown flag", unknown_flag, KVT_STATUS_CORRUPT, KVT_ECORRUPT, STAYS},
	{"reserved bytes", reserved, KVT_STATUS_CORRUPT, KVT_ECORRUPT, STAYS},
	{"padding", padding, KVT_STATUS_CORRUPT, KVT_ECORRUPT, STAYS},
	{"the partial flag of a whole object", flagged_partial, KVT_STATUS_CORRUPT, KVT_ECORRUPT,
	 STAYS},
	{"a whole object with a slot absent", absent_slot_unflagged, KVT_STATUS_CORRUPT,
	 KVT_ECORRUPT, STAYS},
	{"an impossible payload length", impossible_payload, KVT_STATUS_CORRUPT, KVT_ECORRUPT,
	 STAYS},
	{"an impossible count of slots", impossible_slots, KVT_STATUS_CORRUPT, KVT_ECORRUPT, STAYS},
	{"an impossible trailer length", impossible_trailer, KVT_STATUS_CORRUPT, KVT_ECORRUPT,
	 STAYS},
	{"an impossible count of refs", huge_refs, KVT_STATUS_CORRUPT, KVT_ECORRUPT, STAYS},
};

static void plant(struct chunk_scene *s, damage_fn damage, int64_t age_ns)
{
	struct object o;

	chunk_model_set(s, 0, 4, 1);
	o.bytes = model_write(&s->model, &o.count);
	damage(&o, &s->model);
	fake_object_put(s->fake, s->name, o.bytes, o.count);
	fake_object_set_age(s->fake, s->name, age_ns, age_ns);
	free(o.bytes);
}

static unsigned wrong_fates;

/* One damage, loaded whole or only in slot 2; afterwards a store has to repair it. */
static void check_damage(struct chunk_scene *s, size_t d, bool sparse, bool old)
{
	uint32_t status = damages[d].status;
	uint64_t removed = test_stats(s->bed.worker).removed_corrupt;
	bool goes = damages[d].fate == GOES || (damages[d].fate == GOES_WHEN_OLD && old);

	plant(s, damages[d].damage, old ? 11 * MINUTE_NS : 9 * MINUTE_NS);
	print_message("  %s, %s, %s\n", damages[d].name, sparse ? "sparse" : "whole",
		      old ? "old" : "young");
	chunk_load(s, sparse ? 2 : 0, sparse ? 1 : 4, 1, status, damages[d].error);
	if (fake_object_exists(s->fake, s->name) == goes ||
	    test_stats(s->bed.worker).removed_corrupt - removed != goes) {
		print_error("    the object %s\n", goes ? "stayed" : "was removed");
		wrong_fates++;
	}
	if (status == KVT_STATUS_FAILED || status == KVT_STATUS_LOADED) {
		chunk_scene_next(s);
		return;
	}
	chunk_store(s, 0, 4, 2, KVT_STATUS_STORED);
	chunk_model_set(s, 0, 4, 2);
	chunk_compare(s);
	chunk_load(s, 0, 4, 2, KVT_STATUS_LOADED, 0);
	chunk_store(s, 0, 4, 3, KVT_STATUS_SKIPPED);
	chunk_scene_next(s);
}

static void every_damage_has_its_status_and_its_fate(void **state)
{
	static const struct fake_config configs[] = {
		{.capabilities = FAKE_CAPABILITIES},
		{.capabilities = KVT_CAP_IF_ABSENT},
		{.capabilities = FAKE_CAPABILITIES | KVT_CAP_GET_DISCARD, .memory_alignment = 4096},
	};

	(void)state;
	wrong_fates = 0;
	for (size_t c = 0; c < TEST_COUNT(configs); c++) {
		struct chunk_scene s;
		chunk_scene_init(&s, &configs[c], &shape);
		chunk_scene_open(&s);
		for (size_t d = 0; d < TEST_COUNT(damages); d++) {
			check_damage(&s, d, false, false);
			check_damage(&s, d, false, true);
			check_damage(&s, d, true, false);
			check_damage(&s, d, true, true);
		}
		chunk_scene_close(&s);
	}
	assert_int_equal(wrong_fates, 0);
}

static void damage_elsewhere_does_not_hurt_a_partial_load(void **state)
{
	struct chunk_scene s;

	(void)state;
	chunk_scene_init(&s, NULL, &shape);
	chunk_scene_open(&s);
	plant(&s, flip_wanted, 0); /* slot 2 */
	chunk_load(&s, 0, 2, 1, KVT_STATUS_LOADED, 0);
	chunk_load(&s, 3, 1, 1, KVT_STATUS_LOADED, 0);
	assert_true(fake_object_exists(s.fake, s.name));
	chunk_load(&s, 1, 2, 1, KVT_STATUS_CORRUPT, KVT_ECORRUPT);
	chunk_scene_close(&s);
}

static void a_bit_that_flips_on_the_way_is_read_again(void **state)
{
	const struct chunk_shape shapes[] = {shape, large};
	const uint64_t at[] = {0, 1234, 1600 + 2};

	(void)state;
	for (size_t i = 0; i < TEST_COUNT(shapes); i++)
		for (size_t a = 0; a < TEST_COUNT(at); a++) {
			struct chunk_scene s;
			struct fake_rule flip = {.ops = FAKE_OP(KVT_IO_GET),
						 .name = ".bin",
						 .times = 1,
						 .action = FAKE_FLIP,
						 .after_bytes = at[a]};
			chunk_scene_init(&s, NULL, &shapes[i]);
			chunk_scene_open(&s);
			chunk_model_set(&s, 0, 4, 1);
			chunk_plant(&s);
			fake_rule_add(s.fake, &flip);
			chunk_load(&s, 0, 4, 1, KVT_STATUS_LOADED, 0);
			assert_int_equal(fake_rule_hits(s.fake, &flip), 1);
			fake_rule_remove(s.fake, &flip);
			assert_true(fake_object_exists(s.fake, s.name));
			assert_int_equal(test_stats(s.bed.worker).removed_corrupt, 0);
			chunk_scene_close(&s);
		}
}

static void errors_of_the_store_never_remove_an_object(void **state)
{
	static const int errors[] = {KVT_EIO,	 KVT_EACCES,	KVT_EMFILE,
				     KVT_ENET,	 KVT_ESERVER,	KVT_EAUTH,
				     KVT_EPROTO, KVT_ETIMEDOUT, KVT_ETHROTTLED};

	(void)state;
	for (size_t i = 0; i < TEST_COUNT(errors); i++) {
		struct chunk_scene s;
		struct fake_rule fail = {.ops = FAKE_OP(KVT_IO_GET) | FAKE_OP(KVT_IO_HEAD),
					 .name = ".bin",
					 .action = FAKE_FAIL,
					 .error = errors[i],
					 .after_bytes = 50};
		chunk_scene_init(&s, NULL, &shape);
		s.bed.worker_options.breaker_failures = UINT32_MAX;
		chunk_scene_open(&s);
		plant(&s, nothing, 11 * MINUTE_NS);
		fake_rule_add(s.fake, &fail);
		chunk_load(&s, 0, 4, 1, KVT_STATUS_FAILED, errors[i]);
		fake_rule_remove(s.fake, &fail);
		assert_int_equal(fake_calls(s.fake, KVT_IO_REMOVE), 0);
		chunk_load(&s, 0, 4, 1, KVT_STATUS_LOADED, 0);
		chunk_scene_close(&s);
	}
}

static void keep_corrupt_keeps_what_is_corrupt(void **state)
{
	struct chunk_scene s;

	(void)state;
	chunk_scene_init(&s, NULL, &shape);
	s.bed.worker_options.keep_corrupt = 1;
	chunk_scene_open(&s);
	plant(&s, flip_wanted, 11 * MINUTE_NS);
	chunk_load(&s, 0, 4, 1, KVT_STATUS_CORRUPT, KVT_ECORRUPT);
	assert_int_equal(fake_calls(s.fake, KVT_IO_REMOVE), 0);
	assert_true(fake_object_exists(s.fake, s.name));
	/* It is replaced all the same. */
	chunk_store(&s, 0, 4, 2, KVT_STATUS_STORED);
	chunk_load(&s, 0, 4, 2, KVT_STATUS_LOADED, 0);
	chunk_scene_next(&s);
	plant(&s, short_by_one, 11 * MINUTE_NS);
	chunk_load(&s, 0, 4, 1, KVT_STATUS_FOREIGN, KVT_EFOREIGN);
	assert_true(fake_object_exists(s.fake, s.name));
	chunk_scene_close(&s);
}

static void a_new_object_is_not_removed_for_the_old_one(void **state)
{
	struct chunk_scene s;
	struct test_transfer t;
	struct fake_rule hold = {
		.ops = FAKE_OP(KVT_IO_REMOVE), .name = ".bin", .action = FAKE_HOLD};

	(void)state;
	chunk_scene_init(&s, NULL, &shape);
	chunk_scene_open(&s);
	plant(&s, flip_wanted, 11 * MINUTE_NS);
	fake_rule_add(s.fake, &hold);
	chunk_transfer(&s, &t, 0, 4, 1);
	assert_ok(kvt_worker_submit_load(s.bed.worker, 1, &t.transfer, NULL));
	assert_true(fake_await_held(s.fake, &hold, 1));
	chunk_plant(&s);
	fake_rule_remove(s.fake, &hold);
	assert_result_error(KVT_STATUS_CORRUPT, KVT_ECORRUPT, test_take(s.bed.worker, 1));
	assert_true(fake_object_exists(s.fake, s.name));
	chunk_compare(&s);
	test_transfer_fini(&t);
	chunk_scene_close(&s);
}

static void a_failing_removal_does_not_change_the_status(void **state)
{
	struct chunk_scene s;
	struct fake_rule fail = {.ops = FAKE_OP(KVT_IO_REMOVE),
				 .name = ".bin",
				 .action = FAKE_FAIL,
				 .error = KVT_EACCES};

	(void)state;
	chunk_scene_init(&s, NULL, &shape);
	chunk_scene_open(&s);
	plant(&s, flip_wanted, 0);
	fake_rule_add(s.fake, &fail);
	chunk_load(&s, 0, 4, 1, KVT_STATUS_CORRUPT, KVT_ECORRUPT);
	fake_rule_remove(s.fake, &fail);
	assert_int_equal(test_stats(s.bed.worker).removed_corrupt, 0);
	chunk_store(&s, 0, 4, 2, KVT_STATUS_STORED);
	chunk_load(&s, 0, 4, 2, KVT_STATUS_LOADED, 0);
	chunk_scene_close(&s);
}

static void an_object_that_changes_while_it_is_read_is_read_again(void **state)
{
	struct chunk_scene s;
	struct test_transfer t;
	struct fake_rule hold = {.ops = FAKE_OP(KVT_IO_GET),
				 .name = ".bin",
				 .skip = 1,
				 .times = 1,
				 .action = FAKE_HOLD};

	(void)state;
	chunk_scene_init(&s, NULL, &large);
	chunk_scene_open(&s);
	chunk_model_set(&s, 0, 4, 1);
	chunk_plant(&s);
	fake_rule_add(s.fake, &hold);
	chunk_transfer(&s, &t, 0, 4, 2);
	test_transfer_poison(&t);
	assert_ok(kvt_worker_submit_load(s.bed.worker, 1, &t.transfer, NULL));
	/* One extent has been asked for; the others see other bytes. */
	assert_true(fake_await_held(s.fake, &hold, 1));
	chunk_model_set(&s, 0, 4, 2);
	chunk_plant(&s);
	fake_rule_remove(s.fake, &hold);
	assert_result(KVT_STATUS_LOADED, test_take(s.bed.worker, 1));
	test_transfer_check(&t);
	chunk_compare(&s);
	test_transfer_fini(&t);
	chunk_scene_close(&s);
}

static void presence_lookups_of_damaged_objects_are_misses(void **state)
{
	struct chunk_scene s;
	struct kvt_submit_options options = KVT_INIT(options);
	struct test_transfer t;

	(void)state;
	chunk_scene_init(&s, NULL, &shape);
	chunk_scene_open(&s);
	/* A partial object, whose length says so, with a damaged trailer. */
	chunk_model_set(&s, 0, 2, 1);
	chunk_plant(&s);
	chunk_transfer(&s, &t, 0, 4, 1);
	test_set_geometry(&s.bed, &t);
	fake_object_flip(s.fake, s.name, model_payload_bytes(&s.model));
	options.lookup_flags = KVT_LOOKUP_PRESENCE;
	assert_ok(kvt_worker_submit_lookup(s.bed.worker, 1, t.keys, 1, &options));
	assert_result(KVT_STATUS_MISS, test_take(s.bed.worker, 1));
	/* Lookups remove nothing. */
	assert_true(fake_object_exists(s.fake, s.name));
	test_transfer_fini(&t);
	chunk_scene_close(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_damage_has_its_status_and_its_fate),
		cmocka_unit_test(damage_elsewhere_does_not_hurt_a_partial_load),
		cmocka_unit_test(a_bit_that_flips_on_the_way_is_read_again),
		cmocka_unit_test(errors_of_the_store_never_remove_an_object),
		cmocka_unit_test(keep_corrupt_keeps_what_is_corrupt),
		cmocka_unit_test(a_new_object_is_not_removed_for_the_old_one),
		cmocka_unit_test(a_failing_removal_does_not_change_the_status),
		cmocka_unit_test(an_object_that_changes_while_it_is_read_is_read_again),
		cmocka_unit_test(presence_lookups_of_damaged_objects_are_misses),
	};
	return cmocka_run_group_tests_name("worker_damage", tests, NULL, NULL);
}
