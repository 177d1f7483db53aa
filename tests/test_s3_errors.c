/* SPDX-License-Identifier: Apache-2.0 */
/* What answers and failed transfers mean, and what may be done about them. */
#include "../backends/s3/errors.h"

#include <kvtier/error.h>

#include "support.h"

struct reply_case {
	long status;
	const char *code;
	int error;
	enum s3_remedy remedy;
};

static void check_replies(const struct reply_case *cases, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		enum s3_remedy remedy = (enum s3_remedy)99;
		int error = kvt__s3_error_of_reply(cases[i].status, cases[i].code, &remedy);

		if (error != cases[i].error || remedy != cases[i].remedy)
			fail_msg("%ld \"%s\": %s with remedy %d, expected %s with %d",
				 cases[i].status, cases[i].code, kvt_error_name(error), (int)remedy,
				 kvt_error_name(cases[i].error), (int)cases[i].remedy);
	}
}

static void codes_of_objects_and_buckets_are_mapped(void **state)
{
	static const struct reply_case cases[] = {
		{404, "NoSuchKey", KVT_ENOENT},
		{404, "NoSuchUpload", KVT_ENOENT},
		{404, "NoSuchVersion", KVT_ENOENT},
		{404, "NoSuchBucket", KVT_ECONFIG},
		{400, "InvalidBucketName", KVT_ECONFIG},
		{412, "PreconditionFailed", KVT_EPRECOND},
		{416, "InvalidRange", KVT_ERANGE},
		{403, "InvalidObjectState", KVT_ECONFIG},
		{400, "EntityTooSmall", KVT_ECONFIG},
		{400, "EntityTooLarge", KVT_ECONFIG},
		{400, "InvalidPart", KVT_EPROTO},
		{400, "InvalidPartOrder", KVT_EINTERNAL},
		{405, "MethodNotAllowed", KVT_ENOTSUP},
		{501, "NotImplemented", KVT_ENOTSUP},
		{501, "XNotImplemented", KVT_ENOTSUP},
		{403, "QuotaExceeded", KVT_ENOSPC},
		{507, "XMinioStorageFull", KVT_ENOSPC},
		{400, "XMinioAdminBucketQuotaExceeded", KVT_ENOSPC},
		{507, "InsufficientStorage", KVT_ENOSPC},
	};

	(void)state;
	check_replies(cases, TEST_COUNT(cases));
}

static void refusals_say_what_to_do_about_them(void **state)
{
	static const struct reply_case cases[] = {
		{403, "AccessDenied", KVT_EACCES},
		{403, "AccountProblem", KVT_EACCES},
		{403, "AllAccessDisabled", KVT_EACCES},
		{403, "SignatureDoesNotMatch", KVT_EAUTH},
		{403, "InvalidAccessKeyId", KVT_EAUTH, S3_REMEDY_CREDENTIALS},
		{400, "ExpiredToken", KVT_EAUTH, S3_REMEDY_CREDENTIALS},
		{400, "InvalidToken", KVT_EAUTH, S3_REMEDY_CREDENTIALS},
		{400, "TokenRefreshRequired", KVT_EAUTH, S3_REMEDY_CREDENTIALS},
		{403, "RequestTimeTooSkewed", KVT_ECONFIG, S3_REMEDY_CLOCK},
		{400, "AuthorizationHeaderMalformed", KVT_ECONFIG, S3_REMEDY_REGION},
		{301, "PermanentRedirect", KVT_ECONFIG, S3_REMEDY_REGION},
		{307, "TemporaryRedirect", KVT_ECONFIG, S3_REMEDY_REGION},
		{301, "MovedPermanently", KVT_ECONFIG, S3_REMEDY_REGION},
	};

	(void)state;
	check_replies(cases, TEST_COUNT(cases));
}

static void what_passes_may_be_tried_again(void **state)
{
	static const struct reply_case cases[] = {
		{503, "SlowDown", KVT_ETHROTTLED},
		{503, "SlowDownRead", KVT_ETHROTTLED},
		{503, "SlowDownWrite", KVT_ETHROTTLED},
		{429, "TooManyRequests", KVT_ETHROTTLED},
		{500, "InternalError", KVT_ESERVER},
		{503, "ServiceUnavailable", KVT_ESERVER},
		{400, "RequestTimeout", KVT_ENET},
		{400, "IncompleteBody", KVT_ENET},
		{499, "ClientDisconnected", KVT_ENET},
		{409, "OperationAborted", KVT_EBUSY},
		{409, "ConditionalRequestConflict", KVT_EBUSY},
		{400, "XAmzContentSHA256Mismatch", KVT_EPROTO},
		{400, "BadDigest", KVT_EPROTO},
	};

	(void)state;
	check_replies(cases, TEST_COUNT(cases));
	for (size_t i = 0; i < TEST_COUNT(cases); i++) {
		enum kvt_error_class class = kvt_error_class(cases[i].error);

		assert_true(class == KVT_CLASS_TRANSIENT || class == KVT_CLASS_THROTTLED);
	}
}

