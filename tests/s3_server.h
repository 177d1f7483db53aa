/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An S3 server in memory, for tests: faithful where nothing else is asked for, and spoilt by rules
 * where a test wants a fault. One thread for each connection; nothing in here asserts. All
 * functions may be called from any thread while the server runs, but for start and stop.
 *
 * Requests are signed with version 4 or refused, when the server was given a secret. It does
 * objects (put, get, head, delete), listings (both versions), multipart uploads with their listing,
 * and the few calls on buckets that clients make before anything else.
 */
#ifndef KVT_TESTS_S3_SERVER_H
#define KVT_TESTS_S3_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct s3_server;

/* ---- What kind of server it is ---- */

enum s3_server_trait {
	S3_SERVER_NO_PUT_CONDITIONS = 1 << 0,	 /* conditions of PUT: 501 NotImplemented (Swift) */
	S3_SERVER_BLIND_PUT_CONDITIONS = 1 << 1, /* they are ignored (old servers) */
	S3_SERVER_NO_COMPLETE_CONDITIONS = 1 << 2,
	S3_SERVER_BLIND_COMPLETE_CONDITIONS = 1 << 3, /* RGW */
	S3_SERVER_BARE_IF_MATCH = 1 << 4,    /* If-Match of PUT works without quotes only (RGW) */
	S3_SERVER_DELETE_IF_MATCH = 1 << 5,  /* DELETE keeps If-Match; else it is ignored */
	S3_SERVER_BARE_416 = 1 << 6,	     /* 416 without Content-Range (RGW) */
	S3_SERVER_NO_LIST_RIGHT = 1 << 7,    /* absent objects are 403, listings too */
	S3_SERVER_PATIENT_COMPLETE = 1 << 8, /* blanks before the result */
	S3_SERVER_COMPLETE_TWICE = 1 << 9,   /* a second Complete is 200 (RGW) */
	S3_SERVER_NO_MULTIPART = 1 << 10,    /* ?uploads: 501 */
	S3_SERVER_EQUAL_PARTS = 1 << 11,     /* all parts but the last are of one size (R2) */
	S3_SERVER_EMPTY_PAGES = 1 << 12,     /* every other page of a listing is empty */
	S3_SERVER_NO_CHECKSUMS = 1 << 13,    /* x-amz-checksum-* are ignored (RGW) */
	S3_SERVER_PATH_ONLY = 1 << 14,	     /* virtual hosts: 400 */
	S3_SERVER_VIRTUAL_ONLY = 1 << 15,    /* path style: 400 */
	S3_SERVER_MD5_ETAGS = 1 << 16,	     /* else opaque ones, which cost nothing */
	S3_SERVER_LIST_BARE_ETAGS = 1 << 17, /* listings show ETags without quotes */
	S3_SERVER_PLAIN_LISTS = 1 << 18,     /* encoding-type=url is ignored */
};

/* Strings are copied. Zero is a good value for all. */
struct s3_server_options {
	const char *address;	/* "127.0.0.1"; "::1" works too */
	unsigned port;		/* 0: any */
	const char *bucket;	/* "bucket" */
	const char *domain;	/* buckets are hosts below it too; NULL: path style only */
	const char *region;	/* enforced when set */
	const char *access_key; /* with secret_key: signatures are verified */
	const char *secret_key;
	const char *session_token;		   /* demanded when set */
	const char *certificate, *certificate_key; /* PEM text: TLS */
	uint64_t min_part_bytes;		   /* 0: 5 MiB */
	unsigned traits;			   /* enum s3_server_trait */
	int64_t clock_offset_s;			   /* of the server's clock */
	unsigned requests_per_connection;	   /* 0: no limit */
	unsigned keep_requests;			   /* how many are remembered; 0: 1,024 */
	bool forgetful;				   /* none are: for benchmarks */
};

/* NULL when it cannot be; *whyp says why (static). */
struct s3_server *s3_server_start(const struct s3_server_options *options, const char **whyp);
/* Ends what is held or hangs, and waits for its threads. Accepts NULL. */
void s3_server_stop(struct s3_server *server);
/* Closes the port and all connections, and opens the same port again; objects and counts stay.
 * False when the port could not be had. */
void s3_server_down(struct s3_server *server);
bool s3_server_up(struct s3_server *server);

/* One in a process of its own, for tests that count descriptors: its id, or -1, and its URL. No
 * other thread may be there. It ends with this process at the latest. */
