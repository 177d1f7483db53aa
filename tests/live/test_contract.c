/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The S3 backend keeps the contract on a real server, in the way that the argument says: plain, by
 * TLS under a private authority, with signed payloads, or with a HEAD before each PUT; and so does
 * the module on libs3, plain.
 *
 *     live_test_contract plain|tls|signed|head|libs3
 */
#include "../contract.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "live_server.h"

#define MAX_OPTIONS 4

extern const struct kvt_backend_ops kvt__s3_backend_ops;

static int make_location(char *location, size_t bytes)
{
	if (bytes < 3)
		return -1;
	memcpy(location, "//", 2);
	return live_server_place(location + 2, bytes - 2);
}

/* Whatever a case has left: the next one has another place, but the bucket is the user's. */
static void remove_location(const char *location)
{
	struct contract c;
	struct contract_names names = {0};
	struct testsession lister, ts;

	testhost_init(&c.th);
	if (contract_open(&c.tb, &c.th, location))
		return;
	if (!testsession_open(&lister, &c.tb, 1, 1)) {
		(void)contract_list(&c, &lister, "", 0, &names);
		testsession_close(&lister);
	}
	if (!testsession_open(&ts, &c.tb, 1, 0)) {
		for (size_t i = 0; i < names.count; i++)
			(void)testsession_remove(&ts, names.names[i], NULL);
		testsession_close(&ts);
	}
	contract_names_free(&names);
	testbackend_close(&c.tb);
}

/* The table of the module; ends the program when there is none. */
static const struct kvt_backend_ops *load_module(void)
{
	static struct testhost th;
	void *module =
		dlopen(KVT_TEST_MODULE_DIR "/kvtier-backend-s3+libs3.so", RTLD_NOW | RTLD_LOCAL);
	void *symbol = module ? dlsym(module, KVT_BACKEND_ENTRY) : NULL;
	const struct kvt_backend_ops *ops = NULL;
	kvt_backend_entry_fn entry;

	if (!symbol) {
		printf("skipped: the module on libs3 is not built: %s\n", dlerror());
		exit(77);
	}
	memcpy(&entry, &symbol, sizeof(entry));
	testhost_init(&th);
	ops = entry(&th.host);
	if (!ops)
		exit(1);
	return ops;
}

int main(int argc, char **argv)
{
	static const char *const nothing[] = {NULL};
	static const char *const tls[] = {"KVT_S3_TLS_ENDPOINT", "KVT_S3_CA", NULL};
	const char *way = argc > 1 ? argv[1] : "plain";
	/* Swift keeps no conditions: the backend asks first. */
	bool is_swift =
		live_server("KVT_S3_SERVER") && strcmp(live_server("KVT_S3_SERVER"), "swift") == 0;
	bool by_tls = strcmp(way, "tls") == 0;
	struct kvt_option_value options[MAX_OPTIONS];
	size_t count = 0;
	char name[64];

	live_server_need(by_tls ? tls : nothing);
	options[count++] = (struct kvt_option_value){
		"endpoint", live_server(by_tls ? "KVT_S3_TLS_ENDPOINT" : "KVT_S3_ENDPOINT")};
	if (by_tls)
		options[count++] = (struct kvt_option_value){"ca_bundle", live_server("KVT_S3_CA")};
	if (strcmp(way, "signed") == 0)
		options[count++] = (struct kvt_option_value){"payload_signing", "signed"};
	if (strcmp(way, "head") == 0)
		options[count++] = (struct kvt_option_value){"exists_check", "head"};
	snprintf(name, sizeof(name), "s3 %s", way);
	return contract_run(&(struct contract_backend){
		.name = name,
		.ops = strcmp(way, "libs3") == 0 ? load_module() : &kvt__s3_backend_ops,
		.options = options,
		.option_count = count,
		.asks_first = is_swift || strcmp(way, "head") == 0,
		.server_may_fail = true,
		.make_location = make_location,
		.remove_location = remove_location,
	});
}
