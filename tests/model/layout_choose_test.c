/* SPDX-License-Identifier: Apache-2.0
 *
 * Layouts that are chosen: which parameters of a model are divided over tensor, which stay whole, and why. */
#include "core/model/layout_choose.h"

#include <stdio.h>

#include "core/compile/partition.h"
#include "core/model/mesh_spec.h"
#include "core/model/model.h"
#include "core/op/ops.h"
#include "tests/model/model_case.h"
#include "tests/support/check.h"

static strata_error err;

enum { MOST = 64 };

typedef struct chosen {
    strata_model *model;
    strata_mesh mesh;
    strata_memory memory;
    strata_placement placements[MOST];
    const char *reasons[MOST];
} chosen;

static chosen choose_for(strata_model *model, const char *mesh, int64_t examples) {
    chosen c = {.model = model};
    strata_model_structure structure;
    OK(strata_model_describe(model, &structure, &err));
    OK(strata_mesh_read(mesh, 0, &c.mesh, &err));
    cr_assert_leq(model->parameters.n, MOST);
    memset(c.placements, 0x55, sizeof c.placements);
    const strata_layout_model asked = {.calls = structure.calls,
                                       .n_calls = structure.n_calls,
                                       .outputs = structure.outputs,
                                       .n_outputs = strata_model_n_outputs(model),
                                       .parameters = model->parameters.items,
                                       .n_parameters = model->parameters.n};
    OK(strata_layout_choose(&asked, &c.mesh, examples, &c.memory, c.placements, c.reasons, &err));
    for (int i = 0; i < model->parameters.n; i++)
        OK(strata_placement_fits(&c.mesh, &c.placements[i], model->parameters.items[i].shape, &err));
    free(structure.calls);
    return c;
}

/* input and layers: JSON. */
static chosen choose(const char *input, const char *layers, const char *mesh, int64_t examples) {
    char json[4096];
    strata_model *model = NULL;
    const int n = snprintf(json, sizeof json, "{\"label\": \"t\", %s, \"layers\": [%s]}", input, layers);
    OK(strata_model_from_json(json, (size_t)n, "model.json", &model, &err));
    return choose_for(model, mesh, examples);
}

static void chosen_finish(chosen *c) {
    strata_memory_finish(&c->memory);
    strata_model_destroy(c->model);
}

static int parameter(const chosen *c, const char *name) {
    for (int i = 0; i < c->model->parameters.n; i++)
        if (!strcmp(c->model->parameters.items[i].name, name)) return i;
    cr_assert_fail("there is no parameter %s", name);
    return -1;
}

static void expect(const chosen *c, const char *name, const char *wanted) {
    const int i = parameter(c, name);
    cr_assert_str_eq(strata_placement_text(&c->mesh, &c->placements[i], c->model->parameters.items[i].shape).text, wanted, "%s",
                     name);
    if (strstr(wanted, " over ")) cr_assert_null(c->reasons[i], "%s: %s", name, c->reasons[i]);
}

static void expect_reason(const chosen *c, const char *name, const char *wanted) {
    const char *reason = c->reasons[parameter(c, name)];
    cr_assert_not_null(reason, "%s has no reason", name);
    cr_assert_not_null(strstr(reason, wanted), "%s: %s", name, reason);
}

/* ---- pairs ---- */

Test(layout_choose, dense_layers_have_columns_then_rows_across_elementwise_layers) {
    chosen c =
        choose("\"input\": [784]",
               "{\"layer\": \"dense\", \"units\": 4097}, {\"layer\": \"activation\", \"function\": \"relu\"},"
               "{\"layer\": \"dropout\", \"rate\": 0.5}, {\"layer\": \"batch_norm\"}, {\"layer\": \"dense\", \"units\": 10}",
               "data=2,tensor=2", 64);
    expect(&c, "dense/kernel", "(784, 4097 over tensor: 2049 2048)");
    expect(&c, "dense/bias", "(4097 over tensor: 2049 2048)");
    expect(&c, "batch_norm/gamma", "(4097 over tensor: 2049 2048)");
    expect(&c, "batch_norm/moving_variance", "(4097 over tensor: 2049 2048)");
    expect(&c, "dense_1/kernel", "(4097 over tensor: 2049 2048, 10)");
    expect(&c, "dense_1/bias", "(10)");
    chosen_finish(&c);
}

