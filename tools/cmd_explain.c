/* SPDX-License-Identifier: Apache-2.0 */
/* Commands that touch no store: what a key is called, and what a transfer becomes. */
#include "cli.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static int name_one(struct kvt_store *store, const char *text, bool json)
{
	char name[KVT_NAME_BYTES];
	struct cli_key key;
	struct kvt_key view;
	int status = cli_key_argument(text, &key);

	if (status < 0)
		return status;
	view = cli_key_view(&key);
	status = kvt_store_object_name(store, &view, name, sizeof(name));
	if (status < 0)
		return cli_library_error(status);
	if (json)
		cli_json_print(stdout,
			       json_pack("{s:s, s:o}", "key", text, "name", cli_json_text(name)));
	else
		puts(name);
	return 0;
}

int cmd_name(int argc, char **argv)
{
	struct cli_common common = {0};
	struct kvt_store *store = NULL;
	int operands, status;

	status = cli_parse(argc, argv, NULL, &common, 1, -1, &operands);
	if (status < 0 || common.help)
		goto out;
	/* Names do not depend on the place: without --store nothing outside the process is touched.
	 */
	status = cli_store_open(&common, KVT_MODE_EXACT, "mem:", NULL, &store);
	for (int i = 1; status == 0 && i <= operands; i++)
		status = name_one(store, argv[i], common.json);
out:
	kvt_store_close(store);
	cli_common_fini(&common);
	return cli_output_end(kvt_error_exit_status(status));
}

#define PLAN_FILE_MAX_BYTES (64 << 20)
#define PLAN_KEYS_MAX	    (1 << 20)

/* A transfer read from JSON; the arrays are its own. */
struct plan_input {
	struct kvt_transfer transfer;
	uint64_t *block_counts, *ptrs, *sizes;
	uint32_t *ref_counts;
	int64_t *block_indices;
	struct kvt_key *keys;
	struct cli_key *key_memory;
	bool is_store;
	char reason[512];
};

static int plan_refuse(struct plan_input *input, const char *format, ...) KVT_PRINTF(2, 3);

static int plan_refuse(struct plan_input *input, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(input->reason, sizeof(input->reason), format, arguments);
	va_end(arguments);
	return KVT_EINVAL;
}

/* The array `name` of integers from min to max; *itemsp is allocated, as signed 64-bit values. */
static int plan_array(struct plan_input *input, const json_t *root, const char *name, int64_t min,
		      int64_t max, int64_t **itemsp, size_t *countp)
{
	const json_t *list = json_object_get(root, name), *item;
	size_t i;

	if (!json_is_array(list))
		return plan_refuse(input, "%s: %s, expected a list of integers", name,
				   list == NULL ? "absent" : "not a list");
	*countp = json_array_size(list);
	*itemsp = calloc(*countp + 1, sizeof(**itemsp));
	if (*itemsp == NULL) {
		plan_refuse(input, "%s: %s", name, kvt_error_text(KVT_ENOMEM));
		return KVT_ENOMEM;
	}
	json_array_foreach(list, i, item)
	{
		if (!json_is_integer(item))
			return plan_refuse(input, "%s[%zu]: not an integer, expected one", name, i);
		(*itemsp)[i] = json_integer_value(item);
		if ((*itemsp)[i] < min || (*itemsp)[i] > max)
			return plan_refuse(input, "%s[%zu]: %lld, expected %lld to %lld", name, i,
					   (long long)(*itemsp)[i], (long long)min, (long long)max);
	}
	return 0;
}

static int plan_integer(struct plan_input *input, const json_t *root, const char *name, int64_t max,
			int64_t *valuep)
{
	const json_t *value = json_object_get(root, name);

	if (!json_is_integer(value))
		return plan_refuse(input, "%s: %s, expected an integer", name,
				   value == NULL ? "absent" : "not an integer");
	*valuep = json_integer_value(value);
	if (*valuep < 0 || *valuep > max)
		return plan_refuse(input, "%s: %lld, expected 0 to %lld", name, (long long)*valuep,
				   (long long)max);
	return 0;
}

