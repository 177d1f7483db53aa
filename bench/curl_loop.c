/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The least that storing and loading objects over HTTP can cost with libcurl: threads with a multi
 * handle each and a number of transfers in flight, keep-alive, bodies copied from and to memory of
 * their own, and nothing else. No signature, no checksum, no trailer, no conditions, no queue.
 *
 * usage: curl_loop URL OBJECT_BYTES OBJECTS [THREADS=4] [DEPTH=16]
 *                  [blocking | BUFFER_BYTES [SOCKET_BYTES]]
 *
 * PUTs objects below the URL, then GETs them, and prints a JSON object for each of the two. With
 * "blocking" each thread does one request at a time (curl_easy_perform). BUFFER_BYTES are those of
 * libcurl's buffers, to send and to receive; SOCKET_BYTES SO_SNDBUF and SO_RCVBUF, which the kernel
 * chooses otherwise. GB is 1e9 bytes; CPU is that of the process during the loop. All memory is
 * touched before the clock starts.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>

#include <curl/curl.h>

#define BUFFER_BYTES 122880L
#define MAX_THREADS  64
#define MAX_DEPTH    256

struct loop {
	const char *url;
	size_t object_bytes;
	uint64_t objects;
	unsigned threads, depth;
	bool blocking, loading;
	long buffer_bytes; /* 0: what suits the size */
	int socket_bytes;  /* 0: what the kernel likes */
	pthread_barrier_t start;
	atomic_uint_fast64_t next;
	atomic_int failed; /* a CURLcode, or a status */
};

struct transfer {
	struct loop *loop;
	CURL *easy;
	char *memory;
	size_t at;
};

static size_t take(char *data, size_t size, size_t count, void *transfer)
{
	struct transfer *t = transfer;
	size_t bytes = size * count;

	if (bytes > t->loop->object_bytes - t->at)
		return 0;
	memcpy(t->memory + t->at, data, bytes);
	t->at += bytes;
	return bytes;
}

static size_t give(char *to, size_t size, size_t count, void *transfer)
{
	struct transfer *t = transfer;
	size_t bytes = size * count, left = t->loop->object_bytes - t->at;

	if (bytes > left)
		bytes = left;
	memcpy(to, t->memory + t->at, bytes);
	t->at += bytes;
	return bytes;
}

static size_t ignore(char *data, size_t size, size_t count, void *context)
{
	(void)data, (void)context;
	return size * count;
}

static int rewind_body(void *transfer, curl_off_t offset, int origin)
{
	struct transfer *t = transfer;

	if (offset != 0 || origin != SEEK_SET)
		return CURL_SEEKFUNC_CANTSEEK;
	t->at = 0;
	return CURL_SEEKFUNC_OK;
}

static int set_socket(void *context, curl_socket_t fd, curlsocktype purpose)
{
	const struct loop *loop = context;
	int bytes = loop->socket_bytes;

	(void)purpose;
	if (bytes && (setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes)) ||
		      setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes))))
		return CURL_SOCKOPT_ERROR;
	return CURL_SOCKOPT_OK;
}

static void prepare(struct transfer *t, struct curl_slist *headers)
{
	bool loading = t->loop->loading;
	long bytes = t->loop->buffer_bytes, receive = bytes ? bytes : BUFFER_BYTES,
	     give_bytes = receive;

	if (!bytes && t->loop->object_bytes <= 262144)
		give_bytes = 65536;
	curl_easy_setopt(t->easy, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(t->easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	curl_easy_setopt(t->easy, CURLOPT_BUFFERSIZE, receive);
	curl_easy_setopt(t->easy, CURLOPT_UPLOAD_BUFFERSIZE, give_bytes);
	curl_easy_setopt(t->easy, CURLOPT_SOCKOPTFUNCTION, set_socket);
	curl_easy_setopt(t->easy, CURLOPT_SOCKOPTDATA, t->loop);
	curl_easy_setopt(t->easy, CURLOPT_HTTPHEADER, headers);
	curl_easy_setopt(t->easy, CURLOPT_WRITEFUNCTION, loading ? take : ignore);
	curl_easy_setopt(t->easy, CURLOPT_WRITEDATA, t);
	curl_easy_setopt(t->easy, CURLOPT_READFUNCTION, give);
	curl_easy_setopt(t->easy, CURLOPT_READDATA, t);
	curl_easy_setopt(t->easy, CURLOPT_SEEKFUNCTION, rewind_body);
	curl_easy_setopt(t->easy, CURLOPT_SEEKDATA, t);
	curl_easy_setopt(t->easy, CURLOPT_PRIVATE, t);
	if (!loading) {
		curl_easy_setopt(t->easy, CURLOPT_UPLOAD, 1L);
		curl_easy_setopt(t->easy, CURLOPT_INFILESIZE_LARGE,
				 (curl_off_t)t->loop->object_bytes);
	}
}

/* The next object; false when there is none. */
static bool begin(struct transfer *t)
{
	uint64_t number = atomic_fetch_add(&t->loop->next, 1);
	char url[1024];

	if (number >= t->loop->objects || atomic_load(&t->loop->failed))
		return false;
	(void)snprintf(url, sizeof(url), "%s/loop-%llu", t->loop->url, (unsigned long long)number);
	curl_easy_setopt(t->easy, CURLOPT_URL, url);
	t->at = 0;
	return true;
}

static void check(struct transfer *t, CURLcode code)
{
	long status = 0;

	curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &status);
	if (code)
		atomic_store(&t->loop->failed, (int)code);
	else if (status < 200 || status > 204 || t->at != t->loop->object_bytes)
		atomic_store(&t->loop->failed, (int)status);
}

static void run_multi(struct loop *loop, struct transfer *transfers)
{
	CURLM *multi = curl_multi_init();
	int running = 0, left;
	CURLMsg *message;

	curl_multi_setopt(multi, CURLMOPT_MAXCONNECTS, (long)loop->depth + 1);
	for (unsigned i = 0; i < loop->depth; i++)
		if (begin(&transfers[i]))
			curl_multi_add_handle(multi, transfers[i].easy);
	do {
		curl_multi_perform(multi, &running);
		while ((message = curl_multi_info_read(multi, &left)) != NULL) {
			CURLcode code = message->data.result;
			struct transfer *t;

			curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&t);
			curl_multi_remove_handle(multi, t->easy);
			check(t, code);
			if (begin(t)) {
				curl_multi_add_handle(multi, t->easy);
				running++;
			}
		}
		if (running)
			curl_multi_poll(multi, NULL, 0, 1000, NULL);
	} while (running);
	curl_multi_cleanup(multi);
}

