/* SPDX-License-Identifier: Apache-2.0 */
/* Byte ranges, scattered and unaligned memory, zeros, late tails and progress. */
#include "contract.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OBJECT_BYTES UINT64_C(300123)

static void ranges_are_exact_from_either_end(void **state)
{
	static const struct {
		int64_t offset;
		uint64_t bytes;
	} ranges[] = {
		{0, 1},
		{0, 4096},
		{1, 4096},
		{4095, 2},
		{4096, 4096},
		{65535, 2},
		{12345, 65536},
		{0, OBJECT_BYTES},
		{OBJECT_BYTES - 1, 1},
		{300000, 123},
		{-1, 1},
		{-64, 64},
		{-4096, 4096},
		{-4100, 5},
		{-70000, 65537},
		{-(int64_t)OBJECT_BYTES, 1},
		{-(int64_t)OBJECT_BYTES, OBJECT_BYTES},
		{256 * 1024 - 1, 32768},
	};
	struct contract *c = *state;

	assert_int_equal(contract_put(c, "r", OBJECT_BYTES, 7, 0, NULL, NULL), 0);
	for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++)
		assert_int_equal(contract_get(c, "r", ranges[i].bytes, ranges[i].offset, 7,
					      OBJECT_BYTES, NULL, NULL),
				 0);
}

static void a_range_that_is_not_there_is_told_with_the_length(void **state)
{
	static const struct {
		int64_t offset;
		uint64_t bytes;
	} ranges[] = {
		{0, 5001},  {5000, 1},	   {4999, 2},	{1, 5000},     {1048576, 100},
		{-5001, 1}, {-5001, 5001}, {-100, 101}, {-1048576, 7},
	};
	struct contract *c = *state;
	struct kvt_object_info head, info;

	assert_int_equal(contract_put(c, "short", 5000, 7, 0, NULL, NULL), 0);
	assert_int_equal(contract_simple(c, KVT_IO_HEAD, "short", NULL, &head), 0);
	for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++) {
		assert_int_equal(contract_get(c, "short", ranges[i].bytes, ranges[i].offset, 7,
					      5000, NULL, &info),
				 KVT_ERANGE);
		assert_int_equal(info.object_bytes, 5000);
		assert_int_equal(info.version.bytes, head.version.bytes);
		assert_memory_equal(info.version.value, head.version.value, head.version.bytes);
	}
	contract_expect(c, "short", 5000, 7);
}

static void a_version_and_a_range_are_checked_together(void **state)
{
	struct contract *c = *state;
	struct kvt_object_info old;
	int result;

	if (!contract_can(c, KVT_CAP_IF_VERSION_GET))
		contract_skip("without IF_VERSION_GET");
	assert_int_equal(contract_put(c, "both", 5000, 1, 0, NULL, NULL), 0);
	assert_int_equal(contract_simple(c, KVT_IO_HEAD, "both", NULL, &old), 0);
	assert_int_equal(contract_put(c, "both", 100, 2, 0, NULL, NULL), 0);
	result = contract_get(c, "both", 4000, 1000, 1, 5000, &old.version, NULL);
	assert_true(result == KVT_EPRECOND || result == KVT_ERANGE);
}

/* Cuts `bytes` bytes into `count` entries of uneven lengths that lie apart, in reversed order in
 * memory. */
static void scatter(struct kvt_iovec *iov, uint32_t count, uint64_t bytes,
		    struct contract_buffer *buffer)
{
	uint64_t left = bytes, place = buffer->bytes;

	for (uint32_t i = 0; i < count; i++) {
		uint64_t share = left / (count - i), n = share;

		if (i + 1 < count && share > 2)
			n = 1 + (share * 2 - 2) * ((i * 7 + 3) % 11) / 11;
		if (i + 1 == count)
			n = left;
		left -= n;
		assert_true(place >= n + 1);
		place -= n + 1;
		iov[i] = (struct kvt_iovec){buffer->data + place, n};
	}
	assert_int_equal(left, 0);
}

static void scattered_memory_is_gathered_and_scattered(void **state)
{
	struct contract *c = *state;
	uint32_t most = c->tb.limits.max_iov < 1024 ? c->tb.limits.max_iov : 1024;
	const uint32_t counts[] = {2, 3, 17, most - 1, most};
	const uint64_t lengths[] = {4096, 100001, 1234567};

	for (size_t k = 0; k < sizeof(counts) / sizeof(counts[0]); k++)
		for (size_t l = 0; l < sizeof(lengths) / sizeof(lengths[0]); l++) {
			uint64_t bytes = lengths[l];
			struct contract_buffer memory =
				contract_buffer_make(bytes + counts[k], k + l);
			struct kvt_iovec *iov = calloc(counts[k], sizeof(*iov));
			struct contract_io io = {.t.io = {.op = KVT_IO_PUT,
							  .name = "scattered",
							  .iov_count = counts[k],
							  .length = bytes,
							  .object_bytes = bytes},
						 .iov = iov,
						 .seed = k * 16 + l + 1};
			uint64_t at = 0;

			assert_non_null(iov);
			scatter(iov, counts[k], bytes, &memory);
			for (uint32_t i = 0; i < counts[k]; i++) {
				contract_fill(iov[i].iov_base, iov[i].iov_len, io.seed, at);
				io.t.io.crc32c = c->th.host.crc32c(io.t.io.crc32c, iov[i].iov_base,
								   iov[i].iov_len);
				at += iov[i].iov_len;
			}
			assert_int_equal(contract_io_run(c, &c->ts, &io), 0);
			contract_expect(c, "scattered", bytes, io.seed);

			memset(memory.data, 0, memory.bytes);
			io = (struct contract_io){.t.io = {.op = KVT_IO_GET,
							   .name = "scattered",
							   .iov_count = counts[k],
							   .length = bytes},
						  .iov = iov,
						  .seed = io.seed};
			assert_int_equal(contract_io_run(c, &c->ts, &io), 0);
			/* Every byte between the pieces is untouched. */
			for (uint32_t i = 0; i < counts[k]; i++)
				assert_int_equal(((uint8_t *)iov[i].iov_base)[iov[i].iov_len], 0);
			free(iov);
			contract_buffer_free(&memory);
		}
}

