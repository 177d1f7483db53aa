/* SPDX-License-Identifier: Apache-2.0 */
/* put and get: one file, one object. What put writes is a row, so it can be shared with other
 * software; get also reads objects of several refs and blocks, whose shape it learns from their
 * trailer. */
#include "cli.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* What one job with one key came to. */
struct outcome {
	uint32_t status; /* enum kvt_status */
	uint64_t bytes;
	int64_t ns;
};

/* Waits for the one job of a worker. A failure has been printed. */
static int job_finish(struct kvt_worker *worker, uint64_t job_id, struct outcome *outcome)
{
	struct kvt_result *result;
	int status = kvt_worker_wait(worker, &job_id, 1, -1, NULL);

	if (status < 0)
		return cli_library_error(status);
	if (kvt_worker_poll(worker, &result, 1) != 1) {
		cli_error("job %llu: no completion", (unsigned long long)job_id);
		return KVT_EINTERNAL;
	}
	outcome->status = result->key_count == 1 ? result->key_status[0] : result->status;
	outcome->bytes = result->bytes;
	outcome->ns = (int64_t)(result->queued_ns + result->active_ns);
	status = result->error;
	if (status < 0)
		cli_error("%s",
			  result->detail[0] != '\0' ? result->detail : kvt_error_text(status));
	kvt_result_release(result);
	return status;
}

static int worker_open(struct cli_common *common, struct kvt_store *store,
		       struct kvt_worker **workerp)
{
	struct kvt_worker_options options = KVT_INIT(options);
	int status;

	options.lanes = 1;
	/* One chunk goes straight from and to the tool's memory: little staging is enough. */
	options.staging_bytes = UINT64_C(32) << 20;
	cli_hooks(common, &options.hooks);
	status = kvt_worker_create(store, NULL, &options, workerp);
	return status < 0 ? cli_library_error(status) : 0;
}

static int rows_run(struct kvt_worker *worker, const struct cli_key *key, void *memory,
		    uint64_t bytes, bool store, struct outcome *outcome)
{
	const int64_t row = 0;
	struct kvt_key view = cli_key_view(key);
	struct kvt_rows rows = KVT_INIT(rows);
	int status;

	rows.base = memory;
	rows.stride_bytes = bytes;
	rows.row_count = 1;
	rows.row_indices = &row;
	rows.keys = &view;
	rows.key_count = 1;
	status = store ? kvt_worker_submit_store_rows(worker, 1, &rows, NULL)
		       : kvt_worker_submit_load_rows(worker, 1, &rows, NULL);
	return status < 0 ? cli_library_error(status) : job_finish(worker, 1, outcome);
}

static void outcome_print(FILE *stream, bool json, struct kvt_store *store, const char *key_text,
			  const struct cli_key *key, const struct outcome *outcome)
{
	char name[KVT_NAME_BYTES], size[32];
	struct kvt_key view = cli_key_view(key);

	if (kvt_store_object_name(store, &view, name, sizeof(name)) < 0)
		name[0] = '\0';
	if (json)
		cli_json_print(stream, json_pack("{s:s, s:o, s:s, s:o, s:f}", "key", key_text,
						 "name", cli_json_text(name), "status",
						 kvt_status_name(outcome->status), "bytes",
						 cli_json_u64(outcome->bytes), "us",
						 (double)outcome->ns / 1e3));
	else
		fprintf(stream, "%s %s %s (%s in %.3f ms)\n", kvt_status_name(outcome->status),
			key_text, name, cli_bytes_text(outcome->bytes, size, sizeof(size)),
			(double)outcome->ns / 1e6);
}

/* Maps a regular, not empty file for reading. */
static int file_map(const char *path, void **memoryp, size_t *bytesp)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), status = 0;
	struct stat about;

	*memoryp = NULL;
	*bytesp = 0;
	if (fd < 0)
		return cli_error("FILE: '%s': %s, expected a readable file", path, strerror(errno));
	if (fstat(fd, &about) < 0) {
		status = cli_error("FILE: '%s': %s", path, strerror(errno));
	} else if (!S_ISREG(about.st_mode)) {
		status = cli_error("FILE: '%s': not a regular file, expected one", path);
	} else if (about.st_size == 0) {
		status = cli_error("FILE: '%s': 0 bytes, expected at least 1", path);
	} else {
		*memoryp = mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
		*bytesp = (size_t)about.st_size;
		if (*memoryp == MAP_FAILED) {
			*memoryp = NULL;
			cli_error("FILE: '%s': mmap of %lld bytes: %s", path,
				  (long long)about.st_size, strerror(errno));
			status = errno == ENOMEM ? KVT_ENOMEM : KVT_EIO;
		}
	}
	close(fd);
	return status;
}

