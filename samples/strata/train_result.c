/* SPDX-License-Identifier: Apache-2.0
 *
 * The output of a training at its beginning and at its end. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "load_report.h"
#include "terminal.h"
#include "train.h"

/* Prints a description of the data. */
static void print_source(FILE *to, const training *t) {
    const char *source = strata_dataset_source(t->train.dataset);
    if (t->test.preprocessing) {
        fputc('\n', to);
        print_own(to, &t->options.data, &t->test, t->train.dataset, t->test.dataset);
        if (t->options.fit.validation)
            fprintf(to, "\nvalidation: %lld of %s", (long long)strata_dataset_size(t->validation.dataset),
                    t->options.fit.validation);
        return;
    }
    if (!t->options.data.path) fprintf(to, ", with %s", t->sample->made);
    if (*source) fprintf(to, "\n%s", source);
    if (t->train.as_they_are)
        fprintf(to, "; the model has no preprocessing and gets the data as they are, %lld train / %lld test",
                (long long)strata_dataset_size(t->train.dataset), (long long)strata_dataset_size(t->test.dataset));
}

/* Prints for example "mnist on opencl:0 (a processor)" or "mnist: mirrored on opencl:0, vulkan:0: as asked for". */
void print_start(const training *t) {
    const strata_device_info *info = strata_device_get_info(strata_strategy_device(t->strategy, 0));
    const char *name = strcmp(t->name, "-") ? t->name : "standard input";
    line whole;
    FILE *to = line_begin(&whole);
    if (t->options.strategy.name || t->options.strategy.devices)
        fprintf(to, "%s: %s", name, strata_strategy_choice(t->strategy));
    else
        fprintf(to, "%s on %s (%s)", name, info->id, info->name);
    print_source(to, t);
    line_end(&whole, 4);
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median time of the epochs after the first one, which compiles kernels; the time of a single epoch; 0: there was no
 * epoch. */
static double median_epoch(const strata_history *h) {
    int first = h->n_epochs > 1 ? 1 : 0, n = h->n_epochs - first;
    if (!n) return 0;
    double *sorted = malloc((size_t)n * sizeof *sorted);
    if (!sorted) return h->epoch_seconds[first];
    memcpy(sorted, h->epoch_seconds + first, (size_t)n * sizeof *sorted);
    qsort(sorted, (size_t)n, sizeof *sorted, ascending);
    double median = n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
    free(sorted);
    return median;
}

/* Prints how many nodes the host runs for the replicas of this process, and the copies that this needs. */
static void print_fallbacks(const training *t) {
    double copies = 0, bytes = 0;
    int n_host = 0;
    for (int r = 0; r < MOST_FALLBACKS; r++) {
        n_host += t->fallbacks[r].n_host;
        copies += t->fallbacks[r].copies;
        bytes += t->fallbacks[r].bytes;
    }
    if (t->options.device.allow_fallback)
        printf(",\"host_nodes\":%d,\"copies_per_step\":%.1f,\"copy_bytes_per_step\":%.0f", n_host, copies, bytes);
}

static void print_strategy(const training *t) {
    const int n = strata_strategy_num_local_replicas(t->strategy);
    const strata_communication_totals c = strata_model_communication(t->model);
    printf(",\"strategy\":\"%s\",\"devices\":[", strata_strategy_name(t->strategy));
    for (int r = 0; r < n; r++) {
        if (r) printf(",");
        print_json_string(strata_device_get_info(strata_strategy_device(t->strategy, r))->id);
    }
    printf("],\"replicas\":%d,\"replica_weights_equal\":%s,\"imbalance\":%.4f",
           strata_strategy_num_replicas_in_sync(t->strategy), t->replicas_equal ? "true" : "false", c.imbalance);
    printf(",\"comm_s\":%.6f,\"comm_hidden\":%.4f,\"comm_bytes_per_step\":%.0f", c.seconds, c.hidden, c.bytes_per_step);
    if (strata_strategy_num_workers(t->strategy) > 1) printf(",\"wire_bytes_per_step\":%.0f", c.wire_bytes_per_step);
    if (c.bubble > 0)
        printf(",\"bubble\":%.4f,\"planned_bubble\":%.4f,\"slowest_stage\":%d,\"stage_imbalance\":%.4f", c.bubble,
               c.planned_bubble, c.slowest_stage, c.stage_imbalance);
    print_fallbacks(t);
}

static double fit_seconds(const strata_history *h) {
    double seconds = 0;
    for (int i = 0; i < h->n_epochs; i++) seconds += h->epoch_seconds[i];
    return seconds;
}

/* Prints the totals of workers and parameter servers. */
static void print_servers_json(const training *t) {
    const strata_parameter_server_totals totals = strata_strategy_parameter_server_totals(t->strategy);
    if (!has_servers(t)) return;
    printf(",\"server_bytes_per_step\":%.0f,\"servers\":%d", totals.bytes_per_step, totals.servers);
    load_value values[N_LOAD_VALUES];
    load_values(t->strategy, false, values);
    for (int i = 0; i < N_LOAD_VALUES; i++) {
        printf(",\"%s\":", values[i].name);
        print_json_number(values[i].value, values[i].whole ? "%.0f" : "%.4f");
    }
    load_print_lists(stdout, t->strategy, false, fit_seconds(&t->history));
    printf(",\"queue_running\":%d,\"queue_waiting\":%d", totals.running, totals.waiting);
    printf(",\"workers_lost\":%lld,\"workers_joined\":%lld,\"gradients_late\":%lld,\"gradients_refused\":%lld",
           (long long)totals.lost, (long long)totals.joined, (long long)totals.late, (long long)totals.refused);
}

static void print_servers(FILE *to, const training *t) {
    const strata_parameter_server_totals totals = strata_strategy_parameter_server_totals(t->strategy);
    if (!has_servers(t)) return;
    fprintf(to, " of the chief, with %d worker%s and %d server%s; updates were %.2f versions old, at most %lld", totals.workers,
            totals.workers == 1 ? "" : "s", totals.servers, totals.servers == 1 ? "" : "s", totals.training.staleness_mean,
            (long long)totals.training.staleness_max);
    if (totals.stragglers)
        fprintf(to, "; worker:%d is the slowest, its steps take %.1f times the median", totals.slowest, totals.slowest_ratio);
    if (totals.lost) fprintf(to, "; a worker was lost %lld time%s", (long long)totals.lost, totals.lost > 1 ? "s" : "");
}

/* Prints for example " and 2 other workers, 407 kB sent a step, 12 % of its exchange hidden". */
static void print_workers(FILE *to, const training *t) {
    const int others = strata_strategy_num_workers(t->strategy) - 1;
    const strata_communication_totals c = strata_model_communication(t->model);
    if (others > 0)
        fprintf(to, " and %d other worker%s, %sB sent a step, %.0f %% of its exchange hidden", others, others == 1 ? "" : "s",
                readable(c.wire_bytes_per_step).text, 100 * c.hidden);
}

/* Prints for example "; stages waited for 23 % of their steps, and by the schedule for 20 %; stage 1 is the slowest, with 1.30
 * times the mean time". */
static void print_stages(FILE *to, const training *t) {
    const strata_communication_totals c = strata_model_communication(t->model);
    if (c.bubble > 0)
        fprintf(
            to,
            "; stages waited for %.0f %% of their steps, and by the schedule for %.0f %%; stage %d is the slowest, with %.2f "
            "times the mean time",
            100 * c.bubble, 100 * c.planned_bubble, c.slowest_stage, c.stage_imbalance);
}

/* Prints for example "best epoch 3, whose weights were kept: val_loss 0.21". */
static void print_best(const training *t) {
    const strata_history *h = &t->history;
    if (!h->validation || h->best_epoch < 0) return;
    printf("best epoch %d", h->best_epoch + 1);
    if (t->options.fit.restore_best) printf(", whose weights were kept: val_loss %.4g", t->val_metrics.loss);
    printf("\n");
}

static void print_validation_json(const training *t) {
    const strata_history *h = &t->history;
    if (!h->validation) return;
    printf(",\"val_loss\":");
    print_json_number(t->val_metrics.loss, "%.9g");
    printf(",\"val_accuracy\":%.6f,\"val_losses\":[", t->val_metrics.accuracy);
    for (int i = 0; i < h->n_epochs; i++) {
        if (i) printf(",");
        print_json_number(h->validation[i].loss, "%.9g");
    }
    printf("],\"best_epoch\":%d", h->best_epoch + 1);
}

void print_result(const training *t) {
    const strata_history *h = &t->history;
    /* There may be no epoch: the training had ended, also by --patience, before the run that this command continues. */
    const strata_metrics none = {.loss = NAN, .accuracy = NAN}, *trained = h->n_epochs ? &h->epochs[h->n_epochs - 1] : &none;
    /* The examples of the epoch are counted, not those of the data, since --steps-per-epoch may leave some out. */
    const double epoch_s = median_epoch(h), rate = h->n_epochs ? (double)trained->examples / epoch_s : 0;
    if (!t->options.reports.json) {
        print_best(t);
        line whole;
        FILE *to = line_begin(&whole);
        print_metrics(to, t->model, &t->test_metrics);
        print_more(to, &t->test_metrics, "");
        if (h->n_epochs) fprintf(to, ", %.0f samples/s", rate);
        fprintf(to, " on");
        for (int r = 0; r < strata_strategy_num_local_replicas(t->strategy); r++)
            fprintf(to, "%s %s", r ? "," : "", strata_device_get_info(strata_strategy_device(t->strategy, r))->id);
        print_workers(to, t);
        print_servers(to, t);
        print_stages(to, t);
        line_end(&whole, 4);
        print_confusion(t->model);
        print_number_scores(&t->test_scores);
        print_hint(&t->test_scores, t->sample, t->test.preprocessing);
        if (t->options.save) printf("saved %s\n", t->options.save);
        return;
    }
    printf("{\"event\":\"result\",\"sample\":");
    print_json_string(strata_model_label(t->model)[0] ? strata_model_label(t->model) : t->name);
    print_strategy(t);
    print_servers_json(t);
    const int n_workers = has_servers(t) ? strata_strategy_parameter_server_totals(t->strategy).workers
                                         : strata_strategy_num_workers(t->strategy);
    printf(",\"workers\":%d,\"batch\":%lld,\"epochs\":%d,\"steps\":%lld", n_workers, (long long)t->batch, h->n_epochs,
           (long long)h->n_steps);
    printf(",\"data_s\":%.4f,\"start_to_first_step_s\":%.4f", t->data_seconds, t->fit_began - t->began + h->first_step_seconds);
    printf(",\"precision\":\"%s\",\"steps_skipped\":%lld", precision_of(t->model), (long long)h->n_skipped);
    printf(",\"first_step_s\":%.4f,\"epoch_s\":%.6f,\"samples_per_s\":%.1f,\"losses\":[", h->first_step_seconds, epoch_s, rate);
    for (int i = 0; i < h->n_losses; i++) printf("%s%.9g", i ? "," : "", (double)h->losses[i]);
    const strata_metrics *tested = &t->test_metrics;
    printf("],\"loss\":");
    print_json_number(trained->loss, "%.9g");
    printf(",\"train_loss\":");
    print_json_number(trained->loss, "%.9g");
    printf(",\"train_accuracy\":");
    print_json_number(trained->accuracy, "%.6f");
    printf(",\"accuracy\":%.6f,\"test_accuracy\":%.6f,\"test_examples\":%lld,\"test_loss\":", tested->accuracy,
           tested->accuracy, (long long)tested->examples);
    print_json_number(tested->loss, "%.9g");
    print_validation_json(t);
    print_more_json(t->model, &t->test_metrics);
    print_scores_json(&t->test_scores, t->sample, t->test.preprocessing);
    printf(",\"weights_sha256\":\"%s\",\"peak_rss_mib\":%lld}\n", t->sha256, (long long)peak_rss_mib());
}

void say_where_it_fits(training *t, const strata_compile_options *compile) {
    strata_device *host = NULL;
    char *text = NULL;
    strata_compile_options on_host = *compile;
    on_host.strategy = NULL;
    /* If its parameters did not fit, the model is not compiled. The host has memory for them, where no other device does. */
    const bool alone = strata_strategy_num_local_replicas(t->strategy) == 1 && strata_strategy_num_workers(t->strategy) == 1;
    if (alone && !has_servers(t) && strata_model_suggest_mesh(t->model, t->batch, &text, NULL) &&
        !strata_device_open("host", NULL, &host, NULL) && !strata_model_compile(t->model, host, &on_host, NULL))
        (void)!strata_model_suggest_mesh(t->model, t->batch, &text, NULL);
    if (text) fprintf(stderr, "strata: it fits on several devices of this machine: %s\n", text);
    free(text);
    strata_model_destroy(t->model);
    t->model = NULL;
    strata_device_close(host);
}
