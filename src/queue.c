/* SPDX-License-Identifier: Apache-2.0 */
/* The queues of waiting items, one for each class, and which lane to wake when one grows. All under
 * the worker's lock. */
#include "worker.h"

/* Stores take one turn in a hundred even when others keep coming, and one in five once the oldest
 * has waited this long. */
#define ROUND_STORE_BYTES (256 * 1024) /* a lane looks for loads again after about this much */
#define STORE_AGE_NS	  INT64_C(500000000)
#define AGED_TURN	  4
#define STORE_TURN	  99

static void list_push(struct kvt__queue *q, struct kvt__item *item)
{
	item->next = NULL;
	item->prev = q->last;
	if (q->last)
		q->last->next = item;
	else
		q->first = item;
	q->last = item;
	q->count++;
}

static void list_unlink(struct kvt__queue *q, struct kvt__item *item)
{
	if (item->prev)
		item->prev->next = item->next;
	else
		q->first = item->next;
	if (item->next)
		item->next->prev = item->prev;
	else
		q->last = item->prev;
	item->next = item->prev = NULL;
	q->count--;
}

void kvt__queue_push_locked(struct kvt_worker *w, struct kvt__item *item, enum kvt__class c)
{
	item->state = KVT__ITEM_QUEUED;
	item->item_class = (uint8_t)c;
	list_push(&w->queues[c], item);
}

void kvt__queue_unlink_locked(struct kvt_worker *w, struct kvt__item *item)
{
	list_unlink(&w->queues[item->item_class], item);
}

void kvt__queue_lift_locked(struct kvt_worker *w, struct kvt__item *item)
{
	if (item->item_class <= KVT__CLASS_LIFTED)
		return;
	if (item->state != KVT__ITEM_QUEUED) {
		item->item_class = KVT__CLASS_LIFTED;
		return;
	}
	list_unlink(&w->queues[item->item_class], item);
	kvt__queue_push_locked(w, item, KVT__CLASS_LIFTED);
}

static bool is_store(const struct kvt__item *item)
{
	return item->item_class == KVT__CLASS_STORE || item->item_class == KVT__CLASS_LIFTED;
}

static bool may_take(struct kvt__allowance *a, const struct kvt__item *item)
{
	if (!a->others)
		return false;
	if (!is_store(item))
		return true;
	if (!a->stores)
		return false;
	if (a->hold_stores && !item->job->raws) {
		a->held = true;
		return false;
	}
	return true;
}

/* The next item: an aged store when it is its turn, else the first class that has one. Lookups are
 * the first class, within their share while others could run instead. */
static struct kvt__item *next_item(const struct kvt_worker *w, struct kvt__allowance *a,
				   int64_t now_ns)
{
	struct kvt__item *oldest = w->queues[KVT__CLASS_STORE].first;
	struct kvt__item *lookup = w->queues[KVT__CLASS_LOOKUP].first, *other = NULL;
	bool aged = oldest && now_ns - oldest->job->submitted_ns > STORE_AGE_NS;
	if (oldest && w->since_store >= (aged ? AGED_TURN : STORE_TURN) && may_take(a, oldest))
		return oldest;
	for (int c = KVT__CLASS_LOOKUP + 1; c < KVT__CLASS_COUNT && !other; c++)
		if (w->queues[c].first && may_take(a, w->queues[c].first))
			other = w->queues[c].first;
	return lookup && (a->lookups || !other) ? lookup : other;
}

uint32_t kvt__queue_pop_locked(struct kvt_worker *w, struct kvt__item **items,
			       struct kvt__allowance *a, int64_t now_ns)
{
	struct kvt__item *item;
	uint32_t n = 0;
	uint64_t store_bytes = 0;
	while (n < a->all && store_bytes < ROUND_STORE_BYTES &&
	       (item = next_item(w, a, now_ns)) != NULL) {
		if (item->item_class == KVT__CLASS_STORE)
			w->since_store = 0;
		else
			w->since_store++;
		if (item->item_class == KVT__CLASS_LOOKUP)
			a->lookups -= a->lookups > 0;
		else
			a->others--;
		if (is_store(item)) {
			a->stores--;
			store_bytes += item->job->raws
					       ? item->job->raws[item->index].end
					       : item->job->shapes[item->shape].plan.payload_bytes;
		}
		kvt__queue_unlink_locked(w, item);
		item->state = KVT__ITEM_ACTIVE;
		w->queued--;
		if (!item->job->started_ns)
			item->job->started_ns = now_ns;
		items[n++] = item;
	}
	return n;
}

uint64_t kvt__queue_waiting_locked(const struct kvt_worker *w, uint64_t *storesp)
{
	*storesp = w->queues[KVT__CLASS_STORE].count + w->queues[KVT__CLASS_LIFTED].count;
	return *storesp + w->queues[KVT__CLASS_LOOKUP].count +
	       w->queues[KVT__CLASS_EXPEDITED].count + w->queues[KVT__CLASS_LOAD].count;
}

/* Clears one bit of a mask of idle lanes and returns it; 0 when there is none. */
static uint64_t take_idle(struct kvt_worker *w, uint64_t candidates)
{
	while (candidates) {
		uint64_t lane = candidates & -candidates;
		if (atomic_fetch_and(&w->idle_lanes, ~lane) & lane)
			return lane;
		candidates &= ~lane;
	}
	return 0;
}

void kvt__wake_one_locked(struct kvt_worker *w, struct kvt__after *after)
{
	uint64_t stores, waiting = kvt__queue_waiting_locked(w, &stores);
	if (after->wake || (!waiting && !w->arms))
		return;
	uint64_t lookups = w->queues[KVT__CLASS_LOOKUP].count;
	uint64_t idle = atomic_load(&w->idle_lanes);
	uint64_t for_loads = idle & atomic_load(&w->idle_for_loads);
	/* A lane that has a place for stores takes anything; one that has none would leave a store
	 * lying, and one that has room for lookups alone everything else. */
	after->wake = take_idle(w, for_loads & atomic_load(&w->idle_for_stores));
	if (!after->wake && waiting > stores + lookups)
		after->wake = take_idle(w, for_loads);
	if (!after->wake && (lookups || w->arms))
		after->wake = take_idle(w, idle);
}
