/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading, writing, comparing and hashing the parameters and states of a compiled model, one by one and all together. */
#include "core/model/data.h"
#include "core/model/mesh_spec.h"
#include "core/model/parts.h"
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

/* Elements [begin, begin + n) of a range, which are read into `values`, or set. */
typedef struct copy {
    bool set;
    /* Of several devices with the same values, only the first one of all workers is read. */
    bool once;
    int64_t begin, n;
    float *values;
} copy;

/* Copies what the caller's values and `variable` have in common; the variable (NULL: there is none) has the n_held elements
 * from `from` on. equal: has the same value already (strata_variable_set_as); NULL: not known. */
static strata_status copy_common(strata_variable *variable, strata_variable *equal, int64_t from, int64_t n_held, const copy *c,
                                 strata_error *err) {
    const int64_t first = c->begin > from ? c->begin : from, end = from + n_held;
    const int64_t last = c->begin + c->n < end ? c->begin + c->n : end;
    if (!variable || first >= last) return STRATA_OK;
    strata_array part = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(last - first), c->values + (first - c->begin));
    if (!c->set) return strata_variable_get_range(variable, float_bytes(first - from), &part, err);
    if (last - first == n_held) return strata_variable_set_as(variable, equal, &part, err);
    return strata_variable_set_range(variable, float_bytes(first - from), &part, err);
}

/* Under a mesh: where the block, or its slots, are. */
static const strata_placement *placement_of(const strata_model *model, int block, int what) {
    const strata_zero_placements *own = &model->placements[block];
    return what == STRATA_VALUES_ALL ? &own->parameter : &own->slot;
}

/* Whether no device before the replica's, of any worker, has the same part of a value. */
static bool has_first_copy(const strata_model *model, int replica, const strata_placement *placement) {
    const strata_mesh *mesh = &model->strategy->mesh;
    unsigned divided = placement->at;
    for (int d = 0; d < STRATA_MAX_RANK; d++)
        for (int k = 0; k < placement->dims[d].n_axes; k++) divided |= 1u << placement->dims[d].axes[k];
    for (int a = 0; a < mesh->n_axes; a++)
        if (!(divided >> a & 1) && strata_mesh_coordinate(mesh, model->strategy->workers.first_replica + replica, a))
            return false;
    return true;
}

/* what: as for strata_model_copy. equal: a replica that has the same values already; NULL: none. */
static strata_status copy_values(const strata_model *model, int replica, const strata_model_replica *equal, int what, copy c,
                                 strata_error *err) {
    const strata_parameter_set *set = &model->parameters;
    const strata_model_replica *own = &model->replicas[replica];
    for (int k = 0; k < set->n_blocks; k++) {
        const strata_parameter_block *at = &set->blocks[k];
        const strata_model_block *b = &own->blocks[k];
        if (c.once && !has_first_copy(model, replica, placement_of(model, k, what))) continue;
        strata_variable *of_update = what < 0 ? b->shard : b->slots[what], *flat = equal ? equal->blocks[k].flat : NULL;
        if (at->shaped) {
            const bool all = what == STRATA_VALUES_ALL;
            strata_variable *own_part = all ? b->flat : of_update;
            if (own_part)
                STRATA_TRY(strata_model_copy_part(model, k, placement_of(model, k, what), replica, own_part, c.set, c.begin,
                                                  c.n, c.values, err));
            continue;
        }
        STRATA_TRY(what == STRATA_VALUES_ALL ? copy_common(b->flat, flat, at->begin, at->end - at->begin, &c, err)
                                             : copy_common(of_update, NULL, b->begin, b->end - b->begin, &c, err));
    }
    if (what != STRATA_VALUES_ALL || (c.once && model->strategy->workers.first_replica + replica)) return STRATA_OK;
    return copy_common(own->state, equal ? equal->state : NULL, set->flat_size, set->state_size, &c, err);
}

strata_status strata_model_copy(const strata_model *model, int replica, int what, bool set, float *values, strata_error *err) {
    const int64_t n = what == STRATA_VALUES_ALL ? strata_model_all_size(model) : model->parameters.flat_size;
    return copy_values(model, replica, NULL, what, (copy){.set = set, .n = n, .values = values}, err);
}

static strata_status read_some(const strata_model *model, int replica, int64_t begin, int64_t n, float *out,
                               strata_error *err) {
    return copy_values(model, replica, NULL, STRATA_VALUES_ALL, (copy){.begin = begin, .n = n, .values = out}, err);
}

