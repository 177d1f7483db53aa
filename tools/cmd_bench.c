/* SPDX-License-Identifier: Apache-2.0 */
/* bench: its options, and its figures as text and JSON. */
#include "bench.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GB 1e9

static int op_set(void *target, const char *value)
{
	static const char *const names[] = {NULL, "store", "load", "both"};

	for (unsigned op = BENCH_STORE; op <= BENCH_BOTH; op++)
		if (strcmp(names[op], value) == 0) {
			*(unsigned *)target = op;
			return 0;
		}
	return cli_error("--op: '%s', expected store, load or both", value);
}

static int geometry_set(void *target, const char *value)
{
	struct bench_options *options = target;
	char blocks[24];
	const char *times = strchr(value, 'x');
	size_t length = times != NULL ? (size_t)(times - value) : 0;

	if (length > 0 && length < sizeof(blocks)) {
		memcpy(blocks, value, length);
		blocks[length] = '\0';
		if (cli_number_parse(blocks, false, &options->blocks) &&
		    cli_number_parse(times + 1, false, &options->refs) && options->blocks >= 1 &&
		    options->refs >= 1 && options->blocks <= 1 << 20 && options->refs <= 1 << 20 &&
		    options->blocks * options->refs <= 1 << 20)
			return 0;
	}
	return cli_error("--geometry: '%s', expected BLOCKSxREFS such as 16x4, each at least 1 and "
			 "the product at most 1048576",
			 value);
}

static int options_check(const struct bench_options *options)
{
	uint64_t slots = options->blocks * options->refs;

	if (options->op == 0)
		return cli_error("--op: not given, expected store, load or both");
	if (options->chunk_bytes == 0)
		return cli_error("--chunk-bytes: not given, expected a number of bytes");
	if (options->chunks == 0)
		return cli_error("--chunks: not given, expected a number of chunks");
	if (options->chunk_bytes % slots != 0)
		return cli_error("--chunk-bytes: %llu, expected a multiple of %llu, the blocks "
				 "times the refs of --geometry",
				 (unsigned long long)options->chunk_bytes,
				 (unsigned long long)slots);
	if (options->partial > 0 && options->blocks < 2)
		return cli_error("--partial: %g, expected 0 or a --geometry of at least 2 blocks",
				 options->partial);
	if (options->part_bytes % 4096 != 0)
		return cli_error("--part-bytes: %llu, expected a multiple of 4096",
				 (unsigned long long)options->part_bytes);
	return 0;
}

static double percentile_us(const struct bench_figures *figures, double fraction)
{
	uint64_t index;

	if (figures->latency_count == 0)
		return 0;
	index = (uint64_t)(fraction * (double)figures->latency_count);
	if (index >= figures->latency_count)
		index = figures->latency_count - 1;
	return (double)figures->latencies_ns[index] / 1e3;
}

static double mean_us(const struct kvt_histogram *after, const struct kvt_histogram *before)
{
	uint64_t count = after->count - before->count;

	return count == 0 ? 0 : (double)(after->sum_ns - before->sum_ns) / (double)count / 1e3;
}

/* How many were in it at once on average (Little's law). */
static double mean_inside(const struct kvt_histogram *after, const struct kvt_histogram *before,
			  double seconds)
{
	return seconds > 0 ? (double)(after->sum_ns - before->sum_ns) * 1e-9 / seconds : 0;
}

/* What had to be faster for more throughput: one word, and why in a line. */
static const char *limit_find(const struct bench_figures *figures, char *why, size_t why_bytes)
{
	const struct kvt_stats *after = &figures->after, *before = &figures->before;
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	double busy = figures->seconds > 0 ? figures->cpu_seconds / figures->seconds : 0;
	double queued = mean_inside(&after->queue_ns, &before->queue_ns, figures->seconds);
	double storage = mean_inside(&after->storage_ns, &before->storage_ns, figures->seconds);
	double device = mean_inside(&after->device_ns, &before->device_ns, figures->seconds);

	if (cpus > 0 && busy >= 0.85 * (double)cpus) {
		snprintf(why, why_bytes, "%.1f of %ld CPUs busy with this process", busy, cpus);
		return "CPU";
	}
	if (figures->staging_samples > 1 && 2 * figures->staging_waits > figures->staging_samples) {
		snprintf(why, why_bytes, "chunks waited for a buffer in %llu of %llu samples",
			 (unsigned long long)figures->staging_waits,
			 (unsigned long long)figures->staging_samples);
		return "staging";
	}
	if (device > storage) {
		snprintf(why, why_bytes, "%.1f copies in flight, %.0f us each", device,
			 mean_us(&after->device_ns, &before->device_ns));
		return "device";
	}
	if (queued < 0.5) {
		snprintf(why, why_bytes,
			 "%.1f chunks waiting for a lane on average: more jobs in flight may help",
			 queued);
		return "queue";
	}
	snprintf(why, why_bytes, "%.1f requests in flight, %.0f us each, %.0f chunks waiting",
		 storage, mean_us(&after->storage_ns, &before->storage_ns), queued);
	return "storage";
}

