/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The root folder, and paths beneath its descriptor. No link is followed below the root: openat2
 * does that in one call; where the kernel or a sandbox lacks it, paths are walked component by
 * component. Any thread after open.
 */
#include "file.h"

#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A folder that others remove as fast as it is made is given up after so many tries. */
#define MAKE_TRIES 100

static int file_openat2(int root, const char *path, int flags)
{
	struct open_how how = {
		.flags = (uint64_t)(flags | O_CLOEXEC),
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
	};
	long fd;

	do
		fd = syscall(SYS_openat2, root, path, &how, sizeof(how));
	while (fd < 0 && (errno == EINTR || errno == EAGAIN));
	return (int)fd;
}

/* The same by one openat for each component. */
static int file_open_by_component(int root, const char *path, int flags)
{
	int at = root, fd;
	char component[FILE_MAX_NAME + 1];

	for (;;) {
		const char *slash = strchr(path, '/');
		size_t bytes = slash ? (size_t)(slash - path) : strlen(path);
		int step = slash ? O_PATH | O_DIRECTORY : flags;

		if (bytes > FILE_MAX_NAME) {
			fd = -1;
			errno = ENAMETOOLONG;
		} else {
			memcpy(component, path, bytes);
			component[bytes] = 0;
			if (!strcmp(component, "..") ||
			    (!strcmp(component, ".") && (slash || at != root))) {
				fd = -1;
				errno = EXDEV;
			} else {
				fd = openat(at, component, step | O_NOFOLLOW | O_CLOEXEC);
			}
		}
		if (at != root) {
			int err = errno;

			close(at);
			errno = err;
		}
		if (fd < 0 || !slash)
			return fd;
		at = fd;
		path = slash + 1;
	}
}

int kvt__file_open_beneath(const struct file_backend *b, const char *name, int flags)
{
	int fd;

	if (b->have_openat2)
		return file_openat2(b->root_fd, name, flags);
	do
		fd = file_open_by_component(b->root_fd, name, flags);
	while (fd < 0 && errno == EINTR);
	return fd;
}

const char *kvt__file_leaf(const char *name)
{
	const char *slash = strrchr(name, '/');

	return slash ? slash + 1 : name;
}

int kvt__file_make_folder(const struct file_backend *b, int parent, const char *leaf)
{
	if (mkdirat(parent, leaf, b->dir_mode))
		return errno == EEXIST ? 0 : -1;
	if (b->fix_dir_mode && fchmodat(parent, leaf, b->dir_mode, 0) && errno != ENOENT)
		return -1;
	if (b->fsync == FILE_FSYNC_FULL && fsync(parent))
		return -1;
	return 0;
}

/* Opens the folder `path`, making what is absent; `path` is cut and restored. ENOENT: somebody
 * removed a folder meanwhile. */
static int file_make_path(const struct file_backend *b, char *path)
{
	size_t end = strlen(path), bytes = end; /* components from here on are to be made */
	int at;

	/* Up to the deepest that is there ... */
	do {
		while (bytes && path[bytes - 1] != '/')
			bytes--;
		if (!bytes) {
			at = fcntl(b->root_fd, F_DUPFD_CLOEXEC, 0);
			break;
		}
		path[bytes - 1] = 0;
		at = kvt__file_open_beneath(b, path, b->dir_flags);
		path[bytes - 1] = '/';
		if (at < 0)
			bytes--;
	} while (at < 0 && errno == ENOENT);
	if (at < 0)
		return -1;
	/* ... and down from there. */
	while (bytes < end) {
		char *component = path + bytes, *slash = strchr(component, '/');
		int next = -1, err;

		if (slash)
			*slash = 0;
		if (!kvt__file_make_folder(b, at, component))
			next = openat(at, component, b->dir_flags | O_NOFOLLOW | O_CLOEXEC);
		err = errno;
		if (slash)
			*slash = '/';
		close(at);
		if (next < 0) {
			errno = err;
			return -1;
		}
		at = next;
		bytes = slash ? (size_t)(slash + 1 - path) : end;
	}
	return at;
}

int kvt__file_open_parent(const struct file_backend *b, const char *name, bool make)
{
	char path[FILE_MAX_NAME + 1];
	const char *slash = strrchr(name, '/');
	size_t bytes;
	int fd;

	if (!slash)
		return fcntl(b->root_fd, F_DUPFD_CLOEXEC, 0);
	bytes = (size_t)(slash - name);
	if (bytes > FILE_MAX_NAME) {
		errno = ENAMETOOLONG;
		return -1;
	}
	memcpy(path, name, bytes);
	path[bytes] = 0;
	fd = kvt__file_open_beneath(b, path, b->dir_flags);
	for (int tries = 0; fd < 0 && errno == ENOENT && make && tries < MAKE_TRIES; tries++)
		fd = file_make_path(b, path);
	return fd;
}

