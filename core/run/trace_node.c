/* SPDX-License-Identifier: Apache-2.0 */
#include "core/run/trace_node.h"

#include <stdio.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/base/text.h"
#include "core/graph/graph.h"

/* Adds a tensor's name, which the user may have set, to a JSON string. Characters that would need an escape become
 * "?". */
static void add_plain(strata_text *text, const char *string) {
    for (const char *c = string; *c; c++)
        strata_text_add_bytes(text, *c == '"' || *c == '\\' || *c < 0x20 || *c > 0x7e ? "?" : c, 1);
}

const strata_trace_label *strata_trace_node(strata_trace *trace, const strata_tensor *node, const char *kernel, int parts) {
    STRATA_FINISHED(strata_text) details = {0};
    char name[256];
    snprintf(name, sizeof name, "%s%s %s", node->op->flags & STRATA_OP_COMMUNICATION ? "exchange " : "", node->op->name,
             strata_shape_text(node->shape).text);
    strata_text_add(&details, "\"op\":\"%s\",\"name\":\"", node->op->name);
    add_plain(&details, strata_tensor_name(node));
    strata_text_add(&details, "\",\"dtype\":\"%s\",\"shape\":\"%s\",\"inputs\":\"", strata_dtype_name(node->dtype),
                    strata_shape_text(node->shape).text);
    for (int i = 0; i < node->n_inputs; i++)
        strata_text_add(&details, "%s%s %s", i ? ", " : "", strata_dtype_name(node->inputs[i]->dtype),
                        strata_shape_text(node->inputs[i]->shape).text);
    strata_text_add(&details, "\"");
    if (kernel) strata_text_add(&details, ",\"kernel\":\"%s\"", kernel);
    if (details.failed) return NULL;
    return strata_trace_add_label(trace, name, details.bytes, parts == 1 ? strata_node_flops(node) : 0,
                                  parts == 1 ? strata_node_moved_bytes(node) : 0);
}
