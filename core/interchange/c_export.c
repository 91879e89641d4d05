/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes the predictions of a model as one C file. The layers are built as a graph for one example. Each node that an
 * output needs becomes a block of loops (c_ops.c), in the order of the graph. Weights become constants. An intermediate
 * result uses the memory of results that no later node needs. */
#include "core/interchange/c_export.h"

#include <stdio.h>

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

/* Makes an identifier from a name: every other character becomes '_'. */
static void identifier(const char *name, char *out, size_t bytes) {
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
    if (!strata_c_write(c, t))
        strata_text_add(unsupported, "%s%s %s", unsupported->n_bytes ? ", " : "", node.op, shape_text(t).text);
    strata_text_add(&c->body, "    }\n");
}

/* Fails with a list of all ops and types that cannot be written as C, each listed once. */
static strata_status check_ops(const walk *w, strata_error *err) {
    STRATA_FINISHED_BY(strata_text_finish) strata_text missing = {0};
    for (int i = 0; i < w->c.n_nodes; i++) {
        const strata_tensor *t = strata_graph_tensor(w->c.graph, i);
        const strata_dtype dtype = strata_tensor_dtype(t);
        bool earlier = false;
        if (w->last[i] < 0 || (strata_c_type(dtype) && (is_leaf(t) || w->roots[i] != i || strata_c_has(t)))) continue;
        for (int k = 0; k < i; k++) {
            const strata_tensor *before = strata_graph_tensor(w->c.graph, k);
            earlier |= w->last[k] >= 0 && !strcmp(strata_tensor_node(before).op, strata_tensor_node(t).op) &&
                       strata_tensor_dtype(before) == dtype;
        }
        if (earlier) continue;
        strata_text_add(&missing, "%s%s", missing.n_bytes ? ", " : "", strata_tensor_node(t).op);
        if (!strata_c_type(dtype)) strata_text_add(&missing, " of %s", strata_dtype_name(dtype));
    }
    return missing.n_bytes ? strata_fail(err, STRATA_UNSUPPORTED, "there is no C for: %.900s", missing.bytes) : STRATA_OK;
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
    STRATA_FINISHED_BY(strata_text_finish) strata_text unsupported = {0};
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
    if (!unsupported.n_bytes) return STRATA_OK;
    return strata_fail(err, STRATA_UNSUPPORTED, "there is no C for these forms of: %.800s", unsupported.bytes);
}

/* ---- what the model knows about the columns of a table ----
 * The type of a row, the computation of its features, the names of classes, and the conversion of standardised labels back to
 * the numbers of the table. The C code does not divide texts into words: a model of texts gets tokens. */

enum { MOST_FIELD = 48 };

/* Writes a string literal. Other characters than plain ASCII become octal escapes of three digits, so that a digit that
 * follows cannot become a part of one. */
static void add_string(strata_text *out, const char *text) {
    strata_text_add(out, "\"");
    for (const unsigned char *at = (const unsigned char *)text; *at; at++) {
        if (*at < ' ' || *at > 126 || *at == '?')
            strata_text_add(out, "\\%03o", *at);
        else
            strata_text_add(out, *at == '"' || *at == '\\' ? "\\%c" : "%c", *at);
    }
    strata_text_add(out, "\"");
}

typedef struct field {
    char text[MOST_FIELD + 16];
} field;

/* The name of a column's field. It begins with "c_", so that it cannot be a keyword of C. If several columns have the
 * same name, the column's index is appended. */
static field field_of(const strata_preprocessing *p, int column) {
    field out;
    char own[MOST_FIELD], other[MOST_FIELD];
    const char *name = strata_preprocessing_column(p, column).name;
    identifier(name ? name : "", own, sizeof own);
    snprintf(out.text, sizeof out.text, "c_%s", own);
    for (int i = 0; i < strata_preprocessing_n_columns(p); i++) {
        name = strata_preprocessing_column(p, i).name;
        identifier(name ? name : "", other, sizeof other);
        if (i != column && !strcmp(own, other)) snprintf(out.text, sizeof out.text, "c_%s_%d", own, column);
    }
    return out;
}

