/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fault wrapper: "fault+file:///srv/kv" is "file:///srv/kv" that fails when and how its options
 * say. Several rules may be given, in one option separated by commas (paths therefore hold none)
 * and in several options; for one call the first failing rule, the longest delay and the last hold
 * count. A delay or hold comes first, then the failure; neither blocks the session's thread.
 *
 * A call that fails is not made, unless error_after=1. Two things are done even then, because a
 * handle must end: a failing commit or abort aborts, and a begin that fails after it was done is
 * aborted again. A short put reads half of its body and stores nothing.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "body.h"

extern const struct kvt_backend_ops kvt__fault_backend_ops;

#define FAULT_NS_PER_S INT64_C(1000000000)
/* How often the files of held calls are looked for. */
#define FAULT_LOOK_NS INT64_C(2000000)
/* Time for an abort that has to be made although its own time is up. */
#define FAULT_ABORT_NS INT64_C(10000000000)

struct fault_backend {
	const struct kvt_host *host;
	struct kvt__fault_rules rules;
	struct kvt_backend_ops inner_ops; /* a copy, padded */
	void *inner;
	pthread_mutex_t session_lock;		       /* leaf */
	_Atomic(struct kvt__fault_session *) sessions; /* for forked; changed under session_lock */
};

struct kvt__fault_session {
	struct fault_backend *backend;
	void *inner;
	struct kvt__fault_io *free;
	/* Held or delayed, in order of submit; then those that the inner backend was too busy for.
	 */
	struct kvt__fault_io *waiting, **waiting_linkp;
	struct kvt__fault_io *refused, **refused_linkp;
	int delivered; /* by the poll that runs */
	atomic_int woken;
	int event_fd; /* what a session of a blocking inner backend sleeps on, else -1 */
	_Atomic(struct kvt__fault_session *) next; /* see fault_backend.sessions */
	struct kvt__fault_io ios[];
};

static void fault_append(struct kvt__fault_io ***linkpp, struct kvt__fault_io *f)
{
	f->next = NULL;
	**linkpp = f;
	*linkpp = &f->next;
}

static void fault_progress(struct kvt_io *inner, uint64_t bytes)
{
	struct kvt__fault_io *f = inner->owner;

	kvt__fault_body_landed(f, bytes);
	if (f->outer->progress)
		f->outer->progress(f->outer, bytes);
}

static int fault_list_item(struct kvt_io *inner, const struct kvt_list_item *item)
{
	struct kvt__fault_io *f = inner->owner;

	return f->outer->list_item(f->outer, item);
}

/* Fills the results and frees what belongs to the request. */
static void fault_finish(struct kvt__fault_io *f)
{
	struct kvt__fault_session *s = f->session;
	const struct kvt_host *host = s->backend->host;
	struct kvt_io *outer = f->outer;

	outer->result = f->inner.result;
	/* A failure of the inner backend's own says more, but not that of an abort of ours. */
	if (f->final && (!f->inner.result || f->inner.op != outer->op)) {
		outer->result = f->final;
		host->detail(outer, "%s %s: %s made by the fault wrapper",
			     kvt__fault_op_name(outer->op), outer->name ? outer->name : "",
			     kvt__fault_error_name(f->final));
	}
	outer->swept = f->inner.swept;
	outer->bytes_landed = f->inner.bytes_landed;
	outer->retry_after_ns = f->inner.retry_after_ns;
	outer->info = f->inner.info;
	if (outer->op == KVT_IO_BEGIN)
		outer->handle = outer->result ? NULL : f->inner.handle;
	kvt__fault_body_free(f, host);
	f->next = s->free;
	s->free = f;
}

/* The answer of the call itself: nothing was asked of the inner backend. */
static int fault_done(struct kvt__fault_io *f, int result)
{
	f->inner.result = 0;
	f->final = result;
	fault_finish(f);
	return KVT_DONE;
}

static int fault_settle(struct kvt__fault_io *f);

/* KVT_DONE: finished; KVT_QUEUED: it will be delivered by poll. */
static int fault_ask(struct kvt__fault_io *f)
{
	struct kvt__fault_session *s = f->session;
	int answer = s->backend->inner_ops.submit(s->inner, &f->inner);

	if (answer == KVT_QUEUED)
		return KVT_QUEUED;
	if (answer == KVT_BUSY) {
		fault_append(&s->refused_linkp, f);
		return KVT_QUEUED;
	}
	if (answer < 0)
		f->inner.result = answer;
	return fault_settle(f);
}

