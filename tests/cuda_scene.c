/* SPDX-License-Identifier: Apache-2.0 */
/* See cuda_scene.h. */
#include "cuda_scene.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct cuda_api *cuda;
const struct fake_cuda *cuda_fake;
static struct cuda_api api;

void cuda_check(CUresult result, const char *call, const char *file, int line)
{
	const char *name = NULL;

	if (result == CUDA_SUCCESS)
		return;
	(void)cuda->cuGetErrorName(result, &name);
	print_error("%s: %d (%s)\n", call, (int)result, name ? name : "?");
	_fail(file, line);
}

static int not_here(const char *reason)
{
	printf("skipped: %s\n", reason);
	return 77;
}

int cuda_scene_start(bool fake_only)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	__typeof__(cuGetProcAddress) *find;
	fake_cuda_control_fn control;

	if (!library)
		return not_here("no CUDA driver here (libcuda.so.1)");
	control = (fake_cuda_control_fn)dlsym(library, "fake_cuda_control");
	if (control)
		cuda_fake = control();
	else if (fake_only)
		return not_here("the CUDA driver here is a real one, expected the tests' own");
	find = (__typeof__(find))dlsym(library, "cuGetProcAddress_v2");
	if (!find)
		return not_here("the CUDA driver here is older than 12.0");
