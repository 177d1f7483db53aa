/* SPDX-License-Identifier: Apache-2.0 */
/* The S3 backend keeps the contract on servers of several kinds: as AWS is, as Ceph's gateway is,
 * and on one that knows no conditions. */
#include "contract.h"
#include "s3_scene.h"

#include <stdio.h>
#include <stdlib.h>

extern const struct kvt_backend_ops kvt__s3_backend_ops;

static unsigned places;

/* A prefix of its own for each test. */
static int make_location(char *location, size_t bytes)
{
	int n = snprintf(location, bytes, "//bucket/place %u", ++places);

	return n < 0 || (size_t)n >= bytes ? -1 : 0;
}

static int run(const char *name, unsigned traits, const char *option, const char *value)
{
	struct kvt_option_value options[] = {{"endpoint", NULL},
					     {"access_key", S3_SCENE_ACCESS_KEY},
					     {"secret_key", S3_SCENE_SECRET},
					     {option, value}};
	char url[96];
	int process, failures;

	/* Its descriptors are none of ours: the suite counts them. */
	process = s3_server_fork(&(struct s3_server_options){.traits = traits,
							     .access_key = S3_SCENE_ACCESS_KEY,
							     .secret_key = S3_SCENE_SECRET},
				 url);
	if (process < 0) {
		print_error("%s: the server does not start\n", name);
		return 1;
	}
	options[0].value = url;
	failures = contract_run(&(struct contract_backend){
		.name = name,
		.ops = &kvt__s3_backend_ops,
		.options = options,
		.option_count = option ? 4 : 3,
		.capabilities = KVT_CAP_IF_ABSENT | KVT_CAP_IF_VERSION_PUT |
				KVT_CAP_IF_VERSION_GET | KVT_CAP_IF_VERSION_REMOVE |
				KVT_CAP_GET_DISCARD,
		.asks_first = (traits & S3_SERVER_NO_PUT_CONDITIONS) != 0,
		.make_location = make_location,
	});
	s3_server_reap(process);
	return failures;
}

int main(void)
{
	void *scene = NULL;
	int failures;

	/* The environment that the other tests of it have. */
	if (s3_scene_setup(&scene) || s3_scene_teardown(&scene))
		return 1;
	failures = run("s3", 0, NULL, NULL);
	failures += run("s3 like Ceph",
			S3_SERVER_BLIND_COMPLETE_CONDITIONS | S3_SERVER_BARE_IF_MATCH |
				S3_SERVER_BARE_416 | S3_SERVER_COMPLETE_TWICE |
				S3_SERVER_NO_CHECKSUMS | S3_SERVER_EMPTY_PAGES,
			NULL, NULL);
	failures += run("s3 without conditions",
			S3_SERVER_NO_PUT_CONDITIONS | S3_SERVER_NO_COMPLETE_CONDITIONS, NULL, NULL);
	failures += run("s3 checksum=s3", 0, "checksum", "s3");
	failures += run("s3 payload_signing=signed", 0, "payload_signing", "signed");
	return failures;
}
