/* SPDX-License-Identifier: Apache-2.0 */
/* The object format: golden objects both ways, limits, round trips, and every kind of damage. Long,
 * and one file: one format, whose tables of damage share their writer. */
#include "format.h"

#include <inttypes.h>
#include <jansson.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvtier/kvtier.h>

#include "crc32c.h"
#include "env.h"
#include "name.h"
#include "support.h"

/* ---- An object in memory and what it was made from ---- */

struct object {
	struct kvt__geometry geometry;
	struct kvt__identity identity;
	struct kvt__layout layout;
	uint64_t ref_bytes[64];
	uint8_t hash[64];
	uint8_t digest[8];
	bool partial;
	uint8_t *bytes; /* exactly object_bytes, so that a sanitizer sees every step beyond */
	uint64_t object_bytes, trailer_bytes;
};

static uint8_t *trailer_of(const struct object *object)
{
	return object->bytes + object->layout.payload_bytes;
}

static uint8_t *tail_of(const struct object *object)
{
	return object->bytes + object->object_bytes - KVT__TAIL_BYTES;
}

/* Geometry and identity are set; makes room, filled with what must not stay. */
static void object_begin(struct object *object, bool partial)
{
	object->geometry.ref_bytes = object->ref_bytes;
	object->identity.hash = object->hash;
	object->identity.digest = object->digest;
	assert_ok(
		kvt__layout_init(&object->layout, &object->geometry, object->identity.hash_bytes));
	object->partial = partial;
	object->trailer_bytes = object->layout.trailer_bytes + (partial ? KVT__PAGE_BYTES : 0);
	object->object_bytes = object->layout.payload_bytes + object->trailer_bytes;
	object->bytes = malloc(object->object_bytes);
	assert_non_null(object->bytes);
	memset(object->bytes, 0, object->layout.payload_bytes);
	memset(trailer_of(object), 0xa5, object->trailer_bytes);
	memset(trailer_of(object), 0, object->layout.refs_at);
}

static void object_slot(struct object *object, uint32_t slot, const void *data)
{
	const uint32_t ref = slot / object->geometry.blocks_per_chunk;
	uint64_t at = (slot % object->geometry.blocks_per_chunk) * object->ref_bytes[ref];
	uint8_t *trailer = trailer_of(object);

	for (uint32_t d = 0; d < ref; d++)
		at += object->geometry.blocks_per_chunk * object->ref_bytes[d];
	memcpy(object->bytes + at, data, object->ref_bytes[ref]);
	kvt__slot_crc_put(trailer, slot, kvt__crc32c(0, data, object->ref_bytes[ref]));
	trailer[object->layout.presence_at + slot / 8] |= (uint8_t)(1u << slot % 8);
}

static void object_end(struct object *object)
{
	kvt__trailer_seal(trailer_of(object), &object->layout, &object->geometry, &object->identity,
			  object->partial);
}

static int object_parse(const struct object *object, struct kvt__trailer *trailer)
{
	return kvt__trailer_parse(trailer_of(object), object->trailer_bytes, object->object_bytes,
				  trailer);
}

/* Makes the checksum right again after a change. */
static void object_reseal(struct object *object)
{
	uint8_t *tail = tail_of(object);

	memset(tail + 56, 0, 4);
	kvt__put_u32(tail + 56, kvt__crc32c(0, trailer_of(object), object->trailer_bytes));
}

/* F = 3, two refs of 5 and 9 bytes, five of six slots; an 8-byte hash. */
static void object_make(struct object *object, bool partial)
{
	uint8_t data[64];

	memset(object, 0, sizeof(*object));
	object->geometry.blocks_per_chunk = 3;
	object->geometry.ref_count = 2;
	object->ref_bytes[0] = 5;
	object->ref_bytes[1] = 9;
	object->identity.hash_bytes = 8;
	object->identity.group = 0x01020304;
	object->identity.rank = 11;
	test_fill(object->hash, 8, 1);
	test_fill(object->digest, 8, 2);
	object_begin(object, partial);
	for (uint32_t s = 0; s < 6; s++) {
		test_fill(data, sizeof(data), 100 + s);
		if (!partial || s != 4)
			object_slot(object, s, data);
	}
	object_end(object);
}

static void object_free(struct object *object)
{
	free(object->bytes);
	object->bytes = NULL;
}

/* ---- Golden objects ---- */

static uint32_t unhex(const char *text, uint8_t *bytes, size_t room)
{
	size_t count = strlen(text) / 2;

	assert_true(count <= room);
	for (size_t i = 0; i < count; i++) {
		unsigned value;
		assert_int_equal(sscanf(text + 2 * i, "%2x", &value), 1);
		bytes[i] = (uint8_t)value;
	}
	return (uint32_t)count;
}

static void assert_hex(const char *expected, const uint8_t *bytes, size_t count)
{
	uint8_t wanted[8192];

	assert_int_equal(unhex(expected, wanted, sizeof(wanted)), count);
	assert_memory_equal(wanted, bytes, count);
}

static json_t *golden_load(void)
{
	json_error_t error;
	json_t *cases = json_load_file(KVT_TEST_DATA_DIR "/golden.json", 0, &error);

	if (!cases)
		fail_msg("golden.json: %s", error.text);
	assert_int_equal(json_array_size(cases), 7);
	return cases;
}

