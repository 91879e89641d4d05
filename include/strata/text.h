/* SPDX-License-Identifier: Apache-2.0
 *
 * Text that grows, and a search for the known word that is most similar to a mistyped one. Numbers in formats are written with
 * a decimal point, whatever the locale of the program is. */
#ifndef STRATA_TEXT_H
#define STRATA_TEXT_H

#include <stdbool.h>

#include "strata/status.h"

#ifdef __cplusplus
extern "C" {
#endif

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

STRATA_API void strata_text_add(strata_text *text, const char *format, ...) STRATA_PRINTF(2, 3);
STRATA_API void strata_text_add_bytes(strata_text *text, const void *bytes, size_t n_bytes);

/* Gives the string to the caller, who frees it, and leaves `text` zeroed. n_bytes (without the NUL) may be NULL.
 * Fails: OUT_OF_MEMORY when any of the additions did. */
STRATA_API STRATA_MUST_USE strata_status strata_text_take(strata_text *text, char **out_string, size_t *out_n_bytes,
                                                          strata_error *err);
STRATA_API void strata_text_finish(strata_text *text);

/* The one of `names` that is most like `word` (letters swapped, left out, added or changed; case is ignored), or NULL
 * if in all of them more than a third of the letters differ. Among equally similar names the first one is returned. */
STRATA_API const char *strata_nearest_name(const char *word, const char *const *names, size_t n_names);

#ifdef __cplusplus
}
#endif
#endif
