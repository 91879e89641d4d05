/* SPDX-License-Identifier: Apache-2.0
 *
 * Compiling a model: chooses optimizer and loss, and creates the variables on every device of the strategy. */
#include <stdio.h>

#include "core/model/metrics.h"
#include "core/model/parts.h"
#include "core/model/recompute.h"
#include "core/model/shards.h"

#define PRECISION_NOTE "precision"

/* Reads strata_compile_options.loss: a name for all outputs, or "left=mse,right=mae". out: [n_outputs] "" if the list does not
 * have the output. */
static strata_status read_losses(const strata_model *model, const char *list, char out[][64], strata_error *err) {
    const bool one = !strchr(list, '=');
    for (int i = 0; i < model->n_outputs; i++) snprintf(out[i], sizeof out[i], "%.63s", one ? list : "");
    for (const char *at = one ? "" : list; *at; at += strcspn(at, ","), at += *at == ',') {
        const size_t n = strcspn(at, "=,");
        int i = 0;
        while (i < model->n_outputs &&
               (at[n] != '=' || strlen(strata_output_name(model, i)) != n || strncmp(at, strata_output_name(model, i), n)))
            i++;
        if (i == model->n_outputs)
            return strata_fail(err, STRATA_INVALID,
                               "compile: the loss \"%.100s\" has \"%.*s\", which is no output of the model; it is a name, or "
                               "OUTPUT=NAME for each output, separated by commas (an output is \"%s\")",
                               list, n < 40 ? (int)n : 40, at, strata_output_name(model, 0));
        const size_t bytes = strcspn(at + n + 1, ",");
        snprintf(out[i], sizeof out[i], "%.*s", bytes < 63 ? (int)bytes : 63, at + n + 1);
    }
    return STRATA_OK;
}

/* The loss that an only output without one gets: that of its softmax or sigmoid, else the loss of integer labels. */
static const char *default_loss(const strata_output_spec *output) {
    return output->ending && !strcmp(output->ending, "sigmoid") ? "binary_crossentropy" : "sparse_categorical_crossentropy";
}

/* Chooses the loss of an output: that given in the compile options; else the output's own loss; if it is the only output and
 * has none, the default. */
static strata_status choose_loss(const strata_model *model, int index, const strata_compile_options *opts, const char *given,
                                 strata_output_spec *output, strata_error *err) {
    const bool only = model->n_outputs == 1;
    if (!only && !output->loss && !*given)
        return strata_fail(err, STRATA_INVALID,
                           "output \"%s\" has no loss; strata_model_output, \"loss\" in its JSON, or the loss of compile names "
                           "one",
                           strata_output_name(model, index));
    if (*given) output->loss_options = opts->loss_options;
    if (*given || !output->loss)
        STRATA_TRY(strata_registry_find_loss(model->registry, *given ? given : default_loss(output), &output->loss, err));
    if (output->loss->check) STRATA_TRY(output->loss->check(&output->loss_options, err));
    const strata_status status = strata_loss_check_output(output->loss, output->shape, err);
    return status && !only ? strata_fail_in(err, status, "output \"%s\"", strata_output_name(model, index)) : status;
}

/* Changes the model only if all settings are valid. */
static strata_status choose_settings(strata_model *model, const strata_compile_options *opts, strata_error *err) {
    strata_optimizer optimizer = opts && opts->optimizer.name ? opts->optimizer : model->optimizer;
    const strata_optimizer_kind *kind = NULL;
    char losses[STRATA_MAX_OUTPUTS][64] = {""};
    strata_output_spec outputs[STRATA_MAX_OUTPUTS], before[STRATA_MAX_OUTPUTS];
    if (!optimizer.name) optimizer = strata_adam_optimizer(0);
    STRATA_TRY(strata_optimizer_check(&optimizer, &kind, err));
    memcpy(before, model->outputs, sizeof before);
    memcpy(outputs, model->outputs, sizeof outputs);
    if (opts && opts->loss) STRATA_TRY(read_losses(model, opts->loss, losses, err));
    for (int i = 0; i < model->n_outputs; i++) STRATA_TRY(choose_loss(model, i, opts, losses[i], &outputs[i], err));
    STRATA_TRY(strata_model_check_endings(model, outputs, err));
    if (opts && opts->metrics && model->n_outputs > 1)
        return strata_fail(err, STRATA_INVALID,
                           "compile: the model has %d outputs; strata_model_output says the metrics of each", model->n_outputs);
    memcpy(model->outputs, outputs, sizeof outputs);
    strata_status status = strata_model_choose_metrics(model, opts ? opts->metrics : NULL, err);
    if (!status && opts && opts->metrics) status = strata_model_set_metrics(&model->outputs[0], opts->metrics, err);
    if (status) {
        memcpy(model->outputs, before, sizeof before);
        return status;
    }
    model->optimizer = optimizer;
    model->optimizer_kind = kind;
    return STRATA_OK;
}