/* Everything but the payload and the seal, from the case's inputs. */
static void golden_begin(const json_t *test, struct object *object)
{
	const json_t *sizes = json_object_get(test, "ref_sizes");
	const json_t *space = json_object_get(test, "namespace");
	const json_t *slots = json_object_get(test, "slots");
	uint32_t key_bytes, slot_count;
	uint8_t key[68];
	struct kvt_store_options options = KVT_INIT(options);
	struct kvt__namespace ns;
	struct kvt__env env;
	char *fields = NULL;

	memset(object, 0, sizeof(*object));
	options.mode = KVT_MODE_EXACT;
	options.rank = (uint32_t)json_integer_value(json_object_get(test, "rank"));
	if (json_is_string(space))
		options.namespace_name = json_string_value(space);
	else
		options.fields_json = fields = json_dumps(space, 0);
	assert_ok(kvt__env_init(&env, NULL));
	assert_ok(kvt__namespace_init(&ns, &env, &options, KVT__FANOUT_VLLM));
	free(fields);
	memcpy(object->digest, ns.digest, sizeof(object->digest));
	/* Without "parallel_agnostic":false the rank in the tail is 0. */
	object->identity.rank = ns.rank;
	kvt__namespace_fini(&ns, &env);
	kvt__env_fini(&env);

	key_bytes = unhex(json_string_value(json_object_get(test, "key_hex")), key, sizeof(key));
	object->identity.hash_bytes = key_bytes - 4;
	memcpy(object->hash, key, key_bytes - 4);
	object->identity.group = (uint32_t)key[key_bytes - 4] << 24 |
				 (uint32_t)key[key_bytes - 3] << 16 |
				 (uint32_t)key[key_bytes - 2] << 8 | key[key_bytes - 1];
	object->geometry.blocks_per_chunk =
		(uint32_t)json_integer_value(json_object_get(test, "blocks_per_chunk"));
	object->geometry.ref_count = (uint32_t)json_array_size(sizes);
	for (uint32_t d = 0; d < object->geometry.ref_count; d++)
		object->ref_bytes[d] = (uint64_t)json_integer_value(json_array_get(sizes, d));
	slot_count = object->geometry.blocks_per_chunk * object->geometry.ref_count;
	object_begin(object, json_array_size(slots) < slot_count);
}

static void golden_write(const json_t *test, struct object *object)
{
	const json_t *slots = json_object_get(test, "slots");
	uint8_t data[8192];

	golden_begin(test, object);
	for (size_t i = 0; i < json_array_size(slots); i++) {
		const json_t *slot = json_array_get(slots, i);
		uint32_t ref = (uint32_t)json_integer_value(json_array_get(slot, 0));
		uint32_t block = (uint32_t)json_integer_value(json_array_get(slot, 1));
		unhex(json_string_value(json_array_get(slot, 2)), data, sizeof(data));
		object_slot(object, ref * object->geometry.blocks_per_chunk + block, data);
	}
	object_end(object);
}

static uint8_t *golden_file(const json_t *test, size_t *bytesp)
{
	const char *name = json_string_value(json_object_get(test, "name"));
	char *path = test_format("%s/golden/%s.bin", KVT_TEST_DATA_DIR, name);
	uint8_t *bytes = test_read_file(path, bytesp);

	if (!bytes)
		fail_msg("%s is missing", path);
	free(path);
	return bytes;
}

static void golden_objects_are_written_byte_for_byte(void **state)
{
	json_t *cases = golden_load(), *test;
	size_t index;

	(void)state;
	json_array_foreach(cases, index, test)
	{
		struct object object;
		uint8_t sha[EVP_MAX_MD_SIZE], *file;
		size_t file_bytes;
		const char *head = json_string_value(json_object_get(test, "trailer_head_hex"));

		golden_write(test, &object);
		assert_int_equal(object.object_bytes,
				 json_integer_value(json_object_get(test, "object_bytes")));
		assert_hex(head, trailer_of(&object), strlen(head) / 2);
		assert_hex(json_string_value(json_object_get(test, "tail_hex")), tail_of(&object),
			   KVT__TAIL_BYTES);
		assert_int_equal(EVP_Digest(object.bytes, object.object_bytes, sha, NULL,
					    EVP_sha256(), NULL),
				 1);
		assert_hex(json_string_value(json_object_get(test, "object_sha256")), sha, 32);
		file = golden_file(test, &file_bytes);
		assert_int_equal(file_bytes, object.object_bytes);
		assert_memory_equal(file, object.bytes, file_bytes);
		free(file);
		object_free(&object);
	}
	json_decref(cases);
}

