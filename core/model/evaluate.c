/* SPDX-License-Identifier: Apache-2.0
 *
 * Evaluation and prediction: the same loop over batches, which reads a result when its slot is needed again. */
#include "core/data/batches.h"
#include "core/model/data.h"
#include "core/model/loop.h"
#include "core/model/metrics.h"
#include "strata/callbacks.h"

/* The number of examples in test sets is usually a multiple of 100, so batches of 100 leave no smaller batch, which would need
 * another program and more memory. */
enum { DEFAULT_BATCH = 100, MAX_IN_FLIGHT = 8 };

typedef struct flight {
    strata_model_program *program;
    int slot;
    int64_t first;
} flight;

/* The state of a loop over batches. Under a mesh of several workers, each worker computes its share of each batch, and all get
 * the results of all. */
typedef struct walk {
    strata_model *model;
    const strata_dataset *dataset;
    strata_program_kind kind;
    strata_model_feed feed;
    strata_batches *batches;
    strata_batch_form form;
    int64_t n;    /* examples submitted */
    double *sums; /* for evaluations: (n_sums) the sums so far */
    strata_model_scores scores;
    float *predictions; /* for predictions: (capacity, output_size), with the outputs of an example one after the other */
    int64_t output_size, capacity;
    flight flights[MAX_IN_FLIGHT];
    int n_flights;
} walk;

/* Takes output 0 of a part. */
static void take(walk *w, const flight *done, const strata_program_part *part, const float *output) {
    const bool counts = !strata_strategy_mesh_has_workers(w->model->strategy) ||
                        strata_strategy_is_first_of_share(w->model->strategy, (int)(part - done->program->parts));
    for (int64_t i = 0; w->sums && i < w->model->metrics.n_sums; i++) w->sums[i] += (double)output[i];
    if (w->kind == STRATA_PROGRAM_PREDICT && counts)
        memcpy(w->predictions + (done->first + part->first) * w->output_size, output,
               (size_t)(part->n * w->output_size) * sizeof(float));
}

static strata_status retire(walk *w, strata_error *err) {
    flight done = w->flights[0];
    memmove(w->flights, w->flights + 1, (size_t)--w->n_flights * sizeof *w->flights);
    STRATA_TRY(strata_group_wait(done.program->group, done.slot, err));
    for (int r = 0; r < done.program->n_parts; r++) {
        const strata_program_part *part = &done.program->parts[r];
        if (!part->n) continue;
        take(w, &done, part, strata_executable_output(part->executable, done.slot, 0));
        STRATA_TRY(strata_scores_take(w->model, &w->scores, part, done.slot, err));
    }
    return STRATA_OK;
}

/* Makes room for the predictions of n more examples; the total size is exact if the number of examples is known. */
static strata_status make_room(walk *w, int64_t n, strata_error *err) {
    if (w->kind != STRATA_PROGRAM_PREDICT || w->n + n <= w->capacity) return STRATA_OK;
    int64_t capacity = w->n + n > 2 * w->capacity ? w->n + n : 2 * w->capacity;
    float *larger = realloc(w->predictions, (size_t)(capacity * w->output_size) * sizeof *larger);
    if (!larger)
        return strata_fail(err, STRATA_OUT_OF_MEMORY, "predict: no host memory for %lld predictions", (long long)capacity);
    /* What other workers predict is added to zeros. */
    memset(larger + w->capacity * w->output_size, 0, (size_t)((capacity - w->capacity) * w->output_size) * sizeof *larger);
    w->predictions = larger;
    w->capacity = capacity;
    return STRATA_OK;
}

/* Writes and submits the current batch of n examples. */
static strata_status submit(walk *w, int64_t n, strata_error *err) {
    flight *next = &w->flights[w->n_flights];
    int64_t first = 0, own = n;
    if (strata_strategy_mesh_has_workers(w->model->strategy))
        strata_strategy_worker_share(w->model->strategy, n, w->model->strategy->workers.rank, &first, &own);
    *next = (flight){.first = w->n + first};
    STRATA_TRY(make_room(w, n, err));
    STRATA_TRY(strata_model_get_program(w->model, w->kind, own, w->form, &next->program, err));
    strata_group *group = next->program->group;
    STRATA_TRY(strata_group_acquire(group, &next->slot, err));
    const strata_example_source source = {.batches = w->batches, .dataset = w->dataset, .feed = &w->feed};
    for (int r = 0; r < next->program->n_parts; r++) {
        const strata_program_part *part = &next->program->parts[r];
        strata_part_write_examples(w->model, part, next->slot, &source, first);
        if (part->examples >= 0)
            *(float *)strata_executable_input(part->executable, next->slot, part->examples) = (float)part->n;
    }
    STRATA_TRY(strata_group_start(group, next->slot, 0, err));
    STRATA_TRY(strata_group_finish(group, next->slot, NULL, err));
    w->n_flights++;
    w->n += n;
    return STRATA_OK;
}

