/* SPDX-License-Identifier: Apache-2.0 */
/* A module whose scheme has a plus in it. */
#include "tiny.h"

static const struct kvt_option_spec specs[] = TINY_OPTIONS;
static const struct kvt_backend_ops ops = TINY_OPS("s3+tiny", specs);

const struct kvt_backend_ops *kvt_backend_entry(const struct kvt_host *host)
{
	return host->abi == KVT_BACKEND_ABI ? &ops : NULL;
}
