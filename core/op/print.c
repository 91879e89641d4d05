/* SPDX-License-Identifier: Apache-2.0
 *
 * print: y = x, and the host prints x. The passes replace the node by x and make x an additional output of the program
 * (core/run/print.h). So no device runs the node, and other nodes are fused as without it. gradient: dy. */
#include <inttypes.h>

#include "core/op/attrs.h"
#include "core/op/ops.h"
#include "strata/ops.h"

static strata_status print_shape(strata_tensor *node, strata_error *err) {
    const strata_print_attrs *attrs = node->attrs;
    if (attrs->every < 1)
        return strata_fail(err, STRATA_INVALID, "every is %" PRId64 "; it must be 1 or more, or 0 for each run", attrs->every);
    if (attrs->first < 0 || attrs->first > STRATA_MAX_PRINTED)
        return strata_fail(err, STRATA_INVALID, "first is %" PRId64 "; it must be 0 to %d elements", attrs->first,
                           STRATA_MAX_PRINTED);
    return STRATA_OK;
}

static void print_gradient(strata_tensor *node, strata_tensor *dy, strata_tensor **dx) {
    (void)node;
    dx[0] = dy;
}

static void print_reference(strata_op_call *call) {
    const size_t bytes = (size_t)strata_tensor_bytes(call->node);
    if (bytes && call->output != call->inputs[0]) memcpy(call->output, call->inputs[0], bytes);
}

const strata_op strata_op_print = {.name = "print",
                                   .n_inputs = 1,
                                   .flags = STRATA_OP_VIEW,
                                   .attrs_bytes = sizeof(strata_print_attrs),
                                   .attrs = {{"every", STRATA_ATTR_INT, offsetof(strata_print_attrs, every)},
                                             {"first", STRATA_ATTR_INT, offsetof(strata_print_attrs, first)}},
                                   .dims = "...->...",
                                   .shape = print_shape,
                                   .gradient = print_gradient,
                                   .reference = print_reference};

strata_tensor *strata_print(strata_tensor *x, const strata_print_options *opts) {
    const strata_print_options o = opts ? *opts : (strata_print_options){0};
    strata_print_attrs attrs = {.every = o.every ? o.every : 1, .first = o.first ? o.first : STRATA_DEFAULT_PRINTED};
    if (x && !strata_tensor_is_poison(x)) attrs.label = strata_graph_strdup(x->graph, o.name ? o.name : strata_tensor_name(x));
    return strata_node(NULL, &strata_op_print, 1, &x, &attrs);
}
