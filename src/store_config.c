/* SPDX-License-Identifier: Apache-2.0 */
/* Comparing a namespace's config.json when a store is opened. Other software writes the file in
 * place, so one that cannot be parsed is read again a few times. */
#include <errno.h>
#include <string.h>
#include <time.h>

#include "store.h"

#define MAX_CONFIG_BYTES (UINT64_C(1) << 20)
#define READS_AGAIN	 5
#define READ_AGAIN_NS	 (100 * 1000 * 1000)

static void pause_before_reading_again(void)
{
	struct timespec left = {.tv_nsec = READ_AGAIN_NS};

	while (nanosleep(&left, &left) != 0 && errno == EINTR)
		;
}

/* Reads it whole, newly allocated: KVT_EPROTO when it changed its length meanwhile. */
static int read_text(struct kvt__sync *sync, char **textp, size_t *bytesp)
{
	struct kvt_store *store = sync->store;
	struct kvt_io io = {.op = KVT_IO_HEAD, .name = store->config_name};
	struct kvt_iovec iov;
	int error = kvt__sync_retry(sync, &io, kvt__sync_timeout_ns(0));

	*textp = NULL;
	if (error != 0)
		return error;
	if (io.info.object_bytes > MAX_CONFIG_BYTES)
		return kvt__fail(KVT_ECONFIG, "%s: %llu bytes, expected at most %llu",
				 store->config_name, (unsigned long long)io.info.object_bytes,
				 (unsigned long long)MAX_CONFIG_BYTES);
	if (io.info.object_bytes == 0)
		return kvt__fail(KVT_EPROTO, "%s: empty", store->config_name);
	iov.iov_len = io.info.object_bytes;
	iov.iov_base = kvt__alloc_aligned(&store->env, (size_t)iov.iov_len, 4096);
	if (iov.iov_base == NULL)
		return kvt__fail(KVT_ENOMEM, "%s: out of memory", store->config_name);
	io = (struct kvt_io){
		.op = KVT_IO_GET,
		.name = store->config_name,
		.iov = &iov,
		.iov_count = 1,
		.length = iov.iov_len,
	};
	error = kvt__sync_retry(sync, &io, kvt__sync_timeout_ns(iov.iov_len));
	if (error == 0 && io.info.object_bytes != KVT_BYTES_UNKNOWN &&
	    io.info.object_bytes != iov.iov_len)
		error = KVT_ERANGE;
	if (error == 0) {
		*textp = iov.iov_base;
		*bytesp = (size_t)iov.iov_len;
		return 0;
	}
	kvt__free(&store->env, iov.iov_base);
	if (error == KVT_ERANGE)
		return kvt__fail(KVT_EPROTO, "%s: being written", store->config_name);
	return error;
}

static int read_and_compare(struct kvt__sync *sync)
{
	struct kvt_store *store = sync->store;
	char *text;
	size_t bytes;
	int error = read_text(sync, &text, &bytes);

	if (error != 0)
		return error;
	error = kvt__config_compare(&store->ns, &store->env, store->hash_seed, text, bytes);
	kvt__free(&store->env, text);
	return error;
}

int kvt__store_compare_config(struct kvt_store *store)
{
	struct kvt__sync sync;
	int error = kvt__sync_open(&sync, store, true);

	if (error != 0)
		return error;
	error = read_and_compare(&sync);
	for (int again = 0; error == KVT_EPROTO && again < READS_AGAIN; again++) {
		pause_before_reading_again();
		error = read_and_compare(&sync);
	}
	kvt__sync_close(&sync);
	switch (error) {
	case 0:
		atomic_store(&store->config_state, KVT__CONFIG_OK);
		return 0;
	case KVT_ENOENT:
		return 0; /* the first store makes it */
	case KVT_EACCES:
		kvt__log(&store->env, KVT_LOG_WARNING, "config.json",
			 "%s: may not be read and is not compared: %s", store->config_name,
			 kvt_error_detail());
		return 0;
	case KVT_EPROTO: {
		char cause[200];

		(void)strncpy(cause, kvt_error_detail(), sizeof(cause) - 1);
		cause[sizeof(cause) - 1] = '\0';
		return kvt__fail(KVT_ECONFIG, "%s: cannot be parsed after %d reads: %s",
				 store->config_name, READS_AGAIN + 1, cause);
	}
	default:
		return error;
	}
}