static void golden_objects_are_read_back_slot_by_slot(void **state)
{
	json_t *cases = golden_load(), *test;
	size_t index;

	(void)state;
	json_array_foreach(cases, index, test)
	{
		struct object wanted;
		struct kvt__trailer trailer;
		size_t file_bytes;
		uint64_t trailer_bytes, at = 0;
		uint32_t present = 0;
		uint8_t *file = golden_file(test, &file_bytes);

		golden_write(test, &wanted);
		assert_ok(kvt__tail_peek(file + file_bytes - KVT__TAIL_BYTES, file_bytes,
					 &trailer_bytes));
		assert_int_equal(trailer_bytes, wanted.trailer_bytes);
		assert_ok(kvt__trailer_parse(file + file_bytes - trailer_bytes, trailer_bytes,
					     file_bytes, &trailer));
		assert_ok(kvt__trailer_compare(&trailer, &wanted.geometry, &wanted.identity));
		assert_int_equal(trailer.version, KVT__FORMAT_VERSION);
		assert_int_equal(trailer.partial, wanted.partial);
		assert_int_equal(trailer.payload_bytes, wanted.layout.payload_bytes);
		for (uint32_t s = 0; s < trailer.slot_count; s++) {
			uint64_t bytes =
				kvt__trailer_ref_bytes(&trailer, s / trailer.blocks_per_chunk);
			if (kvt__trailer_has(&trailer, s)) {
				present++;
				assert_int_equal(kvt__crc32c(0, file + at, bytes),
						 kvt__slot_crc_get(trailer.table, s));
			}
			at += bytes;
		}
		assert_int_equal(at, trailer.payload_bytes);
		assert_int_equal(present, json_array_size(json_object_get(test, "slots")));
		free(file);
		object_free(&wanted);
	}
	json_decref(cases);
}

/* ---- Layout ---- */

static void layouts_beyond_a_limit_are_refused_by_name(void **state)
{
	static const struct {
		uint32_t blocks, refs, hash_bytes;
		uint64_t size; /* of every ref */
		const char *detail;
	} cases[] = {
		{1, 1, 0, 1, "key: 0 hash bytes, expected 1 to 64"},
		{1, 1, 65, 1, "key: 65 hash bytes, expected 1 to 64"},
		{0, 1, 8, 1, "blocks_per_chunk is 0, expected at least 1"},
		{0, 0, 8, 1, "blocks_per_chunk is 0, expected at least 1"},
		{1, (1u << 20) + 1, 8, 1, "ref_count is 1048577, expected at most 1048576"},
		{2, (1u << 19) + 1, 8, 1,
		 "1048578 slots (2 blocks_per_chunk of 524289 refs), expected at most 1048576"},
		{UINT32_MAX, 1, 8, 1,
		 "4294967295 slots (4294967295 blocks_per_chunk of 1 refs), expected at most"},
		{UINT32_MAX, 1u << 20, 8, 1, "4503599626321920 slots"},
		{1, 1, 8, 0, "ref_bytes[0] is 0, expected at least 1"},
		{1, 1, 8, (UINT64_C(1) << 46) + 1, "ref_bytes[0] is 70368744177665: the payload"},
		{4, 1, 8, (UINT64_C(1) << 44) + 1, "ref_bytes[0] is 17592186044417: the payload"},
		{1, 2, 8, (UINT64_C(1) << 45) + 1, "ref_bytes[1] is 35184372088833: the payload"},
		{1, 3, 8, UINT64_MAX, "ref_bytes[0] is 18446744073709551615: the payload"},
		{1, 1u << 20, 8, UINT64_C(1) << 46, "ref_bytes[1] is 70368744177664: the"},
	};
	uint64_t *sizes = malloc(((1u << 20) + 1) * sizeof(*sizes));

	(void)state;
	assert_non_null(sizes);
	for (size_t i = 0; i < TEST_COUNT(cases); i++) {
		struct kvt__geometry geometry = {cases[i].blocks, cases[i].refs, sizes};
		struct kvt__layout layout;
		for (uint32_t d = 0; d <= 1u << 20; d++)
			sizes[d] = cases[i].size;
		assert_fails(KVT_EINVAL, cases[i].detail,
			     kvt__layout_init(&layout, &geometry, cases[i].hash_bytes));
	}
	free(sizes);
}

static void layouts_at_a_limit_are_accepted(void **state)
{
	uint64_t *sizes = malloc((1u << 20) * sizeof(*sizes));
	struct kvt__layout layout;

	(void)state;
	assert_non_null(sizes);
	for (uint32_t d = 0; d < 1u << 20; d++)
		sizes[d] = UINT64_C(1) << 26;
	assert_ok(kvt__layout_init(&layout, &(struct kvt__geometry){1, 1u << 20, sizes}, 64));
	assert_int_equal(layout.payload_bytes, UINT64_C(1) << 46);
	assert_int_equal(layout.slot_count, 1u << 20);
	assert_true(layout.trailer_bytes + KVT__PAGE_BYTES <= KVT__MAX_TRAILER_BYTES);
	for (uint32_t d = 0; d < 1u << 20; d++)
		sizes[d] = 1;
	for (uint32_t blocks = 1; blocks <= 1u << 20; blocks *= 2) {
		struct kvt__geometry geometry = {blocks, (1u << 20) / blocks, sizes};
		assert_ok(kvt__layout_init(&layout, &geometry, 64));
		assert_int_equal(layout.payload_bytes, 1u << 20);
		assert_true(layout.trailer_bytes + KVT__PAGE_BYTES <= KVT__MAX_TRAILER_BYTES);
	}
	sizes[0] = UINT64_C(1) << 46;
	assert_ok(kvt__layout_init(&layout, &(struct kvt__geometry){1, 1, sizes}, 1));
	assert_ok(kvt__layout_init(&layout, &(struct kvt__geometry){UINT32_MAX, 0, NULL}, 1));
	assert_int_equal(layout.object_bytes, 4096);
	assert_int_equal(layout.slot_count, 0);
	free(sizes);
}

