/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small stand-alone host for tests that drive a backend's table directly, without the core: it
 * serves log, detail, checksum, clock and allocation, counts what is allocated and can make the
 * nth allocation fail. Functions of struct kvt_host may be called from any thread; the others from
 * the thread that owns what they are given. Nothing in here asserts.
 */
#ifndef KVT_TESTS_TESTHOST_H
#define KVT_TESTS_TESTHOST_H

#include <stdatomic.h>

#include <kvtier/backend.h>

struct testhost {
	struct kvt_host host;
	atomic_long allocations; /* made so far */
	atomic_long live;	 /* made and not yet freed */
	atomic_long fail_at;	 /* this allocation (counted from 1) fails; 0: none */
	atomic_long fail_from;	 /* this and all later ones fail; 0: none */
	atomic_long log_lines;
	int verbose; /* nonzero: log lines go to standard error */
};

void testhost_init(struct testhost *th);
/* What host->fail said last on the calling thread; "" when nothing. */
const char *testhost_failure(void);
/* Forgets it. */
void testhost_forget(void);

/* "KVT_EINVAL" for a code of the table, "KVT_OK" for 0, "?" for all else. */
const char *testhost_code(int code);

/* A table with missing members zeroed, as the core pads it. */
void testhost_pad(struct kvt_backend_ops *to, const struct kvt_backend_ops *from);

/* ---- An opened backend ---- */
struct testbackend {
	struct testhost *th;
	struct kvt_backend_ops ops, inner_ops; /* padded copies */
	struct kvt_backend_config config, inner_config;
	struct kvt_backend_limits limits;
	void *backend;
};
struct testbackend_options {
	const struct kvt_backend_ops *ops;
	const struct kvt_backend_ops *inner; /* of a wrapper, else NULL */
	const char *location;		     /* of the inner backend, when there is one */
	const struct kvt_option_value *options;
	size_t option_count;
	const struct kvt_option_value *inner_options;
	size_t inner_option_count;
};
/* Opens with the core's default limits. 0 or the backend's error. */
int testbackend_open(struct testbackend *tb, struct testhost *th,
		     const struct testbackend_options *options);
void testbackend_close(struct testbackend *tb);

/* ---- A session ---- */
struct testsession {
	struct testbackend *tb;
	void *session;
	uint32_t in_flight;
};
int testsession_open(struct testsession *ts, struct testbackend *tb, uint32_t depth, int listing);
void testsession_close(struct testsession *ts);

/* One io with what it needs around it. Zero it, set the request members, run it. */
struct testio {
	struct kvt_io io;
	struct testsession *ts;
	char detail[256];
	int answer;	 /* of the last submit */
	int completions; /* calls of complete */
	int done;	 /* finished, either way */
	int in_submit;
	int late;		     /* complete was called inside submit: a fault of the backend */
	unsigned char *private_data; /* with a canary behind it */
	void *user;		     /* the caller's own */
};
/* Fills private data, detail, complete and, where zero, a deadline 60 s ahead. */
int testio_prepare(struct testio *t, struct testsession *ts);
/* Submits a prepared io again and again until it is not answered with BUSY; polls while it is. The
 * answer; results of DONE and of usage errors are in io.result. */
int testio_submit(struct testio *t);
/* Polls until it is finished; its result. */
int testio_wait(struct testio *t);
/* Whether nothing was written behind the private data. */
int testio_private_intact(const struct testio *t);
/* Frees what prepare made. */
void testio_release(struct testio *t);
/* Prepare, submit, wait, release: the result of one io. */
int testsession_run(struct testsession *ts, struct testio *t);

/* The usual requests, run to their end; the result. Data in one piece. */
int testsession_put(struct testsession *ts, const char *name, const void *data, uint64_t bytes,
		    uint32_t flags, const struct kvt_version *if_version,
		    struct kvt_object_info *info);
int testsession_get(struct testsession *ts, const char *name, void *data, uint64_t bytes,
		    int64_t offset, struct kvt_object_info *info);
int testsession_head(struct testsession *ts, const char *name, struct kvt_object_info *info);
int testsession_remove(struct testsession *ts, const char *name,
		       const struct kvt_version *if_version);

#endif
