/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Listing: a walk in the order of the names' bytes, so that the last name of a page says where the
 * next one begins. Folders before that name are not opened, and none is held open while another
 * page is asked for. On the session's thread.
 */
#include "file.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Deeper trees are none of ours; each level holds a descriptor. */
#define MAX_LEVELS 64

struct list_walk {
	struct file_op *op;
	char path[FILE_MAX_NAME + 2];
	char last[FILE_MAX_NAME + 2]; /* names up to this one have been listed */
	uint32_t count;
	int levels;
};

/* The entries of one folder; folders have a slash behind their names, which sorts them to where
 * their contents belong. */
struct list_names {
	char *text;
	size_t bytes, size;
	size_t *at; /* offsets into text */
	size_t count, room;
};

static bool list_grow(const struct kvt_host *host, void **memoryp, size_t used, size_t *sizep,
		      size_t least)
{
	size_t size = *sizep * 2 < least ? least : *sizep * 2;
	void *memory = host->alloc(host, size, 16);

	if (!memory)
		return false;
	if (used)
		memcpy(memory, *memoryp, used);
	host->free(host, *memoryp);
	*memoryp = memory;
	*sizep = size;
	return true;
}

static bool list_add(const struct kvt_host *host, struct list_names *names, const char *name,
		     bool folder)
{
	size_t bytes = strlen(name), room_bytes = names->room * sizeof(*names->at);
	void *memory = names->text;

	if (names->bytes + bytes + 2 > names->size) {
		if (!list_grow(host, &memory, names->bytes, &names->size,
			       names->bytes + bytes + 4096))
			return false;
		names->text = memory;
	}
	memory = names->at;
	if (names->count == names->room) {
		if (!list_grow(host, &memory, room_bytes, &room_bytes, 512 * sizeof(*names->at)))
			return false;
		names->at = memory;
		names->room = room_bytes / sizeof(*names->at);
	}
	names->at[names->count++] = names->bytes;
	memcpy(names->text + names->bytes, name, bytes);
	names->bytes += bytes;
	if (folder)
		names->text[names->bytes++] = '/';
	names->text[names->bytes++] = 0;
	return true;
}

static int list_compare(const void *a, const void *b, void *text)
{
	return strcmp((const char *)text + *(const size_t *)a,
		      (const char *)text + *(const size_t *)b);
}

/* What an entry is; links and the like are nothing. */
static bool list_kind(int fd, const struct dirent *entry, bool *folderp)
{
	struct stat st;

	if (entry->d_type != DT_UNKNOWN) {
		*folderp = entry->d_type == DT_DIR;
		return *folderp || entry->d_type == DT_REG;
	}
	if (fstatat(fd, entry->d_name, &st, AT_SYMLINK_NOFOLLOW))
		return false;
	*folderp = S_ISDIR(st.st_mode);
	return *folderp || S_ISREG(st.st_mode);
}

static bool list_is_name(const char *name)
{
	for (; *name; name++)
		if ((unsigned char)*name < 0x20 || *name == 0x7f)
			return false;
	return true;
}

static bool list_begins(const char *text, const char *prefix)
{
	return !strncmp(text, prefix, strlen(prefix));
}

/* Whether something wanted may lie at or below walk->path, which ends in a slash for a folder. */
static bool list_wanted(const struct list_walk *walk)
{
	const char *path = walk->path, *prefix = walk->op->io->name;
	size_t bytes = strlen(path);

	if (!list_begins(path, prefix) &&
	    !(bytes && path[bytes - 1] == '/' && list_begins(prefix, path)))
		return false;
	if (bytes && path[bytes - 1] == '/')
		return strncmp(path, walk->last, bytes) >= 0;
	return strcmp(path, walk->last) > 0;
}

/* Reads the wanted entries of a folder; walk->path names it and ends in a slash, or is empty. */
static int list_read(struct list_walk *walk, int fd, struct list_names *names)
{
	const struct kvt_host *host = walk->op->session->backend->host;
	size_t base = strlen(walk->path);
	int copy = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = copy < 0 ? NULL : fdopendir(copy);
	struct dirent *entry;
	int result = 0;

	if (!dir) {
		kvt__file_op_fail(walk->op, "open of a folder", errno);
		if (copy >= 0)
			close(copy);
		return -1;
	}
	while (errno = 0, (entry = readdir(dir))) {
		const char *name = entry->d_name;
		size_t bytes = strlen(name);
		bool folder, wanted;

		if (!strcmp(name, ".") || !strcmp(name, "..") ||
		    (!base && !strcmp(name, FILE_OWN_FOLDER)))
			continue;
		if (base + bytes > FILE_MAX_NAME || !list_is_name(name) ||
		    !list_kind(fd, entry, &folder))
			continue;
		memcpy(walk->path + base, name, bytes + 1);
		if (folder)
			memcpy(walk->path + base + bytes, "/", 2);
		wanted = list_wanted(walk);
		walk->path[base] = 0;
		if (wanted && !list_add(host, names, name, folder)) {
			result = kvt__file_op_refuse(walk->op, KVT_ENOMEM, "out of memory");
			goto out;
		}
	}
	if (errno)
		result = kvt__file_op_fail(walk->op, "readdir", errno);
out:
	closedir(dir);
	return result;
}

