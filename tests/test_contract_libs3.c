/* SPDX-License-Identifier: Apache-2.0 */
/* The module on libs3 keeps the contract, on a faithful server in memory. The server is a process
 * of its own, for the suite counts descriptors. */
#include "contract.h"
#include "libs3_scene.h"

#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static int make_location(char *location, size_t bytes)
{
	static unsigned number;
	int n = snprintf(location, bytes, "//bucket/run/%u", number++);

	return n < 0 || (size_t)n >= bytes ? -1 : 0;
}

/* In the child: serves until the other end of `life` is closed. */
static _Noreturn void serve(int tell, int life)
{
	const char *why = "";
	struct s3_server *server =
		s3_server_start(&(struct s3_server_options){.forgetful = true}, &why);
	unsigned port = server ? s3_server_port(server) : 0;
	char end;

	if (!server)
		fprintf(stderr, "no server: %s\n", why);
	if (write(tell, &port, sizeof(port)) == sizeof(port) && port)
		(void)!read(life, &end, 1);
	s3_server_stop(server);
	_exit(port ? 0 : 1);
}

int main(void)
{
	int tell[2], life[2], failures, status = 0;
	unsigned port = 0;
	char url[64];
	pid_t child;

	libs3_clear_environment();
	libs3_ops = libs3_load(LIBS3_PACKAGED);
	if (!libs3_ops)
		return 77;
	if (pipe(tell) || pipe(life) || (child = fork()) < 0)
		return 1;
	if (child == 0) {
		close(tell[0]);
		close(life[1]);
		serve(tell[1], life[0]);
	}
	close(tell[1]);
	close(life[0]);
	if (read(tell[0], &port, sizeof(port)) != sizeof(port) || !port)
		return 1;
	snprintf(url, sizeof(url), "http://127.0.0.1:%u", port);
	const struct kvt_option_value options[] = {
		{"endpoint", url}, {"access_key", "key"}, {"secret_key", "secret"}};

	failures = contract_run(&(struct contract_backend){
		.name = "s3+libs3",
		.ops = libs3_ops,
		.options = options,
		.option_count = TEST_COUNT(options),
		.capabilities = KVT_CAP_IF_VERSION_GET | KVT_CAP_GET_DISCARD,
		.make_location = make_location,
	});
	close(life[1]);
	if (waitpid(child, &status, 0) != child || status != 0)
		failures++;
	return failures;
}
