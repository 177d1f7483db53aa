/* SPDX-License-Identifier: Apache-2.0 */
/* The plain client of the S3 server's own tests. */
#include "s3_server_client.h"

#include <stdlib.h>
#include <string.h>

struct s3_server *s3c_server;
CURL *s3c_easy;

size_t s3c_gather(char *data, size_t size, size_t count, void *context)
{
	struct s3c_text *text = context;
	char *grown = realloc(text->data, text->bytes + size * count + 1);

	if (!grown)
		return 0;
	text->data = grown;
	memcpy(grown + text->bytes, data, size * count);
	text->bytes += size * count;
	grown[text->bytes] = 0;
	return size * count;
}

struct source {
	const char *data;
	size_t left;
};

static size_t provide(char *to, size_t size, size_t count, void *context)
{
	struct source *source = context;
	size_t bytes = size * count < source->left ? size * count : source->left;

	memcpy(to, source->data, bytes);
	source->data += bytes;
	source->left -= bytes;
	return bytes;
}

void s3c_forget(struct s3c_call *c)
{
	free(c->head.data);
	free(c->data.data);
	memset(&c->head, 0, sizeof(c->head));
	memset(&c->data, 0, sizeof(c->data));
}

long s3c_run(struct s3c_call *c)
{
	struct source source = {c->body, c->body ? strlen(c->body) : 0};
	char *url = test_format("%s%s", s3_server_url(s3c_server), c->path);
	struct curl_slist *lines = curl_slist_append(NULL, "Expect:");

	s3c_forget(c);
	curl_easy_reset(s3c_easy);
	curl_easy_setopt(s3c_easy, CURLOPT_URL, url);
	curl_easy_setopt(s3c_easy, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(s3c_easy, CURLOPT_PATH_AS_IS, 1L);
	curl_easy_setopt(s3c_easy, CURLOPT_TIMEOUT_MS, (long)TEST_LIMIT_MS);
	curl_easy_setopt(s3c_easy, CURLOPT_WRITEFUNCTION, s3c_gather);
	curl_easy_setopt(s3c_easy, CURLOPT_WRITEDATA, &c->data);
	curl_easy_setopt(s3c_easy, CURLOPT_HEADERDATA, &c->head);
	if (c->body) {
		curl_easy_setopt(s3c_easy, CURLOPT_UPLOAD, 1L);
		curl_easy_setopt(s3c_easy, CURLOPT_READFUNCTION, provide);
		curl_easy_setopt(s3c_easy, CURLOPT_READDATA, &source);
		curl_easy_setopt(s3c_easy, CURLOPT_INFILESIZE_LARGE, (curl_off_t)source.left);
	}
	if (c->method && strcmp(c->method, "HEAD") == 0)
		curl_easy_setopt(s3c_easy, CURLOPT_NOBODY, 1L);
	else if (c->method)
		curl_easy_setopt(s3c_easy, CURLOPT_CUSTOMREQUEST, c->method);
	for (size_t i = 0; i < TEST_COUNT(c->headers) && c->headers[i]; i++)
		lines = curl_slist_append(lines, c->headers[i]);
	if (c->sign) {
		char *how = test_format("aws:amz:%s:s3", c->sign);

		/* libcurl would sign the header that it was told not to send. */
		curl_slist_free_all(lines);
		lines = curl_slist_append(NULL, "x-amz-content-sha256: UNSIGNED-PAYLOAD");
		curl_easy_setopt(s3c_easy, CURLOPT_AWS_SIGV4, how);
		curl_easy_setopt(s3c_easy, CURLOPT_USERPWD, "AKIDTEST:a secret");
		free(how);
	}
	curl_easy_setopt(s3c_easy, CURLOPT_HTTPHEADER, lines);
	c->code = curl_easy_perform(s3c_easy);
	curl_easy_getinfo(s3c_easy, CURLINFO_RESPONSE_CODE, &c->status);
	curl_slist_free_all(lines);
	free(url);
	return c->status;
}

bool s3c_says(const struct s3c_text *text, const char *what)
{
	return text->data && strstr(text->data, what) != NULL;
}

long s3c_simple(const char *method, const char *path)
{
	struct s3c_call c = {.method = method, .path = path};
	long status = s3c_run(&c);

	s3c_forget(&c);
	return status;
}

long s3c_put(const char *path, const char *body, const char *header)
{
	struct s3c_call c = {.method = "PUT", .path = path, .body = body, .headers = {header}};
	long status = s3c_run(&c);

	s3c_forget(&c);
	return status;
}

void s3c_start(const struct s3_server_options *options)
{
	const char *why = NULL;

	s3c_server = s3_server_start(options, &why);
	if (!s3c_server)
		fail_msg("the server does not start: %s", why);
}

int s3c_set_up(void **state)
{
	(void)state;
	s3c_easy = curl_easy_init();
	return s3c_easy ? 0 : -1;
}

int s3c_tear_down(void **state)
{
	(void)state;
	curl_easy_cleanup(s3c_easy);
	s3c_easy = NULL;
	s3_server_stop(s3c_server);
	s3c_server = NULL;
	return 0;
}

void s3c_rule(const char *text)
{
	const char *wrong = s3_server_add_rule_text(s3c_server, text);

	if (wrong)
		fail_msg("rule '%s': %s", text, wrong);
}

void s3c_renew(void)
{
	curl_easy_cleanup(s3c_easy);
	s3c_easy = curl_easy_init();
	assert_non_null(s3c_easy);
}
