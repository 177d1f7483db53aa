/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The XML reader. expat tells of elements; all that is kept of them is the text of the leaves right
 * below the root, and of the item that is being read. A document type declaration ends the reading,
 * so there are no entities but the five of XML itself and numbers. Names are compared without their
 * namespace's prefix.
 */
#include "xml.h"

#include <stdlib.h>
#include <string.h>

#include <expat.h>
#include <kvtier/error.h>

#define S3_XML_MAX_LEAVES 48u
#define S3_XML_MAX_NAME	  64u
/* Of what expat reads at once and of the longest tag or comment: it goes through an unfinished one
 * from its start with each piece. */
#define S3_XML_PIECE_BYTES 65536u

/* Grows and is used again. bytes is NULL until something was in it. */
struct s3_text {
	char *bytes;
	size_t length, room;
};

enum s3_field { S3_KEY = 0, S3_ETAG, S3_UPLOAD_ID, S3_MODIFIED, S3_SIZE, S3_FIELDS, S3_NO_FIELD };

struct s3_leaf {
	char name[S3_XML_MAX_NAME];
	struct s3_text text;
};

struct s3_xml {
	XML_Parser parser;
	s3_xml_item_fn item;
	void *context;
	int error; /* all that follows fails with it */
	enum s3_xml_root root;
	uint64_t skipped, parsed; /* bytes so far */
	uint32_t mark;		  /* bytes of a byte order mark that are seen */
	bool has_begun;		  /* something else than blanks */
	bool has_ended;		  /* kvt__s3_xml_end was called */
	bool is_url;		  /* keys are percent-encoded */
	bool has_odd_keys;	  /* an item before that was known would have changed */
	uint32_t depth;
	bool is_leaf; /* the open element has had no child so far */
	bool in_item;
	struct s3_text text; /* of the open leaf */
	struct s3_text fields[S3_FIELDS];
	bool has_field[S3_FIELDS];
	struct s3_leaf leaves[S3_XML_MAX_LEAVES];
	uint32_t leaf_count;
};

static void s3_xml_fail(struct s3_xml *xml, int error)
{
	if (xml->error == 0) {
		xml->error = error;
		(void)XML_StopParser(xml->parser, XML_FALSE);
	}
}

static bool s3_text_add(struct s3_text *text, const char *bytes, size_t count)
{
	size_t want = text->length + count + 1;

	if (want > text->room) {
		size_t room = text->room ? text->room : 64;
		char *grown;

		while (room < want)
			room *= 2;
		grown = realloc(text->bytes, room);
		if (grown == NULL)
			return false;
		text->bytes = grown;
		text->room = room;
	}
	memcpy(text->bytes + text->length, bytes, count);
	text->length += count;
	text->bytes[text->length] = '\0';
	return true;
}

static void s3_text_swap(struct s3_text *a, struct s3_text *b)
{
	struct s3_text kept = *a;

	*a = *b;
	*b = kept;
}

static int s3_hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Decodes in place. False for a broken escape and for one that stands for NUL. */
static bool s3_text_decode(struct s3_text *text)
{
	char *to = text->bytes;

	for (const char *from = text->bytes; from && *from; from++) {
		char c = *from;

		if (c == '+') {
			c = ' ';
		} else if (c == '%') {
			int high = s3_hex_digit(from[1]);
			int low = high < 0 ? -1 : s3_hex_digit(from[2]);

			if (low < 0 || (high == 0 && low == 0))
				return false;
			c = (char)(high << 4 | low);
			from += 2;
		}
		*to++ = c;
	}
	if (to) {
		*to = '\0';
		text->length = (size_t)(to - text->bytes);
	}
	return true;
}

static const char *s3_local_name(const char *name)
{
	const char *colon = strrchr(name, ':');

	return colon ? colon + 1 : name;
}

static enum s3_xml_root s3_root_of(const char *name)
{
	static const struct {
		const char *name;
		enum s3_xml_root root;
	} roots[] = {
		{"Error", S3_XML_ERROR},
		{"InitiateMultipartUploadResult", S3_XML_INITIATE},
		{"CompleteMultipartUploadResult", S3_XML_COMPLETE},
		{"ListBucketResult", S3_XML_LIST},
		{"ListMultipartUploadsResult", S3_XML_UPLOADS},
	};

