/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The S3 backend: what its files share. A request of the core (struct kvt_io) takes a transfer, a
 * slot of its session with one libcurl handle, and runs one or more HTTP exchanges on it, one after
 * the other; after each of them a step function says what comes next:
 *
 *     session.c    lanes: submit, poll, wake; slots, waiting, time limits
 *     exchange.c   one HTTP exchange, and what of it may be repeated at once
 *     request.c    what it sends: URL, header lines, signature; connection.c: the libcurl handle
 *     reply.c      status, headers and body of an answer, byte by byte as libcurl hands them over
 *     body.c       iovecs read and written piece by piece, and the core's progress
 *     get.c put.c multipart.c remove.c list.c sweep.c    the requests
 *
 * All of it runs on the session's own thread; what sessions share is in struct s3_backend.
 */
#ifndef KVT_S3_S3_H
#define KVT_S3_S3_H

#include <pthread.h>
#include <stdatomic.h>

#include <curl/curl.h>

#include "cache.h"
#include "config.h"
#include "credentials.h"
#include "errors.h"
#include "sign.h"
#include "xml.h"

#define S3_MIB		    (UINT64_C(1) << 20)
#define S3_MIN_PART_BYTES   (5 * S3_MIB)
#define S3_MAX_PART_BYTES   (UINT64_C(5) << 30)
#define S3_MAX_OBJECT_BYTES (UINT64_C(5) << 40)
#define S3_MAX_PARTS	    10000u
#define S3_MAX_KEY_BYTES    1024u
#define S3_MAX_QUERY	    8u
#define S3_MAX_FIELDS	    16u	    /* header lines besides the configured ones */
#define S3_BUFFER_BYTES	    122880L /* receive, and send for large bodies: see bench/RESULTS.md */
#define S3_ETAG_BYTES	    129u
#define S3_ERROR_BODY_BYTES 65536u
#define S3_NS_PER_MS	    INT64_C(1000000)
#define S3_NS_PER_S	    INT64_C(1000000000)
#define S3_CLEAN_UP_NS	    (5 * S3_NS_PER_S) /* for an abort when the deadline has passed */

/* What is learnt of a server. */
enum s3_ability { S3_NOT_KNOWN = 0, S3_CAN, S3_CANNOT };

struct s3_session;

struct s3_backend {
	const struct kvt_host *host;
	struct s3_config config;
	struct s3_provider *provider;
	struct s3_cache *cache;
	atomic_uint in_flight;	       /* requests of all sessions, for max_connections */
	atomic_llong clock_offset_s;   /* the server's clock less ours */
	atomic_bool allowed;	       /* the server has let us read or write something */
	atomic_int conditional_put;    /* enum s3_ability: If-None-Match and If-Match of a PUT */
	atomic_int conditional_commit; /* the same of CompleteMultipartUpload */
	atomic_int unquoted_if_match;  /* S3_CAN: If-Match of a PUT works without quotes only */
	pthread_mutex_t lock;	       /* leaf; guards what follows */
	char region[65];
	struct s3_session *sessions; /* for a forked child */
};

enum s3_method { S3_GET = 0, S3_HEAD, S3_PUT, S3_POST, S3_DELETE };

/* Where the body of a request comes from, and where the body of a 2xx answer goes. */
enum s3_source { S3_SEND_NOTHING = 0, S3_SEND_IOV, S3_SEND_TEXT };
enum s3_sink { S3_DROP = 0, S3_TO_IOV, S3_TO_XML };

struct s3_transfer;

/*
 * Called when an exchange has ended and nothing more is to be repeated: error is 0 for an answer of
 * 2xx that is as it should be. Returns S3_FINISHED with t->result set, or what s3_exchange answered
 * when another one goes on.
 */
enum s3_progress { S3_FINISHED = 0, S3_GOES_ON };
typedef enum s3_progress (*s3_step_fn)(struct s3_transfer *t, int error);

/* One exchange, filled in by the request's own file; strings live until it has ended. */
struct s3_exchange {
	enum s3_method method;
	enum s3_source source;
	enum s3_sink sink;
	const char *verb; /* for messages: "get", "complete" */
	const char *name; /* of the object; NULL: the bucket itself */
	const char *key;  /* instead of name: a whole key as a listing gave it */
	struct s3_pair query[S3_MAX_QUERY];
	uint32_t query_count;
	const char *text; /* S3_SEND_TEXT */
	size_t text_bytes;
	const char *if_match; /* ETag as it is sent; NULL: none */
	bool if_none_match;   /* "*" */
	bool is_ranged;	      /* t->from and io->length */
	bool creates;	      /* headers that go with PUT and CreateMultipartUpload */
	bool touches_data;    /* headers that go with every access to data */
	bool checksum;	      /* io->crc32c is sent */
	bool patient;	      /* the server may think for long before its first byte */
	bool is_quiet;	      /* its failures leave io->detail alone */
	s3_xml_item_fn item;  /* S3_TO_XML: called with the transfer for each item; may be NULL */
	s3_step_fn step;
};

