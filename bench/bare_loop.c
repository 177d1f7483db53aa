/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The least that storing and loading chunks as files can cost: threads that open, write and rename,
 * then open and read, with the checksum and the room for a trailer that kvtier's objects have, and
 * nothing else. No queue, no check for what is there, no plan, no completion.
 *
 * Names are laid out as kvtier lays them out; folders are made when an open finds them missing. The
 * CRC-32C is taken in pieces of at most 256 KiB, right before a piece is written and right after it
 * was read. All memory is touched before the clock starts, and a load that does not find the CRC
 * that was stored fails the program.
 *
 * usage: bare_loop DIR BLOCK_BYTES BLOCKS [THREADS=4] [vllm|flat]
 * Prints a JSON object for the stores and one for the loads. GB is 1e9 bytes of payload; CPU is
 * that of the process during the loop.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <isa-l/crc.h>

#define PIECE_BYTES   ((size_t)256 << 10)
#define TRAILER_BYTES 4096
#define HASH_BYTES    32
#define NAME_BYTES    128
#define MAX_THREADS   256

struct loop {
	int root;
	bool flat, loading;
	size_t block_bytes;
	uint64_t blocks;
	uint8_t *memory;
	pthread_barrier_t start;
	atomic_uint_fast64_t next;
	/* The first failure: which step, and its errno (0: fewer bytes or another checksum). */
	_Atomic(const char *) failed;
	atomic_int failed_errno;
};

static uint64_t mix(uint64_t x)
{
	x += UINT64_C(0x9e3779b97f4a7c15);
	x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
	return x ^ x >> 31;
}

/* The name below the root, and where its folders end: one of them or both. */
static void make_name(const struct loop *loop, uint64_t block, char *name, size_t ends[2])
{
	static const char digits[] = "0123456789abcdef";
	char hex[2 * HASH_BYTES], *at = name;
	uint64_t word = block;

	for (int i = 0; i < 2 * HASH_BYTES; i++) {
		if (i % 16 == 0)
			word = mix(word);
		hex[i] = digits[word >> i % 16 * 4 & 15];
	}
	at = mempcpy(at, hex, 3);
	ends[0] = ends[1] = (size_t)(at - name);
	*at++ = '/';
	if (!loop->flat) {
		at = mempcpy(at, hex + 3, 2);
		at = mempcpy(at, "_g0", 3);
		ends[1] = (size_t)(at - name);
		*at++ = '/';
	}
	at = mempcpy(at, hex, sizeof(hex));
	memcpy(at, loop->flat ? "_g0.bin" : ".bin", loop->flat ? 8 : 5);
}

static bool make_folders(const struct loop *loop, char *name, const size_t ends[2])
{
	for (int i = loop->flat; i < 2; i++) {
		int made;

		name[ends[i]] = '\0';
		made = mkdirat(loop->root, name, 0700);
		name[ends[i]] = '/';
		if (made && errno != EEXIST)
			return false;
	}
	return true;
}

static bool fail(struct loop *loop, const char *step, int err)
{
	const char *none = NULL;

	if (atomic_compare_exchange_strong(&loop->failed, &none, step))
		atomic_store(&loop->failed_errno, err);
	return false;
}

/* Moves the block and its trailer; the last piece takes the trailer along. */
static bool move_bytes(struct loop *loop, int fd, uint8_t *block, uint8_t *trailer)
{
	uint32_t crc = ~0u, stored;

	for (size_t at = 0; at < loop->block_bytes; at += PIECE_BYTES) {
		size_t left = loop->block_bytes - at,
		       bytes = left < PIECE_BYTES ? left : PIECE_BYTES;
		struct iovec iov[2] = {{block + at, bytes}, {trailer, TRAILER_BYTES}};
		int count = bytes == left ? 2 : 1;
		size_t wanted = bytes + (count == 2 ? TRAILER_BYTES : 0);
		ssize_t moved;

		if (!loop->loading) {
			crc = crc32_iscsi(block + at, (int)bytes, crc);
			if (count == 2)
				memcpy(trailer, &crc, sizeof(crc));
			moved = pwritev(fd, iov, count, (off_t)at);
		} else {
			moved = preadv(fd, iov, count, (off_t)at);
			crc = crc32_iscsi(block + at, (int)bytes, crc);
		}
		if (moved != (ssize_t)wanted)
			return fail(loop, loop->loading ? "read" : "write", moved < 0 ? errno : 0);
	}
	memcpy(&stored, trailer, sizeof(stored));
	return stored == crc || fail(loop, "checksum", 0);
}

static bool store_block(struct loop *loop, uint64_t block, uint8_t *trailer)
{
	char name[NAME_BYTES], temp[NAME_BYTES + 8];
	const int flags = O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC;
	size_t ends[2];
	bool good;
	int fd;

	make_name(loop, block, name, ends);
	memcpy(mempcpy(temp, name, strlen(name)), ".tmp", 5);
	fd = openat(loop->root, temp, flags, 0600);
	if (fd < 0 && errno == ENOENT) {
		if (!make_folders(loop, name, ends))
			return fail(loop, "mkdir", errno);
		fd = openat(loop->root, temp, flags, 0600);
	}
	if (fd < 0)
		return fail(loop, "create", errno);
	good = move_bytes(loop, fd, loop->memory + block * loop->block_bytes, trailer);
	close(fd);
	if (good && renameat(loop->root, temp, loop->root, name))
		return fail(loop, "rename", errno);
	return good;
}

