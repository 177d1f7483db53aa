/* SPDX-License-Identifier: Apache-2.0 */
/*
 * System calls that fail on a plan. A test program's single source file includes this: the
 * definitions stand in front of the C library's for the whole program, the static library
 * included.
 */
#ifndef KVT_TESTS_SPOILT_CALLS_H
#define KVT_TESTS_SPOILT_CALLS_H

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum call { PWRITE, PREAD, LINKAT, RENAMEAT, FDATASYNC, FSYNC, MKDIRAT, TMPFILE, CALLS };

/* What becomes of the next calls of one kind. Set while nothing runs; read by any thread. */
struct fault {
	atomic_int times;     /* so many are spoilt: */
	int error;	      /* by this, */
	size_t at_most;	      /* or cut to so many bytes, */
	void (*before)(void); /* or go through, after this was called */
	bool direct_only;     /* only on a descriptor with O_DIRECT */
};
static struct fault faults[CALLS];
static char trace[256]; /* of calls on the test's own thread: "data link folder " */
static bool tracing;

static void plan_nothing(void)
{
	memset(faults, 0, sizeof(faults));
}

/* Whether this call is spoilt: -1 with errno, or *bytesp is cut; 0: it goes through. */
static int meddle(enum call call, int fd, size_t *bytesp)
{
	struct fault *f = &faults[call];

	if (!atomic_load(&f->times) || (f->direct_only && !(fcntl(fd, F_GETFL) & O_DIRECT)))
		return 0;
	if (atomic_fetch_sub(&f->times, 1) <= 0) {
		atomic_store(&f->times, 0);
		return 0;
	}
	if (f->before)
		f->before();
	if (f->error) {
		errno = f->error;
		return -1;
	}
	if (f->at_most && bytesp && *bytesp > f->at_most)
		*bytesp = f->at_most;
	return 0;
}

static void note(const char *word)
{
	if (tracing)
		snprintf(trace + strlen(trace), sizeof(trace) - strlen(trace), "%s ", word);
}

ssize_t pwrite(int fd, const void *data, size_t bytes, off_t at)
{
	return meddle(PWRITE, fd, &bytes) ? -1 : syscall(SYS_pwrite64, fd, data, bytes, at);
}

ssize_t pread(int fd, void *data, size_t bytes, off_t at)
{
	return meddle(PREAD, fd, &bytes) ? -1 : syscall(SYS_pread64, fd, data, bytes, at);
}

ssize_t pwritev(int fd, const struct iovec *iov, int count, off_t at)
{
	size_t most = SIZE_MAX;

	if (meddle(PWRITE, fd, &most))
		return -1;
	if (most < iov->iov_len)
		return syscall(SYS_pwrite64, fd, iov->iov_base, most, at);
	return syscall(SYS_pwritev, fd, iov, (long)count, at, 0L);
}

ssize_t preadv(int fd, const struct iovec *iov, int count, off_t at)
{
	size_t most = SIZE_MAX;

	if (meddle(PREAD, fd, &most))
		return -1;
	if (most < iov->iov_len)
		return syscall(SYS_pread64, fd, iov->iov_base, most, at);
	return syscall(SYS_preadv, fd, iov, (long)count, at, 0L);
}

ssize_t preadv2(int fd, const struct iovec *iov, int count, off_t at, int flags)
{
	size_t most = SIZE_MAX;

	if (meddle(PREAD, fd, &most))
		return -1;
	if (most < iov->iov_len)
		return syscall(SYS_pread64, fd, iov->iov_base, most, at);
	return syscall(SYS_preadv2, fd, iov, (long)count, at, 0L, flags);
}

int linkat(int from_fd, const char *from, int to_fd, const char *to, int flags)
{
	if (meddle(LINKAT, from_fd, NULL))
		return -1;
	note("link");
	return (int)syscall(SYS_linkat, from_fd, from, to_fd, to, flags);
}

int renameat(int from_fd, const char *from, int to_fd, const char *to)
{
	return meddle(RENAMEAT, from_fd, NULL)
		       ? -1
		       : (int)syscall(SYS_renameat2, from_fd, from, to_fd, to, 0);
}

int fdatasync(int fd)
{
	note("data");
	return meddle(FDATASYNC, fd, NULL) ? -1 : (int)syscall(SYS_fdatasync, fd);
}

int fsync(int fd)
{
	note("folder");
	return meddle(FSYNC, fd, NULL) ? -1 : (int)syscall(SYS_fsync, fd);
}

int mkdirat(int fd, const char *path, mode_t mode)
{
	return meddle(MKDIRAT, fd, NULL) ? -1 : (int)syscall(SYS_mkdirat, fd, path, mode);
}

int openat(int fd, const char *path, int flags, ...)
{
	mode_t mode = 0;
	va_list ap;

	if (flags & (O_CREAT | O_TMPFILE)) {
		va_start(ap, flags);
		mode = va_arg(ap, mode_t);
		va_end(ap);
	}
	if ((flags & O_TMPFILE) == O_TMPFILE && meddle(TMPFILE, fd, NULL))
		return -1;
	return (int)syscall(SYS_openat, fd, path, flags, mode);
}

#endif
