/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls the callbacks of a model, and implements the built-in callbacks. */
#include "strata/callbacks.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>

#include "core/base/file.h"
#include "core/base/locale.h"
#include "core/base/text.h"
#include "core/model/checkpoint.h"

static void destroy(const strata_callback *callback) {
    if (callback->destroy) callback->destroy(callback->user);
}

strata_status strata_model_add_callback(strata_model *model, strata_callback callback, strata_error *err) {
    strata_status status = STRATA_OK;
    if (!callback.on_event && !callback.state_bytes)
        status = strata_fail(err, STRATA_INVALID,
                             "add_callback: %s has no function on_event; a ready-made callback has none where its options are "
                             "wrong or the host has no memory",
                             callback.name ? callback.name : "the callback");
    else if (model->callbacks.n == STRATA_MAX_CALLBACKS)
        status = strata_fail(err, STRATA_INVALID, "add_callback: a model has at most %d callbacks", STRATA_MAX_CALLBACKS);
    else
        model->callbacks.items[model->callbacks.n++] = callback;
    if (status) destroy(&callback);
    return status;
}

void strata_model_clear_callbacks(strata_model *model) {
    for (int i = 0; i < model->callbacks.n; i++) destroy(&model->callbacks.items[i]);
    model->callbacks.n = 0;
}

strata_status strata_callbacks_call(strata_model *model, int event, const strata_progress *progress, strata_error *err) {
    static const char *const names[STRATA_EVENT_COUNT] = {[STRATA_EVENT_TRAIN_BEGIN] = "when the training began",
                                                          [STRATA_EVENT_TRAIN_END] = "when the training ended",
                                                          [STRATA_EVENT_EPOCH_BEGIN] = "before",
                                                          [STRATA_EVENT_EPOCH_END] = "at the end of",
                                                          [STRATA_EVENT_BATCH_BEGIN] = "before a step of",
                                                          [STRATA_EVENT_BATCH_END] = "after a step of",
                                                          [STRATA_EVENT_TEST_BEGIN] = "when an evaluation began",
                                                          [STRATA_EVENT_TEST_END] = "when an evaluation ended",
                                                          [STRATA_EVENT_PREDICT_BEGIN] = "when a prediction began",
                                                          [STRATA_EVENT_PREDICT_END] = "when a prediction ended"};
    const bool in_epoch = event >= STRATA_EVENT_EPOCH_BEGIN && event <= STRATA_EVENT_BATCH_END;
    bool ignored = false;
    strata_progress own = {.model = model, .stop = &ignored, .stop_now = &ignored};
    for (int i = 0; i < model->callbacks.n; i++) {
        const strata_callback *c = &model->callbacks.items[i];
        strata_error why = {0};
        if (!c->on_event) continue;
        const strata_status status = c->on_event((strata_event)event, progress ? progress : &own, c->user, &why);
        if (!status) continue;
        char where[32] = "";
        if (in_epoch && progress) snprintf(where, sizeof where, " epoch %d", progress->epoch + 1);
        return strata_fail(err, status, "the callback %s failed %s%s: %s", c->name ? c->name : "without a name", names[event],
                           where, *why.message ? why.message : strata_status_name(status));
    }
    return STRATA_OK;
}

size_t strata_callbacks_state_bytes(const strata_model *model) {
    size_t bytes = 0;
    for (int i = 0; i < model->callbacks.n; i++) bytes += model->callbacks.items[i].state_bytes;
    return bytes;
}

/* From the callbacks to `state` (out), or from `state` to the callbacks. */
static void copy_state(const strata_model *model, void *state, bool out) {
    char *at = state;
    for (int i = 0; i < model->callbacks.n; i++) {
        const strata_callback *c = &model->callbacks.items[i];
        if (c->state_bytes) memcpy(out ? at : c->state, out ? c->state : at, c->state_bytes);
        at += c->state_bytes;
    }
}

/* ---- the states of all workers ---- */

void strata_callback_states_finish(strata_callback_states *states) {
    free(states->bytes);
    free(states->all);
    *states = (strata_callback_states){0};
}

strata_status strata_callback_states_take(const strata_model *model, bool gather, strata_callback_states *out,
                                          strata_error *err) {
    static const char no_memory[] = "checkpoint: no host memory for what callbacks keep";
    const strata_workers *workers = &model->strategy->workers;
    const int64_t own = (int64_t)strata_callbacks_state_bytes(model);
    STRATA_FREED uint8_t *mine = NULL;
    *out = (strata_callback_states){.n = gather ? workers->n : 1};
    STRATA_TRY(STRATA_NEW(mine, own, err, no_memory));
    STRATA_TRY(STRATA_NEW(out->bytes, out->n, err, no_memory));
    copy_state(model, mine, true);
    out->bytes[0] = own;
    if (gather) STRATA_TRY(strata_workers_gather_parts(workers, mine, (size_t)own, &out->all, out->bytes, err));
    for (int w = 0; w < out->n; w++) out->total += out->bytes[w];
    if (gather) return STRATA_OK;
    out->all = strata_released(&mine);
    return STRATA_OK;
}

