/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The S3 server of the tests as a program, for scripts, other clients and benchmarks:
 *
 *     s3_fault_server [--address 127.0.0.1] [--port N] [--bucket B] [--domain D] [--region R]
 *                     [--access-key K --secret-key-file F [--session-token-file F]]
 *                     [--tls-cert F --tls-key F] [--min-part-bytes N] [--close-after N]
 *                     [--clock-offset S] [--trait NAME]... [--rules FILE] [--forgetful] [RULE]...
 *
 * Writes "listening URL" when it is ready, and ends with SIGTERM or SIGINT. A rule is a text such
 * as "ops=put key=abc times=2 status=503 code=SlowDown" (s3_server.h names the members), a rules
 * file has one a line. Rules can be changed while it runs: s3_server_admin.c.
 */
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "s3_server.h"

static const struct {
	const char *name;
	unsigned trait;
} traits[] = {
	{"no-put-conditions", S3_SERVER_NO_PUT_CONDITIONS},
	{"blind-put-conditions", S3_SERVER_BLIND_PUT_CONDITIONS},
	{"no-complete-conditions", S3_SERVER_NO_COMPLETE_CONDITIONS},
	{"blind-complete-conditions", S3_SERVER_BLIND_COMPLETE_CONDITIONS},
	{"bare-if-match", S3_SERVER_BARE_IF_MATCH},
	{"delete-if-match", S3_SERVER_DELETE_IF_MATCH},
	{"bare-416", S3_SERVER_BARE_416},
	{"no-list-right", S3_SERVER_NO_LIST_RIGHT},
	{"patient-complete", S3_SERVER_PATIENT_COMPLETE},
	{"complete-twice", S3_SERVER_COMPLETE_TWICE},
	{"no-multipart", S3_SERVER_NO_MULTIPART},
	{"equal-parts", S3_SERVER_EQUAL_PARTS},
	{"empty-pages", S3_SERVER_EMPTY_PAGES},
	{"no-checksums", S3_SERVER_NO_CHECKSUMS},
	{"path-only", S3_SERVER_PATH_ONLY},
	{"virtual-only", S3_SERVER_VIRTUAL_ONLY},
	{"md5-etags", S3_SERVER_MD5_ETAGS},
	{"list-bare-etags", S3_SERVER_LIST_BARE_ETAGS},
	{"plain-lists", S3_SERVER_PLAIN_LISTS},
};

static int refuse(const char *what, const char *why)
{
	fprintf(stderr, "s3_fault_server: %s: %s\n", what, why);
	return 2;
}

/* The whole file as text; its last newline is cut off when `line`. */
static char *read_text(const char *path, bool line)
{
	FILE *file = fopen(path, "r");
	size_t room = 1 << 20, bytes;
	char *text = file ? malloc(room) : NULL;

	if (!text) {
		if (file)
			fclose(file);
		return NULL;
	}
	bytes = fread(text, 1, room - 1, file);
	fclose(file);
	text[bytes] = 0;
	while (line && bytes && (text[bytes - 1] == '\n' || text[bytes - 1] == '\r'))
		text[--bytes] = 0;
	return text;
}

static bool add_trait(struct s3_server_options *options, const char *name)
{
	for (size_t i = 0; i < sizeof(traits) / sizeof(traits[0]); i++)
		if (strcmp(traits[i].name, name) == 0) {
			options->traits |= traits[i].trait;
			return true;
		}
	return false;
}

/* NULL, or what is wrong with the option. */
static const char *set_option(struct s3_server_options *o, const char *name, char *value,
			      const char **rules)
{
	static const struct {
		const char *name;
		size_t at;
		bool is_file, is_line;
	} texts[] = {
		{"--address", offsetof(struct s3_server_options, address), false, false},
		{"--bucket", offsetof(struct s3_server_options, bucket), false, false},
		{"--domain", offsetof(struct s3_server_options, domain), false, false},
		{"--region", offsetof(struct s3_server_options, region), false, false},
		{"--access-key", offsetof(struct s3_server_options, access_key), false, false},
		{"--secret-key-file", offsetof(struct s3_server_options, secret_key), true, true},
		{"--session-token-file", offsetof(struct s3_server_options, session_token), true,
		 true},
		{"--tls-cert", offsetof(struct s3_server_options, certificate), true, false},
		{"--tls-key", offsetof(struct s3_server_options, certificate_key), true, false},
	};
	char *end = value;
	long long number = strtoll(value, &end, 10);
	bool is_number = end != value && !*end;

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		if (strcmp(texts[i].name, name) != 0)
			continue;
		if (texts[i].is_file)
			value = read_text(value, texts[i].is_line);
		*(const char **)((char *)o + texts[i].at) = value;
		return value ? NULL : "the file cannot be read";
	}
	if (strcmp(name, "--rules") == 0) {
		*rules = read_text(value, false);
		return *rules ? NULL : "the file cannot be read";
	}
	if (strcmp(name, "--trait") == 0)
		return add_trait(o, value) ? NULL : "unknown trait";
	if (!is_number)
		return "unknown option, or a number was expected";
	if (strcmp(name, "--port") == 0 && number >= 0 && number < 65536)
		o->port = (unsigned)number;
	else if (strcmp(name, "--min-part-bytes") == 0 && number > 0)
		o->min_part_bytes = (uint64_t)number;
	else if (strcmp(name, "--close-after") == 0 && number >= 0 && number < 1 << 30)
		o->requests_per_connection = (unsigned)number;
	else if (strcmp(name, "--clock-offset") == 0)
		o->clock_offset_s = number;
	else
		return "unknown option, or out of range";
	return NULL;
}

static const char *add_rules(struct s3_server *server, char *text)
{
	const char *wrong = NULL;

	for (char *line = text; line && *line && !wrong;) {
		char *end = strchr(line, '\n');

		if (end)
			*end++ = 0;
		if (line[strspn(line, " \t\r")] && *line != '#')
			wrong = s3_server_add_rule_text(server, line);
		line = end;
	}
	return wrong;
}

int main(int argc, char **argv)
{
	/* Static, so that the texts in it are not lost at the end. */
	static struct s3_server_options options = {0};
	struct s3_server *server;
	static const char *rules;
	const char *wrong;
	sigset_t signals;
	int i, got;

	/* Freed objects are what the next ones are made of. */
	mallopt(M_MMAP_THRESHOLD, 32 << 20);
	mallopt(M_ARENA_MAX, 1);
	mallopt(M_TRIM_THRESHOLD, 2047 << 20);
	for (i = 1; i < argc && strncmp(argv[i], "--", 2) == 0; i++) {
		if (strcmp(argv[i], "--forgetful") == 0) {
			options.forgetful = true;
			continue;
		}
		wrong = i + 1 < argc ? set_option(&options, argv[i], argv[i + 1], &rules)
				     : "its value is missing";
		if (wrong)
			return refuse(argv[i], wrong);
		i++;
	}
	sigemptyset(&signals);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGINT);
	pthread_sigmask(SIG_BLOCK, &signals, NULL);
	signal(SIGPIPE, SIG_IGN);
	server = s3_server_start(&options, &wrong);
	if (!server)
		return refuse("start", wrong);
	wrong = rules ? add_rules(server, (char *)(uintptr_t)rules) : NULL;
	for (; i < argc && !wrong; i++)
		wrong = s3_server_add_rule_text(server, argv[i]);
	if (wrong) {
		s3_server_stop(server);
		return refuse("rules", wrong);
	}
	printf("listening %s\n", s3_server_url(server));
	fflush(stdout);
	sigwait(&signals, &got);
	s3_server_stop(server);
	return 0;
}
