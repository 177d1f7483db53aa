/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A phase runs in rounds of as many chunks as fit in memory: bytes are made before, compared after
 * the timed part of a round. That part submits jobs, sleeps on the worker's descriptor, and takes
 * times; it allocates nothing.
 *
 * Chunks lie in memory as a KV cache's do: ref by ref, and in each ref the chunks' blocks in a row.
 */
#include "bench.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "pattern.h"

#define HASH_BYTES	32
#define RESULTS_AT_ONCE 64
#define SAMPLE_NS	INT64_C(20000000)
/* What chunks that are about to be loaded hold before. */
#define POISON 0xa5

/* One job that is free or in flight; its number is the job's id. */
struct bench_job {
	uint64_t first; /* chunk, counted in the round */
	uint64_t count;
	int64_t submitted_ns;
	struct kvt_key *keys;
	uint8_t *hashes;
	uint64_t *ptrs, *sizes, *block_counts;
	uint32_t *ref_counts;
	int64_t *block_indices;
};

/* One round of a phase. */
struct round {
	enum bench_op op;
	uint64_t first; /* chunk */
	uint64_t count;
	bool timed;
};

static uint64_t chunk_number(const struct bench *bench, uint64_t chunk)
{
	return pattern_mix(bench->options.seed) + chunk;
}

static void chunk_hash(const struct bench *bench, uint64_t chunk, uint8_t *hash)
{
	uint64_t word = chunk_number(bench, chunk);

	for (int i = 0; i < HASH_BYTES / 8; i++) {
		word = pattern_mix(word);
		memcpy(hash + 8 * i, &word, 8);
	}
}

/* How many blocks of a chunk take part; the partial ones are spread evenly. */
static uint64_t chunk_blocks(const struct bench *bench, uint64_t chunk)
{
	double share = bench->options.partial;
	uint64_t blocks = bench->options.blocks;

	if ((uint64_t)((double)(chunk + 1) * share) > (uint64_t)((double)chunk * share))
		return blocks / 2;
	return blocks;
}

static unsigned char *block_memory(const struct bench *bench, uint64_t ref, uint64_t round_chunk,
				   uint64_t block)
{
	return bench->memory + ref * bench->ref_stride +
	       (round_chunk * bench->options.blocks + block) * bench->block_bytes;
}

static void round_fill(const struct bench *bench, const struct round *round)
{
	const uint64_t blocks = bench->options.blocks;

	if (round->op == BENCH_LOAD) {
		memset(bench->memory, POISON, bench->memory_bytes);
		return;
	}
	for (uint64_t i = 0; i < round->count; i++)
		for (uint64_t ref = 0; ref < bench->options.refs; ref++)
			pattern_fill(block_memory(bench, ref, i, 0),
				     chunk_number(bench, round->first + i),
				     ref * blocks * bench->block_bytes,
				     blocks * bench->block_bytes);
}

static void failure_note(struct bench_figures *figures, int error, const char *detail)
{
	figures->errors++;
	if (figures->first_error != 0)
		return;
	figures->first_error = error != 0 ? error : KVT_EINTERNAL;
	snprintf(figures->detail, sizeof(figures->detail), "%s", detail);
}

static void round_check(const struct bench *bench, const struct round *round,
			struct bench_figures *figures)
{
	const uint64_t blocks = bench->options.blocks;
	char text[128];

	for (uint64_t i = 0; i < round->count; i++) {
		uint64_t chunk = round->first + i;
		uint64_t bytes = chunk_blocks(bench, chunk) * bench->block_bytes;

		for (uint64_t ref = 0; bench->loaded[i] && ref < bench->options.refs; ref++) {
			uint64_t offset = ref * blocks * bench->block_bytes;
			uint64_t good = pattern_check(block_memory(bench, ref, i, 0),
						      chunk_number(bench, chunk), offset, bytes);

			if (good == bytes)
				continue;
			snprintf(text, sizeof(text),
				 "chunk %llu: loaded as good, byte %llu is not what was stored",
				 (unsigned long long)chunk, (unsigned long long)(offset + good));
			failure_note(figures, KVT_ECORRUPT, text);
			figures->corrupt++;
			break;
		}
	}
}

