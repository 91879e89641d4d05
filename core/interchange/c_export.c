/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes the predictions of a model as one C file. The layers are built as a graph for one example. Each node that an
 * output needs becomes a block of loops (c_ops.c), in the order of the graph. Weights become constants. An intermediate
 * result uses the memory of results that no later node needs. */
#include "core/interchange/c_export.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/ascii.h"
#include "core/base/file.h"
#include "core/graph/graph.h"
#include "core/model/build.h"
#include "core/model/data.h"
#include "strata/interchange.h"
#include "strata/version.h"

extern const strata_op strata_op_input, strata_op_constant;

enum { MOST_NAME = 48, DEFAULT_MOST_BYTES = 64 << 20, BYTES_A_NUMBER = 16, N_TYPES = 4 };

/* The types of elements. Each has its own array in the memory struct. */
static const struct {
    const char *type, *field;
} types[N_TYPES] = {{"float", "f"}, {"int32_t", "i"}, {"int64_t", "l"}, {"uint8_t", "b"}};

typedef struct walk {
    strata_c_export c;
    /* [n_nodes] roots: the node that owns the memory of the node's value; for a view this is another node. last: the last
     * node that needs the value (-1: none). offsets: the position of the value in the array of its type. */
    int *roots, *last;
    int64_t *offsets;
    int64_t sizes[N_TYPES];
    strata_tensor *inputs[STRATA_MAX_INPUTS], *outputs[STRATA_MAX_OUTPUTS];
    char parameters[STRATA_MAX_INPUTS + STRATA_MAX_OUTPUTS][MOST_NAME + 8];
} walk;

void strata_c_identifier(const char *name, char *out, size_t bytes) {
    size_t n = 0;
    if (strata_ascii_is_digit(*name) && n + 1 < bytes) out[n++] = '_';
    for (; *name && n + 1 < bytes; name++) out[n++] = strata_ascii_is_word(*name) ? *name : '_';
    if (!n && bytes > 1) out[n++] = '_';
    out[n] = 0;
}

/* ---- which nodes are needed, and where their values are stored ---- */

static int type_of(strata_dtype dtype) {
    const char *type = strata_c_type(dtype);
    for (int i = 0; type && i < N_TYPES; i++)
        if (!strcmp(types[i].type, type)) return i;
    return -1;
}

static bool is_leaf(const strata_tensor *node) {
    return node->op->flags & STRATA_OP_LEAF;
}

static void find_needed(walk *w) {
    const strata_graph *graph = w->c.graph;
    for (int i = 0; i < graph->n_nodes; i++) {
        const strata_tensor *node = graph->nodes[i];
        w->last[i] = -1;
        w->roots[i] = node->op->flags & STRATA_OP_VIEW ? w->roots[node->inputs[0]->id] : i;
    }
    for (int i = 0; i < w->c.model->n_outputs; i++) w->last[w->outputs[i]->id] = graph->n_nodes;
    for (int i = graph->n_nodes - 1; i >= 0; i--) {
        const strata_tensor *node = graph->nodes[i];
        if (w->last[i] < 0) continue;
        for (int k = 0; k < node->n_inputs; k++)
            if (w->last[node->inputs[k]->id] < i) w->last[node->inputs[k]->id] = i;
        if (w->last[w->roots[i]] < w->last[i]) w->last[w->roots[i]] = w->last[i];
    }
}

/* Places the value of node `id` in the first gap, between values that are needed at the same time, that is large enough. */
static void place_value(walk *w, int id) {
    const strata_graph *graph = w->c.graph;
    const int type = type_of(graph->nodes[id]->dtype);
    const int64_t size = strata_shape_elements(graph->nodes[id]->shape);
    int64_t at = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (int i = 0; i < id; i++) {
            const strata_tensor *other = graph->nodes[i];
            if (w->roots[i] != i || is_leaf(other) || w->last[i] < id || type_of(other->dtype) != type) continue;
            const int64_t end = w->offsets[i] + strata_shape_elements(other->shape);
            if (at >= end || at + size <= w->offsets[i]) continue;
            at = end;
            moved = true;
        }
    }
    w->offsets[id] = at;
    if (at + size > w->sizes[type]) w->sizes[type] = at + size;
}

