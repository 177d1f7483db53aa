/* SPDX-License-Identifier: Apache-2.0 */
/* The provider: which source is the one, the newest keys for all sessions, and the thread that
 * fetches newer ones in time. */
#include "credentials.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "credentials_parts.h"
#include "curl_init.h"

#define S3_REFRESH_EARLY_S 300
#define S3_MOST_BACKOFF_S  60
#define S3_MOST_SLEEP_S	   60
#define S3_SOURCES	   6
#define S3_ALL_WHY_BYTES   1024

struct s3_held {
	struct s3_credentials public; /* first */
	struct s3_keys keys;
	unsigned holders;   /* under lock; the provider's own counts */
	int64_t fetch_at_s; /* real time; INT64_MAX: only when somebody wants it */
	bool came_late;	    /* they had expired when they came */
};

struct s3_provider {
	const struct kvt_host *host;
	const struct s3_credentials_config *config;
	struct s3_environment environment;
	s3_source_fn source;
	char source_name[S3_WHY_BYTES];
	bool may_be_asked_again;
	atomic_bool stop;
	pthread_t thread;
	bool has_thread;
	pthread_mutex_t lock; /* leaf; guards what follows */
	pthread_cond_t changed;
	struct s3_held *newest;
	bool is_wanted; /* somebody was refused */
};

static int64_t s3_real_s(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_REALTIME, &now);
	return (int64_t)now.tv_sec;
}

/* Five minutes before they expire, or after half of their life when that is shorter. */
static int64_t s3_fetch_at(int64_t expires_s, int64_t now_s)
{
	const int64_t life_s = expires_s - now_s;
	int64_t early_s = S3_REFRESH_EARLY_S;

	if (expires_s == INT64_MAX)
		return INT64_MAX;
	if (life_s <= 0)
		return now_s + S3_MOST_BACKOFF_S;
	if (life_s < 2 * S3_REFRESH_EARLY_S)
		early_s = life_s / 2;
	return expires_s - early_s;
}

/* Takes the keys. */
static struct s3_held *s3_hold(struct s3_provider *p, struct s3_keys *keys, uint64_t generation)
{
	struct s3_held *held = p->host->alloc(p->host, sizeof(*held), sizeof(void *));
	const int64_t now_s = s3_real_s();

	if (held == NULL) {
		kvt__s3_keys_fini(p->host, keys);
		return NULL;
	}
	*held = (struct s3_held){
		.keys = *keys,
		.holders = 1,
		.fetch_at_s = s3_fetch_at(keys->expires_s, now_s),
		.came_late = keys->expires_s <= now_s,
		.public = {.access_key = keys->access_key,
			   .secret_key = keys->secret_key,
			   .session_token = keys->session_token,
			   .anonymous = keys->access_key == NULL,
			   .expires_s = keys->expires_s,
			   .generation = generation},
	};
	/* A clock is wrong, or the service hands out old ones because it cannot do better: whether
	 * they work is for the server to say. */
	if (held->came_late)
		p->host->log(
			p->host, KVT_HOST_WARNING, "s3 credentials late",
			"credentials: %s: expired %lld s before they came: is the clock right?",
			p->source_name, (long long)(now_s - keys->expires_s));
	return held;
}

static void s3_held_free(const struct kvt_host *host, struct s3_held *held)
{
	kvt__s3_keys_fini(host, &held->keys);
	host->free(host, held);
}

/* Gives a hold back; what is to be freed is returned, for after the lock. */
static struct s3_held *s3_drop_locked(struct s3_held *held)
{
	return held && --held->holders == 0 ? held : NULL;
}

/* Fetches from the source that was found at open. */
static int s3_fetch_again(struct s3_provider *p)
{
	char name[S3_WHY_BYTES];
	struct s3_fetch f = {
		.host = p->host,
		.config = p->config,
		.environment = &p->environment,
		.stop = &p->stop,
		.source = name,
	};
	struct s3_keys keys = {0};
	struct s3_held *held, *old;
	int error = p->source(&f, &keys);

	if (error == 0) {
		held = s3_hold(p, &keys, 0);
		if (held == NULL)
			error = kvt__s3_why(&f, KVT_ENOMEM, "out of memory");
	}
	if (error) {
		if (!atomic_load(&p->stop))
			p->host->log(p->host, KVT_HOST_WARNING, "s3 credentials",
				     "credentials: %s: cannot be fetched again: %s", p->source_name,
				     f.why);
		return error;
	}
	pthread_mutex_lock(&p->lock);
	held->public.generation = p->newest->public.generation + 1;
	old = s3_drop_locked(p->newest);
	p->newest = held;
	p->is_wanted = false;
	pthread_mutex_unlock(&p->lock);
	if (old)
		s3_held_free(p->host, old);
	return 0;
}

