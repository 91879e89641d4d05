/* SPDX-License-Identifier: Apache-2.0
 *
 * Curves of training runs, from the files that strata train --log or --json writes: each line of JSON, or row of CSV, has names
 * and numbers. Other contents of a line are ignored, and so is an incomplete last line, since the run may still be writing. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plot.h"
#include "strata/json.h"

enum { MOST_NAMES = 64, MOST_LINE = 1 << 20, MOST_SHOWN = 8 };

typedef struct log_row {
    bool epoch;
    double values[MOST_NAMES]; /* NaN: the row does not have this value */
} log_row;

typedef struct run_rows {
    char names[MOST_NAMES][48];
    int n_names;
    log_row *rows;
    int n, capacity;
} run_rows;

static int find_name(run_rows *run, const char *name, bool add) {
    for (int i = 0; i < run->n_names; i++)
        if (!strcmp(run->names[i], name)) return i;
    if (!add || run->n_names == MOST_NAMES || strlen(name) >= sizeof run->names[0]) return -1;
    strcpy(run->names[run->n_names], name);
    for (int r = 0; r < run->n; r++) run->rows[r].values[run->n_names] = NAN;
    return run->n_names++;
}

static log_row *add_row(run_rows *run) {
    if (run->n == run->capacity) {
        const int capacity = run->capacity ? 2 * run->capacity : 256;
        log_row *rows = realloc(run->rows, (size_t)capacity * sizeof *rows);
        if (!rows) return NULL;
        run->rows = rows;
        run->capacity = capacity;
    }
    log_row *row = &run->rows[run->n++];
    *row = (log_row){0};
    for (int i = 0; i < MOST_NAMES; i++) row->values[i] = NAN;
    return row;
}

static int no_memory(void) {
    return usage_error("plot: not enough memory"), EXIT_DEVICE;
}

static int add_json(run_rows *run, const char *where, char *line, size_t bytes) {
    strata_error err = {0};
    strata_json root, member;
    if (strata_json_parse(where, line, bytes, MOST_LINE, &root, &err)) return report(FAILING_DATA, STRATA_DATA, &err);
    if (strata_json_expect(&root, STRATA_JSON_OBJECT, &err)) {
        strata_json_finish(&root);
        return report(FAILING_DATA, STRATA_DATA, &err);
    }
    log_row *row = add_row(run);
    for (bool more = row && strata_json_first(&root, &member); more; more = strata_json_next(&member)) {
        const char *event = "";
        double value;
        if (!strcmp(member.name ? member.name : "", "event") && !strata_json_to_string(&member, &event, NULL))
            row->epoch = !strcmp(event, "epoch");
        if (strata_json_kind_of(&member) != STRATA_JSON_NUMBER) continue;
        const int name = find_name(run, member.name, true);
        if (name >= 0 && !strata_json_to_number(&member, -1e300, 1e300, &value, NULL)) row->values[name] = value;
    }
    strata_json_finish(&root);
    return row ? EXIT_OK : no_memory();
}

/* What a column of a CSV is if it is not one of the names. UNNAMED: its name is too long, or there are too many names. */
enum { EVENT = -1, UNNAMED = -2 };

/* Reads a row of a CSV. The first row has the names: columns[i] is then the index of the name of column i, or EVENT or UNNAMED.
 * Columns after the first MOST_NAMES are UNNAMED, too, and have no element there. */
static int add_csv(run_rows *run, const char *where, char *line, int *columns, int *n_columns) {
    int n = 0;
    char *rest = line;
    if (!*n_columns) {
        for (char *cell; (cell = strsep(&rest, ",")); n++) {
            const int name = strcmp(cell, "event") && n < MOST_NAMES ? find_name(run, cell, true) : -1;
            if (n < MOST_NAMES) columns[n] = name >= 0 ? name : strcmp(cell, "event") ? UNNAMED : EVENT;
        }
        *n_columns = n;
        return EXIT_OK;
    }
    log_row *row = add_row(run);
    for (char *cell; row && (cell = strsep(&rest, ",")); n++) {
        if (n == *n_columns) return usage_error("%s: more columns than the first row has names", where), EXIT_DATA;
        const int column = n < MOST_NAMES ? columns[n] : UNNAMED;
        char *end;
        const double value = strtod(cell, &end);
        if (column == EVENT) row->epoch = !strcmp(cell, "epoch");
        if (column < 0 || !*cell) continue;
        if (*end)
            return usage_error("%s: column %s is \"%s\", which is not a number", where, run->names[column], cell), EXIT_DATA;
        row->values[column] = value;
    }
    return row ? EXIT_OK : no_memory();
}

static int read_run(const char *path, run_rows *run) {
    FILE *file = fopen(path, "r");
    char *line = NULL, where[300];
    size_t room = 0;
    int code = EXIT_OK, columns[MOST_NAMES], n_columns = 0;
    if (!file) return usage_error("plot: %s: %s", path, strerror(errno)), EXIT_DATA;
    for (long number = 1; !code; number++) {
        const ssize_t n = getline(&line, &room, file);
        if (n <= 0) break;
        const bool whole = line[n - 1] == '\n';
        if (!whole) break;
        line[n - 1] = '\0';
        snprintf(where, sizeof where, "%s: line %ld", path, number);
        if (strlen(line) != (size_t)n - 1)
            code = (usage_error("%s is not text; strata train --log writes such files", where), EXIT_DATA);
        if (!code && n > 1)
            code = ends_with(path, ".csv") ? add_csv(run, where, line, columns, &n_columns)
                                           : add_json(run, where, line, (size_t)n - 1);
    }
    if (!code && ferror(file)) code = (usage_error("plot: %s: %s", path, strerror(errno)), EXIT_DATA);
    if (!code && !run->n)
        code = (usage_error("plot: %s has no rows yet; strata train --log FILE writes them", path), EXIT_DATA);
    free(line);
    fclose(file);
    return code;
}

