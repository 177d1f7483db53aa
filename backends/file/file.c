/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file backend: objects are files below a root folder, under their own names, so that other
 * software can read them. This file has its options, opening and closing, and the table.
 */
#include "file.h"

#include <stdio.h>
#include <string.h>

extern const struct kvt_backend_ops kvt__file_backend_ops;

struct file_options {
	mode_t mode;
	enum file_direct direct;
	int engine; /* enum file_engine, -1: auto */
	enum file_fsync fsync;
	bool insecure_root;
};

static const struct kvt_option_spec file_option_specs[] = {
	{"mode", "0600", "permissions of new files, octal; folders get the matching search bits"},
	{"direct", "auto", "O_DIRECT: auto, on (opening fails without it) or off"},
	{"engine", "auto", "what moves data that is not cached: auto, uring or threads"},
	{"fsync", "none",
	 "before a file appears: none, data, or full (data, then its folder as well)"},
	{"insecure_root", "0",
	 "1: accept a root that everybody may write to and somebody else owns"},
	{0},
};

/* The index of a value in a list of words; -1, and the failure is told, when it is none. */
static int file_choice(const struct kvt_host *host, const struct kvt_option_value *option,
		       const char *const *words)
{
	for (int i = 0; words[i]; i++)
		if (!strcmp(option->value, words[i]))
			return i;
	host->fail(host, "option %s: '%s', expected %s%s%s or %s", option->name, option->value,
		   words[0], words[2] ? ", " : "", words[2] ? words[1] : "",
		   words[2] ? words[2] : words[1]);
	return -1;
}

static int file_mode_option(const struct kvt_host *host, const char *value, mode_t *modep)
{
	mode_t mode = 0;
	const char *p = value;

	for (; *p >= '0' && *p <= '7' && mode <= 07777; p++)
		mode = mode * 8 + (mode_t)(*p - '0');
	if (*p || p == value || (mode & ~(mode_t)0666) || (mode & 0600) != 0600) {
		host->fail(
			host,
			"option mode: '%s', expected octal permissions like 0600 or 0640 that let "
			"the owner read and write and nobody execute",
			value);
		return KVT_EINVAL;
	}
	*modep = mode;
	return 0;
}

static int file_parse_options(const struct kvt_host *host, const struct kvt_backend_config *config,
			      struct file_options *out)
{
	static const char *const directs[] = {"auto", "on", "off", NULL};
	static const char *const engines[] = {"auto", "uring", "threads", NULL};
	static const char *const fsyncs[] = {"none", "data", "full", NULL};
	static const char *const flags[] = {"0", "1", NULL};

	*out = (struct file_options){.mode = 0600, .engine = -1};
	for (size_t i = 0; i < config->option_count; i++) {
		const struct kvt_option_value *option = &config->options[i];
		int choice = 0;

		if (!strcmp(option->name, "mode")) {
			if (file_mode_option(host, option->value, &out->mode))
				return KVT_EINVAL;
		} else if (!strcmp(option->name, "direct")) {
			choice = file_choice(host, option, directs);
			out->direct = (enum file_direct)choice;
		} else if (!strcmp(option->name, "engine")) {
			choice = file_choice(host, option, engines);
			out->engine = choice <= 0   ? -1
				      : choice == 1 ? FILE_ENGINE_URING
						    : FILE_ENGINE_THREADS;
		} else if (!strcmp(option->name, "fsync")) {
			choice = file_choice(host, option, fsyncs);
			out->fsync = (enum file_fsync)choice;
		} else if (!strcmp(option->name, "insecure_root")) {
			choice = file_choice(host, option, flags);
			out->insecure_root = choice == 1;
		}
		if (choice < 0)
			return KVT_EINVAL;
	}
	return 0;
}

/* Folders need the search bit for whoever may read or write the files in them. */
static mode_t file_folder_mode(mode_t mode)
{
	return mode | (mode & 0444) >> 2 | (mode & 0222) >> 1;
}

/* The ring serves O_DIRECT; without it, threads keep a slow disk or network from holding up the
 * session, and memory needs neither. */
static int file_choose_engine(struct file_backend *b, int wish)
{
	bool direct = atomic_load(&b->direct_read) || atomic_load(&b->direct_write);

	if (wish == FILE_ENGINE_URING && !kvt__file_ring_usable()) {
		b->host->fail(
			b->host,
			"option engine: uring, but io_uring is not to be had here (the build, "
			"the kernel or the container lacks it); expected auto or threads");
		return KVT_ECONFIG;
	}
	if (wish >= 0)
		b->engine = (enum file_engine)wish;
	else if (!direct && b->memory)
		b->engine = FILE_ENGINE_INLINE;
	else if (direct && !b->remote && kvt__file_ring_usable())
		b->engine = FILE_ENGINE_URING;
	else
		b->engine = FILE_ENGINE_THREADS;
	return 0;
}