static void add_row_type(const strata_preprocessing *p, const char *name, strata_text *out) {
    strata_text_add(
        out, "\n/* A row of the table. A number that is missing is NAN, a word NULL or \"\". */\ntypedef struct %s_row {\n",
        name);
    for (int i = 0; i < strata_preprocessing_n_columns(p); i++) {
        const strata_column_info column = strata_preprocessing_column(p, i);
        if (column.kind == STRATA_COLUMN_DATE)
            strata_text_add(out, "    /* Days since 1970-01-01, with a fraction for the time of day. */\n");
        if (column.kind != STRATA_COLUMN_TEXT)
            strata_text_add(out, "    %s%s;\n",
                            column.kind == STRATA_COLUMN_WORDS && !column.numeric ? "const char *" : "double ",
                            field_of(p, i).text);
    }
    strata_text_add(out, "} %s_row;\n", name);
}

static void add_cycle(const char *value, double days, strata_text *out) {
    strata_text_add(out, "    turn = 2 * 3.14159265358979323846 * (%s / ", value);
    strata_c_add_double(out, days);
    strata_text_add(out, " - floor(%s / ", value);
    strata_c_add_double(out, days);
    strata_text_add(out, "));\n    *x++ = isnan(%s) ? 0 : (float)sin(turn);\n    *x++ = isnan(%s) ? 0 : (float)cos(turn);\n",
                    value, value);
}

static void add_number(const strata_column_info *column, const char *name, strata_text *out) {
    char value[MOST_FIELD + 32];
    snprintf(value, sizeof value, "row->%s", name);
    strata_text_add(out, "    *x++ = isnan(%s) ? 0 : (float)((%s - ", value, value);
    strata_c_add_double(out, column->mean);
    strata_text_add(out, ") / ");
    strata_c_add_double(out, column->deviation);
    strata_text_add(out, ");\n");
    if (column->has_missing) strata_text_add(out, "    *x++ = isnan(%s) ? 1 : 0;\n", value);
    if (column->kind != STRATA_COLUMN_DATE) return;
    add_cycle(value, 365.2425, out);
    add_cycle(value, 7, out);
    if (column->has_time) add_cycle(value, 1, out);
}

/* Writes the condition that the row has this word. */
static void add_condition(const strata_column_info *column, const char *name, const char *word, strata_text *out) {
    double number = 0;
    if (column->numeric && strata_cell_number(word, column->format, &number)) {
        strata_text_add(out, "row->%s == ", name);
        strata_c_add_double(out, number);
    } else if (column->numeric) { /* "", a missing number */
        strata_text_add(out, "isnan(row->%s)", name);
    } else {
        strata_text_add(out, "!strcmp(row->%s ? row->%s : \"\", ", name, name);
        add_string(out, word);
        strata_text_add(out, ")");
    }
}

/* Writes one feature for each word, and one for all rare words. */
static void add_words(const strata_column_info *column, const char *name, strata_text *out) {
    for (int k = 0; k < column->n_words; k++) {
        strata_text_add(out, "    *x++ = ");
        add_condition(column, name, column->words[k], out);
        strata_text_add(out, " ? 1 : 0;\n");
    }
    for (int k = 0; k < column->n_rare; k++) {
        strata_text_add(out, k ? " ||\n           " : "    *x++ = ");
        add_condition(column, name, column->rare[k], out);
    }
    if (column->n_rare) strata_text_add(out, " ? 1 : 0;\n");
}

/* Writes the function that computes the features, in the order of the columns. */
static void add_encoding(const strata_preprocessing *p, const char *name, strata_text *out) {
    bool dates = false;
    for (int i = 0; i < strata_preprocessing_n_columns(p); i++)
        dates |= strata_preprocessing_column(p, i).kind == STRATA_COLUMN_DATE;
    strata_text_add(out, "\nvoid %s_features(const %s_row *row, float *x);\nvoid %s_features(const %s_row *row, float *x) {\n",
                    name, name, name, name);
    if (dates) strata_text_add(out, "    double turn;\n");
    for (int i = 0; i < strata_preprocessing_n_columns(p); i++) {
        const strata_column_info column = strata_preprocessing_column(p, i);
        if (column.kind == STRATA_COLUMN_WORDS)
            add_words(&column, field_of(p, i).text, out);
        else if (column.kind != STRATA_COLUMN_TEXT)
            add_number(&column, field_of(p, i).text, out);
    }
    strata_text_add(out, "}\n");
}