/* Writes the initial parameters and states to `values`: from the initializers or from the file. */
static void initialize(const strata_model *model, float *values) {
    for (int i = 0, trained = 0; i < model->parameters.n; i++) {
        const strata_parameter_spec *p = &model->parameters.items[i];
        strata_initializer_fill(p->initializer, model->seed, p->state ? 0 : (uint32_t)++trained, p->fan_in, p->fan_out,
                                values + strata_model_place(model, p), strata_shape_elements(p->shape));
    }
}

static strata_status upload_parameters(strata_model *model, strata_error *err) {
    const int64_t size = strata_model_all_size(model);
    STRATA_FREED float *made = NULL;
    if (!model->loaded) {
        STRATA_TRY(STRATA_NEW(made, size, err, "model: no host memory for %lld parameters", (long long)size));
        initialize(model, made);
    }
    float *values = made ? made : model->loaded;
    const strata_workers *workers = &model->strategy->workers;
    if (workers->n > 1) { /* all workers get the chief's values, and its seed for dropout */
        int64_t seed = (int64_t)model->seed;
        STRATA_TRY(workers->broadcast(workers, STRATA_DTYPE_I64, &seed, 1, err));
        STRATA_TRY(workers->broadcast(workers, STRATA_DTYPE_F32, values, size, err));
        model->seed = (uint64_t)seed;
    }
    return strata_model_write_all(model, values, err);
}

int strata_model_n_slots(const strata_model *model) {
    return model->trains ? strata_optimizer_n_slots(model->optimizer_kind, &model->optimizer) : 0;
}

int strata_model_root(const strata_model *model) {
    return model->trains ? strata_strategy_root(model->strategy) : 0;
}

/* The elements of a new variable are 0. */
strata_status strata_optimizer_make_slot(const strata_optimizer_kind *kind, const strata_optimizer *settings, int slot,
                                         strata_device *device, strata_shape shape, strata_variable **out_slot,
                                         strata_error *err) {
    static const char *const names[STRATA_MAX_OPTIMIZER_SLOTS] = {"optimizer slot 0", "optimizer slot 1", "optimizer slot 2"};
    const float begin = kind->slot_begins ? (float)kind->slot_begins(settings) : 0;
    STRATA_TRY(strata_variable_create(device, names[slot], STRATA_DTYPE_F32, shape, out_slot, err));
    if (begin == 0) return STRATA_OK;
    STRATA_FINISHED(strata_array) values = {0};
    STRATA_TRY(strata_array_create(STRATA_DTYPE_F32, shape, &values, err));
    for (int64_t i = 0; i < strata_shape_elements(shape); i++) ((float *)values.data)[i] = begin;
    return strata_variable_set(*out_slot, &values, err);
}

int64_t strata_model_accumulates(const strata_model *model) {
    const int64_t n = model->optimizer.gradient_accumulation_steps;
    return (n > 1 && model->trains ? n : 1) * (model->trains ? strata_model_n_microbatches(model) : 1);
}

/* The number of elements of a block's gradients that replicas exchange: those of its parameters, and for each row of a sparse
 * parameter how often batches use it. */
static int64_t gradient_size(const strata_model *model, int block) {
    const strata_parameter_block *at = &model->parameters.blocks[block];
    int64_t size = at->end - at->begin;
    for (int i = at->first_part; i < at->first_part + at->n_parts; i++) {
        const strata_parameter_part *part = &model->parameters.parts[i];
        if (model->parameters.items[part->parameter].sparse) size += strata_parameter_aligned(part->shape.dims[0]);
    }
    return size;
}