/* What an answer says. */
struct s3_reply {
	long status;		  /* 0: none yet */
	bool has_fields;	  /* all header lines are there */
	char etag[S3_ETAG_BYTES]; /* with its quotes; "" when absent or too long */
	char request_id[72];
	char region[65];      /* x-amz-bucket-region */
	char encoding[24];    /* Content-Encoding */
	uint64_t length;      /* Content-Length, KVT_BYTES_UNKNOWN when absent */
	uint64_t first, last; /* Content-Range, valid when has_range */
	uint64_t total;	      /* of Content-Range, KVT_BYTES_UNKNOWN for "*" or when absent */
	bool has_range;
	int64_t date_s, modified_s; /* -1: absent */
	int64_t retry_after_s;	    /* -1: absent */
	size_t field_bytes;	    /* of all header lines */
	uint64_t body_bytes;	    /* received, whatever became of them */
	bool is_data;		    /* the body goes into the iovec */
	int refused;		    /* what was wrong with it, a code; the body is dropped */
	const char *why;	    /* in words */
};

/* Reads or fills an iovec from its start. */
struct s3_cursor {
	const struct kvt_iovec *iov;
	uint32_t count, at;
	uint64_t offset; /* in iov[at] */
};

/* A slot. */
struct s3_transfer {
	struct s3_session *session;
	struct s3_transfer *next; /* free or waiting */
	CURL *easy;
	struct kvt_io *io;
	struct s3_exchange x;
	struct s3_reply reply;
	struct s3_xml *xml;
	const struct s3_credentials *credentials; /* of the running exchange */
	int64_t deadline_ns;			  /* of the running exchange */
	int64_t moved_ns;			  /* when a byte went either way last */
	int64_t not_before_ns;			  /* while waiting */
	uint64_t refused_generation;		  /* waits for credentials newer than these */
	bool lacks_credentials;			  /* waits for any */
	bool is_running;			  /* in the multi handle */
	bool tried_clock, tried_region, tried_credentials, tried_connection; /* since submit */
	bool is_resent; /* an earlier try of this request may have reached the server */
	int result;

	/* body */
	struct s3_cursor cursor;
	uint64_t sent, told, received;
	bool has_told;

	/* what is sent */
	char path[3 * (S3_MAX_KEY_BYTES + 256) + 2]; /* percent-encoded, with the bucket */
	char *query;				     /* encoded, owned */
	size_t query_room;
	char *lines; /* of the header, owned */
	size_t lines_room;
	struct curl_slist *fields; /* nodes of its own, pointing into lines */
	char range[64];
	char checksum[16];
	char sha256[65];
	bool is_hashed; /* sha256 is that of the iovec */
	char error_text[CURL_ERROR_SIZE];

	/* of the requests */
	int state;	 /* the step that a request is at */
	uint32_t tries;	 /* of CompleteMultipartUpload, of an abort */
	int pending;	 /* the result once something else is done */
	int64_t from;	 /* a get's offset; a negative one: the last io->length bytes */
	uint64_t ticket; /* of the cache */
	s3_step_fn after_ask;
	char etag[S3_ETAG_BYTES]; /* of If-Match, as it is sent */
	char number[24];	  /* of a part; of a page's most names */
	void *work;		  /* owned by the request's file, freed by its `drop` */
	void (*drop)(struct s3_transfer *t);
};

struct s3_session {
	struct s3_backend *backend;
	const struct kvt_host *host;
	CURLM *multi;
	CURLSH *share;
	struct s3_signer *signer;
	int wake_fd;
	uint32_t depth, in_flight;
	struct s3_transfer *slots, *free_slots;
	struct s3_transfer *waiting; /* for credentials or for their time */
	int64_t watched_ns;	     /* when time limits were looked at last */
	struct s3_session *next;     /* under backend->lock */
	int *sockets;		     /* open ones, for a forked child */
	uint32_t socket_count, socket_room;
};

/* etag.c */
/* Whether an object's version is what its parts make: begin, add each part's ETag, end. False where
 * the server's ETags are of another kind, or OpenSSL has no MD5. */
struct s3_etag_of_parts {
	struct evp_md_ctx_st *md5;
	unsigned parts;
	bool is_known;
};
void kvt__s3_etag_begin(struct s3_etag_of_parts *e);
void kvt__s3_etag_add(struct s3_etag_of_parts *e, const char *etag);
bool kvt__s3_etag_end(struct s3_etag_of_parts *e, const struct kvt_version *version);

/* session.c */
int kvt__s3_session_open(void *backend, uint32_t depth, int listing, void **sessionp);
void kvt__s3_session_close(void *session);
int kvt__s3_submit(void *session, struct kvt_io *io);
int kvt__s3_poll(void *session, int64_t until_ns);
void kvt__s3_wake(void *session);
/* In a forked child: closes its descriptors and frees what is ours. */
void kvt__s3_session_forked(struct s3_session *session);
/* Puts the transfer aside until not_before_ns, or until there are credentials. */
void kvt__s3_wait(struct s3_transfer *t, int64_t not_before_ns);

