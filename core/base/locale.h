/* SPDX-License-Identifier: Apache-2.0
 *
 * Text of numbers, whatever the locale of the program is: the decimal point is a point. printf, scanf and strtod of the C
 * library follow the locale that the program chose with setlocale, where 0.5 may be "0,5". All of Strata that formats or reads
 * numbers with a fraction calls these functions, or others that call them, such as strata_text_add. They change the locale of
 * the calling thread for the time of the call. core/base/ascii.h compares letters. */
#ifndef STRATA_CORE_LOCALE_H
#define STRATA_CORE_LOCALE_H

#include <locale.h>
#include <stdio.h>

#include "strata/status.h"

/* As snprintf, vsnprintf, fprintf, sscanf and strtod. out_end may be NULL. */
int strata_format(char *out, size_t room, const char *format, ...) STRATA_PRINTF(3, 4);
int strata_format_v(char *out, size_t room, const char *format, va_list arguments) STRATA_PRINTF(3, 0);
int strata_format_file(FILE *file, const char *format, ...) STRATA_PRINTF(2, 3);
int strata_scan(const char *text, const char *format, ...) __attribute__((format(scanf, 2, 3)));
double strata_scan_number(const char *text, char **out_end);
/* As strerror, in English. */
const char *strata_errno_text(int error_number);

/* For calls of other libraries that format or read numbers: between the two calls, the thread has the locale "C". */
typedef struct strata_c_locale {
    locale_t own, before;
} strata_c_locale;
strata_c_locale strata_c_locale_enter(void);
void strata_c_locale_leave(strata_c_locale locale);

#endif
