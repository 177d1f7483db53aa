/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lane's thread: takes items, runs their operations' stages, delivers what is finished, and
 * sleeps in one place, the backend's poll. Submitters, other lanes and the device wake it there.
 */
#include "lane.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#define CONFIG_RECHECK_NS INT64_C(10000000)
#define POLL_FAILED_NS	  10000000

static void wake(struct kvt__lane *lane)
{
	if (lane->wake_fd >= 0) {
		uint64_t one = 1;
		ssize_t n = write(lane->wake_fd, &one, sizeof(one));
		(void)n; /* full: it is awake anyway */
	} else {
		lane->worker->store->ops.wake(lane->session);
	}
}

static void notify(void *arg)
{
	wake(arg);
}

void kvt__lane_wake(struct kvt_worker *w, uint32_t index)
{
	wake(&w->lanes[index]);
}

void kvt__lanes_wake_all(struct kvt_worker *w)
{
	for (uint32_t i = 0; i < w->lanes_started; i++)
		if (w->lanes[i].session)
			wake(&w->lanes[i]);
}

/* A blocking backend has no poll: the lane sleeps on a descriptor of its own. */
static void sleep_on_fd(struct kvt__lane *lane, int64_t until_ns)
{
	struct pollfd p = {.fd = lane->wake_fd, .events = POLLIN};
	struct timespec left, *timeout = NULL;
	if (until_ns != INT64_MAX) {
		int64_t ns = until_ns ? until_ns - kvt__now_ns() : 0;
		ns = ns < 0 ? 0 : ns;
		left = (struct timespec){(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
		timeout = &left;
	}
	if (ppoll(&p, 1, timeout, NULL) > 0) {
		uint64_t count;
		ssize_t n = read(lane->wake_fd, &count, sizeof(count));
		(void)n;
	}
}

static void poll_backend(struct kvt__lane *lane, int64_t until_ns)
{
	struct kvt_worker *w = lane->worker;
	if (lane->wake_fd >= 0) {
		if (until_ns)
			sleep_on_fd(lane, until_ns);
		return;
	}
	int n = w->store->ops.poll(lane->session, until_ns);
	if (n <
	    0) { /* what is in flight may still be: all that can be done is to ask again, later */
		const struct timespec pause = {0, POLL_FAILED_NS};
		kvt__log(&w->env, KVT_LOG_ERROR, "poll", "backend %s: poll failed: %s",
			 w->store->ops.name, kvt_error_text(n));
		clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
	}
	if (n != 0 && lane->busy_first) {
		lane->now_ns = kvt__now_ns();
		kvt__requests_resubmit_busy(lane);
	}
}

static void arm_ended(struct kvt__lane *lane, struct kvt__arm *arm)
{
	arm->next = lane->armed;
	lane->armed = arm;
}

static void arm_complete(struct kvt_device_io *io)
{
	struct kvt__arm *arm = io->owner;
	struct kvt__lane *lane = arm->lane;
	struct kvt__arm **at = &lane->arms;
	while (*at != arm)
		at = &(*at)->next;
	*at = arm->next;
	arm_ended(lane, arm);
}

static void arm_start(struct kvt__lane *lane, struct kvt__arm *arm)
{
	struct kvt_worker *w = lane->worker;
	arm->lane = lane;
	arm->io.complete = arm_complete;
	if (atomic_load(&arm->job->canceled) || lane->now_ns >= arm->job->deadline_ns) {
		arm_ended(lane, arm);
		return;
	}
	arm->next = lane->arms;
	lane->arms = arm;
	int answer = w->device->ops.order(lane->device_lane, &arm->job->ready, 1, &arm->io);
	if (answer == KVT_DEVICE_QUEUED)
		return;
	if (answer < 0)
		arm->io.result = answer;
	arm_complete(&arm->io);
}

/* Jobs that were canceled or expired while they waited give their order back. */
static void check_arms(struct kvt__lane *lane)
{
	struct kvt__arm *arm = lane->arms;
	while (arm) {
		struct kvt__arm *next = arm->next;
		bool late = lane->now_ns >= arm->job->deadline_ns;
		if ((late || atomic_load(&arm->job->canceled)) &&
		    lane->worker->device->ops.order_cancel(lane->device_lane, &arm->io) == 0)
			arm_complete(&arm->io);
		arm = next;
	}
}

static void queue_armed(struct kvt__lane *lane)
{
	struct kvt_worker *w = lane->worker;
	while (lane->armed) {
		struct kvt__arm *arm = lane->armed;
		struct kvt__job *job = arm->job;
		struct kvt__after after = {0};
		lane->armed = arm->next;
		bool late = lane->now_ns >= job->deadline_ns;
		pthread_mutex_lock(&w->lock);
		job->arm = NULL;
		if (arm->io.result)
			kvt__job_drop_locked(w, job, KVT_STATUS_FAILED, arm->io.result,
					     "the ready event cannot be waited for", &after);
		else if (late || atomic_load(&job->canceled))
			kvt__job_drop_locked(
				w, job, late ? KVT_STATUS_FAILED : KVT_STATUS_CANCELED,
				late ? KVT_ETIMEDOUT : KVT_ECANCELED,
				late ? "the job's deadline passed before its ready event"
				     : "canceled",
				&after);
		else
			kvt__job_queue_locked(w, job, &after);
		kvt__arm_end_locked(w, job, &after);
		pthread_mutex_unlock(&w->lock);
		kvt__after_run(w, &after);
		kvt__free(&w->env, arm);
	}
}

static void start_arms(struct kvt__lane *lane, struct kvt__arm *arm)
{
	while (arm) {
		struct kvt__arm *next = arm->next;
		arm_start(lane, arm);
		arm = next;
	}
}

/* Whether stores may start: not while config.json is being made or compared, which this call may
 * begin. */
static bool stores_may_start(const struct kvt__lane *lane)
{
	struct kvt_worker *w = lane->worker;
	int state = atomic_load(&w->store->config_state);
	if (state == KVT__CONFIG_OK || state == KVT__CONFIG_BAD)
		return true;
	if (state == KVT__CONFIG_UNKNOWN)
		return lane->now_ns <
		       atomic_load(&w->config_retry_ns); /* they fail with its error */
	return false;
}

static bool config_is_due(struct kvt__lane *lane)
{
	struct kvt_worker *w = lane->worker;
	int unknown = KVT__CONFIG_UNKNOWN;
	return atomic_load(&w->store->config_state) == unknown && lane->requests_free &&
	       lane->now_ns >= atomic_load(&w->config_retry_ns) && !atomic_load(&w->stopping) &&
	       atomic_compare_exchange_strong(&w->store->config_state, &unknown, KVT__CONFIG_BUSY);
}

struct taken {
	struct kvt__item *items[KVT__POP_MAX];
	uint32_t count;
	struct kvt__arm *arms;
	bool more;	  /* the lane should look again at once */
	bool stores_wait; /* stores wait for config.json */
};

/* Pending lookups are answered here: the key table is at hand. */
static void answer_pending_locked(struct kvt_worker *w, struct taken *t, struct kvt__after *after)
{
	uint32_t kept = 0;
	for (uint32_t i = 0; i < t->count; i++) {
		struct kvt__item *item = t->items[i];
		if (item->job->result.kind == KVT_JOB_LOOKUP && kvt__keys_find_locked(w, item))
			kvt__item_finish_locked(w, item, KVT_STATUS_PENDING, 0, 0, NULL, NULL,
						after);
		else
			t->items[kept++] = item;
	}
	t->count = kept;
}

/* What the lane may take now. An operation that waits for requests of its own goes before other
 * loads and stores. */
static struct kvt__allowance allowance(const struct kvt__lane *lane)
{
	uint32_t half = lane->depth > 1 ? lane->depth / 2 : !lane->was_lookup;
	struct kvt__allowance a = {.hold_stores = !stores_may_start(lane)};
	a.lookups = half > lane->lookup_ops ? half - lane->lookup_ops : 0;
	a.others = lane->hungry_first ? 0 : kvt__requests_room(lane);
	/* What is kept for lookups is not taken from loads. */
	uint32_t places = lane->store_places - lane->reserved;
	a.stores = places > lane->store_ops ? places - lane->store_ops : 0;
	if (a.stores > a.others)
		a.stores = a.others;
	return a;
}

static void set_bit(atomic_ullong *mask, uint64_t bit, bool on)
{
	if (on)
		atomic_fetch_or(mask, bit);
	else
		atomic_fetch_and(mask, ~bit);
}

/* Takes its share of what waits; marks the lane idle when nothing is left for it. */
static void take(struct kvt__lane *lane, struct taken *t)
{
	struct kvt_worker *w = lane->worker;
	const uint64_t bit = UINT64_C(1) << lane->index;
	struct kvt__after after = {0};
	*t = (struct taken){0};
	uint32_t room = lane->requests_free_count;
	struct kvt__allowance a = allowance(lane);
	uint32_t others = a.others, stores = a.stores;
	pthread_mutex_lock(&w->lock);
	t->arms = w->arms;
	w->arms = w->arms_last = NULL;
	uint64_t waiting_stores, waiting = kvt__queue_waiting_locked(w, &waiting_stores);
	uint32_t idle = (uint32_t)__builtin_popcountll(atomic_load(&w->idle_lanes));
	uint64_t share = (waiting + idle) / (idle + 1);
	uint32_t most = room < KVT__POP_MAX ? room : KVT__POP_MAX;
	if (share < most)
		most = (uint32_t)share;
	a.all = most;
	if (most)
		t->count = kvt__queue_pop_locked(w, t->items, &a, lane->now_ns);
	t->stores_wait = a.held;
	if (t->count)
		lane->was_lookup = t->items[t->count - 1]->item_class == KVT__CLASS_LOOKUP;
	bool exhausted = t->count < most || waiting == 0;
	answer_pending_locked(w, t, &after);
	t->more = room && !exhausted;
	if (room && exhausted && !t->count) {
		atomic_fetch_or(&w->idle_lanes, bit);
		set_bit(&w->idle_for_loads, bit, others > 0);
		set_bit(&w->idle_for_stores, bit, stores > 0);
	}
	uint64_t left = waiting - t->count;
	if (left && t->count)
		kvt__wake_one_locked(w, &after); /* the baton */
	pthread_mutex_unlock(&w->lock);
	kvt__after_run(w, &after);
}

static void run_stages(struct kvt__lane *lane)
{
	while (lane->ready_first || (lane->hungry_first && kvt__requests_room(lane))) {
		kvt__requests_run_ready(lane);
		kvt__ops_feed_hungry(lane);
	}
}

/* Everything that can be done without sleeping. Returns until when to sleep, 0: not at all. */
static int64_t work(struct kvt__lane *lane)
{
	struct kvt_worker *w = lane->worker;
	struct taken t;
	lane->now_ns = kvt__now_ns();
	lane->reserved =
		lane->now_ns < atomic_load_explicit(&w->lookups_until_ns, memory_order_relaxed)
			? lane->lookup_room
			: 0;
	if (lane->copies_in_flight || lane->arms)
		w->device->ops.poll(lane->device_lane);
	kvt__requests_take_inbox(lane);
	kvt__expire(w, lane->now_ns);
	if (lane->arms)
		check_arms(lane);
	int64_t until = lane->waiting ? kvt__requests_check_waiting(lane) : INT64_MAX;
	run_stages(lane);
	queue_armed(lane);
	kvt__ops_flush_finished(lane);
	take(lane, &t);
	start_arms(lane, t.arms);
	for (uint32_t i = 0; i < t.count; i++)
		kvt__op_start(lane, t.items[i]);
	if (t.stores_wait && config_is_due(lane))
		kvt__config_start(lane);
	run_stages(lane);
	queue_armed(lane);
	kvt__ops_flush_finished(lane);
	if (t.more || t.count || lane->armed)
		return 0;
	if (lane->waiting) {
		int64_t next = kvt__requests_check_waiting(lane);
		until = next < until ? next : until;
	}
	if (lane->ready_first)
		return 0;
	int64_t expiry = atomic_load_explicit(&w->next_expiry_ns, memory_order_relaxed);
	until = expiry < until ? expiry : until;
	if (t.stores_wait && lane->now_ns + CONFIG_RECHECK_NS < until)
		until = lane->now_ns + CONFIG_RECHECK_NS;
	return until;
}

static bool is_quiet(const struct kvt__lane *lane)
{
	return !lane->ops && !lane->config && !lane->arms && !lane->armed && !lane->ready_first &&
	       !lane->in_flight && !lane->copies_in_flight;
}

static void run(struct kvt__lane *lane)
{
	struct kvt_worker *w = lane->worker;
	const uint64_t bit = UINT64_C(1) << lane->index;
	for (;;) {
		bool stopping = atomic_load(&w->stopping); /* before: what came earlier is taken */
		int64_t until = work(lane);
		if (stopping && is_quiet(lane))
			break;
		poll_backend(lane, until);
		if (atomic_load_explicit(&w->idle_lanes, memory_order_relaxed) & bit)
			atomic_fetch_and(&w->idle_lanes, ~bit);
	}
	atomic_fetch_and(&w->idle_lanes, ~bit);
}

/* Others may still wake this lane, until all are quiet and nobody outside will wake one any more.
 */
static void await_quiet(struct kvt_worker *w)
{
	pthread_mutex_lock(&w->lock);
	w->lanes_quiet++;
	pthread_cond_broadcast(&w->changed);
	while (!w->lanes_released || w->lanes_quiet < w->lanes_started)
		pthread_cond_wait(&w->changed, &w->lock);
	pthread_mutex_unlock(&w->lock);
}

static int open_lane(struct kvt__lane *lane)
{
	struct kvt_worker *w = lane->worker;
	if (w->config.thread_init &&
	    w->config.thread_init(w->config.thread_init_context, lane->index))
		return kvt__fail(KVT_ECONFIG, "kvt_worker_create: thread_init refuses lane %u",
				 lane->index);
	int error = 0;
	if (!w->store->ops.poll) {
		lane->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		if (lane->wake_fd < 0)
			return kvt__fail(KVT_EMFILE, "kvt_worker_create: eventfd: %s",
					 strerror(errno));
	}
	error = w->store->ops.session_open(w->store->backend, lane->depth, 0, &lane->session);
	if (error)
		return error;
	error = w->device->ops.lane_open(w->device->device, notify, lane, &lane->device_lane);
	if (error)
		return error;
	if (kvt__requests_init(lane))
		return kvt__fail(KVT_ENOMEM, "kvt_worker_create: out of memory for %u requests",
				 lane->depth);
	return 0;
}

static void free_lane_memory(struct kvt__lane *lane)
{
	const struct kvt__env *env = &lane->worker->env;
	kvt__requests_fini(lane);
	while (lane->ops_free) {
		struct kvt__op *op = lane->ops_free;
		lane->ops_free = op->next;
		kvt__free(env, op);
	}
	while (lane->small_trailers) {
		uint8_t *trailer = lane->small_trailers;
		memcpy(&lane->small_trailers, trailer, sizeof(lane->small_trailers));
		kvt__free(env, trailer);
	}
	if (lane->wake_fd >= 0)
		close(lane->wake_fd);
	lane->wake_fd = -1;
}

static void close_lane(struct kvt__lane *lane)
{
	struct kvt_worker *w = lane->worker;
	if (lane->device_lane)
		w->device->ops.lane_close(lane->device_lane);
	if (lane->session)
		w->store->ops.session_close(lane->session);
	lane->session = lane->device_lane = NULL;
	free_lane_memory(lane);
}

static void *lane_main(void *arg)
{
	struct kvt__lane *lane = arg;
	struct kvt_worker *w = lane->worker;
	char name[16];
	snprintf(name, sizeof(name), "kvt-lane-%u", lane->index);
	pthread_setname_np(pthread_self(), name);
	lane->start_error = open_lane(lane);
	if (lane->start_error)
		snprintf(lane->start_detail, sizeof(lane->start_detail), "%s", kvt_error_detail());
	pthread_mutex_lock(&w->lock);
	w->lanes_ready++;
	pthread_cond_broadcast(&w->changed);
	/* Lanes wake each other: none runs before all are there. */
	while (w->lanes_ready < w->config.lanes && !w->lanes_released)
		pthread_cond_wait(&w->changed, &w->lock);
	bool complete = w->lanes_ready == w->config.lanes;
	pthread_mutex_unlock(&w->lock);
	if (complete && !lane->start_error)
		run(lane);
	await_quiet(w);
	close_lane(lane);
	pthread_mutex_lock(&w->lock);
	w->lanes_running--;
	pthread_cond_broadcast(&w->changed);
	pthread_mutex_unlock(&w->lock);
	return NULL;
}

/* Lanes take no signals: those are the program's. */
static int start_thread(struct kvt__lane *lane)
{
	sigset_t all, before;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	int error = pthread_create(&lane->thread, NULL, lane_main, lane);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return error;
}

/* With more than one lane of one request each, the first is kept for loads and lookups; else a
 * eighth of each, at least one. */
static uint32_t places_for_stores(const struct kvt_worker *w, uint32_t index)
{
	uint32_t depth = w->config.depth;
	if (depth == 1)
		return w->config.lanes > 1 && index == 0 ? 0 : 1;
	return depth - (depth / 8 ? depth / 8 : 1);
}

/* An eighth, where at least one request is left for loads and one for stores. */
static uint32_t room_for_lookups(const struct kvt_worker *w)
{
	uint32_t depth = w->config.depth;
	if (depth < 3)
		return 0;
	return depth / 8 ? depth / 8 : 1;
}

int kvt__lanes_start(struct kvt_worker *w)
{
	const uint32_t count = w->config.lanes;
	size_t name_room = kvt__object_name_max(&w->store->ns);
	w->lanes = kvt__zalloc(&w->env, count * sizeof(*w->lanes));
	if (!w->lanes)
		return kvt__fail(KVT_ENOMEM, "kvt_worker_create: out of memory for %u lanes",
				 count);
	for (uint32_t i = 0; i < count; i++) {
		struct kvt__lane *lane = &w->lanes[i];
		lane->worker = w;
		lane->index = i;
		lane->depth = w->config.depth;
		lane->store_places = places_for_stores(w, i);
		lane->lookup_room = room_for_lookups(w);
		lane->wake_fd = -1;
		lane->name_room = name_room;
	}
	for (uint32_t i = 0; i < count; i++) {
		pthread_mutex_lock(&w->lock);
		w->lanes_running++;
		w->lanes_started++;
		pthread_mutex_unlock(&w->lock);
		int error = start_thread(&w->lanes[i]);
		if (error) {
			pthread_mutex_lock(&w->lock);
			w->lanes_running--;
			w->lanes_started--;
			pthread_mutex_unlock(&w->lock);
			return kvt__fail(KVT_ENOMEM,
					 "kvt_worker_create: lane %u: pthread_create: %s", i,
					 strerror(error));
		}
		w->lanes[i].started = true;
	}
	pthread_mutex_lock(&w->lock);
	while (w->lanes_ready < count)
		pthread_cond_wait(&w->changed, &w->lock);
	pthread_mutex_unlock(&w->lock);
	for (uint32_t i = 0; i < count; i++)
		if (w->lanes[i].start_error)
			return kvt__fail(w->lanes[i].start_error, "%s", w->lanes[i].start_detail);
	return 0;
}

void kvt__lanes_join(struct kvt_worker *w)
{
	if (!w->lanes)
		return;
	pthread_mutex_lock(&w->lock);
	/* When not all are ready none runs, and none sleeps in poll. */
	bool asleep = !w->lanes_released && w->lanes_ready == w->config.lanes;
	pthread_mutex_unlock(&w->lock);
	if (asleep)
		kvt__lanes_wake_all(w);
	pthread_mutex_lock(&w->lock);
	w->lanes_released = true;
	pthread_cond_broadcast(&w->changed);
	pthread_mutex_unlock(&w->lock);
	for (uint32_t i = 0; i < w->lanes_started; i++)
		if (w->lanes[i].started)
			pthread_join(w->lanes[i].thread, NULL);
}

void kvt__lanes_forked(struct kvt_worker *w)
{
	for (uint32_t i = 0; w->lanes && i < w->config.lanes; i++)
		free_lane_memory(&w->lanes[i]);
}
