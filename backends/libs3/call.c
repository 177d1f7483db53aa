/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One request of libs3 on the session's request context, driven here and not by libs3's own loops:
 * those know no deadline, and its blocking calls keep connections in a pool of the process, where a
 * forked child would find and use them. A request whose time is up is ended by destroying the
 * context: libs3 then calls back with "Interrupted", and no memory of ours is in use any more.
 */
#include "module.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/select.h>
#include <time.h>

#define MOST_TRIES     4u
#define FIRST_PAUSE_MS 50 /* four times as long each time */
#define MOST_WAIT_MS   1000
#define BLIND_WAIT_MS  2 /* while libs3 has no descriptor that fits into an fd_set */

/* libs3 writes the date of each request by gmtime, whose result all threads share: only one request
 * is started at a time in the process. */
static pthread_mutex_t start_lock = PTHREAD_MUTEX_INITIALIZER;

struct libs3_call kvt__libs3_call(struct libs3_session *session, const struct kvt_io *io,
				  const char *verb)
{
	return (struct libs3_call){
		.session = session, .verb = verb, .deadline_ns = io->deadline_ns};
}

/* Text of a server, fit for one line. */
static void copy_text(char *to, size_t room, const char *from)
{
	size_t n = 0;

	for (; from && from[n] && n + 1 < room; n++) {
		unsigned char c = (unsigned char)from[n];

		to[n] = c < 0x20 || c == 0x7f ? ' ' : (char)c;
	}
	to[n] = '\0';
}

void kvt__libs3_on_complete(S3Status status, const S3ErrorDetails *details, void *callback_data)
{
	struct libs3_call *call = callback_data;

	call->done = true;
	call->status = status;
	copy_text(call->message, sizeof(call->message), details ? details->message : NULL);
	copy_text(call->resource, sizeof(call->resource), details ? details->resource : NULL);
}

S3Status kvt__libs3_on_properties(const S3ResponseProperties *properties, void *callback_data)
{
	(void)properties;
	(void)callback_data;
	return S3StatusOK;
}

static void destroy_context(struct libs3_session *session)
{
	if (session->context)
		S3_destroy_request_context(session->context);
	session->context = NULL;
}

bool kvt__libs3_call_begin(struct libs3_call *call)
{
	struct libs3_session *session = call->session;

	if (session->host->now_ns() >= call->deadline_ns) {
		call->done = call->expired = true;
		return false;
	}
	if (!session->context && S3_create_request_context(&session->context) != S3StatusOK) {
		session->context = NULL;
		call->done = true;
		call->status = S3StatusOutOfMemory;
		return false;
	}
#ifdef KVT_LIBS3_HAVE_VERIFY
	/* Never called with 0: libs3 looks only at whether it was called. */
	if (session->backend->config.verify)
		S3_set_request_context_verify_peer(session->context, 1);
#endif
	pthread_mutex_lock(&start_lock);
	call->is_starting = true;
	return true;
}

/* Sleeps until a descriptor of the context is ready, libs3 wants to look, or until_ns. */
static void wait_for(struct libs3_session *session, int64_t until_ns)
{
	int64_t left_ms = (until_ns - session->host->now_ns()) / LIBS3_NS_PER_MS + 1;
	int64_t ms = S3_get_request_context_timeout(session->context);
	fd_set in, out, bad;
	int last = -1;

	if (ms < 0 || ms > MOST_WAIT_MS)
		ms = MOST_WAIT_MS;
	if (ms > left_ms)
		ms = left_ms;
	if (ms <= 0)
		return;
	FD_ZERO(&in);
	FD_ZERO(&out);
	FD_ZERO(&bad);
	if (S3_get_request_context_fdsets(session->context, &in, &out, &bad, &last) != S3StatusOK)
		last = -1;
	if (last < 0) {
		/* libcurl is looking up a name, or its descriptors are beyond FD_SETSIZE: it leaves
		 * those out. */
		(void)poll(NULL, 0, ms < BLIND_WAIT_MS ? (int)ms : BLIND_WAIT_MS);
	} else {
		struct timeval tv = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};

		(void)select(last + 1, &in, &out, &bad, &tv);
	}
}