static void memory_offset_and_length_may_be_unaligned(void **state)
{
	static const size_t misaligns[] = {0, 1, 8, 511, 512, 4095};
	static const uint64_t lengths[] = {1, 512, 4096, 8191, 65536, 65536 + 512};
	static const int64_t offsets[] = {0, 1, 512, 4096, 4097};
	struct contract *c = *state;

	for (size_t m = 0; m < sizeof(misaligns) / sizeof(misaligns[0]); m++)
		for (size_t l = 0; l < sizeof(lengths) / sizeof(lengths[0]); l++) {
			struct contract_buffer memory =
				contract_buffer_make(lengths[l], misaligns[m]);
			struct kvt_iovec iov = {memory.data, lengths[l]};
			struct contract_io io = {.t.io = {.op = KVT_IO_PUT,
							  .name = "u",
							  .iov_count = 1,
							  .length = lengths[l],
							  .object_bytes = lengths[l]},
						 .iov = &iov,
						 .seed = m + 1};

			contract_fill(memory.data, lengths[l], io.seed, 0);
			io.t.io.crc32c = c->th.host.crc32c(0, memory.data, lengths[l]);
			assert_int_equal(contract_io_run(c, &c->ts, &io), 0);
			contract_expect(c, "u", lengths[l], m + 1);
			for (size_t o = 0; o < sizeof(offsets) / sizeof(offsets[0]); o++) {
				if ((uint64_t)offsets[o] >= lengths[l])
					continue;
				io = (struct contract_io){
					.t.io = {.op = KVT_IO_GET,
						 .name = "u",
						 .iov_count = 1,
						 .length = lengths[l] - (uint64_t)offsets[o],
						 .offset = offsets[o]},
					.iov = &iov,
					.seed = m + 1,
					.object_at = (uint64_t)offsets[o]};
				iov.iov_len = io.t.io.length;
				assert_int_equal(contract_io_run(c, &c->ts, &io), 0);
			}
			contract_buffer_free(&memory);
		}
}

/* Checks a get into fresh memory: bytes of the seed, but zeros between `from` and `to`. */
static void expect_with_zeros(struct contract *c, const char *name, uint64_t bytes, uint64_t seed,
			      uint64_t from, uint64_t to)
{
	struct contract_buffer memory = contract_buffer_make(bytes, 0);
	struct kvt_iovec iov = {memory.data, bytes};
	struct contract_io io = {
		.t.io = {.op = KVT_IO_GET, .name = name, .iov_count = 1, .length = bytes},
		.iov = &iov};

	assert_int_equal(contract_io_run(c, &c->ts, &io), 0);
	assert_true(contract_match(memory.data, from, seed, 0));
	for (uint64_t i = from; i < to; i++)
		assert_int_equal(memory.data[i], 0);
	assert_true(contract_match(memory.data + to, bytes - to, seed, to));
	contract_buffer_free(&memory);
}

static void a_piece_without_memory_stores_zeros(void **state)
{
	static const uint64_t cuts[][3] = {
		/* before, zeros, behind */
		{100, 50, 100},
		{4096, 4096, 4096},
		{0, 70000, 1},
		{1, 70000, 0},
		{65536, 65536, 4096},
		{65536, 131072, 64},
		{300000, 400001, 300000},
		{0, 8192, 0},
	};
	struct contract *c = *state;

	for (size_t i = 0; i < sizeof(cuts) / sizeof(cuts[0]); i++) {
		uint64_t a = cuts[i][0], zeros = cuts[i][1], b = cuts[i][2], bytes = a + zeros + b;
		struct contract_buffer memory = contract_buffer_make(bytes, 0);
		struct kvt_iovec iov[3];
		struct contract_io io = {.t.io = {.op = KVT_IO_PUT,
						  .name = "zeros",
						  .length = bytes,
						  .object_bytes = bytes},
					 .iov = iov,
					 .seed = i + 1};
		uint32_t n = 0;

		contract_fill(memory.data, bytes, io.seed, 0);
		memset(memory.data + a, 0, zeros);
		io.t.io.crc32c = c->th.host.crc32c(0, memory.data, bytes);
		if (a)
			iov[n++] = (struct kvt_iovec){memory.data, a};
		iov[n++] = (struct kvt_iovec){NULL, zeros};
		if (b)
			iov[n++] = (struct kvt_iovec){memory.data + a + zeros, b};
		io.t.io.iov_count = n;
		assert_int_equal(contract_io_run(c, &c->ts, &io), 0);
		contract_buffer_free(&memory);
		expect_with_zeros(c, "zeros", bytes, i + 1, a, a + zeros);
	}
}