static strata_shape gradient_shape(const strata_model *model, int block) {
    const bool shaped = model->parameters.blocks[block].shaped;
    return shaped ? strata_parameter_block_shape(&model->parameters, block) : STRATA_SHAPE(gradient_size(model, block));
}

static strata_status make_sums(strata_device *device, const char *name, int64_t n, strata_variable **out, strata_error *err) {
    return n ? strata_variable_create(device, name, STRATA_DTYPE_F32, STRATA_SHAPE(n), out, err) : STRATA_OK;
}

/* The part of a block that a device of this worker updates. */
static void range_of(const strata_model *model, int replica, int block, int64_t *out_begin, int64_t *out_end) {
    const strata_parameter_block *at = &model->parameters.blocks[block];
    const int id = model->strategy->workers.first_replica + replica;
    *out_begin = at->begin;
    *out_end = at->end;
    if (!model->shards.n) return;
    const int64_t begin = model->shards.begins[id], end = model->shards.begins[id + 1];
    if (begin > *out_begin) *out_begin = begin < at->end ? begin : at->end;
    if (end < *out_end) *out_end = end > *out_begin ? end : *out_begin;
}

static strata_status make_block(strata_model *model, int replica, int block, strata_error *err) {
    strata_device *device = model->replicas[replica].device;
    strata_model_block *own = &model->replicas[replica].blocks[block];
    const strata_parameter_block *at = &model->parameters.blocks[block];
    const bool computes = replica < model->strategy->n_replicas;
    if (!model->trains && !computes)
        return STRATA_OK; /* a model that is only built is run by the caller's functions, and only on devices that compute */
    strata_shape shape = strata_parameter_block_shape(&model->parameters, block), held = gradient_shape(model, block);
    strata_shape slots = shape;
    const strata_zero_placements *placements = model->placements ? &model->placements[block] : NULL;
    if (placements) {
        const strata_mesh *mesh = &model->strategy->mesh;
        const int id = model->strategy->workers.first_replica + replica;
        if (!strata_placement_has(mesh, &placements->parameter, id)) return STRATA_OK;
        if (at->shaped) held = strata_placement_part(mesh, &placements->gradient, shape, id, NULL);
        slots = strata_placement_part(mesh, &placements->slot, shape, id, NULL);
        shape = strata_placement_part(mesh, &placements->parameter, shape, id, NULL);
    }
    STRATA_TRY(strata_variable_create(device, "parameters", STRATA_DTYPE_F32, shape, &own->flat, err));
    if (strata_model_accumulates(model) > 1 && computes)
        STRATA_TRY(strata_variable_create(device, "held gradients", STRATA_DTYPE_F32, held, &own->accumulated, err));
    if (!model->trains || !strata_strategy_updates(model->strategy, replica)) return STRATA_OK;
    range_of(model, replica, block, &own->begin, &own->end);
    if (!at->shaped) slots = STRATA_SHAPE(own->end - own->begin);
    if (model->shards.n || strata_model_updates_parts(model, block))
        STRATA_TRY(strata_variable_create(device, "parameter shard", STRATA_DTYPE_F32, slots, &own->shard, err));
    for (int i = 0; i < strata_model_n_slots(model); i++)
        STRATA_TRY(strata_optimizer_make_slot(model->optimizer_kind, &model->optimizer, i, device, slots, &own->slots[i], err));
    return STRATA_OK;
}

static strata_status make_replica(strata_model *model, int index, strata_error *err) {
    strata_model_replica *own = &model->replicas[index];
    strata_device *device = own->device = model->strategy->devices[index];
    const int64_t n_states = model->parameters.state_size;
    STRATA_TRY(STRATA_NEW(own->blocks, model->parameters.n_blocks, err, "model: no host memory for blocks of parameters"));
    for (int k = 0; k < model->parameters.n_blocks; k++) STRATA_TRY(make_block(model, index, k, err));
    if (!model->trains && index >= model->strategy->n_replicas) return STRATA_OK;
    STRATA_TRY(make_sums(device, "states", n_states, &own->state, err));
    if (strata_model_accumulates(model) > 1 && index < model->strategy->n_replicas) {
        STRATA_TRY(make_sums(device, "held sums", model->metrics.n_sums, &own->accumulated_sums, err));
        STRATA_TRY(make_sums(device, "held states", n_states, &own->accumulated_states, err));
    }
    if (!model->trains || !strata_strategy_updates(model->strategy, index)) return STRATA_OK;
    return make_sums(device, "metrics", model->metrics.n_sums, &own->metrics, err);
}

