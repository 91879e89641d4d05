/* SPDX-License-Identifier: Apache-2.0
 *
 * The fit of a worker: it asks the chief for a unit (a batch, or its share of one), pulls parameters, computes gradients, and
 * pushes them. While the device computes one unit, the parameters for the next one are pulled, where the pace allows that.
 *
 * A *job* is one unit on its way: its examples, the rows of sparse parameters that it uses, the parameters that were pulled
 * for it. There are two, which take turns. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/data/batches.h"
#include "core/run/device.h"
#include "strategies/parameter_server/rows.h"
#include "strategies/parameter_server/task.h"

/* A batch of a unit: `own` of its `n` examples are this worker's, the first of them number `first` of the batch. */
typedef struct batch {
    int64_t n, first, own;
    /* Of each of the model's inputs and outputs. */
    void *x[STRATA_MAX_INPUTS], *y[STRATA_MAX_OUTPUTS];
    float *weights;
} batch;

typedef struct pull {
    strata_rpc_request *request;
    /* Lends its body where the server is on this machine; the rooms are not used then. */
    strata_rpc_answer answer;
    struct iovec *rooms;
    int64_t version;
    /* What the request borrows. */
    unsigned char *head;
    int32_t *ids;
    int64_t n_ids;
    /* Where bf16 values and rows are received. */
    unsigned char *narrow, *rows;
} pull;

typedef struct job {
    strata_ps_unit unit;
    /* Of the data. */
    int64_t epoch;
    int64_t t;
    double rate;
    /* The unit is a batch of the validation data. */
    bool evaluates;
    bool has_close;
    strata_ps_close close;
    /* [accumulate] */
    batch *batches;
    int n_batches;
    int64_t examples, whole;
    /* (all_size) What was pulled of dense parameters and states. */
    float *values;
    /* [n_sparse] Which rows of each sparse parameter it uses; their values are in the worker's tables. */
    strata_ps_row_set *rows;
    /* [n_servers] */
    pull *pulls;
    bool pulling;
    /* When the pulls were sent, for the trace. */
    double pull_began;
} job;

typedef struct worker {
    strata_ps_fit *fit;
    strata_ps_task *task;
    strata_model *model;
    strata_rpc_client *chief, **servers;
    int n_servers, n_sparse;
    /* [n_sparse] Indices of sparse parameters, and of each the rows as they were pulled last. */
    int *sparse;
    float **tables;
    strata_batches *batches;
    int64_t batches_epoch, batches_next; /* the batch that `next` would give */
    strata_batch_form form;
    /* Of the validation data, and the batch that `next` would give; the evaluation for which the model got its parameters. */
    strata_batches *visits;
    int64_t visits_next, visits_epoch;
    job jobs[2];
    /* (dense_size) The unit's gradients: `sums_of_dense` where batches are added up, else where the device wrote them. */
    const float *gradients;
    float *sums_of_dense;
    /* (state_size) What is added to states. */
    float *states;
    /* [n_sparse] The gradients of rows. */
    strata_ps_row_set *sums;
    float *unit_sums; /* (n_sums) */
    strata_ps_next_ask report;
    /* The learning rate of the unit that is computed. */
    double rate;
    /* A server could not be reached; the chief was lost, or started again. */
    bool lost_server, lost_chief;
} worker;

static strata_status no_memory(strata_error *err) {
    return strata_fail(err, STRATA_OUT_OF_MEMORY, "fit: no host memory for a worker of parameter_server");
}

/* ---- the data ---- */

/* Goes to batch `index` of the epoch. */
static strata_status seek(worker *w, int64_t epoch, int64_t index, int64_t *out_n, strata_error *err) {
    const strata_fit_options *opts = w->fit->opts;
    if (!w->batches || w->batches_epoch != epoch || w->batches_next > index) {
        strata_batches_options how = {.batch = opts->batch,
                                      .shuffle = !opts->no_shuffle,
                                      .seed = opts->seed,
                                      .epoch = (uint64_t)epoch,
                                      .first = index,
                                      .bytes = strata_model_takes_bytes(w->model)};
        strata_model_batch_parts(w->model, w->fit->dataset, &w->fit->feed, true, &how);
        strata_batches_destroy(w->batches);
        w->batches = NULL;
        STRATA_TRY(strata_batches_create(w->fit->dataset, &how, &w->batches, err));
        w->batches_epoch = epoch;
        w->batches_next = index;
        w->form.byte_scale = strata_batches_byte_scale(w->batches);
    }
    do {
        STRATA_TRY(strata_batches_next(w->batches, out_n, err));
        w->batches_next++;
    } while (*out_n && w->batches_next <= index);
    return STRATA_OK;
}

/* Of an example, as the worker keeps it until the device takes it. */
static size_t input_bytes(const worker *w, int input) {
    const size_t bytes = strata_input_bytes(&w->model->inputs[input]);
    return w->form.byte_scale != 0 ? bytes / sizeof(float) : bytes;
}

static strata_status reserve(void **memory, size_t bytes, strata_error *err) {
    void *grown = realloc(*memory, bytes + 1);
    if (!grown) return no_memory(err);
    *memory = grown;
    return STRATA_OK;
}

/* Memory for the worker's own examples. */
static strata_status reserve_batch(const worker *w, batch *b, strata_error *err) {
    const size_t n = (size_t)b->own;
    void *weights = b->weights;
    for (int i = 0; i < w->model->n_inputs; i++) STRATA_TRY(reserve(&b->x[i], n * input_bytes(w, i), err));
    for (int i = 0; i < w->model->n_outputs; i++)
        STRATA_TRY(reserve(&b->y[i], n * strata_label_bytes(&w->model->outputs[i]), err));
    STRATA_TRY(reserve(&weights, n * sizeof *b->weights, err));
    b->weights = weights;
    return STRATA_OK;
}

static strata_status read_batch(worker *w, int64_t epoch, int64_t index, int share, batch *b, strata_error *err) {
    const int64_t n_shares = w->task->pace.n_shares;
    STRATA_TRY(seek(w, epoch, index, &b->n, err));
    b->first = 0;
    b->own = b->n;
    if (n_shares) strata_partition_rows(b->n, n_shares, share, &b->first, &b->own);
    STRATA_TRY(reserve_batch(w, b, err));
    if (!b->own) return STRATA_OK;
    strata_batches_write(w->batches, b->first, b->own, b->x, b->y);
    for (int i = 0; i < w->model->n_outputs; i++)
        strata_model_convert_labels(&w->model->outputs[i], w->fit->dataset, w->fit->feed.targets[i], b->own, b->y[i]);
    if (!w->form.weighted) return STRATA_OK;
    strata_batches_write_weights(w->batches, b->first, b->own, b->weights);
    if (w->fit->opts->class_weights)
        strata_model_weigh_classes(&w->model->outputs[0], w->fit->opts->class_weights, b->y[0], b->own, b->weights);
    return STRATA_OK;
}

/* The unit's examples. A step's last batches may be missing at the end of the data. */
static strata_status read_unit(worker *w, job *j, strata_error *err) {
    j->n_batches = 0;
    j->examples = j->whole = 0;
    for (int64_t i = 0; i < w->fit->accumulate; i++) {
        batch *b = &j->batches[i];
        STRATA_TRY(read_batch(w, j->epoch, j->unit.index * w->fit->accumulate + i, j->unit.share, b, err));
        if (!b->n) break;
        j->n_batches++;
        j->examples += b->own;
        j->whole += b->n;
    }
    if (j->n_batches) return STRATA_OK;
    return strata_fail(err, STRATA_DATA, "fit: the data of %s end before step %lld of epoch %lld", w->task->name,
                       (long long)j->unit.index + 1, (long long)j->epoch + 1);
}

static strata_status program_of(worker *w, const batch *b, strata_model_program **out_program, strata_error *err) {
    return strata_model_get_program(w->model, STRATA_PROGRAM_GRADIENTS, b->own, w->form, out_program, err);
}

