/* SPDX-License-Identifier: Apache-2.0
 *
 * Tensor parallelism: training steps whose parameters are divided over the axis `tensor` of a mesh, one case for each kind of
 * layer; and steps whose variables are divided over `data`, along which the examples are. The divided step gives the loss and
 * the new parameters and slots of the whole step, and it has only the exchanges over the axis that the case lists, so that a
 * needless gather fails. The references of the ops compute both. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/compile/partition.h"
#include "core/op/element.h"
#include "core/op/ops.h"
#include "core/optimizer/optimizer.h"
#include "core/run/device.h"
#include "strata/ops.h"
#include "tests/support/check.h"
#include "tests/support/eval.h"
#include "tests/support/parts.h"

enum { MOST_DEVICES = 4, MOST_LEAVES = 64, MOST_PARAMETERS = 24, MOST_UPDATES = 400, BATCH = 6, COPIES = -1 };
static strata_error err;
#define OK(call) cr_assert_eq(call, STRATA_OK, "%s", err.message)

/* An input, a parameter or a slot. */
typedef struct leaf {
    const char *name;
    bool is_variable, is_slot;
    strata_tensor *tensor;
    strata_array value;
    strata_variable variable, parts[MOST_DEVICES];
    /* A parameter whose slots are divided over `data`: the device's piece. */
    strata_placement pieces;
    strata_variable piece[MOST_DEVICES];
    /* The dimension that is divided over `tensor`, and the elements that stay together. */
    int dim;
    int64_t unit;
    /* Dimension 0 is that of the examples. */
    bool is_batch;
    strata_placement placement;
    int64_t lengths[4][MOST_DEVICES];
} leaf;

typedef struct scene {
    strata_graph *graph;
    leaf leaves[MOST_LEAVES];
    int n_leaves;
    /* The parameters are leaves, too. */
    int parameters[MOST_PARAMETERS], n_parameters;
    strata_tensor *loss, *updates[MOST_PARAMETERS + 4];
    int n_updates;
    strata_mesh mesh;
    /* 3: all variables are divided over `data`, too. 1: only slots are. */
    int zero;
} scene;

/* ---- leaves ---- */

static leaf *add_leaf(scene *s, const char *name, strata_dtype dtype, strata_shape shape, double low, double high) {
    cr_assert_lt(s->n_leaves, MOST_LEAVES);
    leaf *l = &s->leaves[s->n_leaves++];
    *l = (leaf){.name = name, .dim = COPIES, .unit = 1};
    l->value = strata_test_random(dtype, shape, low, high, 31 * (uint64_t)s->n_leaves);
    return l;
}

static strata_tensor *input(scene *s, const char *name, strata_dtype dtype, strata_shape shape, double low, double high) {
    leaf *l = add_leaf(s, name, dtype, shape, low, high);
    l->is_batch = true;
    return l->tensor = strata_input(s->graph, name, dtype, shape);
}

/* An input of which every device has a copy. */
static strata_tensor *copied(scene *s, const char *name, strata_array value) {
    leaf *l = add_leaf(s, name, value.dtype, value.shape, 0, 1);
    strata_array_finish(&l->value);
    l->value = value;
    return l->tensor = strata_input(s->graph, name, value.dtype, value.shape);
}

static strata_tensor *variable(scene *s, const char *name, strata_shape shape, int dim, int64_t unit) {
    leaf *l = add_leaf(s, name, STRATA_DTYPE_F32, shape, -0.7, 0.7);
    l->is_variable = true;
    l->dim = dim;
    l->unit = unit;
    l->variable = strata_test_variable(name, STRATA_DTYPE_F32, shape);
    return l->tensor = strata_variable_read(s->graph, &l->variable);
}

/* A parameter, of which dimension `dim` is divided over `tensor`, in pieces of whole units. */
static strata_tensor *parameter(scene *s, const char *name, strata_shape shape, int dim, int64_t unit) {
    s->parameters[s->n_parameters++] = s->n_leaves;
    return variable(s, name, shape, dim, unit);
}

/* ---- the step ---- */

static strata_tensor *mean_of(strata_tensor *x) {
    return strata_reduce_mean(x, NULL, 0, false);
}

/* Adds updates of all parameters, each of which is a block. An all_reduce says where its gradient is complete. */
static void train(scene *s, strata_tensor *loss, strata_optimizer settings) {
    const strata_optimizer_kind *kind;
    strata_tensor *parameters[MOST_PARAMETERS], *gradients[MOST_PARAMETERS], *square;
    strata_segments none[MOST_PARAMETERS] = {{.n = 0}};
    float words[STRATA_STEP_WORDS];
    OK(strata_optimizer_check(&settings, &kind, &err));
    strata_optimizer_step(kind, &settings, 1, words);
    strata_array numbers = strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(STRATA_STEP_WORDS), 0);
    memcpy(numbers.data, words, sizeof words);
    strata_tensor *step = copied(s, "step", numbers);
    for (int i = 0; i < s->n_parameters; i++) parameters[i] = s->leaves[s->parameters[i]].tensor;
    strata_gradients(loss, strata_scalar(s->graph, STRATA_DTYPE_F32, 1), parameters, s->n_parameters, gradients);
    for (int i = 0; i < s->n_parameters; i++) gradients[i] = strata_all_reduce(gradients[i], STRATA_REDUCE_SUM);
    strata_clip_gradients(&settings, gradients, none, s->n_parameters, &square);
    for (int i = 0; i < s->n_parameters; i++) {
        const leaf l = s->leaves[s->parameters[i]];
        strata_update u = {.parameters = parameters[i], .gradients = gradients[i], .step = step, .segments = &none[i]};
        for (int k = 0; k < strata_optimizer_n_slots(kind, &settings); k++) {
            u.slots[k] = variable(s, "slot", l.value.shape, l.dim, l.unit);
            strata_array *slot = &s->leaves[s->n_leaves - 1].value;
            s->leaves[s->n_leaves - 1].is_slot = true;
            for (int64_t e = 0; e < strata_shape_elements(slot->shape); e++)
                ((float *)slot->data)[e] = fabsf(((float *)slot->data)[e]) + 0.5f;
        }
        s->updates[s->n_updates++] = kind->build(&settings, &u);
    }
    s->loss = loss;
}

