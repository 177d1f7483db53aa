/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store_config of vLLM's object tier, taken as it stands: its members, those of the NIXL plugin
 * below it, and what has been asked for there. What only tunes that plugin is accepted and said to
 * have no effect; what nobody knows is refused, for a mistyped name would silently go to another
 * place. Values are never repeated in messages, for any of them may be a secret in the wrong place.
 */
#include <stdio.h>
#include <string.h>

#include <jansson.h>
#include <openssl/crypto.h>

#include "config_parts.h"

#define S3_STORE_MAX_NAME 64

enum s3_store_kind {
	S3_STORE_TEXT = 0,
	S3_STORE_VIRTUAL,     /* a switch: addressing */
	S3_STORE_CHECKSUMS,   /* required or supported: checksum */
	S3_STORE_ACCELERATED, /* a switch that must be off */
	S3_STORE_NESTED,      /* an object of the same members */
	S3_STORE_IDLE,	      /* no effect */
};

static const struct s3_store_name {
	const char *name;
	enum s3_store_kind kind;
	enum s3_store_key key;
} s3_store_names[] = {
	{"bucket", S3_STORE_TEXT, S3_STORE_BUCKET},
	{"endpoint_override", S3_STORE_TEXT, S3_STORE_ENDPOINT},
	{"scheme", S3_STORE_TEXT, S3_STORE_SCHEME},
	{"access_key", S3_STORE_TEXT, S3_STORE_ACCESS_KEY},
	{"secret_key", S3_STORE_TEXT, S3_STORE_SECRET_KEY},
	{"session_token", S3_STORE_TEXT, S3_STORE_SESSION_TOKEN},
	{"region", S3_STORE_TEXT, S3_STORE_REGION},
	{"ca_bundle", S3_STORE_TEXT, S3_STORE_CA_BUNDLE},
	{"use_virtual_addressing", S3_STORE_VIRTUAL, S3_STORE_ADDRESSING},
	{"req_checksum", S3_STORE_CHECKSUMS, S3_STORE_CHECKSUM},
	{"accelerated", S3_STORE_ACCELERATED, S3_STORE_KEYS},
	{"backend_params", S3_STORE_NESTED, S3_STORE_KEYS},
	{"extra_params", S3_STORE_NESTED, S3_STORE_KEYS},
	{"resp_checksum", S3_STORE_IDLE, S3_STORE_KEYS},
	{"num_threads", S3_STORE_IDLE, S3_STORE_KEYS},
	{"crtMinLimit", S3_STORE_IDLE, S3_STORE_KEYS},
	{"crtPartSize", S3_STORE_IDLE, S3_STORE_KEYS},
	{"throughput_target_gbps", S3_STORE_IDLE, S3_STORE_KEYS},
	{"max_dram_registration_bytes", S3_STORE_IDLE, S3_STORE_KEYS},
	{"type", S3_STORE_IDLE, S3_STORE_KEYS},
};
#define S3_STORE_NAMES (sizeof(s3_store_names) / sizeof(s3_store_names[0]))

/* What is read, while it is. */
struct s3_store_reader {
	struct s3_store_config *store;
	const struct s3_sources *from;
	char idle[200]; /* names without effect */
};