/* The most elements of a block: as many as every device of every worker can bind as one buffer range. If several blocks are
 * needed, a sixteenth of the range stays free for values that share a buffer with a block's gradients. */
static strata_status most_of_block(const strata_model *model, int64_t *out_most, strata_error *err) {
    const strata_workers *workers = &model->strategy->workers;
    uint64_t bytes = INT64_MAX;
    STRATA_FREED uint64_t *all = NULL;
    for (int r = 0; r < model->strategy->n_devices; r++) {
        const strata_device_info *info = strata_device_get_info(model->strategy->devices[r]);
        if (info->max_range_bytes < bytes) bytes = info->max_range_bytes;
        if (info->max_allocation_bytes < bytes) bytes = info->max_allocation_bytes;
    }
    if (workers->n > 1) {
        STRATA_TRY(STRATA_NEW(all, workers->n, err, "model: no host memory for %d workers", workers->n));
        STRATA_TRY(strata_workers_gather(workers, &bytes, all, sizeof bytes, err));
        for (int w = 0; w < workers->n; w++)
            if (all[w] < bytes) bytes = all[w];
    }
    int64_t whole = 0, most = (int64_t)(bytes / sizeof(float));
    for (int k = 0; k < model->parameters.n_blocks; k++) whole += gradient_size(model, k);
    *out_most = whole <= most ? INT64_MAX : most - most / 16;
    return STRATA_OK;
}

/* The norm of a parameter can be computed only if the whole parameter is in one block. */
static strata_status check_parts(const strata_model *model, strata_error *err) {
    if (!model->trains || (!model->optimizer_kind->whole_parameters && !(model->optimizer.clip_norm > 0))) return STRATA_OK;
    for (int i = 0; i < model->parameters.n; i++)
        if (model->parameters.items[i].n_parts > 1)
            return strata_fail(err, STRATA_UNSUPPORTED,
                               "parameter %s %s is larger than the devices bind in one piece, and %s takes the norm of each "
                               "whole parameter; use another optimizer, or clip_global_norm",
                               model->parameters.items[i].name, strata_shape_text(model->parameters.items[i].shape).text,
                               model->optimizer_kind->whole_parameters ? model->optimizer.name : "clip_norm");
    return STRATA_OK;
}

/* Divides the parameters into blocks for these devices, and computes the positions of parameters in each block. */
static strata_status make_blocks(strata_model *model, strata_error *err) {
    int64_t most = 0;
    const bool each = strata_strategy_has_mesh(model->strategy);
    STRATA_TRY(strata_parameters_cut(&model->parameters, INT64_MAX, each, err));
    if (!model->parameters.n_blocks)
        return strata_fail(err, STRATA_INVALID, "model: no layer has parameters to train: all of them are frozen or constant");
    STRATA_TRY(most_of_block(model, &most, err));
    if (!each) STRATA_TRY(strata_parameters_cut(&model->parameters, most, false, err));
    STRATA_TRY(check_parts(model, err));
    STRATA_TRY(STRATA_NEW(model->segments, model->parameters.n_blocks, err, "model: no host memory for blocks of parameters"));
    for (int k = 0; k < model->parameters.n_blocks; k++) {
        const strata_parameter_block *at = &model->parameters.blocks[k];
        if (!at->shaped) STRATA_TRY(strata_shards_segments(model, at->begin, at->end, &model->segments[k], err));
    }
    return STRATA_OK;
}

