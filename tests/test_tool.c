/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of the command-line tool that decide something by themselves: numbers, keys, trace
 * lines and patterns. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "cli.h"
#include "pattern.h"
#include "trace.h"

static void numbers_are_whole_or_refused(void **state)
{
	static const struct {
		const char *text;
		bool suffixes, accepted;
		uint64_t value;
	} cases[] = {
		{"0", false, true, 0},
		{"007", false, true, 7},
		{"18446744073709551615", false, true, UINT64_MAX},
		{"18446744073709551616", false, false, 0},
		{"", false, false, 0},
		{"-1", false, false, 0},
		{"+1", false, false, 0},
		{" 1", false, false, 0},
		{"1 ", false, false, 0},
		{"0x10", false, false, 0},
		{"1K", false, false, 0},
		{"1K", true, true, 1024},
		{"64KiB", true, true, 65536},
		{"2mb", true, true, UINT64_C(2) << 20},
		{"3GiB", true, true, UINT64_C(3) << 30},
		{"1T", true, true, UINT64_C(1) << 40},
		{"1Ki", true, false, 0},
		{"1KiBs", true, false, 0},
		{"1B", true, false, 0},
		{"K", true, false, 0},
		{"16777216T", true, false, 0},
		{"16777215T", true, true, UINT64_C(16777215) << 40},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint64_t value = 0;

		print_message("%s\n", cases[i].text);
		assert_int_equal(cli_number_parse(cases[i].text, cases[i].suffixes, &value),
				 cases[i].accepted);
		assert_true(!cases[i].accepted || value == cases[i].value);
	}
}

static void times_have_units(void **state)
{
	static const struct {
		const char *text;
		bool accepted;
		uint64_t seconds;
	} cases[] = {
		{"90", true, 90},     {"90s", true, 90},	 {"15m", true, 900},
		{"12h", true, 43200}, {"7d", true, 604800},	 {"0", true, 0},
		{"7w", false, 0},     {"m", false, 0},		 {"1.5h", false, 0},
		{"1h5m", false, 0},   {"18446744074", false, 0}, {"213504d", false, 0},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint64_t ns = 0;

		print_message("%s\n", cases[i].text);
		assert_int_equal(cli_duration_parse(cases[i].text, &ns), cases[i].accepted);
		assert_true(!cases[i].accepted || ns == cases[i].seconds * 1000000000);
	}
}

static void keys_are_read_and_printed_alike(void **state)
{
	static const struct {
		const char *text, *printed; /* NULL: refused */
	} cases[] = {
		{"00ff17", "00ff17"},
		{"ABCDef", "abcdef"},
		{"ab:0", "ab"},
		{"ab:7", "ab:7"},
		{"ab:4294967295", "ab:4294967295"},
		{"ab:4294967296", NULL},
		{"ab:", NULL},
		{"ab:x", NULL},
		{"ab:1:2", NULL},
		{"", NULL},
		{"a", NULL},
		{"abc", NULL},
		{"0g", NULL},
		{" ab", NULL},
		{":1", NULL},
	};
	char text[132], printed[CLI_KEY_TEXT], reason[128];
	struct cli_key key;
	struct kvt_key view;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		int status = cli_key_parse(cases[i].text, &key, reason, sizeof(reason));

		print_message("%s\n", cases[i].text);
		assert_int_equal(status, cases[i].printed != NULL ? 0 : KVT_EINVAL);
		if (cases[i].printed == NULL)
			continue;
		view = cli_key_view(&key);
		cli_key_text(&view, printed, sizeof(printed));
		assert_string_equal(printed, cases[i].printed);
	}
	memset(text, '5', sizeof(text));
	text[128] = '\0';
	assert_int_equal(cli_key_parse(text, &key, reason, sizeof(reason)), 0);
	assert_int_equal(key.hash_bytes, 64);
	text[128] = '5';
	text[130] = '\0';
	assert_int_equal(cli_key_parse(text, &key, reason, sizeof(reason)), KVT_EINVAL);
	assert_non_null(strstr(reason, "130"));
}

