/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A CUDA driver for tests on machines without a GPU: a shared object named libcuda.so.1, found by
 * the same dlopen as the real one (LD_LIBRARY_PATH). Device memory is host memory behind addresses
 * that fault when the CPU touches them; every stream is a thread; host memory that is not pinned,
 * pointers beyond their allocation and calls out of host functions are refused or noted as
 * violations. A test takes the controls below through fake_cuda_control(); a library without that
 * symbol is a real driver.
 *
 * Environment, read when the library is loaded: FAKE_CUDA_VERSION (13000), FAKE_CUDA_DEVICES (2),
 * FAKE_CUDA_WITHOUT (entry points that are missing, with commas between).
 *
 * An injected failure of a call that releases something is reported, but the thing is released, as
 * the driver does when it reports what went wrong earlier.
 */
#ifndef KVT_TESTS_FAKE_CUDA_H
#define KVT_TESTS_FAKE_CUDA_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum fake_cuda_direction { FAKE_CUDA_TO_HOST = 1, FAKE_CUDA_TO_DEVICE = 2 };

/* What there is right now, over all devices, and what happened since the reset. */
struct fake_cuda_counts {
	unsigned retained;	  /* primary contexts, counted as often as retained */
	unsigned streams, events; /* default streams left out */
	unsigned device_allocations, host_allocations, registrations;
	uint64_t pinned_bytes;
	unsigned pending; /* operations of streams that are not finished */
	unsigned calls;	  /* of entry points */
	unsigned batch_calls, single_copy_calls;
	uint64_t fragments; /* copies that streams have done */
	unsigned host_functions;
	unsigned stream_waits;
	unsigned attribute_calls;  /* cuPointerGetAttributes and cuPointerGetAttribute */
	unsigned faults;	   /* injected failures that have happened */
	unsigned blocking_streams; /* created without CU_STREAM_NON_BLOCKING, since the reset */
};

struct fake_cuda {
	/* Driver as new: nothing held, no faults, no limits, all counts that count events 0, the
	 * version and entry points of the environment, two devices without errors. What leaked
	 * stays. */
	void (*reset)(void);
	void (*set_version)(int version);
	void (*set_devices)(int count);
	/* Names with commas between; NULL or "": none. */
	void (*set_without)(const char *names);
	/* All pinned memory together, and one call of cuMemHostAlloc or cuMemHostRegister; 0: no
	 * limit. */
	void (*limit_pinned)(uint64_t total_bytes, uint64_t call_bytes);

	/* Copies of these directions (a mask) stop before they begin, until released. */
	void (*hold)(unsigned directions);
	/* Lets `count` operations happen while the others stay held. */
	void (*step)(unsigned count);
	void (*release)(void);
	/* Waits until `count` copy operations wait at the hold; false after a minute. */
	bool (*await_held)(unsigned count);
	/* Every copy takes up to so long, drawn anew each time. */
	void (*delay)(unsigned microseconds);

	/* Calls are counted from 1 here. The nth from now on fails, and the `times - 1` after it;
	 * times 0: all after it. name NULL: any entry point, else only calls of that one. nth 0:
	 * none any more. A failure with a code that CUDA calls sticky takes its context with it. */
	void (*fail_call)(const char *name, unsigned nth, unsigned times, CUresult result);
	/* The nth copy operation from now on takes its context down with this code. */
	void (*fail_copy)(unsigned nth, CUresult result);
	/* The context of a device is lost now. What belonged to it may be left behind. */
	void (*lose_context)(int ordinal, CUresult result);
	/* How often calls have failed by fail_call since it was set; what the last was. */
	unsigned (*faults)(void);
	const char *(*last_fault)(void);

	/* Whether a stream that the test has made is being captured. */
	void (*set_capturing)(CUstream stream, bool capturing);
	/* Device memory of the current context at addresses in a row: mapped piece by piece, or
	 * allocations that lie beside each other. piece_bytes is a multiple of 4,096; each piece
	 * goes by cuMemFree. 0 when there is none. */
	CUdeviceptr (*map_pieces)(size_t piece_bytes, unsigned count, bool joined);
	/* Where the test sees device memory; NULL for what is none. */
	void *(*view)(CUdeviceptr ptr);
	/* Whether an operation that is not finished reads or writes this memory. */
	bool (*touches)(CUdeviceptr ptr, size_t bytes);
	/* How many of the contexts of this thread lie on its stack. */
	unsigned (*stack_depth)(void);
	bool (*is_lost)(int ordinal);
	/* The first breach of the driver's rules, NULL when all were kept. Cleared by reset. */
	const char *(*violation)(void);
	struct fake_cuda_counts (*counts)(void);
	/* Waits until no operation is pending on any stream; false after a minute. */
	bool (*idle)(void);
};

typedef const struct fake_cuda *(*fake_cuda_control_fn)(void);
const struct fake_cuda *fake_cuda_control(void);

#endif