/* Which rows of sparse parameters the unit uses: those that its tokens name, or all where that is not known before. */
static strata_status find_rows(worker *w, job *j, strata_error *err) {
    for (int k = 0; k < w->n_sparse; k++) strata_ps_row_set_clear(&j->rows[k]);
    for (int i = 0; i < j->n_batches && w->n_sparse; i++) {
        const batch *b = &j->batches[i];
        strata_model_program *program = NULL;
        if (!b->own) continue;
        STRATA_TRY(program_of(w, b, &program, err));
        for (int k = 0; k < w->n_sparse; k++) {
            strata_ps_row_set *rows = &j->rows[k];
            const int input = program->layout.sparse[k].input;
            const int32_t *tokens = input < 0 ? NULL : b->x[input];
            const int64_t n = tokens ? b->own * strata_shape_elements(w->model->inputs[input].shape) : 0;
            if (tokens) strata_ps_row_set_add_all(rows, tokens, n);
            for (int32_t row = 0; row < rows->n_rows && !tokens; row++) strata_ps_row_set_add(rows, row);
        }
    }
    return STRATA_OK;
}

/* ---- pulls ---- */

/* The client of the server that has a group's shards now. One that was lost when this worker began is met here. */
static strata_status reach(worker *w, int group, strata_rpc_client **out_client, strata_error *err) {
    const int server = strata_ps_server_of(&w->fit->route, group, w->n_servers);
    if (!w->servers[server]) {
        STRATA_TRY(strata_ps_connect(w->task, STRATA_TASK_PS, server, strata_ps_plan_shared_bytes(&w->fit->plan),
                                     &w->servers[server], err));
        const strata_status status = strata_ps_say_hello(w->fit, w->servers[server], w->task->connect_seconds, NULL, err);
        if (status) {
            strata_rpc_client_destroy(w->servers[server]);
            w->servers[server] = NULL;
            return status;
        }
    }
    *out_client = w->servers[server];
    return STRATA_OK;
}

static int sparse_index(const worker *w, int parameter) {
    int k = 0;
    while (k < w->n_sparse && w->sparse[k] != parameter) k++;
    return k;
}

/* The set's rows that a table has, as the table counts them; returns how many. */
static int64_t rows_of_table(const strata_ps_row_set *set, const strata_ps_shard *table, int32_t *out_ids) {
    int64_t n = 0;
    for (int64_t i = 0; i < set->n; i++) {
        const int64_t row = set->ids[i] - table->first_row;
        if (row >= 0 && row < table->n_rows) out_ids[n++] = (int32_t)row;
    }
    return n;
}

/* Elements of the rows that a server is asked for; fills the head's counts and the ids. */
static strata_status prepare_pull(worker *w, job *j, int server, size_t *out_head_bytes, int64_t *out_ids,
                                  int64_t *out_elements, strata_error *err) {
    const strata_ps_plan *plan = &w->fit->plan;
    const struct strata_ps_sizes *sizes = &plan->sizes[server];
    const strata_ps_shard *tables = plan->shards + plan->begins[server] + sizes->n_dense;
    const strata_ps_pull_ask ask = {.has_close = j->has_close, .group = server, .close = j->close};
    pull *p = &j->pulls[server];
    int64_t most = 0;
    for (int k = 0; k < sizes->n_tables; k++) most += j->rows[sparse_index(w, tables[k].parameter)].n;
    unsigned char *head = realloc(p->head, sizeof ask + (size_t)sizes->n_tables * sizeof(int64_t));
    if (head) p->head = head;
    int32_t *ids = head ? realloc(p->ids, (size_t)(most + 1) * sizeof *ids) : NULL;
    if (!ids) return no_memory(err);
    p->ids = ids;
    memcpy(head, &ask, sizeof ask);
    *out_ids = *out_elements = 0;
    for (int k = 0; k < sizes->n_tables; k++) {
        const int64_t n = rows_of_table(&j->rows[sparse_index(w, tables[k].parameter)], &tables[k], ids + *out_ids);
        memcpy(head + sizeof ask + (size_t)k * sizeof n, &n, sizeof n);
        *out_ids += n;
        *out_elements += n * tables[k].row;
    }
    *out_head_bytes = sizeof ask + (size_t)sizes->n_tables * sizeof(int64_t);
    return STRATA_OK;
}

/* Where a server's reply goes: f32 values to their place at once, bf16 to memory of their own. */
static strata_status prepare_rooms(worker *w, job *j, int server, int64_t row_elements, int *out_n, strata_error *err) {
    const strata_ps_plan *plan = &w->fit->plan;
    const struct strata_ps_sizes *sizes = &plan->sizes[server];
    const strata_ps_shard *shards = plan->shards + plan->begins[server];
    const int n_shards = plan->begins[server + 1] - plan->begins[server];
    const strata_dtype wire = w->task->wire;
    pull *p = &j->pulls[server];
    int n = 0;
    if (!p->rooms) p->rooms = calloc((size_t)n_shards + 3, sizeof *p->rooms);
    unsigned char *rows = realloc(p->rows, (size_t)row_elements * strata_dtype_bytes(wire) + 4);
    if (rows) p->rows = rows;
    if (wire != STRATA_DTYPE_F32 && !p->narrow) p->narrow = malloc(strata_ps_wire_bytes(wire, sizes->dense) + 4);
    if (!p->rooms || !rows || (wire != STRATA_DTYPE_F32 && !p->narrow)) return no_memory(err);
    for (int i = 0; i < sizes->n_dense && wire == STRATA_DTYPE_F32; i++)
        p->rooms[n++] = (struct iovec){j->values + shards[i].first, (size_t)shards[i].n * sizeof(float)};
    if (wire != STRATA_DTYPE_F32) p->rooms[n++] = (struct iovec){p->narrow, strata_ps_wire_bytes(wire, sizes->dense)};
    if (sizes->states)
        p->rooms[n++] = (struct iovec){j->values + shards[n_shards - 1].first, (size_t)sizes->states * sizeof(float)};
    p->rooms[n++] = (struct iovec){rows, (size_t)row_elements * strata_dtype_bytes(wire)};
    *out_n = n;
    return STRATA_OK;
}

static strata_status start_pull(worker *w, job *j, strata_error *err) {
    j->pulling = true;
    j->pull_began = strata_trace_now();
    for (int s = 0; s < w->n_servers; s++) {
        pull *p = &j->pulls[s];
        size_t head_bytes = 0;
        int64_t n_ids = 0, elements = 0;
        int n_rooms = 0;
        STRATA_TRY(prepare_pull(w, j, s, &head_bytes, &n_ids, &elements, err));
        STRATA_TRY(prepare_rooms(w, j, s, elements, &n_rooms, err));
        p->n_ids = n_ids;
        const struct iovec body = {p->ids, (size_t)n_ids * sizeof *p->ids};
        const strata_rpc_ask ask = {.method = STRATA_PS_PULL,
                                    .head = p->head,
                                    .head_bytes = head_bytes,
                                    .body = &body,
                                    .n_body = 1,
                                    .what = "a pull of parameters"};
        p->answer = (strata_rpc_answer){
            .head = &p->version, .head_bytes = sizeof p->version, .body = p->rooms, .n_body = n_rooms, .may_lend = true};
        strata_rpc_client *client = NULL;
        STRATA_TRY(reach(w, s, &client, err));
        STRATA_TRY(strata_rpc_client_start(client, &ask, &p->answer, STRATA_PS_CALL_SECONDS, &p->request, err));
    }
    return STRATA_OK;
}

/* Values that came as bf16 become f32, in the place where f32 would have come. */
static void widen_values(worker *w, job *j, int server) {
    const strata_ps_plan *plan = &w->fit->plan;
    const strata_ps_shard *shards = plan->shards + plan->begins[server];
    const pull *p = &j->pulls[server];
    const unsigned char *from = p->answer.lent ? p->answer.lent : p->narrow;
    for (int i = 0; i < plan->sizes[server].n_dense && w->task->wire != STRATA_DTYPE_F32; i++) {
        strata_ps_widen(w->task->wire, from, shards[i].n, j->values + shards[i].first);
        from += (size_t)shards[i].n * strata_dtype_bytes(w->task->wire);
    }
}

