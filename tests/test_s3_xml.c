/* SPDX-License-Identifier: Apache-2.0 */
/* The XML of S3: replies as servers write them, in pieces of every size, and documents that are
 * refused. */
#include "../backends/s3/xml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"

#define DECLARATION "<?xml version=\"1.0\" encoding=\"UTF-8\"?>"
#define MAX_ITEMS   8

struct seen {
	size_t count;
	size_t stop_at; /* item that is answered with stop_with, from 1; 0: none */
	int stop_with;
	char items[MAX_ITEMS][256]; /* "key|etag|upload|time|bytes" */
};

static int on_item(void *context, const struct s3_xml_item *item)
{
	struct seen *seen = context;

	if (seen->count < MAX_ITEMS)
		(void)snprintf(seen->items[seen->count], sizeof(seen->items[0]), "%s|%s|%s|%s|%llu",
			       item->key, item->etag, item->upload_id, item->time,
			       (unsigned long long)item->bytes);
	seen->count++;
	return seen->count == seen->stop_at ? seen->stop_with : 0;
}

/* Feeds all of it in pieces of `piece` bytes; the caller destroys it. */
static struct s3_xml *read_pieces(const char *text, size_t bytes, size_t piece, struct seen *seen,
				  int *resultp)
{
	struct s3_xml *xml = kvt__s3_xml_create(seen ? on_item : NULL, seen);
	int result = 0;

	assert_non_null(xml);
	for (size_t at = 0; at < bytes && result == 0; at += piece)
		result = kvt__s3_xml_feed(xml, text + at, bytes - at < piece ? bytes - at : piece);
	*resultp = result ? result : kvt__s3_xml_end(xml);
	/* It stays as it is. */
	assert_int_equal(kvt__s3_xml_end(xml), *resultp);
	return xml;
}

static struct s3_xml *read_all(const char *text, struct seen *seen)
{
	int result;
	struct s3_xml *xml = read_pieces(text, strlen(text), strlen(text) + 1, seen, &result);

	assert_int_equal(result, 0);
	return xml;
}

static void assert_refused(const char *text, size_t bytes, int expected)
{
	static const size_t pieces[] = {1, 7, 4096, 1u << 20};

	for (size_t i = 0; i < TEST_COUNT(pieces); i++) {
		struct seen seen = {0};
		int result;

		kvt__s3_xml_destroy(read_pieces(text, bytes, pieces[i], &seen, &result));
		assert_int_equal(result, expected);
	}
}

static void assert_text(const struct s3_xml *xml, const char *element, const char *expected)
{
	assert_string_equal(kvt__s3_xml_text(xml, element), expected);
}

static const char error_reply[] =
	DECLARATION "\n<Error><Code>SlowDown</Code><Message>Please reduce &quot;your&quot; request "
		    "rate &amp; wait.</Message><Resource>/b/k</Resource><RequestId>4442587FB7D0A2F9"
		    "</RequestId></Error>\n";

static void an_error_is_read_in_pieces_of_every_size(void **state)
{
	size_t bytes = sizeof(error_reply) - 1;

	(void)state;
	for (size_t piece = 1; piece <= bytes; piece++) {
		int result;
		struct s3_xml *xml = read_pieces(error_reply, bytes, piece, NULL, &result);

		assert_int_equal(result, 0);
		assert_int_equal(kvt__s3_xml_root(xml), S3_XML_ERROR);
		assert_text(xml, "Code", "SlowDown");
		assert_text(xml, "Message", "Please reduce \"your\" request rate & wait.");
		assert_text(xml, "RequestId", "4442587FB7D0A2F9");
		assert_text(xml, "Region", "");
		kvt__s3_xml_destroy(xml);
	}
}

