/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The interface of libs3 4.1 as far as backends/libs3 uses it, for a build where only 2.0 is at
 * hand: memory.c beside it implements it. Written from what the functions are known to take; not a
 * copy of anybody's header, and no good for linking with the real library: its numbers are its own.
 */
#ifndef KVT_TESTS_LIBS3_4_H
#define KVT_TESTS_LIBS3_4_H

#include <stdint.h>
#include <sys/select.h>

#define S3_MAX_KEY_SIZE	    1024
#define S3_INIT_ALL	    1
#define S3_INIT_VERIFY_PEER 2

#define LIBS3_STATUS_TABLE(X)                                                                      \
	X(OK)                                                                                      \
	X(InternalError)                                                                           \
	X(OutOfMemory)                                                                             \
	X(Interrupted)                                                                             \
	X(InvalidBucketNameTooShort)                                                               \
	X(InvalidBucketNameCharacter)                                                              \
	X(ConnectionFailed)                                                                        \
	X(AbortedByCallback)                                                                       \
	X(ErrorEntityTooSmall)                                                                     \
	X(ErrorInvalidRange)                                                                       \
	X(ErrorInvalidPart)                                                                        \
	X(ErrorNoSuchKey)                                                                          \
	X(ErrorNoSuchUpload)                                                                       \
	X(ErrorPreconditionFailed)                                                                 \
	X(ErrorAccessDenied)                                                                       \
	X(ErrorSlowDown)                                                                           \
	X(HttpErrorNotFound)

typedef enum {
#define X(name) S3Status##name,
	LIBS3_STATUS_TABLE(X)
#undef X
} S3Status;
typedef enum { S3ProtocolHTTPS = 0, S3ProtocolHTTP = 1 } S3Protocol;
typedef enum { S3UriStyleVirtualHost = 0, S3UriStylePath = 1 } S3UriStyle;
typedef enum { S3CannedAclPrivate = 0 } S3CannedAcl;

typedef struct S3RequestContext S3RequestContext;

typedef struct S3NameValue {
	const char *name, *value;
} S3NameValue;

typedef struct S3ResponseProperties {
	const char *requestId, *requestId2, *contentType;
	uint64_t contentLength;
	const char *server, *eTag;
	int64_t lastModified;
	int metaDataCount;
	const S3NameValue *metaData;
	char usesServerSideEncryption;
} S3ResponseProperties;

typedef struct S3BucketContext {
	const char *hostName, *bucketName;
	S3Protocol protocol;
	S3UriStyle uriStyle;
	const char *accessKeyId, *secretAccessKey, *securityToken, *authRegion;
} S3BucketContext;

typedef struct S3ListBucketContent {
	const char *key;
	int64_t lastModified;
	const char *eTag;
	uint64_t size;
	const char *ownerId, *ownerDisplayName;
} S3ListBucketContent;

typedef struct S3PutProperties {
	const char *contentType, *md5, *cacheControl, *contentDispositionFilename, *contentEncoding;
	int64_t expires;
	S3CannedAcl cannedAcl;
	int metaDataCount;
	const S3NameValue *metaData;
	char useServerSideEncryption;
} S3PutProperties;

typedef struct S3GetConditions {
	int64_t ifModifiedSince, ifNotModifiedSince;
	const char *ifMatchETag, *ifNotMatchETag;
} S3GetConditions;

typedef struct S3ErrorDetails {
	const char *message, *resource, *furtherDetails;
	int extraDetailsCount;
	S3NameValue *extraDetails;
} S3ErrorDetails;

typedef S3Status(S3ResponsePropertiesCallback)(const S3ResponseProperties *properties, void *data);
typedef void(S3ResponseCompleteCallback)(S3Status status, const S3ErrorDetails *details,
					 void *data);
typedef S3Status(S3ListBucketCallback)(int is_truncated, const char *next_marker, int count,
				       const S3ListBucketContent *contents, int prefix_count,
				       const char **prefixes, void *data);