/* Reads parts that several workers have. Each part is read by one of them, and the bits of all are added up. */
static strata_status read_parts(const strata_model *model, int what, int64_t begin, int64_t n, float *out, strata_error *err) {
    const strata_workers *workers = &model->strategy->workers;
    memset(out, 0, (size_t)float_bytes(n));
    for (int r = 0; r < model->strategy->n_replicas; r++)
        STRATA_TRY(copy_values(model, r, NULL, what, (copy){.once = true, .begin = begin, .n = n, .values = out}, err));
    return n ? workers->sum(workers, STRATA_DTYPE_I32, STRATA_DTYPE_F32, out, out, n, err) : STRATA_OK;
}

strata_status strata_model_read_slot_parts(const strata_model *model, int slot, float *values, strata_error *err) {
    return read_parts(model, slot, 0, model->parameters.flat_size, values, err);
}

/* As read_some, of the replica that is read by default; of replicas that are apart, their mean. */
static strata_status read_model(const strata_model *model, int64_t begin, int64_t n, float *out, strata_error *err) {
    const int n_replicas = model->strategy->n_replicas;
    if (strata_strategy_mesh_has_workers(model->strategy)) return read_parts(model, STRATA_VALUES_ALL, begin, n, out, err);
    for (int r = 0; r < n_replicas && model->placements; r++) STRATA_TRY(read_some(model, r, begin, n, out, err));
    if (model->placements) return STRATA_OK;
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

strata_status strata_model_read_all(strata_model *model, float *values, strata_error *err) {
    if (!model->strategy && model->loaded) {
        memcpy(values, model->loaded, (size_t)strata_model_all_size(model) * sizeof *values);
        return STRATA_OK;
    }
    return read_model(model, 0, strata_model_all_size(model), values, err);
}

strata_status strata_model_write_all(strata_model *model, const float *values, strata_error *err) {
    const copy all = {.set = true, .n = strata_model_all_size(model), .values = (float *)values}; /* which is only read */
    for (int r = 0; r < model->strategy->n_devices; r++)
        STRATA_TRY(copy_values(model, r, r ? &model->replicas[0] : NULL, STRATA_VALUES_ALL, all, err));
    model->apart = false;
    strata_model_forget_interrupted(model);
    return strata_shards_write_slot(model, STRATA_VALUES_SHARD, (float *)values, err);
}

/* ---- replicas with parameters of their own: what each has, for checkpoints ---- */

static const char NO_MEMORY[] = "model: no host memory for the parameters of %d replicas";

/* The loss scale of a worker follows the values of each of its replicas: the scale, and the steps since it was changed. */
enum { N_SCALE = 2 };

int64_t strata_model_own_size(const strata_model *model) {
    return strata_model_all_size(model) + strata_model_n_slots(model) * model->parameters.flat_size + model->metrics.n_sums +
           N_SCALE;
}

/* Reads or writes a replica's slots and sums. */
static strata_status access_rest(const strata_model *model, int replica, bool set, float *values, strata_error *err) {
    strata_variable *metrics = model->replicas[replica].metrics;
    values += strata_model_all_size(model);
    for (int s = 0; s < strata_model_n_slots(model); s++, values += model->parameters.flat_size)
        STRATA_TRY(strata_model_copy(model, replica, s, set, values, err));
    strata_array sums = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(model->metrics.n_sums), values);
    return set ? strata_variable_set(metrics, &sums, err) : strata_variable_get(metrics, &sums, err);
}

static strata_status read_replica(const strata_model *model, int replica, float *values, strata_error *err) {
    float *scale = values + strata_model_own_size(model) - N_SCALE;
    STRATA_TRY(strata_model_copy(model, replica, STRATA_VALUES_ALL, false, values, err));
    STRATA_TRY(access_rest(model, replica, false, values, err));
    scale[0] = (float)model->scale.value; /* a power of 2 */
    scale[1] = (float)model->scale.steps; /* below 2^24 */
    return STRATA_OK;
}

strata_status strata_model_gather_own(strata_model *model, float **out_values, strata_error *err) {
    const int64_t size = strata_model_own_size(model), n = model->strategy->n_replicas * size;
    const strata_workers *workers = &model->strategy->workers;
    STRATA_FREED float *own = NULL;
    STRATA_FREED int64_t *bytes = NULL;
    *out_values = NULL;
    STRATA_TRY(STRATA_NEW(own, n, err, NO_MEMORY, strata_strategy_num_replicas_in_sync(model->strategy)));
    STRATA_TRY(STRATA_NEW(bytes, workers->n, err, NO_MEMORY, strata_strategy_num_replicas_in_sync(model->strategy)));
    for (int r = 0; r < model->strategy->n_replicas; r++) STRATA_TRY(read_replica(model, r, own + r * size, err));
    if (strata_strategy_has_workers(model->strategy))
        return strata_workers_gather_parts(workers, own, (size_t)n * sizeof *own, out_values, bytes, err);
    *out_values = strata_released(&own);
    return STRATA_OK;
}

