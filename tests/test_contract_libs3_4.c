/* SPDX-License-Identifier: Apache-2.0 */
/* The module keeps the contract with the interface of libs3 4.1, with its multipart uploads, on a
 * libs3 that keeps all in memory. */
#include "contract.h"
#include "libs3_scene.h"

#include <stdio.h>

static int make_location(char *location, size_t bytes)
{
	static unsigned number;
	int n = snprintf(location, bytes, "//bucket/run/%u", number++);

	return n < 0 || (size_t)n >= bytes ? -1 : 0;
}

int main(void)
{
	static const struct kvt_option_value options[] = {{"endpoint", "http://127.0.0.1:9"},
							  {"access_key", "key"},
							  {"secret_key", "secret"},
							  {"region", "mars-1"}};

	libs3_clear_environment();
	libs3_ops = libs3_load(LIBS3_IN_MEMORY);
	if (!libs3_ops)
		return 1;
	return contract_run(&(struct contract_backend){
		.name = "s3+libs3 of 4.1",
		.ops = libs3_ops,
		.options = options,
		.option_count = TEST_COUNT(options),
		.capabilities = KVT_CAP_IF_VERSION_GET | KVT_CAP_GET_DISCARD,
		.make_location = make_location,
	});
}
