/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of a model under a mesh (parts.h). */
#include "core/model/parts.h"

#include "core/graph/variable.h"
#include "core/model/build.h"
#include "core/model/layout_choose.h"
#include "core/run/cut.h"

/* For how many examples of a device the layout is chosen: their number is not known when the model is compiled. */
enum { LAYOUT_EXAMPLES = 32 };
/* For the balance of stages. */
enum { OPERATIONS_PER_BYTE = 10 };

strata_status strata_model_check_whole(const strata_model *model, const char *call, strata_error *err) {
    if (!model->placements) return STRATA_OK;
    return strata_fail(err, STRATA_UNSUPPORTED,
                       "%s: under strategy %s each device has a part of the model only; use it under another strategy, or with "
                       "a saved copy of the model on one device",
                       call, model->strategy->name);
}

bool strata_model_has_stages(const strata_model *model) {
    return strata_strategy_has_mesh(model->strategy) && model->strategy->mesh.axes[STRATA_STAGE_AXIS].size > 1;
}

static int size_of(const strata_model *model, int axis) {
    return model->strategy->mesh.axes[axis].size;
}

/* ---- stages ---- */

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

/* What one example costs in each call, in the order of the calls. */
typedef struct call_costs {
    strata_layer_cost *layers;
    double *seconds;
    int64_t *sent, *held;
} call_costs;

/* The bytes of one example's values that are sent if a stage begins at call `first`: those of earlier calls that later ones
 * read. */
static int64_t bytes_cut(const strata_model *model, const call_costs *costs, int first) {
    int64_t bytes = 0;
    for (int v = 0, call = 0; v < model->n_values && call < first; v++) {
        if (model->values[v]->layer < 0) continue;
        bool read = false;
        for (int w = v + 1, reader = call + 1; w < model->n_values; w++) {
            const strata_value *value = model->values[w];
            for (int i = 0; i < value->n_inputs; i++) read |= reader >= first && value->inputs[i] == v;
            reader += value->layer >= 0;
        }
        if (read) bytes += strata_shape_elements(costs->layers[call].output) * (int64_t)sizeof(float);
        call++;
    }
    return bytes;
}

/* The bytes of the parameters that the layer of a call declares, with their slots. */
static int64_t bytes_held(const strata_model *model, const strata_value *value) {
    const char *name = model->list.layers[value->layer].name;
    const size_t n = strlen(name);
    int64_t elements = 0;
    for (int i = 0; i < model->parameters.n && value->number == 1; i++) {
        const strata_parameter_spec *p = &model->parameters.items[i];
        if (!strncmp(p->name, name, n) && p->name[n] == '/') elements += strata_shape_elements(p->shape);
    }
    return elements * (int64_t)sizeof(float) * (2 + strata_model_n_slots(model));
}

static strata_status measure_calls(strata_model *model, strata_memory *memory, call_costs *costs, strata_error *err) {
    const int n = strata_model_n_calls(model);
    STRATA_TRY(STRATA_TAKE(memory, costs->layers, n, err, "mesh: no host memory for %d calls", n));
    STRATA_TRY(STRATA_TAKE(memory, costs->seconds, n, err, "mesh: no host memory for %d calls", n));
    STRATA_TRY(STRATA_TAKE(memory, costs->sent, n, err, "mesh: no host memory for %d calls", n));
    STRATA_TRY(STRATA_TAKE(memory, costs->held, n, err, "mesh: no host memory for %d calls", n));
    STRATA_TRY(strata_model_cost_calls(model, costs->layers, costs->seconds, err));
    for (int v = 0, call = 0; v < model->n_values; v++) {
        const strata_value *value = model->values[v];
        if (value->layer < 0) continue;
        /* Operations, and bytes as the operations that take as long; only the ratios count. */
        costs->seconds[call] = costs->layers[call].flops + OPERATIONS_PER_BYTE * costs->seconds[call];
        costs->sent[call] = bytes_cut(model, costs, call);
        costs->held[call] = bytes_held(model, value);
        call++;
    }
    return STRATA_OK;
}

/* Whether a layer says which stage begins with it. */
static bool has_stages_by_hand(const strata_model *model) {
    bool any = false;
    for (int i = 0; i < model->list.n; i++) any |= model->list.layers[i].begins_stage > 0;
    return any;
}

/* Places calls at the stages that layers name: each at that of the call before it, unless its layer begins the next one. */
static strata_status follow_stages(strata_model *model, strata_error *err) {
    const int n = size_of(model, STRATA_STAGE_AXIS);
    int stage = 0, n_calls = 0;
    for (int v = 0; v < model->n_values; v++) {
        strata_value *value = model->values[v];
        const strata_layer *layer = value->layer < 0 ? NULL : &model->list.layers[value->layer];
        const int named = layer && value->number == 1 && layer->begins_stage ? layer->begins_stage - 1 : stage;
        if (!layer) continue;
        if (named >= n)
            return strata_fail(err, STRATA_INVALID, "layer %s is at stage %d; the mesh has %d stages, from 0 to %d",
                               layer->name, named, n, n - 1);
        if (named != stage && (named != stage + 1 || !n_calls))
            return strata_fail(err, STRATA_INVALID,
                               "layer %s begins stage %d after stage %d%s; stages follow each other in the order of the layers",
                               layer->name, named, stage, n_calls ? "" : ", which has no layer");
        n_calls = named == stage ? n_calls + 1 : 1;
        value->stage = stage = named;
    }
    if (stage == n - 1) return STRATA_OK;
    return strata_fail(err, STRATA_INVALID, "the layers name stages up to %d, and the mesh has stages up to %d", stage, n - 1);
}

