/* SPDX-License-Identifier: Apache-2.0
 *
 * The settings that `strata tune` searches: "PATH=LEAST..MOST" and "PATH=A|B|C", and the default ranges. */
#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "strata/philox.h"
#include "tune.h"

/* Settings for which train has an option. The first two are not part of the model's JSON. */
static const struct {
    const char *path, *option;
} options[] = {{"batch", "--batch"}, {"model", "--model"}, {"optimizer.learning_rate", "--learning-rate"}};

const char *tune_option_of(const tune_range *range) {
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        if (!strcmp(range->path, options[i].path)) return options[i].option;
    return "--set";
}

/* ---- reading ---- */

static bool is_whole(const char *text, size_t n) {
    size_t digits = strspn(text, "0123456789");
    return n > 0 && digits >= n;
}

/* The number in the first n characters; NaN: they are not a number. */
static double read_end(const char *text, size_t n) {
    char copy[64], *end;
    if (!n || n >= sizeof copy) return NAN;
    memcpy(copy, text, n);
    copy[n] = 0;
    const double value = strtod(copy, &end);
    return *end || !isfinite(value) ? NAN : value;
}

static int read_interval(const char *setting, const char *dots, tune_range *out) {
    out->least = read_end(out->text, (size_t)(dots - out->text));
    out->most = read_end(dots + 2, strlen(dots + 2));
    if (isnan(out->least) || isnan(out->most))
        return usage_error("--set %s: a range is LEAST..MOST, two numbers, as optimizer.learning_rate=1e-4..1e-2", setting);
    if (out->least >= out->most)
        return usage_error("--set %s: the range begins at %g, which must be less than %g, where it ends", setting, out->least,
                           out->most);
    out->whole = is_whole(out->text, (size_t)(dots - out->text)) && is_whole(dots + 2, strlen(dots + 2));
    out->logarithmic = out->least > 0 && out->most >= 10 * out->least;
    return EXIT_OK;
}

static int read_choices(const char *setting, tune_range *out) {
    char *rest = out->pieces;
    memcpy(out->pieces, out->text, sizeof out->pieces);
    for (char *piece; (piece = strsep(&rest, "|"));) {
        if (!*piece) return usage_error("--set %s: a choice is empty; choices are A|B|C", setting);
        if (out->n_choices == MOST_CHOICES) return usage_error("--set %s: more than %d choices", setting, MOST_CHOICES);
        out->choices[out->n_choices++] = piece;
    }
    return EXIT_OK;
}

static int read_range(const char *setting, tune_space *space) {
    const char *equals = strchr(setting, '=');
    if (!equals || equals == setting || !equals[1])
        return usage_error("--set %s: it must be PATH=LEAST..MOST, PATH=A|B|C or PATH=VALUE, for example layers.0.units=32|64",
                           setting);
    if (space->n == MOST_RANGES) return usage_error("--set is given more than %d times", MOST_RANGES);
    tune_range *range = &space->ranges[space->n];
    const int n_path = (int)(equals - setting);
    if (n_path >= (int)sizeof range->path || strlen(equals + 1) >= sizeof range->text)
        return usage_error("--set %.60s...: it is longer than %zu bytes", setting, sizeof range->text - 1);
    *range = (tune_range){.n_choices = 0};
    memcpy(range->path, setting, (size_t)n_path);
    memcpy(range->text, equals + 1, strlen(equals + 1));
    for (int i = 0; i < space->n; i++)
        if (!strcmp(space->ranges[i].path, range->path)) return usage_error("--set %s is given twice", range->path);
    space->n++;
    const char *dots = strstr(range->text, "..");
    return dots && !strchr(range->text, '|') ? read_interval(setting, dots, range) : read_choices(setting, range);
}

int tune_space_read(const text_list *settings, tune_space *out) {
    int code = EXIT_OK;
    for (int i = 0; i < settings->n && !code; i++) code = read_range(settings->items[i], out);
    return code;
}

/* ---- defaults ---- */

/* Adds a range, unless the user has set this path. */
static void add_default(tune_space *space, const char *path, const char *values) {
    char setting[2 * SETTING_BYTES];
    for (int i = 0; i < space->n; i++)
        if (!strcmp(space->ranges[i].path, path)) return;
    if (space->n == MOST_RANGES) return;
    snprintf(setting, sizeof setting, "%s=%s", path, values);
    read_range(setting, space);
}

