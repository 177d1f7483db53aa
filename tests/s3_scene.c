/* SPDX-License-Identifier: Apache-2.0 */
/* The scene of tests of the S3 backend. */
#include "s3_scene.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern const struct kvt_backend_ops kvt__s3_backend_ops;

extern char **environ;

#define DEPTH 4u

static bool is_looked_at(const char *name)
{
	static const char *const names[] = {
		"http_proxy=", "https_proxy=", "HTTPS_PROXY=", "all_proxy=",
		"ALL_PROXY=",  "no_proxy=",    "NO_PROXY=",    "HOME="};

	if (strncmp(name, "AWS_", 4) == 0)
		return true;
	for (size_t i = 0; i < TEST_COUNT(names); i++)
		if (strncmp(name, names[i], strlen(names[i])) == 0)
			return true;
	return false;
}

static void empty_environment(void)
{
	for (size_t i = 0; environ[i];) {
		char name[64];

		if (!is_looked_at(environ[i])) {
			i++;
			continue;
		}
		snprintf(name, sizeof(name), "%.*s", (int)strcspn(environ[i], "="), environ[i]);
		(void)unsetenv(name);
	}
}

int s3_scene_setup(void **state)
{
	struct s3_scene *scene = calloc(1, sizeof(*scene));

	*state = scene;
	if (!scene)
		return -1;
	empty_environment();
	testhost_init(&scene->th);
	return 0;
}

int s3_scene_teardown(void **state)
{
	struct s3_scene *scene = *state;
	int result = 0;

	if (!scene)
		return 0;
	s3_scene_close(scene);
	s3_server_stop(scene->server);
	if (atomic_load(&scene->th.live)) {
		print_error("%ld allocations were not freed\n", atomic_load(&scene->th.live));
		result = -1;
	}
	for (size_t i = 0; i < scene->option_count; i++)
		free(scene->texts[i]);
	free(scene);
	return result;
}

/* ---- Opening ---- */

void s3_scene_serve(struct s3_scene *scene, const struct s3_server_options *options)
{
	struct s3_server_options o = options ? *options : (struct s3_server_options){0};
	const char *why = NULL;

	if (!o.access_key) {
		o.access_key = S3_SCENE_ACCESS_KEY;
		o.secret_key = S3_SCENE_SECRET;
	}
	scene->server = s3_server_start(&o, &why);
	if (!scene->server)
		fail_msg("the server does not start: %s", why);
}

void s3_scene_option(struct s3_scene *scene, const char *name, const char *value)
{
	size_t i = 0;

	while (i < scene->option_count && strcmp(scene->options[i].name, name) != 0)
		i++;
	assert_true(i < TEST_COUNT(scene->options));
	if (i == scene->option_count)
		scene->option_count++;
	free(scene->texts[i]);
	scene->texts[i] = strdup(value);
	scene->options[i] = (struct kvt_option_value){name, scene->texts[i]};
}

static bool has_option(const struct s3_scene *scene, const char *name)
{
	for (size_t i = 0; i < scene->option_count; i++)
		if (strcmp(scene->options[i].name, name) == 0)
			return true;
	return false;
}

int s3_scene_try_open(struct s3_scene *scene)
{
	int result;

	if (!has_option(scene, "endpoint"))
		s3_scene_option(scene, "endpoint", s3_server_url(scene->server));
	if (!has_option(scene, "access_key")) {
		s3_scene_option(scene, "access_key", S3_SCENE_ACCESS_KEY);
		s3_scene_option(scene, "secret_key", S3_SCENE_SECRET);
	}
	result = testbackend_open(
		&scene->tb, &scene->th,
		&(struct testbackend_options){.ops = &kvt__s3_backend_ops,
					      .location = "//bucket/" S3_SCENE_PREFIX,
					      .options = scene->options,
					      .option_count = scene->option_count});
	if (result)
		return result;
	result = testsession_open(&scene->ts, &scene->tb, DEPTH, 0);
	if (result)
		testbackend_close(&scene->tb);
	scene->is_open = result == 0;
	return result;
}

void s3_scene_open(struct s3_scene *scene)
{
	int result = s3_scene_try_open(scene);

	if (result)
		fail_msg("open: %s: %s", testhost_code(result), testhost_failure());
}

void s3_scene_close(struct s3_scene *scene)
{
	if (!scene->is_open)
		return;
	testsession_close(&scene->ts);
	testbackend_close(&scene->tb);
	scene->is_open = false;
}

