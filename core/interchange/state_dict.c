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
#include "core/model/model.h"
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

/* The state of reading a state dict into a model's values, or of writing it from them. */
typedef struct transfer {
    strata_model *model;
    const char *map;
    /* (all_size) The parameters and states. */
    float *values;
    /* [parameters.n] Whether a line of the map names the parameter. */
    bool *given;
    /* When reading: `file` is the source. When writing: [parameters.n] the tensors to be written, n_written of them, and
     * their lines. */
    const strata_safetensors *file;
    strata_array *arrays;
    strata_named_array *named;
    line *lines;
    size_t n_written;
} transfer;

static strata_status take_line(transfer *t, int p, const line *l, strata_error *err) {
    const strata_parameter_spec *spec = &t->model->parameters.items[p];
    const strata_safetensor *tensor = strata_safetensors_find(t->file, l->theirs);
    const char *map = t->map;
    strata_array array;
    int order;
    if (!tensor) return strata_fail(err, STRATA_DATA, "%s:%d: %s has no \"%.100s\"", map, l->number, t->file->name, l->theirs);
    STRATA_TRY(choose(l, map, tensor->shape, spec->shape, &order, err));
    STRATA_TRY(strata_safetensors_load(t->file, l->theirs, &array, err));
    const int64_t n = strata_shape_elements(array.shape);
    float *floats = malloc((size_t)n * sizeof *floats + 1);
    if (floats) {
        for (int64_t i = 0; i < n; i++) floats[i] = (float)strata_element_get(array.dtype, array.data, i);
        permute(floats, array.shape, order, spec->shape, t->values + strata_model_place(t->model, spec));
    }
    free(floats);
    strata_array_finish(&array);
    return floats ? STRATA_OK : strata_fail(err, STRATA_OUT_OF_MEMORY, "%s: no host memory", map);
}

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

/* If the line names no order, it follows from the number of axes, as in PyTorch's layers. A table of embeddings keeps its
 * order. */
static int order_of_axes(strata_shape ours, const char *name) {
    for (int i = 0; i < N_ORDERS && !strstr(name, "embeddings"); i++)
        if (orders[i].rank == ours.rank) return i;
    return SAME;
}

static strata_status put_line(transfer *t, int p, const line *l, strata_error *err) {
    const strata_parameter_spec *spec = &t->model->parameters.items[p];
    strata_shape theirs = spec->shape;
    int order = order_of_axes(spec->shape, spec->name);
    for (int i = 0; i < N_ORDERS && *l->order; i++)
        if (!strcmp(orders[i].name, l->order)) order = i;
    if (!strcmp(l->order, "same")) order = SAME;
    for (int d = 0; order != SAME && orders[order].rank == theirs.rank && d < theirs.rank; d++)
        theirs.dims[orders[order].axes[d]] = spec->shape.dims[d];
    if (*l->order) STRATA_TRY(choose(l, t->map, theirs, spec->shape, &order, err));
    strata_array *array = &t->arrays[t->n_written];
    STRATA_TRY(strata_array_create(STRATA_DTYPE_F32, theirs, array, err));
    unpermute(t->values + strata_model_place(t->model, spec), spec->shape, order, theirs, array->data);
    t->lines[t->n_written] = *l;
    t->named[t->n_written] = (strata_named_array){.name = t->lines[t->n_written].theirs, .array = *array};
    t->n_written++;
    return STRATA_OK;
}

