/* SPDX-License-Identifier: Apache-2.0
 *
 * Letters and digits of ASCII. The functions of <ctype.h> and strcasecmp depend on the program's locale: in a Turkish one, "I"
 * is no capital of "i". */
#ifndef STRATA_CORE_ASCII_H
#define STRATA_CORE_ASCII_H

#include <stdbool.h>
#include <stddef.h>

static inline bool strata_ascii_is_digit(char c) {
    return c >= '0' && c <= '9';
}

static inline bool strata_ascii_is_small(char c) {
    return c >= 'a' && c <= 'z';
}

static inline bool strata_ascii_is_capital(char c) {
    return c >= 'A' && c <= 'Z';
}

static inline bool strata_ascii_is_letter(char c) {
    return strata_ascii_is_small(c) || strata_ascii_is_capital(c);
}

static inline bool strata_ascii_is_word(char c) {
    return strata_ascii_is_letter(c) || strata_ascii_is_digit(c);
}

static inline char strata_ascii_lower(char c) {
    return strata_ascii_is_capital(c) ? (char)(c - 'A' + 'a') : c;
}

/* Whether the first n characters are equal, or all up to the end; the case of letters is ignored. */
static inline bool strata_ascii_same_n(const char *a, const char *b, size_t n) {
    for (; n && *a && strata_ascii_lower(*a) == strata_ascii_lower(*b); a++, b++) n--;
    return !n || strata_ascii_lower(*a) == strata_ascii_lower(*b);
}

static inline bool strata_ascii_same(const char *a, const char *b) {
    return strata_ascii_same_n(a, b, (size_t)-1);
}

#endif