/* Chunks of a job are one group, or one group each when some are partial. */
static void job_transfer(const struct bench *bench, const struct round *round,
			 struct bench_job *job, struct kvt_transfer *transfer)
{
	const uint64_t blocks = bench->options.blocks, refs = bench->options.refs;
	bool grouped = bench->options.partial > 0;
	uint64_t copy = 0;

	for (uint64_t i = 0; i < job->count; i++) {
		uint64_t chunk = round->first + job->first + i;

		chunk_hash(bench, chunk, job->hashes + i * HASH_BYTES);
		if (grouped)
			job->block_counts[i] = chunk_blocks(bench, chunk);
	}
	if (!grouped)
		job->block_counts[0] = job->count * blocks;
	for (uint64_t group = 0; group < (grouped ? job->count : 1); group++)
		for (uint64_t ref = 0; ref < refs; ref++) {
			unsigned char *memory = block_memory(bench, ref, job->first + group, 0);

			for (uint64_t i = 0; i < job->block_counts[group]; i++)
				job->ptrs[copy++] =
					(uint64_t)(uintptr_t)(memory + i * bench->block_bytes);
		}
	transfer->blocks_per_chunk = (uint32_t)blocks;
	transfer->group_count = (uint32_t)(grouped ? job->count : 1);
	transfer->group_block_counts = job->block_counts;
	transfer->group_data_ref_counts = job->ref_counts;
	transfer->block_indices = job->block_indices;
	transfer->ptrs = job->ptrs;
	transfer->sizes = job->sizes;
	transfer->copy_count = copy;
	transfer->keys = job->keys;
	transfer->key_count = job->count;
}

static int job_submit(struct bench *bench, const struct round *round, uint64_t id)
{
	struct bench_job *job = &bench->jobs[id];
	struct kvt_transfer transfer = KVT_INIT(transfer);

	job_transfer(bench, round, job, &transfer);
	job->submitted_ns = cli_now_ns();
	return round->op == BENCH_STORE
		       ? kvt_worker_submit_store(bench->worker, id, &transfer, NULL)
		       : kvt_worker_submit_load(bench->worker, id, &transfer, NULL);
}

static void job_account(struct bench *bench, const struct round *round,
			const struct kvt_result *result, struct bench_figures *figures)
{
	const struct bench_job *job = &bench->jobs[result->job_id];

	for (uint64_t i = 0; i < result->key_count; i++) {
		uint64_t chunk = round->first + job->first + i;

		switch (result->key_status[i]) {
		case KVT_STATUS_SKIPPED:
			figures->skipped++;
			break;
		case KVT_STATUS_STORED:
		case KVT_STATUS_LOADED:
		case KVT_STATUS_LOADED_UNVERIFIED:
			figures->chunks++;
			figures->bytes += chunk_blocks(bench, chunk) * bench->block_bytes *
					  bench->options.refs;
			if (round->op == BENCH_STORE)
				bench->stored[chunk / 8] |= (uint8_t)(1 << chunk % 8);
			else
				bench->loaded[job->first + i] = 1;
			break;
		default:
			failure_note(figures, result->key_error[i], result->detail);
			break;
		}
	}
}

static void staging_sample(struct bench *bench, struct bench_figures *figures, int64_t now,
			   int64_t *nextp)
{
	struct kvt_stats stats = KVT_INIT(stats);

	if (now < *nextp)
		return;
	*nextp = now + SAMPLE_NS;
	if (kvt_worker_stats(bench->worker, &stats) == 0) {
		figures->staging_samples++;
		figures->staging_waits += stats.staging_waiters != 0;
	}
}

