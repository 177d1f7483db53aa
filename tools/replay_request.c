/* SPDX-License-Identifier: Apache-2.0 */
/* One request of a replay: its jobs, its stages, and what their completions mean. */
#include "replay_state.h"

#include <stdlib.h>
#include <string.h>

#include "pattern.h"

#define HASH_BYTES 32
/* What buffers hold before a load. */
#define POISON 0xa5

static uint64_t block_number(const struct replay *replay, uint64_t hash_id)
{
	return pattern_mix(hash_id ^ pattern_mix(replay->options->seed));
}

static unsigned char *buffer_at(const struct replay *replay, uint32_t buffer)
{
	return replay->memory + buffer * replay->buffer_stride;
}

static void failure_note(struct replay *replay, int error, const char *detail)
{
	struct replay_figures *figures = replay->figures;

	if (figures->first_error != 0)
		return;
	figures->first_error = error != 0 ? error : KVT_EINTERNAL;
	snprintf(figures->detail, sizeof(figures->detail), "%s", detail);
}

static uint32_t job_take(struct replay *replay, struct slot *slot, size_t first, size_t count)
{
	uint32_t id = replay->free_jobs[--replay->free_job_count];
	struct job *job = &replay->jobs[id];

	job->slot = slot;
	job->first = first;
	job->count = count;
	job->submitted_ns = cli_now_ns();
	return id;
}

static void job_give(struct replay *replay, uint32_t id)
{
	replay->free_jobs[replay->free_job_count++] = id;
}

static void buffers_give(struct replay *replay, const struct job *job)
{
	for (size_t i = 0; i < job->count; i++)
		replay->free_buffers[replay->free_buffer_count++] = job->buffers[i];
}

static int lookup_submit(struct replay *replay, struct slot *slot)
{
	struct kvt_submit_options submit = KVT_INIT(submit);
	uint32_t id = job_take(replay, slot, 0, 0);
	int status;

	submit.lookup_flags = KVT_LOOKUP_PREFIX;
	status = kvt_worker_submit_lookup(replay->worker, id, slot->keys, slot->request.hash_count,
					  &submit);
	if (status < 0) {
		job_give(replay, id);
		return status;
	}
	slot->outstanding++;
	replay->in_flight++;
	return 0;
}

/* Whether an earlier block of the job has the same id: one store job may not name a key twice. */
static bool is_repeated(const struct slot *slot, size_t first, size_t block)
{
	for (size_t i = first; i < block; i++)
		if (slot->request.hash_ids[i] == slot->request.hash_ids[block])
			return true;
	return false;
}

static int samples_reserve(struct replay_figures *figures)
{
	size_t room = figures->sample_room != 0 ? 2 * figures->sample_room : 4096;
	struct replay_sample *larger;

	if (figures->sample_count < figures->sample_room)
		return 0;
	larger = realloc(figures->samples, room * sizeof(*larger));
	if (larger == NULL) {
		cli_error("%zu requests: %s", figures->sample_count, kvt_error_text(KVT_ENOMEM));
		return KVT_ENOMEM;
	}
	figures->samples = larger;
	figures->sample_room = room;
	return 0;
}

static int slot_finish(struct replay *replay, struct slot *slot)
{
	struct replay_figures *figures = replay->figures;
	const struct replay_options *options = replay->options;
	int64_t load_ns = slot->load_start_ns != 0 ? slot->load_end_ns - slot->load_start_ns : 0;
	uint64_t tokens = slot->hits * options->block_tokens;
	int status = samples_reserve(figures);

	slot->stage = STAGE_FREE;
	replay->active--;
	if (status < 0)
		return status;
	if (tokens > slot->request.input_length)
		tokens = slot->request.input_length;
	figures->samples[figures->sample_count++] = (struct replay_sample){
		.trace_s = slot->trace_s,
		.done_s = (double)(cli_now_ns() - replay->start_ns) * 1e-9,
		.load_ns = slot->hits != 0 ? load_ns : 0,
		.blocks = (uint32_t)slot->request.hash_count,
		.hits = (uint32_t)slot->hits,
		.stored = (uint32_t)slot->stored,
	};
	figures->requests++;
	figures->blocks += slot->request.hash_count;
	figures->hits += slot->hits;
	figures->stored += slot->stored;
	figures->hit_tokens += tokens;
	figures->input_tokens += slot->request.input_length;
	figures->prefill_saved_s += (double)tokens / options->prefill_tokens_per_s;
	figures->load_s += (double)load_ns * 1e-9;
	cli_progress_set(&replay->progress, figures->requests,
			 (figures->hits + figures->stored) * options->block_bytes);
	return 0;
}

