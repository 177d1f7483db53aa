/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers: the header lines as they come, the body into the iovec, into the XML reader or nowhere,
 * and the verdict once all of it is there. What the body is for is decided when the header is
 * complete, so that the body of an error, or of the wrong range, never touches the iovec.
 */
#include "s3.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#define S3_MAX_FIELD_BYTES    102400u
#define S3_MOST_RETRY_AFTER_S 86400u
#define S3_DRAIN_BYTES	      262144u /* up to here it is read so that the connection lives on */

void kvt__s3_reply_reset(struct s3_transfer *t)
{
	memset(&t->reply, 0, sizeof(t->reply));
	t->reply.length = t->reply.total = KVT_BYTES_UNKNOWN;
	t->reply.date_s = t->reply.modified_s = t->reply.retry_after_s = -1;
	kvt__s3_xml_destroy(t->xml);
	t->xml = NULL;
}

static bool s3_parse_number(const char **textp, uint64_t *valuep)
{
	const char *text = *textp;
	uint64_t value = 0;

	if (*text < '0' || *text > '9')
		return false;
	for (; *text >= '0' && *text <= '9'; text++) {
		if (value > (INT64_MAX - 9) / 10)
			return false;
		value = value * 10 + (uint64_t)(*text - '0');
	}
	*textp = text;
	*valuep = value;
	return true;
}

/* "bytes 0-99/1000", or "bytes * /1000" of a 416. */
static bool s3_parse_content_range(struct s3_reply *r, const char *text)
{
	if (strncasecmp(text, "bytes", 5) != 0)
		return false;
	text += 5;
	text += strspn(text, " =");
	if (*text == '*') {
		text++;
	} else {
		if (!s3_parse_number(&text, &r->first) || *text++ != '-' ||
		    !s3_parse_number(&text, &r->last) || r->last < r->first)
			return false;
		r->has_range = true;
	}
	if (*text++ != '/')
		return false;
	if (strcmp(text, "*") == 0)
		return true;
	return s3_parse_number(&text, &r->total) && *text == '\0' &&
	       (!r->has_range || r->last < r->total);
}

static void s3_copy(char *to, size_t room, const char *from)
{
	size_t n = strlen(from);

	if (n >= room)
		n = 0; /* too long to be what we know */
	memcpy(to, from, n);
	to[n] = '\0';
}

static void s3_refuse(struct s3_reply *r, int error, const char *why)
{
	if (r->refused == 0) {
		r->refused = error;
		r->why = why;
	}
}

static void s3_take_field(struct s3_reply *r, const char *name, const char *value)
{
	const char *at = value;

	switch (name[0] | 0x20) {
	case 'c':
		if (strcasecmp(name, "content-length") == 0) {
			if (!s3_parse_number(&at, &r->length) || *at)
				s3_refuse(r, KVT_EPROTO, "its Content-Length is no number");
		} else if (strcasecmp(name, "content-range") == 0) {
			if (!s3_parse_content_range(r, value))
				s3_refuse(r, KVT_EPROTO, "its Content-Range makes no sense");
		} else if (strcasecmp(name, "content-encoding") == 0) {
			s3_copy(r->encoding, sizeof(r->encoding), value);
			if (value[0] && strcasecmp(value, "identity") != 0 &&
			    strcasecmp(value, "aws-chunked") != 0)
				s3_refuse(r, KVT_EPROTO, "its bytes are encoded");
		}
		break;
	case 'd':
		if (strcasecmp(name, "date") == 0)
			r->date_s = kvt__s3_time(value);
		break;
	case 'e':
		if (strcasecmp(name, "etag") == 0)
			s3_copy(r->etag, sizeof(r->etag), value);
		break;
	case 'l':
		if (strcasecmp(name, "last-modified") == 0)
			r->modified_s = kvt__s3_time(value);
		break;
	case 'r':
		if (strcasecmp(name, "retry-after") == 0) {
			uint64_t seconds;

			if (s3_parse_number(&at, &seconds) && *at == '\0')
				r->retry_after_s = (int64_t)(seconds < S3_MOST_RETRY_AFTER_S
								     ? seconds
								     : S3_MOST_RETRY_AFTER_S);
		}
		break;
	case 'x':
		if (strcasecmp(name, "x-amz-request-id") == 0)
			s3_copy(r->request_id, sizeof(r->request_id), value);
		else if (strcasecmp(name, "x-amz-bucket-region") == 0)
			s3_copy(r->region, sizeof(r->region), value);
		break;
	default:
		break;
	}
}

