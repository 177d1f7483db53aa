/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks every byte of every object of a namespace and rank: the trailer, the checksum of each slot
 * that is there, and that absent slots are zero. A slot that fails is read once more before the
 * object is called corrupt. Only what is proven corrupt by checksum is ever removed.
 */
#include <stdio.h>
#include <string.h>

#include "crc32c.h"
#include "inspect.h"
#include "list.h"

#define PIECE_BYTES (UINT64_C(4) << 20)
#define CHANGES_MAX 4

struct verifier {
	struct kvt_store *store;
	struct kvt__sync sync;
	bool remove_corrupt;
	kvt_verify_fn callback;
	void *context;
	struct kvt_verify_summary summary;
	uint8_t *memory; /* PIECE_BYTES */
};

/* The walk over one object's payload. */
struct walk {
	struct verifier *verifier;
	const char *name;
	struct kvt__inspection *found;
	uint32_t slot;	 /* the next one to finish */
	uint64_t at;	 /* its offset */
	uint64_t left;	 /* bytes of it that have not been seen */
	uint32_t crc;	 /* of those that have */
	bool is_nonzero; /* among those that have */
	bool removable;	 /* the checksum of a slot failed twice */
	bool is_corrupt;
};

static uint64_t slot_bytes(const struct walk *walk, uint32_t slot)
{
	return walk->found->ref_bytes[slot / walk->found->parsed.blocks_per_chunk];
}

static void slot_begin(struct walk *walk)
{
	walk->left = walk->slot < walk->found->parsed.slot_count ? slot_bytes(walk, walk->slot) : 0;
	walk->crc = 0;
	walk->is_nonzero = false;
}

static bool has_nonzero(const uint8_t *bytes, uint64_t count)
{
	return count > 0 && (bytes[0] != 0 || memcmp(bytes, bytes + 1, count - 1) != 0);
}

static bool slot_is_fine(const struct walk *walk)
{
	const struct kvt__trailer *t = &walk->found->parsed;

	if (!kvt__trailer_has(t, walk->slot))
		return !walk->is_nonzero;
	return walk->crc == kvt__slot_crc_get(t->table, walk->slot);
}

/* Takes bytes that follow what has been seen; stops at a slot that is not fine. */
static bool take_bytes(struct walk *walk, const uint8_t *bytes, uint64_t count)
{
	while (count > 0) {
		uint64_t part = count < walk->left ? count : walk->left;

		if (kvt__trailer_has(&walk->found->parsed, walk->slot))
			walk->crc = kvt__crc32c(walk->crc, bytes, part);
		else
			walk->is_nonzero = walk->is_nonzero || has_nonzero(bytes, part);
		bytes += part;
		count -= part;
		walk->left -= part;
		if (walk->left > 0)
			continue;
		if (!slot_is_fine(walk))
			return false;
		walk->at += slot_bytes(walk, walk->slot++);
		slot_begin(walk);
	}
	return true;
}

/* Reads from the current slot up to `end`: 0 when all is fine, 1 at a slot that is not. */
static int read_until(struct walk *walk, uint64_t end)
{
	struct verifier *v = walk->verifier;

	for (uint64_t at = walk->at; at < end;) {
		uint64_t bytes = end - at < PIECE_BYTES ? end - at : PIECE_BYTES;
		int error = kvt__read_range(&v->sync, walk->name, &walk->found->info.version,
					    (int64_t)at, v->memory, bytes);

		if (error != 0)
			return error;
		if (!take_bytes(walk, v->memory, bytes))
			return 1;
		at += bytes;
	}
	return 0;
}

static int check_payload(struct walk *walk)
{
	const struct kvt__trailer *t = &walk->found->parsed;

	slot_begin(walk);
	while (walk->slot < t->slot_count) {
		int result = read_until(walk, t->payload_bytes);

		if (result <= 0)
			return result;
		slot_begin(walk);
		result = read_until(walk, walk->at + walk->left);
		if (result < 0)
			return result;
		if (result == 0)
			continue; /* the transfer's fault; on from the next slot */
		walk->is_corrupt = true;
		walk->removable = kvt__trailer_has(t, walk->slot);
		if (walk->removable)
			return kvt__fail(KVT_ECORRUPT,
					 "%s: slot %u: checksum 0x%08x, expected 0x%08x",
					 walk->name, walk->slot, walk->crc,
					 kvt__slot_crc_get(t->table, walk->slot));
		return kvt__fail(KVT_ECORRUPT, "%s: slot %u: absent and not zero", walk->name,
				 walk->slot);
	}
	return 0;
}

static void count_state(struct kvt_verify_summary *summary, uint32_t state)
{
	uint64_t *const counters[] = {
		[KVT_OBJECT_WHOLE] = &summary->whole,
		[KVT_OBJECT_PARTIAL] = &summary->partial,
		[KVT_OBJECT_MISMATCH] = &summary->mismatch,
		[KVT_OBJECT_FOREIGN] = &summary->foreign,
		[KVT_OBJECT_CORRUPT] = &summary->corrupt,
		[KVT_OBJECT_UNKNOWN_FORMAT] = &summary->unknown_format,
	};

	++*counters[state];
}

