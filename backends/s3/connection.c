/* SPDX-License-Identifier: Apache-2.0 */
/* The libcurl handle of a slot: what is set once for all its exchanges. */
#include "s3.h"

#include <sys/socket.h>
#include <unistd.h>

#define S3_USER_AGENT	      "kvtier"
#define S3_MAX_IDLE_S	      20L /* MinIO closes after 30 s, AWS sooner, which curl notices */
#define S3_SET(option, value) (bad = bad ? bad : curl_easy_setopt(e, option, value))

/* Sockets are remembered so that a forked child can close them. */
static curl_socket_t s3_open_socket(void *session, curlsocktype purpose,
				    struct curl_sockaddr *address)
{
	struct s3_session *s = session;
	int fd;

	(void)purpose;
	if (s->socket_count == s->socket_room)
		return CURL_SOCKET_BAD;
	fd = socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
	if (fd >= 0)
		s->sockets[s->socket_count++] = fd;
	return fd >= 0 ? fd : CURL_SOCKET_BAD;
}

static int s3_close_socket(void *session, curl_socket_t fd)
{
	struct s3_session *s = session;

	for (uint32_t i = 0; i < s->socket_count; i++) {
		if (s->sockets[i] == fd) {
			s->sockets[i] = s->sockets[--s->socket_count];
			break;
		}
	}
	return close(fd);
}

static CURLcode s3_set_connection(struct s3_transfer *t)
{
	const struct s3_config *config = &t->session->backend->config;
	CURL *e = t->easy;
	CURLcode bad = CURLE_OK;

	S3_SET(CURLOPT_NOSIGNAL, 1L);
	/* Else the end of a request that waits for a name server waits for it too, and all others
	 * of the lane with it. */
	S3_SET(CURLOPT_QUICK_EXIT, 1L);
	S3_SET(CURLOPT_PROTOCOLS_STR, "http,https");
	S3_SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	S3_SET(CURLOPT_PATH_AS_IS, 1L);
	S3_SET(CURLOPT_FOLLOWLOCATION, 0L);
	S3_SET(CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
	S3_SET(CURLOPT_NETRC, (long)CURL_NETRC_IGNORED);
	S3_SET(CURLOPT_BUFFERSIZE, S3_BUFFER_BYTES);
	S3_SET(CURLOPT_MAXAGE_CONN, S3_MAX_IDLE_S);
	S3_SET(CURLOPT_TCP_KEEPALIVE, 1L);
	S3_SET(CURLOPT_DNS_SHUFFLE_ADDRESSES, 1L);
	S3_SET(CURLOPT_CONNECTTIMEOUT_MS, (long)config->connect_timeout_ms);
	S3_SET(CURLOPT_SHARE, t->session->share);
	S3_SET(CURLOPT_USERAGENT, S3_USER_AGENT);
	S3_SET(CURLOPT_SSL_VERIFYPEER, config->verify ? 1L : 0L);
	S3_SET(CURLOPT_SSL_VERIFYHOST, config->verify ? 2L : 0L);
	if (config->ca_bundle)
		S3_SET(CURLOPT_CAINFO, config->ca_bundle);
	if (config->proxy)
		S3_SET(CURLOPT_PROXY, config->proxy);
	S3_SET(CURLOPT_OPENSOCKETFUNCTION, s3_open_socket);
	S3_SET(CURLOPT_OPENSOCKETDATA, t->session);
	S3_SET(CURLOPT_CLOSESOCKETFUNCTION, s3_close_socket);
	S3_SET(CURLOPT_CLOSESOCKETDATA, t->session);
	return bad;
}

int kvt__s3_easy_create(struct s3_transfer *t)
{
	CURLcode bad = CURLE_OK;
	CURL *e = curl_easy_init();

	if (e == NULL)
		return KVT_ENOMEM;
	t->easy = e;
	bad = s3_set_connection(t);
	S3_SET(CURLOPT_HEADERFUNCTION, kvt__s3_reply_line);
	S3_SET(CURLOPT_HEADERDATA, t);
	S3_SET(CURLOPT_WRITEFUNCTION, kvt__s3_reply_body);
	S3_SET(CURLOPT_WRITEDATA, t);
	S3_SET(CURLOPT_READFUNCTION, kvt__s3_body_read);
	S3_SET(CURLOPT_READDATA, t);
	S3_SET(CURLOPT_SEEKFUNCTION, kvt__s3_body_seek);
	S3_SET(CURLOPT_SEEKDATA, t);
	S3_SET(CURLOPT_ERRORBUFFER, t->error_text);
	S3_SET(CURLOPT_PRIVATE, t);
	if (bad == CURLE_OK)
		return 0;
	curl_easy_cleanup(e);
	t->easy = NULL;
	return bad == CURLE_OUT_OF_MEMORY ? KVT_ENOMEM : KVT_EINTERNAL;
}
