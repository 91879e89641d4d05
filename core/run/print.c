/* SPDX-License-Identifier: Apache-2.0 */
#include "core/run/print.h"

#include <math.h>

#include "core/base/text.h"
#include "core/op/ops.h"

strata_status strata_prints_find(const strata_device *device, strata_draft *draft, strata_prints *out_prints,
                                 strata_error *err) {
    const strata_graph *graph = draft->graph;
    STRATA_FREED bool *live = NULL;
    int n = 0;
    for (int id = 0; id < graph->n_nodes && device->on_print; id++) n += graph->nodes[id]->op == &strata_op_print;
    if (!n) return STRATA_OK;
    STRATA_TRY(STRATA_NEW(live, graph->n_nodes, err, "executable: no host memory for %d values to show", n));
    STRATA_TRY(STRATA_NEW(out_prints->nodes, n, err, "executable: no host memory for %d values to show", n));
    strata_tensor **outputs = realloc(draft->outputs, (size_t)(draft->n_outputs + n) * sizeof(*outputs));
    if (!outputs) return strata_fail(err, STRATA_OUT_OF_MEMORY, "executable: no host memory for %d values to show", n);
    draft->outputs = outputs;
    strata_mark_live(draft, live, NULL);
    for (int id = 0; id < graph->n_nodes; id++)
        if (live[id] && graph->nodes[id]->op == &strata_op_print)
            outputs[draft->n_outputs++] = out_prints->nodes[out_prints->n++] = graph->nodes[id];
    return STRATA_OK;
}

/* ---- showing ---- */

static void measure(strata_printed *p) {
    const int64_t n = strata_shape_elements(p->shape);
    double sum = 0;
    int64_t n_finite = 0;
    for (int64_t i = 0; i < n; i++) {
        const double v = strata_element_get(p->dtype, p->data, i);
        p->n_nan += isnan(v) != 0;
        p->n_infinite += isinf(v) != 0;
        if (!isfinite(v)) continue;
        if (!n_finite || v < p->least) p->least = v;
        if (!n_finite || v > p->largest) p->largest = v;
        sum += v;
        n_finite++;
    }
    if (n_finite) p->mean = sum / (double)n_finite;
}

static void write_text(const strata_printed *p, int64_t first, strata_text *text) {
    const int64_t n = strata_shape_elements(p->shape);
    strata_text_add(text, "%s%s%s %s %s [", p->place, p->place[0] ? ": " : "", p->name, strata_shape_text(p->shape).text,
                    strata_dtype_name(p->dtype));
    for (int64_t i = 0; i < n && i < first; i++)
        strata_text_add(text, "%s%.6g", i ? ", " : "", strata_element_get(p->dtype, p->data, i));
    strata_text_add(text, n > first ? ", ...]" : "]");
    if (n > p->n_nan + p->n_infinite) strata_text_add(text, " %.6g..%.6g, mean %.6g", p->least, p->largest, p->mean);
    if (p->n_nan) strata_text_add(text, ", %lld NaN", (long long)p->n_nan);
    if (p->n_infinite) strata_text_add(text, ", %lld infinite", (long long)p->n_infinite);
}

void strata_print_show(const strata_device *device, const strata_tensor *node, uint64_t run, const void *data) {
    const strata_print_attrs *attrs = node->attrs;
    STRATA_FINISHED(strata_text) text = {0};
    if (run % (uint64_t)attrs->every || (!data && strata_shape_elements(node->shape))) return;
    strata_printed printed = {.name = attrs->label,
                              .device = device->info.id,
                              .place = device->place,
                              .run = run,
                              .dtype = node->dtype,
                              .shape = node->shape,
                              .data = data};
    measure(&printed);
    write_text(&printed, attrs->first, &text);
    printed.text = text.bytes ? text.bytes : "";
    device->on_print(&printed, device->on_compile_user);
}