/* Reads one object whole and says what it is; *removablep: a checksum proves that it is corrupt. */
static int check_object(struct verifier *v, const char *name, const struct kvt_key *key,
			struct kvt__inspection *found, bool *removablep)
{
	int error = kvt__inspect(&v->sync, name, key, found);
	struct walk walk = {.verifier = v, .name = name, .found = found};

	*removablep = error == 0 && found->state == KVT_OBJECT_CORRUPT && found->checksum_fails;
	if (error != 0 || found->ref_bytes == NULL)
		return error;
	error = check_payload(&walk);
	if (!walk.is_corrupt)
		return error;
	(void)snprintf(found->detail, sizeof(found->detail), "%s", kvt_error_detail());
	/* A mismatching object is not ours to judge by its payload. */
	if (found->state != KVT_OBJECT_MISMATCH) {
		found->state = KVT_OBJECT_CORRUPT;
		*removablep = walk.removable;
	}
	return 0;
}

/* Counts, removes where that is asked for, and tells. */
static int conclude(struct verifier *v, const struct kvt_list_item *item,
		    struct kvt__inspection *found, int error, bool removable)
{
	struct kvt_verify_entry entry = {
		.name = item->name,
		.state = found->state,
		.error = error,
		.object_bytes = item->info.object_bytes,
		.detail = found->detail,
	};

	if (error == KVT_ENOENT) {
		v->summary.vanished++;
	} else if (error != 0) {
		v->summary.unreadable++;
	} else {
		count_state(&v->summary, found->state);
		if (found->info.object_bytes != 0)
			entry.object_bytes = found->info.object_bytes;
	}
	v->summary.objects++;
	if (error != KVT_ENOENT && entry.object_bytes != KVT_BYTES_UNKNOWN)
		v->summary.bytes += entry.object_bytes;
	if (error != 0)
		(void)snprintf(found->detail, sizeof(found->detail), "%s", kvt_error_detail());
	if (error == 0 && removable && v->remove_corrupt) {
		int removed = kvt__sync_remove(&v->sync, item->name, &found->info.version);

		if (removed == 0)
			v->summary.removed++;
		else
			kvt__log(&v->store->env, KVT_LOG_WARNING, "verify",
				 "%s: is corrupt and stays: %s", item->name, kvt_error_detail());
	}
	return v->callback != NULL ? v->callback(v->context, &entry) : 0;
}

static int verify_one(void *context, const struct kvt_list_item *item)
{
	struct verifier *v = context;
	struct kvt__inspection found = {.state = KVT_OBJECT_FOREIGN};
	uint8_t hash[64];
	struct kvt_key key = {.hash = hash};
	bool removable = false;
	int error = 0, result;

	if (kvt__object_name_parse(&v->store->ns, item->name, hash, &key.hash_bytes, &key.group)) {
		for (int changes = 0; changes < CHANGES_MAX; changes++) {
			kvt__inspection_fini(&found, &v->store->env);
			error = check_object(v, item->name, &key, &found, &removable);
			if (error != KVT_EPRECOND)
				break;
		}
	} else {
		found.info = item->info;
		(void)snprintf(found.detail, sizeof(found.detail), "not the name of an object");
	}
	if (error == KVT_ENOMEM)
		result = error;
	else
		result = conclude(v, item, &found, error, removable);
	kvt__inspection_fini(&found, &v->store->env);
	return result;
}

static int run(struct verifier *v)
{
	int result = kvt__sync_open(&v->sync, v->store, true);

	if (result != 0)
		return result;
	v->memory = kvt__alloc_aligned(&v->store->env, PIECE_BYTES, KVT__PAGE_BYTES);
	if (v->memory == NULL)
		result = kvt__fail(KVT_ENOMEM, "kvt_store_verify: out of memory");
	else
		result = kvt__list_each(&v->sync, v->store->ns.object_prefix, verify_one, v);
	kvt__free(&v->store->env, v->memory);
	kvt__sync_close(&v->sync);
	return result;
}

int kvt_store_verify(struct kvt_store *store, const struct kvt_verify_options *options,
		     kvt_verify_fn callback, void *context, struct kvt_verify_summary *summary)
{
	const size_t least = offsetof(struct kvt_verify_summary, removed) + sizeof(uint64_t);
	struct verifier v = {.store = store, .callback = callback, .context = context};
	struct kvt_verify_options o;
	int result = kvt__store_check(store, "kvt_store_verify");

	if (result == 0 && summary == NULL)
		result = kvt__fail(KVT_EINVAL, "kvt_store_verify: summary: NULL");
	if (result != 0)
		return result;
	result = kvt__copy_out(summary, &v.summary, sizeof(v.summary), least,
			       "kvt_store_verify: summary");
	if (result == 0)
		result = kvt__copy_options(&o, sizeof(o), options,
					   sizeof(struct kvt_verify_options), "kvt_verify_options");
	if (result != 0)
		return result;
	v.remove_corrupt = o.remove_corrupt != 0;
	result = run(&v);
	(void)kvt__copy_out(summary, &v.summary, sizeof(v.summary), least,
			    "kvt_store_verify: summary");
	return result;
}
