/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The staging budget. The memory is one block from the device, cut into equal buffers. A buffer is
 * a binary tree of pieces: the whole buffer is order 0, each order halves the piece before it
 * (rounded down to pages), so that a small chunk takes the smallest 2^-k share of a buffer that
 * holds it. A buffer sits on one of the lists by the largest piece that it still has and by whether
 * a store holds any of it.
 *
 * Who gets memory: waits are served in order of arrival, and the oldest one that does not fit holds
 * back all younger ones, so that large requests do not starve. Stores together may touch all but a
 * quarter of the buffers (at least one); a store at that limit is passed by loads. With a single
 * buffer loads are served before stores instead.
 */
#include "staging.h"

#include <assert.h>
#include <pthread.h>

#define PAGE_BYTES UINT64_C(4096)
#define MAX_ORDER  16
#define ORDER_FULL 0xff /* no piece is left */

enum { WAIT_IDLE = 0, WAIT_QUEUED, WAIT_HELD };
enum { FREE_OF_STORES = 0, WITH_STORES };

struct buffer {
	struct buffer *next, **linkp; /* list of its kind and largest order; NULL linkp: full */
	uint32_t store_pieces;
	/* largest[1] is the root: the smallest order number available below each node. */
	uint8_t *largest;
};

struct wait_queue {
	struct kvt__staging_wait *head, **tailp;
};

struct kvt__staging {
	struct kvt__env *env;
	struct kvt_device *device;
	uint8_t *memory;
	bool given; /* memory is the caller's */
	uint64_t buffer_bytes;
	uint32_t buffer_count;
	uint32_t max_order;
	uint32_t store_limit; /* buffers that stores may touch */
	uint64_t order_bytes[MAX_ORDER + 1];
	pthread_mutex_t lock; /* leaf; guards all below */
	struct buffer *buffers;
	uint8_t *trees;
	struct buffer *lists[2][MAX_ORDER + 1];
	uint32_t store_buffers; /* buffers with store_pieces */
	struct wait_queue loads, stores;
	uint64_t arrivals;
	uint64_t used_bytes, peak_bytes, waiters;
};

static uint8_t smaller(uint8_t a, uint8_t b)
{
	return a < b ? a : b;
}

static void list_leave(struct buffer *buffer)
{
	if (buffer->linkp == NULL)
		return;
	*buffer->linkp = buffer->next;
	if (buffer->next != NULL)
		buffer->next->linkp = buffer->linkp;
	buffer->next = NULL;
	buffer->linkp = NULL;
}

static void list_enter_locked(struct kvt__staging *staging, struct buffer *buffer)
{
	uint8_t order = buffer->largest[1];

	if (order == ORDER_FULL)
		return;
	struct buffer **head = &staging->lists[buffer->store_pieces != 0][order];

	buffer->next = *head;
	buffer->linkp = head;
	if (*head != NULL)
		(*head)->linkp = &buffer->next;
	*head = buffer;
}

/* What a node offers, from its two children; two free halves are one free whole again. */
static void node_join(uint8_t *largest, uint32_t node, uint32_t order)
{
	uint8_t left = largest[2 * node], right = largest[2 * node + 1];

	if (left == order + 1 && right == order + 1)
		largest[node] = (uint8_t)order;
	else
		largest[node] = smaller(left, right);
}

/* Takes a piece of `order` out of a buffer that has one; returns its offset. */
static uint64_t piece_take(struct kvt__staging *staging, struct buffer *buffer, uint32_t order)
{
	uint8_t *largest = buffer->largest;
	uint64_t offset = 0;
	uint32_t node = 1;

	for (uint32_t level = 1; level <= order; level++) {
		uint8_t left = largest[2 * node], right = largest[2 * node + 1];
		/* The tighter child that still has the piece keeps large pieces whole. */
		bool go_right = left > order || (right <= order && right > left);

		node = 2 * node + go_right;
		if (go_right)
			offset += staging->order_bytes[level];
	}
	largest[node] = ORDER_FULL;
	for (uint32_t level = order; level-- > 0;) {
		node /= 2;
		node_join(largest, node, level);
	}
	return offset;
}

