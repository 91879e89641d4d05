/* SPDX-License-Identifier: Apache-2.0
 *
 * A dataset as lines of text, the *terms*. Workers compare them before they train together, and a training compares them with
 * those in the checkpoint from which it continues. */
#ifndef STRATA_CORE_DATA_DESCRIBE_H
#define STRATA_CORE_DATA_DESCRIBE_H

#include "core/base/text.h"
#include "strata/dataset.h"

/* Before a value that is the hash of several examples. A message says that these examples differ, without the hash. */
#define STRATA_HASH_MARK "#"

/* Adds a line with the text's name and value, "name\tvalue\n". Tabs and newlines in them become spaces. */
void strata_text_add_term(strata_text *text, const char *name, const char *format, ...) STRATA_PRINTF(3, 4);

typedef struct strata_describe_options {
    /* What the dataset is called in the lines, for example "training data". */
    const char *what;
    /* Describe the pipeline: its stages, the parts of an element and, with `rows`, the values of some elements of epoch 0,
     * which are computed with `seed` if the stages can compute elements independently of each other. */
    bool pipeline;
    uint64_t seed;
    /* Add hashes of all examples that are in memory, of each array in up to n_blocks blocks. Of an array with more than
     * most_bytes bytes the first rows of each block are hashed, at least one. */
    bool rows;
    int n_blocks;
    int64_t most_bytes;
} strata_describe_options;

/* Adds lines that describe the dataset: the names of the classes, and what the options choose. Two datasets with equal lines
 * have equal examples, as far as they are in memory. Fails with the status of the stages that compute elements. */
STRATA_MUST_USE strata_status strata_dataset_describe(const strata_dataset *dataset, const strata_describe_options *opts,
                                                      strata_text *text, strata_error *err);

#endif
