/* SPDX-License-Identifier: Apache-2.0
 *
 * A worker's pushes: the gradients of a unit, to all servers. */
#include <stdlib.h>
#include <string.h>

#include "strategies/parameter_server/worker.h"

/* Grows memory that is reused from push to push. */
static bool reserve(void **memory, size_t bytes) {
    void *grown = realloc(*memory, bytes + 4);
    if (grown) *memory = grown;
    return grown != NULL;
}

/* Whether a table has all rows of its parameter, so that the values of a set can be sent as they are. */
static bool in_one_piece(const strata_ps_shard *table, const strata_ps_row_set *set) {
    return !table->first_row && table->n_rows == set->n_rows;
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

/* Prepares the gradients of a server's shards: f32 values are sent in place, bf16 values from a separate buffer. */
static strata_status prepare_push(strata_ps_worker *w, const strata_ps_job *j, int server, strata_ps_push *p,
                                  size_t *out_head_bytes, int *out_n, strata_error *err) {
    const strata_ps_plan *plan = &w->fit->plan;
    const struct strata_ps_sizes *sizes = &plan->sizes[server];
    const strata_ps_shard *shards = plan->shards + plan->begins[server], *tables = shards + sizes->n_dense;
    const int n_shards = plan->begins[server + 1] - plan->begins[server];
    const strata_dtype wire = w->task->wire;
    const size_t each = strata_dtype_bytes(wire);
    int64_t most = 0, n_ids = 0, elements = 0;
    for (int k = 0; k < sizes->n_tables; k++) {
        const strata_ps_row_set *set = w->unit.row_gradients[strata_ps_sparse_index(w, tables[k].parameter)].set;
        most += set->n;
        elements += wire == STRATA_DTYPE_F32 && in_one_piece(&tables[k], set) ? 0 : set->n * set->row;
    }
    const bool parted = strata_ps_was_parted(w, server);
    const int n_dense = parted ? 0 : sizes->n_dense;
    const size_t dense = parted ? 0 : strata_ps_wire_bytes(wire, sizes->dense), narrow = wire == STRATA_DTYPE_F32 ? 0 : dense;
    const strata_ps_push_ask ask = {.unit = j->unit,
                                    .version = j->pulls[server].version,
                                    .group = server,
                                    .rate = j->rate,
                                    .attempt = parted ? w->buckets.attempt : 0};
    *out_head_bytes = sizeof ask + (size_t)sizes->n_tables * sizeof(int64_t);
    if (!p->pieces) p->pieces = calloc((size_t)n_shards + (size_t)sizes->n_tables + 4, sizeof *p->pieces);
    if (!p->pieces || !reserve((void **)&p->head, *out_head_bytes) ||
        !reserve((void **)&p->ids, (size_t)most * sizeof *p->ids) ||
        !reserve((void **)&p->narrow, narrow + (size_t)elements * each))
        return strata_ps_worker_no_memory(err);
    memcpy(p->head, &ask, sizeof ask);
    int n = 0;
    unsigned char *at = p->narrow;
    for (int i = 0; i < n_dense; i++) {
        const float *values = w->unit.gradients + shards[i].first;
        if (!narrow) {
            /* sending only reads them */
            p->pieces[n++] = (struct iovec){(void *)values, (size_t)shards[i].n * sizeof *values};
        } else {
            strata_ps_narrow(wire, values, shards[i].n, at);
            at += (size_t)shards[i].n * each;
        }
    }
    if (narrow) memset(at, 0, (size_t)(p->narrow + narrow - at)); /* the padding */
    if (narrow) p->pieces[n++] = (struct iovec){p->narrow, narrow};
    if (sizes->states) p->pieces[n++] = (struct iovec){w->unit.states, (size_t)sizes->states * sizeof *w->unit.states};
    at = p->narrow + narrow;
    struct iovec *of_ids = &p->pieces[n];
    n += most > 0;
    for (int k = 0; k < sizes->n_tables; k++) {
        const strata_ps_row_gradients *gradients = &w->unit.row_gradients[strata_ps_sparse_index(w, tables[k].parameter)];
        const strata_ps_row_set *set = gradients->set;
        const unsigned char *rows = at;
        int64_t count = set->n;
        if (wire == STRATA_DTYPE_F32 && in_one_piece(&tables[k], set)) {
            memcpy(p->ids + n_ids, set->ids, (size_t)count * sizeof *p->ids);
            rows = (const unsigned char *)gradients->values;
        } else {
            count = strata_ps_rows_of_table(set, &tables[k], p->ids + n_ids);
            at = narrow_rows(wire, gradients, &tables[k], at);
        }
        /* sending only reads them */
        if (count) p->pieces[n++] = (struct iovec){(void *)rows, (size_t)(count * set->row) * each};
        memcpy(p->head + sizeof ask + (size_t)k * sizeof count, &count, sizeof count);
        n_ids += count;
    }
    if (most) *of_ids = (struct iovec){p->ids, (size_t)n_ids * sizeof *p->ids};
    *out_n = n;
    return STRATA_OK;
}

strata_status strata_ps_start_push(strata_ps_worker *w, const strata_ps_job *j, strata_error *err) {
    w->push.running = true;
    w->push.began = strata_trace_now();
    w->push.unit = j->unit.index;
    STRATA_TRY(w->buckets.status ? strata_fail(err, w->buckets.status, "%s", w->buckets.error.message) : STRATA_OK);
    for (int s = 0; s < w->links.n_servers; s++) {
        strata_ps_push *p = &w->push.of_server[s];
        strata_rpc_client *client = NULL;
        size_t head_bytes = 0;
        int n = 0;
        STRATA_TRY(prepare_push(w, j, s, p, &head_bytes, &n, err));
        const strata_rpc_ask ask = {.method = STRATA_PS_PUSH,
                                    .head = p->head,
                                    .head_bytes = head_bytes,
                                    .body = p->pieces,
                                    .n_body = n,
                                    .what = "a push of gradients"};
        for (int i = 0; i < n; i++) w->reports.now.bytes += (int64_t)p->pieces[i].iov_len;
        p->answer = (strata_rpc_answer){.head = &p->staleness, .head_bytes = sizeof p->staleness};
        STRATA_TRY(strata_ps_reach(w, s, &client, err));
        STRATA_TRY(strata_rpc_client_start(client, &ask, &p->answer, STRATA_PS_CALL_SECONDS, &p->request, err));
    }
    return STRATA_OK;
}

strata_status strata_ps_finish_push(strata_ps_worker *w, strata_ps_next_ask *report, strata_error *err) {
    if (!w->push.running) return STRATA_OK;
    const double waited = strata_trace_now();
    strata_status status = strata_ps_finish_parts(w, err);
    w->push.running = false;
    for (int s = 0; s < w->links.n_servers; s++) {
        strata_ps_push *p = &w->push.of_server[s];
        const strata_status one = p->request ? strata_rpc_request_wait(p->request, status ? NULL : err) : STRATA_OK;
        p->request = NULL;
        if (!status) status = one;
        if (status || p->staleness < 0) continue;
        report->staleness_bins[strata_ps_staleness_bin(p->staleness)]++;
        report->n_staleness++;
        report->staleness_sum += p->staleness;
        if (p->staleness > report->staleness_max) report->staleness_max = p->staleness;
    }
    strata_trace *trace = w->fit->trace;
    if (!trace) return status;
    strata_trace_add_named(trace, STRATA_TRACE_HOST, "wait for push", w->push.unit, waited, strata_trace_now());
    strata_trace_add_named(trace, strata_trace_thread_track(trace, "pushes under way"), "push", w->push.unit, w->push.began,
                           strata_trace_now());
    if (!status && report->n_staleness)
        strata_trace_add_counter(trace, "staleness", (double)report->staleness_max, strata_trace_now());
    return status;
}

strata_status strata_ps_push_all(strata_ps_worker *w, const strata_ps_job *j, strata_ps_next_ask *report, strata_error *err) {
    const strata_status started = strata_ps_start_push(w, j, err);
    /* also waits for requests that were started before a failure */
    const strata_status finished = strata_ps_finish_push(w, report, started ? NULL : err);
    return started ? started : finished;
}
