/* SPDX-License-Identifier: Apache-2.0
 *
 * Teaches: classifying texts. A vocabulary is made from film reviews, and a model learns whether reviews are positive. It then
 * classifies the text of the second argument.
 *     sample_imdb FOLDER ["a text"]     the folder contains aclImdb_v1.tar.gz, or aclImdb unpacked, or imdb_train.csv and
 *     imdb_test.csv */
#include <stdio.h>
#include <strata/strata.h>
#include <strata/tokenizer.h>

enum { TOKENS = 250, VOCABULARY = 10000 };

int main(int argc, char **argv) {
    const char *folder = argc > 1 ? argv[1] : ".", *line = argc > 2 ? argv[2] : "what a wonderful film, I loved every minute";
    strata_device *device = NULL;
    strata_texts *reviews = NULL;
    strata_tokenizer *tokenizer = NULL;
    strata_dataset *train = NULL, *test = NULL, *one = NULL;
    strata_model *model = NULL;
    strata_metrics metrics = {0};
    strata_array prediction = {0};
    strata_error err = {0};
    strata_compile_options compile = {.optimizer = strata_adam_optimizer(0.001), .loss = "binary_crossentropy", .seed = 1};
    strata_fit_options fit = {.epochs = 5, .batch = 64, .seed = 1};

    strata_status status = strata_device_open(NULL, NULL, &device, &err);
    if (!status) status = strata_texts_imdb(folder, "train", &reviews, &err);
    if (!status)
        status = strata_tokenizer_train(reviews, &(strata_tokenizer_options){.vocabulary = VOCABULARY}, &tokenizer, &err);
    if (!status) status = strata_dataset_from_texts(reviews, tokenizer, TOKENS, &train, &err);
    if (!status) status = strata_dataset_imdb(folder, "test", tokenizer, TOKENS, &test, &err);
    if (!status) status = strata_model_create(STRATA_SHAPE(TOKENS), &model, &err);
    if (!status) status = strata_model_set_input_dtype(model, STRATA_DTYPE_I32, &err);
    if (!status) {
        strata_model_add_embedding(model, (strata_embedding_options){.vocabulary = VOCABULARY, .units = 16});
        strata_model_add_global_average_pool(model, (strata_global_average_pool_options){0});
        strata_model_add_dense(model, (strata_dense_options){.units = 16, .activation = "relu"});
        strata_model_add_dense(model, (strata_dense_options){.units = 1});
        status = strata_model_compile(model, device, &compile, &err);
    }
    if (!status) status = strata_model_fit(model, train, &fit, NULL, &err);
    if (!status) status = strata_model_evaluate(model, test, 0, &metrics, &err);
    if (!status) status = strata_model_set_tokenizer(model, tokenizer, &err); /* stores the vocabulary in the model's file */
    if (!status) status = strata_model_save(model, "imdb.strata", &err);
    if (!status) status = strata_dataset_from_text(line, tokenizer, TOKENS, &one, &err);
    if (!status) status = strata_model_predict(model, one, 0, &prediction, &err);

    if (status)
        fprintf(stderr, "%s\n", err.message);
    else
        printf("accuracy %.2f %% on %s; \"%s\" is kind with probability %.2f\n", 100 * metrics.accuracy,
               strata_device_get_info(device)->name, line, (double)*(float *)prediction.data);
    strata_array_finish(&prediction);
    strata_model_destroy(model);
    strata_dataset_destroy(train);
    strata_dataset_destroy(test);
    strata_dataset_destroy(one);
    strata_tokenizer_destroy(tokenizer);
    strata_texts_destroy(reviews);
    strata_device_close(device);
    return status ? 1 : 0;
}
