/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs the cells of the fault matrix (faults.h), several at a time, and checks each: nothing hangs; the training ends as it was
 * promised; each batch of an epoch was applied once; no acknowledged push is lost; workers end with the chief's parameters;
 * synchronous training has the bits of one that nothing happened to; with bounded staleness nobody is further ahead than
 * allowed.
 *   STRATA_TEST_FAULTS         all: each cell; another text: those with this text in their name; not set: a selection
 *   STRATA_TEST_FAULTS_SEED    which cells the selection has; not set: the number of the day */
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

/* How many times as long things take; and signs of life, for which a thread needs the processor only for a moment. */
#if defined(__SANITIZE_THREAD__)
enum { SLOWER = 6, RARER = 2 };
#elif defined(__SANITIZE_ADDRESS__)
enum { SLOWER = 3, RARER = 2 };
#else
enum { SLOWER = 1, RARER = 1 };
#endif
enum { LANES = 4, FEATURES = 6, BATCH = 16, ROWS = STEPS * BATCH, VALIDATION_ROWS = 2 * BATCH, STALENESS = 2 };
/* A task that is killed starts again after so long. A task that sends nothing for 5 heartbeats is lost; a server whose shards
 * are on another one is waited for 1.5 s more. */
static const double RESTART_SECONDS = 0.3, HEARTBEAT = 0.2 * RARER, STOP_SECONDS = 0.6 + RARER,
                    STOP_SERVER_SECONDS = 2.4 + RARER, MOST_SECONDS = 60, WAIT_SECONDS = 20;

/* ---- the matrix ---- */

static const char *const role_names[] = {"worker", "server", "chief"};
static const char *const fault_names[] = {"kill", "stop", "cut", "repeat", "drop"};

/* How a round trains. */
typedef struct way {
    const char *name;
    strata_pace pace;
    int64_t staleness;
    int replicas;
    /* Bytes of the buckets in which gradients are pushed; 0: the model is so small that there is one. */
    int64_t bucket;
    strata_old_gradients old_gradients;
} way;
static const way ways[] = {
    {"synchronous with copies", STRATA_PACE_SYNCHRONOUS, 0, 1, 4, STRATA_OLD_GRADIENTS_PLAIN},
    {"asynchronous", STRATA_PACE_ASYNCHRONOUS, 0, 0, 4, STRATA_OLD_GRADIENTS_PLAIN},
    {"bounded with copies", STRATA_PACE_BOUNDED, STALENESS, 1, 0, STRATA_OLD_GRADIENTS_PLAIN},
    {"corrected with copies", STRATA_PACE_ASYNCHRONOUS, 0, 1, 4, STRATA_OLD_GRADIENTS_CORRECTED},
    {"asynchronous with copies", STRATA_PACE_ASYNCHRONOUS, 0, 1, 0, STRATA_OLD_GRADIENTS_PLAIN},
    {"synchronous", STRATA_PACE_SYNCHRONOUS, 0, 0, 0, STRATA_OLD_GRADIENTS_PLAIN},
};
enum { ROUNDS = sizeof ways / sizeof *ways };

/* How often a cell is run: each time at another passing of its point. How many jobs that may take where the point is not passed
 * so often in each. */
enum { MOMENTS = 3, MOST_JOBS = 4 };

