/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files share that make a struct s3_config. Each setting is looked up in this order: the
 * option, the store_config option, the environment, the profile in the config file.
 *
 *     config.c          what there is to set, and the order of it
 *     options.c         the list of options, and looking up and reading one of them
 *     location.c        the URI: bucket and prefix
 *     address.c         the endpoint, the region, addressing
 *     url.c             URLs of servers, encoding
 *     headers.c         headers that are added to requests
 *     store_config.c    the JSON of vLLM's object tier
 *     profile.c         profile files
 */
#ifndef KVT_S3_CONFIG_PARTS_H
#define KVT_S3_CONFIG_PARTS_H

#include <string.h>

#include "config.h"
#include "profile.h"

#define S3_CONFIG_MAX_HOST   253u
#define S3_CONFIG_MAX_KEY    1024u
#define S3_CONFIG_MAX_BUCKET 255u
#define S3_CONFIG_MIN_PART   (UINT64_C(5) << 20)
#define S3_CONFIG_MAX_PART   (UINT64_C(5) << 30)
#define S3_CONFIG_WHERE	     160u
#define S3_CONFIG_MAX_STORE  65536u /* bytes of store_config */

/* What may be set by the JSON of store_config. */
enum s3_store_key {
	S3_STORE_BUCKET = 0,
	S3_STORE_ENDPOINT,
	S3_STORE_SCHEME,
	S3_STORE_ACCESS_KEY,
	S3_STORE_SECRET_KEY,
	S3_STORE_SESSION_TOKEN,
	S3_STORE_REGION,
	S3_STORE_CA_BUNDLE,
	S3_STORE_ADDRESSING,
	S3_STORE_CHECKSUM,
	S3_STORE_KEYS,
};

/* Owned, NULL: not given or empty. */
struct s3_store_config {
	char *values[S3_STORE_KEYS];
};

/* What everything is read from. */
struct s3_sources {
	const struct kvt_host *host;
	const struct kvt_backend_config *config;
	struct s3_store_config store;
	struct s3_profile_file *file; /* NULL: none */
	const char *profile;
	const char *file_path;
};

enum s3_place { S3_FROM_NOWHERE = 0, S3_FROM_OPTION, S3_FROM_STORE, S3_FROM_ENV, S3_FROM_PROFILE };

/* One setting as it was found. */
struct s3_given {
	const char *value; /* borrowed; NULL: nowhere */
	enum s3_place place;
	char where[S3_CONFIG_WHERE]; /* "option region", "AWS_REGION": what messages begin with */
};

/* Where one may stand besides its option; NULL or S3_STORE_KEYS: not there. */
struct s3_setting {
	const char *option;
	enum s3_store_key store;
	const char *variables[2];
	const char *profile_name;
};

/* options.c */

/* NULL when it is not given. */
const char *kvt__s3_option(const struct s3_sources *from, const char *name);
/* NULL when it is not set or empty. */
const char *kvt__s3_environment(const char *name);
void kvt__s3_find(const struct s3_sources *from, const struct s3_setting *setting,
		  struct s3_given *givenp);
/* KVT_ECONFIG for the environment and files, else KVT_EINVAL. */
int kvt__s3_code_of(enum s3_place place);
/* Says `where: "value", expected ...` and returns the code. */
int kvt__s3_refuse(const struct s3_sources *from, const struct s3_given *given,
		   const char *expected);
/* The same without the value. */
int kvt__s3_refuse_secret(const struct s3_sources *from, const struct s3_given *given,
			  const char *expected);
/* Says that there is no memory; KVT_ENOMEM. */
int kvt__s3_no_memory(const struct s3_sources *from);
/* Options that are numbers, switches or one of a few words; the default when not given. 0 or
 * KVT_EINVAL, which was said. */
int kvt__s3_number(const struct s3_sources *from, const char *name, uint32_t least, uint32_t most,
		   uint32_t *valuep);
int kvt__s3_bytes(const struct s3_sources *from, const char *name, uint64_t *valuep);
int kvt__s3_switch(const struct s3_sources *from, const char *name, bool *valuep);
/* words: ended by NULL; *indexp is which of them. */
int kvt__s3_word(const struct s3_sources *from, const struct s3_given *given,
		 const char *const *words, const char *expected, int *indexp);
/* A given option, or its default. */
void kvt__s3_option_or_default(const struct s3_sources *from, const char *name,
			       struct s3_given *givenp);
/* "yes" and "no" in the usual ways. */
bool kvt__s3_parse_switch(const char *text, bool *valuep);

/* Memory of the host's, the parts joined (each may be NULL); NULL when there is none. */
char *kvt__s3_join(const struct kvt_host *host, const char *a, const char *b, const char *c,
		   const char *d);
char *kvt__s3_copy(const struct kvt_host *host, const char *text, size_t bytes);
/* Frees and cleanses a string. Accepts NULL. */
void kvt__s3_wipe(const struct kvt_host *host, char *text);

/* store_config.c */

/* `text` may be NULL. 0, KVT_EINVAL, KVT_ENOMEM; then nothing is left. */
int kvt__s3_store_config_init(struct s3_store_config *store, const struct s3_sources *from,
			      const char *text);
void kvt__s3_store_config_fini(struct s3_store_config *store, const struct kvt_host *host);

/* location.c */

/* bucket, prefix and key_root. */
int kvt__s3_read_location(struct s3_config *s3, const struct s3_sources *from);

/* address.c */

/* Server, region and addressing; needs the bucket and verify. */
int kvt__s3_read_address(struct s3_config *s3, const struct s3_sources *from);
/* The endpoint of the token service; needs the region. */
int kvt__s3_read_sts(struct s3_config *s3, const struct s3_sources *from);

/* url.c */

/* The address of a server. */
struct s3_url {
	bool has_scheme, https;
	bool is_address;		   /* IPv4 or IPv6 */
	bool is_loopback;		   /* localhost, *.localhost, 127.0.0.0/8, [::1] */
	char host[S3_CONFIG_MAX_HOST + 1]; /* lower case, IPv6 in brackets */
	uint32_t port;			   /* 0: the scheme's own */
};

/* Reads [scheme://]host[:port][/]. False with *expectedp, static text, when it is none. */
bool kvt__s3_url_parse(const char *text, struct s3_url *url, const char **expectedp);
/* Labels joined by dots, in lower case; servers in containers have names with underscores, which
 * strict does not take. */
bool kvt__s3_is_host_name(const char *text, bool strict);

static inline bool s3_is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static inline bool s3_is_lower(char c)
{
	return c >= 'a' && c <= 'z';
}

static inline bool s3_is_alnum(char c)
{
	return s3_is_lower(c) || (c >= 'A' && c <= 'Z') || s3_is_digit(c);
}

static inline bool s3_has_suffix(const char *text, const char *suffix)
{
	size_t bytes = strlen(text), tail = strlen(suffix);

	return bytes >= tail && strcmp(text + bytes - tail, suffix) == 0;
}

/* headers.c */

/* Needs the address. */
int kvt__s3_read_headers(struct s3_config *s3, const struct s3_sources *from);
void kvt__s3_headers_fini(struct s3_config *s3, const struct kvt_host *host);

#endif
