/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process that stores a known sequence of chunks, for tests that kill it or let several race, and
 * the checks of what it left behind. Chunk number n of a sequence is whole and small, whole and of
 * several parts, or stored in two partial halves, by n.
 */
#ifndef KVT_TESTS_CHUNK_WRITER_H
#define KVT_TESTS_CHUNK_WRITER_H

#include <sys/types.h>

#include "support.h"

struct chunk_writer {
	const char *uri;
	const struct kvt_option *options;
	size_t option_count;
	uint64_t sequence; /* chunks of two sequences have different keys */
	uint64_t first;
	uint64_t count; /* 0: for ever */
	bool backwards; /* the halves of partial chunks in the other order */
};

/*
 * Forks a writer; no thread may run but the caller's. It waits for a byte on `go` (a descriptor,
 * -1: does not wait), then writes a byte to *progressp's other end for each finished job. Exit
 * status 0 when all jobs ended as stored or skipped.
 */
pid_t chunk_writer_start(const struct chunk_writer *writer, int go, int *progressp);

/* What there is of one chunk. */
enum chunk_found { CHUNK_ABSENT, CHUNK_SOME, CHUNK_ALL };
/* Loads every block alone and all together; fails the test when anything is neither right nor
 * missing. */
enum chunk_found chunk_writer_check(struct test_bed *bed, uint64_t sequence, uint64_t number);
/* Asserts that nothing but the lock of one owner lies among the temporary files below `root`. */
void chunk_writer_check_temp(const char *root);

#endif
