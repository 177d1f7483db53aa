/* SPDX-License-Identifier: Apache-2.0 */
/* The core's side of the fake backend: sessions and requests, and the checks of what it is given.
 */
#include "fake_backend_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* ---- Checks ---- */

static void check_name(struct fake_store *store, const struct kvt_io *io)
{
	const char *name = io->name;

	if (!name) {
		fake__broke(store, "op %u: no name", io->op);
		return;
	}
	if (io->op == KVT_IO_LIST || io->op == KVT_IO_SWEEP)
		return;
	size_t bytes = strlen(name);
	if (bytes == 0 || bytes > 1024 || name[0] == '/' || name[bytes - 1] == '/' ||
	    strstr(name, "//") || strncmp(name, ".kvtier/", 8) == 0)
		fake__broke(store, "op %u: name \"%.100s\"", io->op, name);
}

static void check_iov(struct fake_store *store, const struct kvt_io *io)
{
	uint32_t max_iov = store->config.max_iov ? store->config.max_iov : 1024;
	uint32_t align = store->config.memory_alignment ? store->config.memory_alignment : 1;
	/* A trailer alone is small and moves from where it lies. */
	bool ours = strstr(io->name, ".bin") != NULL &&
		    !(io->iov_count == 1 && io->length <= 68 * 1024);
	uint64_t sum = 0, piece = 0; /* bytes of all, and of the piece of memory so far */

	if (io->iov_count > max_iov)
		fake__broke(store, "op %u %s: %u iovec entries of %u", io->op, io->name,
			    io->iov_count, max_iov);
	for (uint32_t i = 0; i < io->iov_count; i++) {
		const struct kvt_iovec *v = &io->iov[i];
		sum += v->iov_len;
		if (!v->iov_base && io->op == KVT_IO_GET &&
		    !(store->config.capabilities & KVT_CAP_GET_DISCARD))
			fake__broke(store, "get %s: a NULL iovec entry", io->name);
		/* Entries that follow each other in memory are one piece. */
		bool begins = i == 0 || !v->iov_base || !v[-1].iov_base ||
			      v->iov_base != (uint8_t *)v[-1].iov_base + v[-1].iov_len;
		if (ours && begins && ((uintptr_t)v->iov_base % align || piece % align))
			fake__broke(store, "op %u %s: entry %u is misaligned", io->op, io->name, i);
		piece = begins ? v->iov_len : piece + v->iov_len;
	}
	if (sum != io->length)
		fake__broke(store, "op %u %s: iovec of %llu bytes, length %llu", io->op, io->name,
			    (unsigned long long)sum, (unsigned long long)io->length);
	if (io->op == KVT_IO_PUT && io->object_bytes != io->length)
		fake__broke(store, "put %s: object_bytes %llu, length %llu", io->name,
			    (unsigned long long)io->object_bytes, (unsigned long long)io->length);
	if (io->op != KVT_IO_GET && store->config.max_part_bytes &&
	    io->length > store->config.max_part_bytes)
		fake__broke(store, "op %u %s: %llu bytes", io->op, io->name,
			    (unsigned long long)io->length);
}

static void check_flags(struct fake_store *store, const struct kvt_io *io)
{
	uint32_t caps = store->config.capabilities;
	bool puts = io->op == KVT_IO_PUT || io->op == KVT_IO_COMMIT;

	if ((io->flags & KVT_IO_IF_ABSENT) && (!puts || !(caps & KVT_CAP_IF_ABSENT)))
		fake__broke(store, "op %u %s: if_absent", io->op, io->name);
	if (io->flags & KVT_IO_IF_VERSION) {
		uint32_t needs = puts			   ? KVT_CAP_IF_VERSION_PUT
				 : io->op == KVT_IO_GET	   ? KVT_CAP_IF_VERSION_GET
				 : io->op == KVT_IO_REMOVE ? KVT_CAP_IF_VERSION_REMOVE
							   : 0;
		if (!(caps & needs) || !io->if_version || !io->if_version->bytes)
			fake__broke(store, "op %u %s: if_version", io->op, io->name);
	}
	if ((io->flags & KVT_IO_LATE_TAIL) &&
	    ((io->op != KVT_IO_PUT && io->op != KVT_IO_PART) || (caps & KVT_CAP_FULL_BODY) ||
	     !io->progress || io->iov_count < 1))
		fake__broke(store, "op %u %s: late tail", io->op, io->name);
	if ((io->flags & (KVT_IO_IF_CHEAP | KVT_IO_CACHED_OK)) && io->op != KVT_IO_HEAD)
		fake__broke(store, "op %u %s: flags of a head", io->op, io->name);
	if ((io->flags & KVT_IO_IF_CHEAP) && io->object_bytes == 0)
		fake__broke(store, "head %s: not said what would be stored", io->name);
	if (io->op == KVT_IO_TOUCH && !(caps & KVT_CAP_TOUCH))
		fake__broke(store, "touch %s", io->name);
}