static void drive(struct libs3_call *call)
{
	struct libs3_session *session = call->session;

	while (!call->done) {
		int remaining = 0;
		S3Status status = S3_runonce_request_context(session->context, &remaining);

		if (call->done)
			break;
		if (status == S3StatusOK && remaining == 0)
			status = S3StatusInternalError;
		call->expired = session->host->now_ns() >= call->deadline_ns;
		if (status != S3StatusOK || call->expired) {
			destroy_context(session);
			call->done = true;
			if (status != S3StatusOK)
				call->status = status;
		} else {
			wait_for(session, call->deadline_ns);
		}
	}
}

void kvt__libs3_pipe_begin(struct libs3_pipe_guard *guard)
{
	sigset_t pipe_set, pending;

	sigemptyset(&pipe_set);
	sigaddset(&pipe_set, SIGPIPE);
	(void)pthread_sigmask(SIG_BLOCK, &pipe_set, &guard->before);
	guard->was_pending = sigpending(&pending) == 0 && sigismember(&pending, SIGPIPE) == 1;
}

void kvt__libs3_pipe_end(const struct libs3_pipe_guard *guard)
{
	static const struct timespec no_time;
	sigset_t pipe_set;

	sigemptyset(&pipe_set);
	sigaddset(&pipe_set, SIGPIPE);
	if (!guard->was_pending)
		while (sigtimedwait(&pipe_set, NULL, &no_time) < 0 && errno == EINTR)
			;
	(void)pthread_sigmask(SIG_SETMASK, &guard->before, NULL);
}

int kvt__libs3_call_run(struct libs3_call *call)
{
	struct libs3_pipe_guard guard;

	if (call->is_starting)
		pthread_mutex_unlock(&start_lock);
	call->is_starting = false;
	kvt__libs3_pipe_begin(&guard);
	drive(call);
	kvt__libs3_pipe_end(&guard);
	if (call->stopped)
		return call->stopped;
	if (call->expired)
		return KVT_ETIMEDOUT;
	return kvt__libs3_error(call->status);
}

bool kvt__libs3_again(struct libs3_session *session, const struct kvt_io *io, int error,
		      unsigned tried)
{
	int64_t left_ms = (io->deadline_ns - session->host->now_ns()) / LIBS3_NS_PER_MS;
	int wait_ms = FIRST_PAUSE_MS << 2 * tried;

	if (error != KVT_ENET && error != KVT_ESERVER && error != KVT_ETHROTTLED)
		return false;
	if (tried + 1 >= MOST_TRIES || left_ms <= wait_ms)
		return false;
	(void)poll(NULL, 0, wait_ms);
	return true;
}

void kvt__libs3_tell(struct libs3_call *call, struct kvt_io *io)
{
	const char *what = call->why;

	if (!what && call->expired)
		what = "the deadline has passed";
	if (!what)
		what = S3_get_status_name(call->status);
	call->session->host->detail(io, "%s %s of %s at %s: %s%s%s%s%s", call->verb,
				    call->session->key, call->session->backend->config.bucket,
				    call->session->backend->config.host, what,
				    call->message[0] ? ": " : "", call->message,
				    call->resource[0] ? ", resource " : "", call->resource);
}

void kvt__libs3_say(struct libs3_session *session, struct kvt_io *io, const char *verb,
		    const char *what)
{
	session->host->detail(io, "%s %s of %s at %s: %s", verb, session->key,
			      session->backend->config.bucket, session->backend->config.host, what);
}

bool kvt__libs3_is_late(struct libs3_session *session, struct kvt_io *io, const char *verb)
{
	if (io->deadline_ns > session->host->now_ns())
		return false;
	session->host->detail(io, "%s %s: the deadline has passed", verb, io->name ? io->name : "");
	return true;
}
