/* SPDX-License-Identifier: Apache-2.0 */
/* No module: a library whose names everybody in the program sees. */
#include "shared_name.h"

const char *kvt_test_shared_name(void)
{
	return "of the program";
}
