/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the core itself costs, on the mem backend: chunks a second, submit and poll calls, waking an
 * idle lane, memory of a long queue. One JSON object a line; every figure is a median of the
 * repeats.
 *
 * usage: core_bench [REPEATS=5] [LANES=4]
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <kvtier/kvtier.h>

#define ROW_BYTES 4096
#define JOB_KEYS  64

static void check(int result, const char *what)
{
	if (result >= 0)
		return;
	fprintf(stderr, "%s: %s: %s\n", what, kvt_error_name(result), kvt_error_detail());
	exit(1);
}

static int64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static double cpu_s(void)
{
	struct rusage u;
	getrusage(RUSAGE_SELF, &u);
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
	       (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return x < y ? -1 : x > y;
}

static double percentile(double *values, size_t count, double fraction)
{
	qsort(values, count, sizeof(*values), by_value);
	size_t at = (size_t)(fraction * (double)(count - 1) + 0.5);
	return values[at];
}

struct scene {
	struct kvt_store *store;
	struct kvt_worker *worker;
	uint8_t *rows;
	uint64_t count; /* of keys */
	uint8_t (*hashes)[32];
	struct kvt_key *keys;
	int64_t *indices;
};

static void open_scene(struct scene *s, const char *uri, uint64_t rows, uint32_t lanes)
{
	/* Made ready beforehand: what is measured is the core, not the kernel clearing pages. */
	const struct kvt_option reserve = {"reserve_mib", "2400"};
	struct kvt_store_options so = {.struct_size = sizeof(so),
				       .uri = uri,
				       .options = &reserve,
				       .option_count = 1,
				       .namespace_name = "bench",
				       .mode = KVT_MODE_ROW};
	struct kvt_worker_options wo = {
		.struct_size = sizeof(wo), .lanes = lanes, .queue_chunks = 1 << 20};
	memset(s, 0, sizeof(*s));
	check(kvt_store_open(&so, &s->store), "store_open");
	check(kvt_worker_create(s->store, NULL, &wo, &s->worker), "worker_create");
	s->count = rows;
	s->rows = aligned_alloc(4096, 256 * ROW_BYTES);
	s->hashes = calloc(rows, 32);
	s->keys = calloc(rows, sizeof(*s->keys));
	s->indices = calloc(rows, sizeof(*s->indices));
	if (!s->rows || !s->hashes || !s->keys || !s->indices)
		exit(1);
	for (size_t i = 0; i < 256 * ROW_BYTES; i++)
		s->rows[i] = (uint8_t)(i * 2654435761u >> 13);
	for (uint64_t k = 0; k < rows; k++) {
		uint64_t x = k * UINT64_C(0x9e3779b97f4a7c15);
		for (int w = 0; w < 4; w++, x = (x ^ x >> 29) * UINT64_C(0xbf58476d1ce4e5b9))
			memcpy(s->hashes[k] + 8 * w, &x, 8);
		s->keys[k] = (struct kvt_key){s->hashes[k], 32, 0};
		s->indices[k] = (int64_t)(k % 256);
	}
}

static void close_scene(struct scene *s)
{
	check(kvt_worker_destroy(s->worker, 60000), "destroy");
	check(kvt_store_close(s->store), "store_close");
	free(s->rows);
	free(s->hashes);
	free(s->keys);
	free(s->indices);
}

static struct kvt_rows rows_of(const struct scene *s, uint64_t first, uint64_t count)
{
	return (struct kvt_rows){.struct_size = sizeof(struct kvt_rows),
				 .base = s->rows,
				 .stride_bytes = ROW_BYTES,
				 .row_count = 256,
				 .row_indices = s->indices + first,
				 .keys = s->keys + first,
				 .key_count = count};
}

static void drop_results(struct kvt_worker *w, uint64_t *bad)
{
	struct kvt_result *results[64];
	int n;
	while ((n = kvt_worker_poll(w, results, 64)) > 0)
		for (int i = 0; i < n; i++) {
			*bad += results[i]->error != 0;
			kvt_result_release(results[i]);
		}
}

/* Saturated: stores, then loads of the same keys in jobs of 64. */
static void throughput(int repeats, uint32_t lanes)
{
	const uint64_t chunks = 200000;
	double store_rate[32], load_rate[32], submit_ns[32], cpu_us[32];
	for (int r = 0; r < repeats; r++) {
		struct scene s;
		uint64_t bad = 0;
		open_scene(&s, "mem:", chunks, lanes);
		for (int load = 0; load < 2; load++) {
			int64_t begin = now_ns(), in_submit = 0;
			double cpu = cpu_s();
			uint64_t job = 0;
			for (uint64_t k = 0; k < chunks; k += JOB_KEYS, job++) {
				struct kvt_rows rows = rows_of(
					&s, k, chunks - k < JOB_KEYS ? chunks - k : JOB_KEYS);
				int64_t t = now_ns();
				check(load ? kvt_worker_submit_load_rows(s.worker, job, &rows, NULL)
					   : kvt_worker_submit_store_rows(s.worker, job, &rows,
									  NULL),
				      "submit");
				in_submit += now_ns() - t;
				drop_results(s.worker, &bad);
			}
			check(kvt_worker_drain(s.worker, 60000), "drain");
			drop_results(s.worker, &bad);
			double seconds = (double)(now_ns() - begin) * 1e-9;
			(load ? load_rate : store_rate)[r] = (double)chunks / seconds;
			if (!load) {
				submit_ns[r] = (double)in_submit / (double)chunks;
				cpu_us[r] = (cpu_s() - cpu) * 1e6 / (double)chunks;
			}
		}
		if (bad) {
			fprintf(stderr, "%" PRIu64 " jobs failed\n", bad);
			exit(1);
		}
		close_scene(&s);
	}
	size_t n = (size_t)repeats;
	printf("{\"bench\":\"throughput\",\"lanes\":%u,\"store_chunks_per_s\":%.0f,\"load_chunks_"
	       "per_s\":%.0f,"
	       "\"store_submit_ns_per_chunk\":%.0f,\"store_cpu_us_per_chunk\":%.2f}\n",
	       lanes, percentile(store_rate, n, 0.5), percentile(load_rate, n, 0.5),
	       percentile(submit_ns, n, 0.5), percentile(cpu_us, n, 0.5));
}

/* One job at a time on an idle worker: what submit costs the caller, and how long until the lane
 * has it. */
static void calls(uint32_t lanes)
{
	enum { ROUNDS = 4000, EMPTY_POLLS = 200 };
	static double submit_one[ROUNDS], submit_many[ROUNDS], poll_ns[ROUNDS], wake_us[ROUNDS];
	struct scene s;
	uint64_t bad = 0;
	open_scene(&s, "mem:", (uint64_t)ROUNDS * (JOB_KEYS + 1), lanes);
	struct kvt_result *result;
	for (int i = 0; i < ROUNDS; i++) {
		uint64_t id = (uint64_t)i;
		struct kvt_rows one = rows_of(&s, id, 1);
		/* Let every lane fall asleep. */
		int64_t until = now_ns() + 150000 + (i * 7919) % 400000;
		while (now_ns() < until)
			;
		int64_t t = now_ns();
		check(kvt_worker_submit_store_rows(s.worker, id, &one, NULL), "submit");
		submit_one[i] = (double)(now_ns() - t);
		check(kvt_worker_wait(s.worker, &id, 1, 60000, NULL), "wait");
		if (kvt_worker_poll(s.worker, &result, 1) != 1)
			exit(1);
		bad += result->error != 0;
		wake_us[i] = (double)result->queued_ns * 1e-3;
		kvt_result_release(result);
		t = now_ns();
		for (int p = 0; p < EMPTY_POLLS; p++)
			bad += kvt_worker_poll(s.worker, &result, 1) != 0;
		poll_ns[i] = (double)(now_ns() - t) / EMPTY_POLLS;
	}
	for (int i = 0; i < ROUNDS; i++) {
		struct kvt_rows many = rows_of(&s, ROUNDS + (uint64_t)i * JOB_KEYS, JOB_KEYS);
		int64_t t = now_ns();
		check(kvt_worker_submit_store_rows(s.worker, (uint64_t)i, &many, NULL), "submit");
		submit_many[i] = (double)(now_ns() - t) / JOB_KEYS;
		drop_results(s.worker, &bad);
	}
	check(kvt_worker_drain(s.worker, 60000), "drain");
	drop_results(s.worker, &bad);
	if (bad)
		exit(1);
	printf("{\"bench\":\"calls\",\"lanes\":%u,\"submit_64_ns_per_chunk_p50\":%.0f,\"submit_1_"
	       "idle_us_p50\":%.2f,"
	       "\"poll_empty_ns_p50\":%.0f,\"wake_us_p50\":%.1f,\"wake_us_p99\":%.1f}\n",
	       lanes, percentile(submit_many, ROUNDS, 0.5),
	       percentile(submit_one, ROUNDS, 0.5) * 1e-3, percentile(poll_ns, ROUNDS, 0.5),
	       percentile(wake_us, ROUNDS, 0.5), percentile(wake_us, ROUNDS, 0.99));
	close_scene(&s);
}

static long resident_bytes(void)
{
	long pages = 0, ignored;
	FILE *f = fopen("/proc/self/statm", "r");
	if (!f || fscanf(f, "%ld %ld", &ignored, &pages) != 2)
		exit(1);
	fclose(f);
	return pages * sysconf(_SC_PAGESIZE);
}

/* A queue of 100,000 chunks that wait for an event which has not happened. */
static void queue_memory(uint32_t lanes)
{
	enum { CHUNKS = 100000 };
	struct scene s;
	uint64_t bad = 0;
	struct kvt_event *event;
	open_scene(&s, "mem:", CHUNKS, lanes);
	check(kvt_event_create(&event), "event");
	struct kvt_submit_options o = {.struct_size = sizeof(o),
				       .ready = {.kind = KVT_READY_EVENT, .handle = event}};
	long before = resident_bytes();
	for (uint64_t k = 0; k < CHUNKS; k += JOB_KEYS) {
		struct kvt_rows rows =
			rows_of(&s, k, CHUNKS - k < JOB_KEYS ? CHUNKS - k : JOB_KEYS);
		check(kvt_worker_submit_store_rows(s.worker, k, &rows, &o), "submit");
	}
	long after = resident_bytes();
	/* Beyond the copies: 32 hash bytes and one pointer of each key. */
	double extra = (double)(after - before) / CHUNKS - 32 - 8;
	kvt_event_signal(event);
	check(kvt_worker_drain(s.worker, 60000), "drain");
	drop_results(s.worker, &bad);
	struct kvt_stats st = {.struct_size = sizeof(st)};
	check(kvt_worker_stats(s.worker, &st), "stats");
	printf("{\"bench\":\"queue_memory\",\"chunks\":%d,\"bytes_per_chunk\":%.0f,\"staging_peak_"
	       "bytes\":%" PRIu64 ",\"staging_bytes\":%" PRIu64 "}\n",
	       CHUNKS, extra, st.staging_peak_bytes, st.staging_bytes);
	close_scene(&s);
	kvt_event_destroy(event);
	if (bad)
		exit(1);
}

int main(int argc, char **argv)
{
	long repeats = argc > 1 ? strtol(argv[1], NULL, 10) : 5;
	long lanes = argc > 2 ? strtol(argv[2], NULL, 10) : 4;
	if (repeats < 1 || repeats > 32 || lanes < 1 || lanes > 64) {
		fprintf(stderr, "usage: core_bench [REPEATS=5 (1 to 32)] [LANES=4 (1 to 64)]\n");
		return 2;
	}
	throughput((int)repeats, (uint32_t)lanes);
	calls((uint32_t)lanes);
	queue_memory((uint32_t)lanes);
	return 0;
}
