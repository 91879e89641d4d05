/* SPDX-License-Identifier: Apache-2.0 */
#include "load_report.h"

void load_values(const strata_strategy *strategy, bool epoch, load_value *out_values) {
    const strata_parameter_server_totals t = strata_strategy_parameter_server_totals(strategy);
    const strata_parameter_server_load *load = epoch ? &t.epoch : &t.training;
    const load_value values[N_LOAD_VALUES] = {{"staleness_mean", load->staleness_mean, false},
                                              {"staleness_max", (double)load->staleness_max, true},
                                              {"stale_share", load->stale_share, false},
                                              {"stragglers", t.stragglers, true},
                                              {"slowest_worker", t.slowest, true},
                                              {"slowest_ratio", t.slowest_ratio, false},
                                              {"leases_mean", load->leases_mean, false},
                                              {"leases_max", load->leases_max, true},
                                              {"server_pulls_max", load->server_pulls_max, true},
                                              {"server_pushes_max", load->server_pushes_max, true}};
    for (int i = 0; i < N_LOAD_VALUES; i++) out_values[i] = values[i];
}

void load_print_lists(FILE *file, const strata_strategy *strategy, bool epoch, double seconds) {
    const strata_parameter_server_totals t = strata_strategy_parameter_server_totals(strategy);
    const strata_parameter_server_load *load = epoch ? &t.epoch : &t.training;
    fprintf(file, ",\"staleness_histogram\":[");
    for (int i = 0; i < STRATA_STALENESS_BINS; i++)
        fprintf(file, "%s%lld", i ? "," : "", (long long)load->staleness_histogram[i]);
    fprintf(file, "],\"worker_steps\":[");
    for (int w = 0; w < t.workers; w++) {
        const strata_parameter_server_worker own = strata_strategy_parameter_server_worker(strategy, w);
        fprintf(file, "%s%lld", w ? "," : "", (long long)(epoch ? own.epoch_steps : own.steps));
    }
    fprintf(file, "],\"worker_samples_per_s\":[");
    for (int w = 0; w < t.workers; w++) {
        const strata_parameter_server_worker own = strata_strategy_parameter_server_worker(strategy, w);
        const double examples = (double)(epoch ? own.epoch_examples : own.examples);
        fprintf(file, "%s%.1f", w ? "," : "", seconds > 0 ? examples / seconds : 0);
    }
    fprintf(file, "]");
}

void load_print_epoch(FILE *to, const strata_strategy *strategy) {
    const strata_parameter_server_totals t = strata_strategy_parameter_server_totals(strategy);
    fprintf(to, "  staleness %.1f", t.epoch.staleness_mean);
    if (t.stragglers) fprintf(to, "  slow worker:%d %.1fx", t.slowest, t.slowest_ratio);
}

void load_text(const strata_strategy *strategy, char out_text[LOAD_TEXT]) {
    const strata_parameter_server_totals t = strata_strategy_parameter_server_totals(strategy);
    const int queue = t.epoch.server_pulls_max + t.epoch.server_pushes_max;
    int n = snprintf(out_text, LOAD_TEXT, "stale %.1f leases %d queue %d", t.epoch.staleness_mean, t.running, queue);
    if (t.stragglers && n > 0 && n < LOAD_TEXT)
        snprintf(out_text + n, (size_t)(LOAD_TEXT - n), " slow worker:%d %.0fx", t.slowest, t.slowest_ratio);
}