/* Sleeps for so long, or until stopped; `wakes`: or until somebody wants newer keys. */
static void s3_sleep_locked(struct s3_provider *p, int64_t ms, bool wakes)
{
	struct timespec until;

	(void)clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += ms / 1000;
	until.tv_nsec += ms % 1000 * 1000000;
	if (until.tv_nsec >= 1000000000) {
		until.tv_sec++;
		until.tv_nsec -= 1000000000;
	}
	while (!atomic_load(&p->stop) && !(wakes && p->is_wanted))
		if (pthread_cond_timedwait(&p->changed, &p->lock, &until))
			break;
}

/* After so many failures in a row; none: once a second at most, however many say that theirs are
 * refused. A random part keeps hosts apart that failed together. */
static int64_t s3_backoff_ms(const struct kvt_host *host, unsigned failures)
{
	const uint64_t random = ((uint64_t)host->now_ns() * UINT64_C(0x9e3779b97f4a7c15)) >> 33;
	int64_t ms = 1000;

	if (failures == 0)
		return ms;
	while (--failures > 0 && ms < S3_MOST_BACKOFF_S * 1000)
		ms *= 2;
	if (ms > S3_MOST_BACKOFF_S * 1000)
		ms = S3_MOST_BACKOFF_S * 1000;
	ms = ms / 2 + (int64_t)(random % (uint64_t)(ms / 2 + 1));
	return ms < 1000 ? 1000 : ms;
}

static void *s3_provider_main(void *context)
{
	struct s3_provider *p = context;
	unsigned failures = 0;
	int64_t left_s;

	(void)pthread_setname_np(pthread_self(), "kvt-s3-creds");
	pthread_mutex_lock(&p->lock);
	while (!atomic_load(&p->stop)) {
		left_s = p->newest->fetch_at_s - s3_real_s();
		if (!p->is_wanted && left_s > 0) {
			/* Real time may jump, so no sleep is long. */
			left_s = left_s < S3_MOST_SLEEP_S ? left_s : S3_MOST_SLEEP_S;
			s3_sleep_locked(p, left_s * 1000, true);
			continue;
		}
		pthread_mutex_unlock(&p->lock);
		failures = s3_fetch_again(p) == 0 ? 0 : failures + 1;
		pthread_mutex_lock(&p->lock);
		s3_sleep_locked(p, s3_backoff_ms(p->host, failures), false);
	}
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

static int s3_start_thread(struct s3_provider *p)
{
	sigset_t all, before;
	int error;

	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &before);
	error = pthread_create(&p->thread, NULL, s3_provider_main, p);
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	p->has_thread = error == 0;
	return error ? KVT_ENOMEM : 0;
}

/* Finds the source: the first one that somebody has set up. `all` gathers why the others were not.
 */
static int s3_find(struct s3_provider *p, struct s3_keys *keys, char *all)
{
	static const s3_source_fn sources[S3_SOURCES] = {
		kvt__s3_keys_from_options,   kvt__s3_keys_from_environment,
		kvt__s3_keys_from_profile,   kvt__s3_keys_from_web_identity,
		kvt__s3_keys_from_container, kvt__s3_keys_from_instance,
	};
	size_t at = 0;

	for (int i = 0; i < S3_SOURCES; i++) {
		struct s3_fetch f = {
			.host = p->host,
			.config = p->config,
			.environment = &p->environment,
			.source = p->source_name,
		};
		int error = sources[i](&f, keys);

		p->source = sources[i];
		p->may_be_asked_again = f.may_be_asked_again;
		if (error == 0)
			return 0;
		if (error != KVT_ENOENT) {
			(void)snprintf(all, S3_ALL_WHY_BYTES, "%s", f.why);
			return error;
		}
		if (at < S3_ALL_WHY_BYTES)
			at += (size_t)snprintf(all + at, S3_ALL_WHY_BYTES - at, "%s%s",
					       at ? ", " : "none are there: ", f.why);
	}
	return KVT_EAUTH;
}

