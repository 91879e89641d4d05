/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights of PyTorch's models, which were saved as safetensors, by a map of names. PyTorch has a layer's outputs first and
 * images with channels in front, so most weights have their axes in another order. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/file.h"
#include "core/data/format/safetensors.h"
#include "core/model/model.h"
#include "strata/interchange.h"

enum { MOST_MAP_BYTES = 16 << 20, WORD_BYTES = 256 };

/* How a weight's axes lie in PyTorch: axis i of Strata's is axis axes[i] of the file's. */
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

/* Elements in our order. */
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

/* A line of the map. */
typedef struct line {
    int number;
    char theirs[WORD_BYTES], ours[WORD_BYTES], order[WORD_BYTES];
} line;

/* The order that the line names, or, where it names none, the one that the shapes have. */
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
    if (!*l->order) { /* PyTorch's own order is more likely where both fit */
        for (int i = 0; i < N_ORDERS && *out == SAME; i++)
            if (fits(theirs, ours, i)) *out = i;
        if (*out == 0 && fits(theirs, ours, SAME) && strstr(l->ours, "embeddings")) *out = SAME;
    }
    if (fits(theirs, ours, *out)) return STRATA_OK;
    return strata_fail(err, STRATA_DATA, "%s:%d: %.80s is %s, which does not become %.80s, %s", map, l->number, l->theirs,
                       strata_shape_text(theirs).text, l->ours, strata_shape_text(ours).text);
}

static strata_status take_line(strata_model *model, const strata_safetensors *file, const char *map, const line *l,
                               float *values, bool *given, strata_error *err) {
    const strata_safetensor *tensor = strata_safetensors_find(file, l->theirs);
    strata_array array;
    int p = 0, order;
    while (p < model->parameters.n && strcmp(model->parameters.items[p].name, l->ours)) p++;
    if (p == model->parameters.n)
        return strata_fail(err, STRATA_DATA, "%s:%d: the model has no parameter \"%.100s\"", map, l->number, l->ours);
    if (!tensor) return strata_fail(err, STRATA_DATA, "%s:%d: %s has no \"%.100s\"", map, l->number, file->name, l->theirs);
    if (given[p]) return strata_fail(err, STRATA_DATA, "%s:%d: \"%.100s\" is in the map twice", map, l->number, l->ours);
    const strata_parameter_spec *spec = &model->parameters.items[p];
    STRATA_TRY(choose(l, map, tensor->shape, spec->shape, &order, err));
    STRATA_TRY(strata_safetensors_load(file, l->theirs, &array, err));
    const int64_t n = strata_shape_elements(array.shape);
    float *floats = malloc((size_t)n * sizeof *floats + 1);
    if (floats) {
        for (int64_t i = 0; i < n; i++) floats[i] = (float)strata_element_get(array.dtype, array.data, i);
        permute(floats, array.shape, order, spec->shape, values + strata_model_place(model, spec));
        given[p] = true;
    }
    free(floats);
    strata_array_finish(&array);
    return floats ? STRATA_OK : strata_fail(err, STRATA_OUT_OF_MEMORY, "%s: no host memory", map);
}

static strata_status take_lines(strata_model *model, const strata_safetensors *file, const char *map, char *text, float *values,
                                bool *given, strata_error *err) {
    line l = {0};
    for (char *at = text, *end; *at; at = end) {
        char *stop = strchr(at, '\n'), more[2];
        end = stop ? stop + 1 : at + strlen(at);
        if (stop) *stop = 0;
        l = (line){.number = l.number + 1};
        const int n = sscanf(at, "%255s %255s %255s %1s", l.theirs, l.ours, l.order, more);
        if (n < 1 || *l.theirs == '#') continue;
        if (n < 2 || n > 3)
            return strata_fail(err, STRATA_DATA, "%s:%d: a line has two names, and maybe an order of axes", map, l.number);
        STRATA_TRY(take_line(model, file, map, &l, values, given, err));
    }
    for (int p = 0; p < model->parameters.n; p++)
        if (!given[p])
            return strata_fail(err, STRATA_DATA, "%s: no line gives the parameter \"%s\"", map,
                               model->parameters.items[p].name);
    return STRATA_OK;
}

strata_status strata_model_take_state_dict(strata_model *model, const char *path, const char *map_path, strata_error *err) {
    strata_safetensors file = {0};
    unsigned char *text = NULL;
    size_t n_bytes;
    STRATA_TRY(strata_model_declare(model, err));
    STRATA_TRY(strata_file_read(map_path, MOST_MAP_BYTES, &text, &n_bytes, err));
    const size_t size = (size_t)strata_model_all_size(model);
    float *values = calloc(size + 1, sizeof *values);
    bool *given = calloc((size_t)model->parameters.n + 1, sizeof *given);
    strata_status status = values && given ? strata_safetensors_read(path, &file, err)
                                           : strata_fail(err, STRATA_OUT_OF_MEMORY, "%s: no host memory", path);
    if (!status && strlen((char *)text) != n_bytes) status = strata_fail(err, STRATA_DATA, "%s: it is no text", map_path);
    if (!status) status = take_lines(model, &file, map_path, (char *)text, values, given, err);
    if (!status && model->strategy) status = strata_model_write_all(model, values, err);
    if (!status && !model->strategy) {
        free(model->loaded);
        model->loaded = values;
        values = NULL;
    }
    strata_safetensors_finish(&file);
    free(values);
    free(given);
    free(text);
    return status;
}