static void objects_are_the_shortest_multiple_of_a_page(void **state)
{
	struct test_random random = {test_seed(7)};

	(void)state;
	for (int round = 0; round < 20000; round++) {
		uint64_t sizes[8], sum = 0, least;
		struct kvt__geometry geometry = {
			.blocks_per_chunk = 1 + (uint32_t)test_random_below(&random, 40),
			.ref_count = (uint32_t)test_random_below(&random, 8),
			.ref_bytes = sizes,
		};
		uint32_t hash_bytes = 1 + (uint32_t)test_random_below(&random, 64);
		struct kvt__layout layout;

		for (uint32_t d = 0; d < geometry.ref_count; d++)
			sum += sizes[d] = 1 + test_random_below(&random, 5000);
		assert_ok(kvt__layout_init(&layout, &geometry, hash_bytes));
		uint64_t slots = (uint64_t)geometry.blocks_per_chunk * geometry.ref_count;
		assert_int_equal(layout.slot_count, slots);
		assert_int_equal(layout.payload_bytes, geometry.blocks_per_chunk * sum);
		assert_int_equal(layout.key_bytes, hash_bytes + 4);
		assert_int_equal(layout.table_at, 0);
		assert_int_equal(layout.presence_at, 4 * slots);
		assert_int_equal(layout.presence_bytes, (slots + 7) / 8);
		assert_int_equal(layout.refs_at, layout.presence_at + layout.presence_bytes);
		assert_int_equal(layout.key_at, layout.refs_at + 8 * geometry.ref_count);
		least = layout.payload_bytes + layout.key_at + hash_bytes + 4 + 64;
		assert_int_equal(layout.object_bytes % 4096, 0);
		assert_true(layout.object_bytes >= least && layout.object_bytes - least < 4096);
		assert_int_equal(layout.trailer_bytes, layout.object_bytes - layout.payload_bytes);
	}
}

static void presence_of_a_whole_object_has_no_high_bits(void **state)
{
	(void)state;
	for (uint32_t refs = 0; refs <= 64; refs++) {
		struct object object = {.geometry = {.blocks_per_chunk = 1, .ref_count = refs},
					.identity = {.hash_bytes = 1}};
		struct kvt__trailer trailer;

		for (uint32_t d = 0; d < refs; d++)
			object.ref_bytes[d] = 1;
		object_begin(&object, false);
		kvt__presence_all(trailer_of(&object), &object.layout);
		object_end(&object);
		assert_ok(object_parse(&object, &trailer));
		for (uint32_t s = 0; s < refs; s++)
			assert_true(kvt__trailer_has(&trailer, s));
		object_free(&object);
	}
}

/* ---- Round trips ---- */

static void random_objects_are_parsed_as_they_were_sealed(void **state)
{
	struct test_random random = {test_seed(11)};
	uint8_t data[300];

	(void)state;
	for (int round = 0; round < 3000; round++) {
		struct object object;
		struct kvt__trailer trailer;
		uint64_t peeked;
		uint32_t slots, absent;

		memset(&object, 0, sizeof(object));
		object.geometry.blocks_per_chunk = 1 + (uint32_t)test_random_below(&random, 20);
		object.geometry.ref_count = (uint32_t)test_random_below(&random, 6);
		slots = object.geometry.blocks_per_chunk * object.geometry.ref_count;
		for (uint32_t d = 0; d < object.geometry.ref_count; d++)
			object.ref_bytes[d] = 1 + test_random_below(&random, sizeof(data));
		object.identity.hash_bytes = 1 + (uint32_t)test_random_below(&random, 64);
		object.identity.group = (uint32_t)test_random_next(&random);
		object.identity.rank = (uint32_t)test_random_next(&random);
		test_fill(object.hash, sizeof(object.hash), test_random_next(&random));
		test_fill(object.digest, sizeof(object.digest), test_random_next(&random));
		/* One slot at least is absent, and others by chance; or none. */
		absent = slots && round % 2 ? (uint32_t)test_random_below(&random, slots)
					    : UINT32_MAX;
		object_begin(&object, absent != UINT32_MAX);
		for (uint32_t s = 0; s < slots; s++) {
			test_fill(data, sizeof(data), s);
			if (absent == UINT32_MAX ||
			    (s != absent && test_random_below(&random, 4) > 0))
				object_slot(&object, s, data);
		}
		object_end(&object);
		assert_ok(kvt__tail_peek(tail_of(&object), object.object_bytes, &peeked));
		assert_int_equal(peeked, object.trailer_bytes);
		assert_ok(object_parse(&object, &trailer));
		assert_ok(kvt__trailer_compare(&trailer, &object.geometry, &object.identity));
		assert_int_equal(trailer.partial, object.partial);
		assert_int_equal(trailer.slot_count, slots);
		assert_int_equal(trailer.rank, object.identity.rank);
		for (uint32_t s = 0; s < slots; s++) {
			test_fill(data, sizeof(data), s);
			uint32_t crc = kvt__crc32c(
				0, data, object.ref_bytes[s / object.geometry.blocks_per_chunk]);
			assert_int_equal(kvt__slot_crc_get(trailer.table, s),
					 kvt__trailer_has(&trailer, s) ? crc : 0);
		}
		object_free(&object);
	}
}

