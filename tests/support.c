/* SPDX-License-Identifier: Apache-2.0 */
/* See support.h: directories, bytes, gates, the allocator. */
#include "support.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* ---- Assertions ---- */

void test_returns(int expected, int got, const char *call, const char *file, int line)
{
	if (got == expected)
		return;
	print_error("%s\n  returned %s (%d), expected %s (%d); detail: %s\n", call,
		    kvt_error_name(got), got, kvt_error_name(expected), expected,
		    kvt_error_detail());
	_fail(file, line);
}

void test_fails(int expected, const char *text, int got, const char *call, const char *file,
		int line)
{
	test_returns(expected, got, call, file, line);
	if (strstr(kvt_error_detail(), text))
		return;
	print_error("%s\n  says \"%s\", which lacks \"%s\"\n", call, kvt_error_detail(), text);
	_fail(file, line);
}

/* ---- Temporary directories ---- */

#define MAX_DIRS 64
static char *dirs[MAX_DIRS];
static pid_t dirs_owner;

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st, (void)type, (void)ftw;
	return remove(path);
}

static void remove_all(void)
{
	if (dirs_owner != getpid())
		return;
	for (int i = 0; i < MAX_DIRS; i++)
		if (dirs[i])
			nftw(dirs[i], remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

static char *make_dir(const char *parent)
{
	char *path = test_format("%s/kvtier-test-XXXXXX", parent);
	if (!mkdtemp(path))
		fail_msg("mkdtemp %s: %s", path, strerror(errno));
	if (!dirs_owner) {
		dirs_owner = getpid();
		atexit(remove_all);
	}
	for (int i = 0; i < MAX_DIRS; i++)
		if (!dirs[i]) {
			dirs[i] = strdup(path);
			break;
		}
	return path;
}

char *test_temp_dir_on_disk(void)
{
	const char *parent = getenv("TMPDIR");
	return make_dir(parent ? parent : "/tmp");
}

char *test_temp_dir(void)
{
	if (access("/dev/shm", W_OK) == 0)
		return make_dir("/dev/shm");
	return test_temp_dir_on_disk();
}

void test_remove_tree(char *path)
{
	if (!path)
		return;
	nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
	for (int i = 0; i < MAX_DIRS; i++)
		if (dirs[i] && strcmp(dirs[i], path) == 0) {
			free(dirs[i]);
			dirs[i] = NULL;
		}
	free(path);
}

uint8_t *test_read_file(const char *path, size_t *bytesp)
{
	struct stat st;
	size_t done = 0;

	*bytesp = 0;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return NULL;
	if (fstat(fd, &st) != 0)
		fail_msg("fstat %s: %s", path, strerror(errno));
	uint8_t *data = malloc((size_t)st.st_size + 1);
	while (data && done < (size_t)st.st_size) {
		ssize_t got = read(fd, data + done, (size_t)st.st_size - done);
		if (got <= 0)
			break;
		done += (size_t)got;
	}
	close(fd);
	*bytesp = done;
	return data;
}

void test_write_file(const char *path, const void *data, size_t bytes)
{
	char folder[PATH_MAX];

	for (const char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		memcpy(folder, path, (size_t)(slash - path));
		folder[slash - path] = '\0';
		mkdir(folder, 0700);
	}
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0)
		fail_msg("open %s: %s", path, strerror(errno));
	for (size_t done = 0; done < bytes;) {
		ssize_t put = write(fd, (const char *)data + done, bytes - done);
		if (put <= 0)
			fail_msg("write %s: %s", path, strerror(errno));
		done += (size_t)put;
	}
	close(fd);
}

char *test_format(const char *format, ...)
{
	char *text = NULL;
	va_list args;

	va_start(args, format);
	if (vasprintf(&text, format, args) < 0)
		text = NULL;
	va_end(args);
	if (!text)
		fail_msg("out of memory");
	return text;
}

static const char *count_except;
static size_t count_found;

static int count_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st, (void)ftw;
	if (type == FTW_D && count_except && strcmp(path + ftw->base, count_except) == 0)
		return FTW_SKIP_SUBTREE;
	count_found += type == FTW_F;
	return FTW_CONTINUE;
}

size_t test_count_files(const char *path, const char *except)
{
	count_except = except;
	count_found = 0;
	nftw(path, count_entry, 16, FTW_PHYS | FTW_ACTIONRETVAL);
	return count_found;
}

/* ---- Seeded bytes ---- */

