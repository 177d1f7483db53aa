/* SPDX-License-Identifier: Apache-2.0 */
/* Streams of the fake driver, each a thread that does one operation after the other, and events. */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* ---- Operations ---- */

static struct fake_mark *mark_create(void)
{
	struct fake_mark *mark = calloc(1, sizeof(*mark));

	if (mark == NULL)
		abort();
	mark->refs = 1;
	return mark;
}

static struct fake_mark *mark_ref(struct fake_mark *mark)
{
	mark->refs++;
	return mark;
}

void fake__mark_release(struct fake_mark *mark)
{
	if (mark != NULL && --mark->refs == 0)
		free(mark);
}

struct fake_op *fake__op_create(enum fake_op_kind kind, size_t copies)
{
	struct fake_op *op = calloc(1, sizeof(*op) + copies * sizeof(op->copies[0]));

	if (op == NULL)
		abort();
	op->kind = kind;
	op->count = copies;
	op->mark = mark_create();
	return op;
}

static void op_destroy(struct fake_op *op)
{
	fake__mark_release(op->mark);
	fake__mark_release(op->awaited);
	free(op);
}

static void append_locked(struct CUstream_st *stream, struct fake_op *op)
{
	*stream->tail = op;
	stream->tail = &op->next;
	fake__mark_release(stream->last);
	stream->last = mark_ref(op->mark);
	pthread_cond_broadcast(&fake.changed);
}

static void wait_locked(struct CUstream_st *stream, struct fake_mark *mark)
{
	if (mark == NULL || mark->done)
		return;
	struct fake_op *op = fake__op_create(FAKE_OP_WAIT, 0);
	op->awaited = mark_ref(mark);
	append_locked(stream, op);
}

void fake__enqueue_locked(struct CUstream_st *stream, struct fake_op *op)
{
	struct CUstream_st *legacy = stream->context->legacy;

	/* The legacy default stream and those that block wait for each other. */
	if (stream == legacy) {
		for (struct CUstream_st *s = fake.streams; s != NULL; s = s->next)
			if (s != stream && s->context == stream->context &&
			    !(s->flags & CU_STREAM_NON_BLOCKING))
				wait_locked(stream, s->last);
	} else if (legacy != NULL && !(stream->flags & CU_STREAM_NON_BLOCKING)) {
		wait_locked(stream, legacy->last);
	}
	append_locked(stream, op);
}

/* ---- A stream's thread ---- */

/* A copy may begin. */
static bool pass_hold_locked(const struct fake_op *op)
{
	if (!(fake.held & op->direction))
		return true;
	if (fake.steps == 0)
		return false;
	fake.steps--;
	return true;
}

static void sleep_up_to(uint64_t ns)
{
	struct timespec t = {.tv_sec = (time_t)(ns / 1000000000),
			     .tv_nsec = (long)(ns % 1000000000)};

	clock_nanosleep(CLOCK_MONOTONIC, 0, &t, NULL);
}

/* Waits until the stream's first operation may run; false when its context is lost meanwhile. */
static bool may_run_locked(struct CUstream_st *stream, struct fake_op *op)
{
	bool held = false, passed = op->kind != FAKE_OP_COPY;

	while (stream->context->sticky == CUDA_SUCCESS) {
		if (op->kind == FAKE_OP_WAIT && !op->awaited->done) {
			pthread_cond_wait(&fake.changed, &fake.lock);
			continue;
		}
		if (passed || pass_hold_locked(op))
			break;
		if (!held) {
			held = true;
			fake.waiting_held++;
			pthread_cond_broadcast(&fake.changed);
		}
		pthread_cond_wait(&fake.changed, &fake.lock);
	}
	if (held)
		fake.waiting_held--;
	return stream->context->sticky == CUDA_SUCCESS;
}

static void copy_locked(struct CUstream_st *stream, struct fake_op *op)
{
	uint64_t delay = 0;

	if (fake.copy_fault_nth != 0 && --fake.copy_fault_nth == 0) {
		fake.counts.faults++;
		fake__lose_locked(stream->context, fake.copy_fault_result);
		return;
	}
	if (fake.delay_us != 0) {
		fake.random = fake.random * UINT64_C(6364136223846793005) + 1442695040888963407;
		delay = (fake.random >> 33) % ((uint64_t)fake.delay_us * 1000);
	}
	fake.running++;
	for (size_t i = 0; i < op->count; i++) {
		struct fake_copy *c = &op->copies[i];
		uint8_t *to = fake__resolve_locked(c->to, c->bytes);
		uint8_t *from = fake__resolve_locked(c->from, c->bytes);

		if (to == NULL || from == NULL) {
			fake__violation_locked("a copy of memory that was given back");
			fake__lose_locked(stream->context, CUDA_ERROR_ILLEGAL_ADDRESS);
			break;
		}
		c->to_at = to;
		c->from_at = from;
	}
	if (stream->context->sticky == CUDA_SUCCESS) {
		fake.counts.fragments += op->count;
		pthread_mutex_unlock(&fake.lock);
		if (delay != 0)
			sleep_up_to(delay);
		/* In no specific order within a batch. */
		for (size_t i = op->count; i > 0; i--) {
			struct fake_copy *c = &op->copies[i - 1];
			memcpy(c->to_at, c->from_at, c->bytes);
		}
		pthread_mutex_lock(&fake.lock);
	}
	fake.running--;
}

