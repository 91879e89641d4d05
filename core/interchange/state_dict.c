/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads and writes the weights of PyTorch models that are stored as safetensors. A map relates the names. PyTorch has a
 * layer's outputs first and the channels of images first, so most weights have their axes in another order. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/file.h"
#include "core/base/locale.h"
#include "core/data/format/safetensors.h"
#include "core/model/build.h"
#include "core/model/data.h"
#include "strata/interchange.h"

enum { MOST_MAP_BYTES = 16 << 20, WORD_BYTES = 256 };

/* The orders of axes in PyTorch: axis i of Strata's weight is axis axes[i] of the file's weight. */
static const struct {
    const char *name;
    int rank, axes[STRATA_MAX_RANK];
} orders[] = {{"linear", 2, {1, 0}},
              {"conv1d", 3, {2, 1, 0}},
              {"conv2d", 4, {2, 3, 1, 0}},
              {"conv2d_transpose", 4, {2, 3, 1, 0}},
              {"depthwise", 4, {2, 3, 0, 1}}};
enum { N_ORDERS = sizeof orders / sizeof *orders, SAME = -1 };

static bool fits(strata_shape theirs, strata_shape ours, int order) {
    if (order == SAME)
        return strata_shape_elements(theirs) == strata_shape_elements(ours) &&
               (theirs.rank == ours.rank || theirs.rank <= 1 || ours.rank <= 1);
    if (theirs.rank != orders[order].rank || ours.rank != theirs.rank) return false;
    for (int d = 0; d < ours.rank; d++)
        if (ours.dims[d] != theirs.dims[orders[order].axes[d]]) return false;
    return true;
}

/* Copies the elements from the file's order to Strata's order. */
static void permute(const float *from, strata_shape theirs, int order, strata_shape ours, float *to) {
    int64_t strides[STRATA_MAX_RANK], place[STRATA_MAX_RANK] = {0}, stride = 1;
    const int64_t n = strata_shape_elements(ours);
    if (order == SAME) {
        memcpy(to, from, (size_t)n * sizeof *to);
        return;
    }
    for (int d = theirs.rank - 1; d >= 0; d--) {
        strides[d] = stride;
        stride *= theirs.dims[d];
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t at = 0;
        for (int d = 0; d < ours.rank; d++) at += place[d] * strides[orders[order].axes[d]];
        to[i] = from[at];
        for (int d = ours.rank - 1; d >= 0 && ++place[d] == ours.dims[d]; d--) place[d] = 0;
    }
}

/* A line of the map: the name in the file, the name in the model, and the order of axes ("": not given). */
typedef struct line {
    int number;
    char theirs[WORD_BYTES], ours[WORD_BYTES], order[WORD_BYTES];
    /* The index of the model's parameter; -1: the line only says that the tensors of the file are left out. */
    int parameter;
} line;

/* The order that the line names. If it names none, the order with which the shapes fit. */
static strata_status choose(const line *l, const char *map, strata_shape theirs, strata_shape ours, int *out,
                            strata_error *err) {
    *out = SAME;
    for (int i = 0; i < N_ORDERS && *l->order; i++)
        if (!strcmp(orders[i].name, l->order)) *out = i;
    if (*l->order && *out == SAME && strcmp(l->order, "same"))
        return strata_fail(err, STRATA_DATA,
                           "%s:%d: \"%.40s\" is no order of axes; there are: same, linear, conv1d, conv2d, conv2d_transpose, "
                           "depthwise",
                           map, l->number, l->order);
    if (!*l->order) { /* if both fit, PyTorch's order is more likely than the same order */
        for (int i = 0; i < N_ORDERS && *out == SAME; i++)
            if (fits(theirs, ours, i)) *out = i;
        if (*out == 0 && fits(theirs, ours, SAME) && strstr(l->ours, "embeddings")) *out = SAME;
    }
    if (fits(theirs, ours, *out)) return STRATA_OK;
    return strata_fail(err, STRATA_DATA, "%s:%d: %.80s is %s, which does not become %.80s, %s", map, l->number, l->theirs,
                       strata_shape_text(theirs).text, l->ours, strata_shape_text(ours).text);
}

/* ---- recurrent layers ---- */

