/* SPDX-License-Identifier: Apache-2.0 */
/* Commands about objects that are there: stat, ls, rm, verify. */
#include "cli.h"

#include <stdlib.h>
#include <string.h>

static const char *state_name(uint32_t state)
{
	static const char *const names[] = {"whole",   "partial", "mismatch",
					    "foreign", "corrupt", "unknown_format"};

	return state < sizeof(names) / sizeof(names[0]) ? names[state] : "?";
}

/* What a command about an object in this state exits with. */
static int state_error(uint32_t state)
{
	switch (state) {
	case KVT_OBJECT_WHOLE:
	case KVT_OBJECT_PARTIAL:
		return 0;
	case KVT_OBJECT_MISMATCH:
		return KVT_EMISMATCH;
	case KVT_OBJECT_FOREIGN:
		return KVT_EFOREIGN;
	case KVT_OBJECT_UNKNOWN_FORMAT:
		return KVT_EFORMAT;
	default:
		return KVT_ECORRUPT;
	}
}

static json_t *ref_bytes_json(const struct kvt_object_stat *stat)
{
	json_t *list = json_array();

	for (uint32_t i = 0; stat->ref_bytes != NULL && i < stat->ref_count; i++)
		json_array_append_new(list, cli_json_u64(stat->ref_bytes[i]));
	return list;
}

static void stat_print_json(const char *text, const char *name, const struct kvt_object_stat *stat)
{
	char hash[129], digest[17], *presence;
	json_t *object;

	cli_hex(stat->hash, stat->hash_bytes <= 64 ? stat->hash_bytes : 64, hash);
	cli_hex(stat->namespace_digest, 8, digest);
	object = json_pack("{s:s, s:o, s:s, s:o, s:o, s:o, s:o}", "key", text, "name",
			   cli_json_text(name), "state", state_name(stat->state), "object_bytes",
			   cli_json_u64(stat->object_bytes), "payload_bytes",
			   cli_json_u64(stat->payload_bytes), "age_s",
			   cli_json_seconds(stat->age_ns), "access_age_s",
			   cli_json_seconds(stat->access_age_ns));
	if (object != NULL && (stat->state <= KVT_OBJECT_MISMATCH))
		json_object_update_new(
			object,
			json_pack("{s:I, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:s, s:o}",
				  "format_version", (json_int_t)stat->format_version,
				  "trailer_bytes", cli_json_u64(stat->trailer_bytes),
				  "blocks_per_chunk", (json_int_t)stat->blocks_per_chunk, "refs",
				  (json_int_t)stat->ref_count, "slots",
				  (json_int_t)stat->slot_count, "present_slots",
				  (json_int_t)stat->present_slots, "rank", (json_int_t)stat->rank,
				  "group", (json_int_t)stat->group, "hash", hash,
				  "namespace_digest", digest, "ref_bytes", ref_bytes_json(stat)));
	if (object != NULL && stat->state == KVT_OBJECT_PARTIAL && stat->presence != NULL) {
		size_t bytes = ((size_t)stat->slot_count + 7) / 8;

		presence = malloc(2 * bytes + 1);
		if (presence != NULL) {
			cli_hex(stat->presence, bytes, presence);
			json_object_set_new(object, "presence", json_string(presence));
		}
		free(presence);
	}
	cli_json_print(stdout, object);
}

