/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a storage backend implements: a table of functions that moves whole objects and byte ranges
 * for the core. docs/adding-a-backend.md walks through it, backends/skeleton compiles,
 * kvtier-backend(3) is the manual page. A backend includes this header and its own only.
 *
 * Names. An object's name is relative to the place that was opened: components of [A-Za-z0-9._-]
 * and other UTF-8 without control characters, separated by single slashes, no "." or ".."
 * component, no slash at either end. Names that begin with ".kvtier/" are the backend's own: the
 * core never uses them.
 *
 * Threads. open and close run on the opening thread while no session is alive. Each session belongs
 * to the one thread that opened it: session_open, submit, poll and session_close run there; wake
 * runs on any thread, but never before session_open has returned nor after session_close has begun.
 * Several sessions of one backend run at once on different threads: what they share needs a lock of
 * the backend's own, held across no call out.
 *
 * Time is CLOCK_MONOTONIC in nanoseconds.
 */
#ifndef KVTIER_BACKEND_H
#define KVTIER_BACKEND_H

#include <stddef.h>
#include <stdint.h>

#include <kvtier/error.h>
#include <kvtier/export.h>

KVT_BEGIN_DECLS

/* Changes when a backend built against an older header would misbehave; additions at the end of
 * structs do not change it. */
#define KVT_BACKEND_ABI 1

struct kvt_io;

/* What the core offers a backend */

enum kvt_host_log_level { KVT_HOST_ERROR = 1, KVT_HOST_WARNING, KVT_HOST_INFO, KVT_HOST_DEBUG };

/*
 * Services of the core, handed over at open. It lives until close has returned. All functions may
 * be called from any thread, with no lock held.
 */
struct kvt_host {
	size_t struct_size;
	uint32_t abi;
	/* One line of log, no newline, no secrets. Lines with the same `topic` (static string)
	 * appear at most once a second. */
	void (*log)(const struct kvt_host *host, enum kvt_host_log_level level, const char *topic,
		    const char *format, ...) KVT_PRINTF(4, 5);
	/* Sets the one line of detail of a failed io, for example "put ab/cd.bin: pwrite 4096 bytes
	 * at 0: No space left on device". Only between submit and completion, on the session's
	 * thread. */
	void (*detail)(struct kvt_io *io, const char *format, ...) KVT_PRINTF(2, 3);
	/* Sets the detail of a failing open or session_open on the calling thread. */
	void (*fail)(const struct kvt_host *host, const char *format, ...) KVT_PRINTF(2, 3);
	/* CRC-32C (Castagnoli) of `bytes` bytes continued from `crc`; start with 0. */
	uint32_t (*crc32c)(uint32_t crc, const void *data, size_t bytes);
	int64_t (*now_ns)(void);
	/* Memory through the caller's allocation hooks; NULL when there is none. alignment: a power
	 * of two. */
	void *(*alloc)(const struct kvt_host *host, size_t bytes, size_t alignment);
	void (*free)(const struct kvt_host *host, void *memory);
	void *core; /* the core's own */
};

/* Opening */

/* One option that a backend knows; the core refuses all others before open is called. */
struct kvt_option_spec {
	const char *name;
	const char *default_value; /* NULL: none */
	const char *help;	   /* one line */
};

struct kvt_option_value {
	const char *name;
	const char *value;
};

struct kvt_backend_ops;

/* Lent until open returns. */
struct kvt_backend_config {
	size_t struct_size;
	const char *
		location; /* the URI behind its scheme and colon: "///srv/kv" of "file:///srv/kv" */
	const struct kvt_option_value *options; /* known names only, at most once each */
	size_t option_count;
	/* Wrappers ("fault+file:///srv/kv") only, else NULL: the table of the wrapped backend,
	 * already checked, which lives as long as the process, and its configuration, lent like
	 * this one. */
	const struct kvt_backend_ops *inner;
	const struct kvt_backend_config *inner_config;
};