static strata_status over_batches(walk *w, strata_error *err) {
    for (;;) {
        int64_t n;
        STRATA_TRY(strata_model_poll(w->model, err));
        STRATA_TRY(strata_batches_next(w->batches, &n, err));
        if (!n) break;
        int in_flight = w->n_flights ? strata_group_n_slots(w->flights[0].program->group) : 1;
        if (w->n_flights == in_flight) STRATA_TRY(retire(w, err));
        STRATA_TRY(submit(w, n, err));
    }
    while (w->n_flights) STRATA_TRY(retire(w, err));
    return w->n ? STRATA_OK : strata_fail(err, STRATA_DATA, "the data is empty");
}

/* Sets the parameters and states of all replicas of this worker to their mean, if they are apart. *out_apart: the values
 * before, which `separate` sets again and frees; NULL: they were equal. */
static strata_status join(strata_model *model, float **out_apart, strata_error *err) {
    const int64_t size = strata_model_all_size(model);
    const int n = model->strategy->n_replicas;
    *out_apart = NULL;
    if (!model->apart || n == 1) return STRATA_OK;
    STRATA_FREED float *values = NULL;
    STRATA_TRY(STRATA_NEW(values, (n + 1) * size, err, "model: no host memory for the parameters of %d replicas", n));
    for (int r = 0; r < n; r++) STRATA_TRY(strata_model_copy(model, r, STRATA_VALUES_ALL, false, values + r * size, err));
    STRATA_TRY(strata_model_read_all(model, values + n * size, err));
    STRATA_TRY(strata_model_write_all(model, values + n * size, err));
    *out_apart = strata_released(&values);
    return STRATA_OK;
}

static strata_status separate(strata_model *model, float *apart, strata_error *err) {
    strata_status status = STRATA_OK;
    if (!apart) return STRATA_OK;
    for (int r = 0; r < model->strategy->n_replicas && !status; r++)
        status = strata_model_copy(model, r, STRATA_VALUES_ALL, true, apart + r * strata_model_all_size(model), err);
    model->apart = true;
    free(apart);
    return status;
}

/* Under a mesh of several workers: adds up the sums, and the bits of the predictions, of all workers. */
static strata_status gather_results(walk *w, strata_error *err) {
    const strata_workers *workers = &w->model->strategy->workers;
    const int64_t n = w->sums ? w->model->metrics.n_sums : 0, n_values = w->n * w->output_size;
    STRATA_FREED double *all = NULL;
    if (!strata_strategy_mesh_has_workers(w->model->strategy)) return STRATA_OK;
    if (n_values)
        return workers->sum(workers, STRATA_DTYPE_I32, STRATA_DTYPE_F32, w->predictions, w->predictions, n_values, err);
    STRATA_TRY(STRATA_NEW(all, n * workers->n, err, "evaluate: no host memory"));
    STRATA_TRY(strata_workers_gather(workers, w->sums, all, (size_t)n * sizeof *all, err));
    memset(w->sums, 0, (size_t)n * sizeof *w->sums);
    for (int64_t i = 0; i < n * workers->n; i++) w->sums[i % n] += all[i];
    return strata_scores_gather(w->model, &w->scores, err);
}

static strata_status run(walk *w, int64_t batch, strata_error *err) {
    const strata_model *model = w->model;
    bool labels = w->kind == STRATA_PROGRAM_EVALUATE;
    strata_batches_options opts = {.batch = batch, .bytes = strata_model_takes_bytes(model, batch)};
    strata_model_batch_parts(model, w->dataset, &w->feed, labels, &opts);
    STRATA_TRY(strata_batches_create(w->dataset, &opts, &w->batches, err));
    w->form.byte_scale = strata_batches_byte_scale(w->batches);
    float *apart = NULL;
    strata_status status = join(w->model, &apart, err);
    if (!status) status = over_batches(w, err);
    while (w->n_flights) {
        flight *left = &w->flights[--w->n_flights];
        (void)!strata_group_wait(left->program->group, left->slot, NULL);
    }
    strata_batches_destroy(w->batches);
    if (!status) status = gather_results(w, err);
    const strata_status parted = separate(w->model, apart, status ? NULL : err);
    return status ? status : parted;
}

static strata_status check(strata_model *model, const strata_dataset *dataset, strata_program_kind kind, int64_t *batch,
                           strata_model_feed *out_feed, strata_error *err) {
    bool labels = kind == STRATA_PROGRAM_EVALUATE;
    const char *verb = labels ? "evaluate" : "predict";
    STRATA_TRY(labels ? strata_model_check_compiled(model, verb, err) : strata_model_check_built(model, verb, err));
    STRATA_TRY(strata_model_check_dataset(model, dataset, labels, verb, out_feed, err));
    if (!*batch) *batch = DEFAULT_BATCH;
    if (*batch < 1)
        return strata_fail(err, STRATA_INVALID, "%s: batch is %lld; it must be at least 1", verb, (long long)*batch);
    STRATA_TRY(strata_batches_check_size(dataset, verb, err));
    /* A batch that is not larger than the data is checked when its program is compiled. */
    if (strata_dataset_size(dataset) >= 0 && *batch > strata_dataset_size(dataset) && *batch > DEFAULT_BATCH)
        return strata_model_check_batch(model, kind, *batch, err);
    return STRATA_OK;
}

