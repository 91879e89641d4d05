/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading, writing, comparing and hashing the parameters and states of a compiled model, one by one and all together. */
#include "core/model/data.h"
#include "core/model/own.h"
#include "core/model/shards.h"
#include "strata/describe.h"
#include "strata/sha256.h"

static int64_t float_bytes(int64_t elements) {
    return elements * (int64_t)sizeof(float);
}

/* ---- all ---- */

int64_t strata_model_all_size(const strata_model *model) {
    return model->parameters.flat_size + model->parameters.state_size;
}

int64_t strata_model_place(const strata_model *model, const strata_parameter_spec *parameter) {
    return parameter->offset + (parameter->state ? model->parameters.flat_size : 0);
}

/* The elements of a block in `values`, which have the layout of the flat range. */
static strata_array block_of(const strata_model *model, int block, float *values) {
    const strata_parameter_block *at = &model->parameters.blocks[block];
    return strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(at->end - at->begin), values + at->begin);
}

static strata_array state_of(const strata_model *model, float *values) {
    const strata_parameter_set *set = &model->parameters;
    return strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(set->state_size), values + set->flat_size);
}

/* Both ranges, the parameters followed by the states, are numbered together. `variable` contains the n_held elements from
 * `from` on. Reads those of them that are among [begin, begin + n) to their positions in `out`. variable NULL: there are
 * no states. */
static strata_status read_common(strata_variable *variable, int64_t from, int64_t n_held, int64_t begin, int64_t n, float *out,
                                 strata_error *err) {
    const int64_t first = begin > from ? begin : from, last = begin + n < from + n_held ? begin + n : from + n_held;
    if (!variable || first >= last) return STRATA_OK;
    strata_array part = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(last - first), out + (first - begin));
    return strata_variable_get_range(variable, float_bytes(first - from), &part, err);
}

static strata_status read_some(const strata_model *model, int replica, int64_t begin, int64_t n, float *out,
                               strata_error *err) {
    const strata_parameter_set *set = &model->parameters;
    const strata_model_replica *own = &model->replicas[replica];
    for (int k = 0; k < set->n_blocks; k++) {
        const strata_parameter_block *at = &set->blocks[k];
        STRATA_TRY(read_common(own->blocks[k].flat, at->begin, at->end - at->begin, begin, n, out, err));
    }
    return read_common(own->state, set->flat_size, set->state_size, begin, n, out, err);
}

/* As read_some, of the replica that is read by default; of replicas that are apart, their mean. */
static strata_status read_model(const strata_model *model, int64_t begin, int64_t n, float *out, strata_error *err) {
    const int n_replicas = model->strategy->n_replicas;
    STRATA_TRY(read_some(model, strata_model_root(model), begin, n, out, err));
    if (!model->apart || n_replicas == 1) return STRATA_OK;
    STRATA_FREED float *other = NULL;
    STRATA_TRY(STRATA_NEW(other, n, err, "model: no host memory for %lld parameters", (long long)n));
    for (int r = 1; r < n_replicas; r++) {
        STRATA_TRY(read_some(model, r, begin, n, other, err));
        for (int64_t i = 0; i < n; i++) out[i] += other[i];
    }
    for (int64_t i = 0; i < n; i++) out[i] /= (float)n_replicas;
    return STRATA_OK;
}

strata_status strata_model_read_replica(const strata_model *model, int replica, float *values, strata_error *err) {
    return read_some(model, replica, 0, strata_model_all_size(model), values, err);
}

strata_status strata_model_read_all(strata_model *model, float *values, strata_error *err) {
    if (!model->strategy && model->loaded) {
        memcpy(values, model->loaded, (size_t)strata_model_all_size(model) * sizeof *values);
        return STRATA_OK;
    }
    return read_model(model, 0, strata_model_all_size(model), values, err);
}

/* equal: a replica that has the same values already (strata_variable_set_as); NULL: none. */
static strata_status write_as(const strata_model *model, int replica, const strata_model_replica *equal, const float *values,
                              strata_error *err) {
    const strata_model_replica *own = &model->replicas[replica];
    float *all = (float *)values; /* the values are only read */
    for (int k = 0; k < model->parameters.n_blocks; k++) {
        const strata_array block = block_of(model, k, all);
        strata_variable *flat = own->blocks[k].flat;
        if (flat) STRATA_TRY(strata_variable_set_as(flat, equal ? equal->blocks[k].flat : NULL, &block, err));
    }
    const strata_array state = state_of(model, all);
    return own->state ? strata_variable_set_as(own->state, equal ? equal->state : NULL, &state, err) : STRATA_OK;
}

