/* SPDX-License-Identifier: Apache-2.0
 *
 * Requests, and calls that run at once. A communicator's thread, which the first request creates, runs requests in order. A
 * blocking call runs in the caller's thread if no request is pending; otherwise it becomes a request, too. */
#include "cluster/communicator.h"
#include "core/base/alloc.h"
#include "core/base/locked.h"

static void *run_requests(void *user) {
    strata_communicator *comm = user;
    STRATA_LOCKED(&comm->requests.lock);
    for (;;) {
        while (!comm->requests.first && !comm->requests.leaving)
            pthread_cond_wait(&comm->requests.changed, &comm->requests.lock);
        strata_request *request = comm->requests.first;
        if (!request) return NULL;
        pthread_mutex_unlock(&comm->requests.lock);
        request->status = strata_operation_run(comm, &request->what, &request->error);
        pthread_mutex_lock(&comm->requests.lock);
        comm->requests.first = request->next;
        request->done = true;
        pthread_cond_broadcast(&comm->requests.changed);
    }
}

void strata_requests_finish(strata_communicator *comm) {
    if (!comm->requests.has_thread) return;
    pthread_mutex_lock(&comm->requests.lock);
    comm->requests.leaving = true;
    pthread_cond_broadcast(&comm->requests.changed);
    pthread_mutex_unlock(&comm->requests.lock);
    pthread_join(comm->requests.thread, NULL);
    comm->requests.has_thread = false;
}

strata_status strata_communicator_start(strata_communicator *comm, const strata_collective *what, strata_request **out_request,
                                        strata_error *err) {
    *out_request = NULL;
    STRATA_LOCKED(&comm->requests.lock);
    if (!comm->requests.has_thread)
        comm->requests.has_thread = !pthread_create(&comm->requests.thread, NULL, run_requests, comm);
    if (!comm->requests.has_thread)
        return strata_fail(err, STRATA_UNAVAILABLE, "no thread could be made for the requests of a communicator");
    strata_request *request = calloc(1, sizeof *request);
    if (!request) return strata_fail(err, STRATA_OUT_OF_MEMORY, "no memory for a request");
    request->comm = comm;
    request->what = *what;
    *(comm->requests.first ? &comm->requests.last->next : &comm->requests.first) = request;
    comm->requests.last = request;
    pthread_cond_broadcast(&comm->requests.changed);
    *out_request = request;
    return STRATA_OK;
}

strata_status strata_request_wait_for(strata_request *request, double seconds, bool *out_done, strata_error *err) {
    *out_done = true;
    if (!request) return STRATA_OK;
    if (request->is_message) return strata_message_wait(request, seconds > 0 ? seconds : 0, out_done, err);
    strata_communicator *comm = request->comm;
    const struct timespec deadline = strata_clock_after(seconds > 0 ? seconds : 0);
    pthread_mutex_lock(&comm->requests.lock);
    for (int late = 0; !request->done && !late;)
        late = pthread_cond_timedwait(&comm->requests.changed, &comm->requests.lock, &deadline);
    *out_done = request->done;
    pthread_mutex_unlock(&comm->requests.lock);
    return *out_done ? strata_request_wait(request, err) : STRATA_OK;
}

strata_status strata_request_wait(strata_request *request, strata_error *err) {
    bool done;
    if (!request) return STRATA_OK;
    if (request->is_message) return strata_message_wait(request, -1, &done, err);
    strata_communicator *comm = request->comm;
    pthread_mutex_lock(&comm->requests.lock);
    while (!request->done) pthread_cond_wait(&comm->requests.changed, &comm->requests.lock);
    pthread_mutex_unlock(&comm->requests.lock);
    strata_status status = request->status;
    if (status) strata_fail(err, status, "%s", request->error.message);
    free(request);
    return status;
}

bool strata_request_test(strata_request *request) {
    pthread_mutex_t *lock = request->is_message ? &request->comm->seat->roster->lock : &request->comm->requests.lock;
    STRATA_LOCKED(lock);
    return request->is_message ? request->transfer.done : request->done;
}

