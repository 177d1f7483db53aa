/* SPDX-License-Identifier: Apache-2.0 */
/* The test's side of the fake backend: objects, rules, records. */
#include "fake_backend_internal.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_STORES 4096
static pthread_mutex_t stores_lock = PTHREAD_MUTEX_INITIALIZER;
static struct fake_store *stores[MAX_STORES];
static unsigned store_count;

struct fake_store *fake__find(const char *location)
{
	unsigned long id = strtoul(location, NULL, 10);

	pthread_mutex_lock(&stores_lock);
	struct fake_store *store = id < MAX_STORES ? stores[id] : NULL;
	pthread_mutex_unlock(&stores_lock);
	return store;
}

void fake__broke(struct fake_store *store, const char *format, ...)
{
	va_list args;

	pthread_mutex_lock(&store->lock);
	if (!store->violation[0]) {
		va_start(args, format);
		vsnprintf(store->violation, sizeof(store->violation), format, args);
		va_end(args);
	}
	pthread_mutex_unlock(&store->lock);
}

/* Memory of tests: without it there is no test. */
static void *need(void *memory)
{
	if (!memory) {
		fputs("fake backend: out of memory\n", stderr);
		abort();
	}
	return memory;
}

struct fake_store *fake_store_create(const struct fake_config *config)
{
	struct fake_store *store = need(calloc(1, sizeof(*store)));
	pthread_condattr_t attributes;

	fake__register();
	pthread_mutex_init(&store->lock, NULL);
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&store->changed, &attributes);
	pthread_condattr_destroy(&attributes);
	store->config.capabilities = FAKE_CAPABILITIES;
	if (config)
		store->config = *config;
	if (!store->config.piece_bytes)
		store->config.piece_bytes = 10000;
	pthread_mutex_lock(&stores_lock);
	if (store_count == MAX_STORES)
		need(NULL);
	store->id = store_count;
	stores[store_count++] = store;
	pthread_mutex_unlock(&stores_lock);
	snprintf(store->uri, sizeof(store->uri), "%s:%u",
		 store->config.blocking ? "fakeblocking" : "fake", store->id);
	return store;
}

const char *fake_store_uri(const struct fake_store *store)
{
	return store->uri;
}

void fake_store_destroy(struct fake_store *store)
{
	if (store->openings || store->session_count || store->in_flight) {
		fprintf(stderr, "fake backend: destroyed with %u openings, %u sessions, %u ios\n",
			store->openings, store->session_count, store->in_flight);
		abort();
	}
	pthread_mutex_lock(&stores_lock);
	stores[store->id] = NULL;
	pthread_mutex_unlock(&stores_lock);
	for (size_t b = 0; b < FAKE_BUCKETS; b++)
		while (store->buckets[b])
			fake__remove_locked(store, store->buckets[b]->name);
	free(store->records);
	pthread_cond_destroy(&store->changed);
	pthread_mutex_destroy(&store->lock);
	free(store);
}

/* ---- Objects ---- */

static size_t bucket_of(const char *name)
{
	uint64_t hash = 5381;

	while (*name)
		hash = hash * 33 ^ (uint8_t)*name++;
	return (hash ^ hash >> 17) % FAKE_BUCKETS;
}

struct fake_object *fake__object_locked(struct fake_store *store, const char *name)
{
	struct fake_object *object = store->buckets[bucket_of(name)];

	while (object && strcmp(object->name, name) != 0)
		object = object->next;
	return object;
}

struct fake_object *fake__insert_locked(struct fake_store *store, const char *name, uint8_t *data,
					size_t bytes)
{
	struct fake_object *object = fake__object_locked(store, name);

	if (!object) {
		size_t bucket = bucket_of(name);
		object = need(calloc(1, sizeof(*object)));
		object->name = need(strdup(name));
		object->next = store->buckets[bucket];
		store->buckets[bucket] = object;
		store->object_count++;
	}
	free(object->data);
	object->data = data;
	object->bytes = bytes;
	object->version = ++store->last_version;
	object->age_ns = 0;
	object->access_age_ns = 0;
	return object;
}

