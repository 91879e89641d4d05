/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs the cells of the fault matrix (faults.h), several at a time. For each cell it checks that no task hangs, that the
 * training completes, that each batch of an epoch was applied once, and that no acknowledged push is lost. Workers must end
 * with the chief's parameters. Synchronous training must end with the same bits as a training without a fault. With bounded
 * staleness no worker may be further ahead than allowed.
 *   STRATA_TEST_FAULTS         all: each cell; another text: the cells with this text in their name; not set: a selection
 *   STRATA_TEST_FAULTS_SEED    determines the selection; not set: the number of the day */
#include <dirent.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "strata/strata.h"
#include "tests/faults/faults.h"
#include "tests/support/ports.h"

/* Sanitizers make the program slower. SLOWER multiplies the timeouts. RARER multiplies the interval of heartbeats, which need
 * little processor time. */
#if defined(__SANITIZE_THREAD__)
enum { SLOWER = 6, RARER = 2 };
#elif defined(__SANITIZE_ADDRESS__)
enum { SLOWER = 3, RARER = 2 };
#else
enum { SLOWER = 1, RARER = 1 };
#endif
enum { RUNNERS = 4, FEATURES = 6, BATCH = 16, ROWS = STEPS * BATCH, VALIDATION_ROWS = 2 * BATCH, STALENESS = 2 };
/* A killed task starts again after RESTART_SECONDS. A task that sends nothing for 5 heartbeats is lost. For a server that has
 * copies of its shards on another server, the others wait 1.5 s longer. */
static const double RESTART_SECONDS = 0.3, HEARTBEAT = 0.2 * RARER, STOP_SECONDS = 0.6 + RARER,
                    STOP_SERVER_SECONDS = 2.4 + RARER, MOST_SECONDS = 60, WAIT_SECONDS = 20;

/* ---- the matrix ---- */

static const char *const role_names[] = {"worker", "server", "chief"};
static const char *const fault_names[] = {"kill", "stop", "cut", "repeat", "drop"};

/* A mode of training. */
typedef struct mode {
    const char *name;
    strata_pace pace;
    int64_t staleness;
    int replicas;
    /* Size in bytes of the buckets in which gradients are pushed. 0: the default, with which this model has one bucket. */
    int64_t bucket;
    strata_old_gradients old_gradients;
} mode;
static const mode modes[] = {
    {"synchronous with copies", STRATA_PACE_SYNCHRONOUS, 0, 1, 4, STRATA_OLD_GRADIENTS_CORRECTED},
    {"asynchronous", STRATA_PACE_ASYNCHRONOUS, 0, 0, 4, STRATA_OLD_GRADIENTS_PLAIN},
    {"bounded with copies", STRATA_PACE_BOUNDED, STALENESS, 1, 0, STRATA_OLD_GRADIENTS_PLAIN},
    {"corrected with copies", STRATA_PACE_ASYNCHRONOUS, 0, 1, 4, STRATA_OLD_GRADIENTS_CORRECTED},
    {"asynchronous with copies", STRATA_PACE_ASYNCHRONOUS, 0, 1, 0, STRATA_OLD_GRADIENTS_PLAIN},
    {"synchronous", STRATA_PACE_SYNCHRONOUS, 0, 0, 0, STRATA_OLD_GRADIENTS_CORRECTED},
};
enum { MODES = sizeof modes / sizeof *modes };

/* A combination of point, role, fault and mode is run REPETITIONS times. Each time the fault is injected at another occurrence
 * of the point. If the point is not reached so often, the job is run again, up to MOST_JOBS times in all. */
enum { REPETITIONS = 3, MOST_JOBS = 4 };