int s3_server_fork(const struct s3_server_options *options, char url[96]);
void s3_server_reap(int process);

unsigned s3_server_port(const struct s3_server *server);
/* "http://127.0.0.1:1234", owned by the server. */
const char *s3_server_url(const struct s3_server *server);
/* From now on. */
void s3_server_set_traits(struct s3_server *server, unsigned traits);
void s3_server_set_region(struct s3_server *server, const char *region);
void s3_server_set_secret(struct s3_server *server, const char *access_key, const char *secret_key,
			  const char *session_token);
void s3_server_set_clock(struct s3_server *server, int64_t offset_s);

/* ---- Faults ---- */

enum s3_server_op {
	S3_OP_PUT = 1 << 0, /* one object */
	S3_OP_GET = 1 << 1,
	S3_OP_HEAD = 1 << 2,
	S3_OP_DELETE = 1 << 3,
	S3_OP_LIST = 1 << 4,
	S3_OP_CREATE = 1 << 5, /* a multipart upload */
	S3_OP_PART = 1 << 6,
	S3_OP_COMPLETE = 1 << 7,
	S3_OP_ABORT = 1 << 8,
	S3_OP_UPLOADS = 1 << 9, /* the listing of uploads */
	S3_OP_OTHER = 1 << 10,	/* of buckets, and unknown */
};
#define S3_OP_COUNT 11u

/* What becomes of the connection at some point. */
enum s3_server_cut {
	S3_CUT_NONE = 0,
	S3_CUT_FIN,   /* closed */
	S3_CUT_RST,   /* reset */
	S3_CUT_STALL, /* nothing more, until the client goes away */
	S3_CUT_HOLD,  /* held at the gate, then it goes on */
};

/*
 * What is done to requests. Of the rules that fit a request, the first that is not used up and has
 * skipped enough acts, alone; its members work together. Rules that shape the answer byte by byte
 * (marked *) are for plain HTTP only, and their connection is closed after it, which the answer
 * says unless it is cut or closed silently. Strings are copied.
 */
struct s3_server_rule {
	/* Which requests */
	unsigned ops;	 /* enum s3_server_op; 0: all */
	const char *key; /* has this in its key; NULL: any */
	unsigned skip;	 /* as many are let through first */
	unsigned times;	 /* 0: for ever */

	/* On the way in */
	enum s3_server_cut upload_cut; /* when upload_at bytes of the body have been read */
	uint64_t upload_at;
	bool early; /* answers before the body has been read; `status` says what */

	/* Before the request is done */
	bool hold; /* at the gate */
	unsigned delay_ms;
	bool hang; /* it never is */

	/* Instead of its answer */
	int status;	  /* 0: what is true */
	const char *code; /* of S3; NULL: no XML */
	const char *message;
	const char *region; /* <Region>, and x-amz-bucket-region */
	const char *body;   /* instead of the XML; "": none */
	bool done_first;    /* the request is done all the same, and then answered so */

	/* The answer */
	enum s3_server_cut lost; /* before its first byte; what was asked has been done */
	bool whole;		 /* a range is ignored */
	bool flip;		 /* a bit of the byte at flip_at of the body */
	uint64_t flip_at;
	const char *etag;    /* instead; "": none; "?": another one each time, quoted */
	const char *range;   /* Content-Range instead; "": none */
	const char *headers; /* lines more, each with \r\n */
	const char *without; /* this header is left out */
	unsigned retry_after_s;
	unsigned blanks;	/* before the body of an error or an XML result */
	bool close;		/* says so, and closes */
	unsigned rate;		/* bytes a second of the body */
	enum s3_server_cut cut; /* *when cut_at bytes of the body have been sent; HOLD needs
				 * no closing */
	uint64_t cut_at;
	bool wrong_length; /* *Content-Length is said_length */
	uint64_t said_length;
	uint64_t extra_bytes;  /* *behind the body, Content-Length or not */
	unsigned header_bytes; /* *that much of headers more */
	bool endless;	       /* *the body never ends */
	bool no_length;	       /* *neither Content-Length nor chunks */
	bool chunked;	       /* *in chunks, no Content-Length */
	bool lower_case;       /* *names of headers */
	bool http10;	       /* *status line */
	bool close_silently;   /* *closes without having said so */
	const char *raw;       /* *these bytes instead of all; `cut` comes behind them */
};

