/* SPDX-License-Identifier: Apache-2.0
 *
 * A worker's pushes: the gradients of a unit, to all servers.
 *
 * The gradient program of a large model sends its gradients in buckets, each as soon as the backward pass has computed it,
 * beginning with the last layers. The worker pushes the parts of a bucket while the device computes the next one. Servers
 * store these parts, and apply them with the push at the end of the unit. Without that push, for example because a
 * gradient is not finite, the parts are not used. */
#include "strategies/parameter_server/worker.h"

/* ---- the gradients of some shards ---- */

bool strata_ps_all_finite(const float *values, int64_t n) {
    uint32_t wrong = 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        wrong |= (bits & 0x7f800000u) == 0x7f800000u;
    }
    return !wrong;
}

/* Whether a table has all rows of its parameter, so that the values of a set can be sent as they are. */
static bool in_one_piece(const strata_ps_shard *table, const strata_ps_row_set *set) {
    return !table->first_row && table->n_rows == set->n_rows;
}

static const strata_ps_row_gradients *gradients_of(const strata_ps_worker *w, const strata_ps_shard *table) {
    return &w->unit.row_gradients[strata_ps_sparse_index(w, table->parameter)];
}

/* Converts the values of the set's rows that belong to a table. Returns the end of what was written. */
static unsigned char *narrow_rows(strata_dtype wire, const strata_ps_row_gradients *gradients, const strata_ps_shard *table,
                                  unsigned char *to) {
    const strata_ps_row_set *set = gradients->set;
    for (int64_t i = 0; i < set->n; i++) {
        const int64_t row = set->ids[i] - table->first_row;
        if (row < 0 || row >= table->n_rows) continue;
        strata_ps_narrow(wire, gradients->values + i * set->row, set->row, to);
        to += (size_t)set->row * strata_dtype_bytes(wire);
    }
    return to;
}

/* Adds the rows' indices and gradients of all tables to the pieces of a push, of which there are n. Returns their new number.
 * at: where values are written that are not sent in place. */
static int add_rows(const strata_ps_worker *w, const strata_ps_bundle *bundle, strata_ps_transfer *p, int n,
                    unsigned char *at) {
    const strata_dtype wire = w->task->wire;
    int64_t *counts = p->numbers;
    int32_t *ids = (int32_t *)(counts + bundle->n_tables);
    struct iovec *of_ids = &p->pieces[n++];
    p->n_ids = 0;
    for (int k = 0; k < bundle->n_tables; k++) {
        const strata_ps_row_gradients *gradients = gradients_of(w, &bundle->tables[k]);
        const strata_ps_row_set *set = gradients->set;
        const unsigned char *rows = at;
        if (wire == STRATA_DTYPE_F32 && in_one_piece(&bundle->tables[k], set)) {
            counts[k] = set->n;
            memcpy(ids + p->n_ids, set->ids, (size_t)set->n * sizeof *ids);
            rows = (const unsigned char *)gradients->values;
        } else {
            counts[k] = strata_ps_rows_of_table(set, &bundle->tables[k], ids + p->n_ids);
            at = narrow_rows(wire, gradients, &bundle->tables[k], at);
        }
        /* sending only reads them */
        p->pieces[n++] = (struct iovec){(void *)rows, (size_t)(counts[k] * set->row) * strata_dtype_bytes(wire)};
        p->n_ids += counts[k];
    }
    *of_ids = (struct iovec){counts, (size_t)bundle->n_tables * sizeof *counts + (size_t)p->n_ids * sizeof *ids};
    return n;
}

/* Prepares a push of the gradients of a server's dense shards [from, from + n): f32 values are sent in place, bf16 values from
 * a separate buffer. last: of states and rows, too. */
