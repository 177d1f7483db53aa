/* SPDX-License-Identifier: Apache-2.0 */
/* What an exchange sends: its target, its header lines with their signature, and what libcurl is
 * told of it. Made anew each time it is sent, so that dates and credentials are of that moment. */
#include "s3.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define S3_SMALL_UPLOAD_BYTES 65536L
#define S3_SMALL_BODY_BYTES   262144u
#define S3_MOST_MS	      86400000
#define S3_SET(option, value) (bad = bad ? bad : curl_easy_setopt(e, option, value))

static const char *const s3_methods[] = {"GET", "HEAD", "PUT", "POST", "DELETE"};

static char *s3_room(struct s3_transfer *t, char **bufferp, size_t *roomp, size_t bytes)
{
	const struct kvt_host *host = t->session->host;

	if (bytes <= *roomp)
		return *bufferp;
	host->free(host, *bufferp);
	*bufferp = host->alloc(host, bytes, 16);
	*roomp = *bufferp ? bytes : 0;
	return *bufferp;
}

int kvt__s3_request_target(struct s3_transfer *t)
{
	const struct s3_config *config = &t->session->backend->config;
	char key[S3_MAX_KEY_BYTES + 1];
	size_t at = strlen(config->bucket_path), root = strlen(config->key_root), bytes = 2;
	const char *name = t->x.key;

	memcpy(t->path, config->bucket_path, at);
	if (t->x.name) {
		size_t length = strlen(t->x.name);

		if (root + length >= sizeof(key))
			return KVT_EINVAL;
		memcpy(key, config->key_root, root);
		memcpy(key + root, t->x.name, length + 1);
		name = key;
	}
	if (name) {
		if (strlen(name) > S3_MAX_KEY_BYTES)
			return KVT_EINVAL;
		t->path[at++] = '/';
		at += kvt__s3_encode(name, strlen(name), true, t->path + at, sizeof(t->path) - at);
		t->path[at] = '\0';
	} else if (at == 0) {
		t->path[at++] = '/';
		t->path[at] = '\0';
	} else {
		t->path[at] = '\0';
	}
	for (uint32_t i = 0; i < t->x.query_count; i++)
		bytes += 3 * (strlen(t->x.query[i].name) + strlen(t->x.query[i].value)) + 2;
	if (s3_room(t, &t->query, &t->query_room, bytes) == NULL)
		return KVT_ENOMEM;
	t->query[0] = '\0';
	if (t->x.query_count)
		(void)kvt__s3_query(t->x.query, t->x.query_count, t->query, t->query_room);
	return 0;
}

/* Base64 of the four bytes of a CRC, most significant first. */
static void s3_checksum_text(uint32_t crc, char *text)
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

	for (int i = 0; i < 5; i++)
		text[i] = digits[crc >> (26 - 6 * i) & 63];
	text[5] = digits[(crc & 3) << 4];
	text[6] = text[7] = '=';
	text[8] = '\0';
}

/* Header lines are gathered in one buffer, in nodes that libcurl only reads. */
struct s3_lines {
	struct s3_transfer *t;
	char *to, *end;
	uint32_t count;
};

static void s3_line(struct s3_lines *lines, const char *name, const char *value)
{
	struct curl_slist *fields = lines->t->fields;
	size_t n = strlen(name), v = strlen(value);

	if (n + v + 3 > (size_t)(lines->end - lines->to))
		return; /* the room was counted beforehand */
	fields[lines->count].data = lines->to;
	fields[lines->count].next = NULL;
	if (lines->count)
		fields[lines->count - 1].next = &fields[lines->count];
	lines->count++;
	memcpy(lines->to, name, n);
	lines->to += n;
	*lines->to++ = ':';
	if (v)
		*lines->to++ = ' ';
	memcpy(lines->to, value, v + 1);
	lines->to += v + 1;
}

static bool s3_header_goes_along(const struct s3_header *header, const struct s3_exchange *x)
{
	return (header->on_create && x->creates) || (header->on_data && x->touches_data);
}

