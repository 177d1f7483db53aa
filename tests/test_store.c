/* SPDX-License-Identifier: Apache-2.0 */
/* Opening a store, comparing its config.json, what it says about itself, closing, forking. Long,
 * and one file: opening and closing, whose cases share their places. */
#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fake_backend.h"
#include "store.h"

#define FIELDS                                                                                     \
	"{\"model_name\":\"org/model\",\"dtype\":\"bfloat16\",\"tp_size\":4,"                      \
	"\"parallel_agnostic\":false}"

static struct kvt_store_options options_for(const char *uri)
{
	struct kvt_store_options o = KVT_INIT(o);

	o.uri = uri;
	o.namespace_name = "ns";
	return o;
}

static int open_and_close(const struct kvt_store_options *options)
{
	struct kvt_store *store = (void *)1;
	int error = kvt_store_open(options, &store);

	if (error == 0)
		assert_ok(kvt_store_close(store));
	else
		assert_null(store);
	return error;
}

/* ---- Arguments ---- */

static void bad_arguments_are_refused_by_name(void **state)
{
	struct kvt_store_options o = options_for("mem:");
	struct {
		struct kvt_store_options options;
		uint64_t more[2];
	} larger = {.options = options_for("mem:")};
	struct kvt_option option = {"fanout", NULL};
	struct kvt_fields fields = KVT_INIT(fields);
	struct kvt_store *store;

	(void)state;
	assert_fails(KVT_EINVAL, "storep: NULL", kvt_store_open(&o, NULL));
	assert_fails(KVT_EINVAL, "options: NULL", kvt_store_open(NULL, &store));
#define REFUSED(error, text, change)                                                               \
	do {                                                                                       \
		o = options_for("mem:");                                                           \
		change;                                                                            \
		assert_fails(error, text, open_and_close(&o));                                     \
	} while (0)
	REFUSED(KVT_EINVAL, "struct_size", o.struct_size = 0);
	REFUSED(KVT_EINVAL, "struct_size", o.struct_size = 9);
	REFUSED(KVT_EINVAL, "uri: NULL", o.uri = NULL);
	REFUSED(KVT_EINVAL, "uri", o.uri = "");
	REFUSED(KVT_EINVAL, "scheme \"tape\"", o.uri = "tape:///x");
	REFUSED(KVT_EINVAL, "mode: 3", o.mode = 3);
	REFUSED(KVT_EINVAL, "rank: 4294967295", o.rank = UINT32_MAX);
	REFUSED(KVT_EINVAL, "exactly one", o.namespace_name = NULL);
	REFUSED(KVT_EINVAL, "exactly one", o.fields_json = FIELDS);
	REFUSED(KVT_EINVAL, "exactly one", o.fields = &fields);
	REFUSED(KVT_EINVAL, "namespace", o.namespace_name = ".hidden");
	REFUSED(KVT_EINVAL, "namespace", o.namespace_name = "a/b");
	REFUSED(KVT_EINVAL, "option_count of 2", o.option_count = 2);
	REFUSED(KVT_EINVAL, "options[0].value", o.options = &option; o.option_count = 1);
	REFUSED(KVT_EINVAL, "hooks.allocator", o.hooks.allocator.context = NULL;
		o.hooks.allocator.free = (void (*)(void *, void *))1);
	REFUSED(KVT_EINVAL, "log_level", o.hooks.log_level = (enum kvt_log_level)9);
#undef REFUSED
	larger.options.struct_size = sizeof(larger);
	assert_ok(open_and_close(&larger.options));
	larger.more[1] = 1;
	assert_fails(KVT_EINVAL, "not zero", open_and_close(&larger.options));
	/* An older caller's struct, whose rest is default. */
	o = options_for("mem:");
	o.struct_size = offsetof(struct kvt_store_options, rank);
	o.rank = 77;
	assert_ok(kvt_store_open(&o, &store));
	assert_int_equal(store->ns.rank, 0);
	assert_ok(kvt_store_close(store));
	assert_ok(kvt_store_close(NULL));
}

