/* SPDX-License-Identifier: Apache-2.0 */
/* A shared object that is no module. */
#include <kvtier/export.h>

KVT_API int kvt_test_nothing(void);

int kvt_test_nothing(void)
{
	return 0;
}
