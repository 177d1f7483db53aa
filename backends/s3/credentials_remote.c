/* SPDX-License-Identifier: Apache-2.0 */
/* Sources of keys that are asked over the network: web identity by STS, a container's endpoint,
 * instance metadata version 2. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <curl/curl.h>
#include <expat.h>
#include <jansson.h>
#include <openssl/crypto.h>

#include "credentials_parts.h"
#include "profile.h"
#include "xml.h"

#define S3_STS_TIMEOUT_MS  5000L
#define S3_NEAR_TIMEOUT_MS 1000L
#define S3_MAX_VALUE	   16384u
#define S3_URL_BYTES	   1024

static const char *s3_variable(const char *name)
{
	const char *value = getenv(name);

	return value && *value ? value : NULL;
}

static void s3_found(struct s3_fetch *f, const char *source)
{
	(void)snprintf(f->source, S3_WHY_BYTES, "%s", source);
}

/* {"AccessKeyId": ..., "SecretAccessKey": ..., "Token": ..., "Expiration": ...} */
static int s3_keys_from_json(struct s3_fetch *f, const char *url, const char *body,
			     struct s3_keys *keys)
{
	json_t *object = json_loads(body, JSON_REJECT_DUPLICATES, NULL);
	const char *access_key = json_string_value(json_object_get(object, "AccessKeyId"));
	const char *secret_key = json_string_value(json_object_get(object, "SecretAccessKey"));
	const char *token = json_string_value(json_object_get(object, "Token"));
	const char *expiration = json_string_value(json_object_get(object, "Expiration"));
	int64_t expires_s = expiration ? kvt__s3_time(expiration) : INT64_MAX;
	int error;

	if (access_key == NULL || secret_key == NULL || expires_s < 0)
		error = kvt__s3_why(f, KVT_EAUTH,
				    "%s: expected JSON with AccessKeyId, SecretAccessKey and "
				    "Expiration",
				    url);
	else
		error = kvt__s3_keys_set(f, keys, access_key, secret_key, token, expires_s);
	json_decref(object);
	return error;
}

/* The answer of AssumeRoleWithWebIdentity: text of four elements below <Credentials>. */
enum { S3_STS_ACCESS_KEY = 0, S3_STS_SECRET_KEY, S3_STS_TOKEN, S3_STS_EXPIRATION, S3_STS_VALUES };

struct s3_sts_reader {
	XML_Parser parser;
	char *values[S3_STS_VALUES]; /* S3_MAX_VALUE bytes each, in one piece */
	size_t bytes[S3_STS_VALUES];
	int at; /* -1: elsewhere */
	unsigned depth;
};