static void unknown_options_name_the_nearest(void **state)
{
	struct kvt_option option = {"fanuot", "flat"};
	struct kvt_store_options o = options_for("mem:");

	(void)state;
	o.options = &option;
	o.option_count = 1;
	assert_fails(KVT_EINVAL, "option fanuot: unknown to mem, the nearest known is fanout",
		     open_and_close(&o));
}

static void accept_raw_is_for_row_mode_alone(void **state)
{
	struct kvt_option option = {"accept_raw", "true"};
	struct kvt_store_options o = options_for("mem:");

	(void)state;
	o.options = &option;
	o.option_count = 1;
	assert_fails(KVT_EINVAL, "accept_raw", open_and_close(&o));
	o.mode = KVT_MODE_EXACT;
	assert_fails(KVT_EINVAL, "accept_raw", open_and_close(&o));
	o.mode = KVT_MODE_ROW;
	assert_ok(open_and_close(&o));
}

/* ---- What a store says ---- */

static void a_store_says_what_it_was_opened_as(void **state)
{
	struct kvt_store_options o = KVT_INIT(o);
	struct kvt_store_info info = KVT_INIT(info);
	struct kvt_store *store;

	(void)state;
	o.uri = "mem:";
	o.fields_json = FIELDS;
	o.mode = KVT_MODE_EXACT;
	o.rank = 3;
	assert_ok(kvt_store_open(&o, &store));
	assert_ok(kvt_store_get_info(store, &info));
	assert_string_equal(info.uri, "mem:");
	assert_string_equal(info.backend, "mem");
	assert_non_null(strstr(info.canonical, "\"dtype\":\"bfloat16\""));
	assert_int_equal(strncmp(info.base_name, "org_model_", 10), 0);
	assert_int_equal(strlen(info.base_name), 22);
	assert_int_equal(info.rank, 3);
	assert_int_equal(info.mode, KVT_MODE_EXACT);
	assert_true(info.min_part_bytes >= 1 && info.max_part_bytes >= info.min_part_bytes);
	assert_true(info.max_iov >= 2 && info.max_parts >= 1);
	assert_non_null(info.backend_detail);
	/* An older caller gets what it has room for. */
	info.rank = 99;
	info.struct_size = offsetof(struct kvt_store_info, rank);
	assert_ok(kvt_store_get_info(store, &info));
	assert_int_equal(info.rank, 99);
	info.struct_size = 3;
	assert_fails(KVT_EINVAL, "struct_size: 3", kvt_store_get_info(store, &info));
	assert_fails(KVT_EINVAL, "info: NULL", kvt_store_get_info(store, NULL));
	assert_fails(KVT_EINVAL, "store: NULL", kvt_store_get_info(NULL, &info));
	assert_ok(kvt_store_close(store));
}

static void object_names_are_written_into_buffers_that_hold_them(void **state)
{
	struct kvt_store_options o = options_for("mem:");
	struct kvt_option flat = {"fanout", "flat"};
	struct kvt_key key = {"\x12\x34\x56\x78", 4, 9};
	const char *expected = "ns.kvtier1_r2/123/45_g9/12345678.bin";
	char name[KVT_NAME_BYTES];
	struct kvt_store *store;

	(void)state;
	o.rank = 2;
	assert_ok(kvt_store_open(&o, &store));
	assert_int_equal(kvt_store_object_name(store, &key, name, sizeof(name)), strlen(expected));
	assert_string_equal(name, expected);
	assert_int_equal(kvt_store_object_name(store, &key, name, strlen(expected) + 1),
			 strlen(expected));
	assert_fails(KVT_EINVAL, "buffer_bytes: 36",
		     kvt_store_object_name(store, &key, name, strlen(expected)));
	assert_fails(KVT_EINVAL, "buffer: NULL", kvt_store_object_name(store, &key, NULL, 100));
	assert_fails(KVT_EINVAL, "key: NULL", kvt_store_object_name(store, NULL, name, 100));
	key.hash_bytes = 0;
	assert_fails(KVT_EINVAL, "hash_bytes: 0", kvt_store_object_name(store, &key, name, 100));
	key.hash_bytes = 65;
	assert_fails(KVT_EINVAL, "hash_bytes: 65", kvt_store_object_name(store, &key, name, 100));
	key = (struct kvt_key){NULL, 4, 0};
	assert_fails(KVT_EINVAL, "key->hash: NULL", kvt_store_object_name(store, &key, name, 100));
	assert_fails(KVT_EINVAL, "store: NULL", kvt_store_object_name(NULL, &key, name, 100));
	assert_ok(kvt_store_close(store));
	o.options = &flat;
	o.option_count = 1;
	key = (struct kvt_key){"\x12\x34\x56\x78", 4, 9};
	assert_ok(kvt_store_open(&o, &store));
	assert_true(kvt_store_object_name(store, &key, name, sizeof(name)) > 0);
	assert_string_equal(name, "ns.kvtier1_r2/123/12345678_g9.bin");
	assert_ok(kvt_store_close(store));
}

