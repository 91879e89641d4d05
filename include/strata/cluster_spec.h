/* SPDX-License-Identifier: Apache-2.0
 *
 * Describes the cluster of a job: its tasks, which of them this process is, and the address at which the tasks meet. The
 * description is read from the places where launchers write it. Nothing in this header opens a connection.
 *
 *     strata_cluster_spec spec;
 *     STRATA_TRY(strata_cluster_spec_resolve(NULL, &spec, err));     from TF_CONFIG, torchrun, Open MPI, MPICH, Slurm, TPU or
 *                                                                    Kubernetes; otherwise there is one worker
 *     spec.rank, spec.world_size, spec.is_chief, spec.rendezvous
 *     strata_cluster_spec_finish(&spec);
 *
 * A *task* is one process; the tasks of one *type* are a *job*. Chief and workers train together and are called the *world*.
 * If there is a chief, it is rank 0, and the workers follow it. Parameter servers and the evaluator have no rank in the world.
 *
 * All tasks of the cluster also have a number from 0 to all_size - 1, the *all_rank*: first the world in the order of its
 * ranks, then the parameter servers, then the evaluator. A program that needs all tasks creates its communicator with these
 * numbers (strata_communicator_options: rank = all_rank, world = all_size) and splits it by type. */
#ifndef STRATA_CLUSTER_SPEC_H
#define STRATA_CLUSTER_SPEC_H

#include <stdbool.h>

#include "strata/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum strata_task_type {
    STRATA_TASK_CHIEF, /* 0 or 1 */
    STRATA_TASK_WORKER,
    STRATA_TASK_PS,
    STRATA_TASK_EVALUATOR, /* 0 or 1; not part of training */
    STRATA_TASK_TYPES
} strata_task_type;

/* "chief", "worker", "ps", "evaluator". Static memory. */
STRATA_API const char *strata_task_type_name(strata_task_type type);

enum { STRATA_CLUSTER_MAX_TASKS = 65536 };

typedef struct strata_cluster_job {
    int n_tasks;
    char **addresses; /* n_tasks of "host:port" ("[::1]:2222" for IPv6); NULL where the launcher names only the rendezvous */
} strata_cluster_job;

/* Plain values, which the struct owns. Read them, but do not change them. */
typedef struct strata_cluster_spec {
    /* Which resolver found it: "--cluster", "TF_CONFIG", "torchrun", "Open MPI", "MPICH", "Slurm", "TPU", "Kubernetes", "none".
     * Static memory. */
    const char *source;
    strata_cluster_job jobs[STRATA_TASK_TYPES];
    /* The type and the index of this process. The index is that within its job. */
    strata_task_type task_type;
    int task_index;
    /* In [0, world_size); -1 for a ps and the evaluator. */
    int rank;
    /* The number of chief and workers together, at least 1. */
    int world_size;
    /* The number among all tasks of the cluster, in [0, all_size), in the order chief, workers, ps, evaluator. For chief and
     * workers it equals rank. -1 for an evaluator that the cluster does not list. */
    int all_rank, all_size;
    /* The index of this process among the local_size tasks of its host, which divide the devices of the host by these
     * indices. */
    int local_rank, local_size;
    /* This task writes files: it is the chief, worker 0 of a cluster without a chief, or the evaluator. */
    bool is_chief;
    /* "host:port" where rank 0 listens; NULL in a world of one worker whose launcher names no address. */
    char *rendezvous;
} strata_cluster_spec;

/* A function that looks up environment variables; NULL: the process's own environment. `get` returns NULL for a variable
 * that is not set. */
typedef struct strata_environment {
    const char *(*get)(void *context, const char *name);
    void *context;
} strata_environment;

typedef struct strata_cluster_options {
    /* The cluster as text, which has precedence over the environment. NULL: STRATA_CLUSTER, else what a launcher set:
     *   "a:2222,b:2222"                          two workers
     *   "chief=a:2222;worker=b:2222,c:2222"      jobs; chief, worker, ps, evaluator
     *   "@FILE"                                  the same in a file, a newline like ";", comments from # to the end of the
     *                                            line */
    const char *cluster;
    /* This task. With `cluster`: "worker:1", "chief", or "1" for worker 1 of a cluster without a chief; NULL: STRATA_TASK.
     * Without `cluster` it must be the task that the environment names. */
    const char *task;
    const char *rendezvous; /* "host:port" instead of rank 0's address; NULL: STRATA_RENDEZVOUS, else the resolver's */
    strata_environment environment;
} strata_cluster_options;

/* Finds the cluster. The first of these sources that is there determines it: `cluster`, TF_CONFIG, torchrun (RANK, WORLD_SIZE),
 * Open MPI (OMPI_COMM_WORLD_*), MPICH and libraries derived from it (MPI_LOCALRANKID, PMI_*), Slurm (a step's SLURM_*), the
 * hosts of a TPU (TPU_WORKER_HOSTNAMES), Kubernetes indexed jobs (JOB_COMPLETION_INDEX); else it is a world of one.
 * cluster/resolver/README.md has the variables of each.   opts may be NULL. STRATA_ROLES=chief=1,worker=3,ps=2,evaluator=1
 * gives types to the tasks of launchers that only count them (all but `cluster` and TF_CONFIG), in this order; without "worker"
 * the tasks that remain are workers. The counts must add up to the launcher's.
 * Fails: INVALID for a wrong task or rendezvous, DATA for a wrong cluster, variable or file (what, where, what was expected),
 * UNAVAILABLE for a file that is not there; *out_spec is zeroed then. */
STRATA_API STRATA_MUST_USE strata_status strata_cluster_spec_resolve(const strata_cluster_options *opts,
                                                                     strata_cluster_spec *out_spec, strata_error *err);
STRATA_API void strata_cluster_spec_finish(strata_cluster_spec *spec); /* a zeroed spec is fine */

/* The type of the task with this all_rank, and its index within its job (out_index may be NULL). Returns STRATA_TASK_TYPES
 * where there is no such task. */
STRATA_API strata_task_type strata_cluster_spec_task(const strata_cluster_spec *spec, int all_rank, int *out_index);
/* "host:port" of a rank, borrowed; NULL where it is not known. */
STRATA_API const char *strata_cluster_spec_address(const strata_cluster_spec *spec, int rank);

#ifdef __cplusplus
}
#endif
#endif
