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

int main(void)
{
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
	failures = contract_run(&b);
	b.name = "fault+skeleton";
	b.inner = b.ops;
	b.ops = &kvt__fault_backend_ops;
	return failures + contract_run(&b);
}
