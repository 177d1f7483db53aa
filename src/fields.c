/* SPDX-License-Identifier: Apache-2.0 */
/* The fields that a namespace is derived from, as vLLM's FileMapper.get_run_config() has them: from
 * a struct with its defaults, or as given in JSON. Any thread. */
#include "canonical.h"

#include <string.h>

#define FIELDS_LEAST   sizeof(struct kvt_fields)
#define STORAGE_FORMAT "storage_format"
#define KVTIER1	       "kvtier1"

const char *const kvt__field_names[] = {
	"blocks_per_file", "canonical_format",	"dcp_size",
	"dtype",	   "inference_engine",	"kv_cache_groups",
	"model_name",	   "parallel_agnostic", "pcp_size",
	"pp_size",	   "replicated_layout", STORAGE_FORMAT,
	"tokens_per_hash", "tp_size",		NULL,
};

static bool is_field(const char *name)
{
	for (size_t i = 0; kvt__field_names[i]; i++) {
		if (strcmp(kvt__field_names[i], name) == 0)
			return true;
	}
	return false;
}

/* Puts a value that is given away; NULL stands for a value that there was no memory for. */
static int put(json_t *object, const char *name, json_t *value)
{
	if (json_object_set_new(object, name, value) == 0)
		return 0;
	return kvt__fail(KVT_ENOMEM, "fields.%s: out of memory", name);
}

static int put_string(json_t *object, const char *name, const char *value)
{
	size_t bad, bytes = strlen(value);

	if (!kvt__utf8_valid(value, bytes, &bad))
		return kvt__fail(KVT_EINVAL, "fields.%s: invalid UTF-8 at byte %zu of %zu", name,
				 bad, bytes);
	return put(object, name, json_stringn_nocheck(value, bytes));
}

/* A string that must be there and not be empty. */
static int put_required(json_t *object, const char *name, const char *value)
{
	if (!value || !*value)
		return kvt__fail(KVT_EINVAL, "fields.%s is %s, expected text", name,
				 value ? "empty" : "NULL");
	return put_string(object, name, value);
}

static int put_optional(json_t *object, const char *name, const char *value)
{
	return value ? put_string(object, name, value) : 0;
}

/* Zero means 1 unless the field is required. */
static int put_count(json_t *object, const char *name, int64_t value, bool required)
{
	if (value < (required ? 1 : 0))
		return kvt__fail(KVT_EINVAL, "fields.%s is %lld, expected %s", name,
				 (long long)value,
				 required ? "at least 1" : "at least 1, or 0 for the default");
	return put(object, name, json_integer(value ? value : 1));
}

/* Sizes of the parallel dimensions: checked even where they are not used. */
static int put_size(json_t *object, const char *name, int64_t value, bool agnostic)
{
	int error = put_count(object, name, value, false);

	return error || !agnostic ? error : put_count(object, name, 1, false);
}

static int check_group(const json_t *group, size_t index)
{
	const json_t *names = json_object_get(group, "layer_names");

	if (!json_is_object(group))
		return kvt__fail(KVT_EINVAL, "fields.kv_cache_groups[%zu] is no object", index);
	if (!json_is_array(names))
		return kvt__fail(KVT_EINVAL,
				 "fields.kv_cache_groups[%zu]: layer_names is no list of strings",
				 index);
	for (size_t i = 0; i < json_array_size(names); i++) {
		if (!json_is_string(json_array_get(names, i)))
			return kvt__fail(KVT_EINVAL,
					 "fields.kv_cache_groups[%zu]: layer_names[%zu] is no "
					 "string",
					 index, i);
	}
	if (!json_is_integer(json_object_get(group, "tokens_per_block")))
		return kvt__fail(KVT_EINVAL,
				 "fields.kv_cache_groups[%zu]: tokens_per_block is no integer",
				 index);
	return 0;
}

static int put_groups(json_t *object, const char *text)
{
	json_t *groups = NULL;
	int error;

	if (!text)
		return put(object, "kv_cache_groups", json_array());
	error = kvt__json_read("fields.kv_cache_groups", text, strlen(text), &groups);
	if (!error && !json_is_array(groups))
		error = kvt__fail(KVT_EINVAL, "fields.kv_cache_groups: expected a JSON list");
	for (size_t i = 0; !error && i < json_array_size(groups); i++)
		error = check_group(json_array_get(groups, i), i);
	if (error) {
		json_decref(groups);
		return error;
	}
	return put(object, "kv_cache_groups", groups);
}

