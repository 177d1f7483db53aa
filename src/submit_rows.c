/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of one host buffer: the plan with one group, one ref and F = 1. On the caller's thread. */
#include "worker.h"

#define ROWS_ON_STACK 64

static int check_rows(const struct kvt_rows *rows, const char *call)
{
	if (rows->key_count && (!rows->row_indices || !rows->keys))
		return kvt__fail(KVT_EINVAL, "%s: rows.%s is NULL, expected %llu entries", call,
				 rows->keys ? "row_indices" : "keys",
				 (unsigned long long)rows->key_count);
	if (rows->key_count && !rows->base)
		return kvt__fail(KVT_EINVAL, "%s: rows.base is NULL", call);
	if (rows->stride_bytes == 0)
		return kvt__fail(KVT_EINVAL, "%s: rows.stride_bytes is 0, expected at least 1",
				 call);
	if (rows->stride_bytes > KVT__MAX_PAYLOAD_BYTES)
		return kvt__fail(KVT_EINVAL, "%s: rows.stride_bytes is %llu, expected at most %llu",
				 call, (unsigned long long)rows->stride_bytes,
				 (unsigned long long)KVT__MAX_PAYLOAD_BYTES);
	uint64_t room = UINT64_MAX - (uint64_t)(uintptr_t)rows->base;
	if (rows->row_count > room / rows->stride_bytes)
		return kvt__fail(KVT_EINVAL,
				 "%s: rows.row_count is %llu, which with stride %llu exceeds the "
				 "address space",
				 call, (unsigned long long)rows->row_count,
				 (unsigned long long)rows->stride_bytes);
	for (uint64_t k = 0; k < rows->key_count; k++)
		if (rows->row_indices[k] < 0 || (uint64_t)rows->row_indices[k] >= rows->row_count)
			return kvt__fail(KVT_EINVAL,
					 "%s: row_indices[%llu] is %lld, expected 0 to %lld", call,
					 (unsigned long long)k, (long long)rows->row_indices[k],
					 (long long)rows->row_count - 1);
	return 0;
}

/* Rows are the plan with one group, one ref and F = 1. */
static int submit_rows(struct kvt_worker *w, uint64_t job_id, const struct kvt_rows *given,
		       const struct kvt_submit_options *options, uint32_t kind, const char *call)
{
	struct kvt_rows rows = {0};
	int error = kvt__worker_check(w, call);
	if (!error && !given)
		error = kvt__fail(KVT_EINVAL, "%s: rows is NULL", call);
	if (!error)
		error = kvt__copy_options(&rows, sizeof(rows), given, sizeof(size_t), "rows");
	if (!error)
		error = check_rows(&rows, call);
	if (error)
		return error;
	uint64_t small[2 * ROWS_ON_STACK], *words = small;
	if (rows.key_count > ROWS_ON_STACK) {
		words = rows.key_count <= SIZE_MAX / 16
				? kvt__alloc(&w->env, (size_t)rows.key_count * 16)
				: NULL;
		if (!words)
			return kvt__fail(KVT_ENOMEM, "%s: out of memory for a job of %llu keys",
					 call, (unsigned long long)rows.key_count);
	}
	uint64_t *ptrs = words, *sizes = words + rows.key_count;
	for (uint64_t k = 0; k < rows.key_count; k++) {
		ptrs[k] = (uint64_t)(uintptr_t)rows.base +
			  (uint64_t)rows.row_indices[k] * rows.stride_bytes;
		sizes[k] = rows.stride_bytes;
	}
	uint32_t refs = 1;
	int64_t first = 0;
	struct kvt_transfer t = {
		.struct_size = sizeof(t),
		.blocks_per_chunk = 1,
		.group_count = 1,
		.group_block_counts = &rows.key_count,
		.group_data_ref_counts = &refs,
		.block_indices = &first,
		.ptrs = ptrs,
		.sizes = sizes,
		.copy_count = rows.key_count,
		.keys = rows.keys,
		.key_count = rows.key_count,
	};
	error = kvt__submit_transfer(w, job_id, &t, options, kind, call, true);
	if (words != small)
		kvt__free(&w->env, words);
	return error;
}

int kvt_worker_submit_store_rows(struct kvt_worker *worker, uint64_t job_id,
				 const struct kvt_rows *rows,
				 const struct kvt_submit_options *options)
{
	return submit_rows(worker, job_id, rows, options, KVT_JOB_STORE,
			   "kvt_worker_submit_store_rows");
}

int kvt_worker_submit_load_rows(struct kvt_worker *worker, uint64_t job_id,
				const struct kvt_rows *rows,
				const struct kvt_submit_options *options)
{
	return submit_rows(worker, job_id, rows, options, KVT_JOB_LOAD,
			   "kvt_worker_submit_load_rows");
}