/* What was lent of a server's dense shards and states, where it is in the rooms as well or is not needed any more. */
static void take_lent_states(worker *w, job *j, int server) {
    const strata_ps_plan *plan = &w->fit->plan;
    const struct strata_ps_sizes *sizes = &plan->sizes[server];
    const unsigned char *lent = j->pulls[server].answer.lent;
    const strata_ps_shard *last = &plan->shards[plan->begins[server + 1] - 1];
    if (lent && sizes->states)
        memcpy(j->values + last->first, lent + strata_ps_wire_bytes(w->task->wire, sizes->dense),
               (size_t)sizes->states * sizeof(float));
}

/* The rows that came, to the worker's tables. */
static void place_rows(worker *w, const job *j, int server) {
    const strata_ps_plan *plan = &w->fit->plan;
    const struct strata_ps_sizes *sizes = &plan->sizes[server];
    const strata_ps_shard *tables = plan->shards + plan->begins[server] + sizes->n_dense;
    const pull *p = &j->pulls[server];
    const size_t fixed = strata_ps_wire_bytes(w->task->wire, sizes->dense) + (size_t)sizes->states * sizeof(float);
    const unsigned char *from = p->answer.lent ? (const unsigned char *)p->answer.lent + fixed : p->rows;
    for (int k = 0; k < sizes->n_tables; k++) {
        const int index = sparse_index(w, tables[k].parameter);
        const strata_ps_row_set *set = &j->rows[index];
        for (int64_t i = 0, run; i < set->n; i += run) {
            const int64_t row = set->ids[i] - tables[k].first_row;
            run = 1;
            if (row < 0 || row >= tables[k].n_rows) continue;
            run = strata_ps_run(set->ids + i, set->n - i < tables[k].n_rows - row ? set->n - i : tables[k].n_rows - row);
            strata_ps_widen(w->task->wire, from, run * set->row, w->tables[index] + set->ids[i] * set->row);
            from += (size_t)(run * set->row) * strata_dtype_bytes(w->task->wire);
        }
    }
}

/* A slice of the trace, on the track of this thread, from `began` until now. */
static void trace_slice(const worker *w, const char *name, const job *j, double began) {
    if (w->fit->trace) strata_trace_add_named(w->fit->trace, STRATA_TRACE_HOST, name, j->unit.index, began, strata_trace_now());
}

static void trace_pull(const worker *w, const job *j, double waited) {
    strata_trace *trace = w->fit->trace;
    trace_slice(w, "wait for pull", j, waited);
    if (trace)
        strata_trace_add_named(trace, strata_trace_thread_track(trace, "pulls under way"), "pull", j->unit.index, j->pull_began,
                               strata_trace_now());
}

static strata_status finish_pull(worker *w, job *j, strata_error *err) {
    const double waited = strata_trace_now();
    strata_status status = STRATA_OK;
    j->pulling = false;
    for (int s = 0; s < w->n_servers; s++) {
        pull *p = &j->pulls[s];
        if (!p->request) continue;
        const strata_status one = strata_rpc_request_wait(p->request, status ? NULL : err);
        p->request = NULL;
        if (!status) status = one;
        size_t bytes = 0;
        for (int i = 0; i < p->answer.n_body; i++) bytes += p->rooms[i].iov_len;
        if (!status && (p->answer.body_bytes != bytes || p->answer.head_bytes != sizeof p->version))
            status = strata_fail(err, STRATA_INTERNAL, "parameter_server: ps:%d sent %zu bytes; its shards have %zu", s,
                                 p->answer.body_bytes, bytes);
        if (status) continue;
        w->report.bytes += (int64_t)bytes + p->n_ids * (int64_t)sizeof *p->ids;
        widen_values(w, j, s);
        take_lent_states(w, j, s);
        place_rows(w, j, s);
        if (w->task->wire != STRATA_DTYPE_F32) strata_rpc_answer_release(&p->answer); /* else when it is on the device */
    }
    trace_pull(w, j, waited);
    return status;
}

/* ---- computing ---- */

static strata_status set_range(strata_variable *variable, int64_t first, const float *values, int64_t n, strata_error *err) {
    const strata_array part = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(n), (float *)values); /* only read */
    return n ? strata_variable_set_range(variable, first * (int64_t)sizeof(float), &part, err) : STRATA_OK;
}

/* Each call of a driver costs as much as a copy of some KiB, so rows with less than that between them are written together,
 * with the newest that the worker's table has of those between them, which the batch does not use. */
static strata_status upload_rows(const worker *w, int k, const strata_ps_row_set *set, strata_error *err) {
    enum { GAP_BYTES = 8 << 10 };
    const strata_parameter_spec *p = &w->model->parameters.items[w->sparse[k]];
    const strata_parameter_part *part = &w->model->parameters.parts[p->first_part];
    const strata_model_block *block = &w->model->replicas[0].blocks[part->block];
    const int64_t begin = p->offset - w->model->parameters.blocks[part->block].begin, row = set->row;
    const int64_t gap = row ? GAP_BYTES / (row * (int64_t)sizeof(float)) : 0;
    int64_t first = 0, end = 0; /* of the rows that are written next; first == end: none */
    for (int64_t at = 0; at < (set->ascending ? set->n : set->n_rows); at++) {
        const int64_t i = set->ascending ? set->ids[at] : at;
        if (set->places[i] < 0) continue;
        if (first < end && i - end > gap) {
            STRATA_TRY(set_range(block->flat, begin + first * row, w->tables[k] + first * row, (end - first) * row, err));
            first = i;
        }
        if (first == end) first = i;
        end = i + 1;
    }
    return set_range(block->flat, begin + first * row, w->tables[k] + first * row, (end - first) * row, err);
}

/* The worker's copy of a sparse parameter: what the device has at first, then each row as it was last pulled. */
static strata_status make_table(worker *w, int k, strata_error *err) {
    const strata_parameter_spec *p = &w->model->parameters.items[w->sparse[k]];
    const strata_parameter_part *part = &w->model->parameters.parts[p->first_part];
    const int64_t begin = p->offset - w->model->parameters.blocks[part->block].begin, n = strata_shape_elements(p->shape);
    w->tables[k] = malloc((size_t)(n + 1) * sizeof(float));
    if (!w->tables[k]) return no_memory(err);
    strata_array whole = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(n), w->tables[k]);
    return strata_variable_get_range(w->model->replicas[0].blocks[part->block].flat, begin * (int64_t)sizeof(float), &whole,
                                     err);
}

/* A server's dense shards, straight from the memory that it lent. */
static strata_status upload_lent(const worker *w, job *j, int server, strata_error *err) {
    const strata_ps_plan *plan = &w->fit->plan;
    const strata_parameter_set *set = &w->model->parameters;
    const strata_ps_shard *shards = plan->shards + plan->begins[server];
    const float *from = j->pulls[server].answer.lent;
    for (int i = 0; i < plan->sizes[server].n_dense; from += shards[i++].n)
        for (int k = 0; k < set->n_blocks; k++) {
            const strata_parameter_block *at = &set->blocks[k];
            const int64_t first = shards[i].first > at->begin ? shards[i].first : at->begin,
                          last = shards[i].first + shards[i].n;
            const int64_t n = (last < at->dense_end ? last : at->dense_end) - first;
            if (n > 0)
                STRATA_TRY(set_range(w->model->replicas[0].blocks[k].flat, first - at->begin, from + (first - shards[i].first),
                                     n, err));
        }
    strata_rpc_answer_release(&j->pulls[server].answer);
    return STRATA_OK;
}

static strata_status upload(const worker *w, job *j, strata_error *err) {
    const strata_parameter_set *set = &w->model->parameters;
    const strata_model_replica *own = &w->model->replicas[0];
    int n_lent = 0;
    for (int s = 0; s < w->n_servers; s++) n_lent += j->pulls[s].answer.lent != NULL;
    for (int k = 0; k < set->n_blocks && n_lent < w->n_servers; k++) { /* values of lent shards are written over below */
        const strata_parameter_block *at = &set->blocks[k];
        STRATA_TRY(set_range(own->blocks[k].flat, 0, j->values + at->begin, at->dense_end - at->begin, err));
    }
    for (int s = 0; s < w->n_servers; s++)
        if (j->pulls[s].answer.lent) STRATA_TRY(upload_lent(w, j, s, err));
    if (own->state) STRATA_TRY(set_range(own->state, 0, j->values + set->flat_size, set->state_size, err));
    for (int k = 0; k < w->n_sparse; k++) STRATA_TRY(upload_rows(w, k, &j->rows[k], err));
    return STRATA_OK;
}