static strata_status prepare_push(const strata_ps_worker *w, const strata_ps_bundle *bundle, int from, int n,
                                  const float *gradients, bool last, strata_ps_transfer *p, int *out_n_pieces,
                                  strata_error *err) {
    const strata_dtype wire = w->task->wire;
    const bool in_place = wire == STRATA_DTYPE_F32;
    const strata_ps_shard *shards = bundle->shards + from;
    const int n_tables = last ? bundle->n_tables : 0;
    int64_t most = 0, elements = 0;
    for (int k = 0; k < n_tables; k++) {
        const strata_ps_row_set *set = gradients_of(w, &bundle->tables[k])->set;
        most += set->n;
        elements += in_place && in_one_piece(&bundle->tables[k], set) ? 0 : set->n * set->row;
    }
    const size_t narrow = in_place ? 0 : strata_ps_wire_bytes(wire, p->message.head.push.n);
    STRATA_TRY(strata_ps_reserve((void **)&p->pieces, (size_t)(n + n_tables + 3) * sizeof *p->pieces, err));
    STRATA_TRY(strata_ps_reserve(&p->numbers, (size_t)n_tables * sizeof(int64_t) + (size_t)most * sizeof(int32_t), err));
    STRATA_TRY(strata_ps_reserve((void **)&p->narrow, narrow + (size_t)elements * strata_dtype_bytes(wire), err));
    unsigned char *at = p->narrow;
    int n_pieces = 0;
    for (int i = 0; i < n; i++) {
        const size_t bytes = (size_t)shards[i].n * strata_dtype_bytes(wire);
        if (in_place) /* sending only reads them */
            p->pieces[n_pieces++] = (struct iovec){(void *)(gradients + shards[i].first), bytes};
        else
            strata_ps_narrow(wire, gradients + shards[i].first, shards[i].n, at);
        at += in_place ? 0 : bytes;
    }
    memset(at, 0, (size_t)(p->narrow + narrow - at)); /* the padding */
    if (narrow) p->pieces[n_pieces++] = (struct iovec){p->narrow, narrow};
    if (last) {
        p->pieces[n_pieces++] = (struct iovec){w->unit.states, (size_t)bundle->n_states * sizeof *w->unit.states};
        n_pieces = add_rows(w, bundle, p, n_pieces, p->narrow + narrow);
    }
    *out_n_pieces = n_pieces;
    return STRATA_OK;
}

/* Pushes these gradients. of_unit: the job whose last push it is; NULL: a part that comes before that. */
static strata_status push_shards(strata_ps_worker *w, int server, int from, int n, const float *gradients,
                                 const strata_ps_job *of_unit, strata_ps_transfer *p, strata_error *err) {
    const strata_ps_bundle *bundle = &w->fit->plan.bundles[server];
    strata_ps_push_ask *head = &p->message.head.push;
    strata_rpc_client *client = NULL;
    int n_pieces = 0;
    *head = (strata_ps_push_ask){.bundle = server, .attempt = w->buckets.attempt, .first = n ? bundle->shards[from].before : 0};
    for (int i = 0; i < n; i++) head->n += bundle->shards[from + i].n;
    if (of_unit) {
        head->unit = of_unit->unit;
        head->version = of_unit->pulls[server].message.reply.number;
        head->rate = of_unit->lease.rate;
    }
    STRATA_TRY(prepare_push(w, bundle, from, n, gradients, of_unit != NULL, p, &n_pieces, err));
    for (int i = 0; i < n_pieces; i++) w->reports.now.bytes += (int64_t)p->pieces[i].iov_len;
    if (of_unit) w->reports.now.bytes -= bundle->n_tables * (int64_t)sizeof(int64_t); /* the numbers of rows are not counted */
    STRATA_TRY(strata_ps_reach(w, server, &client, err));
    return strata_ps_start(&p->message, client, of_unit ? STRATA_PS_PUSH : STRATA_PS_PART, p->pieces, n_pieces, NULL, 0, err);
}

/* ---- buckets ---- */

/* Pushes the gradients of a server's shards that lie in the bucket. Shards are parts of one parameter, and buckets end between
 * parameters, so a shard lies in one bucket; a server's shards are in the order of the parameters. */
static strata_status push_part(strata_ps_worker *w, int server, const struct strata_gradient_bucket *bucket,
                               strata_error *err) {
    const strata_ps_bundle *bundle = &w->fit->plan.bundles[server];
    int from = 0, n = 0;
    while (from < bundle->n_dense && bundle->shards[from].first < bucket->begin) from++;
    while (from + n < bundle->n_dense && bundle->shards[from + n].first < bucket->end) n++;
    if (!n) return STRATA_OK;
    return push_shards(w, server, from, n, w->unit.sums_of_dense, NULL, &w->buckets.parts[w->buckets.n_parts++], err);
}

