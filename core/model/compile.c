/* SPDX-License-Identifier: Apache-2.0
 *
 * Compile: optimizer and loss are chosen, every device of the strategy gets its variables; and the parameters in them, one by
 * one and all. */
#include <stdlib.h>
#include <string.h>

#include "core/base/sha256.h"
#include "core/model/model.h"

#define PRECISION_NOTE "precision"

/* Takes the settings over only when all of them are right. */
static strata_status choose_settings(strata_model *model, const strata_compile_options *opts, strata_error *err) {
    strata_optimizer optimizer = opts && opts->optimizer.name ? opts->optimizer : model->optimizer;
    const strata_optimizer_kind *kind = NULL;
    const strata_loss *loss = model->loss;
    strata_loss_options loss_options = opts && opts->loss ? opts->loss_options : model->loss_options;
    if (!optimizer.name) optimizer = strata_adam_optimizer(0);
    STRATA_TRY(strata_optimizer_check(&optimizer, &kind, err));
    if ((opts && opts->loss) || !loss)
        STRATA_TRY(strata_loss_find(opts && opts->loss ? opts->loss : "sparse_categorical_crossentropy", &loss, err));
    if (loss->check) STRATA_TRY(loss->check(&loss_options, err));
    STRATA_TRY(strata_loss_check_output(loss, model->output, err));
    const struct {
        strata_optimizer optimizer;
        const strata_optimizer_kind *kind;
        const strata_loss *loss;
        strata_loss_options loss_options;
    } before = {model->optimizer, model->optimizer_kind, model->loss, model->loss_options};
    model->optimizer = optimizer;
    model->optimizer_kind = kind;
    model->loss = loss;
    model->loss_options = loss_options;
    strata_status status = strata_model_choose_metrics(model, opts && opts->metrics ? opts->metrics : model->metric_names, err);
    if (!status && opts && opts->metrics) status = strata_model_set_metrics(model, opts->metrics, err);
    if (!status) return STRATA_OK;
    model->optimizer = before.optimizer;
    model->optimizer_kind = before.kind;
    model->loss = before.loss;
    model->loss_options = before.loss_options;
    return status;
}

int64_t strata_model_all_size(const strata_model *model) {
    return model->parameters.flat_size + model->parameters.state_size;
}

int64_t strata_model_place(const strata_model *model, const strata_parameter_spec *parameter) {
    return parameter->offset + (parameter->state ? model->parameters.flat_size : 0);
}

static strata_status read_replica(const strata_model *model, int replica, float *values, strata_error *err) {
    const strata_model_replica *own = &model->replicas[replica];
    strata_array flat = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(model->parameters.flat_size), values);
    strata_array state =
        strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(model->parameters.state_size), values + model->parameters.flat_size);
    STRATA_TRY(strata_variable_get(own->flat, &flat, err));
    return own->state ? strata_variable_get(own->state, &state, err) : STRATA_OK;
}

strata_status strata_model_read_all(strata_model *model, float *values, strata_error *err) {
    return read_replica(model, strata_strategy_root(model->strategy), values, err);
}

strata_status strata_model_write_all(strata_model *model, const float *values, strata_error *err) {
    float *all = (float *)values; /* only read */
    const strata_array flat = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(model->parameters.flat_size), all);
    const strata_array state =
        strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(model->parameters.state_size), all + model->parameters.flat_size);
    for (int r = 0; r < model->strategy->n_devices; r++) {
        const strata_model_replica *own = &model->replicas[r];
        STRATA_TRY(strata_variable_set(own->flat, &flat, err));
        if (own->state) STRATA_TRY(strata_variable_set(own->state, &state, err));
    }
    return STRATA_OK;
}

/* The parameters and states at `values`, as the initializers or the file have them. */
static void initialize(const strata_model *model, float *values) {
    for (int i = 0, trained = 0; i < model->parameters.n; i++) {
        const strata_parameter_spec *p = &model->parameters.items[i];
        strata_initializer_fill(p->initializer, model->seed, p->state ? 0 : (uint32_t)++trained, p->fan_in, p->fan_out,
                                values + strata_model_place(model, p), strata_shape_elements(p->shape));
    }
}