Test(layout_choose, the_layers_of_a_chain_are_paired_where_it_saves_most) {
    const char *const layers =
        "{\"layer\": \"dense\", \"units\": 512}, {\"layer\": \"dense\", \"units\": 1024}, {\"layer\": \"dense\", \"units\": "
        "512},"
        "{\"layer\": \"dense\", \"units\": 10}";
    chosen c = choose("\"input\": [784]", layers, "tensor=2", 1);
    expect(&c, "dense/kernel", "(784, 512 over tensor: 256 256)");
    expect(&c, "dense_1/kernel", "(512 over tensor: 256 256, 1024)");
    expect(&c, "dense_2/kernel", "(1024, 512 over tensor: 256 256)");
    expect(&c, "dense_3/kernel", "(512 over tensor: 256 256, 10)");
    chosen_finish(&c);
    c = choose("\"input\": [8]", layers, "tensor=2", 1);
    expect(&c, "dense/kernel", "(8, 512)");
    expect(&c, "dense_1/kernel", "(512 over tensor: 256 256, 1024)");
    expect(&c, "dense_2/kernel", "(1024, 512 over tensor: 256 256)");
    expect(&c, "dense_3/kernel", "(512 over tensor: 256 256, 10)");
    chosen_finish(&c);
}

Test(layout_choose, convolutions_have_output_then_input_channels_in_a_residual) {
    chosen c = choose("\"input\": [8, 8, 256]",
                      "{\"layer\": \"residual\", \"layers\": ["
                      "{\"layer\": \"conv2d\", \"filters\": 256, \"kernel_size\": 3, \"padding\": \"same\", \"no_bias\": true},"
                      "{\"layer\": \"batch_norm\", \"activation\": \"relu\"},"
                      "{\"layer\": \"conv2d\", \"filters\": 256, \"kernel_size\": 3, \"padding\": \"same\"}]},"
                      "{\"layer\": \"global_average_pool\"}, {\"layer\": \"dense\", \"units\": 3}",
                      "tensor=3", 4);
    expect(&c, "residual/conv2d/kernel", "(3, 3, 256, 256 over tensor: 86 85 85)");
    expect(&c, "residual/batch_norm/beta", "(256 over tensor: 86 85 85)");
    expect(&c, "residual/conv2d_1/kernel", "(3, 3, 256 over tensor: 86 85 85, 256)");
    expect(&c, "residual/conv2d_1/bias", "(256)");
    expect(&c, "dense/kernel", "(256, 3)");
    chosen_finish(&c);
}

Test(layout_choose, a_layer_without_a_partner_has_rows_or_columns_whichever_exchange_less) {
    chosen c = choose("\"input\": [96, 96]",
                      "{\"layer\": \"layer_norm\"}, {\"layer\": \"flatten\"}, {\"layer\": \"dense\", \"units\": 64},"
                      "{\"layer\": \"layer_norm\"}, {\"layer\": \"dense\", \"units\": 9216}, {\"layer\": \"layer_norm\"}",
                      "tensor=2", 8);
    expect(&c, "dense/kernel", "(9216 over tensor: 4608 4608, 64)");
    expect(&c, "dense/bias", "(64)");
    expect(&c, "dense_1/kernel", "(64, 9216 over tensor: 4608 4608)");
    expect(&c, "dense_1/bias", "(9216 over tensor: 4608 4608)");
    expect(&c, "layer_norm_1/gamma", "(64)");
    chosen_finish(&c);
}

