/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of libs3 in memory. Requests are done when their context is run; an abort has no
 * callback when it works, as in 4.1. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "request.h"

struct S3RequestContext {
	struct request *request; /* one at a time is enough */
	bool verifies;
};

static void finish(struct request *r, S3Status status)
{
	const S3ErrorDetails details = {.message = status ? "of memory" : NULL};

	r->response.completeCallback(status, &details, r->data);
	free(r);
}

static struct request *start(const S3BucketContext *bucket, const char *key, enum kind kind,
			     S3RequestContext *context, const S3ResponseHandler *response,
			     const S3PutProperties *properties, void *data)
{
	struct request *r = calloc(1, sizeof(*r));

	if (!r)
		abort();
	snprintf(r->key, sizeof(r->key), "%s", key ? key : "");
	r->kind = kind;
	r->response = *response;
	r->data = data;
	if (properties && properties->metaDataCount) {
		snprintf(r->mark_name, sizeof(r->mark_name), "%s", properties->metaData[0].name);
		snprintf(r->mark, sizeof(r->mark), "%s", properties->metaData[0].value);
	}
	pthread_mutex_lock(&libs3_4_lock);
	r->hangs = libs3_4_fault(LIBS3_4_HANG);
	libs3_4_control.unverified += !context->verifies;
	snprintf(libs3_4_control.region, sizeof(libs3_4_control.region), "%s",
		 bucket->authRegion ? bucket->authRegion : "");
	snprintf(libs3_4_control.token, sizeof(libs3_4_control.token), "%s",
		 bucket->securityToken ? bucket->securityToken : "");
	pthread_mutex_unlock(&libs3_4_lock);
	context->request = r;
	return r;
}

S3Status S3_initialize(const char *user_agent, int flags, const char *host)
{
	(void)user_agent;
	(void)host;
	libs3_4_control.flags = flags;
	libs3_4_control.initializations++;
	return S3StatusOK;
}

const char *S3_get_status_name(S3Status status)
{
	static const char *const names[] = {
#define X(name) #name,
		LIBS3_STATUS_TABLE(X)
#undef X
	};

	return (unsigned)status < sizeof(names) / sizeof(names[0]) ? names[status] : "Unknown";
}

S3Status S3_validate_bucket_name(const char *bucket, S3UriStyle style)
{
	(void)style;
	return strlen(bucket) < 3 ? S3StatusInvalidBucketNameTooShort : S3StatusOK;
}

S3Status S3_create_request_context(S3RequestContext **contextp)
{
	*contextp = calloc(1, sizeof(**contextp));
	return *contextp ? S3StatusOK : S3StatusOutOfMemory;
}

void S3_destroy_request_context(S3RequestContext *context)
{
	if (context->request)
		finish(context->request, S3StatusInterrupted);
	free(context);
}

void S3_set_request_context_verify_peer(S3RequestContext *context, int verify)
{
	(void)verify; /* that it was called is what counts */
	context->verifies = true;
}

S3Status S3_runonce_request_context(S3RequestContext *context, int *remainingp)
{
	struct request *r = context->request;

	*remainingp = r != NULL;
	if (!r || r->hangs)
		return S3StatusOK;
	context->request = NULL;
	*remainingp = 0;
	finish(r, libs3_4_perform(r));
	return S3StatusOK;
}

S3Status S3_get_request_context_fdsets(S3RequestContext *context, fd_set *in, fd_set *out,
				       fd_set *bad, int *lastp)
{
	(void)context;
	(void)in;
	(void)out;
	(void)bad;
	*lastp = -1;
	return S3StatusOK;
}

int64_t S3_get_request_context_timeout(S3RequestContext *context)
{
	(void)context;
	return -1;
}

void S3_put_object(const S3BucketContext *bucket, const char *key, uint64_t bytes,
		   const S3PutProperties *properties, S3RequestContext *context, int timeout_ms,
		   const S3PutObjectHandler *handler, void *data)
{
	struct request *r =
		start(bucket, key, PUT, context, &handler->responseHandler, properties, data);

	(void)timeout_ms;
	r->bytes = bytes;
	r->send = handler->putObjectDataCallback;
}

