/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvtier: offload LLM KV-cache chunks to a storage tier and load them back.
 *
 * A store is a place (a directory, a bucket) plus a namespace in it; a device is the memory that
 * chunks live in; a worker moves chunks between the two on threads of its own ("lanes"). One worker
 * serves one store and one device.
 *
 * One file, though a long one: it is all that a caller includes.
 *
 * General rules, true of every declaration unless it says otherwise:
 *  - Results: 0 or a count, or a negative KVT_E* code; kvt_error_detail() then has one line about
 * it.
 *  - Structs that callers fill begin with struct_size: set it to sizeof the struct and everything
 * else to zero (KVT_INIT does both), then set what is wanted. Zero means the default. A larger
 * struct than this library knows is accepted while its extra bytes are zero, else KVT_EINVAL.
 *  - Out-parameters come last and are set to NULL or zero on failure.
 *  - Strings are UTF-8, borrowed for the call and copied.
 *  - Sizes and offsets are bytes, times have their unit in the name.
 *  - After fork() the child must not use a store, device or worker: calls return KVT_EFORK. It may
 * destroy and close them, which then frees memory and closes descriptors only.
 */
#ifndef KVTIER_KVTIER_H
#define KVTIER_KVTIER_H

#include <stddef.h>
#include <stdint.h>

#include <kvtier/error.h>
#include <kvtier/export.h>
#include <kvtier/ready.h>
#include <kvtier/version.h>

KVT_BEGIN_DECLS

/* Initialiser for a struct that begins with struct_size: struct kvt_worker_options o = KVT_INIT(o);
 */
#define KVT_INIT(variable)                                                                         \
	{                                                                                          \
		sizeof(variable)                                                                   \
	}

struct kvt_store;
struct kvt_device;
struct kvt_worker;

/* Hooks */

enum kvt_log_level { KVT_LOG_OFF = 0, KVT_LOG_ERROR, KVT_LOG_WARNING, KVT_LOG_INFO, KVT_LOG_DEBUG };

/*
 * Receives one line of log without a newline and without secrets. Called from any thread of the
 * library and from the threads that call it, at most once a second for each class of message (what
 * was left out is counted in the next line). Called with no lock held; must not call back into the
 * same store or worker. `line` is borrowed for the call.
 */
typedef void (*kvt_log_fn)(void *context, enum kvt_log_level level, const char *line);

/*
 * Allocation hooks. alloc returns memory aligned to `alignment` (a power of two, at least 16) or
 * NULL; free accepts NULL. Called from any thread, with no lock of the library held. Both or
 * neither must be set. They serve every allocation of the store, device or worker that they were
 * given to, except those inside the libraries it stands on (JSON, io_uring, threads) and the
 * staging memory, which comes from the device.
 */
struct kvt_allocator {
	void *(*alloc)(void *context, size_t bytes, size_t alignment);
	void (*free)(void *context, void *memory);
	void *context;
};

/* Log and allocation hooks of a store, device or worker; all zero means: warnings to nobody,
 * malloc. Copied. */
struct kvt_hooks {
	kvt_log_fn log;
	void *log_context;
	enum kvt_log_level log_level; /* the most detailed level wanted; 0 with a log function means
					 KVT_LOG_WARNING */
	struct kvt_allocator allocator;
};

/* Stores */

/* One backend or store option by name, as after -o on the command line. Unknown names are refused
 * (KVT_EINVAL, naming the nearest known one). */
struct kvt_option {
	const char *name;
	const char *value;
};

/* What the names of a store are made for. */
enum kvt_mode {
	/* Chunks gathered from device pointers: objects may be partial and hold several refs.
	 * Unless the caller sets a storage format, "storage_format":"kvtier1" is added to the
	 * fields, or ".kvtier1" to a ready-made namespace, so that these objects never carry a name
	 * that vLLM's own tiers use. Rows may be used too. */
	KVT_MODE_POINTER = 0,
	/* Rows of a host buffer, under vLLM's own names: the namespace is used exactly as given,
	 * and only the row calls are accepted, so every object is whole. Trees and buckets can be
	 * shared with vLLM's tiers. */
	KVT_MODE_ROW = 1,
	/* The namespace is used exactly as given and every call is accepted: keeping partial
	 * objects out of the sight of other software is the caller's own affair. */
	KVT_MODE_EXACT = 2,
};

/*
 * The fields that vLLM's FileMapper derives names from. All strings are borrowed for the call.
 */
struct kvt_fields {
	size_t struct_size;
	const char *model_name;	      /* required; "/" becomes "_" in names */
	const char *dtype;	      /* required, for example "bfloat16" */
	const char *inference_engine; /* NULL means "vllm" */
	const char *kv_cache_groups;  /* JSON list of {"layer_names":[...],"tokens_per_block":n};
					 NULL means [] */
	const char *canonical_format; /* NULL: field absent */
	const char *storage_format;   /* NULL: field absent (see KVT_MODE_POINTER) */
	const char *extra; /* JSON object of further fields (model revision, KV layout ...); NULL:
			    * none. A name used above is KVT_EINVAL */
	int64_t tokens_per_hash;		      /* required, at least 1 */
	int64_t blocks_per_file;		      /* 0 means 1 */
	int64_t tp_size, pp_size, pcp_size, dcp_size; /* 0 means 1 */
	uint32_t parallel_agnostic; /* nonzero: sizes are taken as 1, the rank as 0 */
	uint32_t replicated_layout;
};

