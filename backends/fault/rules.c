/* SPDX-License-Identifier: Apache-2.0 */
/* Rules of the fault wrapper: reading them from options, and drawing a plan for each call. */
#include "rules.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FAULT_NS_PER_MS	  INT64_C(1000000)
#define FAULT_MOST_MS	  INT64_C(86400000)
#define FAULT_TRACE_BYTES 1400

const struct kvt_option_spec kvt__fault_option_specs[] = {
	{"fail", NULL,
	 "<op>:<n>[:<error>],... the nth call of op fails; n+: it and all later ones; /n: every "
	 "nth. "
	 "op: put begin part commit abort get head remove list touch sweep any"},
	{"every", NULL, "<op>:<n>[:<error>],... every nth call of op fails"},
	{"rate", NULL, "<op>:<share>[:<error>],... this share (0 to 1) of the calls fails"},
	{"while", NULL, "<op>:<path>[:<error>],... calls made while this file is there fail"},
	{"error", "EIO", "what fails fails with this code: ENOSPC, ETIMEDOUT, ..."},
	{"error_after", "0", "1: calls that fail are done first, as if the answer had been lost"},
	{"seed", "1", "decides which calls rate and delay choose"},
	{"delay", NULL,
	 "<op>:<ms>[-<ms>],... calls begin that much later; the longest delay counts"},
	{"hang", NULL,
	 "<op>:<path>,... calls are held while this file is there, until their deadline"},
	{"stuck", NULL, "<op>:<path>,... the same, but past their deadline too"},
	{"short_read", NULL,
	 "get:<n>[:<error>],... only the first half arrives, then the call fails"},
	{"short_write", NULL,
	 "<op>:<n>[:<error>],... only the first half of a put or part is read, then the call "
	 "fails"},
	{"flip", NULL,
	 "<op>:<n>,... one byte that a get brings, or a put or part stores, is changed"},
	{"trace", NULL,
	 "<path>: a line is appended to this file for each call that a rule acts on"},
	{NULL, NULL, NULL},
};

static const char *const op_names[] = {"any", "put",  "begin",	"part", "commit", "abort",
				       "get", "head", "remove", "list", "touch",  "sweep"};
#define FAULT_OPS (sizeof(op_names) / sizeof(op_names[0]))

static const struct {
	const char *name;
	int value;
} error_names[] = {
#define KVT_X(name, value, class_name, text) {#name, value},
	KVT_ERROR_TABLE(KVT_X)
#undef KVT_X
};
#define FAULT_ERRORS (sizeof(error_names) / sizeof(error_names[0]))

const char *kvt__fault_op_name(uint32_t op)
{
	return op < FAULT_OPS ? op_names[op] : "?";
}

const char *kvt__fault_error_name(int error)
{
	for (size_t i = 0; i < FAULT_ERRORS; i++)
		if (error_names[i].value == error)
			return error_names[i].name;
	return "?";
}

static int fault_error_value(const char *name)
{
	if (!strncmp(name, "KVT_", 4))
		name += 4;
	for (size_t i = 0; i < FAULT_ERRORS; i++)
		if (!strcmp(error_names[i].name, name))
			return error_names[i].value;
	return 0;
}

/* A whole number from `least` to `most`, and nothing behind it but `end`. */
static int fault_number(const char *text, uint64_t least, uint64_t most, char end, uint64_t *valuep)
{
	char *behind;
	unsigned long long value;

	if (!isdigit((unsigned char)*text))
		return -1;
	errno = 0;
	value = strtoull(text, &behind, 10);
	if (errno || *behind != end || value < least || value > most)
		return -1;
	*valuep = value;
	return 0;
}

/* "3", "3+" or "/3". */
static int fault_count(char *text, struct kvt__fault_rule *rule)
{
	size_t bytes = strlen(text);

	rule->when = KVT__FAULT_NTH;
	if (*text == '/') {
		rule->when = KVT__FAULT_EVERY;
		text++;
	} else if (bytes && text[bytes - 1] == '+') {
		rule->when = KVT__FAULT_FROM;
		text[bytes - 1] = 0;
	}
	return fault_number(text, 1, UINT64_MAX, 0, &rule->n);
}

