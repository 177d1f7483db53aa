/* SPDX-License-Identifier: Apache-2.0 */
/* Lookups: the geometry that tells a whole object from a partial one by its length, and jobs that
 * ask for keys. */
#include "worker.h"

#include <stdlib.h>
#include <string.h>

/* Copies a geometry and computes the layout for every hash length that is possible with it. */
static int geometry_new(struct kvt_worker *w, uint32_t group, const struct kvt_geometry *given,
			struct kvt__lookup_geometry **newp)
{
	struct kvt_geometry g = {0};
	int error = kvt__copy_options(&g, sizeof(g), given, sizeof(size_t), "geometry");
	if (error)
		return error;
	if (g.ref_count && !g.ref_bytes)
		return kvt__fail(
			KVT_EINVAL,
			"kvt_worker_set_geometry: geometry.ref_bytes is NULL, expected %u sizes",
			g.ref_count);
	if (g.ref_count > KVT__MAX_SLOTS)
		return kvt__fail(
			KVT_EINVAL,
			"kvt_worker_set_geometry: geometry.ref_count is %u, expected at most %u",
			g.ref_count, KVT__MAX_SLOTS);
	struct kvt__lookup_geometry *new =
		kvt__zalloc(&w->env, sizeof(*new) + (size_t)g.ref_count * sizeof(uint64_t));
	if (!new)
		return kvt__fail(KVT_ENOMEM, "kvt_worker_set_geometry: out of memory for %u refs",
				 g.ref_count);
	uint64_t *ref_bytes = (uint64_t *)(new + 1);
	if (g.ref_count)
		memcpy(ref_bytes, g.ref_bytes, (size_t)g.ref_count * sizeof(*ref_bytes));
	new->group = group;
	new->geometry = (struct kvt__geometry){g.blocks_per_chunk, g.ref_count, ref_bytes};
	for (uint32_t n = 1; n <= 64 && !error; n++)
		error = kvt__layout_init(&new->layouts[n], &new->geometry, n);
	if (error) {
		kvt__free(&w->env, new);
		return error;
	}
	*newp = new;
	return 0;
}

/* A group's geometry in force; geometry_count when there is none. */
static uint32_t geometry_find_locked(const struct kvt_worker *w, uint32_t group)
{
	for (uint32_t i = w->geometry_count; i-- > 0;)
		if (w->geometries[i]->group == group && w->geometries[i]->current)
			return i;
	return w->geometry_count;
}

static bool same_geometry(const struct kvt__geometry *a, const struct kvt__geometry *b)
{
	return a->blocks_per_chunk == b->blocks_per_chunk && a->ref_count == b->ref_count &&
	       memcmp(a->ref_bytes, b->ref_bytes, (size_t)a->ref_count * sizeof(uint64_t)) == 0;
}

/* Puts a geometry of its group in force when it has been set before, whenever that was. */
static bool reuse_locked(struct kvt_worker *w, const struct kvt__lookup_geometry *new)
{
	uint32_t current = geometry_find_locked(w, new->group);
	for (uint32_t i = 0; i < w->geometry_count; i++) {
		struct kvt__lookup_geometry *g = w->geometries[i];
		if (g->group != new->group || !same_geometry(&g->geometry, &new->geometry))
			continue;
		if (current < w->geometry_count)
			w->geometries[current]->current = false;
		g->current = true;
		return true;
	}
	return false;
}

static void add_locked(struct kvt_worker *w, struct kvt__lookup_geometry *new)
{
	uint32_t current = geometry_find_locked(w, new->group);
	if (current < w->geometry_count)
		w->geometries[current]->current = false;
	new->current = true;
	w->geometries[w->geometry_count++] = new;
}

