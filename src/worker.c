/* SPDX-License-Identifier: Apache-2.0 */
/* A worker's life, and the calls that look at its jobs: poll, wait, drain, cancel. Submitting is in
 * submit*.c. */
#include "worker.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#define JOB_BUCKETS 16384

void kvt__deadline(int64_t timeout_ms, struct timespec *until)
{
	clock_gettime(CLOCK_MONOTONIC, until);
	if (timeout_ms < 0 || timeout_ms > INT64_C(1000) * 86400 * 36500)
		timeout_ms = INT64_C(1000) * 86400 * 36500;
	until->tv_sec += timeout_ms / 1000;
	until->tv_nsec += timeout_ms % 1000 * 1000000;
	if (until->tv_nsec >= 1000000000) {
		until->tv_sec++;
		until->tv_nsec -= 1000000000;
	}
}

static int check_range(const char *name, uint64_t value, uint64_t least, uint64_t most)
{
	if (value >= least && value <= most)
		return 0;
	return kvt__fail(KVT_EINVAL, "kvt_worker_create: options.%s is %llu, expected %llu to %llu",
			 name, (unsigned long long)value, (unsigned long long)least,
			 (unsigned long long)most);
}

static int64_t timeout_ns(uint64_t ms, uint64_t fallback_ms)
{
	return (int64_t)(ms ? ms : fallback_ms) * 1000000;
}

/* What part_bytes is when the caller does not say. */
static uint64_t default_part_bytes(const struct kvt_backend_limits *l)
{
	const uint64_t least = KVT__PAGE_BYTES, most = UINT64_C(5) << 30;
	uint64_t bytes = l->default_part_bytes ? l->default_part_bytes : UINT64_C(8) << 20;
	bytes = bytes < least ? least : bytes > most ? most : bytes;
	return bytes & ~(uint64_t)(KVT__PAGE_BYTES - 1);
}

/* Defaults and bounds; the backend's limits bound part_bytes. */
static int configure(struct kvt_worker *w, const struct kvt_worker_options *o)
{
	const struct kvt_backend_limits *l = &w->store->limits;
	struct kvt__worker_config *c = &w->config;
	const uint64_t most_ms = (uint64_t)INT64_MAX / 16000000;
	c->lanes = o->lanes ? o->lanes : 4;
	c->depth = o->depth ? o->depth : l->default_depth;
	if (!w->store->ops.poll)
		c->depth = 1;
	c->staging_bytes = o->staging_bytes ? o->staging_bytes : UINT64_C(256) << 20;
	c->part_bytes = o->part_bytes ? o->part_bytes : default_part_bytes(l);
	c->queue_chunks = o->queue_chunks ? o->queue_chunks : 65536;
	c->timeout_ns[KVT_JOB_STORE] = timeout_ns(o->store_timeout_ms, 600000);
	c->timeout_ns[KVT_JOB_LOAD] = timeout_ns(o->load_timeout_ms, 120000);
	c->timeout_ns[KVT_JOB_LOOKUP] = timeout_ns(o->lookup_timeout_ms, 30000);
	c->timeout_ns[KVT_JOB_OPS] = c->timeout_ns[KVT_JOB_STORE];
	c->operation_timeout_ns = timeout_ns(o->operation_timeout_ms, 30000);
	c->buffer_timeout_ns = timeout_ns(o->buffer_timeout_ms, 30000);
	c->keep_corrupt = o->keep_corrupt != 0;
	c->thread_init = o->thread_init;
	c->thread_init_context = o->thread_init_context;
	int error = check_range("lanes", c->lanes, 1, KVT__MAX_LANES);
	if (!error)
		error = check_range("depth", c->depth, 1, 4096);
	if (!error)
		error = check_range("queue_chunks", c->queue_chunks, 1, UINT64_C(1) << 30);
	if (!error)
		error = check_range("part_bytes", c->part_bytes, KVT__PAGE_BYTES,
				    UINT64_C(5) << 30);
	if (!error && c->part_bytes % KVT__PAGE_BYTES)
		error = kvt__fail(KVT_EINVAL,
				  "kvt_worker_create: options.part_bytes is %llu, expected a "
				  "multiple of 4,096",
				  (unsigned long long)c->part_bytes);
	const uint64_t times[] = {o->store_timeout_ms, o->load_timeout_ms, o->lookup_timeout_ms,
				  o->operation_timeout_ms, o->buffer_timeout_ms};
	const char *const names[] = {"store_timeout_ms", "load_timeout_ms", "lookup_timeout_ms",
				     "operation_timeout_ms", "buffer_timeout_ms"};
	for (size_t i = 0; i < sizeof(times) / sizeof(times[0]) && !error; i++)
		error = check_range(names[i], times[i], 0, most_ms);
	if (error)
		return error;
	/* A trailer of up to 64 KiB rides along. */
	if (l->max_part_bytes < 68 * 1024 + KVT__PAGE_BYTES)
		return kvt__fail(KVT_ECONFIG,
				 "kvt_worker_create: backend \"%s\" takes parts of at most %llu "
				 "bytes, expected at least %u",
				 w->store->ops.name, (unsigned long long)l->max_part_bytes,
				 68 * 1024 + KVT__PAGE_BYTES);
	if (c->part_bytes > l->max_part_bytes - 68 * 1024)
		c->part_bytes = (l->max_part_bytes - 68 * 1024) & ~(uint64_t)(KVT__PAGE_BYTES - 1);
	return 0;
}

