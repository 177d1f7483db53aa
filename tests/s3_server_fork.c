/* SPDX-License-Identifier: Apache-2.0 */
/* The S3 server in a process of its own. */
#include "s3_server.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static void serve(const struct s3_server_options *options, int to)
{
	struct s3_server *server;
	char url[96] = "";
	sigset_t signals;
	int got;

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	sigemptyset(&signals);
	sigaddset(&signals, SIGTERM);
	pthread_sigmask(SIG_BLOCK, &signals, NULL);
	server = s3_server_start(options, NULL);
	if (server)
		snprintf(url, sizeof(url), "%s", s3_server_url(server));
	if (!server || write(to, url, sizeof(url)) != (ssize_t)sizeof(url))
		_exit(1);
	sigwait(&signals, &got);
	s3_server_stop(server);
	_exit(0);
}

int s3_server_fork(const struct s3_server_options *options, char url[96])
{
	int pipes[2], child;

	if (pipe(pipes))
		return -1;
	fflush(NULL);
	child = fork();
	if (child == 0) {
		close(pipes[0]);
		serve(options, pipes[1]);
	}
	close(pipes[1]);
	if (child > 0 && read(pipes[0], url, 96) != 96) {
		(void)waitpid(child, NULL, 0);
		child = -1;
	}
	close(pipes[0]);
	return child;
}

void s3_server_reap(int process)
{
	if (process <= 0)
		return;
	(void)kill(process, SIGTERM);
	(void)waitpid(process, NULL, 0);
}
