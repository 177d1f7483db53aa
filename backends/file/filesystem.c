/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the file system below the root is and accepts: asked by f_type and statx, then tried, since
 * several accept O_DIRECT at open and refuse it at the first write. On the opening thread, but for
 * kvt__file_direct_failed.
 */
#include "file.h"

#include <stdio.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

/* linux/magic.h and the sources of those that are not in it. */
static const struct {
	uint32_t magic;
	const char *name;
	bool memory, remote;
} filesystems[] = {
	{0xef53, "ext4", false, false},		{0x58465342, "xfs", false, false},
	{0x9123683e, "btrfs", false, false},	{0xf2f52010, "f2fs", false, false},
	{0xca451a4e, "bcachefs", false, false}, {0x2fc12fc1, "zfs", false, false},
	{0x794c7630, "overlay", false, false},	{0x4d44, "vfat", false, false},
	{0x2011bab0, "exfat", false, false},	{0x01021994, "tmpfs", true, false},
	{0x858458f6, "ramfs", true, false},	{0x958458f6, "hugetlbfs", true, false},
	{0x6969, "nfs", false, true},		{0x65735546, "fuse", false, true},
	{0xff534d42, "cifs", false, true},	{0xfe534d42, "smb2", false, true},
	{0x00c36400, "ceph", false, true},	{0x0bd00bd0, "lustre", false, true},
	{0x47504653, "gpfs", false, true},	{0x19830326, "beegfs", false, true},
	{0x01021997, "9p", false, true},
};

int kvt__file_identify(struct file_backend *b)
{
	struct statfs fs;

	if (fstatfs(b->root_fd, &fs))
		return -1;
	for (size_t i = 0; i < sizeof(filesystems) / sizeof(filesystems[0]); i++) {
		if (filesystems[i].magic != (uint32_t)fs.f_type)
			continue;
		snprintf(b->filesystem, sizeof(b->filesystem), "%s", filesystems[i].name);
		b->memory = filesystems[i].memory;
		b->remote = filesystems[i].remote;
		return 0;
	}
	snprintf(b->filesystem, sizeof(b->filesystem), "0x%x", (unsigned)fs.f_type);
	return 0;
}

/* What O_DIRECT wants here: from the file system where it says so, else what every disk takes.
 * False: it says that there is no O_DIRECT. */
static bool file_ask_alignment(struct file_backend *b, int fd)
{
	uint32_t memory = FILE_PAGE, offset = FILE_PAGE;

#ifdef STATX_DIOALIGN
	struct statx sx;

	if (!statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &sx) && (sx.stx_mask & STATX_DIOALIGN)) {
		memory = sx.stx_dio_mem_align;
		offset = sx.stx_dio_offset_align;
		if (!memory || !offset)
			return false;
	}
#else
	(void)fd;
#endif
	if (memory & (memory - 1) || offset & (offset - 1) || offset > FILE_PAGE ||
	    memory > FILE_PAGE)
		memory = offset = FILE_PAGE;
	atomic_store(&b->memory_align, memory);
	atomic_store(&b->offset_align, offset);
	return true;
}

/* Writes and reads back at the alignment found, and at a page's when that fails. */
static void file_try_direct(struct file_backend *b, int fd)
{
	_Alignas(FILE_PAGE) char buffer[2 * FILE_PAGE];
	bool wrote = false, read_back = false;

	if (!file_ask_alignment(b, fd))
		return;
	for (int round = 0; round < 2 && !(wrote && read_back); round++) {
		uint32_t memory = atomic_load(&b->memory_align);
		uint32_t offset = atomic_load(&b->offset_align);
		char *at = buffer + (memory < FILE_PAGE ? memory : 0);

		memset(buffer, 'k', sizeof(buffer));
		wrote = pwrite(fd, at, offset, 0) == (ssize_t)offset;
		if (!wrote && (errno == ENOSPC || errno == EDQUOT)) {
			/* Nothing can be told now; operations find out. */
			wrote = read_back = true;
			break;
		}
		memset(buffer, 0, sizeof(buffer));
		read_back = pread(fd, at, offset, 0) == (ssize_t)offset;
		if (read_back && wrote && (at[0] != 'k' || at[offset - 1] != 'k'))
			read_back = wrote = false;
		if (memory == FILE_PAGE && offset == FILE_PAGE)
			break;
		if (!(wrote && read_back)) {
			atomic_store(&b->memory_align, FILE_PAGE);
			atomic_store(&b->offset_align, FILE_PAGE);
		}
	}
	atomic_store(&b->direct_write, wrote);
	atomic_store(&b->direct_read, read_back);
}