static void settings_reach_the_store(void **state)
{
	struct kvt_option options[] = {{"min_coverage", "50%"},
				       {"hash_seed", "seven"},
				       {"max_bytes", "1T"},
				       {"high_watermark", "0.5"},
				       {"low_watermark", "0.25"}};
	struct kvt_store_options o = options_for("mem:");
	struct kvt_store *store;

	(void)state;
	o.options = options;
	o.option_count = TEST_COUNT(options);
	assert_ok(kvt_store_open(&o, &store));
	assert_true(store->min_coverage == 0.5);
	assert_string_equal(store->hash_seed, "seven");
	assert_int_equal(store->max_bytes, UINT64_C(1) << 40);
	assert_true(store->high_watermark == 0.5 && store->low_watermark == 0.25);
	assert_non_null(store->maintenance);
	assert_string_equal(store->config_name, "ns.kvtier1/config.json");
	assert_non_null(strstr(store->config_text, "seven"));
	assert_ok(kvt_store_close(store));
}

/* ---- config.json ---- */

struct config_scene {
	struct fake_store *fake;
	struct kvt_store_options options;
	char *name;
};

static void config_open(struct config_scene *s)
{
	struct kvt_store *store;

	memset(s, 0, sizeof(*s));
	s->fake = fake_store_create(NULL);
	s->options = (struct kvt_store_options)KVT_INIT(s->options);
	s->options.uri = fake_store_uri(s->fake);
	s->options.fields_json = FIELDS;
	s->options.mode = KVT_MODE_EXACT;
	assert_ok(kvt_store_open(&s->options, &store));
	s->name = strdup(store->config_name);
	assert_non_null(s->name);
	assert_ok(kvt_store_close(store));
}

static void config_close(struct config_scene *s)
{
	assert_null(fake_violation(s->fake));
	assert_int_equal(fake_sessions(s->fake), 0);
	fake_store_destroy(s->fake);
	free(s->name);
}

static void config_write(struct config_scene *s, const char *text)
{
	fake_object_put(s->fake, s->name, text, strlen(text));
}

static int config_state(struct config_scene *s)
{
	struct kvt_store *store;
	int state;

	assert_ok(kvt_store_open(&s->options, &store));
	state = atomic_load(&store->config_state);
	assert_ok(kvt_store_close(store));
	return state;
}

static void the_config_that_a_store_would_write_is_accepted(void **state)
{
	struct config_scene s;
	struct kvt_store *store;

	(void)state;
	config_open(&s);
	assert_int_equal(config_state(&s), KVT__CONFIG_UNKNOWN);
	assert_ok(kvt_store_open(&s.options, &store));
	config_write(&s, store->config_text);
	assert_ok(kvt_store_close(store));
	assert_int_equal(config_state(&s), KVT__CONFIG_OK);
	/* Opening writes nothing. */
	assert_int_equal(fake_calls(s.fake, KVT_IO_PUT), 0);
	config_close(&s);
}

