/* SPDX-License-Identifier: Apache-2.0 */
/* The requests that fetch credentials: small, never through a proxy, never redirected, and ended at
 * once when the store is closed. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <curl/curl.h>
#include <openssl/crypto.h>

#include "credentials_parts.h"

#define S3_LOOK_MS 20

struct s3_reply_buffer {
	char *text; /* S3_REPLY_BYTES + 1 */
	size_t bytes;
	bool is_too_long;
};

static size_t s3_take(char *data, size_t size, size_t count, void *buffer)
{
	struct s3_reply_buffer *b = buffer;
	size_t bytes = size * count;

	if (bytes > S3_REPLY_BYTES - b->bytes) {
		b->is_too_long = true;
		return 0;
	}
	memcpy(b->text + b->bytes, data, bytes);
	b->bytes += bytes;
	return bytes;
}

static int s3_stopped(void *stop, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
	const atomic_bool *flag = stop;

	(void)a, (void)b, (void)c, (void)d;
	return flag && atomic_load(flag);
}

static CURLcode s3_set(CURL *e, struct s3_fetch *f, const struct s3_http *request,
		       struct s3_reply_buffer *buffer, struct curl_slist *headers)
{
	CURLcode bad = CURLE_OK;

#define S3_SET(option, value) (bad = bad ? bad : curl_easy_setopt(e, option, value))
	S3_SET(CURLOPT_URL, request->url);
	S3_SET(CURLOPT_NOSIGNAL, 1L);
	S3_SET(CURLOPT_QUICK_EXIT, 1L); /* not even for a name server */
	S3_SET(CURLOPT_PROTOCOLS_STR, "http,https");
	S3_SET(CURLOPT_FOLLOWLOCATION, 0L);
	S3_SET(CURLOPT_NOPROXY, "*");
	S3_SET(CURLOPT_NETRC, (long)CURL_NETRC_IGNORED);
	S3_SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	S3_SET(CURLOPT_USERAGENT, "kvtier");
	S3_SET(CURLOPT_CONNECTTIMEOUT_MS, request->timeout_ms);
	S3_SET(CURLOPT_TIMEOUT_MS, request->timeout_ms);
	S3_SET(CURLOPT_WRITEFUNCTION, s3_take);
	S3_SET(CURLOPT_WRITEDATA, buffer);
	S3_SET(CURLOPT_NOPROGRESS, 0L);
	S3_SET(CURLOPT_XFERINFOFUNCTION, s3_stopped);
	S3_SET(CURLOPT_XFERINFODATA, (void *)f->stop);
	S3_SET(CURLOPT_HTTPHEADER, headers);
	if (f->config->ca_bundle)
		S3_SET(CURLOPT_CAINFO, f->config->ca_bundle);
	if (request->body)
		S3_SET(CURLOPT_POSTFIELDS, request->body);
	else if (strcmp(request->method, "GET") != 0)
		S3_SET(CURLOPT_CUSTOMREQUEST, request->method);
	return bad;
}

/* As curl_easy_perform, which sleeps for up to a second between two looks at the stop flag. */
static CURLcode s3_drive(CURL *e)
{
	CURLM *multi = curl_multi_init();
	CURLcode bad = CURLE_OUT_OF_MEMORY;
	const CURLMsg *message;
	int count = 0;

	if (multi && curl_multi_add_handle(multi, e) == CURLM_OK) {
		bad = CURLE_RECV_ERROR; /* unless it ends in its own way */
		while (curl_multi_perform(multi, &count) == CURLM_OK && count > 0)
			if (curl_multi_poll(multi, NULL, 0, S3_LOOK_MS, NULL) != CURLM_OK)
				break;
		while ((message = curl_multi_info_read(multi, &count)) != NULL)
			if (message->msg == CURLMSG_DONE)
				bad = message->data.result;
		(void)curl_multi_remove_handle(multi, e);
	}
	/* Closes the connection. */
	(void)curl_multi_cleanup(multi);
	return bad;
}

/* TLS writes into a connection that the server has closed may raise SIGPIPE, which must not end the
 * program: at open this is its own thread, with signals as it has them. */
static CURLcode s3_perform(CURL *e)
{
	static const struct timespec no_time;
	sigset_t pipe_set, pending, before;
	bool was_pending;
	CURLcode bad;

	(void)sigemptyset(&pipe_set);
	(void)sigaddset(&pipe_set, SIGPIPE);
	(void)pthread_sigmask(SIG_BLOCK, &pipe_set, &before);
	was_pending = sigpending(&pending) == 0 && sigismember(&pending, SIGPIPE) == 1;
	bad = s3_drive(e);
	if (!was_pending)
		while (sigtimedwait(&pipe_set, NULL, &no_time) < 0 && errno == EINTR)
			;
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	return bad;
}

/* What is wrong about an answer, with what its body says. */
static int s3_refused(struct s3_fetch *f, const struct s3_http *request,
		      struct s3_reply_buffer *buffer)
{
	const char *place = request->place ? request->place : request->url;
	char cause[S3_CAUSE_BYTES] = "";

