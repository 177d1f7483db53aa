/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file backend's own declarations, in the order of its files.
 *
 * One operation (struct file_op, in the io's private memory) goes through a few steps: open, move
 * the data, synchronize, publish. Steps are plain system calls, run on the session's thread
 * (inline), on a thread of the session's pool, or, for data and synchronizing alone, by the
 * session's ring. Functions that return int return 0, or -1 with errno set, unless they say
 * otherwise.
 */
#ifndef KVT_BACKENDS_FILE_FILE_H
#define KVT_BACKENDS_FILE_FILE_H

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <kvtier/backend.h>
#include <kvtier/error.h>

#define FILE_MAX_NAME	 1024u
#define FILE_PAGE	 4096u
#define FILE_PIECE	 (128u * 1024)	      /* checksummed and moved while hot in the cache */
#define FILE_PIECE_SLACK (64u * 1024)	      /* a rest up to this joins the piece before it */
#define FILE_MAX_IO	 UINT64_C(0x7ffff000) /* most bytes that one system call moves */
#define FILE_POOL_BYTES	 (1024u * 1024)	      /* buffered transfers from here on go to the pool */
#define FILE_OWN_FOLDER	 ".kvtier"
#define FILE_TEMP_FOLDER ".kvtier/tmp"
#define FILE_MAX_DEPTH	 4096u
#define FILE_STALE_S	 (24u * 3600)

enum file_engine { FILE_ENGINE_INLINE, FILE_ENGINE_URING, FILE_ENGINE_THREADS };
enum file_fsync { FILE_FSYNC_NONE, FILE_FSYNC_DATA, FILE_FSYNC_FULL };
enum file_direct { FILE_DIRECT_AUTO, FILE_DIRECT_ON, FILE_DIRECT_OFF };

struct file_session;

struct file_backend {
	const struct kvt_host *host;
	/* Fixed after open. */
	enum file_engine engine;
	enum file_fsync fsync;
	int root_fd;
	char *root_path;
	bool have_openat2;
	int dir_flags; /* of the folders that are opened to work in */
	mode_t file_mode, dir_mode;
	bool fix_file_mode, fix_dir_mode; /* the umask takes bits of the modes away */
	bool memory;			  /* the file system lives in memory */
	bool remote;			  /* its metadata is behind a network: nothing is cheap */
	char filesystem[32];
	/* What the file system accepts; learnt at open and by failures, by any thread. */
	atomic_bool direct_read, direct_write;
	atomic_uint memory_align, offset_align; /* of O_DIRECT */
	atomic_bool unnamed;			/* O_TMPFILE works */
	atomic_bool link_by_proc; /* unnamed files are linked by way of /proc/self/fd */
	atomic_bool rename_noreplace;
	/* temp.c: the folder for temporary files. temp_fd is -1 while there is none. */
	pthread_mutex_t temp_lock; /* making it; leaf */
	atomic_int temp_fd;
	int temp_lock_fd; /* under temp_lock */
	char temp_token[24];
	atomic_ullong temp_number;
	/* Sessions, for a forked child alone. */
	pthread_mutex_t sessions_lock; /* leaf */
	struct file_session *sessions;
};

/* The code that an errno stands for. */
int kvt__file_error(int err);
/* The text of an errno. Static. */
const char *kvt__file_error_text(int err);

/* Finds out what the file system of the root is. */
int kvt__file_identify(struct file_backend *b);
/* Tries creating, linking and O_DIRECT in the temporary folder and sets what is learnt; without
 * the folder (a read-only or full file system) sets what is likely. Returns whether files can be
 * created exclusively. */
bool kvt__file_probe(struct file_backend *b, enum file_direct wish);
/* An O_DIRECT operation got EINVAL: wider alignment or none of it from now on. */
void kvt__file_direct_failed(struct file_backend *b, bool write, bool page_aligned);

/* Opens the place, making it when it is absent; on failure host->fail has said why. Returns a
 * kvt code. */
int kvt__file_root_open(struct file_backend *b, const char *location, bool insecure);
void kvt__file_root_close(struct file_backend *b);
/* Opens `name` below the root without following any link. Adds O_CLOEXEC. Returns the descriptor.
 */
int kvt__file_open_beneath(const struct file_backend *b, const char *name, int flags);
/* Opens the folder that holds `name` (flags: b->dir_flags); `make`: makes what is absent. Returns
 * the descriptor. */
int kvt__file_open_parent(const struct file_backend *b, const char *name, bool make);
/* The last component of a name. */
const char *kvt__file_leaf(const char *name);
/* Makes one folder with the backend's mode; one that is there already is fine. */
int kvt__file_make_folder(const struct file_backend *b, int parent, const char *leaf);
/* Removes the folders of a removed object that are empty now, but for the outermost. */
void kvt__file_prune(const struct file_backend *b, const char *name);

/* The descriptor of this process's temporary folder, which is made and locked at the first call
 * and again when somebody removed it (`again`: it was found missing). */
int kvt__file_temp_folder(struct file_backend *b, bool again);
/* Removes the temporary folders of the dead and counts the files in them; those whose owner cannot
 * be told when older than `age_s`. */
int kvt__file_temp_sweep(struct file_backend *b, uint32_t age_s, uint32_t *sweptp);
/* Removes our own folder; in a forked child closes it only. */
void kvt__file_temp_close(struct file_backend *b, bool forked);

/* A file that is being written and not yet visible. */
struct file_new {
	int fd;
	int parent;  /* folder of its name to be, or -1 */
	bool named;  /* lies in the temporary folder under `number`; else it has no name */
	bool direct; /* opened with O_DIRECT */
	uint64_t number;
	const char *call; /* what failed */
};

/* Makes folders as needed and a file; f->direct is a wish and says what came of it. */
int kvt__file_new_open(struct file_backend *b, struct file_new *f, const char *name);
/*
 * Makes the file appear under its name in one step: exclusively (EEXIST when something is there) or
 * in place of what is there. The file stays open; call discard in any case.
 */
int kvt__file_publish(struct file_backend *b, struct file_new *f, const char *name, bool exclusive);
/* Closes it, and removes it unless it was published. */
void kvt__file_new_discard(struct file_backend *b, struct file_new *f);

/* Where a transfer stands. NULL entries are holes or dropped. */
struct file_cursor {
	const struct iovec *iov;
	uint32_t count;
	uint32_t at;	  /* current entry */
	uint64_t skip;	  /* done of it */
	uint64_t file_at; /* offset of the next byte in the file */
	uint64_t done, total;
};

struct file_op;

void kvt__file_cursor_init(struct file_cursor *c, const struct kvt_io *io, uint64_t file_at);
/* Steps over entries that move nothing; false when nothing is left to move. */
bool kvt__file_cursor_settle(struct file_cursor *c);
void kvt__file_cursor_advance(struct file_cursor *c, uint64_t bytes);
/* Whether memory, lengths and offset of all that is left are aligned so. */
bool kvt__file_cursor_aligned(const struct file_cursor *c, uint32_t memory_align,
			      uint32_t offset_align);
/* Whether they suit O_DIRECT as far as is known. */
bool kvt__file_cursor_fits(const struct file_cursor *c, const struct file_backend *b);
/* Reports what is left to report (of a put with a late tail: all before it) in pieces. */
void kvt__file_report_all(struct file_op *op);
/*
 * Moves what is left by plain calls. `report`: io->progress is called for each piece. `nowait`:
 * stops with EAGAIN where a read would wait for the disk. On other failures op->error is set.
 */
int kvt__file_data(struct file_op *op, bool report, bool nowait);

/* An object being written in parts. */
struct file_object {
	struct file_new file;
	atomic_bool direct; /* cleared by the first part that O_DIRECT does not take */
	uint64_t object_bytes;
	char name[FILE_MAX_NAME + 1];
};

enum file_step {
	FILE_STEP_OPEN, /* and all of what is no transfer */
	FILE_STEP_DATA,
	FILE_STEP_SYNC,
	FILE_STEP_PUBLISH,
	FILE_STEP_SYNC_FOLDER,
	FILE_STEP_DONE, /* everything that it held is released */
};

/* An io's private memory. */
struct file_op {
	struct file_op *next; /* of the queue or list that it waits in */
	struct file_session *session;
	struct kvt_io *io;
	struct file_object *handle; /* part, commit, abort */
	struct file_new file;	    /* put; get: fd alone */
	struct file_cursor cursor;
	enum file_step step;
	bool direct;	 /* the data goes past the page cache */
	bool cold;	 /* get: the page cache does not have it */
	bool may_report; /* the session's thread has it: io->progress may be called */
	bool report_done;
	uint64_t reported; /* bytes, through io->progress */
	/* The failure: a code; errno or 0, call or reason, bytes and offset for its detail. */
	int error, err;
	const char *call;
	uint64_t call_bytes, call_at;
};

/* Set the failure of an operation; return -1. */
int kvt__file_op_fail(struct file_op *op, const char *call, int err);
int kvt__file_op_refuse(struct file_op *op, int error, const char *why);
/* Begins an operation; it is DONE already when its deadline has passed. */
void kvt__file_op_init(struct file_op *op, struct file_session *session, struct kvt_io *io);
/*
 * Takes the next steps by plain calls until the operation is DONE, or, when `stop`, until its step
 * is one that the session's engine takes. Any thread, one at a time.
 */
void kvt__file_op_run(struct file_op *op, bool stop);
/* Releases what it holds and makes it DONE; runs by itself after the last step. Any thread. */
void kvt__file_op_end(struct file_op *op);
/* Ends one that has waited too long. */
void kvt__file_op_expire(struct file_op *op);
/* Sets the result of one that is DONE, after reporting what has not been reported. On the session's
 * thread. */
void kvt__file_op_finish(struct file_op *op);
/* The file descriptor that its step goes to. */
int kvt__file_op_fd(const struct file_op *op);
/* Its data is not taken with O_DIRECT: goes on through the page cache. */
void kvt__file_op_demote(struct file_op *op);
bool kvt__file_op_wants_sync(const struct file_op *op);

int kvt__file_open_new(struct file_op *op);
int kvt__file_open_old(struct file_op *op);
int kvt__file_begin(struct file_op *op);
int kvt__file_make_visible(struct file_op *op);
int kvt__file_head(struct file_op *op);
int kvt__file_remove(struct file_op *op);
int kvt__file_touch(struct file_op *op);
int kvt__file_sweep(struct file_op *op);
/* The file has become shorter than it was. */
int kvt__file_op_short(struct file_op *op);
/* Fills what is known about a file. */
void kvt__file_fill_info(struct kvt_object_info *info, const struct stat *st);

/* One page of names. 0, or -1 with the failure set in op. */
int kvt__file_list(struct file_op *op);

struct file_ring;
struct file_pool;

struct file_session {
	struct file_backend *backend;
	struct file_session *next, **linkp;
	enum file_engine engine;
	uint32_t depth;
	uint32_t in_flight; /* QUEUED and not completed */
	int event_fd;
	/* A thread that sees `sleeping` clears it and writes to event_fd. */
	atomic_bool woken, sleeping;
	struct file_ring *ring; /* with FILE_ENGINE_URING */
	struct file_pool *pool; /* with FILE_ENGINE_THREADS */
};

int kvt__file_session_open(void *backend, uint32_t depth, int listing, void **sessionp);
void kvt__file_session_close(void *session);
void kvt__file_session_forked(struct file_session *session);
int kvt__file_submit(void *session, struct kvt_io *io);
int kvt__file_poll(void *session, int64_t until_ns);
void kvt__file_wake(void *session);
/* Ends the session's sleep. Any thread. */
void kvt__file_kick(struct file_session *session);

/* Whether this kernel lets us use io_uring and has what we need of it. */
bool kvt__file_ring_usable(void);
/* On the session's thread. */
int kvt__file_ring_open(struct file_session *session, struct file_ring **ringp);
void kvt__file_ring_close(struct file_session *session, struct file_ring *ring);
/* Hands over the operation's step, DATA or SYNC or SYNC_FOLDER; false when it could not be taken.
 */
bool kvt__file_ring_start(struct file_ring *ring, struct file_op *op);
/* Takes one finished request and carries its operation on. *opp: the operation that is DONE by it,
 * or NULL. False when none has finished. */
bool kvt__file_ring_reap(struct file_ring *ring, struct file_op **opp);
/* Sleeps until something finishes, the session's event_fd is written to, or until_ns. 0 or a
 * negative kvt code. */
int kvt__file_ring_sleep(struct file_ring *ring, int64_t until_ns);

/* Threads are started as they are needed, at most `depth` of them. */
int kvt__file_pool_open(struct file_session *session, struct file_pool **poolp);
void kvt__file_pool_close(struct file_session *session, struct file_pool *pool);
void kvt__file_pool_forked(struct file_session *session, struct file_pool *pool);
/* Hands over an operation, which a thread runs to DONE; false when there is no thread. */
bool kvt__file_pool_start(struct file_pool *pool, struct file_op *op);
/* Whether one is DONE. */
bool kvt__file_pool_ready(struct file_pool *pool);
/* Takes one that is DONE, or that has waited beyond its deadline; NULL when there is none. */
struct file_op *kvt__file_pool_reap(struct file_pool *pool, int64_t now_ns);
/* The earliest deadline of those that no thread has begun; INT64_MAX without any. */
int64_t kvt__file_pool_deadline(struct file_pool *pool);

#endif
