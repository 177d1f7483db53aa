/* SPDX-License-Identifier: Apache-2.0 */
/* One request of the S3 server, from its first line to its end, on its connection's thread. */
#include "s3_server_internal.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- What is asked ---- */

static enum MHD_Result add_header(void *context, enum MHD_ValueKind kind, const char *name,
				  const char *value)
{
	struct s3s_reply *lines = context; /* its text is what is used */
	size_t at = lines->text_bytes, bytes = value ? strlen(value) : 0;

	(void)kind;
	while (bytes && (value[bytes - 1] == ' ' || value[bytes - 1] == '\t'))
		bytes--;
	if (!s3s_append(&lines->text, &lines->text_bytes, &lines->text_room, "%s: %.*s\n", name,
			(int)bytes, value ? value : ""))
		return MHD_NO;
	for (; lines->text[at] != ':'; at++)
		lines->text[at] = (char)tolower((unsigned char)lines->text[at]);
	return MHD_YES;
}

static bool read_headers(struct s3s_request *r)
{
	struct s3s_reply lines = {.text_room = 2048};

	lines.text = malloc(lines.text_room);
	if (!lines.text)
		return false;
	lines.text[0] = 0;
	(void)MHD_get_connection_values(r->connection, MHD_HEADER_KIND, add_header, &lines);
	r->headers = lines.text;
	return true;
}

static bool read_query(struct s3s_request *r, const char *query)
{
	while (*query && r->query_count < S3S_MOST_QUERY) {
		size_t bytes = strcspn(query, "&"), name_bytes = strcspn(query, "=&");
		struct s3s_pair *pair = &r->query[r->query_count];

		if (bytes) {
			pair->name = s3s_decode(query, name_bytes, true);
			pair->value = name_bytes < bytes ? s3s_decode(query + name_bytes + 1,
								      bytes - name_bytes - 1, true)
							 : s3s_copy("");
			r->query_count++;
			if (!pair->name || !pair->value)
				return false;
		}
		query += bytes;
		query += *query == '&';
	}
	return true;
}

/* The bucket's name in the Host header, allocated; NULL when there is none in it. */
static char *bucket_of_host(struct s3s_request *r)
{
	const char *host = s3s_field(r, "Host"), *domain = r->server->options.domain;
	size_t bytes, domain_bytes = domain ? strlen(domain) : 0;

	if (!domain || !host || *host == '[')
		return NULL;
	bytes = strcspn(host, ":");
	if (strspn(host, "0123456789.") >= bytes)
		return NULL; /* an address */
	if (bytes == domain_bytes && strncasecmp(host, domain, bytes) == 0)
		return NULL;
	if (bytes > domain_bytes + 1 && host[bytes - domain_bytes - 1] == '.' &&
	    strncasecmp(host + bytes - domain_bytes, domain, domain_bytes) == 0)
		bytes -= domain_bytes + 1;
	return strndup(host, bytes);
}

static bool read_path(struct s3s_request *r, bool *is_virtual)
{
	const char *path = r->path + (r->path[0] == '/');
	size_t bytes = strcspn(path, "/");

	r->bucket = bucket_of_host(r);
	*is_virtual = r->bucket != NULL;
	if (!*is_virtual) {
		r->bucket = s3s_decode(path, bytes, false);
		path += bytes;
		path += *path == '/';
	}
	r->key = s3s_decode(path, strlen(path), false);
	return r->bucket && r->key;
}

static unsigned operation(struct s3s_request *r)
{
	const char *m = r->method;
	bool upload = s3s_query(r, "uploadId") != NULL;

	if (!r->bucket[0])
		return S3_OP_OTHER;
	if (!r->key[0]) {
		if (strcmp(m, "GET") != 0 || s3s_query(r, "location"))
			return S3_OP_OTHER;
		return s3s_query(r, "uploads") ? S3_OP_UPLOADS : S3_OP_LIST;
	}
	if (strcmp(m, "PUT") == 0)
		return upload && s3s_query(r, "partNumber") ? S3_OP_PART : S3_OP_PUT;
	if (strcmp(m, "GET") == 0)
		return upload ? S3_OP_OTHER : S3_OP_GET;
	if (strcmp(m, "HEAD") == 0)
		return S3_OP_HEAD;
	if (strcmp(m, "DELETE") == 0)
		return upload ? S3_OP_ABORT : S3_OP_DELETE;
	if (strcmp(m, "POST") == 0 && s3s_query(r, "uploads"))
		return S3_OP_CREATE;
	return strcmp(m, "POST") == 0 && upload ? S3_OP_COMPLETE : S3_OP_OTHER;
}

