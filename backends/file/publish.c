/* SPDX-License-Identifier: Apache-2.0 */
/*
 * New files, and how they appear. A file is written without a name (O_TMPFILE) in the folder where
 * it will appear, or, where that does not work, under a number in the temporary folder. It appears
 * by link (exclusively) or by rename, so that nobody ever sees a part of it. Folders may be removed
 * under us at any moment; then they are made again. Any thread, one at a time for each file.
 */
#include "file.h"

#include <stdio.h>
#include <unistd.h>

#define TRIES 100

/* linkat takes a descriptor itself only with a capability or from Linux 6.10 on; /proc does it
 * for everybody, where it is mounted. */
static int file_link_unnamed(struct file_backend *b, int fd, int folder, const char *leaf)
{
	char path[32];

	if (!atomic_load_explicit(&b->link_by_proc, memory_order_relaxed))
		return linkat(fd, "", folder, leaf, AT_EMPTY_PATH);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return linkat(AT_FDCWD, path, folder, leaf, AT_SYMLINK_FOLLOW);
}

static void file_number_name(char *name, size_t bytes, uint64_t number)
{
	snprintf(name, bytes, "%llx", (unsigned long long)number);
}

static uint64_t file_next_number(struct file_backend *b)
{
	return atomic_fetch_add_explicit(&b->temp_number, 1, memory_order_relaxed);
}

static int file_open_unnamed(struct file_backend *b, int parent, bool direct)
{
	return openat(parent, ".", O_TMPFILE | O_RDWR | O_CLOEXEC | (direct ? O_DIRECT : 0),
		      b->file_mode);
}

static int file_open_named(struct file_backend *b, struct file_new *f)
{
	char name[24];
	int folder = -1, fd = -1;

	for (int tries = 0; tries < TRIES; tries++) {
		folder = kvt__file_temp_folder(b, tries > 0);
		if (folder < 0)
			return -1;
		f->number = file_next_number(b);
		file_number_name(name, sizeof(name), f->number);
		fd = openat(folder, name,
			    O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC |
				    (f->direct ? O_DIRECT : 0),
			    b->file_mode);
		if (fd >= 0 || (errno != ENOENT && errno != EEXIST))
			break;
	}
	if (fd >= 0) {
		f->named = true;
	} else if (f->direct && errno == EINVAL) {
		/* Some file systems make the file before they refuse. */
		unlinkat(folder, name, 0);
		errno = EINVAL;
	}
	return fd;
}

/* One try in an opened parent. */
static int file_new_try(struct file_backend *b, struct file_new *f)
{
	int fd;

	if (atomic_load_explicit(&b->unnamed, memory_order_relaxed)) {
		f->call = "open of an unnamed file";
		fd = file_open_unnamed(b, f->parent, f->direct);
		if (fd >= 0)
			return fd;
		/* EISDIR: kernels or servers that do not know O_TMPFILE. */
		if (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)
			return -1;
		if (errno == EINVAL && f->direct)
			return -1;
		atomic_store_explicit(&b->unnamed, false, memory_order_relaxed);
	}
	f->call = "open of a temporary file";
	return file_open_named(b, f);
}

int kvt__file_new_open(struct file_backend *b, struct file_new *f, const char *name)
{
	int err;

	f->fd = f->parent = -1;
	f->named = false;
	for (int tries = 0; tries < TRIES; tries++) {
		f->call = "open of the folder";
		if (f->parent < 0)
			f->parent = kvt__file_open_parent(b, name, true);
		if (f->parent < 0)
			return -1;
		f->fd = file_new_try(b, f);
		if (f->fd >= 0)
			break;
		if (errno == EINVAL && f->direct) {
			f->direct = false;
			kvt__file_direct_failed(b, true, true);
		} else if (errno == ENOENT) {
			close(f->parent); /* somebody removed the folder */
			f->parent = -1;
		} else if (errno != EINTR) {
			break;
		}
	}
	if (f->fd >= 0 && (!b->fix_file_mode || !fchmod(f->fd, b->file_mode)))
		return 0;
	err = errno;
	if (f->fd >= 0)
		f->call = "fchmod";
	kvt__file_new_discard(b, f);
	errno = err;
	return -1;
}

