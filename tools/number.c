/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers on the command line: whole numbers, byte counts and times. */
#include "cli.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

/* Reads the leading decimal digits; returns what follows them, NULL when there are none or they
 * overflow. */
static const char *digits_parse(const char *text, uint64_t *valuep)
{
	uint64_t value = 0;

	if (*text < '0' || *text > '9')
		return NULL;
	for (; *text >= '0' && *text <= '9'; text++) {
		uint64_t digit = (uint64_t)(*text - '0');

		if (value > (UINT64_MAX - digit) / 10)
			return NULL;
		value = value * 10 + digit;
	}
	*valuep = value;
	return text;
}

bool cli_number_parse(const char *text, bool suffixes, uint64_t *valuep)
{
	static const char units[] = "KMGT";
	const char *unit;
	uint64_t value;
	unsigned shift;

	text = digits_parse(text, &value);
	if (text == NULL)
		return false;
	if (*text != '\0') {
		unit = suffixes ? strchr(units, toupper((unsigned char)*text)) : NULL;
		if (unit == NULL)
			return false;
		shift = 10 * ((unsigned)(unit - units) + 1);
		text++;
		if (*text != '\0' && strcasecmp(text, "B") != 0 && strcasecmp(text, "iB") != 0)
			return false;
		if (value > UINT64_MAX >> shift)
			return false;
		value <<= shift;
	}
	*valuep = value;
	return true;
}

bool cli_duration_parse(const char *text, uint64_t *nsp)
{
	static const struct {
		const char *suffix;
		uint64_t seconds;
	} units[] = {{"", 1}, {"s", 1}, {"m", 60}, {"h", 3600}, {"d", 86400}};
	uint64_t value;

	text = digits_parse(text, &value);
	if (text == NULL)
		return false;
	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++)
		if (strcmp(text, units[i].suffix) == 0) {
			uint64_t unit_ns = units[i].seconds * 1000000000;

			if (value > UINT64_MAX / unit_ns)
				return false;
			*nsp = value * unit_ns;
			return true;
		}
	return false;
}
