/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a store can do: its limits, and a self test that runs each verb of the backend on an object
 * of its own, whose name is no chunk's, and removes it.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "crc32c.h"
#include "list.h"

#define PAGE_BYTES	  4096u
#define OBJECT_PAGES	  3u
#define MOST_PROBED_BYTES (UINT64_C(64) << 20)
#define PART_REST_BYTES	  PAGE_BYTES /* the last part */

struct prober {
	struct kvt_store *store;
	struct kvt__sync sync;
	kvt_probe_fn callback;
	void *context;
	int first_error;
	char first_detail[480];
	uint8_t *memory; /* memory_bytes of a pattern, then as many to read into */
	uint64_t memory_bytes;
	char name[64];
	struct kvt_version version; /* of the object, bytes 0 when unknown */
	bool listed;
};

static void tell(struct prober *p, const char *name, int error, const char *format, ...)
	KVT_PRINTF(4, 5);

static void tell(struct prober *p, const char *name, int error, const char *format, ...)
{
	char value[400];
	va_list args;

	va_start(args, format);
	if (vsnprintf(value, sizeof(value), format, args) < 0)
		value[0] = '\0';
	va_end(args);
	if (error != 0 && p->first_error == 0) {
		p->first_error = error;
		(void)snprintf(p->first_detail, sizeof(p->first_detail), "probe: %s: %s", name,
			       value);
	}
	if (p->callback != NULL)
		p->callback(p->context, name, value, error);
}

/* Tells a test that went as it should, or did not: `wanted` is what it had to return. */
static bool tell_test(struct prober *p, const char *name, int error, int wanted, int64_t begun_ns)
{
	double ms = (double)(kvt__now_ns() - begun_ns) / 1e6;
	char cause[300];

	(void)snprintf(cause, sizeof(cause), "%s", kvt_error_detail());
	if (error == wanted && wanted == 0)
		tell(p, name, 0, "works, %.3f ms", ms);
	else if (error == wanted)
		tell(p, name, 0, "works, refused with %s, %.3f ms", kvt_error_name(wanted), ms);
	else if (error == 0)
		tell(p, name, KVT_EPROTO, "succeeded, expected %s", kvt_error_name(wanted));
	else
		tell(p, name, error, "%s", cause);
	return error == wanted;
}

static void tell_capabilities(struct prober *p)
{
	static const struct {
		uint32_t bit;
		const char *name;
	} known[] = {
		{KVT_CAP_IF_ABSENT, "if_absent"},
		{KVT_CAP_IF_VERSION_PUT, "if_version_put"},
		{KVT_CAP_IF_VERSION_GET, "if_version_get"},
		{KVT_CAP_IF_VERSION_REMOVE, "if_version_remove"},
		{KVT_CAP_HOLES, "holes"},
		{KVT_CAP_RAW_FILES, "raw_files"},
		{KVT_CAP_TOUCH, "touch"},
		{KVT_CAP_FULL_BODY, "full_body"},
		{KVT_CAP_GET_DISCARD, "get_discard"},
	};
	char text[300] = "";
	size_t used = 0;

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]) && used < sizeof(text); i++)
		if (p->store->limits.capabilities & known[i].bit)
			used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s",
						 used > 0 ? " " : "", known[i].name);
	tell(p, "capabilities", 0, "%s", text);
}

static void tell_limits(struct prober *p)
{
	const struct kvt_backend_limits *limits = &p->store->limits;

	tell(p, "backend", 0, "%s", p->store->ops.name);
	tell(p, "detail", 0, "%s", limits->detail);
	tell(p, "base", 0, "%s", p->store->ns.base_name);
	tell(p, "min_part_bytes", 0, "%" PRIu64, limits->min_part_bytes);
	tell(p, "max_part_bytes", 0, "%" PRIu64, limits->max_part_bytes);
	tell(p, "max_object_bytes", 0, "%" PRIu64, limits->max_object_bytes);
	tell(p, "max_parts", 0, "%u", limits->max_parts);
	tell(p, "max_iov", 0, "%u", limits->max_iov);
	tell(p, "memory_alignment", 0, "%u", limits->memory_alignment);
	tell(p, "default_depth", 0, "%u", limits->default_depth);
	if (limits->default_part_bytes)
		tell(p, "default_part_bytes", 0, "%" PRIu64, limits->default_part_bytes);
	if (limits->merge_gap_bytes)
		tell(p, "merge_gap_bytes", 0, "%" PRIu64, limits->merge_gap_bytes);
	tell_capabilities(p);
}

