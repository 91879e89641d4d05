/* SPDX-License-Identifier: Apache-2.0
 *
 * What a kind of strategy consists of. A new one is strategies/<name>.c with its strata_strategy_<name>, a row in
 * strategies.def, its test. */
#ifndef STRATA_STRATEGIES_KINDS_H
#define STRATA_STRATEGIES_KINDS_H

#include "core/run/strategy.h"

/* Devices by id, to be opened. */
typedef struct strata_device_choice {
    char (*ids)[32];
    int n, capacity;
    /* Why these devices were chosen, for the strategy's description. */
    char reason[128];
} strata_device_choice;
STRATA_MUST_USE strata_status strata_choice_add(strata_device_choice *choice, const char *id, strata_error *err);

typedef struct strata_strategy_kind {
    const char *name;
    /* How many devices a user may name: 0 none, -1 any number. */
    int most_devices;
    /* The strategy spans several processes, which a communicator connects. */
    bool workers;
    /* Its devices are cores of one system (strategies/tpu.h); a single worker needs no communicator. */
    bool cores;
    /* One device owns the optimizer's slots and makes the update for all replicas. Not together with `rewrite`. */
    bool central;
    /* Its tasks are a chief, workers and parameter servers, which no communicator connects (strategies/parameter_server). */
    bool servers;
    /* How the training step differs from "add up the gradients of all replicas, then update". Every replica makes the update of
     * its own copy then. NULL: the step does not differ. */
    const strata_step_rewrite *rewrite;
    /* Adds to `choice` the devices that are used when the user names none (optional; NULL: those that mirrored uses).
     *   rows      [n_rows] all devices of the machine
     *   out_kind  *out_kind is this kind when the function is called; "auto" sets it to the kind that it stands for */
    strata_status (*choose)(const strata_device_info *rows, int n_rows, strata_device_choice *choice,
                            const struct strata_strategy_kind **out_kind, strata_error *err);
} strata_strategy_kind;

/* strata_strategy_create of a kind, which need not have a row. */
STRATA_MUST_USE strata_status strata_strategy_of_kind(const strata_strategy_kind *kind, const strata_strategy_options *opts,
                                                      strata_strategy **out_strategy, strata_error *err);
/* As strata_strategy_from_devices, of a kind; opts->devices is not read. opts may be NULL. */
STRATA_MUST_USE strata_status strata_strategy_of_devices(const strata_strategy_kind *kind, strata_device *const *devices,
                                                         int n_devices, const strata_strategy_options *opts,
                                                         strata_strategy **out_strategy, strata_error *err);
/* Accelerators among the rows, each once: where several APIs show devices of one name, the API that shows most of them gives
 * them. */
STRATA_MUST_USE strata_status strata_choose_accelerators(const strata_device_info *rows, int n_rows,
                                                         strata_device_choice *choice, strata_error *err);
/* Leaves worker local_rank's part of several devices, of local_size workers on this machine: runs of them; where there are
 * fewer devices than workers, one, which workers share. */
void strata_choice_divide(strata_device_choice *choice, int local_rank, int local_size);
/* The best device, as strata_device_open(NULL) takes it. */
STRATA_MUST_USE strata_status strata_choose_best(const strata_device_info *rows, int n_rows, strata_device_choice *choice,
                                                 strata_error *err);

/* rewrite.c: a strata_step_rewrite's `gradients` by which each replica's optimizer takes the mean gradient of the replica's own
 * examples, without an exchange; zeros where it has none. */
strata_tensor *strata_rewrite_own_mean(const strata_step_replica *replica, strata_tensor *own, strata_tensor *share);

/* mirrored.c: every device updates its own copy of the variables, with the sum that all of them take. */
extern const strata_step_exchanges strata_exchanges_to_all;
/* central_storage.c: one device takes the sums, updates, and sends the new values to the other devices of its worker. */
extern const strata_step_exchanges strata_exchanges_through_one;
/* multi_worker_mirrored.c: as the devices of each worker do among themselves; then every device takes worker 0's new values. */
extern const strata_step_exchanges strata_exchanges_of_chief;

#define STRATA_STRATEGY(name) extern const strata_strategy_kind strata_strategy_##name;
#include "strategies/strategies.def"
#undef STRATA_STRATEGY

#endif