/* Whether 206, or a 200 with all of the object, has just the range that was asked for. */
static void s3_check_range(struct s3_transfer *t)
{
	struct s3_reply *r = &t->reply;
	uint64_t first = (uint64_t)t->from, length = t->io->length;
	bool is_suffix = t->from < 0; /* of just `length` bytes */

	if (r->refused)
		return;
	if (r->status == 200) {
		r->total = r->length;
		if (r->length == KVT_BYTES_UNKNOWN)
			s3_refuse(r, KVT_EPROTO, "it has neither Content-Length nor Content-Range");
		else if ((is_suffix ? 0 : first) + length > r->length)
			s3_refuse(r, KVT_ERANGE, "the object is shorter");
		else if (r->length != length)
			s3_refuse(r, KVT_EPROTO, "the server ignored the range");
	} else if (!r->has_range || r->total == KVT_BYTES_UNKNOWN) {
		s3_refuse(r, KVT_EPROTO, "it has no Content-Range with the object's length");
	} else {
		uint64_t got = r->last - r->first + 1;

		if (is_suffix)
			first = length < r->total ? r->total - length : 0;
		if (r->first == first && got < length && r->last + 1 == r->total)
			s3_refuse(r, KVT_ERANGE, "the object is shorter");
		else if (r->first != first || got != length)
			s3_refuse(r, KVT_EPROTO, "its Content-Range is not what was asked for");
		else if (r->length != KVT_BYTES_UNKNOWN && r->length != got)
			s3_refuse(r, KVT_EPROTO,
				  "its Content-Length contradicts its Content-Range");
	}
	r->is_data = r->refused == 0;
}

/* The header is complete: decides where the body goes. */
static void s3_fields_end(struct s3_transfer *t)
{
	struct s3_reply *r = &t->reply;

	r->has_fields = true;
	if (t->x.sink != S3_TO_IOV || (r->status != 200 && r->status != 206))
		return;
	if (t->x.if_match && r->etag[0] && strcmp(r->etag, t->x.if_match) != 0)
		s3_refuse(r, KVT_EPRECOND, "its ETag is another one than asked for");
	s3_check_range(t);
}

size_t kvt__s3_reply_line(char *line, size_t size, size_t count, void *transfer)
{
	struct s3_transfer *t = transfer;
	struct s3_reply *r = &t->reply;
	size_t bytes = size * count, n = bytes;
	char text[1024], *colon;

	t->moved_ns = t->session->host->now_ns();
	r->field_bytes += bytes;
	if (r->field_bytes > S3_MAX_FIELD_BYTES) {
		s3_refuse(r, KVT_EPROTO, "its header is longer than 100 KiB");
		return 0;
	}
	while (n && (line[n - 1] == '\n' || line[n - 1] == '\r' || line[n - 1] == ' ' ||
		     line[n - 1] == '\t'))
		n--;
	if (n == 0) {
		if (r->status >= 200)
			s3_fields_end(t);
		return bytes;
	}
	if (n >= sizeof(text) || memchr(line, '\0', n))
		return bytes; /* none that we look at */
	memcpy(text, line, n);
	text[n] = '\0';
	if (!r->has_fields && strncmp(text, "HTTP/", 5) == 0) {
		const char *at = strchr(text, ' ');
		uint64_t status = 0;

		/* After 100 Continue the real answer comes. */
		kvt__s3_reply_reset(t);
		at = at ? at + strspn(at, " ") : "";
		r->status = s3_parse_number(&at, &status) && status < 1000 ? (long)status : 0;
		return bytes;
	}
	colon = strchr(text, ':');
	if (colon) {
		*colon++ = '\0';
		s3_take_field(r, text, colon + strspn(colon, " \t"));
	}
	return bytes;
}