static void train_by_sgd(scene *s, strata_tensor *loss) {
    train(s, loss, (strata_optimizer){.name = "sgd", .learning_rate = 0.5, .momentum = 0.9});
}

/* ---- division ---- */

/* Lengths of nearly equal pieces of whole units. */
static strata_dim_split split_over(const scene *s, int axis, int64_t n, int64_t unit, int64_t *lengths) {
    const int64_t units = n / unit;
    const int pieces = s->mesh.axes[axis].size;
    for (int k = 0; k < pieces; k++) lengths[k] = (units / pieces + (k < units % pieces)) * unit;
    return (strata_dim_split){.n_axes = 1, .axes = {axis}, .lengths = lengths};
}

static int axis_of(const scene *s, const char *name) {
    for (int a = 0; a < s->mesh.n_axes; a++)
        if (!strcmp(s->mesh.axes[a].name, name)) return a;
    return -1;
}

/* Divides a variable over `data`: the dimension that `tensor` does not divide, or the pieces of the only one. */
static void place_zero(const scene *s, leaf *l, strata_placement *placement, int data, int tensor) {
    const strata_shape shape = l->value.shape;
    const int dim = shape.rank > 1 && l->dim == 0 ? 1 : 0, pieces = s->mesh.axes[data].size;
    strata_dim_split *split = &placement->dims[dim];
    if (!split->n_axes) {
        *split = split_over(s, data, shape.dims[dim], 1, l->lengths[3]);
        return;
    }
    for (int k = 0; k < s->mesh.axes[tensor].size; k++)
        split_over(s, data, split->lengths[k], 1, l->lengths[2] + (ptrdiff_t)k * pieces);
    *split = (strata_dim_split){.n_axes = 2, .axes = {tensor, data}, .lengths = l->lengths[2]};
}

static void place_leaves(scene *s) {
    const int data = axis_of(s, "data"), tensor = axis_of(s, "tensor");
    for (int i = 0; i < s->n_leaves; i++) {
        leaf *l = &s->leaves[i];
        const int64_t *dims = l->value.shape.dims;
        l->placement = (strata_placement){.partial = 0};
        if (l->is_batch && data >= 0) l->placement.dims[0] = split_over(s, data, dims[0], 1, l->lengths[0]);
        if (l->dim >= 0 && tensor >= 0) l->placement.dims[l->dim] = split_over(s, tensor, dims[l->dim], l->unit, l->lengths[1]);
        if (l->is_variable && s->zero > (l->is_slot ? 0 : 2)) place_zero(s, l, &l->placement, data, tensor);
        l->pieces = l->placement;
        if (l->is_variable && s->zero == 1 && !l->is_slot) place_zero(s, l, &l->pieces, data, tensor);
    }
}

static const strata_placement *place(void *user, const strata_tensor *node) {
    scene *s = user;
    for (int i = 0; i < s->n_leaves; i++) {
        const leaf *l = &s->leaves[i];
        const bool same =
            l->is_variable ? node->op == &strata_op_read && ((const strata_read_attrs *)node->attrs)->variable == &l->variable
                           : node == l->tensor;
        if (same) return &l->placement;
    }
    cr_assert_fail("an unknown leaf");
    return NULL;
}

static leaf *leaf_of(scene *s, const strata_variable *whole) {
    for (int i = 0; i < s->n_leaves; i++)
        if (&s->leaves[i].variable == whole) return &s->leaves[i];
    cr_assert_fail("an unknown variable");
    return NULL;
}

static strata_variable *part_of_variable(void *user, strata_variable *whole, int device) {
    const scene *s = user;
    leaf *l = leaf_of(user, whole);
    l->parts[device] = strata_test_variable(l->name, STRATA_DTYPE_F32,
                                            strata_placement_part(&s->mesh, &l->placement, whole->shape, device, NULL));
    return &l->parts[device];
}

static strata_variable *piece_of_variable(void *user, strata_variable *whole, int device) {
    const scene *s = user;
    leaf *l = leaf_of(user, whole);
    l->piece[device] = strata_test_variable("a piece", STRATA_DTYPE_F32,
                                            strata_placement_part(&s->mesh, &l->pieces, whole->shape, device, NULL));
    return &l->piece[device];
}

/* ---- values ---- */

static void assert_close(const strata_array *got, const strata_array *want, const char *what) {
    double most = 0;
    for (int64_t e = 0; e < strata_shape_elements(want->shape); e++)
        most = fmax(most, fabs(strata_element_get(want->dtype, want->data, e)));
    const strata_test_result same = strata_test_compare(got, want, (strata_test_tolerance){0, 1e-6 + 1e-5 * most});
    cr_assert(same.ok, "%s: %s", what, same.text);
}