#define FIND(name)                                                                                 \
	{                                                                                          \
		void *address = NULL;                                                              \
		if (find(#name, &address, 12000, 0, NULL) != CUDA_SUCCESS || !address)             \
			return not_here("the CUDA driver here has no " #name);                     \
		memcpy(&api.name, &address, sizeof(address));                                      \
	}
	CUDA_SCENE_API(FIND)
#undef FIND
	if (!cuda_fake) {
		void *address = NULL;
		if (find("cuStreamWaitValue32", &address, 12000, 0, NULL) != CUDA_SUCCESS ||
		    !address)
			return not_here("the CUDA driver here has no cuStreamWaitValue32");
		memcpy(&api.cuStreamWaitValue32, &address, sizeof(address));
	}
	cuda = &api;
	if (api.cuInit(0) != CUDA_SUCCESS)
		return not_here("the CUDA driver here finds no GPU (cuInit)");
	return 0;
}

int cuda_device_open(uint32_t ordinal, struct kvt_device **devicep)
{
	struct kvt_device_options options = KVT_INIT(options);

	options.name = "cuda";
	options.ordinal = ordinal;
	return kvt_device_open(&options, devicep);
}

void cuda_scene_init(struct cuda_scene *s, CUdevice ordinal, size_t memory_bytes)
{
	memset(s, 0, sizeof(*s));
	test_bed_init(&s->bed);
	s->ordinal = ordinal;
	s->memory_bytes = memory_bytes;
	if (cuda_fake)
		s->untouched = cuda_fake->counts();
	CU(cuDevicePrimaryCtxRetain(&s->context, ordinal));
	CU(cuCtxSetCurrent(s->context));
	CU(cuMemAlloc(&s->memory, memory_bytes));
	s->shadow = malloc(memory_bytes);
	assert_non_null(s->shadow);
	if (cuda_fake)
		s->before = cuda_fake->counts();
}

void cuda_scene_open_device(struct cuda_scene *s, enum cuda_store store)
{
	char *uri;

	assert_ok(cuda_device_open((uint32_t)s->ordinal, &s->bed.device));
	assert_context_kept(s);
	if (store == CUDA_STORE_FILE)
		s->directory = test_temp_dir();
	uri = store == CUDA_STORE_FILE ? test_format("file:%s/kv", s->directory)
				       : test_format("mem:");
	test_bed_open_store(&s->bed, uri);
	free(uri);
}

void cuda_scene_open(struct cuda_scene *s, enum cuda_store store)
{
	cuda_scene_open_device(s, store);
	test_bed_open_worker(&s->bed);
	assert_context_kept(s);
}

void cuda_scene_context_kept(const struct cuda_scene *s, const char *file, int line)
{
	CUcontext context;

	CU(cuCtxGetCurrent(&context));
	if (context != s->context) {
		print_error("another context is current\n");
		_fail(file, line);
	}
	if (cuda_fake && cuda_fake->stack_depth() != 1) {
		print_error("%u contexts on the stack\n", cuda_fake->stack_depth());
		_fail(file, line);
	}
}

/* What the driver knows of, compared with what was there before the library came. */
static void check_counts(const struct fake_cuda_counts *before)
{
	struct fake_cuda_counts now = cuda_fake->counts();

	if (cuda_fake->violation())
		fail_msg("%s", cuda_fake->violation());
	assert_int_equal(now.retained, before->retained);
	assert_int_equal(now.streams, before->streams);
	assert_int_equal(now.events, before->events);
	assert_int_equal(now.device_allocations, before->device_allocations);
	assert_int_equal(now.host_allocations, before->host_allocations);
	assert_int_equal(now.registrations, before->registrations);
}

void cuda_scene_close(struct cuda_scene *s)
{
	bool lost = cuda_fake && cuda_fake->is_lost(s->ordinal);

	if (s->bed.store)
		test_bed_close(&s->bed);
	assert_context_kept(s);
	assert_ok(kvt_device_close(s->bed.device));
	assert_context_kept(s);
	if (cuda_fake) {
		assert_true(cuda_fake->idle());
		if (!lost)
			check_counts(&s->before);
	}
	/* A context that is lost says so once more. */
	CUresult result = cuda->cuMemFree(s->memory);
	assert_true(lost || result == CUDA_SUCCESS);
	CU(cuCtxSetCurrent(NULL));
	CU(cuDevicePrimaryCtxRelease(s->ordinal));
	if (cuda_fake)
		check_counts(&s->untouched);
	free(s->shadow);
	test_remove_tree(s->directory);
}

void cuda_scene_place(struct cuda_scene *s, struct test_transfer *t, uint32_t blocks_per_chunk,
		      const struct test_group *groups, uint32_t group_count, uint64_t key_seed)
{
	size_t bytes = test_transfer_memory(blocks_per_chunk, groups, group_count);

	assert_true(s->used + bytes <= s->memory_bytes);
	test_transfer_init_at(t, blocks_per_chunk, groups, group_count, key_seed,
			      s->shadow + s->used, bytes, s->memory + s->used);
	s->used += bytes;
}

CUdeviceptr cuda_scene_ptr(const struct cuda_scene *s, const struct test_transfer *t)
{
	return s->memory + (CUdeviceptr)(t->memory - s->shadow);
}

void cuda_scene_push(struct cuda_scene *s, const struct test_transfer *t)
{
	CU(cuMemcpyHtoD(cuda_scene_ptr(s, t), t->memory, t->memory_bytes));
}

void cuda_scene_pull(struct cuda_scene *s, const struct test_transfer *t)
{
	CU(cuMemcpyDtoH(t->memory, cuda_scene_ptr(s, t), t->memory_bytes));
}

void cuda_scene_store(struct cuda_scene *s, struct test_transfer *t, uint32_t status)
{
	uint64_t id = s->bed.next_id++;

	test_transfer_poison(t);
	test_transfer_fill(t);
	cuda_scene_push(s, t);
	assert_ok(kvt_worker_submit_store(s->bed.worker, id, &t->transfer, NULL));
	assert_result(status, test_take(s->bed.worker, id));
}

void cuda_scene_load(struct cuda_scene *s, struct test_transfer *t, uint32_t status)
{
	uint64_t id = s->bed.next_id++;

	test_transfer_poison(t);
	cuda_scene_push(s, t);
	assert_ok(kvt_worker_submit_load(s->bed.worker, id, &t->transfer, NULL));
	assert_result(status, test_take(s->bed.worker, id));
	cuda_scene_pull(s, t);
	if (status == KVT_STATUS_LOADED)
		test_transfer_check(t);
}

/* ---- The caller's stream ---- */

static void CUDA_CB pass_gate(void *gate)
{
	test_gate_pass(gate);
}

void cuda_producer_start(struct cuda_producer *p, struct cuda_scene *s, struct test_transfer *t,
			 CUstream stream)
{
	memset(p, 0, sizeof(*p));
	test_gate_init(&p->gate, false);
	CU(cuMemHostAlloc(&p->pinned, t->memory_bytes, CU_MEMHOSTALLOC_PORTABLE));
	test_transfer_poison(t);
	cuda_scene_push(s, t);
	test_transfer_fill(t);
	memcpy(p->pinned, t->memory, t->memory_bytes);
	p->stream = stream;
	if (!stream) {
		CU(cuStreamCreateWithPriority(&p->stream, CU_STREAM_NON_BLOCKING, 0));
		p->stream_made = true;
	}
	CU(cuEventCreate(&p->event, CU_EVENT_DISABLE_TIMING));
	if (cuda->cuStreamWaitValue32) {
		CU(cuMemHostAlloc((void **)&p->word, sizeof(*p->word), CU_MEMHOSTALLOC_DEVICEMAP));
		*(volatile cuuint32_t *)p->word = 0;
		CU(cuStreamWaitValue32(p->stream, (CUdeviceptr)(uintptr_t)p->word, 1,
				       CU_STREAM_WAIT_VALUE_GEQ));
	} else {
		CU(cuLaunchHostFunc(p->stream, pass_gate, &p->gate));
	}
	CU(cuMemcpyHtoDAsync(cuda_scene_ptr(s, t), p->pinned, t->memory_bytes, p->stream));
	CU(cuEventRecord(p->event, p->stream));
}

void cuda_producer_release(struct cuda_producer *p)
{
	if (p->word)
		__atomic_store_n(p->word, 1, __ATOMIC_SEQ_CST);
	else
		test_gate_open(&p->gate);
}

void cuda_producer_end(struct cuda_producer *p)
{
	CU(cuStreamSynchronize(p->stream));
	CU(cuEventDestroy(p->event));
	if (p->stream_made)
		CU(cuStreamDestroy(p->stream));
	if (p->word)
		CU(cuMemFreeHost(p->word));
	CU(cuMemFreeHost(p->pinned));
	test_gate_fini(&p->gate);
}
