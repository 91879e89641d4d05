/* SPDX-License-Identifier: Apache-2.0
 *
 * Layers whose values the backward pass computes again (strata_compile_options.recompute): training has the same bits, and the
 * program of a step needs less memory. */
#include <stdio.h>
#include <string.h>

#include "core/model/model.h"
#include "model_case.h"
#include "strata/summary.h"
#include "tests/support/check.h"
#include "tests/support/folder.h"

static strata_error err;

TestSuite(recompute, .init = test_folder_make, .fini = test_folder_remove);

enum { N = 40, FEATURES = 64, TOKENS = 23, LENGTH = 6, BATCH = 16 };

#define MODEL(input, layers)                                                      \
    "{" input ", \"layers\": [" layers                                            \
    ", {\"layer\": \"flatten\"}, {\"layer\": \"dense\", \"units\": 3, \"name\": " \
    "\"last\"}], \"loss\": \"sparse_categorical_crossentropy\"}"
#define BLOCK(name, layers) "{\"layer\": \"residual\", \"name\": \"" name "\", \"layers\": [" layers "]}"
#define FLOATS              "\"input\": [64]"
#define RESHAPED            "{\"layer\": \"reshape\", \"shape\": [8, 8]}"
#define GELU                "{\"layer\": \"dense\", \"units\": 256, \"activation\": \"gelu\", \"kernel_l2\": 0.01}"
#define FEED(units)                                                                                  \
    "{\"layer\": \"layer_norm\"}, {\"layer\": \"dense\", \"units\": 32, \"activation\": \"gelu\"}, " \
    "{\"layer\": \"dropout\", \"rate\": 0.25}, {\"layer\": \"dense\", \"units\": " units "}"
#define ATTEND "{\"layer\": \"layer_norm\"}, {\"layer\": \"multi_head_attention\", \"heads\": 2, \"causal\": true}"
#define CONVOLVE                                                                                                      \
    "{\"layer\": \"conv2d\", \"filters\": 4, \"kernel_size\": 3, \"padding\": \"same\"}, {\"layer\": "                \
    "\"batch_norm\"}, {\"layer\": \"activation\", \"function\": \"relu\"}, {\"layer\": \"dropout\", \"rate\": 0.2}, " \
    "{\"layer\": \"conv2d\", \"filters\": 4, \"kernel_size\": 3, \"padding\": \"same\"}"
#define LSTM "{\"layer\": \"lstm\", \"units\": 8, \"return_sequences\": true}"

static const char denses[] =
    MODEL(FLOATS, BLOCK("a", GELU ", {\"layer\": \"dense\", \"units\": 64}") ", " BLOCK(
                      "b", GELU ", {\"layer\": \"dense\", \"units\": 64}") ", " BLOCK("c", GELU ", {\"layer\": \"dense\", "
                                                                                                "\"units\": 64}"));
static const char images[] =
    MODEL(FLOATS, "{\"layer\": \"reshape\", \"shape\": [4, 4, 4]}, " BLOCK("a", CONVOLVE) ", " BLOCK("b", CONVOLVE));
static const char series[] = MODEL(FLOATS, RESHAPED ", " BLOCK("a", LSTM) ", " BLOCK("b", LSTM) ", " BLOCK("c", LSTM));
static const char attention[] = MODEL(
    FLOATS, RESHAPED ", " BLOCK("a", ATTEND) ", " BLOCK("b", FEED("8")) ", " BLOCK("c", ATTEND) ", " BLOCK("d", FEED("8")));
static const char sparse[] = MODEL("\"input\": [6], \"input_dtype\": \"i32\"",
                                   "{\"layer\": \"embedding\", \"name\": \"table\", \"vocabulary\": 23, "
                                   "\"units\": 8, \"sparse\": true}, " BLOCK("a", FEED("8")));
