/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names: a namespace from its fields, and object names from keys and back.
 *
 *     <base>_r<rank>/<hex[0:3]>/<hex[3:5]>_g<group>/<hex>.bin      fanout=vllm
 *     <base>_r<rank>/<hex[0:3]>/<hex>_g<group>.bin                 fanout=flat
 *
 * where base is <model name, "/" replaced by "_">_<12 hex digits of SHA-256(canonical fields)>, or
 * a ready-made string. Writing a name is on the path of every chunk: no formatted output there.
 */
#include "name.h"

#include <sys/types.h>

#include <sha2.h>
#include <string.h>

#include "canonical.h"

#define MAX_HASH_BYTES	    64u
#define MAX_COMPONENT_BYTES 255u
#define BASE_HEX_BYTES	    6u /* of the digest */
#define POINTER_SUFFIX	    ".kvtier1"
#define SUFFIX		    ".bin"
#define MAX_GROUP_DIGITS    10u

static const char digits[] = "0123456789abcdef";

/* Text in a buffer that is known to be large enough; each returns the place behind it. */
static char *put_text(char *at, const char *text, size_t bytes)
{
	memcpy(at, text, bytes);
	return at + bytes;
}

static char *put_hex(char *at, const uint8_t *bytes, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		*at++ = digits[bytes[i] >> 4];
		*at++ = digits[bytes[i] & 15];
	}
	return at;
}

static char *put_decimal(char *at, uint32_t value)
{
	char reversed[MAX_GROUP_DIGITS];
	size_t count = 0;

	do {
		reversed[count++] = digits[value % 10];
		value /= 10;
	} while (value > 0);
	while (count > 0)
		*at++ = reversed[--count];
	return at;
}

/* What a ready-made namespace consists of. */
static bool is_plain(char c)
{
	return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
	       c == '.' || c == '_' || c == '-';
}

static bool is_control(char c)
{
	return (unsigned char)c < 0x20 || c == 0x7f;
}

/* -1 for what is no lower-case hex digit. */
static int hex_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Reads a decimal number as put_decimal writes it and moves *atp behind it. */
static bool take_decimal(const char **atp, uint32_t *valuep)
{
	const char *at = *atp;
	uint64_t value = 0;

	if (*at < '0' || *at > '9' || (at[0] == '0' && at[1] >= '0' && at[1] <= '9'))
		return false;
	for (; *at >= '0' && *at <= '9'; at++) {
		value = value * 10 + (uint64_t)(*at - '0');
		if (value > UINT32_MAX)
			return false;
	}
	*atp = at;
	*valuep = (uint32_t)value;
	return true;
}

/* Reads the hex of a whole hash, an even number of digits, and moves *atp behind it. */
static bool take_hash(const char **atp, uint8_t *hash, uint32_t *hash_bytesp)
{
	const char *at = *atp;
	uint32_t bytes = 0;

	for (; hex_value(at[0]) >= 0; at += 2) {
		int low = hex_value(at[1]);
		if (low < 0 || bytes == MAX_HASH_BYTES)
			return false;
		hash[bytes++] = (uint8_t)(hex_value(at[0]) << 4 | low);
	}
	*atp = at;
	*hash_bytesp = bytes;
	return bytes > 0;
}

static int check_model(const char *model, size_t bytes)
{
	size_t start = 0;

	for (size_t i = 0; i < bytes; i++) {
		if (is_control(model[i]))
			return kvt__fail(KVT_EINVAL,
					 "model_name: control character 0x%02x at byte %zu, "
					 "expected none",
					 (unsigned char)model[i], i);
	}
	for (size_t i = 0; i <= bytes; i++) {
		if (i < bytes && model[i] != '/')
			continue;
		if (i - start == 2 && memcmp(model + start, "..", 2) == 0)
			return kvt__fail(KVT_EINVAL,
					 "model_name \"%s\": component \"..\" at byte %zu, "
					 "expected none",
					 model, start);
		start = i + 1;
	}
	return 0;
}

