/* SPDX-License-Identifier: Apache-2.0
 *
 * The gradients of a worker's unit: runs the device's program for each of its batches, sums the gradients, checks whether they
 * are finite, and computes their scale and norm. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/model/build.h"
#include "core/model/data.h"
#include "strategies/parameter_server/worker.h"

/* Converts a batch's input, whose elements are rows of sparse parameter k, to the positions of these rows in the job's set; -1:
 * no row. */
static void write_places(const strata_ps_job *j, int k, const int32_t *ids, int64_t n, int32_t *out) {
    const strata_ps_row_set *set = &j->rows[k];
    for (int64_t i = 0; i < n; i++) out[i] = (uint32_t)ids[i] < (uint64_t)set->n_rows ? set->places[ids[i]] : -1;
}

static void fill_inputs(strata_ps_worker *w, const strata_ps_job *j, const strata_ps_batch *b, int64_t row,
                        const strata_model_program *program, int slot) {
    const strata_program_part *part = &program->parts[0];
    strata_executable *exe = part->executable;
    w->model->rate.own = j->lease.rate;
    const strata_run_numbers numbers =
        strata_run_numbers_of(w->model, j->lease.t + j->unit.index + 1, strata_loss_scale(w->model));
    w->unit.rate = (double)numbers.words[STRATA_STEP_PLAIN_RATE];
    strata_run_write_numbers(&numbers, part, slot, row + b->first, j->whole);
    void *x[STRATA_MAX_INPUTS], *y[STRATA_MAX_OUTPUTS]; /* NULL: no node of the program uses this input or output */
    strata_model_slots(w->model, part, slot, x, y);
    for (int k = 0; k < w->sparse.n; k++) {
        const int input = program->layout.sparse[k].input;
        if (!j->renumbered[k] || !x[input]) continue;
        write_places(j, k, b->x[input], b->own * strata_shape_elements(w->model->inputs[input].shape), x[input]);
        x[input] = NULL;
    }
    for (int i = 0; i < w->model->n_inputs; i++)
        if (x[i]) memcpy(x[i], b->x[i], (size_t)b->own * strata_ps_input_bytes(w, i));
    for (int i = 0; i < w->model->n_outputs; i++)
        if (y[i]) memcpy(y[i], b->y[i], (size_t)b->own * strata_label_bytes(&w->model->outputs[i]));
    if (part->example_weights >= 0)
        memcpy(strata_executable_input(exe, slot, part->example_weights), b->weights, (size_t)b->own * sizeof *b->weights);
}

static void add(float *sum, const float *values, int64_t n) {
    for (int64_t i = 0; i < n; i++) sum[i] += values[i];
}

/* Whether the gradients of a unit's only batch can be sent from the memory to which the device wrote them: they are contiguous
 * and are not scaled. */
static bool stay_in_place(const strata_ps_worker *w, const strata_ps_job *j) {
    const strata_model *model = w->model;
    return !w->buckets.layout->n_buckets && j->n_batches == 1 && model->parameters.n_blocks == 1 &&
           !model->parameters.blocks[0].begin && !(model->scale.value > 0) && !(model->optimizer.clip_global_norm > 0);
}

static void add_row(strata_ps_row_set *sums, int32_t id, const float *values) {
    const int64_t before = sums->n, place = strata_ps_row_set_add(sums, id);
    if (sums->n > before)
        memcpy(sums->values + place * sums->row, values, (size_t)sums->row * sizeof *values);
    else
        add(sums->values + place * sums->row, values, sums->row);
}

/* Copies the rows `used` of the gradient of a whole table to `sums`, which is empty. renumbered: these rows are the first ones
 * of the gradient. */