int cmd_put(int argc, char **argv)
{
	struct cli_common common = {0};
	struct kvt_store *store = NULL;
	struct kvt_worker *worker = NULL;
	struct outcome outcome = {0};
	struct cli_key key;
	void *memory = NULL;
	size_t bytes = 0;
	int operands, status;

	status = cli_parse(argc, argv, NULL, &common, 2, 2, &operands);
	if (status < 0 || common.help)
		goto out;
	status = cli_key_argument(argv[1], &key);
	if (status < 0)
		goto out;
	status = file_map(argv[2], &memory, &bytes);
	if (status < 0)
		goto out;
	status = cli_store_open(&common, KVT_MODE_ROW, NULL, NULL, &store);
	if (status < 0)
		goto out;
	status = worker_open(&common, store, &worker);
	if (status < 0)
		goto out;
	status = rows_run(worker, &key, memory, bytes, true, &outcome);
	if (status == 0)
		outcome_print(stdout, common.json, store, argv[1], &key, &outcome);
out:
	kvt_worker_destroy(worker, -1);
	kvt_store_close(store);
	if (memory != NULL)
		munmap(memory, bytes);
	cli_common_fini(&common);
	return cli_output_end(kvt_error_exit_status(status));
}

static int all_write(int fd, const char *data, uint64_t bytes)
{
	while (bytes > 0) {
		ssize_t written = write(fd, data, bytes < (1 << 30) ? (size_t)bytes : 1 << 30);

		if (written < 0 && errno == EINTR)
			continue;
		if (written < 0)
			return -errno;
		data += written;
		bytes -= (uint64_t)written;
	}
	return 0;
}

static int output_failed(const char *path, int error)
{
	switch (error) {
	case ENOENT:
	case ENOTDIR:
	case EISDIR:
	case ENAMETOOLONG:
		return cli_error("FILE: '%s': %s, expected a file that can be written", path,
				 strerror(error));
	default:
		cli_error("FILE: '%s': %s", path, strerror(error));
		return error == ENOSPC || error == EDQUOT  ? KVT_ENOSPC
		       : error == EROFS			   ? KVT_EROFS
		       : error == EACCES || error == EPERM ? KVT_EACCES
							   : KVT_EIO;
	}
}

/*
 * Writes the payload to FILE: through a temporary file beside it that then takes its name, so that
 * FILE is never half of an object; straight into what is there when it is no regular file.
 */
static int output_write(const char *path, const void *data, uint64_t bytes)
{
	char temporary[PATH_MAX];
	struct stat about;
	int fd, error;

	if (strcmp(path, "-") == 0 || (stat(path, &about) == 0 && !S_ISREG(about.st_mode))) {
		fd = strcmp(path, "-") == 0 ? dup(STDOUT_FILENO) : open(path, O_WRONLY | O_CLOEXEC);
		error = fd < 0 ? errno : -all_write(fd, data, bytes);
		if (fd >= 0 && close(fd) < 0 && error == 0)
			error = errno;
		return error != 0 ? output_failed(path, error) : 0;
	}
	if ((size_t)snprintf(temporary, sizeof(temporary), "%s.XXXXXX", path) >= sizeof(temporary))
		return output_failed(path, ENAMETOOLONG);
	fd = mkostemp(temporary, O_CLOEXEC);
	if (fd < 0)
		return output_failed(path, errno);
	error = -all_write(fd, data, bytes);
	if (close(fd) < 0 && error == 0)
		error = errno;
	if (error == 0 && rename(temporary, path) < 0)
		error = errno;
	if (error == 0)
		return 0;
	unlink(temporary);
	return output_failed(path, error);
}

/* Loads an object of several refs or blocks: the pieces of its payload, in object order, lie one
 * behind the other in memory. */
static int pointers_load(struct kvt_worker *worker, const struct cli_key *key,
			 const struct kvt_object_stat *stat, char *memory, struct outcome *outcome)
{
	const uint64_t blocks = stat->blocks_per_chunk;
	const int64_t first_block = 0;
	struct kvt_key view = cli_key_view(key);
	struct kvt_transfer transfer = KVT_INIT(transfer);
	uint64_t *ptrs = calloc(stat->slot_count + 1, sizeof(*ptrs));
	uint64_t *sizes = calloc(stat->slot_count + 1, sizeof(*sizes));
	int status;

	if (ptrs == NULL || sizes == NULL) {
		cli_error("%u slots: %s", stat->slot_count, kvt_error_text(KVT_ENOMEM));
		status = KVT_ENOMEM;
		goto out;
	}
	for (uint64_t ref = 0, slot = 0, offset = 0; ref < stat->ref_count; ref++)
		for (uint64_t block = 0; block < blocks; block++, slot++) {
			ptrs[slot] = (uint64_t)(uintptr_t)(memory + offset);
			sizes[slot] = stat->ref_bytes[ref];
			offset += stat->ref_bytes[ref];
		}
	transfer.blocks_per_chunk = stat->blocks_per_chunk;
	transfer.group_count = 1;
	transfer.group_block_counts = &blocks;
	transfer.group_data_ref_counts = &stat->ref_count;
	transfer.block_indices = &first_block;
	transfer.ptrs = ptrs;
	transfer.sizes = sizes;
	transfer.copy_count = stat->slot_count;
	transfer.keys = &view;
	transfer.key_count = 1;
	status = kvt_worker_submit_load(worker, 1, &transfer, NULL);
	status = status < 0 ? cli_library_error(status) : job_finish(worker, 1, outcome);
out:
	free(ptrs);
	free(sizes);
	return status;
}

