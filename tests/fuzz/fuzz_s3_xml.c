/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzzes the XML reader of the S3 backend. The first byte seeds the sizes of the pieces in which
 * the rest is fed; fed in one piece it must come to the same: result, root, items and texts.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <kvtier/error.h>

#include "../../backends/s3/xml.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

#define STOP_AFTER 100 /* items */

/* What was read, as a hash of it. */
struct reading {
	uint64_t hash;
	uint32_t items;
	int result;
};

static void check(int ok)
{
	if (!ok)
		abort();
}

static void note(struct reading *reading, const char *text)
{
	/* FNV-1a, with the final NUL. */
	for (;; text++) {
		reading->hash = (reading->hash ^ (uint8_t)*text) * UINT64_C(1099511628211);
		if (*text == '\0')
			return;
	}
}

static int on_item(void *context, const struct s3_xml_item *item)
{
	struct reading *reading = context;
	size_t etag = strlen(item->etag);

	check(strlen(item->key) <= S3_XML_MAX_TEXT && etag <= S3_XML_MAX_TEXT + 2);
	check(etag == 0 || item->etag[0] == '"' || strncmp(item->etag, "W/\"", 3) == 0);
	check(item->bytes <= INT64_MAX || item->bytes == UINT64_MAX);
	check(kvt__s3_time(item->time) >= -1);
	note(reading, item->key);
	note(reading, item->etag);
	note(reading, item->upload_id);
	note(reading, item->time);
	return ++reading->items == STOP_AFTER ? KVT_ECANCELED : 0;
}

static void note_texts(struct reading *reading, const struct s3_xml *xml)
{
	static const char *const names[] = {
		"Code",		"Message",
		"Region",	"RequestId",
		"UploadId",	"ETag",
		"IsTruncated",	"NextContinuationToken",
		"Prefix",	"NextKeyMarker",
		"KeyMarker",	"NextUploadIdMarker",
		"StartAfter",	"ContinuationToken",
		"EncodingType", "Delimiter",
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		const char *text = kvt__s3_xml_text(xml, names[i]);

		check(strlen(text) <= S3_XML_MAX_TEXT);
		note(reading, text);
	}
	reading->hash ^= (uint64_t)kvt__s3_xml_root(xml);
}

/* seed 0: in one piece. Each piece has memory of its own, so that a sanitizer sees every step
 * beyond it. */
static struct reading read_document(const uint8_t *data, size_t bytes, uint32_t seed)
{
	struct reading reading = {.hash = UINT64_C(14695981039346656037)};
	struct s3_xml *xml = kvt__s3_xml_create(on_item, &reading);

	check(xml != NULL);
	while (bytes && reading.result == 0) {
		size_t piece = bytes;

		if (seed) {
			seed = seed * 1103515245u + 12345u;
			piece = 1 + (seed >> 16) % ((seed & 0x300) ? 13 : 300);
			if (piece > bytes)
				piece = bytes;
		}
		uint8_t *copy = malloc(piece);

		check(copy != NULL);
		memcpy(copy, data, piece);
		reading.result = kvt__s3_xml_feed(xml, copy, piece);
		free(copy);
		data += piece;
		bytes -= piece;
	}
	if (reading.result == 0)
		reading.result = kvt__s3_xml_end(xml);
	check(kvt__s3_xml_end(xml) == reading.result);
	check(reading.result == 0 || reading.result == KVT_EPROTO ||
	      (reading.result == KVT_ECANCELED && reading.items == STOP_AFTER));
	if (reading.result == 0)
		note_texts(&reading, xml);
	kvt__s3_xml_destroy(xml);
	return reading;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct reading whole, pieces;

	/* Longer ones may be given up at another place. */
	if (bytes == 0 || bytes > 32768)
		return 0;
	whole = read_document(data + 1, bytes - 1, 0);
	pieces = read_document(data + 1, bytes - 1, data[0] + 1u);
	check(whole.result == pieces.result);
	check(whole.items == pieces.items && whole.hash == pieces.hash);
	return 0;
}
