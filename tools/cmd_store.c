/* SPDX-License-Identifier: Apache-2.0 */
/* Commands about a store as a whole: probe and gc. */
#include "cli.h"

#include <string.h>

/* Stands in where a namespace is needed to open a store and the command is not about one. */
#define NO_NAMESPACE "kvtier-tool"

struct probing {
	bool json;
};

static void finding_print(bool json, const char *name, const char *value, int error)
{
	if (json)
		cli_json_print(stdout, json_pack("{s:s, s:o, s:s?}", "probe", name, "value",
						 cli_json_text(value), "error",
						 error != 0 ? kvt_error_name(error) : NULL));
	else if (error != 0)
		printf("%-24s FAILED: %s (%s)\n", name, value, kvt_error_name(error));
	else
		printf("%-24s %s\n", name, value);
}

static void probing_entry(void *context, const char *name, const char *value, int error)
{
	const struct probing *probing = context;

	finding_print(probing->json, name, value != NULL ? value : "", error);
}

static void option_print(void *context, const char *name, const char *default_value,
			 const char *help)
{
	const struct probing *probing = context;

	if (probing->json)
		cli_json_print(stdout, json_pack("{s:s, s:s?, s:s}", "option", name, "default",
						 default_value, "help", help));
	else
		printf("-o %-20s %s%s%s%s\n", name, help, default_value != NULL ? " (default " : "",
		       default_value != NULL ? default_value : "",
		       default_value != NULL ? ")" : "");
}

/* Needs no store, only the scheme of its URI. */
static int options_print(const struct cli_common *common, struct probing *probing)
{
	int status;

	if (common->store_uri == NULL)
		return cli_error("--store: not given, expected a URI such as file:///srv/kv");
	status = kvt_store_option_help(common->store_uri, option_print, probing);
	return status < 0 ? cli_library_error(status) : 0;
}

static int device_set(void *target, const char *value)
{
	return cli_device_argument(value, target);
}

static int device_probe(const struct cli_common *common, const struct cli_device *device,
			struct probing *probing)
{
	struct kvt_device_options options = KVT_INIT(options);
	int status;

	options.name = device->name;
	options.ordinal = device->ordinal;
	cli_hooks(common, &options.hooks);
	status = kvt_device_probe(&options, probing_entry, probing);
	if (status < 0)
		cli_library_error(status);
	finding_print(common->json, "device_test", status < 0 ? kvt_error_text(status) : "passed",
		      status);
	return status;
}

static int store_probe(struct cli_common *common, struct probing *probing)
{
	struct kvt_store *store = NULL;
	int status = cli_store_open(common, KVT_MODE_EXACT, NULL, NO_NAMESPACE, &store);

	if (status < 0)
		return status;
	finding_print(common->json, "store", common->store_uri, 0);
	status = kvt_store_probe(store, probing_entry, probing);
	if (status < 0)
		cli_library_error(status);
	finding_print(common->json, "self_test", status < 0 ? kvt_error_text(status) : "passed",
		      status);
	kvt_store_close(store);
	return status;
}

int cmd_probe(int argc, char **argv)
{
	struct cli_device device = {0};
	bool options = false;
	const struct cli_option table[] = {
		{"--device", CLI_CALL, "NAME[:N]",
		 "test a device, alone or before --store: host, cuda, cuda:1", &device, 0, 0,
		 device_set},
		{"--options", CLI_FLAG, NULL, "list what -o takes for this store, and test nothing",
		 &options, 0, 0, NULL},
		{NULL, CLI_FLAG, NULL, NULL, NULL, 0, 0, NULL},
	};
	struct cli_common common = {0};
	struct probing probing;
	int operands, status, store_status;

	status = cli_parse(argc, argv, table, &common, 0, 0, &operands);
	if (status < 0 || common.help)
		goto out;
	probing.json = common.json;
	if (options) {
		status = options_print(&common, &probing);
		goto out;
	}
	if (device.name[0] != '\0')
		status = device_probe(&common, &device, &probing);
	if (device.name[0] == '\0' || common.store_uri != NULL) {
		store_status = store_probe(&common, &probing);
		status = status < 0 ? status : store_status;
	}
out:
	cli_common_fini(&common);
	return cli_output_end(kvt_error_exit_status(status));
}