/* Submits the next chunks of the round as job `id`; *nextp is the first that is left. */
static int job_start(struct bench *bench, const struct round *round, uint64_t id, uint64_t *nextp)
{
	struct bench_job *job = &bench->jobs[id];
	uint64_t left = round->count - *nextp;
	int status;

	job->first = *nextp;
	job->count = left < bench->options.job_chunks ? left : bench->options.job_chunks;
	status = job_submit(bench, round, id);
	if (status == 0)
		*nextp += job->count;
	return status;
}

static int round_run(struct bench *bench, const struct round *round, struct bench_figures *figures)
{
	struct pollfd waited = {.fd = bench->event_fd, .events = POLLIN};
	uint64_t next = 0, id = 0, in_flight = 0;
	int64_t sample_ns = 0;
	int status = 0;

	for (; status == 0 && next < round->count && id < bench->options.jobs_in_flight; id++) {
		status = job_start(bench, round, id, &next);
		in_flight += status == 0;
	}
	while (in_flight > 0) {
		int count;
		int64_t now;

		if (poll(&waited, 1, -1) < 0 && errno != EINTR)
			return KVT_EINTERNAL;
		if (cli_interrupted() && status == 0)
			status = KVT_ECANCELED;
		count = kvt_worker_poll(bench->worker, bench->results, RESULTS_AT_ONCE);
		now = cli_now_ns();
		for (int i = 0; i < count; i++) {
			uint64_t done = bench->results[i]->job_id;

			if (round->timed)
				figures->latencies_ns[figures->latency_count++] =
					now - bench->jobs[done].submitted_ns;
			job_account(bench, round, bench->results[i], figures);
			kvt_result_release(bench->results[i]);
			in_flight--;
			if (status == 0 && next < round->count) {
				status = job_start(bench, round, done, &next);
				in_flight += status == 0;
			}
		}
		cli_progress_set(&bench->progress,
				 figures->chunks + figures->skipped + figures->errors,
				 figures->bytes);
		staging_sample(bench, figures, now, &sample_ns);
	}
	return status;
}

static int latency_compare(const void *left, const void *right)
{
	int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;

	return (a > b) - (a < b);
}

/* All rounds of a phase; only a timed one counts in seconds and latencies. */
static int rounds_run(struct bench *bench, enum bench_op op, bool timed,
		      struct bench_figures *figures)
{
	struct round round = {.op = op, .timed = timed};
	int status = 0;

	for (; status == 0 && round.first < bench->options.chunks; round.first += round.count) {
		int64_t start_ns;
		double start_cpu;

		round.count = bench->options.chunks - round.first;
		if (round.count > bench->round_chunks)
			round.count = bench->round_chunks;
		round_fill(bench, &round);
		memset(bench->loaded, 0, bench->round_chunks);
		start_ns = cli_now_ns();
		start_cpu = cli_cpu_seconds();
		status = round_run(bench, &round, figures);
		if (timed) {
			figures->seconds += (double)(cli_now_ns() - start_ns) * 1e-9;
			figures->cpu_seconds += cli_cpu_seconds() - start_cpu;
		}
		if (status < 0 && status != KVT_ECANCELED)
			cli_library_error(status);
		if (op == BENCH_LOAD && bench->options.verify)
			round_check(bench, &round, figures);
	}
	return status;
}