static void roots_are_told_apart_and_namespaces_do_not_matter(void **state)
{
	static const struct {
		const char *text;
		enum s3_xml_root root;
	} cases[] = {
		{"", S3_XML_NONE},
		{" \r\n\t ", S3_XML_NONE},
		{"<Error/>", S3_XML_ERROR},
		{"<InitiateMultipartUploadResult "
		 "xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"/>",
		 S3_XML_INITIATE},
		{"<s3:CompleteMultipartUploadResult xmlns:s3='urn:x'></s3:"
		 "CompleteMultipartUploadResult>",
		 S3_XML_COMPLETE},
		{"<ListBucketResult></ListBucketResult>", S3_XML_LIST},
		{"<ListMultipartUploadsResult/>", S3_XML_UPLOADS},
		{"<html><body>502 Bad Gateway</body></html>", S3_XML_OTHER},
		{"<error/>", S3_XML_OTHER},
	};

	(void)state;
	for (size_t i = 0; i < TEST_COUNT(cases); i++) {
		struct s3_xml *xml = read_all(cases[i].text, NULL);

		assert_int_equal(kvt__s3_xml_root(xml), cases[i].root);
		kvt__s3_xml_destroy(xml);
	}
}

static void a_result_after_blanks_and_a_byte_order_mark_is_read(void **state)
{
	static const char *const leads[] = {
		"", "\n", "   \r\n\r\n \t", "\xEF\xBB\xBF", "  \xEF\xBB\xBF", "\xEF\xBB\xBF\n  "};
	static const char *const declarations[] = {"", DECLARATION, DECLARATION "\n<!-- note -->"};

	(void)state;
	for (size_t l = 0; l < TEST_COUNT(leads); l++) {
		for (size_t d = 0; d < TEST_COUNT(declarations); d++) {
			char *text = test_format("%s%s<x:CompleteMultipartUploadResult><x:ETag>"
						 "&#34;abc-2&#x22;</x:ETag>"
						 "</x:CompleteMultipartUploadResult>\n\n",
						 leads[l], declarations[d]);

			for (size_t piece = 1; piece <= 8; piece++) {
				int result;
				struct s3_xml *xml =
					read_pieces(text, strlen(text), piece, NULL, &result);

				assert_int_equal(result, 0);
				assert_int_equal(kvt__s3_xml_root(xml), S3_XML_COMPLETE);
				assert_text(xml, "ETag", "\"abc-2\"");
				kvt__s3_xml_destroy(xml);
			}
			free(text);
		}
	}
}

static void cdata_comments_and_entities_are_text(void **state)
{
	struct s3_xml *xml = read_all("<Error><Code>A<![CDATA[<&b]]>c<!-- no --><?pi no?>d</Code>"
				      "<Message>&lt;&gt;&amp;&apos;&quot;&#233;&#x20AC;</Message>"
				      "<Empty/><Blank> x </Blank></Error>",
				      NULL);

	(void)state;
	assert_text(xml, "Code", "A<&bcd");
	assert_text(xml, "Message", "<>&'\"\xC3\xA9\xE2\x82\xAC");
	assert_text(xml, "Empty", "");
	assert_text(xml, "Blank", " x ");
	kvt__s3_xml_destroy(xml);
}

static void only_leaves_right_below_the_root_have_text(void **state)
{
	struct s3_xml *xml = read_all("<Error><Owner><Code>nested</Code></Owner>"
				      "<Code>first</Code><Code>second</Code></Error>",
				      NULL);

	(void)state;
	assert_text(xml, "Code", "first");
	assert_text(xml, "Owner", "");
	kvt__s3_xml_destroy(xml);
}

