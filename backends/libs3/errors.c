/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a status of libs3 means. The numbers differ between its versions, and no version has all of
 * the names, so they are told apart by the name that libs3 itself gives. Whether to try again is
 * decided by the class of the result: libs3's own opinion (S3_status_is_retryable) leaves out
 * SlowDown.
 */
#include "module.h"

#include <string.h>

static const struct {
	const char *name;
	int error;
} table[] = {
	/* of the machine and the network */
	{"InternalError", KVT_ENET}, /* any failure of libcurl that has no name of its own */
	{"OutOfMemory", KVT_ENOMEM},
	{"Interrupted", KVT_ETIMEDOUT},
	{"FailedToInitializeRequest", KVT_EINTERNAL},
	{"NameLookupError", KVT_ENET},
	{"FailedToConnect", KVT_ENET},
	{"ConnectionFailed", KVT_ENET},
	{"ServerFailedVerification", KVT_ECONFIG},
	{"AbortedByCallback", KVT_EPROTO},
	{"XmlParseFailure", KVT_EPROTO},
	{"XmlDocumentTooLarge", KVT_EPROTO},
	{"IfMatchETagTooLong", KVT_EPROTO},
	{"KeyTooLong", KVT_EINVAL},
	{"UriTooLong", KVT_EINVAL},
	{"QueryParamsTooLong", KVT_EINVAL},
	{"HeadersTooLong", KVT_ECONFIG},
	{"MetaDataHeadersTooLong", KVT_ECONFIG},
	/* of S3 */
	{"ErrorNoSuchKey", KVT_ENOENT},
	{"ErrorNoSuchVersion", KVT_ENOENT},
	{"ErrorNoSuchUpload", KVT_EPRECOND},
	{"ErrorNoSuchBucket", KVT_ECONFIG},
	{"ErrorInvalidBucketName", KVT_ECONFIG},
	{"ErrorPermanentRedirect", KVT_ECONFIG},
	{"ErrorRedirect", KVT_ECONFIG},
	{"ErrorAuthorizationHeaderMalformed", KVT_ECONFIG},
	{"ErrorKMS.DisabledException", KVT_ECONFIG},
	{"ErrorAccessDenied", KVT_EACCES},
	{"ErrorAllAccessDisabled", KVT_EACCES},
	{"ErrorAccountProblem", KVT_EACCES},
	{"ErrorNotSignedUp", KVT_EACCES},
	{"ErrorInvalidPayer", KVT_EACCES},
	{"ErrorInvalidAccessKeyId", KVT_EAUTH},
	{"ErrorSignatureDoesNotMatch", KVT_EAUTH},
	{"ErrorExpiredToken", KVT_EAUTH},
	{"ErrorInvalidToken", KVT_EAUTH},
	{"ErrorInvalidSecurity", KVT_EAUTH},
	{"ErrorTokenRefreshRequired", KVT_EAUTH},
	{"ErrorCredentialsNotSupported", KVT_EAUTH},
	{"ErrorMissingSecurityHeader", KVT_EAUTH},
	{"ErrorRequestTimeTooSkewed", KVT_ECONFIG},
	{"ErrorPreconditionFailed", KVT_EPRECOND},
	{"ErrorInvalidRange", KVT_ERANGE},
	{"ErrorMethodNotAllowed", KVT_ENOTSUP},
	{"ErrorNotImplemented", KVT_ENOTSUP},
	{"ErrorEntityTooLarge", KVT_ENOSPC},
	{"ErrorQuotaExceeded", KVT_ENOSPC},
	{"ErrorSlowDown", KVT_ETHROTTLED},
	{"ErrorServiceUnavailable", KVT_ETHROTTLED},
	{"ErrorOperationAborted", KVT_EBUSY},
	{"ErrorBadDigest", KVT_EPROTO},
	{"ErrorIncompleteBody", KVT_ENET},
	{"ErrorRequestTimeout", KVT_ENET},
	{"ErrorTemporaryRedirect", KVT_ESERVER},
	{"ErrorInternalError", KVT_ESERVER},
	/* Codes and statuses that libs3 does not know: 429, 502, 504 are among them. */
	{"ErrorUnknown", KVT_ESERVER},
	{"HttpErrorUnknown", KVT_ESERVER},
	{"HttpErrorForbidden", KVT_EACCES},
	{"HttpErrorNotFound", KVT_ENOENT},
	{"HttpErrorConflict", KVT_EBUSY},
	{"HttpErrorBadRequest", KVT_EPROTO},
	{"HttpErrorMovedTemporarily", KVT_ECONFIG},
};

int kvt__libs3_error(S3Status status)
{
	const char *name;

	if (status == S3StatusOK)
		return 0;
	name = S3_get_status_name(status);
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
		if (!strcmp(name, table[i].name))
			return table[i].error;
	/* A name of a bucket, or an argument that cannot come from us. */
	if (!strncmp(name, "InvalidBucketName", strlen("InvalidBucketName")))
		return KVT_ECONFIG;
	return KVT_EPROTO;
}