/* PyTorch's LSTM and GRU have two biases, bias_ih and bias_hh, which two lines of a map may give to one parameter "bias". An
 * LSTM adds them. The bias of a GRU has a row for each, unless the layer has `no_reset_after`; then it is their sum, too.
 * PyTorch's GRU has its gates in the order r z n, Strata's in the order z r h. */
typedef struct recurrent {
    bool bias, swaps;
    /* The rows of the parameter: 2 for a bias that is not a sum. */
    int rows;
} recurrent;

static const strata_layer *find_layer(const strata_layer_list *list, const char *parameter) {
    const strata_layer *found = NULL;
    for (int i = 0; i < list->n && !found; i++) {
        const strata_layer *layer = &list->layers[i];
        const size_t n = strlen(layer->name);
        if (!strncmp(layer->name, parameter, n) && parameter[n] == '/') return layer;
        for (int b = 0; b < STRATA_MAX_BRANCHES && !found; b++) found = find_layer(&layer->branches[b], parameter);
    }
    return found;
}

static recurrent recurrent_of(const strata_model *model, const strata_parameter_spec *spec, const line *l) {
    const strata_layer *layer = find_layer(&model->list, spec->name);
    const char *end = strrchr(spec->name, '/');
    const bool gru = layer && !strcmp(layer->kind->name, "gru"), lstm = layer && !strcmp(layer->kind->name, "lstm");
    const bool bias = (gru || lstm) && end && (!strcmp(end, "/bias") || !strcmp(end, "/backward_bias"));
    return (recurrent){bias, gru && strcmp(l->order, "same"), bias && spec->shape.rank == 2 ? 2 : 1};
}

/* Exchanges the first two of the three gates in each row of `n` numbers. Its own inverse. */
static void swap_gates(float *values, int64_t n, int64_t width) {
    const int64_t units = width / 3;
    for (int64_t row = 0; row + width <= n; row += width)
        for (int64_t u = 0; u < units; u++) {
            const float first = values[row + u];
            values[row + u] = values[row + units + u];
            values[row + units + u] = first;
        }
}

/* ---- the map ---- */

/* The state of reading a state dict into a model's values, or of writing it from them. */
typedef struct transfer {
    strata_model *model;
    const char *map;
    /* (all_size) The parameters and states. */
    float *values;
    line *lines;
    int n_lines;
    /* When reading: `file` is the source. When writing: [n_lines] the tensors to be written, n_written of them. */
    const strata_safetensors *file;
    strata_array *arrays;
    strata_named_array *named;
    size_t n_written;
} transfer;

/* The lines before line `i` that have the same parameter, or, if i is n_lines, all that have it. */
static int count_lines(const transfer *t, int i, int parameter) {
    int n = 0;
    for (int k = 0; k < i; k++) n += t->lines[k].parameter == parameter;
    return n;
}

/* The row of a bias with two rows that line `i` gives: that of its name in PyTorch, or that of its place in the map. */
static int row_of(const transfer *t, int i) {
    const line *l = &t->lines[i];
    return strstr(l->theirs, "_hh") ? 1 : strstr(l->theirs, "_ih") ? 0 : count_lines(t, i, l->parameter);
}

static bool is_left_out(const line *l) {
    return !strcmp(l->ours, "-");
}

/* Whether the line names the tensor. The name of a line that leaves tensors out may end in '*'. */
static bool names(const line *l, const char *tensor) {
    const size_t n = strlen(l->theirs);
    if (is_left_out(l) && n && l->theirs[n - 1] == '*') return !strncmp(l->theirs, tensor, n - 1);
    return !strcmp(l->theirs, tensor);
}

static strata_status check_line(transfer *t, int i, strata_error *err) {
    line *l = &t->lines[i];
    const strata_parameter_set *set = &t->model->parameters;
    l->parameter = -1;
    if (is_left_out(l)) return STRATA_OK;
    int p = 0;
    while (p < set->n && strcmp(set->items[p].name, l->ours)) p++;
    if (p == set->n)
        return strata_fail(err, STRATA_DATA, "%s:%d: the model has no parameter \"%.100s\"", t->map, l->number, l->ours);
    l->parameter = p;
    const int before = count_lines(t, i, p);
    const recurrent r = recurrent_of(t->model, &set->items[p], l);
    bool twice = before > (r.bias ? 1 : 0);
    for (int k = 0; k < i && r.bias; k++)
        twice |= t->lines[k].parameter == p && (!strcmp(t->lines[k].theirs, l->theirs) ||
                                                (r.rows == 2 && (row_of(t, k) == row_of(t, i) || row_of(t, i) > 1)));
    if (twice) return strata_fail(err, STRATA_DATA, "%s:%d: \"%.100s\" is in the map twice", t->map, l->number, l->ours);
    return STRATA_OK;
}

