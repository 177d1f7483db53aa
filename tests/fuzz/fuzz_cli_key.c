/* SPDX-License-Identifier: Apache-2.0 */
/* Any text as a KEY, a number and a time of the command line: what is accepted prints as a KEY that
 * means the same, and what is refused has a reason. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect(int holds, const char *what)
{
	if (!holds) {
		fprintf(stderr, "key: %s\n", what);
		abort();
	}
}

static void key_check(const char *text)
{
	struct cli_key key, again;
	struct kvt_key view;
	char reason[128] = "", printed[CLI_KEY_TEXT];

	if (cli_key_parse(text, &key, reason, sizeof(reason)) < 0) {
		expect(reason[0] != '\0', "a refusal without reason");
		return;
	}
	expect(key.hash_bytes >= 1 && key.hash_bytes <= 64, "hash_bytes");
	view = cli_key_view(&key);
	cli_key_text(&view, printed, sizeof(printed));
	expect(cli_key_parse(printed, &again, reason, sizeof(reason)) == 0, "its own text");
	expect(again.hash_bytes == key.hash_bytes && again.group == key.group &&
		       memcmp(again.hash, key.hash, sizeof(key.hash)) == 0,
	       "another key after printing");
}

static void number_check(const char *text)
{
	uint64_t plain, suffixed, ns;

	if (!cli_number_parse(text, false, &plain))
		return;
	expect(cli_number_parse(text, true, &suffixed) && plain == suffixed, "a plain number");
	expect(!cli_duration_parse(text, &ns) || ns == plain * 1000000000, "seconds");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1);
	uint64_t value;

	if (text == NULL)
		return 0;
	memcpy(text, data, size);
	text[size] = '\0';
	key_check(text);
	number_check(text);
	(void)cli_number_parse(text, true, &value);
	(void)cli_duration_parse(text, &value);
	free(text);
	return 0;
}