/* Decides whether the optimizer is sharded, and divides the flat range into shards. */
static strata_status make_shards(strata_model *model, strata_error *err) {
    const strata_parameter_set *set = &model->parameters;
    const int n = strata_strategy_num_replicas_in_sync(model->strategy);
    bool sharded = false;
    model->shards = (strata_shards){0};
    if (!model->trains) return STRATA_OK; /* a model that is only built has no optimizer */
    STRATA_TRY(
        strata_shards_decide(model->strategy, strata_model_n_slots(model), set->dense_size < set->flat_size, &sharded, err));
    if (!sharded) return STRATA_OK;
    STRATA_TRY(STRATA_NEW(model->shards.begins, n + 1, err, "model: no host memory for %d shards", n));
    for (int r = 0; r <= n; r++) model->shards.begins[r] = strata_shards_cut_at(set->flat_size, r, n, NULL);
    model->shards.n = n;
    return STRATA_OK;
}

/* A variable without memory. */
static strata_variable *stand_in(strata_model *model, const char *name, strata_shape shape) {
    strata_variable *variable = strata_memory_take(&model->memory, 1, sizeof *variable);
    if (variable) *variable = (strata_variable){.name = (char *)name, .dtype = STRATA_DTYPE_F32, .shape = shape};
    return variable;
}

static void make_whole_block(strata_model *model, int block) {
    strata_model_block *whole = &model->whole.blocks[block];
    const strata_shape shape = strata_parameter_block_shape(&model->parameters, block);
    whole->flat = stand_in(model, "parameters", shape);
    if (strata_model_accumulates(model) > 1)
        whole->accumulated = stand_in(model, "held gradients", gradient_shape(model, block));
    for (int i = 0; i < strata_model_n_slots(model); i++) whole->slots[i] = stand_in(model, "optimizer slot", shape);
}

static strata_status make_stand_ins(strata_model *model, strata_error *err) {
    strata_model_replica *whole = &model->whole;
    const strata_shape states = STRATA_SHAPE(model->parameters.state_size), sums = STRATA_SHAPE(model->metrics.n_sums);
    const bool holds = strata_model_accumulates(model) > 1;
    whole->blocks = strata_memory_take(&model->memory, model->parameters.n_blocks, sizeof *whole->blocks);
    for (int k = 0; whole->blocks && k < model->parameters.n_blocks; k++) make_whole_block(model, k);
    if (states.dims[0]) whole->state = stand_in(model, "states", states);
    if (model->trains) whole->metrics = stand_in(model, "metrics", sums);
    if (holds) whole->accumulated_sums = stand_in(model, "held sums", sums);
    if (holds && states.dims[0]) whole->accumulated_states = stand_in(model, "held states", states);
    return model->memory.failed ? strata_fail(err, STRATA_OUT_OF_MEMORY, "model: no host memory for its variables") : STRATA_OK;
}

strata_status strata_model_make_whole(strata_model *model, strata_error *err) {
    STRATA_TRY(make_blocks(model, err));
    STRATA_TRY(make_shards(model, err));
    STRATA_TRY(strata_model_choose_parts(model, err));
    return make_stand_ins(model, err);
}

/* Creates the distributed variables of the blocks, with a copy on each replica. */
static strata_status make_distributed(strata_model *model, strata_error *err) {
    static const char no_memory[] = "model: no host memory for blocks of parameters";
    const int n_blocks = model->parameters.n_blocks, n = model->strategy->n_replicas;
    STRATA_TRY(STRATA_NEW(model->custom.variables, n_blocks, err, no_memory));
    STRATA_TRY(STRATA_NEW(model->custom.list, n_blocks, err, no_memory));
    for (int k = 0; k < n_blocks; k++) {
        strata_distributed_variable *v = model->custom.list[k] = &model->custom.variables[k];
        *v = (strata_distributed_variable){.strategy = model->strategy,
                                           .number = model->strategy->n_variables++,
                                           .aggregation = STRATA_AGGREGATION_MEAN,
                                           .model = model,
                                           .block = k};
        STRATA_TRY(STRATA_NEW(v->copies, n, err, no_memory));
        for (int r = 0; r < n; r++) v->copies[r] = model->replicas[r].blocks[k].flat;
        v->whole = model->whole.blocks[k].flat;
    }
    return STRATA_OK;
}