static double scale_of(const worker *w) {
    return w->model->scale.value > 0 ? w->model->scale.value : 1;
}

static void fill_inputs(worker *w, const job *j, const batch *b, int64_t row, const strata_model_program *program, int slot) {
    const strata_program_part *part = &program->parts[0];
    strata_executable *exe = part->executable;
    float words[STRATA_STEP_WORDS];
    const uint64_t seeds[] = {w->model->seed, (uint64_t)(j->t + j->unit.index + 1), (uint64_t)(row + b->first), 0};
    w->model->rate.own = j->rate;
    strata_model_step_words(w->model, j->t + j->unit.index + 1, words);
    w->rate = (double)words[STRATA_STEP_PLAIN_RATE];
    words[STRATA_STEP_SHARE] = (float)(scale_of(w) * (double)b->own / (double)j->whole);
    words[STRATA_STEP_SCALE] = 1;
    if (part->step >= 0) memcpy(strata_executable_input(exe, slot, part->step), words, sizeof words);
    void *x[STRATA_MAX_INPUTS], *y[STRATA_MAX_OUTPUTS]; /* NULL: no node of the program needs it */
    strata_model_slots(w->model, part, slot, x, y);
    for (int i = 0; i < w->model->n_inputs; i++)
        if (x[i]) memcpy(x[i], b->x[i], (size_t)b->own * input_bytes(w, i));
    for (int i = 0; i < w->model->n_outputs; i++)
        if (y[i]) memcpy(y[i], b->y[i], (size_t)b->own * strata_label_bytes(&w->model->outputs[i]));
    float *weights = strata_executable_input(exe, slot, part->weights);
    for (int64_t i = 0; i < b->own; i++) weights[i] = (float)scale_of(w) / (float)j->whole;
    if (part->example_weights >= 0)
        memcpy(strata_executable_input(exe, slot, part->example_weights), b->weights, (size_t)b->own * sizeof *b->weights);
    if (part->rng >= 0) memcpy(strata_executable_input(exe, slot, part->rng), seeds, sizeof seeds);
}

static void add(float *sum, const float *values, int64_t n) {
    for (int64_t i = 0; i < n; i++) sum[i] += values[i];
}

/* Whether the gradients of a unit's only batch can stay where the device wrote them: one piece, which nothing scales. */
static bool stay_in_place(const worker *w, const job *j) {
    const strata_model *model = w->model;
    return j->n_batches == 1 && model->parameters.n_blocks == 1 && !model->parameters.blocks[0].begin &&
           !(model->scale.value > 0) && !(model->optimizer.clip_global_norm > 0);
}

static void add_row(strata_ps_row_set *sums, int32_t id, const float *values) {
    const int64_t before = sums->n, place = strata_ps_row_set_add(sums, id);
    if (sums->n > before)
        memcpy(sums->values + place * sums->row, values, (size_t)sums->row * sizeof *values);
    else
        add(sums->values + place * sums->row, values, sums->row);
}

/* The rows `used` of the gradient of a whole table become the set's, which is empty. */
static void copy_used(strata_ps_row_set *sums, const strata_ps_row_set *used, const float *gradient) {
    strata_ps_row_set_copy(sums, used);
    for (int64_t i = 0, run; i < used->n; i += run) {
        run = strata_ps_run(used->ids + i, used->n - i);
        memcpy(sums->values + i * sums->row, gradient + used->ids[i] * sums->row, (size_t)(run * sums->row) * sizeof *gradient);
    }
}

/* Adds a batch's outputs to what the unit has so far. */
static strata_status take_outputs(worker *w, const job *j, const strata_model_program *program, int slot, strata_error *err) {
    const strata_parameter_set *set = &w->model->parameters;
    const strata_executable *exe = program->parts[0].executable;
    add(w->unit_sums, strata_executable_output(exe, slot, 0), w->model->metrics.n_sums);
    if (stay_in_place(w, j)) w->gradients = strata_executable_output(exe, slot, 1);
    for (int k = 0; k < set->n_blocks && !stay_in_place(w, j); k++) {
        const strata_parameter_block *at = &set->blocks[k];
        add(w->sums_of_dense + at->begin, strata_executable_output(exe, slot, 1 + k), at->dense_end - at->begin);
    }
    if (set->state_size) add(w->states, strata_executable_output(exe, slot, 1 + set->n_blocks), set->state_size);
    for (int k = 0; k < w->n_sparse; k++) {
        const struct strata_sparse_gradient *from = &program->layout.sparse[k];
        const float *rows = (const float *)strata_executable_output(exe, slot, 1 + from->block) + from->place;
        strata_ps_row_set *sums = &w->sums[k];
        const strata_ps_row_set *used = from->ids < 0 ? &j->rows[k] : NULL; /* by any batch of the unit */
        const int32_t *ids = used ? used->ids : strata_executable_output(exe, slot, from->ids);
        STRATA_TRY(
            strata_ps_row_set_reserve(sums, sums->n + from->n_ids < sums->n_rows ? sums->n + from->n_ids : sums->n_rows, err));
        const bool whole = used && !sums->n; /* the set's first rows: neighbours are copied together */
        if (whole) copy_used(sums, used, rows);
        for (int64_t i = 0; i < (used ? used->n : from->n_ids) && !whole; i++) {
            if (ids[i] >= 0) add_row(sums, ids[i], rows + (used ? ids[i] : i) * sums->row);
        }
    }
    return STRATA_OK;
}

static void clear_sums(worker *w, const job *j) {
    const strata_parameter_set *set = &w->model->parameters;
    memset(w->unit_sums, 0, (size_t)w->model->metrics.n_sums * sizeof *w->unit_sums);
    if (!j->examples || !stay_in_place(w, j)) memset(w->sums_of_dense, 0, (size_t)set->dense_size * sizeof(float));
    w->gradients = w->sums_of_dense;
    memset(w->states, 0, (size_t)set->state_size * sizeof *w->states);
    for (int k = 0; k < w->n_sparse; k++) strata_ps_row_set_clear(&w->sums[k]);
}

/* Batch number i of the unit is submitted. */
static strata_status submit(worker *w, const job *j, int i, strata_model_program **out_program, int *out_slot,
                            strata_error *err) {
    const batch *b = &j->batches[i];
    int64_t row = 0;
    for (int k = 0; k < i; k++) row += j->batches[k].n;
    STRATA_TRY(program_of(w, b, out_program, err));
    if (w->fit->trace) strata_group_set_trace((*out_program)->group, w->fit->trace, w->fit->tracks);
    STRATA_TRY(strata_group_acquire((*out_program)->group, out_slot, err));
    fill_inputs(w, j, b, row, *out_program, *out_slot);
    STRATA_TRY(strata_group_start((*out_program)->group, *out_slot, j->t + j->unit.index, err));
    return strata_group_finish((*out_program)->group, *out_slot, NULL, err);
}

/* ---- gradients ---- */

static bool all_finite(const float *values, int64_t n) {
    uint32_t wrong = 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        wrong |= (bits & 0x7f800000u) == 0x7f800000u;
    }
    return !wrong;
}

/* The first tensor of the unit that is not finite, in the order of the loss and then the parameters; NULL: all are finite. */
static const char *first_not_finite(const worker *w) {
    const strata_parameter_set *set = &w->model->parameters;
    if (!isfinite(w->unit_sums[0])) return "the loss";
    for (int i = 0; i < set->n; i++) {
        const strata_parameter_spec *p = &set->items[i];
        if (p->state) continue;
        const strata_ps_row_set *rows = p->sparse ? &w->sums[sparse_index(w, i)] : NULL;
        const float *values = rows ? rows->values : w->gradients + p->offset;
        if (!all_finite(values, rows ? rows->n * rows->row : strata_shape_elements(p->shape))) return p->name;
    }
    return all_finite(w->states, set->state_size) ? NULL : "the states";
}

