/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The mapping of errors. What S3 says in words counts first, then the status; whoever asks decides
 * from the class of the result alone what happens next, so the classes are what matters here:
 * whether it may work when tried again, or whether somebody has to change something.
 */
#include "errors.h"

#include <string.h>

#include <kvtier/error.h>

struct s3_code {
	const char *code;
	int error;
	enum s3_remedy remedy;
};

/* Names of AWS, and those that Ceph, MinIO and Swift have besides them. What is not in here means
 * what its status means. */
static const struct s3_code s3_codes[] = {
	/* It is not there. A multipart upload that is gone was completed or aborted by somebody. */
	{"NoSuchKey", KVT_ENOENT},
	{"NoSuchObject", KVT_ENOENT},
	{"NoSuchUpload", KVT_ENOENT},
	{"NoSuchVersion", KVT_ENOENT},

	/* Another version, another length. */
	{"PreconditionFailed", KVT_EPRECOND},
	{"InvalidRange", KVT_ERANGE},

	/* The place itself. */
	{"NoSuchBucket", KVT_ECONFIG},
	{"InvalidBucketName", KVT_ECONFIG},
	{"InvalidBucketState", KVT_ECONFIG},
	{"NoSuchTenant", KVT_ECONFIG},
	{"NoSuchUser", KVT_ECONFIG},
	{"InvalidObjectState", KVT_ECONFIG}, /* a lifecycle rule has archived it */
	{"ObjectNotInActiveTierError", KVT_ECONFIG},
	{"RequestTimeTooSkewed", KVT_ECONFIG, S3_REMEDY_CLOCK},

	/* Signed for another region, or sent to another one's endpoint. */
	{"AuthorizationHeaderMalformed", KVT_ECONFIG, S3_REMEDY_REGION},
	{"BucketRegionError", KVT_ECONFIG, S3_REMEDY_REGION},
	{"IllegalLocationConstraintException", KVT_ECONFIG, S3_REMEDY_REGION},
	{"IncorrectEndpoint", KVT_ECONFIG, S3_REMEDY_REGION},
	{"InvalidRegion", KVT_ECONFIG, S3_REMEDY_REGION},
	{"MovedPermanently", KVT_ECONFIG, S3_REMEDY_REGION},
	{"PermanentRedirect", KVT_ECONFIG, S3_REMEDY_REGION},
	{"Redirect", KVT_ECONFIG, S3_REMEDY_REGION},
	{"TemporaryRedirect", KVT_ECONFIG, S3_REMEDY_REGION},

	/* Who we are. Keys of limited time are unknown to the server once it has forgotten them. */
	{"ExpiredToken", KVT_EAUTH, S3_REMEDY_CREDENTIALS},
	{"ExpiredTokenException", KVT_EAUTH, S3_REMEDY_CREDENTIALS},
	{"InvalidAccessKeyId", KVT_EAUTH, S3_REMEDY_CREDENTIALS},
	{"InvalidClientTokenId", KVT_EAUTH, S3_REMEDY_CREDENTIALS},
	{"InvalidToken", KVT_EAUTH, S3_REMEDY_CREDENTIALS},
	{"InvalidTokenId", KVT_EAUTH, S3_REMEDY_CREDENTIALS},
	{"TokenRefreshRequired", KVT_EAUTH, S3_REMEDY_CREDENTIALS},
	{"CredentialsNotSupported", KVT_EAUTH},
	{"InvalidSecurity", KVT_EAUTH},
	{"MissingAuthenticationToken", KVT_EAUTH},
	{"MissingSecurityHeader", KVT_EAUTH},
	{"RequestExpired", KVT_EAUTH},
	{"SignatureDoesNotMatch", KVT_EAUTH},
	{"Unauthorized", KVT_EAUTH},
	{"UnauthorizedAccess", KVT_EAUTH},

	/* What we may do. */
	{"AccessDenied", KVT_EACCES},
	{"AccessForbidden", KVT_EACCES},
	{"AccountProblem", KVT_EACCES},
	{"AllAccessDisabled", KVT_EACCES},
	{"InvalidPayer", KVT_EACCES},
	{"NotSignedUp", KVT_EACCES},
	{"ObjectLocked", KVT_EACCES},
	{"UserSuspended", KVT_EACCES},

	/* It is full. */
	{"InsufficientCapacity", KVT_ENOSPC},
	{"InsufficientStorage", KVT_ENOSPC},
	{"QuotaExceeded", KVT_ENOSPC},
	{"ServiceQuotaExceeded", KVT_ENOSPC},
	{"StorageFull", KVT_ENOSPC},
	{"XMinioAdminBucketQuotaExceeded", KVT_ENOSPC},
	{"XMinioStorageFull", KVT_ENOSPC},

	/* Too much at once. */
	{"BandwidthLimitExceeded", KVT_ETHROTTLED},
	{"Busy", KVT_ETHROTTLED},
	{"KMS.ThrottlingException", KVT_ETHROTTLED},
	{"RequestLimitExceeded", KVT_ETHROTTLED},
	{"RequestThrottled", KVT_ETHROTTLED},
	{"SlowDown", KVT_ETHROTTLED},
	{"SlowDownRead", KVT_ETHROTTLED},
	{"SlowDownWrite", KVT_ETHROTTLED},
	{"Throttling", KVT_ETHROTTLED},
	{"ThrottlingException", KVT_ETHROTTLED},
	{"TooManyRequests", KVT_ETHROTTLED},
	{"TooManyRequestsException", KVT_ETHROTTLED},

	/* Another request on the same key was under way: the outcome is open until asked again. */
	{"ConcurrentModification", KVT_EBUSY},
	{"ConditionalRequestConflict", KVT_EBUSY},
	{"OperationAborted", KVT_EBUSY},

	/* The server's own trouble; these also come inside a 200. */
	{"InternalError", KVT_ESERVER},
	{"InternalFailure", KVT_ESERVER},
	{"InternalServerError", KVT_ESERVER},
	{"KMS.InternalException", KVT_ESERVER},
	{"KMS.KMSInternalException", KVT_ESERVER},
	{"ServerNotInitialized", KVT_ESERVER},
	{"ServiceUnavailable", KVT_ESERVER},
	{"XMinioServerNotInitialized", KVT_ESERVER},

	/* The way there: bytes that came late, not at all, or changed. RequestTimeout and
	 * IncompleteBody have status 400. */
	{"ClientDisconnected", KVT_ENET},
	{"IncompleteBody", KVT_ENET},
	{"RequestTimeout", KVT_ENET},
	{"BadDigest", KVT_EPROTO},
	{"InvalidDigest", KVT_EPROTO},
	{"XAmzContentChecksumMismatch", KVT_EPROTO},
	{"XAmzContentSHA256Mismatch", KVT_EPROTO},
	/* A part that the server had taken is not there any more: the upload has to be made again.
	 */
	{"InvalidPart", KVT_EPROTO},

	/* Limits that this server has and part_bytes or the prefix have to respect. */
	{"EntityTooLarge", KVT_ECONFIG},
	{"EntityTooSmall", KVT_ECONFIG},
	{"KeyTooLongError", KVT_ECONFIG},
	{"MaxMessageLengthExceeded", KVT_ECONFIG},
	{"XMinioInvalidObjectName", KVT_ECONFIG},
	{"XMinioParentIsObject", KVT_ECONFIG},

	/* What this server does not do. */
	{"MethodNotAllowed", KVT_ENOTSUP},
	{"NotImplemented", KVT_ENOTSUP},
	{"UnsupportedOperation", KVT_ENOTSUP},
	{"XNotImplemented", KVT_ENOTSUP},

	/* Requests that we should not have made like this. */
	{"InvalidPartOrder", KVT_EINTERNAL},
	{"MalformedXML", KVT_EINTERNAL},
	{"MissingContentLength", KVT_EINTERNAL},
	{"MissingRequestBodyError", KVT_EINTERNAL},
	{"InvalidPartNumber", KVT_EINTERNAL},
};

