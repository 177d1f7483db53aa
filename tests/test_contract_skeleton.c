/* SPDX-License-Identifier: Apache-2.0 */
/* The skeleton keeps the contract, loaded as the module that it is, alone and in the wrapper. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "contract.h"

extern const struct kvt_backend_ops kvt__fault_backend_ops;

static kvt_backend_entry_fn load(const char *path)
{
	void *module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	void *symbol = module ? dlsym(module, KVT_BACKEND_ENTRY) : NULL;
	kvt_backend_entry_fn entry;

	if (!symbol)
		fprintf(stderr, "%s\n", dlerror());
	memcpy(&entry, &symbol, sizeof(entry));
	return entry;
}

static const struct kvt_backend_ops *skeleton_ops;

static int open_skeleton(struct testbackend *tb, struct testhost *th, const char *location,
			 const char *most_objects)
{
	const struct kvt_option_value option = {"max_objects", most_objects};

	testhost_init(th);
	return testbackend_open(tb, th,
				&(struct testbackend_options){.ops = skeleton_ops,
							      .location = location,
							      .options = &option,
							      .option_count = 1});
}

static void its_option_limits_how_many_objects_there_are(void **state)
{
	struct testhost th;
	struct testbackend tb;
	struct testsession ts;
	struct testio t = {.io = {.op = KVT_IO_PUT, .name = "c"}};

	(void)state;
	assert_int_equal(open_skeleton(&tb, &th, "", "2"), 0);
	assert_int_equal(testsession_open(&ts, &tb, 1, 0), 0);
	assert_int_equal(testsession_put(&ts, "a", "x", 1, 0, NULL, NULL), 0);
	assert_int_equal(testsession_put(&ts, "b", "x", 1, 0, NULL, NULL), 0);
	assert_int_equal(testsession_put(&ts, "b", "y", 1, 0, NULL, NULL), 0);
	assert_int_equal(testsession_run(&ts, &t), KVT_ENOSPC);
	assert_string_equal(t.detail, "put c: 2 objects are there, max_objects allows no more");
	assert_int_equal(testsession_remove(&ts, "a", NULL), 0);
	assert_int_equal(testsession_put(&ts, "c", "x", 1, 0, NULL, NULL), 0);
	testsession_close(&ts);
	testbackend_close(&tb);
	assert_int_equal(atomic_load(&th.live), 0);
}

static void a_location_or_number_that_makes_no_sense_is_refused(void **state)
{
	struct testhost th;
	struct testbackend tb;

	(void)state;
	assert_int_equal(open_skeleton(&tb, &th, "x", "2"), KVT_EINVAL);
	assert_string_equal(testhost_failure(), "skeleton:x: expected nothing behind the colon");
	assert_int_equal(open_skeleton(&tb, &th, "", "-2"), KVT_EINVAL);
	assert_string_equal(testhost_failure(),
			    "skeleton: option max_objects: '-2', expected a number");
	assert_int_equal(atomic_load(&th.live), 0);
}

int main(void)
{
	static const struct CMUnitTest cases[] = {
		cmocka_unit_test(its_option_limits_how_many_objects_there_are),
		cmocka_unit_test(a_location_or_number_that_makes_no_sense_is_refused),
	};

	kvt_backend_entry_fn entry = load(KVT_TEST_MODULE_DIR "/kvtier-backend-skeleton.so");
	struct contract_backend b = {.name = "skeleton",
				     .capabilities = KVT_CAP_IF_ABSENT | KVT_CAP_IF_VERSION_PUT |
						     KVT_CAP_IF_VERSION_GET |
						     KVT_CAP_IF_VERSION_REMOVE | KVT_CAP_TOUCH};
	struct testhost th;
	int failures;

	testhost_init(&th);
	if (!entry || !(b.ops = entry(&th.host)))
		return 1;
	th.host.abi = KVT_BACKEND_ABI + 1;
	if (entry(&th.host)) {
		fprintf(stderr, "a module took a host of another ABI\n");
		return 1;
	}
	skeleton_ops = b.ops;
	failures = cmocka_run_group_tests_name("skeleton's own", cases, NULL, NULL);
	failures += contract_run(&b);
	b.name = "fault+skeleton";
	b.inner = b.ops;
	b.ops = &kvt__fault_backend_ops;
	return failures + contract_run(&b);
}
