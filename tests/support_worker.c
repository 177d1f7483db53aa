/* SPDX-License-Identifier: Apache-2.0 */
/* See support.h: a store and a worker, completions, transfers. */
#include "support.h"

#include <stdlib.h>
#include <string.h>

/* Longer than anything waits, retries included that are told to wait for long. */
#define BED_TIMEOUT_MS (20 * TEST_LIMIT_MS)

/* ---- A store and a worker ---- */

void test_bed_init(struct test_bed *bed)
{
	memset(bed, 0, sizeof(*bed));
	bed->store_options.struct_size = sizeof(bed->store_options);
	bed->store_options.namespace_name = "ns";
	bed->store_options.mode = KVT_MODE_EXACT;
	bed->worker_options.struct_size = sizeof(bed->worker_options);
	bed->worker_options.lanes = 2;
	bed->worker_options.staging_bytes = 4 << 20;
	bed->worker_options.part_bytes = 64 << 10;
	bed->worker_options.retry_base_ms = 1;
	bed->worker_options.retry_max_ms = 2;
	/* So that what is lost is not found again by trying again, nor slow machines too slow. */
	bed->worker_options.store_timeout_ms = BED_TIMEOUT_MS;
	bed->worker_options.load_timeout_ms = BED_TIMEOUT_MS;
	bed->worker_options.lookup_timeout_ms = BED_TIMEOUT_MS;
	bed->worker_options.operation_timeout_ms = BED_TIMEOUT_MS;
	bed->worker_options.buffer_timeout_ms = BED_TIMEOUT_MS;
	bed->next_id = 1;
}

void test_bed_option(struct test_bed *bed, const char *name, const char *value)
{
	assert_true(bed->store_options.option_count < TEST_COUNT(bed->options));
	bed->options[bed->store_options.option_count].name = name;
	bed->options[bed->store_options.option_count].value = value;
	bed->store_options.option_count++;
}

void test_bed_open_store(struct test_bed *bed, const char *uri)
{
	bed->store_options.uri = uri;
	bed->store_options.options = bed->options;
	assert_ok(kvt_store_open(&bed->store_options, &bed->store));
	assert_non_null(bed->store);
}

void test_bed_open_worker(struct test_bed *bed)
{
	assert_ok(kvt_worker_create(bed->store, bed->device, &bed->worker_options, &bed->worker));
	assert_non_null(bed->worker);
}

void test_bed_open(struct test_bed *bed, const char *uri)
{
	test_bed_open_store(bed, uri);
	test_bed_open_worker(bed);
}

void test_bed_close_worker(struct test_bed *bed)
{
	if (!bed->worker)
		return;
	assert_ok(kvt_worker_drain(bed->worker, TEST_LIMIT_MS));
	struct kvt_stats stats = test_stats(bed->worker);
	assert_int_equal(stats.staging_used_bytes, 0);
	assert_int_equal(stats.staging_waiters, 0);
	assert_int_equal(stats.requests_in_flight, 0);
	assert_int_equal(stats.active_chunks, 0);
	assert_true(stats.staging_peak_bytes <= stats.staging_bytes);
	for (int c = 0; c < 4; c++)
		assert_int_equal(stats.queued_chunks[c], 0);
	assert_int_equal(stats.jobs_submitted, stats.jobs_completed);
	assert_ok(kvt_worker_destroy(bed->worker, TEST_LIMIT_MS));
	bed->worker = NULL;
}

void test_bed_close(struct test_bed *bed)
{
	test_bed_close_worker(bed);
	test_drop_untaken();
	assert_ok(kvt_store_close(bed->store));
	bed->store = NULL;
}

/* ---- Completions ---- */

static struct untaken {
	struct kvt_worker *worker;
	struct kvt_result *result;
} * untaken;
static size_t untaken_count, untaken_room;

static struct kvt_result *untaken_find(struct kvt_worker *worker, uint64_t job_id)
{
	for (size_t i = 0; i < untaken_count; i++)
		if (untaken[i].worker == worker && untaken[i].result->job_id == job_id) {
			struct kvt_result *result = untaken[i].result;
			untaken[i] = untaken[--untaken_count];
			return result;
		}
	return NULL;
}

struct kvt_result *test_take_now(struct kvt_worker *worker, uint64_t job_id)
{
	struct kvt_result *result;

	for (;;) {
		struct kvt_result *found = untaken_find(worker, job_id);
		if (found)
			return found;
		int got = kvt_worker_poll(worker, &result, 1);
		if (got == 0)
			return NULL;
		assert_returns(1, got);
		assert_non_null(result);
		if (untaken_count == untaken_room) {
			untaken_room = untaken_room ? 2 * untaken_room : 16;
			untaken = realloc(untaken, untaken_room * sizeof(*untaken));
			assert_non_null(untaken);
		}
		untaken[untaken_count++] = (struct untaken){worker, result};
	}
}

