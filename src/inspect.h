/* SPDX-License-Identifier: Apache-2.0 */
/* Finding out what an object is, from its trailer. Blocking. */
#ifndef KVT_SRC_INSPECT_H
#define KVT_SRC_INSPECT_H

#include "format.h"
#include "store.h"

struct kvt__inspection {
	uint32_t state; /* enum kvt_object_state; payloads are not looked at */
	struct kvt_object_info info;
	uint32_t version;		       /* of the format; 0 for a foreign object */
	uint64_t payload_bytes, trailer_bytes; /* as the tail says, when it can be believed */
	/* Of whole, partial and mismatching objects, else NULL: */
	uint8_t *trailer; /* owned, what parsed points into */
	struct kvt__trailer parsed;
	uint64_t *ref_bytes; /* owned */
	bool checksum_fails; /* corrupt, and its trailer's own checksum proves it */
	char detail[256];    /* why the state is a bad one, "" otherwise */
};

/*
 * Reads the trailer of an object, twice when it is corrupt, and compares it with the key that the
 * name stands for. 0 whatever the state; KVT_ENOENT, KVT_ENOMEM, KVT_EPRECOND when the object keeps
 * changing, or why it could not be read. fini in any case.
 */
int kvt__inspect(struct kvt__sync *sync, const char *name, const struct kvt_key *key,
		 struct kvt__inspection *found);
void kvt__inspection_fini(struct kvt__inspection *found, const struct kvt__env *env);

/* Reads a range of an object of a known version, exactly: KVT_EPRECOND when it is another version
 * by now. The memory is aligned to 4,096. */
int kvt__read_range(struct kvt__sync *sync, const char *name, const struct kvt_version *version,
		    int64_t offset, void *memory, uint64_t bytes);

#endif