strata_status strata_communicator_run(strata_communicator *comm, const strata_collective *what, strata_error *err) {
    bool behind = false;
    if (comm->requests.has_thread) {
        pthread_mutex_lock(&comm->requests.lock);
        behind = comm->requests.first != NULL;
        pthread_mutex_unlock(&comm->requests.lock);
    }
    if (!behind) return strata_operation_run(comm, what, err);
    strata_request *request;
    STRATA_TRY(strata_communicator_start(comm, what, &request, err));
    return strata_request_wait(request, err);
}

/* ---- the public functions ---- */

strata_status strata_communicator_all_reduce(strata_communicator *comm, void *data, size_t count, strata_dtype dtype,
                                             strata_reducer reducer, strata_error *err) {
    const strata_collective what = {STRATA_ALL_REDUCE, .out = data, .count = count, .dtype = dtype, .reducer = reducer};
    return strata_communicator_run(comm, &what, err);
}

strata_status strata_communicator_reduce(strata_communicator *comm, void *data, size_t count, strata_dtype dtype,
                                         strata_reducer reducer, int root, strata_error *err) {
    const strata_collective what = {STRATA_REDUCE, NULL, data, count, NULL, dtype, reducer, .root = root};
    return strata_communicator_run(comm, &what, err);
}

strata_status strata_communicator_broadcast(strata_communicator *comm, void *data, size_t count, strata_dtype dtype, int root,
                                            strata_error *err) {
    const strata_collective what = {STRATA_BROADCAST, .out = data, .count = count, .dtype = dtype, .root = root};
    return strata_communicator_run(comm, &what, err);
}

strata_status strata_communicator_all_gather(strata_communicator *comm, const void *in, void *out, size_t count,
                                             const size_t *counts, strata_dtype dtype, strata_error *err) {
    const strata_collective what = {STRATA_ALL_GATHER, in, out, count, counts, .dtype = dtype};
    return strata_communicator_run(comm, &what, err);
}

strata_status strata_communicator_reduce_scatter(strata_communicator *comm, const void *in, void *out, size_t count,
                                                 const size_t *counts, strata_dtype dtype, strata_reducer reducer,
                                                 strata_error *err) {
    const strata_collective what = {STRATA_REDUCE_SCATTER, in, out, count, counts, dtype, .reducer = reducer};
    return strata_communicator_run(comm, &what, err);
}

strata_status strata_communicator_all_to_all(strata_communicator *comm, const void *in, void *out, size_t count,
                                             strata_dtype dtype, strata_error *err) {
    const strata_collective what = {STRATA_ALL_TO_ALL, in, out, count, .dtype = dtype};
    return strata_communicator_run(comm, &what, err);
}

strata_status strata_communicator_gather(strata_communicator *comm, const void *in, void *out, size_t count,
                                         const size_t *counts, strata_dtype dtype, int root, strata_error *err) {
    const strata_collective what = {STRATA_GATHER, in, out, count, counts, .dtype = dtype, .root = root};
    return strata_communicator_run(comm, &what, err);
}

strata_status strata_communicator_scatter(strata_communicator *comm, const void *in, void *out, size_t count,
                                          const size_t *counts, strata_dtype dtype, int root, strata_error *err) {
    const strata_collective what = {STRATA_SCATTER, in, out, count, counts, .dtype = dtype, .root = root};
    return strata_communicator_run(comm, &what, err);
}

strata_status strata_communicator_barrier(strata_communicator *comm, strata_error *err) {
    return strata_communicator_run(comm, &(strata_collective){.kind = STRATA_BARRIER}, err);
}

strata_status strata_communicator_send(strata_communicator *comm, const void *data, size_t count, strata_dtype dtype, int peer,
                                       strata_error *err) {
    const strata_collective what = {STRATA_SEND, .in = data, .count = count, .dtype = dtype, .root = peer};
    return strata_communicator_run(comm, &what, err);
}

strata_status strata_communicator_recv(strata_communicator *comm, void *data, size_t count, strata_dtype dtype, int peer,
                                       strata_error *err) {
    const strata_collective what = {STRATA_RECV, .out = data, .count = count, .dtype = dtype, .root = peer};
    return strata_communicator_run(comm, &what, err);
}
