/* SPDX-License-Identifier: Apache-2.0
 *
 * The queue of closures, and remote values, which receive the closures' results. */
#include "core/base/locked.h"
#include "strategies/coordinator/coordinator_parts.h"

/* ---- values ---- */

strata_remote_value *strata_remote_value_create(const strata_remote_function *function) {
    strata_remote_value *v = calloc(1, sizeof *v);
    if (!v) return NULL;
    atomic_store(&v->references, 1);
    pthread_mutex_init(&v->lock, NULL);
    strata_clock_cond_init(&v->changed);
    v->function = function;
    return v;
}

void strata_remote_value_release(strata_remote_value *v) {
    if (!v || atomic_fetch_sub(&v->references, 1) != 1) return;
    for (int i = 0; v->results && i < v->function->n_results; i++) strata_array_finish(&v->results[i]);
    free(v->results);
    pthread_cond_destroy(&v->changed);
    pthread_mutex_destroy(&v->lock);
    free(v);
}

/* Sets the value's results, which it takes, or its error, and wakes the threads that wait for it. error NULL: the closure
 * succeeded. */
static void finish_value(strata_remote_value *v, strata_array *results, const strata_error *error) {
    STRATA_LOCKED(&v->lock);
    v->done = true;
    v->results = results;
    if (error) v->error = *error;
    pthread_cond_broadcast(&v->changed);
}

strata_status strata_closure_copy_array(const strata_array *from, strata_array *out, strata_error *err) {
    STRATA_TRY(strata_array_create(from->dtype, from->shape, out, err));
    const size_t bytes = strata_array_bytes(from);
    if (bytes) memcpy(out->data, from->data, bytes);
    return STRATA_OK;
}

strata_status strata_remote_value_fetch(strata_remote_value *v, strata_array *out_results, int n, strata_error *err) {
    strata_status status = STRATA_OK;
    if (n != v->function->n_results)
        return strata_fail(err, STRATA_INVALID, "\"%s\" has %d results, but the caller asks for %d", v->function->name,
                           v->function->n_results, n);
    for (int i = 0; i < n; i++) out_results[i] = (strata_array){0};
    pthread_mutex_lock(&v->lock);
    while (!v->done) pthread_cond_wait(&v->changed, &v->lock);
    pthread_mutex_unlock(&v->lock);
    if (v->error.status) return strata_fail(err, v->error.status, "%s", v->error.message);
    for (int i = 0; i < n && !status; i++) status = strata_closure_copy_array(&v->results[i], &out_results[i], err);
    for (int i = 0; i < n && status; i++) strata_array_finish(&out_results[i]);
    return status;
}

int strata_remote_value_attempts(strata_remote_value *v) {
    STRATA_LOCKED(&v->lock);
    return v->attempts;
}

/* ---- closures ---- */

void strata_closure_free(strata_closure *k) {
    for (int i = 0; i < k->n_args; i++) strata_array_finish(&k->args[i].array);
    strata_remote_value_release(k->value);
    free(k);
}

strata_closure *strata_closure_take_first(strata_coordinator *c) {
    strata_closure *k = c->first;
    c->first = k->next;
    if (!c->first) c->last = NULL;
    c->counts.queued--;
    return k;
}

void strata_closure_cancel_all(strata_coordinator *c, const strata_error *error) {
    while (c->first) {
        strata_closure *k = strata_closure_take_first(c);
        finish_value(k->value, NULL, error);
        c->counts.ended++;
        strata_closure_free(k);
    }
}

void strata_closure_keep_error(strata_coordinator *c, const strata_error *error) {
    strata_error cancelled;
    if (!c->error.status) c->error = *error;
    strata_fail(&cancelled, STRATA_INTERRUPTED, "the closure was cancelled, because another one had failed: %.700s",
                c->error.message);
    strata_closure_cancel_all(c, &cancelled);
    pthread_cond_broadcast(&c->changed);
}

void strata_closure_end(strata_coordinator *c, strata_closure *k, strata_array *results, const strata_error *error) {
    finish_value(k->value, results, error);
    strata_closure_free(k);
    STRATA_LOCKED(&c->lock);
    c->counts.running--;
    c->counts.ended++;
    if (error) strata_closure_keep_error(c, error);
    pthread_cond_broadcast(&c->changed);
}

void strata_closure_put_back(strata_coordinator *c, strata_closure *k) {
    STRATA_LOCKED(&c->lock);
    c->counts.running--;
    c->counts.repeated++;
    k->next = c->first;
    c->first = k;
    if (!c->last) c->last = k;
    c->counts.queued++;
    if (c->error.status) strata_closure_keep_error(c, &c->error);
    pthread_cond_broadcast(&c->changed);
}