static strata_status walk_lines(transfer *t, char *text, strata_status (*visit)(transfer *, int, const line *, strata_error *),
                                strata_error *err) {
    const strata_parameter_set *set = &t->model->parameters;
    const char *map = t->map;
    line l = {0};
    for (char *at = text, *end; *at; at = end) {
        char *stop = strchr(at, '\n'), more[2];
        end = stop ? stop + 1 : at + strlen(at);
        if (stop) *stop = 0;
        l = (line){.number = l.number + 1};
        const int n = strata_scan(at, "%255s %255s %255s %1s", l.theirs, l.ours, l.order, more);
        int p = 0;
        if (n < 1 || *l.theirs == '#') continue;
        if (n < 2 || n > 3)
            return strata_fail(err, STRATA_DATA, "%s:%d: a line has two names, and maybe an order of axes", map, l.number);
        while (p < set->n && strcmp(set->items[p].name, l.ours)) p++;
        if (p == set->n)
            return strata_fail(err, STRATA_DATA, "%s:%d: the model has no parameter \"%.100s\"", map, l.number, l.ours);
        if (t->given[p]) return strata_fail(err, STRATA_DATA, "%s:%d: \"%.100s\" is in the map twice", map, l.number, l.ours);
        STRATA_TRY(visit(t, p, &l, err));
        t->given[p] = true;
    }
    for (int p = 0; p < set->n; p++)
        if (!t->given[p])
            return strata_fail(err, STRATA_DATA, "%s: no line gives the parameter \"%s\"", map, set->items[p].name);
    return STRATA_OK;
}

/* Reads the text of the map, and allocates the model's values. close_transfer frees both, also after a failure. */
static strata_status open_transfer(transfer *t, unsigned char **out_text, strata_error *err) {
    size_t n_bytes;
    STRATA_TRY(strata_model_declare(t->model, err));
    STRATA_TRY(strata_file_read(t->map, MOST_MAP_BYTES, out_text, &n_bytes, err));
    t->values = calloc((size_t)strata_model_all_size(t->model) + 1, sizeof *t->values);
    t->given = calloc((size_t)t->model->parameters.n + 1, sizeof *t->given);
    if (!t->values || !t->given) return strata_fail(err, STRATA_OUT_OF_MEMORY, "%s: no host memory", t->map);
    if (strlen((char *)*out_text) != n_bytes) return strata_fail(err, STRATA_DATA, "%s: it is no text", t->map);
    return STRATA_OK;
}

static void close_transfer(transfer *t, unsigned char *text) {
    for (size_t i = 0; i < t->n_written; i++) strata_array_finish(&t->arrays[i]);
    free(t->arrays);
    free(t->named);
    free(t->lines);
    free(t->values);
    free(t->given);
    free(text);
}

strata_status strata_model_take_state_dict(strata_model *model, const char *path, const char *map_path, strata_error *err) {
    strata_safetensors file = {0};
    unsigned char *text = NULL;
    transfer t = {.model = model, .map = map_path, .file = &file};
    strata_status status = open_transfer(&t, &text, err);
    if (!status) status = strata_safetensors_read(path, &file, err);
    if (!status) status = walk_lines(&t, (char *)text, take_line, err);
    if (!status && model->strategy) status = strata_model_write_all(model, t.values, err);
    if (!status && !model->strategy) {
        free(model->loaded);
        model->loaded = t.values;
        t.values = NULL;
    }
    strata_safetensors_finish(&file);
    close_transfer(&t, text);
    return status;
}

strata_status strata_model_save_state_dict(strata_model *model, const char *path, const char *map_path, strata_error *err) {
    unsigned char *text = NULL;
    transfer t = {.model = model, .map = map_path};
    strata_status status = open_transfer(&t, &text, err);
    if (!status) status = strata_model_check_readable(model, "save_state_dict", err);
    if (!status) status = strata_model_read_all(model, t.values, err);
    const size_t n = (size_t)model->parameters.n + 1;
    if (!status) {
        t.arrays = calloc(n, sizeof *t.arrays);
        t.named = calloc(n, sizeof *t.named);
        t.lines = calloc(n, sizeof *t.lines);
        if (!t.arrays || !t.named || !t.lines) status = strata_fail(err, STRATA_OUT_OF_MEMORY, "%s: no host memory", path);
    }
    if (!status) status = walk_lines(&t, (char *)text, put_line, err);
    if (!status) status = strata_safetensors_write(path, t.named, t.n_written, NULL, 0, err);
    close_transfer(&t, text);
    return status;
}