strata_status strata_model_write_replica(strata_model *model, int replica, const float *values, strata_error *err) {
    return write_as(model, replica, NULL, values, err);
}

strata_status strata_model_write_all(strata_model *model, const float *values, strata_error *err) {
    for (int r = 0; r < model->strategy->n_devices; r++)
        STRATA_TRY(write_as(model, r, r ? &model->replicas[0] : NULL, values, err));
    model->apart = false;
    strata_model_forget_interrupted(model);
    return strata_shards_write_slot(model, -1, (float *)values, err); /* the values are only read */
}

/* ---- one by one ---- */

int strata_model_n_parameters(const strata_model *model) {
    return model->parameters.n;
}

strata_parameter strata_model_parameter(const strata_model *model, int index) {
    if (index < 0 || index >= model->parameters.n) return (strata_parameter){0};
    const strata_parameter_spec *p = &model->parameters.items[index];
    return (strata_parameter){.name = p->name, .shape = p->shape, .state = p->state};
}

static strata_status check_parameter(const strata_model *model, int index, const strata_array *value, strata_error *err) {
    if (!model->loaded || model->strategy) STRATA_TRY(strata_model_check_built(model, "parameter", err));
    if (index < 0 || index >= model->parameters.n)
        return strata_fail(err, STRATA_INVALID, "parameter %d: the model has %d", index, model->parameters.n);
    const strata_parameter_spec *p = &model->parameters.items[index];
    if (value->dtype == STRATA_DTYPE_F32 && strata_shape_elements(value->shape) == strata_shape_elements(p->shape))
        return STRATA_OK;
    return strata_fail(err, STRATA_INVALID, "parameter %s is f32 %s, the value is %s %s", p->name,
                       strata_shape_text(p->shape).text, strata_dtype_name(value->dtype), strata_shape_text(value->shape).text);
}

/* Writes the part of `value`, which begins at element `offset` of the flat range, that is in the elements [begin, end) of
 * `variable`. */
static strata_status set_common(strata_variable *variable, int64_t begin, int64_t end, int64_t offset,
                                const strata_array *value, strata_error *err) {
    const int64_t n = strata_shape_elements(value->shape);
    const int64_t first = begin > offset ? begin : offset, last = end < offset + n ? end : offset + n;
    if (!variable || first >= last) return STRATA_OK;
    const strata_array part =
        strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(last - first), (float *)value->data + (first - offset));
    return strata_variable_set_range(variable, float_bytes(first - begin), &part, err);
}

strata_status strata_model_get_parameter(strata_model *model, int index, strata_array *value, strata_error *err) {
    STRATA_TRY(check_parameter(model, index, value, err));
    const int64_t place = strata_model_place(model, &model->parameters.items[index]);
    if (!model->strategy) {
        if (strata_array_bytes(value)) memcpy(value->data, model->loaded + place, strata_array_bytes(value));
        return STRATA_OK;
    }
    return read_model(model, place, strata_shape_elements(value->shape), value->data, err);
}

strata_status strata_model_set_parameter(strata_model *model, int index, const strata_array *value, strata_error *err) {
    if (!model->strategy) STRATA_TRY(strata_model_declare(model, err));
    if (!model->strategy && !model->loaded)
        STRATA_TRY(STRATA_NEW(model->loaded, strata_model_all_size(model), err, "model: no host memory for its parameters"));
    STRATA_TRY(check_parameter(model, index, value, err));
    const strata_parameter_spec *p = &model->parameters.items[index];
    if (!model->strategy) {
        if (strata_array_bytes(value))
            memcpy(model->loaded + strata_model_place(model, p), value->data, strata_array_bytes(value));
        return STRATA_OK;
    }
    strata_model_forget_interrupted(model);
    for (int r = 0; r < model->strategy->n_devices; r++) {
        const strata_model_replica *own = &model->replicas[r];
        if (p->state && own->state) STRATA_TRY(strata_variable_set_range(own->state, float_bytes(p->offset), value, err));
        for (int k = 0; k < model->parameters.n_blocks && !p->state; k++) {
            const strata_parameter_block *at = &model->parameters.blocks[k];
            const strata_model_block *block = &own->blocks[k];
            STRATA_TRY(set_common(block->flat, at->begin, at->end, p->offset, value, err));
            STRATA_TRY(set_common(block->shard, block->begin, block->end, p->offset, value, err));
        }
    }
    return STRATA_OK;
}