static int fault_share(const char *text, struct kvt__fault_rule *rule)
{
	char *behind;

	rule->when = KVT__FAULT_RATE;
	if (!isdigit((unsigned char)*text) && *text != '.')
		return -1;
	rule->share = strtod(text, &behind);
	return *behind || !(rule->share >= 0 && rule->share <= 1) ? -1 : 0;
}

static int fault_delay(char *text, struct kvt__fault_rule *rule)
{
	char *dash = strchr(text, '-');
	uint64_t least_ms, most_ms;

	rule->when = KVT__FAULT_ALWAYS;
	if (fault_number(text, 0, FAULT_MOST_MS, dash ? '-' : 0, &least_ms))
		return -1;
	most_ms = least_ms;
	if (dash && fault_number(dash + 1, least_ms, FAULT_MOST_MS, 0, &most_ms))
		return -1;
	rule->least_ns = (int64_t)least_ms * FAULT_NS_PER_MS;
	rule->most_ns = (int64_t)most_ms * FAULT_NS_PER_MS;
	return 0;
}

static int fault_path(const char *text, struct kvt__fault_rule *rule)
{
	if (*text != '/')
		return -1;
	memcpy(rule->path, text, strlen(text) + 1);
	return 0;
}

enum fault_takes { FAULT_COUNT, FAULT_EVERY_COUNT, FAULT_SHARE, FAULT_PATH, FAULT_DELAY };

static const struct fault_kind {
	const char *option;
	enum kvt__fault_action action;
	enum fault_takes takes;
	int takes_error;
	uint32_t ops; /* bit of each op that it may be used for; 0: all */
	const char *expected;
} kinds[] = {
	{"fail", KVT__FAULT_FAIL, FAULT_COUNT, 1, 0, "<op>:<n>[:<error>]"},
	{"every", KVT__FAULT_FAIL, FAULT_EVERY_COUNT, 1, 0, "<op>:<n>[:<error>]"},
	{"rate", KVT__FAULT_FAIL, FAULT_SHARE, 1, 0, "<op>:<0 to 1>[:<error>]"},
	{"while", KVT__FAULT_FAIL, FAULT_PATH, 1, 0, "<op>:<absolute path>[:<error>]"},
	{"delay", KVT__FAULT_DELAY, FAULT_DELAY, 0, 0, "<op>:<ms>[-<ms>]"},
	{"hang", KVT__FAULT_HANG, FAULT_PATH, 0, 0, "<op>:<absolute path>"},
	{"stuck", KVT__FAULT_STUCK, FAULT_PATH, 0, 0, "<op>:<absolute path>"},
	{"short_read", KVT__FAULT_SHORT, FAULT_COUNT, 1, 1u << KVT_IO_GET, "get:<n>[:<error>]"},
	{"short_write", KVT__FAULT_SHORT, FAULT_COUNT, 1, 1u << KVT_IO_PUT | 1u << KVT_IO_PART,
	 "<put or part>:<n>[:<error>]"},
	{"flip", KVT__FAULT_FLIP, FAULT_COUNT, 0,
	 1u << KVT_IO_GET | 1u << KVT_IO_PUT | 1u << KVT_IO_PART, "<get, put or part>:<n>"},
};

