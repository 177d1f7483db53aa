/* SPDX-License-Identifier: Apache-2.0 */
/* Bodies in segments, and the copies between them and an iovec. */
#include "object.h"

#include <string.h>

/* What the core is told about at once: small enough to stay in the second-level cache between its
 * checksum and our copy. */
#define MEM_PIECE_BYTES (UINT64_C(256) << 10)

static uint64_t mem_segment_bytes(const struct kvt__mem_object *object, uint64_t index)
{
	uint64_t rest = object->object_bytes - (index << KVT__MEM_MOST_SHIFT);

	return rest < KVT__MEM_MOST_BYTES ? rest : KVT__MEM_MOST_BYTES;
}

struct kvt__mem_object *kvt__mem_object_create(struct kvt__mem_cache *cache, const char *name,
					       uint32_t name_bytes, uint64_t hash,
					       uint64_t object_bytes)
{
	uint64_t count = (object_bytes + KVT__MEM_MOST_BYTES - 1) >> KVT__MEM_MOST_SHIFT;
	size_t least = sizeof(struct kvt__mem_object) + name_bytes + 1;
	int apart = count > (KVT__MEM_MOST_BYTES - least) / sizeof(uint8_t *);
	struct kvt__mem_object *object;
	char *name_at;

	if (!apart)
		least += count * sizeof(uint8_t *);
	object = kvt__mem_piece_alloc(cache, least);
	if (!object)
		return NULL;
	*object = (struct kvt__mem_object){
		.hash = hash,
		.refs = 1,
		.name_bytes = name_bytes,
		.object_bytes = object_bytes,
		.segment_count = count,
		.segments = (uint8_t **)(object + 1),
		.header_bytes = (uint32_t)least,
		.segments_apart = (uint32_t)apart,
	};
	name_at = (char *)(object + 1) + (apart ? 0 : count * sizeof(uint8_t *));
	memcpy(name_at, name, name_bytes);
	name_at[name_bytes] = 0;
	object->name = name_at;
	if (apart)
		object->segments = kvt__mem_large_alloc(cache->pool, count * sizeof(uint8_t *), 16);
	if (!object->segments) {
		kvt__mem_piece_free(cache, object, least);
		return NULL;
	}
	memset(object->segments, 0, count * sizeof(uint8_t *));
	return object;
}

void kvt__mem_object_drop(const struct kvt__mem_pool *pool, struct kvt__mem_object *object)
{
	if (object->segments_apart)
		kvt__mem_large_free(pool, object->segments);
}

void kvt__mem_object_release(struct kvt__mem_cache *cache, struct kvt__mem_object *object)
{
	if (!object || atomic_fetch_sub_explicit(&object->refs, 1, memory_order_acq_rel) != 1)
		return;
	for (uint64_t i = 0; i < object->segment_count; i++)
		kvt__mem_piece_free(cache, object->segments[i], mem_segment_bytes(object, i));
	kvt__mem_object_drop(cache->pool, object);
	kvt__mem_piece_free(cache, object, object->header_bytes);
}

/*
 * Writes a run of bytes, or of zeros. Every byte of an object is written by some run, so a fresh
 * segment needs no clearing; a run of zeros makes a segment unless it covers all of it.
 */
static int mem_write_run(struct kvt__mem_cache *cache, struct kvt__mem_object *object, uint64_t at,
			 const uint8_t *from, uint64_t bytes)
{
	while (bytes) {
		uint64_t index = at >> KVT__MEM_MOST_SHIFT, start = at & (KVT__MEM_MOST_BYTES - 1);
		uint64_t whole = mem_segment_bytes(object, index);
		uint64_t n = bytes < whole - start ? bytes : whole - start;
		uint8_t **segment = &object->segments[index];

		if (!*segment && (from || n < whole)) {
			*segment = kvt__mem_piece_alloc(cache, whole);
			if (!*segment)
				return KVT_ENOMEM;
		}
		if (from) {
			memcpy(*segment + start, from, n);
			from += n;
		} else if (*segment) {
			memset(*segment + start, 0, n);
		}
		at += n;
		bytes -= n;
	}
	return 0;
}

