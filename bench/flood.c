/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much a flood of stores on a slow store slows loads down: the latency of loads that come one
 * at a time, paced, without stores and while more stores wait than the lanes can take. Loads are of
 * keys that were stored beforehand; every put takes 20 ms longer than the place itself needs.
 *
 * One thread does everything that a caller would do: it sleeps on the worker's descriptor, looks
 * for the load first, then replaces each finished store job by a new one, so that the number of
 * store jobs in flight never falls. A load's latency is what this thread sees, from its submit to
 * the completion in its hands.
 *
 * The place must be fresh: a store that is skipped is no flood, and fails the program.
 *
 * usage: flood [URI=fault+mem:] [REPEATS=5] [LOADS=2000] [CHUNK_BYTES=65536] [LANES=4]
 * Prints a JSON object for each repeat, then one with the medians of all.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <kvtier/kvtier.h>

#define DELAY	     "put:20"
#define RESERVE_MIB  "512"
#define LOAD_KEYS    256
#define STORE_JOBS   256 /* in flight */
#define STORE_KEYS   8	 /* of a job */
#define SOURCE_ROWS  64
#define HASH_BYTES   16
#define WARM_LOADS   50
#define PACE_NS	     500000 /* from one load's end to the next one's begin */
#define MAX_REPEATS  32
#define MAX_LOADS    100000
#define RESULTS_ONCE 64
#define LOAD_JOB     UINT64_MAX

struct flood {
	struct kvt_store *store;
	struct kvt_worker *worker;
	int event_fd;
	size_t chunk_bytes;
	uint8_t *rows; /* SOURCE_ROWS to store from, then one to load into */
	uint64_t next_key, next_job;
	uint64_t stores_in_flight, stores_done;
	bool storing; /* finished store jobs are replaced, and must have stored */
	bool loaded;  /* the load in flight has completed */
};

/* One phase of one repeat. */
struct latencies {
	double p50_us, p99_us, stores_per_s;
};

static void check(int result, const char *what)
{
	if (result >= 0)
		return;
	fprintf(stderr, "flood: %s: %s: %s\n", what, kvt_error_name(result), kvt_error_detail());
	exit(1);
}

static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

/* Sorts the values. */
static double percentile(double *values, size_t count, double fraction)
{
	qsort(values, count, sizeof(*values), by_value);
	return values[(size_t)(fraction * (double)(count - 1) + 0.5)];
}

static uint64_t mix(uint64_t x)
{
	x += UINT64_C(0x9e3779b97f4a7c15);
	x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
	return x ^ x >> 31;
}

static void make_key(uint64_t number, uint8_t *hash, struct kvt_key *key)
{
	uint64_t words[2] = {mix(number), mix(~number)};

	memcpy(hash, words, HASH_BYTES);
	*key = (struct kvt_key){hash, HASH_BYTES, 0};
}

/* Stores keys `first` on, each from the row that belongs to it. */
static void submit_store(struct flood *f, uint64_t first, uint64_t count)
{
	uint8_t hashes[STORE_KEYS][HASH_BYTES];
	struct kvt_key keys[STORE_KEYS];
	int64_t indices[STORE_KEYS];
	struct kvt_rows rows = KVT_INIT(rows);

	for (uint64_t i = 0; i < count; i++) {
		make_key(first + i, hashes[i], &keys[i]);
		indices[i] = (int64_t)((first + i) % SOURCE_ROWS);
	}
	rows.base = f->rows;
	rows.stride_bytes = f->chunk_bytes;
	rows.row_count = SOURCE_ROWS + 1;
	rows.row_indices = indices;
	rows.keys = keys;
	rows.key_count = count;
	check(kvt_worker_submit_store_rows(f->worker, f->next_job++, &rows, NULL), "store");
	f->stores_in_flight++;
}

static void submit_load(struct flood *f, uint64_t number)
{
	uint8_t hash[HASH_BYTES];
	struct kvt_key key;
	int64_t row = SOURCE_ROWS;
	struct kvt_rows rows = KVT_INIT(rows);

	make_key(number, hash, &key);
	rows.base = f->rows;
	rows.stride_bytes = f->chunk_bytes;
	rows.row_count = SOURCE_ROWS + 1;
	rows.row_indices = &row;
	rows.keys = &key;
	rows.key_count = 1;
	check(kvt_worker_submit_load_rows(f->worker, LOAD_JOB, &rows, NULL), "load");
	f->loaded = false;
}

