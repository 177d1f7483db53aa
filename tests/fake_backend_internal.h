/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the two halves of the fake backend: what the test sees, and what the core calls. */
#ifndef KVT_TESTS_FAKE_BACKEND_INTERNAL_H
#define KVT_TESTS_FAKE_BACKEND_INTERNAL_H

#include <pthread.h>

#include "fake_backend.h"

#define FAKE_RULES 16

struct fake_object {
	struct fake_object *next;
	char *name;
	uint8_t *data;
	size_t bytes;
	uint64_t version;
	int64_t age_ns, access_age_ns;
	unsigned touches;
};

struct fake_store {
	pthread_mutex_t lock; /* guards everything but config and uri, held across no call out */
	pthread_cond_t changed;
	struct fake_config config;
	char uri[32];
	unsigned id;
	unsigned openings, session_count, polls, in_flight, peak_in_flight, handles;
	const struct kvt_host *host;
	struct fake_object *buckets[FAKE_BUCKETS];
	size_t object_count;
	uint64_t last_version;
	struct fake_session *sessions;
	struct fake_rule *rules[FAKE_RULES];
	unsigned calls[16];
	struct fake_record *records;
	size_t record_count, record_room;
	char violation[256];
	char learnt[512];
};

/* One request in flight; lives in the io's private memory. */
struct fake_pending {
	struct fake_pending *next;
	struct kvt_io *io;
	struct fake_rule *holder; /* NULL: due */
	bool stuck;		  /* its deadline does not take it back */
	bool timed_out;
	enum fake_action action; /* 0: none */
	int error;
	uint64_t after_bytes;
	int64_t retry_after_ns;
	size_t record;
};

struct fake_session {
	struct fake_session *next;
	struct fake_store *store;
	pthread_t thread;
	pthread_cond_t wake;
	bool woken, listing;
	uint32_t depth, in_flight;
	struct fake_pending *pending; /* oldest first */
};

/* Behind io->handle. */
struct fake_handle {
	struct fake_session *session;
	uint8_t *data;
	uint64_t bytes, covered, shortest;
	uint32_t parts, parts_in_flight, short_parts;
	uint8_t numbers[1 << 17]; /* bit per part number */
};

/* Does what a request asks for, rules and all; sets its result. No lock held. */
void fake__execute(struct fake_session *session, struct fake_pending *p);

/* Registers the tables once. */
void fake__register(void);
struct fake_store *fake__find(const char *location);
void fake__broke(struct fake_store *store, const char *format, ...) KVT_PRINTF(2, 3);
struct fake_object *fake__object_locked(struct fake_store *store, const char *name);
/* Takes `data`. */
struct fake_object *fake__insert_locked(struct fake_store *store, const char *name, uint8_t *data,
					size_t bytes);
bool fake__remove_locked(struct fake_store *store, const char *name);

#endif