static void run_locked(struct CUstream_st *stream, struct fake_op *op)
{
	if (op->kind == FAKE_OP_COPY)
		copy_locked(stream, op);
	if (op->kind != FAKE_OP_HOST)
		return;
	fake.counts.host_functions++;
	pthread_mutex_unlock(&fake.lock);
	fake__thread()->in_host_function = true;
	op->function(op->argument);
	fake__thread()->in_host_function = false;
	pthread_mutex_lock(&fake.lock);
}

static void *stream_thread(void *argument)
{
	struct CUstream_st *stream = argument;

	pthread_mutex_lock(&fake.lock);
	for (;;) {
		while (stream->head == NULL && !stream->destroyed)
			pthread_cond_wait(&fake.changed, &fake.lock);
		if (stream->head == NULL)
			break;
		struct fake_op *op = stream->head;
		if (may_run_locked(stream, op))
			run_locked(stream, op);
		stream->head = op->next;
		if (stream->head == NULL)
			stream->tail = &stream->head;
		op->mark->done = true;
		op->mark->done_ns = now_ns();
		op_destroy(op);
		pthread_cond_broadcast(&fake.changed);
	}
	stream->ended = true;
	pthread_cond_broadcast(&fake.changed);
	pthread_mutex_unlock(&fake.lock);
	return NULL;
}

/* ---- Streams ---- */

static struct CUstream_st *stream_create_locked(struct CUctx_st *context, unsigned flags,
						bool is_default)
{
	struct CUstream_st *stream = calloc(1, sizeof(*stream));

	if (stream == NULL)
		abort();
	stream->context = context;
	stream->flags = flags;
	stream->is_default = is_default;
	stream->tail = &stream->head;
	if (pthread_create(&stream->thread, NULL, stream_thread, stream) != 0) {
		free(stream);
		return NULL;
	}
	stream->next = fake.streams;
	fake.streams = stream;
	return stream;
}

void fake__streams_reap_locked(struct CUctx_st *context)
{
	struct CUstream_st **linkp = &fake.streams;

	for (struct CUstream_st *s = fake.streams; s != NULL; s = s->next)
		if (s->is_default && s->context == context)
			s->destroyed = true;
	pthread_cond_broadcast(&fake.changed);
	if (context != NULL)
		context->legacy = NULL;
	while (*linkp != NULL) {
		struct CUstream_st *s = *linkp;

		/* Those of another context end when they are done with what they were given. */
		if (!s->destroyed || (!s->ended && s->context != context)) {
			linkp = &s->next;
			continue;
		}
		*linkp = s->next;
		while (!s->ended)
			pthread_cond_wait(&fake.changed, &fake.lock);
		pthread_mutex_unlock(&fake.lock);
		pthread_join(s->thread, NULL);
		pthread_mutex_lock(&fake.lock);
		fake__mark_release(s->last);
		free(s);
		linkp = &fake.streams;
	}
}

static struct CUstream_st *default_locked(struct CUctx_st *context, uint64_t thread_number)
{
	struct CUstream_st *stream;

	for (stream = fake.streams; stream != NULL; stream = stream->next)
		if (stream->is_default && !stream->destroyed && stream->context == context &&
		    stream->thread_number == thread_number)
			return stream;
	stream = stream_create_locked(context, CU_STREAM_DEFAULT, true);
	if (stream != NULL) {
		stream->thread_number = thread_number;
		if (thread_number == 0)
			context->legacy = stream;
	}
	return stream;
}

struct CUstream_st *fake__stream_locked(CUstream handle)
{
	struct CUctx_st *context = fake__current();

	if (handle == NULL || handle == CU_STREAM_LEGACY)
		return default_locked(context, 0);
	if (handle == CU_STREAM_PER_THREAD)
		return default_locked(context, fake__thread()->number);
	for (struct CUstream_st *s = fake.streams; s != NULL; s = s->next)
		if (s == handle)
			return !s->destroyed && s->context == context ? s : NULL;
	return NULL;
}