static void the_first_field_that_differs_is_named_with_both_values(void **state)
{
	static const struct {
		const char *text, *field, *theirs, *ours;
	} cases[] = {
		{"{\"model_name\":\"org/model\",\"dtype\":\"float16\",\"tp_size\":4,"
		 "\"parallel_agnostic\":false}",
		 "dtype", "float16", "bfloat16"},
		{"{\"model_name\":\"org/model\",\"dtype\":\"bfloat16\",\"tp_size\":8,"
		 "\"parallel_agnostic\":false}",
		 "tp_size", "8", "4"},
		{"{\"model_name\":\"org/model\",\"dtype\":\"bfloat16\","
		 "\"parallel_agnostic\":false,\"tp_size\":4,"
		 "\"kvtier\":{\"format\":1,\"fanout\":\"flat\"}}",
		 "fanout", "flat", "vllm"},
	};
	struct config_scene s;

	(void)state;
	config_open(&s);
	for (size_t c = 0; c < TEST_COUNT(cases); c++) {
		config_write(&s, cases[c].text);
		assert_fails(KVT_ENAMESPACE, cases[c].field, open_and_close(&s.options));
		assert_non_null(strstr(kvt_error_detail(), cases[c].theirs));
		assert_non_null(strstr(kvt_error_detail(), cases[c].ours));
	}
	config_write(&s, "{\"model_name\":\"org/model\",\"dtype\":\"bfloat16\",\"tp_size\":4,"
			 "\"parallel_agnostic\":false,\"kvtier\":{\"hash_seed\":\"1\"}}");
	assert_int_equal(config_state(&s), KVT__CONFIG_OK); /* we have none */
	struct kvt_option seed = {"hash_seed", "2"};

	s.options.options = &seed;
	s.options.option_count = 1;
	assert_fails(KVT_ENAMESPACE, "hash_seed", open_and_close(&s.options));
	config_close(&s);
}

static void a_config_that_never_can_be_parsed_is_read_six_times(void **state)
{
	struct config_scene s;
	unsigned before;

	(void)state;
	config_open(&s);
	config_write(&s, "{\"model_name\":\"org/mo");
	before = fake_calls(s.fake, KVT_IO_GET);
	assert_fails(KVT_ECONFIG, "cannot be parsed after 6 reads", open_and_close(&s.options));
	assert_non_null(strstr(kvt_error_detail(), s.name));
	assert_int_equal(fake_calls(s.fake, KVT_IO_GET) - before, 6);
	config_close(&s);
}

struct writer {
	struct config_scene *scene;
	struct fake_rule *rule;
	const char *text;
	bool held;
};

/* Lets two reads see half a file, and writes the whole one while the third is held. */
static void *finish_writing(void *arg)
{
	struct writer *w = arg;

	w->held = fake_await_held(w->scene->fake, w->rule, 1);
	fake_object_put(w->scene->fake, w->scene->name, w->text, strlen(w->text));
	fake_release(w->scene->fake, w->rule, 1);
	return NULL;
}

static void a_config_that_is_being_written_is_read_again(void **state)
{
	struct fake_rule rule = {
		.ops = FAKE_OP(KVT_IO_HEAD), .skip = 2, .times = 1, .action = FAKE_HOLD};
	struct config_scene s;
	struct writer writer = {.scene = &s, .rule = &rule, .text = FIELDS};
	pthread_t thread;

	(void)state;
	config_open(&s);
	config_write(&s, "");
	fake_rule_add(s.fake, &rule);
	assert_int_equal(pthread_create(&thread, NULL, finish_writing, &writer), 0);
	assert_int_equal(config_state(&s), KVT__CONFIG_OK);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_true(writer.held);
	fake_rule_remove(s.fake, &rule);
	config_close(&s);
}

struct log {
	unsigned warnings;
	char line[400];
};