typedef struct row {
    const char *name;
    /* [role of the victim] Describes when the point is reached. NULL: a task of this role never reaches it. */
    const char *where[ROLES];
    /* The role that reaches the point, whatever the role of the victim is. */
    enum { THE_VICTIM, THE_CHIEF, A_WORKER } who;
    /* [role of the victim] How often the point is reached in each training, at least. 0: once. */
    int least[ROLES];
    /* At which occurrence the fault is injected, counted from 0. */
    int occurrences[REPETITIONS][MODES];
} row;
static const row rows[POINTS] = {
    [JOINING] = {.name = "joining",
                 .where = {"before a hello to the chief or a server", "before it answers a hello", "before it answers a hello"},
                 .least = {3, 3, 2},
                 .occurrences = {{0, 1, 1, 0, 0, 0}, {1, 0, 2, 2, 1, 1}, {2, 2, 0, 1, 2, 2}}},
    [FIRST_PULL] = {.name = "before the first pull",
                    .where = {"before it requests values", "before it replies", "before it sends the first values to servers"}},
    [AFTER_PULL] = {.name = "after a pull",
                    .where = {"it has the values", "before they are sent"},
                    .least = {14, 14},
                    .occurrences = {{1, 8, 13, 3, 2, 4}, {9, 3, 2, 0, 7, 12}, {6, 0, 7, 8, 13, 9}}},
    [LEASE] = {.name = "lease",
               .where = {"it has received a batch", NULL, "before it replies with a batch"},
               .least = {12, 0, 36},
               .occurrences = {{1, 5, 9, 2, 4, 4}, {6, 2, 4, 3, 1, 11}, {10, 3, 1, 5, 9, 8}}},
    [BETWEEN_PUSHES] = {.name = "between two pushes",
                        .where = {"it has sent the push to ps:0, and not yet to ps:1"},
                        .least = {12},
                        .occurrences = {{0, 5, 9, 2, 4, 4}, {6, 2, 4, 3, 1, 11}, {10, 3, 1, 5, 9, 8}}},
    [NOT_ACKNOWLEDGED] = {.name = "push not acknowledged",
                          .where = {"it has sent all pushes", "it has applied the push, and not yet replied"},
                          .least = {12, 12},
                          .occurrences = {{0, 5, 9, 2, 4, 4}, {6, 2, 4, 3, 1, 11}, {10, 3, 1, 5, 9, 8}}},
    [HALF_UPDATE] = {.name = "half an update",
                     .where = {NULL, "it has changed parameters, and not yet recorded that the batch is applied"},
                     .least = {0, 12},
                     .occurrences = {{0, 5, 9, 2, 4, 4}, {6, 2, 4, 3, 1, 11}, {10, 3, 1, 5, 9, 8}}},
    [BEFORE_COPY] = {.name = "before the copy",
                     .where = {NULL, "it has applied the push, and not yet sent it to the server with the copy"},
                     .least = {0, 12},
                     .occurrences = {{0, 5, 9, 2, 4, 4}, {6, 2, 4, 3, 1, 11}, {10, 3, 1, 5, 9, 8}}},
    [EPOCH_END] = {.name = "end of an epoch",
                   .where = {"before it reports one of the last batches", "before it replies with its values",
                             "before it requests values"},
                   .least = {2, 3, 3},
                   .occurrences = {{0, 0, 0, 1, 1, 1}, {1, 1, 1, 2, 2, 0}, {2, 2, 2, 0, 0, 2}}},
    [CHECKPOINT] = {.name = "checkpoint",
                    .where = {"the chief has written the temporary file of a checkpoint", "likewise", "likewise"},
                    .who = THE_CHIEF,
                    .least = {2, 2, 2},
                    .occurrences = {{0, 1, 0, 0, 1, 1}, {1, 0, 1, 1, 0, 0}}},
    [EVALUATING] = {.name = "evaluating",
                    .where = {"before or after the chief records the metrics of an epoch", "likewise", "likewise"},
                    .who = THE_CHIEF,
                    /* No notice reports that a worker was lost after the last two occurrences. */
                    .least = {4, 6, 6},
                    .occurrences = {{0, 3, 2, 0, 1, 1}, {3, 0, 5, 2, 5, 4}, {5, 2, 1, 3, 2, 5}}},
    [SHUTDOWN] = {.name = "shutdown",
                  .where = {"it is told that the training is over", "likewise", "it has completed all epochs"}},
    [LAST_PULL] = {.name = "last pull",
                   .where = {NULL, "before or after a worker requests the final parameters from a server"},
                   .who = A_WORKER,
                   .least = {0, 8},
                   .occurrences = {{0, 1, 2, 3, 4, 5}, {3, 4, 5, 6, 7, 1}, {6, 7, 0, 1, 2, 4}}},
};

typedef struct cell {
    point point;
    role victim;
    fault fault;
    int mode, repetition;
} cell;

