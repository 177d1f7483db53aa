/* SPDX-License-Identifier: Apache-2.0 */
/* SipHash-2-4 with 128 bits: whoever does not know the key cannot choose two texts that collide. */
#ifndef KVT_S3_SIPHASH_H
#define KVT_S3_SIPHASH_H

#include <stddef.h>
#include <stdint.h>

struct s3_hash {
	uint64_t low, high;
};

/* Never fails, never allocates. Any thread. */
struct s3_hash kvt__s3_siphash(const uint64_t key[2], const void *data, size_t bytes);

#endif