static void keep_log(void *context, enum kvt_log_level level, const char *line)
{
	struct log *log = context;

	log->warnings += level == KVT_LOG_WARNING;
	(void)snprintf(log->line, sizeof(log->line), "%s", line);
}

static void a_config_that_may_not_be_read_is_a_warning(void **state)
{
	static const uint32_t ops[] = {KVT_IO_HEAD, KVT_IO_GET};

	(void)state;
	for (size_t i = 0; i < TEST_COUNT(ops); i++) {
		struct fake_rule rule = {
			.ops = FAKE_OP(ops[i]), .action = FAKE_FAIL, .error = KVT_EACCES};
		struct config_scene s;
		struct log log = {0};

		config_open(&s);
		config_write(&s, FIELDS);
		s.options.hooks.log = keep_log;
		s.options.hooks.log_context = &log;
		fake_rule_add(s.fake, &rule);
		assert_int_equal(config_state(&s), KVT__CONFIG_UNKNOWN);
		assert_int_equal(log.warnings, 1);
		assert_non_null(strstr(log.line, "config.json"));
		fake_rule_remove(s.fake, &rule);
		config_close(&s);
	}
}

static void a_store_that_cannot_be_asked_is_not_opened(void **state)
{
	static const struct {
		int error;
		unsigned times;
		int result;
	} cases[] = {
		{KVT_EAUTH, 0, KVT_EAUTH},
		{KVT_EIO, 0, KVT_EIO},
		{KVT_ENET, 0, KVT_ENET},
		{KVT_ENET, 2, 0}, /* it comes back */
		{KVT_ETHROTTLED, 1, 0},
		{KVT_ETIMEDOUT, 0, KVT_ETIMEDOUT},
		{KVT_EINTERNAL, 0, KVT_EINTERNAL},
	};

	(void)state;
	for (size_t c = 0; c < TEST_COUNT(cases); c++) {
		struct fake_rule rule = {.ops = FAKE_OP(KVT_IO_HEAD),
					 .times = cases[c].times,
					 .action = FAKE_FAIL,
					 .error = cases[c].error};
		struct config_scene s;

		config_open(&s);
		fake_rule_add(s.fake, &rule);
		assert_int_equal(open_and_close(&s.options), cases[c].result);
		fake_rule_remove(s.fake, &rule);
		config_close(&s);
	}
}

static void a_config_of_absurd_length_is_not_read(void **state)
{
	struct config_scene s;
	size_t bytes = (1 << 20) + 1;
	char *text = malloc(bytes);
	unsigned before;

	(void)state;
	config_open(&s);
	memset(text, ' ', bytes);
	fake_object_put(s.fake, s.name, text, bytes);
	before = fake_calls(s.fake, KVT_IO_GET);
	assert_fails(KVT_ECONFIG, "1048577 bytes", open_and_close(&s.options));
	assert_int_equal(fake_calls(s.fake, KVT_IO_GET), before);
	free(text);
	config_close(&s);
}

/* ---- Backends that misbehave ---- */

static struct odd {
	int open_answer, session_answer, submit_answer, poll_answer;
	struct kvt_backend_limits limits; /* what is not zero replaces the default */
	unsigned opened, closed, sessions_opened, sessions_closed, forked;
} odd;

static int odd_open(const struct kvt_host *host, const struct kvt_backend_config *config,
		    void **backendp, struct kvt_backend_limits *limits)
{
	(void)config;
	if (odd.open_answer != 0) {
		(host->fail)(host, "odd: the place is closed today");
		return odd.open_answer;
	}
	odd.opened++;
	*backendp = &odd;
#define TAKE(member)                                                                               \
	if (odd.limits.member != 0)                                                                \
	limits->member = odd.limits.member
	TAKE(min_part_bytes);
	TAKE(max_part_bytes);
	TAKE(max_iov);
	TAKE(memory_alignment);
	TAKE(max_name_bytes);
#undef TAKE
	return 0;
}

static void odd_close(void *backend)
{
	((struct odd *)backend)->closed++;
}