struct kvt_store_options {
	size_t struct_size;
	/* "file:///absolute/path", "mem:", "fault+file:///...", "s3://bucket/prefix". Required. */
	const char *uri;
	/* Options of the backend and of the store (kvtier-file(5), kvtier(1)); borrowed for the
	 * call. */
	const struct kvt_option *options;
	size_t option_count;
	/* Exactly one of these three: a ready-made namespace ([A-Za-z0-9._-], not starting with a
	 * dot), the fields as one JSON object, or the fields as a struct. */
	const char *namespace_name;
	const char *fields_json;
	const struct kvt_fields *fields;
	uint32_t rank; /* of this process among those that share the namespace; ignored when
			  parallel agnostic */
	uint32_t mode; /* enum kvt_mode */
	struct kvt_hooks hooks;
};

/*
 * Opens a store: loads the backend, opens the place and compares the namespace's config.json when
 * there is one. May block. Any thread. Fails with KVT_EINVAL (arguments, options, names),
 * KVT_ENAMESPACE (config.json was made from other fields; the first that differs is named),
 * KVT_EMODULE, KVT_EACCES, KVT_ECONFIG, KVT_ENOMEM or what the backend reports. The caller closes
 * the store after its workers are destroyed.
 */
KVT_API KVT_MUST_CHECK int kvt_store_open(const struct kvt_store_options *options,
					  struct kvt_store **storep);

/* Closes a store; NULL is accepted. KVT_EBUSY while a worker uses it. May block (the maintenance
 * thread ends first). */
KVT_API int kvt_store_close(struct kvt_store *store);

/* 1 to 64 hash bytes and a group: what names one chunk. The hash is borrowed for the call. */
struct kvt_key {
	const void *hash;
	uint32_t hash_bytes;
	uint32_t group;
};

/* The largest object name, including its terminating NUL. */
#define KVT_NAME_BYTES 1025

/* Writes the object name of a key below the store's root, NUL-terminated; returns its length.
 * KVT_EINVAL for a bad key or a buffer that is too small (KVT_NAME_BYTES always suffices). Any
 * thread, never blocks. */
KVT_API KVT_MUST_CHECK int kvt_store_object_name(const struct kvt_store *store,
						 const struct kvt_key *key, char *buffer,
						 size_t buffer_bytes);

/* What a store was opened as. All strings live as long as the store. */
struct kvt_store_info {
	size_t struct_size;
	const char *uri;       /* as opened */
	const char *backend;   /* "file" */
	const char *canonical; /* canonical JSON of the fields, or the ready-made namespace */
	const char *base_name; /* <model>_<12 hex digits>, or the ready-made namespace */
	uint8_t namespace_digest[8];
	uint32_t rank;
	uint32_t mode;
	/* Limits of the backend, see backend.h. */
	uint64_t min_part_bytes, max_part_bytes, max_object_bytes;
	uint32_t max_parts, max_iov, memory_alignment, capabilities;
	/* What the backend says about itself ("engine=uring direct=on filesystem=ext4"); never
	 * NULL. */
	const char *backend_detail;
};
/* Any thread, never blocks. info->struct_size must be set. */
KVT_API KVT_MUST_CHECK int kvt_store_get_info(const struct kvt_store *store,
					      struct kvt_store_info *info);

/* What one object is, from its trailer. */
enum kvt_object_state {
	KVT_OBJECT_WHOLE = 0,
	KVT_OBJECT_PARTIAL,  /* ours, some slots absent */
	KVT_OBJECT_MISMATCH, /* a valid trailer of another key, rank or namespace */
	KVT_OBJECT_FOREIGN,  /* no trailer of ours */
	KVT_OBJECT_CORRUPT, /* trailer or payload fails its checksum, or the structure is impossible
			     */
	KVT_OBJECT_UNKNOWN_FORMAT, /* a newer format version */
};

struct kvt_object_stat {
	size_t struct_size;
	uint32_t state; /* enum kvt_object_state */
	uint32_t format_version;
	uint64_t object_bytes, payload_bytes, trailer_bytes;
	uint32_t blocks_per_chunk, ref_count, slot_count, present_slots;
	uint32_t rank, group;
	uint32_t hash_bytes;
	uint8_t hash[64];
	uint8_t namespace_digest[8];
	int64_t age_ns;	       /* since it was written; -1 when unknown */
	int64_t access_age_ns; /* since it was last loaded, as far as the store keeps it; -1 when
				  unknown */
	uint64_t *
		ref_bytes; /* ref_count byte sizes of one block of each ref; owned by this struct */
	uint8_t *presence; /* bit s % 8 of byte s / 8: slot s is there; owned by this struct */
};