/* ---- Damage ---- */

static void every_flipped_bit_of_a_trailer_is_noticed(void **state)
{
	(void)state;
	for (int partial = 0; partial < 2; partial++) {
		struct object object;
		struct kvt__trailer trailer;

		object_make(&object, partial);
		for (uint64_t bit = 0; bit < 8 * object.trailer_bytes; bit++) {
			uint8_t *at = trailer_of(&object) + bit / 8;
			bool in_magic = at >= tail_of(&object) && at < tail_of(&object) + 8;
			int error;

			*at ^= (uint8_t)(1u << bit % 8);
			error = object_parse(&object, &trailer);
			*at ^= (uint8_t)(1u << bit % 8);
			if (error != (in_magic ? KVT_EFOREIGN : KVT_ECORRUPT))
				fail_msg("bit %" PRIu64 ": %s", bit, kvt_error_name(error));
		}
		assert_ok(object_parse(&object, &trailer));
		object_free(&object);
	}
}

/* Which part of a trailer a byte is in, to say what a change of it under a right checksum is. */
static int expected_after_reseal(const struct object *object, uint64_t bit)
{
	uint64_t at = bit / 8;
	const struct kvt__layout *layout = &object->layout;
	uint64_t tail = object->trailer_bytes - KVT__TAIL_BYTES;
	static const struct {
		uint64_t end; /* within the tail */
		int error;
	} fields[] = {
		{8, KVT_EFOREIGN},   /* magic */
		{10, KVT_EFORMAT},   /* version */
		{12, KVT_ECORRUPT},  /* flags */
		{16, KVT_ECORRUPT},  /* key_bytes */
		{20, KVT_ECORRUPT},  /* blocks_per_chunk */
		{24, KVT_ECORRUPT},  /* nrefs */
		{28, KVT_ECORRUPT},  /* nslots */
		{32, KVT_EMISMATCH}, /* rank */
		{40, KVT_ECORRUPT},  /* payload_bytes */
		{48, KVT_ECORRUPT},  /* trailer_bytes */
		{56, KVT_EMISMATCH}, /* digest */
		{60, 0},	     /* the checksum is made again */
		{64, KVT_ECORRUPT},  /* reserved */
	};

	if (at < layout->presence_at) {
		/* The checksum of a present slot may be anything: the payload will tell. */
		return object->partial && at / 4 == 4 ? KVT_ECORRUPT : 0;
	}
	if (at < layout->key_at)
		return KVT_ECORRUPT;
	if (at < layout->key_at + layout->key_bytes)
		return KVT_EMISMATCH;
	if (at < tail)
		return KVT_ECORRUPT;
	/* A key that is longer takes zeros from the padding: possible, and another key. */
	if (at == tail + 12 &&
	    (object->layout.key_bytes ^ 1u << bit % 8) > object->layout.key_bytes &&
	    (object->layout.key_bytes ^ 1u << bit % 8) <= 68)
		return KVT_EMISMATCH;
	for (size_t i = 0;; i++) {
		if (at - tail < fields[i].end)
			return fields[i].error;
	}
}

static void every_flipped_bit_under_a_right_checksum_is_what_it_is(void **state)
{
	(void)state;
	for (int partial = 0; partial < 2; partial++) {
		struct object object;

		object_make(&object, partial);
		for (uint64_t bit = 0; bit < 8 * object.trailer_bytes; bit++) {
			uint8_t *at = trailer_of(&object) + bit / 8;
			struct kvt__trailer trailer;
			int error, expected = expected_after_reseal(&object, bit);

			*at ^= (uint8_t)(1u << bit % 8);
			object_reseal(&object);
			error = object_parse(&object, &trailer);
			if (!error)
				error = kvt__trailer_compare(&trailer, &object.geometry,
							     &object.identity);
			if (error != expected)
				fail_msg("bit %" PRIu64 ": %s, expected %s: %s", bit,
					 kvt_error_name(error), kvt_error_name(expected),
					 kvt_error_detail());
			*at ^= (uint8_t)(1u << bit % 8);
			object_reseal(&object);
		}
		object_free(&object);
	}
}

static void truncated_trailers_are_never_accepted(void **state)
{
	struct object object;
	struct kvt__trailer trailer;

	(void)state;
	object_make(&object, false);
	for (uint64_t cut = 1; cut <= object.trailer_bytes; cut++) {
		uint64_t left = object.trailer_bytes - cut;
		/* Cut off at the front, the end of the object still there: a short read. */
		uint8_t *copy = malloc(left + 1);
		assert_non_null(copy);
		memcpy(copy, trailer_of(&object) + cut, left);
		assert_returns(left < KVT__TAIL_BYTES ? KVT_EFOREIGN : KVT_ECORRUPT,
			       kvt__trailer_parse(copy, left, object.object_bytes, &trailer));
		/* Cut off at the end: a torn object. */
		memcpy(copy, trailer_of(&object), left);
		assert_returns(KVT_EFOREIGN,
			       kvt__trailer_parse(copy, left, object.object_bytes - cut, &trailer));
		free(copy);
	}
	object_free(&object);
}

