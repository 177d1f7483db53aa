/* SPDX-License-Identifier: Apache-2.0 */
/* What the S3 server has seen: counts, and the last requests as they came. */
#include "s3_server_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void s3_server_request_free(struct s3_server_request *request)
{
	free(request->uri);
	free(request->key);
	free(request->headers);
	free(request->body);
	memset(request, 0, sizeof(*request));
}

static unsigned bit_of(unsigned op)
{
	unsigned bit = 0;

	while (bit + 1 < S3_OP_COUNT && !(op >> bit & 1))
		bit++;
	return bit;
}

void s3s_seen_begin(struct s3s_request *r)
{
	struct s3_server *server = r->server;
	struct s3_server_counts *counts = &server->counts;
	struct s3_server_request *slot;

	pthread_mutex_lock(&server->lock);
	counts->requests++;
	r->number = ++server->numbers;
	counts->by_op[bit_of(r->op)]++;
	if (++counts->at_once > counts->most_at_once)
		counts->most_at_once = counts->at_once;
	snprintf(r->id, sizeof(r->id), "REQ%013llX", (unsigned long long)++server->ids);
	if (server->seen_room) {
		slot = &server->seen[r->number % server->seen_room];
		s3_server_request_free(slot);
		slot->op = r->op;
		slot->number = r->number;
		slot->connection = r->on->number;
		memcpy(slot->method, r->method, sizeof(slot->method));
		memcpy(slot->id, r->id, sizeof(slot->id));
		slot->uri = s3s_copy(r->uri);
		slot->key = s3s_copy(r->key);
		slot->headers = s3s_copy(r->headers);
	}
	pthread_mutex_unlock(&server->lock);
}

static struct s3_server_request *slot_locked(struct s3s_request *r)
{
	struct s3_server *server = r->server;
	struct s3_server_request *slot;

	if (!server->seen_room)
		return NULL;
	slot = &server->seen[r->number % server->seen_room];
	return slot->number == r->number ? slot : NULL;
}

void s3s_seen_body(struct s3s_request *r)
{
	struct s3_server *server = r->server;
	struct s3_server_request *slot;

	pthread_mutex_lock(&server->lock);
	server->counts.bytes_in += r->received;
	slot = slot_locked(r);
	if (slot) {
		slot->body_bytes = r->received;
		if (r->text && !slot->body)
			slot->body = s3s_copy(r->text);
	}
	pthread_mutex_unlock(&server->lock);
}

void s3s_seen_answer(struct s3s_request *r, int status)
{
	struct s3_server *server = r->server;
	struct s3_server_request *slot;

	pthread_mutex_lock(&server->lock);
	if (!r->is_head)
		server->counts.bytes_out += s3s_body_bytes(&r->reply);
	slot = slot_locked(r);
	if (slot)
		slot->status = status;
	r->on->answered = true;
	pthread_mutex_unlock(&server->lock);
}

void s3s_seen_fini(struct s3_server *server)
{
	for (size_t i = 0; i < server->seen_room; i++)
		s3_server_request_free(&server->seen[i]);
	free(server->seen);
}

void s3_server_count(struct s3_server *server, struct s3_server_counts *counts)
{
	pthread_mutex_lock(&server->lock);
	*counts = server->counts;
	pthread_mutex_unlock(&server->lock);
}

uint64_t s3_server_seen(struct s3_server *server, unsigned ops)
{
	uint64_t count = 0;

	pthread_mutex_lock(&server->lock);
	for (unsigned i = 0; i < S3_OP_COUNT; i++)
		if (ops >> i & 1)
			count += server->counts.by_op[i];
	pthread_mutex_unlock(&server->lock);
	return count;
}

void s3_server_forget(struct s3_server *server)
{
	uint64_t at_once;

	pthread_mutex_lock(&server->lock);
	at_once = server->counts.at_once;
	memset(&server->counts, 0, sizeof(server->counts));
	server->counts.at_once = server->counts.most_at_once = at_once;
	for (size_t i = 0; i < server->seen_room; i++)
		s3_server_request_free(&server->seen[i]);
	pthread_mutex_unlock(&server->lock);
}

static bool copy_request(struct s3_server_request *to, const struct s3_server_request *from)
{
	*to = *from;
	to->uri = s3s_copy(from->uri);
	to->key = s3s_copy(from->key);
	to->headers = s3s_copy(from->headers);
	to->body = s3s_copy(from->body);
	return to->uri && to->key && to->headers && (to->body || !from->body);
}

bool s3_server_request(struct s3_server *server, unsigned ops, unsigned back,
		       struct s3_server_request *request)
{
	bool found = false;

	memset(request, 0, sizeof(*request));
	pthread_mutex_lock(&server->lock);
	for (uint64_t n = server->numbers, left = server->seen_room; n && left && !found;
	     n--, left--) {
		const struct s3_server_request *slot = &server->seen[n % server->seen_room];

		if (slot->number != n || (ops && !(slot->op & ops)))
			continue;
		if (back-- == 0)
			found = copy_request(request, slot);
	}
	pthread_mutex_unlock(&server->lock);
	return found;
}

static const char *next_header(const char *from, const char *name)
{
	size_t bytes = strlen(name);

	for (const char *line = from; line && *line;
	     line = strchr(line, '\n'), line += line != NULL)
		if (strncmp(line, name, bytes) == 0 && strncmp(line + bytes, ": ", 2) == 0)
			return line + bytes + 2;
	return NULL;
}

const char *s3_server_header(const struct s3_server_request *request, const char *name, char *value,
			     size_t bytes)
{
	const char *at = next_header(request->headers, name);

	if (!at)
		return NULL;
	snprintf(value, bytes, "%.*s", (int)strcspn(at, "\n"), at);
	return value;
}

unsigned s3_server_header_count(const struct s3_server_request *request, const char *name)
{
	unsigned count = 0;

	for (const char *at = request->headers; (at = next_header(at, name)) != NULL;) {
		count++;
		at = strchr(at, '\n');
		if (!at)
			break;
		at++;
	}
	return count;
}