/* Reads an object's trailer. 0 with stat filled (whatever its state), KVT_ENOENT when there is
 * none. Blocks, up to 30 s for each of its few requests. Any thread. Free the arrays with
 * kvt_object_stat_clear. */
KVT_API KVT_MUST_CHECK int kvt_store_stat(struct kvt_store *store, const struct kvt_key *key,
					  struct kvt_object_stat *stat);
/* Frees the arrays and zeroes the struct except struct_size. */
KVT_API void kvt_object_stat_clear(struct kvt_object_stat *stat);

/* One object of a listing; borrowed for the call of the callback. key.hash is NULL when the name is
 * not one of ours. */
struct kvt_list_entry {
	const char *name; /* below the root */
	struct kvt_key key;
	uint64_t object_bytes;
	int64_t age_ns, access_age_ns; /* -1 when unknown */
};
/* Return 0 to go on, anything else to stop the listing, which then returns that value. Called on
 * the calling thread. */
typedef int (*kvt_list_fn)(void *context, const struct kvt_list_entry *entry);

/* Lists the objects of the store's namespace and rank, in no promised order. Blocks. Any thread. */
KVT_API KVT_MUST_CHECK int kvt_store_list(struct kvt_store *store, kvt_list_fn callback,
					  void *context);

/* Removes one object. KVT_ENOENT when there is none. Blocks. Any thread. */
KVT_API KVT_MUST_CHECK int kvt_store_remove(struct kvt_store *store, const struct kvt_key *key);

struct kvt_verify_options {
	size_t struct_size;
	uint32_t remove_corrupt; /* nonzero: remove objects that are proven corrupt; mismatching and
				    foreign ones stay */
};
struct kvt_verify_summary {
	size_t struct_size;
	uint64_t objects, bytes;
	uint64_t whole, partial, mismatch, foreign, corrupt, unknown_format, unreadable, vanished,
		removed;
};
/* One verified object; `error` is 0 or why it could not be read. Borrowed for the call. Nonzero
 * stops. */
struct kvt_verify_entry {
	const char *name;
	uint32_t state; /* enum kvt_object_state */
	int error;
	uint64_t object_bytes;
	const char *detail;
};
typedef int (*kvt_verify_fn)(void *context, const struct kvt_verify_entry *entry);

/* Reads and checks every byte of every object of the namespace and rank. Bad objects are counted,
 * not failures of the call. `options` and `callback` may be NULL. Blocks. Any thread. */
KVT_API KVT_MUST_CHECK int kvt_store_verify(struct kvt_store *store,
					    const struct kvt_verify_options *options,
					    kvt_verify_fn callback, void *context,
					    struct kvt_verify_summary *summary);

struct kvt_gc_options {
	size_t struct_size;
	uint64_t max_bytes; /* remove least recently used objects until at most this many bytes are
			       left; 0: no limit */
	uint64_t older_than_ns; /* remove objects not used for longer than this; 0: none */
	uint32_t whole_root; /* nonzero: every namespace and rank below the root; else the store's
				namespace, every rank */
	uint32_t dry_run;    /* nonzero: count, remove nothing */
	uint64_t leftover_age_ns; /* what others left behind goes when it is older than this, to the
				     second; 0: one day */
	uint32_t leftovers_only;  /* nonzero: no objects, which are not even listed; no other member
				     but leftover_age_ns may be set */
	uint32_t reserved;	  /* 0 */
};
struct kvt_gc_summary {
	size_t struct_size;
	uint64_t objects, bytes;		 /* found */
	uint64_t removed_objects, removed_bytes; /* removed, or would be */
	uint64_t removed_leftovers;		 /* temporary files and uploads of dead processes */
};
/* Frees capacity. An object that goes while it is being loaded is a miss, no more. Leftovers that
 * cannot be looked for keep no object; where there is no right to, that is a warning. Blocks. Any
 * thread. */
KVT_API KVT_MUST_CHECK int kvt_store_gc(struct kvt_store *store,
					const struct kvt_gc_options *options,
					struct kvt_gc_summary *summary);

/* A self test: stores, reads, lists and removes a probe object; one line for each thing found out.
 */
typedef void (*kvt_probe_fn)(void *context, const char *name, const char *value, int error);
/* 0 when the store works, else the first failure. Blocks. Any thread. Leaves nothing behind. */
KVT_API KVT_MUST_CHECK int kvt_store_probe(struct kvt_store *store, kvt_probe_fn callback,
					   void *context);

/* Calls `callback` for each known option of the backend that `uri` names and of stores: its name,
 * default and one line of help. KVT_EINVAL for an unknown scheme. Any thread. */
typedef void (*kvt_option_help_fn)(void *context, const char *name, const char *default_value,
				   const char *help);
KVT_API KVT_MUST_CHECK int kvt_store_option_help(const char *uri, kvt_option_help_fn callback,
						 void *context);

/* Devices */

/*
 * Opens the memory that chunks live in: "host" (plain memory), or "cuda" with an ordinal where it
 * is built in. Workers that get no device use plain memory. May block. KVT_EINVAL for an unknown
 * name or ordinal, KVT_EDEVICE when it cannot be used.
 */
