/* SPDX-License-Identifier: Apache-2.0 */
/* The mem backend keeps the contract, answering at once, later, and busy. */
#include "contract.h"

extern const struct kvt_backend_ops kvt__mem_backend_ops;

#define MEM_CAPABILITIES                                                                           \
	(KVT_CAP_IF_ABSENT | KVT_CAP_IF_VERSION_PUT | KVT_CAP_IF_VERSION_GET |                     \
	 KVT_CAP_IF_VERSION_REMOVE | KVT_CAP_HOLES | KVT_CAP_RAW_FILES | KVT_CAP_TOUCH |           \
	 KVT_CAP_GET_DISCARD)

int main(void)
{
	static const struct kvt_option_value later[] = {{"async", "1"}};
	static const struct kvt_option_value busy[] = {{"depth_busy", "3"}};
	struct contract_backend mem = {
		.name = "mem", .ops = &kvt__mem_backend_ops, .capabilities = MEM_CAPABILITIES};
	struct contract_backend mem_later = mem, mem_busy = mem;

	mem_later.name = "mem async=1";
	mem_later.options = later;
	mem_later.option_count = 1;
	mem_busy.name = "mem depth_busy=3";
	mem_busy.options = busy;
	mem_busy.option_count = 1;
	return contract_run(&mem) + contract_run(&mem_later) + contract_run(&mem_busy);
}
