/* SPDX-License-Identifier: Apache-2.0
 *
 * The only file that calls functions of the C library whose results depend on the locale; tests/links checks it. newlocale
 * returns a constant for the locale "C" in glibc and musl, so nothing is allocated. */
#include "core/base/locale.h"

#include <stdlib.h>
#include <string.h>

strata_c_locale strata_c_locale_enter(void) {
    strata_c_locale l = {.own = newlocale(LC_ALL_MASK, "C", (locale_t)0)};
    if (l.own) l.before = uselocale(l.own);
    return l;
}

void strata_c_locale_leave(strata_c_locale l) {
    if (!l.own) return;
    uselocale(l.before);
    freelocale(l.own);
}

int strata_format_v(char *out, size_t room, const char *format, va_list arguments) {
    const strata_c_locale l = strata_c_locale_enter();
    const int n = vsnprintf(out, room, format, arguments);
    strata_c_locale_leave(l);
    return n;
}

int strata_format(char *out, size_t room, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    const int n = strata_format_v(out, room, format, arguments);
    va_end(arguments);
    return n;
}

int strata_format_file(FILE *file, const char *format, ...) {
    va_list arguments;
    const strata_c_locale l = strata_c_locale_enter();
    va_start(arguments, format);
    const int n = vfprintf(file, format, arguments);
    va_end(arguments);
    strata_c_locale_leave(l);
    return n;
}

int strata_scan(const char *text, const char *format, ...) {
    va_list arguments;
    const strata_c_locale l = strata_c_locale_enter();
    va_start(arguments, format);
    const int n = vsscanf(text, format, arguments);
    va_end(arguments);
    strata_c_locale_leave(l);
    return n;
}

double strata_scan_number(const char *text, char **out_end) {
    const strata_c_locale l = strata_c_locale_enter();
    const double value = strtod(text, out_end);
    strata_c_locale_leave(l);
    return value;
}

const char *strata_errno_text(int error_number) {
    const strata_c_locale l = strata_c_locale_enter();
    const char *text = strerror(error_number);
    strata_c_locale_leave(l);
    return text;
}
