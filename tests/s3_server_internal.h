/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the S3 server share:
 *
 *     s3_server.c          start and stop, connections
 *     s3_server_request.c  a request from its first line to its end
 *     s3_server_seen.c     counts, remembered requests
 *     s3_server_auth.c     signature version 4, verified
 *     s3_server_rules.c    rules, and the gate
 *     s3_server_reply.c    an answer, and what a rule does to it
 *     s3_server_wire.c     answers written to the socket byte by byte, cuts and waits
 *     s3_server_store.c    buckets, objects, uploads
 *     s3_server_objects.c, s3_server_uploads.c, s3_server_lists.c    what requests do
 *     s3_server_admin.c    what scripts ask of the server itself
 *     s3_server_text.c     encodings and times
 */
#ifndef KVT_TESTS_S3_SERVER_INTERNAL_H
#define KVT_TESTS_S3_SERVER_INTERNAL_H

#include <microhttpd.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <stdatomic.h>

#include "s3_server.h"

#define S3S_ETAG_BYTES	 80u
#define S3S_TEXT_BYTES	 (4u << 20) /* of a request's XML */
#define S3S_MOST_QUERY	 32u
#define S3S_HEADER_BYTES 8192u
#define S3S_LIMIT_MS	 90000

/* ---- What is stored ---- */

/* Bytes that came in one request. */
struct s3s_buffer {
	atomic_uint refs;
	uint64_t bytes;
	uint8_t data[];
};

/* One content of an object, never changed once it can be found. */
struct s3s_object {
	atomic_uint refs;
	uint64_t bytes;
	atomic_llong modified_s;
	char etag[S3S_ETAG_BYTES]; /* quoted */
	char crc32c[12];	   /* base64, "" when not known */
	char sse_key[40];	   /* MD5 of a customer's key, "" for none */
	char metadata[512];	   /* headers x-amz-meta-*, as they came, each with \n */
	unsigned count;
	struct s3s_buffer *buffers[];
};

struct s3s_entry {
	char *name; /* "bucket/key" */
	struct s3s_object *object;
};

struct s3s_part {
	unsigned number;
	char etag[S3S_ETAG_BYTES];
	struct s3s_buffer *buffer;
};

struct s3s_upload {
	struct s3s_upload *next;
	char *name, id[48];
	int64_t began_s;
	char sse_key[40];
	struct s3s_part *parts; /* by number */
	unsigned count;
};

/* ---- The server ---- */

struct s3s_request;

struct s3s_connection {
	struct s3s_connection *next, *prev;
	int fd;
	uint64_t number;
	unsigned requests;
	bool busy, answered;	     /* a request is on it; its answer is under way */
	struct s3s_request *request; /* owned here until it has ended */
};

struct s3s_rule {
	struct s3s_rule *next;
	struct s3_server_rule rule; /* strings owned */
	unsigned skipped, used;
};

struct s3_server {
	struct s3_server_options options; /* strings owned */
	char url[96];
	struct MHD_Daemon *daemon;
	unsigned port;
	atomic_uint traits;

	pthread_mutex_t lock; /* leaf; guards all below */
	pthread_cond_t changed;
	bool closing; /* waits end */
	struct s3s_connection *connections;
	uint64_t connections_ever;
	char **buckets;
	unsigned bucket_count;
	struct s3s_entry *entries; /* sorted by name */
	size_t entry_count, entry_room;
	struct s3s_upload *uploads;
	char **completed; /* ids of uploads that were completed */
	size_t completed_count;
	uint64_t etags, ids, pages; /* given so far */

	struct s3s_rule *rules, **rules_end;
	struct s3s_rule *old_rules; /* of requests that may still be under way */
	unsigned rule_hits;
	unsigned held;	      /* requests at the gate */
	uint64_t gate_number; /* of its openings */

	struct s3_server_counts counts;
	uint64_t numbers;		/* of requests, ever */
	struct s3_server_request *seen; /* a ring */
	size_t seen_room;

