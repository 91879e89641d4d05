/* SPDX-License-Identifier: Apache-2.0
 *
 * The journal of `strata tune`, JSON lines. The first line describes the search; each other line is a trial that has reached
 * the epochs of a round. An incomplete last line, which a killed process may leave, is removed. */
#include <cjson/cJSON.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "strata/file.h"
#include "terminal.h"
#include "tune.h"

static const size_t MOST_BYTES = (size_t)1 << 30;

/* ---- the first line ---- */

static void add_words(cJSON *object, const char *key, const tuner *t) {
    cJSON *list = cJSON_AddArrayToObject(object, key);
    for (int i = 0; i < t->options.handed.n; i++) {
        const handed_option *given = &t->options.handed.items[i];
        cJSON_AddItemToArray(list, cJSON_CreateString(given->row->name));
        if (given->text) cJSON_AddItemToArray(list, cJSON_CreateString(given->text));
    }
}

static cJSON *make_header(const tuner *t) {
    cJSON *header = cJSON_CreateObject(), *space;
    cJSON_AddStringToObject(header, "event", "tune");
    cJSON_AddStringToObject(header, "model", t->name);
    cJSON_AddStringToObject(header, "search", t->halving ? "halving" : "random");
    cJSON_AddStringToObject(header, "objective", t->by_accuracy ? "accuracy" : "loss");
    cJSON_AddNumberToObject(header, "epochs", t->epochs);
    cJSON_AddNumberToObject(header, "seed", (double)t->seed);
    add_words(header, "options", t);
    space = cJSON_AddObjectToObject(header, "space");
    for (int i = 0; i < t->space.n; i++) cJSON_AddStringToObject(space, t->space.ranges[i].path, t->space.ranges[i].text);
    /* A random search may be continued with more trials, since its first trials then stay the same. */
    if (t->halving) cJSON_AddNumberToObject(header, "trials", t->n_trials);
    return header;
}

static int compare_headers(const tuner *t, const cJSON *found, const cJSON *wanted) {
    const cJSON *item;
    const char *path = t->options.log;
    const cJSON *event = cJSON_GetObjectItemCaseSensitive(found, "event");
    if (!cJSON_IsString(event) || strcmp(event->valuestring, "tune") != 0) {
        usage_error("--log %s: it is not the journal of strata tune; give the name of a new file", path);
        return EXIT_DATA;
    }
    cJSON_ArrayForEach(item, wanted) {
        const cJSON *before = cJSON_GetObjectItemCaseSensitive(found, item->string);
        if (cJSON_Compare(before, item, true)) continue;
        char *was = before ? cJSON_PrintUnformatted(before) : NULL, *is = cJSON_PrintUnformatted(item);
        usage_error(
            "--log %s: it is of another search: its %s was %.200s and is now %.200s; give the same options, or another file",
            path, item->string, was ? was : "not there", is ? is : "");
        cJSON_free(was);
        cJSON_free(is);
        return EXIT_DATA;
    }
    return EXIT_OK;
}

/* ---- trials ---- */

static double number_in(const cJSON *row, const char *key) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(row, key);
    return cJSON_IsNumber(item) ? item->valuedouble : NAN;
}

static void copy_text(const cJSON *row, const char *key, char *out, size_t room) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(row, key);
    snprintf(out, room, "%s", cJSON_IsString(item) ? item->valuestring : "");
}

static int whole_in(const cJSON *row, const char *key) {
    const double value = number_in(row, key);
    return value >= 0 && value <= 1e9 ? (int)value : 0;
}

/* Sets a trial to what the row says. If there are several rows of a trial, the last one is used. */
static void read_trial(tuner *t, const cJSON *row) {
    const int number = whole_in(row, "trial");
    if (number < 1 || number > t->n_trials) return;
    tune_trial *trial = &t->trials[number - 1];
    trial->epochs = whole_in(row, "epochs");
    trial->best_epoch = whole_in(row, "best_epoch");
    trial->val_loss = number_in(row, "val_loss");
    trial->val_accuracy = number_in(row, "val_accuracy");
    trial->seconds = number_in(row, "seconds");
    trial->ended = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(row, "ended"));
    trial->failure_code = whole_in(row, "exit_code");
    copy_text(row, "device", trial->device, sizeof trial->device);
    copy_text(row, "failed", trial->failure, sizeof trial->failure);
}

/* *out_whole: how many bytes the complete lines have. */
static int read_journal(tuner *t, const cJSON *wanted, size_t *out_whole) {
    unsigned char *bytes = NULL;
    size_t n = 0, at = 0;
    strata_error err = {0};
    int code = EXIT_OK;
    *out_whole = 0;
    if (access(t->options.log, F_OK)) return EXIT_OK;
    strata_status status = strata_file_read(t->options.log, MOST_BYTES, &bytes, &n, &err);
    if (status) return report(FAILING_DATA, status, &err);
    while (at < n && !code) {
        const unsigned char *newline = memchr(bytes + at, '\n', n - at);
        const size_t length = (newline ? (size_t)(newline - bytes) : n) - at;
        cJSON *row = cJSON_ParseWithLength((const char *)bytes + at, length);
        if (!at && (newline || *bytes != '{'))
            code = compare_headers(t, row, wanted);
        else if (newline)
            read_trial(t, row);
        cJSON_Delete(row);
        if (!newline) break;
        at += length + 1;
    }
    free(bytes);
    *out_whole = at;
    return code;
}

