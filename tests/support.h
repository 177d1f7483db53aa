/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What many tests need: temporary directories, seeded bytes, gates, a counting allocator, a store
 * and worker opened together, and transfers whose bytes follow from their keys. All functions but
 * the gate's and the allocator's hooks run on the test's own thread; on failure they fail the
 * running test.
 */
#ifndef KVT_TESTS_SUPPORT_H
#define KVT_TESTS_SUPPORT_H

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <kvtier/kvtier.h>

/* Nothing in a test takes this long unless it hangs. */
#define TEST_LIMIT_MS 90000

#define TEST_COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* Asserts that a call returns exactly `expected`; a failure shows both names and the detail. */
#define assert_returns(expected, call) test_returns((expected), (call), #call, __FILE__, __LINE__)
#define assert_ok(call)		       assert_returns(0, call)
/* Asserts that a call fails with `expected` and that the detail has `text` in it. */
#define assert_fails(expected, text, call)                                                         \
	test_fails((expected), (text), (call), #call, __FILE__, __LINE__)
void test_returns(int expected, int got, const char *call, const char *file, int line);
void test_fails(int expected, const char *text, int got, const char *call, const char *file,
		int line);

/* ---- Temporary directories ---- */

/* A new empty directory, on a RAM disk where there is one. Removed at exit when the test did not.
 */
char *test_temp_dir(void);
/* The same on the disk under TMPDIR or /tmp. */
char *test_temp_dir_on_disk(void);
/* Removes the tree and frees the path; NULL is accepted. */
void test_remove_tree(char *path);
/* Reads a whole file, newly allocated; NULL when it is not there. */
uint8_t *test_read_file(const char *path, size_t *bytesp);
/* Writes a whole file, making its directories. */
void test_write_file(const char *path, const void *data, size_t bytes);
/* Newly allocated formatted text. */
char *test_format(const char *format, ...) KVT_PRINTF(1, 2);
/* How many regular files lie below `path`, those below a directory named `except` left out. */
size_t test_count_files(const char *path, const char *except);

/* ---- Seeded bytes ---- */

struct test_random {
	uint64_t state;
};
uint64_t test_random_next(struct test_random *random);
/* 0 to bound - 1. */
uint64_t test_random_below(struct test_random *random, uint64_t bound);
/* Bytes that follow from the seed and their position alone. */
void test_fill(void *memory, size_t bytes, uint64_t seed);
bool test_is_filled(const void *memory, size_t bytes, uint64_t seed);
/* The seed of this run: KVT_TEST_SEED, or `fallback`; printed so that a run can be repeated. */
uint64_t test_seed(uint64_t fallback);

/* ---- Gates ---- */

/* Threads that pass a closed gate wait there. Any thread. */
struct test_gate {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool open;
	unsigned arrived; /* ever */
	unsigned waiting;
};
void test_gate_init(struct test_gate *gate, bool open);
void test_gate_fini(struct test_gate *gate);
void test_gate_pass(struct test_gate *gate);
void test_gate_open(struct test_gate *gate);
void test_gate_close(struct test_gate *gate);
/* Waits until `count` threads wait at the gate; false after TEST_LIMIT_MS. */
bool test_gate_await(struct test_gate *gate, unsigned count);

/* ---- Counting allocator ---- */

struct test_allocator {
	atomic_llong live_blocks;
	atomic_llong live_bytes;
	atomic_llong peak_bytes;
	atomic_ullong calls;
	atomic_ullong fail_at; /* this call (counted from 1) fails; 0: none */
	atomic_bool fail_on;   /* and all later ones too */
	atomic_uint failed;
	atomic_uint misaligned; /* requests with an alignment that is no power of two or below 16 */
};
void test_allocator_init(struct test_allocator *allocator);
void test_allocator_hooks(struct test_allocator *allocator, struct kvt_allocator *hooks);

/* ---- A store and a worker ---- */

/* Set what differs from the defaults between init and open. */
struct test_bed {
	struct kvt_store_options store_options;
	struct kvt_option options[8];
	struct kvt_worker_options worker_options;
	struct kvt_store *store;
	struct kvt_device *device; /* not owned; NULL: plain memory */
	struct kvt_worker *worker;
	uint64_t next_id;
};
/* Namespace "ns" used as it is, two lanes, 4 MiB of staging, parts of 64 KiB, no retries' waiting
 * to speak of. */
void test_bed_init(struct test_bed *bed);
void test_bed_option(struct test_bed *bed, const char *name, const char *value);
void test_bed_open(struct test_bed *bed, const char *uri);
/* Destroys the worker, which must come to an end, asserts that its staging is unused beforehand,
 * and closes the store. */
void test_bed_close(struct test_bed *bed);
/* Only one half of it. */
void test_bed_open_store(struct test_bed *bed, const char *uri);
void test_bed_open_worker(struct test_bed *bed);
void test_bed_close_worker(struct test_bed *bed);

/* Waits for one job and takes its completion; those of other jobs stay for later calls. */
struct kvt_result *test_take(struct kvt_worker *worker, uint64_t job_id);
/* Takes it when it is there, NULL when not. */
struct kvt_result *test_take_now(struct kvt_worker *worker, uint64_t job_id);
/* Forgets completions that nobody took; returns how many. */
size_t test_drop_untaken(void);
/* Asserts a status for every key; a failure shows the detail. Releases the result. */
#define assert_result(status, result) test_result((status), (result), __FILE__, __LINE__)
void test_result(uint32_t status, struct kvt_result *result, const char *file, int line);
/* One key: its status and code. Releases the result. */
#define assert_result_error(status, error, result)                                                 \
	test_result_error((status), (error), (result), __FILE__, __LINE__)
void test_result_error(uint32_t status, int error, struct kvt_result *result, const char *file,
		       int line);

struct kvt_stats test_stats(struct kvt_worker *worker);

/* ---- Transfers ---- */

#define TEST_MAX_GROUPS 4
#define TEST_MAX_REFS	6

struct test_group {
	uint64_t blocks;
	int64_t index;
	uint32_t refs;
	uint64_t ref_bytes[TEST_MAX_REFS];
};

/*
 * A transfer whose copies lie scattered in one piece of memory. Keys are made from `key_seed`, the
 * group and the chunk's number, so that two transfers with one seed name the same chunks; the bytes
 * of a slot are made from `salt`, its key, ref and slot.
 */
struct test_transfer {
	struct kvt_transfer transfer;
	uint32_t group_count;
	struct test_group groups[TEST_MAX_GROUPS];
	uint64_t key_seed, salt;
	uint64_t block_counts[TEST_MAX_GROUPS];
	uint32_t ref_counts[TEST_MAX_GROUPS];
	int64_t indices[TEST_MAX_GROUPS];
	uint64_t *ptrs, *sizes;
	struct kvt_key *keys;
	uint8_t (*hashes)[64];
	struct test_copy {
		uint64_t key; /* index */
		uint32_t ref, slot;
		uint8_t *at; /* where the test sees it */
	} * copies;
	uint8_t *memory;
	size_t memory_bytes;
	bool memory_owned;
	uint64_t payload_bytes; /* of all copies */
};
/* Memory of the test's own. */
void test_transfer_init(struct test_transfer *transfer, uint32_t blocks_per_chunk,
			const struct test_group *groups, uint32_t group_count, uint64_t key_seed);
/* Memory that the test sees at `view` and the worker knows as `device_ptr`. */
void test_transfer_init_at(struct test_transfer *transfer, uint32_t blocks_per_chunk,
			   const struct test_group *groups, uint32_t group_count, uint64_t key_seed,
			   void *view, size_t view_bytes, uint64_t device_ptr);
void test_transfer_fini(struct test_transfer *transfer);
/* Bytes of memory that a transfer of this shape takes. */
size_t test_transfer_memory(uint32_t blocks_per_chunk, const struct test_group *groups,
			    uint32_t group_count);
/* Writes the bytes that the keys stand for. */
void test_transfer_fill(struct test_transfer *transfer);
/* Overwrites all memory with 0xEE, the gaps between copies too. */
void test_transfer_poison(struct test_transfer *transfer);
/* Whether the bytes of key `key` are right. */
bool test_transfer_key_ok(const struct test_transfer *transfer, uint64_t key);
/* Asserts it for all keys, and that the gaps between copies are as poisoned. */
void test_transfer_check(const struct test_transfer *transfer);
/* The seed of one slot's bytes. */
uint64_t test_slot_seed(uint64_t salt, const struct kvt_key *key, uint32_t ref, uint32_t slot);
/* The hash of a chunk: hash_bytes bytes from seed, group and number. */
void test_hash(uint8_t *hash, uint32_t hash_bytes, uint64_t key_seed, uint32_t group,
	       uint64_t number);

/* Submits, waits and asserts that every key ends with `status`. */
void test_store(struct test_bed *bed, struct test_transfer *transfer, uint32_t status);
/* The memory is poisoned first, and its bytes are checked when `status` is LOADED. */
void test_load(struct test_bed *bed, struct test_transfer *transfer, uint32_t status);
void test_lookup(struct test_bed *bed, const struct kvt_key *keys, uint64_t count, uint32_t status);
/* Sets the geometry of the groups of a transfer. */
void test_set_geometry(struct test_bed *bed, const struct test_transfer *transfer);

#endif