/* Looks at the trailer: how many payload bytes there are to load and whether by rows. */
static int shape_read(struct kvt_store *store, const char *key_text, const struct cli_key *key,
		      struct kvt_object_stat *stat, uint64_t *bytesp, bool *rowp)
{
	struct kvt_key view = cli_key_view(key);
	int status = kvt_store_stat(store, &view, stat);

	*bytesp = 0;
	*rowp = true;
	if (status < 0)
		return cli_library_error(status);
	switch (stat->state) {
	case KVT_OBJECT_WHOLE:
		*bytesp = stat->payload_bytes;
		*rowp = stat->blocks_per_chunk == 1 && stat->ref_count == 1;
		return 0;
	case KVT_OBJECT_PARTIAL:
		cli_error("%s: %u of %u slots are there, expected all", key_text,
			  stat->present_slots, stat->slot_count);
		return KVT_ENOENT;
	case KVT_OBJECT_FOREIGN:
		/* With -o accept_raw=true a raw chunk is a row as long as the object; the load
		 * says whether that was set. */
		*bytesp = stat->object_bytes;
		if (*bytesp > 0)
			return 0;
		status = KVT_EFOREIGN;
		break;
	case KVT_OBJECT_MISMATCH:
		status = KVT_EMISMATCH;
		break;
	case KVT_OBJECT_UNKNOWN_FORMAT:
		status = KVT_EFORMAT;
		break;
	default:
		status = KVT_ECORRUPT;
		break;
	}
	cli_error("%s: %s", key_text, kvt_error_text(status));
	return status;
}

static int object_load(struct cli_common *common, struct kvt_store **storep, const char *key_text,
		       const struct cli_key *key, char **memoryp, uint64_t *bytesp,
		       struct outcome *outcome)
{
	struct kvt_object_stat stat = KVT_INIT(stat);
	struct kvt_worker *worker = NULL;
	void *memory = NULL;
	bool row;
	int status;

	status = cli_store_open(common, KVT_MODE_ROW, NULL, NULL, storep);
	if (status == 0)
		status = shape_read(*storep, key_text, key, &stat, bytesp, &row);
	if (status == 0 && !row) {
		/* A row store takes rows only. */
		kvt_store_close(*storep);
		status = cli_store_open(common, KVT_MODE_EXACT, NULL, NULL, storep);
	}
	if (status == 0 && *bytesp > 0) {
		memory = mmap(NULL, *bytesp, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			      -1, 0);
		if (memory == MAP_FAILED) {
			cli_error("%s: %llu bytes of memory: %s", key_text,
				  (unsigned long long)*bytesp, strerror(errno));
			memory = NULL;
			status = KVT_ENOMEM;
		}
	}
	if (status == 0)
		status = worker_open(common, *storep, &worker);
	if (status == 0)
		status = row && *bytesp > 0 ? rows_run(worker, key, memory, *bytesp, false, outcome)
					    : pointers_load(worker, key, &stat, memory, outcome);
	kvt_worker_destroy(worker, -1);
	kvt_object_stat_clear(&stat);
	*memoryp = memory;
	return status;
}

int cmd_get(int argc, char **argv)
{
	struct cli_common common = {0};
	struct kvt_store *store = NULL;
	struct outcome outcome = {0};
	struct cli_key key;
	char *memory = NULL;
	uint64_t bytes = 0;
	int operands, status;

	status = cli_parse(argc, argv, NULL, &common, 2, 2, &operands);
	if (status < 0 || common.help)
		goto out;
	status = cli_key_argument(argv[1], &key);
	if (status < 0)
		goto out;
	status = object_load(&common, &store, argv[1], &key, &memory, &bytes, &outcome);
	if (status == 0)
		status = output_write(argv[2], memory, bytes);
	/* Standard output belongs to the payload when FILE is -. */
	if (status == 0 && (common.json || strcmp(argv[2], "-") != 0))
		outcome_print(strcmp(argv[2], "-") == 0 ? stderr : stdout, common.json, store,
			      argv[1], &key, &outcome);
out:
	kvt_store_close(store);
	if (memory != NULL)
		munmap(memory, bytes);
	cli_common_fini(&common);
	return cli_output_end(kvt_error_exit_status(status));
}