/* Runs the whole step: the loss, and the variables' new values in `after`. */
static strata_array run_whole(scene *s, strata_array *after) {
    strata_tensor *all[MOST_PARAMETERS + 8] = {s->loss};
    strata_array results[MOST_PARAMETERS + 8];
    strata_test_feed feeds[MOST_LEAVES];
    memcpy(all + 1, s->updates, (size_t)s->n_updates * sizeof(*all));
    for (int i = 0; i < s->n_leaves; i++) {
        leaf *l = &s->leaves[i];
        OK(strata_array_create(l->value.dtype, l->value.shape, &after[i], &err));
        memcpy(after[i].data, l->value.data, strata_array_bytes(&after[i]));
        feeds[i] = (strata_test_feed){l->is_variable ? (void *)&l->variable : l->tensor, &after[i]};
    }
    OK(strata_test_eval(all, 1 + s->n_updates, feeds, s->n_leaves, results, &err));
    for (int i = 1; i < 1 + s->n_updates; i++) strata_array_finish(&results[i]);
    return results[0];
}

/* The input of a device's graph with the name of the leaf, or the device's variable. */
static const void *leaf_of_part(leaf *l, const strata_graph *part, int d) {
    if (l->is_variable) return &l->parts[d];
    for (int k = 0; k < part->n_nodes; k++)
        if (part->nodes[k]->op == &strata_op_input && !strcmp(strata_tensor_name(part->nodes[k]), l->name))
            return part->nodes[k];
    return l->tensor; /* the device does not read it */
}

static void run_parts(scene *s, const strata_partition *partition, const strata_array *loss, const strata_array *after) {
    static strata_array values[MOST_DEVICES][2 * MOST_LEAVES], got[MOST_DEVICES][MOST_UPDATES];
    static strata_test_feed feeds[MOST_DEVICES][2 * MOST_LEAVES];
    static strata_tensor *all[MOST_DEVICES][MOST_UPDATES];
    strata_test_part parts[MOST_DEVICES];
    for (int d = 0; d < partition->n_devices; d++) {
        const strata_device_part *part = &partition->parts[d];
        cr_assert_lt(part->n_updates, MOST_UPDATES);
        all[d][0] = part->outputs[0];
        memcpy(all[d] + 1, part->updates, (size_t)part->n_updates * sizeof(*all[d]));
        for (int i = 0; i < s->n_leaves; i++) {
            values[d][i] = strata_test_part_of(&s->mesh, &s->leaves[i].placement, &s->leaves[i].value, d);
            feeds[d][i] = (strata_test_feed){leaf_of_part(&s->leaves[i], part->graph, d), &values[d][i]};
            strata_array *piece = &values[d][s->n_leaves + i];
            *piece = strata_test_part_of(&s->mesh, &s->leaves[i].pieces, &s->leaves[i].value, d);
            feeds[d][s->n_leaves + i] = (strata_test_feed){&s->leaves[i].piece[d], piece};
        }
        parts[d] = (strata_test_part){all[d], 1 + part->n_updates, feeds[d], 2 * s->n_leaves, got[d], NULL, NULL};
    }
    OK(strata_test_eval_parts(parts, partition->n_devices, &err));
    for (int d = 0; d < partition->n_devices; d++) {
        assert_close(&got[d][0], loss, "the loss");
        for (int i = 0; i < s->n_leaves; i++) {
            strata_array part = strata_test_part_of(&s->mesh, &s->leaves[i].placement, &after[i], d);
            assert_close(&values[d][i], &part, s->leaves[i].name);
            strata_array_finish(&part);
            strata_array_finish(&values[d][i]);
            strata_array_finish(&values[d][s->n_leaves + i]);
        }
        for (int i = 0; i < parts[d].n_outputs; i++) strata_array_finish(&got[d][i]);
    }
}

/* ---- exchanges ---- */

typedef struct list {
    char text[2048];
} list;

/* The exchanges over an axis, such as "all_reduce 96, all_gather 48", with the bytes that a device receives. */
static list exchanges_of(const strata_partition *partition, int axis, bool with_bytes, bool with_nodes) {
    list l = {""};
    for (int i = 0; i < partition->n_exchanges; i++) {
        const strata_partition_exchange *x = &partition->exchanges[i];
        char *end = l.text + strlen(l.text);
        const size_t room = sizeof l.text - strlen(l.text);
        if (!(x->axes >> axis & 1)) continue;
        int n = snprintf(end, room, "%s%s", l.text[0] ? ", " : "", x->op);
        if (with_bytes) n += snprintf(end + n, room - (size_t)n, " %d", (int)x->bytes);
        if (with_nodes)
            snprintf(end + n, room - (size_t)n, " (%s for %s)", x->value->op->name, x->reader ? x->reader->op->name : "-");
    }
    return l;
}

/* Divides the step. exchanges: those over the last axis of the mesh; with_bytes: with their bytes. */
static void check_on(scene *s, strata_mesh mesh, const char *exchanges, bool with_bytes) {
    const int axis = mesh.n_axes - 1;
    strata_partition *partition = NULL;
    strata_array after[MOST_LEAVES];
    s->mesh = mesh;
    place_leaves(s);
    const strata_partition_options opts = {.mesh = &s->mesh,
                                           .place = place,
                                           .variable = part_of_variable,
                                           .part_variable = s->zero == 1 ? piece_of_variable : NULL,
                                           .user = s,
                                           .outputs = &s->loss,
                                           .n_outputs = 1,
                                           .updates = s->updates,
                                           .n_updates = s->n_updates};
    OK(strata_partition_create(&opts, &partition, &err));
    const list found = exchanges_of(partition, axis, with_bytes, false), nodes = exchanges_of(partition, axis, true, true);
    cr_expect_str_eq(found.text, exchanges, "%d devices: %s; wanted: %s", partition->n_devices, nodes.text, exchanges);
    strata_array loss = run_whole(s, after);
    run_parts(s, partition, &loss, after);
    strata_array_finish(&loss);
    for (int i = 0; i < s->n_leaves; i++) strata_array_finish(&after[i]);
    strata_partition_destroy(partition);
}

