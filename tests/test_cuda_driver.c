/* SPDX-License-Identifier: Apache-2.0 */
/* Finding the CUDA driver and its devices: what is missing or too old is named, and nothing is kept
 * of a try that failed. */
#include "cuda_scene.h"

#include <stdlib.h>
#include <string.h>

#include "../backends/cuda/driver.h"

static void open_fails(const char *text)
{
	struct kvt_device *device = (void *)1;

	assert_fails(KVT_EDEVICE, text, cuda_device_open(0, &device));
	assert_null(device);
	assert_int_equal(cuda_fake->counts().retained, 0);
}

static void a_driver_that_is_too_old_is_refused(void **state)
{
	(void)state;
	cuda_fake->set_version(11080);
	open_fails("11.8");
	open_fails("12.0");
	cuda_fake->reset();
}

static void every_missing_entry_point_is_named(void **state)
{
#define NAME(name, version) #name,
	static const char *const names[] = {KVT__CUDA_REQUIRED(NAME)};
#undef NAME

	(void)state;
	for (size_t i = 0; i < TEST_COUNT(names); i++) {
		cuda_fake->set_without(names[i]);
		open_fails(names[i]);
	}
	cuda_fake->reset();
}

static void every_call_of_the_first_opening_may_fail(void **state)
{
	struct kvt_device *device;

	(void)state;
	for (unsigned nth = 1;; nth++) {
		cuda_fake->fail_call(NULL, nth, 1, CUDA_ERROR_NOT_SUPPORTED);
		int error = cuda_device_open(0, &device);
		unsigned failed = cuda_fake->faults();
		cuda_fake->fail_call(NULL, 0, 0, CUDA_SUCCESS);
		if (error == 0) {
			/* What does not need to work may fail, above all what is optional. */
			assert_ok(kvt_device_close(device));
		} else {
			assert_int_equal(error, KVT_EDEVICE);
			assert_null(device);
		}
		assert_int_equal(cuda_fake->counts().retained, 0);
		assert_int_equal(cuda_fake->counts().events, 0);
		assert_int_equal(cuda_fake->stack_depth(), 0);
		if (!failed)
			break;
		assert_true(nth < 1000);
	}
	assert_null(cuda_fake->violation());
}

static void a_machine_without_devices_is_refused(void **state)
{
	(void)state;
	cuda_fake->set_devices(0);
	open_fails("");
	cuda_fake->reset();
}

static void an_ordinal_that_is_none_is_refused(void **state)
{
	struct kvt_device *device;

	(void)state;
	assert_fails(KVT_EINVAL, "ordinal: 2", cuda_device_open(2, &device));
	assert_null(device);
	assert_fails(KVT_EINVAL, "ordinal", cuda_device_open(UINT32_MAX, &device));
	assert_int_equal(cuda_fake->counts().retained, 0);
}

static void both_devices_open_and_close(void **state)
{
	struct kvt_device *device[2];
	CUcontext context;

	(void)state;
	for (uint32_t i = 0; i < 2; i++)
		assert_ok(cuda_device_open(i, &device[i]));
	CU(cuCtxGetCurrent(&context));
	assert_null(context);
	for (uint32_t i = 0; i < 2; i++)
		assert_ok(kvt_device_close(device[i]));
	assert_int_equal(cuda_fake->counts().retained, 0);
	assert_null(cuda_fake->violation());
}

/* ---- Probe ---- */

struct lines {
	char *text;
	unsigned count, errors;
};

static void take_line(void *context, const char *name, const char *value, int error)
{
	struct lines *lines = context;
	char *old = lines->text;

	lines->text = test_format("%s%s=%s\n", old ? old : "", name, value ? value : "");
	free(old);
	lines->count++;
	lines->errors += error != 0;
}

static int probe(uint32_t ordinal, struct lines *lines)
{
	struct kvt_device_options options = KVT_INIT(options);

	memset(lines, 0, sizeof(*lines));
	options.name = "cuda";
	options.ordinal = ordinal;
	return kvt_device_probe(&options, take_line, lines);
}

static void probe_tells_what_there_is(void **state)
{
	struct lines lines;

	(void)state;
	assert_ok(probe(0, &lines));
	assert_non_null(lines.text);
	assert_int_equal(lines.errors, 0);
	assert_non_null(strstr(lines.text, "fake GPU 0"));
	assert_non_null(strstr(lines.text, "fake GPU 1"));
	assert_non_null(strstr(lines.text, "2 copy engines"));
	assert_non_null(strstr(lines.text, "MiB"));
	assert_non_null(strstr(lines.text, "13.0"));
	free(lines.text);
	assert_int_equal(cuda_fake->counts().retained, 0);
	assert_int_equal(cuda_fake->counts().streams, 0);
	assert_int_equal(cuda_fake->counts().host_allocations, 0);
	assert_null(cuda_fake->violation());
}

static void probe_tells_what_is_missing(void **state)
{
	struct lines lines;

	(void)state;
	assert_returns(KVT_EINVAL, probe(7, &lines));
	assert_true(lines.errors > 0);
	free(lines.text);
	cuda_fake->limit_pinned(4096, 0);
	assert_true(probe(0, &lines) < 0);
	assert_true(lines.errors > 0);
	free(lines.text);
	cuda_fake->reset();
	assert_int_equal(cuda_fake->counts().retained, 0);
}

static void every_call_of_a_probe_may_fail(void **state)
{
	(void)state;
	for (unsigned nth = 1;; nth++) {
		struct lines lines;
		cuda_fake->fail_call(NULL, nth, 1, CUDA_ERROR_INVALID_VALUE);
		(void)probe(1, &lines);
		unsigned failed = cuda_fake->faults();
		cuda_fake->fail_call(NULL, 0, 0, CUDA_SUCCESS);
		free(lines.text);
		assert_int_equal(cuda_fake->counts().retained, 0);
		assert_int_equal(cuda_fake->counts().streams, 0);
		assert_int_equal(cuda_fake->counts().events, 0);
		assert_int_equal(cuda_fake->counts().host_allocations, 0);
		assert_int_equal(cuda_fake->counts().registrations, 0);
		assert_int_equal(cuda_fake->stack_depth(), 0);
		if (!failed)
			break;
		assert_true(nth < 1000);
	}
	assert_null(cuda_fake->violation());
}

int main(void)
{
	/* A driver that has been loaded once stays: first what fails. */
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_driver_that_is_too_old_is_refused),
		cmocka_unit_test(every_missing_entry_point_is_named),
		cmocka_unit_test(a_machine_without_devices_is_refused),
		cmocka_unit_test(every_call_of_the_first_opening_may_fail),
		cmocka_unit_test(an_ordinal_that_is_none_is_refused),
		cmocka_unit_test(both_devices_open_and_close),
		cmocka_unit_test(probe_tells_what_there_is),
		cmocka_unit_test(probe_tells_what_is_missing),
		cmocka_unit_test(every_call_of_a_probe_may_fail),
	};
	int skipped = cuda_scene_start(true);

	return skipped ? skipped : cmocka_run_group_tests_name("cuda_driver", tests, NULL, NULL);
}
