/* SPDX-License-Identifier: Apache-2.0
 *
 * The output of a training while it runs: its line of progress, a line for each epoch, the log, checkpoints. Also handles
 * Ctrl-C. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "load_report.h"
#include "terminal.h"
#include "train.h"

/* ---- Ctrl-C and SIGTERM: the first ends the fit after its step, the second ends the process ---- */

static volatile sig_atomic_t interrupted, tells_of_interrupt, compiles;

/* While kernels are compiled no message is printed, since no step is running; the device calls is_interrupted and ends the
 * compilation. */
static void on_interrupt(int signal_number) {
    static const char text[] = "\nstrata: finishing this step; Ctrl-C once more ends at once\n";
    interrupted = signal_number;
    signal(signal_number, SIG_DFL);
    if (tells_of_interrupt && !compiles && write(STDERR_FILENO, text, sizeof text - 1) < 0) return;
}

bool is_interrupted(void *user) {
    (void)user;
    return interrupted != 0;
}

bool was_interrupted(void) {
    return interrupted != 0;
}

int interrupt_code(void) {
    return interrupted == SIGTERM ? 128 + SIGTERM : EXIT_INTERRUPTED;
}

void obey_interrupts(bool tells, bool terms) {
    tells_of_interrupt = tells;
    signal(SIGINT, on_interrupt);
    if (terms) signal(SIGTERM, on_interrupt);
}

void report_warning(const char *text, void *user) {
    reporter *r = user;
    progress_hide(r->line);
    fprintf(stderr, "strata: %s\n", text);
}

/* ---- the callbacks of fit ---- */

/* Drivers continue compiling when kernels run for the first time, so the first steps after a compilation are not counted for
 * the reported speed. */
void report_compile(const strata_compile_progress *compile, void *user) {
    reporter *r = user;
    enum { SETTLING_STEPS = 4 };
    r->settling = SETTLING_STEPS;
    compiles = !compile->tuning && compile->done < compile->total;
    progress_compile(r->line, compile);
}

static void print_epoch(const reporter *r, const strata_progress *p, double rate) {
    line whole;
    FILE *to = line_begin(&whole);
    fprintf(to, "epoch %d/%d  loss %.4g", p->epoch + 1, p->epochs, p->metrics.loss);
    if (r->classifies) fprintf(to, "  accuracy %.4f", p->metrics.accuracy);
    print_more(to, &p->metrics, "");
    if (p->validation.examples) fprintf(to, "  val_loss %.4g", p->validation.loss);
    if (p->validation.examples && r->classifies) fprintf(to, "  val_accuracy %.4f", p->validation.accuracy);
    print_more(to, &p->validation, "val_");
    fprintf(to, "  %.0f samples/s  %.2f s", rate, p->epoch_seconds);
    if (r->has_servers) load_print_epoch(to, r->strategy);
    line_end(&whole, 4);
    if (*p->stop && p->epoch + 1 < p->epochs)
        printf("val_loss has not fallen for %lld epochs: the training ends\n", (long long)r->patience);
    fflush(stdout);
}

/* The norm of all parameters; NaN: a parameter could not be read. */
static double weight_norm(strata_model *model) {
    double square = 0;
    for (int i = 0; i < strata_model_n_parameters(model); i++) {
        const strata_parameter parameter = strata_model_parameter(model, i);
        strata_array value = {0};
        if (parameter.state) continue;
        bool read = !strata_array_create(STRATA_DTYPE_F32, parameter.shape, &value, NULL);
        if (read) read = !strata_model_get_parameter(model, i, &value, NULL);
        for (int64_t k = 0; read && k < strata_shape_elements(parameter.shape); k++)
            square += (double)((float *)value.data)[k] * (double)((float *)value.data)[k];
        strata_array_finish(&value);
        if (!read) return NAN;
    }
    return sqrt(square);
}

