/* SPDX-License-Identifier: Apache-2.0 */
/* A module with a function whose name a library of the program has too: it shows whose it finds. */
#include "shared_name.h"
#include "tiny.h"

const char *kvt_test_shared_name(void)
{
	return "of the module";
}

static int apart_open(const struct kvt_host *host, const struct kvt_backend_config *config,
		      void **backendp, struct kvt_backend_limits *limits)
{
	/* By its address, so that no compiler takes it for granted whose it is. */
	const char *(*volatile find)(void) = kvt_test_shared_name;
	const char *found = find();
	uint32_t at = 0;

	(void)host;
	(void)config;
	*backendp = limits;
	for (; found[at]; at++)
		limits->detail[at] = found[at];
	limits->detail[at] = '\0';
	return 0;
}

static const struct kvt_backend_ops ops = {
	.struct_size = sizeof(struct kvt_backend_ops),
	.abi = KVT_BACKEND_ABI,
	.name = "apart",
	.open = apart_open,
	.close = tiny_close,
	.session_open = tiny_session_open,
	.session_close = tiny_session_close,
	.submit = tiny_submit,
};

const struct kvt_backend_ops *kvt_backend_entry(const struct kvt_host *host)
{
	return host->abi == KVT_BACKEND_ABI ? &ops : NULL;
}