static void check(struct fake_session *session, const struct kvt_io *io)
{
	struct fake_store *store = session->store;

	if (!pthread_equal(session->thread, pthread_self()))
		fake__broke(store, "op %u: on a thread that did not open the session", io->op);
	if (session->in_flight >= session->depth)
		fake__broke(store, "op %u: %u in flight, depth %u", io->op, session->in_flight + 1,
			    session->depth);
	if (!io->private_data || (uintptr_t)io->private_data % 16)
		fake__broke(store, "op %u: private_data %p", io->op, io->private_data);
	if (io->retry_after_ns)
		fake__broke(store, "op %u: retry_after_ns is left from before", io->op);
	if (io->deadline_ns <= 0)
		fake__broke(store, "op %u %s: no deadline", io->op, io->name);
	check_name(store, io);
	check_flags(store, io);
	if (io->op == KVT_IO_PUT || io->op == KVT_IO_PART || io->op == KVT_IO_GET)
		check_iov(store, io);
	if (io->op == KVT_IO_PART || io->op == KVT_IO_COMMIT || io->op == KVT_IO_ABORT) {
		struct fake_handle *handle = io->handle;
		if (!handle || handle->session != session)
			fake__broke(store, "op %u %s: a handle of another session", io->op,
				    io->name);
	}
	if ((io->op == KVT_IO_LIST || io->op == KVT_IO_SWEEP) && !session->listing)
		fake__broke(store, "op %u: on a lane's session", io->op);
}

/* ---- Sessions ---- */

/* Which rule decides; takes a record. */
static void admit_locked(struct fake_session *session, struct fake_pending *p)
{
	struct fake_store *store = session->store;
	struct kvt_io *io = p->io;

	if (store->record_count == store->record_room) {
		store->record_room = store->record_room ? 2 * store->record_room : 64;
		store->records =
			realloc(store->records, store->record_room * sizeof(*store->records));
		if (!store->records)
			abort();
	}
	p->record = store->record_count++;
	struct fake_record *record = &store->records[p->record];
	*record = (struct fake_record){.op = io->op,
				       .flags = io->flags,
				       .offset = io->offset,
				       .length = io->length,
				       .object_bytes = io->object_bytes,
				       .at_ns = now_ns(),
				       .deadline_ns = io->deadline_ns,
				       .sweep_age_s = io->sweep_age_s,
				       .result = 1};
	snprintf(record->name, sizeof(record->name), "%s", io->name);
	for (uint32_t i = 0; i < io->iov_count; i++)
		record->nowhere += io->iov[i].iov_base ? 0 : io->iov[i].iov_len;
	store->calls[io->op & 15]++;
	for (int i = 0; i < FAKE_RULES; i++) {
		struct fake_rule *rule = store->rules[i];
		if (!rule || !(rule->ops & FAKE_OP(io->op)) ||
		    (rule->name && !strstr(io->name, rule->name)))
			continue;
		if (rule->seen++ < rule->skip || (rule->times && rule->hits >= rule->times))
			continue;
		rule->hits++;
		p->action = rule->action;
		p->error = rule->error;
		p->after_bytes = rule->after_bytes;
		p->retry_after_ns = rule->retry_after_ns;
		if (rule->action == FAKE_HOLD || rule->action == FAKE_STICK) {
			p->holder = rule;
			p->stuck = rule->action == FAKE_STICK;
			p->action = rule->error ? FAKE_FAIL : rule->action;
			rule->held++;
		}
		return;
	}
}

static void enlist_locked(struct fake_session *session, struct fake_pending *p)
{
	struct fake_pending **linkp = &session->pending;

	while (*linkp)
		linkp = &(*linkp)->next;
	*linkp = p;
	session->in_flight++;
	if (++session->store->in_flight > session->store->peak_in_flight)
		session->store->peak_in_flight = session->store->in_flight;
	pthread_cond_broadcast(&session->store->changed);
}

