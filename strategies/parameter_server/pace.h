/* SPDX-License-Identifier: Apache-2.0
 *
 * Decides which worker may compute which batch, and when. An epoch's batches are assigned to workers as *leases*: a worker that
 * requests work gets the next batch (in synchronous training the next share of the open step), unless it must wait for others.
 * If a worker is lost, its unfinished leases are assigned to other workers, so each batch of an epoch counts once. A worker's
 * *clock* is the number of leases that it has finished; a worker that joins begins with the slowest worker's clock.
 *
 *   ASYNCHRONOUS   no worker waits
 *   BOUNDED        a worker waits while its next step would be more than `staleness` steps ahead of the slowest worker's clock
 *   SYNCHRONOUS    a step has n_shares shares and ends when all but `backup` of them are finished; those that are late do not
 *                  count
 *
 * This file only does bookkeeping: it uses no threads, no network and no clock. The caller must hold a lock. */
#ifndef STRATA_STRATEGIES_PARAMETER_SERVER_PACE_H
#define STRATA_STRATEGIES_PARAMETER_SERVER_PACE_H

#include "strata/strategy.h"
#include "strategies/parameter_server/stock.h"

typedef struct strata_ps_pace strata_ps_pace;

typedef struct strata_ps_pace_options {
    strata_pace pace;
    /* For BOUNDED; at least 1. */
    int64_t staleness;
    /* For SYNCHRONOUS: the shares of a step, and how many of them a step may end without. */
    int n_shares, backup;
    /* Workers have the numbers 0 to n_workers - 1. */
    int n_workers;
} strata_ps_pace_options;

STRATA_MUST_USE strata_status strata_ps_pace_create(const strata_ps_pace_options *opts, strata_ps_pace **out_pace,
                                                    strata_error *err);
void strata_ps_pace_destroy(strata_ps_pace *pace);

/* Begins an epoch of n_steps batches (or groups of accumulated batches) at step `first`. Forgets all leases. */
void strata_ps_pace_begin(strata_ps_pace *pace, int64_t epoch, int64_t first, int64_t n_steps);
/* A worker has connected, for the first time or again. Its earlier leases are assigned to others. */
void strata_ps_pace_join(strata_ps_pace *pace, int worker);
/* The worker is lost. Returns how many unfinished leases it had. */
int strata_ps_pace_lose(strata_ps_pace *pace, int worker);

typedef enum strata_ps_grant {
    STRATA_PS_GRANTED,
    /* Another worker has to finish first. */
    STRATA_PS_WAIT,
    /* Every batch of the epoch is finished or leased. */
    STRATA_PS_NONE_LEFT,
} strata_ps_grant;
strata_ps_grant strata_ps_pace_ask(strata_ps_pace *pace, int worker, strata_ps_unit *out_unit);

typedef enum strata_ps_finished {
    /* The unit counts. */
    STRATA_PS_COUNTS,
    /* It counts, and it ended the synchronous step. */
    STRATA_PS_ENDS_STEP,
    /* Another worker has finished it before, or its step ended without it. */
    STRATA_PS_TOO_LATE,
} strata_ps_finished;
/* empty: a synchronous share has no examples, or its gradients were not finite. It counts as finished for the end of the step,
 * but is not added. */
strata_ps_finished strata_ps_pace_finish(strata_ps_pace *pace, int worker, const strata_ps_unit *unit, bool empty);
/* While the pace is stopped, no leases are assigned, except those of lost workers. */
void strata_ps_pace_stop(strata_ps_pace *pace, bool stopped);
/* Whether everything is finished and nothing is left to lease. */
bool strata_ps_pace_ended(const strata_ps_pace *pace);

/* How many steps are finished; in an ended epoch they are the epoch's first ones. */
int64_t strata_ps_pace_steps(const strata_ps_pace *pace);
/* For SYNCHRONOUS: which shares of the last ended step count; false: no step has ended in this epoch. */
bool strata_ps_pace_closed(const strata_ps_pace *pace, strata_ps_close *out_close);
/* How many steps of the epoch have not been leased. */
int64_t strata_ps_pace_left(const strata_ps_pace *pace);
/* Sets `running` to the unfinished leases, `waiting` to those of lost workers that wait for another worker, and `spread` to the
 * largest difference of two workers' clocks. */
void strata_ps_pace_count(const strata_ps_pace *pace, strata_parameter_server_totals *totals);
/* The finished and running leases of a worker; -1: it is not connected. */
int64_t strata_ps_pace_clock(const strata_ps_pace *pace, int worker);
int64_t strata_ps_pace_started(const strata_ps_pace *pace, int worker);

#endif