/* Hands over one file. 1: the page is full. */
static int list_file(struct list_walk *walk, int fd, const char *leaf)
{
	struct kvt_io *io = walk->op->io;
	struct kvt_list_item item = {.name = walk->path};
	struct stat st;
	int result;

	if (walk->count >= io->list_max)
		return 1;
	/* Removed since it was read. */
	if (fstatat(fd, leaf, &st, AT_SYMLINK_NOFOLLOW) || !S_ISREG(st.st_mode))
		return 0;
	kvt__file_fill_info(&item.info, &st);
	result = io->list_item(io, &item);
	if (result)
		return kvt__file_op_refuse(walk->op, result, NULL);
	walk->count++;
	memcpy(walk->last, walk->path, strlen(walk->path) + 1);
	return 0;
}

static int list_folder(struct list_walk *walk, int fd);

static int list_entry(struct list_walk *walk, int fd, const char *leaf)
{
	size_t bytes = strlen(walk->path);
	struct file_op *op = walk->op;
	int child, result;

	if (walk->path[bytes - 1] != '/')
		return list_file(walk, fd, leaf);
	if (walk->count >= op->io->list_max)
		return 1;
	if (walk->levels == MAX_LEVELS)
		return 0;
	/* Without its slash, behind which O_NOFOLLOW would not look. */
	walk->path[bytes - 1] = 0;
	child = openat(fd, walk->path + bytes - strlen(leaf),
		       O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	walk->path[bytes - 1] = '/';
	if (child < 0)
		return errno == ENOENT || errno == ENOTDIR || errno == ELOOP
			       ? 0
			       : kvt__file_op_fail(op, "open of a folder", errno);
	walk->levels++;
	result = list_folder(walk, child);
	walk->levels--;
	close(child);
	return result;
}

/* 0: to the end. 1: the page is full. -1: failed. */
static int list_folder(struct list_walk *walk, int fd)
{
	struct file_backend *b = walk->op->session->backend;
	const struct kvt_host *host = b->host;
	size_t base = strlen(walk->path);
	struct list_names names = {0};
	int result;

	if (host->now_ns() >= walk->op->io->deadline_ns)
		return kvt__file_op_refuse(walk->op, KVT_ETIMEDOUT, "the deadline has passed");
	result = list_read(walk, fd, &names);
	if (!result && names.count)
		qsort_r(names.at, names.count, sizeof(*names.at), list_compare, names.text);
	for (size_t i = 0; !result && i < names.count; i++) {
		const char *leaf = names.text + names.at[i];

		memcpy(walk->path + base, leaf, strlen(leaf) + 1);
		result = list_entry(walk, fd, leaf);
		walk->path[base] = 0;
	}
	host->free(host, names.text);
	host->free(host, names.at);
	return result;
}

int kvt__file_list(struct file_op *op)
{
	struct kvt_io *io = op->io;
	struct list_walk walk = {.op = op};
	const char *slash = strrchr(io->name, '/');
	size_t bytes = slash ? (size_t)(slash + 1 - io->name) : 0, token = strlen(io->list_token);
	int fd, result;

	if (bytes > FILE_MAX_NAME || token > FILE_MAX_NAME)
		return kvt__file_op_refuse(op, KVT_EINVAL,
					   bytes > FILE_MAX_NAME
						   ? "the prefix is longer than any name"
						   : "the token is none of ours");
	memcpy(walk.last, io->list_token, token + 1);
	io->list_token[0] = 0;
	if (!strncmp(io->name, FILE_OWN_FOLDER "/", sizeof(FILE_OWN_FOLDER)))
		return 0;
	/* From the deepest folder that all wanted names are in. */
	if (bytes) {
		memcpy(walk.path, io->name, bytes - 1);
		fd = kvt__file_open_beneath(op->session->backend, walk.path,
					    O_RDONLY | O_DIRECTORY);
		walk.path[bytes - 1] = '/';
	} else {
		fd = kvt__file_open_beneath(op->session->backend, ".", O_RDONLY | O_DIRECTORY);
	}
	if (fd < 0)
		return errno == ENOENT || errno == ENOTDIR || errno == ELOOP
			       ? 0
			       : kvt__file_op_fail(op, "open of the folder", errno);
	result = list_folder(&walk, fd);
	close(fd);
	if (result == 1) {
		memcpy(io->list_token, walk.last, strlen(walk.last) + 1);
		result = 0;
	}
	return result;
}
