/* SPDX-License-Identifier: Apache-2.0 */
/* Stores one chunk that is gathered from several places in memory, and loads it into others.
 * Usage: store_load [STORE_URI], for example store_load file:///srv/kv */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvtier/kvtier.h>

enum { BLOCKS = 4, LAYERS = 2, BLOCK_BYTES = 16384 };

static void check(int result, const char *what)
{
	if (result < 0) {
		fprintf(stderr, "%s: %s: %s\n", what, kvt_error_name(result), kvt_error_detail());
		exit(1);
	}
}

/* Takes the one completion that waits and tells what it says. */
static void finish(struct kvt_worker *worker, uint64_t job_id)
{
	struct kvt_result *result = NULL;

	check(kvt_worker_wait(worker, &job_id, 1, 10000, NULL), "wait");
	if (kvt_worker_poll(worker, &result, 1) != 1 || result->error != 0) {
		fprintf(stderr, "job: %s\n", result ? result->detail : "no completion");
		exit(1);
	}
	printf("job %llu: %s, %llu bytes\n", (unsigned long long)result->job_id,
	       kvt_status_name(result->status), (unsigned long long)result->bytes);
	kvt_result_release(result);
}

int main(int argc, char **argv)
{
	/* A place, and a namespace in it: what is stored under one is never seen under another. */
	struct kvt_store_options store_options = KVT_INIT(store_options);
	struct kvt_store *store = NULL;
	struct kvt_worker *worker = NULL;

	store_options.uri = argc > 1 ? argv[1] : "mem:";
	store_options.namespace_name = "example";
	check(kvt_store_open(&store_options, &store), "open");
	check(kvt_worker_create(store, NULL, NULL, &worker), "worker");

	/* One group of two layers. Its blocks lie wherever the engine has put them: here one after
	 * the other, for each layer in a buffer of its own. */
	char *layers[LAYERS], *loaded[LAYERS];
	uint64_t ptrs[LAYERS * BLOCKS], load_ptrs[LAYERS * BLOCKS], sizes[LAYERS * BLOCKS];
	for (int l = 0; l < LAYERS; l++) {
		layers[l] = malloc(BLOCKS * BLOCK_BYTES);
		loaded[l] = calloc(BLOCKS, BLOCK_BYTES);
		if (!layers[l] || !loaded[l])
			return 1;
		memset(layers[l], 'a' + l, BLOCKS * BLOCK_BYTES);
		for (int b = 0; b < BLOCKS; b++) {
			ptrs[l * BLOCKS + b] = (uintptr_t)(layers[l] + b * BLOCK_BYTES);
			load_ptrs[l * BLOCKS + b] = (uintptr_t)(loaded[l] + b * BLOCK_BYTES);
			sizes[l * BLOCKS + b] = BLOCK_BYTES;
		}
	}

	struct kvt_key key = {.hash = "\x01\x23\x45\x67\x89\xab\xcd\xef", .hash_bytes = 8};
	uint64_t block_count = BLOCKS;
	uint32_t ref_count = LAYERS;
	int64_t first_block = 0;
	struct kvt_transfer transfer = KVT_INIT(transfer);
	transfer.blocks_per_chunk = BLOCKS;
	transfer.group_count = 1;
	transfer.group_block_counts = &block_count;
	transfer.group_data_ref_counts = &ref_count;
	transfer.block_indices = &first_block;
	transfer.ptrs = ptrs;
	transfer.sizes = sizes;
	transfer.copy_count = LAYERS * BLOCKS;
	transfer.keys = &key;
	transfer.key_count = 1;

	/* Submitting returns at once; until the job has completed the memory belongs to it. */
	check(kvt_worker_submit_store(worker, 1, &transfer, NULL), "store");
	finish(worker, 1);

	transfer.ptrs = load_ptrs;
	check(kvt_worker_submit_load(worker, 2, &transfer, NULL), "load");
	finish(worker, 2);

	int differs = 0;
	for (int l = 0; l < LAYERS; l++) {
		differs |= memcmp(layers[l], loaded[l], BLOCKS * BLOCK_BYTES);
		free(layers[l]);
		free(loaded[l]);
	}
	check(kvt_worker_destroy(worker, 10000), "destroy");
	check(kvt_store_close(store), "close");
	puts(differs ? "the bytes differ" : "the bytes are the same");
	return differs ? 1 : 0;
}
