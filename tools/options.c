/* SPDX-License-Identifier: Apache-2.0 */
/* The options of a command line, by tables that also make the help. */
#include "cli.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static int common_option_add(void *target, const char *value)
{
	return cli_option_add(target, value);
}

/* Fills `table`, which has room for eight, with the options that every command has. */
static void common_table(struct cli_common *common, struct cli_option *table)
{
	size_t used = 0;

	if (!common->no_store) {
		table[used++] =
			(struct cli_option){"--store",
					    CLI_STRING,
					    "URI",
					    "the place: file:///path, s3://bucket/prefix, mem: ...",
					    &common->store_uri,
					    0,
					    0,
					    NULL};
		table[used++] = (struct cli_option){"-o",
						    CLI_CALL,
						    "NAME=VALUE",
						    "a backend or store option, repeatable; "
						    "secrets as NAME=@FILE, NAME=env:VAR",
						    common,
						    0,
						    0,
						    common_option_add};
		table[used++] = (struct cli_option){"--namespace",
						    CLI_STRING,
						    "NAME",
						    "a ready-made namespace, used as given",
						    &common->namespace_name,
						    0,
						    0,
						    NULL};
		table[used++] = (struct cli_option){"--fields",
						    CLI_STRING,
						    "FILE.json",
						    "the namespace's fields as JSON",
						    &common->fields_path,
						    0,
						    0,
						    NULL};
		table[used++] =
			(struct cli_option){"--rank",	   CLI_NUMBER,
					    "N",	   "the rank in the namespace (default 0)",
					    &common->rank, 0,
					    INT32_MAX,	   NULL};
		table[used++] = (struct cli_option){
			"--verbose",	  CLI_FLAG, NULL, "show all messages of the library",
			&common->verbose, 0,	    0,	  NULL};
	}
	table[used++] =
		(struct cli_option){"--json",	   CLI_FLAG, NULL, "print one JSON object per line",
				    &common->json, 0,	     0,	   NULL};
	table[used++] = (struct cli_option){"--help",	   CLI_FLAG, NULL, "show this",
					    &common->help, 0,	     0,	   NULL};
	table[used] = (struct cli_option){NULL, CLI_FLAG, NULL, NULL, NULL, 0, 0, NULL};
}

static int value_set(const struct cli_option *option, const char *value)
{
	const char *range_kind = option->kind == CLI_BYTES ? "a number of bytes" : "a whole number";
	uint64_t number;
	double real;
	char *end;

	switch (option->kind) {
	case CLI_FLAG:
		*(bool *)option->target = true;
		return 0;
	case CLI_STRING:
		if (value[0] == '\0')
			return cli_error("%s: '', expected %s", option->name, option->value_name);
		*(const char **)option->target = value;
		return 0;
	case CLI_NUMBER:
	case CLI_BYTES:
		if (!cli_number_parse(value, option->kind == CLI_BYTES, &number) ||
		    (double)number < option->min || (double)number > option->max)
			return cli_error("%s: '%s', expected %s from %.0f to %.0f", option->name,
					 value, range_kind, option->min, option->max);
		*(uint64_t *)option->target = number;
		return 0;
	case CLI_REAL:
		errno = 0;
		real = strtod(value, &end);
		if (end == value || *end != '\0' || errno != 0 || !isfinite(real) ||
		    real < option->min || real > option->max)
			return cli_error("%s: '%s', expected a number from %g to %g", option->name,
					 value, option->min, option->max);
		*(double *)option->target = real;
		return 0;
	case CLI_SWITCH:
		if (strcmp(value, "on") != 0 && strcmp(value, "off") != 0)
			return cli_error("%s: '%s', expected on or off", option->name, value);
		*(bool *)option->target = strcmp(value, "on") == 0;
		return 0;
	case CLI_CALL:
		return option->call(option->target, value);
	}
	return KVT_EINTERNAL;
}

/* The option that an argument names. *valuep: what is attached to it ("--x=1", "-ox=1"), or NULL.
 */
static const struct cli_option *option_find(const struct cli_option *table, const char *argument,
					    const char **valuep)
{
	*valuep = NULL;
	for (; table != NULL && table->name != NULL; table++) {
		size_t length = strlen(table->name);

		if (strncmp(argument, table->name, length) != 0)
			continue;
		if (argument[length] == '\0')
			return table;
		if (table->name[1] != '-') {
			*valuep = argument + length;
			return table;
		}
		if (argument[length] == '=') {
			*valuep = argument + length + 1;
			return table;
		}
	}
	return NULL;
}

static int operands_check(int count, int min, int max, char **operands, const char *what)
{
	if (count < min)
		return cli_error("%d operand%s, expected %s (see --help)", count,
				 count == 1 ? "" : "s", what);
	if (max >= 0 && count > max)
		return cli_error("operand '%s': one too many, expected %s (see --help)",
				 operands[max], max == 0 ? "none" : what);
	return 0;
}

int cli_parse(int argc, char **argv, const struct cli_option *specific, struct cli_common *common,
	      int min, int max, int *operandsp)
{
	static const char *const what[] = {"none", "one", "KEY and FILE"};
	struct cli_option shared[9];
	bool options_ended = false;
	int operands = 0, status;

	*operandsp = 0;
	common_table(common, shared);
	for (int i = 1; i < argc; i++) {
		const struct cli_option *option;
		const char *value;

		if (options_ended || argv[i][0] != '-' || argv[i][1] == '\0') {
			argv[1 + operands++] = argv[i];
			continue;
		}
		if (strcmp(argv[i], "--") == 0) {
			options_ended = true;
			continue;
		}
		if (strcmp(argv[i], "-h") == 0) {
			common->help = true;
			continue;
		}
		option = option_find(specific, argv[i], &value);
		if (option == NULL)
			option = option_find(shared, argv[i], &value);
		if (option == NULL)
			return cli_error("'%s': unknown option, expected one that --help lists",
					 argv[i]);
		if (option->kind == CLI_FLAG && value != NULL)
			return cli_error("%s: '%s', expected no value", option->name, value);
		if (option->kind != CLI_FLAG && value == NULL) {
			if (i + 1 == argc)
				return cli_error("%s: nothing follows it, expected %s",
						 option->name, option->value_name);
			value = argv[++i];
		}
		status = value_set(option, value);
		if (status < 0)
			return status;
	}
	if (common->help) {
		cli_help_print(specific, shared);
		return 0;
	}
	*operandsp = operands;
	return operands_check(operands, min, max, argv + 1,
			      max < 0 ? "one or more" : what[max <= 2 ? max : 2]);
}

void cli_common_fini(struct cli_common *common)
{
	for (size_t i = 0; i < common->option_count; i++) {
		char *text = common->option_texts[i];

		/* Secrets were read into these. */
		explicit_bzero((char *)common->options[i].value, strlen(common->options[i].value));
		free((char *)common->options[i].value);
		free(text);
	}
	free(common->options);
	free(common->option_texts);
	free(common->fields_json);
	common->options = NULL;
	common->option_texts = NULL;
	common->option_count = 0;
	common->fields_json = NULL;
}
