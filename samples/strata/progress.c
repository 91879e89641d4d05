/* SPDX-License-Identifier: Apache-2.0 */
#include "progress.h"

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli.h"
#include "terminal.h"

enum { MOST_FIELDS = 8, FIELD = 64, LINE = 4096, LEAST_BAR = 8, MOST_COLUMNS = 500 };
/* Drivers continue compiling when kernels run for the first time. So many steps after a compilation are therefore not counted
 * for the speed. */
enum { SETTLING_STEPS = 4 };
static const double SETTLING_SECONDS = 0.3;
static const double FORGET_SECONDS = 20; /* the steps of the displayed rate have half of their weight after this time */

typedef enum what_is_done { NOTHING, COMPILING, TRAINING, SAYING } what_is_done;

struct progress {
    progress_options opts;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed; /* signalled only at the end */
    bool ends, colours, utf8;
    /* What the line shows. */
    what_is_done what;
    const char *text;
    char device[32];
    bool tuning;
    int done, total;
    strata_progress step;
    char note[FIELD];
    /* When the compilation of kernels began, and how many more steps may be slow because of it; 0: none. */
    double compiles_since;
    int settling;
    /* When a step was reported last (0: none was); the number of steps from which the rate is computed, and their seconds. */
    double stepped, steps, seconds;
    /* The seconds from an epoch's last step to its end. */
    double between;
    /* The width of the line that is on the terminal; 0: there is none. */
    int drawn;
};

/* ---- a line ---- */

/* A text in the line, besides the bar. If the terminal is too narrow for all fields, those with the highest rank are left out
 * first. */
typedef struct field {
    char text[FIELD];
    int rank;
} field;

static void STRATA_PRINTF(4, 5) add(field *fields, int *n, int rank, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(fields[*n].text, FIELD, format, arguments);
    va_end(arguments);
    fields[(*n)++].rank = rank;
}

/* The width of all fields, with a space between each two. */
static int width_of(const field *fields, int n) {
    int width = 0;
    for (int i = 0; i < n; i++) width += (int)strlen(fields[i].text) + 1;
    return width;
}

static void drop_one(field *fields, int *n) {
    int worst = 0;
    for (int i = 1; i < *n; i++)
        if (fields[i].rank > fields[worst].rank) worst = i;
    memmove(fields + worst, fields + worst + 1, (size_t)(*n - worst - 1) * sizeof *fields);
    --*n;
}

static void append(char *line, const char *text) {
    const size_t used = strlen(line);
    snprintf(line + used, LINE - used, "%s", text);
}

static void append_bar(const progress *p, char *line, int columns, double share) {
    const int full = (int)(share * columns);
    if (p->colours) append(line, "\033[32m");
    for (int i = 0; i < columns; i++) {
        if (i == full && p->colours) append(line, "\033[39;2m");
        append(line, p->utf8 ? (i < full || p->colours ? "\u2501" : "\u2500") : i < full ? "=" : i == full ? ">" : "-");
    }
    if (p->colours) append(line, "\033[0m");
}

/* Writes a time as "12 s", "3:05" or "1:02:03". */
static void duration(double seconds, char text[32]) {
    const long long s = seconds < 1e9 ? (long long)ceil(seconds) : 1000000000;
    if (s < 60)
        snprintf(text, 32, "%lld s", s);
    else if (s < 3600)
        snprintf(text, 32, "%lld:%02lld", s / 60, s % 60);
    else
        snprintf(text, 32, "%lld:%02lld:%02lld", s / 3600, s / 60 % 60, s % 60);
}

/* Returns the width of the written line. */
static int write_training(const progress *p, char *line, int columns) {
    const strata_progress *s = &p->step;
    const double rate = p->seconds > 0 ? p->steps / p->seconds : 0;
    field fields[MOST_FIELDS];
    int n = 0;
    add(fields, &n, 0, "epoch %d/%d", s->epoch + 1, s->epochs);
    if (s->steps)
        add(fields, &n, 4, "step %lld/%lld", (long long)s->step, (long long)s->steps);
    else
        add(fields, &n, 4, "step %lld", (long long)s->step);
    if (rate > 0) add(fields, &n, 5, "%s samples/s", readable(rate * (double)p->opts.batch).text);
    add(fields, &n, 1, "loss %.4g", s->loss);
    if (p->opts.classifies && s->metrics.examples) add(fields, &n, 3, "accuracy %.4f", s->metrics.accuracy);
    if (rate > 0 && s->steps) {
        char left[32];
        const int epochs = s->epochs - s->epoch - 1;
        duration(((double)(s->steps - s->step) + (double)s->steps * epochs) / rate + p->between * epochs, left);
        add(fields, &n, 2, "%s left", left);
    }
    if (*p->note) add(fields, &n, 6, "%s", p->note);
    const int bar_least = s->steps ? LEAST_BAR + 1 : 0;
    while (n > 1 && width_of(fields, n) - 1 + bar_least > columns) drop_one(fields, &n);
    int bar = s->steps ? columns - width_of(fields, n) : 0;
    if (bar > 0 && bar < LEAST_BAR) bar = 0; /* the bar is left out if only the first field fits */
    for (int i = 0; i < n; i++) {
        if (i) append(line, " ");
        append(line, fields[i].text);
        if (i > 0 || bar <= 0) continue;
        append(line, " ");
        append_bar(p, line, bar, s->steps ? (double)s->step / (double)s->steps : 0);
    }
    return width_of(fields, n) - 1 + (bar > 0 ? bar + 1 : 0);
}