static void piece_give(struct kvt__staging *staging, struct buffer *buffer, uint32_t order,
		       uint64_t offset)
{
	uint8_t *largest = buffer->largest;
	uint32_t node = 1;

	for (uint32_t level = 1; level <= order; level++) {
		bool go_right = offset >= staging->order_bytes[level];

		node = 2 * node + go_right;
		if (go_right)
			offset -= staging->order_bytes[level];
	}
	assert(offset == 0 && largest[node] == ORDER_FULL);
	largest[node] = (uint8_t)order;
	for (uint32_t level = order; level-- > 0;) {
		node /= 2;
		node_join(largest, node, level);
	}
}

static uint32_t order_for(const struct kvt__staging *staging, uint64_t bytes)
{
	uint32_t order = 0;

	while (order < staging->max_order && staging->order_bytes[order + 1] >= bytes)
		order++;
	return order;
}

/* The buffer of a kind whose largest piece is the tightest that holds `order`; NULL: none. */
static struct buffer *buffer_find_locked(struct kvt__staging *staging, int kind, uint32_t order)
{
	for (uint32_t o = order + 1; o-- > 0;)
		if (staging->lists[kind][o] != NULL)
			return staging->lists[kind][o];
	return NULL;
}

static bool stores_at_limit_locked(const struct kvt__staging *staging)
{
	return staging->store_buffers >= staging->store_limit;
}

static bool grant_locked(struct kvt__staging *staging, struct kvt__staging_wait *wait)
{
	uint32_t order = order_for(staging, wait->bytes);
	struct buffer *buffer;

	if (wait->for_store) {
		buffer = buffer_find_locked(staging, WITH_STORES, order);
		if (buffer == NULL && !stores_at_limit_locked(staging))
			buffer = buffer_find_locked(staging, FREE_OF_STORES, order);
	} else {
		buffer = buffer_find_locked(staging, FREE_OF_STORES, order);
		if (buffer == NULL)
			buffer = buffer_find_locked(staging, WITH_STORES, order);
	}
	if (buffer == NULL)
		return false;
	list_leave(buffer);
	uint64_t offset = piece_take(staging, buffer, order);

	if (wait->for_store && buffer->store_pieces++ == 0)
		staging->store_buffers++;
	list_enter_locked(staging, buffer);
	wait->buffer = (uint32_t)(buffer - staging->buffers);
	wait->order = (uint8_t)order;
	wait->memory = staging->memory + wait->buffer * staging->buffer_bytes + offset;
	wait->memory_bytes = staging->order_bytes[order];
	wait->state = WAIT_HELD;
	staging->used_bytes += wait->memory_bytes;
	if (staging->used_bytes > staging->peak_bytes)
		staging->peak_bytes = staging->used_bytes;
	return true;
}

static void queue_leave_locked(struct kvt__staging *staging, struct kvt__staging_wait *wait)
{
	struct wait_queue *queue = wait->for_store ? &staging->stores : &staging->loads;

	*wait->linkp = wait->next;
	if (wait->next != NULL)
		wait->next->linkp = wait->linkp;
	else
		queue->tailp = wait->linkp;
	wait->next = NULL;
	wait->linkp = NULL;
	staging->waiters--;
}

static void queue_enter_locked(struct kvt__staging *staging, struct kvt__staging_wait *wait)
{
	struct wait_queue *queue = wait->for_store ? &staging->stores : &staging->loads;

	wait->arrival = staging->arrivals++;
	wait->next = NULL;
	wait->linkp = queue->tailp;
	*queue->tailp = wait;
	queue->tailp = &wait->next;
	wait->state = WAIT_QUEUED;
	staging->waiters++;
}

/* The wait whose turn it is and that fits, already holding its memory; NULL: none. */
static struct kvt__staging_wait *next_granted_locked(struct kvt__staging *staging)
{
	struct kvt__staging_wait *load = staging->loads.head, *store = staging->stores.head;
	struct kvt__staging_wait *chosen = NULL;

	if (load == NULL && store == NULL)
		return NULL;
	if (staging->buffer_count == 1 || store == NULL) {
		chosen = load != NULL ? load : store;
	} else if (load == NULL || store->arrival < load->arrival) {
		chosen = store;
		if (stores_at_limit_locked(staging) && load != NULL &&
		    buffer_find_locked(staging, WITH_STORES, order_for(staging, store->bytes)) ==
			    NULL)
			chosen = load;
	} else {
		chosen = load;
	}
	if (!grant_locked(staging, chosen))
		return NULL;
	queue_leave_locked(staging, chosen);
	return chosen;
}

