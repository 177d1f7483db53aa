/* SPDX-License-Identifier: Apache-2.0 */
/* Answers that libmicrohttpd would refuse to send: written to the socket byte by byte, cut where a
 * rule says. Its connection ends with the request then. */
#include "s3_server_internal.h"

#include <errno.h>
#include <linux/sockios.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static bool client_is_gone(const struct s3s_request *r)
{
	struct pollfd p = {.fd = r->on->fd, .events = POLLRDHUP};

	return poll(&p, 1, 0) > 0 && p.revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL);
}

static void pause_ms(int64_t ms)
{
	nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

static bool server_is_closing(struct s3_server *server)
{
	bool closing;

	pthread_mutex_lock(&server->lock);
	closing = server->closing;
	pthread_mutex_unlock(&server->lock);
	return closing;
}

bool s3s_nap(struct s3s_request *r, int64_t ms)
{
	for (; ms > 0; ms -= 10) {
		if (server_is_closing(r->server) || client_is_gone(r))
			return false;
		pause_ms(ms < 10 ? ms : 10);
	}
	return true;
}

/* A disconnect by connect is the one way to reset at once, whoever holds the descriptor. What was
 * written has arrived before. The call is made past the C library, for the thread sanitizer takes a
 * connect for the birth of another descriptor. */
void s3s_reset(int fd)
{
	struct sockaddr nowhere = {.sa_family = AF_UNSPEC};
	int queued = 0;

	for (int i = 0; i < 2000 && ioctl(fd, SIOCOUTQ, &queued) == 0 && queued > 0; i++)
		pause_ms(1);
	(void)syscall(SYS_connect, fd, &nowhere, sizeof(nowhere));
}

bool s3s_cut(struct s3s_request *r, enum s3_server_cut cut)
{
	switch (cut) {
	case S3_CUT_NONE:
		return true;
	case S3_CUT_HOLD:
		return s3s_hold(r);
	case S3_CUT_FIN:
		(void)shutdown(r->on->fd, SHUT_RDWR);
		return false;
	case S3_CUT_RST:
		s3s_reset(r->on->fd);
		return false;
	case S3_CUT_STALL:
		while (s3s_nap(r, 10))
			;
		return false;
	}
	return false;
}

uint64_t s3s_body_bytes(const struct s3s_reply *reply)
{
	return reply->object ? reply->bytes : reply->text_bytes;
}

unsigned s3s_pieces(const struct s3s_reply *reply, struct MHD_IoVec *iov)
{
	uint64_t skip = reply->first, left = reply->bytes;
	unsigned count = 0;

	for (unsigned i = 0; i < reply->object->count && left; i++) {
		const struct s3s_buffer *buffer = reply->object->buffers[i];
		uint64_t bytes;

		if (skip >= buffer->bytes) {
			skip -= buffer->bytes;
			continue;
		}
		bytes = buffer->bytes - skip < left ? buffer->bytes - skip : left;
		iov[count++] = (struct MHD_IoVec){buffer->data + skip, (size_t)bytes};
		skip = 0;
		left -= bytes;
	}
	return count;
}

static bool write_all(struct s3s_request *r, const void *data, size_t bytes)
{
	const char *p = data;

	while (bytes) {
		ssize_t n = send(r->on->fd, p, bytes, MSG_NOSIGNAL);

		if (n > 0) {
			p += n;
			bytes -= (size_t)n;
		} else if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
			struct pollfd wait = {.fd = r->on->fd, .events = POLLOUT};

			if (server_is_closing(r->server))
				return false;
			(void)poll(&wait, 1, 20);
		} else if (n >= 0 || errno != EINTR) {
			return false;
		}
	}
	return true;
}

/* Some of the body, cut where it is to be. */
static bool write_body(struct s3s_request *r, const char *data, size_t bytes, uint64_t *sent)
{
	const struct s3_server_rule *rule = &r->rule;

	if (rule->cut && !r->cut_done && *sent + bytes > rule->cut_at) {
		size_t before = (size_t)(rule->cut_at - *sent);

		if (!write_all(r, data, before))
			return false;
		*sent += before;
		r->cut_done = true;
		if (!s3s_cut(r, rule->cut))
			return false;
		data += before;
		bytes -= before;
	}
	while (bytes) {
		size_t piece = bytes;

		if (rule->rate) {
			size_t most = rule->rate >= 20 ? rule->rate / 20 : 1;

			piece = bytes < most ? bytes : most;
			if (!s3s_nap(r, (int64_t)(piece * 1000 / rule->rate)))
				return false;
		}
		if (!write_all(r, data, piece))
			return false;
		*sent += piece;
		data += piece;
		bytes -= piece;
	}
	return true;
}

