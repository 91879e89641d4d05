/* SPDX-License-Identifier: Apache-2.0
 *
 * The monotonic clock, in seconds. Deadlines and heartbeats use it, because the time of day may be set back or forward. All
 * conditions on which a thread waits with a deadline are made by strata_clock_cond_init. */
#ifndef STRATA_BASE_CLOCK_H
#define STRATA_BASE_CLOCK_H

#include <pthread.h>
#include <stdbool.h>
#include <time.h>

static inline double strata_clock_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* The same clock, but up to some milliseconds old. It is cheaper to read, for functions that run for each message. */
static inline double strata_clock_coarse_seconds(void) {
#ifdef CLOCK_MONOTONIC_COARSE
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
#else
    return strata_clock_seconds();
#endif
}

/* Makes a condition whose pthread_cond_timedwait takes times of this clock, as strata_clock_after returns them. */
static inline void strata_clock_cond_init(pthread_cond_t *condition) {
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

/* The time `seconds` from now, in the form that pthread_cond_timedwait needs. */
static inline struct timespec strata_clock_after(double seconds) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    if (seconds > 1e8) seconds = 1e8;
    at.tv_sec += (time_t)seconds;
    at.tv_nsec += (long)((seconds - (double)(time_t)seconds) * 1e9);
    if (at.tv_nsec >= 1000000000) {
        at.tv_sec++;
        at.tv_nsec -= 1000000000;
    }
    return at;
}

/* How much longer to wait for something. The time in which this process did not run is left out: it was stopped, its virtual
 * machine was paused, or a tool moved the clock. Otherwise such a pause would end each wait at once, although what is waited
 * for had no time to come. */
typedef struct strata_patience {
    double left, last;
    int n_away;
} strata_patience;

/* A time between two calls of strata_patience_left that is longer than AWAY counts as TICK, but only the first MOST_AWAY times,
 * since a call of the system, such as the resolution of a name, may take long too. */
static const double STRATA_PATIENCE_AWAY = 5, STRATA_PATIENCE_TICK = 0.5;
enum { STRATA_PATIENCE_MOST_AWAY = 3 };

static inline strata_patience strata_patience_of(double seconds) {
    return (strata_patience){.left = seconds, .last = strata_clock_seconds()};
}

/* The seconds that are left; 0 or less: the wait is over. To be called at least every STRATA_PATIENCE_TICK seconds. */
static inline double strata_patience_left(strata_patience *p) {
    const double now = strata_clock_seconds(), passed = now - p->last;
    const bool away = passed > STRATA_PATIENCE_AWAY && p->n_away < STRATA_PATIENCE_MOST_AWAY;
    p->n_away += away;
    p->left -= away ? STRATA_PATIENCE_TICK : passed > 0 ? passed : 0;
    p->last = now;
    return p->left;
}

/* The time until which pthread_cond_timedwait waits before strata_patience_left is called again. */
static inline struct timespec strata_patience_step(const strata_patience *p) {
    return strata_clock_after(p->left > STRATA_PATIENCE_TICK ? STRATA_PATIENCE_TICK : p->left > 0 ? p->left : 0);
}

#endif