Test(layout_choose, a_product_of_two_dense_layers_is_divided_with_both) {
    strata_model *model = NULL;
    OK(strata_model_create_functional(&model, &err));
    const strata_value *x = strata_model_input(model, "x", STRATA_SHAPE(512), STRATA_DTYPE_F32), *both[2];
    for (int i = 0; i < 2; i++) {
        strata_model_add_dense(model, (strata_dense_options){.units = 1024, .activation = i ? "silu" : NULL});
        both[i] = strata_layer_call(model, NULL, &x, 1);
    }
    strata_model_add_multiply(model, (strata_multiply_options){0});
    x = strata_layer_call(model, NULL, both, 2);
    strata_model_add_dense(model, (strata_dense_options){.units = 512});
    strata_model_output(model, strata_layer_call(model, NULL, &x, 1), (strata_output_options){0});
    chosen c = choose_for(model, "tensor=2", 16);
    expect(&c, "dense/kernel", "(512, 1024 over tensor: 512 512)");
    expect(&c, "dense_1/kernel", "(512, 1024 over tensor: 512 512)");
    expect(&c, "dense_2/kernel", "(1024 over tensor: 512 512, 512)");
    chosen_finish(&c);
}

Test(layout_choose, a_layer_that_is_called_twice_is_divided_in_one_way) {
    strata_model *model = NULL;
    OK(strata_model_create_functional(&model, &err));
    const strata_value *x = strata_model_input(model, "x", STRATA_SHAPE(600), STRATA_DTYPE_F32);
    strata_model_add_dense(model, (strata_dense_options){.units = 600, .name = "shared"});
    x = strata_layer_call(model, NULL, &x, 1);
    x = strata_layer_call(model, "shared", &x, 1);
    strata_model_output(model, x, (strata_output_options){0});
    chosen c = choose_for(model, "tensor=2", 16);
    expect(&c, "shared/kernel", "(600 over tensor: 300 300, 600)");
    expect(&c, "shared/bias", "(600)");
    chosen_finish(&c);
}

Test(layout_choose, all_calls_of_a_layer_decide_how_it_is_divided) {
    strata_model *model = NULL;
    OK(strata_model_create_functional(&model, &err));
    const strata_value *x[2], *y[2];
    for (int i = 0; i < 2; i++) x[i] = strata_model_input(model, i ? "b" : "a", STRATA_SHAPE(512), STRATA_DTYPE_F32);
    strata_model_add_dense(model, (strata_dense_options){.units = 1024, .name = "shared"});
    for (int i = 0; i < 2; i++) y[i] = strata_layer_call(model, "shared", &x[i], 1);
    strata_model_add_dense(model, (strata_dense_options){.units = 512});
    strata_model_output(model, strata_layer_call(model, "dense", &y[0], 1), (strata_output_options){0});
    y[0] = strata_model_input(model, "c", STRATA_SHAPE(1024), STRATA_DTYPE_F32);
    strata_model_add_add(model, (strata_add_options){0});
    strata_model_output(model, strata_layer_call(model, NULL, y, 2), (strata_output_options){.name = "sum"});
    chosen c = choose_for(model, "tensor=2", 1);
    /* Columns would pay in the first call, but the second call's output is added to an input, which is whole. */
    expect(&c, "shared/kernel", "(512 over tensor: 256 256, 1024)");
    expect(&c, "dense/kernel", "(1024 over tensor: 512 512, 512)");
    chosen_finish(&c);
}

Test(layout_choose, a_layer_that_also_reads_an_input_has_no_rows) {
    strata_model *model = NULL;
    OK(strata_model_create_functional(&model, &err));
    const strata_value *x = strata_model_input(model, "x", STRATA_SHAPE(1024), STRATA_DTYPE_F32);
    strata_model_add_dense(model, (strata_dense_options){.units = 8, .name = "shared"});
    strata_model_output(model, strata_layer_call(model, "shared", &x, 1), (strata_output_options){0});
    x = strata_model_input(model, "z", STRATA_SHAPE(512), STRATA_DTYPE_F32);
    strata_model_add_dense(model, (strata_dense_options){.units = 1024});
    x = strata_layer_call(model, "dense", &x, 1);
    strata_model_output(model, strata_layer_call(model, "shared", &x, 1), (strata_output_options){.name = "second"});
    chosen c = choose_for(model, "tensor=2", 1);
    expect(&c, "shared/kernel", "(1024, 8)");
    expect(&c, "dense/kernel", "(512 over tensor: 256 256, 1024)");
    chosen_finish(&c);
}