struct kvt_result *test_take(struct kvt_worker *worker, uint64_t job_id)
{
	struct kvt_result *result = untaken_find(worker, job_id);

	if (result)
		return result;
	assert_ok(kvt_worker_wait(worker, &job_id, 1, TEST_LIMIT_MS, NULL));
	result = test_take_now(worker, job_id);
	if (!result)
		fail_msg("job %llu is not running and has no completion",
			 (unsigned long long)job_id);
	return result;
}

size_t test_drop_untaken(void)
{
	size_t count = untaken_count;

	for (size_t i = 0; i < count; i++)
		kvt_result_release(untaken[i].result);
	free(untaken);
	untaken = NULL;
	untaken_count = untaken_room = 0;
	return count;
}

void test_result(uint32_t status, struct kvt_result *result, const char *file, int line)
{
	bool right = result->status == status;
	for (uint64_t key = 0; key < result->key_count; key++)
		right = right && result->key_status[key] == status;
	if (!right) {
		print_error("job %llu is %s (%s: %s), expected %s for every key\n",
			    (unsigned long long)result->job_id, kvt_status_name(result->status),
			    kvt_error_name(result->error), result->detail, kvt_status_name(status));
		for (uint64_t key = 0; key < result->key_count; key++)
			if (result->key_status[key] != status)
				print_error("  key %llu: %s (%s)\n", (unsigned long long)key,
					    kvt_status_name(result->key_status[key]),
					    kvt_error_name(result->key_error[key]));
		_fail(file, line);
	}
	kvt_result_release(result);
}

void test_result_error(uint32_t status, int error, struct kvt_result *result, const char *file,
		       int line)
{
	if (result->key_count != 1 || result->key_status[0] != status ||
	    result->key_error[0] != error || result->error != error) {
		print_error("job %llu of %llu keys is %s (%s: %s), its first key %s (%s), "
			    "expected one key %s (%s)\n",
			    (unsigned long long)result->job_id,
			    (unsigned long long)result->key_count, kvt_status_name(result->status),
			    kvt_error_name(result->error), result->detail,
			    result->key_count ? kvt_status_name(result->key_status[0]) : "-",
			    result->key_count ? kvt_error_name(result->key_error[0]) : "-",
			    kvt_status_name(status), kvt_error_name(error));
		_fail(file, line);
	}
	kvt_result_release(result);
}

struct kvt_stats test_stats(struct kvt_worker *worker)
{
	struct kvt_stats stats = KVT_INIT(stats);
	assert_ok(kvt_worker_stats(worker, &stats));
	return stats;
}

/* ---- Transfers ---- */

/* Odd gaps between copies, so that writing past one is seen. */
static size_t gap_after(uint64_t copy)
{
	return (size_t)(copy % 3) * 8;
}

/* How many copies and keys groups have; the bytes that all copies and their gaps take. */
static void shape(uint32_t blocks_per_chunk, const struct test_group *groups, uint32_t group_count,
		  uint64_t *copiesp, uint64_t *keysp, size_t *bytesp)
{
	uint64_t copies = 0, keys = 0;
	size_t bytes = 0;

	for (uint32_t g = 0; g < group_count; g++) {
		const struct test_group *group = &groups[g];
		int64_t f = blocks_per_chunk;
		uint64_t skip = (uint64_t)((group->index % f + f) % f);
		if (group->blocks)
			keys += (group->blocks + skip + (uint64_t)f - 1) / (uint64_t)f;
		for (uint32_t r = 0; r < group->refs; r++)
			for (uint64_t b = 0; b < group->blocks; b++)
				bytes += group->ref_bytes[r] + gap_after(copies++);
	}
	*copiesp = copies;
	*keysp = keys;
	*bytesp = bytes + 64;
}

size_t test_transfer_memory(uint32_t blocks_per_chunk, const struct test_group *groups,
			    uint32_t group_count)
{
	uint64_t copies, keys;
	size_t bytes;

	shape(blocks_per_chunk, groups, group_count, &copies, &keys, &bytes);
	return bytes;
}

void test_hash(uint8_t *hash, uint32_t hash_bytes, uint64_t key_seed, uint32_t group,
	       uint64_t number)
{
	test_fill(hash, hash_bytes, key_seed * 1000003 + group * 7919 + number * 104729 + 1);
}

