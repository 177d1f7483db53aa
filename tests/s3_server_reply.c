/* SPDX-License-Identifier: Apache-2.0 */
/* Answers of the S3 server: made, bent as a rule says, and handed to libmicrohttpd. */
#include "s3_server_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

const char *s3s_field(struct s3s_request *r, const char *name)
{
	return MHD_lookup_connection_value(r->connection, MHD_HEADER_KIND, name);
}

const char *s3s_query(struct s3s_request *r, const char *name)
{
	for (unsigned i = 0; i < r->query_count; i++)
		if (strcmp(r->query[i].name, name) == 0)
			return r->query[i].value;
	return NULL;
}

void s3s_header(struct s3s_reply *reply, const char *format, ...)
{
	size_t room = sizeof(reply->lines) - reply->line_bytes;
	va_list ap;
	int n;

	va_start(ap, format);
	n = vsnprintf(reply->lines + reply->line_bytes, room, format, ap);
	va_end(ap);
	if (n < 0 || (size_t)n + 3 > room) {
		reply->lines[reply->line_bytes] = 0;
		return;
	}
	reply->line_bytes += (size_t)n;
	memcpy(reply->lines + reply->line_bytes, "\r\n", 3);
	reply->line_bytes += 2;
}

void s3s_header_remove(struct s3s_reply *reply, const char *name)
{
	size_t bytes = strlen(name);
	char *line = reply->lines;

	while (*line) {
		char *next = strstr(line, "\r\n");

		if (!next)
			return;
		next += 2;
		if (strncasecmp(line, name, bytes) == 0 && line[bytes] == ':') {
			reply->line_bytes -= (size_t)(next - line);
			memmove(line, next, strlen(next) + 1);
		} else {
			line = next;
		}
	}
}

void s3s_text(struct s3s_reply *reply, const char *format, ...)
{
	va_list ap;
	char *piece = NULL;
	int n;

	va_start(ap, format);
	n = vsnprintf(NULL, 0, format, ap);
	va_end(ap);
	if (n < 0 || !(piece = malloc((size_t)n + 1)))
		return;
	va_start(ap, format);
	vsnprintf(piece, (size_t)n + 1, format, ap);
	va_end(ap);
	(void)s3s_append(&reply->text, &reply->text_bytes, &reply->text_room, "%s", piece);
	free(piece);
}

void s3s_text_escaped(struct s3s_reply *reply, const char *text)
{
	char *escaped = s3s_xml_escape(text);

	if (escaped)
		(void)s3s_append(&reply->text, &reply->text_bytes, &reply->text_room, "%s",
				 escaped);
	free(escaped);
}

void s3s_reply_fini(struct s3s_reply *reply)
{
	free(reply->text);
	s3s_object_release(reply->object);
	memset(reply, 0, sizeof(*reply));
}

