/* SPDX-License-Identifier: Apache-2.0 */
/* The list of options, looking up one setting in all the places where it may stand, and reading
 * numbers, switches and words. Numbers are read without the locale. */
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include <openssl/crypto.h>

#include "config_parts.h"

const struct kvt_option_spec kvt__s3_option_specs[] = {
	{"endpoint", NULL,
	 "the server: [http://|https://]host[:port]; none: AWS, made from the region"},
	{"endpoint_override", NULL, "the same as endpoint, under the name that vLLM gives it"},
	{"scheme", NULL, "http or https, for an endpoint that does not say; none: https"},
	{"region", NULL, "what requests are signed for; none: us-east-1"},
	{"addressing", "auto",
	 "where the bucket stands: path, virtual (in front of the host), or auto: virtual for AWS "
	 "without an endpoint, else path"},
	{"access_key", NULL, "who signs; \"anonymous\": requests are not signed"},
	{"secret_key", NULL, "the secret that belongs to access_key"},
	{"session_token", NULL, "the token that belongs to temporary keys"},
	{"profile", NULL, "section of the profile files; none: AWS_PROFILE, else default"},
	{"ca_bundle", NULL, "file of certificates that are trusted; none: the system's"},
	{"verify", "on", "off: the server's certificate is not checked"},
	{"proxy", NULL,
	 "[http://|https://|socks5://|socks5h://]host:port, or none: go directly; not given: as "
	 "the environment says"},
	{"max_connections", "256", "requests in flight of the whole store, all lanes together"},
	{"connect_timeout_ms", "3000", "time for a connection, TLS included"},
	{"first_byte_timeout_ms", "10000", "time from the end of a request to the answer's begin"},
	{"low_speed_bytes", "1024", "transfers of data slower than this, in bytes a second ..."},
	{"low_speed_seconds", "30", "... for as long as this are given up; 0: never"},
	{"part_bytes", "0",
	 "size of parts, 5M to 5G; larger objects go in several; 0: as the worker says"},
	{"payload_signing", "unsigned",
	 "signed: the signature covers the bodies too, at one more pass over them"},
	{"checksum", "none", "s3: a CRC-32C goes with each single PUT for the server to check"},
	{"exists_check", "auto",
	 "how a store finds out what is there already: conditional, head, none (overwrite), auto"},
	{"lookup_cache_entries", "65536", "names whose state is remembered for a while; 0: none"},
	{"lookup_cache_hit_ms", "30000", "how long an object that was seen is taken to be there"},
	{"lookup_cache_miss_ms", "1000", "how long one that was not is taken to be absent"},
	{"sse", NULL, "encryption by the server: AES256 or aws:kms"},
	{"sse_kms_key_id", NULL, "the key for sse=aws:kms; none: the bucket's own"},
	{"sse_c_key", NULL,
	 "encryption by the server with a key of ours: base64 of 32 bytes, goes with each request"},
	{"headers", NULL, "headers that go with requests, \"Name: value\", one a line"},
	{"store_config", NULL, "the store_config of vLLM's object tier, as JSON"},
	{"compat_names", "kvtier",
	 "vllm-obj: keys begin as vLLM's object tier makes them, to share its buckets"},
	{NULL, NULL, NULL},
};

const char *kvt__s3_option(const struct s3_sources *from, const char *name)
{
	for (size_t i = 0; i < from->config->option_count; i++)
		if (strcmp(from->config->options[i].name, name) == 0)
			return from->config->options[i].value;
	return NULL;
}

const char *kvt__s3_environment(const char *name)
{
	const char *value = getenv(name);

	return value != NULL && *value != '\0' ? value : NULL;
}

static void s3_give(struct s3_given *given, enum s3_place place, const char *value,
		    const char *what, const char *name)
{
	given->place = place;
	given->value = value;
	(void)snprintf(given->where, sizeof(given->where), "%s%s", what, name);
}

void kvt__s3_find(const struct s3_sources *from, const struct s3_setting *setting,
		  struct s3_given *givenp)
{
	const char *value = kvt__s3_option(from, setting->option);

	if (value != NULL) {
		s3_give(givenp, S3_FROM_OPTION, value, "option ", setting->option);
		return;
	}
	if (setting->store < S3_STORE_KEYS && from->store.values[setting->store] != NULL) {
		s3_give(givenp, S3_FROM_STORE, from->store.values[setting->store],
			"option store_config: ", setting->option);
		return;
	}
	for (size_t i = 0; i < 2 && setting->variables[i] != NULL; i++) {
		value = kvt__s3_environment(setting->variables[i]);
		if (value != NULL) {
			s3_give(givenp, S3_FROM_ENV, value, "", setting->variables[i]);
			return;
		}
	}
	if (setting->profile_name != NULL)
		value = kvt__s3_profile_get(from->file, from->profile, setting->profile_name);
	s3_give(givenp, value != NULL ? S3_FROM_PROFILE : S3_FROM_NOWHERE, value, "", "");
	if (value != NULL)
		(void)snprintf(givenp->where, sizeof(givenp->where), "%.80s: %s of profile %.40s",
			       from->file_path, setting->profile_name, from->profile);
}

int kvt__s3_code_of(enum s3_place place)
{
	return place == S3_FROM_ENV || place == S3_FROM_PROFILE ? KVT_ECONFIG : KVT_EINVAL;
}

/* The beginning of a text on one line. */
static const char *s3_show(const char *text, char *shown, size_t room)
{
	size_t bytes = 0;

	for (; text[bytes] != '\0' && bytes + 1 < room; bytes++)
		shown[bytes] = (char)((unsigned char)text[bytes] < 0x20 || text[bytes] == 0x7f
					      ? '?'
					      : text[bytes]);
	shown[bytes] = '\0';
	return shown;
}

