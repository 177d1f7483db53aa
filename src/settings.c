/* SPDX-License-Identifier: Apache-2.0 */
/* Options that a store itself knows, whatever its backend. Pure; numbers are read without the
 * locale. */
#include "settings.h"

#include <string.h>
#include <strings.h>

#define DEFAULT_HIGH_WATERMARK 0.95
#define DEFAULT_LOW_WATERMARK  0.85

const struct kvt_option_spec kvt__setting_specs[] = {
	{"fanout", "vllm",
	 "folders of a namespace: vllm (as vLLM's own tiers) or flat (4,096 folders; recorded in "
	 "config.json)"},
	{"accept_raw", "false",
	 "row mode: load chunks without a trailer, unverified, when their length is right"},
	{"min_coverage", "0", "skip partial stores below this share of a chunk's slots (0.5, 50%)"},
	{"max_bytes", NULL,
	 "keep the namespace, all ranks, below this many bytes (K, M, G, T) by removing the least "
	 "recently used objects in the background"},
	{"high_watermark", "95%", "share of max_bytes at which removing begins"},
	{"low_watermark", "85%", "share of max_bytes at which removing ends"},
	{"hash_seed", NULL,
	 "seed of the block hashes (PYTHONHASHSEED), recorded in config.json and compared"},
	{"module_dir", NULL, "folder of loadable backends, an absolute path"},
	{"module", NULL, "file of the loadable backend, an absolute path"},
	{NULL, NULL, NULL},
};

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

bool kvt__parse_bytes(const char *text, uint64_t *bytesp)
{
	static const char units[] = "KMGT";
	const uint64_t most = UINT64_C(1) << 63;
	uint64_t value = 0;
	unsigned shift = 0;

	if (!is_digit(*text))
		return false;
	for (; is_digit(*text); text++) {
		uint64_t digit = (uint64_t)(*text - '0');

		if (value > (most - digit) / 10)
			return false;
		value = value * 10 + digit;
	}
	if (*text != '\0') {
		char unit = *text >= 'a' && *text <= 'z' ? (char)(*text - 'a' + 'A') : *text;
		const char *at = strchr(units, unit);

		if (at == NULL)
			return false;
		shift = 10 * (unsigned)(at - units + 1);
		text++;
		if (strcasecmp(text, "") != 0 && strcasecmp(text, "B") != 0 &&
		    strcasecmp(text, "iB") != 0)
			return false;
	}
	if (value > most >> shift)
		return false;
	*bytesp = value << shift;
	return true;
}

bool kvt__parse_fraction(const char *text, double *fractionp)
{
	double value = 0, scale = 1;
	int digits = 0;

	for (; is_digit(*text); text++, digits++)
		value = value * 10 + (*text - '0');
	if (digits == 0 || digits > 9)
		return false;
	if (*text == '.') {
		for (text++, digits = 0; is_digit(*text); text++, digits++) {
			value = value * 10 + (*text - '0');
			scale *= 10;
		}
		if (digits == 0 || digits > 9)
			return false;
	}
	if (*text == '%') {
		scale *= 100;
		text++;
	}
	value /= scale;
	if (*text != '\0' || value > 1)
		return false;
	*fractionp = value;
	return true;
}

bool kvt__parse_bool(const char *text, bool *valuep)
{
	static const char *const yes[] = {"true", "yes", "on", "1"};
	static const char *const no[] = {"false", "no", "off", "0"};

	for (size_t i = 0; i < sizeof(yes) / sizeof(yes[0]); i++) {
		if (strcasecmp(text, yes[i]) == 0 || strcasecmp(text, no[i]) == 0) {
			*valuep = strcasecmp(text, yes[i]) == 0;
			return true;
		}
	}
	return false;
}

static int refuse(const char *name, const char *value, const char *expected)
{
	return kvt__fail(KVT_EINVAL, "option %s: \"%.100s\", expected %s", name, value, expected);
}

