/* SPDX-License-Identifier: Apache-2.0
 *
 * Documents in a pipeline: shuffled, tokenized by several threads, and padded to the longest one of a batch. */
#include <criterion/criterion.h>
#include <string.h>

#include "strata/tokenizer.h"
#include "tests/support/folder.h"

TestSuite(text_source, .init = test_folder_make, .fini = test_folder_remove);

static strata_error err;
#define OK(call) cr_assert_eq((call), STRATA_OK, "%s", err.message)

Test(text_source, documents_are_tokenized_and_padded) {
    const char text[] = "text,label\na b,x\n\"c a, b\",y\nb,x\n";
    strata_texts *texts = NULL;
    strata_tokenizer *tokenizer = NULL;
    strata_dataset *data = NULL;
    strata_iterator *it = NULL;
    strata_element batch;
    bool more;
    OK(strata_texts_csv(test_file("t.csv", text, sizeof text - 1), &(strata_csv_options){.label = "label"}, &texts, &err));
    OK(strata_tokenizer_train(texts, NULL, &tokenizer, &err));
    int32_t a, b, c;
    OK(strata_tokenizer_encode(tokenizer, "a", 1, 1, &a, NULL, &err));
    OK(strata_tokenizer_encode(tokenizer, "b", 1, 1, &b, NULL, &err));
    OK(strata_tokenizer_encode(tokenizer, "c", 1, 1, &c, NULL, &err));
    OK(strata_dataset_take_texts(&texts, &data, &err));
    cr_assert(!texts && strata_dataset_size(data) == 3 && strata_dataset_n_classes(data) == 2);
    strata_tokenize options = {.tokenizer = tokenizer};
    strata_element_spec spec = {.n_parts = 2,
                                .parts = {{STRATA_DTYPE_I32, STRATA_SHAPE(-1)}, {STRATA_DTYPE_I32, STRATA_SHAPE()}}};
    OK(strata_dataset_map(&data, strata_map_tokenize, &options, &(strata_map_options){.threads = 2, .spec = &spec}, &err));
    OK(strata_dataset_padded_batch(&data, 2, false, NULL, NULL, &err));
    OK(strata_iterator_create(data, 0, 0, 0, &it, &err));
    OK(strata_iterator_next(it, &batch, &more, &err));
    const int32_t wanted[] = {a, b, STRATA_TOKEN_PAD, c, a, b}, *labels = batch.parts[1].data;
    cr_assert(more && strata_shape_equal(batch.parts[0].shape, STRATA_SHAPE(2, 3)) &&
              !memcmp(batch.parts[0].data, wanted, sizeof wanted));
    cr_assert(labels[0] == 0 && labels[1] == 1);
    strata_element_finish(&batch);
    OK(strata_iterator_next(it, &batch, &more, &err));
    cr_assert(more && strata_shape_equal(batch.parts[0].shape, STRATA_SHAPE(1, 1)) && ((int32_t *)batch.parts[0].data)[0] == b);
    strata_element_finish(&batch);
    strata_iterator_destroy(it);
    strata_dataset_destroy(data);
    strata_tokenizer_destroy(tokenizer);
}