/* Adds the curve of one run, by epoch or by step. In a chart by step, values of epochs are at their last steps. */
static bool add_curve(chart *c, run_rows *run, const char *name, const char *label, bool steps) {
    const int y = find_name(run, name, false), x = find_name(run, steps ? "total_step" : "epoch", false);
    bool of_epochs = true;
    chart_series *s = NULL;
    for (int i = 0; i < run->n && y >= 0 && steps; i++) of_epochs &= run->rows[i].epoch || isnan(run->rows[i].values[y]);
    for (int i = 0; i < run->n && y >= 0 && x >= 0; i++) {
        const log_row *row = &run->rows[i];
        if (row->epoch != of_epochs || isnan(row->values[y]) || isnan(row->values[x])) continue;
        if (!s) s = chart_add_series(c, label);
        if (s && !chart_add_point(s, row->values[x], row->values[y])) return false;
    }
    return true;
}

static int n_epochs(const run_rows *run) {
    int n = 0;
    for (int i = 0; i < run->n; i++) n += run->rows[i].epoch;
    return n;
}

static const char *base_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Makes the chart of a name, with the values of this name for each split (train_, val_, test_). */
static bool make_chart(chart *c, const char *shown, const char *const *paths, run_rows *runs, int n_runs, bool steps) {
    static const char *const splits[] = {"", "train_", "val_"};
    for (int r = 0; r < n_runs; r++)
        for (int k = 0; k < 3; k++) {
            char name[64], label[128];
            snprintf(name, sizeof name, "%s%s", splits[k], shown);
            snprintf(label, sizeof label, "%s%s%s", n_runs > 1 ? base_of(paths[r]) : "", n_runs > 1 ? ": " : "", name);
            if (!add_curve(c, &runs[r], name, label, steps)) return false;
        }
    return true;
}

/* Reads --show, for example "loss,accuracy". */
static int read_shown(const plot_options *options, char *room, size_t bytes, const char *out[MOST_SHOWN]) {
    int n = 0;
    snprintf(room, bytes, "%s", options->show ? options->show : "loss,accuracy");
    for (char *rest = room, *word; (word = strsep(&rest, ",")) && n < MOST_SHOWN;)
        if (*word) out[n++] = word;
    return n;
}

static int list_names(const run_rows *run, const char *path, const char *shown) {
    char list[1024] = "";
    size_t used = 0;
    for (int i = 0; i < run->n_names && used + 60 < sizeof list; i++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", run->names[i]);
    return usage_error("plot: there is no \"%s\" in %s; it has %s", shown, path, list), EXIT_DATA;
}

static int draw(const plot_options *options, const char *const *paths, run_rows *runs, int n_runs, const plot_target *target) {
    char room[256];
    const char *shown[MOST_SHOWN];
    chart charts[MOST_SHOWN] = {{0}};
    const int n = read_shown(options, room, sizeof room, shown);
    bool steps = options->steps;
    int n_drawn = 0, code = EXIT_OK;
    for (int r = 0; r < n_runs && !options->steps; r++) steps |= n_epochs(&runs[r]) < 2;
    for (int i = 0; i < n && !code; i++) {
        chart *c = &charts[n_drawn];
        c->title = shown[i];
        c->x_label = steps ? "step" : "epoch";
        if (!make_chart(c, shown[i], paths, runs, n_runs, steps)) code = no_memory();
        if (!code && !c->n && options->show) code = list_names(&runs[0], paths[0], shown[i]);
        n_drawn += c->n > 0;
    }
    if (!code && !n_drawn) code = list_names(&runs[0], paths[0], "loss");
    if (!code && target->svg) svg_begin(target->svg, 720, 300.0 * n_drawn);
    for (int i = 0; i < n_drawn && !code; i++) {
        const int fits = (target->look.rows - 1) / n_drawn - 4;
        if (target->svg)
            chart_svg(target->svg, &charts[i], 0, 300.0 * i, 720, 300);
        else
            chart_print(&charts[i], &target->look, target->rows ? target->rows : fits < 4 ? 4 : fits > 16 ? 16 : fits);
    }
    if (!code && target->svg) svg_end(target->svg);
    for (int i = 0; i < MOST_SHOWN; i++) chart_finish(&charts[i]);
    return code;
}

int plot_logs(const plot_options *options, const char *const *paths, int n_paths, const plot_target *target) {
    run_rows *runs = calloc((size_t)n_paths, sizeof *runs);
    int code = runs ? EXIT_OK : no_memory();
    for (int i = 0; i < n_paths && !code; i++) code = read_run(paths[i], &runs[i]);
    if (!code) code = draw(options, paths, runs, n_paths, target);
    for (int i = 0; runs && i < n_paths; i++) free(runs[i].rows);
    free(runs);
    return code;
}
