/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A session: one curl_multi with its keep-alive connections, and as many slots as the lane has
 * requests in flight. poll drives all of them and sleeps in one place, where an eventfd ends the
 * sleep too.
 */
#include "s3.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "curl_init.h"

#define S3_WATCH_NS	 (100 * S3_NS_PER_MS)
#define S3_SPARE_SOCKETS 8u /* besides a used and an idle one for each slot, where addresses race  \
			     */

static void s3_transfer_fini(struct s3_transfer *t)
{
	const struct kvt_host *host = t->session->host;

	if (t->easy)
		curl_easy_cleanup(t->easy);
	kvt__s3_xml_destroy(t->xml);
	host->free(host, t->query);
	host->free(host, t->lines);
	host->free(host, t->fields);
}

static void s3_session_free(struct s3_session *s)
{
	const struct kvt_host *host = s->host;

	for (uint32_t i = 0; s->slots && i < s->depth; i++)
		s3_transfer_fini(&s->slots[i]);
	if (s->multi)
		(void)curl_multi_cleanup(s->multi);
	if (s->share)
		(void)curl_share_cleanup(s->share);
	kvt__s3_signer_destroy(s->signer);
	if (s->wake_fd >= 0)
		(void)close(s->wake_fd);
	host->free(host, s->sockets);
	host->free(host, s->slots);
	host->free(host, s);
}

static int s3_session_make(struct s3_session *s)
{
	const struct kvt_host *host = s->host;
	uint32_t sockets = 4 * s->depth + S3_SPARE_SOCKETS;

	s->slots = host->alloc(host, s->depth * sizeof(*s->slots), 64);
	s->sockets = host->alloc(host, sockets * sizeof(*s->sockets), 16);
	s->signer = kvt__s3_signer_create();
	s->multi = curl_multi_init();
	s->share = curl_share_init();
	s->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (s->slots)
		memset(s->slots, 0, s->depth * sizeof(*s->slots));
	for (uint32_t i = 0; s->slots && i < s->depth; i++) {
		s->slots[i].session = s;
		s->slots[i].next = s->free_slots;
		s->free_slots = &s->slots[i];
	}
	if (s->wake_fd < 0) {
		host->fail(host, "session: eventfd: %s", strerror(errno));
		return KVT_EMFILE;
	}
	if (s->slots == NULL || s->sockets == NULL || s->signer == NULL || s->multi == NULL ||
	    s->share == NULL ||
	    curl_share_setopt(s->share, CURLSHOPT_SHARE, CURL_LOCK_DATA_SSL_SESSION) !=
		    CURLSHE_OK ||
	    curl_multi_setopt(s->multi, CURLMOPT_MAXCONNECTS, (long)s->depth + 1) != CURLM_OK) {
		host->fail(host, "session: out of memory");
		return KVT_ENOMEM;
	}
	s->socket_room = sockets;
	return 0;
}

int kvt__s3_session_open(void *backend, uint32_t depth, int listing, void **sessionp)
{
	struct s3_backend *b = backend;
	struct s3_session *s = b->host->alloc(b->host, sizeof(*s), 64);
	int error;

	(void)listing;
	*sessionp = NULL;
	if (s == NULL) {
		b->host->fail(b->host, "session: out of memory");
		return KVT_ENOMEM;
	}
	*s = (struct s3_session){
		.backend = b, .host = b->host, .depth = depth ? depth : 1, .wake_fd = -1};
	error = s3_session_make(s);
	if (error) {
		s3_session_free(s);
		return error;
	}
	pthread_mutex_lock(&b->lock);
	s->next = b->sessions;
	b->sessions = s;
	pthread_mutex_unlock(&b->lock);
	*sessionp = s;
	return 0;
}

void kvt__s3_session_close(void *session)
{
	struct s3_session *s = session, **at = &s->backend->sessions;

	pthread_mutex_lock(&s->backend->lock);
	while (*at != s)
		at = &(*at)->next;
	*at = s->next;
	pthread_mutex_unlock(&s->backend->lock);
	s3_session_free(s);
}

void kvt__s3_session_forked(struct s3_session *s)
{
	const struct kvt_host *host = s->host;
	int nowhere = open("/dev/null", O_RDWR | O_CLOEXEC);
	bool is_quiet = nowhere >= 0 && s->in_flight == 0;

	/* The connections are the parent's: what closing them says, TLS does, goes nowhere. */
	for (uint32_t i = 0; i < s->socket_count && is_quiet; i++)
		is_quiet = dup2(nowhere, s->sockets[i]) >= 0;
	if (nowhere >= 0)
		(void)close(nowhere);
	if (is_quiet) {
		s3_session_free(s);
		return;
	}
	/* With requests in flight libcurl may wait for a thread that is not here: its handles are
	 * left as they are. */
	for (uint32_t i = 0; i < s->socket_count; i++)
		(void)close(s->sockets[i]);
	(void)close(s->wake_fd);
	for (uint32_t i = 0; i < s->depth; i++) {
		host->free(host, s->slots[i].query);
		host->free(host, s->slots[i].lines);
		host->free(host, s->slots[i].fields);
	}
	kvt__s3_signer_destroy(s->signer);
	host->free(host, s->sockets);
	host->free(host, s->slots);
	host->free(host, s);
}