uint64_t test_slot_seed(uint64_t salt, const struct kvt_key *key, uint32_t ref, uint32_t slot)
{
	struct test_random random = {salt ^ (uint64_t)key->group << 56 ^ (uint64_t)ref << 40 ^
				     (uint64_t)slot << 8 ^ 0x5bd1e995};
	const uint8_t *hash = key->hash;

	for (uint32_t i = 0; i < key->hash_bytes; i++)
		random.state = random.state * 31 + hash[i];
	return test_random_next(&random);
}

static void describe_group(struct test_transfer *t, uint32_t g, uint64_t *copyp, uint64_t *keyp)
{
	const struct test_group *group = &t->groups[g];
	int64_t f = t->transfer.blocks_per_chunk;
	uint64_t skip = (uint64_t)((group->index % f + f) % f);
	uint64_t chunks =
		group->blocks ? (group->blocks + skip + (uint64_t)f - 1) / (uint64_t)f : 0;

	for (uint64_t c = 0; c < chunks; c++) {
		uint32_t hash_bytes = 32;
		test_hash(t->hashes[*keyp + c], hash_bytes, t->key_seed, g, c);
		t->keys[*keyp + c] = (struct kvt_key){t->hashes[*keyp + c], hash_bytes, g};
	}
	for (uint32_t r = 0; r < group->refs; r++)
		for (uint64_t b = 0; b < group->blocks; b++, ++*copyp) {
			struct test_copy *copy = &t->copies[*copyp];
			copy->key = *keyp + (skip + b) / (uint64_t)f;
			copy->ref = r;
			copy->slot = (uint32_t)((skip + b) % (uint64_t)f);
			t->sizes[*copyp] = group->ref_bytes[r];
			t->payload_bytes += group->ref_bytes[r];
		}
	*keyp += chunks;
}

/* Gives every copy a place of its own, in an order that has nothing to do with theirs. */
static void place(struct test_transfer *t, uint64_t device_ptr)
{
	uint64_t count = t->transfer.copy_count;
	uint64_t *order = malloc((count + 1) * sizeof(*order));
	struct test_random random = {t->key_seed + 17};
	size_t at = 32;

	assert_non_null(order);
	for (uint64_t i = 0; i < count; i++)
		order[i] = i;
	for (uint64_t i = count; i > 1; i--) {
		uint64_t j = test_random_below(&random, i), swap = order[i - 1];
		order[i - 1] = order[j];
		order[j] = swap;
	}
	for (uint64_t i = 0; i < count; i++) {
		uint64_t copy = order[i];
		t->copies[copy].at = t->memory + at;
		t->ptrs[copy] = device_ptr + at;
		at += t->sizes[copy] + gap_after(copy);
	}
	free(order);
	assert_true(at <= t->memory_bytes);
}

static void transfer_init(struct test_transfer *t, uint32_t blocks_per_chunk,
			  const struct test_group *groups, uint32_t group_count, uint64_t key_seed,
			  void *view, size_t view_bytes, uint64_t device_ptr)
{
	uint64_t copies, keys, copy = 0, key = 0;
	size_t bytes;

	assert_true(group_count <= TEST_MAX_GROUPS);
	memset(t, 0, sizeof(*t));
	shape(blocks_per_chunk, groups, group_count, &copies, &keys, &bytes);
	t->memory = view;
	t->memory_bytes = view_bytes;
	if (!view) {
		t->memory = malloc(bytes);
		t->memory_bytes = bytes;
		t->memory_owned = true;
		device_ptr = (uint64_t)(uintptr_t)t->memory;
	}
	t->group_count = group_count;
	memcpy(t->groups, groups, group_count * sizeof(*groups));
	t->key_seed = key_seed;
	t->salt = 1;
	t->ptrs = calloc(copies + 1, sizeof(*t->ptrs));
	t->sizes = calloc(copies + 1, sizeof(*t->sizes));
	t->copies = calloc(copies + 1, sizeof(*t->copies));
	t->keys = calloc(keys + 1, sizeof(*t->keys));
	t->hashes = calloc(keys + 1, sizeof(*t->hashes));
	assert_true(t->memory && t->ptrs && t->sizes && t->copies && t->keys && t->hashes);
	t->transfer.struct_size = sizeof(t->transfer);
	t->transfer.blocks_per_chunk = blocks_per_chunk;
	t->transfer.group_count = group_count;
	for (uint32_t g = 0; g < group_count; g++) {
		t->block_counts[g] = groups[g].blocks;
		t->ref_counts[g] = groups[g].refs;
		t->indices[g] = groups[g].index;
		describe_group(t, g, &copy, &key);
	}
	t->transfer.group_block_counts = t->block_counts;
	t->transfer.group_data_ref_counts = t->ref_counts;
	t->transfer.block_indices = t->indices;
	t->transfer.ptrs = t->ptrs;
	t->transfer.sizes = t->sizes;
	t->transfer.copy_count = copies;
	t->transfer.keys = t->keys;
	t->transfer.key_count = keys;
	place(t, device_ptr);
	test_transfer_poison(t);
}

