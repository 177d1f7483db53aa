/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading the configuration of an S3 store, once, when it is opened. What is wrong is found here
 * and named, so that nothing that was mistyped waits for the first request to fail. Secrets are in
 * no message, and are cleansed with everything else in the end.
 */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config_parts.h"

#define S3_MAX_PROFILE 256u
#define S3_MAX_SECRET  65536u
#define S3_DAY_MS      86400000u

/* ---- Profile files ---- */

/* A variable's path, or one below the home folder; *pathp stays NULL when there is neither. */
static int s3_profile_path(const struct s3_sources *from, const char *variable, const char *name,
			   char **pathp)
{
	const char *path = kvt__s3_environment(variable), *home = kvt__s3_environment("HOME");

	if (path != NULL && strncmp(path, "~/", 2) == 0 && home != NULL)
		*pathp = kvt__s3_join(from->host, home, path + 1, NULL, NULL);
	else if (path != NULL)
		*pathp = kvt__s3_join(from->host, path, NULL, NULL, NULL);
	else if (home != NULL)
		*pathp = kvt__s3_join(from->host, home, "/.aws/", name, NULL);
	else
		return 0;
	return *pathp != NULL ? 0 : kvt__s3_no_memory(from);
}

static int s3_read_profile(struct s3_config *s3, struct s3_sources *from)
{
	static const struct s3_setting setting = {
		"profile", S3_STORE_KEYS, {"AWS_PROFILE", NULL}, NULL};
	struct s3_credentials_config *keys = &s3->credentials;
	const char *disabled = kvt__s3_environment("AWS_EC2_METADATA_DISABLED");
	struct s3_given given;
	int error;

	keys->no_instance_metadata = disabled != NULL && strcasecmp(disabled, "true") == 0;
	kvt__s3_find(from, &setting, &given);
	keys->profile_given = given.value != NULL;
	if (given.value == NULL)
		given.value = "default";
	for (const char *c = given.value; c == given.value || *c != '\0'; c++)
		if ((unsigned char)*c < 0x20 || *c == 0x7f || *c == ']' ||
		    (size_t)(c - given.value) >= S3_MAX_PROFILE)
			return kvt__s3_refuse(from, &given, "the name of a profile");
	keys->profile = kvt__s3_join(from->host, given.value, NULL, NULL, NULL);
	if (keys->profile == NULL)
		return kvt__s3_no_memory(from);
	error = s3_profile_path(from, "AWS_CONFIG_FILE", "config", &keys->config_file);
	if (error == 0)
		error = s3_profile_path(from, "AWS_SHARED_CREDENTIALS_FILE", "credentials",
					&keys->credentials_file);
	if (error != 0 || keys->config_file == NULL)
		return error;
	from->profile = keys->profile;
	from->file_path = keys->config_file;
	error = kvt__s3_profile_open(from->host, keys->config_file, S3_PROFILE_CONFIG, &from->file);
	return error == KVT_ENOENT ? 0 : error;
}

/* ---- Keys ---- */

static int s3_take_secret(const struct s3_sources *from, const struct s3_given *given,
			  const char *expected, char **copyp)
{
	size_t bytes = strnlen(given->value, S3_MAX_SECRET + 1);

	if (bytes == 0 || bytes > S3_MAX_SECRET)
		return kvt__s3_refuse_secret(from, given, expected);
	for (size_t i = 0; i < bytes; i++)
		if (given->value[i] <= 0x20 || given->value[i] == 0x7f)
			return kvt__s3_refuse_secret(from, given, expected);
	*copyp = kvt__s3_copy(from->host, given->value, bytes);
	return *copyp != NULL ? 0 : kvt__s3_no_memory(from);
}

static int s3_bad_keys(const struct s3_sources *from, const char *what, const char *expected)
{
	from->host->fail(from->host, "%s, expected %s", what, expected);
	return KVT_EINVAL;
}

