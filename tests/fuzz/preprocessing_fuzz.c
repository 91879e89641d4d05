/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as JSON of a preprocessing, and as a table: what is found in it fits all of its own rows, and comes back from JSON
 * as it was. */
#include <stdlib.h>
#include <string.h>

#include "strata/preprocessing.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(strata_status status, const strata_error *err) {
    if (status && (status != err->status || !err->message[0])) abort();
}

static void try_json(const uint8_t *data, size_t size) {
    strata_preprocessing *p = NULL, *again = NULL;
    strata_error err = {0};
    char *text = NULL, *second = NULL;
    strata_status status = strata_preprocessing_from_json((const char *)data, size, "input", &p, &err);
    check(status, &err);
    if (status) return;
    if (!strata_preprocessing_to_json(p, &text, &err)) {
        check(strata_preprocessing_from_json(text, strlen(text), "again", &again, &err), &err);
        if (!again || strata_preprocessing_to_json(again, &second, &err) || strcmp(text, second)) abort();
    }
    free(text);
    free(second);
    strata_preprocessing_destroy(p);
    strata_preprocessing_destroy(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    strata_csv *csv = NULL;
    strata_preprocessing *p = NULL;
    strata_dataset *train = NULL, *test = NULL, *all = NULL;
    strata_error err = {0};
    try_json(data, size);
    strata_status status = strata_csv_parse_table("input", data, size, 0, NULL, &csv, &err);
    check(status, &err);
    if (!status) status = strata_preprocessing_from_csv(csv, NULL, &p, &err);
    check(status, &err);
    if (!status) status = strata_preprocessing_split_csv(p, csv, 0.3, 1, &train, &test, &err);
    check(status, &err);
    if (!status) {
        status = strata_preprocessing_apply_csv(p, csv, NULL, &all, &err);
        check(status, &err);
        if (!status && strata_dataset_size(all) != strata_dataset_size(train) + strata_dataset_size(test)) abort();
    }
    strata_dataset_destroy(all);
    strata_dataset_destroy(train);
    strata_dataset_destroy(test);
    strata_preprocessing_destroy(p);
    strata_csv_destroy(csv);
    return 0;
}