int kvt__s3_refuse(const struct s3_sources *from, const struct s3_given *given,
		   const char *expected)
{
	char shown[101];

	from->host->fail(from->host, "%s: \"%s\", expected %s", given->where,
			 s3_show(given->value, shown, sizeof(shown)), expected);
	return kvt__s3_code_of(given->place);
}

int kvt__s3_refuse_secret(const struct s3_sources *from, const struct s3_given *given,
			  const char *expected)
{
	from->host->fail(from->host, "%s: expected %s", given->where, expected);
	return kvt__s3_code_of(given->place);
}

int kvt__s3_no_memory(const struct s3_sources *from)
{
	from->host->fail(from->host, "options: out of memory");
	return KVT_ENOMEM;
}

void kvt__s3_option_or_default(const struct s3_sources *from, const char *name,
			       struct s3_given *givenp)
{
	const char *value = kvt__s3_option(from, name);

	for (size_t i = 0; value == NULL && kvt__s3_option_specs[i].name != NULL; i++)
		if (strcmp(kvt__s3_option_specs[i].name, name) == 0)
			value = kvt__s3_option_specs[i].default_value;
	s3_give(givenp, S3_FROM_OPTION, value, "option ", name);
}

/* Digits and, where they are allowed, a unit of bytes; false when it is something else or more than
 * `most`. */
static bool s3_parse_number(const char *text, bool units, uint64_t most, uint64_t *valuep)
{
	static const char letters[] = "KMG";
	uint64_t value = 0;
	unsigned shift = 0;

	if (*text < '0' || *text > '9')
		return false;
	for (; *text >= '0' && *text <= '9'; text++) {
		uint64_t digit = (uint64_t)(*text - '0');

		if (digit > most || value > (most - digit) / 10)
			return false;
		value = value * 10 + digit;
	}
	if (*text != '\0' && units) {
		const char *at = strchr(letters, *text & ~0x20);

		if (at == NULL || *at == '\0')
			return false;
		shift = 10 * (unsigned)(at - letters + 1);
		text++;
		if (strcasecmp(text, "B") == 0 || strcasecmp(text, "iB") == 0)
			text += strlen(text);
	}
	if (*text != '\0' || value > most >> shift)
		return false;
	*valuep = value << shift;
	return true;
}

int kvt__s3_number(const struct s3_sources *from, const char *name, uint32_t least, uint32_t most,
		   uint32_t *valuep)
{
	char expected[64];
	struct s3_given given;
	uint64_t value;

	kvt__s3_option_or_default(from, name, &given);
	if (s3_parse_number(given.value, false, most, &value) && value >= least) {
		*valuep = (uint32_t)value;
		return 0;
	}
	(void)snprintf(expected, sizeof(expected), "a number from %u to %u", least, most);
	return kvt__s3_refuse(from, &given, expected);
}

int kvt__s3_bytes(const struct s3_sources *from, const char *name, uint64_t *valuep)
{
	struct s3_given given;

	kvt__s3_option_or_default(from, name, &given);
	if (s3_parse_number(given.value, true, S3_CONFIG_MAX_PART, valuep) &&
	    (*valuep == 0 || *valuep >= S3_CONFIG_MIN_PART))
		return 0;
	return kvt__s3_refuse(from, &given,
			      "a number of bytes from 5M (the least that S3 takes) to 5G, or 0");
}

bool kvt__s3_parse_switch(const char *text, bool *valuep)
{
	static const char *const yes[] = {"on", "true", "yes", "1"};
	static const char *const no[] = {"off", "false", "no", "0"};

	for (size_t i = 0; i < sizeof(yes) / sizeof(yes[0]); i++)
		if (strcasecmp(text, yes[i]) == 0 || strcasecmp(text, no[i]) == 0) {
			*valuep = strcasecmp(text, yes[i]) == 0;
			return true;
		}
	return false;
}

int kvt__s3_switch(const struct s3_sources *from, const char *name, bool *valuep)
{
	struct s3_given given;

	kvt__s3_option_or_default(from, name, &given);
	return kvt__s3_parse_switch(given.value, valuep)
		       ? 0
		       : kvt__s3_refuse(from, &given, "on or off");
}

int kvt__s3_word(const struct s3_sources *from, const struct s3_given *given,
		 const char *const *words, const char *expected, int *indexp)
{
	for (int i = 0; words[i] != NULL; i++)
		if (strcmp(words[i], given->value) == 0) {
			*indexp = i;
			return 0;
		}
	return kvt__s3_refuse(from, given, expected);
}

char *kvt__s3_join(const struct kvt_host *host, const char *a, const char *b, const char *c,
		   const char *d)
{
	const char *parts[] = {a, b, c, d};
	size_t bytes = 1;
	char *text, *at;

	for (size_t i = 0; i < 4; i++)
		bytes += parts[i] != NULL ? strlen(parts[i]) : 0;
	text = at = host->alloc(host, bytes, 1);
	if (text == NULL)
		return NULL;
	for (size_t i = 0; i < 4; i++)
		if (parts[i] != NULL) {
			size_t part = strlen(parts[i]);

			memcpy(at, parts[i], part);
			at += part;
		}
	*at = '\0';
	return text;
}

char *kvt__s3_copy(const struct kvt_host *host, const char *text, size_t bytes)
{
	char *copy = host->alloc(host, bytes + 1, 1);

	if (copy != NULL) {
		memcpy(copy, text, bytes);
		copy[bytes] = '\0';
	}
	return copy;
}

void kvt__s3_wipe(const struct kvt_host *host, char *text)
{
	if (text == NULL)
		return;
	OPENSSL_cleanse(text, strlen(text));
	host->free(host, text);
}
