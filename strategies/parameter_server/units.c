/* SPDX-License-Identifier: Apache-2.0
 *
 * The examples of a worker's unit: its share of each of the batches, and which rows of sparse parameters they use. */
#include "core/model/data.h"
#include "strategies/parameter_server/worker.h"

/* Reads batch `index` of an epoch. how: for an iterator that begins with this batch. */
static strata_status seek(strata_ps_reader *reader, const strata_dataset *dataset, const strata_batches_options *how,
                          int64_t epoch, int64_t index, int64_t *out_n, strata_error *err) {
    if (!reader->batches || reader->epoch != epoch || reader->next > index) {
        strata_batches_destroy(reader->batches);
        *reader = (strata_ps_reader){.epoch = epoch, .next = index};
        STRATA_TRY(strata_batches_create(dataset, how, &reader->batches, err));
    }
    do {
        STRATA_TRY(strata_batches_next(reader->batches, out_n, err));
        reader->next++;
    } while (*out_n && reader->next <= index);
    return STRATA_OK;
}

size_t strata_ps_input_bytes(const strata_ps_worker *w, int input) {
    const size_t bytes = strata_input_bytes(&w->model->inputs[input]);
    return w->form.byte_scale != 0 ? bytes / sizeof(float) : bytes;
}

strata_status strata_ps_reserve_batch(const strata_ps_worker *w, strata_ps_batch *b, strata_error *err) {
    const size_t n = (size_t)b->own;
    for (int i = 0; i < w->model->n_inputs; i++) STRATA_TRY(strata_ps_reserve(&b->x[i], n * strata_ps_input_bytes(w, i), err));
    for (int i = 0; i < w->model->n_outputs; i++)
        STRATA_TRY(strata_ps_reserve(&b->y[i], n * strata_label_bytes(&w->model->outputs[i]), err));
    return strata_ps_reserve((void **)&b->weights, n * sizeof *b->weights, err);
}

static strata_status read_batch(strata_ps_worker *w, int64_t epoch, int64_t index, int share, strata_ps_batch *b,
                                strata_error *err) {
    const int64_t n_shares = w->task->pace.n_shares;
    const strata_batches_options how =
        strata_fit_batches_options(w->model, w->fit->dataset, &w->fit->feed, w->fit->opts, epoch, index);
    STRATA_TRY(seek(&w->data, w->fit->dataset, &how, epoch, index, &b->n, err));
    w->form.byte_scale = strata_batches_byte_scale(w->data.batches);
    b->first = 0;
    b->own = b->n;
    if (n_shares) strata_partition_rows(b->n, n_shares, share, &b->first, &b->own);
    STRATA_TRY(strata_ps_reserve_batch(w, b, err));
    const strata_example_source source = {.batches = w->data.batches,
                                          .dataset = w->fit->dataset,
                                          .feed = &w->fit->feed,
                                          .class_weights = w->fit->opts->class_weights};
    if (b->own)
        strata_model_write_examples(w->model, &source, b->first, b->own, b->x, b->y, w->form.weighted ? b->weights : NULL);
    return STRATA_OK;
}

strata_status strata_ps_read_unit(strata_ps_worker *w, strata_ps_job *j, strata_error *err) {
    j->n_batches = 0;
    j->examples = j->whole = 0;
    for (int64_t i = 0; i < w->fit->accumulate; i++) {
        strata_ps_batch *b = &j->batches[i];
        STRATA_TRY(read_batch(w, j->lease.epoch, j->unit.index * w->fit->accumulate + i, j->unit.share, b, err));
        if (!b->n) break;
        j->n_batches++;
        j->examples += b->own;
        j->whole += b->n;
    }
    if (j->n_batches) return STRATA_OK;
    return strata_fail(err, STRATA_DATA, "fit: the data of %s end before step %lld of epoch %lld", w->task->name,
                       (long long)j->unit.index + 1, (long long)j->lease.epoch + 1);
}

strata_status strata_ps_program_of(strata_ps_worker *w, const strata_ps_batch *b, strata_model_program **out_program,
                                   strata_error *err) {
    return strata_model_get_program(w->model, STRATA_PROGRAM_GRADIENTS, b->own, w->form, out_program, err);
}

void strata_ps_prepare_last(strata_ps_worker *w) {
    const strata_fit_options *opts = w->fit->opts;
    const int64_t n = strata_dataset_size(w->fit->dataset), n_batches = strata_batches_count(w->fit->dataset, opts->batch);
    const strata_ps_batch last = {.own = opts->batch > 0 ? n % opts->batch : 0};
    const bool is_used = w->fit->n_steps * w->fit->accumulate >= n_batches && w->data.epoch + 1 < opts->epochs;
    strata_model_program *program = NULL;
    if (w->task->pace.n_shares) return; /* a synchronous worker computes a share of the batch, which has another size */
    if (!w->data.batches || !is_used || last.own <= 0 || n_batches != n / opts->batch + 1) return;
    /* the failure is reported when the batch is trained */
    strata_ps_ignore(strata_ps_program_of(w, &last, &program, NULL));
}

strata_status strata_ps_find_rows(strata_ps_worker *w, strata_ps_job *j, strata_error *err) {
    for (int k = 0; k < w->sparse.n; k++) {
        strata_ps_row_set_clear(&j->rows[k]);
        j->renumbered[k] = true;
    }
    for (int i = 0; i < j->n_batches && w->sparse.n; i++) {
        const strata_ps_batch *b = &j->batches[i];
        strata_model_program *program = NULL;
        if (!b->own) continue;
        STRATA_TRY(strata_ps_program_of(w, b, &program, err));
        for (int k = 0; k < w->sparse.n; k++) {
            strata_ps_row_set *rows = &j->rows[k];
            const int input = program->layout.sparse[k].input;
            j->renumbered[k] &= program->layout.sparse[k].renumbers;
            const int32_t *tokens = input < 0 ? NULL : b->x[input];
            const int64_t n = tokens ? b->own * strata_shape_elements(w->model->inputs[input].shape) : 0;
            if (tokens) strata_ps_row_set_add_all(rows, tokens, n);
            for (int32_t row = 0; row < rows->n_rows && !tokens; row++) strata_ps_row_set_add(rows, row);
        }
    }
    return STRATA_OK;
}

strata_status strata_ps_seek_visit(strata_ps_worker *w, int64_t index, int64_t *out_n, strata_error *err) {
    const strata_dataset *data = w->fit->opts->validation;
    strata_batches_options how = {
        .batch = w->fit->opts->batch, .first = index, .bytes = strata_model_takes_bytes(w->model, w->fit->opts->batch)};
    strata_model_batch_parts(w->model, data, &w->fit->validation_feed, true, &how);
    STRATA_TRY(seek(&w->visits, data, &how, 0, index, out_n, err));
    return *out_n ? STRATA_OK
                  : strata_fail(err, STRATA_DATA, "fit: the validation data of %s end before batch %lld", w->task->name,
                                (long long)index + 1);
}
