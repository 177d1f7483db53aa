/* SPDX-License-Identifier: Apache-2.0 */
/* Stores and loads between the GPU and memory through the worker: how fast, what submitting costs
 * the caller, and what it costs a kernel that computes meanwhile. */
#include "gpu_bench.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "crc32c.h"

#define LANES 4

/* ---- The scene ---- */

void bench_scene_renew(struct bench_scene *s)
{
	s->generation++;
	for (uint64_t k = 0; k < s->chunks; k++) {
		uint64_t x = (s->generation << 32 | k) * UINT64_C(0x9e3779b97f4a7c15);

		for (int w = 0; w < 4; w++, x = (x ^ x >> 29) * UINT64_C(0xbf58476d1ce4e5b9))
			memcpy(s->hashes[k] + 8 * w, &x, 8);
		s->keys[k] = (struct kvt_key){s->hashes[k], 32, 0};
	}
}

void bench_scene_open(struct bench *b, struct bench_scene *s, uint64_t chunks, uint64_t fragments,
		      uint64_t fragment_bytes)
{
	char reserve[32];
	const struct kvt_option option = {"reserve_mib", reserve};
	struct kvt_store_options so = KVT_INIT(so);
	struct kvt_worker_options wo = KVT_INIT(wo);
	uint64_t count = chunks * fragments, slots = b->chunks * CHUNK_BYTES / fragment_bytes;

	memset(s, 0, sizeof(*s));
	/* Made ready beforehand: what is measured is not the kernel clearing pages. */
	snprintf(reserve, sizeof(reserve), "%u", b->quick ? 256 : 4096);
	so.uri = "mem:";
	so.options = &option;
	so.option_count = 1;
	so.namespace_name = "bench";
	so.mode = KVT_MODE_EXACT;
	wo.lanes = LANES;
	wo.staging_bytes = b->quick ? 64 * MIB : 0;
	KVT(kvt_store_open(&so, &s->store));
	KVT(kvt_worker_create(s->store, b->device, &wo, &s->worker));
	s->chunks = chunks;
	s->ptrs = calloc(count, sizeof(*s->ptrs));
	s->sizes = calloc(count, sizeof(*s->sizes));
	s->keys = calloc(chunks, sizeof(*s->keys));
	s->hashes = calloc(chunks, sizeof(*s->hashes));
	if (s->ptrs == NULL || s->sizes == NULL || s->keys == NULL || s->hashes == NULL)
		exit(1);
	for (uint64_t i = 0; i < count; i++) {
		/* An odd step visits every slot once, and no two neighbours in a row. */
		s->ptrs[i] = b->memory + i * 7919 % slots * fragment_bytes;
		s->sizes[i] = fragment_bytes;
	}
	s->block_count = count;
	s->ref_count = 1;
	s->transfer.struct_size = sizeof(s->transfer);
	s->transfer.blocks_per_chunk = (uint32_t)fragments;
	s->transfer.group_count = 1;
	s->transfer.group_block_counts = &s->block_count;
	s->transfer.group_data_ref_counts = &s->ref_count;
	s->transfer.block_indices = &s->index;
	s->transfer.ptrs = s->ptrs;
	s->transfer.sizes = s->sizes;
	s->transfer.copy_count = count;
	s->transfer.keys = s->keys;
	s->transfer.key_count = chunks;
	bench_scene_renew(s);
}

void bench_scene_close(struct bench_scene *s)
{
	KVT(kvt_worker_destroy(s->worker, 60000));
	KVT(kvt_store_close(s->store));
	free(s->ptrs);
	free(s->sizes);
	free(s->keys);
	free(s->hashes);
}

void bench_scene_take(struct bench_scene *s, uint64_t id, uint32_t status)
{
	struct kvt_result *result = NULL;

	KVT(kvt_worker_wait(s->worker, &id, 1, 120000, NULL));
	if (kvt_worker_poll(s->worker, &result, 1) != 1 || result->job_id != id) {
		fprintf(stderr, "gpu_bench: job %llu: no completion\n", (unsigned long long)id);
		exit(1);
	}
	if (result->status != status) {
		fprintf(stderr, "gpu_bench: job %llu: %s: %s\n", (unsigned long long)id,
			kvt_status_name(result->status), result->detail);
		exit(1);
	}
	kvt_result_release(result);
}