static void figures_print(const struct bench *bench, bool json, const struct bench_figures *figures)
{
	const struct bench_options *options = &bench->options;
	const char *op = figures->op == BENCH_STORE ? "store" : "load";
	double gigabytes = (double)figures->bytes / GB;
	double rate = figures->seconds > 0 ? gigabytes / figures->seconds : 0;
	double cpu = gigabytes > 0 ? figures->cpu_seconds / gigabytes : 0;
	char why[160], size[32], geometry[48];
	const char *limit = limit_find(figures, why, sizeof(why));

	snprintf(geometry, sizeof(geometry), "%llux%llu", (unsigned long long)options->blocks,
		 (unsigned long long)options->refs);
	if (json) {
		json_t *object = json_pack(
			"{s:s, s:o, s:o, s:o, s:o, s:o, s:f, s:f, s:f, s:f, s:f, s:f}", "op", op,
			"chunk_bytes", cli_json_u64(options->chunk_bytes), "chunks",
			cli_json_u64(options->chunks), "errors", cli_json_u64(figures->errors),
			"skipped", cli_json_u64(figures->skipped), "corrupt",
			cli_json_u64(figures->corrupt), "GBps", rate, "cpu_s_per_GB", cpu, "p50_us",
			percentile_us(figures, 0.50), "p95_us", percentile_us(figures, 0.95),
			"p99_us", percentile_us(figures, 0.99), "seconds", figures->seconds);

		if (object != NULL)
			json_object_update_new(
				object,
				json_pack("{s:o, s:o, s:o, s:o, s:o, s:s, s:f, s:b, s:s, s:s, s:o}",
					  "bytes", cli_json_u64(figures->bytes), "lanes",
					  cli_json_u64(options->lanes), "depth",
					  cli_json_u64(options->depth), "job_chunks",
					  cli_json_u64(options->job_chunks), "jobs_in_flight",
					  cli_json_u64(options->jobs_in_flight), "geometry",
					  geometry, "partial", options->partial, "verified",
					  options->verify ? 1 : 0, "limited_by", limit, "limit",
					  why, "backend", cli_json_text(figures->after.backend)));
		cli_json_print(stdout, object);
		return;
	}
	printf("%-5s %llu chunks of %s (%s): %.3f GB/s, %.3f CPU s/GB\n", op,
	       (unsigned long long)options->chunks,
	       cli_bytes_text(options->chunk_bytes, size, sizeof(size)), geometry, rate, cpu);
	printf("      jobs of %llu: p50 %.0f us, p95 %.0f us, p99 %.0f us; %.3f s\n",
	       (unsigned long long)options->job_chunks, percentile_us(figures, 0.50),
	       percentile_us(figures, 0.95), percentile_us(figures, 0.99), figures->seconds);
	printf("      limited by %s: %s\n", limit, why);
	if (figures->after.backend[0] != '\0')
		printf("      backend: %s\n", figures->after.backend);
	printf("      %llu errors, %llu corrupt, %llu skipped%s\n",
	       (unsigned long long)figures->errors, (unsigned long long)figures->corrupt,
	       (unsigned long long)figures->skipped,
	       options->verify ? ", every loaded byte compared" : "");
}