static void delist_locked(struct fake_session *session, struct fake_pending *p)
{
	struct fake_pending **linkp = &session->pending;

	while (*linkp != p)
		linkp = &(*linkp)->next;
	*linkp = p->next;
	session->in_flight--;
	session->store->in_flight--;
	pthread_cond_broadcast(&session->store->changed);
}

/* The next one to finish, NULL when all are held; *wakep: when the next deadline passes. */
static struct fake_pending *due_locked(struct fake_session *session, int64_t *wakep)
{
	int64_t now = now_ns();
	struct fake_pending *due = NULL;

	for (struct fake_pending *p = session->pending; p; p = p->next) {
		if (p->holder && !p->stuck && p->io->deadline_ns <= now) {
			p->holder->held--;
			p->holder = NULL;
			p->timed_out = true;
		} else if (p->holder && !p->stuck && p->io->deadline_ns < *wakep) {
			*wakep = p->io->deadline_ns;
		}
		if (!p->holder && p->stuck && p->io->deadline_ns <= now)
			p->timed_out = true;
		if (!p->holder && (!due || session->store->config.youngest_first))
			due = p;
	}
	return due;
}

static void sleep_locked(struct fake_session *session, int64_t until_ns)
{
	struct timespec limit = {until_ns / 1000000000, until_ns % 1000000000};

	if (until_ns == INT64_MAX)
		pthread_cond_wait(&session->wake, &session->store->lock);
	else
		pthread_cond_timedwait(&session->wake, &session->store->lock, &limit);
}

static int fake_submit(void *opaque, struct kvt_io *io)
{
	struct fake_session *session = opaque;
	struct fake_store *store = session->store;
	struct fake_pending *p = io->private_data;

	check(session, io);
	if (store->config.head_is_dear && io->op == KVT_IO_HEAD && (io->flags & KVT_IO_IF_CHEAP)) {
		memset(&io->info, 0, sizeof(io->info));
		io->info.object_bytes = KVT_BYTES_UNKNOWN;
		io->result = KVT_EAGAIN;
		return KVT_DONE;
	}
	memset(p, 0, sizeof(*p));
	p->io = io;
	pthread_mutex_lock(&store->lock);
	if (store->config.busy_above && session->in_flight >= store->config.busy_above) {
		pthread_mutex_unlock(&store->lock);
		return KVT_BUSY;
	}
	admit_locked(session, p);
	if (io->op == KVT_IO_PART)
		((struct fake_handle *)io->handle)->parts_in_flight++;
	enlist_locked(session, p);
	bool at_once = store->config.blocking || session->listing ||
		       (store->config.done_at_once && !p->action);
	while (at_once && p->holder) {
		int64_t wake = INT64_MAX;
		if (due_locked(session, &wake) == p)
			break;
		sleep_locked(session, wake);
	}
	pthread_mutex_unlock(&store->lock);
	if (!at_once)
		return KVT_QUEUED;
	fake__execute(session, p);
	pthread_mutex_lock(&store->lock);
	delist_locked(session, p);
	pthread_mutex_unlock(&store->lock);
	return KVT_DONE;
}

static int fake_poll(void *opaque, int64_t until_ns)
{
	struct fake_session *session = opaque;
	struct fake_store *store = session->store;
	int delivered = 0;

	if (!pthread_equal(session->thread, pthread_self()))
		fake__broke(store, "poll on a thread that did not open the session");
	pthread_mutex_lock(&store->lock);
	store->polls++;
	for (;;) {
		int64_t wake = until_ns;
		struct fake_pending *p = due_locked(session, &wake);
		if (p) {
			struct kvt_io *io = p->io;
			pthread_mutex_unlock(&store->lock);
			fake__execute(session, p);
			pthread_mutex_lock(&store->lock);
			delist_locked(session, p);
			pthread_mutex_unlock(&store->lock);
			io->complete(io);
			pthread_mutex_lock(&store->lock);
			if (++delivered < 64)
				continue;
		}
		if (delivered || session->woken || now_ns() >= until_ns)
			break;
		sleep_locked(session, wake);
	}
	session->woken = false;
	pthread_mutex_unlock(&store->lock);
	return delivered;
}

static void fake_wake(void *opaque)
{
	struct fake_session *session = opaque;

	pthread_mutex_lock(&session->store->lock);
	session->woken = true;
	pthread_cond_signal(&session->wake);
	pthread_mutex_unlock(&session->store->lock);
}

