/* SPDX-License-Identifier: Apache-2.0 */
/* libcurl made ready once for the process. */
#ifndef KVT_S3_CURL_INIT_H
#define KVT_S3_CURL_INIT_H

/* Before the first use of libcurl, from any thread, as often as one likes. 0, or KVT_ENOMEM when
 * libcurl or its TLS library would not start; that stays so. Never undone: others in the process
 * may use libcurl too. */
int kvt__s3_curl_init(void);

#endif
