/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the keys come from: static options, environment, profile files, web identity (STS),
 * container endpoint, instance metadata; the first source that is there is the one. One provider
 * serves all sessions of a store. Keys that expire are fetched again by a thread of its own, five
 * minutes before they do; no session ever waits for it.
 */
#ifndef KVT_S3_CREDENTIALS_H
#define KVT_S3_CREDENTIALS_H

#include <stdbool.h>
#include <stdint.h>

#include "config.h"

/* Immutable; lives until the last holder releases it, then it is cleansed. */
struct s3_credentials {
	const char *access_key, *secret_key;
	const char *session_token; /* NULL: none. May be several KiB */
	bool anonymous;		   /* requests are not signed */
	int64_t expires_s;	   /* real time, INT64_MAX: never */
	uint64_t generation;	   /* another one for each fetch, from 1 */
};

struct s3_provider;

/*
 * Finds the source and gets the first credentials; blocks up to a few seconds for that. On failure
 * host->fail has said which sources were looked at and why none would do, and nothing is left:
 * KVT_EAUTH, KVT_ECONFIG, KVT_ENOMEM. `config` is lent until close.
 */
int kvt__s3_provider_open(const struct kvt_host *host, const struct s3_credentials_config *config,
			  struct s3_provider **providerp);
/* Ends its thread, whatever request it has in flight. Nothing is held any more. Accepts NULL. */
void kvt__s3_provider_close(struct s3_provider *provider);
/* In a forked child: frees and closes what it can without a lock or a thread. Accepts NULL. */
void kvt__s3_provider_forked(struct s3_provider *provider);

/* The newest credentials, held for the caller; NULL while none are valid and new ones are being
 * fetched: ask again some milliseconds later. Never blocks. Any thread. */
const struct s3_credentials *kvt__s3_credentials_acquire(struct s3_provider *provider);
/* Accepts NULL. Any thread. */
void kvt__s3_credentials_release(struct s3_provider *provider,
				 const struct s3_credentials *credentials);
/* The server called these expired or unknown: newer ones are fetched at once, one fetch for all who
 * say so. True when that is possible (a source that can be asked again) or newer ones are there
 * already: the request is then worth repeating. Never blocks. Any thread. */
bool kvt__s3_credentials_refuse(struct s3_provider *provider, uint64_t generation);
/* What an operator wants to know, "profile default of /root/.aws/credentials"; no secret. */
const char *kvt__s3_provider_source(const struct s3_provider *provider);

#endif