bool fake__remove_locked(struct fake_store *store, const char *name)
{
	struct fake_object **linkp = &store->buckets[bucket_of(name)];

	while (*linkp && strcmp((*linkp)->name, name) != 0)
		linkp = &(*linkp)->next;
	struct fake_object *object = *linkp;
	if (!object)
		return false;
	*linkp = object->next;
	free(object->name);
	free(object->data);
	free(object);
	store->object_count--;
	return true;
}

void fake_object_put(struct fake_store *store, const char *name, const void *data, size_t bytes)
{
	uint8_t *copy = need(malloc(bytes + 1));

	if (bytes)
		memcpy(copy, data, bytes);
	pthread_mutex_lock(&store->lock);
	fake__insert_locked(store, name, copy, bytes);
	pthread_mutex_unlock(&store->lock);
}

uint8_t *fake_object_get(struct fake_store *store, const char *name, size_t *bytesp)
{
	uint8_t *copy = NULL;

	*bytesp = 0;
	pthread_mutex_lock(&store->lock);
	struct fake_object *object = fake__object_locked(store, name);
	if (object) {
		copy = need(malloc(object->bytes + 1));
		memcpy(copy, object->data, object->bytes);
		*bytesp = object->bytes;
	}
	pthread_mutex_unlock(&store->lock);
	return copy;
}

bool fake_object_exists(struct fake_store *store, const char *name)
{
	pthread_mutex_lock(&store->lock);
	bool exists = fake__object_locked(store, name) != NULL;
	pthread_mutex_unlock(&store->lock);
	return exists;
}

bool fake_object_remove(struct fake_store *store, const char *name)
{
	pthread_mutex_lock(&store->lock);
	bool removed = fake__remove_locked(store, name);
	pthread_mutex_unlock(&store->lock);
	return removed;
}

void fake_object_flip(struct fake_store *store, const char *name, uint64_t byte)
{
	pthread_mutex_lock(&store->lock);
	struct fake_object *object = fake__object_locked(store, name);
	if (object && byte < object->bytes) {
		object->data[byte] ^= 0x10;
		object->version = ++store->last_version;
	}
	pthread_mutex_unlock(&store->lock);
}

void fake_object_set_age(struct fake_store *store, const char *name, int64_t age_ns,
			 int64_t access_age_ns)
{
	pthread_mutex_lock(&store->lock);
	struct fake_object *object = fake__object_locked(store, name);
	if (object) {
		object->age_ns = age_ns;
		object->access_age_ns = access_age_ns;
	}
	pthread_mutex_unlock(&store->lock);
}

size_t fake_object_count(struct fake_store *store)
{
	pthread_mutex_lock(&store->lock);
	size_t count = store->object_count;
	pthread_mutex_unlock(&store->lock);
	return count;
}

unsigned fake_object_touches(struct fake_store *store, const char *name)
{
	pthread_mutex_lock(&store->lock);
	struct fake_object *object = fake__object_locked(store, name);
	unsigned touches = object ? object->touches : 0;
	pthread_mutex_unlock(&store->lock);
	return touches;
}

/* ---- Rules ---- */

void fake_rule_add(struct fake_store *store, struct fake_rule *rule)
{
	rule->seen = rule->hits = rule->held = 0;
	rule->off = false;
	pthread_mutex_lock(&store->lock);
	for (int i = 0; i < FAKE_RULES; i++)
		if (!store->rules[i]) {
			store->rules[i] = rule;
			rule = NULL;
			break;
		}
	pthread_mutex_unlock(&store->lock);
	if (rule)
		need(NULL);
}

static void release_locked(struct fake_store *store, struct fake_rule *rule, unsigned count)
{
	while (count--) {
		/* The oldest by the order of submission, whatever its session. */
		struct fake_pending *oldest = NULL;
		struct fake_session *its = NULL;
		for (struct fake_session *s = store->sessions; s; s = s->next)
			for (struct fake_pending *p = s->pending; p; p = p->next)
				if (p->holder == rule && (!oldest || p->record < oldest->record)) {
					oldest = p;
					its = s;
				}
		if (!oldest)
			return;
		oldest->holder = NULL;
		rule->held--;
		pthread_cond_signal(&its->wake);
		pthread_cond_broadcast(&store->changed);
	}
}

void fake_rule_remove(struct fake_store *store, struct fake_rule *rule)
{
	pthread_mutex_lock(&store->lock);
	for (int i = 0; i < FAKE_RULES; i++)
		if (store->rules[i] == rule)
			store->rules[i] = NULL;
	rule->off = true;
	release_locked(store, rule, UINT32_MAX);
	pthread_mutex_unlock(&store->lock);
}

