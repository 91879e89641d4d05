/* SPDX-License-Identifier: Apache-2.0
 *
 * Text that grows, and a search for the known word that is most similar to a mistyped one. JSON is in
 * core/base/json.h. */
#ifndef STRATA_CORE_TEXT_H
#define STRATA_CORE_TEXT_H

#include <stdbool.h>

#include "core/base/export.h"
#include "strata/status.h"

STRATA_EXPORT_BEGIN

/* A NUL-terminated string that grows as it is added to. Start from a zeroed struct. When memory runs out, the text is
 * marked as failed and ignores further additions. So the caller need not check each addition; strata_text_take fails
 * then. */
typedef struct strata_text {
    /* NULL while empty. */
    char *bytes;
    size_t n_bytes;
    size_t capacity;
    bool failed;
} strata_text;

void strata_text_add(strata_text *text, const char *format, ...) STRATA_PRINTF(2, 3);
void strata_text_add_bytes(strata_text *text, const void *bytes, size_t n_bytes);

/* Gives the string to the caller, who frees it, and leaves `text` zeroed. n_bytes (without the NUL) may be NULL.
 * Fails: OUT_OF_MEMORY when any of the additions did. */
STRATA_MUST_USE strata_status strata_text_take(strata_text *text, char **out_string, size_t *out_n_bytes, strata_error *err);
void strata_text_finish(strata_text *text);

/* The number of bytes (1 to 4) of the UTF-8 character at the beginning of at[0..n_bytes). 0 if there is no valid
 * character: too few bytes, a form that is not the shortest, a surrogate, or beyond U+10FFFF. A NUL is a character of 1
 * byte. */
size_t strata_utf8_length(const void *at, size_t n_bytes);
bool strata_utf8_valid(const char *string);

/* Copies a list of strings, for strata_names_free; NULL for none. */
STRATA_MUST_USE strata_status strata_names_copy(const char *const *names, int n_names, char ***out_names, strata_error *err);
void strata_names_free(char **names, int n_names); /* NULL is fine */

/* The one of `names` that is most like `word` (letters swapped, left out, added or changed; case is ignored), or NULL
 * if in all of them more than a third of the letters differ. Among equally similar names the first one is returned. */
const char *strata_nearest_name(const char *word, const char *const *names, size_t n_names);

STRATA_EXPORT_END

#endif