/* The first tensor of the data that is not finite, for a message: "input x", "target y". False: the data are all finite, or are
 * whole numbers. */
static bool name_wrong_data(const worker *w, const job *j, char *out, size_t room) {
    const strata_model *model = w->model;
    for (int k = 0; k < j->n_batches; k++) {
        const batch *b = &j->batches[k];
        for (int i = 0; i < model->n_inputs; i++) {
            const strata_input_spec *input = &model->inputs[i];
            if (input->dtype != STRATA_DTYPE_F32 || w->form.byte_scale != 0) continue;
            if (all_finite(b->x[i], b->own * strata_shape_elements(input->shape))) continue;
            snprintf(out, room, "input %s", model->values[input->value]->name);
            return true;
        }
        for (int i = 0; i < model->n_outputs; i++) {
            const strata_output_spec *output = &model->outputs[i];
            if (strata_loss_label_dtype(output->loss) != STRATA_DTYPE_F32) continue;
            if (all_finite(b->y[i], b->own * (int64_t)(strata_label_bytes(output) / sizeof(float)))) continue;
            snprintf(out, room, "target %s", strata_output_name(model, i));
            return true;
        }
    }
    return false;
}

static void multiply(worker *w, double factor) {
    const float by = (float)factor;
    for (int64_t i = 0; i < w->model->parameters.dense_size; i++) w->sums_of_dense[i] *= by;
    for (int k = 0; k < w->n_sparse; k++)
        for (int64_t i = 0; i < w->sums[k].n * w->sums[k].row; i++) w->sums[k].values[i] *= by;
}

/* Of all gradients of the unit. */
static double norm_of(const worker *w) {
    double square = 0;
    for (int64_t i = 0; i < w->model->parameters.dense_size; i++) square += (double)w->gradients[i] * (double)w->gradients[i];
    for (int k = 0; k < w->n_sparse; k++)
        for (int64_t i = 0; i < w->sums[k].n * w->sums[k].row; i++)
            square += (double)w->sums[k].values[i] * (double)w->sums[k].values[i];
    return sqrt(square);
}

/* The norm of all gradients, for the report, and clipping by it. Where a push is an update by itself only the worker has them
 * together; of a synchronous step the servers clip the sum of all shares. */
static void clip_all(worker *w) {
    const double most = w->model->optimizer.clip_global_norm;
    if ((!(most > 0) && !w->model->measures_norm) || w->task->pace.n_shares) return;
    const double norm = norm_of(w);
    if (w->model->measures_norm) w->report.norm = norm;
    if (most > 0 && norm > most) multiply(w, most / norm);
}

/* Undoes the scale of f16, which follows what the gradients are as in fit. */
static void follow_scale(worker *w, bool finite) {
    enum { STEPS_BETWEEN_SCALES = 2000, LARGEST = 16777216 };
    strata_model *model = w->model;
    if (!(model->scale.value > 0)) return;
    if (finite) {
        multiply(w, 1 / model->scale.value);
        if (++model->scale.steps < STEPS_BETWEEN_SCALES || model->scale.value >= LARGEST) return;
    }
    model->scale.value *= finite ? 2 : 0.5;
    model->scale.steps = 0;
}

/* ---- pushes ---- */

typedef struct push {
    strata_rpc_request *request;
    strata_rpc_answer answer;
    int64_t staleness;
    unsigned char *head;
    struct iovec *pieces;
    int32_t *ids;
    unsigned char *narrow;
} push;

static void push_finish(push *p) {
    free(p->head);
    free(p->pieces);
    free(p->ids);
    free(p->narrow);
}

/* Whether a table has all rows of its parameter, so that the values of a set are those of the table. */
static bool in_one_piece(const strata_ps_shard *table, const strata_ps_row_set *set) {
    return !table->first_row && table->n_rows == set->n_rows;
}

/* Values of the set's rows that a table has; returns where they end. */
static unsigned char *narrow_rows(strata_dtype wire, const strata_ps_row_set *set, const strata_ps_shard *table,
                                  unsigned char *to) {
    for (int64_t i = 0; i < set->n; i++) {
        const int64_t row = set->ids[i] - table->first_row;
        if (row < 0 || row >= table->n_rows) continue;
        strata_ps_narrow(wire, set->values + i * set->row, set->row, to);
        to += (size_t)set->row * strata_dtype_bytes(wire);
    }
    return to;
}

/* The gradients of a server's shards: f32 from where they are, bf16 from memory of their own. */
static strata_status prepare_push(worker *w, const job *j, int server, push *p, size_t *out_head_bytes, int *out_n,
                                  strata_error *err) {
    const strata_ps_plan *plan = &w->fit->plan;
    const struct strata_ps_sizes *sizes = &plan->sizes[server];
    const strata_ps_shard *shards = plan->shards + plan->begins[server], *tables = shards + sizes->n_dense;
    const int n_shards = plan->begins[server + 1] - plan->begins[server];
    const strata_dtype wire = w->task->wire;
    const size_t each = strata_dtype_bytes(wire);
    int64_t most = 0, n_ids = 0, elements = 0;
    for (int k = 0; k < sizes->n_tables; k++) {
        const strata_ps_row_set *set = &w->sums[sparse_index(w, tables[k].parameter)];
        most += set->n;
        elements += wire == STRATA_DTYPE_F32 && in_one_piece(&tables[k], set) ? 0 : set->n * set->row;
    }
    const size_t dense = strata_ps_wire_bytes(wire, sizes->dense), narrow = wire == STRATA_DTYPE_F32 ? 0 : dense;
    const strata_ps_push_ask ask = {.unit = j->unit, .version = j->pulls[server].version, .group = server, .rate = j->rate};
    *out_head_bytes = sizeof ask + (size_t)sizes->n_tables * sizeof(int64_t);
    p->head = calloc(1, *out_head_bytes);
    p->pieces = calloc((size_t)n_shards + (size_t)sizes->n_tables + 4, sizeof *p->pieces);
    p->ids = malloc((size_t)(most + 1) * sizeof *p->ids);
    p->narrow = malloc(narrow + (size_t)elements * each + 4);
    if (!p->head || !p->pieces || !p->ids || !p->narrow) return no_memory(err);
    memcpy(p->head, &ask, sizeof ask);
    int n = 0;
    unsigned char *at = p->narrow;
    for (int i = 0; i < sizes->n_dense; i++) {
        const float *values = w->gradients + shards[i].first;
        if (!narrow) {
            p->pieces[n++] = (struct iovec){(void *)values, (size_t)shards[i].n * sizeof *values}; /* only read */
        } else {
            strata_ps_narrow(wire, values, shards[i].n, at);
            at += (size_t)shards[i].n * each;
        }
    }
    if (narrow) memset(at, 0, (size_t)(p->narrow + narrow - at)); /* what pads them */
    if (narrow) p->pieces[n++] = (struct iovec){p->narrow, narrow};
    if (sizes->states) p->pieces[n++] = (struct iovec){w->states, (size_t)sizes->states * sizeof *w->states};
    at = p->narrow + narrow;
    struct iovec *of_ids = &p->pieces[n];
    n += most > 0;
    for (int k = 0; k < sizes->n_tables; k++) {
        const strata_ps_row_set *set = &w->sums[sparse_index(w, tables[k].parameter)];
        const unsigned char *rows = at;
        int64_t count = set->n;
        if (wire == STRATA_DTYPE_F32 && in_one_piece(&tables[k], set)) {
            memcpy(p->ids + n_ids, set->ids, (size_t)count * sizeof *p->ids);
            rows = (const unsigned char *)set->values;
        } else {
            count = rows_of_table(set, &tables[k], p->ids + n_ids);
            at = narrow_rows(wire, set, &tables[k], at);
        }
        if (count) p->pieces[n++] = (struct iovec){(void *)rows, (size_t)(count * set->row) * each}; /* only read */
        memcpy(p->head + sizeof ask + (size_t)k * sizeof count, &count, sizeof count);
        n_ids += count;
    }
    if (most) *of_ids = (struct iovec){p->ids, (size_t)n_ids * sizeof *p->ids};
    *out_n = n;
    return STRATA_OK;
}

