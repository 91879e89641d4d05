/* SPDX-License-Identifier: Apache-2.0
 *
 * Status and error: how every call of Strata that can fail says so.
 *
 * A fallible call returns a strata_status (0 = OK; must be looked at) and takes a last argument `strata_error *err`, the
 * caller's memory, which may be NULL. On failure the error holds the same status and one sentence: what was wrong, the values
 * involved, and what to do next. On success the error is left as it was. The library never prints and never exits. */
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
    STRATA_INVALID,       /* the call is wrong: fix the arguments                              */
    STRATA_DATA,          /* a file or a batch is wrong: fix the data                          */
    STRATA_UNAVAILABLE,   /* not there now (driver, file, network): retry or go without        */
    STRATA_UNSUPPORTED,   /* this device or build cannot do it: choose another                 */
    STRATA_OUT_OF_MEMORY, /* host or device memory: make it smaller                            */
    STRATA_OUT_OF_DISK,   /* no space left while writing: what was there before is still there */
    STRATA_DEVICE_LOST,   /* the device or its driver died: a restart may cure it              */
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

/* Puts "prefix: " before the message of err, to say where it happened while the error travels up. Returns err's status
 * (or `status` where err is NULL). */
STRATA_API strata_status strata_fail_in(strata_error *err, strata_status status, const char *format, ...) STRATA_PRINTF(3, 4);

/* Returns early when `call` fails. Where there is something to undo use STRATA_TRY_GOTO and one label `cleanup:`. */
#define STRATA_TRY(call)                                 \
    do {                                                 \
        strata_status strata_try_status = (call);        \
        if (strata_try_status) return strata_try_status; \
    } while (0)

/* As STRATA_TRY with a local `strata_status status` and a label `cleanup:`. */
#define STRATA_TRY_GOTO(call)     \
    do {                          \
        status = (call);          \
        if (status) goto cleanup; \
    } while (0)

#ifdef __cplusplus
}
#endif
#endif