struct kvt_device_options {
	size_t struct_size;
	const char *name; /* NULL means "host" */
	uint32_t ordinal;
	struct kvt_hooks hooks;
};
KVT_API KVT_MUST_CHECK int kvt_device_open(const struct kvt_device_options *options,
					   struct kvt_device **devicep);
/* KVT_EBUSY while a worker or a stream completion uses it; NULL is accepted. */
KVT_API int kvt_device_close(struct kvt_device *device);

/*
 * Finds out what a device is and whether it can be used, without opening it: one call of `callback`
 * for each thing, as kvt_store_probe does; `options` as for kvt_device_open. May block. Returns 0
 * when kvt_device_open would succeed, else its failure.
 */
KVT_API KVT_MUST_CHECK int kvt_device_probe(const struct kvt_device_options *options,
					    kvt_probe_fn callback, void *context);

/* An event for plain memory: not signalled at first, signalled once. Signal and destroy from any
 * thread; never blocks. A job that was given the event must have completed before it is destroyed.
 */
struct kvt_event;
KVT_API KVT_MUST_CHECK int kvt_event_create(struct kvt_event **eventp);
KVT_API void kvt_event_signal(struct kvt_event *event);
KVT_API void kvt_event_destroy(struct kvt_event *event);

/*
 * Completion of what a stream of the device was given: for callers who chain device work of their
 * own after a load, or before a store, and want to know when it is done. It is backed by an event
 * of the device (CUevent for "cuda"); no thread waits for it. Any thread may ask and wait; the
 * device is lent until the release.
 */
struct kvt_stream_completion;
/*
 * Completes once everything that `stream` was given before this call is done. `stream`: as with
 * KVT_READY_STREAM. Never waits. KVT_EINVAL for a device without streams or a stream that is not
 * of this device, KVT_ENOMEM, KVT_EDEVICE.
 */
KVT_API KVT_MUST_CHECK int kvt_stream_completion_create(struct kvt_device *device, void *stream,
							struct kvt_stream_completion **completionp);
/* 1 once it is done, 0 before, or KVT_EDEVICE when the device has failed. Never waits. */
KVT_API KVT_MUST_CHECK int
kvt_stream_completion_done(const struct kvt_stream_completion *completion);
/* Waits until it is done: 0, KVT_ETIMEDOUT, or KVT_EDEVICE. Negative waits for ever. */
KVT_API KVT_MUST_CHECK int
kvt_stream_completion_wait(const struct kvt_stream_completion *completion, int64_t timeout_ms);
/* The event behind it, for the caller's own waits (cuStreamWaitEvent) and as the handle of
 * KVT_READY_EVENT; valid until the release. */
KVT_API void *kvt_stream_completion_event(const struct kvt_stream_completion *completion);
/* At any time, done or not; NULL is accepted. A job that was given its event must have completed
 * before. */
KVT_API void kvt_stream_completion_release(struct kvt_stream_completion *completion);

/* Workers */

struct kvt_worker_options {
	size_t struct_size;
	uint32_t lanes; /* I/O threads; 0 means 4, at most 64 */
	uint32_t depth; /* requests in flight on each lane, at most 4,096; 0 means the backend's
			   choice (16; files 32); always 1 on a blocking backend */
	uint64_t staging_bytes; /* pinned staging, one hard budget; 0 means 256 MiB */
	uint64_t part_bytes;   /* payload bytes of one storage request; 0 means the backend's choice
				  (8 MiB); a multiple of 4,096 */
	uint64_t queue_chunks; /* stores are refused (KVT_EAGAIN) while this many chunks wait, loads
				* and lookups at four times that; 0 means 65,536 */
	uint64_t store_timeout_ms;     /* default deadline of a store job; 0 means 600,000 */
	uint64_t load_timeout_ms;      /* of a load job; 0 means 120,000 */
	uint64_t lookup_timeout_ms;    /* of a lookup job; 0 means 30,000 */
	uint64_t operation_timeout_ms; /* of one storage request, plus 1 s per MiB; four times that
					  to put the parts of an object together; 0 means 30,000 */
	uint64_t buffer_timeout_ms;    /* longest wait for a staging buffer; 0 means 30,000 */
	uint32_t attempts; /* of one storage request, the first included; 0 means 5, 1 never retries
			    */
	uint32_t retry_base_ms;	   /* first backoff, doubled each time and jittered; 0 means 50 */
	uint32_t retry_max_ms;	   /* longest backoff; 0 means 5,000 */
	uint32_t breaker_failures; /* transient failures in a row that open the circuit breaker; 0
				    * means 10, UINT32_MAX never */
	uint32_t breaker_open_ms;  /* how long it stays open before a probe is let through; 0 means
				      5,000 */
	uint32_t keep_corrupt; /* nonzero: loads never remove an object that is proven corrupt */
	/* Called on each lane's thread before it does anything else (set a CUDA device, an
	 * affinity); a nonzero return fails kvt_worker_create with KVT_ECONFIG. */
	int (*thread_init)(void *context, uint32_t lane);
	void *thread_init_context;
	struct kvt_hooks hooks;
	/* Staging memory of the caller's instead of memory of the device's: staging_bytes of it,
	 * aligned to 4,096; "cuda" pins it while the worker lives. Lent until the worker is
	 * destroyed. NULL: none. */
	void *staging_memory;
};

