/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of backends and devices by name, and the loading of modules. Entries live as long as
 * the process. Any thread; the lock inside is a leaf. */
#ifndef KVT_SRC_REGISTRY_H
#define KVT_SRC_REGISTRY_H

#include <stdbool.h>

#include "device.h"
#include "env.h"
#include "store.h"

#define KVT__SCHEME_BYTES 64 /* longest name of a backend or device, NUL included */

/* [a-z0-9]+, and such parts joined by '+'; not too long. */
bool kvt__scheme_ok(const char *scheme);

/* Checks a backend's table; *padded is its copy, zeros where it is shorter than ours. KVT_EINVAL,
 * the detail beginning with `what` and naming the member. */
int kvt__backend_check(const struct kvt_backend_ops *ops, const char *what,
		       struct kvt_backend_ops *padded);
/* Adds a checked table. `path` is the module that it came from, NULL for a table of the program;
 * one that was loaded from the same path before is a success. KVT_EEXIST, KVT_ENOMEM. */
int kvt__backend_add(const struct kvt_backend_ops *padded, const char *path);
/* A registered table, which lives as long as the process, without loading anything; NULL: none. */
const struct kvt_backend_ops *kvt__backend_get(const char *scheme);
/* The names of what is registered, joined by ", ", cut to the buffer. */
void kvt__backend_names(char *buffer, size_t buffer_bytes);

/*
 * Loads the module of a scheme from an absolute path and registers its table. KVT_EINVAL for a path
 * that is not absolute, KVT_EMODULE with one line that says what is wrong with the module.
 */
int kvt__module_load(const char *scheme, const char *path);
/* The path of a scheme's module in a folder, NULL: the compiled-in one. Newly allocated. */
char *kvt__module_path(const struct kvt__env *env, const char *scheme, const char *module_dir);

#endif
