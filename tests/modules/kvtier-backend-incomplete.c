/* SPDX-License-Identifier: Apache-2.0 */
/* A module whose table lacks a required member. */
#include "tiny.h"

static struct kvt_backend_ops ops = TINY_OPS("incomplete", NULL);

const struct kvt_backend_ops *kvt_backend_entry(const struct kvt_host *host)
{
	(void)host;
	ops.submit = NULL;
	return &ops;
}
