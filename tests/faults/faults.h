/* SPDX-License-Identifier: Apache-2.0
 *
 * The fault matrix of the parameter server strategy. A *cell* is one fault that strikes one task, the *victim*, when a certain
 * point of the training is passed. faults_main.c runs a job of processes for each cell, and checks what became of it from a log
 * that all processes write; points.c passes the points and writes the log.
 *
 * The library has no hooks for this: the linker's --wrap puts functions of points.c before functions of the library, in this
 * program only. */
#ifndef STRATA_TESTS_FAULTS_FAULTS_H
#define STRATA_TESTS_FAULTS_FAULTS_H

#include <stdatomic.h>
#include <stdint.h>

#include "strategies/parameter_server/task.h"
#include "tests/support/nursery.h"

enum {
    WORKERS = 2,
    SERVERS = 2,
    TASKS = 1 + WORKERS + SERVERS,
    CHIEF_TASK = 0,
    FIRST_WORKER = 1,
    FIRST_SERVER = 1 + WORKERS,
    EPOCHS = 3,
    STEPS = 12,
    MOST_ENTRIES = 1 << 14,
};

typedef enum role { WORKER, SERVER, CHIEF, ROLES } role;

/* In the order of a training. faults_main.c has a sentence for each. */
typedef enum point {
    JOINING,
    FIRST_PULL,
    AFTER_PULL,
    LEASE,
    BETWEEN_PUSHES,
    NOT_ACKNOWLEDGED,
    HALF_UPDATE,
    BEFORE_COPY,
    EPOCH_END,
    CHECKPOINT,
    EVALUATING,
    SHUTDOWN,
    LAST_PULL,
    POINTS,
} point;

typedef enum fault {
    /* SIGKILL; the task is started again. */
    KILL,
    /* SIGSTOP, for longer than a silent task is waited for; then SIGCONT. */
    STOP,
    /* All connections of the victim are reset. */
    CUT,
    /* The next request or reply that the victim sends is sent twice; is not sent. */
    REPEAT,
    DROP,
    FAULTS,
} fault;

typedef enum entry_kind {
    NO_ENTRY,
    /* By servers: a push was new to the store of `group` (in synchronous training it is kept); its values were set, or
     * read for the chief. */
    APPLIED,
    SET,
    READ,
    /* By a server: it listens. */
    LISTENS,
    /* By a worker: a server has answered its push. */
    ACKNOWLEDGED,
    /* By the chief: it begins; an epoch begins; its values have come; it waited for a task to start again. */
    CHIEF_BEGINS,
    EPOCH_BEGINS,
    FETCHED,
    PAUSED,
    /* By the chief, about `worker`, in the order in which the pace saw it. */
    JOINS,
    LOST,
    GRANTED,
    FINISHED,
} entry_kind;

typedef struct entry {
    /* entry_kind; written last. */
    atomic_int kind;
    int task, worker;
    double at;
    int64_t group, epoch, index;
    int share;
} entry;

/* What the processes of a lane share. */
typedef struct board {
    /* The cell. */
    point point;
    role victim_role;
    fault fault;
    int victim;
    /* The role whose passing of the point counts: the victim's own, or another one. */
    role actor;
    /* Strikes at this passing, counted from 0; -1: never. */
    int passing;
    /* How the job trains. */
    strata_pace pace;
    int64_t staleness, bucket;
    int replicas;
    strata_old_gradients old_gradients;
    char addresses[TASKS][32], cluster[256], checkpoint[256];
    pid_t pids[TASKS];
    /* What happened. */
    atomic_int passed, struck;
    /* What happens to the victim's next request or reply (wire.h). */
    atomic_int frame_fault;
    /* The victim was killed and is not yet there again. */
    atomic_int absent;
    double struck_at;
    /* Of tasks that failed. */
    char why[TASKS][512];
    /* Of the chief that ended. */
    char sha256[65], notices[4096];
    /* Of each worker that ended: the model that it has then. */
    char own_sha256[TASKS][65];
    int64_t optimizer_steps;
    int epochs;
    atomic_int n_entries;
    entry entries[MOST_ENTRIES];
} board;

extern board *shared;

/* What this process is; before it uses the library. */
void points_begin(int task);
void points_log(entry_kind kind, entry what);
role role_of(int task);

#endif
