/* SPDX-License-Identifier: Apache-2.0 */
/* What the tool prints: messages and progress on stderr, results on stdout, as text or as one JSON
 * object a line. */
#include "cli.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

static const char *command_name;
static bool bar_drawn;
static bool out_of_memory;

void cli_command_set(const char *command)
{
	command_name = command;
}

static void bar_clear(void)
{
	if (bar_drawn)
		fputs("\r\033[K", stderr);
	bar_drawn = false;
}

int cli_error(const char *format, ...)
{
	va_list arguments;

	bar_clear();
	fflush(stdout);
	fprintf(stderr, "kvtier%s%s: ", command_name != NULL ? " " : "",
		command_name != NULL ? command_name : "");
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fputc('\n', stderr);
	return KVT_EINVAL;
}

int cli_library_error(int error)
{
	const char *detail = kvt_error_detail();

	cli_error("%s", detail[0] != '\0' ? detail : kvt_error_text(error));
	return error;
}

void cli_json_print(FILE *stream, json_t *object)
{
	if (object == NULL ||
	    json_dumpf(object, stream, JSON_COMPACT | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(12)) <
		    0)
		out_of_memory = true;
	else
		fputc('\n', stream);
	json_decref(object);
}

json_t *cli_json_u64(uint64_t value)
{
	char text[24];

	if (value <= INT64_MAX)
		return json_integer((json_int_t)value);
	snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
	return json_string(text);
}

json_t *cli_json_seconds(int64_t ns)
{
	return ns < 0 ? json_null() : json_real((double)(ns / 1000000) / 1e3);
}

json_t *cli_json_text(const char *text)
{
	json_t *string = json_string(text);
	char buffer[4 * KVT_NAME_BYTES];
	size_t used = 0;

	if (string != NULL)
		return string;
	for (; *text != '\0' && used + 5 < sizeof(buffer); text++)
		if (*text >= ' ' && *text <= '~')
			buffer[used++] = *text;
		else
			used += (size_t)snprintf(buffer + used, 5, "\\x%02x", (unsigned char)*text);
	buffer[used] = '\0';
	return json_string(buffer);
}

void cli_text_print(FILE *stream, const char *text)
{
	for (; *text != '\0'; text++) {
		unsigned char byte = (unsigned char)*text;

		if (byte < ' ' || byte == 0x7f)
			fprintf(stream, "\\x%02x", byte);
		else
			fputc(byte, stream);
	}
}

const char *cli_bytes_text(uint64_t bytes, char *buffer, size_t buffer_bytes)
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
	double value = (double)bytes;
	size_t unit = 0;

	for (; value >= 1024 && unit + 1 < sizeof(units) / sizeof(units[0]); unit++)
		value /= 1024;
	snprintf(buffer, buffer_bytes, unit == 0 ? "%.0f %s" : "%.1f %s", value, units[unit]);
	return buffer;
}

const char *cli_age_text(int64_t age_ns, char *buffer, size_t buffer_bytes)
{
	int64_t s = age_ns / 1000000000;

	if (age_ns < 0)
		snprintf(buffer, buffer_bytes, "-");
	else if (s < 60)
		snprintf(buffer, buffer_bytes, "%llds", (long long)s);
	else if (s < 3600)
		snprintf(buffer, buffer_bytes, "%lldm %02llds", (long long)(s / 60),
			 (long long)(s % 60));
	else if (s < 48 * 3600)
		snprintf(buffer, buffer_bytes, "%lldh %02lldm", (long long)(s / 3600),
			 (long long)(s / 60 % 60));
	else
		snprintf(buffer, buffer_bytes, "%lldd %02lldh", (long long)(s / 86400),
			 (long long)(s / 3600 % 24));
	return buffer;
}

int cli_output_end(int status)
{
	int failed = ferror(stdout);

	errno = 0;
	if (fflush(stdout) != 0 || failed) {
		cli_error("standard output: %s",
			  errno != 0 ? strerror(errno) : kvt_error_text(KVT_EIO));
		return status != 0 ? status : kvt_error_exit_status(KVT_EIO);
	}
	if (out_of_memory) {
		cli_error("JSON output: %s", kvt_error_text(KVT_ENOMEM));
		return status != 0 ? status : kvt_error_exit_status(KVT_ENOMEM);
	}
	return status;
}

void cli_progress_begin(struct cli_progress *progress, const char *label, uint64_t total)
{
	progress->label = label;
	progress->total = total;
	progress->drawn_ns = 0;
	progress->on = isatty(STDERR_FILENO) == 1;
}

void cli_progress_set(struct cli_progress *progress, uint64_t done, uint64_t bytes)
{
	static const char full[] = "##############################";
	const int width = (int)sizeof(full) - 1;
	char text[32];
	int64_t now;

	if (!progress->on)
		return;
	now = cli_now_ns();
	if (now - progress->drawn_ns < 100000000)
		return;
	progress->drawn_ns = now;
	bar_clear();
	cli_bytes_text(bytes, text, sizeof(text));
	if (progress->total != 0) {
		double share = (double)done / (double)progress->total;
		int filled = share >= 1 ? width : (int)(share * width);

		fprintf(stderr, "%s [%.*s%*s] %3d%% %llu/%llu %s", progress->label, filled, full,
			width - filled, "", share >= 1 ? 100 : (int)(share * 100),
			(unsigned long long)done, (unsigned long long)progress->total, text);
	} else {
		fprintf(stderr, "%s %llu %s", progress->label, (unsigned long long)done, text);
	}
	fflush(stderr);
	bar_drawn = true;
}

void cli_progress_end(struct cli_progress *progress)
{
	if (progress->on)
		bar_clear();
	progress->on = false;
}
