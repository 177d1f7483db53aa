/* SPDX-License-Identifier: Apache-2.0 */
/* Registering backends and devices of the calling program, and finding them again. */
#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device.h"
#include "registry.h"

static int any_open(const struct kvt_host *host, const struct kvt_backend_config *config,
		    void **backendp, struct kvt_backend_limits *limits)
{
	(void)host;
	(void)config;
	*backendp = limits;
	return 0;
}

static void any_close(void *backend)
{
	(void)backend;
}

static int any_session_open(void *backend, uint32_t depth, int listing, void **sessionp)
{
	(void)depth;
	(void)listing;
	*sessionp = backend;
	return 0;
}

static int any_submit(void *session, struct kvt_io *io)
{
	(void)session;
	io->result = KVT_ENOENT;
	return KVT_DONE;
}

static int any_poll(void *session, int64_t until_ns)
{
	(void)session;
	(void)until_ns;
	return 0;
}

static const struct kvt_backend_ops complete = {
	.struct_size = sizeof(struct kvt_backend_ops),
	.abi = KVT_BACKEND_ABI,
	.name = "complete",
	.open = any_open,
	.close = any_close,
	.session_open = any_session_open,
	.session_close = any_close,
	.submit = any_submit,
};

static void a_table_without_a_required_member_is_refused_by_its_name(void **state)
{
	static const struct kvt_option_spec nameless[] = {{"", NULL, "help"}, {NULL, NULL, NULL}};
	static const struct kvt_option_spec helpless[] = {{"size", NULL, NULL}, {NULL, NULL, NULL}};
	static const struct kvt_option_spec twice[] = {
		{"size", NULL, "a"}, {"age", NULL, "b"}, {"size", NULL, "c"}, {NULL, NULL, NULL}};
	struct kvt_backend_ops ops;

	(void)state;
#define REFUSED(change, text)                                                                      \
	do {                                                                                       \
		ops = complete;                                                                    \
		change;                                                                            \
		assert_fails(KVT_EINVAL, text, kvt_backend_register(&ops));                        \
		assert_non_null(strstr(kvt_error_detail(), "kvt_backend_register"));               \
	} while (0)
	assert_fails(KVT_EINVAL, "ops: NULL", kvt_backend_register(NULL));
	REFUSED(ops.struct_size = 0, "struct_size: 0");
	REFUSED(ops.struct_size = 40, "struct_size: 40");
	REFUSED(ops.abi = KVT_BACKEND_ABI + 1, "abi: 2, expected 1");
	REFUSED(ops.abi = 0, "abi: 0, expected 1");
	REFUSED(ops.name = NULL, "name: NULL");
	REFUSED(ops.name = "", "name: \"\"");
	REFUSED(ops.name = "Upper", "name: \"Upper\"");
	REFUSED(ops.name = "a b", "name: \"a b\"");
	REFUSED(ops.name = "a_b", "name: \"a_b\"");
	REFUSED(ops.name = "+a", "name: \"+a\"");
	REFUSED(ops.name = "a+", "name: \"a+\"");
	REFUSED(ops.name = "a++b", "name: \"a++b\"");
	REFUSED(ops.name = "a123456789012345678901234567890123456789012345678901234567890123",
		"expected at most 63");
	REFUSED(ops.open = NULL, "open: NULL");
	REFUSED(ops.close = NULL, ": close: NULL");
	REFUSED(ops.session_open = NULL, "session_open: NULL");
	REFUSED(ops.session_close = NULL, "session_close: NULL");
	REFUSED(ops.submit = NULL, "submit: NULL");
	REFUSED(ops.poll = any_poll, "wake: NULL");
	REFUSED(ops.wake = any_close, "poll: NULL");
	REFUSED(ops.io_private_bytes = SIZE_MAX, "io_private_bytes");
	REFUSED(ops.option_specs = nameless, "option_specs[0]");
	REFUSED(ops.option_specs = helpless, "\"size\" without a help");
	REFUSED(ops.option_specs = twice, "option_specs[2]: \"size\" is there twice");
#undef REFUSED
}