/* A shared layer, and two outputs. */
static const char shared[] =
    "{\"inputs\": [{\"name\": \"x\", \"shape\": [64]}], \"layers\": [{\"layer\": \"residual\", \"name\": \"a\", \"inputs\": "
    "[\"x\"], \"layers\": [" GELU
    ", {\"layer\": \"batch_norm\"}, {\"layer\": \"dense\", \"units\": 64}]},"
    "{\"call\": \"a\", \"name\": \"again\", \"inputs\": [\"a\"]},"
    "{\"layer\": \"dense\", \"units\": 3, \"name\": \"one\", \"inputs\": [\"a\"]},"
    "{\"layer\": \"dense\", \"units\": 3, \"name\": \"two\", \"activation\": \"tanh\", \"inputs\": [\"again\"]}],"
    "\"outputs\": [{\"name\": \"one\", \"loss\": \"sparse_categorical_crossentropy\"},"
    "{\"name\": \"two\", \"loss\": \"sparse_categorical_crossentropy\", \"weight\": 0.5}]}";

typedef struct trained {
    const char *json, *recompute;
    bool tokens, two;
    strata_dtype precision;
    int64_t accumulate;
    const char *freeze;
    int64_t bytes;
    double loss;
    const char *sha;
} trained;

static strata_model *compile(strata_device *device, const trained *t) {
    strata_model *model = NULL;
    const strata_compile_options opts = {
        .optimizer = {.name = "adam", .learning_rate = 0.01, .gradient_accumulation_steps = t->accumulate},
        .precision = t->precision,
        .seed = 3,
        .recompute = t->recompute};
    OK(strata_model_from_json(t->json, strlen(t->json), "the test", &model, &err));
    if (t->freeze) OK(strata_model_freeze(model, t->freeze, &err));
    OK(strata_model_compile(model, device, &opts, &err));
    return model;
}

/* Examples of three classes. The columns borrow the arrays. */
static strata_dataset *make_data(const trained *t, strata_array *x, strata_array *y) {
    strata_dataset *data = NULL;
    if (t->tokens) {
        OK(strata_array_create(STRATA_DTYPE_I32, STRATA_SHAPE(N, LENGTH), x, &err));
        for (int i = 0; i < N * LENGTH; i++) ((int32_t *)x->data)[i] = i * i % TOKENS;
    } else {
        *x = strata_test_random(STRATA_DTYPE_F32, STRATA_SHAPE(N, FEATURES), -1, 1, 5);
    }
    OK(strata_array_create(STRATA_DTYPE_I32, STRATA_SHAPE(N), y, &err));
    for (int i = 0; i < N; i++) ((int32_t *)y->data)[i] = i * 7 % 3;
    OK(strata_dataset_from_columns((strata_data_column[]){{"x", x, 0}}, 1,
                                   (strata_data_column[]){{t->two ? "one" : "y", y, 0}, {"two", y, 0}}, 1 + t->two, &data,
                                   &err));
    return data;
}

/* Trains for two epochs, whose last batch is smaller. */
static void train(strata_device *device, trained *t) {
    strata_array x, y;
    strata_dataset *data = make_data(t, &x, &y);
    strata_model *model = compile(device, t);
    strata_model_summary summary;
    strata_history history = {0};
    OK(strata_model_summarize(model, BATCH, &summary, &err));
    t->bytes = summary.step_memory_bytes;
    strata_model_summary_finish(&summary);
    OK(strata_model_fit(model, data, &(strata_fit_options){.epochs = 2, .batch = BATCH, .seed = 5}, &history, &err));
    t->loss = history.epochs[1].loss;
    t->sha = case_sha(model);
    strata_history_finish(&history);
    strata_model_destroy(model);
    strata_dataset_destroy(data);
    strata_array_finish(&x);
    strata_array_finish(&y);
}

/* Trains with these layers, and without; returns the bytes of the step that are saved. */
static int64_t expect_same_bits(strata_device *device, trained t, const char *layers) {
    trained kept = t, again = t;
    again.recompute = layers;
    train(device, &kept);
    train(device, &again);
    cr_expect_str_eq(again.sha, kept.sha, "%s of %s", layers, t.json);
    cr_expect_eq(again.loss, kept.loss, "%s: %.9g, not %.9g", layers, again.loss, kept.loss);
    return kept.bytes - again.bytes;
}

