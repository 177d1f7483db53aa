/* SPDX-License-Identifier: Apache-2.0 */
/* From errno to the library's codes: the one place where failures are classified. Any thread. */
#include "file.h"

#include <string.h>

static const struct {
	int err, code;
} codes[] = {
	{ENOENT, KVT_ENOENT},
	{EEXIST, KVT_EEXIST},
	{ENOMEM, KVT_ENOMEM},
	{ENOSPC, KVT_ENOSPC},
	{EDQUOT, KVT_ENOSPC},
	{EMFILE, KVT_EMFILE},
	{ENFILE, KVT_EMFILE},
	{EACCES, KVT_EACCES},
	{EPERM, KVT_EACCES},
	{EROFS, KVT_EROFS},
	{ETIMEDOUT, KVT_ETIMEDOUT},
	/* Something that is no file or folder of ours lies in the way: an operator has to look. */
	{ELOOP, KVT_EACCES},
	{EXDEV, KVT_EACCES},
	{EISDIR, KVT_EACCES},
	{ENOTDIR, KVT_EACCES},
	/* No file can have this name or length here. */
	{ENAMETOOLONG, KVT_EINVAL},
	{EFBIG, KVT_EINVAL},
	{EFAULT, KVT_EFAULT},
};

int kvt__file_error(int err)
{
	for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++)
		if (codes[i].err == err)
			return codes[i].code;
	return KVT_EIO;
}

const char *kvt__file_error_text(int err)
{
	const char *text = strerrordesc_np(err);

	return text ? text : "unknown error";
}