	buffer->text[buffer->bytes] = '\0';
	if (request->explain)
		request->explain(f, buffer->text, cause, sizeof(cause));
	for (char *c = cause; *c; c++)
		if ((unsigned char)*c < 0x20 || *c == 0x7f)
			*c = ' ';
	return kvt__s3_why(f, KVT_EAUTH, "%s: HTTP %ld%s%s", place, request->status,
			   *cause ? " " : "", cause);
}

/* *againp: another try may do better. */
static int s3_try(struct s3_fetch *f, struct s3_http *request, struct s3_reply_buffer *buffer,
		  bool *againp)
{
	const char *place = request->place ? request->place : request->url;
	struct curl_slist *headers = NULL, *more;
	CURL *e = curl_easy_init();
	CURLcode bad = e ? CURLE_OK : CURLE_OUT_OF_MEMORY;

	for (int i = 0; i < S3_MAX_REQUEST_HEADERS && request->headers[i] && !bad; i++) {
		more = curl_slist_append(headers, request->headers[i]);
		if (more)
			headers = more;
		else
			bad = CURLE_OUT_OF_MEMORY;
	}
	request->status = 0;
	buffer->bytes = 0;
	buffer->is_too_long = false;
	if (!bad)
		bad = s3_set(e, f, request, buffer, headers);
	if (!bad)
		bad = s3_perform(e);
	if (e)
		(void)curl_easy_getinfo(e, CURLINFO_RESPONSE_CODE, &request->status);
	curl_easy_cleanup(e);
	for (more = headers; more; more = more->next)
		OPENSSL_cleanse(more->data, strlen(more->data));
	curl_slist_free_all(headers);
	*againp = false;
	if (buffer->is_too_long)
		return kvt__s3_why(f, KVT_EAUTH, "%s: the reply is over 64 KiB", place);
	if (bad == CURLE_OUT_OF_MEMORY)
		return kvt__s3_why(f, KVT_ENOMEM, "out of memory");
	*againp = bad || request->status >= 500 || request->status == 408 || request->status == 429;
	if (bad)
		return kvt__s3_why(f, KVT_EAUTH, "%s: %s", place, curl_easy_strerror(bad));
	return request->status == 200 ? 0 : s3_refused(f, request, buffer);
}

int kvt__s3_http(struct s3_fetch *f, struct s3_http *request, char **bodyp)
{
	struct s3_reply_buffer buffer = {.text = f->host->alloc(f->host, S3_REPLY_BYTES + 1, 1)};
	int error = KVT_EAUTH;
	bool again = true;

	*bodyp = NULL;
	if (buffer.text == NULL)
		return kvt__s3_why(f, KVT_ENOMEM, "out of memory");
	memset(buffer.text, 0, S3_REPLY_BYTES + 1);
	for (unsigned i = 0; i < request->tries && error && again; i++) {
		if (f->stop && atomic_load(f->stop))
			break;
		error = s3_try(f, request, &buffer, &again);
	}
	buffer.text[buffer.bytes] = '\0';
	if (error) {
		OPENSSL_cleanse(buffer.text, S3_REPLY_BYTES);
		f->host->free(f->host, buffer.text);
		return error;
	}
	*bodyp = buffer.text;
	return 0;
}

void kvt__s3_http_free(const struct kvt_host *host, char *body)
{
	if (body == NULL)
		return;
	OPENSSL_cleanse(body, strlen(body));
	host->free(host, body);
}

int kvt__s3_token_file(struct s3_fetch *f, const char *path, char **textp)
{
	char *text = f->host->alloc(f->host, S3_REPLY_BYTES + 1, 1);
	size_t bytes = 0;
	ssize_t n = 0;
	int fd;

	*textp = NULL;
	if (text == NULL)
		return kvt__s3_why(f, KVT_ENOMEM, "out of memory");
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	while (fd >= 0 && bytes <= S3_REPLY_BYTES &&
	       (n = read(fd, text + bytes, S3_REPLY_BYTES + 1 - bytes)) > 0)
		bytes += (size_t)n;
	if (fd < 0 || n < 0 || bytes > S3_REPLY_BYTES) {
		int cause = errno;

		if (fd >= 0)
			(void)close(fd);
		OPENSSL_cleanse(text, bytes);
		f->host->free(f->host, text);
		return kvt__s3_why(f, KVT_ECONFIG, "%s: %s", path,
				   bytes > S3_REPLY_BYTES ? "over 64 KiB" : strerror(cause));
	}
	(void)close(fd);
	while (bytes && strchr(" \t\r\n", text[bytes - 1]))
		bytes--;
	text[bytes] = '\0';
	*textp = text;
	if (bytes == 0 || strlen(text) != bytes || !kvt__s3_is_header_value(text)) {
		kvt__s3_http_free(f->host, text);
		*textp = NULL;
		return kvt__s3_why(f, KVT_ECONFIG, "%s: expected one line with a token", path);
	}
	return 0;
}

bool kvt__s3_is_header_value(const char *text)
{
	for (; *text; text++)
		if ((unsigned char)*text < 0x20 || *text == 0x7f)
			return false;
	return true;
}
