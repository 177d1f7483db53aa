/* SPDX-License-Identifier: Apache-2.0 */
/* What the fault wrapper does to which call: rules read from the options, and the plan that they
 * make for one call. Counting is atomic, so that a call's number means the same on every run. */
#ifndef KVT_BACKENDS_FAULT_RULES_H
#define KVT_BACKENDS_FAULT_RULES_H

#include <stdatomic.h>

#include <kvtier/backend.h>

enum kvt__fault_action {
	KVT__FAULT_FAIL = 0,
	KVT__FAULT_DELAY,
	KVT__FAULT_HANG,  /* held while a file is there, at most until the deadline */
	KVT__FAULT_STUCK, /* held while a file is there, past the deadline too */
	KVT__FAULT_SHORT,
	KVT__FAULT_FLIP,
};

/* Which of the calls that a rule counts it acts on. */
enum kvt__fault_when {
	KVT__FAULT_NTH = 0, /* number n */
	KVT__FAULT_FROM,    /* number n and all behind it */
	KVT__FAULT_EVERY,   /* number n, 2 n, 3 n ... */
	KVT__FAULT_RATE,    /* a share of them, drawn from the seed and the number */
	KVT__FAULT_WHILE,   /* those made while a file is there */
	KVT__FAULT_ALWAYS,
};

struct kvt__fault_rule {
	struct kvt__fault_rule *next;
	enum kvt__fault_action action;
	enum kvt__fault_when when;
	uint32_t op;		   /* enum kvt_io_op; 0: any */
	uint64_t n;		   /* NTH, FROM, EVERY */
	double share;		   /* RATE */
	int error;		   /* FAIL, SHORT; 0: the default */
	int64_t least_ns, most_ns; /* DELAY */
	uint64_t salt;		   /* tells the draws of two rules apart */
	atomic_ullong calls;	   /* counted so far */
	char path[];		   /* WHILE, HANG, STUCK */
};

struct kvt__fault_rules {
	const struct kvt_host *host;
	struct kvt__fault_rule *first, **last_linkp;
	int error; /* the default */
	int error_after;
	uint64_t seed;
	int trace_fd; /* -1: none */
};

/* The known options, ended by a NULL name. */
extern const struct kvt_option_spec kvt__fault_option_specs[];

/* Reads the options. On failure host->fail has been told and nothing is left. KVT_EINVAL,
 * KVT_ENOMEM, KVT_ECONFIG (trace). */
int kvt__fault_rules_init(struct kvt__fault_rules *rules, const struct kvt_host *host,
			  const struct kvt_backend_config *config);
void kvt__fault_rules_fini(struct kvt__fault_rules *rules);

/* What is to be done to one call; zeroed: nothing. */
struct kvt__fault_plan {
	const struct kvt__fault_rule *hold; /* HANG or STUCK, its file is there */
	int64_t delay_ns;
	int error; /* not 0: the call fails, */
	int after; /* having been done */
	int cut;   /* half of the body is moved, then the call fails with this */
	int flip;  /* one byte is changed */
};
/* Counts the call and says what happens to it. */
void kvt__fault_plan_make(struct kvt__fault_rules *rules, const struct kvt_io *io,
			  struct kvt__fault_plan *plan);
/* Whether the file of a rule is there. */
int kvt__fault_rule_holds(const struct kvt__fault_rule *rule);

const char *kvt__fault_op_name(uint32_t op);
const char *kvt__fault_error_name(int error);

#endif
