/* SPDX-License-Identifier: Apache-2.0
 *
 * The common part of communication ops: the shape rule, and the reference for one device. */
#include "core/op/communication.h"

#include <string.h>

const strata_attr_words strata_reduction_words[] = {{"reduction", (const char *const[]){"sum", "mean", NULL}}, {NULL, NULL}};

strata_channel strata_channel_make(strata_graph *graph, int64_t id, const int64_t *members, int n_members) {
    int64_t *own = strata_graph_alloc(graph, (size_t)n_members * sizeof *own);
    if (!own) return (strata_channel){0};
    memcpy(own, members, (size_t)n_members * sizeof *own);
    return (strata_channel){.id = id, .members = own, .n_members = n_members};
}

strata_channel strata_channel_of_first(strata_graph *graph, int n) {
    int64_t *members = strata_graph_alloc(graph, (size_t)n * sizeof *members);
    for (int d = 0; members && d < n; d++) members[d] = d;
    return (strata_channel){.id = n, .members = members, .n_members = members ? n : 0, .local = true};
}

bool strata_channel_has(strata_channel channel, int64_t device) {
    int64_t begin = 0, end = channel.n_members;
    if (!end) return true;
    while (begin < end) {
        const int64_t middle = begin + (end - begin) / 2;
        if (channel.members[middle] == device) return true;
        if (channel.members[middle] < device)
            begin = middle + 1;
        else
            end = middle;
    }
    return false;
}

bool strata_channel_equal(strata_channel a, strata_channel b) {
    if (a.id != b.id || a.n_members != b.n_members || a.local != b.local) return false;
    return a.members == b.members || !memcmp(a.members, b.members, (size_t)a.n_members * sizeof *a.members);
}

bool strata_channel_spans_workers(strata_channel channel, int64_t first, int64_t n) {
    if (channel.local) return false;
    return !channel.n_members || channel.members[0] < first || channel.members[channel.n_members - 1] >= first + n;
}

strata_status strata_communication_shape(strata_tensor *node, strata_error *err) {
    const strata_communication_attrs *attrs = node->attrs;
    STRATA_TRY(strata_shape_check(attrs->shape, err));
    node->dtype = attrs->dtype;
    node->shape = attrs->takes ? attrs->shape : STRATA_SHAPE(0);
    return STRATA_OK;
}

void strata_communication_reference(strata_op_call *call) {
    const size_t bytes = (size_t)strata_shape_elements(call->node->shape) * strata_dtype_bytes(call->node->dtype);
    if (bytes && call->node->n_inputs)
        memcpy(call->output, call->inputs[0], bytes);
    else if (bytes)
        memset(call->output, 0, bytes);
}