void s3_scene_start(struct s3_scene *scene, unsigned traits)
{
	s3_scene_serve(scene, &(struct s3_server_options){.traits = traits});
	s3_scene_open(scene);
}

void s3_scene_rule(struct s3_scene *scene, const char *format, ...)
{
	const char *wrong;
	char text[1024];
	va_list ap;

	va_start(ap, format);
	vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	wrong = s3_server_add_rule_text(scene->server, text);
	if (wrong)
		fail_msg("rule '%s': %s", text, wrong);
}

/* ---- Requests ---- */

static int run(struct s3_scene *scene, struct testio *t)
{
	/* What a backend has to set itself. */
	memset(&t->io.info, 0x3c, sizeof(t->io.info));
	t->io.bytes_landed = UINT64_C(0x3c3c3c3c3c3c3c3c);
	t->io.retry_after_ns = 0;
	if (scene->time_ms)
		t->io.deadline_ns =
			scene->th.host.now_ns() + (int64_t)scene->time_ms * INT64_C(1000000);
	if (testio_prepare(t, &scene->ts))
		fail_msg("out of memory");
	(void)testio_submit(t);
	scene->was_answered_at_once = t->done != 0;
	scene->result = testio_wait(t);
	if (!testio_private_intact(t) || t->late || t->completions > 1)
		fail_msg("the io was not completed as it should be");
	/* What is known without asking is no news. */
	if (scene->result && !scene->was_answered_at_once && !t->detail[0])
		fail_msg("%s: a failure without a word", testhost_code(scene->result));
	testio_release(t);
	memcpy(scene->detail, t->detail, sizeof(scene->detail));
	scene->info = t->io.info;
	scene->landed = t->io.bytes_landed;
	scene->retry_after_ns = t->io.retry_after_ns;
	scene->swept = t->io.swept;
	return scene->result;
}

static uint32_t with_version(uint32_t flags, const struct kvt_version *if_version)
{
	return flags | (if_version ? KVT_IO_IF_VERSION : 0);
}

int s3_scene_put(struct s3_scene *scene, const char *name, uint64_t bytes, uint64_t seed,
		 uint32_t flags, const struct kvt_version *if_version)
{
	struct contract_buffer buffer = contract_buffer_make(bytes, 1);
	struct kvt_iovec iov[2] = {{buffer.data, bytes / 3},
				   {buffer.data + bytes / 3, bytes - bytes / 3}};
	struct testio t = {.io = {.op = KVT_IO_PUT,
				  .flags = with_version(flags, if_version),
				  .name = name,
				  .iov = iov,
				  .iov_count = 2,
				  .length = bytes,
				  .object_bytes = bytes,
				  .if_version = if_version}};

	contract_fill(buffer.data, bytes, seed, 0);
	t.io.crc32c = scene->th.host.crc32c(0, buffer.data, bytes);
	run(scene, &t);
	assert_true(contract_match(buffer.data, bytes, seed, 0));
	contract_buffer_free(&buffer);
	return scene->result;
}

int s3_scene_get(struct s3_scene *scene, const char *name, uint64_t bytes, int64_t offset,
		 uint64_t seed, const struct kvt_version *if_version)
{
	struct contract_buffer buffer = contract_buffer_make(bytes, 1);
	struct kvt_iovec iov[2] = {{buffer.data, bytes / 3},
				   {buffer.data + bytes / 3, bytes - bytes / 3}};
	struct testio t = {.io = {.op = KVT_IO_GET,
				  .flags = with_version(0, if_version),
				  .name = name,
				  .iov = iov,
				  .iov_count = 2,
				  .length = bytes,
				  .offset = offset,
				  .if_version = if_version}};
	uint64_t at;

	run(scene, &t);
	if (scene->landed > bytes)
		fail_msg("%llu bytes landed of %llu", (unsigned long long)scene->landed,
			 (unsigned long long)bytes);
	if (scene->result == 0) {
		at = offset < 0 ? scene->info.object_bytes - (uint64_t)-offset : (uint64_t)offset;
		assert_int_equal(scene->landed, bytes);
		assert_true(contract_match(buffer.data, bytes, seed, at));
	}
	contract_buffer_free(&buffer);
	return scene->result;
}

static int simple(struct s3_scene *scene, struct kvt_io io)
{
	struct testio t = {.io = io};

	return run(scene, &t);
}

int s3_scene_head(struct s3_scene *scene, const char *name, uint32_t flags)
{
	return simple(scene, (struct kvt_io){.op = KVT_IO_HEAD, .name = name, .flags = flags});
}