/* Reads "<op>:<what>[:<error>]", which it may change. */
static int fault_rule_read(const struct fault_kind *kind, char *text, struct kvt__fault_rule *rule)
{
	char *colon = strchr(text, ':'), *error;

	if (!colon)
		return -1;
	*colon++ = 0;
	for (rule->op = 0; rule->op < FAULT_OPS; rule->op++)
		if (!strcmp(op_names[rule->op], text))
			break;
	if (rule->op == FAULT_OPS || (kind->ops && !(kind->ops >> rule->op & 1)))
		return -1;
	error = kind->takes_error ? strrchr(colon, ':') : NULL;
	if (error) {
		*error++ = 0;
		rule->error = fault_error_value(error);
		if (!rule->error)
			return -1;
	}
	rule->action = kind->action;
	switch (kind->takes) {
	case FAULT_COUNT:
		return fault_count(colon, rule);
	case FAULT_EVERY_COUNT:
		rule->when = KVT__FAULT_EVERY;
		return fault_number(colon, 1, UINT64_MAX, 0, &rule->n);
	case FAULT_SHARE:
		return fault_share(colon, rule);
	case FAULT_DELAY:
		return fault_delay(colon, rule);
	default:
		rule->when = KVT__FAULT_WHILE;
		return fault_path(colon, rule);
	}
}

static int fault_rule_add(struct kvt__fault_rules *rules, const struct fault_kind *kind,
			  const char *text, size_t bytes)
{
	const struct kvt_host *host = rules->host;
	/* The path fits: it is a part of the text. The text is copied behind it, to be cut up. */
	struct kvt__fault_rule *rule = host->alloc(host, sizeof(*rule) + 2 * (bytes + 1), 16);
	char *copy;

	if (!rule) {
		host->fail(host, "fault: out of memory");
		return KVT_ENOMEM;
	}
	memset(rule, 0, sizeof(*rule) + 2 * (bytes + 1));
	copy = rule->path + bytes + 1;
	memcpy(copy, text, bytes);
	if (fault_rule_read(kind, copy, rule)) {
		host->fail(host, "fault: option %s: '%.*s', expected %s", kind->option, (int)bytes,
			   text, kind->expected);
		host->free(host, rule);
		return KVT_EINVAL;
	}
	for (const struct kvt__fault_rule *r = rules->first; r; r = r->next)
		rule->salt++;
	*rules->last_linkp = rule;
	rules->last_linkp = &rule->next;
	return 0;
}

static int fault_rule_option(struct kvt__fault_rules *rules, const struct fault_kind *kind,
			     const char *text)
{
	for (;;) {
		size_t bytes = strcspn(text, ",");
		int result = fault_rule_add(rules, kind, text, bytes);

		if (result || !text[bytes])
			return result;
		text += bytes + 1;
	}
}