int kvt__mem_object_write(struct kvt__mem_cache *cache, struct kvt__mem_object *object, uint64_t at,
			  struct kvt_io *io)
{
	int late = io->flags & KVT_IO_LATE_TAIL && io->iov_count;
	uint64_t early_bytes = io->length - (late ? io->iov[io->iov_count - 1].iov_len : 0);
	uint64_t done = 0, told = 0;

	if (late && !early_bytes && io->progress)
		io->progress(io, 0);
	for (uint32_t i = 0; i < io->iov_count; i++) {
		uint64_t entry_bytes = io->iov[i].iov_len, n;

		for (uint64_t x = 0; x < entry_bytes; x += n) {
			const uint8_t *from = io->iov[i].iov_base;

			if (done == told && told < early_bytes) {
				told += early_bytes - told < MEM_PIECE_BYTES ? early_bytes - told
									     : MEM_PIECE_BYTES;
				if (io->progress)
					io->progress(io, told);
			}
			n = entry_bytes - x;
			if (done < told && n > told - done)
				n = told - done;
			if (mem_write_run(cache, object, at + done, from ? from + x : NULL, n))
				return KVT_ENOMEM;
			done += n;
		}
	}
	return 0;
}

static void mem_read_run(const struct kvt__mem_object *object, uint64_t at, uint8_t *to,
			 uint64_t bytes)
{
	while (bytes) {
		uint64_t index = at >> KVT__MEM_MOST_SHIFT, start = at & (KVT__MEM_MOST_BYTES - 1);
		uint64_t whole = mem_segment_bytes(object, index);
		uint64_t n = bytes < whole - start ? bytes : whole - start;

		if (object->segments[index])
			memcpy(to, object->segments[index] + start, n);
		else
			memset(to, 0, n);
		to += n;
		at += n;
		bytes -= n;
	}
}

void kvt__mem_object_read(const struct kvt__mem_object *object, uint64_t at, uint64_t bytes,
			  struct kvt_io *io)
{
	uint64_t told = 0;

	for (uint32_t i = 0; i < io->iov_count && io->bytes_landed < bytes; i++) {
		uint64_t entry_bytes = io->iov[i].iov_len, n;

		for (uint64_t x = 0; x < entry_bytes && io->bytes_landed < bytes; x += n) {
			uint8_t *to = io->iov[i].iov_base;

			n = entry_bytes - x;
			if (n > bytes - io->bytes_landed)
				n = bytes - io->bytes_landed;
			if (n > told + MEM_PIECE_BYTES - io->bytes_landed)
				n = told + MEM_PIECE_BYTES - io->bytes_landed;
			if (to)
				mem_read_run(object, at + io->bytes_landed, to + x, n);
			io->bytes_landed += n;
			if (io->bytes_landed == told + MEM_PIECE_BYTES ||
			    io->bytes_landed == bytes) {
				told = io->bytes_landed;
				if (io->progress)
					io->progress(io, told);
			}
		}
	}
}

void kvt__mem_object_info(const struct kvt__mem_object *object, int64_t now_ns,
			  struct kvt_object_info *info)
{
	int64_t accessed_ns = atomic_load_explicit(&object->accessed_ns, memory_order_relaxed);

	info->object_bytes = object->object_bytes;
	info->version.bytes = sizeof(object->version);
	memcpy(info->version.value, &object->version, sizeof(object->version));
	info->age_ns = now_ns > object->written_ns ? now_ns - object->written_ns : 0;
	info->access_age_ns = now_ns > accessed_ns ? now_ns - accessed_ns : 0;
}

int kvt__mem_object_is(const struct kvt__mem_object *object, const struct kvt_version *version)
{
	return version && version->bytes == sizeof(object->version) &&
	       !memcmp(version->value, &object->version, sizeof(object->version));
}