static void s3_provider_free(struct s3_provider *p)
{
	if (p->newest)
		s3_held_free(p->host, p->newest);
	kvt__s3_environment_fini(&p->environment, p->host);
	(void)pthread_cond_destroy(&p->changed);
	(void)pthread_mutex_destroy(&p->lock);
	p->host->free(p->host, p);
}

int kvt__s3_provider_open(const struct kvt_host *host, const struct s3_credentials_config *config,
			  struct s3_provider **providerp)
{
	struct s3_provider *p = host->alloc(host, sizeof(*p), sizeof(void *));
	struct s3_keys keys = {.expires_s = INT64_MAX};
	char why[S3_ALL_WHY_BYTES] = "";
	pthread_condattr_t attributes;
	int error = kvt__s3_curl_init();

	*providerp = NULL;
	if (p == NULL || error) {
		host->free(host, p);
		host->fail(host, "credentials: out of memory");
		return KVT_ENOMEM;
	}
	memset(p, 0, sizeof(*p));
	p->host = host;
	p->config = config;
	(void)pthread_mutex_init(&p->lock, NULL);
	(void)pthread_condattr_init(&attributes);
	(void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	(void)pthread_cond_init(&p->changed, &attributes);
	(void)pthread_condattr_destroy(&attributes);
	if (error == 0)
		error = kvt__s3_environment_init(&p->environment, host);
	if (error == 0 && config->anonymous)
		(void)snprintf(p->source_name, sizeof(p->source_name), "anonymous");
	else if (error == 0)
		error = s3_find(p, &keys, why);
	if (error == 0) {
		p->newest = s3_hold(p, &keys, 1);
		error = p->newest ? 0 : KVT_ENOMEM;
	}
	if (error == 0 && p->may_be_asked_again)
		error = s3_start_thread(p);
	if (error) {
		host->fail(host, "credentials: %s", error == KVT_ENOMEM ? "out of memory" : why);
		s3_provider_free(p);
		return error;
	}
	*providerp = p;
	return 0;
}

void kvt__s3_provider_close(struct s3_provider *provider)
{
	if (provider == NULL)
		return;
	pthread_mutex_lock(&provider->lock);
	atomic_store(&provider->stop, true);
	(void)pthread_cond_broadcast(&provider->changed);
	pthread_mutex_unlock(&provider->lock);
	if (provider->has_thread)
		(void)pthread_join(provider->thread, NULL);
	s3_provider_free(provider);
}

void kvt__s3_provider_forked(struct s3_provider *provider)
{
	if (provider == NULL)
		return;
	/* The thread and whoever held the lock are not here. */
	if (provider->newest)
		s3_held_free(provider->host, provider->newest);
	kvt__s3_environment_fini(&provider->environment, provider->host);
	provider->host->free(provider->host, provider);
}

const struct s3_credentials *kvt__s3_credentials_acquire(struct s3_provider *provider)
{
	struct s3_held *held;

	pthread_mutex_lock(&provider->lock);
	held = provider->newest;
	/* Expired ones would only be refused. */
	if (held->public.expires_s != INT64_MAX && !held->came_late &&
	    held->public.expires_s <= s3_real_s()) {
		provider->is_wanted = true;
		(void)pthread_cond_signal(&provider->changed);
		held = NULL;
	} else {
		held->holders++;
	}
	pthread_mutex_unlock(&provider->lock);
	return held ? &held->public : NULL;
}

void kvt__s3_credentials_release(struct s3_provider *provider,
				 const struct s3_credentials *credentials)
{
	struct s3_held *held = (struct s3_held *)credentials;

	if (credentials == NULL)
		return;
	pthread_mutex_lock(&provider->lock);
	held = s3_drop_locked(held);
	pthread_mutex_unlock(&provider->lock);
	if (held)
		s3_held_free(provider->host, held);
}

bool kvt__s3_credentials_refuse(struct s3_provider *provider, uint64_t generation)
{
	bool worth_it;

	pthread_mutex_lock(&provider->lock);
	worth_it = provider->newest->public.generation > generation;
	if (!worth_it && provider->has_thread) {
		worth_it = true;
		provider->is_wanted = true;
		(void)pthread_cond_signal(&provider->changed);
	}
	pthread_mutex_unlock(&provider->lock);
	return worth_it;
}

const char *kvt__s3_provider_source(const struct s3_provider *provider)
{
	return provider->source_name;
}