static void stat_print_text(const char *text, const char *name, const struct kvt_object_stat *stat)
{
	char size[32], age[32], access[32], hash[129];
	uint64_t chunk = 0;

	printf("%s %s: %s, %s, written %s ago, loaded %s ago\n", text, name,
	       state_name(stat->state), cli_bytes_text(stat->object_bytes, size, sizeof(size)),
	       cli_age_text(stat->age_ns, age, sizeof(age)),
	       cli_age_text(stat->access_age_ns, access, sizeof(access)));
	if (stat->state > KVT_OBJECT_MISMATCH)
		return;
	for (uint32_t i = 0; stat->ref_bytes != NULL && i < stat->ref_count; i++)
		chunk += stat->ref_bytes[i];
	cli_hex(stat->hash, stat->hash_bytes <= 64 ? stat->hash_bytes : 64, hash);
	printf("  payload %llu bytes, trailer %llu bytes, format %u\n",
	       (unsigned long long)stat->payload_bytes, (unsigned long long)stat->trailer_bytes,
	       stat->format_version);
	printf("  %u block%s of %u ref%s (%llu bytes a block), %u of %u slots there\n",
	       stat->blocks_per_chunk, stat->blocks_per_chunk == 1 ? "" : "s", stat->ref_count,
	       stat->ref_count == 1 ? "" : "s", (unsigned long long)chunk, stat->present_slots,
	       stat->slot_count);
	printf("  hash %s, group %u, rank %u\n", hash, stat->group, stat->rank);
}

static int stat_one(struct kvt_store *store, const char *text, bool json)
{
	struct kvt_object_stat stat = KVT_INIT(stat);
	char name[KVT_NAME_BYTES];
	struct cli_key key;
	struct kvt_key view;
	int status;

	status = cli_key_argument(text, &key);
	if (status < 0)
		return status;
	view = cli_key_view(&key);
	status = kvt_store_object_name(store, &view, name, sizeof(name));
	if (status >= 0)
		status = kvt_store_stat(store, &view, &stat);
	if (status < 0)
		return cli_library_error(status);
	if (json)
		stat_print_json(text, name, &stat);
	else
		stat_print_text(text, name, &stat);
	status = state_error(stat.state);
	kvt_object_stat_clear(&stat);
	return status;
}

static int rm_one(struct kvt_store *store, const char *text, bool json)
{
	char name[KVT_NAME_BYTES];
	struct cli_key key;
	struct kvt_key view;
	int status;

	status = cli_key_argument(text, &key);
	if (status < 0)
		return status;
	view = cli_key_view(&key);
	status = kvt_store_object_name(store, &view, name, sizeof(name));
	if (status >= 0)
		status = kvt_store_remove(store, &view);
	if (status < 0)
		return cli_library_error(status);
	if (json)
		cli_json_print(stdout, json_pack("{s:s, s:o, s:b}", "key", text, "name",
						 cli_json_text(name), "removed", 1));
	else
		printf("removed %s %s\n", text, name);
	return 0;
}

/* Runs `one` for each KEY; all are tried, the first failure decides the exit status. */
static int keys_run(int argc, char **argv,
		    int (*one)(struct kvt_store *store, const char *text, bool json))
{
	struct cli_common common = {0};
	struct kvt_store *store = NULL;
	struct cli_key key;
	int operands, status;

	status = cli_parse(argc, argv, NULL, &common, 1, -1, &operands);
	if (status < 0 || common.help)
		goto out;
	/* A slip in the last key should not be found after the others are gone. */
	for (int i = 1; i <= operands; i++) {
		status = cli_key_argument(argv[i], &key);
		if (status < 0)
			goto out;
	}
	status = cli_store_open(&common, KVT_MODE_EXACT, NULL, NULL, &store);
	if (status < 0)
		goto out;
	for (int i = 1; i <= operands; i++) {
		int failed = one(store, argv[i], common.json);

		if (status == 0)
			status = failed;
	}
out:
	kvt_store_close(store);
	cli_common_fini(&common);
	return cli_output_end(kvt_error_exit_status(status));
}

int cmd_stat(int argc, char **argv)
{
	return keys_run(argc, argv, stat_one);
}

int cmd_rm(int argc, char **argv)
{
	return keys_run(argc, argv, rm_one);
}

struct listing {
	bool json, with_details;
	uint64_t objects, bytes;
};

