/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A backend of the program's own, opened as "shelf:". It keeps objects in memory, each operation is
 * done when submit returns, so there is neither poll nor wake. docs/adding-a-backend.md explains
 * the table; backends/skeleton is the place to start a real one from.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvtier/backend.h>
#include <kvtier/kvtier.h>

/* One object, or one in the making, which is a handle that begin gave out. */
struct item {
	struct item *next;
	uint64_t bytes;
	uint64_t version;
	char *name;
	char *data;
};

struct shelf {
	pthread_mutex_t lock; /* sessions of several lanes share the list */
	struct item *items;
	uint64_t versions;
};

static int shelf_open(const struct kvt_host *host, const struct kvt_backend_config *config,
		      void **backendp, struct kvt_backend_limits *limits)
{
	struct shelf *shelf;

	if (config->location[0]) {
		host->fail(host, "open shelf:%s: expected nothing behind \"shelf:\"",
			   config->location);
		return KVT_EINVAL;
	}
	shelf = calloc(1, sizeof(*shelf));
	if (!shelf) {
		host->fail(host, "open shelf: out of memory");
		return KVT_ENOMEM;
	}
	pthread_mutex_init(&shelf->lock, NULL);
	limits->default_depth = 1;
	limits->capabilities = KVT_CAP_IF_ABSENT | KVT_CAP_IF_VERSION_PUT | KVT_CAP_IF_VERSION_GET |
			       KVT_CAP_IF_VERSION_REMOVE;
	snprintf(limits->detail, sizeof(limits->detail), "kept in this process");
	*backendp = shelf;
	return 0;
}

static void free_item(struct item *item)
{
	if (item) {
		free(item->name);
		free(item->data);
		free(item);
	}
}

static void shelf_close(void *backend)
{
	struct shelf *shelf = backend;

	while (shelf->items) {
		struct item *item = shelf->items;

		shelf->items = item->next;
		free_item(item);
	}
	pthread_mutex_destroy(&shelf->lock);
	free(shelf);
}

/* Sessions need nothing of their own here. */
static int shelf_session_open(void *backend, uint32_t depth, int listing, void **sessionp)
{
	(void)depth;
	(void)listing;
	*sessionp = backend;
	return 0;
}

static void shelf_session_close(void *session)
{
	(void)session;
}

static struct item *new_item(const struct kvt_io *io)
{
	struct item *item = calloc(1, sizeof(*item));

	if (!item)
		return NULL;
	item->bytes = io->object_bytes;
	item->name = malloc(strlen(io->name) + 1);
	item->data = malloc(io->object_bytes ? io->object_bytes : 1);
	if (!item->name || !item->data) {
		free_item(item);
		return NULL;
	}
	memcpy(item->name, io->name, strlen(io->name) + 1);
	return item;
}

/* The link to the item of a name, or to the end of the list. */
static struct item **find_locked(struct shelf *shelf, const char *name)
{
	struct item **link = &shelf->items;

	while (*link && strcmp((*link)->name, name) != 0)
		link = &(*link)->next;
	return link;
}

static void describe(const struct item *item, struct kvt_object_info *info)
{
	memset(info, 0, sizeof(*info));
	info->object_bytes = item->bytes;
	info->version.bytes = sizeof(item->version);
	memcpy(info->version.value, &item->version, sizeof(item->version));
	info->age_ns = -1;
	info->access_age_ns = -1;
}

static int is_expected(const struct kvt_io *io, const struct item *item)
{
	return item && io->if_version->bytes == sizeof(item->version) &&
	       memcmp(io->if_version->value, &item->version, sizeof(item->version)) == 0;
}

/* Copies the payload of a put or a part. The core checksums what it is told about, and may fill the
 * last entry only when it knows that all before it has been read. */
static void take_bytes(struct kvt_io *io, char *to)
{
	uint64_t done = 0;

	if (io->progress)
		io->progress(io, 0);
	for (uint32_t i = 0; i < io->iov_count; i++) {
		const struct kvt_iovec *iov = &io->iov[i];

		if (io->progress && (i + 1 < io->iov_count || !(io->flags & KVT_IO_LATE_TAIL)))
			io->progress(io, done + iov->iov_len);
		if (iov->iov_base)
			memcpy(to + done, iov->iov_base, iov->iov_len);
		else
			memset(to + done, 0, iov->iov_len);
		done += iov->iov_len;
	}
}

/* Makes an item appear under its name, if the condition holds; the item is given. */
static int publish(struct shelf *shelf, struct kvt_io *io, struct item *item)
{
	int result = 0;

	pthread_mutex_lock(&shelf->lock);
	struct item **link = find_locked(shelf, item->name);
	struct item *old = *link;
	if ((io->flags & KVT_IO_IF_ABSENT) && old) {
		describe(old, &io->info);
		result = KVT_EEXIST;
	} else if ((io->flags & KVT_IO_IF_VERSION) && !is_expected(io, old)) {
		result = KVT_EPRECOND;
	} else {
		item->version = ++shelf->versions;
		item->next = old ? old->next : NULL;
		*link = item;
		describe(item, &io->info);
		item = old;
	}
	pthread_mutex_unlock(&shelf->lock);
	free_item(item);
	return result;
}

/* Gives what is there of the wanted range, under the lock: an object may be replaced meanwhile. */
static int get_locked(const struct item *item, struct kvt_io *io)
{
	uint64_t start = (uint64_t)io->offset;

	if ((io->flags & KVT_IO_IF_VERSION) && !is_expected(io, item))
		return KVT_EPRECOND;
	if (io->offset < 0) {
		if (0 - start > item->bytes)
			return KVT_ERANGE;
		start += item->bytes;
	}
	if (start > item->bytes || io->length > item->bytes - start)
		return KVT_ERANGE;
	for (uint32_t i = 0; i < io->iov_count; i++) {
		memcpy(io->iov[i].iov_base, item->data + start + io->bytes_landed,
		       io->iov[i].iov_len);
		io->bytes_landed += io->iov[i].iov_len;
	}
	return 0;
}

