/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pool of a session: threads that run whole operations by plain calls, for kernels and
 * containers without io_uring and for file systems where every call waits for a network. Threads
 * start as they are needed, at most as many as requests may be in flight, and stay.
 */
#include "file.h"

#include <signal.h>
#include <stdint.h>
#include <string.h>

struct file_pool {
	struct file_session *session;
	pthread_mutex_t lock; /* leaf; guards all below */
	pthread_cond_t work;
	struct file_op *queue, **queue_end; /* first come, first served */
	struct file_op *done, **done_end;
	uint32_t idle, threads, max_threads;
	bool stop;
	atomic_uint queue_count, done_count; /* read without the lock */
	pthread_t thread[];
};

static void file_push(struct file_op ***endp, struct file_op *op)
{
	op->next = NULL;
	**endp = op;
	*endp = &op->next;
}

static struct file_op *file_pop(struct file_op **headp, struct file_op ***endp)
{
	struct file_op *op = *headp;

	*headp = op->next;
	if (!*headp)
		*endp = headp;
	return op;
}

static void *file_pool_main(void *opaque)
{
	struct file_pool *pool = opaque;
	struct file_op *op;

	pthread_mutex_lock(&pool->lock);
	for (;;) {
		while (!pool->queue && !pool->stop) {
			pool->idle++;
			pthread_cond_wait(&pool->work, &pool->lock);
			pool->idle--;
		}
		if (!pool->queue)
			break;
		op = file_pop(&pool->queue, &pool->queue_end);
		atomic_fetch_sub(&pool->queue_count, 1);
		pthread_mutex_unlock(&pool->lock);
		kvt__file_op_run(op, false);
		pthread_mutex_lock(&pool->lock);
		file_push(&pool->done_end, op);
		atomic_fetch_add(&pool->done_count, 1);
		pthread_mutex_unlock(&pool->lock);
		kvt__file_kick(pool->session);
		pthread_mutex_lock(&pool->lock);
	}
	pthread_mutex_unlock(&pool->lock);
	return NULL;
}

/* Starts one more thread when all are busy. Signals are for the program's own threads. */
static void file_pool_grow_locked(struct file_pool *pool)
{
	sigset_t all, old;

	if (pool->idle >= atomic_load(&pool->queue_count) || pool->threads == pool->max_threads)
		return;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	if (!pthread_create(&pool->thread[pool->threads], NULL, file_pool_main, pool)) {
		pthread_setname_np(pool->thread[pool->threads], "kvt-file");
		pool->threads++;
	}
	pthread_sigmask(SIG_SETMASK, &old, NULL);
}

int kvt__file_pool_open(struct file_session *session, struct file_pool **poolp)
{
	const struct kvt_host *host = session->backend->host;
	struct file_pool *pool =
		host->alloc(host, sizeof(*pool) + session->depth * sizeof(pthread_t), 16);

	*poolp = NULL;
	if (!pool) {
		errno = ENOMEM;
		return -1;
	}
	memset(pool, 0, sizeof(*pool));
	pool->session = session;
	pool->max_threads = session->depth;
	pool->queue_end = &pool->queue;
	pool->done_end = &pool->done;
	pthread_mutex_init(&pool->lock, NULL);
	pthread_cond_init(&pool->work, NULL);
	*poolp = pool;
	return 0;
}

void kvt__file_pool_close(struct file_session *session, struct file_pool *pool)
{
	const struct kvt_host *host = session->backend->host;

	pthread_mutex_lock(&pool->lock);
	pool->stop = true;
	pthread_cond_broadcast(&pool->work);
	pthread_mutex_unlock(&pool->lock);
	for (uint32_t i = 0; i < pool->threads; i++)
		pthread_join(pool->thread[i], NULL);
	pthread_cond_destroy(&pool->work);
	pthread_mutex_destroy(&pool->lock);
	host->free(host, pool);
}

void kvt__file_pool_forked(struct file_session *session, struct file_pool *pool)
{
	const struct kvt_host *host = session->backend->host;

	host->free(host, pool);
}

bool kvt__file_pool_start(struct file_pool *pool, struct file_op *op)
{
	bool taken;

	pthread_mutex_lock(&pool->lock);
	atomic_fetch_add(&pool->queue_count, 1);
	file_pool_grow_locked(pool);
	taken = pool->threads > 0;
	if (taken)
		file_push(&pool->queue_end, op);
	else
		atomic_fetch_sub(&pool->queue_count, 1);
	if (taken && pool->idle)
		pthread_cond_signal(&pool->work);
	pthread_mutex_unlock(&pool->lock);
	return taken;
}

bool kvt__file_pool_ready(struct file_pool *pool)
{
	return atomic_load(&pool->done_count) > 0;
}

int64_t kvt__file_pool_deadline(struct file_pool *pool)
{
	int64_t earliest = INT64_MAX;

	if (!atomic_load(&pool->queue_count))
		return earliest;
	pthread_mutex_lock(&pool->lock);
	for (struct file_op *op = pool->queue; op; op = op->next)
		if (op->io->deadline_ns < earliest)
			earliest = op->io->deadline_ns;
	pthread_mutex_unlock(&pool->lock);
	return earliest;
}

/* Takes the first that has waited beyond its deadline out of the queue. */
static struct file_op *file_pool_late_locked(struct file_pool *pool, int64_t now_ns)
{
	for (struct file_op **linkp = &pool->queue; *linkp; linkp = &(*linkp)->next) {
		struct file_op *op = *linkp;

		if (op->io->deadline_ns > now_ns)
			continue;
		*linkp = op->next;
		if (!*linkp)
			pool->queue_end = linkp;
		atomic_fetch_sub(&pool->queue_count, 1);
		return op;
	}
	return NULL;
}

struct file_op *kvt__file_pool_reap(struct file_pool *pool, int64_t now_ns)
{
	struct file_op *op;

	/* Most of the time nothing is there. */
	if (!kvt__file_pool_ready(pool) && kvt__file_pool_deadline(pool) > now_ns)
		return NULL;
	pthread_mutex_lock(&pool->lock);
	if (pool->done) {
		op = file_pop(&pool->done, &pool->done_end);
		atomic_fetch_sub(&pool->done_count, 1);
	} else {
		op = file_pool_late_locked(pool, now_ns);
	}
	pthread_mutex_unlock(&pool->lock);
	if (op && op->step != FILE_STEP_DONE)
		kvt__file_op_expire(op);
	return op;
}
