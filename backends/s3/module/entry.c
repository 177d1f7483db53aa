/* SPDX-License-Identifier: Apache-2.0 */
/* What the core looks for in a loadable module; only in builds that have this backend as one. */
#include <kvtier/backend.h>

extern const struct kvt_backend_ops kvt__s3_backend_ops;

KVT_API const struct kvt_backend_ops *kvt_backend_entry(const struct kvt_host *host);

const struct kvt_backend_ops *kvt_backend_entry(const struct kvt_host *host)
{
	return host->abi == KVT_BACKEND_ABI ? &kvt__s3_backend_ops : NULL;
}
