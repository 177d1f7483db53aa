/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Temporary files. Each opened backend has a folder <root>/.kvtier/tmp/<token>/ for the files that
 * cannot be written without a name, and holds a lock on the file "lock" in it. Whoever gets that
 * lock knows that the owner is dead and removes the folder; where a file system has no locks, age
 * decides. Any thread.
 */
#include "file.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#define LOCK_NAME  "lock"
#define OPEN_TRIES 20

static int file_open_temp_root(struct file_backend *b, bool make)
{
	int own, temp;

	/* Once it is there, one call opens it. */
	temp = kvt__file_open_beneath(b, FILE_TEMP_FOLDER, O_RDONLY | O_DIRECTORY);
	if (temp >= 0 || errno != ENOENT || !make)
		return temp;
	if (kvt__file_make_folder(b, b->root_fd, FILE_OWN_FOLDER))
		return -1;
	own = kvt__file_open_beneath(b, FILE_OWN_FOLDER, O_RDONLY | O_DIRECTORY);
	if (own < 0)
		return -1;
	temp = kvt__file_make_folder(b, own, kvt__file_leaf(FILE_TEMP_FOLDER));
	if (!temp)
		temp = openat(own, kvt__file_leaf(FILE_TEMP_FOLDER),
			      O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	close(own);
	return temp;
}

static void file_make_token(char *token, size_t bytes)
{
	uint64_t value;

	if (getrandom(&value, sizeof(value), GRND_NONBLOCK) != (ssize_t)sizeof(value)) {
		struct timespec ts;

		clock_gettime(CLOCK_MONOTONIC, &ts);
		value = ((uint64_t)getpid() << 32) ^ ((uint64_t)ts.tv_sec << 30) ^
			(uint64_t)ts.tv_nsec;
	}
	snprintf(token, bytes, "%016llx", (unsigned long long)value);
}

/*
 * One try at making and locking a folder of our own. EAGAIN: somebody took it for a dead one's and
 * removes it. The lock descriptor stays open as long as the folder is ours; a file system without
 * locks gets one that is not locked.
 */
static int file_make_own(struct file_backend *b, int temp_root, int *folderp, int *lockp)
{
	struct stat st;
	int folder, lock = -1, err;

	if (mkdirat(temp_root, b->temp_token, b->dir_mode) && errno != EEXIST)
		return -1;
	folder = openat(temp_root, b->temp_token, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (folder >= 0)
		lock = openat(folder, LOCK_NAME, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC,
			      b->file_mode);
	if (lock < 0) {
		err = errno == ENOENT ? EAGAIN : errno;
		goto fail;
	}
	if (flock(lock, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK) {
		err = EAGAIN;
		goto fail;
	}
	/* Locked, but perhaps by then without a name. */
	if (fstat(lock, &st) || st.st_nlink == 0) {
		err = EAGAIN;
		goto fail;
	}
	*folderp = folder;
	*lockp = lock;
	return 0;
fail:
	if (lock >= 0)
		close(lock);
	if (folder >= 0)
		close(folder);
	errno = err;
	return -1;
}

int kvt__file_temp_folder(struct file_backend *b, bool again)
{
	int folder = atomic_load_explicit(&b->temp_fd, memory_order_acquire);
	int temp_root, lock, made = -1, err = 0;
	struct stat st;

	if (folder >= 0 && !again)
		return folder;
	pthread_mutex_lock(&b->temp_lock);
	folder = atomic_load_explicit(&b->temp_fd, memory_order_relaxed);
	if (folder >= 0 && !fstat(folder, &st) && st.st_nlink > 0)
		goto out; /* made by another thread meanwhile */
	for (int tries = 0; made < 0 && tries < OPEN_TRIES; tries++) {
		temp_root = file_open_temp_root(b, true);
		if (temp_root < 0) {
			err = errno;
			if (err == ENOENT)
				continue;
			break;
		}
		file_make_token(b->temp_token, sizeof(b->temp_token));
		if (!file_make_own(b, temp_root, &made, &lock))
			err = 0;
		else
			err = errno;
		close(temp_root);
		if (err && err != EAGAIN && err != ENOENT)
			break;
	}
	if (made < 0) {
		folder = -1;
	} else if (folder < 0) {
		folder = made;
		b->temp_lock_fd = lock;
		atomic_store_explicit(&b->temp_fd, folder, memory_order_release);
	} else {
		/* Other threads use the number: the new folder takes it over in one step. */
		if (dup3(made, folder, O_CLOEXEC) < 0 || dup3(lock, b->temp_lock_fd, O_CLOEXEC) < 0)
			err = errno;
		close(made);
		close(lock);
		if (err)
			folder = -1;
	}
out:
	pthread_mutex_unlock(&b->temp_lock);
	if (folder < 0)
		errno = err ? err : EIO;
	return folder;
}

static bool file_is_older(const struct stat *st, uint32_t age_s)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return now.tv_sec - st->st_mtim.tv_sec > (time_t)age_s;
}

/* Removes the files of an opened folder, the lock last, and counts them. */
static void file_empty_folder(int folder, uint32_t *countp)
{
	int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;

	if (!dir) {
		if (fd >= 0)
			close(fd);
		return;
	}
	while ((entry = readdir(dir))) {
		const char *name = entry->d_name;

		if (!strcmp(name, ".") || !strcmp(name, "..") || !strcmp(name, LOCK_NAME))
			continue;
		if (!unlinkat(folder, name, 0))
			++*countp;
	}
	closedir(dir);
	unlinkat(folder, LOCK_NAME, 0);
}

/* Removes one folder when its owner is dead. */
static void file_sweep_one(int temp_root, const char *token, uint32_t age_s, uint32_t *countp)
{
	struct stat st;
	int folder, lock;
	bool old, dead;

	folder = openat(temp_root, token, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (folder < 0) {
		/* No folder: nothing that we make, so age decides. */
		if (errno == ENOTDIR && !fstatat(temp_root, token, &st, AT_SYMLINK_NOFOLLOW) &&
		    file_is_older(&st, age_s) && !unlinkat(temp_root, token, 0))
			++*countp;
		return;
	}
	/* Asked first: making the lock file touches the folder. */
	old = !fstat(folder, &st) && file_is_older(&st, age_s);
	lock = openat(folder, LOCK_NAME, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (lock < 0)
		dead = false;
	else if (!flock(lock, LOCK_EX | LOCK_NB))
		dead = true;
	else if (errno == EWOULDBLOCK || errno == EINTR)
		dead = false;
	else
		dead = old;
	if (dead) {
		file_empty_folder(folder, countp);
		unlinkat(temp_root, token, AT_REMOVEDIR);
	}
	if (lock >= 0)
		close(lock);
	close(folder);
}

int kvt__file_temp_sweep(struct file_backend *b, uint32_t age_s, uint32_t *sweptp)
{
	int temp_root = file_open_temp_root(b, false), fd;
	struct dirent *entry;
	DIR *dir;

	*sweptp = 0;
	if (temp_root < 0)
		return errno == ENOENT ? 0 : -1;
	fd = fcntl(temp_root, F_DUPFD_CLOEXEC, 0);
	dir = fd < 0 ? NULL : fdopendir(fd);
	if (!dir) {
		int err = errno;

		if (fd >= 0)
			close(fd);
		close(temp_root);
		errno = err;
		return -1;
	}
	while ((entry = readdir(dir))) {
		const char *name = entry->d_name;

		if (strcmp(name, ".") && strcmp(name, ".."))
			file_sweep_one(temp_root, name, age_s, sweptp);
	}
	closedir(dir);
	close(temp_root);
	return 0;
}

void kvt__file_temp_close(struct file_backend *b, bool forked)
{
	int folder = atomic_load(&b->temp_fd);

	if (folder < 0)
		return;
	if (!forked) {
		uint32_t count = 0;
		int temp_root = file_open_temp_root(b, false);

		file_empty_folder(folder, &count);
		if (temp_root >= 0) {
			unlinkat(temp_root, b->temp_token, AT_REMOVEDIR);
			close(temp_root);
		}
	}
	close(b->temp_lock_fd);
	close(folder);
	atomic_store(&b->temp_fd, -1);
}