static void copy_used(strata_ps_row_set *sums, const strata_ps_row_set *used, bool renumbered, const float *gradient) {
    strata_ps_row_set_copy(sums, used);
    if (renumbered) memcpy(sums->values, gradient, (size_t)(used->n * sums->row) * sizeof *gradient);
    for (int64_t i = 0; i < used->n && !renumbered; i++)
        memcpy(sums->values + i * sums->row, gradient + used->ids[i] * sums->row, (size_t)sums->row * sizeof *gradient);
}

/* How many shares have examples of the unit's batch i. */
static int64_t n_contributing(const strata_ps_worker *w, const strata_ps_job *j, int i) {
    const int64_t n_shares = w->task->pace.n_shares;
    return !n_shares ? 1 : j->batches[i].n < n_shares ? j->batches[i].n : n_shares;
}

/* Adds the changes that the unit's batch i makes to the states after the batches before it: with a rate r, s + c after them
 * becomes (1 - r) (s + c) + r x, and the program's change is r (x - s). The servers divide the sum of the shares' changes by
 * the number of shares, which is that of the first batch. A last batch of which fewer shares have examples counts as much as
 * the others, so its changes are multiplied by the quotient. */
static void add_states(strata_ps_worker *w, const strata_ps_job *j, int i, const float *changes) {
    const int64_t n = w->model->parameters.state_size;
    const float *rates = changes + n, factor = (float)n_contributing(w, j, 0) / (float)n_contributing(w, j, i);
    for (int64_t k = 0; k < n; k++) w->unit.states[k] = (1 - rates[k]) * w->unit.states[k] + factor * changes[k];
    memcpy(w->unit.rates, rates, (size_t)n * sizeof *rates);
}

void strata_ps_skip_batch(strata_ps_worker *w) {
    for (int64_t k = 0; k < w->model->parameters.state_size; k++) w->unit.states[k] *= 1 - w->unit.rates[k];
}

strata_status strata_ps_take_outputs(strata_ps_worker *w, const strata_ps_job *j, int batch,
                                     const strata_model_program *program, int slot, strata_error *err) {
    const strata_parameter_set *set = &w->model->parameters;
    const strata_executable *exe = program->parts[0].executable;
    add(w->unit.sums, strata_executable_output(exe, slot, 0), w->model->metrics.n_sums);
    if (stay_in_place(w, j)) w->unit.gradients = strata_executable_output(exe, slot, 1);
    const int n_flat = program->layout.n_buckets ? 0 : set->n_blocks; /* buckets were added to the sums already */
    for (int k = 0; k < n_flat && !stay_in_place(w, j); k++) {
        const strata_parameter_block *at = &set->blocks[k];
        add(w->unit.sums_of_dense + at->begin, strata_executable_output(exe, slot, 1 + k), at->dense_end - at->begin);
    }
    if (set->state_size) add_states(w, j, batch, strata_executable_output(exe, slot, 1 + n_flat));
    for (int k = 0; k < w->sparse.n; k++) {
        const struct strata_sparse_gradient *from = &program->layout.sparse[k];
        const float *rows = (const float *)strata_executable_output(exe, slot, 1 + from->block) + from->place;
        strata_ps_row_set *sums = &w->unit.sums_of_rows[k];
        const bool renumbered = j->renumbered[k];
        if (renumbered && stay_in_place(w, j)) {
            w->unit.row_gradients[k] = (strata_ps_row_gradients){&j->rows[k], rows};
            continue;
        }
        const strata_ps_row_set *used = from->ids < 0 ? &j->rows[k] : NULL; /* rows that any batch of the unit uses */
        const int32_t *ids = used ? used->ids : strata_executable_output(exe, slot, from->ids);
        STRATA_TRY(
            strata_ps_row_set_reserve(sums, sums->n + from->n_ids < sums->n_rows ? sums->n + from->n_ids : sums->n_rows, err));
        /* these are the set's first rows, so neighbouring rows are copied together */
        const bool whole = used && !sums->n;
        if (whole) copy_used(sums, used, renumbered, rows);
        for (int64_t i = 0; i < (used ? used->n : from->n_ids) && !whole; i++) {
            if (ids[i] >= 0) add_row(sums, ids[i], rows + (used && !renumbered ? ids[i] : i) * sums->row);
        }
        w->unit.row_gradients[k].values = sums->values; /* reserve may have moved them */
    }
    return STRATA_OK;
}