/*
 * Creates a worker with its lanes. `device` may be NULL (plain memory); `options` may be NULL (all
 * defaults). Store and device are lent until the worker is destroyed. May block. Fails, leaving
 * nothing behind, with KVT_EINVAL, KVT_ENOMEM, KVT_ECONFIG or the failure of the first lane's
 * session.
 */
KVT_API KVT_MUST_CHECK int kvt_worker_create(struct kvt_store *store, struct kvt_device *device,
					     const struct kvt_worker_options *options,
					     struct kvt_worker **workerp);

/*
 * Stops intake, drops what is queued as canceled, waits for what is in flight and frees everything,
 * the completions not yet polled included (results already polled stay valid until released). When
 * timeout_ms is up first: KVT_EBUSY, nothing is freed, the memory of the jobs in flight is still
 * lent, and the call may be repeated. 0 does not wait, negative waits for ever. One thread, no
 * other call on this worker during or after a successful one. NULL is accepted.
 */
KVT_API int kvt_worker_destroy(struct kvt_worker *worker, int64_t timeout_ms);

/*
 * A transfer between device memory and chunks, in the field names of vLLM's DevicePointers. Arrays
 * are borrowed for the submit call and copied; the memory that ptrs name is lent until the job's
 * completion.
 *
 * Group g has group_block_counts[g] blocks and group_data_ref_counts[g] refs; its first block is
 * number block_indices[g] of the request, which decides at which slot of its chunk it lies. ptrs
 * and sizes hold copy_count device addresses and byte counts ordered group, then ref, then block.
 * All copies of one ref of a group have one size. One key for each chunk that a group with blocks
 * touches, in order.
 */
struct kvt_transfer {
	size_t struct_size;
	uint32_t blocks_per_chunk; /* at least 1 */
	uint32_t group_count;
	const uint64_t *group_block_counts;
	const uint32_t *group_data_ref_counts;
	const int64_t *block_indices;
	const uint64_t *ptrs;
	const uint64_t *sizes;
	uint64_t copy_count;
	const struct kvt_key *keys;
	uint64_t key_count;
};

/* Chunks that are rows of one host buffer: row i starts at base + i * stride_bytes and is
 * stride_bytes long. Key k is row row_indices[k]. The arrays are borrowed and copied, the rows lent
 * until the completion. */
struct kvt_rows {
	size_t struct_size;
	void *base;
	uint64_t stride_bytes;
	uint64_t row_count;
	const int64_t *row_indices;
	const struct kvt_key *keys;
	uint64_t key_count;
};

struct kvt_submit_options {
	size_t struct_size;
	uint64_t timeout_ms;	/* deadline of the job; 0 means the worker's default */
	uint32_t expedited;	/* loads only: before other loads */
	uint32_t lookup_flags;	/* lookups only: enum kvt_lookup_flag */
	struct kvt_ready ready; /* the memory is not touched before this */
};

/*
 * Submits a job. None of these blocks or waits; they may be called from any thread, concurrently.
 * `options` may be NULL. The job is accepted whole (0) or not at all: KVT_EINVAL     an argument;
 * the detail names it, its value and what was expected KVT_EEXIST     job_id is live (not yet
 * completed and polled) KVT_EAGAIN     the queue is full KVT_ENOMEM, KVT_ESHUTDOWN, KVT_EFORK An
 * accepted job completes exactly once (see kvt_worker_poll), and from then on nothing touches its
 * memory any more. What can go wrong with single keys is in the completion. The destination of a
 * key that is not reported as loaded is undefined: it may hold old bytes, new ones or a mixture. A
 * job without keys is accepted and completes at once.
 */
KVT_API KVT_MUST_CHECK int kvt_worker_submit_store(struct kvt_worker *worker, uint64_t job_id,
						   const struct kvt_transfer *transfer,
						   const struct kvt_submit_options *options);
KVT_API KVT_MUST_CHECK int kvt_worker_submit_load(struct kvt_worker *worker, uint64_t job_id,
						  const struct kvt_transfer *transfer,
						  const struct kvt_submit_options *options);
KVT_API KVT_MUST_CHECK int kvt_worker_submit_store_rows(struct kvt_worker *worker, uint64_t job_id,
							const struct kvt_rows *rows,
							const struct kvt_submit_options *options);
KVT_API KVT_MUST_CHECK int kvt_worker_submit_load_rows(struct kvt_worker *worker, uint64_t job_id,
						       const struct kvt_rows *rows,
						       const struct kvt_submit_options *options);

/* The shape of the chunks of one group, which lookups need to tell a whole object from a partial
 * one by its length. */
struct kvt_geometry {
	size_t struct_size;
	uint32_t blocks_per_chunk;
	uint32_t ref_count;
	const uint64_t *ref_bytes; /* ref_count byte sizes of one block of each ref; copied */
};
/* Sets or replaces the geometry of a group for later lookups. Never blocks. Any thread. KVT_EINVAL,
 * KVT_ENOMEM. */
