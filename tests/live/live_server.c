/* SPDX-License-Identifier: Apache-2.0 */
/* The server that the environment names. */
#include "live_server.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

const char *live_server(const char *variable)
{
	const char *value = getenv(variable);

	return value && value[0] != '\0' ? value : NULL;
}

static void need(const char *variable)
{
	if (live_server(variable))
		return;
	printf("skipped: %s is not set; tests/servers/rgw starts a server that has it\n", variable);
	exit(77);
}

void live_server_need(const char *const *variables)
{
	need("KVT_S3_ENDPOINT");
	need("KVT_S3_BUCKET");
	need("AWS_ACCESS_KEY_ID");
	for (; *variables; variables++)
		need(*variables);
	setenv("AWS_CONFIG_FILE", "/dev/null", 1);
	setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null", 1);
	setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
}

int live_server_place(char *place, size_t bytes)
{
	unsigned long long number;
	int length;

	if (getrandom(&number, sizeof(number), 0) != (ssize_t)sizeof(number))
		return -1;
	length = snprintf(place, bytes, "%s/live-%016llx", live_server("KVT_S3_BUCKET"), number);
	return length > 0 && (size_t)length < bytes ? 0 : -1;
}

bool live_server_control(const char *action, const char *name, char *answer, size_t bytes)
{
	char command[1024], line[512] = "";
	FILE *pipe;
	int length = snprintf(command, sizeof(command), "%s %s %s", live_server("KVT_S3_CONTROL"),
			      action, name);

	if (length < 0 || (size_t)length >= sizeof(command))
		return false;
	fflush(stdout);
	pipe = popen(command, "r");
	if (!pipe)
		return false;
	if (!fgets(line, sizeof(line), pipe))
		line[0] = '\0';
	line[strcspn(line, "\n")] = '\0';
	if (answer)
		snprintf(answer, bytes, "%s", line);
	return pclose(pipe) == 0;
}