static bool write_piece(struct s3s_request *r, const char *data, size_t bytes, uint64_t *sent)
{
	char line[32];

	if (!r->rule.chunked)
		return write_body(r, data, bytes, sent);
	snprintf(line, sizeof(line), "%zx\r\n", bytes);
	return write_all(r, line, strlen(line)) && write_body(r, data, bytes, sent) &&
	       write_all(r, "\r\n", 2);
}

static bool write_pieces(struct s3s_request *r, uint64_t *sent)
{
	struct s3s_reply *reply = &r->reply;
	struct MHD_IoVec *iov;
	unsigned count;
	bool going = true;

	if (!reply->object)
		return !reply->text_bytes || write_piece(r, reply->text, reply->text_bytes, sent);
	iov = calloc(reply->object->count + 1, sizeof(*iov));
	if (!iov)
		return false;
	count = s3s_pieces(reply, iov);
	for (unsigned i = 0; i < count && going; i++)
		going = write_piece(r, iov[i].iov_base, iov[i].iov_len, sent);
	free(iov);
	return going;
}

static bool write_junk(struct s3s_request *r, uint64_t bytes)
{
	static const char junk[4096] = {'j', 'u', 'n', 'k'};

	for (; bytes; bytes -= bytes < sizeof(junk) ? bytes : sizeof(junk))
		if (!write_all(r, junk, bytes < sizeof(junk) ? (size_t)bytes : sizeof(junk)))
			return false;
	return true;
}

static void lower(char *lines)
{
	bool in_name = true;

	for (char *p = lines; *p; p++) {
		if (*p == ':')
			in_name = false;
		else if (*p == '\n')
			in_name = true;
		else if (in_name && *p >= 'A' && *p <= 'Z')
			*p = (char)(*p - 'A' + 'a');
	}
}

static bool write_head(struct s3s_request *r)
{
	const struct s3_server_rule *rule = &r->rule;
	struct s3s_reply *reply = &r->reply;
	uint64_t length = rule->wrong_length ? rule->said_length : s3s_body_bytes(reply);
	bool going;
	char line[128];

	snprintf(line, sizeof(line), "HTTP/1.%d %d %s\r\n", rule->http10 ? 0 : 1, reply->status,
		 MHD_get_reason_phrase_for((unsigned)reply->status));
	going = write_all(r, line, strlen(line));
	if (rule->chunked)
		s3s_header(reply, "Transfer-Encoding: chunked");
	else if (!rule->no_length && reply->status != 204)
		s3s_header(reply, "Content-Length: %llu", (unsigned long long)length);
	if (!rule->close_silently && !rule->close && !rule->cut)
		s3s_header(reply, "Connection: close");
	if (rule->lower_case)
		lower(reply->lines);
	going = going && write_all(r, reply->lines, reply->line_bytes);
	for (unsigned n = 0; going && n < rule->header_bytes; n += 100) {
		char bomb[101];

		snprintf(bomb, sizeof(bomb), "x-amz-meta-bomb-%07u:%074u\r\n", n % 10000000, 0);
		going = write_all(r, bomb, 100);
	}
	return going && write_all(r, "\r\n", 2);
}

/* Reads what still comes until the client has seen the answer and closes. */
static void drain(struct s3s_request *r)
{
	char waste[65536];
	ssize_t n = 1;

	(void)shutdown(r->on->fd, SHUT_WR);
	while (n != 0 && !server_is_closing(r->server)) {
		struct pollfd p = {.fd = r->on->fd, .events = POLLIN};

		(void)poll(&p, 1, 20);
		n = recv(r->on->fd, waste, sizeof(waste), MSG_DONTWAIT);
		if (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)
			break;
	}
}

enum MHD_Result s3s_send_raw(struct s3s_request *r)
{
	const struct s3_server_rule *rule = &r->rule;
	uint64_t sent = 0;
	bool going;

	if (rule->raw) {
		if (write_all(r, rule->raw, strlen(rule->raw)) && s3s_cut(r, rule->cut))
			drain(r);
		return MHD_NO;
	}
	going = write_head(r);
	if (going && !r->is_head) {
		going = write_pieces(r, &sent);
		if (going && rule->cut && !r->cut_done && sent == rule->cut_at) {
			r->cut_done = true;
			going = s3s_cut(r, rule->cut);
		}
		going = going && write_junk(r, rule->extra_bytes);
		if (going && rule->chunked)
			going = write_all(r, "0\r\n\r\n", 5);
		while (going && rule->endless)
			going = write_junk(r, 65536);
	}
	if (going && rule->close_silently)
		(void)shutdown(r->on->fd, SHUT_RDWR);
	else if (going)
		drain(r);
	return MHD_NO;
}