/* Makes room in the store, which keeps what it is given. */
static void empty_store(struct bench_scene *s)
{
	struct kvt_gc_options options = KVT_INIT(options);
	struct kvt_gc_summary summary = KVT_INIT(summary);

	options.max_bytes = 1;
	KVT(kvt_store_gc(s->store, &options, &summary));
}

/* ---- How fast ---- */

struct summer {
	pthread_t thread;
	uint8_t *memory;
	unsigned rounds;
	uint32_t crc;
};

static void *sum(void *argument)
{
	struct summer *s = argument;

	for (unsigned i = 0; i < s->rounds; i++)
		s->crc = kvt__crc32c(s->crc, s->memory, CHUNK_BYTES);
	return NULL;
}

/* GB/s that LANES threads checksum together, from memory rather than from the cache. */
static double checksum_gbs(unsigned rounds)
{
	struct summer summers[LANES];
	int64_t from;

	for (int i = 0; i < LANES; i++) {
		summers[i] = (struct summer){.rounds = rounds};
		summers[i].memory = malloc(CHUNK_BYTES);
		if (summers[i].memory == NULL)
			exit(1);
		memset(summers[i].memory, i + 1, CHUNK_BYTES);
	}
	from = now_ns();
	for (int i = 0; i < LANES; i++)
		if (pthread_create(&summers[i].thread, NULL, sum, &summers[i]) != 0)
			exit(1);
	for (int i = 0; i < LANES; i++)
		pthread_join(summers[i].thread, NULL);
	from = now_ns() - from;
	for (int i = 0; i < LANES; i++)
		free(summers[i].memory);
	return (double)(LANES * rounds * CHUNK_BYTES) / (double)from;
}

unsigned bench_throughput(struct bench *b)
{
	double store[MAX_REPEATS], load[MAX_REPEATS], sums[MAX_REPEATS], store_base[MAX_REPEATS],
		load_base[MAX_REPEATS];
	struct bench_scene s;
	double bytes = (double)(b->chunks * CHUNK_BYTES);
	uint64_t id = 1;
	unsigned missed = 0;
	bool checksum_store, checksum_load;
	char measure[160];

	bench_scene_open(b, &s, b->chunks, CHUNK_FRAGMENTS, FRAGMENT_BYTES);
	/* The first round finds config.json and the rest of the memory. */
	for (unsigned i = 0; i <= b->repeats; i++) {
		unsigned at = i != 0 ? i - 1 : 0;
		int64_t from;

		bench_scene_renew(&s);
		from = now_ns();
		KVT(kvt_worker_submit_store(s.worker, id, &s.transfer, NULL));
		bench_scene_take(&s, id++, KVT_STATUS_STORED);
		store[at] = bytes / (double)(now_ns() - from);
		from = now_ns();
		KVT(kvt_worker_submit_load(s.worker, id, &s.transfer, NULL));
		bench_scene_take(&s, id++, KVT_STATUS_LOADED);
		load[at] = bytes / (double)(now_ns() - from);
		empty_store(&s);
		sums[at] = checksum_gbs(b->quick ? 2 : 32);
	}
	bench_scene_close(&s);
	checksum_store = median_of(sums, b->repeats) < median_of(b->gather_gbs, b->repeats);
	checksum_load = median_of(sums, b->repeats) < median_of(b->scatter_gbs, b->repeats);
	for (unsigned i = 0; i < b->repeats; i++) {
		store_base[i] = checksum_store ? sums[i] : b->gather_gbs[i];
		load_base[i] = checksum_load ? sums[i] : b->scatter_gbs[i];
	}
	snprintf(measure, sizeof(measure),
		 "store of 16 MiB chunks to memory, 4 lanes, GB/s against %s",
		 checksum_store ? "the checksum in 4 threads" : "a pinned copy");
	missed += !row_ratio(measure, "GB/s", store, store_base, b->repeats, false, 0.85);
	snprintf(measure, sizeof(measure),
		 "load of 16 MiB chunks from memory, 4 lanes, GB/s against %s",
		 checksum_load ? "the checksum in 4 threads" : "a pinned copy");
	missed += !row_ratio(measure, "GB/s", load, load_base, b->repeats, false, 0.85);
	return missed;
}