static void report_epoch(reporter *r, const strata_progress *p) {
    const double counted = p->epoch_seconds - r->compiled;
    const double seconds = counted > 0 && r->waited < p->step ? counted : p->epoch_seconds;
    const double steps = seconds < p->epoch_seconds ? (double)(p->step - r->waited) / (double)p->step : 1;
    run_log_more more = {.weight_norm = NAN,
                         .samples_per_s = steps * (double)p->metrics.examples / seconds,
                         .servers = r->has_servers ? r->strategy : NULL};
    r->compiled = 0;
    r->waited = r->settling = 0;
    if (!r->chief) return;
    progress_hide(r->line);
    if (r->log.file) more.weight_norm = weight_norm(r->model);
    if (r->log.file) run_log_add(&r->log, p, &more);
    if (r->json) run_log_print_epoch(p, &more, r->classifies, now_seconds() - r->began);
    if (!r->quiet) print_epoch(r, p, more.samples_per_s);
}

static void report_step(reporter *r, const strata_progress *p) {
    r->step = p->step;
    r->epoch = p->epoch;
    if (r->settling) {
        r->compiled += p->epoch_seconds - r->reported;
        r->settling--;
        r->waited++;
    }
    if (r->log.file && p->total_step % r->log_every == 0)
        run_log_add(&r->log, p, &(run_log_more){NAN, NAN, r->has_servers ? r->strategy : NULL});
}

static bool is_for_board(const reporter *r, const strata_progress *p) {
    return p->epoch_end || p->total_step % r->log_every == 0;
}

void say_notices(reporter *r) {
    const int64_t n = strata_strategy_parameter_server_totals(r->strategy).notices;
    for (; r->notices < n; r->notices++) {
        const strata_parameter_server_notice notice = strata_strategy_parameter_server_notice(r->strategy, r->notices);
        progress_hide(r->line);
        if (*notice.text) fprintf(stderr, "strata: %s\n", notice.text);
    }
}

/* Writes the file of --checkpoint after an epoch, also after the last one, since the model of --save may not be written if the
 * disk is full. A checkpoint that cannot be written does not end the training, and the one before it stays. */
static strata_status save_checkpoint(reporter *r, const strata_progress *p, strata_error *err) {
    const char *path = r->chief ? r->checkpoint : NULL; /* NULL: the other processes only send their part */
    const bool last = p->epoch + 1 == p->epochs || *p->stop;
    strata_error own = {0};
    const strata_status status = last && r->has_evaluator && r->chief
                                     ? strata_model_save_last_checkpoint(r->model, p->epoch + 1, path, &own)
                                     : strata_model_save_checkpoint(r->model, p->epoch + 1, path, &own);
    if (status != STRATA_OUT_OF_DISK && status != STRATA_UNAVAILABLE)
        return status ? strata_fail(err, status, "%s", own.message) : STRATA_OK;
    char text[sizeof own.message + 100];
    snprintf(text, sizeof text, "a checkpoint was not written, and training goes on: %s", own.message);
    report_warning(text, r);
    return STRATA_OK;
}

strata_status report_progress(const strata_progress *given, void *user, strata_error *err) {
    reporter *r = user;
    strata_progress shown = *given;
    const strata_progress *p = &shown;
    metrics_in_units(r->preprocessing, &shown.metrics);
    metrics_in_units(r->preprocessing, &shown.validation);
    say_notices(r);
    if (p->epoch_end)
        report_epoch(r, p);
    else
        report_step(r, p);
    if (is_for_board(r, p)) STRATA_TRY(board_add(&r->board, p, r->model, err));
    progress_step(r->line, p);
    if (r->line && r->has_servers) {
        char text[LOAD_TEXT];
        load_text(r->strategy, text);
        progress_note(r->line, text);
    }
    r->reported = p->epoch_end ? 0 : p->epoch_seconds;
    if (p->epoch_end && r->checkpoint) STRATA_TRY(save_checkpoint(r, p, err));
    if (interrupted || (p->epoch_end && p->epoch + 1 == r->stop_after)) *p->stop_now = true;
    return STRATA_OK;
}
