/* SPDX-License-Identifier: Apache-2.0 */
/* Web identity: a token from a file, which is read anew each time, is exchanged for keys by the
 * token service (AssumeRoleWithWebIdentity). */
#include <stdio.h>
#include <string.h>

#include <expat.h>
#include <openssl/crypto.h>

#include "config_parts.h"
#include "credentials_parts.h"
#include "profile.h"
#include "xml.h"

#define S3_STS_TIMEOUT_MS 5000L
#define S3_MAX_VALUE	  16384u

/* The answer of AssumeRoleWithWebIdentity: text of elements, wherever they are: those of
 * <Credentials>, or of <Error>. */
enum {
	S3_STS_ACCESS_KEY = 0,
	S3_STS_SECRET_KEY,
	S3_STS_TOKEN,
	S3_STS_EXPIRATION,
	S3_STS_CODE,
	S3_STS_MESSAGE,
	S3_STS_VALUES
};

struct s3_sts_reader {
	XML_Parser parser;
	char *values[S3_STS_VALUES]; /* S3_MAX_VALUE bytes each, in one piece */
	size_t bytes[S3_STS_VALUES];
	int at; /* -1: elsewhere */
	unsigned depth;
};

static void XMLCALL s3_sts_start(void *context, const XML_Char *name, const XML_Char **attributes)
{
	static const char *const names[S3_STS_VALUES] = {
		"AccessKeyId", "SecretAccessKey", "SessionToken", "Expiration", "Code", "Message"};
	struct s3_sts_reader *r = context;
	const char *local = strrchr(name, ':');

	(void)attributes;
	local = local ? local + 1 : name;
	r->at = -1;
	for (int i = 0; i < S3_STS_VALUES; i++)
		if (strcmp(local, names[i]) == 0)
			r->at = i;
	if (++r->depth > S3_XML_MAX_DEPTH)
		(void)XML_StopParser(r->parser, XML_FALSE);
}

static void XMLCALL s3_sts_end(void *context, const XML_Char *name)
{
	struct s3_sts_reader *r = context;

	(void)name;
	r->at = -1;
	r->depth--;
}

static void XMLCALL s3_sts_text(void *context, const XML_Char *text, int bytes)
{
	struct s3_sts_reader *r = context;

	if (r->at < 0)
		return;
	if ((size_t)bytes >= S3_MAX_VALUE - r->bytes[r->at]) {
		(void)XML_StopParser(r->parser, XML_FALSE);
		return;
	}
	memcpy(r->values[r->at] + r->bytes[r->at], text, (size_t)bytes);
	r->bytes[r->at] += (size_t)bytes;
}

static void XMLCALL s3_sts_doctype(void *context, const XML_Char *name, const XML_Char *system,
				   const XML_Char *public, int has_subset)
{
	struct s3_sts_reader *r = context;

	(void)name, (void)system, (void)public, (void)has_subset;
	(void)XML_StopParser(r->parser, XML_FALSE);
}

/* Memory for the values, cleansed by s3_sts_free; NULL when there is none. *okp: the body is XML,
 * and r->values are what it says. */
static char *s3_sts_read(struct s3_fetch *f, const char *body, struct s3_sts_reader *r, bool *okp)
{
	char *room = f->host->alloc(f->host, S3_STS_VALUES * S3_MAX_VALUE, 1);

	*okp = false;
	*r = (struct s3_sts_reader){.at = -1, .parser = room ? XML_ParserCreate(NULL) : NULL};
	if (r->parser == NULL) {
		f->host->free(f->host, room);
		return NULL;
	}
	memset(room, 0, S3_STS_VALUES * S3_MAX_VALUE);
	for (int i = 0; i < S3_STS_VALUES; i++)
		r->values[i] = room + (size_t)i * S3_MAX_VALUE;
	XML_SetUserData(r->parser, r);
	XML_SetElementHandler(r->parser, s3_sts_start, s3_sts_end);
	XML_SetCharacterDataHandler(r->parser, s3_sts_text);
	XML_SetStartDoctypeDeclHandler(r->parser, s3_sts_doctype);
	*okp = XML_Parse(r->parser, body, (int)strlen(body), XML_TRUE) == XML_STATUS_OK;
	XML_ParserFree(r->parser);
	return room;
}

static void s3_sts_free(struct s3_fetch *f, char *room)
{
	OPENSSL_cleanse(room, S3_STS_VALUES * S3_MAX_VALUE);
	f->host->free(f->host, room);
}

/* A refusal: <ErrorResponse><Error><Code>...</Code><Message>...</Message></Error></ErrorResponse>
 */
static void s3_explain_sts(struct s3_fetch *f, const char *body, char *text, size_t text_bytes)
{
	struct s3_sts_reader r;
	bool ok;
	char *room = s3_sts_read(f, body, &r, &ok);

	if (room && ok && *r.values[S3_STS_CODE])
		(void)snprintf(text, text_bytes, "%s: %s", r.values[S3_STS_CODE],
			       r.values[S3_STS_MESSAGE]);
	if (room)
		s3_sts_free(f, room);
}

static int s3_keys_from_sts(struct s3_fetch *f, const char *url, const char *body,
			    struct s3_keys *keys)
{
	struct s3_sts_reader r;
	bool ok;
	char *room = s3_sts_read(f, body, &r, &ok);
	int64_t expires_s;
	int error;

