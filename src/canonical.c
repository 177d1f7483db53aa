/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Canonical JSON: what vLLM's json.dumps(fields, sort_keys=True, separators=(",", ":")) writes. Two
 * processes that disagree about one byte of it do not find each other's objects, so the writer is
 * our own and only the reader is a library's. Any thread.
 */
#include "canonical.h"

#include <stdlib.h>
#include <string.h>

/* Text that grows. After a failure further appends do nothing. */
struct text {
	const struct kvt__env *env;
	char *data;
	size_t bytes, capacity;
	int error;
};

static void append(struct text *text, const char *data, size_t bytes)
{
	if (text->error)
		return;
	if (bytes > text->capacity - text->bytes) {
		size_t capacity = text->capacity * 2 + bytes + 256;
		char *larger = kvt__alloc(text->env, capacity);
		if (!larger) {
			text->error = kvt__fail(KVT_ENOMEM, "canonical form: out of memory");
			return;
		}
		if (text->bytes > 0)
			memcpy(larger, text->data, text->bytes);
		kvt__free(text->env, text->data);
		text->data = larger;
		text->capacity = capacity;
	}
	memcpy(text->data + text->bytes, data, bytes);
	text->bytes += bytes;
}

static void append_unit(struct text *text, uint32_t unit)
{
	static const char digits[] = "0123456789abcdef";
	const char escape[6] = {'\\',
				'u',
				digits[unit >> 12 & 15],
				digits[unit >> 8 & 15],
				digits[unit >> 4 & 15],
				digits[unit & 15]};
	append(text, escape, sizeof(escape));
}

/* Reads one character of valid UTF-8 that is not ASCII. */
static uint32_t decode(const unsigned char *at, size_t *lengthp)
{
	if (at[0] < 0xe0) {
		*lengthp = 2;
		return (uint32_t)(at[0] & 0x1f) << 6 | (at[1] & 0x3f);
	}
	if (at[0] < 0xf0) {
		*lengthp = 3;
		return (uint32_t)(at[0] & 0x0f) << 12 | (uint32_t)(at[1] & 0x3f) << 6 |
		       (at[2] & 0x3f);
	}
	*lengthp = 4;
	return (uint32_t)(at[0] & 0x07) << 18 | (uint32_t)(at[1] & 0x3f) << 12 |
	       (uint32_t)(at[2] & 0x3f) << 6 | (at[3] & 0x3f);
}

/* The letter of a short escape, or 0. */
static char short_escape(unsigned char c)
{
	switch (c) {
	case '"':
	case '\\':
		return (char)c;
	case '\b':
		return 'b';
	case '\f':
		return 'f';
	case '\n':
		return 'n';
	case '\r':
		return 'r';
	case '\t':
		return 't';
	default:
		return 0;
	}
}

static void append_string(struct text *text, const char *string, size_t bytes)
{
	const unsigned char *at = (const unsigned char *)string;

	append(text, "\"", 1);
	for (size_t i = 0; i < bytes;) {
		char letter = short_escape(at[i]);
		size_t length = 1;

		if (letter) {
			append(text, (char[]){'\\', letter}, 2);
		} else if (at[i] >= 0x80) {
			uint32_t point = decode(at + i, &length);
			if (point >= 0x10000) {
				append_unit(text, 0xd800 + ((point - 0x10000) >> 10));
				append_unit(text, 0xdc00 + ((point - 0x10000) & 0x3ff));
			} else {
				append_unit(text, point);
			}
		} else if (at[i] < 0x20 || at[i] == 0x7f) {
			append_unit(text, at[i]);
		} else {
			append(text, string + i, 1);
		}
		i += length;
	}
	append(text, "\"", 1);
}

static void append_integer(struct text *text, json_int_t value)
{
	char digits[24];
	size_t at = sizeof(digits);
	uint64_t rest = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;

	/* Two's complement has one negative number whose opposite does not exist. */
	if (value < 0 && rest > INT64_MAX) {
		if (!text->error)
			text->error = kvt__fail(KVT_EINVAL,
						"integer %lld, expected at least "
						"-9223372036854775807",
						(long long)value);
		return;
	}
	do {
		digits[--at] = (char)('0' + rest % 10);
		rest /= 10;
	} while (rest > 0);
	if (value < 0)
		digits[--at] = '-';
	append(text, digits + at, sizeof(digits) - at);
}