/* First match counts. */
static const struct {
	int first, last;
	int error;
	enum s3_remedy remedy;
} s3_statuses[] = {
	{301, 303, KVT_ECONFIG, S3_REMEDY_REGION},
	{307, 308, KVT_ECONFIG, S3_REMEDY_REGION},
	{401, 401, KVT_EAUTH},
	{402, 403, KVT_EACCES},
	{404, 404, KVT_ENOENT},
	{405, 405, KVT_ENOTSUP},
	{407, 407, KVT_EAUTH}, /* of a proxy */
	{408, 408, KVT_ENET},  /* what we sent came too slowly */
	{409, 409, KVT_EBUSY},
	{410, 410, KVT_ENOENT},
	{411, 411, KVT_EINTERNAL},
	{412, 412, KVT_EPRECOND},
	{416, 416, KVT_ERANGE},
	{423, 423, KVT_EBUSY},
	{425, 425, KVT_ESERVER},
	{429, 429, KVT_ETHROTTLED},
	{499, 499, KVT_ENET}, /* MinIO, nginx: the connection broke before the answer */
	/* A request that the server, or whatever stands in front of it, will never take. */
	{400, 498, KVT_ECONFIG},
	{501, 501, KVT_ENOTSUP},
	{505, 505, KVT_ENOTSUP},
	{507, 507, KVT_ENOSPC},
	{509, 509, KVT_ETHROTTLED}, /* bandwidth limit exceeded */
	{500, 599, KVT_ESERVER},
};