static void a_trailer_at_the_end_of_another_length_is_corrupt(void **state)
{
	static const int64_t changes[] = {-4096, -1, 1, 4096, INT64_MAX};
	struct object object;
	struct kvt__trailer trailer;
	uint64_t peeked;

	(void)state;
	object_make(&object, false);
	for (size_t i = 0; i < TEST_COUNT(changes); i++) {
		uint64_t length = object.object_bytes + (uint64_t)changes[i];
		int expected = length < KVT__TAIL_BYTES ? KVT_EFOREIGN : KVT_ECORRUPT;
		assert_returns(expected, kvt__tail_peek(tail_of(&object), length, &peeked));
		assert_int_equal(peeked, 0);
		assert_returns(expected,
			       kvt__trailer_parse(trailer_of(&object), object.trailer_bytes, length,
						  &trailer));
	}
	object_free(&object);
}

struct field_change {
	uint32_t at; /* within the tail */
	uint32_t bytes;
	uint64_t value;
	const char *detail;
};

static void set_field(struct object *object, const struct field_change *change)
{
	for (uint32_t i = 0; i < change->bytes; i++)
		tail_of(object)[change->at + i] = (uint8_t)(change->value >> 8 * i);
}

static void impossible_fields_are_corrupt_even_under_a_right_checksum(void **state)
{
	static const struct field_change changes[] = {
		{10, 2, 2, "flags are 0x0002, expected 0 or 1"},
		{10, 2, 0x8000, "flags are 0x8000, expected 0 or 1"},
		{10, 2, 1, "trailer: trailer_bytes is 4054, expected 8150"},
		{12, 4, 0, "key_bytes is 0, expected 5 to 68"},
		{12, 4, 4, "key_bytes is 4, expected 5 to 68"},
		{12, 4, 69, "key_bytes is 69, expected 5 to 68"},
		{12, 4, UINT32_MAX, "key_bytes is 4294967295, expected 5 to 68"},
		{16, 4, 0, "blocks_per_chunk is 0, expected at least 1"},
		{16, 4, 4, "nslots is 6, expected 8"},
		{16, 4, 1u << 20, "blocks_per_chunk times nrefs is 2097152, expected at most"},
		{16, 4, UINT32_MAX, "blocks_per_chunk times nrefs is 8589934590, expected at"},
		{20, 4, 0, "nslots is 6, expected 0"},
		{20, 4, 3, "nslots is 6, expected 9"},
		{20, 4, (1u << 20) + 1, "nrefs is 1048577, expected at most 1048576"},
		{20, 4, UINT32_MAX, "nrefs is 4294967295, expected at most 1048576"},
		{24, 4, 5, "nslots is 5, expected 6"},
		{24, 4, UINT32_MAX, "nslots is 4294967295, expected 6"},
		{32, 8, 0, "payload_bytes is 0, expected 42"},
		{32, 8, UINT64_MAX, "payload_bytes is 18446744073709551615, expected 42"},
		{40, 8, 0, "trailer_bytes is 0, expected 64 to 4096"},
		{40, 8, 63, "trailer_bytes is 63, expected 64 to 4096"},
		{40, 8, 4097, "trailer_bytes is 4097, expected 64 to 4096"},
		{40, 8, UINT64_MAX, "trailer_bytes is 18446744073709551615, expected 64 to 4096"},
		{60, 4, 1, "reserved is 1, expected 0"},
		{60, 4, 0x80000000, "reserved is 2147483648, expected 0"},
	};
	(void)state;
	for (size_t i = 0; i < TEST_COUNT(changes); i++) {
		struct object object;
		struct kvt__trailer trailer;

		object_make(&object, false);
		set_field(&object, &changes[i]);
		object_reseal(&object);
		assert_fails(KVT_ECORRUPT, changes[i].detail, object_parse(&object, &trailer));
		object_free(&object);
	}
}

static void impossible_contents_are_corrupt_even_under_a_right_checksum(void **state)
{
	struct object object;
	struct kvt__trailer trailer;
	uint8_t *at;

	(void)state;
	/* High presence bits. */
	object_make(&object, false);
	trailer_of(&object)[object.layout.presence_at] |= 0x40;
	object_reseal(&object);
	assert_fails(KVT_ECORRUPT, "last presence byte is 0x7f, expected no bit beyond slot 5",
		     object_parse(&object, &trailer));
	object_free(&object);
	/* An absent slot in an object that says it is whole. */
	object_make(&object, false);
	trailer_of(&object)[object.layout.presence_at] &= 0xfe;
	object_reseal(&object);
	assert_fails(KVT_ECORRUPT, "partial flag is 0, with 5 of 6 slots present",
		     object_parse(&object, &trailer));
	object_free(&object);
	/* All slots in one that says it is partial. */
	object_make(&object, true);
	trailer_of(&object)[object.layout.presence_at] |= 0x10;
	object_reseal(&object);
	assert_fails(KVT_ECORRUPT, "partial flag is 1, with 6 of 6 slots present",
		     object_parse(&object, &trailer));
	object_free(&object);
	/* A checksum for an absent slot. */
	object_make(&object, true);
	kvt__slot_crc_put(trailer_of(&object), 4, 0x1234);
	object_reseal(&object);
	assert_fails(KVT_ECORRUPT, "absent slot 4 has checksum 0x00001234, expected 0",
		     object_parse(&object, &trailer));
	object_free(&object);
	/* Padding: its first and its last byte. */
	for (int last = 0; last < 2; last++) {
		object_make(&object, false);
		at = trailer_of(&object) + object.layout.key_at + object.layout.key_bytes;
		*(last ? tail_of(&object) - 1 : at) = 1;
		object_reseal(&object);
		assert_fails(KVT_ECORRUPT, "padding is not zero, expected zeros from its byte 53",
			     object_parse(&object, &trailer));
		object_free(&object);
	}
	/* Ref sizes: zero, enormous, others than the payload says, and a sum that wraps to it. */
	static const struct {
		uint64_t sizes[2];
		const char *detail;
	} refs[] = {
		{{0, 14}, "size of ref 0 is 0, expected at least 1"},
		{{5, 0}, "size of ref 1 is 0, expected at least 1"},
		{{5, UINT64_MAX}, "size of ref 1 is 18446744073709551615"},
		{{UINT64_MAX, 15}, "size of ref 0 is 18446744073709551615"},
		{{5, 8}, "payload_bytes is 42, expected 39"},
		{{9, 5}, NULL},
	};
	for (size_t i = 0; i < TEST_COUNT(refs); i++) {
		object_make(&object, false);
		at = trailer_of(&object) + object.layout.refs_at;
		for (int d = 0; d < 2; d++) {
			kvt__put_u32(at + 8 * d, (uint32_t)refs[i].sizes[d]);
			kvt__put_u32(at + 8 * d + 4, (uint32_t)(refs[i].sizes[d] >> 32));
		}
		object_reseal(&object);
		if (refs[i].detail)
			assert_fails(KVT_ECORRUPT, refs[i].detail, object_parse(&object, &trailer));
		else
			assert_ok(object_parse(&object, &trailer));
		object_free(&object);
	}
}

