/* SPDX-License-Identifier: Apache-2.0 */
/* A wrapper as a module: hands everything to what it wraps. */
#include <kvtier/backend.h>

KVT_API const struct kvt_backend_ops *kvt_backend_entry(const struct kvt_host *host);

static const struct kvt_backend_ops *inner; /* one store at a time */

static int shell_open(const struct kvt_host *host, const struct kvt_backend_config *config,
		      void **backendp, struct kvt_backend_limits *limits)
{
	inner = config->inner;
	return inner->open(host, config->inner_config, backendp, limits);
}

static void shell_close(void *backend)
{
	inner->close(backend);
}

static int shell_session_open(void *backend, uint32_t depth, int listing, void **sessionp)
{
	return inner->session_open(backend, depth, listing, sessionp);
}

static void shell_session_close(void *session)
{
	inner->session_close(session);
}

static int shell_submit(void *session, struct kvt_io *io)
{
	return inner->submit(session, io);
}

static int shell_poll(void *session, int64_t until_ns)
{
	return inner->poll(session, until_ns);
}

static void shell_wake(void *session)
{
	inner->wake(session);
}

static const struct kvt_backend_ops ops = {
	.struct_size = sizeof(ops),
	.abi = KVT_BACKEND_ABI,
	.wraps = 1,
	.name = "shell",
	.io_private_bytes = 4096,
	.open = shell_open,
	.close = shell_close,
	.session_open = shell_session_open,
	.session_close = shell_session_close,
	.submit = shell_submit,
	.poll = shell_poll,
	.wake = shell_wake,
};

const struct kvt_backend_ops *kvt_backend_entry(const struct kvt_host *host)
{
	(void)host;
	return &ops;
}