static void name_cell(const cell *c, char *out, size_t room) {
    snprintf(out, room, "%s/%s/%s/%s/%d", role_names[c->victim], rows[c->point].name, fault_names[c->fault],
             modes[c->mode].name, 1 + c->repetition);
}

/* Why the matrix has no such cell. NULL: it has one. */
static const char *why_left_out(const cell *c) {
    const row *r = &rows[c->point];
    const int occurrence = r->occurrences[c->repetition][c->mode];
    if (!r->where[c->victim]) return "it never reaches this point";
    if (c->point == BEFORE_COPY && !modes[c->mode].replicas) return "there are no copies";
    if (c->repetition && occurrence >= r->least[c->victim]) return "it does not reach this point so often";
    for (int m = 0; m < c->repetition; m++)
        if (r->occurrences[m][c->mode] == occurrence) return "it is the same as another one";
    return NULL;
}

/* ---- the program of all tasks ---- */

/* Memory that all runners share: the hash of the parameters after a synchronous training without a fault, the index of the
 * next cell, and the number of cells that failed and passed. */
static struct totals {
    char sha256[65];
    atomic_int next, failed, passed;
} * totals;

static strata_status make_data(int rows_wanted, strata_dataset **out_dataset, strata_error *err) {
    static float x[ROWS * FEATURES], y[ROWS];
    for (int i = 0; i < rows_wanted; i++) {
        y[i] = 0;
        for (int k = 0; k < FEATURES; k++) {
            x[i * FEATURES + k] = (float)((i * 104729 + k * 1299709) % 1000) / 500 - 1;
            y[i] += x[i * FEATURES + k] * (float)(k - 2) / 4;
        }
    }
    const strata_array features = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(rows_wanted, FEATURES), x),
                       labels = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(rows_wanted, 1), y);
    return strata_dataset_from_arrays(&features, &labels, 1, out_dataset, err);
}

static strata_status make_model(const char *task, strata_strategy **out_strategy, strata_model **out_model, strata_error *err) {
    static const char secret[] = "between all tasks";
    static const char *const host[] = {"host"};
    const strata_communicator_options security = {.secret = secret,
                                                  .secret_bytes = sizeof secret,
                                                  .connect_seconds = WAIT_SECONDS * SLOWER,
                                                  .heartbeat_seconds = HEARTBEAT};
    const strata_parameter_server_options servers = {.cluster = shared->cluster,
                                                     .task = task,
                                                     .pace = shared->pace,
                                                     .staleness = shared->staleness,
                                                     .replicas = shared->replicas,
                                                     .old_gradients = shared->old_gradients,
                                                     .partitioner = "fixed:2",
                                                     .communication = &security};
    const strata_strategy_options opts = {
        .devices = host, .n_devices = 1, .bytes_per_pack = shared->bucket, .parameter_server = &servers};
    STRATA_TRY(strata_strategy_create("parameter_server", &opts, out_strategy, err));
    STRATA_TRY(strata_model_create(STRATA_SHAPE(FEATURES), out_model, err));
    strata_model_add_dense(*out_model, (strata_dense_options){.units = 8, .activation = "tanh"});
    strata_model_add_dense(*out_model, (strata_dense_options){.units = 1});
    return strata_model_compile(
        *out_model, NULL,
        &(strata_compile_options){
            .strategy = *out_strategy, .optimizer = {.name = "adam", .learning_rate = 0.01f}, .loss = "mse", .seed = 3},
        err);
}

/* After each epoch the chief writes a checkpoint. Then it waits until a killed task has joined again, so that the rest of the
 * training uses this task. */
static strata_status on_progress(const strata_progress *p, void *user, strata_error *err) {
    strata_model *model = user;
    if (!p->epoch_end || p->epoch + 1 == p->epochs) return STRATA_OK;
    STRATA_TRY(strata_model_save_checkpoint(model, p->epoch + 1, shared->checkpoint, err));
    if (!atomic_load(&shared->absent)) return STRATA_OK;
    for (const double end = test_seconds() + WAIT_SECONDS; atomic_load(&shared->absent) && test_seconds() < end;) usleep(5000);
    usleep(300000); /* the other tasks connect to it again in this time */
    points_log(PAUSED, (entry){0});
    return STRATA_OK;
}