strata_status strata_model_write_own(strata_model *model, const float *values, strata_error *err) {
    const int64_t size = strata_model_own_size(model), shared = strata_model_all_size(model);
    const int n_all = strata_strategy_num_replicas_in_sync(model->strategy);
    const float *own = values + model->strategy->workers.first_replica * size;
    bool apart = false;
    for (int r = 1; r < n_all; r++) apart |= memcmp(values, values + r * size, (size_t)shared * sizeof *values) != 0;
    for (int r = 0; r < model->strategy->n_replicas; r++) {
        float *of_replica = (float *)own + r * size; /* the values are only read */
        STRATA_TRY(strata_model_copy(model, r, STRATA_VALUES_ALL, true, of_replica, err));
        STRATA_TRY(access_rest(model, r, true, of_replica, err));
    }
    model->scale.value = (double)own[size - 2];
    model->scale.steps = (int64_t)own[size - 1];
    model->apart = apart;
    return STRATA_OK;
}

void strata_model_forget_interrupted(strata_model *model) {
    free(model->interrupted);
    model->interrupted = NULL;
}

strata_status strata_model_check_idle(const strata_model *model, const char *call, strata_error *err) {
    if (!model->fitting || !model->strategy || !strata_strategy_mesh_has_workers(model->strategy)) return STRATA_OK;
    return strata_fail(err, STRATA_UNSUPPORTED,
                       "%s: mesh %s is over several workers, which read the model together; read it after the fit", call,
                       strata_mesh_text(&model->strategy->mesh).text);
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
    if (index < 0 || index >= model->parameters.n)
        return strata_fail(err, STRATA_INVALID, "parameter %d: the model has %d", index, model->parameters.n);
    const strata_parameter_spec *p = &model->parameters.items[index];
    if (value->dtype == STRATA_DTYPE_F32 && strata_shape_elements(value->shape) == strata_shape_elements(p->shape))
        return STRATA_OK;
    return strata_fail(err, STRATA_INVALID, "parameter %s is f32 %s, the value is %s %s", p->name,
                       strata_shape_text(p->shape).text, strata_dtype_name(value->dtype), strata_shape_text(value->shape).text);
}

strata_status strata_model_get_parameter(strata_model *model, int index, strata_array *value, strata_error *err) {
    STRATA_TRY(strata_model_check_readable(model, "parameter", err));
    STRATA_TRY(check_parameter(model, index, value, err));
    const int64_t place = strata_model_place(model, &model->parameters.items[index]);
    if (!model->strategy) {
        if (strata_array_bytes(value)) memcpy(value->data, model->loaded + place, strata_array_bytes(value));
        return STRATA_OK;
    }
    STRATA_TRY(strata_model_check_idle(model, "parameter", err));
    return read_model(model, place, strata_shape_elements(value->shape), value->data, err);
}

strata_status strata_model_set_parameter(strata_model *model, int index, const strata_array *value, strata_error *err) {
    if (!model->strategy) STRATA_TRY(strata_model_declare(model, err));
    STRATA_TRY(check_parameter(model, index, value, err));
    const strata_parameter_spec *p = &model->parameters.items[index];
    if (!model->strategy) {
        if (!model->loaded)
            STRATA_TRY(
                STRATA_NEW(model->loaded, strata_model_all_size(model), err, "model: no host memory for its parameters"));
        if (strata_array_bytes(value))
            memcpy(model->loaded + strata_model_place(model, p), value->data, strata_array_bytes(value));
        return STRATA_OK;
    }
    const copy c = {
        .set = true, .begin = strata_model_place(model, p), .n = strata_shape_elements(value->shape), .values = value->data};
    strata_model_forget_interrupted(model);
    for (int r = 0; r < model->strategy->n_devices; r++)
        for (int what = STRATA_VALUES_ALL; what <= STRATA_VALUES_SHARD; what++)
            STRATA_TRY(copy_values(model, r, NULL, what, c, err));
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
    STRATA_TRY(strata_model_check_idle(model, "sha256", err));
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
    STRATA_TRY(model->placements ? read_model(model, begin, n, first, err) : read_some(model, 0, begin, n, first, err));
    memcpy(other, first, bytes); /* for elements of which a device has no part */
    const int n_copies = model->trains ? model->strategy->n_devices : model->strategy->n_replicas;
    for (int r = model->placements ? 0 : 1; r < n_copies; r++) {
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