/* What a backend can do. */
enum kvt_capability {
	KVT_CAP_IF_ABSENT =
		1 << 0, /* put and commit take KVT_IO_IF_ABSENT and are atomic about it */
	KVT_CAP_IF_VERSION_PUT = 1 << 1, /* put and commit take KVT_IO_IF_VERSION */
	KVT_CAP_IF_VERSION_GET = 1 << 2, /* get takes KVT_IO_IF_VERSION */
	KVT_CAP_IF_VERSION_REMOVE =
		1 << 3, /* remove takes KVT_IO_IF_VERSION; without it the core compares first */
	KVT_CAP_HOLES = 1 << 4,	    /* NULL iovec entries of a put cost neither space nor traffic */
	KVT_CAP_RAW_FILES = 1 << 5, /* objects are plain files that other software reads by path */
	KVT_CAP_TOUCH = 1 << 6,	    /* implements KVT_IO_TOUCH */
	KVT_CAP_FULL_BODY =
		1 << 7, /* needs the whole body and io->crc32c before submit: no late tail */
	KVT_CAP_GET_DISCARD = 1 << 8, /* get accepts NULL iovec entries and drops those bytes */
};

/* Filled by open and fixed from then on. The core fills the defaults named here beforehand. */
struct kvt_backend_limits {
	size_t struct_size;
	uint64_t min_part_bytes;   /* smallest part but the last; default 1 */
	uint64_t max_part_bytes;   /* largest put or part; default 2^46 */
	uint64_t max_object_bytes; /* default 2^46 + 2^32 */
	uint32_t max_parts;	   /* most parts of one object; default 2^20 */
	uint32_t max_iov;	   /* iovec entries of one io; default 1,024, at least 2 */
	uint32_t memory_alignment; /* of every non-NULL iov_base and every iov_len of a put, part or
				    * get, but for a last entry's length; a power of two, at most
				    * 4,096; default 1.
				    * What does not fit goes through staging, whose memory is
				    * aligned to 4,096. A hint for speed: a backend must still do
				    * ios that do not fit. */
	uint32_t max_name_bytes;   /* longest object name; default 1,024 */
	uint32_t default_depth;	   /* requests in flight on one session that suit it; default 16;
				      blocking backends: 1 */
	uint32_t capabilities;	   /* enum kvt_capability */
	char detail[256]; /* what an operator wants to see: "engine=uring direct=on filesystem=ext4"
			   */
	/* What part_bytes is when the caller does not say, rounded down to a multiple of 4,096; 0,
	 * the default: the core's own. */
	uint64_t default_part_bytes;
	/* With KVT_CAP_GET_DISCARD: ranges of one object that lie closer together than this are
	 * read by one get, which drops what lies between them; 0, the default: never. About what
	 * moves in the time that one more request takes. */
	uint64_t merge_gap_bytes;
};

/* One request */

enum kvt_io_op {
	KVT_IO_PUT = 1, /* write a whole object, all or nothing */
	KVT_IO_BEGIN,	/* begin an object in parts; sets io->handle */
	KVT_IO_PART, /* write one part at its offset; parts of one handle may be in flight together,
			in any order */
	KVT_IO_COMMIT, /* make the object appear; ends the handle, also when it fails */
	KVT_IO_ABORT,  /* give the object up; ends the handle, also when it fails; no part is in
			* flight */
	KVT_IO_GET,    /* read a byte range, exactly */
	KVT_IO_HEAD,   /* length and version */
	KVT_IO_REMOVE,
	KVT_IO_LIST,  /* one page of names; only on sessions of blocking store calls, may block */
	KVT_IO_TOUCH, /* set the access time to now */
	KVT_IO_SWEEP, /* remove leftovers of dead processes (temporary files, stale uploads); sets
		       * io->swept; only on sessions of blocking store calls, may block */
};

enum kvt_io_flag {
	/* put, commit: fail with KVT_EEXIST when the object is there, with io->info filled when it
	 * is cheap to know (else info.object_bytes is KVT_BYTES_UNKNOWN). Without a condition an
	 * existing object is replaced. */
	KVT_IO_IF_ABSENT = 1 << 0,
	/* put, commit, get, remove: fail with KVT_EPRECOND when the object is not io->if_version.
	 */
	KVT_IO_IF_VERSION = 1 << 1,
	/* put: the last iovec entry is filled late: by io->progress, when it is told that all
	 * bytes before it have been read. See there. Never set for a backend with
	 * KVT_CAP_FULL_BODY. */
	KVT_IO_LATE_TAIL = 1 << 2,
	/* head before a store: a backend for which asking is dear answers KVT_EAGAIN at once
	 * (DONE), and the core goes on with a put under KVT_IO_IF_ABSENT. io->object_bytes is the
	 * length to be stored. */
	KVT_IO_IF_CHEAP = 1 << 3,
	/* head: an answer that was true a short while ago will do, provided that it tells of what
	 * was done by this backend's own sessions since. */
	KVT_IO_CACHED_OK = 1 << 4,
};

#define KVT_BYTES_UNKNOWN UINT64_MAX