static void take_result(const strata_strategy *strategy, strata_model *model, const strata_history *history) {
    size_t used = 0;
    strata_error err;
    const int64_t n = strata_strategy_parameter_server_totals(strategy).notices;
    for (int64_t i = 0; i < n && used < sizeof shared->notices; i++)
        used += (size_t)snprintf(shared->notices + used, sizeof shared->notices - used, "        %s\n",
                                 strata_strategy_parameter_server_notice(strategy, i).text);
    if (strata_model_sha256(model, shared->sha256, &err)) shared->sha256[0] = '\0';
    shared->optimizer_steps = model->optimizer_steps;
    shared->epochs += history->n_epochs;
}

static strata_status train(int task, const char *name, strata_error *err) {
    const bool is_chief = task == CHIEF_TASK;
    strata_strategy *strategy = NULL;
    strata_model *model = NULL;
    strata_dataset *dataset = NULL, *validation = NULL;
    strata_history history = {0};
    strata_fit_options opts = {.epochs = EPOCHS, .batch = BATCH, .seed = 5};
    strata_status status = make_model(name, &strategy, &model, err);
    if (!status) status = make_data(VALIDATION_ROWS, &validation, err);
    if (!status) status = make_data(ROWS, &dataset, err);
    if (!status && is_chief) status = strata_model_load_checkpoint(model, shared->checkpoint, &opts.first_epoch, err);
    opts.validation = validation;
    opts.on_progress = is_chief ? on_progress : NULL;
    opts.user = model;
    if (!status) status = strata_model_fit(model, dataset, &opts, &history, err);
    if (!status && is_chief) take_result(strategy, model, &history);
    if (!status && role_of(task) == WORKER) status = strata_model_sha256(model, shared->own_sha256[task], err);
    strata_history_finish(&history);
    strata_dataset_destroy(dataset);
    strata_dataset_destroy(validation);
    strata_strategy_destroy(strategy);
    return status;
}

static void name_task(int task, char out[24]) {
    static const char *const names[] = {"worker", "ps", "chief"};
    const role r = role_of(task);
    snprintf(out, 24, "%s:%d", names[r], r == CHIEF ? 0 : r == WORKER ? task - FIRST_WORKER : task - FIRST_SERVER);
}

static int run_task(int task, int variant) {
    char name[24];
    strata_error err = {0};
    (void)variant;
    points_begin(task);
    name_task(task, name);
    const strata_status status = train(task, name, &err);
    snprintf(shared->why[task], sizeof shared->why[task], "%.511s", err.message);
    return (int)status;
}

/* ---- checks of a cell ---- */

typedef struct report {
    char name[128];
    bool failed;
} report;

__attribute__((format(printf, 2, 3))) static void bad(report *r, const char *format, ...) {
    char text[700];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    fprintf(stderr, "%s%s: %s\n", r->failed ? "    and " : "", r->name, text);
    r->failed = true;
}

static int n_entries(void) {
    const int n = atomic_load(&shared->n_entries);
    return n < MOST_ENTRIES ? n : MOST_ENTRIES;
}

static entry_kind kind_of(int i) {
    return (entry_kind)atomic_load(&shared->entries[i].kind);
}

/* The server that sent the values of `group` which the chief received with entry `fetched`. -1: none. */
static int holder_of(int64_t group, int fetched) {
    for (int i = fetched; i >= 0; i--)
        if (kind_of(i) == READ && shared->entries[i].group == group) return shared->entries[i].task;
    return -1;
}

/* Checks the epoch that ended with entry `fetched`: the server that had the shards at its end must have applied each batch
 * once, and before a worker received an acknowledgement. */
static void check_epoch(report *r, int fetched) {
    const int shares = shared->pace == STRATA_PACE_SYNCHRONOUS ? WORKERS : 1;
    const int64_t serial = shared->entries[fetched].epoch;
    for (int group = 0; group < SERVERS; group++) {
        int counts[STEPS][WORKERS] = {{0}};
        const int holder = holder_of(group, fetched);
        for (int i = 0; i < fetched; i++) {
            const entry *e = &shared->entries[i];
            if (e->epoch != serial || e->group != group || e->index < 0 || e->index >= STEPS) continue;
            int *count = &counts[e->index][e->share];
            if (kind_of(i) == APPLIED && e->task == holder) ++*count;
            if (kind_of(i) == ACKNOWLEDGED && !*count)
                bad(r, "batch %lld share %d was acknowledged, and ps:%d did not have it for the shards of ps:%d",
                    (long long)e->index, e->share, holder - FIRST_SERVER, group);
        }
        for (int step = 0; step < STEPS; step++)
            for (int share = 0; share < shares; share++)
                if (counts[step][share] != 1)
                    bad(r, "ps:%d applied batch %d share %d %d times to the shards of ps:%d", holder - FIRST_SERVER, step,
                        share, counts[step][share], group);
    }
}

