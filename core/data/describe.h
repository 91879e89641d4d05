/* SPDX-License-Identifier: Apache-2.0
 *
 * A dataset as lines of text, which workers compare before they train together. */
#ifndef STRATA_CORE_DATA_DESCRIBE_H
#define STRATA_CORE_DATA_DESCRIBE_H

#include "core/base/text.h"
#include "strata/dataset.h"

/* Before a value that is the hash of several examples. A message says that these examples differ, without the hash. */
#define STRATA_HASH_MARK "#"

/* Adds a line with the text's name and value, "name\tvalue\n". Tabs and newlines in them become spaces. */
void strata_text_add_term(strata_text *text, const char *name, const char *format, ...) STRATA_PRINTF(3, 4);

/* Adds lines that describe the dataset, which is called `what` in them ("training data"): its stages, the number of examples,
 * the names of the classes and, with `rows`, the values of some examples and hashes of all examples that are in memory (of
 * more than 256 MiB: of blocks at equal distances). Two datasets with equal lines have equal examples, as far as they are in
 * memory. With rows, elements of epoch 0 are computed, if the stages can compute them independently of each other. Fails with
 * the status of these stages. */
STRATA_MUST_USE strata_status strata_dataset_describe(const strata_dataset *dataset, const char *what, bool rows, uint64_t seed,
                                                      strata_text *text, strata_error *err);

#endif