/* ---- weights and constants ---- */

static void add_array(strata_text *text, strata_dtype dtype, const char *name, const void *data, int64_t n) {
    strata_text_add(text, "static const %s %s[%lld] = {", strata_c_type(dtype), name, (long long)n);
    for (int64_t i = 0; i < n; i++) {
        strata_text_add(text, i % 8 ? ", " : i ? ",\n    " : "\n    ");
        if (dtype == STRATA_DTYPE_F32)
            strata_c_add_float(text, (double)((const float *)data)[i]);
        else
            strata_text_add(text, "%.0f", strata_element_get(dtype, data, i));
    }
    strata_text_add(text, "};\n");
}

static const float *values_of(const strata_c_export *c, const char *parameter) {
    for (int i = 0; i < c->model->parameters.n; i++)
        if (!strcmp(c->model->parameters.items[i].name, parameter))
            return c->values + strata_model_place(c->model, &c->model->parameters.items[i]);
    return NULL;
}

static strata_status place_leaf(walk *w, const strata_tensor *node, strata_error *err) {
    strata_c_export *c = &w->c;
    char *place = c->places[node->id];
    for (int i = 0; i < c->model->n_inputs; i++)
        if (w->inputs[i] == node) {
            snprintf(place, STRATA_C_PLACE_BYTES, "%s", w->parameters[i]);
            return STRATA_OK;
        }
    const bool weight = node->op == &strata_op_input;
    const char *name = weight ? ((const strata_input_attrs *)node->attrs)->name : NULL;
    const void *data = weight                            ? (const void *)values_of(c, name)
                       : node->op == &strata_op_constant ? ((const strata_constant_attrs *)node->attrs)->data
                                                         : NULL;
    if (!data) return strata_fail(err, STRATA_INTERNAL, "C: %s has no elements", name ? name : node->op->name);
    snprintf(place, STRATA_C_PLACE_BYTES, "%s_%s%d", c->name, weight ? "w" : "c", node->id);
    if (weight) strata_text_add(&c->constants, "/* %s %s */\n", name, strata_shape_text(node->shape).text);
    add_array(&c->constants, node->dtype, place, data, strata_shape_elements(node->shape));
    return STRATA_OK;
}

/* ---- the statements ---- */

static void add_block(walk *w, const strata_tensor *node, strata_c_emit emit, strata_text *unsupported) {
    strata_c_export *c = &w->c;
    strata_text_add(&c->body, "    { /* %s %s */\n", node->op->name, strata_shape_text(node->shape).text);
    for (int i = 0; i < node->n_inputs; i++)
        strata_text_add(&c->body, "        const %s *const in%d = %s;\n", strata_c_type(node->inputs[i]->dtype), i,
                        c->places[w->roots[node->inputs[i]->id]]);
    strata_text_add(&c->body, "        %s *const out = %s;\n", strata_c_type(node->dtype), c->places[node->id]);
    if (!emit(c, node))
        strata_text_add(unsupported, "%s%s %s", unsupported->n_bytes ? ", " : "", node->op->name,
                        strata_shape_text(node->shape).text);
    strata_text_add(&c->body, "    }\n");
}

/* Fails with a list of all ops and types that cannot be written as C, each listed once. */
static strata_status check_ops(const walk *w, strata_error *err) {
    const strata_graph *graph = w->c.graph;
    strata_text missing = {0};
    for (int i = 0; i < graph->n_nodes; i++) {
        const strata_tensor *node = graph->nodes[i];
        bool earlier = false;
        if (w->last[i] < 0) continue;
        const bool type = strata_c_type(node->dtype);
        if (type && (is_leaf(node) || w->roots[i] != i || strata_c_find(node->op))) continue;
        for (int k = 0; k < i; k++)
            earlier |= w->last[k] >= 0 && graph->nodes[k]->op == node->op && graph->nodes[k]->dtype == node->dtype;
        if (earlier) continue;
        strata_text_add(&missing, "%s%s", missing.n_bytes ? ", " : "", node->op->name);
        if (!type) strata_text_add(&missing, " of %s", strata_dtype_name(node->dtype));
    }
    const strata_status status =
        missing.n_bytes ? strata_fail(err, STRATA_UNSUPPORTED, "there is no C for: %.900s", missing.bytes) : STRATA_OK;
    strata_text_finish(&missing);
    return status;
}

