/* SPDX-License-Identifier: Apache-2.0
 *
 * strata tune: trains a model with many settings and finds the best by their loss on validation data.
 *   random   every trial is trained to its end.
 *   halving  all trials are trained for a few epochs, the better third of them for three times as many, and so on (successive
 *            halving: Jamieson and Talwalkar 2016). It needs about half of the epochs to find settings that are as good. */
#include "tune.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "terminal.h"

static const option_row rows[] = {
    OPTION_GROUP("search"),
    {"trials", "N", "how many settings are tried (20)", OPTION_INT, offsetof(tune_options, trials), 1, 10000},
    {"search", "random|halving",
     "random: train every trial to its end; halving: train all for a few epochs, then the better third for more, and so on "
     "(halving)",
     OPTION_TEXT, offsetof(tune_options, search), 0, 0},
    {"set", "PATH=VALUES",
     "what is searched: optimizer.learning_rate=1e-4..1e-2, layers.0.units=32|64|128, batch=16|32, model=mlp|cnn; a single "
     "value is set in each trial; may be repeated (learning rate, batch, sizes of layers, dropout and weight decay around the "
     "model's values)",
     OPTION_LIST, offsetof(tune_options, set), 0, 0},
    {"objective", "loss|accuracy", "what is best: the smallest loss or the highest accuracy on validation data (loss)",
     OPTION_TEXT, offsetof(tune_options, objective), 0, 0},
    {"log", "FILE.jsonl",
     "write the finished trials to this file; the same command continues the search from it. The epochs of each trial are in "
     "FILE.jsonl.trials/ (strata plot shows them)",
     OPTION_OUTPUT, offsetof(tune_options, log), 0, 0},
    {"device", "WHICH", "run all trials on this device", OPTION_TEXT, offsetof(tune_options, device), 0, 0},
    {"devices", "A,B", "run trials in parallel, one on each of these devices (all accelerators, else the best CPU)",
     OPTION_TEXT, offsetof(tune_options, devices), 0, 0},
    {"json", NULL, "print a line of JSON for each trial and one at the end", OPTION_FLAG, offsetof(tune_options, json), 0, 0},
    {0}};

/* ---- reading the options ---- */

static int read_words(tuner *t) {
    const tune_options *o = &t->options;
    if (o->search && strcmp(o->search, "random") != 0 && strcmp(o->search, "halving") != 0)
        return usage_error("--search %s: it must be random or halving", o->search);
    if (o->objective && strcmp(o->objective, "loss") != 0 && strcmp(o->objective, "accuracy") != 0)
        return usage_error("--objective %s: it must be loss or accuracy", o->objective);
    if (!strcmp(t->name, "-"))
        return usage_error("tune reads the data in each trial, but standard input can be read only once; give a file");
    if (o->train.fit.validation && o->train.fit.validation_split > 0)
        return usage_error("give --validation or --validation-split, not both");
    if (o->device && o->devices) return usage_error("give --device or --devices, not both");
    t->halving = !o->search || !strcmp(o->search, "halving");
    t->by_accuracy = o->objective && !strcmp(o->objective, "accuracy");
    t->n_trials = o->trials ? (int)o->trials : 20;
    t->seed = (uint64_t)o->train.fit.seed;
    return tune_space_read(&o->set, &t->space);
}

/* Opens the model and the data once, so that an error in them is reported once and not by each trial, and adds the default
 * ranges. */
static int check_model(tuner *t) {
    training one = {.options = t->options.train, .name = t->name};
    one.options.data.seed = one.options.fit.seed;
    int code = open_what_is_trained(&one);
    if (!code) choose_epochs_and_batch(&one); /* before a sample's data are opened, since a sample has its own defaults */
    if (!code) describe_inputs(one.model, &one.train);
    if (!code && !one.train.dataset) code = open_data(one.sample, &one.options.data, "train", &one.train);
    if (!code) {
        t->epochs = (int)one.options.fit.epochs;
        t->batch = one.options.fit.batch;
        t->classifies = classifies(one.model);
        code =
            tune_space_add_defaults(one.model, &t->options.train, t->batch, strata_dataset_size(one.train.dataset), &t->space);
    }
    if (!code && t->by_accuracy && !t->classifies)
        code = usage_error("--objective accuracy: %s does not predict classes; use --objective loss", t->name);
    if (!code) code = tune_space_check(&t->space, &t->options.train, one.model);
    strata_model_destroy(one.model);
    close_data(&one.train);
    return code;
}