void S3_get_object(const S3BucketContext *bucket, const char *key,
		   const S3GetConditions *conditions, uint64_t from, uint64_t bytes,
		   S3RequestContext *context, int timeout_ms, const S3GetObjectHandler *handler,
		   void *data)
{
	struct request *r = start(bucket, key, GET, context, &handler->responseHandler, NULL, data);

	(void)timeout_ms;
	r->start = from;
	r->bytes = bytes;
	r->receive = handler->getObjectDataCallback;
	if (conditions && conditions->ifMatchETag)
		snprintf(r->etag, sizeof(r->etag), "%s", conditions->ifMatchETag);
}

void S3_head_object(const S3BucketContext *bucket, const char *key, S3RequestContext *context,
		    int timeout_ms, const S3ResponseHandler *handler, void *data)
{
	(void)timeout_ms;
	(void)start(bucket, key, HEAD, context, handler, NULL, data);
}

void S3_delete_object(const S3BucketContext *bucket, const char *key, S3RequestContext *context,
		      int timeout_ms, const S3ResponseHandler *handler, void *data)
{
	(void)timeout_ms;
	(void)start(bucket, key, DELETE, context, handler, NULL, data);
}

void S3_list_bucket(const S3BucketContext *bucket, const char *prefix, const char *marker,
		    const char *delimiter, int most, S3RequestContext *context, int timeout_ms,
		    const S3ListBucketHandler *handler, void *data)
{
	struct request *r =
		start(bucket, prefix, LIST, context, &handler->responseHandler, NULL, data);

	(void)timeout_ms;
	(void)delimiter;
	snprintf(r->marker, sizeof(r->marker), "%s", marker ? marker : "");
	r->bytes = (uint64_t)most;
	r->list = handler->listBucketCallback;
}

void S3_initiate_multipart(S3BucketContext *bucket, const char *key, S3PutProperties *properties,
			   S3MultipartInitialHandler *handler, S3RequestContext *context,
			   int timeout_ms, void *data)
{
	struct request *r =
		start(bucket, key, BEGIN, context, &handler->responseHandler, properties, data);

	(void)timeout_ms;
	r->begun = handler->responseXmlCallback;
}

void S3_upload_part(S3BucketContext *bucket, const char *key, S3PutProperties *properties,
		    S3PutObjectHandler *handler, int number, const char *id, int bytes,
		    S3RequestContext *context, int timeout_ms, void *data)
{
	struct request *r =
		start(bucket, key, PART, context, &handler->responseHandler, properties, data);

	(void)timeout_ms;
	r->number = number;
	r->bytes = (uint64_t)bytes;
	r->send = handler->putObjectDataCallback;
	snprintf(r->id, sizeof(r->id), "%s", id);
}

void S3_complete_multipart_upload(S3BucketContext *bucket, const char *key,
				  S3MultipartCommitHandler *handler, const char *id, int bytes,
				  S3RequestContext *context, int timeout_ms, void *data)
{
	struct request *r =
		start(bucket, key, COMMIT, context, &handler->responseHandler, NULL, data);

	(void)timeout_ms;
	r->bytes = (uint64_t)bytes;
	r->send = handler->putObjectDataCallback;
	r->committed = handler->responseXmlCallback;
	snprintf(r->id, sizeof(r->id), "%s", id);
}

void S3_abort_multipart_upload(S3BucketContext *bucket, const char *key, const char *id,
			       int timeout_ms, S3AbortMultipartUploadHandler *handler)
{
	(void)bucket;
	(void)key;
	(void)timeout_ms;
	(void)handler;
	pthread_mutex_lock(&libs3_4_lock);
	libs3_4_control.aborts++;
	pthread_mutex_unlock(&libs3_4_lock);
	libs3_4_end_upload(id);
}
