/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CRC-32C (Castagnoli). The bytes go through ISA-L, whose function neither inverts nor takes more
 * than an int's worth of bytes. Combining and appending zeros are multiplications by x^(8n) modulo
 * the polynomial; the powers for each value of each byte of n are tabulated once. Any thread.
 */
#include "crc32c.h"

#include <isa-l/crc.h>
#include <limits.h>
#include <pthread.h>

#define POLYNOMIAL 0x82f63b78u /* reflected, x^32 left out */
#define ONE	   0x80000000u /* x^0 */
#define X8	   0x00800000u /* x^8 */
#define PIECE	   ((size_t)1 << 30)

_Static_assert(PIECE <= INT_MAX, "ISA-L takes an int");

/* powers[i][d] = x^(8 * d * 256^i) */
static uint32_t powers[8][256];
static pthread_once_t powers_once = PTHREAD_ONCE_INIT;

/* The product of two polynomials modulo the polynomial. */
static uint32_t multiply(uint32_t a, uint32_t b)
{
	uint32_t product = 0;

	for (; a; a <<= 1) {
		product ^= b & (uint32_t) - (int32_t)(a >> 31);
		b = b >> 1 ^ (POLYNOMIAL & (uint32_t) - (int32_t)(b & 1));
	}
	return product;
}

static void make_powers(void)
{
	uint32_t step = X8;

	for (int i = 0; i < 8; i++) {
		powers[i][0] = ONE;
		for (int d = 1; d < 256; d++)
			powers[i][d] = multiply(powers[i][d - 1], step);
		step = multiply(powers[i][255], step);
	}
}

/* a * x^(8 * bytes) */
static uint32_t shift(uint32_t a, uint64_t bytes)
{
	(void)pthread_once(&powers_once, make_powers);
	for (int i = 0; bytes; i++, bytes >>= 8) {
		if (bytes & 0xff)
			a = multiply(a, powers[i][bytes & 0xff]);
	}
	return a;
}

uint32_t kvt__crc32c(uint32_t crc, const void *data, size_t bytes)
{
	/* ISA-L does not write through its pointer, which lacks the const. */
	unsigned char *at = (unsigned char *)(uintptr_t)data;
	uint32_t state = ~crc;

	while (bytes > 0) {
		size_t piece = bytes < PIECE ? bytes : PIECE;
		state = crc32_iscsi(at, (int)piece, state);
		at += piece;
		bytes -= piece;
	}
	return ~state;
}

uint32_t kvt__crc32c_combine(uint32_t crc_a, uint32_t crc_b, uint64_t bytes_b)
{
	return shift(crc_a, bytes_b) ^ crc_b;
}

uint32_t kvt__crc32c_zeros(uint32_t crc, uint64_t bytes)
{
	return ~shift(~crc, bytes);
}