static int add_device(tuner *t, const char *id) {
    if (t->n_devices == MOST_DEVICES) return usage_error("--devices: there are more than %d", MOST_DEVICES);
    snprintf(t->devices[t->n_devices++], sizeof *t->devices, "%s", id);
    return EXIT_OK;
}

/* Opens each device of the list once, so that a wrong name is reported before the search begins. */
static int open_devices(tuner *t, char *list) {
    for (char *name; (name = strsep(&list, ","));) {
        device_flags flags = t->options.train.device;
        strata_device *device = NULL;
        flags.which = name;
        if (!*name) return usage_error("--devices: a name is empty; give a list, for example opencl:0,opencl:1");
        int code = open_device(&flags, &device);
        if (!code) code = add_device(t, strata_device_get_info(device)->id);
        strata_device_close(device);
        if (code) return code;
    }
    return EXIT_OK;
}

static int choose_devices(tuner *t) {
    const char *named = t->options.devices ? t->options.devices : t->options.device;
    char *list = named ? strdup(named) : NULL;
    int code = EXIT_OK;
    if (named) {
        code = list ? open_devices(t, list) : EXIT_DEVICE;
        free(list);
        return code;
    }
    opened_strategy opened = {0};
    code = open_strategy(&(strategy_flags){.name = "mirrored"}, &t->options.train.device, &opened);
    const int n = code ? 0 : strata_strategy_num_local_replicas(opened.strategy);
    for (int i = 0; i < n && !code; i++)
        code = add_device(t, strata_device_get_info(strata_strategy_device(opened.strategy, i))->id);
    close_strategy(&opened);
    return code;
}

static int make_folder(tuner *t) {
    const char *temporary = getenv("TMPDIR");
    const ssize_t n = readlink("/proc/self/exe", t->self, sizeof t->self - 1);
    if (n <= 0) return usage_error("tune: /proc/self/exe cannot be read: %s", strerror(errno)), EXIT_DATA;
    t->self[n] = 0;
    if (t->options.log) {
        if (snprintf(t->folder, sizeof t->folder, "%s.trials", t->options.log) >= (int)sizeof t->folder)
            return usage_error("--log: the name is longer than %zu bytes", sizeof t->folder);
        if (!mkdir(t->folder, 0777) || errno == EEXIST) return EXIT_OK;
    } else {
        t->temporary = true;
        if (snprintf(t->folder, sizeof t->folder, "%s/strata-tune-XXXXXX", temporary && *temporary ? temporary : "/tmp") <
                (int)sizeof t->folder &&
            mkdtemp(t->folder))
            return EXIT_OK;
    }
    usage_error("%s cannot be made: %s", t->folder, strerror(errno));
    *t->folder = 0;
    return EXIT_DATA;
}

/* ---- the search ---- */

/* In halving, one of FACTOR trials continues, for FACTOR times as many epochs. */
enum { FACTOR = 3 };

/* Sorts the trials, the best first. A simple method suffices, since a search has few trials. */
static void sort(const tuner *t, int *order, int n) {
    for (int i = 1; i < n; i++)
        for (int k = i; k && tune_better(t, &t->trials[order[k]], &t->trials[order[k - 1]]); k--) {
            const int swapped = order[k];
            order[k] = order[k - 1];
            order[k - 1] = swapped;
        }
}

