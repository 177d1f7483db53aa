/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeps a namespace below max_bytes. The thread counts what is there when it starts, every ten
 * minutes, and whenever this process has stored an eighth of what was left up to the high
 * watermark: others may be storing as much. Above the high watermark it removes the least recently
 * used objects down to the low one. While it finds nothing to remove, listing takes it a tenth of
 * the time at most, however much is stored.
 */
#include "maintenance.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "gc.h"

#define COUNT_INTERVAL_NS  INT64_C(600000000000)
#define RETRY_INTERVAL_NS  INT64_C(10000000000)
#define LISTING_SHARE	   10
#define SHARE_OF_HEADROOM  8
#define LEAST_SHARE_OF_MAX 128

struct kvt__maintenance {
	struct kvt_store *store;
	pthread_t thread;
	int wake_fd;
	atomic_bool stop;
	atomic_ullong count_at; /* of store->stored_bytes; UINT64_MAX: has been told */
	uint64_t high_bytes, low_bytes;
};

static void wake(struct kvt__maintenance *m)
{
	uint64_t one = 1;

	while (write(m->wake_fd, &one, sizeof(one)) < 0 && errno == EINTR)
		;
}

/* Sleeps until woken or CLOCK_MONOTONIC reaches until_ns. */
static void sleep_until(struct kvt__maintenance *m, int64_t until_ns)
{
	struct pollfd p = {.fd = m->wake_fd, .events = POLLIN};
	uint64_t woken;

	for (;;) {
		int64_t left_ns = until_ns - kvt__now_ns();
		int ready;

		if (left_ns <= 0 || atomic_load(&m->stop))
			return;
		ready = poll(&p, 1, (int)(left_ns / 1000000 + 1));
		if (ready > 0) {
			while (read(m->wake_fd, &woken, sizeof(woken)) < 0 && errno == EINTR)
				;
			return;
		}
	}
}

/* When this process has stored as much, others may have filled what was left. */
static void set_next_count(struct kvt__maintenance *m, uint64_t stored_before, uint64_t there)
{
	uint64_t share = m->store->max_bytes / LEAST_SHARE_OF_MAX;

	if (there < m->high_bytes && (m->high_bytes - there) / SHARE_OF_HEADROOM > share)
		share = (m->high_bytes - there) / SHARE_OF_HEADROOM;
	atomic_store(&m->count_at, stored_before + share);
	/* What was stored since the counting began. */
	if (atomic_load(&m->store->stored_bytes) >= stored_before + share)
		wake(m);
}

static void tell(struct kvt__maintenance *m, const struct kvt_gc_summary *found, int error)
{
	if (error != 0)
		kvt__log(&m->store->env, KVT_LOG_WARNING, "maintenance",
			 "max_bytes: capacity is not kept: %s", kvt_error_detail());
	else if (found->removed_objects > 0)
		kvt__log(&m->store->env, KVT_LOG_INFO, "maintenance",
			 "max_bytes: removed %llu objects of %llu bytes, %llu bytes are left",
			 (unsigned long long)found->removed_objects,
			 (unsigned long long)found->removed_bytes,
			 (unsigned long long)(found->bytes - found->removed_bytes));
}

/* One count, with removing when that is needed; returns when to count again at the latest. */
static int64_t maintain(struct kvt__maintenance *m, int64_t *not_beforep)
{
	struct kvt__gc_order order = {
		.begin_above = m->high_bytes,
		.keep_bytes = m->low_bytes,
		.leftovers_may_stay = true,
		.stop = &m->stop,
	};
	struct kvt_gc_summary found = {.struct_size = sizeof(found)};
	uint64_t stored_before = atomic_load(&m->store->stored_bytes);
	int64_t begun = kvt__now_ns(), ended;
	int error = kvt__gc_run(m->store, &order, &found);

	ended = kvt__now_ns();
	if (error == KVT_ECANCELED)
		return ended;
	tell(m, &found, error);
	set_next_count(m, stored_before, found.bytes - found.removed_bytes);
	*not_beforep = ended;
	if (found.removed_objects == 0)
		*not_beforep += LISTING_SHARE * (ended - begun);
	if (error != 0)
		*not_beforep = ended + RETRY_INTERVAL_NS;
	return ended + COUNT_INTERVAL_NS;
}

static void *maintenance_main(void *arg)
{
	struct kvt__maintenance *m = arg;
	int64_t until, not_before = 0;

	(void)pthread_setname_np(pthread_self(), "kvt-maintain");
	while (!atomic_load(&m->stop)) {
		until = maintain(m, &not_before);
		sleep_until(m, until);
		while (!atomic_load(&m->stop) && kvt__now_ns() < not_before)
			sleep_until(m, not_before);
	}
	return NULL;
}

static int start_thread(struct kvt__maintenance *m)
{
	sigset_t all, before;
	int error;

	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &before);
	error = pthread_create(&m->thread, NULL, maintenance_main, m);
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	return error;
}

int kvt__maintenance_start(struct kvt_store *store)
{
	struct kvt__maintenance *m = kvt__zalloc(&store->env, sizeof(*m));
	int error;

	if (m == NULL)
		return kvt__fail(KVT_ENOMEM, "max_bytes: out of memory");
	m->store = store;
	m->high_bytes = (uint64_t)((double)store->max_bytes * store->high_watermark);
	m->low_bytes = (uint64_t)((double)store->max_bytes * store->low_watermark);
	atomic_init(&m->count_at, UINT64_MAX);
	m->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (m->wake_fd < 0) {
		error = kvt__fail(KVT_EMFILE, "max_bytes: eventfd: %s", strerror(errno));
		kvt__free(&store->env, m);
		return error;
	}
	store->maintenance = m;
	error = start_thread(m);
	if (error != 0) {
		error = kvt__fail(KVT_ENOMEM, "max_bytes: thread: %s", strerror(error));
		kvt__maintenance_forked(store);
	}
	return error;
}

void kvt__maintenance_ask_to_stop(struct kvt_store *store)
{
	if (store->maintenance == NULL)
		return;
	atomic_store(&store->maintenance->stop, true);
	wake(store->maintenance);
}

void kvt__maintenance_stop(struct kvt_store *store)
{
	if (store->maintenance == NULL)
		return;
	kvt__maintenance_ask_to_stop(store);
	(void)pthread_join(store->maintenance->thread, NULL);
	kvt__maintenance_forked(store);
}

void kvt__maintenance_forked(struct kvt_store *store)
{
	if (store->maintenance == NULL)
		return;
	(void)close(store->maintenance->wake_fd);
	kvt__free(&store->env, store->maintenance);
	store->maintenance = NULL;
}

void kvt__store_wrote(struct kvt_store *store, uint64_t bytes)
{
	struct kvt__maintenance *m = store->maintenance;
	uint64_t stored = atomic_fetch_add(&store->stored_bytes, bytes) + bytes;
	unsigned long long count_at;

	if (m == NULL)
		return;
	count_at = atomic_load(&m->count_at);
	/* Only the first that passes the mark wakes the thread. */
	if (stored >= count_at &&
	    atomic_compare_exchange_strong(&m->count_at, &count_at, UINT64_MAX))
		wake(m);
}
