/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects in a bucket by libs3 as distributions package it, for clusters that know signature
 * version 2 only. A loadable module, so that libs3's licence, its libcurl and its names that have
 * no prefix stay out of the library: kvtier loads it apart from all else (dlopen's RTLD_LOCAL and
 * RTLD_DEEPBIND). Blocking: one request at a time on each lane.
 */
#include "module.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* libs3 is initialized once for the life of the process, and never the other way round: its
 * S3_deinitialize takes libxml2 away from everybody else. */
static pthread_mutex_t start_lock = PTHREAD_MUTEX_INITIALIZER;
static bool is_started;		  /* guarded by start_lock, like the next one */
static bool is_started_verifying; /* without more, connections are verified */

/* libxml2, on which libs3 stands, makes its global state at its first use, and two first uses at
 * once race. Whatever version libs3 has brought is asked to do that now. */
static void libs3_start_xml(void)
{
	static const char *const names[] = {"libxml2.so.2", "libxml2.so.16"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		void *library = dlopen(names[i], RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD);
		void *symbol = library ? dlsym(library, "xmlInitParser") : NULL;
		void (*init)(void);

		memcpy(&init, &symbol, sizeof(init));
		if (symbol)
			init();
		if (library)
			(void)dlclose(library);
	}
}

static int libs3_start(const struct kvt_host *host, const struct libs3_config *config)
{
	int flags = S3_INIT_ALL, error = 0;
	S3Status status;

	pthread_mutex_lock(&start_lock);
	if (!is_started) {
#ifdef KVT_LIBS3_HAVE_VERIFY
		if (config->verify)
			flags |= S3_INIT_VERIFY_PEER;
#endif
		status = S3_initialize("kvtier", flags, config->host);
		if (status != S3StatusOK) {
			host->fail(host, "s3+libs3: S3_initialize: %s", S3_get_status_name(status));
			error = KVT_EINTERNAL;
		}
		if (!error)
			libs3_start_xml();
		is_started = !error;
		is_started_verifying = LIBS3_HAS_VERIFY && config->verify;
	}
	if (!error && config->https && !config->verify && is_started_verifying) {
		host->fail(host,
			   "s3+libs3: option verify: \"off\", expected on: another store of this "
			   "process has verify=on, and libs3 verifies for all or for none");
		error = KVT_ECONFIG;
	}
	pthread_mutex_unlock(&start_lock);
	return error;
}

static void libs3_warn(const struct libs3_backend *b)
{
	const struct libs3_config *config = &b->config;

	if (!config->https && !config->is_loopback)
		b->host->log(
			b->host, KVT_HOST_WARNING, "s3+libs3 http",
			"%s: plain http: what is stored goes over the network in the clear and "
			"its payload is not signed",
			config->host);
	if (config->https && !config->verify)
		b->host->log(
			b->host, KVT_HOST_WARNING, "s3+libs3 verify",
			"%s: verify=off: anybody on the way can read and change what is stored",
			config->host);
}

static void libs3_free(struct libs3_backend *b)
{
	const struct kvt_host *host = b->host;

	kvt__libs3_config_fini(&b->config, host);
	host->free(host, b);
}

static void set_bucket(struct libs3_backend *b)
{
	const struct libs3_config *config = &b->config;

	memset(&b->bucket, 0, sizeof(b->bucket));
	b->bucket.hostName = config->host;
	b->bucket.bucketName = config->bucket;
	b->bucket.protocol = config->https ? S3ProtocolHTTPS : S3ProtocolHTTP;
	b->bucket.uriStyle = config->is_virtual ? S3UriStyleVirtualHost : S3UriStylePath;
	b->bucket.accessKeyId = config->access_key;
	b->bucket.secretAccessKey = config->secret_key;
#ifdef KVT_LIBS3_HAVE_TOKEN
	b->bucket.securityToken = config->session_token;
#endif
#ifdef KVT_LIBS3_HAVE_REGION
	b->bucket.authRegion = config->region;
#endif
}

static void set_limits(const struct libs3_backend *b, struct kvt_backend_limits *limits)
{
	const struct libs3_config *config = &b->config;

	limits->max_name_bytes = LIBS3_MAX_KEY_BYTES - (uint32_t)strlen(config->key_root);
	limits->default_depth = 1;
	limits->capabilities = KVT_CAP_IF_VERSION_GET | KVT_CAP_GET_DISCARD;
	kvt__libs3_parts_limits(b, limits);
	(void)snprintf(limits->detail, sizeof(limits->detail),
		       "endpoint=%s://%s bucket=%s addressing=%s signature=%s multipart=%s",
		       config->https ? "https" : "http", config->host, config->bucket,
		       config->is_virtual ? "virtual" : "path", LIBS3_HAS_REGION ? "4" : "2",
		       LIBS3_HAS_MULTIPART ? "yes" : "no");
}

