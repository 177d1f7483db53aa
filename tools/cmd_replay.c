/* SPDX-License-Identifier: Apache-2.0 */
/* replay: its options, and its figures as text and JSON. */
#include "replay.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static int speed_set(void *target, const char *value)
{
	double speed;
	char *end;

	if (strcmp(value, "max") == 0) {
		*(double *)target = 0;
		return 0;
	}
	errno = 0;
	speed = strtod(value, &end);
	if (end == value || *end != '\0' || errno != 0 || !isfinite(speed) || speed < 1e-6 ||
	    speed > 1e9)
		return cli_error("--speed: '%s', expected max or a number from 1e-6 to 1e9", value);
	*(double *)target = speed;
	return 0;
}

static void figures_print_json(const struct replay_options *options,
			       const struct replay_figures *figures)
{
	json_t *object = json_pack(
		"{s:o, s:o, s:o, s:o, s:o, s:f, s:f, s:f, s:o, s:f}", "requests",
		cli_json_u64(figures->requests), "blocks", cli_json_u64(figures->blocks), "hits",
		cli_json_u64(figures->hits), "hit_bytes",
		cli_json_u64(figures->hits * options->block_bytes), "stored_bytes",
		cli_json_u64(figures->stored * options->block_bytes), "load_p50_us",
		replay_load_us(figures, 0.50), "load_p95_us", replay_load_us(figures, 0.95),
		"load_p99_us", replay_load_us(figures, 0.99), "corrupt",
		cli_json_u64(figures->corrupt), "seconds_saved", replay_seconds_saved(figures));

	if (object != NULL)
		json_object_update_new(
			object,
			json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:f, s:f, s:f, s:f, s:b, s:o}",
				  "stored", cli_json_u64(figures->stored), "skipped",
				  cli_json_u64(figures->skipped), "vanished",
				  cli_json_u64(figures->vanished), "errors",
				  cli_json_u64(figures->errors), "hit_tokens",
				  cli_json_u64(figures->hit_tokens), "block_bytes",
				  cli_json_u64(options->block_bytes), "seconds", figures->seconds,
				  "cpu_s", figures->cpu_seconds, "load_s", figures->load_s, "lag_s",
				  figures->lag_s, "verified", options->verify ? 1 : 0, "backend",
				  cli_json_text(figures->backend)));
	cli_json_print(stdout, object);
}

static void figures_print_text(const struct replay_options *options,
			       const struct replay_figures *figures)
{
	const uint64_t loaded = figures->hits * options->block_bytes;
	const uint64_t stored = figures->stored * options->block_bytes;
	double share =
		figures->blocks != 0 ? 100 * (double)figures->hits / (double)figures->blocks : 0;
	double seconds = figures->seconds > 0 ? figures->seconds : 1;
	char text[32];

	printf("%llu requests, %llu blocks of %s in %.1f s\n",
	       (unsigned long long)figures->requests, (unsigned long long)figures->blocks,
	       cli_bytes_text(options->block_bytes, text, sizeof(text)), figures->seconds);
	printf("hits    %llu blocks (%.1f %%), %s loaded, %.2f GB/s\n",
	       (unsigned long long)figures->hits, share, cli_bytes_text(loaded, text, sizeof(text)),
	       (double)loaded / 1e9 / seconds);
	printf("stored  %llu blocks, %s, %.2f GB/s; %llu were there already\n",
	       (unsigned long long)figures->stored, cli_bytes_text(stored, text, sizeof(text)),
	       (double)stored / 1e9 / seconds, (unsigned long long)figures->skipped);
	printf("load of a request's hits: p50 %.2f ms, p95 %.2f ms, p99 %.2f ms\n",
	       replay_load_us(figures, 0.50) / 1e3, replay_load_us(figures, 0.95) / 1e3,
	       replay_load_us(figures, 0.99) / 1e3);
	printf("saved   %.1f s against a prefill at %.0f tokens/s (%llu tokens, %.1f s of loads)\n",
	       replay_seconds_saved(figures), options->prefill_tokens_per_s,
	       (unsigned long long)figures->hit_tokens, figures->load_s);
	if (options->speed != 0)
		printf("pace    %g times the trace's clock, at most %.3f s late\n", options->speed,
		       figures->lag_s);
	if (figures->backend[0] != '\0')
		printf("backend %s\n", figures->backend);
	printf("bytes   %llu corrupt, %llu errors, %llu vanished%s\n",
	       (unsigned long long)figures->corrupt, (unsigned long long)figures->errors,
	       (unsigned long long)figures->vanished,
	       options->verify ? "; every loaded byte compared" : "");
}