Test(layout_choose, a_flatten_of_channels_and_a_batch_norm_of_each_device_keep_the_division) {
    const char *const layers =
        "{\"layer\": \"dense\", \"units\": 4096}, {\"layer\": \"flatten\"}, {\"layer\": \"batch_norm\"%s},"
        "{\"layer\": \"dense\", \"units\": 8}";
    char text[512];
    snprintf(text, sizeof text, layers, "");
    chosen c = choose("\"input\": [784]", text, "tensor=2", 8);
    expect(&c, "dense/kernel", "(784, 4096 over tensor: 2048 2048)");
    expect(&c, "batch_norm/gamma", "(4096 over tensor: 2048 2048)");
    chosen_finish(&c);
    snprintf(text, sizeof text, layers, ", \"synchronized\": true");
    c = choose("\"input\": [784]", text, "tensor=2", 8);
    expect(&c, "batch_norm/gamma", "(4096)");
    chosen_finish(&c);
    c = choose("\"input\": [4, 784]",
               "{\"layer\": \"dense\", \"units\": 1024}, {\"layer\": \"flatten\"}, {\"layer\": \"batch_norm\"}", "tensor=2", 8);
    expect(&c, "dense/kernel", "(784, 1024 over tensor: 512 512)");
    expect(&c, "batch_norm/gamma", "(4096)");
    chosen_finish(&c);
}

/* ---- other layers ---- */

Test(layout_choose, a_table_is_divided_by_rows_if_it_is_large) {
    const char *const layers =
        "{\"layer\": \"embedding\", \"vocabulary\": %d, \"units\": 64}, {\"layer\": \"global_average_pool\"},"
        "{\"layer\": \"dense\", \"units\": 1}";
    char text[512];
    snprintf(text, sizeof text, layers, 4097);
    chosen c = choose("\"input\": [20], \"input_dtype\": \"i32\"", text, "tensor=2", 8);
    expect(&c, "embedding/embeddings", "(4097 over tensor: 2049 2048, 64)");
    expect(&c, "dense/kernel", "(64, 1)");
    chosen_finish(&c);
    snprintf(text, sizeof text, layers, 4096);
    c = choose("\"input\": [20], \"input_dtype\": \"i32\"", text, "tensor=2", 8);
    expect(&c, "embedding/embeddings", "(4096, 64)");
    cr_assert_null(c.reasons[parameter(&c, "embedding/embeddings")]);
    chosen_finish(&c);
}

Test(layout_choose, attention_is_divided_by_whole_heads) {
    const char *const layers = "{\"layer\": \"multi_head_attention\", \"heads\": 6}, {\"layer\": \"layer_norm\"}";
    chosen c = choose("\"input\": [16, 384]", layers, "tensor=4", 8);
    expect(&c, "multi_head_attention/query_kernel", "(384, 384 over tensor: 128 128 64 64)");
    expect(&c, "multi_head_attention/value_bias", "(384 over tensor: 128 128 64 64)");
    expect(&c, "multi_head_attention/output_kernel", "(384 over tensor: 128 128 64 64, 384)");
    expect(&c, "multi_head_attention/output_bias", "(384)");
    expect(&c, "layer_norm/gamma", "(384)");
    chosen_finish(&c);
    c = choose("\"input\": [16, 576]", layers, "tensor=7", 8);
    expect(&c, "multi_head_attention/query_kernel", "(576, 576)");
    expect_reason(&c, "multi_head_attention/query_kernel", "fewer heads or rows than the axis tensor has devices");
    chosen_finish(&c);
}