static int odd_session_open(void *backend, uint32_t depth, int listing, void **sessionp)
{
	(void)depth;
	(void)listing;
	*sessionp = backend;
	odd.sessions_opened += odd.session_answer == 0;
	return odd.session_answer;
}

static void odd_session_close(void *session)
{
	(void)session;
	odd.sessions_closed++;
}

static int odd_submit(void *session, struct kvt_io *io)
{
	(void)session;
	io->result = KVT_ENOENT;
	return odd.submit_answer;
}

static int odd_poll(void *session, int64_t until_ns)
{
	(void)session;
	(void)until_ns;
	return odd.poll_answer;
}

static void odd_wake(void *session)
{
	(void)session;
}

static void odd_forked(void *backend)
{
	((struct odd *)backend)->forked++;
}

static void register_odd(void)
{
	static const struct kvt_backend_ops ops = {
		.struct_size = sizeof(ops),
		.abi = KVT_BACKEND_ABI,
		.name = "odd",
		.open = odd_open,
		.close = odd_close,
		.session_open = odd_session_open,
		.session_close = odd_session_close,
		.submit = odd_submit,
		.poll = odd_poll,
		.wake = odd_wake,
		.forked = odd_forked,
	};
	static bool done;

	memset(&odd, 0, sizeof(odd));
	if (!done)
		assert_ok(kvt_backend_register(&ops));
	done = true;
}

static void a_backend_that_does_not_open_says_why(void **state)
{
	struct kvt_store_options o = options_for("odd:");

	(void)state;
	register_odd();
	odd.open_answer = KVT_EACCES;
	assert_fails(KVT_EACCES, "closed today", open_and_close(&o));
	odd.open_answer = 5;
	assert_fails(KVT_EINTERNAL, "open answered 5", open_and_close(&o));
	odd.open_answer = 0;
	odd.session_answer = KVT_EMFILE;
	assert_int_equal(open_and_close(&o), KVT_EMFILE);
	assert_int_equal(odd.opened, odd.closed);
	assert_int_equal(odd.sessions_opened, odd.sessions_closed);
}

static void limits_that_cannot_be_are_the_backends_fault(void **state)
{
	struct kvt_store_options o = options_for("odd:");

	(void)state;
#define REFUSED(error, text, change)                                                               \
	do {                                                                                       \
		register_odd();                                                                    \
		change;                                                                            \
		assert_fails(error, text, open_and_close(&o));                                     \
		assert_int_equal(odd.opened, 1);                                                   \
		assert_int_equal(odd.closed, 1);                                                   \
	} while (0)
	REFUSED(KVT_EINTERNAL, "max_iov: 1", odd.limits.max_iov = 1);
	REFUSED(KVT_EINTERNAL, "memory_alignment: 3", odd.limits.memory_alignment = 3);
	REFUSED(KVT_EINTERNAL, "memory_alignment: 8192", odd.limits.memory_alignment = 8192);
	REFUSED(KVT_EINTERNAL, "min_part_bytes: 100", odd.limits.min_part_bytes = 100;
		odd.limits.max_part_bytes = 99);
	REFUSED(KVT_EINVAL, "expected at most 64", odd.limits.max_name_bytes = 64);
#undef REFUSED
	register_odd();
	odd.limits.max_name_bytes = 200;
	assert_ok(open_and_close(&o));
}

static void a_session_that_breaks_its_promises_is_an_internal_error(void **state)
{
	struct kvt_store_options o = options_for("odd:");

	(void)state;
	register_odd();
	odd.submit_answer = KVT_BUSY;
	assert_fails(KVT_EINTERNAL, "nothing in flight", open_and_close(&o));
	odd.submit_answer = 77;
	assert_fails(KVT_EINTERNAL, "answered 77", open_and_close(&o));
	odd.submit_answer = KVT_QUEUED;
	odd.poll_answer = KVT_EIO;
	assert_fails(KVT_EINTERNAL, "session is broken", open_and_close(&o));
	odd.submit_answer = KVT_ENOTSUP;
	assert_fails(KVT_ENOTSUP, "head", open_and_close(&o));
	assert_int_equal(odd.opened, odd.closed);
	assert_int_equal(odd.sessions_opened, odd.sessions_closed);
}

