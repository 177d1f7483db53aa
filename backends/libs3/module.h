/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The backend "s3+libs3": what its files share. Every request of the core is done inside submit, by
 * one or more requests of libs3, one after the other, on a request context of the session's own:
 *
 *     module.c     the table, opening, submit
 *     config.c     options and environment
 *     call.c       one request of libs3 from its start to its end, deadlines
 *     errors.c     what S3Status means
 *     body.c       iovecs read and written piece by piece, and the core's progress
 *     object.c     head, remove
 *     get.c        get
 *     put.c        put, and how it is confirmed
 *     parts.c      objects in parts, gathered in memory
 *     multipart.c  the same as multipart uploads, where libs3 has them
 *     list.c       list
 *
 * libs3 takes a good deal for success that is none, whatever its version: a body that was cut off,
 * a whole object in place of a range, and (2.0) a PUT that was refused without a word. So nothing
 * is believed but what was counted here, and a PUT counts once a HEAD has shown it.
 */
#ifndef KVT_LIBS3_MODULE_H
#define KVT_LIBS3_MODULE_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kvtier/backend.h>

#include "compat.h"

#define LIBS3_MIB (UINT64_C(1) << 20)
/* S3 allows 1,024. libs3 2.0 writes one byte past a buffer of its own when it encodes a marker of
 * 1,024 bytes that all need escaping. */
#define LIBS3_MAX_KEY_BYTES    1023u
#define LIBS3_MAX_OBJECT_BYTES (UINT64_C(5) << 40)
#define LIBS3_MAX_PUT_BYTES    (UINT64_C(5) << 30)
#define LIBS3_ETAG_BYTES       129u
#define LIBS3_HOST_BYTES       128u	    /* of a Host header in libs3 4.1 */
#define LIBS3_MARK_NAME	       "kvtier-put" /* x-amz-meta-kvtier-put */
#define LIBS3_MARK_BYTES       56u
#define LIBS3_NS_PER_MS	       INT64_C(1000000)

struct libs3_config {
	char *memory; /* holds all strings; cleansed at the end */
	size_t memory_bytes;
	const char *host; /* host[:port] */
	const char *bucket;
	const char *key_root; /* what stands before a name in a key: "" or "prefix/" */
	const char *access_key, *secret_key, *session_token; /* NULL: none */
	const char *region;				     /* NULL: libs3's own default */
	bool https, verify, is_loopback, is_virtual;
	uint64_t max_object_bytes;
};

struct libs3_backend {
	const struct kvt_host *host;
	struct libs3_config config;
	S3BucketContext bucket; /* points into config; never changed */
};

/* What is known of an object. */
struct libs3_object {
	uint64_t bytes;
	int64_t modified_s; /* -1: not known */
	char etag[LIBS3_ETAG_BYTES];
	char mark[LIBS3_MARK_BYTES]; /* of the PUT that made it, "" when it has none */
};

struct libs3_session {
	struct libs3_backend *backend;
	const struct kvt_host *host;
	S3RequestContext *context; /* NULL: made at the next request */
	/* The object that was looked at last, so that the ranges of one object that another client
	 * wrote cost one HEAD: what is known counts for an answer with the same ETag. known_key is
	 * "" when there is none. */
	struct libs3_object known;
	char known_key[LIBS3_MAX_KEY_BYTES + 1];
	char key[LIBS3_MAX_KEY_BYTES + 1]; /* of the running request */
};

/* config.c */
extern const struct kvt_option_spec kvt__libs3_option_specs[];
/* On failure host->fail has said why and nothing is left. */
int kvt__libs3_config_init(struct libs3_config *config, const struct kvt_host *host,
			   const struct kvt_backend_config *from);
void kvt__libs3_config_fini(struct libs3_config *config, const struct kvt_host *host);

/* errors.c */
/* KVT_* for a status; 0 for S3StatusOK. */
int kvt__libs3_error(S3Status status);

/* call.c */

/* One request of libs3. First member of what its callbacks get. */
struct libs3_call {
	struct libs3_session *session;
	const char *verb; /* for messages: "get" */
	int64_t deadline_ns;
	bool done, expired;
	bool is_starting; /* the lock of call.c is held */
	S3Status status;
	/* Said by a callback that stopped the request, instead of the status. */
	int stopped;
	const char *why;
	char message[160], resource[96]; /* of S3, cleaned of control characters */
};

/* A fresh call for an io; verb is static. */
struct libs3_call kvt__libs3_call(struct libs3_session *session, const struct kvt_io *io,
				  const char *verb);
/* False when there is no context to be had; then the call is done. Otherwise the request is to be
 * started on session->context at once, under a lock of the process. kvt__libs3_call_run comes next,
 * either way. */
bool kvt__libs3_call_begin(struct libs3_call *call);
/* Whether the io's time is up before anything was asked of libs3; said under `verb` then. */
bool kvt__libs3_is_late(struct libs3_session *session, struct kvt_io *io, const char *verb);
/* Drives the request to its end or to the deadline; none of its memory is in use afterwards.
 * Returns the result code. */
int kvt__libs3_call_run(struct libs3_call *call);
/* For commits, which the core cannot do again: whether one that failed so should be, after a pause
 * that this takes. `tried`: how often that has happened already. */