static strata_status push_all(worker *w, const job *j, strata_error *err) {
    const double began = strata_trace_now();
    strata_status status = STRATA_OK;
    push *pushes = calloc((size_t)w->n_servers, sizeof *pushes);
    if (!pushes) return no_memory(err);
    for (int s = 0; s < w->n_servers && !status; s++) {
        push *p = &pushes[s];
        size_t head_bytes = 0;
        int n = 0;
        status = prepare_push(w, j, s, p, &head_bytes, &n, err);
        const strata_rpc_ask ask = {.method = STRATA_PS_PUSH,
                                    .head = p->head,
                                    .head_bytes = head_bytes,
                                    .body = p->pieces,
                                    .n_body = n,
                                    .what = "a push of gradients"};
        for (int i = 0; i < n && !status; i++) w->report.bytes += (int64_t)p->pieces[i].iov_len;
        p->answer = (strata_rpc_answer){.head = &p->staleness, .head_bytes = sizeof p->staleness};
        strata_rpc_client *client = NULL;
        if (!status) status = reach(w, s, &client, err);
        if (!status) status = strata_rpc_client_start(client, &ask, &p->answer, STRATA_PS_CALL_SECONDS, &p->request, err);
    }
    for (int s = 0; s < w->n_servers; s++) {
        push *p = &pushes[s];
        const strata_status one = p->request ? strata_rpc_request_wait(p->request, status ? NULL : err) : STRATA_OK;
        if (!status) status = one;
        if (!status && p->staleness >= 0) {
            w->report.staleness_bins[strata_ps_staleness_bin(p->staleness)]++;
            w->report.n_staleness++;
            w->report.staleness_sum += p->staleness;
            if (p->staleness > w->report.staleness_max) w->report.staleness_max = p->staleness;
        }
        push_finish(p);
    }
    free(pushes);
    trace_slice(w, "push", j, began);
    if (!status && w->report.n_staleness)
        strata_trace_add_counter(w->fit->trace, "staleness", (double)w->report.staleness_max, strata_trace_now());
    return status;
}

/* ---- the loop ---- */

/* Notes when it is a server that was lost. */
static strata_status of_server(worker *w, strata_status status) {
    w->lost_server |= status == STRATA_PEER_LOST;
    return status;
}

/* Reports the unit that was finished last, if any, and asks for another. Examples and rows of a unit that is granted are read,
 * and its pull is started. */
static strata_status ask_chief(worker *w, bool waits, job *j, int32_t *out_grant, strata_error *err) {
    strata_ps_next_reply reply = {0};
    const struct iovec body = {w->unit_sums, (size_t)w->model->metrics.n_sums * sizeof *w->unit_sums};
    w->report.waits = waits;
    const strata_rpc_ask ask = {.method = STRATA_PS_NEXT,
                                .head = &w->report,
                                .head_bytes = sizeof w->report,
                                .body = &body,
                                .n_body = 1,
                                .what = "the next batch"};
    strata_rpc_answer answer = {.head = &reply, .head_bytes = sizeof reply};
    const double began = strata_trace_now();
    const strata_status status = strata_rpc_client_call(w->chief, &ask, &answer, STRATA_PS_CALL_SECONDS, err);
    trace_slice(w, waits ? "wait for a batch" : "ask for the next batch", j, began);
    w->lost_chief = status == STRATA_PEER_LOST;
    if (status) return status;
    w->report = (strata_ps_next_ask){.unit.index = -1};
    *out_grant = reply.grant;
    w->fit->route = reply.route;
    /* Besides the batch that it computes the worker has the next one, or none. */
    strata_trace_add_counter(w->fit->trace, "queue depth", !waits + (reply.grant == STRATA_PS_GRANTED), strata_trace_now());
    if (reply.grant != STRATA_PS_GRANTED) return STRATA_OK;
    j->unit = reply.unit;
    j->epoch = reply.epoch;
    j->t = reply.t;
    j->rate = reply.rate;
    j->evaluates = reply.evaluates;
    j->has_close = reply.has_close;
    j->close = reply.close;
    if (j->evaluates) return STRATA_OK;
    STRATA_TRY(read_unit(w, j, err));
    STRATA_TRY(find_rows(w, j, err));
    return of_server(w, start_pull(w, j, err));
}

/* Computes the unit's gradients. While the device is at its first batch, `ahead` may become the next unit. */
static strata_status compute(worker *w, job *j, job *ahead, int32_t *out_grant, strata_error *err) {
    *out_grant = STRATA_PS_WAIT;
    STRATA_TRY(upload(w, j, err));
    bool asked = w->task->pace.n_shares > 0; /* a synchronous step needs the parameters of the one before */
    bool cleared = false;
    for (int i = 0; i < j->n_batches; i++) {
        strata_model_program *program = NULL;
        int slot = 0;
        strata_status status = STRATA_OK;
        if (!j->batches[i].own) continue;
        STRATA_TRY(submit(w, j, i, &program, &slot, err));
        if (!asked) {
            status = ask_chief(w, false, ahead, out_grant, err);
            asked = true;
        }
        const strata_status computed = strata_group_wait(program->group, slot, status ? NULL : err);
        if (status || computed) return status ? status : computed;
        if (!cleared) clear_sums(w, j); /* the report of the unit before is sent by now */
        cleared = true;
        STRATA_TRY(take_outputs(w, j, program, slot, err));
    }
    if (!cleared) clear_sums(w, j);
    return STRATA_OK;
}

/* ---- the validation data ---- */

/* The model gets all that the servers have. */
static strata_status take_all(worker *w, job *j, strata_error *err) {
    for (int k = 0; k < w->n_sparse; k++) {
        strata_ps_row_set_clear(&j->rows[k]);
        for (int32_t row = 0; row < j->rows[k].n_rows; row++) strata_ps_row_set_add(&j->rows[k], row);
    }
    const strata_status started = start_pull(w, j, err);
    const strata_status pulled = finish_pull(w, j, started ? NULL : err); /* also what was started before it failed */
    if (started || pulled) return of_server(w, started ? started : pulled);
    return upload(w, j, err);
}

/* Goes to batch `index` of the validation data, which come in their order. */
static strata_status seek_visit(worker *w, int64_t index, int64_t *out_n, strata_error *err) {
    const strata_dataset *data = w->fit->opts->validation;
    if (!w->visits || w->visits_next > index) {
        strata_batches_options how = {
            .batch = w->fit->opts->batch, .first = index, .bytes = strata_model_takes_bytes(w->model)};
        strata_model_batch_parts(w->model, data, &w->fit->validation_feed, true, &how);
        strata_batches_destroy(w->visits);
        w->visits = NULL;
        STRATA_TRY(strata_batches_create(data, &how, &w->visits, err));
        w->visits_next = index;
    }
    do {
        STRATA_TRY(strata_batches_next(w->visits, out_n, err));
        w->visits_next++;
    } while (*out_n && w->visits_next <= index);
    return *out_n ? STRATA_OK
                  : strata_fail(err, STRATA_DATA, "fit: the validation data of %s end before batch %lld", w->task->name,
                                (long long)index + 1);
}

/* Evaluates a batch. Nobody pushes meanwhile, so the parameters are pulled once for all of them. */
static strata_status visit(worker *w, job *j, strata_error *err) {
    int64_t n = 0;
    if (w->visits_epoch != j->unit.epoch) STRATA_TRY(take_all(w, j, err));
    w->visits_epoch = j->unit.epoch;
    STRATA_TRY(seek_visit(w, j->unit.index, &n, err));
    STRATA_TRY(strata_model_evaluate_batch(w->model, w->fit->opts->validation, &w->fit->validation_feed, w->visits, n,
                                           w->unit_sums, err));
    w->report.unit = j->unit;
    w->report.evaluates = true;
    w->report.examples = n;
    return STRATA_OK;
}

/* ---- units ---- */