/* Moves on to the next stage once the present one has no block and no job left. */
static int slot_advance(struct replay *replay, struct slot *slot)
{
	while (slot->stage != STAGE_FREE && slot->outstanding == 0 && slot->next == slot->end) {
		switch (slot->stage) {
		case STAGE_LOOKUP:
			slot->stage = STAGE_LOAD;
			slot->next = 0;
			slot->end = slot->hits;
			break;
		case STAGE_LOAD:
			/* A prefix is worth something up to its first gap only. */
			slot->hits = 0;
			while (slot->hits < slot->end && slot->loaded[slot->hits])
				slot->hits++;
			slot->stage = STAGE_STORE;
			slot->next = slot->hits;
			slot->end = slot->request.hash_count;
			break;
		default:
			return slot_finish(replay, slot);
		}
	}
	return 0;
}

static int slot_reserve(struct slot *slot, size_t blocks)
{
	if (blocks <= slot->room)
		return 0;
	free(slot->keys);
	free(slot->hashes);
	free(slot->loaded);
	slot->keys = calloc(blocks, sizeof(*slot->keys));
	slot->hashes = calloc(blocks, HASH_BYTES);
	slot->loaded = calloc(blocks, sizeof(*slot->loaded));
	slot->room = 0;
	if (slot->keys == NULL || slot->hashes == NULL || slot->loaded == NULL)
		return KVT_ENOMEM;
	slot->room = blocks;
	return 0;
}

static void lookup_account(struct replay *replay, struct slot *slot,
			   const struct kvt_result *result)
{
	/* What is being stored right now can be loaded: the load waits for it. */
	while (slot->hits < result->key_count &&
	       (result->key_status[slot->hits] == KVT_STATUS_HIT ||
		result->key_status[slot->hits] == KVT_STATUS_PENDING))
		slot->hits++;
	if (result->error < 0) {
		replay->figures->errors++;
		failure_note(replay, result->error, result->detail);
	}
}

static void load_account(struct replay *replay, const struct job *job,
			 const struct kvt_result *result)
{
	struct replay_figures *figures = replay->figures;
	const uint64_t bytes = replay->options->block_bytes;
	struct slot *slot = job->slot;
	int64_t end_ns =
		job->submitted_ns + (int64_t)result->queued_ns + (int64_t)result->active_ns;
	char text[160];

	if (end_ns > slot->load_end_ns)
		slot->load_end_ns = end_ns;
	for (size_t i = 0; i < job->count; i++) {
		uint64_t id = slot->request.hash_ids[job->first + i], good = bytes;
		uint8_t status = result->key_status[i];

		if (status == KVT_STATUS_MISSING) {
			figures->vanished++;
			continue;
		}
		if (status == KVT_STATUS_CORRUPT) {
			figures->corrupt++;
			failure_note(replay, KVT_ECORRUPT, result->detail);
			continue;
		}
		if (!kvt_status_is_success(status)) {
			figures->errors++;
			failure_note(replay, result->key_error[i], result->detail);
			continue;
		}
		if (replay->options->verify)
			good = pattern_check(buffer_at(replay, job->buffers[i]),
					     block_number(replay, id), 0, bytes);
		if (good == bytes) {
			slot->loaded[job->first + i] = true;
			continue;
		}
		figures->corrupt++;
		snprintf(text, sizeof(text),
			 "hash id %llu: loaded as good, byte %llu is not what was stored",
			 (unsigned long long)id, (unsigned long long)good);
		failure_note(replay, KVT_ECORRUPT, text);
	}
}

static void store_account(struct replay *replay, const struct job *job,
			  const struct kvt_result *result)
{
	for (size_t i = 0; i < job->count; i++) {
		if (result->key_status[i] == KVT_STATUS_STORED) {
			job->slot->stored++;
		} else if (result->key_status[i] == KVT_STATUS_SKIPPED) {
			replay->figures->skipped++;
		} else {
			replay->figures->errors++;
			failure_note(replay, result->key_error[i], result->detail);
		}
	}
}

