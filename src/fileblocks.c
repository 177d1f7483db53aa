/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vLLM's stand-alone calls over plain raw files: no store, no names, no trailer. Plain POSIX calls
 * on the calling thread; nothing is shared between calls, so any thread may make them.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "env.h"

#define PAGE	     4096u
#define SECTOR	     512u
#define MAX_IO_BYTES 0x7ffff000u /* most that one call moves */
#define MAKE_TRIES   100	 /* against somebody who removes the folders as they are made */

/* One block on its way. */
struct block {
	const char *call; /* the call of the caller, for the detail */
	const char *path;
	size_t index;
	char *memory;
	size_t bytes;
	bool direct;
};

static const char *error_text(int err)
{
	const char *text = strerrordesc_np(err);

	return text ? text : "unknown error";
}

static int error_code(int err)
{
	switch (err) {
	case ENOENT:
		return KVT_ENOENT;
	case ENOMEM:
		return KVT_ENOMEM;
	case ENOSPC:
	case EDQUOT:
		return KVT_ENOSPC;
	case EMFILE:
	case ENFILE:
		return KVT_EMFILE;
	case EROFS:
		return KVT_EROFS;
	case EACCES:
	case EPERM:
	case ENOTDIR:
	case EISDIR:
	case ELOOP:
		return KVT_EACCES;
	case ENAMETOOLONG:
	case EFBIG:
		return KVT_EINVAL;
	case EFAULT:
		return KVT_EFAULT;
	default:
		return KVT_EIO;
	}
}

static int block_fail(const struct block *b, const char *call, int err)
{
	return kvt__fail(error_code(err), "%s: paths[%zu] %s: %s: %s", b->call, b->index, b->path,
			 call, error_text(err));
}

static int block_io_fail(const struct block *b, const char *call, size_t at, int err)
{
	return kvt__fail(error_code(err), "%s: paths[%zu] %s: %s %zu bytes at %zu: %s", b->call,
			 b->index, b->path, call, b->bytes - at, at, error_text(err));
}

/* The rest goes through the page cache. */
static bool direct_off(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	return flags >= 0 && (flags & O_DIRECT) && !fcntl(fd, F_SETFL, flags & ~O_DIRECT);
}

/* Moves a whole block and returns how many bytes it moved: all of them, or, reading, what the file
 * has; -1 with errno and *atp. */
static ssize_t move_block(int fd, const struct block *b, bool write_it, size_t *atp)
{
	size_t at = 0;

	while (at < b->bytes) {
		size_t want = b->bytes - at < MAX_IO_BYTES ? b->bytes - at : MAX_IO_BYTES;
		ssize_t moved = write_it ? pwrite(fd, b->memory + at, want, (off_t)at)
					 : pread(fd, b->memory + at, want, (off_t)at);

		if (moved > 0) {
			at += (size_t)moved;
			/* Past the page cache the next call must begin where a sector does. */
			if (at % SECTOR && at < b->bytes)
				(void)direct_off(fd);
			continue;
		}
		if (!moved && !write_it)
			break;
		if (moved < 0 && (errno == EINTR || (errno == EINVAL && direct_off(fd))))
			continue;
		if (!moved)
			errno = EIO;
		*atp = at;
		return -1;
	}
	return (ssize_t)at;
}

static int make_folders(char *path)
{
	for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		int failed;

		*slash = 0;
		failed = mkdir(path, 0700) && errno != EEXIST;
		*slash = '/';
		if (failed)
			return -1;
	}
	return 0;
}