/* Whether there is time for another try after a pause; then the transfer waits to send t->x again.
 */
bool kvt__s3_retry(struct s3_transfer *t, int error, uint32_t most);

/* connection.c */
/* Makes the handle of a slot. KVT_ENOMEM. */
int kvt__s3_easy_create(struct s3_transfer *t);

/* request.c */
/* Makes t->path and t->query. KVT_EINVAL: the key is too long; KVT_ENOMEM. */
int kvt__s3_request_target(struct s3_transfer *t);
/* Makes t->fields, signed with t->credentials. KVT_EINVAL, KVT_ENOMEM; KVT_ETIMEDOUT: a signed body
 * took the time that was left. */
int kvt__s3_request_lines(struct s3_transfer *t);
/* Tells libcurl, at t->moved_ns, which is before the deadline. */
CURLcode kvt__s3_request_set(struct s3_transfer *t, const char *url);

/* exchange.c */
/* Begins t->x: S3_GOES_ON, or S3_FINISHED with t->result when that was not possible. */
enum s3_progress kvt__s3_exchange(struct s3_transfer *t);
/* Again, for a transfer that waited. */
enum s3_progress kvt__s3_exchange_resume(struct s3_transfer *t);
/* libcurl has finished with it: repeats, or calls the step. */
enum s3_progress kvt__s3_exchange_ended(struct s3_transfer *t, CURLcode code);
/* Its time is up: takes it out of the multi handle, which closes its connection. */
enum s3_progress kvt__s3_exchange_expired(struct s3_transfer *t, const char *why);
/* Time in seconds by the server's clock. */
int64_t kvt__s3_server_time(struct s3_backend *b);

/* reply.c */
void kvt__s3_reply_reset(struct s3_transfer *t);
size_t kvt__s3_reply_line(char *line, size_t size, size_t count, void *transfer);
size_t kvt__s3_reply_body(char *data, size_t size, size_t count, void *transfer);
/* What the whole answer comes to, with libcurl's verdict on the transfer; *remedyp as in errors.h.
 */
int kvt__s3_reply_verdict(struct s3_transfer *t, CURLcode code, enum s3_remedy *remedyp);
/* Fills io->info's length, version and age from the answer to a GET, HEAD or PUT. */
void kvt__s3_reply_info(struct s3_transfer *t, uint64_t object_bytes);
/* "put https://host/bucket/key, attempt 2: HTTP 503 SlowDown, request id 17: Please reduce your
 * request rate". `why` is used when no answer tells. */
void kvt__s3_tell(struct s3_transfer *t, const char *why);

/* body.c */
void kvt__s3_cursor_begin(struct s3_cursor *cursor, const struct kvt_iovec *iov, uint32_t count);
void kvt__s3_cursor_read(struct s3_cursor *cursor, void *to, size_t bytes);
void kvt__s3_cursor_write(struct s3_cursor *cursor, const void *from, size_t bytes);
/* From the start again. */
void kvt__s3_body_rewind(struct s3_transfer *t);
/* Callbacks of libcurl. */
size_t kvt__s3_body_read(char *to, size_t size, size_t count, void *transfer);
int kvt__s3_body_seek(void *transfer, curl_off_t offset, int origin);
/* The iovec as hex SHA-256 into t->sha256; KVT_ETIMEDOUT when the deadline passes meanwhile. */
int kvt__s3_body_sha256(struct s3_transfer *t);

/* The requests: begin them on a slot. KVT_IO_HEAD may be answered without one: true when it was,
 * with io->result set. */
bool kvt__s3_head_cached(struct s3_session *session, struct kvt_io *io);
enum s3_progress kvt__s3_get(struct s3_transfer *t);
enum s3_progress kvt__s3_head(struct s3_transfer *t);
enum s3_progress kvt__s3_put(struct s3_transfer *t);
enum s3_progress kvt__s3_begin(struct s3_transfer *t);
enum s3_progress kvt__s3_part(struct s3_transfer *t);
enum s3_progress kvt__s3_commit(struct s3_transfer *t);
enum s3_progress kvt__s3_abort(struct s3_transfer *t);
enum s3_progress kvt__s3_remove(struct s3_transfer *t);
enum s3_progress kvt__s3_list(struct s3_transfer *t);
enum s3_progress kvt__s3_sweep(struct s3_transfer *t);
/* The exchange that asks for an object's length and version, with `step` after it. */
enum s3_progress kvt__s3_ask(struct s3_transfer *t, s3_step_fn step);
/* Whether io->info, filled by such an exchange, is the version that the request wants. */
bool kvt__s3_is_wanted_version(const struct kvt_io *io);

#endif
