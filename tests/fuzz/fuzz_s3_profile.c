/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a profile file: it is read or refused with one line that names the file, whatever is
 * found is text without blanks at its ends, and reading it again finds the same. */
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../backends/s3/profile.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char said[512];
static long live;

static void expect(bool holds, const char *what)
{
	if (!holds) {
		fprintf(stderr, "s3_profile: %s: %s\n", what, said);
		abort();
	}
}

static void fuzz_fail(const struct kvt_host *host, const char *format, ...)
{
	va_list ap;

	(void)host;
	va_start(ap, format);
	(void)vsnprintf(said, sizeof(said), format, ap);
	va_end(ap);
}

static void *fuzz_alloc(const struct kvt_host *host, size_t bytes, size_t alignment)
{
	(void)host;
	(void)alignment;
	live++;
	return malloc(bytes > 0 ? bytes : 1);
}

static void fuzz_free(const struct kvt_host *host, void *memory)
{
	(void)host;
	live -= memory != NULL;
	free(memory);
}

static void check_value(const char *value)
{
	size_t bytes = strlen(value);

	expect(bytes > 0 && strcspn(value, "\r\n") == bytes, "a value on one line");
	expect(!strchr(" \t", value[0]) && !strchr(" \t", value[bytes - 1]), "no blanks");
}

static void check(enum s3_profile_kind kind, const char *text, size_t size)
{
	static const char *const profiles[] = {"default", "a", "a b", ""};
	static const char *const names[] = {"region", "aws_access_key_id", "endpoint_url", "s3"};
	const struct kvt_host host = {.fail = fuzz_fail, .alloc = fuzz_alloc, .free = fuzz_free};
	struct s3_profile_file *file, *again;
	int error;

	said[0] = '\0';
	error = kvt__s3_profile_parse(&host, "file", text, size, kind, &file);
	if (error != 0) {
		expect(error == KVT_ECONFIG && file == NULL, "code");
		expect(strncmp(said, "file: ", 6) == 0 && !strchr(said, '\n'), "detail");
		expect(live == 0, "memory");
		return;
	}
	expect(kvt__s3_profile_parse(&host, "file", text, size, kind, &again) == 0, "again");
	for (size_t p = 0; p < sizeof(profiles) / sizeof(profiles[0]); p++) {
		bool has = kvt__s3_profile_has(file, profiles[p]);

		for (size_t n = 0; n < sizeof(names) / sizeof(names[0]); n++) {
			const char *value = kvt__s3_profile_get(file, profiles[p], names[n]);
			const char *other = kvt__s3_profile_get(again, profiles[p], names[n]);

			expect(value == NULL || has, "a value has its section");
			expect((value == NULL) == (other == NULL), "the same again");
			if (value != NULL) {
				check_value(value);
				expect(strcmp(value, other) == 0, "the same value again");
			}
		}
	}
	kvt__s3_profile_close(file);
	kvt__s3_profile_close(again);
	expect(live == 0, "memory");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	check(S3_PROFILE_CONFIG, (const char *)data, size);
	check(S3_PROFILE_CREDENTIALS, (const char *)data, size);
	return 0;
}
