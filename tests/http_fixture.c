/* SPDX-License-Identifier: Apache-2.0 */
/* A thread for each connection; one lock guards the table and what was seen. */
#include "http_fixture.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include <microhttpd.h>

struct entry {
	struct http_answer answer; /* strings owned */
	unsigned count;
};

struct http_fixture {
	struct MHD_Daemon *daemon;
	char url[64];
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct entry entries[HTTP_FIXTURE_ANSWERS];
	unsigned entry_count, held;
	bool released;
	char posted[8192];
};

struct upload {
	size_t bytes;
	char text[8192];
};

static bool has_header(struct MHD_Connection *connection, const char *line)
{
	char name[128];
	const char *colon = strchr(line, ':'), *value;

	(void)snprintf(name, sizeof(name), "%.*s", (int)(colon - line), line);
	value = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, name);
	return value && strcmp(value, colon + 2) == 0;
}

static struct entry *find_locked(struct http_fixture *f, const char *method, const char *path)
{
	for (unsigned i = 0; i < f->entry_count; i++)
		if (strcmp(f->entries[i].answer.path, path) == 0 &&
		    (!method || strcmp(f->entries[i].answer.method, method) == 0))
			return &f->entries[i];
	return NULL;
}

static enum MHD_Result answer(void *context, struct MHD_Connection *connection, const char *url,
			      const char *method, const char *version, const char *data,
			      size_t *bytes, void **statep)
{
	struct http_fixture *f = context;
	struct upload *upload = *statep;
	struct MHD_Response *response;
	enum MHD_Result result;
	struct entry *entry;
	unsigned status = 404;
	const char *body = "", *location = NULL;

	(void)version;
	if (!upload) {
		*statep = calloc(1, sizeof(*upload));
		return *statep ? MHD_YES : MHD_NO;
	}
	if (*bytes) {
		if (*bytes < sizeof(upload->text) - upload->bytes) {
			memcpy(upload->text + upload->bytes, data, *bytes);
			upload->bytes += *bytes;
		}
		*bytes = 0;
		return MHD_YES;
	}
	pthread_mutex_lock(&f->lock);
	if (strcmp(method, "POST") == 0)
		memcpy(f->posted, upload->text, sizeof(f->posted));
	entry = find_locked(f, method, url);
	if (entry) {
		entry->count++;
		f->held += entry->answer.holds;
		(void)pthread_cond_broadcast(&f->changed);
		while (entry->answer.holds && !f->released)
			(void)pthread_cond_wait(&f->changed, &f->lock);
		status = entry->answer.status;
		body = entry->answer.body;
		location = entry->answer.location;
		if (entry->answer.needs && !has_header(connection, entry->answer.needs))
			status = 401;
	}
	response =
		MHD_create_response_from_buffer(strlen(body), (void *)body, MHD_RESPMEM_MUST_COPY);
	if (response && location)
		(void)MHD_add_response_header(response, "Location", location);
	pthread_mutex_unlock(&f->lock);
	result = response ? MHD_queue_response(connection, status, response) : MHD_NO;
	if (response)
		MHD_destroy_response(response);
	return result;
}

static void completed(void *context, struct MHD_Connection *connection, void **statep,
		      enum MHD_RequestTerminationCode code)
{
	(void)context, (void)connection, (void)code;
	free(*statep);
}

struct http_fixture *http_fixture_start(void)
{
	struct http_fixture *f = calloc(1, sizeof(*f));
	const union MHD_DaemonInfo *info;

	if (!f)
		return NULL;
	(void)pthread_mutex_init(&f->lock, NULL);
	(void)pthread_cond_init(&f->changed, NULL);
	f->daemon = MHD_start_daemon(
		MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD, 0, NULL, NULL,
		answer, f, MHD_OPTION_NOTIFY_COMPLETED, completed, NULL, MHD_OPTION_END);
	info = f->daemon ? MHD_get_daemon_info(f->daemon, MHD_DAEMON_INFO_BIND_PORT) : NULL;
	if (!info) {
		http_fixture_stop(f);
		return NULL;
	}
	(void)snprintf(f->url, sizeof(f->url), "http://127.0.0.1:%u", (unsigned)info->port);
	return f;
}

static void entry_free(struct entry *entry)
{
	free((void *)entry->answer.method);
	free((void *)entry->answer.path);
	free((void *)entry->answer.needs);
	free((void *)entry->answer.body);
	free((void *)entry->answer.location);
}

void http_fixture_stop(struct http_fixture *fixture)
{
	if (!fixture)
		return;
	http_fixture_release(fixture);
	if (fixture->daemon)
		MHD_stop_daemon(fixture->daemon);
	for (unsigned i = 0; i < fixture->entry_count; i++)
		entry_free(&fixture->entries[i]);
	(void)pthread_cond_destroy(&fixture->changed);
	(void)pthread_mutex_destroy(&fixture->lock);
	free(fixture);
}

const char *http_fixture_url(const struct http_fixture *fixture)
{
	return fixture->url;
}

static char *copy(const char *text)
{
	return text ? strdup(text) : NULL;
}

void http_fixture_answer(struct http_fixture *fixture, const struct http_answer *given)
{
	struct entry *entry;

	pthread_mutex_lock(&fixture->lock);
	entry = find_locked(fixture, given->method, given->path);
	if (entry)
		entry_free(entry);
	else
		entry = &fixture->entries[fixture->entry_count++];
	entry->answer = *given;
	entry->answer.method = copy(given->method);
	entry->answer.path = copy(given->path);
	entry->answer.needs = copy(given->needs);
	entry->answer.body = copy(given->body ? given->body : "");
	entry->answer.location = copy(given->location);
	pthread_mutex_unlock(&fixture->lock);
}

unsigned http_fixture_count(struct http_fixture *fixture, const char *path)
{
	unsigned count = 0;

	pthread_mutex_lock(&fixture->lock);
	for (unsigned i = 0; i < fixture->entry_count; i++)
		if (strcmp(fixture->entries[i].answer.path, path) == 0)
			count += fixture->entries[i].count;
	pthread_mutex_unlock(&fixture->lock);
	return count;
}

void http_fixture_posted(struct http_fixture *fixture, char *text, unsigned bytes)
{
	pthread_mutex_lock(&fixture->lock);
	(void)snprintf(text, bytes, "%s", fixture->posted);
	pthread_mutex_unlock(&fixture->lock);
}

bool http_fixture_await_held(struct http_fixture *fixture)
{
	struct timespec until;
	bool held;

	(void)clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += 90;
	pthread_mutex_lock(&fixture->lock);
	while (fixture->held == 0 &&
	       pthread_cond_timedwait(&fixture->changed, &fixture->lock, &until) == 0)
		;
	held = fixture->held > 0;
	pthread_mutex_unlock(&fixture->lock);
	return held;
}

void http_fixture_release(struct http_fixture *fixture)
{
	pthread_mutex_lock(&fixture->lock);
	fixture->released = true;
	(void)pthread_cond_broadcast(&fixture->changed);
	pthread_mutex_unlock(&fixture->lock);
}
