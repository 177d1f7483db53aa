/* SPDX-License-Identifier: Apache-2.0 */
/* Result codes. Every fallible function returns 0 or a count, or one of these negative codes; the
 * class says what may be done about it. KVT_ERROR_TABLE is the only place where names, values,
 * classes and texts are written down. */
#ifndef KVTIER_ERROR_H
#define KVTIER_ERROR_H

#include <kvtier/export.h>

/*
 * A class decides what happens next: the retry logic, the circuit breaker and the exit status of
 * the command-line tool look at the class alone.
 *
 * X(name, exit status, text)
 */
#define KVT_CLASS_TABLE(X)                                                                         \
	X(NONE, 0, "success")                                                                      \
	X(USAGE, 2, "the caller passed something wrong")                                           \
	X(MISS, 3, "the object is not there")                                                      \
	X(INTEGRITY, 4, "the object is there and its bytes or its identity are wrong")             \
	X(CONFLICT, 5, "somebody else changed the object, or it exists already")                   \
	X(TRANSIENT, 6, "may work when tried again")                                               \
	X(THROTTLED, 7, "asked to slow down")                                                      \
	X(PERMANENT, 8, "will not work when tried again")                                          \
	X(CONFIGURATION, 9, "an operator has to change something")                                 \
	X(CANCELED, 10, "given up on request")                                                     \
	X(INTERNAL, 11, "a fault of this library or of the machine")

enum kvt_error_class {
#define KVT_X(name, exit_status, text) KVT_CLASS_##name,
	KVT_CLASS_TABLE(KVT_X)
#undef KVT_X
};

/* X(name, value, class, text) */
#define KVT_ERROR_TABLE(X)                                                                         \
	X(EINVAL, -1, USAGE, "invalid argument")                                                   \
	X(ENOMEM, -2, INTERNAL, "out of memory")                                                   \
	X(ENOENT, -3, MISS, "no such object")                                                      \
	X(EEXIST, -4, CONFLICT, "exists already")                                                  \
	X(EPRECOND, -5, CONFLICT, "the object is not the expected version")                        \
	X(ERANGE, -6, CONFLICT, "the object does not have this byte range")                        \
	X(EAGAIN, -7, THROTTLED, "the queue is full")                                              \
	X(EBUSY, -8, TRANSIENT, "still in use")                                                    \
	X(ETIMEDOUT, -9, TRANSIENT, "the deadline has passed")                                     \
	X(ECANCELED, -10, CANCELED, "canceled")                                                    \
	X(ENOTSUP, -11, USAGE, "not supported here")                                               \
	X(EIO, -12, TRANSIENT, "input/output error")                                               \
	X(ENOSPC, -13, PERMANENT, "no space left")                                                 \
	X(EACCES, -14, CONFIGURATION, "permission denied")                                         \
	X(EMFILE, -15, TRANSIENT, "too many open files")                                           \
	X(ENET, -16, TRANSIENT, "network failure")                                                 \
	X(ESERVER, -17, TRANSIENT, "the server failed")                                            \
	X(ETHROTTLED, -18, THROTTLED, "the server asks to slow down")                              \
	X(EAUTH, -19, CONFIGURATION, "credentials were refused")                                   \
	X(EPROTO, -20, TRANSIENT, "unexpected reply")                                              \
	X(ECORRUPT, -21, INTEGRITY, "checksum or structure is wrong")                              \
	X(EMISMATCH, -22, INTEGRITY, "another key, geometry, rank or namespace")                   \
	X(EFOREIGN, -23, INTEGRITY, "not an object of this format")                                \
	X(EFORMAT, -24, PERMANENT, "a format version this library does not know")                  \
	X(ENAMESPACE, -25, CONFIGURATION, "the namespace was made with other fields")              \
	X(ECONFIG, -26, CONFIGURATION, "the configuration does not work")                          \
	X(EMODULE, -27, CONFIGURATION, "the module cannot be used")                                \
	X(EUNAVAIL, -28, TRANSIENT, "the store is failing and is left alone for a while")          \
	X(EDEVICE, -29, PERMANENT, "the device failed")                                            \
	X(EFAULT, -30, USAGE, "the memory is not what it should be")                               \
	X(EFORK, -31, USAGE, "not usable in a forked child")                                       \
	X(ESHUTDOWN, -32, CANCELED, "the worker is being destroyed")                               \
	X(EROFS, -33, CONFIGURATION, "read-only store")                                            \
	X(EINTERNAL, -34, INTERNAL, "internal error")

enum kvt_error {
	KVT_OK = 0,
#define KVT_X(name, value, class_name, text) KVT_##name = (value),
	KVT_ERROR_TABLE(KVT_X)
#undef KVT_X
};

KVT_BEGIN_DECLS

/* All of these take any int, return static memory or a value, never block and may be called from
 * any thread. */

/* "KVT_EINVAL" for KVT_EINVAL, "KVT_OK" for 0 and every positive value, "KVT_E?" for a code that
 * does not exist. */
KVT_API const char *kvt_error_name(int error);
/* The text of the table, "success" for 0 and every positive value. */
KVT_API const char *kvt_error_text(int error);
/* The class; KVT_CLASS_INTERNAL for a code that does not exist. */
KVT_API enum kvt_error_class kvt_error_class(int error);
/* "TRANSIENT" for KVT_CLASS_TRANSIENT; "?" for a class that does not exist. */
KVT_API const char *kvt_error_class_name(enum kvt_error_class error_class);
/* The exit status that the command-line tool uses for this code. */
KVT_API int kvt_error_exit_status(int error);

/*
 * One line about the last failure of a kvt_* call on this thread, for example
 * "keys[3]: 65 hash bytes, expected 1 to 64". Never NULL; "" when no call on
 * this thread has failed yet. Valid until the next kvt_* call on this thread. It never holds a
 * secret.
 */
KVT_API const char *kvt_error_detail(void);

KVT_END_DECLS

#endif