static int fault_option(struct kvt__fault_rules *rules, const struct kvt_option_value *option)
{
	const struct kvt_host *host = rules->host;
	const char *value = option->value;
	uint64_t number;

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (!strcmp(option->name, kinds[i].option))
			return fault_rule_option(rules, &kinds[i], value);
	if (!strcmp(option->name, "error")) {
		rules->error = fault_error_value(value);
		if (rules->error)
			return 0;
		host->fail(host, "fault: option error: '%s', expected a code like EIO", value);
		return KVT_EINVAL;
	}
	if (!strcmp(option->name, "trace")) {
		rules->trace_fd = open(value, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
		if (rules->trace_fd >= 0)
			return 0;
		host->fail(host, "fault: option trace: %s: %s", value, strerror(errno));
		return KVT_ECONFIG;
	}
	if (fault_number(value, 0, strcmp(option->name, "seed") ? 1 : UINT64_MAX, 0, &number)) {
		host->fail(host, "fault: option %s: '%s', expected %s", option->name, value,
			   strcmp(option->name, "seed") ? "0 or 1" : "a number");
		return KVT_EINVAL;
	}
	if (!strcmp(option->name, "seed"))
		rules->seed = number;
	else
		rules->error_after = (int)number;
	return 0;
}

int kvt__fault_rules_init(struct kvt__fault_rules *rules, const struct kvt_host *host,
			  const struct kvt_backend_config *config)
{
	int result = 0;

	*rules = (struct kvt__fault_rules){
		.host = host, .error = KVT_EIO, .seed = 1, .trace_fd = -1};
	rules->last_linkp = &rules->first;
	for (size_t i = 0; i < config->option_count && !result; i++)
		result = fault_option(rules, &config->options[i]);
	if (result)
		kvt__fault_rules_fini(rules);
	return result;
}

void kvt__fault_rules_fini(struct kvt__fault_rules *rules)
{
	struct kvt__fault_rule *rule, *next;

	for (rule = rules->first; rule; rule = next) {
		next = rule->next;
		rules->host->free(rules->host, rule);
	}
	rules->first = NULL;
	if (rules->trace_fd >= 0)
		close(rules->trace_fd);
	rules->trace_fd = -1;
}

int kvt__fault_rule_holds(const struct kvt__fault_rule *rule)
{
	return access(rule->path, F_OK) == 0;
}

/* A number that follows from the seed, the rule and the call alone. */
static uint64_t fault_draw(const struct kvt__fault_rules *rules, const struct kvt__fault_rule *rule,
			   uint64_t call)
{
	uint64_t z = rules->seed + rule->salt * UINT64_C(0xd1342543de82ef95) +
		     call * UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

static int fault_acts(const struct kvt__fault_rules *rules, const struct kvt__fault_rule *rule,
		      uint64_t call)
{
	switch (rule->when) {
	case KVT__FAULT_NTH:
		return call == rule->n;
	case KVT__FAULT_FROM:
		return call >= rule->n;
	case KVT__FAULT_EVERY:
		return call % rule->n == 0;
	case KVT__FAULT_RATE:
		return (double)(fault_draw(rules, rule, call) >> 11) * 0x1p-53 < rule->share;
	case KVT__FAULT_WHILE:
		return kvt__fault_rule_holds(rule);
	default:
		return 1;
	}
}

static void fault_trace(const struct kvt__fault_rules *rules, const struct kvt__fault_rule *rule,
			const struct kvt_io *io, uint64_t call)
{
	static const char *const actions[] = {"fail", "delay", "hang", "stuck", "short", "flip"};
	char line[FAULT_TRACE_BYTES];
	int bytes;

	if (rules->trace_fd < 0)
		return;
	bytes = snprintf(line, sizeof(line), "%s %s %llu %s\n", actions[rule->action],
			 kvt__fault_op_name(io->op), (unsigned long long)call,
			 io->name ? io->name : "");
	if (bytes > 0 && (size_t)bytes < sizeof(line))
		(void)!write(rules->trace_fd, line, (size_t)bytes);
}

void kvt__fault_plan_make(struct kvt__fault_rules *rules, const struct kvt_io *io,
			  struct kvt__fault_plan *plan)
{
	*plan = (struct kvt__fault_plan){.after = rules->error_after};
	for (struct kvt__fault_rule *rule = rules->first; rule; rule = rule->next) {
		int64_t delay_ns = rule->least_ns;
		uint64_t call;

		if (rule->op && rule->op != io->op)
			continue;
		call = atomic_fetch_add(&rule->calls, 1) + 1;
		if (!fault_acts(rules, rule, call))
			continue;
		fault_trace(rules, rule, io, call);
		switch (rule->action) {
		case KVT__FAULT_FAIL:
			if (!plan->error)
				plan->error = rule->error ? rule->error : rules->error;
			break;
		case KVT__FAULT_DELAY:
			delay_ns += (int64_t)(fault_draw(rules, rule, call) %
					      (uint64_t)(rule->most_ns - rule->least_ns + 1));
			if (plan->delay_ns < delay_ns)
				plan->delay_ns = delay_ns;
			break;
		case KVT__FAULT_HANG:
		case KVT__FAULT_STUCK:
			plan->hold = rule;
			break;
		case KVT__FAULT_SHORT:
			plan->cut = rule->error ? rule->error : rules->error;
			break;
		case KVT__FAULT_FLIP:
			plan->flip = 1;
			break;
		}
	}
}
