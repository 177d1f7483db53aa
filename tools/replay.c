/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The replay's driver. `concurrency` requests are active at a time; each goes through look-up,
 * load and store. Blocks in flight lie in a pool of buffers, so memory does not grow with the
 * length of prompts: a request moves in jobs of as many blocks as buffers are free.
 */
#include "replay_state.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "pattern.h"

#define RESULTS_AT_ONCE 64
#define JOBS_MAX	4096

/* Reads the next request ahead; the trace's end and --requests end it. */
static int trace_advance(struct replay *replay)
{
	char reason[320];
	int status;

	if (replay->has_pending || replay->trace_ended)
		return 0;
	if (replay->options->requests != 0 && replay->started == replay->options->requests) {
		replay->trace_ended = true;
		return 0;
	}
	status = trace_next(&replay->trace, &replay->pending, reason, sizeof(reason));
	/* A signal also interrupts reading from a pipe, or comes just before that. */
	if (status <= 0 && cli_interrupted())
		return KVT_ECANCELED;
	if (status < 0) {
		cli_error("TRACE: '%s': %s", replay->options->trace_path, reason);
		return status;
	}
	replay->trace_ended = status == 0;
	replay->has_pending = status == 1;
	if (replay->has_pending && replay->started++ == 0)
		replay->first_ms = replay->pending.timestamp_ms;
	return 0;
}

/* When the request that was read ahead is due. */
static int64_t due_ns(const struct replay *replay)
{
	double after_ms = replay->pending.timestamp_ms - replay->first_ms;

	if (replay->options->speed == 0)
		return replay->start_ns;
	return replay->start_ns + (int64_t)(after_ms / replay->options->speed * 1e6);
}

static struct slot *slot_find_free(struct replay *replay)
{
	for (uint64_t i = 0; i < replay->options->concurrency; i++)
		if (replay->slots[i].stage == STAGE_FREE)
			return &replay->slots[i];
	return NULL;
}

/* Begins every request that is due and has room; *wait_msp says when the next one is. */
static int requests_start(struct replay *replay, int *wait_msp)
{
	int status;

	*wait_msp = -1;
	while (replay->active < replay->options->concurrency && replay->free_job_count > 0) {
		int64_t now = cli_now_ns(), due;

		status = trace_advance(replay);
		if (status < 0 || !replay->has_pending)
			return status;
		due = due_ns(replay);
		if (due > now) {
			int64_t wait_ms = (due - now + 999999) / 1000000;

			*wait_msp = wait_ms < 1000 ? (int)wait_ms : 1000;
			return 0;
		}
		if (replay->options->speed != 0 &&
		    (double)(now - due) * 1e-9 > replay->figures->lag_s)
			replay->figures->lag_s = (double)(now - due) * 1e-9;
		status = replay_slot_start(replay, slot_find_free(replay));
		if (status < 0)
			return status;
	}
	return 0;
}

/* Hands blocks to jobs while buffers are free, loads first. A full queue is no failure while
 * something is in flight: the next completion makes room. */
static int blocks_start(struct replay *replay)
{
	static const enum stage order[] = {STAGE_LOAD, STAGE_STORE};

	for (int pass = 0; pass < 2; pass++)
		for (uint64_t i = 0; i < replay->options->concurrency; i++) {
			struct slot *slot = &replay->slots[i];

			while (slot->stage == order[pass] && slot->next < slot->end &&
			       replay->free_buffer_count > 0 && replay->free_job_count > 0) {
				int status = replay_blocks_submit(replay, slot);

				if (status == KVT_EAGAIN && replay->in_flight > 0)
					return 0;
				if (status < 0)
					return cli_library_error(status);
			}
		}
	return 0;
}

