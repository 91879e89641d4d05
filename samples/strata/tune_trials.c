/* SPDX-License-Identifier: Apache-2.0
 *
 * Trials of `strata tune`: each is a process of `strata train --json`, whose rows are appended to trial-N.jsonl and whose
 * messages go to trial-N.err, in the trials' folder. A trial continues from trial-N.checkpoint, so that a later round trains
 * only the remaining epochs, and a trial that was killed loses at most one epoch. */
#define _GNU_SOURCE
#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "strata/file.h"
#include "terminal.h"
#include "tune.h"

enum { PATH_BYTES = 4200, MOST_WORDS = 512 };
static const size_t MOST_LOG_BYTES = (size_t)1 << 30;

static void trial_file(const tuner *t, int number, const char *ending, char out[PATH_BYTES]) {
    snprintf(out, PATH_BYTES, "%s/trial-%d.%s", t->folder, number, ending);
}

/* ---- the command of a trial ---- */

void tune_arguments(const tuner *t, int trial, const char *device, void (*add)(const char *word, void *user), void *user) {
    const tune_options *o = &t->options;
    char word[2 * SETTING_BYTES];
    bool epochs = false;
    add("train", user);
    add(t->name, user);
    for (int i = 0; i < o->handed.n; i++) {
        const handed_option *given = &o->handed.items[i];
        epochs = epochs || !strcmp(given->row->name, "epochs");
        snprintf(word, sizeof word, "--%s", given->row->name);
        add(word, user);
        if (given->text) add(given->text, user);
    }
    for (int i = 0; i < t->space.n; i++) {
        const tune_range *range = &t->space.ranges[i];
        char value[SETTING_BYTES];
        const char *option = tune_option_of(range);
        tune_space_value(range, t->seed, trial, value);
        snprintf(word, sizeof word, "%s%s%s", strcmp(option, "--set") ? "" : range->path, strcmp(option, "--set") ? "" : "=",
                 value);
        add(option, user);
        add(word, user);
    }
    if (!epochs) {
        snprintf(word, sizeof word, "%d", t->epochs);
        add("--epochs", user);
        add(word, user);
    }
    if (!o->train.fit.validation && !(o->train.fit.validation_split > 0)) {
        add("--validation-split", user);
        add("0.2", user);
    }
    if (device) {
        add("--device", user);
        add(device, user);
    }
}

typedef struct words {
    char *items[MOST_WORDS + 1];
    int n;
    bool failed;
} words;

static void add_word(const char *word, void *user) {
    words *list = user;
    char *copy = list->n < MOST_WORDS ? strdup(word) : NULL;
    if (copy)
        list->items[list->n++] = copy;
    else
        list->failed = true;
}

static void free_words(words *list) {
    for (int i = 0; i < list->n; i++) free(list->items[i]);
}

/* ---- processes ---- */

typedef struct process {
    int pid; /* 0: no process is running */
    tune_trial *trial;
    double began;
} process;

/* Runs the trial's command in the child process, and does not return. */
static void exec_trial(const tuner *t, char **argv, int out, int err, pid_t parent) {
    sigset_t none;
    sigemptyset(&none);
    setpgid(0, 0); /* only the parent gets the terminal's Ctrl-C, and sends it to the trials once */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(128 + SIGKILL);
    sigprocmask(SIG_SETMASK, &none, NULL);
    const int in = open("/dev/null", O_RDONLY);
    if (in >= 0 && dup2(in, 0) >= 0 && dup2(out, 1) >= 0 && dup2(err, 2) >= 0) execv(t->self, argv);
    _exit(127);
}

