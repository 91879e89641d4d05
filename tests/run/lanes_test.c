/* SPDX-License-Identifier: Apache-2.0
 *
 * The order of exchanges: those without a common member do not wait for each other, those with one keep their order. */
#include "core/run/lanes.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/clock.h"

enum { MOST = 6 };

/* Bit m of members[e]: member m takes part in exchange e. after[e]: exchange e waits until exchange after[e] has ended; -1: for
 * nothing. */
typedef struct plan {
    unsigned members[MOST];
    int n_exchanges, n_members, after[MOST], fails;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool begun[MOST], ended[MOST], in_order;
    int lanes[MOST], own[MOST][MOST];
    strata_exchange exchanges[MOST];
} plan;

static strata_status perform(void *user, int lane, int e, strata_error *err) {
    plan *p = user;
    const struct timespec end = strata_clock_after(60);
    strata_status status = STRATA_OK;
    pthread_mutex_lock(&p->lock);
    p->begun[e] = true;
    p->lanes[e] = lane;
    for (int before = 0; before < e; before++)
        if (p->members[before] & p->members[e]) p->in_order &= p->ended[before];
    while (p->after[e] >= 0 && !p->ended[p->after[e]] && !status)
        if (pthread_cond_timedwait(&p->changed, &p->lock, &end))
            status = strata_fail(err, STRATA_TIMEOUT, "exchange %d never ends", p->after[e]);
    p->ended[e] = true;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
    return e == p->fails ? strata_fail(err, STRATA_DEVICE_LOST, "exchange %d failed", e) : status;
}

static strata_lanes *create(plan *p) {
    strata_lanes *lanes = NULL;
    strata_error err = {0};
    const strata_lanes_options opts = {
        .exchanges = p->exchanges, .n_exchanges = p->n_exchanges, .n_members = p->n_members, .perform = perform, .user = p};
    for (int e = 0; e < p->n_exchanges; e++) {
        p->exchanges[e].own = p->own[e];
        for (int m = 0; m < p->n_members; m++) p->own[e][m] = p->members[e] >> m & 1 ? e : -1;
    }
    pthread_mutex_init(&p->lock, NULL);
    strata_clock_cond_init(&p->changed);
    cr_assert_eq(strata_lanes_create(&opts, &lanes, &err), STRATA_OK, "%s", err.message);
    return lanes;
}

static strata_status run(plan *p, strata_lanes *lanes, strata_error *err) {
    memset(p->begun, 0, sizeof p->begun);
    memset(p->ended, 0, sizeof p->ended);
    p->in_order = true;
    return strata_lanes_run(lanes, err);
}

/* Exchange 0 waits for 1 and 3, which the same other members make one after the other. 4 has all members. */
Test(lanes, exchanges_of_other_members_do_not_wait) {
    plan p = {.members = {3, 12, 3, 12, 15}, .n_exchanges = 5, .n_members = 4, .after = {3, -1, -1, -1, -1}, .fails = -1};
    strata_lanes *lanes = create(&p);
    strata_error err = {0};
    cr_assert_eq(strata_lanes_n(lanes), 2);
    for (int step = 0; step < 100; step++) {
        cr_assert_eq(run(&p, lanes, &err), STRATA_OK, "%s", err.message);
        cr_assert(p.in_order);
        for (int e = 0; e < p.n_exchanges; e++) cr_assert(p.ended[e]);
        cr_assert_eq(p.lanes[4], 0, "the caller performs the exchange of all members");
    }
    strata_lanes_destroy(lanes);
}

Test(lanes, exchanges_with_a_common_member_have_one_thread) {
    plan p = {.members = {7, 7, 3, 6}, .n_exchanges = 4, .n_members = 3, .after = {-1, -1, -1, -1}, .fails = -1};
    strata_lanes *lanes = create(&p);
    cr_assert_eq(strata_lanes_n(lanes), 1);
    cr_assert_eq(run(&p, lanes, NULL), STRATA_OK);
    cr_assert(p.in_order);
    strata_lanes_destroy(lanes);
}

Test(lanes, a_failure_ends_the_run) {
    plan p = {.members = {1, 2, 1, 2, 3}, .n_exchanges = 5, .n_members = 2, .after = {-1, -1, -1, -1, -1}, .fails = 1};
    strata_lanes *lanes = create(&p);
    for (int step = 0; step < 20; step++) {
        strata_error err = {0};
        cr_assert_eq(run(&p, lanes, &err), STRATA_DEVICE_LOST);
        cr_assert_str_eq(err.message, "exchange 1 failed");
        cr_assert_not(p.begun[3]);
        cr_assert_not(p.begun[4]);
    }
    p.fails = -1;
    cr_assert_eq(run(&p, lanes, NULL), STRATA_OK);
    strata_lanes_destroy(lanes);
}

Test(lanes, a_child_of_fork_has_its_own_threads) {
    plan p = {.members = {1, 2}, .n_exchanges = 2, .n_members = 2, .after = {1, -1}, .fails = -1};
    strata_lanes *lanes = create(&p);
    int status = -1;
    cr_assert_eq(run(&p, lanes, NULL), STRATA_OK);
    const pid_t child = fork();
    if (!child) {
        const bool right = run(&p, lanes, NULL) == STRATA_OK && p.ended[0] && p.ended[1];
        strata_lanes_destroy(lanes);
        _exit(!right);
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert_eq(status, 0);
    strata_lanes_destroy(lanes);
}