static const char list_reply[] = DECLARATION
	"<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>b</Name>"
	"<Prefix>kv/</Prefix><IsTruncated>true</IsTruncated>"
	"<NextContinuationToken>1ueGcxLPRx1Tr/XYExHnhbYLgveDs2J/wm36Hy4vbOwM=</"
	"NextContinuationToken>"
	"<Contents><Key>kv/a%20+.bin</Key><LastModified>2024-01-31T12:34:56.000Z</LastModified>"
	"<ETag>&quot;fba9dede5f27731c9771645a39863328&quot;</ETag><Size>434234</Size>"
	"<Owner><ID>1</ID><DisplayName>Key</DisplayName><Key>no</Key></Owner>"
	"<StorageClass>STANDARD</StorageClass></Contents>"
	"<Contents><Size>0</Size><Key>kv/b</Key><ETag>abc-3</ETag></Contents>"
	"<Upload><Key>wrong kind</Key></Upload>"
	"<CommonPrefixes><Prefix>kv/c/</Prefix></CommonPrefixes>"
	"<Contents><Key>kv/d</Key><Size>-1</Size><ETag>W/\"w\"</ETag></Contents>"
	"</ListBucketResult>";

static void a_listing_hands_over_its_items(void **state)
{
	(void)state;
	for (size_t piece = 1; piece < sizeof(list_reply); piece += 3) {
		struct seen seen = {0};
		int result;
		struct s3_xml *xml =
			read_pieces(list_reply, sizeof(list_reply) - 1, piece, &seen, &result);

		assert_int_equal(result, 0);
		assert_int_equal(kvt__s3_xml_root(xml), S3_XML_LIST);
		assert_int_equal(seen.count, 3);
		assert_string_equal(seen.items[0],
				    "kv/a%20+.bin|\"fba9dede5f27731c9771645a39863328\"||"
				    "2024-01-31T12:34:56.000Z|434234");
		assert_string_equal(seen.items[1], "kv/b|\"abc-3\"|||0");
		assert_string_equal(seen.items[2], "kv/d|W/\"w\"|||18446744073709551615");
		assert_text(xml, "IsTruncated", "true");
		assert_text(xml, "NextContinuationToken",
			    "1ueGcxLPRx1Tr/XYExHnhbYLgveDs2J/wm36Hy4vbOwM=");
		kvt__s3_xml_destroy(xml);
	}
}

static void a_listing_of_uploads_hands_over_its_items(void **state)
{
	static const char text[] =
		"<ListMultipartUploadsResult><Bucket>b</Bucket>"
		"<KeyMarker>a%2Bb</KeyMarker><NextKeyMarker>kv%2Fx%20y</NextKeyMarker>"
		"<NextUploadIdMarker>2~%2B+</NextUploadIdMarker>"
		"<EncodingType>url</EncodingType><IsTruncated>true</IsTruncated>"
		"<Contents><Key>wrong kind</Key></Contents>"
		"<Upload><Key>kv%2fx+y</Key><UploadId>2~a+b%2F</UploadId>"
		"<Initiator><ID>1</ID></Initiator>"
		"<Initiated>2010-11-10T20:48:33.000Z</Initiated></Upload>"
		"</ListMultipartUploadsResult>";
	struct seen seen = {0};
	struct s3_xml *xml = read_all(text, &seen);

	(void)state;
	assert_int_equal(kvt__s3_xml_root(xml), S3_XML_UPLOADS);
	assert_int_equal(seen.count, 1);
	assert_string_equal(seen.items[0], "kv/x y||2~a+b%2F|2010-11-10T20:48:33.000Z|"
					   "18446744073709551615");
	assert_text(xml, "NextKeyMarker", "kv/x y");
	assert_text(xml, "KeyMarker", "a+b");
	/* Upload ids are opaque. */
	assert_text(xml, "NextUploadIdMarker", "2~%2B+");
	kvt__s3_xml_destroy(xml);
}

static void markers_that_come_before_the_encoding_type_are_decoded_too(void **state)
{
	struct s3_xml *xml = read_all("<ListMultipartUploadsResult>"
				      "<NextKeyMarker>a%2Fb+c</NextKeyMarker>"
				      "<EncodingType>url</EncodingType>"
				      "</ListMultipartUploadsResult>",
				      NULL);

	(void)state;
	assert_text(xml, "NextKeyMarker", "a/b c");
	kvt__s3_xml_destroy(xml);
}