static int listing_entry(void *context, const struct kvt_list_entry *entry)
{
	struct listing *listing = context;
	char key[CLI_KEY_TEXT] = "-", age[32], access[32];

	listing->objects++;
	listing->bytes += entry->object_bytes;
	if (entry->key.hash != NULL)
		cli_key_text(&entry->key, key, sizeof(key));
	if (listing->json) {
		json_t *key_json = entry->key.hash != NULL ? json_string(key) : json_null();

		cli_json_print(stdout, json_pack("{s:o, s:o, s:o, s:o, s:o}", "key", key_json,
						 "name", cli_json_text(entry->name), "object_bytes",
						 cli_json_u64(entry->object_bytes), "age_s",
						 cli_json_seconds(entry->age_ns), "access_age_s",
						 cli_json_seconds(entry->access_age_ns)));
	} else if (listing->with_details) {
		printf("%12llu %10s %10s  %s  ", (unsigned long long)entry->object_bytes,
		       cli_age_text(entry->age_ns, age, sizeof(age)),
		       cli_age_text(entry->access_age_ns, access, sizeof(access)), key);
		cli_text_print(stdout, entry->name);
		putchar('\n');
	} else if (entry->key.hash != NULL) {
		puts(key);
	} else {
		fputs("- ", stdout);
		cli_text_print(stdout, entry->name);
		putchar('\n');
	}
	return ferror(stdout) ? KVT_EIO : 0;
}

int cmd_ls(int argc, char **argv)
{
	struct listing listing = {0};
	const struct cli_option options[] = {
		{"--long", CLI_FLAG, NULL,
		 "bytes, time since written and since last loaded, key, name",
		 &listing.with_details, 0, 0, NULL},
		{NULL, CLI_FLAG, NULL, NULL, NULL, 0, 0, NULL},
	};
	struct cli_common common = {0};
	struct kvt_store *store = NULL;
	char size[32];
	int operands, status;

	status = cli_parse(argc, argv, options, &common, 0, 0, &operands);
	if (status < 0 || common.help)
		goto out;
	status = cli_store_open(&common, KVT_MODE_EXACT, NULL, NULL, &store);
	if (status < 0)
		goto out;
	listing.json = common.json;
	status = kvt_store_list(store, listing_entry, &listing);
	if (status < 0 && !ferror(stdout))
		cli_library_error(status);
	if (status == 0 && listing.with_details && !common.json)
		printf("%llu object%s, %s\n", (unsigned long long)listing.objects,
		       listing.objects == 1 ? "" : "s",
		       cli_bytes_text(listing.bytes, size, sizeof(size)));
out:
	kvt_store_close(store);
	cli_common_fini(&common);
	return cli_output_end(kvt_error_exit_status(status));
}

struct verification {
	bool json;
	struct cli_progress progress;
	uint64_t done, bytes;
};

static int count_entry(void *context, const struct kvt_list_entry *entry)
{
	(void)entry;
	++*(uint64_t *)context;
	return 0;
}

static int verification_entry(void *context, const struct kvt_verify_entry *entry)
{
	struct verification *verification = context;
	bool bad = entry->error != 0 || state_error(entry->state) != 0;

	verification->done++;
	verification->bytes += entry->object_bytes;
	cli_progress_set(&verification->progress, verification->done, verification->bytes);
	if (!bad || entry->error == KVT_ENOENT)
		return 0;
	if (verification->json) {
		cli_json_print(
			stdout,
			json_pack("{s:o, s:s, s:o, s:s*, s:o}", "name", cli_json_text(entry->name),
				  "state",
				  entry->error != 0 ? "unreadable" : state_name(entry->state),
				  "object_bytes", cli_json_u64(entry->object_bytes), "error",
				  entry->error != 0 ? kvt_error_name(entry->error) : NULL, "detail",
				  cli_json_text(entry->detail != NULL ? entry->detail : "")));
		return 0;
	}
	cli_progress_end(&verification->progress);
	fputs(entry->error != 0 ? "unreadable" : state_name(entry->state), stdout);
	putchar(' ');
	cli_text_print(stdout, entry->name);
	if (entry->detail != NULL && entry->detail[0] != '\0') {
		fputs(": ", stdout);
		cli_text_print(stdout, entry->detail);
	}
	putchar('\n');
	cli_progress_begin(&verification->progress, "verify", verification->progress.total);
	return 0;
}