static strata_status do_unit(worker *w, job *j, job *ahead, int32_t *out_grant, strata_error *err) {
    const double began = strata_ps_seconds();
    *out_grant = STRATA_PS_WAIT;
    if (j->evaluates) return visit(w, j, err);
    STRATA_TRY(of_server(w, finish_pull(w, j, err)));
    STRATA_TRY(compute(w, j, ahead, out_grant, err));
    const char *wrong = first_not_finite(w);
    const bool overflow = wrong && w->model->scale.value > 1 && isfinite(w->unit_sums[0]);
    follow_scale(w, !wrong);
    for (int64_t i = 0; i < w->model->parameters.state_size && j->n_batches > 1; i++) w->states[i] /= (float)j->n_batches;
    if (!wrong) clip_all(w);
    if (!wrong && j->examples) STRATA_TRY(of_server(w, push_all(w, j, err)));
    w->report.unit = j->unit;
    w->report.rate = w->rate;
    w->report.examples = j->examples;
    w->report.whole = j->whole;
    w->report.overflow = overflow;
    w->report.refused = wrong && !overflow;
    if (!w->report.refused || !name_wrong_data(w, j, w->report.what, sizeof w->report.what))
        snprintf(w->report.what, sizeof w->report.what, "%s", wrong ? wrong : "");
    w->report.seconds = strata_ps_seconds() - began;
    return STRATA_OK;
}

/* Waits for what is under way without looking at it. */
static void drop_pulls(const worker *w, const job *j) {
    for (int s = 0; s < w->n_servers; s++) {
        pull *p = &j->pulls[s];
        const strata_status ignored = p->request ? strata_rpc_request_wait(p->request, NULL) : STRATA_OK;
        (void)ignored;
        p->request = NULL;
        strata_rpc_answer_release(&p->answer);
    }
}

/* Gives back what this worker has leased, as a server could not be reached: the chief finds out what has become of it. */
static void give_back(worker *w, const char *why) {
    const struct timespec pause = {.tv_nsec = 100 * 1000 * 1000};
    drop_pulls(w, &w->jobs[0]);
    drop_pulls(w, &w->jobs[1]);
    w->lost_server = false;
    w->report = (strata_ps_next_ask){.unit.index = -1, .gives_back = true};
    snprintf(w->report.what, sizeof w->report.what, "%.*s", (int)sizeof w->report.what - 1, why);
    nanosleep(&pause, NULL);
}

/* The chief compares what is trained, and says who has which shards; it answers when all workers are there. */
static strata_status greet_chief(worker *w, strata_error *err) {
    strata_ps_hello_reply reply = {0};
    STRATA_TRY(strata_ps_say_hello(w->fit, w->chief, 2 * w->task->connect_seconds, &reply, err));
    w->fit->route = reply.route;
    return STRATA_OK;
}

/* After the chief was lost: a chief that has started again begins an epoch anew, so nothing that was leased counts. */
static strata_status greet_again(worker *w, strata_error *err) {
    drop_pulls(w, &w->jobs[0]);
    drop_pulls(w, &w->jobs[1]);
    w->lost_chief = w->lost_server = false;
    w->report = (strata_ps_next_ask){.unit.index = -1};
    return greet_chief(w, err);
}

static strata_status train(worker *w, strata_error *err) {
    int current = 0;
    int32_t grant = STRATA_PS_WAIT;
    for (;;) {
        job *j = &w->jobs[current], *ahead = &w->jobs[1 - current];
        strata_error own = {0};
        strata_status status = STRATA_OK;
        while (grant != STRATA_PS_GRANTED && !status) {
            status = ask_chief(w, true, j, &grant, &own);
            if (grant == STRATA_PS_TRAINING_OVER) return STRATA_OK;
        }
        if (!status) status = do_unit(w, j, ahead, &grant, &own);
        if (status && w->lost_chief && strata_rpc_client_connected(w->chief)) {
            STRATA_TRY(greet_again(w, err));
            grant = STRATA_PS_WAIT;
            continue;
        }
        if (status && !w->lost_server) return strata_fail(err, status, "%s", own.message);
        if (status) {
            give_back(w, own.message);
            grant = STRATA_PS_WAIT;
        } else if (grant == STRATA_PS_GRANTED) {
            current = 1 - current;
        }
    }
}

/* The model gets the parameters that the training ended with. */
static strata_status take_last(worker *w, strata_error *err) {
    w->jobs[0].has_close = false;
    return take_all(w, &w->jobs[0], err);
}

/* ---- the whole ---- */

static strata_status make_job(const worker *w, job *j, strata_error *err) {
    j->batches = calloc((size_t)w->fit->accumulate, sizeof *j->batches);
    j->values = calloc((size_t)strata_model_all_size(w->model) + 1, sizeof *j->values);
    j->rows = calloc((size_t)w->n_sparse + 1, sizeof *j->rows);
    j->pulls = calloc((size_t)w->n_servers, sizeof *j->pulls);
    if (!j->batches || !j->values || !j->rows || !j->pulls) return no_memory(err);
    for (int k = 0; k < w->n_sparse; k++)
        STRATA_TRY(strata_ps_row_set_make(&j->rows[k], &w->model->parameters.items[w->sparse[k]], err));
    return STRATA_OK;
}

static strata_status make(worker *w, strata_error *err) {
    const strata_parameter_set *set = &w->model->parameters;
    w->servers = calloc((size_t)w->n_servers, sizeof(*w->servers));
    w->sparse = calloc((size_t)set->n + 1, sizeof *w->sparse);
    w->sums_of_dense = calloc((size_t)set->dense_size + 1, sizeof *w->sums_of_dense);
    w->states = calloc((size_t)set->state_size + 1, sizeof *w->states);
    w->unit_sums = calloc((size_t)w->model->metrics.n_sums + 1, sizeof *w->unit_sums);
    if (!w->servers || !w->sparse || !w->sums_of_dense || !w->states || !w->unit_sums) return no_memory(err);
    for (int i = 0; i < set->n; i++)
        if (set->items[i].sparse) w->sparse[w->n_sparse++] = i;
    w->sums = calloc((size_t)w->n_sparse + 1, sizeof *w->sums);
    w->tables = calloc((size_t)w->n_sparse + 1, sizeof(*w->tables));
    if (!w->sums || !w->tables) return no_memory(err);
    for (int k = 0; k < w->n_sparse; k++) STRATA_TRY(make_table(w, k, err));
    for (int k = 0; k < w->n_sparse; k++) STRATA_TRY(strata_ps_row_set_make(&w->sums[k], &set->items[w->sparse[k]], err));
    STRATA_TRY(make_job(w, &w->jobs[0], err));
    return make_job(w, &w->jobs[1], err);
}

static void finish_job(const worker *w, job *j) {
    if (j->pulls) drop_pulls(w, j);
    for (int s = 0; s < w->n_servers && j->pulls; s++) {
        pull *p = &j->pulls[s];
        free(p->rooms);
        free(p->head);
        free(p->ids);
        free(p->narrow);
        free(p->rows);
    }
    for (int64_t i = 0; i < w->fit->accumulate && j->batches; i++) {
        for (int k = 0; k < STRATA_MAX_INPUTS; k++) free(j->batches[i].x[k]);
        for (int k = 0; k < STRATA_MAX_OUTPUTS; k++) free(j->batches[i].y[k]);
        free(j->batches[i].weights);
    }
    for (int k = 0; k < w->n_sparse && j->rows; k++) strata_ps_row_set_finish(&j->rows[k]);
    free(j->batches);
    free(j->values);
    free(j->rows);
    free(j->pulls);
}

static void finish(worker *w) {
    finish_job(w, &w->jobs[0]);
    finish_job(w, &w->jobs[1]);
    for (int s = 0; s < w->n_servers && w->servers; s++) strata_rpc_client_destroy(w->servers[s]);
    strata_rpc_client_destroy(w->chief);
    for (int k = 0; k < w->n_sparse && w->sums; k++) strata_ps_row_set_finish(&w->sums[k]);
    for (int k = 0; k < w->n_sparse && w->tables; k++) free(w->tables[k]);
    strata_batches_destroy(w->batches);
    strata_batches_destroy(w->visits);
    free(w->tables);
    free(w->servers);
    free(w->sparse);
    free(w->sums_of_dense);
    free(w->states);
    free(w->sums);
    free(w->unit_sums);
}

