/* SPDX-License-Identifier: Apache-2.0 */
/* curl_global_init, which is safe on any thread only from 7.84 on and counts its calls, is called
 * once, whoever comes first. */
#include "curl_init.h"

#include <pthread.h>

#include <curl/curl.h>

#include <kvtier/error.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int result; /* written once, before any call of pthread_once returns */

static void start(void)
{
	result = curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK ? 0 : KVT_ENOMEM;
}

int kvt__s3_curl_init(void)
{
	return pthread_once(&once, start) == 0 ? result : KVT_ENOMEM;
}