/* A failure to push the bucket is reported with the final push. */
void strata_ps_take_bucket(void *task, int k, const void *data, size_t bytes) {
    strata_ps_worker *w = ((const strata_ps_task *)task)->worker;
    if (!w || !w->buckets.layout) return;
    const struct strata_gradient_bucket *bucket = &w->buckets.layout->buckets[k];
    const int64_t dense = w->model->parameters.dense_size, n = (int64_t)(bytes / sizeof(float));
    const int64_t rest = dense - bucket->begin, own = n < rest ? n : rest;
    const float *values = data;
    float *sums = w->unit.sums_of_dense + bucket->begin;
    if (w->buckets.first_batch) memcpy(sums, values, (size_t)own * sizeof *sums);
    for (int64_t i = 0; i < own && !w->buckets.first_batch; i++) sums[i] += values[i];
    if (!w->buckets.streams || w->buckets.stopped || w->buckets.status) return;
    w->buckets.stopped = !strata_ps_all_finite(sums, own);
    for (int s = 0; s < w->links.n_servers && !w->buckets.stopped && !w->buckets.status; s++)
        w->buckets.status = push_part(w, s, bucket, &w->buckets.error);
}

/* Whether the unit's buckets may be pushed before all of its gradients are known. This is not possible if a loss scale or the
 * norm of all gradients scales them, or if this norm is reported. */
static bool may_stream(const strata_ps_worker *w) {
    const bool needs_norm = (w->model->optimizer.clip_global_norm > 0 || w->model->measures_norm) && !w->task->pace.n_shares;
    return !needs_norm && !(w->model->scale.value > 0);
}

/* Waits for the parts that are being sent, as strata_ps_wait does. */
static void finish_parts(strata_ps_worker *w, strata_status *status, strata_error *err) {
    for (int i = 0; i < w->buckets.n_parts; i++) strata_ps_wait(&w->buckets.parts[i].message, status, err);
    w->buckets.n_parts = 0;
}

void strata_ps_begin_buckets(strata_ps_worker *w, const strata_model_program *program, bool first, bool last) {
    strata_status ignored = STRATA_OK;
    finish_parts(w, &ignored, NULL); /* of an earlier unit that was not pushed */
    w->task->worker = w;
    w->buckets.layout = &program->layout;
    w->buckets.first_batch = first;
    w->buckets.streams = last && program->layout.n_buckets && may_stream(w);
    w->buckets.stopped = false;
    w->buckets.status = STRATA_OK;
    if (w->buckets.streams) w->buckets.attempt++;
}

static strata_status check_parts(const strata_ps_worker *w, strata_error *err) {
    return w->buckets.status ? strata_fail(err, w->buckets.status, "%s", w->buckets.error.message) : STRATA_OK;
}

/* ---- the push of a unit ---- */

strata_status strata_ps_start_push(strata_ps_worker *w, const strata_ps_job *j, strata_error *err) {
    w->push.running = true;
    w->push.began = strata_trace_now();
    w->push.unit = j->unit.index;
    STRATA_TRY(check_parts(w, err));
    /* the buckets of a program have all gradients of the dense parameters */
    const bool parted = w->buckets.streams && !w->buckets.stopped;
    for (int s = 0; s < w->links.n_servers; s++) {
        const int n = w->fit->plan.bundles[s].n_dense, from = parted ? n : 0;
        STRATA_TRY(push_shards(w, s, from, n - from, w->unit.gradients, j, &w->push.of_server[s], err));
    }
    return STRATA_OK;
}

strata_status strata_ps_finish_push(strata_ps_worker *w, strata_ps_next_ask *report, strata_error *err) {
    if (!w->push.running) return STRATA_OK;
    const double waited = strata_trace_now();
    strata_status status = check_parts(w, err);
    finish_parts(w, &status, err);
    w->push.running = false;
    for (int s = 0; s < w->links.n_servers; s++) {
        strata_ps_message *m = &w->push.of_server[s].message;
        strata_ps_wait(m, &status, err);
        const int64_t staleness = m->reply.number;
        if (status || staleness < 0) continue;
        report->staleness_bins[strata_ps_staleness_bin(staleness)]++;
        report->n_staleness++;
        report->staleness_sum += staleness;
        if (staleness > report->staleness_max) report->staleness_max = staleness;
    }
    strata_trace *trace = w->fit->trace;
    const double now = strata_trace_now();
    strata_trace_add_named(trace, STRATA_TRACE_HOST, "wait for push", w->push.unit, waited, now);
    strata_trace_add_named(trace, strata_trace_thread_track(trace, "pushes under way"), "push", w->push.unit, w->push.began,
                           now);
    if (!status && report->n_staleness) strata_trace_add_counter(trace, "staleness", (double)report->staleness_max, now);
    return status;
}
