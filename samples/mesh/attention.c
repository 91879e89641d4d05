/* SPDX-License-Identifier: Apache-2.0
 *
 * Teaches: dividing the examples and the parameters of a model. Two pairs of devices have half of each batch; in a pair each
 * device has half of the heads, units and rows of the vocabulary.
 *     sample_attention FOLDER [A,B,C,D]     the folder contains the reviews of imdb; each device is "host" by default */
#include <stdio.h>
#include <strata/strata.h>
#include <strata/tokenizer.h>
#include <string.h>

enum { TOKENS = 64, VOCABULARY = 10000, DEVICES = 4 };

static strata_status make_model(strata_model **out_model, strata_error *err) {
    STRATA_TRY(strata_model_create(STRATA_SHAPE(TOKENS), out_model, err));
    STRATA_TRY(strata_model_set_input_dtype(*out_model, STRATA_DTYPE_I32, err));
    strata_model_add_embedding(*out_model, (strata_embedding_options){.vocabulary = VOCABULARY, .units = 32});
    strata_model_add_multi_head_attention(*out_model, (strata_multi_head_attention_options){.heads = 4});
    strata_model_add_global_average_pool(*out_model, (strata_global_average_pool_options){0});
    strata_model_add_dense(*out_model, (strata_dense_options){.units = 64, .activation = "relu"});
    strata_model_add_dense(*out_model, (strata_dense_options){.units = 1});
    return STRATA_OK;
}

int main(int argc, char **argv) {
    const char *folder = argc > 1 ? argv[1] : ".", *devices[DEVICES] = {"host", "host", "host", "host"};
    char *rest = argc > 2 ? argv[2] : NULL;
    for (int i = 0; rest && i < DEVICES; i++) devices[i] = strsep(&rest, ",");
    /* Parameters without a rule, such as the biases of what is added up, are whole on each device. */
    const strata_strategy_options mesh = {
        .devices = devices,
        .n_devices = DEVICES,
        .mesh = "data=2,tensor=2",
        .layout =
            "{\"embeddings\": [\"tensor\", null], \"(query|key|value|dense/)_?kernel\": [null, \"tensor\"],"
            " \"(query|key|value|dense/)_?bias\": [\"tensor\"], \"(output_|dense_1/)kernel\": [\"tensor\", null]}"};
    strata_strategy *strategy = NULL;
    strata_texts *reviews = NULL;
    strata_tokenizer *tokenizer = NULL;
    strata_dataset *train = NULL, *test = NULL;
    strata_model *model = NULL;
    strata_metrics metrics = {0};
    strata_error err = {0};
    strata_status status = strata_strategy_create("model_parallel", &mesh, &strategy, &err);
    if (!status) status = strata_texts_imdb(folder, "train", &reviews, &err);
    if (!status)
        status = strata_tokenizer_train(reviews, &(strata_tokenizer_options){.vocabulary = VOCABULARY}, &tokenizer, &err);
    if (!status) status = strata_dataset_from_texts(reviews, tokenizer, TOKENS, &train, &err);
    if (!status) status = strata_dataset_imdb(folder, "test", tokenizer, TOKENS, &test, &err);
    if (!status) status = make_model(&model, &err);
    const strata_compile_options compile = {.strategy = strategy, .loss = "binary_crossentropy", .seed = 1};
    if (!status) status = strata_model_compile(model, NULL, &compile, &err);
    if (!status) status = strata_model_fit(model, train, &(strata_fit_options){.epochs = 2, .batch = 64}, NULL, &err);
    if (!status) status = strata_model_evaluate(model, test, 0, &metrics, &err);
    fprintf(status ? stderr : stdout, "%s\n", status ? err.message : strata_strategy_choice(strategy));
    if (!status) printf("accuracy %.2f %%\n", 100 * metrics.accuracy);
    strata_strategy_destroy(strategy); /* also destroys the model */
    strata_dataset_destroy(train), strata_dataset_destroy(test);
    strata_tokenizer_destroy(tokenizer), strata_texts_destroy(reviews);
    return status ? 1 : 0;
}