static int check_ready_made(const char *name)
{
	if (!*name)
		return kvt__fail(KVT_EINVAL, "namespace is empty, expected [A-Za-z0-9._-]");
	if (*name == '.')
		return kvt__fail(KVT_EINVAL,
				 "namespace \"%s\" starts with a dot, expected any other of "
				 "[A-Za-z0-9._-]",
				 name);
	for (size_t i = 0; name[i]; i++) {
		if (!is_plain(name[i]))
			return kvt__fail(KVT_EINVAL,
					 "namespace \"%s\": character 0x%02x at byte %zu, expected "
					 "[A-Za-z0-9._-]",
					 name, (unsigned char)name[i], i);
	}
	return 0;
}

static void take_digest(struct kvt__namespace *ns)
{
	uint8_t whole[SHA256_DIGEST_LENGTH];
	SHA2_CTX sha;

	SHA256Init(&sha);
	SHA256Update(&sha, (const uint8_t *)ns->canonical, strlen(ns->canonical));
	SHA256Final(whole, &sha);
	memcpy(ns->digest, whole, sizeof(ns->digest));
}

static int no_memory(void)
{
	return kvt__fail(KVT_ENOMEM, "namespace: out of memory");
}

static int init_ready_made(struct kvt__namespace *ns, const struct kvt__env *env,
			   const struct kvt_store_options *options)
{
	const char *name = options->namespace_name;
	const char *suffix = options->mode == KVT_MODE_POINTER ? POINTER_SUFFIX : "";
	size_t name_bytes = strlen(name), suffix_bytes = strlen(suffix);
	int error = check_ready_made(name);

	if (error)
		return error;
	ns->ready_made = true;
	ns->rank = options->rank;
	ns->canonical = kvt__alloc(env, name_bytes + suffix_bytes + 1);
	if (!ns->canonical)
		return no_memory();
	*put_text(put_text(ns->canonical, name, name_bytes), suffix, suffix_bytes) = '\0';
	ns->base_name = kvt__strdup(env, ns->canonical);
	take_digest(ns);
	return ns->base_name ? 0 : no_memory();
}

static int init_object(struct kvt__namespace *ns, const struct kvt__env *env, const json_t *object,
		       uint32_t rank)
{
	const json_t *agnostic = json_object_get(object, "parallel_agnostic");
	const char *model = json_string_value(json_object_get(object, "model_name"));
	size_t model_bytes = json_string_length(json_object_get(object, "model_name"));
	char *at;
	int error;

	ns->rank = json_is_false(agnostic) ? rank : 0;
	error = check_model(model, model_bytes);
	if (!error)
		error = kvt__json_canonical(env, object, &ns->canonical);
	if (error)
		return error;
	take_digest(ns);
	ns->base_name = kvt__alloc(env, model_bytes + 1 + 2 * BASE_HEX_BYTES + 1);
	if (!ns->base_name)
		return no_memory();
	at = put_text(ns->base_name, model, model_bytes);
	for (char *c = ns->base_name; c < at; c++) {
		if (*c == '/')
			*c = '_';
	}
	*at++ = '_';
	*put_hex(at, ns->digest, BASE_HEX_BYTES) = '\0';
	return 0;
}

static int init_prefix(struct kvt__namespace *ns, const struct kvt__env *env)
{
	size_t base_bytes = strlen(ns->base_name), bytes;
	char *at;

	ns->object_prefix = kvt__alloc(env, base_bytes + 2 + MAX_GROUP_DIGITS + 2);
	if (!ns->object_prefix)
		return no_memory();
	at = put_text(ns->object_prefix, ns->base_name, base_bytes);
	at = put_decimal(put_text(at, "_r", 2), ns->rank);
	bytes = (size_t)(at - ns->object_prefix);
	if (bytes > MAX_COMPONENT_BYTES)
		return kvt__fail(KVT_EINVAL,
				 "namespace: folder name \"%.*s...\" has %zu bytes, expected at "
				 "most %u",
				 40, ns->object_prefix, bytes, MAX_COMPONENT_BYTES);
	*at++ = '/';
	*at = '\0';
	ns->object_prefix_bytes = bytes + 1;
	return 0;
}

