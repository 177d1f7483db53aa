/* SPDX-License-Identifier: Apache-2.0 */
/* curl_global_init, which is safe on any thread only from 7.84 on and counts its calls, is called
 * once, whoever comes first. */
#include "curl_init.h"

#include <pthread.h>
#include <stdbool.h>

#include <curl/curl.h>

#include <kvtier/error.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int result; /* written once, before any call of pthread_once returns */

/* A module may meet an older libcurl than it was built with; these options were new in 7.85
 * and 7.87: CURLOPT_PROTOCOLS_STR, CURLOPT_QUICK_EXIT. */
static bool is_new_enough(void)
{
	return curl_version_info(CURLVERSION_NOW)->version_num >= S3_LEAST_LIBCURL;
}

static void start(void)
{
	if (!is_new_enough()) {
		result = KVT_EMODULE;
		return;
	}
	result = curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK ? 0 : KVT_ENOMEM;
}

int kvt__s3_curl_init(void)
{
	return pthread_once(&once, start) == 0 ? result : KVT_ENOMEM;
}