void strata_ps_clear_sums(strata_ps_worker *w, const strata_ps_job *j) {
    const strata_parameter_set *set = &w->model->parameters;
    memset(w->unit.sums, 0, (size_t)w->model->metrics.n_sums * sizeof *w->unit.sums);
    /* its first batch's buckets were copied over those of the previous unit */
    const bool bucketed = w->buckets.layout && w->buckets.layout->n_buckets;
    if (!j->examples || (!bucketed && !stay_in_place(w, j)))
        memset(w->unit.sums_of_dense, 0, (size_t)set->dense_size * sizeof(float));
    w->unit.gradients = w->unit.sums_of_dense;
    memset(w->unit.states, 0, (size_t)set->state_size * sizeof *w->unit.states);
    for (int k = 0; k < w->sparse.n; k++) {
        strata_ps_row_set_clear(&w->unit.sums_of_rows[k]);
        w->unit.row_gradients[k] = (strata_ps_row_gradients){&w->unit.sums_of_rows[k], w->unit.sums_of_rows[k].values};
    }
}

/* is_first: whether the worker has no examples in any batch before number i. is_last: whether it has none in any after it. */
static bool is_first(const strata_ps_job *j, int i) {
    while (i > 0 && !j->batches[i - 1].own) i--;
    return i == 0;
}

static bool is_last(const strata_ps_job *j, int i) {
    while (i + 1 < j->n_batches && !j->batches[i + 1].own) i++;
    return i + 1 == j->n_batches;
}

/* Whether the device computes in this thread, while a submission is made. */
static bool computes_here(const strata_ps_worker *w) {
    return w->model->replicas[0].device->runs_at_once;
}

static strata_status start(const strata_ps_job *j, const strata_model_program *program, int slot, strata_error *err) {
    return strata_group_start(program->group, slot, j->lease.t + j->unit.index, err);
}

strata_status strata_ps_submit(strata_ps_worker *w, const strata_ps_job *j, int i, strata_model_program **out_program,
                               int *out_slot, strata_error *err) {
    const strata_ps_batch *b = &j->batches[i];
    int64_t row = 0;
    for (int k = 0; k < i; k++) row += j->batches[k].n;
    STRATA_TRY(strata_ps_program_of(w, b, out_program, err));
    if (w->fit->trace) strata_group_set_trace((*out_program)->group, w->fit->trace, w->fit->tracks);
    if (w->fit->opts) strata_group_set_check((*out_program)->group, w->fit->opts->check_every); /* closures have no options */
    STRATA_TRY(strata_group_acquire((*out_program)->group, out_slot, err));
    fill_inputs(w, j, b, row, *out_program, *out_slot);
    strata_ps_begin_buckets(w, *out_program, is_first(j, i), is_last(j, i));
    return computes_here(w) ? STRATA_OK : start(j, *out_program, *out_slot, err);
}

strata_status strata_ps_finish_batch(const strata_ps_worker *w, const strata_ps_job *j, const strata_model_program *program,
                                     int slot, strata_error *err) {
    if (computes_here(w)) STRATA_TRY(start(j, program, slot, err));
    STRATA_TRY(strata_group_finish(program->group, slot, NULL, err));
    return strata_group_wait(program->group, slot, err);
}

