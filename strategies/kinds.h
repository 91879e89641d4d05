/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of a kind of strategy. A new kind needs strategies/<name>.c, which defines strata_strategy_<name>, a row in
 * strategies.def, and a test. */
#ifndef STRATA_STRATEGIES_KINDS_H
#define STRATA_STRATEGIES_KINDS_H

#include "core/run/strategy.h"
#include "strata/cluster.h"

/* The ids of devices that will be opened. */
typedef struct strata_device_choice {
    /* [n] Ids of rows; there is room for all devices of the machine. */
    const char **ids;
    int n;
    /* Why these devices were chosen, for the strategy's description. */
    char reason[128];
} strata_device_choice;

/* The devices of a mesh. Its axis is `data`. */
typedef enum strata_mesh_devices {
    STRATA_MESH_OF_PROCESS = 0,
    /* Those of all processes of a job, which a communicator connects. */
    STRATA_MESH_OF_JOB,
    /* All cores of one system (tpu.c); a single host needs no communicator. */
    STRATA_MESH_OF_SYSTEM,
    /* The device of a task: of a chief, a worker or a parameter server, which no communicator connects
     * (strategies/parameter_server). */
    STRATA_MESH_OF_TASK
} strata_mesh_devices;

typedef struct strata_strategy_kind {
    const char *name;
    /* How many devices a user may name: 0 none, -1 any number. */
    int most_devices;
    strata_mesh_devices mesh;
    /* The devices are a grid with the axes of strata_strategy_options.mesh. */
    bool has_mesh;
    /* Where the update is made; slots and the epoch's sums are there too. {0}: on every device, which has a copy of the
     * parameters. `at`: on one device, which sends the new parameters to the others. `own`: every replica trains on its own
     * examples with parameters and states of its own. */
    strata_placement update;
    /* With `own`: builds the program that runs after every strata_strategy_options.every updates, at the end of an epoch and at
     * the end of a fit. */
    strata_average *average;
    /* Adds to `choice` the devices that are used when the user names none, of `rows`, all devices of the machine (optional;
     * NULL: strata_choose_accelerators). */
    strata_status (*choose)(const strata_device_info *rows, int n_rows, strata_device_choice *choice, strata_error *err);
} strata_strategy_kind;

/* The name of a strategy of this kind with n devices; 0: none is named. "auto" becomes the one that it stands for. */
const char *strata_strategy_name_of(const strata_strategy_kind *kind, int n);
/* Like strata_strategy_create, for a kind that may have no row in strategies.def. */
STRATA_MUST_USE strata_status strata_strategy_of_kind(const strata_strategy_kind *kind, const strata_strategy_options *opts,
                                                      strata_strategy **out_strategy, strata_error *err);
/* Like strata_strategy_from_devices, for a kind. opts->devices is not used. opts may be NULL. */
STRATA_MUST_USE strata_status strata_strategy_of_devices(const strata_strategy_kind *kind, strata_device *const *devices,
                                                         int n_devices, const strata_strategy_options *opts,
                                                         strata_strategy **out_strategy, strata_error *err);
/* Adds the accelerators among the rows to the choice, each device once. If several APIs list devices of the same name, those
 * of the API that lists the most of them are used. If there is no accelerator: as strata_choose_best. */
STRATA_MUST_USE strata_status strata_choose_accelerators(const strata_device_info *rows, int n_rows,
                                                         strata_device_choice *choice, strata_error *err);
/* Divides the devices among the local_size workers on this machine: keeps those of worker local_rank, which are consecutive.
 * If there are fewer devices than workers, each worker gets one device, which it shares with others. */
void strata_choice_divide(strata_device_choice *choice, int local_rank, int local_size);
/* Chooses the device that strata_device_open(NULL) opens. */
STRATA_MUST_USE strata_status strata_choose_best(const strata_device_info *rows, int n_rows, strata_device_choice *choice,
                                                 strata_error *err);

/* ---- multi_worker_mirrored.c: a strategy that is one of several workers of a job ---- */

/* Makes the strategy one of the communicator's workers: sends the number of its replicas to the other workers, and receives
 * theirs. Every worker must call it. The communicator is borrowed. */
STRATA_MUST_USE strata_status strata_strategy_join(strata_strategy *strategy, strata_communicator *communicator,
                                                   strata_error *err);

/* If `opts` has no communicator, connects the workers that the environment names (strata_cluster_spec_resolve; STRATA_SECRET).
 * Stores the communicator, which the caller destroys, and this worker's rank on its machine in `opts`. A single worker of a
 * kind that needs no communicator gets none. */
STRATA_MUST_USE strata_status strata_strategy_meet(const strata_strategy_kind *kind, strata_strategy_options *opts,
                                                   strata_error *err);

/* ---- tpu.c: strategies whose devices are the cores of one system ---- */

/* Keeps, of the devices that the strategy has opened, those of the system that opts->tpu_address names, in the order of their
 * numbers in the system. named: the user has named the devices, so all of them must belong to the system. Fails: INVALID,
 * UNAVAILABLE, UNSUPPORTED; the message lists the systems. */
STRATA_MUST_USE strata_status strata_tpu_arrange(strata_strategy *strategy, const strata_strategy_options *opts, bool named,
                                                 char reason[128], strata_error *err);

/* Finds out whether the strategy's devices are cores of one system that do collectives themselves, and if so fills
 * strategy->cores. Works for any kind of strategy; called when the strategy's workers are known. */
STRATA_MUST_USE strata_status strata_strategy_find_cores(strata_strategy *strategy, strata_error *err);

/* ---- parameter_server/parameter_server.c ---- */

/* Whether the options fit the strategy. */
STRATA_MUST_USE strata_status strata_parameter_server_check(const strata_strategy_options *opts, strata_error *err);
/* Finds this task in its cluster, and sets the strategy's trainer. Connections are made only by fit. */
STRATA_MUST_USE strata_status strata_parameter_server_join(strata_strategy *strategy, const strata_strategy_options *opts,
                                                           strata_error *err);
/* The device of this task: for a server the parameter device. NULL: the options or the strategy choose it. */
const char *strata_parameter_server_device(const strata_strategy *strategy, const strata_strategy_options *opts);
/* "worker:1 of a chief, 3 workers and 2 servers": for the strategy's description. */
const char *strata_parameter_server_role(const strata_strategy *strategy);

#define STRATA_STRATEGY(name) extern const strata_strategy_kind strata_strategy_##name;
#include "strategies/strategies.def"
#undef STRATA_STRATEGY

#endif