static void an_unknown_version_is_told_from_damage_by_the_checksum(void **state)
{
	struct object object;
	struct kvt__trailer trailer;
	uint64_t peeked;

	(void)state;
	object_make(&object, false);
	tail_of(&object)[8] = 2;
	/* What else the tail holds is for that version to say. */
	memset(tail_of(&object) + 10, 0xff, 22);
	assert_fails(KVT_ECORRUPT, "trailer: checksum is", object_parse(&object, &trailer));
	object_reseal(&object);
	assert_fails(KVT_EFORMAT, "trailer: format version 2, expected 1",
		     object_parse(&object, &trailer));
	assert_int_equal(trailer.version, 2);
	assert_ok(kvt__tail_peek(tail_of(&object), object.object_bytes, &peeked));
	assert_int_equal(peeked, object.trailer_bytes);
	object_free(&object);
}

static void trailers_too_long_to_be_read_are_refused_by_their_length(void **state)
{
	struct object object;
	uint64_t trailer_bytes = KVT__MAX_TRAILER_BYTES + 1, peeked;
	const struct field_change trailer = {40, 8, trailer_bytes, NULL};

	(void)state;
	object_make(&object, false);
	set_field(&object, &trailer);
	assert_fails(KVT_ECORRUPT, "expected at most",
		     kvt__tail_peek(tail_of(&object), 42 + trailer_bytes, &peeked));
	tail_of(&object)[8] = 2;
	assert_fails(KVT_EFORMAT, "format version 2, expected 1",
		     kvt__tail_peek(tail_of(&object), 42 + trailer_bytes, &peeked));
	assert_int_equal(peeked, 0);
	object_free(&object);
}

static void trailers_at_the_limits_are_accepted(void **state)
{
	static const struct {
		uint32_t blocks, refs;
		uint64_t size;
	} cases[] = {
		{1, 1, UINT64_C(1) << 46},
		{1, 1u << 20, UINT64_C(1) << 26},
		{1u << 20, 1, UINT64_C(1) << 26},
		{1024, 1024, 1},
		{UINT32_MAX, 0, 0},
	};
	uint64_t *sizes = malloc((1u << 20) * sizeof(*sizes)), peeked;
	uint8_t hash[64] = {1}, digest[8] = {2};
	const struct kvt__identity identity = {hash, sizeof(hash), 3, 4, digest};

	(void)state;
	assert_non_null(sizes);
	for (size_t i = 0; i < TEST_COUNT(cases); i++) {
		struct kvt__geometry geometry = {cases[i].blocks, cases[i].refs, sizes};
		struct kvt__layout layout;
		struct kvt__trailer trailer;
		uint8_t *bytes;

		for (uint32_t d = 0; d < cases[i].refs; d++)
			sizes[d] = cases[i].size;
		assert_ok(kvt__layout_init(&layout, &geometry, sizeof(hash)));
		/* The payload is not needed. */
		bytes = calloc(1, layout.trailer_bytes);
		assert_non_null(bytes);
		kvt__presence_all(bytes, &layout);
		kvt__trailer_seal(bytes, &layout, &geometry, &identity, false);
		assert_ok(kvt__tail_peek(bytes + layout.trailer_bytes - KVT__TAIL_BYTES,
					 layout.object_bytes, &peeked));
		assert_int_equal(peeked, layout.trailer_bytes);
		assert_ok(kvt__trailer_parse(bytes, layout.trailer_bytes, layout.object_bytes,
					     &trailer));
		assert_ok(kvt__trailer_compare(&trailer, &geometry, &identity));
		free(bytes);
	}
	free(sizes);
}