/* ---- What submitting costs ---- */

unsigned bench_submit(struct bench *b)
{
	struct kvt_submit_options options = KVT_INIT(options);
	double micros[MAX_REPEATS];
	struct bench_scene s;
	CUstream stream;
	uint64_t id = 1;

	GPU(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0));
	bench_scene_open(b, &s, 64, 256, 4096);
	options.ready.kind = KVT_READY_STREAM;
	options.ready.handle = stream;
	for (unsigned i = 0; i < 2 * b->repeats; i++) {
		int64_t from;

		bench_scene_renew(&s);
		from = now_ns();
		KVT(kvt_worker_submit_store(s.worker, id, &s.transfer, &options));
		micros[i / 2] = (double)(now_ns() - from) / 1e3;
		bench_scene_take(&s, id++, KVT_STATUS_STORED);
		empty_store(&s);
	}
	bench_scene_close(&s);
	GPU(cuStreamDestroy(stream));
	return !row_value("submitting a job of 64 chunks of 256 fragments, after a stream",
			  "microseconds", micros, b->repeats, 100);
}

/* ---- What stores cost a kernel ---- */

/* Eight chains of multiplications and additions in every thread, nothing from memory. */
static const char kernel_text[] = ".version 7.8\n"
				  ".target sm_75\n"
				  ".address_size 64\n"
				  ".visible .entry busy(.param .u64 out, .param .u32 rounds)\n"
				  "{\n"
				  "	.reg .pred %p;\n"
				  "	.reg .b32 %n, %i, %t;\n"
				  "	.reg .b64 %o;\n"
				  "	.reg .f32 %a, %b, %x<8>;\n"
				  "	ld.param.u32 %n, [rounds];\n"
				  "	ld.param.u64 %o, [out];\n"
				  "	mov.u32 %t, %tid.x;\n"
				  "	cvt.rn.f32.u32 %a, %t;\n"
				  "	mov.f32 %b, 0f3F7FFFF0;\n"
				  "	mov.f32 %x0, %a;\n"
				  "	mov.f32 %x1, %a;\n"
				  "	mov.f32 %x2, %a;\n"
				  "	mov.f32 %x3, %a;\n"
				  "	mov.f32 %x4, %a;\n"
				  "	mov.f32 %x5, %a;\n"
				  "	mov.f32 %x6, %a;\n"
				  "	mov.f32 %x7, %a;\n"
				  "	mov.u32 %i, 0;\n"
				  "again:\n"
				  "	fma.rn.f32 %x0, %x0, %b, %a;\n"
				  "	fma.rn.f32 %x1, %x1, %b, %x0;\n"
				  "	fma.rn.f32 %x2, %x2, %b, %a;\n"
				  "	fma.rn.f32 %x3, %x3, %b, %x2;\n"
				  "	fma.rn.f32 %x4, %x4, %b, %a;\n"
				  "	fma.rn.f32 %x5, %x5, %b, %x4;\n"
				  "	fma.rn.f32 %x6, %x6, %b, %a;\n"
				  "	fma.rn.f32 %x7, %x7, %b, %x6;\n"
				  "	add.u32 %i, %i, 1;\n"
				  "	setp.lt.u32 %p, %i, %n;\n"
				  "	@%p bra again;\n"
				  "	add.f32 %x0, %x0, %x1;\n"
				  "	add.f32 %x2, %x2, %x3;\n"
				  "	add.f32 %x4, %x4, %x5;\n"
				  "	add.f32 %x6, %x6, %x7;\n"
				  "	add.f32 %x0, %x0, %x2;\n"
				  "	add.f32 %x4, %x4, %x6;\n"
				  "	add.f32 %x0, %x0, %x4;\n"
				  "	st.global.f32 [%o], %x0;\n"
				  "	ret;\n"
				  "}\n";

struct kernel {
	CUmodule module;
	CUfunction function;
	CUstream stream;
	CUevent from, to;
	CUdeviceptr out;
	unsigned rounds, blocks;
};

