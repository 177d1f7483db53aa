/* SPDX-License-Identifier: Apache-2.0 */
/* The module on libs3 against the S3 server in memory. */
#include "libs3_scene.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CANARY_BYTES 64u
#define CANARY	     0xc7

const struct kvt_backend_ops *libs3_ops;

void *libs3_symbol(const char *path, const char *name)
{
	void *module = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);

	return module ? dlsym(module, name) : NULL;
}

const struct kvt_backend_ops *libs3_load(const char *path)
{
	static struct testhost th;
	void *symbol = libs3_symbol(path, KVT_BACKEND_ENTRY);
	kvt_backend_entry_fn entry;

	if (!symbol) {
		printf("skipped: the module on libs3 is not built: %s\n", dlerror());
		return NULL;
	}
	memcpy(&entry, &symbol, sizeof(entry));
	testhost_init(&th);
	return entry(&th.host);
}

void libs3_clear_environment(void)
{
	static const char *const names[] = {"AWS_ACCESS_KEY_ID",   "AWS_SECRET_ACCESS_KEY",
					    "AWS_SESSION_TOKEN",   "AWS_REGION",
					    "AWS_DEFAULT_REGION",  "AWS_ENDPOINT_URL",
					    "AWS_ENDPOINT_URL_S3", "http_proxy",
					    "https_proxy",	   "all_proxy",
					    "HTTPS_PROXY",	   "ALL_PROXY"};

	for (size_t i = 0; i < TEST_COUNT(names); i++)
		unsetenv(names[i]);
}

static void add_option(struct libs3_scene *scene, const char *name, const char *value)
{
	scene->options[scene->option_count++] = (struct kvt_option_value){name, value};
}

int libs3_set_up(void **state)
{
	struct libs3_scene *scene = calloc(1, sizeof(*scene));
	const char *why = "";
	int error;

	*state = scene;
	if (!scene)
		return -1;
	scene->server = s3_server_start(&(struct s3_server_options){0}, &why);
	if (!scene->server) {
		print_error("no server: %s\n", why);
		return -1;
	}
	snprintf(scene->url, sizeof(scene->url), "%s", s3_server_url(scene->server));
	testhost_init(&scene->th);
	add_option(scene, "endpoint", scene->url);
	add_option(scene, "access_key", "key");
	add_option(scene, "secret_key", "secret");
	error = testbackend_open(
		&scene->tb, &scene->th,
		&(struct testbackend_options){.ops = libs3_ops,
					      .location = "//bucket/p",
					      .options = scene->options,
					      .option_count = scene->option_count});
	if (error) {
		print_error("%s: %s\n", testhost_code(error), testhost_failure());
		return -1;
	}
	scene->opened = true;
	return testsession_open(&scene->ts, &scene->tb, 1, 0);
}

int libs3_tear_down(void **state)
{
	struct libs3_scene *scene = *state;
	long live = 0;

	if (!scene)
		return 0;
	if (scene->opened) {
		testsession_close(&scene->ts);
		testbackend_close(&scene->tb);
		live = atomic_load(&scene->th.live);
	}
	s3_server_stop(scene->server);
	free(scene);
	if (live)
		print_error("%ld allocations were not freed\n", live);
	return live ? -1 : 0;
}

void libs3_rule(struct libs3_scene *scene, const char *text)
{
	const char *wrong = s3_server_add_rule_text(scene->server, text);

	if (wrong)
		fail_msg("%s: %s", text, wrong);
}

int libs3_run(struct libs3_scene *scene, struct libs3_request *r, uint32_t op, const char *name,
	      uint64_t bytes, int64_t offset)
{
	uint8_t *base = malloc((size_t)bytes + 2 * CANARY_BYTES);
	int result;

	assert_non_null(base);
	memset(base, CANARY, (size_t)bytes + 2 * CANARY_BYTES);
	if (r->memory)
		memcpy(base + CANARY_BYTES, r->memory, (size_t)bytes);
	r->iov = (struct kvt_iovec){base + CANARY_BYTES, bytes};
	r->t.io.op = op;
	r->t.io.name = name;
	r->t.io.iov = &r->iov;
	r->t.io.iov_count = bytes > 0;
	r->t.io.length = bytes;
	r->t.io.object_bytes = op == KVT_IO_GET ? 0 : bytes;
	r->t.io.offset = offset;
	result = testsession_run(&scene->ts, &r->t);
	for (size_t i = 0; i < CANARY_BYTES; i++) {
		assert_int_equal(base[i], CANARY);
		assert_int_equal(base[CANARY_BYTES + bytes + i], CANARY);
	}
	assert_null(strchr(r->t.detail, '\n'));
	if (result)
		assert_string_not_equal(r->t.detail, "");
	if (op == KVT_IO_GET && r->memory)
		memcpy(r->memory, base + CANARY_BYTES, (size_t)bytes);
	free(base);
	return result;
}