static void add_classes(const strata_column_info *label, const char *name, strata_text *out) {
    strata_text_add(
        out,
        "\nconst char *%s_class(int index);\nconst char *%s_class(int index) {\n    static const char *const names[%d] = {",
        name, name, label->n_words);
    for (int i = 0; i < label->n_words; i++) {
        strata_text_add(out, i ? ", " : "");
        add_string(out, label->words[i]);
    }
    strata_text_add(out, "};\n    return index >= 0 && index < %d ? names[index] : NULL;\n}\n", label->n_words);
}

/* Writes the function that converts the labels back: y = y deviation + mean. */
static void add_restoring(const strata_preprocessing *p, const char *name, strata_text *out) {
    strata_text_add(out, "\nvoid %s_restore(float *y);\nvoid %s_restore(float *y) {\n", name, name);
    for (int i = 0; i < strata_preprocessing_n_labels(p); i++) {
        const strata_column_info label = strata_preprocessing_label_column(p, i);
        strata_text_add(out, "    y[%d] = (float)(y[%d] * ", i, i);
        strata_c_add_double(out, label.deviation);
        strata_text_add(out, " + ");
        strata_c_add_double(out, label.mean);
        strata_text_add(out, ");\n");
    }
    strata_text_add(out, "}\n");
}

static void add_array_scaling(const strata_column_info *column, const char *name, int64_t n, strata_text *out) {
    strata_text_add(out,
                    "\nvoid %s_standardize(float *x);\nvoid %s_standardize(float *x) {\n    for (int i = 0; i < %lld; i++) "
                    "x[i] = isnan(x[i]) ? 0 : (float)((x[i] - ",
                    name, name, (long long)n);
    strata_c_add_double(out, column->mean);
    strata_text_add(out, ") / ");
    strata_c_add_double(out, column->deviation);
    strata_text_add(out, ");\n}\n");
}

/* If the model has a preprocessing, adds the type of a row, the computation of the features and the names of the classes.
 * `usage` receives their description for the comment at the top of the file. */
static strata_status add_columns(const strata_model *model, const char *name, strata_text *out, strata_text *usage,
                                 strata_error *err) {
    strata_preprocessing *p = NULL;
    if (!strata_model_note(model, "preprocessing")) {
        if (strata_model_note(model, "tokenizer"))
            strata_text_add(usage, " *\n * x has tokens: indices in the vocabulary, which is in the .strata file.\n");
        return STRATA_OK;
    }
    STRATA_TRY(strata_model_preprocessing(model, &p, err));
    const strata_preprocessing_kind kind = strata_preprocessing_get_kind(p);
    const strata_shape element = strata_preprocessing_element(p);
    const int n_columns = strata_preprocessing_n_columns(p), n_labels = strata_preprocessing_n_labels(p);
    const strata_column_info label = n_labels ? strata_preprocessing_label_column(p, 0) : (strata_column_info){0};
    const bool arrays = kind == STRATA_PREPROCESSING_ARRAYS && element.rank > 1, words = label.kind == STRATA_COLUMN_WORDS;
    const bool rows = !arrays && n_columns && kind != STRATA_PREPROCESSING_TEXTS && kind != STRATA_PREPROCESSING_PICTURES;
    strata_text_add(usage, " *\n");
    if (rows) {
        add_row_type(p, name, out);
        add_encoding(p, name, out);
        strata_text_add(
            usage, " *     void %s_features(const %s_row *row, float *x);    x of a row of the table; %s_row is near the end\n",
            name, name, name);
    }
    if (arrays) {
        const strata_column_info column = strata_preprocessing_column(p, 0);
        add_array_scaling(&column, name, strata_shape_elements(element), out);
        strata_text_add(usage, " *     void %s_standardize(float *x);    converts the numbers of an array to x, in place\n",
                        name);
    }
    if (kind == STRATA_PREPROCESSING_PICTURES) strata_text_add(usage, " * x has pixels from 0 to 1.\n");
    if (strata_preprocessing_vocabulary(p))
        strata_text_add(usage, " * Texts are given as tokens: indices in the vocabulary, which is in the .strata file.\n");
    if (n_labels == 1 && words) {
        add_classes(&label, name, out);
        strata_text_add(usage, " *     const char *%s_class(int index);    the name of a class; NULL: there is no such class\n",
                        name);
    }
    if (n_labels && !words) {
        add_restoring(p, name, out);
        strata_text_add(usage, " *     void %s_restore(float *y);    the label in the table's own numbers\n", name);
    }
    strata_preprocessing_destroy(p);
    return STRATA_OK;
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
    STRATA_FINISHED_BY(strata_text_finish) strata_text columns = {0}, usage = {0}, out = {0};
    STRATA_FREED char *bytes = NULL;
    size_t n_bytes = 0;
    STRATA_TRY(add_columns(w->c.model, w->c.name, &columns, &usage, err));
    add_head(w, &usage, &out);
    if (w->c.constants.bytes) strata_text_add_bytes(&out, w->c.constants.bytes, w->c.constants.n_bytes);
    add_functions(w, &out);
    if (columns.bytes) strata_text_add_bytes(&out, columns.bytes, columns.n_bytes);
    strata_text_add(&out, "\n#ifdef __cplusplus\n}\n#endif\n");
    out.failed |= columns.failed || usage.failed || w->c.constants.failed || w->c.body.failed;
    STRATA_TRY(strata_text_take(&out, &bytes, &n_bytes, err));
    return strata_file_write(path, bytes, n_bytes, err);
}