/* Identifies one content of an object: an ETag; inode, mtime and size. Compared bytewise. */
struct kvt_version {
	uint32_t bytes; /* 0: unknown */
	uint8_t value[128];
};

struct kvt_object_info {
	uint64_t object_bytes; /* total length, KVT_BYTES_UNKNOWN when not known */
	struct kvt_version version;
	int64_t age_ns; /* since it was written, -1 when not known; servers: by the server's clock
			 */
	int64_t access_age_ns; /* since the access time, -1 when not kept */
};

struct kvt_iovec {
	void *iov_base; /* NULL: put: iov_len zero bytes; get: drop iov_len bytes
			   (KVT_CAP_GET_DISCARD) */
	uint64_t iov_len;
};

struct kvt_list_item {
	const char *name;
	struct kvt_object_info info;
};

/*
 * One request. The io, its iovec, its strings and the memory are lent to the backend from submit
 * until the completion; the core changes none of them meanwhile and neither does the backend,
 * except the members under "result".
 */
struct kvt_io {
	/* request, set by the core */
	uint32_t op;	/* enum kvt_io_op */
	uint32_t flags; /* enum kvt_io_flag */
	const char
		*name; /* object name; list: only names that begin with it are wanted, may be "" */
	const struct kvt_iovec *iov;
	uint32_t iov_count;
	uint32_t part_number; /* part: from 0 */
	uint64_t length;      /* put, part, get: the sum of iov_len */
	int64_t offset; /* part, get: of the first byte; get: a negative one counts from the end of
			   the object */
	uint64_t object_bytes; /* put, begin: total length of the object; head with KVT_IO_IF_CHEAP:
				* the length to be stored */
	uint32_t crc32c;       /* KVT_CAP_FULL_BODY, put: CRC-32C of the whole object */
	uint32_t attempt;      /* 1 for the first try of this request, then one more each time; 0:
				  not counted. For messages */
	int64_t deadline_ns; /* absolute. A backend completes with KVT_ETIMEDOUT once it has passed
			      * and the memory is quiet; an operation that cannot be taken back is
			      * waited for first */
	const struct kvt_version *if_version; /* with KVT_IO_IF_VERSION, else NULL */
	/*
	 * Put, part and get, may be NULL then: tells that the first `bytes` bytes are about to be
	 * read from the iovec (put, part), or have landed in it (get), in order, so that the core
	 * checksums them while they are hot in the cache; pieces of at most 256 KiB serve that
	 * best. Called in submit or poll on the session's thread, never blocks. After a rewind (a
	 * retry inside the backend) it starts again at 0: a call with bytes == 0, then increasing.
	 * With KVT_IO_LATE_TAIL the last iovec entry may be read only after a call that covers all
	 * bytes before it; the same bytes come again after a rewind. Before completing, a
	 * successful put, part or get has reported all bytes (put, part with a late tail: all
	 * before the tail).
	 */
	void (*progress)(struct kvt_io *io, uint64_t bytes);
	/* List: called for each name, in any order, in submit or poll; the item is borrowed for the
	 * call. Nonzero: stop, and complete with that value. */
	int (*list_item)(struct kvt_io *io, const struct kvt_list_item *item);
	/* List: where to go on, "" at first; the backend writes the next page's token, "" when the
	 * listing is at its end. */
	char *list_token;
	size_t list_token_bytes; /* size of that buffer, at least 2,048 */
	uint32_t list_max;	 /* at most this many names in one page, about */
	uint32_t sweep_age_s; /* sweep: leftovers whose owner cannot be told are removed when older
				 than this */
	/* Called exactly once inside poll for an io that submit answered with KVT_QUEUED; never for
	 * one that it answered with KVT_DONE. It may call submit again. */
	void (*complete)(struct kvt_io *io);
	void *owner; /* the core's */

	/* result, set by the backend */
	int result; /* 0 or a negative code */
	uint32_t swept;
	uint64_t bytes_landed; /* get: bytes that are in the iovec, also when it failed. With
				* info.version set too, the next try asks only for the rest, of
				* that version */
	void *handle; /* begin sets it; part, commit and abort get it; bound to this session */
	struct kvt_object_info
		info; /* get, head: filled when the object is there (KVT_ERANGE included); put,
		       * commit: filled where known; else object_bytes is KVT_BYTES_UNKNOWN */
	char *detail_buffer; /* behind host->detail */
	uint32_t detail_bytes;
	uint32_t reserved2;
	/* io_private_bytes bytes of the backend's own, aligned to 16, undefined at submit. */
	void *private_data;
	/* With a TRANSIENT or THROTTLED failure: the server asks not to be asked again before so
	 * long; 0 at submit: it does not say. */
	int64_t retry_after_ns;
};

