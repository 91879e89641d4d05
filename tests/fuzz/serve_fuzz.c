/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as the body of a request to strata serve: an error that says what is wrong, or examples of the model's shape. The
 * first byte chooses what the model takes: rows of a table (r), texts (t), or numbers (any other). http_fuzz.c has the heads of
 * requests. */
#include <stdlib.h>
#include <string.h>

#include "samples/strata/serve_inputs.c"
#include "strata/preprocessing.h"
#include "strata/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Pictures have a target of their own. */
strata_status picture_read(const char *path, strata_shape element, bool invert, strata_array *out, strata_error *err) {
    (void)path, (void)element, (void)invert, (void)out;
    return strata_fail(err, STRATA_DATA, "no pictures here");
}

unknown_words describe_unknown(const strata_preprocessing_report *report) {
    unknown_words words = {""};
    snprintf(words.text, sizeof words.text, "%s", report->word);
    return words;
}

static void table_of(served_model *served) {
    static const char table[] =
        "a,kind,when,label\n1,x,2024-01-01,no\n2.5,y,2024-02-03,yes\n,\"p, q\",2024-03-01,no\n4,x,2024-01-05,yes\n"
        "1,y,2023-01-01,no\n2,x,2024-01-01,yes\n3,y,,no\n7,x,2024-07-01,yes\n";
    strata_csv *csv = NULL;
    strata_dataset *train = NULL, *test = NULL;
    strata_error err = {0};
    if (strata_csv_parse_table("table", table, sizeof table - 1, ',', NULL, &csv, &err) ||
        strata_preprocessing_from_csv(csv, NULL, &served->preprocessing, &err) ||
        strata_preprocessing_split_csv(served->preprocessing, csv, 0.3, 1, &train, &test, &err))
        abort();
    served->element = strata_dataset_element_shape(train);
    strata_dataset_destroy(train);
    strata_dataset_destroy(test);
    strata_csv_destroy(csv);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    served_model served = {.element = STRATA_SHAPE(2, 3), .dtype = STRATA_DTYPE_F32};
    strata_array out = {0};
    strata_text warnings = {0};
    strata_error err = {0};
    const char kind = size ? (char)data[0] : 'n';
    static const char tokens[] = "{\"kind\":\"subwords\",\"characters\":[\" \",\"a\",\"b\"],\"merges\":[3,4,2,5,3,3]}";
    if (kind == 'r') table_of(&served);
    if (kind == 't') {
        served.element = STRATA_SHAPE(8);
        served.dtype = STRATA_DTYPE_I32;
        if (strata_tokenizer_from_json(tokens, sizeof tokens - 1, "tokens", &served.tokenizer, &err)) abort();
    }
    const strata_status status =
        read_inputs(&served, size ? (const char *)data + 1 : "", size ? size - 1 : 0, false, &out, &warnings, &err);
    if (status && (status != err.status || !err.message[0] || out.data)) abort();
    if (status && status != STRATA_DATA && status != STRATA_INVALID && status != STRATA_OUT_OF_MEMORY) abort();
    if (!status && (out.shape.rank != served.element.rank + 1 || out.shape.dims[0] < 1 || out.dtype != served.dtype)) abort();
    for (int d = 0; !status && d < served.element.rank; d++)
        if (out.shape.dims[d + 1] != served.element.dims[d]) abort();
    strata_array_finish(&out);
    strata_text_finish(&warnings);
    strata_preprocessing_destroy(served.preprocessing);
    strata_tokenizer_destroy(served.tokenizer);
    return 0;
}
