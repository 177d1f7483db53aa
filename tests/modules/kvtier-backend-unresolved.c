/* SPDX-License-Identifier: Apache-2.0 */
/* A module that needs a symbol that nobody has. */
#include "tiny.h"

static const struct kvt_backend_ops ops = TINY_OPS("unresolved", NULL);

extern int kvt_test_symbol_that_nobody_has(void);

const struct kvt_backend_ops *kvt_backend_entry(const struct kvt_host *host)
{
	(void)host;
	return kvt_test_symbol_that_nobody_has() ? &ops : NULL;
}