/* Either "keys", a list of HEX or HEX:GROUP, or "n_keys" keys that all differ. */
static int plan_keys(struct plan_input *input, const json_t *root)
{
	const json_t *list = json_object_get(root, "keys");
	int64_t count;
	char reason[128];
	int status;

	if (list != NULL) {
		if (!json_is_array(list))
			return plan_refuse(input, "keys: not a list, expected HEX or HEX:GROUP");
		count = (int64_t)json_array_size(list);
	} else {
		status = plan_integer(input, root, "n_keys", PLAN_KEYS_MAX, &count);
		if (status < 0)
			return status;
	}
	input->keys = calloc((size_t)count + 1, sizeof(*input->keys));
	input->key_memory = calloc((size_t)count + 1, sizeof(*input->key_memory));
	if (input->keys == NULL || input->key_memory == NULL) {
		plan_refuse(input, "keys: %s", kvt_error_text(KVT_ENOMEM));
		return KVT_ENOMEM;
	}
	for (int64_t i = 0; i < count; i++) {
		struct cli_key *key = &input->key_memory[i];

		if (list != NULL) {
			const char *text = json_string_value(json_array_get(list, (size_t)i));

			if (text == NULL)
				return plan_refuse(input, "keys[%lld]: not a string, expected HEX",
						   (long long)i);
			status = cli_key_parse(text, key, reason, sizeof(reason));
			if (status < 0)
				return plan_refuse(input, "keys[%lld]: '%.200s': %s", (long long)i,
						   text, reason);
		} else {
			key->hash_bytes = 8;
			for (int byte = 0; byte < 8; byte++)
				key->hash[byte] = (uint8_t)((uint64_t)i >> (56 - 8 * byte));
		}
		input->keys[i] = cli_key_view(key);
	}
	input->transfer.keys = input->keys;
	input->transfer.key_count = (uint64_t)count;
	return 0;
}

static int plan_groups(struct plan_input *input, const json_t *root)
{
	int64_t *blocks = NULL, *refs = NULL;
	size_t count, others;
	int status;

	status = plan_array(input, root, "group_block_counts", 0, INT64_MAX, &blocks, &count);
	input->block_counts = (uint64_t *)blocks;
	if (status < 0)
		return status;
	status = plan_array(input, root, "group_data_ref_counts", 0, UINT32_MAX, &refs, &others);
	if (status == 0 && others != count)
		status = plan_refuse(input, "group_data_ref_counts: %zu entries, expected %zu",
				     others, count);
	if (status == 0) {
		input->ref_counts = calloc(count + 1, sizeof(*input->ref_counts));
		if (input->ref_counts == NULL) {
			plan_refuse(input, "group_data_ref_counts: %s", kvt_error_text(KVT_ENOMEM));
			status = KVT_ENOMEM;
		}
		for (size_t i = 0; status == 0 && i < count; i++)
			input->ref_counts[i] = (uint32_t)refs[i];
	}
	free(refs);
	if (status < 0)
		return status;
	status = plan_array(input, root, "block_indices", INT64_MIN, INT64_MAX,
			    &input->block_indices, &others);
	if (status < 0)
		return status;
	if (others != count)
		return plan_refuse(input, "block_indices: %zu entries, expected %zu", others,
				   count);
	input->transfer.group_count = (uint32_t)count;
	input->transfer.group_block_counts = input->block_counts;
	input->transfer.group_data_ref_counts = input->ref_counts;
	input->transfer.block_indices = input->block_indices;
	return 0;
}

