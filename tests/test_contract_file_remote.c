/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file backend keeps the contract on what it takes for a network file system, where every
 * request runs on the pool: this program's fstatfs says that all files lie on NFS.
 */
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "contract.h"

#define NFS_MAGIC 0x6969

extern const struct kvt_backend_ops kvt__file_backend_ops;

int fstatfs(int fd, struct statfs *fs)
{
	long result = syscall(SYS_fstatfs, fd, fs);

	fs->f_type = NFS_MAGIC;
	return (int)result;
}

int main(void)
{
	return contract_run(&(struct contract_backend){
		.name = "file on a network file system",
		.ops = &kvt__file_backend_ops,
		.capabilities =
			KVT_CAP_IF_ABSENT | KVT_CAP_HOLES | KVT_CAP_RAW_FILES | KVT_CAP_TOUCH,
		.make_location = contract_directory_make,
		.remove_location = contract_directory_remove,
	});
}
