/* SPDX-License-Identifier: Apache-2.0 */
/* The version of these headers, and of the library that is loaded. While the major version is 0,
 * each minor version has a SONAME of its own. */
#ifndef KVTIER_VERSION_H
#define KVTIER_VERSION_H

#include <kvtier/export.h>

#define KVT_VERSION_MAJOR  0
#define KVT_VERSION_MINOR  1
#define KVT_VERSION_PATCH  0
#define KVT_VERSION_STRING "0.1.0"

KVT_BEGIN_DECLS

/* The version of the loaded library, for example "0.1.0". Static memory. Any thread, never blocks.
 */
KVT_API const char *kvt_version(void);

KVT_END_DECLS

#endif
