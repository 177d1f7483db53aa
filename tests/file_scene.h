/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file backend opened on a folder, with one session, for the tests that are about files alone.
 * What returns int or bool asserts nothing, so that forked children may use it; the others fail
 * the running test.
 */
#ifndef KVT_TESTS_FILE_SCENE_H
#define KVT_TESTS_FILE_SCENE_H

#include "support.h"
#include "testhost.h"

extern const struct kvt_backend_ops kvt__file_backend_ops;

struct file_scene {
	struct testhost th;
	struct testbackend tb;
	struct testsession ts;
	char *root; /* owned */
	struct kvt_option_value options[6];
	size_t option_count;
	bool opened, has_session;
};

/* Takes the folder over. */
void file_scene_init(struct file_scene *fs, char *root);
void file_scene_option(struct file_scene *fs, const char *name, const char *value);
/* Opens the backend. 0 or its error; testhost_failure says why. */
int file_scene_try(struct file_scene *fs);
/* And a session on the calling thread. */
int file_scene_session(struct file_scene *fs, uint32_t depth, int listing);
/* Both, which must work. */
void file_scene_open(struct file_scene *fs);
/* Closes what is open. */
void file_scene_close(struct file_scene *fs);
/* And removes the folder. */
void file_scene_fini(struct file_scene *fs);

/* Whether the backend's detail says this, for example "engine=uring". */
bool file_scene_says(const struct file_scene *fs, const char *text);
/* An allocated path below the root. */
char *file_scene_path(const struct file_scene *fs, const char *name);
bool file_scene_has(const struct file_scene *fs, const char *name);
/* How many folders of processes lie in the temporary folder, and how many files in them, but for
 * their locks. */
void file_scene_leftovers(const struct file_scene *fs, size_t *foldersp, size_t *filesp);

/* Objects whose bytes follow from a seed; page-aligned memory, or one byte beside it. The result of
 * the put; of the get, KVT_ECORRUPT when the bytes are wrong. */
int file_scene_put(struct file_scene *fs, const char *name, size_t bytes, uint64_t seed,
		   uint32_t flags, bool crooked);
int file_scene_get(struct file_scene *fs, const char *name, size_t bytes, uint64_t seed,
		   bool crooked);
/* The detail of the last of them that failed. */
const char *file_scene_detail(const struct file_scene *fs);

/* Runs `child` in a forked child and returns its answer, 0 to 125, or -1 when it died. */
int file_scene_fork(int (*child)(struct file_scene *fs), struct file_scene *fs);

#endif
