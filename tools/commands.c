/* SPDX-License-Identifier: Apache-2.0 */
/* The commands of the tool: their table, help and version. */
#include "cli.h"

#include <string.h>

static int cmd_help(int argc, char **argv);
static int cmd_version(int argc, char **argv);

static const struct cli_command commands[] = {
	{"put", "KEY FILE", "store the bytes of a file as one object (one ref, one block)",
	 "  kvtier put --store file:///srv/kv --namespace demo 00ff17 chunk.bin\n"
	 "  kvtier put --store file:///srv/kv --fields fields.json --rank 3 00ff17:2 chunk.bin\n",
	 cmd_put},
	{"get", "KEY FILE", "load one object into a file; FILE may be - for standard output",
	 "  kvtier get --store file:///srv/kv --namespace demo 00ff17 chunk.bin\n"
	 "  kvtier get --store file:///srv/kv --namespace demo 00ff17 - | sha256sum\n",
	 cmd_get},
	{"stat", "KEY...", "show what objects are, from their trailers",
	 "  kvtier stat --store file:///srv/kv --namespace demo 00ff17 00ff18:1\n", cmd_stat},
	{"ls", "", "list the objects of a namespace and rank",
	 "  kvtier ls --store file:///srv/kv --namespace demo --long\n"
	 "  kvtier ls --store file:///srv/kv --namespace demo --json | jq .object_bytes\n",
	 cmd_ls},
	{"rm", "KEY...", "remove objects",
	 "  kvtier rm --store file:///srv/kv --namespace demo 00ff17 00ff18:1\n", cmd_rm},
	{"verify", "",
	 "read and check every object of a namespace and rank; status 1 when one is bad",
	 "  kvtier verify --store file:///srv/kv --namespace demo\n"
	 "  kvtier verify --store file:///srv/kv --namespace demo --remove-corrupt\n",
	 cmd_verify},
	{"bench", "", "measure stores and loads, with every byte verified",
	 "  kvtier bench --store file:///srv/kv --namespace bench --op both \\\n"
	 "         --chunk-bytes 2MiB --chunks 512\n"
	 "  kvtier bench --store mem: --namespace bench --op both --chunk-bytes 64KiB \\\n"
	 "         --chunks 4096 --geometry 16x4 --lanes 2 --depth 16 --json\n",
	 cmd_bench},
	{"replay", "TRACE",
	 "drive a store with a trace of a real service, with every byte verified",
	 "  kvtier replay --store file:///srv/kv --namespace replay trace.jsonl \\\n"
	 "         --block-bytes 256KiB --requests 2000 --report report.html\n"
	 "  kvtier replay --store file:///srv/kv --namespace replay trace.jsonl \\\n"
	 "         --speed 10 --concurrency 8 --json\n",
	 cmd_replay},
	{"probe", "", "show what a store or a device can do, and test it",
	 "  kvtier probe --store file:///srv/kv\n"
	 "  kvtier probe --device cuda\n"
	 "  kvtier probe --store file:///srv/kv --options\n",
	 cmd_probe},
	{"gc", "", "free capacity by least recent use, and remove leftovers of dead processes",
	 "  kvtier gc --store file:///srv/kv --max-bytes 500GiB\n"
	 "  kvtier gc --store file:///srv/kv --namespace demo --older-than 7d --dry-run\n"
	 "  kvtier gc --store s3://bucket/kv --uploads --older-than 2h\n",
	 cmd_gc},
	{"name", "KEY...", "show the object names of keys",
	 "  kvtier name --namespace demo 00ff17 00ff18:1\n"
	 "  kvtier name --fields fields.json --rank 3 --json 00ff17\n",
	 cmd_name},
	{"plan", "FILE.json", "show what a transfer becomes, or why it is refused",
	 "  kvtier plan transfer.json\n"
	 "  echo '{\"blocks_per_chunk\":4,\"group_block_counts\":[2],\n"
	 "         \"group_data_ref_counts\":[1],\"block_indices\":[3],\"ptrs\":[1000,1064],\n"
	 "         \"sizes\":[64,64],\"n_keys\":2}' | kvtier plan -\n",
	 cmd_plan},
	{"version", "", "show the versions of the tool and of the library",
	 "  kvtier version --json\n", cmd_version},
	{"help", "[COMMAND]", "show this, or the help of a command", "  kvtier help bench\n",
	 cmd_help},
	{NULL, NULL, NULL, NULL, NULL},
};

static const struct cli_command *running;

