/* SPDX-License-Identifier: Apache-2.0 */
/* A name that a library of the program and a module both define. */
#ifndef KVT_TESTS_MODULES_SHARED_NAME_H
#define KVT_TESTS_MODULES_SHARED_NAME_H

__attribute__((visibility("default"))) const char *kvt_test_shared_name(void);

#endif