/* Reads the lines of the map, and checks that they name each parameter. */
static strata_status read_lines(transfer *t, char *text, strata_error *err) {
    const strata_parameter_set *set = &t->model->parameters;
    const char *map = t->map;
    int most = 1, number = 0;
    for (const char *at = text; *at; at++) most += *at == '\n';
    t->lines = calloc((size_t)most, sizeof *t->lines);
    if (!t->lines) return strata_fail(err, STRATA_OUT_OF_MEMORY, "%s: no host memory", map);
    for (char *at = text, *end; *at; at = end) {
        char *stop = strchr(at, '\n'), more[2];
        line *l = &t->lines[t->n_lines];
        end = stop ? stop + 1 : at + strlen(at);
        if (stop) *stop = 0;
        *l = (line){.number = ++number};
        const int n = strata_scan(at, "%255s %255s %255s %1s", l->theirs, l->ours, l->order, more);
        if (n < 1 || *l->theirs == '#') continue;
        if (n < 2 || n > 3)
            return strata_fail(err, STRATA_DATA, "%s:%d: a line has two names, and maybe an order of axes", map, l->number);
        STRATA_TRY(check_line(t, t->n_lines, err));
        t->n_lines++;
    }
    for (int p = 0; p < set->n; p++)
        if (!count_lines(t, t->n_lines, p))
            return strata_fail(err, STRATA_DATA, "%s: no line gives the parameter \"%s\"", map, set->items[p].name);
    return STRATA_OK;
}

/* ---- reading ---- */

static strata_status take_line(transfer *t, int i, strata_error *err) {
    const line *l = &t->lines[i];
    const char *map = t->map;
    if (l->parameter < 0) return STRATA_OK;
    const strata_parameter_spec *spec = &t->model->parameters.items[l->parameter];
    const strata_safetensor *tensor = strata_safetensors_find(t->file, l->theirs);
    const recurrent r = recurrent_of(t->model, spec, l);
    strata_shape ours = spec->shape;
    strata_array array;
    int order;
    if (!tensor) return strata_fail(err, STRATA_DATA, "%s:%d: %s has no \"%.100s\"", map, l->number, t->file->name, l->theirs);
    /* A tensor of one row is one of the two rows of the bias; a tensor of two is the whole bias. */
    const bool one_row = r.rows == 2 && strata_shape_elements(tensor->shape) != strata_shape_elements(ours);
    if (one_row) ours = STRATA_SHAPE(ours.dims[1]);
    STRATA_TRY(choose(l, map, tensor->shape, ours, &order, err));
    STRATA_TRY(strata_safetensors_load(t->file, l->theirs, &array, err));
    const int64_t n = strata_shape_elements(ours);
    float *floats = malloc(2 * (size_t)n * sizeof *floats + 1), *to = t->values + strata_model_place(t->model, spec);
    if (floats) {
        float *permuted = floats + n;
        for (int64_t k = 0; k < n; k++) floats[k] = (float)strata_element_get(array.dtype, array.data, k);
        permute(floats, array.shape, order, ours, permuted);
        if (r.swaps) swap_gates(permuted, n, ours.dims[ours.rank - 1]);
        if (one_row) to += row_of(t, i) * n;
        for (int64_t k = 0; k < n; k++) to[k] = r.bias ? to[k] + permuted[k] : permuted[k];
    }
    free(floats);
    strata_array_finish(&array);
    return floats ? STRATA_OK : strata_fail(err, STRATA_OUT_OF_MEMORY, "%s: no host memory", map);
}

