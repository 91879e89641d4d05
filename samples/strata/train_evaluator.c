/* SPDX-License-Identifier: Apache-2.0
 *
 * The evaluator task of a cluster: it evaluates each new --checkpoint while the other tasks train, prints the results, and
 * stores the best model if --restore-best is given. It ends when the training is over. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "terminal.h"
#include "train.h"

int check_evaluator(const training *t) {
    const train_options *o = &t->options;
    if (o->evaluator_wait_s > 0 && !t->opened.has_evaluator)
        return usage_error("--evaluator-wait is for a cluster with an evaluator task (strata launch --evaluator)");
    if (!t->opened.has_evaluator) return EXIT_OK;
    if (!o->checkpoint)
        return usage_error(
            "an evaluator task evaluates the checkpoints that the chief writes: give all tasks --checkpoint FILE");
    if (t->in_folder)
        return usage_error(
            "--checkpoint %s: an evaluator task evaluates a checkpoint that is one file; give --checkpoint FILE.strata",
            o->checkpoint);
    if (o->fit.patience)
        return usage_error(
            "--patience: with an evaluator task the chief does not evaluate between epochs, so it cannot end early; leave out "
            "--patience or the evaluator");
    if (o->fit.restore_best && !o->save)
        return usage_error(
            "--restore-best: an evaluator task writes the best model to the name of --save FILE, with .best before its ending; "
            "give --save");
    return EXIT_OK;
}

typedef struct beside {
    training *t;
    const char *data; /* "validation" or "test" */
    bool classifies;
    char best[4096]; /* the file of the best model; "": it is not stored */
} beside;

static void print_json(const beside *b, const strata_checkpoint_evaluation *e) {
    printf("{\"event\":\"evaluation\",\"epoch\":%d,\"step\":%lld,\"data\":\"%s\",\"examples\":%lld,\"loss\":", e->epochs,
           (long long)e->steps, b->data, (long long)e->metrics.examples);
    print_json_number(e->metrics.loss, "%.9g");
    if (b->classifies) printf(",\"accuracy\":%.6f", e->metrics.accuracy);
    print_more_json(b->t->model, &e->metrics);
    printf(",\"best\":%s,\"last\":%s,\"evaluation_s\":%.4f,\"seconds\":%.4f}\n", e->best ? "true" : "false",
           e->last ? "true" : "false", e->seconds, now_seconds() - b->t->began);
}

static void print_text(const beside *b, const strata_checkpoint_evaluation *e) {
    const char *prefix = strcmp(b->data, "test") != 0 ? "val_" : "test_";
    line whole;
    FILE *to = line_begin(&whole);
    fprintf(to, "evaluation of epoch %d", e->epochs);
    if (e->epoch_steps) fprintf(to, " and %lld steps", (long long)e->epoch_steps);
    fprintf(to, "  %sloss %.4g", prefix, e->metrics.loss);
    if (b->classifies) fprintf(to, "  %saccuracy %.4f", prefix, e->metrics.accuracy);
    print_more(to, &e->metrics, prefix);
    fprintf(to, "  %.2f s%s", e->seconds, e->best ? "  the best so far" : "");
    line_end(&whole, 4);
}

static strata_status on_evaluation(const strata_checkpoint_evaluation *e, void *user, strata_error *err) {
    beside *b = user;
    (b->t->options.reports.json ? print_json : print_text)(b, e);
    fflush(stdout);
    return e->best && *b->best ? strata_model_save(b->t->model, b->best, err) : STRATA_OK;
}

static bool stops(void *user) {
    (void)user;
    return was_interrupted();
}

static void print_end(const beside *b, const strata_watch_result *r) {
    const bool json = b->t->options.reports.json;
    if (json) {
        printf("{\"event\":\"evaluated\",\"evaluations\":%d,\"best_epoch\":%d,\"best_loss\":", r->n, r->best_epochs);
        print_json_number(r->best_loss, "%.9g");
        if (*b->best) printf(",\"best_model\":"), print_json_string(b->best);
        printf(",\"over\":%s}\n", r->over ? "true" : "false");
        return;
    }
    printf("evaluated %d checkpoint%s; the best is that of epoch %d, with a loss of %.4g", r->n, r->n == 1 ? "" : "s",
           r->best_epochs, r->best_loss);
    if (*b->best) printf("; saved %s", b->best);
    printf("\n");
}

int evaluate_beside(training *t) {
    const char *checkpoint = t->options.checkpoint;
    beside b = {.t = t, .data = t->validation.dataset ? "validation" : "test", .classifies = classifies(t->model)};
    strata_error err = {0};
    strata_watch_result result;
    const strata_watch_options opts = {.path = checkpoint,
                                       .batch = t->validation.dataset ? t->batch : 0, /* the batch that the chief would use */
                                       .wait_seconds = t->options.evaluator_wait_s,
                                       .epochs = (int)t->options.stop_after,
                                       .on_evaluation = on_evaluation,
                                       .stops = stops,
                                       .user = &b};
    if (t->options.fit.restore_best) name_beside(t->options.save, "best", b.best, sizeof b.best);
    obey_interrupts(isatty(STDERR_FILENO), true);
    if (!t->options.reports.json)
        printf("evaluates each new %s with %lld %s examples\n", checkpoint,
               (long long)strata_dataset_size(t->validation.dataset ? t->validation.dataset : t->test.dataset), b.data);
    fflush(stdout);
    const strata_status status = strata_model_watch_checkpoints(
        t->model, t->validation.dataset ? t->validation.dataset : t->test.dataset, &opts, &result, &err);
    if (status == STRATA_TIMEOUT) fprintf(stderr, "strata: --evaluator-wait says how long a checkpoint is waited for\n");
    if (status) return report(status == STRATA_DATA ? FAILING_DATA : FAILING_RUN, status, &err);
    if (result.end == STRATA_WATCH_STOPPED) return interrupt_code();
    if (result.end == STRATA_WATCH_REMOVED)
        fprintf(stderr, "strata: %s was removed after epoch %d, so the training is over\n", checkpoint, result.newest_epochs);
    print_end(&b, &result);
    if (result.over) unlink(checkpoint);
    return EXIT_OK;
}
