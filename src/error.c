/* SPDX-License-Identifier: Apache-2.0 */
/* Names, texts and classes of result codes and statuses, the calling thread's one line of detail,
 * and the version. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <kvtier/error.h>
#include <kvtier/kvtier.h>
#include <kvtier/version.h>

#include "env.h"

struct error_row {
	const char *name;
	const char *text;
	enum kvt_error_class error_class;
};

/* Indexed by the negated code. */
static const struct error_row error_rows[] = {{"KVT_OK", "success", KVT_CLASS_NONE},
#define KVT_X(name, value, class_name, text)                                                       \
	[-(value)] = {"KVT_" #name, text, KVT_CLASS_##class_name},
					      KVT_ERROR_TABLE(KVT_X)
#undef KVT_X
};

static const struct {
	const char *name;
	int exit_status;
} class_rows[] = {
#define KVT_X(name, exit_status, text) [KVT_CLASS_##name] = {#name, exit_status},
	KVT_CLASS_TABLE(KVT_X)
#undef KVT_X
};

static const char *const status_names[] = {
#define KVT_X(name, value, text) [value] = text,
	KVT_STATUS_TABLE(KVT_X)
#undef KVT_X
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static _Thread_local char thread_detail[512];

/* NULL for a code that does not exist. */
static const struct error_row *find(int error)
{
	if (error >= 0)
		return &error_rows[0];
	if (error <= -(int)COUNT(error_rows))
		return NULL;
	return error_rows[-error].name ? &error_rows[-error] : NULL;
}

int kvt__fail(int error, const char *format, ...)
{
	char line[sizeof(thread_detail)];
	va_list args;

	/* Formatted aside: the arguments may hold the detail that is there. */
	va_start(args, format);
	if (vsnprintf(line, sizeof(line), format, args) < 0)
		line[0] = '\0';
	va_end(args);
	kvt__one_line(line);
	memcpy(thread_detail, line, sizeof(line));
	return error;
}

void kvt__one_line(char *text)
{
	size_t end = strlen(text);

	for (size_t i = 0; i < end; i++) {
		if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f)
			text[i] = ' ';
	}
	/* A multi-byte character that was cut off at the end goes as a whole. */
	size_t start = end;
	while (start > 0 && end - start < 3 && ((unsigned char)text[start - 1] & 0xc0) == 0x80)
		start--;
	if (start > 0 && (unsigned char)text[start - 1] >= 0xc0) {
		unsigned char lead = (unsigned char)text[start - 1];
		size_t need = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
		if (end - (start - 1) < need)
			text[start - 1] = '\0';
	}
}

const char *kvt_error_name(int error)
{
	const struct error_row *row = find(error);
	return row ? row->name : "KVT_E?";
}

const char *kvt_error_text(int error)
{
	const struct error_row *row = find(error);
	return row ? row->text : "unknown error";
}

enum kvt_error_class kvt_error_class(int error)
{
	const struct error_row *row = find(error);
	return row ? row->error_class : KVT_CLASS_INTERNAL;
}

const char *kvt_error_class_name(enum kvt_error_class error_class)
{
	size_t index = (size_t)error_class;
	return index < COUNT(class_rows) ? class_rows[index].name : "?";
}

int kvt_error_exit_status(int error)
{
	return class_rows[kvt_error_class(error)].exit_status;
}

const char *kvt_error_detail(void)
{
	return thread_detail;
}

const char *kvt_status_name(uint32_t status)
{
	return status < COUNT(status_names) ? status_names[status] : "?";
}

int kvt_status_is_success(uint32_t status)
{
	switch (status) {
	case KVT_STATUS_PENDING:
	case KVT_STATUS_STORED:
	case KVT_STATUS_SKIPPED:
	case KVT_STATUS_LOADED:
	case KVT_STATUS_LOADED_UNVERIFIED:
	case KVT_STATUS_HIT:
	case KVT_STATUS_PARTIAL:
	case KVT_STATUS_MISS:
		return 1;
	default:
		return 0;
	}
}

const char *kvt_version(void)
{
	return KVT_VERSION_STRING;
}
