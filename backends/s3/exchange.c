/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One HTTP exchange. What can be put right at once is repeated here, each remedy once: a connection
 * that the server had closed, a clock that is wrong, a region that the server names, credentials
 * that have expired. All other failures are the core's to repeat.
 */
#include "s3.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

int64_t kvt__s3_server_time(struct s3_backend *b)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_REALTIME, &now);
	return (int64_t)now.tv_sec + atomic_load(&b->clock_offset_s);
}

static enum s3_progress s3_fail(struct s3_transfer *t, int error, const char *why)
{
	kvt__s3_reply_reset(t);
	kvt__s3_tell(t, why);
	return t->x.step(t, error);
}

static void s3_let_go(struct s3_transfer *t)
{
	kvt__s3_credentials_release(t->session->backend->provider, t->credentials);
	t->credentials = NULL;
}

/* Sends it. */
static int s3_start(struct s3_transfer *t)
{
	struct s3_session *s = t->session;
	const struct s3_config *config = &s->backend->config;
	size_t base = strlen(config->base_url), path, query;
	CURLcode bad;
	char *url;
	int error = t->easy ? 0 : kvt__s3_easy_create(t);

	if (error == 0)
		error = kvt__s3_request_lines(t);
	if (error)
		return error;
	path = strlen(t->path);
	query = strlen(t->query);
	url = s->host->alloc(s->host, base + path + query + 2, 1);
	if (url == NULL)
		return KVT_ENOMEM;
	memcpy(url, config->base_url, base);
	memcpy(url + base, t->path, path + 1);
	if (query) {
		url[base + path] = '?';
		memcpy(url + base + path + 1, t->query, query + 1);
	}
	kvt__s3_reply_reset(t);
	kvt__s3_body_rewind(t);
	t->error_text[0] = '\0';
	t->moved_ns = s->host->now_ns();
	if (t->moved_ns >= t->deadline_ns) {
		s->host->free(s->host, url);
		return KVT_ETIMEDOUT;
	}
	bad = kvt__s3_request_set(t, url);
	s->host->free(s->host, url);
	if (bad)
		return bad == CURLE_OUT_OF_MEMORY ? KVT_ENOMEM : KVT_EINTERNAL;
	if (curl_multi_add_handle(s->multi, t->easy) != CURLM_OK)
		return KVT_ENOMEM;
	t->is_running = true;
	return 0;
}

/* Why it was not sent. */
static const char *s3_why_not_sent(int error)
{
	switch (error) {
	case KVT_ENOMEM:
		return "out of memory";
	case KVT_ETIMEDOUT:
		return "the deadline has passed";
	case KVT_EAUTH:
		return "the credentials were refused or have expired, and newer ones could not be "
		       "fetched in time";
	default:
		return "cannot be sent";
	}
}

enum s3_progress kvt__s3_exchange_resume(struct s3_transfer *t)
{
	struct s3_session *s = t->session;
	int error;

	if (s->host->now_ns() >= t->deadline_ns) {
		error = t->lacks_credentials ? KVT_EAUTH : KVT_ETIMEDOUT;
		return s3_fail(t, error, s3_why_not_sent(error));
	}
	t->credentials = kvt__s3_credentials_acquire(s->backend->provider);
	if (t->credentials && t->credentials->generation <= t->refused_generation)
		s3_let_go(t);
	t->lacks_credentials = t->credentials == NULL;
	if (t->lacks_credentials) {
		kvt__s3_wait(t, s->host->now_ns() + 20 * S3_NS_PER_MS);
		return S3_GOES_ON;
	}
	error = s3_start(t);
	if (error == 0)
		return S3_GOES_ON;
	s3_let_go(t);
	return s3_fail(t, error, s3_why_not_sent(error));
}

enum s3_progress kvt__s3_exchange(struct s3_transfer *t)
{
	int error;

	t->path[0] = '\0';
	t->tried_connection = t->is_hashed = false;
	if (t->fields == NULL) {
		const struct kvt_host *host = t->session->host;
		size_t count = S3_MAX_FIELDS + t->session->backend->config.header_count;

		t->fields = host->alloc(host, count * sizeof(*t->fields), sizeof(void *));
	}
	error = t->fields ? kvt__s3_request_target(t) : KVT_ENOMEM;
	if (error)
		return s3_fail(t, error,
			       error == KVT_ENOMEM ? "out of memory"
						   : "the key is over 1,024 bytes long");
	return kvt__s3_exchange_resume(t);
}