void fake_release(struct fake_store *store, struct fake_rule *rule, unsigned count)
{
	pthread_mutex_lock(&store->lock);
	release_locked(store, rule, count);
	pthread_mutex_unlock(&store->lock);
}

unsigned fake_rule_hits(struct fake_store *store, struct fake_rule *rule)
{
	pthread_mutex_lock(&store->lock);
	unsigned hits = rule->hits;
	pthread_mutex_unlock(&store->lock);
	return hits;
}

unsigned fake_held(struct fake_store *store, struct fake_rule *rule)
{
	pthread_mutex_lock(&store->lock);
	unsigned held = rule->held;
	pthread_mutex_unlock(&store->lock);
	return held;
}

bool fake_await_held(struct fake_store *store, struct fake_rule *rule, unsigned count)
{
	struct timespec limit;

	clock_gettime(CLOCK_MONOTONIC, &limit);
	limit.tv_sec += 90;
	pthread_mutex_lock(&store->lock);
	while (rule->held < count)
		if (pthread_cond_timedwait(&store->changed, &store->lock, &limit) == ETIMEDOUT)
			break;
	bool reached = rule->held >= count;
	pthread_mutex_unlock(&store->lock);
	return reached;
}

/* ---- What happened ---- */

unsigned fake_calls(struct fake_store *store, enum kvt_io_op op)
{
	pthread_mutex_lock(&store->lock);
	unsigned calls = store->calls[op];
	pthread_mutex_unlock(&store->lock);
	return calls;
}

static unsigned read_counter(struct fake_store *store, const unsigned *counter)
{
	pthread_mutex_lock(&store->lock);
	unsigned value = *counter;
	pthread_mutex_unlock(&store->lock);
	return value;
}

unsigned fake_in_flight(struct fake_store *store)
{
	return read_counter(store, &store->in_flight);
}

void fake_describe_as(struct fake_store *store, const char *text)
{
	pthread_mutex_lock(&store->lock);
	snprintf(store->learnt, sizeof(store->learnt), "%s", text);
	pthread_mutex_unlock(&store->lock);
}

unsigned fake_polls(struct fake_store *store)
{
	return read_counter(store, &store->polls);
}

unsigned fake_peak_in_flight(struct fake_store *store)
{
	return read_counter(store, &store->peak_in_flight);
}

unsigned fake_open_handles(struct fake_store *store)
{
	return read_counter(store, &store->handles);
}

unsigned fake_sessions(struct fake_store *store)
{
	return read_counter(store, &store->session_count);
}

bool fake_touches(struct fake_store *store, const void *memory, size_t bytes)
{
	const uint8_t *from = memory, *to = from + bytes;
	bool touches = false;

	pthread_mutex_lock(&store->lock);
	for (struct fake_session *s = store->sessions; s; s = s->next)
		for (struct fake_pending *p = s->pending; p; p = p->next)
			for (uint32_t i = 0; i < p->io->iov_count; i++) {
				const uint8_t *base = p->io->iov[i].iov_base;
				touches = touches || (base && base < to &&
						      base + p->io->iov[i].iov_len > from);
			}
	pthread_mutex_unlock(&store->lock);
	return touches;
}

const char *fake_violation(struct fake_store *store)
{
	pthread_mutex_lock(&store->lock);
	const char *violation = store->violation[0] ? store->violation : NULL;
	pthread_mutex_unlock(&store->lock);
	return violation;
}

size_t fake_record_count(struct fake_store *store)
{
	pthread_mutex_lock(&store->lock);
	size_t count = store->record_count;
	pthread_mutex_unlock(&store->lock);
	return count;
}

struct fake_record fake_record_at(struct fake_store *store, size_t index)
{
	struct fake_record record = {0};

	pthread_mutex_lock(&store->lock);
	if (index < store->record_count)
		record = store->records[index];
	pthread_mutex_unlock(&store->lock);
	return record;
}

void fake_records_clear(struct fake_store *store)
{
	pthread_mutex_lock(&store->lock);
	/* Requests in flight still write their result: their records stay. */
	if (store->in_flight == 0)
		store->record_count = 0;
	pthread_mutex_unlock(&store->lock);
}