void kvt__s3_wait(struct s3_transfer *t, int64_t not_before_ns)
{
	t->not_before_ns = not_before_ns;
	t->next = t->session->waiting;
	t->session->waiting = t;
}

static enum kvt_error_class s3_class_of(int error)
{
	switch (error) {
#define KVT_X(name, value, class_name, text)                                                       \
	case value:                                                                                \
		return KVT_CLASS_##class_name;
		KVT_ERROR_TABLE(KVT_X)
#undef KVT_X
	default:
		return KVT_CLASS_INTERNAL;
	}
}

bool kvt__s3_retry(struct s3_transfer *t, int error, uint32_t most)
{
	enum kvt_error_class c = s3_class_of(error);
	int64_t pause_ns = (100 * S3_NS_PER_MS) << t->tries;
	int64_t at_ns = t->session->host->now_ns() + pause_ns;

	if ((c != KVT_CLASS_TRANSIENT && c != KVT_CLASS_THROTTLED) || t->tries >= most ||
	    at_ns >= t->deadline_ns)
		return false;
	t->tries++;
	t->is_resent = true;
	kvt__s3_wait(t, at_ns);
	return true;
}

static void s3_release(struct s3_transfer *t)
{
	struct s3_session *s = t->session;

	if (t->drop)
		t->drop(t);
	kvt__s3_xml_destroy(t->xml);
	t->xml = NULL;
	t->io = NULL;
	t->next = s->free_slots;
	s->free_slots = t;
	s->in_flight--;
	atomic_fetch_sub_explicit(&s->backend->in_flight, 1, memory_order_relaxed);
}

static void s3_finish(struct s3_transfer *t)
{
	struct kvt_io *io = t->io;

	io->result = t->result;
	io->bytes_landed = t->received;
	if (t->result && t->reply.retry_after_s > 0)
		io->retry_after_ns = t->reply.retry_after_s * S3_NS_PER_S;
	s3_release(t);
}

/* A slot, made ready for the request; NULL when all are taken. */
static struct s3_transfer *s3_take(struct s3_session *s, struct kvt_io *io)
{
	struct s3_transfer *t = s->free_slots;
	unsigned most = s->backend->config.max_connections;

	if (t == NULL)
		return NULL;
	if (most && s->in_flight &&
	    atomic_load_explicit(&s->backend->in_flight, memory_order_relaxed) >= most)
		return NULL;
	s->free_slots = t->next;
	s->in_flight++;
	atomic_fetch_add_explicit(&s->backend->in_flight, 1, memory_order_relaxed);
	t->io = io;
	t->deadline_ns = io->deadline_ns;
	t->refused_generation = 0;
	t->lacks_credentials = false;
	t->tried_clock = t->tried_region = t->tried_credentials = false;
	t->is_resent = false;
	t->result = t->pending = t->state = 0;
	t->tries = 0;
	t->from = io->offset;
	t->sent = t->told = t->received = 0;
	t->has_told = false;
	t->ticket = kvt__s3_cache_ticket(s->backend->cache);
	t->work = NULL;
	t->drop = NULL;
	kvt__s3_reply_reset(t);
	return t;
}

static enum s3_progress (*s3_begin_of(uint32_t op))(struct s3_transfer *)
{
	switch (op) {
	case KVT_IO_PUT:
		return kvt__s3_put;
	case KVT_IO_BEGIN:
		return kvt__s3_begin;
	case KVT_IO_PART:
		return kvt__s3_part;
	case KVT_IO_COMMIT:
		return kvt__s3_commit;
	case KVT_IO_ABORT:
		return kvt__s3_abort;
	case KVT_IO_GET:
		return kvt__s3_get;
	case KVT_IO_HEAD:
		return kvt__s3_head;
	case KVT_IO_REMOVE:
		return kvt__s3_remove;
	case KVT_IO_LIST:
		return kvt__s3_list;
	case KVT_IO_SWEEP:
		return kvt__s3_sweep;
	default:
		return NULL;
	}
}

int kvt__s3_submit(void *session, struct kvt_io *io)
{
	struct s3_session *s = session;
	enum s3_progress (*begin)(struct s3_transfer *) = s3_begin_of(io->op);
	bool ends_handle = io->op == KVT_IO_COMMIT || io->op == KVT_IO_ABORT;
	struct s3_transfer *t;

	if (begin == NULL)
		return KVT_ENOTSUP;
	io->result = 0;
	io->swept = 0;
	io->bytes_landed = 0;
	io->info = (struct kvt_object_info){
		.object_bytes = KVT_BYTES_UNKNOWN, .age_ns = -1, .access_age_ns = -1};
	if (!ends_handle && s->host->now_ns() >= io->deadline_ns) {
		s->host->detail(io, "%s: the deadline has passed", io->name);
		io->result = KVT_ETIMEDOUT;
		return KVT_DONE;
	}
	if (io->op == KVT_IO_HEAD && kvt__s3_head_cached(s, io))
		return KVT_DONE;
	t = s3_take(s, io);
	if (t == NULL)
		return KVT_BUSY;
	if (begin(t) == S3_GOES_ON)
		return KVT_QUEUED;
	s3_finish(t);
	return KVT_DONE;
}

