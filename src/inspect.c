/* SPDX-License-Identifier: Apache-2.0 */
/* Finding out what an object is: the last page is read wherever the object ends, then the whole
 * trailer when it is longer. */
#include "inspect.h"

#include <stdio.h>
#include <string.h>

#define CHANGES_MAX 4 /* times that the object may change while it is read */

int kvt__read_range(struct kvt__sync *sync, const char *name, const struct kvt_version *version,
		    int64_t offset, void *memory, uint64_t bytes)
{
	struct kvt_iovec iov = {memory, bytes};
	struct kvt_io io = {
		.op = KVT_IO_GET,
		.name = name,
		.iov = &iov,
		.iov_count = 1,
		.length = bytes,
		.offset = offset,
	};
	int error;

	if (version->bytes > 0 && (sync->store->limits.capabilities & KVT_CAP_IF_VERSION_GET)) {
		io.flags = KVT_IO_IF_VERSION;
		io.if_version = version;
	}
	error = kvt__sync_retry(sync, &io, kvt__sync_timeout_ns(bytes));
	if (error == 0 && version->bytes > 0 && io.info.version.bytes > 0 &&
	    !kvt__version_equal(&io.info.version, version))
		return kvt__fail(KVT_EPRECOND, "get %s: it is another version by now", name);
	/* What was there had this range. */
	return error == KVT_ERANGE ? KVT_EPRECOND : error;
}

/* The last page of an object of any length: 0 with found->info set and, when the object has as
 * much, the page filled; KVT_ERANGE when it is shorter. */
static int read_last_page(struct kvt__sync *sync, const char *name, uint8_t *page,
			  struct kvt__inspection *found)
{
	struct kvt_iovec iov = {page, KVT__PAGE_BYTES};
	struct kvt_io io = {
		.op = KVT_IO_GET,
		.name = name,
		.iov = &iov,
		.iov_count = 1,
		.length = KVT__PAGE_BYTES,
		.offset = -(int64_t)KVT__PAGE_BYTES,
	};
	int error = kvt__sync_retry(sync, &io, kvt__sync_timeout_ns(0));

	found->info = io.info;
	if ((error == 0 || error == KVT_ERANGE) && io.info.object_bytes == KVT_BYTES_UNKNOWN)
		return kvt__fail(KVT_EINTERNAL, "get %s: backend %s does not tell the length", name,
				 sync->store->ops.name);
	return error;
}

static int foreign(struct kvt__inspection *found)
{
	found->state = KVT_OBJECT_FOREIGN;
	return 0;
}

/* Compares a trailer that is fine in itself with what the name says. */
static int compare(struct kvt__sync *sync, const struct kvt_key *key, struct kvt__inspection *found)
{
	const struct kvt__trailer *t = &found->parsed;
	struct kvt__identity identity = {
		.hash = key->hash,
		.hash_bytes = key->hash_bytes,
		.group = key->group,
		.rank = sync->store->ns.rank,
		.digest = sync->store->ns.digest,
	};
	struct kvt__geometry geometry = {
		.blocks_per_chunk = t->blocks_per_chunk,
		.ref_count = t->ref_count,
	};

	found->ref_bytes =
		kvt__alloc(&sync->store->env, (t->ref_count + 1) * sizeof(*found->ref_bytes));
	if (found->ref_bytes == NULL)
		return kvt__fail(KVT_ENOMEM, "trailer of %u refs: out of memory", t->ref_count);
	for (uint32_t d = 0; d < t->ref_count; d++)
		found->ref_bytes[d] = kvt__trailer_ref_bytes(t, d);
	geometry.ref_bytes = found->ref_bytes;
	found->state = t->partial ? KVT_OBJECT_PARTIAL : KVT_OBJECT_WHOLE;
	if (kvt__trailer_compare(t, &geometry, &identity) != 0)
		found->state = KVT_OBJECT_MISMATCH;
	return 0;
}

/* Reads and classifies once. KVT_EPRECOND: it changed meanwhile. */
static int inspect_once(struct kvt__sync *sync, const char *name, const struct kvt_key *key,
			uint8_t *page, struct kvt__inspection *found)
{
	const uint8_t *tail = page + KVT__PAGE_BYTES - KVT__TAIL_BYTES;
	uint64_t bytes;
	int error = read_last_page(sync, name, page, found);

	if (error == KVT_ERANGE) {
		(void)kvt__fail(KVT_EFOREIGN, "object of %llu bytes: shorter than any of ours",
				(unsigned long long)found->info.object_bytes);
		return foreign(found);
	}
	if (error != 0)
		return error;
	error = kvt__tail_peek(tail, found->info.object_bytes, &bytes);
	if (error == KVT_EFOREIGN)
		return foreign(found);
	found->version = tail[8] | (uint32_t)tail[9] << 8;
	if (error == 0) {
		found->trailer_bytes = bytes;
		found->payload_bytes = found->info.object_bytes - bytes;
		found->trailer = kvt__alloc_aligned(&sync->store->env, bytes, KVT__PAGE_BYTES);
		if (found->trailer == NULL)
			return kvt__fail(KVT_ENOMEM, "trailer of %llu bytes: out of memory",
					 (unsigned long long)bytes);
		if (bytes <= KVT__PAGE_BYTES)
			memcpy(found->trailer, page + KVT__PAGE_BYTES - bytes, bytes);
		else
			error = kvt__read_range(sync, name, &found->info.version, -(int64_t)bytes,
						found->trailer, bytes);
		if (error != 0)
			return error;
		found->checksum_fails = kvt__trailer_checksum_fails(found->trailer, bytes);
		error = kvt__trailer_parse(found->trailer, bytes, found->info.object_bytes,
					   &found->parsed);
	}
	switch (error) {
	case 0:
		return compare(sync, key, found);
	case KVT_EFORMAT:
		found->state = KVT_OBJECT_UNKNOWN_FORMAT;
		return 0;
	case KVT_EFOREIGN:
		return foreign(found);
	default:
		found->state = KVT_OBJECT_CORRUPT;
		return error == KVT_ECORRUPT ? 0 : error;
	}
}

void kvt__inspection_fini(struct kvt__inspection *found, const struct kvt__env *env)
{
	kvt__free(env, found->trailer);
	kvt__free(env, found->ref_bytes);
	memset(found, 0, sizeof(*found));
}

int kvt__inspect(struct kvt__sync *sync, const char *name, const struct kvt_key *key,
		 struct kvt__inspection *found)
{
	struct kvt__env *env = &sync->store->env;
	uint8_t *page = kvt__alloc_aligned(env, KVT__PAGE_BYTES, KVT__PAGE_BYTES);
	unsigned changes = 0, corrupt = 0;
	int error;

	memset(found, 0, sizeof(*found));
	if (page == NULL)
		return kvt__fail(KVT_ENOMEM, "get %s: out of memory", name);
	for (;;) {
		error = inspect_once(sync, name, key, page, found);
		if (error == KVT_EPRECOND && ++changes < CHANGES_MAX) {
			kvt__inspection_fini(found, env);
			continue;
		}
		/* Once may have been the transfer's fault. */
		if (error == 0 && found->state == KVT_OBJECT_CORRUPT && ++corrupt < 2) {
			kvt__inspection_fini(found, env);
			continue;
		}
		break;
	}
	kvt__free(env, page);
	if (error == 0 && found->state != KVT_OBJECT_WHOLE && found->state != KVT_OBJECT_PARTIAL)
		(void)snprintf(found->detail, sizeof(found->detail), "%s", kvt_error_detail());
	if (error != 0)
		kvt__inspection_fini(found, env);
	return error;
}
