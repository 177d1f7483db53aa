/* SPDX-License-Identifier: Apache-2.0 */
/* Sources of keys that need no network: options, the environment, profile files. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/crypto.h>

#include "credentials_parts.h"
#include "profile.h"

#define S3_MAX_KEY_TEXT 1024u

int kvt__s3_why(struct s3_fetch *f, int error, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	(void)vsnprintf(f->why, sizeof(f->why), format, arguments);
	va_end(arguments);
	return error;
}

static void s3_free_secret(const struct kvt_host *host, char **textp)
{
	if (*textp) {
		OPENSSL_cleanse(*textp, strlen(*textp));
		host->free(host, *textp);
		*textp = NULL;
	}
}

void kvt__s3_keys_fini(const struct kvt_host *host, struct s3_keys *keys)
{
	s3_free_secret(host, &keys->access_key);
	s3_free_secret(host, &keys->secret_key);
	s3_free_secret(host, &keys->session_token);
}

static char *s3_copy(const struct kvt_host *host, const char *text)
{
	size_t bytes = strlen(text) + 1;
	char *copy = host->alloc(host, bytes, 1);

	if (copy)
		memcpy(copy, text, bytes);
	return copy;
}

int kvt__s3_keys_set(struct s3_fetch *f, struct s3_keys *keys, const char *access_key,
		     const char *secret_key, const char *token, int64_t expires_s)
{
	bool has_token = token && *token;

	/* The bounds of what can be signed. */
	if (*access_key == '\0' || *secret_key == '\0' || strlen(access_key) > S3_MAX_KEY_TEXT ||
	    strlen(secret_key) > S3_MAX_KEY_TEXT)
		return kvt__s3_why(f, KVT_ECONFIG,
				   "access key and secret key: expected 1 to %u bytes each",
				   S3_MAX_KEY_TEXT);
	/* They become header lines. */
	if (!kvt__s3_is_header_value(access_key) || strpbrk(access_key, " ,/=") ||
	    (has_token && !kvt__s3_is_header_value(token)))
		return kvt__s3_why(f, KVT_ECONFIG,
				   "the access key or the token has characters that cannot be "
				   "sent");
	*keys = (struct s3_keys){.access_key = s3_copy(f->host, access_key),
				 .secret_key = s3_copy(f->host, secret_key),
				 .session_token = has_token ? s3_copy(f->host, token) : NULL,
				 .expires_s = expires_s};
	if (keys->access_key && keys->secret_key && (keys->session_token || !has_token))
		return 0;
	kvt__s3_keys_fini(f->host, keys);
	return kvt__s3_why(f, KVT_ENOMEM, "out of memory");
}

/* An empty variable counts for nothing. */
static const char *s3_variable(const char *name)
{
	const char *value = getenv(name);

	return value && *value ? value : NULL;
}

int kvt__s3_environment_init(struct s3_environment *environment, const struct kvt_host *host)
{
	static const char *const names[S3_VARIABLES] = {
		[S3_TOKEN_FILE] = "AWS_WEB_IDENTITY_TOKEN_FILE",
		[S3_ROLE_ARN] = "AWS_ROLE_ARN",
		[S3_ROLE_SESSION] = "AWS_ROLE_SESSION_NAME",
		[S3_CONTAINER_RELATIVE] = "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
		[S3_CONTAINER_FULL] = "AWS_CONTAINER_CREDENTIALS_FULL_URI",
		[S3_CONTAINER_TOKEN_FILE] = "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
		[S3_CONTAINER_TOKEN] = "AWS_CONTAINER_AUTHORIZATION_TOKEN",
		[S3_INSTANCE_ENDPOINT] = "AWS_EC2_METADATA_SERVICE_ENDPOINT",
		[S3_INSTANCE_MODE] = "AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE",
	};

	memset(environment, 0, sizeof(*environment));
	for (int i = 0; i < S3_VARIABLES; i++) {
		const char *value = s3_variable(names[i]);

		if (value == NULL)
			continue;
		environment->values[i] = s3_copy(host, value);
		if (environment->values[i] == NULL) {
			kvt__s3_environment_fini(environment, host);
			return KVT_ENOMEM;
		}
	}
	return 0;
}

void kvt__s3_environment_fini(struct s3_environment *environment, const struct kvt_host *host)
{
	for (int i = 0; i < S3_VARIABLES; i++)
		s3_free_secret(host, &environment->values[i]);
}

static void s3_found(struct s3_fetch *f, const char *source)
{
	(void)snprintf(f->source, S3_WHY_BYTES, "%s", source);
}

int kvt__s3_keys_from_options(struct s3_fetch *f, struct s3_keys *keys)
{
	const struct s3_credentials_config *c = f->config;

	if (c->access_key == NULL && c->secret_key == NULL)
		return kvt__s3_why(f, KVT_ENOENT, "no access_key");
	if (c->access_key == NULL || c->secret_key == NULL)
		return kvt__s3_why(f, KVT_ECONFIG, "options: %s is given and %s is not",
				   c->access_key ? "access_key" : "secret_key",
				   c->access_key ? "secret_key" : "access_key");
	s3_found(f, "options");
	return kvt__s3_keys_set(f, keys, c->access_key, c->secret_key, c->session_token, INT64_MAX);
}