int libs3_put(struct libs3_scene *scene, const char *name, uint64_t bytes, uint64_t seed,
	      char detail[256])
{
	struct libs3_request r = {.memory = malloc((size_t)bytes + 1)};
	int result;

	assert_non_null(r.memory);
	test_fill(r.memory, (size_t)bytes, seed);
	result = libs3_run(scene, &r, KVT_IO_PUT, name, bytes, 0);
	if (detail)
		memcpy(detail, r.t.detail, 256);
	free(r.memory);
	return result;
}

int libs3_get(struct libs3_scene *scene, const char *name, uint64_t object_bytes, uint64_t seed,
	      int64_t offset, uint64_t bytes, char detail[256])
{
	struct libs3_request r = {.memory = calloc(1, (size_t)bytes + 1)};
	uint8_t *object = malloc((size_t)object_bytes + 1);
	uint64_t at = (uint64_t)offset + (offset < 0 ? object_bytes : 0);
	int result;

	assert_non_null(r.memory);
	assert_non_null(object);
	test_fill(object, (size_t)object_bytes, seed);
	result = libs3_run(scene, &r, KVT_IO_GET, name, bytes, offset);
	if (!result) {
		assert_int_equal(r.t.io.bytes_landed, bytes);
		assert_int_equal(r.t.io.info.object_bytes, object_bytes);
		assert_memory_equal(r.memory, object + at, (size_t)bytes);
	}
	assert_true(r.t.io.bytes_landed <= bytes);
	if (detail)
		memcpy(detail, r.t.detail, 256);
	free(object);
	free(r.memory);
	return result;
}

void libs3_expect(struct libs3_scene *scene, const char *name, uint64_t bytes, uint64_t seed)
{
	char *key = test_format("p/%s", name);
	uint64_t there = 0;
	uint8_t *data = s3_server_get(scene->server, key, &there);

	assert_non_null(data);
	assert_int_equal(there, bytes);
	assert_true(test_is_filled(data, (size_t)bytes, seed));
	free(data);
	free(key);
}

static int keep_age(struct kvt_io *io, const struct kvt_list_item *item)
{
	*(int64_t *)io->owner = item->info.age_ns;
	return 0;
}

static int64_t age_in_listing(struct libs3_scene *s)
{
	char token[2048] = "";
	int64_t age_ns = -2;
	struct testio t = {.io = {.op = KVT_IO_LIST,
				  .name = "age/",
				  .list_item = keep_age,
				  .list_token = token,
				  .list_token_bytes = sizeof(token),
				  .list_max = 1000}};

	assert_int_equal(testio_prepare(&t, &s->ts), 0);
	t.io.owner = &age_ns;
	testio_submit(&t);
	assert_int_equal(t.io.result, 0);
	testio_release(&t);
	return age_ns;
}

void libs3_ages_in_listings_do_not_depend_on_the_time_zone(void **state)
{
	static const char *const zones[] = {"EAST-9", "WEST8", "UTC0"};
	struct libs3_scene *s = *state;

	assert_int_equal(libs3_put(s, "age/k", 10, 1, NULL), 0);
	for (size_t i = 0; i < TEST_COUNT(zones); i++) {
		int64_t age_ns;

		assert_int_equal(setenv("TZ", zones[i], 1), 0);
		tzset();
		age_ns = age_in_listing(s);
		if (age_ns < 0 || age_ns > INT64_C(60000000000))
			fail_msg("TZ=%s: %lld ns", zones[i], (long long)age_ns);
	}
	unsetenv("TZ");
	tzset();
}