static void the_longest_and_shortest_trailers_are_peeked(void **state)
{
	static const uint64_t lengths[] = {KVT__TAIL_BYTES, KVT__MAX_TRAILER_BYTES};
	struct object object;
	uint64_t peeked;

	(void)state;
	object_make(&object, false);
	for (size_t i = 0; i < TEST_COUNT(lengths); i++) {
		const struct field_change trailer = {40, 8, lengths[i], NULL};
		const struct field_change payload = {32, 8, 0, NULL};
		set_field(&object, &trailer);
		set_field(&object, &payload);
		assert_ok(kvt__tail_peek(tail_of(&object), lengths[i], &peeked));
		assert_int_equal(peeked, lengths[i]);
	}
	object_free(&object);
}

static void bytes_without_magic_are_foreign(void **state)
{
	uint8_t bytes[4096];
	struct kvt__trailer trailer;
	uint64_t peeked;

	(void)state;
	memset(bytes, 0, sizeof(bytes));
	assert_fails(KVT_EFOREIGN, "object of 4096 bytes: no trailer of ours",
		     kvt__tail_peek(bytes + sizeof(bytes) - 64, sizeof(bytes), &peeked));
	assert_returns(KVT_EFOREIGN,
		       kvt__trailer_parse(bytes, sizeof(bytes), sizeof(bytes), &trailer));
	for (uint64_t length = 0; length < 64; length++) {
		assert_fails(KVT_EFOREIGN, "which has at least 64",
			     kvt__tail_peek(bytes, length, &peeked));
		assert_returns(KVT_EFOREIGN, kvt__trailer_parse(bytes, length, length, &trailer));
	}
}

static void a_mismatch_names_the_first_difference(void **state)
{
	struct object object, other;
	struct kvt__trailer trailer;

	(void)state;
	object_make(&object, false);
	assert_ok(object_parse(&object, &trailer));
	object_make(&other, false);
	assert_ok(kvt__trailer_compare(&trailer, &other.geometry, &other.identity));

	/* Each is changed in addition to those before, which go first: from the last on. */
	other.ref_bytes[1] = 10;
	assert_fails(KVT_EMISMATCH, "object with 9 bytes for a block of ref 1, expected 10",
		     kvt__trailer_compare(&trailer, &other.geometry, &other.identity));
	other.geometry.ref_count = 1;
	assert_fails(KVT_EMISMATCH, "object of 2 refs, expected 1",
		     kvt__trailer_compare(&trailer, &other.geometry, &other.identity));
	other.geometry.blocks_per_chunk = 4;
	assert_fails(KVT_EMISMATCH, "object of 3 blocks per chunk, expected 4",
		     kvt__trailer_compare(&trailer, &other.geometry, &other.identity));
	other.identity.group++;
	assert_fails(KVT_EMISMATCH, "object of group 16909060, expected 16909061",
		     kvt__trailer_compare(&trailer, &other.geometry, &other.identity));
	other.identity.hash_bytes = 7;
	assert_fails(KVT_EMISMATCH, "object of hash ",
		     kvt__trailer_compare(&trailer, &other.geometry, &other.identity));
	other.identity.hash_bytes = 8;
	other.hash[7] ^= 1;
	assert_fails(KVT_EMISMATCH, "object of hash ",
		     kvt__trailer_compare(&trailer, &other.geometry, &other.identity));
	other.identity.rank = 12;
	assert_fails(KVT_EMISMATCH, "object of rank 11, expected 12",
		     kvt__trailer_compare(&trailer, &other.geometry, &other.identity));
	memset(other.digest, 0xab, sizeof(other.digest));
	assert_fails(KVT_EMISMATCH, ", expected abababababababab",
		     kvt__trailer_compare(&trailer, &other.geometry, &other.identity));
	object_free(&object);
	object_free(&other);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(golden_objects_are_written_byte_for_byte),
		cmocka_unit_test(golden_objects_are_read_back_slot_by_slot),
		cmocka_unit_test(layouts_beyond_a_limit_are_refused_by_name),
		cmocka_unit_test(layouts_at_a_limit_are_accepted),
		cmocka_unit_test(objects_are_the_shortest_multiple_of_a_page),
		cmocka_unit_test(presence_of_a_whole_object_has_no_high_bits),
		cmocka_unit_test(random_objects_are_parsed_as_they_were_sealed),
		cmocka_unit_test(every_flipped_bit_of_a_trailer_is_noticed),
		cmocka_unit_test(every_flipped_bit_under_a_right_checksum_is_what_it_is),
		cmocka_unit_test(truncated_trailers_are_never_accepted),
		cmocka_unit_test(a_trailer_at_the_end_of_another_length_is_corrupt),
		cmocka_unit_test(impossible_fields_are_corrupt_even_under_a_right_checksum),
		cmocka_unit_test(impossible_contents_are_corrupt_even_under_a_right_checksum),
		cmocka_unit_test(an_unknown_version_is_told_from_damage_by_the_checksum),
		cmocka_unit_test(trailers_too_long_to_be_read_are_refused_by_their_length),
		cmocka_unit_test(trailers_at_the_limits_are_accepted),
		cmocka_unit_test(the_longest_and_shortest_trailers_are_peeked),
		cmocka_unit_test(bytes_without_magic_are_foreign),
		cmocka_unit_test(a_mismatch_names_the_first_difference),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
