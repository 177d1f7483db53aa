/* SPDX-License-Identifier: Apache-2.0 */
/* Encodings and times of the S3 server, written for it alone: nothing here is shared with what it
 * tests. */
#include "s3_server_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char days[7][4] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
static const char months[12][4] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
				   "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};

static int digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

char *s3s_copy(const char *text)
{
	return text ? strdup(text) : NULL;
}

char *s3s_decode(const char *text, size_t bytes, bool form)
{
	char *out = malloc(bytes + 1);
	size_t n = 0;

	if (!out)
		return NULL;
	for (size_t i = 0; i < bytes; i++) {
		if (text[i] == '%' && i + 2 < bytes && digit(text[i + 1]) >= 0 &&
		    digit(text[i + 2]) >= 0) {
			out[n++] = (char)(digit(text[i + 1]) * 16 + digit(text[i + 2]));
			i += 2;
		} else {
			out[n++] = form && text[i] == '+' ? ' ' : text[i];
		}
	}
	out[n] = 0;
	return out;
}

bool s3s_append(char **text, size_t *bytes, size_t *room, const char *format, ...)
{
	va_list ap;
	int n;

	va_start(ap, format);
	n = vsnprintf(NULL, 0, format, ap);
	va_end(ap);
	if (n < 0)
		return false;
	if (*bytes + (size_t)n + 1 > *room) {
		size_t more = *room * 2 + (size_t)n + 256;
		char *grown = realloc(*text, more);

		if (!grown)
			return false;
		*text = grown;
		*room = more;
	}
	va_start(ap, format);
	vsnprintf(*text + *bytes, (size_t)n + 1, format, ap);
	va_end(ap);
	*bytes += (size_t)n;
	return true;
}

char *s3s_encode(const char *text, bool keep_slash, bool form)
{
	static const char hex[] = "0123456789ABCDEF";
	char *out = malloc(3 * strlen(text) + 1);
	size_t n = 0;

	if (!out)
		return NULL;
	for (const char *p = text; *p; p++) {
		unsigned char c = (unsigned char)*p;

		if ((c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
		    strchr("-._~", c) || (keep_slash && c == '/')) {
			out[n++] = (char)c;
		} else if (form && c == ' ') {
			out[n++] = '+';
		} else {
			out[n++] = '%';
			out[n++] = hex[c >> 4];
			out[n++] = hex[c & 15];
		}
	}
	out[n] = 0;
	return out;
}

char *s3s_xml_escape(const char *text)
{
	char *out = malloc(6 * strlen(text) + 1);
	size_t n = 0;

	if (!out)
		return NULL;
	for (const char *p = text; *p; p++) {
		const char *entity = *p == '&'	  ? "&amp;"
				     : *p == '<'  ? "&lt;"
				     : *p == '>'  ? "&gt;"
				     : *p == '"'  ? "&quot;"
				     : *p == '\'' ? "&#39;"
						  : NULL;
		size_t bytes = entity ? strlen(entity) : 1;

		memcpy(out + n, entity ? entity : p, bytes);
		n += bytes;
	}
	out[n] = 0;
	return out;
}

void s3s_http_date(int64_t t, char out[32])
{
	time_t when = (time_t)t;
	struct tm tm;

	gmtime_r(&when, &tm);
	snprintf(out, 32, "%s, %02d %s %04d %02d:%02d:%02d GMT", days[tm.tm_wday % 7],
		 tm.tm_mday % 100, months[tm.tm_mon % 12], (tm.tm_year + 1900) % 10000,
		 tm.tm_hour % 100, tm.tm_min % 100, tm.tm_sec % 100);
}

void s3s_iso_date(int64_t t, char out[32])
{
	time_t when = (time_t)t;
	struct tm tm;

	gmtime_r(&when, &tm);
	strftime(out, 32, "%Y-%m-%dT%H:%M:%S.000Z", &tm);
}

int64_t s3s_compact_date(const char *text)
{
	struct tm tm = {0};
	int end = 0;

	if (sscanf(text, "%4d%2d%2dT%2d%2d%2dZ%n", &tm.tm_year, &tm.tm_mon, &tm.tm_mday,
		   &tm.tm_hour, &tm.tm_min, &tm.tm_sec, &end) != 6 ||
	    end != 16 || text[16])
		return -1;
	tm.tm_year -= 1900;
	tm.tm_mon -= 1;
	return (int64_t)timegm(&tm);
}

void s3s_hex(const uint8_t *data, size_t bytes, char *out)
{
	static const char hex[] = "0123456789abcdef";

	for (size_t i = 0; i < bytes; i++) {
		out[2 * i] = hex[data[i] >> 4];
		out[2 * i + 1] = hex[data[i] & 15];
	}
	out[2 * bytes] = 0;
}

void s3s_base64(const uint8_t *data, size_t bytes, char *out)
{
	EVP_EncodeBlock((unsigned char *)out, data, (int)bytes);
}
