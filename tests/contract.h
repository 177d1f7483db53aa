/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The contract suite: what any backend must do, driven through its table alone. A backend joins it
 * with a program of about 15 lines that describes it in a struct and returns contract_run.
 */
#ifndef KVT_TESTS_CONTRACT_H
#define KVT_TESTS_CONTRACT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "testhost.h"

struct contract_backend {
	const char *name; /* of the group of tests */
	const struct kvt_backend_ops *ops;
	const struct kvt_backend_ops *inner; /* of a wrapper, else NULL */
	const struct kvt_option_value *options;
	size_t option_count;
	const struct kvt_option_value *inner_options;
	size_t inner_option_count;
	uint32_t capabilities; /* that it must have; what more it has is tested too */
	/* Conditions are kept by asking first, so that two who race may both win. */
	bool asks_first;
	/* A server behind it may fail for a moment when requests race for one object: transient
	 * failures of these are no broken promise. */
	bool server_may_fail;
	/* Makes a new, empty place and writes its location, 0 when it worked; NULL: the location is
	 * "". Called before each test. */
	int (*make_location)(char *location, size_t bytes);
	/* Removes it again; may be NULL. */
	void (*remove_location)(const char *location);
};

/* Runs every case on a freshly opened backend each; the number of failures, for main to return. */
int contract_run(const struct contract_backend *backend);

/* Locations in a new temporary directory, "//" and its absolute path. */
int contract_directory_make(char *location, size_t bytes);
void contract_directory_remove(const char *location);

/* ---- For the files of the suite ---- */

/* What a test finds ready: the backend opened, and a session on the test's own thread. */
struct contract {
	struct testhost th;
	struct testbackend tb;
	struct testsession ts;
	char location[512];
};

extern const struct contract_backend *contract_current;

/* Opens what the current description says. 0 or the backend's error. */
int contract_open(struct testbackend *tb, struct testhost *th, const char *location);
bool contract_can(const struct contract *c, uint32_t capability);

/* Ends the running case as skipped, saying why. */
#define contract_skip(reason)                                                                      \
	do {                                                                                       \
		print_message("  skipped: %s\n", reason);                                          \
		skip();                                                                            \
	} while (0)

/* Bytes that follow from the seed and their offset in the object alone. */
void contract_fill(void *memory, uint64_t bytes, uint64_t seed, uint64_t offset);
bool contract_match(const void *memory, uint64_t bytes, uint64_t seed, uint64_t offset);

/* Memory of exactly `bytes` bytes, `misalign` behind a page's start, canaries on both sides. */
struct contract_buffer {
	uint8_t *base, *data;
	uint64_t bytes;
	size_t misalign;
};
struct contract_buffer contract_buffer_make(uint64_t bytes, size_t misalign);
/* Asserts that the canaries live, and frees. */
void contract_buffer_free(struct contract_buffer *buffer);

/* An io under observation: what progress was told, and whether it kept its rules. */
struct contract_io {
	struct testio t;
	struct kvt_iovec *iov; /* a copy of the iovec lives behind it during the io */
	uint64_t seed;	       /* of the object */
	uint64_t object_at;    /* offset of the first byte in the object */
	bool is_get;
	/* progress */
	uint64_t told, calls;
	uint64_t tail_bytes; /* of a late tail, filled when it may be */
	bool tail_filled;
	const char *broken; /* the first rule that was broken, or NULL */
};
/*
 * Runs an io to its end and asserts all that holds for every io: completed exactly once and in the
 * right way, the request and iovec unchanged, private data not overrun, progress in order and
 * complete, results set. Returns io.result.
 */
int contract_io_run(struct contract *c, struct testsession *ts, struct contract_io *io);
/* The same in two steps, for many in flight. */
void contract_io_start(struct contract *c, struct testsession *ts, struct contract_io *io);
int contract_io_finish(struct contract *c, struct contract_io *io);

/* Whole objects of one seed, in one piece; asserted as above. */
int contract_put(struct contract *c, const char *name, uint64_t bytes, uint64_t seed,
		 uint32_t flags, const struct kvt_version *if_version,
		 struct kvt_object_info *info);
/* Reads a range and asserts its bytes when that worked. */
int contract_get(struct contract *c, const char *name, uint64_t bytes, int64_t offset,
		 uint64_t seed, uint64_t object_bytes, const struct kvt_version *if_version,
		 struct kvt_object_info *info);
int contract_simple(struct contract *c, uint32_t op, const char *name,
		    const struct kvt_version *if_version, struct kvt_object_info *info);
/* Asserts that the object is there with these bytes, or that none is. */
void contract_expect(struct contract *c, const char *name, uint64_t bytes, uint64_t seed);
void contract_expect_none(struct contract *c, const char *name);

/* A page of a listing, the names gathered. */
struct contract_names {
	char **names;
	uint64_t *bytes;
	size_t count, space;
	size_t stop_at; /* nonzero: the callback answers 77 at that name */
};
/* All pages, at most `list_max` names in each, about; the result of the last. */
int contract_list(struct contract *c, struct testsession *ts, const char *prefix, uint32_t list_max,
		  struct contract_names *names);
/* How often a name is among them. */
size_t contract_names_count(const struct contract_names *names, const char *name);
void contract_names_free(struct contract_names *names);

/* The cases, by subject; each array ends with an empty entry. */
extern const struct CMUnitTest contract_object_cases[];
extern const struct CMUnitTest contract_range_cases[];
extern const struct CMUnitTest contract_part_cases[];
extern const struct CMUnitTest contract_list_cases[];
extern const struct CMUnitTest contract_session_cases[];

#endif