static int s3_deliver(struct s3_transfer *t, enum s3_progress progress)
{
	struct kvt_io *io = t->io;

	if (progress == S3_GOES_ON)
		return 0;
	s3_finish(t);
	io->complete(io);
	return 1;
}

static int s3_reap(struct s3_session *s)
{
	int delivered = 0, left;
	CURLMsg *message;

	while ((message = curl_multi_info_read(s->multi, &left)) != NULL) {
		CURLcode code = message->data.result;
		struct s3_transfer *t = NULL;

		if (message->msg != CURLMSG_DONE)
			continue;
		(void)curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&t);
		delivered += s3_deliver(t, kvt__s3_exchange_ended(t, code));
	}
	return delivered;
}

static int s3_resume_waiting(struct s3_session *s, int64_t now_ns)
{
	struct s3_transfer *t = s->waiting;
	int delivered = 0;

	s->waiting = NULL;
	while (t) {
		struct s3_transfer *next = t->next;

		if (t->not_before_ns <= now_ns || t->deadline_ns <= now_ns)
			delivered += s3_deliver(t, kvt__s3_exchange_resume(t));
		else
			kvt__s3_wait(t, t->not_before_ns);
		t = next;
	}
	return delivered;
}

/* A server that does not begin to answer: libcurl has no limit of its own for that. */
static int s3_watch(struct s3_session *s, int64_t now_ns)
{
	int64_t most_ns = (int64_t)s->backend->config.first_byte_timeout_ms * S3_NS_PER_MS;
	int delivered = 0;

	if (now_ns - s->watched_ns < S3_WATCH_NS || most_ns == 0)
		return 0;
	s->watched_ns = now_ns;
	for (uint32_t i = 0; i < s->depth; i++) {
		struct s3_transfer *t = &s->slots[i];

		if (t->is_running && t->reply.status < 200 && !t->x.patient &&
		    now_ns - t->moved_ns > most_ns)
			delivered +=
				s3_deliver(t, kvt__s3_exchange_expired(
						      t, "no answer within first_byte_timeout_ms"));
	}
	return delivered;
}

/* Milliseconds to sleep, rounded up. */
static int s3_sleep_ms(const struct s3_session *s, int64_t now_ns, int64_t until_ns)
{
	int64_t left_ns;

	for (const struct s3_transfer *t = s->waiting; t; t = t->next)
		if (t->not_before_ns < until_ns)
			until_ns = t->not_before_ns;
	if (s->in_flight && until_ns - now_ns > S3_WATCH_NS)
		until_ns = now_ns + S3_WATCH_NS;
	left_ns = until_ns - now_ns;
	if (left_ns / S3_NS_PER_MS >= INT_MAX)
		return INT_MAX;
	return left_ns > 0 ? (int)((left_ns + S3_NS_PER_MS - 1) / S3_NS_PER_MS) : 0;
}

int kvt__s3_poll(void *session, int64_t until_ns)
{
	struct s3_session *s = session;

	for (;;) {
		struct curl_waitfd wake = {.fd = s->wake_fd, .events = CURL_WAIT_POLLIN};
		int running, delivered = 0;
		int64_t now_ns;
		CURLMcode bad = CURLM_OK;

		if (s->in_flight) {
			bad = curl_multi_perform(s->multi, &running);
			delivered = s3_reap(s);
			now_ns = s->host->now_ns();
			delivered += s3_resume_waiting(s, now_ns);
			delivered += s3_watch(s, now_ns);
		}
		now_ns = s->host->now_ns();
		if (delivered == 0 && until_ns > now_ns && bad == CURLM_OK)
			bad = curl_multi_poll(s->multi, &wake, 1, s3_sleep_ms(s, now_ns, until_ns),
					      NULL);
		if (bad != CURLM_OK) {
			s->host->log(s->host, KVT_HOST_ERROR, "s3 poll", "%s: %s",
				     s->backend->config.authority, curl_multi_strerror(bad));
			return delivered ? delivered : KVT_EINTERNAL;
		}
		if (wake.revents) {
			uint64_t count;

			while (read(s->wake_fd, &count, sizeof(count)) < 0 && errno == EINTR)
				;
		}
		if (delivered || wake.revents || until_ns <= now_ns)
			return delivered;
	}
}

void kvt__s3_wake(void *session)
{
	const struct s3_session *s = session;
	uint64_t one = 1;

	while (write(s->wake_fd, &one, sizeof(one)) < 0 && errno == EINTR)
		;
}
