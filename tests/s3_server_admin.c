/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What scripts ask of the server itself, unsigned and uncounted:
 *
 *     PUT /.server/rules        a rule a line, added
 *     DELETE /.server/rules     forgets them
 *     GET /.server/counts       "name value" lines
 *     DELETE /.server/counts    from 0 again
 *     POST /.server/release     those that are held go on
 *     POST /.server/close-idle  closes idle connections
 */
#include "s3_server_internal.h"

#include <stdlib.h>
#include <string.h>

static void add_rules(struct s3s_request *r)
{
	char *line = r->text;

	r->reply.status = 200;
	while (line && *line) {
		char *end = line + strcspn(line, "\n");
		bool last = *end == 0;
		const char *wrong;

		*end = 0;
		wrong = line[strspn(line, " \t\r")] ? s3_server_add_rule_text(r->server, line)
						    : NULL;
		if (wrong) {
			r->reply.status = 400;
			s3s_text(&r->reply, "%s: %s\n", line, wrong);
		}
		line = last ? NULL : end + 1;
	}
}

static void tell_counts(struct s3s_request *r)
{
	static const char *const names[S3_OP_COUNT] = {"put",	"get",	   "head", "delete",
						       "list",	"create",  "part", "complete",
						       "abort", "uploads", "other"};
	struct s3_server_counts counts;

	s3_server_count(r->server, &counts);
	r->reply.status = 200;
	s3s_text(&r->reply,
		 "requests %llu\nconnections %llu\nmost_at_once %llu\nbytes_in %llu\n"
		 "bytes_out %llu\nrule_hits %u\nobjects %u\nuploads %u\n",
		 (unsigned long long)counts.requests, (unsigned long long)counts.connections,
		 (unsigned long long)counts.most_at_once, (unsigned long long)counts.bytes_in,
		 (unsigned long long)counts.bytes_out, s3_server_rule_hits(r->server),
		 s3_server_objects(r->server), s3_server_uploads(r->server));
	for (unsigned i = 0; i < S3_OP_COUNT; i++)
		s3s_text(&r->reply, "%s %llu\n", names[i], (unsigned long long)counts.by_op[i]);
}

void s3s_admin(struct s3s_request *r)
{
	bool get = strcmp(r->method, "GET") == 0, put = strcmp(r->method, "PUT") == 0;
	bool remove = strcmp(r->method, "DELETE") == 0, post = strcmp(r->method, "POST") == 0;

	r->reply.status = 200;
	if (put && strcmp(r->key, "rules") == 0)
		add_rules(r);
	else if (remove && strcmp(r->key, "rules") == 0)
		s3_server_clear_rules(r->server);
	else if (get && strcmp(r->key, "counts") == 0)
		tell_counts(r);
	else if (remove && strcmp(r->key, "counts") == 0)
		s3_server_forget(r->server);
	else if (post && strcmp(r->key, "release") == 0)
		s3_server_release(r->server);
	else if (post && strcmp(r->key, "close-idle") == 0)
		s3s_text(&r->reply, "%u\n", s3_server_close_idle(r->server, false));
	else
		r->reply.status = 404;
}
