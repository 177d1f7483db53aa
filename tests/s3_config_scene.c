/* SPDX-License-Identifier: Apache-2.0 */
/* A host and an environment of its own for tests of the S3 configuration. */
#include "s3_config_scene.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern char **environ;

static const char *const scene_prefixes[] = {"AWS_", "HOME=", "http_proxy=", "https_proxy="};

static struct scene *current;

static void scene_log(const struct kvt_host *host, enum kvt_host_log_level level, const char *topic,
		      const char *format, ...)
{
	size_t used = strlen(current->log);
	va_list ap;

	(void)host;
	(void)level;
	(void)topic;
	va_start(ap, format);
	(void)vsnprintf(current->log + used, sizeof(current->log) - used, format, ap);
	va_end(ap);
	if (strstr(current->log, SCENE_SECRET) != NULL)
		current->secret_in_log = true;
}

static void (*scene_real_free)(const struct kvt_host *host, void *memory);

static void *(*scene_real_alloc)(const struct kvt_host *host, size_t bytes, size_t alignment);

/* Without what the test itself has left in the heap. */
static void *scene_alloc(const struct kvt_host *host, size_t bytes, size_t alignment)
{
	void *memory = scene_real_alloc(host, bytes, alignment);

	if (memory != NULL)
		memset(memory, 0, malloc_usable_size(memory));
	return memory;
}

static void scene_free(const struct kvt_host *host, void *memory)
{
	if (memory != NULL &&
	    memmem(memory, malloc_usable_size(memory), SCENE_SECRET, strlen(SCENE_SECRET)) != NULL)
		current->secret_is_free = true;
	scene_real_free(host, memory);
}

static bool scene_is_ours(const char *variable)
{
	for (size_t i = 0; i < TEST_COUNT(scene_prefixes); i++)
		if (strncmp(variable, scene_prefixes[i], strlen(scene_prefixes[i])) == 0)
			return true;
	return false;
}

static void scene_clear_environment(void)
{
	for (size_t i = 0; environ[i] != NULL;) {
		char name[128];

		if (!scene_is_ours(environ[i])) {
			i++;
			continue;
		}
		(void)snprintf(name, sizeof(name), "%.*s", (int)strcspn(environ[i], "="),
			       environ[i]);
		(void)unsetenv(name);
	}
}

int scene_setup(void **state)
{
	struct scene *scene = calloc(1, sizeof(*scene));
	size_t count = 0;

	if (scene == NULL)
		return -1;
	for (size_t i = 0; environ[i] != NULL && count + 1 < SCENE_MAX_SAVED; i++)
		if (scene_is_ours(environ[i]))
			scene->saved[count++] = strdup(environ[i]);
	scene_clear_environment();
	testhost_init(&scene->th);
	scene_real_free = scene->th.host.free;
	scene->th.host.free = scene_free;
	scene_real_alloc = scene->th.host.alloc;
	scene->th.host.alloc = scene_alloc;
	scene->th.host.log = scene_log;
	scene->home = test_temp_dir();
	scene_environment("HOME", scene->home);
	current = scene;
	*state = scene;
	return 0;
}

static void scene_drop(struct scene *scene)
{
	kvt__s3_config_fini(&scene->s3);
	for (size_t i = 0; i < SCENE_MAX_OPTIONS; i++) {
		free(scene->names[i]);
		scene->names[i] = NULL;
	}
}

int scene_teardown(void **state)
{
	struct scene *scene = *state;
	bool is_clean;

	scene_drop(scene);
	is_clean = atomic_load(&scene->th.live) == 0 && !scene->secret_in_log &&
		   !scene->secret_is_free;
	if (!is_clean)
		print_error("%ld blocks are left, a secret was %slogged, freed memory %s\n",
			    atomic_load(&scene->th.live), scene->secret_in_log ? "" : "not ",
			    scene->secret_is_free ? "has a secret in it" : "is clean");
	scene_clear_environment();
	for (size_t i = 0; scene->saved[i] != NULL; i++) {
		char *equals = strchr(scene->saved[i], '=');

		*equals = '\0';
		(void)setenv(scene->saved[i], equals + 1, 1);
		free(scene->saved[i]);
	}
	test_remove_tree(scene->home);
	free(scene);
	current = NULL;
	return is_clean ? 0 : -1;
}

void scene_environment(const char *name, const char *value)
{
	if (value != NULL)
		assert_int_equal(setenv(name, value, 1), 0);
	else
		assert_int_equal(unsetenv(name), 0);
}

void scene_profile_file(struct scene *scene, const char *name, const char *text)
{
	char *path = test_format("%s/.aws/%s", scene->home, name);

	test_write_file(path, text, strlen(text));
	free(path);
}

const char *scene_failure(void)
{
	return testhost_failure();
}

static void scene_check_failure(struct scene *scene, int error)
{
	static const struct s3_config nothing;
	const char *said = scene_failure();

	if (error == 0)
		return;
	assert_string_not_equal(said, "");
	assert_null(strchr(said, '\n'));
	assert_null(strstr(said, SCENE_SECRET));
	assert_int_equal(atomic_load(&scene->th.live), 0);
	assert_memory_equal(&scene->s3, &nothing, sizeof(nothing));
}

static int scene_read_options(struct scene *scene, const char *location, size_t count)
{
	struct kvt_backend_config config = {
		.struct_size = sizeof(config),
		.location = location,
		.options = scene->options,
		.option_count = count,
	};
	int error;

	testhost_forget();
	scene->log[0] = '\0';
	error = kvt__s3_config_init(&scene->s3, &scene->th.host, &config);
	scene_check_failure(scene, error);
	return error;
}

static void scene_add(struct scene *scene, size_t at, const char *text)
{
	char *equals;

	assert_true(at < SCENE_MAX_OPTIONS);
	scene->names[at] = strdup(text);
	assert_non_null(scene->names[at]);
	equals = strchr(scene->names[at], '=');
	assert_non_null(equals);
	*equals = '\0';
	scene->options[at] = (struct kvt_option_value){scene->names[at], equals + 1};
}

int scene_read(struct scene *scene, const char *location, ...)
{
	size_t count = 0;
	va_list ap;

	scene_drop(scene);
	va_start(ap, location);
	for (const char *text; (text = va_arg(ap, const char *)) != NULL; count++)
		scene_add(scene, count, text);
	va_end(ap);
	return scene_read_options(scene, location, count);
}

int scene_read_list(struct scene *scene, const char *location, const char *const *options)
{
	size_t count = 0;

	scene_drop(scene);
	for (; options[count] != NULL; count++)
		scene_add(scene, count, options[count]);
	return scene_read_options(scene, location, count);
}

void scene_refused(int expected, const char *text, int got, const char *file, int line)
{
	if (got == expected && (got == 0 || strstr(scene_failure(), text) != NULL))
		return;
	print_error("%s: expected %s with \"%s\", said: \"%s\"\n", testhost_code(got),
		    testhost_code(expected), text, scene_failure());
	_fail(file, line);
}

const struct s3_header *scene_header(const struct scene *scene, const char *name)
{
	for (size_t i = 0; i < scene->s3.header_count; i++)
		if (strcmp(scene->s3.headers[i].name, name) == 0)
			return &scene->s3.headers[i];
	return NULL;
}