static int search(tuner *t, int *order) {
    int n = t->n_trials, rounds = 1, code = EXIT_OK;
    for (int left = n / FACTOR, least = t->epochs / FACTOR; t->halving && left >= 1 && least >= 1; rounds++)
        left /= FACTOR, least /= FACTOR;
    for (int round = 0; round < rounds && !code && !t->interrupted; round++) {
        int epochs = t->epochs;
        for (int k = round + 1; k < rounds; k++) epochs = (epochs + FACTOR - 1) / FACTOR;
        if (round) n = n / FACTOR > 1 ? n / FACTOR : 1;
        code = tune_run(t, order, n, epochs);
        /* Only the trials of this round are sorted; the others remain after them. */
        sort(t, order, n);
    }
    return code;
}

/* ---- output ---- */

static void add_quoted(const char *word, void *user) {
    FILE *out = user;
    fputc(' ', out);
    if (*word && strspn(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=.,/:@%") == strlen(word)) {
        fputs(word, out);
        return;
    }
    fputc('\'', out);
    for (const char *c = word; *c; c++)
        if (*c == '\'')
            fputs("'\\''", out);
        else
            fputc(*c, out);
    fputc('\'', out);
}

/* The command that trains with a trial's settings, which the caller frees; NULL: no memory. */
static char *command_of(const tuner *t, const tune_trial *trial) {
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);
    if (!out) return NULL;
    fputs("strata", out);
    tune_arguments(t, trial->number, t->options.device || t->options.devices ? trial->device : NULL, add_quoted, out);
    if (!t->options.train.fit.restore_best) add_quoted("--restore-best", out);
    fputs(" --save best.strata", out);
    return fclose(out) ? (free(text), NULL) : text;
}

static void print_table(const tuner *t, const int *order) {
    enum { SHOWN = 10 };
    printf("\n");
    printf("  trial  epochs  val_loss%s\n", t->classifies ? "  val_accuracy" : "");
    for (int i = 0; i < t->n_trials && i < SHOWN; i++) {
        const tune_trial *trial = &t->trials[order[i]];
        char left[96], settings[2048];
        if (*trial->failure || !trial->best_epoch) break;
        int n = snprintf(left, sizeof left, "%5d  %6d  %8.4g", trial->number, trial->epochs, trial->val_loss);
        if (t->classifies) snprintf(left + n, sizeof left - (size_t)n, "  %12.4f", trial->val_accuracy);
        tune_space_text(&t->space, t->seed, trial->number, settings, sizeof settings);
        printf("  %s\n", left);
        print_indented(6, settings);
    }
    if (t->n_trials > SHOWN) printf("  ... of %d trials\n", t->n_trials);
}

static int show_result(const tuner *t, const int *order, double seconds) {
    const tune_trial *best = &t->trials[order[0]];
    char *command = command_of(t, best);
    int n_failed = 0;
    for (int i = 0; i < t->n_trials; i++) n_failed += *t->trials[i].failure != 0;
    if (!command) return usage_error("tune: no memory for the command"), EXIT_DEVICE;
    if (t->options.json) {
        printf("{\"event\":\"result\",\"search\":\"%s\",\"trials\":%d,\"failed\":%d,\"seconds\":%.3f,\"best\":",
               t->halving ? "halving" : "random", t->n_trials, n_failed, seconds);
        tune_print_trial(stdout, t, best);
        printf(",\"command\":");
        print_json_string(command);
        printf("}\n");
    } else {
        print_table(t, order);
        if (n_failed) printf("  %d failed\n", n_failed);
        printf("\nbest: trial %d, val_loss %.4g", best->number, best->val_loss);
        if (t->classifies) printf(", val_accuracy %.4f", best->val_accuracy);
        printf(", in epoch %d of %d\n", best->best_epoch, t->epochs);
        for (int i = 0; i < t->space.n; i++) {
            char value[SETTING_BYTES];
            tune_space_value(&t->space.ranges[i], t->seed, best->number, value);
            printf("  %-26s %s\n", t->space.ranges[i].path, value);
        }
        printf("\ntrain with them:\n  %s\n", command);
    }
    free(command);
    return EXIT_OK;
}