/* ---- Closing ---- */

static void a_store_in_use_is_not_closed(void **state)
{
	struct kvt_store_options o = options_for("mem:");
	struct kvt_store *store;

	(void)state;
	assert_ok(kvt_store_open(&o, &store));
	atomic_store(&store->users, 1);
	assert_fails(KVT_EBUSY, "1 workers", kvt_store_close(store));
	atomic_store(&store->users, 0);
	assert_ok(kvt_store_close(store));
}

static void every_allocation_that_fails_leaves_nothing_behind(void **state)
{
	static const char *const uris[] = {"mem:", "fault+mem:"};
	struct kvt_option options[] = {{"hash_seed", "1"}, {"max_bytes", "1T"}};
	struct test_allocator allocator;

	(void)state;
	test_allocator_init(&allocator);
	for (size_t u = 0; u < TEST_COUNT(uris); u++) {
		struct kvt_store_options o = options_for(uris[u]);
		int error = KVT_ENOMEM;
		unsigned failures = 0;

		o.options = options;
		o.option_count = 2;
		test_allocator_hooks(&allocator, &o.hooks.allocator);
		for (uint64_t fail_at = 1; error != 0; fail_at++) {
			atomic_store(&allocator.calls, 0);
			atomic_store(&allocator.fail_at, fail_at);
			error = open_and_close(&o);
			if (error != 0)
				failures++;
			assert_true(error == 0 || error == KVT_ENOMEM);
			atomic_store(&allocator.fail_at, 0);
			assert_int_equal(atomic_load(&allocator.live_blocks), 0);
		}
		assert_true(failures > 8);
	}
	assert_int_equal(atomic_load(&allocator.misaligned), 0);
}

/* ---- Fork ---- */

static int see_nothing(void *context, const struct kvt_list_entry *entry)
{
	(void)context;
	(void)entry;
	return 0;
}

/* Bit n is set when check n is wrong. */
static int use_in_child(struct kvt_store *store)
{
	struct kvt_verify_summary verified = KVT_INIT(verified);
	struct kvt_gc_summary collected = KVT_INIT(collected);
	struct kvt_object_stat stat = KVT_INIT(stat);
	struct kvt_store_info info = KVT_INIT(info);
	struct kvt_key key = {"abcd", 4, 0};
	char name[KVT_NAME_BYTES];
	int wrong = 0;

	wrong |= (kvt_store_stat(store, &key, &stat) != KVT_EFORK) << 0;
	wrong |= (kvt_store_remove(store, &key) != KVT_EFORK) << 1;
	wrong |= (kvt_store_list(store, see_nothing, NULL) != KVT_EFORK) << 2;
	wrong |= (kvt_store_verify(store, NULL, NULL, NULL, &verified) != KVT_EFORK ||
		  kvt_store_gc(store, NULL, &collected) != KVT_EFORK)
		 << 3;
	wrong |= (kvt_store_probe(store, NULL, NULL) != KVT_EFORK) << 4;
	wrong |= (kvt_store_object_name(store, &key, name, sizeof(name)) != KVT_EFORK ||
		  kvt_store_get_info(store, &info) != KVT_EFORK)
		 << 5;
	wrong |= (kvt_store_close(store) != 0) << 6;
	return wrong;
}

