/* SPDX-License-Identifier: Apache-2.0 */
/* Listings: pages, prefixes, and what they promise while others write and remove. */
#include "contract.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOKEN_BYTES 2048u

struct list_io {
	struct contract_io io; /* first: on_item gets at it through the owner */
	struct contract_names *names;
	const char *bad;
};

static int on_item(struct kvt_io *io, const struct kvt_list_item *item)
{
	struct list_io *l = (struct list_io *)io->owner;
	struct contract_names *names = l->names;

	if (!item->name || strncmp(item->name, io->name, strlen(io->name)))
		l->bad = "a name without the prefix";
	else if (!strncmp(item->name, ".kvtier/", 8))
		l->bad = "a name of the backend's own";
	if (l->bad)
		return 0;
	if (names->count == names->space) {
		size_t space = names->space ? 2 * names->space : 64;
		char **texts = realloc(names->names, space * sizeof(*texts));
		uint64_t *bytes = texts ? realloc(names->bytes, space * sizeof(*bytes)) : NULL;

		if (texts)
			names->names = texts;
		if (bytes)
			names->bytes = bytes;
		if (!bytes)
			return KVT_ENOMEM;
		names->space = space;
	}
	names->names[names->count] = strdup(item->name);
	names->bytes[names->count++] = item->info.object_bytes;
	return names->count == names->stop_at ? 77 : 0;
}

/* One page; the token goes on. */
static int page(struct contract *c, struct testsession *ts, const char *prefix, uint32_t list_max,
		char *token, struct contract_names *names)
{
	struct list_io l = {.io.t.io = {.op = KVT_IO_LIST,
					.name = prefix,
					.list_item = on_item,
					.list_token = token,
					.list_token_bytes = TOKEN_BYTES,
					.list_max = list_max},
			    .names = names};
	int result;

	contract_io_start(c, ts, &l.io);
	result = testio_wait(&l.io.t);
	if (l.bad)
		fail_msg("the listing has %s", l.bad);
	if (result == 77) {
		/* Our own value, which is no result code. */
		l.io.t.io.result = 0;
		assert_int_equal(contract_io_finish(c, &l.io), 0);
		return 77;
	}
	return contract_io_finish(c, &l.io);
}

int contract_list(struct contract *c, struct testsession *ts, const char *prefix, uint32_t list_max,
		  struct contract_names *names)
{
	char token[TOKEN_BYTES] = "";
	int result, pages = 0;

	do {
		result = page(c, ts, prefix, list_max, token, names);
		assert_non_null(memchr(token, 0, sizeof(token)));
		assert_true(++pages < 100000);
	} while (!result && *token);
	return result;
}

size_t contract_names_count(const struct contract_names *names, const char *name)
{
	size_t count = 0;

	for (size_t i = 0; i < names->count; i++)
		count += !strcmp(names->names[i], name);
	return count;
}

void contract_names_free(struct contract_names *names)
{
	for (size_t i = 0; i < names->count; i++)
		free(names->names[i]);
	free(names->names);
	free(names->bytes);
	*names = (struct contract_names){0};
}

static void an_empty_place_lists_nothing(void **state)
{
	struct contract *c = *state;
	struct contract_names names = {0};
	struct testsession list;

	assert_int_equal(testsession_open(&list, &c->tb, 1, 1), 0);
	assert_int_equal(contract_list(c, &list, "", 10, &names), 0);
	assert_int_equal(names.count, 0);
	assert_int_equal(contract_list(c, &list, "no/such/", 10, &names), 0);
	assert_int_equal(names.count, 0);
	testsession_close(&list);
}

static void pages_of_every_size_hold_each_name_once(void **state)
{
	static const uint32_t list_maxes[] = {1, 2, 7, 50, 1000};
	struct contract *c = *state;
	struct testsession list;
	char name[64];

	for (unsigned i = 0; i < 150; i++) {
		snprintf(name, sizeof(name), "ns_r0/%03x/%02x_g0/%08x.bin", i % 5, i % 3, i);
		assert_int_equal(contract_put(c, name, 10 + i, 1, 0, NULL, NULL), 0);
	}
	assert_int_equal(contract_put(c, "ns/config.json", 5, 1, 0, NULL, NULL), 0);
	assert_int_equal(testsession_open(&list, &c->tb, 1, 1), 0);
	for (size_t k = 0; k < sizeof(list_maxes) / sizeof(list_maxes[0]); k++) {
		struct contract_names names = {0};

		assert_int_equal(contract_list(c, &list, "", list_maxes[k], &names), 0);
		assert_int_equal(names.count, 151);
		for (unsigned i = 0; i < 150; i++) {
			snprintf(name, sizeof(name), "ns_r0/%03x/%02x_g0/%08x.bin", i % 5, i % 3,
				 i);
			assert_int_equal(contract_names_count(&names, name), 1);
		}
		for (size_t i = 0; i < names.count; i++)
			if (!strncmp(names.names[i], "ns_r0/", 6))
				assert_int_equal(
					names.bytes[i],
					10 + strtoul(strrchr(names.names[i], '/') + 1, NULL, 16));
		contract_names_free(&names);
	}
	testsession_close(&list);
}

