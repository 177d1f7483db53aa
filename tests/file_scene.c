/* SPDX-License-Identifier: Apache-2.0 */
/* See file_scene.h. */
#include "file_scene.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define DEPTH 8

static char last_detail[256];

void file_scene_init(struct file_scene *fs, char *root)
{
	memset(fs, 0, sizeof(*fs));
	fs->root = root;
	testhost_init(&fs->th);
}

void file_scene_option(struct file_scene *fs, const char *name, const char *value)
{
	fs->options[fs->option_count++] = (struct kvt_option_value){name, value};
}

int file_scene_try(struct file_scene *fs)
{
	char location[4096];
	int result;

	snprintf(location, sizeof(location), "//%s", fs->root);
	testhost_forget();
	result = testbackend_open(&fs->tb, &fs->th,
				  &(struct testbackend_options){
					  .ops = &kvt__file_backend_ops,
					  .location = location,
					  .options = fs->options,
					  .option_count = fs->option_count,
				  });
	fs->opened = result == 0;
	return result;
}

int file_scene_session(struct file_scene *fs, uint32_t depth, int listing)
{
	int result = testsession_open(&fs->ts, &fs->tb, depth, listing);

	fs->has_session = result == 0;
	return result;
}

void file_scene_open(struct file_scene *fs)
{
	int result = file_scene_try(fs);

	if (!result)
		result = file_scene_session(fs, DEPTH, 0);
	if (result)
		fail_msg("%s: %s", fs->root, testhost_failure());
}

void file_scene_close(struct file_scene *fs)
{
	if (fs->has_session)
		testsession_close(&fs->ts);
	if (fs->opened)
		testbackend_close(&fs->tb);
	fs->has_session = fs->opened = false;
}

void file_scene_fini(struct file_scene *fs)
{
	file_scene_close(fs);
	assert_int_equal(atomic_load(&fs->th.live), 0);
	test_remove_tree(fs->root);
	fs->root = NULL;
}

bool file_scene_says(const struct file_scene *fs, const char *text)
{
	return strstr(fs->tb.limits.detail, text) != NULL;
}

char *file_scene_path(const struct file_scene *fs, const char *name)
{
	return test_format("%s/%s", fs->root, name);
}

bool file_scene_has(const struct file_scene *fs, const char *name)
{
	char path[4096];
	struct stat st;

	snprintf(path, sizeof(path), "%s/%s", fs->root, name);
	return !lstat(path, &st);
}

void file_scene_leftovers(const struct file_scene *fs, size_t *foldersp, size_t *filesp)
{
	char *path = file_scene_path(fs, ".kvtier/tmp");
	DIR *dir = opendir(path);
	struct dirent *entry;

	*foldersp = 0;
	*filesp = test_count_files(path, NULL);
	while (dir && (entry = readdir(dir))) {
		char *lock;

		if (entry->d_name[0] == '.')
			continue;
		++*foldersp;
		lock = test_format("%s/%s/lock", path, entry->d_name);
		*filesp -= !access(lock, F_OK);
		free(lock);
	}
	if (dir)
		closedir(dir);
	free(path);
}

/* Runs one io over memory that is page-aligned or just not. */
static int run_io(struct file_scene *fs, struct testio *t, uint8_t *memory, size_t bytes)
{
	struct kvt_iovec iov = {memory, bytes};
	int result;

	t->io.iov = &iov;
	t->io.iov_count = 1;
	t->io.length = t->io.object_bytes = bytes;
	result = testsession_run(&fs->ts, t);
	if (result)
		snprintf(last_detail, sizeof(last_detail), "%s", t->detail);
	return result;
}

int file_scene_put(struct file_scene *fs, const char *name, size_t bytes, uint64_t seed,
		   uint32_t flags, bool crooked)
{
	struct testio t = {.io = {.op = KVT_IO_PUT, .name = name, .flags = flags}};
	void *memory;
	int result;

	if (posix_memalign(&memory, 4096, bytes + 1))
		return KVT_ENOMEM;
	test_fill((uint8_t *)memory + crooked, bytes, seed);
	result = run_io(fs, &t, (uint8_t *)memory + crooked, bytes);
	free(memory);
	return result;
}

int file_scene_get(struct file_scene *fs, const char *name, size_t bytes, uint64_t seed,
		   bool crooked)
{
	struct testio t = {.io = {.op = KVT_IO_GET, .name = name}};
	void *memory;
	int result;

	if (posix_memalign(&memory, 4096, bytes + 1))
		return KVT_ENOMEM;
	memset(memory, 0xee, bytes + 1);
	result = run_io(fs, &t, (uint8_t *)memory + crooked, bytes);
	if (!result && !test_is_filled((uint8_t *)memory + crooked, bytes, seed))
		result = KVT_ECORRUPT;
	free(memory);
	return result;
}

const char *file_scene_detail(const struct file_scene *fs)
{
	(void)fs;
	return last_detail;
}

int file_scene_fork(int (*child)(struct file_scene *fs), struct file_scene *fs)
{
	int status;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (pid < 0)
		return -1;
	if (pid == 0)
		_exit(child(fs));
	if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
		return -1;
	return WEXITSTATUS(status);
}
