/* SPDX-License-Identifier: Apache-2.0
 *
 * Reports the cost of --allow-fallback host: the nodes that the host runs, by op, and the copies of each run. */
#include <stdio.h>
#include <string.h>

#include "cli.h"

/* Writes for example "2 relu, 1 adam". */
static void list_ops(const strata_model_places *places, char *text, size_t room) {
    size_t used = 0;
    for (int i = 0; i < places->n_nodes; i++) {
        int count = 0;
        bool first = places->nodes[i].placed == STRATA_PLACED_HOST;
        for (int k = 0; k < places->n_nodes && first; k++) {
            if (places->nodes[k].placed != STRATA_PLACED_HOST || strcmp(places->nodes[k].op, places->nodes[i].op)) continue;
            first = k >= i;
            count++;
        }
        if (!first || used >= room) continue;
        const int n = snprintf(text + used, room - used, "%s%d %s", used ? ", " : "", count, places->nodes[i].op);
        used += n > 0 ? (size_t)n : 0;
    }
}

strata_status say_what_the_host_runs(strata_model *model, strata_model_part part, int64_t batch, int replica,
                                     const strata_device *device, fallback_report *out_report, strata_error *err) {
    static const char *const what[] = {[STRATA_PART_TRAINING] = "a training step",
                                       [STRATA_PART_EVALUATION] = "an evaluation",
                                       [STRATA_PART_PREDICTION] = "a prediction"};
    strata_model_places places = {0};
    char ops[512] = "";
    *out_report = (fallback_report){.device = device};
    STRATA_TRY(strata_model_list_places(model, part, batch, replica, NULL, 0, &places, err));
    if (places.n_host) {
        list_ops(&places, ops, sizeof ops);
        fprintf(stderr, "strata: of the %d nodes of %s the host runs %d for %s: %s\n", places.n_nodes, what[part],
                places.n_host, strata_device_get_info(device)->id, ops);
    }
    out_report->n_host = places.n_host;
    out_report->before = strata_device_get_counters(device);
    strata_model_places_finish(&places);
    return STRATA_OK;
}

void say_what_it_copied(fallback_report *report, const char *run) {
    if (!report->n_host) return;
    const strata_device_counters now = strata_device_get_counters(report->device);
    const double runs = (double)(now.host_nodes - report->before.host_nodes) / report->n_host;
    if (!(runs > 0)) return;
    report->copies = (double)(now.copies - report->before.copies) / runs;
    report->bytes = (double)(now.copy_bytes - report->before.copy_bytes) / runs;
    fprintf(stderr, "strata: between %s and the host %.0f copies, %sB a %s\n", strata_device_get_info(report->device)->id,
            report->copies, readable(report->bytes).text, run);
}