static void a_get_drops_pieces_without_memory(void **state)
{
	struct contract *c = *state;
	struct contract_buffer memory;
	struct kvt_iovec iov[5];
	struct contract_io io;

	if (!contract_can(c, KVT_CAP_GET_DISCARD))
		contract_skip("without GET_DISCARD");
	assert_int_equal(contract_put(c, "drop", 600000, 3, 0, NULL, NULL), 0);
	memory = contract_buffer_make(5000, 0);
	iov[0] = (struct kvt_iovec){NULL, 99};
	iov[1] = (struct kvt_iovec){memory.data, 1000};
	iov[2] = (struct kvt_iovec){NULL, 300000};
	iov[3] = (struct kvt_iovec){memory.data + 1000, 4000};
	iov[4] = (struct kvt_iovec){NULL, 1};
	io = (struct contract_io){.t.io = {.op = KVT_IO_GET,
					   .name = "drop",
					   .iov_count = 5,
					   .length = 99 + 1000 + 300000 + 4000 + 1,
					   .offset = 1},
				  .iov = iov,
				  .seed = 3,
				  .object_at = 1};
	assert_int_equal(contract_io_run(c, &c->ts, &io), 0);
	assert_true(contract_match(memory.data, 1000, 3, 100));
	assert_true(contract_match(memory.data + 1000, 4000, 3, 301100));
	contract_buffer_free(&memory);
}

/* A put whose last piece is filled by the progress call that covers all before it. */
static void a_late_tail_is_read_after_all_before_it(void **state)
{
	static const uint64_t cuts[][2] = {
		/* early bytes, tail bytes */
		{1, 1},		 {4096, 4096},	   {100, 4096},	    {65536, 4096},
		{1048576, 8192}, {2097152, 69632}, {300001, 70001}, {0, 4096},
	};
	struct contract *c = *state;

	if (contract_can(c, KVT_CAP_FULL_BODY))
		contract_skip("needs the full body beforehand");
	for (size_t i = 0; i < sizeof(cuts) / sizeof(cuts[0]); i++) {
		uint64_t early = cuts[i][0], tail = cuts[i][1], half = early / 2;
		struct contract_buffer body = contract_buffer_make(early, 0);
		struct contract_buffer end = contract_buffer_make(tail, 0);
		struct kvt_iovec iov[3];
		struct contract_io io = {.t.io = {.op = KVT_IO_PUT,
						  .flags = KVT_IO_LATE_TAIL,
						  .name = "tail",
						  .length = early + tail,
						  .object_bytes = early + tail},
					 .iov = iov,
					 .seed = i + 1};
		uint32_t n = 0;

		contract_fill(body.data, early, io.seed, 0);
		if (half)
			iov[n++] = (struct kvt_iovec){body.data, half};
		if (early)
			iov[n++] = (struct kvt_iovec){body.data + half, early - half};
		iov[n++] = (struct kvt_iovec){end.data, tail};
		io.t.io.iov_count = n;
		assert_int_equal(contract_io_run(c, &c->ts, &io), 0);
		contract_expect(c, "tail", early + tail, i + 1);
		contract_buffer_free(&body);
		contract_buffer_free(&end);
	}
}

static void an_io_needs_no_progress_function(void **state)
{
	struct contract *c = *state;
	uint8_t *memory = malloc(100000);

	assert_non_null(memory);
	contract_fill(memory, 100000, 5, 0);
	assert_int_equal(testsession_put(&c->ts, "plain", memory, 100000, 0, NULL, NULL), 0);
	memset(memory, 0, 100000);
	assert_int_equal(testsession_get(&c->ts, "plain", memory, 99000, 1000, NULL), 0);
	assert_true(contract_match(memory, 99000, 5, 1000));
	free(memory);
}

const struct CMUnitTest contract_range_cases[] = {
	cmocka_unit_test(ranges_are_exact_from_either_end),
	cmocka_unit_test(a_range_that_is_not_there_is_told_with_the_length),
	cmocka_unit_test(a_version_and_a_range_are_checked_together),
	cmocka_unit_test(scattered_memory_is_gathered_and_scattered),
	cmocka_unit_test(memory_offset_and_length_may_be_unaligned),
	cmocka_unit_test(a_piece_without_memory_stores_zeros),
	cmocka_unit_test(a_get_drops_pieces_without_memory),
	cmocka_unit_test(a_late_tail_is_read_after_all_before_it),
	cmocka_unit_test(an_io_needs_no_progress_function),
	{NULL, NULL, NULL, NULL, NULL},
};