/* Checks the size of the file, which consists almost only of the digits of its numbers. */
static strata_status check_size(const walk *w, int64_t most, strata_error *err) {
    int64_t numbers = 0;
    for (int i = 0; i < w->c.graph->n_nodes; i++) {
        const strata_tensor *node = w->c.graph->nodes[i];
        const int64_t n = strata_shape_elements(node->shape);
        if (w->last[i] < 0) continue;
        if (n > INT32_MAX / 8)
            return strata_fail(err, STRATA_UNSUPPORTED, "%s %s is too large for a program in C", node->op->name,
                               strata_shape_text(node->shape).text);
        if (is_leaf(node)) numbers += n;
    }
    if (numbers <= most / BYTES_A_NUMBER) return STRATA_OK;
    return strata_fail(err, STRATA_UNSUPPORTED,
                       "%lld weights would be a file of about %lld MiB, more than %lld MiB: allow more, or export to ONNX",
                       (long long)numbers, (long long)((numbers * BYTES_A_NUMBER + (1 << 20) - 1) >> 20),
                       (long long)(most >> 20));
}

static strata_status write_body(walk *w, int64_t most, strata_error *err) {
    strata_c_export *c = &w->c;
    strata_text unsupported = {0};
    STRATA_TRY(check_ops(w, err));
    STRATA_TRY(check_size(w, most, err));
    for (int i = 0; i < c->graph->n_nodes; i++) {
        const strata_tensor *node = c->graph->nodes[i];
        if (w->last[i] < 0 || w->roots[i] != i) continue;
        if (is_leaf(node)) {
            STRATA_TRY(place_leaf(w, node, err));
            continue;
        }
        place_value(w, i);
        snprintf(c->places[i], sizeof c->places[i], "memory->%s + %lld", types[type_of(node->dtype)].field,
                 (long long)w->offsets[i]);
        add_block(w, node, strata_c_find(node->op), &unsupported);
    }
    for (int i = 0; i < c->model->n_outputs; i++) {
        const strata_tensor *y = w->outputs[i];
        strata_text_add(&c->body, "    {\n        const %s *const from = %s;\n", strata_c_type(y->dtype),
                        c->places[w->roots[y->id]]);
        strata_text_add(&c->body, "        for (int i = 0; i < %lld; i++) %s[i] = (float)from[i];\n    }\n",
                        (long long)strata_shape_elements(y->shape), w->parameters[c->model->n_inputs + i]);
    }
    const strata_status status =
        unsupported.n_bytes
            ? strata_fail(err, STRATA_UNSUPPORTED, "there is no C for these forms of: %.800s", unsupported.bytes)
            : STRATA_OK;
    strata_text_finish(&unsupported);
    return status;
}

/* ---- the file ---- */

static void add_signature(const walk *w, strata_text *out, bool names_only) {
    const strata_model *model = w->c.model;
    for (int i = 0; i < model->n_inputs + model->n_outputs; i++) {
        const bool input = i < model->n_inputs;
        if (!names_only)
            strata_text_add(out, "%s%s *", input ? "const " : "", input ? strata_c_type(w->inputs[i]->dtype) : "float");
        strata_text_add(out, "%s%s", w->parameters[i], i + 1 < model->n_inputs + model->n_outputs ? ", " : "");
    }
}

/* Adds a user's text to a comment, without characters that could end the comment. */
static void add_comment_text(strata_text *out, const char *text) {
    for (; *text; text++)
        strata_text_add(out, "%c", (text[0] == '*' && text[1] == '/') || (unsigned char)*text < ' ' ? ' ' : *text);
}