/* What the tests have taught the backend about the server. */
static void tell_learnt(struct prober *p)
{
	char text[256];

	kvt__store_describe(p->store, text, sizeof(text));
	if (text[0] != '\0')
		tell(p, "learnt", 0, "%s", text);
}

static int put(struct prober *p, uint32_t flags, const struct kvt_version *version)
{
	struct kvt_iovec iov = {p->memory, OBJECT_PAGES * PAGE_BYTES};
	struct kvt_io io = {
		.op = KVT_IO_PUT,
		.flags = flags,
		.name = p->name,
		.iov = &iov,
		.iov_count = 1,
		.length = iov.iov_len,
		.object_bytes = iov.iov_len,
		.crc32c = kvt__crc32c(0, p->memory, iov.iov_len),
		.if_version = version,
	};

	return kvt__sync_io(&p->sync, &io, kvt__sync_timeout_ns(io.length));
}

static int head(struct prober *p, uint64_t object_bytes)
{
	struct kvt_io io = {.op = KVT_IO_HEAD, .name = p->name};
	int error = kvt__sync_io(&p->sync, &io, kvt__sync_timeout_ns(0));

	if (error != 0)
		return error;
	p->version = io.info.version;
	if (io.info.object_bytes != object_bytes)
		return kvt__fail(KVT_EPROTO, "length is %" PRIu64 ", expected %" PRIu64,
				 io.info.object_bytes, object_bytes);
	return 0;
}

/* Reads bytes of the object, whose pattern begins at `expected_at`, and compares them. */
static int get(struct prober *p, int64_t offset, uint64_t bytes, uint64_t expected_at,
	       uint32_t flags, const struct kvt_version *version)
{
	uint8_t *to = p->memory + p->memory_bytes;
	struct kvt_iovec iov = {to, bytes};
	struct kvt_io io = {
		.op = KVT_IO_GET,
		.flags = flags,
		.name = p->name,
		.iov = &iov,
		.iov_count = 1,
		.length = bytes,
		.offset = offset,
		.if_version = version,
	};
	int error;

	memset(to, 0, bytes);
	error = kvt__sync_io(&p->sync, &io, kvt__sync_timeout_ns(bytes));
	if (error == 0 && memcmp(to, p->memory + expected_at, bytes) != 0)
		return kvt__fail(KVT_ECORRUPT,
				 "%" PRIu64 " bytes at %" PRId64 " are not those that were stored",
				 bytes, offset);
	return error;
}

static void test_put(struct prober *p)
{
	bool keeps = p->store->limits.capabilities & KVT_CAP_IF_ABSENT;
	int64_t begun = kvt__now_ns();

	(void)tell_test(p, "put", put(p, keeps ? KVT_IO_IF_ABSENT : 0, NULL), 0, begun);
	begun = kvt__now_ns();
	if (keeps)
		(void)tell_test(p, "put_if_absent", put(p, KVT_IO_IF_ABSENT, NULL), KVT_EEXIST,
				begun);
	begun = kvt__now_ns();
	(void)tell_test(p, "replace", put(p, 0, NULL), 0, begun);
}

