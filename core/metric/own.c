/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes a strata_metric_kind for a metric that the user registered. */
#include "core/graph/graph.h"
#include "core/metric/metric.h"

static int64_t n_sums(const strata_metric_case *c) {
    return c->own->n_sums;
}

static strata_tensor *build(const strata_metric_case *c, strata_tensor *outputs, strata_tensor *labels) {
    strata_graph *graph = outputs->graph;
    strata_tensor *sums = c->own->build(outputs, labels);
    if (!sums)
        return strata_graph_poison(graph, NULL, STRATA_INVALID, "metric %s: its build function returned NULL", c->own->name);
    if (strata_tensor_is_poison(sums)) return sums;
    if (sums->graph == graph && sums->dtype == STRATA_DTYPE_F32 && strata_shape_elements(sums->shape) == c->own->n_sums)
        return strata_reshape(sums, STRATA_SHAPE(c->own->n_sums));
    return strata_graph_poison(graph, NULL, STRATA_INVALID,
                               "metric %s: its build function returned %s %s; it must be f32 (%lld)", c->own->name,
                               strata_dtype_name(sums->dtype), strata_shape_text(sums->shape).text, (long long)c->own->n_sums);
}

static double value(const strata_metric_case *c, const double *sums, int64_t examples) {
    return c->own->value ? c->own->value(sums, examples) : strata_metric_mean_of_sum(c, sums, examples);
}

void strata_metric_adapt(const strata_metric_definition *own, strata_metric_words *words, strata_metric_kind *out_kind) {
    *words = (strata_metric_words){.n = n_sums, .build = build};
    *out_kind = (strata_metric_kind){.name = own->name, .words = words, .check = strata_metric_always_fits, .value = value};
}