static int libs3_open(const struct kvt_host *host, const struct kvt_backend_config *config,
		      void **backendp, struct kvt_backend_limits *limits)
{
	struct libs3_backend *b = host->alloc(host, sizeof(*b), 16);
	int error;

	*backendp = NULL;
	if (!b) {
		host->fail(host, "s3+libs3: out of memory");
		return KVT_ENOMEM;
	}
	memset(b, 0, sizeof(*b));
	b->host = host;
	error = kvt__libs3_config_init(&b->config, host, config);
	if (!error)
		error = libs3_start(host, &b->config);
	if (error) {
		libs3_free(b);
		return error;
	}
	set_bucket(b);
	libs3_warn(b);
	set_limits(b, limits);
	*backendp = b;
	return 0;
}

static void libs3_close(void *backend)
{
	libs3_free(backend);
}

static int libs3_session_open(void *backend, uint32_t depth, int listing, void **sessionp)
{
	struct libs3_backend *b = backend;
	struct libs3_session *session = b->host->alloc(b->host, sizeof(*session), 16);

	(void)depth;
	(void)listing;
	*sessionp = NULL;
	if (!session) {
		b->host->fail(b->host, "s3+libs3: session: out of memory");
		return KVT_ENOMEM;
	}
	memset(session, 0, sizeof(*session));
	session->backend = b;
	session->host = b->host;
	*sessionp = session;
	return 0;
}

static void libs3_session_close(void *opaque)
{
	struct libs3_session *session = opaque;

	if (session->context)
		S3_destroy_request_context(session->context);
	session->host->free(session->host, session);
}

/* What a dead process began was in its memory alone. */
static int libs3_sweep(struct libs3_session *session, struct kvt_io *io)
{
	(void)session;
	(void)io;
	return 0;
}

static int libs3_submit(void *opaque, struct kvt_io *io)
{
	static const struct {
		const char *verb; /* NULL: it has an end to make, whatever the time */
		int (*run)(struct libs3_session *, struct kvt_io *);
	} ops[] = {
		[KVT_IO_PUT] = {"put", kvt__libs3_put},
		[KVT_IO_BEGIN] = {"begin", kvt__libs3_begin},
		[KVT_IO_PART] = {"part", kvt__libs3_part},
		[KVT_IO_COMMIT] = {NULL, kvt__libs3_commit},
		[KVT_IO_ABORT] = {NULL, kvt__libs3_abort},
		[KVT_IO_GET] = {"get", kvt__libs3_get},
		[KVT_IO_HEAD] = {"head", kvt__libs3_head},
		[KVT_IO_REMOVE] = {"remove", kvt__libs3_remove},
		[KVT_IO_LIST] = {"list", kvt__libs3_list},
		[KVT_IO_SWEEP] = {"sweep", libs3_sweep},
	};
	struct libs3_session *session = opaque;

	io->bytes_landed = 0;
	io->swept = 0;
	io->info.object_bytes = KVT_BYTES_UNKNOWN;
	io->info.version.bytes = 0;
	io->info.age_ns = io->info.access_age_ns = -1;
	if (io->op >= sizeof(ops) / sizeof(ops[0]) || !ops[io->op].run)
		return KVT_ENOTSUP;
	if (ops[io->op].verb && kvt__libs3_is_late(session, io, ops[io->op].verb))
		io->result = KVT_ETIMEDOUT;
	else
		io->result = ops[io->op].run(session, io);
	return KVT_DONE;
}

/* No `forked`: a session's connections are libs3's own, which lends no descriptor of them, and a
 * child that ends or executes something else needs nothing of them. */
static const struct kvt_backend_ops libs3_ops = {
	.struct_size = sizeof(struct kvt_backend_ops),
	.abi = KVT_BACKEND_ABI,
	.name = "s3+libs3",
	.option_specs = kvt__libs3_option_specs,
	.open = libs3_open,
	.close = libs3_close,
	.session_open = libs3_session_open,
	.session_close = libs3_session_close,
	.submit = libs3_submit,
};

KVT_API const struct kvt_backend_ops *kvt_backend_entry(const struct kvt_host *host);

const struct kvt_backend_ops *kvt_backend_entry(const struct kvt_host *host)
{
	return host->abi == KVT_BACKEND_ABI ? &libs3_ops : NULL;
}
