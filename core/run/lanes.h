/* SPDX-License-Identifier: Apache-2.0
 *
 * Performs the exchanges of a step in the order that their members need, and no other: an exchange begins when the exchanges
 * that its members have before it were performed. As many threads take part as exchanges can be due at once, so that none waits
 * for another one with other members. If all exchanges have members in common, the caller performs them one after the other. */
#ifndef STRATA_CORE_LANES_H
#define STRATA_CORE_LANES_H

#include "core/run/exchange.h"

typedef struct strata_lanes strata_lanes;

typedef struct strata_lanes_options {
    /* Borrowed. Each member (replica) has its exchanges in ascending order. */
    const strata_exchange *exchanges;
    int n_exchanges, n_members;
    /* Performs an exchange. lane: the number of the thread, below strata_lanes_n; 0 is the thread that called strata_lanes_run,
     * which performs all exchanges of all members. */
    strata_status (*perform)(void *user, int lane, int exchange, strata_error *err);
    void *user;
    /* True: the caller performs all exchanges in ascending order. */
    bool in_order;
} strata_lanes_options;

STRATA_MUST_USE strata_status strata_lanes_create(const strata_lanes_options *opts, strata_lanes **out_lanes,
                                                  strata_error *err);
void strata_lanes_destroy(strata_lanes *lanes); /* NULL is fine */
int strata_lanes_n(const strata_lanes *lanes);
/* Performs all exchanges once. After a failure no other exchange begins; it returns when those that have begun have ended. */
STRATA_MUST_USE strata_status strata_lanes_run(strata_lanes *lanes, strata_error *err);

#endif