Test(layout_choose, attention_is_divided_if_it_computes_enough) {
    chosen c = choose("\"input\": [64, 64]", "{\"layer\": \"multi_head_attention\", \"heads\": 4}", "tensor=2", 64);
    expect(&c, "multi_head_attention/key_kernel", "(64, 64 over tensor: 32 32)");
    chosen_finish(&c);
    c = choose("\"input\": [64, 63]", "{\"layer\": \"multi_head_attention\", \"heads\": 9}", "tensor=2", 64);
    expect(&c, "multi_head_attention/key_kernel", "(63, 63)");
    chosen_finish(&c);
    c = choose("\"input\": [64, 1024]", "{\"layer\": \"multi_head_attention\", \"heads\": 4, \"key_dim\": 1}", "tensor=2", 64);
    expect(&c, "multi_head_attention/key_kernel", "(1024, 4)");
    chosen_finish(&c);
}

Test(layout_choose, small_layers_and_softmax_and_groups_stay_whole) {
    chosen c = choose("\"input\": [100]", "{\"layer\": \"dense\", \"units\": 100}, {\"layer\": \"dense\", \"units\": 100}",
                      "tensor=2", 8);
    expect(&c, "dense/kernel", "(100, 100)");
    expect(&c, "dense_1/kernel", "(100, 100)");
    chosen_finish(&c);
    c = choose("\"input\": [8, 8, 512]",
               "{\"layer\": \"conv2d\", \"filters\": 512, \"kernel_size\": 3, \"groups\": 2}, {\"layer\": \"flatten\"},"
               "{\"layer\": \"dense\", \"units\": 256, \"activation\": \"softmax\"}, {\"layer\": \"dense\", \"units\": 256}",
               "tensor=2", 8);
    expect(&c, "conv2d/kernel", "(3, 3, 256, 512)");
    expect_reason(&c, "conv2d/kernel", "its convolution has groups");
    expect(&c, "dense/kernel", "(18432 over tensor: 9216 9216, 256)");
    expect(&c, "dense/bias", "(256)");
    chosen_finish(&c);
}

Test(layout_choose, large_parameters_that_stay_whole_have_reasons) {
    chosen c = choose("\"input\": [10, 256]", "{\"layer\": \"lstm\", \"units\": 512}, {\"layer\": \"dense\", \"units\": 2}",
                      "tensor=2", 8);
    expect_reason(&c, "lstm/kernel", "the devices would exchange the state of a recurrent layer in each of its steps");
    expect_reason(&c, "lstm/recurrent_kernel", "the state of a recurrent layer");
    cr_assert_null(c.reasons[parameter(&c, "lstm/bias")]);
    chosen_finish(&c);
    const char *const wide =
        "{\"layer\": \"conv2d\", \"filters\": 192, \"kernel_size\": 3, \"padding\": \"same\"},"
        "{\"layer\": \"conv2d\", \"filters\": 192, \"kernel_size\": 3, \"padding\": \"same\"}";
    c = choose("\"input\": [32, 32, 192]", wide, "data=4", 8);
    expect_reason(&c, "conv2d/kernel", "the axis tensor of the mesh has the size 1");
    chosen_finish(&c);
    c = choose("\"input\": [64, 64, 3]",
               "{\"layer\": \"conv2d\", \"filters\": 6, \"kernel_size\": 1}, {\"layer\": \"conv2d\", \"filters\": 6000, "
               "\"kernel_size\": 3, \"stride\": 2}, {\"layer\": \"layer_norm\"}",
               "tensor=2", 256);
    expect(&c, "conv2d_1/kernel", "(3, 3, 6, 6000)");
    expect_reason(&c, "conv2d_1/kernel", "the exchanges of its activations would cost more than its division saves");
    chosen_finish(&c);
    c = choose("\"input\": [4, 4, 1024]",
               "{\"layer\": \"conv2d_transpose\", \"filters\": 1024, \"kernel_size\": 1}, {\"layer\": \"flatten\"}", "tensor=2",
               1);
    expect_reason(&c, "conv2d_transpose/kernel", "there is no rule for dividing this kind of layer");
    chosen_finish(&c);
}

/* ---- random chains of dense layers, beside all their divisions ---- */

enum { MOST_DENSE = 5 };

/* A chain of dense layers: widths[i] -> widths[i + 1]. trains: its input has a gradient. */
typedef struct chain {
    int64_t widths[MOST_DENSE + 1];
    int n;
    double examples;
    bool trains;
} chain;