static void show_start(const tuner *t) {
    int n_known = 0;
    for (int i = 0; i < t->n_trials; i++) n_known += t->trials[i].epochs > 0 || *t->trials[i].failure;
    if (n_known)
        printf("continues from %s, with %d trial%s that ha%s been run\n", t->options.log, n_known, n_known == 1 ? "" : "s",
               n_known == 1 ? "s" : "ve");
    printf("%s: %d trials of %d epochs, %s, on ", t->name, t->n_trials, t->epochs, t->halving ? "halving" : "random");
    for (int d = 0; d < t->n_devices; d++) printf("%s%s", d ? ", " : "", t->devices[d]);
    printf("\n");
    for (int i = 0; i < t->space.n; i++) printf("  %-26s %s\n", t->space.ranges[i].path, t->space.ranges[i].text);
    if (!t->options.train.fit.validation && !(t->options.train.fit.validation_split > 0))
        printf("  a fifth of the training data is for validation (--validation-split 0.2)\n");
    fflush(stdout);
}

static int conclude(const tuner *t, const int *order, double seconds) {
    const tune_trial *best = &t->trials[order[0]];
    if (t->interrupted) {
        fprintf(stderr, "strata: interrupted; ");
        if (t->options.log)
            fprintf(stderr, "the same command continues from %s\n", t->options.log);
        else
            fprintf(stderr, "with --log FILE.jsonl the same command would continue the search\n");
        return EXIT_INTERRUPTED;
    }
    if (*best->failure) {
        usage_error("all trials failed; trial %d: %s", best->number, best->failure);
        return best->failure_code;
    }
    return show_result(t, order, seconds);
}

static int tune(tuner *t) {
    const double began = now_seconds();
    int code = read_words(t);
    if (!code) code = check_model(t);
    if (!code) code = choose_devices(t);
    if (code) return code;
    t->trials = calloc((size_t)t->n_trials, sizeof *t->trials);
    int *order = calloc((size_t)t->n_trials, sizeof *order);
    if (!t->trials || !order) {
        free(order);
        return usage_error("tune: no memory for %d trials", t->n_trials), EXIT_DEVICE;
    }
    for (int i = 0; i < t->n_trials; i++) t->trials[i].number = i + 1, order[i] = i;
    code = tune_log_open(t);
    if (!code) code = make_folder(t);
    if (!code && !t->options.json) show_start(t);
    if (!code) code = search(t, order);
    if (!code) code = conclude(t, order, now_seconds() - began);
    if (*t->folder && (t->temporary || !code)) tune_remove_checkpoints(t);
    const int closed = tune_log_close(t);
    free(order);
    return code ? code : closed;
}

static int run(const command *command, int argc, char **argv) {
    tuner *t = calloc(1, sizeof *t);
    int n_arguments = 0;
    if (!t) return usage_error("tune: no memory"), EXIT_DEVICE;
    int code = read_options(command, argc, argv, &t->options, &t->name, &n_arguments);
    char *const validation = code ? NULL : use_own_validation(t->name, &t->options.train);
    code = code < 0 ? EXIT_OK : code ? code : tune(t);
    free(validation);
    free(t->trials);
    free(t);
    return code;
}

/* The groups of train's options that tune accepts. tune itself has the options for where trials run and what they write. */
static const char *const taken[] = {"data", "model", "training", "devices", NULL};

const command command_tune = {
    .name = "tune",
    .arguments = "DATA|MODEL.json|NAME",
    .summary = "find the settings with which a model learns best",
    .details =
        "  strata tune flowers.csv        20 trials; prints the best one's command\n"
        "  strata tune mnist --trials 30 --log tune.jsonl --devices opencl:0,opencl:1\n"
        "  strata tune m.json --data DIR --set optimizer.learning_rate=1e-4..1e-2\n"
        "  strata tune photos/ --set 'model=cnn|resnet' --set 'batch=16|32|64'\n",
    .options = rows,
    .also = &(taken_options){.rows = train_rows,
                             .groups = taken,
                             .offset = offsetof(tune_options, train),
                             .handed = offsetof(tune_options, handed)},
    .least_arguments = 1,
    .most_arguments = 1,
    .files = "r",
    .run = run,
};
