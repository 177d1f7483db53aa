/* SPDX-License-Identifier: Apache-2.0 */
/* Options that a store itself knows, whatever its backend. */
#ifndef KVT_SRC_SETTINGS_H
#define KVT_SRC_SETTINGS_H

#include "name.h"

/* Strings are borrowed from the options that they were read from. */
struct kvt__settings {
	enum kvt__fanout fanout;
	bool vllm_objects; /* compat_names=vllm-obj */
	bool accept_raw;
	double min_coverage;	/* 0 to 1 */
	uint64_t max_bytes;	/* 0: no limit */
	double high_watermark;	/* of max_bytes */
	double low_watermark;	/* at most high_watermark */
	const char *hash_seed;	/* NULL: none */
	const char *module_dir; /* NULL: the compiled-in one; else absolute */
	const char *module;	/* NULL: none; else absolute */
};

/* Ended by a NULL name. Without compat_names, which the store reads and the backend too: it is
 * known where a backend knows it. */
extern const struct kvt_option_spec kvt__setting_specs[];

void kvt__settings_init(struct kvt__settings *settings);
/* Takes one option: 1 when it is one of ours, 0 when not, KVT_EINVAL naming the option, its value
 * and what was expected. */
int kvt__settings_take(struct kvt__settings *settings, const char *name, const char *value);
/* What only all options together can show: KVT_EINVAL. */
int kvt__settings_check(const struct kvt__settings *settings, uint32_t mode);

/* "1048576", "64K", "10GiB": K, M, G and T are powers of 1,024. False when it is no such number or
 * beyond 2^63. */
bool kvt__parse_bytes(const char *text, uint64_t *bytesp);
/* "0.9" or "90%", from 0 to 1; at most nine digits on each side of the point. */
bool kvt__parse_fraction(const char *text, double *fractionp);
/* "true", "yes", "on", "1" and their opposites. */
bool kvt__parse_bool(const char *text, bool *valuep);

#endif
