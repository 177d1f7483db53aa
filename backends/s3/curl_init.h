/* SPDX-License-Identifier: Apache-2.0 */
/* libcurl made ready once for the process. */
#ifndef KVT_S3_CURL_INIT_H
#define KVT_S3_CURL_INIT_H

/* The oldest libcurl that will do. */
#define S3_LEAST_LIBCURL      0x075700
#define S3_LEAST_LIBCURL_TEXT "7.87"

/* Before the first use of libcurl, from any thread, as often as one likes. 0, or KVT_ENOMEM when
 * libcurl or its TLS library would not start, KVT_EMODULE when it is too old; that stays so. Never
 * undone: others in the process may use libcurl too. */
int kvt__s3_curl_init(void);

#endif