static void a_registered_backend_is_found_and_its_name_is_taken(void **state)
{
	struct kvt_backend_ops ops = complete, found;
	char name[] = "firstone";
	struct kvt__env env;

	(void)state;
	assert_ok(kvt__env_init(&env, NULL));
	ops.name = name;
	assert_ok(kvt_backend_register(&ops));
	memset(name, 'x', sizeof(name) - 1); /* the table and its name are copies */
	memset(&ops, 0, sizeof(ops));
	assert_ok(kvt__backend_find(&env, "firstone", NULL, NULL, &found));
	assert_string_equal(found.name, "firstone");
	assert_ptr_equal(found.submit, any_submit);
	ops = complete;
	ops.name = "firstone";
	assert_fails(KVT_EEXIST, "firstone", kvt_backend_register(&ops));
	kvt__env_fini(&env);
}

static void the_names_of_what_is_built_in_are_taken(void **state)
{
	static const char *const names[] = {"file", "mem", "fault"};
	struct kvt_backend_ops ops = complete;

	(void)state;
	for (size_t i = 0; i < TEST_COUNT(names); i++) {
		assert_non_null(kvt__backend_get(names[i]));
		ops.name = names[i];
		assert_fails(KVT_EEXIST, names[i], kvt_backend_register(&ops));
	}
}

static void a_shorter_table_is_padded_with_zeros_and_a_longer_one_is_cut(void **state)
{
	struct {
		struct kvt_backend_ops ops;
		void *later[4];
	} longer = {.ops = complete};
	struct kvt_backend_ops shorter = complete;
	const struct kvt_backend_ops *found;

	(void)state;
	shorter.name = "shorter";
	shorter.forked = any_close;
	shorter.struct_size = offsetof(struct kvt_backend_ops, forked);
	assert_ok(kvt_backend_register(&shorter));
	found = kvt__backend_get("shorter");
	assert_non_null(found);
	assert_null(found->forked);
	assert_int_equal(found->struct_size, sizeof(*found));
	longer.ops.name = "longer";
	longer.ops.struct_size = sizeof(longer);
	longer.ops.forked = any_close;
	longer.later[1] = &longer;
	assert_ok(kvt_backend_register(&longer.ops));
	found = kvt__backend_get("longer");
	assert_ptr_equal(found->forked, any_close);
	assert_int_equal(found->struct_size, sizeof(*found));
}

static void an_unknown_scheme_names_the_known_ones_and_the_module_that_is_missing(void **state)
{
	struct kvt_backend_ops found;
	struct kvt__env env;

	(void)state;
	assert_ok(kvt__env_init(&env, NULL));
	assert_fails(KVT_EINVAL, "scheme \"tape\"",
		     kvt__backend_find(&env, "tape", "/nowhere", NULL, &found));
	assert_non_null(strstr(kvt_error_detail(), "mem"));
	assert_non_null(strstr(kvt_error_detail(), "file"));
	assert_non_null(strstr(kvt_error_detail(), "/nowhere/kvtier-backend-tape.so"));
	assert_fails(KVT_EINVAL, "kvtier-backend-tape.so",
		     kvt__backend_find(&env, "tape", NULL, NULL, &found));
	kvt__env_fini(&env);
}

#define THREADS 8

struct registrar {
	pthread_t thread;
	struct test_gate *gate;
	int answers[20];
};

static void *register_main(void *arg)
{
	struct registrar *r = arg;

	test_gate_pass(r->gate);
	for (size_t i = 0; i < TEST_COUNT(r->answers); i++) {
		char name[32];
		struct kvt_backend_ops ops = complete;

		(void)snprintf(name, sizeof(name), "race%zu", i);
		ops.name = name;
		r->answers[i] = kvt_backend_register(&ops);
		if (kvt__backend_get(name) == NULL)
			r->answers[i] = 1;
	}
	return NULL;
}