/* Checks from the entries GRANTED and FINISHED that no worker began a step more than STALENESS steps ahead of the slowest
 * worker. */
static void check_staleness(report *r) {
    int done[WORKERS] = {0}, running[WORKERS] = {0};
    bool there[WORKERS] = {false};
    int owner[STEPS];
    for (int i = 0; i < n_entries(); i++) {
        const entry *e = &shared->entries[i];
        const int w = e->worker;
        int least = INT32_MAX;
        switch (kind_of(i)) {
            case CHIEF_BEGINS:
                memset(there, 0, sizeof there);
                break;
            case EPOCH_BEGINS:
                memset(done, 0, sizeof done);
                memset(running, 0, sizeof running);
                for (int k = 0; k < STEPS; k++) owner[k] = -1;
                break;
            case LOST:
            case JOINS:
                for (int k = 0; k < STEPS; k++)
                    if (owner[k] == w) owner[k] = -1;
                there[w] = false;
                for (int k = 0; k < WORKERS; k++)
                    if (there[k] && done[k] < least) least = done[k];
                done[w] = least == INT32_MAX ? 0 : least;
                running[w] = 0;
                there[w] = kind_of(i) == JOINS;
                break;
            case GRANTED:
                for (int k = 0; k < WORKERS; k++)
                    if (there[k] && done[k] < least) least = done[k];
                if (done[w] + running[w] - least > STALENESS)
                    bad(r, "worker:%d got step %d while the slowest worker was at %d", w, done[w] + running[w], least);
                running[w]++;
                owner[e->index] = w;
                break;
            case FINISHED:
                if (owner[e->index] >= 0) running[owner[e->index]]--;
                if (owner[e->index] == w) done[w]++;
                owner[e->index] = -1;
                break;
            default:
                break;
        }
    }
}

/* Checks how long after the fault there was neither a push nor the end of an epoch. */
static void check_pause(report *r, const cell *c) {
    const bool copies = modes[c->mode].replicas;
    const double stopped = c->fault != STOP ? 0 : c->victim == SERVER && copies ? STOP_SERVER_SECONDS : STOP_SECONDS;
    const double most = SLOWER * (c->victim == WORKER ? 3 : c->victim == SERVER && copies ? 5 : 5 + stopped);
    double last = shared->injected_at, longest = 0;
    for (int i = 0; i < n_entries(); i++) {
        const entry *e = &shared->entries[i];
        const entry_kind kind = kind_of(i);
        if ((kind != ACKNOWLEDGED && kind != FETCHED && kind != PAUSED) || e->at < shared->injected_at) continue;
        if (kind != PAUSED && e->at - last > longest) longest = e->at - last;
        last = e->at;
    }
    if (longest > most) bad(r, "there was no progress for %.1f s; %.0f s are allowed", longest, most);
}

static void check_log(report *r, const cell *c) {
    int n_fetched = 0, since = 0;
    bool used = false;
    for (int i = 0; i < n_entries(); i++) {
        const entry *e = &shared->entries[i];
        if (kind_of(i) == FETCHED) {
            check_epoch(r, i);
            n_fetched++;
            since += e->at > shared->injected_at;
        }
        if (e->at < shared->injected_at + RESTART_SECONDS || e->task != shared->victim) continue;
        used |= kind_of(i) == ACKNOWLEDGED || kind_of(i) == SET || kind_of(i) == GRANTED;
    }
    if (n_fetched < EPOCHS) bad(r, "only %d epochs ended", n_fetched);
    if (n_entries() == MOST_ENTRIES) bad(r, "the log is full");
    if (shared->pace == STRATA_PACE_BOUNDED) check_staleness(r);
    if (!c) return;
    check_pause(r, c);
    /* Two epochs have ended since the fault, so the second one began after the victim had started again. */
    if (c->fault == KILL && since >= 2 && !used) bad(r, "the task that was started again was not used");
}