/* Grants what can be granted; the granted waits are returned as a list. Between calls of the public
 * functions no wait is left that could be granted. */
static struct kvt__staging_wait *grant_all_locked(struct kvt__staging *staging)
{
	struct kvt__staging_wait *first = NULL, **lastp = &first, *wait;

	while ((wait = next_granted_locked(staging)) != NULL) {
		*lastp = wait;
		lastp = &wait->next;
	}
	return first;
}

static void tell_granted(struct kvt__staging_wait *wait)
{
	while (wait != NULL) {
		struct kvt__staging_wait *next = wait->next; /* the wait is its owner's from here */

		wait->next = NULL;
		wait->granted(wait);
		wait = next;
	}
}

static void staging_free(struct kvt__staging *staging)
{
	struct kvt__env *env = staging->env;

	kvt__free(env, staging->trees);
	kvt__free(env, staging->buffers);
	kvt__free(env, staging);
}

static void tree_init(const struct kvt__staging *staging, uint8_t *largest)
{
	largest[0] = ORDER_FULL;
	for (uint32_t order = 0, node = 1; order <= staging->max_order; order++)
		for (uint32_t i = 0; i < 1u << order; i++)
			largest[node++] = (uint8_t)order;
}

static int memory_get(struct kvt_device *device, void *given, uint64_t bytes, void **memoryp)
{
	*memoryp = given;
	if (given == NULL)
		return device->ops.staging_alloc(device->device, bytes, memoryp);
	if ((uintptr_t)given % PAGE_BYTES != 0)
		return kvt__fail(KVT_EINVAL, "staging_memory: %p, expected a multiple of %llu",
				 given, (unsigned long long)PAGE_BYTES);
	if (device->ops.staging_register == NULL)
		return 0;
	return device->ops.staging_register(device->device, given, bytes);
}

static void memory_give(struct kvt__staging *staging)
{
	const struct kvt_device_ops *ops = &staging->device->ops;
	uint64_t bytes = staging->buffer_count * staging->buffer_bytes;

	if (!staging->given)
		ops->staging_free(staging->device->device, staging->memory, bytes);
	else if (ops->staging_unregister != NULL)
		ops->staging_unregister(staging->device->device, staging->memory, bytes);
}

int kvt__staging_create(struct kvt__env *env, struct kvt_device *device, void *given,
			uint64_t staging_bytes, uint64_t buffer_bytes, uint64_t part_bytes,
			struct kvt__staging **stagingp)
{
	struct kvt__staging *staging;
	uint64_t count, tree_bytes, memory_bytes;
	void *memory;
	int error;

	*stagingp = NULL;
	assert(buffer_bytes >= PAGE_BYTES && buffer_bytes % PAGE_BYTES == 0);
	count = staging_bytes / buffer_bytes;
	if (count == 0)
		return kvt__fail(KVT_EINVAL,
				 "staging_bytes: %llu, expected at least %llu, one buffer for a "
				 "part_bytes of %llu",
				 (unsigned long long)staging_bytes,
				 (unsigned long long)buffer_bytes, (unsigned long long)part_bytes);
	if (count > UINT32_MAX / 2)
		return kvt__fail(KVT_EINVAL,
				 "staging_bytes: %llu makes %llu buffers of %llu bytes, expected "
				 "at most %u",
				 (unsigned long long)staging_bytes, (unsigned long long)count,
				 (unsigned long long)buffer_bytes, UINT32_MAX / 2);
	staging = kvt__zalloc(env, sizeof(*staging));
	if (staging == NULL)
		return kvt__fail(KVT_ENOMEM, "staging: out of memory");
	staging->env = env;
	staging->device = device;
	staging->buffer_bytes = buffer_bytes;
	staging->buffer_count = (uint32_t)count;
	staging->store_limit = 1;
	if (count > 1)
		staging->store_limit = (uint32_t)(count - (count / 4 > 0 ? count / 4 : 1));
	for (uint64_t pages = buffer_bytes / PAGE_BYTES; pages > 1; pages /= 2)
		staging->max_order++;
	if (staging->max_order > MAX_ORDER)
		staging->max_order = MAX_ORDER;
	for (uint32_t order = 0; order <= staging->max_order; order++)
		staging->order_bytes[order] = (buffer_bytes / PAGE_BYTES >> order) * PAGE_BYTES;
	staging->loads.tailp = &staging->loads.head;
	staging->stores.tailp = &staging->stores.head;