/* The list without the bytes. */
static list without_bytes(const char *exchanges) {
    list l = {""};
    size_t n = 0;
    for (const char *at = exchanges; *at; at++) {
        if (*at == ' ' && at[1] >= '0' && at[1] <= '9')
            while (at[1] && at[1] != ',') at++;
        else
            l.text[n++] = *at;
    }
    return l;
}

static void end(scene *s) {
    for (int i = 0; i < s->n_leaves; i++) strata_array_finish(&s->leaves[i].value);
    strata_graph_destroy(s->graph);
    free(s);
}

/* exchanges: those on the mesh tensor=2. Other meshes have as many. */
static void check(scene *s, const char *exchanges) {
    const list ops = without_bytes(exchanges);
    OK(strata_graph_check(s->graph, &err));
    check_on(s, (strata_mesh){1, {{"tensor", 2}}}, exchanges, true);
    check_on(s, (strata_mesh){1, {{"tensor", 3}}}, ops.text, false);
    check_on(s, (strata_mesh){2, {{"data", 2}, {"tensor", 2}}}, ops.text, false);
    end(s);
}

/* With variables divided over `data`. over_data: the exchanges on the mesh data=2. over_tensor: those over `tensor` on the
 * mesh data=2, tensor=2. */
static void check_zero(scene *s, int level, const char *over_data, const char *over_tensor) {
    s->zero = level;
    OK(strata_graph_check(s->graph, &err));
    check_on(s, (strata_mesh){1, {{"data", 2}}}, over_data, true);
    check_on(s, (strata_mesh){2, {{"data", 2}, {"tensor", 2}}}, over_tensor, false);
    end(s);
}

static scene *begin(void) {
    scene *s = calloc(1, sizeof *s);
    cr_assert(s);
    OK(strata_graph_create(&s->graph, &err));
    return s;
}

/* ---- dense ---- */

static strata_tensor *dense(scene *s, strata_tensor *x, const char *name, int64_t units, int dim, int64_t unit) {
    static char names[64][32];
    static int n;
    const strata_shape shape = strata_tensor_shape(x);
    char *kernel = names[n++ % 64], *bias = names[n++ % 64];
    snprintf(kernel, sizeof names[0], "%s_kernel", name);
    snprintf(bias, sizeof names[0], "%s_bias", name);
    strata_tensor *y =
        strata_matmul(x, parameter(s, kernel, STRATA_SHAPE(shape.dims[shape.rank - 1], units), dim, unit), false, false);
    return strata_add(y, parameter(s, bias, STRATA_SHAPE(units), dim == 1 ? 0 : COPIES, unit));
}

static strata_tensor *square_error(scene *s, strata_tensor *y) {
    return mean_of(strata_square(strata_sub(y, input(s, "wanted", STRATA_DTYPE_F32, strata_tensor_shape(y), -1, 1))));
}

/* x is the result of a layer before, whose parameters are copies. */
static strata_tensor *features(scene *s, int64_t n) {
    return strata_tanh(dense(s, input(s, "x", STRATA_DTYPE_F32, STRATA_SHAPE(BATCH, 4), -1, 1), "first", n, COPIES, 1));
}

Test(tensor, dense_by_columns_then_rows_has_an_all_reduce_forward_and_one_backward) {
    scene *s = begin();
    strata_tensor *y = strata_relu(dense(s, features(s, 5), "wide", 7, 1, 1));
    y = dense(s, y, "narrow", 3, 0, 1);
    train_by_sgd(s, square_error(s, y));
    check(s, "all_reduce 72, all_reduce 120");
}

/* The loss reads the columns' products before they are complete. */
Test(tensor, an_output_layer_by_columns_has_its_own_error) {
    scene *s = begin();
    train_by_sgd(s, square_error(s, dense(s, features(s, 5), "wide", 7, 1, 1)));
    check(s, "all_reduce 120, all_reduce 4");
}

/* ---- embedding ---- */

static strata_tensor *tokens(scene *s, int64_t n, int64_t vocabulary) {
    return input(s, "tokens", STRATA_DTYPE_I32, STRATA_SHAPE(BATCH, n), -0.3, (double)vocabulary + 1);
}

Test(tensor, an_embedding_by_rows_of_the_vocabulary_adds_up_what_it_finds) {
    scene *s = begin();
    strata_tensor *x = strata_gather(parameter(s, "table", STRATA_SHAPE(11, 4), 0, 1), tokens(s, 3, 11), 0);
    train_by_sgd(s, square_error(s, strata_tanh(x)));
    check(s, "all_reduce 288");
}

/* The mean over the tokens is added up, which is smaller. */
Test(tensor, a_mean_of_an_embedding_by_rows_is_added_up_after_it_was_taken) {
    scene *s = begin();
    strata_tensor *x = strata_gather(parameter(s, "table", STRATA_SHAPE(11, 4), 0, 1), tokens(s, 3, 11), 0);
    x = strata_reduce_mean(x, (int[]){1}, 1, false);
    train_by_sgd(s, square_error(s, strata_tanh(dense(s, x, "dense", 3, COPIES, 1))));
    check(s, "all_reduce 96");
}

