/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the command-line tool share: options, keys, stores, and what is printed. The
 * tool is one thread of its own and stands on the public headers alone.
 *
 * Exit statuses: 0 when all went well, 1 when verify found something bad, else the status of the
 * error's class (kvt_error_exit_status). Functions here that return int answer 0 or a KVT_E* code
 * and have printed the reason on stderr when they fail, unless they say otherwise.
 */
#ifndef KVT_TOOLS_CLI_H
#define KVT_TOOLS_CLI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <jansson.h>
#include <kvtier/kvtier.h>

/* ---- Options (options.c) ---- */

enum cli_option_kind {
	CLI_FLAG,   /* bool: set to true */
	CLI_STRING, /* const char *: points into argv */
	CLI_NUMBER, /* uint64_t: min to max */
	CLI_BYTES,  /* uint64_t: min to max, with K, M, G, T (KiB, kb ...) behind it if wanted */
	CLI_REAL,   /* double: min to max */
	CLI_SWITCH, /* bool: on or off */
	CLI_CALL,   /* call(target, value) */
};

/* One option of a command; tables end with a NULL name. */
struct cli_option {
	const char *name; /* "--depth", "-o" */
	enum cli_option_kind kind;
	const char *value_name; /* for help; NULL for CLI_FLAG */
	const char *help;
	void *target;
	double min, max; /* exact up to 2^53 */
	int (*call)(void *target, const char *value);
};

/* What every command takes. Zeroed by the command (plus no_store); release with cli_common_fini. */
struct cli_common {
	bool no_store; /* the command opens no store: only --json and --help */
	const char *store_uri;
	const char *namespace_name;
	const char *fields_path;
	uint64_t rank;
	bool json;
	bool verbose;
	bool help; /* help was asked for and printed: leave with status 0 */
	struct kvt_option *options;
	size_t option_count;
	char **option_texts; /* what options point into */
	char *fields_json;
};

/*
 * Parses argv[1..argc) by the command's own table (may be NULL) and the common one. Operands are
 * moved to argv[1 .. 1 + *operandsp); min to max of them are accepted (max -1: any number), `what`
 * names them. "--" ends the options. KVT_EINVAL after a message that names the option, its value
 * and what was expected.
 */
int cli_parse(int argc, char **argv, const struct cli_option *specific, struct cli_common *common,
	      int min, int max, int *operandsp);
void cli_common_fini(struct cli_common *common);
/* A whole number, with a byte suffix if those are allowed; false when it is none or overflows.
 * Prints nothing. */
bool cli_number_parse(const char *text, bool suffixes, uint64_t *valuep);
/* A time such as 90, 90s, 15m, 12h, 7d in ns; false when it is none or overflows. */
bool cli_duration_parse(const char *text, uint64_t *nsp);

/* ---- Stores (store_open.c) ---- */

/*
 * Adds one -o NAME=VALUE. The secret options (access_key, secret_key, session_token, sse_c_key, and
 * store_config and headers, which may have secrets in them) are accepted only as NAME=@FILE or
 * NAME=env:VARIABLE and read here; a literal one is never printed. access_key=anonymous is no
 * secret.
 */
int cli_option_add(struct cli_common *common, const char *text);
/* A whole file as text with a NUL behind it, at most max_bytes; the caller frees. `what` names the
 * argument in messages. */
int cli_file_read(const char *what, const char *path, size_t max_bytes, char **textp,
		  size_t *bytesp);
/*
 * Opens the store that the common options name, in a mode of enum kvt_mode. fallback_uri serves
 * commands that need no store of the user's (NULL: --store is required), fallback_namespace those
 * that need no namespace (NULL: --namespace or --fields is required).
 */
int cli_store_open(struct cli_common *common, enum kvt_mode mode, const char *fallback_uri,
		   const char *fallback_namespace, struct kvt_store **storep);
/* Hooks that print the library's warnings (with --verbose: everything) on stderr. */
void cli_hooks(const struct cli_common *common, struct kvt_hooks *hooks);

/* ---- Devices (device.c) ---- */

struct cli_device {
	char name[32]; /* empty: none was given */
	uint32_t ordinal;
};
/* NAME or NAME:ORDINAL; prints what was expected. */
int cli_device_argument(const char *text, struct cli_device *device);

