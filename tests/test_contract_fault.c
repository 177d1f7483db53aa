/* SPDX-License-Identifier: Apache-2.0 */
/* The fault wrapper keeps the contract while no rule acts, over backends that answer at once, later
 * and busy, and also while every call is delayed. */
#include "contract.h"

extern const struct kvt_backend_ops kvt__mem_backend_ops, kvt__fault_backend_ops;

int main(void)
{
	static const struct kvt_option_value later[] = {{"async", "1"}};
	static const struct kvt_option_value busy[] = {{"depth_busy", "3"}};
	static const struct kvt_option_value idle[] = {{"fail", "any:1000000000"}};
	static const struct kvt_option_value delays[] = {{"delay", "any:0-1"}};
	struct contract_backend b = {.name = "fault+mem",
				     .ops = &kvt__fault_backend_ops,
				     .inner = &kvt__mem_backend_ops,
				     .options = idle,
				     .option_count = 1,
				     .capabilities = KVT_CAP_IF_ABSENT | KVT_CAP_IF_VERSION_PUT |
						     KVT_CAP_TOUCH};
	int failures = contract_run(&b);

	b.inner_option_count = 1;
	b.name = "fault+mem async=1";
	b.inner_options = later;
	failures += contract_run(&b);
	b.name = "fault+mem depth_busy=3";
	b.inner_options = busy;
	failures += contract_run(&b);
	b.name = "fault+mem depth_busy=3 delay=any:0-1";
	b.options = delays;
	return failures + contract_run(&b);
}
