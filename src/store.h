/* SPDX-License-Identifier: Apache-2.0 */
/* An open store: backend, limits, namespace and what is remembered about it. Fixed after open
 * unless a member says so. */
#ifndef KVT_SRC_STORE_H
#define KVT_SRC_STORE_H

#include <stdatomic.h>

#include "env.h"
#include "name.h"

/* A bounded set of keys whose load was proven corrupt or mismatching: their next store replaces
 * unconditionally. */
struct kvt__bad_keys {
	pthread_mutex_t lock; /* leaf */
	struct kvt__bad_key {
		uint8_t hash[64];
		uint32_t hash_bytes; /* 0: free */
		uint32_t group;
	} keys[256]; /* oldest overwritten */
	uint32_t next;
	atomic_uint count; /* read without the lock: 0 is the common case */
};

enum kvt__config_state {
	KVT__CONFIG_UNKNOWN = 0,
	KVT__CONFIG_BUSY,
	KVT__CONFIG_OK,
	KVT__CONFIG_BAD
};

struct kvt_store {
	struct kvt__env env;
	uint32_t fork_generation;
	char *uri;
	struct kvt_backend_ops ops; /* padded copy */
	void *backend;
	struct kvt_backend_limits limits;
	struct kvt__namespace ns;
	uint32_t mode; /* enum kvt_mode */
	bool accept_raw;
	double min_coverage; /* 0 to 1 */
	char *hash_seed;     /* may be NULL */
	char *config_name;   /* object name of config.json */
	char *config_text;   /* what is written to it */
	uint64_t max_bytes;  /* 0: no limit */
	double high_watermark, low_watermark;
	atomic_uint users; /* workers; close refuses while nonzero */
	/* config.json: UNKNOWN until the first store has made or compared it. BAD: config_error and
	 * config_detail, written before the state is. */
	atomic_int config_state;
	pthread_mutex_t config_lock; /* leaf: guards the two below */
	int config_error;
	char config_detail[256];
	struct kvt__bad_keys bad;
	atomic_ullong stored_bytes;	      /* by this process, for the maintenance thread */
	struct kvt__maintenance *maintenance; /* NULL without max_bytes */
};

/* The padded table of a registered or loadable backend for a scheme ("file"): 0, KVT_EINVAL,
 * KVT_EMODULE. */
int kvt__backend_find(struct kvt__env *env, const char *scheme, const char *module_dir,
		      const char *module_path, struct kvt_backend_ops *ops);
/* Registers what is built in, once; called by everything that looks a table up. */
void kvt__register_builtin(void);

/* Blocking calls: a session of their own on the calling thread */
struct kvt__sync {
	struct kvt_store *store;
	void *session;
	void *private_data; /* io_private_bytes */
	int64_t listed_ns;  /* when the page that kvt__list_each shows was answered */
	char detail[256];
};
/* close accepts one that failed to open. */
int kvt__sync_open(struct kvt__sync *sync, struct kvt_store *store, bool listing);
void kvt__sync_close(struct kvt__sync *sync);
/* Runs one io to its end; fills deadline (timeout_ns from now), complete, private_data and the
 * detail buffer. Returns io->result; on failure the thread's detail is the backend's. */
int kvt__sync_io(struct kvt__sync *sync, struct kvt_io *io, int64_t timeout_ns);
/* The same for requests that may be repeated (get, head, list, remove): transient failures are
 * tried again a few times. */
int kvt__sync_retry(struct kvt__sync *sync, struct kvt_io *io, int64_t timeout_ns);
/* Whether a failed request that may be repeated is worth another try, and the wait before it: longer
 * each time, and as long as the server asks for. */
bool kvt__sync_is_worth_another(int result);
void kvt__sync_pause(const struct kvt_io *io, unsigned tries);
/* Removes an object: KVT_ENOENT when there is none; with a `version` that is known, KVT_EPRECOND
 * when it is another one by now. */
int kvt__sync_remove(struct kvt__sync *sync, const char *name, const struct kvt_version *version);
bool kvt__version_equal(const struct kvt_version *a, const struct kvt_version *b);
/* The time that one request of `bytes` bytes may take: 30 s and 1 s per MiB. */
static inline int64_t kvt__sync_timeout_ns(uint64_t bytes)
{
	return INT64_C(30000000000) + (int64_t)(bytes >> 20) * 1000000000;
}
/* What every call on a store checks first: KVT_EINVAL for NULL, KVT_EFORK in a forked child. `call`
 * is the name of the public function. */
int kvt__store_check(const struct kvt_store *store, const char *call);
/* 0, or KVT_EINVAL for a key that is NULL or has not 1 to 64 hash bytes. */
int kvt__store_key_check(const struct kvt_key *key, const char *call);
/* Reads config.json, when there is one, and compares it: 0 with config_state set; KVT_ENAMESPACE,
 * KVT_ECONFIG, or why it could not be read. One that may not be read is a warning. */
int kvt__store_compare_config(struct kvt_store *store);

/* What the backend has learnt since it was opened, one line, "" when it says nothing. Any thread,
 * never blocks. */
void kvt__store_describe(const struct kvt_store *store, char *text, size_t bytes);

/* What lanes ask */
void kvt__bad_keys_add(struct kvt__bad_keys *bad, const void *hash, uint32_t hash_bytes,
		       uint32_t group);
/* Removes the key and says whether it was there. */
bool kvt__bad_keys_take(struct kvt__bad_keys *bad, const void *hash, uint32_t hash_bytes,
			uint32_t group);
/* Tells the maintenance thread about bytes stored; never blocks. */
void kvt__store_wrote(struct kvt_store *store, uint64_t bytes);

/* Copies our struct to a caller's that begins with a struct_size, which stays, as far as it has
 * room. KVT_EINVAL naming `what` when that is less than `least`. */
int kvt__copy_out(void *to, const void *from, size_t bytes, size_t least, const char *what);

#endif
