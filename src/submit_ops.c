/* SPDX-License-Identifier: Apache-2.0 */
/* Raw files: the extension point of vLLM's filesystem worker. A job without keys whose items are
 * files, each with a completion object of its own. */
#include "worker.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int check_path(const struct kvt_worker *w, const char *path, size_t index)
{
	const char *why = NULL;
	if (!path)
		return kvt__fail(KVT_EINVAL, "kvt_worker_submit_ops: files[%zu].path is NULL",
				 index);
	size_t bytes = strlen(path);
	if (bytes == 0)
		why = "is empty";
	else if (path[0] == '/' || path[bytes - 1] == '/' || strstr(path, "//"))
		why = "has an empty component";
	else if (bytes > w->store->limits.max_name_bytes)
		why = "is too long";
	for (const char *at = path; !why && at;) {
		size_t n = strcspn(at, "/");
		if ((n == 1 && at[0] == '.') || (n == 2 && at[0] == '.' && at[1] == '.'))
			why = "has a component \".\" or \"..\"";
		else if (n > 255)
			why = "has a component of more than 255 bytes";
		at = at[n] ? at + n + 1 : NULL;
	}
	for (const char *at = path; !why && *at; at++)
		if ((unsigned char)*at < 0x20 || *at == 0x7f)
			why = "has a control character";
	if (!why && (strcmp(path, ".kvtier") == 0 || strncmp(path, ".kvtier/", 8) == 0))
		why = "is reserved";
	if (why)
		return kvt__fail(
			KVT_EINVAL,
			"kvt_worker_submit_ops: files[%zu].path %s, expected a path below the root",
			index, why);
	return 0;
}

static int by_offset(const void *a, const void *b)
{
	const struct kvt_file_op *x = a, *y = b;
	return x->file_offset < y->file_offset ? -1 : x->file_offset > y->file_offset;
}

static int check_file(struct kvt_worker *w, const struct kvt_file_ops *file, size_t index)
{
	int error = check_path(w, file->path, index);
	if (!error && file->op_count && !file->ops)
		error = kvt__fail(KVT_EINVAL,
				  "kvt_worker_submit_ops: files[%zu].ops is NULL, expected %zu",
				  index, file->op_count);
	for (size_t i = 0; i < file->op_count && !error; i++) {
		const struct kvt_file_op *op = &file->ops[i];
		if (op->size_bytes == 0 || op->size_bytes > KVT__MAX_PAYLOAD_BYTES)
			error = kvt__fail(KVT_EINVAL,
					  "kvt_worker_submit_ops: files[%zu].ops[%zu].size_bytes "
					  "is %llu, expected 1 "
					  "to %llu",
					  index, i, (unsigned long long)op->size_bytes,
					  (unsigned long long)KVT__MAX_PAYLOAD_BYTES);
		else if (op->file_offset > KVT__MAX_PAYLOAD_BYTES)
			error = kvt__fail(KVT_EINVAL,
					  "kvt_worker_submit_ops: files[%zu].ops[%zu].file_offset "
					  "is %llu, expected at "
					  "most %llu",
					  index, i, (unsigned long long)op->file_offset,
					  (unsigned long long)KVT__MAX_PAYLOAD_BYTES);
		else if (op->device_ptr > UINT64_MAX - op->size_bytes)
			error = kvt__fail(KVT_EINVAL,
					  "kvt_worker_submit_ops: files[%zu].ops[%zu].device_ptr "
					  "is 0x%llx, which with "
					  "size_bytes %llu exceeds the address space",
					  index, i, (unsigned long long)op->device_ptr,
					  (unsigned long long)op->size_bytes);
		else if (op->device_ptr == 0)
			error = kvt__fail(
				KVT_EINVAL,
				"kvt_worker_submit_ops: files[%zu].ops[%zu].device_ptr is 0", index,
				i);
	}
	return error;
}

/* A file is moved in parts, which have a limit: a store writes everything up to its furthest op. */
static int check_parts(const struct kvt_worker *w, const struct kvt_file_ops *file, size_t index,
		       int is_store)
{
	const uint64_t part = w->config.part_bytes, most = w->store->limits.max_parts;
	uint64_t parts = 0;
	for (size_t i = 0; i < file->op_count; i++) {
		const struct kvt_file_op *op = &file->ops[i];
		uint64_t needs =
			((is_store ? op->file_offset : 0) + op->size_bytes + part - 1) / part;
		parts = is_store ? (needs > parts ? needs : parts) : parts + needs;
	}
	if (parts <= most)
		return 0;
	return kvt__fail(KVT_EINVAL,
			 "kvt_worker_submit_ops: files[%zu] needs %llu parts of part_bytes %llu, "
			 "expected at most %llu",
			 index, (unsigned long long)parts, (unsigned long long)part,
			 (unsigned long long)most);
}

