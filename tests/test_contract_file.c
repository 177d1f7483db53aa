/* SPDX-License-Identifier: Apache-2.0 */
/* The file backend keeps the contract with the engine that it picks itself. */
#include "contract.h"

extern const struct kvt_backend_ops kvt__file_backend_ops;

int main(void)
{
	static const struct kvt_option_value options[] = {{"engine", "auto"}};

	return contract_run(&(struct contract_backend){
		.name = "file engine=auto",
		.ops = &kvt__file_backend_ops,
		.options = options,
		.option_count = 1,
		.capabilities =
			KVT_CAP_IF_ABSENT | KVT_CAP_HOLES | KVT_CAP_RAW_FILES | KVT_CAP_TOUCH,
		.make_location = contract_directory_make,
		.remove_location = contract_directory_remove,
	});
}
