/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of metrics, and the functions with which a program computes them in graphs of its own (strata/metrics.h). */
#include <stdio.h>
#include <string.h>

#include "core/graph/graph.h"
#include "core/metric/metric.h"

static const strata_metric_kind *const kinds[] = {
#define STRATA_METRIC(name) &strata_metric_##name,
#include "core/metric/metrics.def"

#undef STRATA_METRIC
};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

/* Whether `name` is the pattern with a number of 1 to 4 digits in place of its %d. */
static bool matches(const char *pattern, const char *name, int *out_k) {
    const char *hole = strstr(pattern, "%d");
    *out_k = 0;
    if (!hole) return !strcmp(pattern, name);
    size_t before = (size_t)(hole - pattern), digits = 0;
    if (strncmp(pattern, name, before)) return false;
    for (const char *at = name + before; at[digits] >= '0' && at[digits] <= '9' && digits < 5; digits++)
        *out_k = 10 * *out_k + (at[digits] - '0');
    return digits >= 1 && digits <= 4 && !strcmp(hole + 2, name + before + digits);
}

strata_status strata_metric_find(const char *name, const strata_metric_kind **out_kind, int *out_k, strata_error *err) {
    for (int i = 0; i < N_KINDS; i++)
        if (matches(kinds[i]->name, name, out_k)) {
            *out_kind = kinds[i];
            return STRATA_OK;
        }
    char names[256] = "loss";
    for (int i = 0; i < N_KINDS; i++) {
        const bool numbered = strstr(kinds[i]->name, "%d");
        strncat(names, ", ", sizeof names - strlen(names) - 1);
        strncat(names, numbered ? "top_5_accuracy (or another number)" : kinds[i]->name, sizeof names - strlen(names) - 1);
    }
    return strata_fail(err, STRATA_INVALID, "there is no metric \"%s\"; there are: %s", name, names);
}

int64_t strata_metric_one_sum(const strata_metric_case *c) {
    (void)c;
    return 1;
}

double strata_metric_mean_of_sum(const strata_metric_case *c, const double *sums, int64_t examples) {
    (void)c;
    return sums[0] / (double)examples;
}

strata_status strata_metric_always_fits(const strata_metric_case *c, strata_error *err) {
    (void)c, (void)err;
    return STRATA_OK;
}

/* ---- metrics in a graph of the program ---- */

/* Makes the case for which a metric is computed. *opts receives the checked options of the loss. */
static strata_status make_case(const strata_metric *metric, strata_shape output, strata_loss_options *opts,
                               const strata_metric_kind **out_kind, strata_metric_case *out_case, strata_error *err) {
    if (!metric->name || !metric->loss)
        return strata_fail(err, STRATA_INVALID, "a metric needs its name and the name of a loss");
    *opts = metric->loss_options;
    *out_case = (strata_metric_case){.opts = opts, .output = output};
    STRATA_TRY(strata_loss_find(metric->loss, &out_case->loss, err));
    if (out_case->loss->check) STRATA_TRY(out_case->loss->check(opts, err));
    STRATA_TRY(strata_loss_check_output(out_case->loss, output, err));
    STRATA_TRY(strata_metric_find(metric->name, out_kind, &out_case->k, err));
    const strata_status status = (*out_kind)->check(out_case, err);
    return status ? strata_fail_in(err, status, "metric %s", metric->name) : STRATA_OK;
}

strata_tensor *strata_metric_sums(const strata_metric *metric, strata_tensor *outputs, strata_tensor *labels) {
    const strata_metric_kind *kind;
    strata_metric_case c;
    strata_loss_options *opts;
    strata_error err = {0};
    if (!outputs || strata_tensor_is_poison(outputs)) return outputs;
    if (!labels || strata_tensor_is_poison(labels)) return labels;
    const strata_shape all = strata_tensor_shape(outputs);
    strata_shape output = {.rank = all.rank > 0 ? all.rank - 1 : 0};
    for (int i = 0; i < output.rank; i++) output.dims[i] = all.dims[i + 1];
    opts = strata_graph_alloc(outputs->graph, sizeof *opts); /* ops may point to it */
    strata_status status = opts ? make_case(metric, output, opts, &kind, &c, &err)
                                : strata_fail(&err, STRATA_OUT_OF_MEMORY, "no host memory for a metric");
    if (!status && all.rank < 1) status = strata_fail(&err, STRATA_INVALID, "metrics: outputs have no axis of examples");
    if (status) return strata_graph_poison(outputs->graph, NULL, status, "%s", err.message);
    outputs = strata_loss_logits(c.loss, c.opts, outputs);
    if (strata_tensor_is_poison(outputs)) return outputs;
    return kind->words->build(&c, outputs, strata_loss_convert_labels(c.loss, outputs, labels));
}

strata_status strata_metric_value(const strata_metric *metric, strata_shape output, const double *sums, int64_t n_examples,
                                  double *out_value, strata_error *err) {
    const strata_metric_kind *kind;
    strata_metric_case c;
    strata_loss_options opts;
    STRATA_TRY(make_case(metric, output, &opts, &kind, &c, err));
    if (n_examples < 1)
        return strata_fail(err, STRATA_INVALID, "metric %s of %lld examples; it needs at least 1", metric->name,
                           (long long)n_examples);
    if (!kind->value)
        return strata_fail(err, STRATA_INVALID, "metric %s has no single value: its sums are the result", metric->name);
    *out_value = kind->value(&c, sums, n_examples);
    return STRATA_OK;
}
