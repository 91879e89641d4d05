/* SPDX-License-Identifier: Apache-2.0
 *
 * Who may compute what, and when. An epoch's batches are given to workers as *leases*: a worker that asks gets the next batch
 * (in synchronous training the next share of the open step) unless it must wait for others. A lease that is not finished when
 * its worker is lost is given to another worker, so each batch of an epoch is computed with once. A *clock* counts the leases
 * that a worker has finished; a worker that joins begins with the slowest one's clock.
 *
 *   ASYNCHRONOUS   nobody waits
 *   BOUNDED        a worker waits while its next step would be more than `staleness` steps ahead of the slowest worker's clock
 *   SYNCHRONOUS    a step has n_shares shares and ends when all but `backup` of them are finished; those that are late do not
 *                  count
 *
 * Plain bookkeeping: no thread, no network, no time. The caller has a lock. */
#ifndef STRATA_STRATEGIES_PARAMETER_SERVER_PACE_H
#define STRATA_STRATEGIES_PARAMETER_SERVER_PACE_H

#include "strata/strategy.h"
#include "strategies/parameter_server/store.h"

typedef struct strata_ps_pace strata_ps_pace;

typedef struct strata_ps_pace_options {
    strata_pace pace;
    /* Of BOUNDED; at least 1. */
    int64_t staleness;
    /* Of SYNCHRONOUS: shares of a step, and how many of them need not be there. */
    int n_shares, backup;
    /* Workers have the numbers 0 to n_workers - 1. */
    int n_workers;
} strata_ps_pace_options;

STRATA_MUST_USE strata_status strata_ps_pace_create(const strata_ps_pace_options *opts, strata_ps_pace **out_pace,
                                                    strata_error *err);
void strata_ps_pace_destroy(strata_ps_pace *pace);

/* An epoch of n_steps batches (or accumulated ones), from step `first` on. Forgets all leases. */
void strata_ps_pace_begin(strata_ps_pace *pace, int64_t epoch, int64_t first, int64_t n_steps);
/* A worker is there, or there again: what it had leased is given to others. */
void strata_ps_pace_join(strata_ps_pace *pace, int worker);
/* Returns how many leases it had not finished. */
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
    /* It counts, and with it the synchronous step ended. */
    STRATA_PS_ENDS_STEP,
    /* It was finished before by another worker, or its step had ended without it. */
    STRATA_PS_TOO_LATE,
} strata_ps_finished;
/* empty: of a synchronous share that has no examples, or whose gradients were not finite: the step ends as with it, but nothing
 * of it is added up. */
strata_ps_finished strata_ps_pace_finish(strata_ps_pace *pace, int worker, const strata_ps_unit *unit, bool empty);
/* No leases are given any more, but those that lost workers had; until go_on. */
void strata_ps_pace_stop(strata_ps_pace *pace);
void strata_ps_pace_go_on(strata_ps_pace *pace);
/* All that was leased is finished, and nothing is left to lease. */
bool strata_ps_pace_ended(const strata_ps_pace *pace);

/* How many steps are finished; in an ended epoch they are the first ones. */
int64_t strata_ps_pace_steps(const strata_ps_pace *pace);
/* Of SYNCHRONOUS: which shares of the step that ended last count; false: no step has ended in this epoch. */
bool strata_ps_pace_closed(const strata_ps_pace *pace, strata_ps_close *out_close);
/* How many steps of the epoch were not leased so far. */
int64_t strata_ps_pace_left(const strata_ps_pace *pace);
/* Leases that are not finished; leases of lost workers that wait for another; the largest difference of two workers' clocks. */
int strata_ps_pace_running(const strata_ps_pace *pace);
int strata_ps_pace_returned(const strata_ps_pace *pace);
int64_t strata_ps_pace_spread(const strata_ps_pace *pace);
/* Finished and running leases of a worker; -1: it is not there. */
int64_t strata_ps_pace_clock(const strata_ps_pace *pace, int worker);
int64_t strata_ps_pace_started(const strata_ps_pace *pace, int worker);

#endif