typedef enum way { WHOLE, COLUMNS, ROWS, N_WAYS } way;

/* What the ways of the layers save by the formula in layout_choose.h; -1: they are not allowed. */
static double saved_by(const chain *x, const way *ways) {
    double all = 0;
    bool divided = false;
    for (int i = 0; i < x->n; i++) {
        const double in = (double)x->widths[i], out = (double)x->widths[i + 1], parameters = 4 * in * out;
        const double in_bytes = 4 * x->examples * in, out_bytes = 4 * x->examples * out;
        const double gradient = i || x->trains ? in_bytes : 0;
        const bool small = parameters < STRATA_LAYOUT_LEAST_BYTES;
        if ((ways[i] == COLUMNS && (divided || small)) || (ways[i] == ROWS && !divided && small)) return -1;
        if (ways[i] != WHOLE) all += 4 * parameters + 3 * 2 * x->examples * in * out / STRATA_LAYOUT_FLOPS_PER_BYTE;
        if (ways[i] == WHOLE && divided) all -= in_bytes;
        if (ways[i] == COLUMNS) all -= 2 * gradient;
        if (ways[i] == ROWS) all -= 2 * out_bytes + (divided ? 0 : gradient);
        divided = ways[i] == COLUMNS;
    }
    return divided ? all - 4 * x->examples * (double)x->widths[x->n] : all;
}

static double most_saved(const chain *x) {
    double most = 0;
    int n_all = 1;
    for (int i = 0; i < x->n; i++) n_all *= N_WAYS;
    for (int k = 0; k < n_all; k++) {
        way ways[MOST_DENSE];
        for (int i = 0, left = k; i < x->n; i++, left /= N_WAYS) ways[i] = (way)(left % N_WAYS);
        most = saved_by(x, ways) > most ? saved_by(x, ways) : most;
    }
    return most;
}

static double chosen_saves(const chain *x) {
    char input[64], layers[1024] = "";
    way ways[MOST_DENSE];
    snprintf(input, sizeof input, "\"input\": [%lld]", (long long)x->widths[0]);
    if (x->trains) strcpy(layers, "{\"layer\": \"layer_norm\"},");
    for (int i = 0; i < x->n; i++)
        snprintf(layers + strlen(layers), sizeof layers - strlen(layers), "%s{\"layer\": \"dense\", \"units\": %lld}",
                 i ? "," : "", (long long)x->widths[i + 1]);
    chosen c = choose(input, layers, "tensor=2", (int64_t)x->examples);
    for (int i = 0; i < x->n; i++) {
        char name[64];
        snprintf(name, sizeof name, i ? "dense_%d/kernel" : "dense/kernel", i);
        const strata_placement *kernel = &c.placements[parameter(&c, name)];
        ways[i] = kernel->dims[0].n_axes ? ROWS : kernel->dims[1].n_axes ? COLUMNS : WHOLE;
    }
    chosen_finish(&c);
    return saved_by(x, ways);
}

Test(layout_choose, what_is_chosen_for_a_chain_saves_nearly_the_most) {
    static const int64_t widths[] = {16, 64, 128, 160, 256, 1024};
    double all = 0, most = 0;
    for (uint64_t seed = 1; seed <= 300; seed++) {
        uint64_t state = seed * 1000003;
        chain x = {.n = 1 + (int)(strata_test_next(&state) % MOST_DENSE), .trains = strata_test_next(&state) % 2};
        x.examples = (double)(1 << strata_test_next(&state) % 17);
        for (int i = 0; i <= x.n; i++) x.widths[i] = widths[strata_test_next(&state) % 6];
        const double chosen = chosen_saves(&x), best = most_saved(&x);
        all += chosen;
        most += best;
        cr_assert_geq(chosen, 0.6 * best, "seed %d: %g of %g", (int)seed, chosen, best);
    }
    cr_assert_geq(all, 0.999 * most, "%g of %g", all, most);
}

/* ---- the exchanges of a chosen layout ---- */