/* With replicas a server that is lost just now is met by the pull that needs it, or its copy is. */
static strata_status meet_servers(worker *w, strata_error *err) {
    strata_rpc_client *ignored = NULL;
    for (int g = 0; g < w->n_servers; g++) {
        const strata_status status = reach(w, g, &ignored, err);
        if (status && !(status == STRATA_PEER_LOST && w->task->replicas)) return status;
    }
    return STRATA_OK;
}

static strata_status meet(worker *w, strata_error *err) {
    STRATA_TRY(strata_ps_connect(w->task, STRATA_TASK_CHIEF, 0, 0, &w->chief, err));
    STRATA_TRY(greet_chief(w, err));
    return meet_servers(w, err);
}

/* The chief learns why this worker ends. */
static void say_failure(const worker *w, strata_status status, const char *message) {
    const int32_t head = (int32_t)status;
    const struct iovec body = {(char *)message, strlen(message)};
    const strata_rpc_ask ask = {
        .method = STRATA_PS_FAIL, .head = &head, .head_bytes = sizeof head, .body = &body, .n_body = 1, .what = "a failure"};
    const strata_status ignored = strata_rpc_client_call(w->chief, &ask, NULL, 5, NULL); /* it may be the chief that failed */
    (void)ignored;
}

strata_status strata_ps_fit_worker(strata_ps_fit *fit, strata_error *err) {
    worker w = {.fit = fit,
                .task = fit->task,
                .model = fit->model,
                .n_servers = fit->plan.n_servers,
                .form = {.weighted = fit->opts->class_weights || strata_dataset_has_weights(fit->dataset)},
                .visits_epoch = -1,
                .report = {.unit.index = -1}};
    strata_error own = {0};
    strata_status status = make(&w, &own);
    if (!status) status = meet(&w, &own);
    if (!status) status = train(&w, &own);
    if (!status) status = take_last(&w, &own);
    if (status && w.chief) say_failure(&w, status, own.message);
    finish(&w);
    return status ? strata_fail(err, status, "%s", own.message) : STRATA_OK;
}

/* ---- steps of closures ---- */

struct strata_ps_stepper {
    worker worker;
};

/* Asks a server who has which shards, and takes what it says where it is news. */
static strata_status ask_route(worker *w, int server, double seconds, strata_error *err) {
    strata_ps_hello_reply reply = {0};
    STRATA_TRY(strata_ps_say_hello(w->fit, w->servers[server], seconds, &reply, err));
    if (reply.route.number > w->fit->route.number) w->fit->route = reply.route;
    return STRATA_OK;
}

/* With replicas: whoever has the shards of each group. A server that was lost before this worker began is not waited for, as
 * the others know that. */
static strata_status meet_holders(worker *w, strata_error *err) {
    const double until = strata_ps_seconds() + w->task->connect_seconds, patience = 1;
    for (;;) {
        int missing = -1;
        for (int s = 0; s < w->n_servers; s++) {
            strata_status status = STRATA_OK;
            if (w->servers[s]) continue;
            status = strata_ps_connect_within(w->task, STRATA_TASK_PS, s, patience, strata_ps_plan_shared_bytes(&w->fit->plan),
                                              &w->servers[s], err);
            if (!status) status = ask_route(w, s, w->task->connect_seconds, err);
            if (status && status != STRATA_TIMEOUT && status != STRATA_PEER_LOST) return status;
        }
        for (int g = 0; g < w->n_servers; g++) {
            const int server = strata_ps_server_of(&w->fit->route, g, w->n_servers);
            if (!w->servers[server]) missing = server;
        }
        if (missing < 0) return STRATA_OK;
        if (strata_ps_seconds() > until)
            return strata_fail(err, STRATA_TIMEOUT, "ps:%d did not come to %s in %.0f s", missing, w->task->name,
                               w->task->connect_seconds);
    }
}

/* After a server was lost: whoever is there knows who has its shards now. */
static void find_holders(worker *w) {
    const struct timespec pause = {.tv_nsec = 100 * 1000 * 1000};
    const double patience = 1;
    drop_pulls(w, &w->jobs[0]);
    nanosleep(&pause, NULL);
    for (int s = 0; s < w->n_servers; s++) {
        if (!w->servers[s] || !strata_rpc_client_connected(w->servers[s])) continue;
        const strata_status ignored = ask_route(w, s, patience, NULL); /* it is lost by now */
        (void)ignored;
    }
}

strata_status strata_ps_stepper_create(strata_ps_fit *fit, strata_ps_stepper **out_stepper, strata_error *err) {
    strata_ps_stepper *s = calloc(1, sizeof *s);
    *out_stepper = NULL;
    if (!s) return no_memory(err);
    s->worker = (worker){.fit = fit, .task = fit->task, .model = fit->model, .n_servers = fit->plan.n_servers};
    strata_status status = make(&s->worker, err);
    if (!status) status = fit->task->replicas ? meet_holders(&s->worker, err) : meet_servers(&s->worker, err);
    if (status)
        strata_ps_stepper_destroy(s);
    else
        *out_stepper = s;
    return status;
}

void strata_ps_stepper_destroy(strata_ps_stepper *s) {
    if (!s) return;
    finish(&s->worker);
    free(s);
}

/* The gradients of the job's one batch, from parameters that are pulled for it. */
static strata_status compute_once(worker *w, job *j, strata_error *err) {
    strata_model_program *program = NULL;
    int slot = 0;
    STRATA_TRY(find_rows(w, j, err));
    const strata_status started = start_pull(w, j, err);
    const strata_status pulled = finish_pull(w, j, started ? NULL : err); /* also what was started before it failed */
    if (started || pulled) return started ? started : pulled;
    STRATA_TRY(upload(w, j, err));
    clear_sums(w, j);
    STRATA_TRY(submit(w, j, 0, &program, &slot, err));
    STRATA_TRY(strata_group_wait(program->group, slot, err));
    return take_outputs(w, j, program, slot, err);
}

/* A push that one server has applied, and another not, is repeated: the unit's number tells. */
static strata_status make_step(worker *w, job *j, int64_t number, double *out_loss, strata_error *err) {
    STRATA_TRY(compute_once(w, j, err));
    const char *wrong = first_not_finite(w);
    const bool overflow = wrong && w->model->scale.value > 1 && isfinite(w->unit_sums[0]);
    if (out_loss) *out_loss = (double)w->unit_sums[0] / (double)j->examples;
    follow_scale(w, !wrong);
    if (overflow) return STRATA_OK; /* as in fit: the next step has a smaller scale */
    if (wrong) {
        char of_data[200];
        return strata_fail(err, STRATA_DATA, "%s: %s of step %lld is not finite; the gradients were not pushed", w->task->name,
                           name_wrong_data(w, j, of_data, sizeof of_data) ? of_data : wrong, (long long)number);
    }
    clip_all(w);
    return push_all(w, j, err);
}

strata_status strata_ps_stepper_step(strata_ps_stepper *s, int64_t number, const strata_array *x, const strata_array *y,
                                     int64_t n, double *out_loss, strata_error *err) {
    worker *w = &s->worker;
    job *j = &w->jobs[0];
    batch *b = &j->batches[0];
    b->n = b->own = n;
    STRATA_TRY(reserve_batch(w, b, err));
    for (int i = 0; i < w->model->n_inputs; i++) memcpy(b->x[i], x[i].data, (size_t)n * input_bytes(w, i));
    for (int i = 0; i < w->model->n_outputs; i++)
        memcpy(b->y[i], y[i].data, (size_t)n * strata_label_bytes(&w->model->outputs[i]));
    j->unit = (strata_ps_unit){.index = number};
    j->rate = w->model->rate.own;
    j->n_batches = 1;
    j->examples = j->whole = n;
    const double until = strata_ps_seconds() + w->task->connect_seconds;
    for (;;) {
        const strata_status status = make_step(w, j, number, out_loss, err);
        if (status != STRATA_PEER_LOST || !w->task->replicas || strata_ps_seconds() > until) return status;
        find_holders(w);
    }
}
