/* SPDX-License-Identifier: Apache-2.0 */
/* From the common options to an open store. Secrets never stand on the command line, where every
 * user of the machine can read them: they come from a file or the environment. */
#include "cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define SECRET_MAX_BYTES 65536
#define FIELDS_MAX_BYTES (16 << 20)

static bool is_secret(const char *name, size_t bytes)
{
	/* store_config and headers may have secrets in them. */
	static const char *const secrets[] = {"secret_key", "session_token", "access_key",
					      "sse_c_key",  "store_config",  "headers"};

	for (size_t i = 0; i < sizeof(secrets) / sizeof(secrets[0]); i++)
		if (strlen(secrets[i]) == bytes && memcmp(secrets[i], name, bytes) == 0)
			return true;
	return false;
}

int cli_file_read(const char *what, const char *path, size_t max_bytes, char **textp,
		  size_t *bytesp)
{
	FILE *file = strcmp(path, "-") == 0 ? stdin : fopen(path, "re");
	size_t used = 0, room = 4096;
	char *text = NULL;
	int status = KVT_EINVAL;

	*textp = NULL;
	*bytesp = 0;
	if (file == NULL)
		return cli_error("%s: '%s': %s, expected a readable file", what, path,
				 strerror(errno));
	for (;;) {
		char *larger = realloc(text, room);

		if (larger == NULL) {
			cli_error("%s: '%s': %s", what, path, kvt_error_text(KVT_ENOMEM));
			status = KVT_ENOMEM;
			goto out;
		}
		text = larger;
		used += fread(text + used, 1, room - 1 - used, file);
		if (ferror(file)) {
			cli_error("%s: '%s': %s, expected a readable file", what, path,
				  strerror(errno));
			goto out;
		}
		if (used > max_bytes) {
			cli_error("%s: '%s': more than %zu bytes, expected fewer", what, path,
				  max_bytes);
			goto out;
		}
		if (used < room - 1)
			break;
		room *= 2;
	}
	text[used] = '\0';
	*textp = text;
	*bytesp = used;
	text = NULL;
	status = 0;
out:
	if (file != stdin)
		fclose(file);
	free(text);
	return status;
}

/* Reads "@FILE" or "env:VARIABLE" into newly allocated memory. */
static int secret_read(const char *name, const char *source, char **valuep)
{
	const char *variable = NULL;
	size_t bytes;
	int status;

	*valuep = NULL;
	if (source[0] == '@') {
		status = cli_file_read(name, source + 1, SECRET_MAX_BYTES, valuep, &bytes);
		if (status < 0)
			return status;
		while (bytes > 0 && ((*valuep)[bytes - 1] == '\n' || (*valuep)[bytes - 1] == '\r'))
			(*valuep)[--bytes] = '\0';
		if (bytes != 0 && strlen(*valuep) == bytes)
			return 0;
		free(*valuep);
		*valuep = NULL;
		return cli_error("%s: '%s': empty or with a NUL, expected text", name, source + 1);
	}
	if (strncmp(source, "env:", 4) == 0) {
		variable = getenv(source + 4);
		if (variable == NULL || variable[0] == '\0')
			return cli_error("%s: '%s': not set, expected a variable that is", name,
					 source + 4);
	} else if (strcmp(name, "access_key") == 0 && strcmp(source, "anonymous") == 0) {
		variable = source; /* no secret */
	}
	if (variable != NULL) {
		*valuep = strdup(variable);
		if (*valuep != NULL)
			return 0;
		cli_error("%s: %s", name, kvt_error_text(KVT_ENOMEM));
		return KVT_ENOMEM;
	}
	return cli_error("-o %s: a literal value, expected %s=@FILE or %s=env:VARIABLE", name, name,
			 name);
}

static int option_append(struct cli_common *common, char *name, char *value)
{
	size_t count = common->option_count;
	struct kvt_option *options;
	char **texts;

	options = realloc(common->options, (count + 1) * sizeof(*options));
	if (options != NULL)
		common->options = options;
	texts = realloc(common->option_texts, (count + 1) * sizeof(*texts));
	if (texts != NULL)
		common->option_texts = texts;
	if (options == NULL || texts == NULL)
		return KVT_ENOMEM;
	texts[count] = name;
	options[count] = (struct kvt_option){.name = name, .value = value};
	common->option_count++;
	return 0;
}

int cli_option_add(struct cli_common *common, const char *text)
{
	const char *equals = strchr(text, '=');
	char *name, *value = NULL;
	int status = 0;

	if (equals == NULL || equals == text) {
		/* What was meant may be a secret: it is not repeated. */
		if (equals == NULL && !is_secret(text, strlen(text)))
			return cli_error("-o: '%s', expected NAME=VALUE", text);
		return cli_error("-o: expected NAME=VALUE");
	}
	name = strndup(text, (size_t)(equals - text));
	if (name == NULL)
		status = KVT_ENOMEM;
	else if (is_secret(name, strlen(name)))
		status = secret_read(name, equals + 1, &value);
	else if ((value = strdup(equals + 1)) == NULL)
		status = KVT_ENOMEM;
	if (status == 0)
		status = option_append(common, name, value);
	if (status == 0)
		return 0;
	if (status == KVT_ENOMEM)
		cli_error("-o: %s", kvt_error_text(KVT_ENOMEM));
	if (value != NULL)
		explicit_bzero(value, strlen(value));
	free(value);
	free(name);
	return status;
}

static void log_print(void *context, enum kvt_log_level level, const char *line)
{
	(void)context;
	cli_error("%s%s", level <= KVT_LOG_WARNING ? "warning: " : "", line);
}

void cli_hooks(const struct cli_common *common, struct kvt_hooks *hooks)
{
	hooks->log = log_print;
	hooks->log_level = common->verbose ? KVT_LOG_DEBUG : KVT_LOG_WARNING;
}

int cli_store_open(struct cli_common *common, enum kvt_mode mode, const char *fallback_uri,
		   const char *fallback_namespace, struct kvt_store **storep)
{
	struct kvt_store_options options = KVT_INIT(options);
	size_t bytes;
	int status;

	*storep = NULL;
	options.uri = common->store_uri != NULL ? common->store_uri : fallback_uri;
	if (options.uri == NULL)
		return cli_error("--store: not given, expected a URI such as file:///srv/kv");
	if (common->namespace_name != NULL && common->fields_path != NULL)
		return cli_error("--fields: '%s' beside --namespace '%s', expected one of them",
				 common->fields_path, common->namespace_name);
	options.namespace_name = common->namespace_name;
	if (common->fields_path != NULL) {
		if (common->fields_json == NULL) {
			status = cli_file_read("--fields", common->fields_path, FIELDS_MAX_BYTES,
					       &common->fields_json, &bytes);
			if (status < 0)
				return status;
			if (strlen(common->fields_json) != bytes)
				return cli_error("--fields: '%s': a NUL, expected JSON text",
						 common->fields_path);
		}
		options.fields_json = common->fields_json;
	} else if (options.namespace_name == NULL) {
		options.namespace_name = fallback_namespace;
		if (fallback_namespace == NULL)
			return cli_error("--namespace: not given, expected it or --fields "
					 "FILE.json");
	}
	options.options = common->options;
	options.option_count = common->option_count;
	options.rank = (uint32_t)common->rank;
	options.mode = mode;
	cli_hooks(common, &options.hooks);
	status = kvt_store_open(&options, storep);
	return status < 0 ? cli_library_error(status) : 0;
}
