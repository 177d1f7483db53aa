/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Profile files as the AWS tools keep them (~/.aws/config, ~/.aws/credentials): sections in
 * brackets, "name = value" lines, comments after # or ; and nested blocks of indented lines, which
 * are skipped.
 */
#ifndef KVT_S3_PROFILE_H
#define KVT_S3_PROFILE_H

#include <stdbool.h>
#include <stddef.h>

#include <kvtier/backend.h>

#define S3_PROFILE_MAX_BYTES ((size_t)1 << 20)

struct s3_profile_file;

/* How sections are written. */
enum s3_profile_kind {
	S3_PROFILE_CONFIG,	/* [default], [profile x]; other sections count for nothing */
	S3_PROFILE_CREDENTIALS, /* [x] */
};

/*
 * Reads the whole file. Blocks. On failure *filep is NULL and host->fail has said why: KVT_ENOENT
 * when it is not there, KVT_ECONFIG when it may not be read, is no file, is longer than 1 MiB or
 * has a line that is none of the above (path and line are named, never the text), KVT_ENOMEM.
 */
int kvt__s3_profile_open(const struct kvt_host *host, const char *path, enum s3_profile_kind kind,
			 struct s3_profile_file **filep);
/* The same from memory, which is copied; `path` is for messages and is borrowed until this
 * returns. */
int kvt__s3_profile_parse(const struct kvt_host *host, const char *path, const char *text,
			  size_t bytes, enum s3_profile_kind kind, struct s3_profile_file **filep);
/* Cleanses it. Accepts NULL. */
void kvt__s3_profile_close(struct s3_profile_file *file);

/* Whether there is a section for this profile; an empty one counts. */
bool kvt__s3_profile_has(const struct s3_profile_file *file, const char *profile);
/* The value of a name in lower case ("aws_access_key_id"), without blanks at its ends; lives until
 * close. The last one of several counts. NULL when it is not there or empty. Accepts a NULL file.
 */
const char *kvt__s3_profile_get(const struct s3_profile_file *file, const char *profile,
				const char *name);

#endif