FAKE_EXPORT CUresult CUDAAPI cuStreamCreateWithPriority(CUstream *streamp, unsigned int flags,
							int priority)
{
	CUresult result = fake__enter("cuStreamCreateWithPriority", FAKE_CONTEXT);

	if (result == CUDA_SUCCESS && (flags > CU_STREAM_NON_BLOCKING || priority > 0))
		result = CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS) {
		*streamp = stream_create_locked(fake__current(), flags, false);
		if (*streamp == NULL)
			result = CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (result == CUDA_SUCCESS) {
		fake.counts.streams++;
		fake.counts.blocking_streams += flags == CU_STREAM_DEFAULT;
	}
	return fake__leave(result);
}

FAKE_EXPORT CUresult CUDAAPI cuStreamCreate(CUstream *streamp, unsigned int flags)
{
	return cuStreamCreateWithPriority(streamp, flags, 0);
}

/* Enters a call about a stream. */
static CUresult enter_stream(const char *name, CUstream handle, struct CUstream_st **streamp)
{
	CUresult result = fake__enter(name, FAKE_CONTEXT);

	*streamp = NULL;
	if (result == CUDA_ERROR_INVALID_CONTEXT || result == CUDA_ERROR_NOT_PERMITTED)
		return result;
	*streamp = fake__stream_locked(handle);
	if (*streamp == NULL && result == CUDA_SUCCESS)
		result = CUDA_ERROR_INVALID_HANDLE;
	return result;
}

FAKE_EXPORT CUresult CUDAAPI cuStreamDestroy(CUstream handle)
{
	struct CUstream_st *stream;
	CUresult result = enter_stream("cuStreamDestroy", handle, &stream);

	if (stream == NULL)
		return fake__leave(result);
	stream->destroyed = true;
	fake.counts.streams--;
	fake__streams_reap_locked(NULL);
	return fake__leave(result);
}

FAKE_EXPORT CUresult CUDAAPI cuStreamSynchronize(CUstream handle)
{
	struct CUstream_st *stream;
	CUresult result = enter_stream("cuStreamSynchronize", handle, &stream);

	if (result == CUDA_SUCCESS && stream->last != NULL) {
		struct fake_mark *mark = mark_ref(stream->last);
		struct CUctx_st *context = stream->context;

		while (!mark->done)
			pthread_cond_wait(&fake.changed, &fake.lock);
		fake__mark_release(mark);
		result = context->sticky;
	}
	return fake__leave(result);
}

FAKE_EXPORT CUresult CUDAAPI cuStreamQuery(CUstream handle)
{
	struct CUstream_st *stream;
	CUresult result = enter_stream("cuStreamQuery", handle, &stream);

	if (result == CUDA_SUCCESS && stream->last != NULL && !stream->last->done)
		result = CUDA_ERROR_NOT_READY;
	return fake__leave(result);
}

FAKE_EXPORT CUresult CUDAAPI cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus *status)
{
	struct CUstream_st *stream;
	CUresult result = enter_stream("cuStreamIsCapturing", handle, &stream);

	if (result == CUDA_SUCCESS)
		*status = stream->capturing ? CU_STREAM_CAPTURE_STATUS_ACTIVE
					    : CU_STREAM_CAPTURE_STATUS_NONE;
	return fake__leave(result);
}

FAKE_EXPORT CUresult CUDAAPI cuLaunchHostFunc(CUstream handle, CUhostFn function, void *argument)
{
	struct CUstream_st *stream;
	CUresult result = enter_stream("cuLaunchHostFunc", handle, &stream);

	if (result == CUDA_SUCCESS && function == NULL)
		result = CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS) {
		struct fake_op *op = fake__op_create(FAKE_OP_HOST, 0);

		op->function = function;
		op->argument = argument;
		fake__enqueue_locked(stream, op);
	}
	return fake__leave(result);
}

/* ---- Events ---- */

static struct CUevent_st *event_find_locked(CUevent handle)
{
	for (struct CUevent_st *e = fake.events; e != NULL; e = e->next)
		if (e == handle)
			return e;
	return NULL;
}

FAKE_EXPORT CUresult CUDAAPI cuEventCreate(CUevent *eventp, unsigned int flags)
{
	CUresult result = fake__enter("cuEventCreate", FAKE_CONTEXT);

	if (result == CUDA_SUCCESS && flags > 7)
		result = CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS) {
		struct CUevent_st *event = calloc(1, sizeof(*event));

		if (event == NULL)
			abort();
		event->context = fake__current();
		event->flags = flags;
		event->next = fake.events;
		fake.events = event;
		fake.counts.events++;
		*eventp = event;
	}
	return fake__leave(result);
}