bool kvt__libs3_again(struct libs3_session *session, const struct kvt_io *io, int error,
		      unsigned tried);
/* The one line of a failed io: "get key of bucket at host: ErrorSlowDown: message". */
void kvt__libs3_tell(struct libs3_call *call, struct kvt_io *io);
/* A line of its own: `what` is the cause. */
void kvt__libs3_say(struct libs3_session *session, struct kvt_io *io, const char *verb,
		    const char *what);
/* For S3ResponseHandler; callback_data begins with a struct libs3_call. */
void kvt__libs3_on_complete(S3Status status, const S3ErrorDetails *details, void *callback_data);
S3Status kvt__libs3_on_properties(const S3ResponseProperties *properties, void *callback_data);

/* Keeps SIGPIPE away from the calling thread: lanes have it blocked, threads that make blocking
 * store calls may not. */
struct libs3_pipe_guard {
	sigset_t before;
	bool was_pending;
};
void kvt__libs3_pipe_begin(struct libs3_pipe_guard *guard);
void kvt__libs3_pipe_end(const struct libs3_pipe_guard *guard);

/* body.c */

/* Reads an iovec from its start, telling io->progress (io NULL: nobody) before each piece. */
struct libs3_source {
	struct kvt_io *io;
	const struct kvt_iovec *iov;
	uint32_t count, at;
	uint64_t offset; /* in iov[at] */
	uint64_t length, early, done, told;
	bool is_late;
};
void kvt__libs3_source_init(struct libs3_source *source, struct kvt_io *io,
			    const struct kvt_iovec *iov, uint32_t count, uint64_t length);
/* From the start again. */
void kvt__libs3_source_rewind(struct libs3_source *source);
/* Copies at most `bytes` bytes; how many. */
uint64_t kvt__libs3_source_read(struct libs3_source *source, uint8_t *to, uint64_t bytes);

/* Fills the iovec of a get. */
struct libs3_sink {
	struct kvt_io *io;
	uint32_t at;
	uint64_t offset, told;
};
void kvt__libs3_sink_init(struct libs3_sink *sink, struct kvt_io *io);
/* Nothing has landed, for another try. */
void kvt__libs3_sink_rewind(struct libs3_sink *sink);
/* Takes all of it or, when that is more than the iovec has room for, nothing: false. */
bool kvt__libs3_sink_write(struct libs3_sink *sink, const uint8_t *from, uint64_t bytes);

/* object.c */

/* session->key from a name; false (said) when it is too long. */
bool kvt__libs3_key(struct libs3_session *session, struct kvt_io *io);
/* Fills all but `bytes` from the headers of an answer; false when there is no ETag to be seen. */
bool kvt__libs3_object_read(struct libs3_object *object, const S3ResponseProperties *properties);
/* HEAD of session->key. On failure the line has been said under `verb`. */
int kvt__libs3_ask(struct libs3_session *session, struct kvt_io *io, const char *verb,
		   struct libs3_object *object);
void kvt__libs3_fill_info(const struct libs3_object *object, struct kvt_object_info *info);
/* What session->key is known to be, or that nothing is known. */
void kvt__libs3_remember(struct libs3_session *session, const struct libs3_object *object);
void kvt__libs3_forget(struct libs3_session *session);
int kvt__libs3_head(struct libs3_session *session, struct kvt_io *io);
int kvt__libs3_remove(struct libs3_session *session, struct kvt_io *io);

/* get.c */
int kvt__libs3_get(struct libs3_session *session, struct kvt_io *io);

/* put.c */

/* What the HEADs after a PUT have shown so far. */
struct libs3_witness {
	bool was_asked, is_there;
	struct libs3_object seen;
};
/* Asks whether the object with this mark is there: 0, KVT_EAGAIN when the PUT should be done again
 * to tell, or why not. */
int kvt__libs3_confirm(struct libs3_session *session, struct kvt_io *io, const char *mark,
		       struct libs3_witness *witness);
/* Stores the source under session->key and confirms it. */
int kvt__libs3_store(struct libs3_session *session, struct kvt_io *io, struct libs3_source *source);
int kvt__libs3_put(struct libs3_session *session, struct kvt_io *io);
/* A new mark: 32 hexadecimal digits, "-", the length. */
bool kvt__libs3_mark_make(char mark[LIBS3_MARK_BYTES], uint64_t bytes);
/* KVT_BYTES_UNKNOWN when it is none. */
uint64_t kvt__libs3_mark_length(const char *mark);
/* What every PUT says of itself; `pair` must live as long as the properties. */
S3PutProperties kvt__libs3_put_properties(const char *mark, S3NameValue *pair);

/* parts.c, multipart.c */
int kvt__libs3_begin(struct libs3_session *session, struct kvt_io *io);
int kvt__libs3_part(struct libs3_session *session, struct kvt_io *io);
int kvt__libs3_commit(struct libs3_session *session, struct kvt_io *io);
int kvt__libs3_abort(struct libs3_session *session, struct kvt_io *io);
/* What parts may be. */
void kvt__libs3_parts_limits(const struct libs3_backend *backend,
			     struct kvt_backend_limits *limits);

/* list.c */
int kvt__libs3_list(struct libs3_session *session, struct kvt_io *io);

#endif
