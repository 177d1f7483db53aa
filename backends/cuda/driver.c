/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA driver, found at run time. Any thread. */
#include "driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define SONAME "libcuda.so.1"

typedef __typeof__(cuGetProcAddress) *find_fn;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* leaf; guards both */
static struct kvt__cuda_driver driver;
static bool loaded;

/* Copies the address: a function pointer and a data pointer have one form here. */
static bool cuda_symbol(void *library, const char *name, void *functionp)
{
	void *address = dlsym(library, name);

	memcpy(functionp, &address, sizeof(address));
	return address != NULL;
}

static bool cuda_find(find_fn find, const char *name, int version, void *functionp)
{
	CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SUCCESS;
	void *address = NULL;
	CUresult result = find(name, &address, version, CU_GET_PROC_ADDRESS_LEGACY_STREAM, &found);

	if (result != CUDA_SUCCESS || found != CU_GET_PROC_ADDRESS_SUCCESS)
		address = NULL;
	memcpy(functionp, &address, sizeof(address));
	return address != NULL;
}

static bool cuda_find_all(find_fn find, struct kvt__cuda_driver *d, char *detail, size_t bytes)
{
#define REQUIRED(name, asked)                                                                      \
	if (!cuda_find(find, #name, asked, &d->name)) {                                            \
		(void)snprintf(detail, bytes,                                                      \
			       SONAME ": %s of version %d: not found in the driver for CUDA "      \
				      "%d.%d",                                                     \
			       #name, asked, d->version / 1000, d->version % 1000 / 10);           \
		return false;                                                                      \
	}
	KVT__CUDA_REQUIRED(REQUIRED)
#undef REQUIRED
#define OPTIONAL(name, asked) (void)cuda_find(find, #name, asked, &d->name);
	KVT__CUDA_OPTIONAL(OPTIONAL)
#undef OPTIONAL
	if (d->version >= 13000)
		(void)cuda_find(find, "cuMemcpyBatchAsync", 13000, &d->batch_13000);
	if (d->batch_13000 == NULL && d->version >= 12080)
		(void)cuda_find(find, "cuMemcpyBatchAsync", 12080, &d->batch_12080);
	return true;
}

static bool cuda_load(struct kvt__cuda_driver *d, char *detail, size_t bytes)
{
	__typeof__(cuDriverGetVersion) *get_version;
	find_fn find;
	CUresult result;
	void *library = dlopen(SONAME, RTLD_NOW | RTLD_LOCAL);

	if (library == NULL) {
		const char *why = dlerror();
		/* The reason begins with the name. */
		(void)snprintf(detail, bytes, "%s", why != NULL ? why : SONAME ": not found");
		return false;
	}
	if (!cuda_symbol(library, "cuDriverGetVersion", &get_version) ||
	    get_version(&d->version) != CUDA_SUCCESS) {
		(void)snprintf(detail, bytes, SONAME ": does not tell its version");
		goto out_close;
	}
	if (d->version < KVT__CUDA_OLDEST_DRIVER) {
		(void)snprintf(detail, bytes,
			       SONAME ": the driver is for CUDA %d.%d, expected %d.%d or newer",
			       d->version / 1000, d->version % 1000 / 10,
			       KVT__CUDA_OLDEST_DRIVER / 1000, KVT__CUDA_OLDEST_DRIVER % 1000 / 10);
		goto out_close;
	}
	if (!cuda_symbol(library, "cuGetProcAddress_v2", &find) ||
	    !cuda_symbol(library, "cuInit", &d->cuInit)) {
		(void)snprintf(detail, bytes, SONAME ": %s: not found",
			       find == NULL ? "cuGetProcAddress_v2" : "cuInit");
		goto out_close;
	}
	if (!cuda_find_all(find, d, detail, bytes))
		goto out_close;
	result = d->cuInit(0);
	if (result != CUDA_SUCCESS) {
		const char *name = NULL, *text = NULL;

		(void)d->cuGetErrorName(result, &name);
		(void)d->cuGetErrorString(result, &text);
		(void)snprintf(detail, bytes, SONAME ": cuInit: %s (%s)",
			       name != NULL ? name : "unknown",
			       text != NULL ? text : "no such error");
		goto out_close;
	}
	return true; /* the library stays: its threads may run until the process ends */

out_close:
	(void)dlclose(library);
	return false;
}

const struct kvt__cuda_driver *kvt__cuda_driver_load(char *detail, size_t detail_bytes,
						     int *versionp)
{
	struct kvt__cuda_driver d = {0};
	bool found;

	pthread_mutex_lock(&lock);
	if (!loaded && cuda_load(&d, detail, detail_bytes)) {
		driver = d;
		loaded = true;
	}
	found = loaded;
	if (found)
		d.version = driver.version;
	pthread_mutex_unlock(&lock);
	if (versionp != NULL)
		*versionp = d.version;
	return found ? &driver : NULL; /* never changed again */
}