static void error_body(struct s3s_request *r, const char *code, const char *message,
		       const char *region)
{
	struct s3s_reply *reply = &r->reply;

	s3s_text(reply, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>");
	s3s_text_escaped(reply, code);
	s3s_text(reply, "</Code><Message>");
	s3s_text_escaped(reply, message ? message : "");
	s3s_text(reply, "</Message>");
	if (r->key && r->key[0]) {
		s3s_text(reply, "<Key>");
		s3s_text_escaped(reply, r->key);
		s3s_text(reply, "</Key>");
	}
	if (region) {
		s3s_text(reply, "<Region>");
		s3s_text_escaped(reply, region);
		s3s_text(reply, "</Region>");
	}
	s3s_text(reply, "<RequestId>%s</RequestId><HostId>memory</HostId></Error>", r->id);
}

void s3s_error(struct s3s_request *r, int status, const char *code, const char *message)
{
	s3s_reply_fini(&r->reply);
	r->failed = true;
	r->reply.status = status;
	if (!r->is_head)
		error_body(r, code, message, NULL);
}

/* ---- What a rule does to an answer ---- */

static void answer_instead(struct s3s_request *r)
{
	const struct s3_server_rule *rule = &r->rule;
	struct s3s_reply *reply = &r->reply;

	s3s_reply_fini(reply);
	reply->status = rule->status;
	if (rule->body)
		s3s_text(reply, "%s", rule->body);
	else if (rule->code && !r->is_head)
		error_body(r, rule->code, rule->message, rule->region);
	if (rule->region)
		s3s_header(reply, "x-amz-bucket-region: %s", rule->region);
}

/* The same body as text, so that it can be changed. */
static bool make_text(struct s3s_reply *reply)
{
	uint64_t bytes = s3s_body_bytes(reply), at = 0;
	struct MHD_IoVec *iov;
	unsigned count;
	char *text;

	if (!reply->object)
		return true;
	iov = calloc(reply->object->count + 1, sizeof(*iov));
	text = malloc((size_t)bytes + 1);
	if (!iov || !text) {
		free(iov);
		free(text);
		return false;
	}
	count = s3s_pieces(reply, iov);
	for (unsigned i = 0; i < count; i++) {
		memcpy(text + at, iov[i].iov_base, iov[i].iov_len);
		at += iov[i].iov_len;
	}
	text[at] = 0;
	free(iov);
	s3s_object_release(reply->object);
	reply->object = NULL;
	reply->text = text;
	reply->text_bytes = (size_t)bytes;
	return true;
}

static void add_blanks(struct s3s_reply *reply, unsigned count)
{
	char *text = malloc(reply->text_bytes + count + 1);

	if (!text)
		return;
	memset(text, ' ', count);
	for (unsigned i = 0; i < count; i += 2)
		text[i] = '\n';
	memcpy(text + count, reply->text ? reply->text : "", reply->text_bytes);
	free(reply->text);
	reply->text = text;
	reply->text_bytes += count;
	text[reply->text_bytes] = 0;
}

static void bend(struct s3s_request *r)
{
	const struct s3_server_rule *rule = &r->rule;
	struct s3s_reply *reply = &r->reply;

	if (rule->etag) {
		s3s_header_remove(reply, "ETag");
		if (strcmp(rule->etag, "?") == 0)
			s3s_header(reply, "ETag: \"another-%llu\"", (unsigned long long)r->number);
		else if (rule->etag[0])
			s3s_header(reply, "ETag: %s", rule->etag);
	}
	if (rule->range) {
		s3s_header_remove(reply, "Content-Range");
		if (rule->range[0])
			s3s_header(reply, "Content-Range: %s", rule->range);
	}
	if (rule->without)
		s3s_header_remove(reply, rule->without);
	if (rule->headers)
		s3s_header(reply, "%.*s",
			   (int)(strlen(rule->headers) -
				 (strstr(rule->headers, "\r\n") ? strlen("\r\n") : 0)),
			   rule->headers);
	if (rule->retry_after_s)
		s3s_header(reply, "Retry-After: %u", rule->retry_after_s);
	if (rule->close)
		s3s_header(reply, "Connection: close");
	if (rule->blanks && reply->text)
		add_blanks(reply, rule->blanks);
	if (rule->flip && rule->flip_at < s3s_body_bytes(reply) && make_text(reply))
		reply->text[rule->flip_at] ^= 0x10;
}

/* ---- Sending ---- */

static void add_lines(struct MHD_Response *response, char *lines)
{
	for (char *line = lines, *end; *line; line = end + 2) {
		char *colon = strchr(line, ':');

		end = strstr(line, "\r\n");
		if (!end)
			return;
		*end = 0;
		if (colon && colon < end) {
			*colon = 0;
			(void)MHD_add_response_header(response, line,
						      colon + 1 + strspn(colon + 1, " "));
		}
	}
}

/* The body piece by piece, where the rule wants it slow or held. The callback's thread is that of
 * the connection, so it may wait. */
static ssize_t slow_body(void *context, uint64_t position, char *to, size_t room)
{
	struct s3s_request *r = context;
	const struct s3_server_rule *rule = &r->rule;
	uint64_t left = s3s_body_bytes(&r->reply) - position;
	uint64_t bytes = left < room ? left : room, skip = position;

	if (rule->cut == S3_CUT_HOLD && !r->cut_done) {
		if (position < rule->cut_at) {
			if (bytes > rule->cut_at - position)
				bytes = rule->cut_at - position;
		} else {
			r->cut_done = true;
			if (!s3s_hold(r))
				return MHD_CONTENT_READER_END_WITH_ERROR;
		}
	}
	if (rule->rate) {
		uint64_t piece = rule->rate >= 20 ? rule->rate / 20 : 1;

		if (bytes > piece)
			bytes = piece;
		if (!s3s_nap(r, (int64_t)(bytes * 1000 / rule->rate)))
			return MHD_CONTENT_READER_END_WITH_ERROR;
	}
	if (r->reply.text) {
		memcpy(to, r->reply.text + position, (size_t)bytes);
		return (ssize_t)bytes;
	}
	skip += r->reply.first;
	for (unsigned i = 0; i < r->reply.object->count; i++) {
		const struct s3s_buffer *buffer = r->reply.object->buffers[i];

		if (skip < buffer->bytes) {
			if (bytes > buffer->bytes - skip)
				bytes = buffer->bytes - skip;
			memcpy(to, buffer->data + skip, (size_t)bytes);
			return (ssize_t)bytes;
		}
		skip -= buffer->bytes;
	}
	return MHD_CONTENT_READER_END_WITH_ERROR;
}

static struct MHD_Response *make_response(struct s3s_request *r)
{
	struct s3s_reply *reply = &r->reply;
	uint64_t bytes = s3s_body_bytes(reply);
	struct MHD_Response *response;
	struct MHD_IoVec *iov;

	if (bytes == 0)
		return MHD_create_response_from_buffer(0, (void *)(uintptr_t) "",
						       MHD_RESPMEM_PERSISTENT);
	if (r->has_rule && (r->rule.rate || r->rule.cut == S3_CUT_HOLD))
		return MHD_create_response_from_callback(bytes, 65536, slow_body, r, NULL);
	if (reply->text)
		return MHD_create_response_from_buffer(reply->text_bytes, reply->text,
						       MHD_RESPMEM_PERSISTENT);
	iov = calloc(reply->object->count, sizeof(*iov));
	if (!iov)
		return NULL;
	response = MHD_create_response_from_iovec(iov, s3s_pieces(reply, iov), NULL, NULL);
	free(iov);
	return response;
}

enum MHD_Result s3s_send(struct s3s_request *r)
{
	struct s3_server *server = r->server;
	struct s3s_reply *reply = &r->reply;
	struct MHD_Response *response;
	enum MHD_Result result;
	unsigned limit = server->options.requests_per_connection;
	char date[32];

	if (r->has_rule && r->rule.status)
		answer_instead(r);
	if (!reply->status)
		s3s_error(r, 500, "InternalError", "the server forgot to answer");
	s3s_http_date(s3s_now(server), date);
	s3s_header(reply, "Date: %s", date);
	s3s_header(reply, "x-amz-request-id: %s", r->id);
	if (reply->text && reply->text[0] == '<')
		s3s_header(reply, "Content-Type: application/xml");
	if (limit && r->on->requests % limit == 0)
		s3s_header(reply, "Connection: close");
	if (r->has_rule)
		bend(r);
	s3s_seen_answer(r, reply->status);
	if (r->has_rule) {
		if (r->rule.lost && (!s3s_cut(r, r->rule.lost)))
			return MHD_NO;
		if (s3s_rule_is_raw(&r->rule))
			return s3s_send_raw(r);
	}
	response = make_response(r);
	if (!response)
		return MHD_NO;
	add_lines(response, reply->lines);
	result = MHD_queue_response(r->connection, (unsigned)reply->status, response);
	MHD_destroy_response(response);
	return result;
}