void strata_callback_states_give(const strata_model *model, const strata_callback_states *states) {
    const strata_workers *workers = &model->strategy->workers;
    const int64_t own = (int64_t)strata_callbacks_state_bytes(model);
    const int n = strata_strategy_has_workers(model->strategy) ? workers->n : 1;
    const int from = states->n == n && states->bytes && states->bytes[workers->rank] == own ? workers->rank : 0;
    uint8_t *state = states->all;
    for (int w = 0; w < from; w++) state += states->bytes[w];
    if (state && (states->bytes ? states->bytes[from] : states->total) == own) copy_state(model, state, false);
}

/* ---- ready-made callbacks ---- */

/* Without `user`, since options are wrong or there is no memory, the callback has no function; strata_model_add_callback says
 * so. */
static strata_callback make(const char *name, strata_event_callback on_event, void *user, size_t state, size_t state_bytes) {
    if (!user) return (strata_callback){.name = name};
    return (strata_callback){name, on_event, user, free, state_bytes ? (char *)user + state : NULL, state_bytes};
}

/* ---- the monitored value ---- */

static bool value_in(const strata_metrics *metrics, const char *name, double *out) {
    if (!metrics->examples) return false;
    if (!strcmp(name, "loss")) return *out = metrics->loss, true;
    if (!strcmp(name, "accuracy")) return *out = metrics->accuracy, true;
    for (int i = 0; i < metrics->n; i++)
        if (!strcmp(metrics->more[i].name, name)) return *out = metrics->more[i].value, true;
    return false;
}

static strata_status monitored(const strata_progress *p, const char *monitor, double *out, strata_error *err) {
    const bool validation = monitor ? !strncmp(monitor, "val_", 4) : p->validation.examples > 0;
    const char *name = !monitor ? "loss" : validation ? monitor + 4 : monitor;
    if (value_in(validation ? &p->validation : &p->metrics, name, out)) return STRATA_OK;
    STRATA_FINISHED(strata_text) text = {0};
    for (int i = 0; i < p->metrics.n; i++) strata_text_add(&text, ", %s", p->metrics.more[i].name);
    return strata_fail(
        err, STRATA_INVALID, "\"%s\" is not measured: there are loss, accuracy%s%s", monitor ? monitor : name,
        text.bytes ? text.bytes : "",
        p->validation.examples ? ", and with val_ those of the validation data" : "; there are no validation data");
}

static bool more_is_better(const char *monitor) {
    static const char *const words[] = {"acc", "auc", "precision", "recall"};
    for (size_t i = 0; monitor && i < sizeof words / sizeof *words; i++)
        if (strstr(monitor, words[i])) return true;
    return false;
}

/* A part of a callback's state: the best value so far. */
typedef struct best_value {
    double value;
    int64_t there;
} best_value;

static bool improves(best_value *best, const char *monitor, double value, double delta) {
    const double sign = more_is_better(monitor) ? -1 : 1;
    if (isnan(value) || (best->there && !(sign * value < sign * best->value - delta))) return false;
    *best = (best_value){value, 1};
    return true;
}

/* Whether a fit begins with the first epoch, so that callbacks begin with a new state. */
static bool begins_anew(strata_event event, const strata_progress *p) {
    return event == STRATA_EVENT_TRAIN_BEGIN && p->epoch == 0 && !strata_model_epoch_steps(p->model);
}

/* ---- the saver ---- */

typedef struct saver {
    strata_saver_options opts;
    best_value best;
} saver;

static strata_status save(const saver *s, const strata_progress *p, strata_error *err) {
    const char *place = strstr(s->opts.path, "{epoch}");
    strata_text text = {0};
    STRATA_FREED char *path = NULL;
    if (place)
        strata_text_add(&text, "%.*s%d%s", (int)(place - s->opts.path), s->opts.path, p->epoch + 1, place + 7);
    else
        strata_text_add(&text, "%s", s->opts.path);
    STRATA_TRY(strata_text_take(&text, &path, NULL, err));
    return strata_model_save(p->model, path, err);
}

static strata_status saver_event(strata_event event, const strata_progress *p, void *user, strata_error *err) {
    saver *s = user;
    double value;
    if (begins_anew(event, p)) s->best = (best_value){0};
    if (event != STRATA_EVENT_EPOCH_END) return STRATA_OK;
    if (s->opts.best) {
        STRATA_TRY(monitored(p, s->opts.monitor, &value, err));
        if (!improves(&s->best, s->opts.monitor, value, 0)) return STRATA_OK;
    } else if ((p->epoch + 1) % (s->opts.every > 0 ? s->opts.every : 1)) {
        return STRATA_OK;
    }
    return save(s, p, err);
}

strata_callback strata_model_saver(strata_saver_options opts) {
    saver *s = opts.path && opts.every >= 0 ? calloc(1, sizeof *s) : NULL;
    if (s) s->opts = opts;
    return make("model_saver", saver_event, s, offsetof(saver, best), sizeof s->best);
}

/* ---- the plateau ---- */

typedef struct plateau {
    strata_plateau_options opts;
    struct {
        best_value best;
        int64_t waited, resting;
    } state;
} plateau;

