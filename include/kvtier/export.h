/* SPDX-License-Identifier: Apache-2.0 */
/* What is exported, and the attributes that public declarations carry. Included by every other
 * public header. */
#ifndef KVTIER_EXPORT_H
#define KVTIER_EXPORT_H

#if defined(__GNUC__) || defined(__clang__)
#define KVT_API	       __attribute__((visibility("default")))
#define KVT_MUST_CHECK __attribute__((warn_unused_result))
#define KVT_PRINTF(format_index, first_index)                                                      \
	__attribute__((format(printf, format_index, first_index)))
#else
#define KVT_API
#define KVT_MUST_CHECK
#define KVT_PRINTF(format_index, first_index)
#endif

#ifdef __cplusplus
#define KVT_BEGIN_DECLS extern "C" {
#define KVT_END_DECLS	}
#else
#define KVT_BEGIN_DECLS
#define KVT_END_DECLS
#endif

#endif