/* Answers of submit. */
enum kvt_submit_answer {
	KVT_DONE = 0,	/* finished; io->result says how */
	KVT_QUEUED = 1, /* exactly one io->complete will follow, inside poll on this session */
	KVT_BUSY = 2, /* nothing was kept; the core submits it again after the next completion. Only
		       * while this session has an io in flight */
};

/* The table */

/*
 * Copied when registered: a shorter table of an older backend is padded with zeros. Members marked
 * "required" must not be NULL; a table that lacks one is refused with a message that names it.
 */
struct kvt_backend_ops {
	size_t struct_size;
	uint32_t abi;	  /* KVT_BACKEND_ABI */
	uint32_t wraps;	  /* nonzero: wraps another backend; its scheme is written <name>+<inner
			     scheme>: */
	const char *name; /* required; also the URI's scheme: [a-z0-9]+, or such parts joined by '+'
			   * ("s3+libs3") */
	const struct kvt_option_spec *option_specs; /* ended by a NULL name; NULL: no options */
	size_t io_private_bytes;
	/*
	 * Required. Opens the place. May block. *limits holds the defaults. On failure nothing is
	 * left behind, and host->fail has said why in one line. A wrapper opens its inner backend
	 * itself, with the same host.
	 */
	int (*open)(const struct kvt_host *host, const struct kvt_backend_config *config,
		    void **backendp, struct kvt_backend_limits *limits);
	/* Required. Every session is closed. May block briefly. Never fails. */
	void (*close)(void *backend);
	/* Required. Called on the session's thread. `depth` requests at most will be in flight on
	 * it. `listing` is nonzero for sessions of blocking store calls. On failure nothing is left
	 * and host->fail has said why. */
	int (*session_open)(void *backend, uint32_t depth, int listing, void **sessionp);
	/* Required. No io is in flight and every handle has ended. */
	void (*session_close)(void *session);
	/*
	 * Required. Takes one request: returns KVT_DONE, KVT_QUEUED or KVT_BUSY, or a negative
	 * usage error (KVT_EINVAL, KVT_ENOTSUP), which the core treats as the result. A backend
	 * with poll should not block in it for longer than a plain system call on a local file
	 * takes.
	 */
	int (*submit)(void *session, struct kvt_io *io);
	/*
	 * Delivers completions; sleeps until at least one has been delivered, wake was called, or
	 * CLOCK_MONOTONIC reaches until_ns (0: never sleeps; INT64_MAX: no time limit). Wakes are
	 * sticky: one before poll makes the next poll return at once, and many count as one.
	 * Returns how many were delivered, or a negative code when it could not look: the core logs
	 * that and asks again after a pause. NULL, with wake NULL too, for a blocking backend,
	 * whose submit always answers KVT_DONE.
	 */
	int (*poll)(void *session, int64_t until_ns);
	/* NULL exactly when poll is. Any thread, also in a device's callback: never blocks, takes
	 * no lock that is held across a call out. */
	void (*wake)(void *session);
	/* May be NULL: called in a forked child instead of session_close and close: close
	 * descriptors, free memory, touch nothing outside the process, take no lock. */
	void (*forked)(void *backend);
	/* May be NULL: writes what it has learnt since it was opened, for operators: name=value
	 * pairs in one line ("exists_check=conditional clock_offset_s=-3"), NUL-terminated, no
	 * secrets. `bytes` is at least 1. Any thread, between open and close; never blocks. */
	void (*describe)(void *backend, char *text, size_t bytes);
};

/*
 * A loadable module exports one symbol of this type, named KVT_BACKEND_ENTRY. It returns its table,
 * or NULL when host->abi is one that it cannot work with. The table must live as long as the
 * process.
 */
typedef const struct kvt_backend_ops *(*kvt_backend_entry_fn)(const struct kvt_host *host);
#define KVT_BACKEND_ENTRY "kvt_backend_entry"

/* Registers a backend of the calling program. The table and its name are copied, its option list
 * must live as long as the process. KVT_EINVAL names what is missing or wrong in it, KVT_EEXIST
 * when the name is taken. Any thread. */
KVT_API KVT_MUST_CHECK int kvt_backend_register(const struct kvt_backend_ops *ops);

KVT_END_DECLS

#endif
