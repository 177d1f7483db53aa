/* SPDX-License-Identifier: Apache-2.0 */
/* CRC-32C (Castagnoli) on ISA-L, with the two operations on checksums that it lacks. */
#ifndef KVT_SRC_CRC32C_H
#define KVT_SRC_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* The checksum of what `crc` covers followed by `bytes` bytes; start with 0. Any length. */
uint32_t kvt__crc32c(uint32_t crc, const void *data, size_t bytes);
/* The checksum of A followed by B, from those of A and B and the length of B. */
uint32_t kvt__crc32c_combine(uint32_t crc_a, uint32_t crc_b, uint64_t bytes_b);
/* The checksum of what `crc` covers followed by `bytes` zero bytes. Logarithmic time. */
uint32_t kvt__crc32c_zeros(uint32_t crc, uint64_t bytes);

#endif