	for (size_t i = 0; i < sizeof(roots) / sizeof(roots[0]); i++)
		if (strcmp(name, roots[i].name) == 0)
			return roots[i].root;
	return S3_XML_OTHER;
}

static enum s3_field s3_field_of(const char *name)
{
	static const struct {
		const char *name;
		enum s3_field field;
	} fields[] = {
		{"Key", S3_KEY},
		{"ETag", S3_ETAG},
		{"UploadId", S3_UPLOAD_ID},
		{"LastModified", S3_MODIFIED},
		{"Initiated", S3_MODIFIED},
		{"Size", S3_SIZE},
	};

	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
		if (strcmp(name, fields[i].name) == 0)
			return fields[i].field;
	return S3_NO_FIELD;
}

static bool s3_is_item(const struct s3_xml *xml, const char *name)
{
	if (xml->root == S3_XML_LIST)
		return strcmp(name, "Contents") == 0;
	return xml->root == S3_XML_UPLOADS && strcmp(name, "Upload") == 0;
}

static void XMLCALL s3_on_start(void *context, const XML_Char *name, const XML_Char **attributes)
{
	struct s3_xml *xml = context;

	(void)attributes;
	if (xml->error)
		return;
	name = s3_local_name(name);
	if (++xml->depth > S3_XML_MAX_DEPTH) {
		s3_xml_fail(xml, KVT_EPROTO);
		return;
	}
	xml->is_leaf = true;
	xml->text.length = 0;
	if (xml->depth == 1) {
		xml->root = s3_root_of(name);
	} else if (xml->depth == 2 && s3_is_item(xml, name)) {
		xml->in_item = true;
		memset(xml->has_field, 0, sizeof(xml->has_field));
	}
}

static void XMLCALL s3_on_text(void *context, const XML_Char *bytes, int count)
{
	struct s3_xml *xml = context;

	/* Between elements there are but blanks. */
	if (xml->error || !xml->is_leaf)
		return;
	if ((size_t)count > S3_XML_MAX_TEXT - xml->text.length)
		s3_xml_fail(xml, KVT_EPROTO);
	else if (!s3_text_add(&xml->text, bytes, (size_t)count))
		s3_xml_fail(xml, KVT_ENOMEM);
}

static struct s3_leaf *s3_leaf_find(struct s3_xml *xml, const char *name)
{
	for (uint32_t i = 0; i < xml->leaf_count; i++)
		if (strcmp(xml->leaves[i].name, name) == 0)
			return &xml->leaves[i];
	return NULL;
}

/* The first of a name is kept, and no more than any S3 reply has. */
static void s3_leaf_keep(struct s3_xml *xml, const char *name)
{
	size_t bytes = strlen(name) + 1;
	struct s3_leaf *leaf;

	if (strcmp(name, "EncodingType") == 0 && strcmp(xml->text.bytes, "url") == 0)
		xml->is_url = true;
	if (bytes > S3_XML_MAX_NAME || xml->leaf_count == S3_XML_MAX_LEAVES ||
	    s3_leaf_find(xml, name) != NULL)
		return;
	leaf = &xml->leaves[xml->leaf_count++];
	memcpy(leaf->name, name, bytes);
	s3_text_swap(&leaf->text, &xml->text);
}

static void s3_field_keep(struct s3_xml *xml, const char *name)
{
	enum s3_field field = s3_field_of(name);

	if (field == S3_NO_FIELD || xml->has_field[field])
		return;
	xml->has_field[field] = true;
	s3_text_swap(&xml->fields[field], &xml->text);
}

static const char *s3_field_text(const struct s3_xml *xml, enum s3_field field)
{
	return xml->has_field[field] ? xml->fields[field].bytes : "";
}

