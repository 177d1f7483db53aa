/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the credentials share. */
#ifndef KVT_S3_CREDENTIALS_PARTS_H
#define KVT_S3_CREDENTIALS_PARTS_H

#include <stdatomic.h>

#include "credentials.h"

#define S3_WHY_BYTES	       256
#define S3_CAUSE_BYTES	       128
#define S3_REPLY_BYTES	       65536u
#define S3_MAX_REQUEST_HEADERS 2

/* Keys as a source gives them, owned; all NULL: none. */
struct s3_keys {
	char *access_key, *secret_key, *session_token;
	int64_t expires_s; /* INT64_MAX: never */
};

/* The variables that say where keys are fetched. They are copied at open: the program may change
 * its environment later, and no other thread may read it then. */
enum s3_variable {
	S3_TOKEN_FILE = 0,
	S3_ROLE_ARN,
	S3_ROLE_SESSION,
	S3_CONTAINER_RELATIVE,
	S3_CONTAINER_FULL,
	S3_CONTAINER_TOKEN_FILE,
	S3_CONTAINER_TOKEN,
	S3_INSTANCE_ENDPOINT,
	S3_INSTANCE_MODE,
	S3_VARIABLES,
};

/* Owned; NULL: not set or empty. */
struct s3_environment {
	char *values[S3_VARIABLES];
};

/* 0 or KVT_ENOMEM; then nothing is left. */
int kvt__s3_environment_init(struct s3_environment *environment, const struct kvt_host *host);
/* Cleanses. Accepts one that is all zeros. */
void kvt__s3_environment_fini(struct s3_environment *environment, const struct kvt_host *host);

/* One look at a source. */
struct s3_fetch {
	const struct kvt_host *host;
	const struct s3_credentials_config *config;
	const struct s3_environment *environment;
	const atomic_bool *stop; /* ends a request in flight; may be NULL */
	char *source;		 /* S3_WHY_BYTES: what it is, when it was found */
	char why[S3_WHY_BYTES];	 /* why it gave nothing; no secrets */
	bool may_be_asked_again;
};

/* Fills *keys and answers 0. KVT_ENOENT: nobody has set this source up; KVT_EAUTH or KVT_ECONFIG:
 * it is set up and does not work; KVT_ENOMEM. Then f->why says more, and *keys is empty. Blocks. */
typedef int (*s3_source_fn)(struct s3_fetch *f, struct s3_keys *keys);

int kvt__s3_keys_from_options(struct s3_fetch *f, struct s3_keys *keys);
int kvt__s3_keys_from_environment(struct s3_fetch *f, struct s3_keys *keys);
int kvt__s3_keys_from_profile(struct s3_fetch *f, struct s3_keys *keys);
int kvt__s3_keys_from_web_identity(struct s3_fetch *f, struct s3_keys *keys);
int kvt__s3_keys_from_container(struct s3_fetch *f, struct s3_keys *keys);
int kvt__s3_keys_from_instance(struct s3_fetch *f, struct s3_keys *keys);

/* Copies; `token` may be NULL or "". KVT_ENOMEM; then *keys is empty. */
int kvt__s3_keys_set(struct s3_fetch *f, struct s3_keys *keys, const char *access_key,
		     const char *secret_key, const char *token, int64_t expires_s);
/* Cleanses and frees. */
void kvt__s3_keys_fini(const struct kvt_host *host, struct s3_keys *keys);
/* Sets f->why; returns error. */
int kvt__s3_why(struct s3_fetch *f, int error, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

struct s3_http {
	const char *method; /* GET, PUT or POST */
	const char *url;
	const char *headers[S3_MAX_REQUEST_HEADERS]; /* whole lines; NULL: none */
	const char *body;			     /* POST */
	const char *place;			     /* what messages call it; NULL: the URL */
	/* Writes into `text` what the body of a refusal says, when it says something; may be NULL.
	 * The text is made one line by the caller. */
	void (*explain)(struct s3_fetch *f, const char *body, char *text, size_t room);
	long timeout_ms;
	unsigned tries;
	long status; /* result: of the last answer; 0: none came */
};

/* One request without proxy and redirects, repeated when another try may do better. *bodyp gets the
 * body of a 200, ended by NUL, at most 64 KiB. KVT_EAUTH or KVT_ENOMEM. */
int kvt__s3_http(struct s3_fetch *f, struct s3_http *request, char **bodyp);
/* Cleanses it. Accepts NULL. */
void kvt__s3_http_free(const struct kvt_host *host, char *body);
/* A small file (a token) without blanks at its end, to be freed as above. */
int kvt__s3_token_file(struct s3_fetch *f, const char *path, char **textp);
/* Blanks, CR, LF and other control characters would become header lines. */
bool kvt__s3_is_header_value(const char *text);

#endif
