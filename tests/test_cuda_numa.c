/* SPDX-License-Identifier: Apache-2.0 */
/* Where a GPU is among the nodes of memory, and allocating near it without a trace left on the
 * thread. */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "support.h"

#include "../backends/cuda/cuda_device.h"

#define PREFERRED 1 /* of linux/mempolicy.h */
#define MAX_NODES 1024

static void what_is_no_device_has_no_node(void **state)
{
	static const char *const ids[] = {"", "0000:zz:00.0", "ffff:ff:1f.7", "../../..",
					  "0000:00:00.0 and much more than an address can be"};

	(void)state;
	for (size_t i = 0; i < TEST_COUNT(ids); i++)
		assert_int_equal(kvt__cuda_node_of(ids[i]), -1);
}

/* CUDA writes addresses with capital letters, the kernel does not. */
static void the_node_of_a_device_is_the_kernels(void **state)
{
	DIR *directory = opendir("/sys/bus/pci/devices");
	struct dirent *entry;

	(void)state;
	if (!directory) {
		print_message("skipped: no PCI devices here\n");
		skip();
	}
	while ((entry = readdir(directory))) {
		char id[64];
		size_t bytes = 0;
		if (entry->d_name[0] == '.' || strlen(entry->d_name) >= sizeof(id))
			continue;
		char *path = test_format("/sys/bus/pci/devices/%s/numa_node", entry->d_name);
		uint8_t *text = test_read_file(path, &bytes);
		free(path);
		if (!text)
			continue;
		char *line = test_format("%.*s", (int)bytes, (char *)text);
		int node = (int)strtol(line, NULL, 10);
		for (size_t i = 0; i <= strlen(entry->d_name); i++)
			id[i] = (char)toupper((unsigned char)entry->d_name[i]);
		assert_int_equal(kvt__cuda_node_of(id), node < 0 ? -1 : node);
		free(line);
		free(text);
	}
	closedir(directory);
}

static long policy_of_thread(int *mode, unsigned long *nodes)
{
	return syscall(SYS_get_mempolicy, mode, nodes, MAX_NODES, NULL, 0);
}

static void the_policy_of_the_thread_comes_back(void **state)
{
	unsigned long before[MAX_NODES / 64] = {0}, during[MAX_NODES / 64] = {0},
					 after[MAX_NODES / 64] = {0};
	int mode_before = -1, mode_during = -1, mode_after = -1;
	struct kvt__cuda_policy policy;

	(void)state;
	if (policy_of_thread(&mode_before, before) != 0) {
		print_message("skipped: get_mempolicy: %s\n", strerror(errno));
		skip();
	}
	kvt__cuda_prefer_node(0, &policy);
	assert_int_equal(policy_of_thread(&mode_during, during), 0);
	if (policy.changed) {
		assert_int_equal(mode_during, PREFERRED);
		assert_int_equal(during[0], 1);
	}
	kvt__cuda_restore_policy(&policy);
	assert_int_equal(policy_of_thread(&mode_after, after), 0);
	assert_int_equal(mode_after, mode_before);
	assert_memory_equal(after, before, sizeof(after));
	/* Nor is anything left of an unknown node, and of one that is not there. */
	for (int node = -1; node < MAX_NODES; node += MAX_NODES) {
		kvt__cuda_prefer_node(node, &policy);
		assert_false(node < 0 && policy.changed);
		kvt__cuda_restore_policy(&policy);
		assert_int_equal(policy_of_thread(&mode_after, after), 0);
		assert_int_equal(mode_after, mode_before);
	}
}

static void bound_memory_is_memory(void **state)
{
	const size_t bytes = 1 << 20;

	(void)state;
	for (int node = -1; node <= 1; node++) {
		uint8_t *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
				       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		assert_true(memory != MAP_FAILED);
		kvt__cuda_bind(memory, bytes, node);
		test_fill(memory, bytes, 7);
		assert_true(test_is_filled(memory, bytes, 7));
		munmap(memory, bytes);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_no_device_has_no_node),
		cmocka_unit_test(the_node_of_a_device_is_the_kernels),
		cmocka_unit_test(the_policy_of_the_thread_comes_back),
		cmocka_unit_test(bound_memory_is_memory),
	};
	return cmocka_run_group_tests_name("cuda_numa", tests, NULL, NULL);
}