static void *work(void *context)
{
	struct loop *loop = context;
	unsigned depth = loop->blocking ? 1 : loop->depth;
	struct transfer *transfers = calloc(depth, sizeof(*transfers));
	struct curl_slist *headers = curl_slist_append(NULL, "Expect:");

	for (unsigned i = 0; i < depth; i++) {
		transfers[i] = (struct transfer){.loop = loop, .easy = curl_easy_init()};
		transfers[i].memory = malloc(loop->object_bytes);
		memset(transfers[i].memory, 7, loop->object_bytes);
		prepare(&transfers[i], headers);
	}
	pthread_barrier_wait(&loop->start);
	if (loop->blocking)
		while (begin(transfers))
			check(transfers, curl_easy_perform(transfers->easy));
	else
		run_multi(loop, transfers);
	for (unsigned i = 0; i < depth; i++) {
		curl_easy_cleanup(transfers[i].easy);
		free(transfers[i].memory);
	}
	curl_slist_free_all(headers);
	free(transfers);
	return NULL;
}

static double cpu_s(void)
{
	struct rusage usage;

	(void)getrusage(RUSAGE_SELF, &usage);
	return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
	       1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

static double now_s(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int run(struct loop *loop, bool loading)
{
	pthread_t threads[MAX_THREADS];
	double wall, cpu, gb = 1e-9 * (double)loop->object_bytes * (double)loop->objects;

	loop->loading = loading;
	atomic_store(&loop->next, 0);
	(void)pthread_barrier_init(&loop->start, NULL, loop->threads + 1);
	for (unsigned i = 0; i < loop->threads; i++)
		if (pthread_create(&threads[i], NULL, work, loop))
			return 1;
	pthread_barrier_wait(&loop->start);
	wall = now_s();
	cpu = cpu_s();
	for (unsigned i = 0; i < loop->threads; i++)
		(void)pthread_join(threads[i], NULL);
	wall = now_s() - wall;
	cpu = cpu_s() - cpu;
	(void)pthread_barrier_destroy(&loop->start);
	if (atomic_load(&loop->failed)) {
		fprintf(stderr, "curl_loop: %s: code or status %d\n", loading ? "GET" : "PUT",
			atomic_load(&loop->failed));
		return 1;
	}
	printf("{\"op\": \"%s\", \"GBps\": %.6f, \"cpu_s_per_GB\": %.6f, \"seconds\": %.6f}\n",
	       loading ? "load" : "store", gb / wall, cpu / gb, wall);
	return 0;
}

static uint64_t number(const char *text)
{
	return strtoull(text, NULL, 10);
}

int main(int argc, char **argv)
{
	struct loop loop = {.threads = 4, .depth = 16};

	if (argc < 4) {
		fprintf(stderr, "usage: curl_loop URL OBJECT_BYTES OBJECTS [THREADS=4] [DEPTH=16] "
				"[blocking | BUFFER_BYTES [SOCKET_BYTES]]\n");
		return 2;
	}
	loop.url = argv[1];
	loop.object_bytes = number(argv[2]);
	loop.objects = number(argv[3]);
	if (argc > 4)
		loop.threads = (unsigned)number(argv[4]);
	if (argc > 5)
		loop.depth = (unsigned)number(argv[5]);
	loop.blocking = argc > 6 && strcmp(argv[6], "blocking") == 0;
	if (argc > 6 && !loop.blocking)
		loop.buffer_bytes = (long)number(argv[6]);
	if (argc > 7)
		loop.socket_bytes = (int)number(argv[7]);
	if (loop.object_bytes == 0 || loop.objects == 0 || loop.threads == 0 ||
	    loop.threads > MAX_THREADS || loop.depth == 0 || loop.depth > MAX_DEPTH) {
		fprintf(stderr,
			"curl_loop: sizes and counts: expected more than 0, at most %d "
			"threads and a depth of %d\n",
			MAX_THREADS, MAX_DEPTH);
		return 2;
	}
	if (curl_global_init(CURL_GLOBAL_DEFAULT))
		return 1;
	return run(&loop, false) || run(&loop, true);
}