static int s3_by_name(const void *a, const void *b)
{
	const struct s3_pair *x = a, *y = b;

	return strcmp(x->name, y->name);
}

/* The headers that are signed besides those that every request has. */
static size_t s3_signed_headers(const struct s3_transfer *t, struct s3_pair *pairs)
{
	const struct s3_config *config = &t->session->backend->config;
	size_t count = 0;

	if (t->x.checksum)
		pairs[count++] = (struct s3_pair){"x-amz-checksum-crc32c", t->checksum};
	for (size_t i = 0; i < config->header_count; i++) {
		const struct s3_header *h = &config->headers[i];

		if (s3_header_goes_along(h, &t->x) && strncmp(h->name, "x-amz-", 6) == 0)
			pairs[count++] = (struct s3_pair){h->name, h->value};
	}
	qsort(pairs, count, sizeof(*pairs), s3_by_name);
	return count;
}

/* Signs, and writes the lines of the signature. */
static int s3_sign(struct s3_lines *lines)
{
	struct s3_transfer *t = lines->t;
	struct s3_session *s = t->session;
	const struct s3_config *config = &s->backend->config;
	struct s3_signature signature;
	struct s3_pair *pairs = s->host->alloc(s->host, (config->header_count + 1) * sizeof(*pairs),
					       sizeof(void *));
	struct s3_sign_request request = {
		.method = s3_methods[t->x.method],
		.path = t->path,
		.query = t->query,
		.headers = pairs,
		.host = config->authority,
		.payload_sha256 = t->sha256,
		.now = (time_t)kvt__s3_server_time(s->backend),
	};
	char region[sizeof(s->backend->region)];
	int error;

	if (pairs == NULL)
		return KVT_ENOMEM;
	pthread_mutex_lock(&s->backend->lock);
	memcpy(region, s->backend->region, sizeof(region));
	pthread_mutex_unlock(&s->backend->lock);
	request.region = region;
	request.header_count = s3_signed_headers(t, pairs);
	error = kvt__s3_sign(s->signer, t->credentials, &request, &signature);
	if (error == 0) {
		s3_line(lines, "x-amz-content-sha256", t->sha256);
		s3_line(lines, "x-amz-date", signature.date);
		if (t->credentials->session_token)
			s3_line(lines, "x-amz-security-token", t->credentials->session_token);
		s3_line(lines, "Authorization", signature.authorization);
	}
	s->host->free(s->host, pairs);
	return error;
}

/* What is hashed for x-amz-content-sha256. */
static int s3_hash_payload(struct s3_transfer *t)
{
	struct s3_signer *signer = t->session->signer;
	int error = 0;

	if (t->x.source == S3_SEND_NOTHING) {
		memcpy(t->sha256, S3_EMPTY_SHA256, sizeof(S3_EMPTY_SHA256));
	} else if (!t->session->backend->config.signed_payload) {
		memcpy(t->sha256, S3_UNSIGNED_PAYLOAD, sizeof(S3_UNSIGNED_PAYLOAD));
	} else if (t->x.source == S3_SEND_IOV) {
		error = kvt__s3_body_sha256(t);
	} else {
		error = kvt__s3_sha256_begin(signer);
		if (error == 0)
			error = kvt__s3_sha256_add(signer, t->x.text, t->x.text_bytes);
		if (error == 0)
			error = kvt__s3_sha256_end(signer, t->sha256);
	}
	return error;
}

static void s3_range_line(struct s3_lines *lines)
{
	struct s3_transfer *t = lines->t;
	unsigned long long length = t->io->length, from = (unsigned long long)t->from;

	if (t->from < 0)
		(void)snprintf(t->range, sizeof(t->range), "bytes=-%llu", length);
	else
		(void)snprintf(t->range, sizeof(t->range), "bytes=%llu-%llu", from,
			       from + length - 1);
	s3_line(lines, "Range", t->range);
}