static int init_source(struct kvt__namespace *ns, const struct kvt__env *env,
		       const struct kvt_store_options *options)
{
	bool pointer = options->mode == KVT_MODE_POINTER;
	json_t *object;
	int error;

	if (options->namespace_name)
		return init_ready_made(ns, env, options);
	if (options->fields_json)
		error = kvt__fields_from_text(options->fields_json, pointer, &object);
	else
		error = kvt__fields_to_json(options->fields, pointer, &object);
	if (error)
		return error;
	if (ns->fanout == KVT__FANOUT_VLLM_OBJECTS &&
	    json_object_set_new(object, "blocks_per_file", json_integer(1)) != 0)
		error = no_memory();
	if (!error)
		error = init_object(ns, env, object, options->rank);
	json_decref(object);
	return error;
}

int kvt__namespace_init(struct kvt__namespace *ns, const struct kvt__env *env,
			const struct kvt_store_options *options, enum kvt__fanout fanout)
{
	int sources = !!options->namespace_name + !!options->fields_json + !!options->fields;
	int error;

	memset(ns, 0, sizeof(*ns));
	ns->fanout = fanout;
	if (sources != 1)
		return kvt__fail(KVT_EINVAL,
				 "namespace: %d of namespace_name, fields_json and fields are set, "
				 "expected exactly one",
				 sources);
	if (options->mode > KVT_MODE_EXACT)
		return kvt__fail(KVT_EINVAL, "mode is %u, expected 0 to %u", options->mode,
				 (unsigned)KVT_MODE_EXACT);
	error = init_source(ns, env, options);
	if (!error)
		error = init_prefix(ns, env);
	if (error)
		kvt__namespace_fini(ns, env);
	return error;
}

void kvt__namespace_fini(struct kvt__namespace *ns, const struct kvt__env *env)
{
	kvt__free(env, ns->canonical);
	kvt__free(env, ns->base_name);
	kvt__free(env, ns->object_prefix);
	memset(ns, 0, sizeof(*ns));
}

int kvt__canonical_json(const struct kvt__env *env, const char *json, char **canonicalp)
{
	json_t *value;
	int error;

	*canonicalp = NULL;
	error = kvt__json_read("fields", json, strlen(json), &value);
	if (error)
		return error;
	if (json_is_object(value))
		error = kvt__json_canonical(env, value, canonicalp);
	else
		error = kvt__fail(KVT_EINVAL, "fields: expected a JSON object");
	json_decref(value);
	return error;
}

int kvt__canonical_fields(const struct kvt__env *env, const struct kvt_fields *fields,
			  char **canonicalp)
{
	json_t *object;
	int error;

	*canonicalp = NULL;
	error = kvt__fields_to_json(fields, false, &object);
	if (error)
		return error;
	error = kvt__json_canonical(env, object, canonicalp);
	json_decref(object);
	return error;
}

size_t kvt__object_name_max(const struct kvt__namespace *ns)
{
	/* "abc/" "de_g4294967295/" 128 digits ".bin" and the NUL; the flat form is shorter. */
	return ns->object_prefix_bytes + 4 + 4 + MAX_GROUP_DIGITS + 1 + 2 * MAX_HASH_BYTES +
	       sizeof(SUFFIX);
}

size_t kvt__object_name(const struct kvt__namespace *ns, const void *hash, uint32_t hash_bytes,
			uint32_t group, char *buffer)
{
	char hex[2 * MAX_HASH_BYTES];
	size_t bytes = (size_t)(put_hex(hex, hash, hash_bytes) - hex);
	size_t first = bytes < 3 ? bytes : 3, second = bytes < 5 ? bytes - first : 2;
	char *at = put_text(buffer, ns->object_prefix, ns->object_prefix_bytes);

	at = put_text(at, hex, first);
	*at++ = '/';
	if (ns->fanout != KVT__FANOUT_FLAT) {
		at = put_text(at, hex + first, second);
		at = put_decimal(put_text(at, "_g", 2), group);
		*at++ = '/';
		at = put_text(at, hex, bytes);
	} else {
		at = put_text(at, hex, bytes);
		at = put_decimal(put_text(at, "_g", 2), group);
	}
	at = put_text(at, SUFFIX, sizeof(SUFFIX)) - 1;
	return (size_t)(at - buffer);
}