static bool load_block(struct loop *loop, uint64_t block, uint8_t *trailer)
{
	char name[NAME_BYTES];
	size_t ends[2];
	bool good;
	int fd;

	make_name(loop, block, name, ends);
	fd = openat(loop->root, name, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return fail(loop, "open", errno);
	good = move_bytes(loop, fd, loop->memory + block * loop->block_bytes, trailer);
	close(fd);
	return good;
}

static void *run_thread(void *argument)
{
	struct loop *loop = argument;
	uint8_t trailer[TRAILER_BYTES] = {0};
	uint64_t block;

	pthread_barrier_wait(&loop->start);
	while (!atomic_load(&loop->failed) &&
	       (block = atomic_fetch_add(&loop->next, 1)) < loop->blocks)
		if (!(loop->loading ? load_block : store_block)(loop, block, trailer))
			break;
	return NULL;
}

static double seconds_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static double cpu_seconds(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
	       (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

static int run(struct loop *loop, bool loading, unsigned thread_count)
{
	pthread_t threads[MAX_THREADS];
	double begin, cpu, gigabytes = (double)loop->block_bytes * (double)loop->blocks * 1e-9;

	loop->loading = loading;
	atomic_store(&loop->next, 0);
	if (pthread_barrier_init(&loop->start, NULL, thread_count + 1))
		return -1;
	for (unsigned i = 0; i < thread_count; i++)
		if (pthread_create(&threads[i], NULL, run_thread, loop)) {
			fprintf(stderr, "bare_loop: thread %u could not be started\n", i);
			exit(1);
		}
	begin = seconds_now();
	cpu = cpu_seconds();
	pthread_barrier_wait(&loop->start);
	for (unsigned i = 0; i < thread_count; i++)
		pthread_join(threads[i], NULL);
	begin = seconds_now() - begin;
	cpu = cpu_seconds() - cpu;
	pthread_barrier_destroy(&loop->start);
	if (atomic_load(&loop->failed)) {
		int err = atomic_load(&loop->failed_errno);

		fprintf(stderr, "bare_loop: %s: %s\n", atomic_load(&loop->failed),
			err ? strerror(err) : "not what was stored");
		return -1;
	}
	printf("{\"op\":\"%s\",\"chunk_bytes\":%zu,\"chunks\":%llu,\"threads\":%u,\"layout\":"
	       "\"%s\",\"GBps\":%.4f,\"cpu_s_per_GB\":%.4f}\n",
	       loading ? "load" : "store", loop->block_bytes, (unsigned long long)loop->blocks,
	       thread_count, loop->flat ? "flat" : "vllm", gigabytes / begin, cpu / gigabytes);
	return 0;
}

/* A whole number from 1 to `most`, or 0. */
static uint64_t number(const char *text, uint64_t most)
{
	char *end;
	unsigned long long value = strtoull(text, &end, 10);

	return *text < '0' || *text > '9' || *end || value > most ? 0 : value;
}

int main(int argc, char **argv)
{
	struct loop loop = {.root = -1};
	unsigned threads = 4;
	size_t bytes;

	if (argc >= 4 && argc <= 6) {
		loop.block_bytes = number(argv[2], (uint64_t)1 << 30);
		loop.blocks = number(argv[3], (uint64_t)1 << 24);
		if (argc > 4)
			threads = (unsigned)number(argv[4], MAX_THREADS);
		loop.flat = argc > 5 && !strcmp(argv[5], "flat");
	}
	if (!loop.block_bytes || !loop.blocks || !threads ||
	    (argc > 5 && !loop.flat && strcmp(argv[5], "vllm"))) {
		fprintf(stderr,
			"usage: bare_loop DIR BLOCK_BYTES BLOCKS [THREADS=4] [vllm|flat]\n");
		return 2;
	}
	loop.root = open(argv[1], O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (loop.root < 0) {
		fprintf(stderr, "bare_loop: %s: %s\n", argv[1], strerror(errno));
		return 1;
	}
	bytes = loop.block_bytes * loop.blocks;
	loop.memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (loop.memory == MAP_FAILED) {
		fprintf(stderr, "bare_loop: %zu bytes: %s\n", bytes, strerror(errno));
		return 1;
	}
	for (size_t i = 0; i + 8 <= bytes; i += 8) {
		uint64_t word = i * UINT64_C(0xd1342543de82ef95);

		memcpy(loop.memory + i, &word, 8);
	}
	if (run(&loop, false, threads))
		return 1;
	memset(loop.memory, 0xa5, bytes);
	if (run(&loop, true, threads))
		return 1;
	munmap(loop.memory, bytes);
	close(loop.root);
	return 0;
}