static void check_notices(report *r, const cell *c) {
    const bool repeated = strstr(shared->notices, "are repeated");
    const bool lost = strstr(shared->notices, c->victim == WORKER ? "worker:1 was lost" : "ps:1 ");
    if (c->victim == CHIEF || c->fault != KILL || c->point == SHUTDOWN || c->point == LAST_PULL) return;
    if (c->point == JOINING || c->point == FIRST_PULL) return; /* the training may not have begun yet */
    if (!lost) bad(r, "no notice reports the lost task");
    if (c->victim == WORKER && repeated) bad(r, "steps were repeated");
    if (c->victim == SERVER && modes[c->mode].replicas && repeated) bad(r, "steps were repeated, though there are copies");
}

static void check_result(report *r, const cell *c) {
    if (shared->optimizer_steps != EPOCHS * STEPS)
        bad(r, "the optimizer made %lld updates of %d", (long long)shared->optimizer_steps, EPOCHS * STEPS);
    if (shared->pace == STRATA_PACE_SYNCHRONOUS && *totals->sha256 && strcmp(shared->sha256, totals->sha256) != 0)
        bad(r, "the parameters differ from those of a training without a fault");
    for (int t = FIRST_WORKER; t < FIRST_SERVER; t++)
        if (*shared->own_sha256[t] && strcmp(shared->own_sha256[t], shared->sha256) != 0)
            bad(r, "worker:%d ended with other parameters than the chief", t - FIRST_WORKER);
    check_log(r, c);
    if (c) check_notices(r, c);
}

/* ---- running a cell ---- */

/* Each runner has its own range of ports, so that no other runner takes the port of a task that will start again. */
static unsigned next_port;

static bool find_addresses(void) {
    if (!test_addresses(&next_port, TASKS, shared->addresses)) return false;
    char(*const a)[32] = shared->addresses;
    snprintf(shared->cluster, sizeof shared->cluster, "chief=%s;worker=%s,%s,%s;ps=%s,%s", a[0], a[1], a[2], a[3], a[4], a[5]);
    return true;
}

/* c: NULL prepares a training without a fault, in the last mode. */
static void prepare(const cell *c) {
    const mode *w = &modes[c ? c->mode : MODES - 1];
    char checkpoint[256];
    snprintf(checkpoint, sizeof checkpoint, "%s", shared->checkpoint);
    memset(shared, 0, sizeof *shared);
    snprintf(shared->checkpoint, sizeof shared->checkpoint, "%s", checkpoint);
    unlink(checkpoint);
    shared->pace = w->pace;
    shared->staleness = w->staleness;
    shared->replicas = w->replicas;
    shared->old_gradients = w->old_gradients;
    shared->bucket = w->bucket;
    shared->occurrence = -1;
    shared->victim = -1;
    if (!c) return;
    shared->point = c->point;
    shared->victim_role = c->victim;
    shared->fault = c->fault;
    shared->victim = c->victim == CHIEF ? CHIEF_TASK : c->victim == WORKER ? FIRST_WORKER + 1 : FIRST_SERVER + 1;
    shared->actor = rows[c->point].who == THE_CHIEF ? CHIEF : rows[c->point].who == A_WORKER ? WORKER : c->victim;
    shared->occurrence = rows[c->point].occurrences[c->repetition][c->mode];
}

/* Starts a killed victim again, or continues a stopped one, when the fault has lasted long enough. */
static void continue_victim(test_fork_server *fork_server, const cell *c, bool *in_out_done) {
    if (*in_out_done || !atomic_load(&shared->injected)) return;
    const double since = test_seconds() - shared->injected_at;
    const int victim = shared->victim;
    if (c->fault == KILL && c->point != SHUTDOWN && since > RESTART_SECONDS && test_fork_server_ended(fork_server, victim) != 0)
        *in_out_done = test_fork_server_start(fork_server, victim, 0);
    if (c->fault == KILL && c->point == SHUTDOWN && c->victim == CHIEF && since > RESTART_SECONDS)
        *in_out_done = test_fork_server_start(fork_server, victim, 0);
    if (c->fault == STOP && since > (c->victim == SERVER && shared->replicas ? STOP_SERVER_SECONDS : STOP_SECONDS)) {
        kill(test_fork_server_pid(fork_server, victim), SIGCONT);
        if (c->victim != WORKER) atomic_store(&shared->absent, 0);
        *in_out_done = true;
    }
}

