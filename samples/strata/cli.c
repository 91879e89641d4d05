/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads options by tables, through getopt_long, prints the help from the same tables, and prints messages and chooses their
 * exit codes. */
#include "cli.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "terminal.h"

enum { MAX_OPTIONS = 128 };

/* ---- messages ---- */

int usage_error(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs("strata: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    return EXIT_USAGE;
}

int report(failing about, strata_status status, const strata_error *err) {
    static const int by_subject[] = {[FAILING_USAGE] = EXIT_USAGE,
                                     [FAILING_DATA] = EXIT_DATA,
                                     [FAILING_DEVICE] = EXIT_DEVICE,
                                     [FAILING_RUN] = EXIT_DATA}; /* such as a folder that cannot be written */
    fprintf(stderr, "strata: %s\n", err->message);
    switch (status) {
        case STRATA_OK:
            return EXIT_OK;
        case STRATA_INVALID:
            return about == FAILING_DATA ? EXIT_DATA : EXIT_USAGE;
        case STRATA_DATA:
            return EXIT_DATA;
        case STRATA_UNAVAILABLE:
            return by_subject[about];
        case STRATA_UNSUPPORTED:
            return about == FAILING_DATA ? EXIT_DATA : EXIT_DEVICE;
        case STRATA_OUT_OF_MEMORY:
            return EXIT_DEVICE;
        case STRATA_OUT_OF_DISK:
            return EXIT_OUT_OF_DISK;
        case STRATA_DEVICE_LOST:
            return EXIT_DEVICE_LOST;
        case STRATA_PEER_LOST:
            return EXIT_PEER_LOST;
        case STRATA_TIMEOUT:
            return EXIT_TIMEOUT;
        case STRATA_INTERRUPTED:
            return EXIT_INTERRUPTED;
        case STRATA_INTERNAL:
            return EXIT_INTERNAL;
    }
    return EXIT_INTERNAL;
}

/* ---- options ---- */

/* The dashes of an option: one for a name of one letter. */
static const char *dashes(const option_row *row) {
    return row->name[1] ? "--" : "-";
}

static const option_row *own_row(const command *command, const char *name) {
    for (const option_row *row = command->options; row->name; row++)
        if (row->kind != OPTION_HEADING && !strcmp(row->name, name)) return row;
    return NULL;
}

static bool is_taken_group(const taken_options *also, const char *group) {
    for (const char *const *taken = also->groups; *taken; taken++)
        if (!strcmp(*taken, group)) return true;
    return false;
}

/* The first row, from `row` on, that the command accepts of another command's options. */
static const option_row *taken_row(const command *command, const option_row *row) {
    const taken_options *also = command->also;
    bool taken = false;
    for (const option_row *before = also->rows; before < row; before++)
        if (before->kind == OPTION_HEADING) taken = is_taken_group(also, before->help);
    for (; row->name; row++) {
        if (row->kind == OPTION_HEADING) taken = is_taken_group(also, row->help);
        if (taken && (row->kind == OPTION_HEADING || !own_row(command, row->name))) return row;
    }
    return NULL;
}

bool is_own_row(const command *command, const option_row *row) {
    for (const option_row *own = command->options; own->name; own++)
        if (own == row) return true;
    return false;
}

const option_row *next_row(const command *command, const option_row *row) {
    if (row && command->also && !is_own_row(command, row)) return taken_row(command, row + 1);
    row = row ? row + 1 : command->options;
    if (row->name) return row;
    return command->also ? taken_row(command, command->also->rows) : NULL;
}

void print_command_help(const command *command) {
    char usage[128];
    print_fitted(command->summary);
    snprintf(usage, sizeof usage, "\nusage: strata %s [OPTIONS] %s", command->name, command->arguments);
    print_fitted(usage);
    if (command->details) putchar('\n'), print_fitted(command->details);
    if (command->print_more) putchar('\n'), command->print_more();
    const option_row *row = next_row(command, NULL);
    if (!row || row->kind != OPTION_HEADING) printf("\noptions\n");
    for (; row; row = next_row(command, row)) {
        char left[64];
        if (row->kind == OPTION_HEADING) {
            printf("\n%s\n", row->help);
            continue;
        }
        snprintf(left, sizeof left, "%s%s%s%s", dashes(row), row->name, row->value ? " " : "", row->value ? row->value : "");
        print_columns(left, row->help);
    }
    print_columns("--help", "this text");
}

/* Names of options in other programs. */
static const struct {
    const char *command, *name, *instead;
} other_names[] = {{"train", "lr", "--learning-rate R"},
                   {"train", "optimizer", "--set optimizer.name=sgd"},
                   {"train", "loss", "--set loss=mse"},
                   {"train", "list", "strata help train, which lists the samples"},
                   {"train", "output", "--save FILE"},
                   {"train", "target", "--label COLUMN"},
                   {"predict", "data", "strata predict MODEL.strata FILE"},
                   {"predict", "output", "--to FILE"},
                   {"evaluate", "input", "strata evaluate MODEL.strata FILE"}};

static const char *other_name(const command *command, const char *name) {
    for (size_t i = 0; i < sizeof other_names / sizeof *other_names; i++)
        if (!strcmp(other_names[i].command, command->name) && !strcmp(other_names[i].name, name)) return other_names[i].instead;
    return NULL;
}

static int unknown_option(const command *command, const char *given) {
    const char *words[MAX_OPTIONS + 1] = {"help"};
    int n = 1;
    char name[64];
    const bool dashed = given[0] == '-' && given[1] == '-';
    if (!dashed && !access(given, F_OK))
        return usage_error("%s has no option %s. A file whose name begins with a dash is given as ./%s", command->name, given,
                           given);
    snprintf(name, sizeof name, "%.*s", (int)strcspn(given + 1 + dashed, "="), given + 1 + dashed);
    const char *instead = other_name(command, name);
    if (instead) return usage_error("%s has no option --%s; use %s", command->name, name, instead);
    for (const option_row *row = next_row(command, NULL); row && n < MAX_OPTIONS; row = next_row(command, row))
        if (row->kind != OPTION_HEADING) words[n++] = row->name;
    for (int i = 0; i < n && !dashed; i++)
        if (!strcmp(words[i], name))
            return usage_error("%s has no option %s. Did you mean --%s, with two dashes?", command->name, given, name);
    for (int i = 0; i < n && dashed; i++) /* the option exists, so only its value can be wrong */
        if (!strcmp(words[i], name))
            return usage_error("%s: --%s takes no value, but is given as %s", command->name, name, given);
    const char *near = dashed || name[1] ? strata_nearest_name(name, words, (size_t)n) : NULL;
    const char *before = dashed ? "--" : "-";
    if (near) return usage_error("%s has no option %s%s. Did you mean --%s?", command->name, before, name, near);
    return usage_error("%s has no option %s%s; strata help %s lists them", command->name, before, name, command->name);
}

/* The argument with the option that getopt_long does not know. getopt_long has not gone on to the next argument if the option
 * is the first letter of several, as the "x" of "-x.strata". */
static const char *unknown_argument(int argc, char **argv) {
    const bool is_letter = optopt && optind < argc && argv[optind][0] == '-' && argv[optind][1] == (char)optopt;
    return is_letter && argv[optind][2] ? argv[optind] : argv[optind - 1];
}

/* Loads "pjrt:FILE", and adds the bridge to STRATA_PLUGINS, which the library reads and whose parts are separated by colons. */
static int use_pjrt_plugin(const char *text) {
    const char *before = getenv("STRATA_PLUGINS");
    strata_error err = {0};
    if (!text[5]) return usage_error("--plugin %s: a PJRT plugin is named as pjrt:FILE, as pjrt:libtpu.so", text);
    strata_status status = strata_pjrt_open(text + 5, &err);
    strata_text list = {0};
    char *whole = NULL;
    strata_text_add(&list, "%s%s%s", before ? before : "", before && *before ? ":" : "", text);
    if (!status) status = strata_text_take(&list, &whole, NULL, &err);
    strata_text_finish(&list);
    if (!status && setenv("STRATA_PLUGINS", whole, 1))
        status = strata_fail(&err, STRATA_OUT_OF_MEMORY, "--plugin %s: no host memory", text);
    free(whole);
    return status ? report(FAILING_DEVICE, status, &err) : EXIT_OK;
}

static void print_message(const char *message) {
    fprintf(stderr, "plugin: %s\n", message);
}

static int set_option(const option_row *row, const char *text, void *options) {
    void *target = (char *)options + row->offset;
    char *end = NULL;
    errno = 0;
    if (row->kind == OPTION_FLAG) {
        *(bool *)target = true;
    } else if (row->kind == OPTION_PLUGIN) {
        strata_error err = {0};
        if (!strncmp(text, "pjrt:", 5)) return use_pjrt_plugin(text);
        strata_status status = strata_plugin_load(text, &err);
        if (status) return report(FAILING_DEVICE, status, &err);
    } else if (row->kind == OPTION_VERBOSE) {
        strata_plugin_set_log(print_message);
    } else if (row->kind == OPTION_DRIVER_SECONDS) {
        const double seconds = strtod(text, &end);
        if (!*text || *end || errno || !(seconds >= row->least && seconds <= row->most))
            return usage_error("--%s is \"%s\"; it must be a number from %g to %g", row->name, text, row->least, row->most);
        return set_driver_seconds(seconds);
    } else if (row->kind == OPTION_TEXT || row->kind == OPTION_WORDS || row->kind == OPTION_INPUT ||
               row->kind == OPTION_OUTPUT) {
        if (!*text && row->kind != OPTION_WORDS) return usage_error("%s%s needs a %s", dashes(row), row->name, row->value);
        *(const char **)target = text;
    } else if (row->kind == OPTION_LIST || row->kind == OPTION_INPUTS) {
        text_list *list = target;
        if (list->n == MOST_TEXTS) return usage_error("%s%s is given more than %d times", dashes(row), row->name, MOST_TEXTS);
        list->items[list->n++] = text;
    } else if (row->kind == OPTION_INT) {
        long long value = strtoll(text, &end, 10);
        const bool negative = row->least < 0; /* 0, which means the default in the library's structs, is no choice then */
        if (!*text || *end || errno || (double)value < row->least || (double)value > row->most || (negative && !value))
            return usage_error("%s%s is \"%s\"; it must be a whole number from %.0f to %.0f%s", dashes(row), row->name, text,
                               row->least, row->most, negative ? ", but not 0" : "");
        *(int64_t *)target = value;
    } else {
        double value = strtod(text, &end);
        if (!*text || *end || errno || !isfinite(value) || value < row->least || value > row->most)
            return usage_error("%s%s is \"%s\"; it must be a number from %g to %g", dashes(row), row->name, text, row->least,
                               row->most);
        *(double *)target = value;
    }
    return EXIT_OK;
}

/* Stores the value of an option. An option that is accepted for another command is also stored in the list for that command. */
static int set_row(const command *command, const option_row *row, const char *text, void *options) {
    if (is_own_row(command, row)) return set_option(row, text, options);
    handed_options *handed = (handed_options *)((char *)options + command->also->handed);
    if (handed->n == (int)(sizeof handed->items / sizeof *handed->items))
        return usage_error("%s: more than %d options are given", command->name, handed->n);
    handed->items[handed->n++] = (handed_option){row, row->value ? text : NULL};
    return set_option(row, text, (char *)options + command->also->offset);
}

int read_options(const command *command, int argc, char **argv, void *options, const char **arguments, int *n_arguments) {
    struct option table[MAX_OPTIONS + 2] = {{"help", no_argument, NULL, 'h'}};
    char letters[2 * MAX_OPTIONS + 4] = "-:h"; /* "-" at the beginning: getopt returns arguments in order, between options */
    const option_row *rows[MAX_OPTIONS + 2] = {NULL}; /* the row of each element of the array for getopt */
    const char *plugins[MOST_TEXTS];                  /* loaded at the end, when the options that are about drivers are known */
    const option_row *plugin_row = NULL;
    int n = 1, n_letters = 3, found = 0, index = 0, n_plugins = 0;
    for (const option_row *row = next_row(command, NULL); row && n <= MAX_OPTIONS; row = next_row(command, row)) {
        if (row->kind == OPTION_HEADING) continue;
        rows[n] = row;
        table[n] = (struct option){row->name, row->value ? required_argument : no_argument, NULL, 'o'};
        if (!row->name[1]) n_letters += snprintf(letters + n_letters, 3, row->value ? "%c:" : "%c", *row->name);
        n++;
    }
    opterr = 0;
    *n_arguments = 0;
    while ((found = getopt_long(argc, argv, letters, table, &index)) != -1) {
        if (found == 'h') {
            print_command_help(command);
            return -1;
        }
        if (found == ':') return usage_error("%s needs a value", argv[optind - 1]);
        if (found == '?') return unknown_option(command, unknown_argument(argc, argv));
        for (int i = 1; i < n && found != 'o' && found != 1; i++)
            if (!table[i].name[1] && *table[i].name == found) index = i, found = 'o';
        if (found == 'o' && rows[index]->kind == OPTION_PLUGIN) {
            if (n_plugins == MOST_TEXTS) return usage_error("--plugin is given more than %d times", MOST_TEXTS);
            plugin_row = rows[index];
            plugins[n_plugins++] = optarg;
        } else if (found == 'o') {
            int code = set_row(command, rows[index], optarg, options);
            if (code) return code;
        } else if (*n_arguments < command->most_arguments) {
            arguments[(*n_arguments)++] = optarg;
        } else {
            return usage_error("%s: \"%s\" is one argument too many; strata help %s", command->name, optarg, command->name);
        }
    }
    for (; optind < argc; optind++) { /* the arguments after "--" */
        if (*n_arguments == command->most_arguments)
            return usage_error("%s: \"%s\" is one argument too many; strata help %s", command->name, argv[optind],
                               command->name);
        arguments[(*n_arguments)++] = argv[optind];
    }
    for (int i = 0; i < n_plugins; i++) {
        const int code = set_row(command, plugin_row, plugins[i], options);
        if (code) return code;
    }
    if (*n_arguments < command->least_arguments)
        return usage_error("%s needs %s; strata help %s", command->name, command->arguments, command->name);
    return check_outputs(command, options, arguments, *n_arguments);
}

/* ---- functions of several commands ---- */

static void print_warning(const char *message, void *user) {
    (void)user;
    fprintf(stderr, "%sstrata: warning: %s\n", terminal_draws(STDERR_FILENO) ? "\r\033[K" : "", message);
}

/* Prints on stderr, like tf.print, so that other programs can read the results on stdout. */
static void print_printed(const strata_printed *printed, void *user) {
    (void)user;
    fprintf(stderr, "%s%s\n", terminal_draws(STDERR_FILENO) ? "\r\033[K" : "", printed->text);
}

int read_device_flags(const device_flags *flags, strata_device_options *out_options) {
    *out_options = (strata_device_options){.fast = flags->fast,
                                           .direct = flags->direct,
                                           .no_tune = flags->no_tune,
                                           .no_cache = flags->no_cache,
                                           .fallback_to_host = flags->allow_fallback != NULL,
                                           .trust = flags->trust,
                                           .compile_seconds = flags->compile_seconds,
                                           .stall_seconds = flags->stall_seconds,
                                           .on_compile = flags->on_compile,
                                           .is_interrupted = flags->is_interrupted,
                                           .on_warning = print_warning,
                                           .on_print = print_printed,
                                           .user = flags->user};
    if (!flags->allow_fallback || !strcmp(flags->allow_fallback, "host")) return EXIT_OK;
    return usage_error("--allow-fallback %s: it must be host; no other device can run the nodes", flags->allow_fallback);
}

/* Reports the compilation of kernels, for commands without a line of progress. */
static void print_compiling(const strata_compile_progress *p, void *user) {
    (void)user;
    if (!terminal_draws(STDERR_FILENO)) return;
    fprintf(stderr, "\r\033[K");
    if (p->done < p->total)
        fprintf(stderr, "%s %d of %d kernels for %s, once", p->tuning ? "timing" : "compiling", p->done, p->total, p->device);
    fflush(stderr);
}

int open_device(const device_flags *flags, strata_device **out_device) {
    strata_error err = {0};
    strata_device_options opts;
    const int code = read_device_flags(flags, &opts);
    if (code) return code;
    if (!opts.on_compile) opts.on_compile = print_compiling;
    strata_status status = strata_device_open(flags->which, &opts, out_device, &err);
    return status ? report(FAILING_DEVICE, status, &err) : EXIT_OK;
}

int64_t peak_rss_mib(void) {
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) ? 0 : usage.ru_maxrss / 1024;
}