static strata_status plateau_event(strata_event event, const strata_progress *p, void *user, strata_error *err) {
    plateau *s = user;
    double value;
    if (begins_anew(event, p)) memset(&s->state, 0, sizeof s->state);
    if (event != STRATA_EVENT_EPOCH_END) return STRATA_OK;
    STRATA_TRY(monitored(p, s->opts.monitor, &value, err));
    if (s->state.resting) s->state.resting--;
    if (improves(&s->state.best, s->opts.monitor, value, s->opts.min_delta)) {
        s->state.waited = 0;
        return STRATA_OK;
    }
    if (s->state.resting || ++s->state.waited < s->opts.patience) return STRATA_OK;
    const double rate = strata_model_learning_rate(p->model), reduced = rate * s->opts.factor;
    s->state.waited = 0;
    s->state.resting = s->opts.cooldown;
    if (rate <= s->opts.least_rate) return STRATA_OK;
    return strata_model_set_learning_rate(p->model, reduced > s->opts.least_rate ? reduced : s->opts.least_rate, err);
}

strata_callback strata_reduce_on_plateau(strata_plateau_options opts) {
    opts.factor = strata_number_or(opts.factor, 0.1);
    opts.patience = opts.patience == STRATA_NO_EPOCHS ? 0 : opts.patience ? opts.patience : 10;
    const bool right = opts.factor >= 0 && opts.factor < 1 && opts.patience >= 0 && opts.min_delta >= 0 && opts.cooldown >= 0 &&
                       opts.least_rate >= 0;
    plateau *s = right ? calloc(1, sizeof *s) : NULL;
    if (s) s->opts = opts;
    return make("reduce_on_plateau", plateau_event, s, offsetof(plateau, state), sizeof s->state);
}

/* ---- the schedule ---- */

typedef struct schedule {
    double (*rate)(int epoch, double rate, void *user);
    void *user;
} schedule;

static strata_status schedule_event(strata_event event, const strata_progress *p, void *user, strata_error *err) {
    const schedule *s = user;
    /* If a fit continues within an epoch, the epoch's rate is the one in the checkpoint. */
    if (event != STRATA_EVENT_EPOCH_BEGIN || strata_model_epoch_steps(p->model)) return STRATA_OK;
    return strata_model_set_learning_rate(p->model, s->rate(p->epoch, strata_model_learning_rate(p->model), s->user), err);
}

strata_callback strata_rate_schedule(double (*rate)(int epoch, double rate, void *user), void *user) {
    schedule *s = rate ? calloc(1, sizeof *s) : NULL;
    if (s) *s = (schedule){rate, user};
    return make("rate_schedule", schedule_event, s, 0, 0);
}

/* ---- the table ---- */

typedef struct csv {
    const char *path;
    FILE *file;
} csv;

static void close_csv(void *user) {
    csv *s = user;
    if (s->file) fclose(s->file);
    free(s);
}

static void write_names(FILE *file, const strata_metrics *metrics, const char *prefix) {
    strata_format_file(file, ",%sloss,%saccuracy", prefix, prefix);
    for (int i = 0; i < metrics->n; i++) strata_format_file(file, ",%s%s", prefix, metrics->more[i].name);
}

static void write_values(FILE *file, const strata_metrics *metrics) {
    strata_format_file(file, ",%.9g,%.9g", metrics->loss, metrics->accuracy);
    for (int i = 0; i < metrics->n; i++) strata_format_file(file, ",%.9g", metrics->more[i].value);
}

static strata_status csv_event(strata_event event, const strata_progress *p, void *user, strata_error *err) {
    csv *s = user;
    const bool goes_on = p->epoch > 0;
    if (event == STRATA_EVENT_TRAIN_BEGIN && !s->file) {
        s->file = fopen(s->path, goes_on ? "a" : "w");
        if (!s->file) return strata_file_fail(err, errno, s->path, "open");
    }
    if (event == STRATA_EVENT_EPOCH_END && s->file) {
        if (fseek(s->file, 0, SEEK_END) == 0 && ftell(s->file) == 0) {
            strata_format_file(s->file, "epoch,learning_rate");
            write_names(s->file, &p->metrics, "");
            if (p->validation.examples) write_names(s->file, &p->validation, "val_");
            fputc('\n', s->file);
        }
        strata_format_file(s->file, "%d,%.9g", p->epoch + 1, p->learning_rate);
        write_values(s->file, &p->metrics);
        if (p->validation.examples) write_values(s->file, &p->validation);
        fputc('\n', s->file);
        if (fflush(s->file)) return strata_file_fail(err, errno, s->path, "write");
    }
    if (event == STRATA_EVENT_TRAIN_END && s->file) {
        FILE *file = strata_released(&s->file);
        if (fclose(file)) return strata_file_fail(err, errno, s->path, "write");
    }
    return STRATA_OK;
}

strata_callback strata_csv_log(const char *path) {
    csv *s = path ? calloc(1, sizeof *s) : NULL;
    if (!s) return (strata_callback){.name = "csv_log"};
    s->path = path;
    return (strata_callback){.name = "csv_log", .on_event = csv_event, .user = s, .destroy = close_csv};
}