static void wait_for_end(test_fork_server *fork_server, const cell *c, report *r) {
    const double end = test_seconds() + MOST_SECONDS * SLOWER;
    bool continued = c == NULL;
    for (;;) {
        const int chief = test_fork_server_ended(fork_server, CHIEF_TASK);
        const bool comes_again = chief == TEST_TASK_KILLED && c && c->fault == KILL && c->victim == CHIEF && !continued;
        if (chief != TEST_TASK_RUNS && !comes_again) break;
        if (test_seconds() > end) break;
        if (c) continue_victim(fork_server, c, &continued);
        usleep(3000);
    }
    for (int t = 0; t < TASKS; t++) {
        char name[24];
        name_task(t, name);
        const bool victim = c && t == shared->victim, may_be_late = victim && (c->fault == KILL || c->fault == STOP);
        double patience = end - test_seconds() > 1 ? end - test_seconds() : 1;
        if (may_be_late && t != CHIEF_TASK) patience = 1; /* it may have started after the end of the training */
        int ended = test_fork_server_ended(fork_server, t);
        for (const double until = test_seconds() + patience; ended == TEST_TASK_RUNS && test_seconds() < until; usleep(3000)) {
            if (c) continue_victim(fork_server, c, &continued);
            ended = test_fork_server_ended(fork_server, t);
        }
        if (ended == TEST_TASK_CRASHED) bad(r, "%s crashed", name);
        if (may_be_late && t != CHIEF_TASK) continue;
        if (ended == TEST_TASK_RUNS) bad(r, "%s hangs", name);
        if (ended == TEST_TASK_KILLED) bad(r, "%s was killed, and did not start again", name);
        if (ended > 1) bad(r, "%s failed: %s", name, shared->why[t]);
    }
    for (int t = 0; t < TASKS; t++) {
        if (test_fork_server_ended(fork_server, t) != TEST_TASK_RUNS || test_fork_server_pid(fork_server, t) <= 0) continue;
        kill(test_fork_server_pid(fork_server, t), SIGKILL);
        test_fork_server_wait(fork_server, t);
    }
}

/* Runs the job of a cell and checks it. c: NULL for a training without a fault. */
static void run_job(test_fork_server *fork_server, const cell *c, report *r) {
    prepare(c);
    if (!find_addresses()) {
        bad(r, "no sockets here");
        return;
    }
    for (int t = TASKS - 1; t >= 0; t--)
        if (!test_fork_server_start(fork_server, t, 0)) bad(r, "no process for task %d", t);
    wait_for_end(fork_server, c, r);
    if (!r->failed) check_result(r, atomic_load(&shared->injected) ? c : NULL);
    if (r->failed) fprintf(stderr, "    notices:\n%s", shared->notices);
}

/* Runs a cell. In an asynchronous training on a busy machine, a worker may get so few batches that it does not reach the point
 * often enough. Then no fault was injected, and the job is run again. */
static bool run_cell(test_fork_server *fork_server, const cell *c) {
    report r = {"without a fault", false};
    if (c) name_cell(c, r.name, sizeof r.name);
    for (int jobs = c && modes[c->mode].pace != STRATA_PACE_SYNCHRONOUS ? MOST_JOBS : 1; jobs > 0; jobs--) {
        run_job(fork_server, c, &r);
        if (!c || r.failed || atomic_load(&shared->injected)) return !r.failed;
    }
    bad(&r, "the point was reached %d times; the fault needs %d", atomic_load(&shared->reached), shared->occurrence + 1);
    return false;
}

/* ---- all cells ---- */

static cell *cells;
static int n_cells;

/* The cell with this number among those of a combination of point and role. */
static cell cell_at(int place, int number) {
    return (cell){.point = (point)(place / ROLES),
                  .victim = (role)(place % ROLES),
                  .fault = (fault)(number % FAULTS),
                  .mode = number / FAULTS % MODES,
                  .repetition = number / FAULTS / MODES};
}

/* Fills `cells`. Without STRATA_TEST_FAULTS it selects one cell for each combination of point and role. The next seed selects
 * the next cell of each, so all cells are selected in the course of many days. */
