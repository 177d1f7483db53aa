/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a fuzz target over files that are kept: each argument is a file or a folder of files. A
 * target that finds fault aborts. Fails when there was nothing to run. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static size_t replayed;

static int replay_file(const char *path)
{
	FILE *file = fopen(path, "rb");
	uint8_t *data = NULL;
	struct stat info;
	int failed = 1;

	if (!file || fstat(fileno(file), &info) != 0) {
		perror(path);
		goto out;
	}
	/* Exactly as long as the file, so that a sanitizer sees every step beyond. */
	size_t size = (size_t)info.st_size;
	data = malloc(size ? size : 1);
	if (!data || fread(data, 1, size, file) != size) {
		fprintf(stderr, "%s: cannot be read\n", path);
		goto out;
	}
	(void)LLVMFuzzerTestOneInput(data, size);
	replayed++;
	failed = 0;
out:
	free(data);
	if (file)
		(void)fclose(file);
	return failed;
}

static int replay_folder(const char *path)
{
	DIR *folder = opendir(path);
	const struct dirent *entry;
	int failed = 0;

	if (!folder) {
		perror(path);
		return 1;
	}
	while ((entry = readdir(folder)) != NULL) {
		char name[4096];
		if (entry->d_name[0] == '.')
			continue;
		(void)snprintf(name, sizeof(name), "%s/%s", path, entry->d_name);
		failed |= replay_file(name);
	}
	(void)closedir(folder);
	return failed;
}

int main(int argc, char **argv)
{
	int failed = 0;

	for (int i = 1; i < argc; i++) {
		struct stat info;
		if (stat(argv[i], &info) == 0 && S_ISDIR(info.st_mode))
			failed |= replay_folder(argv[i]);
		else
			failed |= replay_file(argv[i]);
	}
	printf("%zu inputs\n", replayed);
	return failed || replayed == 0;
}