	/* the key that signatures of the day are made with */
	char day_scope[96];
	uint8_t day_key[32];
};

struct s3s_pair {
	char *name, *value;
};

/* One answer. */
struct s3s_reply {
	int status;
	char lines[S3S_HEADER_BYTES]; /* of the header, each with \r\n */
	size_t line_bytes;
	char *text; /* body, owned; NULL: none or of the object */
	size_t text_bytes, text_room;
	struct s3s_object *object; /* held */
	uint64_t first, bytes;	   /* of the object */
	bool bodiless;		   /* 204, 304 */
};

struct s3s_request {
	struct s3_server *server;
	struct s3s_connection *on;
	struct MHD_Connection *connection;
	char *uri;  /* raw */
	char *path; /* raw, without the query */
	char *bucket, *key;
	struct s3s_pair query[S3S_MOST_QUERY]; /* decoded */
	unsigned query_count;
	char *headers; /* lines "name: value\n", names in lower case */
	char method[16];
	unsigned op;
	char id[24];
	uint64_t number;
	bool started, is_head, is_admin;

	bool has_rule;
	struct s3_server_rule rule; /* strings of the server */

	/* body */
	uint64_t length, received;
	struct s3s_buffer *buffer; /* of a PUT or part */
	char *text;		   /* of what sends XML */
	size_t text_bytes;
	EVP_MD_CTX *sha; /* when the payload is signed */
	char sha256[65]; /* as signed; "" when it is not */
	bool upload_cut_done;
	struct s3s_reply reply;
	bool failed; /* reply has an error already */
	bool cut_done;
};

/* ---- s3_server_request.c: callbacks of libmicrohttpd ---- */
void *s3s_request_begin(void *server, const char *uri, struct MHD_Connection *connection);
enum MHD_Result s3s_request_go_on(void *server, struct MHD_Connection *connection, const char *url,
				  const char *method, const char *version, const char *data,
				  size_t *bytes, void **request);
void s3s_request_ended(void *server, struct MHD_Connection *connection, void **request,
		       enum MHD_RequestTerminationCode code);
/* Accepts NULL. */
void s3s_request_free(struct s3s_request *r);

/* ---- s3_server_text.c ---- */
/* Allocated; NULL when memory is short. '+' becomes a blank when `form`. */
char *s3s_decode(const char *text, size_t bytes, bool form);
/* Appends to an allocated text; false when memory is short. */
bool s3s_append(char **text, size_t *bytes, size_t *room, const char *format, ...)
	__attribute__((format(printf, 4, 5)));
/* Percent-encoded, upper-case digits; blank as '+' when `form`, else "%20". Allocated. */
char *s3s_encode(const char *text, bool keep_slash, bool form);
/* With entities. Allocated. */
char *s3s_xml_escape(const char *text);
void s3s_http_date(int64_t t, char out[32]);
void s3s_iso_date(int64_t t, char out[32]);
/* "20130524T000000Z", or -1. */
int64_t s3s_compact_date(const char *text);
void s3s_hex(const uint8_t *data, size_t bytes, char *out);
void s3s_base64(const uint8_t *data, size_t bytes, char *out);
char *s3s_copy(const char *text);

/* ---- s3_server_store.c ---- */
int64_t s3s_now(struct s3_server *server);
void s3s_buffer_release(struct s3s_buffer *buffer);
struct s3s_buffer *s3s_buffer_create(uint64_t bytes);
struct s3s_object *s3s_object_create(unsigned buffers);
void s3s_object_release(struct s3s_object *object);
/* A new ETag for these bytes, of the kind that the server has. */
void s3s_etag_make(struct s3_server *server, const void *data, uint64_t bytes,
		   char etag[S3S_ETAG_BYTES]);