static uint64_t s3_field_number(const struct s3_xml *xml, enum s3_field field)
{
	const char *text = s3_field_text(xml, field);
	uint64_t value = 0;

	if (*text == '\0')
		return UINT64_MAX;
	for (; *text; text++) {
		if (*text < '0' || *text > '9' || value > (INT64_MAX - 9) / 10)
			return UINT64_MAX;
		value = value * 10 + (uint64_t)(*text - '0');
	}
	return value;
}

/* Some servers list ETags without the quotes that their headers have. */
static bool s3_quote_etag(struct s3_xml *xml)
{
	struct s3_text *etag = &xml->fields[S3_ETAG];

	if (*s3_field_text(xml, S3_ETAG) == '\0' || etag->bytes[0] == '"' ||
	    strncmp(etag->bytes, "W/\"", 3) == 0)
		return true;
	if (!s3_text_add(etag, "\"\"", 2))
		return false;
	memmove(etag->bytes + 1, etag->bytes, etag->length - 2);
	etag->bytes[0] = '"';
	return true;
}

static int s3_item_end(struct s3_xml *xml)
{
	struct s3_xml_item item;

	if (xml->item == NULL)
		return 0;
	if (!xml->is_url)
		xml->has_odd_keys |= strpbrk(s3_field_text(xml, S3_KEY), "%+") != NULL;
	else if (xml->has_field[S3_KEY] && !s3_text_decode(&xml->fields[S3_KEY]))
		return KVT_EPROTO;
	if (!s3_quote_etag(xml))
		return KVT_ENOMEM;
	item.key = s3_field_text(xml, S3_KEY);
	item.etag = s3_field_text(xml, S3_ETAG);
	item.upload_id = s3_field_text(xml, S3_UPLOAD_ID);
	item.time = s3_field_text(xml, S3_MODIFIED);
	item.bytes = s3_field_number(xml, S3_SIZE);
	return xml->item(xml->context, &item);
}

/* Where in the document the encoding is named differs from server to server, so that what is not
 * handed over along the way is decoded at the end. Prefix and the like only repeat the request, and
 * Ceph repeats them as they were. */
static int s3_root_end(struct s3_xml *xml)
{
	static const char *const encoded[] = {"KeyMarker", "NextKeyMarker"};

	if (!xml->is_url)
		return 0;
	if (xml->has_odd_keys)
		return KVT_EPROTO;
	for (size_t i = 0; i < sizeof(encoded) / sizeof(encoded[0]); i++) {
		struct s3_leaf *leaf = s3_leaf_find(xml, encoded[i]);

		if (leaf && !s3_text_decode(&leaf->text))
			return KVT_EPROTO;
	}
	return 0;
}

static void XMLCALL s3_on_end(void *context, const XML_Char *name)
{
	struct s3_xml *xml = context;
	int error = 0;

	if (xml->error)
		return;
	name = s3_local_name(name);
	if (xml->is_leaf && !s3_text_add(&xml->text, "", 0)) {
		s3_xml_fail(xml, KVT_ENOMEM);
		return;
	}
	if (xml->depth == 2 && xml->in_item) {
		xml->in_item = false;
		error = s3_item_end(xml);
	} else if (xml->is_leaf && xml->depth == 2) {
		s3_leaf_keep(xml, name);
	} else if (xml->is_leaf && xml->depth == 3 && xml->in_item) {
		s3_field_keep(xml, name);
	} else if (xml->depth == 1) {
		error = s3_root_end(xml);
	}
	xml->depth--;
	xml->is_leaf = false;
	if (error)
		s3_xml_fail(xml, error);
}

static void XMLCALL s3_on_doctype(void *context, const XML_Char *name, const XML_Char *system_id,
				  const XML_Char *public_id, int has_internal_subset)
{
	(void)name;
	(void)system_id;
	(void)public_id;
	(void)has_internal_subset;
	s3_xml_fail(context, KVT_EPROTO);
}

/* How many bytes at the start are blanks or a byte order mark: expat takes neither before an XML
 * declaration, but servers that keep a connection alive with blanks send them. */
