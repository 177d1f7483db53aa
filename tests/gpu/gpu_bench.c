/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures the CUDA device on a GPU: copies of fragments against a plain pinned copy, stores and
 * loads through the worker, what submitting costs, and what stores cost a kernel beside them.
 * Prints rows of a table.
 *
 * usage: gpu_bench [--quick] [REPEATS=7]
 *
 * Exits with 77 where there is no GPU, 1 when something fails. A target that is missed is told in
 * its row and by exit status 3.
 */
#include "gpu_bench.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct gpu_api gpu;

void gpu_check(CUresult result, const char *call)
{
	const char *name = NULL;

	if (result == CUDA_SUCCESS)
		return;
	if (gpu.cuGetErrorName != NULL)
		(void)gpu.cuGetErrorName(result, &name);
	fprintf(stderr, "gpu_bench: %s: %s\n", call, name != NULL ? name : "failed");
	exit(1);
}

void kvt_check(int result, const char *call)
{
	if (result >= 0)
		return;
	fprintf(stderr, "gpu_bench: %s: %s: %s\n", call, kvt_error_name(result),
		kvt_error_detail());
	exit(1);
}

int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* ---- Rows ---- */

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static void sorted(double *to, const double *from, size_t count)
{
	memcpy(to, from, count * sizeof(*to));
	qsort(to, count, sizeof(*to), by_value);
}

double median_of(const double *values, size_t count)
{
	double v[MAX_REPEATS];

	sorted(v, values, count);
	return count % 2 != 0 ? v[count / 2] : (v[count / 2 - 1] + v[count / 2]) / 2;
}

static const char *verdict(bool judged, bool met)
{
	return !judged ? "for information" : met ? "met" : "**missed**";
}

bool row_ratio(const char *measure, const char *unit, const double *value, const double *base,
	       size_t count, bool at_most, double target)
{
	double ratio[MAX_REPEATS], v[MAX_REPEATS], median;
	bool met;

	for (size_t i = 0; i < count; i++)
		ratio[i] = value[i] / base[i];
	sorted(v, ratio, count);
	median = median_of(ratio, count);
	met = at_most ? median <= target : median >= target;
	printf("| %s | ", measure);
	if (target > 0)
		printf("at %s %.3g times", at_most ? "most" : "least", target);
	else
		printf("-");
	printf(" | %.3g against %.3g %s | **%.3g** (%.3g to %.3g) | %s |\n",
	       median_of(value, count), median_of(base, count), unit, median, v[0], v[count - 1],
	       verdict(target > 0, met));
	fflush(stdout);
	return target <= 0 || met;
}

bool row_value(const char *measure, const char *unit, const double *value, size_t count,
	       double target)
{
	double v[MAX_REPEATS], median = median_of(value, count);
	bool met = median <= target;

	sorted(v, value, count);
	printf("| %s | ", measure);
	if (target > 0)
		printf("under %.3g %s", target, unit);
	else
		printf("-");
	printf(" | - | **%.3g** %s (%.3g to %.3g) | %s |\n", median, unit, v[0], v[count - 1],
	       verdict(target > 0, met));
	fflush(stdout);
	return target <= 0 || met;
}

/* ---- The driver ---- */

static int not_here(const char *reason)
{
	printf("skipped: %s\n", reason);
	return 77;
}

static int load_driver(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), *address;
	__typeof__(cuGetProcAddress) *find;

	if (library == NULL)
		return not_here("no CUDA driver here (libcuda.so.1)");
	address = dlsym(library, "cuGetProcAddress_v2");
	if (address == NULL)
		return not_here("the CUDA driver here is older than 12.0");
	memcpy(&find, &address, sizeof(find));
	/* The version of cuEventElapsedTime that the headers declare came with 12.8; the older one
	 * has the same arguments. */
#define FIND(name)                                                                                 \
	address = NULL;                                                                            \
	if ((find(#name, &address, 12080, 0, NULL) != CUDA_SUCCESS || address == NULL) &&          \
	    (find(#name, &address, 12000, 0, NULL) != CUDA_SUCCESS || address == NULL))            \
		return not_here("the CUDA driver here has no " #name);                             \
	memcpy(&gpu.name, &address, sizeof(address));
	GPU_BENCH_API(FIND)
#undef FIND
#define FIND(name)                                                                                 \
	address = NULL;                                                                            \
	if (find(#name, &address, 12000, 0, NULL) != CUDA_SUCCESS)                                 \
		address = NULL;                                                                    \
	memcpy(&gpu.name, &address, sizeof(address));
	GPU_BENCH_KERNEL_API(FIND)
#undef FIND
	if (gpu.cuInit(0) != CUDA_SUCCESS)
		return not_here("the CUDA driver here finds no GPU (cuInit)");
	return 0;
}

static void tell_machine(void)
{
	char name[128] = "";
	int version = 0, engines = 0;

	GPU(cuDriverGetVersion(&version));
	GPU(cuDeviceGetName(name, sizeof(name), 0));
	GPU(cuDeviceGetAttribute(&engines, CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 0));
	printf("%s, driver for CUDA %d.%d, %d copy engines\n\n", name, version / 1000,
	       version % 1000 / 10, engines);
}

int main(int argc, char **argv)
{
	struct kvt_device_options options = KVT_INIT(options);
	static struct bench b;
	unsigned missed = 0;
	int skipped;

	b.repeats = 7;
	for (int i = 1; i < argc; i++)
		if (strcmp(argv[i], "--quick") == 0)
			b.quick = true;
		else
			b.repeats = (unsigned)strtoul(argv[i], NULL, 10);
	if (b.repeats == 0 || b.repeats > MAX_REPEATS) {
		fprintf(stderr, "gpu_bench: repeats: expected 1 to %d\n", MAX_REPEATS);
		return 2;
	}
	skipped = load_driver();
	if (skipped != 0)
		return skipped;
	GPU(cuDevicePrimaryCtxRetain(&b.context, 0));
	GPU(cuCtxSetCurrent(b.context));
	options.name = "cuda";
	KVT(kvt_device_open(&options, &b.device));
	b.chunks = b.quick ? 4 : 64;
	GPU(cuMemAlloc(&b.memory, b.chunks * CHUNK_BYTES));
	tell_machine();
	printf("| measure | target | medians | value (range) | verdict |\n|---|---|---|---|---|\n");
	missed += bench_copies(&b);
	missed += bench_throughput(&b);
	missed += bench_submit(&b);
	missed += bench_interference(&b);
	GPU(cuMemFree(b.memory));
	KVT(kvt_device_close(b.device));
	GPU(cuCtxSetCurrent(NULL));
	GPU(cuDevicePrimaryCtxRelease(0));
	printf("\n%u targets missed\n", missed);
	return missed != 0 ? 3 : 0;
}