static void add_head(const walk *w, const strata_text *usage, strata_text *out) {
    const strata_model *model = w->c.model;
    const char *name = w->c.name;
    strata_text_add(out, "/* A model of Strata %s as C, for one example at a time. It needs libm and nothing else.\n *\n",
                    STRATA_VERSION);
    strata_text_add(out, " *     void %s_predict(", name);
    add_signature(w, out, false);
    strata_text_add(out, ");\n *\n");
    for (int i = 0; i < model->n_inputs + model->n_outputs; i++) {
        const bool input = i < model->n_inputs;
        const strata_shape shape = input ? model->inputs[i].shape : model->outputs[i - model->n_inputs].shape;
        strata_text_add(out, " *   %s  %s, %lld elements, %s \"", w->parameters[i], strata_shape_text(shape).text,
                        (long long)strata_shape_elements(shape), input ? "input" : "output");
        add_comment_text(out, input ? strata_model_input_port(model, i).name : strata_output_name(model, i - model->n_inputs));
        strata_text_add(out, "\"\n");
    }
    if (usage->bytes) strata_text_add(out, "%s", usage->bytes);
    strata_text_add(
        out,
        " *\n * To call these functions, include this file, or compile it by itself and copy the declarations. Axes are in "
        "C's\n"
        " * order, images (height, width, channels). %s_predict stores intermediate results in static memory, so only\n"
        " * one thread may call it at a time; %s_predict_in uses memory of the caller. */\n",
        name, name);
    strata_text_add(out, "#include <math.h>\n#include <stdint.h>\n#include <string.h>\n\n");
    strata_c_add_words(&w->c.body, out);
    strata_text_add(out, "\n#ifdef __cplusplus\nextern \"C\" {\n#endif\n\n");
}

static void add_functions(const walk *w, strata_text *out) {
    const char *name = w->c.name;
    strata_text_add(out, "\n/* Intermediate results. */\ntypedef struct %s_memory {\n", name);
    int64_t all = 0;
    for (int i = 0; i < N_TYPES; i++) {
        all += w->sizes[i];
        if (w->sizes[i]) strata_text_add(out, "    %s %s[%lld];\n", types[i].type, types[i].field, (long long)w->sizes[i]);
    }
    if (!all) strata_text_add(out, "    float f[1];\n");
    strata_text_add(out, "} %s_memory;\n\nvoid %s_predict_in(", name, name);
    add_signature(w, out, false);
    strata_text_add(out, ", %s_memory *memory);\nvoid %s_predict_in(", name, name);
    add_signature(w, out, false);
    strata_text_add(out, ", %s_memory *memory) {\n    (void)memory;\n", name);
    strata_text_add_bytes(out, w->c.body.bytes, w->c.body.n_bytes);
    strata_text_add(out, "}\n\nvoid %s_predict(", name);
    add_signature(w, out, false);
    strata_text_add(out, ");\nvoid %s_predict(", name);
    add_signature(w, out, false);
    strata_text_add(out, ") {\n    static %s_memory memory;\n    %s_predict_in(", name, name);
    add_signature(w, out, true);
    strata_text_add(out, ", &memory);\n}\n");
}

static strata_status write_file(walk *w, const char *path, strata_error *err) {
    strata_text columns = {0}, usage = {0}, out = {0};
    char *bytes = NULL;
    size_t n_bytes = 0;
    strata_status status = strata_c_add_columns(w->c.model, w->c.name, &columns, &usage, err);
    if (!status) {
        add_head(w, &usage, &out);
        if (w->c.constants.bytes) strata_text_add_bytes(&out, w->c.constants.bytes, w->c.constants.n_bytes);
        add_functions(w, &out);
        if (columns.bytes) strata_text_add_bytes(&out, columns.bytes, columns.n_bytes);
        strata_text_add(&out, "\n#ifdef __cplusplus\n}\n#endif\n");
        out.failed |= columns.failed || usage.failed || w->c.constants.failed || w->c.body.failed;
        status = strata_text_take(&out, &bytes, &n_bytes, err);
    }
    if (!status) status = strata_file_write(path, bytes, n_bytes, err);
    free(bytes);
    strata_text_finish(&columns);
    strata_text_finish(&usage);
    strata_text_finish(&out);
    return status;
}

/* ---- the graph ---- */