Test(tensor, an_embedding_by_features_goes_on_by_features) {
    scene *s = begin();
    strata_tensor *x = strata_gather(parameter(s, "table", STRATA_SHAPE(11, 4), 1, 1), tokens(s, 3, 11), 0);
    train_by_sgd(s, square_error(s, dense(s, strata_tanh(x), "dense", 3, 0, 1)));
    check(s, "all_reduce 216");
}

/* Tied weights: the table is the kernel of the last layer, too. Forward: the rows; the largest logit, the sum of exponentials
 * and the label's of each example. Backward: the gradient of the last layer's input. */
Test(tensor, a_table_by_rows_is_the_last_kernel_too) {
    scene *s = begin();
    strata_tensor *table = parameter(s, "table", STRATA_SHAPE(11, 4), 0, 1);
    strata_tensor *x = strata_tanh(strata_reduce_mean(strata_gather(table, tokens(s, 3, 11), 0), (int[]){1}, 1, false));
    x = strata_tanh(dense(s, x, "dense", 4, COPIES, 1));
    strata_tensor *logits = strata_matmul(x, table, false, true);
    strata_tensor *labels = input(s, "labels", STRATA_DTYPE_I32, STRATA_SHAPE(BATCH), 0, 11);
    train_by_sgd(s, mean_of(strata_sparse_softmax_cross_entropy(logits, labels)));
    check(s, "all_reduce 96, all_gather 48, all_reduce 24, all_reduce 96, all_reduce 4");
}

/* ---- softmax cross-entropy ---- */

Test(tensor, a_sparse_cross_entropy_over_divided_classes_exchanges_three_numbers_for_each_example) {
    scene *s = begin();
    strata_tensor *logits = dense(s, features(s, 5), "logits", 10, 1, 1);
    strata_tensor *labels = input(s, "labels", STRATA_DTYPE_I32, STRATA_SHAPE(BATCH), 0, 10);
    train_by_sgd(s, mean_of(strata_sparse_softmax_cross_entropy(logits, labels)));
    check(s, "all_gather 48, all_reduce 24, all_reduce 120, all_reduce 4");
}

Test(tensor, a_dense_cross_entropy_over_divided_classes_exchanges_three_numbers_for_each_example) {
    scene *s = begin();
    strata_tensor *logits = dense(s, features(s, 5), "logits", 10, 1, 1);
    strata_tensor *labels = input(s, "labels", STRATA_DTYPE_F32, STRATA_SHAPE(BATCH, 10), 0, 0.2);
    train_by_sgd(s, mean_of(strata_softmax_cross_entropy(logits, labels)));
    check(s, "all_gather 48, all_reduce 24, all_reduce 120, all_reduce 4");
}

/* Forward: the largest element and the sum of exponentials of each row. Backward: one sum. */
Test(tensor, a_softmax_over_divided_columns_exchanges_numbers_of_rows) {
    scene *s = begin();
    strata_tensor *y = strata_softmax(dense(s, features(s, 5), "wide", 7, 1, 1));
    train_by_sgd(s, square_error(s, dense(s, y, "narrow", 3, 0, 1)));
    check(s, "all_gather 48, all_reduce 24, all_reduce 72, all_reduce 24, all_reduce 120");
}

/* The metric is computed of the largest logit, which the loss has found, and of its place. */
Test(tensor, the_accuracy_over_divided_classes_exchanges_one_more_number) {
    scene *s = begin();
    strata_tensor *logits = dense(s, features(s, 5), "logits", 10, 1, 1);
    strata_tensor *labels = input(s, "labels", STRATA_DTYPE_I32, STRATA_SHAPE(BATCH), 0, 10);
    strata_tensor *losses = strata_sparse_softmax_cross_entropy(logits, labels);
    train_by_sgd(s, mean_of(losses));
    s->loss = strata_classification_sums(losses, logits, labels);
    check(s, "all_gather 48, all_reduce 24, all_reduce 120, all_gather 48, all_reduce 24");
}

/* ---- attention ---- */

/* As the layer multi_head_attention builds it. */
static strata_tensor *to_heads(strata_tensor *x, int64_t t, int64_t heads, int64_t size) {
    return strata_transpose(strata_reshape(x, STRATA_SHAPE(BATCH, t, heads, size)), (int[]){0, 2, 1, 3});
}

static strata_tensor *attend(scene *s, strata_tensor *x, int64_t heads, int64_t size, strata_tensor *mask) {
    const int64_t t = strata_tensor_shape(x).dims[1], width = heads * size;
    strata_tensor *q = to_heads(dense(s, x, "query", width, 1, size), t, heads, size);
    strata_tensor *k = to_heads(dense(s, x, "key", width, 1, size), t, heads, size);
    strata_tensor *v = to_heads(dense(s, x, "value", width, 1, size), t, heads, size);
    strata_tensor *y = strata_attention(q, k, v, mask, 0);
    y = strata_reshape(strata_transpose(y, (int[]){0, 2, 1, 3}), STRATA_SHAPE(BATCH, t, width));
    return dense(s, y, "output", strata_tensor_shape(x).dims[2], 0, size);
}

static strata_tensor *sequence(scene *s, int64_t n) {
    return strata_tanh(dense(s, input(s, "x", STRATA_DTYPE_F32, STRATA_SHAPE(BATCH, 3, 4), -1, 1), "first", n, COPIES, 1));
}

Test(tensor, attention_by_heads_has_an_all_reduce_forward_and_one_backward) {
    scene *s = begin();
    train_by_sgd(s, square_error(s, strata_tanh(attend(s, sequence(s, 5), 4, 2, NULL))));
    check(s, "all_reduce 360, all_reduce 360");
}

