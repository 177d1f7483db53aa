/* SPDX-License-Identifier: Apache-2.0 */
/* Hooks in use: allocation, log and clock, the services that backends and devices get from them,
 * and the two checks that every public call shares (option structs, forked children). Any thread.
 */
#include "env.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "crc32c.h"

#define LOG_LINE_BYTES	 1024
#define LOG_INTERVAL_NS	 INT64_C(1000000000)
#define PLAIN_ALIGNMENT	 16u
#define MAX_STRUCT_BYTES 65536u /* a struct_size beyond this was not set by anybody */

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

uint32_t kvt__fork_generation;

static void in_child(void)
{
	kvt__fork_generation++;
}

static void install_child_handler(void)
{
	(void)pthread_atfork(NULL, NULL, in_child);
}

void kvt__fork_watch(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	(void)pthread_once(&once, install_child_handler);
}

/* Whether a line of this topic may be written now; *suppressedp: how many were left out since its
 * last one. When every slot belongs to a topic that spoke within the last second, the line is left
 * out and counted with the topic that speaks next. */
static bool topic_may_speak(struct kvt__env *env, const char *topic, uint64_t *suppressedp)
{
	int64_t now = kvt__now_ns();
	struct kvt__log_topic *slot = NULL, *oldest = &env->topics[0];
	bool speaks;

	pthread_mutex_lock(&env->log_lock);
	for (size_t i = 0; i < COUNT(env->topics) && !slot; i++) {
		if (env->topics[i].topic == topic)
			slot = &env->topics[i];
		else if (env->topics[i].next_ns < oldest->next_ns)
			oldest = &env->topics[i];
	}
	if (!slot) {
		slot = oldest;
		if (slot->next_ns <= now) {
			slot->topic = topic;
			slot->next_ns = 0;
			slot->suppressed = 0;
		}
	}
	speaks = slot->next_ns <= now;
	if (speaks) {
		*suppressedp = slot->suppressed;
		slot->suppressed = 0;
		slot->next_ns = now + LOG_INTERVAL_NS;
	} else {
		slot->suppressed++;
	}
	pthread_mutex_unlock(&env->log_lock);
	return speaks;
}

static void log_va(struct kvt__env *env, enum kvt_log_level level, const char *topic,
		   const char *format, va_list args)
{
	char line[LOG_LINE_BYTES];
	uint64_t suppressed = 0;

	if (!env->hooks.log || level == KVT_LOG_OFF || level > env->hooks.log_level)
		return;
	if (!topic_may_speak(env, topic, &suppressed))
		return;
	/* Room is kept for the count of what was left out. */
	int bytes = vsnprintf(line, sizeof(line) - 48, format, args);
	if (bytes < 0)
		return;
	kvt__one_line(line);
	if (suppressed > 0) {
		size_t end = strlen(line);
		(void)snprintf(line + end, sizeof(line) - end, " (%llu more left out)",
			       (unsigned long long)suppressed);
	}
	env->hooks.log(env->hooks.log_context, level, line);
}

void kvt__log(struct kvt__env *env, enum kvt_log_level level, const char *topic, const char *format,
	      ...)
{
	va_list args;

	va_start(args, format);
	log_va(env, level, topic, format, args);
	va_end(args);
}

static void host_log(const struct kvt_host *host, enum kvt_host_log_level level, const char *topic,
		     const char *format, ...)
{
	va_list args;

	va_start(args, format);
	log_va(host->core, (enum kvt_log_level)level, topic, format, args);
	va_end(args);
}

static void host_detail(struct kvt_io *io, const char *format, ...)
{
	va_list args;

	if (!io->detail_buffer || io->detail_bytes == 0)
		return;
	va_start(args, format);
	if (vsnprintf(io->detail_buffer, io->detail_bytes, format, args) < 0)
		io->detail_buffer[0] = '\0';
	va_end(args);
	kvt__one_line(io->detail_buffer);
}

static void host_fail(const struct kvt_host *host, const char *format, ...)
{
	char line[512];
	va_list args;

	(void)host;
	va_start(args, format);
	if (vsnprintf(line, sizeof(line), format, args) < 0)
		line[0] = '\0';
	va_end(args);
	(void)kvt__fail(KVT_EINTERNAL, "%s", line);
}