/* Aborts the handle in place of, or behind, what was asked for; `result` is what is reported. */
static int fault_abort(struct kvt__fault_io *f, int result)
{
	int64_t until_ns = f->session->backend->host->now_ns() + FAULT_ABORT_NS;

	f->final = result;
	f->inner.op = KVT_IO_ABORT;
	f->inner.flags = 0;
	f->inner.if_version = NULL;
	if (f->inner.deadline_ns < until_ns)
		f->inner.deadline_ns = until_ns;
	return fault_ask(f);
}

/* The inner backend has answered. */
static int fault_settle(struct kvt__fault_io *f)
{
	if (f->outer->op == KVT_IO_GET && !f->inner.result)
		kvt__fault_body_landed(f, f->inner.bytes_landed);
	if (f->outer->op == KVT_IO_BEGIN && f->inner.op == KVT_IO_BEGIN && f->plan.error &&
	    !f->inner.result)
		return fault_abort(f, f->plan.error);
	fault_finish(f);
	return KVT_DONE;
}

/* Fails a request that nothing has been done for. */
static int fault_refuse(struct kvt__fault_io *f, int result)
{
	if (f->outer->op == KVT_IO_COMMIT || f->outer->op == KVT_IO_ABORT)
		return fault_abort(f, result);
	return fault_done(f, result);
}

/* Half of the body is moved. */
static int fault_perform_cut(struct kvt__fault_io *f)
{
	struct kvt_io *outer = f->outer;

	f->final = f->plan.cut;
	if (kvt__fault_body_cut(f, f->session->backend->host))
		return fault_done(f, KVT_ENOMEM);
	if (f->inner.length && outer->op != KVT_IO_PUT)
		return fault_ask(f);
	if (f->inner.length && outer->progress)
		outer->progress(outer, f->inner.length);
	return fault_done(f, f->plan.cut);
}

/* Delays and holds are over. */
static int fault_perform(struct kvt__fault_io *f)
{
	if (f->plan.error && !f->plan.after)
		return fault_refuse(f, f->plan.error);
	f->final = f->plan.error;
	if (f->plan.cut)
		return fault_perform_cut(f);
	if (f->plan.flip && kvt__fault_body_flip(f, f->session->backend->host))
		return fault_refuse(f, KVT_ENOMEM);
	return fault_ask(f);
}

static void fault_complete(struct kvt_io *inner)
{
	struct kvt__fault_io *f = inner->owner;
	struct kvt__fault_session *s = f->session;
	struct kvt_io *outer = f->outer;

	if (fault_settle(f) == KVT_QUEUED)
		return;
	s->delivered++;
	outer->complete(outer);
}

static int fault_submit(void *session, struct kvt_io *io)
{
	struct kvt__fault_session *s = session;
	struct kvt__fault_io *f = s->free;
	int64_t now_ns;

	/* The depth that the session was opened for is in flight. */
	if (!f)
		return KVT_BUSY;
	s->free = f->next;
	f->outer = io;
	f->inner = *io;
	f->inner.complete = fault_complete;
	f->inner.progress = fault_progress;
	f->inner.list_item = io->list_item ? fault_list_item : NULL;
	f->inner.owner = f;
	f->inner.private_data = f->private_data;
	f->inner.result = 0;
	f->inner.swept = 0;
	f->inner.retry_after_ns = 0;
	f->inner.bytes_landed = 0;
	f->inner.info.object_bytes = KVT_BYTES_UNKNOWN;
	f->inner.info.version.bytes = 0;
	f->inner.info.age_ns = f->inner.info.access_age_ns = -1;
	f->final = 0;
	kvt__fault_plan_make(&s->backend->rules, io, &f->plan);
	if (!f->plan.hold && !f->plan.delay_ns)
		return fault_perform(f);
	now_ns = s->backend->host->now_ns();
	f->due_ns = now_ns + f->plan.delay_ns;
	fault_append(&s->waiting_linkp, f);
	return KVT_QUEUED;
}

/* When a waiting request is to be looked at next; 0: it goes on now, *resultp says how. */
static int64_t fault_next_look(const struct kvt__fault_io *f, int64_t now_ns, int *resultp)
{
	int64_t deadline_ns = f->outer->deadline_ns, next_ns = f->due_ns;
	const struct kvt__fault_rule *hold = f->plan.hold;
	int held = hold && kvt__fault_rule_holds(hold);

	*resultp = 0;
	if (now_ns >= deadline_ns && !(held && hold->action == KVT__FAULT_STUCK)) {
		*resultp = KVT_ETIMEDOUT;
		return 0;
	}
	if (!held && now_ns >= f->due_ns)
		return 0;
	if (held)
		next_ns = now_ns + FAULT_LOOK_NS;
	return next_ns < deadline_ns || now_ns >= deadline_ns ? next_ns : deadline_ns;
}