static int loop_run(struct replay *replay)
{
	struct pollfd waited = {.fd = replay->event_fd, .events = POLLIN};
	struct kvt_result *results[RESULTS_AT_ONCE];
	int status = 0, wait_ms = -1;

	for (;;) {
		if (status == 0 && cli_interrupted())
			status = KVT_ECANCELED;
		if (status == 0)
			status = requests_start(replay, &wait_ms);
		if (status == 0)
			status = blocks_start(replay);
		if (replay->in_flight == 0 &&
		    (status < 0 ||
		     (!replay->has_pending && replay->trace_ended && replay->active == 0)))
			return status;
		/* Jobs in flight use the buffers: they are waited for also after a failure. */
		if (poll(&waited, 1, status < 0 ? -1 : wait_ms) < 0 && errno != EINTR)
			return KVT_EINTERNAL;
		for (int count;
		     (count = kvt_worker_poll(replay->worker, results, RESULTS_AT_ONCE)) > 0;)
			for (int i = 0; i < count; i++) {
				int handled = replay_completion_handle(replay, results[i]);

				if (status == 0)
					status = handled;
				kvt_result_release(results[i]);
			}
	}
}

static int memory_init(struct replay *replay)
{
	const struct replay_options *options = replay->options;
	uint64_t buffers = options->memory_bytes / options->block_bytes;

	if (buffers == 0)
		buffers = 1;
	if (buffers > UINT32_MAX / 2)
		buffers = UINT32_MAX / 2;
	replay->buffer_count = (uint32_t)buffers;
	replay->buffer_stride = (options->block_bytes + 4095) / 4096 * 4096;
	replay->job_count = (uint32_t)(buffers < JOBS_MAX / 2 ? buffers : JOBS_MAX / 2) +
			    (uint32_t)options->concurrency;
	replay->slots = calloc(options->concurrency, sizeof(*replay->slots));
	replay->jobs = calloc(replay->job_count, sizeof(*replay->jobs));
	replay->free_jobs = calloc(replay->job_count, sizeof(*replay->free_jobs));
	replay->free_buffers = calloc(buffers, sizeof(*replay->free_buffers));
	replay->sizes = calloc(options->job_blocks, sizeof(*replay->sizes));
	if (replay->slots == NULL || replay->jobs == NULL || replay->free_jobs == NULL ||
	    replay->free_buffers == NULL || replay->sizes == NULL)
		return KVT_ENOMEM;
	for (uint64_t i = 0; i < options->job_blocks; i++)
		replay->sizes[i] = options->block_bytes;
	for (uint32_t i = 0; i < replay->job_count; i++) {
		struct job *job = &replay->jobs[i];

		job->ptrs = calloc(options->job_blocks, sizeof(*job->ptrs));
		job->buffers = calloc(options->job_blocks, sizeof(*job->buffers));
		if (job->ptrs == NULL || job->buffers == NULL)
			return KVT_ENOMEM;
		replay->free_jobs[replay->free_job_count++] = i;
	}
	for (uint32_t i = 0; i < replay->buffer_count; i++)
		replay->free_buffers[replay->free_buffer_count++] = replay->buffer_count - 1 - i;
	replay->memory = mmap(NULL, replay->buffer_count * replay->buffer_stride,
			      PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (replay->memory == MAP_FAILED) {
		replay->memory = NULL;
		return KVT_ENOMEM;
	}
	return 0;
}

static int worker_init(struct replay *replay, const struct cli_common *common,
		       struct kvt_store *store)
{
	struct kvt_worker_options options = KVT_INIT(options);
	struct kvt_geometry geometry = KVT_INIT(geometry);
	int status;

	options.lanes = (uint32_t)replay->options->lanes;
	options.depth = (uint32_t)replay->options->depth;
	cli_hooks(common, &options.hooks);
	status = kvt_worker_create(store, NULL, &options, &replay->worker);
	if (status < 0)
		return cli_library_error(status);
	geometry.blocks_per_chunk = 1;
	geometry.ref_count = 1;
	geometry.ref_bytes = &replay->options->block_bytes;
	status = kvt_worker_set_geometry(replay->worker, 0, &geometry);
	if (status == 0)
		status = replay->event_fd = kvt_worker_event_fd(replay->worker);
	return status < 0 ? cli_library_error(status) : 0;
}

static void replay_fini(struct replay *replay)
{
	struct kvt_stats stats = KVT_INIT(stats);

	if (replay->worker != NULL && kvt_worker_stats(replay->worker, &stats) == 0)
		memcpy(replay->figures->backend, stats.backend, sizeof(stats.backend));
	/* Nothing may be freed that a lane could still use. */
	kvt_worker_destroy(replay->worker, -1);
	for (uint64_t i = 0; replay->slots != NULL && i < replay->options->concurrency; i++) {
		trace_request_fini(&replay->slots[i].request);
		free(replay->slots[i].keys);
		free(replay->slots[i].hashes);
		free(replay->slots[i].loaded);
	}
	for (uint32_t i = 0; replay->jobs != NULL && i < replay->job_count; i++) {
		free(replay->jobs[i].ptrs);
		free(replay->jobs[i].buffers);
	}
	free(replay->slots);
	free(replay->jobs);
	free(replay->free_jobs);
	free(replay->free_buffers);
	free(replay->sizes);
	if (replay->memory != NULL)
		munmap(replay->memory, replay->buffer_count * replay->buffer_stride);
	trace_request_fini(&replay->pending);
	trace_fini(&replay->trace);
}

static int latency_compare(const void *left, const void *right)
{
	int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;

	return (a > b) - (a < b);
}

static int loads_sort(struct replay_figures *figures)
{
	figures->loads_ns = calloc(figures->sample_count + 1, sizeof(*figures->loads_ns));
	if (figures->loads_ns == NULL) {
		cli_error("%zu requests: %s", figures->sample_count, kvt_error_text(KVT_ENOMEM));
		return KVT_ENOMEM;
	}
	for (size_t i = 0; i < figures->sample_count; i++)
		if (figures->samples[i].hits != 0)
			figures->loads_ns[figures->load_count++] = figures->samples[i].load_ns;
	qsort(figures->loads_ns, figures->load_count, sizeof(*figures->loads_ns), latency_compare);
	return 0;
}

int replay_run(const struct replay_options *options, const struct cli_common *common,
	       struct kvt_store *store, struct replay_figures *figures)
{
	struct replay replay = {.options = options, .figures = figures, .event_fd = -1};
	char reason[256];
	double cpu;
	int status, sorted;

	memset(figures, 0, sizeof(*figures));
	pattern_init();
	status = trace_open(&replay.trace, options->trace_path, reason, sizeof(reason));
	if (status < 0) {
		cli_error("TRACE: '%s': %s", options->trace_path, reason);
		return status;
	}
	status = memory_init(&replay);
	if (status < 0)
		cli_error("--memory-bytes: %llu: %s", (unsigned long long)options->memory_bytes,
			  kvt_error_text(status));
	if (status == 0)
		status = worker_init(&replay, common, store);
	if (status == 0) {
		cli_progress_begin(&replay.progress, "replay", options->requests);
		replay.start_ns = cli_now_ns();
		cpu = cli_cpu_seconds();
		status = loop_run(&replay);
		figures->seconds = (double)(cli_now_ns() - replay.start_ns) * 1e-9;
		figures->cpu_seconds = cli_cpu_seconds() - cpu;
		cli_progress_end(&replay.progress);
	}
	replay_fini(&replay);
	sorted = loads_sort(figures);
	return status < 0 ? status : sorted;
}

void replay_figures_fini(struct replay_figures *figures)
{
	free(figures->samples);
	free(figures->loads_ns);
	memset(figures, 0, sizeof(*figures));
}

double replay_load_us(const struct replay_figures *figures, double fraction)
{
	size_t index = (size_t)(fraction * (double)figures->load_count);

	if (figures->load_count == 0)
		return 0;
	if (index >= figures->load_count)
		index = figures->load_count - 1;
	return (double)figures->loads_ns[index] / 1e3;
}

double replay_seconds_saved(const struct replay_figures *figures)
{
	return figures->prefill_saved_s - figures->load_s;
}