static const struct cli_command *command_find(const char *name)
{
	for (const struct cli_command *command = commands; command->name != NULL; command++)
		if (strcmp(command->name, name) == 0)
			return command;
	return NULL;
}

static void options_print(const struct cli_option *options)
{
	char left[64];

	for (; options != NULL && options->name != NULL; options++) {
		snprintf(left, sizeof(left), "%s%s%s", options->name,
			 options->value_name != NULL ? " " : "",
			 options->value_name != NULL ? options->value_name : "");
		printf("  %-26s %s\n", left, options->help);
	}
}

void cli_help_print(const struct cli_option *specific, const struct cli_option *common)
{
	printf("kvtier %s: %s\n\nUsage: kvtier %s [OPTION]...%s%s\n", running->name,
	       running->summary, running->name, running->usage[0] != '\0' ? " " : "",
	       running->usage);
	if (specific != NULL && specific->name != NULL) {
		puts("\nOptions:");
		options_print(specific);
	}
	puts("\nCommon options:");
	options_print(common);
	if (strstr(running->usage, "KEY") != NULL)
		puts("\nKEY is a hash of 1 to 64 bytes in hex, with :GROUP behind it for a group "
		     "other than 0.");
	printf("\nExamples:\n%s", running->examples);
	puts("\nSee kvtier(1).");
}

static void overview_print(FILE *stream)
{
	fputs("kvtier moves LLM KV-cache chunks to a storage tier and back.\n\n"
	      "Usage: kvtier COMMAND [OPTION]... [OPERAND]...\n\nCommands:\n",
	      stream);
	for (const struct cli_command *command = commands; command->name != NULL; command++)
		fprintf(stream, "  %-8s %s\n", command->name, command->summary);
	fputs("\nA first look:\n"
	      "  kvtier put --store file:///tmp/kv --namespace demo 00ff17 FILE\n"
	      "  kvtier ls  --store file:///tmp/kv --namespace demo --long\n"
	      "  kvtier get --store file:///tmp/kv --namespace demo 00ff17 -\n\n"
	      "'kvtier help COMMAND' shows the options of a command and examples.\n"
	      "Exit status: 0 success, 1 verify found something bad",
	      stream);
#define KVT_X(name, exit_status, text)                                                             \
	if ((exit_status) != 0)                                                                    \
		fprintf(stream, ",\n  %d %s", (exit_status), text);
	KVT_CLASS_TABLE(KVT_X)
#undef KVT_X
	fputs(".\n", stream);
}

static int cmd_help(int argc, char **argv)
{
	struct cli_common common = {.no_store = true};
	int operands, status = cli_parse(argc, argv, NULL, &common, 0, 1, &operands);
	const struct cli_command *command = NULL;

	cli_common_fini(&common);
	if (status < 0)
		return kvt_error_exit_status(status);
	if (operands == 1) {
		command = command_find(argv[1]);
		if (command == NULL) {
			cli_error("COMMAND: '%s', expected a command that 'kvtier help' lists",
				  argv[1]);
			return kvt_error_exit_status(KVT_EINVAL);
		}
	}
	if (command != NULL) {
		char help[] = "--help";
		char *arguments[] = {argv[1], help, NULL};

		running = command;
		cli_command_set(command->name);
		return command->run(2, arguments);
	}
	if (!common.help)
		overview_print(stdout);
	return cli_output_end(0);
}

static int cmd_version(int argc, char **argv)
{
	struct cli_common common = {.no_store = true};
	int operands, status = cli_parse(argc, argv, NULL, &common, 0, 0, &operands);

	cli_common_fini(&common);
	if (status < 0 || common.help)
		return cli_output_end(kvt_error_exit_status(status));
	if (common.json)
		cli_json_print(stdout, json_pack("{s:s, s:s}", "version", KVT_VERSION_STRING,
						 "library", kvt_version()));
	else
		printf("kvtier %s (library %s)\n", KVT_VERSION_STRING, kvt_version());
	return cli_output_end(0);
}

int cli_run(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : "";

	if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
		name = "help";
	else if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0)
		name = "version";
	running = command_find(name);
	if (running == NULL) {
		if (argc < 2)
			overview_print(stderr);
		else
			cli_error("COMMAND: '%s', expected a command that 'kvtier help' lists",
				  name);
		return kvt_error_exit_status(KVT_EINVAL);
	}
	cli_command_set(running->name);
	return running->run(argc - 1, argv + 1);
}