/* ---- Keys (key.c) ---- */

struct cli_key {
	uint8_t hash[64];
	uint32_t hash_bytes;
	uint32_t group;
};
#define CLI_KEY_TEXT 144
/* Parses HEX or HEX:GROUP. 0, or KVT_EINVAL with what was expected in `reason`. Prints nothing. */
int cli_key_parse(const char *text, struct cli_key *key, char *reason, size_t reason_bytes);
/* The same with a message. */
int cli_key_argument(const char *text, struct cli_key *key);
/* HEX, or HEX:GROUP when the group is not 0; a buffer of CLI_KEY_TEXT always suffices. */
void cli_key_text(const struct kvt_key *key, char *buffer, size_t bytes);
/* Lower-case hex, NUL-terminated, into 2 * bytes + 1. */
void cli_hex(const uint8_t *data, size_t bytes, char *buffer);
/* Borrows the hash. */
struct kvt_key cli_key_view(const struct cli_key *key);

/* ---- Output (output.c) ---- */

/* Names the command in every later message. */
void cli_command_set(const char *command);
/* "kvtier COMMAND: ..." and a newline on stderr; returns KVT_EINVAL for the caller's return. */
int cli_error(const char *format, ...) KVT_PRINTF(1, 2);
/* Prints the library's detail of the failure `error` on this thread; returns `error`. */
int cli_library_error(int error);
/* Prints one JSON object on one line and drops the reference; NULL (out of memory) is noted for
 * cli_output_end. */
void cli_json_print(FILE *stream, json_t *object);
/* An integer beyond 2^63 - 1 becomes a string, so that no digit is lost. */
json_t *cli_json_u64(uint64_t value);
/* Seconds with three decimals; null when negative. */
json_t *cli_json_seconds(int64_t ns);
/* A string, or its bytes with everything but printable ASCII as \xNN when it is not UTF-8. */
json_t *cli_json_text(const char *text);
/* Text that may come from elsewhere: control characters are shown as \xNN. */
void cli_text_print(FILE *stream, const char *text);
/* "2.0 MiB" */
const char *cli_bytes_text(uint64_t bytes, char *buffer, size_t buffer_bytes);
/* "3h 12m"; "-" for a negative value */
const char *cli_age_text(int64_t age_ns, char *buffer, size_t buffer_bytes);
/* Flushes stdout; the status to exit with: `status`, or that of an output error. */
int cli_output_end(int status);

/* A progress bar on stderr, only when that is a terminal; redrawn at most ten times a second. */
struct cli_progress {
	const char *label;
	uint64_t total; /* 0: unknown */
	int64_t drawn_ns;
	bool on;
};
void cli_progress_begin(struct cli_progress *progress, const char *label, uint64_t total);
void cli_progress_set(struct cli_progress *progress, uint64_t done, uint64_t bytes);
void cli_progress_end(struct cli_progress *progress);

/* ---- Commands (commands.c) ---- */

struct cli_command {
	const char *name;
	const char *usage;		   /* "KEY FILE" */
	const char *summary;		   /* one line */
	const char *examples;		   /* whole lines */
	int (*run)(int argc, char **argv); /* argv[0] is the command's name; the exit status */
};
/* Runs the command that argv[1] names; the exit status. */
int cli_run(int argc, char **argv);
/* The help of the running command on stdout. */
void cli_help_print(const struct cli_option *specific, const struct cli_option *common);

/* ---- The process (process.c) ---- */

int64_t cli_now_ns(void);
/* CPU seconds of the whole process so far. */
double cli_cpu_seconds(void);
/* Whether SIGINT or SIGTERM came since cli_interrupt_catch: stop, tidy up, leave. */
bool cli_interrupted(void);
void cli_interrupt_catch(void);

int cmd_put(int argc, char **argv);
int cmd_get(int argc, char **argv);
int cmd_stat(int argc, char **argv);
int cmd_ls(int argc, char **argv);
int cmd_rm(int argc, char **argv);
int cmd_verify(int argc, char **argv);
int cmd_probe(int argc, char **argv);
int cmd_gc(int argc, char **argv);
int cmd_name(int argc, char **argv);
int cmd_plan(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_replay(int argc, char **argv);

#endif