Test(tensor, masks_of_attention_by_heads_need_no_exchange) {
    scene *s = begin();
    strata_tensor *x = sequence(s, 5);
    strata_tensor *held = input(s, "mask", STRATA_DTYPE_BOOL, STRATA_SHAPE(BATCH, 3), 0, 2);
    const uint8_t back[] = {1, 0, 0, 1, 1, 0, 1, 1, 1};
    const strata_array causal = strata_array_view(STRATA_DTYPE_BOOL, STRATA_SHAPE(3, 3), (void *)back);
    strata_tensor *mask = strata_where(strata_reshape(held, STRATA_SHAPE(BATCH, 1, 1, 3)), strata_constant(s->graph, &causal),
                                       strata_scalar(s->graph, STRATA_DTYPE_BOOL, 0));
    train_by_sgd(s, square_error(s, strata_tanh(attend(s, x, 4, 2, mask))));
    check(s, "all_reduce 360, all_reduce 360");
}

/* A block of a transformer: each of the two residual branches has one all_reduce forward and one backward, and the norms, whose
 * features are whole, none. */
Test(tensor, a_transformer_block_has_two_all_reduces_forward_and_two_backward) {
    scene *s = begin();
    strata_tensor *x = sequence(s, 5);
    for (int i = 0; i < 2; i++) {
        strata_tensor *scale = parameter(s, "gamma", STRATA_SHAPE(5), COPIES, 1);
        strata_tensor *shift = parameter(s, "beta", STRATA_SHAPE(5), COPIES, 1), *y = strata_layer_norm(x, scale, shift, 1e-3);
        if (i)
            y = dense(s, strata_gelu(dense(s, y, "up", 7, 1, 1)), "down", 5, 0, 1);
        else
            y = attend(s, y, 4, 2, NULL);
        x = strata_add(x, y);
    }
    train_by_sgd(s, square_error(s, x));
    check(s, "all_reduce 360, all_reduce 360, all_reduce 360, all_reduce 360");
}

/* One of three devices has no head. */
Test(tensor, a_device_without_heads_takes_part_in_the_sums) {
    scene *s = begin();
    train_by_sgd(s, square_error(s, strata_tanh(attend(s, sequence(s, 5), 2, 3, NULL))));
    check(s, "all_reduce 360, all_reduce 360");
}

/* ---- convolution ---- */

static strata_tensor *convolve(scene *s, strata_tensor *x, const char *name, int64_t in, int64_t out, int64_t groups, int dim) {
    strata_tensor *filter = parameter(s, name, STRATA_SHAPE(3, 3, in, out), dim, 1);
    return strata_conv2d(x, filter, (strata_conv2d_window){.stride = {1, 1}, .padding = STRATA_PADDING_SAME, .groups = groups});
}

static strata_tensor *pictures(scene *s, int64_t channels) {
    return strata_tanh(
        convolve(s, input(s, "x", STRATA_DTYPE_F32, STRATA_SHAPE(BATCH, 4, 4, 2), -1, 1), "first", 2, channels, 1, COPIES));
}

Test(tensor, convolutions_by_output_then_input_channels_have_an_all_reduce_forward_and_one_backward) {
    scene *s = begin();
    strata_tensor *y = convolve(s, pictures(s, 3), "wide", 3, 5, 1, 3);
    y = strata_relu(strata_add(y, parameter(s, "bias", STRATA_SHAPE(5), 0, 1)));
    y = strata_max_pool2d(y, (strata_pool2d_window){.size = {2, 2}});
    y = convolve(s, y, "narrow", 5, 3, 1, 2);
    train_by_sgd(s, square_error(s, y));
    check(s, "all_reduce 288, all_reduce 1152");
}

Test(tensor, depthwise_convolutions_pools_and_batch_norm_of_divided_channels_need_no_exchange) {
    scene *s = begin();
    strata_tensor *y = convolve(s, pictures(s, 3), "wide", 3, 5, 1, 3), *mean, *variance;
    y = strata_relu(convolve(s, y, "depthwise", 1, 5, 5, 3));
    y = strata_avg_pool2d(y, (strata_pool2d_window){.size = {2, 2}});
    strata_tensor *scale = parameter(s, "gamma", STRATA_SHAPE(5), 0, 1), *shift = parameter(s, "beta", STRATA_SHAPE(5), 0, 1);
    y = strata_relu(strata_batch_norm_training(y, scale, shift, 1e-3, &mean, &variance));
    s->updates[s->n_updates++] = strata_assign_add(variable(s, "moving_mean", STRATA_SHAPE(5), 0, 1), mean);
    s->updates[s->n_updates++] = strata_assign_add(variable(s, "moving_variance", STRATA_SHAPE(5), 0, 1), variance);
    y = strata_reduce_mean(y, (int[]){1, 2}, 2, false);
    train_by_sgd(s, square_error(s, dense(s, y, "narrow", 3, 0, 1)));
    check(s, "all_reduce 72, all_reduce 1152");
}

/* ---- norms of divided features ---- */

/* Forward: the mean and the variance of each example. Backward: two sums more. The gradient of the scale needs none. */
Test(tensor, layer_norm_of_divided_features_exchanges_sums_of_rows) {
    scene *s = begin();
    strata_tensor *y = dense(s, features(s, 5), "wide", 7, 1, 1);
    strata_tensor *scale = parameter(s, "gamma", STRATA_SHAPE(7), 0, 1), *shift = parameter(s, "beta", STRATA_SHAPE(7), 0, 1);
    y = dense(s, strata_layer_norm(y, scale, shift, 1e-3), "narrow", 3, 0, 1);
    train_by_sgd(s, square_error(s, y));
    check(s, "all_reduce 24, all_reduce 24, all_reduce 72, all_reduce 24, all_reduce 24, all_reduce 120");
}