/* Milliseconds of `count` launches in a row. */
static double run_kernel(struct kernel *k, unsigned count)
{
	void *arguments[] = {&k->out, &k->rounds};
	float ms = 0;

	GPU(cuEventRecord(k->from, k->stream));
	for (unsigned i = 0; i < count; i++)
		GPU(cuLaunchKernel(k->function, k->blocks, 1, 1, 256, 1, 1, 0, k->stream, arguments,
				   NULL));
	GPU(cuEventRecord(k->to, k->stream));
	GPU(cuEventSynchronize(k->to));
	GPU(cuEventElapsedTime(&ms, k->from, k->to));
	return ms;
}

struct storer {
	struct bench *bench;
	pthread_t thread;
	atomic_bool stop;
	atomic_uint jobs; /* started */
	uint64_t bytes;
};

static void *keep_storing(void *argument)
{
	struct storer *storer = argument;
	struct bench_scene s;
	uint64_t id = 1;

	GPU(cuCtxSetCurrent(storer->bench->context));
	bench_scene_open(storer->bench, &s, storer->bench->chunks / 2, CHUNK_FRAGMENTS,
			 FRAGMENT_BYTES);
	while (!atomic_load(&storer->stop)) {
		bench_scene_renew(&s);
		KVT(kvt_worker_submit_store(s.worker, id, &s.transfer, NULL));
		atomic_fetch_add(&storer->jobs, 1);
		bench_scene_take(&s, id++, KVT_STATUS_STORED);
		storer->bytes += s.chunks * CHUNK_BYTES;
		empty_store(&s);
	}
	bench_scene_close(&s);
	GPU(cuCtxSetCurrent(NULL));
	return NULL;
}

static void measure_kernel(struct bench *b, struct kernel *k, double *alone, double *beside,
			   double *store_gbs)
{
	for (unsigned i = 0; i < b->repeats; i++) {
		struct storer storer = {.bench = b};
		int64_t from;

		alone[i] = run_kernel(k, 20);
		if (pthread_create(&storer.thread, NULL, keep_storing, &storer) != 0)
			exit(1);
		while (atomic_load(&storer.jobs) < 2)
			;
		from = now_ns();
		beside[i] = run_kernel(k, 20);
		from = now_ns() - from;
		atomic_store(&storer.stop, true);
		pthread_join(storer.thread, NULL);
		store_gbs[i] = (double)storer.bytes / (double)from;
		alone[i] = (alone[i] + run_kernel(k, 20)) / 2;
	}
}

unsigned bench_interference(struct bench *b)
{
	double alone[MAX_REPEATS], beside[MAX_REPEATS], store_gbs[MAX_REPEATS];
	struct kernel k = {.rounds = 1u << 16};
	int cores = 0;
	bool met;

	if (gpu.cuModuleLoadData == NULL || gpu.cuModuleUnload == NULL ||
	    gpu.cuModuleGetFunction == NULL || gpu.cuLaunchKernel == NULL) {
		printf("| a kernel beside a stream of stores | at most 1.02 times | - | - | "
		       "not measured: this driver runs no kernels |\n");
		return 0;
	}
	GPU(cuDeviceGetAttribute(&cores, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
	k.blocks = (unsigned)cores * 8;
	GPU(cuModuleLoadData(&k.module, kernel_text));
	GPU(cuModuleGetFunction(&k.function, k.module, "busy"));
	GPU(cuStreamCreateWithPriority(&k.stream, CU_STREAM_NON_BLOCKING, 0));
	GPU(cuEventCreate(&k.from, CU_EVENT_DEFAULT));
	GPU(cuEventCreate(&k.to, CU_EVENT_DEFAULT));
	GPU(cuMemAlloc(&k.out, 4096));
	/* 20 launches take about half a second. */
	for (double ms = run_kernel(&k, 1); ms < 25 && k.rounds < 1u << 26; ms = run_kernel(&k, 1))
		k.rounds = ms < 1 ? k.rounds * 8 : (unsigned)((double)k.rounds * 26 / ms);
	measure_kernel(b, &k, alone, beside, store_gbs);
	met = row_ratio("a kernel beside a stream of stores, 20 launches, against alone", "ms",
			beside, alone, b->repeats, true, 1.02);
	(void)row_value("stores beside the kernel", "GB/s", store_gbs, b->repeats, 0);
	GPU(cuMemFree(k.out));
	GPU(cuEventDestroy(k.from));
	GPU(cuEventDestroy(k.to));
	GPU(cuStreamDestroy(k.stream));
	GPU(cuModuleUnload(k.module));
	return !met;
}