/* A body that nobody wants: read when it is short, else the connection is given up. */
static size_t s3_drop(const struct s3_reply *r, size_t bytes)
{
	uint64_t length = r->length != KVT_BYTES_UNKNOWN ? r->length : r->body_bytes;

	return length <= S3_DRAIN_BYTES ? bytes : 0;
}

static size_t s3_to_xml(struct s3_transfer *t, const char *data, size_t bytes)
{
	struct s3_reply *r = &t->reply;
	int error;

	if (t->xml == NULL)
		t->xml = kvt__s3_xml_create(r->status < 300 ? t->x.item : NULL, t);
	error = t->xml ? kvt__s3_xml_feed(t->xml, data, bytes) : KVT_ENOMEM;
	if (error == 0)
		return bytes;
	if (r->status >= 300) /* a page of HTML, say: the status is what counts */
		return s3_drop(r, bytes);
	s3_refuse(r, error, "its body is not the XML that was expected");
	return 0;
}

size_t kvt__s3_reply_body(char *data, size_t size, size_t count, void *transfer)
{
	struct s3_transfer *t = transfer;
	struct s3_reply *r = &t->reply;
	size_t bytes = size * count;

	t->moved_ns = t->session->host->now_ns();
	r->body_bytes += bytes;
	if (r->status >= 300) {
		if (r->body_bytes > S3_ERROR_BODY_BYTES)
			return 0;
		return s3_to_xml(t, data, bytes);
	}
	if (r->refused)
		return s3_drop(r, bytes);
	if (r->is_data) {
		if (bytes > t->io->length - t->received) {
			s3_refuse(r, KVT_EPROTO, "it has more bytes than it said");
			return 0;
		}
		kvt__s3_cursor_write(&t->cursor, data, bytes);
		t->received += bytes;
		if (t->io->progress) {
			t->io->progress(t->io, t->received);
			t->has_told = true;
		}
		return bytes;
	}
	if (t->x.sink == S3_TO_XML)
		return s3_to_xml(t, data, bytes);
	return s3_drop(r, bytes);
}

/* An answer of 2xx. */
static int s3_verdict_of_success(struct s3_transfer *t)
{
	struct s3_reply *r = &t->reply;
	int error;

	if (t->x.sink == S3_TO_IOV && !r->is_data)
		s3_refuse(r, KVT_EPROTO, "it is no answer to a read");
	if (r->is_data && t->received != t->io->length)
		s3_refuse(r, KVT_EPROTO, "it ended early");
	if (t->x.source == S3_SEND_IOV && t->sent != t->io->length)
		s3_refuse(r, KVT_EPROTO, "it came before the server had all bytes");
	if (r->refused == 0 && t->x.sink == S3_TO_XML) {
		error = t->xml ? kvt__s3_xml_end(t->xml) : 0;
		if (error)
			s3_refuse(r, error, "its body is not the XML that was expected");
	}
	return r->refused;
}

/* A remedy that the answer alone does not ask for, because a HEAD has no body. */
static enum s3_remedy s3_remedy_of_head(const struct s3_transfer *t)
{
	const struct s3_reply *r = &t->reply;
	int64_t now_s = kvt__s3_server_time(t->session->backend);

	if (r->status == 403 && r->date_s >= 0 &&
	    (r->date_s - now_s > 600 || now_s - r->date_s > 600))
		return S3_REMEDY_CLOCK;
	if (r->region[0] && (r->status == 400 || r->status == 301 || r->status == 307))
		return S3_REMEDY_REGION;
	return r->status == 400 ? S3_REMEDY_CREDENTIALS : S3_REMEDY_NONE;
}