/* As the layer rms_norm builds it. */
Test(tensor, rms_norm_of_divided_features_exchanges_a_sum_of_each_row_forward_and_one_backward) {
    scene *s = begin();
    strata_tensor *y = dense(s, features(s, 5), "wide", 7, 1, 1);
    strata_tensor *squares = strata_reduce_mean(strata_square(y), (int[]){-1}, 1, true);
    y = strata_mul(y, strata_rsqrt(strata_add(squares, strata_scalar(s->graph, STRATA_DTYPE_F32, 1e-3))));
    y = strata_mul(y, parameter(s, "gamma", STRATA_SHAPE(7), 0, 1));
    train_by_sgd(s, square_error(s, dense(s, y, "narrow", 3, 0, 1)));
    check(s, "all_reduce 24, all_reduce 72, all_reduce 24, all_reduce 120");
}

/* As the layer group_norm builds it: whole groups are divided. */
Test(tensor, group_norm_of_divided_groups_needs_no_exchange) {
    scene *s = begin();
    strata_tensor *y = dense(s, features(s, 5), "wide", 12, 1, 3);
    y = strata_reshape(y, STRATA_SHAPE(BATCH, 1, 4, 3));
    y = strata_sub(y, strata_reduce_mean(y, (int[]){1, 3}, 2, true));
    strata_tensor *squares = strata_reduce_mean(strata_square(y), (int[]){1, 3}, 2, true);
    y = strata_mul(y, strata_rsqrt(strata_add(squares, strata_scalar(s->graph, STRATA_DTYPE_F32, 1e-3))));
    y = strata_mul(strata_reshape(y, STRATA_SHAPE(BATCH, 12)), parameter(s, "gamma", STRATA_SHAPE(12), 0, 3));
    train_by_sgd(s, square_error(s, dense(s, y, "narrow", 3, 0, 3)));
    check(s, "all_reduce 72, all_reduce 120");
}

/* ---- lstm and gru ---- */

/* The gates are the last dimension of the kernels, so pieces of it are no units. */
Test(tensor, recurrent_kernels_by_gates_are_gathered) {
    scene *s = begin();
    strata_tensor *x = sequence(s, 5), *kernel = parameter(s, "kernel", STRATA_SHAPE(5, 12), 1, 1);
    strata_tensor *matrix = parameter(s, "matrix", STRATA_SHAPE(3, 12), 1, 1);
    strata_tensor *bias = parameter(s, "bias", STRATA_SHAPE(12), 0, 1);
    strata_tensor *y =
        strata_lstm(strata_matmul(x, kernel, false, false), matrix, bias, NULL, (strata_recurrent_options){.last = true});
    train_by_sgd(s, square_error(s, y));
    check(s, "all_gather 864, all_gather 144, all_gather 48, all_gather 144, all_reduce 360");
}

/* ---- chains, residuals, concat, slice, dropout ---- */

Test(tensor, chains_residuals_concat_and_slices_of_divided_features_need_no_exchange) {
    scene *s = begin();
    strata_tensor *x = features(s, 5), *a = strata_relu(dense(s, x, "a", 6, 1, 1)), *b = strata_tanh(dense(s, x, "b", 6, 1, 1));
    strata_tensor *both = strata_add(a, strata_mul(b, strata_sigmoid(a)));
    strata_tensor *pairs[] = {strata_reshape(both, STRATA_SHAPE(BATCH, 1, 6)), strata_reshape(b, STRATA_SHAPE(BATCH, 1, 6))};
    strata_tensor *rows = strata_slice(strata_concat(pairs, 2, 1), (int64_t[]){0, 1, 0}, (int64_t[]){BATCH, 1, 6});
    both = strata_add(both, strata_reshape(rows, STRATA_SHAPE(BATCH, 6)));
    train_by_sgd(s, square_error(s, dense(s, both, "narrow", 3, 0, 1)));
    check(s, "all_reduce 72, all_reduce 120");
}

/* The parts that a concat or a slice along the divided dimension makes of the devices' pieces are no pieces of the result. */
Test(tensor, operands_of_a_concat_and_of_a_slice_along_the_divided_features_are_gathered) {
    scene *s = begin();
    strata_tensor *x = features(s, 5), *parts[] = {dense(s, x, "a", 4, 1, 1), dense(s, x, "b", 6, 1, 1)};
    strata_tensor *both = strata_tanh(strata_concat(parts, 2, 1));
    both = strata_slice(both, (int64_t[]){0, 1}, (int64_t[]){BATCH, 7});
    train_by_sgd(s, square_error(s, dense(s, both, "narrow", 3, 0, 1)));
    check(s, "all_gather 96, all_gather 144, all_reduce 72, all_gather 168, all_reduce 120");
}

static strata_tensor *random_state(scene *s) {
    strata_array words = strata_test_full(STRATA_DTYPE_I32, STRATA_SHAPE(STRATA_RNG_WORDS), 0);
    memcpy(words.data, (int32_t[]){12, 34, 5}, 3 * sizeof(int32_t));
    return copied(s, "rng", words);
}

/* Masks that differ would make the losses differ. */
Test(tensor, dropout_of_divided_features_drops_the_elements_that_one_device_drops) {
    scene *s = begin();
    strata_tensor *rng = random_state(s);
    strata_tensor *y = strata_dropout(dense(s, features(s, 5), "wide", 7, 1, 1), rng, 3, 0.4);
    y = dense(s, y, "narrow", 3, 0, 1);
    train_by_sgd(s, square_error(s, strata_dropout(y, rng, 4, 0.4)));
    check(s, "all_reduce 72, all_reduce 120");
}