static void event_free_locked(struct CUevent_st *event)
{
	struct CUevent_st **linkp = &fake.events;

	while (*linkp != event)
		linkp = &(*linkp)->next;
	*linkp = event->next;
	fake__mark_release(event->mark);
	free(event);
	fake.counts.events--;
}

bool fake__events_drop_locked(struct CUctx_st *context)
{
	bool any = false;

	for (struct CUevent_st *event = fake.events, *next; event != NULL; event = next) {
		next = event->next;
		if (event->context != context)
			continue;
		any = true;
		event_free_locked(event);
	}
	return any;
}

FAKE_EXPORT CUresult CUDAAPI cuEventDestroy(CUevent handle)
{
	CUresult result = fake__enter("cuEventDestroy", FAKE_CONTEXT);
	struct CUevent_st *event = event_find_locked(handle);

	if (event == NULL)
		return fake__leave(CUDA_ERROR_INVALID_HANDLE);
	event_free_locked(event);
	return fake__leave(result);
}

FAKE_EXPORT CUresult CUDAAPI cuEventRecord(CUevent handle, CUstream stream_handle)
{
	struct CUstream_st *stream;
	CUresult result = enter_stream("cuEventRecord", stream_handle, &stream);
	struct CUevent_st *event = event_find_locked(handle);

	if (result == CUDA_SUCCESS && (event == NULL || event->context != stream->context))
		result = CUDA_ERROR_INVALID_HANDLE;
	if (result == CUDA_SUCCESS) {
		struct fake_op *op = fake__op_create(FAKE_OP_MARK, 0);

		fake__mark_release(event->mark);
		event->mark = mark_ref(op->mark);
		fake__enqueue_locked(stream, op);
	}
	return fake__leave(result);
}

FAKE_EXPORT CUresult CUDAAPI cuEventQuery(CUevent handle)
{
	CUresult result = fake__enter("cuEventQuery", FAKE_CONTEXT);
	struct CUevent_st *event = event_find_locked(handle);

	if (result == CUDA_SUCCESS && event == NULL)
		result = CUDA_ERROR_INVALID_HANDLE;
	if (result == CUDA_SUCCESS && event->context->sticky != CUDA_SUCCESS)
		result = event->context->sticky;
	if (result == CUDA_SUCCESS && event->mark != NULL && !event->mark->done)
		result = CUDA_ERROR_NOT_READY;
	return fake__leave(result);
}

FAKE_EXPORT CUresult CUDAAPI cuEventSynchronize(CUevent handle)
{
	CUresult result = fake__enter("cuEventSynchronize", FAKE_CONTEXT);
	struct CUevent_st *event = event_find_locked(handle);

	if (result == CUDA_SUCCESS && event == NULL)
		result = CUDA_ERROR_INVALID_HANDLE;
	if (result == CUDA_SUCCESS && event->mark != NULL) {
		struct fake_mark *mark = mark_ref(event->mark);
		struct CUctx_st *context = event->context;

		while (!mark->done)
			pthread_cond_wait(&fake.changed, &fake.lock);
		fake__mark_release(mark);
		result = context->sticky;
	}
	return fake__leave(result);
}

FAKE_EXPORT CUresult CUDAAPI cuEventElapsedTime(float *milliseconds, CUevent first, CUevent second)
{
	CUresult result = fake__enter("cuEventElapsedTime", FAKE_CONTEXT);
	struct CUevent_st *a = event_find_locked(first), *b = event_find_locked(second);

	if (result == CUDA_SUCCESS && (a == NULL || b == NULL || !a->mark || !b->mark ||
				       ((a->flags | b->flags) & CU_EVENT_DISABLE_TIMING)))
		result = CUDA_ERROR_INVALID_HANDLE;
	if (result == CUDA_SUCCESS && (!a->mark->done || !b->mark->done))
		result = CUDA_ERROR_NOT_READY;
	if (result == CUDA_SUCCESS)
		*milliseconds = (float)(b->mark->done_ns - a->mark->done_ns) / 1e6f;
	return fake__leave(result);
}

FAKE_EXPORT CUresult CUDAAPI cuStreamWaitEvent(CUstream stream_handle, CUevent handle,
					       unsigned int flags)
{
	struct CUstream_st *stream;
	CUresult result = enter_stream("cuStreamWaitEvent", stream_handle, &stream);
	struct CUevent_st *event = event_find_locked(handle);

	if (result == CUDA_SUCCESS && event == NULL)
		result = CUDA_ERROR_INVALID_HANDLE;
	if (result == CUDA_SUCCESS && flags != 0)
		result = CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS) {
		fake.counts.stream_waits++;
		wait_locked(stream, event->mark);
	}
	return fake__leave(result);
}