static void name_parameters(walk *w) {
    const strata_model *model = w->c.model;
    for (int i = 0; i < model->n_inputs + model->n_outputs; i++) {
        const bool input = i < model->n_inputs;
        const int n = input ? model->n_inputs : model->n_outputs;
        char own[MOST_NAME];
        strata_c_identifier(input ? strata_model_input_port(model, i).name : strata_output_name(model, i - model->n_inputs),
                            own, sizeof own);
        if (n == 1)
            snprintf(w->parameters[i], sizeof w->parameters[i], "%s", input ? "x" : "y");
        else
            snprintf(w->parameters[i], sizeof w->parameters[i], "%s_%s", input ? "x" : "y", own);
        for (int k = 0; k < i; k++)
            if (!strcmp(w->parameters[k], w->parameters[i]))
                snprintf(w->parameters[i], sizeof w->parameters[i], "%s_%d", input ? "x" : "y", i);
    }
}

/* Builds the graph that computes what predict computes, for one example. The parameters are inputs of the graph, with
 * their names. */
static strata_status build(walk *w, strata_layer_context *context, strata_error *err) {
    strata_model *model = w->c.model;
    strata_graph *graph = w->c.graph;
    graph->activations = model->registry ? model->registry->activations : NULL;
    for (int i = 0; i < model->n_inputs; i++) {
        w->inputs[i] = strata_model_make_input(model, graph, i, model->inputs[i].dtype, 1);
        context->inputs[context->n_inputs++] = w->inputs[i];
    }
    strata_model_build_calls(model, context, w->inputs, w->outputs);
    for (int i = 0; i < model->n_outputs; i++) {
        const strata_output_spec *output = &model->outputs[i];
        w->outputs[i] = strata_loss_predict(output->loss, &output->loss_options, w->outputs[i]);
    }
    return strata_graph_check(graph, err);
}

static strata_status export_graph(walk *w, const char *path, int64_t most, strata_error *err) {
    const size_t n = (size_t)w->c.graph->n_nodes + 1;
    w->roots = calloc(n, sizeof *w->roots);
    w->last = calloc(n, sizeof *w->last);
    w->offsets = calloc(n, sizeof *w->offsets);
    w->c.places = calloc(n, sizeof *w->c.places);
    if (!w->roots || !w->last || !w->offsets || !w->c.places)
        return strata_fail(err, STRATA_OUT_OF_MEMORY, "%s: no host memory", path);
    find_needed(w);
    STRATA_TRY(write_body(w, most, err));
    return write_file(w, path, err);
}

strata_status strata_model_save_c(strata_model *model, const char *path, strata_c_options opts, strata_error *err) {
    char name[MOST_NAME];
    const char *file = strrchr(path, '/');
    STRATA_TRY(strata_model_declare(model, err));
    STRATA_TRY(strata_model_check_readable(model, "save_c", err));
    if (opts.most_bytes < 0) return strata_fail(err, STRATA_INVALID, "save_c: most_bytes is below 0");
    strata_c_identifier(opts.name ? opts.name : file ? file + 1 : path, name, sizeof name);
    const size_t n_name = strlen(name);
    if (!opts.name && n_name > 2 && !strcmp(name + n_name - 2, "_c")) name[n_name - 2] = 0; /* "model.c" gives "model" */
    if (opts.name && strcmp(name, opts.name))
        return strata_fail(err, STRATA_INVALID, "save_c: the name \"%.60s\" is no identifier of C of at most %d letters",
                           opts.name, MOST_NAME - 1);
    walk w = {.c = {.model = model, .name = name}};
    strata_parameter_set parameters = {0};
    strata_layer_context context = {.declaring = true, .parameters = &parameters};
    w.c.values = malloc((size_t)strata_model_all_size(model) * sizeof *w.c.values + 1);
    strata_status status = w.c.values ? strata_model_read_all(model, w.c.values, err)
                                      : strata_fail(err, STRATA_OUT_OF_MEMORY, "%s: no host memory", path);
    if (!status) status = strata_graph_create(&w.c.graph, err);
    if (!status) {
        name_parameters(&w);
        status = build(&w, &context, err);
    }
    if (!status) status = export_graph(&w, path, opts.most_bytes ? opts.most_bytes : DEFAULT_MOST_BYTES, err);
    strata_text_finish(&w.c.constants);
    strata_text_finish(&w.c.body);
    strata_graph_destroy(w.c.graph);
    strata_parameters_finish(&parameters);
    free(w.roots);
    free(w.last);
    free(w.offsets);
    free(w.c.places);
    free(w.c.values);
    return status;
}