/* Ceph encodes the keys, and neither the prefix nor the token. */
static void a_listing_of_ceph_is_read(void **state)
{
	struct seen seen = {0};
	struct s3_xml *xml =
		read_all(DECLARATION
			 "<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">"
			 "<EncodingType>url</EncodingType><Name>b</Name><Prefix>kv/100%+</Prefix>"
			 "<MaxKeys>1</MaxKeys><IsTruncated>true</IsTruncated><Contents>"
			 "<Key>kv%2F100%25%2B%20b.bin</Key>"
			 "<LastModified>2026-12-01T01:38:03.928Z</LastModified>"
			 "<ETag>&quot;9dd4e461268c8034f5c8564e155c67a6&quot;</ETag><Size>1</Size>"
			 "<StorageClass>STANDARD</StorageClass><Type>Normal</Type></Contents>"
			 "<NextContinuationToken>kv/100%+ b.bin</NextContinuationToken>"
			 "<KeyCount>1</KeyCount></ListBucketResult>",
			 &seen);

	(void)state;
	assert_int_equal(seen.count, 1);
	assert_string_equal(seen.items[0], "kv/100%+ b.bin|\"9dd4e461268c8034f5c8564e155c67a6\"||"
					   "2026-12-01T01:38:03.928Z|1");
	assert_text(xml, "Prefix", "kv/100%+");
	assert_text(xml, "NextContinuationToken", "kv/100%+ b.bin");
	kvt__s3_xml_destroy(xml);
}

static void items_that_come_before_the_encoding_type_may_need_no_decoding(void **state)
{
	static const char plain[] = "<ListBucketResult><Contents><Key>a/b_c.bin</Key></Contents>"
				    "<EncodingType>url</EncodingType></ListBucketResult>";
	static const char odd[] = "<ListBucketResult><Contents><Key>a%20b</Key></Contents>"
				  "<EncodingType>url</EncodingType></ListBucketResult>";
	struct seen seen = {0};

	(void)state;
	kvt__s3_xml_destroy(read_all(plain, &seen));
	assert_string_equal(seen.items[0], "a/b_c.bin||||18446744073709551615");
	assert_refused(odd, sizeof(odd) - 1, KVT_EPROTO);
}

static void broken_escapes_are_refused(void **state)
{
	static const char *const keys[] = {"a%", "a%2", "%g0", "%0g", "%00", "%%41", "a% 20"};

	(void)state;
	for (size_t i = 0; i < TEST_COUNT(keys); i++) {
		char *item = test_format("<ListBucketResult><EncodingType>url</EncodingType>"
					 "<Contents><Key>%s</Key></Contents></ListBucketResult>",
					 keys[i]);
		char *marker = test_format("<ListMultipartUploadsResult><NextKeyMarker>%s"
					   "</NextKeyMarker><EncodingType>url</EncodingType>"
					   "</ListMultipartUploadsResult>",
					   keys[i]);

		assert_refused(item, strlen(item), KVT_EPROTO);
		assert_refused(marker, strlen(marker), KVT_EPROTO);
		free(item);
		free(marker);
	}
}

static void what_is_no_xml_is_refused(void **state)
{
	static const char *const texts[] = {
		"not xml",
		"<Error>",
		"<Error><Code></Error>",
		"<Error/><Error/>",
		"<Error/>trailing",
		"<?xml version=\"1.0\"?>",
		"x <Error/>",
		"\xEF\xBB",
		"\xEF\xBB<Error/>",
		"<Error>\x01</Error>",
		"<Error>\xFF\xFE</Error>",
		"<Error>&nbsp;</Error>",
		"<Error>&#0;</Error>",
		"{\"Error\": 1}",
		DECLARATION DECLARATION "<Error/>",
	};

	(void)state;
	for (size_t i = 0; i < TEST_COUNT(texts); i++)
		assert_refused(texts[i], strlen(texts[i]), KVT_EPROTO);
	assert_refused("<Error>\0</Error>", 16, KVT_EPROTO);
	assert_refused("\0<Error></Error>", 16, KVT_EPROTO);
}

