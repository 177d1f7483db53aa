/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loads backends from shared objects. A module runs with all rights of the process, so only files
 * are taken that nobody but root and the caller could have put there. What has been loaded is never
 * unloaded: its table and its code live as long as the process.
 */
#include "registry.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The folder of the modules that belong to this library; "$ORIGIN" is the folder that the library
 * itself was loaded from, for builds that may lie anywhere. */
#ifndef KVT_MODULE_DIR
#define KVT_MODULE_DIR "/usr/local/lib/kvtier"
#endif
#define ORIGIN "$ORIGIN"

/* A module's names stay out of everybody's way (RTLD_LOCAL), and everybody's names stay out of its
 * (RTLD_DEEPBIND): the libraries that it brings find their own functions first, whatever the
 * program has loaded under the same names. Sanitizers, which stand in for functions of the C
 * library, refuse the latter. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define LOADED_APART 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) ||                         \
	__has_feature(memory_sanitizer)
#define LOADED_APART 0
#endif
#endif
#ifndef LOADED_APART
#ifdef RTLD_DEEPBIND
#define LOADED_APART RTLD_DEEPBIND
#else
#define LOADED_APART 0
#endif
#endif

/* The services that a module gets at load; unlike a store's they live as long as the process. */
static struct kvt__env module_env;

static void module_env_init(void)
{
	(void)kvt__env_init(&module_env, NULL);
}

/* The file of this library (or of the program that it is linked into), links resolved. */
static bool own_file(char path[PATH_MAX])
{
	Dl_info info;

	return dladdr(&module_env, &info) != 0 && info.dli_fname != NULL &&
	       realpath(info.dli_fname, path) != NULL;
}

/* Whether a module is as hard to replace as this library: it lies beside it, belongs to the same
 * user and is writable by nobody else than the library is. Then its folder makes no difference. */
