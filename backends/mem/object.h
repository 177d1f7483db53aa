/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One object of the mem backend: a name and a body in segments of 64 KiB, the last one smaller.
 * Segments that were only ever written as zeros do not exist. Once an object can be found by its
 * name its body never changes: readers hold a reference and copy without a lock.
 */
#ifndef KVT_BACKENDS_MEM_OBJECT_H
#define KVT_BACKENDS_MEM_OBJECT_H

#include <stdatomic.h>

#include "pool.h"

struct kvt__mem_object {
	struct kvt__mem_object *next; /* in its bucket; guarded by the shard's lock */
	uint64_t hash;
	atomic_uint refs;
	uint32_t name_bytes; /* without the NUL */
	const char *name;
	uint64_t object_bytes;
	uint64_t version; /* set, like written_ns, before the object can be found */
	int64_t written_ns;
	atomic_llong accessed_ns;
	uint64_t segment_count;
	uint8_t **segments;
	uint32_t header_bytes; /* of the piece that holds this struct, the name and, when they fit,
				  the segments' addresses */
	uint32_t segments_apart;
};

/* An object with one reference and no segments: all zeros. NULL when there is no memory. */
struct kvt__mem_object *kvt__mem_object_create(struct kvt__mem_cache *cache, const char *name,
					       uint32_t name_bytes, uint64_t hash,
					       uint64_t object_bytes);
/* Drops one reference; the last one frees the object. NULL is accepted. */
void kvt__mem_object_release(struct kvt__mem_cache *cache, struct kvt__mem_object *object);
/* Frees what an object holds outside the slabs, whatever its references; for the end of a content.
 */
void kvt__mem_object_drop(const struct kvt__mem_pool *pool, struct kvt__mem_object *object);

/* Copies the body of a put or part to offset `at`, telling io->progress beforehand; the caller has
 * checked the range. 0 or KVT_ENOMEM. */
int kvt__mem_object_write(struct kvt__mem_cache *cache, struct kvt__mem_object *object, uint64_t at,
			  struct kvt_io *io);
/* Copies `bytes` bytes from offset `at` into the iovec, telling io->progress afterwards. */
void kvt__mem_object_read(const struct kvt__mem_object *object, uint64_t at, uint64_t bytes,
			  struct kvt_io *io);
void kvt__mem_object_info(const struct kvt__mem_object *object, int64_t now_ns,
			  struct kvt_object_info *info);
/* Whether this is the version meant. */
int kvt__mem_object_is(const struct kvt__mem_object *object, const struct kvt_version *version);

#endif
