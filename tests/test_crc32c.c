/* SPDX-License-Identifier: Apache-2.0 */
/* CRC-32C against known values and a bit-by-bit computation; combining and appending zeros against
 * checksums of the joined bytes. */
#include "crc32c.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "support.h"

static uint32_t bit_by_bit(const uint8_t *data, size_t bytes)
{
	uint32_t crc = UINT32_MAX;

	for (size_t i = 0; i < bytes; i++) {
		crc ^= data[i];
		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
	}
	return ~crc;
}

static void known_values_come_out(void **state)
{
	uint8_t bytes[4096];

	(void)state;
	assert_int_equal(kvt__crc32c(0, "123456789", 9), 0xE3069283);
	memset(bytes, 0, sizeof(bytes));
	assert_int_equal(kvt__crc32c(0, bytes, sizeof(bytes)), 0x98F94189);
	/* RFC 3720, B.4 */
	assert_int_equal(kvt__crc32c(0, bytes, 32), 0x8A9136AA);
	memset(bytes, 0xff, 32);
	assert_int_equal(kvt__crc32c(0, bytes, 32), 0x62A8AB43);
	for (int i = 0; i < 32; i++)
		bytes[i] = (uint8_t)i;
	assert_int_equal(kvt__crc32c(0, bytes, 32), 0x46DD794E);
	for (int i = 0; i < 32; i++)
		bytes[i] = (uint8_t)(31 - i);
	assert_int_equal(kvt__crc32c(0, bytes, 32), 0x113FDB5C);
}

static void no_bytes_change_nothing(void **state)
{
	(void)state;
	assert_int_equal(kvt__crc32c(0, NULL, 0), 0);
	assert_int_equal(kvt__crc32c(0x12345678, NULL, 0), 0x12345678);
	assert_int_equal(kvt__crc32c_zeros(0x12345678, 0), 0x12345678);
	assert_int_equal(kvt__crc32c_combine(0x12345678, 0, 0), 0x12345678);
}

static void every_length_and_alignment_agrees_with_bit_by_bit(void **state)
{
	uint8_t bytes[700];

	(void)state;
	test_fill(bytes, sizeof(bytes), test_seed(1));
	for (size_t at = 0; at < 33; at++) {
		for (size_t length = 0; length < 600; length++)
			assert_int_equal(kvt__crc32c(0, bytes + at, length),
					 bit_by_bit(bytes + at, length));
	}
}

static void pieces_continue_and_combine_to_the_whole(void **state)
{
	struct test_random random = {test_seed(2)};
	static uint8_t bytes[200000];

	(void)state;
	test_fill(bytes, sizeof(bytes), 4);
	for (int round = 0; round < 2000; round++) {
		size_t length = (size_t)test_random_below(&random, round % 2 ? sizeof(bytes) : 300);
		size_t cut = (size_t)test_random_below(&random, length + 1);
		uint32_t whole = kvt__crc32c(0, bytes, length);
		uint32_t a = kvt__crc32c(0, bytes, cut);
		uint32_t b = kvt__crc32c(0, bytes + cut, length - cut);

		assert_int_equal(kvt__crc32c(a, bytes + cut, length - cut), whole);
		assert_int_equal(kvt__crc32c_combine(a, b, length - cut), whole);
	}
}

static void zeros_are_as_if_they_had_been_there(void **state)
{
	static uint8_t bytes[70000];
	struct test_random random = {test_seed(3)};

	(void)state;
	test_fill(bytes, 64, 5);
	for (uint64_t zeros = 0; zeros < 1200; zeros++)
		assert_int_equal(kvt__crc32c_zeros(kvt__crc32c(0, bytes, 64), zeros),
				 kvt__crc32c(0, bytes, 64 + zeros));
	for (int round = 0; round < 500; round++) {
		uint64_t zeros = test_random_below(&random, sizeof(bytes) - 64);
		assert_int_equal(kvt__crc32c_zeros(kvt__crc32c(0, bytes, 64), zeros),
				 kvt__crc32c(0, bytes, 64 + zeros));
	}
}

static void lengths_of_64_bits_obey_the_algebra(void **state)
{
	struct test_random random = {test_seed(4)};

	(void)state;
	for (int round = 0; round < 2000; round++) {
		uint32_t a = (uint32_t)test_random_next(&random);
		uint32_t b = (uint32_t)test_random_next(&random);
		uint32_t c = (uint32_t)test_random_next(&random);
		uint64_t m = test_random_next(&random) >> test_random_below(&random, 63);
		uint64_t n = test_random_next(&random) >> test_random_below(&random, 63);

		m >>= 1;
		n >>= 1;
		/* Zeros one after the other, and as a block of their own. */
		assert_int_equal(kvt__crc32c_zeros(kvt__crc32c_zeros(a, m), n),
				 kvt__crc32c_zeros(a, m + n));
		assert_int_equal(kvt__crc32c_combine(a, kvt__crc32c_zeros(0, n), n),
				 kvt__crc32c_zeros(a, n));
		/* (A B) C is A (B C). */
		assert_int_equal(kvt__crc32c_combine(kvt__crc32c_combine(a, b, m), c, n),
				 kvt__crc32c_combine(a, kvt__crc32c_combine(b, c, n), m + n));
	}
}

static void more_than_an_int_of_bytes_is_one_checksum(void **state)
{
	/* Pages of zeros that are never written cost no memory. */
	size_t length = ((size_t)1 << 31) + 4097;
	uint8_t *bytes =
		mmap(NULL, length, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	(void)state;
	if (bytes == MAP_FAILED) {
		print_message("no address space for %zu bytes\n", length);
		skip();
	}
	assert_int_equal(kvt__crc32c(0, bytes, length), kvt__crc32c_zeros(0, length));
	assert_int_equal(kvt__crc32c(0x12345678, bytes, length),
			 kvt__crc32c_zeros(0x12345678, length));
	munmap(bytes, length);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(known_values_come_out),
		cmocka_unit_test(no_bytes_change_nothing),
		cmocka_unit_test(every_length_and_alignment_agrees_with_bit_by_bit),
		cmocka_unit_test(pieces_continue_and_combine_to_the_whole),
		cmocka_unit_test(zeros_are_as_if_they_had_been_there),
		cmocka_unit_test(lengths_of_64_bits_obey_the_algebra),
		cmocka_unit_test(more_than_an_int_of_bytes_is_one_checksum),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
