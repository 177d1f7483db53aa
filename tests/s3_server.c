/* SPDX-License-Identifier: Apache-2.0 */
/* The S3 server: start, stop, and its connections. Each has a thread of its own, so that whatever
 * waits may simply wait. */
#include "s3_server_internal.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define POOL_BYTES (256u * 1024)

/* ---- Connections ---- */

static void connection_begin(struct s3_server *server, struct MHD_Connection *connection,
			     void **contextp)
{
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
	struct s3s_connection *c = calloc(1, sizeof(*c));

	*contextp = c;
	if (!c)
		return;
	c->fd = info ? info->connect_fd : -1;
	pthread_mutex_lock(&server->lock);
	c->number = ++server->connections_ever;
	server->counts.connections++;
	c->next = server->connections;
	if (c->next)
		c->next->prev = c;
	server->connections = c;
	pthread_mutex_unlock(&server->lock);
}

static void connection_end(struct s3_server *server, struct s3s_connection *c)
{
	struct s3s_request *left;

	if (!c)
		return;
	pthread_mutex_lock(&server->lock);
	if (c->prev)
		c->prev->next = c->next;
	else
		server->connections = c->next;
	if (c->next)
		c->next->prev = c->prev;
	left = c->request;
	if (left && left->number)
		server->counts.at_once--;
	pthread_cond_broadcast(&server->changed);
	pthread_mutex_unlock(&server->lock);
	s3s_request_free(left);
	free(c);
}

static void connection_changed(void *server, struct MHD_Connection *connection, void **contextp,
			       enum MHD_ConnectionNotificationCode code)
{
	if (code == MHD_CONNECTION_NOTIFY_STARTED) {
		connection_begin(server, connection, contextp);
	} else {
		connection_end(server, *contextp);
		*contextp = NULL;
	}
}

static void be_quiet(void *context, const char *format, va_list ap)
{
	(void)context;
	(void)format;
	(void)ap;
}

/* ---- Start and stop ---- */

static const char *open_daemon(struct s3_server *server, unsigned port)
{
	const struct s3_server_options *o = &server->options;
	unsigned flags = MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_THREAD_PER_CONNECTION |
			 MHD_USE_POLL | MHD_USE_SUPPRESS_DATE_NO_CLOCK | MHD_USE_ERROR_LOG;
	struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
	struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
	bool is_v6 = strchr(o->address, ':') != NULL;
	struct MHD_OptionItem tls[] = {
		{MHD_OPTION_HTTPS_MEM_CERT, 0, (void *)(uintptr_t)o->certificate},
		{MHD_OPTION_HTTPS_MEM_KEY, 0, (void *)(uintptr_t)o->certificate_key},
		{MHD_OPTION_END, 0, NULL},
	};
	const union MHD_DaemonInfo *info;

	if (inet_pton(is_v6 ? AF_INET6 : AF_INET, o->address,
		      is_v6 ? (void *)&v6.sin6_addr : (void *)&v4.sin_addr) != 1)
		return "the address is none";
	if (is_v6)
		flags |= MHD_USE_IPv6;
	if (o->certificate)
		flags |= MHD_USE_TLS;
	server->daemon = MHD_start_daemon(
		flags, (uint16_t)port, NULL, NULL, s3s_request_go_on, server,
		MHD_OPTION_EXTERNAL_LOGGER, be_quiet, NULL, MHD_OPTION_SOCK_ADDR,
		is_v6 ? (struct sockaddr *)&v6 : (struct sockaddr *)&v4,
		MHD_OPTION_NOTIFY_CONNECTION, connection_changed, server,
		MHD_OPTION_NOTIFY_COMPLETED, s3s_request_ended, server, MHD_OPTION_URI_LOG_CALLBACK,
		s3s_request_begin, server, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)POOL_BYTES,
		MHD_OPTION_LISTENING_ADDRESS_REUSE, 1u, MHD_OPTION_LISTEN_BACKLOG_SIZE, 511u,
		MHD_OPTION_THREAD_STACK_SIZE, (size_t)(256u * 1024), MHD_OPTION_ARRAY,
		o->certificate ? tls : &tls[2], MHD_OPTION_END);
	if (!server->daemon)
		return "libmicrohttpd did not start: port, certificate or key are not usable";
	info = MHD_get_daemon_info(server->daemon, MHD_DAEMON_INFO_BIND_PORT);
	server->port = info ? info->port : port;
	snprintf(server->url, sizeof(server->url), is_v6 ? "%s://[%s]:%u" : "%s://%s:%u",
		 o->certificate ? "https" : "http", o->address, server->port);
	return NULL;
}

