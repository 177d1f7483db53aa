/* SPDX-License-Identifier: Apache-2.0 */
/* SipHash as its authors specify it, two rounds a word and four at the end, 128 bits wide. */
#include "siphash.h"

struct s3_sip {
	uint64_t v0, v1, v2, v3;
};

static uint64_t s3_rotate(uint64_t x, unsigned bits)
{
	return x << bits | x >> (64 - bits);
}

static void s3_sip_round(struct s3_sip *s)
{
	s->v0 += s->v1;
	s->v1 = s3_rotate(s->v1, 13) ^ s->v0;
	s->v0 = s3_rotate(s->v0, 32);
	s->v2 += s->v3;
	s->v3 = s3_rotate(s->v3, 16) ^ s->v2;
	s->v0 += s->v3;
	s->v3 = s3_rotate(s->v3, 21) ^ s->v0;
	s->v2 += s->v1;
	s->v1 = s3_rotate(s->v1, 17) ^ s->v2;
	s->v2 = s3_rotate(s->v2, 32);
}

static void s3_sip_word(struct s3_sip *s, uint64_t word)
{
	s->v3 ^= word;
	s3_sip_round(s);
	s3_sip_round(s);
	s->v0 ^= word;
}

static uint64_t s3_sip_end(struct s3_sip *s)
{
	for (int i = 0; i < 4; i++)
		s3_sip_round(s);
	return s->v0 ^ s->v1 ^ s->v2 ^ s->v3;
}

/* The first byte is the lowest, on every machine; written out, it is one load on most. */
static uint64_t s3_load(const uint8_t *b)
{
	return (uint64_t)b[0] | (uint64_t)b[1] << 8 | (uint64_t)b[2] << 16 | (uint64_t)b[3] << 24 |
	       (uint64_t)b[4] << 32 | (uint64_t)b[5] << 40 | (uint64_t)b[6] << 48 |
	       (uint64_t)b[7] << 56;
}

struct s3_hash kvt__s3_siphash(const uint64_t key[2], const void *data, size_t bytes)
{
	const uint8_t *at = data;
	struct s3_sip s = {
		.v0 = UINT64_C(0x736f6d6570736575) ^ key[0],
		.v1 = UINT64_C(0x646f72616e646f6d) ^ key[1] ^ 0xee,
		.v2 = UINT64_C(0x6c7967656e657261) ^ key[0],
		.v3 = UINT64_C(0x7465646279746573) ^ key[1],
	};
	struct s3_hash hash;
	uint8_t last[8] = {0};
	size_t left;

	for (left = bytes; left >= 8; left -= 8, at += 8)
		s3_sip_word(&s, s3_load(at));
	for (size_t i = 0; i < left; i++)
		last[i] = at[i];
	last[7] = (uint8_t)bytes;
	s3_sip_word(&s, s3_load(last));
	s.v2 ^= 0xee;
	hash.low = s3_sip_end(&s);
	s.v1 ^= 0xdd;
	hash.high = s3_sip_end(&s);
	return hash;
}