TEST_ON_HOST(recompute, changes_no_bits_and_saves_memory) {
    static const struct {
        trained t;
        const char *layers;
    } cases[] = {{{.json = denses}, "a,b"},
                 {{.json = denses, .accumulate = 3}, "a,b,c"},
                 {{.json = images}, "a,b"},
                 {{.json = series}, "a,b,c"},
                 {{.json = attention}, "a,b,c,d"},
                 {{.json = attention, .precision = STRATA_DTYPE_BF16}, "a,b,c"},
                 {{.json = sparse, .tokens = true}, "table,a"},
                 {{.json = shared, .two = true}, "a"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int64_t saved = expect_same_bits(device, cases[i].t, cases[i].layers);
        cr_expect_gt(saved, 0, "%s of %s: %lld", cases[i].layers, cases[i].t.json, (long long)saved);
    }
}

TEST_ON_DEVICES(recompute, has_the_bits_of_attention_on) {
    cr_expect_gt(expect_same_bits(device, (trained){.json = attention}, "a,b,c"), 0);
}

TEST_ON_HOST(recompute, has_the_bits_of_a_scaled_loss_and_of_frozen_layers) {
    expect_same_bits(device, (trained){.json = attention, .precision = STRATA_DTYPE_F16}, "a,b,d");
    expect_same_bits(device, (trained){.json = images, .precision = STRATA_DTYPE_F16}, "a");
    cr_expect_gt(expect_same_bits(device, (trained){.json = denses, .freeze = "b"}, "b,c"), 0);
    expect_same_bits(device, (trained){.json = denses}, "a/dense,b/dense_1");
    expect_same_bits(device, (trained){.json = denses}, "a,last,a/dense");
}

TEST_ON_HOST(recompute, names_must_be_layers_and_auto_takes_bytes) {
    strata_model *model = NULL;
    OK(strata_model_from_json(denses, strlen(denses), "the test", &model, &err));
    static const struct {
        const char *text, *message;
    } wrong[] = {{"a,lst", "recompute: there is no layer \"lst\"; did you mean \"last\"?"},
                 {"a,,b", "recompute: there is no layer \"\""},
                 {"auto:", "auto:512M"},
                 {"auto:5X", "auto:512M"},
                 {"auto:5MB", "auto:512M"},
                 {"auto:-1", "auto:512M"},
                 {"auto:9223372036854775807G", "auto:512M"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        FAILS(strata_model_compile(model, device, &(strata_compile_options){.recompute = wrong[i].text}, &err), STRATA_INVALID,
              wrong[i].message);
    OK(strata_model_compile(model, device, &(strata_compile_options){.recompute = "auto:1G"}, &err));
    strata_model_destroy(model);
}

/* A checkpoint of a training that keeps values is continued by one that does not, and the other way round. */
TEST_ON_HOST(recompute, a_checkpoint_does_not_depend_on_it) {
    const trained kept = {.json = images}, again = {.json = images, .recompute = "a,b"};
    const char *sha[2], *path = test_path("half.strata");
    strata_array x, y;
    strata_dataset *data = make_data(&kept, &x, &y);
    for (int i = 0; i < 2; i++) {
        strata_model *first = compile(device, i ? &again : &kept), *second = compile(device, i ? &kept : &again);
        int epochs = 0;
        OK(strata_model_fit(first, data, &(strata_fit_options){.epochs = 1, .batch = BATCH, .seed = 5}, NULL, &err));
        OK(strata_model_save_checkpoint(first, 1, path, &err));
        OK(strata_model_load_checkpoint(second, path, &epochs, &err));
        OK(strata_model_fit(second, data, &(strata_fit_options){.first_epoch = 1, .epochs = 2, .batch = BATCH, .seed = 5}, NULL,
                            &err));
        sha[i] = case_sha(second);
        strata_model_destroy(first);
        strata_model_destroy(second);
    }
    cr_assert_str_eq(sha[0], sha[1]);
    strata_dataset_destroy(data);
    strata_array_finish(&x);
    strata_array_finish(&y);
}

/* A parameter server sends the rows that a batch uses, and the program gets indices of these. */
TEST_ON_HOST(recompute, the_rows_of_a_table_may_still_be_renumbered) {
    const char *const layers[] = {NULL, "table"};
    for (int i = 0; i < 2; i++) {
        strata_model *model = compile(device, &(trained){.json = sparse, .recompute = layers[i]});
        strata_step step;
        OK(strata_model_build_step(model, STRATA_PROGRAM_GRADIENTS, BATCH, 0, NULL, &step, &err));
        cr_assert_eq(step.layout.n_sparse, 1);
        cr_expect(step.layout.sparse[0].renumbers, "%s", i ? "computed again" : "kept");
        strata_graph_destroy(step.graph);
        strata_model_destroy(model);
    }
}

/* ---- auto ---- */

static int64_t bytes_with(strata_device *device, const char *recompute, int64_t batch) {
    strata_model *model = compile(device, &(trained){.json = denses, .recompute = recompute});
    strata_model_summary summary;
    OK(strata_model_summarize(model, batch, &summary, &err));
    const int64_t bytes = summary.step_memory_bytes;
    strata_model_summary_finish(&summary);
    strata_model_destroy(model);
    return bytes;
}

TEST_ON_HOST(recompute, auto_does_no_more_than_the_memory_needs) {
    const int64_t kept = bytes_with(device, NULL, BATCH), one = bytes_with(device, "a", BATCH),
                  two = bytes_with(device, "a,b", BATCH);
    char text[64];
    cr_assert(kept > one && one > two, "%lld, %lld, %lld", (long long)kept, (long long)one, (long long)two);
    cr_expect_eq(bytes_with(device, "auto", BATCH), kept, "the host has enough memory");
    snprintf(text, sizeof text, "auto:%lld", (long long)kept);
    cr_expect_eq(bytes_with(device, text, BATCH), kept);
    snprintf(text, sizeof text, "auto:%lld", (long long)kept - 1);
    cr_expect_eq(bytes_with(device, text, BATCH), one);
    snprintf(text, sizeof text, "auto:%lld", (long long)two);
    cr_expect_eq(bytes_with(device, text, BATCH), two);
    cr_expect_leq(bytes_with(device, "auto:1", BATCH), two, "the smallest program is taken if none is small enough");
    expect_same_bits(device, (trained){.json = denses}, "auto:1K");
}

/* Of a step for one example. */
static double bytes_of_example(strata_device *device, const char *recompute) {
    return (double)(bytes_with(device, recompute, 4096) - bytes_with(device, recompute, 2048)) / 2048;
}

/* A batch that fits only if layers are computed again, of which nothing is allocated. */
TEST_ON_HOST(recompute, a_batch_that_does_not_fit_says_that_it_would_with_auto) {
    const trained t = {.json = denses};
    const double memory = (double)strata_device_get_info(device)->memory_bytes;
    const double kept = bytes_of_example(device, NULL), again = bytes_of_example(device, "a,b");
    strata_array x, y;
    strata_dataset *data = make_data(&t, &x, &y);
    strata_model *model = compile(device, &t);
    cr_assert_lt(again, 0.9 * kept, "%g beside %g", again, kept);
    const strata_fit_options opts = {.epochs = 1, .batch = (int64_t)(memory / (0.95 * kept))};
    FAILS(strata_model_fit(model, data, &opts, NULL, &err), STRATA_OUT_OF_MEMORY, "it does with recompute \"auto\"");
    cr_assert_not_null(strstr(err.message, "a batch of "), "%s", err.message);
    strata_model_destroy(model);
    strata_dataset_destroy(data);
    strata_array_finish(&x);
    strata_array_finish(&y);
}
