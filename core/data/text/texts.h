/* SPDX-License-Identifier: Apache-2.0
 *
 * Documents with labels. The texts of all documents are in one block of memory. The public header is strata/tokenizer.h. */
#ifndef STRATA_CORE_DATA_TEXTS_H
#define STRATA_CORE_DATA_TEXTS_H

#include "core/base/alloc.h"
#include "strata/text.h"
#include "strata/tokenizer.h"

STRATA_OWNER(strata_texts)

struct strata_texts {
    /* The texts of all documents, each with a NUL after it. */
    strata_text all;
    struct strata_document {
        /* The text is all.bytes[first .. first + length). */
        size_t first, length;
        int32_t label;
        /* The line of the source in which the document begins, from 1; 0: the source is not divided into lines. */
        int64_t line;
    } * documents;
    int64_t n, capacity;
    bool has_labels;
    char **class_names;
    int n_classes;
    char *source;
};

/* Makes an empty collection. `source` and the names are copied. n_classes 0: the documents have no labels. */
STRATA_MUST_USE strata_status strata_texts_create(const char *source, const char *const *class_names, int n_classes,
                                                  strata_texts **out_texts, strata_error *err);
/* Adds a document that consists of the parts, with a space between each two. line: see strata_document. */
STRATA_MUST_USE strata_status strata_texts_add(strata_texts *texts, const char *const *parts, int n_parts, int label,
                                               int64_t line, strata_error *err);

#endif