void test_transfer_init(struct test_transfer *t, uint32_t blocks_per_chunk,
			const struct test_group *groups, uint32_t group_count, uint64_t key_seed)
{
	transfer_init(t, blocks_per_chunk, groups, group_count, key_seed, NULL, 0, 0);
}

void test_transfer_init_at(struct test_transfer *t, uint32_t blocks_per_chunk,
			   const struct test_group *groups, uint32_t group_count, uint64_t key_seed,
			   void *view, size_t view_bytes, uint64_t device_ptr)
{
	transfer_init(t, blocks_per_chunk, groups, group_count, key_seed, view, view_bytes,
		      device_ptr);
}

void test_transfer_fini(struct test_transfer *t)
{
	if (t->memory_owned)
		free(t->memory);
	free(t->ptrs);
	free(t->sizes);
	free(t->copies);
	free(t->keys);
	free(t->hashes);
	memset(t, 0, sizeof(*t));
}

static uint64_t copy_seed(const struct test_transfer *t, uint64_t i)
{
	const struct test_copy *copy = &t->copies[i];
	return test_slot_seed(t->salt, &t->keys[copy->key], copy->ref, copy->slot);
}

void test_transfer_fill(struct test_transfer *t)
{
	for (uint64_t i = 0; i < t->transfer.copy_count; i++)
		test_fill(t->copies[i].at, t->sizes[i], copy_seed(t, i));
}

void test_transfer_poison(struct test_transfer *t)
{
	memset(t->memory, 0xEE, t->memory_bytes);
}

bool test_transfer_key_ok(const struct test_transfer *t, uint64_t key)
{
	for (uint64_t i = 0; i < t->transfer.copy_count; i++)
		if (t->copies[i].key == key &&
		    !test_is_filled(t->copies[i].at, t->sizes[i], copy_seed(t, i)))
			return false;
	return true;
}

void test_transfer_check(const struct test_transfer *t)
{
	uint8_t *covered = calloc(t->memory_bytes, 1);
	size_t stray = 0;

	assert_non_null(covered);
	for (uint64_t i = 0; i < t->transfer.copy_count; i++) {
		if (!test_is_filled(t->copies[i].at, t->sizes[i], copy_seed(t, i))) {
			free(covered);
			fail_msg("copy %llu (key %llu, ref %u, slot %u) has wrong bytes",
				 (unsigned long long)i, (unsigned long long)t->copies[i].key,
				 t->copies[i].ref, t->copies[i].slot);
		}
		memset(covered + (t->copies[i].at - t->memory), 1, t->sizes[i]);
	}
	for (size_t i = 0; i < t->memory_bytes; i++)
		stray += !covered[i] && t->memory[i] != 0xEE;
	free(covered);
	if (stray)
		fail_msg("%zu bytes between copies were written", stray);
}

void test_store(struct test_bed *bed, struct test_transfer *t, uint32_t status)
{
	uint64_t id = bed->next_id++;

	test_transfer_fill(t);
	assert_ok(kvt_worker_submit_store(bed->worker, id, &t->transfer, NULL));
	assert_result(status, test_take(bed->worker, id));
}

void test_load(struct test_bed *bed, struct test_transfer *t, uint32_t status)
{
	uint64_t id = bed->next_id++;

	test_transfer_poison(t);
	assert_ok(kvt_worker_submit_load(bed->worker, id, &t->transfer, NULL));
	assert_result(status, test_take(bed->worker, id));
	if (status == KVT_STATUS_LOADED)
		test_transfer_check(t);
}

void test_lookup(struct test_bed *bed, const struct kvt_key *keys, uint64_t count, uint32_t status)
{
	uint64_t id = bed->next_id++;

	assert_ok(kvt_worker_submit_lookup(bed->worker, id, keys, count, NULL));
	assert_result(status, test_take(bed->worker, id));
}

void test_set_geometry(struct test_bed *bed, const struct test_transfer *t)
{
	for (uint32_t g = 0; g < t->group_count; g++) {
		struct kvt_geometry geometry = KVT_INIT(geometry);
		geometry.blocks_per_chunk = t->transfer.blocks_per_chunk;
		geometry.ref_count = t->groups[g].refs;
		geometry.ref_bytes = t->groups[g].ref_bytes;
		assert_ok(kvt_worker_set_geometry(bed->worker, g, &geometry));
	}
}
