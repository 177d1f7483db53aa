/* SPDX-License-Identifier: Apache-2.0 */
/* Rules of the S3 server: which one acts on a request, rules from text, and the gate. */
#include "s3_server_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

enum kind { TEXT, NUMBER, LONG, STATUS, FLAG, CUT, OPS };

static const struct member {
	const char *name;
	enum kind kind;
	size_t at;
} members[] = {
#define MEMBER(kind, name)                                                                         \
	{                                                                                          \
#name, kind, offsetof(struct s3_server_rule, name)                                 \
	}
	MEMBER(OPS, ops),
	MEMBER(TEXT, key),
	MEMBER(NUMBER, skip),
	MEMBER(NUMBER, times),
	MEMBER(CUT, upload_cut),
	MEMBER(LONG, upload_at),
	MEMBER(FLAG, early),
	MEMBER(FLAG, hold),
	MEMBER(NUMBER, delay_ms),
	MEMBER(FLAG, hang),
	MEMBER(STATUS, status),
	MEMBER(TEXT, code),
	MEMBER(TEXT, message),
	MEMBER(TEXT, region),
	MEMBER(TEXT, body),
	MEMBER(FLAG, done_first),
	MEMBER(CUT, lost),
	MEMBER(FLAG, whole),
	MEMBER(FLAG, flip),
	MEMBER(LONG, flip_at),
	MEMBER(TEXT, etag),
	MEMBER(TEXT, range),
	MEMBER(TEXT, headers),
	MEMBER(TEXT, without),
	MEMBER(NUMBER, retry_after_s),
	MEMBER(NUMBER, blanks),
	MEMBER(FLAG, close),
	MEMBER(NUMBER, rate),
	MEMBER(CUT, cut),
	MEMBER(LONG, cut_at),
	MEMBER(FLAG, wrong_length),
	MEMBER(LONG, said_length),
	MEMBER(LONG, extra_bytes),
	MEMBER(NUMBER, header_bytes),
	MEMBER(FLAG, endless),
	MEMBER(FLAG, no_length),
	MEMBER(FLAG, chunked),
	MEMBER(FLAG, lower_case),
	MEMBER(FLAG, http10),
	MEMBER(FLAG, close_silently),
	MEMBER(TEXT, raw),
#undef MEMBER
};
#define MEMBERS (sizeof(members) / sizeof(members[0]))

static const char *const op_names[S3_OP_COUNT] = {"put",   "get",     "head", "delete",
						  "list",  "create",  "part", "complete",
						  "abort", "uploads", "other"};
static const char *const cut_names[] = {"none", "fin", "rst", "stall", "hold"};

bool s3s_rule_is_raw(const struct s3_server_rule *rule)
{
	return (rule->cut && rule->cut != S3_CUT_HOLD) || rule->wrong_length || rule->extra_bytes ||
	       rule->header_bytes || rule->endless || rule->no_length || rule->chunked ||
	       rule->lower_case || rule->http10 || rule->close_silently || rule->raw || rule->early;
}

/* ---- Adding ---- */

static char **text_of(struct s3_server_rule *rule, const struct member *m)
{
	return (char **)((char *)rule + m->at);
}

static void rule_free(struct s3s_rule *rule)
{
	for (size_t i = 0; i < MEMBERS; i++)
		if (members[i].kind == TEXT)
			free(*text_of(&rule->rule, &members[i]));
	free(rule);
}

bool s3_server_add_rule(struct s3_server *server, const struct s3_server_rule *rule)
{
	struct s3s_rule *copy;

	if (server->options.certificate && s3s_rule_is_raw(rule))
		return false;
	copy = calloc(1, sizeof(*copy));
	if (!copy)
		return false;
	copy->rule = *rule;
	for (size_t i = 0; i < MEMBERS; i++)
		if (members[i].kind == TEXT)
			*text_of(&copy->rule, &members[i]) = NULL;
	for (size_t i = 0; i < MEMBERS; i++) {
		struct s3_server_rule from = *rule;

		if (members[i].kind != TEXT || !*text_of(&from, &members[i]))
			continue;
		*text_of(&copy->rule, &members[i]) = s3s_copy(*text_of(&from, &members[i]));
		if (!*text_of(&copy->rule, &members[i])) {
			rule_free(copy);
			return false;
		}
	}
	pthread_mutex_lock(&server->lock);
	*server->rules_end = copy;
	server->rules_end = &copy->next;
	pthread_mutex_unlock(&server->lock);
	return true;
}

