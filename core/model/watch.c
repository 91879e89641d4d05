/* SPDX-License-Identifier: Apache-2.0
 *
 * Evaluating the checkpoints of a training that runs in another process. The file's status is read a few times a second. Each
 * checkpoint is a new file with the same name, so its inode, time or size differ from those of the one before. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>

#include "core/base/clock.h"
#include "core/base/locale.h"
#include "core/model/checkpoint.h"
#include "core/model/data.h"

static const double DEFAULT_WAIT_SECONDS = 3600;
/* For this long, reading a file that cannot be read is tried again, since it may just be copied. */
static const double RETRY_SECONDS = 2;
/* After this time, a file that does not exist counts as removed, and not as being replaced in two steps. */
static const double GONE_SECONDS = 3;

/* Identifies the file at the path. */
typedef struct stamp {
    dev_t device;
    ino_t inode;
    off_t size;
    struct timespec changed;
} stamp;

typedef struct watch {
    strata_model *model;
    const strata_dataset *dataset;
    const strata_watch_options *opts;
    strata_watch_result *result;
    double wait_seconds;
    /* `seen`: the file that was evaluated last. `unread`: the file that could not be read. */
    stamp seen, unread;
    /* In seconds. since: when the last file was evaluated, or when the watch began. gone: when the file was first found
     * to be missing (0: it exists). tried: when reading the unreadable file was first tried. */
    double since, gone, tried;
    /* The position of the checkpoint that was evaluated last. */
    int epochs;
    int64_t epoch_steps, steps;
} watch;

static bool same(const stamp *a, const stamp *b) {
    return a->device == b->device && a->inode == b->inode && a->size == b->size && a->changed.tv_sec == b->changed.tv_sec &&
           a->changed.tv_nsec == b->changed.tv_nsec;
}

/* Reads the file's status. *out_there: whether the file exists. */
static strata_status read_stamp(const watch *w, stamp *out_stamp, bool *out_there, strata_error *err) {
    struct stat info;
    *out_there = !stat(w->opts->path, &info);
    if (!*out_there && errno != ENOENT)
        return strata_fail(err, STRATA_UNAVAILABLE, "watch: %s cannot be looked at: %s", w->opts->path,
                           strata_errno_text(errno));
    if (*out_there) *out_stamp = (stamp){info.st_dev, info.st_ino, info.st_size, info.st_mtim};
    return STRATA_OK;
}

static strata_status evaluate(watch *w, int epochs, bool over, strata_error *err) {
    strata_checkpoint_evaluation own = {
        .epochs = epochs, .epoch_steps = w->model->position.steps, .steps = w->model->optimizer_steps, .last = over};
    const double began = strata_clock_seconds();
    STRATA_TRY(strata_model_evaluate(w->model, w->dataset, w->opts->batch, &own.metrics, err));
    own.seconds = strata_clock_seconds() - began;
    own.best = own.metrics.loss < w->result->best_loss; /* false for NaN */
    if (own.best) {
        w->result->best_epochs = epochs;
        w->result->best_loss = own.metrics.loss;
    }
    w->result->n++;
    w->result->newest_epochs = w->epochs = epochs;
    w->epoch_steps = own.epoch_steps;
    w->steps = own.steps;
    return w->opts->on_evaluation ? w->opts->on_evaluation(&own, w->opts->user, err) : STRATA_OK;
}

/* Evaluates a file that was not seen before. *out_ends: it is the last checkpoint. */
static strata_status evaluate_file(watch *w, const stamp *found, bool *out_ends, strata_error *err) {
    int epochs = 0;
    bool over = false;
    strata_error why = {0};
    const strata_status status = strata_checkpoint_load(w->model, w->opts->path, &epochs, &over, &why);
    if (status && (!same(found, &w->unread) || strata_clock_seconds() - w->tried < RETRY_SECONDS)) {
        if (!same(found, &w->unread)) w->tried = strata_clock_seconds();
        w->unread = *found;
        return STRATA_OK;
    }
    if (status) return strata_fail(err, status, "%s", why.message);
    w->seen = *found;
    if (!epochs && !w->model->position.steps) return STRATA_OK; /* the file was removed in the meantime */
    /* A checkpoint is evaluated only once, also if it was written again, or if the next one had already replaced the file when
     * it was read. */
    const bool known = w->result->n && epochs == w->epochs && w->model->position.steps == w->epoch_steps &&
                       w->model->optimizer_steps == w->steps;
    if (!known) STRATA_TRY(evaluate(w, epochs, over, err));
    w->since = strata_clock_seconds();
    w->result->over = over;
    *out_ends = over || (w->opts->epochs && epochs >= w->opts->epochs);
    return STRATA_OK;
}

static strata_status wait_is_over(const watch *w, strata_error *err) {
    if (!w->result->n)
        return strata_fail(err, STRATA_TIMEOUT,
                           "watch: no checkpoint has come to %s in %.4g s: the training that writes it did not begin, has "
                           "ended, or its first epoch takes longer",
                           w->opts->path, w->wait_seconds);
    return strata_fail(err, STRATA_TIMEOUT,
                       "watch: %s is still the checkpoint of epoch %d after %.4g s: the training that writes it has ended or "
                       "was lost, or its epochs take longer",
                       w->opts->path, w->epochs, w->wait_seconds);
}

static strata_status run(watch *w, strata_error *err) {
    const struct timespec pause = {.tv_nsec = 100 * 1000 * 1000};
    bool ends = false;
    while (!ends) {
        stamp found = {0};
        bool there = false;
        if (w->opts->stops && w->opts->stops(w->opts->user)) {
            w->result->end = STRATA_WATCH_STOPPED;
            return STRATA_OK;
        }
        STRATA_TRY(read_stamp(w, &found, &there, err));
        const double now = strata_clock_seconds();
        w->gone = there ? 0 : w->gone > 0 ? w->gone : now;
        if (there && !same(&found, &w->seen)) {
            STRATA_TRY(evaluate_file(w, &found, &ends, err));
            if (same(&found, &w->seen)) continue;
        } else if (!there && w->result->n && now - w->gone > GONE_SECONDS) {
            w->result->end = STRATA_WATCH_REMOVED;
            return STRATA_OK;
        } else if (now - w->since > w->wait_seconds) {
            return wait_is_over(w, err);
        }
        nanosleep(&pause, NULL);
    }
    return STRATA_OK;
}

strata_status strata_model_watch_checkpoints(strata_model *model, const strata_dataset *dataset,
                                             const strata_watch_options *opts, strata_watch_result *out_result,
                                             strata_error *err) {
    *out_result = (strata_watch_result){.best_loss = INFINITY};
    STRATA_TRY(strata_model_check_compiled(model, "watch_checkpoints", err));
    if (!opts || !opts->path) return strata_fail(err, STRATA_INVALID, "watch_checkpoints: there is no path of a checkpoint");
    if (!(opts->wait_seconds >= 0) || opts->epochs < 0)
        return strata_fail(err, STRATA_INVALID, "watch_checkpoints: wait_seconds is %g and epochs %d; they must be at least 0",
                           opts->wait_seconds, opts->epochs);
    watch w = {.model = model,
               .dataset = dataset,
               .opts = opts,
               .result = out_result,
               .wait_seconds = strata_number_or(opts->wait_seconds, DEFAULT_WAIT_SECONDS),
               .since = strata_clock_seconds()};
    return run(&w, err);
}