static int create_tables(struct kvt_worker *w)
{
	w->jobs.buckets = kvt__zalloc(&w->env, JOB_BUCKETS * sizeof(*w->jobs.buckets));
	w->jobs.mask = JOB_BUCKETS - 1;
	if (!w->jobs.buckets || kvt__keys_init(w))
		return kvt__fail(KVT_ENOMEM, "kvt_worker_create: out of memory for its tables");
	return 0;
}

static int create_staging(struct kvt_worker *w, void *memory)
{
	const struct kvt__worker_config *c = &w->config;
	uint64_t buffer = c->part_bytes;
	if (buffer < w->store->limits.min_part_bytes)
		buffer = w->store->limits.min_part_bytes;
	buffer = (buffer + 68 * 1024 + KVT__PAGE_BYTES - 1) & ~(uint64_t)(KVT__PAGE_BYTES - 1);
	return kvt__staging_create(&w->env, w->device, memory, c->staging_bytes, buffer,
				   c->part_bytes, &w->staging);
}

/* Everything but the lanes, which have ended or never were. */
static void worker_free(struct kvt_worker *w)
{
	bool forked = w->fork_generation != kvt__fork_generation;
	for (struct kvt__job *job = w->done_first; job;) {
		struct kvt__job *next = job->next;
		kvt__job_free(job);
		job = next;
	}
	/* In a child only what is plain memory can be given back. */
	if (!forked)
		kvt__staging_destroy(w->staging);
	else if (w->device && (w->device->ops.capabilities & KVT_DEVICE_HOST_MEMORY))
		kvt__staging_forked(w->staging);
	if (forked)
		kvt__lanes_forked(w);
	while (forked && w->live_first) {
		struct kvt__job *next = w->live_first->next;
		kvt__free(&w->env, w->live_first->arm);
		kvt__job_free(w->live_first);
		w->live_first = next;
	}
	for (uint32_t i = 0; i < w->geometry_count; i++)
		kvt__free(&w->env, w->geometries[i]);
	kvt__free(&w->env, w->geometries);
	kvt__keys_fini(w);
	kvt__free(&w->env, w->jobs.buckets);
	kvt__free(&w->env, w->lanes);
	if (w->event_fd >= 0)
		close(w->event_fd);
	if (!forked) {
		pthread_mutex_destroy(&w->lock);
		pthread_cond_destroy(&w->changed);
	}
	if (w->store)
		atomic_fetch_sub(&w->store->users, 1);
	if (w->device)
		atomic_fetch_sub(&w->device->users, 1);
	if (w->own_device)
		kvt_device_close(w->own_device);
	struct kvt__env env = w->env;
	kvt__env_fini(&w->env);
	kvt__free(&env, w);
}

static int worker_new(const struct kvt_hooks *hooks, struct kvt_worker **wp)
{
	struct kvt__env env;
	int error = kvt__env_init(&env, hooks);
	if (error)
		return error;
	struct kvt_worker *w = kvt__zalloc(&env, sizeof(*w));
	kvt__env_fini(&env);
	if (!w)
		return kvt__fail(KVT_ENOMEM, "kvt_worker_create: out of memory");
	error = kvt__env_init(&w->env, hooks);
	if (error) {
		kvt__free(&env, w);
		return error;
	}
	pthread_condattr_t attr;
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&w->changed, &attr);
	pthread_condattr_destroy(&attr);
	pthread_mutex_init(&w->lock, NULL);
	w->fork_generation = kvt__fork_generation;
	w->event_fd = -1;
	atomic_init(&w->next_expiry_ns, INT64_MAX);
	*wp = w;
	return 0;
}