int kvt_worker_set_geometry(struct kvt_worker *w, uint32_t group,
			    const struct kvt_geometry *geometry)
{
	struct kvt__lookup_geometry *new = NULL, **room = NULL, **old_room = NULL;
	int error = kvt__worker_check(w, "kvt_worker_set_geometry");
	if (!error && !geometry)
		error = kvt__fail(KVT_EINVAL, "kvt_worker_set_geometry: geometry is NULL");
	if (!error)
		error = geometry_new(w, group, geometry, &new);
	if (error)
		return error;
	uint32_t room_count = 0;
	for (;;) {
		pthread_mutex_lock(&w->lock);
		if (reuse_locked(w, new)) {
			pthread_mutex_unlock(&w->lock);
			kvt__free(&w->env, new);
			kvt__free(&w->env, room);
			return 0;
		}
		if (w->geometry_count == w->geometry_room && room_count > w->geometry_room) {
			if (w->geometry_count)
				memcpy(room, w->geometries, w->geometry_count * sizeof(*room));
			old_room = w->geometries;
			w->geometries = room;
			w->geometry_room = room_count;
			room = NULL;
		}
		if (w->geometry_count < w->geometry_room) {
			add_locked(w, new);
			pthread_mutex_unlock(&w->lock);
			kvt__free(&w->env, room);
			kvt__free(&w->env, old_room);
			return 0;
		}
		room_count = w->geometry_room ? w->geometry_room * 2 : 8;
		pthread_mutex_unlock(&w->lock);
		kvt__free(&w->env, room);
		room = kvt__alloc(&w->env, room_count * sizeof(*room));
		if (!room) {
			kvt__free(&w->env, new);
			return kvt__fail(KVT_ENOMEM, "kvt_worker_set_geometry: out of memory");
		}
	}
}

static int assign_geometries(struct kvt_worker *w, struct kvt__job *job, const char *call)
{
	int error = 0;
	pthread_mutex_lock(&w->lock);
	for (uint64_t k = 0; k < job->result.key_count; k++) {
		struct kvt__item *item = &job->items[k];
		if (k && job->items[k - 1].key_group == item->key_group) {
			item->shape = job->items[k - 1].shape;
			continue;
		}
		item->shape = geometry_find_locked(w, item->key_group);
		if (item->shape == w->geometry_count) {
			error = kvt__fail(
				KVT_EINVAL,
				"%s: key %llu: the geometry of group %u is not set, expected "
				"kvt_worker_set_geometry before",
				call, (unsigned long long)k, item->key_group);
			break;
		}
	}
	pthread_mutex_unlock(&w->lock);
	return error;
}

int kvt_worker_submit_lookup(struct kvt_worker *w, uint64_t job_id, const struct kvt_key *keys,
			     uint64_t key_count, const struct kvt_submit_options *options)
{
	struct kvt__request r = {.call = "kvt_worker_submit_lookup",
				 .kind = KVT_JOB_LOOKUP,
				 .job_id = job_id,
				 .keys = keys,
				 .key_count = key_count};
	uint64_t hash_total = 0;
	int error = kvt__worker_check(w, r.call);
	if (!error)
		error = kvt__request_options(w, &r, options);
	if (!error && key_count && !keys)
		error = kvt__fail(KVT_EINVAL, "%s: keys is NULL, expected %llu keys", r.call,
				  (unsigned long long)key_count);
	for (uint64_t k = 0; k < key_count && !error; k++) {
		error = kvt__key_check(&keys[k], k);
		hash_total += keys[k].hash_bytes;
	}
	if (!error && (key_count > UINT32_MAX || hash_total > UINT32_MAX))
		error = kvt__fail(KVT_EINVAL, "%s: key_count is %llu, expected at most %u", r.call,
				  (unsigned long long)key_count, UINT32_MAX);
	if (error)
		return error;
	struct kvt__carver c = {0};
	kvt__carve(&c, 1, sizeof(struct kvt__job));
	kvt__job_arrays(NULL, &c, &r, hash_total);
	c.base = kvt__alloc(&w->env, c.at);
	if (!c.base)
		return kvt__job_out_of_memory(&r);
	struct kvt__job *job = (struct kvt__job *)c.base;
	c.at = 0;
	kvt__carve(&c, 1, sizeof(*job));
	kvt__job_header(w, job, &r);
	kvt__job_arrays(job, &c, &r, hash_total);
	error = assign_geometries(w, job, r.call);
	atomic_store_explicit(&w->lookups_until_ns, job->submitted_ns + KVT__LOOKUPS_NS,
			      memory_order_relaxed);
	if (error) {
		kvt__free(&w->env, job);
		return error;
	}
	return kvt__job_enter(w, job, &r);
}