static void test_reads(struct prober *p)
{
	const uint64_t bytes = OBJECT_PAGES * PAGE_BYTES;
	int64_t begun = kvt__now_ns();

	(void)tell_test(p, "head", head(p, bytes), 0, begun);
	begun = kvt__now_ns();
	(void)tell_test(p, "get", get(p, 0, bytes, 0, 0, NULL), 0, begun);
	begun = kvt__now_ns();
	(void)tell_test(p, "get_range", get(p, 100, 5000, 100, 0, NULL), 0, begun);
	begun = kvt__now_ns();
	(void)tell_test(p, "get_tail",
			get(p, -(int64_t)PAGE_BYTES, PAGE_BYTES, bytes - PAGE_BYTES, 0, NULL), 0,
			begun);
	begun = kvt__now_ns();
	(void)tell_test(p, "get_beyond_end", get(p, PAGE_BYTES, bytes, PAGE_BYTES, 0, NULL),
			KVT_ERANGE, begun);
}

/* A version that the object never had. */
static struct kvt_version other_version(const struct kvt_version *version)
{
	struct kvt_version other = *version;

	other.value[0] ^= 1;
	return other;
}

static void test_conditions(struct prober *p)
{
	uint32_t can = p->store->limits.capabilities;
	struct kvt_version other = other_version(&p->version);
	int64_t begun = kvt__now_ns();

	if (p->version.bytes == 0)
		return;
	if (can & KVT_CAP_IF_VERSION_GET) {
		(void)tell_test(p, "get_if_version",
				get(p, 0, PAGE_BYTES, 0, KVT_IO_IF_VERSION, &p->version), 0, begun);
		begun = kvt__now_ns();
		(void)tell_test(p, "get_if_other_version",
				get(p, 0, PAGE_BYTES, 0, KVT_IO_IF_VERSION, &other), KVT_EPRECOND,
				begun);
	}
	begun = kvt__now_ns();
	if (can & KVT_CAP_IF_VERSION_PUT) {
		(void)tell_test(p, "put_if_other_version", put(p, KVT_IO_IF_VERSION, &other),
				KVT_EPRECOND, begun);
		begun = kvt__now_ns();
		(void)tell_test(p, "put_if_version", put(p, KVT_IO_IF_VERSION, &p->version), 0,
				begun);
	}
}

static int see_item(void *context, const struct kvt_list_item *item)
{
	struct prober *p = context;

	p->listed = p->listed || strcmp(item->name, p->name) == 0;
	return 0;
}

static void test_list_and_touch(struct prober *p)
{
	struct kvt_io touch = {.op = KVT_IO_TOUCH, .name = p->name};
	int64_t begun = kvt__now_ns();
	int error = kvt__list_each(&p->sync, p->name, see_item, p);

	if (error == 0 && !p->listed)
		error = kvt__fail(KVT_EPROTO, "an object that was stored is not listed");
	(void)tell_test(p, "list", error, 0, begun);
	begun = kvt__now_ns();
	if (p->store->limits.capabilities & KVT_CAP_TOUCH)
		(void)tell_test(p, "touch", kvt__sync_io(&p->sync, &touch, kvt__sync_timeout_ns(0)),
				0, begun);
}

static void test_remove(struct prober *p)
{
	int64_t begun = kvt__now_ns();

	if (p->store->limits.capabilities & KVT_CAP_IF_VERSION_REMOVE &&
	    head(p, OBJECT_PAGES * PAGE_BYTES) == 0 && p->version.bytes > 0) {
		struct kvt_version other = other_version(&p->version);

		(void)tell_test(p, "remove_if_other_version",
				kvt__sync_remove(&p->sync, p->name, &other), KVT_EPRECOND, begun);
	}
	begun = kvt__now_ns();
	(void)tell_test(p, "remove", kvt__sync_remove(&p->sync, p->name, NULL), 0, begun);
	begun = kvt__now_ns();
	(void)tell_test(p, "remove_missing", kvt__sync_remove(&p->sync, p->name, NULL), KVT_ENOENT,
			begun);
}