static size_t s3_skip(struct s3_xml *xml, const char *data, size_t bytes)
{
	static const char mark[] = "\xEF\xBB\xBF";
	size_t i;

	for (i = 0; i < bytes && !xml->has_begun && xml->error == 0; i++) {
		if (data[i] == mark[xml->mark])
			xml->mark = (xml->mark + 1) % 3;
		else if (xml->mark)
			xml->error = KVT_EPROTO;
		else if (!strchr(" \t\r\n", data[i]) || data[i] == '\0')
			xml->has_begun = true;
		if (xml->has_begun)
			return i;
	}
	return i;
}

static int s3_parse(struct s3_xml *xml, const char *data, size_t bytes, bool is_last)
{
	XML_Index at;

	if (XML_Parse(xml->parser, data, (int)bytes, is_last) != XML_STATUS_OK) {
		if (xml->error == 0)
			xml->error = XML_GetErrorCode(xml->parser) == XML_ERROR_NO_MEMORY
					     ? KVT_ENOMEM
					     : KVT_EPROTO;
		return xml->error;
	}
	at = XML_GetCurrentByteIndex(xml->parser);
	if (xml->error == 0 && at >= 0 && xml->parsed - (uint64_t)at > 2 * S3_XML_PIECE_BYTES)
		xml->error = KVT_EPROTO;
	return xml->error;
}

struct s3_xml *kvt__s3_xml_create(s3_xml_item_fn item, void *context)
{
	struct s3_xml *xml = calloc(1, sizeof(*xml));

	if (xml == NULL)
		return NULL;
	xml->item = item;
	xml->context = context;
	/* UTF-8 whatever the document claims: that is what S3 speaks. */
	xml->parser = XML_ParserCreate("UTF-8");
	if (xml->parser == NULL) {
		free(xml);
		return NULL;
	}
	XML_SetUserData(xml->parser, xml);
	(void)XML_SetParamEntityParsing(xml->parser, XML_PARAM_ENTITY_PARSING_NEVER);
	XML_SetElementHandler(xml->parser, s3_on_start, s3_on_end);
	XML_SetCharacterDataHandler(xml->parser, s3_on_text);
	XML_SetStartDoctypeDeclHandler(xml->parser, s3_on_doctype);
	return xml;
}

void kvt__s3_xml_destroy(struct s3_xml *xml)
{
	if (xml == NULL)
		return;
	XML_ParserFree(xml->parser);
	free(xml->text.bytes);
	for (size_t i = 0; i < S3_FIELDS; i++)
		free(xml->fields[i].bytes);
	for (uint32_t i = 0; i < xml->leaf_count; i++)
		free(xml->leaves[i].text.bytes);
	free(xml);
}

int kvt__s3_xml_feed(struct s3_xml *xml, const void *data, size_t bytes)
{
	const char *at = data;
	size_t skipped;

	if (xml->error)
		return xml->error;
	if (bytes == 0)
		return 0;
	if (xml->has_ended || bytes > S3_XML_MAX_BYTES - xml->skipped - xml->parsed)
		return xml->error = KVT_EPROTO;
	skipped = s3_skip(xml, at, bytes);
	xml->skipped += skipped;
	for (at += skipped, bytes -= skipped; bytes && xml->error == 0;) {
		size_t piece = bytes < S3_XML_PIECE_BYTES ? bytes : S3_XML_PIECE_BYTES;

		xml->parsed += piece;
		(void)s3_parse(xml, at, piece, false);
		at += piece;
		bytes -= piece;
	}
	return xml->error;
}

int kvt__s3_xml_end(struct s3_xml *xml)
{
	if (xml->error || xml->has_ended)
		return xml->error;
	xml->has_ended = true;
	if (xml->mark)
		xml->error = KVT_EPROTO;
	else if (xml->has_begun)
		(void)s3_parse(xml, "", 0, true);
	return xml->error;
}

enum s3_xml_root kvt__s3_xml_root(const struct s3_xml *xml)
{
	return xml->root;
}

const char *kvt__s3_xml_text(const struct s3_xml *xml, const char *element)
{
	for (uint32_t i = 0; i < xml->leaf_count; i++)
		if (strcmp(xml->leaves[i].name, element) == 0)
			return xml->leaves[i].text.bytes;
	return "";
}
