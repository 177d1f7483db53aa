/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A storage backend for tests of the core, under the name "fake": objects in memory, requests that
 * the test holds at will and fails at will, and a check of everything that backend.h asks of the
 * core. What it can do (conditions, holes, alignment, parts ...) is set for each store, so that one
 * test covers the shapes of backends that do not exist yet.
 */
#ifndef KVT_TESTS_FAKE_BACKEND_H
#define KVT_TESTS_FAKE_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kvtier/backend.h>

struct fake_store;

#define FAKE_BUCKETS 1024

/* Zero means the default of backend.h. */
struct fake_config {
	uint32_t capabilities; /* enum kvt_capability */
	uint64_t min_part_bytes, max_part_bytes, max_object_bytes;
	uint32_t max_parts, max_iov, memory_alignment, depth;
	uint64_t default_part_bytes, merge_gap_bytes;
	uint32_t piece_bytes;  /* of one progress call; 0: 10,000 */
	uint32_t busy_above;   /* answers BUSY while so many are in flight; 0: never */
	bool blocking;	       /* neither poll nor wake */
	bool done_at_once;     /* answers DONE for what no rule touches */
	bool rewind;	       /* every put, part and get starts once again after its first piece */
	bool youngest_first;   /* completes in reverse order */
	bool head_is_dear;     /* answers KVT_EAGAIN to a head with KVT_IO_IF_CHEAP */
	uint32_t list_buckets; /* of FAKE_BUCKETS of names in a page of a listing: many such pages
				* are empty; 0: one page */
	uint32_t leftovers;    /* what each sweep says to have removed */
	bool keeps_info_quiet; /* fills io->info only where it must */
};

/* What most object stores and file systems can do together. */
#define FAKE_CAPABILITIES                                                                          \
	(KVT_CAP_IF_ABSENT | KVT_CAP_IF_VERSION_PUT | KVT_CAP_IF_VERSION_GET |                     \
	 KVT_CAP_IF_VERSION_REMOVE | KVT_CAP_HOLES | KVT_CAP_TOUCH)

/* Lives until destroyed, through any number of openings. `config` may be NULL: FAKE_CAPABILITIES.
 */
struct fake_store *fake_store_create(const struct fake_config *config);
/* Nothing is open any more. */
void fake_store_destroy(struct fake_store *store);
const char *fake_store_uri(const struct fake_store *store);

/* ---- Objects, behind the core's back ---- */

void fake_object_put(struct fake_store *store, const char *name, const void *data, size_t bytes);
/* A copy, NULL when it is not there. */
uint8_t *fake_object_get(struct fake_store *store, const char *name, size_t *bytesp);
bool fake_object_exists(struct fake_store *store, const char *name);
bool fake_object_remove(struct fake_store *store, const char *name);
/* Flips one bit. */
void fake_object_flip(struct fake_store *store, const char *name, uint64_t byte);
/* Since it was written, and since it was last used; new objects have 0 and 0. */
void fake_object_set_age(struct fake_store *store, const char *name, int64_t age_ns,
			 int64_t access_age_ns);
size_t fake_object_count(struct fake_store *store);
unsigned fake_object_touches(struct fake_store *store, const char *name);

/* ---- Rules ---- */

enum fake_action {
	FAKE_FAIL = 1,	 /* fails with `error` after `after_bytes` bytes were moved */
	FAKE_FAIL_AFTER, /* does it all, then says that it failed with `error` */
	FAKE_HOLD,	 /* waits for the test, or until the deadline has passed; then fails
			  * when there is an `error`, else goes on */
	FAKE_STICK,	 /* waits for the test; the deadline does not take it back */
	FAKE_FLIP,	 /* a get delivers its byte `after_bytes` with one bit flipped */
};

#define FAKE_OP(op) (1u << (op))
#define FAKE_ALL    UINT32_MAX

/* Applies to requests of the given operations whose name has `name` in it. */
struct fake_rule {
	uint32_t ops;	  /* FAKE_OP bits */
	const char *name; /* NULL: every name */
	unsigned skip;	  /* lets so many pass first */
	unsigned times;	  /* then applies to so many; 0: all */
	enum fake_action action;
	int error;
	uint64_t after_bytes;
	int64_t retry_after_ns; /* with a failure */
	/* the fake's own */
	unsigned seen, hits, held;
	bool off;
};
/* Lent until the rule is removed. The first rule that fits decides. */
void fake_rule_add(struct fake_store *store, struct fake_rule *rule);
/* Lets everything go that it holds. */
void fake_rule_remove(struct fake_store *store, struct fake_rule *rule);
unsigned fake_rule_hits(struct fake_store *store, struct fake_rule *rule);
/* Waits until the rule holds `count` requests; false after a minute. */
bool fake_await_held(struct fake_store *store, struct fake_rule *rule, unsigned count);
unsigned fake_held(struct fake_store *store, struct fake_rule *rule);
/* Lets the oldest `count` go. */
void fake_release(struct fake_store *store, struct fake_rule *rule, unsigned count);

/* ---- What happened ---- */

unsigned fake_calls(struct fake_store *store, enum kvt_io_op op);
unsigned fake_in_flight(struct fake_store *store);
/* What it says about itself; "" at first. */
void fake_describe_as(struct fake_store *store, const char *text);
/* How often sessions were polled: who sleeps does not poll. */
unsigned fake_polls(struct fake_store *store);
unsigned fake_peak_in_flight(struct fake_store *store);
/* Whether a request in flight was given memory of [memory, memory + bytes). */
bool fake_touches(struct fake_store *store, const void *memory, size_t bytes);
/* Objects in parts that were begun and neither committed nor aborted. */
unsigned fake_open_handles(struct fake_store *store);
unsigned fake_sessions(struct fake_store *store);
/* The first promise of backend.h that the core broke, NULL when it kept them all. */
const char *fake_violation(struct fake_store *store);

/* The requests in the order of their submission. */
struct fake_record {
	uint32_t op, flags;
	int64_t offset;
	uint64_t length, object_bytes;
	uint64_t nowhere; /* of length: in entries without memory */
	char name[160];
	int result; /* 1 until it is finished */
	int64_t at_ns, deadline_ns;
	uint32_t sweep_age_s;
};
size_t fake_record_count(struct fake_store *store);
struct fake_record fake_record_at(struct fake_store *store, size_t index);
void fake_records_clear(struct fake_store *store);

#endif