static const strata_placement *place(void *user, const strata_tensor *leaf) {
    static const strata_placement whole;
    const chosen *c = user;
    const char *name = strata_tensor_node(leaf).name;
    for (int i = 0; i < c->model->parameters.n; i++)
        if (!strcmp(c->model->parameters.items[i].name, name)) return &c->placements[i];
    return &whole;
}

/* Lists the exchanges of one example's prediction and its gradients, which are placed as their parameters: "all_reduce 40". */
static void list_exchanges(chosen *c, char *out, size_t room) {
    strata_graph *graph;
    strata_tensor *inputs[STRATA_MAX_INPUTS], *results[MOST], *leaves[MOST];
    strata_placement placements[MOST] = {{.partial = 0}};
    int n = 0;
    OK(strata_model_graph(c->model, &graph, inputs, results, &err));
    for (int i = 0; i < strata_graph_n_nodes(graph); i++) {
        strata_tensor *leaf = strata_graph_tensor(graph, i);
        const char *name = strata_tensor_node(leaf).name;
        for (int k = 0; name && k < c->model->parameters.n; k++) {
            if (strcmp(c->model->parameters.items[k].name, name) || c->model->parameters.items[k].state) continue;
            placements[n + 1] = c->placements[k];
            leaves[n++] = leaf;
        }
    }
    strata_gradients(results[0], results[0], leaves, n, results + 1);
    OK(strata_graph_check(graph, &err));
    STRATA_OWNED(strata_partition) *partition = NULL;
    const strata_partition_options opts = {
        .mesh = &c->mesh, .place = place, .user = c, .outputs = results, .placements = placements, .n_outputs = n + 1};
    OK(strata_partition_create(&opts, &partition, &err));
    for (int i = 0; i < partition->n_exchanges; i++)
        snprintf(out + strlen(out), room - strlen(out), "%s%s %lld", i ? ", " : "", partition->exchanges[i].op,
                 (long long)partition->exchanges[i].bytes);
    strata_graph_destroy(graph);
}

static void expect_exchanges(const char *input, const char *layers, const char *wanted) {
    char listed[1024] = "";
    chosen c = choose(input, layers, "tensor=2", 1);
    list_exchanges(&c, listed, sizeof listed);
    cr_assert_str_eq(listed, wanted);
    chosen_finish(&c);
}

#define NORM "{\"layer\": \"layer_norm\"},"
#define PAIR "{\"layer\": \"dense\", \"units\": 4096, \"activation\": \"relu\"}, {\"layer\": \"dense\", \"units\": 100}"
#define CONV(filters) \
    "{\"layer\": \"conv2d\", \"filters\": " filters ", \"kernel_size\": 3, \"padding\": \"same\", \"activation\": \"relu\"}"

Test(layout_choose, a_pair_exchanges_its_output_and_the_gradient_of_its_input) {
    expect_exchanges("\"input\": [784]", PAIR, "all_reduce 400");
    expect_exchanges("\"input\": [784]", NORM PAIR, "all_reduce 400, all_reduce 3136");
    expect_exchanges("\"input\": [16, 256]",
                     NORM
                     "{\"layer\": \"residual\", \"layers\": [{\"layer\": \"dense\", \"units\": 1024, \"activation\": \"gelu\"},"
                     "{\"layer\": \"dense\", \"units\": 256}]}",
                     "all_reduce 16384, all_reduce 16384");
    expect_exchanges("\"input\": [8, 8, 64]", NORM CONV("256") ", {\"layer\": \"batch_norm\"}, " CONV("128"),
                     "all_reduce 32768, all_reduce 16384");
    expect_exchanges("\"input\": [8, 8, 64]",
                     CONV("256") ", {\"layer\": \"max_pool2d\", \"size\": 2}, {\"layer\": \"global_average_pool\"},"
                     "{\"layer\": \"dense\", \"units\": 128}", "all_reduce 512");
}

Test(layout_choose, attention_exchanges_its_output_and_the_gradient_of_its_input) {
    expect_exchanges("\"input\": [16, 256]", NORM "{\"layer\": \"multi_head_attention\", \"heads\": 3, \"key_dim\": 64}",
                     "all_reduce 16384, all_reduce 16384");
}