static strata_status upload_parameters(strata_model *model, strata_error *err) {
    int64_t size = strata_model_all_size(model);
    float *values = model->loaded ? model->loaded : calloc((size_t)size, sizeof *values);
    if (!values) return strata_fail(err, STRATA_OUT_OF_MEMORY, "model: no host memory for %lld parameters", (long long)size);
    if (!model->loaded) initialize(model, values);
    strata_status status = STRATA_OK;
    const strata_workers *workers = &model->strategy->workers;
    if (workers->n > 1) status = workers->broadcast(workers, STRATA_DTYPE_F32, values, size, err); /* the chief's win */
    if (!status) status = strata_model_write_all(model, values, err);
    if (!model->loaded) free(values);
    return status;
}

/* A new variable is zeros. */
static strata_status make_slot(const strata_model *model, strata_device *device, const char *name, strata_variable **out_slot,
                               strata_error *err) {
    strata_shape flat = STRATA_SHAPE(model->parameters.flat_size);
    STRATA_TRY(strata_variable_create(device, name, STRATA_DTYPE_F32, flat, out_slot, err));
    if (!model->optimizer_kind->slot_begins) return STRATA_OK;
    strata_array values;
    STRATA_TRY(strata_array_create(STRATA_DTYPE_F32, flat, &values, err));
    float begin = (float)model->optimizer_kind->slot_begins(&model->optimizer);
    for (int64_t i = 0; i < model->parameters.flat_size; i++) ((float *)values.data)[i] = begin;
    strata_status status = strata_variable_set(*out_slot, &values, err);
    strata_array_finish(&values);
    return status;
}

static strata_status make_segments(strata_model *model, strata_error *err) {
    strata_segments *s = &model->segments;
    s->n = model->parameters.n;
    s->n_chunks = model->parameters.flat_size / STRATA_SEGMENT_CHUNK;
    s->ends = model->segment_ends = calloc((size_t)s->n, sizeof *model->segment_ends);
    s->owner = model->segment_owner = calloc((size_t)s->n_chunks, sizeof *model->segment_owner);
    if (!s->ends || !s->owner || s->n_chunks > INT32_MAX)
        return strata_fail(err, STRATA_OUT_OF_MEMORY, "model: no host memory for the places of %d parameters", s->n);
    int n = 0;
    for (int i = 0; i < model->parameters.n; i++) {
        const strata_parameter_spec *p = &model->parameters.items[i];
        if (p->state) continue;
        int64_t chunk = p->offset / STRATA_SEGMENT_CHUNK;
        int64_t end = (p->offset + strata_shape_elements(p->shape) + STRATA_SEGMENT_CHUNK - 1) / STRATA_SEGMENT_CHUNK;
        for (; chunk < end; chunk++) model->segment_owner[chunk] = n;
        model->segment_ends[n++] = (int32_t)end;
    }
    s->n = n;
    return STRATA_OK;
}

int64_t strata_model_accumulates(const strata_model *model) {
    const int64_t n = model->optimizer.gradient_accumulation_steps;
    return n > 1 ? n : 1;
}

int64_t strata_model_gradient_size(const strata_model *model) {
    int64_t size = model->parameters.flat_size;
    for (int i = 0; i < model->parameters.n; i++)
        if (model->parameters.items[i].sparse) size += strata_parameter_aligned(model->parameters.items[i].shape.dims[0]);
    return size;
}

static strata_status make_held(const strata_model *model, strata_model_replica *own, strata_error *err) {
    static const char *const names[] = {"held gradients", "held sums", "held states"};
    const int64_t sizes[] = {strata_model_gradient_size(model), model->n_sums, model->parameters.state_size};
    for (int i = 0; i < STRATA_N_HELD; i++)
        if (sizes[i])
            STRATA_TRY(
                strata_variable_create(own->device, names[i], STRATA_DTYPE_F32, STRATA_SHAPE(sizes[i]), &own->held[i], err));
    return STRATA_OK;
}

static strata_status make_replica(strata_model *model, int index, strata_error *err) {
    static const char *const slot_names[STRATA_MAX_OPTIMIZER_SLOTS] = {"optimizer slot 0", "optimizer slot 1",
                                                                       "optimizer slot 2"};
    strata_model_replica *own = &model->replicas[index];
    strata_device *device = own->device = model->strategy->devices[index];
    const strata_dtype f32 = STRATA_DTYPE_F32;
    STRATA_TRY(strata_variable_create(device, "parameters", f32, STRATA_SHAPE(model->parameters.flat_size), &own->flat, err));
    if (model->parameters.state_size)
        STRATA_TRY(strata_variable_create(device, "states", f32, STRATA_SHAPE(model->parameters.state_size), &own->state, err));
    if (strata_model_accumulates(model) > 1 && index < model->strategy->n_replicas) STRATA_TRY(make_held(model, own, err));
    if (!strata_strategy_updates(model->strategy, index)) return STRATA_OK;
    STRATA_TRY(strata_variable_create(device, "metrics", f32, STRATA_SHAPE(model->n_sums), &own->metrics, err));
    for (int i = 0; i < model->optimizer_kind->n_slots(&model->optimizer); i++)
        STRATA_TRY(make_slot(model, device, slot_names[i], &own->slots[i], err));
    return STRATA_OK;
}