/* What libcurl fails with when it speaks HTTP. Other codes are of other protocols, or of a libcurl
 * that is newer than this table. */
static const struct {
	int error;
	bool is_stale; /* may be the end of an idle connection */
} s3_curl_codes[] = {
	/* built or configured so that it cannot be */
	[CURLE_NOT_BUILT_IN] = {KVT_ECONFIG},
	[CURLE_FUNCTION_NOT_FOUND] = {KVT_ECONFIG},
	[CURLE_URL_MALFORMAT] = {KVT_ECONFIG},
	[CURLE_INTERFACE_FAILED] = {KVT_ECONFIG},
	[CURLE_LOGIN_DENIED] = {KVT_EAUTH}, /* at a proxy */
	[CURLE_AUTH_ERROR] = {KVT_EAUTH},

	/* names and connections; a name may be there again in a moment */
	[CURLE_COULDNT_RESOLVE_PROXY] = {KVT_ENET},
	[CURLE_COULDNT_RESOLVE_HOST] = {KVT_ENET},
	[CURLE_COULDNT_CONNECT] = {KVT_ENET},
	[CURLE_PROXY] = {KVT_ENET},
	[CURLE_QUIC_CONNECT_ERROR] = {KVT_ENET},
	[CURLE_SEND_ERROR] = {KVT_ENET, true},
	[CURLE_RECV_ERROR] = {KVT_ENET, true},
	[CURLE_SEND_FAIL_REWIND] = {KVT_ENET, true},
	[CURLE_NO_CONNECTION_AVAILABLE] = {KVT_EBUSY},
	[CURLE_OPERATION_TIMEDOUT] = {KVT_ETIMEDOUT},

	/* TLS: a handshake may break off like any connection, but trust does not come back */
	[CURLE_SSL_CONNECT_ERROR] = {KVT_ENET},
	[CURLE_SSL_SHUTDOWN_FAILED] = {KVT_ENET},
	[CURLE_PEER_FAILED_VERIFICATION] = {KVT_ECONFIG},
	[CURLE_SSL_CACERT_BADFILE] = {KVT_ECONFIG},
	[CURLE_SSL_CERTPROBLEM] = {KVT_ECONFIG},
	[CURLE_SSL_CLIENTCERT] = {KVT_ECONFIG},
	[CURLE_SSL_CIPHER] = {KVT_ECONFIG},
	[CURLE_SSL_CRL_BADFILE] = {KVT_ECONFIG},
	[CURLE_SSL_ISSUER_ERROR] = {KVT_ECONFIG},
	[CURLE_SSL_PINNEDPUBKEYNOTMATCH] = {KVT_ECONFIG},
	[CURLE_SSL_INVALIDCERTSTATUS] = {KVT_ECONFIG},
	[CURLE_SSL_ENGINE_NOTFOUND] = {KVT_ECONFIG},
	[CURLE_SSL_ENGINE_SETFAILED] = {KVT_ECONFIG},
	[CURLE_SSL_ENGINE_INITFAILED] = {KVT_ECONFIG},
	[CURLE_USE_SSL_FAILED] = {KVT_ECONFIG},

	/* answers that are none, or end early */
	[CURLE_UNSUPPORTED_PROTOCOL] = {KVT_EPROTO,
					true}, /* no HTTP: bytes that an answer before left */
	[CURLE_WEIRD_SERVER_REPLY] = {KVT_EPROTO, true},
	[CURLE_HTTP2] = {KVT_EPROTO},
	[CURLE_HTTP2_STREAM] = {KVT_EPROTO},
	[CURLE_HTTP3] = {KVT_EPROTO},
	[CURLE_PARTIAL_FILE] = {KVT_EPROTO},
	[CURLE_GOT_NOTHING] = {KVT_EPROTO, true},
	[CURLE_BAD_CONTENT_ENCODING] = {KVT_EPROTO},
	[CURLE_FILESIZE_EXCEEDED] = {KVT_EPROTO},
	[CURLE_RANGE_ERROR] = {KVT_EPROTO},
	[CURLE_BAD_DOWNLOAD_RESUME] = {KVT_EPROTO},
	[CURLE_TOO_MANY_REDIRECTS] = {KVT_EPROTO},
	[CURLE_HTTP_RETURNED_ERROR] = {KVT_EPROTO},
	[CURLE_HTTP_POST_ERROR] = {KVT_EPROTO},
	[CURLE_UPLOAD_FAILED] = {KVT_EPROTO},
	[CURLE_WRITE_ERROR] = {KVT_EPROTO}, /* more of an answer than is taken */
	[100] = {KVT_EPROTO},		    /* CURLE_TOO_LARGE, since 8.6: of header lines */

	/* here */
	[CURLE_OUT_OF_MEMORY] = {KVT_ENOMEM},
	[CURLE_FAILED_INIT] = {KVT_EINTERNAL},
	[CURLE_READ_ERROR] = {KVT_EINTERNAL},
	[CURLE_ABORTED_BY_CALLBACK] = {KVT_EINTERNAL},
	[CURLE_BAD_FUNCTION_ARGUMENT] = {KVT_EINTERNAL},
	[CURLE_UNKNOWN_OPTION] = {KVT_EINTERNAL},
	[CURLE_SETOPT_OPTION_SYNTAX] = {KVT_EINTERNAL},
	[CURLE_RECURSIVE_API_CALL] = {KVT_EINTERNAL},
	[CURLE_AGAIN] = {KVT_EINTERNAL},
	[CURLE_UNRECOVERABLE_POLL] = {KVT_EINTERNAL},
};