static void trace_lines_are_checked(void **state)
{
	static const struct {
		const char *line, *reason; /* NULL: accepted */
	} cases[] = {
		{"{\"timestamp\":3,\"input_length\":9,\"output_length\":1,\"hash_ids\":[4,5]}",
		 NULL},
		{"{\"timestamp\":3.5,\"input_length\":9,\"output_length\":1,\"hash_ids\":[4,5],"
		 "\"more\":{}}",
		 NULL},
		{"{\"timestamp\":-3,\"input_length\":9,\"output_length\":1,\"hash_ids\":[]}",
		 "timestamp"},
		{"{\"timestamp\":3,\"input_length\":1000000001,\"output_length\":1,"
		 "\"hash_ids\":[]}",
		 "input_length: 1000000001"},
		{"{\"timestamp\":3,\"input_length\":9,\"output_length\":\"1\",\"hash_ids\":[]}",
		 "output_length: not an integer"},
		{"{\"timestamp\":3,\"input_length\":9,\"output_length\":1}", "hash_ids: absent"},
		{"{\"timestamp\":3,\"input_length\":9,\"output_length\":1,\"hash_ids\":[4,-5]}",
		 "hash_ids[1]"},
		{"[]", "not an object"},
		{"", "column"},
	};
	struct trace_request request;
	char reason[256];

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		int status = trace_line_parse(cases[i].line, strlen(cases[i].line), &request,
					      reason, sizeof(reason));

		print_message("%s\n", cases[i].line);
		assert_int_equal(status, cases[i].reason == NULL ? 0 : KVT_EINVAL);
		if (cases[i].reason != NULL) {
			assert_non_null(strstr(reason, cases[i].reason));
			assert_null(request.hash_ids);
			continue;
		}
		assert_int_equal(request.input_length, 9);
		assert_int_equal(request.hash_count, 2);
		assert_int_equal(request.hash_ids[1], 5);
		trace_request_fini(&request);
	}
}

/* Any piece of a pattern is that piece of the whole, wherever it begins. */
static void a_piece_of_a_pattern_is_part_of_the_whole(void **state)
{
	enum { WHOLE = 70000 };
	static unsigned char whole[WHOLE], piece[WHOLE];

	(void)state;
	pattern_init();
	pattern_fill(whole, 7, 0, WHOLE);
	for (uint64_t i = 0; i < 400; i++) {
		uint64_t offset = pattern_mix(2 * i) % WHOLE;
		uint64_t bytes = pattern_mix(2 * i + 1) % (WHOLE - offset + 1);

		pattern_fill(piece, 7, offset, bytes);
		assert_memory_equal(piece, whole + offset, bytes);
		assert_int_equal(pattern_check(whole + offset, 7, offset, bytes), bytes);
	}
}

/* Each changed bit is found, and where it is. */
static void a_changed_byte_is_found(void **state)
{
	enum { BYTES = 40000 };
	static unsigned char memory[BYTES];

	(void)state;
	pattern_init();
	pattern_fill(memory, 7, 3, BYTES);
	for (uint64_t at = 0; at < BYTES; at += 37) {
		memory[at] ^= (unsigned char)(1 << at % 8);
		assert_int_equal(pattern_check(memory, 7, 3, BYTES), at);
		memory[at] ^= (unsigned char)(1 << at % 8);
	}
	assert_int_equal(pattern_check(memory, 7, 3, BYTES), BYTES);
}

/* No tile of 16 KiB of one number is a tile of another, or another tile of its own. */
static void patterns_do_not_share_tiles(void **state)
{
	enum { TILE = 16384, TILES = 8 };
	static unsigned char tiles[3 * TILES][TILE];

	(void)state;
	pattern_init();
	for (uint64_t number = 0; number < 3; number++)
		pattern_fill(tiles[number * TILES], number, 0, TILES * TILE);
	for (size_t i = 0; i < 3 * TILES; i++)
		for (size_t k = 0; k < i; k++)
			assert_true(memcmp(tiles[i], tiles[k], 64) != 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(numbers_are_whole_or_refused),
		cmocka_unit_test(times_have_units),
		cmocka_unit_test(keys_are_read_and_printed_alike),
		cmocka_unit_test(trace_lines_are_checked),
		cmocka_unit_test(a_piece_of_a_pattern_is_part_of_the_whole),
		cmocka_unit_test(a_changed_byte_is_found),
		cmocka_unit_test(patterns_do_not_share_tiles),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
