/* SPDX-License-Identifier: Apache-2.0
 *
 * Documents: one block of text, where each begins in it, and a label for each. Users see strata/tokenizer.h. */
#ifndef STRATA_CORE_DATA_TEXTS_H
#define STRATA_CORE_DATA_TEXTS_H

#include "strata/tokenizer.h"

struct strata_texts {
    /* documents, each with a NUL. */
    char *bytes;
    size_t n_bytes, bytes_capacity;
    struct strata_document {
        /* In bytes, the NUL not counted. */
        size_t first, length;
        int32_t label;
        /* Of the source where it begins, from 1; 0: the source has no lines. */
        int64_t line;
    } * documents;
    int64_t n, capacity;
    bool has_labels;
    char **class_names;
    int n_classes;
    char *source;
};

/* Empty; `source` and the names are copied; n_classes 0: no labels. */
STRATA_MUST_USE strata_status strata_texts_create(const char *source, const char *const *class_names, int n_classes,
                                                  strata_texts **out_texts, strata_error *err);
/* Adds a document made of parts joined by a space; line: see above. */
STRATA_MUST_USE strata_status strata_texts_add(strata_texts *texts, const char *const *parts, int n_parts, int label,
                                               int64_t line, strata_error *err);

#endif