void kvt__file_prune(const struct file_backend *b, const char *name)
{
	char path[FILE_MAX_NAME + 1];
	size_t bytes = strlen(name);

	if (bytes > FILE_MAX_NAME)
		return;
	memcpy(path, name, bytes + 1);
	for (;;) {
		char *slash = strrchr(path, '/');
		int parent, failed;

		if (!slash)
			return;
		*slash = 0;
		/* The outermost folder stays: the next store makes it again anyhow. */
		if (!strchr(path, '/'))
			return;
		parent = kvt__file_open_parent(b, path, false);
		if (parent < 0)
			return;
		failed = unlinkat(parent, kvt__file_leaf(path), AT_REMOVEDIR);
		close(parent);
		if (failed)
			return;
	}
}

/* The absolute path that a location means, newly allocated. */
static int file_root_path(struct file_backend *b, const char *location)
{
	const struct kvt_host *host = b->host;
	const char *path = location;
	char folder[4096] = "";
	size_t size, used = 0;
	char *out;

	if (!strncmp(path, "//", 2)) {
		path += 2;
		if (!strncmp(path, "localhost/", 10))
			path += 9;
		if (*path != '/') {
			host->fail(host, "file:%s: a host is named, expected file:///absolute/path",
				   location);
			return KVT_EINVAL;
		}
	}
	if (!*path) {
		host->fail(host, "file:%s: no path, expected file:///absolute/path", location);
		return KVT_EINVAL;
	}
	if (*path != '/' && !getcwd(folder, sizeof(folder))) {
		host->fail(host, "file:%s: getcwd: %s", location, kvt__file_error_text(errno));
		return kvt__file_error(errno);
	}
	size = strlen(folder) + strlen(path) + 3;
	out = host->alloc(host, size, 16);
	if (!out) {
		host->fail(host, "file:%s: out of memory", location);
		return KVT_ENOMEM;
	}
	/* Doubled and trailing slashes and "." go; ".." is left to the kernel, which knows links.
	 */
	for (int part = 0; part < 2; part++) {
		for (const char *p = part ? path : folder; *p;) {
			size_t bytes = strcspn(p, "/");

			if (bytes && !(bytes == 1 && *p == '.')) {
				out[used++] = '/';
				memcpy(out + used, p, bytes);
				used += bytes;
			}
			p += bytes + (p[bytes] == '/');
		}
	}
	if (!used)
		out[used++] = '/';
	out[used] = 0;
	b->root_path = out;
	return 0;
}

/* mkdir -p. */
static int file_make_root(const struct file_backend *b)
{
	for (char *slash = b->root_path + 1;; slash++) {
		struct stat st;
		int err = 0;

		slash = strchr(slash, '/');
		if (slash)
			*slash = 0;
		if (mkdir(b->root_path, b->dir_mode) && errno != EEXIST) {
			err = errno;
			if (!stat(b->root_path, &st))
				err = 0;
		}
		if (slash)
			*slash = '/';
		if (err) {
			errno = err;
			return -1;
		}
		if (!slash)
			return 0;
	}
}

int kvt__file_root_open(struct file_backend *b, const char *location, bool insecure)
{
	const struct kvt_host *host = b->host;
	struct stat st;
	int result, probe;
	const char *call = "open";

	b->root_fd = -1;
	result = file_root_path(b, location);
	if (result)
		return result;
	b->root_fd = open(b->root_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (b->root_fd < 0 && errno == ENOENT) {
		call = "mkdir";
		if (!file_make_root(b)) {
			call = "open";
			b->root_fd = open(b->root_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		}
	}
	if (b->root_fd < 0 || fstat(b->root_fd, &st)) {
		int err = errno;

		host->fail(host, "%s: %s: %s", b->root_path, call, kvt__file_error_text(err));
		result = err == ENOENT || err == ENOTDIR ? KVT_ECONFIG : kvt__file_error(err);
		goto fail;
	}
	if (!insecure && (st.st_mode & S_IWOTH) && st.st_uid != geteuid()) {
		host->fail(host,
			   "%s: everybody may write to it and user %ld owns it, expected a folder "
			   "of user %ld or insecure_root=1",
			   b->root_path, (long)st.st_uid, (long)geteuid());
		result = KVT_EACCES;
		goto fail;
	}
	/* ENOSYS: before Linux 5.6; EPERM: sandboxes that do not know the call. */
	probe = file_openat2(b->root_fd, ".", O_PATH | O_DIRECTORY);
	b->have_openat2 = probe >= 0;
	if (probe >= 0)
		close(probe);
	return 0;
fail:
	kvt__file_root_close(b);
	return result;
}

void kvt__file_root_close(struct file_backend *b)
{
	if (b->root_fd >= 0)
		close(b->root_fd);
	b->root_fd = -1;
	b->host->free(b->host, b->root_path);
	b->root_path = NULL;
}