static strata_status make_variables(strata_model *model, strata_error *err) {
    const int n = model->strategy->n_devices;
    STRATA_TRY(STRATA_NEW(model->replicas, n, err, "model: no host memory for %d replicas", n));
    STRATA_TRY(strata_model_make_whole(model, err));
    for (int r = 0; r < n; r++) STRATA_TRY(make_replica(model, r, err));
    STRATA_TRY(make_distributed(model, err));
    return upload_parameters(model, err);
}

static void free_block(strata_model_block *own) {
    strata_variable_destroy(own->flat);
    strata_variable_destroy(own->shard);
    strata_variable_destroy(own->accumulated);
    for (int i = 0; i < STRATA_MAX_OPTIMIZER_SLOTS; i++) strata_variable_destroy(own->slots[i]);
}

void strata_model_free_variables(strata_model *model) {
    for (int r = 0; model->replicas && r < model->strategy->n_devices; r++) {
        strata_model_replica *own = &model->replicas[r];
        for (int k = 0; own->blocks && k < model->parameters.n_blocks; k++) free_block(&own->blocks[k]);
        free(own->blocks);
        strata_variable_destroy(own->state);
        strata_variable_destroy(own->metrics);
        strata_variable_destroy(own->accumulated_sums);
        strata_variable_destroy(own->accumulated_states);
    }
    free(model->replicas);
    model->replicas = NULL;
    model->apart = false;
    strata_model_forget_interrupted(model);
    for (int k = 0; model->segments && k < model->parameters.n_blocks; k++) strata_shards_free_segments(&model->segments[k]);
    free(model->segments);
    model->segments = NULL;
    for (int k = 0; model->custom.variables && k < model->parameters.n_blocks; k++) free(model->custom.variables[k].copies);
    free(model->custom.variables);
    free(model->custom.list);
    model->custom.variables = NULL;
    model->custom.list = NULL;
    free(model->shards.begins);
    model->shards = (strata_shards){0};
    strata_memory_finish(&model->memory);
    model->whole = (strata_model_replica){.device = NULL};
    model->placements = NULL;
    model->stages = NULL;
}

/* Norms of whole parameters cannot be computed from the gradients of a few rows, so sparse parameters are refused then. */
static strata_status check_sparse(const strata_model *model, strata_error *err) {
    const strata_parameter_spec *sparse = NULL;
    for (int i = 0; i < model->parameters.n && !sparse; i++)
        if (model->parameters.items[i].sparse) sparse = &model->parameters.items[i];
    if (!sparse) return STRATA_OK;
    if (model->optimizer_kind->whole_parameters)
        return strata_fail(
            err, STRATA_INVALID,
            "%s is sparse, and %s needs the norms of whole parameters; take another optimizer, or leave out sparse",
            sparse->name, model->optimizer.name);
    if (model->optimizer.clip_norm > 0)
        return strata_fail(
            err, STRATA_INVALID,
            "%s is sparse, and clip_norm takes each parameter's own norm; use clip_global_norm or clip_value, or "
            "leave out sparse",
            sparse->name);
    return STRATA_OK;
}

/* The precision that the caller sets, or else the precision in the model's note from an earlier compile. */
static strata_status choose_precision(const strata_model *model, const strata_compile_options *opts,
                                      strata_dtype *out_precision, strata_error *err) {
    const char *note = strata_model_note(model, PRECISION_NOTE);
    *out_precision = opts ? opts->precision : STRATA_DTYPE_F32;
    if (*out_precision != STRATA_DTYPE_F32 || !note) return STRATA_OK;
    const strata_status status = strata_dtype_parse(note, out_precision, err);
    return status ? strata_fail_in(err, status, "model: its note \"" PRECISION_NOTE "\"") : STRATA_OK;
}

static strata_status check_precision(const strata_strategy *strategy, strata_dtype precision, strata_error *err) {
    if (!strata_dtype_is_float(precision))
        return strata_fail(err, STRATA_INVALID, "model: precision is %s; it is f32, f16 or bf16", strata_dtype_name(precision));
    for (int r = 0; r < strategy->n_replicas; r++) {
        const strata_device_info *info = strata_device_get_info(strategy->devices[r]);
        if (!(info->dtypes >> precision & 1u))
            return strata_fail(err, STRATA_UNSUPPORTED, "%s (%s) cannot store %s; every device has precision f32", info->id,
                               info->name, strata_dtype_name(precision));
    }
    return STRATA_OK;
}

