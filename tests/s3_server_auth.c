/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Signature version 4 as the S3 server checks it, written from the documentation and for this
 * server alone: the request is taken apart as it came and put together again by the rules, so that
 * whatever a client signs otherwise than it sends does not fit.
 */
#include "s3_server_internal.h"

#include <openssl/hmac.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define MOST_NAMES 64u

struct claim {
	char *text; /* a copy of the header that the others point into */
	char *access_key, *date, *region, *names, *signature;
	char amz_date[17];
};

static void hmac(const void *key, size_t key_bytes, const char *text, uint8_t out[32])
{
	unsigned bytes = 32;

	HMAC(EVP_sha256(), key, (int)key_bytes, (const unsigned char *)text, strlen(text), out,
	     &bytes);
}

/* The value behind "Name=" in "Credential=.., SignedHeaders=.., Signature=..", ended by a NUL. */
static char *claim_part(char *text, const char *name)
{
	char *at = strstr(text, name);

	return at ? at + strlen(name) : NULL;
}

/* False: it is not what the header has to be. */
static bool claim_read(struct claim *claim, const char *header)
{
	char *credential, *end, *service;

	claim->text = s3s_copy(header + strlen("AWS4-HMAC-SHA256"));
	if (!claim->text)
		return false;
	credential = claim_part(claim->text, "Credential=");
	claim->names = claim_part(claim->text, "SignedHeaders=");
	claim->signature = claim_part(claim->text, "Signature=");
	if (!credential || !claim->names || !claim->signature)
		return false;
	credential[strcspn(credential, ", ")] = 0;
	claim->names[strcspn(claim->names, ", ")] = 0;
	claim->signature[strcspn(claim->signature, ", ")] = 0;
	/* key/20130524/us-east-1/s3/aws4_request, from its end: keys may have slashes */
	end = strrchr(credential, '/');
	if (!end || strcmp(end, "/aws4_request") != 0)
		return false;
	*end = 0;
	service = strrchr(credential, '/');
	if (!service || strcmp(service, "/s3") != 0)
		return false;
	*service = 0;
	claim->region = strrchr(credential, '/');
	if (!claim->region)
		return false;
	*claim->region++ = 0;
	claim->date = strrchr(credential, '/');
	if (!claim->date || strlen(claim->date + 1) != 8)
		return false;
	*claim->date++ = 0;
	claim->access_key = credential;
	return true;
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static int by_pair(const void *a, const void *b)
{
	const struct s3s_pair *x = a, *y = b;
	int order = strcmp(x->name, y->name);

	return order ? order : strcmp(x->value, y->value);
}

/* Trims, and makes runs of blanks one; in place. */
static void collapse(char *value)
{
	char *to = value;

	for (const char *p = value + strspn(value, " \t"); *p; p++) {
		bool blank = *p == ' ' || *p == '\t';

		if (!blank)
			*to++ = *p;
		else if (p[1] && p[1] != ' ' && p[1] != '\t')
			*to++ = ' ';
	}
	*to = 0;
}

/* All values of a header, joined by commas; appended. False when there is none. */
static bool canonical_values(struct s3s_request *r, const char *name, char **text, size_t *bytes,
			     size_t *room)
{
	size_t name_bytes = strlen(name);
	unsigned count = 0;

	for (const char *line = r->headers; line && *line;) {
		const char *end = strchr(line, '\n');

		if (end && strncmp(line, name, name_bytes) == 0 && line[name_bytes] == ':') {
			const char *from = line + name_bytes + 1;
			char *value = strndup(from, (size_t)(end - from));
			bool good;

			if (!value)
				return false;
			collapse(value);
			good = s3s_append(text, bytes, room, "%s%s", count++ ? "," : "", value);
			free(value);
			if (!good)
				return false;
		}
		line = end ? end + 1 : NULL;
	}
	return count > 0;
}

static bool canonical_query(struct s3s_request *r, char **text, size_t *bytes, size_t *room)
{
	struct s3s_pair pairs[S3S_MOST_QUERY] = {{0}};
	bool good = true;

	for (unsigned i = 0; i < r->query_count; i++) {
		pairs[i].name = s3s_encode(r->query[i].name, false, false);
		pairs[i].value = s3s_encode(r->query[i].value, false, false);
		good = good && pairs[i].name && pairs[i].value;
	}
	if (good)
		qsort(pairs, r->query_count, sizeof(pairs[0]), by_pair);
	for (unsigned i = 0; i < r->query_count; i++) {
		good = good && s3s_append(text, bytes, room, "%s%s=%s", i ? "&" : "", pairs[i].name,
					  pairs[i].value);
		free(pairs[i].name);
		free(pairs[i].value);
	}
	return good;
}

/* Allocated; NULL when a header that should be signed is not there. */
static char *canonical_request(struct s3s_request *r, const struct claim *claim,
			       const char *payload)
{
	char *text = NULL, *names[MOST_NAMES], *list = s3s_copy(claim->names), *save = list;
	char *path = s3s_decode(r->path, strlen(r->path), false);
	char *encoded = path ? s3s_encode(path, true, false) : NULL;
	size_t bytes = 0, room = 0;
	unsigned count = 0;
	bool good = list && encoded &&
		    s3s_append(&text, &bytes, &room, "%s\n%s\n", r->method, encoded) &&
		    canonical_query(r, &text, &bytes, &room) &&
		    s3s_append(&text, &bytes, &room, "\n");

	while (good && save && *save && count < MOST_NAMES) {
		char *next = strchr(save, ';');

		if (next)
			*next++ = 0;
		names[count++] = save;
		save = next;
	}
	if (good)
		qsort(names, count, sizeof(names[0]), by_text);
	for (unsigned i = 0; good && i < count; i++)
		good = s3s_append(&text, &bytes, &room, "%s:", names[i]) &&
		       canonical_values(r, names[i], &text, &bytes, &room) &&
		       s3s_append(&text, &bytes, &room, "\n");
	good = good && s3s_append(&text, &bytes, &room, "\n%s\n%s", claim->names, payload);
	free(list);
	free(path);
	free(encoded);
	if (!good) {
		free(text);
		return NULL;
	}
	return text;
}

static bool is_signed(const struct claim *claim, const char *name, size_t bytes)
{
	for (const char *at = claim->names; at;) {
		if (strncmp(at, name, bytes) == 0 && (at[bytes] == ';' || at[bytes] == 0))
			return true;
		at = strchr(at, ';');
		at += at != NULL;
	}
	return false;
}

/* Host and all of x-amz-* have to be. */
static bool all_are_signed(struct s3s_request *r, const struct claim *claim)
{
	for (const char *line = r->headers; line && *line;) {
		size_t bytes = strcspn(line, ":");

		if ((strncmp(line, "x-amz-", 6) == 0 ||
		     (bytes == 4 && !strncmp(line, "host", 4))) &&
		    !is_signed(claim, line, bytes))
			return false;
		line = strchr(line, '\n');
		line += line != NULL;
	}
	return true;
}

/* Derives the key of a day, or takes the last one. */
static void day_key(struct s3_server *server, const struct claim *claim, const char *secret,
		    uint8_t key[32])
{
	char scope[96], first[256];
	bool known;

	snprintf(scope, sizeof(scope), "%s/%s/%.40s", claim->date, claim->region, secret);
	pthread_mutex_lock(&server->lock);
	known = strcmp(scope, server->day_scope) == 0;
	if (known)
		memcpy(key, server->day_key, 32);
	pthread_mutex_unlock(&server->lock);
	if (known)
		return;
	snprintf(first, sizeof(first), "AWS4%s", secret);
	hmac(first, strlen(first), claim->date, key);
	hmac(key, 32, claim->region, key);
	hmac(key, 32, "s3", key);
	hmac(key, 32, "aws4_request", key);
	pthread_mutex_lock(&server->lock);
	snprintf(server->day_scope, sizeof(server->day_scope), "%s", scope);
	memcpy(server->day_key, key, 32);
	pthread_mutex_unlock(&server->lock);
}

static bool signature_fits(struct s3s_request *r, const struct claim *claim, const char *secret,
			   const char *payload)
{
	char *request = canonical_request(r, claim, payload), hex[65], text[512];
	uint8_t hash[32], key[32];

	if (!request)
		return false;
	EVP_Digest(request, strlen(request), hash, NULL, EVP_sha256(), NULL);
	s3s_hex(hash, 32, hex);
	snprintf(text, sizeof(text), "AWS4-HMAC-SHA256\n%s\n%s/%s/s3/aws4_request\n%s",
		 claim->amz_date, claim->date, claim->region, hex);
	day_key(r->server, claim, secret, key);
	hmac(key, 32, text, hash);
	s3s_hex(hash, 32, hex);
	if (strcmp(hex, claim->signature) == 0) {
		free(request);
		return true;
	}
	s3s_error(r, 403, "SignatureDoesNotMatch",
		  "The request signature we calculated does not match the signature you provided");
	if (!r->is_head) {
		r->reply.text_bytes -= strlen("</Error>");
		r->reply.text[r->reply.text_bytes] = 0;
		s3s_text(&r->reply, "<CanonicalRequest>");
		s3s_text_escaped(&r->reply, request);
		s3s_text(&r->reply, "</CanonicalRequest></Error>");
	}
	free(request);
	return false;
}

static bool refuse(struct s3s_request *r, int status, const char *code, const char *message)
{
	s3s_error(r, status, code, message);
	return false;
}

static bool wrong_region(struct s3s_request *r, const char *expected)
{
	s3s_error(r, 400, "AuthorizationHeaderMalformed",
		  "The authorization header is malformed; the region is wrong");
	if (!r->is_head) {
		r->reply.text_bytes -= strlen("</Error>");
		r->reply.text[r->reply.text_bytes] = 0;
		s3s_text(&r->reply, "<Region>");
		s3s_text_escaped(&r->reply, expected);
		s3s_text(&r->reply, "</Region></Error>");
	}
	s3s_header(&r->reply, "x-amz-bucket-region: %s", expected);
	return false;
}

static bool check_time(struct s3s_request *r, struct claim *claim)
{
	const char *date = s3s_field(r, "x-amz-date");
	int64_t at = date ? s3s_compact_date(date) : -1, now = s3s_now(r->server);

	if (at < 0)
		return refuse(r, 403, "AccessDenied",
			      "AWS authentication requires a valid Date or x-amz-date header");
	snprintf(claim->amz_date, sizeof(claim->amz_date), "%s", date);
	if (at < now - 900 || at > now + 900)
		return refuse(r, 403, "RequestTimeTooSkewed",
			      "The difference between the request time and the current time is too "
			      "large.");
	if (strncmp(date, claim->date, 8) != 0)
		return refuse(r, 400, "AuthorizationHeaderMalformed",
			      "Invalid credential date: it is not the same as X-Amz-Date");
	return true;
}

static bool check_payload(struct s3s_request *r, const char *payload)
{
	if (strncmp(payload, "STREAMING-", 10) == 0)
		return refuse(r, 501, "NotImplemented", "aws-chunked bodies are not implemented");
	if (strcmp(payload, "UNSIGNED-PAYLOAD") == 0)
		return true;
	if (strlen(payload) != 64)
		return refuse(r, 400, "InvalidArgument", "x-amz-content-sha256 is not valid");
	snprintf(r->sha256, sizeof(r->sha256), "%s", payload);
	return true;
}

static bool check(struct s3s_request *r, struct claim *claim, const char *access_key,
		  const char *secret, const char *token, const char *region)
{
	const char *header = s3s_field(r, "Authorization");
	const char *payload = s3s_field(r, "x-amz-content-sha256");
	const char *given = s3s_field(r, "x-amz-security-token");

	if (!header)
		return refuse(r, 403, "AccessDenied", "Access Denied");
	if (strncmp(header, "AWS4-HMAC-SHA256", strlen("AWS4-HMAC-SHA256")) != 0)
		return refuse(r, 400, "InvalidRequest",
			      "The authorization mechanism you have provided is not supported. "
			      "Please use AWS4-HMAC-SHA256.");
	if (!claim_read(claim, header))
		return refuse(r, 400, "AuthorizationHeaderMalformed",
			      "The authorization header is malformed");
	if (strcmp(claim->access_key, access_key) != 0)
		return refuse(r, 403, "InvalidAccessKeyId",
			      "The AWS Access Key Id you provided does not exist in our records.");
	if (region && strcmp(claim->region, region) != 0)
		return wrong_region(r, region);
	if (!payload)
		return refuse(r, 400, "InvalidRequest",
			      "Missing required header for this request: x-amz-content-sha256");
	if (!all_are_signed(r, claim))
		return refuse(r, 403, "AccessDenied",
			      "There were headers present in the request which were not signed");
	if (!check_time(r, claim))
		return false;
	if (!signature_fits(r, claim, secret, payload)) {
		if (!r->failed)
			s3s_error(r, 403, "SignatureDoesNotMatch", "a signed header is not there");
		return false;
	}
	if (token && (!given || strcmp(given, token) != 0))
		return refuse(r, given ? 400 : 403, given ? "InvalidToken" : "AccessDenied",
			      "The provided token is malformed or otherwise invalid.");
	return check_payload(r, payload);
}

bool s3s_authorize(struct s3s_request *r)
{
	struct s3_server *server = r->server;
	struct claim claim = {0};
	char *access_key, *secret, *token, *region;
	bool good;

	pthread_mutex_lock(&server->lock);
	access_key = s3s_copy(server->options.access_key);
	secret = s3s_copy(server->options.secret_key);
	token = s3s_copy(server->options.session_token);
	region = s3s_copy(server->options.region);
	pthread_mutex_unlock(&server->lock);
	good = !access_key || !secret || check(r, &claim, access_key, secret, token, region);
	free(claim.text);
	free(access_key);
	free(secret);
	free(token);
	free(region);
	return good;
}