/* Whether an exclusive name can be had; learns which of link's ways work. */
static bool file_try_link(struct file_backend *b, struct file_new *f, const char *name)
{
	bool had_no_name = !f->named;

	if (!kvt__file_publish(b, f, name, true))
		return true;
	if (!had_no_name)
		return false;
	atomic_store(&b->link_by_proc, true);
	if (!kvt__file_publish(b, f, name, true))
		return true;
	/* Files without names are of no use where they cannot be linked. */
	atomic_store(&b->link_by_proc, false);
	atomic_store(&b->unnamed, false);
	kvt__file_new_discard(b, f);
	return !kvt__file_new_open(b, f, name) && !kvt__file_publish(b, f, name, true);
}

/* The umask may take bits of the modes away; then they are set again for each file and folder,
 * where the file system keeps modes at all. */
static void file_check_modes(struct file_backend *b, int fd, int folder)
{
	struct stat st;

	b->fix_file_mode = !fstat(fd, &st) && (st.st_mode & 07777) != b->file_mode &&
			   !fchmod(fd, b->file_mode) && !fstat(fd, &st) &&
			   (st.st_mode & 07777) == b->file_mode;
	b->fix_dir_mode = !fstat(folder, &st) && (st.st_mode & 0777) != b->dir_mode &&
			  !fchmod(folder, b->dir_mode) && !fstat(folder, &st) &&
			  (st.st_mode & 0777) == b->dir_mode;
}

bool kvt__file_probe(struct file_backend *b, enum file_direct wish)
{
	struct file_new f = {.fd = -1, .parent = -1, .direct = wish != FILE_DIRECT_OFF};
	char name[96];
	bool exclusive = true;
	int folder;

	atomic_store(&b->memory_align, FILE_PAGE);
	atomic_store(&b->offset_align, FILE_PAGE);
	/* A RAM disk's O_DIRECT is a copy with a detour. */
	if (wish == FILE_DIRECT_AUTO && b->memory)
		f.direct = false;
	folder = kvt__file_temp_folder(b, false);
	if (folder < 0) {
		/* Nothing can be written now, so nothing can be tried: reads find out. */
		if (f.direct && file_ask_alignment(b, b->root_fd)) {
			atomic_store(&b->direct_read, true);
			atomic_store(&b->direct_write, true);
		}
		return true;
	}
	snprintf(name, sizeof(name), FILE_TEMP_FOLDER "/%s/probe", b->temp_token);
	if (kvt__file_new_open(b, &f, name))
		return errno == ENOSPC || errno == EDQUOT || errno == EMFILE || errno == ENFILE;
	if (f.direct)
		file_try_direct(b, f.fd);
	file_check_modes(b, f.fd, folder);
	exclusive = file_try_link(b, &f, name);
	unlinkat(folder, kvt__file_leaf(name), 0);
	kvt__file_new_discard(b, &f);
	return exclusive;
}

void kvt__file_direct_failed(struct file_backend *b, bool write, bool page_aligned)
{
	if (!page_aligned && (atomic_load(&b->memory_align) < FILE_PAGE ||
			      atomic_load(&b->offset_align) < FILE_PAGE)) {
		atomic_store(&b->memory_align, FILE_PAGE);
		atomic_store(&b->offset_align, FILE_PAGE);
		return;
	}
	if (atomic_exchange(write ? &b->direct_write : &b->direct_read, false))
		b->host->log(b->host, KVT_HOST_INFO, "file: direct",
			     "%s: %s with O_DIRECT are refused, going on through the page cache",
			     b->root_path, write ? "writes" : "reads");
}