/* ---- optimizers ---- */

/* A model in which some parameters are divided and some are copies. */
static void train_with(strata_optimizer settings, const char *exchanges) {
    scene *s = begin();
    strata_tensor *y = strata_relu(dense(s, features(s, 5), "wide", 7, 1, 1));
    settings.learning_rate = 0.1;
    train(s, square_error(s, dense(s, y, "narrow", 3, 0, 1)), settings);
    check(s, exchanges);
}

#define PAIR "all_reduce 72, all_reduce 120"

Test(tensor, updates_of_divided_parameters_need_no_exchange) {
    train_with((strata_optimizer){.name = "sgd", .momentum = 0.9, .nesterov = true}, PAIR);
    train_with((strata_optimizer){.name = "sgd", .clip_value = 0.01}, PAIR);
    train_with((strata_optimizer){.name = "adam"}, PAIR);
    train_with((strata_optimizer){.name = "adamw"}, PAIR);
    train_with((strata_optimizer){.name = "rmsprop", .momentum = 0.9, .centered = true}, PAIR);
    train_with((strata_optimizer){.name = "adagrad"}, PAIR);
}

/* Copies count once. */
Test(tensor, the_norm_of_all_gradients_is_one_number) {
    train_with((strata_optimizer){.name = "sgd", .clip_global_norm = 0.01}, PAIR ", all_reduce 4");
}

/* The kernel and the bias of the first layer, and the kernel of the second. */
Test(tensor, norms_of_divided_parameters_are_of_the_whole_parameter) {
    train_with((strata_optimizer){.name = "sgd", .clip_norm = 0.01}, PAIR ", all_reduce 4, all_reduce 4, all_reduce 4");
    train_with((strata_optimizer){.name = "lars", .momentum = 0.9},
               PAIR ", all_reduce 4, all_reduce 4, all_reduce 4, all_reduce 4, all_reduce 4, all_reduce 4");
    train_with((strata_optimizer){.name = "lamb"},
               PAIR ", all_reduce 4, all_reduce 4, all_reduce 4, all_reduce 4, all_reduce 4, all_reduce 4");
}

/* ---- variables that are divided along the axis of the examples ---- */

/* Each kernel and bias is gathered once, and each gradient becomes pieces when it is added up. */
Test(tensor, parameters_divided_over_the_axis_of_the_examples_are_gathered_and_examples_are_not) {
    scene *s = begin();
    strata_tensor *y = strata_relu(dense(s, features(s, 5), "wide", 7, 1, 1));
    train(s, square_error(s, dense(s, y, "narrow", 3, 0, 1)), (strata_optimizer){.name = "adam"});
    check_zero(
        s, 3,
        "all_gather 80, all_gather 20, all_gather 140, all_gather 28, all_gather 84, all_gather 12, "
        "reduce_scatter 40, reduce_scatter 12, reduce_scatter 84, reduce_scatter 16, reduce_scatter 56, reduce_scatter 8, "
        "all_reduce 4",
        "all_reduce, all_reduce");
}

Test(tensor, a_table_divided_over_the_axis_of_the_examples_is_gathered) {
    scene *s = begin();
    strata_tensor *x = strata_gather(parameter(s, "table", STRATA_SHAPE(11, 4), 1, 1), tokens(s, 3, 11), 0);
    train_by_sgd(s, square_error(s, dense(s, strata_tanh(x), "dense", 3, 0, 1)));
    check_zero(
        s, 3,
        "all_gather 176, all_gather 48, all_gather 12, reduce_scatter 96, reduce_scatter 32, reduce_scatter 8, all_reduce 4",
        "all_reduce");
}

/* Gradients become pieces when they are added up, and the updated pieces of the parameters are gathered. */
Test(tensor, slots_divided_over_the_axis_of_the_examples_make_each_device_update_its_piece) {
    scene *s = begin();
    strata_tensor *y = strata_relu(dense(s, features(s, 5), "wide", 7, 1, 1));
    train(s, square_error(s, dense(s, y, "narrow", 3, 0, 1)), (strata_optimizer){.name = "adam"});
    check_zero(
        s, 1,
        "reduce_scatter 40, reduce_scatter 12, reduce_scatter 84, reduce_scatter 16, reduce_scatter 56, reduce_scatter 8, "
        "all_gather 80, all_gather 20, all_gather 140, all_gather 28, all_gather 84, all_gather 12, all_reduce 4",
        "all_reduce, all_reduce");
}

/* The pieces of gradients add up to one norm, to which a piece that several devices have counts once. */
Test(tensor, norms_of_pieces_are_those_of_the_whole_parameters) {
    for (int level = 1; level <= 3; level += 2) {
        scene *s = begin();
        strata_tensor *y = dense(s, features(s, 4), "wide", 2, 1, 1);
        train(s, square_error(s, y),
              (strata_optimizer){.name = "sgd", .learning_rate = 0.5, .momentum = 0.9, .clip_global_norm = 0.01});
        check_zero(s, level,
                   level == 1 ? "reduce_scatter 32, reduce_scatter 8, reduce_scatter 16, reduce_scatter 4, all_reduce 4, "
                                "all_gather 64, all_gather 16, all_gather 32, all_gather 8, all_reduce 4"
                              : "all_gather 64, all_gather 16, all_gather 32, all_gather 8, "
                                "reduce_scatter 32, reduce_scatter 8, reduce_scatter 16, reduce_scatter 4, all_reduce 4, "
                                "all_reduce 4",
                   "all_reduce, all_reduce, all_reduce");
    }
}