static void destroy_owned(void *model) {
    strata_model_destroy(model);
}

/* Binds the model to its devices and creates its variables there. */
static strata_status place(strata_model *model, strata_device *device, const strata_compile_options *opts, strata_error *err) {
    strata_strategy *strategy = opts ? opts->strategy : NULL;
    model->own.device = device;
    model->own.strategy =
        (strata_strategy){.name = "one_device", .devices = &model->own.device, .n_devices = 1, .n_replicas = 1};
    strata_dtype precision;
    STRATA_TRY(choose_precision(model, opts, &precision, err));
    STRATA_TRY(check_precision(strategy ? strategy : &model->own.strategy, precision, err));
    model->strategy = strategy ? strategy : &model->own.strategy;
    model->seed = opts ? opts->seed : 0;
    model->precision = precision;
    model->measures_norm = model->trains && opts && opts->gradient_norm;
    model->scale.value = model->precision == STRATA_DTYPE_F16 && model->trains ? 32768 : 0;
    strata_status status = make_variables(model, err);
    if (!status && precision != STRATA_DTYPE_F32)
        status = strata_model_set_note(model, PRECISION_NOTE, strata_dtype_name(precision), err);
    if (status) {
        strata_model_free_variables(model);
        model->strategy = NULL;
        return status;
    }
    if (strategy) strata_strategy_own(strategy, &model->owned, destroy_owned, model);
    free(model->loaded);
    model->loaded = NULL;
    return STRATA_OK;
}

/* again: the model may be built already. */
static strata_status check_target(const strata_model *model, const strata_device *device, const strata_strategy *strategy,
                                  bool again, strata_error *err) {
    if (model->strategy && (model->trains || !again))
        return strata_fail(err, STRATA_INVALID, "model: it is %s already", model->trains ? "compiled" : "built");
    if ((device != NULL) != (strategy != NULL)) return STRATA_OK;
    return strata_fail(err, STRATA_INVALID, "model: compile takes a device or a strategy; it was given %s",
                       device ? "both" : "neither");
}

/* Removes a model that was built from its devices. Its parameters and states are kept as if they were loaded from a file. */
static strata_status unplace(strata_model *model, strata_error *err) {
    if (!model->strategy) return STRATA_OK;
    STRATA_FREED float *values = NULL;
    STRATA_TRY(STRATA_NEW(values, strata_model_all_size(model), err, "model: no host memory for its parameters"));
    STRATA_TRY(strata_model_read_all(model, values, err));
    strata_model_free_programs(model);
    strata_model_free_variables(model);
    strata_owned_forget(&model->owned);
    model->strategy = NULL;
    model->loaded = strata_released(&values);
    return STRATA_OK;
}

strata_status strata_model_compile(strata_model *model, strata_device *device, const strata_compile_options *opts,
                                   strata_error *err) {
    STRATA_TRY(check_target(model, device, opts ? opts->strategy : NULL, true, err));
    STRATA_TRY(strata_model_declare(model, err));
    STRATA_TRY(choose_settings(model, opts, err));
    STRATA_TRY(check_sparse(model, err));
    STRATA_TRY(strata_recompute_set(model, opts ? opts->recompute : NULL, opts ? opts->strategy : NULL, err));
    STRATA_TRY(unplace(model, err));
    model->trains = true;
    const strata_status status = place(model, device, opts, err);
    if (status) model->trains = false;
    return status;
}

strata_status strata_model_build(strata_model *model, strata_device *device, const strata_compile_options *opts,
                                 strata_error *err) {
    STRATA_TRY(check_target(model, device, opts ? opts->strategy : NULL, false, err));
    STRATA_TRY(strata_model_declare(model, err));
    STRATA_TRY(strata_recompute_set(model, opts ? opts->recompute : NULL, opts ? opts->strategy : NULL, err));
    return place(model, device, opts, err);
}
