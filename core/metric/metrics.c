/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of metrics. */
#include <stdio.h>
#include <string.h>

#include "core/metric/metric.h"

static const strata_metric_kind *const kinds[] = {&strata_metric_top_k_accuracy,   &strata_metric_precision,
                                                  &strata_metric_recall,           &strata_metric_auc,
                                                  &strata_metric_confusion_matrix, &strata_metric_mae};
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
    return strata_fail(
        err, STRATA_INVALID,
        "there is no metric \"%s\"; there are: loss, accuracy, top_5_accuracy (or another number), precision, recall, auc, "
        "confusion_matrix, mae",
        name);
}