void s3_server_clear_rules(struct s3_server *server)
{
	pthread_mutex_lock(&server->lock);
	/* Requests under way still use their strings. */
	*server->rules_end = server->old_rules;
	server->old_rules = server->rules;
	server->rules = NULL;
	server->rules_end = &server->rules;
	server->rule_hits = 0;
	pthread_mutex_unlock(&server->lock);
}

unsigned s3_server_rule_hits(struct s3_server *server)
{
	unsigned hits;

	pthread_mutex_lock(&server->lock);
	hits = server->rule_hits;
	pthread_mutex_unlock(&server->lock);
	return hits;
}

void s3s_rules_fini(struct s3_server *server)
{
	s3_server_clear_rules(server);
	while (server->old_rules) {
		struct s3s_rule *rule = server->old_rules;

		server->old_rules = rule->next;
		rule_free(rule);
	}
}

void s3s_rule_take(struct s3s_request *r)
{
	struct s3_server *server = r->server;

	pthread_mutex_lock(&server->lock);
	for (struct s3s_rule *rule = server->rules; rule && !r->has_rule; rule = rule->next) {
		if ((rule->rule.ops && !(rule->rule.ops & r->op)) ||
		    (rule->rule.key && !strstr(r->key, rule->rule.key)) ||
		    (rule->rule.times && rule->used >= rule->rule.times))
			continue;
		if (rule->skipped < rule->rule.skip) {
			rule->skipped++;
			continue;
		}
		rule->used++;
		server->rule_hits++;
		r->rule = rule->rule;
		r->has_rule = true;
	}
	pthread_mutex_unlock(&server->lock);
}

/* ---- From text ---- */

static bool same_name(const char *member, const char *text)
{
	for (; *member; member++, text++)
		if (*member != *text && !(*member == '_' && *text == '-'))
			return false;
	return *text == 0;
}

static const char *parse_ops(const char *text, unsigned *ops)
{
	while (*text) {
		size_t bytes = strcspn(text, ",");
		unsigned i = 0;

		while (i < S3_OP_COUNT &&
		       (strlen(op_names[i]) != bytes || strncmp(op_names[i], text, bytes) != 0))
			i++;
		if (i == S3_OP_COUNT)
			return "unknown operation, expected put, get, head, delete, list, create, "
			       "part, complete, abort, uploads or other";
		*ops |= 1u << i;
		text += bytes;
		text += *text == ',';
	}
	return NULL;
}

static void unescape(char *text)
{
	char *to = text;

	for (; *text; text++) {
		if (*text == '\\' && text[1]) {
			text++;
			*to++ = (char)(*text == 'r' ? '\r' : *text == 'n' ? '\n' : *text);
		} else {
			*to++ = *text;
		}
	}
	*to = 0;
}

static const char *parse_value(struct s3_server_rule *rule, const struct member *m, char *value)
{
	void *at = (char *)rule + m->at;
	unsigned long long number = 0;
	char *end = value;

	if (m->kind == FLAG) {
		*(bool *)at = !value || strcmp(value, "0") != 0;
		return NULL;
	}
	if (!value)
		return "a member without its value";
	switch (m->kind) {
	case TEXT:
		unescape(value);
		*(const char **)at = value;
		return NULL;
	case OPS:
		return parse_ops(value, at);
	case CUT:
		for (unsigned i = 0; i < sizeof(cut_names) / sizeof(cut_names[0]); i++)
			if (strcmp(cut_names[i], value) == 0) {
				*(enum s3_server_cut *)at = (enum s3_server_cut)i;
				return NULL;
			}
		return "unknown cut, expected fin, rst, stall or hold";
	default:
		break;
	}
	errno = 0;
	number = strtoull(value, &end, 10);
	if (errno || end == value || *end)
		return "no number where one was expected";
	if (m->kind == LONG)
		*(uint64_t *)at = number;
	else if (number > INT32_MAX)
		return "a number that is too large";
	else if (m->kind == STATUS)
		*(int *)at = (int)number;
	else
		*(unsigned *)at = (unsigned)number;
	return NULL;
}