int tune_log_open(tuner *t) {
    const char *path = t->options.log;
    size_t whole = 0;
    if (!path) return EXIT_OK;
    t->log = (tune_log){.path = path, .file = fopen(path, "ae")};
    if (!t->log.file) return usage_error("--log %s: %s", path, strerror(errno)), EXIT_DATA;
    if (flock(fileno(t->log.file), LOCK_EX | LOCK_NB)) {
        usage_error("--log %s: another strata tune writes it just now", path);
        return EXIT_DATA;
    }
    cJSON *header = make_header(t);
    int code = read_journal(t, header, &whole);
    if (!code && ftruncate(fileno(t->log.file), (off_t)whole)) {
        usage_error("--log %s: %s", path, strerror(errno));
        code = EXIT_DATA;
    }
    char *text = !code && !whole ? cJSON_PrintUnformatted(header) : NULL;
    if (text) fprintf(t->log.file, "%s\n", text);
    fflush(t->log.file);
    cJSON_free(text);
    cJSON_Delete(header);
    return code;
}

static void print_text(FILE *file, const char *text) {
    cJSON *string = cJSON_CreateString(text);
    char *json = string ? cJSON_PrintUnformatted(string) : NULL;
    fputs(json ? json : "\"\"", file);
    cJSON_free(json);
    cJSON_Delete(string);
}

static void print_number(FILE *file, const char *key, double value) {
    if (isfinite(value))
        fprintf(file, ",\"%s\":%.9g", key, value);
    else
        fprintf(file, ",\"%s\":null", key);
}

void tune_print_trial(FILE *file, const tuner *t, const tune_trial *trial) {
    fprintf(file, "{\"event\":\"trial\",\"trial\":%d,\"epochs\":%d,\"settings\":{", trial->number, trial->epochs);
    for (int i = 0; i < t->space.n; i++) {
        char value[SETTING_BYTES], *end;
        tune_space_value(&t->space.ranges[i], t->seed, trial->number, value);
        const double number = strtod(value, &end);
        if (i) fputc(',', file);
        print_text(file, t->space.ranges[i].path);
        fputc(':', file);
        if (!*end && end != value && isfinite(number))
            fprintf(file, "%.9g", number);
        else
            print_text(file, value);
    }
    fputc('}', file);
    if (trial->best_epoch) {
        print_number(file, "val_loss", trial->val_loss);
        if (t->classifies) print_number(file, "val_accuracy", trial->val_accuracy);
        fprintf(file, ",\"best_epoch\":%d", trial->best_epoch);
    }
    if (trial->ended) fputs(",\"ended\":true", file);
    if (*trial->failure) {
        fprintf(file, ",\"exit_code\":%d,\"failed\":", trial->failure_code);
        print_text(file, trial->failure);
    }
    fputs(",\"device\":", file);
    print_text(file, trial->device);
    print_number(file, "seconds", trial->seconds);
    fputc('}', file);
}

/* The row is flushed, so that it is not lost if this process is killed. */
int tune_log_add(tuner *t, const tune_trial *trial) {
    char settings[1024], line[1400];
    if (t->log.file) {
        tune_print_trial(t->log.file, t, trial);
        fputc('\n', t->log.file);
        if (fflush(t->log.file) || ferror(t->log.file)) {
            usage_error("--log %s: %s", t->log.path, strerror(errno));
            return errno == ENOSPC ? EXIT_OUT_OF_DISK : EXIT_DATA;
        }
    }
    if (t->options.json) {
        tune_print_trial(stdout, t, trial);
        putchar('\n');
    } else {
        int n = snprintf(line, sizeof line, "trial %d", trial->number);
        if (*trial->failure)
            n += snprintf(line + n, sizeof line - (size_t)n, " failed: %.300s", trial->failure);
        else
            n += snprintf(line + n, sizeof line - (size_t)n, ": val_loss %.4g", trial->val_loss);
        if (!*trial->failure && t->classifies)
            n += snprintf(line + n, sizeof line - (size_t)n, " val_accuracy %.4f", trial->val_accuracy);
        tune_space_text(&t->space, t->seed, trial->number, settings, sizeof settings);
        printf("%s after %d epoch%s\n", line, trial->epochs, trial->epochs == 1 ? "" : "s");
        print_indented(6, settings);
    }
    fflush(stdout);
    return EXIT_OK;
}

int tune_log_close(tuner *t) {
    if (!t->log.file) return EXIT_OK;
    const bool failed = ferror(t->log.file) != 0;
    if (!fclose(t->log.file) && !failed) return EXIT_OK;
    usage_error("--log %s: %s", t->log.path, strerror(errno));
    return EXIT_DATA;
}