/* Prints what there is, also after a trace that went wrong in the middle. */
static int figures_report(const struct replay_options *options, const struct cli_common *common,
			  const struct replay_figures *figures)
{
	int status = 0;

	if (common->json)
		figures_print_json(options, figures);
	else
		figures_print_text(options, figures);
	if (options->report_path != NULL) {
		status = replay_report_write(options, figures, common->store_uri);
		if (status == 0 && !common->json)
			printf("report  %s\n", options->report_path);
	}
	if (figures->first_error == 0)
		return status;
	cli_error("%llu blocks corrupt, %llu failures, the first: %s",
		  (unsigned long long)figures->corrupt, (unsigned long long)figures->errors,
		  figures->detail);
	return figures->corrupt != 0 ? KVT_ECORRUPT : figures->first_error;
}

int cmd_replay(int argc, char **argv)
{
	struct replay_options options = {.block_bytes = 256 << 10,
					 .block_tokens = 512,
					 .concurrency = 1,
					 .job_blocks = 16,
					 .memory_bytes = UINT64_C(256) << 20,
					 .prefill_tokens_per_s = 10000,
					 .seed = 1,
					 .verify = true};
	const double largest = 70368744177664.0; /* 2^46 */
	const struct cli_option table[] = {
		{"--block-bytes", CLI_BYTES, "N", "KV bytes of one block (default 256KiB)",
		 &options.block_bytes, 1, largest, NULL},
		{"--block-tokens", CLI_NUMBER, "N", "tokens of one block (default 512)",
		 &options.block_tokens, 1, 1e9, NULL},
		{"--requests", CLI_NUMBER, "N", "stop after N requests (default: all)",
		 &options.requests, 1, 1e15, NULL},
		{"--speed", CLI_CALL, "X|max",
		 "times the trace's own pace, or as fast as possible (default max)", &options.speed,
		 0, 0, speed_set},
		{"--concurrency", CLI_NUMBER, "N", "requests at a time (default 1)",
		 &options.concurrency, 1, 1024, NULL},
		{"--job-blocks", CLI_NUMBER, "N", "blocks in one load or store (default 16)",
		 &options.job_blocks, 1, 4096, NULL},
		{"--memory-bytes", CLI_BYTES, "N", "memory for blocks in flight (default 256MiB)",
		 &options.memory_bytes, 1, largest, NULL},
		{"--lanes", CLI_NUMBER, "N", "I/O threads (default 4)", &options.lanes, 1, 64,
		 NULL},
		{"--depth", CLI_NUMBER, "N", "requests in flight a lane (default: the backend's)",
		 &options.depth, 1, 65536, NULL},
		{"--seed", CLI_NUMBER, "N", "names and bytes of the blocks (default 1)",
		 &options.seed, 0, 9007199254740992.0, NULL},
		{"--verify", CLI_SWITCH, "on|off", "compare every loaded byte (default on)",
		 &options.verify, 0, 0, NULL},
		{"--prefill-tokens-per-s", CLI_REAL, "N",
		 "speed of the prefill that a hit saves (default 10000)",
		 &options.prefill_tokens_per_s, 1, 1e12, NULL},
		{"--report", CLI_STRING, "FILE.html", "write a report with charts",
		 &options.report_path, 0, 0, NULL},
		{NULL, CLI_FLAG, NULL, NULL, NULL, 0, 0, NULL},
	};
	struct cli_common common = {0};
	struct replay_figures figures = {0};
	struct kvt_store *store = NULL;
	int operands, status, reported;

	status = cli_parse(argc, argv, table, &common, 1, 1, &operands);
	if (status < 0 || common.help)
		goto out;
	options.trace_path = argv[1];
	if (options.report_path != NULL && (status = replay_report_check(options.report_path)) < 0)
		goto out;
	status = cli_store_open(&common, KVT_MODE_POINTER, NULL, NULL, &store);
	if (status < 0)
		goto out;
	cli_interrupt_catch();
	status = replay_run(&options, &common, store, &figures);
	if (status == KVT_ECANCELED)
		cli_error("interrupted");
	if (status == 0 || figures.requests != 0) {
		reported = figures_report(&options, &common, &figures);
		if (status == 0)
			status = reported;
	}
out:
	replay_figures_fini(&figures);
	kvt_store_close(store);
	cli_common_fini(&common);
	return cli_output_end(kvt_error_exit_status(status));
}