/* Cuts the next word off, with quotes around values that have blanks. */
static char *next_word(char **text)
{
	char *word = *text + strspn(*text, " \t\r\n"), *from = word, *to = word;
	bool quoted = false;

	if (!*word)
		return NULL;
	for (; *from && (quoted || !strchr(" \t\r\n", *from)); from++) {
		if (*from == '\\' && from[1]) {
			*to++ = *from++;
			*to++ = *from;
		} else if (*from == '"') {
			quoted = !quoted;
		} else {
			*to++ = *from;
		}
	}
	*text = *from ? from + 1 : from;
	*to = 0;
	return word;
}

const char *s3_server_add_rule_text(struct s3_server *server, const char *text)
{
	struct s3_server_rule rule = {0};
	char *copy = s3s_copy(text), *rest = copy, *word;
	const char *wrong = copy ? NULL : "out of memory";

	while (!wrong && (word = next_word(&rest)) != NULL) {
		char *value = strchr(word, '=');
		size_t i = 0;

		if (value)
			*value++ = 0;
		while (i < MEMBERS && !same_name(members[i].name, word))
			i++;
		wrong = i < MEMBERS ? parse_value(&rule, &members[i], value) : "unknown member";
	}
	if (!wrong && !s3_server_add_rule(server, &rule))
		wrong = server->options.certificate && s3s_rule_is_raw(&rule)
				? "this rule is for plain HTTP only"
				: "out of memory";
	free(copy);
	return wrong;
}

/* ---- The gate ---- */

static struct timespec from_now(int64_t ms)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	ts.tv_sec += ms / 1000;
	ts.tv_nsec += ms % 1000 * 1000000;
	if (ts.tv_nsec >= 1000000000) {
		ts.tv_sec++;
		ts.tv_nsec -= 1000000000;
	}
	return ts;
}

bool s3s_hold(struct s3s_request *r)
{
	struct s3_server *server = r->server;
	bool there = true, open = false;
	uint64_t number;

	pthread_mutex_lock(&server->lock);
	number = server->gate_number;
	server->held++;
	pthread_cond_broadcast(&server->changed);
	pthread_mutex_unlock(&server->lock);
	while (there && !open) {
		pthread_mutex_lock(&server->lock);
		if (server->gate_number == number && !server->closing) {
			struct timespec until = from_now(20);

			pthread_cond_timedwait(&server->changed, &server->lock, &until);
		}
		open = server->gate_number != number;
		pthread_mutex_unlock(&server->lock);
		if (!open)
			there = s3s_nap(r, 1);
	}
	pthread_mutex_lock(&server->lock);
	server->held--;
	pthread_cond_broadcast(&server->changed);
	pthread_mutex_unlock(&server->lock);
	return there;
}

bool s3_server_await_held(struct s3_server *server, unsigned count)
{
	struct timespec until = from_now(S3S_LIMIT_MS);
	bool in_time = true, is;

	pthread_mutex_lock(&server->lock);
	while (server->held < count && in_time)
		in_time = pthread_cond_timedwait(&server->changed, &server->lock, &until) == 0;
	is = server->held >= count;
	pthread_mutex_unlock(&server->lock);
	return is;
}

void s3_server_release(struct s3_server *server)
{
	pthread_mutex_lock(&server->lock);
	server->gate_number++;
	pthread_cond_broadcast(&server->changed);
	pthread_mutex_unlock(&server->lock);
}

unsigned s3_server_close_idle(struct s3_server *server, bool reset)
{
	struct timespec until = from_now(S3S_LIMIT_MS);
	struct s3s_connection *c;
	bool in_time = true;
	unsigned count = 0;

	pthread_mutex_lock(&server->lock);
	/* Those whose answer is out are idle for the client, and soon for us. */
	for (c = server->connections; c && in_time;) {
		if (c->busy && c->answered) {
			in_time = pthread_cond_timedwait(&server->changed, &server->lock, &until) ==
				  0;
			c = server->connections;
		} else {
			c = c->next;
		}
	}
	for (c = server->connections; c; c = c->next) {
		if (c->busy)
			continue;
		if (reset)
			s3s_reset(c->fd);
		else
			(void)shutdown(c->fd, SHUT_RDWR);
		count++;
	}
	pthread_mutex_unlock(&server->lock);
	return count;
}
