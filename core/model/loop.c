/* SPDX-License-Identifier: Apache-2.0
 *
 * What every loop over steps does in the same way: see loop.h. */
#include "core/model/loop.h"

#include "core/base/clock.h"
#include "core/graph/graph.h"
#include "core/model/data.h"

void strata_model_begin_layers(const strata_model *model, int device, strata_graph *graph, strata_layer_context *context) {
    const strata_parameter_set *set = &model->parameters;
    const strata_model_replica *own = strata_model_replica_of(model, device);
    context->new_state = strata_graph_alloc(graph, (size_t)set->n * sizeof *context->new_state);
    context->state_rates = strata_graph_alloc(graph, (size_t)set->n * sizeof *context->state_rates);
    context->rows = strata_graph_alloc(graph, (size_t)set->n * sizeof *context->rows);
    context->parts = strata_graph_alloc(graph, (size_t)set->n_parts * sizeof *context->parts);
    context->blocks = strata_graph_alloc(graph, (size_t)set->n_blocks * sizeof *context->blocks);
    for (int k = 0; context->blocks && k < set->n_blocks; k++)
        context->blocks[k] = strata_tensor_set_name(strata_variable_read(graph, own->blocks[k].flat), "parameters");
    if (own->state) context->state = strata_tensor_set_name(strata_variable_read(graph, own->state), "states");
}

/* ---- the loss scale ---- */

enum { STEPS_BETWEEN_SCALES = 2000 }; /* steps without an overflow, after which the loss scale is doubled */
static const double largest_scale = 16777216;

double strata_loss_scale(const strata_model *model) {
    return model->scale.value > 0 ? model->scale.value : 1;
}

bool strata_loss_scale_follow(strata_model *model, double scale, bool finite) {
    if (!(model->scale.value > 0) || scale != model->scale.value) return true;
    if (!finite && scale <= 1) return false;
    if (finite && (++model->scale.steps < STEPS_BETWEEN_SCALES || scale >= largest_scale)) return true;
    model->scale.value *= finite ? 2 : 0.5;
    model->scale.steps = 0;
    return true;
}

/* ---- the learning rate: that of the schedule, or the one that a program or a callback has set instead ---- */

static strata_optimizer settings_of(const strata_model *model) {
    return strata_optimizer_with_rate(&model->optimizer, model->rate.own);
}

double strata_model_learning_rate(const strata_model *model) {
    const strata_optimizer settings = settings_of(model);
    return model->trains ? strata_schedule_rate(&settings.schedule, settings.learning_rate, model->optimizer_steps) : 0;
}

strata_status strata_model_set_learning_rate(strata_model *model, double rate, strata_error *err) {
    STRATA_TRY(strata_model_check_compiled(model, "set_learning_rate", err));
    if (rate != STRATA_SCHEDULED_RATE && !(rate >= 0 && rate < 1e6))
        return strata_fail(err, STRATA_INVALID,
                           "set_learning_rate: the rate is %g; it must be at least 0 and below 1e6, or STRATA_SCHEDULED_RATE",
                           rate);
    if (model->rate.locked)
        return strata_fail(err, STRATA_INVALID,
                           "set_learning_rate: the next steps were submitted already; set the rate when epoch_end is true, or "
                           "give fit wait_each_step, with which it may be set after each step");
    model->rate.own = rate;
    return STRATA_OK;
}

/* ---- interrupting long calls ---- */

static const double SECONDS_BETWEEN_CALLS = 0.05;

void strata_model_set_poll(strata_model *model, strata_poll_callback poll, void *user) {
    model->poll.call = poll;
    model->poll.user = user;
}

strata_status strata_model_poll(strata_model *model, strata_error *err) {
    if (!model->poll.call) return STRATA_OK;
    const double now = strata_clock_seconds();
    if (now - model->poll.last < SECONDS_BETWEEN_CALLS) return STRATA_OK;
    model->poll.last = now;
    return model->poll.call(model->poll.user, err);
}

/* ---- numbers ---- */

static void set_first_row(int32_t rng[STRATA_RNG_WORDS], int64_t row) {
    memcpy(rng + STRATA_RNG_FIRST_ROW, &row, sizeof row);
}

