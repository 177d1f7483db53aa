/* SPDX-License-Identifier: Apache-2.0 */
/* The file backend keeps the contract with O_DIRECT data in a ring, each file synchronized. */
#include <stdio.h>

#include "contract.h"

extern const struct kvt_backend_ops kvt__file_backend_ops;

int main(void)
{
	static const struct kvt_option_value options[] = {
		{"engine", "uring"}, {"direct", "on"}, {"fsync", "full"}};
	const struct contract_backend backend = {
		.name = "file engine=uring direct=on fsync=full",
		.ops = &kvt__file_backend_ops,
		.options = options,
		.option_count = 3,
		.capabilities =
			KVT_CAP_IF_ABSENT | KVT_CAP_HOLES | KVT_CAP_RAW_FILES | KVT_CAP_TOUCH,
		.make_location = contract_directory_make,
		.remove_location = contract_directory_remove,
	};
	struct testhost th;
	struct testbackend tb;
	char location[512];
	int result;

	testhost_init(&th);
	if (contract_directory_make(location, sizeof(location)))
		return 1;
	result = testbackend_open(&tb, &th,
				  &(struct testbackend_options){.ops = &kvt__file_backend_ops,
								.location = location,
								.options = options,
								.option_count = 3});
	if (!result)
		testbackend_close(&tb);
	contract_directory_remove(location);
	if (result == KVT_ECONFIG) {
		printf("skipped: %s\n", testhost_failure());
		return 77;
	}
	return contract_run(&backend);
}
