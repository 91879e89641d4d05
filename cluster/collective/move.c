/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies bytes between ranks, divided into messages that the transport accepts. */
#include "cluster/collective/algorithm.h"

static size_t messages_of(const strata_communicator *comm, size_t bytes) {
    return bytes ? (bytes - 1) / comm->segment_bytes + 1 : 1;
}

/* Finds the address and size of message k of a span. Returns false if the span has no message k. */
static bool message_of(const strata_communicator *comm, const strata_span *span, size_t k, const char **out_data,
                       size_t *out_bytes) {
    if (!span || !span->used || k >= messages_of(comm, span->bytes)) return false;
    const size_t first = k * comm->segment_bytes, left = span->bytes - first;
    *out_data = (const char *)span->data + first;
    *out_bytes = left < comm->segment_bytes ? left : comm->segment_bytes;
    return true;
}

strata_span *strata_new_spans(strata_communicator *comm) {
    return memset(comm->scratch.spans, 0, 2 * (size_t)comm->world * sizeof *comm->scratch.spans);
}

strata_status strata_move(const strata_operation *op, const strata_span *to_all, const strata_span *to_each,
                          const strata_span *from_each, strata_error *err) {
    strata_communicator *comm = op->comm;
    const char *data;
    size_t bytes;
    for (size_t k = 0;; k++) {
        int n_sends = 0, n_receives = 0;
        if (message_of(comm, to_all, k, &data, &bytes))
            comm->scratch.sends[n_sends++] = (strata_send){STRATA_ALL_PEERS, data, bytes};
        for (int i = 1; i < comm->world; i++) {
            const int to = (comm->rank + i) % comm->world, from = (comm->rank + comm->world - i) % comm->world;
            if (to_each && message_of(comm, &to_each[to], k, &data, &bytes))
                comm->scratch.sends[n_sends++] = (strata_send){to, data, bytes};
            if (from_each && message_of(comm, &from_each[from], k, &data, &bytes)) {
                /* a message of 0 bytes needs a pointer too: for NULL the transport would lend its own memory */
                void *const place = bytes ? (void *)(uintptr_t)data : comm;
                comm->scratch.receives[n_receives++] = (strata_receive){.peer = from, .data = place, .bytes = bytes};
            }
        }
        if (!n_sends && !n_receives) return STRATA_OK;
        STRATA_TRY(strata_operation_round(op, n_sends, n_receives, err));
    }
}

strata_status strata_shift(const strata_operation *op, int to, const void *data, size_t n_bytes, int from, void *out,
                           size_t out_bytes, strata_error *err) {
    strata_span *sent = strata_new_spans(op->comm), *taken = sent + op->comm->world;
    sent[to] = (strata_span){data, n_bytes, true};
    taken[from] = (strata_span){out, out_bytes, true};
    return strata_move(op, NULL, sent, taken, err);
}
