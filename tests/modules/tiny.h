/* SPDX-License-Identifier: Apache-2.0 */
/* A blocking backend in which nothing is ever there; the modules beside it are made from it. */
#ifndef KVT_TESTS_MODULES_TINY_H
#define KVT_TESTS_MODULES_TINY_H

#include <kvtier/backend.h>

static inline int tiny_open(const struct kvt_host *host, const struct kvt_backend_config *config,
			    void **backendp, struct kvt_backend_limits *limits)
{
	static const char detail[] = "color=";
	uint32_t at = 0;

	(void)host;
	*backendp = limits;
	for (; detail[at] != '\0'; at++)
		limits->detail[at] = detail[at];
	for (size_t o = 0; o < config->option_count; o++)
		for (const char *c = config->options[o].value; *c != '\0' && at < 200; c++)
			limits->detail[at++] = *c;
	limits->detail[at] = '\0';
	return 0;
}

static inline void tiny_close(void *backend)
{
	(void)backend;
}

static inline int tiny_session_open(void *backend, uint32_t depth, int listing, void **sessionp)
{
	(void)depth;
	(void)listing;
	*sessionp = backend;
	return 0;
}

static inline void tiny_session_close(void *session)
{
	(void)session;
}

static inline int tiny_submit(void *session, struct kvt_io *io)
{
	(void)session;
	io->result = KVT_ENOENT;
	if (io->op == KVT_IO_LIST) {
		io->list_token[0] = '\0';
		io->result = 0;
	}
	return KVT_DONE;
}

#define TINY_OPTIONS                                                                               \
	{                                                                                          \
		{"color", "red", "any text"},                                                      \
		{                                                                                  \
			NULL, NULL, NULL                                                           \
		}                                                                                  \
	}

#define TINY_OPS(scheme, specs)                                                                    \
	{                                                                                          \
		.struct_size = sizeof(struct kvt_backend_ops), .abi = KVT_BACKEND_ABI,             \
		.name = (scheme), .option_specs = (specs), .open = tiny_open, .close = tiny_close, \
		.session_open = tiny_session_open, .session_close = tiny_session_close,            \
		.submit = tiny_submit,                                                             \
	}

KVT_API const struct kvt_backend_ops *kvt_backend_entry(const struct kvt_host *host);

#endif
