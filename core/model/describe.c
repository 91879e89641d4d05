/* SPDX-License-Identifier: Apache-2.0
 *
 * What graphs and models consist of, for programs that convert them to other formats. The public header is
 * strata/describe.h. */
#include "strata/describe.h"

#include "core/graph/graph.h"
#include "core/model/build.h"
#include "core/op/ops.h"

/* ---- graphs ---- */

static const struct {
    const char *op, *formula;
} formulas[] = {
#define UNARY_NUMBER(code, name, expression)  {#name, #expression},
#define UNARY_FLOAT(code, name, expression)   {#name, #expression},
#define BINARY_NUMBER(code, name, expression) {#name, #expression},
#define BINARY_FLOAT(code, name, expression)  {#name, #expression},
#define COMPARE(code, name, expression)       {#name, #expression},
#include "core/op/elementwise.def"
};

int strata_graph_n_nodes(const strata_graph *graph) {
    return graph->n_nodes;
}

strata_tensor *strata_graph_tensor(const strata_graph *graph, int index) {
    return graph->nodes[index];
}

strata_node_info strata_tensor_node(const strata_tensor *t) {
    strata_node_info node = {
        .op = t->op->name, .index = t->id, .inputs = t->inputs, .n_inputs = t->n_inputs, .view = t->op->flags & STRATA_OP_VIEW};
    if (t->op == &strata_op_input) node.name = ((const strata_input_attrs *)t->attrs)->name;
    if (t->op == &strata_op_constant) node.data = ((const strata_constant_attrs *)t->attrs)->data;
    for (size_t i = 0; i < sizeof formulas / sizeof *formulas; i++)
        if (!strcmp(formulas[i].op, t->op->name)) node.formula = formulas[i].formula;
    return node;
}

double strata_tensor_attribute(const strata_tensor *t, const char *name, int index) {
    const strata_attr_field *field = t->op->attrs;
    while (field->name && strcmp(field->name, name)) field++;
    if (!field->name) return 0;
    const void *at = (const char *)t->attrs + field->offset;
    if (field->kind == STRATA_ATTR_FLOAT) return *(const double *)at;
    if (field->kind == STRATA_ATTR_CODES || field->kind == STRATA_ATTR_POINTER) return 0;
    const int64_t *ints = field->kind == STRATA_ATTR_LIST    ? *(const int64_t *const *)at
                          : field->kind == STRATA_ATTR_SHAPE ? ((const strata_shape *)at)->dims
                                                             : at;
    const bool axis = !strncmp(name, "axis", 4) || !strcmp(name, "axes");
    return (double)(ints[index] < 0 && axis ? ints[index] + t->inputs[0]->shape.rank : ints[index]);
}

const char *strata_tensor_word(const strata_tensor *t, const char *name) {
    for (const strata_attr_words *row = t->op->words; row && row->attribute; row++)
        if (!strcmp(row->attribute, name)) return row->words[(int)strata_tensor_attribute(t, name, 0)];
    return NULL;
}

strata_status strata_graph_evaluate(const strata_graph *graph, strata_graph_reader read, void *user, strata_array *values,
                                    strata_error *err) {
    int most = 0;
    for (int id = 0; id < graph->n_nodes; id++) most = graph->nodes[id]->n_inputs > most ? graph->nodes[id]->n_inputs : most;
    STRATA_FREED const void **inputs = NULL;
    STRATA_TRY(STRATA_NEW(inputs, most + 1, err, "graph: no host memory"));
    for (int id = 0; id < graph->n_nodes; id++) {
        const strata_tensor *node = graph->nodes[id];
        strata_array *y = &values[id];
        STRATA_TRY(strata_array_create(node->dtype, node->shape, y, err));
        for (int i = 0; i < node->n_inputs; i++) inputs[i] = values[node->inputs[i]->id].data;
        if (strata_shape_elements(node->shape) == 0) continue;
        if (node->op == &strata_op_input)
            STRATA_TRY(read(((const strata_input_attrs *)node->attrs)->name, y, user, err));
        else if (node->op == &strata_op_constant)
            memcpy(y->data, ((const strata_constant_attrs *)node->attrs)->data, strata_array_bytes(y));
        else if (node->op->flags & STRATA_OP_LEAF)
            return strata_fail(err, STRATA_UNSUPPORTED, "graph: it reads a variable, which only a device has");
        else
            STRATA_TRY(strata_reference((strata_op_call){.node = node, .inputs = inputs, .output = y->data}, err));
    }
    return STRATA_OK;
}

/* ---- layers and models ---- */

strata_tensor *strata_layer_apply(const char *kind, const char *name, const void *options, strata_tensor *const *inputs,
                                  int n) {
    strata_graph *graph = strata_tensor_graph(inputs[0]);
    strata_parameter_set parameters = {0};
    strata_layer_context context = {.declaring = true, .parameters = &parameters};
    strata_layer layer = {.options = (void *)options, .name = (char *)(name ? name : "")}; /* they are only read */
    strata_error reason = {0};
    strata_graph_set_scope(graph, name);
    strata_status status = strata_registry_find_layer(NULL, kind, &layer.kind, &reason);
    if (!status) status = strata_layer_check_options(NULL, &layer, &reason);
    strata_tensor *y = status ? strata_graph_poison(graph, NULL, status, "%s", reason.message)
                              : strata_layer_build(&context, &layer, 1, name, inputs, n, NULL);
    strata_graph_set_scope(graph, NULL);
    strata_parameters_finish(&parameters);
    return y;
}