int bench_run(struct bench *bench, enum bench_op op, struct bench_figures *figures)
{
	uint64_t jobs = bench->options.chunks / bench->options.job_chunks +
			bench->options.chunks / bench->round_chunks + 2;
	int status;

	memset(figures, 0, sizeof(*figures));
	figures->op = op;
	figures->latencies_ns = calloc(jobs, sizeof(*figures->latencies_ns));
	if (figures->latencies_ns == NULL) {
		cli_error("%llu jobs: %s", (unsigned long long)jobs, kvt_error_text(KVT_ENOMEM));
		return KVT_ENOMEM;
	}
	figures->before.struct_size = figures->after.struct_size = sizeof(figures->before);
	cli_progress_begin(&bench->progress, op == BENCH_STORE ? "store" : "load",
			   bench->options.chunks);
	status = kvt_worker_stats(bench->worker, &figures->before);
	if (status == 0)
		status = rounds_run(bench, op, true, figures);
	if (status == 0)
		status = kvt_worker_stats(bench->worker, &figures->after);
	if (status == 0 && op == BENCH_STORE && bench->options.op == BENCH_STORE &&
	    bench->options.verify) {
		struct bench_figures check = {0};

		cli_progress_begin(&bench->progress, "verify", bench->options.chunks);
		status = rounds_run(bench, BENCH_LOAD, false, &check);
		figures->errors += check.errors;
		figures->corrupt += check.corrupt;
		if (figures->first_error == 0 && check.first_error != 0) {
			figures->first_error = check.first_error;
			memcpy(figures->detail, check.detail, sizeof(figures->detail));
		}
	}
	cli_progress_end(&bench->progress);
	qsort(figures->latencies_ns, figures->latency_count, sizeof(*figures->latencies_ns),
	      latency_compare);
	return status;
}

void bench_figures_fini(struct bench_figures *figures)
{
	free(figures->latencies_ns);
	figures->latencies_ns = NULL;
}

int bench_remove(struct bench *bench)
{
	uint8_t hash[HASH_BYTES];
	struct kvt_key key = {.hash = hash, .hash_bytes = HASH_BYTES};
	int status = 0;

	cli_progress_begin(&bench->progress, "remove", bench->options.chunks);
	for (uint64_t chunk = 0; chunk < bench->options.chunks; chunk++) {
		int removed;

		if ((bench->stored[chunk / 8] >> chunk % 8 & 1) == 0)
			continue;
		chunk_hash(bench, chunk, hash);
		removed = kvt_store_remove(bench->store, &key);
		if (removed < 0 && removed != KVT_ENOENT && status == 0)
			status = cli_library_error(removed);
		cli_progress_set(&bench->progress, chunk + 1, 0);
	}
	cli_progress_end(&bench->progress);
	return status;
}

static uint64_t minimum(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static uint64_t machine_memory(void)
{
	long pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);

	return pages > 0 && page_bytes > 0 ? (uint64_t)pages * (uint64_t)page_bytes
					   : UINT64_C(1) << 30;
}

/* Jobs in flight, and chunks in memory: twice what the lanes can have in flight, so that a lane
 * never waits for this thread, as far as memory goes. */
static void sizes_choose(struct bench *bench)
{
	struct bench_options *options = &bench->options;
	uint64_t memory = options->memory_bytes != 0 ? options->memory_bytes : machine_memory() / 4;
	uint64_t fitting = memory / options->chunk_bytes;
	uint64_t lanes = options->lanes != 0 ? options->lanes : 4;
	uint64_t depth = options->depth != 0 ? options->depth : 32;

	fitting = fitting == 0 ? 1 : minimum(fitting, options->chunks);
	options->job_chunks = minimum(options->job_chunks, fitting);
	if (options->jobs_in_flight == 0) {
		options->jobs_in_flight =
			(2 * lanes * depth + options->job_chunks - 1) / options->job_chunks;
		if (options->jobs_in_flight < 2 * lanes)
			options->jobs_in_flight = 2 * lanes;
	}
	bench->round_chunks = fitting - fitting % options->job_chunks;
	options->jobs_in_flight =
		minimum(options->jobs_in_flight, bench->round_chunks / options->job_chunks);
	bench->block_bytes = options->chunk_bytes / options->blocks / options->refs;
	bench->ref_stride =
		(bench->round_chunks * options->blocks * bench->block_bytes + 4095) / 4096 * 4096;
	bench->memory_bytes = bench->ref_stride * options->refs;
}