/* Goes on with what was waiting and may; returns when to look again. */
static int64_t fault_run_waiting(struct kvt__fault_session *s)
{
	struct kvt__fault_io *f = s->waiting, *next;
	int64_t look_ns = INT64_MAX;
	int performed = 0; /* one in a round: inner operations may take their time, and the
				   caller has other work */

	/* What a completion submits begins a new list. */
	s->waiting = NULL;
	s->waiting_linkp = &s->waiting;
	for (; f; f = next) {
		struct kvt_io *outer = f->outer;
		int64_t next_ns;
		int result;

		next = f->next;
		next_ns = performed ? 1 : fault_next_look(f, s->backend->host->now_ns(), &result);
		if (next_ns) {
			fault_append(&s->waiting_linkp, f);
			if (next_ns < look_ns)
				look_ns = next_ns;
			continue;
		}
		performed = 1;
		if ((result ? fault_refuse(f, result) : fault_perform(f)) == KVT_QUEUED)
			continue;
		s->delivered++;
		outer->complete(outer);
	}
	/* The completions may have submitted what waits for less. */
	for (f = s->waiting; f; f = f->next)
		if (f->due_ns < look_ns)
			look_ns = f->due_ns;
	return look_ns;
}

/* Asks again for what the inner backend was too busy for. */
static void fault_run_refused(struct kvt__fault_session *s)
{
	struct kvt__fault_io *f = s->refused, *next;

	s->refused = NULL;
	s->refused_linkp = &s->refused;
	for (; f; f = next) {
		struct kvt_io *outer = f->outer;

		next = f->next;
		if (s->refused)
			fault_append(&s->refused_linkp, f);
		else if (fault_ask(f) == KVT_DONE) {
			s->delivered++;
			outer->complete(outer);
		}
	}
}

/* Sleeps where the inner backend has no poll. */
static void fault_sleep(struct kvt__fault_session *s, int64_t until_ns)
{
	struct pollfd pollfd = {.fd = s->event_fd, .events = POLLIN};
	struct timespec ts, *timeout = NULL;
	uint64_t events;

	if (until_ns != INT64_MAX) {
		int64_t left_ns = until_ns - s->backend->host->now_ns();

		if (left_ns <= 0)
			return;
		ts = (struct timespec){left_ns / FAULT_NS_PER_S, left_ns % FAULT_NS_PER_S};
		timeout = &ts;
	}
	if (ppoll(&pollfd, 1, timeout, NULL) > 0)
		(void)!read(s->event_fd, &events, sizeof(events));
}

static int fault_poll(void *session, int64_t until_ns)
{
	struct kvt__fault_session *s = session;
	const struct kvt_backend_ops *ops = &s->backend->inner_ops;
	const struct kvt_host *host = s->backend->host;

	s->delivered = 0;
	for (;;) {
		int64_t look_ns = fault_run_waiting(s);
		/* Before the sleep, so that a wake during it is never taken for an earlier one. */
		int woken = atomic_exchange(&s->woken, 0);
		int answer = 0;

		if (look_ns > until_ns)
			look_ns = until_ns;
		if (s->delivered || woken)
			look_ns = 0;
		if (ops->poll)
			answer = ops->poll(s->inner, look_ns);
		else if (look_ns)
			fault_sleep(s, look_ns);
		if (answer < 0)
			return answer;
		fault_run_refused(s);
		if (s->delivered || woken || until_ns == 0)
			return s->delivered;
		if (until_ns != INT64_MAX && host->now_ns() >= until_ns)
			return 0;
	}
}

static void fault_wake(void *session)
{
	struct kvt__fault_session *s = session;
	uint64_t one = 1;

	atomic_store(&s->woken, 1);
	if (s->backend->inner_ops.wake)
		s->backend->inner_ops.wake(s->inner);
	else
		(void)!write(s->event_fd, &one, sizeof(one));
}