void strata_model_random_state(const strata_model *model, int64_t t, int64_t row, int32_t out[STRATA_RNG_WORDS]) {
    const uint64_t words[] = {model->seed, (uint64_t)t, 0, 0}; /* Philox: seed, step, first row */
    memcpy(out, words, STRATA_RNG_WORDS * sizeof *out);
    set_first_row(out, row);
}

strata_run_numbers strata_run_numbers_of(const strata_model *model, int64_t t, double scale) {
    strata_run_numbers numbers = {.update = t, .scale = scale};
    const strata_optimizer settings = settings_of(model);
    strata_optimizer_step(model->optimizer_kind, &settings, t, numbers.words);
    numbers.words[STRATA_STEP_SCALE] = (float)(1 / scale);
    strata_model_random_state(model, t, 0, numbers.rng);
    return numbers;
}

void strata_part_write_words(const strata_program_part *part, int slot, const float words[STRATA_STEP_WORDS]) {
    strata_executable *exe = part->executable;
    if (part->step >= 0) memcpy(strata_executable_input(exe, slot, part->step), words, STRATA_STEP_WORDS * sizeof *words);
    if (part->share >= 0) *(float *)strata_executable_input(exe, slot, part->share) = words[STRATA_STEP_SHARE];
    if (part->state_share >= 0)
        *(float *)strata_executable_input(exe, slot, part->state_share) = words[STRATA_STEP_STATE_SHARE];
}

void strata_run_write_numbers(const strata_run_numbers *numbers, const strata_program_part *part, int slot, int64_t row,
                              int64_t step_examples) {
    strata_executable *exe = part->executable;
    strata_run_numbers own = *numbers;
    own.words[STRATA_STEP_SHARE] = part->n ? (float)(numbers->scale * (double)part->n / (double)step_examples) : 0;
    if (!part->n) own.words[STRATA_STEP_STATE_SHARE] = 0;
    strata_part_write_words(part, slot, own.words);
    if (part->examples >= 0) *(float *)strata_executable_input(exe, slot, part->examples) = (float)part->n;
    float *weights = strata_executable_input(exe, slot, part->weights);
    for (int64_t i = 0; weights && i < part->n; i++) weights[i] = (float)numbers->scale / (float)step_examples;
    if (part->rng < 0 || !part->n) return;
    set_first_row(own.rng, row);
    memcpy(strata_executable_input(exe, slot, part->rng), own.rng, sizeof own.rng);
}

/* ---- examples ---- */

strata_batches_options strata_fit_batches_options(const strata_model *model, const strata_dataset *dataset,
                                                  const strata_model_feed *feed, const strata_fit_options *opts, int64_t epoch,
                                                  int64_t first) {
    strata_batches_options batches = {.batch = opts->batch,
                                      .shuffle = !opts->no_shuffle,
                                      .seed = opts->seed,
                                      .epoch = (uint64_t)epoch,
                                      .first = first,
                                      .bytes = strata_model_takes_bytes(model, opts->batch)};
    strata_model_batch_parts(model, dataset, feed, true, &batches);
    return batches;
}

int64_t strata_fit_count_steps(const strata_fit_options *opts, int64_t n_batches, int64_t accumulate) {
    const int64_t n = n_batches > 0 ? (n_batches + accumulate - 1) / accumulate : 0, most = opts->steps_per_epoch;
    return most && (!n || most < n) ? most : n;
}

bool strata_model_weighs(const strata_dataset *dataset, const double *class_weights) {
    return class_weights || strata_dataset_has_weights(dataset);
}

void strata_part_write_examples(const strata_model *model, const strata_program_part *part, int slot,
                                const strata_example_source *source, int64_t first) {
    void *inputs[STRATA_MAX_INPUTS], *labels[STRATA_MAX_OUTPUTS];
    if (!part->n) return;
    strata_model_slots(model, part, slot, inputs, labels);
    strata_model_write_examples(model, source, first + part->first, part->n, inputs, labels,
                                strata_executable_input(part->executable, slot, part->example_weights));
}
