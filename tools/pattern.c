/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Word i of a pattern is table[i mod 2,048] plus a number of its own for each tile of 2,048 words.
 * One addition a word keeps up with memory, which multiplications for each word would not, and the
 * table stays in the first-level cache.
 */
#include "pattern.h"

#include <string.h>

#define TILE_WORDS 2048
#define TILE_BYTES (UINT64_C(8) * TILE_WORDS)
/* Words done in one vectorised run. */
#define RUN_WORDS 64
#define RUN_BYTES (UINT64_C(8) * RUN_WORDS)

static uint64_t table[TILE_WORDS];

uint64_t pattern_mix(uint64_t number)
{
	number += UINT64_C(0x9e3779b97f4a7c15);
	number = (number ^ (number >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	number = (number ^ (number >> 27)) * UINT64_C(0x94d049bb133111eb);
	return number ^ (number >> 31);
}

void pattern_init(void)
{
	for (uint64_t i = 0; i < TILE_WORDS; i++)
		table[i] = pattern_mix(i * UINT64_C(0xd1342543de82ef95) + 1);
}

/* What is added to the table in the tile that holds the byte at `offset`. */
static uint64_t tile_number(uint64_t number, uint64_t offset)
{
	return pattern_mix(pattern_mix(number) + offset / TILE_BYTES);
}

static void run_fill(unsigned char *memory, const uint64_t *words, uint64_t added)
{
	uint64_t out[RUN_WORDS];

	for (unsigned i = 0; i < RUN_WORDS; i++)
		out[i] = words[i] + added;
	memcpy(memory, out, sizeof(out));
}

static int run_differs(const unsigned char *memory, const uint64_t *words, uint64_t added)
{
	uint64_t in[RUN_WORDS], difference = 0;

	memcpy(in, memory, sizeof(in));
	for (unsigned i = 0; i < RUN_WORDS; i++)
		difference |= in[i] ^ (words[i] + added);
	return difference != 0;
}

/* The next piece at `offset`, of at most `bytes`: a whole run where one fits, else a part of a
 * word. Returns its length; `word` is set for the latter. */
static uint64_t piece_next(uint64_t number, uint64_t offset, uint64_t bytes,
			   const uint64_t **wordsp, uint64_t *addedp, unsigned char word[8])
{
	uint64_t index = offset % TILE_BYTES / 8, part, value;

	*addedp = tile_number(number, offset);
	*wordsp = &table[index];
	if (offset % 8 == 0 && bytes >= RUN_BYTES && index + RUN_WORDS <= TILE_WORDS)
		return RUN_BYTES;
	value = table[index] + *addedp;
	memcpy(word, &value, 8);
	part = 8 - offset % 8;
	return part < bytes ? part : bytes;
}

void pattern_fill(void *memory, uint64_t number, uint64_t offset, uint64_t bytes)
{
	unsigned char *out = memory, word[8];
	const uint64_t *words;
	uint64_t added;

	while (bytes > 0) {
		uint64_t piece = piece_next(number, offset, bytes, &words, &added, word);

		if (piece == RUN_BYTES)
			run_fill(out, words, added);
		else
			memcpy(out, word + offset % 8, piece);
		out += piece;
		offset += piece;
		bytes -= piece;
	}
}

uint64_t pattern_check(const void *memory, uint64_t number, uint64_t offset, uint64_t bytes)
{
	const unsigned char *in = memory;
	const uint64_t *words;
	unsigned char word[8];
	uint64_t added, done = 0;

	while (done < bytes) {
		uint64_t piece =
			piece_next(number, offset + done, bytes - done, &words, &added, word);

		if (piece == RUN_BYTES && run_differs(in + done, words, added)) {
			unsigned char expected[RUN_BYTES];

			run_fill(expected, words, added);
			for (uint64_t i = 0; i < RUN_BYTES; i++)
				if (in[done + i] != expected[i])
					return done + i;
		}
		if (piece != RUN_BYTES)
			for (uint64_t i = 0; i < piece; i++)
				if (in[done + i] != word[(offset + done) % 8 + i])
					return done + i;
		done += piece;
	}
	return done;
}