static int job_init(const struct bench *bench, struct bench_job *job)
{
	uint64_t count = bench->options.job_chunks;
	uint64_t copies = count * bench->options.blocks * bench->options.refs;

	job->keys = calloc(count, sizeof(*job->keys));
	job->hashes = calloc(count, HASH_BYTES);
	job->ptrs = calloc(copies, sizeof(*job->ptrs));
	job->sizes = calloc(copies, sizeof(*job->sizes));
	job->block_counts = calloc(count, sizeof(*job->block_counts));
	job->ref_counts = calloc(count, sizeof(*job->ref_counts));
	job->block_indices = calloc(count, sizeof(*job->block_indices));
	if (job->keys == NULL || job->hashes == NULL || job->ptrs == NULL || job->sizes == NULL ||
	    job->block_counts == NULL || job->ref_counts == NULL || job->block_indices == NULL)
		return KVT_ENOMEM;
	for (uint64_t i = 0; i < count; i++) {
		job->keys[i] = (struct kvt_key){.hash = job->hashes + i * HASH_BYTES,
						.hash_bytes = HASH_BYTES};
		job->ref_counts[i] = (uint32_t)bench->options.refs;
	}
	for (uint64_t i = 0; i < copies; i++)
		job->sizes[i] = bench->block_bytes;
	return 0;
}

static int memory_init(struct bench *bench)
{
	bench->jobs = calloc(bench->options.jobs_in_flight, sizeof(*bench->jobs));
	bench->results = calloc(RESULTS_AT_ONCE, sizeof(struct kvt_result *));
	bench->loaded = calloc(bench->round_chunks, 1);
	bench->stored = calloc(bench->options.chunks / 8 + 1, 1);
	if (bench->jobs == NULL || bench->results == NULL || bench->loaded == NULL ||
	    bench->stored == NULL)
		return KVT_ENOMEM;
	for (uint64_t i = 0; i < bench->options.jobs_in_flight; i++)
		if (job_init(bench, &bench->jobs[i]) < 0)
			return KVT_ENOMEM;
	bench->memory = mmap(NULL, bench->memory_bytes, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (bench->memory == MAP_FAILED) {
		bench->memory = NULL;
		return KVT_ENOMEM;
	}
	return 0;
}

int bench_init(struct bench *bench, const struct bench_options *options,
	       const struct cli_common *common, struct kvt_store *store)
{
	struct kvt_worker_options worker = KVT_INIT(worker);
	int status;

	bench->options = *options;
	bench->store = store;
	pattern_init();
	sizes_choose(bench);
	status = memory_init(bench);
	if (status < 0) {
		cli_error("--chunks: %llu chunks in memory at once, %llu bytes: %s",
			  (unsigned long long)bench->round_chunks,
			  (unsigned long long)bench->memory_bytes, kvt_error_text(status));
		return status;
	}
	worker.lanes = (uint32_t)options->lanes;
	worker.depth = (uint32_t)options->depth;
	worker.staging_bytes = options->staging_bytes;
	worker.part_bytes = options->part_bytes;
	cli_hooks(common, &worker.hooks);
	status = kvt_worker_create(store, NULL, &worker, &bench->worker);
	if (status < 0)
		return cli_library_error(status);
	bench->event_fd = kvt_worker_event_fd(bench->worker);
	return bench->event_fd < 0 ? cli_library_error(bench->event_fd) : 0;
}

void bench_fini(struct bench *bench)
{
	kvt_worker_destroy(bench->worker, -1);
	for (uint64_t i = 0; bench->jobs != NULL && i < bench->options.jobs_in_flight; i++) {
		struct bench_job *job = &bench->jobs[i];

		free(job->keys);
		free(job->hashes);
		free(job->ptrs);
		free(job->sizes);
		free(job->block_counts);
		free(job->ref_counts);
		free(job->block_indices);
	}
	free(bench->jobs);
	free(bench->results);
	free(bench->loaded);
	free(bench->stored);
	if (bench->memory != NULL)
		munmap(bench->memory, bench->memory_bytes);
}