/* Get, head and remove: what needs the object to be there. */
static int use(struct shelf *shelf, struct kvt_io *io)
{
	struct item *removed = NULL;
	int result = KVT_ENOENT;

	pthread_mutex_lock(&shelf->lock);
	struct item **link = find_locked(shelf, io->name);
	if (*link) {
		describe(*link, &io->info);
		if (io->op == KVT_IO_GET) {
			result = get_locked(*link, io);
		} else if (io->op == KVT_IO_HEAD) {
			result = 0;
		} else if ((io->flags & KVT_IO_IF_VERSION) && !is_expected(io, *link)) {
			result = KVT_EPRECOND;
		} else {
			removed = *link;
			*link = removed->next;
			result = 0;
		}
	}
	pthread_mutex_unlock(&shelf->lock);
	free_item(removed);
	/* No call out under the lock. */
	if (result == 0 && io->op == KVT_IO_GET && io->progress) {
		io->progress(io, 0);
		io->progress(io, io->bytes_landed);
	}
	return result;
}

static int shelf_submit(void *session, struct kvt_io *io)
{
	struct shelf *shelf = session;
	struct item *item = io->handle;

	io->info.object_bytes = KVT_BYTES_UNKNOWN;
	switch (io->op) {
	case KVT_IO_PUT:
	case KVT_IO_BEGIN:
		item = new_item(io);
		if (!item) {
			io->result = KVT_ENOMEM;
		} else if (io->op == KVT_IO_BEGIN) {
			io->handle = item;
			io->result = 0;
		} else {
			take_bytes(io, item->data);
			io->result = publish(shelf, io, item);
		}
		return KVT_DONE;
	case KVT_IO_PART:
		take_bytes(io, item->data + io->offset);
		io->result = 0;
		return KVT_DONE;
	case KVT_IO_COMMIT:
		io->result = publish(shelf, io, item);
		return KVT_DONE;
	case KVT_IO_ABORT:
		free_item(item);
		io->result = 0;
		return KVT_DONE;
	case KVT_IO_GET:
	case KVT_IO_HEAD:
	case KVT_IO_REMOVE:
		io->bytes_landed = 0;
		io->result = use(shelf, io);
		return KVT_DONE;
	default: /* no listing, no access times, no leftovers */
		return KVT_ENOTSUP;
	}
}

static const struct kvt_backend_ops shelf_ops = {
	.struct_size = sizeof(shelf_ops),
	.abi = KVT_BACKEND_ABI,
	.name = "shelf",
	.open = shelf_open,
	.close = shelf_close,
	.session_open = shelf_session_open,
	.session_close = shelf_session_close,
	.submit = shelf_submit,
};

static void check(int result, const char *what)
{
	if (result < 0) {
		fprintf(stderr, "%s: %s: %s\n", what, kvt_error_name(result), kvt_error_detail());
		exit(1);
	}
}

/* Waits for one job of one key and checks what became of it. */
static void expect(struct kvt_worker *worker, uint64_t job_id, enum kvt_status status)
{
	struct kvt_result *result = NULL;

	check(kvt_worker_wait(worker, &job_id, 1, 10000, NULL), "wait");
	if (kvt_worker_poll(worker, &result, 1) != 1 || result->status != status) {
		fprintf(stderr, "expected %s: %s\n", kvt_status_name(status),
			result ? result->detail : "no completion");
		exit(1);
	}
	printf("%s\n", kvt_status_name(result->status));
	kvt_result_release(result);
}

int main(void)
{
	struct kvt_store_options store_options = KVT_INIT(store_options);
	struct kvt_store *store = NULL;
	struct kvt_worker *worker = NULL;
	static char stored[3][65536], loaded[3][65536];

	check(kvt_backend_register(&shelf_ops), "register");
	store_options.uri = "shelf:";
	store_options.namespace_name = "example-shelf";
	check(kvt_store_open(&store_options, &store), "open");
	check(kvt_worker_create(store, NULL, NULL, &worker), "worker");

	struct kvt_key keys[] = {{"one", 3, 0}, {"two", 3, 0}, {"three", 5, 0}};
	int64_t row_indices[] = {0, 1, 2};
	struct kvt_rows rows = KVT_INIT(rows);
	rows.base = stored;
	rows.stride_bytes = sizeof(stored[0]);
	rows.row_count = 3;
	rows.row_indices = row_indices;
	rows.keys = keys;
	rows.key_count = 3;
	for (int i = 0; i < 3; i++)
		memset(stored[i], '1' + i, sizeof(stored[i]));

	check(kvt_worker_submit_store_rows(worker, 1, &rows, NULL), "store");
	expect(worker, 1, KVT_STATUS_STORED);
	check(kvt_worker_submit_store_rows(worker, 2, &rows, NULL), "store again");
	expect(worker, 2, KVT_STATUS_SKIPPED);
	rows.base = loaded;
	check(kvt_worker_submit_load_rows(worker, 3, &rows, NULL), "load");
	expect(worker, 3, KVT_STATUS_LOADED);
	check(kvt_store_remove(store, &keys[1]), "remove");
	check(kvt_worker_submit_load_rows(worker, 4, &rows, NULL), "load what is gone");
	expect(worker, 4, KVT_STATUS_MISSING);

	check(kvt_worker_destroy(worker, 10000), "destroy");
	check(kvt_store_close(store), "close");
	return memcmp(stored, loaded, sizeof(stored)) ? 1 : 0;
}
