/* SPDX-License-Identifier: Apache-2.0 */
/* See args_scene.h. */
#include "args_scene.h"

#include <stdlib.h>
#include <string.h>

void args_refused(int code, const char *a, const char *b, const char *c, int got, const char *call,
		  const char *file, int line)
{
	test_fails(code, a, got, call, file, line);
	if (b)
		test_fails(code, b, got, call, file, line);
	if (c)
		test_fails(code, c, got, call, file, line);
	if (strchr(kvt_error_detail(), '\n')) {
		print_error("more than one line: %s\n", kvt_error_detail());
		_fail(file, line);
	}
}

const struct test_group args_groups[2] = {{6, 0, 2, {100, 200}}, {2, 1, 1, {300}}};

int args_scene_open(void **state)
{
	struct args_scene *s = calloc(1, sizeof(*s));

	assert_non_null(s);
	s->fake = fake_store_create(NULL);
	test_bed_init(&s->bed);
	test_bed_open(&s->bed, fake_store_uri(s->fake));
	test_transfer_init(&s->t, 4, args_groups, 2, 1);
	test_transfer_fill(&s->t);
	*state = s;
	return 0;
}

/* Whatever was refused must not have left a job or a request behind. */
int args_scene_close(void **state)
{
	struct args_scene *s = *state;
	struct kvt_stats stats = test_stats(s->bed.worker);

	assert_int_equal(stats.jobs_live, 0);
	assert_int_equal(stats.jobs_submitted, 0);
	assert_int_equal(fake_calls(s->fake, KVT_IO_PUT), 0);
	test_store(&s->bed, &s->t, KVT_STATUS_STORED);
	test_bed_close(&s->bed);
	test_transfer_fini(&s->t);
	if (fake_violation(s->fake))
		fail_msg("%s", fake_violation(s->fake));
	fake_store_destroy(s->fake);
	free(s);
	return 0;
}