strata_status strata_model_evaluate(strata_model *model, const strata_dataset *dataset, int64_t batch,
                                    strata_metrics *out_metrics, strata_error *err) {
    strata_model_feed feed;
    STRATA_TRY(check(model, dataset, STRATA_PROGRAM_EVALUATE, &batch, &feed, err));
    walk w = {.model = model,
              .dataset = dataset,
              .kind = STRATA_PROGRAM_EVALUATE,
              .feed = feed,
              .form.weighted = strata_model_weighs(dataset, NULL),
              .sums = model->metrics.sums};
    STRATA_TRY(strata_callbacks_call(model, STRATA_EVENT_TEST_BEGIN, NULL, err));
    memset(model->metrics.sums, 0, (size_t)model->metrics.n_sums * sizeof *model->metrics.sums);
    const strata_status status = run(&w, batch, err);
    if (!status) *out_metrics = strata_model_metrics(model, model->metrics.sums, w.n, &w.scores);
    strata_scores_finish(&w.scores);
    if (status) return status;
    bool ignored = false;
    const strata_progress progress = {.model = model, .validation = *out_metrics, .stop = &ignored, .stop_now = &ignored};
    return strata_callbacks_call(model, STRATA_EVENT_TEST_END, &progress, err);
}

strata_status strata_model_evaluate_batch(strata_model *model, const strata_dataset *dataset, const strata_model_feed *feed,
                                          strata_batches *batches, int64_t n, float *out_sums, strata_error *err) {
    STRATA_FREED double *sums = NULL;
    STRATA_TRY(STRATA_NEW(sums, model->metrics.n_sums, err, "evaluate: no host memory"));
    walk w = {.model = model,
              .dataset = dataset,
              .kind = STRATA_PROGRAM_EVALUATE,
              .feed = *feed,
              .batches = batches,
              .form = {.weighted = strata_model_weighs(dataset, NULL), .byte_scale = strata_batches_byte_scale(batches)},
              .sums = sums};
    STRATA_TRY(submit(&w, n, err));
    const strata_status status = retire(&w, err);
    for (int64_t i = 0; i < model->metrics.n_sums; i++) out_sums[i] = (float)sums[i];
    strata_scores_finish(&w.scores);
    return status;
}

/* Copies output `index` of n examples from rows that contain all outputs one after the other. */
static strata_status take_output(const strata_model *model, int index, const walk *w, int64_t first, strata_array *out,
                                 strata_error *err) {
    const strata_output_spec *output = &model->outputs[index];
    const int64_t size = strata_shape_elements(output->shape);
    strata_shape shape = {.rank = output->shape.rank + 1, .dims = {w->n}};
    memcpy(shape.dims + 1, output->shape.dims, (size_t)output->shape.rank * sizeof(int64_t));
    STRATA_TRY(strata_array_create(STRATA_DTYPE_F32, shape, out, err));
    for (int64_t i = 0; i < w->n; i++)
        memcpy((float *)out->data + i * size, w->predictions + i * w->output_size + first, (size_t)size * sizeof(float));
    return STRATA_OK;
}

strata_status strata_model_predict_all(strata_model *model, const strata_dataset *dataset, int64_t batch,
                                       strata_array *out_predictions, strata_error *err) {
    strata_model_feed feed;
    STRATA_TRY(check(model, dataset, STRATA_PROGRAM_PREDICT, &batch, &feed, err));
    int64_t size = strata_dataset_size(dataset);
    bool known = size > 0 && !strata_dataset_element_spec(dataset).is_batch;
    walk w = {.model = model, .dataset = dataset, .kind = STRATA_PROGRAM_PREDICT, .feed = feed};
    for (int i = 0; i < model->n_outputs; i++) w.output_size += strata_shape_elements(model->outputs[i].shape);
    strata_array predictions[STRATA_MAX_OUTPUTS] = {0};
    strata_status status = strata_callbacks_call(model, STRATA_EVENT_PREDICT_BEGIN, NULL, err);
    if (!status && known) status = make_room(&w, size, err);
    if (!status) status = run(&w, batch, err);
    if (!status) status = strata_callbacks_call(model, STRATA_EVENT_PREDICT_END, NULL, err);
    int64_t first = 0;
    for (int i = 0; i < model->n_outputs && !status; i++) {
        status = take_output(model, i, &w, first, &predictions[i], err);
        first += strata_shape_elements(model->outputs[i].shape);
    }
    for (int i = 0; i < model->n_outputs; i++) {
        if (status)
            strata_array_finish(&predictions[i]);
        else
            out_predictions[i] = predictions[i];
    }
    free(w.predictions);
    return status;
}

strata_status strata_model_predict(strata_model *model, const strata_dataset *dataset, int64_t batch,
                                   strata_array *out_predictions, strata_error *err) {
    if (model->n_outputs > 1)
        return strata_fail(err, STRATA_INVALID, "predict: the model has %d outputs; strata_model_predict_all gives all of them",
                           model->n_outputs);
    return strata_model_predict_all(model, dataset, batch, out_predictions, err);
}