static int plan_read(struct plan_input *input, const json_t *root)
{
	int64_t blocks_per_chunk, *ptrs = NULL, *sizes = NULL;
	const char *op = "store";
	size_t count, others;
	int status;

	if (!json_is_object(root))
		return plan_refuse(input, "FILE.json: not an object, expected a transfer");
	if (json_object_get(root, "op") != NULL) {
		op = json_string_value(json_object_get(root, "op"));
		if (op == NULL || (strcmp(op, "store") != 0 && strcmp(op, "load") != 0))
			return plan_refuse(input, "op: expected \"store\" or \"load\"");
	}
	input->is_store = strcmp(op, "store") == 0;
	status = plan_integer(input, root, "blocks_per_chunk", UINT32_MAX, &blocks_per_chunk);
	if (status == 0)
		status = plan_groups(input, root);
	if (status < 0)
		return status;
	input->transfer.blocks_per_chunk = (uint32_t)blocks_per_chunk;
	status = plan_array(input, root, "ptrs", 0, INT64_MAX, &ptrs, &count);
	input->ptrs = (uint64_t *)ptrs;
	if (status < 0)
		return status;
	status = plan_array(input, root, "sizes", 0, INT64_MAX, &sizes, &others);
	input->sizes = (uint64_t *)sizes;
	if (status < 0)
		return status;
	if (others != count)
		return plan_refuse(input, "sizes: %zu entries, expected as many as ptrs, %zu",
				   others, count);
	input->transfer.ptrs = input->ptrs;
	input->transfer.sizes = input->sizes;
	input->transfer.copy_count = count;
	return plan_keys(input, root);
}

static int plan_chunk(void *context, const struct kvt_chunk_plan *chunk)
{
	json_t *chunks = context, *ops = json_array();

	for (uint64_t i = 0; i < chunk->copy_count; i++)
		json_array_append_new(ops,
				      json_pack("[o, o, o]", cli_json_u64(chunk->copies[i].ptr),
						cli_json_u64(chunk->copies[i].size),
						cli_json_u64(chunk->copies[i].offset)));
	return json_array_append_new(chunks, json_pack("{s:I, s:o}", "key_index",
						       (json_int_t)chunk->key_index, "ops", ops)) <
			       0
		       ? KVT_ENOMEM
		       : 0;
}

static void plan_input_fini(struct plan_input *input)
{
	free(input->block_counts);
	free(input->ref_counts);
	free(input->block_indices);
	free(input->ptrs);
	free(input->sizes);
	free(input->keys);
	free(input->key_memory);
}

/* Fills input->reason when it fails. */
static int plan_run(struct plan_input *input, const char *text, size_t bytes, json_t *chunks)
{
	json_error_t error;
	json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
	int status;

	if (root == NULL)
		return plan_refuse(input, "FILE.json: line %d, column %d: %s", error.line,
				   error.column, error.text);
	status = plan_read(input, root);
	if (status == 0) {
		status = kvt_plan_transfer(&input->transfer, input->is_store, plan_chunk, chunks);
		if (status < 0)
			plan_refuse(input, "%s",
				    status == KVT_ENOMEM ? kvt_error_text(status)
							 : kvt_error_detail());
	}
	json_decref(root);
	return status;
}

int cmd_plan(int argc, char **argv)
{
	struct cli_common common = {.no_store = true};
	struct plan_input input = {.transfer = KVT_INIT(input.transfer)};
	json_t *chunks = json_array();
	char *text = NULL;
	size_t bytes;
	int operands, status;

	status = cli_parse(argc, argv, NULL, &common, 1, 1, &operands);
	if (status < 0 || common.help)
		goto out;
	status = cli_file_read("FILE.json", argv[1], PLAN_FILE_MAX_BYTES, &text, &bytes);
	if (status < 0)
		plan_refuse(&input, "FILE.json: '%.300s' cannot be read", argv[1]);
	else
		status = plan_run(&input, text, bytes, chunks);
	if (status < 0) {
		cli_json_print(stdout, json_pack("{s:o}", "error", cli_json_text(input.reason)));
	} else {
		cli_json_print(stdout, chunks);
		chunks = NULL;
	}
out:
	json_decref(chunks);
	free(text);
	plan_input_fini(&input);
	cli_common_fini(&common);
	return cli_output_end(kvt_error_exit_status(status));
}
