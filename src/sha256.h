/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256 (FIPS 180-4) of what is in memory, for the names of namespaces: a few hundred bytes when
 * a store is opened. Own code, so that the core does without a cryptographic library. */
#ifndef KVT_SRC_SHA256_H
#define KVT_SRC_SHA256_H

#include <stddef.h>
#include <stdint.h>

#define KVT__SHA256_BYTES 32

/* Writes the digest of `bytes` bytes. Any thread; cannot fail. */
void kvt__sha256(const void *data, size_t bytes, uint8_t digest[KVT__SHA256_BYTES]);

#endif