/* Adds a range from a tenth of the model's value to ten times the value. */
static void add_around(tune_space *space, const char *path, double value) {
    char values[64];
    if (!(value > 0)) return;
    snprintf(values, sizeof values, "%.3g..%.3g", value / 10, value * 10);
    add_default(space, path, values);
}

/* Adds three choices: half of the model's value, the value, and twice the value. */
static void add_sizes(tune_space *space, const char *path, int64_t value) {
    char values[96];
    if (value < 2) return;
    snprintf(values, sizeof values, "%lld|%lld|%lld", (long long)value / 2, (long long)value, (long long)value * 2);
    add_default(space, path, values);
}

static double number_of(const cJSON *object, const char *key) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    return cJSON_IsNumber(item) ? item->valuedouble : NAN;
}

/* Adds ranges for the layers. The units of the last dense layer are not changed, since they are the outputs. If there are
 * residual layers, sizes depend on each other, so only dropout is searched. */
static void add_layers(const cJSON *layers, tune_space *space) {
    bool residual = false;
    int last = -1, i = 0;
    char path[64];
    const cJSON *layer;
    cJSON_ArrayForEach(layer, layers) {
        const cJSON *kind = cJSON_GetObjectItemCaseSensitive(layer, "layer");
        if (cJSON_IsString(kind) && !strcmp(kind->valuestring, "residual")) residual = true;
        if (!isnan(number_of(layer, "units"))) last = i;
        i++;
    }
    i = 0;
    cJSON_ArrayForEach(layer, layers) {
        static const char *const sizes[] = {"units", "filters"};
        for (int k = 0; k < 2 && !residual && i != last; k++) {
            const double size = number_of(layer, sizes[k]);
            snprintf(path, sizeof path, "layers.%d.%s", i, sizes[k]);
            if (!isnan(size)) add_sizes(space, path, (int64_t)size);
        }
        const cJSON *kind = cJSON_GetObjectItemCaseSensitive(layer, "layer");
        snprintf(path, sizeof path, "layers.%d.rate", i);
        if (cJSON_IsString(kind) && !strcmp(kind->valuestring, "dropout")) add_default(space, path, "0.0..0.6");
        i++;
    }
}

static bool has_range(const tune_space *space) {
    for (int i = 0; i < space->n; i++)
        if (space->ranges[i].n_choices != 1) return true;
    return false;
}

int tune_space_add_defaults(const strata_model *model, const train_options *o, int64_t batch, int64_t n_examples,
                            tune_space *space) {
    char *text = NULL;
    strata_error err = {0};
    if (has_range(space)) return EXIT_OK;
    strata_status status = strata_model_to_json(model, &text, &err);
    if (status) return report(FAILING_RUN, status, &err);
    const strata_optimizer optimizer = strata_model_optimizer(model);
    const char *name = optimizer.name ? optimizer.name : "adam";
    double rate = optimizer.learning_rate;
    if (!(rate > 0)) rate = strata_optimizer_default_rate(name);
    cJSON *json = cJSON_Parse(text);
    if (!(o->fit.learning_rate > 0)) add_around(space, "optimizer.learning_rate", rate);
    if (!o->fit.batch && !o->fit.global_batch && batch <= n_examples) add_sizes(space, "batch", batch);
    if (!o->model.from) {
        add_layers(cJSON_GetObjectItemCaseSensitive(json, "layers"), space);
        add_around(space, "optimizer.weight_decay",
                   number_of(cJSON_GetObjectItemCaseSensitive(json, "optimizer"), "weight_decay"));
    }
    cJSON_Delete(json);
    free(text);
    if (space->n) return EXIT_OK;
    return usage_error("nothing is left to search; name a range, as --set optimizer.learning_rate=1e-4..1e-2");
}

/* ---- checking ---- */

static int check_number(const tune_range *range, double value, const char *what) {
    if (value > 0 && (strcmp(range->path, "batch") || value == floor(value))) return EXIT_OK;
    return usage_error("--set %s=%s: %s is above 0", range->path, range->text, what);
}

static void end_of(const tune_range *range, bool last, char out[SETTING_BYTES]) {
    if (range->n_choices)
        snprintf(out, SETTING_BYTES, "%s", range->choices[last ? range->n_choices - 1 : 0]);
    else
        snprintf(out, SETTING_BYTES, "%.17g", last ? range->most : range->least);
}

