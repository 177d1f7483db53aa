/* SPDX-License-Identifier: Apache-2.0 */
/* Walking through the names of a store: a page is gathered whole before its items are looked at, so
 * that a page can be asked for again and callbacks may take their time. */
#include "list.h"

#include <string.h>

#define PAGE_NAMES  1000
#define TOKEN_BYTES 4096
#define PAGE_TRIES  4

struct item {
	size_t name_at; /* in names */
	struct kvt_object_info info;
};

struct page {
	struct kvt_io io; /* first: the callback of the backend gets it */
	struct kvt_store *store;
	struct item *items;
	size_t count, room;
	char *names;
	size_t names_bytes, names_room;
	char token[TOKEN_BYTES], token_before[TOKEN_BYTES];
};

/* Doubles an array that has no room for `more` more elements. */
static int grow(struct kvt_store *store, void **arrayp, size_t element, size_t count, size_t more,
		size_t *roomp)
{
	size_t room = *roomp;
	void *larger;

	if (room - count >= more)
		return 0;
	while (room - count < more)
		room = room > 0 ? 2 * room : 1024;
	larger = kvt__alloc(&store->env, room * element);
	if (larger == NULL)
		return kvt__fail(KVT_ENOMEM, "list: out of memory");
	if (count > 0)
		memcpy(larger, *arrayp, count * element);
	kvt__free(&store->env, *arrayp);
	*arrayp = larger;
	*roomp = room;
	return 0;
}

static int gather(struct kvt_io *io, const struct kvt_list_item *item)
{
	struct page *page = (struct page *)io;
	size_t bytes = strlen(item->name) + 1;
	void *items = page->items, *names = page->names;
	int error = grow(page->store, &items, sizeof(*page->items), page->count, 1, &page->room);

	page->items = items;
	if (error == 0)
		error = grow(page->store, &names, 1, page->names_bytes, bytes, &page->names_room);
	page->names = names;
	if (error != 0)
		return error;
	memcpy(page->names + page->names_bytes, item->name, bytes);
	page->items[page->count].name_at = page->names_bytes;
	page->items[page->count].info = item->info;
	page->names_bytes += bytes;
	page->count++;
	return 0;
}

/* One page; a failed try leaves nothing of itself. */
static int ask(struct kvt__sync *sync, struct page *page, const char *prefix)
{
	int error;

	memcpy(page->token_before, page->token, TOKEN_BYTES);
	for (unsigned tries = 1;; tries++) {
		memcpy(page->token, page->token_before, TOKEN_BYTES);
		page->count = 0;
		page->names_bytes = 0;
		page->io = (struct kvt_io){
			.op = KVT_IO_LIST,
			.name = prefix,
			.list_item = gather,
			.list_token = page->token,
			.list_token_bytes = TOKEN_BYTES,
			.list_max = PAGE_NAMES,
		};
		error = kvt__sync_io(sync, &page->io, kvt__sync_timeout_ns(0));
		if (tries == PAGE_TRIES || !kvt__sync_is_worth_another(error))
			return error;
		kvt__sync_pause(&page->io, tries);
	}
}

int kvt__list_each(struct kvt__sync *sync, const char *prefix, kvt__list_fn callback, void *context)
{
	struct kvt_store *store = sync->store;
	struct page *page = kvt__zalloc(&store->env, sizeof(*page));
	int result;

	if (page == NULL)
		return kvt__fail(KVT_ENOMEM, "list: out of memory");
	page->store = store;
	do {
		result = ask(sync, page, prefix);
		sync->listed_ns = kvt__now_ns();
		for (size_t i = 0; result == 0 && i < page->count; i++) {
			struct kvt_list_item item = {
				.name = page->names + page->items[i].name_at,
				.info = page->items[i].info,
			};

			if (strncmp(item.name, prefix, strlen(prefix)) == 0)
				result = callback(context, &item);
		}
		if (result == 0 && page->token[0] != '\0' &&
		    strcmp(page->token, page->token_before) == 0)
			result = kvt__fail(KVT_EINTERNAL,
					   "list: backend %s answered the same page twice",
					   store->ops.name);
	} while (result == 0 && page->token[0] != '\0');
	kvt__free(&store->env, page->items);
	kvt__free(&store->env, page->names);
	kvt__free(&store->env, page);
	return result;
}
