/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads Keras' layers that become ops here. Normalization and Rescaling become two ops with constants: sub and div, or
 * mul and add. The constants are layers `weights`, (1) or (C). Their numbers are in the layer's config or, if the layer
 * has learned them, in the weights of the file. */
#include <math.h>
#include <stdio.h>

#include "core/interchange/keras_read.h"

/* The names of the two constants and the first op. The second op is in the table of classes. */
static const struct scale {
    const char *class_name, *keys[2], *op;
} scales[] = {{"Normalization", {"mean", "variance"}, "sub"}, {"Rescaling", {"scale", "offset"}, "mul"}};

static const struct scale *find_scale(const strata_keras_read_layer *own) {
    for (int i = 0; i < 2; i++)
        if (!own->input && !own->dropped && !strcmp(own->row.name, scales[i].class_name)) return &scales[i];
    return NULL;
}

bool strata_keras_scales(const strata_keras_read_layer *own) {
    return find_scale(own);
}

/* Counts the numbers of the constant: 1, or one for each channel. */
static strata_status count_numbers(const strata_json *layer, const strata_json *config, const char *key, int64_t *out,
                                   strata_error *err) {
    strata_json value, axis, item, build, shape;
    *out = 1;
    if (strata_json_find(config, key, &value) && strata_json_length(&value)) *out = strata_json_length(&value);
    if (!strata_json_find(config, "axis", &axis)) return STRATA_OK;
    const bool list = strata_json_kind_of(&axis) == STRATA_JSON_ARRAY;
    item = axis;
    if (strata_json_kind_of(&axis) == STRATA_JSON_NULL || (list && !strata_json_first(&axis, &item))) return STRATA_OK;
    int64_t number = 0;
    STRATA_TRY(strata_json_to_int(&item, -64, 64, &number, err));
    if (strata_json_length(&axis) > 1 || (number != -1 && !strata_keras_is_last_axis(layer, &axis)))
        return strata_json_fail(&axis, err, STRATA_UNSUPPORTED, "must be the last axis, or none");
    if (!strata_json_find(layer, "build_config", &build) || !strata_json_find(&build, "input_shape", &shape)) return STRATA_OK;
    for (bool more = strata_json_first(&shape, &item); more; more = strata_json_next(&item))
        if (strata_json_kind_of(&item) == STRATA_JSON_NUMBER) STRATA_TRY(strata_json_to_int(&item, 1, 1 << 24, out, err));
    return STRATA_OK;
}

/* Writes {"layer": kind, "name": .., "inputs": [a, b]. The object stays open. */
static void begin_piece(strata_json_writer *w, const char *kind, const char *name, const char *a, const char *b) {
    strata_json_begin_object(w);
    strata_json_write_string(strata_json_key(w, "layer"), kind);
    strata_json_write_string(strata_json_key(w, "name"), name);
    strata_json_begin_array(strata_json_key(w, "inputs"));
    strata_json_write_string(w, a);
    if (b) strata_json_write_string(w, b);
    strata_json_end_array(w);
}

strata_status strata_keras_write_scale(strata_keras_reader *r, const strata_json *layer, const strata_keras_read_layer *own,
                                       const char *input, char *first, char *second) {
    const struct scale *scale = find_scale(own);
    strata_json config;
    char names[2][STRATA_KERAS_NAME_BYTES], middle[STRATA_KERAS_NAME_BYTES];
    STRATA_TRY(strata_json_get(layer, "config", &config, r->err));
    for (int i = 0; i < 2; i++) {
        int64_t n = 1;
        STRATA_TRY(count_numbers(layer, &config, scale->keys[i], &n, r->err));
        snprintf(names[i], sizeof names[i], "%.90s_%s", own->name, scale->keys[i]);
        begin_piece(&r->w, "weights", names[i], input, NULL);
        strata_json_write_bool(strata_json_key(&r->w, "constant"), true);
        strata_json_begin_array(strata_json_key(&r->w, "shape"));
        strata_json_write_int(&r->w, n);
        strata_json_end_array(&r->w);
        strata_json_end_object(&r->w);
    }
    snprintf(middle, sizeof middle, "%.90s_%s", own->name, scale->op);
    begin_piece(&r->w, "op", middle, input, names[0]);
    strata_json_write_string(strata_json_key(&r->w, "op"), scale->op);
    strata_json_end_object(&r->w);
    strcpy(first, middle);
    strcpy(second, names[1]);
    return STRATA_OK;
}