/* Fails with a list of the file's tensors that no line names. Counters of steps, which are no weights, are left out. */
static strata_status check_unused(const transfer *t, strata_error *err) {
    strata_text list = {0};
    int n = 0;
    for (size_t i = 0; i < t->file->n_tensors; i++) {
        const strata_safetensor *tensor = &t->file->tensors[i];
        bool used = strata_shape_elements(tensor->shape) == 1 && (*tensor->dtype_name == 'I' || *tensor->dtype_name == 'U');
        for (int k = 0; k < t->n_lines && !used; k++) used = names(&t->lines[k], tensor->name);
        if (!used) strata_text_add(&list, "%s%.100s", n++ ? ", " : "", tensor->name);
    }
    strata_status status = list.failed ? strata_fail(err, STRATA_OUT_OF_MEMORY, "%s: no host memory", t->map) : STRATA_OK;
    if (n && !status)
        status = strata_fail(err, STRATA_DATA,
                             "%s: no line uses %d tensor%s of %s: %.800s%s. Add lines for them; \"NAME -\" leaves one out, "
                             "\"BEGINNING* -\" several. Both biases of an LSTM or GRU go to its one \"bias\"",
                             t->map, n, n > 1 ? "s" : "", t->file->name, list.bytes, list.n_bytes > 800 ? " ..." : "");
    strata_text_finish(&list);
    return status;
}

/* ---- writing ---- */

/* The inverse of permute: reading the written weights gives the same values. */
static void unpermute(const float *from, strata_shape ours, int order, strata_shape theirs, float *to) {
    int64_t strides[STRATA_MAX_RANK], place[STRATA_MAX_RANK] = {0}, stride = 1;
    const int64_t n = strata_shape_elements(ours);
    for (int d = theirs.rank - 1; d >= 0; d--) {
        strides[d] = stride;
        stride *= theirs.dims[d];
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t at = 0;
        for (int d = 0; d < ours.rank; d++) at += place[d] * strides[order == SAME ? d : orders[order].axes[d]];
        to[at] = from[i];
        for (int d = ours.rank - 1; d >= 0 && ++place[d] == ours.dims[d]; d--) place[d] = 0;
    }
}

/* If the line names no order, it follows from the number of axes, as in PyTorch's layers. A table of embeddings and a bias keep
 * their order. */
static int order_of_axes(strata_shape ours, const char *name, bool bias) {
    for (int i = 0; i < N_ORDERS && !strstr(name, "embeddings") && !bias; i++)
        if (orders[i].rank == ours.rank) return i;
    return SAME;
}

static strata_status put_line(transfer *t, int k, strata_error *err) {
    const line *l = &t->lines[k];
    if (l->parameter < 0) return STRATA_OK;
    const strata_parameter_spec *spec = &t->model->parameters.items[l->parameter];
    const recurrent r = recurrent_of(t->model, spec, l);
    const float *from = t->values + strata_model_place(t->model, spec);
    strata_shape ours = spec->shape;
    const int n_lines = count_lines(t, t->n_lines, l->parameter), before = count_lines(t, k, l->parameter);
    if (r.rows == 2 && n_lines == 2) {
        ours = STRATA_SHAPE(ours.dims[1]);
        from += row_of(t, k) * ours.dims[0];
    } else if (r.rows == 2 && (strstr(l->theirs, "_ih") || strstr(l->theirs, "_hh"))) {
        return strata_fail(err, STRATA_DATA,
                           "%s:%d: %.80s has two rows, bias_ih and bias_hh of PyTorch; the map has one of them", t->map,
                           l->number, l->ours);
    }
    strata_shape theirs = ours;
    int order = order_of_axes(ours, spec->name, r.bias);
    for (int i = 0; i < N_ORDERS && *l->order; i++)
        if (!strcmp(orders[i].name, l->order)) order = i;
    if (!strcmp(l->order, "same")) order = SAME;
    for (int d = 0; order != SAME && orders[order].rank == theirs.rank && d < theirs.rank; d++)
        theirs.dims[orders[order].axes[d]] = ours.dims[d];
    if (*l->order) STRATA_TRY(choose(l, t->map, theirs, ours, &order, err));
    strata_array *array = &t->arrays[t->n_written], own = {0};
    STRATA_TRY(strata_array_create(STRATA_DTYPE_F32, theirs, array, err));
    t->named[t->n_written] = (strata_named_array){.name = l->theirs, .array = *array};
    t->n_written++;
    /* The second bias of a sum is 0. */
    memset(array->data, 0, strata_array_bytes(array));
    if (r.rows == 1 && before) return STRATA_OK;
    STRATA_TRY(strata_array_create(STRATA_DTYPE_F32, ours, &own, err));
    memcpy(own.data, from, strata_array_bytes(&own));
    if (r.swaps) swap_gates(own.data, strata_shape_elements(ours), ours.dims[ours.rank - 1]);
    unpermute(own.data, ours, order, theirs, array->data);
    strata_array_finish(&own);
    return STRATA_OK;
}