typedef struct walk {
    strata_layer_context context;
    strata_call *calls;
    int n;
    /* [n] The layer of each call, and its value. */
    struct made {
        const strata_layer *layer;
        strata_tensor *y;
    } * made;
} walk;

/* Appends a call; NULL: there is no memory. */
static strata_call *append(walk *w, const strata_layer *layer, strata_tensor *y) {
    if (!strata_grow(&w->calls, w->n, sizeof *w->calls) || !strata_grow(&w->made, w->n, sizeof *w->made)) {
        strata_graph_poison(strata_tensor_graph(y), NULL, STRATA_OUT_OF_MEMORY, "model: no host memory for its calls");
        return NULL;
    }
    w->made[w->n] = (struct made){layer, y};
    w->calls[w->n] =
        (strata_call){.kind = "input", .first = w->n, .shape = strata_tensor_shape(y), .dtype = strata_tensor_dtype(y)};
    return &w->calls[w->n++];
}

/* Adds a call of the layer, after those of the layers inside of it, and returns its index. */
static int add_call(walk *w, const strata_layer *layer, int number, const int *inputs, int n) {
    strata_tensor *taken[STRATA_MAX_LAYER_INPUTS];
    int ends[STRATA_MAX_BRANCHES];
    for (int i = 0; i < n; i++) taken[i] = w->made[inputs[i]].y;
    strata_tensor *y = strata_layer_build(&w->context, layer, number, layer->name, taken, n, NULL);
    if (strata_tensor_is_poison(y)) return inputs[0];
    for (int b = 0; b < STRATA_MAX_BRANCHES && layer->kind->branches[0]; b++) {
        ends[b] = inputs[0];
        for (int i = 0; i < layer->branches[b].n; i++)
            ends[b] = add_call(w, &layer->branches[b].layers[i], number, &ends[b], 1);
    }
    if (layer->kind->branches[0]) inputs = ends, n = STRATA_MAX_BRANCHES;
    strata_call *call = append(w, layer, y);
    if (!call) return inputs[0];
    call->kind = layer->kind->name;
    call->name = layer->name;
    call->options = layer->options;
    call->fields = layer->kind->options;
    call->own = layer->kind->own;
    call->frozen = layer->frozen;
    call->n_inputs = n;
    memcpy(call->inputs, inputs, (size_t)n * sizeof *inputs);
    for (int i = 0; number > 1 && i < call->first; i++)
        if (w->made[i].layer == layer) call->first = i;
    return w->n - 1;
}

static void walk_values(walk *w, const strata_model *model, strata_graph *graph, int *place, strata_model_structure *out) {
    for (int i = 0; i < model->n_inputs; i++) {
        strata_tensor *x = strata_model_make_input(model, graph, i, model->inputs[i].dtype, 1);
        strata_call *call = append(w, NULL, x);
        if (call) call->name = strata_model_input_port(model, i).name;
        w->context.inputs[w->context.n_inputs++] = x;
        place[model->inputs[i].value] = i;
    }
    for (int v = 0; v < model->n_values && w->n >= model->n_inputs; v++) {
        const strata_value *value = model->values[v];
        int inputs[STRATA_MAX_LAYER_INPUTS];
        if (value->layer < 0) continue;
        for (int i = 0; i < value->n_inputs; i++) inputs[i] = place[value->inputs[i]];
        place[v] = add_call(w, &model->list.layers[value->layer], value->number, inputs, value->n_inputs);
    }
    for (int i = 0; i < model->n_outputs; i++) {
        out->outputs[i] = place[model->outputs[i].value];
        out->activations[i] = strata_output_activation(&model->outputs[i]);
    }
}

strata_status strata_model_describe(strata_model *model, strata_model_structure *out, strata_error *err) {
    STRATA_FREED int *place = NULL;
    strata_graph *graph = NULL;
    strata_parameter_set parameters = {0};
    walk w = {.context = {.declaring = true, .parameters = &parameters}};
    *out = (strata_model_structure){.sequential = !model->functional};
    STRATA_TRY(strata_model_declare(model, err));
    STRATA_TRY(STRATA_NEW(place, model->n_values, err, "model: no host memory for its calls"));
    STRATA_TRY(strata_graph_create(&graph, err));
    graph->activations = model->registry ? model->registry->activations : NULL;
    walk_values(&w, model, graph, place, out);
    const strata_status status = strata_graph_check(graph, err);
    strata_graph_destroy(graph);
    strata_parameters_finish(&parameters);
    free(w.made);
    out->calls = w.calls;
    out->n_calls = w.n;
    if (!status) return STRATA_OK;
    free(w.calls);
    out->calls = NULL;
    return status;
}

const char *strata_model_note_key(const strata_model *model, int index) {
    return index < model->notes.n ? model->notes.items[index].key + strlen("strata.") : NULL;
}