uint64_t test_random_next(struct test_random *random)
{
	uint64_t z = random->state += UINT64_C(0x9e3779b97f4a7c15);
	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

uint64_t test_random_below(struct test_random *random, uint64_t bound)
{
	return bound ? test_random_next(random) % bound : 0;
}

void test_fill(void *memory, size_t bytes, uint64_t seed)
{
	struct test_random random = {seed};
	uint8_t *at = memory;

	for (; bytes >= 8; bytes -= 8, at += 8) {
		uint64_t word = test_random_next(&random);
		memcpy(at, &word, 8);
	}
	uint64_t word = test_random_next(&random);
	memcpy(at, &word, bytes);
}

bool test_is_filled(const void *memory, size_t bytes, uint64_t seed)
{
	struct test_random random = {seed};
	const uint8_t *at = memory;

	for (; bytes >= 8; bytes -= 8, at += 8) {
		uint64_t word = test_random_next(&random);
		if (memcmp(at, &word, 8) != 0)
			return false;
	}
	uint64_t word = test_random_next(&random);
	return memcmp(at, &word, bytes) == 0;
}

uint64_t test_seed(uint64_t fallback)
{
	const char *text = getenv("KVT_TEST_SEED");
	uint64_t seed = text ? strtoull(text, NULL, 0) : fallback;

	print_message("KVT_TEST_SEED=%llu\n", (unsigned long long)seed);
	return seed;
}

/* ---- Gates ---- */

void test_gate_init(struct test_gate *gate, bool open)
{
	pthread_condattr_t attributes;

	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_mutex_init(&gate->lock, NULL);
	pthread_cond_init(&gate->changed, &attributes);
	pthread_condattr_destroy(&attributes);
	gate->open = open;
	gate->arrived = 0;
	gate->waiting = 0;
}

void test_gate_fini(struct test_gate *gate)
{
	pthread_cond_destroy(&gate->changed);
	pthread_mutex_destroy(&gate->lock);
}

void test_gate_pass(struct test_gate *gate)
{
	pthread_mutex_lock(&gate->lock);
	gate->arrived++;
	gate->waiting++;
	pthread_cond_broadcast(&gate->changed);
	while (!gate->open)
		pthread_cond_wait(&gate->changed, &gate->lock);
	gate->waiting--;
	pthread_cond_broadcast(&gate->changed);
	pthread_mutex_unlock(&gate->lock);
}

static void gate_set(struct test_gate *gate, bool open)
{
	pthread_mutex_lock(&gate->lock);
	gate->open = open;
	pthread_cond_broadcast(&gate->changed);
	pthread_mutex_unlock(&gate->lock);
}

void test_gate_open(struct test_gate *gate)
{
	gate_set(gate, true);
}

void test_gate_close(struct test_gate *gate)
{
	gate_set(gate, false);
}

bool test_gate_await(struct test_gate *gate, unsigned count)
{
	struct timespec limit;
	bool reached;

	clock_gettime(CLOCK_MONOTONIC, &limit);
	limit.tv_sec += TEST_LIMIT_MS / 1000;
	pthread_mutex_lock(&gate->lock);
	while (gate->waiting < count)
		if (pthread_cond_timedwait(&gate->changed, &gate->lock, &limit) == ETIMEDOUT)
			break;
	reached = gate->waiting >= count;
	pthread_mutex_unlock(&gate->lock);
	return reached;
}

/* ---- Counting allocator ---- */

/* In front of each block, as far as its alignment asks for: the block itself and its size. */
struct block_head {
	void *block;
	size_t bytes;
};

void test_allocator_init(struct test_allocator *allocator)
{
	memset(allocator, 0, sizeof(*allocator));
}

static void *allocator_alloc(void *context, size_t bytes, size_t alignment)
{
	struct test_allocator *allocator = context;
	uint64_t call = atomic_fetch_add(&allocator->calls, 1) + 1;
	uint64_t fail_at = atomic_load(&allocator->fail_at);
	void *block;

	if (fail_at && (call == fail_at || (call > fail_at && atomic_load(&allocator->fail_on)))) {
		atomic_fetch_add(&allocator->failed, 1);
		return NULL;
	}
	if (alignment < 16 || (alignment & (alignment - 1)) != 0) {
		atomic_fetch_add(&allocator->misaligned, 1);
		alignment = 16;
	}
	size_t front =
		sizeof(struct block_head) > alignment ? sizeof(struct block_head) : alignment;
	if (posix_memalign(&block, alignment, front + bytes) != 0)
		return NULL;
	uint8_t *memory = (uint8_t *)block + front;
	struct block_head head = {block, bytes};
	memcpy(memory - sizeof(head), &head, sizeof(head));
	/* Whoever relies on zeroed memory finds out. */
	memset(memory, 0xA5, bytes);
	atomic_fetch_add(&allocator->live_blocks, 1);
	long long live =
		atomic_fetch_add(&allocator->live_bytes, (long long)bytes) + (long long)bytes;
	long long peak = atomic_load(&allocator->peak_bytes);
	while (live > peak && !atomic_compare_exchange_weak(&allocator->peak_bytes, &peak, live))
		;
	return memory;
}

static void allocator_free(void *context, void *memory)
{
	struct test_allocator *allocator = context;
	struct block_head head;

	if (!memory)
		return;
	memcpy(&head, (uint8_t *)memory - sizeof(head), sizeof(head));
	memset(memory, 0x5A, head.bytes);
	atomic_fetch_sub(&allocator->live_blocks, 1);
	atomic_fetch_sub(&allocator->live_bytes, (long long)head.bytes);
	free(head.block);
}

void test_allocator_hooks(struct test_allocator *allocator, struct kvt_allocator *hooks)
{
	hooks->alloc = allocator_alloc;
	hooks->free = allocator_free;
	hooks->context = allocator;
}