/* Sleeps until something has completed or the time has come (negative: no time); takes what has
 * completed. Returns when it had it. */
static int64_t take(struct flood *f, int64_t until_ns)
{
	struct pollfd waited = {.fd = f->event_fd, .events = POLLIN};
	struct kvt_result *results[RESULTS_ONCE];
	int64_t now = now_ns(), left = until_ns > now ? until_ns - now : 0;
	struct timespec timeout = {left / 1000000000, left % 1000000000};
	int count;

	if (ppoll(&waited, 1, until_ns < 0 ? NULL : &timeout, NULL) < 0 && errno != EINTR) {
		fprintf(stderr, "flood: poll: %s\n", strerror(errno));
		exit(1);
	}
	count = kvt_worker_poll(f->worker, results, RESULTS_ONCE);
	now = now_ns();
	check(count, "poll");
	for (int i = 0; i < count; i++) {
		if (results[i]->error) {
			fprintf(stderr, "flood: job failed: %s: %s\n",
				kvt_error_name(results[i]->error), results[i]->detail);
			exit(1);
		}
		if (results[i]->job_id == LOAD_JOB) {
			f->loaded = true;
		} else {
			f->stores_in_flight--;
			f->stores_done += results[i]->key_count;
			if (f->storing && results[i]->key_status[0] != KVT_STATUS_STORED) {
				fprintf(stderr, "flood: a store was skipped: the place is not "
						"fresh\n");
				exit(1);
			}
		}
		kvt_result_release(results[i]);
	}
	return now;
}

static void keep_storing(struct flood *f)
{
	while (f->storing && f->stores_in_flight < STORE_JOBS) {
		submit_store(f, f->next_key, STORE_KEYS);
		f->next_key += STORE_KEYS;
	}
}

static void wait_for_stores(struct flood *f)
{
	f->storing = false;
	while (f->stores_in_flight)
		(void)take(f, -1);
}

/* Loads one key after the other, and checks each against the row it was stored from. */
static struct latencies measure(struct flood *f, bool storing, double *values, int loads)
{
	struct latencies result;
	int64_t begin = 0;
	uint64_t stored = 0;

	f->storing = storing;
	for (int i = -WARM_LOADS; i < loads; i++) {
		uint64_t number = (uint64_t)(i + WARM_LOADS) * 7919 % LOAD_KEYS;
		int64_t start, until = now_ns() + PACE_NS;

		memset(f->rows + SOURCE_ROWS * f->chunk_bytes, 0xa5, f->chunk_bytes);
		do {
			keep_storing(f);
		} while (take(f, until) < until);
		keep_storing(f);
		if (i == 0) {
			begin = now_ns();
			stored = f->stores_done;
		}
		start = now_ns();
		submit_load(f, number);
		while (!f->loaded) {
			int64_t now = take(f, -1);

			if (i >= 0)
				values[i] = (double)(now - start) * 1e-3;
			if (!f->loaded)
				keep_storing(f);
		}
		if (memcmp(f->rows + SOURCE_ROWS * f->chunk_bytes,
			   f->rows + number % SOURCE_ROWS * f->chunk_bytes, f->chunk_bytes)) {
			fprintf(stderr, "flood: loaded bytes are not what was stored\n");
			exit(1);
		}
	}
	result.stores_per_s = (double)(f->stores_done - stored) * 1e9 / (double)(now_ns() - begin);
	wait_for_stores(f);
	result.p50_us = percentile(values, (size_t)loads, 0.5);
	result.p99_us = percentile(values, (size_t)loads, 0.99);
	return result;
}

/* A store and a worker of their own for each repeat, so that one kept in memory does not grow. */
static void open_worker(struct flood *f, const char *uri, uint32_t lanes)
{
	/* In memory, stores shall not be slowed by the kernel's clearing of fresh pages. */
	const struct kvt_option options[] = {{"delay", DELAY}, {"reserve_mib", RESERVE_MIB}};
	struct kvt_store_options so = KVT_INIT(so);
	struct kvt_worker_options wo = KVT_INIT(wo);

	so.uri = uri;
	so.options = options;
	so.option_count = strcmp(uri, "fault+mem:") ? 1 : 2;
	so.namespace_name = "flood";
	so.mode = KVT_MODE_ROW;
	wo.lanes = lanes;
	check(kvt_store_open(&so, &f->store), uri);
	check(kvt_worker_create(f->store, NULL, &wo, &f->worker), "worker");
	f->event_fd = kvt_worker_event_fd(f->worker);
	check(f->event_fd, "event descriptor");
	for (uint64_t key = 0; key < LOAD_KEYS; key += STORE_KEYS)
		submit_store(f, key, STORE_KEYS);
	wait_for_stores(f);
}