/* Reads n numbers: from one number for all of them, or from a list, which may be nested in lists of one element. */
static strata_status take_numbers(const strata_json *value, int64_t n, float *out, strata_error *err) {
    double number = 0;
    strata_json item;
    int64_t i = 0;
    if (strata_json_kind_of(value) == STRATA_JSON_NUMBER || strata_json_kind_of(value) == STRATA_JSON_STRING) {
        STRATA_TRY(strata_json_to_number(value, -HUGE_VAL, HUGE_VAL, &number, err));
        for (; i < n; i++) out[i] = (float)number;
        return STRATA_OK;
    }
    const bool some = strata_json_first(value, &item);
    if (some && strata_json_length(value) == 1) return take_numbers(&item, n, out, err);
    if (strata_json_length(value) != n)
        return strata_json_fail(value, err, STRATA_DATA, "must be a number, or %lld of them", (long long)n);
    for (bool more = some; more; more = strata_json_next(&item)) {
        STRATA_TRY(strata_json_to_number(&item, -HUGE_VAL, HUGE_VAL, &number, err));
        out[i++] = (float)number;
    }
    return STRATA_OK;
}

strata_status strata_keras_fill_scale(const strata_keras_reader *r, const strata_json *layer,
                                      const strata_keras_read_layer *own, const strata_keras_source *from) {
    const struct scale *scale = find_scale(own);
    strata_json config, value;
    STRATA_TRY(strata_json_get(layer, "config", &config, r->err));
    for (int i = 0; i < 2; i++) {
        char name[STRATA_KERAS_NAME_BYTES + 8], path[STRATA_KERAS_NAME_BYTES + 16];
        snprintf(name, sizeof name, "%.90s_%s/value", own->name, scale->keys[i]);
        snprintf(path, sizeof path, "%s/vars/%d", own->group, i);
        const int place = strata_parameter_find(from->weights.model, NULL, name);
        if (place < 0) continue;
        strata_array *array = &from->weights.arrays[place];
        float *out = array->data;
        const int64_t n = array->shape.dims[0];
        if (strata_json_find(&config, scale->keys[i], &value) && strata_json_kind_of(&value) != STRATA_JSON_NULL)
            STRATA_TRY(take_numbers(&value, n, out, r->err));
        else
            STRATA_TRY(strata_keras_read_weight(from, path, array->shape, out, r->err));
        const bool variance = *scale->keys[i] == 'v';
        /* Keras also limits the deviation to at least 1e-7. */
        for (int64_t e = 0; e < n && variance; e++) out[e] = fmaxf(sqrtf(out[e]), 1e-7f);
    }
    return STRATA_OK;
}

/* Reads [[top, bottom], [left, right]] or [before, after], and converts it to the padding of each axis. That of the batch
 * and of the channels is 0. */
static strata_status read_padding(const strata_json *config, int axes, double *numbers, int *out_n, strata_error *err) {
    strata_json padding, pair, side;
    STRATA_TRY(strata_json_get(config, "padding", &padding, err));
    *out_n = 2 * (axes + 2);
    bool more = strata_json_first(&padding, &pair);
    for (int d = 1; d <= axes && more; d++) {
        const strata_json *of = axes == 1 ? &padding : &pair;
        bool there = strata_json_first(of, &side);
        for (int end = 0; end < 2 && there; end++, there = strata_json_next(&side))
            STRATA_TRY(strata_json_to_number(&side, 0, 1 << 20, &numbers[end * (axes + 2) + d], err));
        more = strata_json_next(&pair);
    }
    return STRATA_OK;
}

strata_status strata_keras_write_numbers(strata_keras_reader *r, const strata_keras_read_layer *own,
                                         const strata_json *config) {
    double numbers[8] = {0};
    int n = 0;
    const char *name = own->row.name;
    if (!strcmp(name, STRATA_KERAS_LIMITED_RELU)) {
        n = 2;
        STRATA_TRY(strata_json_get_number(config, "max_value", STRATA_JSON_REQUIRED, -HUGE_VAL, HUGE_VAL, &numbers[1], r->err));
    } else if (!strcmp(name, "LeakyReLU")) {
        n = 1;
        numbers[0] = 0.3;
        STRATA_TRY(
            strata_json_get_number(config, "negative_slope", STRATA_JSON_OPTIONAL, -HUGE_VAL, HUGE_VAL, numbers, r->err));
    } else if (!strncmp(name, "ZeroPadding", 11)) {
        STRATA_TRY(read_padding(config, name[11] - '0', numbers, &n, r->err));
    }
    if (!n) return STRATA_OK;
    strata_json_begin_array(strata_json_key(&r->w, "numbers"));
    for (int i = 0; i < n; i++) strata_json_write_any_number(&r->w, numbers[i]);
    strata_json_end_array(&r->w);
    return STRATA_OK;
}