/* ---- Before the body ---- */

static void check_addressing(struct s3s_request *r, bool is_virtual)
{
	unsigned traits = atomic_load(&r->server->traits);

	if (is_virtual && traits & S3_SERVER_PATH_ONLY)
		s3s_error(r, 400, "InvalidRequest", "this server takes buckets in the path only");
	else if (!is_virtual && r->bucket[0] && traits & S3_SERVER_VIRTUAL_ONLY)
		s3s_error(r, 400, "InvalidRequest", "this server takes buckets in the host only");
}

/* Room for the body, from its announced length. */
static bool prepare_body(struct s3s_request *r)
{
	const char *length = s3s_field(r, "Content-Length");
	bool is_data = r->op == S3_OP_PUT || r->op == S3_OP_PART;

	r->length = length ? strtoull(length, NULL, 10) : 0;
	if (is_data && !length && !r->failed)
		s3s_error(r, 411, "MissingContentLength",
			  "You must provide the Content-Length HTTP header.");
	if (is_data && r->length > UINT64_C(5) << 30 && !r->failed)
		s3s_error(r, 400, "EntityTooLarge",
			  "Your proposed upload exceeds the maximum allowed size");
	if (is_data && !r->failed) {
		r->buffer = s3s_buffer_create(r->length);
		return r->buffer != NULL;
	}
	if (!is_data && r->length && r->length <= S3S_TEXT_BYTES) {
		r->text = malloc((size_t)r->length + 1);
		return r->text != NULL;
	}
	return true;
}

static bool prepare_hash(struct s3s_request *r)
{
	if (r->failed || !r->sha256[0])
		return true;
	r->sha = EVP_MD_CTX_new();
	return r->sha && EVP_DigestInit_ex(r->sha, EVP_sha256(), NULL);
}

/* As soon as upload_at bytes are there; false ends the connection. */
static bool cut_upload(struct s3s_request *r)
{
	if (!r->has_rule || !r->rule.upload_cut || r->upload_cut_done ||
	    r->received < r->rule.upload_at)
		return true;
	r->upload_cut_done = true;
	return s3s_cut(r, r->rule.upload_cut);
}

static enum MHD_Result begin(struct s3s_request *r, const char *method)
{
	const char *expect = s3s_field(r, "Expect"), *query = strchr(r->uri, '?');
	bool is_virtual = false;

	r->started = true;
	snprintf(r->method, sizeof(r->method), "%s", method);
	r->is_head = strcmp(method, "HEAD") == 0;
	r->path = strndup(r->uri, query ? (size_t)(query - r->uri) : strlen(r->uri));
	if (!r->path || !read_headers(r) || !read_query(r, query ? query + 1 : "") ||
	    !read_path(r, &is_virtual))
		return MHD_NO;
	r->is_admin = strcmp(r->bucket, ".server") == 0;
	if (r->is_admin)
		return prepare_body(r) ? MHD_YES : MHD_NO;
	r->op = operation(r);
	s3s_seen_begin(r);
	s3s_rule_take(r);
	if (s3s_authorize(r))
		check_addressing(r, is_virtual);
	if (!prepare_body(r) || !prepare_hash(r) || !cut_upload(r))
		return MHD_NO;
	if (r->has_rule && r->rule.early)
		return s3s_send(r);
	/* Whoever asks before sending is told before sending. */
	return r->failed && expect ? s3s_send(r) : MHD_YES;
}

/* ---- The body ---- */

static enum MHD_Result take(struct s3s_request *r, const char *data, size_t bytes)
{
	if (r->buffer && r->received + bytes <= r->buffer->bytes)
		memcpy(r->buffer->data + r->received, data, bytes);
	else if (r->text && r->received + bytes <= r->length)
		memcpy(r->text + r->received, data, bytes);
	if (r->sha)
		EVP_DigestUpdate(r->sha, data, bytes);
	r->received += bytes;
	return cut_upload(r) ? MHD_YES : MHD_NO;
}

/* ---- And then ---- */

static bool payload_fits(struct s3s_request *r)
{
	uint8_t hash[32];
	char hex[65];

	if (!r->sha)
		return true;
	EVP_DigestFinal_ex(r->sha, hash, NULL);
	s3s_hex(hash, sizeof(hash), hex);
	if (strcmp(hex, r->sha256) == 0)
		return true;
	s3s_error(r, 400, "XAmzContentSHA256Mismatch",
		  "The provided 'x-amz-content-sha256' header does not match what was computed.");
	return false;
}