static void without_a_known_code_the_status_tells(void **state)
{
	static const struct reply_case cases[] = {
		{300, "", KVT_EPROTO},
		{301, "", KVT_ECONFIG, S3_REMEDY_REGION},
		{302, "", KVT_ECONFIG, S3_REMEDY_REGION},
		{304, "", KVT_EPROTO},
		{307, "", KVT_ECONFIG, S3_REMEDY_REGION},
		{308, "", KVT_ECONFIG, S3_REMEDY_REGION},
		{400, "", KVT_ECONFIG},
		{400, "NobodyKnowsThis", KVT_ECONFIG},
		{401, "", KVT_EAUTH},
		{403, "", KVT_EACCES},
		{404, "", KVT_ENOENT},
		{404, "nosuchkey", KVT_ENOENT},
		{405, "", KVT_ENOTSUP},
		{407, "", KVT_EAUTH},
		{408, "", KVT_ENET},
		{409, "", KVT_EBUSY},
		{412, "", KVT_EPRECOND},
		{413, "", KVT_ECONFIG},
		{416, "", KVT_ERANGE},
		{429, "", KVT_ETHROTTLED},
		{451, "", KVT_ECONFIG},
		{499, "", KVT_ENET},
		{500, "", KVT_ESERVER},
		{501, "", KVT_ENOTSUP},
		{502, "", KVT_ESERVER},
		{503, "", KVT_ESERVER},
		{504, "", KVT_ESERVER},
		{507, "", KVT_ENOSPC},
		{599, "", KVT_ESERVER},
		{600, "", KVT_EPROTO},
		{0, "", KVT_EPROTO},
		{200, "", KVT_EPROTO},
	};

	(void)state;
	check_replies(cases, TEST_COUNT(cases));
}

static void an_error_inside_a_success_counts(void **state)
{
	static const struct reply_case cases[] = {
		{200, "InternalError", KVT_ESERVER},	   {200, "SlowDown", KVT_ETHROTTLED},
		{200, "PreconditionFailed", KVT_EPRECOND}, {200, "NoSuchUpload", KVT_ENOENT},
		{200, "InvalidPart", KVT_EPROTO},	   {200, "NobodyKnowsThis", KVT_ESERVER},
	};

	(void)state;
	check_replies(cases, TEST_COUNT(cases));
}

static void every_status_that_is_no_success_is_an_error(void **state)
{
	(void)state;
	for (long status = 0; status < 1000; status++) {
		enum s3_remedy remedy;

		if (status >= 200 && status < 300)
			continue;
		assert_true(kvt__s3_error_of_reply(status, "", &remedy) < 0);
		assert_true(kvt__s3_error_of_reply(status, "Unheard", &remedy) < 0);
	}
}

static void failed_transfers_are_mapped(void **state)
{
	static const struct {
		CURLcode code;
		int error;
	} cases[] = {
		{CURLE_OK, 0},
		{CURLE_COULDNT_RESOLVE_HOST, KVT_ENET},
		{CURLE_COULDNT_CONNECT, KVT_ENET},
		{CURLE_SEND_ERROR, KVT_ENET},
		{CURLE_RECV_ERROR, KVT_ENET},
		{CURLE_SSL_CONNECT_ERROR, KVT_ENET},
		{CURLE_OPERATION_TIMEDOUT, KVT_ETIMEDOUT},
		{CURLE_PARTIAL_FILE, KVT_EPROTO},
		{CURLE_GOT_NOTHING, KVT_EPROTO},
		{CURLE_WEIRD_SERVER_REPLY, KVT_EPROTO},
		{CURLE_PEER_FAILED_VERIFICATION, KVT_ECONFIG},
		{CURLE_SSL_CACERT_BADFILE, KVT_ECONFIG},
		{CURLE_UNSUPPORTED_PROTOCOL, KVT_EPROTO},
		{CURLE_OUT_OF_MEMORY, KVT_ENOMEM},
		{CURLE_BAD_FUNCTION_ARGUMENT, KVT_EINTERNAL},
		{CURLE_FTP_ACCEPT_FAILED, KVT_EINTERNAL},
	};

	(void)state;
	for (size_t i = 0; i < TEST_COUNT(cases); i++)
		assert_int_equal(kvt__s3_error_of_curl(cases[i].code), cases[i].error);
	for (int code = 1; code < 200; code++)
		assert_true(kvt__s3_error_of_curl((CURLcode)code) < 0);
	assert_int_equal(kvt__s3_error_of_curl((CURLcode)-1), KVT_EINTERNAL);
}

static void only_broken_and_dirty_connections_can_have_been_stale(void **state)
{
	(void)state;
	for (int code = -1; code < 200; code++)
		assert_int_equal(kvt__s3_is_stale_connection((CURLcode)code),
				 code == CURLE_SEND_ERROR || code == CURLE_RECV_ERROR ||
					 code == CURLE_GOT_NOTHING ||
					 code == CURLE_SEND_FAIL_REWIND ||
					 /* what an answer before left on the connection */
					 code == CURLE_UNSUPPORTED_PROTOCOL ||
					 code == CURLE_WEIRD_SERVER_REPLY);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(codes_of_objects_and_buckets_are_mapped),
		cmocka_unit_test(refusals_say_what_to_do_about_them),
		cmocka_unit_test(what_passes_may_be_tried_again),
		cmocka_unit_test(without_a_known_code_the_status_tells),
		cmocka_unit_test(an_error_inside_a_success_counts),
		cmocka_unit_test(every_status_that_is_no_success_is_an_error),
		cmocka_unit_test(failed_transfers_are_mapped),
		cmocka_unit_test(only_broken_and_dirty_connections_can_have_been_stale),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