int kvt_worker_create(struct kvt_store *store, struct kvt_device *device,
		      const struct kvt_worker_options *options, struct kvt_worker **workerp)
{
	struct kvt_worker_options o = {0};
	struct kvt_worker *w = NULL;
	if (!workerp)
		return kvt__fail(KVT_EINVAL, "kvt_worker_create: workerp is NULL");
	*workerp = NULL;
	if (!store)
		return kvt__fail(KVT_EINVAL, "kvt_worker_create: store is NULL");
	kvt__fork_watch();
	if (store->fork_generation != kvt__fork_generation)
		return kvt__fail(
			KVT_EFORK,
			"kvt_worker_create: the store was opened before fork(), in the parent");
	if (device && device->fork_generation != kvt__fork_generation)
		return kvt__fail(
			KVT_EFORK,
			"kvt_worker_create: the device was opened before fork(), in the parent");
	int error = kvt__copy_options(&o, sizeof(o), options, sizeof(size_t),
				      "kvt_worker_create: options");
	if (!error)
		error = worker_new(&o.hooks, &w);
	if (error)
		return error;
	w->store = store;
	atomic_fetch_add(&store->users, 1);
	if (!device) {
		struct kvt_device_options d = {.struct_size = sizeof(d), .hooks = o.hooks};
		error = kvt_device_open(&d, &w->own_device);
		device = w->own_device;
	}
	if (!error) {
		w->device = device;
		atomic_fetch_add(&device->users, 1);
		error = configure(w, &o);
	}
	if (!error) {
		kvt__retry_init(&w->retry, &o);
		error = create_tables(w);
	}
	if (!error)
		error = create_staging(w, o.staging_memory);
	if (!error)
		error = kvt__lanes_start(w);
	if (error) {
		atomic_store(&w->stopping, true);
		kvt__lanes_join(w);
		worker_free(w);
		return error;
	}
	*workerp = w;
	return 0;
}

static void drop_all_locked(struct kvt_worker *w, struct kvt__after *after)
{
	struct kvt__job *job = w->live_first;
	while (job) {
		struct kvt__job *next = job->next;
		atomic_store(&job->canceled, true);
		kvt__job_drop_locked(w, job, KVT_STATUS_CANCELED, KVT_ESHUTDOWN,
				     "the worker is being destroyed", after);
		job = next;
	}
}

int kvt_worker_destroy(struct kvt_worker *w, int64_t timeout_ms)
{
	if (!w)
		return 0;
	if (w->fork_generation != kvt__fork_generation) {
		worker_free(w);
		return 0;
	}
	struct timespec until;
	kvt__deadline(timeout_ms, &until);
	struct kvt__after after = {0};
	pthread_mutex_lock(&w->lock);
	bool again = atomic_exchange(&w->stopping, true);
	drop_all_locked(w, &after);
	pthread_mutex_unlock(&w->lock);
	if (again) /* lanes may have ended since the first call, which woke them all */
		after.wake = 0;
	kvt__after_run(w, &after);
	if (!again)
		kvt__lanes_wake_all(w);

	pthread_mutex_lock(&w->lock);
	w->lanes_released = true;
	pthread_cond_broadcast(&w->changed);
	w->waiting++;
	int timed_out = 0;
	while (w->lanes_running && !timed_out) {
		if (timeout_ms < 0)
			pthread_cond_wait(&w->changed, &w->lock);
		else
			timed_out =
				pthread_cond_timedwait(&w->changed, &w->lock, &until) == ETIMEDOUT;
	}
	w->waiting--;
	uint32_t running = w->lanes_running;
	uint64_t live = w->live_count;
	pthread_mutex_unlock(&w->lock);
	if (running)
		return kvt__fail(
			KVT_EBUSY,
			"kvt_worker_destroy: %u lanes still run, with %llu jobs, after %lld ms",
			running, (unsigned long long)live, (long long)timeout_ms);
	kvt__lanes_join(w);
	worker_free(w);
	return 0;
}