static int put_parts(struct prober *p)
{
	uint64_t first_bytes = p->memory_bytes - PART_REST_BYTES;
	struct kvt_io io = {
		.op = KVT_IO_BEGIN,
		.name = p->name,
		.object_bytes = p->memory_bytes,
	};
	struct kvt_iovec iov[2] = {
		{p->memory, first_bytes},
		{p->memory + first_bytes, PART_REST_BYTES},
	};
	int error = kvt__sync_io(&p->sync, &io, kvt__sync_timeout_ns(0));
	void *handle = io.handle;

	if (error != 0)
		return error;
	for (uint32_t i = 0; error == 0 && i < 2; i++) {
		io = (struct kvt_io){
			.op = KVT_IO_PART,
			.name = p->name,
			.iov = &iov[i],
			.iov_count = 1,
			.part_number = i,
			.length = iov[i].iov_len,
			.offset = i == 0 ? 0 : (int64_t)first_bytes,
			.object_bytes = p->memory_bytes,
			.handle = handle,
		};
		error = kvt__sync_io(&p->sync, &io, kvt__sync_timeout_ns(io.length));
	}
	io = (struct kvt_io){
		.op = error == 0 ? KVT_IO_COMMIT : KVT_IO_ABORT,
		.name = p->name,
		.object_bytes = p->memory_bytes,
		.handle = handle,
	};
	if (error == 0)
		return kvt__sync_io(&p->sync, &io, kvt__sync_timeout_ns(0));
	(void)kvt__sync_io(&p->sync, &io, kvt__sync_timeout_ns(0));
	return error;
}

static void test_parts(struct prober *p)
{
	int64_t begun = kvt__now_ns();
	uint64_t first_bytes = p->memory_bytes - PART_REST_BYTES;
	int error;

	if (p->store->limits.max_parts < 2 || first_bytes < p->store->limits.min_part_bytes)
		return;
	error = put_parts(p);
	if (error == 0)
		error = head(p, p->memory_bytes);
	if (error == 0) /* across the seam */
		error = get(p, (int64_t)first_bytes - 64, 128, first_bytes - 64, 0, NULL);
	(void)tell_test(p, "parts", error, 0, begun);
	error = kvt__sync_remove(&p->sync, p->name, NULL);
	if (error != 0 && error != KVT_ENOENT)
		tell(p, "parts_remove", error, "%s", kvt_error_detail());
}

static int memory_alloc(struct prober *p)
{
	uint64_t bytes = OBJECT_PAGES * PAGE_BYTES, part = p->store->limits.min_part_bytes;

	if (part <= MOST_PROBED_BYTES && part + PAGE_BYTES + PART_REST_BYTES > bytes)
		bytes = (part + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES + PART_REST_BYTES;
	p->memory_bytes = bytes;
	p->memory = kvt__alloc_aligned(&p->store->env, 2 * bytes, PAGE_BYTES);
	if (p->memory == NULL)
		return kvt__fail(KVT_ENOMEM, "kvt_store_probe: out of memory");
	for (uint64_t i = 0; i < bytes; i++)
		p->memory[i] = (uint8_t)(i * 131 + (i >> 8) * 17 + 1);
	return 0;
}

int kvt_store_probe(struct kvt_store *store, kvt_probe_fn callback, void *context)
{
	struct prober p = {.store = store, .callback = callback, .context = context};
	int error = kvt__store_check(store, "kvt_store_probe");

	if (error != 0)
		return error;
	error = memory_alloc(&p);
	if (error == 0)
		error = kvt__sync_open(&p.sync, store, true);
	if (error != 0) {
		kvt__free(&store->env, p.memory);
		return error;
	}
	(void)snprintf(p.name, sizeof(p.name), "kvtier-probe-%ld-%llx", (long)getpid(),
		       (unsigned long long)kvt__now_ns());
	tell_limits(&p);
	test_put(&p);
	/* What fails without an object would only say so again and again. */
	if (p.first_error == 0) {
		test_reads(&p);
		test_conditions(&p);
		test_list_and_touch(&p);
		test_remove(&p);
		test_parts(&p);
	}
	tell_learnt(&p);
	if (p.first_error != 0) {
		(void)kvt__sync_remove(&p.sync, p.name, NULL);
		(void)kvt__fail(p.first_error, "%s", p.first_detail);
	}
	kvt__sync_close(&p.sync);
	kvt__free(&store->env, p.memory);
	return p.first_error;
}
