/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A host and an environment of its own for tests that read the configuration of an S3 store: no
 * AWS_ variable and no proxy is set, HOME is a new folder, and everything is put back afterwards.
 * Whatever is read, no message and no memory that is given back may have SCENE_SECRET in it.
 */
#ifndef KVT_TESTS_S3_CONFIG_SCENE_H
#define KVT_TESTS_S3_CONFIG_SCENE_H

#include "support.h"
#include "testhost.h"

#include "../backends/s3/config.h"

#define SCENE_SECRET	  "hunter2hunter2"
#define SCENE_MAX_OPTIONS 16
#define SCENE_MAX_SAVED	  64

struct scene {
	struct testhost th;
	struct s3_config s3;
	char *home;
	char log[4096]; /* all lines of the last reading */
	bool secret_in_log;
	bool secret_is_free;	      /* memory was given back with it inside */
	char *saved[SCENE_MAX_SAVED]; /* NAME=VALUE */
	char *names[SCENE_MAX_OPTIONS];
	struct kvt_option_value options[SCENE_MAX_OPTIONS];
};

int scene_setup(void **state);
int scene_teardown(void **state);

/* NULL: not set. */
void scene_environment(const char *name, const char *value);
/* Writes $HOME/.aws/<name>. */
void scene_profile_file(struct scene *scene, const char *name, const char *text);

/* Reads a configuration with these options, "name=value" each, ended by NULL; what was read before
 * is dropped first. Checks what holds for every failure: one line is said, and nothing is left. */
int scene_read(struct scene *scene, const char *location, ...);
/* The same with options as a list. */
int scene_read_list(struct scene *scene, const char *location, const char *const *options);
/* What it said, "" after a success. */
const char *scene_failure(void);

/* Asserts that it fails with the code and says `text`. */
#define assert_refused(code, text, scene, ...)                                                     \
	scene_refused((code), (text), scene_read((scene), __VA_ARGS__, NULL), __FILE__, __LINE__)
#define assert_read(scene, ...)                                                                    \
	scene_refused(0, "", scene_read((scene), __VA_ARGS__, NULL), __FILE__, __LINE__)
void scene_refused(int expected, const char *text, int got, const char *file, int line);

/* The value of a header that is added; NULL when there is none. */
const struct s3_header *scene_header(const struct scene *scene, const char *name);

#endif
