/* SPDX-License-Identifier: Apache-2.0 */
/* The options of an S3 store, from the URI, the option list, the environment and the profile files,
 * checked and put into the form in which requests need them. */
#ifndef KVT_S3_CONFIG_H
#define KVT_S3_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kvtier/backend.h>

enum s3_exists_check {
	S3_EXISTS_AUTO = 0,
	S3_EXISTS_CONDITIONAL, /* a conditional PUT */
	S3_EXISTS_HEAD,	       /* a HEAD before each PUT */
	S3_EXISTS_NONE,	       /* overwrite */
};

/* A header that is added to requests. */
struct s3_header {
	char *name;	/* lower case */
	char *value;	/* no blanks at its ends, no control characters */
	bool on_create; /* goes with PUT and CreateMultipartUpload; every header does */
	bool on_data;	/* also with UploadPart, GET and HEAD: SSE-C keys, and all that do not
			 * describe the object that is made, such as x-amz-meta-... */
};

/* Where credentials may come from. Strings are owned; NULL: not given. */
struct s3_credentials_config {
	/* explicit options */
	char *access_key, *secret_key, *session_token;
	bool anonymous;			      /* access_key=anonymous: requests are not signed */
	char *profile;			      /* option or AWS_PROFILE, default "default" */
	bool profile_given;		      /* it must be there */
	char *config_file, *credentials_file; /* AWS_CONFIG_FILE, AWS_SHARED_CREDENTIALS_FILE, or
						 below $HOME/.aws; NULL: no home */
	bool no_instance_metadata;	      /* AWS_EC2_METADATA_DISABLED */
	char *sts_endpoint;		      /* AWS_ENDPOINT_URL_STS, else made from the region */
	char *region;
	char *ca_bundle;
};

struct s3_config {
	const struct kvt_host *host; /* NULL: nothing is in it */
	char *bucket;
	char *prefix;	/* without slashes at its ends; "" for none */
	char *key_root; /* what stands before a name in a key: "" or "prefix/"; "/" or "prefix//"
			 * with compat_names=vllm-obj */
	bool https;
	char *authority;   /* host[:port] as in the Host header; lower case, IPv6 in brackets, the
			    * port only when it is not the scheme's own; with the bucket in front
			    * when virtual */
	char *base_url;	   /* "https://" and the authority */
	char *bucket_path; /* "/bucket", percent-encoded; "" when virtual */
	bool is_virtual;
	bool is_loopback; /* localhost, *.localhost, 127.0.0.0/8, [::1] */
	bool is_aws;	  /* the endpoint was made from the region or ends in amazonaws.com */
	char *region;	  /* "us-east-1" when nobody says */
	bool region_given;

	char *ca_bundle; /* NULL: the system's */
	bool verify;
	char *proxy;		  /* NULL: as the environment says (libcurl's rules); "": none */
	uint32_t max_connections; /* of the whole store */
	uint32_t connect_timeout_ms, first_byte_timeout_ms;
	uint32_t low_speed_bytes, low_speed_seconds; /* bytes a second; seconds 0: off */
	uint64_t part_bytes;			     /* 0: the worker's */

	bool signed_payload;
	bool checksum; /* x-amz-checksum-crc32c with single PUTs */
	enum s3_exists_check exists_check;
	uint32_t lookup_cache_entries; /* 0: none */
	uint32_t lookup_cache_hit_ms, lookup_cache_miss_ms;

	struct s3_header *headers; /* signed when their name begins with x-amz- */
	size_t header_count;

	struct s3_credentials_config credentials;
};

/* Ended by a NULL name. */
extern const struct kvt_option_spec kvt__s3_option_specs[];

/*
 * Reads `config`. On failure host->fail has said what was wrong and what was expected, and nothing
 * is left: KVT_EINVAL for options, KVT_ECONFIG for what files and the environment say, KVT_ENOMEM.
 * Blocks for the profile files only.
 */
int kvt__s3_config_init(struct s3_config *s3, const struct kvt_host *host,
			const struct kvt_backend_config *config);
/* Cleanses secrets. Accepts one that is all zeros. */
void kvt__s3_config_fini(struct s3_config *s3);

/* Percent-encodes all but A-Z a-z 0-9 - . _ ~ (and "/" when `keep_slash`), upper-case digits, as
 * S3 signs it. Writes at most `room` bytes with the final NUL; returns the length, or 0 when it
 * does not fit. 3 * bytes + 1 always fits. */
size_t kvt__s3_encode(const char *text, size_t bytes, bool keep_slash, char *out, size_t room);
/* Whether it can be a region's name: [a-z0-9-]{1,64}. */
bool kvt__s3_region_is_plausible(const char *region);

#endif