static void in_a_forked_child_calls_fail_and_close_only_frees(void **state)
{
	struct kvt_option option = {"max_bytes", "1T"};
	struct kvt_store_options o = options_for("odd:");
	struct test_allocator allocator;
	struct kvt_store *store;
	int status;
	pid_t child;

	(void)state;
	register_odd();
	test_allocator_init(&allocator);
	test_allocator_hooks(&allocator, &o.hooks.allocator);
	assert_ok(kvt_store_open(&o, &store)); /* forks with no other thread about */
	child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		int wrong = use_in_child(store);

		wrong |= (odd.forked != 1 || odd.closed != 0) << 7;
		_exit(wrong != 0 ? wrong : (atomic_load(&allocator.live_blocks) != 0 ? 99 : 0));
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	assert_int_equal(odd.forked, 0);
	assert_ok(kvt_store_close(store));
	assert_int_equal(odd.closed, 1);

	/* With a maintenance thread, which the child does not have. */
	o = options_for("mem:");
	o.options = &option;
	o.option_count = 1;
	assert_ok(kvt_store_open(&o, &store));
	child = fork();
	assert_true(child >= 0);
	if (child == 0)
		_exit(use_in_child(store));
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	assert_ok(kvt_store_close(store));
}

/* ---- Keys that are known to be bad ---- */

static void bad_keys_are_remembered_once_and_bounded(void **state)
{
	struct kvt__bad_keys *bad = calloc(1, sizeof(*bad));
	uint8_t hash[64];

	(void)state;
	pthread_mutex_init(&bad->lock, NULL);
	assert_false(kvt__bad_keys_take(bad, "abcd", 4, 0));
	kvt__bad_keys_add(bad, "abcd", 4, 0);
	kvt__bad_keys_add(bad, "abcd", 4, 0);
	assert_false(kvt__bad_keys_take(bad, "abcd", 4, 1));
	assert_false(kvt__bad_keys_take(bad, "abc", 3, 0));
	assert_true(kvt__bad_keys_take(bad, "abcd", 4, 0));
	assert_false(kvt__bad_keys_take(bad, "abcd", 4, 0));
	assert_int_equal(atomic_load(&bad->count), 0);
	for (uint32_t i = 0; i < 1000; i++) {
		memset(hash, (int)i, sizeof(hash));
		memcpy(hash, &i, sizeof(i));
		kvt__bad_keys_add(bad, hash, 64, i);
	}
	assert_int_equal(atomic_load(&bad->count), TEST_COUNT(bad->keys));
	for (uint32_t i = 0; i < 1000; i++) {
		memset(hash, (int)i, sizeof(hash));
		memcpy(hash, &i, sizeof(i));
		assert_int_equal(kvt__bad_keys_take(bad, hash, 64, i),
				 i >= 1000 - TEST_COUNT(bad->keys));
	}
	assert_int_equal(atomic_load(&bad->count), 0);
	pthread_mutex_destroy(&bad->lock);
	free(bad);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bad_arguments_are_refused_by_name),
		cmocka_unit_test(unknown_options_name_the_nearest),
		cmocka_unit_test(accept_raw_is_for_row_mode_alone),
		cmocka_unit_test(a_store_says_what_it_was_opened_as),
		cmocka_unit_test(object_names_are_written_into_buffers_that_hold_them),
		cmocka_unit_test(settings_reach_the_store),
		cmocka_unit_test(the_config_that_a_store_would_write_is_accepted),
		cmocka_unit_test(the_first_field_that_differs_is_named_with_both_values),
		cmocka_unit_test(a_config_that_never_can_be_parsed_is_read_six_times),
		cmocka_unit_test(a_config_that_is_being_written_is_read_again),
		cmocka_unit_test(a_config_that_may_not_be_read_is_a_warning),
		cmocka_unit_test(a_store_that_cannot_be_asked_is_not_opened),
		cmocka_unit_test(a_config_of_absurd_length_is_not_read),
		cmocka_unit_test(a_backend_that_does_not_open_says_why),
		cmocka_unit_test(limits_that_cannot_be_are_the_backends_fault),
		cmocka_unit_test(a_session_that_breaks_its_promises_is_an_internal_error),
		cmocka_unit_test(a_store_in_use_is_not_closed),
		cmocka_unit_test(every_allocation_that_fails_leaves_nothing_behind),
		cmocka_unit_test(in_a_forked_child_calls_fail_and_close_only_frees),
		cmocka_unit_test(bad_keys_are_remembered_once_and_bounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
