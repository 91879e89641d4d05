/* SPDX-License-Identifier: Apache-2.0
 *
 * Fault injection for the parameter server strategy. In a *cell* of the fault matrix one fault is injected into one task, the
 * *victim*, when a task reaches a certain point of the training. faults_main.c starts the processes of a job for each cell. All
 * processes write a log, from which faults_main.c then checks the training. points.c detects that a point is reached, injects
 * the fault and writes the log.
 *
 * The library has no hooks for this. In this program only, the linker's option --wrap replaces functions of the library by
 * functions of points.c and wire.c, which call the originals. */
#ifndef STRATA_TESTS_FAULTS_FAULTS_H
#define STRATA_TESTS_FAULTS_FAULTS_H

#include <stdatomic.h>
#include <stdint.h>

#include "strategies/parameter_server/task.h"
#include "tests/support/fork_server.h"

enum {
    WORKERS = 3,
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

/* Points of the code, in the order in which a training reaches them. The table `rows` in faults_main.c describes them. */
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
    /* The victim gets SIGKILL and is started again. */
    KILL,
    /* The victim gets SIGSTOP and, after the timeout of a silent task, SIGCONT. */
    STOP,
    /* All connections of the victim are reset. */
    CUT,
    /* The next request or reply of the victim is sent twice. */
    REPEAT,
    /* The next request or reply of the victim is not sent. */
    DROP,
    FAULTS,
} fault;

/* What an entry of the log reports. */
typedef enum entry_kind {
    NO_ENTRY,
    /* A server applied a push to its store of `group`, which it had not yet applied. Synchronous training only stores it. */
    APPLIED,
    /* A server received the values of `group` from the chief. */
    SET,
    /* A server read the values of `group` for the chief. */
    READ,
    /* A server listens. */
    LISTENS,
    /* A worker received a server's reply to its push. */
    ACKNOWLEDGED,
    /* The chief starts the training. */
    CHIEF_BEGINS,
    /* The chief starts an epoch. */
    EPOCH_BEGINS,
    /* The chief received the values of all servers at the end of an epoch. */
    FETCHED,
    /* The chief waited until a killed task had started again. */
    PAUSED,
    /* At the chief, `worker` joined, was lost, received a batch, or finished a batch. */
    JOINS,
    LOST,
    GRANTED,
    FINISHED,
} entry_kind;

typedef struct entry {
    /* An entry_kind. It is written after all other fields. */
    atomic_int kind;
    /* The task that wrote the entry, and the worker that it concerns. */
    int task, worker;
    double at;
    int64_t group, epoch, index;
    int share;
} entry;

/* Memory that all processes of one job share. */
typedef struct shared_state {
    /* The cell. */
    point point;
    role victim_role;
    fault fault;
    int victim;
    /* The role that reaches the point: the victim's own role, or another one. */
    role actor;
    /* The fault is injected when the point is reached for this time, counted from 0. -1: never. */
    int occurrence;
    /* The options of the training. */
    strata_pace pace;
    int64_t staleness, bucket;
    int replicas;
    strata_old_gradients old_gradients;
    char addresses[TASKS][32], cluster[256], checkpoint[256];
    pid_t pids[TASKS];
    /* How often the point was reached, and whether the fault was injected. */
    atomic_int reached, injected;
    /* The fault of the victim's next request or reply: one of FRAME_* in wire.h. */
    atomic_int frame_fault;
    /* The victim was killed or stopped, and has not yet joined again. */
    atomic_int absent;
    double injected_at;
    /* The error messages of tasks that failed. */
    char why[TASKS][512];
    /* Results of the chief: the hash of the parameters, and the notices about lost tasks. */
    char sha256[65], notices[4096];
    /* The hash of the parameters of each worker that has ended. */
    char own_sha256[TASKS][65];
    int64_t optimizer_steps;
    int epochs;
    atomic_int n_entries;
    entry entries[MOST_ENTRIES];
} shared_state;

extern shared_state *shared;

/* A process calls this before it uses the library, with the number of its task. */
void points_begin(int task);
/* Appends an entry to the log. */
void points_log(entry_kind kind, entry what);
role role_of(int task);

#endif