static void summary_print(bool json, const struct kvt_verify_summary *summary, uint64_t bad)
{
	char size[32];

	if (json) {
		cli_json_print(
			stdout,
			json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}",
				  "objects", cli_json_u64(summary->objects), "bytes",
				  cli_json_u64(summary->bytes), "whole",
				  cli_json_u64(summary->whole), "partial",
				  cli_json_u64(summary->partial), "mismatch",
				  cli_json_u64(summary->mismatch), "foreign",
				  cli_json_u64(summary->foreign), "corrupt",
				  cli_json_u64(summary->corrupt), "unknown_format",
				  cli_json_u64(summary->unknown_format), "unreadable",
				  cli_json_u64(summary->unreadable), "vanished",
				  cli_json_u64(summary->vanished), "removed",
				  cli_json_u64(summary->removed), "bad", cli_json_u64(bad)));
		return;
	}
	printf("%llu object%s, %s: %llu whole, %llu partial, %llu bad\n",
	       (unsigned long long)summary->objects, summary->objects == 1 ? "" : "s",
	       cli_bytes_text(summary->bytes, size, sizeof(size)),
	       (unsigned long long)summary->whole, (unsigned long long)summary->partial,
	       (unsigned long long)bad);
	if (bad != 0 || summary->vanished != 0 || summary->removed != 0)
		printf("  %llu corrupt, %llu mismatching, %llu foreign, %llu of an unknown format, "
		       "%llu unreadable, %llu vanished meanwhile, %llu removed\n",
		       (unsigned long long)summary->corrupt, (unsigned long long)summary->mismatch,
		       (unsigned long long)summary->foreign,
		       (unsigned long long)summary->unknown_format,
		       (unsigned long long)summary->unreadable,
		       (unsigned long long)summary->vanished, (unsigned long long)summary->removed);
}

int cmd_verify(int argc, char **argv)
{
	bool remove_corrupt = false;
	const struct cli_option table[] = {
		{"--remove-corrupt", CLI_FLAG, NULL, "remove objects that are proven corrupt",
		 &remove_corrupt, 0, 0, NULL},
		{NULL, CLI_FLAG, NULL, NULL, NULL, 0, 0, NULL},
	};
	struct kvt_verify_options options = KVT_INIT(options);
	struct kvt_verify_summary summary = KVT_INIT(summary);
	struct verification verification = {0};
	struct cli_common common = {0};
	struct kvt_store *store = NULL;
	uint64_t total = 0, bad = 0;
	int operands, status;

	status = cli_parse(argc, argv, table, &common, 0, 0, &operands);
	if (status < 0 || common.help)
		goto out;
	status = cli_store_open(&common, KVT_MODE_EXACT, NULL, NULL, &store);
	if (status < 0)
		goto out;
	verification.json = common.json;
	cli_progress_begin(&verification.progress, "verify", 0);
	if (verification.progress.on) {
		/* The bar wants to know how far it is; a store that cannot be listed says so below.
		 */
		if (kvt_store_list(store, count_entry, &total) == 0)
			cli_progress_begin(&verification.progress, "verify", total);
	}
	options.remove_corrupt = remove_corrupt;
	status = kvt_store_verify(store, &options, verification_entry, &verification, &summary);
	cli_progress_end(&verification.progress);
	if (status < 0) {
		cli_library_error(status);
		goto out;
	}
	bad = summary.mismatch + summary.foreign + summary.corrupt + summary.unknown_format +
	      summary.unreadable;
	summary_print(common.json, &summary, bad);
out:
	kvt_store_close(store);
	cli_common_fini(&common);
	return cli_output_end(status < 0 ? kvt_error_exit_status(status) : bad != 0);
}
