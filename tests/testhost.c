/* SPDX-License-Identifier: Apache-2.0 */
/* The stand-alone host, and short ways to open a backend, a session and to run one io. */
#include "testhost.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define DEADLINE_NS  INT64_C(60000000000)
#define CANARY	     0x5a
#define CANARY_BYTES 16u

static _Thread_local char failure[256];

static uint32_t crc_table[8][256];
static pthread_once_t crc_once = PTHREAD_ONCE_INIT;

static void crc_make(void)
{
	for (uint32_t i = 0; i < 256; i++) {
		uint32_t crc = i;

		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? UINT32_C(0x82f63b78) : 0);
		crc_table[0][i] = crc;
	}
	for (uint32_t i = 0; i < 256; i++)
		for (int t = 1; t < 8; t++)
			crc_table[t][i] =
				crc_table[t - 1][i] >> 8 ^ crc_table[0][crc_table[t - 1][i] & 255];
}

static uint32_t host_crc32c(uint32_t crc, const void *data, size_t bytes)
{
	const uint8_t *p = data;

	pthread_once(&crc_once, crc_make);
	crc = ~crc;
	for (; bytes >= 8; bytes -= 8, p += 8) {
		crc ^= p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
		crc = crc_table[7][crc & 255] ^ crc_table[6][crc >> 8 & 255] ^
		      crc_table[5][crc >> 16 & 255] ^ crc_table[4][crc >> 24] ^ crc_table[3][p[4]] ^
		      crc_table[2][p[5]] ^ crc_table[1][p[6]] ^ crc_table[0][p[7]];
	}
	for (; bytes; bytes--)
		crc = crc >> 8 ^ crc_table[0][(crc ^ *p++) & 255];
	return ~crc;
}

static void host_log(const struct kvt_host *host, enum kvt_host_log_level level, const char *topic,
		     const char *format, ...)
{
	struct testhost *th = host->core;
	va_list ap;

	atomic_fetch_add(&th->log_lines, 1);
	if (!th->verbose)
		return;
	flockfile(stderr);
	fprintf(stderr, "%d %s: ", (int)level, topic);
	va_start(ap, format);
	vfprintf(stderr, format, ap);
	va_end(ap);
	fputc('\n', stderr);
	funlockfile(stderr);
}

static void host_detail(struct kvt_io *io, const char *format, ...)
{
	va_list ap;

	if (!io->detail_buffer || !io->detail_bytes)
		return;
	va_start(ap, format);
	vsnprintf(io->detail_buffer, io->detail_bytes, format, ap);
	va_end(ap);
}

static void host_fail(const struct kvt_host *host, const char *format, ...)
{
	va_list ap;

	(void)host;
	va_start(ap, format);
	vsnprintf(failure, sizeof(failure), format, ap);
	va_end(ap);
}

static int64_t host_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

static void *host_alloc(const struct kvt_host *host, size_t bytes, size_t alignment)
{
	struct testhost *th = host->core;
	long number = atomic_fetch_add(&th->allocations, 1) + 1;
	long at = atomic_load(&th->fail_at), from = atomic_load(&th->fail_from);
	void *memory;

	if (number == at || (from && number >= from))
		return NULL;
	if (alignment < 16)
		alignment = 16;
	if (posix_memalign(&memory, alignment, bytes ? bytes : 1))
		return NULL;
	atomic_fetch_add(&th->live, 1);
	return memory;
}

static void host_free(const struct kvt_host *host, void *memory)
{
	struct testhost *th = host->core;

	if (!memory)
		return;
	atomic_fetch_sub(&th->live, 1);
	free(memory);
}

void testhost_init(struct testhost *th)
{
	memset(th, 0, sizeof(*th));
	th->host = (struct kvt_host){
		.struct_size = sizeof(th->host),
		.abi = KVT_BACKEND_ABI,
		.log = host_log,
		.detail = host_detail,
		.fail = host_fail,
		.crc32c = host_crc32c,
		.now_ns = host_now_ns,
		.alloc = host_alloc,
		.free = host_free,
		.core = th,
	};
	th->verbose = getenv("TESTHOST_VERBOSE") != NULL;
	failure[0] = 0;
}

const char *testhost_failure(void)
{
	return failure;
}

void testhost_forget(void)
{
	failure[0] = 0;
}

const char *testhost_code(int code)
{
	switch (code) {
	case KVT_OK:
		return "KVT_OK";
#define KVT_X(name, value, class_name, text)                                                       \
	case KVT_##name:                                                                           \
		return "KVT_" #name;
		KVT_ERROR_TABLE(KVT_X)
#undef KVT_X
	default:
		return "?";
	}
}

void testhost_pad(struct kvt_backend_ops *to, const struct kvt_backend_ops *from)
{
	memset(to, 0, sizeof(*to));
	memcpy(to, from, from->struct_size < sizeof(*to) ? from->struct_size : sizeof(*to));
	to->struct_size = sizeof(*to);
}

int testbackend_open(struct testbackend *tb, struct testhost *th,
		     const struct testbackend_options *options)
{
	memset(tb, 0, sizeof(*tb));
	tb->th = th;
	testhost_pad(&tb->ops, options->ops);
	tb->config = (struct kvt_backend_config){
		.struct_size = sizeof(tb->config),
		.location = options->location,
		.options = options->options,
		.option_count = options->option_count,
	};
	if (options->inner) {
		testhost_pad(&tb->inner_ops, options->inner);
		tb->inner_config = (struct kvt_backend_config){
			.struct_size = sizeof(tb->inner_config),
			.location = options->location,
			.options = options->inner_options,
			.option_count = options->inner_option_count,
		};
		tb->config.inner = &tb->inner_ops;
		tb->config.inner_config = &tb->inner_config;
	}
	tb->limits = (struct kvt_backend_limits){
		.struct_size = sizeof(tb->limits),
		.min_part_bytes = 1,
		.max_part_bytes = UINT64_C(1) << 46,
		.max_object_bytes = (UINT64_C(1) << 46) + (UINT64_C(1) << 32),
		.max_parts = 1u << 20,
		.max_iov = 1024,
		.memory_alignment = 1,
		.max_name_bytes = 1024,
		.default_depth = tb->ops.poll ? 16 : 1,
	};
	return tb->ops.open(&th->host, &tb->config, &tb->backend, &tb->limits);
}

