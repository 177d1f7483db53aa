/* SPDX-License-Identifier: Apache-2.0 */
/* A name server that does not answer: a request that waits for it ends in its time, and the lane
 * goes on meanwhile. This program's own getaddrinfo stands before libcurl's. */
#include "s3_scene.h"

#include <netdb.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>

#define NAME "ab/cd.bin"

static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	unsigned waiting; /* calls that wait for an answer */
	bool answers;
} names = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, false};

__attribute__((visibility("default"))) int getaddrinfo(const char *node, const char *service,
						       const struct addrinfo *hints,
						       struct addrinfo **result)
{
	(void)node;
	(void)service;
	(void)hints;
	*result = NULL;
	pthread_mutex_lock(&names.lock);
	names.waiting++;
	while (!names.answers)
		pthread_cond_wait(&names.changed, &names.lock);
	names.waiting--;
	pthread_mutex_unlock(&names.lock);
	return EAI_AGAIN;
}

static unsigned waiting_now(void)
{
	unsigned waiting;

	pthread_mutex_lock(&names.lock);
	waiting = names.waiting;
	pthread_mutex_unlock(&names.lock);
	return waiting;
}

/* Were anything to wait for the name server, this would never end. */
static void a_silent_name_server_holds_nobody_up(void **state)
{
	struct s3_scene *scene = *state;

	s3_scene_option(scene, "endpoint", "http://s3.storage.example:9");
	s3_scene_open(scene);
	scene->time_ms = 1000;
	/* Until a thread has got as far as to wait. */
	for (unsigned i = 0; i < 3 || (i < 60 && waiting_now() == 0); i++) {
		s3_scene_head(scene, NAME, 0);
		s3_scene_expect(scene, "head", KVT_ETIMEDOUT, NAME);
	}
	assert_true(waiting_now() > 0);
	/* Nor does closing. */
	s3_scene_close(scene);
	assert_true(waiting_now() > 0);
}

static int let_them_go(void **state)
{
	pthread_mutex_lock(&names.lock);
	names.answers = true;
	pthread_cond_broadcast(&names.changed);
	pthread_mutex_unlock(&names.lock);
	while (waiting_now())
		(void)sched_yield();
	return s3_scene_teardown(state);
}

int main(void)
{
	const struct CMUnitTest cases[] = {
		cmocka_unit_test_setup_teardown(a_silent_name_server_holds_nobody_up,
						s3_scene_setup, let_them_go),
	};

	return cmocka_run_group_tests_name("s3_names", cases, NULL, NULL);
}