static int fake_session_open(void *opaque, uint32_t depth, int listing, void **sessionp)
{
	struct fake_store *store = opaque;
	struct fake_session *session = calloc(1, sizeof(*session));
	pthread_condattr_t attributes;

	if (!session)
		return KVT_ENOMEM;
	session->store = store;
	session->thread = pthread_self();
	session->depth = depth;
	session->listing = listing;
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&session->wake, &attributes);
	pthread_condattr_destroy(&attributes);
	pthread_mutex_lock(&store->lock);
	session->next = store->sessions;
	store->sessions = session;
	store->session_count++;
	pthread_mutex_unlock(&store->lock);
	*sessionp = session;
	return 0;
}

static void fake_session_close(void *opaque)
{
	struct fake_session *session = opaque;
	struct fake_store *store = session->store;

	if (!pthread_equal(session->thread, pthread_self()))
		fake__broke(store, "session closed on a thread that did not open it");
	if (session->pending)
		fake__broke(store, "session closed with requests in flight");
	pthread_mutex_lock(&store->lock);
	struct fake_session **linkp = &store->sessions;
	while (*linkp != session)
		linkp = &(*linkp)->next;
	*linkp = session->next;
	store->session_count--;
	pthread_mutex_unlock(&store->lock);
	pthread_cond_destroy(&session->wake);
	free(session);
}

static int fake_open(const struct kvt_host *host, const struct kvt_backend_config *config,
		     void **backendp, struct kvt_backend_limits *limits)
{
	struct fake_store *store = fake__find(config->location);

	if (!store) {
		host->fail(host, "fake:%s: no such store", config->location);
		return KVT_ECONFIG;
	}
	const struct fake_config *c = &store->config;
	limits->capabilities = c->capabilities;
	if (c->min_part_bytes)
		limits->min_part_bytes = c->min_part_bytes;
	if (c->max_part_bytes)
		limits->max_part_bytes = c->max_part_bytes;
	if (c->max_object_bytes)
		limits->max_object_bytes = c->max_object_bytes;
	if (c->max_parts)
		limits->max_parts = c->max_parts;
	if (c->max_iov)
		limits->max_iov = c->max_iov;
	if (c->memory_alignment)
		limits->memory_alignment = c->memory_alignment;
	limits->default_part_bytes = c->default_part_bytes;
	limits->merge_gap_bytes = c->merge_gap_bytes;
	if (c->depth || c->blocking)
		limits->default_depth = c->depth ? c->depth : 1;
	snprintf(limits->detail, sizeof(limits->detail), "fake store %u", store->id);
	pthread_mutex_lock(&store->lock);
	store->openings++;
	store->host = host;
	pthread_mutex_unlock(&store->lock);
	*backendp = store;
	return 0;
}

static void fake_close(void *backend)
{
	struct fake_store *store = backend;

	if (store->session_count && store->openings == 1)
		fake__broke(store, "closed with %u sessions", store->session_count);
	if (store->handles && store->openings == 1)
		fake__broke(store, "closed with %u objects in parts begun", store->handles);
	pthread_mutex_lock(&store->lock);
	store->openings--;
	pthread_mutex_unlock(&store->lock);
}

static void fake_describe(void *backend, char *text, size_t bytes)
{
	struct fake_store *store = backend;

	pthread_mutex_lock(&store->lock);
	snprintf(text, bytes, "%s", store->learnt);
	pthread_mutex_unlock(&store->lock);
}

static const struct kvt_option_spec fake_options[] = {
	{"compat_names", "kvtier", "looked at by the store alone"},
	{NULL, NULL, NULL},
};

static const struct kvt_backend_ops fake_ops = {
	.struct_size = sizeof(fake_ops),
	.abi = KVT_BACKEND_ABI,
	.name = "fake",
	.option_specs = fake_options,
	.io_private_bytes = sizeof(struct fake_pending),
	.open = fake_open,
	.close = fake_close,
	.session_open = fake_session_open,
	.session_close = fake_session_close,
	.submit = fake_submit,
	.poll = fake_poll,
	.wake = fake_wake,
	.describe = fake_describe,
};

static void register_both(void)
{
	struct kvt_backend_ops blocking = fake_ops;

	blocking.name = "fakeblocking";
	blocking.poll = NULL;
	blocking.wake = NULL;
	if (kvt_backend_register(&fake_ops) != 0 || kvt_backend_register(&blocking) != 0) {
		fprintf(stderr, "fake backend: %s\n", kvt_error_detail());
		abort();
	}
}

void fake__register(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, register_both);
}
