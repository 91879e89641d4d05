/* SPDX-License-Identifier: Apache-2.0
 *
 * Models for the user's own data, which depend on their shape. They are JSON in the format of model.json; --write-model writes
 * a model so that it can be edited. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "own.h"
#include "strata/text.h"

enum { FEW_ROWS = 2000 };

/* What the model must be able to process. */
typedef struct purpose {
    strata_preprocessing_kind kind;
    strata_shape element;
    /* How many different tokens there are, and how many an example has. 0: the data have no texts. */
    int64_t vocabulary, n_tokens;
    int64_t n_outputs, n_examples;
    /* The steps of a training with the default epochs and batch. */
    int64_t n_steps;
    /* The labels are numbers, not classes. */
    bool learns_numbers;
} purpose;

/* The data are a table with texts and other columns. The model has the inputs "numbers" and "text". */
static bool is_mixed(const purpose *p) {
    return p->kind == STRATA_PREPROCESSING_TABLE && p->vocabulary > 0;
}

/* The data are a table without texts. The model's input is called "numbers", since the last layer uses it, too (add_mlp). */
static bool is_wide(const purpose *p) {
    return p->kind == STRATA_PREPROCESSING_TABLE && p->vocabulary == 0;
}

static bool has_pictures(const purpose *p) {
    return p->element.rank == 3;
}

static void add_output(const purpose *p, strata_text *text) {
    strata_text_add(text, "{\"layer\":\"dense\",\"units\":%lld,\"name\":\"output\"}]", (long long)p->n_outputs);
}

/* ---- the models ---- */

/* With few features and few rows, strong dropout keeps a network from overfitting. With more features, strong dropout makes a
 * network of the same width worse. Measured by tests/bench/accuracy.py. */
static const char *dropout_of(const purpose *p) {
    enum { FEW_FEATURES = 32 };
    return p->n_examples < FEW_ROWS && strata_shape_elements(p->element) <= FEW_FEATURES ? "0.5" : "0.2";
}

/* For a table, the inputs of the last layer are the hidden layers' outputs and the columns themselves, as in wide and deep
 * models (Cheng et al. 2016), so that linear relations need not pass through layers with dropout. */
static void add_mlp(const purpose *p, strata_text *text) {
    const int64_t width = strata_shape_elements(p->element), units = width > 256 ? 128 : 64;
    if (p->element.rank > 1) strata_text_add(text, "{\"layer\":\"flatten\"},");
    for (int i = 0; i < 2; i++)
        strata_text_add(text,
                        "{\"layer\":\"dense\",\"units\":%lld,\"activation\":\"relu\"},{\"layer\":\"dropout\",\"rate\":%s%s},",
                        (long long)units, dropout_of(p), i && is_wide(p) ? ",\"name\":\"deep\"" : "");
    if (is_wide(p)) strata_text_add(text, "{\"layer\":\"concat\",\"inputs\":[\"deep\",\"numbers\"]},");
    add_output(p, text);
}

static int64_t smaller_side(const purpose *p) {
    return p->element.dims[0] < p->element.dims[1] ? p->element.dims[0] : p->element.dims[1];
}

static void add_cnn(const purpose *p, strata_text *text) {
    int64_t side = smaller_side(p), filters = 32;
    do {
        strata_text_add(
            text, "{\"layer\":\"conv2d\",\"filters\":%lld,\"kernel_size\":3,\"padding\":\"same\",\"activation\":\"relu\"},",
            (long long)filters);
        if (side >= 4) strata_text_add(text, "{\"layer\":\"max_pool2d\",\"size\":2},");
        side /= 2;
        if (filters < 64) filters *= 2;
    } while (side >= 7);
    strata_text_add(text,
                    "{\"layer\":\"flatten\"},{\"layer\":\"dropout\",\"rate\":0.3},"
                    "{\"layer\":\"dense\",\"units\":64,\"activation\":\"relu\"},");
    add_output(p, text);
}

static void add_block(strata_text *text, int filters, int stride) {
    strata_text_add(
        text,
        "{\"layer\":\"residual\",\"activation\":\"relu\",\"layers\":["
        "{\"layer\":\"conv2d\",\"filters\":%d,\"kernel_size\":3,\"stride\":%d,\"padding\":\"same\",\"no_bias\":true},"
        "{\"layer\":\"batch_norm\",\"momentum\":0.9,\"activation\":\"relu\"},"
        "{\"layer\":\"conv2d\",\"filters\":%d,\"kernel_size\":3,\"padding\":\"same\",\"no_bias\":true},"
        "{\"layer\":\"batch_norm\",\"momentum\":0.9}],\"shortcut\":["
        "{\"layer\":\"conv2d\",\"filters\":%d,\"kernel_size\":1,\"stride\":%d,\"no_bias\":true},"
        "{\"layer\":\"batch_norm\",\"momentum\":0.9}]},",
        filters, stride, filters, filters, stride);
}