int kvt__s3_reply_verdict(struct s3_transfer *t, CURLcode code, enum s3_remedy *remedyp)
{
	struct s3_reply *r = &t->reply;
	const char *s3_code = "";
	int error;

	*remedyp = S3_REMEDY_NONE;
	if (r->refused)
		return r->refused;
	/* An error that has arrived counts, also when the connection broke behind it. */
	if (r->has_fields && r->status >= 300) {
		if (t->xml && kvt__s3_xml_end(t->xml) == 0 &&
		    kvt__s3_xml_root(t->xml) == S3_XML_ERROR)
			s3_code = kvt__s3_xml_text(t->xml, "Code");
		error = kvt__s3_error_of_reply(r->status, s3_code, remedyp);
		/* Without a body, which says SlowDown to others. */
		if (r->status == 503 && t->x.method == S3_HEAD)
			error = KVT_ETHROTTLED;
		if (*s3_code == '\0' && *remedyp == S3_REMEDY_NONE && t->x.method == S3_HEAD)
			*remedyp = s3_remedy_of_head(t);
		return error;
	}
	if (code != CURLE_OK) {
		r->why = t->error_text[0] ? t->error_text : curl_easy_strerror(code);
		return kvt__s3_error_of_curl(code);
	}
	if (r->status < 200 || !r->has_fields) {
		r->why = "the answer is no HTTP/1.1";
		return KVT_EPROTO;
	}
	error = s3_verdict_of_success(t);
	if (error == 0 && t->xml && kvt__s3_xml_root(t->xml) == S3_XML_ERROR) {
		/* CompleteMultipartUpload says 200 first and fails later. */
		error = kvt__s3_error_of_reply(r->status, kvt__s3_xml_text(t->xml, "Code"),
					       remedyp);
	}
	return error;
}

void kvt__s3_reply_info(struct s3_transfer *t, uint64_t object_bytes)
{
	const struct s3_reply *r = &t->reply;
	struct kvt_object_info *info = &t->io->info;
	int64_t now_s = r->date_s >= 0 ? r->date_s : kvt__s3_server_time(t->session->backend);

	*info = (struct kvt_object_info){.object_bytes = object_bytes,
					 .age_ns = kvt__s3_age_ns(now_s, r->modified_s),
					 .access_age_ns = -1};
	info->version.bytes = (uint32_t)strlen(r->etag);
	if (info->version.bytes <= sizeof(info->version.value))
		memcpy(info->version.value, r->etag, info->version.bytes);
	else
		info->version.bytes = 0;
}

void kvt__s3_tell(struct s3_transfer *t, const char *why)
{
	const struct s3_reply *r = &t->reply;
	const struct s3_config *config = &t->session->backend->config;
	const char *code = "", *message = "", *dots = "", *path = t->path;
	char status[32] = "", attempt[32] = "";
	size_t path_bytes = strlen(path);

	if (t->xml && kvt__s3_xml_root(t->xml) == S3_XML_ERROR) {
		code = kvt__s3_xml_text(t->xml, "Code");
		message = kvt__s3_xml_text(t->xml, "Message");
	}
	if (t->x.is_quiet)
		return;
	/* The end of a key tells more than its start. */
	if (path_bytes > 120) {
		dots = "...";
		path += path_bytes - 117;
	}
	if (r->status)
		(void)snprintf(status, sizeof(status), "HTTP %ld", r->status);
	if (t->io->attempt)
		(void)snprintf(attempt, sizeof(attempt), ", attempt %u", t->io->attempt);
	if (*message == '\0')
		message = why ? why : r->why ? r->why : "";
	t->session->host->detail(t->io, "%s %s%s%s%s: %s%s%.64s%s%s%s%.200s", t->x.verb,
				 config->base_url, dots, path, attempt, status, *code ? " " : "",
				 code, r->request_id[0] ? ", request id " : "", r->request_id,
				 *message && r->status ? ": " : "", message);
}