bool s3s_bucket_is(struct s3_server *server, const char *bucket);
/* Index of the first entry with a name of at least this. */
size_t s3s_entry_at_locked(struct s3_server *server, const char *name);
/* NULL when absent. */
struct s3s_entry *s3s_entry_locked(struct s3_server *server, const char *name);
/* Held for the caller; NULL when absent. */
struct s3s_object *s3s_object_find(struct s3_server *server, const char *name);
/* Takes the object. False when memory is short. */
bool s3s_entry_set_locked(struct s3_server *server, const char *name, struct s3s_object *object);
bool s3s_entry_remove_locked(struct s3_server *server, const char *name);
struct s3s_upload *s3s_upload_locked(struct s3_server *server, const char *name, const char *id);
struct s3s_upload *s3s_upload_begin_locked(struct s3_server *server, const char *name,
					   int64_t began_s);
void s3s_upload_end_locked(struct s3_server *server, struct s3s_upload *upload);
void s3s_store_fini(struct s3_server *server);
/* "bucket/key", allocated. */
char *s3s_name(const char *bucket, const char *key);

/* ---- s3_server_auth.c ---- */
/* True when the request may be done; else the reply says why not. */
bool s3s_authorize(struct s3s_request *r);

/* ---- s3_server_rules.c ---- */
void s3s_rule_take(struct s3s_request *r);
void s3s_rules_fini(struct s3_server *server);
/* Whether a rule shapes the answer byte by byte. */
bool s3s_rule_is_raw(const struct s3_server_rule *rule);
/* At the gate; false when the server or the client goes away. */
bool s3s_hold(struct s3s_request *r);

/* ---- s3_server_seen.c ---- */
void s3s_seen_begin(struct s3s_request *r);
void s3s_seen_answer(struct s3s_request *r, int status);
void s3s_seen_body(struct s3s_request *r);
void s3s_seen_fini(struct s3_server *server);

/* ---- s3_server_reply.c ---- */
/* First value, or NULL. */
const char *s3s_field(struct s3s_request *r, const char *name);
/* NULL when absent. */
const char *s3s_query(struct s3s_request *r, const char *name);
void s3s_header(struct s3s_reply *reply, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
void s3s_header_remove(struct s3s_reply *reply, const char *name);
void s3s_text(struct s3s_reply *reply, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
void s3s_text_escaped(struct s3s_reply *reply, const char *text);
/* The reply becomes an error. */
void s3s_error(struct s3s_request *r, int status, const char *code, const char *message);
/* Bends the reply as the rule says, and sends it. */
enum MHD_Result s3s_send(struct s3s_request *r);
void s3s_reply_fini(struct s3s_reply *reply);

/* ---- s3_server_wire.c ---- */
/* Waits a while, or until the server or the client goes away (false). */
bool s3s_nap(struct s3s_request *r, int64_t ms);
/* What becomes of the connection; true: nothing, go on. */
bool s3s_cut(struct s3s_request *r, enum s3_server_cut cut);
enum MHD_Result s3s_send_raw(struct s3s_request *r);
void s3s_reset(int fd);
/* Pieces of the reply's body; at most as many as the object has buffers. */
unsigned s3s_pieces(const struct s3s_reply *reply, struct MHD_IoVec *iov);
uint64_t s3s_body_bytes(const struct s3s_reply *reply);

/* ---- What requests do: each fills r->reply ---- */
void s3s_put(struct s3s_request *r);
void s3s_get(struct s3s_request *r);
void s3s_delete(struct s3s_request *r);
void s3s_create(struct s3s_request *r);
void s3s_part(struct s3s_request *r);
void s3s_complete(struct s3s_request *r);
void s3s_abort(struct s3s_request *r);
void s3s_list(struct s3s_request *r);
void s3s_uploads(struct s3s_request *r);
void s3s_other(struct s3s_request *r);
/* Requests to /.server/, by which scripts set rules and read counts. */
void s3s_admin(struct s3s_request *r);
/* Whether PUT's or Complete's conditions hold for what is there now; else the reply says so. */
bool s3s_conditions_locked(struct s3s_request *r, const char *name, bool of_complete);

#endif