static int take_fanout(struct kvt__settings *settings, const char *value)
{
	if (strcmp(value, "vllm") == 0)
		settings->fanout = KVT__FANOUT_VLLM;
	else if (strcmp(value, "flat") == 0)
		settings->fanout = KVT__FANOUT_FLAT;
	else
		return refuse("fanout", value, "vllm or flat");
	return 1;
}

static int take_names(struct kvt__settings *settings, const char *value)
{
	settings->vllm_objects = strcmp(value, "vllm-obj") == 0;
	if (!settings->vllm_objects && strcmp(value, "kvtier") != 0)
		return refuse("compat_names", value, "kvtier or vllm-obj");
	return 1;
}

static int take_path(const char *name, const char *value, const char **pathp)
{
	if (value[0] != '/')
		return refuse(name, value, "an absolute path");
	*pathp = value;
	return 1;
}

static int take_fraction(const char *name, const char *value, double *fractionp)
{
	if (!kvt__parse_fraction(value, fractionp))
		return refuse(name, value, "a share from 0 to 1 or 0% to 100%");
	return 1;
}

void kvt__settings_init(struct kvt__settings *settings)
{
	memset(settings, 0, sizeof(*settings));
	settings->high_watermark = DEFAULT_HIGH_WATERMARK;
	settings->low_watermark = DEFAULT_LOW_WATERMARK;
}

int kvt__settings_take(struct kvt__settings *settings, const char *name, const char *value)
{
	if (strcmp(name, "fanout") == 0)
		return take_fanout(settings, value);
	if (strcmp(name, "compat_names") == 0)
		return take_names(settings, value);
	if (strcmp(name, "accept_raw") == 0) {
		if (!kvt__parse_bool(value, &settings->accept_raw))
			return refuse(name, value, "true or false");
		return 1;
	}
	if (strcmp(name, "min_coverage") == 0)
		return take_fraction(name, value, &settings->min_coverage);
	if (strcmp(name, "max_bytes") == 0) {
		if (!kvt__parse_bytes(value, &settings->max_bytes))
			return refuse(name, value, "a number of bytes such as 1048576, 64M or 2T");
		return 1;
	}
	if (strcmp(name, "high_watermark") == 0)
		return take_fraction(name, value, &settings->high_watermark);
	if (strcmp(name, "low_watermark") == 0)
		return take_fraction(name, value, &settings->low_watermark);
	if (strcmp(name, "hash_seed") == 0) {
		settings->hash_seed = value;
		return 1;
	}
	if (strcmp(name, "module_dir") == 0)
		return take_path(name, value, &settings->module_dir);
	if (strcmp(name, "module") == 0)
		return take_path(name, value, &settings->module);
	return 0;
}

int kvt__settings_check(const struct kvt__settings *settings, uint32_t mode)
{
	if (settings->accept_raw && mode != KVT_MODE_ROW)
		return kvt__fail(KVT_EINVAL, "option accept_raw: true, expected only in row mode "
					     "(KVT_MODE_ROW), where every chunk has one slot");
	if (settings->vllm_objects && mode == KVT_MODE_POINTER)
		return kvt__fail(KVT_EINVAL,
				 "option compat_names: vllm-obj, expected only in row or "
				 "exact mode, whose names vLLM's object tier finds");
	if (settings->vllm_objects && settings->fanout == KVT__FANOUT_FLAT)
		return kvt__fail(KVT_EINVAL, "option fanout: flat, expected vllm with "
					     "compat_names=vllm-obj");
	if (settings->vllm_objects && settings->hash_seed != NULL)
		return kvt__fail(
			KVT_EINVAL,
			"option hash_seed: \"%.100s\", expected none with "
			"compat_names=vllm-obj, which keeps no config.json to record it in",
			settings->hash_seed);
	if (settings->high_watermark <= 0)
		return kvt__fail(KVT_EINVAL, "option high_watermark: 0, expected more than 0");
	if (settings->low_watermark > settings->high_watermark)
		return kvt__fail(KVT_EINVAL,
				 "option low_watermark: %g%%, expected at most the high_watermark "
				 "of %g%%",
				 100 * settings->low_watermark, 100 * settings->high_watermark);
	return 0;
}
