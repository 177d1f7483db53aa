/* SPDX-License-Identifier: Apache-2.0 */
/* What the tool asks of its process: clocks, CPU time, and whether it was told to stop. */
#include "cli.h"

#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

static volatile sig_atomic_t interrupted;

int64_t cli_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

double cli_cpu_seconds(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return (double)usage.ru_utime.tv_sec + (double)usage.ru_utime.tv_usec * 1e-6 +
	       (double)usage.ru_stime.tv_sec + (double)usage.ru_stime.tv_usec * 1e-6;
}

static void interrupt_handler(int signal_number)
{
	(void)signal_number;
	interrupted = 1;
}

bool cli_interrupted(void)
{
	return interrupted != 0;
}

void cli_interrupt_catch(void)
{
	struct sigaction action;

	memset(&action, 0, sizeof(action));
	action.sa_handler = interrupt_handler;
	/* One signal asks for an orderly end, the next one kills. */
	action.sa_flags = (int)SA_RESETHAND;
	sigemptyset(&action.sa_mask);
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
}
