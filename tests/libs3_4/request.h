/* SPDX-License-Identifier: Apache-2.0 */
/* A request of the libs3 in memory, from the call that starts it to the run that does it. */
#ifndef KVT_TESTS_LIBS3_4_REQUEST_H
#define KVT_TESTS_LIBS3_4_REQUEST_H

#include <pthread.h>
#include <stdbool.h>

#include "control.h"
#include "libs3.h"

enum kind { PUT, GET, HEAD, DELETE, LIST, BEGIN, PART, COMMIT };

struct request {
	enum kind kind;
	char key[S3_MAX_KEY_SIZE + 1], marker[S3_MAX_KEY_SIZE + 1], etag[160], id[64];
	char mark_name[40], mark[64];
	uint64_t start, bytes;
	int number;
	bool hangs;
	S3ResponseHandler response;
	S3PutObjectDataCallback *send;
	S3GetObjectDataCallback *receive;
	S3ListBucketCallback *list;
	S3MultipartInitialResponseCallback *begun;
	S3MultipartCommitResponseCallback *committed;
	void *data;
};

/* Guards what is stored and libs3_4_control. */
extern pthread_mutex_t libs3_4_lock;

extern LIBS3_4_VISIBLE struct libs3_4_control libs3_4_control;
/* Whether this fault is to happen now, once; under the lock. */
bool libs3_4_fault(enum libs3_4_fault which);
/* Does it, calling back for all but its completion. */
S3Status libs3_4_perform(const struct request *r);
/* Forgets an upload. */
void libs3_4_end_upload(const char *id);

#endif