static size_t s3_least(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* How many characters must be changed, added or dropped. */
static size_t s3_distance(const char *a, const char *b)
{
	size_t row[S3_STORE_MAX_NAME + 1];
	size_t a_bytes = strnlen(a, S3_STORE_MAX_NAME), b_bytes = strnlen(b, S3_STORE_MAX_NAME);

	for (size_t j = 0; j <= b_bytes; j++)
		row[j] = j;
	for (size_t i = 1; i <= a_bytes; i++) {
		size_t corner = row[0];

		row[0] = i;
		for (size_t j = 1; j <= b_bytes; j++) {
			size_t above = row[j];

			row[j] = s3_least(s3_least(above, row[j - 1]) + 1,
					  corner + (a[i - 1] != b[j - 1]));
			corner = above;
		}
	}
	return row[b_bytes];
}

static int s3_unknown_name(const struct s3_sources *from, const char *name)
{
	const char *nearest = s3_store_names[0].name;
	size_t least = SIZE_MAX;

	for (size_t i = 0; i < S3_STORE_NAMES; i++) {
		size_t distance = s3_distance(name, s3_store_names[i].name);

		if (distance < least) {
			least = distance;
			nearest = s3_store_names[i].name;
		}
	}
	from->host->fail(from->host,
			 "option store_config: %.64s: unknown member, the nearest known is %s",
			 name, nearest);
	return KVT_EINVAL;
}

static int s3_bad_member(const struct s3_sources *from, const char *name, const char *expected)
{
	from->host->fail(from->host, "option store_config: %s: expected %s", name, expected);
	return KVT_EINVAL;
}

/* true, "true" and so on. */
static bool s3_switch_of(const json_t *value, bool *onp)
{
	*onp = json_is_true(value);
	if (json_is_string(value))
		return kvt__s3_parse_switch(json_string_value(value), onp);
	return json_is_boolean(value);
}

static int s3_keep(struct s3_store_reader *reader, const struct s3_store_name *known,
		   const char *text)
{
	const struct kvt_host *host = reader->from->host;
	char **valuep = &reader->store->values[known->key];

	if (*valuep != NULL)
		return s3_bad_member(reader->from, known->name, "it once");
	*valuep = kvt__s3_copy(host, text, strlen(text));
	return *valuep != NULL ? 0 : kvt__s3_no_memory(reader->from);
}

static void s3_note_idle(struct s3_store_reader *reader, const char *name)
{
	size_t used = strlen(reader->idle);

	(void)snprintf(reader->idle + used, sizeof(reader->idle) - used, "%s%s",
		       used > 0 ? ", " : "", name);
}

static int s3_take_member(struct s3_store_reader *reader, const struct s3_store_name *known,
			  const json_t *value)
{
	const char *text = json_string_value(value);
	bool on;

	if (json_is_null(value) || (text != NULL && *text == '\0'))
		return 0;
	switch (known->kind) {
	case S3_STORE_TEXT:
		if (text == NULL || strlen(text) != json_string_length(value))
			return s3_bad_member(reader->from, known->name, "a string");
		return s3_keep(reader, known, text);
	case S3_STORE_VIRTUAL:
		if (!s3_switch_of(value, &on))
			return s3_bad_member(reader->from, known->name, "true or false");
		return s3_keep(reader, known, on ? "virtual" : "path");
	case S3_STORE_CHECKSUMS:
		if (text == NULL ||
		    (strcmp(text, "required") != 0 && strcmp(text, "supported") != 0))
			return s3_bad_member(reader->from, known->name, "required or supported");
		return s3_keep(reader, known, strcmp(text, "supported") == 0 ? "s3" : "none");
	case S3_STORE_ACCELERATED:
		if (!s3_switch_of(value, &on) || on)
			return s3_bad_member(reader->from, known->name,
					     "false: data goes by HTTP here, not by RDMA");
		return 0;
	default:
		s3_note_idle(reader, known->name);
		return 0;
	}
}

static int s3_take_members(struct s3_store_reader *reader, json_t *object, bool is_nested)
{
	const char *name;
	json_t *value;
	int error = 0;

	json_object_foreach(object, name, value)
	{
		const struct s3_store_name *known = NULL;

		for (size_t i = 0; i < S3_STORE_NAMES && known == NULL; i++)
			if (strcmp(s3_store_names[i].name, name) == 0)
				known = &s3_store_names[i];
		if (known == NULL)
			return s3_unknown_name(reader->from, name);
		if (known->kind != S3_STORE_NESTED)
			error = s3_take_member(reader, known, value);
		else if (json_is_object(value) && !is_nested)
			error = s3_take_members(reader, value, true);
		else if (!json_is_null(value))
			error = s3_bad_member(reader->from, name, "an object, not within another");
		if (error != 0)
			return error;
	}
	return 0;
}

/* The parser's copies may be secrets. */
static void s3_wipe_strings(json_t *value)
{
	const char *name;
	json_t *member;

	if (json_is_string(value))
		OPENSSL_cleanse((char *)(uintptr_t)json_string_value(value),
				json_string_length(value));
	json_object_foreach(value, name, member) s3_wipe_strings(member);
}

int kvt__s3_store_config_init(struct s3_store_config *store, const struct s3_sources *from,
			      const char *text)
{
	struct s3_store_reader reader = {.store = store, .from = from};
	const struct kvt_host *host = from->host;
	json_error_t where;
	json_t *object;
	int error;

	memset(store, 0, sizeof(*store));
	if (text == NULL)
		return 0;
	if (strnlen(text, S3_CONFIG_MAX_STORE + 1) > S3_CONFIG_MAX_STORE) {
		host->fail(host, "option store_config: longer than %u bytes, expected at most that",
			   S3_CONFIG_MAX_STORE);
		return KVT_EINVAL;
	}
	object = json_loads(text, JSON_REJECT_DUPLICATES, &where);
	if (object == NULL && json_error_code(&where) == json_error_out_of_memory)
		return kvt__s3_no_memory(from);
	if (object == NULL || !json_is_object(object)) {
		/* The parser's message may have a secret in it. */
		host->fail(host,
			   "option store_config: line %d, column %d: expected a JSON object whose "
			   "members are there once",
			   object == NULL ? where.line : 1, object == NULL ? where.column : 1);
		s3_wipe_strings(object);
		json_decref(object);
		return KVT_EINVAL;
	}
	error = s3_take_members(&reader, object, false);
	s3_wipe_strings(object);
	json_decref(object);
	if (error != 0)
		kvt__s3_store_config_fini(store, host);
	else if (reader.idle[0] != '\0')
		host->log(host, KVT_HOST_INFO, "s3 store_config",
			  "option store_config: %s: no effect here", reader.idle);
	return error;
}

void kvt__s3_store_config_fini(struct s3_store_config *store, const struct kvt_host *host)
{
	for (size_t i = 0; i < S3_STORE_KEYS; i++)
		kvt__s3_wipe(host, store->values[i]);
	memset(store, 0, sizeof(*store));
}
