/* SPDX-License-Identifier: Apache-2.0
 *
 * A row is a list of names and numbers. All rows of a log have the same names; a value that a row does not have is an empty
 * cell in CSV, and is left out in JSON. */
#include "run_log.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "cli.h"
#include "load_report.h"

enum { MOST_CELLS = 112, NAME = 48 };

typedef struct cell {
    char name[NAME];
    double value;
    /* The row does not have this value. A value that is not finite is not missing; it is written as null. */
    bool missing;
    bool whole;
} cell;

typedef struct row {
    const char *event;
    cell cells[MOST_CELLS];
    int n;
    /* For an epoch of parameter_server, of which JSON has further lists; NULL: it is another row. */
    const strata_strategy *servers;
    double epoch_seconds;
} row;

static void add(row *r, const char *prefix, const char *name, double value, bool there) {
    if (r->n == MOST_CELLS) return;
    cell *c = &r->cells[r->n++];
    *c = (cell){.value = value, .missing = !there};
    snprintf(c->name, sizeof c->name, "%s%s", prefix, name);
}

static void add_whole(row *r, const char *name, int64_t value, bool there) {
    add(r, "", name, (double)value, there);
    r->cells[r->n - 1].whole = true;
}

/* names: the metrics besides loss and accuracy. */
static void add_metrics(row *r, const char *split, const strata_metrics *m, const strata_metrics *names, bool classifies,
                        bool there) {
    add(r, split, "loss", m->loss, there);
    if (classifies) add(r, split, "accuracy", m->accuracy, there);
    for (int i = 0; i < names->n; i++) add(r, split, names->more[i].name, i < m->n ? m->more[i].value : 0, there);
}

static row row_of(const strata_progress *p, const run_log_more *more, bool classifies, double seconds) {
    const bool epoch = p->epoch_end;
    row r = {.event = epoch ? "epoch" : "step"};
    add_whole(&r, "epoch", p->epoch + 1, true);
    add_whole(&r, "step", p->step, true);
    add_whole(&r, "total_step", p->steps ? p->epoch * p->steps + p->step : p->total_step, true);
    if (epoch) {
        add_metrics(&r, "train_", &p->metrics, &p->metrics, classifies, true);
    } else {
        const strata_metrics one = {.loss = p->loss};
        add(&r, "train_", "loss", one.loss, true);
        if (classifies) add(&r, "train_", "accuracy", 0, false);
        for (int i = 0; i < p->metrics.n; i++) add(&r, "train_", p->metrics.more[i].name, 0, false);
    }
    add_metrics(&r, "val_", &p->validation, &p->metrics, classifies, epoch && p->validation.examples > 0);
    add_metrics(&r, "test_", &(strata_metrics){0}, &p->metrics, classifies, false);
    add(&r, "", "learning_rate", p->learning_rate, true);
    add(&r, "", "gradient_norm", p->gradient_norm, p->gradient_norm != 0);
    add(&r, "", "weight_norm", more->weight_norm, !isnan(more->weight_norm));
    add(&r, "", "samples_per_s", more->samples_per_s, !isnan(more->samples_per_s));
    add(&r, "", "epoch_s", p->epoch_seconds, epoch);
    add(&r, "", "seconds", seconds, true);
    if (!more->servers) return r;
    load_value values[N_LOAD_VALUES];
    load_values(more->servers, true, values);
    for (int i = 0; i < N_LOAD_VALUES; i++) {
        add(&r, "", values[i].name, values[i].value, epoch);
        r.cells[r.n - 1].whole = values[i].whole;
    }
    r.servers = epoch ? more->servers : NULL;
    r.epoch_seconds = p->epoch_seconds;
    return r;
}

static void print_value(FILE *file, const cell *c, const char *none) {
    if (!isfinite(c->value))
        fputs(none, file);
    else if (c->whole)
        fprintf(file, "%.0f", c->value);
    else
        fprintf(file, "%.9g", c->value);
}

static void print_json(FILE *file, const row *r) {
    fprintf(file, "{\"event\":\"%s\"", r->event);
    for (int i = 0; i < r->n; i++) {
        if (r->cells[i].missing) continue;
        fprintf(file, ",\"%s\":", r->cells[i].name); /* names of metrics are letters, digits and '_' */
        print_value(file, &r->cells[i], "null");
    }
    if (r->servers) load_print_lists(file, r->servers, true, r->epoch_seconds);
    fputs("}\n", file);
}

static void print_csv(run_log *log, const row *r) {
    if (!log->begun) {
        fputs("event", log->file);
        for (int i = 0; i < r->n; i++) fprintf(log->file, ",%s", r->cells[i].name);
        fputc('\n', log->file);
    }
    fputs(r->event, log->file);
    for (int i = 0; i < r->n; i++) {
        fputc(',', log->file);
        if (!r->cells[i].missing) print_value(log->file, &r->cells[i], "");
    }
    fputc('\n', log->file);
}

static void write_row(run_log *log, const row *r) {
    if (log->csv)
        print_csv(log, r);
    else
        print_json(log->file, r);
    log->begun = true;
    if (strcmp(r->event, "step") != 0) fflush(log->file);
    if (ferror(log->file) && !log->error) log->error = errno;
}

int run_log_check(const char *path) {
    if (ends_with(path, ".jsonl") || ends_with(path, ".json") || ends_with(path, ".csv")) return EXIT_OK;
    return usage_error("--log %s: its ending must be .jsonl (a line of JSON for each step or epoch) or .csv", path);
}

int run_log_open(run_log *log, const char *path, bool goes_on, bool classifies) {
    *log = (run_log){.path = path, .csv = ends_with(path, ".csv"), .classifies = classifies, .began = now_seconds()};
    log->file = fopen(path, goes_on ? "a" : "w");
    if (!log->file) return usage_error("--log %s: %s", path, strerror(errno)), EXIT_DATA;
    log->begun = fseek(log->file, 0, SEEK_END) == 0 && ftell(log->file) > 0;
    return EXIT_OK;
}

void run_log_add(run_log *log, const strata_progress *p, const run_log_more *more) {
    const row r = row_of(p, more, log->classifies, now_seconds() - log->began);
    write_row(log, &r);
}

void run_log_add_test(run_log *log, const strata_metrics *test, const strata_strategy *servers) {
    const strata_progress none = {.metrics = *test};
    row r = row_of(&none, &(run_log_more){NAN, NAN, servers}, log->classifies, now_seconds() - log->began), tested = {0};
    r.event = "test";
    for (int i = 0; i < r.n; i++) r.cells[i].missing = strcmp(r.cells[i].name, "seconds") != 0;
    add_metrics(&tested, "test_", test, test, log->classifies, true);
    for (int i = 0; i < r.n; i++)
        for (int k = 0; k < tested.n; k++)
            if (!strcmp(r.cells[i].name, tested.cells[k].name)) r.cells[i] = tested.cells[k];
    write_row(log, &r);
}

void run_log_print_epoch(const strata_progress *p, const run_log_more *more, bool classifies, double seconds) {
    const row r = row_of(p, more, classifies, seconds);
    print_json(stdout, &r);
    fflush(stdout);
}

int run_log_close(run_log *log) {
    if (!log->file) return EXIT_OK;
    if (fclose(log->file) && !log->error) log->error = errno;
    if (!log->error) return EXIT_OK;
    usage_error("--log %s: %s", log->path, strerror(log->error));
    return log->error == ENOSPC ? EXIT_OUT_OF_DISK : EXIT_DATA;
}