static strata_status make_variables(strata_model *model, strata_error *err) {
    model->replicas = calloc((size_t)model->strategy->n_devices, sizeof *model->replicas);
    if (!model->replicas)
        return strata_fail(err, STRATA_OUT_OF_MEMORY, "model: no host memory for %d replicas", model->strategy->n_devices);
    for (int r = 0; r < model->strategy->n_devices; r++) STRATA_TRY(make_replica(model, r, err));
    STRATA_TRY(make_segments(model, err));
    return upload_parameters(model, err);
}

void strata_model_free_variables(strata_model *model) {
    for (int r = 0; model->replicas && r < model->strategy->n_devices; r++) {
        strata_model_replica *own = &model->replicas[r];
        strata_variable_destroy(own->flat);
        strata_variable_destroy(own->state);
        strata_variable_destroy(own->metrics);
        for (int i = 0; i < STRATA_MAX_OPTIMIZER_SLOTS; i++) strata_variable_destroy(own->slots[i]);
        for (int i = 0; i < STRATA_N_HELD; i++) strata_variable_destroy(own->held[i]);
    }
    free(model->replicas);
    model->replicas = NULL;
    free(model->segment_ends);
    free(model->segment_owner);
    model->segment_ends = model->segment_owner = NULL;
    model->segments = (strata_segments){0};
}

/* What is computed of whole parameters is not known of a few rows. */
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

/* What the caller says, else what the model's note has from an earlier compile. */
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

strata_status strata_model_compile(strata_model *model, strata_device *device, const strata_compile_options *opts,
                                   strata_error *err) {
    strata_strategy *strategy = opts ? opts->strategy : NULL;
    if (model->strategy) return strata_fail(err, STRATA_INVALID, "model: it is compiled already");
    if ((device != NULL) == (strategy != NULL))
        return strata_fail(err, STRATA_INVALID, "model: compile takes a device or a strategy; it was given %s",
                           device ? "both" : "neither");
    STRATA_TRY(strata_model_declare(model, err));
    STRATA_TRY(choose_settings(model, opts, err));
    STRATA_TRY(check_sparse(model, err));
    model->only = device;
    model->alone =
        (strata_strategy){.name = "one_device", .devices = &model->only, .n_devices = 1, .n_replicas = 1, .updater = -1};
    strata_dtype precision;
    STRATA_TRY(choose_precision(model, opts, &precision, err));
    STRATA_TRY(check_precision(strategy ? strategy : &model->alone, precision, err));
    model->strategy = strategy ? strategy : &model->alone;
    model->seed = opts ? opts->seed : 0;
    model->precision = precision;
    model->loss_scale = model->precision == STRATA_DTYPE_F16 ? 32768 : 0;
    strata_status status = make_variables(model, err);
    if (!status && precision != STRATA_DTYPE_F32)
        status = strata_model_set_note(model, PRECISION_NOTE, strata_dtype_name(precision), err);
    if (status) {
        strata_model_free_variables(model);
        model->strategy = NULL;
        return status;
    }
    free(model->loaded);
    model->loaded = NULL;
    return STRATA_OK;
}

/* ---- parameters ---- */

int strata_model_n_parameters(const strata_model *model) {
    return model->parameters.n;
}

strata_parameter strata_model_parameter(const strata_model *model, int index) {
    if (index < 0 || index >= model->parameters.n) return (strata_parameter){0};
    const strata_parameter_spec *p = &model->parameters.items[index];
    return (strata_parameter){.name = p->name, .shape = p->shape, .state = p->state};
}