static void document_types_are_refused(void **state)
{
	static const char *const texts[] = {
		"<!DOCTYPE Error><Error/>",
		"<!DOCTYPE Error SYSTEM \"file:///etc/passwd\"><Error/>",
		"<!DOCTYPE e [<!ENTITY a \"aa\"><!ENTITY b \"&a;&a;\">]><Error>&b;</Error>",
		"<!DOCTYPE e [<!ENTITY x SYSTEM \"http://127.0.0.1/\">]><Error>&x;</Error>",
		("<!DOCTYPE e PUBLIC \"-//x\" \"http://127.0.0.1/\" [<!ENTITY % p SYSTEM "
		 "\"file:///etc/passwd\"> %p;]><Error/>"),
	};

	(void)state;
	for (size_t i = 0; i < TEST_COUNT(texts); i++)
		assert_refused(texts[i], strlen(texts[i]), KVT_EPROTO);
}

/* `count` times `text`, newly allocated. */
static char *repeat(const char *text, size_t count)
{
	size_t bytes = strlen(text);
	char *all = malloc(count * bytes + 1);

	assert_non_null(all);
	for (size_t i = 0; i < count; i++)
		memcpy(all + i * bytes, text, bytes);
	all[count * bytes] = '\0';
	return all;
}

static void depth_is_bounded(void **state)
{
	(void)state;
	for (size_t depth = S3_XML_MAX_DEPTH; depth <= S3_XML_MAX_DEPTH + 1; depth++) {
		char *open = repeat("<a>", depth), *close = repeat("</a>", depth);
		char *text = test_format("%s%s", open, close);

		if (depth > S3_XML_MAX_DEPTH)
			assert_refused(text, strlen(text), KVT_EPROTO);
		else
			kvt__s3_xml_destroy(read_all(text, NULL));
		free(text);
		free(open);
		free(close);
	}
}

static void text_is_bounded(void **state)
{
	(void)state;
	for (size_t bytes = S3_XML_MAX_TEXT; bytes <= S3_XML_MAX_TEXT + 1; bytes++) {
		char *much = repeat("m", bytes);
		char *text = test_format("<Error><Message>%s</Message></Error>", much);

		if (bytes > S3_XML_MAX_TEXT) {
			assert_refused(text, strlen(text), KVT_EPROTO);
		} else {
			struct s3_xml *xml = read_all(text, NULL);

			assert_text(xml, "Message", much);
			kvt__s3_xml_destroy(xml);
		}
		free(text);
		free(much);
	}
}

static void a_tag_without_end_is_given_up_early(void **state)
{
	struct s3_xml *xml = kvt__s3_xml_create(NULL, NULL);
	char *piece = repeat("a", 16384);
	size_t fed = 0;
	int result = kvt__s3_xml_feed(xml, "<Error b='", 10);

	(void)state;
	for (; result == 0 && fed < S3_XML_MAX_BYTES; fed += 16384)
		result = kvt__s3_xml_feed(xml, piece, 16384);
	assert_int_equal(result, KVT_EPROTO);
	assert_true(fed <= 262144);
	free(piece);
	kvt__s3_xml_destroy(xml);
}