/* Reads what follows the rank's folder. The folders only repeat what the rest says: the caller
 * compares the whole name with the one that the key has. */
static bool take_object(const char *at, enum kvt__fanout fanout, uint8_t *hash,
			uint32_t *hash_bytesp, uint32_t *groupp)
{
	at = strchr(at, '/');
	if (!at)
		return false;
	at++;
	if (fanout != KVT__FANOUT_FLAT) {
		while (hex_value(*at) >= 0)
			at++;
		if (strncmp(at, "_g", 2) != 0)
			return false;
		at += 2;
		if (!take_decimal(&at, groupp) || *at++ != '/')
			return false;
		if (!take_hash(&at, hash, hash_bytesp))
			return false;
	} else {
		if (!take_hash(&at, hash, hash_bytesp) || strncmp(at, "_g", 2) != 0)
			return false;
		at += 2;
		if (!take_decimal(&at, groupp))
			return false;
	}
	return strcmp(at, SUFFIX) == 0;
}

/* Whether `name`, without its prefix, is what a key of this fan-out has. */
static bool parse(const char *name, enum kvt__fanout fanout, uint8_t *hash, uint32_t *hash_bytesp,
		  uint32_t *groupp)
{
	/* An empty prefix: only the part behind it is written. */
	struct kvt__namespace rest = {.object_prefix = (char[]){""}, .fanout = fanout};
	char again[4 + 4 + MAX_GROUP_DIGITS + 1 + 2 * MAX_HASH_BYTES + sizeof(SUFFIX)];

	if (!take_object(name, fanout, hash, hash_bytesp, groupp))
		return false;
	(void)kvt__object_name(&rest, hash, *hash_bytesp, *groupp, again);
	return strcmp(name, again) == 0;
}

bool kvt__object_name_parse(const struct kvt__namespace *ns, const char *name, uint8_t *hash,
			    uint32_t *hash_bytes, uint32_t *group)
{
	if (strncmp(name, ns->object_prefix, ns->object_prefix_bytes) != 0)
		return false;
	return parse(name + ns->object_prefix_bytes, ns->fanout, hash, hash_bytes, group);
}

/* Whether bytes are what a namespace may be called: a ready-made string, or a model name and 12 hex
 * digits. */
static bool is_base(const char *base, size_t bytes)
{
	bool ready_made = bytes > 0 && base[0] != '.';

	if (bytes > MAX_COMPONENT_BYTES)
		return false;
	for (size_t i = 0; i < bytes; i++) {
		if (is_control(base[i]))
			return false;
		if (!is_plain(base[i]))
			ready_made = false;
	}
	if (ready_made)
		return true;
	if (bytes < 1 + 1 + 2 * BASE_HEX_BYTES || base[bytes - 2 * BASE_HEX_BYTES - 1] != '_')
		return false;
	for (size_t i = bytes - 2 * BASE_HEX_BYTES; i < bytes; i++) {
		if (hex_value(base[i]) < 0)
			return false;
	}
	return true;
}

bool kvt__object_name_any(const char *name)
{
	const char *slash = strchr(name, '/'), *at = slash;
	uint8_t hash[MAX_HASH_BYTES];
	uint32_t hash_bytes, group, rank;

	if (!slash || (size_t)(slash - name) > MAX_COMPONENT_BYTES)
		return false;
	while (at > name && at[-1] >= '0' && at[-1] <= '9')
		at--;
	if (at - name < 3 || memcmp(at - 2, "_r", 2) != 0 ||
	    !is_base(name, (size_t)(at - 2 - name)))
		return false;
	if (!take_decimal(&at, &rank) || at != slash)
		return false;
	return parse(slash + 1, KVT__FANOUT_VLLM, hash, &hash_bytes, &group) ||
	       parse(slash + 1, KVT__FANOUT_FLAT, hash, &hash_bytes, &group);
}