/* The first tensor of the unit that is not finite, in the order of the loss and then the parameters; NULL: all are finite. */
static const char *first_not_finite(const strata_ps_worker *w) {
    const strata_parameter_set *set = &w->model->parameters;
    if (!isfinite(w->unit.sums[0])) return "the loss";
    for (int i = 0; i < set->n; i++) {
        const strata_parameter_spec *p = &set->items[i];
        if (p->state) continue;
        const strata_ps_row_gradients *rows = p->sparse ? &w->unit.row_gradients[strata_ps_sparse_index(w, i)] : NULL;
        const float *values = rows ? rows->values : w->unit.gradients + p->offset;
        if (!strata_ps_all_finite(values, rows ? rows->set->n * rows->set->row : strata_shape_elements(p->shape)))
            return p->name;
    }
    return strata_ps_all_finite(w->unit.states, set->state_size) ? NULL : "the states";
}

bool strata_ps_name_wrong_data(const strata_ps_worker *w, const strata_ps_job *j, char *out, size_t room) {
    const strata_model *model = w->model;
    for (int k = 0; k < j->n_batches; k++) {
        const strata_ps_batch *b = &j->batches[k];
        for (int i = 0; i < model->n_inputs; i++) {
            const strata_input_spec *input = &model->inputs[i];
            if (input->dtype != STRATA_DTYPE_F32 || w->form.byte_scale != 0) continue;
            if (strata_ps_all_finite(b->x[i], b->own * strata_shape_elements(input->shape))) continue;
            snprintf(out, room, "input %s", model->values[input->value]->name);
            return true;
        }
        for (int i = 0; i < model->n_outputs; i++) {
            const strata_output_spec *output = &model->outputs[i];
            if (strata_loss_label_dtype(output->loss) != STRATA_DTYPE_F32) continue;
            if (strata_ps_all_finite(b->y[i], b->own * (int64_t)(strata_label_bytes(output) / sizeof(float)))) continue;
            snprintf(out, room, "target %s", strata_output_name(model, i));
            return true;
        }
    }
    return false;
}

/* The gradients of the unit: those of the dense parameters (k = -1), or of the rows of sparse parameter k. */
static const float *gradients_of(const strata_ps_worker *w, int k, int64_t *out_n) {
    const strata_ps_row_gradients *rows = k < 0 ? NULL : &w->unit.row_gradients[k];
    *out_n = rows ? rows->set->n * rows->set->row : w->model->parameters.dense_size;
    return rows ? rows->values : w->unit.gradients;
}

/* Multiplies the unit's sums. */
static void multiply(const strata_ps_worker *w, double factor) {
    for (int k = -1; k < w->sparse.n; k++) {
        int64_t n;
        float *values = (float *)gradients_of(w, k, &n); /* not in place, as they are scaled */
        for (int64_t i = 0; i < n; i++) values[i] *= (float)factor;
    }
}

static double norm_of(const strata_ps_worker *w) {
    double square = 0;
    for (int k = -1; k < w->sparse.n; k++) {
        int64_t n;
        const float *values = gradients_of(w, k, &n);
        for (int64_t i = 0; i < n; i++) square += (double)values[i] * (double)values[i];
    }
    return sqrt(square);
}

/* The norm of all gradients, for the report, and clipping by it. In asynchronous training only the worker has all gradients of
 * an update; in synchronous training the servers clip the sum of all shares. */
static void clip_all(strata_ps_worker *w) {
    const double most = w->model->optimizer.clip_global_norm;
    if ((!(most > 0) && !w->model->measures_norm) || w->task->pace.n_shares) return;
    const double norm = norm_of(w);
    if (w->model->measures_norm) w->reports.now.norm = norm;
    if (most > 0 && norm > most) multiply(w, most / norm);
}

const char *strata_ps_prepare_push(strata_ps_worker *w, bool *out_overflow) {
    const double scale = strata_loss_scale(w->model);
    const char *wrong = first_not_finite(w);
    const bool scaled = w->model->scale.value > 0 && isfinite(w->unit.sums[0]);
    if (scaled && !wrong) multiply(w, 1 / scale);
    const bool fits = !scaled || strata_loss_scale_follow(w->model, scale, !wrong);
    *out_overflow = scaled && wrong && fits;
    if (!wrong) clip_all(w);
    return wrong;
}