static int s3_read_keys(struct s3_config *s3, const struct s3_sources *from)
{
	static const struct s3_setting settings[] = {
		{"access_key", S3_STORE_ACCESS_KEY, {NULL}, NULL},
		{"secret_key", S3_STORE_SECRET_KEY, {NULL}, NULL},
		{"session_token", S3_STORE_SESSION_TOKEN, {NULL}, NULL},
	};
	struct s3_credentials_config *keys = &s3->credentials;
	struct s3_given access, secret, token;
	int error;

	kvt__s3_find(from, &settings[0], &access);
	kvt__s3_find(from, &settings[1], &secret);
	kvt__s3_find(from, &settings[2], &token);
	if (access.place == S3_FROM_OPTION) {
		/* The others would belong to another key. */
		if (secret.place == S3_FROM_STORE)
			secret.value = NULL;
		if (token.place == S3_FROM_STORE)
			token.value = NULL;
	}
	if (access.value == NULL && secret.value == NULL && token.value == NULL)
		return 0;
	if (access.value == NULL)
		return s3_bad_keys(from,
				   secret.value != NULL
					   ? "option secret_key: given without access_key"
					   : "option session_token: given without access_key",
				   "them together");
	if (strcmp(access.value, "anonymous") == 0) {
		if (secret.value != NULL || token.value != NULL)
			return s3_bad_keys(from, "option access_key: anonymous",
					   "no secret_key and no session_token beside it");
		keys->anonymous = true;
		return 0;
	}
	if (secret.value == NULL)
		return s3_bad_keys(from, "option access_key: given without secret_key",
				   "them together");
	error = s3_take_secret(from, &access, "a key without blanks", &keys->access_key);
	if (error == 0)
		error = s3_take_secret(from, &secret, "a key without blanks", &keys->secret_key);
	if (error == 0 && token.value != NULL)
		error = s3_take_secret(from, &token, "a token without blanks",
				       &keys->session_token);
	/* It stands between a comma and slashes in the header that signs. */
	if (error == 0 && strchr(keys->access_key, ',') != NULL)
		error = kvt__s3_refuse_secret(from, &access, "a key without commas");
	return error;
}

/* ---- The connection ---- */

static int s3_read_ca_bundle(struct s3_config *s3, const struct s3_sources *from)
{
	static const struct s3_setting setting = {
		"ca_bundle", S3_STORE_CA_BUNDLE, {"AWS_CA_BUNDLE", NULL}, "ca_bundle"};
	const struct kvt_host *host = from->host;
	struct s3_given given;
	struct stat info;

	kvt__s3_find(from, &setting, &given);
	if (given.value == NULL)
		return 0;
	s3->ca_bundle = kvt__s3_join(host, given.value, NULL, NULL, NULL);
	s3->credentials.ca_bundle = kvt__s3_join(host, given.value, NULL, NULL, NULL);
	if (s3->ca_bundle == NULL || s3->credentials.ca_bundle == NULL)
		return kvt__s3_no_memory(from);
	if ((!s3->https || !s3->verify) && kvt__s3_code_of(given.place) == KVT_ECONFIG)
		return 0;
	if (stat(given.value, &info) != 0 || access(given.value, R_OK) != 0) {
		host->fail(host, "%s: \"%.100s\": %s, expected a readable file of certificates",
			   given.where, given.value, strerror(errno));
		return kvt__s3_code_of(given.place);
	}
	return S_ISREG(info.st_mode) ? 0 : kvt__s3_refuse(from, &given, "a file of certificates");
}

static int s3_read_proxy(struct s3_config *s3, const struct s3_sources *from)
{
	static const char *const schemes[] = {"socks4://", "socks4a://", "socks5://", "socks5h://"};
	static const char expected[] = "[http://|https://|socks5://|socks5h://]host:port, or none; "
				       "with a password only from the environment";
	struct s3_given given;
	struct s3_url url;
	const char *text, *scheme = NULL, *unused;
	char port[12];

	kvt__s3_option_or_default(from, "proxy", &given);
	if (given.value == NULL)
		return 0;
	if (*given.value == '\0' || strcmp(given.value, "none") == 0) {
		s3->proxy = kvt__s3_join(from->host, NULL, NULL, NULL, NULL);
		return s3->proxy != NULL ? 0 : kvt__s3_no_memory(from);
	}
	text = given.value;
	for (size_t i = 0; i < sizeof(schemes) / sizeof(schemes[0]); i++)
		if (strncmp(text, schemes[i], strlen(schemes[i])) == 0) {
			scheme = schemes[i];
			text += strlen(scheme);
			break;
		}
	if (!kvt__s3_url_parse(text, &url, &unused) || url.port == 0 ||
	    (scheme != NULL && url.has_scheme))
		return strchr(text, '@') != NULL ? kvt__s3_refuse_secret(from, &given, expected)
						 : kvt__s3_refuse(from, &given, expected);
	if (scheme == NULL)
		scheme = url.has_scheme && url.https ? "https://" : "http://";
	(void)snprintf(port, sizeof(port), ":%u", url.port);
	s3->proxy = kvt__s3_join(from->host, scheme, url.host, port, NULL);
	return s3->proxy != NULL ? 0 : kvt__s3_no_memory(from);
}

