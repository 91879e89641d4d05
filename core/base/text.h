/* SPDX-License-Identifier: Apache-2.0
 *
 * UTF-8 and lists of names. The public header has text that grows, and the search for similar words. JSON is in
 * core/base/json.h. */
#ifndef STRATA_CORE_TEXT_H
#define STRATA_CORE_TEXT_H

#include "strata/text.h"

/* The number of bytes (1 to 4) of the UTF-8 character at the beginning of at[0..n_bytes). 0 if there is no valid
 * character: too few bytes, a form that is not the shortest, a surrogate, or beyond U+10FFFF. A NUL is a character of 1
 * byte. */
size_t strata_utf8_length(const void *at, size_t n_bytes);
/* Writes a character as UTF-8 and returns how many bytes it has, 1 to 4. */
size_t strata_utf8_encode(uint32_t code, char *out);
bool strata_utf8_valid(const char *string);

/* Copies a list of strings to one block of memory, which the caller frees; NULL for none. */
STRATA_MUST_USE strata_status strata_names_copy(const char *const *names, int n_names, char ***out_names, strata_error *err);
/* Compares two strings of a list, or two structs that begin with a string, for qsort. */
int strata_by_bytes(const void *a, const void *b);

/* The end of a message about a word that is none of the names: "; the nearest is \"x\"", or nothing if none is similar. */
typedef struct strata_hint {
    char text[128];
} strata_hint;
strata_hint strata_nearest_hint(const char *word, char *const *names, int n_names);

#endif
