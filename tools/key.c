/* SPDX-License-Identifier: Apache-2.0 */
/* Keys on the command line: HEX or HEX:GROUP. */
#include "cli.h"

#include <string.h>

static int hex_digit(char digit)
{
	if (digit >= '0' && digit <= '9')
		return digit - '0';
	if (digit >= 'a' && digit <= 'f')
		return digit - 'a' + 10;
	if (digit >= 'A' && digit <= 'F')
		return digit - 'A' + 10;
	return -1;
}

int cli_key_parse(const char *text, struct cli_key *key, char *reason, size_t reason_bytes)
{
	const char *colon = strchr(text, ':');
	size_t digits = colon != NULL ? (size_t)(colon - text) : strlen(text);
	uint64_t group = 0;

	memset(key, 0, sizeof(*key));
	for (size_t i = 0; i < digits; i++)
		if (hex_digit(text[i]) < 0) {
			snprintf(reason, reason_bytes,
				 "character %zu is not a hex digit, expected HEX or HEX:GROUP",
				 i + 1);
			return KVT_EINVAL;
		}
	if (digits < 2 || digits > 128 || digits % 2 != 0) {
		snprintf(reason, reason_bytes,
			 "%zu hex digits, expected an even number from 2 to 128", digits);
		return KVT_EINVAL;
	}
	if (colon != NULL && (!cli_number_parse(colon + 1, false, &group) || group > UINT32_MAX)) {
		snprintf(reason, reason_bytes, "group '%.40s', expected 0 to 4294967295",
			 colon + 1);
		return KVT_EINVAL;
	}
	for (size_t i = 0; i < digits / 2; i++)
		key->hash[i] = (uint8_t)(hex_digit(text[2 * i]) * 16 + hex_digit(text[2 * i + 1]));
	key->hash_bytes = (uint32_t)(digits / 2);
	key->group = (uint32_t)group;
	return 0;
}

int cli_key_argument(const char *text, struct cli_key *key)
{
	char reason[128];

	if (cli_key_parse(text, key, reason, sizeof(reason)) < 0)
		return cli_error("KEY: '%.200s': %s", text, reason);
	return 0;
}

void cli_hex(const uint8_t *data, size_t bytes, char *buffer)
{
	static const char digits[] = "0123456789abcdef";

	for (size_t i = 0; i < bytes; i++) {
		buffer[2 * i] = digits[data[i] >> 4];
		buffer[2 * i + 1] = digits[data[i] & 15];
	}
	buffer[2 * bytes] = '\0';
}

void cli_key_text(const struct kvt_key *key, char *buffer, size_t bytes)
{
	char hex[129];

	cli_hex(key->hash, key->hash_bytes <= 64 ? key->hash_bytes : 64, hex);
	if (key->group == 0)
		snprintf(buffer, bytes, "%s", hex);
	else
		snprintf(buffer, bytes, "%s:%u", hex, key->group);
}

struct kvt_key cli_key_view(const struct cli_key *key)
{
	return (struct kvt_key){
		.hash = key->hash, .hash_bytes = key->hash_bytes, .group = key->group};
}