static int put_extra(json_t *object, const char *text)
{
	json_t *extra = NULL, *value;
	const char *name;
	int error;

	if (!text)
		return 0;
	error = kvt__json_read("fields.extra", text, strlen(text), &extra);
	if (!error && !json_is_object(extra))
		error = kvt__fail(KVT_EINVAL, "fields.extra: expected a JSON object");
	if (!error) {
		json_object_foreach(extra, name, value)
		{
			if (is_field(name))
				error = kvt__fail(KVT_EINVAL,
						  "fields.extra: \"%s\" is a field of its own",
						  name);
			else if (json_object_set(object, name, value) != 0)
				error = kvt__fail(KVT_ENOMEM, "fields.extra: out of memory");
			if (error)
				break;
		}
	}
	json_decref(extra);
	return error;
}

/* What every set of fields must have, whichever way it came. */
static int check_object(const json_t *object)
{
	const json_t *model = json_object_get(object, "model_name");
	const json_t *agnostic = json_object_get(object, "parallel_agnostic");

	if (json_object_get(object, KVT__CONFIG_MEMBER))
		return kvt__fail(KVT_EINVAL, "fields: the name \"%s\" is reserved",
				 KVT__CONFIG_MEMBER);
	if (!json_is_string(model) || json_string_length(model) == 0)
		return kvt__fail(KVT_EINVAL, "fields: model_name is %s, expected text",
				 !model			 ? "absent"
				 : json_is_string(model) ? "empty"
							 : "no string");
	if (agnostic && !json_is_boolean(agnostic))
		return kvt__fail(KVT_EINVAL,
				 "fields: parallel_agnostic is no boolean, expected true or false");
	return 0;
}

static int finish(json_t *object, bool pointer_mode)
{
	int error = check_object(object);

	if (!error && pointer_mode && !json_object_get(object, STORAGE_FORMAT))
		error = put_string(object, STORAGE_FORMAT, KVTIER1);
	return error;
}

int kvt__fields_to_json(const struct kvt_fields *given, bool pointer_mode, json_t **objectp)
{
	struct kvt_fields fields;
	json_t *object;
	int error;

	*objectp = NULL;
	error = kvt__copy_options(&fields, sizeof(fields), given, FIELDS_LEAST, "fields");
	if (error)
		return error;
	object = json_object();
	if (!object)
		return kvt__fail(KVT_ENOMEM, "fields: out of memory");

	bool agnostic = fields.parallel_agnostic != 0;
	const char *engine = fields.inference_engine ? fields.inference_engine : "vllm";
	if ((error = put_required(object, "model_name", fields.model_name)) ||
	    (error = put_required(object, "dtype", fields.dtype)) ||
	    (error = put_required(object, "inference_engine", engine)) ||
	    (error = put_groups(object, fields.kv_cache_groups)) ||
	    (error = put_optional(object, "canonical_format", fields.canonical_format)) ||
	    (error = put_optional(object, STORAGE_FORMAT, fields.storage_format)) ||
	    (error = put_count(object, "tokens_per_hash", fields.tokens_per_hash, true)) ||
	    (error = put_count(object, "blocks_per_file", fields.blocks_per_file, false)) ||
	    (error = put_size(object, "tp_size", fields.tp_size, agnostic)) ||
	    (error = put_size(object, "pp_size", fields.pp_size, agnostic)) ||
	    (error = put_size(object, "pcp_size", fields.pcp_size, agnostic)) ||
	    (error = put_size(object, "dcp_size", fields.dcp_size, agnostic)) ||
	    (!agnostic && (error = put(object, "parallel_agnostic", json_false()))) ||
	    (fields.replicated_layout && (error = put(object, "replicated_layout", json_true()))) ||
	    (error = put_extra(object, fields.extra)) || (error = finish(object, pointer_mode))) {
		json_decref(object);
		return error;
	}
	*objectp = object;
	return 0;
}

int kvt__fields_from_text(const char *text, bool pointer_mode, json_t **objectp)
{
	json_t *object;
	int error;

	*objectp = NULL;
	error = kvt__json_read("fields", text, strlen(text), &object);
	if (error)
		return error;
	error = json_is_object(object) ? finish(object, pointer_mode)
				       : kvt__fail(KVT_EINVAL, "fields: expected a JSON object");
	if (error) {
		json_decref(object);
		return error;
	}
	*objectp = object;
	return 0;
}