/* Gives an unnamed file a number in the temporary folder, from where rename can take it. */
static int file_name_unnamed(struct file_backend *b, struct file_new *f)
{
	char name[24];

	for (int tries = 0; tries < TRIES; tries++) {
		int folder = kvt__file_temp_folder(b, tries > 0);

		f->call = "open of the temporary folder";
		if (folder < 0)
			return -1;
		f->number = file_next_number(b);
		file_number_name(name, sizeof(name), f->number);
		f->call = "linkat";
		if (!file_link_unnamed(b, f->fd, folder, name)) {
			f->named = true;
			return 0;
		}
		if (errno != ENOENT && errno != EEXIST)
			return -1;
	}
	return -1;
}

/* Links from the temporary folder: for file systems whose rename cannot be exclusive. */
static int file_link_named(struct file_new *f, int folder, const char *name, const char *leaf)
{
	struct stat st;

	f->call = "linkat";
	if (linkat(folder, name, f->parent, leaf, 0)) {
		int err = errno;

		/* NFS: the reply got lost, and the repeated request found its own work. */
		if (err != EEXIST || fstat(f->fd, &st) || st.st_nlink != 2) {
			errno = err;
			return -1;
		}
	}
	unlinkat(folder, name, 0);
	return 0;
}

static int file_publish_named(struct file_backend *b, struct file_new *f, const char *leaf,
			      bool exclusive)
{
	int folder = kvt__file_temp_folder(b, false);
	char name[24];

	if (folder < 0)
		return -1;
	file_number_name(name, sizeof(name), f->number);
	f->call = "rename";
	if (!exclusive) {
		if (renameat(folder, name, f->parent, leaf))
			return -1;
	} else if (!atomic_load_explicit(&b->rename_noreplace, memory_order_relaxed)) {
		if (file_link_named(f, folder, name, leaf))
			return -1;
	} else if (renameat2(folder, name, f->parent, leaf, RENAME_NOREPLACE)) {
		if (errno != EINVAL && errno != ENOSYS && errno != EOPNOTSUPP)
			return -1;
		atomic_store_explicit(&b->rename_noreplace, false, memory_order_relaxed);
		if (file_link_named(f, folder, name, leaf))
			return -1;
	}
	f->named = false;
	return 0;
}

static int file_publish_try(struct file_backend *b, struct file_new *f, const char *leaf,
			    bool exclusive)
{
	if (!f->named) {
		f->call = "linkat";
		if (!file_link_unnamed(b, f->fd, f->parent, leaf))
			return 0;
		if (errno != EEXIST || exclusive)
			return -1;
		if (file_name_unnamed(b, f))
			return -1;
	}
	return file_publish_named(b, f, leaf, exclusive);
}

int kvt__file_publish(struct file_backend *b, struct file_new *f, const char *name, bool exclusive)
{
	const char *leaf = kvt__file_leaf(name);
	struct stat st;

	for (int tries = 0;; tries++) {
		f->call = "open of the folder";
		if (f->parent < 0)
			f->parent = kvt__file_open_parent(b, name, true);
		if (f->parent < 0)
			return -1;
		if (!file_publish_try(b, f, leaf, exclusive))
			return 0;
		if (errno != ENOENT || tries == TRIES)
			return -1;
		/* The folder is gone, or the temporary file, or linkat wants the capability that
		 * this process has lost. */
		if (f->named && !fstat(f->fd, &st) && st.st_nlink == 0) {
			errno = ESTALE;
			return -1;
		}
		if (!f->named && tries % 2)
			atomic_store_explicit(&b->link_by_proc, true, memory_order_relaxed);
		close(f->parent);
		f->parent = -1;
	}
}

void kvt__file_new_discard(struct file_backend *b, struct file_new *f)
{
	int folder = f->named ? kvt__file_temp_folder(b, false) : -1;
	char name[24];

	if (folder >= 0) {
		file_number_name(name, sizeof(name), f->number);
		unlinkat(folder, name, 0);
	}
	if (f->fd >= 0)
		close(f->fd);
	if (f->parent >= 0)
		close(f->parent);
	f->fd = f->parent = -1;
	f->named = false;
}