/* ---- the graph ---- */

static void name_parameters(walk *w) {
    for (int i = 0; i < w->n_inputs + w->n_outputs; i++) {
        const bool input = i < w->n_inputs;
        const char *kind = input ? "x" : "y";
        char own[MOST_NAME];
        identifier(port_of(w, i).name, own, sizeof own);
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
    const int n = w->c.n_nodes + 1;
    STRATA_TRY(STRATA_NEW(w->roots, n, err, "%s: no host memory", path));
    STRATA_TRY(STRATA_NEW(w->last, n, err, "%s: no host memory", path));
    STRATA_TRY(STRATA_NEW(w->offsets, n, err, "%s: no host memory", path));
    STRATA_TRY(STRATA_NEW(w->c.places, n, err, "%s: no host memory", path));
    find_needed(w);
    STRATA_TRY(write_body(w, most, err));
    return write_file(w, path, err);
}

static void finish(walk *w) {
    strata_text_finish(&w->c.constants);
    strata_text_finish(&w->c.body);
    strata_graph_destroy(w->c.graph);
    free(w->roots);
    free(w->last);
    free(w->offsets);
    free(w->c.places);
    strata_weights_finish(&w->c.weights);
}

strata_status strata_model_save_c(strata_model *model, const char *path, strata_c_options opts, strata_error *err) {
    char name[MOST_NAME];
    const char *file = strrchr(path, '/');
    if (opts.most_bytes < 0) return strata_fail(err, STRATA_INVALID, "save_c: most_bytes is below 0");
    identifier(opts.name ? opts.name : file ? file + 1 : path, name, sizeof name);
    const size_t n_name = strlen(name);
    if (!opts.name && n_name > 2 && !strcmp(name + n_name - 2, "_c")) name[n_name - 2] = 0; /* "model.c" gives "model" */
    if (opts.name && strcmp(name, opts.name))
        return strata_fail(err, STRATA_INVALID, "save_c: the name \"%.60s\" is no identifier of C of at most %d letters",
                           opts.name, MOST_NAME - 1);
    STRATA_FINISHED_BY(finish) walk w = {.c = {.model = model, .name = name}};
    STRATA_TRY(strata_weights_read(model, "save_c", &w.c.weights, err));
    STRATA_TRY(strata_model_graph(model, &w.c.graph, w.inputs, w.outputs, err));
    w.n_inputs = strata_model_n_inputs(model);
    w.n_outputs = strata_model_n_outputs(model);
    name_parameters(&w);
    return export_graph(&w, path, opts.most_bytes ? opts.most_bytes : DEFAULT_MOST_BYTES, err);
}