static void XMLCALL s3_sts_start(void *context, const XML_Char *name, const XML_Char **attributes)
{
	static const char *const names[S3_STS_VALUES] = {"AccessKeyId", "SecretAccessKey",
							 "SessionToken", "Expiration"};
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

static int s3_keys_from_sts(struct s3_fetch *f, const char *url, const char *body,
			    struct s3_keys *keys)
{
	struct s3_sts_reader r = {.at = -1, .parser = XML_ParserCreate(NULL)};
	char *room = f->host->alloc(f->host, S3_STS_VALUES * S3_MAX_VALUE, 1);
	int error = r.parser && room ? 0 : kvt__s3_why(f, KVT_ENOMEM, "out of memory");
	int64_t expires_s = -1;

	if (error == 0) {
		memset(room, 0, S3_STS_VALUES * S3_MAX_VALUE);
		for (int i = 0; i < S3_STS_VALUES; i++)
			r.values[i] = room + (size_t)i * S3_MAX_VALUE;
		XML_SetUserData(r.parser, &r);
		XML_SetElementHandler(r.parser, s3_sts_start, s3_sts_end);
		XML_SetCharacterDataHandler(r.parser, s3_sts_text);
		XML_SetStartDoctypeDeclHandler(r.parser, s3_sts_doctype);
		if (XML_Parse(r.parser, body, (int)strlen(body), XML_TRUE) == XML_STATUS_OK)
			expires_s = kvt__s3_time(r.values[S3_STS_EXPIRATION]);
		if (expires_s < 0 || !*r.values[S3_STS_ACCESS_KEY] || !*r.values[S3_STS_SECRET_KEY])
			error = kvt__s3_why(f, KVT_EAUTH,
					    "%s: expected XML with AccessKeyId, SecretAccessKey "
					    "and Expiration",
					    url);
	}
	if (error == 0)
		error = kvt__s3_keys_set(f, keys, r.values[S3_STS_ACCESS_KEY],
					 r.values[S3_STS_SECRET_KEY], r.values[S3_STS_TOKEN],
					 expires_s);
	if (room)
		OPENSSL_cleanse(room, S3_STS_VALUES * S3_MAX_VALUE);
	f->host->free(f->host, room);
	if (r.parser)
		XML_ParserFree(r.parser);
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

static int s3_assume_role(struct s3_fetch *f, const char *token_file, const char *role,
			  const char *session, struct s3_keys *keys)
{
	struct s3_http request = {.method = "POST",
				  .url = f->config->sts_endpoint,
				  .timeout_ms = S3_STS_TIMEOUT_MS,
				  .tries = 2};
	char *token, *form, *body;
	int error;

	s3_found(f, "web identity");
	f->may_be_asked_again = true;
	if (request.url == NULL)
		return kvt__s3_why(f, KVT_ECONFIG, "web identity: no token service is known");
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
	const char *token_file = s3_variable("AWS_WEB_IDENTITY_TOKEN_FILE");
	const char *role = s3_variable("AWS_ROLE_ARN");
	const char *session = s3_variable("AWS_ROLE_SESSION_NAME");
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

/* http only to this machine and to the addresses that hand out keys. */
static bool s3_is_near(const char *url)
{
	static const char *const hosts[] = {"localhost",     "127.0.0.1",      "[::1]",
					    "169.254.170.2", "169.254.170.23", "[fd00:ec2::23]"};
	CURLU *parts = curl_url();
	char *scheme = NULL, *host = NULL, *user = NULL;
	bool near = false;

	if (parts && curl_url_set(parts, CURLUPART_URL, url, 0) == CURLUE_OK &&
	    curl_url_get(parts, CURLUPART_SCHEME, &scheme, 0) == CURLUE_OK &&
	    curl_url_get(parts, CURLUPART_HOST, &host, 0) == CURLUE_OK &&
	    curl_url_get(parts, CURLUPART_USER, &user, 0) != CURLUE_OK) {
		near = strcmp(scheme, "https") == 0;
		for (size_t i = 0; i < sizeof(hosts) / sizeof(hosts[0]) && !near; i++)
			near = strcmp(scheme, "http") == 0 && strcmp(host, hosts[i]) == 0;
	}
	curl_free(scheme);
	curl_free(host);
	curl_free(user);
	curl_url_cleanup(parts);
	return near;
}

/* "Authorization: <token>" in *linep, NULL when there is no token. */
static int s3_authorization(struct s3_fetch *f, char **linep)
{
	static const char name[] = "Authorization: ";
	const char *path = s3_variable("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
	const char *token = s3_variable("AWS_CONTAINER_AUTHORIZATION_TOKEN");
	char *text = NULL;
	int error = path ? kvt__s3_token_file(f, path, &text) : 0;

	*linep = NULL;
	if (error)
		return error;
	token = text ? text : token;
	if (token && !kvt__s3_is_header_value(token))
		return kvt__s3_why(f, KVT_ECONFIG,
				   "AWS_CONTAINER_AUTHORIZATION_TOKEN: has control characters");
	if (token) {
		*linep = f->host->alloc(f->host, sizeof(name) + strlen(token), 1);
		if (*linep)
			(void)snprintf(*linep, sizeof(name) + strlen(token), "%s%s", name, token);
		else
			error = kvt__s3_why(f, KVT_ENOMEM, "out of memory");
	}
	kvt__s3_http_free(f->host, text);
	return error;
}

int kvt__s3_keys_from_container(struct s3_fetch *f, struct s3_keys *keys)
{
	const char *relative = s3_variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
	const char *full = s3_variable("AWS_CONTAINER_CREDENTIALS_FULL_URI");
	char url[S3_URL_BYTES], *line, *body;
	struct s3_http request = {.method = "GET",
				  .url = url,
				  .headers = {"Accept: application/json"},
				  .timeout_ms = S3_NEAR_TIMEOUT_MS,
				  .tries = 2};
	int error;

	if (relative == NULL && full == NULL)
		return kvt__s3_why(f, KVT_ENOENT, "no AWS_CONTAINER_CREDENTIALS_FULL_URI");
	if ((size_t)snprintf(url, sizeof(url), "%s%s", relative ? "http://169.254.170.2" : "",
			     relative ? relative : full) >= sizeof(url))
		return kvt__s3_why(f, KVT_ECONFIG, "container: the URI is too long");
	s3_found(f, "container");
	f->may_be_asked_again = true;
	if (!s3_is_near(url))
		return kvt__s3_why(f, KVT_ECONFIG,
				   "AWS_CONTAINER_CREDENTIALS_FULL_URI: expected https, or http to "
				   "this machine, 169.254.170.2, 169.254.170.23 or [fd00:ec2::23]");
	error = s3_authorization(f, &line);
	if (error)
		return error;
	request.headers[1] = line;
	error = kvt__s3_http(f, &request, &body);
	kvt__s3_http_free(f->host, line);
	if (error == 0)
		error = s3_keys_from_json(f, url, body, keys);
	kvt__s3_http_free(f->host, body);
	return error;
}

int kvt__s3_keys_from_instance(struct s3_fetch *f, struct s3_keys *keys)
{
	static const char list[] = "/latest/meta-data/iam/security-credentials/";
	const char *base = s3_variable("AWS_EC2_METADATA_SERVICE_ENDPOINT");
	char url[S3_URL_BYTES], header[S3_URL_BYTES], *token = NULL, *role = NULL, *body = NULL;
	struct s3_http request = {.method = "PUT",
				  .url = url,
				  .headers = {"X-aws-ec2-metadata-token-ttl-seconds: 21600"},
				  .timeout_ms = S3_NEAR_TIMEOUT_MS,
				  .tries = 2};
	int error;

	if (f->config->no_instance_metadata)
		return kvt__s3_why(f, KVT_ENOENT, "AWS_EC2_METADATA_DISABLED is set");
	base = base ? base : "http://169.254.169.254";
	s3_found(f, "instance metadata");
	f->may_be_asked_again = true;
	(void)snprintf(url, sizeof(url), "%.512s%s", base, "/latest/api/token");
	error = kvt__s3_http(f, &request, &token);
	/* No such service on this machine. */
	if (error == KVT_EAUTH)
		return KVT_ENOENT;
	if (error == 0 && (!kvt__s3_is_header_value(token) || strlen(token) > 512))
		error = kvt__s3_why(f, KVT_EAUTH,
				    "%s: the token has characters that cannot be sent", url);
	if (error == 0) {
		(void)snprintf(header, sizeof(header), "X-aws-ec2-metadata-token: %s", token);
		request.method = "GET";
		request.headers[0] = header;
		(void)snprintf(url, sizeof(url), "%.512s%s", base, list);
		error = kvt__s3_http(f, &request, &role);
	}
	if (error == 0) {
		role[strcspn(role, "\r\n")] = '\0';
		if (*role == '\0' || strlen(role) > 128 || strpbrk(role, "/?# "))
			error = kvt__s3_why(f, KVT_EAUTH, "%s: expected the name of a role", url);
	}
	if (error == 0) {
		(void)snprintf(url, sizeof(url), "%.512s%s%s", base, list, role);
		error = kvt__s3_http(f, &request, &body);
	}
	if (error == 0)
		error = s3_keys_from_json(f, url, body, keys);
	OPENSSL_cleanse(header, sizeof(header));
	kvt__s3_http_free(f->host, token);
	kvt__s3_http_free(f->host, role);
	kvt__s3_http_free(f->host, body);
	return error;
}
