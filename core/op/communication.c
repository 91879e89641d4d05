/* SPDX-License-Identifier: Apache-2.0
 *
 * The common part of communication ops: the shape rule, and the reference for one device. */
#include "core/op/communication.h"

#include <string.h>

const strata_attr_words strata_reduction_words[] = {{"reduction", (const char *const[]){"sum", "mean", NULL}}, {NULL, NULL}};

strata_channel strata_channel_of_first(int n) {
    /* With more than 62 devices there are not enough bits; the channel then has all devices. */
    return (strata_channel){.id = n, .members = n > 0 && n < 63 ? ((int64_t)1 << n) - 1 : 0};
}

strata_status strata_communication_shape(strata_tensor *node, strata_error *err) {
    const strata_communication_attrs *attrs = node->attrs;
    STRATA_TRY(strata_shape_check(attrs->shape, err));
    node->dtype = attrs->dtype;
    node->shape = attrs->takes ? attrs->shape : STRATA_SHAPE(0);
    return STRATA_OK;
}

strata_status strata_communication_reference(const strata_op_call *call, strata_error *err) {
    (void)err;
    const size_t bytes = (size_t)strata_shape_elements(call->node->shape) * strata_dtype_bytes(call->node->dtype);
    if (bytes && call->node->n_inputs)
        memcpy(call->output, call->inputs[0], bytes);
    else if (bytes)
        memset(call->output, 0, bytes);
    return STRATA_OK;
}
