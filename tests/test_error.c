/* SPDX-License-Identifier: Apache-2.0 */
/* Result codes, classes, statuses, the thread's detail, and the version. */
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include <kvtier/kvtier.h>

#include "env.h"
#include "support.h"

static const struct {
	int value;
	const char *name, *text, *class_name;
	enum kvt_error_class error_class;
} codes[] = {
#define KVT_X(code, number, class_code, words)                                                     \
	{number, "KVT_" #code, words, #class_code, KVT_CLASS_##class_code},
	KVT_ERROR_TABLE(KVT_X)
#undef KVT_X
};

static void every_code_has_its_name_text_and_class(void **state)
{
	(void)state;
	for (size_t i = 0; i < TEST_COUNT(codes); i++) {
		assert_string_equal(kvt_error_name(codes[i].value), codes[i].name);
		assert_string_equal(kvt_error_text(codes[i].value), codes[i].text);
		assert_int_equal(kvt_error_class(codes[i].value), codes[i].error_class);
		assert_string_equal(kvt_error_class_name(kvt_error_class(codes[i].value)),
				    codes[i].class_name);
	}
	assert_string_equal(kvt_error_name(KVT_EINVAL), "KVT_EINVAL");
	assert_string_equal(kvt_error_text(KVT_EINVAL), "invalid argument");
}

static void no_two_codes_share_a_value_or_name_and_none_is_left_out(void **state)
{
	(void)state;
	for (size_t i = 0; i < TEST_COUNT(codes); i++) {
		assert_int_equal(codes[i].value, -(int)i - 1);
		for (size_t k = 0; k < i; k++)
			assert_string_not_equal(codes[i].name, codes[k].name);
	}
}

static void success_and_counts_are_no_errors(void **state)
{
	static const int values[] = {0, 1, 42, INT_MAX};

	(void)state;
	for (size_t i = 0; i < TEST_COUNT(values); i++) {
		assert_string_equal(kvt_error_name(values[i]), "KVT_OK");
		assert_string_equal(kvt_error_text(values[i]), "success");
		assert_int_equal(kvt_error_class(values[i]), KVT_CLASS_NONE);
		assert_int_equal(kvt_error_exit_status(values[i]), 0);
	}
}

static void codes_that_do_not_exist_are_internal(void **state)
{
	const int values[] = {-(int)TEST_COUNT(codes) - 1, -1000, INT_MIN + 1, INT_MIN};

	(void)state;
	for (size_t i = 0; i < TEST_COUNT(values); i++) {
		assert_string_equal(kvt_error_name(values[i]), "KVT_E?");
		assert_true(strlen(kvt_error_text(values[i])) > 0);
		assert_int_equal(kvt_error_class(values[i]), KVT_CLASS_INTERNAL);
	}
	assert_string_equal(kvt_error_class_name((enum kvt_error_class)KVT_CLASS_COUNT), "?");
	assert_string_equal(kvt_error_class_name((enum kvt_error_class)(KVT_CLASS_INTERNAL + 1)),
			    "?");
	assert_string_equal(kvt_error_class_name((enum kvt_error_class) - 1), "?");
}

static void each_class_has_an_exit_status_of_its_own(void **state)
{
	static const struct {
		int error, status;
	} cases[] = {
		{KVT_EINVAL, 2}, {KVT_ENOENT, 3},     {KVT_ECORRUPT, 4},   {KVT_EMISMATCH, 4},
		{KVT_EEXIST, 5}, {KVT_EIO, 6},	      {KVT_EAGAIN, 7},	   {KVT_ENOSPC, 8},
		{KVT_EACCES, 9}, {KVT_ECANCELED, 10}, {KVT_EINTERNAL, 11}, {-1000, 11},
	};

	(void)state;
	for (size_t i = 0; i < TEST_COUNT(cases); i++)
		assert_int_equal(kvt_error_exit_status(cases[i].error), cases[i].status);
	/* Statistics are counted by class. */
	assert_true(KVT_CLASS_INTERNAL < KVT_CLASS_COUNT);
}

static void statuses_have_names_and_say_what_success_is(void **state)
{
	static const struct {
		uint32_t status;
		const char *name;
		int success;
	} cases[] = {
		{KVT_STATUS_PENDING, "pending", 1},
		{KVT_STATUS_STORED, "stored", 1},
		{KVT_STATUS_SKIPPED, "skipped", 1},
		{KVT_STATUS_LOADED, "loaded", 1},
		{KVT_STATUS_LOADED_UNVERIFIED, "loaded_unverified", 1},
		{KVT_STATUS_HIT, "hit", 1},
		{KVT_STATUS_PARTIAL, "partial", 1},
		{KVT_STATUS_MISS, "miss", 1},
		{KVT_STATUS_UNKNOWN, "unknown", 0},
		{KVT_STATUS_CANCELED, "canceled", 0},
		{KVT_STATUS_MISSING, "missing", 0},
		{KVT_STATUS_FOREIGN, "foreign", 0},
		{KVT_STATUS_MISMATCH, "mismatch", 0},
		{KVT_STATUS_CORRUPT, "corrupt", 0},
		{KVT_STATUS_FAILED, "failed", 0},
	};

	(void)state;
	for (uint32_t i = 0; i < TEST_COUNT(cases); i++) {
		assert_int_equal(cases[i].status, i);
		assert_string_equal(kvt_status_name(cases[i].status), cases[i].name);
		assert_int_equal(kvt_status_is_success(cases[i].status), cases[i].success);
	}
	assert_true(TEST_COUNT(cases) <= KVT_STATUS_COUNT);
	assert_string_equal(kvt_status_name(TEST_COUNT(cases)), "?");
	assert_string_equal(kvt_status_name(UINT32_MAX), "?");
	assert_int_equal(kvt_status_is_success(TEST_COUNT(cases)), 0);
	assert_int_equal(kvt_status_is_success(UINT32_MAX), 0);
}

static void a_failure_leaves_its_detail_and_code(void **state)
{
	(void)state;
	assert_int_equal(kvt__fail(KVT_EINVAL, "keys[%d]: %s", 3, "too long"), KVT_EINVAL);
	assert_string_equal(kvt_error_detail(), "keys[3]: too long");
	/* The detail may be part of the next one. */
	assert_int_equal(kvt__fail(KVT_EPROTO, "store: %s", kvt_error_detail()), KVT_EPROTO);
	assert_string_equal(kvt_error_detail(), "store: keys[3]: too long");
}

static void a_detail_is_one_line(void **state)
{
	(void)state;
	(void)kvt__fail(KVT_EINVAL, "name \"%s\"", "a\nb\r\tc\x7f\x01");
	assert_string_equal(kvt_error_detail(), "name \"a b  c  \"");
}

static void a_long_detail_is_cut_between_characters(void **state)
{
	char text[700];

	(void)state;
	/* The cut falls at each place of a character of two, three and four bytes. */
	static const char *const characters[] = {"\xc3\xa9", "\xe6\x97\xa5", "\xf0\x9f\x98\x80",
						 "\xe0\xa0\x80"};
	for (size_t c = 0; c < TEST_COUNT(characters); c++) {
		size_t width = strlen(characters[c]);
		for (size_t lead = 0; lead < 4; lead++) {
			memset(text, 'x', lead);
			for (size_t at = lead; at + width < sizeof(text); at += width) {
				memcpy(text + at, characters[c], width);
				text[at + width] = '\0';
			}
			(void)kvt__fail(KVT_EINVAL, "%s", text);
			size_t bytes = strlen(kvt_error_detail());
			assert_true(bytes > 500 && bytes < 512);
			assert_int_equal((bytes - lead) % width, 0);
			assert_memory_equal(kvt_error_detail(), text, bytes);
		}
	}
}

static void one_line_keeps_whole_characters_at_the_end(void **state)
{
	static const char *const texts[] = {"x", "x\xc3\xa9", "\xe6\x97\xa5", "\xf0\x9f\x98\x80",
					    "\xc3\xa9\xc3\xa9"};

	(void)state;
	for (size_t i = 0; i < TEST_COUNT(texts); i++) {
		char copy[16];
		(void)snprintf(copy, sizeof(copy), "%s", texts[i]);
		kvt__one_line(copy);
		assert_string_equal(copy, texts[i]);
	}
}

static void one_line_keeps_what_is_no_utf_8_at_all(void **state)
{
	char continuation[] = "\x80\x80\x80\x80\x80", empty[] = "", lone[] = "\xe6";

	(void)state;
	kvt__one_line(continuation);
	assert_int_equal(strlen(continuation), 5);
	kvt__one_line(empty);
	assert_string_equal(empty, "");
	kvt__one_line(lone);
	assert_string_equal(lone, "");
}

static void *other_thread(void *context)
{
	char *seen = context;

	(void)snprintf(seen, 64, "<%s>", kvt_error_detail());
	(void)kvt__fail(KVT_EIO, "of the other thread");
	return NULL;
}

static void each_thread_has_its_own_detail(void **state)
{
	pthread_t thread;
	char seen[64] = "";

	(void)state;
	(void)kvt__fail(KVT_EINVAL, "of the first thread");
	assert_int_equal(pthread_create(&thread, NULL, other_thread, seen), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_string_equal(seen, "<>");
	assert_string_equal(kvt_error_detail(), "of the first thread");
}

static void the_version_is_that_of_the_headers(void **state)
{
	char text[32];

	(void)state;
	(void)snprintf(text, sizeof(text), "%d.%d.%d", KVT_VERSION_MAJOR, KVT_VERSION_MINOR,
		       KVT_VERSION_PATCH);
	assert_string_equal(kvt_version(), text);
	assert_string_equal(kvt_version(), KVT_VERSION_STRING);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_code_has_its_name_text_and_class),
		cmocka_unit_test(no_two_codes_share_a_value_or_name_and_none_is_left_out),
		cmocka_unit_test(success_and_counts_are_no_errors),
		cmocka_unit_test(codes_that_do_not_exist_are_internal),
		cmocka_unit_test(each_class_has_an_exit_status_of_its_own),
		cmocka_unit_test(statuses_have_names_and_say_what_success_is),
		cmocka_unit_test(a_failure_leaves_its_detail_and_code),
		cmocka_unit_test(a_detail_is_one_line),
		cmocka_unit_test(a_long_detail_is_cut_between_characters),
		cmocka_unit_test(one_line_keeps_whole_characters_at_the_end),
		cmocka_unit_test(one_line_keeps_what_is_no_utf_8_at_all),
		cmocka_unit_test(each_thread_has_its_own_detail),
		cmocka_unit_test(the_version_is_that_of_the_headers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
