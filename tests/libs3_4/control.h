/* SPDX-License-Identifier: Apache-2.0 */
/* What tests may do to the libs3 in memory; found by dlsym in the module that it is linked into. */
#ifndef KVT_TESTS_LIBS3_4_CONTROL_H
#define KVT_TESTS_LIBS3_4_CONTROL_H

#define LIBS3_4_VISIBLE __attribute__((visibility("default")))

enum libs3_4_fault {
	LIBS3_4_NONE = 0,
	LIBS3_4_COMMIT_ERROR_IN_200, /* a commit is OK and has neither location nor ETag */
	LIBS3_4_COMMIT_ANSWER_LOST,  /* done, and then a connection failure */
	LIBS3_4_PART_WITHOUT_ETAG,
	LIBS3_4_ODD_UPLOAD_ID, /* one that would need encoding */
	LIBS3_4_HANG,	       /* the next request */
};

struct libs3_4_control {
	enum libs3_4_fault fault; /* of the next request that it fits */
	unsigned more;		  /* times that it happens again */
	unsigned faults, aborts, uploads_open, initializations;
	int flags;	     /* of S3_initialize */
	unsigned unverified; /* requests on contexts without verification */
	char region[40], token[40];
};

#endif
