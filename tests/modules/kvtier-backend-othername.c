/* SPDX-License-Identifier: Apache-2.0 */
/* A module that brings another backend than its file name says. */
#include "tiny.h"

static const struct kvt_backend_ops ops = TINY_OPS("another", NULL);

const struct kvt_backend_ops *kvt_backend_entry(const struct kvt_host *host)
{
	(void)host;
	return &ops;
}