	tree_bytes = UINT64_C(2) << staging->max_order;
	staging->buffers = kvt__zalloc(env, count * sizeof(*staging->buffers));
	staging->trees = kvt__alloc(env, count * tree_bytes);
	if (staging->buffers == NULL || staging->trees == NULL) {
		staging_free(staging);
		return kvt__fail(KVT_ENOMEM, "staging: out of memory for %llu buffers",
				 (unsigned long long)count);
	}
	memory_bytes = count * buffer_bytes;
	error = memory_get(device, given, memory_bytes, &memory);
	if (error != 0) {
		staging_free(staging);
		return error;
	}
	staging->memory = memory;
	staging->given = given != NULL;
	pthread_mutex_init(&staging->lock, NULL);
	for (uint64_t i = count; i-- > 0;) { /* so that the first buffer is the first taken */
		staging->buffers[i].largest = staging->trees + i * tree_bytes;
		tree_init(staging, staging->buffers[i].largest);
		list_enter_locked(staging, &staging->buffers[i]);
	}
	*stagingp = staging;
	return 0;
}

void kvt__staging_destroy(struct kvt__staging *staging)
{
	if (staging == NULL)
		return;
	assert(staging->used_bytes == 0 && staging->waiters == 0);
	memory_give(staging);
	pthread_mutex_destroy(&staging->lock);
	staging_free(staging);
}

void kvt__staging_forked(struct kvt__staging *staging)
{
	if (staging == NULL)
		return;
	memory_give(staging);
	staging_free(staging);
}

uint64_t kvt__staging_buffer_bytes(const struct kvt__staging *staging)
{
	return staging->buffer_bytes;
}

bool kvt__staging_acquire(struct kvt__staging *staging, struct kvt__staging_wait *wait)
{
	struct kvt__staging_wait *granted;

	assert(wait->state == WAIT_IDLE && wait->bytes <= staging->buffer_bytes);
	pthread_mutex_lock(&staging->lock);
	queue_enter_locked(staging, wait);
	granted = grant_all_locked(staging);
	/* Nothing else can have become possible by one more waiting. */
	assert(granted == NULL || (granted == wait && granted->next == NULL));
	pthread_mutex_unlock(&staging->lock);
	return granted != NULL;
}

bool kvt__staging_cancel(struct kvt__staging *staging, struct kvt__staging_wait *wait)
{
	struct kvt__staging_wait *granted = NULL;
	bool canceled;

	pthread_mutex_lock(&staging->lock);
	canceled = wait->state == WAIT_QUEUED;
	if (canceled) {
		queue_leave_locked(staging, wait);
		wait->state = WAIT_IDLE;
		granted = grant_all_locked(staging); /* it may have held others back */
	}
	pthread_mutex_unlock(&staging->lock);
	tell_granted(granted);
	return canceled;
}

void kvt__staging_release(struct kvt__staging *staging, struct kvt__staging_wait *wait)
{
	struct kvt__staging_wait *granted;
	struct buffer *buffer;
	uint64_t offset;

	pthread_mutex_lock(&staging->lock);
	assert(wait->state == WAIT_HELD);
	buffer = &staging->buffers[wait->buffer];
	offset = (uint64_t)((uint8_t *)wait->memory - staging->memory) -
		 wait->buffer * staging->buffer_bytes;
	list_leave(buffer);
	piece_give(staging, buffer, wait->order, offset);
	if (wait->for_store && --buffer->store_pieces == 0)
		staging->store_buffers--;
	list_enter_locked(staging, buffer);
	staging->used_bytes -= wait->memory_bytes;
	wait->memory = NULL;
	wait->memory_bytes = 0;
	wait->state = WAIT_IDLE;
	granted = grant_all_locked(staging);
	pthread_mutex_unlock(&staging->lock);
	tell_granted(granted);
}

void kvt__staging_usage(struct kvt__staging *staging, struct kvt__staging_usage *usage)
{
	pthread_mutex_lock(&staging->lock);
	usage->total_bytes = staging->buffer_count * staging->buffer_bytes;
	usage->used_bytes = staging->used_bytes;
	usage->peak_bytes = staging->peak_bytes;
	usage->waiters = staging->waiters;
	pthread_mutex_unlock(&staging->lock);
}
