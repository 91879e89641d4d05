/* SPDX-License-Identifier: Apache-2.0
 *
 * Teaches: a classifier of the texts in a CSV, with any names of columns.
 *     sample_fake_news TRAIN.csv TEST.csv [TEXT_COLUMN LABEL_COLUMN]     the default columns are tweet and label */
#include <stdio.h>
#include <strata/strata.h>
#include <strata/tokenizer.h>

enum { TOKENS = 64, VOCABULARY = 10000, MOST_CLASSES = 2 };

/* The words of the label are the classes, sorted by bytes. A class may be missing in the test file, so that file uses the
 * classes of `like`. */
static strata_status read_texts(const char *path, const char *text, const char *label, const strata_texts *like,
                                strata_texts **out_texts, strata_error *err) {
    const char *classes[MOST_CLASSES];
    strata_csv_options opts = {.features = &text, .n_features = 1, .label = label, .classes = classes};
    while (like && opts.n_classes < MOST_CLASSES && opts.n_classes < strata_texts_n_classes(like)) {
        classes[opts.n_classes] = strata_texts_class_name(like, opts.n_classes);
        opts.n_classes++;
    }
    return strata_texts_csv(path, &opts, out_texts, err);
}

static strata_status add_layers(strata_model *model, strata_error *err) {
    strata_model_add_embedding(model, (strata_embedding_options){.vocabulary = VOCABULARY, .units = 32});
    strata_model_add_dropout(model, (strata_dropout_options){.rate = 0.3});
    strata_model_add_conv1d(model, (strata_conv1d_options){.filters = 64, .kernel_size = 3, .activation = "relu"});
    strata_model_add_global_max_pool(model, (strata_global_max_pool_options){0});
    strata_model_add_dropout(model, (strata_dropout_options){.rate = 0.5});
    strata_model_add_dense(model, (strata_dense_options){.units = 2});
    return strata_model_set_input_dtype(model, STRATA_DTYPE_I32, err);
}

int main(int argc, char **argv) {
    if (argc != 3 && argc != 5) {
        fprintf(stderr, "usage: %s TRAIN.csv TEST.csv [TEXT_COLUMN LABEL_COLUMN]\n", argv[0]);
        return 2;
    }
    const char *text = argc > 3 ? argv[3] : "tweet", *label = argc > 3 ? argv[4] : "label";
    strata_device *device = NULL;
    strata_texts *train_texts = NULL, *test_texts = NULL;
    strata_tokenizer *tokenizer = NULL;
    strata_dataset *train = NULL, *test = NULL;
    strata_model *model = NULL;
    strata_metrics metrics = {0};
    strata_error err = {0};
    strata_compile_options compile = {.optimizer = strata_adam_optimizer(0.001), .seed = 1};
    strata_fit_options fit = {.epochs = 8, .batch = 64, .seed = 1};

    strata_status status = strata_device_open(NULL, NULL, &device, &err);
    if (!status) status = read_texts(argv[1], text, label, NULL, &train_texts, &err);
    if (!status) status = read_texts(argv[2], text, label, train_texts, &test_texts, &err);
    if (!status)
        status = strata_tokenizer_train(train_texts, &(strata_tokenizer_options){.vocabulary = VOCABULARY}, &tokenizer, &err);
    if (!status) status = strata_dataset_from_texts(train_texts, tokenizer, TOKENS, &train, &err);
    if (!status) status = strata_dataset_from_texts(test_texts, tokenizer, TOKENS, &test, &err);
    if (!status) status = strata_model_create(STRATA_SHAPE(TOKENS), &model, &err);
    if (!status) status = add_layers(model, &err);
    if (!status) status = strata_model_compile(model, device, &compile, &err);
    if (!status) status = strata_model_fit(model, train, &fit, NULL, &err);
    if (!status) status = strata_model_evaluate(model, test, 0, &metrics, &err);
    if (!status) status = strata_model_set_tokenizer(model, tokenizer, &err);
    if (!status) status = strata_model_save(model, "fake_news.strata", &err);

    if (status)
        fprintf(stderr, "%s\n", err.message);
    else
        printf("accuracy %.2f %% on %lld texts\n", 100 * metrics.accuracy, (long long)metrics.examples);
    strata_model_destroy(model);
    strata_dataset_destroy(train);
    strata_dataset_destroy(test);
    strata_tokenizer_destroy(tokenizer);
    strata_texts_destroy(train_texts);
    strata_texts_destroy(test_texts);
    strata_device_close(device);
    return status ? 1 : 0;
}
