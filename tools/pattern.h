/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes that a number stands for: what bench and replay store, and what loads are compared with.
 * Any byte can be made without those before it, at the speed of memory, and two numbers share no
 * tile: a chunk that was swapped, shifted or torn differs. Pure; any thread once pattern_init was
 * called.
 */
#ifndef KVT_TOOLS_PATTERN_H
#define KVT_TOOLS_PATTERN_H

#include <stdint.h>

/* Call once, before the others. */
void pattern_init(void);
/* Writes bytes [offset, offset + bytes) of the pattern of `number`. */
void pattern_fill(void *memory, uint64_t number, uint64_t offset, uint64_t bytes);
/* How many leading bytes of memory are those of the pattern; `bytes` when all are. */
uint64_t pattern_check(const void *memory, uint64_t number, uint64_t offset, uint64_t bytes);
/* A well mixed 64-bit number of a 64-bit number (splitmix64): a bijection. */
uint64_t pattern_mix(uint64_t number);

#endif