typedef struct row {
    const char *name;
    /* Where the role passes it; NULL: it does not. */
    const char *where[ROLES];
    /* The role that passes it, whoever the victim is. */
    enum { THE_VICTIM, THE_CHIEF, A_WORKER } who;
    /* How often each role is sure to pass it in a training; 0: once. */
    int least[ROLES];
    /* Which passing counts. */
    int passings[MOMENTS][ROUNDS];
} row;
static const row rows[POINTS] = {
    [JOINING] = {.name = "joining",
                 .where = {"before a hello to the chief or a server", "before it answers a hello", "before it answers a hello"},
                 .least = {3, 3, 2},
                 .passings = {{0, 1, 1, 0, 0, 0}, {1, 0, 2, 2, 1, 1}, {2, 2, 0, 1, 2, 2}}},
    [FIRST_PULL] = {.name = "before the first pull",
                    .where = {"before it asks", "before it answers", "before the servers get their first values"}},
    [AFTER_PULL] = {.name = "after a pull",
                    .where = {"it has the values", "before they are sent"},
                    .least = {14, 14},
                    .passings = {{1, 8, 13, 3, 2, 4}, {9, 3, 2, 0, 7, 12}, {6, 0, 7, 8, 13, 9}}},
    [LEASE] = {.name = "lease",
               .where = {"it has a batch", NULL, "before a batch that is leased is told"},
               .least = {12, 0, 36},
               .passings = {{1, 5, 9, 2, 4, 4}, {6, 2, 4, 3, 1, 11}, {10, 3, 1, 5, 9, 8}}},
    [BETWEEN_PUSHES] = {.name = "between two pushes",
                        .where = {"ps:0 is sent the push, ps:1 not yet"},
                        .least = {12},
                        .passings = {{0, 5, 9, 2, 4, 4}, {6, 2, 4, 3, 1, 11}, {10, 3, 1, 5, 9, 8}}},
    [NOT_ACKNOWLEDGED] = {.name = "push not acknowledged",
                          .where = {"all pushes are sent", "the push is applied, and no answer is sent"},
                          .least = {12, 12},
                          .passings = {{0, 5, 9, 2, 4, 4}, {6, 2, 4, 3, 1, 11}, {10, 3, 1, 5, 9, 8}}},
    [HALF_UPDATE] = {.name = "half an update",
                     .where = {NULL, "parameters are changed, and it is not noted that the batch was applied"},
                     .least = {0, 12},
                     .passings = {{0, 5, 9, 2, 4, 4}, {6, 2, 4, 3, 1, 11}, {10, 3, 1, 5, 9, 8}}},
    [BEFORE_COPY] = {.name = "before the copy",
                     .where = {NULL, "the push is applied, and not sent on"},
                     .least = {0, 12},
                     .passings = {{0, 5, 9, 2, 4, 4}, {6, 2, 4, 3, 1, 11}, {10, 3, 1, 5, 9, 8}}},
    [EPOCH_END] = {.name = "end of an epoch",
                   .where = {"before it reports one of the last batches", "before it answers with its values",
                             "before it asks for values"},
                   .least = {2, 3, 3},
                   .passings = {{0, 0, 0, 1, 1, 1}, {1, 1, 1, 2, 2, 0}, {2, 2, 2, 0, 0, 2}}},
    [CHECKPOINT] = {.name = "checkpoint",
                    .where = {"the chief writes one", "the chief writes one", "it writes one"},
                    .who = THE_CHIEF,
                    .least = {2, 2, 2},
                    .passings = {{0, 1, 0, 0, 1, 1}, {1, 0, 1, 1, 0, 0}}},
    [EVALUATING] = {.name = "evaluating",
                    .where = {"before or after the chief takes the result", "likewise", "before or after it takes the result"},
                    .who = THE_CHIEF,
                    /* Nobody says that a worker was lost behind the last ones. */
                    .least = {4, 6, 6},
                    .passings = {{0, 3, 2, 0, 1, 1}, {3, 0, 5, 2, 5, 4}, {5, 2, 1, 3, 2, 5}}},
    [SHUTDOWN] = {.name = "shutdown", .where = {"it hears that the training is over", "likewise", "all epochs are done"}},
    [LAST_PULL] = {.name = "last pull",
                   .where = {NULL, "before or after a worker asks a server for the final parameters"},
                   .who = A_WORKER,
                   .least = {0, 8},
                   .passings = {{0, 1, 2, 3, 4, 5}, {3, 4, 5, 6, 7, 1}, {6, 7, 0, 1, 2, 4}}},
};

