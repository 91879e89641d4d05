/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes the predictions of a model as one C file. The layers are built as a graph for one example. Each node that an
 * output needs becomes a block of loops (c_ops.c), in the order of the graph. Weights become constants. An intermediate
 * result uses the memory of results that no later node needs. */
#include "core/interchange/c_export.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "strata/file.h"
#include "strata/interchange.h"
#include "strata/version.h"

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
    int n_inputs, n_outputs;
    strata_tensor *inputs[STRATA_MAX_INPUTS], *outputs[STRATA_MAX_OUTPUTS];
    /* The names of the function's parameters: of the inputs, and then of the outputs. */
    char parameters[STRATA_MAX_INPUTS + STRATA_MAX_OUTPUTS][MOST_NAME + 8];
} walk;

void strata_c_identifier(const char *name, char *out, size_t bytes) {
    static const char digits[] = "0123456789", letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    size_t n = 0;
    if (*name && strchr(digits, *name) && n + 1 < bytes) out[n++] = '_';
    for (; *name && n + 1 < bytes; name++) out[n++] = strchr(letters, *name) || strchr(digits, *name) ? *name : '_';
    if (!n && bytes > 1) out[n++] = '_';
    out[n] = 0;
}

/* ---- which nodes are needed, and where their values are stored ---- */

static int type_of(const strata_tensor *t) {
    const char *type = strata_c_type(strata_tensor_dtype(t));
    for (int i = 0; type && i < N_TYPES; i++)
        if (!strcmp(types[i].type, type)) return i;
    return -1;
}

static int64_t elements(const strata_tensor *t) {
    return strata_shape_elements(strata_tensor_shape(t));
}

static strata_shape_string shape_text(const strata_tensor *t) {
    return strata_shape_text(strata_tensor_shape(t));
}

/* Whether the node is an input or a constant. */
static bool is_leaf(const strata_tensor *t) {
    return !strata_tensor_node(t).n_inputs;
}

static int root_of(const walk *w, const strata_tensor *t) {
    return w->roots[strata_tensor_node(t).index];
}

static void find_needed(walk *w) {
    for (int i = 0; i < w->c.n_nodes; i++) {
        const strata_node_info node = strata_tensor_node(strata_graph_tensor(w->c.graph, i));
        w->last[i] = -1;
        w->roots[i] = node.view ? root_of(w, node.inputs[0]) : i;
    }
    for (int i = 0; i < w->n_outputs; i++) w->last[strata_tensor_node(w->outputs[i]).index] = w->c.n_nodes;
    for (int i = w->c.n_nodes - 1; i >= 0; i--) {
        const strata_node_info node = strata_tensor_node(strata_graph_tensor(w->c.graph, i));
        if (w->last[i] < 0) continue;
        for (int k = 0; k < node.n_inputs; k++) {
            int *last = &w->last[strata_tensor_node(node.inputs[k]).index];
            if (*last < i) *last = i;
        }
        if (w->last[w->roots[i]] < w->last[i]) w->last[w->roots[i]] = w->last[i];
    }
}