/* RequestTimeTooSkewed: takes the server's time from its answer. */
static bool s3_learn_clock(struct s3_transfer *t)
{
	struct s3_backend *b = t->session->backend;
	int64_t offset_s = t->reply.date_s - (int64_t)time(NULL);

	if (t->reply.date_s < 0 || t->tried_clock)
		return false;
	t->tried_clock = true;
	atomic_store(&b->clock_offset_s, offset_s);
	b->host->log(b->host, KVT_HOST_WARNING, "s3 clock",
		     "%s: its clock is %lld s ahead of ours, requests are signed with its time",
		     b->config.authority, (long long)offset_s);
	return true;
}

static bool s3_learn_region(struct s3_transfer *t)
{
	struct s3_backend *b = t->session->backend;
	const char *region = t->reply.region;
	bool is_new;

	if (t->tried_region)
		return false;
	if (*region == '\0' && t->xml)
		region = kvt__s3_xml_text(t->xml, "Region");
	if (!kvt__s3_region_is_plausible(region))
		return false;
	t->tried_region = true;
	pthread_mutex_lock(&b->lock);
	is_new = strcmp(b->region, region) != 0;
	if (is_new)
		(void)snprintf(b->region, sizeof(b->region), "%s", region);
	pthread_mutex_unlock(&b->lock);
	if (is_new)
		b->host->log(b->host, KVT_HOST_WARNING, "s3 region",
			     "%s: bucket %s is in region %s: signing for that from now on; set "
			     "the option region",
			     b->config.authority, b->config.bucket, region);
	return true;
}

/* Expired credentials: newer ones are waited for. */
static bool s3_renew_credentials(struct s3_transfer *t)
{
	uint64_t generation = t->credentials->generation;

	if (t->tried_credentials || t->credentials->anonymous ||
	    !kvt__s3_credentials_refuse(t->session->backend->provider, generation))
		return false;
	t->tried_credentials = true;
	t->refused_generation = generation;
	return true;
}

static bool s3_remedied(struct s3_transfer *t, enum s3_remedy remedy)
{
	switch (remedy) {
	case S3_REMEDY_CLOCK:
		return s3_learn_clock(t);
	case S3_REMEDY_REGION:
		return s3_learn_region(t);
	case S3_REMEDY_CREDENTIALS:
		return s3_renew_credentials(t);
	case S3_REMEDY_NONE:
	default:
		return false;
	}
}

/* A connection that had been used before and broke before any answer: the server had closed it
 * while it was idle. */
static bool s3_was_stale(struct s3_transfer *t, CURLcode code)
{
	long connects = 1;

	if (t->tried_connection || t->reply.status || !kvt__s3_is_stale_connection(code))
		return false;
	(void)curl_easy_getinfo(t->easy, CURLINFO_NUM_CONNECTS, &connects);
	return connects == 0;
}

enum s3_progress kvt__s3_exchange_ended(struct s3_transfer *t, CURLcode code)
{
	struct s3_session *s = t->session;
	enum s3_remedy remedy;
	bool again = s3_was_stale(t, code);
	int error;

	(void)curl_multi_remove_handle(s->multi, t->easy);
	t->is_running = false;
	error = kvt__s3_reply_verdict(t, code, &remedy);
	if (again)
		t->tried_connection = t->is_resent = true;
	else if (error)
		again = s3_remedied(t, remedy);
	if (code == CURLE_SEND_FAIL_REWIND) {
		/* The handle would remember that it has to rewind. */
		curl_easy_cleanup(t->easy);
		t->easy = NULL;
	}
	s3_let_go(t);
	if (again)
		return kvt__s3_exchange_resume(t);
	if (error)
		kvt__s3_tell(t, NULL);
	else if (t->reply.status < 300)
		atomic_store_explicit(&s->backend->allowed, true, memory_order_relaxed);
	return t->x.step(t, error);
}

enum s3_progress kvt__s3_exchange_expired(struct s3_transfer *t, const char *why)
{
	(void)curl_multi_remove_handle(t->session->multi, t->easy);
	t->is_running = false;
	s3_let_go(t);
	kvt__s3_tell(t, why);
	return t->x.step(t, KVT_ETIMEDOUT);
}
