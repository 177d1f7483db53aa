/* SPDX-License-Identifier: Apache-2.0 */
/* Sources of keys that answer in JSON: a container's endpoint, instance metadata version 2. */
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include <curl/curl.h>
#include <jansson.h>
#include <openssl/crypto.h>

#include "credentials_parts.h"
#include "xml.h"

#define S3_NEAR_TIMEOUT_MS 1000L
#define S3_URL_BYTES	   1024
#define S3_PLACE_BYTES	   160

static void s3_found(struct s3_fetch *f, const char *source)
{
	(void)snprintf(f->source, S3_WHY_BYTES, "%s", source);
}

/* Drops it, and the secrets in it. */
static void s3_json_free(json_t *object)
{
	const char *name;
	json_t *value;

	json_object_foreach(object, name, value) if (json_is_string(value))
		OPENSSL_cleanse((char *)json_string_value(value), json_string_length(value));
	json_decref(object);
}

/* A refusal: {"code": ..., "message": ...}, with a capital in instance metadata. */
static void s3_explain_json(struct s3_fetch *f, const char *body, char *text, size_t room)
{
	json_t *object = json_loads(body, 0, NULL);
	const char *code = json_string_value(json_object_get(object, "Code"));
	const char *message = json_string_value(json_object_get(object, "Message"));

	(void)f;
	if (code == NULL)
		code = json_string_value(json_object_get(object, "code"));
	if (message == NULL)
		message = json_string_value(json_object_get(object, "message"));
	if (code || message)
		(void)snprintf(text, room, "%s%s%s", code ? code : "", code && message ? ": " : "",
			       message ? message : "");
	s3_json_free(object);
}

/* {"AccessKeyId": ..., "SecretAccessKey": ..., "Token": ..., "Expiration": ...} */
static int s3_keys_from_json(struct s3_fetch *f, const char *place, const char *body,
			     struct s3_keys *keys)
{
	json_t *object = json_loads(body, JSON_REJECT_DUPLICATES, NULL);
	const char *code = json_string_value(json_object_get(object, "Code"));
	const char *access_key = json_string_value(json_object_get(object, "AccessKeyId"));
	const char *secret_key = json_string_value(json_object_get(object, "SecretAccessKey"));
	const char *token = json_string_value(json_object_get(object, "Token"));
	const char *expiration = json_string_value(json_object_get(object, "Expiration"));
	int64_t expires_s = expiration ? kvt__s3_time(expiration) : INT64_MAX;
	int error;

	if (code && strcmp(code, "Success") != 0)
		error = kvt__s3_why(f, KVT_EAUTH, "%s: answers %.64s", place, code);
	else if (access_key == NULL || secret_key == NULL || expires_s < 0)
		error = kvt__s3_why(f, KVT_EAUTH,
				    "%s: expected JSON with AccessKeyId, SecretAccessKey and "
				    "Expiration",
				    place);
	else
		error = kvt__s3_keys_set(f, keys, access_key, secret_key, token, expires_s);
	s3_json_free(object);
	return error;
}

/* Whether http may be spoken to a host: this machine, and the addresses that hand out keys. */
static bool s3_is_near(const char *host)
{
	static const char *const hosts[] = {"localhost", "[::1]", "169.254.170.2", "169.254.170.23",
					    "[fd00:ec2::23]"};
	struct in_addr address;

	for (size_t i = 0; i < sizeof(hosts) / sizeof(hosts[0]); i++)
		if (strcmp(host, hosts[i]) == 0)
			return true;
	return inet_pton(AF_INET, host, &address) == 1 && ntohl(address.s_addr) >> 24 == 127;
}

/* Whether keys may be asked for there. `place` is the URL without its path, which may be all that
 * keeps others from asking too. */
static bool s3_is_allowed(const char *url, char place[S3_PLACE_BYTES])
{
	CURLU *parts = curl_url();
	char *scheme = NULL, *host = NULL, *port = NULL, *user = NULL;
	bool is_allowed = false;

	if (parts && curl_url_set(parts, CURLUPART_URL, url, 0) == CURLUE_OK &&
	    curl_url_get(parts, CURLUPART_SCHEME, &scheme, 0) == CURLUE_OK &&
	    curl_url_get(parts, CURLUPART_HOST, &host, 0) == CURLUE_OK &&
	    curl_url_get(parts, CURLUPART_USER, &user, 0) != CURLUE_OK) {
		(void)curl_url_get(parts, CURLUPART_PORT, &port, 0);
		(void)snprintf(place, S3_PLACE_BYTES, "%s://%.128s%s%s", scheme, host,
			       port ? ":" : "", port ? port : "");
		is_allowed = strcmp(scheme, "https") == 0 ||
			     (strcmp(scheme, "http") == 0 && s3_is_near(host));
	}
	curl_free(scheme);
	curl_free(host);
	curl_free(port);
	curl_free(user);
	curl_url_cleanup(parts);
	return is_allowed;
}