/* Sorted copies: equal neighbours are what must not be. */
static int check_overlaps(const struct kvt__raw *raws, size_t count)
{
	for (size_t f = 0; f < count; f++)
		for (size_t i = 1; i < raws[f].op_count; i++) {
			const struct kvt_file_op *a = &raws[f].ops[i - 1], *b = &raws[f].ops[i];
			if (a->file_offset + a->size_bytes > b->file_offset)
				return kvt__fail(KVT_EINVAL,
						 "kvt_worker_submit_ops: files[%zu]: ops at %llu "
						 "and %llu overlap, "
						 "expected distinct ranges in a store",
						 f, (unsigned long long)a->file_offset,
						 (unsigned long long)b->file_offset);
		}
	return 0;
}

static int by_path(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int check_distinct(struct kvt_worker *w, const struct kvt_file_ops *files, size_t count)
{
	const char **paths = kvt__alloc(&w->env, count * sizeof(*paths));
	if (!paths)
		return kvt__fail(KVT_ENOMEM, "kvt_worker_submit_ops: out of memory");
	for (size_t f = 0; f < count; f++)
		paths[f] = files[f].path;
	qsort(paths, count, sizeof(*paths), by_path);
	int error = 0;
	for (size_t f = 1; f < count && !error; f++)
		if (strcmp(paths[f - 1], paths[f]) == 0)
			error = kvt__fail(KVT_EINVAL,
					  "kvt_worker_submit_ops: path \"%.200s\" twice, expected "
					  "distinct paths in a "
					  "store",
					  paths[f]);
	kvt__free(&w->env, paths);
	return error;
}

static struct kvt_io_completion *completion_new(const struct kvt_worker *w,
						const struct kvt__job *job)
{
	struct kvt_io_completion *c = kvt__zalloc(&w->env, sizeof(*c));
	if (!c)
		return NULL;
	c->allocator = job->allocator;
	c->fork_generation = w->fork_generation;
	atomic_init(&c->owners, 2);
	pthread_condattr_t attr;
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&c->cond, &attr);
	pthread_condattr_destroy(&attr);
	pthread_mutex_init(&c->lock, NULL);
	return c;
}

/* Copies paths and ops into the job and makes the completions. */
static int fill(struct kvt_worker *w, struct kvt__job *job, const struct kvt_file_ops *files,
		struct kvt__raw *raws, struct kvt_file_op *ops, char *paths)
{
	for (size_t f = 0; f < job->result.key_count; f++) {
		size_t n = files[f].op_count, path_bytes = strlen(files[f].path) + 1;
		if (n)
			memcpy(ops, files[f].ops, n * sizeof(*ops));
		if (n)
			qsort(ops, n, sizeof(*ops), by_offset);
		memcpy(paths, files[f].path, path_bytes);
		raws[f] = (struct kvt__raw){.path = paths, .ops = ops, .op_count = n};
		for (size_t i = 0; i < n; i++)
			if (ops[i].file_offset + ops[i].size_bytes > raws[f].end)
				raws[f].end = ops[i].file_offset + ops[i].size_bytes;
		raws[f].completion = completion_new(w, job);
		if (!raws[f].completion)
			return KVT_ENOMEM;
		ops += n;
		paths += path_bytes;
	}
	return 0;
}

static void drop_completions(struct kvt_worker *w, struct kvt__raw *raws, size_t count)
{
	for (size_t f = 0; f < count; f++)
		if (raws[f].completion) {
			pthread_mutex_destroy(&raws[f].completion->lock);
			pthread_cond_destroy(&raws[f].completion->cond);
			kvt__free(&w->env, raws[f].completion);
			raws[f].completion = NULL;
		}
}

static int check_files(struct kvt_worker *w, const struct kvt_file_ops *files, size_t count,
		       int is_store, struct kvt_io_completion **completions)
{
	if (!(w->store->limits.capabilities & KVT_CAP_RAW_FILES))
		return kvt__fail(KVT_ENOTSUP,
				 "kvt_worker_submit_ops: backend \"%s\" has no raw files",
				 w->store->ops.name);
	if (count == 0 || !files || !completions)
		return kvt__fail(KVT_EINVAL,
				 "kvt_worker_submit_ops: %s, expected at least one file",
				 count == 0 ? "file_count is 0"
				 : !files   ? "files is NULL"
					    : "completions is NULL");
	if (count > UINT32_MAX)
		return kvt__fail(KVT_EINVAL,
				 "kvt_worker_submit_ops: file_count is %zu, expected at most %u",
				 count, UINT32_MAX);
	int error = 0;
	for (size_t f = 0; f < count && !error; f++) {
		error = check_file(w, &files[f], f);
		if (!error)
			error = check_parts(w, &files[f], f, is_store);
	}
	if (!error && is_store && count > 1)
		error = check_distinct(w, files, count);
	return error;
}