static void file_fill_limits(struct file_backend *b, struct kvt_backend_limits *limits,
			     bool exclusive)
{
	static const char *const engines[] = {"inline", "uring", "threads"};
	bool reads = atomic_load(&b->direct_read), writes = atomic_load(&b->direct_write);
	uint32_t memory = atomic_load(&b->memory_align), offset = atomic_load(&b->offset_align);

	limits->max_iov = 1024;
	limits->max_name_bytes = FILE_MAX_NAME;
	limits->default_depth = 32;
	limits->memory_alignment = !reads && !writes ? 1 : memory > offset ? memory : offset;
	limits->capabilities = KVT_CAP_IF_VERSION_GET | KVT_CAP_HOLES | KVT_CAP_RAW_FILES |
			       KVT_CAP_TOUCH | KVT_CAP_GET_DISCARD;
	if (exclusive)
		limits->capabilities |= KVT_CAP_IF_ABSENT;
	snprintf(limits->detail, sizeof(limits->detail), "engine=%s direct=%s filesystem=%s%s",
		 engines[b->engine],
		 reads && writes ? "on"
		 : reads	 ? "reads"
		 : writes	 ? "writes"
				 : "off",
		 b->filesystem, atomic_load(&b->temp_fd) < 0 ? " writable=no" : "");
}

/* All but the root, in an allocated backend. */
static int file_open_place(struct file_backend *b, const struct file_options *options,
			   struct kvt_backend_limits *limits)
{
	const struct kvt_host *host = b->host;
	uint32_t swept;
	bool exclusive;
	int result;

	if (kvt__file_identify(b)) {
		int err = errno;

		host->fail(host, "%s: statfs: %s", b->root_path, kvt__file_error_text(err));
		return kvt__file_error(err);
	}
	/* What cannot be swept is swept the next time. */
	if (!kvt__file_temp_sweep(b, FILE_STALE_S, &swept) && swept)
		host->log(host, KVT_HOST_INFO, "file: swept",
			  "%s: removed %u temporary files of processes that are gone", b->root_path,
			  swept);
	exclusive = kvt__file_probe(b, options->direct);
	if (options->direct == FILE_DIRECT_ON &&
	    !(atomic_load(&b->direct_read) && atomic_load(&b->direct_write))) {
		host->fail(host, "option direct: on, but %s (%s) does not take O_DIRECT",
			   b->root_path, b->filesystem);
		return KVT_ECONFIG;
	}
	result = file_choose_engine(b, options->engine);
	if (result)
		return result;
	file_fill_limits(b, limits, exclusive);
	return 0;
}

static void file_free(struct file_backend *b)
{
	const struct kvt_host *host = b->host;

	kvt__file_root_close(b);
	pthread_mutex_destroy(&b->temp_lock);
	pthread_mutex_destroy(&b->sessions_lock);
	host->free(host, b);
}

static int file_open(const struct kvt_host *host, const struct kvt_backend_config *config,
		     void **backendp, struct kvt_backend_limits *limits)
{
	struct file_options options;
	struct file_backend *b;
	int result;

	*backendp = NULL;
	result = file_parse_options(host, config, &options);
	if (result)
		return result;
	b = host->alloc(host, sizeof(*b), 64);
	if (!b) {
		host->fail(host, "file:%s: out of memory", config->location);
		return KVT_ENOMEM;
	}
	memset(b, 0, sizeof(*b));
	b->host = host;
	b->fsync = options.fsync;
	b->file_mode = options.mode;
	b->dir_mode = file_folder_mode(options.mode);
	/* fsync wants a folder that is really open. */
	b->dir_flags = O_DIRECTORY | (b->fsync == FILE_FSYNC_FULL ? O_RDONLY : O_PATH);
	b->root_fd = b->temp_lock_fd = -1;
	atomic_store(&b->temp_fd, -1);
	atomic_store(&b->unnamed, true);
	atomic_store(&b->rename_noreplace, true);
	pthread_mutex_init(&b->temp_lock, NULL);
	pthread_mutex_init(&b->sessions_lock, NULL);
	result = kvt__file_root_open(b, config->location, options.insecure_root);
	if (!result) {
		result = file_open_place(b, &options, limits);
		if (result)
			kvt__file_temp_close(b, false);
	}
	if (result) {
		file_free(b);
		return result;
	}
	*backendp = b;
	return 0;
}

static void file_close(void *opaque)
{
	struct file_backend *b = opaque;

	kvt__file_temp_close(b, false);
	file_free(b);
}

static void file_forked(void *opaque)
{
	struct file_backend *b = opaque;
	const struct kvt_host *host = b->host;

	while (b->sessions) {
		struct file_session *s = b->sessions;

		b->sessions = s->next;
		kvt__file_session_forked(s);
	}
	kvt__file_temp_close(b, true);
	kvt__file_root_close(b);
	host->free(host, b);
}

const struct kvt_backend_ops kvt__file_backend_ops = {
	.struct_size = sizeof(struct kvt_backend_ops),
	.abi = KVT_BACKEND_ABI,
	.name = "file",
	.option_specs = file_option_specs,
	.io_private_bytes = sizeof(struct file_op),
	.open = file_open,
	.close = file_close,
	.session_open = kvt__file_session_open,
	.session_close = kvt__file_session_close,
	.submit = kvt__file_submit,
	.poll = kvt__file_poll,
	.wake = kvt__file_wake,
	.forked = file_forked,
};
