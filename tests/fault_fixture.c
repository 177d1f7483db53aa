/* SPDX-License-Identifier: Apache-2.0 */
/* The fault wrapper over the mem backend, and the usual requests. */
#include "fault_fixture.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern const struct kvt_backend_ops kvt__mem_backend_ops, kvt__fault_backend_ops;

enum fault_inner fault_inner;

/* Opens the wrapper with options given as "name=value", ended by NULL; %s stands for the file. */
int fault_try_open(struct fixture *f, const char *const *options)
{
	struct testbackend_options o = {.ops = &kvt__fault_backend_ops,
					.inner = &f->inner,
					.location = "",
					.options = f->options,
					.inner_options = &f->inner_option,
					.inner_option_count = fault_inner == FAULT_LATER};

	f->inner = kvt__mem_backend_ops;
	if (fault_inner == FAULT_BLOCKING) {
		f->inner.poll = NULL;
		f->inner.wake = NULL;
	}
	f->inner_option = (struct kvt_option_value){"async", "1"};
	for (; *options; options++) {
		char *text = f->texts[o.option_count], *equals;
		const char *hole = strstr(*options, "%s");

		snprintf(text, sizeof(f->texts[0]), "%.*s%s%s",
			 hole ? (int)(hole - *options) : (int)strlen(*options), *options,
			 hole ? f->path : "", hole ? hole + 2 : "");
		equals = strchr(text, '=');
		*equals = 0;
		f->options[o.option_count++] = (struct kvt_option_value){text, equals + 1};
	}
	return testbackend_open(&f->tb, &f->th, &o);
}

int fault_setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	const char *tmp = getenv("TMPDIR");
	int fd;

	*state = f;
	if (!f)
		return -1;
	testhost_init(&f->th);
	snprintf(f->path, sizeof(f->path), "%.40s/kvtier-fault-XXXXXX", tmp ? tmp : "/tmp");
	fd = mkstemp(f->path);
	if (fd < 0)
		return -1;
	close(fd);
	unlink(f->path);
	for (size_t i = 0; i < FAULT_BODY_BYTES; i++)
		f->body[i] = (uint8_t)(i * 7 + i / 251);
	return 0;
}

int fault_teardown(void **state)
{
	struct fixture *f = *state;
	int leaked;

	testsession_close(&f->ts);
	testbackend_close(&f->tb);
	unlink(f->path);
	leaked = atomic_load(&f->th.live) != 0;
	free(f);
	return leaked ? -1 : 0;
}

void make_file(struct fixture *f)
{
	int fd = open(f->path, O_CREAT | O_WRONLY, 0600);

	assert_true(fd >= 0);
	close(fd);
}

int put(struct fixture *f, const char *name)
{
	return testsession_put(&f->ts, name, f->body, FAULT_BODY_BYTES, 0, NULL, NULL);
}

int get(struct fixture *f, const char *name)
{
	memset(f->back, 0, sizeof(f->back));
	return testsession_get(&f->ts, name, f->back, FAULT_BODY_BYTES, 0, NULL);
}

int head(struct fixture *f, const char *name)
{
	return testsession_head(&f->ts, name, NULL);
}

int fault_run_cases(const struct CMUnitTest *cases, size_t count)
{
	static const char *const groups[] = {"fault+mem", "fault+mem async=1",
					     "fault+mem without poll"};
	int failures = 0;

	for (fault_inner = FAULT_AT_ONCE; fault_inner <= FAULT_BLOCKING; fault_inner++)
		failures += _cmocka_run_group_tests(groups[fault_inner], cases, count, NULL, NULL);
	return failures;
}