static void of_threads_that_register_one_name_exactly_one_succeeds(void **state)
{
	struct registrar registrars[THREADS];
	struct test_gate gate;

	(void)state;
	test_gate_init(&gate, false);
	for (int i = 0; i < THREADS; i++) {
		registrars[i].gate = &gate;
		assert_int_equal(
			pthread_create(&registrars[i].thread, NULL, register_main, &registrars[i]),
			0);
	}
	test_gate_open(&gate);
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_join(registrars[i].thread, NULL), 0);
	for (size_t n = 0; n < TEST_COUNT(registrars[0].answers); n++) {
		int succeeded = 0;

		for (int i = 0; i < THREADS; i++) {
			int answer = registrars[i].answers[n];

			assert_true(answer == 0 || answer == KVT_EEXIST);
			succeeded += answer == 0;
		}
		assert_int_equal(succeeded, 1);
	}
	test_gate_fini(&gate);
}

/* ---- Devices ---- */

static int any_check(void *lane, uint64_t ptr, uint64_t bytes, char *detail, size_t detail_bytes)
{
	(void)lane;
	(void)ptr;
	(void)bytes;
	(void)detail;
	(void)detail_bytes;
	return 0;
}

static void a_device_table_is_checked_like_a_backends(void **state)
{
	struct kvt_device_ops ops;
	struct kvt_device_options options = KVT_INIT(options);
	struct kvt_device *device;

	(void)state;
#define REFUSED(change, text)                                                                      \
	do {                                                                                       \
		ops = kvt__host_device_ops;                                                        \
		ops.name = "plain";                                                                \
		change;                                                                            \
		assert_fails(KVT_EINVAL, text, kvt_device_register(&ops));                         \
	} while (0)
	assert_fails(KVT_EINVAL, "ops: NULL", kvt_device_register(NULL));
	REFUSED(ops.struct_size = 8, "struct_size: 8");
	REFUSED(ops.abi = 7, "abi: 7, expected 1");
	REFUSED(ops.name = NULL, "name: NULL");
	REFUSED(ops.name = "no/device", "no/device");
	REFUSED(ops.open = NULL, "open: NULL");
	REFUSED(ops.close = NULL, ": close: NULL");
	REFUSED(ops.staging_alloc = NULL, "staging_alloc: NULL");
	REFUSED(ops.staging_free = NULL, "staging_free: NULL");
	REFUSED(ops.lane_open = NULL, "lane_open: NULL");
	REFUSED(ops.lane_close = NULL, "lane_close: NULL");
	REFUSED(ops.order = NULL, ": order: NULL");
	REFUSED(ops.order_cancel = NULL, "order_cancel: NULL");
	REFUSED(ops.copy = NULL, "copy: NULL");
	REFUSED(ops.poll = NULL, "poll: NULL");
	REFUSED(ops.capabilities = 0, "check: NULL");
#undef REFUSED
	ops = kvt__host_device_ops;
	assert_fails(KVT_EEXIST, "host", kvt_device_register(&ops));
	ops.name = "plain";
	ops.capabilities = 0;
	ops.check = any_check;
	assert_ok(kvt_device_register(&ops));
	assert_fails(KVT_EEXIST, "plain", kvt_device_register(&ops));
	options.name = "plain";
	assert_ok(kvt_device_open(&options, &device));
	assert_ptr_equal(device->ops.check, any_check);
	assert_ok(kvt_device_close(device));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_table_without_a_required_member_is_refused_by_its_name),
		cmocka_unit_test(a_registered_backend_is_found_and_its_name_is_taken),
		cmocka_unit_test(the_names_of_what_is_built_in_are_taken),
		cmocka_unit_test(a_shorter_table_is_padded_with_zeros_and_a_longer_one_is_cut),
		cmocka_unit_test(
			an_unknown_scheme_names_the_known_ones_and_the_module_that_is_missing),
		cmocka_unit_test(of_threads_that_register_one_name_exactly_one_succeeds),
		cmocka_unit_test(a_device_table_is_checked_like_a_backends),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