static void the_length_is_bounded(void **state)
{
	struct s3_xml *xml = kvt__s3_xml_create(NULL, NULL);
	char *blanks = repeat(" ", 1u << 20);

	(void)state;
	for (size_t i = 0; i < S3_XML_MAX_BYTES >> 20; i++)
		assert_int_equal(kvt__s3_xml_feed(xml, blanks, 1u << 20), 0);
	assert_int_equal(kvt__s3_xml_feed(xml, " ", 1), KVT_EPROTO);
	assert_int_equal(kvt__s3_xml_end(xml), KVT_EPROTO);
	kvt__s3_xml_destroy(xml);

	xml = kvt__s3_xml_create(NULL, NULL);
	assert_int_equal(kvt__s3_xml_feed(xml, "<Error>", 7), 0);
	for (size_t i = 0; i < (S3_XML_MAX_BYTES >> 20) - 1; i++)
		assert_int_equal(kvt__s3_xml_feed(xml, "<a> </a>", 8), 0);
	assert_int_equal(kvt__s3_xml_feed(xml, "</Error>", 8), 0);
	assert_int_equal(kvt__s3_xml_end(xml), 0);
	assert_int_equal(kvt__s3_xml_feed(xml, " ", 1), KVT_EPROTO);
	kvt__s3_xml_destroy(xml);
	free(blanks);
}

static void many_elements_cost_no_more_memory(void **state)
{
	struct s3_xml *xml = kvt__s3_xml_create(NULL, NULL);
	char name[96];

	(void)state;
	assert_int_equal(kvt__s3_xml_feed(xml, "<Error><Code>C</Code>", 21), 0);
	for (int i = 0; i < 5000; i++) {
		int n = snprintf(name, sizeof(name), "<n%d>v%d</n%d>", i, i, i);

		assert_int_equal(kvt__s3_xml_feed(xml, name, (size_t)n), 0);
	}
	assert_int_equal(kvt__s3_xml_feed(xml, "</Error>", 8), 0);
	assert_int_equal(kvt__s3_xml_end(xml), 0);
	assert_text(xml, "Code", "C");
	assert_text(xml, "n10", "v10");
	assert_text(xml, "n4999", "");
	kvt__s3_xml_destroy(xml);
}

static void an_item_can_stop_the_reading(void **state)
{
	(void)state;
	for (size_t stop_at = 1; stop_at <= 3; stop_at++) {
		for (size_t piece = 1; piece <= sizeof(list_reply); piece += 400) {
			struct seen seen = {.stop_at = stop_at, .stop_with = KVT_ECANCELED};
			int result;
			struct s3_xml *xml = read_pieces(list_reply, sizeof(list_reply) - 1, piece,
							 &seen, &result);

			assert_int_equal(result, KVT_ECANCELED);
			assert_int_equal(seen.count, stop_at);
			assert_int_equal(kvt__s3_xml_feed(xml, " ", 1), KVT_ECANCELED);
			assert_int_equal(seen.count, stop_at);
			kvt__s3_xml_destroy(xml);
		}
	}
}

