/* SPDX-License-Identifier: Apache-2.0
 *
 * The names of statuses, and the only place where error messages are formatted. Nothing here allocates, because errors
 * must be reported when memory has run out, too. strata/status.h documents what a caller should do for each status. */
#include "strata/status.h"

#include <string.h>

#include "core/base/locale.h"

static const char *const names[] = {
    [STRATA_OK] = "OK",
    [STRATA_INVALID] = "INVALID",
    [STRATA_DATA] = "DATA",
    [STRATA_UNAVAILABLE] = "UNAVAILABLE",
    [STRATA_UNSUPPORTED] = "UNSUPPORTED",
    [STRATA_OUT_OF_MEMORY] = "OUT_OF_MEMORY",
    [STRATA_OUT_OF_DISK] = "OUT_OF_DISK",
    [STRATA_DEVICE_LOST] = "DEVICE_LOST",
    [STRATA_PEER_LOST] = "PEER_LOST",
    [STRATA_TIMEOUT] = "TIMEOUT",
    [STRATA_INTERRUPTED] = "INTERRUPTED",
    [STRATA_INTERNAL] = "INTERNAL",
};

const char *strata_status_name(strata_status status) {
    size_t i = (size_t)status;
    return i < sizeof names / sizeof names[0] ? names[i] : "UNKNOWN";
}

/* A message that was cut in the middle of a UTF-8 character loses the whole character; a newline at the end goes too. */
static void tidy_message(char *message) {
    size_t length = strlen(message);
    size_t start = length;
    while (start > 0 && length - start < 4 && ((unsigned char)message[start - 1] & 0xC0) == 0x80) start--;
    if (start > 0) {
        unsigned char lead = (unsigned char)message[start - 1];
        size_t wanted = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : lead >= 0xC0 ? 1 : 0;
        if (length - start < wanted) length = start - 1;
    }
    while (length > 0 && message[length - 1] == '\n') length--;
    message[length] = '\0';
}

strata_status strata_fail_v(strata_error *err, strata_status status, const char *format, va_list arguments) {
    if (!err) return status;
    char message[STRATA_ERROR_MESSAGE_BYTES]; /* apart from err, so that an argument may point into err->message */
    if (strata_format_v(message, sizeof message, format, arguments) < 0) snprintf(message, sizeof message, "%s", format);
    tidy_message(message);
    err->status = status;
    memcpy(err->message, message, sizeof message);
    return status;
}

strata_status strata_fail(strata_error *err, strata_status status, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    strata_fail_v(err, status, format, arguments);
    va_end(arguments);
    return status;
}

strata_status strata_fail_in(strata_error *err, strata_status status, const char *format, ...) {
    if (!err) return status;
    strata_error prefix = {.status = status};
    va_list arguments;
    va_start(arguments, format);
    strata_fail_v(&prefix, status, format, arguments);
    va_end(arguments);
    return strata_fail(err, err->status ? err->status : status, "%s: %s", prefix.message, err->message);
}
