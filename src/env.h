/* SPDX-License-Identifier: Apache-2.0 */
/* Hooks in use: allocation, log lines limited to one per topic and second, and the calling thread's
 * one line of detail. */
#ifndef KVT_SRC_ENV_H
#define KVT_SRC_ENV_H

#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kvtier/backend.h>
#include <kvtier/kvtier.h>

/* Lives inside a store, device or worker and outlives everything that was allocated through it. */
struct kvt__env {
	struct kvt_hooks hooks;
	struct kvt_host host; /* services for backends and devices opened under this env; host.core
				 points back here */
	pthread_mutex_t log_lock; /* leaf; guards the topics, held across no call out */
	struct kvt__log_topic {
		const char *topic; /* static string, compared by address */
		int64_t next_ns;
		uint64_t suppressed;
	} topics[32];
};

/* KVT_EINVAL when only one allocation hook is set. */
int kvt__env_init(struct kvt__env *env, const struct kvt_hooks *hooks);
void kvt__env_fini(struct kvt__env *env);

/* NULL when there is no memory (nothing is said: callers return KVT_ENOMEM). kvt__zalloc zeroes. */
void *kvt__alloc(const struct kvt__env *env, size_t bytes);
void *kvt__zalloc(const struct kvt__env *env, size_t bytes);
void *kvt__alloc_aligned(const struct kvt__env *env, size_t bytes, size_t alignment);
void kvt__free(const struct kvt__env *env, void *memory);
char *kvt__strdup(const struct kvt__env *env, const char *text);

/* Logs one line; `topic` is a static string. Never under a lock. */
void kvt__log(struct kvt__env *env, enum kvt_log_level level, const char *topic, const char *format,
	      ...) KVT_PRINTF(4, 5);

/* Sets the calling thread's detail and returns `error`, so that callers write: return
 * kvt__fail(KVT_EINVAL, "..."); */
int kvt__fail(int error, const char *format, ...) KVT_PRINTF(2, 3);

/* Makes a message one line: control characters become spaces, and a UTF-8 character that was cut
 * off at the end is dropped. */
void kvt__one_line(char *text);

int64_t kvt__now_ns(void);

/* Counts up in every forked child; objects remember the value they were made under. */
extern uint32_t kvt__fork_generation;
void kvt__fork_watch(void); /* installs the child handler once */

/*
 * The size of a caller's option struct against ours: copies min(size, ours) bytes into the zeroed
 * `to`. KVT_EINVAL naming `what` when struct_size is zero or smaller than `least`, or when bytes
 * beyond ours are not zero. `from` may be NULL: all defaults.
 */
int kvt__copy_options(void *to, size_t to_bytes, const void *from, size_t least, const char *what);

#endif