	if (room == NULL)
		return kvt__s3_why(f, KVT_ENOMEM, "out of memory");
	expires_s = ok ? kvt__s3_time(r.values[S3_STS_EXPIRATION]) : -1;
	if (expires_s < 0 || !*r.values[S3_STS_ACCESS_KEY] || !*r.values[S3_STS_SECRET_KEY])
		error = kvt__s3_why(f, KVT_EAUTH,
				    "%s: expected XML with AccessKeyId, SecretAccessKey and "
				    "Expiration",
				    url);
	else
		error = kvt__s3_keys_set(f, keys, r.values[S3_STS_ACCESS_KEY],
					 r.values[S3_STS_SECRET_KEY], r.values[S3_STS_TOKEN],
					 expires_s);
	s3_sts_free(f, room);
	return error;
}

/* Encodes for a form: what a query may have is fine there too. */
static char *s3_form(struct s3_fetch *f, const char *role, const char *session, const char *token)
{
	static const char format[] =
		"Action=AssumeRoleWithWebIdentity&Version=2011-06-15&RoleArn=%s"
		"&RoleSessionName=%s&WebIdentityToken=%s";
	size_t r = 3 * strlen(role) + 1, s = 3 * strlen(session) + 1, t = 3 * strlen(token) + 1;
	char *parts = f->host->alloc(f->host, r + s + t, 1);
	char *form = f->host->alloc(f->host, r + s + t + sizeof(format), 1);

	if (parts && form) {
		(void)kvt__s3_encode(role, strlen(role), false, parts, r);
		(void)kvt__s3_encode(session, strlen(session), false, parts + r, s);
		(void)kvt__s3_encode(token, strlen(token), false, parts + r + s, t);
		(void)snprintf(form, r + s + t + sizeof(format), format, parts, parts + r,
			       parts + r + s);
	} else {
		f->host->free(f->host, form);
		form = NULL;
	}
	if (parts)
		OPENSSL_cleanse(parts, r + s + t);
	f->host->free(f->host, parts);
	return form;
}

/* Once, at open: whoever reads the token on its way may be us. */
static void s3_warn_of_http(const struct s3_fetch *f)
{
	const char *expected;
	struct s3_url url;

	if (f->stop == NULL && kvt__s3_url_parse(f->config->sts_endpoint, &url, &expected) &&
	    !url.https && !url.is_loopback)
		f->host->log(f->host, KVT_HOST_WARNING, "s3 token service",
			     "web identity: the token goes to %s in the clear: use https",
			     f->config->sts_endpoint);
}

static int s3_assume_role(struct s3_fetch *f, const char *token_file, const char *role,
			  const char *session, struct s3_keys *keys)
{
	struct s3_http request = {.method = "POST",
				  .url = f->config->sts_endpoint,
				  .explain = s3_explain_sts,
				  .timeout_ms = S3_STS_TIMEOUT_MS,
				  .tries = 2};
	char *token, *form, *body;
	int error;

	(void)snprintf(f->source, S3_WHY_BYTES, "web identity");
	f->may_be_asked_again = true;
	if (request.url == NULL)
		return kvt__s3_why(f, KVT_ECONFIG, "web identity: no token service is known");
	s3_warn_of_http(f);
	error = kvt__s3_token_file(f, token_file, &token);
	if (error)
		return error;
	form = s3_form(f, role, session, token);
	kvt__s3_http_free(f->host, token);
	if (form == NULL)
		return kvt__s3_why(f, KVT_ENOMEM, "out of memory");
	request.body = form;
	error = kvt__s3_http(f, &request, &body);
	kvt__s3_http_free(f->host, form);
	if (error == 0)
		error = s3_keys_from_sts(f, request.url, body, keys);
	kvt__s3_http_free(f->host, body);
	return error;
}

int kvt__s3_keys_from_web_identity(struct s3_fetch *f, struct s3_keys *keys)
{
	const struct s3_credentials_config *c = f->config;
	const char *token_file = f->environment->values[S3_TOKEN_FILE];
	const char *role = f->environment->values[S3_ROLE_ARN];
	const char *session = f->environment->values[S3_ROLE_SESSION];
	struct s3_profile_file *file = NULL;
	int error;

	if (token_file == NULL && c->config_file) {
		error = kvt__s3_profile_open(f->host, c->config_file, S3_PROFILE_CONFIG, &file);
		if (error && error != KVT_ENOENT)
			return kvt__s3_why(f, error, "%s: cannot be read", c->config_file);
		token_file = kvt__s3_profile_get(file, c->profile, "web_identity_token_file");
		if (token_file) {
			role = kvt__s3_profile_get(file, c->profile, "role_arn");
			session = kvt__s3_profile_get(file, c->profile, "role_session_name");
		}
	}
	if (token_file == NULL)
		error = kvt__s3_why(f, KVT_ENOENT, "no AWS_WEB_IDENTITY_TOKEN_FILE");
	else if (role == NULL)
		error = kvt__s3_why(f, KVT_ECONFIG,
				    "web identity: a token file is given and no role "
				    "(AWS_ROLE_ARN)");
	else
		error = s3_assume_role(f, token_file, role, session ? session : "kvtier", keys);
	kvt__s3_profile_close(file);
	return error;
}