static int phase_run(struct bench *bench, enum bench_op op, bool json)
{
	struct bench_figures figures;
	int status = bench_run(bench, op, &figures);

	if (status == KVT_ECANCELED)
		cli_error("interrupted");
	if (status == 0) {
		figures_print(bench, json, &figures);
		if (figures.skipped != 0)
			cli_error("warning: %llu chunks were there already and are in no figure: "
				  "take a fresh namespace or another --seed",
				  (unsigned long long)figures.skipped);
		if (figures.errors != 0)
			cli_error("%llu of %llu chunks failed, the first: %s",
				  (unsigned long long)figures.errors,
				  (unsigned long long)bench->options.chunks, figures.detail);
		status = figures.first_error;
	}
	bench_figures_fini(&figures);
	return status;
}

int cmd_bench(int argc, char **argv)
{
	struct bench_options options = {
		.blocks = 1, .refs = 1, .job_chunks = 8, .lanes = 4, .seed = 1, .verify = true};
	const struct cli_option table[] = {
		{"--op", CLI_CALL, "store|load|both", "what to measure", &options.op, 0, 0, op_set},
		{"--chunk-bytes", CLI_BYTES, "N", "payload bytes of a chunk", &options.chunk_bytes,
		 1, 70368744177664.0, NULL},
		{"--chunks", CLI_NUMBER, "N", "how many", &options.chunks, 1, 4294967295.0, NULL},
		{"--geometry", CLI_CALL, "BLOCKSxREFS",
		 "blocks of a chunk and refs of a block (default 1x1)", &options, 0, 0,
		 geometry_set},
		{"--partial", CLI_REAL, "SHARE",
		 "share of chunks that hold half of their blocks (default 0)", &options.partial, 0,
		 1, NULL},
		{"--lanes", CLI_NUMBER, "N", "I/O threads (default 4)", &options.lanes, 1, 64,
		 NULL},
		{"--depth", CLI_NUMBER, "N", "requests in flight a lane (default: the backend's)",
		 &options.depth, 1, 65536, NULL},
		{"--jobs", CLI_NUMBER, "N", "chunks in a job (default 8)", &options.job_chunks, 1,
		 16384, NULL},
		{"--in-flight", CLI_NUMBER, "N",
		 "jobs in flight (default: twice what fills the lanes)", &options.jobs_in_flight, 1,
		 1048576, NULL},
		{"--memory-bytes", CLI_BYTES, "N",
		 "memory for chunks (default: a quarter of the machine's)", &options.memory_bytes,
		 1, 70368744177664.0, NULL},
		{"--staging-bytes", CLI_BYTES, "N", "pinned staging (default 256MiB)",
		 &options.staging_bytes, 1, 70368744177664.0, NULL},
		{"--part-bytes", CLI_BYTES, "N", "payload of one storage request (default 8MiB)",
		 &options.part_bytes, 4096, 70368744177664.0, NULL},
		{"--seed", CLI_NUMBER, "N", "names and bytes of the chunks (default 1)",
		 &options.seed, 0, 9007199254740992.0, NULL},
		{"--verify", CLI_SWITCH, "on|off", "compare every loaded byte (default on)",
		 &options.verify, 0, 0, NULL},
		{"--keep", CLI_FLAG, NULL, "leave the objects that were stored", &options.keep, 0,
		 0, NULL},
		{NULL, CLI_FLAG, NULL, NULL, NULL, 0, 0, NULL},
	};
	struct cli_common common = {0};
	struct kvt_store *store = NULL;
	struct bench bench = {0};
	int operands, status, removed;

	status = cli_parse(argc, argv, table, &common, 0, 0, &operands);
	if (status < 0 || common.help)
		goto out;
	status = options_check(&options);
	if (status < 0)
		goto out;
	status = cli_store_open(&common, KVT_MODE_EXACT, NULL, NULL, &store);
	if (status < 0)
		goto out;
	cli_interrupt_catch();
	status = bench_init(&bench, &options, &common, store);
	if (status == 0 && (options.op & BENCH_STORE) != 0)
		status = phase_run(&bench, BENCH_STORE, common.json);
	if (status != KVT_ECANCELED && bench.event_fd > 0 && (options.op & BENCH_LOAD) != 0) {
		int loaded = phase_run(&bench, BENCH_LOAD, common.json);

		if (status == 0)
			status = loaded;
	}
	if (!options.keep && bench.stored != NULL && bench.worker != NULL) {
		removed = bench_remove(&bench);
		if (status == 0)
			status = removed;
	}
out:
	bench_fini(&bench);
	kvt_store_close(store);
	cli_common_fini(&common);
	return cli_output_end(kvt_error_exit_status(status));
}
