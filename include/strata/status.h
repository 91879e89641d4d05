/* SPDX-License-Identifier: Apache-2.0
 *
 * Status and error: how every call of Strata that can fail reports a failure.
 *
 * A call that can fail returns a strata_status (0 = OK), which the caller must check. Its last argument is `strata_error *err`,
 * memory of the caller, which may be NULL. On failure the call writes the same status and one sentence to it: what was wrong,
 * the values involved, and what to do next. On success the call does not change it. The library never prints and never exits.
 * */
#ifndef STRATA_STATUS_H
#define STRATA_STATUS_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define STRATA_API                                  __attribute__((visibility("default")))
#define STRATA_MUST_USE                             __attribute__((warn_unused_result))
#define STRATA_PRINTF(format_index, first_argument) __attribute__((format(printf, format_index, first_argument)))
#else
#define STRATA_API
#define STRATA_MUST_USE
#define STRATA_PRINTF(format_index, first_argument)
#endif

/* Each status says what the caller can do about it. */
typedef enum strata_status {
    STRATA_OK = 0,
    STRATA_INVALID,       /* the arguments of the call are wrong: fix them                     */
    STRATA_DATA,          /* a file or a batch is wrong: fix the data                          */
    STRATA_UNAVAILABLE,   /* a driver, file or network is missing: retry, or do without it     */
    STRATA_UNSUPPORTED,   /* this device or build cannot do it: choose another                 */
    STRATA_OUT_OF_MEMORY, /* host or device memory is full: make the model or batch smaller    */
    STRATA_OUT_OF_DISK,   /* no space left for a new file: the old file is unchanged           */
    STRATA_DEVICE_LOST,   /* the device or its driver failed: a restart may help               */
    STRATA_PEER_LOST,     /* another worker died: rebuild the group                            */
    STRATA_TIMEOUT,       /* no progress until the deadline                                    */
    STRATA_INTERRUPTED,   /* the caller asked to stop (a callback, a signal)                   */
    STRATA_INTERNAL       /* Strata's own bug: report it                                       */
} strata_status;

enum { STRATA_ERROR_MESSAGE_BYTES = 1024 };

typedef struct strata_error {
    strata_status status;
    /* UTF-8, NUL-terminated, no newline at its end. */
    char message[STRATA_ERROR_MESSAGE_BYTES];
} strata_error;

/* "INVALID", "DATA", ...; "UNKNOWN" for a value outside the enum. Static memory. */
STRATA_API const char *strata_status_name(strata_status status);

/* Fills err (when not NULL) and returns status, so that a failing function is one line:
 * `return strata_fail(err, STRATA_INVALID, "batch is %d; it must be at least 1", batch);` A longer message is cut. */
STRATA_API strata_status strata_fail(strata_error *err, strata_status status, const char *format, ...) STRATA_PRINTF(3, 4);
STRATA_API strata_status strata_fail_v(strata_error *err, strata_status status, const char *format, va_list arguments);

/* Puts "prefix: " before the message of err. Callers use it to add where the failure happened, while they return the error to
 * their own callers. Returns err's status, or `status` where err is NULL. */
STRATA_API strata_status strata_fail_in(strata_error *err, strata_status status, const char *format, ...) STRATA_PRINTF(3, 4);

/* Returns the status of `call` if it fails. A function that has something to undo may use STRATA_TRY_GOTO with
 * one label `cleanup:`. */
#define STRATA_TRY(call)                                 \
    do {                                                 \
        strata_status strata_try_status = (call);        \
        if (strata_try_status) return strata_try_status; \
    } while (0)

/* Assigns the status of `call` to the local variable `strata_status status`, and jumps to the label `cleanup:` if it fails. */
#define STRATA_TRY_GOTO(call)     \
    do {                          \
        status = (call);          \
        if (status) goto cleanup; \
    } while (0)

#ifdef __cplusplus
}
#endif
#endif