static void list_cells(void) {
    enum { POINTS_AND_ROLES = POINTS * ROLES, MOST_CELLS_OF_ONE = FAULTS * MODES * REPETITIONS };
    const char *wanted = getenv("STRATA_TEST_FAULTS"), *seed_text = getenv("STRATA_TEST_FAULTS_SEED");
    const bool selects = !wanted || !*wanted;
    const long long day = (long long)time(NULL) / (24 * 60 * 60);
    const unsigned long long seed = seed_text && *seed_text ? strtoull(seed_text, NULL, 10) : (unsigned long long)day;
    int n_all = 0;
    cells = calloc((size_t)POINTS_AND_ROLES * MOST_CELLS_OF_ONE, sizeof *cells);
    if (!cells) abort();
    for (int place = 0; place < POINTS_AND_ROLES; place++) {
        cell own[MOST_CELLS_OF_ONE];
        char name[128];
        int n = 0;
        for (int k = 0; k < MOST_CELLS_OF_ONE; k++) {
            const cell c = cell_at(place, k);
            if (!why_left_out(&c)) own[n++] = c;
        }
        n_all += n;
        if (!n) printf("not run: %s, %s: it never reaches this point\n", rows[place / ROLES].name, role_names[place % ROLES]);
        if (n && selects) cells[n_cells++] = own[(seed + (unsigned)place) % (unsigned)n];
        for (int k = 0; k < n && !selects; k++) {
            name_cell(&own[k], name, sizeof name);
            if (!strcmp(wanted, "all") || strstr(name, wanted)) cells[n_cells++] = own[k];
        }
    }
    if (selects) printf("the cells of STRATA_TEST_FAULTS_SEED=%llu\n", seed);
    printf("%d cells are run, of %d\n", n_cells, n_all);
    fflush(stdout);
}

/* The main function of a runner, a process that runs one cell after the other. Runner -1 runs a training without a fault. */
static void run_cells(const char *folder, int runner, unsigned first_port) {
    test_fork_server fork_server;
    next_port = first_port;
    shared = test_shared_memory(sizeof *shared);
    if (!shared || !test_fork_server_open(&fork_server, run_task)) abort();
    snprintf(shared->checkpoint, sizeof shared->checkpoint, "%s/%d.strata", folder, runner);
    if (runner < 0) {
        if (!run_cell(&fork_server, NULL)) atomic_fetch_add(&totals->failed, 1);
        memcpy(totals->sha256, shared->sha256, sizeof totals->sha256);
    }
    for (int i; runner >= 0 && (i = atomic_fetch_add(&totals->next, 1)) < n_cells;)
        atomic_fetch_add(run_cell(&fork_server, &cells[i]) ? &totals->passed : &totals->failed, 1);
    test_fork_server_close(&fork_server);
    unlink(shared->checkpoint);
    _exit(0);
}

static void fork_runner(const char *folder, int runner, unsigned first_port) {
    fflush(NULL);
    if (!fork()) run_cells(folder, runner, first_port + (unsigned)(1 + runner) * (TEST_N_PORTS / (RUNNERS + 1)));
}

/* Removes the folder and its files. A chief that was killed may have left temporary files. */
static void remove_folder(const char *path) {
    DIR *folder = opendir(path);
    for (struct dirent *file; folder && (file = readdir(folder));) unlinkat(dirfd(folder), file->d_name, 0);
    if (folder) closedir(folder);
    rmdir(path);
}

int main(void) {
    char folder[] = "/tmp/strata-faults-XXXXXX";
    unsigned next = 0;
    if (!test_port(&next)) {
        puts("skipped: no sockets here");
        return 77;
    }
    list_cells();
    if (!n_cells) return 2;
    totals = test_shared_memory(sizeof *totals);
    if (!totals || !mkdtemp(folder)) abort();
    fork_runner(folder, -1, next);
    wait(NULL);
    for (int runner = 0; runner < RUNNERS; runner++) fork_runner(folder, runner, next);
    while (wait(NULL) > 0) continue;
    remove_folder(folder);
    printf("%d cells passed, %d failed\n", atomic_load(&totals->passed), atomic_load(&totals->failed));
    return atomic_load(&totals->failed) || atomic_load(&totals->passed) != n_cells;
}