/* "Authorization: <token>" in *linep, NULL when there is no token. */
static int s3_authorization(struct s3_fetch *f, char **linep)
{
	static const char name[] = "Authorization: ";
	const char *path = f->environment->values[S3_CONTAINER_TOKEN_FILE];
	const char *token = f->environment->values[S3_CONTAINER_TOKEN];
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
	const char *relative = f->environment->values[S3_CONTAINER_RELATIVE];
	const char *full = f->environment->values[S3_CONTAINER_FULL];
	char url[S3_URL_BYTES], place[S3_PLACE_BYTES], *line, *body;
	struct s3_http request = {.method = "GET",
				  .url = url,
				  .place = place,
				  .explain = s3_explain_json,
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
	if (relative && *relative != '/')
		return kvt__s3_why(f, KVT_ECONFIG,
				   "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI: expected a path that "
				   "begins with a slash");
	if (!s3_is_allowed(url, place))
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
		error = s3_keys_from_json(f, place, body, keys);
	kvt__s3_http_free(f->host, body);
	return error;
}

/* Where instance metadata is, without a slash at its end. */
static bool s3_instance_base(const struct s3_fetch *f, char *base, size_t room)
{
	const char *given = f->environment->values[S3_INSTANCE_ENDPOINT];
	const char *mode = f->environment->values[S3_INSTANCE_MODE];
	size_t bytes;

	if (given == NULL)
		given = mode && strcasecmp(mode, "ipv6") == 0 ? "http://[fd00:ec2::254]"
							      : "http://169.254.169.254";
	bytes = strlen(given);
	while (bytes && given[bytes - 1] == '/')
		bytes--;
	return (size_t)snprintf(base, room, "%.*s", (int)bytes, given) < room;
}

static bool s3_is_role(const char *text)
{
	const size_t bytes = strlen(text);

	return bytes > 0 && bytes <= 128 &&
	       strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
			    "+=,.@_-") == bytes &&
	       strspn(text, ".") != bytes;
}

/* The role's keys, by the token. KVT_ENOENT: the instance has no role. */
static int s3_ask_role(struct s3_fetch *f, const char *base, const char *token,
		       struct s3_keys *keys)
{
	static const char list[] = "/latest/meta-data/iam/security-credentials/";
	char url[S3_URL_BYTES], header[S3_URL_BYTES], *role, *body = NULL;
	struct s3_http request = {.method = "GET",
				  .url = url,
				  .headers = {header},
				  .explain = s3_explain_json,
				  .timeout_ms = S3_NEAR_TIMEOUT_MS,
				  .tries = 2};
	int error;

	(void)snprintf(header, sizeof(header), "X-aws-ec2-metadata-token: %s", token);
	(void)snprintf(url, sizeof(url), "%s%s", base, list);
	error = kvt__s3_http(f, &request, &role);
	if (error == KVT_EAUTH && request.status == 404)
		error = kvt__s3_why(f, KVT_ENOENT, "%s: HTTP 404, the instance has no role", base);
	if (error == 0) {
		role[strcspn(role, "\r\n")] = '\0';
		if (!s3_is_role(role))
			error = kvt__s3_why(f, KVT_EAUTH, "%s: expected the name of a role", url);
	}
	if (error == 0) {
		(void)snprintf(url, sizeof(url), "%s%s%s", base, list, role);
		error = kvt__s3_http(f, &request, &body);
	}
	if (error == 0)
		error = s3_keys_from_json(f, url, body, keys);
	OPENSSL_cleanse(header, sizeof(header));
	kvt__s3_http_free(f->host, role);
	kvt__s3_http_free(f->host, body);
	return error;
}

int kvt__s3_keys_from_instance(struct s3_fetch *f, struct s3_keys *keys)
{
	char base[S3_URL_BYTES / 2], url[S3_URL_BYTES], *token;
	struct s3_http request = {.method = "PUT",
				  .url = url,
				  .headers = {"X-aws-ec2-metadata-token-ttl-seconds: 21600"},
				  .timeout_ms = S3_NEAR_TIMEOUT_MS,
				  .tries = 2};
	int error;

	if (f->config->no_instance_metadata)
		return kvt__s3_why(f, KVT_ENOENT, "AWS_EC2_METADATA_DISABLED is set");
	if (!s3_instance_base(f, base, sizeof(base)))
		return kvt__s3_why(f, KVT_ECONFIG,
				   "AWS_EC2_METADATA_SERVICE_ENDPOINT: expected at most %zu bytes",
				   sizeof(base) - 1);
	s3_found(f, "instance metadata");
	f->may_be_asked_again = true;
	(void)snprintf(url, sizeof(url), "%s/latest/api/token", base);
	error = kvt__s3_http(f, &request, &token);
	/* No such service on this machine. */
	if (error == KVT_EAUTH)
		error = KVT_ENOENT;
	if (error == 0 &&
	    (*token == '\0' || !kvt__s3_is_header_value(token) || strlen(token) > 512))
		error = kvt__s3_why(f, KVT_EAUTH,
				    "%s: the token has characters that cannot be sent", url);
	if (error == 0)
		error = s3_ask_role(f, base, token, keys);
	kvt__s3_http_free(f->host, token);
	return error;
}