int tune_space_check(const tune_space *space, const train_options *o, const strata_model *model) {
    char *text = NULL;
    strata_error err = {0};
    int code = EXIT_OK;
    for (int i = 0; i < space->n && !code; i++) {
        const tune_range *range = &space->ranges[i];
        char ends[2][SETTING_BYTES], setting[2 * SETTING_BYTES + 8];
        const bool batch = !strcmp(range->path, "batch"), rate = !strcmp(range->path, "optimizer.learning_rate");
        if ((batch && (o->fit.batch || o->fit.global_batch)) || (rate && o->fit.learning_rate > 0))
            return usage_error("--set %s and --%s both set it; give one of them", range->path,
                               rate           ? "learning-rate"
                               : o->fit.batch ? "batch"
                                              : "global-batch");
        if (!strcmp(range->path, "model") && (o->model.kind || o->model.from))
            return usage_error("--set model and --%s both name the model; give one of them", o->model.kind ? "model" : "from");
        if (o->model.from && !batch && !rate)
            return usage_error(
                "--set %s: the model of --from is not changed; batch and optimizer.learning_rate can be searched", range->path);
        for (int last = 0; last < 2; last++) {
            end_of(range, last, ends[last]);
            if ((batch || rate) && !code)
                code =
                    check_number(range, strtod(ends[last], NULL), batch ? "a batch is a whole number, and" : "a learning rate");
        }
        if (code || batch || rate || !strcmp(range->path, "model")) continue;
        for (int last = 0; last < 2 && !code; last++) { /* each setting is applied to a new copy of the model */
            strata_model *changed = NULL;
            strata_status status = strata_model_to_json(model, &text, &err);
            if (!status) status = strata_model_from_json(text, strlen(text), "", &changed, &err);
            free(text);
            if (status) return report(FAILING_RUN, status, &err);
            snprintf(setting, sizeof setting, "%s=%s", range->path, ends[last]);
            code = apply_settings(&(text_list){.items = {setting}, .n = 1}, &changed);
            strata_model_destroy(changed);
        }
    }
    return code;
}

/* ---- values ---- */

/* A random number in [0, 1) for this path and trial. */
static double random_number(const char *path, uint64_t seed, int trial) {
    uint64_t key = 1469598103934665603u; /* FNV-1a of the path, so that the values do not change if other settings are added */
    for (const char *c = path; *c; c++) key = (key ^ (unsigned char)*c) * 1099511628211u;
    const strata_philox_block counter = {{(uint32_t)trial, 0, (uint32_t)key, (uint32_t)(key >> 32)}};
    const strata_philox_block block = strata_philox(counter, (uint32_t)seed, (uint32_t)(seed >> 32));
    return (double)block.words[0] / 4294967296.0;
}

/* Writes the value with three digits, or with as many as the range needs: the rounded value must be in the range, and the error
 * at most a hundredth of it. With three digits, 0.999..0.9999 would have only the values 0.999 and 1. */
static void print_in_range(const tune_range *range, double value, char out[SETTING_BYTES]) {
    for (int digits = 3; digits <= 17; digits++) {
        snprintf(out, SETTING_BYTES, "%.*g", digits, value);
        const double rounded = strtod(out, NULL);
        const bool within = rounded >= range->least && rounded <= range->most;
        if (within && fabs(rounded - value) <= (range->most - range->least) / 100) return;
    }
}

void tune_space_value(const tune_range *range, uint64_t seed, int trial, char out[SETTING_BYTES]) {
    const double at = random_number(range->path, seed, trial), least = range->least, most = range->most;
    if (range->n_choices) {
        snprintf(out, SETTING_BYTES, "%s", range->choices[(int)(at * range->n_choices)]);
        return;
    }
    /* This gives the last whole number the same probability as the others. */
    const double end = range->whole ? most + 1 : most;
    double value = range->logarithmic ? least * pow(end / least, at) : least + at * (end - least);
    if (range->whole)
        snprintf(out, SETTING_BYTES, "%.0f", fmin(floor(value), most));
    else
        print_in_range(range, value, out);
}

void tune_space_text(const tune_space *space, uint64_t seed, int trial, char *out, size_t room) {
    size_t n = 0;
    *out = 0;
    for (int i = 0; i < space->n && n < room; i++) {
        char value[SETTING_BYTES];
        tune_space_value(&space->ranges[i], seed, trial, value);
        n += (size_t)snprintf(out + n, room - n, "%s%s=%s", i ? " " : "", space->ranges[i].path, value);
    }
}