int s3_scene_remove(struct s3_scene *scene, const char *name, const struct kvt_version *if_version)
{
	return simple(scene, (struct kvt_io){.op = KVT_IO_REMOVE,
					     .name = name,
					     .flags = with_version(0, if_version),
					     .if_version = if_version});
}

int s3_scene_sweep(struct s3_scene *scene, uint32_t age_s)
{
	return simple(scene, (struct kvt_io){.op = KVT_IO_SWEEP, .name = "", .sweep_age_s = age_s});
}

int s3_scene_begin(struct s3_scene *scene, const char *name, uint64_t object_bytes, void **handlep)
{
	struct testio t = {.io = {.op = KVT_IO_BEGIN, .name = name, .object_bytes = object_bytes}};

	run(scene, &t);
	*handlep = t.io.handle;
	return scene->result;
}

int s3_scene_part(struct s3_scene *scene, const char *name, void *handle, uint32_t number,
		  uint64_t offset, uint64_t bytes, uint64_t object_bytes, uint64_t seed)
{
	struct contract_buffer buffer = contract_buffer_make(bytes, 1);
	struct kvt_iovec iov = {buffer.data, bytes};
	struct testio t = {.io = {.op = KVT_IO_PART,
				  .name = name,
				  .iov = &iov,
				  .iov_count = 1,
				  .part_number = number,
				  .length = bytes,
				  .offset = (int64_t)offset,
				  .object_bytes = object_bytes,
				  .handle = handle}};

	contract_fill(buffer.data, bytes, seed, offset);
	run(scene, &t);
	contract_buffer_free(&buffer);
	return scene->result;
}

int s3_scene_commit(struct s3_scene *scene, const char *name, void *handle, uint64_t object_bytes,
		    uint32_t flags, const struct kvt_version *if_version)
{
	return simple(scene, (struct kvt_io){.op = KVT_IO_COMMIT,
					     .name = name,
					     .handle = handle,
					     .object_bytes = object_bytes,
					     .flags = with_version(flags, if_version),
					     .if_version = if_version});
}

int s3_scene_abort(struct s3_scene *scene, const char *name, void *handle)
{
	return simple(scene, (struct kvt_io){.op = KVT_IO_ABORT, .name = name, .handle = handle});
}

bool s3_scene_give_longer(struct s3_scene *scene, bool reached)
{
	if (reached) {
		scene->time_ms = 0;
		s3_server_clear_rules(scene->server);
		return false;
	}
	scene->time_ms = scene->time_ms ? 2 * scene->time_ms : 250;
	if (scene->time_ms > 100000)
		fail_msg("no deadline is long enough: %s", scene->detail);
	return true;
}

/* ---- The other side ---- */

static char *key_of(const char *name)
{
	return test_format("%s/%s", S3_SCENE_PREFIX, name);
}

void s3_scene_plant(struct s3_scene *scene, const char *name, uint64_t bytes, uint64_t seed)
{
	uint8_t *data = malloc(bytes + 1);
	char *key = key_of(name);

	assert_non_null(data);
	contract_fill(data, bytes, seed, 0);
	assert_true(s3_server_put(scene->server, key, data, bytes));
	free(key);
	free(data);
}

bool s3_scene_has(struct s3_scene *scene, const char *name, uint64_t bytes, uint64_t seed)
{
	char *key = key_of(name);
	uint64_t got = 0;
	uint8_t *data = s3_server_get(scene->server, key, &got);
	bool has = data && got == bytes && contract_match(data, bytes, seed, 0);

	free(data);
	free(key);
	return has;
}

void s3_scene_expect(struct s3_scene *scene, const char *what, int expected, const char *text)
{
	if (scene->result != expected)
		fail_msg("%s: %s, expected %s: %s", what, testhost_code(scene->result),
			 testhost_code(expected), scene->detail);
	if (text && !strstr(scene->detail, text))
		fail_msg("%s: '%s' is not in '%s'", what, text, scene->detail);
	if (strchr(scene->detail, '\n') || strstr(scene->detail, S3_SCENE_SECRET))
		fail_msg("%s: a detail of several lines, or with a secret", what);
}

uint64_t s3_scene_seen(struct s3_scene *scene, unsigned ops)
{
	return s3_server_seen(scene->server, ops);
}

uint64_t s3_scene_connections(struct s3_scene *scene)
{
	struct s3_server_counts counts;

	s3_server_count(scene->server, &counts);
	return counts.connections;
}