int kvt__s3_request_lines(struct s3_transfer *t)
{
	struct s3_session *s = t->session;
	const struct s3_config *config = &s->backend->config;
	size_t bytes = 4096 + strlen(config->authority);
	struct s3_lines lines = {.t = t};
	int error;

	if (t->credentials->session_token)
		bytes += strlen(t->credentials->session_token);
	for (size_t i = 0; i < config->header_count; i++)
		bytes += strlen(config->headers[i].name) + strlen(config->headers[i].value) + 3;
	if (s3_room(t, &t->lines, &t->lines_room, bytes) == NULL)
		return KVT_ENOMEM;
	lines.to = t->lines;
	lines.end = t->lines + t->lines_room;
	s3_line(&lines, "Host", config->authority);
	if (t->x.checksum) {
		s3_checksum_text(t->io->crc32c, t->checksum);
		s3_line(&lines, "x-amz-checksum-crc32c", t->checksum);
	}
	for (size_t i = 0; i < config->header_count; i++)
		if (s3_header_goes_along(&config->headers[i], &t->x))
			s3_line(&lines, config->headers[i].name, config->headers[i].value);
	if (t->x.is_ranged)
		s3_range_line(&lines);
	if (t->x.if_match)
		s3_line(&lines, "If-Match", t->x.if_match);
	if (t->x.if_none_match)
		s3_line(&lines, "If-None-Match", "*");
	s3_line(&lines, "Expect", "");
	if (t->credentials->anonymous)
		return 0;
	error = s3_hash_payload(t);
	return error ? error : s3_sign(&lines);
}

CURLcode kvt__s3_request_set(struct s3_transfer *t, const char *url)
{
	const struct s3_config *config = &t->session->backend->config;
	uint64_t body = t->x.source == S3_SEND_TEXT  ? t->x.text_bytes
			: t->x.source == S3_SEND_IOV ? t->io->length
						     : 0;
	int64_t left_ms = (t->deadline_ns - t->moved_ns) / S3_NS_PER_MS + 1;
	bool is_data = t->x.source == S3_SEND_IOV || t->x.sink == S3_TO_IOV;
	bool sends = t->x.method == S3_PUT || t->x.method == S3_POST;
	CURL *e = t->easy;
	CURLcode bad = CURLE_OK;

	S3_SET(CURLOPT_URL, url);
	S3_SET(CURLOPT_HTTPHEADER, t->fields);
	S3_SET(CURLOPT_CUSTOMREQUEST, NULL);
	S3_SET(CURLOPT_NOBODY, 0L);
	S3_SET(CURLOPT_UPLOAD, 0L);
	S3_SET(CURLOPT_HTTPGET, 1L);
	if (t->x.method == S3_HEAD)
		S3_SET(CURLOPT_NOBODY, 1L);
	if (sends) {
		S3_SET(CURLOPT_UPLOAD, 1L);
		S3_SET(CURLOPT_INFILESIZE_LARGE, (curl_off_t)body);
		S3_SET(CURLOPT_UPLOAD_BUFFERSIZE,
		       body <= S3_SMALL_BODY_BYTES ? S3_SMALL_UPLOAD_BYTES : S3_BUFFER_BYTES);
	}
	if (t->x.method == S3_POST || t->x.method == S3_DELETE)
		S3_SET(CURLOPT_CUSTOMREQUEST, s3_methods[t->x.method]);
	S3_SET(CURLOPT_FRESH_CONNECT, t->tried_connection ? 1L : 0L);
	S3_SET(CURLOPT_TIMEOUT_MS, (long)(left_ms < S3_MOST_MS ? left_ms : S3_MOST_MS));
	S3_SET(CURLOPT_LOW_SPEED_LIMIT, is_data ? (long)config->low_speed_bytes : 0L);
	S3_SET(CURLOPT_LOW_SPEED_TIME, is_data ? (long)config->low_speed_seconds : 0L);
	return bad;
}