KVT_API KVT_MUST_CHECK int kvt_worker_set_geometry(struct kvt_worker *worker, uint32_t group,
						   const struct kvt_geometry *geometry);

enum kvt_lookup_flag {
	KVT_LOOKUP_PREFIX = 1, /* stop at the first miss: keys after it are reported as unknown,
				* which then is no failure of the job */
	KVT_LOOKUP_PRESENCE =
		2, /* read the trailer of partial objects and report which blocks they hold */
};
/* Asks which keys are there. The geometry of every key's group must have been set (KVT_EINVAL).
 * Contract as above. */
KVT_API KVT_MUST_CHECK int kvt_worker_submit_lookup(struct kvt_worker *worker, uint64_t job_id,
						    const struct kvt_key *keys, uint64_t key_count,
						    const struct kvt_submit_options *options);

/* Completions */

/*
 * What became of one key. X(NAME, value, text)
 * Of those of stores and loads STORED, SKIPPED, LOADED and LOADED_UNVERIFIED are success; of
 * lookups all but UNKNOWN.
 */
#define KVT_STATUS_TABLE(X)                                                                        \
	X(PENDING, 0,                                                                              \
	  "pending") /* lookups: a store of it is queued or running; else: not finished */         \
	X(STORED, 1, "stored")                                                                     \
	X(SKIPPED, 2, "skipped") /* it was there already */                                        \
	X(LOADED, 3, "loaded")                                                                     \
	X(LOADED_UNVERIFIED, 4,                                                                    \
	  "loaded_unverified") /* a raw chunk without trailer (accept_raw) */                      \
	X(HIT, 5, "hit")                                                                           \
	X(PARTIAL, 6, "partial")                                                                   \
	X(MISS, 7, "miss")                                                                         \
	X(UNKNOWN, 8, "unknown") /* could not be asked */                                          \
	X(CANCELED, 9, "canceled")                                                                 \
	X(MISSING, 10, "missing") /* no object, or a wanted slot is absent */                      \
	X(FOREIGN, 11, "foreign")                                                                  \
	X(MISMATCH, 12, "mismatch")                                                                \
	X(CORRUPT, 13, "corrupt")                                                                  \
	X(FAILED, 14, "failed") /* see the key's error */

enum kvt_status {
#define KVT_X(name, value, text) KVT_STATUS_##name = (value),
	KVT_STATUS_TABLE(KVT_X)
#undef KVT_X
};
/* "stored" for KVT_STATUS_STORED; "?" for a value that does not exist. Static memory, any thread.
 */
KVT_API const char *kvt_status_name(uint32_t status);
/* 1 when the status is a success, 0 when not. */
KVT_API int kvt_status_is_success(uint32_t status);

enum kvt_job_kind { KVT_JOB_STORE = 0, KVT_JOB_LOAD, KVT_JOB_LOOKUP, KVT_JOB_OPS };

/* The completion of one job. Allocated by the library; read-only; release it with
 * kvt_result_release. Fields may be added at the end. */
struct kvt_result {
	uint64_t job_id;
	uint32_t kind;	 /* enum kvt_job_kind */
	uint32_t status; /* of its worst key (lookups too); STORED, LOADED or HIT for a job without
			    keys */
	int error;	 /* 0 when every key succeeded, else the worst key's code */
	uint32_t attempts; /* storage requests made, retries included */
	uint64_t bytes; /* payload bytes of the keys that succeeded: moved, or, when skipped, not */
	uint64_t queued_ns; /* from submit until the first chunk was started */
	uint64_t active_ns; /* from then until the last was finished */
	uint64_t key_count;
	const uint8_t *key_status; /* key_count values of enum kvt_status */
	const int16_t *key_error;  /* key_count codes, 0 or negative */
	const char *detail; /* one line about the worst key; "" when all is well; never NULL */
	/* Lookups with KVT_LOOKUP_PRESENCE, else NULL: for each key the first contiguous run of
	 * blocks that every ref of the chunk holds: key_blocks[2 * k] is its first block,
	 * key_blocks[2 * k + 1] one past its last. Hits have 0 and F. */
	const uint32_t *key_blocks;
};

/*
 * Takes up to max_results completions, in no promised order, and returns how many; 0 when none
 * waits. Never blocks. Any thread, concurrently. A job's id is free again once its completion has
 * been taken.
 */
KVT_API KVT_MUST_CHECK int kvt_worker_poll(struct kvt_worker *worker, struct kvt_result **results,
					   int max_results);
/* Frees a polled completion, also after its worker was destroyed; NULL is accepted. Any thread. */
KVT_API void kvt_result_release(struct kvt_result *result);

/*
 * Waits until none of the given jobs runs any more, at most timeout_ms (0 does not wait, negative
 * waits for ever); their completions stay for kvt_worker_poll. Ids that are not known are ignored.
 * 0, or KVT_ETIMEDOUT while some run. *known_countp (may be NULL) is set to how many of the ids
 * were known. Any thread. Not from a hook.
 */