/* Cuts the calls into stages so that the slowest one takes the least time. */
static strata_status cut_stages(strata_model *model, strata_memory *memory, strata_error *err) {
    const int n = size_of(model, STRATA_STAGE_AXIS);
    call_costs costs;
    int *first;
    STRATA_TRY(measure_calls(model, memory, &costs, err));
    STRATA_TRY(STRATA_TAKE(memory, first, n, err, "mesh: no host memory for %d stages", n));
    const strata_chain_calls chain = {.n_calls = strata_model_n_calls(model),
                                      .n_stages = n,
                                      .seconds = costs.seconds,
                                      .cut_bytes = costs.sent,
                                      .held_bytes = costs.held};
    STRATA_TRY(strata_chain_cut(&chain, first, err));
    for (int v = 0, call = 0, stage = 0; v < model->n_values; v++) {
        if (model->values[v]->layer < 0) continue;
        while (stage + 1 < n && call >= first[stage + 1]) stage++;
        model->values[v]->stage = stage;
        call++;
    }
    return STRATA_OK;
}

/* ---- parts ---- */

/* How the parameters are divided by the user's layout, or by a choice. */
static strata_status lay_out(strata_model *model, strata_memory *memory, strata_placement *placements, strata_error *err) {
    const strata_strategy *strategy = model->strategy;
    strata_model_structure structure;
    STRATA_TRY(strata_model_describe(model, &structure, err));
    STRATA_FREED strata_call *calls = structure.calls;
    const strata_layout_model what = {.calls = calls,
                                      .n_calls = structure.n_calls,
                                      .outputs = structure.outputs,
                                      .n_outputs = model->n_outputs,
                                      .parameters = model->parameters.items,
                                      .n_parameters = model->parameters.n};
    const char **reasons;
    STRATA_TRY(STRATA_TAKE(memory, reasons, model->parameters.n, err, "mesh: no host memory for a layout"));
    if (!strategy->layout)
        return strata_layout_choose(&what, &strategy->mesh, LAYOUT_EXAMPLES, &model->memory, placements, reasons, err);
    STRATA_FINISHED(strata_layout) layout = {0};
    STRATA_TRY(strata_layout_read("layout", strategy->layout, strlen(strategy->layout), &layout, err));
    return strata_layout_apply(&layout, &strategy->mesh, &what, &model->memory, placements, reasons, err);
}

static strata_status place_blocks(strata_model *model, const strata_placement *parameters, strata_error *err) {
    for (int k = 0; k < model->parameters.n_blocks; k++) {
        const strata_parameter_block *at = &model->parameters.blocks[k];
        const int parameter = model->parameters.parts[at->first_part].parameter;
        const strata_shape shape = strata_parameter_block_shape(&model->parameters, k);
        strata_placement own = {.partial = 0};
        if (at->shaped) own = parameters[parameter];
        if (strata_model_has_stages(model))
            own = strata_placement_at(own, STRATA_STAGE_AXIS, model->parameters.items[parameter].stage);
        STRATA_TRY(strata_placement_fits(&model->strategy->mesh, &own, shape, err));
        STRATA_TRY(strata_zero_place(&model->strategy->mesh, at->shaped ? model->strategy->zero : 0, shape, &own,
                                     &model->memory, &model->placements[k], err));
    }
    return STRATA_OK;
}

static void finish_memory(strata_memory *memory) {
    strata_memory_finish(memory);
}

strata_status strata_model_choose_parts(strata_model *model, strata_error *err) {
    const int n = model->parameters.n_blocks;
    __attribute__((cleanup(finish_memory))) strata_memory memory = {0};
    strata_placement *placements;
    if (!strata_strategy_has_mesh(model->strategy)) return STRATA_OK;
    STRATA_TRY(STRATA_TAKE(&memory, placements, model->parameters.n, err, "mesh: no host memory for a layout"));
    STRATA_TRY(STRATA_TAKE(&model->memory, model->placements, n, err, "mesh: no host memory for %d parameters", n));
    const bool by_hand = size_of(model, STRATA_STAGE_AXIS) > 1 && has_stages_by_hand(model);
    STRATA_TRY(by_hand ? follow_stages(model, err) : cut_stages(model, &memory, err));
    place_at_stages(model);
    STRATA_TRY(lay_out(model, &memory, placements, err));
    return place_blocks(model, placements, err);
}

/* ---- copies ---- */

bool strata_model_updates_parts(const strata_model *model, int block) {
    if (!model->placements || !model->trains) return false;
    const strata_zero_placements *p = &model->placements[block];
    const int rank = strata_parameter_block_shape(&model->parameters, block).rank;
    return !strata_placement_equal(&model->strategy->mesh, rank, &p->parameter, &p->slot);
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

strata_status strata_model_copy_part(const strata_model *model, int block, const strata_placement *placement, int replica,
                                     strata_variable *variable, bool set, int64_t begin, int64_t n, float *values,
                                     strata_error *err) {
    strata_shape whole = strata_parameter_block_shape(&model->parameters, block);
    int64_t at[STRATA_MAX_RANK] = {0};
    const int device = model->strategy->workers.first_replica + replica;
    strata_shape part = strata_placement_part(&model->strategy->mesh, placement, whole, device, at);
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
