/* SPDX-License-Identifier: Apache-2.0 */
/* A module whose table is of another ABI. */
#include "tiny.h"

static struct kvt_backend_ops ops = TINY_OPS("oldabi", NULL);

const struct kvt_backend_ops *kvt_backend_entry(const struct kvt_host *host)
{
	(void)host;
	ops.abi = 99;
	return &ops;
}