int kvt_worker_submit_ops(struct kvt_worker *w, const struct kvt_file_ops *files, size_t file_count,
			  int is_store, const struct kvt_submit_options *options,
			  struct kvt_io_completion **completions)
{
	struct kvt__request r = {.call = "kvt_worker_submit_ops",
				 .kind = KVT_JOB_OPS,
				 .key_count = file_count,
				 .raw_store = is_store != 0};
	if (completions)
		for (size_t f = 0; f < file_count; f++)
			completions[f] = NULL;
	int error = kvt__worker_check(w, r.call);
	if (!error)
		error = kvt__request_options(w, &r, options);
	if (!error)
		error = check_files(w, files, file_count, is_store, completions);
	if (error)
		return error;
	uint64_t op_total = 0, path_total = 0;
	for (size_t f = 0; f < file_count; f++) {
		op_total += files[f].op_count;
		path_total += strlen(files[f].path) + 1;
	}
	struct kvt__carver c = {0};
	struct kvt__job *job = NULL;
	struct kvt__raw *raws = NULL;
	struct kvt_file_op *ops = NULL;
	char *paths = NULL;
	for (int pass = 0; pass < 2; pass++) {
		c.at = 0;
		kvt__carve(&c, 1, sizeof(*job));
		raws = kvt__carve(&c, file_count, sizeof(*raws));
		ops = kvt__carve(&c, op_total, sizeof(*ops));
		paths = kvt__carve(&c, path_total, 1);
		if (pass == 1)
			kvt__job_header(w, job, &r);
		kvt__job_arrays(job, &c, &r, 0);
		if (pass == 0) {
			c.base = kvt__alloc(&w->env, c.at);
			if (!c.base)
				return kvt__job_out_of_memory(&r);
			job = (struct kvt__job *)c.base;
		}
	}
	memset(raws, 0, file_count * sizeof(*raws));
	job->raw_store = r.raw_store;
	error = fill(w, job, files, raws, ops, paths);
	if (error)
		error = kvt__job_out_of_memory(&r);
	else if (is_store)
		error = check_overlaps(raws, file_count);
	if (!error) {
		job->raws = raws;
		/* Before it enters: afterwards the job may be gone at any moment. */
		for (size_t f = 0; f < file_count; f++)
			completions[f] = raws[f].completion;
		error = kvt__job_enter(w, job, &r);
		if (!error)
			return 0;
		for (size_t f = 0; f < file_count; f++)
			completions[f] = NULL;
		return error;
	}
	drop_completions(w, raws, file_count);
	kvt__free(&w->env, job);
	return error;
}

int kvt_io_completion_done(const struct kvt_io_completion *completion)
{
	return completion && atomic_load_explicit(&completion->done, memory_order_acquire);
}

int kvt_io_completion_wait(struct kvt_io_completion *c, int64_t timeout_ms)
{
	if (!c)
		return kvt__fail(KVT_EINVAL, "kvt_io_completion_wait: completion is NULL");
	if (kvt_io_completion_done(c))
		return 0;
	if (c->fork_generation != kvt__fork_generation)
		return kvt__fail(KVT_EFORK, "kvt_io_completion_wait: the worker is the parent's");
	struct timespec until;
	kvt__deadline(timeout_ms, &until);
	int error = 0;
	pthread_mutex_lock(&c->lock);
	while (!kvt_io_completion_done(c) && !error) {
		if (timeout_ms < 0)
			pthread_cond_wait(&c->cond, &c->lock);
		else if (pthread_cond_timedwait(&c->cond, &c->lock, &until) == ETIMEDOUT &&
			 !kvt_io_completion_done(c))
			error = KVT_ETIMEDOUT;
	}
	pthread_mutex_unlock(&c->lock);
	return error ? kvt__fail(error, "kvt_io_completion_wait: not finished within %lld ms",
				 (long long)timeout_ms)
		     : 0;
}

int kvt_io_completion_result(const struct kvt_io_completion *c, const char **detailp)
{
	if (detailp)
		*detailp = "";
	if (!c)
		return kvt__fail(KVT_EINVAL, "kvt_io_completion_result: completion is NULL");
	if (!kvt_io_completion_done(c))
		return kvt__fail(KVT_EBUSY, "kvt_io_completion_result: the file is not finished");
	if (detailp)
		*detailp = c->detail;
	return c->result;
}