KVT_API KVT_MUST_CHECK int kvt_worker_wait(struct kvt_worker *worker, const uint64_t *job_ids,
					   size_t job_count, int64_t timeout_ms,
					   size_t *known_countp);
/*
 * Like kvt_worker_wait, but returns as soon as the jobs' memory is quiet: for a store that is once
 * its bytes have been gathered or written, which may be long before it is stored; for a chunk that
 * lacks blocks it is once it is stored, since it may have to be merged with what is there. Such
 * stores, and those that they wait for, jump the queue.
 */
KVT_API KVT_MUST_CHECK int kvt_worker_wait_memory(struct kvt_worker *worker,
						  const uint64_t *job_ids, size_t job_count,
						  int64_t timeout_ms, size_t *known_countp);
/* Waits until no job runs, at most timeout_ms; completions stay for poll. 0 or KVT_ETIMEDOUT. Any
 * thread. */
KVT_API KVT_MUST_CHECK int kvt_worker_drain(struct kvt_worker *worker, int64_t timeout_ms);

/* Asks a job to stop: chunks that have not been started are canceled at once, others as soon as
 * their memory is quiet. The job still completes, and keys that were finished stay so. 0, or
 * KVT_ENOENT when the id is not live. Never blocks. Any thread. */
KVT_API int kvt_worker_cancel(struct kvt_worker *worker, uint64_t job_id);

/* A descriptor that is readable while completions wait for kvt_worker_poll; poll it, never read or
 * close it. It lives as long as the worker. Returns it, or KVT_EMFILE. Any thread. */
KVT_API KVT_MUST_CHECK int kvt_worker_event_fd(struct kvt_worker *worker);

/* Raw files: the extension point of vLLM's FSOffloadingWorker */

/* One copy between device memory and a raw file. */
struct kvt_file_op {
	uint64_t device_ptr;
	uint64_t size_bytes;
	uint64_t file_offset;
};
/* The copies of one file. `path` is relative to the store's root, without "." and ".." components.
 */
struct kvt_file_ops {
	const char *path;
	const struct kvt_file_op *ops;
	size_t op_count;
};

/* The completion of one file. */
struct kvt_io_completion;

/*
 * Moves whole raw files without names, keys or trailers: a store writes a new file that holds the
 * ops' bytes at their offsets (gaps read as zeros) and puts it in place of what was there in one
 * step, a load reads the ranges; a file that does not have one of them is a failure (KVT_ERANGE).
 * Nothing is skipped, verified or removed. Arrays and paths are borrowed and copied, the memory is
 * lent until the completion. Fills completions[file_count]; each must be released. KVT_ENOTSUP
 * where the store has no raw files (object stores), KVT_EINVAL for a bad path, ops of one store
 * that overlap, or two stores to one path in one call; else as kvt_worker_submit_store. These jobs
 * have no id and are not seen by kvt_worker_poll.
 */
KVT_API KVT_MUST_CHECK int kvt_worker_submit_ops(struct kvt_worker *worker,
						 const struct kvt_file_ops *files,
						 size_t file_count, int is_store,
						 const struct kvt_submit_options *options,
						 struct kvt_io_completion **completions);
/* 1 when the file is finished, 0 when not. Never blocks. Any thread. */
KVT_API int kvt_io_completion_done(const struct kvt_io_completion *completion);
/* Waits, at most timeout_ms (negative: for ever). 0 when finished, whatever the result, or
 * KVT_ETIMEDOUT. Any thread. */
KVT_API KVT_MUST_CHECK int kvt_io_completion_wait(struct kvt_io_completion *completion,
						  int64_t timeout_ms);
/* 0 or the failure of a finished file, KVT_EBUSY before. *detailp (may be NULL) is set to one line
 * that lives as long as the completion. */
KVT_API int kvt_io_completion_result(const struct kvt_io_completion *completion,
				     const char **detailp);
/* Gives up the caller's interest; the operation goes on and the memory stays lent until it is
 * finished. NULL is accepted. */
KVT_API void kvt_io_completion_release(struct kvt_io_completion *completion);

/* Statistics */

#define KVT_HISTOGRAM_BUCKETS 160
/* Latencies. Each power of two from 4 ns on has four buckets: bucket 4 * e + q counts the values
 * whose highest bit is 2^(e + 1) and whose next two bits are q. Buckets 0 to 3 count their own
 * number; the last one also counts whatever is larger (more than half an hour). */
struct kvt_histogram {
	uint64_t count;
	uint64_t sum_ns;
	uint64_t buckets[KVT_HISTOGRAM_BUCKETS];
};
/* The upper bound in ns of the bucket that holds the given fraction (0 to 1) of the values; 0 when
 * empty. */
KVT_API uint64_t kvt_histogram_percentile(const struct kvt_histogram *histogram, double fraction);

enum kvt_breaker_state { KVT_BREAKER_CLOSED = 0, KVT_BREAKER_OPEN, KVT_BREAKER_HALF_OPEN };

#define KVT_STATUS_COUNT 16
#define KVT_CLASS_COUNT	 16