static void do_it(struct s3s_request *r)
{
	switch (r->op) {
	case S3_OP_PUT:
		s3s_put(r);
		break;
	case S3_OP_GET:
	case S3_OP_HEAD:
		s3s_get(r);
		break;
	case S3_OP_DELETE:
		s3s_delete(r);
		break;
	case S3_OP_LIST:
		s3s_list(r);
		break;
	case S3_OP_CREATE:
		s3s_create(r);
		break;
	case S3_OP_PART:
		s3s_part(r);
		break;
	case S3_OP_COMPLETE:
		s3s_complete(r);
		break;
	case S3_OP_ABORT:
		s3s_abort(r);
		break;
	case S3_OP_UPLOADS:
		s3s_uploads(r);
		break;
	default:
		s3s_other(r);
		break;
	}
}

static enum MHD_Result end(struct s3s_request *r)
{
	const struct s3_server_rule *rule = &r->rule;

	if (r->text) {
		r->text_bytes = (size_t)r->received;
		r->text[r->text_bytes] = 0;
	}
	if (r->is_admin) {
		s3s_admin(r);
		return s3s_send(r);
	}
	s3s_seen_body(r);
	if (r->has_rule) {
		if (rule->hang && !s3s_cut(r, S3_CUT_STALL))
			return MHD_NO;
		if (rule->hold && !s3s_hold(r))
			return MHD_NO;
		if (rule->delay_ms && !s3s_nap(r, rule->delay_ms))
			return MHD_NO;
	}
	if (!r->failed && payload_fits(r) && (!r->has_rule || !rule->status || rule->done_first)) {
		if (r->op != S3_OP_OTHER && !s3s_bucket_is(r->server, r->bucket))
			s3s_error(r, 404, "NoSuchBucket", "The specified bucket does not exist");
		else
			do_it(r);
	}
	return s3s_send(r);
}

void *s3s_request_begin(void *server, const char *uri, struct MHD_Connection *connection)
{
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
	struct s3s_request *r = calloc(1, sizeof(*r));
	struct s3s_connection *on = info ? info->socket_context : NULL;

	if (!r || !on) {
		free(r);
		return NULL;
	}
	r->server = server;
	r->connection = connection;
	r->on = on;
	r->uri = s3s_copy(uri);
	if (!r->uri) {
		free(r);
		return NULL;
	}
	pthread_mutex_lock(&r->server->lock);
	on->busy = true;
	on->answered = false;
	on->requests++;
	on->request = r;
	pthread_mutex_unlock(&r->server->lock);
	return r;
}

enum MHD_Result s3s_request_go_on(void *server, struct MHD_Connection *connection, const char *url,
				  const char *method, const char *version, const char *data,
				  size_t *bytes, void **request)
{
	struct s3s_request *r = *request;
	size_t count = *bytes;

	(void)server;
	(void)connection;
	(void)url;
	(void)version;
	if (!r)
		return MHD_NO;
	if (!r->started)
		return begin(r, method);
	if (!count)
		return end(r);
	*bytes = 0;
	return take(r, data, count);
}

void s3s_request_free(struct s3s_request *r)
{
	if (!r)
		return;
	s3s_reply_fini(&r->reply);
	s3s_buffer_release(r->buffer);
	EVP_MD_CTX_free(r->sha);
	for (unsigned i = 0; i < r->query_count; i++) {
		free(r->query[i].name);
		free(r->query[i].value);
	}
	free(r->text);
	free(r->headers);
	free(r->bucket);
	free(r->key);
	free(r->path);
	free(r->uri);
	free(r);
}

void s3s_request_ended(void *context, struct MHD_Connection *connection, void **request,
		       enum MHD_RequestTerminationCode code)
{
	struct s3s_request *r = *request;
	struct s3_server *server = context;

	(void)connection;
	(void)code;
	*request = NULL;
	if (!r)
		return;
	pthread_mutex_lock(&server->lock);
	r->on->busy = false;
	r->on->answered = false;
	r->on->request = NULL;
	if (r->number)
		server->counts.at_once--;
	pthread_cond_broadcast(&server->changed);
	pthread_mutex_unlock(&server->lock);
	s3s_request_free(r);
}