/* Opens the folder of a path, making it when it is absent; the descriptor. */
static int open_folder(const char *path)
{
	char copy[PATH_MAX];
	size_t bytes = strlen(path);
	char *slash;
	int fd = -1;

	if (bytes >= sizeof(copy)) {
		errno = ENAMETOOLONG;
		return -1;
	}
	memcpy(copy, path, bytes + 1);
	slash = strrchr(copy, '/');
	for (int tries = 0; tries < MAKE_TRIES; tries++) {
		if (slash)
			slash[1] = 0;
		fd = open(slash ? copy : ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
		if (fd >= 0 || errno != ENOENT || !slash || (make_folders(copy) && errno != ENOENT))
			break;
	}
	return fd;
}

static const char *leaf_of(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* A new file in a folder: without a name, or under *name. *directp: wanted, and whether it came so.
 */
static int open_new(int folder, bool *directp, char *name, size_t name_bytes)
{
	int direct = *directp ? O_DIRECT : 0, fd;
	uint64_t number = 0;

	name[0] = 0;
	fd = openat(folder, ".", O_TMPFILE | O_RDWR | O_CLOEXEC | direct, 0600);
	if (fd < 0 && errno == EINVAL && direct) {
		fd = openat(folder, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
		*directp = fd < 0;
	}
	if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL))
		return fd;
	for (int tries = 0; tries < MAKE_TRIES; tries++) {
		if (getrandom(&number, sizeof(number), 0) < 0)
			number++;
		snprintf(name, name_bytes, ".kvtier-%016llx.tmp", (unsigned long long)number);
		fd = openat(folder, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | direct, 0600);
		if (fd >= 0)
			return fd;
		if (errno == EINVAL && direct) {
			unlinkat(folder, name, 0);
			direct = 0;
			*directp = false;
		} else if (errno != EEXIST) {
			break;
		}
	}
	name[0] = 0;
	return fd;
}

/* Gives a finished file its name; one that is there already is fine. 0 or -1. */
static int name_new(int folder, int fd, const char *name, const char *leaf)
{
	char by_proc[32];

	if (name[0]) {
		if (!linkat(folder, name, folder, leaf, 0) || errno == EEXIST) {
			unlinkat(folder, name, 0);
			return 0;
		}
		/* A file system without links. */
		return errno == ENOENT ? -1 : renameat(folder, name, folder, leaf);
	}
	if (!linkat(fd, "", folder, leaf, AT_EMPTY_PATH) || errno == EEXIST)
		return 0;
	snprintf(by_proc, sizeof(by_proc), "/proc/self/fd/%d", fd);
	return !linkat(AT_FDCWD, by_proc, folder, leaf, AT_SYMLINK_FOLLOW) || errno == EEXIST ? 0
											      : -1;
}

static int store_block(const struct block *b)
{
	char name[40];
	bool direct = b->direct;
	int folder, fd = -1, result = 0;
	size_t at = 0;

	if (!access(b->path, F_OK))
		return 0;
	folder = open_folder(b->path);
	if (folder < 0)
		return block_fail(b, "open of the folder", errno);
	fd = open_new(folder, &direct, name, sizeof(name));
	if (fd < 0)
		result = block_fail(b, "open of a temporary file", errno);
	else if (move_block(fd, b, true, &at) < 0)
		result = block_io_fail(b, "pwrite", at, errno);
	/* The folder may have been removed meanwhile: once more in a new one. */
	for (int tries = 0; !result; tries++) {
		if (!name_new(folder, fd, name, leaf_of(b->path))) {
			name[0] = 0;
			break;
		}
		if (errno != ENOENT || name[0] || tries == MAKE_TRIES) {
			result = block_fail(b, "link", errno);
			break;
		}
		close(folder);
		folder = open_folder(b->path);
		if (folder < 0)
			result = block_fail(b, "open of the folder", errno);
	}
	if (fd >= 0 && name[0] && folder >= 0)
		unlinkat(folder, name, 0);
	if (fd >= 0)
		close(fd);
	if (folder >= 0)
		close(folder);
	return result;
}

/* Removes a short file, if the path still names it and it is still short. */
static int remove_short(const struct block *b, int fd)
{
	struct stat opened, named;
	const char *removed = "";

	if (fstat(fd, &opened))
		return block_fail(b, "fstat", errno);
	if ((uint64_t)opened.st_size < b->bytes && !lstat(b->path, &named) &&
	    named.st_dev == opened.st_dev && named.st_ino == opened.st_ino &&
	    (uint64_t)named.st_size < b->bytes && !unlink(b->path))
		removed = ", removed";
	return kvt__fail(KVT_ERANGE, "%s: paths[%zu] %s: %lld bytes, expected at least %zu%s",
			 b->call, b->index, b->path, (long long)opened.st_size, b->bytes, removed);
}

static int load_block(const struct block *b)
{
	/* O_NONBLOCK: a pipe must not hang us before it is refused. */
	int flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, fd, result = 0;
	struct stat st;
	ssize_t moved;
	size_t at = 0;

	fd = open(b->path, flags | (b->direct ? O_DIRECT : 0));
	if (fd < 0 && errno == EINVAL && b->direct)
		fd = open(b->path, flags);
	if (fd < 0)
		return block_fail(b, "open", errno);
	if (fstat(fd, &st)) {
		result = block_fail(b, "fstat", errno);
		goto out;
	}
	if (!S_ISREG(st.st_mode)) {
		result = kvt__fail(KVT_EACCES, "%s: paths[%zu] %s: not a regular file", b->call,
				   b->index, b->path);
		goto out;
	}
	moved = (uint64_t)st.st_size < b->bytes ? 0 : move_block(fd, b, false, &at);
	if (moved < 0)
		result = block_io_fail(b, "pread", at, errno);
	else if ((size_t)moved < b->bytes)
		result = remove_short(b, fd);
out:
	close(fd);
	return result;
}

static int check_batch(const char *call, const char *const *paths, const void *buffer,
		       size_t buffer_bytes, const uint64_t *offsets, size_t count,
		       size_t block_bytes, const struct kvt_batch_result *result)
{
	if (result && result->struct_size < sizeof(*result))
		return kvt__fail(KVT_EINVAL, "%s: result.struct_size: %zu, expected at least %zu",
				 call, result->struct_size, sizeof(*result));
	if (!count)
		return 0;
	if (!paths || !buffer || !offsets)
		return kvt__fail(KVT_EINVAL, "%s: %s: NULL, expected %zu entries", call,
				 !paths	   ? "paths"
				 : !buffer ? "buffer"
					   : "offsets",
				 count);
	if (!block_bytes || block_bytes > SSIZE_MAX)
		return kvt__fail(KVT_EINVAL, "%s: block_bytes: %zu, expected 1 to %zd", call,
				 block_bytes, (ssize_t)SSIZE_MAX);
	for (size_t i = 0; i < count; i++) {
		if (!paths[i] || !*leaf_of(paths[i]))
			return kvt__fail(KVT_EINVAL, "%s: paths[%zu]: %s, expected a file's path",
					 call, i, paths[i] ? paths[i] : "NULL");
		if (offsets[i] > buffer_bytes || block_bytes > buffer_bytes - offsets[i])
			return kvt__fail(
				KVT_EINVAL,
				"%s: offsets[%zu]: %llu, expected that %zu bytes from there "
				"on lie in a buffer of %zu bytes",
				call, i, (unsigned long long)offsets[i], block_bytes, buffer_bytes);
	}
	return 0;
}

static int run_batch(const char *call, const char *const *paths, void *buffer, size_t buffer_bytes,
		     const uint64_t *offsets, size_t count, size_t block_bytes, int use_o_direct,
		     struct kvt_batch_result *resultp, int (*move)(const struct block *))
{
	struct block b = {.call = call, .bytes = block_bytes};
	int result = check_batch(call, paths, buffer, buffer_bytes, offsets, count, block_bytes,
				 resultp);

	if (resultp && resultp->struct_size >= sizeof(*resultp))
		resultp->succeeded = resultp->error_index = 0;
	if (result)
		return result;
	for (b.index = 0; b.index < count; b.index++) {
		b.path = paths[b.index];
		b.memory = (char *)buffer + offsets[b.index];
		b.direct =
			use_o_direct && !(block_bytes % SECTOR) && !((uintptr_t)b.memory % SECTOR);
		result = move(&b);
		if (resultp)
			*(result ? &resultp->error_index : &resultp->succeeded) =
				result ? b.index : b.index + 1;
		if (result)
			return result;
	}
	return 0;
}

int kvt_batch_store_block(const char *const *paths, const void *buffer, size_t buffer_bytes,
			  const uint64_t *offsets, size_t count, size_t block_bytes,
			  int use_o_direct, struct kvt_batch_result *resultp)
{
	/* store_block reads the memory only. */
	return run_batch("kvt_batch_store_block", paths, (void *)(uintptr_t)buffer, buffer_bytes,
			 offsets, count, block_bytes, use_o_direct, resultp, store_block);
}

int kvt_batch_load_block(const char *const *paths, void *buffer, size_t buffer_bytes,
			 const uint64_t *offsets, size_t count, size_t block_bytes,
			 int use_o_direct, struct kvt_batch_result *resultp)
{
	return run_batch("kvt_batch_load_block", paths, buffer, buffer_bytes, offsets, count,
			 block_bytes, use_o_direct, resultp, load_block);
}

int kvt_probe_o_direct(const char *directory)
{
	_Alignas(PAGE) char page[PAGE];
	char name[40];
	bool direct = true;
	int folder, fd, err, works = 0;

	if (!directory || !*directory)
		return kvt__fail(KVT_EINVAL, "kvt_probe_o_direct: directory: %s, expected a path",
				 directory ? "empty" : "NULL");
	folder = open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
	fd = folder < 0 ? -1 : open_new(folder, &direct, name, sizeof(name));
	if (fd < 0) {
		err = errno;
		if (folder >= 0)
			close(folder);
		return kvt__fail(error_code(err), "kvt_probe_o_direct: %s: open: %s", directory,
				 error_text(err));
	}
	err = 0;
	memset(page, 'k', sizeof(page));
	if (direct && pwrite(fd, page, PAGE, 0) == PAGE) {
		memset(page, 0, sizeof(page));
		works = pread(fd, page, PAGE, 0) == PAGE && page[0] == 'k' && page[PAGE - 1] == 'k';
	} else if (direct && (errno == ENOSPC || errno == EDQUOT)) {
		err = errno; /* a full disk tells nothing */
	}
	if (name[0])
		unlinkat(folder, name, 0);
	close(fd);
	close(folder);
	if (err)
		return kvt__fail(error_code(err), "kvt_probe_o_direct: %s: pwrite: %s", directory,
				 error_text(err));
	return works;
}