static int by_name(const void *a, const void *b) {
    const strata_parameter_spec *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

/* Large models are compared and hashed in pieces of this many elements, so that the host does not need a copy of all
 * elements. */
enum { PIECE = 1 << 20 };

static strata_status hash_parameter(strata_model *model, const strata_parameter_spec *p, float *piece, strata_sha256 *sha,
                                    strata_error *err) {
    const int64_t size = strata_shape_elements(p->shape), place = strata_model_place(model, p);
    for (int64_t done = 0; done < size; done += PIECE) {
        const int64_t n = size - done < PIECE ? size - done : PIECE;
        STRATA_TRY(read_model(model, place + done, n, piece, err));
        STRATA_TRY(strata_sha256_update(sha, piece, (size_t)float_bytes(n), err));
    }
    return STRATA_OK;
}

strata_status strata_model_sha256(strata_model *model, char out_hex[65], strata_error *err) {
    STRATA_FREED const strata_parameter_spec **order = NULL;
    STRATA_FREED float *piece = NULL;
    STRATA_TRY(strata_model_check_built(model, "sha256", err));
    STRATA_TRY(STRATA_NEW(order, model->parameters.n, err, "sha256: no host memory"));
    STRATA_TRY(STRATA_NEW(piece, PIECE, err, "sha256: no host memory"));
    for (int i = 0; i < model->parameters.n; i++) order[i] = &model->parameters.items[i];
    qsort(order, (size_t)model->parameters.n, sizeof *order, by_name);
    strata_sha256 sha = {0};
    strata_status status = strata_sha256_init(&sha, err);
    for (int i = 0; i < model->parameters.n && !status; i++) status = hash_parameter(model, order[i], piece, &sha, err);
    if (!status) status = strata_sha256_final(&sha, out_hex, err);
    strata_sha256_finish(&sha);
    return status;
}

/* Compares elements [begin, begin + n) on all devices of all workers. Sets *equal to false if their bits differ. room:
 * (2, n). */
static strata_status compare_some(strata_model *model, int64_t begin, int64_t n, float *room, bool *equal, strata_error *err) {
    const strata_workers *workers = &model->strategy->workers;
    const size_t bytes = (size_t)float_bytes(n);
    float *first = room, *other = room + n;
    STRATA_TRY(read_some(model, 0, begin, n, first, err));
    const int n_copies = model->trains ? model->strategy->n_devices : model->strategy->n_replicas;
    for (int r = 1; r < n_copies; r++) {
        STRATA_TRY(read_some(model, r, begin, n, other, err));
        if (memcmp(first, other, bytes)) *equal = false;
    }
    if (workers->n <= 1) return STRATA_OK;
    memcpy(other, first, bytes);
    STRATA_TRY(workers->broadcast(workers, STRATA_DTYPE_F32, other, n, err));
    if (memcmp(first, other, bytes)) *equal = false;
    return STRATA_OK;
}

strata_status strata_model_replicas_equal(strata_model *model, bool *out_equal, strata_error *err) {
    STRATA_TRY(strata_model_check_built(model, "replicas_equal", err));
    const strata_workers *workers = &model->strategy->workers;
    const int64_t size = strata_model_all_size(model);
    STRATA_FREED float *room = NULL;
    STRATA_TRY(STRATA_NEW(room, 2 * PIECE, err, "replicas_equal: no host memory"));
    *out_equal = true;
    for (int64_t done = 0; done < size; done += PIECE)
        STRATA_TRY(compare_some(model, done, size - done < PIECE ? size - done : PIECE, room, out_equal, err));
    if (workers->n <= 1) return STRATA_OK;
    int32_t differ = !*out_equal;
    STRATA_TRY(workers->sum(workers, STRATA_DTYPE_I32, STRATA_DTYPE_F32, &differ, &differ, 1, err));
    *out_equal = !differ;
    return STRATA_OK;
}