static void job_unlink_id_locked(struct kvt_worker *w, struct kvt__job *job)
{
	struct kvt__job **at =
		&w->jobs.buckets[job->result.job_id * UINT64_C(0x9e3779b97f4a7c15) >> 32 &
				 w->jobs.mask];
	while (*at != job)
		at = &(*at)->id_next;
	*at = job->id_next;
	w->jobs.count--;
}

int kvt_worker_poll(struct kvt_worker *w, struct kvt_result **results, int max_results)
{
	int error = kvt__worker_check(w, "kvt_worker_poll");
	if (!error && max_results < 0)
		error = kvt__fail(KVT_EINVAL,
				  "kvt_worker_poll: max_results is %d, expected at least 0",
				  max_results);
	if (!error && max_results && !results)
		error = kvt__fail(KVT_EINVAL, "kvt_worker_poll: results is NULL");
	if (error)
		return error;
	kvt__expire(w, kvt__now_ns());
	if (atomic_load_explicit(&w->done_count, memory_order_acquire) == 0)
		return 0;
	int n = 0;
	pthread_mutex_lock(&w->lock);
	while (n < max_results && w->done_first) {
		struct kvt__job *job = w->done_first;
		w->done_first = job->next;
		if (!w->done_first)
			w->done_last = NULL;
		job_unlink_id_locked(w, job);
		job->next = NULL;
		results[n++] = &job->result;
	}
	if (n && atomic_fetch_sub(&w->done_count, (unsigned long long)n) == (unsigned long long)n &&
	    w->event_fd >= 0) {
		uint64_t count;
		ssize_t got = read(w->event_fd, &count, sizeof(count)); /* not readable any more */
		(void)got;
	}
	pthread_mutex_unlock(&w->lock);
	return n;
}

enum wait_for { WAIT_DONE, WAIT_MEMORY };

static bool ready_locked(const struct kvt__job *job, enum wait_for what)
{
	return job->complete || (what == WAIT_MEMORY && job->memory_pending == 0);
}

/* Stores whose memory is waited for jump the queue, and so do the stores that they wait for. */
static void lift_locked(struct kvt_worker *w, struct kvt__job *job)
{
	if (job->result.kind != KVT_JOB_STORE)
		return;
	for (uint64_t k = 0; k < job->result.key_count; k++) {
		struct kvt__item *item = &job->items[k];
		if (item->state == KVT__ITEM_PARKED)
			kvt__queue_lift_locked(w, item->leader);
		if (item->state != KVT__ITEM_DONE && item->state != KVT__ITEM_ACTIVE)
			kvt__queue_lift_locked(w, item);
	}
}

/* The jobs are looked up again after every sleep: somebody else may have polled them meanwhile. */
static bool all_ready_locked(const struct kvt_worker *w, const uint64_t *ids, size_t count,
			     enum wait_for what)
{
	for (size_t i = 0; i < count; i++) {
		const struct kvt__job *job = kvt__job_find_locked(w, ids[i]);
		if (job && !ready_locked(job, what))
			return false;
	}
	return true;
}

/* Sleeps until `changed`, `until` or the next expiry, whichever is first; expires what is due.
 * False: `until` has come. */
static bool sleep_locked(struct kvt_worker *w, int64_t timeout_ms, const struct timespec *until)
{
	struct timespec at = *until;
	int64_t expiry = atomic_load_explicit(&w->next_expiry_ns, memory_order_relaxed);
	int64_t until_ns = (int64_t)until->tv_sec * 1000000000 + until->tv_nsec;
	bool forever = timeout_ms < 0;
	if (expiry != INT64_MAX && (forever || expiry < until_ns)) {
		at.tv_sec = (time_t)(expiry / 1000000000);
		at.tv_nsec = (long)(expiry % 1000000000);
		forever = false;
	}
	w->waiting++;
	if (forever)
		pthread_cond_wait(&w->changed, &w->lock);
	else
		pthread_cond_timedwait(&w->changed, &w->lock, &at);
	w->waiting--;
	int64_t now = kvt__now_ns();
	if (now >= atomic_load_explicit(&w->next_expiry_ns, memory_order_relaxed)) {
		pthread_mutex_unlock(&w->lock);
		kvt__expire(w, now);
		pthread_mutex_lock(&w->lock);
	}
	return timeout_ms < 0 || now < until_ns;
}

