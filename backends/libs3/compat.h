/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The APIs of libs3 that are found in the wild, made alike. The build looks for each feature alone
 * (cmake/KvtLibs3.cmake), for there is no version to go by:
 *
 *     KVT_LIBS3_HAVE_TIMEOUT      requests take a time limit behind their context
 *     KVT_LIBS3_HAVE_TOKEN        S3BucketContext has securityToken
 *     KVT_LIBS3_HAVE_REGION       S3BucketContext has authRegion: signatures are of version 4
 *     KVT_LIBS3_HAVE_VERIFY       S3_INIT_VERIFY_PEER and S3_set_request_context_verify_peer
 *     KVT_LIBS3_HAVE_MULTIPART    multipart uploads
 */
#ifndef KVT_LIBS3_COMPAT_H
#define KVT_LIBS3_COMPAT_H

#include <libs3.h>

/* The request context of a call, and its time limit where it takes one: none, for deadlines are
 * kept in call.c. */
#ifdef KVT_LIBS3_HAVE_TIMEOUT
#define LIBS3_ON(context) (context), 0
#else
#define LIBS3_ON(context) (context)
#endif

#ifdef KVT_LIBS3_HAVE_TOKEN
#define LIBS3_HAS_TOKEN 1
#else
#define LIBS3_HAS_TOKEN 0
#endif

#ifdef KVT_LIBS3_HAVE_REGION
#define LIBS3_HAS_REGION 1
#else
#define LIBS3_HAS_REGION 0
#endif

#ifdef KVT_LIBS3_HAVE_VERIFY
#define LIBS3_HAS_VERIFY 1
#else
#define LIBS3_HAS_VERIFY 0
#endif

#ifdef KVT_LIBS3_HAVE_MULTIPART
#define LIBS3_HAS_MULTIPART 1
#else
#define LIBS3_HAS_MULTIPART 0
#endif

#endif
