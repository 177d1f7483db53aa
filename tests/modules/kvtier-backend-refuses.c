/* SPDX-License-Identifier: Apache-2.0 */
/* A module that cannot work with this core. */
#include "tiny.h"

const struct kvt_backend_ops *kvt_backend_entry(const struct kvt_host *host)
{
	(void)host;
	return NULL;
}