void testbackend_close(struct testbackend *tb)
{
	if (tb->backend)
		tb->ops.close(tb->backend);
	tb->backend = NULL;
}

int testsession_open(struct testsession *ts, struct testbackend *tb, uint32_t depth, int listing)
{
	*ts = (struct testsession){.tb = tb};
	return tb->ops.session_open(tb->backend, depth, listing, &ts->session);
}

void testsession_close(struct testsession *ts)
{
	if (ts->session)
		ts->tb->ops.session_close(ts->session);
	ts->session = NULL;
}

static void testio_complete(struct kvt_io *io)
{
	struct testio *t = io->owner;

	t->completions++;
	t->done = 1;
	t->late |= t->in_submit;
	t->ts->in_flight--;
}

int testio_prepare(struct testio *t, struct testsession *ts)
{
	size_t bytes = ts->tb->ops.io_private_bytes;
	void *memory;

	t->ts = ts;
	t->private_data = NULL;
	if (posix_memalign(&memory, 16, bytes + CANARY_BYTES))
		return KVT_ENOMEM;
	t->private_data = memory;
	memset(memory, CANARY, bytes + CANARY_BYTES);
	t->io.private_data = t->private_data;
	t->io.detail_buffer = t->detail;
	t->io.detail_bytes = sizeof(t->detail);
	t->detail[0] = 0;
	t->io.complete = testio_complete;
	t->io.owner = t;
	t->completions = t->done = t->late = 0;
	if (!t->io.deadline_ns)
		t->io.deadline_ns = host_now_ns() + DEADLINE_NS;
	return 0;
}

int testio_submit(struct testio *t)
{
	const struct kvt_backend_ops *ops = &t->ts->tb->ops;

	t->ts->in_flight++;
	for (;;) {
		t->in_submit = 1;
		t->answer = ops->submit(t->ts->session, &t->io);
		t->in_submit = 0;
		if (t->answer != KVT_BUSY)
			break;
		if (!ops->poll || t->ts->in_flight < 2 ||
		    ops->poll(t->ts->session, host_now_ns() + DEADLINE_NS) < 0) {
			t->answer = KVT_EINTERNAL;
			break;
		}
	}
	if (t->answer != KVT_QUEUED) {
		t->ts->in_flight--;
		t->done = 1;
		if (t->answer < 0)
			t->io.result = t->answer;
	}
	return t->answer;
}

int testio_wait(struct testio *t)
{
	const struct kvt_backend_ops *ops = &t->ts->tb->ops;

	while (!t->done)
		if (!ops->poll || ops->poll(t->ts->session, INT64_MAX) < 0)
			return KVT_EINTERNAL;
	return t->io.result;
}

int testio_private_intact(const struct testio *t)
{
	const unsigned char *canary = t->private_data + t->ts->tb->ops.io_private_bytes;

	for (size_t i = 0; i < CANARY_BYTES; i++)
		if (canary[i] != CANARY)
			return 0;
	return 1;
}

void testio_release(struct testio *t)
{
	free(t->private_data);
	t->private_data = t->io.private_data = NULL;
}

int testsession_run(struct testsession *ts, struct testio *t)
{
	int result = testio_prepare(t, ts);

	if (result)
		return result;
	testio_submit(t);
	result = testio_wait(t);
	testio_release(t);
	return result;
}

int testsession_put(struct testsession *ts, const char *name, const void *data, uint64_t bytes,
		    uint32_t flags, const struct kvt_version *if_version,
		    struct kvt_object_info *info)
{
	struct kvt_iovec iov = {(void *)(uintptr_t)data, bytes};
	struct testio t = {.io = {.op = KVT_IO_PUT,
				  .flags = flags | (if_version ? KVT_IO_IF_VERSION : 0),
				  .name = name,
				  .iov = &iov,
				  .iov_count = bytes > 0,
				  .length = bytes,
				  .object_bytes = bytes,
				  .crc32c = host_crc32c(0, data, bytes),
				  .if_version = if_version}};
	int result = testsession_run(ts, &t);

	if (info)
		*info = t.io.info;
	return result;
}

int testsession_get(struct testsession *ts, const char *name, void *data, uint64_t bytes,
		    int64_t offset, struct kvt_object_info *info)
{
	struct kvt_iovec iov = {data, bytes};
	struct testio t = {.io = {.op = KVT_IO_GET,
				  .name = name,
				  .iov = &iov,
				  .iov_count = 1,
				  .length = bytes,
				  .offset = offset}};
	int result = testsession_run(ts, &t);

	if (info)
		*info = t.io.info;
	return result;
}

int testsession_head(struct testsession *ts, const char *name, struct kvt_object_info *info)
{
	struct testio t = {.io = {.op = KVT_IO_HEAD, .name = name}};
	int result = testsession_run(ts, &t);

	if (info)
		*info = t.io.info;
	return result;
}

int testsession_remove(struct testsession *ts, const char *name,
		       const struct kvt_version *if_version)
{
	struct testio t = {.io = {.op = KVT_IO_REMOVE,
				  .flags = if_version ? KVT_IO_IF_VERSION : 0,
				  .name = name,
				  .if_version = if_version}};

	return testsession_run(ts, &t);
}