static void *host_alloc(const struct kvt_host *host, size_t bytes, size_t alignment)
{
	return kvt__alloc_aligned(host->core, bytes, alignment);
}

static void host_free(const struct kvt_host *host, void *memory)
{
	kvt__free(host->core, memory);
}

int kvt__env_init(struct kvt__env *env, const struct kvt_hooks *hooks)
{
	memset(env, 0, sizeof(*env));
	if (hooks)
		env->hooks = *hooks;
	if (!env->hooks.allocator.alloc != !env->hooks.allocator.free)
		return kvt__fail(KVT_EINVAL,
				 "hooks.allocator.%s is NULL, expected both alloc and free or "
				 "neither",
				 env->hooks.allocator.alloc ? "free" : "alloc");
	if ((unsigned)env->hooks.log_level > KVT_LOG_DEBUG)
		return kvt__fail(KVT_EINVAL, "hooks.log_level is %u, expected 0 to %u",
				 (unsigned)env->hooks.log_level, (unsigned)KVT_LOG_DEBUG);
	if (env->hooks.log && env->hooks.log_level == KVT_LOG_OFF)
		env->hooks.log_level = KVT_LOG_WARNING;
	if (pthread_mutex_init(&env->log_lock, NULL) != 0)
		return kvt__fail(KVT_ENOMEM, "log lock: out of memory");
	env->host = (struct kvt_host){
		.struct_size = sizeof(env->host),
		.abi = KVT_BACKEND_ABI,
		.log = host_log,
		.detail = host_detail,
		.fail = host_fail,
		.crc32c = kvt__crc32c,
		.now_ns = kvt__now_ns,
		.alloc = host_alloc,
		.free = host_free,
		.core = env,
	};
	return 0;
}

void kvt__env_fini(struct kvt__env *env)
{
	pthread_mutex_destroy(&env->log_lock);
}

void *kvt__alloc_aligned(const struct kvt__env *env, size_t bytes, size_t alignment)
{
	const struct kvt_allocator *allocator = &env->hooks.allocator;

	if (bytes == 0)
		bytes = 1;
	if (alignment < PLAIN_ALIGNMENT)
		alignment = PLAIN_ALIGNMENT;
	if (allocator->alloc)
		return allocator->alloc(allocator->context, bytes, alignment);
	if (alignment <= PLAIN_ALIGNMENT)
		return malloc(bytes);

	void *memory;
	return posix_memalign(&memory, alignment, bytes) == 0 ? memory : NULL;
}

void *kvt__alloc(const struct kvt__env *env, size_t bytes)
{
	return kvt__alloc_aligned(env, bytes, PLAIN_ALIGNMENT);
}

void *kvt__zalloc(const struct kvt__env *env, size_t bytes)
{
	if (!env->hooks.allocator.alloc)
		return calloc(1, bytes ? bytes : 1);

	void *memory = kvt__alloc(env, bytes);
	if (memory)
		memset(memory, 0, bytes);
	return memory;
}

void kvt__free(const struct kvt__env *env, void *memory)
{
	if (env->hooks.allocator.free)
		env->hooks.allocator.free(env->hooks.allocator.context, memory);
	else
		free(memory);
}

char *kvt__strdup(const struct kvt__env *env, const char *text)
{
	size_t bytes = strlen(text) + 1;
	char *copy = kvt__alloc(env, bytes);
	if (copy)
		memcpy(copy, text, bytes);
	return copy;
}

int64_t kvt__now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int kvt__copy_options(void *to, size_t to_bytes, const void *from, size_t least, const char *what)
{
	size_t bytes;

	memset(to, 0, to_bytes);
	if (!from)
		return 0;
	memcpy(&bytes, from, sizeof(bytes));
	if (bytes < least || bytes > MAX_STRUCT_BYTES)
		return kvt__fail(KVT_EINVAL, "%s: struct_size is %zu, expected %zu to %u", what,
				 bytes, least, MAX_STRUCT_BYTES);
	for (size_t i = to_bytes; i < bytes; i++) {
		if (((const unsigned char *)from)[i] != 0)
			return kvt__fail(KVT_EINVAL,
					 "%s: byte %zu of %zu is not zero, expected zeros beyond "
					 "the %zu bytes this library knows",
					 what, i, bytes, to_bytes);
	}
	memcpy(to, from, bytes < to_bytes ? bytes : to_bytes);
	return 0;
}