static strata_status check_parameter(const strata_model *model, int index, const strata_array *value, strata_error *err) {
    STRATA_TRY(strata_model_check_compiled(model, "parameter", err));
    if (index < 0 || index >= model->parameters.n)
        return strata_fail(err, STRATA_INVALID, "parameter %d: the model has %d", index, model->parameters.n);
    const strata_parameter_spec *p = &model->parameters.items[index];
    if (value->dtype == STRATA_DTYPE_F32 && strata_shape_elements(value->shape) == strata_shape_elements(p->shape))
        return STRATA_OK;
    return strata_fail(err, STRATA_INVALID, "parameter %s is f32 %s, the value is %s %s", p->name,
                       strata_shape_text(p->shape).text, strata_dtype_name(value->dtype), strata_shape_text(value->shape).text);
}

static int64_t float_bytes(int64_t elements) {
    return elements * (int64_t)sizeof(float);
}

strata_status strata_model_get_parameter(strata_model *model, int index, strata_array *value, strata_error *err) {
    STRATA_TRY(check_parameter(model, index, value, err));
    const strata_parameter_spec *p = &model->parameters.items[index];
    const strata_model_replica *root = &model->replicas[strata_strategy_root(model->strategy)];
    return strata_variable_get_range(p->state ? root->state : root->flat, float_bytes(p->offset), value, err);
}

strata_status strata_model_set_parameter(strata_model *model, int index, const strata_array *value, strata_error *err) {
    STRATA_TRY(check_parameter(model, index, value, err));
    const strata_parameter_spec *p = &model->parameters.items[index];
    for (int r = 0; r < model->strategy->n_devices; r++) {
        const strata_model_replica *own = &model->replicas[r];
        STRATA_TRY(strata_variable_set_range(p->state ? own->state : own->flat, float_bytes(p->offset), value, err));
    }
    return STRATA_OK;
}

static int by_name(const void *a, const void *b) {
    const strata_parameter_spec *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

static strata_status hash_parameters(strata_model *model, const strata_parameter_spec **order, float *values, char out_hex[65],
                                     strata_error *err) {
    STRATA_TRY(strata_model_read_all(model, values, err));
    for (int i = 0; i < model->parameters.n; i++) order[i] = &model->parameters.items[i];
    qsort(order, (size_t)model->parameters.n, sizeof *order, by_name);
    strata_sha256 sha = {0};
    strata_status status = strata_sha256_init(&sha, err);
    for (int i = 0; i < model->parameters.n && !status; i++)
        status = strata_sha256_update(&sha, values + strata_model_place(model, order[i]),
                                      (size_t)float_bytes(strata_shape_elements(order[i]->shape)), err);
    if (!status) status = strata_sha256_final(&sha, out_hex, err);
    strata_sha256_finish(&sha);
    return status;
}

strata_status strata_model_sha256(strata_model *model, char out_hex[65], strata_error *err) {
    STRATA_TRY(strata_model_check_compiled(model, "sha256", err));
    const strata_parameter_spec **order = calloc((size_t)model->parameters.n, sizeof *order);
    float *values = malloc((size_t)float_bytes(strata_model_all_size(model)));
    strata_status status = order && values ? hash_parameters(model, order, values, out_hex, err)
                                           : strata_fail(err, STRATA_OUT_OF_MEMORY, "sha256: no host memory");
    free(order);
    free(values);
    return status;
}

strata_status strata_model_replicas_equal(strata_model *model, bool *out_equal, strata_error *err) {
    STRATA_TRY(strata_model_check_compiled(model, "replicas_equal", err));
    const size_t size = (size_t)strata_model_all_size(model);
    float *first = malloc(2 * size * sizeof *first);
    if (!first) return strata_fail(err, STRATA_OUT_OF_MEMORY, "replicas_equal: no host memory");
    float *other = first + size;
    strata_status status = read_replica(model, 0, first, err);
    *out_equal = true;
    for (int r = 1; r < model->strategy->n_devices && !status; r++) {
        status = read_replica(model, r, other, err);
        if (!status && memcmp(first, other, size * sizeof *first)) *out_equal = false;
    }
    const strata_workers *workers = &model->strategy->workers;
    if (!status && workers->n > 1) {
        memcpy(other, first, size * sizeof *first);
        int32_t differ = !*out_equal;
        status = workers->broadcast(workers, STRATA_DTYPE_F32, other, (int64_t)size, err);
        if (!status && memcmp(first, other, size * sizeof *first)) differ = 1;
        if (!status) status = workers->sum(workers, STRATA_DTYPE_I32, STRATA_DTYPE_F32, &differ, &differ, 1, err);
        *out_equal = !differ;
    }
    free(first);
    return status;
}