#define S3_COUNT(array) (sizeof(array) / sizeof((array)[0]))

int kvt__s3_error_of_reply(long status, const char *code, enum s3_remedy *remedyp)
{
	*remedyp = S3_REMEDY_NONE;
	for (size_t i = 0; *code && i < S3_COUNT(s3_codes); i++) {
		if (strcmp(code, s3_codes[i].code) == 0) {
			*remedyp = s3_codes[i].remedy;
			return s3_codes[i].error;
		}
	}
	for (size_t i = 0; i < S3_COUNT(s3_statuses); i++) {
		if (status >= s3_statuses[i].first && status <= s3_statuses[i].last) {
			*remedyp = s3_statuses[i].remedy;
			return s3_statuses[i].error;
		}
	}
	/* An error inside a 200 that has no name we know is the server's; all else is no answer. */
	return status >= 200 && status < 300 && *code ? KVT_ESERVER : KVT_EPROTO;
}

int kvt__s3_error_of_curl(CURLcode code)
{
	if (code == CURLE_OK)
		return 0;
	if ((unsigned)code >= S3_COUNT(s3_curl_codes) || s3_curl_codes[code].error == 0)
		return KVT_EINTERNAL;
	return s3_curl_codes[code].error;
}

bool kvt__s3_is_stale_connection(CURLcode code)
{
	return (unsigned)code < S3_COUNT(s3_curl_codes) && s3_curl_codes[code].is_stale;
}