int kvt__s3_keys_from_environment(struct s3_fetch *f, struct s3_keys *keys)
{
	const char *access_key = s3_variable("AWS_ACCESS_KEY_ID");
	const char *secret_key = s3_variable("AWS_SECRET_ACCESS_KEY");

	if (access_key == NULL && secret_key == NULL)
		return kvt__s3_why(f, KVT_ENOENT, "no AWS_ACCESS_KEY_ID");
	if (access_key == NULL || secret_key == NULL)
		return kvt__s3_why(f, KVT_ECONFIG, "environment: %s is set and %s is not",
				   access_key ? "AWS_ACCESS_KEY_ID" : "AWS_SECRET_ACCESS_KEY",
				   access_key ? "AWS_SECRET_ACCESS_KEY" : "AWS_ACCESS_KEY_ID");
	s3_found(f, "environment");
	return kvt__s3_keys_set(f, keys, access_key, secret_key, s3_variable("AWS_SESSION_TOKEN"),
				INT64_MAX);
}

/* Says what to do about a profile that gets its keys in a way that is left out. */
static int s3_refuse_profile(struct s3_fetch *f, const struct s3_profile_file *file,
			     const char *path)
{
	static const char *const others[] = {"credential_process", "source_profile",
					     "credential_source",  "sso_session",
					     "sso_start_url",	   "login_session"};
	const char *profile = f->config->profile;

	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		if (kvt__s3_profile_get(file, profile, others[i]))
			return kvt__s3_why(f, KVT_ECONFIG,
					   "profile %s of %s: %s is not supported: put keys into "
					   "the environment, the credentials file or the options",
					   profile, path, others[i]);
	return 0;
}

/* Keys in one file: 0, KVT_ENOENT, or an error. *therep: it has the profile. */
static int s3_keys_from_file(struct s3_fetch *f, const char *path, enum s3_profile_kind kind,
			     struct s3_keys *keys, bool *therep)
{
	const char *profile = f->config->profile, *access_key, *secret_key;
	struct s3_profile_file *file;
	int error;

	if (path == NULL)
		return KVT_ENOENT;
	error = kvt__s3_profile_open(f->host, path, kind, &file);
	if (error == KVT_ENOENT)
		return error;
	if (error)
		return kvt__s3_why(f, error, "%s: cannot be read as a profile file", path);
	*therep = *therep || kvt__s3_profile_has(file, profile);
	access_key = kvt__s3_profile_get(file, profile, "aws_access_key_id");
	secret_key = kvt__s3_profile_get(file, profile, "aws_secret_access_key");
	if (access_key == NULL && secret_key == NULL) {
		error = s3_refuse_profile(f, file, path);
		error = error ? error : KVT_ENOENT;
	} else if (access_key == NULL || secret_key == NULL) {
		error = kvt__s3_why(f, KVT_ECONFIG, "profile %s of %s: %s is missing", profile,
				    path,
				    access_key ? "aws_secret_access_key" : "aws_access_key_id");
	} else {
		(void)snprintf(f->source, S3_WHY_BYTES, "profile %s of %s", profile, path);
		error = kvt__s3_keys_set(f, keys, access_key, secret_key,
					 kvt__s3_profile_get(file, profile, "aws_session_token"),
					 INT64_MAX);
	}
	kvt__s3_profile_close(file);
	return error;
}

/* A profile that assumes a role from others is refused even when it has keys: they are only those
 * that the role is assumed with. */
static int s3_refuse_role(struct s3_fetch *f, const char *path)
{
	const char *profile = f->config->profile;
	struct s3_profile_file *file = NULL;
	int error = path ? kvt__s3_profile_open(f->host, path, S3_PROFILE_CONFIG, &file) : 0;

	if (error == KVT_ENOENT)
		return 0;
	if (error)
		return kvt__s3_why(f, error, "%s: cannot be read as a profile file", path);
	if (kvt__s3_profile_get(file, profile, "role_arn") &&
	    (kvt__s3_profile_get(file, profile, "source_profile") ||
	     kvt__s3_profile_get(file, profile, "credential_source")))
		error = kvt__s3_why(
			f, KVT_ECONFIG,
			"profile %s of %s: role_arn with a source is not supported: put keys "
			"into the environment, the credentials file or the options",
			profile, path);
	kvt__s3_profile_close(file);
	return error;
}

int kvt__s3_keys_from_profile(struct s3_fetch *f, struct s3_keys *keys)
{
	const struct s3_credentials_config *c = f->config;
	bool there = false;
	int error;

	f->may_be_asked_again = true;
	error = s3_refuse_role(f, c->config_file);
	if (error)
		return error;
	error = s3_keys_from_file(f, c->credentials_file, S3_PROFILE_CREDENTIALS, keys, &there);
	if (error == KVT_ENOENT)
		error = s3_keys_from_file(f, c->config_file, S3_PROFILE_CONFIG, keys, &there);
	if (error != KVT_ENOENT)
		return error;
	if (c->profile_given && !there)
		return kvt__s3_why(f, KVT_ECONFIG, "profile %s: is neither in %s nor in %s",
				   c->profile, c->credentials_file ? c->credentials_file : "(none)",
				   c->config_file ? c->config_file : "(none)");
	return kvt__s3_why(f, KVT_ENOENT, "no keys in profile %s", c->profile);
}