static int older_than_set(void *target, const char *value)
{
	if (!cli_duration_parse(value, target) || *(uint64_t *)target == 0)
		return cli_error("--older-than: '%s', expected a time of at least 1s such as 90s, "
				 "15m, 12h or 7d",
				 value);
	return 0;
}

static void gc_print(bool json, const struct kvt_gc_summary *summary, bool dry_run, bool uploads)
{
	char found[32], removed[32];

	if (json) {
		cli_json_print(stdout,
			       json_pack("{s:o, s:o, s:o, s:o, s:o, s:b}", "objects",
					 cli_json_u64(summary->objects), "bytes",
					 cli_json_u64(summary->bytes), "removed_objects",
					 cli_json_u64(summary->removed_objects), "removed_bytes",
					 cli_json_u64(summary->removed_bytes), "removed_leftovers",
					 cli_json_u64(summary->removed_leftovers), "dry_run",
					 dry_run ? 1 : 0));
		return;
	}
	if (uploads) {
		printf("removed %llu leftover%s\n", (unsigned long long)summary->removed_leftovers,
		       summary->removed_leftovers == 1 ? "" : "s");
		return;
	}
	printf("%llu object%s, %s; %s %llu (%s) and %llu leftover%s\n",
	       (unsigned long long)summary->objects, summary->objects == 1 ? "" : "s",
	       cli_bytes_text(summary->bytes, found, sizeof(found)),
	       dry_run ? "would remove" : "removed", (unsigned long long)summary->removed_objects,
	       cli_bytes_text(summary->removed_bytes, removed, sizeof(removed)),
	       (unsigned long long)summary->removed_leftovers,
	       summary->removed_leftovers == 1 ? "" : "s");
}

/* --uploads: leftovers alone, whose age --older-than then is. */
static int uploads_only(struct kvt_gc_options *options, const struct cli_common *common)
{
	const char *odd = options->max_bytes > 0	   ? "--max-bytes"
			  : options->dry_run != 0	   ? "--dry-run"
			  : common->namespace_name != NULL ? "--namespace"
			  : common->fields_path != NULL	   ? "--fields"
							   : NULL;

	if (odd != NULL)
		return cli_error("%s: not with --uploads, which removes leftovers of the whole "
				 "place and no objects",
				 odd);
	options->leftovers_only = 1;
	options->leftover_age_ns = options->older_than_ns;
	options->older_than_ns = 0;
	options->whole_root = 0;
	return 0;
}

int cmd_gc(int argc, char **argv)
{
	struct kvt_gc_options options = KVT_INIT(options);
	bool dry_run = false, uploads = false;
	const struct cli_option table[] = {
		{"--max-bytes", CLI_BYTES, "N",
		 "remove the least recently used until at most N bytes are left",
		 &options.max_bytes, 1, 9007199254740992.0, NULL},
		{"--older-than", CLI_CALL, "T", "remove what was not used for T: 90s, 15m, 12h, 7d",
		 &options.older_than_ns, 0, 0, older_than_set},
		{"--dry-run", CLI_FLAG, NULL, "count, remove nothing", &dry_run, 0, 0, NULL},
		{"--uploads", CLI_FLAG, NULL,
		 "only stale uploads and other leftovers, older than --older-than (1d)", &uploads,
		 0, 0, NULL},
		{NULL, CLI_FLAG, NULL, NULL, NULL, 0, 0, NULL},
	};
	struct kvt_gc_summary summary = KVT_INIT(summary);
	struct cli_common common = {0};
	struct kvt_store *store = NULL;
	int operands, status;

	status = cli_parse(argc, argv, table, &common, 0, 0, &operands);
	if (status < 0 || common.help)
		goto out;
	options.dry_run = dry_run;
	options.whole_root = common.namespace_name == NULL && common.fields_path == NULL;
	if (uploads)
		status = uploads_only(&options, &common);
	if (status < 0)
		goto out;
	status = cli_store_open(&common, KVT_MODE_EXACT, NULL, NO_NAMESPACE, &store);
	if (status < 0)
		goto out;
	status = kvt_store_gc(store, &options, &summary);
	if (status < 0)
		cli_library_error(status);
	else
		gc_print(common.json, &summary, dry_run, uploads);
out:
	kvt_store_close(store);
	cli_common_fini(&common);
	return cli_output_end(kvt_error_exit_status(status));
}