static bool copy_options(struct s3_server_options *to, const struct s3_server_options *from)
{
	*to = *from;
	to->address = s3s_copy(from->address ? from->address : "127.0.0.1");
	to->bucket = s3s_copy(from->bucket ? from->bucket : "bucket");
	to->domain = s3s_copy(from->domain);
	to->region = s3s_copy(from->region);
	to->access_key = s3s_copy(from->access_key);
	to->secret_key = s3s_copy(from->secret_key);
	to->session_token = s3s_copy(from->session_token);
	to->certificate = s3s_copy(from->certificate);
	to->certificate_key = s3s_copy(from->certificate_key);
	if (!to->min_part_bytes)
		to->min_part_bytes = UINT64_C(5) << 20;
	return to->address && to->bucket;
}

static void free_text(const char *text)
{
	free((void *)(uintptr_t)text);
}

static void server_free(struct s3_server *server)
{
	struct s3_server_options *o = &server->options;

	s3s_rules_fini(server);
	s3s_store_fini(server);
	s3s_seen_fini(server);
	pthread_mutex_destroy(&server->lock);
	pthread_cond_destroy(&server->changed);
	free_text(o->address);
	free_text(o->bucket);
	free_text(o->domain);
	free_text(o->region);
	free_text(o->access_key);
	free_text(o->secret_key);
	free_text(o->session_token);
	free_text(o->certificate);
	free_text(o->certificate_key);
	free(server);
}

struct s3_server *s3_server_start(const struct s3_server_options *options, const char **whyp)
{
	struct s3_server *server = calloc(1, sizeof(*server));
	const char *wrong = "out of memory";

	if (server) {
		pthread_mutex_init(&server->lock, NULL);
		pthread_cond_init(&server->changed, NULL);
		server->rules_end = &server->rules;
		atomic_init(&server->traits, options->traits);
		if (!options->forgetful)
			server->seen_room = options->keep_requests ? options->keep_requests : 1024;
		server->seen = calloc(server->seen_room + 1, sizeof(server->seen[0]));
		if (server->seen && copy_options(&server->options, options) &&
		    s3_server_add_bucket(server, server->options.bucket))
			wrong = open_daemon(server, options->port);
	}
	if (whyp)
		*whyp = wrong;
	if (wrong && server) {
		server_free(server);
		server = NULL;
	}
	return server;
}

static void set_closing(struct s3_server *server, bool closing)
{
	pthread_mutex_lock(&server->lock);
	server->closing = closing;
	pthread_cond_broadcast(&server->changed);
	pthread_mutex_unlock(&server->lock);
}

void s3_server_down(struct s3_server *server)
{
	set_closing(server, true);
	if (server->daemon)
		MHD_stop_daemon(server->daemon);
	server->daemon = NULL;
	set_closing(server, false);
}

bool s3_server_up(struct s3_server *server)
{
	return server->daemon || !open_daemon(server, server->port);
}

void s3_server_stop(struct s3_server *server)
{
	if (!server)
		return;
	s3_server_down(server);
	server_free(server);
}

/* ---- What can be changed ---- */

unsigned s3_server_port(const struct s3_server *server)
{
	return server->port;
}

const char *s3_server_url(const struct s3_server *server)
{
	return server->url;
}

void s3_server_set_traits(struct s3_server *server, unsigned traits)
{
	atomic_store(&server->traits, traits);
}

static void set_text_locked(const char **text, const char *to)
{
	free_text(*text);
	*text = s3s_copy(to);
}

void s3_server_set_region(struct s3_server *server, const char *region)
{
	pthread_mutex_lock(&server->lock);
	set_text_locked(&server->options.region, region);
	pthread_mutex_unlock(&server->lock);
}

void s3_server_set_secret(struct s3_server *server, const char *access_key, const char *secret_key,
			  const char *session_token)
{
	pthread_mutex_lock(&server->lock);
	set_text_locked(&server->options.access_key, access_key);
	set_text_locked(&server->options.secret_key, secret_key);
	set_text_locked(&server->options.session_token, session_token);
	pthread_mutex_unlock(&server->lock);
}

void s3_server_set_clock(struct s3_server *server, int64_t offset_s)
{
	pthread_mutex_lock(&server->lock);
	server->options.clock_offset_s = offset_s;
	pthread_mutex_unlock(&server->lock);
}

unsigned s3_server_deaf_port(int *fdp, int *fillp)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t bytes = sizeof(at);

	*fdp = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	*fillp = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	/* A queue of one that is full: what asks then is dropped. */
	if (*fdp < 0 || *fillp < 0 || bind(*fdp, (struct sockaddr *)&at, sizeof(at)) ||
	    listen(*fdp, 0) || getsockname(*fdp, (struct sockaddr *)&at, &bytes) ||
	    connect(*fillp, (struct sockaddr *)&at, sizeof(at)))
		return 0;
	return ntohs(at.sin_port);
}
