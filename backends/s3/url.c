/* SPDX-License-Identifier: Apache-2.0 */
/*
 * URLs of servers, put into the form in which libcurl would send them: lower case, IPv6 in its
 * shortest form; percent-encoding, and what regions and host names consist of.
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "config_parts.h"

#define S3_MAX_LABEL 63u

/* A label of a host name, of `bytes` bytes. */
static bool s3_is_label(const char *text, size_t bytes, bool strict)
{
	if (bytes == 0 || bytes > S3_MAX_LABEL || text[0] == '-' || text[bytes - 1] == '-')
		return false;
	for (size_t i = 0; i < bytes; i++)
		if (!s3_is_lower(text[i]) && !s3_is_digit(text[i]) && text[i] != '-' &&
		    (strict || text[i] != '_'))
			return false;
	return true;
}

/* "127.1" and "0x7f000001": some resolvers take them for addresses. */
static bool s3_looks_like_number(const char *host)
{
	const char *dot = strrchr(host, '.'), *last = dot != NULL ? dot + 1 : host;

	if (strncmp(last, "0x", 2) == 0)
		return true;
	return last[strspn(last, "0123456789")] == '\0';
}

static bool s3_parse_ipv6(const char *text, size_t bytes, struct s3_url *url)
{
	char inner[INET6_ADDRSTRLEN];
	struct in6_addr address;

	if (bytes < 2 || bytes - 2 >= sizeof(inner))
		return false;
	memcpy(inner, text + 1, bytes - 2);
	inner[bytes - 2] = '\0';
	if (inet_pton(AF_INET6, inner, &address) != 1 ||
	    inet_ntop(AF_INET6, &address, inner, sizeof(inner)) == NULL)
		return false;
	url->is_address = true;
	url->is_loopback = IN6_IS_ADDR_LOOPBACK(&address) ||
			   (IN6_IS_ADDR_V4MAPPED(&address) && address.s6_addr[12] == 127);
	(void)snprintf(url->host, sizeof(url->host), "[%s]", inner);
	return true;
}

static bool s3_parse_host(const char *text, size_t bytes, struct s3_url *url)
{
	struct in_addr address;

	if (bytes > 0 && text[0] == '[')
		return s3_parse_ipv6(text, bytes, url);
	if (bytes == 0 || bytes > S3_CONFIG_MAX_HOST)
		return false;
	for (size_t i = 0; i < bytes; i++)
		url->host[i] = (char)(text[i] >= 'A' && text[i] <= 'Z' ? text[i] + 32 : text[i]);
	url->host[bytes] = '\0';
	if (inet_pton(AF_INET, url->host, &address) == 1) {
		url->is_address = true;
		url->is_loopback = strncmp(url->host, "127.", 4) == 0;
		return true;
	}
	url->is_loopback =
		strcmp(url->host, "localhost") == 0 || s3_has_suffix(url->host, ".localhost");
	return kvt__s3_is_host_name(url->host, false) && !s3_looks_like_number(url->host);
}

static bool s3_parse_port(const char *text, size_t bytes, struct s3_url *url)
{
	uint32_t port = 0;

	for (size_t i = 0; i < bytes; i++) {
		if (!s3_is_digit(text[i]))
			return false;
		port = port * 10 + (uint32_t)(text[i] - '0');
		if (port > 65535)
			return false;
	}
	url->port = port;
	return port > 0;
}

size_t kvt__s3_encode(const char *text, size_t bytes, bool keep_slash, char *out, size_t room)
{
	static const char digits[] = "0123456789ABCDEF";
	size_t used = 0;

	for (size_t i = 0; i < bytes; i++) {
		unsigned char c = (unsigned char)text[i];
		bool plain = s3_is_alnum(text[i]) || strchr("-._~", c) != NULL;

		plain = (plain && c != '\0') || (c == '/' && keep_slash);
		if (room - used <= (plain ? 1u : 3u))
			return 0;
		if (plain) {
			out[used++] = text[i];
			continue;
		}
		out[used++] = '%';
		out[used++] = digits[c >> 4];
		out[used++] = digits[c & 15];
	}
	if (used >= room)
		return 0;
	out[used] = '\0';
	return used;
}

bool kvt__s3_region_is_plausible(const char *region)
{
	size_t bytes = 0;

	for (; region[bytes] != '\0'; bytes++)
		if (bytes == 64 || !(s3_is_lower(region[bytes]) || s3_is_digit(region[bytes]) ||
				     region[bytes] == '-'))
			return false;
	return bytes > 0;
}

bool kvt__s3_is_host_name(const char *text, bool strict)
{
	for (;;) {
		size_t bytes = strcspn(text, ".");

		if (!s3_is_label(text, bytes, strict))
			return false;
		if (text[bytes] == '\0')
			return true;
		text += bytes + 1;
	}
}

bool kvt__s3_url_parse(const char *text, struct s3_url *url, const char **expectedp)
{
	const char *at = strstr(text, "://"), *end, *port;

	memset(url, 0, sizeof(*url));
	*expectedp = "http://host[:port] or https://host[:port]";
	if (at != NULL) {
		url->has_scheme = true;
		url->https = at - text == 5 && strncasecmp(text, "https", 5) == 0;
		if (!url->https && (at - text != 4 || strncasecmp(text, "http", 4) != 0))
			return false;
		text = at + 3;
	}
	end = text + strcspn(text, "/?#");
	if (memchr(text, '@', strlen(text)) != NULL) {
		*expectedp = "a URL without user info";
		return false;
	}
	if (*end != '\0' && strcmp(end, "/") != 0) {
		*expectedp = "a URL that ends with the host and port: no path, no query";
		return false;
	}
	port = memchr(text, ']', (size_t)(end - text));
	if (port == NULL)
		port = text + strcspn(text, ":/");
	else
		port++;
	if (*port == ':' && memchr(port + 1, ':', (size_t)(end - port - 1)) != NULL) {
		*expectedp = "brackets around an IPv6 address";
		return false;
	}
	if (port < end &&
	    (*port != ':' || !s3_parse_port(port + 1, (size_t)(end - port - 1), url))) {
		*expectedp = "a port from 1 to 65535 behind the host";
		return false;
	}
	if (!s3_parse_host(text, (size_t)(port - text), url)) {
		*expectedp = "a host name, an IPv4 address or an IPv6 address in brackets";
		return false;
	}
	return true;
}