void print_json_string(const char *text) {
    putchar('"');
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        if (*c == '"' || *c == '\\')
            printf("\\%c", *c);
        else if (*c < 0x20)
            printf("\\u%04x", *c);
        else
            putchar(*c);
    }
    putchar('"');
}

void print_json_number(double value, const char *format) {
    if (isfinite(value))
        printf(format, value);
    else
        printf("null");
}

void print_json_shape(strata_shape shape) {
    putchar('[');
    for (int i = 0; i < shape.rank; i++) printf("%s%lld", i ? "," : "", (long long)shape.dims[i]);
    putchar(']');
}

readable_number readable(double value) {
    static const char *const units[] = {"", " k", " M", " G", " T", " P"};
    readable_number number;
    size_t unit = 0;
    while (value >= 999.5 && unit + 1 < sizeof units / sizeof *units) value /= 1000, unit++;
    snprintf(number.text, sizeof number.text, "%.*f%s",
             !unit || value >= 99.95 ? 0
             : value >= 9.995        ? 1
                                     : 2,
             value, units[unit]);
    return number;
}

bool ends_with(const char *text, const char *end) {
    size_t n = strlen(text), m = strlen(end);
    return n >= m && !strcmp(text + n - m, end);
}

double now_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

void condition_init(pthread_cond_t *condition) {
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

struct timespec time_after(double seconds) {
    const double at = now_seconds() + (seconds < 1e8 ? seconds : 1e8);
    const time_t whole = (time_t)at;
    return (struct timespec){whole, (long)((at - (double)whole) * 1e9)};
}

void print_more(FILE *to, const strata_metrics *metrics, const char *prefix) {
    for (int i = 0; i < metrics->n; i++) fprintf(to, "  %s%s %.4f", prefix, metrics->more[i].name, metrics->more[i].value);
}

static void print_matrix(const strata_array *counts) {
    int64_t classes = counts->shape.dims[0];
    for (int64_t i = 0; i < classes * classes; i++)
        printf("%s%lld%s",
               i % classes ? ","
               : i         ? ",["
                           : "[[",
               (long long)((int64_t *)counts->data)[i], i % classes == classes - 1 ? "]" : "");
    printf("]");
}

void print_confusion(const strata_model *model) {
    strata_array counts;
    if (strata_model_confusion_matrix(model, &counts, NULL)) return;
    const int64_t classes = counts.shape.dims[0];
    printf("confusion matrix, a row for each label and a column for each answer\n");
    for (int64_t i = 0; i < classes * classes; i++)
        printf("%7lld%s", (long long)((int64_t *)counts.data)[i], i % classes == classes - 1 ? "\n" : "");
    strata_array_finish(&counts);
}

void print_more_json(const strata_model *model, const strata_metrics *metrics) {
    strata_array counts;
    bool matrix = !strata_model_confusion_matrix(model, &counts, NULL);
    if (!metrics->n && !matrix) return;
    printf(",\"metrics\":{");
    for (int i = 0; i < metrics->n; i++) {
        printf("%s", i ? "," : "");
        print_json_string(metrics->more[i].name);
        putchar(':');
        print_json_number(metrics->more[i].value, "%.9g");
    }
    if (matrix) {
        printf("%s\"confusion_matrix\":", metrics->n ? "," : "");
        print_matrix(&counts);
        strata_array_finish(&counts);
    }
    printf("}");
}