static bool is_safe_as_library(const char *module)
{
	char own[PATH_MAX];
	struct stat ours, theirs;
	const char *name = strrchr(module, '/');

	if (!own_file(own) || name == NULL || strrchr(own, '/') - own != name - module ||
	    strncmp(own, module, (size_t)(name - module)) != 0)
		return false;
	return stat(own, &ours) == 0 && stat(module, &theirs) == 0 && S_ISREG(theirs.st_mode) &&
	       ours.st_uid == theirs.st_uid && ours.st_gid == theirs.st_gid &&
	       (theirs.st_mode & ~ours.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

static int check_owner(const char *scheme, const char *path, bool folder)
{
	const char *kind = folder ? "folder" : "file";
	struct stat st;

	if (stat(path, &st) != 0)
		return kvt__fail(KVT_EMODULE, "module for \"%s\": %s %s: %s", scheme, kind, path,
				 strerror(errno));
	if (folder ? !S_ISDIR(st.st_mode) : !S_ISREG(st.st_mode))
		return kvt__fail(KVT_EMODULE, "module for \"%s\": %s: not a regular file", scheme,
				 path);
	if (st.st_uid != 0 && st.st_uid != geteuid())
		return kvt__fail(KVT_EMODULE,
				 "module for \"%s\": %s %s: belongs to user %u, expected root or "
				 "user %u",
				 scheme, kind, path, (unsigned)st.st_uid, (unsigned)geteuid());
	if (st.st_mode & (S_IWGRP | S_IWOTH))
		return kvt__fail(KVT_EMODULE,
				 "module for \"%s\": %s %s: mode %04o lets others write to it, "
				 "expected none of 0022",
				 scheme, kind, path, (unsigned)(st.st_mode & 07777));
	return 0;
}

/* The folder of an absolute path, cut out in place of its last component. */
static int check_folder_of(const char *scheme, const char *path)
{
	char folder[PATH_MAX];
	char *slash;

	if ((size_t)snprintf(folder, sizeof(folder), "%s", path) >= sizeof(folder))
		return kvt__fail(KVT_EMODULE, "module for \"%s\": %.64s...: %s", scheme, path,
				 strerror(ENAMETOOLONG));
	slash = strrchr(folder, '/');
	slash[slash == folder] = '\0';
	return check_owner(scheme, folder, true);
}

/* Both ends of a link count: where it stands and where it leads. */
static int check_path(const char *scheme, const char *path, char *resolved)
{
	int error;

	if (realpath(path, resolved) == NULL)
		return kvt__fail(KVT_EMODULE, "module for \"%s\": %s: %s", scheme, path,
				 strerror(errno));
	if (is_safe_as_library(resolved))
		return 0;
	error = check_owner(scheme, resolved, false);
	if (error == 0)
		error = check_folder_of(scheme, resolved);
	if (error == 0)
		error = check_folder_of(scheme, path);
	return error;
}

/* What to install when the loader misses a library: text to append to its message. */
static const char *package_of(const char *message)
{
	static const struct {
		const char *library, *hint;
	} packages[] = {
		{"libcurl.so.4: ", " (install libcurl4, or libcurl4t64; elsewhere libcurl)"},
		{"libssl.so.3: ", " (install libssl3, or libssl3t64; elsewhere openssl-libs)"},
		{"libcrypto.so.3: ", " (install libssl3, or libssl3t64; elsewhere openssl-libs)"},
		{"libexpat.so.1: ", " (install libexpat1; elsewhere expat)"},
		{"libs3.so.2: ", " (install libs3-2; elsewhere libs3)"},
	};

	for (size_t i = 0; i < sizeof(packages) / sizeof(packages[0]); i++)
		if (strncmp(message, packages[i].library, strlen(packages[i].library)) == 0 &&
		    strstr(message, "cannot open shared object file") != NULL)
			return packages[i].hint;
	return "";
}

static int load_failed(const char *scheme)
{
	const char *message = dlerror();

	if (message == NULL)
		message = "cannot be loaded";
	return kvt__fail(KVT_EMODULE, "module for \"%s\": %s%s", scheme, message,
			 package_of(message));
}

static int take_table(const char *scheme, const char *path, void *handle,
		      struct kvt_backend_ops *padded)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	char what[PATH_MAX + KVT__SCHEME_BYTES + 32];
	const struct kvt_backend_ops *table;
	kvt_backend_entry_fn entry;
	void *symbol = dlsym(handle, KVT_BACKEND_ENTRY);

	if (symbol == NULL)
		return kvt__fail(KVT_EMODULE, "module for \"%s\": %s: has no symbol %s", scheme,
				 path, KVT_BACKEND_ENTRY);
	memcpy(&entry, &symbol, sizeof(entry));
	(void)pthread_once(&once, module_env_init);
	table = entry(&module_env.host);
	if (table == NULL)
		return kvt__fail(KVT_EMODULE,
				 "module for \"%s\": %s: cannot work with backend ABI %d", scheme,
				 path, KVT_BACKEND_ABI);
	(void)snprintf(what, sizeof(what), "module for \"%s\": %s", scheme, path);
	if (kvt__backend_check(table, what, padded) != 0)
		return KVT_EMODULE;
	if (strcmp(padded->name, scheme) != 0)
		return kvt__fail(KVT_EMODULE,
				 "module for \"%s\": %s: brings the backend \"%s\" instead", scheme,
				 path, padded->name);
	return 0;
}

int kvt__module_load(const char *scheme, const char *path)
{
	struct kvt_backend_ops padded;
	char resolved[PATH_MAX];
	void *handle;
	int error;

	if (path[0] != '/')
		return kvt__fail(KVT_EINVAL, "module for \"%s\": \"%s\", expected an absolute path",
				 scheme, path);
	error = check_path(scheme, path, resolved);
	if (error != 0)
		return error;
	handle = dlopen(resolved, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE | LOADED_APART);
	if (handle == NULL)
		return load_failed(scheme);
	error = take_table(scheme, resolved, handle, &padded);
	if (error == 0)
		error = kvt__backend_add(&padded, resolved);
	return error == KVT_EEXIST ? KVT_EMODULE : error;
}

char *kvt__module_path(const struct kvt__env *env, const char *scheme, const char *module_dir)
{
	const char *folder = module_dir != NULL ? module_dir : KVT_MODULE_DIR;
	char own[PATH_MAX], *path, *slash;
	size_t bytes;

	if (strcmp(folder, ORIGIN) == 0 && own_file(own) && (slash = strrchr(own, '/')) != NULL) {
		*slash = '\0';
		folder = own;
	}
	bytes = strlen(folder) + strlen(scheme) + sizeof("/kvtier-backend-.so");
	path = kvt__alloc(env, bytes);
	if (path != NULL)
		(void)snprintf(path, bytes, "%s/kvtier-backend-%s.so", folder, scheme);
	return path;
}