static int start(const tuner *t, process *p, tune_trial *trial, const char *device, int epochs) {
    char file[PATH_BYTES], stop[32];
    words list = {.n = 0};
    int code = EXIT_OK, out, err;
    snprintf(stop, sizeof stop, "%d", epochs);
    add_word(t->self, &list);
    tune_arguments(t, trial->number, device, add_word, &list);
    trial_file(t, trial->number, "checkpoint", file);
    const char *const more[] = {"--checkpoint", file, "--stop-after", stop, "--json"};
    for (size_t i = 0; i < sizeof more / sizeof *more; i++) add_word(more[i], &list);
    trial_file(t, trial->number, "jsonl", file);
    out = open(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    trial_file(t, trial->number, "err", file);
    err = open(file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (list.failed) {
        code = usage_error("tune: a trial has more than %d arguments, or there is no memory for them", MOST_WORDS);
    } else if (out < 0 || err < 0) {
        usage_error("%s: %s", file, strerror(errno));
        code = EXIT_DATA;
    } else {
        const pid_t parent = getpid();
        fflush(NULL);
        *p = (process){.trial = trial, .began = now_seconds(), .pid = fork()};
        if (!p->pid) exec_trial(t, list.items, out, err, parent);
        if (p->pid < 0) {
            p->pid = 0;
            usage_error("tune: a trial cannot be started: %s", strerror(errno));
            code = EXIT_DATA;
        }
    }
    snprintf(trial->device, sizeof trial->device, "%s", device);
    if (out >= 0) close(out);
    if (err >= 0) close(err);
    free_words(&list);
    return code;
}

/* ---- results of a trial ---- */

static double number_in(const cJSON *row, const char *key) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(row, key);
    return cJSON_IsNumber(item) ? item->valuedouble : NAN;
}

/* Reads an epoch. The rows contain the epochs of all processes of the trial, also of one that was killed; an epoch may be there
 * twice, with the same numbers. */
static void read_row(tune_trial *trial, const cJSON *row) {
    const cJSON *event = cJSON_GetObjectItemCaseSensitive(row, "event");
    if (!cJSON_IsString(event) || strcmp(event->valuestring, "epoch") != 0) return;
    const double epoch = number_in(row, "epoch"), loss = number_in(row, "val_loss");
    if (!(epoch >= 1 && epoch <= 1e6)) return;
    if ((int)epoch > trial->epochs) trial->epochs = (int)epoch;
    if (isnan(loss) || (trial->best_epoch && !(loss < trial->val_loss))) return;
    trial->val_loss = loss;
    trial->val_accuracy = number_in(row, "val_accuracy");
    trial->best_epoch = (int)epoch;
}

static strata_status read_rows(const tuner *t, tune_trial *trial, strata_error *err) {
    char file[PATH_BYTES];
    unsigned char *bytes = NULL;
    size_t n = 0;
    trial_file(t, trial->number, "jsonl", file);
    STRATA_TRY(strata_file_read(file, MOST_LOG_BYTES, &bytes, &n, err));
    trial->epochs = trial->best_epoch = 0;
    for (size_t at = 0; at < n;) {
        const unsigned char *newline = memchr(bytes + at, '\n', n - at);
        if (!newline) break; /* an incomplete row of a process that was killed */
        cJSON *row = cJSON_ParseWithLength((const char *)bytes + at, (size_t)(newline - bytes) - at);
        read_row(trial, row);
        cJSON_Delete(row);
        at = (size_t)(newline - bytes) + 1;
    }
    free(bytes);
    return STRATA_OK;
}

/* Sets the trial's failure to the last line that the process wrote to stderr, without "strata: ". */
static void read_message(const tuner *t, tune_trial *trial, int status) {
    char file[PATH_BYTES];
    unsigned char *bytes = NULL;
    size_t n = 0, begins;
    trial_file(t, trial->number, "err", file);
    if (strata_file_read(file, MOST_LOG_BYTES, &bytes, &n, NULL)) n = 0;
    while (n && (bytes[n - 1] == '\n' || bytes[n - 1] == '\r')) n--;
    for (begins = n; begins && bytes[begins - 1] != '\n';) begins--;
    if (n - begins > 8 && !memcmp(bytes + begins, "strata: ", 8)) begins += 8;
    if (WIFSIGNALED(status))
        snprintf(trial->failure, sizeof trial->failure, "it was ended by signal %d (%s)", WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    else if (n > begins)
        snprintf(trial->failure, sizeof trial->failure, "%.*s", (int)(n - begins), bytes + begins);
    else
        snprintf(trial->failure, sizeof trial->failure, "it ended with exit code %d", WEXITSTATUS(status));
    free(bytes);
}

static int finish(tuner *t, process *p, int status, int epochs) {
    tune_trial *trial = p->trial;
    strata_error err = {0};
    p->pid = 0;
    trial->seconds += now_seconds() - p->began;
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_INTERNAL;
    if (t->interrupted || code == EXIT_INTERRUPTED) {
        t->interrupted = true;
        return EXIT_OK; /* the trial is not complete; the next tune continues it from its checkpoint */
    }
    if (code) {
        read_message(t, trial, status);
        trial->failure_code = code;
    } else {
        strata_status read = read_rows(t, trial, &err);
        if (read) return report(FAILING_DATA, read, &err);
        if (!trial->best_epoch) {
            snprintf(trial->failure, sizeof trial->failure, "no epoch had a loss on validation data that is a number");
            trial->failure_code = EXIT_DATA;
        }
        trial->ended = trial->epochs < epochs;
    }
    t->n_done++;
    return tune_log_add(t, trial);
}

/* ---- rounds ---- */

bool tune_better(const tuner *t, const tune_trial *a, const tune_trial *b) {
    if (!*a->failure != !*b->failure) return !*a->failure;
    const bool a_whole = a->ended || a->epochs >= t->epochs, b_whole = b->ended || b->epochs >= t->epochs;
    if (a_whole != b_whole) return a_whole;
    if (!a_whole && a->epochs != b->epochs) return a->epochs > b->epochs;
    if (t->by_accuracy && a->val_accuracy != b->val_accuracy) return a->val_accuracy > b->val_accuracy;
    if (a->val_loss != b->val_loss) return a->val_loss < b->val_loss;
    return a->number < b->number;
}

static bool is_done(const tune_trial *trial, int epochs) {
    return *trial->failure || trial->ended || trial->epochs >= epochs;
}

static void draw(const tuner *t, int n_running) {
    if (!terminal_draws(STDERR_FILENO)) return;
    char line[160];
    const int columns = terminal_columns(STDERR_FILENO);
    snprintf(line, sizeof line, "%d of %d trials are done, %d %s running", t->n_done, t->n_round, n_running,
             n_running == 1 ? "is" : "are");
    fprintf(stderr, "\r\033[K%.*s", columns > 1 ? columns - 1 : 1, line);
    fflush(stderr);
}

static void hide(void) {
    if (terminal_draws(STDERR_FILENO)) fputs("\r\033[K", stderr);
}

static void kill_all(const process *processes, int n, int signal_number) {
    for (int i = 0; i < n; i++)
        if (processes[i].pid > 0) kill(-processes[i].pid, signal_number);
}

/* Waits until a child ends or a signal arrives. The first Ctrl-C is sent to the trials, which end after their step; a second
 * one kills them. */
static void wait_for_child_or_signal(tuner *t, const process *processes, const sigset_t *watched) {
    const int got = sigwaitinfo(watched, NULL);
    if (got != SIGINT && got != SIGTERM) return;
    if (!t->interrupted) {
        hide();
        fputs("strata: the trials finish their step; Ctrl-C once more ends at once\n", stderr);
    }
    kill_all(processes, t->n_devices, t->interrupted ? SIGKILL : SIGINT);
    t->interrupted = true;
}

static int reap(tuner *t, process *p, int epochs) {
    int status = 0;
    siginfo_t info = {0};
    if (!p->pid || waitid(P_PID, (id_t)p->pid, &info, WEXITED | WNOHANG | WNOWAIT) || !info.si_pid) return EXIT_OK;
    kill(-p->pid, SIGKILL); /* ends processes that the trial started and that still run */
    waitpid(p->pid, &status, 0);
    hide();
    return finish(t, p, status, epochs);
}

int tune_run(tuner *t, const int *of, int n, int epochs) {
    process processes[MOST_DEVICES] = {{0}};
    int next[MOST_DEVICES], code = EXIT_OK, n_running;
    sigset_t watched, before;
    static const int signals[] = {SIGCHLD, SIGINT, SIGTERM};
    sigemptyset(&watched);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) sigaddset(&watched, signals[i]);
    sigprocmask(SIG_BLOCK, &watched, &before);
    t->n_round = n;
    t->n_done = 0;
    for (int i = 0; i < n; i++) t->n_done += is_done(&t->trials[of[i]], epochs);
    for (int d = 0; d < t->n_devices; d++) next[d] = d;
    do {
        n_running = 0;
        for (int d = 0; d < t->n_devices; d++) {
            /* The device of a trial depends only on its position, so that the same search gives the same results. */
            while (next[d] < n && is_done(&t->trials[of[next[d]]], epochs)) next[d] += t->n_devices;
            if (!processes[d].pid && next[d] < n && !code && !t->interrupted) {
                code = start(t, &processes[d], &t->trials[of[next[d]]], t->devices[d], epochs);
                next[d] += t->n_devices;
            }
            n_running += processes[d].pid > 0;
        }
        if (!n_running) break;
        draw(t, n_running);
        wait_for_child_or_signal(t, processes, &watched);
        for (int d = 0; d < t->n_devices; d++) {
            const int ended = reap(t, &processes[d], epochs);
            if (ended && !code) code = ended, kill_all(processes, t->n_devices, SIGKILL);
        }
    } while (true);
    hide();
    sigprocmask(SIG_SETMASK, &before, NULL);
    return code;
}

void tune_remove_checkpoints(const tuner *t) {
    static const char *const endings[] = {"checkpoint", "err", "jsonl"};
    for (int i = 0; i < t->n_trials; i++)
        for (size_t k = 0; k < (t->temporary ? 3 : 2); k++) {
            char file[PATH_BYTES];
            trial_file(t, i + 1, endings[k], file);
            if (k != 1 || t->temporary || !*t->trials[i].failure) unlink(file);
        }
    if (t->temporary) rmdir(t->folder);
}