static int fault_session_open(void *backend, uint32_t depth, int listing, void **sessionp)
{
	struct fault_backend *b = backend;
	size_t private_bytes = (b->inner_ops.io_private_bytes + 15) & ~(size_t)15;
	size_t bytes = sizeof(struct kvt__fault_session) + depth * sizeof(struct kvt__fault_io);
	struct kvt__fault_session *s =
		b->host->alloc(b->host, ((bytes + 15) & ~(size_t)15) + depth * private_bytes, 64);
	char *private_data = (char *)s + ((bytes + 15) & ~(size_t)15);
	int result;

	*sessionp = NULL;
	if (!s) {
		b->host->fail(b->host, "fault: session: out of memory");
		return KVT_ENOMEM;
	}
	memset(s, 0, bytes);
	s->backend = b;
	s->waiting_linkp = &s->waiting;
	s->refused_linkp = &s->refused;
	s->event_fd = -1;
	for (uint32_t i = depth; i--;) {
		s->ios[i].session = s;
		s->ios[i].private_data = private_data + i * private_bytes;
		s->ios[i].next = s->free;
		s->free = &s->ios[i];
	}
	if (!b->inner_ops.poll)
		s->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (!b->inner_ops.poll && s->event_fd < 0) {
		result = errno == ENOMEM ? KVT_ENOMEM : KVT_EMFILE;
		b->host->fail(b->host, "fault: eventfd: %s", strerror(errno));
		goto fail;
	}
	result = b->inner_ops.session_open(b->inner, depth, listing, &s->inner);
	if (result)
		goto fail;
	pthread_mutex_lock(&b->session_lock);
	atomic_store(&s->next, atomic_load(&b->sessions));
	atomic_store(&b->sessions, s);
	pthread_mutex_unlock(&b->session_lock);
	*sessionp = s;
	return 0;
fail:
	if (s->event_fd >= 0)
		close(s->event_fd);
	b->host->free(b->host, s);
	return result;
}

static void fault_session_close(void *session)
{
	struct kvt__fault_session *s = session;
	struct fault_backend *b = s->backend;
	_Atomic(struct kvt__fault_session *) *linkp = &b->sessions;

	pthread_mutex_lock(&b->session_lock);
	while (atomic_load(linkp) != s)
		linkp = &atomic_load(linkp)->next;
	atomic_store(linkp, atomic_load(&s->next));
	pthread_mutex_unlock(&b->session_lock);
	b->inner_ops.session_close(s->inner);
	if (s->event_fd >= 0)
		close(s->event_fd);
	b->host->free(b->host, s);
}

static int fault_open(const struct kvt_host *host, const struct kvt_backend_config *config,
		      void **backendp, struct kvt_backend_limits *limits)
{
	struct fault_backend *b = host->alloc(host, sizeof(*b), 16);
	int result;

	*backendp = NULL;
	if (!b) {
		host->fail(host, "fault: out of memory");
		return KVT_ENOMEM;
	}
	memset(b, 0, sizeof(*b));
	b->host = host;
	memcpy(&b->inner_ops, config->inner,
	       config->inner->struct_size < sizeof(b->inner_ops) ? config->inner->struct_size
								 : sizeof(b->inner_ops));
	result = kvt__fault_rules_init(&b->rules, host, config);
	if (result)
		goto free_backend;
	if (pthread_mutex_init(&b->session_lock, NULL)) {
		host->fail(host, "fault: out of memory");
		result = KVT_ENOMEM;
		goto free_rules;
	}
	/* Its limits and its description become ours. */
	result = b->inner_ops.open(host, config->inner_config, &b->inner, limits);
	if (result)
		goto free_lock;
	*backendp = b;
	return 0;
free_lock:
	pthread_mutex_destroy(&b->session_lock);
free_rules:
	kvt__fault_rules_fini(&b->rules);
free_backend:
	host->free(host, b);
	return result;
}

static void fault_close(void *backend)
{
	struct fault_backend *b = backend;

	b->inner_ops.close(b->inner);
	pthread_mutex_destroy(&b->session_lock);
	kvt__fault_rules_fini(&b->rules);
	b->host->free(b->host, b);
}

static void fault_forked(void *backend)
{
	struct fault_backend *b = backend;
	struct kvt__fault_session *s, *next;

	for (s = atomic_load(&b->sessions); s; s = next) {
		next = atomic_load(&s->next);
		if (s->event_fd >= 0)
			close(s->event_fd);
		b->host->free(b->host, s);
	}
	if (b->inner_ops.forked)
		b->inner_ops.forked(b->inner);
	kvt__fault_rules_fini(&b->rules);
	b->host->free(b->host, b);
}

static void fault_describe(void *backend, char *text, size_t bytes)
{
	struct fault_backend *b = backend;

	if (b->inner_ops.describe)
		b->inner_ops.describe(b->inner, text, bytes);
	else
		text[0] = '\0';
}

const struct kvt_backend_ops kvt__fault_backend_ops = {
	.struct_size = sizeof(struct kvt_backend_ops),
	.abi = KVT_BACKEND_ABI,
	.wraps = 1,
	.name = "fault",
	.option_specs = kvt__fault_option_specs,
	.open = fault_open,
	.close = fault_close,
	.session_open = fault_session_open,
	.session_close = fault_session_close,
	.submit = fault_submit,
	.poll = fault_poll,
	.wake = fault_wake,
	.forked = fault_forked,
	.describe = fault_describe,
};
