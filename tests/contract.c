/* SPDX-License-Identifier: Apache-2.0 */
/* The contract suite's frame: a fresh backend for each case, and ios under observation. */
#include "contract.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CANARY_BYTES 64u
#define CANARY	     0xc7
#define MOST_CASES   128u

const struct contract_backend *contract_current;

/* ---- Places ---- */

int contract_directory_make(char *location, size_t bytes)
{
	const char *tmp = getenv("TMPDIR");
	int n = snprintf(location, bytes, "//%s/kvtier-contract-XXXXXX",
			 tmp && *tmp == '/' ? tmp : "/tmp");

	return n < 0 || (size_t)n >= bytes || !mkdtemp(location + 2) ? -1 : 0;
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

void contract_directory_remove(const char *location)
{
	(void)nftw(location + 2, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

int contract_open(struct testbackend *tb, struct testhost *th, const char *location)
{
	return testbackend_open(tb, th,
				&(struct testbackend_options){
					.ops = contract_current->ops,
					.inner = contract_current->inner,
					.location = location,
					.options = contract_current->options,
					.option_count = contract_current->option_count,
					.inner_options = contract_current->inner_options,
					.inner_option_count = contract_current->inner_option_count,
				});
}

bool contract_can(const struct contract *c, uint32_t capability)
{
	return (c->tb.limits.capabilities & capability) == capability;
}

/* ---- Bytes ---- */

static uint64_t word_at(uint64_t seed, uint64_t offset)
{
	uint64_t h = (seed + 1) * UINT64_C(0x9e3779b97f4a7c15) + offset / 8;

	h ^= h >> 33;
	h *= UINT64_C(0xff51afd7ed558ccd);
	h ^= h >> 29;
	/* No byte is zero, so that zeros in the place of bytes are seen. */
	return h | UINT64_C(0x0101010101010101);
}

/* Bytes until the next word begins, or all that are left. */
static size_t bytes_of_word(uint64_t bytes, uint64_t offset)
{
	uint64_t n = 8 - offset % 8;

	return (size_t)(n < bytes ? n : bytes);
}

void contract_fill(void *memory, uint64_t bytes, uint64_t seed, uint64_t offset)
{
	uint8_t *at = memory;

	for (size_t n; bytes; bytes -= n, at += n, offset += n) {
		uint64_t word = word_at(seed, offset);

		n = bytes_of_word(bytes, offset);
		if (n == 8)
			memcpy(at, &word, 8);
		else
			memcpy(at, (uint8_t *)&word + offset % 8, n);
	}
}

bool contract_match(const void *memory, uint64_t bytes, uint64_t seed, uint64_t offset)
{
	const uint8_t *at = memory;

	for (size_t n; bytes; bytes -= n, at += n, offset += n) {
		uint64_t word = word_at(seed, offset), found = word;

		n = bytes_of_word(bytes, offset);
		if (n == 8)
			memcpy(&found, at, 8);
		else
			memcpy((uint8_t *)&found + offset % 8, at, n);
		if (found != word)
			return false;
	}
	return true;
}

struct contract_buffer contract_buffer_make(uint64_t bytes, size_t misalign)
{
	struct contract_buffer buffer = {.bytes = bytes, .misalign = misalign};
	void *memory;

	/* The page in front makes room for the canary in front. */
	assert_int_equal(posix_memalign(&memory, 4096, 4096 + misalign + bytes + CANARY_BYTES), 0);
	buffer.base = memory;
	buffer.data = buffer.base + 4096 + misalign;
	memset(buffer.data - CANARY_BYTES, CANARY, CANARY_BYTES + bytes + CANARY_BYTES);
	return buffer;
}

void contract_buffer_free(struct contract_buffer *buffer)
{
	for (size_t i = 0; i < CANARY_BYTES; i++) {
		assert_int_equal(buffer->data[-1 - (ptrdiff_t)i], CANARY);
		assert_int_equal(buffer->data[buffer->bytes + i], CANARY);
	}
	free(buffer->base);
	buffer->base = NULL;
}

/* ---- Ios ---- */

static void broke(struct contract_io *io, const char *rule)
{
	if (!io->broken)
		io->broken = rule;
}

/* Whether the bytes from `from` to `to` of the iovec are those of the object. */
static bool landed_right(const struct contract_io *io, uint64_t from, uint64_t to)
{
	uint64_t at = 0;

	for (uint32_t i = 0; i < io->t.io.iov_count && at < to; i++) {
		uint64_t end = at + io->iov[i].iov_len, low = from > at ? from : at;
		uint64_t high = to < end ? to : end;

		if (io->iov[i].iov_base && low < high &&
		    !contract_match((uint8_t *)io->iov[i].iov_base + (low - at), high - low,
				    io->seed, io->object_at + low))
			return false;
		at = end;
	}
	return true;
}

static void on_progress(struct kvt_io *kvt_io, uint64_t bytes)
{
	struct contract_io *io = (struct contract_io *)kvt_io->owner;
	uint64_t early = kvt_io->length - io->tail_bytes;

	io->calls++;
	if (io->t.done)
		broke(io, "progress was called after the completion");
	if (bytes > kvt_io->length)
		broke(io, "progress was told more bytes than the io has");
	else if (bytes && bytes < io->told)
		broke(io, "progress went back without starting at 0 again");
	else if (io->is_get && bytes && io->seed && !landed_right(io, io->told, bytes))
		broke(io, "progress was told bytes that had not landed");
	io->told = bytes;
	if (io->tail_bytes && bytes >= early && !io->tail_filled) {
		const struct kvt_iovec *tail = &kvt_io->iov[kvt_io->iov_count - 1];

		contract_fill(tail->iov_base, tail->iov_len, io->seed, io->object_at + early);
		io->tail_filled = true;
	}
}

/* What contract_io_start remembers of a request, to compare afterwards. */
struct snapshot {
	struct kvt_io io;
	struct kvt_iovec iov[];
};
#define REQUEST_BYTES offsetof(struct kvt_io, result)

void contract_io_start(struct contract *c, struct testsession *ts, struct contract_io *io)
{
	size_t iov_bytes = io->t.io.iov_count * sizeof(struct kvt_iovec);
	struct snapshot *snapshot = malloc(sizeof(*snapshot) + iov_bytes);

	(void)c;
	assert_non_null(snapshot);
	io->is_get = io->t.io.op == KVT_IO_GET;
	io->t.io.iov = io->iov;
	io->told = io->calls = 0;
	io->tail_filled = false;
	io->broken = NULL;
	if (io->t.io.iov_count)
		io->t.io.progress = on_progress;
	io->tail_bytes =
		io->t.io.flags & KVT_IO_LATE_TAIL ? io->iov[io->t.io.iov_count - 1].iov_len : 0;
	assert_int_equal(testio_prepare(&io->t, ts), 0);
	/* Results that the backend has to set. */
	io->t.io.result = 12345;
	io->t.io.swept = 12345;
	io->t.io.bytes_landed = UINT64_C(1) << 60;
	memset(&io->t.io.info, 0x77, sizeof(io->t.io.info));
	memcpy(&snapshot->io, &io->t.io, sizeof(snapshot->io));
	if (iov_bytes)
		memcpy(snapshot->iov, io->iov, iov_bytes);
	io->t.user = snapshot;
	testio_submit(&io->t);
}

static bool reports_info(uint32_t op)
{
	return op == KVT_IO_PUT || op == KVT_IO_COMMIT || op == KVT_IO_GET || op == KVT_IO_HEAD;
}

static void check_results(const struct contract_io *io)
{
	const struct kvt_io *k = &io->t.io;
	uint64_t needed = k->length - io->tail_bytes;

	assert_true(k->result <= 0);
	if (k->result)
		assert_string_not_equal(testhost_code(k->result), "?");
	if (reports_info(k->op) && io->t.answer >= 0 && k->info.object_bytes != KVT_BYTES_UNKNOWN) {
		assert_true(k->info.object_bytes < UINT64_C(1) << 50);
		assert_true(k->info.version.bytes <= sizeof(k->info.version.value));
		assert_true(k->info.age_ns >= -1 && k->info.access_age_ns >= -1);
	}
	switch (k->op) {
	case KVT_IO_GET:
		if (io->t.answer < 0)
			break;
		assert_true(k->bytes_landed <= k->length);
		if (io->seed && k->bytes_landed)
			assert_true(landed_right(io, 0, k->bytes_landed));
		if (!k->result) {
			assert_int_equal(k->bytes_landed, k->length);
			assert_int_not_equal(k->info.object_bytes, KVT_BYTES_UNKNOWN);
			assert_int_equal(io->told, k->length);
		}
		break;
	case KVT_IO_PUT:
	case KVT_IO_PART:
		if (!k->result)
			assert_true(io->told >= needed);
		if (!k->result && io->tail_bytes)
			assert_true(io->tail_filled);
		break;
	case KVT_IO_HEAD:
		if (!k->result)
			assert_int_not_equal(k->info.object_bytes, KVT_BYTES_UNKNOWN);
		break;
	case KVT_IO_SWEEP:
		if (!k->result)
			assert_int_not_equal(k->swept, 12345);
		break;
	default:
		break;
	}
}

int contract_io_finish(struct contract *c, struct contract_io *io)
{
	struct snapshot *snapshot = io->t.user;
	int result = testio_wait(&io->t);

	(void)c;
	if (io->broken)
		fail_msg("%s: %s", io->t.io.name ? io->t.io.name : "", io->broken);
	if (io->t.answer < 0 && io->t.answer != KVT_EINVAL && io->t.answer != KVT_ENOTSUP)
		fail_msg("submit answered %d, which is no usage error", io->t.answer);
	assert_int_equal(io->t.completions, io->t.answer == KVT_QUEUED);
	assert_false(io->t.late);
	assert_true(testio_private_intact(&io->t));
	/* The completion is the test's own: the request was compared with it filled in. */
	assert_memory_equal(&snapshot->io, &io->t.io, REQUEST_BYTES);
	if (io->t.io.iov_count)
		assert_memory_equal(snapshot->iov, io->iov,
				    io->t.io.iov_count * sizeof(struct kvt_iovec));
	assert_ptr_equal(snapshot->io.private_data, io->t.io.private_data);
	assert_ptr_equal(snapshot->io.detail_buffer, io->t.io.detail_buffer);
	assert_non_null(memchr(io->t.detail, 0, sizeof(io->t.detail)));
	assert_null(strchr(io->t.detail, '\n'));
	check_results(io);
	free(snapshot);
	io->t.user = NULL;
	testio_release(&io->t);
	return result;
}

int contract_io_run(struct contract *c, struct testsession *ts, struct contract_io *io)
{
	contract_io_start(c, ts, io);
	return contract_io_finish(c, io);
}

int contract_put(struct contract *c, const char *name, uint64_t bytes, uint64_t seed,
		 uint32_t flags, const struct kvt_version *if_version, struct kvt_object_info *info)
{
	struct contract_buffer buffer = contract_buffer_make(bytes, 0);
	struct kvt_iovec iov = {buffer.data, bytes};
	struct contract_io io = {.t.io = {.op = KVT_IO_PUT,
					  .flags = flags | (if_version ? KVT_IO_IF_VERSION : 0),
					  .name = name,
					  .iov_count = bytes > 0,
					  .length = bytes,
					  .object_bytes = bytes,
					  .if_version = if_version},
				 .iov = &iov,
				 .seed = seed};
	int result;

	contract_fill(buffer.data, bytes, seed, 0);
	io.t.io.crc32c = c->th.host.crc32c(0, buffer.data, bytes);
	result = contract_io_run(c, &c->ts, &io);
	assert_true(contract_match(buffer.data, bytes, seed, 0));
	contract_buffer_free(&buffer);
	if (!result && io.t.io.info.object_bytes != KVT_BYTES_UNKNOWN)
		assert_int_equal(io.t.io.info.object_bytes, bytes);
	if (info)
		*info = io.t.io.info;
	return result;
}

int contract_get(struct contract *c, const char *name, uint64_t bytes, int64_t offset,
		 uint64_t seed, uint64_t object_bytes, const struct kvt_version *if_version,
		 struct kvt_object_info *info)
{
	struct contract_buffer buffer = contract_buffer_make(bytes, 0);
	struct kvt_iovec iov = {buffer.data, bytes};
	struct contract_io io = {.t.io = {.op = KVT_IO_GET,
					  .flags = if_version ? KVT_IO_IF_VERSION : 0,
					  .name = name,
					  .iov_count = 1,
					  .length = bytes,
					  .offset = offset,
					  .if_version = if_version},
				 .iov = &iov,
				 .seed = seed};
	int result;

	io.object_at = (uint64_t)offset + (offset < 0 ? object_bytes : 0);
	result = contract_io_run(c, &c->ts, &io);
	if (!result) {
		assert_int_equal(io.t.io.info.object_bytes, object_bytes);
		assert_true(contract_match(buffer.data, bytes, seed, io.object_at));
	}
	contract_buffer_free(&buffer);
	if (info)
		*info = io.t.io.info;
	return result;
}

int contract_simple(struct contract *c, uint32_t op, const char *name,
		    const struct kvt_version *if_version, struct kvt_object_info *info)
{
	struct contract_io io = {.t.io = {.op = op,
					  .name = name,
					  .flags = if_version ? KVT_IO_IF_VERSION : 0,
					  .if_version = if_version}};
	int result = contract_io_run(c, &c->ts, &io);

	if (info)
		*info = io.t.io.info;
	return result;
}

void contract_expect(struct contract *c, const char *name, uint64_t bytes, uint64_t seed)
{
	struct kvt_object_info info;

	assert_int_equal(contract_simple(c, KVT_IO_HEAD, name, NULL, &info), 0);
	assert_int_equal(info.object_bytes, bytes);
	if (bytes)
		assert_int_equal(contract_get(c, name, bytes, 0, seed, bytes, NULL, NULL), 0);
}

void contract_expect_none(struct contract *c, const char *name)
{
	assert_int_equal(contract_simple(c, KVT_IO_HEAD, name, NULL, NULL), KVT_ENOENT);
}

/* ---- The frame ---- */

static int setup(void **state)
{
	const struct contract_backend *b = contract_current;
	struct contract *c = calloc(1, sizeof(*c));
	int result;

	*state = c;
	if (!c)
		return -1;
	testhost_init(&c->th);
	if (b->make_location && b->make_location(c->location, sizeof(c->location))) {
		print_error("%s: no place to test in\n", b->name);
		return -1;
	}
	result = contract_open(&c->tb, &c->th, c->location);
	if (!result)
		result = testsession_open(&c->ts, &c->tb, c->tb.ops.poll ? 16 : 1, 0);
	if (result)
		print_error("%s: %s: %s\n", b->name, testhost_code(result), testhost_failure());
	return result;
}

static int teardown(void **state)
{
	struct contract *c = *state;
	int result = 0;

	if (!c)
		return 0;
	testsession_close(&c->ts);
	testbackend_close(&c->tb);
	if (atomic_load(&c->th.live)) {
		print_error("%ld allocations were not freed\n", atomic_load(&c->th.live));
		result = -1;
	}
	if (contract_current->remove_location)
		contract_current->remove_location(c->location);
	free(c);
	return result;
}

int contract_run(const struct contract_backend *backend)
{
	const struct CMUnitTest *const lists[] = {contract_object_cases, contract_range_cases,
						  contract_part_cases, contract_list_cases,
						  contract_session_cases};
	static struct CMUnitTest cases[MOST_CASES];
	size_t count = 0;

	for (size_t l = 0; l < sizeof(lists) / sizeof(lists[0]); l++)
		for (const struct CMUnitTest *t = lists[l]; t->name && count < MOST_CASES; t++) {
			cases[count] = *t;
			cases[count].setup_func = setup;
			cases[count++].teardown_func = teardown;
		}
	contract_current = backend;
	return _cmocka_run_group_tests(backend->name, cases, count, NULL, NULL);
}