static int wait_jobs(struct kvt_worker *w, const uint64_t *ids, size_t count, int64_t timeout_ms,
		     size_t *knownp, enum wait_for what, const char *call)
{
	if (knownp)
		*knownp = 0;
	int error = kvt__worker_check(w, call);
	if (!error && count && !ids)
		error = kvt__fail(KVT_EINVAL, "%s: job_ids is NULL, expected %zu ids", call, count);
	if (error)
		return error;
	struct timespec until;
	kvt__deadline(timeout_ms, &until);
	size_t known = 0;
	kvt__expire(w, kvt__now_ns());
	pthread_mutex_lock(&w->lock);
	for (size_t i = 0; i < count; i++) {
		struct kvt__job *job = kvt__job_find_locked(w, ids[i]);
		if (job && what == WAIT_MEMORY)
			lift_locked(w, job);
		known += job != NULL;
	}
	bool in_time = timeout_ms != 0;
	bool ready = all_ready_locked(w, ids, count, what);
	while (!ready && in_time) {
		in_time = sleep_locked(w, timeout_ms, &until);
		ready = all_ready_locked(w, ids, count, what);
	}
	pthread_mutex_unlock(&w->lock);
	if (knownp)
		*knownp = known;
	return ready ? 0
		     : kvt__fail(KVT_ETIMEDOUT, "%s: some of %zu jobs still run after %lld ms",
				 call, known, (long long)timeout_ms);
}

int kvt_worker_wait(struct kvt_worker *worker, const uint64_t *job_ids, size_t job_count,
		    int64_t timeout_ms, size_t *known_countp)
{
	return wait_jobs(worker, job_ids, job_count, timeout_ms, known_countp, WAIT_DONE,
			 "kvt_worker_wait");
}

int kvt_worker_wait_memory(struct kvt_worker *worker, const uint64_t *job_ids, size_t job_count,
			   int64_t timeout_ms, size_t *known_countp)
{
	return wait_jobs(worker, job_ids, job_count, timeout_ms, known_countp, WAIT_MEMORY,
			 "kvt_worker_wait_memory");
}

int kvt_worker_drain(struct kvt_worker *w, int64_t timeout_ms)
{
	int error = kvt__worker_check(w, "kvt_worker_drain");
	if (error)
		return error;
	struct timespec until;
	kvt__deadline(timeout_ms, &until);
	kvt__expire(w, kvt__now_ns());
	pthread_mutex_lock(&w->lock);
	bool in_time = timeout_ms != 0;
	while (w->live_count && in_time)
		in_time = sleep_locked(w, timeout_ms, &until);
	uint64_t live = w->live_count;
	pthread_mutex_unlock(&w->lock);
	return live ? kvt__fail(KVT_ETIMEDOUT,
				"kvt_worker_drain: %llu jobs still run after %lld ms",
				(unsigned long long)live, (long long)timeout_ms)
		    : 0;
}

int kvt_worker_cancel(struct kvt_worker *w, uint64_t job_id)
{
	int error = kvt__worker_check(w, "kvt_worker_cancel");
	if (error)
		return error;
	struct kvt__after after = {0};
	bool active = false;
	pthread_mutex_lock(&w->lock);
	struct kvt__job *job = kvt__job_find_locked(w, job_id);
	if (job && !job->complete) {
		atomic_store(&job->canceled, true);
		job->pending++;
		kvt__job_drop_locked(w, job, KVT_STATUS_CANCELED, KVT_ECANCELED, "canceled",
				     &after);
		active = job->pending > 1;
		kvt__job_unpin_locked(w, job, &after);
	}
	pthread_mutex_unlock(&w->lock);
	kvt__after_run(w, &after);
	if (active)
		kvt__lanes_wake_all(w);
	return job ? 0
		   : kvt__fail(KVT_ENOENT, "kvt_worker_cancel: job_id %llu is not live",
			       (unsigned long long)job_id);
}

int kvt_worker_event_fd(struct kvt_worker *w)
{
	int error = kvt__worker_check(w, "kvt_worker_event_fd");
	if (error)
		return error;
	pthread_mutex_lock(&w->lock);
	int fd = w->event_fd;
	if (fd < 0) {
		fd = eventfd(w->done_first ? 1 : 0, EFD_CLOEXEC | EFD_NONBLOCK);
		w->event_fd = fd;
	}
	pthread_mutex_unlock(&w->lock);
	return fd >= 0 ? fd
		       : kvt__fail(KVT_EMFILE, "kvt_worker_event_fd: eventfd: %s", strerror(errno));
}