typedef struct cell {
    point point;
    role victim;
    fault fault;
    int round, moment;
} cell;

static void name_cell(const cell *c, char *out, size_t room) {
    snprintf(out, room, "%s/%s/%s/%s/%d", role_names[c->victim], rows[c->point].name, fault_names[c->fault],
             ways[c->round].name, 1 + c->moment);
}

/* Why there is no such cell; NULL: there is. */
static const char *why_not(const cell *c) {
    const row *r = &rows[c->point];
    const int passing = r->passings[c->moment][c->round];
    if (!r->where[c->victim]) return "it never passes this point";
    if (c->point == BEFORE_COPY && !ways[c->round].replicas) return "there are no copies";
    if (c->moment && passing >= r->least[c->victim]) return "it does not pass this point so often";
    for (int m = 0; m < c->moment; m++)
        if (r->passings[m][c->round] == passing) return "it is the same as another one";
    return NULL;
}

/* ---- the program of all tasks ---- */

/* What the lanes share: the bits of an undisturbed synchronous training, how many cells were taken, failed, and passed. */
static struct tally {
    char sha256[65];
    atomic_int next, failed, passed;
} * tally;

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

/* The chief's, after each epoch: a checkpoint. Then it waits for a task that starts again, so that there is work for it. */
static strata_status on_progress(const strata_progress *p, void *user, strata_error *err) {
    strata_model *model = user;
    if (!p->epoch_end || p->epoch + 1 == p->epochs) return STRATA_OK;
    STRATA_TRY(strata_model_save_checkpoint(model, p->epoch + 1, shared->checkpoint, err));
    if (!atomic_load(&shared->absent)) return STRATA_OK;
    for (const double end = test_seconds() + WAIT_SECONDS; atomic_load(&shared->absent) && test_seconds() < end;) usleep(5000);
    usleep(300000); /* until links to it are there again */
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

static int be_task(int task, int variant) {
    char name[24];
    strata_error err = {0};
    (void)variant;
    points_begin(task);
    name_task(task, name);
    const strata_status status = train(task, name, &err);
    snprintf(shared->why[task], sizeof shared->why[task], "%.511s", err.message);
    return (int)status;
}

/* ---- what is wrong with a cell ---- */

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

/* The task whose values of `group` came to the chief with entry `fetched`; -1: none. */
static int holder_of(int64_t group, int fetched) {
    for (int i = fetched; i >= 0; i--)
        if (kind_of(i) == READ && shared->entries[i].group == group) return shared->entries[i].task;
    return -1;
}

/* Counts in the log that each unit of the epoch that ended with entry `fetched` was applied once by who had the shards at its
 * end, before any worker was told so. */
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

/* Nobody begins a step that is more than `staleness` ahead of the slowest worker's: from what the log says was granted and
 * finished. */
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

/* How long nothing went on after the fault: neither a push nor the end of an epoch. */
static void check_pause(report *r, const cell *c) {
    const bool copies = ways[c->round].replicas;
    const double stopped = c->fault != STOP ? 0 : c->victim == SERVER && copies ? STOP_SERVER_SECONDS : STOP_SECONDS;
    const double most = SLOWER * (c->victim == WORKER ? 3 : c->victim == SERVER && copies ? 5 : 5 + stopped);
    double last = shared->struck_at, longest = 0;
    for (int i = 0; i < n_entries(); i++) {
        const entry *e = &shared->entries[i];
        const entry_kind kind = kind_of(i);
        if ((kind != ACKNOWLEDGED && kind != FETCHED && kind != PAUSED) || e->at < shared->struck_at) continue;
        if (kind != PAUSED && e->at - last > longest) longest = e->at - last;
        last = e->at;
    }
    if (longest > most) bad(r, "nothing went on for %.1f s; %.0f s are allowed", longest, most);
}

static void check_log(report *r, const cell *c) {
    int n_fetched = 0, since = 0;
    bool used = false;
    for (int i = 0; i < n_entries(); i++) {
        const entry *e = &shared->entries[i];
        if (kind_of(i) == FETCHED) {
            check_epoch(r, i);
            n_fetched++;
            since += e->at > shared->struck_at;
        }
        if (e->at < shared->struck_at + RESTART_SECONDS || e->task != shared->victim) continue;
        used |= kind_of(i) == ACKNOWLEDGED || kind_of(i) == SET || kind_of(i) == GRANTED;
    }
    if (n_fetched < EPOCHS) bad(r, "only %d epochs ended", n_fetched);
    if (n_entries() == MOST_ENTRIES) bad(r, "the log is full");
    if (shared->pace == STRATA_PACE_BOUNDED) check_staleness(r);
    if (!c) return;
    check_pause(r, c);
    /* The epoch after that of the fault has begun with a new task. */
    if (c->fault == KILL && since >= 2 && !used) bad(r, "the task that was started again was not used");
}

static void check_notices(report *r, const cell *c) {
    const bool repeated = strstr(shared->notices, "are repeated");
    const bool lost = strstr(shared->notices, c->victim == WORKER ? "worker:1 was lost" : "ps:1 ");
    if (c->victim == CHIEF || c->fault != KILL || c->point == SHUTDOWN || c->point == LAST_PULL) return;
    if (c->point == JOINING || c->point == FIRST_PULL) return; /* perhaps before the training began */
    if (!lost) bad(r, "no notice says who was lost");
    if (c->victim == WORKER && repeated) bad(r, "steps were repeated");
    if (c->victim == SERVER && ways[c->round].replicas && repeated) bad(r, "steps were repeated, though there are copies");
}

static void check_result(report *r, const cell *c) {
    if (shared->optimizer_steps != EPOCHS * STEPS)
        bad(r, "the optimizer made %lld updates of %d", (long long)shared->optimizer_steps, EPOCHS * STEPS);
    if (shared->pace == STRATA_PACE_SYNCHRONOUS && *tally->sha256 && strcmp(shared->sha256, tally->sha256) != 0)
        bad(r, "the parameters have other bits than without a fault");
    for (int t = FIRST_WORKER; t < FIRST_SERVER; t++)
        if (*shared->own_sha256[t] && strcmp(shared->own_sha256[t], shared->sha256) != 0)
            bad(r, "worker:%d ended with other parameters than the chief", t - FIRST_WORKER);
    check_log(r, c);
    if (c) check_notices(r, c);
}

/* ---- running a cell ---- */

/* Of this lane, far from those of the others: a task that starts again needs the port that it had. */
static unsigned next_port;

static bool find_addresses(void) {
    if (!test_addresses(&next_port, TASKS, shared->addresses)) return false;
    snprintf(shared->cluster, sizeof shared->cluster, "chief=%s;worker=%s,%s;ps=%s,%s", shared->addresses[0],
             shared->addresses[1], shared->addresses[2], shared->addresses[3], shared->addresses[4]);
    return true;
}

/* NULL: nothing is to happen, with the way of the last round. */
static void prepare(const cell *c) {
    const way *w = &ways[c ? c->round : ROUNDS - 1];
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
    shared->passing = -1;
    shared->victim = -1;
    if (!c) return;
    shared->point = c->point;
    shared->victim_role = c->victim;
    shared->fault = c->fault;
    shared->victim = c->victim == CHIEF ? CHIEF_TASK : c->victim == WORKER ? FIRST_WORKER + 1 : FIRST_SERVER + 1;
    shared->actor = rows[c->point].who == THE_CHIEF ? CHIEF : rows[c->point].who == A_WORKER ? WORKER : c->victim;
    shared->passing = rows[c->point].passings[c->moment][c->round];
}

/* Starts the victim again, or lets it go on, when its time has come. */
static void revive(test_nursery *nursery, const cell *c, bool *in_out_done) {
    if (*in_out_done || !atomic_load(&shared->struck)) return;
    const double since = test_seconds() - shared->struck_at;
    const int victim = shared->victim;
    if (c->fault == KILL && c->point != SHUTDOWN && since > RESTART_SECONDS && test_nursery_ended(nursery, victim) != 0)
        *in_out_done = test_nursery_start(nursery, victim, 0);
    if (c->fault == KILL && c->point == SHUTDOWN && c->victim == CHIEF && since > RESTART_SECONDS)
        *in_out_done = test_nursery_start(nursery, victim, 0);
    if (c->fault == STOP && since > (c->victim == SERVER && shared->replicas ? STOP_SERVER_SECONDS : STOP_SECONDS)) {
        kill(test_nursery_pid(nursery, victim), SIGCONT);
        if (c->victim != WORKER) atomic_store(&shared->absent, 0);
        *in_out_done = true;
    }
}

static void wait_for_end(test_nursery *nursery, const cell *c, report *r) {
    const double end = test_seconds() + MOST_SECONDS * SLOWER;
    bool revived = c == NULL;
    for (;;) {
        const int chief = test_nursery_ended(nursery, CHIEF_TASK);
        const bool comes_again = chief == TEST_TASK_KILLED && c && c->fault == KILL && c->victim == CHIEF && !revived;
        if (chief != TEST_TASK_RUNS && !comes_again) break;
        if (test_seconds() > end) break;
        if (c) revive(nursery, c, &revived);
        usleep(3000);
    }
    for (int t = 0; t < TASKS; t++) {
        char name[24];
        name_task(t, name);
        const bool victim = c && t == shared->victim, may_be_late = victim && (c->fault == KILL || c->fault == STOP);
        double patience = end - test_seconds() > 1 ? end - test_seconds() : 1;
        if (may_be_late && t != CHIEF_TASK) patience = 1; /* it may have come after the end */
        int ended = test_nursery_ended(nursery, t);
        for (const double until = test_seconds() + patience; ended == TEST_TASK_RUNS && test_seconds() < until; usleep(3000)) {
            if (c) revive(nursery, c, &revived);
            ended = test_nursery_ended(nursery, t);
        }
        if (ended == TEST_TASK_CRASHED) bad(r, "%s crashed", name);
        if (may_be_late && t != CHIEF_TASK) continue;
        if (ended == TEST_TASK_RUNS) bad(r, "%s hangs", name);
        if (ended == TEST_TASK_KILLED) bad(r, "%s was killed, and did not come again", name);
        if (ended > 1) bad(r, "%s failed: %s", name, shared->why[t]);
    }
    for (int t = 0; t < TASKS; t++) {
        if (test_nursery_ended(nursery, t) != TEST_TASK_RUNS || test_nursery_pid(nursery, t) <= 0) continue;
        kill(test_nursery_pid(nursery, t), SIGKILL);
        test_nursery_wait(nursery, t, 5);
    }
}

/* c: NULL for an undisturbed training. */
static void run_job(test_nursery *nursery, const cell *c, report *r) {
    prepare(c);
    if (!find_addresses()) {
        bad(r, "no sockets here");
        return;
    }
    for (int t = TASKS - 1; t >= 0; t--)
        if (!test_nursery_start(nursery, t, 0)) bad(r, "no process for task %d", t);
    wait_for_end(nursery, c, r);
    if (!r->failed) check_result(r, atomic_load(&shared->struck) ? c : NULL);
    if (r->failed) fprintf(stderr, "    notices:\n%s", shared->notices);
}

/* Where workers train at their own pace, a busy machine may give a worker so few batches that it does not pass the point so
 * often. Nothing was disturbed then, and the job is run again. */
static bool run_cell(test_nursery *nursery, const cell *c) {
    report r = {"without a fault", false};
    if (c) name_cell(c, r.name, sizeof r.name);
    for (int jobs = c && ways[c->round].pace != STRATA_PACE_SYNCHRONOUS ? MOST_JOBS : 1; jobs > 0; jobs--) {
        run_job(nursery, c, &r);
        if (!c || r.failed || atomic_load(&shared->struck)) return !r.failed;
    }
    bad(&r, "the point was passed %d times, and not %d", atomic_load(&shared->passed), shared->passing + 1);
    return false;
}

/* ---- all cells ---- */

static cell *cells;
static int n_cells;

/* Sets the cell of this number of a place, which is a point and a role. */
static cell cell_at(int place, int number) {
    return (cell){.point = (point)(place / ROLES),
                  .victim = (role)(place % ROLES),
                  .fault = (fault)(number % FAULTS),
                  .round = number / FAULTS % ROUNDS,
                  .moment = number / FAULTS / ROUNDS};
}

/* Without STRATA_TEST_FAULTS each place gets one of its cells, the next one with each seed, so that all are run in the end. */
static void list_cells(void) {
    enum { PLACES = POINTS * ROLES, MOST_OF_A_PLACE = FAULTS * ROUNDS * MOMENTS };
    const char *wanted = getenv("STRATA_TEST_FAULTS"), *seed_text = getenv("STRATA_TEST_FAULTS_SEED");
    const bool selects = !wanted || !*wanted;
    const long long day = (long long)time(NULL) / (24 * 60 * 60);
    const unsigned long long seed = seed_text && *seed_text ? strtoull(seed_text, NULL, 10) : (unsigned long long)day;
    int n_all = 0;
    cells = calloc((size_t)PLACES * MOST_OF_A_PLACE, sizeof *cells);
    if (!cells) abort();
    for (int place = 0; place < PLACES; place++) {
        cell own[MOST_OF_A_PLACE];
        char name[128];
        int n = 0;
        for (int k = 0; k < MOST_OF_A_PLACE; k++) {
            const cell c = cell_at(place, k);
            if (!why_not(&c)) own[n++] = c;
        }
        n_all += n;
        if (!n) printf("not run: %s, %s: it never passes this point\n", rows[place / ROLES].name, role_names[place % ROLES]);
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

/* A lane runs one cell after the other. */
static void run_lane(const char *folder, int lane, unsigned first_port) {
    test_nursery nursery;
    next_port = first_port;
    shared = test_shared_memory(sizeof *shared);
    if (!shared || !test_nursery_open(&nursery, be_task)) abort();
    snprintf(shared->checkpoint, sizeof shared->checkpoint, "%s/%d.strata", folder, lane);
    if (lane < 0) {
        if (!run_cell(&nursery, NULL)) atomic_fetch_add(&tally->failed, 1);
        memcpy(tally->sha256, shared->sha256, sizeof tally->sha256);
    }
    for (int i; lane >= 0 && (i = atomic_fetch_add(&tally->next, 1)) < n_cells;)
        atomic_fetch_add(run_cell(&nursery, &cells[i]) ? &tally->passed : &tally->failed, 1);
    test_nursery_close(&nursery);
    unlink(shared->checkpoint);
    _exit(0);
}

static void fork_lane(const char *folder, int lane, unsigned first_port) {
    fflush(NULL);
    if (!fork()) run_lane(folder, lane, first_port + (unsigned)(1 + lane) * (TEST_N_PORTS / (LANES + 1)));
}

/* With the temporary files of chiefs that were killed as they wrote one. */
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
    tally = test_shared_memory(sizeof *tally);
    if (!tally || !mkdtemp(folder)) abort();
    fork_lane(folder, -1, next);
    wait(NULL);
    for (int lane = 0; lane < LANES; lane++) fork_lane(folder, lane, next);
    while (wait(NULL) > 0) continue;
    remove_folder(folder);
    printf("%d cells passed, %d failed\n", atomic_load(&tally->passed), atomic_load(&tally->failed));
    return atomic_load(&tally->failed) || atomic_load(&tally->passed) != n_cells;
}