/* False when memory is short. */
bool s3_server_add_rule(struct s3_server *server, const struct s3_server_rule *rule);
/* From text, "ops=put,part key=abc times=2 status=503 code=SlowDown"; members as above, with "-" or
 * "_", true when only named. NULL, or what is wrong (static). */
const char *s3_server_add_rule_text(struct s3_server *server, const char *text);
/* Requests that a rule holds stay held. */
void s3_server_clear_rules(struct s3_server *server);
/* How often rules have acted since they were cleared. */
unsigned s3_server_rule_hits(struct s3_server *server);

/* Waits until `count` requests are held at the gate; false after 90 s. */
bool s3_server_await_held(struct s3_server *server, unsigned count);
/* Lets those that are held go on. */
void s3_server_release(struct s3_server *server);
/* Closes (or resets) all connections without a request on them; how many. */
unsigned s3_server_close_idle(struct s3_server *server, bool reset);

/* ---- What is stored ---- */

/* False when memory is short. */
bool s3_server_put(struct s3_server *server, const char *key, const void *data, uint64_t bytes);
/* As if it had been written so long ago. False when it is not there. */
bool s3_server_set_age(struct s3_server *server, const char *key, int64_t age_s);
bool s3_server_has(struct s3_server *server, const char *key);
/* A copy, to be freed; NULL when it is not there. */
uint8_t *s3_server_get(struct s3_server *server, const char *key, uint64_t *bytesp);
/* "" when it is not there. */
void s3_server_etag(struct s3_server *server, const char *key, char etag[80]);
bool s3_server_remove(struct s3_server *server, const char *key);
/* A multipart upload that somebody began so long ago. */
bool s3_server_begin_upload(struct s3_server *server, const char *key, int64_t age_s);
unsigned s3_server_objects(struct s3_server *server);
unsigned s3_server_uploads(struct s3_server *server);
/* Another bucket. */
bool s3_server_add_bucket(struct s3_server *server, const char *bucket);

/* ---- What was seen ---- */

struct s3_server_counts {
	uint64_t requests;
	uint64_t by_op[S3_OP_COUNT]; /* by the number of the bit */
	uint64_t connections;	     /* ever */
	uint64_t at_once, most_at_once;
	uint64_t bytes_in, bytes_out; /* of bodies; of bytes_out, what was meant to be sent */
};
void s3_server_count(struct s3_server *server, struct s3_server_counts *counts);
/* Requests of these kinds so far. */
uint64_t s3_server_seen(struct s3_server *server, unsigned ops);
/* Forgets counts and requests. */
void s3_server_forget(struct s3_server *server);

/* A request as it came. */
struct s3_server_request {
	unsigned op;
	uint64_t number;     /* from 1, in the order in which headers came */
	uint64_t connection; /* number of its connection, from 1 */
	char method[16];
	char *uri;     /* raw */
	char *key;     /* decoded, "" when it is the bucket's */
	char *headers; /* lines "name: value\n", names in lower case */
	char *body;    /* of a Complete, else NULL */
	uint64_t body_bytes;
	int status;  /* answered with; 0: not yet, or without an answer */
	char id[24]; /* x-amz-request-id */
};
/* The request `back` before the last one of these kinds (0: any), copied. False when it is not
 * remembered. */
bool s3_server_request(struct s3_server *server, unsigned ops, unsigned back,
		       struct s3_server_request *request);
void s3_server_request_free(struct s3_server_request *request);
/* The value of a header, in a buffer of the caller; NULL when it was not sent. */
const char *s3_server_header(const struct s3_server_request *request, const char *name, char *value,
			     size_t bytes);
/* How often it was sent. */
unsigned s3_server_header_count(const struct s3_server_request *request, const char *name);

/* ---- Certificates ---- */

enum s3_server_certificate {
	S3_CERT_GOOD = 0,
	S3_CERT_OTHER_NAME, /* of another host */
	S3_CERT_EXPIRED,
};
/* A CA of its own, and a certificate that it signed for `host` (name or address): PEM text, to be
 * freed. False when that failed. */
bool s3_server_certify(const char *host, enum s3_server_certificate kind, char **cap, char **certp,
		       char **keyp);

/* A port on 127.0.0.1 where nobody answers: connecting to it takes for ever. Close *fdp and *fillp
 * afterwards. 0 when that could not be arranged. */
unsigned s3_server_deaf_port(int *fdp, int *fillp);

#endif