static void times_are_read(void **state)
{
	static const struct {
		const char *text;
		int64_t seconds;
	} cases[] = {
		{"1970-01-01T00:00:00Z", 0},
		{"2024-01-31T12:34:56.000Z", 1706704496},
		{"2024-01-31T12:34:56.123456789Z", 1706704496},
		{"2024-01-31T12:34:56+00:00", 1706704496},
		{"2024-02-29T00:00:00Z", 1709164800},
		{"2000-03-01T00:00:00Z", 951868800},
		{"2100-03-01T00:00:00Z", 4107542400},
		{"9999-12-31T23:59:59Z", 253402300799},
		{"2016-12-31T23:59:60Z", 1483228800},
		{"Wed, 31 Jan 2024 12:34:56 GMT", 1706704496},
		{"Thu, 01 Jan 1970 00:00:00 GMT", 0},
		{"Tue, 29 Feb 2028 23:59:59 GMT", 1835481599},
		{"", -1},
		{"yesterday", -1},
		{"2024-01-31", -1},
		{"2024-01-31T12:34:56", -1},
		{"2024-01-31T12:34:56.Z", -1},
		{"2024-01-31T12:34:56+01:00", -1},
		{"2024-1-31T12:34:56Z", -1},
		{"2024-13-01T12:34:56Z", -1},
		{"2024-00-01T12:34:56Z", -1},
		{"2023-02-29T12:34:56Z", -1},
		{"2100-02-29T12:34:56Z", -1},
		{"2024-01-32T12:34:56Z", -1},
		{"2024-01-31T24:00:00Z", -1},
		{"2024-01-31T12:60:00Z", -1},
		{"1969-12-31T23:59:59Z", -1},
		{"2024-01-31T12:34:56Zx", -1},
		{"Wed, 31 Jan 2024 12:34:56 CET", -1},
		{"Wed, 31 Xan 2024 12:34:56 GMT", -1},
		{"Wed, 31 Jan 24 12:34:56 GMT", -1},
		{"Wednesday, 31-Jan-24 12:34:56 GMT", -1},
		{"Wed, 31 Jan 2024 12:34:56", -1},
		{"Wed, 31 Jan 2024 12:34:56 GMT ", -1},
		{"Xed, 31 Jan 2024 12:34:56 GMT", -1},
	};

	(void)state;
	for (size_t i = 0; i < TEST_COUNT(cases); i++) {
		if (kvt__s3_time(cases[i].text) != cases[i].seconds)
			fail_msg("\"%s\": %lld, expected %lld", cases[i].text,
				 (long long)kvt__s3_time(cases[i].text),
				 (long long)cases[i].seconds);
	}
}

static void ages_never_overflow(void **state)
{
	const int64_t ns = 1000000000, last_s = kvt__s3_time("Fri, 31 Dec 9999 23:59:59 GMT");

	(void)state;
	assert_true(last_s > 0);
	assert_int_equal(kvt__s3_age_ns(100, 40), 60 * ns);
	assert_int_equal(kvt__s3_age_ns(40, 100), 0);
	assert_int_equal(kvt__s3_age_ns(0, last_s), 0);
	assert_int_equal(kvt__s3_age_ns(100, -1), -1);
	assert_int_equal(kvt__s3_age_ns(last_s, 0), INT64_MAX / ns * ns);
	assert_int_equal(kvt__s3_age_ns(INT64_MAX, 0), INT64_MAX / ns * ns);
}

static void nothing_is_destroyed(void **state)
{
	(void)state;
	kvt__s3_xml_destroy(NULL);
	kvt__s3_xml_destroy(kvt__s3_xml_create(NULL, NULL));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_error_is_read_in_pieces_of_every_size),
		cmocka_unit_test(roots_are_told_apart_and_namespaces_do_not_matter),
		cmocka_unit_test(a_result_after_blanks_and_a_byte_order_mark_is_read),
		cmocka_unit_test(cdata_comments_and_entities_are_text),
		cmocka_unit_test(only_leaves_right_below_the_root_have_text),
		cmocka_unit_test(a_listing_hands_over_its_items),
		cmocka_unit_test(a_listing_of_uploads_hands_over_its_items),
		cmocka_unit_test(markers_that_come_before_the_encoding_type_are_decoded_too),
		cmocka_unit_test(a_listing_of_ceph_is_read),
		cmocka_unit_test(items_that_come_before_the_encoding_type_may_need_no_decoding),
		cmocka_unit_test(broken_escapes_are_refused),
		cmocka_unit_test(what_is_no_xml_is_refused),
		cmocka_unit_test(document_types_are_refused),
		cmocka_unit_test(depth_is_bounded),
		cmocka_unit_test(text_is_bounded),
		cmocka_unit_test(a_tag_without_end_is_given_up_early),
		cmocka_unit_test(the_length_is_bounded),
		cmocka_unit_test(many_elements_cost_no_more_memory),
		cmocka_unit_test(an_item_can_stop_the_reading),
		cmocka_unit_test(times_are_read),
		cmocka_unit_test(ages_never_overflow),
		cmocka_unit_test(nothing_is_destroyed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