/* ---- the whole ---- */

/* Reads the map, and allocates the model's values. close_transfer frees both, also after a failure. */
static strata_status open_transfer(transfer *t, strata_error *err) {
    size_t n_bytes;
    unsigned char *text = NULL;
    STRATA_TRY(strata_model_declare(t->model, err));
    STRATA_TRY(strata_file_read(t->map, MOST_MAP_BYTES, &text, &n_bytes, err));
    t->values = calloc((size_t)strata_model_all_size(t->model) + 1, sizeof *t->values);
    strata_status status = t->values ? STRATA_OK : strata_fail(err, STRATA_OUT_OF_MEMORY, "%s: no host memory", t->map);
    if (!status && strlen((char *)text) != n_bytes) status = strata_fail(err, STRATA_DATA, "%s: it is no text", t->map);
    if (!status) status = read_lines(t, (char *)text, err);
    free(text);
    return status;
}

static void close_transfer(transfer *t) {
    for (size_t i = 0; i < t->n_written; i++) strata_array_finish(&t->arrays[i]);
    free(t->arrays);
    free(t->named);
    free(t->lines);
    free(t->values);
}

strata_status strata_model_take_state_dict(strata_model *model, const char *path, const char *map_path, strata_error *err) {
    strata_safetensors file = {0};
    transfer t = {.model = model, .map = map_path, .file = &file};
    strata_status status = open_transfer(&t, err);
    if (!status) status = strata_safetensors_read(path, &file, err);
    for (int i = 0; i < t.n_lines && !status; i++) status = take_line(&t, i, err);
    if (!status) status = check_unused(&t, err);
    if (!status && model->strategy) status = strata_model_write_all(model, t.values, err);
    if (!status && !model->strategy) {
        free(model->loaded);
        model->loaded = t.values;
        t.values = NULL;
    }
    strata_safetensors_finish(&file);
    close_transfer(&t);
    return status;
}

/* Reads the written tensors again, and compares them with the model's values. */
static strata_status read_back(const char *path, void *context, strata_error *err) {
    const transfer *t = context;
    strata_safetensors file = {0};
    transfer again = {.model = t->model, .map = t->map, .file = &file, .lines = t->lines, .n_lines = t->n_lines};
    const size_t n = (size_t)strata_model_all_size(t->model);
    again.values = calloc(n + 1, sizeof *again.values);
    strata_status status = again.values ? strata_safetensors_read(path, &file, err)
                                        : strata_fail(err, STRATA_OUT_OF_MEMORY, "%s: no host memory", path);
    for (int i = 0; i < again.n_lines && !status; i++) status = take_line(&again, i, err);
    for (int i = 0; i < t->model->parameters.n && !status; i++) {
        const strata_parameter_spec *p = &t->model->parameters.items[i];
        const int64_t first = strata_model_place(t->model, p), elements = strata_shape_elements(p->shape);
        for (int64_t k = first; k < first + elements && !status; k++) {
            const float a = t->values[k], b = again.values[k];
            if (a != b && !(a != a && b != b)) status = strata_fail(err, STRATA_INTERNAL, "%s has other values", p->name);
        }
    }
    free(again.values);
    strata_safetensors_finish(&file);
    return status;
}

strata_status strata_model_save_state_dict(strata_model *model, const char *path, const char *map_path, strata_error *err) {
    transfer t = {.model = model, .map = map_path};
    strata_status status = open_transfer(&t, err);
    if (!status) status = strata_model_check_readable(model, "save_state_dict", err);
    if (!status) status = strata_model_read_all(model, t.values, err);
    const size_t n = (size_t)t.n_lines + 1;
    if (!status) {
        t.arrays = calloc(n, sizeof *t.arrays);
        t.named = calloc(n, sizeof *t.named);
        if (!t.arrays || !t.named) status = strata_fail(err, STRATA_OUT_OF_MEMORY, "%s: no host memory", path);
    }
    for (int i = 0; i < t.n_lines && !status; i++) status = put_line(&t, i, err);
    if (!status)
        status = strata_safetensors_write(path, t.named, t.n_written, NULL, 0,
                                          &(strata_safetensors_writing){.check = &(strata_file_check){read_back, &t}}, err);
    close_transfer(&t);
    return status;
}