static void close_worker(struct flood *f)
{
	check(kvt_worker_destroy(f->worker, 60000), "destroy");
	check(kvt_store_close(f->store), "close");
}

static double median(const double *values, int count)
{
	double sorted[MAX_REPEATS];

	memcpy(sorted, values, (size_t)count * sizeof(*sorted));
	return percentile(sorted, (size_t)count, 0.5);
}

/* A whole number from `least` to `most`, or -1. */
static long number(int argc, char **argv, int index, long standard, long least, long most)
{
	char *end;
	long value;

	if (index >= argc)
		return standard;
	value = strtol(argv[index], &end, 10);
	return *end || end == argv[index] || value < least || value > most ? -1 : value;
}

int main(int argc, char **argv)
{
	const char *uri = argc > 1 ? argv[1] : "fault+mem:";
	long repeats = number(argc, argv, 2, 5, 1, MAX_REPEATS);
	long loads = number(argc, argv, 3, 2000, 100, MAX_LOADS);
	long chunk_bytes = number(argc, argv, 4, 65536, 4096, 4 << 20);
	long lanes = number(argc, argv, 5, 4, 1, 64);
	double alone[MAX_REPEATS], during[MAX_REPEATS], ratio[MAX_REPEATS], stores[MAX_REPEATS];
	double *values;
	struct flood f = {0};
	size_t row_bytes;

	if (repeats < 0 || loads < 0 || chunk_bytes < 0 || chunk_bytes % 4096 || lanes < 0 ||
	    argc > 6 || strncmp(uri, "fault+", 6)) {
		fprintf(stderr, "usage: flood [URI=fault+mem:] [REPEATS=5 (1 to 32)] "
				"[LOADS=2000 (100 to 100000)] [CHUNK_BYTES=65536 (pages, at most "
				"4194304)] [LANES=4 (1 to 64)]\n");
		return 2;
	}
	f.chunk_bytes = (size_t)chunk_bytes;
	row_bytes = (SOURCE_ROWS + 1) * f.chunk_bytes;
	f.rows = aligned_alloc(4096, row_bytes);
	values = calloc((size_t)loads, sizeof(*values));
	if (!f.rows || !values) {
		fprintf(stderr, "flood: out of memory\n");
		return 1;
	}
	for (size_t i = 0; i + 8 <= row_bytes; i += 8) {
		uint64_t word = i * UINT64_C(0xd1342543de82ef95);

		memcpy(f.rows + i, &word, 8);
	}
	f.next_key = LOAD_KEYS;
	for (long r = 0; r < repeats; r++) {
		struct latencies a, b;

		open_worker(&f, uri, (uint32_t)lanes);
		a = measure(&f, false, values, (int)loads);
		b = measure(&f, true, values, (int)loads);
		close_worker(&f);
		alone[r] = a.p99_us;
		during[r] = b.p99_us;
		ratio[r] = b.p99_us / a.p99_us;
		stores[r] = b.stores_per_s;
		printf("{\"bench\":\"flood\",\"repeat\":%ld,\"p50_us_alone\":%.1f,\"p50_us_flood\":"
		       "%.1f,\"p99_us_alone\":%.1f,\"p99_us_flood\":%.1f,\"ratio\":%.3f,\"stores_"
		       "per_s\":%.0f}\n",
		       r + 1, a.p50_us, b.p50_us, a.p99_us, b.p99_us, ratio[r], stores[r]);
		if (b.stores_per_s <= 0) {
			fprintf(stderr, "flood: no store ended while loads were measured\n");
			return 1;
		}
	}
	printf("{\"bench\":\"flood\",\"store\":\"%s\",\"delay\":\"%s\",\"chunk_bytes\":%ld,"
	       "\"lanes\":%ld,\"repeats\":%ld,\"loads\":%ld,\"p99_us_alone\":%.1f,\"p99_us_"
	       "flood\":%.1f,\"ratio\":%.3f,\"stores_per_s\":%.0f}\n",
	       uri, DELAY, chunk_bytes, lanes, repeats, loads, median(alone, (int)repeats),
	       median(during, (int)repeats), median(ratio, (int)repeats),
	       median(stores, (int)repeats));
	free(values);
	free(f.rows);
	return 0;
}