struct kvt_stats {
	size_t struct_size;
	/* Since the worker was created. */
	uint64_t keys[4][KVT_STATUS_COUNT]; /* [enum kvt_job_kind][enum kvt_status]: finished keys
					       (files for OPS) */
	uint64_t bytes[4]; /* payload bytes of successful keys by enum kvt_job_kind, skipped ones
			      excluded */
	uint64_t jobs_submitted, jobs_completed, jobs_refused;
	uint64_t requests;		   /* storage requests */
	uint64_t retries[KVT_CLASS_COUNT]; /* by enum kvt_error_class */
	uint64_t removed_corrupt;	   /* objects removed because they were proven corrupt */
	uint64_t merges;		   /* partial objects merged with what was there */
	uint64_t odd_length_misses;	   /* lookups: there, but of a length that is not ours */
	uint64_t zero_bytes_sent;	   /* of partial objects, to stores that keep no holes */
	uint64_t crc_bytes;
	/* Now. */
	uint64_t queued_chunks[4]; /* lookups, expedited loads, loads, stores */
	uint64_t active_chunks;
	uint64_t requests_in_flight;
	uint64_t jobs_live; /* not yet polled */
	uint64_t staging_bytes, staging_used_bytes, staging_peak_bytes, staging_waiters;
	uint32_t breaker;	/* enum kvt_breaker_state */
	uint32_t stores_paused; /* 1 while stores are refused because the store is full */
	/* Latencies of chunks: waiting in the queue; device copies; storage requests. */
	struct kvt_histogram queue_ns, device_ns, storage_ns;
	int last_error; /* the last failure of a key, 0 if none */
	char last_error_detail[256];
	uint64_t dropped_bytes; /* read by loads of parts of chunks, because they lay between what
				   was wanted */
	char backend[256]; /* what the backend has learnt since the store was opened, name=value
			      pairs in one line; "" when it has nothing to say */
};
/* Fills `stats` (struct_size must be set). Never blocks on I/O. Any thread. */
KVT_API KVT_MUST_CHECK int kvt_worker_stats(struct kvt_worker *worker, struct kvt_stats *stats);

/* Plans: what a transfer becomes */

/* One (device pointer, size, object offset) triple. */
struct kvt_copy {
	uint64_t ptr;
	uint64_t size;
	uint64_t offset;
};
/* The copies of one chunk. */
struct kvt_chunk_plan {
	uint64_t key_index;
	uint32_t group;	      /* index in the transfer */
	uint32_t first_slot;  /* of each ref */
	uint32_t block_count; /* consecutive slots of each ref from there */
	uint32_t ref_count;
	uint64_t payload_bytes;	       /* of the whole chunk */
	const struct kvt_copy *copies; /* block_count * ref_count */
	uint64_t copy_count;
};
typedef int (*kvt_plan_fn)(void *context, const struct kvt_chunk_plan *plan);
/* Checks a transfer as kvt_worker_submit_store (is_store) or _load does and calls `callback` for
 * each of its chunks, in order of keys; a nonzero return stops and is returned. The memory that
 * ptrs name is not touched. Any thread. */
KVT_API KVT_MUST_CHECK int kvt_plan_transfer(const struct kvt_transfer *transfer, int is_store,
					     kvt_plan_fn callback, void *context);

/* vLLM's stand-alone file calls */

/*
 * Whether O_DIRECT works in `directory`: an aligned page is written to and read from a temporary
 * file, which is removed. 1 or 0, or a negative code when the directory itself cannot be used.
 * Blocks. Any thread.
 */
KVT_API KVT_MUST_CHECK int kvt_probe_o_direct(const char *directory);

struct kvt_batch_result {
	size_t struct_size;
	size_t succeeded; /* blocks that were moved (or, for a store, were there already) before the
			     first failure */
	size_t error_index; /* which block failed; meaningful when the call failed during I/O */
};
/*
 * Store or load blocks between one buffer and plain raw files: block i is buffer[offsets[i] ..
 * offsets[i] + block_bytes) and the file paths[i]. Blocking; any thread; stops at the first error.
 * Before any I/O every offset is checked against buffer_bytes (KVT_EINVAL names the index).
 * use_o_direct is a wish: a block that cannot be moved so (alignment, file system) is moved through
 * the page cache. Store: an existing path is left alone; else a temporary file beside it appears
 * under its name in one step; folders are made as needed. Load: a file shorter than block_bytes is
 * KVT_ERANGE and is removed, provided that it is still the file that was read and still short; it
 * is never removed for any other failure. A longer file is accepted. `resultp` may be NULL.
 */
KVT_API KVT_MUST_CHECK int kvt_batch_store_block(const char *const *paths, const void *buffer,
						 size_t buffer_bytes, const uint64_t *offsets,
						 size_t count, size_t block_bytes, int use_o_direct,
						 struct kvt_batch_result *resultp);
KVT_API KVT_MUST_CHECK int kvt_batch_load_block(const char *const *paths, void *buffer,
						size_t buffer_bytes, const uint64_t *offsets,
						size_t count, size_t block_bytes, int use_o_direct,
						struct kvt_batch_result *resultp);

KVT_END_DECLS

#endif