typedef int(S3PutObjectDataCallback)(int room, char *buffer, void *data);
typedef S3Status(S3GetObjectDataCallback)(int bytes, const char *buffer, void *data);
typedef S3Status(S3MultipartInitialResponseCallback)(const char *id, void *data);
typedef S3Status(S3MultipartCommitResponseCallback)(const char *location, const char *etag,
						    void *data);

typedef struct S3ResponseHandler {
	S3ResponsePropertiesCallback *propertiesCallback;
	S3ResponseCompleteCallback *completeCallback;
} S3ResponseHandler;
typedef struct S3ListBucketHandler {
	S3ResponseHandler responseHandler;
	S3ListBucketCallback *listBucketCallback;
} S3ListBucketHandler;
typedef struct S3PutObjectHandler {
	S3ResponseHandler responseHandler;
	S3PutObjectDataCallback *putObjectDataCallback;
} S3PutObjectHandler;
typedef struct S3GetObjectHandler {
	S3ResponseHandler responseHandler;
	S3GetObjectDataCallback *getObjectDataCallback;
} S3GetObjectHandler;
typedef struct S3MultipartInitialHandler {
	S3ResponseHandler responseHandler;
	S3MultipartInitialResponseCallback *responseXmlCallback;
} S3MultipartInitialHandler;
typedef struct S3MultipartCommitHandler {
	S3ResponseHandler responseHandler;
	S3PutObjectDataCallback *putObjectDataCallback;
	S3MultipartCommitResponseCallback *responseXmlCallback;
} S3MultipartCommitHandler;
typedef struct S3AbortMultipartUploadHandler {
	S3ResponseHandler responseHandler;
} S3AbortMultipartUploadHandler;

S3Status S3_initialize(const char *user_agent, int flags, const char *host);
const char *S3_get_status_name(S3Status status);
S3Status S3_validate_bucket_name(const char *bucket, S3UriStyle style);
S3Status S3_create_request_context(S3RequestContext **contextp);
void S3_destroy_request_context(S3RequestContext *context);
void S3_set_request_context_verify_peer(S3RequestContext *context, int verify);
S3Status S3_runonce_request_context(S3RequestContext *context, int *remainingp);
S3Status S3_get_request_context_fdsets(S3RequestContext *context, fd_set *in, fd_set *out,
				       fd_set *bad, int *lastp);
int64_t S3_get_request_context_timeout(S3RequestContext *context);

void S3_put_object(const S3BucketContext *bucket, const char *key, uint64_t bytes,
		   const S3PutProperties *properties, S3RequestContext *context, int timeout_ms,
		   const S3PutObjectHandler *handler, void *data);
void S3_get_object(const S3BucketContext *bucket, const char *key,
		   const S3GetConditions *conditions, uint64_t start, uint64_t bytes,
		   S3RequestContext *context, int timeout_ms, const S3GetObjectHandler *handler,
		   void *data);
void S3_head_object(const S3BucketContext *bucket, const char *key, S3RequestContext *context,
		    int timeout_ms, const S3ResponseHandler *handler, void *data);
void S3_delete_object(const S3BucketContext *bucket, const char *key, S3RequestContext *context,
		      int timeout_ms, const S3ResponseHandler *handler, void *data);
void S3_list_bucket(const S3BucketContext *bucket, const char *prefix, const char *marker,
		    const char *delimiter, int most, S3RequestContext *context, int timeout_ms,
		    const S3ListBucketHandler *handler, void *data);
void S3_initiate_multipart(S3BucketContext *bucket, const char *key, S3PutProperties *properties,
			   S3MultipartInitialHandler *handler, S3RequestContext *context,
			   int timeout_ms, void *data);
void S3_upload_part(S3BucketContext *bucket, const char *key, S3PutProperties *properties,
		    S3PutObjectHandler *handler, int number, const char *id, int bytes,
		    S3RequestContext *context, int timeout_ms, void *data);
void S3_complete_multipart_upload(S3BucketContext *bucket, const char *key,
				  S3MultipartCommitHandler *handler, const char *id, int bytes,
				  S3RequestContext *context, int timeout_ms, void *data);
void S3_abort_multipart_upload(S3BucketContext *bucket, const char *key, const char *id,
			       int timeout_ms, S3AbortMultipartUploadHandler *handler);

#endif