static int compare_names(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void append_value(struct text *text, const json_t *value);

static void append_object(struct text *text, const json_t *object)
{
	size_t count = json_object_size(object), i = 0;
	const char **names = kvt__alloc(text->env, (count + 1) * sizeof(*names));
	const char *name;
	json_t *member;

	if (!names) {
		text->error = kvt__fail(KVT_ENOMEM, "canonical form: out of memory");
		return;
	}
	/* Reading through a pointer to const is what jansson's iterator lacks. */
	json_object_foreach((json_t *)(uintptr_t)object, name, member) names[i++] = name;
	qsort(names, count, sizeof(*names), compare_names);
	append(text, "{", 1);
	for (i = 0; i < count && !text->error; i++) {
		if (i > 0)
			append(text, ",", 1);
		append_string(text, names[i], strlen(names[i]));
		append(text, ":", 1);
		append_value(text, json_object_get(object, names[i]));
	}
	append(text, "}", 1);
	kvt__free(text->env, names);
}

/* As deep as the reader lets values nest. */
static void append_value(struct text *text, const json_t *value)
{
	if (text->error)
		return;
	switch (json_typeof(value)) {
	case JSON_OBJECT:
		append_object(text, value);
		break;
	case JSON_ARRAY:
		append(text, "[", 1);
		for (size_t i = 0; i < json_array_size(value) && !text->error; i++) {
			if (i > 0)
				append(text, ",", 1);
			append_value(text, json_array_get(value, i));
		}
		append(text, "]", 1);
		break;
	case JSON_STRING:
		append_string(text, json_string_value(value), json_string_length(value));
		break;
	case JSON_INTEGER:
		append_integer(text, json_integer_value(value));
		break;
	case JSON_REAL:
		text->error = kvt__fail(KVT_EINVAL, "number %.17g, expected an integer",
					json_real_value(value));
		break;
	case JSON_TRUE:
		append(text, "true", 4);
		break;
	case JSON_FALSE:
		append(text, "false", 5);
		break;
	case JSON_NULL:
		append(text, "null", 4);
		break;
	}
}

bool kvt__utf8_valid(const char *text, size_t bytes, size_t *badp)
{
	const unsigned char *at = (const unsigned char *)text;

	for (size_t i = 0; i < bytes;) {
		size_t length = at[i] < 0x80 ? 1 : at[i] < 0xe0 ? 2 : at[i] < 0xf0 ? 3 : 4;
		uint32_t point;

		*badp = i;
		if (at[i] >= 0x80 && (at[i] < 0xc2 || at[i] > 0xf4))
			return false;
		if (length > bytes - i)
			return false;
		for (size_t k = 1; k < length; k++) {
			if ((at[i + k] & 0xc0) != 0x80)
				return false;
		}
		point = length > 1 ? decode(at + i, &length) : at[i];
		if ((length == 3 && point < 0x800) || (point >= 0xd800 && point < 0xe000) ||
		    (length == 4 && (point < 0x10000 || point > 0x10ffff)))
			return false;
		i += length;
	}
	*badp = bytes;
	return true;
}

int kvt__json_read(const char *what, const char *text, size_t bytes, json_t **valuep)
{
	json_error_t error;

	*valuep = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
	if (*valuep)
		return 0;
	if (json_error_code(&error) == json_error_out_of_memory)
		return kvt__fail(KVT_ENOMEM, "%s: out of memory", what);
	return kvt__fail(KVT_EINVAL, "%s: line %d, column %d: %s", what, error.line, error.column,
			 error.text);
}

int kvt__json_canonical(const struct kvt__env *env, const json_t *value, char **textp)
{
	struct text text = {.env = env};

	*textp = NULL;
	append_value(&text, value);
	append(&text, "", 1);
	if (text.error) {
		kvt__free(env, text.data);
		return text.error;
	}
	*textp = text.data;
	return 0;
}
