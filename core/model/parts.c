/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of a model under a mesh (parts.h). */
#include "core/model/parts.h"

#include "core/graph/variable.h"
#include "core/model/build.h"

bool strata_model_has_stages(const strata_model *model) {
    return strata_strategy_has_mesh(model->strategy) && model->strategy->mesh.axes[STRATA_STAGE_AXIS].size > 1;
}

/* ---- stages ---- */

static int n_stages(const strata_model *model) {
    return model->strategy->mesh.axes[STRATA_STAGE_AXIS].size;
}

/* A parameter is at the stage of the first call that uses it. Its name begins with that of the call's layer. */
static void place_at_stages(strata_model *model) {
    for (int i = 0; i < model->parameters.n; i++) {
        strata_parameter_spec *p = &model->parameters.items[i];
        p->stage = 0;
        for (int v = 0; v < model->n_values; v++) {
            const strata_value *value = model->values[v];
            const char *name = value->layer < 0 ? "" : model->list.layers[value->layer].name;
            const size_t n = strlen(name);
            if (!n || strncmp(p->name, name, n) || p->name[n] != '/') continue;
            p->stage = value->stage;
            break;
        }
    }
}

/* Cuts the calls into stages of about the same number of operations. */
static strata_status cut_stages(strata_model *model, strata_error *err) {
    const int n = n_stages(model), n_calls = strata_model_n_calls(model);
    if (n > n_calls)
        return strata_fail(err, STRATA_INVALID, "mesh: stage=%d, but the model has %d calls of layers; a stage needs one", n,
                           n_calls);
    int call = 0;
    for (int v = 0; v < model->n_values; v++)
        if (model->values[v]->layer >= 0) model->values[v]->stage = (int)((int64_t)call++ * n / n_calls);
    place_at_stages(model);
    return STRATA_OK;
}

/* ---- parts ---- */

/* Divides the dimension over an axis, as evenly as possible. */
static strata_status split(strata_model *model, strata_placement *placement, int dim, int64_t size, int axis,
                           strata_error *err) {
    const int n = model->strategy->mesh.axes[axis].size;
    int64_t *lengths;
    STRATA_TRY(STRATA_TAKE(&model->memory, lengths, n, err, "mesh: no host memory for %d parts", n));
    for (int i = 0; i < n; i++) lengths[i] = size / n + (i < size % n);
    placement->dims[dim] = (strata_dim_split){.n_axes = 1, .axes = {axis}, .lengths = lengths};
    return STRATA_OK;
}

static strata_status place_block(strata_model *model, int block, strata_error *err) {
    const strata_parameter_block *at = &model->parameters.blocks[block];
    const strata_parameter_spec *p = &model->parameters.items[model->parameters.parts[at->first_part].parameter];
    strata_placement *placement = &model->placements[block];
    const strata_mesh *mesh = &model->strategy->mesh;
    if (n_stages(model) > 1) *placement = strata_placement_at(*placement, STRATA_STAGE_AXIS, p->stage);
    if (mesh->axes[STRATA_TENSOR_AXIS].size > 1 && at->shaped && p->shape.rank)
        STRATA_TRY(split(model, placement, p->shape.rank - 1, p->shape.dims[p->shape.rank - 1], STRATA_TENSOR_AXIS, err));
    return strata_placement_fits(mesh, placement, strata_parameter_block_shape(&model->parameters, block), err);
}

strata_status strata_model_choose_parts(strata_model *model, strata_error *err) {
    const int n = model->parameters.n_blocks;
    if (!strata_strategy_has_mesh(model->strategy)) return STRATA_OK;
    STRATA_TRY(cut_stages(model, err));
    STRATA_TRY(STRATA_TAKE(&model->memory, model->placements, n, err, "mesh: no host memory for %d parameters", n));
    for (int k = 0; k < n; k++) STRATA_TRY(place_block(model, k, err));
    return STRATA_OK;
}

/* ---- copies ---- */

bool strata_model_has_first_copy(const strata_model *model, int block, int replica) {
    const strata_mesh *mesh = &model->strategy->mesh;
    if (!model->placements) return !replica;
    const strata_placement *placement = &model->placements[block];
    unsigned divided = placement->at;
    for (int d = 0; d < STRATA_MAX_RANK; d++)
        for (int k = 0; k < placement->dims[d].n_axes; k++) divided |= 1u << placement->dims[d].axes[k];
    for (int a = 0; a < mesh->n_axes; a++)
        if (!(divided >> a & 1) && strata_mesh_coordinate(mesh, replica, a)) return false;
    return strata_placement_has(mesh, placement, replica);
}

/* A row of a part of a block: elements [first, first + n) of the part, [place, place + n) of the block. */
typedef struct row {
    int64_t first, place, n;
} row;

/* The row with this number of a part of a value; both are of rank 1 or more. */
static row row_of(strata_shape whole, strata_shape part, const int64_t begin[STRATA_MAX_RANK], int64_t number) {
    const int last = part.rank - 1;
    row r = {.first = number * part.dims[last], .n = part.dims[last], .place = begin[last]};
    int64_t size = whole.dims[last];
    for (int d = last - 1; d >= 0; d--) {
        r.place += (begin[d] + number % part.dims[d]) * size;
        number /= part.dims[d];
        size *= whole.dims[d];
    }
    return r;
}

strata_status strata_model_copy_part(const strata_model *model, int block, int replica, strata_variable *variable, bool set,
                                     int64_t begin, int64_t n, float *values, strata_error *err) {
    strata_shape whole = strata_parameter_block_shape(&model->parameters, block);
    int64_t at[STRATA_MAX_RANK] = {0};
    strata_shape part = strata_placement_part(&model->strategy->mesh, &model->placements[block], whole, replica, at);
    if (!whole.rank) whole = part = STRATA_SHAPE(1);
    const int64_t size = strata_shape_elements(part), n_rows = size ? size / part.dims[part.rank - 1] : 0;
    STRATA_FREED float *own = NULL;
    STRATA_TRY(STRATA_NEW(own, size, err, "model: no host memory for a parameter's part"));
    strata_array array = strata_array_view(STRATA_DTYPE_F32, variable->shape, own);
    if (!size) return STRATA_OK;
    STRATA_TRY(strata_variable_get(variable, &array, err));
    for (int64_t k = 0; k < n_rows; k++) {
        const row r = row_of(whole, part, at, k);
        const int64_t place = model->parameters.blocks[block].begin + r.place;
        const int64_t first = begin > place ? begin : place, last = begin + n < place + r.n ? begin + n : place + r.n;
        float *here = own + r.first + (first - place), *there = values + (first - begin);
        if (last > first) memcpy(set ? here : there, set ? there : here, (size_t)(last - first) * sizeof *here);
    }
    return set ? strata_variable_set(variable, &array, err) : STRATA_OK;
}