static int write_line(const progress *p, char *line, int columns) {
    char text[FIELD + 80], since[32];
    const bool compiles = p->what == TRAINING && p->settling && now_seconds() - p->stepped > SETTLING_SECONDS;
    if (p->what == TRAINING && !compiles) return write_training(p, line, columns);
    if (p->what == COMPILING || compiles) {
        duration(floor(now_seconds() - p->compiles_since), since);
        const char *verb = !p->tuning ? "compiling" : columns > 60 ? "compiling and timing" : "timing";
        snprintf(text, sizeof text, "%s %d of %d kernels for %s, once, %s", verb, p->done, p->total, p->device, since);
    } else {
        snprintf(text, sizeof text, "%s", p->what == SAYING ? p->text : "");
    }
    snprintf(line, LINE, "%.*s", columns, text);
    return (int)strlen(line);
}

/* Erases the line. If the terminal has become narrower, the line has become several rows. */
static void erase(progress *p, int columns, char *out) {
    if (!p->drawn) return;
    if (p->drawn > columns) snprintf(out, 32, "\033[%dA", (p->drawn - 1) / columns);
    append(out, "\r\033[J");
    p->drawn = 0;
}

static void draw(progress *p) {
    char line[LINE] = "", all[LINE + 64] = "";
    int columns = terminal_columns(STDERR_FILENO);
    if (columns > MOST_COLUMNS) columns = MOST_COLUMNS;
    erase(p, columns, all);
    if (p->what != NOTHING)
        p->drawn = write_line(p, line, columns - 1); /* a character in the last column would begin a new row */
    append(all, line);
    if (*all && write(STDERR_FILENO, all, strlen(all)) < 0) p->what = NOTHING;
}

/* ---- the thread ---- */

static void *run(void *data) {
    progress *p = data;
    pthread_mutex_lock(&p->mutex);
    while (!p->ends) {
        if (p->what != NOTHING) draw(p);
        const struct timespec until = time_after(0.1);
        pthread_cond_timedwait(&p->changed, &p->mutex, &until);
    }
    pthread_mutex_unlock(&p->mutex);
    return NULL;
}

progress *progress_begin(const progress_options *opts) {
    progress *p = terminal_draws(STDERR_FILENO) ? calloc(1, sizeof *p) : NULL;
    if (!p) return NULL;
    p->opts = *opts;
    p->colours = terminal_has_colours(STDERR_FILENO);
    p->utf8 = locale_is_utf8();
    pthread_mutex_init(&p->mutex, NULL);
    condition_init(&p->changed);
    /* The thread blocks all signals, so that the thread of the training receives them. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int failed = pthread_create(&p->thread, NULL, run, p);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!failed) return p;
    free(p);
    return NULL;
}

void progress_end(progress *p) {
    if (!p) return;
    progress_hide(p);
    pthread_mutex_lock(&p->mutex);
    p->ends = true;
    pthread_cond_signal(&p->changed);
    pthread_mutex_unlock(&p->mutex);
    pthread_join(p->thread, NULL);
    pthread_mutex_destroy(&p->mutex);
    pthread_cond_destroy(&p->changed);
    free(p);
}

void progress_hide(progress *p) {
    if (!p) return;
    pthread_mutex_lock(&p->mutex);
    p->what = NOTHING;
    draw(p);
    pthread_mutex_unlock(&p->mutex);
}

void progress_say(progress *p, const char *what) {
    if (!p) return;
    pthread_mutex_lock(&p->mutex);
    p->what = SAYING;
    p->text = what;
    pthread_mutex_unlock(&p->mutex);
}

void progress_note(progress *p, const char *text) {
    if (!p) return;
    pthread_mutex_lock(&p->mutex);
    snprintf(p->note, sizeof p->note, "%s", text);
    pthread_mutex_unlock(&p->mutex);
}

void progress_compile(progress *p, const strata_compile_progress *compile) {
    if (!p) return;
    pthread_mutex_lock(&p->mutex);
    if (!p->settling) p->compiles_since = now_seconds();
    p->settling = SETTLING_STEPS;
    p->what = COMPILING;
    snprintf(p->device, sizeof p->device, "%s", compile->device);
    p->tuning = compile->tuning;
    p->done = compile->done;
    p->total = compile->total;
    pthread_mutex_unlock(&p->mutex);
}

void progress_step(progress *p, const strata_progress *s) {
    if (!p) return;
    const double now = now_seconds();
    pthread_mutex_lock(&p->mutex);
    p->what = TRAINING;
    p->step = *s;
    if (p->settling) {
        p->settling = s->epoch_end ? 0 : p->settling - 1;
    } else if (s->epoch_end) {
        p->between = now - p->stepped;
    } else if (p->stepped > 0) {
        p->seconds += now - p->stepped;
        p->steps++;
        if (p->seconds > FORGET_SECONDS) p->seconds /= 2, p->steps /= 2;
    }
    p->stepped = now;
    pthread_mutex_unlock(&p->mutex);
}