/* Places the value of node `id` in the first gap, between values that are needed at the same time, that is large enough. */
static void place_value(walk *w, int id) {
    const strata_tensor *t = strata_graph_tensor(w->c.graph, id);
    const int type = type_of(t);
    const int64_t size = elements(t);
    int64_t at = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (int i = 0; i < id; i++) {
            if (w->roots[i] != i || w->last[i] < id) continue;
            const strata_tensor *other = strata_graph_tensor(w->c.graph, i);
            if (is_leaf(other) || type_of(other) != type) continue;
            const int64_t end = w->offsets[i] + elements(other);
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

static strata_status place_leaf(walk *w, const strata_tensor *t, strata_error *err) {
    strata_c_export *c = &w->c;
    const strata_node_info node = strata_tensor_node(t);
    char *place = c->places[node.index];
    for (int i = 0; i < w->n_inputs; i++)
        if (w->inputs[i] == t) {
            snprintf(place, STRATA_C_PLACE_BYTES, "%s", w->parameters[i]);
            return STRATA_OK;
        }
    const int parameter = node.name ? strata_parameter_find(c->model, NULL, node.name) : -1;
    const void *data = parameter < 0 ? node.data : c->weights.arrays[parameter].data;
    if (!data) return strata_fail(err, STRATA_INTERNAL, "C: %s has no elements", node.name ? node.name : node.op);
    snprintf(place, STRATA_C_PLACE_BYTES, "%s_%s%d", c->name, node.name ? "w" : "c", node.index);
    if (node.name) strata_text_add(&c->constants, "/* %s %s */\n", node.name, shape_text(t).text);
    add_array(&c->constants, strata_tensor_dtype(t), place, data, elements(t));
    return STRATA_OK;
}

/* ---- the statements ---- */

static void add_block(walk *w, const strata_tensor *t, strata_text *unsupported) {
    strata_c_export *c = &w->c;
    const strata_node_info node = strata_tensor_node(t);
    strata_text_add(&c->body, "    { /* %s %s */\n", node.op, shape_text(t).text);
    for (int i = 0; i < node.n_inputs; i++)
        strata_text_add(&c->body, "        const %s *const in%d = %s;\n", strata_c_type(strata_tensor_dtype(node.inputs[i])), i,
                        c->places[root_of(w, node.inputs[i])]);
    strata_text_add(&c->body, "        %s *const out = %s;\n", strata_c_type(strata_tensor_dtype(t)), c->places[node.index]);
    if (!strata_c_find(t)(c, t))
        strata_text_add(unsupported, "%s%s %s", unsupported->n_bytes ? ", " : "", node.op, shape_text(t).text);
    strata_text_add(&c->body, "    }\n");
}

/* Fails with a list of all ops and types that cannot be written as C, each listed once. */
static strata_status check_ops(const walk *w, strata_error *err) {
    strata_text missing = {0};
    for (int i = 0; i < w->c.n_nodes; i++) {
        const strata_tensor *t = strata_graph_tensor(w->c.graph, i);
        const strata_dtype dtype = strata_tensor_dtype(t);
        bool earlier = false;
        if (w->last[i] < 0 || (strata_c_type(dtype) && (is_leaf(t) || w->roots[i] != i || strata_c_find(t)))) continue;
        for (int k = 0; k < i; k++) {
            const strata_tensor *before = strata_graph_tensor(w->c.graph, k);
            earlier |= w->last[k] >= 0 && !strcmp(strata_tensor_node(before).op, strata_tensor_node(t).op) &&
                       strata_tensor_dtype(before) == dtype;
        }
        if (earlier) continue;
        strata_text_add(&missing, "%s%s", missing.n_bytes ? ", " : "", strata_tensor_node(t).op);
        if (!strata_c_type(dtype)) strata_text_add(&missing, " of %s", strata_dtype_name(dtype));
    }
    const strata_status status =
        missing.n_bytes ? strata_fail(err, STRATA_UNSUPPORTED, "there is no C for: %.900s", missing.bytes) : STRATA_OK;
    strata_text_finish(&missing);
    return status;
}

/* Checks the size of the file, which consists almost only of the digits of its numbers. */
static strata_status check_size(const walk *w, int64_t most, strata_error *err) {
    int64_t numbers = 0;
    for (int i = 0; i < w->c.n_nodes; i++) {
        const strata_tensor *t = strata_graph_tensor(w->c.graph, i);
        if (w->last[i] < 0) continue;
        if (elements(t) > INT32_MAX / 8)
            return strata_fail(err, STRATA_UNSUPPORTED, "%s %s is too large for a program in C", strata_tensor_node(t).op,
                               shape_text(t).text);
        if (is_leaf(t)) numbers += elements(t);
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
    for (int i = 0; i < c->n_nodes; i++) {
        const strata_tensor *t = strata_graph_tensor(c->graph, i);
        if (w->last[i] < 0 || w->roots[i] != i) continue;
        if (is_leaf(t)) {
            STRATA_TRY(place_leaf(w, t, err));
            continue;
        }
        place_value(w, i);
        snprintf(c->places[i], sizeof c->places[i], "memory->%s + %lld", types[type_of(t)].field, (long long)w->offsets[i]);
        add_block(w, t, &unsupported);
    }
    for (int i = 0; i < w->n_outputs; i++) {
        const strata_tensor *y = w->outputs[i];
        strata_text_add(&c->body, "    {\n        const %s *const from = %s;\n", strata_c_type(strata_tensor_dtype(y)),
                        c->places[root_of(w, y)]);
        strata_text_add(&c->body, "        for (int i = 0; i < %lld; i++) %s[i] = (float)from[i];\n    }\n",
                        (long long)elements(y), w->parameters[w->n_inputs + i]);
    }
    const strata_status status =
        unsupported.n_bytes
            ? strata_fail(err, STRATA_UNSUPPORTED, "there is no C for these forms of: %.800s", unsupported.bytes)
            : STRATA_OK;
    strata_text_finish(&unsupported);
    return status;
}

/* ---- the file ---- */

/* Input i of the model, or output i - n_inputs. */
static strata_model_port port_of(const walk *w, int i) {
    return i < w->n_inputs ? strata_model_input_port(w->c.model, i) : strata_model_output_port(w->c.model, i - w->n_inputs);
}

static void add_signature(const walk *w, strata_text *out, bool names_only) {
    for (int i = 0; i < w->n_inputs + w->n_outputs; i++) {
        const bool input = i < w->n_inputs;
        if (!names_only)
            strata_text_add(out, "%s%s *", input ? "const " : "",
                            input ? strata_c_type(strata_tensor_dtype(w->inputs[i])) : "float");
        strata_text_add(out, "%s%s", w->parameters[i], i + 1 < w->n_inputs + w->n_outputs ? ", " : "");
    }
}

/* Adds a user's text to a comment, without characters that could end the comment. */
static void add_comment_text(strata_text *out, const char *text) {
    for (; *text; text++)
        strata_text_add(out, "%c", (text[0] == '*' && text[1] == '/') || (unsigned char)*text < ' ' ? ' ' : *text);
}

static void add_head(const walk *w, const strata_text *usage, strata_text *out) {
    const char *name = w->c.name;
    strata_text_add(out, "/* A model of Strata %s as C, for one example at a time. It needs libm and nothing else.\n *\n",
                    STRATA_VERSION);
    strata_text_add(out, " *     void %s_predict(", name);
    add_signature(w, out, false);
    strata_text_add(out, ");\n *\n");
    for (int i = 0; i < w->n_inputs + w->n_outputs; i++) {
        const strata_model_port port = port_of(w, i);
        strata_text_add(out, " *   %s  %s, %lld elements, %s \"", w->parameters[i], strata_shape_text(port.shape).text,
                        (long long)strata_shape_elements(port.shape), i < w->n_inputs ? "input" : "output");
        add_comment_text(out, port.name);
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
    for (int i = 0; i < w->n_inputs + w->n_outputs; i++) {
        const bool input = i < w->n_inputs;
        const char *kind = input ? "x" : "y";
        char own[MOST_NAME];
        strata_c_identifier(port_of(w, i).name, own, sizeof own);
        if ((input ? w->n_inputs : w->n_outputs) == 1)
            snprintf(w->parameters[i], sizeof w->parameters[i], "%s", kind);
        else
            snprintf(w->parameters[i], sizeof w->parameters[i], "%s_%s", kind, own);
        for (int k = 0; k < i; k++)
            if (!strcmp(w->parameters[k], w->parameters[i]))
                snprintf(w->parameters[i], sizeof w->parameters[i], "%s_%d", kind, i);
    }
}

static strata_status export_graph(walk *w, const char *path, int64_t most, strata_error *err) {
    w->c.n_nodes = strata_graph_n_nodes(w->c.graph);
    const size_t n = (size_t)w->c.n_nodes + 1;
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
    if (opts.most_bytes < 0) return strata_fail(err, STRATA_INVALID, "save_c: most_bytes is below 0");
    strata_c_identifier(opts.name ? opts.name : file ? file + 1 : path, name, sizeof name);
    const size_t n_name = strlen(name);
    if (!opts.name && n_name > 2 && !strcmp(name + n_name - 2, "_c")) name[n_name - 2] = 0; /* "model.c" gives "model" */
    if (opts.name && strcmp(name, opts.name))
        return strata_fail(err, STRATA_INVALID, "save_c: the name \"%.60s\" is no identifier of C of at most %d letters",
                           opts.name, MOST_NAME - 1);
    walk w = {.c = {.model = model, .name = name}};
    strata_status status = strata_weights_read(model, "save_c", &w.c.weights, err);
    if (!status) status = strata_model_graph(model, &w.c.graph, w.inputs, w.outputs, err);
    w.n_inputs = strata_model_n_inputs(model);
    w.n_outputs = strata_model_n_outputs(model);
    if (!status) name_parameters(&w);
    if (!status) status = export_graph(&w, path, opts.most_bytes ? opts.most_bytes : DEFAULT_MOST_BYTES, err);
    strata_text_finish(&w.c.constants);
    strata_text_finish(&w.c.body);
    strata_graph_destroy(w.c.graph);
    free(w.roots);
    free(w.last);
    free(w.offsets);
    free(w.c.places);
    strata_weights_finish(&w.c.weights);
    return status;
}