static void add_resnet(const purpose *p, strata_text *text) {
    const int stride = smaller_side(p) >= 8 ? 2 : 1;
    strata_text_add(text,
                    "{\"layer\":\"conv2d\",\"filters\":32,\"kernel_size\":3,\"padding\":\"same\",\"no_bias\":true},"
                    "{\"layer\":\"batch_norm\",\"momentum\":0.9,\"activation\":\"relu\"},");
    add_block(text, 32, 1);
    add_block(text, 64, stride);
    add_block(text, 128, stride);
    strata_text_add(text, "{\"layer\":\"global_average_pool\"},");
    add_output(p, text);
}

static void add_embedding(const purpose *p, strata_text *text) {
    strata_text_add(text, "{\"layer\":\"embedding\",\"vocabulary\":%lld,\"units\":32,\"mask_zero\":true%s},",
                    (long long)p->vocabulary, is_mixed(p) ? ",\"inputs\":[\"text\"]" : "");
}

/* Averages the tokens' vectors to one vector, and appends the numbers of the other columns, if there are any. */
static void add_pooling(const purpose *p, const char *dropout, strata_text *text) {
    strata_text_add(text, "{\"layer\":\"global_average_pool\"},{\"layer\":\"dropout\",\"rate\":%s,\"name\":\"meaning\"},",
                    dropout);
    if (is_mixed(p))
        strata_text_add(text,
                        "{\"layer\":\"concat\",\"inputs\":[\"meaning\",\"numbers\"]},"
                        "{\"layer\":\"dense\",\"units\":64,\"activation\":\"relu\"},");
}

static void add_text(const purpose *p, strata_text *text) {
    add_embedding(p, text);
    add_pooling(p, "0.5", text);
    strata_text_add(text, "{\"layer\":\"dense\",\"units\":32,\"activation\":\"relu\"},");
    add_output(p, text);
}

static void add_attention(const purpose *p, strata_text *text) {
    add_embedding(p, text);
    strata_text_add(text,
                    "{\"layer\":\"residual\",\"layers\":[{\"layer\":\"layer_norm\"},"
                    "{\"layer\":\"multi_head_attention\",\"heads\":4}]},{\"layer\":\"layer_norm\"},");
    add_pooling(p, "0.3", text);
    add_output(p, text);
}

static bool has_numbers(const purpose *p) {
    return p->vocabulary == 0;
}
static bool has_texts(const purpose *p) {
    return p->vocabulary > 0;
}

static const struct {
    const char *name, *takes;
    bool (*fits)(const purpose *p);
    void (*add)(const purpose *p, strata_text *text);
} models[] = {{"mlp", "numbers or pictures", has_numbers, add_mlp},
              {"cnn", "pictures", has_pictures, add_cnn},
              {"resnet", "pictures", has_pictures, add_resnet},
              {"text", "texts", has_texts, add_text},
              {"attention", "texts", has_texts, add_attention}};
enum { N_MODELS = sizeof models / sizeof *models };

/* ---- choosing and writing the model ---- */

static const char *usual_model(const purpose *p) {
    return has_texts(p) ? "text" : has_pictures(p) ? "cnn" : "mlp";
}