int replay_slot_start(struct replay *replay, struct slot *slot)
{
	const struct trace_request *request = &slot->request;
	int status;

	trace_request_fini(&slot->request);
	slot->request = replay->pending;
	memset(&replay->pending, 0, sizeof(replay->pending));
	replay->has_pending = false;
	if (slot_reserve(slot, request->hash_count) < 0) {
		cli_error("TRACE: %zu blocks: %s", request->hash_count, kvt_error_text(KVT_ENOMEM));
		return KVT_ENOMEM;
	}
	for (size_t i = 0; i < request->hash_count; i++) {
		uint8_t *hash = slot->hashes + i * HASH_BYTES;
		uint64_t word = block_number(replay, request->hash_ids[i]);

		for (int k = 0; k < HASH_BYTES / 8; k++) {
			word = pattern_mix(word);
			memcpy(hash + 8 * k, &word, 8);
		}
		slot->keys[i] = (struct kvt_key){.hash = hash, .hash_bytes = HASH_BYTES};
		slot->loaded[i] = false;
	}
	slot->trace_s = (request->timestamp_ms - replay->first_ms) / 1e3;
	slot->next = slot->end = slot->hits = slot->stored = 0;
	slot->load_start_ns = slot->load_end_ns = 0;
	slot->outstanding = 0;
	slot->stage = STAGE_LOOKUP;
	replay->active++;
	if (request->hash_count == 0)
		return slot_advance(replay, slot);
	status = lookup_submit(replay, slot);
	return status < 0 ? cli_library_error(status) : 0;
}

int replay_blocks_submit(struct replay *replay, struct slot *slot)
{
	const uint32_t one_ref = 1;
	const int64_t first_block = 0;
	const bool store = slot->stage == STAGE_STORE;
	struct kvt_transfer transfer = KVT_INIT(transfer);
	size_t count = slot->end - slot->next;
	uint64_t blocks;
	struct job *job;
	uint32_t id;
	int status;

	if (count > replay->options->job_blocks)
		count = replay->options->job_blocks;
	if (count > replay->free_buffer_count)
		count = replay->free_buffer_count;
	for (size_t i = 1; store && i < count; i++)
		if (is_repeated(slot, slot->next, slot->next + i))
			count = i;
	id = job_take(replay, slot, slot->next, count);
	job = &replay->jobs[id];
	for (size_t i = 0; i < count; i++) {
		unsigned char *memory;

		job->buffers[i] = replay->free_buffers[--replay->free_buffer_count];
		memory = buffer_at(replay, job->buffers[i]);
		job->ptrs[i] = (uint64_t)(uintptr_t)memory;
		if (store)
			pattern_fill(memory,
				     block_number(replay, slot->request.hash_ids[slot->next + i]),
				     0, replay->options->block_bytes);
		else if (replay->options->verify)
			memset(memory, POISON, replay->options->block_bytes);
	}
	blocks = count;
	transfer.blocks_per_chunk = 1;
	transfer.group_count = 1;
	transfer.group_block_counts = &blocks;
	transfer.group_data_ref_counts = &one_ref;
	transfer.block_indices = &first_block;
	transfer.ptrs = job->ptrs;
	transfer.sizes = replay->sizes;
	transfer.copy_count = count;
	transfer.keys = slot->keys + slot->next;
	transfer.key_count = count;
	job->submitted_ns = cli_now_ns();
	status = store ? kvt_worker_submit_store(replay->worker, id, &transfer, NULL)
		       : kvt_worker_submit_load(replay->worker, id, &transfer, NULL);
	if (status < 0) {
		buffers_give(replay, job);
		job_give(replay, id);
		return status;
	}
	if (!store && slot->load_start_ns == 0)
		slot->load_start_ns = job->submitted_ns;
	slot->next += count;
	slot->outstanding++;
	replay->in_flight++;
	return 0;
}

int replay_completion_handle(struct replay *replay, const struct kvt_result *result)
{
	struct job *job = &replay->jobs[result->job_id];
	struct slot *slot = job->slot;

	if (slot->stage == STAGE_LOOKUP)
		lookup_account(replay, slot, result);
	else if (slot->stage == STAGE_LOAD)
		load_account(replay, job, result);
	else
		store_account(replay, job, result);
	buffers_give(replay, job);
	job_give(replay, (uint32_t)result->job_id);
	slot->outstanding--;
	replay->in_flight--;
	return slot_advance(replay, slot);
}