static int s3_read_numbers(struct s3_config *s3, const struct s3_sources *from)
{
	const struct {
		const char *name;
		uint32_t least, most;
		uint32_t *valuep;
	} numbers[] = {
		{"max_connections", 1, 65536, &s3->max_connections},
		{"connect_timeout_ms", 1, S3_DAY_MS, &s3->connect_timeout_ms},
		{"first_byte_timeout_ms", 1, S3_DAY_MS, &s3->first_byte_timeout_ms},
		{"low_speed_bytes", 1, 1u << 30, &s3->low_speed_bytes},
		{"low_speed_seconds", 0, 3600, &s3->low_speed_seconds},
		{"lookup_cache_entries", 0, 1u << 24, &s3->lookup_cache_entries},
		{"lookup_cache_hit_ms", 0, S3_DAY_MS, &s3->lookup_cache_hit_ms},
		{"lookup_cache_miss_ms", 0, S3_DAY_MS, &s3->lookup_cache_miss_ms},
	};
	int error = kvt__s3_bytes(from, "part_bytes", &s3->part_bytes);

	for (size_t i = 0; error == 0 && i < sizeof(numbers) / sizeof(numbers[0]); i++)
		error = kvt__s3_number(from, numbers[i].name, numbers[i].least, numbers[i].most,
				       numbers[i].valuep);
	return error;
}

static int s3_read_words(struct s3_config *s3, const struct s3_sources *from)
{
	static const char *const signing[] = {"unsigned", "signed", NULL};
	static const char *const checksums[] = {"none", "s3", NULL};
	static const char *const checks[] = {
		[S3_EXISTS_AUTO] = "auto",
		[S3_EXISTS_CONDITIONAL] = "conditional",
		[S3_EXISTS_HEAD] = "head",
		[S3_EXISTS_NONE] = "none",
		NULL,
	};
	static const struct s3_setting checksum = {"checksum", S3_STORE_CHECKSUM, {NULL}, NULL};
	struct s3_given given;
	int which, error;

	kvt__s3_option_or_default(from, "payload_signing", &given);
	error = kvt__s3_word(from, &given, signing, "unsigned or signed", &which);
	if (error != 0)
		return error;
	s3->signed_payload = which == 1;
	kvt__s3_find(from, &checksum, &given);
	if (given.value == NULL)
		kvt__s3_option_or_default(from, "checksum", &given);
	error = kvt__s3_word(from, &given, checksums, "none or s3", &which);
	if (error != 0)
		return error;
	s3->checksum = which == 1;
	kvt__s3_option_or_default(from, "exists_check", &given);
	error = kvt__s3_word(from, &given, checks, "auto, conditional, head or none", &which);
	if (error == 0)
		s3->exists_check = (enum s3_exists_check)which;
	return error;
}

static int s3_read_all(struct s3_config *s3, struct s3_sources *from)
{
	int error =
		kvt__s3_store_config_init(&from->store, from, kvt__s3_option(from, "store_config"));

	if (error == 0)
		error = kvt__s3_read_location(s3, from);
	if (error == 0)
		error = s3_read_profile(s3, from);
	if (error == 0)
		error = kvt__s3_switch(from, "verify", &s3->verify);
	if (error == 0)
		error = kvt__s3_read_address(s3, from);
	if (error == 0)
		error = kvt__s3_read_sts(s3, from);
	if (error == 0)
		error = s3_read_ca_bundle(s3, from);
	if (error == 0)
		error = s3_read_proxy(s3, from);
	if (error == 0)
		error = s3_read_numbers(s3, from);
	if (error == 0)
		error = s3_read_words(s3, from);
	if (error == 0)
		error = s3_read_keys(s3, from);
	if (error == 0)
		error = kvt__s3_read_headers(s3, from);
	return error;
}

int kvt__s3_config_init(struct s3_config *s3, const struct kvt_host *host,
			const struct kvt_backend_config *config)
{
	struct s3_sources from = {.host = host, .config = config, .profile = "default"};
	int error;

	memset(s3, 0, sizeof(*s3));
	s3->host = host;
	error = s3_read_all(s3, &from);
	kvt__s3_store_config_fini(&from.store, host);
	kvt__s3_profile_close(from.file);
	if (error != 0)
		kvt__s3_config_fini(s3);
	return error;
}

void kvt__s3_config_fini(struct s3_config *s3)
{
	const struct kvt_host *host = s3->host;
	struct s3_credentials_config *keys = &s3->credentials;
	char *const strings[] = {
		s3->bucket,	    s3->prefix,	       s3->key_root,
		s3->authority,	    s3->base_url,      s3->bucket_path,
		s3->region,	    s3->ca_bundle,     s3->proxy,
		keys->access_key,   keys->secret_key,  keys->session_token,
		keys->profile,	    keys->config_file, keys->credentials_file,
		keys->sts_endpoint, keys->region,      keys->ca_bundle,
	};

	if (host == NULL)
		return;
	for (size_t i = 0; i < sizeof(strings) / sizeof(strings[0]); i++)
		kvt__s3_wipe(host, strings[i]);
	kvt__s3_headers_fini(s3, host);
	memset(s3, 0, sizeof(*s3));
}