static int unknown_model(const char *kind) {
    const char *words[N_MODELS];
    for (int i = 0; i < N_MODELS; i++) words[i] = models[i].name;
    const char *near = strata_nearest_name(kind, words, N_MODELS);
    return usage_error(
        "--model %s: there are mlp, cnn, resnet, text and attention%s%s%s. To train your own model: strata train MODEL.json "
        "--data DATA",
        kind, near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
}

static void write_shape(const char *key, strata_shape shape, strata_text *text) {
    strata_text_add(text, "\"%s\":[", key);
    for (int i = 0; i < shape.rank; i++) strata_text_add(text, "%s%lld", i ? "," : "", (long long)shape.dims[i]);
    strata_text_add(text, "],");
}

/* Writes learning rate and weight decay. For a table the learning rate falls along a cosine to a tenth, which converges in few
 * steps, and a strong weight decay reduces overfitting to few rows. Measured by tests/bench/accuracy.py. */
static void write_optimizer(const purpose *p, strata_text *text) {
    const char *decay = is_wide(p) && p->n_examples < FEW_ROWS ? "1" : "0.01";
    strata_text_add(text, "\"optimizer\":{\"name\":\"adamw\",\"learning_rate\":");
    if (is_wide(p))
        strata_text_add(text, "{\"schedule\":\"cosine\",\"initial\":%s,\"end\":0.1,\"steps\":%lld}",
                        p->learns_numbers ? "0.01" : "0.005", (long long)p->n_steps);
    else
        strata_text_add(text, has_texts(p) ? "0.002" : "0.001");
    strata_text_add(text, ",\"weight_decay\":%s},", decay);
}

static void write_model(const purpose *p, int kind, strata_text *text) {
    const char *loss = p->learns_numbers ? "mse" : "sparse_categorical_crossentropy";
    strata_text_add(text, "{");
    if (is_mixed(p) || is_wide(p)) {
        strata_text_add(text, "\"inputs\":[{");
        write_shape("shape", p->element, text);
        strata_text_add(text, "\"name\":\"numbers\"}");
        if (is_mixed(p)) {
            strata_text_add(text, ",{");
            write_shape("shape", STRATA_SHAPE(p->n_tokens), text);
            strata_text_add(text, "\"dtype\":\"i32\",\"name\":\"text\"}");
        }
        strata_text_add(text, "],\"outputs\":[{\"name\":\"output\",\"loss\":\"%s\"}],", loss);
    } else {
        write_shape("input", p->element, text);
        strata_text_add(text, "%s\"loss\":\"%s\",", has_texts(p) ? "\"input_dtype\":\"i32\"," : "", loss);
    }
    write_optimizer(p, text);
    strata_text_add(text, "\"layers\":[");
    models[kind].add(p, text);
    strata_text_add(text, "}");
}

int make_own_model(const char *kind, const strata_preprocessing *preprocessing, int64_t n, strata_model **out_model) {
    strata_error err = {0};
    strata_text text = {0};
    char *json = NULL;
    const int n_classes = strata_preprocessing_n_classes(preprocessing);
    int64_t epochs, batch;
    own_defaults(preprocessing, n, &epochs, &batch);
    const purpose p = {.kind = strata_preprocessing_get_kind(preprocessing),
                       .element = strata_preprocessing_element(preprocessing),
                       .vocabulary = strata_preprocessing_vocabulary(preprocessing),
                       .n_tokens = strata_preprocessing_n_tokens(preprocessing),
                       .n_outputs = n_classes ? n_classes : strata_preprocessing_n_labels(preprocessing),
                       .n_examples = n,
                       .n_steps = epochs * ((n + batch - 1) / batch),
                       .learns_numbers = !n_classes};
    int m = 0;
    if (!kind) kind = usual_model(&p);
    while (m < N_MODELS && strcmp(kind, models[m].name)) m++;
    if (m == N_MODELS) return unknown_model(kind);
    if (!models[m].fits(&p))
        return usage_error("--model %s needs %s; for these data use --model %s", kind, models[m].takes, usual_model(&p));
    write_model(&p, m, &text);
    strata_status status = strata_text_take(&text, &json, NULL, &err);
    if (!status) status = strata_model_from_json(json, strlen(json), "", out_model, &err);
    free(json);
    return status ? report(FAILING_DATA, status, &err) : EXIT_OK;
}

void own_defaults(const strata_preprocessing *preprocessing, int64_t n, int64_t *out_epochs, int64_t *out_batch) {
    const bool texts = strata_preprocessing_n_tokens(preprocessing) > 0;
    const bool pictures = strata_preprocessing_element(preprocessing).rank == 3;
    /* Numbers get fewer epochs, since a model soon overfits few rows with noise. */
    const bool numbers = !strata_preprocessing_n_classes(preprocessing);
    const int64_t steps_wanted = texts ? 450 : 2500, least = texts ? 3 : pictures ? 5 : 10;
    const int64_t most = texts ? 30 : pictures ? 40 : numbers ? 25 : 50;
    const int64_t batch = n < 2000 ? 16 : n < 20000 ? 32 : 128, steps = (n + batch - 1) / batch, epochs = steps_wanted / steps;
    *out_batch = batch;
    *out_epochs = epochs < least ? least : epochs > most ? most : epochs;
}