static void a_prefix_selects_by_its_characters(void **state)
{
	static const struct {
		const char *prefix;
		size_t count;
	} cases[] = {
		{"", 8},	{"a", 6},  {"a/", 3},  {"a/b", 3},  {"a/b/", 1},
		{"a/bc", 1},	{"ab", 2}, {"ab/", 1}, {"b", 1},    {"b/c/d", 1},
		{"b/c/d/e", 0}, {"zz", 0}, {"A", 1},   {"a/b.", 1}, {"ab/c/", 1},
	};
	static const char *const names[] = {"a/b/1",  "a/bc",  "a/b.2", "ab/c/x",
					    "ab.bin", "a.bin", "b/c/d", "A"};
	struct contract *c = *state;
	struct testsession list;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		assert_int_equal(contract_put(c, names[i], 10, 1, 0, NULL, NULL), 0);
	assert_int_equal(testsession_open(&list, &c->tb, 1, 1), 0);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		for (uint32_t list_max = 1; list_max <= 100; list_max += 33) {
			struct contract_names found = {0};

			assert_int_equal(contract_list(c, &list, cases[i].prefix, list_max, &found),
					 0);
			assert_int_equal(found.count, cases[i].count);
			contract_names_free(&found);
		}
	testsession_close(&list);
}

static void the_caller_can_stop_a_listing(void **state)
{
	struct contract *c = *state;
	struct contract_names names = {.stop_at = 3};
	struct testsession list;
	char name[64];

	for (unsigned i = 0; i < 20; i++) {
		snprintf(name, sizeof(name), "stop/%u", i);
		assert_int_equal(contract_put(c, name, 10, 1, 0, NULL, NULL), 0);
	}
	assert_int_equal(testsession_open(&list, &c->tb, 1, 1), 0);
	assert_int_equal(contract_list(c, &list, "stop/", 1000, &names), 77);
	assert_int_equal(names.count, 3);
	contract_names_free(&names);
	/* The session lists again as if nothing had been. */
	assert_int_equal(contract_list(c, &list, "stop/", 1000, &names), 0);
	assert_int_equal(names.count, 20);
	contract_names_free(&names);
	testsession_close(&list);
}

static void what_stays_is_listed_once_while_others_come_and_go(void **state)
{
	struct contract *c = *state;
	struct contract_names names = {0};
	struct testsession list;
	char token[TOKEN_BYTES] = "", name[64];
	unsigned round = 0;

	for (unsigned i = 0; i < 60; i++) {
		snprintf(name, sizeof(name), "ch/%u/stays.%u", i % 4, i);
		assert_int_equal(contract_put(c, name, 10, 1, 0, NULL, NULL), 0);
		snprintf(name, sizeof(name), "ch/%u/goes.%u", i % 4, i);
		assert_int_equal(contract_put(c, name, 10, 1, 0, NULL, NULL), 0);
	}
	assert_int_equal(testsession_open(&list, &c->tb, 1, 1), 0);
	do {
		assert_int_equal(page(c, &list, "ch/", 9, token, &names), 0);
		for (unsigned i = round * 10; i < round * 10 + 10 && i < 60; i++) {
			snprintf(name, sizeof(name), "ch/%u/goes.%u", i % 4, i);
			assert_int_equal(contract_simple(c, KVT_IO_REMOVE, name, NULL, NULL), 0);
			snprintf(name, sizeof(name), "ch/%u/comes.%u", i % 7, i);
			assert_int_equal(contract_put(c, name, 10, 1, 0, NULL, NULL), 0);
		}
		assert_true(++round < 10000);
	} while (*token);
	for (unsigned i = 0; i < 60; i++) {
		snprintf(name, sizeof(name), "ch/%u/stays.%u", i % 4, i);
		assert_int_equal(contract_names_count(&names, name), 1);
		snprintf(name, sizeof(name), "ch/%u/goes.%u", i % 4, i);
		assert_true(contract_names_count(&names, name) <= 1);
		snprintf(name, sizeof(name), "ch/%u/comes.%u", i % 7, i);
		assert_true(contract_names_count(&names, name) <= 1);
	}
	testsession_close(&list);
	contract_names_free(&names);
}

const struct CMUnitTest contract_list_cases[] = {
	cmocka_unit_test(an_empty_place_lists_nothing),
	cmocka_unit_test(pages_of_every_size_hold_each_name_once),
	cmocka_unit_test(a_prefix_selects_by_its_characters),
	cmocka_unit_test(the_caller_can_stop_a_listing),
	cmocka_unit_test(what_stays_is_listed_once_while_others_come_and_go),
	{NULL, NULL, NULL, NULL, NULL},
};
