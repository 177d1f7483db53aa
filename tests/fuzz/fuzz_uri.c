/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzzes URIs and store options. The first line is the URI, each further one an option as
 * name=value. Options that would load code are left out. Whatever comes, every backend of the chain
 * gets only options that it knows, and numbers that are read lie within their bounds.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "uri.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

#define MAX_OPTIONS 16

static void check(int ok)
{
	if (!ok)
		abort();
}

static void check_number(const char *text)
{
	uint64_t count = 0;
	double share = 0;
	bool flag = false;

	if (kvt__parse_bytes(text, &count))
		check(count <= UINT64_C(1) << 63 && text[0] >= '0' && text[0] <= '9');
	if (kvt__parse_fraction(text, &share))
		check(share >= 0 && share <= 1);
	(void)kvt__parse_bool(text, &flag);
}

static void check_place(const struct kvt__place *place)
{
	check(place->count >= 1 && place->count <= KVT__MAX_WRAPPED);
	for (uint32_t i = 0; i < place->count; i++) {
		const struct kvt_backend_config *config = &place->configs[i];

		check((place->ops[i]->wraps != 0) == (i + 1 < place->count));
		check(config->location != NULL);
		for (size_t o = 0; o < config->option_count; o++) {
			const struct kvt_option_spec *spec = place->ops[i]->option_specs;

			while (spec->name != NULL && strcmp(spec->name, config->options[o].name))
				spec++;
			check(spec->name != NULL);
		}
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct kvt_option options[MAX_OPTIONS];
	struct kvt__place place;
	struct kvt__env env;
	size_t count = 0;
	char *text = malloc(bytes + 1), *line, *next;

	if (text == NULL)
		return 0;
	memcpy(text, data, bytes);
	text[bytes] = '\0';
	next = strchr(text, '\n');
	if (next != NULL)
		*next++ = '\0';
	while (next != NULL && count < MAX_OPTIONS) {
		line = next;
		next = strchr(line, '\n');
		if (next != NULL)
			*next++ = '\0';
		char *value = strchr(line, '=');

		if (value == NULL)
			continue;
		*value++ = '\0';
		check_number(value);
		if (strcmp(line, "module") == 0 || strcmp(line, "module_dir") == 0)
			continue;
		options[count].name = line;
		options[count++].value = value;
	}
	if (kvt__env_init(&env, NULL) == 0) {
		if (kvt__place_init(&place, &env, text, options, count) == 0) {
			check_place(&place);
			(void)kvt__settings_check(&place.settings, KVT_MODE_ROW);
			kvt__place_fini(&place, &env);
		} else {
			check(kvt_error_detail()[0] != '\0');
		}
		kvt__env_fini(&env);
	}
	free(text);
	return 0;
}
